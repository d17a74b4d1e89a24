#include "core/memory/last_transfer.h"

#include <stdlib.h>

#include "base/clock.h"

void gb_last_transfer_keep_locked(struct gb_content *content, enum gb_direction direction, uint64_t bytes,
                                  uint64_t queue_ns, uint64_t copy_ns) {
    if (!content || bytes < GB_LAST_TRANSFER_BYTES)
        return;
    if (!content->last)
        content->last = malloc(sizeof(*content->last));
    if (!content->last) /* only the times are missing then */
        return;
    *content->last = (struct gb_last_transfer){.direction = direction,
                                               .bytes = bytes,
                                               .queue_ns = queue_ns,
                                               .copy_ns = copy_ns,
                                               .finished_at_us = gb_wall_us()};
}

void gb_last_transfer_keep(struct gb_content *content, enum gb_direction direction, uint64_t bytes, uint64_t queue_ns,
                           uint64_t copy_ns) {
    if (!content || bytes < GB_LAST_TRANSFER_BYTES)
        return;
    pthread_mutex_lock(&content->session->lock);
    gb_last_transfer_keep_locked(content, direction, bytes, queue_ns, copy_ns);
    pthread_mutex_unlock(&content->session->lock);
}
