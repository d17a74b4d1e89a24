/* Memory that is given back: of one buffer or of many on request, which are also loaded by many; and for others, where
 * the ones that were used least leave first. The host tier or the disk has the bytes before memory is freed. */
#include "core/durable/evict.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/thread.h"
#include "core/buffer/buffer.h"
#include "core/buffer/transaction.h"
#include "core/durable/load.h"
#include "core/durable/stored.h"
#include "core/memory/alloc.h"
#include "core/memory/content.h"
#include "core/public/durable.h"
#include "core/runtime/runtime.h"
#include "core/session/quota.h"
#include "core/session/session.h"

/* --- evict -------------------------------------------------------------------------------------------------------- */

/* Bytes that are not durable end with the process, also on the disk. */
struct evict_op {
    struct gb_buffer_op base; /* first */
    enum gb_spill to;         /* NEVER: as the buffer's own spill says */
    struct gb_content *gone;
};

static struct evict_op *op_of(struct gb_transaction *transaction) {
    return gb_container_of(gb_buffer_op_of(transaction), struct evict_op, base);
}

/* Only the buffer may have its bytes. */
static int check_unused_locked(const struct gb_buffer *b, struct gb_error *err) {
    int i;

    if (b->in_place)
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer is being overwritten in place; try again");
    if (gb_guard_check_unmapped_locked(b, "wait until it has ended", err) < 0)
        return -1;
    for (i = 0; i < GB_BUFFER_CONTENTS; i++) {
        const struct gb_content *c = gb_buffer_content_at(b, i);

        if (c && atomic_load(&c->refs) > gb_buffer_sharers(b))
            return gb_error_set(err, GB_ERR_BUFFER_BUSY, "others use the buffer's bytes; try again");
    }
    return 0;
}

static int check_locked(const struct gb_session *s, const struct gb_buffer *b, struct gb_error *err) {
    if (b->rec.state == GB_BUFFER_PARTIAL)
        return gb_error_set(err, GB_ERR_BUFFER_PARTIAL,
                            "a write in place broke off here; upload the whole buffer again");
    if (b->rec.state == GB_BUFFER_LOST)
        return gb_lost(b, err);
    if (b->rec.durability == GB_DURABILITY_NONE && b->rec.bytes <= GB_STORED_INLINE_BYTES)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "buffers of at most %u bytes stay in memory, unless they are durable",
                            GB_STORED_INLINE_BYTES);
    if (gb_disks_check_durability(s->core, GB_DURABILITY_BEHIND, err) < 0 ||
        gb_adopted_check_locked(b, "they cannot be taken out of it", err) < 0 ||
        gb_guard_check_writers_locked(b, err) < 0)
        return -1;
    return check_unused_locked(b, err);
}

/* Bytes of a device alone: what is in the host's memory gains nothing there, nor does what has a host side. */
static bool may_go_to_host(const struct gb_buffer *b) {
    return b->content && gb_kind_of_device(b->content->kind) && b->rec.bytes > GB_STORED_INLINE_BYTES;
}

static enum gb_spill destination(const struct evict_op *op, const struct gb_buffer *b) {
    if (op->to != GB_SPILL_NEVER)
        return op->to;
    return b->rec.spill == GB_SPILL_HOST && may_go_to_host(b) ? GB_SPILL_HOST : GB_SPILL_DISK;
}

static int check_host(const struct gb_buffer *b, struct gb_error *err) {
    if (may_go_to_host(b))
        return 0;
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                        "only bytes of a device go to host memory, and from %u bytes on; evict these to \"disk\"",
                        GB_STORED_INLINE_BYTES + 1);
}

/* What is to be written, and where. Bytes that the disk has go to host memory beside it on request alone, and durable
 * ones that it has not go to the disk in every case. */
static int plan_locked(const struct evict_op *op, struct gb_transaction *c, const struct gb_buffer *b,
                       struct gb_error *err) {
    bool asked = op->to == GB_SPILL_HOST;

    if (b->rec.state == GB_BUFFER_STORED) {
        if (op->to == GB_SPILL_DISK && b->stored->in_host)
            c->spills = GB_SPILL_DISK;
        return 0;
    }
    if (asked && check_host(b, err) < 0)
        return -1;
    c->strictly = asked;
    if (!gb_buffer_on_disk(b)) {
        c->stores = b->rec.durability != GB_DURABILITY_NONE;
        c->spills = c->stores ? GB_SPILL_NEVER : destination(op, b);
    } else if (asked) {
        c->warms = true;
        c->spills = GB_SPILL_HOST;
    }
    return 0;
}

static int validate_locked(struct gb_transaction *transaction, struct gb_buffer *b, struct gb_error *err) {
    if (gb_buffer_op_check_locked(gb_buffer_op_of(transaction), b, err) < 0)
        return -1;
    if (b->rec.state != GB_BUFFER_STORED && check_locked(transaction->session, b, err) < 0)
        return -1;
    if (plan_locked(op_of(transaction), transaction, b, err) < 0)
        return -1;
    gb_buffer_copy_locked(b, &transaction->rec);
    transaction->unrecorded = !transaction->stores;
    return 0;
}

/* A lease may have begun while the bytes were written: then they stay, and host memory need not have them. */
static void publish_locked(struct gb_transaction *transaction, struct gb_buffer *b) {
    struct evict_op *op = op_of(transaction);
    struct gb_session *s = transaction->session;
    struct gb_notice notice;

    gb_buffer_keep_state_locked(b, &transaction->rec);
    gb_buffer_set_locked(s, b, &transaction->rec, b->content);
    if (transaction->turn) /* copies that wait for their turn hold the bytes before they leave */
        gb_turn_end_locked(transaction->turn, NULL);
    if (b->rec.state == GB_BUFFER_READY && b->rec.leases == 0 && !b->in_place && gb_buffer_on_disk(b)) {
        op->gone = gb_buffer_lose_locked(s, b);
        op->base.call->copied = true;
        atomic_fetch_add(&s->core->loads->evicted, 1);
        notice = gb_notice_of_buffer(s, &transaction->rec, GB_NOTICE_BUFFER_EVICTED);
        gb_notice_post(s->core, &notice);
        atomic_fetch_add(&s->core->loads->evicted_to_host, b->stored->block != NULL);
    } else if (b->rec.state == GB_BUFFER_READY || op->to == GB_SPILL_DISK) {
        op->base.call->copied = transaction->spills == GB_SPILL_DISK && b->rec.state == GB_BUFFER_STORED;
        gb_buffer_cool_locked(s, b);
    }
    gb_buffer_copy_locked(b, &op->base.call->buffer);
}

static void gone(void *arg) {
    struct evict_op *op = arg;

    gb_buffer_op_end(&op->base, &op->base.transaction.error);
}

static void end(struct gb_transaction *transaction) {
    struct evict_op *op = op_of(transaction);

    gb_content_drop_list(op->gone, gone, op);
}

static void fill_in(struct evict_op *op, enum gb_spill to) {
    op->to = to;
    op->base.transaction.validate_locked = validate_locked;
    op->base.transaction.publish_locked = publish_locked;
    op->base.transaction.end = end;
    op->base.transaction.upkeep = true;
}

void gb_buffer_evict_to(struct gb_core *core, const struct gb_locator *at, const struct gb_buffer_check *check,
                        enum gb_spill to, struct gb_buffer_call *call) {
    struct evict_op *op = gb_buffer_op_new(sizeof(*op), core, at, check, call);

    if (op)
        fill_in(op, to);
    gb_buffer_op_start_ordered(op ? &op->base : NULL, NULL);
}

/* gb_buffer_evict_to in a session that the caller holds, whatever its name is, and in no order. */
static void buffer_evict_in(struct gb_session *session, const struct gb_name *name, const struct gb_buffer_check *check,
                            enum gb_spill to, struct gb_buffer_call *call) {
    struct evict_op *op = gb_buffer_op_new_in(sizeof(*op), gb_session_ref(session), name, check, call);

    if (!op)
        return;
    fill_in(op, to);
    gb_transaction_start(&op->base.transaction);
}

void gb_buffer_evict(struct gb_core *core, const struct gb_locator *at, const struct gb_buffer_check *check,
                     struct gb_buffer_call *call) {
    gb_buffer_evict_to(core, at, check, GB_SPILL_NEVER, call);
}

/* --- sweep -------------------------------------------------------------------------------------------------------- */

/* A sweep moves all buffers of a session out of memory, or back into it, a few at a time, in the order of their ids. */

#define AT_ONCE 16

struct sweep;

struct item {
    struct sweep *sweep;
    struct gb_name name;
    struct gb_buffer_call *call; /* an eviction */
    bool done;
};

struct sweep {
    struct gb_task task;
    struct gb_core *core;
    struct gb_session *session; /* a reference */
    struct gb_name prefix;
    struct gb_sweep_call *call;
    bool loads;
    uint64_t number; /* of the loads */
    int64_t after;   /* the id of the last one listed */
    struct gb_load_waiter waiter;
    struct item items[AT_ONCE];
    size_t count;
    pthread_mutex_t lock; /* for the next, and for the call's numbers */
    size_t pending;
};

static void run(struct gb_task *task);

static void post(void *arg) {
    struct sweep *sweep = arg;

    sweep->task.run = run;
    gb_lane_post(gb_core_compute_lane(sweep->core), &sweep->task);
}

/* --- sweep: results ----------------------------------------------------------------------------------------------- */

static void skip(struct gb_sweep_call *call, const char *name, enum gb_code code) {
    struct gb_sweep_skip *skipped = &call->listed[call->listed_count];

    call->skipped++;
    if (call->listed_count == GB_SWEEP_LISTED)
        return;
    strcpy(skipped->name.s, name);
    skipped->code = code;
    call->listed_count++;
}

/* error GB_OK: the bytes have moved, or were there. */
static void note(struct sweep *sweep, const struct gb_name *name, uint64_t bytes, bool moved,
                 const struct gb_error *error) {
    struct gb_sweep_call *call = sweep->call;

    pthread_mutex_lock(&sweep->lock);
    if (error->code != GB_OK) {
        skip(call, name->s, error->code);
    } else if (moved) {
        call->buffers++;
        call->bytes += bytes;
    }
    pthread_mutex_unlock(&sweep->lock);
}

/* Ends the loads. Loaded buffers may leave memory again. */
static void count_loaded(struct sweep *sweep) {
    struct gb_session *s = sweep->session;
    struct gb_sweep_call *call = sweep->call;
    struct gb_buffer *b;
    int64_t id = 0;

    pthread_mutex_lock(&s->lock);
    while ((b = gb_idlist_after(&s->buffers_by_id, id, &id))) {
        if (b->sweep != sweep->number)
            continue;
        if (b->swept && b->rec.state == GB_BUFFER_STORED) {
            skip(call, b->name, GB_ERR_NOT_LOADED);
        } else if (b->swept) {
            call->buffers++;
            call->bytes += b->rec.bytes;
        }
        gb_sweep_leave_locked(b);
        b->swept = false;
    }
    pthread_mutex_unlock(&s->lock);
}

static void finish(struct sweep *sweep) {
    struct gb_core *core = sweep->core;
    struct gb_sweep_call *call = sweep->call;

    gb_core_changed(core);
    gb_session_unref(sweep->session);
    pthread_mutex_destroy(&sweep->lock);
    free(sweep);
    gb_call_finish(&call->base, NULL);
    gb_core_leave(core);
}

/* --- sweep: the next few ------------------------------------------------------------------------------------------ */

static bool is_covered(const struct sweep *sweep, const struct gb_buffer *b) {
    return b->live && !b->deleting && strncmp(b->name, sweep->prefix.s, strlen(sweep->prefix.s)) == 0;
}

static bool wanted(const struct sweep *sweep, const struct gb_buffer *b) {
    enum gb_buffer_state state = sweep->loads ? GB_BUFFER_STORED : GB_BUFFER_READY;
    bool to_disk = !sweep->loads && sweep->call->to == GB_SPILL_DISK && b->stored && b->stored->block;

    return is_covered(sweep, b) && (b->rec.state == state || to_disk);
}

/* Buffers that are in memory already get the number, too, so that loads do not displace them. */
static void cover(struct sweep *sweep) {
    struct gb_session *s = sweep->session;
    struct gb_buffer *b;
    int64_t id = 0;

    sweep->number = gb_sweep_number(sweep->core);
    pthread_mutex_lock(&s->lock);
    while ((b = gb_idlist_after(&s->buffers_by_id, id, &id))) {
        if (is_covered(sweep, b)) {
            b->sweep = sweep->number;
            b->swept = false;
        }
    }
    pthread_mutex_unlock(&s->lock);
}

static void list(struct sweep *sweep) {
    struct gb_session *s = sweep->session;
    struct gb_buffer *b;

    sweep->count = 0;
    pthread_mutex_lock(&s->lock);
    while (sweep->count < AT_ONCE && (b = gb_idlist_after(&s->buffers_by_id, sweep->after, &sweep->after))) {
        struct item *item = &sweep->items[sweep->count];

        if (!wanted(sweep, b))
            continue;
        *item = (struct item){.sweep = sweep};
        strcpy(item->name.s, b->name);
        sweep->count++;
    }
    pthread_mutex_unlock(&s->lock);
}

/* --- sweep: out of memory ----------------------------------------------------------------------------------------- */

static void release(struct sweep *sweep) {
    bool last;

    pthread_mutex_lock(&sweep->lock);
    last = --sweep->pending == 0;
    pthread_mutex_unlock(&sweep->lock);
    if (last)
        post(sweep);
}

static void evicted(void *arg) {
    struct item *item = arg;
    struct sweep *sweep = item->sweep;
    struct gb_buffer_call *call = item->call;

    note(sweep, &item->name, call->buffer.bytes, call->copied, &call->base.error);
    release(sweep);
}

static void evict_some(struct sweep *sweep) {
    struct gb_error err = GB_ERROR_INIT;
    size_t i;

    sweep->pending = sweep->count + 1;
    for (i = 0; i < sweep->count; i++) {
        struct item *item = &sweep->items[i];

        item->call = gb_call_new(sizeof(*item->call), evicted, item);
        if (item->call) {
            struct gb_call *base = &item->call->base;

            buffer_evict_in(sweep->session, &item->name, NULL, sweep->call->to, item->call);
            gb_call_unref(base);
            continue;
        }
        gb_no_memory(&err);
        note(sweep, &item->name, 0, false, &err);
        release(sweep);
    }
    release(sweep);
}

/* --- sweep: into memory ------------------------------------------------------------------------------------------- */

static void note_loaded(struct sweep *sweep, const struct gb_name *name) {
    struct gb_session *s = sweep->session;
    struct gb_buffer *b;

    pthread_mutex_lock(&s->lock);
    b = gb_buffer_find_locked(s, name, NULL);
    if (b && b->sweep == sweep->number)
        b->swept = true;
    pthread_mutex_unlock(&s->lock);
}

/* Returns false while some of them are under way. */
static bool load_some(struct sweep *sweep) {
    bool all = true;
    size_t i;

    for (i = 0; i < sweep->count; i++) {
        struct item *item = &sweep->items[i];
        struct gb_error err = GB_ERROR_INIT;
        struct gb_buffer_rec rec;

        if (item->done)
            continue;
        if (gb_buffer_load_in(sweep->session, &item->name, &rec, &err) == 0)
            gb_buffer_rec_done(&rec);
        item->done = err.code != GB_ERR_NOT_LOADED;
        all = all && item->done;
        if (err.code == GB_OK)
            note_loaded(sweep, &item->name);
        else if (item->done)
            note(sweep, &item->name, 0, false, &err);
    }
    return all;
}

static void run_loads(struct sweep *sweep) {
    for (;;) {
        uint64_t sequence = gb_loads_sequence(sweep->core);

        if (!load_some(sweep)) {
            if (gb_loads_wait(sweep->core, sequence, &sweep->waiter))
                return;
            continue;
        }
        list(sweep);
        if (sweep->count == 0)
            break;
    }
    count_loaded(sweep);
    finish(sweep);
}

static void run(struct gb_task *task) {
    struct sweep *sweep = gb_container_of(task, struct sweep, task);

    if (sweep->loads && sweep->number == 0)
        cover(sweep);
    if (sweep->loads) {
        run_loads(sweep);
        return;
    }
    list(sweep);
    if (sweep->count > 0)
        evict_some(sweep);
    else
        finish(sweep);
}

/* --- sweep: the call ---------------------------------------------------------------------------------------------- */

static void sweep_start(struct gb_core *core, const struct gb_name *session, const struct gb_name *prefix, bool loads,
                        struct gb_sweep_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session *s = gb_core_alive(core, &err) < 0 ? NULL : gb_session_use(core, session, &err);
    struct sweep *sweep = s ? calloc(1, sizeof(*sweep)) : NULL;

    if (!sweep) {
        if (s)
            gb_no_memory(&err);
        gb_session_unref(s);
        gb_call_finish(&call->base, &err);
        return;
    }
    gb_core_enter(core);
    gb_mutex_init(&sweep->lock);
    sweep->core = core;
    sweep->session = s;
    sweep->prefix = *prefix;
    sweep->call = call;
    sweep->loads = loads;
    sweep->waiter.waker = (struct gb_waker){post, sweep};
    post(sweep);
}

void gb_session_evict(struct gb_core *core, const struct gb_name *session, const struct gb_name *prefix,
                      struct gb_sweep_call *call) {
    sweep_start(core, session, prefix, false, call);
}

void gb_session_load(struct gb_core *core, const struct gb_name *session, const struct gb_name *prefix,
                     struct gb_sweep_call *call) {
    sweep_start(core, session, prefix, true, call);
}

/* --- room for others ---------------------------------------------------------------------------------------------- */

/* An allocation that finds no memory asks for room (core->make_room), and the housekeeper keeps memory below the
 * high-water mark. */

/* A buffer whose bytes may leave memory. */
struct gb_victim {
    struct gb_session *session; /* a reference */
    int64_t id;                 /* of the buffer */
    uint64_t bytes;             /* that the ask gets if it leaves */
    uint64_t used_ns;
    int priority; /* of the session */
    bool dirty;   /* the disk has not its bytes yet */
};

struct gb_victims {
    struct gb_victim *items;
    size_t count;
    size_t room;
    uint64_t bytes; /* of all of them */
    uint64_t later; /* bytes of buffers that are in use, or were written just now */
};

/* --- room for others: victims ------------------------------------------------------------------------------------- */

enum answer { STAYS, LATER, GOES };

static bool is_dirty(const struct gb_buffer *b) {
    return !gb_buffer_on_disk(b);
}

static bool in_use(const struct gb_buffer *b) {
    int i;

    if (b->in_place || b->fifo.taken)
        return true;
    for (i = 0; i < GB_BUFFER_CONTENTS; i++) {
        const struct gb_content *c = gb_buffer_content_at(b, i);

        if (c && atomic_load(&c->refs) > 1)
            return true;
    }
    return false;
}

/* There is a place for the bytes. disk: it takes files. */
static bool has_place(const struct gb_core *core, const struct gb_buffer *b, bool disk) {
    return disk || !is_dirty(b) ||
           (b->rec.durability == GB_DURABILITY_NONE && b->rec.spill == GB_SPILL_HOST &&
            gb_host_tier_has_room(core, b->rec.bytes));
}

/* Buffers that are loaded together do not displace each other, and the watermark evicts none of them before their loads
 * have ended. */
static bool is_spared(const struct gb_buffer *b, const struct gb_room_ask *ask) {
    return b->sweep > 0 && (ask->partly || b->sweep == ask->sweep);
}

/* Mapped bytes stay, since how long a mapping lasts is its client's affair. So do bytes with two names: the memory of
 * one is not free before the other has left it. */
static enum answer ask_buffer(const struct gb_core *core, const struct gb_buffer *b, const struct gb_room_ask *ask,
                              bool disk, uint64_t now_ns) {
    struct gb_error unused = GB_ERROR_INIT;

    if (is_spared(b, ask) || !b->live || b->deleting || b->rec.state != GB_BUFFER_READY || b->rec.resident ||
        b->rec.adopted || b->shares || gb_guard_check_unmapped_locked(b, "", &unused) < 0 ||
        gb_guard_check_writers_locked(b, &unused) < 0)
        return STAYS;
    if (b->rec.durability == GB_DURABILITY_NONE &&
        (b->rec.spill == GB_SPILL_NEVER || b->rec.bytes <= GB_STORED_INLINE_BYTES))
        return STAYS;
    if (!has_place(core, b, disk))
        return STAYS;
    return b->leaving || in_use(b) || now_ns - b->since_ns < core->config.min_resident_ms * GB_NS_PER_MS ? LATER : GOES;
}

/* The memory that the ask is about. */
static uint64_t gives(const struct gb_buffer *b, const struct gb_room_ask *ask) {
    uint64_t bytes = 0;
    int i;

    for (i = 0; i < GB_BUFFER_CONTENTS; i++) {
        const struct gb_content *c = gb_buffer_content_at(b, i);

        if (!c || c->owner || (ask->pool && (c->kind != GB_KIND_DEVICE || c->pool != ask->pool)))
            continue;
        if (ask->session || (c->device == ask->device && gb_kind_of_device(c->kind)))
            bytes += c->bytes;
    }
    return bytes;
}

static bool add(struct gb_victims *victims, const struct gb_victim *victim) {
    if (victims->count == victims->room) {
        size_t room = victims->room > 0 ? 2 * victims->room : 64;
        struct gb_victim *items = realloc(victims->items, room * sizeof(*items));

        if (!items)
            return false;
        victims->items = items;
        victims->room = room;
    }
    victims->items[victims->count++] = *victim;
    victims->bytes += victim->bytes;
    gb_session_ref(victim->session);
    return true;
}

/* Adds the session's buffers that help the ask. disk: the disk takes writes. The session's lock is held. */
static void victims_add_locked(struct gb_victims *victims, struct gb_session *s, const struct gb_room_ask *ask,
                               bool disk) {
    uint64_t now_ns = gb_clock_ns();
    size_t i;

    for (i = 0; i < s->buffers_by_id.count && s->movable > 0; i++) {
        const struct gb_buffer *b = s->buffers_by_id.items[i].value;
        struct gb_victim victim = {
            .session = s, .id = b->id, .used_ns = b->used_ns, .priority = s->rec.priority, .dirty = is_dirty(b)};
        enum answer answer = ask_buffer(s->core, b, ask, disk, now_ns);

        victim.bytes = answer == STAYS ? 0 : gives(b, ask);
        if (victim.bytes > 0 && answer == LATER)
            victims->later += victim.bytes;
        else if (victim.bytes > 0 && !add(victims, &victim))
            return;
    }
}

/* How many bytes the session could give, now or soon, if the disk takes writes. Its lock is held. */
static uint64_t victims_sum_locked(const struct gb_session *s, const struct gb_room_ask *ask) {
    uint64_t now_ns = gb_clock_ns();
    uint64_t bytes = 0;
    size_t i;

    for (i = 0; i < s->buffers_by_id.count && s->movable > 0; i++) {
        const struct gb_buffer *b = s->buffers_by_id.items[i].value;

        if (ask_buffer(s->core, b, ask, true, now_ns) != STAYS)
            bytes += gives(b, ask);
    }
    return bytes;
}

static int before(const void *left, const void *right) {
    const struct gb_victim *a = left;
    const struct gb_victim *b = right;

    if (a->priority != b->priority)
        return a->priority < b->priority ? -1 : 1;
    if (a->dirty != b->dirty)
        return a->dirty ? 1 : -1;
    return a->used_ns < b->used_ns ? -1 : a->used_ns > b->used_ns;
}

static void cut(struct gb_victims *victims, size_t count) {
    while (victims->count > count)
        gb_session_unref(victims->items[--victims->count].session);
}

/* Sorts the buffers by the order in which they leave: sessions of a low priority first, then bytes that the disk has,
 * then the longest unused. Keeps as many as give `bytes`, or none if all together give less. */
static void victims_choose(struct gb_victims *victims, uint64_t bytes) {
    uint64_t sum = 0;
    size_t n = 0;

    if (victims->count == 0 || victims->bytes < bytes) { /* without any there is no array to be sorted */
        cut(victims, 0);
        return;
    }
    qsort(victims->items, victims->count, sizeof(*victims->items), before);
    while (n < victims->count && sum < bytes)
        sum += victims->items[n++].bytes;
    cut(victims, n);
}

static void victims_done(struct gb_victims *victims) {
    cut(victims, 0);
    free(victims->items);
}

/* --- room for others: evictions ----------------------------------------------------------------------------------- */

struct room_item {
    struct gb_room_ask *ask;
    struct gb_session *session; /* a reference */
    struct gb_name name;
    int64_t id; /* of the buffer */
    struct gb_buffer_call *call;
};

/* --- room for others: the end of an eviction ---------------------------------------------------------------------- */

static void report_end(struct gb_task *task) {
    struct gb_room_ask *ask = gb_container_of(task, struct gb_room_ask, task);

    ask->ended(ask);
}

static void room_release(struct gb_room_ask *ask) {
    if (atomic_fetch_sub(&ask->pending, 1) > 1)
        return;
    ask->task.run = report_end;
    gb_lane_post(&ask->device->lane, &ask->task);
}

static void stay_no_more(struct gb_session *s, const struct gb_name *name) {
    struct gb_buffer *b;

    pthread_mutex_lock(&s->lock);
    b = gb_map_get(&s->buffers, name->s);
    if (b)
        b->leaving = false;
    pthread_mutex_unlock(&s->lock);
}

static void room_evicted(void *arg) {
    struct room_item *room_item = arg;
    struct gb_room_ask *ask = room_item->ask;
    struct gb_loads *loads = room_item->session->core->loads;
    enum gb_code code = room_item->call->base.error.code;

    stay_no_more(room_item->session, &room_item->name);
    if (code == GB_OK && room_item->call->copied) {
        atomic_store(&ask->made, true);
        atomic_fetch_add(&loads->evicted_for_room, 1);
    } else if (code != GB_ERR_STORAGE_FULL && code != GB_ERR_STORAGE_FAILED && code != GB_ERR_STORAGE_UNAVAILABLE &&
               code != GB_ERR_QUOTA_EXCEEDED) {
        atomic_store(&ask->later, true); /* a request came first: it used the bytes, or freed them */
    }
    gb_session_unref(room_item->session);
    free(room_item);
    room_release(ask);
}

/* --- room for others: the choice ---------------------------------------------------------------------------------- */

/* False: the buffer is gone, or memory is exhausted. */
static bool mark(struct room_item *room_item, const struct gb_victim *victim) {
    struct gb_buffer *b;
    bool found;

    pthread_mutex_lock(&victim->session->lock);
    b = gb_idlist_after(&victim->session->buffers_by_id, victim->id - 1, NULL);
    found = b && b->id == victim->id && !b->leaving;
    if (found) {
        b->leaving = true;
        room_item->id = b->id;
        strcpy(room_item->name.s, b->name);
    }
    pthread_mutex_unlock(&victim->session->lock);
    return found;
}

/* Of the name may be another buffer by now, or the buffer is to stay. */
static int check_victim(void *arg, const struct gb_buffer_rec *rec, struct gb_error *err) {
    const struct room_item *room_item = arg;

    if (rec && rec->id == room_item->id && !rec->resident)
        return 0;
    return gb_error_set(err, GB_ERR_PRECONDITION_FAILED, "the buffer is not to leave memory any more");
}

static void evict(struct gb_room_ask *ask, const struct gb_victim *victim) {
    struct room_item *room_item = calloc(1, sizeof(*room_item));
    struct gb_buffer_check check = {.check = check_victim, .arg = room_item};
    struct gb_call *call;

    if (!room_item || !mark(room_item, victim)) {
        atomic_store(&ask->later, true);
        free(room_item);
        return;
    }
    room_item->ask = ask;
    room_item->session = gb_session_ref(victim->session);
    room_item->call = gb_call_new(sizeof(*room_item->call), room_evicted, room_item);
    if (!room_item->call) {
        stay_no_more(room_item->session, &room_item->name);
        gb_session_unref(room_item->session);
        free(room_item);
        return;
    }
    atomic_fetch_add(&ask->pending, 1);
    call = &room_item->call->base; /* the item ends with the call */
    buffer_evict_in(victim->session, &room_item->name, &check, GB_SPILL_NEVER, room_item->call);
    gb_call_unref(call);
}

static void look_at(struct gb_victims *victims, struct gb_session *s, const struct gb_room_ask *ask, bool disk) {
    pthread_mutex_lock(&s->lock);
    victims_add_locked(victims, s, ask, disk);
    pthread_mutex_unlock(&s->lock);
}

/* Of the load that needs room. */
static uint64_t sweep_of(const struct gb_content *content) {
    const struct gb_buffer *b;
    uint64_t sweep;

    if (!content || !content->buffer)
        return 0;
    pthread_mutex_lock(&content->session->lock);
    b = gb_map_get(&content->session->buffers, content->buffer);
    sweep = b && b->load ? b->sweep : 0;
    pthread_mutex_unlock(&content->session->lock);
    return sweep;
}

static void collect(struct gb_core *core, const struct gb_room_ask *ask, struct gb_victims *victims) {
    struct gb_error unused = GB_ERROR_INIT;
    bool disk = gb_disk_state_of(core->config.disk, &unused) == GB_DISK_READY;
    struct gb_session *s;
    int64_t id = 0;

    if (ask->session) {
        look_at(victims, ask->session, ask, disk);
        return;
    }
    while ((s = gb_session_after(core, id))) {
        id = s->id;
        look_at(victims, s, ask, disk);
        gb_session_unref(s);
    }
}

static void choose(struct gb_task *task) {
    struct gb_room_ask *ask = gb_container_of(task, struct gb_room_ask, task);
    struct gb_victims victims = {.count = 0};
    size_t i;

    ask->sweep = sweep_of(ask->content);
    collect(ask->device->core, ask, &victims);
    ask->evictable = victims.bytes + victims.later;
    ask->later = ask->evictable >= ask->bytes && victims.bytes < ask->bytes;
    atomic_store(&ask->pending, 1);
    victims_choose(&victims, ask->partly && victims.bytes < ask->bytes ? victims.bytes : ask->bytes);
    for (i = 0; i < victims.count; i++)
        evict(ask, &victims.items[i]);
    victims_done(&victims);
    room_release(ask);
}

void gb_durable_make_room(struct gb_core *core, struct gb_room_ask *ask) {
    ask->task.run = choose;
    gb_lane_post(gb_core_compute_lane(core), &ask->task);
}

uint64_t gb_durable_spare(struct gb_session *s) {
    const struct gb_room_ask ask = {.session = s};

    return victims_sum_locked(s, &ask);
}

/* --- room for others: the water marks ----------------------------------------------------------------------------- */

static void forget(struct gb_room_ask *ask) {
    gb_core_pool_unref(ask->pool);
    atomic_store(&ask->device->making_room, false);
    free(ask);
}

static uint64_t percent_of(uint64_t bytes, unsigned percent) {
    return bytes / 100 * percent + bytes % 100 * percent / 100;
}

/* pool NULL: the device. */
static void keep_low(struct gb_core_device *device, struct gb_core_pool *pool, uint64_t used, uint64_t limit) {
    const struct gb_core_config *config = &device->core->config;
    struct gb_room_ask *ask;

    if (limit == 0 || used <= percent_of(limit, config->evict_high) || atomic_exchange(&device->making_room, true))
        return;
    ask = calloc(1, sizeof(*ask));
    if (!ask) {
        atomic_store(&device->making_room, false);
        return;
    }
    ask->device = device;
    ask->pool = pool ? gb_core_pool_ref(pool) : NULL;
    ask->bytes = used - percent_of(limit, config->evict_low);
    ask->partly = true;
    ask->ended = forget;
    gb_durable_make_room(device->core, ask);
}

static uint64_t in_memory(struct gb_alloc_counters *memory) {
    uint64_t freed = atomic_load(&memory->freed_bytes);
    uint64_t allocated = atomic_load(&memory->allocated_bytes);

    return allocated > freed ? allocated - freed : 0;
}

static void keep_pools_low(struct gb_session *s) {
    size_t i;

    pthread_mutex_lock(&s->lock);
    for (i = 0; i < s->pools_by_id.count; i++) {
        struct gb_core_pool *pool = s->pools_by_id.items[i].value;

        if (pool->device) /* that of a lost pool may not be there */
            keep_low(pool->device, pool, in_memory(&pool->memory), pool->rec.config.max_bytes);
    }
    pthread_mutex_unlock(&s->lock);
}

void gb_durable_keep_room(struct gb_core *core) {
    struct gb_session *s;
    int64_t id = 0;
    int i;

    if (core->config.evict_high == 0 || atomic_load(&core->movable_buffers) == 0)
        return;
    for (i = 0; i < core->device_count; i++)
        keep_low(&core->devices[i], NULL, in_memory(&core->devices[i].memory), core->devices[i].rec.total_bytes);
    while ((s = gb_session_after(core, id))) {
        id = s->id;
        keep_pools_low(s);
        gb_session_unref(s);
    }
}
