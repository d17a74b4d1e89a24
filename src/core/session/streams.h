/* The streams and events of a session. */
#ifndef GB_CORE_SESSION_STREAMS_H
#define GB_CORE_SESSION_STREAMS_H

#include "core/device/stream.h"

struct gb_session;

/* A stream of the session, with one reference and one user; it is in no list yet. NULL when memory is exhausted. Before
 * its last use ends (gb_core_stream_unuse) the session gets a reference, which goes when the parts are gone. */
struct gb_core_stream *gb_session_stream_new(struct gb_session *session, const struct gb_name *name, int64_t id);

/* The session's stream of that name, "" being "default", with one more reference and user. The session's lock is held.
 * STREAM_NOT_FOUND. */
int gb_core_stream_use_locked(struct gb_session *session, const struct gb_name *name, struct gb_core_stream **ret,
                              struct gb_error *err);

/* The work that the last record of an event covers. */
struct gb_event_mark {
    atomic_uint refs;
    struct gb_core *core;
    struct gb_ev *evs[]; /* of each device; NULL: nothing was queued there */
};

struct gb_core_event {
    atomic_uint refs; /* the session's, and of each call under way */
    int64_t id;
    struct gb_name name;
    int64_t created_at_us;
    struct gb_name stream;      /* the session's lock, for these two: of the last record */
    struct gb_event_mark *mark; /* NULL: none */
};

/* NULL is accepted, in both. */
void gb_event_mark_unref(struct gb_event_mark *mark);
void gb_core_event_unref(struct gb_core_event *event);

/* At the session's end, when it has no other user. */
void gb_session_forget_events(struct gb_session *session);

#endif
