#include "core/buffer/op.h"

#include <stdlib.h>

#include "core/session/session.h"

void *gb_buffer_op_new(size_t size, struct gb_core *core, const struct gb_name *session, const struct gb_name *name,
                       const struct gb_buffer_check *check, struct gb_buffer_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_op *op = calloc(1, size);
    struct gb_session *s = NULL;

    if (!op)
        gb_no_memory(&err);
    else if (gb_core_alive(core, &err) == 0)
        s = gb_session_use(core, session, &err);
    if (!s) {
        free(op);
        if (check && check->free_arg)
            check->free_arg(check->arg);
        gb_call_finish(&call->base, &err);
        return NULL;
    }
    op->session = s;
    op->call = call;
    if (check)
        op->check = *check;
    op->transaction.session = s;
    op->transaction.call = &call->base;
    op->transaction.name = *name;
    return op;
}

void gb_buffer_op_end(struct gb_buffer_op *op, const struct gb_error *error) {
    struct gb_session *session = op->session;
    struct gb_call *call = &op->call->base;
    struct gb_error copy = *error;

    gb_core_changed(session->core);
    if (op->check.free_arg)
        op->check.free_arg(op->check.arg);
    free(op);
    gb_call_finish(call, copy.code == GB_OK ? NULL : &copy);
    gb_session_unref(session);
}
