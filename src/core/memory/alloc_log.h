/* The log of allocations: device memory that was taken and given back, as far as a ring of fixed size goes back, and
 * the memory that is taken now. Memory of the host (pinned, pageable, adopted) is in neither. Included by core.h. */
#ifndef GB_CORE_MEMORY_ALLOC_LOG_H
#define GB_CORE_MEMORY_ALLOC_LOG_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/error.h"
#include "base/text.h"
#include "model/model.h"

struct gb_content;
struct gb_core;

enum gb_alloc_log_action { GB_ALLOC_LOG_ALLOC, GB_ALLOC_LOG_FREE, GB_ALLOC_LOG_FAILURE };

/* Longer names are cut. */
#define GB_ALLOC_LOG_NAME_SIZE 48

struct gb_alloc_log_event {
    uint64_t number; /* from 1 on, without gaps */
    int64_t at_us;
    uint64_t address; /* 0: of a failure */
    uint64_t bytes;
    uint64_t free_bytes; /* of a failure: the device's free memory, as of the last look */
    int64_t session_id;
    int64_t stream_id; /* 0: "default" */
    int64_t pool_id;   /* 0: the device's own, or none */
    int device;
    enum gb_kind kind;
    enum gb_alloc_log_action action;
    char session[GB_ALLOC_LOG_NAME_SIZE];
    char buffer[GB_ALLOC_LOG_NAME_SIZE]; /* the buffer that it was made for */
};

/* Streams of two sessions may have the same id: one number for both. */
static inline uint64_t gb_alloc_log_stream(int64_t session_id, int64_t stream_id) {
    return (uint64_t)session_id << 20 | ((uint64_t)stream_id & 0xfffff);
}

struct gb_alloc_log_block {
    uint64_t number; /* of the event that took it */
    uint64_t address;
    uint64_t bytes;
    int64_t session_id;
    int64_t stream_id;
    int64_t pool_id;
    int device;
    enum gb_kind kind;
    bool leaving; /* no buffer has it any more; a reader or a lease still does */
    struct gb_name session;
    struct gb_name buffer;
    struct gb_name pool;
};

/* [now] Numbers of the events that are kept: [*ret_first, *ret_end). Equal: none. */
void gb_alloc_log_range(struct gb_core *core, uint64_t *ret_first, uint64_t *ret_end);

/* [now] How many events are kept at most. */
uint64_t gb_alloc_log_room(const struct gb_core *core);

/* Copies at most n events, numbered from *from on and before end, to out, and moves *from behind them; events that are
 * no longer kept are passed over. Returns how many; 0: there are no more. Holds a leaf's lock for a copy of n: ask for
 * hundreds. [now] */
unsigned gb_alloc_log_events(struct gb_core *core, uint64_t *from, uint64_t end, struct gb_alloc_log_event *out,
                             unsigned n);

/* Visits all memory that is taken now, in the order of taking, without locks. Blocks may come and go meanwhile, so two
 * visited blocks can have the same address: the later one has it. [any thread; not an HTTP loop if there may be
 * many] */
int gb_alloc_log_blocks(struct gb_core *core,
                        int (*visit)(void *arg, const struct gb_alloc_log_block *, struct gb_error *), void *arg,
                        struct gb_error *err);

/* --- the core's --------------------------------------------------------------------------------------------------- */

/* In a content, or a reader's place in the list. */
struct gb_alloc_log_link {
    TAILQ_ENTRY(gb_alloc_log_link) entry;
    bool place;
    uint64_t number; /* 0: not in the list */
};
TAILQ_HEAD(gb_alloc_log_list, gb_alloc_log_link);

struct gb_alloc_log {
    pthread_mutex_t lock; /* a leaf; for all below */
    struct gb_alloc_log_list live;
    struct gb_alloc_log_event *ring; /* the event numbered n is at n % room; NULL: none is kept */
    uint64_t room;
    uint64_t next; /* number */
};

/* NULL when memory is exhausted. gb_alloc_log_free accepts NULL. */
struct gb_alloc_log *gb_alloc_log_new(uint64_t room);
void gb_alloc_log_free(struct gb_alloc_log *alloc_log);

/* content has memory now; it is given back, logged once; the device refused to give it; its memory is gone without a
 * free. */
void gb_alloc_log_taken(struct gb_content *content);
void gb_alloc_log_freed(struct gb_content *content);
void gb_alloc_log_refused(const struct gb_content *content);
void gb_alloc_log_forget(struct gb_content *content);

#endif
