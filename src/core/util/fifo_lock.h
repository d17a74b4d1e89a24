/* Changes of one thing, one after the other: who has the turn keeps it from the decision until the database has answered.
 * Whoever holds the lock of the thing may call these; nothing here locks. */
#ifndef GB_CORE_UTIL_FIFO_LOCK_H
#define GB_CORE_UTIL_FIFO_LOCK_H

#include <stdbool.h>
#include <stddef.h>

struct gb_fifo_waiter {
    struct gb_fifo_waiter *next;
};

/* Zero-initialised is free. */
struct gb_fifo_lock {
    bool taken;
    struct gb_fifo_waiter *first;
    struct gb_fifo_waiter *last;
};

/* True: the turn is the caller's. False: it waits, and some gb_fifo_lock_release will return it. */
static inline bool gb_fifo_lock_acquire(struct gb_fifo_lock *fifo, struct gb_fifo_waiter *waiter) {
    waiter->next = NULL;
    if (!fifo->taken) {
        fifo->taken = true;
        return true;
    }
    if (fifo->last)
        fifo->last->next = waiter;
    else
        fifo->first = waiter;
    fifo->last = waiter;
    return false;
}

/* Gives the turn up. Returns who has it now, NULL when it is free. */
static inline struct gb_fifo_waiter *gb_fifo_lock_release(struct gb_fifo_lock *fifo) {
    struct gb_fifo_waiter *waiter = fifo->first;

    if (!waiter) {
        fifo->taken = false;
        return NULL;
    }
    fifo->first = waiter->next;
    if (!fifo->first)
        fifo->last = NULL;
    return waiter;
}

#endif
