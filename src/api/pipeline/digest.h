/* Digests and content codings of bodies. */
#ifndef GB_API_PIPELINE_DIGEST_H
#define GB_API_PIPELINE_DIGEST_H

#include <pthread.h>

#include "api/pipeline/conditional.h"
#include "api/request/body.h"
#include "base/hash.h"
#include "format/decode.h"
#include "http/http.h"

/* Digests of downloads: asked for by Want-Repr-Digest, computed once for each representation, kept. */

#define GB_DIGESTS_KEPT 1024

/* The digests last computed, by entity tag. A tag is never given to other bytes. */
struct gb_digests {
    pthread_mutex_t lock;
    unsigned count;
    unsigned next; /* the oldest makes room */
    struct gb_digest_kept {
        char tag[GB_ETAG_SIZE];
        struct gb_digest digest;
    } * kept;
};

struct gb_digests *gb_digests_new(void);          /* NULL: no memory */
void gb_digests_free(struct gb_digests *digests); /* NULL is accepted */
void gb_digests_keep(struct gb_digests *digests, const char *tag, const struct gb_digest *digest);
bool gb_digests_find(struct gb_digests *digests, const char *tag, enum gb_digest_alg alg, struct gb_digest *ret);

/* Reads Want-Repr-Digest, or Want-Content-Digest when the former asks for nothing. *ret: the preferred algorithm of
 * those that are known. Returns 0, or -1 with MALFORMED_REQUEST. */
int gb_digest_wanted(const struct gb_http_request *request, bool *ret_wanted, enum gb_digest_alg *ret,
                     struct gb_error *err);

/* The representation that is sent, whole or in part: all bytes of the buffer behind a head, under its tag. */
struct gb_representation {
    const struct gb_buffer_rec *rec;
    const char *tag;
    const void *head;
    size_t head_n;
    struct gb_scan_choice choice; /* which bytes; handed over to gb_digest_await */
};

/* Returns 1 if the digest is asked for and has to be computed, 0 if it is known or not asked for, or -1. */
int gb_digest_missing(const struct gb_http_request *request, const struct gb_representation *what,
                      struct gb_error *err);

/* Computes the digest in the order of the stream. The request waits, then `handler` runs again from its start.
 * request->state must be free. */
enum gb_step gb_digest_await(struct gb_http_request *request, const struct gb_representation *what,
                             gb_http_handler *handler, struct gb_http_response *response, struct gb_error *err);

/* Adds Repr-Digest when it is asked for and known. whole: the content is the whole representation, so Content-Digest is
 * added as well when that is asked for. Returns 0 or -1. */
int gb_digest_headers(const struct gb_http_request *request, const char *tag, bool whole,
                      struct gb_http_response *response, struct gb_error *err);

/* {"digest": {"sha-256": "base64", ...}}: the digests that a client expects of the bytes. */

/* Reads the member "digest", which may be missing. Returns 0 or -1. */
int gb_digest_set_read(const json_t *body, struct gb_digest_set *ret, struct gb_error *err);
int gb_digest_unknown(const char *name, struct gb_error *err); /* Returns -1: there is no such algorithm. */

/* Filters between a streamed body as it is received and the sink of its bytes. They decode content codings and check
 * the digests that the headers promise.
 *
 *     if (gb_filters_read(request, response, &filters, err) < 0)   before anything is begun
 *         return GB_STEP_ERROR;
 *     ...
 *     return gb_filters_wrap(request, &filters, sink, err);        the last step of the handler
 *
 * The wrapped sink gets the decoded bytes, as those of a chunked body of unknown length. Its `end` is called only
 * when they are complete and have the digests. */

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

/* Makes inner, with the filters around it, the sink of the request. Takes inner, also on failure. inner NULL: the
 * caller has set *err. request->sink is inner again when inner's end is called. Returns BODY, or ERROR with SATURATED
 * (too many bodies are being decoded) or INTERNAL. */
enum gb_step gb_filters_wrap(struct gb_http_request *request, const struct gb_filters *filters,
                             struct gb_http_sink *inner, struct gb_error *err);

/* Checks how many bytes a coded body may expand to. Returns 0, or -1 with BODY_TOO_LARGE. */
int gb_filters_permit(const struct gb_api *api, uint64_t bytes, struct gb_error *err);

#endif
