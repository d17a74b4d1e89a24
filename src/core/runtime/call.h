/* Calls as the core's functions see them: how they end, and how they can be cancelled meanwhile. */
#ifndef GB_CORE_RUNTIME_CALL_H
#define GB_CORE_RUNTIME_CALL_H

#include "core/public/call.h"

/* Ends the call: keeps the error, runs on_finish and done, drops the core's reference. error may be NULL; an error that
 * the call has already stays. Without locks. */
void gb_call_finish(struct gb_call *call, const struct gb_error *error);

/* From now on the call can be cancelled: cancel(arg, act) says whether, under the call's lock; where hold is given it
 * is called in its place, and where that says true cancel without the lock, which must let go of what hold has kept. */
void gb_call_offer(struct gb_call *call, bool (*hold)(void *arg), bool (*cancel)(void *arg, bool act), void *arg);

/* Not any more, before arg ends. -1 with CANCELLED when it was cancelled (not where hold is given: arg knows). */
int gb_call_withdraw(struct gb_call *call, struct gb_error *err);

/* For the store: NULL when the call has no key, or is NULL. */
const struct gb_store_mark *gb_call_mark(const struct gb_call *call);

/* For free_result: give back what the records of these results hold. */
void gb_session_call_done(struct gb_call *call);
void gb_buffer_call_done(struct gb_call *call);

int gb_cancelled(struct gb_error *err); /* sets CANCELLED; -1 */

/* For the many places where memory may end. Returns -1. */
int gb_no_memory(struct gb_error *err);

#endif
