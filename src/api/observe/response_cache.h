/* A prepared answer that many clients poll, rebuilt when what it shows has changed. */
#ifndef GB_API_OBSERVE_RESPONSE_CACHE_H
#define GB_API_OBSERVE_RESPONSE_CACHE_H

#include <pthread.h>
#include <stdint.h>

#include "format/json_writer.h"
#include "http/http.h"

struct gb_response_cache {
    pthread_mutex_t lock; /* held for a look and a swap only, never while the text is made */
    struct gb_http_canned *canned;
    char *text; /* of canned, to see whether a new one differs */
    size_t len;
    char etag[80];
    uint64_t sequence; /* of the core when the text was begun */
    uint64_t built_ns;
    uint64_t revision; /* raised with every text that differs */
};

void gb_response_cache_init(struct gb_response_cache *cache);
void gb_response_cache_done(struct gb_response_cache *cache);

/* How long a snapshot stands in for numbers that move without a change being acknowledged (slots in use and the like). */
#define GB_RESPONSE_CACHE_AGE_NS 200000000ULL

/* A reference to the snapshot when it was made at this sequence and is young enough, else NULL. */
struct gb_http_canned *gb_response_cache_get(struct gb_response_cache *cache, uint64_t sequence, uint64_t now_ns);

/* Puts a text made at this sequence into its place and returns a reference. Where the first `settled` bytes are equal it keeps the entity
 * tag of the one before, so that what moves by itself (time that was used) makes no answer new: the tag is a weak one. `epoch` makes it
 * unique to this process. Takes the writer's text. NULL when memory is exhausted. */
struct gb_http_canned *gb_response_cache_put(struct gb_response_cache *cache, uint64_t sequence, uint64_t now_ns,
                                             int64_t epoch, struct gb_json_writer *out, size_t settled);

#endif
