/* A prepared reply that many clients poll. It is rebuilt when what it shows has changed. */
#ifndef GB_API_REPLY_RESPONSE_CACHE_H
#define GB_API_REPLY_RESPONSE_CACHE_H

#include <pthread.h>
#include <stdint.h>

#include "base/json_writer.h"
#include "http/http.h"

struct gb_response_cache {
    pthread_mutex_t lock; /* held for a look or a swap only, never while the text is made */
    struct gb_http_canned *canned;
    char *text; /* of canned, to see whether a new one differs */
    size_t len;
    char etag[80];
    uint64_t sequence; /* of the core when the text was begun */
    uint64_t built_ns;
    uint64_t revision; /* raised with every text that differs */
};

struct gb_response_cache *gb_response_cache_new(void);        /* NULL: no memory */
void gb_response_cache_free(struct gb_response_cache *cache); /* NULL is accepted */

/* How long a text stands in for numbers that move without an acknowledged change (slots in use and the like). */
#define GB_RESPONSE_CACHE_AGE_NS 200000000ULL

/* Returns a reference to the reply when it was made at this sequence and is young enough, else NULL. */
struct gb_http_canned *gb_response_cache_get(struct gb_response_cache *cache, uint64_t sequence, uint64_t now_ns);

/* Puts a text that was made at this sequence into the cache. Takes the text of out. If its first `settled` bytes are
 * those of the text before, the entity tag stays: numbers that move by themselves, such as used time, make no reply
 * new. The tag is therefore a weak one, and epoch makes it unique to this process. Returns a reference, or NULL when
 * memory is exhausted. */
struct gb_http_canned *gb_response_cache_put(struct gb_response_cache *cache, uint64_t sequence, uint64_t now_ns,
                                             int64_t epoch, struct gb_json_writer *out, size_t settled);

#endif
