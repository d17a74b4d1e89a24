/* Allocations and frees of buffers' memory, counted for the daemon, its sessions, devices, pools and kinds of memory.
 * The counts begin with the daemon, or when the session or pool was loaded or made; bytes are those asked for. */
#ifndef GB_CORE_MEMORY_ALLOC_STATS_H
#define GB_CORE_MEMORY_ALLOC_STATS_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/error.h"
#include "model/history.h"

struct gb_content;
struct gb_session;

/* Count it in all scopes of the content. [any thread] */
void gb_alloc_stats_taken(struct gb_content *content);
void gb_alloc_stats_freed(struct gb_content *content);
void gb_alloc_stats_retried(struct gb_content *content);
void gb_alloc_stats_trimmed(struct gb_content *content, unsigned pools);
/* Counts a failure for good. pool_limit: the pool's own limit refused it. */
void gb_alloc_stats_refused(struct gb_content *content, const struct gb_error *why, bool pool_limit);

#endif
