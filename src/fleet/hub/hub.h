/* A hub of a fleet relays requests of other nodes to the directory: of nodes behind NAT, and of more nodes than etcd
 * should serve itself. A hub has no state that another hub lacks, so a node may change its hub at any time.
 *
 * A request has the form of etcd's gateway. The hub checks it: all keys are of this fleet, only a node itself writes
 * its own records, and only the owner of a lease uses it. Reads of many nodes that come at nearly the same time are
 * relayed as one. A node without a URL waits here for orders. The API calls the hub, whose one thread is "gb-hub". */
#ifndef GB_FLEET_HUB_HUB_H
#define GB_FLEET_HUB_HUB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/text.h"

struct gb_hub;

struct gb_hub_config {
    struct gb_fleet *fleet; /* of this node, which relays; borrowed until gb_hub_close */
    const char *name;       /* of the fleet; copied */
};

/* Returns 0, or -1 with INTERNAL. */
int gb_hub_open(const struct gb_hub_config *config, struct gb_hub **ret, struct gb_error *err);
/* Answers all requests with DRAINING and waits until that is done. Call it before gb_fleet_close. NULL is accepted. */
void gb_hub_close(struct gb_hub *hub);
/* From now on, requests that wait for orders are answered at once. */
void gb_hub_drain(struct gb_hub *hub);

/* A request, embedded by its owner. */
struct gb_hub_ask {
    struct gb_name node;                  /* whose request it is; the caller has authenticated the node */
    const char *op;                       /* "txn", "grant", "keepalive", "timetolive", "revoke", "wait" */
    const char *body;                     /* JSON; borrowed until gb_hub_send returns, as op */
    void (*done)(struct gb_hub_ask *ask); /* once, on the hub's thread, without locks */

    struct gb_error error; /* DIRECTORY_UNAVAILABLE, FORBIDDEN, SATURATED, DRAINING */
    int status;            /* of the directory's answer, below 500 */
    char *answer;          /* JSON; the owner's, to free */
    void *item;            /* the hub's */
};
/* Returns 0, or -1 with INVALID_ARGUMENT, FORBIDDEN or SATURATED: done does not run. [any thread] */
int gb_hub_send(struct gb_hub *hub, struct gb_hub_ask *ask, struct gb_error *err);
/* Whether a hub of that fleet would accept it. Returns 0, or -1 with INVALID_ARGUMENT or FORBIDDEN. Pure. */
int gb_hub_would_take(const char *fleet, const struct gb_name *node, const char *op, const char *body,
                      struct gb_error *err);
/* Cancels a request: done does not run after this. Waits for a done that is running. */
void gb_hub_cancel(struct gb_hub *hub, struct gb_hub_ask *ask);

struct gb_hub_stat {
    uint64_t requests; /* since the start, as all counters except waiting */
    uint64_t refused;
    uint64_t gathered; /* requests that were relayed together with others */
    uint64_t sent;     /* requests to the directory */
    uint64_t waiting;  /* nodes that wait for orders */
};
void gb_hub_stat(struct gb_hub *hub, struct gb_hub_stat *ret);

#endif
