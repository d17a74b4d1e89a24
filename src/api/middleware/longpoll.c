#include "api/middleware/longpoll.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "api/auth.h"
#include "api/context.h"
#include "api/middleware/conditional.h"
#include "api/reply/response_cache.h"
#include "base/clock.h"
#include "base/thread.h"
#include "core/core.h"

#define WAIT_MAX_S 3600 /* the server cuts it to --wait-max */
#define TURN 64         /* requests looked at under one hold of the lock */

struct gb_poll {
    TAILQ_ENTRY(gb_poll) link;
    struct gb_polls *polls;
    struct gb_http_request *request;
    gb_http_handler *handler;
    gb_poll_same *same;
    uint64_t sequence;
    uint64_t deadline_ns;
    bool listed;
    char tag[GB_ETAG_SIZE];
};

TAILQ_HEAD(gb_poll_list, gb_poll);

struct gb_polls {
    struct gb_core *core;
    struct gb_worker worker;
    bool idle;            /* the worker's alone: it sleeps until a request waits */
    pthread_mutex_t lock; /* guards all below */
    struct gb_poll_list list;
    unsigned count;
    unsigned local; /* of them over UNIX sockets */
    bool ending;    /* no request waits any more */
};

/* --- the thread --------------------------------------------------------------------------------------------------- */

static void look_locked(struct gb_polls *polls, struct gb_poll *p) {
    uint64_t sequence = gb_core_sequence(polls->core);

    if (sequence == p->sequence)
        return;
    p->sequence = sequence;
    if (!p->same || !p->same(polls->core, p->request, p->tag))
        gb_http_wake(p->request);
}

/* In turns, so that a request that comes or goes meanwhile waits for few. */
static void look_at_all(struct gb_polls *polls) {
    unsigned left;

    pthread_mutex_lock(&polls->lock);
    for (left = polls->count; left > 0 && polls->count > 0; left--) {
        struct gb_poll *p = TAILQ_FIRST(&polls->list);

        TAILQ_REMOVE(&polls->list, p, link);
        TAILQ_INSERT_TAIL(&polls->list, p, link);
        look_locked(polls, p);
        if (left % TURN == 0) {
            pthread_mutex_unlock(&polls->lock);
            pthread_mutex_lock(&polls->lock);
        }
    }
    pthread_mutex_unlock(&polls->lock);
}

/* The kick of the first request that waits only begins the delay: a burst of changes then wakes that request once. */
static uint64_t run(void *arg) {
    struct gb_polls *polls = arg;

    if (!polls->idle)
        look_at_all(polls);
    pthread_mutex_lock(&polls->lock);
    polls->idle = polls->count == 0;
    pthread_mutex_unlock(&polls->lock);
    return polls->idle ? 0 : GB_RESPONSE_CACHE_AGE_NS / GB_NS_PER_MS;
}

struct gb_polls *gb_polls_new(struct gb_core *core) {
    struct gb_polls *polls = calloc(1, sizeof(*polls));

    if (!polls)
        return NULL;
    polls->core = core;
    polls->idle = true;
    TAILQ_INIT(&polls->list);
    gb_mutex_init(&polls->lock);
    gb_worker_init(&polls->worker);
    if (gb_worker_start(&polls->worker, "gb-poll", 0, run, polls, NULL) == 0)
        return polls;
    gb_polls_free(polls);
    return NULL;
}

void gb_polls_free(struct gb_polls *polls) {
    if (!polls)
        return;
    gb_worker_stop(&polls->worker);
    gb_worker_done(&polls->worker);
    pthread_mutex_destroy(&polls->lock);
    free(polls);
}

static void wake_all(struct gb_polls *polls, bool ending) {
    struct gb_poll *p;

    pthread_mutex_lock(&polls->lock);
    polls->ending = polls->ending || ending;
    TAILQ_FOREACH(p, &polls->list, link)
    gb_http_wake(p->request);
    pthread_mutex_unlock(&polls->lock);
}

void gb_polls_end(struct gb_polls *polls) {
    wake_all(polls, true);
}

void gb_polls_recheck(struct gb_polls *polls) {
    wake_all(polls, false);
}

/* --- those that wait ---------------------------------------------------------------------------------------------- */

static void poll_free(void *arg) {
    struct gb_poll *p = arg;
    struct gb_polls *polls = p->polls;

    pthread_mutex_lock(&polls->lock);
    if (p->listed) {
        TAILQ_REMOVE(&polls->list, p, link);
        polls->count--;
        polls->local -= p->request->local;
    }
    pthread_mutex_unlock(&polls->lock);
    free(p);
}

static struct gb_poll *poll_new(struct gb_polls *polls, struct gb_http_request *request) {
    unsigned wait_s = gb_http_prefer_wait(request, 0, WAIT_MAX_S, NULL);
    struct gb_poll *p = wait_s > 0 && !request->detached ? calloc(1, sizeof(*p)) : NULL;

    if (!p)
        return NULL;
    p->polls = polls;
    p->request = request;
    p->deadline_ns = gb_clock_ns() + wait_s * GB_NS_PER_S;
    request->state = p;
    request->state_free = poll_free;
    return p;
}

/* Puts the request on the list. Returns false when it may not wait. */
static bool list(struct gb_polls *polls, struct gb_poll *p, gb_poll_same *same, const char *tag, uint64_t sequence) {
    bool may;

    pthread_mutex_lock(&polls->lock);
    may = !polls->ending && (p->listed || !p->request->local || polls->local < GB_POLLS_LOCAL_MAX);
    if (may) {
        snprintf(p->tag, sizeof(p->tag), "%s", tag);
        p->same = same;
        p->sequence = sequence;
    }
    if (may && !p->listed) {
        TAILQ_INSERT_TAIL(&polls->list, p, link);
        p->listed = true;
        polls->local += p->request->local;
        if (polls->count++ == 0)
            gb_worker_kick(&polls->worker);
    }
    pthread_mutex_unlock(&polls->lock);
    return may;
}

/* Checks the token again: it may have been removed meanwhile. */
static enum gb_step again(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    const struct gb_poll *p = request->state;

    if (gb_api_authorize(NULL, request, err) < 0)
        return GB_STEP_ERROR;
    return p->handler(request, response, err);
}

enum gb_step gb_poll_unchanged(struct gb_polls *polls, struct gb_http_request *request,
                               struct gb_http_response *response, gb_http_handler *handler, gb_poll_same *same,
                               const char *tag, uint64_t sequence) {
    struct gb_poll *p = request->state;

    if (request->timed_out)
        return GB_STEP_REPLY;
    if (!p)
        p = poll_new(polls, request);
    if (!p || !list(polls, p, same, tag, sequence))
        return GB_STEP_REPLY;
    gb_http_response_done(response); /* the handler runs again from its start */
    p->handler = handler;
    request->resume = again;
    request->deadline_ns = p->deadline_ns;
    request->park = true;
    return GB_STEP_WAIT;
}
