/* The queue of changes and who carries them out: the writer's thread, or one that works in turns. Changes go in
 * groups, each in one transaction. */
#include "store/writer.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "store/apply.h"
#include "store/audit.h"
#include "store/db.h"
#include "store/feed.h"

/* Carries out a group of changes in one transaction. Knows whether the database takes changes, and tries again while it
 * does not. It belongs to one thread at a time (writer.h); functions that any thread may call say so. */
struct gb_committer {
    struct gb_apply apply;
    struct gb_fence fence;
    struct gb_writer_logs logs;
    gb_writer_reopen_fn *reopen; /* NULL once there is a database */
    void *reopen_arg;
    sqlite3 *reopened;
    struct gb_history_limits history;
    uint64_t queue_max; /* for the text of a refusal */
    bool sync_full;
    int log_pages;    /* of the write-ahead log, as of the last commit; 0: the next commit begins it again */
    bool logged;      /* the last commit wrote to the log */
    uint64_t took_ns; /* the last transaction; 0 for a durable one, whose wait says nothing about the others */

    pthread_mutex_t lock; /* for all below */
    struct gb_store_stat stat;
    bool begun;                 /* a change was queued: the database is the writer's */
    struct gb_error trouble;    /* why the latest change was refused; OK: it was not */
    uint64_t probe_ns;          /* then: when it is tried again */
    gb_store_marked_fn *marked; /* NULL: none */
    void *marked_arg;
    struct gb_error displaced; /* as of apply, for other threads */
    uint64_t look_ns;          /* when the database's files are checked again */
};

struct gb_writer {
    struct gb_committer committer; /* of the thread that made it busy */
    struct gb_feed_log *feed;
    struct gb_audit_log *audit;
    pthread_t thread;
    bool thread_started;
    pthread_mutex_t lock; /* for all below */
    pthread_cond_t wake;
    pthread_cond_t left; /* the committer is free, and some wait for it in gb_writer_enter */
    struct gb_change *first;
    struct gb_change **last;
    bool has_long;    /* one of them is for the writer's thread alone */
    bool busy;        /* a thread has the committer */
    bool called;      /* the writer's thread was woken and has not checked yet */
    bool waits;       /* the writer's thread waits for the committer */
    uint64_t rest_ns; /* until then the writer's thread alone commits */
    bool stopping;
};

/* --- the committer ------------------------------------------------------------------------------------------------ */

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
    gb_fence_sync_failed(&m->fence, &err);
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

/* [any thread] When a database that refused changes, or one to be safe on the disk, is tried again, or its files are
 * checked; UINT64_MAX: none yet. */
static uint64_t committer_probe_ns(struct gb_committer *m) {
    uint64_t write_ns = write_probe_ns(m);
    uint64_t mend_ns = gb_fence_retry_ns(&m->fence);
    uint64_t next_ns = look_ns(m);

    if (write_ns < next_ns)
        next_ns = write_ns;
    return mend_ns < next_ns ? mend_ns : next_ns;
}

/* The commit after it is the first of a log, until it has reported otherwise. */
static void mend(struct gb_committer *m) {
    m->log_pages = 0;
    gb_fence_mend(&m->fence, &m->apply);
}

static void probe_writes(struct gb_committer *m) {
    struct gb_error err = GB_ERROR_INIT;
    int r = m->reopen ? open_database(m, &err) : write_probe(m, &err);

    pthread_mutex_lock(&m->lock);
    m->probe_ns = gb_clock_ns() + PROBE_NS;
    note_outcome_locked(m, r < 0 ? &err : NULL);
    pthread_mutex_unlock(&m->lock);
}

/* Does what is due of that. */
static void committer_probe(struct gb_committer *m) {
    uint64_t now_ns = gb_clock_ns();

    if (look_ns(m) <= now_ns)
        look(m);
    if (gb_fence_retry_ns(&m->fence) <= now_ns)
        mend(m);
    if (write_probe_ns(m) <= now_ns)
        probe_writes(m);
}

int gb_writer_durable_health(struct gb_writer *writer, struct gb_error *err) {
    struct gb_committer *m = &writer->committer;
    struct gb_error displaced = displaced_of(m);

    if (displaced.code != GB_OK)
        return gb_error_set(err, GB_ERR_STORAGE_UNAVAILABLE, "%s", displaced.detail);
    return gb_fence_health(&m->fence, err);
}

int gb_writer_health(struct gb_writer *writer, struct gb_error *err) {
    struct gb_committer *m = &writer->committer;
    struct gb_error displaced = displaced_of(m);
    struct gb_error trouble;

    if (displaced.code != GB_OK)
        return gb_error_move(err, &displaced);
    pthread_mutex_lock(&m->lock);
    trouble = m->trouble;
    pthread_mutex_unlock(&m->lock);
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

/* [any thread] Counts a change in, or refuses it if as many wait as are permitted. */
static void committer_admit(struct gb_committer *m, struct gb_change *change) {
    bool admitted = true;

    pthread_mutex_lock(&m->lock);
    m->begun = true;
    if (gb_change_writes(change)) {
        admitted = m->stat.queued < m->queue_max;
        m->stat.queued += admitted;
        m->stat.failures += !admitted;
    }
    pthread_mutex_unlock(&m->lock);
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

void gb_writer_marks_watch(struct gb_writer *writer, gb_store_marked_fn *marked, void *arg) {
    struct gb_committer *m = &writer->committer;

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

/* Carries out a list of changes in their order, reports each and frees it. All go into one commit; where that fails,
 * each into its own, so that only the bad ones fail. While durable changes are refused, a list with one goes into a
 * commit for each, too. patient: may wait for another process that has the database locked. Returns false if it was not
 * patient and the one commit failed: nothing has happened then, and the list is still the caller's. */
static bool committer_run(struct gb_committer *m, struct gb_change *first, bool patient) {
    struct gb_error err = GB_ERROR_INIT;
    uint64_t began_ns = gb_clock_ns();
    struct gb_change *next;
    struct gb_change *c;
    bool committed = false;

    for (c = first; c && !gb_change_writes(c); c = c->next)
        ;
    if (c && (c->next || !patient) && can_share(m, c)) {
        committed = transact(m, c, NULL, patient, &err) == 0;
        if (!committed && !patient)
            return false;
    }
    count_waits(m, first, began_ns);
    /* While another process keeps the database locked, each change alone would wait as long again. */
    if (committed || locked_by_another(&err)) {
        finish_all(m, first, committed ? NULL : &err);
        return true;
    }
    for (c = first; c; c = next) {
        next = c->next;
        finish_alone(m, c, err.code == GB_ERR_STORAGE_FAILED ? &err : NULL);
    }
    return true;
}

/* --- the disk ----------------------------------------------------------------------------------------------------- */

/* True if a commit takes little more than a write to the system's cache: nothing waits for the disk. */
static bool committer_quick(const struct gb_committer *m) {
    return m->apply.db && !m->reopen && !m->sync_full && m->log_pages > 0 && m->log_pages < CHECKPOINT_PAGES;
}

static bool committer_wants_checkpoint(const struct gb_committer *m) {
    return m->log_pages >= CHECKPOINT_PAGES;
}

/* Moves the log's pages to the database when there are many. Waits for the disk. */
static void committer_checkpoint(struct gb_committer *m) {
    if (!committer_wants_checkpoint(m))
        return;
    m->log_pages = 0;
    look(m);
    checkpoint(m);
}

static void note_log(struct gb_committer *m, int result, const struct gb_error *err) {
    if (result == 0)
        return;
    note_outcome(m, result < 0 ? err : NULL);
    if (result < 0)
        gb_fence_sync_failed(&m->fence, err);
}

/* Writes the notices and the records of the audit that are due, or all that wait. */
static void committer_write_notices(struct gb_committer *m, bool all) {
    uint64_t now_ns = gb_clock_ns();
    struct gb_error err = GB_ERROR_INIT;
    int r = 0;

    if (all || gb_feed_log_due_ns(m->logs.feed) <= now_ns)
        r = gb_feed_log_write(m->logs.feed, &m->apply, &err);
    note_log(m, r, &err);
    if (!all && gb_audit_log_due_ns(m->logs.audit, false) > now_ns)
        return;
    err = GB_ERROR_INIT;
    r = gb_audit_log_write(m->logs.audit, &m->apply, &err);
    note_log(m, r, &err);
}

/* --- beginning and end -------------------------------------------------------------------------------------------- */

/* db is borrowed. Returns 0 or -1; committer_done follows in either case. */
static int committer_init(struct gb_committer *m, sqlite3 *db, const struct gb_store_config *config,
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

static void committer_done(struct gb_committer *m) {
    if (m->apply.db)
        sqlite3_wal_hook(m->apply.db, NULL, NULL);
    gb_apply_done(&m->apply);
    gb_fence_done(&m->fence);
    pthread_mutex_destroy(&m->lock);
}

void gb_writer_stat(struct gb_writer *writer, struct gb_store_stat *ret) {
    struct gb_committer *m = &writer->committer;

    pthread_mutex_lock(&m->lock);
    *ret = m->stat;
    ret->writable = m->trouble.code == GB_OK && m->displaced.code == GB_OK;
    pthread_mutex_unlock(&m->lock);
}

/* --- the queue and the thread ------------------------------------------------------------------------------------- */

/* Groups that a thread carries out at the end of one turn, before its own work again. */
#define ROUNDS 2

/* Changes that are put off to share a commit, and for how long. A commit costs as much as the rows of five. */
#define SHARE_CHANGES 32
#define SHARE_NS (200 * 1000)

/* After a commit that took longer, the disk is not to be relied on for a time: the writer alone waits for it. */
#define SLOW_NS (20 * GB_NS_PER_MS)
#define REST_NS GB_NS_PER_S

/* The turn of this thread. of: the writer whose changes it carries out at the end; NULL: it is in no turn. */
static _Thread_local struct {
    struct gb_writer *of;
    unsigned changes;
    uint64_t since_ns; /* the first of them */
} turn;

/* --- the queue ---------------------------------------------------------------------------------------------------- */

static struct gb_change *take_all_locked(struct gb_writer *w) {
    struct gb_change *list = w->first;

    w->first = NULL;
    w->last = &w->first;
    w->has_long = false;
    return list;
}

static void put_back_locked(struct gb_writer *w, struct gb_change *list) {
    struct gb_change **end = &list;

    while (*end)
        end = &(*end)->next;
    *end = w->first;
    if (!w->first)
        w->last = end;
    w->first = list;
}

/* Whether the writer's thread is to be woken. One that was called already finds what is queued. */
static bool call_locked(struct gb_writer *w) {
    bool wake = !w->called;

    w->called = true;
    return wake;
}

static void enqueue(struct gb_writer *w, struct gb_change *c) {
    bool wake = false;

    c->next = NULL;
    pthread_mutex_lock(&w->lock);
    *w->last = c;
    w->last = &c->next;
    w->has_long = w->has_long || gb_change_is_long(c);
    if (turn.of != w)
        wake = call_locked(w);
    else if (turn.changes++ == 0)
        turn.since_ns = c->queued_ns;
    pthread_mutex_unlock(&w->lock);
    /* Without the lock: the writer would wake only to wait for it. */
    if (wake)
        pthread_cond_signal(&w->wake);
}

void gb_writer_lacks_memory(gb_store_done_fn *done, void *arg) {
    struct gb_error err = GB_ERROR_INIT;

    gb_error_set(&err, GB_ERR_SATURATED, "there is no memory to queue the change; try again");
    if (done)
        done(arg, &err);
}

void gb_writer_submit(struct gb_writer *w, enum gb_change_kind kind, const void *record, size_t bytes,
                      const struct gb_store_mark *mark, gb_store_done_fn *done, void *arg) {
    struct gb_change *c = gb_change_new(kind, record, bytes, mark, done, arg);

    if (!c) {
        gb_writer_lacks_memory(done, arg);
        return;
    }
    committer_admit(&w->committer, c);
    /* A refusal without a callback has no receiver: it is dropped. */
    if (c->kind == GB_CHANGE_REFUSED && !done)
        gb_change_free(c);
    else
        enqueue(w, c);
}

void gb_writer_tell(struct gb_writer *w) {
    bool wake;

    pthread_mutex_lock(&w->lock);
    wake = call_locked(w);
    pthread_mutex_unlock(&w->lock);
    if (wake)
        pthread_cond_signal(&w->wake);
}

/* --- who carries out the queue ------------------------------------------------------------------------------------ */

static void leave_locked(struct gb_writer *w) {
    w->busy = false;
    pthread_cond_broadcast(&w->left);
    if (w->committer.took_ns > SLOW_NS)
        w->rest_ns = gb_clock_ns() + REST_NS;
    w->committer.took_ns = 0;
}

/* A thread that is at the end of its turn may carry out what is queued, and the writer's thread need not be woken. */
static bool may_commit_locked(const struct gb_writer *w) {
    return w->first && !w->has_long && !w->busy && !w->waits && committer_quick(&w->committer) &&
           w->rest_ns <= gb_clock_ns();
}

/* Returns false if the group is left to the writer's thread. */
static bool commit_locked(struct gb_writer *w) {
    struct gb_change *group = take_all_locked(w);
    bool done;

    w->busy = true;
    pthread_mutex_unlock(&w->lock);
    done = committer_run(&w->committer, group, false);
    pthread_mutex_lock(&w->lock);
    leave_locked(w);
    if (!done)
        put_back_locked(w, group);
    return done;
}

void gb_writer_begin_turn(struct gb_writer *writer) {
    turn.of = writer;
}

/* Whether the changes of this turn may wait for others to share their commit. */
static bool may_put_off(void) {
    return turn.changes < SHARE_CHANGES && gb_clock_ns() - turn.since_ns < SHARE_NS;
}

/* A thread that took over the committer checks the queue before it releases it. */
bool gb_writer_end_turn(struct gb_writer *w, bool idle) {
    bool wake = false;
    bool going = true;
    int i;

    if (turn.changes == 0) {
        turn.of = NULL;
        return false;
    }
    if (!idle && may_put_off())
        return true;
    pthread_mutex_lock(&w->lock);
    for (i = 0; i < ROUNDS && going && may_commit_locked(w); i++)
        going = commit_locked(w);
    if (!w->busy && (w->first || w->waits || committer_wants_checkpoint(&w->committer)))
        wake = call_locked(w) || w->waits;
    pthread_mutex_unlock(&w->lock);
    if (wake)
        pthread_cond_signal(&w->wake);
    turn.of = NULL;
    turn.changes = 0;
    return false;
}

void gb_writer_enter(struct gb_writer *w) {
    pthread_mutex_lock(&w->lock);
    while (w->busy)
        pthread_cond_wait(&w->left, &w->lock);
    w->busy = true;
    pthread_mutex_unlock(&w->lock);
}

void gb_writer_leave(struct gb_writer *w) {
    bool wake;

    pthread_mutex_lock(&w->lock);
    leave_locked(w);
    wake = w->waits || (w->first && call_locked(w));
    pthread_mutex_unlock(&w->lock);
    if (wake)
        pthread_cond_signal(&w->wake);
}

/* --- the thread --------------------------------------------------------------------------------------------------- */

/* When notices or records of the audit are to be written. ending: what can stay in the database does not count. */
static uint64_t due_of(struct gb_writer *w, bool ending) {
    uint64_t feed_ns = gb_feed_log_due_ns(w->feed);
    uint64_t audit_ns = gb_audit_log_due_ns(w->audit, ending);

    return feed_ns < audit_ns ? feed_ns : audit_ns;
}

/* Waits until there is a change, a checkpoint or a probe is due, or notices are, whose time is returned. Takes the
 * committer. */
static uint64_t wait_locked(struct gb_writer *w) {
    for (;;) {
        uint64_t due_ns = due_of(w, w->stopping);
        uint64_t probe_ns = committer_probe_ns(&w->committer);
        uint64_t wake_ns = probe_ns < due_ns ? probe_ns : due_ns;
        bool due = w->first || w->stopping || wake_ns <= gb_clock_ns();

        w->called = false;
        if (!w->busy && (due || committer_wants_checkpoint(&w->committer))) {
            w->busy = true;
            return due_ns;
        }
        w->waits = due;
        if (due || wake_ns == UINT64_MAX) {
            pthread_cond_wait(&w->wake, &w->lock);
        } else {
            struct timespec until = {.tv_sec = (time_t)(wake_ns / GB_NS_PER_S),
                                     .tv_nsec = (long)(wake_ns % GB_NS_PER_S)};

            pthread_cond_timedwait(&w->wake, &w->lock, &until);
        }
        w->waits = false;
    }
}

static void work(struct gb_writer *w, struct gb_change *group, bool notices, bool ending) {
    if (group)
        (void)committer_run(&w->committer, group, true);
    if (notices)
        committer_write_notices(&w->committer, ending);
    committer_checkpoint(&w->committer);
    if (!ending && committer_probe_ns(&w->committer) <= gb_clock_ns())
        committer_probe(&w->committer);
}

static void *writer_main(void *arg) {
    struct gb_writer *w = arg;
    uint64_t due_ns = 0;
    struct gb_change *group;
    bool notices;
    bool ending;

    pthread_mutex_lock(&w->lock);
    /* Notices last: those of the last changes too are to be written. */
    while (!w->stopping || w->first || due_ns != UINT64_MAX) {
        due_ns = wait_locked(w);
        group = take_all_locked(w);
        ending = w->stopping;
        notices = due_ns <= gb_clock_ns() || (ending && due_ns != UINT64_MAX);
        pthread_mutex_unlock(&w->lock);
        work(w, group, notices, ending);
        due_ns = due_of(w, ending);
        pthread_mutex_lock(&w->lock);
        leave_locked(w);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

int gb_writer_new(sqlite3 *db, const struct gb_store_config *config, const struct gb_writer_logs *logs,
                  gb_writer_reopen_fn *reopen, void *reopen_arg, struct gb_writer **ret, struct gb_error *err) {
    struct gb_writer *w = calloc(1, sizeof(*w));

    if (!w)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    w->feed = logs->feed;
    w->audit = logs->audit;
    w->last = &w->first;
    gb_mutex_init(&w->lock);
    gb_cond_init(&w->wake);
    gb_cond_init(&w->left);
    if (committer_init(&w->committer, db, config, logs, reopen, reopen_arg, err) < 0 ||
        gb_thread_start(&w->thread, "gb-store", writer_main, w, err) < 0) {
        gb_writer_free(w);
        return -1;
    }
    w->thread_started = true;
    *ret = w;
    return 0;
}

void gb_writer_free(struct gb_writer *w) {
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->stopping = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    if (w->thread_started)
        pthread_join(w->thread, NULL);
    committer_done(&w->committer);
    pthread_cond_destroy(&w->wake);
    pthread_cond_destroy(&w->left);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
