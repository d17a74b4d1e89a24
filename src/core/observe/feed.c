/* The feed's reader: notices of changes, from memory or from the database. A listener gets each notice once, in the
 * order of their ids. Handlers of the feed call this, and the store when notices were committed. */
#include "core/public/observe.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "core/runtime/call.h"
#include "core/runtime/runtime.h"

#define TAIL 2048
#define GAP_MS 2000

struct gb_feed {
    pthread_mutex_t lock; /* for all below */
    pthread_cond_t grown;
    struct gb_notice *tail; /* a ring of TAIL */
    size_t first;
    size_t count;
    int64_t floor; /* all that is above is in the tail */
    int64_t last;
    struct gb_waker waker;
};

struct gb_feed *gb_feed_new(void) {
    struct gb_feed *f = calloc(1, sizeof(*f));

    if (!f)
        return NULL;
    f->tail = calloc(TAIL, sizeof(*f->tail));
    if (!f->tail) {
        free(f);
        return NULL;
    }
    gb_mutex_init(&f->lock);
    gb_cond_init(&f->grown);
    return f;
}

void gb_feed_free(struct gb_feed *f) {
    if (!f)
        return;
    free(f->tail);
    pthread_cond_destroy(&f->grown);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

/* --- the tail ----------------------------------------------------------------------------------------------------- */

static struct gb_notice *at(struct gb_feed *f, size_t i) {
    return &f->tail[(f->first + i) % TAIL];
}

static void append_locked(struct gb_feed *f, const struct gb_notice *notice) {
    if (f->count == TAIL) {
        f->floor = f->tail[f->first].id;
        f->first = (f->first + 1) % TAIL;
        f->count--;
    }
    *at(f, f->count++) = *notice;
    f->last = notice->id;
}

/* On the writer's thread: in the log now. */
static void noted(void *arg, const struct gb_notice *notices, size_t count) {
    struct gb_core *core = arg;
    struct gb_feed *f = core->feed;
    size_t i;

    pthread_mutex_lock(&f->lock);
    for (i = 0; i < count; i++)
        append_locked(f, &notices[i]);
    pthread_cond_broadcast(&f->grown);
    /* Under the lock, so that it is not called once gb_feed_watch has set another. */
    gb_waker_run(&f->waker);
    pthread_mutex_unlock(&f->lock);
}

static int remember(void *arg, const struct gb_notice *notice) {
    append_locked(arg, notice);
    return 0;
}

/* Posts the notice and waits until it can be read. */
static void say_now(struct gb_core *core, const struct gb_notice *notice, unsigned timeout_ms) {
    struct timespec until = gb_after_ms(timeout_ms);
    struct gb_feed *f = core->feed;
    int64_t id = gb_store_note(core->store, notice);
    int r = 0;

    pthread_mutex_lock(&f->lock);
    while (f->last < id && r == 0)
        r = pthread_cond_timedwait(&f->grown, &f->lock, &until);
    pthread_mutex_unlock(&f->lock);
}

/* Before all else that this daemon tells, and before it answers requests: who reads on must look again at what it
 * knew. */
static void tell_gap(struct gb_core *core) {
    struct gb_notice gap = gb_notice_new(GB_NOTICE_FEED_GAP);

    strcpy(gap.detail, "the daemon did not stop in order: events of its last moments may be missing");
    say_now(core, &gap, GAP_MS);
}

int gb_feed_start(struct gb_core *core, struct gb_error *err) {
    struct gb_notice started = gb_notice_new(GB_NOTICE_DAEMON_STARTED);
    struct gb_feed *f = core->feed;
    struct gb_store_feed bounds;

    gb_store_feed_bounds(core->store, &bounds);
    f->floor = f->last = bounds.dropped_through;
    if (gb_store_feed_recent(core->store, TAIL, remember, f, err) < 0)
        return -1;
    if (f->count == TAIL && f->floor < at(f, 0)->id - 1)
        f->floor = at(f, 0)->id - 1;
    gb_store_feed_watch(core->store, noted, core);
    if (bounds.broke_off) {
        tell_gap(core);
        strcpy(started.detail, "the daemon before this one did not stop in order: its last moments may not be told of");
    }
    gb_notice_post(core, &started);
    return 0;
}

void gb_feed_stop(struct gb_core *core) {
    gb_store_feed_watch(core->store, NULL, NULL);
}

void gb_feed_watch(struct gb_core *core, struct gb_waker waker) {
    pthread_mutex_lock(&core->feed->lock);
    core->feed->waker = waker;
    pthread_mutex_unlock(&core->feed->lock);
}

int64_t gb_feed_last(struct gb_core *core) {
    int64_t last;

    pthread_mutex_lock(&core->feed->lock);
    last = core->feed->last;
    pthread_mutex_unlock(&core->feed->lock);
    return last;
}

int64_t gb_feed_given(struct gb_core *core) {
    struct gb_store_feed bounds;

    gb_store_feed_bounds(core->store, &bounds);
    return bounds.last_id;
}

/* --- pieces ------------------------------------------------------------------------------------------------------- */

static bool matches(const struct gb_feed_filter *filter, const struct gb_notice *n) {
    if (!(filter->types >> n->type & 1))
        return false;
    if (filter->prefix.s[0] && n->buffer.s[0] && strncmp(n->buffer.s, filter->prefix.s, strlen(filter->prefix.s)) != 0)
        return false;
    return !filter->session.s[0] || !n->session.s[0] || gb_name_equal(&filter->session, &n->session);
}

/* The first in the tail with id > after. */
static size_t find_locked(struct gb_feed *f, int64_t after) {
    size_t low = 0;
    size_t high = f->count;

    while (low < high) {
        size_t mid = (low + high) / 2;

        if (at(f, mid)->id <= after)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static void recall_newest_locked(struct gb_feed *f, struct gb_feed_piece *p) {
    size_t i = f->count;
    size_t found = 0;

    while (i > 0 && found < p->max) {
        i--;
        if (matches(&p->filter, at(f, i)))
            found++;
    }
    for (; i < f->count; i++) {
        if (matches(&p->filter, at(f, i)))
            p->notices[p->count++] = *at(f, i);
    }
    p->through = f->last;
}

static void recall_locked(struct gb_feed *f, struct gb_feed_piece *p) {
    size_t first = find_locked(f, p->through);
    size_t i;

    for (i = first; i < f->count && p->count < p->max && (p->look_max == 0 || i - first < p->look_max); i++) {
        p->through = at(f, i)->id;
        if (matches(&p->filter, at(f, i)))
            p->notices[p->count++] = *at(f, i);
    }
    if (i == f->count && f->last > p->through)
        p->through = f->last;
}

bool gb_feed_recall(struct gb_core *core, struct gb_feed_piece *p) {
    struct gb_feed *f = core->feed;
    struct gb_store_feed bounds;
    bool covered;

    gb_store_feed_bounds(core->store, &bounds);
    p->count = 0;
    p->through = p->after;
    p->gap_through = 0;
    pthread_mutex_lock(&f->lock);
    p->last = f->last;
    /* A notice that the database refused may still be in memory. */
    if (!p->newest && p->after < f->floor && p->after < bounds.dropped_through)
        p->through = p->gap_through = f->floor < bounds.dropped_through ? f->floor : bounds.dropped_through;
    covered = p->newest || p->through >= f->floor;
    if (p->newest)
        recall_newest_locked(f, p);
    else if (covered)
        recall_locked(f, p);
    pthread_mutex_unlock(&f->lock);
    return covered;
}

static int64_t floor_of(struct gb_feed *f) {
    int64_t floor;

    pthread_mutex_lock(&f->lock);
    floor = f->floor;
    pthread_mutex_unlock(&f->lock);
    return floor;
}

struct reading {
    struct gb_feed_piece *piece;
    size_t looked;
};

static int take(void *arg, const struct gb_notice *notice) {
    struct reading *r = arg;
    struct gb_feed_piece *p = r->piece;

    /* A notice that listeners do not know yet is not read either: a listener that continues in memory would get it
     * twice. */
    if (notice->id > p->last)
        return 1;
    p->through = notice->id;
    if (matches(&p->filter, notice))
        p->notices[p->count++] = *notice;
    r->looked++;
    return p->count == p->max || r->looked == p->look_max;
}

int gb_feed_read(struct gb_core *core, struct gb_feed_piece *p, struct gb_error *err) {
    struct reading reading = {.piece = p};

    if (gb_feed_recall(core, p))
        return 0;
    if (gb_store_feed_read(core->store, p->through, INT64_MAX, take, &reading, err) < 0)
        return -1;
    /* Nothing there, where memory begins further up: it went meanwhile, or was of types unknown here. */
    if (reading.looked == 0)
        p->through = floor_of(core->feed);
    return 0;
}

/* --- on a thread of the core -------------------------------------------------------------------------------------- */

struct fetch {
    struct gb_task task; /* first */
    struct gb_core *core;
    struct gb_feed_piece *piece;
    struct gb_call *call;
};

static void run_fetch(struct gb_task *task) {
    struct fetch *f = (struct fetch *)task;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_core *core = f->core;
    int r = gb_feed_read(core, f->piece, &err);

    gb_call_finish(f->call, r < 0 ? &err : NULL);
    free(f);
    gb_core_leave(core);
}

void gb_feed_fetch(struct gb_core *core, struct gb_feed_piece *piece, struct gb_call *call) {
    struct fetch *f = malloc(sizeof(*f));
    struct gb_error err = GB_ERROR_INIT;

    if (!f) {
        gb_no_memory(&err);
        gb_call_finish(call, &err);
        return;
    }
    *f = (struct fetch){.task.run = run_fetch, .core = core, .piece = piece, .call = call};
    gb_core_enter(core);
    gb_lane_post(gb_core_compute_lane(core), &f->task);
}

/* --- notices of its own ------------------------------------------------------------------------------------------- */

void gb_feed_health(struct gb_core *core, int device, const char *detail) {
    struct gb_notice n = gb_notice_new(GB_NOTICE_DEVICE_HEALTH);

    n.device = device;
    snprintf(n.detail, sizeof(n.detail), "%s", detail);
    gb_notice_post(core, &n);
}

void gb_feed_say(struct gb_core *core, enum gb_notice_type type, const char *detail) {
    struct gb_notice n = gb_notice_new(type);

    snprintf(n.detail, sizeof(n.detail), "%s", detail);
    gb_notice_post(core, &n);
}

void gb_feed_stopping(struct gb_core *core, unsigned timeout_ms) {
    struct gb_notice stopping = gb_notice_new(GB_NOTICE_DAEMON_STOPPING);

    gb_notices_tick(core);
    say_now(core, &stopping, timeout_ms);
}
