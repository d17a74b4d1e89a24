/* Storing the bytes that a buffer has on request, and what is to be done once a second. */
#include <stdio.h>

#include "base/clock.h"
#include "core/buffer/guard.h"
#include "core/buffer/op.h"
#include "core/buffer/transaction_together.h"
#include "core/durable/behind.h"
#include "core/durable/durable.h"
#include "core/public/durable.h"
#include "core/stored/disks.h"

#define SWEEP_NS (3600 * GB_NS_PER_S)
#define ORPHAN_TTL_S (24 * 3600)

static int check_locked(const struct gb_buffer *b, struct gb_error *err) {
    if (b->rec.durability == GB_DURABILITY_NONE)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "\"%s\" has durability \"none\": give it \"sync\" or \"behind\" first", b->name);
    return gb_guard_check_settled_locked(b, "they are never durable; copy them, and make the copy durable", err);
}

/* The record stays as it is, but for a checksum that was not known. */
static int validate_locked(struct gb_transaction *transaction, struct gb_buffer *b, struct gb_error *err) {
    if (gb_buffer_op_check_locked(gb_buffer_op_of(transaction), b, err) < 0 || check_locked(b, err) < 0)
        return -1;
    gb_buffer_copy_locked(b, &transaction->rec);
    transaction->stores = b->rec.state == GB_BUFFER_READY;
    transaction->unrecorded = b->rec.stored_generation == b->rec.generation &&
                              !(transaction->stores && b->stored && atomic_load(&b->stored->damaged));
    gb_buffer_op_of(transaction)->call->copied = !transaction->unrecorded;
    return 0;
}

static void publish_locked(struct gb_transaction *transaction, struct gb_buffer *b) {
    gb_transaction_publish_kept_locked(transaction, b);
    gb_buffer_copy_locked(b, &gb_buffer_op_of(transaction)->call->buffer);
}

static void start(struct gb_buffer_op *op) {
    if (op)
        op->transaction.upkeep = true;
    gb_buffer_op_start(op, validate_locked, publish_locked);
}

void gb_buffer_store(struct gb_core *core, const struct gb_locator *at, const struct gb_buffer_check *check,
                     struct gb_buffer_call *call) {
    start(gb_buffer_op_new(sizeof(struct gb_buffer_op), core, at, check, call));
}

void gb_buffer_store_in(struct gb_session *session, const struct gb_name *name, struct gb_buffer_call *call) {
    start(gb_buffer_op_new_in(sizeof(struct gb_buffer_op), gb_session_ref(session), name, NULL, call));
}

/* --- once a second ----------------------------------------------------------------------------------------------- */

struct lag {
    uint64_t bytes;
    uint64_t since_ns; /* of the one that waits longest; 0: none */
};

static void add_lag(struct gb_session *s, struct lag *lag) {
    struct gb_buffer *b;
    int64_t id = 0;

    pthread_mutex_lock(&s->lock);
    while (s->behind > 0 && (b = gb_idlist_after(&s->buffers_by_id, id, &id))) {
        if (!b->behind)
            continue;
        lag->bytes += b->rec.bytes;
        if (lag->since_ns == 0 || b->behind_ns < lag->since_ns)
            lag->since_ns = b->behind_ns;
    }
    pthread_mutex_unlock(&s->lock);
}

static void note_lag(struct gb_core *core) {
    struct lag lag = {0};
    struct gb_session *s;
    int64_t id = 0;

    while (atomic_load(&core->behind_buffers) > 0 && (s = gb_session_after(core, id))) {
        id = s->id;
        add_lag(s, &lag);
        gb_session_unref(s);
    }
    atomic_store(&core->behind_bytes, lag.bytes);
    atomic_store(&core->behind_since_ns, lag.since_ns);
}

/* The feed tells when durable writes are refused for another reason than before, or taken again. */
static void tell_state(struct gb_core *core) {
    struct gb_error why = GB_ERROR_INIT;
    enum gb_disk_state state = gb_disk_state_of(core->config.disk, &why);
    struct gb_notice notice;

    if (state == GB_DISK_READY && gb_store_durable_health(core->store, &why) < 0)
        state = GB_DISK_FAILED;
    if ((int)state == core->storage_told)
        return;
    core->storage_told = state;
    notice = gb_notice_new(state == GB_DISK_READY  ? GB_NOTICE_STORAGE_RECOVERED
                           : state == GB_DISK_FULL ? GB_NOTICE_STORAGE_FULL
                                                   : GB_NOTICE_STORAGE_FAILED);
    snprintf(notice.detail, sizeof(notice.detail), "%.120s", why.detail);
    gb_notice_post(core, &notice);
}

/* A write may have changed the state since the last time. */
static void look_after_disk(struct gb_core *core) {
    tell_state(core);
    if (gb_disk_probe(core->config.disk))
        tell_state(core);
}

/* Orphans are kept for a while, so that an older database that is put back finds their files. */
static void sweep_orphans(struct gb_core *core) {
    uint64_t ttl_s = core->config.orphan_ttl_s > 0 ? core->config.orphan_ttl_s : ORPHAN_TTL_S;
    uint64_t now_ns = gb_clock_ns();

    if (core->orphans_swept_ns > 0 && now_ns - core->orphans_swept_ns < SWEEP_NS)
        return;
    core->orphans_swept_ns = now_ns;
    gb_disk_sweep_orphans(core->config.disk, gb_store_seen_since(core->store, (int64_t)ttl_s * 1000000));
}

void gb_durable_tick(struct gb_core *core) {
    if (!core->config.disk)
        return;
    look_after_disk(core);
    sweep_orphans(core);
    gb_durable_keep_room(core);
    gb_behind_tick(core);
    note_lag(core);
}
