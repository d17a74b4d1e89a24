/* From the numbers of a sheet to text. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "api/metrics.h"
#include "api/sheet.h"
#include "http/latency.h"

/* Two names and what stands around them. */
#define LABELS_SIZE (2 * (GB_NAME_MAX + 1) + 64)

enum scope {
    SCOPE_DAEMON,
    SCOPE_PROCESS,
    SCOPE_DEVICE,
    SCOPE_HEALTH,
    SCOPE_REASON,
    SCOPE_POOL,
    SCOPE_DIRECTION,
    SCOPE_SOCKET,
    SCOPE_KIND,
    SCOPE_OPERATION,
    SCOPES
};

#define V_DAEMON struct gb_daemon_numbers
#define V_PROCESS struct gb_daemon_numbers
#define V_DEVICE struct gb_device_rec
#define V_HEALTH struct gb_sheet_health
#define V_REASON uint64_t
#define V_POOL struct gb_pool_view
#define V_DIRECTION struct gb_direction_numbers
#define V_SOCKET struct gb_direction_numbers
#define V_KIND struct gb_kind_counters
#define V_OPERATION uint64_t

#define GB_METRIC(scope, type, name, unit, help, value)                                                                \
    static uint64_t read_##scope##_##name(const void *arg) {                                                           \
        const V_##scope *v = arg;                                                                                      \
        return (value);                                                                                                \
    }
#include "api/metrics.def"
#undef GB_METRIC

struct metric {
    enum scope scope;
    struct gb_family family;
    uint64_t (*read)(const void *v);
};

#define PREFIX(scope) ((scope) == SCOPE_PROCESS ? "process_" : "gpubufd_")

/* One thing that a scope has numbers of. */
struct series {
    char labels[LABELS_SIZE];
    const void *v;
};

struct list {
    struct series *items;
    size_t count;
};

struct writer {
    FILE *out;
    enum gb_exposition form;
    const struct gb_sheet *sheet;
    const struct gb_http_server *server;
    struct list scopes[SCOPES];
};

/* --- what there is numbers of ------------------------------------------------------------------------------------------ */

static size_t count_of(const struct gb_sheet *sheet, enum scope scope) {
    switch (scope) {
    case SCOPE_DEVICE:
    case SCOPE_HEALTH:
        return (size_t)sheet->device_count;
    case SCOPE_REASON:
        return (size_t)sheet->device_count * GB_CLOCK_REASONS;
    case SCOPE_POOL:
        return sheet->pool_count;
    case SCOPE_DIRECTION:
        return GB_SHEET_DIRECTIONS;
    case SCOPE_SOCKET:
        return GB_SHEET_SOCKETS;
    case SCOPE_KIND:
        return (size_t)GB_DIRECTION_COUNT * GB_KIND_COUNT;
    case SCOPE_OPERATION:
        return GB_OPERATION_STATES;
    case SCOPE_DAEMON:
    case SCOPE_PROCESS:
    case SCOPES:
        break;
    }
    return 1;
}

static void label(struct series *s, const char *name, const char *value) {
    gb_exposition_label(s->labels, sizeof(s->labels), name, value);
}

static void label_device(struct series *s, int device) {
    char text[16];

    snprintf(text, sizeof(text), "%d", device);
    label(s, "device", text);
}

static void set_pool(struct series *s, const struct gb_sheet_pool *pool) {
    s->v = &pool->view;
    if (pool->session.s[0] != '\0')
        label(s, "session", pool->session.s);
    label(s, "pool", pool->view.name.s);
    label_device(s, pool->view.device);
}

static void set_kind(struct series *s, const struct gb_sheet *sheet, size_t i) {
    size_t direction = i / GB_KIND_COUNT;
    size_t kind = i % GB_KIND_COUNT;

    s->v = &sheet->daemon.core.kinds[direction][kind];
    label(s, "direction", direction == GB_UPLOAD ? "upload" : "download");
    label(s, "kind", gb_kind_name((enum gb_kind)kind));
}

static void set_series(struct series *s, const struct gb_sheet *sheet, enum scope scope, size_t i) {
    switch (scope) {
    case SCOPE_DEVICE:
        s->v = &sheet->devices[i];
        label_device(s, (int)i);
        return;
    case SCOPE_HEALTH:
        s->v = &sheet->health[i];
        label_device(s, (int)i);
        label(s, "uuid", sheet->devices[i].uuid);
        return;
    case SCOPE_REASON:
        s->v = &sheet->reasons[i];
        label_device(s, (int)(i / GB_CLOCK_REASONS));
        label(s, "uuid", sheet->devices[i / GB_CLOCK_REASONS].uuid);
        label(s, "reason", gb_clock_reason_name((enum gb_clock_reason)(i % GB_CLOCK_REASONS)));
        return;
    case SCOPE_POOL:
        set_pool(s, &sheet->pools[i]);
        return;
    case SCOPE_DIRECTION:
    case SCOPE_SOCKET:
        s->v = &sheet->directions[i];
        label(s, "direction", sheet->directions[i].name);
        return;
    case SCOPE_KIND:
        set_kind(s, sheet, i);
        return;
    case SCOPE_OPERATION:
        s->v = &sheet->operations[i];
        label(s, "state", gb_operation_state_name((enum gb_operation_state)i));
        return;
    case SCOPE_DAEMON:
    case SCOPE_PROCESS:
    case SCOPES:
        break;
    }
    s->v = &sheet->daemon;
}

/* Labels are the same in every family of a scope: written once. */
static int fill_list(struct list *list, const struct gb_sheet *sheet, enum scope scope) {
    size_t i;

    list->count = count_of(sheet, scope);
    list->items = malloc((list->count + 1) * sizeof(*list->items));
    if (!list->items)
        return -1;
    for (i = 0; i < list->count; i++) {
        list->items[i].labels[0] = '\0';
        set_series(&list->items[i], sheet, scope, i);
    }
    return 0;
}

/* --- families ------------------------------------------------------------------------------------------------------------ */

/* What nobody knows of any device has no family either. */
static bool known(const struct metric *m, const struct list *list) {
    size_t i;

    for (i = 0; i < list->count; i++) {
        if (m->read(list->items[i].v) != GB_METRIC_UNKNOWN)
            return true;
    }
    return list->count == 0;
}

static void write_metrics(const struct writer *w) {
    static const struct metric metrics[] = {
#define GB_METRIC(scope, type, name, unit, help, value)                                                                \
    {SCOPE_##scope, {GB_METRIC_##type, PREFIX(SCOPE_##scope), #name, GB_UNIT_##unit, help}, read_##scope##_##name},
#include "api/metrics.def"
#undef GB_METRIC
    };
    size_t i;
    size_t k;

    for (i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++) {
        const struct metric *m = &metrics[i];
        const struct list *list = &w->scopes[m->scope];

        if (!known(m, list))
            continue;
        gb_exposition_family(w->out, w->form, &m->family);
        for (k = 0; k < list->count; k++)
            gb_exposition_sample(w->out, &m->family, "", list->items[k].labels, m->family.unit,
                                 m->read(list->items[k].v));
    }
}

/* --- routes ------------------------------------------------------------------------------------------------------------ */

/* Of a route, or of requests that were refused before they had one. A path is shorter than a name may be. */
static void label_route(struct series *s, size_t route) {
    bool has = route < gb_api_route_count;

    s->labels[0] = '\0';
    label(s, "method", has ? gb_http_method_name(gb_api_routes[route].method) : "");
    label(s, "route", has ? gb_api_routes[route].path : "");
}

/* Routes that nobody asked for are left out. */
static bool asked(const struct gb_latency *l) {
    uint64_t sum = 0;
    unsigned i;

    for (i = 0; i < GB_OUTCOMES; i++)
        sum += l->outcome[i];
    return sum > 0;
}

static void write_duration(const struct writer *w, const struct gb_family *family, const struct series *route,
                           const struct gb_latency *l) {
    struct series s;
    uint64_t sum = 0;
    char bound[32];
    unsigned i;

    for (i = 0; i <= GB_LATENCY_BOUNDS; i++) {
        uint64_t ns = gb_latency_bound_ns(i);

        sum += l->bucket[i];
        snprintf(bound, sizeof(bound), "%g", (double)ns / 1e9);
        if (i >= 8) /* whole seconds */
            snprintf(bound, sizeof(bound), i == GB_LATENCY_BOUNDS ? "+Inf" : "%.1f", (double)ns / 1e9);
        s = *route;
        label(&s, "le", bound);
        gb_exposition_sample(w->out, family, "_bucket", s.labels, GB_UNIT_NONE, sum);
    }
    gb_exposition_sample(w->out, family, "_sum", route->labels, GB_UNIT_SECONDS, l->ns);
    gb_exposition_sample(w->out, family, "_count", route->labels, GB_UNIT_NONE, sum);
}

static void write_routes(const struct writer *w) {
    static const struct gb_family duration = {GB_METRIC_HISTOGRAM, "gpubufd_", "http_request_duration_seconds",
                                              GB_UNIT_SECONDS,
                                              "Time from the end of a request's header to the end of its answer."};
    static const struct gb_family responses = {GB_METRIC_COUNTER, "gpubufd_", "http_responses", GB_UNIT_NONE,
                                               "Requests that ended, by class of status; broken: the connection did."};
    struct gb_latency latency;
    struct series route;
    struct series s;
    size_t i;
    unsigned k;

    gb_exposition_family(w->out, w->form, &duration);
    for (i = 0; i <= gb_api_route_count; i++) {
        gb_http_latency(w->server, i, &latency);
        label_route(&route, i);
        if (asked(&latency))
            write_duration(w, &duration, &route, &latency);
    }
    gb_exposition_family(w->out, w->form, &responses);
    for (i = 0; i <= gb_api_route_count; i++) {
        gb_http_latency(w->server, i, &latency);
        label_route(&route, i);
        for (k = 0; asked(&latency) && k < GB_OUTCOMES; k++) {
            s = route;
            label(&s, "status", gb_outcome_name((enum gb_outcome)k));
            gb_exposition_sample(w->out, &responses, "", s.labels, GB_UNIT_NONE, latency.outcome[k]);
        }
    }
}

int gb_metrics_write(enum gb_exposition form, const struct gb_sheet *sheet, const struct gb_http_server *server,
                     char **ret, size_t *ret_n) {
    struct writer w = {.form = form, .sheet = sheet, .server = server};
    char *text = NULL;
    size_t n = 0;
    bool failed;
    int i;

    w.out = open_memstream(&text, &n);
    failed = !w.out;
    for (i = 0; i < SCOPES && !failed; i++)
        failed = fill_list(&w.scopes[i], sheet, (enum scope)i) < 0;
    if (!failed) {
        write_metrics(&w);
        write_routes(&w);
        gb_exposition_end(w.out, form);
        failed = ferror(w.out) != 0;
    }
    if (w.out && fclose(w.out) != 0)
        failed = true;
    for (i = 0; i < SCOPES; i++)
        free(w.scopes[i].items);
    if (failed) {
        free(text);
        return -1;
    }
    *ret = text;
    *ret_n = n;
    return 0;
}
