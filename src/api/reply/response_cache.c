#include "api/reply/response_cache.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"

struct gb_response_cache *gb_response_cache_new(void) {
    struct gb_response_cache *cache = calloc(1, sizeof(*cache));

    if (cache)
        gb_mutex_init(&cache->lock);
    return cache;
}

void gb_response_cache_free(struct gb_response_cache *cache) {
    if (!cache)
        return;
    gb_http_canned_unref(cache->canned);
    free(cache->text);
    pthread_mutex_destroy(&cache->lock);
    free(cache);
}

struct gb_http_canned *gb_response_cache_get(struct gb_response_cache *cache, uint64_t sequence, uint64_t now_ns) {
    struct gb_http_canned *canned = NULL;

    pthread_mutex_lock(&cache->lock);
    /* Another thread may have put a newer text than the caller knows of. */
    if (cache->canned && cache->sequence >= sequence && now_ns < cache->built_ns + GB_RESPONSE_CACHE_AGE_NS)
        canned = gb_http_canned_ref(cache->canned);
    pthread_mutex_unlock(&cache->lock);
    return canned;
}

/* Puts the text into the cache when it is newer than the text there. */
static struct gb_http_canned *swap_locked(struct gb_response_cache *cache, uint64_t sequence, uint64_t now_ns,
                                          int64_t epoch, struct gb_json_writer *out, size_t settled) {
    struct gb_http_canned *fresh;
    char etag[sizeof(cache->etag)];
    bool same = cache->canned && cache->len == settled && memcmp(cache->text, out->s, settled) == 0;

    if (cache->canned && cache->sequence > sequence)
        return gb_http_canned_ref(cache->canned);
    if (!same || settled < out->used) {
        snprintf(etag, sizeof(etag), "W/\"%" PRIx64 ".%" PRIu64 ".%" PRIu64 "\"", (uint64_t)epoch, sequence,
                 cache->revision + 1);
        fresh = gb_http_canned_new(200, "application/json", same ? cache->etag : etag, out->s, out->used);
        if (!fresh)
            return NULL;
        if (!same) {
            memcpy(cache->etag, etag, sizeof(etag));
            cache->revision++;
        }
        gb_http_canned_unref(cache->canned);
        free(cache->text);
        cache->canned = fresh;
        cache->text = out->s;
        cache->len = settled;
        *out = (struct gb_json_writer){0};
    }
    cache->sequence = sequence;
    cache->built_ns = now_ns;
    return gb_http_canned_ref(cache->canned);
}

struct gb_http_canned *gb_response_cache_put(struct gb_response_cache *cache, uint64_t sequence, uint64_t now_ns,
                                             int64_t epoch, struct gb_json_writer *out, size_t settled) {
    struct gb_http_canned *canned = NULL;

    if (!out->failed) {
        pthread_mutex_lock(&cache->lock);
        canned = swap_locked(cache, sequence, now_ns, epoch, out, settled);
        pthread_mutex_unlock(&cache->lock);
    }
    gb_json_done(out);
    return canned;
}
