#include "api/observe/metrics_series.h"

#include <stdio.h>
#include <stdlib.h>

#include "api/middleware/operations.h"
#include "api/observe/metrics_snapshot.h"

void gb_series_label(struct gb_series *s, const char *name, const char *value) {
    gb_exposition_label(s->labels, sizeof(s->labels), name, value);
}

/* Adds a series. Never returns NULL: without memory the series is one that is thrown away. */
static struct gb_series *add(struct gb_series_list *list, struct gb_series *spare, const void *v) {
    size_t room = list->room ? list->room * 2 : 16;
    struct gb_series *s = spare;

    if (list->count == list->room && !list->failed) {
        struct gb_series *bigger = realloc(list->items, room * sizeof(*bigger));

        list->failed = !bigger;
        if (bigger) {
            list->items = bigger;
            list->room = room;
        }
    }
    if (!list->failed)
        s = &list->items[list->count++];
    s->labels[0] = '\0';
    s->v = v;
    return s;
}

static void label_device(struct gb_series *s, int device) {
    char text[16];

    snprintf(text, sizeof(text), "%d", device);
    gb_series_label(s, "device", text);
}

static void label_uuid(struct gb_series *s, const struct gb_metrics_snapshot *snapshot, size_t device) {
    label_device(s, (int)device);
    gb_series_label(s, "uuid", snapshot->devices[device].uuid);
}

/* --- one function for each scope ---------------------------------------------------------------------------------- */

typedef void fill_fn(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot);

static void fill_DAEMON(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot) {
    struct gb_series spare;

    add(list, &spare, &snapshot->daemon);
}

static void fill_BUILD(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot) {
    struct gb_series spare;
    struct gb_series *s = add(list, &spare, &snapshot->daemon);

    gb_series_label(s, "version", snapshot->version);
    gb_series_label(s, "backend", snapshot->backend);
}

static void fill_PROCESS(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot) {
    fill_DAEMON(list, snapshot);
}

/* A daemon without a folder for the bytes of durable buffers has no series of them. */
static void fill_STORAGE(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot) {
    struct gb_series spare;

    if (snapshot->daemon.storage.present)
        add(list, &spare, &snapshot->daemon.storage);
}

static void fill_SCRUB(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot) {
    struct gb_series spare;

    if (snapshot->daemon.storage.present)
        add(list, &spare, &snapshot->daemon.scrub);
}

static void fill_FLEET(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot) {
    struct gb_series spare;

    if (snapshot->fleet.present)
        add(list, &spare, &snapshot->fleet);
}

static void fill_HUB(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot) {
    struct gb_series spare;

    if (snapshot->hub.present)
        add(list, &spare, &snapshot->hub);
}

static void fill_PULLS(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot) {
    struct gb_series spare;

    if (snapshot->pulls.present)
        add(list, &spare, &snapshot->pulls);
}

static void fill_FLEET_STATE(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot) {
    struct gb_series spare;
    int i;

    for (i = 0; snapshot->fleet.present && i < GB_FLEET_STATES; i++)
        gb_series_label(add(list, &spare, &snapshot->fleet_states[i]), "state",
                        gb_fleet_state_name((enum gb_fleet_state)i));
}

static void fill_STORAGE_STATE(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot) {
    struct gb_series spare;
    int i;

    for (i = 0; snapshot->daemon.storage.present && i < GB_STORAGE_STATES; i++)
        gb_series_label(add(list, &spare, &snapshot->storage_states[i]), "state",
                        gb_disk_state_name((enum gb_disk_state)i));
}

static void fill_EVICTION(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot) {
    struct gb_series spare;

    if (!snapshot->daemon.storage.present)
        return;
    gb_series_label(add(list, &spare, &snapshot->evictions_on_request), "why", "request");
    gb_series_label(add(list, &spare, &snapshot->daemon.storage.evictions_for_room), "why", "room");
}

static void fill_LIMIT(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot) {
    struct gb_series spare;
    int i;

    for (i = 0; i < GB_HTTP_LIMITS; i++)
        gb_series_label(add(list, &spare, &snapshot->daemon.http.limited[i]), "limit",
                        gb_http_limit_name((enum gb_http_limit)i));
}

static void fill_FAILURE(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot) {
    struct gb_series spare;
    int why;

    for (why = 0; why < GB_FAILURES; why++) {
        if (gb_failure_may((enum gb_failure)why, GB_FAILED_ALLOCATION))
            gb_series_label(add(list, &spare, &snapshot->failed[GB_FAILED_ALLOCATION][why]), "reason",
                            gb_failure_name((enum gb_failure)why));
    }
}

static void fill_DEVICE(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot) {
    struct gb_series spare;
    int i;

    for (i = 0; i < snapshot->device_count; i++)
        label_device(add(list, &spare, &snapshot->devices[i]), i);
}

static void fill_DEVICE_INFO(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot) {
    struct gb_series spare;
    int i;

    for (i = 0; i < snapshot->device_count; i++) {
        const struct gb_device_rec *rec = &snapshot->devices[i];
        struct gb_series *s = add(list, &spare, rec);

        label_device(s, i);
        gb_series_label(s, "name", rec->name);
        gb_series_label(s, "uuid", rec->uuid);
        gb_series_label(s, "driver", rec->driver);
        gb_series_label(s, "cuda_driver", rec->cuda_driver);
        gb_series_label(s, "cuda_runtime", rec->cuda_runtime);
    }
}

static void fill_MEMORY(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot) {
    struct gb_series spare;
    int i;

    for (i = 0; i < snapshot->device_count; i++)
        label_device(add(list, &spare, &snapshot->memory[i]), i);
}

/* Adds a series for each reason that a pool or device, or a kind of memory, may have. */
static void add_failures(struct gb_series_list *list, const struct gb_series *of, const struct gb_memory_numbers *m,
                         enum gb_failed what) {
    struct gb_series spare;
    int why;

    for (why = 0; why < GB_FAILURES; why++) {
        struct gb_series *s;

        if (!gb_failure_may((enum gb_failure)why, what))
            continue;
        s = add(list, &spare, NULL);
        *s = *of;
        s->v = &m->failure[why];
        gb_series_label(s, "reason", gb_failure_name((enum gb_failure)why));
    }
}

static void fill_MEMORY_FAILURE(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot) {
    int i;

    for (i = 0; i < snapshot->device_count; i++) {
        struct gb_series of = {.labels = ""};

        label_device(&of, i);
        add_failures(list, &of, &snapshot->memory[i], GB_FAILED_POOL);
    }
}

static void fill_HEALTH(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot) {
    struct gb_series spare;
    size_t i;

    for (i = 0; i < (size_t)snapshot->device_count; i++)
        label_uuid(add(list, &spare, &snapshot->health[i]), snapshot, i);
}

static void fill_HEALTH_PROCESS(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot) {
    struct gb_series spare;
    struct gb_series *s;
    size_t i;

    for (i = 0; i < (size_t)snapshot->device_count; i++) {
        s = add(list, &spare, &snapshot->health[i].own_bytes);
        label_uuid(s, snapshot, i);
        gb_series_label(s, "process", "own");
        s = add(list, &spare, &snapshot->health[i].others_bytes);
        label_uuid(s, snapshot, i);
        gb_series_label(s, "process", "others");
    }
}

static void fill_REASON(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot) {
    size_t count = (size_t)snapshot->device_count * GB_CLOCK_REASONS;
    struct gb_series spare;
    size_t i;

    for (i = 0; i < count; i++) {
        struct gb_series *s = add(list, &spare, &snapshot->reasons[i]);

        label_uuid(s, snapshot, i / GB_CLOCK_REASONS);
        gb_series_label(s, "reason", gb_clock_reason_name((enum gb_clock_reason)(i % GB_CLOCK_REASONS)));
    }
}

static void label_pool(struct gb_series *s, const struct gb_metrics_snapshot_pool *pool) {
    if (pool->session.s[0] != '\0')
        gb_series_label(s, "session", pool->session.s);
    gb_series_label(s, "pool", pool->view.rec.name.s);
    label_device(s, pool->view.rec.device);
}

static void fill_POOL(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot) {
    struct gb_series spare;
    size_t i;

    for (i = 0; i < snapshot->pool_count; i++)
        label_pool(add(list, &spare, &snapshot->pools[i].view), &snapshot->pools[i]);
}

static void fill_POOL_FAILURE(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot) {
    size_t i;

    for (i = 0; i < snapshot->pool_count; i++) {
        struct gb_series of = {.labels = ""};

        label_pool(&of, &snapshot->pools[i]);
        add_failures(list, &of, &snapshot->pools[i].view.memory, GB_FAILED_POOL);
    }
}

static void fill_SESSION(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot) {
    struct gb_series spare;
    size_t i;

    for (i = 0; i < snapshot->session_count; i++)
        gb_series_label(add(list, &spare, &snapshot->sessions[i]), "session", snapshot->sessions[i].name.s);
}

static void add_directions(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot, size_t count) {
    struct gb_series spare;
    size_t i;

    for (i = 0; i < count; i++)
        gb_series_label(add(list, &spare, &snapshot->directions[i]), "direction", snapshot->directions[i].name);
}

static void fill_DIRECTION(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot) {
    add_directions(list, snapshot, GB_METRICS_SNAPSHOT_DIRECTIONS);
}

static void fill_SOCKET(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot) {
    add_directions(list, snapshot, GB_METRICS_SNAPSHOT_SOCKETS);
}

static void fill_SOCKET_FAILURE(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot) {
    static const enum gb_failed failed[GB_METRICS_SNAPSHOT_SOCKETS] = {GB_FAILED_UPLOAD, GB_FAILED_DOWNLOAD};
    struct gb_series spare;
    size_t i;

    for (i = 0; i < (size_t)GB_METRICS_SNAPSHOT_SOCKETS * GB_FAILURES; i++) {
        size_t way = i / GB_FAILURES;
        size_t why = i % GB_FAILURES;
        struct gb_series *s;

        if (!gb_failure_may((enum gb_failure)why, failed[way]))
            continue;
        s = add(list, &spare, &snapshot->failed[failed[way]][why]);
        gb_series_label(s, "direction", snapshot->directions[way].name);
        gb_series_label(s, "reason", gb_failure_name((enum gb_failure)why));
    }
}

static void fill_KIND(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot) {
    struct gb_series spare;
    size_t i;

    for (i = 0; i < (size_t)GB_DIRECTION_COUNT * GB_KIND_COUNT; i++) {
        size_t direction = i / GB_KIND_COUNT;
        struct gb_series *s = add(list, &spare, &snapshot->daemon.core.kinds[direction][i % GB_KIND_COUNT]);

        gb_series_label(s, "direction", snapshot->directions[direction].name);
        gb_series_label(s, "kind", gb_kind_name((enum gb_kind)(i % GB_KIND_COUNT)));
    }
}

/* A kind of memory has series when something was allocated of it, and device always, so that a dashboard has it. */
static void fill_KIND_MEMORY(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot) {
    struct gb_series spare;
    int kind;

    for (kind = 0; kind < GB_KIND_COUNT; kind++) {
        const struct gb_memory_numbers *m = &snapshot->daemon.core.kind_memory[kind];

        if (kind == GB_KIND_DEVICE || m->allocations > 0 || m->retries > 0 || m->trims > 0)
            gb_series_label(add(list, &spare, m), "kind", gb_kind_name((enum gb_kind)kind));
    }
}

static void fill_KIND_FAILURE(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot) {
    int kind;

    for (kind = 0; kind < GB_KIND_COUNT; kind++) {
        struct gb_series of = {.labels = ""};

        gb_series_label(&of, "kind", gb_kind_name((enum gb_kind)kind));
        add_failures(list, &of, &snapshot->daemon.core.kind_memory[kind], GB_FAILED_KIND);
    }
}

static void fill_OPERATION(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot) {
    struct gb_series spare;
    int i;

    for (i = 0; i < GB_OPERATION_STATES; i++)
        gb_series_label(add(list, &spare, &snapshot->operations[i]), "state",
                        gb_operation_state_name((enum gb_operation_state)i));
}

void gb_series_fill(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot,
                    enum gb_scope_of_metric scope) {
    static fill_fn *const fills[GB_METRIC_SCOPES] = {
#define GB_SCOPE(name, type) fill_##name,
        GB_SCOPES(GB_SCOPE)
#undef GB_SCOPE
    };

    *list = (struct gb_series_list){.count = 0};
    fills[scope](list, snapshot);
}
