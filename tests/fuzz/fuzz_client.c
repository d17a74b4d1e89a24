#include "fuzz_client.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>

#include <linux/sockios.h>

#include "base/clock.h"

size_t gb_fuzz_expand(const uint8_t *data, size_t size, char *out) {
    size_t n = 0;
    size_t i;

    for (i = 2; i < size && n < GB_FUZZ_BYTES_MAX; i++) {
        if (data[i] == 1 && i + 1 < size && n > 0) {
            size_t times = (size_t)1 << (data[++i] & 15);

            for (; times > 0 && n < GB_FUZZ_BYTES_MAX; times--, n++)
                out[n] = out[n - 1];
        } else {
            out[n++] = data[i] == 2 ? '\0' : (char)data[i];
        }
    }
    return n;
}

/* Reads the available bytes. Returns false if the connection has ended. */
static bool drain(int fd, int timeout_ms) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char waste[65536];
    ssize_t n;

    while (poll(&p, 1, timeout_ms) > 0) {
        n = recv(fd, waste, sizeof(waste), MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN))
            return false;
        timeout_ms = 0;
    }
    return true;
}

bool gb_fuzz_ends(int fd) {
    uint64_t end = gb_clock_ns() + GB_FUZZ_PATIENCE_NS;

    while (gb_clock_ns() < end) {
        if (!drain(fd, 100))
            return true;
    }
    return false;
}

void gb_fuzz_until_taken(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    struct timespec pause = {.tv_nsec = GB_NS_PER_MS / 10};
    int queued = 0;
    int turns;

    for (turns = 0; turns < 1000; turns++) {
        if (ioctl(fd, SIOCOUTQ, &queued) < 0 || queued == 0 || poll(&p, 1, 0) > 0)
            return;
        nanosleep(&pause, NULL);
    }
}

static size_t piece(unsigned how, uint32_t *state, const char *at, size_t n) {
    const char *end;

    switch (how) {
    case 0:
        return n;
    case 1: /* line by line */
        end = memchr(at, '\n', n);
        return end ? (size_t)(end - at) + 1 : n;
    default:
        *state = *state * 1664525 + 1013904223;
        return n < 64 || *state >> 30 ? 1 + (*state >> 8) % (n < 64 ? n : 64) : n / 2;
    }
}

bool gb_fuzz_send(int fd, const char *data, size_t n, uint8_t way, uint8_t seed) {
    unsigned how = way >> 1 & 3;
    uint32_t state = seed;
    unsigned pieces = 0;

    while (n > 0) {
        size_t want = ++pieces > 200 ? n : piece(how, &state, data, n);
        struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT};
        ssize_t sent;

        if (poll(&p, 1, 2000) <= 0 || ((p.revents & POLLIN) && !drain(fd, 0)))
            return false;
        if (!(p.revents & POLLOUT))
            continue;
        sent = send(fd, data, want, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0)
            return false;
        data += sent;
        n -= (size_t)sent;
        if (how != 0 && (seed & 1))
            gb_fuzz_until_taken(fd);
    }
    return true;
}
