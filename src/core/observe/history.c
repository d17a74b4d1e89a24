#include "core/observe/history.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "core/observe/sampler.h"
#include "core/session/session.h"

/* --- questions ---------------------------------------------------------------------------------------------------- */

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
void gb_history_key_of_pool(const struct gb_core_pool *p, struct gb_history_key *ret) {
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
    gb_history_key_of_pool(p, ret);
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
