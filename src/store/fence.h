/* Whether a commit that waits for the disk can be relied on. Internal to the store.
 *
 * If the sync of a commit fails, SQLite reports an error and forgets the transaction, but its frames are whole in the
 * log: a process that opens the database next, after this one was killed, finds them and takes them for committed. One
 * more commit, the fence, writes over them.
 *
 * Pages of the log that a failed sync left behind may be lost, although later syncs succeed: the system reports the
 * failure once. A later commit would lie behind a hole. The log is therefore begun again before the next durable
 * change.
 *
 * Functions belong to the thread that has the database, but those that say any thread. */
#ifndef GB_STORE_FENCE_H
#define GB_STORE_FENCE_H

#include <pthread.h>
#include <stdint.h>

#include "store/apply.h"

struct gb_fence {
    pthread_mutex_t lock;    /* for all below */
    struct gb_error trouble; /* why durable changes are refused; OK: they are taken */
    uint64_t retry_ns;       /* then: when it is tried to mend it */
};

void gb_fence_init(struct gb_fence *fence);
void gb_fence_done(struct gb_fence *fence);

/* [any thread, never blocks] As gb_store_durable_health. */
int gb_fence_health(struct gb_fence *fence, struct gb_error *err);
/* [any thread, never blocks] When gb_fence_mend is due; UINT64_MAX: there is nothing to mend. */
uint64_t gb_fence_retry_ns(struct gb_fence *fence);

/* Commits a page that makes no difference, and waits for the disk, which then has all commits before as well. Failures
 * are those of gb_apply_commit. */
int gb_fence_commit_page(struct gb_apply *apply, struct gb_error *err);

/* A commit that was to wait for the disk failed with *failure; its transaction has ended. If it is not certain that the
 * database is as before, commits the fence. If that fails, *failure becomes STORAGE_FAILED. */
void gb_fence_raise(struct gb_fence *fence, struct gb_apply *apply, struct gb_error *failure);

/* A checkpoint, or a commit of no change, failed. If that was a sync of the log, durable changes are refused until the
 * log is mended. */
void gb_fence_doubt(struct gb_fence *fence, const struct gb_error *failure);

/* Begins the log again. Waits for the disk, but for no other process. */
void gb_fence_mend(struct gb_fence *fence, struct gb_apply *apply);

#endif
