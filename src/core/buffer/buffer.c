/* A buffer in memory: its sides and contents, guards that decide who may write or free them, lists of buffers that are
 * stored together, and damage. The session's lock guards all of it. Transactions, uploads, leases and the disk call
 * this. */
#include "core/buffer/buffer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "core/durable/stored.h"
#include "core/runtime/runtime.h"
#include "core/session/quota.h"

/* --- buffer ------------------------------------------------------------------------------------------------------- */

struct gb_buffer *gb_buffer_new(struct gb_session *session, const struct gb_name *name) {
    size_t size = strlen(name->s) + 1;
    struct gb_buffer *b = calloc(1, sizeof(*b) + size);

    if (!b)
        return NULL;
    b->session = session;
    b->name = memcpy(b + 1, name->s, size);
    TAILQ_INIT(&b->turns);
    return b;
}

struct gb_buffer *gb_buffer_place_locked(struct gb_session *session, const struct gb_name *name) {
    struct gb_buffer *b = gb_map_get(&session->buffers, name->s);

    if (b)
        return b;
    b = gb_buffer_new(session, name);
    if (!b)
        return NULL;
    if (gb_map_put(&session->buffers, b->name, b) < 0) {
        gb_buffer_free(b);
        return NULL;
    }
    return b;
}

struct gb_content *gb_buffer_content_at(const struct gb_buffer *buffer, int i) {
    return i < GB_SIDES ? buffer->sides[i] : buffer->content;
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

/* Writes the memory of the sides into a record of the buffer. */
static void buffer_look_sides_locked(const struct gb_buffer *buffer, struct gb_side_rec ret[GB_SIDES]) {
    int side;

    for (side = 0; side < GB_SIDES; side++) {
        const struct gb_content *c = buffer->sides[side];

        ret[side] = (struct gb_side_rec){
            .bytes = c ? c->bytes : 0, .adopted = c && c->owner, .pinned = c && c->kind == GB_KIND_PINNED};
    }
}

static bool can_be_linked(const struct gb_buffer *b) {
    return b->live && b->rec.sealed && !b->deleting && b->rec.state != GB_BUFFER_LOST;
}

/* The buffer that this generation was made a link to, also where neither has its bytes in memory. */
static const struct gb_buffer *linked_locked(const struct gb_buffer *b) {
    const struct gb_buffer_kept *rec = &b->rec;
    const struct gb_buffer *source;
    int64_t id;

    if (rec->link_id == 0 || rec->link_generation != rec->generation || rec->mapped_for_writing || rec->tainted ||
        (rec->state != GB_BUFFER_READY && rec->state != GB_BUFFER_STORED))
        return NULL;
    source = gb_idlist_after(&b->session->buffers_by_id, rec->link_id - 1, &id);
    return source && id == rec->link_id && can_be_linked(source) ? source : NULL;
}

/* Writes the name of the sealed buffer whose bytes it has by a link. If the one that it was made from is gone, another
 * one may have the same content. */
static void look_link_locked(const struct gb_buffer *buffer, struct gb_name *ret) {
    const struct gb_buffer *other = buffer->rec.sealed ? NULL : linked_locked(buffer);

    if (!other && !buffer->rec.sealed) {
        other = buffer->shares;
        while (other && other != buffer && !can_be_linked(other))
            other = other->shares;
    }
    strcpy(ret->s, other && other != buffer ? other->name : "");
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
    ret->layout = kept->layout;
    buffer_look_sides_locked(buffer, ret->sides);
    look_link_locked(buffer, &ret->link);
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
    kept->layout = rec->layout;
}

void gb_buffer_as(struct gb_buffer *copy, const struct gb_buffer_rec *rec, struct gb_text *pool, struct gb_text *stream,
                  struct gb_content *content) {
    struct gb_buffer_kept *kept = &copy->rec;

#define GB_BUFFER_FIELD(name, ...) kept->name = rec->name;
#define GB_BUFFER_TEXT(...)
#include "model/buffer.def"
    kept->labels = rec->labels;
    kept->layout = rec->layout;
    kept->pool = pool;
    kept->stream = stream;
    copy->id = rec->id;
    copy->content = content;
    copy->shares = NULL;
    copy->live = true;
    copy->deleting = copy->in_place = false;
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
    gb_error_set(err, GB_ERR_BUFFER_NOT_FOUND, "session \"%s\" has no buffer named \"%s\"",
                 gb_session_client_name(session)->s, name->s);
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
    const bool table = b->rec.dtype == GB_DTYPE_TENSORS;
    struct gb_core *core = session->core;

    session->movable += movable(b);
    atomic_fetch_add(&core->movable_buffers, movable(b));
    atomic_fetch_add(&core->movable_bytes, movable(b) ? b->rec.bytes : 0);
    session->live_buffers++;
    atomic_fetch_add(&core->mirrored_buffers, b->rec.mirrored);
    atomic_fetch_add(&core->tables, table);
    atomic_fetch_add(&core->live_buffers, 1);
    if (!count_absent(session, b, 1)) {
        atomic_fetch_add(&core->buffer_bytes, b->rec.bytes);
        atomic_fetch_add(&core->mirrored_bytes, b->rec.mirrored ? b->rec.bytes : 0);
        atomic_fetch_add(&core->table_bytes, table ? b->rec.bytes : 0);
    }
}

static void count_out(struct gb_session *session, const struct gb_buffer *b) {
    const bool table = b->rec.dtype == GB_DTYPE_TENSORS;
    struct gb_core *core = session->core;

    session->movable -= movable(b);
    atomic_fetch_sub(&core->movable_buffers, movable(b));
    atomic_fetch_sub(&core->movable_bytes, movable(b) ? b->rec.bytes : 0);
    session->live_buffers--;
    atomic_fetch_sub(&core->mirrored_buffers, b->rec.mirrored);
    atomic_fetch_sub(&core->tables, table);
    atomic_fetch_sub(&core->live_buffers, 1);
    if (!count_absent(session, b, UINT64_MAX)) {
        atomic_fetch_sub(&core->buffer_bytes, b->rec.bytes);
        atomic_fetch_sub(&core->mirrored_bytes, b->rec.mirrored ? b->rec.bytes : 0);
        atomic_fetch_sub(&core->table_bytes, table ? b->rec.bytes : 0);
    }
}

/* d: 1 or UINT64_MAX. */
static void count_link(const struct gb_content *content, uint64_t d) {
    atomic_fetch_add(&content->session->core->links, d);
    atomic_fetch_add(&content->session->core->link_bytes, d * content->bytes);
}

void gb_buffer_share_locked(struct gb_buffer *buffer, struct gb_buffer *with) {
    buffer->shares = with->shares ? with->shares : with;
    with->shares = buffer;
    count_link(with->content, 1);
    gb_guard_count_locked(buffer);
}

unsigned gb_buffer_sharers(const struct gb_buffer *buffer) {
    const struct gb_buffer *b = buffer->shares;
    unsigned n = 1;

    for (; b && b != buffer; b = b->shares)
        n++;
    return n;
}

/* Returns one that has the content still. */
static struct gb_buffer *leave_ring(struct gb_buffer *buffer) {
    struct gb_buffer *before = buffer->shares;

    while (before->shares != buffer)
        before = before->shares;
    before->shares = buffer->shares == before ? NULL : buffer->shares;
    buffer->shares = NULL;
    return before;
}

/* The buffer's content is taken from it. Returns what is to be dropped without the lock. */
static struct gb_content *take_away(struct gb_buffer *buffer) {
    struct gb_content *c = buffer->content;

    buffer->content = NULL;
    if (c && buffer->shares) {
        count_link(c, UINT64_MAX);
        gb_content_detach_one_locked(c, leave_ring(buffer));
        return NULL;
    }
    if (c)
        gb_content_detach_locked(c);
    return c;
}

struct gb_content *gb_buffer_set_locked(struct gb_session *session, struct gb_buffer *buffer,
                                        const struct gb_buffer_rec *rec, struct gb_content *content) {
    struct gb_content *old = NULL;

    if (buffer->live)
        count_out(session, buffer);
    keep(&buffer->rec, rec);
    buffer->live = true;
    count_in(session, buffer);
    if (buffer->content != content) {
        buffer->since_ns = buffer->used_ns = gb_clock_ns();
        if (content)
            gb_content_attach_locked(content, buffer);
        old = take_away(buffer);
        buffer->content = content;
    }
    gb_guard_count_locked(buffer);
    return old;
}

struct gb_content *gb_buffer_set_side_locked(struct gb_buffer *buffer, enum gb_side side, struct gb_content *content) {
    struct gb_content *old = buffer->sides[side];

    if (old == content)
        return NULL;
    buffer->since_ns = buffer->used_ns = gb_clock_ns();
    if (content)
        gb_content_attach_locked(content, buffer);
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
    struct gb_content *list = take_away(buffer);
    int side;

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
    if (buffer->live || buffer->fifo.taken || !TAILQ_EMPTY(&buffer->turns))
        return;
    gb_map_take(&session->buffers, buffer->name);
    gb_buffer_free(buffer);
}

/* The record is not written again, because the next start marks the buffer lost anyway. */
static struct gb_content *lose_homeless_locked(struct gb_session *session, struct gb_buffer *b) {
    const struct gb_content *c = b->rec.mirrored ? b->sides[GB_SIDE_DEVICE] : b->content;

    if (!b->live || !c || atomic_load(&c->pool->state) != GB_POOL_DEAD)
        return NULL;
    return gb_buffer_lose_locked(session, b);
}

static struct gb_content *lose_missing_locked(struct gb_session *session, struct gb_buffer *b) {
    bool has = b->content || b->sides[GB_SIDE_HOST] || b->sides[GB_SIDE_DEVICE];
    struct gb_content *list = NULL;
    int side;

    if (!b->live || b->rec.state == GB_BUFFER_LOST || b->rec.state == GB_BUFFER_STORED)
        return NULL;
    if (!has && !b->rec.mirrored)
        return gb_buffer_lose_locked(session, b);
    for (side = 0; b->rec.mirrored && side < GB_SIDES; side++) {
        if (!b->sides[side] && gb_side_current(b->rec.head, side))
            gb_content_list_add(&list, gb_buffer_lose_side_locked(session, b, side));
    }
    return list;
}

struct gb_content *gb_buffer_lose_freed_locked(struct gb_session *session, struct gb_buffer *buffer) {
    struct gb_content *list = lose_missing_locked(session, buffer);

    gb_content_list_add(&list, lose_homeless_locked(session, buffer));
    return list;
}

/* --- mirror ------------------------------------------------------------------------------------------------------- */

#define NONE GB_HEAD_UNINITIALIZED
#define HOST GB_HEAD_HOST
#define DEVICE GB_HEAD_DEVICE
#define SYNCED GB_HEAD_SYNCED

#define GO GB_MIRROR_GO
#define ZERO GB_MIRROR_ZERO
#define COPY GB_MIRROR_COPY
#define FROM_HOST GB_MIRROR_FROM_HOST
#define FROM_DEVICE GB_MIRROR_FROM_DEVICE
#define REFUSED GB_MIRROR_REFUSED

/* By head: uninitialized, host, device, synced. */
static const struct gb_mirror_move moves[GB_MIRROR_ACTIONS][GB_HEAD_COUNT] = {
    [GB_MIRROR_WRITE_HOST] = {{HOST, GO}, {HOST, GO}, {HOST, GO}, {HOST, GO}},
    [GB_MIRROR_WRITE_DEVICE] = {{DEVICE, GO}, {DEVICE, GO}, {DEVICE, GO}, {DEVICE, GO}},
    [GB_MIRROR_MERGE_HOST] = {{HOST, ZERO}, {HOST, GO}, {HOST, COPY}, {HOST, GO}},
    [GB_MIRROR_MERGE_DEVICE] = {{DEVICE, ZERO}, {DEVICE, COPY}, {DEVICE, GO}, {DEVICE, GO}},
    [GB_MIRROR_READ] = {{NONE, ZERO}, {HOST, FROM_HOST}, {DEVICE, FROM_DEVICE}, {SYNCED, FROM_HOST}},
    [GB_MIRROR_SYNC_HOST] = {{HOST, ZERO}, {HOST, GO}, {SYNCED, COPY}, {SYNCED, GO}},
    [GB_MIRROR_SYNC_DEVICE] = {{DEVICE, ZERO}, {SYNCED, COPY}, {DEVICE, GO}, {SYNCED, GO}},
    [GB_MIRROR_RELEASE_HOST] = {{NONE, GO}, {HOST, REFUSED}, {DEVICE, GO}, {DEVICE, GO}},
    [GB_MIRROR_RELEASE_DEVICE] = {{NONE, GO}, {HOST, GO}, {DEVICE, REFUSED}, {HOST, GO}},
    [GB_MIRROR_RELEASE_ALL] = {{NONE, GO}, {NONE, GO}, {NONE, GO}, {NONE, GO}},
};

struct gb_mirror_move gb_mirror_move(enum gb_head head, enum gb_mirror_action action) {
    return moves[action][head];
}

enum gb_mirror_action gb_mirror_write(enum gb_side side, bool merge) {
    return side == GB_SIDE_HOST ? (merge ? GB_MIRROR_MERGE_HOST : GB_MIRROR_WRITE_HOST)
                                : (merge ? GB_MIRROR_MERGE_DEVICE : GB_MIRROR_WRITE_DEVICE);
}

enum gb_side gb_other_side(enum gb_side side) {
    return side == GB_SIDE_HOST ? GB_SIDE_DEVICE : GB_SIDE_HOST;
}

/* --- guard -------------------------------------------------------------------------------------------------------- */

/* The oldest pin on the buffer, for writing if so asked for; NULL: no such pin. *ret_others: how many besides
 * it. */
static const struct gb_pin *oldest(const struct gb_buffer *b, bool writers, unsigned *ret_others) {
    const struct gb_pin *found = NULL;
    const struct gb_pin *pin;
    unsigned count = 0;
    int i;

    for (i = 0; i < GB_BUFFER_CONTENTS; i++) {
        const struct gb_content *c = gb_buffer_content_at(b, i);

        if (!c || (writers ? c->pin_writers : c->pin_count) == 0)
            continue;
        count += writers ? c->pin_writers : c->pin_count;
        TAILQ_FOREACH(pin, &c->pins, link) {
            if ((pin->write || !writers) && (!found || pin->id < found->id))
                found = pin;
            if (pin->write || !writers)
                break;
        }
    }
    *ret_others = count > 0 ? count - 1 : 0;
    return found;
}

static int refuse(const struct gb_buffer *b, const struct gb_pin *pin, unsigned others, const char *instead,
                  struct gb_error *err) {
    char more[32] = "";

    if (others > 0)
        snprintf(more, sizeof(more), " and %u more", others);
    if (pin->ttl_s > 0)
        return gb_error_set(err, GB_ERR_MAPPED, "\"%s\" is exported by lease %lld (for %llu s, for %s)%s: %s", b->name,
                            (long long)pin->id, (unsigned long long)pin->ttl_s, pin->write ? "writing" : "reading",
                            more, instead);
    return gb_error_set(err, GB_ERR_MAPPED, "\"%s\" is mapped by lease %lld (process %ld of user %ld, for %s)%s: %s",
                        b->name, (long long)pin->id, (long)pin->pid, (long)pin->uid, pin->write ? "writing" : "reading",
                        more, instead);
}

/* The bytes keep another name. */
static bool stays_named(const struct gb_buffer *b) {
    const struct gb_buffer *other;

    for (other = b->shares; other && other != b; other = other->shares) {
        if (!other->deleting)
            return true;
    }
    return false;
}

int gb_guard_check_unmapped_locked(const struct gb_buffer *b, const char *instead, struct gb_error *err) {
    unsigned others;
    const struct gb_pin *pin = b->rec.leases > 0 && !stays_named(b) ? oldest(b, false, &others) : NULL;

    return pin ? refuse(b, pin, others, instead, err) : 0;
}

bool gb_guard_mapped_by_locked(const struct gb_content *c, uint64_t holder) {
    const struct gb_pin *pin;

    TAILQ_FOREACH(pin, &c->pins, link) {
        if (pin->holder != holder)
            return false;
    }
    return true;
}

int gb_guard_check_writers_locked(const struct gb_buffer *b, struct gb_error *err) {
    unsigned others;
    const struct gb_pin *pin = b->rec.leases > 0 ? oldest(b, true, &others) : NULL;

    if (pin)
        return refuse(b, pin, others, "wait until it has ended", err);
    if (!b->rec.tainted)
        return 0;
    return gb_error_set(
        err, GB_ERR_ESCAPED,
        "a lease for writing \"%s\" was ended from outside, and its process may write on: upload it whole "
        "again, without in_place",
        b->name);
}

int gb_guard_check_unsealed_locked(const struct gb_buffer *b, struct gb_error *err) {
    if (!b->rec.sealed)
        return 0;
    return gb_error_set(err, GB_ERR_SEALED,
                        "\"%s\" is sealed: its bytes never change. Use another name, or delete it first", b->name);
}

int gb_guard_check_unshared_locked(const struct gb_buffer *b, struct gb_error *err) {
    if (!b->shares)
        return 0;
    return gb_error_set(err, GB_ERR_SEALED,
                        "\"%s\" shares its bytes with \"%s\", so they are not written where they are: write without "
                        "in_place, or map a copy",
                        b->name, b->shares->name);
}

int gb_guard_check_session_locked(const struct gb_session *s, struct gb_error *err) {
    if (s->leases == 0)
        return 0;
    return gb_error_set(err, GB_ERR_MAPPED,
                        "other processes map bytes of session \"%s\" (leases: %llu); wait until they have ended",
                        gb_session_client_name(s)->s, (unsigned long long)s->leases);
}

uint64_t gb_guard_mapped_bytes_locked(const struct gb_buffer *b) {
    uint64_t bytes = 0;
    int i;

    for (i = 0; i < GB_BUFFER_CONTENTS && !b->shares; i++) {
        const struct gb_content *c = gb_buffer_content_at(b, i);

        bytes += c && c->pin_count > 0 ? c->bytes : 0;
    }
    return bytes;
}

/* A side that is not current is written before it is read. */
static bool stale(const struct gb_buffer *b, int i) {
    return b->rec.mirrored && ((i == GB_SIDE_HOST && b->rec.head == GB_HEAD_DEVICE) ||
                               (i == GB_SIDE_DEVICE && b->rec.head == GB_HEAD_HOST));
}

static bool has_foreign_side(const struct gb_buffer *b) {
    return (b->sides[GB_SIDE_HOST] && b->sides[GB_SIDE_HOST]->owner) ||
           (b->sides[GB_SIDE_DEVICE] && b->sides[GB_SIDE_DEVICE]->owner);
}

static void count_leases(struct gb_buffer *b) {
    int i;

    b->rec.leases = 0;
    b->rec.mapped_for_writing = false;
    b->rec.tainted = false;
    for (i = 0; i < GB_BUFFER_CONTENTS; i++) {
        const struct gb_content *c = gb_buffer_content_at(b, i);

        b->rec.leases += c ? c->pin_count : 0;
        b->rec.mapped_for_writing |= c && c->pin_writers > 0;
        b->rec.tainted |= c && c->tainted && !stale(b, i);
    }
    if (b->rec.mirrored && b->rec.state != GB_BUFFER_LOST)
        b->rec.adopted = has_foreign_side(b);
}

/* A lease is on the bytes, whatever names they have. */
void gb_guard_count_locked(struct gb_buffer *b) {
    struct gb_buffer *other;

    count_leases(b);
    for (other = b->shares; other && other != b; other = other->shares)
        count_leases(other);
}

void gb_guard_tell_locked(const struct gb_buffer *b, struct gb_buffer_rec *ret) {
    ret->leases = b->rec.leases;
    ret->mapped_for_writing = b->rec.mapped_for_writing;
    ret->tainted = b->rec.tainted;
    if (b->rec.mirrored)
        ret->adopted = b->rec.adopted;
    buffer_look_sides_locked(b, ret->sides);
    look_link_locked(b, &ret->link);
}

int gb_adopted_check_locked(const struct gb_buffer *b, const char *what, struct gb_error *err) {
    if (has_foreign_side(b))
        return gb_error_set(err, GB_ERR_ADOPTED, "one side of \"%s\" is memory of another process: %s", b->name, what);
    if (!b->content || !b->content->owner)
        return 0;
    return gb_error_set(err, GB_ERR_ADOPTED, "the bytes of \"%s\" are in memory of another process: %s", b->name, what);
}

int gb_lost(const struct gb_buffer *b, struct gb_error *err) {
    if (b->rec.adopted)
        return gb_error_set(err, GB_ERR_CONTENT_LOST,
                            "the bytes of \"%s\" were in memory of another process, whose connection has ended; adopt "
                            "or upload it again",
                            b->name);
    return gb_error_set(err, GB_ERR_CONTENT_LOST, "the bytes of \"%s\" are lost; upload it again", b->name);
}

int gb_guard_check_complete_locked(const struct gb_buffer *b, const char *adopted, struct gb_error *err) {
    if (b->in_place)
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer is being overwritten in place; try again");
    if (b->rec.state == GB_BUFFER_PARTIAL)
        return gb_error_set(err, GB_ERR_BUFFER_PARTIAL,
                            "a write in place broke off here; upload the whole buffer again");
    if (b->rec.state == GB_BUFFER_LOST)
        return gb_lost(b, err);
    if (gb_adopted_check_locked(b, adopted, err) < 0)
        return -1;
    return gb_guard_check_writers_locked(b, err);
}

/* --- together ----------------------------------------------------------------------------------------------------- */

static void append(struct gb_together *to, struct gb_buffer *first, struct gb_buffer *last) {
    first->together_before = to->last;
    if (to->last)
        to->last->together_next = first;
    else
        to->first = first;
    to->last = last;
}

static void prepend(struct gb_together *to, struct gb_buffer *first, struct gb_buffer *last) {
    last->together_next = to->first;
    if (to->first)
        to->first->together_before = last;
    else
        to->last = last;
    to->first = first;
}

/* A list of `count` buffers goes to the front if its first buffer has waited longer. */
static void splice(struct gb_together *to, struct gb_buffer *first, struct gb_buffer *last, size_t count) {
    if (to->first && first->behind_ns < to->first->behind_ns)
        prepend(to, first, last);
    else
        append(to, first, last);
    to->count += count;
}

/* The smaller list is the one whose members are visited. */
static struct gb_together *merge(struct gb_together *a, struct gb_together *b) {
    struct gb_together *to = a->count < b->count ? b : a;
    struct gb_together *from = to == a ? b : a;
    struct gb_buffer *member;

    for (member = from->first; member; member = member->together_next)
        member->together = to;
    if (from->count > 0)
        splice(to, from->first, from->last, from->count);
    free(from);
    return to;
}

void gb_together_join(struct gb_together **at, struct gb_buffer *buffer) {
    if (buffer->together == *at)
        return;
    if (buffer->together) {
        *at = merge(*at, buffer->together);
        return;
    }
    buffer->together = *at;
    splice(*at, buffer, buffer, 1);
}

static void forget(struct gb_buffer *buffer) {
    buffer->together = NULL;
    buffer->together_next = buffer->together_before = NULL;
}

void gb_together_finish(struct gb_together *together) {
    if (!together || together->count > 1)
        return;
    if (together->first)
        forget(together->first);
    free(together);
}

void gb_together_leave(struct gb_buffer *buffer) {
    struct gb_together *together = buffer->together;

    if (!together)
        return;
    if (buffer->together_before)
        buffer->together_before->together_next = buffer->together_next;
    else
        together->first = buffer->together_next;
    if (buffer->together_next)
        buffer->together_next->together_before = buffer->together_before;
    else
        together->last = buffer->together_before;
    together->count--;
    forget(buffer);
    gb_together_finish(together);
}

bool gb_together_can_be_stored(const struct gb_buffer *buffer) {
    struct gb_error unused = GB_ERROR_INIT;

    return buffer->in_place || gb_guard_check_complete_locked(buffer, "", &unused) == 0;
}

struct gb_buffer *gb_together_leader(struct gb_buffer *buffer) {
    while (buffer->together && buffer->together->first != buffer && !gb_together_can_be_stored(buffer->together->first))
        gb_together_leave(buffer->together->first);
    return buffer->together ? buffer->together->first : buffer;
}

/* --- damage ------------------------------------------------------------------------------------------------------- */

bool gb_damage_is(const struct gb_error *error) {
    return error->code == GB_ERR_CONTENT_DAMAGED || error->code == GB_ERR_CONTENT_LOST;
}

void gb_damage_report(struct gb_session *session, const struct gb_name *buffer, struct gb_stored *stored,
                      const struct gb_error *error, bool often) {
    struct gb_notice notice = gb_notice_of(session, GB_NOTICE_BUFFER_DAMAGED);

    if (!gb_damage_is(error))
        return;
    gb_stored_note_damage(stored);
    notice.buffer = *buffer;
    notice.generation = stored->rec.generation;
    snprintf(notice.detail, sizeof(notice.detail), "%.120s", error->detail);
    if (often)
        gb_notice_post_limited(session->core, &notice);
    else
        gb_notice_post(session->core, &notice);
}
