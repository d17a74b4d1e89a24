/* A session's stream: an order of work with a part on each device.
 *
 * A stream has two counts. refs keeps the description. users keeps the parts. The session is one user as long as the
 * stream has its name, and so is each piece of work that queues on it. After the last user the lanes let the queued
 * work finish and destroy the parts.
 *
 * A content holds only refs to its alloc_stream, where it was allocated and is freed in order. When that stream has
 * drained, all work on it is done, and the session's default stream frees the memory as well. Work that uses the memory
 * on another stream must therefore hold the content until it is done. */
#ifndef GB_CORE_DEVICE_STREAM_H
#define GB_CORE_DEVICE_STREAM_H

#include <stdatomic.h>

#include "backend/backend.h"
#include "base/text.h"
#include "core/device/copy_sample.h"
#include "core/public/stream.h"
#include "core/util/lane.h"

struct gb_ev;
struct gb_core;

struct gb_stream_part {
    struct gb_task task;
    struct gb_core_stream *owner;
    int device;
    struct gb_stream *_Atomic stream; /* made and destroyed on the device's lane */
    struct gb_ev *ev;                 /* while it is taken down */
    struct gb_copy_sample samples[2]; /* by GB_COPY_TO_DEVICE, GB_COPY_FROM_DEVICE */
};

/* The owner of streams learns, once for each, that its parts are gone. [any thread] */
struct gb_stream_owner {
    void (*drained)(void *arg); /* of a stream that was removed */
    void (*gone)(void *arg);    /* of a stream that ends with its owner */
};

struct gb_core_stream {
    atomic_uint refs;
    atomic_uint users;
    struct gb_core *core;
    const struct gb_stream_owner *owner;
    void *owner_arg; /* borrowed: every user holds the owner */
    bool drains;     /* removed: its last user is through */
    int64_t id;      /* 0: "default" */
    struct gb_name name;
    struct gb_text *name_text; /* the same, for buffers */
    int64_t created_at_us;
    atomic_uint parts_open; /* while they are taken down */
    struct gb_stream_part parts[];
};

/* One reference, one user. NULL when memory is exhausted. */
struct gb_core_stream *gb_core_stream_new(struct gb_core *core, const struct gb_stream_owner *owner, void *arg,
                                          const struct gb_name *name, int64_t id);
struct gb_core_stream *gb_core_stream_ref(struct gb_core_stream *stream);
void gb_core_stream_unref(struct gb_core_stream *stream); /* NULL is accepted */

/* One more reference and user, of a stream that the caller uses already. */
struct gb_core_stream *gb_core_stream_use_more(struct gb_core_stream *stream);

/* Gives both back. The caller still holds the session, but not its lock. NULL is accepted. [any thread, never
 * blocks] */
void gb_core_stream_unuse(struct gb_core_stream *stream);

/* The part on that device; NULL: there is none yet, so no work is queued there. [any thread] */
static inline struct gb_stream *gb_core_stream_part(struct gb_core_stream *stream, int device) {
    return atomic_load(&stream->parts[device].stream);
}

/* Makes the part if there is none. On the device's lane. */
int gb_core_stream_part_make(struct gb_core_stream *stream, int device, struct gb_stream **ret, struct gb_error *err);

/* No work is queued any more: takes the parts down, then tells the owner. */
void gb_core_stream_take_down(struct gb_core_stream *stream);

#endif
