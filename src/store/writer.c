#include "store/writer.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/thread.h"
#include "store/audit.h"
#include "store/committer.h"
#include "store/feed.h"

/* Groups that a thread carries out at the end of one turn, before its own work again. */
#define ROUNDS 2

/* Changes that are put off to share a commit, and for how long. A commit costs as much as the rows of five. */
#define SHARE_CHANGES 32
#define SHARE_NS (200 * 1000)

/* After a commit that took longer, the disk is not to be relied on for a time: the writer alone waits for it. */
#define SLOW_NS (20 * GB_NS_PER_MS)
#define REST_NS GB_NS_PER_S

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

/* The turn of this thread. of: the writer whose changes it carries out at the end; NULL: it is in no turn. */
static _Thread_local struct {
    struct gb_writer *of;
    unsigned changes;
    uint64_t since_ns; /* the first of them */
} turn;

int gb_writer_health(struct gb_writer *writer, struct gb_error *err) {
    return gb_committer_health(&writer->committer, err);
}

int gb_writer_durable_health(struct gb_writer *writer, struct gb_error *err) {
    return gb_committer_durable_health(&writer->committer, err);
}

void gb_writer_stat(struct gb_writer *writer, struct gb_store_stat *ret) {
    gb_committer_stat(&writer->committer, ret);
}

void gb_writer_marks_watch(struct gb_writer *writer, gb_store_marked_fn *marked, void *arg) {
    gb_committer_marks_watch(&writer->committer, marked, arg);
}

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

void gb_writer_submit(struct gb_writer *w, enum gb_change_kind kind, const void *record, size_t bytes,
                      const struct gb_store_mark *mark, gb_store_done_fn *done, void *arg) {
    struct gb_change *c = gb_change_new(kind, record, bytes, mark, done, arg);
    struct gb_error err = GB_ERROR_INIT;

    if (!c) {
        gb_error_set(&err, GB_ERR_SATURATED, "there is no memory to queue the change; try again");
        if (done)
            done(arg, &err);
        return;
    }
    gb_committer_admit(&w->committer, c);
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

/* --- the committer ------------------------------------------------------------------------------------------------ */

static void leave_locked(struct gb_writer *w) {
    w->busy = false;
    pthread_cond_broadcast(&w->left);
    if (w->committer.took_ns > SLOW_NS)
        w->rest_ns = gb_clock_ns() + REST_NS;
    w->committer.took_ns = 0;
}

/* A thread that is at the end of its turn may carry out what is queued, and the writer's thread need not be woken. */
static bool may_commit_locked(const struct gb_writer *w) {
    return w->first && !w->has_long && !w->busy && !w->waits && gb_committer_quick(&w->committer) &&
           w->rest_ns <= gb_clock_ns();
}

/* Returns false if the group is left to the writer's thread. */
static bool commit_locked(struct gb_writer *w) {
    struct gb_change *group = take_all_locked(w);
    bool done;

    w->busy = true;
    pthread_mutex_unlock(&w->lock);
    done = gb_committer_run(&w->committer, group, false);
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
    if (!w->busy && (w->first || w->waits || gb_committer_wants_checkpoint(&w->committer)))
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
        uint64_t probe_ns = gb_committer_probe_ns(&w->committer);
        uint64_t wake_ns = probe_ns < due_ns ? probe_ns : due_ns;
        bool due = w->first || w->stopping || wake_ns <= gb_clock_ns();

        w->called = false;
        if (!w->busy && (due || gb_committer_wants_checkpoint(&w->committer))) {
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
        (void)gb_committer_run(&w->committer, group, true);
    if (notices)
        gb_committer_write_notices(&w->committer, ending);
    gb_committer_checkpoint(&w->committer);
    if (!ending && gb_committer_probe_ns(&w->committer) <= gb_clock_ns())
        gb_committer_probe(&w->committer);
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
    if (gb_committer_init(&w->committer, db, config, logs, reopen, reopen_arg, err) < 0 ||
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
    gb_committer_done(&w->committer);
    pthread_cond_destroy(&w->wake);
    pthread_cond_destroy(&w->left);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
