#ifndef GB_FLEET_ARRIVAL_ARRIVAL_H
#define GB_FLEET_ARRIVAL_ARRIVAL_H

#include "fleet/arrival/owner.h"

/* Copies config, and borrows what it points to until gb_arrival_done. */
void gb_arrival_init(struct gb_arrival *arrival, const struct gb_arrival_config *config, const struct gb_name *session,
                     const char *who);
/* Frees the arrival. The stage stays in the core. */
void gb_arrival_done(struct gb_arrival *arrival);
/* Stops the arrival for that reason: CANCELLED, which fails once `decides` is set, or DRAINING. Returns whether it
 * stops. act false only asks. [any thread] */
bool gb_arrival_stop(struct gb_arrival *arrival, enum gb_code why, bool act);

/* Makes the stage as the owner describes the session. */
int gb_arrival_stage(struct gb_arrival *arrival, struct gb_error *err);
/* Updates the stage to what the owner describes now, with pools and streams. */
int gb_arrival_stage_again(struct gb_arrival *arrival, struct gb_error *err);
void gb_arrival_unstage(struct gb_arrival *arrival);
/* Makes the stage the session of this node, with its name and that epoch. Its holders are those of `there`. ret: as of
 * gb_session_get, or NULL. */
int gb_arrival_commit(struct gb_arrival *arrival, uint64_t epoch, struct gb_session_view *ret, struct gb_error *err);

/* Pulls what has changed since the last round. lenient: what changes meanwhile is left to the next round. */
int gb_arrival_bring(struct gb_arrival *arrival, bool lenient, struct gb_error *err);
/* Makes buffers in the state lost for those whose bytes stayed at the owner. */
int gb_arrival_mark_lost(struct gb_arrival *arrival, struct gb_error *err);
void gb_arrival_items_free(struct gb_arrival *arrival);

#endif
