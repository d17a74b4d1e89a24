/* Operations on one buffer: what the calls that change one have in common. Each is a transaction, most of them in the
 * order of a stream. The files of this folder, of durable and of share call this. */
#include "core/buffer/transaction.h"

#include "core/buffer/buffer.h"
#include "core/runtime/runtime.h"

int gb_transaction_reserve_locked(struct gb_transaction *transaction, struct gb_error *err) {
    struct gb_session *session = transaction->session;
    struct gb_buffer *b = gb_buffer_place_locked(session, &transaction->name);

    if (!b)
        return gb_no_memory(err);
    if (b->live && !b->deleting)
        return gb_error_set(err, GB_ERR_BUFFER_EXISTS, "session \"%s\" has a buffer named \"%s\"",
                            gb_session_client_name(session)->s, transaction->name.s);
    if (b->fifo.taken)
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the name \"%s\" is just being made or deleted; try again",
                            transaction->name.s);
    transaction->buffer = b;
    gb_fifo_lock_acquire(&b->fifo, &transaction->waiter);
    return 0;
}

/* Takes over the reference to the session; NULL: err says why. */
static void *make(size_t size, struct gb_session *session, const struct gb_name *name,
                  const struct gb_buffer_check *check, struct gb_buffer_call *call, struct gb_error *err) {
    struct gb_buffer_op *op =
        gb_op_new(size, session, &call->base, check ? check->free_arg : NULL, check ? check->arg : NULL, err);

    if (!op)
        return NULL;
    op->call = call;
    call->base.free_result = gb_buffer_call_done;
    if (check)
        op->check = *check;
    op->transaction.session = op->base.session;
    op->transaction.call = &call->base;
    op->transaction.name = *name;
    return op;
}

void *gb_buffer_op_new(size_t size, struct gb_core *core, const struct gb_locator *at,
                       const struct gb_buffer_check *check, struct gb_buffer_call *call) {
    struct gb_error err = GB_ERROR_INIT;

    return make(size, gb_op_session(core, &at->session, &err), &at->name, check, call, &err);
}

void *gb_buffer_op_new_in(size_t size, struct gb_session *session, const struct gb_name *name,
                          const struct gb_buffer_check *check, struct gb_buffer_call *call) {
    struct gb_error err = GB_ERROR_INIT;

    gb_session_touch(session);
    return make(size, session, name, check, call, &err);
}

void gb_buffer_op_end(struct gb_buffer_op *op, const struct gb_error *error) {
    gb_core_changed(op->base.session->core);
    gb_turn_end(op->turn, error && error->code != GB_OK ? error : NULL);
    gb_turn_free(op->turn);
    gb_transaction_done(&op->transaction);
    gb_op_end(&op->base, error);
}

int gb_buffer_op_check_locked(const struct gb_buffer_op *op, const struct gb_buffer *b, struct gb_error *err) {
    if (!b)
        return gb_error_set(err, GB_ERR_BUFFER_NOT_FOUND, "session \"%s\" has no buffer named \"%s\"",
                            gb_session_client_name(op->base.session)->s, op->transaction.name.s);
    return gb_buffer_check_locked(&op->check, b, err);
}

static void end(struct gb_transaction *transaction) {
    gb_buffer_op_end(gb_buffer_op_of(transaction), &transaction->error);
}

void gb_buffer_op_fill_in(struct gb_buffer_op *op, gb_validate_fn *validate_locked, gb_publish_fn *publish_locked) {
    op->transaction.validate_locked = validate_locked;
    op->transaction.publish_locked = publish_locked;
    op->transaction.end = end;
}

void gb_buffer_op_start_ordered(struct gb_buffer_op *op, struct gb_turn *turn) {
    struct gb_error err = GB_ERROR_INIT;

    if (!op) {
        gb_turn_free(turn);
        return;
    }
    op->turn = gb_turn_of_call(op->base.session, turn, &op->transaction.name, NULL, &op->call->stream, &err);
    op->transaction.turn = op->turn;
    if (op->turn) {
        gb_transaction_start(&op->transaction);
        return;
    }
    op->transaction.error = err;
    op->transaction.end(&op->transaction);
}
