/* The audit's table: a queue before the writer, rows of bounded number and age, a connection that reads. Internal to
 * the store. */
#ifndef GB_STORE_AUDIT_H
#define GB_STORE_AUDIT_H

#include <sqlite3.h>

#include "store/apply.h"
#include "store/seen.h"
#include "store/store.h"

struct gb_audit_log;

/* As gb_feed_log_new, gb_feed_log_move and gb_feed_log_free. */
int gb_audit_log_new(const struct gb_store_config *config, const char *where, sqlite3 *db, bool broke_off,
                     struct gb_seen *seen, struct gb_audit_log **ret, struct gb_error *err);
int gb_audit_log_move(struct gb_audit_log *log, const char *where, sqlite3 *db, struct gb_error *err);
void gb_audit_log_free(struct gb_audit_log *log);

/* [any thread] As gb_store_audit. Returns true if nothing else waits, so that the writer must be woken. */
bool gb_audit_log_put(struct gb_audit_log *log, const struct gb_audit_rec *rec);

/* On the writer's thread. When there is something to do next: 0: now; UINT64_MAX: nothing. Old rows alone wait for
 * minutes, and are no reason to stay: `records` leaves them out. */
uint64_t gb_audit_log_due_ns(struct gb_audit_log *log, bool records);
/* Writes some of the records that wait, and drops rows that are too many or too old. 1: done; 0: there was nothing to
 * do; -1: the database refused. */
int gb_audit_log_write(struct gb_audit_log *log, struct gb_apply *apply, struct gb_error *err);

/* [any thread] As gb_store_audit_read and gb_store_audit_stat. */
int gb_audit_log_read(struct gb_audit_log *log, const struct gb_audit_query *query, gb_audit_visit_fn *visit, void *arg,
                      int64_t *ret_next, struct gb_error *err);
void gb_audit_log_stat(struct gb_audit_log *log, struct gb_audit_log_stat *ret);

/* Binds a record to GB_AUDIT_INSERT_SQL. Texts are borrowed until others are bound. before: the record that is bound,
 * so that what is the same stays; NULL: nothing is. */
#define GB_AUDIT_COLUMNS                                                                                               \
    "at_us, event, method, route, code, request_id, address, token, certificate, session, object, token_id, status,"   \
    " bytes, count"
#define GB_AUDIT_INSERT_SQL                                                                                            \
    "INSERT INTO audit(" GB_AUDIT_COLUMNS ") VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)"
void gb_audit_bind(sqlite3_stmt *stmt, const struct gb_audit_rec *rec, const struct gb_audit_rec *before);

#endif
