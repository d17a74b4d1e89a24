#include "store/committer.h"

#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "store/audit.h"
#include "store/db.h"
#include "store/feed.h"
#include "store/place.h"

/* Between two attempts to write to a database that refused, and two checks of its files. */
#define PROBE_NS GB_NS_PER_S

/* A checkpoint each 16 MiB: at SQLite's default of 4 MiB it would come every few hundred commits. */
#define CHECKPOINT_PAGES 4000

/* --- whether the database takes changes --------------------------------------------------------------------------- */

/* A refusal that is the change's own says nothing about the next one. */
static bool about_database(const struct gb_error *err) {
    if (err->code == GB_ERR_STORE_UNAVAILABLE) /* known from a check of the files, which ends it as well */
        return false;
    switch (err->native_code & 0xff) {
    case SQLITE_CONSTRAINT:
    case SQLITE_TOOBIG:
    case SQLITE_MISMATCH:
    case SQLITE_NOMEM:
        return false;
    default:
        return true;
    }
}

/* What became of a transaction; NULL: it is in the database. Changes that are refused meanwhile put no probe off. */
static void note_outcome_locked(struct gb_committer *m, const struct gb_error *err) {
    if (!err) {
        m->trouble.code = GB_OK;
    } else if (about_database(err)) {
        if (m->trouble.code == GB_OK)
            m->probe_ns = gb_clock_ns() + PROBE_NS;
        m->trouble = *err;
    }
}

static void note_outcome(struct gb_committer *m, const struct gb_error *err) {
    pthread_mutex_lock(&m->lock);
    note_outcome_locked(m, err);
    pthread_mutex_unlock(&m->lock);
}

static int on_log(void *arg, sqlite3 *db, const char *schema, int pages) {
    struct gb_committer *m = arg;

    (void)db;
    (void)schema;
    m->log_pages = pages;
    m->logged = true;
    return SQLITE_OK;
}

static int take_database(struct gb_committer *m, sqlite3 *db, struct gb_error *err) {
    if (gb_apply_init(&m->apply, db, &m->history, m->sync_full, err) < 0)
        return -1;
    m->apply.history.seen = m->logs.seen;
    if (gb_place_note(m->logs.place, err) < 0)
        return -1;
    sqlite3_wal_hook(db, on_log, m); /* instead of SQLite's own checkpoints, which any commit may have to wait for */
    return 0;
}

static int open_database(struct gb_committer *m, struct gb_error *err) {
    if (!m->reopened && m->reopen(m->reopen_arg, &m->reopened, err) < 0)
        return -1;
    if (take_database(m, m->reopened, err) < 0) {
        gb_apply_done(&m->apply);
        return -1;
    }
    m->reopen = NULL;
    return 0;
}

static void checkpoint(struct gb_committer *m) {
    int r = sqlite3_wal_checkpoint_v2(m->apply.db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    struct gb_error err = GB_ERROR_INIT;

    if (r == SQLITE_OK)
        return;
    gb_db_fail(m->apply.db, r, "sqlite3_wal_checkpoint_v2", GB_ERR_STORE_FAILED, &err);
    gb_fence_doubt(&m->fence, &err);
}

/* A log that lies beside another database would be taken for that one's at the next start, and a database without its
 * log lacks the latest changes: what the log has goes where it belongs, and the log is left empty. */
static void empty_log(struct gb_committer *m) {
    gb_db_patience(m->apply.db, false);
    sqlite3_wal_checkpoint_v2(m->apply.db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    gb_db_patience(m->apply.db, true);
}

/* Once a second, and before whatever is to last. */
static void look(struct gb_committer *m) {
    bool before = m->apply.displaced.code != GB_OK;
    struct gb_error why = GB_ERROR_INIT;

    if (!m->reopen)
        gb_place_check(m->logs.place, &why);
    m->apply.displaced = why;
    pthread_mutex_lock(&m->lock);
    m->displaced = why;
    m->look_ns = gb_clock_ns() + PROBE_NS;
    pthread_mutex_unlock(&m->lock);
    if (why.code != GB_OK && !before)
        empty_log(m);
}

static struct gb_error displaced_of(struct gb_committer *m) {
    struct gb_error why;

    pthread_mutex_lock(&m->lock);
    why = m->displaced;
    pthread_mutex_unlock(&m->lock);
    return why;
}

static uint64_t look_ns(struct gb_committer *m) {
    uint64_t ns;

    pthread_mutex_lock(&m->lock);
    ns = m->look_ns;
    pthread_mutex_unlock(&m->lock);
    return ns;
}

/* Pages that go from the log to the database first make room in the log. */
static int write_probe(struct gb_committer *m, struct gb_error *err) {
    checkpoint(m);
    if (gb_apply_begin(&m->apply, err) == 0 && gb_apply_probe(&m->apply, err) == 0 &&
        gb_apply_commit(&m->apply, err) == 0)
        return 0;
    gb_apply_rollback(&m->apply);
    return -1;
}

static uint64_t write_probe_ns(struct gb_committer *m) {
    uint64_t ns;

    pthread_mutex_lock(&m->lock);
    ns = m->trouble.code != GB_OK && m->begun ? m->probe_ns : UINT64_MAX;
    pthread_mutex_unlock(&m->lock);
    return ns;
}

uint64_t gb_committer_probe_ns(struct gb_committer *committer) {
    uint64_t write_ns = write_probe_ns(committer);
    uint64_t mend_ns = gb_fence_retry_ns(&committer->fence);
    uint64_t next_ns = look_ns(committer);

    if (write_ns < next_ns)
        next_ns = write_ns;
    return mend_ns < next_ns ? mend_ns : next_ns;
}

/* The commit after it is the first of a log, until it has reported otherwise. */
static void mend(struct gb_committer *m) {
    m->log_pages = 0;
    gb_fence_mend(&m->fence, &m->apply);
}

static void probe_writes(struct gb_committer *committer) {
    struct gb_error err = GB_ERROR_INIT;
    int r = committer->reopen ? open_database(committer, &err) : write_probe(committer, &err);

    pthread_mutex_lock(&committer->lock);
    committer->probe_ns = gb_clock_ns() + PROBE_NS;
    note_outcome_locked(committer, r < 0 ? &err : NULL);
    pthread_mutex_unlock(&committer->lock);
}

void gb_committer_probe(struct gb_committer *committer) {
    uint64_t now_ns = gb_clock_ns();

    if (look_ns(committer) <= now_ns)
        look(committer);
    if (gb_fence_retry_ns(&committer->fence) <= now_ns)
        mend(committer);
    if (write_probe_ns(committer) <= now_ns)
        probe_writes(committer);
}

int gb_committer_durable_health(struct gb_committer *committer, struct gb_error *err) {
    struct gb_error displaced = displaced_of(committer);

    if (displaced.code != GB_OK)
        return gb_error_set(err, GB_ERR_STORAGE_UNAVAILABLE, "%s", displaced.detail);
    return gb_fence_health(&committer->fence, err);
}

int gb_committer_health(struct gb_committer *committer, struct gb_error *err) {
    struct gb_error displaced = displaced_of(committer);
    struct gb_error trouble;

    if (displaced.code != GB_OK)
        return gb_error_move(err, &displaced);
    pthread_mutex_lock(&committer->lock);
    trouble = committer->trouble;
    pthread_mutex_unlock(&committer->lock);
    if (trouble.code == GB_OK)
        return 0;
    gb_error_native(err, trouble.native_domain, trouble.native_code, trouble.native_name, trouble.call);
    return gb_error_set(err, GB_ERR_STORE_UNAVAILABLE, "%s; it is tried again once a second", trouble.detail);
}

/* --- one transaction ---------------------------------------------------------------------------------------------- */

static bool any_durable(const struct gb_change *first, const struct gb_change *end) {
    const struct gb_change *c;

    for (c = first; c != end; c = c->next) {
        if (c->durable && gb_change_writes(c))
            return true;
    }
    return false;
}

/* SQLite syncs nothing for a transaction that made no difference. A commit before, which did not wait, may have made
 * it. */
static int commit(struct gb_committer *m, bool durable, struct gb_error *err) {
    int r;

    m->logged = false;
    r = gb_apply_commit(&m->apply, err);
    if (r == 0 && durable && !m->logged)
        r = gb_fence_commit_page(&m->apply, err);
    if (r == 0)
        return 0;
    gb_apply_rollback(&m->apply);
    if (durable || m->sync_full) {
        m->log_pages = 0;
        gb_fence_raise(&m->fence, &m->apply, err);
    }
    return -1;
}

static int apply_all(struct gb_committer *m, struct gb_change *first, struct gb_change *end, bool durable,
                     struct gb_error *err) {
    struct gb_change *c;
    int r = durable ? gb_apply_sync(&m->apply, true, err) : 0;

    if (r == 0)
        r = gb_apply_begin(&m->apply, err);
    for (c = first; c != end && r == 0; c = c->next) {
        r = gb_apply_change(&m->apply, c->kind, c->record, err);
        if (r == 0 && c->mark)
            r = gb_apply_mark(&m->apply, c->mark, err);
    }
    if (r == 0)
        r = commit(m, durable, err);
    else
        gb_apply_rollback(&m->apply);
    if (durable)
        gb_apply_sync(&m->apply, false, NULL);
    return r;
}

static bool locked_by_another(const struct gb_error *err) {
    return (err->native_code & 0xff) == SQLITE_BUSY;
}

/* Carries out first..end (end not included) in one transaction. Returns 0, or -1 with the database as before, but for
 * STORAGE_FAILED: then that is not known. If it is not patient, a lock of another process is no outcome. */
static int transact(struct gb_committer *m, struct gb_change *first, struct gb_change *end, bool patient,
                    struct gb_error *err) {
    uint64_t began_ns = gb_clock_ns();
    bool durable = any_durable(first, end);
    uint64_t took_ns;
    int r;

    if (durable || m->sync_full)
        look(m);
    if (durable && gb_fence_health(&m->fence, err) < 0)
        return -1;
    if (m->sync_full && gb_fence_retry_ns(&m->fence) != UINT64_MAX)
        mend(m); /* without the second's wait: the change is tried in any case */
    if (!patient)
        gb_db_patience(m->apply.db, false);
    r = apply_all(m, first, end, durable, err);
    if (!patient)
        gb_db_patience(m->apply.db, true);
    took_ns = gb_clock_ns() - began_ns;
    m->took_ns = durable ? 0 : took_ns;
    if (r < 0 && !patient && locked_by_another(err))
        return -1;
    pthread_mutex_lock(&m->lock);
    gb_histogram_add(&m->stat.took, took_ns);
    m->stat.commits += r == 0;
    m->stat.durable_commits += r == 0 && durable;
    note_outcome_locked(m, r < 0 ? err : NULL);
    pthread_mutex_unlock(&m->lock);
    return r;
}

/* --- a group ------------------------------------------------------------------------------------------------------ */

void gb_committer_admit(struct gb_committer *committer, struct gb_change *change) {
    bool admitted = true;

    pthread_mutex_lock(&committer->lock);
    committer->begun = true;
    if (gb_change_writes(change)) {
        admitted = committer->stat.queued < committer->queue_max;
        committer->stat.queued += admitted;
        committer->stat.failures += !admitted;
    }
    pthread_mutex_unlock(&committer->lock);
    if (!admitted)
        gb_change_refuse(change);
}

static void count_locked(struct gb_committer *m, const struct gb_change *c, const struct gb_error *error) {
    if (!gb_change_writes(c))
        return;
    m->stat.queued--;
    m->stat.changes += error == NULL;
    m->stat.failures += error != NULL;
    if (error && error->native_code != SQLITE_CONSTRAINT_FOREIGNKEY)
        m->stat.last_failure = *error;
    m->stat.orphans += error != NULL && error->native_code == SQLITE_CONSTRAINT_FOREIGNKEY;
}

void gb_committer_marks_watch(struct gb_committer *m, gb_store_marked_fn *marked, void *arg) {
    pthread_mutex_lock(&m->lock);
    m->marked = marked;
    m->marked_arg = arg;
    pthread_mutex_unlock(&m->lock);
}

static void tell_mark(struct gb_committer *m, const struct gb_store_mark *mark) {
    gb_store_marked_fn *marked;
    void *arg;

    pthread_mutex_lock(&m->lock);
    marked = m->marked;
    arg = m->marked_arg;
    pthread_mutex_unlock(&m->lock);
    if (marked)
        marked(arg, mark);
}

static void report(struct gb_committer *m, struct gb_change *c, const struct gb_error *error) {
    if (c->mark && !error)
        tell_mark(m, c->mark);
    if (c->done)
        c->done(c->arg, error);
    gb_change_free(c);
}

/* unknown: why it is not known what became of the group that the change was in; NULL: the group left no trace. */
static void finish_alone(struct gb_committer *m, struct gb_change *c, const struct gb_error *unknown) {
    struct gb_error err = GB_ERROR_INIT;
    const struct gb_error *error;

    if (c->kind == GB_CHANGE_REFUSED)
        gb_error_set(&err, GB_ERR_SATURATED, "the database has %llu changes waiting, the permitted number; try again",
                     (unsigned long long)m->queue_max);
    else if (gb_change_writes(c) && transact(m, c, c->next, true, &err) < 0 && unknown)
        err = *unknown;
    error = err.code == GB_OK ? NULL : &err;
    pthread_mutex_lock(&m->lock);
    count_locked(m, c, error);
    pthread_mutex_unlock(&m->lock);
    report(m, c, error);
}

/* All with the outcome of their one transaction. They leave the queue's count first, so that done can queue others in
 * their place. */
static void finish_all(struct gb_committer *m, struct gb_change *first, const struct gb_error *error) {
    struct gb_change *next;
    struct gb_change *c;

    pthread_mutex_lock(&m->lock);
    for (c = first; c; c = c->next)
        count_locked(m, c, error);
    pthread_mutex_unlock(&m->lock);
    for (c = first; c; c = next) {
        next = c->next;
        if (c->kind == GB_CHANGE_REFUSED)
            finish_alone(m, c, NULL);
        else
            report(m, c, gb_change_writes(c) ? error : NULL);
    }
}

/* How long those that began at that time had waited. */
static void count_waits(struct gb_committer *m, const struct gb_change *first, uint64_t now_ns) {
    const struct gb_change *c;

    pthread_mutex_lock(&m->lock);
    for (c = first; c; c = c->next) {
        if (gb_change_writes(c))
            gb_histogram_add(&m->stat.waited, now_ns > c->queued_ns ? now_ns - c->queued_ns : 0);
    }
    pthread_mutex_unlock(&m->lock);
}

/* While durable changes are refused, none may spoil the commit of others: the reason may be a lock, which would be
 * taken for one of the commit. */
static bool can_share(struct gb_committer *m, const struct gb_change *first) {
    return !any_durable(first, NULL) || gb_fence_health(&m->fence, NULL) == 0;
}

bool gb_committer_run(struct gb_committer *committer, struct gb_change *first, bool patient) {
    struct gb_error err = GB_ERROR_INIT;
    uint64_t began_ns = gb_clock_ns();
    struct gb_change *next;
    struct gb_change *c;
    bool settled = false;

    for (c = first; c && !gb_change_writes(c); c = c->next)
        ;
    if (c && (c->next || !patient) && can_share(committer, c)) {
        settled = transact(committer, c, NULL, patient, &err) == 0;
        if (!settled && !patient)
            return false;
    }
    count_waits(committer, first, began_ns);
    /* While another process keeps the database locked, each change alone would wait as long again. */
    if (settled || locked_by_another(&err)) {
        finish_all(committer, first, settled ? NULL : &err);
        return true;
    }
    for (c = first; c; c = next) {
        next = c->next;
        finish_alone(committer, c, err.code == GB_ERR_STORAGE_FAILED ? &err : NULL);
    }
    return true;
}

/* --- the disk ----------------------------------------------------------------------------------------------------- */

bool gb_committer_quick(const struct gb_committer *committer) {
    return committer->apply.db && !committer->reopen && !committer->sync_full && committer->log_pages > 0 &&
           committer->log_pages < CHECKPOINT_PAGES;
}

bool gb_committer_wants_checkpoint(const struct gb_committer *committer) {
    return committer->log_pages >= CHECKPOINT_PAGES;
}

void gb_committer_checkpoint(struct gb_committer *committer) {
    if (!gb_committer_wants_checkpoint(committer))
        return;
    committer->log_pages = 0;
    look(committer);
    checkpoint(committer);
}

static void note_log(struct gb_committer *m, int result, const struct gb_error *err) {
    if (result == 0)
        return;
    note_outcome(m, result < 0 ? err : NULL);
    if (result < 0)
        gb_fence_doubt(&m->fence, err);
}

void gb_committer_write_notices(struct gb_committer *committer, bool all) {
    uint64_t now_ns = gb_clock_ns();
    struct gb_error err = GB_ERROR_INIT;
    int r = 0;

    if (all || gb_feed_log_due_ns(committer->logs.feed) <= now_ns)
        r = gb_feed_log_write(committer->logs.feed, &committer->apply, &err);
    note_log(committer, r, &err);
    if (!all && gb_audit_log_due_ns(committer->logs.audit, false) > now_ns)
        return;
    err = GB_ERROR_INIT;
    r = gb_audit_log_write(committer->logs.audit, &committer->apply, &err);
    note_log(committer, r, &err);
}

/* --- beginning and end -------------------------------------------------------------------------------------------- */

int gb_committer_init(struct gb_committer *m, sqlite3 *db, const struct gb_store_config *config,
                      const struct gb_writer_logs *logs, gb_writer_reopen_fn *reopen, void *reopen_arg,
                      struct gb_error *err) {
    m->logs = *logs;
    m->reopen = reopen;
    m->reopen_arg = reopen_arg;
    m->history = config->history;
    m->queue_max = config->queue_max;
    m->sync_full = config->sync_full;
    gb_mutex_init(&m->lock);
    gb_fence_init(&m->fence);
    if (!db)
        gb_apply_begin(&m->apply, &m->trouble);
    return db ? take_database(m, db, err) : 0;
}

void gb_committer_done(struct gb_committer *m) {
    if (m->apply.db)
        sqlite3_wal_hook(m->apply.db, NULL, NULL);
    gb_apply_done(&m->apply);
    gb_fence_done(&m->fence);
    pthread_mutex_destroy(&m->lock);
}

void gb_committer_stat(struct gb_committer *m, struct gb_store_stat *ret) {
    pthread_mutex_lock(&m->lock);
    *ret = m->stat;
    ret->writable = m->trouble.code == GB_OK && m->displaced.code == GB_OK;
    pthread_mutex_unlock(&m->lock);
}
