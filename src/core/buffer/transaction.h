/* A durable change of one buffer: waits for its turn, decides under the session's lock, is put into the database,
 * becomes visible. Readers see the record before it or the record after it. */
#ifndef GB_CORE_BUFFER_TRANSACTION_H
#define GB_CORE_BUFFER_TRANSACTION_H

#include "core/buffer/buffer.h"
#include "core/buffer/transaction_batch.h"

struct gb_transaction_group;

struct gb_transaction {
    struct gb_fifo_waiter waiter;       /* first */
    struct gb_transaction_group *group; /* NULL: by itself */
    struct gb_session *session;         /* borrowed: the owner holds it until end */
    struct gb_name name;
    struct gb_buffer *buffer;   /* while it has the turn */
    const struct gb_call *call; /* whose key is marked with it; NULL: none */
    struct gb_store_mark mark;  /* the key, where call may end before the change does; "": the call's */
    bool removes;               /* else rec is put */
    struct gb_buffer_rec rec;   /* holds a reference: gb_buffer_rec_set(), gb_buffer_copy_locked() */
    struct gb_text *pool;       /* the names in rec, for the buffer to keep */
    struct gb_text *stream;
    struct gb_error error;

    /* Under the session's lock, session live: says what rec is to be (rec.id 0: a new one), or -1. current is NULL
     * when there is no such buffer. */
    int (*validate_locked)(struct gb_transaction *transaction, struct gb_buffer *current, struct gb_error *err);
    /* Under the session's lock, after the commit: makes it visible. The record's id is set. */
    void (*publish_locked)(struct gb_transaction *transaction, struct gb_buffer *buffer);
    /* Under the session's lock, when the database refused; may be NULL. */
    void (*rollback_locked)(struct gb_transaction *transaction, struct gb_buffer *buffer);
    /* Once, without locks; error.code says how it went. May free the change. */
    void (*end)(struct gb_transaction *transaction);
};

/* end may run before this returns. */
void gb_transaction_start(struct gb_transaction *transaction);

/* Gives back what it holds, before it is freed or filled anew. A zeroed one is accepted. */
void gb_transaction_done(struct gb_transaction *transaction);

/* In two steps, for a new name that is kept while memory is got. The lock is held. BUFFER_EXISTS, BUFFER_BUSY. */
int gb_transaction_reserve_locked(struct gb_transaction *transaction, struct gb_error *err);
void gb_transaction_proceed(struct gb_transaction *transaction);
/* Gives the reserved name up; end runs with the error. */
void gb_transaction_abandon(struct gb_transaction *transaction, const struct gb_error *error);

/* Several changes as one: each waits for its turn, then all are decided, put into the database in one transaction and
 * made visible, under one hold of the session's lock; or none is. All turns are asked for at once, so groups cannot
 * wait for each other in a circle. */
struct gb_transaction_group {
    struct gb_session *session;           /* borrowed until end, as all below */
    struct gb_transaction **transactions; /* of that session, each of another name; their own end is not called */
    struct gb_store_edit *edits;          /* room for as many */
    size_t count;
    const struct gb_store_mark *mark; /* committed with it; NULL: none */
    size_t waiting;                   /* turns that are not there yet; the session's lock */
    struct gb_error error;
    void (*end)(struct gb_transaction_group *group); /* once, without locks; may free group and changes */
};

/* end may run before this returns. */
void gb_transaction_group_start(struct gb_transaction_group *group);

/* transaction_batch.c. True: the transaction waits for the others of its call's batch, and goes on with them. */
bool gb_transaction_batch_put(struct gb_transaction *transaction);

#endif
