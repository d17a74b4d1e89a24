/* The nodes of a fleet as sources of copies: where they are, what lets a copy in there, and which has the source's
 * session, or copies of its sealed buffers, when the source is lost. */
#ifndef GB_API_RESOURCES_PULL_NODES_H
#define GB_API_RESOURCES_PULL_NODES_H

#include "api/context.h"
#include "fleet/fleet.h"
#include "http/http.h"
#include "pull/pull.h"

/* The node that has that origin, or NULL. */
const struct gb_fleet_node *gb_pull_node_at(const struct gb_fleet_nodes *nodes, const char *origin);

/* The origins of all nodes, and those that options name: one block of memory, for free(). NULL: none is left. */
char **gb_pull_origins(const struct gb_api *api, const struct gb_fleet_nodes *nodes, size_t *ret_count);

/* One in which this node reaches that one; where there is none, one of its own. */
const struct gb_name *gb_pull_network(const struct gb_http_request *request, const struct gb_fleet_node *node);

/* The client may read at that node what it may read here, as a redirect would have it: sets the ticket, and where else
 * the pull may go on. by_name: the source's session is one of the directory; else it is so if the node is its owner,
 * or says so. With a token of the source nothing is set: that tells what the client may there, and nowhere else.
 * Returns 0, or -1 with FORBIDDEN or SATURATED and nothing set. */
int gb_pull_nodes_take(const struct gb_http_request *request, const struct gb_name *node, bool by_name,
                       struct gb_pull_params *params, struct gb_error *err);
/* Frees what gb_pull_nodes_take has set, where no pull takes it. */
void gb_pull_nodes_drop(struct gb_pull_params *params);

#endif
