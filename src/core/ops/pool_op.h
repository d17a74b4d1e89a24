/* One call that makes, changes or removes a pool, for the files that make it up: pool_op.c, pool_make.c,
 * pool_change.c. */
#ifndef GB_CORE_OPS_POOL_OP_H
#define GB_CORE_OPS_POOL_OP_H

#include "base/container.h"
#include "core/buffer/buffer.h"
#include "core/session/op.h"

enum gb_pool_what { GB_POOL_MAKES, GB_POOL_PATCHES, GB_POOL_REMOVES };

struct gb_pool_op {
    struct gb_op base; /* first */
    struct gb_fifo_waiter waiter;
    struct gb_task task;
    enum gb_pool_what what;
    struct gb_pool_call *call;
    struct gb_core_pool *pool; /* a reference */
    struct gb_pool_params params;
    struct gb_pool_check check;
    bool force;
    struct gb_pool_rec rec;
    struct gb_error error;
    struct gb_core_device *device; /* remove: whose lane it goes through, */
    int rounds;                    /* behind the frees */
};

static inline struct gb_pool_op *gb_pool_op_of(struct gb_task *task) {
    return gb_container_of(task, struct gb_pool_op, task);
}

/* NULL: the call has ended. Takes the check's argument. */
struct gb_pool_op *gb_pool_op_new(struct gb_core *core, const struct gb_name *session, enum gb_pool_what what,
                                  const struct gb_pool_check *check, struct gb_pool_call *call);
void gb_pool_op_end(struct gb_pool_op *op);

/* Gives the turn on: the operation that has it now, NULL where none waits. The session's lock is held. */
struct gb_pool_op *gb_pool_op_release_locked(struct gb_pool_op *op);
/* Gives the turn on, ends this one. */
void gb_pool_op_leave(struct gb_pool_op *op);
void gb_pool_op_run(struct gb_pool_op *op); /* it has the turn; NULL is accepted */

/* What the database said; the session may be gone by now. */
void gb_pool_op_note_result_locked(struct gb_pool_op *op, const struct gb_error *error);

/* Out of the session, if it is still there: the session's reference comes back. */
struct gb_core_pool *gb_pool_op_forget_locked(struct gb_session *session, struct gb_core_pool *pool);

/* pool_change.c */
void gb_pool_patch_own(struct gb_pool_op *op);
void gb_pool_patch_on_lane(struct gb_task *task);
void gb_pool_removed(void *op, const struct gb_error *error);

#endif
