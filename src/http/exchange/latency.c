#include "http/exchange/latency.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "http/exchange/server_state.h"

/* Written by one thread alone, so that a load and a store do: no locked instruction, no contended cache line. */
struct counts {
    _Atomic uint64_t bucket[GB_HISTOGRAM_BOUNDS + 1];
    _Atomic uint64_t ns;
    _Atomic uint64_t outcome[GB_OUTCOMES];
};

struct gb_latency_table {
    size_t routes;
    struct counts counts[];
};

const char *gb_outcome_name(enum gb_outcome outcome) {
    static const char *const names[GB_OUTCOMES] = {"2xx", "3xx", "4xx", "5xx", "broken"};

    return (unsigned)outcome < GB_OUTCOMES ? names[outcome] : "unknown";
}

struct gb_latency_table *gb_latency_table_new(size_t route_count) {
    struct gb_latency_table *table =
        calloc(1, sizeof(struct gb_latency_table) + (route_count + 1) * sizeof(struct counts));

    if (table)
        table->routes = route_count;
    return table;
}

void gb_latency_table_free(struct gb_latency_table *table) {
    free(table);
}

static void more(_Atomic uint64_t *count, uint64_t n) {
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + n, memory_order_relaxed);
}

static enum gb_outcome outcome_of(int status) {
    if (status < 200)
        return GB_OUTCOME_BROKEN;
    return status < 300   ? GB_OUTCOME_2XX
           : status < 400 ? GB_OUTCOME_3XX
           : status < 500 ? GB_OUTCOME_4XX
                          : GB_OUTCOME_5XX;
}

void gb_latency_record(struct gb_latency_table *table, size_t route, int status, uint64_t ns) {
    struct counts *c = &table->counts[route < table->routes ? route : table->routes];

    more(&c->bucket[gb_histogram_bucket(ns)], 1);
    more(&c->ns, ns);
    more(&c->outcome[outcome_of(status)], 1);
}

void gb_latency_add(const struct gb_latency_table *table, size_t route, struct gb_latency *sum) {
    const struct counts *c;
    unsigned i;

    if (!table || route > table->routes)
        return;
    c = &table->counts[route];
    for (i = 0; i <= GB_HISTOGRAM_BOUNDS; i++)
        sum->time.bucket[i] += atomic_load_explicit(&c->bucket[i], memory_order_relaxed);
    sum->time.ns += atomic_load_explicit(&c->ns, memory_order_relaxed);
    for (i = 0; i < GB_OUTCOMES; i++)
        sum->outcome[i] += atomic_load_explicit(&c->outcome[i], memory_order_relaxed);
}

void gb_http_latency(const struct gb_http_server *server, size_t route, struct gb_latency *ret) {
    size_t i;

    *ret = (struct gb_latency){.time = {.ns = 0}};
    for (i = 0; i < server->latency_count; i++)
        gb_latency_add(server->latency[i], route, ret);
}
