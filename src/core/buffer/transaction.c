/* A change of a buffer: validated, persisted, published, or rolled back. Operations on one buffer are such changes. */
#include "core/buffer/transaction.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/container.h"
#include "core/buffer/batch.h"
#include "core/buffer/buffer.h"
#include "core/durable/stored.h"
#include "core/memory/kept.h"
#include "core/runtime/runtime.h"
#include "core/session/quota.h"
#include "core/session/session.h"

/* --- transaction disk --------------------------------------------------------------------------------------------- */

/* The bytes that the buffer is to have. NULL: a mirrored buffer that was never written. */
static const struct gb_content *bytes_of(const struct gb_transaction *c) {
    const struct gb_buffer *b = c->buffer;

    if (c->content)
        return c->content;
    if (!c->rec.mirrored)
        return b->content;
    return gb_side_current(c->rec.head, GB_SIDE_DEVICE) ? b->sides[GB_SIDE_DEVICE] : b->sides[GB_SIDE_HOST];
}

/* The bytes are on disk already, as safe as they are to be. */
static bool has_bytes(const struct gb_transaction *c) {
    const struct gb_stored *stored = c->buffer->stored;

    if (c->warms)
        return stored && stored->block;
    if (stored && stored->in_host)
        return false;
    /* A load has no better bytes than the disk has, until it has ended. */
    return stored && stored->rec.generation == c->rec.generation && (c->spills || !stored->spilled) &&
           (c->buffer->rec.state == GB_BUFFER_STORED || !atomic_load(&stored->damaged));
}

/* Host memory alone has the bytes. NULL: it has not. */
static struct gb_host_block *block_of(const struct gb_transaction *c) {
    const struct gb_stored *stored = c->buffer->stored;

    return !c->brings && c->rec.state == GB_BUFFER_STORED && stored && stored->in_host ? stored->block : NULL;
}

static void plan_persist_locked(struct gb_transaction *c) {
    const struct gb_content *content = c->brings ? NULL : bytes_of(c);

    c->persist.session = c->session;
    c->persist.content = content ? gb_content_ref((struct gb_content *)(uintptr_t)content) : NULL;
    c->persist.block = gb_host_block_ref(block_of(c));
    c->persist.rec = &c->rec;
    c->persist.spills = c->spills;
    c->persist.strictly = c->strictly;
    c->persist.tee = c->tee && gb_tee_buffer_id(c->tee) == c->rec.id ? c->tee : NULL;
    if (!c->spills) {
        c->persist.data = c->kept;
        c->kept = NULL;
    }
}

/* Decides it, when the transaction is valid and its rec complete. The session's lock is held. */
static int transaction_plan_disk_locked(struct gb_transaction *c, struct gb_error *err) {
    const struct gb_buffer *b = c->buffer;
    const struct gb_stored *stored = b->stored;
    enum gb_durability was = b->live ? b->rec.durability : GB_DURABILITY_NONE;
    bool stores = c->rec.durability == GB_DURABILITY_SYNC || c->stores || c->with_others;

    c->persist = (struct gb_persist){.stored = NULL};
    c->durable = was == GB_DURABILITY_SYNC || (was != GB_DURABILITY_NONE && c->removes);
    c->forgets = c->drops = c->persists = c->asked = false;
    c->stored_more = 0;
    if (c->removes)
        return 0;
    c->forgets = stored && !stored->spilled && c->rec.durability == GB_DURABILITY_NONE;
    c->drops = stored && stored->spilled && stored->rec.generation != c->rec.generation;
    c->durable |= stores || c->forgets || c->brings;
    c->persists =
        c->brings || ((stores || c->spills) && (c->rec.state == GB_BUFFER_READY || block_of(c)) && !has_bytes(c));
    if (!c->persists)
        return 0;
    c->stored_more = c->warms ? 0 : gb_buffer_more_stored(b, c->rec.bytes);
    if (gb_quota_take_stored_locked(c->session, c->stored_more, err) < 0) {
        c->stored_more = 0;
        return -1;
    }
    plan_persist_locked(c);
    return 0;
}

bool gb_transaction_writes(const struct gb_transaction *c) {
    return c->persists && !c->spills;
}

/* The bytes will be others than those that the buffer has. The session's lock is held. */
static bool transaction_is_new_locked(const struct gb_transaction *c) {
    return !c->removes && (!c->buffer->live || c->rec.generation != c->buffer->rec.generation);
}

/* That of a member whose bytes were to be stored later. */
static int transaction_write_too_locked(struct gb_transaction *c, struct gb_error *err) {
    if (c->persists || c->rec.durability == GB_DURABILITY_NONE || !transaction_is_new_locked(c))
        return 0;
    c->with_others = true;
    return transaction_plan_disk_locked(c, err);
}

/* The change was refused after that. The session's lock is held. */
static void transaction_drop_disk_locked(struct gb_transaction *c) {
    gb_quota_give_stored_locked(c->session, c->stored_more);
    c->stored_more = 0;
}

/* The bytes are on disk: their checksum is known now, unless a process may be writing them. The session's lock is
 * held. */
static void transaction_take_checksum_locked(struct gb_transaction *c) {
    const struct gb_content *content = bytes_of(c);

    if (!c->persist.stored || c->persist.stored->in_host ||
        (content && (content->pin_writers > 0 || content->tainted || content->owner)))
        return;
    c->rec.has_crc32c = true;
    c->rec.crc32c = c->persist.stored->rec.crc32c;
}

/* The change for the database. Borrows from the transaction. */
static struct gb_store_edit transaction_edit(struct gb_transaction *c) {
    c->asked = true;
    return (struct gb_store_edit){.rec = &c->rec,
                                  .removes = c->removes,
                                  .durable = c->durable,
                                  .forgets = c->forgets,
                                  .stored = c->persist.stored ? &c->persist.stored->rec : NULL,
                                  .data = c->persist.data};
}

/* The buffer gets the stored bytes, and rec says so, before rec is published. The session's lock is held. */
static void transaction_publish_stored_locked(struct gb_transaction *c) {
    struct gb_buffer *b = c->buffer;

    transaction_drop_disk_locked(c);
    if (c->warms) {
        gb_buffer_warm_locked(b, c->persist.stored);
        c->persist.stored = NULL;
    } else if (c->persist.stored || c->forgets || c->drops || c->removes) {
        gb_buffer_set_stored_locked(c->session, b, c->persist.stored);
        c->persist.stored = NULL;
    }
    c->rec.stored_generation = b->stored && !b->stored->spilled ? b->stored->rec.generation : 0;
}

/* The database was not called, because another member's bytes could not be written. */
static void transaction_end_disk(struct gb_transaction *c, const struct gb_error *error) {
    if (c->persists)
        gb_persist_done(&c->persist, error->code == GB_OK, c->asked && error->code == GB_ERR_STORAGE_FAILED);
}

/* --- transaction -------------------------------------------------------------------------------------------------- */

/* If the session is gone, that is reported instead of an earlier error. */
static int no_session(struct gb_session *session, struct gb_error *error) {
    *error = GB_ERROR_INIT;
    return gb_session_alive(session, error);
}

/* A new record needs an id, and its place in the list, before it goes to the database. */
static int number_locked(struct gb_transaction *c) {
    struct gb_session *session = c->session;
    int64_t id;

    if (c->removes)
        c->rec.id = c->buffer->id;
    c->rec.session_id = session->id;
    if (!c->buffer->live || c->rec.generation != c->buffer->rec.generation)
        c->rec.run = session->core->run;
    c->rec.record_run = session->core->run;
    if (c->rec.id != 0)
        return 0;
    id = c->new_id != 0 ? c->new_id : atomic_fetch_add(&session->core->last_buffer_id, 1) + 1;
    if (gb_idlist_put(&session->buffers_by_id, id, c->buffer) < 0)
        return gb_no_memory(&c->error);
    c->buffer->id = id;
    c->rec.id = id;
    return 0;
}

/* The buffer's names are allocated before the store gets the record, because nothing after the commit may fail. */
static int prepare_names_locked(struct gb_transaction *c) {
    if (c->removes || (gb_buffer_pool_text_locked(c->session, c->buffer, &c->rec.pool, &c->pool) == 0 &&
                       gb_buffer_stream_text_locked(c->session, c->buffer, &c->rec.stream, &c->stream) == 0))
        return 0;
    return gb_no_memory(&c->error);
}

static void publish_names_locked(struct gb_transaction *c) {
    if (c->removes)
        return;
    gb_text_set(&c->buffer->rec.pool, c->pool);
    gb_text_set(&c->buffer->rec.stream, c->stream);
}

/* --- one transaction ---------------------------------------------------------------------------------------------- */

static void count_locked(struct gb_transaction *c, bool counted) {
    if (counted != c->counted)
        c->session->changing += counted ? 1 : (uint64_t)-1;
    c->counted = counted;
}

static int takes_locked(struct gb_transaction *c) {
    if (c->upkeep)
        return 0;
    return c->begun ? gb_session_open_locked(c->session, &c->error)
                    : gb_session_changeable_locked(c->session, &c->error);
}

static void rollback_locked(struct gb_transaction *c) {
    struct gb_buffer *b = c->buffer;

    c->valid = false;
    count_locked(c, false);
    b->deleting = false;
    transaction_drop_disk_locked(c);
    if (!b->live && b->id != 0) {
        gb_idlist_take(&c->session->buffers_by_id, b->id);
        b->id = 0;
    }
    if (c->rollback_locked)
        c->rollback_locked(c, b);
}

/* A write that the transaction builds on has failed, or is refused in the same group. */
static int follows_locked(struct gb_transaction *c) {
    const struct gb_turn *t = c->turn;

    if (!t)
        return 0;
    if (gb_after_check_locked(&t->source, &c->error) < 0)
        return -1;
    return c->depends ? gb_after_check_locked(&t->after, &c->error) : 0;
}

static void note_turn_locked(struct gb_transaction *c, int r) {
    if (!c->turn)
        return;
    c->turn->refused = r < 0;
    c->turn->error = &c->error;
    c->turn->id = c->rec.id;
    c->turn->generation = c->rec.generation;
}

static int validate_all(struct gb_transaction *c) {
    struct gb_buffer *b = c->buffer;

    c->with_others = c->persists = c->valid = false;
    if (c->error.code != GB_OK || no_session(c->session, &c->error) < 0 || takes_locked(c) < 0 ||
        gb_core_alive(c->session->core, &c->error) < 0 || follows_locked(c) < 0 ||
        (!b->live && gb_copies_check_name_locked(c->session, b->name, &c->error) < 0))
        return -1;
    if (c->validate_locked(c, b->live ? b : NULL, &c->error) < 0 || prepare_names_locked(c) < 0 || number_locked(c) < 0)
        return -1;
    if (transaction_plan_disk_locked(c, &c->error) < 0) {
        rollback_locked(c);
        return -1;
    }
    b->deleting |= c->removes;
    gb_kept_name(bytes_of(c), &c->rec);
    count_locked(c, !c->upkeep);
    c->valid = true;
    return 0;
}

static int check_all_locked(struct gb_transaction *c) {
    int r = validate_all(c);

    note_turn_locked(c, r);
    return r;
}

static void end_turn_locked(struct gb_transaction *c) {
    if (c->turn)
        gb_turn_end_locked(c->turn, c->error.code == GB_OK ? NULL : &c->error);
}

/* Releases the buffer's fifo lock. Returns the transaction that has it now; NULL: none. The session's lock is held. */
static struct gb_transaction *leave_locked(struct gb_session *session, struct gb_buffer *b) {
    struct gb_transaction *next = (struct gb_transaction *)gb_fifo_lock_release(&b->fifo);

    if (next) {
        next->waiter.next = NULL;
        next->buffer = b;
    } else {
        gb_buffer_reap_locked(session, b);
    }
    return next;
}

static void run(struct gb_transaction *list);

static uint64_t side_bytes(const struct gb_buffer *b, int side) {
    return b->sides[side] ? b->sides[side]->bytes : 0;
}

/* The buffer before the transaction. */
struct before {
    bool live;
    bool sealed;
    int64_t generation;
    int64_t version;
    uint64_t side[GB_SIDES];
};

static struct before look_before(const struct gb_buffer *b) {
    return (struct before){.live = b->live,
                           .sealed = b->live && b->rec.sealed,
                           .generation = b->rec.generation,
                           .version = b->rec.version,
                           .side = {side_bytes(b, GB_SIDE_HOST), side_bytes(b, GB_SIDE_DEVICE)}};
}

/* A reserved side shows in no other member. */
static void tell_sides(const struct gb_buffer *b, const struct before *before, struct gb_notice *notice) {
    static const char *const names[GB_SIDES] = {[GB_SIDE_HOST] = "host", [GB_SIDE_DEVICE] = "device"};
    size_t n = 0;
    int side;

    for (side = 0; side < GB_SIDES; side++) {
        if (side_bytes(b, side) != before->side[side] && n < sizeof(notice->detail))
            n += (size_t)snprintf(notice->detail + n, sizeof(notice->detail) - n,
                                  "%s%s side: %" PRIu64 " bytes, %" PRIu64 " before", n > 0 ? "; " : "", names[side],
                                  side_bytes(b, side), before->side[side]);
    }
}

/* Posts the notice of the change under the session's lock, so that the notices of one buffer come in order. */
static void note_locked(struct gb_transaction *c, const struct before *before) {
    enum gb_notice_type type = GB_NOTICE_BUFFER_CHANGED;
    struct gb_buffer_rec rec;
    struct gb_notice notice;

    if (c->unrecorded)
        return; /* its owner reports */
    if (c->removes)
        type = GB_NOTICE_BUFFER_DELETED;
    else if (!before->live)
        type = GB_NOTICE_BUFFER_CREATED;
    else if (c->rec.generation != before->generation)
        type = GB_NOTICE_BUFFER_REPLACED;
    else if (c->rec.version == before->version)
        return; /* only a checksum was filled in: clients see no change */
    gb_buffer_look_locked(c->buffer, &rec);
    notice = gb_notice_of_buffer(c->session, &rec, type);
    if (type == GB_NOTICE_BUFFER_CHANGED)
        tell_sides(c->buffer, before, &notice);
    gb_notice_post(c->session->core, &notice);
}

/* Leases may have begun or ended during the commit; they are no part of the transaction. Returns the contents to be
 * dropped. */
static struct gb_content *publish_all_locked(struct gb_transaction *c) {
    struct before before = look_before(c->buffer);
    struct gb_content *lost;

    count_locked(c, false);
    gb_guard_tell_locked(c->buffer, &c->rec);
    publish_names_locked(c);
    transaction_publish_stored_locked(c);
    c->publish_locked(c, c->buffer);
    gb_kept_named(bytes_of(c), &c->rec, c->buffer->in_place);
    gb_buffer_note_behind_locked(c->session, c->buffer);
    note_locked(c, &before);
    gb_copies_note_locked(c->session, c->buffer->name, before.sealed, !c->removes && c->rec.sealed);
    lost = gb_buffer_lose_freed_locked(c->session, c->buffer);
    gb_guard_tell_locked(c->buffer, &c->rec);
    return lost;
}

static void committed(void *arg, const struct gb_error *error) {
    struct gb_transaction *c = arg;
    struct gb_session *session = c->session;
    struct gb_content *lost = NULL;
    struct gb_transaction *next;

    if (c->durable && !error)
        gb_disks_point(session->core, GB_DISK_OP_after_commit);
    pthread_mutex_lock(&session->lock);
    if (error)
        c->error = *error;
    /* If the session was deleted meanwhile, its deletion removed the record, or the store refused it. */
    if (atomic_load(&session->state) == GB_SESSION_DEAD || (error && atomic_load(&session->state) != GB_SESSION_LIVE))
        no_session(session, &c->error);
    if (c->error.code == GB_OK)
        lost = publish_all_locked(c);
    else
        rollback_locked(c);
    end_turn_locked(c);
    next = leave_locked(session, c->buffer);
    pthread_mutex_unlock(&session->lock);
    gb_content_drop_all(lost);
    transaction_end_disk(c, &c->error);
    if (c->durable)
        gb_disks_point(session->core, GB_DISK_OP_before_answer);
    c->end(c);
    run(next);
}

static const struct gb_store_mark *mark_of(const struct gb_transaction *c) {
    return c->mark.key[0] ? &c->mark : gb_call_mark(c->call);
}

/* Hands the transaction to the database. A durable one is an edit: no event loop commits that. */
static void record(struct gb_transaction *c) {
    struct gb_store *store = c->session->core->store;

    if (c->unrecorded) {
        committed(c, NULL);
    } else if (c->durable) {
        c->edit = transaction_edit(c);
        gb_disks_point(c->session->core, GB_DISK_OP_before_commit);
        gb_store_edit_buffers(store, &c->edit, 1, mark_of(c), committed, c);
    } else if (c->removes) {
        gb_store_delete_buffer(store, c->rec.id, mark_of(c), committed, c);
    } else {
        gb_store_put_buffer(store, &c->rec, mark_of(c), committed, c);
    }
}

static void start_persist(struct gb_transaction *c) {
    struct gb_core *core = c->session->core;

    (c->brings ? c->brings : core->persist)(core, &c->persist);
}

static void persisted(struct gb_persist *persist) {
    struct gb_transaction *c = gb_container_of(persist, struct gb_transaction, persist);

    if (persist->error.code != GB_OK) {
        committed(c, &persist->error);
        return;
    }
    pthread_mutex_lock(&c->session->lock);
    transaction_take_checksum_locked(c);
    pthread_mutex_unlock(&c->session->lock);
    record(c);
}

/* It was validated, and does not proceed: gives back what it would have been written from. No lock is held. */
static void drop_persist(struct gb_transaction *c) {
    if (!c->persists)
        return;
    c->persists = false;
    gb_content_drop_later(c->persist.content);
    gb_host_block_unref(c->persist.block);
    free(c->kept);
    c->kept = c->persist.data;
    c->persist.data = NULL;
}

/* As gb_transaction_widen_locked. */
static int widen_one_locked(struct gb_transaction *c, struct gb_transaction_group **ret) {
    const struct gb_transaction_asked asked = {.one = c, .transactions = &c, .count = 1, .mark = mark_of(c)};
    int r = gb_transaction_widen_locked(&asked, ret, &c->error);

    if (r < 0 || *ret)
        rollback_locked(c);
    return r;
}

/* Transactions of one batch join it as they come; it puts them in order. */
static bool waits_locked(struct gb_transaction *c, struct gb_after *after, enum gb_turn_stage until,
                         void (*go)(struct gb_after *after)) {
    if (!after->on || (c->turn->batch && after->on->batch == c->turn->batch))
        return false;
    after->sees = after->late = false;
    after->until = until;
    after->reached_locked = NULL;
    after->go = go;
    after->owner = c;
    return gb_after_wait_locked(after);
}

static void enter_again(struct gb_after *after) {
    struct gb_transaction *c = after->owner;
    bool mine;

    pthread_mutex_lock(&c->session->lock);
    mine = gb_fifo_lock_acquire(&c->buffer->fifo, &c->waiter);
    pthread_mutex_unlock(&c->session->lock);
    if (mine)
        run(c);
}

/* An earlier one that continues in a group has left the buffer's line, and stands in it again behind this one: which
 * waits for its end. Its turn keeps the buffer's place. */
static bool overtakes_locked(struct gb_transaction *c, void (*go)(struct gb_after *after)) {
    return c->turn && waits_locked(c, &c->turn->after, GB_TURN_ENDED, go);
}

/* Validates and stores one transaction. If it is refused, or continues in a group, returns the transaction that has the
 * fifo lock next. */
static struct gb_transaction *run_one(struct gb_transaction *c) {
    struct gb_session *session = c->session;
    struct gb_transaction_group *wider = NULL;
    struct gb_transaction *next;
    int r;

    pthread_mutex_lock(&session->lock);
    if (overtakes_locked(c, enter_again)) {
        next = leave_locked(session, c->buffer);
        pthread_mutex_unlock(&session->lock);
        return next;
    }
    r = check_all_locked(c);
    if (r == 0)
        r = widen_one_locked(c, &wider);
    if (r < 0)
        end_turn_locked(c);
    next = r < 0 || wider ? leave_locked(session, c->buffer) : NULL;
    pthread_mutex_unlock(&session->lock);
    if (r < 0 || wider)
        drop_persist(c);
    if (r < 0) {
        c->end(c);
    } else if (wider) {
        gb_transaction_group_start(wider);
    } else if (c->persists) {
        c->persist.done = persisted;
        start_persist(c);
    } else {
        record(c);
    }
    return next;
}

/* --- groups ------------------------------------------------------------------------------------------------------- */

/* Puts one list before another. The lists are linked by waiters that their members no longer need. */
static struct gb_transaction *join(struct gb_transaction *first, struct gb_transaction *then) {
    struct gb_transaction *last = first;

    if (!first)
        return then;
    while (last->waiter.next)
        last = (struct gb_transaction *)last->waiter.next;
    last->waiter.next = then ? &then->waiter : NULL;
    return first;
}

/* Releases the fifo locks of all members. Returns the list of transactions that have them now. */
static struct gb_transaction *leave_all_locked(struct gb_transaction_group *g) {
    struct gb_transaction *list = NULL;
    size_t i;

    for (i = 0; i < g->count; i++) {
        if (!g->transactions[i]->shares)
            list = join(leave_locked(g->session, g->transactions[i]->buffer), list);
    }
    return list;
}

/* Those that were refused have nothing to be undone. */
static void revert_all_locked(struct gb_transaction_group *g) {
    size_t i;

    for (i = g->count; i > 0; i--) {
        if (g->transactions[i - 1]->valid)
            rollback_locked(g->transactions[i - 1]);
    }
}

static struct gb_content *publish_member_locked(struct gb_transaction_group *g, struct gb_transaction *c) {
    struct gb_content *lost;

    c->joins = g->together && transaction_is_new_locked(c);
    lost = publish_all_locked(c);
    end_turn_locked(c);
    return lost;
}

/* When all members are published: one that writes the same buffer once more takes it out of its list. */
static void join_all_locked(struct gb_transaction_group *g) {
    size_t i;

    for (i = 0; i < g->count && g->error.code == GB_OK; i++) {
        if (g->transactions[i]->joins && g->transactions[i]->buffer->behind)
            gb_together_join(&g->together, g->transactions[i]->buffer);
    }
    gb_together_finish(g->together);
    g->together = NULL;
}

static void group_committed(void *arg, const struct gb_error *error) {
    struct gb_transaction_group *g = arg;
    struct gb_session *session = g->session;
    struct gb_content *lost = NULL;
    struct gb_transaction *next;
    size_t i;

    if (!error)
        gb_disks_point(session->core, GB_DISK_OP_after_commit);
    pthread_mutex_lock(&session->lock);
    if (error)
        g->error = *error;
    if (atomic_load(&session->state) == GB_SESSION_DEAD || (error && atomic_load(&session->state) != GB_SESSION_LIVE))
        no_session(session, &g->error);
    if (g->error.code != GB_OK)
        revert_all_locked(g);
    for (i = 0; i < g->count && g->error.code == GB_OK; i++)
        gb_content_list_add(&lost, publish_member_locked(g, g->transactions[i]));
    join_all_locked(g);
    next = leave_all_locked(g);
    pthread_mutex_unlock(&session->lock);
    gb_content_drop_all(lost);
    for (i = 0; i < g->count; i++)
        transaction_end_disk(g->transactions[i], &g->error);
    g->end(g);
    run(next);
}

/* All bytes are on disk, or one of them is not. */
static void record_group(struct gb_transaction_group *g) {
    size_t n = 0;
    size_t i;

    for (i = 0; i < g->count && g->error.code == GB_OK; i++) {
        if (!g->transactions[i]->unrecorded)
            g->edits[n++] = transaction_edit(g->transactions[i]);
    }
    if (n == 0) {
        group_committed(g, g->error.code == GB_OK ? NULL : &g->error);
        return;
    }
    gb_disks_point(g->session->core, GB_DISK_OP_before_commit);
    gb_store_edit_buffers(g->session->core->store, g->edits, n, g->mark, group_committed, g);
}

/* One of those that the commit waits for is done; c NULL: that which began them. */
static void one_persisted(struct gb_transaction_group *g, struct gb_transaction *c) {
    bool last;

    pthread_mutex_lock(&g->session->lock);
    if (c && c->persist.error.code == GB_OK)
        transaction_take_checksum_locked(c);
    else if (c && g->error.code == GB_OK)
        g->error = c->persist.error;
    last = --g->persisting == 0;
    pthread_mutex_unlock(&g->session->lock);
    if (last)
        record_group(g);
}

static void member_persisted(struct gb_persist *persist) {
    struct gb_transaction *c = gb_container_of(persist, struct gb_transaction, persist);

    one_persisted(c->group, c);
}

static void persist_group(struct gb_transaction_group *g) {
    size_t i;

    g->persisting = 1;
    for (i = 0; i < g->count; i++)
        g->persisting += g->transactions[i]->persists;
    for (i = 0; i < g->count; i++) {
        struct gb_transaction *c = g->transactions[i];

        if (!c->persists)
            continue;
        c->persist.done = member_persisted;
        start_persist(c);
    }
    one_persisted(g, NULL);
}

/* The latest valid member before the i-th that has the same buffer. NULL: all before it were refused. */
static struct gb_transaction *before_locked(const struct gb_transaction_group *g, size_t i) {
    const struct gb_buffer *b = g->transactions[i]->buffer;

    while (i-- > 0) {
        if (g->transactions[i]->buffer == b && g->transactions[i]->valid)
            return g->transactions[i];
    }
    return NULL;
}

/* A member that shares its buffer sees it as the member before it will leave it. */
static int check_member_locked(const struct gb_transaction_group *g, size_t i) {
    struct gb_transaction *c = g->transactions[i];
    struct gb_transaction *before = c->shares ? before_locked(g, i) : NULL;
    struct gb_buffer *b = c->buffer;
    struct gb_buffer seen;
    int r;

    if (!before)
        return check_all_locked(c);
    if (before->removes || !before->content) {
        gb_error_set(&c->error, before->removes ? GB_ERR_BUFFER_NOT_FOUND : GB_ERR_BUFFER_BUSY,
                     "an earlier operation of the batch %s \"%s\"",
                     before->removes ? "deletes" : "changes the record of", b->name);
        note_turn_locked(c, -1);
        return -1;
    }
    seen = *b;
    gb_buffer_as(&seen, &before->rec, before->pool, before->stream, (struct gb_content *)(uintptr_t)before->content);
    c->buffer = &seen;
    r = check_all_locked(c);
    c->buffer = b;
    b->deleting = b->deleting || (r == 0 && c->removes);
    return r;
}

/* Each that is refused says why. The first one's reason is the group's. */
static int validate_all_locked(struct gb_transaction_group *g) {
    size_t i;

    for (i = 0; i < g->count; i++) {
        if (check_member_locked(g, i) < 0 && g->error.code == GB_OK)
            g->error = g->transactions[i]->error;
    }
    return g->error.code == GB_OK ? 0 : -1;
}

/* Chooses what is written to disk now, and what later. */
static int plan_together_locked(struct gb_transaction_group *g) {
    size_t behind = 0;
    bool now = false;
    size_t i;

    for (i = 0; i < g->count && !now; i++)
        now = gb_transaction_writes(g->transactions[i]);
    for (i = 0; i < g->count; i++) {
        struct gb_transaction *c = g->transactions[i];

        if (now && transaction_write_too_locked(c, &g->error) < 0)
            return -1;
        behind += c->rec.durability != GB_DURABILITY_NONE && !c->persists && transaction_is_new_locked(c);
    }
    g->together = behind > 1 ? calloc(1, sizeof(*g->together)) : NULL;
    return behind > 1 && !g->together ? gb_no_memory(&g->error) : 0;
}

/* As gb_transaction_widen_locked. */
static int widen_group_locked(struct gb_transaction_group *g, struct gb_transaction_group **ret) {
    const struct gb_transaction_asked asked = {
        .group = g, .transactions = g->transactions, .count = g->count, .mark = g->mark};

    return gb_transaction_widen_locked(&asked, ret, &g->error);
}

static void abandon_locked(struct gb_transaction_group *g) {
    revert_all_locked(g);
    gb_together_finish(g->together);
    g->together = NULL;
}

static void member_turned(struct gb_after *after);

static bool group_overtakes_locked(struct gb_transaction_group *g) {
    size_t i;

    for (i = 0; i < g->count; i++)
        g->unturned += overtakes_locked(g->transactions[i], member_turned);
    return g->unturned > 0;
}

/* As run_one, for a group that has all its fifo locks. */
static struct gb_transaction *run_group(struct gb_transaction_group *g) {
    struct gb_session *session = g->session;
    struct gb_transaction_group *wider = NULL;
    struct gb_transaction *next = NULL;
    bool goes;
    size_t i;
    int r;

    pthread_mutex_lock(&session->lock);
    if (group_overtakes_locked(g)) {
        next = leave_all_locked(g);
        pthread_mutex_unlock(&session->lock);
        return next;
    }
    r = validate_all_locked(g);
    if (r == 0)
        r = plan_together_locked(g);
    if (r == 0)
        r = widen_group_locked(g, &wider);
    goes = r == 0 && !wider;
    if (!goes) {
        abandon_locked(g);
        next = leave_all_locked(g);
    }
    pthread_mutex_unlock(&session->lock);
    for (i = 0; i < g->count && !goes; i++)
        drop_persist(g->transactions[i]);
    if (goes)
        persist_group(g);
    else if (wider)
        gb_transaction_group_start(wider);
    else
        g->end(g);
    return next;
}

static struct gb_transaction *granted(struct gb_transaction_group *g) {
    bool all;

    pthread_mutex_lock(&g->session->lock);
    all = --g->waiting == 0;
    pthread_mutex_unlock(&g->session->lock);
    return all ? run_group(g) : NULL;
}

/* Each transaction in the list has its fifo lock. No mutex is held. */
static void run(struct gb_transaction *list) {
    while (list) {
        struct gb_transaction *c = list;

        list = (struct gb_transaction *)c->waiter.next;
        c->waiter.next = NULL;
        list = join(c->group ? granted(c->group) : run_one(c), list);
    }
}

/* --- the order of transactions ------------------------------------------------------------------------------------ */

static void start_again(struct gb_after *after) {
    gb_transaction_start(after->owner);
}

/* Returns true if the transaction waits for an earlier one, and is started again then. */
static bool turn_waits_locked(struct gb_transaction *c) {
    struct gb_turn *turn = c->turn;

    if (!turn)
        return false;
    gb_turn_stage_locked(turn, GB_TURN_READY);
    return waits_locked(c, &turn->after, GB_TURN_COMMITTING, start_again) ||
           waits_locked(c, &turn->source, GB_TURN_ENDED, start_again);
}

/* One that joins a batch gets the fifo lock with the others. */
static bool joins_batch(struct gb_transaction *c) {
    bool waits;

    if (!c->call || !c->call->batch)
        return false;
    pthread_mutex_lock(&c->session->lock);
    waits = turn_waits_locked(c);
    pthread_mutex_unlock(&c->session->lock);
    return waits || gb_transaction_batch_put(c);
}

void gb_transaction_start(struct gb_transaction *transaction) {
    struct gb_session *session = transaction->session;
    struct gb_buffer *b = NULL;
    bool mine = false;
    bool waits;

    if (joins_batch(transaction))
        return;

    pthread_mutex_lock(&session->lock);
    waits = turn_waits_locked(transaction);
    if (!waits) {
        b = gb_buffer_place_locked(session, &transaction->name);
        transaction->buffer = b;
        if (b)
            mine = gb_fifo_lock_acquire(&b->fifo, &transaction->waiter);
        else
            gb_no_memory(&transaction->error);
        if (b && transaction->turn)
            gb_turn_stage_locked(transaction->turn, GB_TURN_COMMITTING);
    }
    pthread_mutex_unlock(&session->lock);
    /* A transaction that waits in line may have run and ended by now. */
    if (mine)
        run(transaction);
    else if (!waits && !b)
        transaction->end(transaction);
}

void gb_transaction_done(struct gb_transaction *transaction) {
    gb_buffer_rec_done(&transaction->rec);
    gb_text_set(&transaction->pool, NULL);
    gb_text_set(&transaction->stream, NULL);
    free(transaction->kept);
    transaction->kept = NULL;
}

void gb_transaction_proceed(struct gb_transaction *transaction) {
    run(transaction);
}

void gb_transaction_abandon(struct gb_transaction *transaction, const struct gb_error *error) {
    transaction->error = *error;
    run(transaction);
}

/* Finds or makes the entry of every name. */
static int places_locked(struct gb_transaction_group *g) {
    size_t i;

    for (i = 0; i < g->count; i++) {
        struct gb_transaction *c = g->transactions[i];

        c->group = g;
        c->buffer = gb_buffer_place_locked(g->session, &c->name);
        if (!c->buffer)
            return gb_no_memory(&g->error);
        c->shares = c->buffer->grouped == g;
        c->buffer->grouped = g;
    }
    return 0;
}

static void enter_all_locked(struct gb_transaction_group *g) {
    size_t i;

    for (i = 0; i < g->count; i++) {
        struct gb_transaction *c = g->transactions[i];

        if (!c->shares)
            g->waiting += !gb_fifo_lock_acquire(&c->buffer->fifo, &c->waiter);
        if (c->turn)
            gb_turn_stage_locked(c->turn, GB_TURN_COMMITTING);
    }
}

/* Removes the entries that no transaction uses. */
static void forget_places_locked(struct gb_transaction_group *g) {
    size_t i;

    for (i = 0; i < g->count && g->transactions[i]->buffer; i++) {
        struct gb_buffer *b = gb_map_get(&g->session->buffers, g->transactions[i]->name.s);

        if (b)
            gb_buffer_reap_locked(g->session, b);
    }
}

static void start_group(struct gb_transaction_group *group) {
    struct gb_session *session = group->session;
    bool mine = false;
    size_t i;
    int r;

    pthread_mutex_lock(&session->lock);
    r = places_locked(group);
    for (i = 0; i < group->count; i++) {
        if (group->transactions[i]->buffer)
            group->transactions[i]->buffer->grouped = NULL;
    }
    if (r == 0) {
        enter_all_locked(group);
        mine = group->waiting == 0;
    } else {
        forget_places_locked(group);
    }
    pthread_mutex_unlock(&session->lock);
    /* A group that waits in line may have run and ended by now. */
    if (r < 0)
        group->end(group);
    else if (mine)
        run(run_group(group));
}

static void member_turned(struct gb_after *after) {
    struct gb_transaction_group *g = ((struct gb_transaction *)after->owner)->group;
    bool last;

    pthread_mutex_lock(&g->session->lock);
    last = --g->unturned == 0;
    pthread_mutex_unlock(&g->session->lock);
    if (last)
        start_group(g);
}

void gb_transaction_group_start(struct gb_transaction_group *group) {
    bool waits;
    size_t i;

    pthread_mutex_lock(&group->session->lock);
    group->unturned = 0;
    for (i = 0; i < group->count; i++) {
        struct gb_transaction *c = group->transactions[i];

        c->group = group;
        if (!c->turn)
            continue;
        gb_turn_stage_locked(c->turn, GB_TURN_READY);
        group->unturned += waits_locked(c, &c->turn->after, GB_TURN_COMMITTING, member_turned);
    }
    waits = group->unturned > 0;
    pthread_mutex_unlock(&group->session->lock);
    if (!waits)
        start_group(group);
}
