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

struct gb_level_numbers {
    uint64_t bytes; /* now */
    uint64_t peak_bytes;
    uint64_t largest_bytes; /* one allocation */
};

struct gb_memory_numbers {
    struct gb_level_numbers level;
    uint64_t allocations;
    uint64_t allocated_bytes;
    uint64_t frees;
    uint64_t freed_bytes;
    uint64_t retries; /* after a trim or a wait */
    uint64_t trims;   /* of pools, to make room for an allocation here */
    uint64_t failures;
    uint64_t failure[GB_FAILURES]; /* of them */
};

/* --- the core's ----------------------------------------------------------------------------------------------------- */

/* What the daemon and a session have besides their counters. */
struct gb_level {
    _Atomic uint64_t bytes;
    _Atomic uint64_t peak_bytes;
    _Atomic uint64_t largest_bytes;
};

/* A device's, a pool's, a kind's. */
struct gb_alloc_counters {
    struct gb_level level;
    _Atomic uint64_t allocations;
    _Atomic uint64_t allocated_bytes;
    _Atomic uint64_t frees;
    _Atomic uint64_t freed_bytes;
    _Atomic uint64_t retries;
    _Atomic uint64_t trims;
    _Atomic uint64_t failures;
    _Atomic uint64_t failure[GB_FAILURES];
    struct { /* as of the last sample */
        _Atomic uint64_t allocations;
        _Atomic uint64_t frees;
        _Atomic uint64_t failures;
    } past;
};

/* Count it wherever it belongs. [any thread] */
void gb_alloc_stats_taken(struct gb_content *content);
void gb_alloc_stats_freed(struct gb_content *content);
void gb_alloc_stats_retried(struct gb_content *content);
void gb_alloc_stats_trimmed(struct gb_content *content, unsigned pools);
/* For good. pool_limit: it was the pool's own limit. */
void gb_alloc_stats_refused(struct gb_content *content, const struct gb_error *why, bool pool_limit);

/* The session or the daemon may hold no more; no device was asked. */
void gb_alloc_stats_denied(struct gb_session *session, const struct gb_error *why);

void gb_level_read(struct gb_level *level, struct gb_level_numbers *ret);
void gb_alloc_counters_read(struct gb_alloc_counters *live_counters, struct gb_memory_numbers *ret);

#endif
