/* Calls: work that a function of the core starts, and how it went. Comes with core.h.
 *
 * A call and its result are one block of memory with a reference count. Each result has a type of its own that begins
 * with struct gb_call (struct gb_buffer_call and so on); a function of the core names the type it fills in. Work
 * without a result takes the plain struct gb_call.
 *
 * gb_call_new returns the block with two references. One belongs to the caller, who gives it back with gb_call_unref.
 * The other belongs to the core from the function that starts the work until done has returned. The core writes the
 * result and the error, from any thread, until `finished` is true; whoever has a reference may read them from then on.
 * After an error only the error means something, unless the function says otherwise. */
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

struct gb_core;
struct gb_transaction_batch;

struct gb_call {
    atomic_int refs;
    atomic_bool finished;
    void (*done)(void *arg); /* the starter's: runs once, on any thread or inside the starting function; NULL: none */
    void *arg;
    struct gb_error error; /* code GB_OK: success */

    struct gb_store_mark mark;                 /* the starter's: the request's key, committed with the work; "": none */
    struct gb_transaction_batch *batch;        /* gb_transaction_batch_add's, until the call's transaction is there */
    void (*on_finish)(struct gb_call *call);   /* the same one's: runs before `finished` is set; NULL: none */
    void (*free_result)(struct gb_call *call); /* set by the core when the result owns something; NULL: it does not */

    /* The core's: how the call can be cancelled, under the lock. */
    pthread_mutex_t lock;
    bool (*cancel_hold)(void *arg);
    bool (*cancel)(void *arg, bool act);
    void *cancel_arg;
    bool cancelled;
};

/* A call with its result, zeroed; size is that of the result's type. NULL when memory is exhausted. */
void *gb_call_new(size_t size, void (*done)(void *arg), void *arg);

/* Gives a reference back; the last one frees call and result. NULL is accepted. */
void gb_call_unref(struct gb_call *call);

/* [now] Whether the call can still be undone as if it had never been made: it waits for memory, or what it queued
 * writes into fresh memory and is not done. act: does so; it ends with CANCELLED, and its memory is free once the
 * stream has passed what is queued. False: it cannot be, any more or at all. The caller holds a reference. */
bool gb_call_cancel(struct gb_call *call, bool act);

/* --- results ------------------------------------------------------------------------------------------------------ */

struct gb_session_call {
    struct gb_call base;
    bool created; /* the call made the session */
    struct gb_session_view session;
};

struct gb_buffer_call {
    struct gb_call base;
    bool created;         /* the call made the buffer */
    bool copied;          /* sync: that side was stale */
    enum gb_copy_way way; /* of a device write or sync: how the bytes went */
    struct gb_transfer_times times;
    uint64_t held_bytes; /* deleted and still mapped */
    struct gb_buffer_rec buffer;
};

struct gb_attributes_call {
    struct gb_call base;
    struct gb_buffer_rec buffer;
    struct gb_mem_attr attr;
};

#endif
