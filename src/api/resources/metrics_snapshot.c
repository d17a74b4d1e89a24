/* All numbers of the daemon at one time, and the sessions that have series of their own: the largest, and the rest as
 * one. metrics.c calls this, on a loop. */
#include "api/resources/metrics_snapshot.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/context.h"
#include "api/pipeline/operations.h"
#include "api/reply.h"
#include "base/clock.h"

/* The sessions that have series of their own: the largest. There may be ten thousand, and collectors keep each series
 * for ever. */

/* The facts of all sessions that the choice needs. */
struct gb_metrics_candidate {
    struct gb_name name;
    int64_t id;
    uint64_t used_bytes;
    uint64_t pinned_bytes;
    uint64_t buffers;
    uint64_t quota_bytes;
};

struct gb_metrics_sessions {
    uint64_t most; /* the most that are chosen; 0: no session, and no rest either */
    struct gb_metrics_candidate *items;
    size_t count;
    size_t room;
};

/* --- the largest sessions ----------------------------------------------------------------------------------------- */

/* Adds a session. The owner frees items. Returns 0, or -1 when memory is exhausted. */
static int metrics_sessions_add(struct gb_metrics_sessions *list, const struct gb_session_view *view) {
    size_t room = list->room ? list->room * 2 : 64;
    struct gb_metrics_candidate *bigger;

    if (list->most == 0)
        return 0;
    if (list->count == list->room) {
        bigger = realloc(list->items, room * sizeof(*bigger));
        if (!bigger)
            return -1;
        list->items = bigger;
        list->room = room;
    }
    list->items[list->count++] = (struct gb_metrics_candidate){.name = view->rec.name,
                                                               .id = view->rec.id,
                                                               .used_bytes = view->used_bytes,
                                                               .pinned_bytes = view->used_pinned_bytes,
                                                               .buffers = view->buffers,
                                                               .quota_bytes = view->rec.quota.bytes};
    return 0;
}

static int larger_first(const void *a, const void *b) {
    const struct gb_metrics_candidate *x = a;
    const struct gb_metrics_candidate *y = b;

    if (x->used_bytes != y->used_bytes)
        return x->used_bytes > y->used_bytes ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static struct gb_metrics_snapshot_session from(const struct gb_metrics_candidate *c) {
    return (struct gb_metrics_snapshot_session){.name = c->name,
                                                .used_bytes = c->used_bytes,
                                                .pinned_bytes = c->pinned_bytes,
                                                .buffers = c->buffers,
                                                .quota_bytes = c->quota_bytes};
}

static void add_rest(struct gb_metrics_snapshot *snapshot, const struct gb_metrics_candidate *items, size_t count) {
    struct gb_metrics_snapshot_session *rest = &snapshot->sessions[snapshot->session_count++];
    size_t i;

    *rest = (struct gb_metrics_snapshot_session){.name = {GB_SESSION_REST}, .rest = true};
    for (i = 0; i < count; i++) {
        rest->used_bytes += items[i].used_bytes;
        rest->pinned_bytes += items[i].pinned_bytes;
        rest->buffers += items[i].buffers;
    }
}

/* Fills snapshot->sessions: the sessions with the most bytes (the older of equal ones), and all others as one. Sorts
 * the list. Returns 0, or -1 with SATURATED. */
static int metrics_sessions_pick(struct gb_metrics_sessions *list, struct gb_core *core,
                                 struct gb_metrics_snapshot *snapshot, struct gb_error *err) {
    size_t most = list->count < list->most ? list->count : (size_t)list->most;
    size_t i;

    snapshot->sessions = calloc(most + 1, sizeof(*snapshot->sessions));
    if (!snapshot->sessions)
        return gb_error_memory(err, "reply");
    if (list->count > 0)
        qsort(list->items, list->count, sizeof(*list->items), larger_first);
    for (i = 0; i < most; i++) {
        struct gb_metrics_snapshot_session *s = &snapshot->sessions[snapshot->session_count];

        *s = from(&list->items[i]);
        if (gb_session_stats(core, &list->items[i].name, &s->stats, NULL) == 0) /* else it was deleted meanwhile */
            snapshot->session_count++;
    }
    if (list->count > most)
        add_rest(snapshot, &list->items[most], list->count - most);
    return 0;
}

/* --- all numbers -------------------------------------------------------------------------------------------------- */

static void read_directions(struct gb_metrics_snapshot *snapshot) {
    const struct gb_counters *c = &snapshot->daemon.core.counters;

    snapshot->directions[0] = (struct gb_direction_numbers){.name = "upload",
                                                            .count = c->uploads,
                                                            .bytes = c->upload_bytes,
                                                            .copy_ns = c->upload_copy_ns,
                                                            .queue_ns = c->upload_queue_ns,
                                                            .ns = c->upload_ns};
    snapshot->directions[1] = (struct gb_direction_numbers){.name = "download",
                                                            .count = c->downloads,
                                                            .bytes = c->download_bytes,
                                                            .copy_ns = c->download_copy_ns,
                                                            .queue_ns = c->download_queue_ns,
                                                            .ns = c->download_ns};
    snapshot->directions[2] = (struct gb_direction_numbers){.name = "copy",
                                                            .count = c->device_copies,
                                                            .bytes = c->device_copy_bytes,
                                                            .copy_ns = c->device_copy_ns,
                                                            .queue_ns = c->device_copy_queue_ns};
}

static void read_failed(struct gb_metrics_snapshot *snapshot) {
    int what;
    int why;

    for (what = 0; what < GB_FAILED_COUNTED; what++) {
        for (why = 0; why < GB_FAILURES; why++)
            snapshot->failed[what][why] =
                gb_counters_failed(&snapshot->daemon.core.counters, (enum gb_failed)what, (enum gb_failure)why);
    }
}

static void read_storage(struct gb_metrics_snapshot *snapshot, const struct gb_api *api) {
    struct gb_storage_numbers *n = &snapshot->daemon.storage;
    const struct gb_error *why;

    gb_storage_stat(api->core, n);
    gb_scrub_stat(api->core, &snapshot->daemon.scrub);
    snapshot->storage_states[gb_storage_state(n, &why)] = 1;
    snapshot->evictions_on_request = n->evictions - n->evictions_for_room;
}

static int read_devices(struct gb_metrics_snapshot *snapshot, const struct gb_api *api, struct gb_error *err) {
    int i;

    snapshot->devices = calloc((size_t)api->devices + 1, sizeof(*snapshot->devices));
    snapshot->memory = calloc((size_t)api->devices + 1, sizeof(*snapshot->memory));
    if (!snapshot->devices || !snapshot->memory)
        return gb_error_memory(err, "reply");
    for (i = 0; i < api->devices; i++) {
        struct gb_device_numbers now;

        if (gb_device_get(api->core, i, &snapshot->devices[i], err) < 0 ||
            gb_device_numbers(api->core, i, &now, err) < 0)
            return -1;
        snapshot->memory[i] = now.memory;
    }
    snapshot->device_count = api->devices;
    return 0;
}

/* NVML gives the process ids of the host: inside a container this process is among the others. If the memory of one
 * process is not known, the sum is not. */
static void read_processes(struct gb_metrics_snapshot_health *h) {
    unsigned i;

    h->own_bytes = h->others_bytes = h->health.has_processes ? 0 : GB_METRIC_UNKNOWN;
    if (h->health.processes_more > 0)
        h->others_bytes = GB_METRIC_UNKNOWN;
    for (i = 0; h->health.has_processes && i < h->health.process_count; i++) {
        const struct gb_health_process *p = &h->health.processes[i];
        uint64_t *to = p->pid == (uint32_t)getpid() ? &h->own_bytes : &h->others_bytes;

        if (p->used_bytes == UINT64_MAX)
            *to = GB_METRIC_UNKNOWN;
        else if (*to != GB_METRIC_UNKNOWN)
            *to += p->used_bytes;
    }
}

/* A simulated device has no source, and no series of unknown numbers. */
static int read_health(struct gb_metrics_snapshot *snapshot, const struct gb_api *api, struct gb_error *err) {
    size_t count = (size_t)api->devices;
    int64_t now_us = gb_wall_us();
    size_t i;
    size_t k;

    snapshot->health = calloc(count + 1, sizeof(*snapshot->health));
    snapshot->reasons = calloc(count * GB_CLOCK_REASONS + 1, sizeof(*snapshot->reasons));
    if (!snapshot->health || !snapshot->reasons)
        return gb_error_memory(err, "reply");
    for (i = 0; i < count; i++) {
        struct gb_metrics_snapshot_health *h = &snapshot->health[i];

        if (gb_device_health(api->core, (int)i, &h->health, err) < 0)
            return -1;
        read_processes(h);
        h->age_ns = GB_METRIC_UNKNOWN;
        if (h->health.source != GB_HEALTH_NONE && now_us >= h->health.at_us)
            h->age_ns = (uint64_t)(now_us - h->health.at_us) * 1000;
        for (k = 0; k < GB_CLOCK_REASONS; k++)
            snapshot->reasons[i * GB_CLOCK_REASONS + k] =
                h->health.has_reasons ? h->health.reasons >> k & 1 : GB_METRIC_UNKNOWN;
    }
    return 0;
}

/* --- pools -------------------------------------------------------------------------------------------------------- */

struct pool_walk {
    struct gb_metrics_snapshot *snapshot;
    struct gb_core *core;
    struct gb_name session; /* whose pools are being visited */
    struct gb_metrics_sessions *sessions;
};

static int add_pool(void *arg, const struct gb_pool_view *view, struct gb_error *err) {
    struct pool_walk *walk = arg;
    struct gb_metrics_snapshot *snapshot = walk->snapshot;
    size_t room = snapshot->pool_room ? snapshot->pool_room * 2 : 16;
    struct gb_metrics_snapshot_pool *bigger;

    if (snapshot->pool_count == snapshot->pool_room) {
        bigger = realloc(snapshot->pools, room * sizeof(*bigger));
        if (!bigger)
            return gb_error_memory(err, "reply");
        snapshot->pools = bigger;
        snapshot->pool_room = room;
    }
    snapshot->pools[snapshot->pool_count++] =
        (struct gb_metrics_snapshot_pool){.session = walk->session, .view = *view};
    return 0;
}

static int add_session(void *arg, const struct gb_session_view *view, struct gb_error *err) {
    struct pool_walk *walk = arg;
    struct gb_error gone = GB_ERROR_INIT;
    struct gb_page page = {.after = -1, .limit = UINT_MAX}; /* not 0: without the pools of the devices */

    walk->session = view->rec.name;
    if (metrics_sessions_add(walk->sessions, view) < 0)
        return gb_error_memory(err, "reply");
    if (gb_pool_list(walk->core, &view->rec.name, &page, add_pool, walk, &gone) == 0 ||
        gone.code == GB_ERR_SESSION_NOT_FOUND) /* deleted meanwhile */
        return 0;
    *err = gone;
    return -1;
}

static int read_pools(struct gb_metrics_snapshot *snapshot, const struct gb_api *api,
                      struct gb_metrics_sessions *sessions, struct gb_error *err) {
    struct pool_walk walk = {.snapshot = snapshot, .core = api->core, .sessions = sessions};
    struct gb_page page = {.limit = UINT_MAX};
    struct gb_pool_view view;
    unsigned i;

    for (i = 0; i < gb_pool_count(api->core); i++) {
        if (gb_pool_at(api->core, i, &view, err) < 0 || add_pool(&walk, &view, err) < 0)
            return -1;
    }
    return gb_session_list(api->core, &page, add_session, &walk, err);
}

static int read_sessions(struct gb_metrics_snapshot *snapshot, const struct gb_api *api, struct gb_error *err) {
    struct gb_metrics_sessions list = {.most = api->limits.metrics_sessions};
    int r = read_pools(snapshot, api, &list, err);

    if (r == 0)
        r = metrics_sessions_pick(&list, api->core, snapshot, err);
    free(list.items);
    return r;
}

static void read_fleet(struct gb_metrics_snapshot *snapshot, const struct gb_api *api) {
    struct gb_fleet_numbers *fleet = &snapshot->fleet;
    int64_t offset_ms;

    fleet->present = api->fleet != NULL;
    if (!fleet->present)
        return;
    gb_fleet_stat(api->fleet, &fleet->stat);
    gb_replicas_stat(api->replicas, &fleet->copies);
    offset_ms = fleet->stat.clock_offset_ms;
    fleet->redirects = atomic_load(&api->redirects);
    fleet->offset_ns = (uint64_t)(offset_ms < 0 ? -offset_ms : offset_ms) * GB_NS_PER_MS;
    snapshot->fleet_states[fleet->stat.state] = 1;
}

int gb_metrics_snapshot_read(struct gb_metrics_snapshot *snapshot, struct gb_api *api, struct gb_http_server *server,
                             struct gb_error *err) {
    *snapshot = (struct gb_metrics_snapshot){.pool_count = 0};
    gb_core_stats(api->core, &snapshot->daemon.core);
    read_storage(snapshot, api);
    read_fleet(snapshot, api);
    snapshot->hub.present = api->hub != NULL;
    if (api->hub)
        gb_hub_stat(api->hub, &snapshot->hub.stat);
    snapshot->pulls.present = api->pulls != NULL;
    if (api->pulls)
        gb_pulls_stat(api->pulls, &snapshot->pulls.stat);
    gb_key_stats(api->core, &snapshot->daemon.keys);
    gb_http_server_stat(server, &snapshot->daemon.http);
    gb_api_process(api, &snapshot->daemon.process);
    snapshot->daemon.started_ns = api->process_started_ns;
    snapshot->version = api->version;
    snapshot->backend = api->backend_name;
    snapshot->routes = api->routes;
    snapshot->route_count = api->route_count;
    read_directions(snapshot);
    read_failed(snapshot);
    gb_operations_count(api->operations, snapshot->operations);
    if (read_devices(snapshot, api, err) < 0 || read_health(snapshot, api, err) < 0 ||
        read_sessions(snapshot, api, err) < 0) {
        gb_metrics_snapshot_done(snapshot);
        return -1;
    }
    return 0;
}

void gb_metrics_snapshot_done(struct gb_metrics_snapshot *snapshot) {
    free(snapshot->devices);
    free(snapshot->health);
    free(snapshot->reasons);
    free(snapshot->pools);
    free(snapshot->sessions);
    free(snapshot->memory);
    *snapshot = (struct gb_metrics_snapshot){.pool_count = 0};
}
