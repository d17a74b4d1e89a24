/* Mirrored buffers: bringing a side up to date, giving one memory, giving one up. */
#include <stdlib.h>

#include "base/clock.h"
#include "core/buffer/guard.h"
#include "core/buffer/op.h"
#include "core/upload/device_write_internal.h"
#include "core/util/mirror.h"

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

/* --- sync and reserve --------------------------------------------------------------------------------------------- */

/* A write of one side, from the call to its start. */
struct side_write {
    struct gb_device_write *write;
    struct gb_upload_params params;
    enum gb_side side;
    bool needed; /* else the side is as it should be */
};

static int find_whole_locked(struct gb_session *s, const struct side_write *sw, struct gb_buffer **ret,
                             struct gb_error *err) {
    struct gb_buffer *b;

    if (find_locked(s, &sw->params.buffer.name, &sw->params.check, &b, err) < 0)
        return -1;
    if (b->rec.state == GB_BUFFER_PARTIAL)
        return gb_error_set(err, GB_ERR_BUFFER_PARTIAL,
                            "a write in place broke off here; upload the whole buffer again");
    gb_buffer_copy_locked(b, &sw->write->call->buffer);
    *ret = b;
    return 0;
}

/* What is to be copied or zeroed, if anything. */
static int look_at_sync_locked(struct gb_session *s, struct side_write *sw, struct gb_error *err) {
    struct gb_device_write *w = sw->write;
    struct gb_mirror_move move;
    struct gb_buffer *b;

    if (find_whole_locked(s, sw, &b, err) < 0)
        return -1;
    move = gb_mirror_move(b->rec.head, sw->side == GB_SIDE_HOST ? GB_MIRROR_SYNC_HOST : GB_MIRROR_SYNC_DEVICE);
    sw->needed = move.step != GB_MIRROR_GO;
    if (!sw->needed)
        return 0;
    if (gb_guard_check_unmapped_locked(b, "wait until it has ended", err) < 0)
        return -1;
    gb_buffer_copy_locked(b, &w->source_rec);
    w->bytes = b->rec.bytes;
    if (move.step == GB_MIRROR_COPY)
        w->source = gb_content_ref(b->sides[gb_other_side(sw->side)]);
    return 0;
}

/* What is to be kept, if the side must grow. */
static int look_at_reserve_locked(struct gb_session *s, struct side_write *sw, struct gb_error *err) {
    struct gb_device_write *w = sw->write;
    struct gb_content *c;
    struct gb_buffer *b;

    if (find_whole_locked(s, sw, &b, err) < 0 || gb_guard_check_unsealed_locked(b, err) < 0)
        return -1;
    c = b->sides[sw->side];
    sw->needed = (c ? c->bytes : 0) < w->capacity;
    if (!sw->needed)
        return 0;
    if (gb_guard_check_unmapped_locked(b, "wait until it has ended", err) < 0)
        return -1;
    if (c && c->owner)
        return gb_error_set(
            err, GB_ERR_ADOPTED,
            "the %s side of \"%s\" is memory of another process, %llu bytes, and does not grow: release "
            "that side first",
            sw->side == GB_SIDE_HOST ? "host" : "device", b->name, (unsigned long long)c->bytes);
    gb_buffer_copy_locked(b, &w->source_rec);
    if (!c || !gb_side_current(b->rec.head, sw->side))
        return 0;
    w->bytes = b->rec.bytes;
    w->source = gb_content_ref(c);
    return 0;
}

typedef int look_fn(struct gb_session *s, struct side_write *sw, struct gb_error *err);

/* sw->write is NULL when memory is exhausted. */
static void start(struct gb_core *core, const struct gb_locator *at, const struct gb_name *stream,
                  const struct gb_buffer_check *check, struct side_write *sw, look_fn *look,
                  struct gb_buffer_call *call) {
    struct gb_upload_params *p = &sw->params;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session *s = NULL;
    int r = -1;

    p->buffer.session = at->session;
    p->buffer.name = at->name;
    p->buffer.stream = *stream;
    p->partial = true;
    p->to_device_side = sw->side == GB_SIDE_DEVICE;
    if (check)
        p->check = *check;
    if (!sw->write)
        gb_no_memory(&err);
    else
        s = gb_op_session(core, &at->session, &err);
    if (s) {
        pthread_mutex_lock(&s->lock);
        r = look(s, sw, &err);
        pthread_mutex_unlock(&s->lock);
    }
    p->session = s;
    if (r == 0 && sw->needed) {
        gb_device_write_start(core, p, sw->write);
    } else {
        if (r == 0 && sw->write->what == GB_DEVICE_WRITE_SYNC)
            GB_COUNT(core, s, mirror_copies_avoided, 1);
        gb_device_write_fail(&p->check, sw->write, call, &err);
    }
    gb_session_unref(s);
}

void gb_buffer_mirror_sync(struct gb_core *core, const struct gb_locator *at, bool to_host,
                           const struct gb_name *stream, const struct gb_buffer_check *check,
                           struct gb_buffer_call *call) {
    struct side_write sw = {.write = gb_device_write_new(GB_DEVICE_WRITE_SYNC, call),
                            .side = to_host ? GB_SIDE_HOST : GB_SIDE_DEVICE};

    start(core, at, stream, check, &sw, look_at_sync_locked, call);
}

void gb_buffer_mirror_reserve(struct gb_core *core, const struct gb_locator *at, const struct gb_mirror_reserve *what,
                              const struct gb_buffer_check *check, struct gb_buffer_call *call) {
    struct side_write sw = {.write = gb_device_write_new(GB_DEVICE_WRITE_RESERVE, call),
                            .params.wait_ms = what->wait_ms,
                            .side = what->host ? GB_SIDE_HOST : GB_SIDE_DEVICE};

    if (sw.write)
        sw.write->capacity = what->bytes;
    start(core, at, &what->stream, check, &sw, look_at_reserve_locked, call);
}

/* --- release ------------------------------------------------------------------------------------------------------ */

struct release_op {
    struct gb_buffer_op base; /* first */
    bool side[GB_SIDES];
    struct gb_content *gone;
};

static struct release_op *release_of(struct gb_transaction *transaction) {
    return gb_container_of(gb_buffer_op_of(transaction), struct release_op, base);
}

static int validate_locked(struct gb_transaction *transaction, struct gb_buffer *b, struct gb_error *err) {
    struct release_op *op = release_of(transaction);
    bool all = op->side[GB_SIDE_HOST] && op->side[GB_SIDE_DEVICE];
    enum gb_mirror_action action = op->side[GB_SIDE_HOST] ? GB_MIRROR_RELEASE_HOST : GB_MIRROR_RELEASE_DEVICE;
    struct gb_mirror_move move;

    if (find_locked(transaction->session, &transaction->name, &op->base.check, &b, err) < 0 ||
        gb_guard_check_unmapped_locked(b, "wait until it has ended", err) < 0 ||
        (all && b->rec.head != GB_HEAD_UNINITIALIZED && gb_guard_check_unsealed_locked(b, err) < 0))
        return -1;
    if (b->rec.state == GB_BUFFER_PARTIAL && !all)
        return gb_error_set(err, GB_ERR_BUFFER_PARTIAL,
                            "a write in place broke off here; upload the whole buffer again, or release both sides");
    move = gb_mirror_move(b->rec.head, all ? GB_MIRROR_RELEASE_ALL : action);
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

    /* What a dead device took while the database was busy stays taken. */
    gb_buffer_keep_state_locked(b, &transaction->rec);
    gb_buffer_set_locked(transaction->session, b, &transaction->rec, b->content);
    for (side = 0; side < GB_SIDES; side++) {
        if (op->side[side])
            gb_content_list_add(&op->gone, gb_buffer_set_side_locked(b, side, NULL));
    }
    gb_guard_tell_locked(b, &transaction->rec);
    gb_buffer_rec_set(&op->base.call->buffer, &transaction->rec);
}

static void finish(void *arg) {
    struct release_op *op = arg;

    gb_buffer_op_end(&op->base, &op->base.transaction.error);
}

static void end(struct gb_transaction *transaction) {
    struct release_op *op = release_of(transaction);

    gb_content_drop_list(op->gone, finish, op);
}

void gb_buffer_mirror_release(struct gb_core *core, const struct gb_locator *at, bool host, bool device,
                              const struct gb_buffer_check *check, struct gb_buffer_call *call) {
    struct release_op *op = gb_buffer_op_new(sizeof(*op), core, at, check, call);
    struct gb_error err = GB_ERROR_INIT;

    if (!op)
        return;
    if (!host && !device) {
        gb_error_set(&err, GB_ERR_INVALID_ARGUMENT, "no side is named: there are host, device and all");
        gb_buffer_op_end(&op->base, &err);
        return;
    }
    op->side[GB_SIDE_HOST] = host;
    op->side[GB_SIDE_DEVICE] = device;
    op->base.transaction.validate_locked = validate_locked;
    op->base.transaction.publish_locked = publish_locked;
    op->base.transaction.end = end;
    gb_transaction_start(&op->base.transaction);
}
