/* How a reply is made of its text: at once, kept for many clients, or on a thread of the core; and the time that a
 * transfer took. Handlers of all resources call these. */
#include "api/reply/reply.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/encoding.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/thread.h"

/* --- at once ------------------------------------------------------------------------------------------------------ */

int gb_json_reply(struct gb_json_writer *out, struct gb_http_response *response, int status, struct gb_error *err) {
    gb_json_end(out);
    if (out->failed) {
        gb_json_done(out);
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for the reply; try again later");
    }
    if (gb_http_response_header(response, err, "Content-Type", "application/json") < 0) {
        gb_json_done(out);
        return -1;
    }
    response->status = status;
    gb_http_response_take(response, out->s, out->used);
    *out = (struct gb_json_writer){0};
    return 0;
}

enum gb_step gb_reply_json(struct gb_json_writer *out, int status, struct gb_http_response *response,
                           struct gb_error *err) {
    return gb_json_reply(out, response, status, err) < 0 ? GB_STEP_ERROR : GB_STEP_REPLY;
}

enum gb_step gb_reply_tagged(struct gb_json_writer *out, char kind, struct gb_http_response *response,
                             struct gb_error *err) {
    struct gb_http_canned *canned = NULL;
    char tag[40];

    gb_json_end(out);
    if (!out->failed) {
        snprintf(tag, sizeof(tag), "\"%c%08" PRIx32 "-%zx\"", kind, gb_crc32c(0, out->s, out->used), out->used);
        canned = gb_http_canned_new(200, "application/json", tag, out->s, out->used);
    }
    gb_json_done(out);
    if (!canned) {
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the reply; try again later");
        return GB_STEP_ERROR;
    }
    gb_http_response_canned(response, canned);
    return GB_STEP_REPLY;
}

/* --- kept replies ------------------------------------------------------------------------------------------------- */

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

/* --- on a thread of the core -------------------------------------------------------------------------------------- */

static void unref(void *arg) {
    struct gb_deferred *d = arg;

    if (atomic_fetch_sub(&d->refs, 1) == 1)
        d->release(d);
}

static void run(struct gb_core_task *work) {
    struct gb_deferred *d = gb_container_of(work, struct gb_deferred, work);
    struct gb_http_request *request = d->request;

    /* With one reference left the request is over. */
    if (atomic_load(&d->left))
        gb_error_set(&d->error, GB_ERR_CANCELLED, "the client has gone");
    else if (atomic_load(&d->refs) > 1 && d->make(d, &d->error) < 0 && d->error.code == GB_OK)
        gb_error_set(&d->error, GB_ERR_SATURATED, "no memory for the reply; try again later");
    atomic_store(&d->finished, true);
    gb_http_wake(request);
    unref(d);
    gb_http_request_unref(request); /* the server, and what release uses, lives until then */
}

static enum gb_step resume(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct gb_deferred *d = request->state;

    if (!atomic_load(&d->finished)) {
        if (!request->timed_out)
            return GB_STEP_WAIT;
        gb_error_set(err, GB_ERR_TIMED_OUT, "the answer was not ready in the permitted time");
    } else if (d->error.code == GB_OK) {
        return d->reply(d, request, response, err);
    } else {
        *err = d->error;
    }
    gb_http_response_done(response); /* its headers tell of another answer */
    return GB_STEP_ERROR;
}

/* Nothing has changed, so that nothing needs to be undone. */
static bool cancel(struct gb_http_request *request, bool act) {
    struct gb_deferred *d = request->state;

    if (act)
        atomic_store(&d->left, true);
    return true;
}

enum gb_step gb_deferred_start(struct gb_http_request *request, struct gb_deferred *deferred) {
    atomic_init(&deferred->refs, 2);
    atomic_init(&deferred->left, false);
    atomic_init(&deferred->finished, false);
    deferred->api = gb_api_of(request);
    deferred->work.run = run;
    deferred->request = gb_http_request_ref(request);
    request->state = deferred;
    request->state_free = unref;
    request->resume = resume;
    request->cancel = cancel;
    gb_core_run_task(deferred->api->core, &deferred->work);
    return GB_STEP_WAIT;
}

/* --- Server-Timing ------------------------------------------------------------------------------------------------ */

/* Four metrics with their numbers. */
#define TEXT_SIZE 160

/* One metric: milliseconds with three decimals. Returns the end of what was written. */
static char *put(char *at, const char *name, double ms) {
    uint64_t us = ms > 0 ? (uint64_t)(ms * 1000 + 0.5) : 0;

    at = stpcpy(stpcpy(at, name), ";dur=");
    at = gb_digits(at, us / 1000);
    *at++ = '.';
    at = gb_digits_padded(at, us % 1000, 3);
    *at = '\0';
    return at;
}

static double ms_since(const struct gb_http_request *request, uint64_t now_ns) {
    return (double)(now_ns - request->started_ns) / GB_NS_PER_MS;
}

static int add(const struct gb_http_request *request, const struct gb_transfer_times *times, char *text, char *at,
               struct gb_http_response *response, struct gb_error *err) {
    if (!times->sampled) { /* else they are another's */
        at = put(at, "queue", times->queue_ms);
        at = put(stpcpy(at, ", "), "copy", times->copy_ms);
        at = stpcpy(at, ", ");
    }
    put(at, "total", ms_since(request, gb_clock_ns()));
    return gb_http_response_header(response, err, "Server-Timing", "%s", text);
}

int gb_add_timing(const struct gb_http_request *request, const struct gb_transfer_times *times,
                  struct gb_http_response *response, struct gb_error *err) {
    char text[TEXT_SIZE];

    return add(request, times, text, text, response, err);
}

int gb_add_upload_timing(const struct gb_http_request *request, const struct gb_transfer_times *times, uint64_t recv_ns,
                         struct gb_http_response *response, struct gb_error *err) {
    char text[TEXT_SIZE];
    char *at = put(text, "recv", ms_since(request, recv_ns));

    return add(request, times, text, stpcpy(at, ", "), response, err);
}
