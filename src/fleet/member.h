#ifndef GB_FLEET_MEMBER_H
#define GB_FLEET_MEMBER_H

#include "fleet/state.h"

void gb_member_start(struct gb_fleet *fleet);
void gb_member_cancel(struct gb_fleet *fleet);
void gb_member_done(struct gb_fleet *fleet);

/* Tells of a change at once. */
void gb_member_publish(struct gb_fleet *fleet);

#endif
