#ifndef GB_FLEET_HUB_CHECK_H
#define GB_FLEET_HUB_CHECK_H

#include <jansson.h>

#include "fleet/fleet.h"
#include "fleet/hub/hub.h"

#define GB_HUB_OPS_MAX 128   /* of a transaction: etcd takes no more */
#define GB_HUB_WAIT_MS 30000 /* at most, for orders */

/* What a request is. */
struct gb_hub_checked {
    bool waits; /* for orders; else op goes on */
    enum gb_fleet_relay_op op;
    bool reads;        /* changes nothing */
    bool serializable; /* and is answered by one member */
    size_t ops;        /* of one that reads */
    int64_t lease;     /* of the other kinds */
    uint64_t wait_ms;
};
/* Whether the node may send it. *body: what was read, for the caller to unref. INVALID_ARGUMENT, FORBIDDEN. Pure. */
int gb_hub_check(const char *fleet, const struct gb_name *node, const char *op, const char *text,
                 struct gb_hub_checked *ret, json_t **body, struct gb_error *err);

/* "/gpubuf/FLEET/" and what is behind it. */
#define GB_HUB_KEY_SIZE (2 * GB_NAME_MAX + 32)
void gb_hub_key(const char *fleet, const char *kind, const char *name, char ret[GB_HUB_KEY_SIZE]);

#endif
