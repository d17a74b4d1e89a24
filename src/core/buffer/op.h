/* The common part of calls that change one buffer: an operation of the session, a transaction, the caller's check. */
#ifndef GB_CORE_BUFFER_OP_H
#define GB_CORE_BUFFER_OP_H

#include "base/container.h"
#include "core/buffer/transaction.h"
#include "core/session/op.h"

struct gb_buffer_op {
    struct gb_op base; /* first */
    struct gb_buffer_call *call;
    struct gb_buffer_check check;
    struct gb_transaction transaction;
};

/* Makes an operation of `size` bytes that begins with a gb_buffer_op. Its transaction is filled in except for the
 * functions. check may be NULL; its argument is released when the operation ends. Returns NULL if that failed; the call
 * has then ended with the error, as with gb_op_new. */
void *gb_buffer_op_new(size_t size, struct gb_core *core, const struct gb_locator *at,
                       const struct gb_buffer_check *check, struct gb_buffer_call *call);

/* The same in a session that is held already: takes over the reference. */
void *gb_buffer_op_new_in(size_t size, struct gb_session *session, const struct gb_name *name,
                          const struct gb_buffer_check *check, struct gb_buffer_call *call);

/* Starts an operation that has nothing of its own but these two functions of its transaction. NULL is accepted. */
void gb_buffer_op_start(struct gb_buffer_op *op, gb_validate_fn *validate_locked, gb_publish_fn *publish_locked);

/* Makes and starts an operation that has nothing of its own but these two functions of its transaction. */
void gb_buffer_op_run(struct gb_core *core, const struct gb_locator *at, const struct gb_buffer_check *check,
                      struct gb_buffer_call *call, gb_validate_fn *validate_locked, gb_publish_fn *publish_locked);

/* As gb_op_end. */
void gb_buffer_op_end(struct gb_buffer_op *op, const struct gb_error *error);

/* Evaluates the caller's check. buffer may be NULL. The session's lock is held. Returns 0 or -1. Errors:
 * BUFFER_NOT_FOUND for NULL; the check's. */
int gb_buffer_op_check_locked(const struct gb_buffer_op *op, const struct gb_buffer *buffer, struct gb_error *err);

static inline struct gb_buffer_op *gb_buffer_op_of(struct gb_transaction *transaction) {
    return gb_container_of(transaction, struct gb_buffer_op, transaction);
}

#endif
