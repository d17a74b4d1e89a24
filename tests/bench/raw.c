/* The raw socket that every transfer is measured against. It reads only the body's length from the request's head,
 * moves the bytes, and sends a constant reply. The same load generator drives it and the daemon. Its work on the head
 * is negligible beside a body of a mebibyte. */
#include "raw.h"

#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util.h"

#define HEAD_MAX 4096
#define PLACES_MAX 256

struct server {
    const struct raw_kind *kind;
    int listener;
    uint64_t bytes; /* of a place: the largest body */
    size_t slot_bytes;
    struct bench_tls_side *tls; /* NULL: plain */
    pthread_mutex_t lock;
    struct raw_place *idle[PLACES_MAX]; /* last in, first out: the place used last is warm */
    unsigned idle_count;
};

static struct raw_place *place_take(struct server *server) {
    struct raw_place *place = NULL;

    pthread_mutex_lock(&server->lock);
    if (server->idle_count)
        place = server->idle[--server->idle_count];
    pthread_mutex_unlock(&server->lock);
    return place ? place : server->kind->make(server->bytes, server->slot_bytes);
}

static void place_give(struct server *server, struct raw_place *place) {
    pthread_mutex_lock(&server->lock);
    server->idle[server->idle_count++] = place;
    pthread_mutex_unlock(&server->lock);
}

/* Reads a head; returns its length, or 0 at the end of the stream. *ret_have is the number of bytes read in all. */
static size_t read_head(const struct bench_wire *wire, char *head, size_t *ret_have) {
    size_t have = 0;

    for (;;) {
        ssize_t n = bench_wire_recv(wire, head + have, HEAD_MAX - have);
        const char *end;

        if (n <= 0)
            return 0;
        have += (size_t)n;
        end = memmem(head, have, "\r\n\r\n", 4);
        if (end) {
            *ret_have = have;
            return (size_t)(end - head) + 4;
        }
        if (have == HEAD_MAX)
            return 0;
    }
}

static bool receive_body(struct server *server, struct raw_place *place, const struct bench_wire *wire,
                         const char *head, size_t head_bytes, size_t have) {
    static const char name[] = "\r\nContent-Length: ";
    static const char reply[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    const char *field = memmem(head, head_bytes, name, sizeof name - 1);
    uint64_t length = field ? strtoull(field + sizeof name - 1, NULL, 10) : 0;

    if (length > server->bytes || have - head_bytes > length)
        return false;
    return server->kind->receive(place, wire, head + head_bytes, have - head_bytes, length) &&
           bench_wire_send(wire, reply, sizeof reply - 1, false);
}

/* POST /fills is work on one stream; any other POST copies all bytes on the device. */
static bool work(struct server *server, struct raw_place *place, const struct bench_wire *wire, const char *head) {
    bool fills = !strncmp(head, "POST /fills ", 12);
    uint64_t ns = fills ? server->kind->fills(place, server->bytes) : server->kind->copy(place, server->bytes);
    char reply[160];
    int n = snprintf(reply, sizeof reply,
                     "HTTP/1.1 200 OK\r\nServer-Timing: copy;dur=%.6f\r\nContent-Length: 0\r\n\r\n", (double)ns / 1e6);

    return bench_wire_send(wire, reply, (size_t)n, false);
}

static bool send_body(struct server *server, struct raw_place *place, const struct bench_wire *wire) {
    char reply[128];
    int n = snprintf(reply, sizeof reply, "HTTP/1.1 200 OK\r\nContent-Length: %" PRIu64 "\r\n\r\n", server->bytes);

    return bench_wire_send(wire, reply, (size_t)n, true) && server->kind->send(place, wire, server->bytes);
}

/* All requests of one connection. */
static void talk(struct server *server, struct raw_place *place, const struct bench_wire *wire) {
    char head[HEAD_MAX];
    size_t have, head_bytes;
    bool ok = true;

    while (ok && (head_bytes = read_head(wire, head, &have))) {
        if (!strncmp(head, "PUT", 3))
            ok = receive_body(server, place, wire, head, head_bytes, have);
        else if (!strncmp(head, "POST", 4))
            ok = work(server, place, wire, head);
        else
            ok = send_body(server, place, wire);
    }
}

static void *serve(void *arg) {
    struct server *server = arg;

    for (;;) {
        struct bench_wire wire = {accept4(server->listener, NULL, NULL, SOCK_CLOEXEC), NULL};
        struct raw_place *place;

        if (wire.fd < 0)
            continue;
        bench_nodelay(wire.fd);
        if (server->tls)
            wire.tls = bench_tls_open(server->tls, wire.fd, NULL);
        place = place_take(server);
        if (wire.tls || !server->tls)
            talk(server, place, &wire);
        place_give(server, place);
        bench_wire_close(&wire);
    }
    return NULL;
}

struct command {
    struct server server;
    unsigned threads;
    int port;
    const char *socket;
    const char *cert;
    const char *key;
};

static void usage(void) {
    bench_die(
        "usage: gb-bench-raw [--port N|--socket PATH] [--bytes SIZE] [--threads N] [--record DATABASE [--disk DIR]] "
        "[--tls-cert FILE --tls-key FILE] [--cuda [--slot SIZE]]\n"
        "       gb-bench-raw --make-cert DIR   writes DIR/cert.pem and DIR/key.pem");
}

static void take(struct command *command, int option, const char *value) {
    switch (option) {
    case 'p':
        command->port = (int)bench_parse_size(value, "port");
        break;
    case 'b':
        command->server.bytes = bench_parse_size(value, "bytes");
        break;
    case 's':
        command->server.slot_bytes = bench_parse_size(value, "slot");
        break;
    case 't':
        command->threads = (unsigned)bench_parse_size(value, "threads");
        break;
    case 'S':
        command->socket = value;
        break;
    case 'c':
        command->server.kind = &raw_cuda;
        break;
    case 'r':
        raw_record_open(value);
        break;
    case 'd':
        raw_disk_open(value);
        break;
    case 'C':
        command->cert = value;
        break;
    case 'K':
        command->key = value;
        break;
    case 'M':
        bench_tls_make_cert(value);
        exit(0);
    default:
        usage();
    }
}

static void parse(int argc, char **argv, struct command *ret) {
    static const struct option table[] = {
        {"port", 1, NULL, 'p'},    {"bytes", 1, NULL, 'b'},     {"slot", 1, NULL, 's'},   {"threads", 1, NULL, 't'},
        {"cuda", 0, NULL, 'c'},    {"record", 1, NULL, 'r'},    {"socket", 1, NULL, 'S'}, {"tls-cert", 1, NULL, 'C'},
        {"tls-key", 1, NULL, 'K'}, {"make-cert", 1, NULL, 'M'}, {"disk", 1, NULL, 'd'},   {NULL, 0, NULL, 0}};
    int c;

    while ((c = getopt_long(argc, argv, "", table, NULL)) != -1)
        take(ret, c, optarg);
    if (!ret->threads || ret->threads > PLACES_MAX || !ret->server.slot_bytes)
        bench_die("--threads: 1 to %d", PLACES_MAX);
    if (raw_disk_wanted() && !raw_record_wanted())
        bench_die("--disk goes with --record");
    if (!ret->cert != !ret->key)
        bench_die("--tls-cert and --tls-key go together");
    if (ret->cert)
        ret->server.tls = bench_tls_server(BENCH_TLS_PRIORITY, ret->cert, ret->key);
}

int main(int argc, char **argv) {
    static struct command command = {.server = {.kind = &raw_host, .bytes = 64 << 20, .slot_bytes = 1 << 20},
                                     .threads = 8};
    struct server *server = &command.server;
    unsigned i;

    parse(argc, argv, &command);
    pthread_mutex_init(&server->lock, NULL);
    place_give(server, server->kind->make(server->bytes, server->slot_bytes));
    server->listener = command.socket ? bench_listen_unix(command.socket) : bench_listen(command.port, &command.port);
    printf("PORT %d\n", command.port);
    fflush(stdout);
    for (i = 0; i < command.threads; i++) {
        pthread_t thread;

        if (pthread_create(&thread, NULL, serve, server))
            bench_die("no thread");
    }
    for (;;)
        pause();
}
