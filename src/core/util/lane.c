/* Executors: lanes, which run one task after another, polling of events, pools of events, and queues of what is tried
 * again. Nothing here knows sessions or buffers; tasks, waiters and events belong to their owners. */
#include "core/util/lane.h"

#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/thread.h"

/* --- lane --------------------------------------------------------------------------------------------------------- */

/* Waits for work and takes the lane. Returns the next task, or NULL if only retry is due; at the end sets *ret_end. */
static struct gb_task *next_task(struct gb_lane *lane, bool ticking, bool *ret_end) {
    struct timespec until = gb_after_ms(GB_LANE_TICK_MS);
    struct gb_task *task;
    int r = 0;

    pthread_mutex_lock(&lane->lock);
    while (lane->taken || (!lane->first && !lane->stopping && !lane->poked && r == 0)) {
        lane->timed = (ticking || lane->tick_scheduled) && !lane->taken;
        if (lane->timed)
            r = pthread_cond_timedwait(&lane->wake, &lane->lock, &until);
        else
            pthread_cond_wait(&lane->wake, &lane->lock);
    }
    lane->taken = true;
    lane->poked = false;
    lane->tick_scheduled = false;
    task = lane->first;
    if (task) {
        lane->first = task->next;
        if (!lane->first)
            lane->last = NULL;
    }
    *ret_end = !task && lane->stopping;
    pthread_mutex_unlock(&lane->lock);
    return task;
}

static void *lane_main(void *arg) {
    struct gb_lane *lane = arg;
    bool ticking = false;
    bool end = false;

    while (!end) {
        struct gb_task *task = next_task(lane, ticking, &end);

        if (task) {
            if (lane->before)
                lane->before(lane->hook_arg);
            task->run(task);
        }
        ticking = lane->retry(lane->hook_arg);
        gb_lane_leave(lane, false);
    }
    return NULL;
}

bool gb_lane_enter(struct gb_lane *lane) {
    bool entered;

    pthread_mutex_lock(&lane->lock);
    entered = !lane->taken && !lane->first;
    if (entered)
        lane->taken = true;
    pthread_mutex_unlock(&lane->lock);
    return entered;
}

void gb_lane_leave(struct gb_lane *lane, bool poke) {
    pthread_mutex_lock(&lane->lock);
    lane->taken = false;
    lane->poked = lane->poked || poke;
    if (lane->first || lane->poked || lane->stopping)
        pthread_cond_signal(&lane->wake);
    pthread_mutex_unlock(&lane->lock);
}

void gb_lane_schedule_tick(struct gb_lane *lane) {
    pthread_mutex_lock(&lane->lock);
    lane->tick_scheduled = true;
    if (!lane->timed)
        pthread_cond_signal(&lane->wake);
    pthread_mutex_unlock(&lane->lock);
}

bool gb_lane_no_more(void *arg) {
    (void)arg;
    return false;
}

int gb_lane_init(struct gb_lane *lane, const char *name, bool (*retry)(void *arg), void *arg, struct gb_error *err) {
    *lane = (struct gb_lane){.retry = retry, .hook_arg = arg};
    gb_mutex_init(&lane->lock);
    gb_cond_init(&lane->wake);
    if (gb_thread_start(&lane->thread, name, lane_main, lane, err) < 0) {
        pthread_cond_destroy(&lane->wake);
        pthread_mutex_destroy(&lane->lock);
        return -1;
    }
    lane->started = true;
    return 0;
}

void gb_lane_done(struct gb_lane *lane) {
    if (!lane->started)
        return;
    pthread_mutex_lock(&lane->lock);
    lane->stopping = true;
    pthread_cond_signal(&lane->wake);
    pthread_mutex_unlock(&lane->lock);
    pthread_join(lane->thread, NULL);
    pthread_cond_destroy(&lane->wake);
    pthread_mutex_destroy(&lane->lock);
    lane->started = false;
}

void gb_lane_post(struct gb_lane *lane, struct gb_task *task) {
    pthread_mutex_lock(&lane->lock);
    task->next = NULL;
    if (lane->last)
        lane->last->next = task;
    else
        lane->first = task;
    lane->last = task;
    pthread_cond_signal(&lane->wake);
    pthread_mutex_unlock(&lane->lock);
}

/* --- polling ------------------------------------------------------------------------------------------------------ */

/* An event that is not done after this time is left to the backend. */
#define POLL_NS (60 * 1000)

/* Events that a thread polls at the same time. Others are left to the backend at once. */
#define POLLS 64

struct poll {
    struct gb_backend *backend;
    struct gb_event *event;
    gb_watch_fn *fn;
    void *arg;
    uint64_t since_ns;
};

static _Thread_local struct {
    bool begun;
    unsigned count;
    struct poll polls[POLLS];
} turn;

void gb_poll_begin(void) {
    turn.begun = true;
}

int gb_poll_watch(struct gb_backend *backend, struct gb_event *event, gb_watch_fn *fn, void *arg,
                  struct gb_error *err) {
    if (!turn.begun || turn.count == POLLS)
        return gb_watch(backend, event, fn, arg, err);
    turn.polls[turn.count++] = (struct poll){backend, event, fn, arg, gb_clock_ns()};
    return 0;
}

/* Returns true if the event needs no further poll. */
static bool poll_event(const struct poll *p, uint64_t now_ns) {
    struct gb_error err = GB_ERROR_INIT;
    bool done = false;

    if (gb_event_query(p->backend, p->event, &done, &err) < 0) {
        p->fn(p->arg, &err);
        return true;
    }
    if (done) {
        p->fn(p->arg, NULL);
        return true;
    }
    if (now_ns - p->since_ns < POLL_NS)
        return false;
    if (gb_watch(p->backend, p->event, p->fn, p->arg, &err) < 0)
        p->fn(p->arg, &err);
    return true;
}

/* A function that runs may add events, behind those that are polled now. */
bool gb_poll_end(void) {
    uint64_t now_ns = turn.count > 0 ? gb_clock_ns() : 0;
    unsigned n = turn.count;
    unsigned kept = 0;
    unsigned i;

    for (i = 0; i < n; i++) {
        struct poll p = turn.polls[i];

        if (!poll_event(&p, now_ns))
            turn.polls[kept++] = p;
    }
    for (; i < turn.count; i++)
        turn.polls[kept++] = turn.polls[i];
    turn.count = kept;
    turn.begun = kept > 0;
    return turn.begun;
}

/* --- event pool --------------------------------------------------------------------------------------------------- */

void gb_event_pool_init(struct gb_event_pool *events, struct gb_backend *backend, int device) {
    *events = (struct gb_event_pool){.backend = backend, .device = device, .ready = true};
    gb_mutex_init(&events->lock);
}

void gb_event_pool_done(struct gb_event_pool *events) {
    struct gb_ev *next;
    struct gb_ev *ev;

    if (!events->ready)
        return;
    for (ev = events->first; ev; ev = next) {
        next = ev->next;
        gb_event_destroy(events->backend, ev->event);
        free(ev);
    }
    pthread_mutex_destroy(&events->lock);
    events->ready = false;
}

struct gb_ev *gb_event_pool_take(struct gb_event_pool *events, struct gb_error *err) {
    struct gb_ev *ev;

    pthread_mutex_lock(&events->lock);
    ev = events->first;
    if (ev)
        events->first = ev->next;
    pthread_mutex_unlock(&events->lock);
    if (ev)
        return ev;
    ev = calloc(1, sizeof(*ev));
    if (!ev) {
        gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
        return NULL;
    }
    if (gb_event_create(events->backend, events->device, &ev->event, err) < 0) {
        free(ev);
        return NULL;
    }
    return ev;
}

void gb_event_pool_give(struct gb_event_pool *events, struct gb_ev *ev) {
    if (!ev)
        return;
    pthread_mutex_lock(&events->lock);
    ev->next = events->first;
    events->first = ev;
    pthread_mutex_unlock(&events->lock);
}

/* --- retry queue -------------------------------------------------------------------------------------------------- */

#define RETRY_NS (10 * GB_NS_PER_MS) /* other streams and processes free memory without notice */

void gb_retry_queue_put(struct gb_retry_queue *queue, struct gb_retry_waiter *waiter) {
    struct gb_retry_waiter **at = &queue->first;

    if (!*at)
        queue->next_ns = gb_clock_ns() + RETRY_NS;
    while (*at)
        at = &(*at)->next;
    waiter->next = NULL;
    *at = waiter;
    queue->freed = false;
}

bool gb_retry_queue_due(const struct gb_retry_queue *queue) {
    return queue->first && (queue->freed || gb_clock_ns() >= queue->next_ns);
}

bool gb_retry_queue_run(struct gb_retry_queue *queue, bool (*try)(struct gb_retry_waiter *waiter, void *arg),
                        void *arg) {
    struct gb_retry_waiter **at = &queue->first;
    struct gb_retry_waiter *waiter;
    struct gb_retry_waiter *next;

    queue->freed = false;
    for (waiter = *at; waiter; waiter = next) {
        next = waiter->next;
        if (try(waiter, arg))
            *at = next;
        else
            at = &waiter->next;
    }
    queue->next_ns = gb_clock_ns() + RETRY_NS;
    return queue->first != NULL;
}
