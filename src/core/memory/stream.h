/* Streams of the core: their parts on devices, and samples of how fast bytes are copied on them. */
#ifndef GB_CORE_MEMORY_STREAM_H
#define GB_CORE_MEMORY_STREAM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/text.h"
#include "core/public/session.h"
#include "core/util/lane.h"

/* Times of short copies, of which a sample is measured.
 *
 * To time a copy takes three events and two questions, which cost the CPU more than a copy of a few kilobytes. A
 * transfer that is one copy therefore takes the times of the last one that was measured, if that was on the same part
 * of a stream, in the same direction, of the same size, and not longer ago than a millisecond. */

struct gb_copy_times {
    uint64_t queue_ns; /* waited behind earlier work */
    uint64_t copy_ns;
};

/* One for each direction of a part of a stream. */
struct gb_copy_sample {
    pthread_mutex_t lock; /* a leaf */
    struct gb_copy_times times;
    size_t bytes; /* 0: none was measured */
    uint64_t at_ns;
};

void gb_copy_sample_init(struct gb_copy_sample *sample);
void gb_copy_sample_done(struct gb_copy_sample *sample);

/* Returns true if a copy of so many bytes need not be measured now, with its times. [any thread] */
bool gb_copy_sample_get(struct gb_copy_sample *sample, size_t bytes, struct gb_copy_times *ret);
/* A copy was measured. [any thread] */
void gb_copy_sample_put(struct gb_copy_sample *sample, size_t bytes, const struct gb_copy_times *times);

/* A session's stream: an order of work with a part on each device.
 *
 * A stream has two counts. refs keeps the description. users keeps the parts. The session is one user as long as the
 * stream has its name, and so is each piece of work that queues on it. After the last user the lanes let the queued
 * work finish and destroy the parts.
 *
 * A content holds only refs to its alloc_stream, where it was allocated and is freed in order. When that stream has
 * drained, all work on it is done, and the session's default stream frees the memory as well. Work that uses the memory
 * on another stream must therefore hold the content until it is done. */

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
