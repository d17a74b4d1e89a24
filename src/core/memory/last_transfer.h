/* The times of a content's last large transfer, which the reply's header left too early to tell. */
#ifndef GB_CORE_MEMORY_LAST_TRANSFER_H
#define GB_CORE_MEMORY_LAST_TRANSFER_H

#include "core/memory/content.h"

/* Keeps the transfer, which ended now, if it was large. content may be NULL. The session's lock is held. */
void gb_last_transfer_keep_locked(struct gb_content *content, enum gb_direction direction, uint64_t bytes,
                                  uint64_t queue_ns, uint64_t copy_ns);

/* The same, with the lock taken where the transfer was large. */
void gb_last_transfer_keep(struct gb_content *content, enum gb_direction direction, uint64_t bytes, uint64_t queue_ns,
                           uint64_t copy_ns);

#endif
