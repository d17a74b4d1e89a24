/* The housekeeper: one thread that expires sessions, leases and uploads, takes samples and saves counters, at
 * intervals. It holds no lock across a call of the store or the backend. open.c starts and stops it. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "core/buffer/buffer.h"
#include "core/checkpoint/checkpoint.h"
#include "core/durable/persist.h"
#include "core/durable/scrub.h"
#include "core/observe/health.h"
#include "core/observe/stats.h"
#include "core/public/access.h"
#include "core/public/observe.h"
#include "core/restore.h"
#include "core/runtime/runtime.h"
#include "core/session/quota.h"
#include "core/share/lease.h"
#include "core/transfer/multipart.h"

#define SAVE_NS (10 * GB_NS_PER_S)
#define USES_NS (5 * GB_NS_PER_S) /* of tokens */

/* --- idle sessions ------------------------------------------------------------------------------------------------ */

/* The name may be another session's by now. */
static int still_idle(void *arg, const struct gb_session_rec *rec, struct gb_error *err) {
    struct gb_session *s = arg;

    return rec->id == s->id && gb_session_idle(s)
               ? 0
               : gb_error_set(err, GB_ERR_PRECONDITION_FAILED, "the session is not idle");
}

/* The check holds the session. */
static void drop_session(void *arg) {
    gb_session_unref(arg);
}

struct expiry {
    struct gb_core *core;
    struct gb_call *call;
};

static void expired(void *arg) {
    struct expiry *e = arg;

    if (e->call->error.code == GB_OK)
        atomic_fetch_add(&e->core->live_counters.expired_sessions, 1);
    gb_core_changed(e->core);
    free(e);
}

/* Takes over the reference. */
static void expire(struct gb_session *s) {
    struct gb_session_check check = {.check = still_idle, .arg = s, .free_arg = drop_session, .expires = true};
    struct gb_call *call = gb_call_new(sizeof(*call), expired, NULL);
    struct expiry *e = malloc(sizeof(*e));

    /* Without memory: another time. */
    if (!call || !e) {
        free(call);
        free(e);
        gb_session_unref(s);
        return;
    }
    *e = (struct expiry){.core = s->core, .call = call};
    call->arg = e;
    gb_session_delete(s->core, gb_session_name(s), &check, call);
    gb_call_unref(call);
}

static void expire_idle(struct gb_core *core) {
    struct gb_session *s;
    int64_t id = 0;

    while ((s = gb_session_after(core, id))) {
        bool idle;

        id = s->id;
        pthread_mutex_lock(&s->lock);
        idle = atomic_load(&s->state) == GB_SESSION_LIVE && gb_session_idle(s) &&
               strcmp(gb_session_name(s)->s, "default") != 0;
        pthread_mutex_unlock(&s->lock);
        gb_multiparts_expire(s);
        if (idle)
            expire(s);
        else
            gb_session_unref(s);
    }
}

/* --- a dead device ------------------------------------------------------------------------------------------------ */

static struct gb_content *lose_all_locked(struct gb_session *s) {
    struct gb_content *list = NULL;
    struct gb_buffer *b;
    size_t at = 0;

    while ((b = gb_map_next(&s->buffers, &at))) {
        if (b->live && b->rec.state != GB_BUFFER_LOST && b->rec.state != GB_BUFFER_STORED)
            gb_content_list_add(&list, gb_buffer_lose_locked(s, b));
    }
    return list;
}

/* Not written to the database: every start calls all bytes lost, so a record there says nothing about them. */
static void mark_lost(struct gb_core *core) {
    struct gb_error why = GB_ERROR_INIT;
    struct gb_session *s;
    int64_t id = 0;

    gb_core_alive(core, &why);
    if (!core->housekeeper->failed) {
        struct gb_notice failed = gb_notice_new(GB_NOTICE_DEVICE_FAILED);

        snprintf(failed.detail, sizeof(failed.detail), "%.120s", why.native_name[0] ? why.native_name : why.detail);
        gb_notice_post(core, &failed);
        core->housekeeper->failed = true;
    }
    while ((s = gb_session_after(core, id))) {
        struct gb_content *list;
        uint64_t lost;

        id = s->id;
        pthread_mutex_lock(&s->lock);
        lost = s->lost_buffers;
        list = lose_all_locked(s);
        lost = s->lost_buffers - lost;
        pthread_mutex_unlock(&s->lock);
        gb_notice_post_lost(s, lost, "the device failed");
        gb_multiparts_end(s, &why);
        if (list)
            gb_core_changed(core);
        gb_content_drop_all(list);
        gb_session_unref(s);
    }
}

/* --- numbers ------------------------------------------------------------------------------------------------------ */

/* The sums of a device's pools. */
struct sum {
    uint64_t pools;
    uint64_t used_bytes;
    uint64_t reserved_bytes;
};

static void refresh_pool(struct gb_core_pool *p, struct sum *sums) {
    struct gb_pool_stat stat;

    gb_core_pool_refresh(p);
    if (!p->device || gb_core_pool_absent(p))
        return;
    gb_core_pool_stat(p, &stat);
    sums[p->device->index].pools++;
    sums[p->device->index].used_bytes += stat.used_bytes;
    sums[p->device->index].reserved_bytes += stat.reserved_bytes;
}

/* Those of sessions. */
static void refresh_pools(struct gb_core *core, struct sum *sums) {
    struct gb_session *s;
    int64_t id = 0;

    while ((s = gb_session_after(core, id))) {
        struct gb_core_pool *p;
        int64_t pool_id = 0;

        id = s->id;
        while ((p = gb_session_pool_after(s, &pool_id))) {
            if (atomic_load(&p->state) == GB_POOL_LIVE)
                refresh_pool(p, sums);
            gb_core_pool_unref(p);
        }
        gb_session_unref(s);
    }
}

static void refresh(struct gb_core *core) {
    struct sum *sums = calloc((size_t)core->device_count, sizeof(*sums));
    struct gb_device_rec rec;
    int i;

    if (!sums) /* another time */
        return;
    refresh_pools(core, sums);

    for (i = 0; i < core->device_count; i++) {
        struct gb_core_device *d = &core->devices[i];

        refresh_pool(d->pool, sums);
        atomic_store(&d->pools_live, sums[i].pools);
        atomic_store(&d->pools_used_bytes, sums[i].used_bytes);
        atomic_store(&d->reserved_bytes, sums[i].reserved_bytes);
        gb_core_pool_relieve(d);
        if (gb_backend_device_get(core->backend, i, &rec, NULL) == 0)
            atomic_store(&d->free_bytes, rec.free_bytes);
    }
    free(sums);
}

static void counters_saved(void *arg, const struct gb_error *error) {
    struct gb_core *core = arg;

    if (error)
        atomic_store(&core->housekeeper->unsaved, true);
    gb_core_leave(core);
}

void gb_housekeeper_save(struct gb_core *core) {
    struct gb_counters now;

    gb_live_counters_read(&core->live_counters, &now);
    if (!atomic_exchange(&core->housekeeper->unsaved, false) &&
        memcmp(&now, &core->housekeeper->saved, sizeof(now)) == 0)
        return;
    gb_core_enter(core);
    /* The increase belongs to the next sample; if none is taken, to none. */
    if (core->config.history.interval_s > 0)
        gb_store_put_counters(core->store, &now, counters_saved, core);
    else
        gb_store_put_history(core->store, NULL, 0, &now, counters_saved, core);
    core->housekeeper->saved = now;
}

/* As soon as the database takes changes again. */
static void complete_default(struct gb_core *core) {
    if (!core->lacks_default || gb_store_health(core->store, NULL) < 0)
        return;
    core->lacks_default = !gb_core_has_default(core);
    if (core->lacks_default)
        gb_core_make_default(core);
}

static void tick(struct gb_core *core) {
    struct gb_housekeeper *housekeeper = core->housekeeper;
    uint64_t now_ns = gb_clock_ns();

    complete_default(core);

    if (gb_backend_dead(core->backend, NULL))
        mark_lost(core);
    else
        refresh(core);
    expire_idle(core);
    gb_leases_expire(core);
    gb_durable_tick(core);
    gb_scrub_tick(core);
    gb_checkpoints_tick(core);
    gb_core_health_tick(core);
    gb_notices_tick(core);
    gb_audit_tick(core);
    if (core->config.history.interval_s > 0 &&
        now_ns - housekeeper->sampled_ns >= core->config.history.interval_s * GB_NS_PER_S && gb_sampler_take(core)) {
        housekeeper->sampled_ns = now_ns;
        housekeeper->saved_ns = now_ns; /* the sample saves them */
    }
    if (now_ns - housekeeper->uses_ns >= USES_NS) {
        gb_tokens_save_uses(core);
        housekeeper->uses_ns = now_ns;
    }
    if (now_ns - housekeeper->saved_ns >= SAVE_NS) {
        gb_housekeeper_save(core);
        housekeeper->saved_ns = now_ns;
    }
}

/* --- the thread --------------------------------------------------------------------------------------------------- */

static uint64_t interval_ms(const struct gb_core *core) {
    return core->config.housekeeping_ms ? core->config.housekeeping_ms : 1000;
}

static uint64_t run(void *arg) {
    struct gb_core *core = arg;

    tick(core);
    return interval_ms(core);
}

struct gb_housekeeper *gb_housekeeper_new(void) {
    struct gb_housekeeper *housekeeper = calloc(1, sizeof(*housekeeper));

    if (housekeeper)
        gb_worker_init(&housekeeper->worker);
    return housekeeper;
}

void gb_housekeeper_free(struct gb_housekeeper *housekeeper) {
    if (!housekeeper)
        return;
    gb_worker_done(&housekeeper->worker);
    free(housekeeper);
}

int gb_housekeeper_start(struct gb_core *core, struct gb_error *err) {
    struct gb_housekeeper *housekeeper = core->housekeeper;

    housekeeper->sampled_ns = gb_clock_ns();
    housekeeper->saved_ns = housekeeper->sampled_ns;
    core->sampler->counted_ns = housekeeper->sampled_ns;
    gb_live_counters_read(&core->live_counters, &housekeeper->saved);
    if (gb_worker_start(&housekeeper->worker, "gb-house", interval_ms(core), run, core, err) < 0)
        return -1;
    housekeeper->began = true;
    return 0;
}

void gb_housekeeper_stop(struct gb_core *core) {
    gb_worker_stop(&core->housekeeper->worker);
}

void gb_housekeeper_kick(struct gb_core *core) {
    gb_worker_kick(&core->housekeeper->worker);
}
