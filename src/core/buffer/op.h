/* What calls that change one buffer share: an operation of the session, a transaction, the caller's check. */
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

/* An operation of `size` bytes that begins with a gb_buffer_op, its transaction described but for the functions. check
 * may be NULL; its argument is released when the operation ends. As gb_op_new of gb_op_session: NULL when the call has
 * ended. */
void *gb_buffer_op_new(size_t size, struct gb_core *core, const struct gb_name *session, const struct gb_name *name,
                       const struct gb_buffer_check *check, struct gb_buffer_call *call);

/* As gb_op_end. */
void gb_buffer_op_end(struct gb_buffer_op *op, const struct gb_error *error);

/* The buffer is there, and the caller's check has nothing against it. The session's lock is held. buffer may be NULL:
 * BUFFER_NOT_FOUND. */
int gb_buffer_op_check_locked(const struct gb_buffer_op *op, const struct gb_buffer *buffer, struct gb_error *err);

static inline struct gb_buffer_op *gb_buffer_op_of(struct gb_transaction *transaction) {
    return gb_container_of(transaction, struct gb_buffer_op, transaction);
}

#endif
