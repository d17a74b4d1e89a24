/* Calls, for the core's own functions: ending and cancelling them. */
#ifndef GB_CORE_RUNTIME_CALL_H
#define GB_CORE_RUNTIME_CALL_H

#include "core/public/call.h"

/* Ends the call: records the error, runs on_finish and done, drops the core's reference. error may be NULL; it does not
 * replace an error that the call already has. No lock is held. */
void gb_call_finish(struct gb_call *call, const struct gb_error *error);

/* Makes the call cancellable until gb_call_withdraw. cancel(arg, act) returns whether it can be cancelled and, with
 * act, cancels it. Without hold, cancel runs under the call's lock. With hold, hold runs under the lock and takes a
 * reference; if it returns true, cancel runs without the lock and drops that reference. */
void gb_call_offer(struct gb_call *call, bool (*hold)(void *arg), bool (*cancel)(void *arg, bool act), void *arg);

/* Ends that, before arg is freed. Returns 0; -1 with CANCELLED if the call was cancelled. With hold it returns 0, and
 * arg records the cancellation itself. */
int gb_call_withdraw(struct gb_call *call, struct gb_error *err);

/* The call's key for the store. NULL if the call has no key or is NULL. */
const struct gb_store_mark *gb_call_mark(const struct gb_call *call);

/* For free_result: drop the references that the records of these results hold. */
void gb_session_call_done(struct gb_call *call);
void gb_buffer_call_done(struct gb_call *call);

int gb_cancelled(struct gb_error *err); /* sets CANCELLED; -1 */

/* Sets the error for exhausted memory. Returns -1. */
int gb_no_memory(struct gb_error *err);

#endif
