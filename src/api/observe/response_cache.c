#include "api/observe/response_cache.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void gb_snapshot_init(struct gb_snapshot *snapshot) {
    *snapshot = (struct gb_snapshot){0};
    pthread_mutex_init(&snapshot->lock, NULL);
}

void gb_snapshot_done(struct gb_snapshot *snapshot) {
    gb_http_canned_unref(snapshot->canned);
    free(snapshot->text);
    pthread_mutex_destroy(&snapshot->lock);
}

struct gb_http_canned *gb_snapshot_get(struct gb_snapshot *snapshot, uint64_t sequence, uint64_t now_ns) {
    struct gb_http_canned *canned = NULL;

    pthread_mutex_lock(&snapshot->lock);
    /* Another thread may have put a newer one than the caller knows of. */
    if (snapshot->canned && snapshot->sequence >= sequence && now_ns < snapshot->built_ns + GB_SNAPSHOT_AGE_NS)
        canned = gb_http_canned_ref(snapshot->canned);
    pthread_mutex_unlock(&snapshot->lock);
    return canned;
}

/* The text goes to the snapshot when it is newer than what stands there. */
static struct gb_http_canned *swap_locked(struct gb_snapshot *snapshot, uint64_t sequence, uint64_t now_ns,
                                          int64_t epoch, struct gb_out *out, size_t settled) {
    struct gb_http_canned *fresh;
    char etag[sizeof(snapshot->etag)];
    bool same = snapshot->canned && snapshot->len == settled && memcmp(snapshot->text, out->s, settled) == 0;

    if (snapshot->canned && snapshot->sequence > sequence)
        return gb_http_canned_ref(snapshot->canned);
    if (!same || settled < out->used) {
        snprintf(etag, sizeof(etag), "W/\"%" PRIx64 ".%" PRIu64 ".%" PRIu64 "\"", (uint64_t)epoch, sequence,
                 snapshot->revision + 1);
        fresh = gb_http_canned_new(200, "application/json", same ? snapshot->etag : etag, out->s, out->used);
        if (!fresh)
            return NULL;
        if (!same) {
            memcpy(snapshot->etag, etag, sizeof(etag));
            snapshot->revision++;
        }
        gb_http_canned_unref(snapshot->canned);
        free(snapshot->text);
        snapshot->canned = fresh;
        snapshot->text = out->s;
        snapshot->len = settled;
        *out = (struct gb_out){0};
    }
    snapshot->sequence = sequence;
    snapshot->built_ns = now_ns;
    return gb_http_canned_ref(snapshot->canned);
}

struct gb_http_canned *gb_snapshot_put(struct gb_snapshot *snapshot, uint64_t sequence, uint64_t now_ns, int64_t epoch,
                                       struct gb_out *out, size_t settled) {
    struct gb_http_canned *canned = NULL;

    if (!out->failed) {
        pthread_mutex_lock(&snapshot->lock);
        canned = swap_locked(snapshot, sequence, now_ns, epoch, out, settled);
        pthread_mutex_unlock(&snapshot->lock);
    }
    gb_out_done(out);
    return canned;
}
