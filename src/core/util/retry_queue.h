/* Objects that wait to be tried again, in the order of their coming. Each queue is one lane's alone. */
#ifndef GB_CORE_UTIL_RETRY_QUEUE_H
#define GB_CORE_UTIL_RETRY_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

struct gb_retry_waiter {
    struct gb_retry_waiter *next;
};

struct gb_retry_queue {
    struct gb_retry_waiter *first;
    uint64_t next_ns; /* the next try, unless something is freed before */
    bool freed;       /* since the last try */
};

/* The waiter goes behind the others. It is tried after a while, or when something is freed. */
void gb_retry_queue_put(struct gb_retry_queue *queue, struct gb_retry_waiter *waiter);

/* Is it time to try again? False for an empty queue. */
bool gb_retry_queue_due(const struct gb_retry_queue *queue);

/* Tries all in order. over(waiter, arg) returns true when the waiter waits no longer; it may be gone then. Returns true
 * while any wait. */
bool gb_retry_queue_run(struct gb_retry_queue *queue, bool (*over)(struct gb_retry_waiter *waiter, void *arg),
                        void *arg);

#endif
