/* The pools of sessions, and which sessions have any: few of what may be ten thousand, so that a poll of the statistics
 * need not visit the others. */
#ifndef GB_CORE_SESSION_POOLS_H
#define GB_CORE_SESSION_POOLS_H

#include <stdint.h>

#include "base/error.h"
#include "base/text.h"

struct gb_session;
struct gb_core;
struct gb_core_device;
struct gb_core_pool;

struct gb_session_pools;

/* NULL when memory is exhausted. gb_session_pools_free accepts NULL. */
struct gb_session_pools *gb_session_pools_new(void);
void gb_session_pools_free(struct gb_session_pools *pool_sessions);

/* Called after each change of the session's pools, under its lock. -1: memory is exhausted; only if the pool is its
 * first. */
int gb_session_pools_update_locked(struct gb_session_pools *pool_sessions, struct gb_session *session);

/* The pool that the session sees under that name, lost ones included; no reference is taken. "" is the first device's
 * own. The session's lock is held. POOL_NOT_FOUND. */
struct gb_core_pool *gb_core_pool_find_locked(struct gb_session *session, const struct gb_name *name,
                                              struct gb_error *err);

/* The pool for memory of the device that names none: the session's current pool if it is of that device, else the
 * device's own. The session's lock is held. */
struct gb_core_pool *gb_session_pool_locked(struct gb_session *session, const struct gb_core_device *device);

/* The session's current pool; NULL: it has chosen none, or the one that it chose was deleted. The session's lock is
 * held. */
struct gb_core_pool *gb_session_current_pool_locked(struct gb_session *session);

/* The id of the pool of that name, for a session that makes it its current pool; 0 for "default". POOL_NOT_FOUND,
 * INVALID_ARGUMENT. The session's lock is held. */
int gb_session_choose_pool_locked(struct gb_session *session, const struct gb_name *name, int64_t *ret_id,
                                  struct gb_error *err);

/* The same by the names of session and pool. On success the session's lock is held and *ret_session is the session,
 * until gb_core_pool_unlock. NULL: no lock is held. */
struct gb_core_pool *gb_core_pool_lock(struct gb_core *core, const struct gb_locator *at,
                                       struct gb_session **ret_session, struct gb_error *err);

void gb_core_pool_unlock(struct gb_session *session);

/* Puts the pool into the session's map and list, which take a reference on success. The session's lock is held. */
int gb_core_pool_enroll_locked(struct gb_session *session, struct gb_core_pool *pool, struct gb_error *err);

/* The next pool of the session by id, with a reference; NULL at the end. Takes the session's lock. */
struct gb_core_pool *gb_session_pool_after(struct gb_session *session, int64_t *id);

#endif
