/* Orders to nodes that have no address. */
#ifndef GB_API_RESOURCES_FLEET_ORDERS_H
#define GB_API_RESOURCES_FLEET_ORDERS_H

#include "api/context.h"
#include "fleet/fleet.h"

/* The request has asked for the nodes (gb_ask_nodes): it is redirected to the node of the order, which does what the
 * order says; or, if that has no URL, the order is given, and the answer is 202. */
enum gb_step gb_send_to_node(struct gb_http_request *request, struct gb_http_response *response,
                             const struct gb_fleet_order *order, struct gb_error *err);

/* See gb_api_fleet_follow. */
bool gb_fleet_follow(struct gb_api *api, enum gb_order_what what, const struct gb_name *session,
                     gb_fleet_followed *failed, void *arg);

#endif
