/* Sessions that this node transfers to another one of its fleet. */
#ifndef GB_API_FLEET_HANDOVER_H
#define GB_API_FLEET_HANDOVER_H

#include "api/context.h"

struct gb_handovers;

/* NULL when memory is exhausted. */
struct gb_handovers *gb_handovers_new(void);
/* After the fleet is closed. NULL is accepted. */
void gb_handovers_free(struct gb_handovers *handovers);

#endif
