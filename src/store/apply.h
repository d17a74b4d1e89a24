/* One change to the tables, with statements that are prepared once. Internal to the store. */
#ifndef GB_STORE_APPLY_H
#define GB_STORE_APPLY_H

#include <pthread.h>
#include <sqlite3.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "store/history.h"
#include "store/records.h"
#include "store/store.h"

/* A change on its way to the database. Internal to the store. */

enum gb_change_kind {
    GB_CHANGE_PUT_SESSION,
    GB_CHANGE_PUT_BUFFER,
    GB_CHANGE_PUT_POOL,
    GB_CHANGE_DEL_SESSION,
    GB_CHANGE_DEL_BUFFER,
    GB_CHANGE_DEL_POOL,
    GB_CHANGE_EDIT_BUFFERS,
    GB_CHANGE_PUT_ANSWER,
    GB_CHANGE_PUT_HISTORY,
    GB_CHANGE_ROLL,
    GB_CHANGE_PUT_COUNTERS,
    GB_CHANGE_PUT_TOKEN_USE,
    GB_CHANGE_FLUSH,   /* writes nothing */
    GB_CHANGE_REFUSED, /* found the queue full: writes nothing, waits for its turn to say so */
};

/* The record of GB_CHANGE_DEL_SESSION. */
struct gb_session_deletion {
    int64_t id;
    bool durable;
};

/* The record of GB_CHANGE_EDIT_BUFFERS. */
struct gb_store_edits {
    const struct gb_store_edit *edits;
    size_t count;
};

/* The record of GB_CHANGE_PUT_ANSWER. */
struct gb_idempotency_reply_record {
    struct gb_store_mark mark;
    bool durable;
    int status;
    int64_t now_us;
    int64_t keep;
    size_t headers_len;
    size_t body_len;
    char text[]; /* headers, body */
};

/* Of GB_CHANGE_PUT_HISTORY. */
struct gb_history_record {
    bool counted;
    struct gb_counters counters;
    size_t count;
    struct gb_history_sample samples[];
};

/* Of GB_CHANGE_ROLL. */
struct gb_roll_record {
    int64_t now_us;
    bool *ret_more;
};

struct gb_change {
    struct gb_change *next;
    enum gb_change_kind kind;
    gb_store_done_fn *done;
    void *arg;
    uint64_t queued_ns;
    struct gb_store_mark *mark; /* behind the record; NULL: none */
    bool durable;               /* is to survive a loss of power */
    alignas(max_align_t) unsigned char record[];
};

/* Copies record[0..bytes), with a reference to its labels, and the mark. NULL when memory is exhausted. */
struct gb_change *gb_change_new(enum gb_change_kind kind, const void *record, size_t bytes,
                                const struct gb_store_mark *mark, gb_store_done_fn *done, void *arg);

/* NULL is accepted. */
void gb_change_free(struct gb_change *change);

/* From now on it writes nothing and is refused at its turn. */
void gb_change_refuse(struct gb_change *change);

/* Whether it writes to the database. */
bool gb_change_writes(const struct gb_change *change);
/* Whether no HTTP loop should carry it out: it may write many rows, or wait for the disk. Every change that can be
 * durable is long. */
bool gb_change_is_long(const struct gb_change *change);

struct gb_apply {
    sqlite3 *db; /* borrowed; NULL: none yet */
    struct gb_history history;
    sqlite3_stmt *stmts[GB_ROW_STMT_COUNT];
    sqlite3_stmt *begin;
    sqlite3_stmt *commit;
    bool sync_full;                      /* every commit waits for the disk */
    struct gb_error displaced;           /* why nothing may be written; OK: it may */
    const struct gb_buffer_rec *updated; /* by the last update of the transaction; NULL: none. Borrowed */
};

/* Returns 0, or -1 with INTERNAL. */
int gb_apply_init(struct gb_apply *apply, sqlite3 *db, const struct gb_history_limits *limits, bool sync_full,
                  struct gb_error *err);

/* Accepts a zeroed or half-built value. */
void gb_apply_done(struct gb_apply *apply);

/* What the commits to come wait for; not inside a transaction. full: the sync of the whole log, so that the commit
 * survives a loss of power with all commits before it. Else nothing: it survives the process, though the first commit
 * after a checkpoint syncs the log's head. Changes nothing with sync_full. Returns 0, or -1 with STORE_FAILED. */
int gb_apply_sync(struct gb_apply *apply, bool full, struct gb_error *err);

/* Failures of the five are STORE_FAILED, or STORAGE_FULL where the disk has no room, also for a database at all; of the
 * first also what `displaced` says. After one, gb_apply_rollback leaves no transaction open. */
int gb_apply_begin(struct gb_apply *apply, struct gb_error *err);
int gb_apply_change(struct gb_apply *apply, enum gb_change_kind kind, const void *record, struct gb_error *err);
int gb_apply_mark(struct gb_apply *apply, const struct gb_store_mark *mark, struct gb_error *err);
/* Writes without changing anything. */
int gb_apply_probe(struct gb_apply *apply, struct gb_error *err);
int gb_apply_commit(struct gb_apply *apply, struct gb_error *err);
void gb_apply_rollback(struct gb_apply *apply);

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
void gb_fence_sync_failed(struct gb_fence *fence, const struct gb_error *failure);

/* Begins the log again. Waits for the disk, but for no other process. */
void gb_fence_mend(struct gb_fence *fence, struct gb_apply *apply);

#endif
