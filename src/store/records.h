/* Model records to and from rows. Internal to the store. */
#ifndef GB_STORE_RECORDS_H
#define GB_STORE_RECORDS_H

#include <sqlite3.h>

#include "base/error.h"
#include "model/model.h"
#include "store/store.h"

enum gb_row_stmt {
    GB_ROW_PUT_SESSION,
    GB_ROW_PUT_BUFFER,
    GB_ROW_UPDATE_BUFFER, /* changes nothing if there is no such row */
    GB_ROW_PUT_POOL,
    GB_ROW_DEL_SESSION,
    GB_ROW_DEL_BUFFER,
    GB_ROW_DEL_POOL,
    GB_ROW_PUT_COUNTERS,
    GB_ROW_PUT_COUNTED, /* bound as those */
    GB_ROW_PUT_ANSWER,
    GB_ROW_EXPIRE_ANSWERS,
    GB_ROW_DROP_ANSWERS,
    GB_ROW_DEL_ANSWERS_OF, /* a session */
    GB_ROW_PUT_TOKEN_USE,
    GB_ROW_PUT_STORED,
    GB_ROW_RENUMBER_STORED,
    GB_ROW_DEL_STORED,
    GB_ROW_STMT_COUNT
};

extern const char *const gb_row_put_sql[GB_ROW_STMT_COUNT];

/* Bind a record to the statement of the same name. Texts are borrowed until the statement is bound again or finalized.
 * Return SQLITE_OK or the first failure. */
int gb_row_bind_session(sqlite3_stmt *stmt, const struct gb_session_rec *rec);
/* before: what was bound to the statement last, and lives still; NULL: nothing. Only what differs is bound. */
int gb_row_bind_buffer(sqlite3_stmt *stmt, const struct gb_buffer_rec *rec, const struct gb_buffer_rec *before);
int gb_row_bind_pool(sqlite3_stmt *stmt, const struct gb_pool_rec *rec);
int gb_row_bind_counters(sqlite3_stmt *stmt, const struct gb_counters *counters);
int gb_row_bind_token_use(sqlite3_stmt *stmt, const struct gb_token_use *use);
/* data: the bytes, if gb_stored_inline. Blocks and data are borrowed as texts are. */
int gb_row_bind_stored(sqlite3_stmt *stmt, const struct gb_stored_rec *rec, const void *data);
int gb_row_bind_renumbered(sqlite3_stmt *stmt, const struct gb_stored_rec *rec); /* generation and run alone */
int gb_row_bind_answer(sqlite3_stmt *stmt, const struct gb_store_mark *mark, int status, const char *headers,
                       size_t headers_len, const void *body, size_t body_len);

extern const char gb_row_get_counters_sql[];
extern const char gb_row_get_counted_sql[];
void gb_row_read_counters(sqlite3_stmt *stmt, struct gb_counters *ret);

/* As gb_store_load. */
int gb_row_walk(sqlite3 *db, enum gb_store_kind kind, gb_store_visit_fn *visit, void *arg, struct gb_error *err);

#endif
