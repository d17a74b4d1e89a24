#ifndef GB_FLEET_RECONCILE_H
#define GB_FLEET_RECONCILE_H

#include "fleet/state.h"

/* Removes the keys of sessions that this node owns and does not have, and reconciles the sessions that it has. done
 * runs once. ok: all sessions were reconciled. [the thread] */
struct gb_reconcile_all *gb_reconcile_all_start(struct gb_fleet *fleet, void (*done)(struct gb_fleet *fleet, bool ok,
                                                                                     const struct gb_error *why));
void gb_reconcile_all_cancel(struct gb_reconcile_all *reconcile); /* and frees it; NULL is accepted */

/* Reconciles suspects, one at a time, if the lease is held. [the thread] */
void gb_suspects_check(struct gb_fleet *fleet);
void gb_suspects_cancel(struct gb_fleet *fleet);
void gb_suspects_free(struct gb_fleet *fleet);

#endif
