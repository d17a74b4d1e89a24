#ifndef GB_FLEET_FORGET_H
#define GB_FLEET_FORGET_H

#include "fleet/state.h"

/* A tombstone is kept for so long. */
#define GB_TOMBSTONE_S (90 * 24 * 3600u)
/* Adds the deletion of a session's keys, if the record still has that revision. Only name and tenant of session are
 * used. */
void gb_delete_session(const struct gb_fleet *fleet, struct gb_txn *txn, const char *node,
                       const struct gb_fleet_session *session, int64_t revision);
/* Removes queued records, one at a time, if the lease is held. [the thread] */
void gb_unregister_sweep(struct gb_fleet *fleet);
/* Queues the record of a session that the node does not have, and may be making now. The record is removed after
 * gb_unregister_missing_ms, unless the node has the session by then. -1: no memory. */
int gb_unregister_add_missing(struct gb_fleet *fleet, const struct gb_name *session, const char *claim);
/* Queues a record that no request is making: it is removed at once. -1: no memory. */
int gb_unregister_add_orphan(struct gb_fleet *fleet, const struct gb_name *session, const char *claim);
/* How long a missing session's record waits at most. */
uint64_t gb_unregister_missing_ms(const struct gb_fleet *fleet);
/* Whether a record with that claim is queued for removal whether or not the node has its session. */
bool gb_unregister_is_queued(struct gb_fleet *fleet, const char *claim);
/* Whether it is queued unless the session turns up. */
bool gb_unregister_is_missing(struct gb_fleet *fleet, const char *claim);

#endif
