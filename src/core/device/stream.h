/* A session's stream: an order of work with a part on each device.
 *
 * Two counts. refs keeps the description. users keeps the parts: the session is one as long as the stream has its name,
 * and so is whoever queues work; when the last is through, the lanes let what is queued finish and destroy the parts. A
 * content has refs alone to its home, the stream where it was allocated and is freed in order. When the home is gone, all
 * work on it is done, and the session's default stream frees the memory as well. Who uses memory on another stream than
 * its home must therefore hold the content until that work is done. */
#ifndef GB_CORE_DEVICE_STREAM_H
#define GB_CORE_DEVICE_STREAM_H

#include <stdatomic.h>

#include "backend/backend.h"
#include "base/text.h"
#include "core/public/stream.h"
#include "core/util/lane.h"

struct gb_ev;
struct gb_session;

struct gb_stream_part {
    struct gb_task task;
    struct gb_core_stream *owner;
    int device;
    struct gb_stream *_Atomic stream; /* made and destroyed on the device's lane */
    struct gb_ev *ev;                 /* while it is taken down */
};

struct gb_core_stream {
    atomic_uint refs;
    atomic_uint users;
    struct gb_session *session; /* borrowed: every user has a reference */
    bool drains;                /* removed: holds the session until the parts are gone */
    int64_t id;                 /* 0: "default" */
    struct gb_name name;
    struct gb_text *name_text; /* the same, for buffers */
    int64_t created_at_us;
    atomic_uint parts_open; /* while they are taken down */
    struct gb_stream_part parts[];
};

/* One reference, one user. NULL when memory is exhausted. */
struct gb_core_stream *gb_core_stream_new(struct gb_session *session, const struct gb_name *name, int64_t id);
struct gb_core_stream *gb_core_stream_ref(struct gb_core_stream *stream);
void gb_core_stream_unref(struct gb_core_stream *stream); /* NULL is accepted */

/* The session's stream of that name, "" being "default", with a reference and a user more. The session's lock is held.
 * STREAM_NOT_FOUND. */
int gb_core_stream_use_locked(struct gb_session *session, const struct gb_name *name, struct gb_core_stream **ret,
                              struct gb_error *err);

/* A reference and a user more of one that the caller has already. */
struct gb_core_stream *gb_core_stream_use_more(struct gb_core_stream *stream);

/* Both back. The caller still holds the session, but not its lock. NULL is accepted. [any thread, never blocks] */
void gb_core_stream_unuse(struct gb_core_stream *stream);

/* [any thread] The part on that device; NULL: none yet, so no work is queued there. */
static inline struct gb_stream *gb_core_stream_part(struct gb_core_stream *stream, int device) {
    return atomic_load(&stream->parts[device].stream);
}

/* On the device's lane: makes the part when there is none. */
int gb_core_stream_part_make(struct gb_core_stream *stream, int device, struct gb_stream **ret, struct gb_error *err);

/* Nobody uses it any more: takes the parts down and gives the session's reference back; then, for one that drains, drops
 * the session, else calls gb_session_release. */
void gb_core_stream_take_down(struct gb_core_stream *stream);

#endif
