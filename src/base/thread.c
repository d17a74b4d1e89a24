/* Threads, timed waits, and workers, threads that run one function when they are kicked or after a delay. Threads take
 * no signals but SIGSYS, and have a name and a stack of fixed size. All folders of the daemon call it. */
#include "base/thread.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"

/* --- thread ------------------------------------------------------------------------------------------------------- */

void gb_waker_run(const struct gb_waker *waker) {
    if (waker->fn)
        waker->fn(waker->arg);
}

void gb_mutex_init(pthread_mutex_t *mutex) {
    pthread_mutexattr_t attr;

    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(mutex, &attr);
    pthread_mutexattr_destroy(&attr);
}

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

struct start {
    void *(*main)(void *arg);
    void *arg;
    char name[16];
};

/* The thread names itself. Another thread's name is set by a file of /proc, which few processes may write. */
static void *begin(void *arg) {
    struct start start = *(struct start *)arg;

    free(arg);
    pthread_setname_np(pthread_self(), start.name);
    return start.main(start.arg);
}

int gb_thread_start(pthread_t *ret, const char *name, void *(*main)(void *arg), void *arg, struct gb_error *err) {
    struct start *start = malloc(sizeof(*start));
    sigset_t blocked;
    sigset_t before;
    int r;

    if (!start)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    *start = (struct start){.main = main, .arg = arg};
    snprintf(start->name, sizeof(start->name), "%s", name);
    sigfillset(&blocked);
    sigdelset(&blocked, SIGSYS);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    r = pthread_create(ret, NULL, begin, start);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r == 0)
        return 0;
    free(start);
    return gb_error_errno(err, GB_ERR_INTERNAL, "pthread_create", r);
}

/* The size that Linux gives without a limit, with which the daemon is tested. Untouched pages take no memory. */
#define STACK_BYTES ((size_t)8 << 20)

void gb_thread_stacks(void) {
    pthread_attr_t attr;
    size_t bytes = 0;

    if (pthread_getattr_default_np(&attr) != 0)
        return;
    if (pthread_attr_getstacksize(&attr, &bytes) == 0 && bytes < STACK_BYTES &&
        pthread_attr_setstacksize(&attr, STACK_BYTES) == 0)
        (void)pthread_setattr_default_np(&attr);
    pthread_attr_destroy(&attr);
}

uint64_t gb_thread_cpu_ns(void) {
    struct timespec ts;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * GB_NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* --- worker ------------------------------------------------------------------------------------------------------- */

/* Returns true if a run is due, false if the worker stops. */
static bool wait_for_run(struct gb_worker *worker, uint64_t delay_ms) {
    struct timespec until = gb_after_ms(delay_ms);
    bool stopping;
    int r = 0;

    pthread_mutex_lock(&worker->lock);
    while (!worker->stopping && !worker->kicked && r == 0)
        r = delay_ms > 0 ? pthread_cond_timedwait(&worker->wake, &worker->lock, &until)
                         : pthread_cond_wait(&worker->wake, &worker->lock);
    worker->kicked = false;
    stopping = worker->stopping;
    pthread_mutex_unlock(&worker->lock);
    return !stopping;
}

static void *worker_main(void *arg) {
    struct gb_worker *worker = arg;
    uint64_t delay_ms = worker->first_ms;

    while (wait_for_run(worker, delay_ms))
        delay_ms = worker->fn(worker->arg);
    return NULL;
}

void gb_worker_init(struct gb_worker *worker) {
    *worker = (struct gb_worker){.started = false};
    gb_mutex_init(&worker->lock);
    gb_cond_init(&worker->wake);
}

void gb_worker_done(struct gb_worker *worker) {
    pthread_cond_destroy(&worker->wake);
    pthread_mutex_destroy(&worker->lock);
}

int gb_worker_start(struct gb_worker *worker, const char *name, uint64_t first_ms, gb_worker_fn *fn, void *arg,
                    struct gb_error *err) {
    worker->first_ms = first_ms;
    worker->fn = fn;
    worker->arg = arg;
    worker->started = gb_thread_start(&worker->thread, name, worker_main, worker, err) == 0;
    return worker->started ? 0 : -1;
}

void gb_worker_kick(struct gb_worker *worker) {
    pthread_mutex_lock(&worker->lock);
    worker->kicked = true;
    pthread_cond_signal(&worker->wake);
    pthread_mutex_unlock(&worker->lock);
}

void gb_worker_stop(struct gb_worker *worker) {
    if (!worker->started)
        return;
    pthread_mutex_lock(&worker->lock);
    worker->stopping = true;
    pthread_cond_signal(&worker->wake);
    pthread_mutex_unlock(&worker->lock);
    pthread_join(worker->thread, NULL);
    worker->started = false;
}
