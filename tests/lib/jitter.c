#include "jitter.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

/* One call in this number gives way. */
#define GIVES_WAY 24

/* The longest moment, which is halved any number of times. */
#define MOMENT_NS 4000000u

static atomic_bool on;
static atomic_uint threads;
static _Thread_local uint32_t state;

int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __real_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex);

void jitter_set(bool is_on) {
    atomic_store(&on, is_on);
}

/* Each thread has its own numbers. */
static uint32_t number(uint32_t below) {
    if (state == 0)
        state = (atomic_fetch_add(&threads, 1) + 1) * 2654435761u;
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state % below;
}

static void give_way(void) {
    struct timespec moment = {.tv_sec = 0};

    if (!atomic_load_explicit(&on, memory_order_relaxed) || number(GIVES_WAY) > 0)
        return;
    moment.tv_nsec = (long)(number(MOMENT_NS) >> number(16));
    nanosleep(&moment, NULL);
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex) {
    give_way();
    return __real_pthread_mutex_lock(mutex);
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex) {
    int r = __real_pthread_mutex_unlock(mutex);

    give_way();
    return r;
}
