/* What uploads and downloads share: references, the wake-up of the caller, the place in the line for a slot.
 *
 * One thread at a time calls a transfer's functions; watches, grants and commits come from others. refs keeps the memory
 * until the last of them is through. */
#ifndef GB_CORE_TRANSFER_TRANSFER_H
#define GB_CORE_TRANSFER_TRANSFER_H

#include "core/buffer/buffer.h"
#include "core/memory/kind.h"

struct gb_core_transfer {
    atomic_uint refs;
    struct gb_core *core;
    struct gb_core_device *device;
    struct gb_session *session;
    struct gb_core_stream *stream;                      /* used until the end; NULL until it is known */
    void (*destroy)(struct gb_core_transfer *transfer); /* the last reference is gone */

    pthread_mutex_t wake_lock; /* held while wake runs: after closing it does not run any more; recursive */
    void (*wake)(void *arg);   /* NULL: closed */
    void *arg;

    pthread_mutex_t lock; /* for what follows, and for what the transfer says */
    bool want_wake;
    bool wake_on_error; /* whether anybody waits or not */
    bool slot_waiting;  /* in line, with a reference */
    bool closed;        /* the caller is gone */
    struct gb_error error;
    struct gb_slot_waiter waiter;
    struct gb_ev *mark; /* when the first copy was queued */
    bool silent;        /* no sign of life */
    uint64_t started_ns;
    uint64_t copy_ns;
    uint64_t queue_ns;
};

void gb_core_transfer_init(struct gb_core_transfer *transfer, struct gb_session *session, void (*wake)(void *arg),
                           void *arg, void (*destroy)(struct gb_core_transfer *transfer));
void gb_core_transfer_done(struct gb_core_transfer *transfer);    /* from destroy */
void gb_core_transfer_silence(struct gb_core_transfer *transfer); /* it keeps no session alive; before others know it */
void gb_core_transfer_ref(struct gb_core_transfer *transfer);
void gb_core_transfer_unref(struct gb_core_transfer *transfer); /* without its lock */

/* Takes the lock away from the caller's hands: sets the error (if any, the first wins), unlocks, wakes who waits. */
void gb_core_transfer_unlock_wake(struct gb_core_transfer *transfer);
void gb_core_transfer_fail(struct gb_core_transfer *transfer, const struct gb_error *error); /* without the lock */

/* Copies the error out, if there is one. The lock is held. Returns 0 or -1. */
int gb_core_transfer_check_locked(struct gb_core_transfer *transfer, struct gb_error *err);

/* The first slot, with a place in the line when there is none. The lock is held. */
void *gb_core_transfer_slot_locked(struct gb_core_transfer *transfer);

/* No wake after this; out of the line. Without the lock. */
void gb_core_transfer_close(struct gb_core_transfer *transfer);

/* The part of its stream on its device. It is there once memory was allocated on it, or the lane made it. */
static inline struct gb_stream *gb_core_transfer_part(struct gb_core_transfer *transfer) {
    return gb_core_stream_part(transfer->stream, transfer->device->index);
}

void gb_transfer_times(struct gb_core_transfer *transfer, struct gb_transfer_times *ret);

/* --- a copy under way ------------------------------------------------------------------------------------------------------- */

/* One slot and its copy. */
struct gb_staged_copy {
    struct gb_task task;
    struct gb_core_transfer *transfer;
    struct gb_staged_copy *next;        /* of an upload: sent after it */
    struct gb_staged_copy *covers_from; /* of an upload: the first of those that its watch tells of */
    void *slot;
    size_t bytes;
    size_t summed; /* of an upload: bytes that are in the checksum */
    struct gb_stream *stream;
    struct gb_ev *start;
    struct gb_ev *end;
    bool busy;  /* the transfer's lock */
    bool first; /* of its transfer: the wait before it is the queue time */
};

/* Queues the copy between the slot and the memory at place, with events around it; sets the mark with the first. -1: the slot
 * may still be in use, see gb_staged_copy_abandon. */
/* In two halves, for other work than a copy between slot and memory: events before and after it. */
int gb_staged_copy_open(struct gb_staged_copy *copy, struct gb_stream *stream, struct gb_error *err);
int gb_staged_copy_close(struct gb_staged_copy *copy, struct gb_error *err);
/* Between the two: a box of the memory at place, packed at byte `at` of the slot. */
int gb_staged_copy_box(struct gb_staged_copy *copy, const struct gb_location *place, size_t at,
                       const struct gb_box *box, enum gb_copy_direction direction, struct gb_error *err);
int gb_staged_copy_copy(struct gb_staged_copy *copy, const struct gb_location *place, enum gb_copy_direction direction,
                        struct gb_stream *stream, struct gb_error *err);

/* The copy is done: adds its times. */
void gb_staged_copy_account(struct gb_staged_copy *copy);

/* Gives slot (if it has one) and events back. */
void gb_staged_copy_release(struct gb_staged_copy *copy);

/* After a failure, with no watch on it: when the stream has done what is queued, slot and events are given back and a
 * reference of the transfer is dropped, which the caller hands over. */
void gb_staged_copy_abandon(struct gb_staged_copy *copy);

#endif
