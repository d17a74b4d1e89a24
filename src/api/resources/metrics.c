/* GET /metrics: the series, their labels, and the text of a snapshot, which is kept for each format. Collectors that
 * ask at short intervals get the same text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/context.h"
#include "api/pipeline/operations.h"
#include "api/reply.h"
#include "api/request/query.h"
#include "api/resources/metrics_snapshot.h"
#include "base/clock.h"
#include "base/thread.h"
#include "http/server/state.h"

/* The objects that have numbers, and the labels of each. */

/* GB_SCOPE(name, type of v in the lines of metrics.def). Another scope takes a line here and a function
 * fill_SCOPE. */
#define GB_SCOPES(GB_SCOPE)                                                                                            \
    GB_SCOPE(DAEMON, struct gb_daemon_numbers)                                                                         \
    GB_SCOPE(BUILD, struct gb_daemon_numbers)                                                                          \
    GB_SCOPE(PROCESS, struct gb_daemon_numbers)                                                                        \
    GB_SCOPE(STORAGE, struct gb_storage_numbers)                                                                       \
    GB_SCOPE(SCRUB, struct gb_scrub_numbers)                                                                           \
    GB_SCOPE(STORAGE_STATE, uint64_t)                                                                                  \
    GB_SCOPE(FLEET, struct gb_fleet_numbers)                                                                           \
    GB_SCOPE(FLEET_STATE, uint64_t)                                                                                    \
    GB_SCOPE(HUB, struct gb_hub_numbers)                                                                               \
    GB_SCOPE(PULLS, struct gb_pulls_numbers)                                                                           \
    GB_SCOPE(EVICTION, uint64_t)                                                                                       \
    GB_SCOPE(LIMIT, uint64_t)                                                                                          \
    GB_SCOPE(FAILURE, uint64_t)                                                                                        \
    GB_SCOPE(DEVICE, struct gb_device_rec)                                                                             \
    GB_SCOPE(DEVICE_INFO, struct gb_device_rec)                                                                        \
    GB_SCOPE(MEMORY, struct gb_memory_numbers)                                                                         \
    GB_SCOPE(MEMORY_FAILURE, uint64_t)                                                                                 \
    GB_SCOPE(HEALTH, struct gb_metrics_snapshot_health)                                                                \
    GB_SCOPE(HEALTH_PROCESS, uint64_t)                                                                                 \
    GB_SCOPE(REASON, uint64_t)                                                                                         \
    GB_SCOPE(POOL, struct gb_pool_view)                                                                                \
    GB_SCOPE(POOL_FAILURE, uint64_t)                                                                                   \
    GB_SCOPE(SESSION, struct gb_metrics_snapshot_session)                                                              \
    GB_SCOPE(DIRECTION, struct gb_direction_numbers)                                                                   \
    GB_SCOPE(SOCKET, struct gb_direction_numbers)                                                                      \
    GB_SCOPE(SOCKET_FAILURE, uint64_t)                                                                                 \
    GB_SCOPE(KIND, struct gb_kind_counters)                                                                            \
    GB_SCOPE(KIND_MEMORY, struct gb_memory_numbers)                                                                    \
    GB_SCOPE(KIND_FAILURE, uint64_t)                                                                                   \
    GB_SCOPE(OPERATION, uint64_t)

enum gb_scope_of_metric {
#define GB_SCOPE(name, type) GB_METRIC_OF_##name,
    GB_SCOPES(GB_SCOPE)
#undef GB_SCOPE
        GB_METRIC_SCOPES
};

/* The size of two names, or of what a device is, and the text around them. */
#define GB_SERIES_LABELS_SIZE (3 * (GB_NAME_MAX + 1) + 160)

/* One object of a scope. */
struct gb_series {
    char labels[GB_SERIES_LABELS_SIZE];
    const void *v;
};

struct gb_series_list {
    struct gb_series *items;
    size_t count;
    size_t room;
    bool failed; /* memory was exhausted */
};

/* --- series ------------------------------------------------------------------------------------------------------- */

static void series_label(struct gb_series *s, const char *name, const char *value) {
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
    series_label(s, "device", text);
}

static void label_uuid(struct gb_series *s, const struct gb_metrics_snapshot *snapshot, size_t device) {
    label_device(s, (int)device);
    series_label(s, "uuid", snapshot->devices[device].uuid);
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

    series_label(s, "version", snapshot->version);
    series_label(s, "backend", snapshot->backend);
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
        series_label(add(list, &spare, &snapshot->fleet_states[i]), "state",
                     gb_fleet_state_name((enum gb_fleet_state)i));
}

static void fill_STORAGE_STATE(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot) {
    struct gb_series spare;
    int i;

    for (i = 0; snapshot->daemon.storage.present && i < GB_STORAGE_STATES; i++)
        series_label(add(list, &spare, &snapshot->storage_states[i]), "state",
                     gb_disk_state_name((enum gb_disk_state)i));
}

static void fill_EVICTION(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot) {
    struct gb_series spare;

    if (!snapshot->daemon.storage.present)
        return;
    series_label(add(list, &spare, &snapshot->evictions_on_request), "why", "request");
    series_label(add(list, &spare, &snapshot->daemon.storage.evictions_for_room), "why", "room");
}

static void fill_LIMIT(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot) {
    struct gb_series spare;
    int i;

    for (i = 0; i < GB_HTTP_LIMITS; i++)
        series_label(add(list, &spare, &snapshot->daemon.http.limited[i]), "limit",
                     gb_http_limit_name((enum gb_http_limit)i));
}

static void fill_FAILURE(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot) {
    struct gb_series spare;
    int why;

    for (why = 0; why < GB_FAILURES; why++) {
        if (gb_failure_may((enum gb_failure)why, GB_FAILED_ALLOCATION))
            series_label(add(list, &spare, &snapshot->failed[GB_FAILED_ALLOCATION][why]), "reason",
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
        series_label(s, "name", rec->name);
        series_label(s, "uuid", rec->uuid);
        series_label(s, "driver", rec->driver);
        series_label(s, "cuda_driver", rec->cuda_driver);
        series_label(s, "cuda_runtime", rec->cuda_runtime);
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
        series_label(s, "reason", gb_failure_name((enum gb_failure)why));
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
        series_label(s, "process", "own");
        s = add(list, &spare, &snapshot->health[i].others_bytes);
        label_uuid(s, snapshot, i);
        series_label(s, "process", "others");
    }
}

static void fill_REASON(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot) {
    size_t count = (size_t)snapshot->device_count * GB_CLOCK_REASONS;
    struct gb_series spare;
    size_t i;

    for (i = 0; i < count; i++) {
        struct gb_series *s = add(list, &spare, &snapshot->reasons[i]);

        label_uuid(s, snapshot, i / GB_CLOCK_REASONS);
        series_label(s, "reason", gb_clock_reason_name((enum gb_clock_reason)(i % GB_CLOCK_REASONS)));
    }
}

static void label_pool(struct gb_series *s, const struct gb_metrics_snapshot_pool *pool) {
    if (pool->session.s[0] != '\0')
        series_label(s, "session", pool->session.s);
    series_label(s, "pool", pool->view.rec.name.s);
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
        series_label(add(list, &spare, &snapshot->sessions[i]), "session", snapshot->sessions[i].name.s);
}

static void add_directions(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot, size_t count) {
    struct gb_series spare;
    size_t i;

    for (i = 0; i < count; i++)
        series_label(add(list, &spare, &snapshot->directions[i]), "direction", snapshot->directions[i].name);
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
        series_label(s, "direction", snapshot->directions[way].name);
        series_label(s, "reason", gb_failure_name((enum gb_failure)why));
    }
}

static void fill_KIND(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot) {
    struct gb_series spare;
    size_t i;

    for (i = 0; i < (size_t)GB_DIRECTION_COUNT * GB_KIND_COUNT; i++) {
        size_t direction = i / GB_KIND_COUNT;
        struct gb_series *s = add(list, &spare, &snapshot->daemon.core.kinds[direction][i % GB_KIND_COUNT]);

        series_label(s, "direction", snapshot->directions[direction].name);
        series_label(s, "kind", gb_kind_name((enum gb_kind)(i % GB_KIND_COUNT)));
    }
}

/* A kind of memory has series when something was allocated of it, and device always, so that a dashboard has it. */
static void fill_KIND_MEMORY(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot) {
    struct gb_series spare;
    int kind;

    for (kind = 0; kind < GB_KIND_COUNT; kind++) {
        const struct gb_memory_numbers *m = &snapshot->daemon.core.kind_memory[kind];

        if (kind == GB_KIND_DEVICE || m->allocations > 0 || m->retries > 0 || m->trims > 0)
            series_label(add(list, &spare, m), "kind", gb_kind_name((enum gb_kind)kind));
    }
}

static void fill_KIND_FAILURE(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot) {
    int kind;

    for (kind = 0; kind < GB_KIND_COUNT; kind++) {
        struct gb_series of = {.labels = ""};

        series_label(&of, "kind", gb_kind_name((enum gb_kind)kind));
        add_failures(list, &of, &snapshot->daemon.core.kind_memory[kind], GB_FAILED_KIND);
    }
}

static void fill_OPERATION(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot) {
    struct gb_series spare;
    int i;

    for (i = 0; i < GB_OPERATION_STATES; i++)
        series_label(add(list, &spare, &snapshot->operations[i]), "state",
                     gb_operation_state_name((enum gb_operation_state)i));
}

/* Makes the series of all scopes. Labels are the same in every family of a scope, so they are written once. v points
 * into the snapshot. The caller frees items. */
static void series_fill(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot,
                        enum gb_scope_of_metric scope) {
    static fill_fn *const fills[GB_METRIC_SCOPES] = {
#define GB_SCOPE(name, type) fill_##name,
        GB_SCOPES(GB_SCOPE)
#undef GB_SCOPE
    };

    *list = (struct gb_series_list){.count = 0};
    fills[scope](list, snapshot);
}

/* --- the text ----------------------------------------------------------------------------------------------------- */

/* Writes the numbers of a snapshot as text. */

#define GB_SCOPE(name, type) typedef type V_##name;
GB_SCOPES(GB_SCOPE)
#undef GB_SCOPE

#define GB_TIMES(name, help, value)
#define GB_METRIC(scope, type, name, unit, help, value)                                                                \
    static uint64_t read_##scope##_##name(const void *arg) {                                                           \
        const V_##scope *v = arg;                                                                                      \
        return (value);                                                                                                \
    }
#include "api/metrics.def"
#undef GB_METRIC
#undef GB_TIMES

#define GB_METRIC(scope, type, name, unit, help, value)
#define GB_TIMES(name, help, value)                                                                                    \
    static const struct gb_histogram *times_##name(const struct gb_daemon_numbers *v) {                                \
        return (value);                                                                                                \
    }
#include "api/metrics.def"
#undef GB_METRIC
#undef GB_TIMES

/* The types of metrics.def beside those of families. */
#define GB_METRIC_FROM_ZERO GB_METRIC_COUNTER
#define GB_METRIC_PEAK GB_METRIC_GAUGE
#define LEFT_OUT_GAUGE GB_METRIC_UNKNOWN
#define LEFT_OUT_COUNTER 0
#define LEFT_OUT_PEAK 0
#define LEFT_OUT_FROM_ZERO GB_METRIC_UNKNOWN

struct metric {
    enum gb_scope_of_metric scope;
    struct gb_family family;
    uint64_t (*read)(const void *v);
    uint64_t left_out; /* beside GB_METRIC_UNKNOWN, the value of which there is no sample */
};

#define PREFIX(scope) ((scope) == GB_METRIC_OF_PROCESS ? "process_" : "gpubufd_")

struct writer {
    FILE *out;
    enum gb_exposition form;
    const struct gb_metrics_snapshot *snapshot;
    const struct gb_http_server *server;
    struct gb_series_list scopes[GB_METRIC_SCOPES];
};

/* --- families ----------------------------------------------------------------------------------------------------- */

/* Whether the value has a sample. */
static bool shown(const struct metric *m, uint64_t value) {
    return value != GB_METRIC_UNKNOWN && value != m->left_out;
}

/* A family without samples is left out. */
static bool any_shown(const struct metric *m, const struct gb_series_list *list) {
    size_t i;

    for (i = 0; i < list->count; i++) {
        if (shown(m, m->read(list->items[i].v)))
            return true;
    }
    return false;
}

static void write_metrics(const struct writer *w) {
    static const struct metric metrics[] = {
#define GB_TIMES(name, help, value)
#define GB_METRIC(scope, type, name, unit, help, value)                                                                \
    {GB_METRIC_OF_##scope,                                                                                             \
     {GB_METRIC_##type, PREFIX(GB_METRIC_OF_##scope), #name, GB_UNIT_##unit, help},                                    \
     read_##scope##_##name,                                                                                            \
     LEFT_OUT_##type},
#include "api/metrics.def"
#undef GB_METRIC
#undef GB_TIMES
    };
    size_t i;
    size_t k;

    for (i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++) {
        const struct metric *m = &metrics[i];
        const struct gb_series_list *list = &w->scopes[m->scope];

        if (!any_shown(m, list))
            continue;
        gb_exposition_family(w->out, w->form, &m->family);
        for (k = 0; k < list->count; k++) {
            uint64_t value = m->read(list->items[k].v);

            if (shown(m, value))
                gb_exposition_sample(w->out, &m->family, "", list->items[k].labels, m->family.unit, value);
        }
    }
}

/* --- routes ------------------------------------------------------------------------------------------------------- */

/* Labels a route, or the requests that were refused before they had one. A path is shorter than a name may be. */
static void label_route(const struct writer *w, struct gb_series *s, size_t route) {
    bool has = route < w->snapshot->route_count;

    s->labels[0] = '\0';
    series_label(s, "method", has ? gb_http_method_name(w->snapshot->routes[route].method) : "");
    series_label(s, "route", has ? w->snapshot->routes[route].path : "");
}

/* Whether the route has had requests. */
static bool asked(const struct gb_latency *l) {
    uint64_t sum = 0;
    unsigned i;

    for (i = 0; i < GB_OUTCOMES; i++)
        sum += l->outcome[i];
    return sum > 0;
}

static void write_duration(const struct writer *w, const struct gb_family *family, const struct gb_series *of,
                           const struct gb_histogram *h) {
    struct gb_series s;
    uint64_t sum = 0;
    char bound[32];
    unsigned i;

    for (i = 0; i <= GB_HISTOGRAM_BOUNDS; i++) {
        uint64_t ns = gb_histogram_bound_ns(i);

        sum += h->bucket[i];
        snprintf(bound, sizeof(bound), "%g", (double)ns / 1e9);
        if (i >= 8) /* whole seconds */
            snprintf(bound, sizeof(bound), i == GB_HISTOGRAM_BOUNDS ? "+Inf" : "%.1f", (double)ns / 1e9);
        s = *of;
        series_label(&s, "le", bound);
        gb_exposition_sample(w->out, family, "_bucket", s.labels, GB_UNIT_NONE, sum);
    }
    gb_exposition_sample(w->out, family, "_sum", of->labels, GB_UNIT_SECONDS, h->ns);
    gb_exposition_sample(w->out, family, "_count", of->labels, GB_UNIT_NONE, sum);
}

static void write_times(const struct writer *w) {
    static const struct {
        struct gb_family family;
        const struct gb_histogram *(*read)(const struct gb_daemon_numbers *v);
    } times[] = {
#define GB_METRIC(scope, type, name, unit, help, value)
#define GB_TIMES(name, help, value) {{GB_METRIC_HISTOGRAM, "gpubufd_", #name, GB_UNIT_SECONDS, help}, times_##name},
#include "api/metrics.def"
#undef GB_METRIC
#undef GB_TIMES
    };
    const struct gb_series none = {.labels = ""};
    size_t i;

    for (i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        const struct gb_histogram *h = times[i].read(&w->snapshot->daemon);

        if (!h || gb_histogram_count(h) == 0)
            continue;
        gb_exposition_family(w->out, w->form, &times[i].family);
        write_duration(w, &times[i].family, &none, h);
    }
}

static void write_routes(const struct writer *w) {
    static const struct gb_family duration = {GB_METRIC_HISTOGRAM, "gpubufd_", "http_request_duration_seconds",
                                              GB_UNIT_SECONDS,
                                              "Time from the end of a request's header to the end of its answer."};
    static const struct gb_family responses = {GB_METRIC_COUNTER, "gpubufd_", "http_responses", GB_UNIT_NONE,
                                               "Requests that ended, by class of status; broken: the connection did."};
    struct gb_latency latency;
    struct gb_series route;
    struct gb_series s;
    size_t i;
    unsigned k;

    gb_exposition_family(w->out, w->form, &duration);
    for (i = 0; i <= w->snapshot->route_count; i++) {
        gb_http_latency(w->server, i, &latency);
        label_route(w, &route, i);
        if (asked(&latency))
            write_duration(w, &duration, &route, &latency.time);
    }
    gb_exposition_family(w->out, w->form, &responses);
    for (i = 0; i <= w->snapshot->route_count; i++) {
        gb_http_latency(w->server, i, &latency);
        label_route(w, &route, i);
        for (k = 0; asked(&latency) && k < GB_OUTCOMES; k++) {
            s = route;
            series_label(&s, "status", gb_outcome_name((enum gb_outcome)k));
            gb_exposition_sample(w->out, &responses, "", s.labels, GB_UNIT_NONE, latency.outcome[k]);
        }
    }
}

/* Writes the numbers, and those that the server has of its routes. *ret is malloc'd. Returns 0, or -1 when memory is
 * exhausted. */
static int metrics_write(enum gb_exposition form, const struct gb_metrics_snapshot *snapshot,
                         const struct gb_http_server *server, char **ret, size_t *ret_n) {
    struct writer w = {.form = form, .snapshot = snapshot, .server = server};
    char *text = NULL;
    size_t n = 0;
    bool failed;
    int i;

    w.out = open_memstream(&text, &n);
    failed = !w.out;
    for (i = 0; i < GB_METRIC_SCOPES && !failed; i++) {
        series_fill(&w.scopes[i], snapshot, (enum gb_scope_of_metric)i);
        failed = w.scopes[i].failed;
    }
    if (!failed) {
        write_metrics(&w);
        write_times(&w);
        write_routes(&w);
        gb_exposition_end(w.out, form);
        failed = ferror(w.out) != 0;
    }
    if (w.out && fclose(w.out) != 0)
        failed = true;
    for (i = 0; i < GB_METRIC_SCOPES; i++)
        free(w.scopes[i].items);
    if (failed) {
        free(text);
        return -1;
    }
    *ret = text;
    *ret_n = n;
    return 0;
}

/* --- GET /metrics ------------------------------------------------------------------------------------------------- */

/* GET /metrics */

struct gb_metrics_text {
    char *s; /* NULL: not written yet */
    size_t n;
    uint64_t built_ns;
};

struct gb_metrics {
    pthread_mutex_t lock; /* held while a text is copied, never while it is written */
    struct gb_metrics_text text[GB_EXPOSITIONS];
};

struct gb_metrics *gb_metrics_new(void) {
    struct gb_metrics *metrics = calloc(1, sizeof(*metrics));

    if (metrics)
        gb_mutex_init(&metrics->lock);
    return metrics;
}

void gb_metrics_free(struct gb_metrics *metrics) {
    int i;

    if (!metrics)
        return;
    for (i = 0; i < GB_EXPOSITIONS; i++)
        free(metrics->text[i].s);
    pthread_mutex_destroy(&metrics->lock);
    free(metrics);
}

/* Returns 1 with a copy of a text that is young enough, 0 if no text is, or -1 if memory is exhausted. */
static int look(struct gb_metrics *metrics, enum gb_exposition form, uint64_t now_ns, char **ret, size_t *ret_n) {
    struct gb_metrics_text *text = &metrics->text[form];
    int r = 0;

    pthread_mutex_lock(&metrics->lock);
    if (text->s && now_ns < text->built_ns + GB_RESPONSE_CACHE_AGE_NS) {
        *ret = malloc(text->n);
        *ret_n = text->n;
        r = *ret ? 1 : -1;
        if (*ret)
            memcpy(*ret, text->s, text->n);
    }
    pthread_mutex_unlock(&metrics->lock);
    return r;
}

/* Keeps a copy for the next readers. Without memory for it they build their own. */
static void keep(struct gb_metrics *metrics, enum gb_exposition form, uint64_t now_ns, const char *s, size_t n) {
    struct gb_metrics_text *text = &metrics->text[form];
    char *copy = malloc(n);
    char *old = copy;

    if (!copy)
        return;
    memcpy(copy, s, n);
    pthread_mutex_lock(&metrics->lock);
    if (!text->s || now_ns > text->built_ns) {
        old = text->s;
        *text = (struct gb_metrics_text){.s = copy, .n = n, .built_ns = now_ns};
    }
    pthread_mutex_unlock(&metrics->lock);
    free(old);
}

static int build(struct gb_http_request *request, enum gb_exposition form, char **ret, size_t *ret_n,
                 struct gb_error *err) {
    struct gb_http_server *server = gb_http_server_of(request);
    struct gb_metrics_snapshot snapshot;
    int r;

    if (gb_metrics_snapshot_read(&snapshot, gb_api_of(request), server, err) < 0)
        return -1;
    r = metrics_write(form, &snapshot, server, ret, ret_n);
    gb_metrics_snapshot_done(&snapshot);
    return r < 0 ? gb_error_memory(err, "reply") : 0;
}

enum gb_step gb_api_metrics(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    bool open = gb_media_prefers(gb_http_header(request, "Accept"), "application/openmetrics-text", "text/plain");
    enum gb_exposition form = open ? GB_EXPOSITION_OPENMETRICS : GB_EXPOSITION_TEXT;
    struct gb_metrics *metrics = gb_api_of(request)->metrics;
    uint64_t now_ns = gb_clock_ns();
    char *text = NULL;
    size_t n = 0;
    int r = look(metrics, form, now_ns, &text, &n);

    if (r < 0) {
        gb_error_memory(err, "reply");
        return GB_STEP_ERROR;
    }
    if (r == 0) {
        if (build(request, form, &text, &n, err) < 0)
            return GB_STEP_ERROR;
        keep(metrics, form, now_ns, text, n);
    }
    gb_http_response_take(response, text, n);
    response->is_vital = true;
    if (gb_http_response_header(response, err, "Content-Type", "%s", gb_exposition_type(form)) < 0 ||
        gb_http_response_header(response, err, "Cache-Control", "no-store") < 0 ||
        gb_http_response_header(response, err, "Vary", "Accept") < 0)
        return GB_STEP_ERROR;
    return GB_STEP_REPLY;
}
