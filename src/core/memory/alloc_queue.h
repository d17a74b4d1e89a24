/* Allocations that wait for memory, in the order of their coming. Each queue is one lane's alone. */
#ifndef GB_CORE_MEMORY_ALLOC_QUEUE_H
#define GB_CORE_MEMORY_ALLOC_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

struct gb_alloc;

struct gb_alloc_queue {
    struct gb_alloc *first;
    uint64_t next_ns; /* the next try, unless something is freed before */
    bool freed;       /* since the last try */
};

/* The allocation waits behind the others. It is tried for the first time in a while, or when something is freed. */
void gb_alloc_queue_put(struct gb_alloc_queue *queue, struct gb_alloc *alloc);

/* It is time to try again. */
bool gb_alloc_queue_due(const struct gb_alloc_queue *queue);

/* Tries all in order. over(alloc, arg): true when the allocation waits no longer, and then it may be gone. Returns whether
 * any wait still. */
bool gb_alloc_queue_retry(struct gb_alloc_queue *queue, bool (*over)(struct gb_alloc *alloc, void *arg), void *arg);

#endif
