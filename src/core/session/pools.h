/* Which sessions have pools of their own: few of what may be ten thousand, so that a poll of the statistics need not visit the others. */
#ifndef GB_CORE_POOLED_H
#define GB_CORE_POOLED_H

#include <pthread.h>

#include "core/util/idlist.h"

struct gb_session;

struct gb_pooled {
    pthread_mutex_t lock; /* a leaf */
    struct gb_idlist sessions;
};

void gb_pooled_init(struct gb_pooled *pooled);
void gb_pooled_done(struct gb_pooled *pooled);

/* After each change of the session's pools, under its lock. -1: memory is exhausted; only where it has its first one. */
int gb_pooled_note_locked(struct gb_pooled *pooled, struct gb_session *session);

#endif
