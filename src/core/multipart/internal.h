/* A multipart upload, for the files that make it up: multipart.c keeps the list, target.c its memory and its end, complete.c
 * what comes before its commit, part.c what comes in any order, append.c what comes one after the other.
 *
 * The bytes belong to a gb_upload that is never fed, the target: it reserves, allocates and commits as any upload does. A
 * part is a gb_upload too, one that writes into the target's memory and whose end marks its range instead of committing.
 * Locks: the session's, then the multipart upload's, then a transfer's; wakes run under the multipart upload's. */
#ifndef GB_CORE_MULTIPART_INTERNAL_H
#define GB_CORE_MULTIPART_INTERNAL_H

#include "core/download/hash_reader.h"
#include "core/multipart/multipart.h"
#include "core/upload/upload.h"
#include "core/util/range_set.h"

enum gb_multipart_state {
    GB_MULTIPART_HEADER,  /* not yet known what it becomes */
    GB_MULTIPART_OPENING, /* memory is being got */
    GB_MULTIPART_OPEN,
    GB_MULTIPART_HASHING, /* everything arrived, and its digests are computed */
    GB_MULTIPART_COMPLETING,
    GB_MULTIPART_DONE, /* remembered for those who did not hear the answer */
    GB_MULTIPART_ENDED
};

struct gb_multipart_waiter {
    struct gb_multipart_waiter *next;
    struct gb_call *call;
};

struct gb_multipart {
    atomic_uint refs; /* the list's, the target's, each part's, each append's */
    struct gb_core *core;
    struct gb_session *session; /* a reference */
    int64_t number;
    struct gb_name buffer;
    bool appends;
    int64_t created_at_us;
    bool listed;         /* these three: the session's lock */
    bool counted;        /* as one of its open ones */
    uint64_t held_bytes; /* counted in session and core */

    pthread_mutex_t lock; /* for all below */
    enum gb_multipart_state state;
    bool sealed; /* a commit was tried: nothing but that is left */
    struct gb_upload *target;
    struct gb_buffer_check end_check; /* asked at the commit besides the target's own; the target's while it commits */
    struct gb_store_mark mark;        /* of the call that completes it; committed with it */
    struct gb_error refused;          /* the last commit, which may be tried again */
    struct gb_ranges ranges;
    struct gb_part *parts; /* under way */
    unsigned running;      /* of them, those that have not arrived */
    uint64_t touched_ns;
    uint64_t bytes; /* of the payload; from OPENING on */
    bool has_length;
    uint64_t length;
    char *header;
    size_t header_used;
    size_t header_size;
    uint64_t skip;
    void *app;
    void (*free_app)(void *app);
    bool append_locked;       /* somebody appends, or what he brought is still being copied */
    struct gb_append *append; /* whom to wake; NULL when that one has gone */
    struct gb_call *call;     /* begins or completes */
    struct gb_hash_reader *reader;
    struct gb_multipart_waiter *drain_waiters;
    struct gb_multipart_waiter *end_waiters; /* wait for the memory to be free */
    struct gb_error why;                     /* it ended */
    struct gb_task task;
};

/* An upload into the target's memory. */
struct gb_part {
    struct gb_upload upload;        /* first */
    struct gb_multipart *multipart; /* a reference */
    struct gb_upload *target;       /* a reference */
    struct gb_part *next;
    bool keeps;   /* what came of it counts even when its end does not come */
    bool arrived; /* its range is marked */
};

struct gb_append {
    struct gb_multipart *multipart;
    struct gb_upload *part;
    void (*wake)(void *arg);
    void *arg;
    bool cut; /* the multipart upload's lock */
    size_t room;
};

/* --- multipart.c --------------------------------------------------------------------------------------------------------------- */

/* In the list of the session of params (of which nothing but session and buffer's name is looked at), with two references:
 * the list's and the caller's. */
int gb_multipart_new(struct gb_core *core, const struct gb_upload_params *params, bool appends,
                     struct gb_multipart **ret, struct gb_error *err);
void gb_multipart_unref(struct gb_multipart *multipart); /* NULL is accepted; without locks */
struct gb_multipart *gb_multipart_ref(struct gb_multipart *multipart);

/* With a reference; NULL with SESSION_NOT_FOUND or UPLOAD_NOT_FOUND. use: a sign of life for the session. */
struct gb_multipart *gb_multipart_find(struct gb_core *core, const struct gb_name *session, const char *id, bool use,
                                       struct gb_error *err);
int gb_multipart_not_found(struct gb_error *err);
void gb_multipart_view_locked(struct gb_multipart *multipart, struct gb_multipart_view *ret);
uint64_t gb_multipart_offset_locked(const struct gb_multipart *multipart);
int gb_multipart_check_locked(struct gb_multipart *multipart, struct gb_error *err); /* open for bytes? */

/* Out of the list; the list's reference goes. */
void gb_multipart_withdraw(struct gb_multipart *multipart);
/* What it holds, against the bound on all. LIMIT_REACHED. */
int gb_multipart_hold(struct gb_multipart *multipart, uint64_t bytes, struct gb_error *err);
void gb_multipart_release(struct gb_multipart *multipart);
/* It is completed: no longer one of the open ones. The oldest that are remembered are forgotten. */
void gb_multipart_remember(struct gb_multipart *multipart);

/* --- target.c ----------------------------------------------------------------------------------------------------------- */

int gb_multipart_target_start(struct gb_multipart *multipart, const struct gb_upload_params *params,
                              struct gb_error *err);
/* Ends it whatever it does. Nothing happens when it has ended. */
void gb_multipart_end(struct gb_multipart *multipart, const struct gb_error *why);
/* Something may have happened to the target. */
void gb_multipart_look(struct gb_multipart *multipart);
void gb_multipart_finish_call(struct gb_multipart *multipart, struct gb_call *call, const struct gb_error *error);
/* Waits in a list; the call fails when memory is exhausted. */
bool gb_multipart_wait_locked(struct gb_multipart_waiter **list, struct gb_call *call);
void gb_multipart_drained_locked(struct gb_multipart *multipart, struct gb_multipart_waiter **ret);
void gb_multipart_tell(struct gb_multipart *multipart, struct gb_multipart_waiter *list, const struct gb_error *error);

/* Of the target, once it is complete: the caller takes check (may be NULL) over, and the commit may begin. Under the lock. */
void gb_multipart_feed_locked(struct gb_multipart *multipart, const struct gb_buffer_check *check);
/* Commits what was fed; target has a reference. Without the lock. */
void gb_multipart_commit(struct gb_multipart *multipart, struct gb_upload *target);

/* --- part.c ------------------------------------------------------------------------------------------------------------- */

/* Links a new part; the multipart upload is open. keeps: what came of it counts even when its end does not come. */
struct gb_upload *gb_part_new_locked(struct gb_multipart *multipart, uint64_t at, uint64_t bytes, bool keeps,
                                     void (*wake)(void *arg), void *arg, struct gb_error *err);

/* multipart.c: ends those of which nothing has come for a while; all of them. Without locks. */
void gb_multiparts_expire(struct gb_session *session);

void gb_multiparts_end(struct gb_session *session, const struct gb_error *why);

#endif
