/* Pools as clients see them: made, changed, read, trimmed and removed; and the devices. Changes of one pool take turns:
 * first on the device, then in the database, then in the session. Handlers call this. */
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/text.h"
#include "core/buffer/buffer.h"
#include "core/memory/frees.h"
#include "core/public/lifecycle.h"
#include "core/runtime/runtime.h"
#include "core/session/quota.h"
#include "core/session/session.h"

/* One call that makes, changes or removes a pool. */

enum gb_pool_what { GB_POOL_MAKES, GB_POOL_PATCHES, GB_POOL_REMOVES };

struct gb_pool_op {
    struct gb_op base; /* first */
    struct gb_fifo_waiter waiter;
    struct gb_task task;
    enum gb_pool_what what;
    struct gb_pool_call *call;
    struct gb_core_pool *pool; /* a reference */
    struct gb_pool_params params;
    struct gb_pool_check check;
    bool force;
    struct gb_pool_rec rec;
    struct gb_error error;
    struct gb_core_device *device; /* remove: the device whose lane it passes, behind the frees */
    int rounds;
};

static inline struct gb_pool_op *gb_pool_op_of(struct gb_task *task) {
    return gb_container_of(task, struct gb_pool_op, task);
}

/* --- the turn ----------------------------------------------------------------------------------------------------- */

static void pool_op_run(struct gb_pool_op *op);

static void pool_op_end(struct gb_pool_op *op) {
    gb_core_changed(op->base.session->core);
    gb_core_pool_unref(op->pool);
    gb_op_end(&op->base, &op->error);
}

/* Ends the operation's turn. Returns the operation that has it now, or NULL. The session's lock is held. */
static struct gb_pool_op *pool_op_release_locked(struct gb_pool_op *op) {
    struct gb_fifo_waiter *next = gb_fifo_lock_release(&op->pool->fifo);

    return next ? gb_container_of(next, struct gb_pool_op, waiter) : NULL;
}

/* Ends the operation and its turn, and runs the next one. */
static void pool_op_leave(struct gb_pool_op *op) {
    struct gb_session *s = op->base.session;
    struct gb_pool_op *next;

    pthread_mutex_lock(&s->lock);
    next = pool_op_release_locked(op);
    pthread_mutex_unlock(&s->lock);
    pool_op_end(op);
    pool_op_run(next);
}

/* Notes the database's result. If the session was deleted meanwhile, the record is gone or was refused. */
static void pool_op_note_result_locked(struct gb_pool_op *op, const struct gb_error *error) {
    int state = atomic_load(&op->base.session->state);

    if (error)
        op->error = *error;
    if (state == GB_SESSION_DEAD || (error && state != GB_SESSION_LIVE)) {
        op->error = GB_ERROR_INIT;
        gb_session_alive(op->base.session, &op->error);
    }
}

/* Takes the pool out of the session. Returns it with the session's reference, or NULL if the session does not have
 * it. */
static struct gb_core_pool *pool_op_forget_locked(struct gb_session *s, struct gb_core_pool *p) {
    atomic_store(&p->state, GB_POOL_DEAD);
    if (gb_map_get(&s->pools, p->rec.name.s) != p)
        return NULL;
    gb_map_take(&s->pools, p->rec.name.s);
    gb_idlist_take(&s->pools_by_id, p->rec.id);
    gb_session_pools_update_locked(s->core->pool_sessions, s);
    return p;
}

/* --- patch -------------------------------------------------------------------------------------------------------- */

/* The database refused the record: restores the old configuration. */
static void unpatch_on_lane(struct gb_task *task) {
    struct gb_pool_op *op = gb_pool_op_of(task);

    gb_pool_configure(op->pool->core->backend, op->pool->pool, &op->pool->rec.config, NULL);
    pool_op_leave(op);
}

static void patched(void *arg, const struct gb_error *error) {
    struct gb_pool_op *op = arg;
    struct gb_session *s = op->base.session;

    pthread_mutex_lock(&s->lock);
    pool_op_note_result_locked(op, error);
    if (op->error.code == GB_OK) {
        gb_core_pool_configured(op->pool, &op->rec);
        gb_core_pool_view(op->pool, &op->call->pool);
    }
    pthread_mutex_unlock(&s->lock);
    if (op->error.code == GB_OK) {
        gb_notice_post_pool(s, op->pool, GB_NOTICE_POOL_CHANGED);
        pool_op_leave(op);
        return;
    }
    op->task.run = unpatch_on_lane;
    gb_lane_post(&op->pool->device->lane, &op->task);
}

static void pool_patch_on_lane(struct gb_task *task) {
    struct gb_pool_op *op = gb_pool_op_of(task);

    if (gb_pool_configure(op->pool->core->backend, op->pool->pool, &op->rec.config, &op->error) < 0)
        pool_op_leave(op);
    else
        gb_store_put_pool(op->base.session->core->store, &op->rec, gb_call_mark(op->base.call), patched, op);
}

/* --- a device's own pool ------------------------------------------------------------------------------------------ */

/* The lane alone changes it, so changes by several sessions come one after the other. It has no record: what the daemon
 * starts with comes back with the next start. */
static void patch_own_on_lane(struct gb_task *task) {
    struct gb_pool_op *op = gb_pool_op_of(task);
    struct gb_core_pool *p = op->pool;
    struct gb_backend *be = p->core->backend;

    if (gb_core_pool_check(p, &op->error) < 0) {
        pool_op_end(op);
        return;
    }
    op->rec = p->rec;
    gb_pool_rec_merge(&op->rec, &op->params.rec, &op->params.given);
    op->rec.updated_at_us = gb_wall_us();
    if (gb_pool_configure(be, p->pool, &op->rec.config, &op->error) < 0) {
        gb_pool_configure(be, p->pool, &p->rec.config, NULL);
    } else {
        gb_core_pool_configured(p, &op->rec);
        gb_core_pool_view(p, &op->call->pool);
        gb_notice_post_pool(op->base.session, p, GB_NOTICE_POOL_CHANGED);
    }
    pool_op_end(op);
}

static void pool_patch_own(struct gb_pool_op *op) {
    op->task.run = patch_own_on_lane;
    gb_lane_post(&op->pool->device->lane, &op->task);
}

/* --- remove ------------------------------------------------------------------------------------------------------- */

static struct gb_content *lose_buffers_locked(struct gb_session *s, const struct gb_core_pool *p) {
    struct gb_content *list = NULL;
    struct gb_buffer *b;
    size_t at = 0;

    while ((b = gb_map_next(&s->buffers, &at))) {
        if (b->live && gb_buffer_in_pool(b, p))
            gb_content_list_add(&list, gb_buffer_lose_locked(s, b));
    }
    return list;
}

/* Mirrored buffers whose device side has no memory. The pool is out of the session. */
static void leave_pool_locked(struct gb_session *s, const struct gb_core_pool *p) {
    struct gb_buffer *b;
    size_t at = 0;

    while ((b = gb_map_next(&s->buffers, &at))) {
        if (b->live && strcmp(gb_text_s(b->rec.pool), p->rec.name.s) == 0)
            gb_buffer_leave_pool_locked(s, b);
    }
}

/* Passes through the lane until the frees are queued, then drops the reference to the pool. The call ends one round
 * later, when the backend's pool is destroyed, unless a reader still holds it. */
static void behind_frees(struct gb_task *task) {
    struct gb_pool_op *op = gb_pool_op_of(task);

    if (op->rounds++ == 2) {
        op->pool = NULL; /* given back before the second round */
        pool_op_end(op);
        return;
    }
    if (op->rounds == 2)
        gb_core_pool_unref(op->pool);
    gb_lane_post(&op->device->lane, &op->task);
}

/* The loss of the buffers is not written to the database, because the next start marks every buffer lost. */
static void pool_removed(void *arg, const struct gb_error *error) {
    struct gb_pool_op *op = arg;
    struct gb_session *s = op->base.session;
    struct gb_core_pool *p = op->pool;
    struct gb_core_pool *forgotten = NULL;
    struct gb_content *lost = NULL;
    struct gb_pool_op *next;
    uint64_t lost_buffers;

    pthread_mutex_lock(&s->lock);
    lost_buffers = s->lost_buffers;
    pool_op_note_result_locked(op, error);
    if (op->error.code == GB_OK) {
        lost = lose_buffers_locked(s, p);
        forgotten = pool_op_forget_locked(s, p);
        leave_pool_locked(s, p);
    } else if (atomic_load(&p->state) == GB_POOL_REMOVING) {
        atomic_store(&p->state, GB_POOL_LIVE);
    }
    lost_buffers = s->lost_buffers - lost_buffers;
    next = pool_op_release_locked(op);
    pthread_mutex_unlock(&s->lock);
    if (op->error.code == GB_OK)
        gb_notice_post_pool(s, p, GB_NOTICE_POOL_DELETED);
    gb_notice_post_lost(s, lost_buffers, "their pool was deleted");
    gb_content_drop_all(lost);
    gb_core_pool_unref(forgotten);
    if (op->error.code == GB_OK && p->device) {
        op->device = p->device;
        op->task.run = behind_frees;
        behind_frees(&op->task);
    } else {
        pool_op_end(op);
    }
    pool_op_run(next);
}

/* --- operations --------------------------------------------------------------------------------------------------- */

/* Makes an operation, and takes the check's argument. Returns NULL if that failed and ended the call. */
static struct gb_pool_op *pool_op_new(struct gb_core *core, const struct gb_name *session, enum gb_pool_what what,
                                      const struct gb_pool_check *check, struct gb_pool_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session *s;
    struct gb_pool_op *op;

    /* A pool of a dead device can still be removed. */
    s = what == GB_POOL_REMOVES ? gb_session_use(core, session, &err) : gb_op_session(core, session, &err);
    op = gb_op_new(sizeof(*op), s, &call->base, check ? check->free_arg : NULL, check ? check->arg : NULL, &err);
    if (!op)
        return NULL;
    op->what = what;
    op->call = call;
    if (check)
        op->check = *check;
    return op;
}

/* --- operations: the turn ----------------------------------------------------------------------------------------- */

static int validate_locked(struct gb_pool_op *op, struct gb_error *err) {
    struct gb_core_pool *p = op->pool;
    uint64_t occupants = atomic_load(&p->occupants);

    if (gb_session_changeable_locked(op->base.session, err) < 0)
        return -1;
    if (atomic_load(&p->state) != GB_POOL_LIVE)
        return gb_error_set(err, GB_ERR_POOL_NOT_FOUND, "session \"%s\" has no pool named \"%s\"",
                            gb_session_client_name(op->base.session)->s, p->rec.name.s);
    if (op->check.check && op->check.check(op->check.arg, &p->rec, err) < 0)
        return -1;
    if (op->what == GB_POOL_PATCHES) {
        op->rec = p->rec;
        gb_pool_rec_merge(&op->rec, &op->params.rec, &op->params.given);
        op->rec.version++;
        op->rec.updated_at_us = gb_wall_us();
        return gb_core_pool_check(p, err);
    }
    if (atomic_load(&p->leases) > 0)
        return gb_error_set(err, GB_ERR_MAPPED,
                            "other processes map memory of pool \"%s\" (leases: %llu); wait until they have ended",
                            p->rec.name.s, (unsigned long long)atomic_load(&p->leases));
    if (occupants > 0 && !op->force)
        return gb_error_set(
            err, GB_ERR_POOL_BUSY,
            "%llu buffers have their bytes in pool \"%s\"; delete them, or force the deletion (?force=true), which "
            "loses the bytes",
            (unsigned long long)occupants, p->rec.name.s);
    gb_core_pool_view(p, &op->call->pool);
    atomic_store(&p->state, GB_POOL_REMOVING);
    return 0;
}

/* Runs the operation, which has the turn. NULL is accepted. */
static void pool_op_run(struct gb_pool_op *op) {
    struct gb_pool_op *next;
    int r;

    for (; op; op = next) {
        struct gb_session *s = op->base.session;

        pthread_mutex_lock(&s->lock);
        r = validate_locked(op, &op->error);
        next = r < 0 ? pool_op_release_locked(op) : NULL;
        pthread_mutex_unlock(&s->lock);
        if (r < 0) {
            pool_op_end(op);
        } else if (op->what == GB_POOL_REMOVES) {
            gb_store_delete_pool(s->core->store, op->pool->rec.id, gb_call_mark(op->base.call), pool_removed, op);
        } else {
            op->task.run = pool_patch_on_lane;
            gb_lane_post(&op->pool->device->lane, &op->task);
        }
    }
}

/* The result of enter_locked. An operation IN_LINE may run and end at any time from then on. */
enum entry { REFUSED, IN_LINE, IN_TURN, OF_A_DEVICE };

static enum entry enter_locked(struct gb_pool_op *op, const struct gb_name *name, struct gb_error *err) {
    struct gb_core_pool *p = gb_core_pool_find_locked(op->base.session, name, err);

    if (!p)
        return REFUSED;
    if (gb_core_pool_absent(p)) {
        gb_core_pool_check(p, err);
        return REFUSED;
    }
    if (p->own && op->what != GB_POOL_PATCHES) {
        gb_error_set(err, GB_ERR_POOL_PROTECTED, "\"%s\" is a device's own pool, which all sessions share",
                     p->rec.name.s);
        return REFUSED;
    }
    op->pool = gb_core_pool_ref(p);
    if (p->own)
        return OF_A_DEVICE;
    return gb_fifo_lock_acquire(&p->fifo, &op->waiter) ? IN_TURN : IN_LINE;
}

static void transaction(struct gb_pool_op *op, const struct gb_name *name) {
    struct gb_session *s = op->base.session;
    enum entry entry;

    pthread_mutex_lock(&s->lock);
    entry = enter_locked(op, name, &op->error);
    pthread_mutex_unlock(&s->lock);
    if (entry == REFUSED)
        pool_op_end(op);
    else if (entry == OF_A_DEVICE)
        pool_patch_own(op);
    else if (entry == IN_TURN)
        pool_op_run(op);
}

void gb_pool_patch(struct gb_core *core, const struct gb_pool_params *params, const struct gb_pool_check *check,
                   struct gb_pool_call *call) {
    struct gb_pool_op *op = pool_op_new(core, &params->session, GB_POOL_PATCHES, check, call);

    if (!op)
        return;
    op->params = *params;
    transaction(op, &params->rec.name);
}

void gb_pool_remove(struct gb_core *core, const struct gb_locator *at, bool force, struct gb_pool_call *call) {
    struct gb_pool_op *op = pool_op_new(core, &at->session, GB_POOL_REMOVES, NULL, call);

    if (!op)
        return;
    op->force = force;
    transaction(op, &at->name);
}

/* --- pool make ---------------------------------------------------------------------------------------------------- */

/* Making pools. */

static void made(void *arg, const struct gb_error *error) {
    struct gb_pool_op *op = arg;
    struct gb_session *s = op->base.session;
    struct gb_core_pool *forgotten = NULL;

    pthread_mutex_lock(&s->lock);
    pool_op_note_result_locked(op, error);
    if (op->error.code == GB_OK) {
        atomic_store(&op->pool->state, GB_POOL_LIVE);
        gb_core_pool_view(op->pool, &op->call->pool);
        op->call->created = true;
    } else {
        forgotten = pool_op_forget_locked(s, op->pool);
    }
    pthread_mutex_unlock(&s->lock);
    if (op->error.code == GB_OK)
        gb_notice_post_pool(s, op->pool, GB_NOTICE_POOL_CREATED);
    gb_core_pool_unref(forgotten);
    pool_op_leave(op);
}

static void make_on_lane(struct gb_task *task) {
    struct gb_pool_op *op = gb_pool_op_of(task);
    struct gb_error err = GB_ERROR_INIT;

    if (gb_core_pool_create(op->pool, &err) < 0)
        made(op, &err);
    else
        gb_store_put_pool(op->base.session->core->store, &op->pool->rec, gb_call_mark(op->base.call), made, op);
}

static int check_name(struct gb_session *s, const struct gb_name *name, struct gb_error *err) {
    const char *text = name->s;
    int i;

    for (i = 0; i < s->core->device_count; i++) {
        if (gb_name_equal(name, &s->core->devices[i].pool->rec.name))
            return gb_error_set(err, GB_ERR_POOL_EXISTS, "\"%s\" is device %d's own pool", text, i);
    }
    if (strncmp(text, "default.", 8) == 0)
        return gb_error_set(err, GB_ERR_POOL_PROTECTED,
                            "names that begin with \"default.\" are the devices' own pools; choose another");
    if (gb_map_get(&s->pools, text))
        return gb_error_set(err, GB_ERR_POOL_EXISTS, "session \"%s\" has a pool named \"%s\"",
                            gb_session_client_name(s)->s, text);
    return 0;
}

static struct gb_pool_rec new_record(struct gb_session *s, const struct gb_pool_params *p) {
    struct gb_pool_rec rec = p->rec;

    rec.id = atomic_fetch_add(&s->core->last_pool_id, 1) + 1;
    rec.session_id = s->id;
    rec.version = 1;
    rec.created_at_us = rec.updated_at_us = gb_wall_us();
    gb_pool_rec_complete(&rec, &p->given);
    return rec;
}

/* The pool keeps its name from here on. */
static int reserve_locked(struct gb_pool_op *op, const struct gb_pool_params *params, struct gb_error *err) {
    struct gb_session *s = op->base.session;
    struct gb_core *core = s->core;
    uint64_t max = core->config.pools_max ? core->config.pools_max : GB_POOLS_MAX;
    struct gb_core_pool *p;
    struct gb_pool_rec rec;

    if (gb_session_changeable_locked(s, err) < 0 || check_name(s, &params->rec.name, err) < 0)
        return -1;
    if (s->pools.count >= max)
        return gb_error_set(err, GB_ERR_LIMIT_REACHED,
                            "session \"%s\" has %zu pools, the permitted number (--max-pools)",
                            gb_session_client_name(s)->s, s->pools.count);
    rec = new_record(s, params);
    p = gb_core_pool_new(core, &core->devices[params->rec.device], &rec);
    if (!p)
        return gb_no_memory(err);
    if (gb_core_pool_enroll_locked(s, p, err) < 0) {
        gb_core_pool_unref(p);
        return -1;
    }
    op->pool = gb_core_pool_ref(p);
    gb_fifo_lock_acquire(&p->fifo, &op->waiter);
    return 0;
}

void gb_pool_make(struct gb_core *core, const struct gb_pool_params *params, struct gb_pool_call *call) {
    struct gb_pool_op *op = pool_op_new(core, &params->session, GB_POOL_MAKES, NULL, call);
    int r;

    if (!op)
        return;
    if (params->rec.device < 0 || params->rec.device >= core->device_count) {
        gb_error_set(&op->error, GB_ERR_DEVICE_NOT_FOUND, "there is no device %d; there are %d", params->rec.device,
                     core->device_count);
        pool_op_end(op);
        return;
    }
    if (gb_core_pool_absent(core->devices[params->rec.device].pool)) {
        gb_core_pool_check(core->devices[params->rec.device].pool, &op->error);
        pool_op_end(op);
        return;
    }
    pthread_mutex_lock(&op->base.session->lock);
    r = reserve_locked(op, params, &op->error);
    pthread_mutex_unlock(&op->base.session->lock);
    if (r < 0) {
        pool_op_end(op);
        return;
    }
    op->task.run = make_on_lane;
    gb_lane_post(&op->pool->device->lane, &op->task);
}

/* --- pools -------------------------------------------------------------------------------------------------------- */

/* --- views -------------------------------------------------------------------------------------------------------- */

unsigned gb_pool_count(struct gb_core *core) {
    unsigned count = 0;
    int i;

    for (i = 0; i < core->device_count; i++)
        count += !gb_core_pool_absent(core->devices[i].pool);
    return count;
}

int gb_pool_at(struct gb_core *core, unsigned index, struct gb_pool_view *ret, struct gb_error *err) {
    int i;

    for (i = 0; i < core->device_count; i++) {
        struct gb_core_pool *p = core->devices[i].pool;

        if (gb_core_pool_absent(p) || index-- > 0)
            continue;
        gb_core_pool_view(p, ret);
        return 0;
    }
    return gb_error_set(err, GB_ERR_POOL_NOT_FOUND, "there are %u pools of devices", gb_pool_count(core));
}

int gb_pool_get(struct gb_core *core, const struct gb_locator *at, struct gb_pool_view *ret, struct gb_error *err) {
    struct gb_session *s;
    struct gb_core_pool *p = gb_core_pool_lock(core, at, &s, err);

    if (!p)
        return -1;
    gb_core_pool_view(p, ret);
    gb_core_pool_unlock(s);
    return 0;
}

/* The next one that can be seen. */
static bool after(struct gb_session *s, int64_t id, struct gb_pool_view *ret) {
    struct gb_core_pool *p;

    pthread_mutex_lock(&s->lock);
    do
        p = gb_idlist_after(&s->pools_by_id, id, &id);
    while (p && atomic_load(&p->state) != GB_POOL_LIVE);
    if (p)
        gb_core_pool_view(p, ret);
    pthread_mutex_unlock(&s->lock);
    return p != NULL;
}

int gb_pool_list(struct gb_core *core, const struct gb_name *session, struct gb_page *page,
                 int (*visit)(void *, const struct gb_pool_view *, struct gb_error *), void *arg,
                 struct gb_error *err) {
    struct gb_session *s = gb_session_find(core, session, err);
    struct gb_pool_view view;
    int64_t id = page->after;
    unsigned n;
    int r = 0;

    if (!s)
        return -1;
    for (n = 0; id == 0 && r == 0 && gb_pool_at(core, n, &view, NULL) == 0; n++)
        r = visit(arg, &view, err);
    for (n = 0; n < page->limit && r == 0 && after(s, id, &view); n++) {
        id = view.rec.id;
        r = visit(arg, &view, err);
    }
    if (r == 0)
        page->more = after(s, id, &view);
    gb_session_unref(s);
    return r;
}

int gb_pool_peers(struct gb_core *core, const struct gb_locator *at, enum gb_pool_access *access, int count,
                  struct gb_error *err) {
    struct gb_session *s;
    struct gb_core_pool *p = gb_core_pool_lock(core, at, &s, err);
    int i;

    if (!p)
        return -1;
    for (i = 0; i < count; i++)
        access[i] = i < core->device_count && atomic_load(&p->access[i]) == GB_POOL_ACCESS_READ_WRITE
                        ? GB_POOL_ACCESS_READ_WRITE
                        : GB_POOL_ACCESS_NONE;
    gb_core_pool_unlock(s);
    return 0;
}

/* --- calls of the device ------------------------------------------------------------------------------------------ */

struct pool_op {
    struct gb_op base; /* first */
    struct gb_task task;
    int (*ask)(struct pool_op *op, struct gb_error *err);
    struct gb_pool_call *call;
    struct gb_core_pool *pool; /* a reference */
    uint64_t keep_bytes;
    int device;
    enum gb_pool_access access;
};

/* Not counted as kept, because memory comes in pieces of this size. */
#define TRIM_SLACK_BYTES (32u << 20)

static void note_trimmed(const struct pool_op *op) {
    const struct gb_pool_trim *t = &op->call->trim;
    struct gb_notice n = gb_notice_of(op->base.session, GB_NOTICE_POOL_TRIMMED);

    n.pool = op->pool->rec.name;
    n.device = op->pool->rec.device;
    n.has_bytes = true;
    n.bytes = t->before_bytes > t->after_bytes ? t->before_bytes - t->after_bytes : 0;
    gb_notice_post(op->base.session->core, &n);
}

static int trim(struct pool_op *op, struct gb_error *err) {
    struct gb_core_pool *p = op->pool;
    struct gb_pool_stat stat;

    if (gb_core_pool_read(p, &stat, err) < 0)
        return -1;
    op->call->trim.before_bytes = stat.reserved_bytes;
    gb_core_pool_notice_frees(p->device);
    if (gb_core_pool_trim(p, op->keep_bytes, err) < 0 || gb_core_pool_read(p, &stat, err) < 0)
        return -1;
    op->call->trim.after_bytes = stat.reserved_bytes;
    op->call->trim.kept =
        stat.reserved_bytes > op->keep_bytes && stat.reserved_bytes - stat.used_bytes > TRIM_SLACK_BYTES;
    atomic_fetch_add(&p->core->live_counters.trims, 1);
    atomic_fetch_add(&p->memory.trims, 1);
    note_trimmed(op);
    return 0;
}

static int reset_peak(struct pool_op *op, struct gb_error *err) {
    return gb_pool_reset_peak(op->pool->core->backend, op->pool->pool, err);
}

static int set_access(struct pool_op *op, struct gb_error *err) {
    if (gb_pool_access_set(op->pool->core->backend, op->pool->pool, op->device, op->access, err) < 0)
        return -1;
    atomic_store(&op->pool->access[op->device], op->access == GB_POOL_ACCESS_NONE ? GB_POOL_CLOSED : (int)op->access);
    return 0;
}

static void op_end(struct pool_op *op, const struct gb_error *error) {
    gb_core_pool_unref(op->pool);
    gb_op_end(&op->base, error);
}

static void run_op(struct gb_task *task) {
    struct pool_op *op = gb_container_of(task, struct pool_op, task);
    struct gb_session *s = op->base.session;
    struct gb_error err = GB_ERROR_INIT;

    (void)op->ask(op, &err);
    gb_core_pool_refresh(op->pool);
    gb_core_changed(s->core);
    pthread_mutex_lock(&s->lock);
    gb_core_pool_view(op->pool, &op->call->pool);
    pthread_mutex_unlock(&s->lock);
    op_end(op, &err);
}

/* Returns a reference to a pool that has a backend's pool, or NULL with err. */
static struct gb_core_pool *take_pool(struct gb_session *s, const struct gb_name *name, struct gb_error *err) {
    struct gb_core_pool *p;

    pthread_mutex_lock(&s->lock);
    p = gb_core_pool_find_locked(s, name, err);
    if (p && gb_core_pool_check(p, err) == 0)
        gb_core_pool_ref(p);
    else
        p = NULL;
    pthread_mutex_unlock(&s->lock);
    return p;
}

/* Not started. NULL: the call has ended. */
static struct pool_op *op_new(struct gb_core *core, const struct gb_locator *at,
                              int (*ask)(struct pool_op *op, struct gb_error *err), struct gb_pool_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct pool_op *op = gb_op_new(sizeof(*op), gb_op_session(core, &at->session, &err), &call->base, NULL, NULL, &err);

    if (!op)
        return NULL;
    op->task.run = run_op;
    op->ask = ask;
    op->call = call;
    op->pool = take_pool(op->base.session, &at->name, &err);
    if (op->pool)
        return op;
    op_end(op, &err);
    return NULL;
}

static void start(struct pool_op *op) {
    gb_lane_post(&op->pool->device->lane, &op->task);
}

void gb_pool_trim_to(struct gb_core *core, const struct gb_locator *at, uint64_t keep_bytes,
                     struct gb_pool_call *call) {
    struct pool_op *op = op_new(core, at, trim, call);

    if (!op)
        return;
    op->keep_bytes = keep_bytes;
    start(op);
}

void gb_pool_peak_reset(struct gb_core *core, const struct gb_locator *at, struct gb_pool_call *call) {
    struct pool_op *op = op_new(core, at, reset_peak, call);

    if (op)
        start(op);
}

void gb_pool_peer_set(struct gb_core *core, const struct gb_locator *at, int device, enum gb_pool_access access,
                      struct gb_pool_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct pool_op *op;

    if (device < 0 || device >= core->device_count) {
        gb_error_set(&err, GB_ERR_DEVICE_NOT_FOUND, "there is no device %d; there are %d", device, core->device_count);
        gb_call_finish(&call->base, &err);
        return;
    }
    op = op_new(core, at, set_access, call);
    if (!op)
        return;
    op->device = device;
    op->access = access;
    start(op);
}

/* --- devices ------------------------------------------------------------------------------------------------------ */

/* Use cases of devices. */

int gb_device_count(struct gb_core *core) {
    return core->device_count;
}

/* CUDA shows a process the GPUs of the machine, or one part of one. */
static const char *why_so_few(const struct gb_core *core) {
    return strncmp(core->devices[0].rec.uuid, "MIG-", 4) == 0 ? "; CUDA shows a process one MIG device" : "";
}

int gb_device_get(struct gb_core *core, int device, struct gb_device_rec *ret, struct gb_error *err) {
    if (device < 0 || device >= core->device_count)
        return gb_error_set(err, GB_ERR_DEVICE_NOT_FOUND, "there is no device %d; there are %d%s", device,
                            core->device_count, why_so_few(core));
    *ret = core->devices[device].rec;
    ret->free_bytes = atomic_load(&core->devices[device].free_bytes);
    ret->pending_free_bytes = gb_frees_bytes(core->devices[device].frees);
    return 0;
}

/* Clients that know of no MIG write the UUID of such a device as a GPU's. */
static bool same_device(const char *uuid, const char *asked) {
    bool mig = strncmp(uuid, "MIG-", 4) == 0 && strncmp(asked, "GPU-", 4) == 0;

    return strcmp(uuid, asked) == 0 || (mig && strcmp(uuid + 4, asked + 4) == 0);
}

int gb_device_find(struct gb_core *core, const char *index_or_uuid, int *ret_device, struct gb_error *err) {
    uint64_t index;
    int i;

    if (gb_parse_u64(index_or_uuid, strlen(index_or_uuid), &index) == GB_PARSE_OK &&
        index < (uint64_t)core->device_count) {
        *ret_device = (int)index;
        return 0;
    }
    for (i = 0; i < core->device_count; i++) {
        if (same_device(core->devices[i].rec.uuid, index_or_uuid)) {
            *ret_device = i;
            return 0;
        }
    }
    return gb_error_set(err, GB_ERR_DEVICE_NOT_FOUND, "there is no device \"%.60s\"; there are %d%s", index_or_uuid,
                        core->device_count, why_so_few(core));
}
