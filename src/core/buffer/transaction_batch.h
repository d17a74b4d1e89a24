/* A transaction batch commits the changes of many calls as one. Each call does its work, and its transaction waits in
 * the batch until all have arrived. Included by core.h. */
#ifndef GB_CORE_BUFFER_TRANSACTION_BATCH_H
#define GB_CORE_BUFFER_TRANSACTION_BATCH_H

#include <stdbool.h>
#include <stddef.h>

struct gb_call;
struct gb_store_mark;
struct gb_transaction_batch;

/* Makes a batch for `calls` calls of one session, each of which changes another buffer. Calls that create buffers are
 * not permitted. atomic: if one call fails, all fail and nothing is changed. Otherwise those that are not refused are
 * one transaction of the database; if they cannot be committed together, each is by itself. mark: committed with them,
 * copied; may be NULL. Returns a reference, or NULL when memory is exhausted. */
struct gb_transaction_batch *gb_transaction_batch_new(size_t calls, bool atomic, const struct gb_store_mark *mark);
bool gb_transaction_batch_atomic(const struct gb_transaction_batch *batch); /* NULL is accepted: false */
struct gb_transaction_batch *gb_transaction_batch_ref(struct gb_transaction_batch *batch);
/* Adds a call before it is started. The call has a reference to the batch until its transaction joins the batch or the
 * call ends. */
void gb_transaction_batch_add(struct gb_transaction_batch *batch, struct gb_call *call);
/* Tells the batch that `calls` of its calls will never be made, which counts as their failure. */
void gb_transaction_batch_skip(struct gb_transaction_batch *batch, size_t calls);
void gb_transaction_batch_unref(struct gb_transaction_batch *batch); /* NULL is accepted */

#endif
