/* Calls: work that a function of the core starts, and its result.
 *
 * * A call and its result are one block of memory with a reference count. Each result has a type of its own that begins
 * with struct gb_call (struct gb_buffer_call and so on); a function of the core names the type it fills in. Work
 * without a result takes the plain struct gb_call.
 *
 * * gb_call_new returns the block with two references. The caller gives its own back with gb_call_unref. The other
 * belongs to the core from the function that starts the work until done has returned. The core writes the result and
 * the error, from any thread, until `finished` is true. From then on each holder of a reference may read them. After an
 * error only the error is valid, unless the function's contract says otherwise. */
#ifndef GB_CORE_PUBLIC_CALL_H
#define GB_CORE_PUBLIC_CALL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/error.h"
#include "core/public/types.h"
#include "model/model.h"
#include "store/store.h"

struct gb_copy_source;
struct gb_core;
struct gb_transaction_batch;
struct gb_turn;

struct gb_call {
    atomic_int refs;
    atomic_bool finished;
    void (*done)(void *arg); /* the caller's: runs once, on any thread or inside the starting function; NULL: none */
    void *arg;
    struct gb_error error; /* code GB_OK: success */

    struct gb_store_mark mark;          /* the caller's: the request's key, committed with the work; "": none */
    struct gb_transaction_batch *batch; /* the batch's: a reference, until the call's transaction joins it */
    struct gb_turn *turn; /* the batch's: the call's place on its stream, until the call takes it; NULL: none yet */
    void (*on_finish)(struct gb_call *call);   /* the batch's: runs before `finished` is set; NULL: none */
    void (*free_result)(struct gb_call *call); /* the core's: frees what the result owns; NULL: nothing */

    /* The core's: how the call can be cancelled (gb_call_offer). Guarded by the lock. */
    pthread_mutex_t lock;
    bool (*cancel_hold)(void *arg);
    bool (*cancel)(void *arg, bool act);
    void *cancel_arg;
    bool cancelled;
};

/* Makes a call with its result, zeroed. size: of the result's type. Returns NULL when memory is exhausted. */
void *gb_call_new(size_t size, void (*done)(void *arg), void *arg);

/* Drops a reference; the last one frees the call and its result. NULL is accepted. */
void gb_call_unref(struct gb_call *call);

/* [now] Cancels a call without a trace: one that waits for memory, or whose queued work writes into fresh memory and is
 * not done. act: the call ends with CANCELLED, and its memory is freed when the stream has passed the queued work.
 * Without act the function only tests. The caller holds a reference. Returns false if the call cannot be cancelled. */
bool gb_call_cancel(struct gb_call *call, bool act);

/* --- turns of a batch --------------------------------------------------------------------------------------------- */

/* Ends a turn that was taken and not used as failed, and frees it. NULL is accepted. */
void gb_turn_free(struct gb_turn *turn);

/* Where one call of a batch has its place. */
struct gb_turn_ask {
    struct gb_name buffer;
    struct gb_name source; /* of a copy or link within the session; "": none */
    struct gb_name stream; /* "" is "default" */
    struct gb_turn *turn;  /* the result, for gb_call.turn; NULL: the call says why not */
    /* Of a copy: gets the source's bytes as they are now or, if an earlier write of them is under way, as that leaves
     * them. The turn borrows it. NULL: no source, or that of a link, which needs no bytes in memory. */
    struct gb_copy_source *kept;
};

/* [now] Takes the turns of calls of one session, which follow each other: other requests come before or after all of
 * them, and their sources are those of one moment. */
void gb_turns_take(struct gb_core *core, const struct gb_name *session, struct gb_turn_ask *asks, size_t count);

/* [now] The turn's change is committed with others, which have the same batch; only compared. Before its call begins.
 * NULL is accepted. */
void gb_turn_join(struct gb_turn *turn, const void *batch);

/* --- results ------------------------------------------------------------------------------------------------------ */

struct gb_session_call {
    struct gb_call base;
    bool created; /* the call has created the session */
    struct gb_session_view session;
};

struct gb_buffer_call {
    struct gb_call base;
    struct gb_name stream; /* the caller's: of a call without a parameter for it; "" is "default" */
    bool created;          /* the call has created the buffer */
    bool copied;           /* sync: that side was stale */
    enum gb_copy_way way;  /* of a device write or sync: how the bytes were copied */
    struct gb_transfer_times times;
    uint64_t held_bytes; /* of a deletion: bytes that are still mapped */
    struct gb_buffer_rec buffer;
};

struct gb_attributes_call {
    struct gb_call base;
    struct gb_buffer_rec buffer;
    struct gb_mem_attr attr;
};

#endif
