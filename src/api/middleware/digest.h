/* Digests of what is downloaded: asked for by Want-Repr-Digest, computed once for each representation, kept. */
#ifndef GB_API_MIDDLEWARE_DIGEST_H
#define GB_API_MIDDLEWARE_DIGEST_H

#include <pthread.h>

#include "api/middleware/conditional.h"
#include "base/digest.h"
#include "http/http.h"

#define GB_DIGESTS_KEPT 1024

/* Those last computed, by entity tag: a tag that was ever seen is never given to other bytes. */
struct gb_digests {
    pthread_mutex_t lock;
    unsigned count;
    unsigned next; /* the oldest makes room */
    struct gb_digest_kept {
        char tag[GB_ETAG_SIZE];
        struct gb_digest digest;
    } * kept;
};

int gb_digests_init(struct gb_digests *digests); /* -1: no memory */
void gb_digests_done(struct gb_digests *digests);
void gb_digests_keep(struct gb_digests *digests, const char *tag, const struct gb_digest *digest);
bool gb_digests_find(struct gb_digests *digests, const char *tag, enum gb_digest_alg alg, struct gb_digest *ret);

/* Want-Repr-Digest, or where that asks for nothing Want-Content-Digest: the known algorithm that pleases best. Returns 0, or
 * -1 with MALFORMED_REQUEST. */
int gb_digest_wanted(const struct gb_http_request *request, bool *ret_wanted, enum gb_digest_alg *ret,
                     struct gb_error *err);

/* What is to be sent, or a part of it: all bytes of the buffer behind a head, under its tag. */
struct gb_representation {
    const struct gb_buffer_rec *rec;
    const char *tag;
    const void *head;
    size_t head_n;
};

/* 1: its digest is asked for and has to be computed; 0: it is known, or not asked for; -1. */
int gb_digest_missing(const struct gb_http_request *request, const struct gb_representation *what,
                      struct gb_error *err);

/* Computes it in the order of the stream. The request waits, then `handler` runs again from its start. request->state must
 * be free. */
enum gb_step gb_digest_await(struct gb_http_request *request, const struct gb_representation *what,
                             gb_http_handler *handler, struct gb_http_response *response, struct gb_error *err);

/* Adds Repr-Digest where it is asked for and known. whole: it is the content too, and Content-Digest says so where that was
 * asked for. 0 or -1. */
int gb_digest_headers(const struct gb_http_request *request, const char *tag, bool whole,
                      struct gb_http_response *response, struct gb_error *err);

#endif
