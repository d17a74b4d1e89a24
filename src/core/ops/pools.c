/* Use cases of pools that are there: looking, trimming, peaks, peers. */
#include <string.h>

#include "base/container.h"
#include "core/session/op.h"

/* --- looking ------------------------------------------------------------------------------------------------------ */

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

/* --- asking the device -------------------------------------------------------------------------------------------- */

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

/* Kept beside what is used without a word: memory comes in pieces of this size. */
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

/* A reference to a pool that can be asked; NULL: err says why. */
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
