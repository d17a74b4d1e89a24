/* What core.h shows of observation: the audit, statistics, history, the feed, selftests and the log of allocations. */
#ifndef GB_CORE_PUBLIC_OBSERVE_H
#define GB_CORE_PUBLIC_OBSERVE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/error.h"
#include "base/text.h"
#include "base/thread.h"
#include "core/public/call.h"
#include "core/public/types.h"
#include "model/audit.h"
#include "model/history.h"
#include "model/model.h"
#include "store/store.h"

struct gb_audit;
struct gb_call;
struct gb_content;
struct gb_core;
struct gb_feed;
struct gb_selftests;

/* --- audit -------------------------------------------------------------------------------------------------------- */

/* What is recorded now; never AUTO. [now] */
enum gb_audit_mode gb_audit_mode(struct gb_core *core);

/* Copies the record, to the table and to the file. The first one is preceded by daemon.started. [any thread, never
 * blocks] */
void gb_audit_note(struct gb_core *core, const struct gb_audit_rec *rec);

/* The same of a request that was refused or changed nothing, and that the client can repeat at will: repetitions become
 * one record with a count, and all of them have a share of the rows, so that they displace no record of a change. [any
 * thread, never blocks] */
void gb_audit_note_refusal(struct gb_core *core, const struct gb_audit_rec *rec);
/* Records repetitions that are due. About once a second. */
void gb_audit_tick(struct gb_core *core);

/* Whether nothing is ever recorded. [now] */
bool gb_audit_never(const struct gb_core *core);

/* The daemon serves: notes daemon.started if something is recorded now. */
void gb_audit_started(struct gb_core *core);
/* The daemon stops: the last record, if there was a first. No request is served any more. */
void gb_audit_stopped(struct gb_core *core);

/* As gb_store_audit_read. [blocks: on a compute lane] */
int gb_audit_read(struct gb_core *core, const struct gb_audit_query *query, gb_audit_visit_fn *visit, void *arg,
                  int64_t *ret_next, struct gb_error *err);

/* Opens the file again: it was rotated. [any thread, never blocks] */
void gb_audit_reopen(struct gb_core *core);

struct gb_audit_numbers {
    struct gb_audit_log_stat table;
    uint64_t file_failures;     /* records that the file has not taken */
    struct gb_error file_error; /* the latest reason */
};
void gb_audit_numbers(struct gb_core *core, struct gb_audit_numbers *ret);

/* Appends one record to a file, for the commands beside a daemon. A file that root makes gets the owner of dir, which
 * is the daemon's. Returns 0 or -1. */
int gb_audit_append(const char *path, const char *dir, const struct gb_audit_rec *rec, struct gb_error *err);

/* Opens the file. Returns 0 or -1; a disk without room for the file is no failure. gb_audit_free accepts NULL, and
 * writes what waits. */
int gb_audit_new(const struct gb_audit_config *config, struct gb_audit **ret, struct gb_error *err);
void gb_audit_free(struct gb_audit *audit);

/* --- statistics --------------------------------------------------------------------------------------------------- */

/* Transfers by direction and kind of memory, since start. */
struct gb_kind_counters {
    uint64_t count;
    uint64_t bytes;
    uint64_t copy_ns;  /* 0 where the CPU reaches the memory */
    uint64_t queue_ns; /* waited behind earlier work */
};

struct gb_core_stats {
    uint64_t sequence; /* raised by every acknowledged change */
    int64_t started_at_us;
    struct gb_counters counters; /* lifetime */
    uint64_t sessions;
    uint64_t buffers;
    uint64_t buffer_bytes;
    uint64_t lost_buffers;
    uint64_t damaged_buffers; /* whose bytes on disk were found so */
    uint64_t stored_buffers;  /* whose bytes are on disk alone */
    uint64_t mirrored_buffers;
    uint64_t mirrored_bytes; /* of these, which have them on one side or on both */
    uint64_t tables;         /* buffers of many tensors */
    uint64_t table_bytes;    /* of those that have their bytes */
    uint64_t links;          /* names beyond the first of bytes in memory that several have */
    uint64_t link_bytes;     /* that would be in memory, too, if each had its own */
    bool keeper;             /* there is one, and it is alive */
    uint64_t kept;           /* allocations that it has */
    uint64_t kept_bytes;     /* of them */
    uint64_t kept_found;     /* of them, those that were there at the start */
    uint64_t kept_left_out;  /* allocations that it has no room for, since the start */
    uint64_t leases;         /* granted, not ended */
    uint64_t held_bytes;     /* deleted, replaced or lost, and still mapped */
    uint64_t adopted;        /* pieces of memory of other processes that are mapped here */
    uint64_t adopted_bytes_max;
    uint64_t uploads_running;
    uint64_t open_upload_bytes; /* held by uploads in several requests that are not completed */
    uint64_t downloads_running;
    uint64_t writes_running; /* copies, fills, syncs of mirrored buffers */
    struct gb_kind_counters kinds[GB_DIRECTION_COUNT][GB_KIND_COUNT];
    struct gb_level_numbers level;                       /* of all memory for buffers */
    struct gb_memory_numbers kind_memory[GB_KIND_COUNT]; /* the same by kind of memory */
    uint64_t pinned_bytes;                               /* page-locked host memory, slots included */
    uint64_t pinned_limit_bytes;                         /* GB_UNLIMITED: none */
    uint64_t slots_total;
    uint64_t slots_free;
    uint64_t slot_bytes;
    uint64_t slot_waits;   /* times a transfer found no slot free */
    uint64_t slots_wanted; /* transfers that stand in line now */
    struct gb_store_stat store;
    struct gb_audit_numbers audit;
};

/* [now] Cheap. */
uint64_t gb_core_sequence(struct gb_core *core);
void gb_core_stats(struct gb_core *core, struct gb_core_stats *ret);

struct gb_session_stats {
    uint64_t sequence;
    struct gb_session_view session;
    struct gb_counters counters; /* since the session was loaded or made */
    struct gb_level_numbers level;
    uint64_t lost_buffers;
    uint64_t leases; /* as gb_core_stats; those being made included */
    uint64_t held_bytes;
    uint64_t adopted;
    uint64_t open_uploads; /* in several requests, not completed */
    uint64_t open_upload_bytes;
};
int gb_session_stats(struct gb_core *core, const struct gb_name *name, struct gb_session_stats *ret,
                     struct gb_error *err);

/* --- history: samples that the housekeeper takes ------------------------------------------------------------------ */

/* Numbers of the daemon that the core does not know, asked for before each sample. [the housekeeper's thread, must not
 * block] */
struct gb_outside {
    uint64_t connections;
    uint64_t requests; /* since the process began */
};
/* Sets their reader. NULL: they stay as they are now. Returns when the former reader is not running any more. */
void gb_core_set_outside(struct gb_core *core, void (*read)(void *arg, struct gb_outside *ret), void *arg);

/* A device's memory and the share of its pools, those of sessions included, as of the last housekeeping.
 * DEVICE_NOT_FOUND. [now] */
struct gb_device_numbers {
    uint64_t total_bytes;
    uint64_t free_bytes;
    uint64_t pools;
    uint64_t pools_used_bytes;
    uint64_t reserved_bytes;
    struct gb_memory_numbers memory;
};
int gb_device_numbers(struct gb_core *core, int device, struct gb_device_numbers *ret, struct gb_error *err);

/* [now] Between two samples; 0: none are taken. */
uint64_t gb_history_interval_s(const struct gb_core *core);

/* The key of an object's history. SESSION_NOT_FOUND, POOL_NOT_FOUND, DEVICE_NOT_FOUND. [now] */
int gb_history_of_session(struct gb_core *core, const struct gb_name *session, struct gb_history_key *ret,
                          struct gb_error *err);
int gb_history_of_pool(struct gb_core *core, const struct gb_locator *at, struct gb_history_key *ret,
                       struct gb_error *err);
int gb_history_of_device(struct gb_core *core, int device, struct gb_history_key *ret, struct gb_error *err);

/* A query under way. done runs once, on any thread or inside gb_history_ask. Both sides hold a reference:
 * gb_history_call_new returns two, and the core gives its own back after done. */
struct gb_history_call {
    atomic_int refs;
    atomic_bool finished; /* error and answer may be read once this is true */
    void (*done)(void *arg);
    void *arg;
    struct gb_error error;
    struct gb_history_answer answer;
};
struct gb_history_call *gb_history_call_new(void (*done)(void *arg), void *arg); /* NULL when memory is exhausted */
void gb_history_call_unref(struct gb_history_call *call);

/* Starts the query. INVALID_ARGUMENT (in call->error) if the step is too small, SATURATED. [now] */
void gb_history_ask(struct gb_core *core, const struct gb_history_query *query, struct gb_history_call *call);

/* --- feed of events: the newest in memory, the rest in the database ----------------------------------------------- */

/* Which events. session: those of it and those of no session; "": all. prefix: those of buffers whose names begin with
 * it and those of no buffer; "": all. */
struct gb_feed_filter {
    uint64_t types; /* 1 << enum gb_notice_type */
    struct gb_name session;
    struct gb_name prefix;
};

/* A piece of the feed. The caller gives room for `max` notices. */
struct gb_feed_piece {
    int64_t after;   /* in: events above */
    bool newest;     /* in: instead, the newest `max` that are in memory */
    size_t look_max; /* in: the most events to read, matching or not; 0: no bound */
    struct gb_feed_filter filter;
    struct gb_notice *notices;
    size_t max;
    size_t count;        /* out */
    int64_t through;     /* out: all up to here were read */
    int64_t gap_through; /* out: of the others above `after`, up to here, some are no longer in the log; 0: none */
    int64_t last;        /* out: newest of all, matching or not */
};

/* Sets the listener: waker is called when there is more, and must not block nor call the core. Without fn: none. [any
 * thread, never blocks] */
void gb_feed_watch(struct gb_core *core, struct gb_waker waker);

/* The newest event that can be read; the newest that was given an id. [now] */
int64_t gb_feed_last(struct gb_core *core);
int64_t gb_feed_given(struct gb_core *core);

/* Reads from memory. False: the piece reaches further back. [now] */
bool gb_feed_recall(struct gb_core *core, struct gb_feed_piece *piece);
/* Reads from memory or from the database. [blocks] */
int gb_feed_read(struct gb_core *core, struct gb_feed_piece *piece, struct gb_error *err);
/* The same on a compute lane; the core uses piece until the call has ended. */
void gb_feed_fetch(struct gb_core *core, struct gb_feed_piece *piece, struct gb_call *call);

/* Posts device.health: a change of a device's health, in a few words. [any thread, never blocks] */
void gb_feed_health(struct gb_core *core, int device, const char *detail);
/* Posts an event of the daemon itself. [any thread, never blocks] */
void gb_feed_say(struct gb_core *core, enum gb_notice_type type, const char *detail);

/* Posts daemon.stopping and waits until it can be read, for timeout_ms at most. */
void gb_feed_stopping(struct gb_core *core, unsigned timeout_ms);

/* NULL when memory is exhausted. gb_feed_free accepts NULL. */
struct gb_feed *gb_feed_new(void);
void gb_feed_free(struct gb_feed *feed);

/* Loads the newest from the database and posts daemon.started, after a feed.gap where the run before broke off; from
 * then on the feed hears of what is committed. */
int gb_feed_start(struct gb_core *core, struct gb_error *err);
void gb_feed_stop(struct gb_core *core);

/* --- selftest: what copies, allocations and pinning cost on this machine ------------------------------------------ */

#define GB_SELFTEST_SIZES 5
#define GB_SELFTEST_COPIES (GB_KIND_COUNT * 2 * GB_SELFTEST_SIZES)
#define GB_SELFTEST_ALLOCS 12
#define GB_SELFTEST_WHY sizeof(((struct gb_error *)0)->detail) /* a reason, with its NUL */
#define GB_SELFTEST_S_MAX 60                                   /* measurements that are not done by then are left out */

/* One line of a table. ns 0: not measured; why says it then. */
struct gb_selftest_copy {
    enum gb_kind kind;
    enum gb_copy_direction direction;
    uint64_t bytes; /* 0: the reason holds for each size */
    uint64_t ns;
    char why[GB_SELFTEST_WHY];
};

enum gb_selftest_case {
    GB_SELFTEST_FIRST, /* the pool grows */
    GB_SELFTEST_AGAIN, /* what was freed is there */
    GB_SELFTEST_BUSY,  /* work is queued on the device */
    GB_SELFTEST_CASES
};

/* Kind DEVICE: from a pool; kind IPC: cudaMalloc and cudaFree. */
struct gb_selftest_alloc {
    enum gb_kind kind;
    enum gb_selftest_case when;
    uint64_t bytes;
    uint64_t alloc_ns;
    uint64_t free_ns;
    char why[GB_SELFTEST_WHY];
};

/* A short copy from the device: alone, and behind earlier copies on its stream. */
struct gb_selftest_wait {
    uint64_t earlier_bytes;
    uint64_t bytes;
    uint64_t alone_ns; /* by a clock around it, as the next one */
    uint64_t seen_ns;
    uint64_t queued_ns;
    uint64_t copied_ns; /* 0: not measured */
    char why[GB_SELFTEST_WHY];
};

struct gb_selftest_pin {
    uint64_t bytes;
    uint64_t pin_ns; /* 0: not measured */
    uint64_t unpin_ns;
    char why[GB_SELFTEST_WHY];
};

struct gb_selftest_call {
    struct gb_call base;
    int device;
    uint64_t took_ns;
    unsigned copies;
    struct gb_selftest_copy copy[GB_SELFTEST_COPIES];
    unsigned allocs;
    struct gb_selftest_alloc alloc[GB_SELFTEST_ALLOCS];
    struct gb_selftest_wait wait;
    struct gb_selftest_pin pin;
};

/* Measures, on a thread for that, with a pool and a stream of its own; nothing is left behind. Takes at most a quarter
 * of the device's free memory for each of two blocks, up to 64 MiB. Selftests of several devices run one after another.
 * Errors: DEVICE_NOT_FOUND; SATURATED while one of that device runs; DRAINING when the daemon stops; those of the
 * backend where nothing could be measured. */
void gb_device_selftest(struct gb_core *core, int device, struct gb_selftest_call *call);

/* [now] Ends the selftest that runs at its next step, and permits no further ones: the daemon stops. */
void gb_selftests_stop(struct gb_core *core);

/* For the core's open and close. NULL when memory is exhausted. */
struct gb_selftests *gb_selftests_new(int devices);
void gb_selftests_free(struct gb_selftests *selftests); /* joins the thread; no selftest runs. NULL is accepted. */

/* --- log of allocations ------------------------------------------------------------------------------------------- */

/* Device memory that was taken and given back, as far as a ring of fixed size goes back, and the memory that is taken
 * now. Memory of the host (pinned, pageable, adopted) is in neither. */

enum gb_alloc_log_action { GB_ALLOC_LOG_ALLOC, GB_ALLOC_LOG_FREE, GB_ALLOC_LOG_FAILURE };

/* Longer names are cut. */
#define GB_ALLOC_LOG_NAME_SIZE 48

struct gb_alloc_log_event {
    uint64_t number; /* from 1 on, without gaps */
    int64_t at_us;
    uint64_t address; /* 0: of a failure */
    uint64_t bytes;
    uint64_t free_bytes; /* of a failure: the device's free memory, as of the last sample */
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

void gb_alloc_log_refused(const struct gb_content *content);

/* The reserved memory of each live pool, as of the last sample; id 0: a device's own. visit is called without locks. */
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
