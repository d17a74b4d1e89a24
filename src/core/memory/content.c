/* The memory behind a buffer at one generation. References count its users. The last one frees it in the order of its
 * stream, or caches it for a tick. Each allocation and free is counted and logged once. Buffers, transfers and leases
 * call this; alloc.c allocates. */
#include "core/memory/content.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/thread.h"
#include "core/memory/frees.h"
#include "core/memory/kept.h"
#include "core/memory/pool.h"
#include "core/public/observe.h"
#include "core/session/quota.h"

/* --- alloc log ---------------------------------------------------------------------------------------------------- */

#define CHUNK 64 /* blocks that are copied at a time */

struct gb_alloc_log *gb_alloc_log_new(uint64_t room) {
    struct gb_alloc_log *t = calloc(1, sizeof(*t));

    if (!t)
        return NULL;
    t->next = 1;
    t->room = room;
    t->ring = room > 0 ? calloc(room, sizeof(*t->ring)) : NULL; /* pages that were never written take no memory */
    if (room > 0 && !t->ring) {
        free(t);
        return NULL;
    }
    gb_mutex_init(&t->lock);
    TAILQ_INIT(&t->live);
    return t;
}

void gb_alloc_log_free(struct gb_alloc_log *t) {
    if (!t)
        return;
    free(t->ring);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

/* --- alloc log: writing ------------------------------------------------------------------------------------------- */

static void cut(char out[GB_ALLOC_LOG_NAME_SIZE], const char *name) {
    size_t n = strnlen(name, GB_ALLOC_LOG_NAME_SIZE);

    memcpy(out, name, n < GB_ALLOC_LOG_NAME_SIZE ? n + 1 : n);
    if (n == GB_ALLOC_LOG_NAME_SIZE)
        memcpy(out + GB_ALLOC_LOG_NAME_SIZE - 4, "...", 4);
}

static void add_locked(struct gb_alloc_log *t, const struct gb_content *c, enum gb_alloc_log_action action) {
    struct gb_alloc_log_event *e;

    if (t->room > 0) {
        e = &t->ring[t->next % t->room];
        *e = (struct gb_alloc_log_event){
            .number = t->next,
            .at_us = gb_wall_us(),
            .address = action == GB_ALLOC_LOG_FAILURE ? 0 : (uint64_t)(uintptr_t)c->ptr,
            .bytes = c->bytes,
            .free_bytes = action == GB_ALLOC_LOG_FAILURE ? atomic_load(&c->device->free_bytes) : 0,
            .session_id = c->session->id,
            .stream_id = c->alloc_stream->id,
            .pool_id = c->kind == GB_KIND_DEVICE ? c->pool->rec.id : 0,
            .device = c->device->index,
            .kind = c->kind,
            .action = action,
        };
        cut(e->session, gb_session_name(c->session)->s);
        cut(e->buffer, c->buffer);
    }
    t->next++;
}

/* Logs that the content has memory now. */
static void alloc_log_taken(struct gb_content *c) {
    struct gb_alloc_log *t = c->device->core->alloc_log;

    if (!gb_kind_of_device(c->kind) || !c->ptr)
        return;
    pthread_mutex_lock(&t->lock);
    c->alloc_log.number = t->next;
    TAILQ_INSERT_TAIL(&t->live, &c->alloc_log, entry);
    add_locked(t, c, GB_ALLOC_LOG_ALLOC);
    pthread_mutex_unlock(&t->lock);
}

/* Takes the content out of the list of live ones. freed: logs the free. */
static void leave(struct gb_content *c, bool freed) {
    struct gb_alloc_log *t = c->device->core->alloc_log;

    if (!gb_kind_of_device(c->kind) || c->owner)
        return;
    pthread_mutex_lock(&t->lock);
    if (c->alloc_log.number > 0) {
        TAILQ_REMOVE(&t->live, &c->alloc_log, entry);
        c->alloc_log.number = 0;
        if (freed)
            add_locked(t, c, GB_ALLOC_LOG_FREE);
    }
    pthread_mutex_unlock(&t->lock);
}

static void alloc_log_freed(struct gb_content *c) {
    leave(c, true);
}

static void alloc_log_forget(struct gb_content *c) {
    leave(c, false);
}

void gb_alloc_log_refused(const struct gb_content *c) {
    struct gb_alloc_log *t = c->device->core->alloc_log;

    if (!gb_kind_of_device(c->kind))
        return;
    pthread_mutex_lock(&t->lock);
    add_locked(t, c, GB_ALLOC_LOG_FAILURE);
    pthread_mutex_unlock(&t->lock);
}

/* --- alloc log: reading ------------------------------------------------------------------------------------------- */

static uint64_t first_locked(const struct gb_alloc_log *t) {
    if (t->room == 0)
        return t->next;
    return t->next > t->room ? t->next - t->room : 1;
}

uint64_t gb_alloc_log_room(const struct gb_core *core) {
    return core->alloc_log->room;
}

void gb_alloc_log_range(struct gb_core *core, uint64_t *ret_first, uint64_t *ret_end) {
    struct gb_alloc_log *t = core->alloc_log;

    pthread_mutex_lock(&t->lock);
    *ret_first = first_locked(t);
    *ret_end = t->next;
    pthread_mutex_unlock(&t->lock);
}

unsigned gb_alloc_log_events(struct gb_core *core, uint64_t *from, uint64_t end, struct gb_alloc_log_event *out,
                             unsigned n) {
    struct gb_alloc_log *t = core->alloc_log;
    unsigned count = 0;

    pthread_mutex_lock(&t->lock);
    if (*from < first_locked(t))
        *from = first_locked(t);
    if (end > t->next)
        end = t->next;
    for (; *from < end && count < n; (*from)++)
        out[count++] = t->ring[*from % t->room];
    pthread_mutex_unlock(&t->lock);
    return count;
}

static void copy_block(const struct gb_alloc_log_link *link, struct gb_alloc_log_block *out) {
    const struct gb_content *c =
        gb_container_of((struct gb_alloc_log_link *)(uintptr_t)link, struct gb_content, alloc_log);
    bool pool_sessions = c->kind == GB_KIND_DEVICE;

    *out = (struct gb_alloc_log_block){
        .number = link->number,
        .address = (uint64_t)(uintptr_t)c->ptr,
        .bytes = c->bytes,
        .session_id = c->session->id,
        .stream_id = c->alloc_stream->id,
        .pool_id = pool_sessions ? c->pool->rec.id : 0,
        .device = c->device->index,
        .kind = c->kind,
        .leaving = atomic_load(&c->left),
        .session = *gb_session_name(c->session),
    };
    strcpy(out->buffer.s, c->buffer);
    if (pool_sessions)
        out->pool = c->pool->rec.name;
}

/* Copies the blocks behind place, which moves behind them. A content in the list still has its references. Returns the
 * number of blocks. */
static unsigned copy_chunk(struct gb_alloc_log *t, struct gb_alloc_log_link *place, struct gb_alloc_log_block *out) {
    struct gb_alloc_log_link *link;
    unsigned count = 0;

    pthread_mutex_lock(&t->lock);
    for (link = TAILQ_NEXT(place, entry); link && count < CHUNK; link = TAILQ_NEXT(place, entry)) {
        TAILQ_REMOVE(&t->live, place, entry);
        TAILQ_INSERT_AFTER(&t->live, link, place, entry);
        if (!link->place)
            copy_block(link, &out[count++]);
    }
    pthread_mutex_unlock(&t->lock);
    return count;
}

int gb_alloc_log_blocks(struct gb_core *core,
                        int (*visit)(void *arg, const struct gb_alloc_log_block *, struct gb_error *), void *arg,
                        struct gb_error *err) {
    struct gb_alloc_log *t = core->alloc_log;
    struct gb_alloc_log_block *chunk = calloc(CHUNK, sizeof(*chunk));
    struct gb_alloc_log_link place = {.place = true};
    unsigned count;
    unsigned i;
    int r = 0;

    if (!chunk)
        return gb_no_memory(err);
    pthread_mutex_lock(&t->lock);
    TAILQ_INSERT_HEAD(&t->live, &place, entry);
    pthread_mutex_unlock(&t->lock);
    while (r == 0 && (count = copy_chunk(t, &place, chunk)) > 0) {
        for (i = 0; i < count && r == 0; i++)
            r = visit(arg, &chunk[i], err);
    }
    pthread_mutex_lock(&t->lock);
    TAILQ_REMOVE(&t->live, &place, entry);
    pthread_mutex_unlock(&t->lock);
    free(chunk);
    return r;
}

/* --- alloc stats -------------------------------------------------------------------------------------------------- */

/* The session and the daemon are counted apart from these, in the counters. */
#define SCOPES 3

/* Lists the scopes that count the content; only memory of kind DEVICE has a pool. Returns their number. */
static int scopes_of(struct gb_content *c, struct gb_alloc_counters *ret[SCOPES]) {
    ret[0] = &c->device->memory;
    ret[1] = &c->device->core->memory[c->kind];
    ret[2] = &c->pool->memory;
    return c->kind == GB_KIND_DEVICE ? SCOPES : SCOPES - 1;
}

static void add(_Atomic uint64_t *count, uint64_t n) {
    atomic_fetch_add_explicit(count, n, memory_order_relaxed);
}

static void raise_to(_Atomic uint64_t *most, uint64_t value) {
    uint64_t before = atomic_load_explicit(most, memory_order_relaxed);

    while (value > before && !atomic_compare_exchange_weak(most, &before, value))
        ;
}

static void level_up(struct gb_level *level, uint64_t bytes) {
    raise_to(&level->peak_bytes, atomic_fetch_add_explicit(&level->bytes, bytes, memory_order_relaxed) + bytes);
    raise_to(&level->largest_bytes, bytes);
}

static void level_down(struct gb_level *level, uint64_t bytes) {
    atomic_fetch_sub_explicit(&level->bytes, bytes, memory_order_relaxed);
}

/* Counts the allocation in all scopes of the content. [any thread] */
static void alloc_stats_taken(struct gb_content *c) {
    struct gb_core *core = c->device->core;
    struct gb_alloc_counters *scopes[SCOPES];
    int n = scopes_of(c, scopes);
    int i;

    for (i = 0; i < n; i++) {
        level_up(&scopes[i]->level, c->bytes);
        add(&scopes[i]->allocations, 1);
        atomic_fetch_add(&scopes[i]->allocated_bytes, c->bytes); /* ordered, because a pool's limit is checked by it */
    }
    level_up(&core->level, c->bytes);
    level_up(&c->session->level, c->bytes);
    GB_COUNT(core, c->session, allocations, 1);
    GB_COUNT(core, c->session, allocated_bytes, c->bytes);
}

static void alloc_stats_freed(struct gb_content *c) {
    struct gb_core *core = c->device->core;
    struct gb_alloc_counters *scopes[SCOPES];
    int n = scopes_of(c, scopes);
    int i;

    for (i = 0; i < n; i++) {
        level_down(&scopes[i]->level, c->bytes);
        add(&scopes[i]->frees, 1);
        atomic_fetch_add(&scopes[i]->freed_bytes, c->bytes);
    }
    level_down(&core->level, c->bytes);
    level_down(&c->session->level, c->bytes);
    GB_COUNT(core, c->session, frees, 1);
    GB_COUNT(core, c->session, freed_bytes, c->bytes);
}

void gb_alloc_stats_retried(struct gb_content *c) {
    struct gb_alloc_counters *scopes[SCOPES];
    int n = scopes_of(c, scopes);
    int i;

    for (i = 0; i < n; i++)
        add(&scopes[i]->retries, 1);
    GB_COUNT(c->device->core, c->session, allocation_retries, 1);
}

void gb_alloc_stats_trimmed(struct gb_content *c, unsigned pools) {
    struct gb_alloc_counters *scopes[SCOPES];
    int n = scopes_of(c, scopes);
    int i;

    for (i = 0; i < n; i++)
        add(&scopes[i]->trims, pools);
    GB_COUNT(c->device->core, c->session, trims, pools);
}

void gb_alloc_stats_refused(struct gb_content *c, const struct gb_error *error, bool pool_limit) {
    enum gb_failure why = pool_limit && error->code == GB_ERR_OUT_OF_MEMORY
                              ? GB_FAILURE_pool_limit
                              : gb_failure_of(error->code, GB_FAILED_POOL);
    struct gb_alloc_counters *scopes[SCOPES];
    int n = scopes_of(c, scopes);
    int i;

    for (i = 0; i < n; i++) {
        add(&scopes[i]->failures, 1);
        add(&scopes[i]->failure[why], 1);
    }
    gb_live_counters_failed(&c->device->core->live_counters, GB_FAILED_ALLOCATION, why);
    gb_live_counters_failed(&c->session->live_counters, GB_FAILED_ALLOCATION, why);
}

/* --- content ------------------------------------------------------------------------------------------------------ */

#define FREE_TRIES 3

int gb_content_new_locked(struct gb_session *session, struct gb_core_pool *pool, enum gb_kind kind,
                          struct gb_core_stream *alloc_stream, const struct gb_name *buffer, uint64_t bytes,
                          struct gb_content **ret, struct gb_error *err) {
    size_t size = strlen(buffer->s) + 1;
    struct gb_content *c = calloc(1, sizeof(*c) + size);

    if (!c)
        return gb_no_memory(err);
    c->promised = kind != GB_KIND_PINNED && gb_quota_promise_locked(session, bytes);
    c->given = c->promised;
    if (!c->promised && gb_quota_take_locked(session, bytes, 0, err) < 0) {
        free(c);
        return -1;
    }
    if (kind == GB_KIND_PINNED && gb_quota_take_pinned_locked(session, bytes, err) < 0) {
        gb_quota_give_locked(session, bytes, 0);
        free(c);
        return -1;
    }
    atomic_init(&c->refs, 1);
    TAILQ_INIT(&c->pins);
    c->session = gb_session_ref(session);
    c->kind = kind;
    c->device = pool->device;
    c->pool = gb_core_pool_ref(kind == GB_KIND_DEVICE ? pool : pool->device->pool);
    c->alloc_stream = gb_core_stream_ref(alloc_stream);
    c->buffer = memcpy(c + 1, buffer->s, size);
    c->bytes = bytes;
    atomic_fetch_add(&c->pool->occupants, kind == GB_KIND_DEVICE);
    *ret = c;
    return 0;
}

int gb_content_redeem(struct gb_content *c, struct gb_error *err) {
    int r = 0;

    pthread_mutex_lock(&c->session->lock);
    if (c->promised)
        r = gb_quota_redeem_locked(c->session, c->bytes, err);
    if (r == 0)
        c->promised = c->given = false;
    pthread_mutex_unlock(&c->session->lock);
    return r;
}

struct gb_content *gb_content_foreign_new(struct gb_session *session, struct gb_core_device *device, uint64_t bytes) {
    struct gb_content *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    atomic_init(&c->refs, 1);
    TAILQ_INIT(&c->pins);
    c->session = gb_session_ref(session);
    c->kind = GB_KIND_PAGEABLE;
    c->device = device;
    c->pool = gb_core_pool_ref(device->pool);
    c->alloc_stream = gb_core_stream_ref(session->standard);
    c->buffer = "";
    c->bytes = bytes;
    c->given = true;
    return c;
}

struct gb_content *gb_content_ref(struct gb_content *content) {
    atomic_fetch_add(&content->refs, 1);
    return content;
}

/* --- location, copies, fills -------------------------------------------------------------------------------------- */

struct gb_location gb_content_location(const struct gb_content *content, uint64_t offset) {
    return (struct gb_location){content->kind, content->device->index, (char *)content->ptr + offset};
}

/* Opens the content's pool for another device, before the first copy across them: a direct copy is ten times as fast as
 * one through the host. A pool stays closed if a client closed it, or if the device cannot open it. */
static void open_to(struct gb_content *c, const struct gb_core_device *device) {
    _Atomic int *access = &c->pool->access[device->index];
    int is = GB_POOL_ACCESS_NONE;
    int r;

    if (c->kind != GB_KIND_DEVICE || atomic_load(access) != GB_POOL_ACCESS_NONE)
        return;
    r = gb_pool_access_set(device->core->backend, c->pool->pool, device->index, GB_POOL_ACCESS_READ_WRITE, NULL);
    atomic_compare_exchange_strong(access, &is, r == 0 ? (int)GB_POOL_ACCESS_READ_WRITE : GB_POOL_CLOSED);
}

int gb_content_move(struct gb_content *dst, uint64_t dst_offset, struct gb_content *src, uint64_t src_offset,
                    uint64_t bytes, struct gb_stream *stream, enum gb_copy_way *ret_way, struct gb_error *err) {
    struct gb_location to = gb_content_location(dst, dst_offset);
    struct gb_location from = gb_content_location(src, src_offset);

    *ret_way = GB_WAY_NONE;
    if (bytes == 0)
        return 0;
    if (dst->device != src->device) {
        open_to(src, dst->device);
        open_to(dst, src->device);
    }
    if (dst->kind != GB_KIND_DEVICE || src->kind != GB_KIND_DEVICE || dst->device != src->device)
        return gb_mem_move(dst->device->core->backend, &to, &from, bytes, stream, ret_way, err);
    *ret_way = GB_WAY_DEVICE;
    return gb_mem_copy(dst->device->core->backend, to.ptr, from.ptr, bytes, GB_COPY_ON_DEVICE, stream, err);
}

int gb_content_zero(struct gb_content *dst, uint64_t offset, uint64_t bytes, struct gb_stream *stream,
                    struct gb_error *err) {
    struct gb_location to = gb_content_location(dst, offset);

    if (bytes == 0)
        return 0;
    if (dst->kind != GB_KIND_DEVICE)
        return gb_location_fill(dst->device->core->backend, &to, 0, 1, bytes, stream, err);
    return gb_mem_fill(dst->device->core->backend, to.ptr, 0, 1, bytes, stream, err);
}

/* --- pins, quota, end --------------------------------------------------------------------------------------------- */

/* Only memory of kind DEVICE is from a pool. */
static bool pooled(const struct gb_content *c) {
    return c->kind == GB_KIND_DEVICE;
}

static void leave_locked(struct gb_content *c) {
    if (!c->left && pooled(c))
        atomic_fetch_sub(&c->pool->occupants, 1);
    c->left = true;
}

static void give_quota(struct gb_content *c) {
    pthread_mutex_lock(&c->session->lock);
    leave_locked(c);
    if (!c->given) {
        gb_quota_give_locked(c->session, c->bytes, 0);
        if (c->kind == GB_KIND_PINNED)
            gb_quota_give_pinned_locked(c->session, c->bytes);
    }
    c->given = true;
    pthread_mutex_unlock(&c->session->lock);
}

/* Takes back what hold_pinned_locked counted. */
static void unhold_locked(struct gb_content *c) {
    if (!c->held)
        return;
    c->held = false;
    c->session->held_bytes -= c->bytes;
    atomic_fetch_sub(&c->session->core->held_bytes, c->bytes);
}

/* What had lost its last buffer is back when a link to that is published. */
void gb_content_attach_locked(struct gb_content *content, struct gb_buffer *buffer) {
    content->of = buffer;
    if (pooled(content))
        atomic_fetch_add(&content->pool->live_buffers, 1);
    if (content->left && pooled(content))
        atomic_fetch_add(&content->pool->occupants, 1);
    content->left = false;
    unhold_locked(content);
}

/* Counts pinned bytes that no buffer has any more as held. */
static void hold_pinned_locked(struct gb_content *c) {
    if (c->pin_count == 0)
        return;
    c->held = true;
    c->session->held_bytes += c->bytes;
    atomic_fetch_add(&c->session->core->held_bytes, c->bytes);
}

void gb_content_detach_locked(struct gb_content *content) {
    content->of = NULL;
    if (pooled(content))
        atomic_fetch_sub(&content->pool->live_buffers, 1);
    leave_locked(content);
    hold_pinned_locked(content);
}

void gb_content_detach_one_locked(struct gb_content *content, struct gb_buffer *another) {
    content->of = another;
    if (pooled(content))
        atomic_fetch_sub(&content->pool->live_buffers, 1);
    atomic_fetch_sub(&content->refs, 1);
}

void gb_content_pin_locked(struct gb_content *c, struct gb_pin *pin) {
    TAILQ_INSERT_TAIL(&c->pins, pin, link);
    c->pin_count++;
    c->pin_writers += pin->write;
    if (pin->write)
        gb_kept_mark(c);
    atomic_fetch_add(&c->pool->leases, c->kind == GB_KIND_DEVICE);
}

void gb_content_unpin_locked(struct gb_content *c, struct gb_pin *pin) {
    TAILQ_REMOVE(&c->pins, pin, link);
    c->pin_count--;
    c->pin_writers -= pin->write;
    atomic_fetch_sub(&c->pool->leases, c->kind == GB_KIND_DEVICE);
    if (c->pin_count == 0)
        unhold_locked(c);
}

/* Ends the content after its memory was given back: its bytes leave the quota, then runs, the content is freed. */
static void content_end(struct gb_content *c) {
    struct gb_session *session = c->session;

    alloc_log_forget(c);
    gb_event_pool_give(&c->device->events, c->ready);
    gb_event_pool_give(&c->device->events, c->used);
    give_quota(c);
    gb_core_stream_unref(c->alloc_stream);
    gb_core_pool_unref(c->pool);
    gb_pinned_give(&c->device->core->pinned, c->locked_bytes);
    if (c->on_freed)
        c->on_freed(c->owner);
    if (c->then)
        c->then(c->then_arg);
    gb_session_unref(session);
    free(c->last);
    free(c);
}

static int zero(struct gb_content *c, struct gb_error *err) {
    struct gb_stream *part = gb_core_stream_part(c->alloc_stream, c->device->index);
    struct gb_ev *ready;

    if (!part && gb_core_stream_part_make(c->session->standard, c->device->index, &part, err) < 0)
        return -1;
    ready = gb_event_pool_take(&c->device->events, err);
    if (!ready)
        return -1;
    if (gb_content_zero(c, 0, c->bytes, part, err) < 0 ||
        gb_event_record(c->device->core->backend, ready->event, part, err) < 0) {
        gb_event_pool_give(&c->device->events, ready);
        return -1;
    }
    c->ready = ready;
    return 0;
}

/* The lanes of two devices may need the same zeros. So the lock is held while a fill is queued, which does not wait. */
int gb_content_materialize(struct gb_content *c, struct gb_error *err) {
    int r = 0;

    if (!c || !atomic_load(&c->blank))
        return 0;
    pthread_mutex_lock(&c->device->core->blank_lock);
    if (atomic_load(&c->blank)) {
        r = zero(c, err);
        atomic_store(&c->blank, r < 0);
    }
    pthread_mutex_unlock(&c->device->core->blank_lock);
    return r;
}

void gb_content_count_alloc(struct gb_content *c) {
    alloc_stats_taken(c);
    alloc_log_taken(c);
}

/* Counts and logs the free, once. */
static void count_free(struct gb_content *c) {
    if (c->counted)
        return;
    c->counted = true;
    alloc_log_freed(c);
    alloc_stats_freed(c);
}

#define FREE_TRIES 3

static int try_free(struct gb_content *c, struct gb_error *err) {
    struct gb_backend *be = c->device->core->backend;
    struct gb_location place = gb_content_location(c, 0);
    struct gb_stream *stream;

    if (c->owner)
        return gb_mem_import_end(be, &place, err);
    if (!pooled(c))
        return gb_mem_kind_free(be, &place, c->bytes, err);
    stream = gb_core_stream_part(c->alloc_stream, c->device->index);
    if (!stream && gb_core_stream_part_make(c->session->standard, c->device->index, &stream, err) < 0)
        return -1;
    return gb_mem_free(be, c->ptr, stream, err);
}

/* A free that fails on a living device is tried again, because its memory would stay allocated for ever. Returns true
 * if the memory was freed. */
static bool free_memory(struct gb_content *c) {
    struct gb_core *core = c->device->core;
    int tries;

    for (tries = 0; tries < FREE_TRIES; tries++) {
        struct gb_error err = GB_ERROR_INIT;

        if (try_free(c, &err) == 0) {
            gb_kept_remove(c);
            return true;
        }
        gb_core_report_error(core, &err);
        if (gb_backend_dead(core->backend, NULL))
            return false;
    }
    return false;
}

static void freed(struct gb_task *task) {
    content_end(gb_container_of(task, struct gb_content, task));
}

static void stream_freed(void *arg, const struct gb_error *error) {
    struct gb_content *c = arg;

    gb_core_report_error(c->device->core, error);
    c->task.run = freed;
    gb_lane_post(&c->device->lane, &c->task);
}

/* Ends the content when its stream has come to the free, which has been queued: until then the pool may not have the
 * memory for another stream, or for a larger allocation. Returns false if nothing is to be waited for. */
static bool watch_free(struct gb_content *c) {
    struct gb_stream *part = gb_core_stream_part(c->alloc_stream, c->device->index);
    struct gb_backend *be = c->device->core->backend;
    bool done = true;

    if (part && !c->used)
        c->used = gb_event_pool_take(&c->device->events, NULL);
    return part && c->used && gb_event_record(be, c->used->event, part, NULL) == 0 &&
           gb_event_query(be, c->used->event, &done, NULL) == 0 && !done &&
           gb_watch(be, c->used->event, stream_freed, c, NULL) == 0;
}

/* Frees pooled memory and ends the content. Runs in the lane. */
static void give_back(struct gb_content *c) {
    if (free_memory(c))
        count_free(c);
    c->device->waiting.freed = true;
    gb_core_pool_refresh(c->pool);
    gb_core_changed(c->device->core);
    if (!c->awaited || !watch_free(c))
        content_end(c);
}

/* --- frees of memory that is not from a pool ---------------------------------------------------------------------- */

/* Calls then while the memory of the content, which no client can see any more, is still to be freed. */
static void run_then_early(struct gb_content *c) {
    void (*then)(void *arg) = c->then;

    if (c->awaited)
        return;
    c->then = NULL;
    if (then)
        then(c->then_arg);
}

/* Frees the memory and ends the content, or puts that off. Runs on the lane of frees. */
static void free_unpooled(struct gb_task *task) {
    struct gb_content *c = gb_container_of(task, struct gb_content, task);

    if (!c->owner && gb_frees_put_off(c->device->frees, &c->task, c->kind, c->bytes)) {
        give_quota(c);
        run_then_early(c);
        return;
    }
    /* Logged before the free, because the next allocation may get the same address at once. */
    alloc_log_freed(c);
    if (free_memory(c) && !c->owner)
        alloc_stats_freed(c);
    gb_core_changed(c->device->core);
    content_end(c);
}

static void unused(void *arg, const struct gb_error *error) {
    struct gb_content *c = arg;

    gb_core_report_error(c->device->core, error);
    c->task.run = free_unpooled;
    gb_lane_post(&c->device->ends, &c->task);
}

/* Frees the content when the stream has finished its present work. Returns 0; -1 if that cannot be watched. */
static int watch_use(struct gb_content *c, struct gb_stream *part) {
    struct gb_backend *be = c->device->core->backend;
    bool done = true;

    if (!c->used)
        c->used = gb_event_pool_take(&c->device->events, NULL);
    if (!c->used || gb_event_record(be, c->used->event, part, NULL) < 0 ||
        gb_event_query(be, c->used->event, &done, NULL) < 0)
        return -1;
    if (done) {
        unused(c, NULL);
        return 0;
    }
    run_then_early(c);
    return gb_watch(be, c->used->event, unused, c, NULL);
}

/* Runs on the lane. */
static void wait_for_use(struct gb_task *task) {
    struct gb_content *c = gb_container_of(task, struct gb_content, task);
    struct gb_stream *part = gb_core_stream_part(c->alloc_stream, c->device->index);
    int tries;

    /* A stream without a part has drained: its work is done. */
    if (!part) {
        unused(c, NULL);
        return;
    }
    for (tries = 0; tries < FREE_TRIES; tries++) {
        if (watch_use(c, part) == 0)
            return;
    }
    gb_stream_sync(c->device->core->backend, part, NULL); /* the uses that have no event */
    unused(c, NULL);
}

/* --- free cache --------------------------------------------------------------------------------------------------- */

#define KEEP_NS (GB_LANE_TICK_MS * GB_NS_PER_MS)
#define KEEP_MAX_NS (10 * KEEP_NS)
#define LINGER_NS (20 * KEEP_NS) /* the lane ticks this long after the last put, so that a put wakes no thread */

struct gb_free_cache *gb_free_cache_new(void) {
    struct gb_free_cache *free_cache = calloc(1, sizeof(*free_cache));

    if (free_cache)
        gb_mutex_init(&free_cache->lock);
    return free_cache;
}

void gb_free_cache_end(struct gb_free_cache *free_cache) {
    if (!free_cache)
        return;
    pthread_mutex_destroy(&free_cache->lock);
    free(free_cache);
}

/* Caches the memory of a content whose last reference is gone and whose quota is given back. Only work on its
 * alloc_stream may still use the memory. Returns false if it is not to be cached. [any thread, never blocks] */
static bool free_cache_put(struct gb_content *content) {
    struct gb_core_device *device = content->device;
    struct gb_free_cache *free_cache = device->free_cache;
    bool put;

    if (content->kind != GB_KIND_DEVICE || device->rec.cpu_access || !content->ptr)
        return false;
    pthread_mutex_lock(&free_cache->lock);
    put = atomic_load(&free_cache->count) < GB_FREE_CACHE_COUNT &&
          content->bytes <= GB_FREE_CACHE_BYTES - free_cache->bytes;
    if (put) {
        /* The statistics count it as freed. The pool's limit does not, because it includes cached_bytes. */
        atomic_fetch_add(&content->pool->cached_bytes, content->bytes);
        count_free(content);
        content->next = free_cache->first;
        free_cache->first = content;
        free_cache->bytes += content->bytes;
        atomic_fetch_add(&free_cache->count, 1);
        atomic_store(&free_cache->last_ns, gb_clock_ns());
    }
    pthread_mutex_unlock(&free_cache->lock);
    if (put)
        gb_lane_schedule_tick(&device->lane);
    return put;
}

static bool fits(const struct gb_content *cached, const struct gb_content *wanted) {
    return cached->pool == wanted->pool && cached->alloc_stream == wanted->alloc_stream &&
           cached->bytes == wanted->bytes;
}

bool gb_free_cache_take(struct gb_content *content) {
    struct gb_free_cache *free_cache = content->device->free_cache;
    struct gb_content *found = NULL;
    struct gb_content **at;

    if (atomic_load(&free_cache->count) == 0)
        return false;
    pthread_mutex_lock(&free_cache->lock);
    for (at = &free_cache->first; *at && !fits(*at, content); at = &(*at)->next)
        ;
    if (*at) {
        found = *at;
        *at = found->next;
        free_cache->bytes -= found->bytes;
        atomic_fetch_sub(&free_cache->count, 1);
    }
    pthread_mutex_unlock(&free_cache->lock);
    if (!found)
        return false;
    content->ptr = found->ptr;
    found->ptr = NULL;
    gb_content_count_alloc(content);
    atomic_fetch_add(&content->pool->reuses, 1);
    atomic_fetch_sub(&found->pool->cached_bytes, found->bytes);
    content_end(found);
    return true;
}

void gb_free_cache_free(void *arg) {
    struct gb_core_device *device = arg;
    struct gb_free_cache *free_cache = device->free_cache;
    struct gb_content *list;
    struct gb_content *next;

    if (atomic_load(&free_cache->count) == 0)
        return;
    pthread_mutex_lock(&free_cache->lock);
    list = free_cache->first;
    free_cache->first = NULL;
    free_cache->bytes = 0;
    atomic_store(&free_cache->count, 0);
    pthread_mutex_unlock(&free_cache->lock);
    for (; list; list = next) {
        struct gb_core_pool *pool = gb_core_pool_ref(list->pool);
        uint64_t bytes = list->bytes;

        next = list->next;
        give_back(list);
        atomic_fetch_sub(&pool->cached_bytes, bytes);
        gb_core_pool_unref(pool);
    }
}

bool gb_free_cache_retry(struct gb_core_device *device) {
    uint64_t idle_ns = gb_clock_ns() - atomic_load(&device->free_cache->last_ns);
    uint64_t now_ns = gb_clock_ns();

    if (device->waiting.first || idle_ns >= KEEP_NS || now_ns - device->free_cache->freed_ns >= KEEP_MAX_NS) {
        gb_free_cache_free(device);
        device->free_cache->freed_ns = now_ns;
    }
    return atomic_load(&device->free_cache->count) > 0 || idle_ns < LINGER_NS;
}

/* --- dropping references ------------------------------------------------------------------------------------------ */

static void free_pooled(struct gb_task *task) {
    give_back(gb_container_of(task, struct gb_content, task));
}

/* Starts to free a content whose last reference is gone. [any thread] */
static void start_free(struct gb_content *content) {
    if (!content->ptr) {
        content_end(content);
    } else if (!pooled(content)) {
        content->task.run = wait_for_use;
        gb_lane_post(&content->device->lane, &content->task);
    } else {
        content->task.run = free_pooled;
        gb_lane_post(&content->device->lane, &content->task);
    }
}

void gb_content_drop(struct gb_content *content, void (*then)(void *arg), void *arg) {
    struct gb_core_device *device;

    if (!content || atomic_fetch_sub(&content->refs, 1) != 1) {
        if (then)
            then(arg);
        return;
    }
    content->then = then;
    content->then_arg = arg;
    device = content->device;
    /* Cheap enough for the calling thread: see enter_lane in alloc.c. */
    if (content->ptr && pooled(content) && device->rec.cpu_access && gb_lane_enter(&device->lane)) {
        give_back(content);
        gb_lane_leave(&device->lane, device->waiting.first != NULL);
        return;
    }
    start_free(content);
}

void gb_content_retire(struct gb_content *content, void (*then)(void *arg), void *arg) {
    if (!content || !pooled(content) || !content->ptr || content->device->rec.cpu_access) {
        gb_content_drop(content, then, arg);
        return;
    }
    if (atomic_fetch_sub(&content->refs, 1) == 1) {
        give_quota(content);
        if (!free_cache_put(content))
            start_free(content);
    }
    if (then)
        then(arg);
}

void gb_content_drop_later(struct gb_content *content) {
    if (content && atomic_fetch_sub(&content->refs, 1) == 1)
        start_free(content);
}

void gb_content_drop_all(struct gb_content *list) {
    struct gb_content *next;

    for (; list; list = next) {
        next = list->next;
        gb_content_drop(list, NULL, NULL);
    }
}

static void drop_rest(void *arg) {
    struct gb_content *c = arg;

    gb_content_drop_list(c, c->list_then, c->list_arg);
}

void gb_content_drop_list(struct gb_content *list, void (*then)(void *arg), void *arg) {
    struct gb_content *rest = list ? list->next : NULL;

    if (!rest) {
        gb_content_drop(list, then, arg);
        return;
    }
    rest->list_then = then;
    rest->list_arg = arg;
    gb_content_drop(list, drop_rest, rest);
}

void gb_content_list_add(struct gb_content **list, struct gb_content *more) {
    struct gb_content *last = more;

    if (!more)
        return;
    while (last->next)
        last = last->next;
    last->next = *list;
    *list = more;
}

/* --- last transfer ------------------------------------------------------------------------------------------------ */

void gb_last_transfer_keep_locked(struct gb_content *content, enum gb_direction direction, uint64_t bytes,
                                  uint64_t queue_ns, uint64_t copy_ns) {
    if (!content || bytes < GB_LAST_TRANSFER_BYTES)
        return;
    if (!content->last)
        content->last = malloc(sizeof(*content->last));
    if (!content->last) /* a failure loses only the times */
        return;
    *content->last = (struct gb_last_transfer){.direction = direction,
                                               .bytes = bytes,
                                               .queue_ns = queue_ns,
                                               .copy_ns = copy_ns,
                                               .finished_at_us = gb_wall_us()};
}

void gb_last_transfer_keep(struct gb_content *content, enum gb_direction direction, uint64_t bytes, uint64_t queue_ns,
                           uint64_t copy_ns) {
    if (!content || bytes < GB_LAST_TRANSFER_BYTES)
        return;
    pthread_mutex_lock(&content->session->lock);
    gb_last_transfer_keep_locked(content, direction, bytes, queue_ns, copy_ns);
    pthread_mutex_unlock(&content->session->lock);
}
