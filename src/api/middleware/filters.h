/* What stands between a streamed body as it is received and the sink of its bytes: content codings are taken off, and the
 * digests that the headers promise are checked.
 *
 *     if (gb_filters_read(request, response, &filters, err) < 0)   before anything is begun
 *         return GB_STEP_ERROR;
 *     ...
 *     sink = gb_filters_wrap(request, &filters, sink, err);        the last step before GB_STEP_BODY
 *
 * The wrapped sink gets the decoded bytes, as a chunked body of unknown length would come, and its `end` only when they are
 * complete and have the digests. */
#ifndef GB_API_MIDDLEWARE_FILTERS_H
#define GB_API_MIDDLEWARE_FILTERS_H

#include "base/digest.h"
#include "format/decode.h"
#include "http/http.h"

struct gb_api;

#define GB_CODINGS_MAX 2
/* For the header Accept-Encoding. */
#define GB_CODINGS_TAKEN "gzip, deflate, zstd"

struct gb_filters {
    unsigned codings;
    enum gb_coding coding[GB_CODINGS_MAX]; /* in the order in which they were applied */
    /* Content-Length is not that of the bytes that the sink gets. */
    bool coded;
    unsigned digests;
    struct {
        const char *header; /* static: the name of the header that gave it */
        struct gb_digest digest;
    } digest[2 * GB_DIGEST_ALGS];
};

/* Content-Encoding, Content-Digest, Repr-Digest. Returns 0, or -1 with UNSUPPORTED_MEDIA_TYPE (then Accept-Encoding stands
 * in the response), MALFORMED_REQUEST or INVALID_ARGUMENT. */
int gb_filters_read(const struct gb_http_request *request, struct gb_http_response *response, struct gb_filters *ret,
                    struct gb_error *err);

/* Takes inner, also on failure: NULL with SATURATED (so many bodies are being decoded) or INTERNAL. inner itself where there
 * is nothing to do. request->sink is inner again when inner's end is called. */
struct gb_http_sink *gb_filters_wrap(struct gb_http_request *request, const struct gb_filters *filters,
                                     struct gb_http_sink *inner, struct gb_error *err);

/* So many bytes may come out of a coding. 0, or -1 with BODY_TOO_LARGE. */
int gb_filters_permit(const struct gb_api *api, uint64_t bytes, struct gb_error *err);

/* The files behind it: each takes inner only on success. */
struct gb_http_sink *gb_encoding_sink_new(struct gb_http_request *request, enum gb_coding coding,
                                          struct gb_http_sink *inner, struct gb_error *err);
struct gb_http_sink *gb_digest_sink_new(struct gb_http_request *request, const struct gb_filters *filters,
                                        struct gb_http_sink *inner, struct gb_error *err);

/* Content-Encoding alone, for what takes no other than none: all lines of the header as one list. */
int gb_encoding_read(const struct gb_http_request *request, struct gb_filters *ret, struct gb_error *err);
/* digest_fields.c: Content-Digest and Repr-Digest. */
int gb_digests_read(const struct gb_http_request *request, struct gb_filters *ret, struct gb_error *err);

#endif
