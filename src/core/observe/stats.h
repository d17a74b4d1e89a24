/* Samples the numbers of daemon, sessions, pools and devices, and sends them to the database, a few at a time. */
#ifndef GB_CORE_OBSERVE_STATS_H
#define GB_CORE_OBSERVE_STATS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "core/public/observe.h"
#include "model/model.h"

struct gb_sampler {
    pthread_mutex_t lock; /* for the next three */
    pthread_cond_t idle;
    bool under_way;
    struct gb_counters counted;   /* the counters as the samples in the database have them */
    uint64_t counted_ns;          /* when they were, on the monotonic clock */
    pthread_mutex_t outside_lock; /* for the next four, and held while it reads */
    void (*outside)(void *arg, struct gb_outside *ret);
    void *outside_arg;
    bool was_outside;
    struct gb_outside last_outside; /* at its last reading: for the sample at the end */
    _Atomic uint64_t requests;      /* as of the last sample, as the next two */
    _Atomic uint64_t cpu_ns;
    _Atomic uint64_t store_queue_ns;
};

/* NULL when memory is exhausted. gb_sampler_free accepts NULL. */
struct gb_sampler *gb_sampler_new(void);
void gb_sampler_free(struct gb_sampler *sampler);

/* Takes one sample of everything, and saves the lifetime counters with it. False: the last sample is still on its way,
 * or memory is exhausted; then only this sample is lost. The housekeeper's thread, or after that has ended. */
bool gb_sampler_take(struct gb_core *core);

/* Waits until no sample is on its way. */
void gb_sampler_wait(struct gb_core *core);

#endif
