/* Streams, events and synchronization. Included by core.h.
 *
 * A stream orders work under a name inside a session. It has a part on each device, made when it is first needed there.
 * Work queued on a stream runs in order on each device; events order work across devices and streams. The stream
 * "default" always exists. Streams and events are not persisted. */
#ifndef GB_CORE_PUBLIC_STREAM_H
#define GB_CORE_PUBLIC_STREAM_H

#include "base/error.h"
#include "core/public/call.h"
#include "model/model.h"

struct gb_core;

#define GB_STREAMS_MAX 64 /* of one session, besides "default" and unless configured; draining streams count */
#define GB_EVENTS_MAX 256

struct gb_stream_view {
    int64_t id; /* 0: "default" */
    struct gb_name name;
    int64_t created_at_us;
    bool busy;        /* work is queued on it */
    unsigned devices; /* number of devices with a part of it */
};

struct gb_stream_call {
    struct gb_call base;
    struct gb_stream_view stream;
};

/* Creates a stream. Result: call->stream. Errors: STREAM_EXISTS, LIMIT_REACHED. */
void gb_stream_make(struct gb_core *core, const struct gb_locator *at, struct gb_stream_call *call);

/* Deletes a stream. The call ends when the name is gone, which is at once. The stream's parts are destroyed when the
 * queued work has finished. Errors: STREAM_PROTECTED for "default", STREAM_NOT_FOUND. */
void gb_stream_remove(struct gb_core *core, const struct gb_locator *at, struct gb_call *call);

/* [now] Reads a stream; the name "" stands for "default". */
int gb_stream_get(struct gb_core *core, const struct gb_locator *at, struct gb_stream_view *ret, struct gb_error *err);

/* [now] If page->after is 0, "default" comes first. Then come at most page->limit streams with id > page->after.
 * Otherwise as gb_session_list. */
int gb_stream_list(struct gb_core *core, const struct gb_name *session, struct gb_page *page,
                   int (*visit)(void *, const struct gb_stream_view *, struct gb_error *), void *arg,
                   struct gb_error *err);

/* Wait for all work queued so far: on the stream, on every stream of the session, or on the device by any session. The
 * calls have no time limit and block no thread. A caller that gives up earlier ignores the call's end. */
void gb_stream_sync_call(struct gb_core *core, const struct gb_locator *at, struct gb_call *call);
void gb_session_sync_call(struct gb_core *core, const struct gb_name *session, struct gb_call *call);
void gb_device_sync_call(struct gb_core *core, int device, struct gb_call *call);

#define GB_HOLD_MS_MAX 10000
#define GB_HOLDS_MAX 8 /* at a time, of all sessions */

struct gb_hold_call {
    struct gb_call base;
    struct gb_name stream;
    int device;
    uint64_t ms;
    int64_t until_us;
};

/* Holds the stream's part on the device for 1 to GB_HOLD_MS_MAX milliseconds from now: work queued on it meanwhile
 * waits. The call ends when the hold is queued. Result: the fields of the call. Errors: INVALID_ARGUMENT,
 * DEVICE_NOT_FOUND, STREAM_NOT_FOUND, STREAM_HELD, SATURATED, DRAINING. */
void gb_stream_hold_call(struct gb_core *core, const struct gb_locator *at, int device, uint64_t ms,
                         struct gb_hold_call *call);

/* [now] Ends all holds, and permits no further ones: the daemon stops. */
void gb_holds_release(struct gb_core *core);

struct gb_event_view {
    int64_t id;
    struct gb_name name;
    int64_t created_at_us;
    bool recorded;
    bool done;             /* the work that the last record covers is done; true if there is no record */
    struct gb_name stream; /* of the last record */
};

struct gb_event_call {
    struct gb_call base;
    bool created; /* the call has created the event */
    struct gb_event_view event;
};

/* Creates an event. Result: call->event. Errors: EVENT_EXISTS, LIMIT_REACHED. */
void gb_event_make(struct gb_core *core, const struct gb_locator *at, struct gb_event_call *call);

/* Deletes an event. Work that waits for its last record goes on waiting. Errors: EVENT_NOT_FOUND. */
void gb_event_remove(struct gb_core *core, const struct gb_locator *at, struct gb_call *call);

/* [now] Read an event, or list events as gb_session_list does. */
int gb_event_get(struct gb_core *core, const struct gb_locator *at, struct gb_event_view *ret, struct gb_error *err);
int gb_event_list(struct gb_core *core, const struct gb_name *session, struct gb_page *page,
                  int (*visit)(void *, const struct gb_event_view *, struct gb_error *), void *arg,
                  struct gb_error *err);

/* Records the event: it covers the work queued on the stream so far, on every device. Result: call->event. */
void gb_event_record_call(struct gb_core *core, const struct gb_locator *at, const struct gb_name *stream,
                          struct gb_event_call *call);

/* Makes work queued on the stream from now on wait, on every device, for the work that the event's last record covers.
 * An event that was never recorded has no effect. The call ends when the wait is queued, not when it is over. Result:
 * call->event. */
void gb_event_wait_call(struct gb_core *core, const struct gb_locator *at, const struct gb_name *stream,
                        struct gb_event_call *call);

#endif
