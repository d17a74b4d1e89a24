#include "store/inspect.h"

#include <stdlib.h>
#include <string.h>

#include "store/db.h"
#include "store/migrate.h"
#include "store/reader.h"
#include "store/records.h"

struct gb_inspection {
    char *path;
    sqlite3 *db;
    struct gb_stored_reader *stored;
};

static int check(struct gb_inspection *inspection, struct gb_error *err) {
    bool pending;

    if (gb_db_verify(inspection->db, inspection->path, err) < 0 ||
        gb_migrate_pending(inspection->db, inspection->path, &pending, err) < 0)
        return -1;
    if (!pending)
        return 0;
    return gb_error_set(err, GB_ERR_INTERNAL,
                        "the database %s is of an older gpubufd; start and stop the daemon once, which brings it up to "
                        "date",
                        inspection->path);
}

int gb_inspect_open(const char *path, struct gb_inspection **ret, struct gb_error *err) {
    struct gb_inspection *inspection = calloc(1, sizeof(*inspection));

    if (inspection)
        inspection->path = strdup(path);
    if (!inspection || !inspection->path) {
        gb_inspect_close(inspection);
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    }
    if (gb_storage_connect(path, &inspection->db, err) < 0 || check(inspection, err) < 0 ||
        gb_stored_reader_new(inspection->path, &inspection->stored, err) < 0) {
        gb_inspect_close(inspection);
        return -1;
    }
    *ret = inspection;
    return 0;
}

void gb_inspect_close(struct gb_inspection *inspection) {
    if (!inspection)
        return;
    gb_stored_reader_free(inspection->stored);
    sqlite3_close(inspection->db);
    free(inspection->path);
    free(inspection);
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

int gb_inspect_sessions(struct gb_inspection *inspection,
                        int (*visit)(void *, const struct gb_session_rec *, struct gb_error *), void *arg,
                        struct gb_error *err) {
    return gb_walk_sessions(inspection->db, visit, arg, err);
}

int gb_inspect_buffers(struct gb_inspection *inspection,
                       int (*visit)(void *, const struct gb_buffer_rec *, struct gb_error *), void *arg,
                       struct gb_error *err) {
    return gb_walk_buffers(inspection->db, visit, arg, err);
}

int gb_inspect_stored(struct gb_inspection *inspection,
                      int (*visit)(void *, const struct gb_stored_rec *, struct gb_error *), void *arg,
                      struct gb_error *err) {
    return gb_stored_load(inspection->db, visit, arg, err);
}

int gb_inspect_read_stored(struct gb_inspection *inspection, const struct gb_stored_rec *rec, void *out,
                           struct gb_error *err) {
    return gb_stored_read(inspection->stored, rec, out, err);
}

static int uuid_row(void *arg, sqlite3_stmt *stmt, struct gb_error *err) {
    const char *text = (const char *)sqlite3_column_text(stmt, 0);

    if (!text || strlen(text) != GB_STORE_UUID_SIZE - 1)
        return gb_error_set(err, GB_ERR_INTERNAL, "the database's own number cannot be understood");
    memcpy(arg, text, GB_STORE_UUID_SIZE);
    return 0;
}

int gb_inspect_uuid(struct gb_inspection *inspection, char ret[GB_STORE_UUID_SIZE], struct gb_error *err) {
    ret[0] = '\0';
    return gb_db_each_row(inspection->db, "SELECT uuid FROM identity WHERE id = 1", uuid_row, ret, err);
}
