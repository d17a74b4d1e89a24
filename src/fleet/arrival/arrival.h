#ifndef GB_FLEET_ARRIVAL_ARRIVAL_H
#define GB_FLEET_ARRIVAL_ARRIVAL_H

#include "fleet/arrival/owner.h"

/* config is copied, and what it points to is borrowed until gb_arrival_done. */
void gb_arrival_init(struct gb_arrival *arrival, const struct gb_arrival_config *config, const struct gb_name *session,
                     const char *who);
/* What has come stays in the core. */
void gb_arrival_done(struct gb_arrival *arrival);
/* Ends what it does, for that reason, unless it decides and the reason is CANCELLED. Returns whether it does. act
 * false: asks alone. [any thread] */
bool gb_arrival_stop(struct gb_arrival *arrival, enum gb_code why, bool act);

/* Makes the session that arrives, as the owner describes it. */
int gb_arrival_stage(struct gb_arrival *arrival, struct gb_error *err);
/* Makes it what the owner says now, with pools and streams. */
int gb_arrival_stage_again(struct gb_arrival *arrival, struct gb_error *err);
void gb_arrival_unstage(struct gb_arrival *arrival);
/* It has arrived: the session is this node's at that epoch, with that name. Its holders are
 * those of there. *ret, unless it is NULL: as gb_session_get. */
int gb_arrival_commit(struct gb_arrival *arrival, uint64_t epoch, struct gb_session_view *ret, struct gb_error *err);

/* Brings what has changed since the round before. lenient: what changes meanwhile is left to the next round. */
int gb_arrival_bring(struct gb_arrival *arrival, bool lenient, struct gb_error *err);
/* Those that stayed at the owner are known here as lost from now on. */
int gb_arrival_mark_lost(struct gb_arrival *arrival, struct gb_error *err);
void gb_arrival_items_free(struct gb_arrival *arrival);

#endif
