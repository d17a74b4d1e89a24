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
    uint64_t number; /* of the loads */
    int64_t after;   /* the id of the last one listed */
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

static void skip(struct gb_sweep_call *call, const char *name, enum gb_code code) {
    struct gb_sweep_skip *tell = &call->tell[call->told];

    call->skipped++;
    if (call->told == GB_SWEEP_TOLD)
        return;
    strcpy(tell->name.s, name);
    tell->code = code;
    call->told++;
}

/* error GB_OK: the bytes have moved, or were there. */
static void note(struct sweep *sweep, const struct gb_name *name, uint64_t bytes, bool moved,
                 const struct gb_error *error) {
    struct gb_sweep_call *call = sweep->call;

    pthread_mutex_lock(&sweep->lock);
    if (error->code != GB_OK) {
        skip(call, name->s, error->code);
    } else if (moved) {
        call->buffers++;
        call->bytes += bytes;
    }
    pthread_mutex_unlock(&sweep->lock);
}

/* The loads are over: what is in memory now counts, and is as free to leave it as any other buffer. */
static void count_loaded(struct sweep *sweep) {
    struct gb_session *s = sweep->session;
    struct gb_sweep_call *call = sweep->call;
    struct gb_buffer *b;
    int64_t id = 0;

    pthread_mutex_lock(&s->lock);
    while ((b = gb_idlist_after(&s->buffers_by_id, id, &id))) {
        if (b->sweep != sweep->number)
            continue;
        if (b->swept && b->rec.state == GB_BUFFER_STORED) {
            skip(call, b->name, GB_ERR_NOT_LOADED);
        } else if (b->swept) {
            call->buffers++;
            call->bytes += b->rec.bytes;
        }
        gb_sweep_leave_locked(b);
        b->swept = false;
    }
    pthread_mutex_unlock(&s->lock);
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

static bool is_covered(const struct sweep *sweep, const struct gb_buffer *b) {
    return b->live && !b->deleting && strncmp(b->name, sweep->prefix.s, strlen(sweep->prefix.s)) == 0;
}

static bool wanted(const struct sweep *sweep, const struct gb_buffer *b) {
    enum gb_buffer_state state = sweep->loads ? GB_BUFFER_STORED : GB_BUFFER_READY;
    bool to_disk = !sweep->loads && sweep->call->to == GB_SPILL_DISK && b->stored && b->stored->block;

    return is_covered(sweep, b) && (b->rec.state == state || to_disk);
}

/* Those that are in memory already, too: one that is loaded does not take their place. */
static void cover(struct sweep *sweep) {
    struct gb_session *s = sweep->session;
    struct gb_buffer *b;
    int64_t id = 0;

    sweep->number = gb_sweep_number(sweep->core);
    pthread_mutex_lock(&s->lock);
    while ((b = gb_idlist_after(&s->buffers_by_id, id, &id))) {
        if (is_covered(sweep, b)) {
            b->sweep = sweep->number;
            b->swept = false;
        }
    }
    pthread_mutex_unlock(&s->lock);
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

        item->call = gb_call_new(sizeof(*item->call), evicted, item);
        if (item->call) {
            struct gb_call *base = &item->call->base;

            gb_buffer_evict_in(sweep->session, &item->name, NULL, sweep->call->to, item->call);
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

static void note_loaded(struct sweep *sweep, const struct gb_name *name) {
    struct gb_session *s = sweep->session;
    struct gb_buffer *b;

    pthread_mutex_lock(&s->lock);
    b = gb_buffer_find_locked(s, name, NULL);
    if (b && b->sweep == sweep->number)
        b->swept = true;
    pthread_mutex_unlock(&s->lock);
}

/* Returns false while some of them are under way. */
static bool load_some(struct sweep *sweep) {
    bool all = true;
    size_t i;

    for (i = 0; i < sweep->count; i++) {
        struct item *item = &sweep->items[i];
        struct gb_error err = GB_ERROR_INIT;
        struct gb_buffer_rec rec;

        if (item->done)
            continue;
        if (gb_buffer_load_in(sweep->session, &item->name, &rec, &err) == 0)
            gb_buffer_rec_done(&rec);
        item->done = err.code != GB_ERR_NOT_LOADED;
        all = all && item->done;
        if (err.code == GB_OK)
            note_loaded(sweep, &item->name);
        else if (item->done)
            note(sweep, &item->name, 0, false, &err);
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
    count_loaded(sweep);
    finish(sweep);
}

static void run(struct gb_task *task) {
    struct sweep *sweep = gb_container_of(task, struct sweep, task);

    if (sweep->loads && sweep->number == 0)
        cover(sweep);
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
