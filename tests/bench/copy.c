/* The ceiling of a copy between two daemons of one machine: as many sockets, each with a thread that sends from memory
 * and one that receives into other memory and computes the checksum. Both memories are resident and used again. */
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/hash.h"
#include "util.h"

#define CONNECTIONS_MAX 64
#define PIECE (1u << 20)
#define MARK (1 << 20)
#define TICK_MS 100

struct part {
    const char *from;
    char *to;
    size_t bytes;
    int sender;
    int receiver;
    pthread_t threads[2];
    uint32_t crc;
};

static void *send_part(void *arg) {
    const struct part *part = arg;

    if (!bench_send_all(part->sender, part->from, part->bytes))
        bench_die("the receiver has closed");
    return NULL;
}

/* A blocking recv would wait for as many bytes as the mark says, and the kernel may have no room for them. */
static void *receive_part(void *arg) {
    struct part *part = arg;
    struct pollfd fd = {.fd = part->receiver, .events = POLLIN};
    size_t at = 0;

    while (at < part->bytes) {
        size_t left = part->bytes - at;
        int mark = left < MARK ? (int)left : MARK;
        ssize_t n = recv(part->receiver, part->to + at, left < PIECE ? left : PIECE, MSG_DONTWAIT);

        if (n < 0 && errno == EAGAIN) {
            setsockopt(part->receiver, SOL_SOCKET, SO_RCVLOWAT, &mark, sizeof mark);
            poll(&fd, 1, TICK_MS);
            continue;
        }
        if (n <= 0)
            bench_die("the sender has closed");
        part->crc = gb_crc32c(part->crc, part->to + at, (size_t)n);
        at += (size_t)n;
    }
    return NULL;
}

/* One copy; the nanoseconds from the first connection to the last byte. */
static uint64_t copy(struct part *parts, unsigned count, int listener, int port) {
    uint64_t began = bench_now_ns();
    unsigned i;

    for (i = 0; i < count; i++) {
        parts[i].receiver = bench_connect(port);
        parts[i].sender = accept(listener, NULL, NULL);
        if (parts[i].receiver < 0 || parts[i].sender < 0)
            bench_die("no connection");
        if (pthread_create(&parts[i].threads[0], NULL, send_part, &parts[i]) != 0 ||
            pthread_create(&parts[i].threads[1], NULL, receive_part, &parts[i]) != 0)
            bench_die("no thread");
    }
    for (i = 0; i < count; i++) {
        pthread_join(parts[i].threads[0], NULL);
        pthread_join(parts[i].threads[1], NULL);
        close(parts[i].sender);
        close(parts[i].receiver);
    }
    return bench_now_ns() - began;
}

int main(int argc, char **argv) {
    static const struct option table[] = {{"bytes", 1, NULL, 'b'}, {"connections", 1, NULL, 'c'}, {NULL, 0, NULL, 0}};
    static struct part parts[CONNECTIONS_MAX];
    size_t bytes = 1u << 30;
    unsigned count = 1;
    char *memory;
    int listener;
    uint64_t ns;
    unsigned i;
    int port;
    int c;

    while ((c = getopt_long(argc, argv, "", table, NULL)) != -1) {
        if (c == 'b')
            bytes = bench_parse_size(optarg, "bytes");
        else if (c == 'c')
            count = (unsigned)bench_parse_size(optarg, "connections");
        else
            bench_die("usage: gb-bench-copy [--bytes SIZE] [--connections N]");
    }
    if (count == 0 || count > CONNECTIONS_MAX)
        bench_die("--connections must be 1 to %d", CONNECTIONS_MAX);
    memory = bench_resident(2 * bytes);
    memset(memory, 7, bytes);
    for (i = 0; i < count; i++)
        parts[i] = (struct part){
            .from = memory + i * (bytes / count), .to = memory + bytes + i * (bytes / count), .bytes = bytes / count};
    listener = bench_listen(0, &port);
    copy(parts, count, listener, port); /* the kernel's buffers of both ends are warm from here on */
    for (i = 0; i < count; i++)
        parts[i].crc = 0;
    ns = copy(parts, count, listener, port);
    bytes = bytes / count * count;
    printf("{\"bytes\": %zu, \"seconds\": %.6f, \"bytes_per_s\": %.0f, \"errors\": 0}\n", bytes, (double)ns / 1e9,
           (double)bytes * 1e9 / (double)ns);
    return 0;
}
