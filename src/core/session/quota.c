/* The quota of a session: bytes of memory, of page-locked memory and on disk, and buffers; and notices about a session.
 * Bytes are reserved before the device is called, and given back with the memory. Contents, buffers and uploads call
 * this, under the session's lock. */
#include "core/session/quota.h"

#include <stdio.h>
#include <string.h>

#include "core/memory/pool.h"
#include "core/runtime/runtime.h"
#include "core/session/session.h"

/* --- quota -------------------------------------------------------------------------------------------------------- */

/* The detail names the numbers as the refusal does. */
static void note_exceeded(struct gb_session *session, uint64_t bytes, const char *which, uint64_t limit, uint64_t used,
                          uint64_t requested) {
    struct gb_notice n = gb_notice_of(session, GB_NOTICE_QUOTA_EXCEEDED);
    const char *unit = bytes > 0 ? "_bytes" : "";

    n.has_bytes = bytes > 0;
    n.bytes = bytes;
    snprintf(n.detail, sizeof(n.detail), "%s: limit%s %llu, used%s %llu, requested%s %llu", which, unit,
             (unsigned long long)limit, unit, (unsigned long long)used, unit, (unsigned long long)requested);
    gb_notice_post_limited(session->core, &n);
}

static int check_bytes(struct gb_session *session, uint64_t bytes, bool tell, struct gb_error *err) {
    uint64_t limit = session->rec.quota.bytes;
    uint64_t used = session->used_bytes;

    if (bytes == 0 || (used <= limit && bytes <= limit - used))
        return 0;
    if (tell)
        note_exceeded(session, bytes, "quota.bytes", limit, used, bytes);
    gb_error_numbers(err, limit, used, bytes);
    return gb_error_set(err, GB_ERR_QUOTA_EXCEEDED,
                        "session \"%s\" may hold %llu bytes, holds %llu, and %llu more are asked for",
                        gb_session_client_name(session)->s, (unsigned long long)limit, (unsigned long long)used,
                        (unsigned long long)bytes);
}

/* Returns true if the bytes fit into the quota, but not beside the present ones. */
static bool lacks_room(const struct gb_session *session, uint64_t bytes) {
    uint64_t limit = session->rec.quota.bytes;

    return bytes > 0 && bytes <= limit && (session->used_bytes > limit || bytes > limit - session->used_bytes);
}

bool gb_quota_promise_locked(struct gb_session *session, uint64_t bytes) {
    const struct gb_core *core = session->core;
    uint64_t beyond = session->used_bytes + bytes - session->rec.quota.bytes;

    return session->movable > 0 && core->spare && lacks_room(session, bytes) && core->spare(session) >= beyond;
}

static int check_count(struct gb_session *session, uint64_t count, bool tell, struct gb_error *err) {
    uint64_t limit = session->rec.quota.buffers;

    if (count == 0 || (session->counted_buffers <= limit && count <= limit - session->counted_buffers))
        return 0;
    if (tell)
        note_exceeded(session, 0, "quota.buffers", limit, session->counted_buffers, count);
    return gb_error_set(err, GB_ERR_QUOTA_EXCEEDED, "session \"%s\" may hold %llu buffers and holds %llu",
                        gb_session_client_name(session)->s, (unsigned long long)limit,
                        (unsigned long long)session->counted_buffers);
}

static int check_limit(struct gb_core *core, uint64_t counted, uint64_t count, struct gb_error *err) {
    if (count == 0 || (counted <= core->config.buffers_max && count <= core->config.buffers_max - counted))
        return 0;
    return gb_error_set(err, GB_ERR_LIMIT_REACHED,
                        "there are %llu buffers in all sessions, the permitted number (--max-buffers)",
                        (unsigned long long)counted);
}

int gb_quota_check_locked(struct gb_session *session, uint64_t bytes, uint64_t count, bool tell, struct gb_error *err) {
    if ((!gb_quota_promise_locked(session, bytes) && check_bytes(session, bytes, tell, err) < 0) ||
        check_count(session, count, tell, err) < 0)
        return -1;
    return check_limit(session->core, atomic_load(&session->core->counted_buffers), count, err);
}

void gb_quota_denied(struct gb_session *s, const struct gb_error *error) {
    enum gb_failure why = gb_failure_of(error->code, GB_FAILED_ALLOCATION);

    if (why == GB_FAILURE_pinned_limit_reached) {
        atomic_fetch_add(&s->core->memory[GB_KIND_PINNED].failures, 1);
        atomic_fetch_add(&s->core->memory[GB_KIND_PINNED].failure[why], 1);
    } else if (why != GB_FAILURE_quota_exceeded && why != GB_FAILURE_limit_reached) {
        return;
    }
    gb_live_counters_failed(&s->core->live_counters, GB_FAILED_ALLOCATION, why);
    gb_live_counters_failed(&s->live_counters, GB_FAILED_ALLOCATION, why);
}

static int refuse(struct gb_session *session, const struct gb_error *why, struct gb_error *err) {
    gb_quota_denied(session, why);
    return gb_error_move(err, why);
}

static int take_locked(struct gb_session *session, uint64_t bytes, uint64_t count, struct gb_error *err) {
    struct gb_core *core = session->core;

    if (check_bytes(session, bytes, true, err) < 0 || check_count(session, count, true, err) < 0)
        return -1;
    /* Other sessions count here too, under other locks; so the number is added first, then checked. */
    if (check_limit(core, atomic_fetch_add(&core->counted_buffers, count), count, err) < 0) {
        atomic_fetch_sub(&core->counted_buffers, count);
        return -1;
    }
    session->used_bytes += bytes;
    session->counted_buffers += count;
    return 0;
}

int gb_quota_take_locked(struct gb_session *session, uint64_t bytes, uint64_t count, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;

    return take_locked(session, bytes, count, &why) < 0 ? refuse(session, &why, err) : 0;
}

int gb_quota_redeem_locked(struct gb_session *session, uint64_t bytes, struct gb_error *err) {
    if (check_bytes(session, bytes, false, err) < 0)
        return -1;
    session->used_bytes += bytes;
    return 0;
}

void gb_quota_give_locked(struct gb_session *session, uint64_t bytes, uint64_t count) {
    session->used_bytes -= bytes;
    session->counted_buffers -= count;
    atomic_fetch_sub(&session->core->counted_buffers, count);
}

/* Refused by the ceiling of the machine, in the words of other refusals for lack of memory. */
static void note_pinned_limit(struct gb_session *session, uint64_t bytes, const struct gb_error *error) {
    struct gb_notice n = gb_notice_of(session, GB_NOTICE_MEMORY_EXHAUSTED);

    n.has_bytes = true;
    n.bytes = bytes;
    snprintf(n.detail, sizeof(n.detail),
             "page-locked host memory: limit_bytes %llu, used_bytes %llu, requested_bytes %llu",
             (unsigned long long)error->limit_bytes, (unsigned long long)error->used_bytes,
             (unsigned long long)error->requested_bytes);
    gb_notice_post_limited(session->core, &n);
}

static int check_pinned_quota(struct gb_session *session, uint64_t bytes, bool tell, struct gb_error *err) {
    uint64_t limit = session->rec.quota.pinned_bytes;
    uint64_t used = session->used_pinned_bytes;

    if (bytes == 0 || (used <= limit && bytes <= limit - used))
        return 0;
    if (tell)
        note_exceeded(session, bytes, "quota.pinned_bytes", limit, used, bytes);
    gb_error_numbers(err, limit, used, bytes);
    return gb_error_set(err, GB_ERR_QUOTA_EXCEEDED,
                        "session \"%s\" may hold %llu bytes of pinned memory, holds %llu, and %llu more are asked for",
                        gb_session_client_name(session)->s, (unsigned long long)limit, (unsigned long long)used,
                        (unsigned long long)bytes);
}

int gb_quota_check_pinned_locked(struct gb_session *session, uint64_t bytes, bool tell, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;

    if (check_pinned_quota(session, bytes, tell, err) < 0)
        return -1;
    if (gb_pinned_check(&session->core->pinned, bytes, &why) == 0)
        return 0;
    if (tell)
        note_pinned_limit(session, bytes, &why);
    return gb_error_move(err, &why);
}

int gb_quota_take_pinned_locked(struct gb_session *session, uint64_t bytes, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;

    if (check_pinned_quota(session, bytes, true, &why) < 0)
        return refuse(session, &why, err);
    if (gb_pinned_take(&session->core->pinned, bytes, &why) < 0) {
        note_pinned_limit(session, bytes, &why);
        return refuse(session, &why, err);
    }
    session->used_pinned_bytes += bytes;
    return 0;
}

void gb_quota_give_pinned_locked(struct gb_session *session, uint64_t bytes) {
    session->used_pinned_bytes -= bytes;
    gb_pinned_give(&session->core->pinned, bytes);
}

int gb_quota_check_stored_locked(struct gb_session *session, uint64_t bytes, bool tell, struct gb_error *err) {
    uint64_t limit = session->rec.quota.stored_bytes;
    uint64_t used = session->used_stored_bytes + session->reserved_stored_bytes;

    if (bytes == 0 || (used <= limit && bytes <= limit - used))
        return 0;
    if (tell)
        note_exceeded(session, bytes, "quota.stored_bytes", limit, used, bytes);
    gb_error_numbers(err, limit, used, bytes);
    return gb_error_set(err, GB_ERR_QUOTA_EXCEEDED,
                        "session \"%s\" may have %llu bytes on disk, has %llu, and %llu more are to be stored: delete "
                        "buffers that are durable or were evicted, or raise the quota",
                        gb_session_client_name(session)->s, (unsigned long long)limit, (unsigned long long)used,
                        (unsigned long long)bytes);
}

int gb_quota_take_stored_locked(struct gb_session *session, uint64_t bytes, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;

    if (gb_quota_check_stored_locked(session, bytes, true, &why) < 0)
        return refuse(session, &why, err);
    session->reserved_stored_bytes += bytes;
    return 0;
}

void gb_quota_give_stored_locked(struct gb_session *session, uint64_t bytes) {
    session->reserved_stored_bytes -= bytes;
}

/* --- notices ------------------------------------------------------------------------------------------------------ */

struct gb_notice gb_notice_of(const struct gb_session *session, enum gb_notice_type type) {
    struct gb_notice n = gb_notice_new(type);

    strcpy(n.session.s, gb_session_client_name(session)->s);
    return n;
}

struct gb_notice gb_notice_of_buffer(struct gb_session *session, const struct gb_buffer_rec *rec,
                                     enum gb_notice_type type) {
    struct gb_notice n = gb_notice_of(session, type);

    strcpy(n.buffer.s, rec->name.s);
    if (rec->kind == GB_KIND_DEVICE)
        strcpy(n.pool.s, rec->pool.s);
    n.device = rec->device;
    n.has_bytes = true;
    n.bytes = rec->bytes;
    n.generation = rec->generation;
    n.has_head = rec->mirrored;
    n.head = rec->head;
    return n;
}

void gb_notice_post_session(struct gb_session *session, enum gb_notice_type type) {
    struct gb_notice n = gb_notice_of(session, type);

    gb_notice_post(session->core, &n);
}

void gb_notice_post_pool(struct gb_session *session, const struct gb_core_pool *pool, enum gb_notice_type type) {
    struct gb_notice n = gb_notice_of(session, type);

    n.pool = pool->rec.name;
    n.device = pool->rec.device;
    if (type == GB_NOTICE_POOL_LOST)
        snprintf(n.detail, sizeof(n.detail), "%s",
                 pool->device ? "the device could not make it again" : "the device that it was on is not here");
    gb_notice_post(session->core, &n);
}

void gb_notice_post_lost(struct gb_session *session, uint64_t count, const char *why) {
    struct gb_notice n = gb_notice_of(session, GB_NOTICE_BUFFER_LOST);

    if (count == 0)
        return;
    n.count = count;
    snprintf(n.detail, sizeof(n.detail), "%s", why);
    gb_notice_post(session->core, &n);
}
