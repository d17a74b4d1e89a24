/* The pools, as they are shown beside the log of allocations. Included by core.h. */
#ifndef GB_CORE_OBSERVE_ALLOC_LOG_VIEW_H
#define GB_CORE_OBSERVE_ALLOC_LOG_VIEW_H

#include <stdint.h>

#include "base/error.h"
#include "base/text.h"

struct gb_core;

/* The reserved memory of each pool that lives, as of the last look; id 0: a device's own. visit is called without
 * locks. */
struct gb_alloc_log_pool {
    int64_t id;
    int device;
    uint64_t reserved_bytes;
    struct gb_name name;
};
int gb_alloc_log_pools(struct gb_core *core,
                       int (*visit)(void *arg, const struct gb_alloc_log_pool *, struct gb_error *), void *arg,
                       struct gb_error *err);

#endif
