/* The completer: one thread per device that tells when watched events complete.
 *
 * CUDA's own call-back (cudaLaunchHostFunc) would hold back the stream's later work, may run one after the other with
 * those of other streams, and never comes once the context has failed. So the events are polled: each at its own pace,
 * quickly while it is young and at a thirty-second of its age later, so that one on a stalled stream neither delays the
 * others nor keeps a core busy. The thread sleeps on a condition while nothing is watched. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#include "backend/cuda/internal.h"
#include "base/clock.h"
#include "base/thread.h"

#define POLL_MIN_NS 10000ULL
#define POLL_MAX_NS 1000000ULL
#define AGE_PER_POLL 32

static void list_init(struct cuda_watch_list *list) {
    list->head = NULL;
    list->tail = &list->head;
}

static void list_append(struct cuda_watch_list *list, struct cuda_watch *watch) {
    watch->next = NULL;
    *list->tail = watch;
    list->tail = &watch->next;
}

/* Moves all of from to the end of to. */
static void list_move(struct cuda_watch_list *to, struct cuda_watch_list *from) {
    if (!from->head)
        return;
    *to->tail = from->head;
    to->tail = from->tail;
    list_init(from);
}

/* The watch is freed before its function runs: the function may watch the event again, or destroy it. */
static void fire(struct cuda_watch *watch, const struct gb_error *error) {
    gb_watch_fn *fn = watch->fn;
    void *arg = watch->arg;

    free(watch);
    fn(arg, error);
}

/* Asks for the event. Returns false while it is not done, with the next time to ask set; else fires the watch. Once the
 * backend is dead the query itself says so, whatever killed it. */
static bool poll_one(struct cuda_completer *completer, struct cuda_watch *watch, uint64_t now_ns) {
    struct gb_error error = GB_ERROR_INIT;
    bool done = false;
    uint64_t wait_ns;

    if (gb_cuda_event_query(&completer->be->base, watch->event, &done, &error) < 0) {
        fire(watch, &error);
        return true;
    }
    if (done) {
        fire(watch, NULL);
        return true;
    }
    wait_ns = (now_ns - watch->since_ns) / AGE_PER_POLL;
    if (wait_ns < POLL_MIN_NS)
        wait_ns = POLL_MIN_NS;
    if (wait_ns > POLL_MAX_NS)
        wait_ns = POLL_MAX_NS;
    watch->poll_at_ns = now_ns + wait_ns;
    return false;
}

/* Polls what is due, or nearly so that wake-ups fall together. Returns when to come back, UINT64_MAX for never. */
static uint64_t poll_due(struct cuda_completer *completer, struct cuda_watch_list *pending) {
    struct cuda_watch *watch = pending->head;
    uint64_t next_ns = UINT64_MAX;
    uint64_t now_ns = gb_clock_ns();
    struct cuda_watch *following;

    list_init(pending);
    for (; watch; watch = following) {
        following = watch->next;
        if (watch->poll_at_ns <= now_ns + POLL_MIN_NS / 2) {
            if (poll_one(completer, watch, now_ns))
                continue;
        }
        if (watch->poll_at_ns < next_ns)
            next_ns = watch->poll_at_ns;
        list_append(pending, watch);
    }
    return next_ns;
}

/* At the end: the contract says that all streams are idle, so each watch is done; one that is not must still fire. */
static void fire_rest(struct cuda_completer *completer, struct cuda_watch_list *pending) {
    struct gb_error error = GB_ERROR_INIT;
    struct cuda_watch *watch = pending->head;
    uint64_t now_ns = gb_clock_ns();
    struct cuda_watch *following;

    gb_error_set(&error, GB_ERR_DRAINING, "the device was closed before its work was done");
    list_init(pending);
    for (; watch; watch = following) {
        following = watch->next;
        if (!poll_one(completer, watch, now_ns))
            fire(watch, &error);
    }
}

/* Sleeps until a watch comes, next_ns is reached or the completer is stopped. */
static void wait_locked(struct cuda_completer *completer, uint64_t next_ns) {
    struct timespec at = {.tv_sec = (time_t)(next_ns / GB_NS_PER_S), .tv_nsec = (long)(next_ns % GB_NS_PER_S)};
    int rc = 0;

    completer->sleep_until_ns = next_ns;
    while (!completer->stop && !completer->incoming.head && rc != ETIMEDOUT) {
        if (next_ns == UINT64_MAX)
            pthread_cond_wait(&completer->cond, &completer->lock);
        else
            rc = pthread_cond_timedwait(&completer->cond, &completer->lock, &at);
    }
    completer->sleep_until_ns = 0;
}

static void *completer_main(void *arg) {
    struct cuda_completer *completer = arg;
    struct cuda_watch_list pending;
    uint64_t next_ns = UINT64_MAX;
    char name[16];
    bool stop = false;

    snprintf(name, sizeof(name), "gb-cuda-%d", completer->device % 1000);
    pthread_setname_np(pthread_self(), name);
    /* The kernel's default slack of 50 us would be most of a short copy's latency. */
    (void)prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    list_init(&pending);
    while (!stop) {
        pthread_mutex_lock(&completer->lock);
        wait_locked(completer, next_ns);
        list_move(&pending, &completer->incoming);
        stop = completer->stop;
        pthread_mutex_unlock(&completer->lock);
        next_ns = poll_due(completer, &pending);
    }
    fire_rest(completer, &pending);
    return NULL;
}

int gb_cuda_completer_init(struct cuda_completer *completer, struct cuda_backend *be, int device,
                           struct gb_error *err) {
    pthread_condattr_t attr;
    int rc;

    completer->be = be;
    completer->device = device;
    list_init(&completer->incoming);
    gb_mutex_init(&completer->lock);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&completer->cond, &attr);
    pthread_condattr_destroy(&attr);
    rc = pthread_create(&completer->thread, NULL, completer_main, completer);
    if (rc != 0) {
        pthread_cond_destroy(&completer->cond);
        pthread_mutex_destroy(&completer->lock);
        return gb_error_errno(err, GB_ERR_INTERNAL, "pthread_create", rc);
    }
    completer->started = true;
    return 0;
}

void gb_cuda_completer_done(struct cuda_completer *completer) {
    if (!completer->started)
        return;
    pthread_mutex_lock(&completer->lock);
    completer->stop = true;
    pthread_cond_signal(&completer->cond);
    pthread_mutex_unlock(&completer->lock);
    pthread_join(completer->thread, NULL);
    pthread_cond_destroy(&completer->cond);
    pthread_mutex_destroy(&completer->lock);
    completer->started = false;
}

int gb_cuda_watch(struct gb_backend *base, struct gb_event *event, gb_watch_fn *fn, void *arg, struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    struct cuda_completer *completer = &be->devices[event->device].completer;
    struct cuda_watch *watch;
    bool stopped;

    if (gb_cuda_enter(be, event->device, err) < 0)
        return -1;
    watch = calloc(1, sizeof(*watch));
    if (!watch)
        return gb_error_errno(err, GB_ERR_INTERNAL, "calloc", ENOMEM);
    watch->event = event;
    watch->fn = fn;
    watch->arg = arg;
    watch->since_ns = gb_clock_ns();
    watch->poll_at_ns = watch->since_ns;
    pthread_mutex_lock(&completer->lock);
    stopped = completer->stop;
    if (!stopped) {
        list_append(&completer->incoming, watch);
        /* One that is awake, or about to wake, finds the watch without being woken. */
        if (completer->sleep_until_ns > watch->since_ns + POLL_MIN_NS)
            pthread_cond_signal(&completer->cond);
    }
    pthread_mutex_unlock(&completer->lock);
    if (!stopped)
        return 0;
    free(watch);
    return gb_error_set(err, GB_ERR_DRAINING, "the device is being closed");
}
