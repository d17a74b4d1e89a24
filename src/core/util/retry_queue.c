#include "core/util/retry_queue.h"

#include "base/clock.h"

#define RETRY_NS (10 * GB_NS_PER_MS) /* frees of other streams and processes show up without our doing */

void gb_retry_queue_put(struct gb_retry_queue *queue, struct gb_retry_waiter *waiter) {
    struct gb_retry_waiter **at = &queue->first;

    if (!*at)
        queue->next_ns = gb_clock_ns() + RETRY_NS;
    while (*at)
        at = &(*at)->next;
    waiter->next = NULL;
    *at = waiter;
    queue->freed = false;
}

bool gb_retry_queue_due(const struct gb_retry_queue *queue) {
    return queue->first && (queue->freed || gb_clock_ns() >= queue->next_ns);
}

bool gb_retry_queue_run(struct gb_retry_queue *queue, bool (*over)(struct gb_retry_waiter *waiter, void *arg),
                        void *arg) {
    struct gb_retry_waiter **at = &queue->first;
    struct gb_retry_waiter *waiter;
    struct gb_retry_waiter *next;

    queue->freed = false;
    for (waiter = *at; waiter; waiter = next) {
        next = waiter->next;
        if (over(waiter, arg))
            *at = next;
        else
            at = &waiter->next;
    }
    queue->next_ns = gb_clock_ns() + RETRY_NS;
    return queue->first != NULL;
}
