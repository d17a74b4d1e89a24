/* A pass goes through all buffers that have been behind for the lag, and keeps a few stores under way: the disk is one
 * for all. Each buffer has its turn once a pass, so that those that cannot be stored hold up no others. What came in
 * one change is stored in one (together.h), at the turn of its first buffer. */
#include "core/durable/behind.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/thread.h"
#include "core/buffer/together.h"
#include "core/durable/durable.h"
#include "core/public/durable.h"
#include "core/session/session.h"

#define AT_ONCE 64

struct gb_behind {
    struct gb_task task;
    struct gb_core *core;
    struct gb_lane *lane; /* one for ever: the task is never in two places */
    atomic_bool posted;
    atomic_bool passing; /* from then on the three below are the task's, before the tick's */
    int64_t session_id;
    int64_t buffer_id;
    uint64_t lag_ns;
    atomic_uint storing;
};

/* One store under way. */
struct item {
    struct gb_behind *behind;
    struct gb_session *session; /* a reference */
    struct gb_name name;
};

struct gb_behind *gb_behind_new(struct gb_core *core) {
    struct gb_behind *behind = calloc(1, sizeof(*behind));

    if (behind)
        behind->core = core;
    return behind;
}

void gb_behind_free(struct gb_behind *behind) {
    free(behind);
}

static void run(struct gb_task *task);

static void post(struct gb_behind *behind) {
    if (atomic_exchange(&behind->posted, true))
        return;
    gb_core_enter(behind->core);
    behind->task.run = run;
    gb_lane_post(behind->lane, &behind->task);
}

/* --- one buffer --------------------------------------------------------------------------------------------------- */

/* Gives back the reference to the session. */
static void over(struct gb_session *s, const struct gb_name *name) {
    struct gb_buffer *b;

    pthread_mutex_lock(&s->lock);
    b = gb_map_get(&s->buffers, name->s);
    if (b)
        b->storing = false;
    pthread_mutex_unlock(&s->lock);
    gb_session_unref(s);
}

static void ended(void *arg) {
    struct item *item = arg;
    struct gb_behind *behind = item->behind;
    struct gb_core *core = behind->core;

    over(item->session, &item->name);
    free(item);
    atomic_fetch_sub(&behind->storing, 1);
    if (atomic_load(&behind->passing))
        post(behind);
    gb_core_leave(core);
}

/* The session's lock is held. Its buffers that come after the id. */
static bool find_locked(struct gb_behind *behind, struct gb_session *s, struct gb_name *ret) {
    uint64_t now_ns = gb_clock_ns();
    struct gb_buffer *b;

    while (s->behind > 0 && (b = gb_idlist_after(&s->buffers_by_id, behind->buffer_id, &behind->buffer_id))) {
        if (!b->live || b->deleting || !b->behind || b->storing || now_ns - b->behind_ns < behind->lag_ns ||
            gb_together_leader(b) != b)
            continue;
        b->storing = true;
        strcpy(ret->s, b->name);
        return true;
    }
    return false;
}

/* The next buffer of the pass, with a reference to its session; NULL at the end. */
static struct gb_session *next(struct gb_behind *behind, struct gb_name *ret) {
    struct gb_session *s;
    bool found;

    while ((s = gb_session_after(behind->core, behind->session_id - 1))) {
        if (s->id != behind->session_id)
            behind->buffer_id = 0;
        behind->session_id = s->id;
        pthread_mutex_lock(&s->lock);
        found = find_locked(behind, s, ret);
        pthread_mutex_unlock(&s->lock);
        if (found)
            return s;
        gb_session_unref(s);
        behind->session_id++;
        behind->buffer_id = 0;
    }
    return NULL;
}

/* Takes over the reference to the session. Without memory it is another pass's. */
static void store(struct gb_behind *behind, struct gb_session *s, const struct gb_name *name) {
    struct item *item = calloc(1, sizeof(*item));
    struct gb_buffer_call *call;

    if (!item) {
        over(s, name);
        return;
    }
    atomic_fetch_add(&behind->storing, 1);
    gb_core_enter(behind->core);
    *item = (struct item){.behind = behind, .session = s, .name = *name};
    call = gb_call_new(sizeof(*call), ended, item);
    if (!call) {
        ended(item);
        return;
    }
    gb_buffer_store_in(s, name, call);
    gb_call_unref(&call->base);
}

/* --- a pass ------------------------------------------------------------------------------------------------------- */

static void run(struct gb_task *task) {
    struct gb_behind *behind = gb_container_of(task, struct gb_behind, task);
    struct gb_core *core = behind->core;

    atomic_store(&behind->posted, false);
    while (atomic_load(&behind->passing) && atomic_load(&behind->storing) < AT_ONCE) {
        struct gb_name name;
        struct gb_session *s = next(behind, &name);

        if (s)
            store(behind, s, &name);
        else
            atomic_store(&behind->passing, false);
    }
    gb_core_leave(core);
}

static bool takes_bytes(struct gb_core *core) {
    struct gb_error unused = GB_ERROR_INIT;
    enum gb_disk_state state = gb_disk_state_of(core->config.disk, &unused);

    return state != GB_DISK_FAILED && state != GB_DISK_UNAVAILABLE;
}

void gb_behind_tick(struct gb_core *core) {
    struct gb_behind *behind = core->behind;
    uint64_t lag_ms = core->config.durable_lag_ms > 0 ? core->config.durable_lag_ms : 1000;

    if (atomic_load(&core->behind_buffers) == 0 || atomic_load(&behind->passing) || !takes_bytes(core))
        return;
    if (!behind->lane)
        behind->lane = gb_core_compute_lane(core);
    behind->session_id = 1;
    behind->buffer_id = 0;
    behind->lag_ns = lag_ms * GB_NS_PER_MS;
    atomic_store(&behind->passing, true);
    post(behind);
}

/* --- the end of the process --------------------------------------------------------------------------------------- */

/* Stores that are waited for. */
struct flush {
    pthread_mutex_t lock;
    pthread_cond_t none;
    size_t running;
};

static void flushed(void *arg) {
    struct flush *flush = arg;

    pthread_mutex_lock(&flush->lock);
    if (--flush->running == 0)
        pthread_cond_signal(&flush->none);
    pthread_mutex_unlock(&flush->lock);
}

static void flush_one(struct gb_session *s, const struct gb_name *name, struct flush *flush) {
    struct gb_buffer_call *call = gb_call_new(sizeof(*call), flushed, flush);

    if (!call)
        return;
    pthread_mutex_lock(&flush->lock);
    flush->running++;
    pthread_mutex_unlock(&flush->lock);
    gb_buffer_store_in(s, name, call);
    gb_call_unref(&call->base);
}

static bool find_any(struct gb_session *s, int64_t *id, struct gb_name *ret) {
    struct gb_buffer *b;
    bool found = false;

    pthread_mutex_lock(&s->lock);
    while (!found && s->behind > 0 && (b = gb_idlist_after(&s->buffers_by_id, *id, id))) {
        found = b->live && !b->deleting && b->behind && gb_together_leader(b) == b;
        if (found)
            strcpy(ret->s, b->name);
    }
    pthread_mutex_unlock(&s->lock);
    return found;
}

static void flush_all(struct gb_core *core, struct flush *flush) {
    struct gb_session *s;
    struct gb_name name;
    int64_t session_id = 0;

    while ((s = gb_session_after(core, session_id))) {
        int64_t id = 0;

        session_id = s->id;
        while (find_any(s, &id, &name))
            flush_one(s, &name, flush);
        gb_session_unref(s);
    }
}

void gb_durable_flush(struct gb_core *core) {
    struct flush flush = {.running = 1};

    if (!core->config.disk)
        return;
    gb_mutex_init(&flush.lock);
    pthread_cond_init(&flush.none, NULL);
    flush_all(core, &flush);
    flushed(&flush);
    pthread_mutex_lock(&flush.lock);
    while (flush.running > 0)
        pthread_cond_wait(&flush.none, &flush.lock);
    pthread_mutex_unlock(&flush.lock);
    pthread_cond_destroy(&flush.none);
    pthread_mutex_destroy(&flush.lock);
}
