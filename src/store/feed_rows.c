/* Notices to and from rows of the table feed. */
#include <string.h>

#include "store/feed.h"

static void bind_text(sqlite3_stmt *stmt, int at, const char *text) {
    if (text[0])
        sqlite3_bind_text(stmt, at, text, -1, SQLITE_STATIC);
    else
        sqlite3_bind_null(stmt, at);
}

static void bind_count(sqlite3_stmt *stmt, int at, int64_t value) {
    if (value > 0)
        sqlite3_bind_int64(stmt, at, value);
    else
        sqlite3_bind_null(stmt, at);
}

static void bind_place(sqlite3_stmt *stmt, const struct gb_notice *n, const struct gb_notice *before) {
    if (!before || n->type != before->type)
        bind_text(stmt, 3, gb_notice_word(n->type));
    if (!before || strcmp(n->session.s, before->session.s) != 0)
        bind_text(stmt, 4, n->session.s);
    if (!before || strcmp(n->pool.s, before->pool.s) != 0)
        bind_text(stmt, 5, n->pool.s);
    if (!before || strcmp(n->buffer.s, before->buffer.s) != 0)
        bind_text(stmt, 6, n->buffer.s);
    if (before && n->device == before->device)
        return;
    if (n->device >= 0)
        sqlite3_bind_int(stmt, 7, n->device);
    else
        sqlite3_bind_null(stmt, 7);
}

static void bind_bytes(sqlite3_stmt *stmt, const struct gb_notice *n, const struct gb_notice *before) {
    if (before && n->has_bytes == before->has_bytes && n->bytes == before->bytes)
        return;
    if (n->has_bytes && n->bytes <= INT64_MAX)
        sqlite3_bind_int64(stmt, 8, (int64_t)n->bytes);
    else
        sqlite3_bind_null(stmt, 8);
}

/* Notices that follow each other have most in common, and binding costs a quarter of the row. */
void gb_feed_bind(sqlite3_stmt *stmt, const struct gb_notice *n, const struct gb_notice *before) {
    sqlite3_bind_int64(stmt, 1, n->id);
    sqlite3_bind_int64(stmt, 2, n->at_us);
    bind_place(stmt, n, before);
    bind_bytes(stmt, n, before);
    if (!before || n->count != before->count)
        bind_count(stmt, 9, (int64_t)n->count);
    if (!before || n->generation != before->generation)
        bind_count(stmt, 10, n->generation);
    if (!before || n->lease != before->lease)
        bind_count(stmt, 11, n->lease);
    if (!before || strcmp(n->detail, before->detail) != 0)
        bind_text(stmt, 12, n->detail);
    if (!before || n->has_head != before->has_head || n->head != before->head)
        bind_text(stmt, 13, n->has_head ? gb_head_name(n->head) : "");
}

static void copy_text(sqlite3_stmt *stmt, int at, char *out, size_t size) {
    const char *text = (const char *)sqlite3_column_text(stmt, at);
    size_t n = text ? strnlen(text, size - 1) : 0;

    if (n > 0)
        memcpy(out, text, n);
    out[n] = '\0';
}

static void read_head(sqlite3_stmt *stmt, int at, struct gb_notice *ret) {
    char word[16];

    copy_text(stmt, at, word, sizeof(word));
    ret->has_head = word[0] && gb_head_parse(word, strlen(word), &ret->head, NULL) == 0;
}

bool gb_feed_row(sqlite3_stmt *stmt, struct gb_notice *ret) {
    char word[40];

    copy_text(stmt, 2, word, sizeof(word));
    ret->id = sqlite3_column_int64(stmt, 0);
    ret->at_us = sqlite3_column_int64(stmt, 1);
    ret->type = gb_notice_type_of(word);
    copy_text(stmt, 3, ret->session.s, sizeof(ret->session.s));
    copy_text(stmt, 4, ret->pool.s, sizeof(ret->pool.s));
    copy_text(stmt, 5, ret->buffer.s, sizeof(ret->buffer.s));
    ret->device = sqlite3_column_type(stmt, 6) == SQLITE_NULL ? -1 : sqlite3_column_int(stmt, 6);
    ret->has_bytes = sqlite3_column_type(stmt, 7) != SQLITE_NULL;
    ret->bytes = (uint64_t)sqlite3_column_int64(stmt, 7);
    ret->count = (uint64_t)sqlite3_column_int64(stmt, 8);
    ret->generation = sqlite3_column_int64(stmt, 9);
    ret->lease = sqlite3_column_int64(stmt, 10);
    copy_text(stmt, 11, ret->detail, sizeof(ret->detail));
    read_head(stmt, 12, ret);
    return ret->type < GB_NOTICE_TYPES;
}
