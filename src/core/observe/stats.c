/* Statistics as clients see them, samples of the daemon, its devices, pools and sessions, and questions about the
 * past. */
#include "core/observe/stats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/process.h"
#include "base/thread.h"
#include "core/public/lifecycle.h"
#include "core/public/observe.h"
#include "core/public/share.h"
#include "core/session/session.h"
#include "core/share/lease.h"

/* --- history: questions ------------------------------------------------------------------------------------------- */

struct gb_history_call *gb_history_call_new(void (*done)(void *arg), void *arg) {
    struct gb_history_call *call = calloc(1, sizeof(*call));

    if (!call)
        return NULL;
    atomic_init(&call->refs, 2);
    atomic_init(&call->finished, false);
    call->done = done;
    call->arg = arg;
    return call;
}

void gb_history_call_unref(struct gb_history_call *call) {
    if (!call || atomic_fetch_sub(&call->refs, 1) != 1)
        return;
    gb_history_answer_done(&call->answer);
    free(call);
}

static void answered(void *arg, struct gb_history_answer *answer, const struct gb_error *error) {
    struct gb_history_call *call = arg;

    if (error) {
        call->error = *error;
    } else {
        call->answer = *answer;
        *answer = (struct gb_history_answer){.count = 0};
    }
    atomic_store(&call->finished, true);
    call->done(call->arg);
    gb_history_call_unref(call);
}

void gb_history_ask(struct gb_core *core, const struct gb_history_query *query, struct gb_history_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_history_plan plan;

    if (gb_history_plan(query, &core->config.history, gb_wall_us(), &plan, &err) < 0)
        answered(call, NULL, &err);
    else
        gb_store_history(core->store, &query->key, &plan, answered, call);
}

uint64_t gb_history_interval_s(const struct gb_core *core) {
    return core->config.history.interval_s;
}

int gb_history_of_session(struct gb_core *core, const struct gb_name *session, struct gb_history_key *ret,
                          struct gb_error *err) {
    struct gb_session *s = gb_session_find(core, session, err);

    if (!s)
        return -1;
    *ret = (struct gb_history_key){.scope = GB_HISTORY_SESSION, .id = s->id};
    gb_session_unref(s);
    return 0;
}

/* A pool whose device is missing has its past under no UUID. */
static void history_key_of_pool(const struct gb_core_pool *p, struct gb_history_key *ret) {
    *ret = (struct gb_history_key){.scope = GB_HISTORY_POOL, .id = p->own ? 0 : p->rec.id};
    if (p->own)
        memcpy(ret->uuid, p->device->rec.uuid, sizeof(ret->uuid));
}

int gb_history_of_pool(struct gb_core *core, const struct gb_locator *at, struct gb_history_key *ret,
                       struct gb_error *err) {
    struct gb_session *s;
    struct gb_core_pool *p = gb_core_pool_lock(core, at, &s, err);

    if (!p)
        return -1;
    history_key_of_pool(p, ret);
    gb_core_pool_unlock(s);
    return 0;
}

int gb_history_of_device(struct gb_core *core, int device, struct gb_history_key *ret, struct gb_error *err) {
    if (device < 0 || device >= core->device_count)
        return gb_error_set(err, GB_ERR_DEVICE_NOT_FOUND, "there is no device %d", device);
    *ret = (struct gb_history_key){.scope = GB_HISTORY_DEVICE};
    memcpy(ret->uuid, core->devices[device].rec.uuid, sizeof(ret->uuid));
    return 0;
}

void gb_core_set_outside(struct gb_core *core, void (*read)(void *arg, struct gb_outside *ret), void *arg) {
    pthread_mutex_lock(&core->sampler->outside_lock);
    if (core->sampler->outside && !read) {
        core->sampler->outside(core->sampler->outside_arg, &core->sampler->last_outside);
        core->sampler->was_outside = true;
    }
    core->sampler->outside = read;
    core->sampler->outside_arg = arg;
    pthread_mutex_unlock(&core->sampler->outside_lock);
}

/* --- samples: one sweep ------------------------------------------------------------------------------------------- */

struct sweep {
    struct gb_core *core;
    int64_t at_us;
    uint64_t at_ns;                    /* the same, on the monotonic clock */
    struct gb_history_sample *samples; /* the daemon's is the first */
    size_t count;
    size_t room;
    size_t sent;
    struct gb_counters counters; /* as the daemon's sample has them */
    bool more;                   /* to roll up */
    bool failed;
};

static struct gb_history_sample *add(struct sweep *w, enum gb_history_scope scope) {
    struct gb_history_sample *s;

    if (w->count == w->room) {
        size_t room = w->room ? w->room * 2 : 16;

        s = realloc(w->samples, room * sizeof(*s));
        if (!s)
            return NULL;
        w->samples = s;
        w->room = room;
    }
    s = &w->samples[w->count++];
    gb_history_sample_init(s, scope, w->at_us);
    return s;
}

/* The increase of a counter since the last sample. A counter that was reset counts from there. */
static double increase(_Atomic uint64_t *last, uint64_t now) {
    uint64_t before = atomic_exchange(last, now);

    return (double)(now >= before ? now - before : now);
}

/* --- what grew ---------------------------------------------------------------------------------------------------- */

static double grown(uint64_t before, uint64_t now) {
    return (double)(now > before ? now - before : 0);
}

#define NS_PER_S 1e9

static void count(struct gb_history_sample *s, const struct gb_counters *a, const struct gb_counters *b) {
    s->counter[GB_COUNTER_upload_bytes] = grown(a->upload_bytes, b->upload_bytes);
    s->counter[GB_COUNTER_download_bytes] = grown(a->download_bytes, b->download_bytes);
    s->counter[GB_COUNTER_uploads] = grown(a->uploads, b->uploads);
    s->counter[GB_COUNTER_downloads] = grown(a->downloads, b->downloads);
    s->counter[GB_COUNTER_copy_seconds] =
        (grown(a->upload_copy_ns, b->upload_copy_ns) + grown(a->download_copy_ns, b->download_copy_ns) +
         grown(a->device_copy_ns, b->device_copy_ns)) /
        NS_PER_S;
    s->counter[GB_COUNTER_queue_seconds] =
        (grown(a->upload_queue_ns, b->upload_queue_ns) + grown(a->download_queue_ns, b->download_queue_ns) +
         grown(a->device_copy_queue_ns, b->device_copy_queue_ns)) /
        NS_PER_S;
    s->counter[GB_COUNTER_upload_failures] = grown(a->uploads_failed, b->uploads_failed);
    s->counter[GB_COUNTER_download_failures] = grown(a->downloads_failed, b->downloads_failed);
    s->counter[GB_COUNTER_allocations] = grown(a->allocations, b->allocations);
    s->counter[GB_COUNTER_frees] = grown(a->frees, b->frees);
    s->counter[GB_COUNTER_allocation_failures] = grown(a->allocation_failures, b->allocation_failures);
}

static double seconds(uint64_t from_ns, uint64_t to_ns) {
    return to_ns > from_ns ? (double)(to_ns - from_ns) / NS_PER_S : 0;
}

/* --- pools, sessions, devices ------------------------------------------------------------------------------------- */

static void count_memory(struct gb_history_sample *s, struct gb_alloc_counters *m) {
    s->counter[GB_COUNTER_allocations] = increase(&m->past.allocations, atomic_load(&m->allocations));
    s->counter[GB_COUNTER_frees] = increase(&m->past.frees, atomic_load(&m->frees));
    s->counter[GB_COUNTER_allocation_failures] = increase(&m->past.failures, atomic_load(&m->failures));
}

static void add_pool(struct sweep *w, struct gb_core_pool *p, const char *session, struct gb_pool_stat *sum) {
    struct gb_history_sample *s = add(w, GB_HISTORY_POOL);
    struct gb_pool_stat stat;

    gb_core_pool_stat(p, &stat);
    sum->used_bytes += stat.used_bytes;
    sum->reserved_bytes += stat.reserved_bytes;
    if (!s)
        return;
    history_key_of_pool(p, &s->key);
    snprintf(s->session, sizeof(s->session), "%s", session);
    memcpy(s->name, p->rec.name.s, sizeof(s->name));
    s->device = p->rec.device;
    memcpy(s->device_uuid, p->device->rec.uuid, sizeof(s->device_uuid));
    s->gauge[GB_GAUGE_used_bytes] = (double)stat.used_bytes;
    s->gauge[GB_GAUGE_reserved_bytes] = (double)stat.reserved_bytes;
    count_memory(s, &p->memory);
    s->counter[GB_COUNTER_covered_s] = seconds(atomic_exchange(&p->past.looked_ns, w->at_ns), w->at_ns);
}

static void add_session(struct sweep *w, struct gb_session *s) {
    struct gb_history_sample *sample = add(w, GB_HISTORY_SESSION);
    struct gb_counters counters;

    if (!sample)
        return;
    gb_live_counters_read(&s->live_counters, &counters);
    count(sample, &s->past.counted, &counters);
    s->past.counted = counters;
    sample->counter[GB_COUNTER_covered_s] = seconds(s->past.looked_ns, w->at_ns);
    s->past.looked_ns = w->at_ns;
    sample->key.id = s->id;
    memcpy(sample->session, gb_session_name(s)->s, sizeof(sample->session));
    pthread_mutex_lock(&s->lock);
    sample->gauge[GB_GAUGE_buffers] = (double)s->live_buffers;
    sample->gauge[GB_GAUGE_buffer_bytes] = (double)s->used_bytes;
    sample->gauge[GB_GAUGE_pinned_bytes] = (double)s->used_pinned_bytes;
    pthread_mutex_unlock(&s->lock);
}

/* sums: of the pools of each device. */
static void add_sessions(struct sweep *w, struct gb_pool_stat *sums) {
    struct gb_core *core = w->core;
    struct gb_session *s;
    int64_t id = 0;

    while ((s = gb_session_after(core, id))) {
        struct gb_core_pool *p;
        int64_t pool_id = 0;

        id = s->id;
        if (atomic_load(&s->state) == GB_SESSION_LIVE)
            add_session(w, s);
        while ((p = gb_session_pool_after(s, &pool_id))) {
            if (atomic_load(&p->state) == GB_POOL_LIVE && p->device)
                add_pool(w, p, gb_session_name(s)->s, &sums[p->device->index]);
            gb_core_pool_unref(p);
        }
        gb_session_unref(s);
    }
}

/* As of its last reading; NaN where that knows nothing. */
static void add_health(struct gb_history_sample *s, struct gb_core *core) {
    struct gb_health health;

    if (gb_device_health(core, s->device, &health, NULL) < 0)
        return;
    s->gauge[GB_GAUGE_gpu_utilization] = health.gpu_utilization;
    s->gauge[GB_GAUGE_memory_utilization] = health.memory_utilization;
    s->gauge[GB_GAUGE_temperature_c] = health.temperature_c;
    s->gauge[GB_GAUGE_power_w] = health.power_w;
}

static void add_device(struct sweep *w, struct gb_core_device *d, const struct gb_pool_stat *sum) {
    struct gb_history_sample *s = add(w, GB_HISTORY_DEVICE);
    uint64_t free_bytes = atomic_load(&d->free_bytes);

    if (!s)
        return;
    memcpy(s->key.uuid, d->rec.uuid, sizeof(s->key.uuid));
    s->device = d->index;
    memcpy(s->device_uuid, d->rec.uuid, sizeof(s->device_uuid));
    s->gauge[GB_GAUGE_free_bytes] = (double)free_bytes;
    s->gauge[GB_GAUGE_used_bytes] = (double)(d->rec.total_bytes > free_bytes ? d->rec.total_bytes - free_bytes : 0);
    s->gauge[GB_GAUGE_reserved_bytes] = (double)sum->reserved_bytes;
    s->counter[GB_COUNTER_covered_s] = seconds(w->core->sampler->counted_ns, w->at_ns);
    count_memory(s, &d->memory);
    add_health(s, w->core);
}

/* --- the daemon's ------------------------------------------------------------------------------------------------- */

static void gauge_daemon(struct sweep *w, const struct gb_pool_stat *sums) {
    struct gb_core *core = w->core;
    struct gb_history_sample *s = &w->samples[0];
    struct gb_pool_stat all = {0};
    int i;

    for (i = 0; i < core->device_count; i++) {
        all.used_bytes += sums[i].used_bytes;
        all.reserved_bytes += sums[i].reserved_bytes;
    }
    s->gauge[GB_GAUGE_used_bytes] = (double)all.used_bytes;
    s->gauge[GB_GAUGE_reserved_bytes] = (double)all.reserved_bytes;
    s->gauge[GB_GAUGE_buffers] = (double)atomic_load(&core->live_buffers);
    s->gauge[GB_GAUGE_buffer_bytes] = (double)atomic_load(&core->buffer_bytes);
    s->gauge[GB_GAUGE_sessions] = (double)atomic_load(&core->live_sessions);
    s->gauge[GB_GAUGE_leases] = (double)atomic_load(&core->leases->live);
}

static void count_outside(struct sweep *w) {
    struct gb_core *core = w->core;
    struct gb_history_sample *s = &w->samples[0];
    struct gb_outside outside;

    pthread_mutex_lock(&core->sampler->outside_lock);
    if (core->sampler->outside)
        core->sampler->outside(core->sampler->outside_arg, &outside);
    else
        outside = core->sampler->last_outside;
    if (core->sampler->outside || core->sampler->was_outside) {
        s->gauge[GB_GAUGE_connections] = (double)outside.connections;
        s->counter[GB_COUNTER_requests] = increase(&core->sampler->requests, outside.requests);
    }
    pthread_mutex_unlock(&core->sampler->outside_lock);
}

/* Of this process: from 0 on after a start. */
static void count_process(struct sweep *w) {
    struct gb_sampler *sampler = w->core->sampler;
    struct gb_history_sample *s = &w->samples[0];
    struct gb_process process;
    struct gb_store_stat store;

    gb_process_read(&process);
    gb_store_stat(w->core->store, &store);
    s->gauge[GB_GAUGE_resident_bytes] = (double)process.resident_bytes;
    s->counter[GB_COUNTER_cpu_seconds] = increase(&sampler->cpu_ns, process.cpu_ns) / NS_PER_S;
    s->counter[GB_COUNTER_store_queue_seconds] = increase(&sampler->store_queue_ns, store.waited.ns) / NS_PER_S;
}

/* --- on its way to the database ----------------------------------------------------------------------------------- */

static void end(struct sweep *w) {
    struct gb_sampler *sampler = w->core->sampler;

    pthread_mutex_lock(&sampler->lock);
    sampler->under_way = false;
    pthread_cond_broadcast(&sampler->idle);
    pthread_mutex_unlock(&sampler->lock);
    free(w->samples);
    free(w);
}

static void rolled(void *arg, const struct gb_error *error) {
    struct sweep *w = arg;

    if (!error && w->more)
        gb_store_roll(w->core->store, w->at_us, &w->more, rolled, w);
    else
        end(w);
}

/* A few at a time, so that others' commits go between. */
static void send(struct sweep *w, gb_store_done_fn *done) {
    size_t n = w->count - w->sent < GB_HISTORY_CHUNK ? w->count - w->sent : GB_HISTORY_CHUNK;
    const struct gb_history_sample *first = &w->samples[w->sent];
    bool counted = w->sent == 0;

    w->sent += n;
    gb_store_put_history(w->core->store, first, n, counted ? &w->counters : NULL, done, w);
}

static void sent(void *arg, const struct gb_error *error) {
    struct sweep *w = arg;

    /* The counters of the first piece are in the database now; after a failure the next sample counts them. */
    if (!error && w->sent <= GB_HISTORY_CHUNK) {
        pthread_mutex_lock(&w->core->sampler->lock);
        w->core->sampler->counted = w->counters;
        w->core->sampler->counted_ns = w->at_ns;
        pthread_mutex_unlock(&w->core->sampler->lock);
    }
    if (error)
        end(w);
    else if (w->sent < w->count)
        send(w, sent);
    else
        gb_store_roll(w->core->store, w->at_us, &w->more, rolled, w);
}

static bool begin(struct gb_core *core) {
    struct gb_sampler *sampler = core->sampler;
    bool mine;

    pthread_mutex_lock(&sampler->lock);
    mine = !sampler->under_way;
    sampler->under_way = true;
    pthread_mutex_unlock(&sampler->lock);
    return mine;
}

bool gb_sampler_take(struct gb_core *core) {
    struct sweep *w;
    struct gb_pool_stat *sums;
    int i;

    if (!begin(core)) /* the database is slow: another time */
        return false;
    w = calloc(1, sizeof(*w));
    sums = calloc((size_t)core->device_count, sizeof(*sums));
    if (w)
        *w = (struct sweep){.core = core, .at_us = gb_wall_us(), .at_ns = gb_clock_ns()};
    if (!w || !sums || !add(w, GB_HISTORY_DAEMON)) {
        free(sums);
        pthread_mutex_lock(&core->sampler->lock);
        core->sampler->under_way = false;
        pthread_mutex_unlock(&core->sampler->lock);
        free(w);
        return false;
    }
    for (i = 0; i < core->device_count; i++) {
        if (!gb_core_pool_absent(core->devices[i].pool))
            add_pool(w, core->devices[i].pool, "", &sums[i]);
    }
    add_sessions(w, sums);
    for (i = 0; i < core->device_count; i++)
        add_device(w, &core->devices[i], &sums[i]);
    gauge_daemon(w, sums);
    count_outside(w);
    count_process(w);
    gb_live_counters_read(&core->live_counters, &w->counters);
    count(&w->samples[0], &core->sampler->counted, &w->counters); /* which a restart finds in the database */
    w->samples[0].counter[GB_COUNTER_covered_s] = seconds(core->sampler->counted_ns, w->at_ns);
    free(sums);
    send(w, sent);
    return true;
}

/* --- beginning and end -------------------------------------------------------------------------------------------- */

struct gb_sampler *gb_sampler_new(void) {
    struct gb_sampler *sampler = calloc(1, sizeof(*sampler));

    if (!sampler)
        return NULL;
    gb_mutex_init(&sampler->lock);
    gb_mutex_init(&sampler->outside_lock);
    pthread_cond_init(&sampler->idle, NULL);
    return sampler;
}

void gb_sampler_free(struct gb_sampler *sampler) {
    if (!sampler)
        return;
    pthread_cond_destroy(&sampler->idle);
    pthread_mutex_destroy(&sampler->outside_lock);
    pthread_mutex_destroy(&sampler->lock);
    free(sampler);
}

void gb_sampler_wait(struct gb_core *core) {
    pthread_mutex_lock(&core->sampler->lock);
    while (core->sampler->under_way)
        pthread_cond_wait(&core->sampler->idle, &core->sampler->lock);
    pthread_mutex_unlock(&core->sampler->lock);
}

/* --- stats -------------------------------------------------------------------------------------------------------- */

/* Statistics: reads of what is counted anyway. */

uint64_t gb_core_sequence(struct gb_core *core) {
    return atomic_load(&core->sequence);
}

static void read_kinds(struct gb_core *core, struct gb_core_stats *ret) {
    int direction;
    int kind;

    for (direction = 0; direction < GB_DIRECTION_COUNT; direction++) {
        for (kind = 0; kind < GB_KIND_COUNT; kind++) {
            struct gb_kind_live_counters *t = &core->kinds[direction][kind];

            ret->kinds[direction][kind] = (struct gb_kind_counters){
                atomic_load(&t->count), atomic_load(&t->bytes), atomic_load(&t->copy_ns), atomic_load(&t->queue_ns)};
        }
    }
}

void gb_core_stats(struct gb_core *core, struct gb_core_stats *ret) {
    struct gb_kept_stat kept;
    int kind;

    /* First: a change that comes while the rest is read then has a higher number. */
    ret->sequence = atomic_load(&core->sequence);
    ret->started_at_us = core->started_at_us;
    gb_live_counters_read(&core->live_counters, &ret->counters);
    ret->sessions = atomic_load(&core->live_sessions);
    ret->buffers = atomic_load(&core->live_buffers);
    ret->buffer_bytes = atomic_load(&core->buffer_bytes);
    ret->lost_buffers = atomic_load(&core->lost_buffers);
    ret->damaged_buffers = atomic_load(&core->damaged_buffers);
    ret->stored_buffers = atomic_load(&core->stored_buffers);
    ret->mirrored_buffers = atomic_load(&core->mirrored_buffers);
    ret->mirrored_bytes = atomic_load(&core->mirrored_bytes);
    ret->tables = atomic_load(&core->tables);
    ret->table_bytes = atomic_load(&core->table_bytes);
    ret->links = atomic_load(&core->links);
    ret->link_bytes = atomic_load(&core->link_bytes);
    gb_kept_stat(core, &kept);
    ret->keeper = kept.alive;
    ret->kept = kept.contents;
    ret->kept_bytes = kept.bytes;
    ret->kept_found = kept.found;
    ret->kept_left_out = kept.left_out;
    ret->leases = atomic_load(&core->leases->live);
    ret->held_bytes = atomic_load(&core->held_bytes);
    ret->adopted = gb_leases_adopted(core->leases);
    ret->adopted_bytes_max = core->config.adopted_bytes_max ? core->config.adopted_bytes_max : GB_ADOPTED_BYTES_MAX;
    ret->uploads_running = atomic_load(&core->uploads_running);
    ret->open_upload_bytes = atomic_load(&core->multipart_bytes);
    ret->downloads_running = atomic_load(&core->downloads_running);
    ret->writes_running = atomic_load(&core->writes_running);
    read_kinds(core, ret);
    gb_level_read(&core->level, &ret->level);
    for (kind = 0; kind < GB_KIND_COUNT; kind++)
        gb_alloc_counters_read(&core->memory[kind], &ret->kind_memory[kind]);
    ret->pinned_bytes = atomic_load(&core->pinned.used_bytes);
    ret->pinned_limit_bytes = core->pinned.limit_bytes;
    ret->slots_total = core->slots.total;
    ret->slots_free = atomic_load(&core->slots.free_count);
    ret->slot_bytes = core->slots.slot_bytes;
    ret->slot_waits = atomic_load(&core->slots.waits);
    ret->slots_wanted = atomic_load(&core->slots.wanted);
    gb_store_stat(core->store, &ret->store);
    gb_audit_numbers(core, &ret->audit);
}

int gb_device_numbers(struct gb_core *core, int device, struct gb_device_numbers *ret, struct gb_error *err) {
    struct gb_core_device *d;

    if (device < 0 || device >= core->device_count)
        return gb_error_set(err, GB_ERR_DEVICE_NOT_FOUND, "there is no device %d", device);
    d = &core->devices[device];
    *ret = (struct gb_device_numbers){.total_bytes = d->rec.total_bytes,
                                      .free_bytes = atomic_load(&d->free_bytes),
                                      .pools = atomic_load(&d->pools_live),
                                      .pools_used_bytes = atomic_load(&d->pools_used_bytes),
                                      .reserved_bytes = atomic_load(&d->reserved_bytes)};
    gb_alloc_counters_read(&d->memory, &ret->memory);
    return 0;
}

int gb_session_stats(struct gb_core *core, const struct gb_name *name, struct gb_session_stats *ret,
                     struct gb_error *err) {
    struct gb_session *s = gb_session_find(core, name, err);

    if (!s)
        return -1;
    ret->sequence = atomic_load(&core->sequence);
    gb_live_counters_read(&s->live_counters, &ret->counters);
    gb_level_read(&s->level, &ret->level);
    pthread_mutex_lock(&s->lock);
    ret->session.rec = (struct gb_session_rec){.labels = NULL};
    gb_session_view_locked(s, &ret->session);
    gb_session_rec_done(&ret->session.rec);
    ret->lost_buffers = s->lost_buffers;
    ret->leases = s->leases;
    ret->held_bytes = s->held_bytes;
    ret->adopted = s->adopted;
    ret->open_uploads = s->multiparts_open;
    ret->open_upload_bytes = s->multipart_bytes;
    pthread_mutex_unlock(&s->lock);
    gb_session_unref(s);
    return 0;
}

/* --- alloc log view ----------------------------------------------------------------------------------------------- */

static struct gb_alloc_log_pool describe(struct gb_core_pool *p) {
    struct gb_alloc_log_pool ret = {.id = p->own ? 0 : p->rec.id, .device = p->device->index, .name = p->rec.name};
    struct gb_pool_stat stat;

    gb_core_pool_stat(p, &stat);
    ret.reserved_bytes = stat.reserved_bytes;
    return ret;
}

int gb_alloc_log_pools(struct gb_core *core,
                       int (*visit)(void *arg, const struct gb_alloc_log_pool *, struct gb_error *), void *arg,
                       struct gb_error *err) {
    struct gb_alloc_log_pool pool;
    struct gb_session *s;
    int64_t id = 0;
    int r = 0;
    int i;

    for (i = 0; i < core->device_count && r == 0; i++) {
        if (gb_core_pool_absent(core->devices[i].pool))
            continue;
        pool = describe(core->devices[i].pool);
        r = visit(arg, &pool, err);
    }
    while (r == 0 && (s = gb_session_after(core, id))) {
        struct gb_core_pool *p;
        int64_t pool_id = 0;

        id = s->id;
        while (r == 0 && (p = gb_session_pool_after(s, &pool_id))) {
            if (atomic_load(&p->state) == GB_POOL_LIVE && p->device) {
                pool = describe(p);
                r = visit(arg, &pool, err);
            }
            gb_core_pool_unref(p);
        }
        gb_session_unref(s);
    }
    return r;
}
