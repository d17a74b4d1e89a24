/* A lock that is granted in the order of the requests, without a waiting thread. A change holds it from its validation
 * until the database has answered. The caller holds the mutex of the object that the lock belongs to; nothing here
 * takes a mutex. */
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

/* Returns true if the caller has the lock. Else the waiter stands in line, and a later gb_fifo_lock_release returns
 * it. */
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

/* Releases the lock. Returns its new holder, or NULL if the lock is free. */
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
