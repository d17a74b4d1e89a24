/* Checkpoints: the buffers of one session as they were at one moment, kept on disk. Included by core.h. */
#ifndef GB_CORE_PUBLIC_CHECKPOINT_H
#define GB_CORE_PUBLIC_CHECKPOINT_H

#include "core/public/durable.h"
#include "disk/checkpoint.h"

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
    size_t told; /* of those skipped, the first ones */
    struct gb_sweep_skip tell[GB_SWEEP_TOLD];
};

/* Keeps the bytes of the buffers as of one moment. Bytes that the disk has are linked, others are read from memory and
 * written; writers go on meanwhile. Buffers that a process maps for writing are left out, unless unstable. Errors:
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
/* [now] The first ones, at most GB_SWEEP_TOLD. Returns how many; 0 also if the checkpoint is not there. */
size_t gb_checkpoint_damages(struct gb_core *core, const struct gb_name *name,
                             struct gb_checkpoint_damage ret[GB_SWEEP_TOLD]);
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
    size_t told;
    struct gb_sweep_skip tell[GB_SWEEP_TOLD]; /* CONTENT_DAMAGED, CONTENT_LOST */
    size_t files[GB_SWEEP_TOLD];              /* of those, counted from 0 */
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
    size_t told;
    struct gb_sweep_skip tell[GB_SWEEP_TOLD];
};

/* Makes the buffers again, all or none. Their bytes are on disk alone at first. A buffer that was not durable becomes
 * so, with durability BEHIND. Errors: CHECKPOINT_NOT_FOUND, CHECKPOINT_INCOMPLETE, SESSION_NOT_FOUND, BUFFER_NOT_FOUND
 * for a name that the checkpoint lacks, BUFFER_EXISTS, SEALED, BUFFER_BUSY, INVALID_NAME, QUOTA_EXCEEDED,
 * LIMIT_REACHED, DEVICE_NOT_FOUND, CONTENT_DAMAGED, CONTENT_LOST, and those of the disk. */
void gb_checkpoint_restore(struct gb_core *core, const struct gb_restore_params *params, struct gb_restore_call *call);

/* --- its files ---------------------------------------------------------------------------------------------------- */

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
/* In place of end: the bytes are not what they should be. The result is *why, when what they brought is taken back. */
void gb_checkpoint_put_refuse(struct gb_checkpoint_put *put, const struct gb_error *why);
/* 1: it is there; 0: wake comes; -1. The manifest also fails with CHECKPOINT_INCOMPLETE if a file lacks or is not what
 * it says. */
int gb_checkpoint_put_result(struct gb_checkpoint_put *put, uint32_t *ret_crc32c, bool *ret_replaced,
                             struct gb_error *err);
void gb_checkpoint_put_free(struct gb_checkpoint_put *put); /* NULL is accepted */

#endif
