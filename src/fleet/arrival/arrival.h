#ifndef GB_FLEET_ARRIVAL_ARRIVAL_H
#define GB_FLEET_ARRIVAL_ARRIVAL_H

#include "fleet/arrival/stage.h"

/* Copies config, and borrows what it points to until gb_arrival_done. */
void gb_arrival_init(struct gb_arrival *arrival, const struct gb_arrival_config *config, const struct gb_name *session,
                     const char *who);
/* Frees the arrival. The stage stays in the core. */
void gb_arrival_done(struct gb_arrival *arrival);
/* Stops the arrival for that reason: CANCELLED, which fails once `decides` is set, or DRAINING. Returns whether it
 * stops. act false only asks. [any thread] */
bool gb_arrival_stop(struct gb_arrival *arrival, enum gb_code why, bool act);

/* Pulls what has changed since the last round. lenient: what changes meanwhile is left to the next round. */
int gb_arrival_bring(struct gb_arrival *arrival, bool lenient, struct gb_error *err);
/* Makes buffers in the state lost for those whose bytes stayed at the owner. */
int gb_arrival_mark_lost(struct gb_arrival *arrival, struct gb_error *err);
void gb_arrival_items_free(struct gb_arrival *arrival);

#endif
