/* An upload and its state. begin.c plans it, allocates its memory and begins it. upload.c makes its steps and takes its
 * bytes. commit.c ends it, by the commit or by giving up.
 *
 * Uploads differ by their role: a plain upload (commit.c), one of unknown length (growing.c), a member of a group
 * (group.c), a device write (device_write.c), the target of a multipart upload, which owns the memory (multipart.c),
 * and a part, which writes into that memory (parts.c). */
#ifndef GB_CORE_TRANSFER_UPLOAD_H
#define GB_CORE_TRANSFER_UPLOAD_H

#include "core/buffer/transaction.h"
#include "core/durable/stored.h"
#include "core/public/upload.h"
#include "core/transfer/transfer.h"

struct gb_upload;

/* --- slots and copies --------------------------------------------------------------------------------------------- */

/* The slots of an upload and their copies to the device.
 *
 * A notification that a copy is done costs two changes of thread. The upload therefore queries the event itself when it
 * needs a slot; a copy that it may still query is unwatched. It watches a copy that it will not query again. That is
 * the oldest copy while the upload waits for a slot. It is every copy when the upload has ended, is stalled or is
 * freed, or when slots are scarce. */

#define GB_UPLOAD_COPIES 4     /* one slot fills while the other copies are under way */
#define GB_UPLOAD_COPIES_MAX 8 /* of a role with many_slots, whose caller fills several slots at the same time */
#define GB_UPLOAD_AHEAD 5      /* slots at most that are filled after the current one */

/* Used by the caller's thread, except where a lock is named. */
struct gb_upload_pipeline {
    struct gb_staged_copy copies[GB_UPLOAD_COPIES_MAX];
    struct gb_staged_copy *filling;                /* the slot that is being filled, or NULL */
    struct gb_staged_copy *ahead[GB_UPLOAD_AHEAD]; /* slots that are filled after it: gb_upload_room_ahead */
    unsigned ahead_count;
    size_t filling_max;               /* bytes that `filling` is to hold */
    uint64_t filling_ns;              /* when `filling` began to fill */
    struct gb_staged_copy *unwatched; /* queued and not watched; the oldest first */
    struct gb_staged_copy *unwatched_last;
    unsigned unwatched_count;
    unsigned in_flight; /* the transfer's lock */
};

#define GB_WRITE_THROUGH_PIECES 4 /* of memory that the CPU reaches, at once */

/* The payload of a durable upload goes to the disk as it comes: from the slots, or from memory that the CPU reaches. */
struct gb_write_through {
    struct gb_tee *tee; /* NULL: the bytes are not durable, or they are read back from memory at the commit */
    int64_t new_id;     /* reserved for a new buffer; 0: not reserved */
    char *kept;         /* the bytes of a payload that is small enough for the database; NULL: they are read back */
    size_t kept_bytes;

    uint64_t sent; /* bytes in slots that were given to the tee; the caller's thread */

    /* Of memory that the CPU reaches; the transfer's lock: */
    struct gb_write_through_piece {
        struct gb_tee_piece piece;
        struct gb_upload *upload;
        bool running;
    } pieces[GB_WRITE_THROUGH_PIECES];
    uint64_t ready; /* bytes that have come */
    uint64_t given; /* bytes of them that were given to the tee */
};

/* --- the plan ----------------------------------------------------------------------------------------------------- */

/* What the upload writes and where. It is made once, under the session's lock, and constant afterwards. Only the
 * numbers that an open-ended payload leaves open are set later, by the role's ended. */
struct gb_upload_plan {
    struct gb_buffer_params buffer; /* of the new buffer; a partial write uses only session, name and stream */
    struct gb_view view;            /* scattered: where the payload goes */
    struct gb_buffer_check check;   /* check.arg is the upload's */
    struct gb_name pool_name;       /* of the buffer; "" for kinds without pools */
    unsigned wait_ms;
    uint64_t bytes;   /* of the buffer */
    uint64_t at;      /* where in the buffer the payload begins */
    uint64_t payload; /* bytes */
    bool open_ended;  /* the payload may be shorter than `payload` */
    bool partial;     /* the buffer keeps its shape */
    bool scattered;
    bool in_table; /* partial: of a table that is to have this layout */
    int64_t layout;
    bool merge;      /* bytes of the buffer outside the payload stay */
    bool remakes;    /* partial: all of a buffer that an earlier turn is to make; this makes it if that has failed */
    bool late;       /* they are those that the upload sees at the end of the payload */
    bool zero;       /* the bytes outside the payload are zeros */
    bool placed;     /* content already has its memory */
    bool in_place;   /* content is the buffer's own: bytes that readers see are overwritten */
    bool direct;     /* the caller writes into the memory itself, without slots */
    bool mirrored;   /* the buffer is mirrored: side, head and was are valid */
    bool has_crc32c; /* the payload's checksum is known without reading the memory */
    enum gb_side side;
    enum gb_head head;            /* after the commit */
    const struct gb_content *was; /* the side's content when the plan was made; only compared */
    enum gb_kind kind;            /* of content */
    int64_t base_id;              /* merge: the buffer that it was planned for */
    int64_t base_generation;
};

/* A plan that is being made. Its pointers are borrowed under the session's lock. */
struct gb_upload_draft {
    struct gb_buffer *buffer;  /* as the upload sees it; NULL: a new one */
    struct gb_buffer seen;     /* it, while an earlier turn is to write it (gb_after_see_locked) */
    bool chained;              /* so it is */
    bool later;                /* an earlier request is about to change the buffer: the commit checks it */
    struct gb_core_pool *pool; /* the device's own pool for kinds without pools */
    struct gb_name pool_name;
    enum gb_kind kind;
    uint64_t bytes;
    uint64_t at;
    uint64_t payload;
    bool open_ended;
    bool merge;
    bool remakes;
    bool zero;
    bool in_place;
    bool mirrored;
    enum gb_side side;
    enum gb_head head;
    struct gb_content *place; /* existing memory to write to; NULL: fresh memory */
    struct gb_content *base;  /* merge: the source of the other bytes; NULL: in place, zeros, late, or no other bytes */
    bool late;                /* merge: they are copied at the end, or again if others have taken their place */

    /* Of a device write, set by the role's plan: */
    struct gb_content *source; /* NULL: a fill, or the source is all zeros */
    uint64_t from;             /* offset of its bytes in source */
    bool by_device;            /* it is a device write */
    bool sync;           /* one side of a mirrored buffer is updated from the other: the buffer's bytes stay the same */
    bool reserve;        /* a sync that only gives a side more memory: draft.bytes is its capacity */
    uint64_t kept;       /* bytes of the side's old memory, which is needed at the same time */
    bool all_or_nothing; /* its call is in an atomic batch */
    bool has_crc32c;
    uint32_t crc32c;
    bool has_table; /* the source is a whole table */

    enum gb_durability durability; /* of the buffer after the commit */
};

/* --- the state ---------------------------------------------------------------------------------------------------- */

/* upload.c has the table of permitted steps. */
enum gb_upload_state {
    GB_UPLOAD_PLANNED,    /* nothing runs yet */
    GB_UPLOAD_ALLOCATING, /* memory is being allocated and prepared */
    GB_UPLOAD_OPEN,       /* bytes may come */
    GB_UPLOAD_ENDED,      /* the payload is complete, or the device writes it; copies may be under way */
    GB_UPLOAD_COMMITTING, /* nothing is pending; the commit runs */
    GB_UPLOAD_DONE,
    GB_UPLOAD_FAILED /* the transfer's error is the reason */
};
#define GB_UPLOAD_STATES (GB_UPLOAD_FAILED + 1)

/* --- the role ----------------------------------------------------------------------------------------------------- */

/* The functions that differ between uploads. Five may be NULL. Without plan, params alone determine the plan. Without
 * queue, the caller brings the payload. Without grow, all memory is reserved at the beginning. Without ended, the plan
 * leaves nothing open. Without committed, nothing is counted. */
struct gb_upload_role {
    /* Plans how many bytes are written and where. draft->buffer, kind and mirrored are set. The session's lock is held.
     * Returns 0 or -1. */
    int (*plan)(struct gb_session *session, void *owner, const struct gb_upload_params *params,
                struct gb_upload_draft *draft, struct gb_error *err);
    /* Queues the payload and watches it. Runs on the lane, after gb_staged_copy_open of copies[0]. Returns 0 or -1. */
    int (*queue)(struct gb_upload *upload, struct gb_stream *stream, struct gb_error *err);
    /* Gets more memory if all is full and more bytes may come. Runs on the caller's thread, without locks. Returns 0,
     * also while memory is being allocated, or -1. */
    int (*grow)(struct gb_upload *upload, struct gb_error *err);
    /* The caller has ended the payload, and upload->filled bytes came. Sets what the plan left open. Runs on the
     * caller's thread, without locks. Returns 0 or -1. */
    int (*ended)(struct gb_upload *upload, struct gb_error *err);
    /* Commits the upload, which is COMMITTING. Takes over a reference. Runs on any thread, without locks. */
    void (*complete)(struct gb_upload *upload);
    /* Counts the upload after its commit, when the replaced content is gone. Runs without locks; DONE follows. */
    void (*committed)(struct gb_upload *upload);
    /* Releases what the role holds and calls gb_upload_dispose. Nothing else uses the upload any more. */
    void (*gone)(struct gb_upload *upload);
    bool from_client;  /* a client brings the payload */
    bool ordered;      /* it takes a turn with its last byte */
    bool upkeep;       /* as of a transaction; params->session holds the session, whose name is not compared */
    bool summed;       /* the payload's checksum is known, so that the bytes are not read for it */
    bool many_slots;   /* GB_UPLOAD_COPIES_MAX instead of GB_UPLOAD_COPIES */
    size_t room_bytes; /* given at once if the CPU reaches the memory; 0: as much as suits a socket */
};

extern const struct gb_upload_role gb_upload_plain;
extern const struct gb_upload_role gb_upload_growing;

/* The pages under the first bytes. Later pages are cleared as the client's bytes come. */
enum gb_upload_pages {
    GB_UPLOAD_PAGES_UNSEEN,
    GB_UPLOAD_PAGES_COMING, /* a computing lane clears them */
    GB_UPLOAD_PAGES_THERE
};

/* --- the upload --------------------------------------------------------------------------------------------------- */

/* The memory of an upload that grows. The upload's content is the segment that fills; full segments are in the list.
 * Until the payload has ended, only the caller's thread changes these fields, while no other thread uses them. */
struct gb_upload_segments {
    struct gb_content *full; /* linked by next, in the order of their bytes */
    struct gb_content *last;
    uint64_t from;  /* the upload's content has the payload's bytes from here */
    uint64_t until; /* up to here */
};

struct gb_upload {
    struct gb_core_transfer t; /* first */
    const struct gb_upload_plan plan;
    const struct gb_upload_role *role;
    void *owner;               /* the role's: the group's member, the device write or the multipart upload */
    _Atomic uint64_t *running; /* the core's count of running uploads that includes this one; NULL: not counted */

    struct gb_turn *turn;           /* its place on the stream. NULL: not taken (yet) */
    bool own_turn;                  /* it is freed with the upload; else the device write has it */
    unsigned rest;                  /* the transfer's lock: what the copy of the other bytes waits for (begin.c) */
    struct gb_overtaken *overtaken; /* a scattered payload that is brought to other bytes (rest.c); NULL: it is not */
    struct gb_after begins; /* the earlier write that an upload into present memory waits for before it begins */
    struct gb_upload_params *unplanned; /* then: what is to be planned */
    bool chained;                       /* planned on the bytes of an earlier turn, which was not committed */
    struct gb_content *content;         /* a reference; the buffer's own after the commit */
    struct gb_content *base;            /* merge: the old bytes, until their copy is queued or done */
    struct gb_content *replaced;
    struct gb_upload_segments segments;
    struct gb_alloc alloc;
    struct gb_task task;
    struct gb_ev *usable;
    void (*handed_back)(struct gb_upload *upload, const struct gb_error *error);
    struct gb_task touch; /* of the memory that the first bytes go to */
    char *touch_at;
    size_t touch_n;
    uint64_t prepared_ns;
    bool attached;      /* managed memory is attached to the CPU */
    bool mirror_copied; /* bytes came from the other side */
    bool counted;       /* a new buffer's place in the quota is reserved; the session's lock */
    bool marked;        /* the buffer is marked as being overwritten in place; the session's lock */
    bool created;
    enum gb_code failure_reason; /* gb_upload_set_reason */

    /* The caller's thread: */
    bool touched; /* the buffer's memory may have changed */
    uint32_t crc; /* of the bytes received */
    uint64_t filled;
    size_t room;
    struct gb_write_through disk;
    char *scratch; /* scattered, written by the CPU: bytes are gathered here first */
    size_t scratch_n;
    struct gb_upload_pipeline pipe;

    /* The transfer's lock: */
    enum gb_upload_state state;
    enum gb_upload_pages pages;
    unsigned pending; /* work that the commit waits for: the preparation, watches */

    const struct gb_buffer_check *end_check; /* the role's: evaluated at the commit besides plan.check; NULL: none */
    struct gb_store_mark mark;               /* gb_upload_mark; "": none */
    struct gb_transaction transaction;
};

struct gb_upload *gb_upload_of(struct gb_core_transfer *transfer);

/* The number of payload bytes, from the first one on, that have memory. */
uint64_t gb_upload_reach(const struct gb_upload *upload);

/* Where the payload's byte `at` lies in content. */
uint64_t gb_upload_offset(const struct gb_upload *upload, uint64_t at);

/* --- steps -------------------------------------------------------------------------------------------------------- */

bool gb_upload_step_permitted(enum gb_upload_state from, enum gb_upload_state to);
/* Makes a step. The transfer's lock is held. Returns false if the table does not permit it; the upload has then
 * failed. */
bool gb_upload_step_locked(struct gb_upload *upload, enum gb_upload_state to);
/* As gb_upload_step_locked, without the lock. */
bool gb_upload_step(struct gb_upload *upload, enum gb_upload_state to);

/* Fails the upload. The first error stays. A running commit continues and sets its own result. The lock is held. */
void gb_upload_fail_locked(struct gb_upload *upload, const struct gb_error *error);
/* As gb_upload_fail_locked, without the lock; reports the error and wakes the caller. */
void gb_upload_fail(struct gb_upload *upload, const struct gb_error *error);
/* The lock is held. Returns 0; -1 with the error if the upload has failed, its session has ended, or the core
 * closes. */
int gb_upload_alive_locked(struct gb_upload *upload, struct gb_error *err);

/* Begin and end work that the commit waits for. error: the work's result; NULL: success. The lock is held. */
void gb_upload_pend_locked(struct gb_upload *upload);
void gb_upload_pended_locked(struct gb_upload *upload, const struct gb_error *error);
/* Makes the commit wait for an event. fn runs at the event, on any thread, with a reference that it drops; it calls
 * gb_upload_pended_locked. No lock is held. Returns 0; -1: no reference was taken and fn does not run. */
int gb_upload_watch(struct gb_upload *upload, struct gb_ev *event, void (*fn)(void *arg, const struct gb_error *error),
                    void *arg, struct gb_error *err);
/* Opens the upload for bytes after the preparation. The lock is held. */
void gb_upload_opened_locked(struct gb_upload *upload);
/* Makes the upload COMMITTING if its payload is complete and it waits for nothing. The lock is held. Returns true if
 * so; the caller then unlocks and calls the role's complete. */
bool gb_upload_complete_locked(struct gb_upload *upload);
/* Unlocks t.lock, which is held. Completes the upload if that is possible; else wakes the caller. */
void gb_upload_unlock_advance(struct gb_upload *upload);

/* --- bytes and slots ---------------------------------------------------------------------------------------------- */

/* These functions run on the caller's thread, without locks. */

/* Gives a room behind the one that gb_upload_room has given, to a caller that fills several before it reports the
 * first. number: 1 for the room that the next gb_upload_room gives, up to GB_UPLOAD_AHEAD. Returns false if no such
 * room is free; no wake follows. */
bool gb_upload_room_ahead(struct gb_upload *upload, unsigned number, void **ret_ptr, size_t *ret_n);

/* Queues the copy of the slot being filled, if it holds bytes. Returns 0 or -1. */
int gb_upload_flush(struct gb_upload *upload, struct gb_error *err);
/* Gives back the slot being filled, and those after it, and drops their bytes. */
void gb_upload_drop_slot(struct gb_upload *upload);
/* Takes back the slots whose copies are done. */
void gb_upload_reap(struct gb_upload *upload);
/* Watches all unwatched copies, because the upload will not query again. Returns 0, or -1 if the upload has failed;
 * even then no copy is left unwatched. */
int gb_upload_watch_rest(struct gb_upload *upload, struct gb_error *err);

/* For an upload that is being made: begins the tee if all of the payload is new and durable, or keeps the bytes if they
 * are small enough for the database. The session's lock is held. */
void gb_write_through_begin_locked(struct gb_upload *upload, const struct gb_upload_draft *draft);

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* Allocates the memory of content, then prepares it. Takes over a reference, the lane's. [any thread] */
void gb_upload_allocate(struct gb_upload *upload);
/* Hands managed memory that is attached to the CPU back to the device. On its lane. Returns 0 or -1. */
int gb_upload_detach(struct gb_upload *upload, struct gb_error *err);
/* Hands managed memory that is attached to the CPU back to the device. `then` runs on the lane when that is queued or
 * has failed. For other memory `then` runs at once. */
void gb_upload_hand_back(struct gb_upload *upload,
                         void (*then)(struct gb_upload *upload, const struct gb_error *error));

/* Adds to a refusal for lack of room that a payload of known length needs less of it. */
void gb_upload_advise_length(struct gb_error *err);
/* Drops the full segments. [any thread] */
void gb_upload_drop_segments(struct gb_upload *upload);

/* --- the commit --------------------------------------------------------------------------------------------------- */

/* For a role's complete, after gb_upload_hand_back: fills in the transaction, with `end` as its end. Returns false if
 * error is set; the upload has then failed and the reference is dropped. */
bool gb_upload_ready(struct gb_upload *upload, const struct gb_error *error,
                     void (*end)(struct gb_transaction *transaction));
/* Later requests may build on the upload's memory, unless it is one that is written where it is. The session's lock is
 * held. */
void gb_upload_chain_locked(struct gb_upload *upload);
/* The transaction's end for a role whose upload fails if the commit fails. */
void gb_upload_commit_end(struct gb_transaction *transaction);
/* Finishes the upload after its commit; the role's committed follows. */
void gb_upload_committed(struct gb_upload *upload);
/* Starts the commit in the way of a plain upload: for a role's complete, after gb_upload_hand_back. */
void gb_upload_commit(struct gb_upload *upload, const struct gb_error *error);
/* For a role's gone: counts a failure and disposes of the upload. */
void gb_upload_gone(struct gb_upload *upload);
/* For a role's committed: counts the bytes and times of an upload. */
void gb_upload_count(struct gb_upload *upload);
/* True if the memory that the upload writes in place is still the buffer's. The session's lock is held. */
bool gb_upload_has_locked(const struct gb_upload *upload, const struct gb_buffer *buffer);
/* The upload that a transaction belongs to. */
struct gb_upload *gb_upload_of_transaction(struct gb_transaction *transaction);

/* --- giving up ---------------------------------------------------------------------------------------------------- */

void gb_upload_destroy(struct gb_core_transfer *transfer); /* the transfer's destroy; ends with the role's gone */
/* For a role's gone: counts an upload that was started and is not DONE as failed. */
void gb_upload_count_failure(struct gb_upload *upload);
/* Takes the upload out of the core's count of running uploads. */
void gb_upload_stop_running(struct gb_upload *upload);
/* For a role's gone: releases all that the upload holds and frees it. */
void gb_upload_dispose(struct gb_upload *upload);

/* --- planning ----------------------------------------------------------------------------------------------------- */

/* Makes the draft of what params and the role need. turn: the upload's; NULL: it has none yet. The session's lock is
 * held. Returns 0; -1 with the refusal. */
int gb_upload_draft_locked(struct gb_session *session, const struct gb_upload_params *params,
                           const struct gb_upload_role *role, void *owner, const struct gb_turn *turn,
                           struct gb_upload_draft *draft, struct gb_error *err);
/* For a role's plan: refuses a partial write if the buffer's other bytes are lost or partial. Returns 0 or -1. */
int gb_upload_check_merge(const struct gb_upload_draft *draft, struct gb_error *err);

/* Refuses a write of a part of a table that does not say so (INVALID_ARGUMENT), or that was meant for another table
 * (BUFFER_BUSY). Returns 0 or -1. */
int gb_upload_check_table(const struct gb_buffer *buffer, bool in_table, int64_t layout, struct gb_error *err);

/* --- beginning ---------------------------------------------------------------------------------------------------- */

/* Allocates `size` zeroed bytes that begin with an upload. Returns NULL when memory is exhausted. */
struct gb_upload *gb_upload_new(size_t size, const struct gb_upload_role *role);
/* The plan of an upload that is being made and that no other thread can reach yet. */
struct gb_upload_plan *gb_upload_plan_of(struct gb_upload *upload);
/* Makes a planned upload whose memory is reserved in the quota; nothing runs yet. Takes params->check.arg on success.
 * Returns it with the caller's reference, or NULL with err. */
struct gb_upload *gb_upload_make(struct gb_core *core, const struct gb_upload_params *params,
                                 const struct gb_upload_role *role, void *owner, struct gb_error *err);
/* --- the turn, and the other bytes (rest.c) ----------------------------------------------------------------------- */

/* What the late copy of the other bytes waits for, and whether it does. */
#define GB_REST_MEMORY 1u
#define GB_REST_TURN 2u
#define GB_REST_PAYLOAD 4u
#define GB_REST_HELD 8u   /* a reference and the commit wait for it */
#define GB_REST_NEVER 16u /* the upload is being freed */
/* That is there. [any thread] */
void gb_upload_rest_part(struct gb_upload *upload, unsigned part);
/* Queues the bytes outside the payload: from the base, or zeros. On the lane. Returns 0 or -1. */
int gb_upload_queue_rest(struct gb_upload *upload, struct gb_stream *stream, struct gb_error *err);
/* The work is queued: later writes of the stream may build on the bytes. */
void gb_upload_queued(struct gb_upload *upload);
/* The caller frees the upload: a copy that has not begun never will. */
void gb_upload_rest_never(struct gb_upload *upload);
/* The copy of the other bytes is to come, and the commit waits for it. */
void gb_upload_rest_hold(struct gb_upload *upload);
/* error: NULL if they are there, or need not be. */
void gb_upload_rest_unhold(struct gb_upload *upload, const struct gb_error *error);
/* With a turn: returns true if the copy waits for the earlier write. The session's lock is held. */
bool gb_upload_rest_waits_locked(struct gb_upload *upload);
/* Frees what rest.c holds, at the end of the upload. */
void gb_upload_rest_done(struct gb_upload *upload);
/* Queued work may still run. Keeps a reference, which it takes over, until the stream has finished that work. */
void gb_upload_finish_after_error(struct gb_upload *upload, struct gb_stream *stream);
/* Takes the upload's turn, unless it has it. complete: the payload is on the way to its memory, and later writes may
 * build on it; the caller steps to ENDED next. Returns 0 or -1. */
int gb_upload_take_turn(struct gb_upload *upload, bool complete, struct gb_error *err);
/* Ends and frees a turn that was taken, as failed. */
void gb_upload_drop_turn(struct gb_upload *upload, const struct gb_error *error);
/* Starts an upload. running: the core's count of running uploads that includes it from now on; NULL: it is not
 * counted. */
void gb_upload_start(struct gb_upload *upload, _Atomic uint64_t *running);
/* The upload does not begin any more, if it still waits for that. */
void gb_upload_stay(struct gb_upload *upload);
/* As gb_upload_start, for an upload that has made its first step. */
void gb_upload_run(struct gb_upload *upload, _Atomic uint64_t *running);
void gb_upload_count_running(struct gb_upload *upload, _Atomic uint64_t *running);

/* --- device writes ------------------------------------------------------------------------------------------------ */

enum gb_device_write_what { GB_DEVICE_WRITE_COPY, GB_DEVICE_WRITE_FILL, GB_DEVICE_WRITE_SYNC, GB_DEVICE_WRITE_RESERVE };

struct gb_device_write {
    enum gb_device_write_what what;
    struct gb_buffer_call *call;
    struct gb_core *core;
    struct gb_session *session; /* a reference, once the write was accepted */
    struct gb_turn *turn;
    struct gb_core_stream *stream;              /* in use, once the write was accepted, also if the stream is deleted */
    struct gb_device_write_params asked;        /* COPY, FILL */
    struct gb_upload_params params;             /* check is the write's until an upload has it */
    enum gb_side side;                          /* SYNC, RESERVE */
    void (*run)(struct gb_device_write *write); /* when its turn has come */
    bool fixed;                                 /* it may write memory where it is */
    bool waited;                                /* for its turn */
    bool running;                               /* its turn has come */
    bool again;                                 /* it waited for a load since */
    bool has_source;
    uint64_t loads; /* gb_loads_sequence, before the source and the buffer were looked at */
    struct gb_load_waiter loading;
    unsigned waiting; /* earlier turns that are waited for; the session's lock */
    struct gb_task task;
    struct gb_upload *upload;
    struct gb_content *source; /* a reference until the copy is done; NULL: a fill, or the source is all zeros */
    struct gb_buffer_rec source_rec;
    uint64_t from;
    uint64_t pattern;
    unsigned width;
    uint64_t offset;
    bool has_bytes;
    uint64_t bytes;
    uint64_t capacity;              /* RESERVE: of the new memory */
    const struct gb_content *stale; /* RESERVE: memory of the side that is freed before; only compared. NULL: none */
    uint64_t stale_bytes;
    struct gb_buffer_call *freeing; /* its release */
    uint64_t freed;                 /* RESERVE: of the side's old memory, freed before */
    uint64_t kept; /* RESERVE: of the side's old memory, whose bytes are current and copied: freed after */
    enum gb_copy_way way;
    struct gb_error error;
    bool ended; /* the upload was freed: later wakes are ignored */
};

/* Makes a device write for the call. Returns NULL if memory is exhausted. */
struct gb_device_write *gb_device_write_new(struct gb_core *core, enum gb_device_write_what what,
                                            struct gb_buffer_call *call);
/* Takes the write's turn in that session and calls write->run, at once or when its turn has come. write->params.check
 * is set. turn: taken before; NULL: not yet. Takes turn and write. */
void gb_device_write_accept(const struct gb_locator *at, const struct gb_name *stream, struct gb_turn *turn,
                            struct gb_device_write *write);
/* Starts the write, which finishes its call at the end. Takes the write. */
void gb_device_write_start(struct gb_device_write *write);
/* Plans the write, and starts nothing: returns 0, or -1 with the refusal. The session's lock is held. */
int gb_device_write_check_locked(struct gb_device_write *write, struct gb_error *err);
/* Frees the write and finishes its call. error GB_OK: success. */
void gb_device_write_fail(struct gb_device_write *write, const struct gb_error *error);

#endif
