#include "store/stored.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "store/db.h"
#include "store/rows.h"
#include "store/storage.h"

struct gb_stored_reader {
    pthread_mutex_t lock; /* for all below, during a read as well */
    const char *where;
    sqlite3 *db; /* NULL: to be opened */
    sqlite3_stmt *find;
};

static int no_memory(struct gb_error *err) {
    return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
}

/* --- one row's bytes ---------------------------------------------------------------------------------------------- */

static int open_locked(struct gb_stored_reader *r, struct gb_error *err) {
    int result;

    if (r->find)
        return 0;
    if (!r->db && gb_storage_connect(r->where, &r->db, err) < 0)
        return -1;
    result = sqlite3_prepare_v3(
        r->db, "SELECT data FROM stored WHERE buffer_id = ?1 AND file_generation = ?2 AND file_tag = ?3", -1,
        SQLITE_PREPARE_PERSISTENT, &r->find, NULL);
    return result == SQLITE_OK ? 0 : gb_db_fail(r->db, result, "sqlite3_prepare_v3", GB_ERR_INTERNAL, err);
}

static void close_locked(struct gb_stored_reader *r) {
    sqlite3_finalize(r->find);
    sqlite3_close(r->db);
    r->find = NULL;
    r->db = NULL;
}

static int damaged(const struct gb_stored_rec *rec, const char *how, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_CONTENT_DAMAGED,
                        "the database has %s of generation %lld of buffer %lld, which has %llu bytes", how,
                        (long long)rec->generation, (long long)rec->buffer_id, (unsigned long long)rec->bytes);
}

static int copy_bytes(sqlite3_stmt *row, const struct gb_stored_rec *rec, void *out, struct gb_error *err) {
    const void *data = sqlite3_column_blob(row, 0);
    uint64_t n = (uint64_t)sqlite3_column_bytes(row, 0);

    if (sqlite3_column_type(row, 0) != SQLITE_BLOB)
        return damaged(rec, "no bytes", err);
    if (n != rec->bytes)
        return damaged(rec, n < rec->bytes ? "too few bytes" : "too many bytes", err);
    if (n > 0 && !data)
        return no_memory(err);
    if (n > 0)
        memcpy(out, data, n);
    return 0;
}

static int read_locked(struct gb_stored_reader *r, const struct gb_stored_rec *rec, void *out, struct gb_error *err) {
    int result;
    int failed;

    if (open_locked(r, err) < 0)
        return -1;
    sqlite3_bind_int64(r->find, 1, rec->buffer_id);
    sqlite3_bind_int64(r->find, 2, rec->file_generation);
    sqlite3_bind_int64(r->find, 3, rec->file_tag);
    result = sqlite3_step(r->find);
    if (result == SQLITE_ROW)
        failed = copy_bytes(r->find, rec, out, err);
    else if (result == SQLITE_DONE)
        failed = damaged(rec, "no row", err);
    else
        failed = gb_db_fail(r->db, result, "sqlite3_step", GB_ERR_INTERNAL, err);
    sqlite3_reset(r->find); /* a row that is held would keep the log from being begun again */
    return failed;
}

int gb_stored_read(struct gb_stored_reader *reader, const struct gb_stored_rec *rec, void *out, struct gb_error *err) {
    int r;

    pthread_mutex_lock(&reader->lock);
    r = read_locked(reader, rec, out, err);
    pthread_mutex_unlock(&reader->lock);
    return r;
}

int gb_stored_reader_new(const char *where, struct gb_stored_reader **ret, struct gb_error *err) {
    struct gb_stored_reader *r = calloc(1, sizeof(*r));

    if (!r)
        return no_memory(err);
    gb_mutex_init(&r->lock);
    r->where = where;
    *ret = r;
    return 0;
}

void gb_stored_reader_move(struct gb_stored_reader *reader, const char *where) {
    pthread_mutex_lock(&reader->lock);
    close_locked(reader);
    reader->where = where;
    pthread_mutex_unlock(&reader->lock);
}

void gb_stored_reader_free(struct gb_stored_reader *reader) {
    if (!reader)
        return;
    close_locked(reader);
    pthread_mutex_destroy(&reader->lock);
    free(reader);
}

/* --- all records -------------------------------------------------------------------------------------------------- */

struct walk {
    int (*visit)(void *, const struct gb_stored_rec *, struct gb_error *);
    void *arg;
    uint32_t *blocks;
    size_t room;
};

static int copy_blocks(struct walk *walk, const struct gb_stored_rec *rec, const void *blocks, struct gb_error *err) {
    size_t n = gb_stored_block_count(rec->bytes);

    if (n > walk->room) {
        uint32_t *bigger = realloc(walk->blocks, n * sizeof(*bigger));

        if (!bigger)
            return no_memory(err);
        walk->blocks = bigger;
        walk->room = n;
    }
    if (n > 0)
        memcpy(walk->blocks, blocks, n * sizeof(*walk->blocks));
    return 0;
}

static int row(void *arg, sqlite3_stmt *stmt, struct gb_error *err) {
    struct walk *walk = arg;
    struct gb_stored_rec rec;
    const void *blocks;

    if (gb_row_read_stored(stmt, &rec, &blocks, err) < 0 || copy_blocks(walk, &rec, blocks, err) < 0)
        return -1;
    rec.blocks = walk->blocks;
    return walk->visit(walk->arg, &rec, err);
}

int gb_stored_load(sqlite3 *db, int (*visit)(void *, const struct gb_stored_rec *, struct gb_error *), void *arg,
                   struct gb_error *err) {
    struct walk walk = {.visit = visit, .arg = arg};
    int r = gb_db_each_row(db, gb_row_get_stored_sql, row, &walk, err);

    free(walk.blocks);
    return r;
}
