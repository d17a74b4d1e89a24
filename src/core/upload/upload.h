/* An upload, for the files that make it up, lowest first: state.c makes every step, scatter.c places bytes that are not
 * contiguous, pipeline.c sends slots, receive.c takes bytes, prepare.c queues what comes first, commit.c commits, abort.c
 * cleans up, plan.c decides, upload.c begins.
 *
 * What differs between uploads is their role: a plain upload (commit.c), a member of a group (group.c), a device write
 * (device_write.c), and two in multipart/: the target, which owns the memory, and a part, which writes into it. */
#ifndef GB_CORE_UPLOAD_UPLOAD_H
#define GB_CORE_UPLOAD_UPLOAD_H

#include "core/buffer/transaction.h"
#include "core/public/upload.h"
#include "core/upload/pipeline.h"

/* --- the plan --------------------------------------------------------------------------------------------------------- */

/* What an upload does. Made once, under the session's lock; constant afterwards. */
struct gb_upload_plan {
    struct gb_buffer_params buffer; /* what the buffer is to be; a partial write: only session, name, stream */
    struct gb_view view;            /* scattered: where the payload goes */
    struct gb_buffer_check check;   /* check.arg is the upload's */
    struct gb_name pool_name;       /* of the buffer; "" for kinds that have none */
    unsigned wait_ms;
    uint64_t bytes;   /* of the buffer */
    uint64_t at;      /* where in the buffer the payload begins */
    uint64_t payload; /* bytes */
    bool open_ended;  /* the payload may end earlier */
    bool partial;     /* the buffer keeps its shape */
    bool scattered;
    bool merge;      /* bytes of the buffer outside the payload stay */
    bool zero;       /* and they are zeros */
    bool placed;     /* content has its memory already */
    bool in_place;   /* content is the buffer's own; what readers see is overwritten */
    bool direct;     /* the caller's bytes go into the memory itself */
    bool mirrored;   /* the next three: of a mirrored buffer */
    bool has_crc32c; /* the payload's checksum is known without reading the memory */
    uint32_t crc32c; /* of the payload, as far as it is known before the first byte */
    enum gb_side side;
    enum gb_head head;            /* afterwards */
    const struct gb_content *was; /* the side as it was found; compared only */
    enum gb_kind kind;            /* of content */
    int64_t base_id;              /* what a merge is built upon */
    int64_t base_generation;
};

/* A plan in the making; pointers are borrowed, under the session's lock. */
struct gb_upload_draft {
    struct gb_buffer *buffer;  /* NULL: a new one */
    struct gb_core_pool *pool; /* the device's own for kinds that have none */
    struct gb_name pool_name;
    enum gb_kind kind;
    uint64_t bytes;
    uint64_t at;
    uint64_t payload;
    bool merge;
    bool zero;
    bool in_place;
    bool mirrored;
    enum gb_side side;
    enum gb_head head;
    struct gb_content *place; /* memory that is there is written; NULL: fresh memory */
    struct gb_content *base; /* where the other bytes come from; NULL: they are in place, or zeros, or there are none */

    /* Of a device write, set by the role's plan: */
    struct gb_content *source; /* NULL: a fill, or the source is all zeros */
    uint64_t from;             /* where in source its bytes begin */
    bool by_device;            /* it is a device write */
    bool sync;                 /* one side of a mirrored buffer becomes as the other: no byte changes */
    bool all_or_nothing;       /* one of a transaction batch */
    bool has_crc32c;
    uint32_t crc32c;
};

/* --- the state -------------------------------------------------------------------------------------------------------- */

/* state.c has the table of the steps that are permitted. */
enum gb_upload_state {
    GB_UPLOAD_PLANNED,    /* nothing runs yet */
    GB_UPLOAD_ALLOCATING, /* memory is being got and prepared */
    GB_UPLOAD_OPEN,       /* bytes may come */
    GB_UPLOAD_ENDED,      /* all bytes came, or the device brings them; copies may be under way */
    GB_UPLOAD_COMMITTING, /* nothing is pending any more */
    GB_UPLOAD_DONE,
    GB_UPLOAD_FAILED /* the transfer's error says why */
};
#define GB_UPLOAD_STATES (GB_UPLOAD_FAILED + 1)

/* --- the role --------------------------------------------------------------------------------------------------------- */

/* What differs between uploads. plan, queue and committed may be NULL: a plan of params alone, a payload that the caller
 * brings, nothing to do. */
struct gb_upload_role {
    /* Under the session's lock: how many bytes are written and where. draft->buffer, kind and mirrored are set. 0 or -1. */
    int (*plan)(void *owner, const struct gb_upload_params *params, struct gb_upload_draft *draft,
                struct gb_error *err);
    /* On the lane, behind gb_staged_copy_open of copies[0]: queues the payload and watches it. 0 or -1. */
    int (*queue)(struct gb_upload *upload, struct gb_stream *stream, struct gb_error *err);
    /* The upload is COMMITTING: commits it. Takes over a reference. Without locks, on any thread. */
    void (*complete)(struct gb_upload *upload);
    /* The commit has succeeded and what it replaced is gone: counts it. Without locks; DONE follows. */
    void (*committed)(struct gb_upload *upload);
    /* Nothing uses the upload any more: calls gb_upload_dispose, and gives back what the role holds. */
    void (*gone)(struct gb_upload *upload);
};

extern const struct gb_upload_role gb_upload_plain;

/* --- the upload ------------------------------------------------------------------------------------------------------- */

struct gb_upload {
    struct gb_core_transfer t; /* first */
    const struct gb_upload_plan plan;
    const struct gb_upload_role *role;
    void *owner;               /* the role's: its group's member, device write or multipart upload */
    _Atomic uint64_t *running; /* the core's number of those under way that this is one of; NULL: none, or no more */

    struct gb_content *content; /* a reference; the buffer's own after the commit */
    struct gb_content *base;    /* merge: the old bytes, until their copy is queued or done */
    struct gb_content *replaced;
    struct gb_alloc alloc;
    struct gb_task task;
    struct gb_ev *usable;
    void (*handed_back)(struct gb_upload *upload, const struct gb_error *error);
    uint64_t prepared_ns;
    bool attached;      /* managed memory is in the CPU's hands */
    bool mirror_copied; /* bytes came from the other side */
    bool counted;       /* a new buffer's place in the quota is reserved; the session's lock */
    bool marked;        /* the buffer is marked as being overwritten in place; the session's lock */
    bool created;
    enum gb_code blamed; /* gb_upload_blame */

    /* The caller's thread: */
    bool touched; /* the buffer's memory may differ from what it was */
    uint32_t crc; /* of what came */
    uint64_t filled;
    size_t room;
    char *scratch; /* scattered, where the CPU writes: gathered here first */
    size_t scratch_n;
    struct gb_upload_pipeline pipe;

    /* The transfer's lock: */
    enum gb_upload_state state;
    unsigned pending; /* what must be over before the commit: the preparation, watches */

    const struct gb_buffer_check *end_check; /* asked at the commit besides plan.check; NULL: none. The role's */
    struct gb_transaction transaction;
};

static inline struct gb_upload *gb_upload_of(struct gb_core_transfer *transfer) {
    return (struct gb_upload *)transfer;
}

/* --- state.c ------------------------------------------------------------------------------------------------------------ */

bool gb_upload_step_permitted(enum gb_upload_state from, enum gb_upload_state to);
/* Makes every step. The transfer's lock is held. False: the table does not permit it; the upload has failed. */
bool gb_upload_step_locked(struct gb_upload *upload, enum gb_upload_state to);
/* As gb_upload_step_locked, without the lock. */
bool gb_upload_step(struct gb_upload *upload, enum gb_upload_state to);

/* The first error wins. A commit that runs goes on: what becomes of it is its own. The lock is held. */
void gb_upload_fail_locked(struct gb_upload *upload, const struct gb_error *error);
/* The same without the lock: reports the error and wakes the caller. */
void gb_upload_fail(struct gb_upload *upload, const struct gb_error *error);
/* 0, or -1 with the error: the upload has failed, its session is gone, or the core closes. The lock is held. */
int gb_upload_alive_locked(struct gb_upload *upload, struct gb_error *err);

/* Something that the commit waits for; it is over. The second takes an error (NULL: success). The lock is held. */
void gb_upload_pend_locked(struct gb_upload *upload);
void gb_upload_pended_locked(struct gb_upload *upload, const struct gb_error *error);
/* Makes the commit wait for an event. fn runs at the event, on any thread, with a reference that it drops; it calls
 * gb_upload_pended_locked. Without locks. 0, or -1 without a reference and without fn. */
int gb_upload_watch(struct gb_upload *upload, struct gb_ev *event, void (*fn)(void *arg, const struct gb_error *error),
                    void *arg, struct gb_error *err);
/* The preparation is over: bytes may come. The lock is held. */
void gb_upload_opened_locked(struct gb_upload *upload);
/* Makes an upload COMMITTING whose bytes are all there and which waits for nothing. True: the caller unlocks and calls the
 * role's complete. The lock is held. */
bool gb_upload_complete_locked(struct gb_upload *upload);
/* Unlocks t.lock; completes the upload if that can be; else wakes the caller. */
void gb_upload_unlock_advance(struct gb_upload *upload);

/* --- scatter.c: a payload whose bytes are not contiguous ---------------------------------------------------------------- */

/* Room in the scratch. The lock is held. 1 or -1. */
int gb_scatter_room_locked(struct gb_upload *upload, void **ret_ptr, struct gb_error *err);
void gb_scatter_fill(struct gb_upload *upload, size_t n); /* the scratch's bytes to their places */
size_t gb_scatter_slot(const struct gb_upload *upload);   /* so many bytes are to be in a slot */
/* A full slot's copies, between gb_staged_copy_open and _close. 0 or -1. */
int gb_scatter_queue(struct gb_upload *upload, struct gb_staged_copy *copy, struct gb_error *err);

/* --- prepare.c ---------------------------------------------------------------------------------------------------------- */

/* On the lane: the memory is there; queues what comes before the payload. */
void gb_upload_allocated(struct gb_alloc *alloc, const struct gb_error *error);
void gb_upload_prepare(struct gb_task *task);
/* Managed memory in the CPU's hands goes back to the device; then runs on the lane when that is queued, or cannot be. For
 * other memory then runs at once. */
void gb_upload_hand_back(struct gb_upload *upload,
                         void (*then)(struct gb_upload *upload, const struct gb_error *error));

/* --- commit.c ----------------------------------------------------------------------------------------------------------- */

/* For a role's complete, after gb_upload_hand_back: fills in the transaction, whose end is to be `end`. False: error is set;
 * the upload has failed and the reference is dropped. */
bool gb_upload_ready(struct gb_upload *upload, const struct gb_error *error,
                     void (*end)(struct gb_transaction *transaction));
/* The transaction's end for a role whose upload fails when the commit does. */
void gb_upload_commit_end(struct gb_transaction *transaction);
/* After the commit; the role's committed follows. */
void gb_upload_committed(struct gb_upload *upload);
/* For a role's committed: bytes and times of an upload. */
void gb_upload_count(struct gb_upload *upload);
/* Is the memory that it writes in place still the buffer's? The session's lock is held. */
bool gb_upload_has_locked(const struct gb_upload *upload, const struct gb_buffer *buffer);
/* The upload that a transaction belongs to. */
struct gb_upload *gb_upload_of_transaction(struct gb_transaction *transaction);

/* --- abort.c ------------------------------------------------------------------------------------------------------------ */

void gb_upload_destroy(struct gb_core_transfer *transfer); /* of a transfer: calls the role's gone at the end */
/* For a role's gone: counts an upload that was started and is not DONE as failed. */
void gb_upload_count_failure(struct gb_upload *upload);
/* The core counts it no longer among those under way. */
void gb_upload_stop_running(struct gb_upload *upload);
/* For a role's gone: gives everything back and frees the upload. */
void gb_upload_dispose(struct gb_upload *upload);

/* --- plan.c ------------------------------------------------------------------------------------------------------------- */

/* What params and the role need, or why not. The session's lock is held. 0 or -1. */
int gb_upload_draft_locked(struct gb_session *session, const struct gb_upload_params *params,
                           const struct gb_upload_role *role, void *owner, struct gb_upload_draft *draft,
                           struct gb_error *err);
/* For a role's plan: refuses a write in part where the other bytes are lost. 0 or -1. */
int gb_upload_check_merge(const struct gb_upload_draft *draft, struct gb_error *err);

/* --- upload.c ----------------------------------------------------------------------------------------------------------- */

/* Zeroed memory of `size` bytes, which begins with an upload. NULL when memory is exhausted. */
struct gb_upload *gb_upload_new(size_t size, const struct gb_upload_role *role);
/* The plan of an upload that is being made: nobody else knows it yet. */
struct gb_upload_plan *gb_upload_plan_of(struct gb_upload *upload);
/* A planned upload that has its memory in the quota, with the caller's reference; nothing runs yet. Takes
 * params->check.arg on success. NULL with err. */
struct gb_upload *gb_upload_make(struct gb_core *core, const struct gb_upload_params *params,
                                 const struct gb_upload_role *role, void *owner, struct gb_error *err);
/* Starts it. running: the core's number of those under way; NULL: it is not counted. */
void gb_upload_start(struct gb_upload *upload, _Atomic uint64_t *running);
/* The same for an upload that has made its first step. */
void gb_upload_run(struct gb_upload *upload, _Atomic uint64_t *running);
void gb_upload_count_running(struct gb_upload *upload, _Atomic uint64_t *running);

#endif
