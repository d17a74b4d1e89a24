/* Device writes: stubs. */
#include "core/session.h"

static void refuse(struct gb_call *call) {
    struct gb_error err = GB_ERROR_INIT;

    gb_error_set(&err, GB_ERR_UNSUPPORTED, "this version does not do it yet");
    gb_call_finish(call, &err);
}

void gb_buffer_write(struct gb_core *core, const struct gb_write_params *params, struct gb_call *call) {
    (void)core;
    if (params->check.free_arg)
        params->check.free_arg(params->check.arg);
    refuse(call);
}

void gb_buffer_mirror_sync(struct gb_core *core, const struct gb_name *session, const struct gb_name *name,
                           bool to_host, const struct gb_name *stream, const struct gb_buffer_check *check,
                           struct gb_call *call) {
    (void)core, (void)session, (void)name, (void)to_host, (void)stream;
    if (check && check->free_arg)
        check->free_arg(check->arg);
    refuse(call);
}

void gb_buffer_mirror_release(struct gb_core *core, const struct gb_name *session, const struct gb_name *name,
                              bool host, bool device, const struct gb_buffer_check *check, struct gb_call *call) {
    (void)core, (void)session, (void)name, (void)host, (void)device;
    if (check && check->free_arg)
        check->free_arg(check->arg);
    refuse(call);
}

void gb_buffer_attributes(struct gb_core *core, const struct gb_name *session, const struct gb_name *name,
                          struct gb_call *call) {
    (void)core, (void)session, (void)name;
    refuse(call);
}
