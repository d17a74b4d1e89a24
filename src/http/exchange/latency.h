/* How long requests took and how they ended, by route. Each thread that ends requests counts into a table of its own; a
 * reader adds them up. */
#ifndef GB_HTTP_EXCHANGE_LATENCY_H
#define GB_HTTP_EXCHANGE_LATENCY_H

#include <stddef.h>
#include <stdint.h>

#include "base/histogram.h"

struct gb_http_server;

enum gb_outcome {
    GB_OUTCOME_2XX,
    GB_OUTCOME_3XX,
    GB_OUTCOME_4XX,
    GB_OUTCOME_5XX,
    GB_OUTCOME_BROKEN, /* the connection ended before the answer was out */
    GB_OUTCOMES
};
/* "2xx", "broken". */
const char *gb_outcome_name(enum gb_outcome outcome);

struct gb_latency {
    struct gb_histogram time; /* the longest is not kept */
    uint64_t outcome[GB_OUTCOMES];
};

/* [any thread] Sums up the ended requests of a route (index into gb_http_server_config.routes); route_count: of those
 * that were refused before their route was known. The counts are not of one moment. */
void gb_http_latency(const struct gb_http_server *server, size_t route, struct gb_latency *ret);

/* --- inside the http layer ---------------------------------------------------------------------------------------- */

struct gb_latency_table;

/* For routes 0 to route_count. Returns NULL if memory is exhausted. */
struct gb_latency_table *gb_latency_table_new(size_t route_count);
void gb_latency_table_free(struct gb_latency_table *table);

/* [the thread that owns the table] Counts a request. status 0: broken. */
void gb_latency_record(struct gb_latency_table *table, size_t route, int status, uint64_t ns);

/* [any thread] Adds the table's counts to *sum. NULL is an empty table. */
void gb_latency_add(const struct gb_latency_table *table, size_t route, struct gb_latency *sum);

#endif
