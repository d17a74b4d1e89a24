/* Carries changes out: a group of them in one transaction. Knows whether the database takes changes, and tries again
 * while it does not. Internal to the store.
 *
 * It belongs to one thread at a time (writer.h); the functions that any thread may call say so. */
#ifndef GB_STORE_COMMITTER_H
#define GB_STORE_COMMITTER_H

#include <pthread.h>

#include "store/apply.h"
#include "store/change.h"
#include "store/fence.h"

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

/* db is borrowed. Returns 0 or -1; gb_committer_done follows in either case. */
int gb_committer_init(struct gb_committer *committer, sqlite3 *db, const struct gb_store_config *config,
                      const struct gb_writer_logs *logs, gb_writer_reopen_fn *reopen, void *reopen_arg,
                      struct gb_error *err);
void gb_committer_done(struct gb_committer *committer);

/* [any thread] As gb_store_marks_watch. */
void gb_committer_marks_watch(struct gb_committer *committer, gb_store_marked_fn *marked, void *arg);

/* [any thread] Counts a change in, or refuses it if as many wait as are permitted. */
void gb_committer_admit(struct gb_committer *committer, struct gb_change *change);

/* Carries out a list of changes in their order, reports each and frees it. All go into one commit; where that fails,
 * each into its own, so that only the bad ones fail. While durable changes are refused, a list with one goes into a
 * commit for each, too. patient: may wait for another process that has the database locked. Returns false if it was not
 * patient and the one commit failed: nothing has happened then, and the list is still the caller's. */
bool gb_committer_run(struct gb_committer *committer, struct gb_change *first, bool patient);

/* True if a commit takes little more than a write to the system's cache: nothing waits for the disk. */
bool gb_committer_quick(const struct gb_committer *committer);

/* Moves the log's pages to the database when there are many. Waits for the disk. */
void gb_committer_checkpoint(struct gb_committer *committer);
bool gb_committer_wants_checkpoint(const struct gb_committer *committer);

/* Writes the notices and the records of the audit that are due, or all that wait. */
void gb_committer_write_notices(struct gb_committer *committer, bool all);

/* [any thread] When a database that refused changes, or one to be safe on the disk, is tried again, or its files are
 * checked; UINT64_MAX: none yet. */
uint64_t gb_committer_probe_ns(struct gb_committer *committer);
/* Does what is due of that. */
void gb_committer_probe(struct gb_committer *committer);

/* [any thread, never blocks] As gb_store_health, gb_store_durable_health and gb_store_stat. */
int gb_committer_health(struct gb_committer *committer, struct gb_error *err);
int gb_committer_durable_health(struct gb_committer *committer, struct gb_error *err);
void gb_committer_stat(struct gb_committer *committer, struct gb_store_stat *ret);

#endif
