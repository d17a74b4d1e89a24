/* The epoll engine of the poll, post, puts, pairs and idle modes. One thread drives N connections. Each repeats a short
 * list of requests (a walk), with one request in flight. */
#ifndef GB_BENCH_ENGINE_H
#define GB_BENCH_ENGINE_H

#include "load.h"
#include "reply.h"

#define POLL_STEPS_MAX 2
#define POLL_STATUS_MAX 600

struct poll_plan {
    const struct load_options *options;
    unsigned steps;
    /* The request of one step, on one connection. */
    void (*request)(const struct poll_plan *plan, unsigned connection, unsigned step, char *ret_text, size_t size);
    int status[POLL_STEPS_MAX]; /* the expected status; 0: any 2xx */
    char etag[BENCH_ETAG_MAX];  /* sent as If-None-Match; empty: none */
};

struct poll_result {
    double seconds;
    uint64_t rounds; /* whole walks through the list */
    uint64_t errors;
    uint64_t connects;               /* beyond the first of each connection */
    uint64_t changes;                /* full replies, with another tag than the request's */
    uint64_t p50_us, p99_us, max_us; /* of one request */
    int bad_status;                  /* the last unexpected status; 0: none */
};

/* Runs for options->seconds; walks that have begun are finished. */
void poll_run(const struct poll_plan *plan, struct poll_result *ret);

/* "rate": ..., without the braces. */
void poll_print(const struct poll_result *result);

#endif
