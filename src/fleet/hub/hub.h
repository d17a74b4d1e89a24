/* A hub of a fleet: passes requests of other nodes on to the directory, for nodes behind NAT, and for more nodes than
 * should speak to etcd themselves. A hub has no state of its own that another hub would lack: a node may go from one to
 * another at any time.
 *
 * A request is one of etcd's gateway, in its form. It is looked at before it goes on: all its keys are of this fleet,
 * only a node itself writes its own records, and a lease is used by the node alone that it is of. Readings of many
 * nodes that come within a moment go on as one. A node that has no address waits here for orders.
 *
 * One thread, "gb-hub". */
#ifndef GB_FLEET_HUB_HUB_H
#define GB_FLEET_HUB_HUB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/text.h"

struct gb_fleet;
struct gb_hub;

struct gb_hub_config {
    struct gb_fleet *fleet; /* of this node, which is asked; borrowed until gb_hub_close */
    const char *name;       /* of the fleet; copied */
};

/* Returns 0, or -1 with INTERNAL. */
int gb_hub_open(const struct gb_hub_config *config, struct gb_hub **ret, struct gb_error *err);
/* Answers all with DRAINING, and waits for that. Before the fleet is closed. NULL is accepted. */
void gb_hub_close(struct gb_hub *hub);
/* Those that wait for orders are answered at once, from now on. */
void gb_hub_drain(struct gb_hub *hub);

/* A request, embedded by its owner. */
struct gb_hub_ask {
    struct gb_name node;                  /* whose request it is, which has been authenticated */
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
/* Whether a hub of that fleet would take it. Returns 0, or -1 with INVALID_ARGUMENT or FORBIDDEN. Pure. */
int gb_hub_would_take(const char *fleet, const struct gb_name *node, const char *op, const char *body,
                      struct gb_error *err);
/* The answer is not wanted any more: done does not run after this. A done that runs now is waited for. */
void gb_hub_cancel(struct gb_hub *hub, struct gb_hub_ask *ask);

struct gb_hub_stat {
    uint64_t requests; /* since the start, as all but waiting */
    uint64_t refused;
    uint64_t gathered; /* requests that went on within one of several */
    uint64_t sent;     /* requests to the directory */
    uint64_t waiting;  /* nodes that wait for orders */
};
void gb_hub_stat(struct gb_hub *hub, struct gb_hub_stat *ret);

#endif
