/* One change to the tables, with statements that are prepared once. Internal to the store. */
#ifndef GB_STORE_APPLY_H
#define GB_STORE_APPLY_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "store/history.h"
#include "store/rows.h"
#include "store/writer.h"

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

#endif
