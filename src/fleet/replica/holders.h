#ifndef GB_FLEET_REPLICA_HOLDERS_H
#define GB_FLEET_REPLICA_HOLDERS_H

#include "fleet/replica/copies.h"

/* Reconciles the holders of all sessions of this node with their `replicas`. Returns the milliseconds until the next
 * time. [gb-holders] */
unsigned gb_holders_reconcile(struct gb_replicas *replicas);
void gb_holders_free(struct gb_replicas *replicas);

/* Chooses a node as one more holder of the session: alive, reachable, with room for the bytes, and in a new zone if
 * possible. Of two random ones that fit it takes the one with more memory. NULL: no node fits. Pure. */
const struct gb_fleet_node *gb_holder_choose(const struct gb_fleet_node *nodes, size_t count,
                                             const struct gb_arrival_config *is, const struct gb_replicated *replicated,
                                             const struct gb_refusal *refusals, size_t refusal_count, uint64_t bytes,
                                             uint32_t (*random)(void *arg), void *arg);

#endif
