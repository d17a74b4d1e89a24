/* What a write needs, and whether it may: against records, quota and limits, before anything is taken. */
#include <string.h>

#include "base/parse.h"
#include "core/buffer/guard.h"
#include "core/buffer/transaction_batch.h"
#include "core/upload/upload.h"

/* --- where ------------------------------------------------------------------------------------------------------------------- */

/* What is there keeps its kind unless another is named. */
static enum gb_kind choose_kind(const struct gb_upload_params *p, const struct gb_buffer *b) {
    bool given = p->buffer.has_kind || p->buffer.kind != GB_KIND_DEVICE || p->buffer.pool.s[0] != '\0';

    return b && (p->partial || !given) ? b->rec.kind : p->buffer.kind;
}

/* Where it is named, else where the buffer is; the pool of one that is lost may be gone. NULL: err says why. */
static struct gb_core_pool *choose_pool_locked(struct gb_session *s, const struct gb_upload_params *p,
                                               const struct gb_plan *plan, struct gb_error *err) {
    const struct gb_buffer *b = plan->buffer;
    struct gb_core_pool *pool = NULL;

    if (!b || ((p->buffer.pool.s[0] != '\0' || p->buffer.has_device) && !p->partial))
        return gb_kind_pool_locked(s, &p->buffer, err);
    if (b->content && b->rec.kind == plan->kind)
        return b->content->pool;
    if (plan->kind == GB_KIND_DEVICE && b->rec.pool.s[0] != '\0')
        pool = gb_core_pool_find_locked(s, &b->rec.pool, NULL);
    if (!pool && b->rec.device < s->core->device_count)
        pool = s->core->devices[b->rec.device].pool;
    if (!pool)
        gb_error_set(err, GB_ERR_DEVICE_NOT_FOUND,
                     "the buffer's device %d is not there; name another one, or a pool (?device= or ?pool=)",
                     b->rec.device);
    return pool;
}

static int check_limit(struct gb_session *session, const struct gb_plan *plan, bool tell, struct gb_error *err) {
    uint64_t limit = gb_core_pool_limit(plan->pool);
    struct gb_error why = GB_ERROR_INIT;
    struct gb_pool_stat stat;

    if (gb_core_offers(plan->pool->device, plan->kind, err) < 0)
        return -1;
    if (plan->place || plan->kind != GB_KIND_DEVICE || plan->bytes <= limit)
        return 0;
    gb_core_pool_stat(plan->pool, &stat);
    gb_error_numbers(&why, limit, stat.used_bytes, plan->bytes);
    gb_error_set(&why, GB_ERR_OUT_OF_MEMORY,
                 "pool \"%s\" has %llu bytes in all and %llu are asked for: waiting does not help, ask for less",
                 plan->pool->rec.name.s, (unsigned long long)limit, (unsigned long long)plan->bytes);
    if (tell)
        gb_alloc_denied(session, plan->pool, plan->bytes, &why);
    if (err && err->code == GB_OK)
        *err = why;
    return -1;
}

/* --- how much ------------------------------------------------------------------------------------------------------------------ */

static int plan_full(const struct gb_upload_params *p, struct gb_plan *plan, struct gb_error *err) {
    plan->bytes = plan->payload = p->bytes;
    if (p->buffer.bytes != p->bytes)
        return gb_error_set(err, GB_ERR_SHAPE_MISMATCH, "shape and dtype give %llu bytes and the payload has %llu",
                            (unsigned long long)p->buffer.bytes, (unsigned long long)p->bytes);
    return 0;
}

int gb_plan_mergeable(const struct gb_plan *plan, struct gb_error *err) {
    const struct gb_buffer *b = plan->buffer;

    if (plan->merge && b->rec.state == GB_BUFFER_PARTIAL)
        return gb_error_set(err, GB_ERR_BUFFER_PARTIAL,
                            "a write in place broke off here; upload the whole buffer again");
    if (plan->merge && b->rec.state == GB_BUFFER_LOST)
        return gb_error_set(err, GB_ERR_CONTENT_LOST, "the bytes are lost; upload the whole buffer again");
    return 0;
}

static int check_view(const struct gb_upload_params *p, const struct gb_buffer *b, struct gb_error *err) {
    const struct gb_shape *made_for = &p->buffer.shape;
    const struct gb_shape *shape = &b->rec.shape;

    if (shape->dims == made_for->dims && memcmp(shape->dim, made_for->dim, shape->dims * sizeof(shape->dim[0])) == 0 &&
        p->bytes == p->view.bytes && gb_view_end(&p->view) <= b->rec.bytes)
        return 0;
    return gb_error_set(err, GB_ERR_SHAPE_MISMATCH, "the buffer's shape is no longer what the slice was meant for");
}

static int plan_partial(const struct gb_upload_params *p, struct gb_plan *plan, struct gb_error *err) {
    const struct gb_buffer *b = plan->buffer;
    uint64_t end;

    if (!b)
        return gb_error_set(err, GB_ERR_BUFFER_NOT_FOUND, "session \"%s\" has no buffer named \"%s\" to write into",
                            p->buffer.session.s, p->buffer.name.s);
    /* Asked at the header, where it is not yet known how many bytes follow. */
    if (p->offset > b->rec.bytes)
        return gb_error_set(err, GB_ERR_SHAPE_MISMATCH, "the offset %llu lies beyond the %llu bytes of the buffer",
                            (unsigned long long)p->offset, (unsigned long long)b->rec.bytes);
    if (!gb_add_u64(p->offset, p->bytes, &end) || end > b->rec.bytes)
        return gb_error_set(
            err, GB_ERR_SHAPE_MISMATCH, "%llu bytes at offset %llu do not fit into the %llu bytes of the buffer",
            (unsigned long long)p->bytes, (unsigned long long)p->offset, (unsigned long long)b->rec.bytes);
    if (p->scattered && check_view(p, b, err) < 0)
        return -1;
    plan->bytes = b->rec.bytes;
    plan->at = p->offset;
    plan->payload = p->bytes;
    plan->merge = p->bytes != b->rec.bytes;
    return gb_plan_mergeable(plan, err);
}

/* --- in place -------------------------------------------------------------------------------------------------------------------- */

/* Nobody else may use what is about to be overwritten, but who asks for this write; own: references that it has itself. */
static int check_unused(const struct gb_upload_params *p, const struct gb_buffer *b, const struct gb_content *c,
                        unsigned own, struct gb_error *err) {
    if (c->pin_count > 0 && (p->holder == 0 || !gb_guard_mapped_by_locked(c, p->holder)))
        return gb_guard_check_unmapped_locked(b, "wait until it has ended, or write without in_place", err);
    if (atomic_load(&c->refs) > 1 + own + c->pin_count || b->fifo.taken)
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "others use the buffer's bytes; try again");
    return 0;
}

static int plan_in_place(const struct gb_upload_params *p, const struct gb_device_write *w, struct gb_plan *plan,
                         struct gb_error *err) {
    struct gb_buffer *b = plan->buffer;

    if (b->rec.bytes != plan->bytes)
        return gb_error_set(err, GB_ERR_SHAPE_MISMATCH,
                            "a write in place needs as many bytes as the buffer has, %llu, and brings %llu",
                            (unsigned long long)b->rec.bytes, (unsigned long long)plan->bytes);
    if (b->content->pool != plan->pool)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "the buffer is in the pool \"%s\" of device %d: a write in place cannot move it",
                            b->rec.pool.s, b->rec.device);
    if (b->rec.kind != plan->kind)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "the buffer is of kind \"%s\": a write in place cannot change that",
                            gb_kind_name(b->rec.kind));
    plan->in_place = true;
    plan->place = b->content;
    plan->base = NULL;
    return check_unused(p, b, plan->place, w && w->source == plan->place, err);
}

/* --- mirrored -------------------------------------------------------------------------------------------------------------------- */

static int check_sides(const struct gb_upload_params *p, const struct gb_device_write *w, const struct gb_plan *plan,
                       struct gb_error *err) {
    const struct gb_buffer *b = plan->buffer;
    bool named = p->side_named || (w ? !p->to_device_side : p->to_device_side);

    if (!plan->mirrored && named)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the buffer \"%s\" has no sides: it is not mirrored",
                            p->buffer.name.s);
    if (!plan->mirrored && p->buffer.mirrored)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "the buffer \"%s\" is there and not mirrored: delete it, or choose another name",
                            p->buffer.name.s);
    if (plan->mirrored && p->buffer.has_mirrored && !p->buffer.mirrored)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "the buffer \"%s\" is there and mirrored: delete it, or choose another name",
                            p->buffer.name.s);
    if (plan->mirrored && !p->partial && p->buffer.kind != GB_KIND_DEVICE)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a mirrored buffer is of kind \"device\", not \"%s\"",
                            gb_kind_name(p->buffer.kind));
    if (plan->mirrored && b && !p->partial && p->buffer.pool.s[0] != '\0' &&
        !gb_name_equal(&p->buffer.pool, &b->rec.pool))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a mirrored buffer stays in its pool, \"%s\"", b->rec.pool.s);
    return 0;
}

/* The side that is written, where it is when it is large enough; and what must be there before. */
static int plan_side(const struct gb_upload_params *p, const struct gb_device_write *w, struct gb_plan *plan,
                     struct gb_error *err) {
    struct gb_buffer *b = plan->buffer;
    enum gb_head head = b ? b->rec.head : GB_HEAD_UNINITIALIZED;
    bool sync = w && w->what == GB_DEVICE_WRITE_SYNC;
    struct gb_mirror_move move;

    plan->side = p->to_device_side ? GB_SIDE_DEVICE : GB_SIDE_HOST;
    plan->kind = plan->side == GB_SIDE_DEVICE ? GB_KIND_DEVICE : GB_KIND_PINNED;
    if (sync)
        move = gb_mirror_move(head, plan->side == GB_SIDE_DEVICE ? GB_MIRROR_SYNC_DEVICE : GB_MIRROR_SYNC_HOST);
    else
        move = gb_mirror_move(head, gb_mirror_write(plan->side, plan->merge));
    if (plan->side == GB_SIDE_HOST)
        plan->pool = plan->pool->device->pool;
    plan->head = move.next;
    plan->zero = move.step == GB_MIRROR_ZERO;
    plan->base = move.step == GB_MIRROR_COPY && !sync ? b->sides[gb_other_side(plan->side)] : NULL;
    plan->place = b && !p->fresh ? b->sides[plan->side] : NULL;
    if (plan->place && plan->place->bytes < plan->bytes)
        plan->place = NULL;
    if (plan->place && !plan->merge && (plan->place->tainted || (plan->place->pin_count > 0 && !sync)))
        plan->place = NULL; /* all of it is new: beside what is mapped, or may be written from outside */
    plan->in_place = plan->place && !sync;
    return plan->place ? check_unused(p, b, plan->place, w && w->source == plan->place, err) : 0;
}

/* --- all of it ------------------------------------------------------------------------------------------------------------------- */

static int plan_place(const struct gb_upload_params *p, const struct gb_device_write *w, struct gb_plan *plan,
                      struct gb_error *err) {
    struct gb_buffer *b = plan->buffer;

    if (plan->mirrored)
        return plan_side(p, w, plan, err);
    plan->base = plan->merge ? b->content : NULL;
    if (b && (p->fresh || (w && w->call && gb_transaction_batch_atomic(w->call->base.batch))) &&
        gb_adopted_check_locked(
            b, "they are written in place alone; upload or copy all of it in one request of its own", err) < 0)
        return -1;
    if (b && b->content && b->content->ptr && (p->in_place || b->content->owner))
        return plan_in_place(p, w, plan, err);
    return 0;
}

int gb_plan_make_locked(struct gb_session *s, const struct gb_upload_params *p, struct gb_device_write *w,
                        struct gb_plan *plan, struct gb_error *err) {
    struct gb_buffer *b = gb_buffer_find_locked(s, &p->buffer.name, NULL);
    int r;

    *plan = (struct gb_plan){.buffer = b, .kind = choose_kind(p, b)};
    plan->mirrored = b ? b->rec.mirrored : p->buffer.mirrored && !p->partial;
    if (gb_session_alive(s, err) < 0)
        return -1;
    if (p->check.check && p->check.check(p->check.arg, b ? &b->rec : NULL, err) < 0)
        return -1;
    if (b && b->in_place)
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer is being overwritten in place; try again");
    if (b && !(w && w->what == GB_DEVICE_WRITE_SYNC) && gb_guard_check_unsealed_locked(b, err) < 0)
        return -1;
    if (w)
        r = gb_device_write_plan(w, p, plan, err);
    else
        r = p->partial ? plan_partial(p, plan, err) : plan_full(p, plan, err);
    if (r < 0 || check_sides(p, w, plan, err) < 0)
        return -1;
    if (!p->partial && gb_kind_check_pool(plan->kind, &p->buffer.pool, err) < 0)
        return -1;
    plan->pool = choose_pool_locked(s, p, plan, err);
    if (!plan->pool || gb_core_pool_check(plan->pool, err) < 0)
        return -1;
    if (plan->kind == GB_KIND_DEVICE)
        plan->pool_name = plan->pool->rec.name;
    if (plan_place(p, w, plan, err) < 0 || gb_device_write_check_overlap(w, plan, err) < 0)
        return -1;
    return check_limit(s, plan, !p->asked_before, err);
}
