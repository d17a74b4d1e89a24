/* Which sessions have pools of their own: few of what may be ten thousand, so that a poll of the statistics need not visit the others. */
#ifndef GB_CORE_SESSION_POOLS_H
#define GB_CORE_SESSION_POOLS_H

#include <pthread.h>

#include "core/util/idlist.h"

struct gb_session;

struct gb_session_pools {
    pthread_mutex_t lock; /* a leaf */
    struct gb_idlist sessions;
};

void gb_session_pools_init(struct gb_session_pools *pool_sessions);
void gb_session_pools_done(struct gb_session_pools *pool_sessions);

/* After each change of the session's pools, under its lock. -1: memory is exhausted; only where it has its first one. */
int gb_session_pools_update_locked(struct gb_session_pools *pool_sessions, struct gb_session *session);

#endif
