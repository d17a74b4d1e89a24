/* What calls that change one buffer share: the session in use, who waits, the caller's check. */
#ifndef GB_CORE_BUFFER_OP_H
#define GB_CORE_BUFFER_OP_H

#include "core/buffer/transaction.h"

struct gb_buffer_op {
    struct gb_transaction transaction; /* first */
    struct gb_session *session;
    struct gb_buffer_call *call;
    struct gb_buffer_check check;
};

/* Zeroed, `size` bytes that begin with a gb_buffer_op. NULL: the call has ended already, and the check is released. */
void *gb_buffer_op_new(size_t size, struct gb_core *core, const struct gb_name *session, const struct gb_name *name,
                       const struct gb_buffer_check *check, struct gb_buffer_call *call);

/* Frees it and finishes the call; error may be part of op, GB_OK in it is success. */
void gb_buffer_op_end(struct gb_buffer_op *op, const struct gb_error *error);

#endif
