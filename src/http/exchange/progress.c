#include "http/exchange/progress.h"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "http/http.h"

/* Checks come each second, more often, or a moment later. */
#define LOOK_MAX_NS (2 * GB_NS_PER_S)

uint64_t gb_socket_queued(int fd) {
    int bytes = 0;

    return ioctl(fd, SIOCOUTQ, &bytes) == 0 && bytes > 0 ? (uint64_t)bytes : 0;
}

void gb_socket_abandon(int fd) {
    struct linger now = {.l_onoff = 1, .l_linger = 0};

    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
}

/* *ret: all bytes that a TCP client ever acknowledged. False: the kernel does not say. */
static bool acknowledged(int fd, int64_t *ret) {
    struct tcp_info info;
    socklen_t len = sizeof(info);

    memset(&info, 0, sizeof(info));
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0 ||
        len < offsetof(struct tcp_info, tcpi_bytes_acked) + sizeof(info.tcpi_bytes_acked))
        return false;
    *ret = (int64_t)info.tcpi_bytes_acked;
    return true;
}

/* A number that rises by the bytes taken. It is not known how much libmicrohttpd has given to the kernel; the kernel's
 * queue alone would be the same whenever it was filled again. */
static int64_t reading(const struct gb_progress *p, int fd, bool local) {
    int64_t bytes;

    if (!p->counted && !local && acknowledged(fd, &bytes))
        return bytes;
    return (int64_t)p->out - (int64_t)gb_socket_queued(fd);
}

void gb_progress_begin(struct gb_progress *p, uint64_t now_ns) {
    *p = (struct gb_progress){.counted = true, .began_ns = now_ns, .moved_ns = now_ns, .looked_ns = now_ns};
}

/* The rest of a time without a check does not count: the loop was late, and may have given the client nothing. */
static void forgive(struct gb_progress *p, uint64_t now_ns) {
    uint64_t late_ns = now_ns - p->looked_ns;

    if (p->looked_ns == 0 || late_ns <= LOOK_MAX_NS)
        return;
    late_ns -= LOOK_MAX_NS;
    p->began_ns += late_ns;
    p->moved_ns += late_ns;
}

void gb_progress_look(struct gb_progress *p, int fd, bool local, uint64_t now_ns) {
    int64_t at = reading(p, fd, local);

    forgive(p, now_ns);
    if (!p->looked && (!p->counted || at < 0)) {
        /* Nothing is known of the time before: neither the first reading, nor how much of the queue an earlier reply
         * has left. */
        p->began_ns = p->moved_ns = now_ns;
        p->at = at;
    } else if (at > p->at) {
        p->taken += (uint64_t)(at - p->at);
        p->moved_ns = now_ns;
        p->at = at;
    } else if (!p->counted) {
        p->at = at; /* the queue was filled again: the next byte taken is progress all the same */
    }
    p->looked = true;
    p->looked_ns = now_ns;
}

void gb_progress_excuse(struct gb_progress *p, uint64_t now_ns) {
    if (p->began_ns == 0)
        return;
    p->began_ns += now_ns - p->looked_ns;
    p->moved_ns = now_ns;
    p->looked_ns = now_ns;
}

bool gb_progress_slow(const struct gb_progress *p, const struct gb_http_server_config *config, uint64_t now_ns) {
    uint64_t patience_ns = config->stall_timeout_s * GB_NS_PER_S;
    uint64_t elapsed_ns = now_ns - p->began_ns;

    if (patience_ns == 0 || p->began_ns == 0 || elapsed_ns < patience_ns)
        return false;
    return now_ns - p->moved_ns >= patience_ns ||
           (double)p->taken / ((double)elapsed_ns / GB_NS_PER_S) < (double)config->min_rate_bytes_s;
}
