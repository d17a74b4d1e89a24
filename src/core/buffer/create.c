/* Buffers are made: of zeros, or with their first bytes. Handlers call this. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "core/buffer/buffer.h"
#include "core/buffer/transaction.h"
#include "core/memory/alloc.h"
#include "core/public/buffer.h"
#include "core/session/quota.h"
#include "core/session/session.h"
#include "core/util/lane.h"

struct create {
    struct gb_buffer_op base; /* first */
    struct gb_buffer_params params;
    unsigned wait_ms; /* for memory */
    struct gb_alloc alloc;
    struct gb_core_stream *stream; /* used */
    struct gb_core_pool *pool;     /* a reference */
    struct gb_content *content;    /* until the buffer has it */
    bool counted;                  /* a place in the quota is reserved */
    char *head;                    /* params.head, owned; NULL: all zeros */
    struct gb_ev *end;             /* of its copy */
};

static struct create *create_of(struct gb_transaction *transaction) {
    return gb_container_of(gb_buffer_op_of(transaction), struct create, base);
}

/* error may be part of op; GB_OK in it is success. */
static void finish(struct create *op, const struct gb_error *error) {
    if (op->end)
        gb_event_pool_give(&op->pool->device->events, op->end);
    gb_core_stream_unuse(op->stream);
    gb_core_pool_unref(op->pool);
    gb_text_unref(op->params.labels);
    free(op->head);
    gb_buffer_op_end(&op->base, error);
}

/* --- the record --------------------------------------------------------------------------------------------------- */

static int decide_locked(struct gb_transaction *transaction, struct gb_buffer *b, struct gb_error *err) {
    struct create *op = create_of(transaction);
    struct gb_buffer_rec *rec = &transaction->rec;
    const struct gb_buffer_params *p = &op->params;

    const struct gb_session *s = op->base.base.session;

    (void)b;
    if (gb_kind_check_source(p->kind, op->pool, err) < 0)
        return -1;
    gb_buffer_rec_done(rec);
    *rec = (struct gb_buffer_rec){.name = p->name,
                                  .bytes = p->bytes,
                                  .dtype = p->dtype,
                                  .shape = p->shape,
                                  .kind = p->kind,
                                  .device = op->pool->device->index,
                                  .mirrored = p->mirrored,
                                  .durability = p->has_durability ? p->durability : s->rec.durability,
                                  .spill = p->has_spill ? p->spill : s->rec.spill,
                                  .resident = p->resident,
                                  .stream = op->stream->name,
                                  .state = GB_BUFFER_READY,
                                  .generation = 1,
                                  .version = 1,
                                  .labels = gb_text_ref(p->labels),
                                  .created_at_us = gb_wall_us()};
    rec->updated_at_us = rec->created_at_us;
    if (p->kind == GB_KIND_DEVICE)
        rec->pool = op->pool->rec.name;
    if (p->lost)
        rec->state = GB_BUFFER_LOST;
    rec->layout = p->dtype == GB_DTYPE_TENSORS ? rec->generation : 0;
    transaction->content = op->content;
    return gb_disks_check_durability(s->core, rec->durability, err);
}

static void apply_locked(struct gb_transaction *transaction, struct gb_buffer *b) {
    struct create *op = create_of(transaction);

    gb_buffer_set_locked(op->base.base.session, b, &transaction->rec, op->content);
    op->content = NULL;
    op->counted = false;
    gb_buffer_rec_set(&op->base.call->buffer, &transaction->rec);
    op->base.call->created = true;
}

static void content_gone(void *arg) {
    struct create *op = arg;

    finish(op, &op->base.transaction.error);
}

static void end(struct gb_transaction *transaction) {
    struct create *op = create_of(transaction);

    if (op->counted) {
        pthread_mutex_lock(&op->base.base.session->lock);
        gb_quota_give_locked(op->base.base.session, 0, 1);
        pthread_mutex_unlock(&op->base.base.session->lock);
    }
    gb_content_drop(op->content, content_gone, op);
}

/* Runs on the lane. Most buffers are written before they are read. Memory that the CPU cannot access is therefore
 * zeroed only when its bytes are needed. */
static int zero(struct gb_content *c, struct gb_error *err) {
    if (c->bytes == 0)
        return 0;
    atomic_store(&c->blank, true);
    return c->kind == GB_KIND_DEVICE && !c->device->rec.cpu_access ? 0 : gb_content_materialize(c, err);
}

/* --- the first bytes ---------------------------------------------------------------------------------------------- */

static void proceed(struct create *op, const struct gb_error *error) {
    if (error->code == GB_OK)
        gb_transaction_proceed(&op->base.transaction);
    else
        gb_transaction_abandon(&op->base.transaction, error);
}

static void head_written(void *arg, const struct gb_error *error) {
    struct create *op = arg;
    struct gb_error err = GB_ERROR_INIT;

    gb_core_report_error(op->content->device->core, error);
    if (error)
        err = *error;
    proceed(op, &err);
}

/* Queues the first bytes behind the zeros of the others, and watches for their end. Runs on the lane. */
static int write_head(struct create *op, struct gb_stream *stream, struct gb_error *err) {
    struct gb_content *c = op->content;
    struct gb_backend *be = c->device->core->backend;
    struct gb_location from = {GB_KIND_PAGEABLE, c->device->index, op->head};
    struct gb_location to = gb_content_location(c, 0);
    enum gb_copy_way way;

    op->end = gb_event_pool_take(&c->device->events, err);
    if (!op->end || gb_content_materialize(c, err) < 0 ||
        (c->ready && gb_stream_wait(be, stream, c->ready->event, err) < 0))
        return -1;
    if (gb_mem_move(be, &to, &from, op->params.head_bytes, stream, &way, err) == 0 &&
        gb_event_record(be, op->end->event, stream, err) == 0 &&
        gb_poll_watch(be, op->end->event, head_written, op, err) == 0)
        return 0;
    gb_stream_sync(be, stream, NULL); /* a part may be queued, and reads from head */
    return -1;
}

static void allocated(struct gb_alloc *alloc, const struct gb_error *error) {
    struct create *op = gb_container_of(alloc, struct create, alloc);
    struct gb_error err = GB_ERROR_INIT;
    struct gb_stream *stream;

    if (gb_call_withdraw(op->base.base.call, &err) == 0 && error)
        err = *error;
    if (err.code == GB_OK)
        zero(op->content, &err);
    if (err.code == GB_OK && op->head &&
        gb_core_stream_part_make(op->stream, op->content->device->index, &stream, &err) == 0 &&
        write_head(op, stream, &err) == 0)
        return;
    proceed(op, &err);
}

/* --- the call ----------------------------------------------------------------------------------------------------- */

/* Cancels a creation that waits for memory. */
static bool cancel(void *arg, bool act) {
    struct create *op = arg;

    if (act)
        atomic_store(&op->alloc.cancelled, true);
    return true;
}

/* Everything that the call will need, or nothing. */
static int reserve_locked(struct create *op, struct gb_error *err) {
    struct gb_session *s = op->base.base.session;
    struct gb_core_pool *pool;

    if (gb_session_changeable_locked(s, err) < 0 ||
        gb_core_stream_use_locked(s, &op->params.stream, &op->stream, err) < 0)
        return -1;
    pool = gb_kind_pool_locked(s, &op->params, err);
    if (!pool || gb_kind_check_source(op->params.kind, pool, err) < 0 ||
        gb_core_offers(pool->device, op->params.kind, err) < 0 ||
        (op->params.mirrored && gb_kind_check_mirrored(pool->device, op->params.kind, err) < 0) ||
        gb_transaction_reserve_locked(&op->base.transaction, err) < 0)
        return -1;
    op->pool = gb_core_pool_ref(pool);
    if (gb_quota_take_locked(s, 0, 1, err) == 0) {
        if (op->params.mirrored || op->params.lost ||
            gb_content_new_locked(s, pool, op->params.kind, op->stream, &op->params.name, op->params.bytes,
                                  &op->content, err) == 0) {
            op->counted = true;
            return 0;
        }
        gb_error_append(err, GB_ERR_PINNED_LIMIT, GB_QUOTA_OTHER_KIND);
        gb_quota_give_locked(s, 0, 1);
    }
    return -1;
}

static int start(struct create *op, struct gb_error *err) {
    struct gb_session *s = op->base.base.session;
    int r;

    op->params.kind = gb_kind_choose(s->core, &op->params);
    if (gb_kind_check_pool(op->params.kind, &op->params.pool, err) < 0)
        return -1;
    pthread_mutex_lock(&s->lock);
    r = reserve_locked(op, err);
    pthread_mutex_unlock(&s->lock);
    if (r < 0)
        return -1;
    if (!op->content) { /* one without bytes, or a mirrored one, whose sides come when they are needed */
        gb_transaction_proceed(&op->base.transaction);
        return 0;
    }
    op->alloc.content = op->content;
    op->alloc.done = allocated;
    op->alloc.anywhere = !op->head;
    gb_call_offer(op->base.base.call, NULL, cancel, op);
    gb_alloc_start(&op->alloc, op->wait_ms);
    return 0;
}

static void run(struct create *op) {
    struct gb_error err = GB_ERROR_INIT;

    if (start(op, &err) == 0)
        return;
    if (op->base.transaction.buffer)
        gb_transaction_abandon(&op->base.transaction, &err);
    else
        finish(op, &err);
}

static void turned(struct gb_after *after) {
    run(after->owner);
}

/* What had the name is gone, or the creation is refused. */
static bool waits(struct create *op) {
    struct gb_session *s = op->base.base.session;
    struct gb_after *after = &op->base.turn->after;
    bool waits;

    pthread_mutex_lock(&s->lock);
    after->until = GB_TURN_ENDED;
    after->go = turned;
    after->owner = op;
    waits = gb_after_wait_locked(after);
    pthread_mutex_unlock(&s->lock);
    return waits;
}

void gb_buffer_create(struct gb_core *core, const struct gb_buffer_params *params, unsigned wait_ms,
                      struct gb_buffer_call *call) {
    struct gb_turn *turn = gb_call_take_turn(&call->base);
    struct create *op =
        gb_buffer_op_new(sizeof(*op), core, &(struct gb_locator){params->session, params->name}, NULL, call);
    struct gb_error err = GB_ERROR_INIT;

    if (!op) {
        gb_turn_free(turn);
        return;
    }
    op->params = *params;
    op->wait_ms = wait_ms;
    gb_text_ref(op->params.labels);
    if (params->head_bytes > 0 && !(op->head = malloc(params->head_bytes))) {
        gb_turn_free(turn);
        gb_no_memory(&err);
        finish(op, &err);
        return;
    }
    if (op->head)
        memcpy(op->head, params->head, params->head_bytes);
    op->base.transaction.validate_locked = decide_locked;
    op->base.transaction.publish_locked = apply_locked;
    op->base.transaction.end = end;
    op->base.turn = gb_turn_of_call(op->base.base.session, turn, &params->name, &params->stream, &err);
    op->base.transaction.turn = op->base.turn;
    if (!op->base.turn)
        finish(op, &err);
    else if (!waits(op))
        run(op);
}
