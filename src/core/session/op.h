/* One call's work in a session: what all operations share, from the look at the session to the end of the call.
 *
 *     struct my_op *op = gb_op_new(sizeof(*op), gb_op_session(core, name, &err), call, NULL, NULL, &err);
 *
 *     if (!op)
 *         return;
 *     ...
 *     gb_op_end(&op->base, error);
 */
#ifndef GB_CORE_SESSION_OP_H
#define GB_CORE_SESSION_OP_H

#include "core/session/session.h"

struct gb_op {
    struct gb_session *session; /* a reference */
    struct gb_call *call;
    void (*free_arg)(void *arg); /* NULL: none */
    void *arg;                   /* of the caller's check */
};

/* gb_session_use, unless the device is dead: for operations that ask it. NULL: err says why. */
struct gb_session *gb_op_session(struct gb_core *core, const struct gb_name *name, struct gb_error *err);

/* An operation of `size` bytes, zeroed but for the gb_op that it begins with. Takes the reference to session over;
 * NULL: the call ends with *err. free_arg(arg) runs once, when the operation ends; free_arg may be NULL. Without locks.
 * Returns NULL when the call has ended; everything is released then. */
void *gb_op_new(size_t size, struct gb_session *session, struct gb_call *call, void (*free_arg)(void *arg), void *arg,
                struct gb_error *err);

/* Frees the operation, finishes its call, drops the session. error may be part of the operation; NULL or GB_OK:
 * success. Tells the housekeeper when the error is that the device is dead. Without locks. */
void gb_op_end(struct gb_op *op, const struct gb_error *error);

#endif
