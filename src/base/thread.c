#include "base/thread.h"

#include <signal.h>

#include "base/clock.h"

void gb_cond_init(pthread_cond_t *cond) {
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

struct timespec gb_after_ms(uint64_t ms) {
    uint64_t at_ns = gb_clock_ns() + ms * GB_NS_PER_MS;

    return (struct timespec){.tv_sec = (time_t)(at_ns / GB_NS_PER_S), .tv_nsec = (long)(at_ns % GB_NS_PER_S)};
}

int gb_thread_start(pthread_t *ret, const char *name, void *(*main)(void *arg), void *arg, struct gb_error *err) {
    sigset_t all;
    sigset_t before;
    int r;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    r = pthread_create(ret, NULL, main, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r != 0)
        return gb_error_errno(err, GB_ERR_INTERNAL, "pthread_create", r);
    pthread_setname_np(*ret, name);
    return 0;
}
