/* A change that writes the bytes of one of several buffers to disk that go there together (buffer.h) becomes a group
 * with the others. For transaction.c alone. */
#ifndef GB_CORE_BUFFER_BATCH_H
#define GB_CORE_BUFFER_BATCH_H

#include "core/buffer/transaction.h"

/* What is asked for: one transaction, or a group. Valid, with its fifo locks. */
struct gb_transaction_asked {
    struct gb_transaction *one;
    struct gb_transaction_group *group; /* NULL: one by itself */
    struct gb_transaction *const *transactions;
    size_t count;
    const struct gb_store_mark *mark;
};

/* *ret is a group of these and of the others, to be started in their place once they have given up their fifo locks;
 * its end ends them. NULL: there are no others. The session's lock is held. */
int gb_transaction_widen_locked(const struct gb_transaction_asked *asked, struct gb_transaction_group **ret,
                                struct gb_error *err);

/* The bytes that a buffer has were stored: tells so. The session's lock is held. */
void gb_transaction_publish_kept_locked(struct gb_transaction *transaction, struct gb_buffer *buffer);

#endif
