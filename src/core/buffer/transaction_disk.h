/* What the disk has to do with a transaction: bytes of a durable buffer are stored between the validation and the
 * commit, and what was stored before is condemned after it. For transaction.c alone. */
#ifndef GB_CORE_BUFFER_TRANSACTION_DISK_H
#define GB_CORE_BUFFER_TRANSACTION_DISK_H

#include "core/buffer/transaction.h"

/* Decides it, when the transaction is valid and its rec complete. The session's lock is held. */
int gb_transaction_plan_disk_locked(struct gb_transaction *transaction, struct gb_error *err);

/* So decided: the bytes are written to disk before the commit, and outlive the process. */
bool gb_transaction_writes(const struct gb_transaction *transaction);

/* The bytes will be others than those that the buffer has. The session's lock is held. */
bool gb_transaction_is_new_locked(const struct gb_transaction *transaction);

/* Others of its group are written to disk before the commit: so is this one, if it is durable. The session's lock is
 * held. */
int gb_transaction_write_too_locked(struct gb_transaction *transaction, struct gb_error *err);

/* The change was refused after that. The session's lock is held. */
void gb_transaction_drop_disk_locked(struct gb_transaction *transaction);

/* The bytes are on disk: their checksum is known now, unless a process may be writing them. The session's lock is
 * held. */
void gb_transaction_take_checksum_locked(struct gb_transaction *transaction);

/* The change for the database. Borrows from the transaction. */
struct gb_store_edit gb_transaction_edit(struct gb_transaction *transaction);

/* The buffer gets the stored bytes, and rec says so, before rec is published. The session's lock is held. */
void gb_transaction_publish_stored_locked(struct gb_transaction *transaction);

/* Gives back what is left. error: of the commit; GB_OK: none. No lock is held. */
void gb_transaction_end_disk(struct gb_transaction *transaction, const struct gb_error *error);

#endif
