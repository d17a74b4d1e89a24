/* A connection of the benchmark's programs, plain or over TLS. */
#ifndef GB_BENCH_WIRE_H
#define GB_BENCH_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "tls.h"

struct bench_wire {
    int fd;                /* -1: none */
    struct bench_tls *tls; /* NULL: plain */
};

#define BENCH_WIRE_NONE ((struct bench_wire){-1, NULL})

/* Transfer all bytes; return false if the peer closed. more: others follow at once. bench_wire_sendv changes the
 * vector. */
bool bench_wire_send(const struct bench_wire *wire, const void *data, size_t bytes, bool more);
bool bench_wire_sendv(const struct bench_wire *wire, struct iovec *vec, int count);

/* As recv does, on sockets that block and on those that do not. */
ssize_t bench_wire_recv(const struct bench_wire *wire, void *room, size_t bytes);
/* Whether bytes are there for which the socket has no event. */
bool bench_wire_pending(const struct bench_wire *wire);

void bench_wire_close(struct bench_wire *wire);

#endif
