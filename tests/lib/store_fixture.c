#include "store_fixture.h"

#include <check.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gb_test.h"

void store_fixture_dir(struct store_fixture *f) {
    memset(f, 0, sizeof(*f));
    strcpy(f->dir, "/tmp/gb_store_XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(f->dir));
    snprintf(f->path, sizeof(f->path), "%s/gpubufd.db", f->dir);
    f->config = (struct gb_store_config){.path = f->path,
                                         .sync_full = false,
                                         .history = {.keep_s = {86400, 30 * 86400, 730 * 86400},
                                                     .rows = {1000, 1000, 1000},
                                                     .series = 10,
                                                     .interval_s = 10},
                                         .queue_max = 1000};
}

void store_fixture_open(struct store_fixture *f) {
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(gb_store_open(&f->config, &f->store, &err), err);
}

void store_fixture_close(struct store_fixture *f) {
    gb_store_close(f->store);
    f->store = NULL;
}

/* A database as a start makes it. Its migrations take longer than most of what tests do with it. A test that needs many
 * of them makes it once. */
static struct {
    bool wanted;
    char *bytes;
    size_t size;
} made;

static void keep_made(const struct store_fixture *f) {
    FILE *file = fopen(f->path, "r");
    struct stat st;

    ck_assert(file && fstat(fileno(file), &st) == 0);
    made.size = (size_t)st.st_size;
    made.bytes = malloc(made.size);
    ck_assert(made.bytes && fread(made.bytes, 1, made.size, file) == made.size);
    fclose(file);
}

static void put_made(const struct store_fixture *f) {
    FILE *file = fopen(f->path, "w");

    ck_assert(file && fwrite(made.bytes, 1, made.size, file) == made.size && fclose(file) == 0);
}

void store_fixture_init(struct store_fixture *f) {
    store_fixture_dir(f);
    if (made.wanted && !made.bytes) {
        store_fixture_open(f);
        store_fixture_close(f);
        keep_made(f);
    } else if (made.bytes) {
        put_made(f);
    }
    made.wanted = true;
    store_fixture_open(f);
}

void store_fixture_done(struct store_fixture *f) {
    store_fixture_close(f);
    gb_test_remove(f->dir);
}

struct gb_text *store_labels(const char *text) {
    static struct {
        char text[GB_LABELS_MAX];
        struct gb_text *labels;
    } known[4];
    struct gb_error err = GB_ERROR_INIT;
    unsigned i = 0;

    while (known[i].labels && strcmp(known[i].text, text) != 0)
        ck_assert_uint_lt(++i, sizeof(known) / sizeof(known[0]));
    if (!known[i].labels) {
        snprintf(known[i].text, sizeof(known[i].text), "%s", text);
        gb_assert_ok(gb_labels_make(text, &known[i].labels, &err), err);
    }
    return known[i].labels;
}

struct gb_session_rec store_session(int64_t id, const char *name) {
    struct gb_session_rec rec = {
        .id = id,
        .quota = {.bytes = 1000 + (uint64_t)id, .buffers = 10, .pinned_bytes = 7, .stored_bytes = 9},
        .idle_ttl_s = 60,
        .spill = GB_SPILL_DISK,
        .priority = 4,
        .fleet_epoch = 2,
        .fleet_claim = "0123456789abcdef",
        .stops_on_partition = true,
        .aside_epoch = 7,
        .failover_after_s = 9,
        .replicas = 2,
        .tenant = {"vision"},
        .labels = store_labels("{\"who\":\"me\"}"),
        .version = 3,
        .created_at_us = 1700000000000001,
        .updated_at_us = 1700000000000002};

    snprintf(rec.name.s, sizeof(rec.name.s), "%s", name);
    return rec;
}

struct gb_buffer_rec store_buffer(int64_t id, int64_t session_id, const char *name) {
    struct gb_buffer_rec rec = {.id = id,
                                .session_id = session_id,
                                .bytes = 48,
                                .spill = GB_SPILL_DISK,
                                .resident = true,
                                .dtype = GB_DTYPE_BFLOAT16,
                                .shape = {.dims = 3, .dim = {2, 3, 4}},
                                .kind = GB_KIND_MANAGED,
                                .device = 1,
                                .pool = {"default"},
                                .stream = {"side"},
                                .state = GB_BUFFER_PARTIAL,
                                .generation = 5,
                                .version = 6,
                                .has_crc32c = true,
                                .crc32c = 0xe3069283,
                                .created_at_us = 1700000000000003,
                                .updated_at_us = 1700000000000004};

    snprintf(rec.name.s, sizeof(rec.name.s), "%s", name);
    return rec;
}

void store_wait_init(struct store_wait *w) {
    memset(w, 0, sizeof(*w));
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->moved, NULL);
}

void store_wait_done(struct store_wait *w) {
    pthread_cond_destroy(&w->moved);
    pthread_mutex_destroy(&w->lock);
}

void store_wait_report(void *wait, const struct gb_error *error) {
    struct store_wait *w = wait;

    pthread_mutex_lock(&w->lock);
    w->reported++;
    if (error) {
        w->failed++;
        w->last = *error;
    }
    pthread_cond_broadcast(&w->moved);
    pthread_mutex_unlock(&w->lock);
}

void store_wait_until(struct store_wait *w, unsigned reported) {
    pthread_mutex_lock(&w->lock);
    while (w->reported < reported)
        pthread_cond_wait(&w->moved, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

static int collect(struct store_wait *w, struct gb_error *err) {
    int r;

    store_wait_until(w, 1);
    r = w->failed ? -1 : 0;
    if (w->failed)
        *err = w->last;
    store_wait_done(w);
    return r;
}

int store_put_session_now(struct gb_store *s, const struct gb_session_rec *rec, struct gb_error *err) {
    struct store_wait w;

    store_wait_init(&w);
    gb_store_put_session(s, rec, NULL, store_wait_report, &w);
    return collect(&w, err);
}

int store_put_buffer_now(struct gb_store *s, const struct gb_buffer_rec *rec, struct gb_error *err) {
    struct store_wait w;

    store_wait_init(&w);
    gb_store_put_buffer(s, rec, NULL, store_wait_report, &w);
    return collect(&w, err);
}

int store_edit_now(struct gb_store *s, const struct gb_store_edit *edits, size_t count, struct gb_error *err) {
    struct store_wait w;

    store_wait_init(&w);
    gb_store_edit_buffers(s, edits, count, NULL, store_wait_report, &w);
    return collect(&w, err);
}

int store_flush_now(struct gb_store *s, struct gb_error *err) {
    struct store_wait w;

    store_wait_init(&w);
    gb_store_flush(s, store_wait_report, &w);
    return collect(&w, err);
}

static void gate_held(void *arg, const struct gb_error *error) {
    struct store_gate *gate = arg;

    (void)error;
    sem_post(&gate->entered);
    sem_wait(&gate->opened);
}

void store_gate_close(struct store_gate *gate, struct gb_store *s) {
    sem_init(&gate->entered, 0, 0);
    sem_init(&gate->opened, 0, 0);
    gb_store_flush(s, gate_held, gate);
    sem_wait(&gate->entered);
}

void store_gate_open(struct store_gate *gate) {
    sem_post(&gate->opened);
}

static sqlite3 *sql_open(const char *path) {
    sqlite3 *db;

    ck_assert_int_eq(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    sqlite3_busy_timeout(db, 5000);
    return db;
}

void store_sql_text(const char *path, const char *sql, char out[64]) {
    sqlite3 *db = sql_open(path);
    sqlite3_stmt *stmt;
    const char *text;

    ck_assert_msg(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) == SQLITE_OK, "%s: %s", sql, sqlite3_errmsg(db));
    ck_assert_msg(sqlite3_step(stmt) == SQLITE_ROW, "%s: %s", sql, sqlite3_errmsg(db));
    text = (const char *)sqlite3_column_text(stmt, 0);
    snprintf(out, 64, "%s", text ? text : "NULL");
    sqlite3_finalize(stmt);
    sqlite3_close(db);
}

int64_t store_sql_int(const char *path, const char *sql) {
    char text[64];

    store_sql_text(path, sql, text);
    return strtoll(text, NULL, 10);
}

void store_sql_exec(const char *path, const char *sql) {
    sqlite3 *db = sql_open(path);

    ck_assert_msg(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK, "%s: %s", sql, sqlite3_errmsg(db));
    sqlite3_close(db);
}
