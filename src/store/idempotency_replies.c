/* Rows of answers: what was said to requests with an Idempotency-Key. */
#include <stdlib.h>
#include <string.h>

#include "store/rows.h"
#include "store/store.h"

const char gb_row_get_answers_sql[] =
    "SELECT key, fingerprint, expires_at_us, status, headers, body FROM answers ORDER BY id";

int gb_row_bind_answer(sqlite3_stmt *stmt, const struct gb_store_mark *mark, int status, const char *headers,
                       size_t headers_len, const void *body, size_t body_len) {
    int r = sqlite3_bind_text(stmt, 1, mark->key, -1, SQLITE_STATIC);

    if (r == SQLITE_OK)
        r = sqlite3_bind_text(stmt, 2, mark->fingerprint, -1, SQLITE_STATIC);
    if (r == SQLITE_OK)
        r = sqlite3_bind_int64(stmt, 3, mark->expires_at_us);
    if (r == SQLITE_OK)
        r = sqlite3_bind_int(stmt, 4, status);
    if (r == SQLITE_OK)
        r = sqlite3_bind_text(stmt, 5, headers, (int)headers_len, SQLITE_STATIC);
    if (r == SQLITE_OK)
        r = body ? sqlite3_bind_blob64(stmt, 6, body, body_len, SQLITE_STATIC) : sqlite3_bind_null(stmt, 6);
    return r;
}

static bool copy_text(sqlite3_stmt *stmt, int column, char *out, size_t size) {
    const char *text = (const char *)sqlite3_column_text(stmt, column);
    size_t n = (size_t)sqlite3_column_bytes(stmt, column);

    if (!text || n + 1 != size || strlen(text) != n)
        return false;
    memcpy(out, text, size);
    return true;
}

int gb_row_read_answer(sqlite3_stmt *stmt, struct gb_store_idempotency_reply *ret, struct gb_error *err) {
    memset(ret, 0, sizeof(*ret));
    if (!copy_text(stmt, 0, ret->mark.key, sizeof(ret->mark.key)) ||
        !copy_text(stmt, 1, ret->mark.fingerprint, sizeof(ret->mark.fingerprint)))
        return gb_error_set(err, GB_ERR_INTERNAL, "the database's record of an answer cannot be understood");
    ret->mark.expires_at_us = sqlite3_column_int64(stmt, 2);
    ret->status = sqlite3_column_int(stmt, 3);
    ret->headers = (const char *)sqlite3_column_text(stmt, 4);
    ret->body = sqlite3_column_blob(stmt, 5);
    ret->body_len = (size_t)sqlite3_column_bytes(stmt, 5);
    return 0;
}
