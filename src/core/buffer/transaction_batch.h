/* Changes of many calls, committed as one: each call that has the same transaction batch does its work, and the changes
 * wait until all are there. Comes with core.h. */
#ifndef GB_CORE_BUFFER_TRANSACTION_BATCH_H
#define GB_CORE_BUFFER_TRANSACTION_BATCH_H

#include <stdbool.h>
#include <stddef.h>

struct gb_call;
struct gb_store_mark;
struct gb_transaction_batch;

/* For so many calls, of one session, each changing another buffer; calls that make buffers may not be among them.
 * atomic: when one fails, all do, and nothing is changed. Else those that can are carried out, in one transaction
 * unless the database or a decision refuses one of them. mark: committed with them; may be NULL. NULL when memory is
 * exhausted. */
struct gb_transaction_batch *gb_transaction_batch_new(size_t calls, bool atomic, const struct gb_store_mark *mark);
bool gb_transaction_batch_atomic(const struct gb_transaction_batch *batch); /* NULL: no */
struct gb_transaction_batch *gb_transaction_batch_ref(struct gb_transaction_batch *batch);
/* The call is one of them: before it is started. It has a reference to the batch until its transaction is there, or it
 * ends. */
void gb_transaction_batch_add(struct gb_transaction_batch *batch, struct gb_call *call);
/* So many of the calls will never be made. */
void gb_transaction_batch_skip(struct gb_transaction_batch *batch, size_t calls);
void gb_transaction_batch_unref(struct gb_transaction_batch *batch); /* NULL is accepted */

#endif
