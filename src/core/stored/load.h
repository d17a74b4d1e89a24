/* Loads: bytes that are on disk alone come into memory because a request wants them. The request is refused with
 * NOT_LOADED, waits for the end of a load (gb_loads_wait) and is made again. */
#ifndef GB_CORE_STORED_LOAD_H
#define GB_CORE_STORED_LOAD_H

#include <sys/queue.h>

#include "core/public/durable.h"
#include "core/runtime/runtime.h"

/* One load of a buffer, shared by the buffer and the thread that carries it out. Guarded by the session's lock. */
struct gb_load {
    unsigned refs;
    unsigned waiting; /* requests that are to learn of a failure */
    bool failed;
    uint64_t failed_ns; /* a failure is told for a second */
    struct gb_error error;
};

void gb_load_unref_locked(struct gb_load *load); /* NULL is accepted */

TAILQ_HEAD(gb_load_waiters, gb_load_waiter);

struct gb_loads {
    pthread_mutex_t lock; /* for the list; held while a waker runs */
    struct gb_load_waiters waiters;
    _Atomic uint64_t ended; /* loads, whatever became of them */
    _Atomic uint64_t loaded;
    _Atomic uint64_t loaded_bytes;
    _Atomic uint64_t failed;
    _Atomic uint64_t evicted;
    _Atomic uint64_t evicted_to_host;  /* of them, those that host memory has */
    _Atomic uint64_t loaded_from_host; /* of those that were loaded */
    _Atomic uint64_t evicted_for_room; /* of them, because others wanted the memory */
    _Atomic uint64_t reloaded;         /* loaded within a minute of leaving memory */
    _Atomic uint64_t sweeps;           /* loads of many, which have these numbers */
    _Atomic uint64_t cold_reads;       /* downloads from the disk itself */
};

struct gb_loads *gb_loads_new(void); /* NULL when memory is exhausted */
void gb_loads_free(struct gb_loads *loads);

/* A load has ended: wakes all that wait. No lock is held. */
void gb_loads_ended(struct gb_core *core);

#endif
