/* A multipart upload, for the files that implement it: multipart.c has the list, the memory and the end; parts.c parts
 * in any order, bytes in sequence, and the steps before the commit.
 *
 * The bytes belong to the target, a gb_upload that receives no bytes itself. The target reserves, allocates and commits
 * as any upload does. A part is a gb_upload too; it writes into the target's memory, and its end records its range
 * instead of committing. Lock order: the session's, the multipart upload's, a transfer's. Wakes run under the multipart
 * upload's lock. */
#ifndef GB_CORE_TRANSFER_MULTIPART_H
#define GB_CORE_TRANSFER_MULTIPART_H

#include "core/public/upload.h"
#include "core/transfer/transfer.h"
#include "core/transfer/upload.h"
#include "core/util/sets.h"

enum gb_multipart_state {
    GB_MULTIPART_HEADER,  /* appended bytes do not describe the payload yet */
    GB_MULTIPART_OPENING, /* memory is being allocated */
    GB_MULTIPART_OPEN,
    GB_MULTIPART_HASHING, /* all bytes arrived, and the digests are being computed */
    GB_MULTIPART_COMPLETING,
    GB_MULTIPART_DONE, /* remembered for clients that missed the reply */
    GB_MULTIPART_ENDED
};

struct gb_multipart_waiter {
    struct gb_multipart_waiter *next;
    struct gb_multipart_call *call;
};

struct gb_multipart {
    atomic_uint refs; /* one each of the list, the target, every part and every append */
    struct gb_core *core;
    struct gb_session *session; /* a reference */
    int64_t number;
    struct gb_name buffer;
    bool appends;
    int64_t created_at_us;
    bool listed;         /* this and the next two: the session's lock */
    bool counted;        /* in the session's open multipart uploads */
    uint64_t held_bytes; /* counted in session and core */
    struct gb_place place;

    pthread_mutex_t lock; /* guards all below */
    enum gb_multipart_state state;
    bool sealed; /* a commit was tried: only another commit or a deletion may follow */
    struct gb_upload *target;
    struct gb_buffer_check end_check; /* evaluated by the target's commit, besides the target's own */
    struct gb_error refused;          /* the error of the last commit, which may be tried again */
    struct gb_ranges ranges;
    bool gapped;                  /* from OPENING on */
    struct gb_gaps gaps;          /* gapped: from OPENING to the commit */
    struct gb_ranges file_ranges; /* with gaps: the same ranges and checksums, of the file */
    struct gb_part *parts;        /* under way */
    unsigned running;             /* the number of parts that have not arrived */
    uint64_t touched_ns;
    uint64_t bytes; /* of the payload, in memory; from OPENING on */
    bool has_length;
    uint64_t length;
    char *header;
    size_t header_used;
    size_t header_size;
    uint64_t skip;
    void *app;
    void (*free_app)(void *app);
    bool append_locked;       /* a request appends, or its bytes are still being copied */
    struct gb_append *append; /* the append to wake; NULL: it was freed */
    bool append_whole;        /* the append's bytes count when it has ended, or not at all */
    bool retracts;            /* memory that the append described is being freed; the append lock is kept until then */
    struct gb_multipart_call *call; /* the call that begins or completes the multipart upload */
    struct gb_hash_reader *reader;
    struct gb_multipart_waiter *drain_waiters;
    struct gb_multipart_waiter *end_waiters; /* wait until the memory is free */
    struct gb_error why;                     /* why it ended */
    struct gb_task task;
};

/* A part: an upload into the target's memory. */
struct gb_part {
    struct gb_upload upload;        /* first */
    struct gb_multipart *multipart; /* a reference */
    struct gb_upload *target;       /* a reference */
    struct gb_part *next;
    bool arrived; /* its range is recorded */
    bool gapped;
    /* With gaps: the range of the file, how much of it came, the checksum of that, and where the next bytes go. */
    uint64_t file_at;
    uint64_t file_bytes;
    uint64_t file_filled;
    uint32_t file_crc;
    void *room;
};

/* The state of a multipart upload before an append. */
struct gb_append_before {
    size_t header_used;
    bool has_length;
    uint64_t length;
};

struct gb_append {
    struct gb_multipart *multipart;
    struct gb_upload *part;
    struct gb_waker waker;
    struct gb_append_before before;
    bool describes; /* the payload was described by its bytes */
    bool discards;  /* its bytes are being taken back; this and the next one: the multipart upload's lock */
    bool cut;
};

/* --- multipart.c -------------------------------------------------------------------------------------------------- */

/* Makes a multipart upload and puts it into its session's list. Of params only the session and the buffer's name are
 * used. *ret has two references, the list's and the caller's. */
int gb_multipart_new(struct gb_core *core, const struct gb_upload_params *params, bool appends,
                     struct gb_multipart **ret, struct gb_error *err);
void gb_multipart_unref(struct gb_multipart *multipart); /* NULL is accepted; without locks */
struct gb_multipart *gb_multipart_ref(struct gb_multipart *multipart);

/* Finds a multipart upload by id. use: reset the session's idle timer. Returns it with a reference, or NULL. Errors:
 * SESSION_NOT_FOUND, UPLOAD_NOT_FOUND. */
struct gb_multipart *gb_multipart_find(struct gb_core *core, const struct gb_name *session, const char *id, bool use,
                                       struct gb_error *err);
/* What clients see: the bytes of the file, and their ranges. The lock is held. */
bool gb_multipart_gapped_locked(const struct gb_multipart *multipart);
const struct gb_ranges *gb_multipart_ranges_locked(const struct gb_multipart *multipart);
uint64_t gb_multipart_bytes_locked(const struct gb_multipart *multipart);
int gb_multipart_not_found(struct gb_error *err); /* sets UPLOAD_NOT_FOUND; returns -1 */
void gb_multipart_view_locked(struct gb_multipart *multipart, struct gb_multipart_view *ret);
uint64_t gb_multipart_offset_locked(const struct gb_multipart *multipart);
/* Returns 0 if the multipart upload is open for bytes; else -1 with the reason. */
int gb_multipart_check_locked(struct gb_multipart *multipart, struct gb_error *err);

/* --- the target --------------------------------------------------------------------------------------------------- */

/* Makes the target and starts its allocation. Takes params->check.arg on success. Without locks. Returns 0 or -1. */
int gb_multipart_target_start(struct gb_multipart *multipart, const struct gb_upload_params *params,
                              struct gb_error *err);
/* Ends the multipart upload in any state. Has no effect if it is done or has ended. */
void gb_multipart_end(struct gb_multipart *multipart, const struct gb_error *why);
void gb_multipart_finish_call(struct gb_multipart *multipart, struct gb_multipart_call *call,
                              const struct gb_error *error);
/* Puts the call into a list of waiting calls. Returns false if memory is exhausted. */
bool gb_multipart_wait_locked(struct gb_multipart_waiter **list, struct gb_multipart_call *call);
/* Takes the calls that wait for the end of an append into *ret, unless the append lock is held. The lock is held. */
void gb_multipart_drained_locked(struct gb_multipart *multipart, struct gb_multipart_waiter **ret);
/* Releases the append lock, unless memory that the append described is still to be freed. Wakes an append that waits
 * for that. *ret: as gb_multipart_drained_locked. */
void gb_multipart_appended_locked(struct gb_multipart *multipart, struct gb_multipart_waiter **ret);
/* Takes the description back, so that the next bytes describe the payload again. The lock is held. Returns the target,
 * which the caller frees without the lock. */
struct gb_upload *gb_multipart_retract_locked(struct gb_multipart *multipart);
/* Finishes all calls of the list and frees it. Without locks. */
void gb_multipart_finish_calls(struct gb_multipart *multipart, struct gb_multipart_waiter *list,
                               const struct gb_error *error);

/* Prepares the commit when all bytes have arrived: gives the target its length, checksum and key. Takes over check,
 * which may be NULL. The lock is held. */
void gb_multipart_prepare_locked(struct gb_multipart *multipart, const struct gb_buffer_check *check);
/* Commits the target after gb_multipart_prepare_locked. The caller holds a reference to target. The lock is not
 * held. */
void gb_multipart_commit(struct gb_multipart *multipart, struct gb_upload *target);

/* --- parts.c ------------------------------------------------------------------------------------------------------ */

/* Makes a part and links it to the multipart upload, which is open. The bytes of an append count even if it breaks off.
 * The lock is held. */
struct gb_upload *gb_part_new_locked(struct gb_multipart *multipart, uint64_t at, uint64_t bytes, struct gb_waker waker,
                                     struct gb_error *err);

/* multipart.c: ends the session's multipart uploads that have received nothing for the configured time. Without
 * locks. */
void gb_multiparts_expire(struct gb_session *session);

/* multipart.c: ends all of the session's multipart uploads. Without locks. */
void gb_multiparts_end(struct gb_session *session, const struct gb_error *why);

#endif
