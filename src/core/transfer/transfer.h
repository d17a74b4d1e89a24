/* The common part of uploads and downloads: references, the wake of the caller, the wait for a slot.
 *
 * The caller uses a transfer from one thread at a time. Watches, slot grants and commits come from other threads. Each
 * of them holds a reference; the last reference destroys the transfer. */
#ifndef GB_CORE_TRANSFER_TRANSFER_H
#define GB_CORE_TRANSFER_TRANSFER_H

#include "base/hash.h"
#include "core/buffer/buffer.h"
#include "core/durable/stored.h"
#include "core/memory/alloc.h"

/* --- transfer ----------------------------------------------------------------------------------------------------- */

struct gb_core_transfer {
    atomic_uint refs;
    struct gb_core *core;
    struct gb_core_device *device;
    struct gb_session *session;
    struct gb_core_stream *stream;                      /* a use of the stream; NULL: not known yet */
    void (*destroy)(struct gb_core_transfer *transfer); /* called when the last reference is dropped */

    pthread_mutex_t wake_lock; /* held while wake runs, which never runs after closing; recursive */
    struct gb_waker waker;     /* without fn: the transfer is closed */

    pthread_mutex_t lock; /* guards what follows, and the fields that name it */
    bool want_wake;
    bool wake_on_error; /* an error wakes even without want_wake */
    bool slot_waiting;  /* waits for a slot and holds a reference */
    bool slot_asked;    /* has asked for a slot, so that closing leaves the line, whose lock all transfers share */
    struct gb_error error;
    struct gb_slot_waiter waiter;
    struct gb_ev *mark; /* when the first copy was queued */
    bool silent;        /* does not keep the session alive */
    uint64_t started_ns;
    bool sampled; /* the times are those of another copy */
    uint64_t copy_ns;
    uint64_t queue_ns;
};

void gb_core_transfer_init(struct gb_core_transfer *transfer, struct gb_session *session, struct gb_waker waker,
                           void (*destroy)(struct gb_core_transfer *transfer));
void gb_core_transfer_done(struct gb_core_transfer *transfer);    /* called by destroy */
void gb_core_transfer_silence(struct gb_core_transfer *transfer); /* sets silent, before any other thread uses it */
void gb_core_transfer_ref(struct gb_core_transfer *transfer);
void gb_core_transfer_unref(struct gb_core_transfer *transfer); /* without its lock */

/* Unlocks the transfer's lock, which is held. Then runs wake if want_wake is set, or if there is an error and
 * wake_on_error is set. */
void gb_core_transfer_unlock_wake(struct gb_core_transfer *transfer);
/* Reports the error, records it unless the transfer has one already, and wakes as above. The lock is not held. */
void gb_core_transfer_fail(struct gb_core_transfer *transfer, const struct gb_error *error);

/* Checks that the transfer may continue. The lock is held. Returns 0; -1 with the transfer's error, or because the
 * session or the core has ended. A transfer that reads continues if its session has gone to another node, because it
 * holds the content. */
int gb_core_transfer_check_locked(struct gb_core_transfer *transfer, bool reads, struct gb_error *err);

/* Takes a free slot. If none is free, the transfer waits in line, and the grant runs wake if want_wake is set. The lock
 * is held. Returns the slot, or NULL. */
void *gb_core_transfer_slot_locked(struct gb_core_transfer *transfer);

/* Stops the wake, which does not run after this returns, and leaves the line for a slot. The lock is not held. */
void gb_core_transfer_close(struct gb_core_transfer *transfer);

/* The part of the transfer's stream on its device. It exists once memory was allocated on the stream or the lane has
 * made it. */
struct gb_stream *gb_core_transfer_part(struct gb_core_transfer *transfer);

void gb_transfer_times(struct gb_core_transfer *transfer, struct gb_transfer_times *ret);

/* --- a copy under way --------------------------------------------------------------------------------------------- */

/* One staging slot and the copy between it and the memory. */
struct gb_staged_copy {
    struct gb_task task;
    struct gb_core_transfer *transfer;
    struct gb_staged_copy *next;        /* of an upload: sent after it */
    struct gb_staged_copy *covers_from; /* of an upload: the first copy that its watch covers */
    void *slot;
    size_t bytes;
    size_t summed; /* of an upload: bytes that are in the checksum */
    struct gb_stream *stream;
    struct gb_ev *start;
    struct gb_ev *end;
    struct gb_copy_sample *sample; /* where its times are kept, or come from; may be NULL */
    struct gb_copy_times times;
    bool sampled;  /* the times are those of another copy, and start is NULL */
    bool busy;     /* the transfer's lock */
    unsigned uses; /* of an upload: the copy, and the slot's way to the disk; the transfer's lock */
    struct gb_tee_piece piece;
    bool first; /* the transfer's first copy; the wait before it is the queue time */
};

/* Record the events before and after work on the stream that is not one plain copy. The first copy of a transfer also
 * sets its mark. Return 0; -1: the slot may still be in use, see gb_staged_copy_abandon. */
int gb_staged_copy_open(struct gb_staged_copy *copy, struct gb_stream *stream, struct gb_error *err);
int gb_staged_copy_close(struct gb_staged_copy *copy, struct gb_error *err);
/* Queues the copy of a box of the memory at place, packed at byte `at` of the slot. Called between open and close. */
int gb_staged_copy_box(struct gb_staged_copy *copy, const struct gb_location *place, size_t at,
                       const struct gb_box *box, enum gb_copy_direction direction, struct gb_error *err);
/* Declares, before open, that the slot has all bytes of the transfer, so that its times may be those of another
 * copy. */
void gb_staged_copy_whole(struct gb_staged_copy *copy, enum gb_copy_direction direction, size_t bytes);
/* Queues the copy between the slot and the memory at place, with its open and close. Errors as open and close. */
int gb_staged_copy_copy(struct gb_staged_copy *copy, const struct gb_location *place, enum gb_copy_direction direction,
                        struct gb_stream *stream, struct gb_error *err);

/* Adds the times of a finished copy to its transfer. */
void gb_staged_copy_account(struct gb_staged_copy *copy);

/* Gives back the events, and the slot if the copy has one. */
void gb_staged_copy_release(struct gb_staged_copy *copy);

/* Cleans up a failed copy that has no watch. Takes over a reference to the transfer. When the stream has finished its
 * queued work, the slot and the events are given back and the reference is dropped. */
void gb_staged_copy_abandon(struct gb_staged_copy *copy);

/* --- reading for checksums ---------------------------------------------------------------------------------------- */

struct gb_hash_reader {
    struct gb_task task;
    struct gb_lane *lane;
    atomic_int state;
    atomic_bool cut;
    struct gb_core *core;
    enum gb_hash_reader_use use;
    struct gb_download *download; /* set by the owner before the start, and freed by it after the end */
    bool sums;                    /* the CRC32C too */
    struct gb_hash *hash[GB_DIGEST_ALGS];
    struct gb_scan_choice choice; /* set by the owner, who frees its argument */
    uint64_t at;                  /* bytes read */
    uint64_t left;                /* bytes; set by the owner before the start */
    uint32_t crc;
    /* Starts the download when it has its turn, and sets left. On the lane. Returns 1; 0: the download's wake follows;
     * -1. NULL: it was started. */
    int (*begin)(struct gb_hash_reader *reader, struct gb_error *err);
    /* Called once, on the lane, when all was read (error NULL) or the reading failed. It is the reading's last call. */
    void (*end)(struct gb_hash_reader *reader, const struct gb_error *error);
};

/* digests: a set of 1u << enum gb_digest_alg. 0, or -1 with SATURATED beyond GB_SCANS_MAX of that use;
 * gb_hash_reader_done follows either way. */
int gb_hash_reader_init(struct gb_hash_reader *reader, struct gb_core *core, enum gb_hash_reader_use use,
                        unsigned digests, struct gb_error *err);
/* Adds n bytes to the digests, before those of the buffer. Returns 0 or -1. */
int gb_hash_reader_head(struct gb_hash_reader *reader, const void *head, size_t n, struct gb_error *err);
void gb_hash_reader_start(struct gb_hash_reader *reader);
void gb_hash_reader_wake(void *reader); /* the download's wake */
/* Makes the reading end soon, with an error. [until end has begun] */
void gb_hash_reader_cut(struct gb_hash_reader *reader);
void gb_hash_reader_done(struct gb_hash_reader *reader); /* frees the download */

#endif
