#include "core/buffer/buffer.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "core/buffer/guard.h"
#include "core/buffer/together.h"
#include "core/stored/load.h"

struct gb_buffer *gb_buffer_new(const struct gb_name *name) {
    size_t size = strlen(name->s) + 1;
    struct gb_buffer *b = calloc(1, sizeof(*b) + size);

    if (b)
        memcpy(b->name, name->s, size);
    return b;
}

void gb_buffer_free(struct gb_buffer *b) {
    if (!b)
        return;
    gb_stored_unref(b->stored);
    gb_text_unref(b->rec.pool);
    gb_text_unref(b->rec.stream);
    gb_text_unref(b->rec.labels);
    free(b);
}

/* --- the record --------------------------------------------------------------------------------------------------- */

void gb_buffer_look_sides_locked(const struct gb_buffer *buffer, struct gb_side_rec ret[GB_SIDES]) {
    int side;

    for (side = 0; side < GB_SIDES; side++) {
        const struct gb_content *c = buffer->sides[side];

        ret[side] = (struct gb_side_rec){
            .bytes = c ? c->bytes : 0, .adopted = c && c->owner, .pinned = c && c->kind == GB_KIND_PINNED};
    }
}

void gb_buffer_look_locked(const struct gb_buffer *buffer, struct gb_buffer_rec *ret) {
    const struct gb_buffer_kept *kept = &buffer->rec;

#define GB_BUFFER_FIELD(name, ...) ret->name = kept->name;
#define GB_BUFFER_TEXT(...)
#include "model/buffer.def"
    strcpy(ret->name.s, buffer->name);
    strcpy(ret->pool.s, gb_text_s(kept->pool));
    strcpy(ret->stream.s, gb_text_s(kept->stream));
    ret->labels = kept->labels;
    gb_buffer_look_sides_locked(buffer, ret->sides);
    ret->damaged = buffer->stored && atomic_load(&buffer->stored->damaged);
    ret->in_host = kept->state == GB_BUFFER_STORED && buffer->stored && buffer->stored->block;
}

void gb_buffer_copy_locked(const struct gb_buffer *buffer, struct gb_buffer_rec *rec) {
    struct gb_text *old = rec->labels;

    gb_buffer_look_locked(buffer, rec);
    gb_text_ref(rec->labels);
    gb_text_unref(old);
}

static void keep(struct gb_buffer_kept *kept, const struct gb_buffer_rec *rec) {
#define GB_BUFFER_FIELD(name, ...) kept->name = rec->name;
#define GB_BUFFER_TEXT(...)
#include "model/buffer.def"
    gb_text_set(&kept->labels, rec->labels);
}

/* a, b: texts that are known already. */
static int set_name(struct gb_text **at, const struct gb_name *name, struct gb_text *a, struct gb_text *b) {
    struct gb_text *text = NULL;

    if (strcmp(gb_text_s(a), name->s) == 0)
        text = gb_text_ref(a);
    else if (strcmp(gb_text_s(b), name->s) == 0)
        text = gb_text_ref(b);
    else if (!(text = gb_text_new(name->s, strlen(name->s))))
        return -1;
    gb_text_unref(*at);
    *at = text;
    return 0;
}

int gb_buffer_pool_text_locked(struct gb_session *session, const struct gb_buffer *buffer, const struct gb_name *pool,
                               struct gb_text **at) {
    const struct gb_core_pool *known = pool->s[0] ? gb_core_pool_find_locked(session, pool, NULL) : NULL;

    return set_name(at, pool, buffer->rec.pool, known ? known->name : NULL);
}

void gb_buffer_leave_pool_locked(struct gb_session *session, struct gb_buffer *b) {
    if (b->rec.kind != GB_KIND_DEVICE || b->rec.state == GB_BUFFER_LOST || b->rec.device < 0 ||
        b->rec.device >= session->core->device_count)
        return;
    gb_text_set(&b->rec.pool, gb_session_pool_locked(session, &session->core->devices[b->rec.device])->name);
    b->rec.version++;
}

int gb_buffer_stream_text_locked(struct gb_session *session, const struct gb_buffer *buffer,
                                 const struct gb_name *stream, struct gb_text **at) {
    const struct gb_core_stream *known = gb_map_get(&session->streams, stream->s);

    return set_name(at, stream, buffer->rec.stream, (known ? known : session->standard)->name_text);
}

int gb_buffer_check_locked(const struct gb_buffer_check *check, const struct gb_buffer *buffer, struct gb_error *err) {
    struct gb_buffer_rec rec;

    if (!check || !check->check)
        return 0;
    if (buffer)
        gb_buffer_look_locked(buffer, &rec);
    return check->check(check->arg, buffer ? &rec : NULL, err);
}

/* --- what it holds ------------------------------------------------------------------------------------------------ */

struct gb_buffer *gb_buffer_find_locked(struct gb_session *session, const struct gb_name *name, struct gb_error *err) {
    struct gb_buffer *b = gb_map_get(&session->buffers, name->s);

    if (b && b->live && !b->deleting)
        return b;
    if (gb_session_alive(session, err) < 0)
        return NULL; /* they went with it */
    gb_error_set(err, GB_ERR_BUFFER_NOT_FOUND, "session \"%s\" has no buffer named \"%s\"", gb_session_told(session)->s,
                 name->s);
    return NULL;
}

/* NULL: the buffer was never written. */
static struct gb_content *current_side(const struct gb_buffer *b) {
    switch (gb_mirror_move(b->rec.head, GB_MIRROR_READ).step) {
    case GB_MIRROR_FROM_HOST:
        return b->sides[GB_SIDE_HOST];
    case GB_MIRROR_FROM_DEVICE:
        return b->sides[GB_SIDE_DEVICE];
    default:
        return NULL;
    }
}

int gb_buffer_hold_locked(struct gb_session *session, const struct gb_name *name, struct gb_buffer_rec *ret_rec,
                          struct gb_content **ret_content, struct gb_error *err) {
    struct gb_buffer *b = gb_buffer_find_locked(session, name, err);
    struct gb_content *content;

    if (!b)
        return -1;
    if (b->in_place)
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer is being overwritten in place; try again");
    if (b->rec.state == GB_BUFFER_PARTIAL)
        return gb_error_set(err, GB_ERR_BUFFER_PARTIAL,
                            "a write in place broke off here; upload the whole buffer again");
    if (gb_buffer_want_locked(session, b, err) < 0)
        return -1;
    content = b->rec.mirrored ? current_side(b) : b->content;
    if (content && content->mapping_for_write)
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer is just being mapped for writing; try again");
    if (b->rec.state == GB_BUFFER_LOST || (!content && !b->rec.mirrored))
        return gb_lost(b, err);
    gb_buffer_copy_locked(b, ret_rec);
    b->used_ns = gb_clock_ns();
    *ret_content = content ? gb_content_ref(content) : NULL;
    return 0;
}

int gb_buffer_want_locked(struct gb_session *session, struct gb_buffer *b, struct gb_error *err) {
    return b->rec.state == GB_BUFFER_STORED ? session->core->want(session, b, err) : 0;
}

/* Of buffers whose bytes are not in memory. d: 1 or -1, as the unsigned sums wrap. */
static bool count_absent(struct gb_session *session, const struct gb_buffer *b, uint64_t d) {
    if (b->rec.state == GB_BUFFER_LOST) {
        session->lost_buffers += d;
        atomic_fetch_add(&session->core->lost_buffers, d);
    } else if (b->rec.state == GB_BUFFER_STORED) {
        atomic_fetch_add(&session->core->stored_buffers, d);
        atomic_fetch_add(&session->core->stored_bytes, d * b->rec.bytes);
    } else {
        return false;
    }
    return true;
}

/* Bytes that the disk has or will have may leave memory when others want it. */
static bool movable(const struct gb_buffer *b) {
    return b->rec.state == GB_BUFFER_READY && !b->rec.resident &&
           (b->rec.durability != GB_DURABILITY_NONE || b->rec.spill != GB_SPILL_NEVER);
}

static void count_in(struct gb_session *session, const struct gb_buffer *b) {
    struct gb_core *core = session->core;

    session->movable += movable(b);
    atomic_fetch_add(&core->movable_buffers, movable(b));
    atomic_fetch_add(&core->movable_bytes, movable(b) ? b->rec.bytes : 0);
    session->live_buffers++;
    atomic_fetch_add(&core->mirrored_buffers, b->rec.mirrored);
    atomic_fetch_add(&core->live_buffers, 1);
    if (!count_absent(session, b, 1)) {
        atomic_fetch_add(&core->buffer_bytes, b->rec.bytes);
        atomic_fetch_add(&core->mirrored_bytes, b->rec.mirrored ? b->rec.bytes : 0);
    }
}

static void count_out(struct gb_session *session, const struct gb_buffer *b) {
    struct gb_core *core = session->core;

    session->movable -= movable(b);
    atomic_fetch_sub(&core->movable_buffers, movable(b));
    atomic_fetch_sub(&core->movable_bytes, movable(b) ? b->rec.bytes : 0);
    session->live_buffers--;
    atomic_fetch_sub(&core->mirrored_buffers, b->rec.mirrored);
    atomic_fetch_sub(&core->live_buffers, 1);
    if (!count_absent(session, b, UINT64_MAX)) {
        atomic_fetch_sub(&core->buffer_bytes, b->rec.bytes);
        atomic_fetch_sub(&core->mirrored_bytes, b->rec.mirrored ? b->rec.bytes : 0);
    }
}

struct gb_content *gb_buffer_set_locked(struct gb_session *session, struct gb_buffer *buffer,
                                        const struct gb_buffer_rec *rec, struct gb_content *content) {
    struct gb_content *old = buffer->content;

    if (buffer->live)
        count_out(session, buffer);
    keep(&buffer->rec, rec);
    buffer->content = content;
    buffer->live = true;
    count_in(session, buffer);
    if (old != content) {
        buffer->since_ns = buffer->used_ns = gb_clock_ns();
        if (content)
            gb_content_attach_locked(content);
        if (old)
            gb_content_detach_locked(old);
    }
    gb_guard_count_locked(buffer);
    return old == content ? NULL : old;
}

struct gb_content *gb_buffer_set_side_locked(struct gb_buffer *buffer, enum gb_side side, struct gb_content *content) {
    struct gb_content *old = buffer->sides[side];

    if (old == content)
        return NULL;
    buffer->since_ns = buffer->used_ns = gb_clock_ns();
    if (content)
        gb_content_attach_locked(content);
    if (old)
        gb_content_detach_locked(old);
    buffer->sides[side] = content;
    gb_guard_count_locked(buffer);
    return old;
}

bool gb_buffer_in_pool(const struct gb_buffer *buffer, const struct gb_core_pool *pool) {
    const struct gb_content *c = buffer->rec.mirrored ? buffer->sides[GB_SIDE_DEVICE] : buffer->content;

    return c && c->pool == pool && c->kind == GB_KIND_DEVICE;
}

/* Takes all bytes away. */
static struct gb_content *empty(struct gb_buffer *buffer) {
    struct gb_content *list = buffer->content;
    int side;

    if (list)
        gb_content_detach_locked(list);
    buffer->content = NULL;
    for (side = 0; side < GB_SIDES; side++)
        gb_content_list_add(&list, gb_buffer_set_side_locked(buffer, side, NULL));
    return list;
}

static void set_behind(struct gb_session *session, struct gb_buffer *b, bool behind) {
    session->behind += behind;
    session->behind -= b->behind;
    atomic_fetch_add(&session->core->behind_buffers, behind);
    atomic_fetch_sub(&session->core->behind_buffers, b->behind);
    b->behind = behind;
    if (!behind)
        gb_together_leave(b);
}

/* All but the list. */
static struct gb_content *clear(struct gb_session *session, struct gb_buffer *buffer) {
    struct gb_content *content = empty(buffer);

    count_out(session, buffer);
    gb_quota_give_locked(session, 0, 1);
    gb_buffer_drop_stored_locked(session, buffer);
    gb_load_unref_locked(buffer->load); /* it finds another buffer, or none */
    buffer->load = NULL;
    set_behind(session, buffer, false);
    buffer->live = false;
    buffer->deleting = false;
    buffer->in_place = false;
    return content;
}

struct gb_content *gb_buffer_clear_locked(struct gb_session *session, struct gb_buffer *buffer) {
    gb_idlist_take(&session->buffers_by_id, buffer->id);
    buffer->id = 0;
    buffer->sweep = 0;
    return clear(session, buffer);
}

struct gb_content *gb_buffer_lose_locked(struct gb_session *session, struct gb_buffer *buffer) {
    bool adopted = buffer->rec.adopted;
    struct gb_content *list = empty(buffer);
    struct gb_buffer_rec rec;

    gb_buffer_look_locked(buffer, &rec);
    rec.state = buffer->stored && buffer->stored->rec.generation == rec.generation ? GB_BUFFER_STORED : GB_BUFFER_LOST;
    rec.head = GB_HEAD_UNINITIALIZED;
    rec.adopted = adopted;
    rec.version++;
    buffer->in_place = false;
    gb_buffer_set_locked(session, buffer, &rec, NULL);
    return list;
}

void gb_buffer_keep_state_locked(const struct gb_buffer *b, struct gb_buffer_rec *rec) {
    if (b->rec.state != GB_BUFFER_LOST && b->rec.state != GB_BUFFER_STORED)
        return;
    rec->state = b->rec.state;
    rec->head = GB_HEAD_UNINITIALIZED;
}

bool gb_buffer_may_have_left_locked(const struct gb_session *session, const struct gb_name *name,
                                    const struct gb_stored *stored) {
    const struct gb_buffer *b = gb_map_get(&session->buffers, name->s);

    return !b || !b->live || b->stored != stored || b->fifo.taken;
}

void gb_buffer_warm_locked(struct gb_buffer *b, struct gb_stored *in_host) {
    struct gb_stored *stored = b->stored;

    if (in_host && stored && !stored->in_host && !stored->block && stored->rec.generation == in_host->rec.generation)
        stored->block = gb_host_block_ref(in_host->block);
    gb_stored_unref(in_host);
}

void gb_buffer_cool_locked(struct gb_session *session, struct gb_buffer *b) {
    if (!b->stored || !b->stored->block)
        return;
    if (b->stored->in_host) {
        gb_buffer_drop_stored_locked(session, b);
        return;
    }
    gb_host_block_unref(b->stored->block);
    b->stored->block = NULL;
}

bool gb_buffer_on_disk(const struct gb_buffer *b) {
    const struct gb_stored *stored = b->stored;

    if (!stored || stored->rec.generation != b->rec.generation ||
        (b->rec.state != GB_BUFFER_STORED && atomic_load(&stored->damaged)))
        return false;
    return b->rec.durability == GB_DURABILITY_NONE || !stored->spilled;
}

uint64_t gb_buffer_more_stored(const struct gb_buffer *b, uint64_t bytes) {
    uint64_t has = b->stored ? b->stored->rec.bytes : 0;

    return bytes > has ? bytes - has : 0;
}

void gb_buffer_drop_stored_locked(struct gb_session *session, struct gb_buffer *b) {
    session->used_stored_bytes -= b->stored ? b->stored->rec.bytes : 0;
    gb_stored_unref(b->stored);
    b->stored = NULL;
}

void gb_buffer_set_stored_locked(struct gb_session *session, struct gb_buffer *b, struct gb_stored *stored) {
    struct gb_stored *old = b->stored;

    session->used_stored_bytes += stored ? stored->rec.bytes : 0;
    session->used_stored_bytes -= old ? old->rec.bytes : 0;
    b->stored = stored;
    b->rec.stored_generation = stored && !stored->spilled ? stored->rec.generation : 0;
    gb_stored_condemn(old);
    gb_stored_unref(old);
}

void gb_buffer_note_behind_locked(struct gb_session *session, struct gb_buffer *b) {
    bool behind = b->live && b->rec.durability != GB_DURABILITY_NONE && b->rec.state == GB_BUFFER_READY &&
                  b->rec.stored_generation != b->rec.generation;

    if (behind && (!b->behind || b->behind_generation != b->rec.stored_generation)) {
        b->behind_ns = gb_clock_ns();
        b->behind_generation = b->rec.stored_generation;
    }
    set_behind(session, b, behind);
}

struct gb_content *gb_buffer_lose_side_locked(struct gb_session *session, struct gb_buffer *buffer, enum gb_side side) {
    enum gb_side other = gb_other_side(side);
    struct gb_content *gone;
    struct gb_buffer_rec rec;

    if (gb_side_current(buffer->rec.head, side) && !gb_side_current(buffer->rec.head, other))
        return gb_buffer_lose_locked(session, buffer);
    gone = gb_buffer_set_side_locked(buffer, side, NULL);
    if (buffer->in_place && buffer->overwritten == gone)
        buffer->in_place = false;
    gb_buffer_look_locked(buffer, &rec);
    if (gb_side_current(rec.head, side))
        rec.head = other == GB_SIDE_HOST ? GB_HEAD_HOST : GB_HEAD_DEVICE;
    rec.version++;
    gb_buffer_set_locked(session, buffer, &rec, NULL);
    return gone;
}

struct gb_content *gb_session_clear_locked(struct gb_session *session) {
    struct gb_content *list = NULL;
    struct gb_buffer *b;
    size_t at = 0;

    /* The list as a whole: taking thousands out one by one would move the rest each time. Places whose first record is
     * on the way to the database are taken out by the change that brought them. */
    while ((b = gb_map_next(&session->buffers, &at))) {
        if (!b->live)
            continue;
        gb_content_list_add(&list, clear(session, b));
        b->id = 0;
        gb_buffer_reap_locked(session, b);
    }
    session->buffers_by_id.count = 0;
    for (at = 0; (b = gb_map_next(&session->buffers, &at));) {
        if (b->id != 0)
            gb_idlist_put(&session->buffers_by_id, b->id, b); /* the room is there */
    }
    return list;
}

void gb_buffer_reap_locked(struct gb_session *session, struct gb_buffer *buffer) {
    if (buffer->live || buffer->fifo.taken)
        return;
    gb_map_take(&session->buffers, buffer->name);
    gb_buffer_free(buffer);
}
