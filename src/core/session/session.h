/* A session in memory: its names, pools, streams and events, and operations that hold it. */
#ifndef GB_CORE_SESSION_SESSION_H
#define GB_CORE_SESSION_SESSION_H

#include <stdint.h>
#include <sys/queue.h>

#include "base/error.h"
#include "base/text.h"
#include "core/memory/pool.h"
#include "core/public/session.h"
#include "core/runtime/runtime.h"
#include "core/util/fifo_lock.h"

struct gb_core;
struct gb_core_device;
struct gb_core_pool;
struct gb_session;
struct gb_session_pools;

/* --- streams and events ------------------------------------------------------------------------------------------- */

/* A stream of the session, with one reference and one user; it is in no list yet. NULL when memory is exhausted. Before
 * its last use ends (gb_core_stream_unuse) the session gets a reference, which goes when the parts are gone. */
struct gb_core_stream *gb_session_stream_new(struct gb_session *session, const struct gb_name *name, int64_t id);

/* The session's stream of that name, "" being "default", with one more reference and user. The session's lock is held.
 * STREAM_NOT_FOUND. */
int gb_core_stream_use_locked(struct gb_session *session, const struct gb_name *name, struct gb_core_stream **ret,
                              struct gb_error *err);

/* The turns (core/buffer/order.h) of other streams that are before all later work of a stream, because it has waited
 * for an event. The session's lock. */
struct gb_frontier {
    size_t count;
    struct gb_frontier_entry {
        int64_t stream;
        uint64_t number; /* this turn and all before it */
    } at[];
};

/* Whether that turn of another stream is before later work of the stream. */
bool gb_stream_follows(const struct gb_core_stream *stream, int64_t other, uint64_t number);

/* The work that the last record of an event covers. */
struct gb_event_mark {
    atomic_uint refs;
    struct gb_frontier *frontier;
    struct gb_core *core;
    atomic_bool announced; /* gb_event_announce has begun */
    int awaited;           /* the device whose end it waits for */
    struct gb_ev *evs[];   /* of each device; NULL: nothing was queued there */
};

struct gb_core_event {
    atomic_uint refs; /* the session's, and of each call under way */
    int64_t id;
    struct gb_name name;
    int64_t created_at_us;
    struct gb_name stream;      /* the session's lock, for these three: of the last record */
    struct gb_event_mark *mark; /* NULL: none */
    uint64_t records;
};

/* The event of that name as it is, but for done, and the mark of its last record with a reference; *ret_mark is NULL if
 * it was never recorded. Takes the session's lock. EVENT_NOT_FOUND. */
int gb_event_mark_get(struct gb_session *session, const struct gb_name *name, struct gb_event_view *ret,
                      struct gb_event_mark **ret_mark, struct gb_error *err);

/* NULL is accepted, in both. */
void gb_event_mark_unref(struct gb_event_mark *mark);
void gb_core_event_unref(struct gb_core_event *event);

/* --- pools -------------------------------------------------------------------------------------------------------- */

/* The pools of sessions, and which sessions have any: few of what may be ten thousand, so that a poll of the statistics
 * need not visit the others. */

/* NULL when memory is exhausted. gb_session_pools_free accepts NULL. */
struct gb_session_pools *gb_session_pools_new(void);
void gb_session_pools_free(struct gb_session_pools *pool_sessions);

/* Called after each change of the session's pools, under its lock. -1: memory is exhausted; only if the pool is its
 * first. */
int gb_session_pools_update_locked(struct gb_session_pools *pool_sessions, struct gb_session *session);

/* The pool that the session sees under that name, lost ones included; no reference is taken. "" is the first device's
 * own. The session's lock is held. POOL_NOT_FOUND. */
struct gb_core_pool *gb_core_pool_find_locked(struct gb_session *session, const struct gb_name *name,
                                              struct gb_error *err);

/* The pool for memory of the device that names none: the session's current pool of the device, else the device's own.
 * The session's lock is held. */
struct gb_core_pool *gb_session_pool_locked(struct gb_session *session, const struct gb_core_device *device);

/* Makes the pool of that name its device's current pool in *current, a record's current_pools. A device's own pool
 * undoes the device's; "" undoes all. POOL_NOT_FOUND, or why the pool gives no memory. The session's lock is held. */
int gb_session_choose_pool_locked(struct gb_session *session, const struct gb_name *name, struct gb_text **current,
                                  struct gb_error *err);

/* As gb_core_pool_find_locked, by the names of session and pool. On success the session's lock is held and *ret_session
 * is the session, until gb_core_pool_unlock. NULL: no lock is held. */
struct gb_core_pool *gb_core_pool_lock(struct gb_core *core, const struct gb_locator *at,
                                       struct gb_session **ret_session, struct gb_error *err);

void gb_core_pool_unlock(struct gb_session *session);

/* Puts the pool into the session's map and list, which take a reference on success. The session's lock is held. */
int gb_core_pool_enroll_locked(struct gb_session *session, struct gb_core_pool *pool, struct gb_error *err);

/* The next pool of the session by id, with a reference; NULL at the end. Takes the session's lock. */
struct gb_core_pool *gb_session_pool_after(struct gb_session *session, int64_t *id);

enum gb_session_state {
    GB_SESSION_NEW, /* its record is on the way to the database */
    GB_SESSION_LIVE,
    GB_SESSION_DELETING, /* its end is on the way to the database */
    GB_SESSION_DEAD
};

/* Of sealed buffers that other nodes have copies of. */
struct gb_copies {
    uint64_t edition;       /* rises whenever a sealed buffer comes or goes; 0: not read yet */
    uint64_t all;           /* every name that is not taken is withheld until the holders know this edition; 0: none */
    struct gb_map withheld; /* by name: until they know that of its deletion */
};

struct gb_session {
    atomic_uint refs; /* the map's, and one for each content, transfer and call */
    struct gb_core *core;
    int64_t id;
    struct gb_name names[3]; /* the next: that which it gets when it arrives, or is set aside */
    _Atomic(const struct gb_name *) called;
    _Atomic(const struct gb_name *) left; /* the name with which it went to another node; NULL: it did not */
    _Atomic int state;
    _Atomic uint64_t touched_ns; /* last call that names the session, monotonic; reads do not count */
    atomic_uint transfers;       /* running: the session is not idle meanwhile */
    struct gb_live_counters live_counters;
    struct { /* as of the last sample; the sampler's alone */
        struct gb_counters counted;
        uint64_t looked_ns; /* before the first: when it was made */
    } past;
    struct gb_level level;

    pthread_mutex_t lock; /* for all below */
    struct gb_session_rec rec;
    bool aside;               /* it is set aside, or about to be, so that clients change nothing in it */
    uint64_t frozen;          /* clients change nothing in it for a moment: the number of the freeze; 0: they do */
    uint64_t frozen_until_ns; /* UINT64_MAX: it is being given away, or was when an earlier process ended */
    bool given;               /* the database says so, of this process: rec.given is of the one before */
    uint64_t changing;        /* clients' changes that are on the way to the database */
    struct gb_fifo_lock fifo;
    uint64_t used_bytes; /* of all contents, reserved ones included */
    uint64_t used_pinned_bytes;
    uint64_t used_stored_bytes;     /* of all stored bytes */
    uint64_t reserved_stored_bytes; /* of those that are being written beyond that */
    uint64_t counted_buffers;       /* live and reserved */
    uint64_t live_buffers;
    uint64_t lost_buffers;
    uint64_t behind;       /* buffers whose bytes are to be stored within the lag */
    uint64_t movable;      /* buffers whose bytes are in memory and may leave it */
    uint64_t leases;       /* those being made included */
    uint64_t held_bytes;   /* of contents that are mapped and of no buffer any more */
    uint64_t adopted;      /* contents of memory of other processes */
    struct gb_map buffers; /* by name: struct gb_buffer */
    struct gb_idlist buffers_by_id;
    struct gb_map pools; /* by name: struct gb_core_pool, those being made and deleted included */
    struct gb_idlist pools_by_id;
    struct gb_core_stream *standard; /* "default"; never changes */
    struct gb_map streams;           /* by name: struct gb_core_stream, all others */
    struct gb_idlist streams_by_id;
    uint64_t streams_held; /* removed streams that drain included */
    struct gb_map events;  /* by name: struct gb_core_event */
    struct gb_idlist events_by_id;
    int64_t last_order_id;                   /* of streams and events */
    uint64_t last_turn;                      /* the number of the last one (core/buffer/order.h) */
    _Atomic uint64_t oldest_turn;            /* of those under way; UINT64_MAX: none is. Read without the lock, too */
    TAILQ_HEAD(gb_turn_list, gb_turn) turns; /* those under way, in the order of acceptance */
    struct gb_idlist multiparts;             /* each with a reference; completed ones are remembered for a while */
    uint64_t multiparts_open;
    uint64_t multipart_bytes;

    struct gb_copies copies;

    atomic_uint streams_open; /* while it is taken down */
};

/* Copies rec. Returns the session with one reference, in no map. NULL if memory is exhausted. */
struct gb_session *gb_session_new(struct gb_core *core, const struct gb_session_rec *rec, enum gb_session_state state);
struct gb_session *gb_session_ref(struct gb_session *session);

/* Its name at this moment. It changes when the session arrives from another node, and when it is set aside; what was
 * returned before stays valid as long as the session. [any thread, no lock] */
const struct gb_name *gb_session_name(const struct gb_session *session);

/* The name that clients know. The rest of a session that went to another node has a new name here, which they do not
 * know. */
const struct gb_name *gb_session_client_name(const struct gb_session *session);

/* gb_session_use and gb_session_unref: core/public/session.h. The last reference takes the streams down. */

/* Puts the session into map and list if there are fewer than max; on success the map takes the reference.
 * SESSION_EXISTS, LIMIT_REACHED. */
int gb_session_enroll(struct gb_session *session, uint64_t max, struct gb_error *err);
/* Takes it out and drops the map's reference, unless that was done: a session may expire while the core is closed. */
void gb_session_withdraw(struct gb_session *session);

/* Reserves another name for a registered session, "NAME.superseded-EPOCH": no other session gets it, and this one is
 * not found by it yet. The caller has the session's fifo lock. Returns 0 or -1. */
int gb_session_reserve_name(struct gb_session *session, struct gb_error *err);
/* As above, for the name of a session that arrives. It may be reserved already. Errors: SESSION_EXISTS. */
int gb_session_reserve(struct gb_session *session, const struct gb_name *name, struct gb_error *err);
void gb_session_free_name(struct gb_session *session); /* gives the reserved name back */
/* The reserved name. */
const struct gb_name *gb_session_next_name(const struct gb_session *session);
/* From now on the session has the reserved name and rec. Cannot fail. */
void gb_session_rename(struct gb_session *session, const struct gb_session_rec *rec);

void gb_sessions_left_done(struct gb_core *core); /* at the end: gb_session_forget_left of all */

/* A live session with a reference, or NULL with SESSION_NOT_FOUND; SESSION_MOVING if it has just gone to another
 * node. */
struct gb_session *gb_session_find(struct gb_core *core, const struct gb_name *name, struct gb_error *err);

/* The session that the caller holds (NULL: the one of that name) with a reference of its own, as gb_session_use. If it
 * has another name now, it is not found, or SESSION_MOVING: a request for the one name writes nothing into one that was
 * set aside. */
struct gb_session *gb_session_use_held(struct gb_core *core, struct gb_session *held, const struct gb_name *name,
                                       struct gb_error *err);
void gb_session_touch(struct gb_session *session);

/* The next by id with a reference, whatever its state; NULL at the end. */
struct gb_session *gb_session_after(struct gb_core *core, int64_t id);

/* SESSION_NOT_FOUND unless live; SESSION_MOVING if it went to another node before. */
int gb_session_alive(struct gb_session *session, struct gb_error *err);
/* The same, and SUPERSEDED if it was set aside, or SESSION_MOVING if that is because it went to another node: for a
 * change that had begun before it was frozen. The session's lock is held. */
int gb_session_open_locked(struct gb_session *session, struct gb_error *err);
/* The same, and SESSION_MOVING while it is frozen: for what a client changes. The session's lock is held. */
int gb_session_changeable_locked(struct gb_session *session, struct gb_error *err);
/* Whether that freeze is in force, all changes have ended and nothing keeps the session here: for giving it away. The
 * caller has its turn. SESSION_MOVING, BUFFER_BUSY, MAPPED, ADOPTED. The session's lock is held. */
int gb_session_check_frozen_locked(struct gb_session *session, uint64_t freeze, struct gb_error *err);
/* ret->rec is zeroed, or has a record, whose labels it gives back; it holds a reference. The session's lock is held. */
void gb_session_view_locked(struct gb_session *session, struct gb_session_view *ret);

/* Has the session been idle for longer than its time to live? It is not idle while a transfer runs, a client maps a
 * buffer, or a buffer lies in memory of another process. The session's lock is held. */
bool gb_session_idle(struct gb_session *session);

/* Takes all pools out of sight; gb_session_drop_pools drops them without the lock. */
struct gb_idlist gb_session_take_pools_locked(struct gb_session *session);
void gb_session_drop_pools(struct gb_idlist *pools);

/* --- names that other nodes may know ------------------------------------------------------------------------------ */

/* Names of sealed buffers of which other nodes may have copies. Such a name is given to no other bytes until those
 * nodes have dropped what it named: a copy is then never served under a name that means something else. */

/* COPIES_REMAIN: a buffer of that name cannot be made yet. The session's lock is held. */
int gb_copies_check_name_locked(struct gb_session *session, const char *name, struct gb_error *err);
/* The buffer of that name was created, changed or deleted. The session's lock is held. */
void gb_copies_note_locked(struct gb_session *session, const char *name, bool was_sealed, bool is_sealed);
/* The holders have changed, or were read from the database. The session's lock is held. */
void gb_copies_set_locked(struct gb_session *session, bool withhold_all);

/* --- operations --------------------------------------------------------------------------------------------------- */

/* One call's work in a session: what all operations share, from the look at the session to the end of the call.
 *
 *     struct my_op *op = gb_op_new(sizeof(*op), gb_op_session(core, name, &err), call, NULL, NULL, &err);
 *
 *     if (!op)
 *         return;
 *     ...
 *     gb_op_end(&op->base, error);
 */

struct gb_op {
    struct gb_session *session; /* a reference */
    struct gb_call *call;
    void (*free_arg)(void *arg); /* NULL: none */
    void *arg;                   /* of the caller's check */
};

/* As gb_session_use, for operations that call the device: NULL with err if it is dead. */
struct gb_session *gb_op_session(struct gb_core *core, const struct gb_name *name, struct gb_error *err);

/* An operation of `size` bytes, zeroed but for the gb_op that it begins with. Takes the reference to session over;
 * NULL: the call ends with *err. free_arg(arg) runs once, when the operation ends; free_arg may be NULL. Without locks.
 * Returns NULL when the call has ended; everything is released then. */
void *gb_op_new(size_t size, struct gb_session *session, struct gb_call *call, void (*free_arg)(void *arg), void *arg,
                struct gb_error *err);

/* Frees the operation, finishes its call, drops the session. error may be part of the operation; NULL or GB_OK:
 * success. Tells the housekeeper when the error is that the device is dead. Without locks. */
void gb_op_end(struct gb_op *op, const struct gb_error *error);

/* --- holds of streams --------------------------------------------------------------------------------------------- */

struct gb_holds;

/* NULL when memory is exhausted. */
struct gb_holds *gb_holds_new(void);

/* After gb_holds_release and the last lane. NULL is accepted. */
void gb_holds_free(struct gb_holds *holds);

#endif
