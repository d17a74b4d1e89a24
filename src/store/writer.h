/* The queue of changes, and the thread that carries them out: one at a time, usually the writer's own. A thread that
 * works in turns may do it itself at the end of a turn, which spares it and the writer a wake.
 *
 * Internal to the store. */
#ifndef GB_STORE_WRITER_H
#define GB_STORE_WRITER_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/apply.h"
#include "store/store.h"

struct gb_writer;

/* Opens the database that could not be opened for changes before. On the writer's thread, after the first change. */
typedef int gb_writer_reopen_fn(void *arg, sqlite3 **ret, struct gb_error *err);

/* What is written beside the changes, and where the database is; borrowed. */
struct gb_writer_logs {
    struct gb_feed_log *feed;
    struct gb_audit_log *audit;
    struct gb_place *place;
    struct gb_seen *seen;
};

/* Starts the thread. db is borrowed, and the writer's alone but between gb_writer_enter and gb_writer_leave. db NULL:
 * every change is STORAGE_FULL until reopen brings one, which is asked once a second. */
int gb_writer_new(sqlite3 *db, const struct gb_store_config *config, const struct gb_writer_logs *logs,
                  gb_writer_reopen_fn *reopen, void *reopen_arg, struct gb_writer **ret, struct gb_error *err);

/* Carries out what is queued, ends the thread. NULL is accepted. */
void gb_writer_free(struct gb_writer *writer);

/* [any thread] As gb_store_marks_watch. */
void gb_writer_marks_watch(struct gb_writer *writer, gb_store_marked_fn *marked, void *arg);

/* Copies record[0..bytes), the model record or the id that the kind needs, with a reference to its labels, and the mark
 * (may be NULL), and queues the change. [any thread] */
void gb_writer_submit(struct gb_writer *writer, enum gb_change_kind kind, const void *record, size_t bytes,
                      const struct gb_store_mark *mark, gb_store_done_fn *done, void *arg);

/* Reports a change that finds no memory, inside the call; done may be NULL. [any thread] */
void gb_writer_lacks_memory(gb_store_done_fn *done, void *arg);

/* As gb_store_begin_turn and gb_store_end_turn. */
void gb_writer_begin_turn(struct gb_writer *writer);
bool gb_writer_end_turn(struct gb_writer *writer, bool idle);

/* In between nothing is changed, and the caller may read by the writer's connection, which two threads must never use
 * at once. Waits for what is being carried out. Not on the writer's thread, and not twice. */
void gb_writer_enter(struct gb_writer *writer);
void gb_writer_leave(struct gb_writer *writer);

/* [any thread] A notice, or a record of the audit, waits in its queue. */
void gb_writer_tell(struct gb_writer *writer);

/* [any thread, never blocks] As gb_store_health. */
int gb_writer_health(struct gb_writer *writer, struct gb_error *err);

/* [any thread, never blocks] As gb_store_durable_health. */
int gb_writer_durable_health(struct gb_writer *writer, struct gb_error *err);

void gb_writer_stat(struct gb_writer *writer, struct gb_store_stat *ret);

#endif
