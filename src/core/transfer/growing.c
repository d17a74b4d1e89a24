/* The role of an upload whose payload has an unknown length. Its memory is a list of segments. Each segment is as large
 * as all before it together, within bounds, and is allocated when the one before is full; so no byte is moved before
 * the payload has ended. Then the device copies all segments into memory of the exact size, which becomes the buffer's.
 * Memory that already has the exact size, because the caller reserved it, is not copied. */
#include "base/container.h"
#include "core/buffer/buffer.h"
#include "core/memory/content.h"
#include "core/session/quota.h"
#include "core/transfer/upload.h"
#include "core/util/lane.h"

#define SEGMENT_BYTES_LEAST (4u << 10) /* where the quota is tight */
#define SEGMENT_BYTES_MIN (1u << 20)
#define SEGMENT_BYTES_MAX (256u << 20)

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* --- segments ----------------------------------------------------------------------------------------------------- */

/* Refuses one more segment if the quota has no room for it and, at the end, for all bytes in one piece. Returns 0 or
 * -1. */
static int check_quota_locked(struct gb_session *s, enum gb_kind kind, uint64_t held, uint64_t bytes, bool tell,
                              struct gb_error *err) {
    uint64_t more = bytes + held + bytes;

    if (gb_quota_check_locked(s, more, 0, tell, err) < 0)
        return -1;
    return kind == GB_KIND_PINNED ? gb_quota_check_pinned_locked(s, more, tell, err) : 0;
}

/* The size of the segment that follows `held` bytes, if at most `left` bytes come. It is smaller if the quota is
 * tight. */
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
    if (draft->buffer && !draft->later && gb_guard_check_unsealed_locked(draft->buffer, err) < 0)
        return -1;
    draft->has_crc32c = true;
    draft->open_ended = true;
    draft->payload = p->bytes;
    draft->bytes = p->reserve ? p->bytes : size_locked(s, draft->kind, 0, p->bytes);
    return 0;
}

static void append(struct gb_upload *u, struct gb_content *segment) {
    struct gb_upload_segments *s = &u->segments;

    if (s->last)
        s->last->next = segment;
    else
        s->full = segment;
    s->last = segment;
}

/* The size of the next segment. A payload that could not be committed is refused now. Returns 0 or -1. */
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

/* Reserves *exact bytes of the upload's kind of memory, or the next segment if exact is NULL. Returns 0 or -1. */
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

/* True if all memory is full and more bytes may come. */
static bool is_full(struct gb_upload *u) {
    bool full;

    pthread_mutex_lock(&u->t.lock);
    full = u->state == GB_UPLOAD_OPEN && u->filled == u->segments.until && u->filled < u->plan.payload;
    pthread_mutex_unlock(&u->t.lock);
    return full;
}

static int grow(struct gb_upload *u, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    struct gb_content *next;
    bool open;

    if (!is_full(u))
        return 0;
    if (reserve(u, NULL, &next, &why) < 0) {
        gb_upload_fail(u, &why);
        return gb_error_move(err, &why);
    }
    pthread_mutex_lock(&u->t.lock);
    open = u->state == GB_UPLOAD_OPEN;
    if (open) {
        append(u, u->content);
        u->content = next;
        u->attached = false;
        u->segments.from = u->segments.until;
        u->segments.until += next->bytes;
        (void)gb_upload_step_locked(u, GB_UPLOAD_ALLOCATING);
        gb_upload_pend_locked(u);
    }
    pthread_mutex_unlock(&u->t.lock);
    if (!open) { /* it has failed meanwhile */
        gb_content_drop(next, NULL, NULL);
        return 0;
    }
    gb_core_transfer_ref(&u->t); /* the lane's */
    gb_upload_allocate(u);
    return 0;
}

/* --- the length is known ------------------------------------------------------------------------------------------ */

static int ended(struct gb_upload *u, struct gb_error *err) {
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

/* The segments leave the quota before the buffer enters it. Runs on the lane. */
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

/* Attaches managed memory that the CPU may have written to the device, which is to read it. Returns 0 or -1. */
static int detach(struct gb_upload *u, const struct gb_content *segment, struct gb_stream *stream,
                  struct gb_error *err) {
    struct gb_location place = gb_content_location(segment, 0);

    if (!segment->ptr || !gb_kind_attaches(u->t.device, segment->kind))
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
    return gb_poll_watch(be, u->usable->event, gathered, u, err);
}

/* After a failure the memory is freed in the order of the stream, behind all queued work. */
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

/* Nothing is pending, so task and alloc are not in use. */
static void complete(struct gb_upload *u) {
    if (!u->segments.full && u->content->bytes == u->plan.bytes) {
        gb_upload_hand_back(u, gb_upload_commit);
        return;
    }
    u->task.run = gather;
    gb_lane_post(&u->t.device->lane, &u->task);
}

const struct gb_upload_role gb_upload_growing = {.plan = plan,
                                                 .ended = ended,
                                                 .complete = complete,
                                                 .committed = gb_upload_count,
                                                 .gone = gb_upload_gone,
                                                 .from_client = true,
                                                 .ordered = true,
                                                 .grow = grow};
