/* Decides what a write needs and whether it is permitted, by records, quota and limits. Nothing is reserved yet. */
#include <string.h>

#include "base/text.h"
#include "core/buffer/guard.h"
#include "core/session/copies.h"
#include "core/stored/disks.h"
#include "core/upload/upload.h"

/* --- where -------------------------------------------------------------------------------------------------------- */

/* A buffer that exists keeps its kind unless the caller names another. */
static enum gb_kind choose_kind(const struct gb_core *core, const struct gb_upload_params *p,
                                const struct gb_buffer *b) {
    bool given = p->buffer.has_kind || p->buffer.kind != GB_KIND_DEVICE || p->buffer.pool.s[0] != '\0';

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

static int check_limit(struct gb_session *session, const struct gb_upload_draft *draft, bool tell,
                       struct gb_error *err) {
    uint64_t limit = gb_core_pool_limit(draft->pool);
    struct gb_error why = GB_ERROR_INIT;
    struct gb_pool_stat stat;

    if (gb_core_offers(draft->pool->device, draft->kind, err) < 0)
        return -1;
    if (draft->place || draft->kind != GB_KIND_DEVICE || draft->bytes <= limit)
        return 0;
    gb_core_pool_stat(draft->pool, &stat);
    gb_error_numbers(&why, limit, stat.used_bytes, draft->bytes);
    gb_error_set(&why, GB_ERR_OUT_OF_MEMORY,
                 "pool \"%s\" has %llu bytes in all and %llu are asked for: waiting does not help, ask for less",
                 draft->pool->rec.name.s, (unsigned long long)limit, (unsigned long long)draft->bytes);
    if (tell)
        gb_alloc_denied(session, draft->pool, draft->bytes, &why);
    return gb_error_move(err, &why);
}

/* --- how much ----------------------------------------------------------------------------------------------------- */

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
        draft->payload = b->rec.bytes - p->offset;
        draft->open_ended = draft->merge = true; /* it may be none of them */
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

/* --- in place ----------------------------------------------------------------------------------------------------- */

/* Memory that is to be overwritten may be in use by the caller of this write alone. own: the write's own references. */
static int check_unused(const struct gb_upload_params *p, const struct gb_buffer *b, const struct gb_content *c,
                        unsigned own, struct gb_error *err) {
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

/* --- mirrored ----------------------------------------------------------------------------------------------------- */

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
    if (draft->mirrored && !p->partial && p->buffer.kind != GB_KIND_DEVICE)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a mirrored buffer is of kind \"device\", not \"%s\"",
                            gb_kind_name(p->buffer.kind));
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

/* The side that is written, in its present memory if that is large enough; and the bytes that it needs first. */
static int plan_side(const struct gb_upload_params *p, struct gb_upload_draft *draft, struct gb_error *err) {
    struct gb_buffer *b = draft->buffer;
    enum gb_head head = b ? b->rec.head : GB_HEAD_UNINITIALIZED;
    bool sync = draft->sync;
    struct gb_mirror_move move;

    draft->side = p->to_device_side ? GB_SIDE_DEVICE : GB_SIDE_HOST;
    draft->kind = draft->side == GB_SIDE_DEVICE ? GB_KIND_DEVICE : GB_KIND_PINNED;
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
    if (draft->place && draft->place->bytes < draft->bytes)
        draft->place = NULL;
    if (draft->place && !draft->merge && (draft->place->tainted || (draft->place->pin_count > 0 && !sync)))
        draft->place = NULL; /* all of it is new: beside what is mapped, or may be written from outside */
    draft->in_place = draft->place && !sync;
    if (draft->place)
        draft->kind = draft->place->kind;
    return draft->place ? check_unused(p, b, draft->place, draft->source == draft->place, err) : 0;
}

/* --- all of it ---------------------------------------------------------------------------------------------------- */

static int plan_place(const struct gb_upload_params *p, struct gb_upload_draft *draft, struct gb_error *err) {
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
    if (draft->buffer && gb_guard_check_unsealed_locked(draft->buffer, err) < 0)
        return -1;
    return p->partial ? plan_partial(p, draft, err) : plan_full(p, draft, err);
}

int gb_upload_draft_locked(struct gb_session *s, const struct gb_upload_params *p, const struct gb_upload_role *role,
                           void *owner, struct gb_upload_draft *draft, struct gb_error *err) {
    struct gb_buffer *b = gb_buffer_find_locked(s, &p->buffer.name, NULL);
    int r;

    *draft = (struct gb_upload_draft){.buffer = b, .kind = choose_kind(s->core, p, b)};
    draft->mirrored = b ? b->rec.mirrored : p->buffer.mirrored && !p->partial;
    if ((role->upkeep ? gb_session_alive(s, err) : gb_session_changeable_locked(s, err)) < 0)
        return -1;
    if (gb_buffer_check_locked(&p->check, b, err) < 0 ||
        (!b && gb_copies_check_name_locked(s, p->buffer.name.s, err) < 0))
        return -1;
    if (b && b->in_place)
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer is being overwritten in place; try again");
    r = role->plan ? role->plan(s, owner, p, draft, err) : plan_payload(p, draft, err);
    if (r < 0 || check_sides(p, draft, err) < 0 || (draft->merge && gb_buffer_want_locked(s, b, err) < 0))
        return -1;
    if (!p->partial && gb_kind_check_pool(draft->kind, &p->buffer.pool, err) < 0)
        return -1;
    draft->pool = choose_pool_locked(s, p, draft, err);
    if (!draft->pool || gb_kind_check_source(draft->kind, draft->pool, err) < 0)
        return -1;
    if (draft->kind == GB_KIND_DEVICE)
        draft->pool_name = draft->pool->rec.name;
    if (plan_place(p, draft, err) < 0 || check_overlap(draft, err) < 0 || plan_durability(s, p, draft, err) < 0)
        return -1;
    return check_limit(s, draft, !p->asked_before, err);
}
