/* Bytes of an upload as they come, with more memory if their number is unknown, and its commit. */
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/hash.h"
#include "base/process.h"
#include "core/buffer/buffer.h"
#include "core/memory/content.h"
#include "core/session/quota.h"
#include "core/transfer/upload.h"
#include "core/util/lane.h"

/* --- bytes that come ---------------------------------------------------------------------------------------------- */

/* The bytes of an upload: into the memory itself where the CPU reaches it, else through slots. */

/* A slot that fills belongs to its upload for this long. After that it is sent with what it holds, if others wait: slow
 * clients would keep slots for minutes otherwise, and a few of them would keep them all. */
#define HOLD_NS (200 * GB_NS_PER_MS)

/* Room at once where the CPU reaches the memory: as much as the server lets the socket gather, and still in the cache
 * when it is summed up. */
#define ROOM_BYTES (1u << 20)

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static size_t at_once(const struct gb_upload *u) {
    return u->role->room_bytes > 0 ? u->role->room_bytes : ROOM_BYTES;
}

static char *ptr_of(const struct gb_upload *u, uint64_t at) {
    return (char *)u->content->ptr + gb_upload_offset(u, at);
}

/* --- pages that are not there yet --------------------------------------------------------------------------------- */

static void touch(struct gb_task *task) {
    struct gb_upload *u = gb_container_of(task, struct gb_upload, touch);

    gb_pages_make(u->touch_at, u->touch_n);
    pthread_mutex_lock(&u->t.lock);
    u->pages = GB_UPLOAD_PAGES_THERE;
    gb_core_transfer_unlock_wake(&u->t);
    gb_core_transfer_unref(&u->t);
}

/* Clearing a huge page takes the time of a thousand requests, and a client has it cleared with one byte. So the first
 * bytes wait until a computing lane has done that: the thread of the connection has others to serve. Returns false if
 * they wait. */
static bool has_pages_locked(struct gb_upload *u, char *at, size_t n) {
    if (u->pages == GB_UPLOAD_PAGES_UNSEEN && (!u->t.device->rec.cpu_access || gb_pages_present(at, n)))
        u->pages = GB_UPLOAD_PAGES_THERE;
    if (u->pages == GB_UPLOAD_PAGES_UNSEEN) {
        u->pages = GB_UPLOAD_PAGES_COMING;
        u->touch_at = at;
        u->touch_n = n;
        u->touch.run = touch;
        gb_core_transfer_ref(&u->t);
        gb_lane_post(gb_core_compute_lane(u->t.core), &u->touch);
    }
    return u->pages == GB_UPLOAD_PAGES_THERE;
}

/* --- room --------------------------------------------------------------------------------------------------------- */

static int too_long(const struct gb_upload *u, struct gb_error *err) {
    if (u->plan.open_ended && u->plan.partial)
        return gb_error_set(err, GB_ERR_SHAPE_MISMATCH,
                            "the buffer has %llu bytes from offset %llu on, and the body has more",
                            (unsigned long long)u->plan.payload, (unsigned long long)u->plan.at);
    return gb_error_set(err, GB_ERR_BODY_TOO_LARGE,
                        u->role->grows ? "the upload may bring %llu bytes, and the body has more"
                                       : "the payload has %llu bytes and no more",
                        (unsigned long long)u->plan.payload);
}

static int room_locked(struct gb_upload *u, void **ret_ptr, struct gb_error *err) {
    uint64_t left = gb_upload_reach(u) - u->filled;
    struct gb_staged_copy *f;

    if (gb_upload_alive_locked(u, err) < 0)
        return -1;
    if (left == 0 || u->state > GB_UPLOAD_OPEN)
        return too_long(u, err);
    if (u->state != GB_UPLOAD_OPEN)
        return 0;
    if (u->plan.direct && u->plan.scattered)
        return gb_scatter_room_locked(u, ret_ptr, err);
    if (u->plan.direct) {
        *ret_ptr = ptr_of(u, u->filled);
        if (!has_pages_locked(u, *ret_ptr, least(left, at_once(u))))
            return 0;
        u->room = least(left, at_once(u));
        u->touched = true;
        return 1;
    }
    if (!u->pipe.filling && !gb_upload_begin_slot_locked(u))
        return 0;
    f = u->pipe.filling;
    *ret_ptr = (char *)f->slot + f->bytes;
    u->room = least(left, u->pipe.filling_max - f->bytes);
    return 1;
}

int gb_upload_room(struct gb_upload *upload, void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    int r;

    if (!upload->pipe.filling)
        gb_upload_reap(upload);
    if (upload->role->grows && gb_upload_grow(upload, err) < 0)
        return -1;
    pthread_mutex_lock(&upload->t.lock);
    upload->room = 0;
    r = room_locked(upload, ret_ptr, err);
    upload->t.want_wake = r == 0;
    if (r > 0)
        *ret_n = upload->room;
    pthread_mutex_unlock(&upload->t.lock);
    if (r == 0)
        gb_upload_watch_first(upload);
    return r;
}

bool gb_upload_room_ahead(struct gb_upload *u, unsigned number, void **ret_ptr, size_t *ret_n) {
    size_t each = u->plan.direct ? at_once(u) : u->pipe.filling_max;
    uint64_t at = u->filled + u->room + (number - 1) * (uint64_t)each;
    bool given;

    if (at >= gb_upload_reach(u) || u->plan.scattered || u->room == 0)
        return false;
    if (u->plan.direct) {
        *ret_ptr = ptr_of(u, at);
        *ret_n = least(gb_upload_reach(u) - at, each);
        return true;
    }
    pthread_mutex_lock(&u->t.lock);
    given = u->pipe.filling->bytes + u->room == each && gb_upload_begin_ahead_locked(u, number);
    pthread_mutex_unlock(&u->t.lock);
    if (!given)
        return false;
    *ret_ptr = u->pipe.ahead[number - 1]->slot;
    *ret_n = least(gb_upload_reach(u) - at, each);
    return true;
}

/* Where the room is that was given last; not of one whose bytes are scattered. */
static const char *room_ptr(const struct gb_upload *u) {
    const struct gb_staged_copy *f = u->pipe.filling;

    return f ? (char *)f->slot + f->bytes : ptr_of(u, u->filled);
}

int gb_upload_fill(struct gb_upload *upload, size_t n, struct gb_error *err) {
    uint64_t at = upload->filled;

    if (n > upload->room)
        return gb_error_set(err, GB_ERR_INTERNAL, "%zu bytes were filled into a room of %zu", n, upload->room);
    if (upload->disk.kept)
        gb_write_through_keep(upload, room_ptr(upload), n);
    upload->filled += n;
    upload->room -= n;
    if (upload->pipe.filling)
        return gb_upload_fill_slot(upload, n, err);
    if (upload->plan.scattered) {
        upload->crc = gb_crc32c(upload->crc, upload->scratch + upload->scratch_n, n);
        gb_scatter_fill(upload, n);
    } else {
        if (!upload->role->summed)
            upload->crc = gb_crc32c(upload->crc, ptr_of(upload, at), n);
        if (upload->disk.tee)
            gb_write_through_filled(upload);
    }
    return 0;
}

int gb_upload_copy_in(struct gb_upload *upload, const void *bytes, size_t n, size_t *done, struct gb_error *err) {
    size_t size;
    void *room;
    int r;

    while (*done < n) {
        r = gb_upload_room(upload, &room, &size, err);
        if (r <= 0)
            return r;
        size = least(size, n - *done);
        memcpy(room, (const char *)bytes + *done, size);
        if (gb_upload_fill(upload, size, err) < 0)
            return -1;
        *done += size;
    }
    return 1;
}

void gb_upload_pause(struct gb_upload *upload, bool stalled) {
    struct gb_staged_copy *f = upload->pipe.filling;

    if (stalled)
        (void)gb_upload_watch_rest(upload, NULL); /* a failure is recorded in the upload */
    if (!f || !gb_slots_wanted(&upload->t.core->slots))
        return;
    if (f->bytes > 0 && !stalled && gb_clock_ns() - upload->pipe.filling_ns < HOLD_NS)
        return;
    upload->room = 0;
    if (f->bytes > 0)
        (void)gb_upload_flush(upload, NULL);
    else
        gb_upload_drop_slot(upload);
}

/* --- unknown length ----------------------------------------------------------------------------------------------- */

/* An upload whose payload has an unknown length. Its memory is a list of segments, each of which is as large as all
 * before it together, within bounds. A segment is allocated when the one before is full, so that a byte is not moved
 * before the payload has ended. Then the device copies all segments into memory of the exact size, which becomes the
 * buffer's. Memory that is exact already, because the caller reserved it, is not copied. */

#define SEGMENT_BYTES_LEAST (4u << 10) /* where the quota is tight */
#define SEGMENT_BYTES_MIN (1u << 20)
#define SEGMENT_BYTES_MAX (256u << 20)

/* Whether the quota has room for one more segment and, at the end, for all bytes in one piece. Returns 0 or -1. */
static int check_quota_locked(struct gb_session *s, enum gb_kind kind, uint64_t held, uint64_t bytes, bool tell,
                              struct gb_error *err) {
    uint64_t more = bytes + held + bytes;

    if (gb_quota_check_locked(s, more, 0, tell, err) < 0)
        return -1;
    return kind == GB_KIND_PINNED ? gb_quota_check_pinned_locked(s, more, tell, err) : 0;
}

/* Of the segment that follows so many bytes, when at most so many come. Where the quota is tight it is smaller. */
static uint64_t size_locked(struct gb_session *s, enum gb_kind kind, uint64_t held, uint64_t left) {
    uint64_t bytes = held > SEGMENT_BYTES_MIN ? least(held, SEGMENT_BYTES_MAX) : SEGMENT_BYTES_MIN;

    bytes = least(bytes, left);
    while (bytes > SEGMENT_BYTES_LEAST && check_quota_locked(s, kind, held, bytes, false, NULL) < 0)
        bytes = bytes / 2 > SEGMENT_BYTES_LEAST ? bytes / 2 : SEGMENT_BYTES_LEAST;
    return bytes;
}

static int plan(struct gb_session *s, void *owner, const struct gb_upload_params *p, struct gb_upload_draft *draft,
                struct gb_error *err) {
    (void)owner;
    if (draft->buffer && gb_guard_check_unsealed_locked(draft->buffer, err) < 0)
        return -1;
    draft->has_crc32c = true;
    draft->open_ended = true;
    draft->payload = p->bytes;
    draft->bytes = p->reserve ? p->bytes : size_locked(s, draft->kind, 0, p->bytes);
    return 0;
}

/* --- more memory -------------------------------------------------------------------------------------------------- */

static void append(struct gb_upload *u, struct gb_content *segment) {
    struct gb_upload_segments *s = &u->segments;

    if (s->last)
        s->last->next = segment;
    else
        s->full = segment;
    s->last = segment;
}

/* A payload that could not end is refused now. */
static int next_locked(const struct gb_upload *u, uint64_t *bytes, struct gb_error *err) {
    struct gb_session *s = u->t.session;
    enum gb_kind kind = u->content->kind;
    uint64_t held = u->segments.until;

    *bytes = size_locked(s, kind, held, u->plan.payload - held);
    if (check_quota_locked(s, kind, held, *bytes, true, err) == 0)
        return 0;
    gb_quota_denied(s, err);
    return -1;
}

/* Reserves memory of the upload's kind. exact NULL: that of the next segment. err is set if and only if it fails. */
static int reserve(struct gb_upload *u, const uint64_t *exact, struct gb_content **ret, struct gb_error *err) {
    struct gb_session *s = u->t.session;
    struct gb_content *c = u->content;
    uint64_t bytes = exact ? *exact : 0;
    int r;

    pthread_mutex_lock(&s->lock);
    r = gb_session_alive(s, err);
    if (r == 0)
        r = gb_kind_check_source(c->kind, c->pool, err);
    if (r == 0 && !exact)
        r = next_locked(u, &bytes, err);
    if (r == 0)
        r = gb_content_new_locked(s, c->pool, c->kind, u->t.stream, &u->plan.buffer.name, bytes, ret, err);
    pthread_mutex_unlock(&s->lock);
    if (r < 0)
        gb_upload_advise_length(err);
    return r;
}

/* True if all memory is full and the payload may go on. */
static bool is_full(struct gb_upload *u) {
    bool full;

    pthread_mutex_lock(&u->t.lock);
    full = u->state == GB_UPLOAD_OPEN && u->filled == u->segments.until && u->filled < u->plan.payload;
    pthread_mutex_unlock(&u->t.lock);
    return full;
}

int gb_upload_grow(struct gb_upload *u, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    struct gb_content *next;
    bool goes_on;

    if (!is_full(u))
        return 0;
    if (reserve(u, NULL, &next, &why) < 0) {
        gb_upload_fail(u, &why);
        return gb_error_move(err, &why);
    }
    pthread_mutex_lock(&u->t.lock);
    goes_on = u->state == GB_UPLOAD_OPEN;
    if (goes_on) {
        append(u, u->content);
        u->content = next;
        u->attached = false;
        u->segments.from = u->segments.until;
        u->segments.until += next->bytes;
        (void)gb_upload_step_locked(u, GB_UPLOAD_ALLOCATING);
        gb_upload_pend_locked(u);
    }
    pthread_mutex_unlock(&u->t.lock);
    if (!goes_on) { /* it has failed meanwhile */
        gb_content_drop(next, NULL, NULL);
        return 0;
    }
    gb_core_transfer_ref(&u->t); /* the lane's */
    gb_upload_allocate(u);
    return 0;
}

/* --- the length is known ------------------------------------------------------------------------------------------ */

static int grow_ended(struct gb_upload *u, struct gb_error *err) {
    struct gb_upload_plan *p = gb_upload_plan_of(u);
    size_t width = gb_dtype_bytes(p->buffer.dtype);

    if (u->filled % width != 0)
        return gb_error_set(err, GB_ERR_SHAPE_MISMATCH,
                            "the body has %llu bytes, which is no whole number of %s with %zu each",
                            (unsigned long long)u->filled, gb_dtype_name(p->buffer.dtype), width);
    p->payload = p->bytes = p->buffer.bytes = u->filled;
    p->buffer.shape = (struct gb_shape){.dims = 1, .dim = {u->filled / width}};
    p->buffer.has_shape = true;
    return 0;
}

/* --- one piece of memory out of all ------------------------------------------------------------------------------- */

static void dropped(void *arg) {
    gb_upload_commit(arg, NULL);
}

/* On the lane: the segments have left the quota before the buffer is there. */
static void drop(struct gb_task *task) {
    struct gb_upload *u = gb_container_of(task, struct gb_upload, task);
    struct gb_content *segments = u->segments.full;

    u->segments.full = u->segments.last = NULL;
    gb_content_drop_list(segments, dropped, u);
}

static void gathered(void *arg, const struct gb_error *error) {
    struct gb_upload *u = arg;

    if (error) {
        gb_upload_commit(u, error);
        return;
    }
    u->task.run = drop;
    gb_lane_post(&u->t.device->lane, &u->task);
}

/* The CPU has written into managed memory; the device is to read it. */
static int detach(struct gb_upload *u, const struct gb_content *segment, struct gb_stream *stream,
                  struct gb_error *err) {
    struct gb_location place = gb_content_location(segment, 0);

    if (!u->plan.direct || !segment->ptr || !gb_kind_attaches(u->t.device, segment->kind))
        return 0;
    return gb_mem_attach(u->t.core->backend, &place, false, stream, err);
}

static int queue(struct gb_upload *u, struct gb_error *err) {
    struct gb_stream *stream = gb_core_transfer_part(&u->t);
    struct gb_backend *be = u->t.core->backend;
    struct gb_content *c;
    enum gb_copy_way way;
    uint64_t at = 0;
    uint64_t n;

    for (c = u->segments.full; c; c = c->next, at += n) {
        n = least(c->bytes, u->filled - at);
        if (detach(u, c, stream, err) < 0 || gb_content_move(u->content, at, c, 0, n, stream, &way, err) < 0)
            return -1;
    }
    if (!u->usable)
        u->usable = gb_event_pool_take(&u->t.device->events, err);
    if (!u->usable || gb_event_record(be, u->usable->event, stream, err) < 0)
        return -1;
    return gb_look_watch(be, u->usable->event, gathered, u, err);
}

/* Memory that is freed after a failure is freed in the order of the stream, behind what is queued. */
static void allocated(struct gb_alloc *alloc, const struct gb_error *error) {
    struct gb_upload *u = gb_container_of(alloc, struct gb_upload, alloc);
    struct gb_error why = GB_ERROR_INIT;

    if (error)
        why = *error;
    gb_upload_advise_length(&why);
    if (error || queue(u, &why) < 0)
        gb_upload_commit(u, &why);
}

static void gather(struct gb_task *task) {
    struct gb_upload *u = gb_container_of(task, struct gb_upload, task);
    struct gb_error why = GB_ERROR_INIT;
    struct gb_content *exact;

    if (reserve(u, &u->plan.bytes, &exact, &why) < 0) {
        gb_upload_commit(u, &why);
        return;
    }
    append(u, u->content);
    u->content = exact;
    u->attached = false;
    u->alloc.content = exact;
    u->alloc.done = allocated;
    u->alloc.anywhere = false;
    gb_alloc_start(&u->alloc, u->plan.wait_ms);
}

/* Nothing is pending, so that task and alloc are free. */
static void grow_complete(struct gb_upload *u) {
    if (!u->segments.full && u->content->bytes == u->plan.bytes) {
        gb_upload_hand_back(u, gb_upload_commit);
        return;
    }
    u->task.run = gather;
    gb_lane_post(&u->t.device->lane, &u->task);
}

const struct gb_upload_role gb_upload_growing = {.plan = plan,
                                                 .ended = grow_ended,
                                                 .complete = grow_complete,
                                                 .committed = gb_upload_count,
                                                 .gone = gb_upload_gone,
                                                 .from_client = true,
                                                 .grows = true};

/* --- the commit --------------------------------------------------------------------------------------------------- */

/* The end of an upload: the commit. */

/* --- the record --------------------------------------------------------------------------------------------------- */

static void new_record(const struct gb_upload *u, struct gb_buffer_rec *rec) {
    gb_buffer_rec_done(rec);
    *rec = (struct gb_buffer_rec){
        .name = u->plan.buffer.name,
        .durability = u->t.session->rec.durability,
        .spill = u->t.session->rec.spill,
        .created_at_us = gb_wall_us(),
    };
}

static void describe(const struct gb_upload *u, struct gb_buffer_rec *rec) {
    const struct gb_buffer_params *p = &u->plan.buffer;

    if (!u->plan.partial) {
        if (p->has_durability)
            rec->durability = p->durability;
        if (p->has_spill)
            rec->spill = p->spill;
        rec->bytes = u->plan.bytes;
        rec->dtype = p->dtype;
        rec->shape = p->shape;
        rec->kind = u->plan.mirrored ? GB_KIND_DEVICE : u->content->kind;
        if (p->has_labels)
            gb_text_set(&rec->labels, p->labels);
    }
    rec->device = u->t.device->index;
    rec->pool = u->plan.pool_name;
    rec->mirrored = u->plan.mirrored;
    rec->adopted = u->content->owner != NULL;
    rec->head = u->plan.mirrored ? u->plan.head : GB_HEAD_UNINITIALIZED;
    rec->stream = u->t.stream->name;
    rec->state = GB_BUFFER_READY;
    rec->generation++;
    rec->version++;
    rec->has_crc32c = !u->plan.merge && u->plan.has_crc32c;
    rec->crc32c = rec->has_crc32c ? u->crc : 0;
    rec->updated_at_us = gb_wall_us();
}

static int lost(const struct gb_buffer *b, struct gb_error *err) {
    if (b && b->live && b->rec.mirrored && b->rec.state != GB_BUFFER_LOST)
        return gb_error_set(err, GB_ERR_CONTENT_LOST,
                            "the memory of this side is gone meanwhile, with the process that owned it; upload again");
    return b && b->live && b->rec.adopted ? gb_lost(b, err)
                                          : gb_error_set(err, GB_ERR_BUFFER_NOT_FOUND, "the buffer was lost meanwhile");
}

/* Is the buffer still what the upload was begun for? */
static int check_current(struct gb_upload *u, const struct gb_buffer *b, struct gb_error *err) {
    const struct gb_upload_plan *p = &u->plan;

    if (p->in_place)
        return gb_upload_has_locked(u, b) ? 0 : lost(b, err);
    if (gb_buffer_check_locked(&p->check, b, err) < 0 ||
        (u->end_check && gb_buffer_check_locked(u->end_check, b, err) < 0))
        return -1;
    if (b && b->in_place)
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer is being overwritten in place; try again");
    if ((b && gb_guard_check_unsealed_locked(b, err) < 0) ||
        gb_kind_check_source(u->content->kind, u->content->pool, err) < 0)
        return -1;
    if (!b)
        return p->partial ? gb_error_set(err, GB_ERR_BUFFER_NOT_FOUND, "the buffer was deleted meanwhile") : 0;
    if (b->rec.mirrored != p->mirrored || (p->partial && b->rec.bytes != p->bytes) ||
        (p->merge && (b->id != p->base_id || b->rec.generation != p->base_generation)))
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer was written meanwhile; try again");
    return 0;
}

static int validate_locked(struct gb_transaction *transaction, struct gb_buffer *b, struct gb_error *err) {
    struct gb_upload *u = gb_upload_of_transaction(transaction);

    if (check_current(u, b, err) < 0)
        return -1;
    /* The buffer that was to be replaced may have been deleted since. */
    if (!b && !u->counted) {
        if (gb_quota_take_locked(u->t.session, 0, 1, err) < 0)
            return -1;
        u->counted = true;
    }
    if (b)
        gb_buffer_copy_locked(b, &transaction->rec);
    else
        new_record(u, &transaction->rec);
    describe(u, &transaction->rec);
    /* A process that maps, or mapped, memory written in place may go on writing; so may the owner of adopted memory. */
    if (u->content->owner || (u->plan.placed && (u->content->pin_writers > 0 || u->content->tainted)))
        transaction->rec.has_crc32c = false;
    if (u->content->owner)
        transaction->rec.durability = GB_DURABILITY_NONE; /* its owner writes without a word */
    transaction->content = u->content;
    return 0;
}

/* Memory written in place is the buffer's already; only the upload's own reference is left to drop. */
static void apply_placed_locked(struct gb_upload *u, struct gb_buffer *b) {
    /* The device died while the database was busy. Of a side that alone is gone the transaction takes care. */
    if (!gb_upload_has_locked(u, b) && (!u->plan.mirrored || b->rec.state == GB_BUFFER_LOST)) {
        u->transaction.rec.state = GB_BUFFER_LOST;
        u->transaction.rec.head = GB_HEAD_UNINITIALIZED;
    }
    gb_buffer_set_locked(u->t.session, b, &u->transaction.rec, b->content);
    u->replaced = u->content;
    if (u->marked)
        b->in_place = false;
    u->marked = false;
}

static void publish_locked(struct gb_transaction *transaction, struct gb_buffer *b) {
    struct gb_upload *u = gb_upload_of_transaction(transaction);

    u->created = !b->live;
    if (u->role->from_client)
        gb_last_transfer_keep_locked(u->content, GB_UPLOAD, u->plan.payload, u->t.queue_ns, u->t.copy_ns);
    if (b->live && u->counted)
        gb_quota_give_locked(u->t.session, 0, 1);
    u->counted = false;
    if (u->plan.placed) {
        apply_placed_locked(u, b);
    } else if (u->plan.mirrored) {
        gb_buffer_set_locked(u->t.session, b, &transaction->rec, NULL);
        u->replaced = gb_buffer_set_side_locked(b, u->plan.side, u->content);
    } else {
        u->replaced = gb_buffer_set_locked(u->t.session, b, &transaction->rec, u->content);
    }
    u->content = NULL;
}

/* --- the end of the commit ---------------------------------------------------------------------------------------- */

void gb_upload_count(struct gb_upload *u) {
    struct gb_core *core = u->t.core;
    struct gb_session *s = u->t.session;

    GB_COUNT(core, s, uploads, 1);
    GB_COUNT(core, s, upload_bytes, u->plan.payload);
    GB_COUNT(core, s, upload_ns, gb_clock_ns() - u->t.started_ns);
    GB_COUNT(core, s, upload_copy_ns, u->t.copy_ns);
    GB_COUNT(core, s, upload_queue_ns, u->t.queue_ns);
    gb_kind_live_counters_add(&core->kinds[GB_UPLOAD][u->plan.kind], u->plan.payload, u->t.copy_ns, u->t.queue_ns);
}

static void finished(void *arg) {
    struct gb_upload *u = arg;
    struct gb_core *core = u->t.core;
    struct gb_session *s = u->t.session;

    GB_COUNT(core, s, mirror_copies, u->mirror_copied);
    GB_COUNT(core, s, mirror_copy_bytes, u->mirror_copied ? u->plan.bytes - u->plan.payload : 0);
    if (u->role->committed)
        u->role->committed(u);
    gb_upload_stop_running(u);
    gb_core_changed(core);
    pthread_mutex_lock(&u->t.lock);
    (void)gb_upload_step_locked(u, GB_UPLOAD_DONE);
    gb_core_transfer_unlock_wake(&u->t);
    gb_core_transfer_unref(&u->t);
}

void gb_upload_committed(struct gb_upload *u) {
    struct gb_content *replaced = u->replaced;

    u->replaced = NULL;
    gb_content_retire(replaced, finished, u);
}

static void fail(struct gb_upload *u, const struct gb_error *error) {
    gb_core_report_error(u->t.core, error);
    pthread_mutex_lock(&u->t.lock);
    gb_upload_fail_locked(u, error);
    (void)gb_upload_step_locked(u, GB_UPLOAD_FAILED);
    gb_core_transfer_unlock_wake(&u->t);
    gb_core_transfer_unref(&u->t);
}

void gb_upload_commit_end(struct gb_transaction *transaction) {
    struct gb_upload *u = gb_upload_of_transaction(transaction);

    if (transaction->error.code == GB_OK)
        gb_upload_committed(u);
    else
        fail(u, &transaction->error);
}

bool gb_upload_ready(struct gb_upload *u, const struct gb_error *error,
                     void (*end)(struct gb_transaction *transaction)) {
    if (error) {
        fail(u, error);
        return false;
    }
    gb_transaction_done(&u->transaction);
    u->transaction = (struct gb_transaction){.session = u->t.session,
                                             .name = u->plan.buffer.name,
                                             .mark = u->mark,
                                             .upkeep = u->role->upkeep,
                                             .whole = !u->plan.partial && !u->plan.merge,
                                             .begun = u->plan.in_place,
                                             .tee = u->disk.tee,
                                             .kept = gb_write_through_take_kept(u),
                                             .new_id = u->disk.new_id,
                                             .validate_locked = validate_locked,
                                             .publish_locked = publish_locked,
                                             .end = end};
    return true;
}

/* --- the end, for the caller -------------------------------------------------------------------------------------- */

/* Sends what is in a slot that would hold more. */
static int flush(struct gb_upload *u, struct gb_error *err) {
    if (gb_upload_flush(u, err) < 0)
        return -1;
    gb_upload_drop_slot(u);
    return 0;
}

void gb_upload_mark(struct gb_upload *upload, const struct gb_store_mark *mark) {
    upload->mark = *mark;
}

int gb_upload_end(struct gb_upload *upload, struct gb_error *err) {
    bool complete = false;
    int r;

    gb_upload_reap(upload);
    if (upload->plan.open_ended && flush(upload, err) < 0)
        return -1;
    if (gb_upload_watch_rest(upload, err) < 0 || (upload->role->ended && upload->role->ended(upload, err) < 0))
        return -1;
    pthread_mutex_lock(&upload->t.lock);
    r = gb_upload_alive_locked(upload, err);
    if (r == 0 && !upload->plan.open_ended && upload->filled != upload->plan.payload)
        r = gb_error_set(err, GB_ERR_INCOMPLETE_BODY, "%llu of %llu bytes came", (unsigned long long)upload->filled,
                         (unsigned long long)upload->plan.payload);
    if (r == 0 && gb_upload_step_locked(upload, GB_UPLOAD_ENDED)) {
        upload->t.want_wake = !upload->t.wake_on_error;
        complete = gb_upload_complete_locked(upload);
    }
    pthread_mutex_unlock(&upload->t.lock);
    if (complete)
        upload->role->complete(upload);
    return r;
}

int gb_upload_result(struct gb_upload *upload, struct gb_buffer_rec *ret_rec, bool *ret_created,
                     struct gb_transfer_times *ret_times, struct gb_error *err) {
    bool done;
    int r = 0;

    pthread_mutex_lock(&upload->t.lock);
    done = upload->state == GB_UPLOAD_DONE;
    if (!done && upload->t.error.code != GB_OK) {
        gb_error_move(err, &upload->t.error);
        r = -1;
    }
    upload->t.want_wake = !done && r == 0;
    pthread_mutex_unlock(&upload->t.lock);
    if (!done)
        return r;
    ret_rec->labels = NULL;
    gb_buffer_rec_set(ret_rec, &upload->transaction.rec);
    *ret_created = upload->created;
    gb_transfer_times(&upload->t, ret_times);
    return 1;
}

/* --- a plain upload ----------------------------------------------------------------------------------------------- */

void gb_upload_commit(struct gb_upload *u, const struct gb_error *error) {
    if (gb_upload_ready(u, error, gb_upload_commit_end))
        gb_transaction_start(&u->transaction);
}

static void complete(struct gb_upload *u) {
    gb_upload_hand_back(u, gb_upload_commit);
}

static int ended(struct gb_upload *u, struct gb_error *err) {
    (void)err;
    if (u->plan.open_ended)
        gb_upload_plan_of(u)->payload = u->filled;
    return 0;
}

void gb_upload_gone(struct gb_upload *u) {
    gb_upload_count_failure(u);
    gb_upload_dispose(u);
}

const struct gb_upload_role gb_upload_plain = {
    .ended = ended, .complete = complete, .committed = gb_upload_count, .gone = gb_upload_gone, .from_client = true};
