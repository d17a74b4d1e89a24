#ifndef GB_FLEET_PULL_FAILOVER_H
#define GB_FLEET_PULL_FAILOVER_H

#include "fleet/pull/source.h"

/* Whether what was looked at there is the session that is meant: at a place that the directory names, one that it
 * knows. False with SOURCE_REFUSED. */
bool gb_pull_is_meant(const struct gb_pull *pull, const struct gb_pull_place *place,
                      const struct gb_pull_source *source, struct gb_error *err);
/* What becomes of a part that has lost its place, by `how`: BROKEN or CHANGED. OK: pull->place is another one with the
 * same bytes. CHANGED: the pull is to begin again, maybe at another place. Else err is told what is known besides, and
 * patience may grow. One part at a time looks for another place; the others are BROKEN meanwhile. */
enum gb_pull_outcome gb_pull_fail_over(struct gb_pull_conn *conn, const struct gb_pull_place *lost,
                                       enum gb_pull_outcome how, struct gb_pull_patience *patience,
                                       struct gb_error *err);
/* The same of a pull that has no bytes yet: pull->place is set if there is another. [the pull's thread] */
void gb_pull_begin_failover(struct gb_pull *pull, struct gb_pull_patience *patience, struct gb_error *err);
unsigned gb_pull_failovers(const struct gb_pull *pull);
void gb_pull_places_free(struct gb_pull *pull);

#endif
