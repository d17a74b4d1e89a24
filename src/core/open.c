/* The core is made and taken apart: its devices with their lanes, the store, and what the database has. The daemon
 * calls this, at the start and at the end. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/thread.h"
#include "core/access/keys.h"
#include "core/buffer/buffer.h"
#include "core/checkpoint/checkpoint.h"
#include "core/durable/evict.h"
#include "core/durable/load.h"
#include "core/durable/persist.h"
#include "core/durable/scrub.h"
#include "core/durable/stored.h"
#include "core/memory/alloc.h"
#include "core/memory/content.h"
#include "core/memory/frees.h"
#include "core/memory/kept.h"
#include "core/observe/health.h"
#include "core/observe/stats.h"
#include "core/public/access.h"
#include "core/public/lifecycle.h"
#include "core/public/observe.h"
#include "core/restore.h"
#include "core/runtime/runtime.h"
#include "core/session/session.h"
#include "core/share/lease.h"
#include "core/transfer/multipart.h"

/* --- open devices ------------------------------------------------------------------------------------------------- */

/* After each task and, while something is to come, each tick. */
static bool retry(void *device) {
    bool keeps = gb_free_cache_retry(device);
    bool maps = gb_lease_again(device);
    bool ends = gb_leases_finish(device);

    return gb_alloc_retry(device) || keeps || maps || ends;
}

static int open_device(struct gb_core *core, int index, struct gb_error *err) {
    struct gb_core_device *d = &core->devices[index];
    char name[24];

    d->core = core;
    d->index = index;
    d->free_cache = gb_free_cache_new();
    d->frees = gb_frees_new(d);
    if (!d->free_cache || !d->frees)
        return gb_no_memory(err);
    if (gb_backend_device_get(core->backend, index, &d->rec, err) < 0 || gb_core_pool_open(d, err) < 0)
        return -1;
    atomic_store(&d->free_bytes, d->rec.free_bytes);
    gb_event_pool_init(&d->events, core->backend, index);
    snprintf(name, sizeof(name), "gb-slow-%d", index);
    if (gb_lane_init(&d->slow, name, gb_kind_alloc_retry, d, err) < 0)
        return -1;
    snprintf(name, sizeof(name), "gb-free-%d", index);
    if (gb_lane_init(&d->ends, name, gb_frees_retry, d, err) < 0)
        return -1;
    snprintf(name, sizeof(name), "gb-lane-%d", index); /* devices are few: fits into a thread's 15 */
    if (gb_lane_init(&d->lane, name, retry, d, err) < 0)
        return -1;
    d->lane.before = gb_free_cache_free;
    return 0;
}

static int core_devices_open(struct gb_core *core, struct gb_error *err) {
    int i;

    core->device_count = gb_backend_device_count(core->backend);
    if (core->device_count <= 0)
        return gb_error_set(err, GB_ERR_DEVICE_NOT_FOUND, "the backend \"%s\" has no device",
                            gb_backend_name(core->backend));
    core->devices = calloc((size_t)core->device_count, sizeof(*core->devices));
    if (!core->devices)
        return gb_no_memory(err);
    for (i = 0; i < core->device_count; i++) {
        if (open_device(core, i, err) < 0)
            return -1;
    }
    return 0;
}

static void core_devices_close(struct gb_core *core) {
    int i;

    if (!core->devices)
        return;
    for (i = 0; i < core->device_count; i++) {
        struct gb_core_device *d = &core->devices[i];

        gb_lane_done(&d->slow);
        gb_lane_done(&d->lane);
        if (d->free_cache)
            gb_free_cache_free(d);
        gb_free_cache_end(d->free_cache);
        gb_lane_done(&d->ends);
        gb_frees_end(d->frees);
    }
    for (i = 0; i < core->device_count; i++) {
        struct gb_core_device *d = &core->devices[i];

        gb_event_pool_done(&d->events);
        gb_core_pool_close(d->pool);
    }
    free(core->devices);
}

/* --- open --------------------------------------------------------------------------------------------------------- */

/* They count against the ceiling of page-locked memory for as long as the core is open. */
static int open_slots(struct gb_core *core, struct gb_error *err) {
    const struct gb_core_config *config = &core->config;

    if (gb_pinned_take_slots(&core->pinned, config->slots_bytes, err) < 0)
        return -1;
    if (gb_slots_init(&core->slots, core->backend, config->slots_bytes, config->slot_bytes, err) == 0)
        return 0;
    gb_pinned_give_slots(&core->pinned);
    return -1;
}

static int start(struct gb_core *core, struct gb_error *err) {
    int i;

    if (core_devices_open(core, err) < 0)
        return -1;
    if (open_slots(core, err) < 0)
        return -1;
    for (i = 0; i < GB_COMPUTE_LANES; i++) {
        if (gb_lane_init(&core->compute[i], "gb-compute", gb_lane_no_more, NULL, err) < 0)
            return -1;
    }
    if (gb_lane_init(&core->inspect, "gb-inspect", gb_lane_no_more, NULL, err) < 0 ||
        gb_lane_init(&core->report, "gb-report", gb_lane_no_more, NULL, err) < 0)
        return -1;
    if (gb_kept_open(core, &core->kept, err) < 0)
        return -1;
    if (gb_feed_start(core, err) < 0 || gb_core_restore(core, err) < 0 || gb_checkpoints_start(core, err) < 0)
        return -1;
    if (gb_core_health_start(core, err) < 0)
        return -1;
    return gb_housekeeper_start(core, err);
}

/* The parts that gb_core holds by pointers. False: memory is exhausted. */
static bool make_parts(struct gb_core *core) {
    core->pool_sessions = gb_session_pools_new();
    core->housekeeper = gb_housekeeper_new();
    core->holds = gb_holds_new();
    core->sampler = gb_sampler_new();
    core->selftests = gb_selftests_new(gb_backend_device_count(core->backend));
    core->tokens = gb_tokens_new();
    core->keys = gb_keys_new(&core->config, core->store);
    core->leases = gb_leases_new();
    core->feed = gb_feed_new();
    core->limiters = gb_notice_limiters_new();
    core->disks = gb_disks_new(core->config.disk_threads);
    core->host_tier = gb_host_tier_new(core->config.spill_host_bytes);
    core->loads = gb_loads_new();
    core->behind = gb_behind_new(core);
    core->scrubber = gb_scrubber_new();
    core->checkpoints = gb_checkpoints_new();
    core->alloc_log = gb_alloc_log_new(core->config.allocation_log);
    return core->pool_sessions && core->housekeeper && core->holds && core->sampler && core->selftests &&
           core->tokens && core->keys && core->leases && core->feed && core->limiters && core->disks &&
           core->host_tier && core->loads && core->behind && core->scrubber && core->checkpoints && core->alloc_log;
}

static void free_core(struct gb_core *core) {
    gb_kept_free(core->kept);
    gb_map_done(&core->sessions);
    gb_idlist_done(&core->sessions_by_id);
    gb_tokens_free(core->tokens);
    gb_store_marks_watch(core->store, NULL, NULL);
    gb_keys_free(core->keys);
    gb_leases_free(core->leases);
    gb_checkpoints_free(core->checkpoints);
    gb_loads_free(core->loads);
    gb_behind_free(core->behind);
    gb_scrubber_free(core->scrubber);
    gb_disks_free(core->disks);
    gb_host_tier_free(core);
    gb_alloc_log_free(core->alloc_log);
    gb_notice_limiters_free(core->limiters);
    gb_audit_free(core->audit);
    gb_feed_free(core->feed);
    gb_sampler_free(core->sampler);
    gb_holds_free(core->holds);
    gb_housekeeper_free(core->housekeeper);
    gb_session_pools_free(core->pool_sessions);
    gb_sessions_left_done(core);
    pthread_cond_destroy(&core->objects_gone);
    pthread_mutex_destroy(&core->blank_lock);
    pthread_mutex_destroy(&core->objects_lock);
    pthread_mutex_destroy(&core->sessions_lock);
    pthread_mutex_destroy(&core->gone_lock);
    free(core);
}

int gb_core_open(const struct gb_core_config *config, struct gb_core **ret, struct gb_error *err) {
    struct gb_core *core = calloc(1, sizeof(*core));

    if (!core)
        return gb_no_memory(err);
    core->config = *config;
    core->backend = config->backend;
    core->store = config->store;
    core->on_device_lost = gb_housekeeper_kick;
    core->persist = gb_durable_persist;
    core->want = gb_durable_want;
    if (config->disk) {
        core->make_room = gb_durable_make_room;
        core->spare = gb_durable_spare;
    }
    core->started_at_us = gb_wall_us();
    atomic_init(&core->sequence, 1);
    gb_pinned_init(&core->pinned, config->pinned_bytes_max);
    gb_mutex_init(&core->sessions_lock);
    gb_mutex_init(&core->gone_lock);
    gb_mutex_init(&core->objects_lock);
    gb_mutex_init(&core->blank_lock);
    pthread_cond_init(&core->objects_gone, NULL);
    if (!make_parts(core)) {
        free_core(core);
        return gb_no_memory(err);
    }
    if (gb_audit_new(&config->audit, &core->audit, err) < 0 || gb_random(&core->run, sizeof(core->run), err) < 0 ||
        gb_random(&core->file_tags, sizeof(core->file_tags), err) < 0 || start(core, err) < 0) {
        gb_core_close(core);
        return -1;
    }
    *ret = core;
    return 0;
}

/* From memory only: the records stay in the database. */
static void forget_sessions(struct gb_core *core) {
    struct gb_session *s;

    while ((s = gb_session_after(core, 0))) {
        struct gb_error why = GB_ERROR_INIT;
        struct gb_content *contents;
        struct gb_idlist pools;

        pthread_mutex_lock(&s->lock);
        atomic_store(&s->state, GB_SESSION_DEAD);
        contents = gb_session_clear_locked(s);
        pools = gb_session_take_pools_locked(s);
        pthread_mutex_unlock(&s->lock);
        gb_session_alive(s, &why);
        gb_multiparts_end(s, &why);
        gb_content_drop_all(contents);
        gb_session_drop_pools(&pools);
        gb_session_withdraw(s);
        gb_session_unref(s);
    }
}

void gb_core_close(struct gb_core *core) {
    int i;

    if (!core)
        return;
    if (core->housekeeper->began)
        gb_durable_flush(core);
    atomic_store(&core->closing, true);
    gb_holds_release(core);
    gb_selftests_stop(core);
    gb_scrub_stop(core);
    gb_housekeeper_stop(core);
    gb_sampler_wait(core);
    if (core->housekeeper->began && core->config.history.interval_s > 0)
        gb_sampler_take(core);
    gb_health_watch_stop(core->health);
    core->health = NULL;
    gb_kept_leave(core->kept);
    gb_leases_end(core);
    forget_sessions(core);
    gb_core_wait(core);
    for (i = 0; i < GB_COMPUTE_LANES; i++)
        gb_lane_done(&core->compute[i]);
    gb_lane_done(&core->inspect);
    gb_lane_done(&core->report);
    gb_selftests_free(core->selftests);
    core->selftests = NULL;
    gb_sampler_wait(core);
    gb_housekeeper_save(core);
    gb_tokens_save_uses(core);
    gb_core_wait(core);
    core_devices_close(core);
    gb_slots_done(&core->slots);
    gb_feed_stop(core);
    free_core(core);
}
