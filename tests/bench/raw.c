/* The raw socket that every transfer is measured against. It reads only the body's length from the request's head,
 * moves the bytes, and sends a constant reply. The same load generator drives it and the daemon. Its work on the head
 * is negligible beside a body of a mebibyte. */
#include "raw.h"

#include <errno.h>
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
static size_t read_head(int fd, char *head, size_t *ret_have) {
    size_t have = 0;

    for (;;) {
        ssize_t n = recv(fd, head + have, HEAD_MAX - have, 0);
        const char *end;

        if (n < 0 && errno == EINTR)
            continue;
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

static bool receive_body(struct server *server, struct raw_place *place, int fd, const char *head, size_t head_bytes,
                         size_t have) {
    static const char name[] = "\r\nContent-Length: ";
    static const char reply[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    const char *field = memmem(head, head_bytes, name, sizeof name - 1);
    uint64_t length = field ? strtoull(field + sizeof name - 1, NULL, 10) : 0;

    if (length > server->bytes || have - head_bytes > length)
        return false;
    return server->kind->receive(place, fd, head + head_bytes, have - head_bytes, length) &&
           bench_send_all(fd, reply, sizeof reply - 1);
}

/* Any POST copies all bytes on the device. */
static bool copy_bytes(struct server *server, struct raw_place *place, int fd) {
    uint64_t ns = server->kind->copy(place, server->bytes);
    char reply[160];
    int n = snprintf(reply, sizeof reply,
                     "HTTP/1.1 200 OK\r\nServer-Timing: copy;dur=%.6f\r\nContent-Length: 0\r\n\r\n", (double)ns / 1e6);

    return bench_send_all(fd, reply, (size_t)n);
}

static bool send_body(struct server *server, struct raw_place *place, int fd) {
    char reply[128];
    int n = snprintf(reply, sizeof reply, "HTTP/1.1 200 OK\r\nContent-Length: %" PRIu64 "\r\n\r\n", server->bytes);

    return send(fd, reply, (size_t)n, MSG_NOSIGNAL | MSG_MORE) == n && server->kind->send(place, fd, server->bytes);
}

static void *serve(void *arg) {
    struct server *server = arg;

    for (;;) {
        char head[HEAD_MAX];
        struct raw_place *place;
        size_t have, head_bytes;
        int fd = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC);

        if (fd < 0)
            continue;
        bench_nodelay(fd);
        place = place_take(server);
        while ((head_bytes = read_head(fd, head, &have))) {
            bool ok = !strncmp(head, "PUT", 3)    ? receive_body(server, place, fd, head, head_bytes, have)
                      : !strncmp(head, "POST", 4) ? copy_bytes(server, place, fd)
                                                  : send_body(server, place, fd);

            if (!ok)
                break;
        }
        place_give(server, place);
        close(fd);
    }
    return NULL;
}

int main(int argc, char **argv) {
    static const struct option table[] = {{"port", 1, NULL, 'p'},    {"bytes", 1, NULL, 'b'}, {"slot", 1, NULL, 's'},
                                          {"threads", 1, NULL, 't'}, {"cuda", 0, NULL, 'c'},  {"record", 1, NULL, 'r'},
                                          {"socket", 1, NULL, 'S'},  {NULL, 0, NULL, 0}};
    struct server server = {.kind = &raw_host, .bytes = 64 << 20, .slot_bytes = 1 << 20};
    unsigned threads = 8, i;
    const char *socket = NULL;
    int port = 0, c;

    while ((c = getopt_long(argc, argv, "", table, NULL)) != -1) {
        if (c == 'p')
            port = (int)bench_parse_size(optarg, "port");
        else if (c == 'b')
            server.bytes = bench_parse_size(optarg, "bytes");
        else if (c == 's')
            server.slot_bytes = bench_parse_size(optarg, "slot");
        else if (c == 't')
            threads = (unsigned)bench_parse_size(optarg, "threads");
        else if (c == 'S')
            socket = optarg;
        else if (c == 'c')
            server.kind = &raw_cuda;
        else if (c == 'r')
            raw_record_open(optarg);
        else
            bench_die("usage: gb-bench-raw [--port N|--socket PATH] [--bytes SIZE] [--threads N] [--record DATABASE] "
                      "[--cuda [--slot "
                      "SIZE]]");
    }
    if (!threads || threads > PLACES_MAX || !server.slot_bytes)
        bench_die("--threads: 1 to %d", PLACES_MAX);
    pthread_mutex_init(&server.lock, NULL);
    place_give(&server, server.kind->make(server.bytes, server.slot_bytes));
    server.listener = socket ? bench_listen_unix(socket) : bench_listen(port, &port);
    printf("PORT %d\n", port);
    fflush(stdout);
    for (i = 0; i < threads; i++) {
        pthread_t thread;

        if (pthread_create(&thread, NULL, serve, &server))
            bench_die("no thread");
    }
    for (;;)
        pause();
}
