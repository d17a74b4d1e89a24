/* Streams, events and waiting for work. Comes with core.h.
 *
 * A stream is an order of work by name inside a session, with a part on each device, made when first needed there. Work
 * queued through a name is in order on each device; across devices and streams events order it. The stream "default" is
 * always there. Streams and events are not persisted. */
#ifndef GB_CORE_PUBLIC_STREAM_H
#define GB_CORE_PUBLIC_STREAM_H

#include "base/error.h"
#include "core/public/call.h"
#include "model/model.h"

struct gb_core;

#define GB_STREAMS_MAX 64 /* of one session, besides "default", unless configured; those that drain count too */
#define GB_EVENTS_MAX 256

struct gb_stream_view {
    int64_t id; /* 0: "default" */
    struct gb_name name;
    int64_t created_at_us;
    bool busy;        /* work is queued on it */
    unsigned devices; /* on which it has a part */
};

struct gb_stream_call {
    struct gb_call base;
    struct gb_stream_view stream;
};

/* STREAM_EXISTS, LIMIT_REACHED. Result: call->stream. */
void gb_stream_make(struct gb_core *core, const struct gb_name *session, const struct gb_name *name,
                    struct gb_stream_call *call);

/* Out of sight at once, which is when the call ends; what is queued finishes, then the parts are destroyed.
 * STREAM_PROTECTED for "default", STREAM_NOT_FOUND. */
void gb_stream_remove(struct gb_core *core, const struct gb_name *session, const struct gb_name *name,
                      struct gb_call *call);

/* [now] "" is "default". */
int gb_stream_get(struct gb_core *core, const struct gb_name *session, const struct gb_name *name,
                  struct gb_stream_view *ret, struct gb_error *err);

/* [now] "default" first when after_id is 0; then at most limit with id > after_id. */
int gb_stream_list(struct gb_core *core, const struct gb_name *session, int64_t after_id, unsigned limit,
                   int (*visit)(void *, const struct gb_stream_view *, struct gb_error *), void *arg, bool *ret_more,
                   struct gb_error *err);

/* Done when all work queued so far on the stream, on any stream of the session, on the device by anyone, is done. They
 * wait as long as that takes and hold nobody up; who wants to wait less stops listening. */
void gb_stream_sync_call(struct gb_core *core, const struct gb_name *session, const struct gb_name *stream,
                         struct gb_call *call);
void gb_session_sync_call(struct gb_core *core, const struct gb_name *session, struct gb_call *call);
void gb_device_sync_call(struct gb_core *core, int device, struct gb_call *call);

struct gb_event_view {
    int64_t id;
    struct gb_name name;
    int64_t created_at_us;
    bool recorded;
    bool done;             /* what the last record covers is done; true when there is none */
    struct gb_name stream; /* of the last record */
};

struct gb_event_call {
    struct gb_call base;
    bool created; /* the call made the event */
    struct gb_event_view event;
};

/* EVENT_EXISTS, LIMIT_REACHED. Result: call->event. */
void gb_event_make(struct gb_core *core, const struct gb_name *session, const struct gb_name *name,
                   struct gb_event_call *call);

/* Who waits for its last record goes on waiting. EVENT_NOT_FOUND. */
void gb_event_remove(struct gb_core *core, const struct gb_name *session, const struct gb_name *name,
                     struct gb_call *call);

/* [now] */
int gb_event_get(struct gb_core *core, const struct gb_name *session, const struct gb_name *name,
                 struct gb_event_view *ret, struct gb_error *err);
int gb_event_list(struct gb_core *core, const struct gb_name *session, int64_t after_id, unsigned limit,
                  int (*visit)(void *, const struct gb_event_view *, struct gb_error *), void *arg, bool *ret_more,
                  struct gb_error *err);

/* Covers what is queued on the stream so far, on every device. Result: call->event. */
void gb_event_record_call(struct gb_core *core, const struct gb_name *session, const struct gb_name *event,
                          const struct gb_name *stream, struct gb_event_call *call);

/* What is queued on the stream from now on waits, on every device, for what the event's last record covers; a no-op for
 * one never recorded. Done when that is arranged, not when the wait is over. Result: call->event. */
void gb_event_wait_call(struct gb_core *core, const struct gb_name *session, const struct gb_name *event,
                        const struct gb_name *stream, struct gb_event_call *call);

#endif
