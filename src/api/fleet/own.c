/* This node as its fleet sees it: its devices and registered sessions, and what happens to a session about which the
 * directory contradicts the node. The core makes every change; its end is reported to the fleet. The fleet's thread
 * calls through src/daemon. No function blocks. */
#include "api/fleet/own.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/pipeline/operations.h"
#include "api/pipeline/redirect.h"
#include "fleet/move/move.h"

/* --- registered sessions ------------------------------------------------------------------------------------------ */

static void describe(const struct gb_api *api, const struct gb_session_view *view, struct gb_fleet_session *ret) {
    const char *labels = gb_labels_text(view->rec.labels);

    *ret = (struct gb_fleet_session){.name = view->rec.name, .node = api->fleet_is.node};
    ret->epoch = (uint64_t)view->rec.fleet_epoch;
    ret->on_partition = view->rec.stops_on_partition ? GB_ON_PARTITION_STOP : GB_ON_PARTITION_SERVE;
    ret->failover_after_s = view->rec.failover_after_s;
    ret->replicas = view->rec.replicas;
    ret->tenant = view->rec.tenant;
    gb_fleet_holders_read(gb_text_s(view->rec.holders), ret);
    ret->quota_bytes = view->rec.quota.bytes;
    ret->given = view->rec.given;
    snprintf(ret->claim, sizeof(ret->claim), "%.*s", GB_FLEET_CLAIM_SIZE - 1, view->rec.fleet_claim);
    /* Labels may have become longer than a record permits. */
    snprintf(ret->labels, sizeof(ret->labels), "%s", strlen(labels) < sizeof(ret->labels) ? labels : "{}");
}

bool gb_fleet_session(struct gb_api *api, const struct gb_name *name, struct gb_fleet_session *ret) {
    struct gb_session_view view;

    if (gb_session_get(api->core, name, &view, NULL) < 0)
        return false;
    describe(api, &view, ret);
    gb_session_rec_done(&view.rec);
    return ret->epoch > 0;
}

struct walk {
    struct gb_api *api;
    int64_t *cursor;
    struct gb_fleet_session *ret;
    size_t count;
    size_t max;
};

static int add(void *arg, const struct gb_session_view *view, struct gb_error *err) {
    struct walk *walk = arg;

    (void)err;
    if (walk->count == walk->max)
        return -1;
    *walk->cursor = view->rec.id;
    if (view->rec.fleet_epoch > 0)
        describe(walk->api, view, &walk->ret[walk->count++]);
    return 0;
}

size_t gb_fleet_sessions(struct gb_api *api, int64_t *cursor, struct gb_fleet_session *ret, size_t max) {
    struct walk walk = {.api = api, .cursor = cursor, .ret = ret, .max = max};
    struct gb_page page = {.after = *cursor, .limit = UINT32_MAX};

    gb_session_list(api->core, &page, add, &walk, NULL);
    return walk.count;
}

/* --- applying an outcome ------------------------------------------------------------------------------------------ */

struct reconciling {
    struct gb_api *api;
    enum gb_code aside; /* the error of its operations when it is set aside; OK: it is not set aside */
    struct gb_name name;
    struct gb_session_call *call;
    void (*done)(void *arg, const struct gb_name *aside); /* may be NULL */
    void *arg;
};

/* A session that is no longer here, or was transferred meanwhile, needs no retry. */
static bool is_to_be_retried(const struct gb_error *error) {
    return error->code != GB_OK && error->code != GB_ERR_SESSION_NOT_FOUND && error->code != GB_ERR_SESSION_MOVING;
}

/* The fleet may be closed by then. */
static void reconciled(void *arg) {
    struct reconciling *s = arg;
    bool failed = is_to_be_retried(&s->call->base.error);
    bool is_aside = s->aside != GB_OK && s->call->base.error.code == GB_OK;

    pthread_mutex_lock(&s->api->fleet_lock);
    if (s->api->fleet && failed)
        gb_fleet_reconcile_failed(s->api->fleet, &s->name);
    else if (s->api->fleet && s->aside != GB_OK)
        gb_fleet_reconciled(s->api->fleet, &s->name);
    pthread_mutex_unlock(&s->api->fleet_lock);
    /* The next session of the name has operations of its own. */
    if (is_aside)
        gb_operations_session_gone(s->api->operations, s->name.s, s->aside);
    if (s->done)
        s->done(s->arg, is_aside ? &s->call->session.rec.name : &(struct gb_name){""});
    free(s);
}

/* Makes a call whose end is reported to the fleet. Without memory it returns NULL: the next joining reconciles the
 * session, and its requests are refused until then. */
static struct gb_session_call *begin(struct gb_api *api, const struct gb_fleet_session *mine, enum gb_code aside) {
    struct reconciling *s = malloc(sizeof(*s));
    struct gb_session_call *call = gb_call_new(sizeof(*call), reconciled, s);

    if (!s || !call) {
        free(s);
        free(call);
        return NULL;
    }
    *s = (struct reconciling){.api = api, .aside = aside, .name = mine->name, .call = call};
    return call;
}

void gb_fleet_raise(struct gb_api *api, const struct gb_fleet_session *mine, uint64_t epoch) {
    struct gb_session_call *call = begin(api, mine, GB_OK);

    if (!call)
        return;
    gb_session_raise(api->core, &mine->name, mine->claim, (int64_t)epoch, call);
    gb_call_unref(&call->base);
}

/* --- one that arrives --------------------------------------------------------------------------------------------- */

struct search {
    const char *claim;
    struct gb_name found; /* "": none */
};

static int is_that(void *arg, const struct gb_session_view *view, struct gb_error *err) {
    struct search *search = arg;

    (void)err;
    if (view->rec.fleet_epoch > 0 || strcmp(view->rec.fleet_claim, search->claim) != 0)
        return 0;
    search->found = view->rec.name;
    return -1;
}

/* The session has arrived with the least epoch: the directory has the right one. */
static void has_arrived(void *arg) {
    struct reconciling *s = arg;

    pthread_mutex_lock(&s->api->fleet_lock);
    if (s->api->fleet && s->call->base.error.code == GB_OK)
        gb_fleet_refresh(s->api->fleet, &s->name);
    pthread_mutex_unlock(&s->api->fleet_lock);
    free(s);
}

/* The directory names this node for a session that was arriving when the process before this one ended. */
static bool arrive(struct gb_api *api, const struct gb_fleet_session *record) {
    struct gb_session_params params = {.name = record->name, .fleet_epoch = 1};
    struct search search = {.claim = record->claim};
    struct gb_page page = {.limit = UINT32_MAX};
    struct gb_session_call *call;
    struct reconciling *s;

    gb_session_list(api->core, &page, is_that, &search, NULL);
    if (search.found.s[0] == '\0')
        return false;
    s = malloc(sizeof(*s));
    call = gb_call_new(sizeof(*call), has_arrived, s);
    if (!s || !call || gb_fleet_holders_text(record, &params.holders) < 0) {
        free(s);
        free(call);
        return true; /* the fleet asks again */
    }
    *s = (struct reconciling){.api = api, .name = record->name, .call = call};
    snprintf(params.fleet_claim, sizeof(params.fleet_claim), "%s", record->claim);
    gb_session_arrive(api->core, &search.found, &params, call);
    gb_text_unref(params.holders);
    gb_call_unref(&call->base);
    return true;
}

bool gb_fleet_has(struct gb_api *api, const struct gb_fleet_session *record) {
    struct gb_fleet_session session;

    if (gb_fleet_session(api, &record->name, &session) && strcmp(session.claim, record->claim) == 0)
        return true;
    return record->claim[0] != '\0' && (gb_redirect_moved_here(api, &record->name) || arrive(api, record));
}

/* --- one that goes ------------------------------------------------------------------------------------------------ */

static void set_aside(struct gb_api *api, const struct gb_fleet_session *mine, enum gb_code why,
                      void (*done)(void *arg, const struct gb_name *aside), void *arg) {
    struct gb_session_call *call = begin(api, mine, why);
    struct reconciling *s;

    if (!call) {
        if (done)
            done(arg, &(struct gb_name){""});
        return;
    }
    s = call->base.arg;
    s->done = done;
    s->arg = arg;
    gb_session_set_aside(api->core, &mine->name, mine->claim, api->fleet_is.orphan_ttl_s, call);
    gb_call_unref(&call->base);
}

void gb_fleet_give_aside(struct gb_api *api, const struct gb_fleet_session *mine,
                         void (*done)(void *arg, const struct gb_name *aside), void *arg) {
    set_aside(api, mine, GB_ERR_SESSION_MOVING, done, arg);
}

void gb_fleet_set_aside(struct gb_api *api, const struct gb_fleet_session *mine) {
    set_aside(api, mine, GB_ERR_SUPERSEDED, NULL, NULL);
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

static int add_quota(void *arg, const struct gb_session_view *view, struct gb_error *err) {
    uint64_t *sum = arg;
    uint64_t bytes = view->rec.quota.bytes == GB_UNLIMITED ? view->used_bytes : view->rec.quota.bytes;

    (void)err;
    *sum = bytes > UINT64_MAX - *sum ? UINT64_MAX : *sum + bytes;
    return 0;
}

/* The sum of all quotas. A quota does not say on which device it is used. */
static uint64_t committed_bytes(struct gb_core *core) {
    struct gb_page page = {.limit = UINT32_MAX};
    uint64_t sum = 0;

    gb_session_list(core, &page, add_quota, &sum, NULL);
    return sum;
}

size_t gb_fleet_devices(struct gb_api *api, struct gb_fleet_device *ret) {
    uint64_t committed = api->devices > 0 ? committed_bytes(api->core) / (uint64_t)api->devices : 0;
    struct gb_device_numbers numbers;
    struct gb_device_rec rec;
    size_t count = 0;
    int i;

    for (i = 0; i < api->devices && count < GB_FLEET_DEVICES_MAX; i++) {
        struct gb_fleet_device *device = &ret[count];

        if (gb_device_get(api->core, i, &rec, NULL) < 0 || gb_device_numbers(api->core, i, &numbers, NULL) < 0)
            continue;
        snprintf(device->uuid, sizeof(device->uuid), "%s", api->uuid[i]);
        snprintf(device->name, sizeof(device->name), "%.63s", rec.name);
        device->bytes = numbers.total_bytes;
        device->free_bytes = numbers.free_bytes;
        device->committed_bytes = committed < numbers.total_bytes ? committed : numbers.total_bytes;
        count++;
    }
    return count;
}

/* --- this node ---------------------------------------------------------------------------------------------------- */

void gb_fleet_self(struct gb_api *api, struct gb_fleet_node *ret) {
    const struct gb_api_fleet *is = &api->fleet_is;
    struct gb_fleet_stat stat;
    size_t i;

    gb_fleet_stat(api->fleet, &stat);
    memset(ret, 0, sizeof(*ret));
    ret->name = is->node;
    ret->uuid = is->uuid;
    ret->incarnation = stat.incarnation;
    ret->alive = stat.state == GB_FLEET_JOINED;
    ret->draining = stat.draining;
    snprintf(ret->version, sizeof(ret->version), "%s", api->version);
    snprintf(ret->labels, sizeof(ret->labels), "%s", is->labels);
    for (i = 0; i < is->url_count; i++)
        ret->urls[ret->url_count++] = is->urls[i];
    ret->device_count = gb_fleet_devices(api, ret->devices);
}
