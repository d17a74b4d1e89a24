/* Storing the bytes that a buffer has: on request, and what is behind within the lag. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "core/buffer/guard.h"
#include "core/buffer/op.h"
#include "core/durable/durable.h"
#include "core/public/durable.h"
#include "core/session/session.h"
#include "core/stored/disks.h"

/* Other buffers are stored by later ticks: the disk is one for all. */
#define STORES_AT_ONCE 64

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
    struct gb_buffer_call *call = gb_buffer_op_of(transaction)->call;
    struct gb_notice notice;

    gb_buffer_keep_state_locked(b, &transaction->rec);
    gb_buffer_set_locked(transaction->session, b, &transaction->rec, b->content);
    gb_buffer_copy_locked(b, &call->buffer);
    if (!call->copied)
        return;
    notice = gb_notice_of_buffer(transaction->session, &transaction->rec, GB_NOTICE_BUFFER_STORED);
    gb_notice_post(transaction->session->core, &notice);
}

void gb_buffer_store(struct gb_core *core, const struct gb_locator *at, const struct gb_buffer_check *check,
                     struct gb_buffer_call *call) {
    gb_buffer_op_run(core, at, check, call, validate_locked, publish_locked);
}

/* --- what is behind ----------------------------------------------------------------------------------------------- */

/* Stores that are waited for at the end of the process. */
struct flush {
    pthread_mutex_t lock;
    pthread_cond_t none;
    size_t running;
};

static void flushed(void *arg) {
    struct flush *flush = arg;

    pthread_mutex_lock(&flush->lock);
    if (--flush->running == 0)
        pthread_cond_signal(&flush->none);
    pthread_mutex_unlock(&flush->lock);
}

/* flush NULL: nothing waits for it. */
static void store_one(struct gb_session *s, const struct gb_name *name, struct flush *flush) {
    struct gb_buffer_call *call = gb_call_new(sizeof(*call), flush ? flushed : NULL, flush);
    const struct gb_locator at = {s->name, *name};

    if (!call) /* another time */
        return;
    if (flush) {
        pthread_mutex_lock(&flush->lock);
        flush->running++;
        pthread_mutex_unlock(&flush->lock);
    }
    gb_buffer_store(s->core, &at, NULL, call);
    gb_call_unref(&call->base);
}

/* Names of buffers that are behind and free, as a change under way would have them wait, and that come after the id. */
static size_t list_behind(struct gb_session *s, int64_t before_us, int64_t *id, struct gb_name *names, size_t max) {
    struct gb_buffer *b;
    size_t count = 0;

    pthread_mutex_lock(&s->lock);
    while (s->behind > 0 && count < max && (b = gb_idlist_after(&s->buffers_by_id, *id, id))) {
        if (b->live && !b->deleting && b->behind && !b->fifo.taken && b->behind_since_us <= before_us)
            strcpy(names[count++].s, b->name);
    }
    pthread_mutex_unlock(&s->lock);
    return count;
}

static void store_session(struct gb_session *s, int64_t before_us, struct gb_name *names, struct flush *flush) {
    int64_t id = 0;
    size_t count;
    size_t i;

    do {
        count = list_behind(s, before_us, &id, names, STORES_AT_ONCE);
        for (i = 0; i < count; i++)
            store_one(s, &names[i], flush);
    } while (flush && count > 0);
}

static void store_all(struct gb_core *core, int64_t before_us, struct flush *flush) {
    struct gb_name *names = malloc(STORES_AT_ONCE * sizeof(*names));
    struct gb_session *s;
    int64_t id = 0;

    while (names && (s = gb_session_after(core, id))) {
        id = s->id;
        store_session(s, before_us, names, flush);
        gb_session_unref(s);
    }
    free(names);
}

struct lag {
    uint64_t buffers;
    uint64_t bytes;
    int64_t since_us; /* of the one that waits longest; 0: none */
};

static void add_lag(struct gb_session *s, struct lag *lag) {
    struct gb_buffer *b;
    int64_t id = 0;

    pthread_mutex_lock(&s->lock);
    while (s->behind > 0 && (b = gb_idlist_after(&s->buffers_by_id, id, &id))) {
        if (!b->behind)
            continue;
        lag->buffers++;
        lag->bytes += b->rec.bytes;
        if (lag->since_us == 0 || b->behind_since_us < lag->since_us)
            lag->since_us = b->behind_since_us;
    }
    pthread_mutex_unlock(&s->lock);
}

static void note_lag(struct gb_core *core) {
    struct lag lag = {0};
    struct gb_session *s;
    int64_t id = 0;

    while ((s = gb_session_after(core, id))) {
        id = s->id;
        add_lag(s, &lag);
        gb_session_unref(s);
    }
    atomic_store(&core->behind_buffers, lag.buffers);
    atomic_store(&core->behind_bytes, lag.bytes);
    atomic_store(&core->behind_since_us, lag.since_us);
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
    uint64_t now_ns = gb_clock_ns();

    if (core->orphans_swept_ns > 0 && now_ns - core->orphans_swept_ns < SWEEP_NS)
        return;
    core->orphans_swept_ns = now_ns;
    gb_disk_sweep_orphans(core->config.disk, core->config.orphan_ttl_s > 0 ? core->config.orphan_ttl_s : ORPHAN_TTL_S);
}

void gb_durable_tick(struct gb_core *core) {
    uint64_t lag_ms = core->config.durable_lag_ms > 0 ? core->config.durable_lag_ms : 1000;

    if (!core->config.disk)
        return;
    look_after_disk(core);
    sweep_orphans(core);
    gb_durable_keep_room(core);
    store_all(core, gb_wall_us() - (int64_t)lag_ms * 1000, NULL);
    note_lag(core);
}

void gb_durable_flush(struct gb_core *core) {
    struct flush flush = {.running = 1};

    if (!core->config.disk)
        return;
    gb_mutex_init(&flush.lock);
    pthread_cond_init(&flush.none, NULL);
    store_all(core, INT64_MAX, &flush);
    flushed(&flush);
    pthread_mutex_lock(&flush.lock);
    while (flush.running > 0)
        pthread_cond_wait(&flush.none, &flush.lock);
    pthread_mutex_unlock(&flush.lock);
    pthread_cond_destroy(&flush.none);
    pthread_mutex_destroy(&flush.lock);
}
