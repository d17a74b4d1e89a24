/* The choice of a node for a new session. Pure. */
#ifndef GB_FLEET_PLACE_H
#define GB_FLEET_PLACE_H

#include "fleet/fleet.h"

struct gb_place_constraints {
    const char *select; /* a JSON object of labels that the node must have; "": any */
    uint64_t bytes;     /* that a device has free and uncommitted; 0: any */
    const struct gb_name *network;
    const struct gb_name *excluded; /* a node that is not chosen; NULL: no such node */
};

/* Puts up to GB_FLEET_HOPS_MAX of the nodes that fit into ret: of two random ones the one with more free memory, then
 * the other, then a third. random returns 32 bits. Returns the count; 0 with NO_NODE_FITS and the reasons counted. */
size_t gb_place_choose(const struct gb_fleet_node *nodes, size_t count, const struct gb_place_constraints *constraints,
                       uint32_t (*random)(void *arg), void *arg, const struct gb_fleet_node *ret[GB_FLEET_HOPS_MAX],
                       struct gb_error *err);

#endif
