/* What the fleet asks this node about its sessions and devices, and the outcomes that it applies; see api.h. No
 * function blocks. [any thread] */
#ifndef GB_API_FLEET_OWN_H
#define GB_API_FLEET_OWN_H

#include "api/context.h"
#include "fleet/fleet.h"

bool gb_fleet_has(struct gb_api *api, const struct gb_fleet_session *record);
size_t gb_fleet_sessions(struct gb_api *api, int64_t *cursor, struct gb_fleet_session *ret, size_t max);
bool gb_fleet_session(struct gb_api *api, const struct gb_name *name, struct gb_fleet_session *ret);
void gb_fleet_raise(struct gb_api *api, const struct gb_fleet_session *mine, uint64_t epoch);
void gb_fleet_set_aside(struct gb_api *api, const struct gb_fleet_session *mine);
/* Sets a transferred session aside. done runs once with the name that it has now, "" if it was not set aside. */
void gb_fleet_give_aside(struct gb_api *api, const struct gb_fleet_session *mine,
                         void (*done)(void *arg, const struct gb_name *aside), void *arg);

size_t gb_fleet_devices(struct gb_api *api, struct gb_fleet_device *ret);

/* This node as other nodes see it, without asking the directory. The node is in a fleet. */
void gb_fleet_self(struct gb_api *api, struct gb_fleet_node *ret);

/* --- transfers to another node ------------------------------------------------------------------------------------ */

struct gb_handovers;

/* NULL when memory is exhausted. */
struct gb_handovers *gb_handovers_new(void);
/* After the fleet is closed. NULL is accepted. */
void gb_handovers_free(struct gb_handovers *handovers);

#endif
