#ifndef GB_FLEET_HUB_CHECK_H
#define GB_FLEET_HUB_CHECK_H

#include <jansson.h>

#include "fleet/fleet.h"
#include "fleet/hub/hub.h"

#define GB_HUB_OPS_MAX 128   /* of a transaction: etcd accepts no more */
#define GB_HUB_WAIT_MS 30000 /* the longest wait for orders */

/* What a request does. */
struct gb_hub_checked {
    bool waits; /* waits for orders; otherwise op is relayed */
    enum gb_fleet_relay_op op;
    bool reads;        /* changes nothing */
    bool serializable; /* and is answered by one member */
    size_t ops;        /* of a transaction that reads */
    int64_t lease;     /* of the other kinds */
    uint64_t wait_ms;
};
/* Checks that the node may send the request. *body: the parsed text, which the caller unrefs. INVALID_ARGUMENT,
 * FORBIDDEN. Pure. */
int gb_hub_check(const char *fleet, const struct gb_name *node, const char *op, const char *text,
                 struct gb_hub_checked *ret, json_t **body, struct gb_error *err);

/* Writes "/gpubuf/FLEET/", the kind and the name. */
#define GB_HUB_KEY_SIZE (2 * GB_NAME_MAX + 32)
void gb_hub_key(const char *fleet, const char *kind, const char *name, char ret[GB_HUB_KEY_SIZE]);

#endif
