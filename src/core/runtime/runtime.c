/* The core as its parts know it: threads inside it, notices of what has changed, and work that only a client waits
 * for. */
#include "core/runtime/runtime.h"

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

int gb_core_health(struct gb_core *core, struct gb_error *err) {
    return gb_core_alive(core, err);
}

void gb_core_begin_turn(struct gb_core *core) {
    gb_look_begin();
    gb_store_begin_turn(core->store);
}

bool gb_core_end_turn(struct gb_core *core, bool idle) {
    bool looking = gb_look_end(); /* first: what is done may change something */

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

static void run(struct gb_task *task) {
    struct gb_core_task *work = gb_container_of(task, struct gb_core_task, task);

    work->run(work);
}

void gb_core_run_task(struct gb_core *core, struct gb_core_task *work) {
    work->task.run = run;
    gb_lane_post(&core->report, &work->task);
}
