/* Durable buffers: their bytes on disk, and back in memory. Included by core.h. */
#ifndef GB_CORE_PUBLIC_DURABLE_H
#define GB_CORE_PUBLIC_DURABLE_H

#include <sys/queue.h>

#include "core/public/call.h"
#include "core/public/types.h"
#include "disk/disk.h"

struct gb_core;

/* Stores the bytes that the buffer has now, whatever its durability "behind" would wait for. Bytes that are stored
 * already are left as they are. Result: call->buffer, and call->copied: bytes were written. Errors: INVALID_ARGUMENT
 * for durability NONE; MAPPED, ESCAPED, BUFFER_BUSY, BUFFER_PARTIAL, CONTENT_LOST; STORAGE_FULL, STORAGE_FAILED,
 * STORAGE_UNAVAILABLE. */
void gb_buffer_store(struct gb_core *core, const struct gb_locator *at, const struct gb_buffer_check *check,
                     struct gb_buffer_call *call);

/* [now] Wants the bytes in memory. Returns 0 with the record, as gb_buffer_get, if they are; -1 with NOT_LOADED while
 * they come, or with the reason why they cannot: OUT_OF_MEMORY, QUOTA_EXCEEDED, CONTENT_DAMAGED, CONTENT_LOST,
 * STORAGE_UNAVAILABLE. */
int gb_buffer_load(struct gb_core *core, const struct gb_locator *at, struct gb_buffer_rec *ret, struct gb_error *err);

/* Takes the bytes out of memory, which is given back when the call ends: the buffer is then STORED. Bytes that the disk
 * has are dropped. Others are written first: as durable ones if the buffer is, else as bytes that end with the process.
 * A buffer that is stored stays as it is. Result: call->buffer, and call->copied: the bytes have left. Errors:
 * INVALID_ARGUMENT for bytes too few to be written that are not durable; MAPPED, ESCAPED, ADOPTED, BUFFER_BUSY,
 * BUFFER_PARTIAL, CONTENT_LOST; STORAGE_FULL, STORAGE_FAILED, STORAGE_UNAVAILABLE, UNSUPPORTED. */
void gb_buffer_evict(struct gb_core *core, const struct gb_locator *at, const struct gb_buffer_check *check,
                     struct gb_buffer_call *call);

/* The same to where the caller says. HOST: host memory gets the bytes also if the disk has them, so that they come back
 * faster; STORAGE_FULL when it has no room, INVALID_ARGUMENT for bytes of the host. DISK: not there; what is STORED in
 * host memory goes to the disk. NEVER: as the buffer's spill says, to the disk if it says nothing. */
void gb_buffer_evict_to(struct gb_core *core, const struct gb_locator *at, const struct gb_buffer_check *check,
                        enum gb_spill to, struct gb_buffer_call *call);

/* What became of a session's buffers. Those that could not be moved are skipped, with the reason. */
#define GB_SWEEP_TOLD 100
struct gb_sweep_skip {
    struct gb_name name;
    enum gb_code code;
};
struct gb_sweep_call {
    struct gb_call base;
    enum gb_spill to; /* set before gb_session_evict */
    uint64_t buffers; /* that have moved; of loads, those that are in memory at their end */
    uint64_t bytes;
    uint64_t skipped;
    size_t told; /* of those skipped, the first ones */
    struct gb_sweep_skip tell[GB_SWEEP_TOLD];
};

/* As gb_buffer_evict_to, with call->to, and gb_buffer_load, for all buffers of the session whose names begin with the
 * prefix. A session that sleeps so takes no memory. Loads make room at the cost of other buffers alone: those that do
 * not fit are skipped with OUT_OF_MEMORY or QUOTA_EXCEEDED, and with NOT_LOADED those that have left again meanwhile.
 * Errors: SESSION_NOT_FOUND. */
void gb_session_evict(struct gb_core *core, const struct gb_name *session, const struct gb_name *prefix,
                      struct gb_sweep_call *call);
void gb_session_load(struct gb_core *core, const struct gb_name *session, const struct gb_name *prefix,
                     struct gb_sweep_call *call);

/* Any call may fail with NOT_LOADED: the bytes that it needs are on disk, and their load has begun. The caller waits
 * for the end of a load and calls again:
 *
 *     sequence = gb_loads_sequence(core);    before the call
 *     gb_loads_wait(core, sequence, waiter); after it: false if a load has ended since, so that it can call at once
 *
 * The waker runs once, on any thread, under a lock: it must not block and must not call gb_loads_wait or
 * gb_loads_leave. gb_loads_leave ends the wait; the waker does not run after it. [now] */
struct gb_load_waiter {
    struct gb_waker waker;
    bool listed; /* the core's, as link */
    TAILQ_ENTRY(gb_load_waiter) link;
};
uint64_t gb_loads_sequence(struct gb_core *core);
bool gb_loads_wait(struct gb_core *core, uint64_t sequence, struct gb_load_waiter *waiter);
void gb_loads_leave(struct gb_core *core, struct gb_load_waiter *waiter);

/* For statistics. */
struct gb_storage_numbers {
    bool present; /* there is a folder for the bytes of durable buffers */
    struct gb_disk_stat disk;
    bool commits; /* durable changes of the database are taken; else commit_error says why not */
    struct gb_error commit_error;
    uint64_t buffers;       /* whose bytes are on disk alone */
    uint64_t bytes;         /* of them */
    uint64_t movable_bytes; /* in memory, and may leave it when others want it */
    struct {                /* whose latest bytes are to be stored within the lag, as of the latest second */
        uint64_t buffers;
        uint64_t bytes;
        uint64_t ns; /* since the one that waits longest was written */
    } behind;
    uint64_t loads;
    uint64_t loaded_bytes;
    uint64_t load_failures;
    uint64_t evictions;          /* buffers whose bytes have left memory */
    uint64_t evictions_for_room; /* of them, because others wanted the memory */
    uint64_t evictions_to_host;  /* of all evictions */
    uint64_t loads_from_host;    /* of all loads */
    struct {
        uint64_t limit_bytes;
        uint64_t used_bytes;
        uint64_t kept_bytes; /* page-locked and of no use now */
        uint64_t buffers;
    } host;
    uint64_t reloads;    /* loads within a minute of leaving memory */
    uint64_t cold_reads; /* downloads from the disk itself */
};
/* [now, but for statvfs] */
void gb_storage_stat(struct gb_core *core, struct gb_storage_numbers *ret);

#endif
