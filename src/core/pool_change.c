/* Making, changing and removing pools: stubs. */
#include "core/session.h"

static void refuse(struct gb_call *call) {
    struct gb_error err = GB_ERROR_INIT;

    gb_error_set(&err, GB_ERR_UNSUPPORTED, "this version does not do it yet");
    gb_call_finish(call, &err);
}

void gb_pool_make(struct gb_core *core, const struct gb_pool_params *params, struct gb_call *call) {
    (void)core, (void)params;
    refuse(call);
}

void gb_pool_patch(struct gb_core *core, const struct gb_pool_params *params, const struct gb_pool_check *check,
                   struct gb_call *call) {
    (void)core, (void)params;
    if (check && check->free_arg)
        check->free_arg(check->arg);
    refuse(call);
}

void gb_pool_remove(struct gb_core *core, const struct gb_name *session, const struct gb_name *pool, bool force,
                    struct gb_call *call) {
    (void)core, (void)session, (void)pool, (void)force;
    refuse(call);
}
