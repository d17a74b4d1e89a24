/* A session in memory. */
#ifndef GB_CORE_SESSION_SESSION_H
#define GB_CORE_SESSION_SESSION_H

#include "core/device/pool.h"
#include "core/device/stream.h"
#include "core/public/session.h"
#include "core/runtime/runtime.h"
#include "core/session/notices.h"
#include "core/session/pools.h"
#include "core/session/streams.h"
#include "core/util/fifo_lock.h"

enum gb_session_state {
    GB_SESSION_NEW, /* its record is on the way to the database */
    GB_SESSION_LIVE,
    GB_SESSION_DELETING, /* its end is on the way to the database */
    GB_SESSION_DEAD
};

/* Of sealed buffers that other nodes have copies of (copies.h). */
struct gb_copies {
    uint64_t edition;       /* rises whenever a sealed buffer comes or goes; 0: it was not asked for yet */
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
    bool aside;               /* it is set aside, or about to be: clients change nothing in it */
    uint64_t frozen;          /* clients change nothing in it for a moment: the number of the freeze; 0: they do */
    uint64_t frozen_until_ns; /* UINT64_MAX: it is being given away, or was when a process before this one ended */
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
    int64_t last_order_id;       /* of streams and events */
    struct gb_idlist multiparts; /* each with a reference; completed ones are remembered for a while */
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
static inline const struct gb_name *gb_session_name(const struct gb_session *session) {
    return atomic_load(&session->called);
}

/* The name for what clients are told: what is left here of a session that went to another node is no session of theirs
 * under its new name. */
static inline const struct gb_name *gb_session_told(const struct gb_session *session) {
    const struct gb_name *left = atomic_load(&session->left);

    return left ? left : gb_session_name(session);
}

/* gb_session_use and gb_session_unref: core/public/session.h. The last reference takes the streams down. */

/* Puts the session into map and list if there are fewer than max; on success the map takes the reference.
 * SESSION_EXISTS, LIMIT_REACHED. */
int gb_session_enroll(struct gb_session *session, uint64_t max, struct gb_error *err);
void gb_session_withdraw(struct gb_session *session); /* and drops the map's reference */

/* Reserves another name for a registered session, "NAME.superseded-EPOCH": no other session gets it, and this one is
 * not found by it yet. The caller has the session's fifo lock. Returns 0 or -1. */
int gb_session_reserve_name(struct gb_session *session, struct gb_error *err);
/* The same of that name, for a session that arrives: SESSION_EXISTS. It may be reserved already. */
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

/* For streams.c alone: one of its streams was taken down. */
void gb_session_release(struct gb_session *session);

/* Has the session been idle for longer than its time to live? It is not idle while a transfer runs, a client maps a
 * buffer, or a buffer lies in memory of another process. The session's lock is held. */
bool gb_session_idle(struct gb_session *session);

/* Takes all pools out of sight; gb_session_drop_pools drops them without the lock. */
struct gb_idlist gb_session_take_pools_locked(struct gb_session *session);
void gb_session_drop_pools(struct gb_idlist *pools);

/* --- quota -------------------------------------------------------------------------------------------------------- */

/* Would bytes and count more fit, be it after other buffers have left memory? QUOTA_EXCEEDED, LIMIT_REACHED. A caller
 * that refuses for it counts that (gb_quota_denied). tell: the refusal is posted to the feed. */
int gb_quota_check_locked(struct gb_session *session, uint64_t bytes, uint64_t count, bool tell, struct gb_error *err);
/* Counts a refusal: the session or the daemon may hold no more, and no device was asked. */
void gb_quota_denied(struct gb_session *session, const struct gb_error *why);

/* Reserves bytes and count, or neither; a refusal is counted. */
int gb_quota_take_locked(struct gb_session *session, uint64_t bytes, uint64_t count, struct gb_error *err);
void gb_quota_give_locked(struct gb_session *session, uint64_t bytes, uint64_t count);

/* So many bytes do not fit now, and would if other buffers of the session left memory, which they may. */
bool gb_quota_promise_locked(struct gb_session *session, uint64_t bytes);
/* Reserves the bytes if they fit; a refusal is not counted. */
int gb_quota_redeem_locked(struct gb_session *session, uint64_t bytes, struct gb_error *err);

/* The same for bytes on disk. QUOTA_EXCEEDED. */
int gb_quota_check_stored_locked(struct gb_session *session, uint64_t bytes, bool tell, struct gb_error *err);
int gb_quota_take_stored_locked(struct gb_session *session, uint64_t bytes, struct gb_error *err);
void gb_quota_give_stored_locked(struct gb_session *session, uint64_t bytes);

/* Appended to PINNED_LIMIT if the client chose the kind. */
#define GB_QUOTA_OTHER_KIND ", or use kind \"pageable\""

/* The same for page-locked host memory, which counts among all bytes, and against the machine's
 * ceiling (util/pinned.h), too. QUOTA_EXCEEDED, PINNED_LIMIT. */
int gb_quota_check_pinned_locked(struct gb_session *session, uint64_t bytes, bool tell, struct gb_error *err);
int gb_quota_take_pinned_locked(struct gb_session *session, uint64_t bytes, struct gb_error *err);
void gb_quota_give_pinned_locked(struct gb_session *session, uint64_t bytes);

#endif
