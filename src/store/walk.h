/* All records of a kind, one after the other. */
#ifndef GB_STORE_WALK_H
#define GB_STORE_WALK_H

#include <sqlite3.h>

#include "base/error.h"
#include "model/model.h"

/* visit gets each record, which is good until it returns; -1 ends the walk with its error. Returns 0 or -1. */
int gb_walk_sessions(sqlite3 *db, int (*visit)(void *, const struct gb_session_rec *, struct gb_error *), void *arg,
                     struct gb_error *err);
int gb_walk_buffers(sqlite3 *db, int (*visit)(void *, const struct gb_buffer_rec *, struct gb_error *), void *arg,
                    struct gb_error *err);
int gb_walk_pools(sqlite3 *db, int (*visit)(void *, const struct gb_pool_rec *, struct gb_error *), void *arg,
                  struct gb_error *err);

#endif
