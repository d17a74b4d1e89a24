/* What is persisted, in model records. SQLite in WAL mode with strict tables and numbered migrations; changes are
 * grouped into commits by one thread at a time: the writer's, or one that works in turns (gb_store_begin_turn).
 *
 * Changes are asynchronous: a call copies the record, queues the change and returns at once [any thread, never
 * blocks]. done(arg, error) runs on the thread that commits, in the order of the calls, after the commit that holds
 * the change is durable (error NULL) or has failed (error set; the change is not in the database). done must not block
 * and may call the asynchronous functions. done may be NULL. A group commits as a whole or is retried change by
 * change, so that one bad change fails alone. Only where the copy of a record finds no memory does done run on the
 * caller's thread, inside the call. What SQLite refuses is STORE_FAILED with its name: {"sqlite", 5, "SQLITE_BUSY",
 * "sqlite3_step"}; STORAGE_FULL where the disk has no room.
 *
 * Counts beyond INT64_MAX are stored as NULL and read back as GB_UNLIMITED. */
#ifndef GB_STORE_STORE_H
#define GB_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/histogram.h"
#include "model/audit.h"
#include "model/history.h"
#include "model/model.h"

struct gb_store;

/* error NULL: the change is in the database. */
typedef void gb_store_done_fn(void *arg, const struct gb_error *error);

/* --- opening ------------------------------------------------------------------------------------------------------ */

struct gb_store_config {
    const char *path; /* of the database file; created with mode 0600 */
    bool sync_full;   /* synchronous=FULL: survives power loss; else NORMAL: survives the process */
    struct gb_history_limits history;
    uint64_t feed_max;    /* notices kept in the log, oldest dropped first; 0: 100000 */
    uint64_t audit_max;   /* rows of the audit, oldest dropped first; 0: 1000000 */
    int64_t audit_age_us; /* of its rows; 0: no bound */
    uint64_t queue_max;   /* changes waiting; one more fails at once with SATURATED (through done) */
    bool locked;          /* lock_fd is of gb_store_lock, and the store's from the call on, also one that fails */
    int lock_fd;
};

/* Takes the lock that gb_store_open would take, for a caller that does something in between which only the holder may.
 * close() gives it up. */
int gb_store_lock(const char *path, int *ret_fd, struct gb_error *err);

/* Opens or creates, migrates to the newest schema. A database of a newer schema, a file that is not a database, or one
 * that another daemon holds (an advisory lock beside it) is refused with INTERNAL and a sentence that says so.
 *
 * Where the disk has no room to open it for changes, what it has can be read all the same (from a copy in memory), and
 * every change fails with STORAGE_FULL until there is room, which is checked once a second after the first
 * change. */
int gb_store_open(const struct gb_store_config *config, struct gb_store **ret, struct gb_error *err);

/* The database of a daemon that does not run, as it is: nothing is written, and the caller holds the lock
 * (gb_store_lock). Reads it for damage. Such a store is for gb_store_load, gb_store_uuid, gb_store_read_stored and
 * gb_store_close alone. INTERNAL if the file is no database, is damaged, or has another schema than this program's. */
int gb_store_inspect(const char *path, struct gb_store **ret, struct gb_error *err);

/* No change may be queued from another thread any more; those that done callbacks queue are carried out too. Commits
 * what is queued, ends the writer, checkpoints, closes. NULL is accepted. */
void gb_store_close(struct gb_store *store);

/* --- reading at start --------------------------------------------------------------------------------------------- */

/* Which records, and what a visitor gets. */
enum gb_store_kind {
    GB_STORE_SESSIONS, /* struct gb_session_rec, by id as the next two */
    GB_STORE_POOLS,    /* struct gb_pool_rec */
    GB_STORE_BUFFERS,  /* struct gb_buffer_rec */
    GB_STORE_STORED,   /* struct gb_stored_rec, by the id of the buffer */
    GB_STORE_REPLIES,  /* struct gb_store_idempotency_reply, oldest first */
};

/* rec and all that it points to last until it returns. -1 (err set) ends the walk. */
typedef int gb_store_visit_fn(void *arg, const void *rec, struct gb_error *err);

/* Calls visit for every record of the kind. Changes that are queued meanwhile wait for the end of the walk: a visitor
 * may queue some, and must not read others. Returns 0 or -1. */
int gb_store_load(struct gb_store *store, enum gb_store_kind kind, gb_store_visit_fn *visit, void *arg,
                  struct gb_error *err);
int gb_store_load_counters(struct gb_store *store, struct gb_counters *ret, struct gb_error *err);
/* The counters that the newest sample was made from; *ret stays as it is without one. */
int gb_store_load_counted(struct gb_store *store, struct gb_counters *ret, struct gb_error *err);

/* The highest ids ever committed, deleted ones included: new ids start above. */
struct gb_store_ids {
    int64_t session;
    int64_t buffer;
    int64_t pool;
};
int gb_store_last_ids(struct gb_store *store, struct gb_store_ids *ret, struct gb_error *err);

/* The database's own number, 32 hexadecimal digits, made with it: tells which files of bytes are its. */
#define GB_STORE_UUID_SIZE 33
int gb_store_uuid(struct gb_store *store, char ret[GB_STORE_UUID_SIZE], struct gb_error *err);
/* The uuid of the fleet that the registered sessions are of; "": none is known. Both wait for a commit that is under
 * way. */
#define GB_STORE_FLEET_SIZE 40
int gb_store_fleet(struct gb_store *store, char ret[GB_STORE_FLEET_SIZE], struct gb_error *err);
int gb_store_set_fleet(struct gb_store *store, const char *uuid, struct gb_error *err);

/* --- stored bytes ------------------------------------------------------------------------------------------------- */

/* [blocks; any thread but the writer's] Reads bytes that lie in the database (gb_stored_inline) into out, which has
 * room for rec->bytes. CONTENT_DAMAGED if the database has no such row, or not as many bytes. The caller checks the
 * checksum. */
int gb_store_read_stored(struct gb_store *store, const struct gb_stored_rec *rec, void *out, struct gb_error *err);

/* Whether durable changes are taken: -1 with STORAGE_UNAVAILABLE and the reason if the disk refused to sync the log,
 * of whatever commit or checkpoint, or if the database's files are no longer where they were opened
 * (gb_store_health). A change that was refused with STORAGE_FAILED may be in the database or not; with any other code
 * the database is as before, for certain. While this says -1, every durable change is refused at once with
 * STORAGE_UNAVAILABLE; it is tried again once a second. [any thread, never blocks] */
int gb_store_durable_health(struct gb_store *store, struct gb_error *err);

/* --- answers to requests with a key ------------------------------------------------------------------------------- */

/* A request with an Idempotency-Key was carried out. key and fingerprint are opaque to the store. */
struct gb_store_mark {
    char key[65];
    char fingerprint[65];
    int64_t expires_at_us;
};

/* Called for each mark that is committed, before its change is reported. [the thread of that report; must not block]
 * NULL: nothing. */
typedef void gb_store_marked_fn(void *arg, const struct gb_store_mark *mark);
void gb_store_marks_watch(struct gb_store *store, gb_store_marked_fn *marked, void *arg);

/* The key of a request in a session begins with this and 15 hexadecimal digits, its id: those are deleted with it. */
#define GB_STORE_MARK_SESSION 's'

/* In all of these the record is copied. mark is committed in the same transaction; NULL: none. */

/* Inserts or updates by id. */
void gb_store_put_session(struct gb_store *store, const struct gb_session_rec *rec, const struct gb_store_mark *mark,
                          gb_store_done_fn *done, void *arg);
void gb_store_put_buffer(struct gb_store *store, const struct gb_buffer_rec *rec, const struct gb_store_mark *mark,
                         gb_store_done_fn *done, void *arg);
void gb_store_put_pool(struct gb_store *store, const struct gb_pool_rec *rec, const struct gb_store_mark *mark,
                       gb_store_done_fn *done, void *arg);

/* Deleting what is absent succeeds. A session goes with its buffers, their stored bytes, pools, and the answers to
 * requests in it. durable: as of struct gb_store_edit. */
void gb_store_delete_session(struct gb_store *store, int64_t id, bool durable, const struct gb_store_mark *mark,
                             gb_store_done_fn *done, void *arg);
void gb_store_delete_buffer(struct gb_store *store, int64_t id, const struct gb_store_mark *mark,
                            gb_store_done_fn *done, void *arg);
void gb_store_delete_pool(struct gb_store *store, int64_t id, const struct gb_store_mark *mark, gb_store_done_fn *done,
                          void *arg);

/* Several buffers' records, all of them or none: one change, in one transaction, that is never split. A buffer occurs
 * once at most. edits and the records are borrowed until done, which must be given. Counts as one change. */
struct gb_store_edit {
    const struct gb_buffer_rec *rec;
    bool removes;                       /* deletes the record of that id, else puts it */
    bool durable;                       /* is to survive a loss of power: the commit waits for the disk */
    bool forgets;                       /* deletes what is known of its stored bytes */
    const struct gb_stored_rec *stored; /* replaces what is known of its stored bytes; NULL: that stays */
    bool renumbers;                     /* the stored bytes stay, and become those of stored's generation and run */
    const void *data;                   /* with stored, if gb_stored_inline: the bytes themselves */
};
void gb_store_edit_buffers(struct gb_store *store, const struct gb_store_edit *edits, size_t count,
                           const struct gb_store_mark *mark, gb_store_done_fn *done, void *arg);

/* What it was answered; status 0: not known, and headers may then have a note. Replaces the mark. */
struct gb_store_idempotency_reply {
    struct gb_store_mark mark;
    bool durable; /* to be put: as of struct gb_store_edit */
    int status;
    const char *headers; /* lines */
    const void *body;
    size_t body_len;
};
/* Copies. Drops what expired before now_us, and the oldest beyond keep. */
void gb_store_put_idempotency_reply(struct gb_store *store, const struct gb_store_idempotency_reply *answer,
                                    int64_t now_us, uint64_t keep, gb_store_done_fn *done, void *arg);

/* Replaces the lifetime counters; what they grew by is for the next sample to tell. */
void gb_store_put_counters(struct gb_store *store, const struct gb_counters *counters, gb_store_done_fn *done,
                           void *arg);

/* Replaces what is known of the last use of a token. One that was revoked meanwhile is left out. */
void gb_store_put_token_use(struct gb_store *store, const struct gb_token_use *use, gb_store_done_fn *done, void *arg);

/* Succeeds once everything queued before is durable or has failed. Not held against queue_max. */
void gb_store_flush(struct gb_store *store, gb_store_done_fn *done, void *arg);

/* A thread that works in turns, an event loop, may say so. What it changes in a turn then waits for the end of the
 * turn, where the thread itself carries out all that is queued, and runs done for it, if the database is free and the
 * disk need not be waited for; else the writer does. No thread is woken for such a change. gb_store_end_turn takes as
 * long as two commits at most. Between the two the thread must not wait for a change.
 *
 * idle: the thread has nothing else to do. If it has, a few changes are put off, so that they share their commit with
 * those to come, and true is returned: the thread must not sleep before the end of a turn has returned false. */
void gb_store_begin_turn(struct gb_store *store);
bool gb_store_end_turn(struct gb_store *store, bool idle);

/* --- notices: the log of what happened ---------------------------------------------------------------------------- */

/* Gives it the next id, which is returned, and copies it. [any thread, never blocks, whatever locks are held] It goes
 * into the log, together with others, some 25 ms later, and never into the transaction of a change: it reports what is
 * true already. Where too many wait (16384), one of type feed.gap stands for those that found no room. */
int64_t gb_store_note(struct gb_store *store, const struct gb_notice *notice);

/* Called for each group, in the order of ids, once it is in the log (or the database refused it): on the
 * writer's thread, must not block. Once this has returned, the earlier one is not called any more; NULL: none. */
typedef void gb_store_noted_fn(void *arg, const struct gb_notice *notices, size_t count);
void gb_store_feed_watch(struct gb_store *store, gb_store_noted_fn *noted, void *arg);

/* The moment since which the daemons of this database have run for age_us, as far as the wall clock was not set
 * meanwhile. What was written before it is as old. No clock that jumps makes anything old. [any thread] */
int64_t gb_store_seen_since(struct gb_store *store, int64_t age_us);

/* The wall clock was set to another time, or continues, at this start, before or a week after the last run's end. */
struct gb_store_jump {
    int64_t from_us; /* expected; of a start: the end of the last run */
    int64_t to_us;
    bool running; /* not of a start */
};
/* The caller asks about once a second. True: once for each jump. [any thread] */
bool gb_store_clock(struct gb_store *store, struct gb_store_jump *ret);

/* Ids rise strictly within a process; the first of a process is 2^20 above the last that the log has of earlier ones,
 * so that one that was seen is never given again, though the commit that had it was lost with the power. */
struct gb_store_feed {
    int64_t first_id;        /* that this process gave or will give */
    int64_t last_id;         /* given out */
    int64_t dropped_through; /* up to here the log is not complete; 0: it is */
    bool broke_off;          /* the process before did not end in order: its last ones may be missing */
};
void gb_store_feed_bounds(struct gb_store *store, struct gb_store_feed *ret);

/* [blocks; not on the writer's thread] Those with id > after, at most max, oldest first, until visit says other than
 * 0. */
int gb_store_feed_read(struct gb_store *store, int64_t after, size_t max,
                       int (*visit)(void *, const struct gb_notice *), void *arg, struct gb_error *err);
/* The newest; at start. */
int gb_store_feed_recent(struct gb_store *store, size_t max, int (*visit)(void *, const struct gb_notice *), void *arg,
                         struct gb_error *err);

/* --- the history -------------------------------------------------------------------------------------------------- */

/* The history in the database: samples of the daemon, devices, pools and sessions, rolled up to minutes and hours, and
 * queries of them.
 *
 * A sample is a row of history_samples. A minute that has ended becomes a row of history_minutes, an hour one of
 * history_hours; the present ones are computed from the finer rows at each query, so that a reply is never behind. What
 * is too old goes, a little at a time. Each of sessions and pools may have limits.rows[level] / (how many there are)
 * rows, the daemon and each device limits.rows[level]. Where there are more than limits.series sessions and pools, the
 * past of those that ended first goes. */

/* A transaction holds at most that many samples, or rolls up as many series: no commit waits for long. */
#define GB_HISTORY_CHUNK 32

/* count is at most GB_HISTORY_CHUNK; counters (may be NULL) are the lifetime counters that a
 * sample of the daemon was made from: in one transaction with it, so that an increase is counted once and a lost one in
 * neither. */
void gb_store_put_history(struct gb_store *store, const struct gb_history_sample *samples, size_t count,
                          const struct gb_counters *counters, gb_store_done_fn *done, void *arg);

/* Rolls up what has ended at now_us, and drops what is too old, of a few series. *ret_more, which must live until done:
 * there is more to do. */
void gb_store_roll(struct gb_store *store, int64_t now_us, bool *ret_more, gb_store_done_fn *done, void *arg);

/* --- queries: on a thread and a connection of their own ----------------------------------------------------------- */

#define GB_HISTORY_READS_MAX 64       /* that wait; one more is SATURATED */
#define GB_HISTORY_READ_NS 2000000000 /* then it is given up */
#define GB_HISTORY_STARTS_MAX 1000    /* of the daemon, that are kept */

struct gb_history_answer {
    struct gb_history_plan plan;
    struct gb_history_point *points; /* those that have samples, by time */
    size_t count;
    int64_t *restarts; /* starts of the daemon in that time, but for its very first */
    size_t restart_count;
};
void gb_history_answer_done(struct gb_history_answer *answer);

/* Answers at once [any thread, never blocks]; done(arg, answer, error) runs once, on the reader's thread, or inside the
 * call with SATURATED. What the answer holds may be taken: it is freed after done. Changes whose done has run are
 * seen. */
typedef void gb_history_done_fn(void *arg, struct gb_history_answer *answer, const struct gb_error *error);
void gb_store_history(struct gb_store *store, const struct gb_history_key *key, const struct gb_history_plan *plan,
                      gb_history_done_fn *done, void *arg);

/* --- the audit ---------------------------------------------------------------------------------------------------- */

/* Copies the record, which goes into the table together with others some 25 ms later. What finds no room, or what the
 * database refuses, is counted, and a row of event audit.gap stands for it. [any thread, never blocks] */
void gb_store_audit(struct gb_store *store, const struct gb_audit_rec *rec);

/* Which rows. Those of gaps, and of refusals without a record of their own, fit every session, token and status. */
struct gb_audit_query {
    int64_t before; /* ids below; 0: all */
    int64_t since_us;
    int64_t until_us;    /* not included */
    const char *session; /* NULL: any, as of the token's name */
    const char *token;
    bool any_status;
    int status_min;
    int status_max;
};

/* Takes a row; its texts last until it returns. Other than 0: not taken, and enough. */
typedef int gb_audit_visit_fn(void *arg, const struct gb_audit_rec *rec);

/* [blocks; not on the writer's thread] Newest first, until visit has had enough or some 300 ms have passed. *ret_next:
 * `before` to continue with; 0: there are no more. */
int gb_store_audit_read(struct gb_store *store, const struct gb_audit_query *query, gb_audit_visit_fn *visit, void *arg,
                        int64_t *ret_next, struct gb_error *err);

/* Since the store was opened. [any thread, never blocks] */
struct gb_audit_log_stat {
    uint64_t records; /* written to the table */
    uint64_t dropped; /* missing there */
};
void gb_store_audit_stat(struct gb_store *store, struct gb_audit_log_stat *ret);

/* Whether the database takes changes: -1 with STORE_UNAVAILABLE and the reason where it refused the latest, for a
 * reason that is not the change's own. It is then tried again once a second, also when there is nothing to write. The
 * same where a file of the database was renamed, removed or replaced, which is checked once a second and before
 * each durable commit: every change is then STORE_UNAVAILABLE until the file is back. [any thread, never blocks] */
int gb_store_health(struct gb_store *store, struct gb_error *err);

/* What the writer did since it was opened, for the statistics. [any thread, never blocks] */
struct gb_store_stat {
    uint64_t commits;             /* transactions */
    uint64_t durable_commits;     /* those of them that had a durable change */
    uint64_t changes;             /* that are in the database */
    uint64_t failures;            /* refused ones (queue full) and orphans included */
    struct gb_error last_failure; /* of those that are no orphans; OK: none failed but where the queue was full */
    uint64_t orphans;           /* records of a session that was deleted while they waited: no fault of the database */
    uint64_t queued;            /* now, those being committed included */
    bool writable;              /* as gb_store_health */
    struct gb_histogram waited; /* changes, from being queued until the transaction that first tried them began */
    struct gb_histogram took;   /* transactions, failed ones included */
};
void gb_store_stat(struct gb_store *store, struct gb_store_stat *ret);

/* --- tokens: synchronous, on a connection of their own; also used by the token commands beside a running daemon --- */

struct gb_token_store; /* one thread at a time */

/* Makes the database if it is missing. Refused like gb_store_open, but needs the lock only to change the schema. */
int gb_token_store_open(const char *path, struct gb_token_store **ret, struct gb_error *err);
/* The daemon's own: where the store reads a copy, so do the tokens, and go to the file by themselves as soon as it
 * opens. */
int gb_token_store_beside(struct gb_store *store, struct gb_token_store **ret, struct gb_error *err);
void gb_token_store_close(struct gb_token_store *tokens);

/* Names are unique, and so are subjects: INVALID_ARGUMENT when taken. rec->id is set on success. */
int gb_token_add(struct gb_token_store *tokens, struct gb_token_rec *rec, struct gb_error *err);
int gb_token_list(struct gb_token_store *tokens, int (*visit)(void *, const struct gb_token_rec *, struct gb_error *),
                  void *arg, struct gb_error *err);
/* TOKEN_NOT_FOUND when absent. */
int gb_token_revoke(struct gb_token_store *tokens, const char *name, struct gb_error *err);
/* Gives the token another secret. The present one is good until then; 0: no longer. TOKEN_NOT_FOUND when absent. */
int gb_token_rotate(struct gb_token_store *tokens, const char *name, const char *sha256_hex, int64_t old_until_us,
                    struct gb_error *err);
/* Fills rec->used_at_us and rec->used_from by rec->id, also for a token that has no record here. */
int gb_token_last_use(struct gb_token_store *tokens, struct gb_token_rec *rec, struct gb_error *err);

/* Is there a session of that name? */
int gb_token_session_known(struct gb_token_store *tokens, const char *session, bool *ret_known, struct gb_error *err);

/* Writes a record of the audit beside the daemon. Returns 0 or -1. */
int gb_token_audit(struct gb_token_store *tokens, const struct gb_audit_rec *rec, struct gb_error *err);

/* True in *ret_changed when another connection added, changed or revoked tokens since the last call on this one (or
 * since it was opened); the writer's commits do not count. Cheap enough to ask several times a second. */
int gb_token_changed(struct gb_token_store *tokens, bool *ret_changed, struct gb_error *err);

#endif
