#include "wire.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util.h"

bool bench_wire_send(const struct bench_wire *wire, const void *data, size_t bytes, bool more) {
    if (wire->tls)
        return bench_tls_send(wire->tls, data, bytes, more);
    /* What follows at once is a body, whose first send takes the head along. */
    return more ? send(wire->fd, data, bytes, MSG_NOSIGNAL | MSG_MORE) == (ssize_t)bytes
                : bench_send_all(wire->fd, data, bytes);
}

bool bench_wire_sendv(const struct bench_wire *wire, struct iovec *vec, int count) {
    int i;

    if (!wire->tls)
        return bench_sendv_all(wire->fd, vec, count);
    for (i = 0; i < count; i++)
        if (!bench_tls_send(wire->tls, vec[i].iov_base, vec[i].iov_len, i + 1 < count))
            return false;
    return true;
}

ssize_t bench_wire_recv(const struct bench_wire *wire, void *room, size_t bytes) {
    ssize_t n;

    if (wire->tls)
        return bench_tls_recv(wire->tls, room, bytes);
    do
        n = recv(wire->fd, room, bytes, 0);
    while (n < 0 && errno == EINTR);
    return n;
}

bool bench_wire_pending(const struct bench_wire *wire) {
    return wire->tls && bench_tls_pending(wire->tls);
}

void bench_wire_close(struct bench_wire *wire) {
    if (wire->tls)
        bench_tls_close(wire->tls);
    if (wire->fd >= 0)
        close(wire->fd);
    *wire = BENCH_WIRE_NONE;
}
