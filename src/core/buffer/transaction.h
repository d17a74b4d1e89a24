/* Changes of buffers: a transaction, a group of them, and an operation on one buffer. */
#ifndef GB_CORE_BUFFER_TRANSACTION_H
#define GB_CORE_BUFFER_TRANSACTION_H

#include "base/container.h"
#include "core/buffer/buffer.h"
#include "core/buffer/order.h"
#include "core/durable/stored.h"
#include "core/public/buffer.h"
#include "core/session/session.h"

/* A transaction is a change of one buffer that outlives the process. It waits for the buffer's fifo lock, is validated
 * under the session's lock, is committed to the database and is then published. Readers see the record before it or the
 * record after it.
 *
 * If the buffer is durable and has new bytes, they are written to disk between the validation and the commit, which
 * then waits for the disk. */

struct gb_transaction_group;
struct gb_transaction;
typedef int gb_validate_fn(struct gb_transaction *transaction, struct gb_buffer *current, struct gb_error *err);
typedef void gb_publish_fn(struct gb_transaction *transaction, struct gb_buffer *buffer);

struct gb_transaction {
    struct gb_fifo_waiter waiter;       /* first */
    struct gb_transaction_group *group; /* NULL: by itself */
    struct gb_session *session;         /* borrowed: its owner holds a reference until end */
    struct gb_name name;
    struct gb_buffer *buffer;   /* while the transaction has its fifo lock */
    struct gb_turn *turn;       /* what it follows, and what follows it; borrowed until end. NULL: it is not ordered */
    const struct gb_call *call; /* its key is committed with the change; NULL: none */
    struct gb_store_mark mark;  /* the key, if call may end before the transaction; "": the call's */
    bool removes;               /* delete the record; else rec is written */
    struct gb_buffer_rec rec;   /* holds a reference: gb_buffer_rec_set(), gb_buffer_copy_locked() */
    struct gb_text *pool;       /* the names in rec, for the buffer to keep */
    struct gb_text *stream;
    struct gb_error error;

    /* Set by the owner or by validate_locked: */
    const struct gb_content *content; /* the bytes that the buffer is to have; NULL: those that it has. Borrowed */
    struct gb_tee *tee;               /* has those bytes on disk, if the buffer is the one that it was begun for;
                                       * borrowed until end. NULL: none */
    void *kept;                       /* those bytes, of so few that the database takes them; NULL: they are read
                                       * from the content. Freed with gb_transaction_done */
    int64_t new_id;                   /* reserved for a new buffer; 0: none */
    gb_persist_fn *brings;            /* writes the bytes instead of core->persist; NULL: that does */
    enum gb_spill spills;             /* the bytes go there, where they end with the process; NEVER: they do not */
    bool strictly;                    /* as of struct gb_persist */
    bool warms;                       /* the disk has the bytes and keeps them, beside those that spills has made */
    bool stores;                      /* the bytes go to disk, also if they are those that it has */
    bool upkeep;                      /* no client's change: a session that was set aside takes it too */
    bool whole;                       /* nothing of the bytes that the buffer has is in the new ones */
    bool begun;                       /* the buffer has the bytes already: a session that is frozen takes it too */
    bool unrecorded;                  /* the database learns nothing of it */
    bool depends;                     /* it is refused if the write that it follows has failed */

    /* The transaction's own: */
    bool durable;         /* the commit waits for the disk */
    bool shares;          /* an earlier member of the group has the buffer's fifo lock for it */
    bool joins;           /* its bytes are to be stored later, together with those of the group's others */
    bool with_others;     /* the bytes go to disk as those of another member of the group do */
    bool forgets;         /* the stored bytes of the database do not count any more */
    bool drops;           /* the spilled bytes do not count any more */
    uint64_t stored_more; /* reserved in the quota of bytes on disk */
    bool persists;
    bool valid;   /* validated and not rolled back */
    bool counted; /* among the session's changes that are on the way */
    bool asked;   /* the database was given the change: if that fails, it may have it */
    struct gb_persist persist;
    struct gb_store_edit edit;

    /* Fills in rec (rec.id 0: a new buffer). current is NULL if the buffer does not exist. The session is live and its
     * lock is held. Returns 0 or -1. */
    gb_validate_fn *validate_locked;
    /* Makes the change visible after the commit. rec.id is set. The session's lock is held. */
    gb_publish_fn *publish_locked;
    /* Undoes validate_locked if the transaction is not committed. May be NULL. The session's lock is held. */
    void (*rollback_locked)(struct gb_transaction *transaction, struct gb_buffer *buffer);
    /* Runs once, without locks. error.code is GB_OK or the reason of the failure. May free the transaction. */
    void (*end)(struct gb_transaction *transaction);
};

/* Starts the transaction, when the turn before its own is about to be committed and the source of its bytes has been.
 * end may run before this returns. */
void gb_transaction_start(struct gb_transaction *transaction);

/* Releases what the transaction holds, before it is freed or filled in again. A zeroed one is accepted. */
void gb_transaction_done(struct gb_transaction *transaction);

/* Starts the transaction in two steps: reserve takes a new name, which stays reserved during an allocation; proceed
 * continues. The session's lock is held for the first and not for the second. Errors: BUFFER_EXISTS, BUFFER_BUSY. */
int gb_transaction_reserve_locked(struct gb_transaction *transaction, struct gb_error *err);
void gb_transaction_proceed(struct gb_transaction *transaction);
/* Gives the reserved name up instead of proceeding; end runs with the error. No lock is held. */
void gb_transaction_abandon(struct gb_transaction *transaction, const struct gb_error *error);

/* A transaction group commits several transactions as one. When each has its fifo lock, all are validated under one
 * hold of the session's lock, committed in one transaction of the database, and published under one hold; or none is.
 * All fifo locks are requested at once, so groups cannot deadlock.
 *
 * The bytes of its members go to disk together as well: all before the commit if those of one do, else by one later
 * commit (buffer.h). */
struct gb_transaction_group {
    struct gb_session *session;           /* borrowed until end, as all below */
    struct gb_transaction **transactions; /* of that session; their own end is not called. Those of one buffer follow
                                           * each other: each is validated as if the one before it were committed */
    struct gb_store_edit *edits;          /* an array of count */
    size_t count;
    const struct gb_store_mark *mark;                /* committed with the group; NULL: none */
    size_t unturned;                                 /* members whose turn has not come; the session's lock */
    size_t waiting;                                  /* fifo locks still awaited; the session's lock */
    struct gb_together *together;                    /* the edits of its members when it is published; may be NULL */
    size_t persisting;                               /* members whose bytes are being written; the session's lock */
    struct gb_error error;                           /* a member that is to blame has one of its own */
    void (*end)(struct gb_transaction_group *group); /* once, without locks; may free the group and its members */
};

/* Starts the group. end may run before this returns. */
void gb_transaction_group_start(struct gb_transaction_group *group);

/* batch.c: adds the transaction to its call's batch. True: the batch starts it, with the others. False: its call has no
 * batch. */
bool gb_transaction_batch_put(struct gb_transaction *transaction);

/* What the disk has to do with a transaction: bytes of a durable buffer are stored between the validation and the
 * commit, and what was stored before is condemned after it. For transaction.c alone. */

/* So decided: the bytes are written to disk before the commit, and outlive the process. */
bool gb_transaction_writes(const struct gb_transaction *transaction);

/* The common part of calls that change one buffer: an operation of the session, a transaction, the caller's check. */

struct gb_buffer_op {
    struct gb_op base; /* first */
    struct gb_buffer_call *call;
    struct gb_turn *turn; /* gb_buffer_op_start_ordered */
    struct gb_buffer_check check;
    struct gb_transaction transaction;
};

/* Makes an operation of `size` bytes that begins with a gb_buffer_op. Its transaction is filled in except for the
 * functions. check may be NULL; its argument is released when the operation ends. Returns NULL if that failed; the call
 * has then ended with the error, as with gb_op_new. */
void *gb_buffer_op_new(size_t size, struct gb_core *core, const struct gb_locator *at,
                       const struct gb_buffer_check *check, struct gb_buffer_call *call);

/* The same in a session that is held already: takes over the reference. */
void *gb_buffer_op_new_in(size_t size, struct gb_session *session, const struct gb_name *name,
                          const struct gb_buffer_check *check, struct gb_buffer_call *call);

/* Fills in the transaction of an operation that has nothing of its own but these two functions. */
void gb_buffer_op_fill_in(struct gb_buffer_op *op, gb_validate_fn *validate_locked, gb_publish_fn *publish_locked);

/* Starts the transaction of an operation that is filled in, in the order of the call's stream. turn: taken before;
 * NULL: not yet. op NULL: the call has ended. Takes both over. */
void gb_buffer_op_start_ordered(struct gb_buffer_op *op, struct gb_turn *turn);

/* As gb_op_end. */
void gb_buffer_op_end(struct gb_buffer_op *op, const struct gb_error *error);

/* Evaluates the caller's check. buffer may be NULL. The session's lock is held. Returns 0 or -1. Errors:
 * BUFFER_NOT_FOUND for NULL; the check's. */
int gb_buffer_op_check_locked(const struct gb_buffer_op *op, const struct gb_buffer *buffer, struct gb_error *err);

static inline struct gb_buffer_op *gb_buffer_op_of(struct gb_transaction *transaction) {
    return gb_container_of(transaction, struct gb_buffer_op, transaction);
}

#endif
