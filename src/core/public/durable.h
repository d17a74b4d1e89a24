/* What core.h shows of bytes on disk: durable buffers, checkpoints and scrubs. */
#ifndef GB_CORE_PUBLIC_DURABLE_H
#define GB_CORE_PUBLIC_DURABLE_H

#include <sys/queue.h>

#include "core/public/call.h"
#include "core/public/types.h"
#include "disk/checkpoint.h"
#include "disk/disk.h"

struct gb_core;

/* --- durable buffers: their bytes on disk, and back in memory ----------------------------------------------------- */

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

/* The result for a session's buffers. Those that could not be moved are skipped, with the reason. */
#define GB_SWEEP_LISTED 100
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
    size_t listed_count; /* of those skipped, the first ones */
    struct gb_sweep_skip listed[GB_SWEEP_LISTED];
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

/* --- checkpoints: the buffers of one session as they were at one moment, kept on disk ----------------------------- */

#define GB_CHECKPOINTS_MAX 64 /* of one session */

struct gb_checkpoint_view {
    int64_t number; /* the order of lists; another one after a restart */
    struct gb_name name;
    struct gb_name session; /* "": clients bring it, and its session is not known yet */
    bool complete;
    int64_t as_of_us; /* the four of a complete one */
    uint64_t buffers;
    uint64_t bytes;
    uint64_t damaged_files; /* that the latest look at each has found so, since the daemon began */
};

/* Which buffers: those of the names, else all. names are borrowed during the call. */
struct gb_checkpoint_names {
    const struct gb_name *names;
    size_t count;
    bool given;
};

struct gb_checkpoint_params {
    struct gb_name session;
    struct gb_name name;
    struct gb_name prefix; /* of the names; "": all */
    struct gb_checkpoint_names names;
    bool lenient;  /* buffers that cannot be read are left out */
    bool unstable; /* buffers that a process may be writing are taken as they are */
};

struct gb_checkpoint_call {
    struct gb_call base;
    struct gb_checkpoint_view view;
    uint64_t linked_bytes;
    uint64_t written_bytes;
    uint64_t skipped;
    size_t listed_count; /* of those skipped, the first ones */
    struct gb_sweep_skip listed[GB_SWEEP_LISTED];
};

/* Keeps the bytes of the buffers as of one moment. Bytes that the disk has are linked, others are read from memory and
 * written; writers continue meanwhile. Buffers that a process maps for writing are left out, unless unstable. Errors:
 * CHECKPOINT_EXISTS; LIMIT_REACHED; BUFFER_NOT_FOUND, BUFFER_BUSY, BUFFER_PARTIAL, CONTENT_LOST, CONTENT_DAMAGED,
 * ESCAPED, ADOPTED, unless lenient; STORAGE_FULL, STORAGE_FAILED, STORAGE_UNAVAILABLE; UNSUPPORTED without a data
 * folder. */
void gb_checkpoint_create(struct gb_core *core, const struct gb_checkpoint_params *params,
                          struct gb_checkpoint_call *call);

/* [now] Errors: CHECKPOINT_NOT_FOUND. */
int gb_checkpoint_get(struct gb_core *core, const struct gb_name *name, struct gb_checkpoint_view *ret,
                      struct gb_error *err);
/* Files that a scrub, or gb_checkpoint_verify, has found to be damaged. */
struct gb_checkpoint_damage {
    char file[GB_MANIFEST_FILE_SIZE];
    enum gb_code code; /* CONTENT_DAMAGED, CONTENT_LOST */
};
/* [now] The first ones, at most GB_SWEEP_LISTED. Returns how many; 0 also if the checkpoint is not there. */
size_t gb_checkpoint_damages(struct gb_core *core, const struct gb_name *name,
                             struct gb_checkpoint_damage ret[GB_SWEEP_LISTED]);
/* A file of an incomplete one. */
struct gb_checkpoint_brought {
    char file[GB_MANIFEST_FILE_SIZE];
    uint64_t size;
    uint32_t crc32c;
};
/* [now] Those that clients brought to this process, in their order: at most `room` from the file *index on, which is
 * moved behind them. Returns how many; 0: there are no more. */
size_t gb_checkpoint_brought(struct gb_core *core, const struct gb_name *name, size_t *index,
                             struct gb_checkpoint_brought *ret, size_t room);
/* [now] Visits at most page->limit checkpoints with number > page->after. session NULL: of all. */
int gb_checkpoint_list(struct gb_core *core, struct gb_page *page, const struct gb_name *session,
                       int (*visit)(void *arg, const struct gb_checkpoint_view *view, struct gb_error *err), void *arg,
                       struct gb_error *err);
/* Buffers that were restored from it keep their bytes. Errors: CHECKPOINT_NOT_FOUND, BUFFER_BUSY while it is made,
 * STORAGE_FAILED, STORAGE_UNAVAILABLE. */
void gb_checkpoint_delete(struct gb_core *core, const struct gb_name *name, struct gb_call *call);

struct gb_checkpoint_verify_call {
    struct gb_call base;
    uint64_t buffers; /* that were read */
    uint64_t bytes;
    uint64_t damaged;
    size_t listed_count;
    struct gb_sweep_skip listed[GB_SWEEP_LISTED]; /* CONTENT_DAMAGED, CONTENT_LOST */
    size_t files[GB_SWEEP_LISTED];                /* of those, counted from 0 */
};
/* Reads all files and compares their checksums. Errors: CHECKPOINT_NOT_FOUND, CHECKPOINT_INCOMPLETE, CONTENT_DAMAGED
 * for the manifest. */
void gb_checkpoint_verify(struct gb_core *core, const struct gb_name *name, struct gb_checkpoint_verify_call *call);

struct gb_restore_params {
    struct gb_name checkpoint;
    struct gb_name into;   /* "": the session that it is of */
    struct gb_name prefix; /* goes before the names of the buffers; "": none */
    struct gb_checkpoint_names names;
    bool replace; /* buffers of those names; else they are refused */
    bool eager;   /* the bytes are loaded before the call ends, as by gb_session_load */
    bool has_device;
    int device;
};

struct gb_restore_call {
    struct gb_call base;
    struct gb_name session;
    uint64_t buffers;
    uint64_t bytes;
    uint64_t replaced;
    uint64_t loaded;  /* and in memory at the end */
    uint64_t skipped; /* that were restored, and not loaded */
    size_t listed_count;
    struct gb_sweep_skip listed[GB_SWEEP_LISTED];
};

/* Makes the buffers again, all or none. Their bytes are on disk alone at first. A buffer that was not durable becomes
 * so, with durability BEHIND. Errors: CHECKPOINT_NOT_FOUND, CHECKPOINT_INCOMPLETE, SESSION_NOT_FOUND, BUFFER_NOT_FOUND
 * for a name that the checkpoint lacks, BUFFER_EXISTS, SEALED, BUFFER_BUSY, INVALID_NAME, QUOTA_EXCEEDED,
 * LIMIT_REACHED, DEVICE_NOT_FOUND, CONTENT_DAMAGED, CONTENT_LOST, and those of the disk. */
void gb_checkpoint_restore(struct gb_core *core, const struct gb_restore_params *params, struct gb_restore_call *call);

/* --- files of a checkpoint ---------------------------------------------------------------------------------------- */

/* A file that is read for a client. */
struct gb_checkpoint_read;

/* [now] Begins to open a file. INVALID_ARGUMENT for a name that no file has; CHECKPOINT_NOT_FOUND. */
int gb_checkpoint_read_open(struct gb_core *core, const struct gb_name *name, const char *file, struct gb_waker waker,
                            struct gb_checkpoint_read **ret, struct gb_error *err);
struct gb_checkpoint_file {
    uint64_t size;
    bool has_crc32c;
    uint32_t crc32c;
};
/* Returns 1 when it is open; 0: wake comes; -1 with CONTENT_LOST and the like. */
int gb_checkpoint_read_head(struct gb_checkpoint_read *read, struct gb_checkpoint_file *ret, struct gb_error *err);
/* Once: which bytes. */
void gb_checkpoint_read_start(struct gb_checkpoint_read *read, uint64_t offset, uint64_t length);
/* As the functions of a download. */
int gb_checkpoint_read_next(struct gb_checkpoint_read *read, const void **ret_ptr, size_t *ret_n, struct gb_error *err);
void gb_checkpoint_read_sent(struct gb_checkpoint_read *read, size_t n);
void gb_checkpoint_read_free(struct gb_checkpoint_read *read); /* NULL is accepted */

/* A file that a client brings. The first one makes the checkpoint, which is complete with its manifest. */
struct gb_checkpoint_put;

struct gb_checkpoint_put_params {
    struct gb_name name;
    struct gb_name session; /* that it must be of; "": any */
    const char *file;       /* borrowed during the call */
    uint64_t size;
    struct gb_waker waker;
};
/* [now] CHECKPOINT_EXISTS if it is complete, or another session's; INVALID_ARGUMENT for a name that no file has;
 * BUFFER_BUSY; those of gb_disk_check_room. */
int gb_checkpoint_put_begin(struct gb_core *core, const struct gb_checkpoint_put_params *params,
                            struct gb_checkpoint_put **ret, struct gb_error *err);
/* As those of an upload. */
int gb_checkpoint_put_room(struct gb_checkpoint_put *put, void **ret_ptr, size_t *ret_n, struct gb_error *err);
int gb_checkpoint_put_fill(struct gb_checkpoint_put *put, size_t n, struct gb_error *err);
void gb_checkpoint_put_end(struct gb_checkpoint_put *put);
/* Called in place of end if the bytes are wrong. The result is *why, when what they brought is taken back. */
void gb_checkpoint_put_refuse(struct gb_checkpoint_put *put, const struct gb_error *why);
/* 1: it is there; 0: wake comes; -1. The manifest also fails with CHECKPOINT_INCOMPLETE if a file lacks or is not what
 * it says. */
int gb_checkpoint_put_result(struct gb_checkpoint_put *put, uint32_t *ret_crc32c, bool *ret_replaced,
                             struct gb_error *err);
void gb_checkpoint_put_free(struct gb_checkpoint_put *put); /* NULL is accepted */

/* --- scrubs: passes over all files of buffers' bytes, which find damage before a request does --------------------- */

/* Of the pass that runs, or of the latest one. */
struct gb_scrub_pass {
    int64_t began_us;
    uint64_t files; /* that were looked at */
    uint64_t bytes; /* that were read */
    uint64_t damaged;
    uint64_t healed;  /* of the damaged: written again from memory */
    uint64_t skipped; /* that could not be read for a reason that is not theirs */
};

struct gb_scrub_numbers {
    bool running;
    bool known; /* there was a pass since the daemon began, which pass describes */
    struct gb_scrub_pass pass;
    int64_t last_ended_us; /* of the latest pass that came to its end, also before the daemon began; 0: none */
    uint64_t bytes;        /* of all passes since the daemon began, as the next two */
    uint64_t damaged;
    uint64_t healed;
};
/* [now] */
void gb_scrub_stat(struct gb_core *core, struct gb_scrub_numbers *ret);

/* A buffer whose file was damaged. */
struct gb_scrub_find {
    struct gb_name session;
    struct gb_name buffer;
    enum gb_code code; /* CONTENT_DAMAGED; CONTENT_LOST: the file is missing */
    bool healed;
};
#define GB_SCRUB_LISTED 100

struct gb_scrub_call {
    struct gb_call base;
    struct gb_scrub_pass pass; /* as it ended */
    size_t listed_count;       /* of the damaged ones, the first */
    struct gb_scrub_find listed[GB_SCRUB_LISTED];
};

/* Begins a pass, or joins the one that runs; rate is the most bytes a second from now on, 0: as configured. The call
 * ends with the pass. A file whose bytes are not those that were written is reported by a notice, and is written again
 * if the same bytes are in memory. Errors: INVALID_ARGUMENT where no rate is configured and none is given;
 * STORAGE_UNAVAILABLE without a data folder, or when it has gone; DRAINING. */
void gb_storage_scrub(struct gb_core *core, uint64_t rate, struct gb_scrub_call *call);

#endif
