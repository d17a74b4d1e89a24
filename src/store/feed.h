/* The log of notices: a queue before the writer, a table of bounded length, a connection that reads. Internal to the
 * store. */
#ifndef GB_STORE_FEED_H
#define GB_STORE_FEED_H

#include "store/apply.h"
#include "store/store.h"

struct gb_feed_log;

/* db is the writer's, borrowed; what the table has is counted. where is what a connection that reads is opened with,
 * borrowed. broke_off: as in struct gb_store_feed. */
int gb_feed_log_new(const struct gb_store_config *config, const char *where, sqlite3 *db, bool broke_off,
                    struct gb_feed_log **ret, struct gb_error *err);
/* On the writer's thread: continues with another one, which has the same notices. */
int gb_feed_log_move(struct gb_feed_log *log, const char *where, sqlite3 *db, struct gb_error *err);
/* At the end: the table has all that was put, or tells of what is missing. */
bool gb_feed_log_whole(const struct gb_feed_log *log);
void gb_feed_log_free(struct gb_feed_log *log); /* before db is closed; NULL is accepted */

/* [any thread] As gb_store_note. *ret_first: nothing else waits, so the writer must be woken. */
int64_t gb_feed_log_put(struct gb_feed_log *log, const struct gb_notice *notice, bool *ret_first);

/* On the writer's thread. When the next are to be written: 0: now; UINT64_MAX: none wait. */
uint64_t gb_feed_log_due_ns(struct gb_feed_log *log);
/* Writes some of those that wait, tells the watch. 1: they are in the log; 0: none waited; -1: the database refused
 * them. */
int gb_feed_log_write(struct gb_feed_log *log, struct gb_apply *apply, struct gb_error *err);

void gb_feed_log_watch(struct gb_feed_log *log, gb_store_noted_fn *noted, void *arg);
int gb_feed_log_read(struct gb_feed_log *log, int64_t after, size_t max, int (*visit)(void *, const struct gb_notice *),
                     void *arg, struct gb_error *err);
/* The same of the newest; before the first change. */
int gb_feed_log_recent(struct gb_feed_log *log, size_t max, int (*visit)(void *, const struct gb_notice *), void *arg,
                       struct gb_error *err);
void gb_feed_log_bounds(struct gb_feed_log *log, struct gb_store_feed *ret);

#endif
