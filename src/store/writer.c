#include "store/writer.h"

#include <pthread.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "store/apply.h"
#include "store/feed.h"

/* Between two attempts to write to a database that refused. */
#define PROBE_NS GB_NS_PER_S

struct change {
    struct change *next;
    enum gb_change_kind kind;
    gb_store_done_fn *done;
    void *arg;
    uint64_t queued_ns;
    bool marked;
    struct gb_store_mark mark;
    alignas(max_align_t) unsigned char record[];
};

struct gb_writer {
    struct gb_apply apply; /* the thread's alone */
    struct gb_feed_log *feed;
    gb_writer_reopen_fn *reopen; /* the thread's alone, as the next two: NULL once there is a database */
    void *reopen_arg;
    sqlite3 *reopened;
    struct gb_history_limits history;
    uint64_t queue_max;
    pthread_t thread;
    bool thread_started;
    pthread_mutex_t lock; /* for all below */
    pthread_cond_t wake;
    struct change *first;
    struct change **last;
    struct gb_store_stat stat;
    bool stopping;
    bool begun;              /* a change was queued: the database is the thread's */
    struct gb_error trouble; /* why the latest change was refused; OK: it was not */
    uint64_t probe_ns;       /* then: when it is tried again */
};

/* --- whether the database takes changes --------------------------------------------------------------------------- */

/* A refusal that is the change's own says nothing about the next one. */
static bool about_database(const struct gb_error *err) {
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
static void note_outcome(struct gb_writer *w, const struct gb_error *err) {
    pthread_mutex_lock(&w->lock);
    if (!err) {
        w->trouble = GB_ERROR_INIT;
    } else if (about_database(err)) {
        if (w->trouble.code == GB_OK)
            w->probe_ns = gb_clock_ns() + PROBE_NS;
        w->trouble = *err;
    }
    pthread_mutex_unlock(&w->lock);
}

static int open_database(struct gb_writer *w, struct gb_error *err) {
    if (!w->reopened && w->reopen(w->reopen_arg, &w->reopened, err) < 0)
        return -1;
    if (gb_apply_init(&w->apply, w->reopened, &w->history, err) < 0) {
        gb_apply_done(&w->apply);
        return -1;
    }
    w->reopen = NULL;
    return 0;
}

/* Pages that go from the log to the database first make room in the log. */
static int write_probe(struct gb_writer *w, struct gb_error *err) {
    sqlite3_wal_checkpoint_v2(w->apply.db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    if (gb_apply_begin(&w->apply, err) == 0 && gb_apply_probe(&w->apply, err) == 0 &&
        gb_apply_commit(&w->apply, err) == 0)
        return 0;
    gb_apply_rollback(&w->apply);
    return -1;
}

static bool probe_due(struct gb_writer *w) {
    bool due;

    pthread_mutex_lock(&w->lock);
    due = w->trouble.code != GB_OK && w->begun && !w->stopping && w->probe_ns <= gb_clock_ns();
    pthread_mutex_unlock(&w->lock);
    return due;
}

static void probe(struct gb_writer *w) {
    struct gb_error err = GB_ERROR_INIT;
    int r = w->reopen ? open_database(w, &err) : write_probe(w, &err);

    pthread_mutex_lock(&w->lock);
    w->probe_ns = gb_clock_ns() + PROBE_NS;
    pthread_mutex_unlock(&w->lock);
    note_outcome(w, r < 0 ? &err : NULL);
}

int gb_writer_health(struct gb_writer *w, struct gb_error *err) {
    struct gb_error trouble;

    pthread_mutex_lock(&w->lock);
    trouble = w->trouble;
    pthread_mutex_unlock(&w->lock);
    if (trouble.code == GB_OK)
        return 0;
    gb_error_native(err, trouble.native_domain, trouble.native_code, trouble.native_name, trouble.call);
    return gb_error_set(err, GB_ERR_STORE_UNAVAILABLE, "%s; it is tried again once a second", trouble.detail);
}

/* --- changes ------------------------------------------------------------------------------------------------------ */

static bool writes(const struct change *c) {
    return c->kind != GB_CHANGE_FLUSH && c->kind != GB_CHANGE_REFUSED;
}

/* Carries out first..end (end not included) in one transaction. Returns 0, or -1 with the database as before. */
static int transact(struct gb_writer *w, struct change *first, struct change *end, struct gb_error *err) {
    uint64_t began_ns = gb_clock_ns();
    uint64_t took_ns;
    struct change *c;
    int r = gb_apply_begin(&w->apply, err);

    for (c = first; c != end && r == 0; c = c->next) {
        r = gb_apply_change(&w->apply, c->kind, c->record, err);
        if (r == 0 && c->marked)
            r = gb_apply_mark(&w->apply, &c->mark, err);
    }
    if (r == 0)
        r = gb_apply_commit(&w->apply, err);
    if (r < 0)
        gb_apply_rollback(&w->apply);
    took_ns = gb_clock_ns() - began_ns;
    pthread_mutex_lock(&w->lock);
    gb_histogram_add(&w->stat.took, took_ns);
    w->stat.commits += r == 0;
    pthread_mutex_unlock(&w->lock);
    note_outcome(w, r < 0 ? err : NULL);
    return r;
}

/* The labels that the queue's copy of a record has a reference to. */
static struct gb_text *labels_of(const struct change *c) {
    switch (c->kind) {
    case GB_CHANGE_PUT_SESSION:
        return ((const struct gb_session_rec *)c->record)->labels;
    case GB_CHANGE_PUT_BUFFER:
        return ((const struct gb_buffer_rec *)c->record)->labels;
    default:
        return NULL;
    }
}

static void change_free(struct change *c) {
    if (c)
        gb_text_unref(labels_of(c));
    free(c);
}

/* Reports one change and frees it. It leaves the queue's count first, so that done can queue another in its place. */
static void finish(struct gb_writer *w, struct change *c, const struct gb_error *error) {
    pthread_mutex_lock(&w->lock);
    if (writes(c)) {
        w->stat.queued--;
        w->stat.changes += error == NULL;
        w->stat.failures += error != NULL;
        w->stat.orphans += error != NULL && error->native_code == SQLITE_CONSTRAINT_FOREIGNKEY;
    }
    pthread_mutex_unlock(&w->lock);
    if (c->done)
        c->done(c->arg, error);
    change_free(c);
}

static void finish_alone(struct gb_writer *w, struct change *c) {
    struct gb_error err = GB_ERROR_INIT;

    if (c->kind == GB_CHANGE_REFUSED)
        gb_error_set(&err, GB_ERR_SATURATED, "the database has %llu changes waiting, the permitted number; try again",
                     (unsigned long long)w->queue_max);
    else if (writes(c))
        transact(w, c, c->next, &err);
    finish(w, c, err.code == GB_OK ? NULL : &err);
}

/* How long those that are about to begin have waited. */
static void count_waits(struct gb_writer *w, const struct change *first) {
    uint64_t now_ns = gb_clock_ns();
    const struct change *c;

    pthread_mutex_lock(&w->lock);
    for (c = first; c; c = c->next) {
        if (writes(c))
            gb_histogram_add(&w->stat.waited, now_ns > c->queued_ns ? now_ns - c->queued_ns : 0);
    }
    pthread_mutex_unlock(&w->lock);
}

/* All in one commit; where that fails, each in its own, so that only the bad ones fail. Not so when another process
 * kept the database locked for the whole of the permitted wait: each change would wait as long again. */
static void run_group(struct gb_writer *w, struct change *first) {
    struct gb_error err = GB_ERROR_INIT;
    bool settled = false;
    struct change *next;
    struct change *c;

    count_waits(w, first);
    for (c = first; c && !writes(c); c = c->next)
        ;
    if (c && c->next)
        settled = transact(w, c, NULL, &err) == 0 || (err.native_code & 0xff) == SQLITE_BUSY;
    for (c = first; c; c = next) {
        next = c->next;
        if (settled && c->kind != GB_CHANGE_REFUSED)
            finish(w, c, writes(c) && err.code != GB_OK ? &err : NULL);
        else
            finish_alone(w, c);
    }
}

/* Until there is a change, a probe is due, or notices are, whose time is returned. */
static uint64_t wait_locked(struct gb_writer *w) {
    for (;;) {
        uint64_t due_ns = gb_feed_log_due_ns(w->feed);
        bool probes = w->trouble.code != GB_OK && w->begun;
        uint64_t wake_ns = probes && w->probe_ns < due_ns ? w->probe_ns : due_ns;

        if (w->first || w->stopping || wake_ns <= gb_clock_ns())
            return due_ns;
        if (wake_ns == UINT64_MAX) {
            pthread_cond_wait(&w->wake, &w->lock);
        } else {
            struct timespec until = {.tv_sec = (time_t)(wake_ns / GB_NS_PER_S),
                                     .tv_nsec = (long)(wake_ns % GB_NS_PER_S)};

            pthread_cond_timedwait(&w->wake, &w->lock, &until);
        }
    }
}

static void write_notices(struct gb_writer *w) {
    struct gb_error err = GB_ERROR_INIT;
    int r = gb_feed_log_write(w->feed, &w->apply, &err);

    if (r != 0)
        note_outcome(w, r < 0 ? &err : NULL);
}

static void *writer_main(void *arg) {
    struct gb_writer *w = arg;
    uint64_t due_ns = 0;
    struct change *group;

    pthread_mutex_lock(&w->lock);
    /* Notices last: those of the last changes too are to be written. */
    while (!w->stopping || w->first || due_ns != UINT64_MAX) {
        due_ns = wait_locked(w);
        group = w->first;
        w->first = NULL;
        w->last = &w->first;
        due_ns = w->stopping && due_ns != UINT64_MAX ? 0 : due_ns;
        pthread_mutex_unlock(&w->lock);
        if (group)
            run_group(w, group);
        if (due_ns <= gb_clock_ns())
            write_notices(w);
        if (probe_due(w))
            probe(w);
        due_ns = gb_feed_log_due_ns(w->feed);
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

int gb_writer_new(sqlite3 *db, const struct gb_store_config *config, struct gb_feed_log *feed,
                  gb_writer_reopen_fn *reopen, void *reopen_arg, struct gb_writer **ret, struct gb_error *err) {
    struct gb_writer *w = calloc(1, sizeof(*w));

    if (!w)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    w->feed = feed;
    w->reopen = reopen;
    w->reopen_arg = reopen_arg;
    w->history = config->history;
    w->queue_max = config->queue_max;
    w->last = &w->first;
    pthread_mutex_init(&w->lock, NULL);
    gb_cond_init(&w->wake);
    if (!db)
        gb_apply_begin(&w->apply, &w->trouble);
    if ((db && gb_apply_init(&w->apply, db, &config->history, err) < 0) ||
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
    gb_apply_done(&w->apply);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

/* Counts a change in, or turns it into a refusal. */
static void admit_locked(struct gb_writer *w, struct change *c) {
    if (!writes(c))
        return;
    if (w->stat.queued < w->queue_max) {
        w->stat.queued++;
    } else {
        w->stat.failures++;
        gb_text_unref(labels_of(c));
        c->kind = GB_CHANGE_REFUSED;
    }
}

void gb_writer_submit(struct gb_writer *w, enum gb_change_kind kind, const void *record, size_t bytes,
                      const struct gb_store_mark *mark, gb_store_done_fn *done, void *arg) {
    struct gb_error err = GB_ERROR_INIT;
    struct change *c = malloc(sizeof(*c) + bytes);
    bool was_empty;

    if (!c) {
        gb_error_set(&err, GB_ERR_SATURATED, "there is no memory to queue the change; try again");
        if (done)
            done(arg, &err);
        return;
    }
    *c = (struct change){.kind = kind, .done = done, .arg = arg, .queued_ns = gb_clock_ns(), .marked = mark != NULL};
    if (mark)
        c->mark = *mark;
    if (bytes > 0)
        memcpy(c->record, record, bytes);
    gb_text_ref(labels_of(c));
    pthread_mutex_lock(&w->lock);
    was_empty = w->first == NULL;
    w->begun = true;
    admit_locked(w, c);
    /* A refusal without a callback has no receiver: it is dropped. */
    if (c->kind != GB_CHANGE_REFUSED || done) {
        *w->last = c;
        w->last = &c->next;
        c = NULL;
    }
    pthread_mutex_unlock(&w->lock);
    /* Without the lock: the writer would wake only to wait for it. */
    if (was_empty)
        pthread_cond_signal(&w->wake);
    change_free(c);
}

void gb_writer_tell(struct gb_writer *w) {
    pthread_mutex_lock(&w->lock);
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

void gb_writer_stat(struct gb_writer *w, struct gb_store_stat *ret) {
    pthread_mutex_lock(&w->lock);
    *ret = w->stat;
    ret->writable = w->trouble.code == GB_OK;
    pthread_mutex_unlock(&w->lock);
}
