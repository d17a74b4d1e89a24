/* Pools and streams of devices. A pool allocates, trims and exports memory, and its numbers are read on the lane. A
 * stream has a part on each device where work was queued. Samples keep the times of short copies. Sessions own pools
 * and streams; contents and transfers use them. */
#include "core/memory/pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/thread.h"
#include "core/runtime/runtime.h"

/* --- pool export -------------------------------------------------------------------------------------------------- */

/* Once a pointer of a pool was exported, none of its memory goes back to the system until the pool is destroyed. CUDA
 * then reports fewer reserved bytes than the pool has, so the number is kept here. */

/* Adds growth of the reported number to the kept one. The stat_lock is held. */
static void follow_locked(struct gb_core_pool *p, uint64_t reserved_bytes) {
    uint64_t most = p->device->rec.total_bytes;

    if (reserved_bytes > p->kept_seen_bytes)
        p->kept_bytes += reserved_bytes - p->kept_seen_bytes;
    p->kept_seen_bytes = reserved_bytes;
    if (p->kept_bytes > most)
        p->kept_bytes = most;
}

/* Corrects the device's numbers of an exported pool. The stat_lock is held. */
static void correct_locked(struct gb_core_pool *p, struct gb_pool_stat *stat) {
    if (!atomic_load(&p->exported))
        return;
    follow_locked(p, stat->reserved_bytes);
    stat->reserved_bytes = p->kept_bytes;
    if (stat->reserved_peak_bytes < stat->reserved_bytes)
        stat->reserved_peak_bytes = stat->reserved_bytes;
}

int gb_core_pool_export(struct gb_core_pool *p, const struct gb_location *place, uint64_t bytes, bool writable,
                        struct gb_export *ret, struct gb_error *err) {
    struct gb_backend *be = p->core->backend;
    struct gb_pool_stat before;

    /* The numbers before the export count as well, because the device may lose some of them with the first export. */
    if (gb_pool_stat(be, p->pool, &before, err) < 0 ||
        gb_mem_export(be, place, bytes, p->pool, GB_EXPORT_POOL, writable, ret, err) < 0)
        return -1;
    pthread_mutex_lock(&p->stat_lock);
    follow_locked(p, before.reserved_bytes); /* at the first export all bytes are added */
    atomic_store(&p->exported, true);
    pthread_mutex_unlock(&p->stat_lock);
    gb_core_pool_refresh(p);
    return 0;
}

/* The bytes that go back only with the pool; 0 before the first export. */
static uint64_t core_pool_kept(struct gb_core_pool *p) {
    uint64_t kept;

    pthread_mutex_lock(&p->stat_lock);
    kept = p->kept_bytes;
    pthread_mutex_unlock(&p->stat_lock);
    return kept;
}

int gb_core_pool_trim(struct gb_core_pool *p, uint64_t keep_bytes, struct gb_error *err) {
    if (atomic_load(&p->exported))
        return 0;
    return gb_pool_trim(p->core->backend, p->pool, keep_bytes, err);
}

/* --- one pool ----------------------------------------------------------------------------------------------------- */

static struct gb_core_pool *pool_new(struct gb_core *core, struct gb_core_device *device,
                                     const struct gb_pool_rec *rec) {
    struct gb_core_pool *p = calloc(1, sizeof(*p) + (size_t)core->device_count * sizeof(p->access[0]));

    if (!p)
        return NULL;
    p->name = gb_text_new(rec->name.s, strlen(rec->name.s));
    if (!p->name) {
        free(p);
        return NULL;
    }
    atomic_init(&p->refs, 1);
    p->core = core;
    p->device = device;
    p->rec = *rec;
    gb_mutex_init(&p->stat_lock);
    atomic_init(&p->past.looked_ns, gb_clock_ns());
    if (device)
        atomic_init(&p->access[device->index], GB_POOL_ACCESS_READ_WRITE);
    return p;
}

static void pool_free(struct gb_core_pool *p) {
    pthread_mutex_destroy(&p->stat_lock);
    gb_text_unref(p->name);
    free(p);
}

struct gb_core_pool *gb_core_pool_new(struct gb_core *core, struct gb_core_device *device,
                                      const struct gb_pool_rec *rec) {
    struct gb_core_pool *p = pool_new(core, device, rec);

    if (p)
        gb_core_enter(core);
    return p;
}

struct gb_core_pool *gb_core_pool_ref(struct gb_core_pool *pool) {
    atomic_fetch_add(&pool->refs, 1);
    return pool;
}

static void unlink_pool(struct gb_core_pool *p) {
    struct gb_core_pool **at = &p->device->pools;

    while (*at && *at != p)
        at = &(*at)->next;
    if (*at)
        *at = p->next;
}

static void destroy(struct gb_task *task) {
    struct gb_core_pool *p = gb_container_of(task, struct gb_core_pool, task);
    struct gb_core *core = p->core;

    unlink_pool(p);
    gb_pool_destroy(core->backend, p->pool);
    pool_free(p);
    gb_core_changed(core);
    gb_core_leave(core);
}

void gb_core_pool_unref(struct gb_core_pool *p) {
    struct gb_core *core;

    if (!p || atomic_fetch_sub(&p->refs, 1) != 1)
        return;
    core = p->core;
    if (p->pool) {
        p->task.run = destroy;
        gb_lane_post(&p->device->lane, &p->task);
        return;
    }
    pool_free(p);
    gb_core_leave(core);
}

static void link_pool(struct gb_core_pool *p) {
    p->next = p->device->pools;
    p->device->pools = p;
}

static void explain_absent(const struct gb_core_device *device, struct gb_error *ret) {
    enum gb_kind usual = gb_core_usual_kind(device);
    const char *why = device->rec.kind_missing[GB_KIND_DEVICE];
    const char *own = usual == GB_KIND_DEVICE ? NULL : gb_kind_name(usual);

    gb_backend_lacks_kind(device->core->backend, GB_KIND_DEVICE, ret,
                          "device %d has no pools and no memory of kind \"device\": %s%s%s%s", device->index, why,
                          own ? "; kind \"" : "", own ? own : "", own ? "\" is its own memory" : "");
}

static int configure_own(struct gb_core_pool *p, struct gb_error *err) {
    const struct gb_default_pools *wanted = &p->core->config.default_pools;
    struct gb_pool_config *config = &p->rec.config;

    if (gb_pool_config(p->core->backend, p->pool, config, err) < 0)
        return -1;
    if (wanted->has_threshold)
        config->release_threshold_bytes = wanted->release_threshold_bytes;
    if (wanted->has_reuse) {
        config->follow_event_dependencies = wanted->follow_event_dependencies;
        config->allow_opportunistic = wanted->allow_opportunistic;
        config->allow_internal_dependencies = wanted->allow_internal_dependencies;
    }
    return wanted->has_threshold || wanted->has_reuse ? gb_pool_configure(p->core->backend, p->pool, config, err) : 0;
}

int gb_core_pool_open(struct gb_core_device *device, struct gb_error *err) {
    struct gb_pool_rec rec = {.device = device->index};
    struct gb_core_pool *p;

    if (device->index == 0)
        strcpy(rec.name.s, "default");
    else
        snprintf(rec.name.s, sizeof(rec.name.s), "default.%d", device->index);
    p = pool_new(device->core, device, &rec);
    if (!p)
        return gb_no_memory(err);
    device->pool = p;
    p->own = true;
    atomic_store(&p->state, GB_POOL_LIVE);
    if (device->rec.kind_missing[GB_KIND_DEVICE][0] != '\0') {
        explain_absent(device, &p->why);
        return 0;
    }
    if (gb_pool_default(device->core->backend, device->index, &p->pool, err) < 0 || configure_own(p, err) < 0)
        return -1;
    link_pool(p);
    gb_core_pool_refresh(p);
    return 0;
}

void gb_core_pool_close(struct gb_core_pool *pool) {
    if (pool)
        pool_free(pool);
}

int gb_core_pool_create(struct gb_core_pool *p, struct gb_error *err) {
    struct gb_pool *pool;

    if (gb_pool_create(p->core->backend, p->device->index, &p->rec.config, &pool, err) < 0)
        return -1;
    p->pool = pool;
    link_pool(p);
    gb_core_pool_refresh(p);
    return 0;
}

/* --- numbers of a pool -------------------------------------------------------------------------------------------- */

int gb_core_pool_read(struct gb_core_pool *p, struct gb_pool_stat *ret, struct gb_error *err) {
    struct gb_pool_stat stat;

    if (gb_pool_stat(p->core->backend, p->pool, &stat, err) < 0)
        return -1;
    pthread_mutex_lock(&p->stat_lock);
    correct_locked(p, &stat);
    p->stat = stat;
    pthread_mutex_unlock(&p->stat_lock);
    *ret = stat;
    return 0;
}

void gb_core_pool_refresh(struct gb_core_pool *p) {
    struct gb_pool_stat stat;

    if (p->pool)
        (void)gb_core_pool_read(p, &stat, NULL);
}

void gb_core_pool_stat(struct gb_core_pool *p, struct gb_pool_stat *ret) {
    uint64_t cached;

    pthread_mutex_lock(&p->stat_lock);
    *ret = p->stat;
    pthread_mutex_unlock(&p->stat_lock);
    cached = atomic_load(&p->cached_bytes);
    ret->used_bytes -= cached < ret->used_bytes ? cached : ret->used_bytes;
}

/* A device does not count reuses and growths. The change of its reserved bytes tells them apart. */
int gb_core_pool_alloc(struct gb_core_pool *p, struct gb_stream *stream, uint64_t bytes, void **ret,
                       struct gb_error *err) {
    struct gb_pool_stat before;
    struct gb_pool_stat after;
    bool known = gb_core_pool_read(p, &before, NULL) == 0;

    if (gb_mem_alloc(p->core->backend, p->pool, stream, bytes, ret, err) < 0)
        return -1;
    if (gb_core_pool_read(p, &after, NULL) == 0 && known && after.reserved_bytes > before.reserved_bytes)
        atomic_fetch_add(&p->growths, 1);
    else
        atomic_fetch_add(&p->reuses, 1);
    return 0;
}

uint64_t gb_core_pool_limit(const struct gb_core_pool *p) {
    uint64_t total = p->device->rec.total_bytes;
    uint64_t own = p->rec.config.max_bytes;

    return own > 0 && own < total ? own : total;
}

#define NOTICE_NS (20 * GB_NS_PER_MS)

/* A device gives back only memory that it knows to be unused, and it learns of finished frees from a query of an event.
 * The loop ends after NOTICE_NS even if a stream is held up. */
void gb_core_pool_notice_frees(struct gb_core_device *device) {
    struct gb_backend *be = device->core->backend;
    struct gb_ev *ev = gb_event_pool_take(&device->events, NULL);
    struct timespec pause = {.tv_nsec = 50000};
    uint64_t end_ns = gb_clock_ns() + NOTICE_NS;
    bool done = false;

    if (!ev)
        return;
    if (gb_event_record_device(be, ev->event, device->index, NULL) == 0) {
        while (gb_event_query(be, ev->event, &done, NULL) == 0 && !done && gb_clock_ns() < end_ns)
            nanosleep(&pause, NULL);
    }
    gb_event_pool_give(&device->events, ev);
}

static bool over_threshold(struct gb_core_pool *p, uint64_t threshold) {
    struct gb_pool_stat stat;

    return gb_pool_stat(p->core->backend, p->pool, &stat, NULL) == 0 && stat.reserved_bytes > threshold &&
           stat.reserved_bytes > stat.used_bytes;
}

/* Trims pools above their release threshold. notice: the device has not been synchronized, so it must notice finished
 * frees first. */
static void release(struct gb_core_device *device, bool notice) {
    struct gb_backend *be = device->core->backend;
    struct gb_core_pool *p;

    for (p = device->pools; p; p = p->next) {
        struct gb_pool_config config;

        if (atomic_load(&p->exported) || gb_pool_config(be, p->pool, &config, NULL) < 0 ||
            config.release_threshold_bytes == GB_UNLIMITED)
            continue;
        if (over_threshold(p, config.release_threshold_bytes)) {
            if (notice)
                gb_core_pool_notice_frees(device);
            notice = false;
            gb_pool_trim(be, p->pool, config.release_threshold_bytes, NULL);
        }
        gb_core_pool_refresh(p);
    }
}

void gb_core_pool_release(struct gb_core_device *device) {
    release(device, false);
}

/* Releases for clients that never synchronize. Runs on the lane. */
static void relieve(struct gb_task *task) {
    struct gb_core_device *device = gb_container_of(task, struct gb_core_device, relief);

    release(device, true);
    atomic_store(&device->relieving, false);
}

void gb_core_pool_relieve(struct gb_core_device *device) {
    if (atomic_exchange(&device->relieving, true))
        return;
    device->relief.run = relieve;
    gb_lane_post(&device->lane, &device->relief);
}

unsigned gb_core_pool_make_room(struct gb_core_pool *pool, uint64_t bytes) {
    struct gb_backend *be = pool->core->backend;
    uint64_t limit = gb_core_pool_limit(pool);
    struct gb_pool_stat stat = {0};
    struct gb_core_pool *p;
    unsigned trimmed;

    gb_core_pool_notice_frees(pool->device);
    if (gb_core_pool_absent(pool))
        return 0;
    trimmed = !atomic_load(&pool->exported) && gb_pool_trim(be, pool->pool, 0, NULL) == 0;
    /* If the pool is full by its own limit, unused memory of other pools does not help. */
    if (gb_pool_stat(be, pool->pool, &stat, NULL) == 0 && (bytes > limit || stat.used_bytes > limit - bytes))
        return trimmed;
    for (p = pool->device->pools; p; p = p->next) {
        if (p == pool || atomic_load(&p->exported) || gb_pool_stat(be, p->pool, &stat, NULL) < 0 ||
            stat.reserved_bytes == stat.used_bytes)
            continue;
        trimmed += gb_pool_trim(be, p->pool, 0, NULL) == 0;
        gb_core_pool_refresh(p);
    }
    return trimmed;
}

/* --- views of pools ----------------------------------------------------------------------------------------------- */

/* CUDA reserves 32 MiB with the first allocation of an explicit pool (measured). */
#define CUDA_FIRST_USE_BYTES (32u << 20)

static uint64_t first_use_bytes(const struct gb_core_pool *p) {
    if (p->own || !p->device || strncmp(p->device->rec.uuid, "HOST-", 5) == 0)
        return 0;
    return CUDA_FIRST_USE_BYTES;
}

void gb_core_pool_configured(struct gb_core_pool *p, const struct gb_pool_rec *rec) {
    static const struct gb_pool_given all = {
#define GB_POOL_FIELD(name, ...) .name = true,
#include "model/pool.def"
    };

    /* Fields that never change are not written, because they are read without a lock. */
    pthread_mutex_lock(&p->stat_lock);
    gb_pool_rec_merge(&p->rec, rec, &all);
    p->rec.version = rec->version;
    p->rec.updated_at_us = rec->updated_at_us;
    pthread_mutex_unlock(&p->stat_lock);
}

void gb_core_pool_view(struct gb_core_pool *p, struct gb_pool_view *ret) {
    pthread_mutex_lock(&p->stat_lock);
    *ret = (struct gb_pool_view){.rec = p->rec,
                                 .live_buffers = atomic_load(&p->live_buffers),
                                 .first_use_bytes = first_use_bytes(p),
                                 .lost = !p->pool || gb_backend_dead(p->core->backend, NULL)};
    pthread_mutex_unlock(&p->stat_lock);
    ret->exported = atomic_load(&p->exported);
    ret->kept_bytes = core_pool_kept(p);
    gb_core_pool_stat(p, &ret->stat);
    gb_alloc_counters_read(&p->memory, &ret->memory);
    ret->reuses = atomic_load(&p->reuses);
    ret->growths = atomic_load(&p->growths);
}

enum gb_kind gb_core_usual_kind(const struct gb_core_device *device) {
    static const enum gb_kind order[] = {GB_KIND_DEVICE, GB_KIND_IPC, GB_KIND_MANAGED};
    size_t i;

    for (i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        if (device->rec.kind_missing[order[i]][0] == '\0')
            return order[i];
    }
    return GB_KIND_DEVICE; /* which is refused with its reason */
}

int gb_core_offers(const struct gb_core_device *device, enum gb_kind kind, struct gb_error *err) {
    const char *why;

    if ((unsigned)kind >= GB_KIND_COUNT)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "there is no kind of memory numbered %d", (int)kind);
    why = device->rec.kind_missing[kind];
    if (why[0] == '\0')
        return 0;
    return gb_backend_lacks_kind(device->core->backend, kind, err,
                                 "device %d has no memory of kind \"%s\" for buffers: %s", device->index,
                                 gb_kind_name(kind), why);
}

int gb_core_pool_check(struct gb_core_pool *p, struct gb_error *err) {
    int state = atomic_load(&p->state);

    if (state == GB_POOL_REMOVING || state == GB_POOL_DEAD)
        return gb_error_set(err, GB_ERR_POOL_NOT_FOUND, "the pool \"%s\" was deleted meanwhile", p->rec.name.s);
    if (!p->device)
        return gb_error_set(
            err, GB_ERR_DEVICE_NOT_FOUND,
            "the pool \"%s\" is lost: there is no device %d now; delete the pool, or restart with the device",
            p->rec.name.s, p->rec.device);
    if (p->pool)
        return 0;
    if (p->own)
        return gb_error_move(err, &p->why);
    if (err && err->code == GB_OK) {
        *err = p->why;
        err->code = GB_ERR_DEVICE_NOT_FOUND;
    }
    return -1;
}

/* --- stream ------------------------------------------------------------------------------------------------------- */

struct gb_core_stream *gb_core_stream_new(struct gb_core *core, const struct gb_stream_owner *owner, void *arg,
                                          const struct gb_name *name, int64_t id) {
    int devices = core->device_count;
    struct gb_core_stream *st = calloc(1, sizeof(*st) + (size_t)devices * sizeof(st->parts[0]));
    int i;

    if (!st)
        return NULL;
    st->name_text = gb_text_new(name->s, strlen(name->s));
    if (!st->name_text) {
        free(st);
        return NULL;
    }
    atomic_init(&st->refs, 1);
    atomic_init(&st->users, 1);
    st->core = core;
    st->owner = owner;
    st->owner_arg = arg;
    st->id = id;
    st->name = *name;
    st->created_at_us = gb_wall_us();
    for (i = 0; i < devices; i++) {
        st->parts[i].owner = st;
        st->parts[i].device = i;
        gb_copy_sample_init(&st->parts[i].samples[GB_COPY_TO_DEVICE]);
        gb_copy_sample_init(&st->parts[i].samples[GB_COPY_FROM_DEVICE]);
    }
    return st;
}

struct gb_core_stream *gb_core_stream_ref(struct gb_core_stream *stream) {
    atomic_fetch_add(&stream->refs, 1);
    return stream;
}

void gb_core_stream_unref(struct gb_core_stream *stream) {
    int i;

    if (!stream || atomic_fetch_sub(&stream->refs, 1) != 1)
        return;
    for (i = 0; i < stream->core->device_count; i++) {
        gb_copy_sample_done(&stream->parts[i].samples[GB_COPY_TO_DEVICE]);
        gb_copy_sample_done(&stream->parts[i].samples[GB_COPY_FROM_DEVICE]);
    }
    gb_text_unref(stream->name_text);
    free(stream->frontier);
    free(stream);
}

struct gb_core_stream *gb_core_stream_use_more(struct gb_core_stream *stream) {
    atomic_fetch_add(&stream->users, 1);
    return gb_core_stream_ref(stream);
}

bool gb_core_stream_try_use(struct gb_core_stream *stream) {
    unsigned users = atomic_load(&stream->users);

    while (users > 0) {
        if (atomic_compare_exchange_weak(&stream->users, &users, users + 1)) {
            gb_core_stream_ref(stream);
            return true;
        }
    }
    return false;
}

void gb_core_stream_unuse(struct gb_core_stream *stream) {
    if (!stream)
        return;
    if (atomic_fetch_sub(&stream->users, 1) == 1) {
        stream->drains = true;
        gb_core_stream_take_down(stream);
    }
    gb_core_stream_unref(stream);
}

struct gb_stream *gb_core_stream_part(struct gb_core_stream *stream, int device) {
    return atomic_load(&stream->parts[device].stream);
}

int gb_core_stream_part_make(struct gb_core_stream *stream, int device, struct gb_stream **ret, struct gb_error *err) {
    struct gb_stream *part = gb_core_stream_part(stream, device);
    struct gb_stream *other = NULL;

    if (!part) {
        if (gb_stream_create(stream->core->backend, device, &part, err) < 0)
            return -1;
        if (!atomic_compare_exchange_strong(&stream->parts[device].stream, &other, part)) {
            gb_stream_destroy(stream->core->backend, part);
            part = other;
        }
    }
    *ret = part;
    return 0;
}

/* --- the end of a stream ------------------------------------------------------------------------------------------ */

static void part_gone(struct gb_core_stream *st) {
    void (*end)(void *arg) = st->drains ? st->owner->drained : st->owner->gone;
    void *arg = st->owner_arg;

    if (atomic_fetch_sub(&st->parts_open, 1) != 1)
        return;
    gb_core_stream_unref(st);
    end(arg);
}

static struct gb_stream_part *part_of(struct gb_task *task) {
    return gb_container_of(task, struct gb_stream_part, task);
}

static void destroy_part(struct gb_task *task) {
    struct gb_stream_part *part = part_of(task);
    struct gb_core *core = part->owner->core;
    struct gb_stream *stream = atomic_exchange(&part->stream, NULL);

    gb_event_pool_give(&core->devices[part->device].events, part->ev);
    gb_stream_destroy(core->backend, stream);
    part_gone(part->owner);
}

static void part_idle(void *arg, const struct gb_error *error) {
    struct gb_stream_part *part = arg;
    struct gb_core *core = part->owner->core;

    gb_core_report_error(core, error);
    part->task.run = destroy_part;
    gb_lane_post(&core->devices[part->device].lane, &part->task);
}

/* Destroying a stream waits for its work, and the lane serves others too. So a busy part is destroyed when it is
 * idle. */
static void take_down_part(struct gb_task *task) {
    struct gb_stream_part *part = part_of(task);
    struct gb_core *core = part->owner->core;
    struct gb_stream *stream = atomic_load(&part->stream);
    bool done = false;

    part->ev = gb_event_pool_take(&core->devices[part->device].events, NULL);
    if (part->ev && gb_event_record(core->backend, part->ev->event, stream, NULL) == 0 &&
        gb_event_query(core->backend, part->ev->event, &done, NULL) == 0 && !done &&
        gb_watch(core->backend, part->ev->event, part_idle, part, NULL) == 0)
        return;
    destroy_part(task);
}

void gb_core_stream_take_down(struct gb_core_stream *st) {
    struct gb_core *core = st->core;
    int i;

    gb_core_stream_ref(st);
    atomic_store(&st->parts_open, 1);
    for (i = 0; i < core->device_count; i++) {
        if (!gb_core_stream_part(st, i))
            continue;
        atomic_fetch_add(&st->parts_open, 1);
        st->parts[i].task.run = take_down_part;
        gb_lane_post(&core->devices[i].lane, &st->parts[i].task);
    }
    part_gone(st);
}

/* --- copy sample -------------------------------------------------------------------------------------------------- */

#define FRESH_NS GB_NS_PER_MS

void gb_copy_sample_init(struct gb_copy_sample *sample) {
    *sample = (struct gb_copy_sample){.bytes = 0};
    gb_mutex_init(&sample->lock);
}

void gb_copy_sample_done(struct gb_copy_sample *sample) {
    pthread_mutex_destroy(&sample->lock);
}

bool gb_copy_sample_get(struct gb_copy_sample *sample, size_t bytes, struct gb_copy_times *ret) {
    uint64_t now_ns = gb_clock_ns();
    bool fresh;

    pthread_mutex_lock(&sample->lock);
    fresh = sample->bytes == bytes && bytes > 0 && now_ns < sample->at_ns + FRESH_NS;
    if (fresh)
        *ret = sample->times;
    pthread_mutex_unlock(&sample->lock);
    return fresh;
}

void gb_copy_sample_put(struct gb_copy_sample *sample, size_t bytes, const struct gb_copy_times *times) {
    uint64_t now_ns = gb_clock_ns();

    pthread_mutex_lock(&sample->lock);
    sample->times = *times;
    sample->bytes = bytes;
    sample->at_ns = now_ns;
    pthread_mutex_unlock(&sample->lock);
}
