#ifndef GB_FLEET_FORGET_H
#define GB_FLEET_FORGET_H

#include "fleet/state.h"

/* Of a tombstone: how long it is kept, and a number for its lease. */
#define GB_TOMBSTONE_S (90 * 24 * 3600u)
/* Adds the deletion of a session's keys, if the record is as it was read: name and tenant are given. */
void gb_delete_session(const struct gb_fleet *fleet, struct gb_txn *txn, const char *node,
                       const struct gb_fleet_session *session, int64_t revision);
/* Takes unregisters up, if the directory answers. [the thread] */
void gb_unregister_sweep(struct gb_fleet *fleet);
/* The same of one that the node has not, and perhaps makes at this moment: in a while, unless it is there by then. */
int gb_unregister_add_missing(struct gb_fleet *fleet, const struct gb_name *session, const char *claim);
/* The same, at once: no one makes it. */
int gb_unregister_add_orphan(struct gb_fleet *fleet, const struct gb_name *session, const char *claim);
/* For how long the one before waits at most. */
uint64_t gb_unregister_missing_ms(const struct gb_fleet *fleet);
bool gb_unregister_is_queued(struct gb_fleet *fleet, const char *claim);
bool gb_unregister_is_missing(struct gb_fleet *fleet, const char *claim); /* it is one of those that may be elsewhere */

#endif
