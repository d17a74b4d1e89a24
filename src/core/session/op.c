#include "core/session/op.h"

#include <stdlib.h>

struct gb_session *gb_op_session(struct gb_core *core, const struct gb_name *name, struct gb_error *err) {
    return gb_core_alive(core, err) < 0 ? NULL : gb_session_use(core, name, err);
}

void *gb_op_new(size_t size, struct gb_session *session, struct gb_call *call, void (*free_arg)(void *arg), void *arg,
                struct gb_error *err) {
    struct gb_op *op = session ? calloc(1, size) : NULL;

    if (op) {
        *op = (struct gb_op){.session = session, .call = call, .free_arg = free_arg, .arg = arg};
        return op;
    }
    if (session)
        gb_no_memory(err);
    if (free_arg)
        free_arg(arg);
    gb_session_unref(session);
    gb_call_finish(call, err);
    return NULL;
}

void gb_op_end(struct gb_op *op, const struct gb_error *error) {
    struct gb_session *session = op->session;

    gb_core_report_error(session->core, error);
    if (op->free_arg)
        op->free_arg(op->arg);
    gb_call_finish(op->call, error && error->code != GB_OK ? error : NULL);
    free(op);
    gb_session_unref(session);
}
