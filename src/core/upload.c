/* Uploads: what can be refused is refused before a byte was read. */
#include "core/upload.h"

#include <stdlib.h>
#include <string.h>

#include "base/parse.h"

struct plan {
    struct gb_buffer *buffer; /* NULL: a new one */
    struct gb_core_pool *pool;
    enum gb_kind kind;
    uint64_t bytes; /* of the buffer */
    bool merge;
    bool in_place;
};

static int plan_full(const struct gb_upload_params *p, struct plan *plan, struct gb_error *err) {
    const struct gb_buffer *b = plan->buffer;

    plan->bytes = p->bytes;
    if (p->buffer.bytes != p->bytes)
        return gb_error_set(err, GB_ERR_SHAPE_MISMATCH, "shape and dtype give %llu bytes and the payload has %llu",
                            (unsigned long long)p->buffer.bytes, (unsigned long long)p->bytes);
    if (plan->in_place && b->rec.bytes != p->bytes)
        return gb_error_set(err, GB_ERR_SHAPE_MISMATCH,
                            "an upload in place needs as many bytes as the buffer has, %llu, and brings %llu",
                            (unsigned long long)b->rec.bytes, (unsigned long long)p->bytes);
    return 0;
}

static int plan_partial(const struct gb_upload_params *p, struct plan *plan, struct gb_error *err) {
    const struct gb_buffer *b = plan->buffer;
    uint64_t end;

    if (!b)
        return gb_error_set(err, GB_ERR_BUFFER_NOT_FOUND, "session \"%s\" has no buffer named \"%s\" to write into",
                            p->buffer.session.s, p->buffer.name.s);
    plan->bytes = b->rec.bytes;
    if (!gb_add_u64(p->offset, p->bytes, &end) || end > b->rec.bytes)
        return gb_error_set(
            err, GB_ERR_SHAPE_MISMATCH, "%llu bytes at offset %llu do not fit into the %llu bytes of the buffer",
            (unsigned long long)p->bytes, (unsigned long long)p->offset, (unsigned long long)b->rec.bytes);
    plan->merge = p->bytes != b->rec.bytes;
    if (plan->merge && b->rec.state == GB_BUFFER_PARTIAL)
        return gb_error_set(err, GB_ERR_BUFFER_PARTIAL,
                            "an upload in place broke off here; upload the whole buffer again");
    if (plan->merge && b->rec.state == GB_BUFFER_LOST)
        return gb_error_set(err, GB_ERR_CONTENT_LOST, "the bytes are lost; upload the whole buffer again");
    return 0;
}

/* Nobody else may read what is about to be overwritten. */
static int check_unused(const struct gb_buffer *b, const struct gb_core_pool *pool, enum gb_kind kind,
                        struct gb_error *err) {
    if (b->rec.kind != kind)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "the buffer is of kind \"%s\": an upload in place cannot change that",
                            gb_kind_name(b->rec.kind));
    if (b->content->pool != pool)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "the buffer is in the pool \"%s\" of device %d: an upload in place cannot move it",
                            b->rec.pool.s, b->rec.device);
    if (atomic_load(&b->content->refs) > 1 || b->turns.taken)
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "others use the buffer's bytes; try again");
    return 0;
}

static int check_device(struct plan *plan, struct gb_error *err) {
    uint64_t limit = gb_core_pool_limit(plan->pool);
    struct gb_pool_stat stat;

    if (gb_core_offers(plan->pool->device, plan->kind, err) < 0)
        return -1;
    if (plan->in_place || plan->kind != GB_KIND_DEVICE || plan->bytes <= limit)
        return 0;
    gb_core_pool_stat(plan->pool, &stat);
    gb_error_numbers(err, limit, stat.used_bytes, plan->bytes);
    return gb_error_set(err, GB_ERR_OUT_OF_MEMORY, "pool \"%s\" has %llu bytes in all and %llu are asked for",
                        plan->pool->rec.name.s, (unsigned long long)limit, (unsigned long long)plan->bytes);
}

/* Where it is named, else where the buffer is; the pool of one that is lost may be gone. NULL: err says why. */
static struct gb_core_pool *choose_pool_locked(struct gb_session *s, const struct gb_upload_params *p,
                                               const struct gb_buffer *b, struct gb_error *err) {
    struct gb_core_pool *pool = NULL;

    if (!b || (p->buffer.pool.s[0] != '\0' && !p->partial))
        return gb_core_pool_find_locked(s, &p->buffer.pool, err);
    if (b->content)
        return b->content->pool;
    if (b->rec.pool.s[0] != '\0')
        pool = gb_core_pool_find_locked(s, &b->rec.pool, NULL);
    if (!pool && b->rec.device < s->core->device_count)
        pool = s->core->devices[b->rec.device].pool;
    if (!pool)
        gb_error_set(err, GB_ERR_DEVICE_NOT_FOUND, "the buffer's device %d is not there", b->rec.device);
    return pool;
}

/* What is there keeps its kind unless another is named. */
static enum gb_kind choose_kind(const struct gb_upload_params *p, const struct gb_buffer *b) {
    bool given = p->buffer.has_kind || p->buffer.kind != GB_KIND_DEVICE || p->buffer.pool.s[0] != '\0';

    return b && (p->partial || !given) ? b->rec.kind : p->buffer.kind;
}

static int examine_locked(struct gb_session *s, const struct gb_upload_params *p, struct plan *plan,
                          struct gb_error *err) {
    struct gb_buffer *b = gb_buffer_find_locked(s, &p->buffer.name, NULL);

    *plan = (struct plan){.buffer = b};
    if (gb_session_alive(s, err) < 0)
        return -1;
    if (p->check.check && p->check.check(p->check.arg, b ? &b->rec : NULL, err) < 0)
        return -1;
    if (b && b->in_place)
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer is being overwritten in place; try again");
    plan->kind = choose_kind(p, b);
    if (!p->partial && gb_kind_check_pool(plan->kind, &p->buffer.pool, err) < 0)
        return -1;
    plan->pool = choose_pool_locked(s, p, b, err);
    if (!plan->pool || gb_core_pool_check(plan->pool, err) < 0)
        return -1;
    plan->in_place = p->in_place && b && b->content && b->content->ptr;
    if ((p->partial ? plan_partial(p, plan, err) : plan_full(p, plan, err)) < 0)
        return -1;
    if (plan->in_place && check_unused(b, plan->pool, plan->kind, err) < 0)
        return -1;
    return check_device(plan, err);
}

int gb_upload_check(struct gb_core *core, const struct gb_upload_params *params, struct gb_error *err) {
    struct gb_core_stream *stream = NULL;
    struct gb_session *s;
    struct plan plan;
    int r;

    if (gb_core_alive(core, err) < 0)
        return -1;
    s = gb_session_use(core, &params->buffer.session, err);
    if (!s)
        return -1;
    pthread_mutex_lock(&s->lock);
    r = gb_core_stream_use_locked(s, &params->buffer.stream, &stream, err);
    if (r == 0)
        r = examine_locked(s, params, &plan, err);
    if (r == 0)
        r = gb_quota_check_locked(s, plan.in_place ? 0 : plan.bytes, plan.buffer ? 0 : 1, err);
    pthread_mutex_unlock(&s->lock);
    gb_core_stream_unuse(stream);
    gb_session_unref(s);
    return r;
}

/* Takes what the plan needs: nothing when it fails. */
static int reserve_locked(struct gb_upload *u, const struct plan *plan, struct gb_error *err) {
    struct gb_session *s = u->t.session;
    struct gb_buffer *b = plan->buffer;

    if (plan->in_place) {
        u->content = gb_content_ref(b->content);
        b->in_place = true;
        return 0;
    }
    if (!b && gb_quota_take_locked(s, 0, 1, err) < 0)
        return -1;
    if (gb_content_new_locked(s, plan->pool, plan->kind, u->t.stream, plan->bytes, &u->content, err) < 0) {
        if (b && err && err->code == GB_ERR_QUOTA_EXCEEDED)
            strncat(err->detail, "; an upload in place needs no second copy",
                    sizeof(err->detail) - strlen(err->detail) - 1);
        if (!b)
            gb_quota_give_locked(s, 0, 1);
        return -1;
    }
    u->counted = !b;
    if (plan->merge)
        u->base = gb_content_ref(b->content);
    return 0;
}

static int begin_locked(struct gb_upload *u, struct gb_error *err) {
    struct plan plan;

    if (gb_core_stream_use_locked(u->t.session, &u->params.buffer.stream, &u->t.stream, err) < 0 ||
        examine_locked(u->t.session, &u->params, &plan, err) < 0 || reserve_locked(u, &plan, err) < 0)
        return -1;
    u->t.device = plan.pool->device;
    u->bytes = plan.bytes;
    u->at = u->params.partial ? u->params.offset : 0;
    u->merge = plan.merge;
    u->in_place = plan.in_place;
    u->direct = gb_kind_direct_in(u->t.device, plan.kind);
    if (plan.buffer) {
        u->base_id = plan.buffer->id;
        u->base_generation = plan.buffer->rec.generation;
    }
    return 0;
}

static void start(struct gb_upload *u) {
    struct gb_core *core = u->t.core;
    unsigned i;

    for (i = 0; i < GB_UPLOAD_FLIGHTS; i++)
        u->flights[i].transfer = &u->t;
    atomic_fetch_add(&core->uploads_running, 1);
    gb_core_changed(core);
    gb_transfer_ref(&u->t); /* the lane's */
    if (u->in_place) {
        u->task.run = gb_upload_prepare;
        gb_lane_post(&u->t.device->lane, &u->task);
        return;
    }
    u->alloc.content = u->content;
    u->alloc.done = gb_upload_allocated;
    gb_alloc_start(&u->alloc, u->params.wait_ms);
}

int gb_upload_begin(struct gb_core *core, const struct gb_upload_params *params, struct gb_upload **ret,
                    struct gb_error *err) {
    struct gb_session *s;
    struct gb_upload *u;
    int r;

    if (gb_core_alive(core, err) < 0)
        return -1;
    s = gb_session_use(core, &params->buffer.session, err);
    if (!s)
        return -1;
    u = calloc(1, sizeof(*u));
    if (!u) {
        gb_session_unref(s);
        return gb_no_memory(err);
    }
    u->params = *params;
    gb_transfer_init(&u->t, s, params->wake, params->arg, gb_upload_destroy);
    pthread_mutex_lock(&s->lock);
    r = begin_locked(u, err);
    pthread_mutex_unlock(&s->lock);
    gb_session_unref(s);
    if (r < 0) {
        gb_transfer_done(&u->t);
        free(u);
        return -1;
    }
    start(u);
    *ret = u;
    return 0;
}
