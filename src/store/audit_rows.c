/* Records of the audit to and from rows of its table. */
#include <string.h>

#include "store/audit.h"

static void bind_text(sqlite3_stmt *stmt, int at, const char *text) {
    if (text)
        sqlite3_bind_text(stmt, at, text, -1, SQLITE_STATIC);
    else
        sqlite3_bind_null(stmt, at);
}

static void bind_count(sqlite3_stmt *stmt, int at, uint64_t value) {
    if (value > 0 && value <= INT64_MAX)
        sqlite3_bind_int64(stmt, at, (int64_t)value);
    else
        sqlite3_bind_null(stmt, at);
}

static bool same(const char *a, const char *b) {
    return a == b || (a && b && strcmp(a, b) == 0);
}

static void bind_answer(sqlite3_stmt *stmt, const struct gb_audit_rec *rec) {
    if (rec->event == GB_AUDIT_REQUEST) {
        sqlite3_bind_int(stmt, 13, rec->status);
        sqlite3_bind_int64(stmt, 14, rec->bytes <= INT64_MAX ? (int64_t)rec->bytes : INT64_MAX);
    } else {
        sqlite3_bind_null(stmt, 13);
        sqlite3_bind_null(stmt, 14);
    }
}

/* Records that follow each other have most in common, and binding costs a quarter of the row. */
void gb_audit_bind(sqlite3_stmt *stmt, const struct gb_audit_rec *rec, const struct gb_audit_rec *before) {
    int i;

    sqlite3_bind_int64(stmt, 1, rec->at_us);
    if (!before || rec->event != before->event)
        bind_text(stmt, 2, gb_audit_event_word(rec->event));
    for (i = 0; i < GB_AUDIT_TEXTS; i++) {
        if (!before || !same(rec->text[i], before->text[i]))
            bind_text(stmt, 3 + i, rec->text[i]);
    }
    if (!before || rec->token_id != before->token_id)
        bind_count(stmt, 12, rec->token_id > 0 ? (uint64_t)rec->token_id : 0);
    if (!before || rec->event != before->event || rec->status != before->status || rec->bytes != before->bytes)
        bind_answer(stmt, rec);
    if (!before || rec->count != before->count)
        bind_count(stmt, 15, rec->count);
}

void gb_audit_bind_query(sqlite3_stmt *stmt, const struct gb_audit_query *query, int64_t from, int64_t to) {
    sqlite3_bind_int64(stmt, 1, from);
    sqlite3_bind_int64(stmt, 2, to);
    sqlite3_bind_int64(stmt, 3, query->since_us);
    sqlite3_bind_int64(stmt, 4, query->until_us);
    bind_text(stmt, 5, query->session);
    bind_text(stmt, 6, query->token);
    sqlite3_bind_int(stmt, 7, query->any_status ? -1 : query->status_min);
    sqlite3_bind_int(stmt, 8, query->status_max);
}

bool gb_audit_row(sqlite3_stmt *stmt, struct gb_audit_rec *ret) {
    const char *word = (const char *)sqlite3_column_text(stmt, 2);
    int i;

    ret->id = sqlite3_column_int64(stmt, 0);
    ret->at_us = sqlite3_column_int64(stmt, 1);
    ret->event = gb_audit_event_of(word ? word : "");
    for (i = 0; i < GB_AUDIT_TEXTS; i++)
        ret->text[i] = (const char *)sqlite3_column_text(stmt, 3 + i);
    ret->token_id = sqlite3_column_int64(stmt, 12);
    ret->status = sqlite3_column_int(stmt, 13);
    ret->bytes = (uint64_t)sqlite3_column_int64(stmt, 14);
    ret->count = (uint64_t)sqlite3_column_int64(stmt, 15);
    return ret->event < GB_AUDIT_EVENTS;
}
