#ifndef GB_FLEET_RECONCILE_H
#define GB_FLEET_RECONCILE_H

#include "fleet/state.h"

/* Takes keys of sessions out that this node owns and has not, and settles those that it has. done runs once on the
 * thread; ok: all were looked at. */
struct gb_reconcile_all *gb_reconcile_all_start(struct gb_fleet *fleet, void (*done)(struct gb_fleet *fleet, bool ok,
                                                                                     const struct gb_error *why));
void gb_reconcile_all_cancel(struct gb_reconcile_all *reconcile); /* frees it; NULL is accepted */

/* Takes doubts up, if the directory answers. [the thread] */
void gb_suspects_check(struct gb_fleet *fleet);
void gb_suspects_cancel(struct gb_fleet *fleet);
void gb_suspects_free(struct gb_fleet *fleet);

#endif
