#ifndef GB_FLEET_REPLICA_HOLDERS_H
#define GB_FLEET_REPLICA_HOLDERS_H

#include "fleet/replica/copies.h"

/* Sees to the holders of all sessions of this node. Returns how long until the next time. [gb-holders] */
unsigned gb_holders_reconcile(struct gb_replicas *replicas);
void gb_holders_free(struct gb_replicas *replicas);

/* A node for one more holder of the session: alive, within reach, with room for the bytes, in another zone than the
 * others if there is one, of two at random the one with more memory. NULL: none. */
const struct gb_fleet_node *gb_holder_choose(const struct gb_fleet_node *nodes, size_t count,
                                             const struct gb_arrival_config *is, const struct gb_replicated *replicated,
                                             const struct gb_refusal *refusals, size_t refusal_count, uint64_t bytes,
                                             uint32_t (*random)(void *arg), void *arg);

#endif
