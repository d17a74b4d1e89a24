/* The end of the process when the device does not come to an end: a stream that stalls would hold it up for ever. What
 * was acknowledged is in the database already. */
#include "daemon/overtime.h"

#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Giving back gigabytes of pinned memory takes seconds, whatever the options permit. */
#define LEAST_S 10

struct gb_overtime {
    pthread_t thread;
    struct gb_log log;
    int signal_fd;
    int over_fd; /* readable: all ended in time */
    uint64_t seconds;
};

static void *watch(void *arg) {
    struct gb_overtime *o = arg;
    struct pollfd fds[2] = {{.fd = o->over_fd, .events = POLLIN}, {.fd = o->signal_fd, .events = POLLIN}};
    int timeout_ms = o->seconds > INT32_MAX / 1000 ? INT32_MAX : (int)(o->seconds * 1000);
    int n = poll(fds, 2, timeout_ms);

    if (fds[0].revents != 0)
        return NULL;
    gb_log(&o->log, GB_LOG_ERROR, "stopping", "%s: what the device still does is left to its driver",
           n > 0 ? "a further signal" : "the device's work does not end");
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
