/* The ceiling of the feed: a server that sends the same bytes to all listeners at a fixed rate, with one send() each.
 * It keeps only the descriptor of a listener. */
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "util.h"

#define HEAD "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"

struct fan {
    int *listeners;
    size_t count;
    size_t room;
    char *frame;
    size_t bytes;
};

/* "event:" for clients that count events, and an empty line at the end. */
static char *make_frame(size_t bytes) {
    static const char begin[] = "id: 1\nevent: x\ndata: ";
    char *frame = malloc(bytes);

    if (!frame || bytes < sizeof begin + 2)
        bench_die("no memory, or too few --bytes");
    memset(frame, 'x', bytes);
    memcpy(frame, begin, sizeof begin - 1);
    memcpy(frame + bytes - 2, "\n\n", 2);
    return frame;
}

static void add(struct fan *fan, int fd) {
    if (fan->count == fan->room) {
        fan->room = fan->room ? 2 * fan->room : 1024;
        fan->listeners = realloc(fan->listeners, fan->room * sizeof fan->listeners[0]);
        if (!fan->listeners)
            bench_die("no memory");
    }
    bench_nodelay(fd);
    fan->listeners[fan->count++] = fd;
    if (!bench_send_all(fd, HEAD, sizeof HEAD - 1))
        bench_die("a listener left");
}

static void send_to_all(const struct fan *fan) {
    size_t i;

    for (i = 0; i < fan->count; i++)
        if (send(fan->listeners[i], fan->frame, fan->bytes, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno == EAGAIN)
            bench_die("a listener does not read");
}

static int timer_of(unsigned rate) {
    struct itimerspec every = {{0, 0}, {0, 0}};
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);

    every.it_interval.tv_sec = rate == 1;
    every.it_interval.tv_nsec = rate == 1 ? 0 : 1000000000L / rate;
    every.it_value = every.it_interval;
    if (fd < 0 || timerfd_settime(fd, 0, &every, NULL) < 0)
        bench_die("timerfd: %s", strerror(errno));
    return fd;
}

int main(int argc, char **argv) {
    static const struct option table[] = {{"bytes", 1, NULL, 'b'}, {"rate", 1, NULL, 'r'}, {NULL, 0, NULL, 0}};
    struct fan fan = {.bytes = 256};
    struct pollfd fds[2] = {{.events = POLLIN}, {.events = POLLIN}};
    unsigned rate = 10;
    uint64_t ticks;
    int port = 0;
    int c;

    while ((c = getopt_long(argc, argv, "", table, NULL)) != -1) {
        if (c == 'b')
            fan.bytes = bench_parse_size(optarg, "bytes");
        else if (c == 'r')
            rate = (unsigned)bench_parse_size(optarg, "rate");
        else
            bench_die("usage: gb-bench-fan [--bytes SIZE] [--rate N]");
    }
    if (rate == 0)
        bench_die("--rate must not be 0");
    bench_raise_nofile();
    fan.frame = make_frame(fan.bytes);
    fds[0].fd = bench_listen(0, &port);
    fds[1].fd = timer_of(rate);
    printf("PORT %d\n", port);
    fflush(stdout);
    for (;;) {
        int fd;

        if (poll(fds, 2, -1) < 0)
            continue;
        if (fds[0].revents && (fd = accept(fds[0].fd, NULL, NULL)) >= 0)
            add(&fan, fd);
        if (fds[1].revents && read(fds[1].fd, &ticks, sizeof ticks) == sizeof ticks)
            send_to_all(&fan);
    }
}
