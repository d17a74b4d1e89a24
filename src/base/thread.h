/* Threads: locks, conditions and timed waits, threads by name, periodic workers, and the waker by which a wait is
 * reported to have ended. */
#ifndef GB_BASE_THREAD_H
#define GB_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/error.h"

/* A lock that is held for a moment only: a thread that finds it taken tries again for a while before it sleeps. */
void gb_mutex_init(pthread_mutex_t *mutex);

/* A condition on the monotonic clock, and the absolute time that is ms from now. */
void gb_cond_init(pthread_cond_t *cond);
struct timespec gb_after_ms(uint64_t ms);

/* A thread that takes no signals: they are the daemon's main thread's business. It takes SIGSYS alone, by which a
 * system call is refused on the thread that makes it. */
int gb_thread_start(pthread_t *ret, const char *name, void *(*main)(void *arg), void *arg, struct gb_error *err);

/* Threads that are made from now on, also those of libraries, have room for what they call: otherwise a shell's limit
 * on the stack (ulimit -s) is their size. For the beginning of main. */
void gb_thread_stacks(void);

/* The time that the calling thread has run for. */
uint64_t gb_thread_cpu_ns(void);

/* A worker: a thread that runs one function when it is kicked and after a delay that the function chooses. It serves
 * periodic work alone. Lanes, HTTP loops, transfer loops, the feed, the closer, the store's threads and the backends'
 * threads have queues or epoll sets of their own, and the health watch leaves a hung thread behind. */

/* One run. [the worker's thread, without its lock] Returns the milliseconds until the next run, or 0 when the next run
 * waits for a kick. */
typedef uint64_t gb_worker_fn(void *arg);

/* The fields are the worker's own. */
struct gb_worker {
    pthread_mutex_t lock; /* guards stopping and kicked */
    pthread_cond_t wake;
    pthread_t thread;
    gb_worker_fn *fn;
    void *arg;
    uint64_t first_ms;
    bool started; /* the owner's */
    bool stopping;
    bool kicked;
};

/* Prepares a worker without a thread, so that it can be kicked. gb_worker_done ends a worker that has no thread: one
 * that was stopped or never started. */
void gb_worker_init(struct gb_worker *worker);
void gb_worker_done(struct gb_worker *worker);

/* Starts the thread of a prepared worker, once. The first run comes after first_ms, or with the first kick when that is
 * 0 or when the kick is earlier. arg is borrowed until gb_worker_stop. Returns 0, or -1 with INTERNAL. */
int gb_worker_start(struct gb_worker *worker, const char *name, uint64_t first_ms, gb_worker_fn *fn, void *arg,
                    struct gb_error *err);

/* Asks for a run as soon as possible. Kicks before a run begins count as one; a kick during a run brings another run. A
 * kick before the start brings the first run forward; a kick after the stop has no effect. [any thread, never blocks,
 * between gb_worker_init and gb_worker_done] */
void gb_worker_kick(struct gb_worker *worker);

/* Waits for a run that is under way and ends the thread; no further run begins. A zeroed worker, and one that was not
 * started or is stopped, is accepted. [the owner's thread, never the worker's] */
void gb_worker_stop(struct gb_worker *worker);

/* The way in which a function reports to its caller that a wait has ended. */

struct gb_waker {
    void (*fn)(void *arg); /* NULL: no wake */
    void *arg;
};

void gb_waker_run(const struct gb_waker *waker);

#endif
