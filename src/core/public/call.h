/* Calls: work that a function of the core starts, and how it went. Comes with core.h. */
#ifndef GB_CORE_PUBLIC_CALL_H
#define GB_CORE_PUBLIC_CALL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/digest.h"
#include "core/public/pool.h"
#include "core/public/stream.h"
#include "core/public/types.h"

struct gb_transaction_batch;
struct gb_lease_grant;

/* An asynchronous call and its result. The starter sets done and arg; both sides hold a reference until they are
 * through: gb_call_new returns two, the core gives its own back after done. */
struct gb_call {
    atomic_int refs;
    atomic_bool finished; /* results may be read once this is true */
    void (*done)(void *arg);
    void *arg;
    struct gb_transaction_batch *batch; /* the starter's: what it commits with; a reference, NULL: by itself */
    bool batched;                       /* the core's: its change is there */
    struct gb_store_mark mark; /* the starter's: the key of its request, committed with what the call does; "": none */
    struct gb_error error;     /* code GB_OK: success */
    bool created;              /* the call made the resource */
    struct gb_session_view session;
    struct gb_buffer_rec buffer;
    enum gb_copy_way way; /* of a device write or sync: how the bytes went */
    struct gb_transfer_times times;
    bool copied;             /* sync: that side was stale */
    struct gb_mem_attr attr; /* attributes */
    struct {
        bool had_crc32c; /* of the record, when the reading began */
        uint32_t crc32c; /* as read, with verify */
        struct gb_digest digest[GB_DIGEST_ALGS];
    } scan;
    struct gb_pool_view pool;
    struct gb_pool_trim trim;
    struct gb_stream_view stream;
    struct gb_event_view event;
    struct gb_multipart_view multipart;
    struct gb_lease_grant *lease; /* of gb_lease_map, else NULL; freed with the call */
    uint64_t held_bytes;          /* deleted and still mapped */

    /* The core's: how it can be cancelled, under the lock. */
    pthread_mutex_t lock;
    bool (*cancel_hold)(void *arg);
    bool (*cancel)(void *arg, bool act);
    void *cancel_arg;
    bool cancelled;
};

struct gb_call *gb_call_new(void (*done)(void *arg), void *arg); /* NULL when memory is exhausted */
void gb_call_unref(struct gb_call *call);

/* [now] Whether the call can still be undone as if it had never been made: it waits for memory, or what it queued writes
 * into fresh memory and is not done. act: does so; it ends with CANCELLED, and its memory is free once the stream has passed
 * what is queued. False: it cannot be, any more or at all. The caller holds a reference. */
bool gb_call_cancel(struct gb_call *call, bool act);

#endif
