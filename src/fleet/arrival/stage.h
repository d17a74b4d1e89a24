/* The stage of an arrival: the local session in which it arrives. */
#ifndef GB_FLEET_ARRIVAL_STAGE_H
#define GB_FLEET_ARRIVAL_STAGE_H

#include "fleet/arrival/owner.h"

/* Makes the stage as the owner describes the session. */
int gb_arrival_stage(struct gb_arrival *arrival, struct gb_error *err);
/* Updates the stage to what the owner describes now, with pools and streams. */
int gb_arrival_stage_again(struct gb_arrival *arrival, struct gb_error *err);
void gb_arrival_unstage(struct gb_arrival *arrival);
/* Makes the stage the session of this node, with its name and that epoch. Its holders are those of `there`. ret: as of
 * gb_session_get, or NULL. */
int gb_arrival_commit(struct gb_arrival *arrival, uint64_t epoch, struct gb_session_view *ret, struct gb_error *err);

/* The labels of the owner's record of a session or a buffer: a reference; NULL: it has none, or memory is exhausted. */
struct gb_text *gb_arrival_labels(const json_t *record);

#endif
