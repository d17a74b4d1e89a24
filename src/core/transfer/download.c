/* Downloads: from the memory itself if the CPU reaches it, else through slots, or from the disk if the bytes are there
 * alone. A download holds the content, so that it ends with the bytes that it began with. Handlers and the core's
 * readers call gb_download_next and gb_download_sent from one thread at a time. */
#include "core/transfer/download.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/hash.h"
#include "core/buffer/buffer.h"
#include "core/durable/stored.h"
#include "core/memory/content.h"
#include "core/util/lane.h"

/* Returns where byte `pos` of the bytes to be sent lies in the view. *ret_left: the bytes from there to the end of its
 * span. */
uint64_t gb_download_locate(struct gb_download *d, uint64_t pos, uint64_t *ret_left) {
    const struct gb_span *span;

    if (pos < d->span_at)
        d->span = d->span_at = 0;
    while (d->span + 1 < d->span_count && pos - d->span_at >= d->spans[d->span].length)
        d->span_at += d->spans[d->span++].length;
    span = &d->spans[d->span];
    *ret_left = span->length - (pos - d->span_at);
    return span->first + (pos - d->span_at);
}

/* --- from the memory itself --------------------------------------------------------------------------------------- */

/* Bytes that do not lie side by side are packed first. */

static const char zeros[65536]; /* the bytes of a mirrored buffer before its first write */

#define DIRECT_BYTES (64u << 20) /* given at once; the socket takes what it can */

static void content_ready(void *arg, const struct gb_error *error) {
    struct gb_download *d = arg;

    gb_core_report_error(d->t.core, error);
    pthread_mutex_lock(&d->t.lock);
    if (error && d->t.error.code == GB_OK)
        d->t.error = *error;
    d->watching = false;
    gb_core_transfer_unlock_wake(&d->t);
    gb_core_transfer_unref(&d->t);
}

/* Returns 1 if the event has come, or ev is NULL; 0: wake follows; -1. */
static int wait_event(struct gb_download *d, struct gb_ev *ev, struct gb_error *err) {
    struct gb_backend *be = d->t.core->backend;
    bool watching;
    bool done = true;

    if (ev && gb_event_query(be, ev->event, &done, err) < 0)
        return -1;
    pthread_mutex_lock(&d->t.lock);
    watching = d->watching;
    d->watching = watching || !done;
    d->t.want_wake = watching || !done;
    pthread_mutex_unlock(&d->t.lock);
    if (watching || done)
        return !watching;
    gb_core_transfer_ref(&d->t);
    if (gb_watch(be, ev->event, content_ready, d, err) == 0)
        return 0;
    gb_core_transfer_unref(&d->t); /* never the last: the caller has one */
    return -1;
}

/* Records an event behind the stream's earlier work, which the download waits for. Returns 0 or -1. */
static int record_behind(struct gb_download *d, struct gb_error *err) {
    struct gb_stream *part = gb_core_transfer_part(&d->t);
    bool idle = false;

    if (d->asked || !part)
        return 0;
    d->asked = true;
    if (gb_stream_query(d->t.core->backend, part, &idle, err) < 0 || idle)
        return idle ? 0 : -1;
    d->behind = gb_event_pool_take(&d->t.device->events, err);
    return d->behind ? gb_event_record(d->t.core->backend, d->behind->event, part, err) : -1;
}

/* Returns 1 if the CPU may read the memory; 0: wake follows; -1. */
static int wait_ready(struct gb_download *d, struct gb_error *err) {
    int r;

    if (d->ready)
        return 1;
    if (record_behind(d, err) < 0)
        return -1;
    r = wait_event(d, d->behind, err);
    if (r > 0)
        r = wait_event(d, d->content->ready, err);
    if (r <= 0)
        return r;
    d->ready = true;
    pthread_mutex_lock(&d->t.lock);
    d->t.queue_ns = d->behind || d->content->ready ? gb_clock_ns() - d->t.started_ns : 0;
    pthread_mutex_unlock(&d->t.lock);
    return 1;
}

/* Packs as many bytes as fit into the scratch buffer, from the first one that was not sent. Returns 0 or -1. */
static int pack(struct gb_download *d, struct gb_error *err) {
    uint64_t size = d->length < GB_SCRATCH_BYTES ? d->length : GB_SCRATCH_BYTES;
    uint64_t offset;
    uint64_t packed;
    uint64_t i;

    if (!d->scratch && !(d->scratch = malloc(size)))
        return gb_no_memory(err);
    d->scratch_n = d->scratch_sent = 0;
    while (d->scratch_n < size && d->sent + d->scratch_n < d->length) {
        struct gb_cut cut;
        uint64_t left;
        uint64_t at = gb_download_locate(d, d->sent + d->scratch_n, &left);
        uint64_t room = size - d->scratch_n;

        gb_view_cut(&d->view, at, left < room ? left : room, UINT64_MAX, &cut);
        for (i = 0; i < cut.boxes; i++) {
            gb_cut_box(&cut, i, &offset, &packed);
            gb_box_copy(&cut.box, (char *)d->content->ptr + offset, d->scratch + d->scratch_n + packed, true);
        }
        d->scratch_n += cut.bytes;
    }
    return 0;
}

/* As gb_download_next. */
static int download_direct(struct gb_download *d, const void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    uint64_t left;
    uint64_t at;
    int r;

    if (!d->content) {
        left = d->length - d->sent;
        *ret_ptr = zeros;
        *ret_n = left < sizeof(zeros) ? left : sizeof(zeros);
        return 1;
    }
    r = wait_ready(d, err);
    if (r <= 0)
        return r;
    if (d->view.axes > 0) {
        if (d->scratch_sent == d->scratch_n && pack(d, err) < 0)
            return -1;
        *ret_ptr = d->scratch + d->scratch_sent;
        *ret_n = d->scratch_n - d->scratch_sent;
        return 1;
    }
    at = gb_download_locate(d, d->sent, &left);
    *ret_ptr = (char *)d->content->ptr + d->view.offset + at;
    *ret_n = left < DIRECT_BYTES ? left : DIRECT_BYTES;
    return 1;
}

/* --- through slots ------------------------------------------------------------------------------------------------ */

/* The next copy is under way while the present slot is sent. */

static void arrived(void *arg, const struct gb_error *error) {
    struct gb_block *b = arg;
    struct gb_core_transfer *t = b->f.transfer;
    bool abandoned;

    gb_core_report_error(t->core, error);
    pthread_mutex_lock(&t->lock);
    b->fired = true;
    abandoned = b->abandoned;
    if (error && t->error.code == GB_OK)
        t->error = *error;
    gb_core_transfer_unlock_wake(t);
    if (abandoned)
        gb_staged_copy_release(&b->f);
    gb_core_transfer_unref(t);
}

static void make_part(struct gb_task *task) {
    struct gb_download *d = gb_container_of(task, struct gb_download, task);
    struct gb_error err = GB_ERROR_INIT;
    struct gb_stream *part;

    if (gb_core_stream_part_make(d->t.stream, d->t.device->index, &part, &err) < 0 ||
        gb_content_materialize(d->content, &err) < 0)
        gb_core_transfer_fail(&d->t, &err);
    pthread_mutex_lock(&d->t.lock);
    d->watching = false;
    gb_core_transfer_unlock_wake(&d->t);
    gb_core_transfer_unref(&d->t);
}

/* Returns true if the stream has a part on the device, and the memory has its zeros. Else wake follows. */
static bool have_part(struct gb_download *d) {
    bool mine;

    if (gb_core_transfer_part(&d->t) && !atomic_load(&d->content->blank))
        return true;
    pthread_mutex_lock(&d->t.lock);
    mine = !d->watching;
    d->watching = true;
    d->t.want_wake = true;
    pthread_mutex_unlock(&d->t.lock);
    if (mine) {
        gb_core_transfer_ref(&d->t);
        d->task.run = make_part;
        gb_lane_post(&d->t.device->lane, &d->task);
    }
    return false;
}

/* Queues the copies of a cut into the block's slot, behind the bytes that it holds. Returns 0 or -1. */
static int queue_cut(struct gb_download *d, struct gb_block *b, const struct gb_cut *cut, struct gb_error *err) {
    uint64_t offset;
    uint64_t packed;
    uint64_t i;

    for (i = 0; i < cut->boxes; i++) {
        struct gb_location place;

        gb_cut_box(cut, i, &offset, &packed);
        place = gb_content_location(d->content, offset);
        if (gb_staged_copy_box(&b->f, &place, b->f.bytes + packed, &cut->box, GB_COPY_FROM_DEVICE, err) < 0)
            return -1;
    }
    b->f.bytes += cut->bytes;
    return 0;
}

/* Queues as much as fits into the slot and into the permitted number of copies, but no piece for a small rest of the
 * slot. Returns 0 or -1. */
static int queue_cuts(struct gb_download *d, struct gb_block *b, struct gb_error *err) {
    uint64_t room = d->t.core->slots.slot_bytes;
    uint64_t boxes = GB_DOWNLOAD_BOXES;
    struct gb_cut cut;

    while (room > 0 && boxes > 0 && d->queued + b->f.bytes < d->length) {
        uint64_t left;
        uint64_t at = gb_download_locate(d, d->queued + b->f.bytes, &left);
        uint64_t straight = gb_view_straight(&d->view, at);

        if (b->f.bytes > 0 && room < left && room < straight)
            return 0;
        gb_view_cut(&d->view, at, left < room ? left : room, boxes, &cut);
        if (queue_cut(d, b, &cut, err) < 0)
            return -1;
        room -= cut.bytes;
        boxes -= cut.boxes;
    }
    return 0;
}

static int start_block(struct gb_download *d, struct gb_block *b, struct gb_error *err) {
    b->f.bytes = 0;
    b->sent = 0;
    b->arrived = b->watched = b->fired = false;
    if (d->queued == 0 && d->length <= d->t.core->slots.slot_bytes)
        gb_staged_copy_whole(&b->f, GB_COPY_FROM_DEVICE, d->length);
    if (gb_staged_copy_open(&b->f, gb_core_transfer_part(&d->t), err) < 0 || queue_cuts(d, b, err) < 0)
        return -1;
    return gb_staged_copy_close(&b->f, err);
}

/* Queues the copy of the next block. wait: if it is the only block and no slot is free, it stands in line. Returns 1; 0
 * if no slot is free; -1. */
static int queue_block(struct gb_download *d, bool wait, struct gb_error *err) {
    struct gb_block *b = &d->blocks[(d->first + d->count) % GB_DOWNLOAD_COPIES];
    struct gb_ev *ready = d->content->ready;

    if (!d->ordered && ready && gb_stream_wait(d->t.core->backend, gb_core_transfer_part(&d->t), ready->event, err) < 0)
        return -1;
    d->ordered = true;
    if (d->count > 0 || !wait) {
        b->f.slot = gb_slots_try(&d->t.core->slots);
    } else {
        pthread_mutex_lock(&d->t.lock);
        b->f.slot = gb_core_transfer_slot_locked(&d->t);
        d->t.want_wake = !b->f.slot;
        pthread_mutex_unlock(&d->t.lock);
    }
    if (!b->f.slot)
        return 0;
    if (start_block(d, b, err) < 0) {
        gb_core_transfer_ref(&d->t);
        gb_staged_copy_abandon(&b->f);
        d->copy_may_run = true;
        return -1;
    }
    d->count++;
    d->queued += b->f.bytes;
    return 1;
}

/* Returns 1 if the first block is in its slot; 0: wake follows; -1. */
static int wait_block(struct gb_download *d, struct gb_error *err) {
    struct gb_block *b = &d->blocks[d->first];
    struct gb_backend *be = d->t.core->backend;
    bool done = false;

    /* A watch must fire before its event is used again. */
    pthread_mutex_lock(&d->t.lock);
    done = b->fired;
    d->t.want_wake = !done;
    pthread_mutex_unlock(&d->t.lock);
    if (!done && b->watched)
        return 0;
    if (!done && gb_event_query(be, b->f.end->event, &done, err) < 0)
        return -1;
    if (done) {
        b->arrived = true;
        gb_staged_copy_account(&b->f);
        return 1;
    }
    pthread_mutex_lock(&d->t.lock);
    b->watched = true;
    pthread_mutex_unlock(&d->t.lock);
    gb_core_transfer_ref(&d->t);
    if (gb_poll_watch(be, b->f.end->event, arrived, b, err) == 0)
        return 0;
    pthread_mutex_lock(&d->t.lock);
    b->watched = false;
    pthread_mutex_unlock(&d->t.lock);
    gb_core_transfer_unref(&d->t); /* never the last: the caller has one */
    return -1;
}

/* As gb_download_next. */
static int download_slot(struct gb_download *d, const void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    struct gb_block *b = &d->blocks[d->first];
    int r = 1;

    if (!have_part(d))
        return 0;
    while (r > 0 && d->count < GB_DOWNLOAD_COPIES && d->queued < d->length)
        r = queue_block(d, true, err);
    if (r < 0 || d->count == 0)
        return r;
    if (!b->arrived && (r = wait_block(d, err)) <= 0)
        return r;
    *ret_ptr = (char *)b->f.slot + b->sent;
    *ret_n = b->f.bytes - b->sent;
    return 1;
}

static bool has_failed(struct gb_download *d) {
    bool failed;

    pthread_mutex_lock(&d->t.lock);
    failed = d->t.error.code != GB_OK;
    pthread_mutex_unlock(&d->t.lock);
    return failed || d->copy_may_run;
}

void gb_download_ahead(struct gb_download *d) {
    struct gb_error err = GB_ERROR_INIT;
    int r = 1;

    /* After a failure the lane may still hold the block that failed. */
    if (d->direct || !d->started || has_failed(d) || !have_part(d))
        return;
    while (r > 0 && d->count < GB_DOWNLOAD_COPIES && d->queued < d->length)
        r = queue_block(d, false, &err);
    if (r < 0)
        gb_core_transfer_fail(&d->t, &err);
}

/* --- releasing slots ---------------------------------------------------------------------------------------------- */

/* Returns true if the copy has ended and no watch on it is pending. */
static bool at_rest(struct gb_download *d, struct gb_block *b) {
    bool watched;
    bool done;

    pthread_mutex_lock(&d->t.lock);
    done = b->arrived || b->fired;
    watched = b->watched;
    pthread_mutex_unlock(&d->t.lock);
    if (done || watched)
        return done;
    return gb_event_query(d->t.core->backend, b->f.end->event, &done, NULL) == 0 && done;
}

void gb_download_pause(struct gb_download *d) {
    unsigned i;

    if (d->count == 0 || !gb_slots_wanted(&d->t.core->slots))
        return;
    for (i = 0; i < d->count; i++) {
        if (!at_rest(d, &d->blocks[(d->first + i) % GB_DOWNLOAD_COPIES]))
            return;
    }
    for (i = 0; i < d->count; i++) {
        struct gb_block *b = &d->blocks[(d->first + i) % GB_DOWNLOAD_COPIES];

        if (!b->arrived)
            gb_staged_copy_account(&b->f);
        gb_staged_copy_release(&b->f);
    }
    d->count = 0;
    d->queued = d->sent;
}

/* Gives the slot back if its copies are done. Else the end of the copies gives it back, and false is returned. */
static bool release_block(struct gb_download *d, struct gb_block *b) {
    struct gb_backend *be = d->t.core->backend;
    bool done;
    bool leave;

    pthread_mutex_lock(&d->t.lock);
    done = b->arrived || b->fired;
    leave = b->watched && !b->fired;
    b->abandoned = !done;
    pthread_mutex_unlock(&d->t.lock);
    if (leave)
        return false;
    if (done || (gb_event_query(be, b->f.end->event, &done, NULL) == 0 && done)) {
        gb_staged_copy_release(&b->f);
        return true;
    }
    gb_core_transfer_ref(&d->t);
    if (gb_watch(be, b->f.end->event, arrived, b, NULL) < 0)
        gb_staged_copy_abandon(&b->f);
    return false;
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

static void destroy(struct gb_core_transfer *t) {
    struct gb_download *d = (struct gb_download *)t;

    gb_content_drop_later(d->content); /* this may be a backend's thread */
    gb_stored_unref(d->stored);
    gb_host_block_unref(d->block);
    if (d->behind)
        gb_event_pool_give(&t->device->events, d->behind);
    gb_after_done(&d->after);
    gb_core_transfer_done(t);
    gb_buffer_rec_done(&d->rec);
    free(d->scratch);
    free(d);
}

/* Without content it sends zeros, and no device is called. */
static void choose_way(struct gb_download *d) {
    if (!d->content)
        return;
    d->t.device = d->content->device;
    d->direct = gb_kind_direct_out(d->t.device, d->content->kind);
}

/* Stored bytes that are read twice within this time are loaded into memory. */
#define AGAIN_NS (60 * GB_NS_PER_S)

/* Holds bytes that are on disk or in host memory alone, which are sent from there. Returns false if the buffer does not
 * exist or has its bytes in memory. The session's lock is held. */
static bool hold_stored_locked(struct gb_download *d, const struct gb_name *name) {
    struct gb_buffer *b = gb_buffer_find_locked(d->t.session, name, NULL);
    uint64_t now_ns = gb_clock_ns();
    uint64_t before_ns;

    if (!b || b->rec.state != GB_BUFFER_STORED)
        return false;
    d->stored = gb_stored_ref(b->stored);
    d->block = gb_host_block_ref(b->stored->block);
    gb_buffer_copy_locked(b, &d->rec);
    before_ns = atomic_exchange(&b->stored->read_ns, now_ns);
    if (before_ns > 0 && now_ns - before_ns < AGAIN_NS) /* the clock itself may be younger than AGAIN_NS */
        gb_buffer_want_locked(d->t.session, b, NULL);
    return true;
}

/* No earlier write is under way any more. If that has failed, the bytes are those before it. */
static void reached_locked(struct gb_after *after) {
    struct gb_download *d = after->owner;

    if (hold_stored_locked(d, &d->name) ||
        gb_buffer_hold_locked(d->t.session, &d->name, &d->rec, &d->content, &d->why) == 0)
        choose_way(d);
}

static void turned(struct gb_after *after) {
    struct gb_download *d = after->owner;

    pthread_mutex_lock(&d->t.lock);
    d->held = true;
    d->waited_ns = gb_clock_ns() - d->t.started_ns;
    gb_core_transfer_unlock_wake(&d->t);
    gb_core_transfer_unref(&d->t);
}

static int hold_locked(struct gb_download *d, const struct gb_name *stream, bool ordered, struct gb_error *err) {
    if (gb_core_stream_use_locked(d->t.session, stream, &d->t.stream, err) < 0)
        return -1;
    if (ordered)
        gb_after_find_write_locked(d->t.session, &d->name, d->t.stream, &d->after);
    d->after.until = GB_TURN_ENDED;
    d->after.reached_locked = reached_locked;
    d->after.go = turned;
    d->after.owner = d;
    d->held = !gb_after_wait_locked(&d->after);
    if (!d->held)
        gb_core_transfer_ref(&d->t);
    return d->why.code == GB_OK ? 0 : gb_error_move(err, &d->why);
}

int gb_download_turn(struct gb_download *d, struct gb_error *err) {
    bool held;

    pthread_mutex_lock(&d->t.lock);
    held = d->held;
    d->t.want_wake = !held;
    pthread_mutex_unlock(&d->t.lock);
    if (!held)
        return 0;
    return d->why.code == GB_OK ? 1 : gb_error_move(err, &d->why);
}

bool gb_download_awaits(struct gb_session *s, const struct gb_name *name, const struct gb_name *stream) {
    struct gb_core_stream *st = NULL;
    struct gb_after after = {.on = NULL};
    bool r = false;

    if (atomic_load(&s->oldest_turn) == UINT64_MAX)
        return false;
    pthread_mutex_lock(&s->lock);
    if (gb_core_stream_use_locked(s, stream, &st, NULL) == 0) {
        gb_after_find_write_locked(s, name, st, &after);
        r = after.on != NULL;
        (void)gb_after_leave_locked(&after);
    }
    pthread_mutex_unlock(&s->lock);
    gb_core_stream_unuse(st);
    return r;
}

/* No turn wakes it any more. */
static void leave_line(struct gb_download *d) {
    struct gb_session *s = d->t.session;
    bool waited;
    bool held;

    pthread_mutex_lock(&d->t.lock);
    held = d->held;
    pthread_mutex_unlock(&d->t.lock);
    if (held)
        return;
    pthread_mutex_lock(&s->lock);
    waited = gb_after_leave_locked(&d->after);
    pthread_mutex_unlock(&s->lock);
    if (waited)
        gb_core_transfer_unref(&d->t); /* never the last: the caller has one */
}

static struct gb_download *make(struct gb_session *s, struct gb_waker waker) {
    struct gb_download *d = calloc(1, sizeof(*d));
    unsigned i;

    if (!d)
        return NULL;
    gb_core_transfer_init(&d->t, s, waker, destroy);
    d->t.device = &s->core->devices[0];
    d->direct = true;
    for (i = 0; i < GB_DOWNLOAD_COPIES; i++)
        d->blocks[i].f.transfer = &d->t;
    return d;
}

struct gb_download *gb_download_of(struct gb_session *session, struct gb_core_stream *stream,
                                   struct gb_content *content, enum gb_kind kind, uint64_t bytes,
                                   struct gb_waker waker) {
    struct gb_download *d = make(session, waker);

    if (!d)
        return NULL;
    d->t.stream = gb_core_stream_try_use(stream) ? stream : gb_core_stream_use_more(session->standard);
    d->held = true;
    d->content = content;
    d->rec.kind = kind;
    d->rec.bytes = bytes;
    choose_way(d);
    return d;
}

static int open_in(struct gb_session *s, const struct gb_name *name, const struct gb_name *stream, bool ordered,
                   struct gb_waker waker, struct gb_download **ret, struct gb_error *err) {
    struct gb_download *d;
    int r;

    if (gb_core_alive(s->core, err) < 0 || gb_session_alive(s, err) < 0)
        return -1;
    gb_session_touch(s);
    d = make(s, waker);
    if (!d)
        return gb_no_memory(err);
    d->name = *name;
    pthread_mutex_lock(&s->lock);
    r = hold_locked(d, stream, ordered, err);
    pthread_mutex_unlock(&s->lock);
    if (r < 0) {
        leave_line(d);
        gb_core_transfer_unref(&d->t);
        return -1;
    }
    *ret = d;
    return 0;
}

int gb_download_open_in(struct gb_session *s, const struct gb_name *name, const struct gb_name *stream,
                        struct gb_waker waker, struct gb_download **ret, struct gb_error *err) {
    return open_in(s, name, stream, false, waker, ret, err);
}

int gb_download_open_after(struct gb_session *s, const struct gb_name *name, const struct gb_name *stream,
                           struct gb_waker waker, struct gb_download **ret, struct gb_error *err) {
    return open_in(s, name, stream, true, waker, ret, err);
}

int gb_download_open(struct gb_core *core, const struct gb_name *session, const struct gb_name *name,
                     const struct gb_name *stream, struct gb_waker waker, struct gb_download **ret,
                     struct gb_error *err) {
    struct gb_session *s = gb_core_alive(core, err) < 0 ? NULL : gb_session_use(core, session, err);
    int r = s ? gb_download_open_in(s, name, stream, waker, ret, err) : -1;

    gb_session_unref(s);
    return r;
}

const struct gb_buffer_rec *gb_download_record(const struct gb_download *download) {
    return &download->rec;
}

/* --- starting ----------------------------------------------------------------------------------------------------- */

static int check_spans(const struct gb_view *view, const struct gb_span *spans, unsigned count, struct gb_error *err) {
    unsigned i;

    for (i = 0; i < count; i++) {
        if (spans[i].first > view->bytes || spans[i].length > view->bytes - spans[i].first)
            return gb_error_set(err, GB_ERR_RANGE_NOT_SATISFIABLE,
                                "%llu bytes at offset %llu are beyond the %llu there are",
                                (unsigned long long)spans[i].length, (unsigned long long)spans[i].first,
                                (unsigned long long)view->bytes);
    }
    return 0;
}

static int check_view(const struct gb_download *d, struct gb_error *err) {
    if (d->view.bytes == 0 || gb_view_end(&d->view) <= d->rec.bytes)
        return 0;
    return gb_error_set(err, GB_ERR_RANGE_NOT_SATISFIABLE, "the view ends at byte %llu of the buffer's %llu",
                        (unsigned long long)gb_view_end(&d->view), (unsigned long long)d->rec.bytes);
}

/* Refuses a view of stored bytes that do not lie side by side, and wants them loaded into memory. Returns -1. */
static int want_memory(struct gb_download *d, struct gb_error *err) {
    struct gb_session *s = d->t.session;
    struct gb_buffer *b;
    int r;

    pthread_mutex_lock(&s->lock);
    b = gb_buffer_find_locked(s, &d->rec.name, err);
    r = b ? gb_buffer_want_locked(s, b, err) : -1;
    if (r == 0) /* the buffer has its bytes now */
        r = gb_error_set(err, GB_ERR_BUFFER_BUSY, "the bytes have just been loaded; try again");
    pthread_mutex_unlock(&s->lock);
    return r;
}

int gb_download_start_view(struct gb_download *d, const struct gb_view *view, const struct gb_span *spans,
                           unsigned count, struct gb_error *err) {
    unsigned i;

    if (d->started)
        return gb_error_set(err, GB_ERR_INTERNAL, "a download starts once");
    d->view = view ? *view : gb_view_plain(0, d->rec.bytes);
    d->whole = (struct gb_span){.first = 0, .length = d->view.bytes};
    d->spans = spans ? spans : &d->whole;
    d->span = d->span_at = 0;
    d->span_count = spans ? count : 1;
    if (check_view(d, err) < 0 || check_spans(&d->view, d->spans, d->span_count, err) < 0)
        return -1;
    if (d->stored && d->view.axes > 0)
        return want_memory(d, err);
    for (i = 0; i < d->span_count; i++)
        d->length += d->spans[i].length;
    d->started = true;
    d->t.started_ns = gb_clock_ns();
    if (d->silent)
        return 0;
    atomic_fetch_add(&d->t.core->downloads_running, 1);
    gb_core_changed(d->t.core);
    return 0;
}

int gb_download_start(struct gb_download *download, uint64_t offset, uint64_t length, struct gb_error *err) {
    const struct gb_view all = gb_view_plain(0, download->rec.bytes);
    const struct gb_view view = gb_view_plain(offset, length);
    const struct gb_span span = {.first = offset, .length = length};

    if (check_spans(&all, &span, 1, err) < 0)
        return -1;
    return gb_download_start_view(download, &view, NULL, 0, err);
}

/* --- the bytes ---------------------------------------------------------------------------------------------------- */

int gb_download_next(struct gb_download *download, const void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    int r;

    pthread_mutex_lock(&download->t.lock);
    download->t.want_wake = false;
    r = gb_core_transfer_check_locked(&download->t, true, err);
    pthread_mutex_unlock(&download->t.lock);
    if (r < 0)
        return -1;
    if (!download->started || download->sent == download->length)
        return gb_error_set(err, GB_ERR_INTERNAL, "no bytes of the download are left");
    if (download->stored)
        r = gb_download_cold(download, ret_ptr, ret_n, &why);
    else if (download->direct)
        r = download_direct(download, ret_ptr, ret_n, &why);
    else
        r = download_slot(download, ret_ptr, ret_n, &why);
    if (r < 0) {
        gb_core_transfer_fail(&download->t, &why);
        gb_error_move(err, &why);
    }
    return r;
}

bool gb_download_replaced(const struct gb_download *download) {
    return download->replaced;
}

void gb_download_sent(struct gb_download *download, size_t n) {
    struct gb_block *b = &download->blocks[download->first];

    download->sent += n;
    if (download->scratch)
        download->scratch_sent += n;
    if (download->count == 0)
        return;
    b->sent += n;
    if (b->sent < b->f.bytes)
        return;
    gb_staged_copy_release(&b->f);
    download->first = (download->first + 1) % GB_DOWNLOAD_COPIES;
    download->count--;
}

void gb_download_times(const struct gb_download *download, struct gb_transfer_times *ret) {
    gb_transfer_times((struct gb_core_transfer *)&download->t, ret);
    ret->queue_ms += (double)download->waited_ns / GB_NS_PER_MS;
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

/* Counts a download that broke off. Without an error of its own the client went away. */
static void count_failure(struct gb_download *d) {
    enum gb_failure why = GB_FAILURE_incomplete_body;

    pthread_mutex_lock(&d->t.lock);
    if (d->t.error.code != GB_OK)
        why = gb_failure_of(d->t.error.code, GB_FAILED_DOWNLOAD);
    pthread_mutex_unlock(&d->t.lock);
    gb_live_counters_failed(&d->t.core->live_counters, GB_FAILED_DOWNLOAD, why);
    gb_live_counters_failed(&d->t.session->live_counters, GB_FAILED_DOWNLOAD, why);
}

void gb_download_free(struct gb_download *d, bool complete) {
    struct gb_core *core;
    bool pending = false;
    unsigned i;

    if (!d)
        return;
    core = d->t.core;
    gb_core_transfer_close(&d->t);
    leave_line(d);
    gb_cold_free(d->cold);
    for (i = 0; i < d->count; i++)
        pending |= !release_block(d, &d->blocks[(d->first + i) % GB_DOWNLOAD_COPIES]);
    if (d->silent) {
        ; /* not counted */
    } else if (d->started && complete) {
        GB_COUNT(core, d->t.session, downloads, 1);
        GB_COUNT(core, d->t.session, download_bytes, d->length);
        GB_COUNT(core, d->t.session, download_ns, gb_clock_ns() - d->t.started_ns);
        GB_COUNT(core, d->t.session, download_copy_ns, d->t.copy_ns);
        GB_COUNT(core, d->t.session, download_queue_ns, d->t.queue_ns);
        gb_kind_live_counters_add(&core->kinds[GB_DOWNLOAD][d->content ? d->content->kind : d->rec.kind], d->length,
                                  d->t.copy_ns, d->t.queue_ns);
        gb_last_transfer_keep(d->content, GB_DOWNLOAD, d->length, d->t.queue_ns, d->t.copy_ns);
    } else if (d->started) {
        count_failure(d);
    }
    if (d->started && !d->silent) {
        atomic_fetch_sub(&core->downloads_running, 1);
        gb_core_changed(core);
    }
    /* The content is freed in the order of its own stream, so after the copies on that. Copies on another stream must
     * end first: the last reference to the transfer drops the content then. */
    pthread_mutex_lock(&d->t.lock);
    if (d->direct)
        pending = d->watching;
    else
        pending = d->watching || ((pending || d->copy_may_run) && d->content->alloc_stream != d->t.stream);
    pthread_mutex_unlock(&d->t.lock);
    if (!pending) {
        gb_content_drop(d->content, NULL, NULL);
        d->content = NULL;
    }
    gb_core_transfer_unref(&d->t);
}
