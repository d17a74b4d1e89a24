/* How an upload begins: it is planned, its quota is reserved, its memory is allocated, and work is queued before the
 * payload. Every refusal that needs no bytes comes before the first byte is read. Handlers call gb_upload_check and
 * gb_upload_begin; the other roles of an upload call gb_upload_make and gb_upload_start. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/text.h"
#include "core/buffer/buffer.h"
#include "core/durable/stored.h"
#include "core/memory/kept.h"
#include "core/session/quota.h"
#include "core/session/session.h"
#include "core/transfer/upload.h"

/* --- the plan: where ---------------------------------------------------------------------------------------------- */

/* The plan says what a write needs and whether records, quota and limits permit it. Nothing is reserved yet. */

/* A buffer that exists keeps its kind unless the caller names another. That of a mirrored one follows its device, which
 * may have had pools before the last restart and none now. */
static enum gb_kind choose_kind(const struct gb_core *core, const struct gb_upload_params *p,
                                const struct gb_buffer *b) {
    bool given = p->buffer.has_kind || p->buffer.kind != GB_KIND_DEVICE || p->buffer.pool.s[0] != '\0';
    int device = b && (p->partial || !p->buffer.has_device) ? b->rec.device : p->buffer.device;

    if (b && b->rec.mirrored && (p->partial || !p->buffer.has_kind) && device >= 0 && device < core->device_count)
        return gb_core_usual_kind(&core->devices[device]);
    return b && (p->partial || !given) ? b->rec.kind : gb_kind_choose(core, &p->buffer);
}

/* The pool that the caller names, else the buffer's; the pool of a lost buffer may be gone. NULL with err. */
static struct gb_core_pool *choose_pool_locked(struct gb_session *s, const struct gb_upload_params *p,
                                               const struct gb_upload_draft *draft, struct gb_error *err) {
    const struct gb_buffer *b = draft->buffer;
    struct gb_core_pool *pool = NULL;
    struct gb_name name;

    if (!b || ((p->buffer.pool.s[0] != '\0' || p->buffer.has_device) && !p->partial))
        return gb_kind_pool_locked(s, &p->buffer, err);
    if (b->content && b->rec.kind == draft->kind)
        return b->content->pool;
    if (draft->kind == GB_KIND_DEVICE && b->rec.pool) {
        strcpy(name.s, gb_text_s(b->rec.pool));
        pool = gb_core_pool_find_locked(s, &name, NULL);
    }
    if (!pool && b->rec.device < s->core->device_count)
        pool = gb_session_pool_locked(s, &s->core->devices[b->rec.device]);
    if (!pool)
        gb_error_set(err, GB_ERR_DEVICE_NOT_FOUND,
                     "the buffer's device %d is not there; name another one, or a pool (?device= or ?pool=)",
                     b->rec.device);
    return pool;
}

/* Whether the draft's bytes, and those that are kept beside them, can ever be had. An allocation without a pool asks
 * the device; only the growth of a side wants to know before, because old memory is freed first, or kept. */
static int check_limit(struct gb_session *session, const struct gb_upload_draft *draft, bool tell,
                       struct gb_error *err) {
    const struct gb_core_device *device = draft->pool->device;
    bool pooled = draft->kind == GB_KIND_DEVICE;
    uint64_t limit = pooled ? gb_core_pool_limit(draft->pool) : device->rec.total_bytes;
    uint64_t free_bytes = atomic_load(&device->free_bytes);
    struct gb_error why = GB_ERROR_INIT;
    struct gb_pool_stat stat = {.used_bytes = limit - (free_bytes < limit ? free_bytes : limit)};

    if (gb_core_offers(device, draft->kind, err) < 0)
        return -1;
    if (draft->place || (!pooled && !(draft->reserve && gb_kind_of_device(draft->kind))) ||
        (draft->bytes <= limit && draft->kept <= limit - draft->bytes))
        return 0;
    if (pooled)
        gb_core_pool_stat(draft->pool, &stat);
    gb_error_numbers(&why, limit, stat.used_bytes, draft->bytes);
    gb_error_set(&why, GB_ERR_OUT_OF_MEMORY,
                 "%s \"%s\" has %llu bytes in all and %llu are asked for: waiting does not help, ask for less",
                 pooled ? "pool" : "device", pooled ? draft->pool->rec.name.s : device->rec.name,
                 (unsigned long long)limit, (unsigned long long)draft->bytes);
    if (tell && pooled)
        gb_alloc_denied(session, draft->pool, draft->bytes, &why);
    return gb_error_move(err, &why);
}

/* --- the plan: how much ------------------------------------------------------------------------------------------- */

static int plan_full(const struct gb_upload_params *p, struct gb_upload_draft *draft, struct gb_error *err) {
    draft->bytes = draft->payload = p->bytes;
    if (p->buffer.bytes != p->bytes)
        return gb_error_set(err, GB_ERR_SHAPE_MISMATCH, "shape and dtype give %llu bytes and the payload has %llu",
                            (unsigned long long)p->buffer.bytes, (unsigned long long)p->bytes);
    return 0;
}

int gb_upload_check_merge(const struct gb_upload_draft *draft, struct gb_error *err) {
    const struct gb_buffer *b = draft->buffer;

    if (draft->merge && b->rec.state == GB_BUFFER_PARTIAL)
        return gb_error_set(err, GB_ERR_BUFFER_PARTIAL,
                            "a write in place broke off here; upload the whole buffer again");
    if (draft->merge && b->rec.state == GB_BUFFER_LOST)
        return gb_error_set(err, GB_ERR_CONTENT_LOST, "the bytes are lost; upload the whole buffer again");
    return 0;
}

static int check_view(const struct gb_upload_params *p, const struct gb_buffer *b, struct gb_error *err) {
    const struct gb_shape *made_for = &p->buffer.shape;
    const struct gb_shape *shape = &b->rec.shape;

    if (shape->dims == made_for->dims && memcmp(shape->dim, made_for->dim, shape->dims * sizeof(shape->dim[0])) == 0 &&
        p->bytes == p->view.bytes && gb_view_end(&p->view) <= b->rec.bytes)
        return 0;
    return gb_error_set(err, GB_ERR_SHAPE_MISMATCH, "the buffer's shape is no longer what the bytes were meant for");
}

static int plan_partial(const struct gb_upload_params *p, struct gb_upload_draft *draft, struct gb_error *err) {
    const struct gb_buffer *b = draft->buffer;
    uint64_t end;

    if (!b)
        return gb_error_set(err, GB_ERR_BUFFER_NOT_FOUND, "session \"%s\" has no buffer named \"%s\" to write into",
                            p->buffer.session.s, p->buffer.name.s);
    /* gb_upload_check asks this at the headers, before the number of bytes is known. */
    if (p->offset > b->rec.bytes)
        return gb_error_set(err, GB_ERR_SHAPE_MISMATCH, "the offset %llu lies beyond the %llu bytes of the buffer",
                            (unsigned long long)p->offset, (unsigned long long)b->rec.bytes);
    draft->at = p->offset;
    draft->bytes = b->rec.bytes;
    if (p->open_ended) {
        draft->payload = p->bytes < b->rec.bytes - p->offset ? p->bytes : b->rec.bytes - p->offset;
        draft->open_ended = draft->merge = true; /* the payload may be empty */
        return gb_upload_check_merge(draft, err);
    }
    if (!gb_add_u64(p->offset, p->bytes, &end) || end > b->rec.bytes)
        return gb_error_set(
            err, GB_ERR_SHAPE_MISMATCH, "%llu bytes at offset %llu do not fit into the %llu bytes of the buffer",
            (unsigned long long)p->bytes, (unsigned long long)p->offset, (unsigned long long)b->rec.bytes);
    if (p->scattered && check_view(p, b, err) < 0)
        return -1;
    draft->payload = p->bytes;
    draft->merge = p->bytes != b->rec.bytes;
    return gb_upload_check_merge(draft, err);
}

/* --- the plan: in place ------------------------------------------------------------------------------------------- */

/* Memory that is to be overwritten may be in use by the caller of this write alone. own: the write's own references. */
static int check_unused(const struct gb_upload_params *p, const struct gb_buffer *b, const struct gb_content *c,
                        unsigned own, struct gb_error *err) {
    if (gb_guard_check_unshared_locked(b, err) < 0)
        return -1;
    if (c->pin_count > 0 && (p->holder == 0 || !gb_guard_mapped_by_locked(c, p->holder)))
        return gb_guard_check_unmapped_locked(b, "wait until it has ended, or write without in_place", err);
    if (atomic_load(&c->refs) > 1 + own + c->pin_count || b->fifo.taken)
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "others use the buffer's bytes; try again");
    return 0;
}

static int plan_in_place(const struct gb_upload_params *p, struct gb_upload_draft *draft, struct gb_error *err) {
    struct gb_buffer *b = draft->buffer;

    if (b->rec.bytes != draft->bytes)
        return gb_error_set(err, GB_ERR_SHAPE_MISMATCH,
                            "a write in place needs as many bytes as the buffer has, %llu, and brings %llu",
                            (unsigned long long)b->rec.bytes, (unsigned long long)draft->bytes);
    if (b->content->pool != draft->pool)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "the buffer is in the pool \"%s\" of device %d: a write in place cannot move it",
                            gb_text_s(b->rec.pool), b->rec.device);
    if (b->rec.kind != draft->kind)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "the buffer is of kind \"%s\": a write in place cannot change that",
                            gb_kind_name(b->rec.kind));
    draft->in_place = true;
    draft->place = b->content;
    draft->base = NULL;
    return check_unused(p, b, draft->place, draft->source == draft->place, err);
}

/* --- the plan: mirrored ------------------------------------------------------------------------------------------- */

static int check_sides(const struct gb_upload_params *p, const struct gb_upload_draft *draft, struct gb_error *err) {
    const struct gb_buffer *b = draft->buffer;
    bool named = p->side_named || p->to_device_side != draft->by_device;

    if (!draft->mirrored && named)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the buffer \"%s\" has no sides: it is not mirrored",
                            p->buffer.name.s);
    if (!draft->mirrored && p->buffer.mirrored)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "the buffer \"%s\" is there and not mirrored: delete it, or choose another name",
                            p->buffer.name.s);
    if (draft->mirrored && p->buffer.has_mirrored && !p->buffer.mirrored)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "the buffer \"%s\" is there and mirrored: delete it, or choose another name",
                            p->buffer.name.s);
    if (draft->mirrored && b && !p->partial && p->buffer.pool.s[0] != '\0' &&
        strcmp(p->buffer.pool.s, gb_text_s(b->rec.pool)) != 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a mirrored buffer stays in its pool, \"%s\"",
                            gb_text_s(b->rec.pool));
    return 0;
}

/* Memory of another process is written where it is, or not at all. */
static int check_foreign_side(const struct gb_upload_params *p, const struct gb_upload_draft *draft,
                              const struct gb_content *there, struct gb_error *err) {
    const char *side = draft->side == GB_SIDE_HOST ? "host" : "device";

    if (!there || !there->owner || draft->reserve)
        return 0;
    if (p->fresh || draft->all_or_nothing)
        return gb_error_set(err, GB_ERR_ADOPTED,
                            "the %s side is memory of another process, which is written in place alone; upload or copy "
                            "all of it in one request of its own",
                            side);
    if (there->bytes < draft->bytes)
        return gb_error_set(err, GB_ERR_ADOPTED,
                            "the %s side is memory of another process, %llu bytes, and this takes %llu: release that "
                            "side first",
                            side, (unsigned long long)there->bytes, (unsigned long long)draft->bytes);
    return 0;
}

/* Whether a side that has memory gets fresh memory: the present one is too small, is to stay as it is if the batch is
 * refused, is read by an earlier request, is mapped, or may be written from outside. */
static bool moves_away(const struct gb_upload_params *p, const struct gb_upload_draft *draft) {
    const struct gb_content *c = draft->place;
    unsigned own = draft->source == c;

    if (c->bytes < draft->bytes || draft->all_or_nothing)
        return true;
    if (!draft->merge && (c->tainted || (c->pin_count > 0 && !draft->sync)))
        return true;
    if (draft->reserve || p->in_place || c->owner)
        return false;
    return c->pin_count == 0 && atomic_load(&c->refs) > 1 + own;
}

/* The side that is written, in its present memory if that can be; and the bytes that it needs first. */
static int plan_side(const struct gb_upload_params *p, struct gb_upload_draft *draft, struct gb_error *err) {
    struct gb_buffer *b = draft->buffer;
    enum gb_head head = b ? b->rec.head : GB_HEAD_UNINITIALIZED;
    bool sync = draft->sync;
    struct gb_mirror_move move;

    if (gb_kind_check_mirrored(draft->pool->device, draft->kind, err) < 0)
        return -1;
    draft->side = p->to_device_side ? GB_SIDE_DEVICE : GB_SIDE_HOST;
    draft->kind = draft->side == GB_SIDE_DEVICE ? draft->kind : GB_KIND_PINNED;
    if (draft->reserve)
        move = (struct gb_mirror_move){head, GB_MIRROR_ZERO};
    else if (sync)
        move = gb_mirror_move(head, draft->side == GB_SIDE_DEVICE ? GB_MIRROR_SYNC_DEVICE : GB_MIRROR_SYNC_HOST);
    else
        move = gb_mirror_move(head, gb_mirror_write(draft->side, draft->merge));
    if (draft->side == GB_SIDE_HOST)
        draft->pool = draft->pool->device->pool;
    draft->head = move.next;
    draft->zero = move.step == GB_MIRROR_ZERO;
    draft->base = move.step == GB_MIRROR_COPY && !sync ? b->sides[gb_other_side(draft->side)] : NULL;
    if (b && check_foreign_side(p, draft, b->sides[draft->side], err) < 0)
        return -1;
    draft->place = b && !p->fresh ? b->sides[draft->side] : NULL;
    if (draft->place && moves_away(p, draft))
        draft->place = NULL;
    if (!draft->place && draft->merge && move.step == GB_MIRROR_GO)
        draft->base = b->sides[draft->side]; /* its other bytes */
    draft->in_place = draft->place && !sync;
    if (draft->place)
        draft->kind = draft->place->kind;
    return draft->place ? check_unused(p, b, draft->place, draft->source == draft->place, err) : 0;
}

/* --- the plan: all of it ------------------------------------------------------------------------------------------ */

static int plan_place(const struct gb_upload_params *p, const struct gb_upload_role *role,
                      struct gb_upload_draft *draft, struct gb_error *err) {
    struct gb_buffer *b = draft->buffer;

    if (draft->mirrored)
        return plan_side(p, draft, err);
    draft->base = draft->merge ? b->content : NULL;
    if (b && (p->fresh || draft->all_or_nothing) &&
        gb_adopted_check_locked(
            b, "they are written in place alone; upload or copy all of it in one request of its own", err) < 0)
        return -1;
    if (b && b->content && b->content->ptr && (p->in_place || b->content->owner))
        return plan_in_place(p, draft, err);
    draft->late = draft->base && role->ordered;
    if (draft->late && !p->scattered) /* a scattered payload overwrites bytes that are there */
        draft->base = NULL;
    return 0;
}

/* An existing buffer keeps its durability unless the caller names another. */
static int plan_durability(const struct gb_session *s, const struct gb_upload_params *p, struct gb_upload_draft *draft,
                           struct gb_error *err) {
    if (p->buffer.has_durability && !p->partial)
        draft->durability = p->buffer.durability;
    else
        draft->durability = draft->buffer ? draft->buffer->rec.durability : s->rec.durability;
    return gb_disks_check_durability(s->core, draft->durability, err);
}

/* A copy must not read what it overwrites. */
static int check_overlap(const struct gb_upload_draft *draft, struct gb_error *err) {
    uint64_t bytes = draft->payload;

    if (!draft->source || draft->source != draft->place || draft->sync || bytes == 0 ||
        draft->from + bytes <= draft->at || draft->at + bytes <= draft->from)
        return 0;
    return gb_error_set(
        err, GB_ERR_INVALID_ARGUMENT,
        "the source's %llu bytes at offset %llu and the destination's at offset %llu overlap in the same "
        "memory: choose others, or copy without in_place",
        (unsigned long long)bytes, (unsigned long long)draft->from, (unsigned long long)draft->at);
}

/* How many bytes are written and where, of a payload that the caller brings. */
static int plan_payload(const struct gb_upload_params *p, struct gb_upload_draft *draft, struct gb_error *err) {
    draft->has_crc32c = !p->scattered; /* it is computed as the bytes come */
    if (draft->buffer && !draft->later && gb_guard_check_unsealed_locked(draft->buffer, err) < 0)
        return -1;
    return p->partial ? plan_partial(p, draft, err) : plan_full(p, draft, err);
}

/* Sets after to the earlier write of the buffer on the upload's stream. Returns true if there is one. */
static bool find_earlier_locked(struct gb_session *s, const struct gb_upload_params *p, struct gb_after *after) {
    struct gb_core_stream *stream = s->standard;

    if (atomic_load(&s->oldest_turn) == UINT64_MAX)
        return false;
    if (p->buffer.stream.s[0] && strcmp(p->buffer.stream.s, "default") != 0)
        stream = gb_map_get(&s->streams, p->buffer.stream.s);
    if (stream)
        gb_after_find_locked(s, &p->buffer.name, stream, after);
    return after->on;
}

static uint64_t seen_bytes(const struct gb_after *after) {
    const struct gb_buffer_rec *rec = gb_turn_rec_locked(after->on);

    return rec ? rec->bytes : UINT64_MAX;
}

/* What goes into present memory cannot begin before the earlier write has ended, nor can a part of a buffer whose size
 * that may change. after: as found. */
static bool waits_to_begin_locked(struct gb_session *s, const struct gb_upload_params *p,
                                  const struct gb_after *after) {
    const struct gb_buffer *b = gb_buffer_find_locked(s, &p->buffer.name, NULL);

    if (p->in_place || (b && (b->rec.mirrored || b->rec.adopted)))
        return true;
    return p->partial && !(b && gb_after_chained(after) && seen_bytes(after) == b->rec.bytes);
}

/* What is asked of a buffer that an earlier turn is about to write is decided at the commit. */
static int check_buffer_locked(struct gb_session *s, const struct gb_upload_params *p, const struct gb_turn *turn,
                               struct gb_upload_draft *draft, struct gb_error *err) {
    const struct gb_buffer *b = draft->buffer;
    struct gb_after earlier = {.on = NULL};

    if ((p->check.check || (b && (b->in_place || b->rec.sealed))) && !turn) {
        draft->later = find_earlier_locked(s, p, &earlier);
        (void)gb_after_leave_locked(&earlier);
    }
    if (draft->chained || draft->later)
        return 0;
    if (b && b->in_place)
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer is being overwritten in place; try again");
    if (gb_buffer_check_locked(&p->check, b, err) < 0)
        return -1;
    return b ? 0 : gb_copies_check_name_locked(s, p->buffer.name.s, err);
}

/* Of a write that leaves the buffer its dtype and shape. */
static int check_table(const struct gb_upload_params *p, const struct gb_upload_draft *draft, struct gb_error *err) {
    const struct gb_buffer *b = draft->buffer;

    if (!b || !p->partial || draft->sync || (draft->has_table && !draft->merge))
        return 0;
    return gb_upload_check_table(b, p->in_table, p->layout, err);
}

int gb_upload_draft_locked(struct gb_session *s, const struct gb_upload_params *p, const struct gb_upload_role *role,
                           void *owner, const struct gb_turn *turn, struct gb_upload_draft *draft,
                           struct gb_error *err) {
    const struct gb_after *after = turn ? &turn->after : NULL;
    struct gb_buffer *b;
    int r;

    *draft = (struct gb_upload_draft){.chained = after && gb_after_chained(after)};
    b = draft->buffer = gb_after_see_locked(s, &p->buffer.name, after, &draft->seen, NULL);
    draft->kind = choose_kind(s->core, p, b);
    draft->mirrored = b ? b->rec.mirrored : p->buffer.mirrored && !p->partial;
    if ((role->upkeep ? gb_session_alive(s, err) : gb_session_changeable_locked(s, err)) < 0)
        return -1;
    if (check_buffer_locked(s, p, turn, draft, err) < 0)
        return -1;
    r = role->plan ? role->plan(s, owner, p, draft, err) : plan_payload(p, draft, err);
    if (r < 0 || check_table(p, draft, err) < 0 || check_sides(p, draft, err) < 0 ||
        (draft->merge && gb_buffer_want_locked(s, b, err) < 0))
        return -1;
    if (!p->partial && gb_kind_check_pool(draft->kind, &p->buffer.pool, err) < 0)
        return -1;
    draft->pool = choose_pool_locked(s, p, draft, err);
    if (!draft->pool || gb_kind_check_source(draft->kind, draft->pool, err) < 0)
        return -1;
    if (draft->kind == GB_KIND_DEVICE)
        draft->pool_name = draft->pool->rec.name;
    if (plan_place(p, role, draft, err) < 0 || check_overlap(draft, err) < 0 || plan_durability(s, p, draft, err) < 0)
        return -1;
    return check_limit(s, draft, !p->asked_before, err);
}

/* --- preparation -------------------------------------------------------------------------------------------------- */

void gb_upload_advise_length(struct gb_error *err) {
    static const char advice[] = "; the end of a body of unknown length needs its bytes twice: send Content-Length";

    gb_error_append(err, GB_ERR_QUOTA_EXCEEDED, advice);
    gb_error_append(err, GB_ERR_PINNED_LIMIT, advice);
    gb_error_append(err, GB_ERR_OUT_OF_MEMORY, advice);
}

static void usable(void *arg, const struct gb_error *error) {
    struct gb_upload *u = arg;

    gb_core_report_error(u->t.core, error);
    gb_content_drop_later(u->base);
    u->base = NULL;
    pthread_mutex_lock(&u->t.lock);
    gb_upload_pended_locked(u, error);
    if (u->plan.direct) { /* else it was opened without waiting for this */
        u->t.queue_ns += gb_clock_ns() - u->prepared_ns;
        gb_upload_opened_locked(u);
    }
    gb_upload_unlock_advance(u);
    gb_core_transfer_unref(&u->t);
}

/* Records an event behind all queued work. If *ret_watched is set, usable() runs later and drops the upload's base. A
 * base that can be freed now is returned in *ret_base instead. */
static int watch(struct gb_upload *u, struct gb_stream *stream, bool *ret_watched, struct gb_content **ret_base,
                 struct gb_error *err) {
    struct gb_backend *be = u->t.core->backend;
    bool done = true;

    if (!u->usable) /* a growing upload has one since its first segment */
        u->usable = gb_event_pool_take(&u->t.device->events, err);
    if (!u->usable || gb_event_record(be, u->usable->event, stream, err) < 0 ||
        gb_event_query(be, u->usable->event, &done, err) < 0)
        return -1;
    /* The base is freed in the order of its own stream. If that is another one, the copy must be done before. */
    if (u->base && (done || u->base->alloc_stream == u->t.stream)) {
        *ret_base = u->base;
        u->base = NULL;
    }
    if (done)
        return 0;
    *ret_watched = true;
    return gb_upload_watch(u, u->usable, usable, u, err);
}

static bool attaches(const struct gb_upload *u) {
    return u->content->ptr && gb_kind_attaches(u->t.device, u->content->kind);
}

/* Fresh memory from no pool, which no queued work knows, and which the CPU may use at once. */
static bool is_new(const struct gb_upload *u) {
    return !u->plan.placed && u->content->kind != GB_KIND_DEVICE && !attaches(u) && !u->base && !u->plan.zero;
}

/* Slots bring each row of a slice by a copy of its own, unless the device does it. */
static bool may_stage(const struct gb_upload *u) {
    return !u->plan.scattered || gb_kind_of_device(u->content->kind);
}

/* The CPU writes memory itself only while the stream has no work that may use it. Else the bytes go through slots,
 * whose copies keep the stream's order, so that the client is not held up. *ret_waits: they cannot. */
static int choose_way(struct gb_upload *u, struct gb_stream *stream, bool *ret_waits, struct gb_error *err) {
    bool idle = true;

    if (!u->plan.direct || is_new(u))
        return 0;
    if (gb_stream_query(u->t.core->backend, stream, &idle, err) < 0)
        return -1;
    *ret_waits = !idle && !may_stage(u);
    if (idle || *ret_waits)
        return 0;
    pthread_mutex_lock(&u->t.lock);
    gb_upload_plan_of(u)->direct = false;
    pthread_mutex_unlock(&u->t.lock);
    return 0;
}

static int queue(struct gb_upload *u, struct gb_stream *stream, bool *ret_watched, struct gb_content **ret_base,
                 struct gb_error *err) {
    struct gb_backend *be = u->t.core->backend;
    struct gb_content *c = u->content;
    struct gb_location place = gb_content_location(c, 0);
    bool waits = false;

    if (u->role->queue && gb_staged_copy_open(&u->pipe.copies[0], stream, err) < 0)
        return -1;
    if ((u->plan.placed && gb_content_materialize(c, err) < 0) || gb_content_materialize(u->base, err) < 0)
        return -1;
    if (u->plan.placed && c->ready && gb_stream_wait(be, stream, c->ready->event, err) < 0)
        return -1;
    if (choose_way(u, stream, &waits, err) < 0 || gb_upload_queue_rest(u, stream, err) < 0)
        return -1;
    if (u->role->queue)
        return u->role->queue(u, stream, err);
    if (u->plan.direct && attaches(u)) {
        u->attached = true;
        if (gb_mem_attach(be, &place, true, stream, err) < 0)
            return -1;
    }
    if (!u->base && !(u->plan.direct && (waits || attaches(u) || u->plan.zero)))
        return 0;
    return watch(u, stream, ret_watched, ret_base, err);
}

/* --- the task ----------------------------------------------------------------------------------------------------- */

/* Queues the work that precedes the payload, and the payload itself if the role queues it. Runs on the lane, or on the
 * caller's thread while it has entered the lane or needs no call of the device (anywhere in alloc.h). */
static void prepare(struct gb_upload *u) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_content *base = NULL;
    struct gb_stream *stream;
    bool watched = false;

    u->prepared_ns = gb_clock_ns();
    if (gb_core_stream_part_make(u->t.stream, u->t.device->index, &stream, &err) < 0) {
        gb_upload_fail(u, &err);
        gb_core_transfer_unref(&u->t);
        return;
    }
    if (queue(u, stream, &watched, &base, &err) < 0) {
        gb_upload_fail(u, &err);
        gb_upload_finish_after_error(u, stream);
        gb_content_drop(base, NULL, NULL); /* its home is this stream */
        return;
    }
    gb_upload_queued(u);
    gb_content_drop(base, NULL, NULL);
    pthread_mutex_lock(&u->t.lock);
    /* Slots may be filled and queued behind the stream's earlier work. The CPU itself has to wait for that work. */
    if (!watched || !u->plan.direct)
        gb_upload_opened_locked(u);
    gb_upload_unlock_advance(u);
    if (u->plan.late)
        gb_upload_rest_part(u, GB_REST_MEMORY);
    gb_core_transfer_unref(&u->t);
}

static void prepare_task(struct gb_task *task) {
    prepare(gb_container_of(task, struct gb_upload, task));
}

/* Runs on the lane, or on the caller's thread. */
static void allocated(struct gb_alloc *alloc, const struct gb_error *error) {
    struct gb_upload *u = gb_container_of(alloc, struct gb_upload, alloc);
    struct gb_error why;

    if (!error) {
        prepare(u);
        return;
    }
    why = *error;
    if (u->role->grow)
        gb_upload_advise_length(&why);
    gb_upload_fail(u, &why);
    gb_core_transfer_unref(&u->t);
}

void gb_upload_allocate(struct gb_upload *u) {
    u->alloc.content = u->content;
    u->alloc.done = allocated;
    u->alloc.anywhere = !u->base && !u->plan.zero && !u->role->queue && !u->plan.direct;
    gb_alloc_start(&u->alloc, u->plan.wait_ms);
}

/* --- beginning ---------------------------------------------------------------------------------------------------- */

/* Adds to a refusal for lack of room what this client may do instead. The host side of a mirrored buffer is always
 * pinned. */
static void advise(const struct gb_upload_draft *draft, struct gb_error *err) {
    static const char in_place[] = "; a write in place needs no second copy";

    if (draft->mirrored)
        return;
    if (draft->buffer) {
        gb_error_append(err, GB_ERR_QUOTA_EXCEEDED, in_place);
        gb_error_append(err, GB_ERR_PINNED_LIMIT, in_place);
    } else {
        gb_error_append(err, GB_ERR_PINNED_LIMIT, GB_QUOTA_OTHER_KIND);
    }
}

static int check_quota_locked(struct gb_session *s, const struct gb_upload_params *params,
                              const struct gb_upload_draft *draft, struct gb_error *err) {
    bool tell = !params->asked_before;
    int r = gb_quota_check_locked(s, draft->place ? 0 : draft->bytes, draft->buffer ? 0 : 1, tell, err);

    if (r == 0 && !draft->place && draft->kind == GB_KIND_PINNED)
        r = gb_quota_check_pinned_locked(s, draft->bytes, tell, err);
    if (r == 0 && draft->durability == GB_DURABILITY_SYNC)
        r = gb_quota_check_stored_locked(
            s, draft->buffer ? gb_buffer_more_stored(draft->buffer, draft->bytes) : draft->bytes, tell, err);
    if (r < 0 && err && tell)
        gb_quota_denied(s, err);
    if (r < 0)
        advise(draft, err);
    return r;
}

int gb_upload_check(struct gb_core *core, const struct gb_upload_params *params, struct gb_error *err) {
    struct gb_core_stream *stream = NULL;
    struct gb_after after = {.on = NULL};
    struct gb_session *s;
    struct gb_upload_draft draft;
    bool waits = false;
    int r;

    if (gb_core_alive(core, err) < 0)
        return -1;
    s = gb_session_use_held(core, params->session, &params->buffer.session, err);
    if (!s)
        return -1;
    pthread_mutex_lock(&s->lock);
    r = gb_core_stream_use_locked(s, &params->buffer.stream, &stream, err);
    if (r == 0)
        waits = find_earlier_locked(s, params, &after) &&
                waits_to_begin_locked(s, params, &after); /* what the upload sees is not known yet */
    (void)gb_after_leave_locked(&after);
    if (r == 0 && !waits)
        r = gb_upload_draft_locked(s, params, &gb_upload_plain, NULL, NULL, &draft, err);
    if (r == 0 && !waits)
        r = check_quota_locked(s, params, &draft, err);
    pthread_mutex_unlock(&s->lock);
    if (r == 0 && !waits)
        r = gb_disks_check_room(core, draft.durability, draft.bytes, err);
    gb_core_stream_unuse(stream);
    gb_session_unref(s);
    return r;
}

/* --- making ------------------------------------------------------------------------------------------------------- */

/* Reserves what the draft needs, or nothing if it fails. Returns 0 or -1. */
static int reserve_locked(struct gb_upload *u, const struct gb_name *name, const struct gb_upload_draft *draft,
                          struct gb_error *err) {
    struct gb_session *s = u->t.session;
    struct gb_buffer *b = draft->buffer;

    if (!b && gb_quota_take_locked(s, 0, 1, err) < 0)
        return -1;
    if (draft->place) {
        u->content = gb_content_ref(draft->place);
        b->in_place = draft->in_place;
        b->overwritten = draft->place;
        if (draft->in_place)
            gb_kept_mark(draft->place);
        u->marked = draft->in_place;
    } else if (gb_content_new_locked(s, draft->pool, draft->kind, u->t.stream, name, draft->bytes, &u->content, err) <
               0) {
        advise(draft, err);
        if (!b)
            gb_quota_give_locked(s, 0, 1);
        return -1;
    }
    u->counted = !b;
    if (draft->base)
        u->base = gb_content_ref(draft->base);
    return 0;
}

static void plan_params(struct gb_upload_plan *plan, const struct gb_upload_params *params) {
    plan->buffer = params->buffer;
    plan->view = params->view;
    plan->check = params->check;
    plan->wait_ms = params->wait_ms;
    plan->scattered = params->scattered;
    plan->in_table = params->in_table;
    plan->layout = params->layout;
}

static void plan_draft_locked(struct gb_upload_plan *plan, const struct gb_upload_params *params,
                              const struct gb_upload_draft *draft) {
    const struct gb_buffer *b = draft->buffer;

    plan->pool_name = draft->pool_name;
    plan->bytes = draft->bytes;
    plan->at = draft->at;
    plan->payload = draft->payload;
    plan->open_ended = draft->open_ended;
    plan->partial = params->partial && b;
    plan->merge = draft->merge;
    plan->remakes = draft->remakes;
    plan->late = draft->late;
    plan->zero = draft->zero;
    plan->placed = draft->place != NULL;
    plan->in_place = draft->in_place;
    plan->mirrored = draft->mirrored;
    plan->has_crc32c = draft->has_crc32c;
    plan->side = draft->side;
    plan->head = draft->head;
    plan->kind = draft->kind;
    if (!b)
        return;
    plan->was = draft->mirrored ? b->sides[draft->side] : NULL;
    plan->base_id = b->id;
    plan->base_generation = b->rec.generation;
}

static int plan_locked(struct gb_upload *u, const struct gb_upload_params *params, struct gb_error *err) {
    struct gb_upload_plan *plan = gb_upload_plan_of(u);
    struct gb_upload_draft draft;

    /* One that waited to begin has its stream already. */
    if (params->stream)
        u->t.stream = gb_core_stream_use_more(params->stream);
    if (!u->t.stream && gb_core_stream_use_locked(u->t.session, &params->buffer.stream, &u->t.stream, err) < 0)
        return -1;
    if (gb_upload_draft_locked(u->t.session, params, u->role, u->owner, u->turn ? u->turn : params->turn, &draft, err) <
            0 ||
        reserve_locked(u, &params->buffer.name, &draft, err) < 0)
        return -1;
    u->t.device = u->content->device;
    plan_draft_locked(plan, params, &draft);
    u->segments.until = draft.bytes;
    plan->direct = !draft.by_device && gb_kind_direct_in(u->t.device, draft.kind);
    u->chained = draft.chained;
    u->crc = draft.crc32c;
    if (params->turn) {
        u->turn = params->turn;
        gb_upload_chain_locked(u);
    }
    gb_write_through_begin_locked(u, &draft);
    return 0;
}

/* An upload without a plan, or NULL with err. */
static struct gb_upload *make_unplanned(struct gb_core *core, const struct gb_upload_params *params,
                                        const struct gb_upload_role *role, void *owner, struct gb_error *err) {
    struct gb_session *s;
    struct gb_upload *u;

    if (gb_core_alive(core, err) < 0)
        return NULL;
    s = gb_session_use_held(core, params->session,
                            role->upkeep ? gb_session_name(params->session) : &params->buffer.session, err);
    if (!s)
        return NULL;
    u = gb_upload_new(sizeof(*u), role);
    if (!u) {
        gb_session_unref(s);
        gb_no_memory(err);
        return NULL;
    }
    u->owner = owner;
    u->pending = 1; /* the preparation */
    plan_params(gb_upload_plan_of(u), params);
    gb_text_ref(params->buffer.labels);
    gb_core_transfer_init(&u->t, s, params->waker, gb_upload_destroy);
    u->t.device = &core->devices[0];
    gb_session_unref(s);
    return u;
}

static void discard(struct gb_upload *u) {
    gb_core_transfer_done(&u->t);
    gb_text_unref(u->plan.buffer.labels);
    free(u->unplanned);
    free(u);
}

struct gb_upload *gb_upload_make(struct gb_core *core, const struct gb_upload_params *params,
                                 const struct gb_upload_role *role, void *owner, struct gb_error *err) {
    struct gb_upload *u = make_unplanned(core, params, role, owner, err);
    int r;

    if (!u)
        return NULL;
    pthread_mutex_lock(&u->t.session->lock);
    r = plan_locked(u, params, err);
    pthread_mutex_unlock(&u->t.session->lock);
    if (r == 0)
        return u;
    discard(u);
    return NULL;
}

/* --- starting ----------------------------------------------------------------------------------------------------- */

void gb_upload_count_running(struct gb_upload *u, _Atomic uint64_t *running) {
    u->running = running;
    if (running)
        atomic_fetch_add(running, 1);
    gb_core_changed(u->t.core);
}

void gb_upload_run(struct gb_upload *u, _Atomic uint64_t *running) {
    gb_upload_count_running(u, running);
    gb_core_transfer_ref(&u->t); /* the lane's */
    if (u->plan.placed) {
        u->task.run = prepare_task;
        gb_lane_post(&u->t.device->lane, &u->task);
        return;
    }
    gb_upload_allocate(u);
}

void gb_upload_start(struct gb_upload *u, _Atomic uint64_t *running) {
    (void)gb_upload_step(u, GB_UPLOAD_ALLOCATING);
    gb_upload_run(u, running);
}

/* --- beginning after earlier writes ------------------------------------------------------------------------------- */

/* An upload that writes into present memory, or a part whose buffer may change its size, begins when the earlier writes
 * of its stream have ended. Its payload may have come by then, and its turn be taken. */
static void begin_now(struct gb_after *after) {
    struct gb_upload *u = after->owner;
    struct gb_error err = GB_ERROR_INIT;
    bool waits = false;
    bool late = false;
    int r;

    gb_upload_rest_hold(u);
    pthread_mutex_lock(&u->t.session->lock);
    r = u->unplanned->partial ? gb_after_check_locked(after, &err) : 0; /* all of it needs no earlier bytes */
    if (r == 0)
        r = plan_locked(u, u->unplanned, &err);
    late = r == 0 && u->plan.late && u->turn;
    if (late)
        waits = gb_upload_rest_waits_locked(u);
    pthread_mutex_unlock(&u->t.session->lock);
    if (r == 0)
        gb_upload_start(u, &u->t.core->uploads_running);
    else
        gb_upload_fail(u, &err);
    if (!late)
        gb_upload_rest_unhold(u, NULL);
    else if (!waits)
        gb_upload_rest_part(u, GB_REST_TURN);
    gb_core_transfer_unref(&u->t);
}

static int wait_to_begin_locked(struct gb_upload *u, const struct gb_upload_params *p, struct gb_error *err) {
    u->unplanned = malloc(sizeof(*u->unplanned));
    if (!u->unplanned)
        gb_no_memory(err);
    if (!u->unplanned || gb_core_stream_use_locked(u->t.session, &p->buffer.stream, &u->t.stream, err) < 0) {
        (void)gb_after_leave_locked(&u->begins);
        return -1;
    }
    *u->unplanned = *p;
    u->unplanned->session = u->t.session;
    u->unplanned->buffer.labels = u->plan.buffer.labels;
    u->begins.until = GB_TURN_ENDED;
    u->begins.late = true;
    u->begins.go = begin_now;
    u->begins.owner = u;
    gb_core_transfer_ref(&u->t);
    (void)gb_after_wait_locked(&u->begins);
    return 0;
}

static int plan_or_wait_locked(struct gb_upload *u, const struct gb_upload_params *p, struct gb_error *err) {
    if (find_earlier_locked(u->t.session, p, &u->begins) && waits_to_begin_locked(u->t.session, p, &u->begins))
        return wait_to_begin_locked(u, p, err);
    (void)gb_after_leave_locked(&u->begins);
    return plan_locked(u, p, err);
}

int gb_upload_begin(struct gb_core *core, const struct gb_upload_params *params, struct gb_upload **ret,
                    struct gb_error *err) {
    bool grows = params->open_ended && !params->partial;
    struct gb_upload_params p = *params;
    struct gb_upload *u;
    int r;

    p.fresh = p.fresh || grows; /* existing memory does not have the size, which is unknown */
    u = make_unplanned(core, &p, grows ? &gb_upload_growing : &gb_upload_plain, NULL, err);
    if (!u)
        return -1;
    pthread_mutex_lock(&u->t.session->lock);
    r = plan_or_wait_locked(u, &p, err);
    pthread_mutex_unlock(&u->t.session->lock);
    if (r < 0) {
        discard(u);
        return -1;
    }
    if (!u->unplanned)
        gb_upload_start(u, &core->uploads_running);
    *ret = u;
    return 0;
}
