#include <stdlib.h>

#include "base/clock.h"
#include "base/digest.h"
#include "core/session/session.h"

/* --- who uses the core ---------------------------------------------------------------------------------------------------------- */

void gb_core_enter(struct gb_core *core) {
    pthread_mutex_lock(&core->objects_lock);
    core->objects++;
    pthread_mutex_unlock(&core->objects_lock);
}

void gb_core_leave(struct gb_core *core) {
    pthread_mutex_lock(&core->objects_lock);
    if (--core->objects == 0)
        pthread_cond_broadcast(&core->objects_gone);
    pthread_mutex_unlock(&core->objects_lock);
}

static void wait_for_all(struct gb_core *core) {
    pthread_mutex_lock(&core->objects_lock);
    while (core->objects > 0)
        pthread_cond_wait(&core->objects_gone, &core->objects_lock);
    pthread_mutex_unlock(&core->objects_lock);
}

/* --- health ----------------------------------------------------------------------------------------------------------------------- */

void gb_core_report_error(struct gb_core *core, const struct gb_error *err) {
    if (err && err->code == GB_ERR_DEVICE_LOST)
        gb_housekeeper_kick(core);
}

int gb_core_alive(struct gb_core *core, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;

    if (!gb_backend_dead(core->backend, &why))
        return 0;
    if (err && err->code == GB_OK) {
        *err = why;
        if (err->code != GB_ERR_DEVICE_LOST) {
            err->code = GB_OK;
            gb_error_set(err, GB_ERR_DEVICE_LOST, "the device is lost; the daemon must be restarted");
        }
    }
    return -1;
}

int gb_core_health(struct gb_core *core, struct gb_error *err) {
    return gb_core_alive(core, err);
}

int gb_core_writable(struct gb_core *core, struct gb_error *err) {
    return gb_store_health(core->store, err);
}

/* --- open and close ------------------------------------------------------------------------------------------------------------------ */

static int start(struct gb_core *core, struct gb_error *err) {
    int i;

    if (gb_core_devices_open(core, err) < 0)
        return -1;
    if (core->slots_needed &&
        gb_slots_init(&core->slots, core->backend, core->config.slots_bytes, core->config.slot_bytes, err) < 0)
        return -1;
    for (i = 0; i < GB_COMPUTE_LANES; i++) {
        if (gb_lane_init(&core->compute[i], "gb-compute", gb_lane_no_more, NULL, err) < 0)
            return -1;
    }
    if (gb_lane_init(&core->inspect, "gb-inspect", gb_lane_no_more, NULL, err) < 0)
        return -1;
    if (gb_feed_init(core, err) < 0 || gb_core_restore(core, err) < 0)
        return -1;
    if (gb_core_health_start(core, err) < 0)
        return -1;
    return gb_housekeeper_start(core, err);
}

int gb_core_open(const struct gb_core_config *config, struct gb_core **ret, struct gb_error *err) {
    struct gb_core *core = calloc(1, sizeof(*core));

    if (!core)
        return gb_no_memory(err);
    core->config = *config;
    core->backend = config->backend;
    core->store = config->store;
    core->started_at_us = gb_wall_us();
    atomic_init(&core->sequence, 1);
    pthread_mutex_init(&core->sessions_lock, NULL);
    gb_session_pools_init(&core->pool_sessions);
    pthread_mutex_init(&core->objects_lock, NULL);
    pthread_mutex_init(&core->blank_lock, NULL);
    pthread_cond_init(&core->objects_gone, NULL);
    gb_housekeeper_init(core);
    gb_sampler_init(core);
    gb_tokens_init(&core->tokens);
    gb_keys_init(core);
    gb_leases_init(core);
    pthread_mutex_init(&core->feed.lock, NULL);
    pthread_mutex_init(&core->feed.limiter_lock, NULL);
    gb_cond_init(&core->feed.grown);
    if (gb_alloc_log_init(&core->alloc_log, config->allocation_log, err) < 0 ||
        gb_random(&core->run, sizeof(core->run), err) < 0 || start(core, err) < 0) {
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
    atomic_store(&core->closing, true);
    gb_housekeeper_stop(core);
    gb_sampler_wait(core);
    if (core->housekeeper.began && core->config.history.interval_s > 0)
        gb_sampler_take(core);
    gb_health_watch_stop(core->health);
    core->health = NULL;
    gb_leases_end(core);
    forget_sessions(core);
    wait_for_all(core);
    for (i = 0; i < GB_COMPUTE_LANES; i++)
        gb_lane_done(&core->compute[i]);
    gb_lane_done(&core->inspect);
    gb_sampler_wait(core);
    gb_housekeeper_save(core);
    wait_for_all(core);
    gb_core_devices_close(core);
    gb_slots_done(&core->slots);
    gb_map_done(&core->sessions);
    gb_idlist_done(&core->sessions_by_id);
    gb_tokens_done(&core->tokens);
    gb_keys_done(&core->keys);
    gb_leases_done(&core->leases);
    gb_alloc_log_done(&core->alloc_log);
    gb_feed_done(core);
    gb_sampler_done(core);
    gb_housekeeper_done(core);
    pthread_cond_destroy(&core->objects_gone);
    pthread_mutex_destroy(&core->blank_lock);
    pthread_mutex_destroy(&core->objects_lock);
    gb_session_pools_done(&core->pool_sessions);
    pthread_mutex_destroy(&core->sessions_lock);
    free(core);
}
