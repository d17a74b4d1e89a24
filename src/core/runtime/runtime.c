/* The core as its parts know it: threads inside it, notices of what has changed, tasks, and counters that many threads
 * add to. All folders of the core call this; it calls the lanes, the store and the backend. */
#include "core/runtime/runtime.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/thread.h"
#include "core/public/lifecycle.h"
#include "core/util/lane.h"

/* --- users of the core -------------------------------------------------------------------------------------------- */

void gb_core_enter(struct gb_core *core) {
    pthread_mutex_lock(&core->objects_lock);
    core->objects++;
    pthread_mutex_unlock(&core->objects_lock);
}

void gb_core_leave(struct gb_core *core) {
    pthread_mutex_lock(&core->objects_lock);
    if (--core->objects == 0)
        pthread_cond_broadcast(&core->objects_gone);
    pthread_mutex_unlock(&core->objects_lock);
}

void gb_core_wait(struct gb_core *core) {
    pthread_mutex_lock(&core->objects_lock);
    while (core->objects > 0)
        pthread_cond_wait(&core->objects_gone, &core->objects_lock);
    pthread_mutex_unlock(&core->objects_lock);
}

/* --- health ------------------------------------------------------------------------------------------------------- */

void gb_core_report_error(struct gb_core *core, const struct gb_error *err) {
    if (err && err->code == GB_ERR_DEVICE_LOST)
        core->on_device_lost(core);
}

int gb_core_alive(struct gb_core *core, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;

    if (!gb_backend_dead(core->backend, &why))
        return 0;
    if (err && err->code == GB_OK) {
        *err = why;
        if (err->code != GB_ERR_DEVICE_LOST) {
            err->code = GB_OK;
            gb_error_set(err, GB_ERR_DEVICE_LOST, "the device is lost; the daemon must be restarted");
        }
    }
    return -1;
}

void gb_core_changed(struct gb_core *core) {
    atomic_fetch_add(&core->sequence, 1);
}

int gb_core_health(struct gb_core *core, struct gb_error *err) {
    return gb_core_alive(core, err);
}

void gb_core_begin_turn(struct gb_core *core) {
    gb_poll_begin();
    gb_store_begin_turn(core->store);
}

bool gb_core_end_turn(struct gb_core *core, bool idle) {
    bool looking = gb_poll_end(); /* first: what is done may change something */

    return gb_store_end_turn(core->store, idle) || looking;
}

int gb_core_writable(struct gb_core *core, struct gb_error *err) {
    return gb_store_health(core->store, err);
}

/* --- notices ------------------------------------------------------------------------------------------------------ */

struct gb_notice gb_notice_new(enum gb_notice_type type) {
    struct gb_notice n;

    /* Not zeroed as a whole: the texts are most of it, and it is made for every change. */
    memset(&n, 0, offsetof(struct gb_notice, session));
    n.at_us = gb_wall_us();
    n.type = type;
    n.device = -1;
    n.session.s[0] = n.pool.s[0] = n.buffer.s[0] = n.detail[0] = '\0';
    n.has_bytes = n.has_head = false;
    n.head = GB_HEAD_UNINITIALIZED;
    n.bytes = n.count = 0;
    n.generation = n.lease = 0;
    return n;
}

void gb_notice_post(struct gb_core *core, const struct gb_notice *notice) {
    gb_store_note(core->store, notice);
}

/* --- limiters ----------------------------------------------------------------------------------------------------- */

#define LIMITERS 64

/* The first of a burst is posted at once; then, once a second, the number of those that followed. */
struct gb_rate_limiter {
    bool active;
    uint64_t until_ns;
    uint64_t more; /* since the last that was posted */
    struct gb_notice notice;
};

struct gb_notice_limiters {
    pthread_mutex_t lock; /* a leaf */
    struct gb_rate_limiter limiters[LIMITERS];
};

struct gb_notice_limiters *gb_notice_limiters_new(void) {
    struct gb_notice_limiters *l = calloc(1, sizeof(*l));

    if (l)
        gb_mutex_init(&l->lock);
    return l;
}

void gb_notice_limiters_free(struct gb_notice_limiters *l) {
    if (!l)
        return;
    pthread_mutex_destroy(&l->lock);
    free(l);
}

static bool same(const struct gb_notice *a, const struct gb_notice *b) {
    return a->type == b->type && gb_name_equal(&a->session, &b->session);
}

/* The one of its kind, else a free one, else NULL. */
static struct gb_rate_limiter *find_locked(struct gb_notice_limiters *l, const struct gb_notice *notice) {
    struct gb_rate_limiter *room = NULL;
    size_t i;

    for (i = 0; i < LIMITERS; i++) {
        struct gb_rate_limiter *s = &l->limiters[i];

        if (s->active && same(&s->notice, notice))
            return s;
        if (!s->active && !room)
            room = s;
    }
    return room;
}

void gb_notice_post_limited(struct gb_core *core, const struct gb_notice *notice) {
    struct gb_notice_limiters *l = core->limiters;
    struct gb_rate_limiter *s;

    pthread_mutex_lock(&l->lock);
    s = find_locked(l, notice);
    if (s && !s->active) {
        *s = (struct gb_rate_limiter){.active = true, .until_ns = gb_clock_ns() + GB_NS_PER_S};
        gb_notice_post(core, notice);
    } else if (s) {
        s->more++;
    }
    if (s)
        s->notice = *notice;
    pthread_mutex_unlock(&l->lock);
}

void gb_notices_tick(struct gb_core *core) {
    struct gb_notice_limiters *l = core->limiters;
    uint64_t now_ns = gb_clock_ns();
    size_t i;

    pthread_mutex_lock(&l->lock);
    for (i = 0; i < LIMITERS; i++) {
        struct gb_rate_limiter *s = &l->limiters[i];

        if (!s->active || now_ns < s->until_ns)
            continue;
        s->active = s->more > 0;
        if (s->active) {
            s->notice.count = s->more;
            gb_notice_post(core, &s->notice);
        }
        s->more = 0;
        s->until_ns = now_ns + GB_NS_PER_S;
    }
    pthread_mutex_unlock(&l->lock);
}

/* --- task --------------------------------------------------------------------------------------------------------- */

struct gb_lane *gb_core_compute_lane(struct gb_core *core) {
    return &core->compute[atomic_fetch_add(&core->compute_number, 1) % GB_COMPUTE_LANES];
}

static void run(struct gb_task *task) {
    struct gb_core_task *work = gb_container_of(task, struct gb_core_task, task);

    work->run(work);
}

void gb_core_run_task(struct gb_core *core, struct gb_core_task *work) {
    work->task.run = run;
    gb_lane_post(&core->report, &work->task);
}

/* --- counters ----------------------------------------------------------------------------------------------------- */

void gb_live_counters_read(struct gb_live_counters *live_counters, struct gb_counters *ret) {
#define GB_COUNTER(name) ret->name = atomic_load_explicit(&live_counters->name, memory_order_relaxed);
#include "model/counters.def"
#undef GB_COUNTER
}

void gb_live_counters_set(struct gb_live_counters *live_counters, const struct gb_counters *counters) {
#define GB_COUNTER(name) atomic_store_explicit(&live_counters->name, counters->name, memory_order_relaxed);
#include "model/counters.def"
#undef GB_COUNTER
}

void gb_kind_live_counters_add(struct gb_kind_live_counters *live_counters, uint64_t bytes, uint64_t copy_ns,
                               uint64_t queue_ns) {
    atomic_fetch_add_explicit(&live_counters->count, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&live_counters->bytes, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&live_counters->copy_ns, copy_ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&live_counters->queue_ns, queue_ns, memory_order_relaxed);
}

static void more(struct gb_live_counters *live_counters, size_t at) {
    atomic_fetch_add_explicit((_Atomic uint64_t *)(void *)((char *)live_counters + at), 1, memory_order_relaxed);
}

void gb_live_counters_failed(struct gb_live_counters *live_counters, enum gb_failed what, enum gb_failure why) {
#define AT(name) offsetof(struct gb_live_counters, name)
    static const size_t totals[GB_FAILED_COUNTED] = {AT(allocation_failures), AT(uploads_failed), AT(downloads_failed)};
    static const size_t parts[GB_FAILED_COUNTED][GB_FAILURES] = {
#define GB_FAILURE_COUNTER(what, prefix, name) [GB_FAILED_##what][GB_FAILURE_##name] = AT(prefix##_##name),
#include "model/failure_counters.def"
#undef GB_FAILURE_COUNTER
    };

    more(live_counters, totals[what]);
    more(live_counters, parts[what][gb_failure_may(why, what) ? why : GB_FAILURE_other]);
}

void gb_level_read(struct gb_level *level, struct gb_level_numbers *ret) {
    ret->bytes = atomic_load(&level->bytes);
    ret->peak_bytes = atomic_load(&level->peak_bytes);
    ret->largest_bytes = atomic_load(&level->largest_bytes);
}

void gb_alloc_counters_read(struct gb_alloc_counters *live_counters, struct gb_memory_numbers *ret) {
    int i;

    gb_level_read(&live_counters->level, &ret->level);
    ret->allocations = atomic_load(&live_counters->allocations);
    ret->allocated_bytes = atomic_load(&live_counters->allocated_bytes);
    ret->frees = atomic_load(&live_counters->frees);
    ret->freed_bytes = atomic_load(&live_counters->freed_bytes);
    ret->retries = atomic_load(&live_counters->retries);
    ret->trims = atomic_load(&live_counters->trims);
    ret->failures = atomic_load(&live_counters->failures);
    for (i = 0; i < GB_FAILURES; i++)
        ret->failure[i] = atomic_load(&live_counters->failure[i]);
}
