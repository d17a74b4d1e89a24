/* Use cases of events: stubs. */
#include "core/session.h"

static void refuse(struct gb_call *call) {
    struct gb_error err = GB_ERROR_INIT;

    gb_error_set(&err, GB_ERR_UNSUPPORTED, "this version does not do it yet");
    gb_call_finish(call, &err);
}

void gb_events_forget(struct gb_session *session) {
    (void)session;
}

void gb_event_make(struct gb_core *core, const struct gb_name *session, const struct gb_name *name,
                   struct gb_call *call) {
    (void)core, (void)session, (void)name;
    refuse(call);
}

void gb_event_remove(struct gb_core *core, const struct gb_name *session, const struct gb_name *name,
                     struct gb_call *call) {
    (void)core, (void)session, (void)name;
    refuse(call);
}

int gb_event_get(struct gb_core *core, const struct gb_name *session, const struct gb_name *name,
                 struct gb_event_view *ret, struct gb_error *err) {
    (void)core, (void)session, (void)ret;
    return gb_error_set(err, GB_ERR_EVENT_NOT_FOUND, "there is no event named \"%s\"", name->s);
}

int gb_event_list(struct gb_core *core, const struct gb_name *session, int64_t after_id, unsigned limit,
                  int (*visit)(void *, const struct gb_event_view *, struct gb_error *), void *arg, bool *ret_more,
                  struct gb_error *err) {
    (void)core, (void)session, (void)after_id, (void)limit, (void)visit, (void)arg, (void)err;
    *ret_more = false;
    return 0;
}

void gb_event_record_call(struct gb_core *core, const struct gb_name *session, const struct gb_name *event,
                          const struct gb_name *stream, struct gb_call *call) {
    (void)core, (void)session, (void)event, (void)stream;
    refuse(call);
}

void gb_event_wait_call(struct gb_core *core, const struct gb_name *session, const struct gb_name *event,
                        const struct gb_name *stream, struct gb_call *call) {
    (void)core, (void)session, (void)event, (void)stream;
    refuse(call);
}
