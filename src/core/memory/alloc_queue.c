#include "core/memory/alloc_queue.h"

#include "base/clock.h"
#include "core/memory/content.h"

#define RETRY_NS (10 * GB_NS_PER_MS) /* frees of other streams and processes show up without our doing */

void gb_alloc_queue_put(struct gb_alloc_queue *queue, struct gb_alloc *alloc) {
    struct gb_alloc **at = &queue->first;

    if (!*at)
        queue->next_ns = gb_clock_ns() + RETRY_NS;
    while (*at)
        at = &(*at)->next;
    alloc->next = NULL;
    *at = alloc;
    queue->freed = false;
}

bool gb_alloc_queue_due(const struct gb_alloc_queue *queue) {
    return queue->first && (queue->freed || gb_clock_ns() >= queue->next_ns);
}

bool gb_alloc_queue_retry(struct gb_alloc_queue *queue, bool (*over)(struct gb_alloc *alloc, void *arg), void *arg) {
    struct gb_alloc **at = &queue->first;
    struct gb_alloc *alloc;
    struct gb_alloc *next;

    queue->freed = false;
    for (alloc = *at; alloc; alloc = next) {
        next = alloc->next;
        if (over(alloc, arg))
            *at = next;
        else
            at = &alloc->next;
    }
    queue->next_ns = gb_clock_ns() + RETRY_NS;
    return queue->first != NULL;
}
