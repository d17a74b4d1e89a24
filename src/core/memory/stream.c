/* Streams of the core: their parts on devices, and samples of how fast bytes are copied on them. */
#include "core/memory/stream.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/thread.h"
#include "core/runtime/runtime.h"

/* --- stream ------------------------------------------------------------------------------------------------------- */

/* Streams in memory. */

struct gb_core_stream *gb_core_stream_new(struct gb_core *core, const struct gb_stream_owner *owner, void *arg,
                                          const struct gb_name *name, int64_t id) {
    int devices = core->device_count;
    struct gb_core_stream *st = calloc(1, sizeof(*st) + (size_t)devices * sizeof(st->parts[0]));
    int i;

    if (!st)
        return NULL;
    st->name_text = gb_text_new(name->s, strlen(name->s));
    if (!st->name_text) {
        free(st);
        return NULL;
    }
    atomic_init(&st->refs, 1);
    atomic_init(&st->users, 1);
    st->core = core;
    st->owner = owner;
    st->owner_arg = arg;
    st->id = id;
    st->name = *name;
    st->created_at_us = gb_wall_us();
    for (i = 0; i < devices; i++) {
        st->parts[i].owner = st;
        st->parts[i].device = i;
        gb_copy_sample_init(&st->parts[i].samples[GB_COPY_TO_DEVICE]);
        gb_copy_sample_init(&st->parts[i].samples[GB_COPY_FROM_DEVICE]);
    }
    return st;
}

struct gb_core_stream *gb_core_stream_ref(struct gb_core_stream *stream) {
    atomic_fetch_add(&stream->refs, 1);
    return stream;
}

void gb_core_stream_unref(struct gb_core_stream *stream) {
    int i;

    if (!stream || atomic_fetch_sub(&stream->refs, 1) != 1)
        return;
    for (i = 0; i < stream->core->device_count; i++) {
        gb_copy_sample_done(&stream->parts[i].samples[GB_COPY_TO_DEVICE]);
        gb_copy_sample_done(&stream->parts[i].samples[GB_COPY_FROM_DEVICE]);
    }
    gb_text_unref(stream->name_text);
    free(stream);
}

struct gb_core_stream *gb_core_stream_use_more(struct gb_core_stream *stream) {
    atomic_fetch_add(&stream->users, 1);
    return gb_core_stream_ref(stream);
}

void gb_core_stream_unuse(struct gb_core_stream *stream) {
    if (!stream)
        return;
    if (atomic_fetch_sub(&stream->users, 1) == 1) {
        stream->drains = true;
        gb_core_stream_take_down(stream);
    }
    gb_core_stream_unref(stream);
}

int gb_core_stream_part_make(struct gb_core_stream *stream, int device, struct gb_stream **ret, struct gb_error *err) {
    struct gb_stream *part = gb_core_stream_part(stream, device);

    if (!part) {
        if (gb_stream_create(stream->core->backend, device, &part, err) < 0)
            return -1;
        atomic_store(&stream->parts[device].stream, part);
    }
    *ret = part;
    return 0;
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

static void part_gone(struct gb_core_stream *st) {
    void (*end)(void *arg) = st->drains ? st->owner->drained : st->owner->gone;
    void *arg = st->owner_arg;

    if (atomic_fetch_sub(&st->parts_open, 1) != 1)
        return;
    gb_core_stream_unref(st);
    end(arg);
}

static struct gb_stream_part *part_of(struct gb_task *task) {
    return gb_container_of(task, struct gb_stream_part, task);
}

static void destroy_part(struct gb_task *task) {
    struct gb_stream_part *part = part_of(task);
    struct gb_core *core = part->owner->core;
    struct gb_stream *stream = atomic_exchange(&part->stream, NULL);

    gb_event_pool_give(&core->devices[part->device].events, part->ev);
    gb_stream_destroy(core->backend, stream);
    part_gone(part->owner);
}

static void part_idle(void *arg, const struct gb_error *error) {
    struct gb_stream_part *part = arg;
    struct gb_core *core = part->owner->core;

    gb_core_report_error(core, error);
    part->task.run = destroy_part;
    gb_lane_post(&core->devices[part->device].lane, &part->task);
}

/* Destroying a stream waits for its work, and the lane serves others too: so it happens only once the stream is
 * idle. */
static void take_down_part(struct gb_task *task) {
    struct gb_stream_part *part = part_of(task);
    struct gb_core *core = part->owner->core;
    struct gb_stream *stream = atomic_load(&part->stream);
    bool done = false;

    part->ev = gb_event_pool_take(&core->devices[part->device].events, NULL);
    if (part->ev && gb_event_record(core->backend, part->ev->event, stream, NULL) == 0 &&
        gb_event_query(core->backend, part->ev->event, &done, NULL) == 0 && !done &&
        gb_watch(core->backend, part->ev->event, part_idle, part, NULL) == 0)
        return;
    destroy_part(task);
}

void gb_core_stream_take_down(struct gb_core_stream *st) {
    struct gb_core *core = st->core;
    int i;

    gb_core_stream_ref(st);
    atomic_store(&st->parts_open, 1);
    for (i = 0; i < core->device_count; i++) {
        if (!gb_core_stream_part(st, i))
            continue;
        atomic_fetch_add(&st->parts_open, 1);
        st->parts[i].task.run = take_down_part;
        gb_lane_post(&core->devices[i].lane, &st->parts[i].task);
    }
    part_gone(st);
}

/* --- copy sample -------------------------------------------------------------------------------------------------- */

#define FRESH_NS GB_NS_PER_MS

void gb_copy_sample_init(struct gb_copy_sample *sample) {
    *sample = (struct gb_copy_sample){.bytes = 0};
    gb_mutex_init(&sample->lock);
}

void gb_copy_sample_done(struct gb_copy_sample *sample) {
    pthread_mutex_destroy(&sample->lock);
}

bool gb_copy_sample_get(struct gb_copy_sample *sample, size_t bytes, struct gb_copy_times *ret) {
    uint64_t now_ns = gb_clock_ns();
    bool fresh;

    pthread_mutex_lock(&sample->lock);
    fresh = sample->bytes == bytes && bytes > 0 && now_ns < sample->at_ns + FRESH_NS;
    if (fresh)
        *ret = sample->times;
    pthread_mutex_unlock(&sample->lock);
    return fresh;
}

void gb_copy_sample_put(struct gb_copy_sample *sample, size_t bytes, const struct gb_copy_times *times) {
    uint64_t now_ns = gb_clock_ns();

    pthread_mutex_lock(&sample->lock);
    sample->times = *times;
    sample->bytes = bytes;
    sample->at_ns = now_ns;
    pthread_mutex_unlock(&sample->lock);
}
