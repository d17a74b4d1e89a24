/* One slot and its copy. */
#include "base/container.h"
#include "core/transfer/transfer.h"

void gb_staged_copy_whole(struct gb_staged_copy *f, enum gb_copy_direction direction, size_t bytes) {
    struct gb_core_transfer *t = f->transfer;

    f->sample = &t->stream->parts[t->device->index].samples[direction];
    f->sampled = gb_copy_sample_get(f->sample, bytes, &f->times);
    t->sampled = t->sampled || f->sampled;
}

static int take_events(struct gb_staged_copy *f, struct gb_error *err) {
    struct gb_core_transfer *t = f->transfer;
    struct gb_event_pool *events = &t->device->events;

    f->end = gb_event_pool_take(events, err);
    if (!f->end)
        return -1;
    if (f->sampled)
        return 0;
    f->start = gb_event_pool_take(events, err);
    if (!f->start)
        return -1;
    f->first = !t->mark;
    if (!f->first)
        return 0;
    t->mark = gb_event_pool_take(events, err);
    return t->mark ? gb_event_mark(t->core->backend, t->mark->event, err) : -1;
}

static int copy(struct gb_staged_copy *f, const struct gb_location *place, size_t at, size_t bytes,
                enum gb_copy_direction direction, struct gb_error *err) {
    struct gb_backend *be = f->transfer->core->backend;
    bool in = direction == GB_COPY_TO_DEVICE;
    const struct gb_location slot = {GB_KIND_PINNED, place->device, (char *)f->slot + at};
    enum gb_copy_way way;

    if (place->kind != GB_KIND_DEVICE)
        return gb_mem_move(be, in ? place : &slot, in ? &slot : place, bytes, f->stream, &way, err);
    return gb_mem_copy(be, in ? place->ptr : slot.ptr, in ? slot.ptr : place->ptr, bytes, direction, f->stream, err);
}

int gb_staged_copy_open(struct gb_staged_copy *f, struct gb_stream *stream, struct gb_error *err) {
    f->stream = stream;
    if (take_events(f, err) < 0)
        return -1;
    return f->start ? gb_event_record(f->transfer->core->backend, f->start->event, stream, err) : 0;
}

int gb_staged_copy_close(struct gb_staged_copy *f, struct gb_error *err) {
    return gb_event_record(f->transfer->core->backend, f->end->event, f->stream, err);
}

int gb_staged_copy_box(struct gb_staged_copy *f, const struct gb_location *place, size_t at, const struct gb_box *box,
                       enum gb_copy_direction direction, struct gb_error *err) {
    if (box->rows == 1 && box->planes == 1)
        return copy(f, place, at, box->width, direction, err);
    return gb_mem_box(f->transfer->core->backend, place, (char *)f->slot + at, box, direction, f->stream, err);
}

int gb_staged_copy_copy(struct gb_staged_copy *f, const struct gb_location *place, enum gb_copy_direction direction,
                        struct gb_stream *stream, struct gb_error *err) {
    if (gb_staged_copy_open(f, stream, err) < 0 || copy(f, place, 0, f->bytes, direction, err) < 0)
        return -1;
    return gb_staged_copy_close(f, err);
}

void gb_staged_copy_account(struct gb_staged_copy *f) {
    struct gb_core_transfer *t = f->transfer;
    struct gb_backend *be = t->core->backend;

    if (f->start) {
        f->times = (struct gb_copy_times){.queue_ns = 0};
        /* A time that cannot be had is no reason to fail a transfer. */
        gb_event_elapsed(be, f->start->event, f->end->event, &f->times.copy_ns, NULL);
        if (f->first)
            gb_event_elapsed(be, t->mark->event, f->start->event, &f->times.queue_ns, NULL);
        if (f->sample)
            gb_copy_sample_put(f->sample, f->bytes, &f->times);
    }
    pthread_mutex_lock(&t->lock);
    t->copy_ns += f->times.copy_ns;
    t->queue_ns += f->times.queue_ns;
    pthread_mutex_unlock(&t->lock);
}

void gb_staged_copy_release(struct gb_staged_copy *f) {
    struct gb_core_transfer *t = f->transfer;

    gb_event_pool_give(&t->device->events, f->start);
    gb_event_pool_give(&t->device->events, f->end);
    f->start = NULL;
    f->end = NULL;
    f->sample = NULL;
    f->sampled = false;
    if (f->slot)
        gb_slots_give(&t->core->slots, f->slot);
    f->slot = NULL;
}

static void settled(void *arg, const struct gb_error *error) {
    struct gb_staged_copy *f = arg;
    struct gb_core_transfer *t = f->transfer;

    gb_core_report_error(t->core, error);
    gb_staged_copy_release(f);
    gb_core_transfer_unref(t);
}

static void settle(struct gb_task *task) {
    struct gb_staged_copy *f = gb_container_of(task, struct gb_staged_copy, task);
    struct gb_backend *be = f->transfer->core->backend;

    /* Others use the lane, so it waits itself only where the device gives no other way. */
    if (f->end) {
        if (gb_event_record(be, f->end->event, f->stream, NULL) == 0 &&
            gb_watch(be, f->end->event, settled, f, NULL) == 0)
            return;
        gb_stream_sync(be, f->stream, NULL);
    }
    settled(f, NULL);
}

void gb_staged_copy_abandon(struct gb_staged_copy *f) {
    f->task.run = settle;
    gb_lane_post(&f->transfer->device->lane, &f->task);
}
