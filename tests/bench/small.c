/* The work of the epoll engine: polls, small uploads, pairs of create and delete, polls beside idle connections. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine.h"
#include "reply.h"
#include "util.h"

static void get_request(const struct poll_plan *plan, unsigned connection, unsigned step, char *ret_text, size_t size) {
    char path[512];

    (void)step;
    load_path(plan->options, connection, path, sizeof path);
    snprintf(ret_text, size, "GET %s HTTP/1.1\r\nHost: %s\r\n%s%s%s\r\n", path, plan->options->host,
             plan->etag[0] ? "If-None-Match: " : "", plan->etag, plan->etag[0] ? "\r\n" : "");
}

/* One GET on an open connection; the body is read to its end. */
static void get_one(const struct bench_wire *wire, const struct poll_plan *plan, unsigned number,
                    struct bench_reply *ret) {
    char text[65536];
    size_t have = 0;

    get_request(plan, number, 0, text, sizeof text);
    if (!bench_wire_send(wire, text, strlen(text), false))
        bench_die("connection %u: %s", number, strerror(errno));
    for (;;) {
        ssize_t n = bench_wire_recv(wire, text + have, sizeof text - have);
        int head;

        if (n <= 0)
            bench_die("connection %u: %s", number, n ? strerror(errno) : "closed by the server");
        have += (size_t)n;
        head = bench_reply_parse(text, have, ret);
        if (head < 0 || ret->length > sizeof text - 4096)
            bench_die("connection %u: the reply is not one to poll", number);
        if (head > 0 && have >= (size_t)head + ret->length)
            return;
    }
}

/* GET of options->path. If options->etag is set, a first request gets the tag. */
static void get_plan(const struct load_options *options, struct poll_plan *ret) {
    struct bench_reply reply;

    memset(ret, 0, sizeof *ret);
    ret->options = options;
    ret->steps = 1;
    ret->request = get_request;
    ret->status[0] = options->status;
    if (options->etag) {
        struct bench_wire wire;

        if (!load_connect(options, NULL, &wire))
            bench_die("connect: %s", strerror(errno));
        get_one(&wire, ret, 0, &reply);
        bench_wire_close(&wire);
        if (!reply.etag[0])
            bench_die("%s has no ETag", options->path);
        memcpy(ret->etag, reply.etag, sizeof ret->etag);
        ret->status[0] = 304;
    }
}

void load_poll(const struct load_options *options) {
    struct poll_plan plan;
    struct poll_result result;

    get_plan(options, &plan);
    poll_run(&plan, &result);
    printf("{\"connections\": %u, ", options->connections);
    poll_print(&result);
    printf("}\n");
}

static void post_request(const struct poll_plan *plan, unsigned connection, unsigned step, char *ret_text,
                         size_t size) {
    const struct load_options *options = plan->options;
    char path[512];

    (void)step;
    load_path(options, connection, path, sizeof path);
    snprintf(ret_text, size,
             "%s %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
             options->method, path, options->host, strlen(options->json), options->json);
}

void load_post(const struct load_options *options) {
    struct poll_plan plan = {.options = options, .steps = 1, .request = post_request};
    struct poll_result result;

    poll_run(&plan, &result);
    printf("{\"connections\": %u, ", options->connections);
    poll_print(&result);
    printf("}\n");
}

/* PUT of options->bytes, whole in one send. */
static void put_request(const struct poll_plan *plan, unsigned connection, unsigned step, char *ret_text, size_t size) {
    const struct load_options *options = plan->options;
    char path[512];
    int head;

    (void)step;
    load_path(options, connection, path, sizeof path);
    head = snprintf(ret_text, size,
                    "PUT %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/octet-stream\r\nContent-Length: %" PRIu64
                    "\r\n\r\n",
                    path, options->host, options->bytes);
    if (head < 0 || (size_t)head + options->bytes >= size)
        bench_die("--bytes: a body of this mode is small");
    memset(ret_text + head, 'x', options->bytes);
    ret_text[(size_t)head + options->bytes] = '\0';
}

void load_puts(const struct load_options *options) {
    struct poll_plan plan = {.options = options, .steps = 1, .request = put_request};
    struct poll_result result;

    poll_run(&plan, &result);
    printf("{\"connections\": %u, ", options->connections);
    poll_print(&result);
    printf("}\n");
}

static void pair_request(const struct poll_plan *plan, unsigned connection, unsigned step, char *ret_text,
                         size_t size) {
    const struct load_options *options = plan->options;
    char body[128];

    if (step == 0) {
        snprintf(body, sizeof body, "{\"name\":\"bench-pair-%u\",\"bytes\":%" PRIu64 "}", connection, options->bytes);
        snprintf(ret_text, size,
                 "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                 options->path, options->host, strlen(body), body);
    } else {
        snprintf(ret_text, size, "DELETE %s/bench-pair-%u HTTP/1.1\r\nHost: %s\r\n\r\n", options->path, connection,
                 options->host);
    }
}

void load_pairs(const struct load_options *options) {
    struct poll_plan plan = {.options = options, .steps = 2, .request = pair_request};
    struct poll_result result;

    poll_run(&plan, &result);
    printf("{\"connections\": %u, ", options->connections);
    poll_print(&result);
    printf("}\n");
}

/* Resident bytes of a process. smaps_rollup is exact; status may lag by some pages for each thread. */
static uint64_t resident_bytes(pid_t pid) {
    static const char *const files[] = {"smaps_rollup", "status"};
    static const char *const fields[] = {"Rss: %" SCNu64 " kB", "VmRSS: %" SCNu64 " kB"};
    uint64_t kib = 0;
    unsigned i;

    for (i = 0; i < 2 && !kib; i++) {
        char path[64], line[256];
        FILE *f;

        snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, files[i]);
        f = fopen(path, "r");
        while (f && !kib && fgets(line, sizeof line, f))
            sscanf(line, fields[i], &kib);
        if (f)
            fclose(f);
    }
    if (!kib)
        bench_die("memory of process %d cannot be read", (int)pid);
    return kib << 10;
}

static unsigned count_open(const int *fds, unsigned n) {
    unsigned open = 0, i;
    char c;

    for (i = 0; i < n; i++)
        open += recv(fds[i], &c, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN;
    return open;
}

void load_idle(const struct load_options *options) {
    struct poll_plan plan;
    struct poll_result without, with;
    struct bench_reply reply;
    int *fds = calloc(options->idle ? options->idle : 1, sizeof *fds);
    uint64_t before, after;
    unsigned i;

    if (!fds || !options->idle || !options->pid)
        bench_die("idle mode needs --idle and --pid");
    if (options->tls)
        bench_die("idle mode has no --tls"); /* it looks at the sockets themselves */
    get_plan(options, &plan);
    poll_run(&plan, &without);
    before = resident_bytes(options->pid);
    for (i = 0; i < options->idle; i++) {
        struct bench_wire wire;

        if (!load_connect(options, NULL, &wire))
            bench_die("connection %u of %u: %s", i, options->idle, strerror(errno));
        get_one(&wire, &plan, i, &reply);
        fds[i] = wire.fd;
    }
    after = resident_bytes(options->pid);
    poll_run(&plan, &with);
    printf("{\"idle\": %u, \"still_open\": %u, \"rss_before\": %" PRIu64 ", \"rss_after\": %" PRIu64
           ", \"bytes_per_connection\": %.0f, \"without\": {",
           options->idle, count_open(fds, options->idle), before, after,
           (double)((int64_t)after - (int64_t)before) / options->idle);
    poll_print(&without);
    printf("}, \"with\": {");
    poll_print(&with);
    printf("}, \"errors\": %" PRIu64 "}\n", without.errors + with.errors);
    for (i = 0; i < options->idle; i++)
        close(fds[i]);
    free(fds);
}
