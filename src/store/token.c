/* Tokens in the database, on a connection of its own: the token commands use it, also beside a running daemon, and the
 * daemon sees by it that they have changed. */
#include <stdlib.h>
#include <string.h>

#include "model/token.h"
#include "store/audit.h"
#include "store/db.h"
#include "store/migrate.h"
#include "store/store.h"

struct gb_token_store {
    char *file; /* to be opened; NULL: it is, else a copy of it */
    sqlite3 *db;
    sqlite3_stmt *data_version;
    int64_t seen_data_version;
    int64_t seen_epoch;
};

/* A running daemon has the newest schema, or is another version that must not find its tables changed under it. */
static int bring_up_to_date(struct gb_token_store *t, const char *path, struct gb_error *err) {
    int lock_fd = -1;
    bool pending;
    int r;

    if (gb_migrate_pending(t->db, path, &pending, err) < 0)
        return -1;
    if (!pending)
        return 0;
    if (gb_lock_take(path, &lock_fd, err) < 0)
        return -1;
    r = gb_migrate(t->db, path, err);
    gb_lock_drop(lock_fd);
    return r;
}

static int read_data_version(struct gb_token_store *t, int64_t *ret, struct gb_error *err) {
    int r = sqlite3_step(t->data_version);

    if (r == SQLITE_ROW)
        *ret = sqlite3_column_int64(t->data_version, 0);
    else
        gb_db_fail(t->db, r, "sqlite3_step", GB_ERR_INTERNAL, err);
    sqlite3_reset(t->data_version);
    return r == SQLITE_ROW ? 0 : -1;
}

static int read_epoch(struct gb_token_store *t, int64_t *ret, struct gb_error *err) {
    return gb_db_int(t->db, "SELECT value FROM token_epoch", ret, err);
}

static int prepare(struct gb_token_store *t, struct gb_error *err) {
    if (gb_db_prepare(t->db, "PRAGMA data_version", &t->data_version, err) < 0 ||
        read_data_version(t, &t->seen_data_version, err) < 0)
        return -1;
    return read_epoch(t, &t->seen_epoch, err);
}

static int token_store_init(struct gb_token_store *t, const char *path, struct gb_error *err) {
    if (gb_db_open(path, &t->db, err) < 0 || bring_up_to_date(t, path, err) < 0 ||
        gb_db_exec(t->db, "PRAGMA synchronous=FULL", err) < 0)
        return -1;
    return prepare(t, err);
}

int gb_token_store_open(const char *path, struct gb_token_store **ret, struct gb_error *err) {
    struct gb_token_store *t = calloc(1, sizeof(*t));

    if (!t)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    if (token_store_init(t, path, err) < 0) {
        gb_token_store_close(t);
        return -1;
    }
    *ret = t;
    return 0;
}

int gb_token_store_read(const char *copy, const char *file, struct gb_token_store **ret, struct gb_error *err) {
    struct gb_token_store *t = calloc(1, sizeof(*t));

    if (t)
        t->file = strdup(file);
    if (!t || !t->file) {
        gb_token_store_close(t);
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    }
    if (gb_db_connect_read(copy, &t->db, err) < 0 || prepare(t, err) < 0) {
        gb_token_store_close(t);
        return -1;
    }
    *ret = t;
    return 0;
}

/* From the copy to the file, as soon as that opens. True where another process changed the tokens meanwhile. */
static bool go_to_file(struct gb_token_store *t) {
    struct gb_token_store *other = NULL;
    bool changed;

    if (gb_token_store_open(t->file, &other, NULL) < 0)
        return false;
    changed = other->seen_epoch != t->seen_epoch;
    sqlite3_finalize(t->data_version);
    sqlite3_close(t->db);
    free(t->file);
    *t = *other;
    free(other);
    return changed;
}

void gb_token_store_close(struct gb_token_store *t) {
    if (!t)
        return;
    sqlite3_finalize(t->data_version);
    sqlite3_close(t->db);
    free(t->file);
    free(t);
}

/* Runs the bound statement and raises the epoch in one transaction; `stmt` is finalized. An epoch that moved by our own
 * step alone is no news to this connection. */
static int change_tokens(struct gb_token_store *t, sqlite3_stmt *stmt, int *ret_result, int *ret_rows,
                         struct gb_error *err) {
    int64_t epoch = 0;
    int r = gb_db_exec(t->db, "BEGIN IMMEDIATE", err);

    if (r == 0) {
        *ret_result = sqlite3_step(stmt);
        *ret_rows = sqlite3_changes(t->db);
        if (*ret_result != SQLITE_DONE)
            r = gb_db_fail(t->db, *ret_result, "sqlite3_step", GB_ERR_STORE_FAILED, err);
    }
    sqlite3_finalize(stmt);
    if (r == 0)
        r = gb_db_exec(t->db, "UPDATE token_epoch SET value = value + 1", err);
    if (r == 0)
        r = read_epoch(t, &epoch, err);
    if (r == 0)
        r = gb_db_exec(t->db, "COMMIT", err);
    if (!sqlite3_get_autocommit(t->db))
        gb_db_exec(t->db, "ROLLBACK", NULL);
    if (r == 0 && epoch == t->seen_epoch + 1)
        t->seen_epoch = epoch;
    return r;
}

static int prepare_change(struct gb_token_store *t, const char *sql, sqlite3_stmt **ret, struct gb_error *err) {
    int r = sqlite3_prepare_v2(t->db, sql, -1, ret, NULL);

    return r == SQLITE_OK ? 0 : gb_db_fail(t->db, r, "sqlite3_prepare_v2", GB_ERR_STORE_FAILED, err);
}

int gb_token_add(struct gb_token_store *t, struct gb_token_rec *rec, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    char scopes[GB_SCOPES_SIZE];
    sqlite3_stmt *stmt;
    int result = SQLITE_OK;
    int rows;

    if (prepare_change(t,
                       "INSERT INTO tokens(name, sha256_hex, scope, session, created_at_us, prefix, subject,"
                       " expires_at_us) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                       &stmt, err) < 0)
        return -1;
    sqlite3_bind_text(stmt, 1, rec->name.s, -1, SQLITE_STATIC);
    sqlite3_bind_text(stmt, 2, rec->sha256_hex, -1, SQLITE_STATIC);
    sqlite3_bind_text(stmt, 3, gb_scopes_text(rec->scopes, scopes), -1, SQLITE_STATIC);
    sqlite3_bind_text(stmt, 4, rec->session, -1, SQLITE_STATIC);
    sqlite3_bind_int64(stmt, 5, rec->created_at_us);
    sqlite3_bind_text(stmt, 6, rec->prefix, -1, SQLITE_STATIC);
    sqlite3_bind_text(stmt, 7, rec->subject, -1, SQLITE_STATIC);
    sqlite3_bind_int64(stmt, 8, rec->expires_at_us);
    if (change_tokens(t, stmt, &result, &rows, &why) == 0) {
        rec->id = sqlite3_last_insert_rowid(t->db);
        return 0;
    }
    if (result == SQLITE_CONSTRAINT_UNIQUE && strstr(why.detail, "subject"))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "a token with the subject \"%.160s\" exists; revoke it first: a certificate stands for one",
                            rec->subject);
    if (result == SQLITE_CONSTRAINT_UNIQUE)
        return gb_error_set(
            err, GB_ERR_INVALID_ARGUMENT,
            "a token named \"%s\" exists: \"gpubufd token rotate %s\" gives it another secret; revoke it "
            "first to change more, or choose another name",
            rec->name.s, rec->name.s);
    return gb_error_move(err, &why);
}

/* Runs a change of the token of that name, which its statement has as ?1; `stmt` is finalized. */
static int change_named(struct gb_token_store *t, sqlite3_stmt *stmt, const char *name, struct gb_error *err) {
    int result;
    int rows = 0;

    sqlite3_bind_text(stmt, 1, name, -1, SQLITE_STATIC);
    if (change_tokens(t, stmt, &result, &rows, err) < 0)
        return -1;
    return rows > 0 ? 0 : gb_error_set(err, GB_ERR_TOKEN_NOT_FOUND, "there is no token named \"%.140s\"", name);
}

int gb_token_revoke(struct gb_token_store *t, const char *name, struct gb_error *err) {
    sqlite3_stmt *stmt;

    if (prepare_change(t, "DELETE FROM tokens WHERE name = ?1", &stmt, err) < 0)
        return -1;
    return change_named(t, stmt, name, err);
}

int gb_token_rotate(struct gb_token_store *t, const char *name, const char *sha256_hex, int64_t old_until_us,
                    struct gb_error *err) {
    sqlite3_stmt *stmt;

    if (prepare_change(t,
                       "UPDATE tokens SET old_until_us = ?3,"
                       " old_sha256_hex = CASE WHEN ?3 > 0 THEN sha256_hex ELSE '' END,"
                       " sha256_hex = ?2 WHERE name = ?1",
                       &stmt, err) < 0)
        return -1;
    sqlite3_bind_text(stmt, 2, sha256_hex, -1, SQLITE_STATIC);
    sqlite3_bind_int64(stmt, 3, old_until_us);
    return change_named(t, stmt, name, err);
}

int gb_token_session_known(struct gb_token_store *t, const char *session, bool *ret_known, struct gb_error *err) {
    sqlite3_stmt *stmt;
    int r = sqlite3_prepare_v2(t->db, "SELECT 1 FROM sessions WHERE name = ?1", -1, &stmt, NULL);

    if (r != SQLITE_OK)
        return gb_db_fail(t->db, r, "sqlite3_prepare_v2", GB_ERR_INTERNAL, err);
    sqlite3_bind_text(stmt, 1, session, -1, SQLITE_STATIC);
    r = sqlite3_step(stmt);
    if (r == SQLITE_ROW || r == SQLITE_DONE)
        *ret_known = r == SQLITE_ROW;
    else
        gb_db_fail(t->db, r, "sqlite3_step", GB_ERR_INTERNAL, err);
    sqlite3_finalize(stmt);
    return r == SQLITE_ROW || r == SQLITE_DONE ? 0 : -1;
}

int gb_token_audit(struct gb_token_store *t, const struct gb_audit_rec *rec, struct gb_error *err) {
    sqlite3_stmt *stmt;
    int r = sqlite3_prepare_v2(t->db, GB_AUDIT_INSERT_SQL, -1, &stmt, NULL);

    if (r != SQLITE_OK)
        return gb_db_fail(t->db, r, "sqlite3_prepare_v2", GB_ERR_STORE_FAILED, err);
    gb_audit_bind(stmt, rec, NULL);
    r = sqlite3_step(stmt);
    if (r != SQLITE_DONE)
        gb_db_fail(t->db, r, "sqlite3_step", GB_ERR_STORE_FAILED, err);
    sqlite3_finalize(stmt);
    return r == SQLITE_DONE ? 0 : -1;
}

/* False where the column does not fit or is no text. */
static bool copy_column(sqlite3_stmt *stmt, int column, char *out, size_t size) {
    const char *text = (const char *)sqlite3_column_text(stmt, column);
    size_t len = (size_t)sqlite3_column_bytes(stmt, column);

    if (!text || len >= size)
        return false;
    memcpy(out, text, len);
    out[len] = '\0';
    return true;
}

/* A token that cannot be understood is refused rather than skipped: its scope would be a guess. */
static int read_token(sqlite3_stmt *stmt, struct gb_token_rec *ret, struct gb_error *err) {
    const char *scope = (const char *)sqlite3_column_text(stmt, 3);

    memset(ret, 0, sizeof(*ret));
    ret->id = sqlite3_column_int64(stmt, 0);
    ret->created_at_us = sqlite3_column_int64(stmt, 5);
    ret->expires_at_us = sqlite3_column_int64(stmt, 8);
    ret->old_until_us = sqlite3_column_int64(stmt, 10);
    ret->used_at_us = sqlite3_column_int64(stmt, 11);
    if (!copy_column(stmt, 1, ret->name.s, sizeof(ret->name.s)) ||
        !copy_column(stmt, 2, ret->sha256_hex, sizeof(ret->sha256_hex)) || !scope ||
        gb_scopes_parse(scope, strlen(scope), &ret->scopes, NULL) < 0 ||
        !copy_column(stmt, 4, ret->session, sizeof(ret->session)) ||
        !copy_column(stmt, 6, ret->prefix, sizeof(ret->prefix)) ||
        !copy_column(stmt, 7, ret->subject, sizeof(ret->subject)) ||
        !copy_column(stmt, 9, ret->old_sha256_hex, sizeof(ret->old_sha256_hex)) ||
        !copy_column(stmt, 12, ret->used_from, sizeof(ret->used_from)))
        return gb_error_set(err, GB_ERR_INTERNAL, "the database's record of token %lld cannot be understood",
                            (long long)ret->id);
    return 0;
}

struct list {
    int (*visit)(void *, const struct gb_token_rec *, struct gb_error *);
    void *arg;
};

static int token_row(void *arg, sqlite3_stmt *stmt, struct gb_error *err) {
    struct list *list = arg;
    struct gb_token_rec rec;

    return read_token(stmt, &rec, err) < 0 ? -1 : list->visit(list->arg, &rec, err);
}

int gb_token_list(struct gb_token_store *t, int (*visit)(void *, const struct gb_token_rec *, struct gb_error *),
                  void *arg, struct gb_error *err) {
    struct list list = {.visit = visit, .arg = arg};

    return gb_db_each_row(t->db,
                          "SELECT id, name, sha256_hex, scope, session, created_at_us, prefix, subject,"
                          " expires_at_us, old_sha256_hex, old_until_us, ifnull(at_us, 0), ifnull(address, '')"
                          " FROM tokens LEFT JOIN token_uses ON token_id = id ORDER BY id",
                          token_row, &list, err);
}

int gb_token_last_use(struct gb_token_store *t, struct gb_token_rec *rec, struct gb_error *err) {
    sqlite3_stmt *stmt;
    int r = sqlite3_prepare_v2(t->db, "SELECT at_us, address FROM token_uses WHERE token_id = ?1", -1, &stmt, NULL);

    if (r != SQLITE_OK)
        return gb_db_fail(t->db, r, "sqlite3_prepare_v2", GB_ERR_INTERNAL, err);
    sqlite3_bind_int64(stmt, 1, rec->id);
    r = sqlite3_step(stmt);
    if (r == SQLITE_ROW && copy_column(stmt, 1, rec->used_from, sizeof(rec->used_from)))
        rec->used_at_us = sqlite3_column_int64(stmt, 0);
    if (r != SQLITE_ROW && r != SQLITE_DONE)
        gb_db_fail(t->db, r, "sqlite3_step", GB_ERR_INTERNAL, err);
    sqlite3_finalize(stmt);
    return r == SQLITE_ROW || r == SQLITE_DONE ? 0 : -1;
}

int gb_token_changed(struct gb_token_store *t, bool *ret_changed, struct gb_error *err) {
    int64_t data_version = 0;
    int64_t epoch = t->seen_epoch;

    if (t->file && go_to_file(t)) {
        *ret_changed = true;
        return 0;
    }
    if (read_data_version(t, &data_version, err) < 0)
        return -1;
    if (data_version != t->seen_data_version && read_epoch(t, &epoch, err) < 0)
        return -1;
    *ret_changed = epoch != t->seen_epoch;
    t->seen_data_version = data_version;
    t->seen_epoch = epoch;
    return 0;
}
