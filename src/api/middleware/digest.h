/* Digests of downloads: asked for by Want-Repr-Digest, computed once for each representation, kept. */
#ifndef GB_API_MIDDLEWARE_DIGEST_H
#define GB_API_MIDDLEWARE_DIGEST_H

#include <pthread.h>

#include "api/middleware/conditional.h"
#include "base/hash.h"
#include "http/http.h"

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
};

/* Tells whether the digest is asked for and still unknown. Returns 1 when it has to be computed, 0 when it is known or
 * not asked for, or -1. */
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

#endif
