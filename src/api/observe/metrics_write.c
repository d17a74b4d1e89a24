/* Writes the numbers of a snapshot as text. */
#include <stdlib.h>

#include "api/observe/metrics.h"
#include "api/observe/metrics_series.h"
#include "api/observe/metrics_snapshot.h"
#include "http/server/state.h"

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

/* Tells whether the value has a sample. */
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
    gb_series_label(s, "method", has ? gb_http_method_name(w->snapshot->routes[route].method) : "");
    gb_series_label(s, "route", has ? w->snapshot->routes[route].path : "");
}

/* Tells whether the route has had requests. */
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
        gb_series_label(&s, "le", bound);
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
            gb_series_label(&s, "status", gb_outcome_name((enum gb_outcome)k));
            gb_exposition_sample(w->out, &responses, "", s.labels, GB_UNIT_NONE, latency.outcome[k]);
        }
    }
}

int gb_metrics_write(enum gb_exposition form, const struct gb_metrics_snapshot *snapshot,
                     const struct gb_http_server *server, char **ret, size_t *ret_n) {
    struct writer w = {.form = form, .snapshot = snapshot, .server = server};
    char *text = NULL;
    size_t n = 0;
    bool failed;
    int i;

    w.out = open_memstream(&text, &n);
    failed = !w.out;
    for (i = 0; i < GB_METRIC_SCOPES && !failed; i++) {
        gb_series_fill(&w.scopes[i], snapshot, (enum gb_scope_of_metric)i);
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
