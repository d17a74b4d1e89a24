/* In a program that links this, clocks for durations run FASTER times as fast, and so do waits with a limit, in libcurl
 * and libmicrohttpd as well. Leases, intervals and time-outs of seconds are then tested with the daemon's own values,
 * without the waiting. Waits without a limit, the wall clock, the time-outs of check and other processes do not
 * change. Under the thread sanitizer, which slows programs down more than this and has its own calls in these places,
 * nothing is faster. */
#ifndef __SANITIZE_THREAD__
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define FASTER 5
#define NS_PER_S 1000000000ll

/* The calls for which these stand. */
int clock_gettime(clockid_t clock, struct timespec *ret);
int poll(struct pollfd *fds, nfds_t count, int timeout_ms);
int epoll_wait(int fd, struct epoll_event *events, int max, int timeout_ms);
int usleep(useconds_t us);
int nanosleep(const struct timespec *time, struct timespec *left);
int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until);

static struct timespec of_ns(long long ns) {
    return (struct timespec){.tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S};
}

static struct timespec shorter(const struct timespec *time) {
    return of_ns((time->tv_sec * NS_PER_S + time->tv_nsec) / FASTER);
}

int clock_gettime(clockid_t clock, struct timespec *ret) {
    long r = syscall(SYS_clock_gettime, clock, ret);

    if (r == 0 && (clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_RAW || clock == CLOCK_BOOTTIME))
        *ret = of_ns((ret->tv_sec * NS_PER_S + ret->tv_nsec) * FASTER);
    return (int)r;
}

int poll(struct pollfd *fds, nfds_t count, int timeout_ms) {
    struct timespec time = of_ns(timeout_ms * 1000000ll / FASTER);

    return ppoll(fds, count, timeout_ms < 0 ? NULL : &time, NULL);
}

int epoll_wait(int fd, struct epoll_event *events, int max, int timeout_ms) {
    return epoll_pwait(fd, events, max, timeout_ms < 0 ? -1 : (timeout_ms + FASTER - 1) / FASTER, NULL);
}

int nanosleep(const struct timespec *time, struct timespec *left) {
    struct timespec less = shorter(time);

    (void)left; /* no signal comes */
    return clock_nanosleep(CLOCK_MONOTONIC, 0, &less, NULL);
}

int usleep(useconds_t us) {
    struct timespec time = of_ns(us * 1000ll);

    return nanosleep(&time, NULL);
}

/* All conditions of the daemon that are waited for so are of CLOCK_MONOTONIC. */
int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until) {
    struct timespec at = shorter(until);

    return pthread_cond_clockwait(cond, mutex, CLOCK_MONOTONIC, &at);
}
#else
typedef int gb_no_fast_clock;
#endif
