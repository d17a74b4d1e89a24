#ifndef GB_FLEET_FIND_H
#define GB_FLEET_FIND_H

#include "fleet/state.h"

/* The epoch above which a new session of that name begins. Clients may know an owner that the directory has lost and
 * that is cut off. */
uint64_t gb_epoch_floor(struct gb_fleet *fleet, const struct gb_name *session);
struct gb_find_cache *gb_find_cache_new(void);
void gb_find_cache_free(struct gb_find_cache *cache);
/* Drops the session from the cache. [with the lock] */
void gb_find_cache_forget(struct gb_find_cache *cache, const struct gb_name *session);

#endif
