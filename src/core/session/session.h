/* A session in memory, and the buffers in it. */
#ifndef GB_CORE_SESSION_SESSION_H
#define GB_CORE_SESSION_SESSION_H

#include "core/memory/content.h"
#include "core/runtime/runtime.h"
#include "core/util/fifo_lock.h"
#include "core/util/mirror.h"

enum gb_session_state {
    GB_SESSION_NEW, /* its record is on the way to the database */
    GB_SESSION_LIVE,
    GB_SESSION_DELETING, /* its end is on the way to the database */
    GB_SESSION_DEAD
};

struct gb_session {
    atomic_uint refs; /* the map's, and one for each content, transfer and call */
    struct gb_core *core;
    int64_t id;
    struct gb_name name;
    _Atomic int state;
    _Atomic uint64_t touched_ns; /* last sign of life, monotonic */
    atomic_uint transfers;       /* running: a sign of life that lasts */
    struct gb_live_counters live_counters;
    struct { /* as of the last sample; the sampler's alone */
        struct gb_counters counted;
        uint64_t looked_ns; /* before the first: when it was made */
    } past;
    struct gb_level level;

    pthread_mutex_t lock; /* for all below */
    struct gb_session_rec rec;
    struct gb_fifo_lock fifo;
    uint64_t used_bytes; /* of all contents, reserved ones included */
    uint64_t used_pinned_bytes;
    uint64_t counted_buffers; /* live and reserved */
    uint64_t live_buffers;
    uint64_t lost_buffers;
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
    uint64_t streams_held; /* those that drain included */
    struct gb_map events;  /* by name: struct gb_core_event */
    struct gb_idlist events_by_id;
    int64_t last_order_id;       /* of streams and events */
    struct gb_idlist multiparts; /* each with a reference; completed ones are remembered for a while */
    uint64_t multiparts_open;
    uint64_t multipart_bytes;

    atomic_uint streams_open; /* while it is taken down */
};

/* A record as it is kept: there are many of these, so names take no more memory than they need. */
struct gb_buffer_kept {
#define GB_BUFFER_FIELD(type, name) type name;
#include "model/buffer.def"
#undef GB_BUFFER_FIELD
    struct gb_text *pool; /* a reference, as the two below */
    struct gb_text *stream;
    struct gb_text *labels;
};

/* A buffer's place. One that is not live only keeps the name for who has the turn. Guarded by the session's lock. */
struct gb_buffer {
    int64_t id; /* 0: none yet */
    bool live;
    bool deleting;       /* still live in the database, gone for everyone else */
    bool in_place;       /* being overwritten where it is */
    const void *grouped; /* while a group of changes looks for its places */
    struct gb_buffer_kept rec;
    struct gb_content *content;         /* holds a reference; NULL when lost, and of a mirrored buffer */
    struct gb_content *sides[GB_SIDES]; /* of a mirrored buffer, each with a reference; NULL: not needed yet, or lost.
                                         * At least as large as the buffer while it is current */
    struct gb_fifo_lock fifo;
    char name[];
};

/* Where a buffer's bytes may be: the sides, and what one has that is not mirrored. NULL: nothing there. */
#define GB_BUFFER_CONTENTS (GB_SIDES + 1)
static inline struct gb_content *gb_buffer_content_at(const struct gb_buffer *buffer, int i) {
    return i < GB_SIDES ? buffer->sides[i] : buffer->content;
}

/* rec is copied. Returns it with one reference, not in the map. NULL when memory is exhausted. */
struct gb_session *gb_session_new(struct gb_core *core, const struct gb_session_rec *rec, enum gb_session_state state);
struct gb_session *gb_session_ref(struct gb_session *session);

/* NULL is accepted. Not under the session's lock. The last one takes its streams down. */
void gb_session_unref(struct gb_session *session);

/* Into map and list, where there are fewer than max; the map takes over the reference on success. SESSION_EXISTS,
 * LIMIT_REACHED. */
int gb_session_enroll(struct gb_session *session, uint64_t max, struct gb_error *err);
void gb_session_withdraw(struct gb_session *session); /* and drops the map's reference */

/* A live session with a reference, or NULL with SESSION_NOT_FOUND. */
struct gb_session *gb_session_find(struct gb_core *core, const struct gb_name *name, struct gb_error *err);

/* The same, and it counts as a sign of life. */
struct gb_session *gb_session_use(struct gb_core *core, const struct gb_name *name, struct gb_error *err);
void gb_session_touch(struct gb_session *session);

/* The next by id with a reference, whatever its state; NULL at the end. */
struct gb_session *gb_session_after(struct gb_core *core, int64_t id);

/* SESSION_NOT_FOUND unless live. */
int gb_session_alive(struct gb_session *session, struct gb_error *err);
/* ret->rec is zeroed, or has a record, whose labels it gives back; it holds a reference. The session's lock is held. */
void gb_session_view_locked(struct gb_session *session, struct gb_session_view *ret);

/* True when it has been idle for longer than its time to live: nothing runs, nobody maps a buffer and nobody's memory is in one. The session's lock is
 * held. */
bool gb_session_idle(struct gb_session *session);

/* For stream.c alone: one of its streams was taken down. */
void gb_session_release(struct gb_session *session);

/* events.c: at the end, nobody else is left. */
void gb_session_forget_events(struct gb_session *session);

/* The next of its pools by id, with a reference; NULL at the end. */
struct gb_core_pool *gb_session_pool_after(struct gb_session *session, int64_t *id);

/* Takes all its pools out of sight, to be dropped by gb_session_drop_pools without the lock. */
struct gb_idlist gb_session_take_pools_locked(struct gb_session *session);
void gb_session_drop_pools(struct gb_idlist *pools);

/* multipart.c: ends those of which nothing has come for a while; all of them. Without locks. */
void gb_multiparts_expire(struct gb_session *session);
void gb_multiparts_end(struct gb_session *session, const struct gb_error *why);

/* --- quota ------------------------------------------------------------------------------------------------------------ */

/* Would bytes and count more fit? QUOTA_EXCEEDED or LIMIT_REACHED. Who refuses for it counts that (gb_alloc_stats_denied); tell: it
 * is told to the feed. */
int gb_quota_check_locked(struct gb_session *session, uint64_t bytes, uint64_t count, bool tell, struct gb_error *err);
/* Counts them in, or nothing, but that it was refused. */
int gb_quota_take_locked(struct gb_session *session, uint64_t bytes, uint64_t count, struct gb_error *err);
void gb_quota_give_locked(struct gb_session *session, uint64_t bytes, uint64_t count);

/* Page-locked host memory, which counts among all bytes too. QUOTA_EXCEEDED. */
int gb_quota_check_pinned_locked(struct gb_session *session, uint64_t bytes, bool tell, struct gb_error *err);
int gb_quota_take_pinned_locked(struct gb_session *session, uint64_t bytes, struct gb_error *err);
void gb_quota_give_pinned_locked(struct gb_session *session, uint64_t bytes);

/* --- buffers ------------------------------------------------------------------------------------------------------------ */

/* A place of that name, and nothing else, in no map. NULL when memory is exhausted. */
struct gb_buffer *gb_buffer_new(const struct gb_name *name);
void gb_buffer_free(struct gb_buffer *buffer);

/* The record, with labels that are borrowed as long as the session's lock is held. */
void gb_buffer_look_locked(const struct gb_buffer *buffer, struct gb_buffer_rec *ret);

/* The record with a reference to its labels. rec is zeroed, or has a record, whose labels it gives back. */
void gb_buffer_copy_locked(const struct gb_buffer *buffer, struct gb_buffer_rec *rec);

/* The text of a name of pool or stream for the buffer to keep, without an allocation where one is known: the buffer's own, or that of
 * the session's pool or stream. A reference goes to *at, which gives back what it had. Returns 0, or -1 when memory is exhausted. */
int gb_buffer_pool_text_locked(struct gb_session *session, const struct gb_buffer *buffer, const struct gb_name *pool,
                               struct gb_text **at);
int gb_buffer_stream_text_locked(struct gb_session *session, const struct gb_buffer *buffer,
                                 const struct gb_name *stream, struct gb_text **at);

/* Asks the check, if there is one (NULL is accepted), about the buffer's record; buffer NULL: there is none. */
int gb_buffer_check_locked(const struct gb_buffer_check *check, const struct gb_buffer *buffer, struct gb_error *err);

/* The live buffer of that name, else NULL (err may be NULL: no error wanted). */
struct gb_buffer *gb_buffer_find_locked(struct gb_session *session, const struct gb_name *name, struct gb_error *err);

/* For readers: the record, as gb_buffer_copy_locked, and a reference to its bytes; NULL for a mirrored buffer that nobody has written: zeros.
 * BUFFER_BUSY, BUFFER_PARTIAL, CONTENT_LOST. */
int gb_buffer_hold_locked(struct gb_session *session, const struct gb_name *name, struct gb_buffer_rec *ret_rec,
                          struct gb_content **ret_content, struct gb_error *err);

/* Swaps what the buffer holds and its record, but for the names of pool and stream, which only a transaction changes, and keeps the
 * sums right. The buffer takes a reference of its own to the labels. content's reference goes to the buffer; the old
 * content's comes back, to be dropped without the lock. */
struct gb_content *gb_buffer_set_locked(struct gb_session *session, struct gb_buffer *buffer,
                                        const struct gb_buffer_rec *rec, struct gb_content *content);

/* The same of one side alone; content may be NULL. */
struct gb_content *gb_buffer_set_side_locked(struct gb_buffer *buffer, enum gb_side side, struct gb_content *content);

/* It has bytes in that pool. */
bool gb_buffer_in_pool(const struct gb_buffer *buffer, const struct gb_core_pool *pool);

/* Out of sight: live no more, out of the list, its count given back. Returns the contents to be dropped, linked by next.
 * The place itself stays. */
struct gb_content *gb_buffer_clear_locked(struct gb_session *session, struct gb_buffer *buffer);

/* The bytes are gone, the record stays. Returns the contents to be dropped, linked by next. */
struct gb_content *gb_buffer_lose_locked(struct gb_session *session, struct gb_buffer *buffer);

/* Clears every buffer of the session. Returns the contents to be dropped, linked by next. */
struct gb_content *gb_session_clear_locked(struct gb_session *session);

/* Takes the place out of the map when nothing keeps it. */
void gb_buffer_reap_locked(struct gb_session *session, struct gb_buffer *buffer);

#endif
