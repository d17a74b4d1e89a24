/* Threads and timed waits. */
#ifndef GB_BASE_THREAD_H
#define GB_BASE_THREAD_H

#include <pthread.h>
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

#endif
