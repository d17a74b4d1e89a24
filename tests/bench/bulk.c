/* Whole bodies up and down, a thread for each connection, plain blocking sockets. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "load.h"
#include "reply.h"
#include "util.h"

#define HEAD_MAX 2048
#define SOURCE_BYTES ((uint64_t)4 << 20)
#define ERRORS_MAX 3 /* a connection that fails this often gives up */

struct worker;
typedef bool transaction(struct worker *worker);

struct worker {
    const struct load_options *options;
    transaction *run;
    pthread_barrier_t *start;
    const char *source; /* source_bytes, sent repeatedly */
    uint64_t source_bytes;
    char *buffer; /* piece_bytes; every byte received lands here */
    size_t have;  /* of the buffer, not yet consumed */
    char head[HEAD_MAX];
    size_t head_bytes;
    char problem[160];
    struct bench_wire wire;
    gnutls_datum_t ticket; /* of the last connection, if sessions are resumed */
    unsigned number;
    uint64_t requests, errors, connects, resumed, end_ns;
};

static bool fail(struct worker *worker, const char *what, int status) {
    if (worker->problem[0])
        return false;
    if (status)
        snprintf(worker->problem, sizeof worker->problem, "%s: status %d", what, status);
    else
        snprintf(worker->problem, sizeof worker->problem, "%s: %s", what,
                 errno == EAGAIN ? "no progress"
                 : errno         ? strerror(errno)
                                 : "end of stream");
    return false;
}

static void hang_up(struct worker *worker) {
    if (worker->wire.tls && worker->options->resume)
        bench_tls_ticket(worker->wire.tls, &worker->ticket);
    bench_wire_close(&worker->wire);
    worker->have = 0;
}

static bool call(struct worker *worker) {
    if (worker->wire.fd >= 0)
        return true;
    worker->connects++;
    if (!load_connect(worker->options, &worker->ticket, &worker->wire))
        return fail(worker, "connect", 0);
    worker->resumed += worker->wire.tls && bench_tls_resumed(worker->wire.tls);
    return true;
}

static bool more(struct worker *worker) {
    ssize_t n =
        bench_wire_recv(&worker->wire, worker->buffer + worker->have, worker->options->piece_bytes - worker->have);

    if (n == 0)
        errno = 0;
    if (n <= 0)
        return fail(worker, "recv", 0);
    worker->have += (size_t)n;
    return true;
}

/* Reads the head of the next reply; the bytes after it are moved to the start of the buffer. */
static bool read_head(struct worker *worker, struct bench_reply *ret) {
    for (;;) {
        int head = bench_reply_parse(worker->buffer, worker->have, ret);

        if (head < 0)
            return fail(worker, "not a reply of definite length", 0);
        if (head > 0) {
            worker->have -= (size_t)head;
            memmove(worker->buffer, worker->buffer + head, worker->have);
            return true;
        }
        if (worker->have == worker->options->piece_bytes)
            return fail(worker, "head of the reply too long", 0);
        if (!more(worker))
            return false;
    }
}

/* Takes the body out of the stream, always through the same piece of memory. */
static bool discard_body(struct worker *worker, uint64_t length) {
    uint64_t left = length;

    for (;;) {
        if (worker->have > left)
            return fail(worker, "more came than the length says", 0);
        left -= worker->have;
        worker->have = 0;
        if (!left)
            return true;
        if (!more(worker))
            return false;
    }
}

/* Reads the final reply and skips interim ones. */
static bool read_reply(struct worker *worker, struct bench_reply *ret) {
    do {
        if (!read_head(worker, ret))
            return false;
    } while (ret->status < 200);
    return discard_body(worker, ret->length);
}

/* Sends the body from byte `sent` on. The source repeats, so that the client's memory stays in the CPU's cache. */
static bool send_body(struct worker *worker, uint64_t sent) {
    uint64_t bytes = worker->options->bytes;

    while (sent < bytes) {
        uint64_t offset = sent % worker->source_bytes;
        uint64_t n = worker->options->piece_bytes;

        if (n > bytes - sent)
            n = bytes - sent;
        if (n > worker->source_bytes - offset)
            n = worker->source_bytes - offset;
        if (!bench_wire_send(&worker->wire, worker->source + offset, n, false))
            return fail(worker, "send", 0);
        sent += n;
    }
    return true;
}

/* Head and first bytes in one send, the rest after it. */
static bool send_at_once(struct worker *worker) {
    uint64_t first = worker->options->bytes;
    struct iovec vec[2] = {{worker->head, worker->head_bytes}, {(void *)(uintptr_t)worker->source, 0}};

    if (first > worker->options->piece_bytes)
        first = worker->options->piece_bytes;
    vec[1].iov_len = first;
    if (!bench_wire_sendv(&worker->wire, vec, 2))
        return fail(worker, "send", 0);
    return send_body(worker, first);
}

/* A server that refuses a body sends the reason before it closes. */
static bool refused(struct worker *worker) {
    struct bench_reply reply;
    char problem[sizeof worker->problem];

    memcpy(problem, worker->problem, sizeof problem);
    worker->problem[0] = '\0';
    if (read_head(worker, &reply)) {
        worker->problem[0] = '\0';
        return fail(worker, "body refused", reply.status);
    }
    memcpy(worker->problem, problem, sizeof problem);
    return false;
}

static bool put_once(struct worker *worker) {
    struct bench_reply reply;

    if (!worker->options->expect) {
        if (!send_at_once(worker))
            return refused(worker);
    } else {
        if (!bench_wire_send(&worker->wire, worker->head, worker->head_bytes, false))
            return fail(worker, "send", 0);
        if (!read_head(worker, &reply))
            return false;
        if (reply.status != 100)
            return fail(worker, "no 100 Continue", reply.status);
        if (!send_body(worker, 0))
            return refused(worker);
    }
    if (!read_reply(worker, &reply))
        return false;
    if (reply.status / 100 != 2)
        return fail(worker, "PUT", reply.status);
    if (reply.close)
        hang_up(worker);
    return true;
}

static bool get_once(struct worker *worker) {
    struct bench_reply reply;

    if (!bench_wire_send(&worker->wire, worker->head, worker->head_bytes, false))
        return fail(worker, "send", 0);
    if (!read_reply(worker, &reply))
        return false;
    if (reply.status != 200)
        return fail(worker, "GET", reply.status);
    if (reply.length != worker->options->bytes)
        return fail(worker, "GET: another length than asked for", reply.status);
    if (reply.close)
        hang_up(worker);
    return true;
}

static bool set_once(struct worker *worker) {
    if (!send_at_once(worker) || !bench_wire_send(&worker->wire, "\r\n", 2, false))
        return fail(worker, "send", 0);
    while (!memchr(worker->buffer, '\n', worker->have))
        if (!more(worker))
            return false;
    if (worker->buffer[0] != '+')
        return fail(worker, worker->buffer[0] == '-' ? "SET refused" : "SET: no reply", 0);
    worker->have = 0;
    return true;
}

static void *work(void *arg) {
    struct worker *worker = arg;
    const struct load_options *options = worker->options;
    uint64_t deadline_ns;

    if (!options->fresh)
        call(worker);
    pthread_barrier_wait(worker->start);
    deadline_ns = bench_now_ns() + (uint64_t)(options->seconds * 1e9);
    while (worker->errors < ERRORS_MAX) {
        if (options->requests ? worker->requests >= options->requests : bench_now_ns() >= deadline_ns)
            break;
        if (call(worker) && worker->run(worker)) {
            worker->requests++;
        } else {
            worker->errors++;
            hang_up(worker);
        }
        if (options->fresh)
            hang_up(worker);
    }
    worker->end_ns = bench_now_ns();
    hang_up(worker);
    return NULL;
}

static void print_result(const struct load_options *options, const struct worker *workers, double seconds) {
    uint64_t requests = 0, errors = 0, connects = 0, resumed = 0;
    const char *problem = "";
    unsigned i;

    for (i = 0; i < options->connections; i++) {
        requests += workers[i].requests;
        errors += workers[i].errors;
        connects += workers[i].connects;
        resumed += workers[i].resumed;
        if (workers[i].problem[0])
            problem = workers[i].problem;
    }
    printf("{\"connections\": %u, \"requests\": %" PRIu64 ", \"errors\": %" PRIu64 ", \"connects\": %" PRIu64
           ", \"resumed\": %" PRIu64 ", \"seconds\": %.6f, \"bytes\": %" PRIu64
           ", \"bytes_per_s\": %.0f, \"requests_per_s\": %.1f"
           ", \"problem\": \"%s\"}\n",
           options->connections, requests, errors, connects, resumed, seconds, requests * options->bytes,
           (double)(requests * options->bytes) / seconds, (double)requests / seconds, problem);
}

static void run_all(const struct load_options *options, transaction *run,
                    void (*write_head)(const struct load_options *, struct worker *)) {
    struct worker *workers = calloc(options->connections, sizeof *workers);
    pthread_t *threads = calloc(options->connections, sizeof *threads);
    uint64_t source_bytes = SOURCE_BYTES;
    char *source = options->body ? bench_file(options->body, &source_bytes) : bench_resident(SOURCE_BYTES);
    pthread_barrier_t start;
    uint64_t start_ns, end_ns = 0;
    unsigned i;

    if (!workers || !threads || pthread_barrier_init(&start, NULL, options->connections + 1))
        bench_die("no memory for %u connections", options->connections);
    for (i = 0; !options->body && i < SOURCE_BYTES; i++)
        source[i] = (char)(i * 31 + (i >> 8));
    for (i = 0; i < options->connections; i++) {
        struct worker *worker = &workers[i];

        worker->options = options;
        worker->run = run;
        worker->start = &start;
        worker->source = source;
        worker->source_bytes = source_bytes;
        worker->buffer = bench_resident(options->piece_bytes);
        worker->wire = BENCH_WIRE_NONE;
        worker->number = i;
        write_head(options, worker);
        if (pthread_create(&threads[i], NULL, work, worker))
            bench_die("no thread for connection %u", i);
    }
    pthread_barrier_wait(&start);
    start_ns = bench_now_ns();
    for (i = 0; i < options->connections; i++) {
        pthread_join(threads[i], NULL);
        if (workers[i].end_ns > end_ns)
            end_ns = workers[i].end_ns;
    }
    print_result(options, workers, (double)(end_ns - start_ns) / 1e9);
    free(workers);
    free(threads);
}

static void put_head(const struct load_options *options, struct worker *worker) {
    char path[512];

    load_path(options, worker->number, path, sizeof path);
    worker->head_bytes = (size_t)snprintf(
        worker->head, HEAD_MAX,
        "PUT %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: gb-bench\r\nAccept: */*\r\nContent-Length: %" PRIu64
        "\r\n%s%s%s\r\n",
        path, options->host, options->bytes, options->expect ? "Expect: 100-continue\r\n" : "", options->header,
        options->header[0] ? "\r\n" : "");
}

static void get_head(const struct load_options *options, struct worker *worker) {
    char path[512];

    load_path(options, worker->number, path, sizeof path);
    worker->head_bytes = (size_t)snprintf(worker->head, HEAD_MAX,
                                          "GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: gb-bench\r\nAccept: */*\r\n\r\n",
                                          path, options->host);
}

static void set_head(const struct load_options *options, struct worker *worker) {
    char key[512];

    load_path(options, worker->number, key, sizeof key);
    worker->head_bytes = (size_t)snprintf(worker->head, HEAD_MAX, "*3\r\n$3\r\nSET\r\n$%zu\r\n%s\r\n$%" PRIu64 "\r\n",
                                          strlen(key), key, options->bytes);
}

void load_put(const struct load_options *options) {
    run_all(options, put_once, put_head);
}

void load_get(const struct load_options *options) {
    run_all(options, get_once, get_head);
}

void load_redis(const struct load_options *options) {
    run_all(options, set_once, set_head);
}
