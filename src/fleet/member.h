#ifndef GB_FLEET_MEMBER_H
#define GB_FLEET_MEMBER_H

#include "fleet/state.h"

/* The node's membership. All on the fleet's thread. start joins; cancel ends all calls; done frees. */
void gb_member_start(struct gb_fleet *fleet);
void gb_member_cancel(struct gb_fleet *fleet);
void gb_member_done(struct gb_fleet *fleet);

/* Writes alive/N at once, if it differs enough from what was published. */
void gb_member_publish(struct gb_fleet *fleet);

#endif
