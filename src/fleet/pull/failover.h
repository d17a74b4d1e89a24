#ifndef GB_FLEET_PULL_FAILOVER_H
#define GB_FLEET_PULL_FAILOVER_H

#include "fleet/pull/source.h"

/* Whether the place has the right session. At a place that the directory names, the session must be registered. False
 * with SOURCE_REFUSED. */
bool gb_pull_is_meant(const struct gb_pull *pull, const struct gb_pull_place *place,
                      const struct gb_pull_source *source, struct gb_error *err);
/* Fails over after a part has lost its place; how: BROKEN or CHANGED. OK: pull->place is another place with the same
 * bytes. CHANGED: the pull begins again, perhaps at another place. Otherwise the reason is added to err, and patience
 * may grow. One part at a time fails over; the others get BROKEN meanwhile. */
enum gb_pull_outcome gb_pull_fail_over(struct gb_pull_conn *conn, const struct gb_pull_place *lost,
                                       enum gb_pull_outcome how, struct gb_pull_patience *patience,
                                       struct gb_error *err);
/* The same for a pull that has no bytes yet: sets pull->place if another place is found. [the pull's thread] */
void gb_pull_begin_failover(struct gb_pull *pull, struct gb_pull_patience *patience, struct gb_error *err);
unsigned gb_pull_failovers(const struct gb_pull *pull);
void gb_pull_places_free(struct gb_pull *pull);

#endif
