#include "store/fence.h"

#include "base/clock.h"
#include "base/thread.h"
#include "store/db.h"

/* Between two attempts to mend. */
#define RETRY_NS GB_NS_PER_S

void gb_fence_init(struct gb_fence *fence) {
    gb_mutex_init(&fence->lock);
}

void gb_fence_done(struct gb_fence *fence) {
    pthread_mutex_destroy(&fence->lock);
}

/* why: durable changes are refused, from now on or still; its code OK: they are taken. */
static void set_trouble(struct gb_fence *fence, const struct gb_error *why) {
    pthread_mutex_lock(&fence->lock);
    fence->trouble = *why;
    fence->retry_ns = gb_clock_ns() + RETRY_NS;
    pthread_mutex_unlock(&fence->lock);
}

static struct gb_error trouble_of(struct gb_fence *fence) {
    struct gb_error trouble;

    pthread_mutex_lock(&fence->lock);
    trouble = fence->trouble;
    pthread_mutex_unlock(&fence->lock);
    return trouble;
}

int gb_fence_health(struct gb_fence *fence, struct gb_error *err) {
    struct gb_error trouble = trouble_of(fence);

    if (trouble.code == GB_OK)
        return 0;
    gb_error_native(err, trouble.native_domain, trouble.native_code, trouble.native_name, trouble.call);
    return gb_error_set(err, GB_ERR_STORAGE_UNAVAILABLE,
                        "the disk of the state directory makes no change safe: %s; it is tried again once a second",
                        trouble.detail);
}

uint64_t gb_fence_retry_ns(struct gb_fence *fence) {
    uint64_t ns;

    pthread_mutex_lock(&fence->lock);
    ns = fence->trouble.code != GB_OK ? fence->retry_ns : UINT64_MAX;
    pthread_mutex_unlock(&fence->lock);
    return ns;
}

int gb_fence_commit_page(struct gb_apply *apply, struct gb_error *err) {
    int r = gb_apply_sync(apply, true, err);

    if (r == 0)
        r = gb_apply_begin(apply, err);
    if (r == 0)
        r = gb_apply_probe(apply, err);
    if (r == 0)
        r = gb_apply_commit(apply, err);
    if (r < 0)
        gb_apply_rollback(apply);
    gb_apply_sync(apply, false, NULL);
    return r;
}

/* All pages of the log go to the database, which is synced. The commit after that writes a new head of the log and
 * syncs it: from then on the old log counts no more, whatever of it is on the disk. A reader, which may be another
 * process, keeps the log from being begun again; waiting for it would hold up all other changes. */
static int begin_log_anew(struct gb_apply *apply, struct gb_error *err) {
    int r;

    gb_db_patience(apply->db, false);
    r = sqlite3_wal_checkpoint_v2(apply->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    if (r == SQLITE_OK)
        r = gb_fence_commit_page(apply, err);
    else
        r = gb_db_fail(apply->db, r, "sqlite3_wal_checkpoint_v2", GB_ERR_STORE_FAILED, err);
    gb_db_patience(apply->db, true);
    return r;
}

void gb_fence_mend(struct gb_fence *fence, struct gb_apply *apply) {
    struct gb_error err = GB_ERROR_INIT;

    begin_log_anew(apply, &err);
    set_trouble(fence, &err);
}

/* A transaction counts once its last frame is whole in the log. It is not if a frame could not be written, which is
 * SQLITE_FULL, or SQLITE_IOERR_WRITE where a quota leaves no room. Other errors of kind SQLITE_IOERR may come after the
 * last frame, from the sync of the log or from its index. Frames of a transaction that no fence has written over could
 * complete those of the same change tried again. */
static bool in_doubt(struct gb_fence *fence, const struct gb_error *failure) {
    if (trouble_of(fence).code != GB_OK)
        return true;
    return (failure->native_code & 0xff) == SQLITE_IOERR &&
           !(failure->native_code == SQLITE_IOERR_WRITE && failure->code == GB_ERR_STORAGE_FULL);
}

void gb_fence_raise(struct gb_fence *fence, struct gb_apply *apply, struct gb_error *failure) {
    struct gb_error unknown = GB_ERROR_INIT;
    struct gb_error why = GB_ERROR_INIT;

    if (!in_doubt(fence, failure))
        return;
    if (gb_fence_commit_page(apply, &why) == 0) {
        gb_fence_mend(fence, apply);
        return;
    }
    set_trouble(fence, &why);
    gb_error_native(&unknown, failure->native_domain, failure->native_code, failure->native_name, failure->call);
    gb_error_set(&unknown, GB_ERR_STORAGE_FAILED,
                 "%s; nor did the disk take what undoes it: it is not known whether the change is there after a "
                 "restart",
                 failure->detail);
    *failure = unknown;
}

void gb_fence_doubt(struct gb_fence *fence, const struct gb_error *failure) {
    if (failure->native_code == SQLITE_IOERR_FSYNC)
        set_trouble(fence, failure);
}
