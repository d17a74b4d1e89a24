#include <stdlib.h>

#include "core/core_internal.h"

static int not_yet(struct gb_error *err) {
    return gb_error_set(err, GB_ERR_UNSUPPORTED, "not there yet");
}

int gb_holder_new(struct gb_core *core, pid_t pid, uid_t uid, gid_t gid, struct gb_holder **ret, struct gb_error *err) {
    (void)core, (void)pid, (void)uid, (void)gid, (void)ret;
    return not_yet(err);
}

void gb_holder_end(struct gb_holder *holder) {
    (void)holder;
}

static void refuse(struct gb_call *call) {
    struct gb_error err = GB_ERROR_INIT;

    not_yet(&err);
    gb_call_finish(call, &err);
}

void gb_lease_map(struct gb_core *core, const struct gb_lease_params *params, struct gb_call *call) {
    (void)core, (void)params;
    refuse(call);
}

int gb_lease_take_fd(const struct gb_call *call) {
    (void)call;
    return -1;
}

void gb_lease_end(struct gb_core *core, int64_t id, struct gb_holder *holder, struct gb_call *call) {
    (void)core, (void)id, (void)holder;
    refuse(call);
}

const char *gb_lease_state_name(enum gb_lease_state state) {
    (void)state;
    return "present";
}

int gb_lease_list(struct gb_core *core, int64_t after_id, unsigned limit,
                  int (*visit)(void *, const struct gb_lease_view *, struct gb_error *), void *arg, bool *ret_more,
                  struct gb_error *err) {
    (void)core, (void)after_id, (void)limit, (void)visit, (void)arg, (void)err;
    *ret_more = false;
    return 0;
}

unsigned gb_lease_holders(struct gb_core *core, const struct gb_name *session, const struct gb_name *name,
                          struct gb_lease_view *ret, unsigned max) {
    (void)core, (void)session, (void)name, (void)ret, (void)max;
    return 0;
}

static void release(const struct gb_buffer_check *check) {
    if (check && check->free_arg)
        check->free_arg(check->arg);
}

void gb_buffer_seal(struct gb_core *core, const struct gb_name *session, const struct gb_name *name,
                    const struct gb_buffer_check *check, struct gb_call *call) {
    (void)core, (void)session, (void)name;
    release(check);
    refuse(call);
}

void gb_buffer_delete_when_unmapped(struct gb_core *core, const struct gb_name *session, const struct gb_name *name,
                                    const struct gb_buffer_check *check, struct gb_call *call) {
    (void)core, (void)session, (void)name;
    release(check);
    refuse(call);
}
