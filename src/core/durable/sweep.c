/* All buffers of a session out of memory, or back into it: a session is put to sleep and woken. A few at a time, in the
 * order of their ids. */
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/thread.h"
#include "core/durable/durable.h"
#include "core/public/durable.h"
#include "core/session/op.h"

#define AT_ONCE 16

struct sweep;

struct item {
    struct sweep *sweep;
    struct gb_name name;
    struct gb_buffer_call *call; /* an eviction */
    bool done;
};

struct sweep {
    struct gb_task task;
    struct gb_core *core;
    struct gb_session *session; /* a reference */
    struct gb_name prefix;
    struct gb_sweep_call *call;
    bool loads;
    int64_t after; /* the id of the last one listed */
    struct gb_load_waiter waiter;
    struct item items[AT_ONCE];
    size_t count;
    pthread_mutex_t lock; /* for the next, and for the call's numbers */
    size_t pending;
};

static void run(struct gb_task *task);

static void post(void *arg) {
    struct sweep *sweep = arg;

    sweep->task.run = run;
    gb_lane_post(gb_core_compute_lane(sweep->core), &sweep->task);
}

/* --- results ------------------------------------------------------------------------------------------------------ */

/* error GB_OK: the bytes have moved, or were there. */
static void note(struct sweep *sweep, const struct gb_name *name, uint64_t bytes, bool moved,
                 const struct gb_error *error) {
    struct gb_sweep_call *call = sweep->call;

    pthread_mutex_lock(&sweep->lock);
    if (error->code != GB_OK) {
        if (call->told < GB_SWEEP_TOLD)
            call->tell[call->told++] = (struct gb_sweep_skip){.name = *name, .code = error->code};
        call->skipped++;
    } else if (moved) {
        call->buffers++;
        call->bytes += bytes;
    }
    pthread_mutex_unlock(&sweep->lock);
}

static void finish(struct sweep *sweep) {
    struct gb_core *core = sweep->core;
    struct gb_sweep_call *call = sweep->call;

    gb_core_changed(core);
    gb_session_unref(sweep->session);
    pthread_mutex_destroy(&sweep->lock);
    free(sweep);
    gb_call_finish(&call->base, NULL);
    gb_core_leave(core);
}

/* --- the next few ------------------------------------------------------------------------------------------------- */

static bool wanted(const struct sweep *sweep, const struct gb_buffer *b) {
    enum gb_buffer_state state = sweep->loads ? GB_BUFFER_STORED : GB_BUFFER_READY;
    bool to_disk = !sweep->loads && sweep->call->to == GB_SPILL_DISK && b->stored && b->stored->block;

    return b->live && !b->deleting && (b->rec.state == state || to_disk) &&
           strncmp(b->name, sweep->prefix.s, strlen(sweep->prefix.s)) == 0;
}

static void list(struct sweep *sweep) {
    struct gb_session *s = sweep->session;
    struct gb_buffer *b;

    sweep->count = 0;
    pthread_mutex_lock(&s->lock);
    while (sweep->count < AT_ONCE && (b = gb_idlist_after(&s->buffers_by_id, sweep->after, &sweep->after))) {
        struct item *item = &sweep->items[sweep->count];

        if (!wanted(sweep, b))
            continue;
        *item = (struct item){.sweep = sweep};
        strcpy(item->name.s, b->name);
        sweep->count++;
    }
    pthread_mutex_unlock(&s->lock);
}

/* --- out ---------------------------------------------------------------------------------------------------------- */

static void release(struct sweep *sweep) {
    bool last;

    pthread_mutex_lock(&sweep->lock);
    last = --sweep->pending == 0;
    pthread_mutex_unlock(&sweep->lock);
    if (last)
        post(sweep);
}

static void evicted(void *arg) {
    struct item *item = arg;
    struct sweep *sweep = item->sweep;
    struct gb_buffer_call *call = item->call;

    note(sweep, &item->name, call->buffer.bytes, call->copied, &call->base.error);
    release(sweep);
}

static void evict_some(struct sweep *sweep) {
    struct gb_error err = GB_ERROR_INIT;
    size_t i;

    sweep->pending = sweep->count + 1;
    for (i = 0; i < sweep->count; i++) {
        struct item *item = &sweep->items[i];
        const struct gb_locator at = {sweep->session->name, item->name};

        item->call = gb_call_new(sizeof(*item->call), evicted, item);
        if (item->call) {
            struct gb_call *base = &item->call->base;

            gb_buffer_evict_to(sweep->core, &at, NULL, sweep->call->to, item->call);
            gb_call_unref(base);
            continue;
        }
        gb_no_memory(&err);
        note(sweep, &item->name, 0, false, &err);
        release(sweep);
    }
    release(sweep);
}

/* --- in ----------------------------------------------------------------------------------------------------------- */

/* Returns false while some of them are under way. */
static bool load_some(struct sweep *sweep) {
    bool all = true;
    size_t i;

    for (i = 0; i < sweep->count; i++) {
        struct item *item = &sweep->items[i];
        const struct gb_locator at = {sweep->session->name, item->name};
        struct gb_error err = GB_ERROR_INIT;
        struct gb_buffer_rec rec;

        if (item->done)
            continue;
        if (gb_buffer_load(sweep->core, &at, &rec, &err) == 0)
            gb_buffer_rec_done(&rec);
        item->done = err.code != GB_ERR_NOT_LOADED;
        all = all && item->done;
        if (item->done)
            note(sweep, &item->name, err.code == GB_OK ? rec.bytes : 0, true, &err);
    }
    return all;
}

static void run_loads(struct sweep *sweep) {
    for (;;) {
        uint64_t sequence = gb_loads_sequence(sweep->core);

        if (!load_some(sweep)) {
            if (gb_loads_wait(sweep->core, sequence, &sweep->waiter))
                return;
            continue;
        }
        list(sweep);
        if (sweep->count == 0)
            break;
    }
    finish(sweep);
}

static void run(struct gb_task *task) {
    struct sweep *sweep = gb_container_of(task, struct sweep, task);

    if (sweep->loads) {
        run_loads(sweep);
        return;
    }
    list(sweep);
    if (sweep->count > 0)
        evict_some(sweep);
    else
        finish(sweep);
}

/* --- the call ----------------------------------------------------------------------------------------------------- */

static void start(struct gb_core *core, const struct gb_name *session, const struct gb_name *prefix, bool loads,
                  struct gb_sweep_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session *s = gb_core_alive(core, &err) < 0 ? NULL : gb_session_use(core, session, &err);
    struct sweep *sweep = s ? calloc(1, sizeof(*sweep)) : NULL;

    if (!sweep) {
        if (s)
            gb_no_memory(&err);
        gb_session_unref(s);
        gb_call_finish(&call->base, &err);
        return;
    }
    gb_core_enter(core);
    gb_mutex_init(&sweep->lock);
    sweep->core = core;
    sweep->session = s;
    sweep->prefix = *prefix;
    sweep->call = call;
    sweep->loads = loads;
    sweep->waiter.waker = (struct gb_waker){post, sweep};
    post(sweep);
}

void gb_session_evict(struct gb_core *core, const struct gb_name *session, const struct gb_name *prefix,
                      struct gb_sweep_call *call) {
    start(core, session, prefix, false, call);
}

void gb_session_load(struct gb_core *core, const struct gb_name *session, const struct gb_name *prefix,
                     struct gb_sweep_call *call) {
    start(core, session, prefix, true, call);
}
