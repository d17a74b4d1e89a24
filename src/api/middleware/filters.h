/* Filters between a streamed body as it is received and the sink of its bytes. They decode content codings and check
 * the digests that the headers promise.
 *
 *     if (gb_filters_read(request, response, &filters, err) < 0)   before anything is begun
 *         return GB_STEP_ERROR;
 *     ...
 *     sink = gb_filters_wrap(request, &filters, sink, err);        the last step before GB_STEP_BODY
 *
 * The wrapped sink gets the decoded bytes, as those of a chunked body of unknown length. Its `end` is called only
 * when they are complete and have the digests. */
#ifndef GB_API_MIDDLEWARE_FILTERS_H
#define GB_API_MIDDLEWARE_FILTERS_H

#include "base/hash.h"
#include "format/decode.h"
#include "http/http.h"

struct gb_api;

#define GB_CODINGS_MAX 2
/* The value of Accept-Encoding. */
#define GB_CODINGS_TAKEN "gzip, deflate, zstd"

struct gb_filters {
    unsigned codings;
    enum gb_coding coding[GB_CODINGS_MAX]; /* in the order in which they were applied */
    /* Content-Length is that of the coded bytes, not of those that the sink gets. */
    bool coded;
    unsigned digests;
    struct {
        const char *header; /* static: the name of the header that gave it */
        struct gb_digest digest;
    } digest[2 * GB_DIGEST_ALGS];
};

/* Reads Content-Encoding, Content-Digest and Repr-Digest. Returns 0, or -1 with UNSUPPORTED_MEDIA_TYPE (the response
 * then has Accept-Encoding), MALFORMED_REQUEST or INVALID_ARGUMENT. */
int gb_filters_read(const struct gb_http_request *request, struct gb_http_response *response, struct gb_filters *ret,
                    struct gb_error *err);

/* Wraps inner, which is taken also on failure. request->sink is inner again when inner's end is called. Returns inner
 * itself when there is nothing to do, or NULL with SATURATED (too many bodies are being decoded) or INTERNAL. */
struct gb_http_sink *gb_filters_wrap(struct gb_http_request *request, const struct gb_filters *filters,
                                     struct gb_http_sink *inner, struct gb_error *err);

/* Checks how many bytes a coded body may expand to. Returns 0, or -1 with BODY_TOO_LARGE. */
int gb_filters_permit(const struct gb_api *api, uint64_t bytes, struct gb_error *err);

/* The two sinks of this filter. Each takes inner only on success. */
struct gb_http_sink *gb_encoding_sink_new(struct gb_http_request *request, enum gb_coding coding,
                                          struct gb_http_sink *inner, struct gb_error *err);
struct gb_http_sink *gb_digest_sink_new(struct gb_http_request *request, const struct gb_filters *filters,
                                        struct gb_http_sink *inner, struct gb_error *err);

/* Reads Content-Encoding alone, all lines of the header as one list, for bodies that may have none. */
int gb_encoding_read(const struct gb_http_request *request, struct gb_filters *ret, struct gb_error *err);
/* Reads Content-Digest and Repr-Digest. */
int gb_digests_read(const struct gb_http_request *request, struct gb_filters *ret, struct gb_error *err);

#endif
