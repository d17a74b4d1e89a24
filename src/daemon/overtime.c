/* The end of the process when the device does not come to an end: a stream that stalls would hold it up for ever. What
 * was acknowledged is in the database already. */
#include "daemon/overtime.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"

/* Giving back gigabytes of pinned memory takes seconds, whatever the options permit. */
#define LEAST_S 10

#define TICK_MS 500

struct gb_overtime {
    pthread_t thread;
    struct gb_log log;
    int signal_fd;
    int over_fd; /* readable: all ended in time */
    uint64_t seconds;
};

/* A signal that asks for the end: others are taken and mean nothing now. */
static bool asked_again(const struct gb_overtime *o) {
    struct signalfd_siginfo info;

    while (read(o->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT)
            return true;
    }
    return false;
}

static void *watch(void *arg) {
    struct gb_overtime *o = arg;
    struct pollfd fds[2] = {{.fd = o->over_fd, .events = POLLIN}, {.fd = o->signal_fd, .events = POLLIN}};
    uint64_t end_ns = gb_clock_ns() + o->seconds * GB_NS_PER_S;
    bool again = false;

    while (!again && gb_clock_ns() < end_ns) {
        poll(fds, 2, TICK_MS);
        if (fds[0].revents != 0)
            return NULL;
        again = fds[1].revents != 0 && asked_again(o);
    }
    gb_log(&o->log, GB_LOG_ERROR, "stopping", "%s: what the device still does is left to its driver",
           again ? "a further signal" : "the device's work does not end");
    _exit(GB_EXIT_SOFTWARE);
}

struct gb_overtime *gb_overtime_start(const struct gb_log *log, int signal_fd, uint64_t seconds) {
    struct gb_overtime *o = calloc(1, sizeof(*o));

    if (!o)
        return NULL;
    *o = (struct gb_overtime){.log = *log, .signal_fd = signal_fd, .seconds = seconds > LEAST_S ? seconds : LEAST_S};
    o->over_fd = eventfd(0, EFD_CLOEXEC);
    if (o->over_fd >= 0 && pthread_create(&o->thread, NULL, watch, o) == 0)
        return o;
    if (o->over_fd >= 0)
        close(o->over_fd);
    free(o);
    return NULL;
}

void gb_overtime_end(struct gb_overtime *overtime) {
    uint64_t one = 1;

    if (!overtime)
        return;
    if (write(overtime->over_fd, &one, sizeof(one)) == sizeof(one))
        pthread_join(overtime->thread, NULL);
    close(overtime->over_fd);
    free(overtime);
}
