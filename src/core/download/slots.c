/* Downloads through slots: the next copy is under way while the present one is sent. */
#include "base/container.h"
#include "core/download/download.h"
#include "core/util/look.h"

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

/* True: the stream has a part on the device, and the memory has its zeros; else wake comes. */
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

/* Queues the copies of a cut into the block's slot, behind what it holds. */
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

/* As much as fits into the slot and into the permitted number of copies, but no piece for a small rest of the slot. */
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

/* Queues the copy of the next block, if there is a slot for it. The first may stand in line (wait), others take what is
 * free. */
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
        d->unsettled = true;
        return -1;
    }
    d->count++;
    d->queued += b->f.bytes;
    return 1;
}

/* 1: the first block is in its slot; 0: wake comes; -1. */
static int wait_block(struct gb_download *d, struct gb_error *err) {
    struct gb_block *b = &d->blocks[d->first];
    struct gb_backend *be = d->t.core->backend;
    bool done = false;

    /* A watch that was set is waited for: the event must not be used again before it has fired. */
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
    if (gb_look_watch(be, b->f.end->event, arrived, b, err) == 0)
        return 0;
    pthread_mutex_lock(&d->t.lock);
    b->watched = false;
    pthread_mutex_unlock(&d->t.lock);
    gb_core_transfer_unref(&d->t); /* never the last: the caller has one */
    return -1;
}

int gb_download_slot(struct gb_download *d, const void **ret_ptr, size_t *ret_n, struct gb_error *err) {
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
    return failed || d->unsettled;
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

/* True if the copy has ended and no watch on it is pending. */
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

bool gb_download_release(struct gb_download *d, struct gb_block *b) {
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
