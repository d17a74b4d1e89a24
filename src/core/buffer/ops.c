/* Buffers as clients see them: read, changed, mirrored, sealed, deleted; create.c makes them. Each change is a
 * transaction. Handlers call this. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "core/buffer/buffer.h"
#include "core/buffer/transaction.h"
#include "core/durable/stored.h"
#include "core/memory/alloc.h"
#include "core/public/buffer.h"
#include "core/session/quota.h"
#include "core/session/session.h"
#include "core/transfer/upload.h"

/* --- buffers ------------------------------------------------------------------------------------------------------ */

/* One call that changes or deletes a buffer. */
struct buffer_op {
    struct gb_buffer_op base; /* first */
    struct gb_buffer_params params;
    struct gb_content *content; /* delete: to be dropped */
    bool unmapped;              /* delete: the memory is freed when its last mapping ends */
};

static struct buffer_op *op_of(struct gb_transaction *transaction) {
    return gb_container_of(gb_buffer_op_of(transaction), struct buffer_op, base);
}

/* error may be part of op; GB_OK in it is success. */
static void op_end(struct buffer_op *op, const struct gb_error *error) {
    gb_text_unref(op->params.labels);
    gb_buffer_op_end(&op->base, error);
}

/* --- patch -------------------------------------------------------------------------------------------------------- */

/* sync and behind need bytes that can be stored. With none, the stored bytes are removed, so those in memory are
 * needed; and so they are if the disk has them only until the end of the process. */
static int patch_durability_locked(struct gb_transaction *transaction, struct gb_buffer *b,
                                   enum gb_durability durability, struct gb_error *err) {
    struct gb_session *s = transaction->session;

    if (durability == b->rec.durability)
        return 0;
    if (gb_disks_check_durability(s->core, durability, err) < 0)
        return -1;
    if (durability != GB_DURABILITY_NONE &&
        gb_guard_check_complete_locked(b, "they are never durable; copy them, and make the copy durable", err) < 0)
        return -1;
    if ((durability == GB_DURABILITY_NONE || (b->stored && b->stored->spilled)) && gb_buffer_want_locked(s, b, err) < 0)
        return -1;
    transaction->rec.durability = durability;
    return 0;
}

static int patch_decide_locked(struct gb_transaction *transaction, struct gb_buffer *b, struct gb_error *err) {
    struct buffer_op *op = op_of(transaction);
    const struct gb_buffer_params *p = &op->params;

    if (gb_buffer_op_check_locked(&op->base, b, err) < 0)
        return -1;
    if (p->has_shape && p->bytes != b->rec.bytes)
        return gb_error_set(err, GB_ERR_SHAPE_MISMATCH, "the buffer has %llu bytes; shape and dtype give %llu",
                            (unsigned long long)b->rec.bytes, (unsigned long long)p->bytes);
    gb_buffer_copy_locked(b, &transaction->rec);
    if (p->has_shape) {
        transaction->rec.dtype = p->dtype;
        transaction->rec.shape = p->shape;
    }
    if (p->has_labels)
        gb_text_set(&transaction->rec.labels, p->labels);
    if (p->has_durability && patch_durability_locked(transaction, b, p->durability, err) < 0)
        return -1;
    if (p->has_spill)
        transaction->rec.spill = p->spill;
    if (p->has_resident)
        transaction->rec.resident = p->resident;
    transaction->rec.version++;
    transaction->rec.updated_at_us = gb_wall_us();
    return 0;
}

static void patch_apply_locked(struct gb_transaction *transaction, struct gb_buffer *b) {
    struct buffer_op *op = op_of(transaction);

    /* A state that a dead device set while the database was busy stays. */
    gb_buffer_keep_state_locked(b, &transaction->rec);
    gb_buffer_set_locked(op->base.base.session, b, &transaction->rec, b->content);
    gb_buffer_rec_set(&op->base.call->buffer, &transaction->rec);
}

static void patch_end(struct gb_transaction *transaction) {
    op_end(op_of(transaction), &transaction->error);
}

void gb_buffer_patch(struct gb_core *core, const struct gb_buffer_params *params, const struct gb_buffer_check *check,
                     struct gb_buffer_call *call) {
    struct buffer_op *op =
        gb_buffer_op_new(sizeof(*op), core, &(struct gb_locator){params->session, params->name}, check, call);

    if (!op)
        return;
    op->params = *params;
    gb_text_ref(op->params.labels);
    op->base.transaction.validate_locked = patch_decide_locked;
    op->base.transaction.publish_locked = patch_apply_locked;
    op->base.transaction.end = patch_end;
    gb_transaction_start(&op->base.transaction);
}

/* --- delete ------------------------------------------------------------------------------------------------------- */

static void content_gone(void *arg) {
    struct buffer_op *op = arg;

    op_end(op, &op->base.transaction.error);
}

static int delete_decide_locked(struct gb_transaction *transaction, struct gb_buffer *b, struct gb_error *err) {
    if (gb_buffer_op_check_locked(gb_buffer_op_of(transaction), b, err) < 0)
        return -1;
    if (b->in_place)
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer is being overwritten in place; try again");
    return op_of(transaction)->unmapped
               ? 0
               : gb_guard_check_unmapped_locked(b, "wait until it has ended, or delete it with when=unmapped", err);
}

static void delete_apply_locked(struct gb_transaction *transaction, struct gb_buffer *b) {
    struct buffer_op *op = op_of(transaction);

    gb_buffer_copy_locked(b, &op->base.call->buffer);
    op->base.call->held_bytes = gb_guard_mapped_bytes_locked(b);
    op->content = gb_buffer_clear_locked(op->base.base.session, b);
}

static void delete_end(struct gb_transaction *transaction) {
    struct buffer_op *op = op_of(transaction);

    if (op->content && !op->content->next)
        gb_content_retire(op->content, content_gone, op);
    else
        gb_content_drop_list(op->content, content_gone, op);
}

static void delete_start(struct gb_core *core, const struct gb_locator *at, const struct gb_buffer_check *check,
                         bool unmapped, struct gb_buffer_call *call) {
    struct gb_turn *turn = gb_call_take_turn(&call->base);
    struct buffer_op *op = gb_buffer_op_new(sizeof(*op), core, at, check, call);

    if (op) {
        op->unmapped = unmapped;
        op->base.transaction.removes = true;
        op->base.transaction.validate_locked = delete_decide_locked;
        op->base.transaction.publish_locked = delete_apply_locked;
        op->base.transaction.end = delete_end;
    }
    gb_buffer_op_start_ordered(op ? &op->base : NULL, turn);
}

void gb_buffer_delete(struct gb_core *core, const struct gb_locator *at, const struct gb_buffer_check *check,
                      struct gb_buffer_call *call) {
    delete_start(core, at, check, false, call);
}

void gb_buffer_delete_when_unmapped(struct gb_core *core, const struct gb_locator *at,
                                    const struct gb_buffer_check *check, struct gb_buffer_call *call) {
    delete_start(core, at, check, true, call);
}

/* --- looking ------------------------------------------------------------------------------------------------------ */

int gb_buffer_get_in(struct gb_session *s, const struct gb_name *name, struct gb_buffer_rec *ret,
                     struct gb_error *err) {
    struct gb_buffer *b;

    ret->labels = NULL;
    pthread_mutex_lock(&s->lock);
    b = gb_session_alive(s, err) < 0 ? NULL : gb_buffer_find_locked(s, name, err);
    if (b)
        gb_buffer_copy_locked(b, ret);
    pthread_mutex_unlock(&s->lock);
    return b ? 0 : -1;
}

int gb_buffer_see_in(struct gb_session *s, const struct gb_name *name, const struct gb_name *stream,
                     struct gb_buffer_rec *ret, bool *ret_pending, struct gb_error *err) {
    struct gb_after after = {.on = NULL};
    struct gb_core_stream *st = NULL;
    struct gb_buffer seen;
    struct gb_buffer *b;

    *ret_pending = false;
    if (atomic_load(&s->oldest_turn) == UINT64_MAX)
        return gb_buffer_get_in(s, name, ret, err);
    ret->labels = NULL;
    pthread_mutex_lock(&s->lock);
    if (gb_core_stream_use_locked(s, stream, &st, NULL) == 0)
        gb_after_find_write_locked(s, name, st, &after);
    b = gb_session_alive(s, err) < 0 ? NULL : gb_after_see_locked(s, name, &after, &seen, err);
    if (b)
        gb_buffer_copy_locked(b, ret);
    *ret_pending = after.on && !gb_after_chained(&after);
    (void)gb_after_leave_locked(&after);
    pthread_mutex_unlock(&s->lock);
    gb_core_stream_unuse(st);
    return b ? 0 : -1;
}

int gb_buffer_get(struct gb_core *core, const struct gb_locator *at, struct gb_buffer_rec *ret, struct gb_error *err) {
    struct gb_session *s = gb_session_use(core, &at->session, err);
    int r = s ? gb_buffer_get_in(s, &at->name, ret, err) : -1;

    gb_session_unref(s);
    return r;
}

/* Copies the next buffer that clients see, as gb_buffer_copy_locked. */
static bool after(struct gb_session *s, int64_t id, struct gb_buffer_rec *rec) {
    struct gb_buffer *b;
    bool found;

    pthread_mutex_lock(&s->lock);
    do
        b = gb_idlist_after(&s->buffers_by_id, id, &id);
    while (b && (!b->live || b->deleting));
    found = b != NULL;
    if (found)
        gb_buffer_copy_locked(b, rec);
    pthread_mutex_unlock(&s->lock);
    return found;
}

int gb_buffer_list(struct gb_core *core, const struct gb_name *session, struct gb_page *page,
                   int (*visit)(void *, const struct gb_buffer_rec *, struct gb_error *), void *arg,
                   struct gb_error *err) {
    struct gb_session *s = gb_session_use(core, session, err);
    struct gb_buffer_rec rec = {.labels = NULL};
    int64_t id = page->after;
    unsigned n;
    int r = 0;

    if (!s)
        return -1;
    for (n = 0; n < page->limit && r == 0 && after(s, id, &rec); n++) {
        id = rec.id;
        r = visit(arg, &rec, err);
    }
    if (r == 0)
        page->more = after(s, id, &rec);
    gb_buffer_rec_done(&rec);
    gb_session_unref(s);
    return r;
}

/* --- attributes --------------------------------------------------------------------------------------------------- */

/* Reads the native layer's attributes of a buffer's memory. The content is held meanwhile, so that its free is not
 * queued. */

struct attr_op {
    struct gb_op base; /* first */
    struct gb_task task;
    struct gb_attributes_call *call;
    struct gb_content *content[2]; /* of a mirrored buffer: host side, device side */
};

static void finish(struct attr_op *op, const struct gb_error *error) {
    gb_content_drop(op->content[0], NULL, NULL);
    gb_content_drop(op->content[1], NULL, NULL);
    gb_op_end(&op->base, error);
}

static int ask(struct gb_content *c, struct gb_mem_attr *ret, struct gb_error *err) {
    struct gb_location place = gb_content_location(c, 0);

    return gb_mem_attributes(c->device->core->backend, &place, c->kind == GB_KIND_DEVICE ? c->pool->pool : NULL, ret,
                             err);
}

/* On the lane. */
static void ask_all(struct gb_task *task) {
    struct attr_op *op = gb_container_of(task, struct attr_op, task);
    struct gb_mem_attr *attr = &op->call->attr;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_mem_attr host;
    struct gb_content *h = op->content[0];
    struct gb_content *d = op->content[1];
    int r = 0;

    if (h && h->ptr)
        r = ask(h, attr, &err);
    host = *attr;
    if (r == 0 && d && d->ptr)
        r = ask(d, attr, &err);
    if (r == 0 && h && h->ptr && d && d->ptr)
        attr->host_address = host.host_address;
    finish(op, r < 0 ? &err : NULL);
}

static int hold_locked(struct attr_op *op, const struct gb_name *name, int *ret_device, struct gb_error *err) {
    struct gb_buffer *b = gb_buffer_find_locked(op->base.session, name, err);
    struct gb_content *c;
    int i;

    if (!b)
        return -1;
    if (b->rec.state == GB_BUFFER_LOST)
        return gb_error_set(err, GB_ERR_CONTENT_LOST, "the bytes of \"%s\" are lost; upload it again", name->s);
    if (gb_buffer_want_locked(op->base.session, b, err) < 0)
        return -1;
    for (i = 0; i < 2; i++) {
        c = b->rec.mirrored ? b->sides[i] : (i == GB_SIDE_DEVICE ? b->content : NULL);
        op->content[i] = c ? gb_content_ref(c) : NULL;
    }
    gb_buffer_copy_locked(b, &op->call->buffer);
    *ret_device = b->rec.device;
    return 0;
}

static void result_done(struct gb_call *call) {
    gb_buffer_rec_done(&gb_container_of(call, struct gb_attributes_call, base)->buffer);
}

void gb_buffer_attributes(struct gb_core *core, const struct gb_locator *at, struct gb_attributes_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct attr_op *op = gb_op_new(sizeof(*op), gb_op_session(core, &at->session, &err), &call->base, NULL, NULL, &err);
    int device = 0;
    int r;

    if (!op)
        return;
    op->call = call;
    call->base.free_result = result_done;
    call->attr = (struct gb_mem_attr){.type = GB_MEMORY_UNREGISTERED, .device = -1};
    pthread_mutex_lock(&op->base.session->lock);
    r = hold_locked(op, &at->name, &device, &err);
    pthread_mutex_unlock(&op->base.session->lock);
    if (r < 0 || (!op->content[0] && !op->content[1])) {
        finish(op, r < 0 ? &err : NULL);
        return;
    }
    op->task.run = ask_all;
    gb_lane_post(&core->devices[device].lane, &op->task);
}

/* --- mirrors ------------------------------------------------------------------------------------------------------ */

/* Mirrored buffers: bringing a side up to date, giving one memory, giving one up. */

static int check_mirrored(const struct gb_buffer *b, struct gb_error *err) {
    if (!b->rec.mirrored)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the buffer \"%s\" has no sides: it is not mirrored",
                            b->name);
    if (b->in_place)
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer is being overwritten in place; try again");
    if (b->rec.state == GB_BUFFER_LOST)
        return gb_error_set(err, GB_ERR_CONTENT_LOST, "the bytes of \"%s\" are lost; upload it again", b->name);
    return 0;
}

static int find_locked(struct gb_session *s, const struct gb_name *name, const struct gb_buffer_check *check,
                       struct gb_buffer **ret, struct gb_error *err) {
    struct gb_buffer *b = gb_buffer_find_locked(s, name, err);

    if (!b || gb_buffer_check_locked(check, b, err) < 0)
        return -1;
    *ret = b;
    return check_mirrored(b, err) < 0 ? -1 : gb_buffer_want_locked(s, b, err);
}

/* --- sync --------------------------------------------------------------------------------------------------------- */

static int find_whole_locked(struct gb_session *s, struct gb_device_write *w, struct gb_buffer **ret,
                             struct gb_error *err) {
    struct gb_buffer *b;

    if (find_locked(s, &w->params.buffer.name, &w->params.check, &b, err) < 0)
        return -1;
    if (b->rec.state == GB_BUFFER_PARTIAL)
        return gb_error_set(err, GB_ERR_BUFFER_PARTIAL,
                            "a write in place broke off here; upload the whole buffer again");
    gb_buffer_copy_locked(b, &w->call->buffer);
    *ret = b;
    return 0;
}

/* The bytes to be copied or zeroed, if any. */
static int look_at_sync_locked(struct gb_session *s, struct gb_device_write *w, bool *ret_needed,
                               struct gb_error *err) {
    struct gb_mirror_move move;
    struct gb_buffer *b;

    if (find_whole_locked(s, w, &b, err) < 0)
        return -1;
    move = gb_mirror_move(b->rec.head, w->side == GB_SIDE_HOST ? GB_MIRROR_SYNC_HOST : GB_MIRROR_SYNC_DEVICE);
    *ret_needed = move.step != GB_MIRROR_GO;
    if (!*ret_needed)
        return 0;
    if (gb_guard_check_unmapped_locked(b, "wait until it has ended", err) < 0)
        return -1;
    gb_buffer_copy_locked(b, &w->source_rec);
    w->bytes = b->rec.bytes;
    if (move.step == GB_MIRROR_COPY)
        w->source = gb_content_ref(b->sides[gb_other_side(w->side)]);
    return 0;
}

/* Memory of another process takes none of ours. */
static uint64_t charged(const struct gb_content *content) {
    return content->owner ? 0 : content->bytes;
}

/* What can never succeed is refused before the old memory is freed, whose bytes count no more then. */
static int check_growth_locked(struct gb_session *s, struct gb_device_write *w, const struct gb_content *old,
                               struct gb_error *err) {
    uint64_t more = w->capacity - charged(old);
    int r = gb_device_write_check_locked(w, err);

    if (r == 0)
        r = gb_quota_check_locked(s, more, 0, true, err);
    if (r == 0 && w->side == GB_SIDE_HOST)
        r = gb_quota_check_pinned_locked(s, more, true, err);
    if (r < 0)
        gb_quota_denied(s, err);
    return r;
}

/* The bytes to be kept, if the side must grow; else the memory to be freed. */
static int look_at_reserve_locked(struct gb_session *s, struct gb_device_write *w, bool *ret_needed,
                                  struct gb_error *err) {
    struct gb_content *c;
    struct gb_buffer *b;

    if (find_whole_locked(s, w, &b, err) < 0 || gb_guard_check_unsealed_locked(b, err) < 0)
        return -1;
    c = b->sides[w->side];
    *ret_needed = (c ? c->bytes : 0) < w->capacity;
    if (!*ret_needed)
        return 0;
    if (gb_guard_check_unmapped_locked(b, "wait until it has ended", err) < 0)
        return -1;
    gb_buffer_copy_locked(b, &w->source_rec);
    w->stale = c && !gb_side_current(b->rec.head, w->side) ? c : NULL;
    w->stale_bytes = c ? c->bytes : 0;
    if (w->stale)
        return check_growth_locked(s, w, c, err);
    if (!c)
        return 0;
    w->bytes = b->rec.bytes;
    w->kept = charged(c);
    w->source = gb_content_ref(c);
    return 0;
}

static void free_first(struct gb_device_write *w);

/* look: of the two. The buffer is looked at when the write's turn has come. */
static void run_side(struct gb_device_write *w, int (*look)(struct gb_session *s, struct gb_device_write *w,
                                                            bool *ret_needed, struct gb_error *err)) {
    struct gb_error err = GB_ERROR_INIT;
    bool needed = false;
    int r;

    pthread_mutex_lock(&w->session->lock);
    r = gb_after_check_locked(&w->turn->after, &err);
    if (r == 0)
        r = look(w->session, w, &needed, &err);
    pthread_mutex_unlock(&w->session->lock);
    if (r == 0 && needed) {
        if (w->stale)
            free_first(w);
        else
            gb_device_write_start(w);
        return;
    }
    if (r == 0 && w->what == GB_DEVICE_WRITE_SYNC)
        GB_COUNT(w->core, w->session, mirror_copies_avoided, 1);
    gb_device_write_fail(w, &err);
}

static void run_sync(struct gb_device_write *w) {
    run_side(w, look_at_sync_locked);
}

static void run_reserve(struct gb_device_write *w) {
    run_side(w, look_at_reserve_locked);
}

/* w: NULL when memory is exhausted. */
static void start_side(const struct gb_locator *at, bool host, const struct gb_name *stream,
                       const struct gb_buffer_check *check, struct gb_device_write *w, struct gb_buffer_call *call) {
    struct gb_turn *turn = gb_call_take_turn(&call->base);
    struct gb_error err = GB_ERROR_INIT;

    if (!w) {
        gb_turn_free(turn);
        if (check && check->free_arg)
            check->free_arg(check->arg);
        gb_no_memory(&err);
        gb_call_finish(&call->base, &err);
        return;
    }
    w->side = host ? GB_SIDE_HOST : GB_SIDE_DEVICE;
    w->params.buffer.session = at->session;
    w->params.buffer.name = at->name;
    w->params.buffer.stream = *stream;
    w->params.partial = true;
    w->params.to_device_side = !host;
    if (check)
        w->params.check = *check;
    gb_device_write_accept(at, stream, turn, w);
}

void gb_buffer_mirror_sync(struct gb_core *core, const struct gb_locator *at, bool to_host,
                           const struct gb_name *stream, const struct gb_buffer_check *check,
                           struct gb_buffer_call *call) {
    struct gb_device_write *w = gb_device_write_new(core, GB_DEVICE_WRITE_SYNC, call);

    if (w)
        w->run = run_sync;
    start_side(at, to_host, stream, check, w, call);
}

/* --- release ------------------------------------------------------------------------------------------------------ */

struct release_op {
    struct gb_buffer_op base; /* first */
    bool side[GB_SIDES];
    const struct gb_content *only; /* the memory that is released, of a side without current bytes; NULL: whatever */
    bool drops;                    /* the side may have the only current bytes */
    struct gb_content *gone;
};

static struct release_op *release_of(struct gb_transaction *transaction) {
    return gb_container_of(gb_buffer_op_of(transaction), struct release_op, base);
}

static int validate_locked(struct gb_transaction *transaction, struct gb_buffer *b, struct gb_error *err) {
    struct release_op *op = release_of(transaction);
    bool all = op->side[GB_SIDE_HOST] && op->side[GB_SIDE_DEVICE];
    enum gb_side side = op->side[GB_SIDE_HOST] ? GB_SIDE_HOST : GB_SIDE_DEVICE;
    enum gb_mirror_action action = side == GB_SIDE_HOST ? GB_MIRROR_RELEASE_HOST : GB_MIRROR_RELEASE_DEVICE;
    struct gb_mirror_move move;

    if (find_locked(transaction->session, &transaction->name, &op->base.check, &b, err) < 0)
        return -1;
    move = gb_mirror_move(b->rec.head, all ? GB_MIRROR_RELEASE_ALL : action);
    if (op->drops && move.step == GB_MIRROR_REFUSED) {
        all = true;
        move = gb_mirror_move(b->rec.head, GB_MIRROR_RELEASE_ALL);
    }
    if (gb_guard_check_unmapped_locked(b, "wait until it has ended", err) < 0 ||
        (all && b->rec.head != GB_HEAD_UNINITIALIZED && gb_guard_check_unsealed_locked(b, err) < 0))
        return -1;
    if (op->only && (b->sides[side] != op->only || gb_side_current(b->rec.head, side)))
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer was written meanwhile; try again");
    if (b->rec.state == GB_BUFFER_PARTIAL && !all)
        return gb_error_set(err, GB_ERR_BUFFER_PARTIAL,
                            "a write in place broke off here; upload the whole buffer again, or release both sides");
    if (move.step == GB_MIRROR_REFUSED)
        return gb_error_set(err, GB_ERR_BUFFER_SIDE_CURRENT,
                            "only the %s side has the buffer's bytes: sync the other first, or release both",
                            gb_head_name(b->rec.head));
    gb_buffer_copy_locked(b, &transaction->rec);
    if (all && (b->rec.head != GB_HEAD_UNINITIALIZED || b->rec.state != GB_BUFFER_READY)) {
        transaction->rec.generation++;
        transaction->rec.has_crc32c = false;
        transaction->rec.crc32c = 0;
    }
    transaction->rec.state = GB_BUFFER_READY;
    transaction->rec.head = move.next;
    transaction->rec.version++;
    transaction->rec.updated_at_us = gb_wall_us();
    return 0;
}

static void publish_locked(struct gb_transaction *transaction, struct gb_buffer *b) {
    struct release_op *op = release_of(transaction);
    int side;

    /* A state that a dead device set while the database was busy stays. */
    gb_buffer_keep_state_locked(b, &transaction->rec);
    gb_buffer_set_locked(transaction->session, b, &transaction->rec, b->content);
    for (side = 0; side < GB_SIDES; side++) {
        if (op->side[side])
            gb_content_list_add(&op->gone, gb_buffer_set_side_locked(b, side, NULL));
    }
    if (op->only && op->gone)
        op->gone->awaited = true;
    gb_guard_tell_locked(b, &transaction->rec);
    gb_buffer_rec_set(&op->base.call->buffer, &transaction->rec);
}

static void finish_sync(void *arg) {
    struct release_op *op = arg;

    gb_buffer_op_end(&op->base, &op->base.transaction.error);
}

static void end(struct gb_transaction *transaction) {
    struct release_op *op = release_of(transaction);

    gb_content_drop_list(op->gone, finish_sync, op);
}

/* NULL: the call has ended. */
static struct release_op *release_new(struct gb_core *core, const struct gb_locator *at, bool host, bool device,
                                      const struct gb_buffer_check *check, struct gb_buffer_call *call) {
    struct release_op *op = gb_buffer_op_new(sizeof(*op), core, at, check, call);

    if (!op)
        return NULL;
    op->side[GB_SIDE_HOST] = host;
    op->side[GB_SIDE_DEVICE] = device;
    op->base.transaction.validate_locked = validate_locked;
    op->base.transaction.publish_locked = publish_locked;
    op->base.transaction.end = end;
    return op;
}

void gb_buffer_mirror_release(struct gb_core *core, const struct gb_locator *at, bool host, bool device,
                              const struct gb_buffer_check *check, struct gb_buffer_call *call) {
    struct gb_turn *turn = gb_call_take_turn(&call->base);
    struct release_op *op = release_new(core, at, host, device, check, call);
    struct gb_error err = GB_ERROR_INIT;

    if (op && !host && !device) {
        gb_error_set(&err, GB_ERR_INVALID_ARGUMENT, "no side is named: there are host, device and all");
        gb_buffer_op_end(&op->base, &err);
        op = NULL;
    }
    if (op)
        op->base.transaction.depends = true;
    gb_buffer_op_start_ordered(op ? &op->base : NULL, turn);
}

void gb_buffer_mirror_drop(struct gb_core *core, const struct gb_locator *at, enum gb_side side,
                           const struct gb_buffer_check *check, struct gb_buffer_call *call) {
    struct release_op *op = release_new(core, at, side == GB_SIDE_HOST, side == GB_SIDE_DEVICE, check, call);

    if (!op)
        return;
    op->drops = true;
    gb_transaction_start(&op->base.transaction);
}

/* --- reserve ------------------------------------------------------------------------------------------------------ */

/* Memory of a side without current bytes is freed before larger memory is allocated, because both may not fit. The
 * write keeps its turn meanwhile. */
static void freed(void *arg) {
    struct gb_device_write *w = arg;
    struct gb_error err = w->freeing->base.error;

    w->freed = err.code == GB_OK ? w->stale_bytes : 0;
    gb_call_unref(&w->freeing->base);
    w->freeing = NULL;
    w->stale = NULL;
    if (err.code == GB_OK)
        w->run(w);
    else
        gb_device_write_fail(w, &err);
}

static void free_first(struct gb_device_write *w) {
    const struct gb_locator at = {w->params.buffer.session, w->params.buffer.name};
    struct gb_buffer_check check = w->params.check;
    struct gb_error err = GB_ERROR_INIT;
    struct release_op *op;

    w->freeing = gb_call_new(sizeof(*w->freeing), freed, w);
    if (!w->freeing) {
        gb_no_memory(&err);
        gb_device_write_fail(w, &err);
        return;
    }
    w->params.check = (struct gb_buffer_check){.check = NULL}; /* the release's now */
    op = release_new(w->core, &at, w->side == GB_SIDE_HOST, w->side == GB_SIDE_DEVICE, &check, w->freeing);
    if (!op)
        return;
    op->only = w->stale;
    gb_transaction_start(&op->base.transaction);
}

void gb_buffer_mirror_reserve(struct gb_core *core, const struct gb_locator *at, const struct gb_mirror_reserve *what,
                              const struct gb_buffer_check *check, struct gb_buffer_call *call) {
    struct gb_device_write *w = gb_device_write_new(core, GB_DEVICE_WRITE_RESERVE, call);

    if (w) {
        w->run = run_reserve;
        w->capacity = what->bytes;
        w->params.wait_ms = what->wait_ms;
    }
    start_side(at, what->host, &what->stream, check, w, call);
}

/* --- seal --------------------------------------------------------------------------------------------------------- */

/* A buffer whose content never changes again. */

static int seal_validate_locked(struct gb_transaction *transaction, struct gb_buffer *b, struct gb_error *err) {
    if (gb_buffer_op_check_locked(gb_buffer_op_of(transaction), b, err) < 0 ||
        (!b->rec.sealed &&
         gb_guard_check_complete_locked(
             b, "that one writes when it likes, so they are never sealed; copy them, and seal the copy", err) < 0))
        return -1;
    gb_buffer_copy_locked(b, &transaction->rec);
    if (b->rec.sealed)
        return 0;
    transaction->rec.sealed = true;
    transaction->rec.version++;
    transaction->rec.updated_at_us = gb_wall_us();
    return 0;
}

static void seal_publish_locked(struct gb_transaction *transaction, struct gb_buffer *b) {
    /* A state that a dead device set while the database was busy stays. */
    gb_buffer_keep_state_locked(b, &transaction->rec);
    gb_buffer_set_locked(transaction->session, b, &transaction->rec, b->content);
    gb_buffer_copy_locked(b, &gb_buffer_op_of(transaction)->call->buffer);
}

void gb_buffer_seal(struct gb_core *core, const struct gb_locator *at, const struct gb_buffer_check *check,
                    struct gb_buffer_call *call) {
    struct gb_buffer_op *op = gb_buffer_op_new(sizeof(*op), core, at, check, call);

    if (op) {
        op->transaction.depends = true;
        gb_buffer_op_fill_in(op, seal_validate_locked, seal_publish_locked);
    }
    gb_buffer_op_start_ordered(op, NULL);
}

/* --- last transfer ------------------------------------------------------------------------------------------------ */

/* The times of a buffer's last large transfer. */

static void read_locked(const struct gb_buffer *b, struct gb_last_transfer *ret) {
    int i;

    *ret = (struct gb_last_transfer){.bytes = 0};
    for (i = 0; i < GB_BUFFER_CONTENTS; i++) {
        const struct gb_content *c = gb_buffer_content_at(b, i);

        if (c && c->last && (ret->bytes == 0 || c->last->finished_at_us > ret->finished_at_us))
            *ret = *c->last;
    }
}

int gb_buffer_last_transfer(struct gb_core *core, const struct gb_locator *at, struct gb_last_transfer *ret,
                            struct gb_error *err) {
    struct gb_session *s = gb_session_use(core, &at->session, err);
    struct gb_buffer *b;

    if (!s)
        return -1;
    pthread_mutex_lock(&s->lock);
    b = gb_session_alive(s, err) < 0 ? NULL : gb_buffer_find_locked(s, &at->name, err);
    if (b)
        read_locked(b, ret);
    pthread_mutex_unlock(&s->lock);
    gb_session_unref(s);
    return b ? 0 : -1;
}
