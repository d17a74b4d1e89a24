#include "engine.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "reply.h"
#include "util.h"

#define REQUEST_MAX 131072
#define INPUT_MAX (1 << 20) /* a batch of 1,000 sends as many results */
#define EVENTS_MAX 256
#define LATENCIES_US 200000 /* one counter for each microsecond; beyond that the last one */
#define ERRORS_MAX 1000

struct connection {
    struct bench_wire wire;
    unsigned number;
    unsigned step;
    uint64_t sent_ns;
    size_t have;
    char *input; /* INPUT_MAX */
    char *requests[POLL_STEPS_MAX];
    size_t request_bytes[POLL_STEPS_MAX];
};

struct engine {
    const struct poll_plan *plan;
    int epoll_fd;
    uint64_t deadline_ns;
    unsigned busy; /* connections with a request in flight */
    uint32_t *latencies;
    uint64_t samples;
    struct poll_result result;
};

static void attach(struct engine *engine, struct connection *connection) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};

    if (!load_connect(engine->plan->options, NULL, &connection->wire))
        bench_die("connect: %s", strerror(errno));
    bench_nonblocking(connection->wire.fd);
    connection->have = 0;
    if (epoll_ctl(engine->epoll_fd, EPOLL_CTL_ADD, connection->wire.fd, &event))
        bench_die("epoll_ctl: %s", strerror(errno));
}

static void reattach(struct engine *engine, struct connection *connection) {
    bench_wire_close(&connection->wire);
    attach(engine, connection);
    engine->result.connects++;
}

/* Sends the next request, unless a walk or the time has ended. */
static void ask(struct engine *engine, struct connection *connection, uint64_t now_ns) {
    unsigned step = connection->step;

    if ((step == 0 && now_ns >= engine->deadline_ns) || engine->result.errors >= ERRORS_MAX)
        return;
    connection->sent_ns = now_ns;
    engine->busy++;
    /* A request of this size always fits the send buffer of a connection that has none in flight. */
    if (!bench_wire_send(&connection->wire, connection->requests[step], connection->request_bytes[step], false))
        shutdown(connection->wire.fd, SHUT_RDWR); /* seen as an end of stream, and counted there */
}

static void count(struct engine *engine, uint64_t took_ns) {
    uint64_t us = took_ns / 1000;

    if (us > engine->result.max_us)
        engine->result.max_us = us;
    engine->latencies[us < LATENCIES_US ? us : LATENCIES_US - 1]++;
    engine->samples++;
}

static void write_request(const struct poll_plan *plan, struct connection *connection, unsigned step) {
    plan->request(plan, connection->number, step, connection->requests[step], REQUEST_MAX);
    connection->request_bytes[step] = strlen(connection->requests[step]);
}

/* The resource has changed: from now on this connection asks with the new tag, as any client would. */
static bool changed(struct engine *engine, struct connection *connection, const struct bench_reply *reply) {
    struct poll_plan plan = *engine->plan;

    if (!plan.etag[0] || reply->status != 200 || !reply->etag[0])
        return false;
    memcpy(plan.etag, reply->etag, sizeof plan.etag);
    write_request(&plan, connection, connection->step);
    engine->result.changes++;
    return true;
}

static void answered(struct engine *engine, struct connection *connection, const struct bench_reply *reply) {
    uint64_t now_ns = bench_now_ns();
    int wanted = engine->plan->status[connection->step];

    engine->busy--;
    count(engine, now_ns - connection->sent_ns);
    connection->have = 0;
    if ((wanted ? reply->status != wanted : reply->status / 100 != 2) && !changed(engine, connection, reply)) {
        engine->result.errors++;
        engine->result.bad_status = reply->status;
    }
    if (++connection->step == engine->plan->steps) {
        connection->step = 0;
        engine->result.rounds++;
    }
    if (reply->close)
        reattach(engine, connection);
    ask(engine, connection, now_ns);
}

static void broken(struct engine *engine, struct connection *connection) {
    engine->busy--;
    engine->result.errors++;
    connection->step = 0;
    reattach(engine, connection);
    ask(engine, connection, bench_now_ns());
}

/* Returns whether the rest of the reply is still to come. */
static bool receive(struct engine *engine, struct connection *connection) {
    struct bench_reply reply;
    ssize_t n = bench_wire_recv(&connection->wire, connection->input + connection->have, INPUT_MAX - connection->have);
    int head;

    if (n < 0 && errno == EAGAIN)
        return false;
    if (n <= 0) {
        broken(engine, connection);
        return false;
    }
    connection->have += (size_t)n;
    head = bench_reply_parse(connection->input, connection->have, &reply);
    if (head < 0 || (head > 0 && (size_t)head + reply.length > INPUT_MAX))
        broken(engine, connection);
    else if (head > 0 && connection->have >= (size_t)head + reply.length)
        answered(engine, connection, &reply);
    else
        return true;
    return false;
}

static void readable(struct engine *engine, struct connection *connection) {
    while (receive(engine, connection) && bench_wire_pending(&connection->wire))
        continue;
}

static void connection_init(struct engine *engine, struct connection *connection, unsigned number) {
    unsigned step;

    connection->number = number;
    connection->input = malloc(INPUT_MAX);
    if (!connection->input)
        bench_die("no memory");
    for (step = 0; step < engine->plan->steps; step++) {
        connection->requests[step] = malloc(REQUEST_MAX);
        if (!connection->requests[step])
            bench_die("no memory");
        write_request(engine->plan, connection, step);
    }
    attach(engine, connection);
}

static uint64_t percentile(const struct engine *engine, double part) {
    uint64_t wanted = (uint64_t)((double)engine->samples * part);
    uint64_t seen = 0;
    size_t us;

    for (us = 0; us < LATENCIES_US; us++) {
        seen += engine->latencies[us];
        if (seen > wanted)
            break;
    }
    return us < LATENCIES_US ? us : engine->result.max_us;
}

void poll_run(const struct poll_plan *plan, struct poll_result *ret) {
    struct engine engine = {.plan = plan};
    struct connection *connections = calloc(plan->options->connections, sizeof *connections);
    struct epoll_event events[EVENTS_MAX];
    uint64_t start_ns;
    unsigned i, step;

    engine.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    engine.latencies = calloc(LATENCIES_US, sizeof *engine.latencies);
    if (engine.epoll_fd < 0 || !connections || !engine.latencies)
        bench_die("no memory or descriptors");
    for (i = 0; i < plan->options->connections; i++)
        connection_init(&engine, &connections[i], i);
    start_ns = bench_now_ns();
    engine.deadline_ns = start_ns + (uint64_t)(plan->options->seconds * 1e9);
    for (i = 0; i < plan->options->connections; i++)
        ask(&engine, &connections[i], bench_now_ns());
    while (engine.busy) {
        int n = epoll_wait(engine.epoll_fd, events, EVENTS_MAX, 10000);
        int k;

        if (n == 0)
            bench_die("no answer in ten seconds on %u connections", engine.busy);
        for (k = 0; k < n; k++)
            readable(&engine, events[k].data.ptr);
    }
    engine.result.seconds = (double)(bench_now_ns() - start_ns) / 1e9;
    engine.result.p50_us = percentile(&engine, 0.50);
    engine.result.p99_us = percentile(&engine, 0.99);
    *ret = engine.result;
    for (i = 0; i < plan->options->connections; i++) {
        bench_wire_close(&connections[i].wire);
        free(connections[i].input);
        for (step = 0; step < plan->steps; step++)
            free(connections[i].requests[step]);
    }
    close(engine.epoll_fd);
    free(connections);
    free(engine.latencies);
}

void poll_print(const struct poll_result *result) {
    printf("\"seconds\": %.6f, \"requests_per_s\": %.1f, \"errors\": %" PRIu64 ", \"connects\": %" PRIu64
           ", \"changes\": %" PRIu64 ", \"p50_us\": %" PRIu64 ", \"p99_us\": %" PRIu64 ", \"max_us\": %" PRIu64
           ", \"problem\": \"",
           result->seconds, (double)result->rounds / result->seconds, result->errors, result->connects, result->changes,
           result->p50_us, result->p99_us, result->max_us);
    if (result->bad_status)
        printf("status %d", result->bad_status);
    else if (result->errors)
        printf("connections broken");
    printf("\"");
}
