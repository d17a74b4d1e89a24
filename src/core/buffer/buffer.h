/* A buffer in memory: its sides and contents, guards, lists of buffers that are stored together, and damage. */
#ifndef GB_CORE_BUFFER_BUFFER_H
#define GB_CORE_BUFFER_BUFFER_H

#include "core/durable/stored.h"
#include "core/memory/content.h"
#include "core/public/buffer.h"
#include "core/session/session.h"
#include "core/util/fifo_lock.h"
#include "model/model.h"

/* Mirrored buffers: which side is current, and what each action does to the sides. */

enum gb_mirror_action {
    GB_MIRROR_WRITE_HOST, /* all bytes */
    GB_MIRROR_WRITE_DEVICE,
    GB_MIRROR_MERGE_HOST, /* some bytes, the others stay */
    GB_MIRROR_MERGE_DEVICE,
    GB_MIRROR_READ,
    GB_MIRROR_SYNC_HOST,
    GB_MIRROR_SYNC_DEVICE,
    GB_MIRROR_RELEASE_HOST,
    GB_MIRROR_RELEASE_DEVICE,
    GB_MIRROR_RELEASE_ALL,
    GB_MIRROR_ACTIONS
};

enum gb_mirror_step {
    GB_MIRROR_GO,          /* the action needs no step before it */
    GB_MIRROR_ZERO,        /* the bytes are zeros: nothing is to be copied, the side is to be zeroed */
    GB_MIRROR_COPY,        /* first the bytes of the other side are copied */
    GB_MIRROR_FROM_HOST,   /* read this side */
    GB_MIRROR_FROM_DEVICE, /* read that one */
    GB_MIRROR_REFUSED      /* the bytes would be lost */
};

struct gb_mirror_move {
    enum gb_head next;
    enum gb_mirror_step step;
};

/* The table of all moves. */
struct gb_mirror_move gb_mirror_move(enum gb_head head, enum gb_mirror_action action);

enum gb_mirror_action gb_mirror_write(enum gb_side side, bool merge);

enum gb_side gb_other_side(enum gb_side side);

/* A record as a buffer keeps it. There are many of these, so names take no more memory than they need. */
struct gb_buffer_kept {
#define GB_BUFFER_FIELD(name, type, ...) GB_C_##type name;
#define GB_BUFFER_TEXT(...)
#include "model/buffer.def"

    struct gb_text *pool; /* a reference, as the two below */
    struct gb_text *stream;
    struct gb_text *labels;
    int64_t layout; /* as in struct gb_buffer_rec */
};

/* A buffer's place under its name. A place that is not live keeps the name for the change that holds the lock. Guarded
 * by the session's lock. */
struct gb_buffer {
    struct gb_session *session; /* borrowed: it outlives its buffers */
    int64_t id;                 /* 0: none yet */
    bool live;
    bool deleting;                        /* still live in the database, deleted for clients */
    bool in_place;                        /* being overwritten where it is: the memory of overwritten */
    const struct gb_content *overwritten; /* only compared */
    const void *grouped;                  /* while a group of changes looks for its places */
    struct gb_buffer_kept rec;
    struct gb_content *content;         /* holds a reference; NULL when lost, and of a mirrored buffer */
    struct gb_buffer *shares;           /* the next buffer that has the same content, in a ring; NULL: none */
    struct gb_content *sides[GB_SIDES]; /* of a mirrored buffer, each with a reference; NULL: not needed yet, or lost.
                                         * At least as large as the buffer while it is current */
    struct gb_stored *stored;           /* the bytes on disk, of stored_generation; a reference. NULL: none */
    struct gb_load *load;               /* brings them into memory, or failed to; core->loads' own. NULL: none */
    bool behind;                        /* its bytes are to be stored within the lag */
    bool storing;                       /* because of that, they are just being stored */
    uint64_t behind_ns;                 /* since when, or since it was stored last; other writes do not change it */
    int64_t behind_generation;          /* that was stored then */
    struct gb_together *together;       /* it is stored together with others; NULL: by itself */
    struct gb_buffer *together_before;  /* in their list */
    struct gb_buffer *together_next;    /* in their list */
    bool leaving;                       /* its bytes are chosen to leave memory, to make room for others */
    uint64_t sweep;                     /* the loads of many that it is of (durable/load.h); 0: none under way */
    bool swept;                         /* its load has ended */
    uint64_t since_ns;                  /* when its bytes came into memory or left it; 0: before this process */
    uint64_t used_ns;                   /* when they were read or written last */
    struct gb_fifo_lock fifo;
    TAILQ_HEAD(gb_turn_line, gb_turn) turns; /* of writes that are under way (order.h), in the order of acceptance */
    const char *name;                        /* stored behind this struct */
};

/* Where a buffer's bytes may be: its sides or, if it is not mirrored, its content. NULL: no memory there. */
#define GB_BUFFER_CONTENTS (GB_SIDES + 1)
struct gb_content *gb_buffer_content_at(const struct gb_buffer *buffer, int i);

/* The place of that name, which is made if necessary. NULL if memory is exhausted. */
struct gb_buffer *gb_buffer_place_locked(struct gb_session *session, const struct gb_name *name);

/* An empty place of that name, in no map. NULL if memory is exhausted. Without the lock. */
struct gb_buffer *gb_buffer_new(struct gb_session *session, const struct gb_name *name);
/* Frees a place that is in no map. NULL is accepted. */
void gb_buffer_free(struct gb_buffer *buffer);

/* The record. Its labels are borrowed while the lock is held. */
void gb_buffer_look_locked(const struct gb_buffer *buffer, struct gb_buffer_rec *ret);

/* The record with a reference to its labels. rec is zeroed, or has a record, whose labels it gives back. */
void gb_buffer_copy_locked(const struct gb_buffer *buffer, struct gb_buffer_rec *rec);

/* Makes a copy of a place show another record and content. The copy borrows all that it shows. */
void gb_buffer_as(struct gb_buffer *copy, const struct gb_buffer_rec *rec, struct gb_text *pool, struct gb_text *stream,
                  struct gb_content *content);

/* The text that buffer keeps for the name of a pool or stream: the buffer's own, or that of the session's pool or
 * stream, or a new one if neither is known. A reference goes to *at, which gives back what it had. Returns 0, or -1 if
 * memory is exhausted. */
int gb_buffer_pool_text_locked(struct gb_session *session, const struct gb_buffer *buffer, const struct gb_name *pool,
                               struct gb_text **at);
int gb_buffer_stream_text_locked(struct gb_session *session, const struct gb_buffer *buffer,
                                 const struct gb_name *stream, struct gb_text **at);

/* The pool of the buffer's name is gone, and no bytes of the buffer were in it: names the pool that its memory would
 * come from now. A lost buffer still shows where it was. */
void gb_buffer_leave_pool_locked(struct gb_session *session, struct gb_buffer *buffer);

/* Asks the check (NULL is accepted) about the buffer's record; buffer NULL: no buffer has the name. Returns 0, or -1
 * with the check's error. */
int gb_buffer_check_locked(const struct gb_buffer_check *check, const struct gb_buffer *buffer, struct gb_error *err);

/* The live buffer of that name, else NULL (err may be NULL: no error wanted). */
struct gb_buffer *gb_buffer_find_locked(struct gb_session *session, const struct gb_name *name, struct gb_error *err);

/* For readers: the record, as gb_buffer_copy_locked, and a reference to the bytes; NULL for a mirrored buffer that was
 * never written: zeros. BUFFER_BUSY, BUFFER_PARTIAL, CONTENT_LOST. If the bytes are on disk alone, their load begins:
 * NOT_LOADED until it has ended, or the reason why it failed. */
int gb_buffer_hold_locked(struct gb_session *session, const struct gb_name *name, struct gb_buffer_rec *ret_rec,
                          struct gb_content **ret_content, struct gb_error *err);

/* Swaps the buffer's content and record, and keeps the sums right. The names of pool and stream stay: only a
 * transaction changes them. The buffer takes its own reference to the labels. content's reference goes to the buffer;
 * the old content comes back, to be dropped without the lock, unless other buffers have it. */
struct gb_content *gb_buffer_set_locked(struct gb_session *session, struct gb_buffer *buffer,
                                        const struct gb_buffer_rec *rec, struct gb_content *content);

/* The buffer has the content that `with` has: links the two. */
void gb_buffer_share_locked(struct gb_buffer *buffer, struct gb_buffer *with);

/* How many buffers have its content; 1 if it has none. */
unsigned gb_buffer_sharers(const struct gb_buffer *buffer);

/* As above, of one side; content may be NULL. */
struct gb_content *gb_buffer_set_side_locked(struct gb_buffer *buffer, enum gb_side side, struct gb_content *content);

/* The buffer has bytes in that pool. */
bool gb_buffer_in_pool(const struct gb_buffer *buffer, const struct gb_core_pool *pool);

/* Takes the buffer out of sight: not live any more, out of the list, its count given back. Returns the contents to be
 * dropped, linked by next. The place itself stays. */
struct gb_content *gb_buffer_clear_locked(struct gb_session *session, struct gb_buffer *buffer);

/* Bytes that are on disk alone are wanted in memory: as gb_buffer_hold_locked. Any other state is 0. */
int gb_buffer_want_locked(struct gb_session *session, struct gb_buffer *buffer, struct gb_error *err);

/* What a change that leaves the bytes alone must not undo: rec, of the buffer, gets the state that the buffer has, if
 * the bytes have gone from memory meanwhile. */
void gb_buffer_keep_state_locked(const struct gb_buffer *buffer, struct gb_buffer_rec *rec);

/* The stored bytes that a transaction has made, or NULL, take the place of those that the buffer has, which are
 * condemned. Takes over the reference. */
void gb_buffer_set_stored_locked(struct gb_session *session, struct gb_buffer *buffer, struct gb_stored *stored);

/* Host memory has the bytes of the generation that the disk has. Takes over the reference; NULL is accepted. */
void gb_buffer_warm_locked(struct gb_buffer *buffer, struct gb_stored *in_host);

/* The bytes have come into memory: host memory need not have them any more. */
void gb_buffer_cool_locked(struct gb_session *session, struct gb_buffer *buffer);

/* The disk has the bytes that the buffer has now, and as long as its durability says. Those that a scrub found damaged
 * do not count while memory has better ones. */
bool gb_buffer_on_disk(const struct gb_buffer *buffer);

/* These stored bytes are no longer the buffer's, or a change under way may have taken their row from the database: one
 * that is not there is no damage then. */
bool gb_buffer_may_have_left_locked(const struct gb_session *session, const struct gb_name *name,
                                    const struct gb_stored *stored);

/* How many bytes more the disk holds when a generation of `bytes` bytes takes the place of the one that is there. */
uint64_t gb_buffer_more_stored(const struct gb_buffer *buffer, uint64_t bytes);

/* The disk has no bytes of the buffer any more. */
void gb_buffer_drop_stored_locked(struct gb_session *session, struct gb_buffer *buffer);

/* Notes whether the bytes are to be stored within the lag, after a change of the record or of the stored bytes. */
void gb_buffer_note_behind_locked(struct gb_session *session, struct gb_buffer *buffer);

/* The bytes are gone from memory, the record stays: LOST, or STORED if the disk has them. Returns the contents to be
 * dropped, linked by next. */
struct gb_content *gb_buffer_lose_locked(struct gb_session *session, struct gb_buffer *buffer);

/* The memory of one side is gone: the bytes are lost unless the other side has them too. Returns the contents to be
 * dropped, linked by next. */
struct gb_content *gb_buffer_lose_side_locked(struct gb_session *session, struct gb_buffer *buffer, enum gb_side side);

/* A commit has ended: if the bytes, those of a side or their pool were freed meanwhile, its record says too much.
 * Returns the contents to be dropped, linked by next. */
struct gb_content *gb_buffer_lose_freed_locked(struct gb_session *session, struct gb_buffer *buffer);

/* Clears every buffer of the session. Returns the contents to be dropped, linked by next. */
struct gb_content *gb_session_clear_locked(struct gb_session *session);

/* Takes the place out of the map if no change holds it. */
void gb_buffer_reap_locked(struct gb_session *session, struct gb_buffer *buffer);

/* --- guard -------------------------------------------------------------------------------------------------------- */

/* Checks against pins, seals and owners of adopted memory. The session's lock is held in all of these. */

/* Returns 0; -1 with MAPPED, naming the lease and the remedy, if other processes map the buffer's bytes. */
int gb_guard_check_unmapped_locked(const struct gb_buffer *buffer, const char *instead, struct gb_error *err);

/* All pins on content belong to that holder. */
bool gb_guard_mapped_by_locked(const struct gb_content *content, uint64_t holder);

/* SEALED. */
int gb_guard_check_unsealed_locked(const struct gb_buffer *buffer, struct gb_error *err);

/* SEALED, if other buffers have the same content, which is not to be written where it is. */
int gb_guard_check_unshared_locked(const struct gb_buffer *buffer, struct gb_error *err);

/* MAPPED if a process maps the bytes for writing; ESCAPED if a process may write on after its lease has ended. */
int gb_guard_check_writers_locked(const struct gb_buffer *buffer, struct gb_error *err);

/* The bytes are complete, in memory or on disk, and no write is under way: BUFFER_BUSY, BUFFER_PARTIAL, CONTENT_LOST,
 * or as gb_guard_check_writers_locked. adopted: what cannot be done with adopted memory and what to do instead, as in
 * gb_adopted_check_locked. */
int gb_guard_check_complete_locked(const struct gb_buffer *buffer, const char *adopted, struct gb_error *err);

/* MAPPED while any lease of the session lives. */
int gb_guard_check_session_locked(const struct gb_session *session, struct gb_error *err);

/* How many bytes of the buffer leases would hold after its deletion. */
uint64_t gb_guard_mapped_bytes_locked(const struct gb_buffer *buffer);

/* Writes into the buffer's record how many leases it has, and whether a process may be writing. */
void gb_guard_count_locked(struct gb_buffer *buffer);
/* The same into another record of it, what memory the sides have, and whether one of them is adopted. */
void gb_guard_tell_locked(const struct gb_buffer *buffer, struct gb_buffer_rec *ret);

/* Returns 0; -1 with ADOPTED, the refused action and the remedy, if the buffer's memory is another process's. */
int gb_adopted_check_locked(const struct gb_buffer *buffer, const char *what, struct gb_error *err);

/* Sets CONTENT_LOST, with the way in which the buffer lost its bytes. Returns -1. */
int gb_lost(const struct gb_buffer *buffer, struct gb_error *err);

/* --- buffers that are stored together ----------------------------------------------------------------------------- */

/* Buffers whose latest bytes came in one change and are not on disk yet: they go there in one commit, so that a crash
 * leaves the bytes of all or of none. Those of two changes that share a buffer go together too: its bytes are of both.
 * The session's lock is held in all of these. */

/* Two or more buffers, linked by gb_buffer.together_next; fewer only while the list is being made. */
struct gb_together {
    struct gb_buffer *first; /* the longest that one of them has been behind, unless one has left */
    struct gb_buffer *last;
    size_t count;
};

/* Adds the buffer, and the buffers of its present list. *at may be another list then. */
void gb_together_join(struct gb_together **at, struct gb_buffer *buffer);

/* No more buffers join: frees a list of fewer than two. NULL is accepted. */
void gb_together_finish(struct gb_together *together);

/* Takes a buffer out of its list, because its bytes are on disk or gone. A buffer without a list is accepted. */
void gb_together_leave(struct gb_buffer *buffer);

/* The one of them for which all are stored, or the buffer itself. Those that cannot be stored hold up no others: they
 * leave. */
struct gb_buffer *gb_together_leader(struct gb_buffer *buffer);

/* False: the bytes are lost, incomplete, or a process may be writing them; that may last. */
bool gb_together_can_be_stored(const struct gb_buffer *buffer);

/* --- damage of stored bytes --------------------------------------------------------------------------------------- */

/* Whether the error says that the stored bytes are not what they should be: anything else may have ended by the
 * next try. */
bool gb_damage_is(const struct gb_error *error);

/* Notes it if it is, and posts a notice. often: a client may ask for the same bytes again and again. [any thread, never
 * blocks] */
void gb_damage_report(struct gb_session *session, const struct gb_name *buffer, struct gb_stored *stored,
                      const struct gb_error *error, bool often);

#endif
