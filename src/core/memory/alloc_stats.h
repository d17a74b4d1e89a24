/* What was allocated for buffers and given back, counted for the daemon, its sessions, devices, pools and kinds of memory alike. All of it is since
 * the daemon began (or the session or pool was loaded or made), while the counters of counters.h last; bytes are those that were asked for. */
#ifndef GB_CORE_MEMORY_ALLOC_STATS_H
#define GB_CORE_MEMORY_ALLOC_STATS_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/error.h"
#include "model/failure.h"

struct gb_content;
struct gb_session;

/* Count it wherever it belongs. [any thread] */
void gb_alloc_stats_taken(struct gb_content *content);
void gb_alloc_stats_freed(struct gb_content *content);
void gb_alloc_stats_retried(struct gb_content *content);
void gb_alloc_stats_trimmed(struct gb_content *content, unsigned pools);
/* For good. pool_limit: it was the pool's own limit. */
void gb_alloc_stats_refused(struct gb_content *content, const struct gb_error *why, bool pool_limit);

/* The session or the daemon may hold no more; no device was asked. */
void gb_alloc_stats_denied(struct gb_session *session, const struct gb_error *why);

#endif
