/* Model records to and from rows. The statements follow the lists of fields in src/model. The writer binds records
 * (apply.c), the start walks all rows of a kind (store.c). A row that cannot be understood ends a walk with an error
 * that names its record. */
#include "store/records.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "model/token.h"
#include "store/db.h"
#include "store/store.h"

/* --- statements --------------------------------------------------------------------------------------------------- */

const char *const gb_row_put_sql[GB_ROW_STMT_COUNT] = {
    [GB_ROW_PUT_SESSION] =
        "INSERT INTO sessions(id, version, created_at_us, updated_at_us"
#define GB_SESSION_FIELD(name, ...) ", " #name
#define GB_SESSION_QUOTA(name, ...) ", quota_" #name
#define GB_SESSION_PARTITION(name, ...) ", " #name
#include "model/session.def"
        ") VALUES(?, ?, ?, ?"
#define GB_SESSION_FIELD(...) ", ?"
#define GB_SESSION_PARTITION(...) ", ?"
#include "model/session.def"
        ") ON CONFLICT(id) DO UPDATE SET version = excluded.version, created_at_us = excluded.created_at_us,"
        " updated_at_us = excluded.updated_at_us"
#define GB_SESSION_FIELD(name, ...) ", " #name " = excluded." #name
#define GB_SESSION_QUOTA(name, ...) ", quota_" #name " = excluded.quota_" #name
#define GB_SESSION_PARTITION(name, ...) ", " #name " = excluded." #name
#include "model/session.def"
    ,
/* In the statements for buffers the columns that never change stand behind the id: GB_ROW_UPDATE_BUFFER is bound as
 * GB_ROW_PUT_BUFFER is, and has no parameters for them. */
#define COLUMN_HEAD(text)
#define COLUMN_MEMORY(text)
#define COLUMN_PLACE(text)
#define COLUMN_KEPT(text) text
    [GB_ROW_PUT_BUFFER] =
        "INSERT INTO buffers(version, created_at_us, updated_at_us"
#define GB_BUFFER_FIELD(name, type, how, ...) COLUMN_##how(", " #name)
#include "model/buffer.def"
        ", id"
#define GB_BUFFER_FIELD(name, type, how, ...) LAST_##how(", " #name)
#define LAST_HEAD(text)
#define LAST_MEMORY(text)
#define LAST_PLACE(text) text
#define LAST_KEPT(text)
#include "model/buffer.def"
        ") VALUES(?, ?, ?, ?"
#define GB_BUFFER_FIELD(name, type, how, ...) COLUMN_##how(", ?") LAST_##how(", ?")
#include "model/buffer.def"
        ") ON CONFLICT(id) DO UPDATE SET version = excluded.version, created_at_us = excluded.created_at_us,"
        " updated_at_us = excluded.updated_at_us"
#define GB_BUFFER_FIELD(name, type, how, ...) COLUMN_##how(", " #name " = excluded." #name)
#include "model/buffer.def"
    ,
    [GB_ROW_UPDATE_BUFFER] = "UPDATE buffers SET version = ?, created_at_us = ?, updated_at_us = ?"
#define GB_BUFFER_FIELD(name, type, how, ...) COLUMN_##how(", " #name " = ?")
#include "model/buffer.def"
                             " WHERE id = ?",
    [GB_ROW_PUT_POOL] =
        "INSERT INTO pools(id, version, created_at_us, updated_at_us"
#define GB_POOL_FIELD(name, ...) ", " #name
#include "model/pool.def"
        ") VALUES(?, ?, ?, ?"
#define GB_POOL_FIELD(...) ", ?"
#include "model/pool.def"
        ") ON CONFLICT(id) DO UPDATE SET version = excluded.version, created_at_us = excluded.created_at_us,"
        " updated_at_us = excluded.updated_at_us"
#define GB_POOL_FIELD(name, ...) ", " #name " = excluded." #name
#include "model/pool.def"
    ,
    [GB_ROW_DEL_SESSION] = "DELETE FROM sessions WHERE id = ?1",
    [GB_ROW_DEL_BUFFER] = "DELETE FROM buffers WHERE id = ?1",
    [GB_ROW_DEL_POOL] = "DELETE FROM pools WHERE id = ?1",
    [GB_ROW_PUT_COUNTERS] = "INSERT OR REPLACE INTO counters(id"
#define GB_COUNTER(name) ", " #name
#include "model/counters.def"
#undef GB_COUNTER
                            ") VALUES(1"
#define GB_COUNTER(name) ", ?"
#include "model/counters.def"
#undef GB_COUNTER
                            ")",
    [GB_ROW_PUT_COUNTED] = "INSERT OR REPLACE INTO history_counted(id"
#define GB_COUNTER(name) ", " #name
#include "model/counters.def"
#undef GB_COUNTER
                           ") VALUES(1"
#define GB_COUNTER(name) ", ?"
#include "model/counters.def"
#undef GB_COUNTER
                           ")",
    [GB_ROW_PUT_ANSWER] =
        "INSERT INTO answers(key, fingerprint, expires_at_us, status, headers, body) VALUES(?1, ?2, ?3, ?4, ?5, ?6)"
        " ON CONFLICT(key) DO UPDATE SET fingerprint = ?2, expires_at_us = ?3, status = ?4, headers = ?5, body = ?6",
    [GB_ROW_EXPIRE_ANSWERS] = "DELETE FROM answers WHERE expires_at_us <= ?1",
    /* A token that was revoked meanwhile leaves no row. */
    [GB_ROW_PUT_TOKEN_USE] = "INSERT OR REPLACE INTO token_uses(token_id, at_us, address) SELECT ?1, ?2, ?3"
                             " WHERE ?1 < 0 OR EXISTS (SELECT 1 FROM tokens WHERE id = ?1)",
    [GB_ROW_DROP_ANSWERS] = "DELETE FROM answers WHERE id <= (SELECT max(id) FROM answers) - ?1",
    [GB_ROW_DEL_ANSWERS_OF] = "DELETE FROM answers WHERE key >= printf('s%015x', ?1) AND key < printf('s%015xg', ?1)",
    [GB_ROW_PUT_STORED] = "INSERT OR REPLACE INTO stored(buffer_id, generation, run, file_generation, file_tag, bytes,"
                          " dtype, shape, crc32c, blocks, data)"
                          " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    [GB_ROW_RENUMBER_STORED] = "UPDATE stored SET generation = ?2, run = ?3 WHERE buffer_id = ?1",
    [GB_ROW_DEL_STORED] = "DELETE FROM stored WHERE buffer_id = ?1",
};

static const char sessions_sql[] = "SELECT id, version, created_at_us, updated_at_us"
#define GB_SESSION_FIELD(name, ...) ", " #name
#define GB_SESSION_QUOTA(name, ...) ", quota_" #name
#define GB_SESSION_PARTITION(name, ...) ", " #name
#include "model/session.def"
                                   " FROM sessions ORDER BY id";

static const char buffers_sql[] = "SELECT id, version, created_at_us, updated_at_us"
#define GB_BUFFER_FIELD(name, type, how, ...) COLUMN_##how(", " #name) LAST_##how(", " #name)
#include "model/buffer.def"
                                  " FROM buffers ORDER BY id";

static const char pools_sql[] = "SELECT id, version, created_at_us, updated_at_us"
#define GB_POOL_FIELD(name, ...) ", " #name
#include "model/pool.def"
                                " FROM pools ORDER BY id";

/* The order of stored is that of its key. data is not among the columns: SQLite then reads none of its pages. */
static const char stored_sql[] = "SELECT buffer_id, stored.generation, run, file_generation, file_tag,"
                                 " stored.bytes, stored.dtype, stored.shape, stored.crc32c, blocks"
                                 " FROM stored CROSS JOIN buffers ON buffers.id = buffer_id ORDER BY buffer_id";

static const char answers_sql[] =
    "SELECT key, fingerprint, expires_at_us, status, headers, body FROM answers ORDER BY id";

const char gb_row_get_counters_sql[] = "SELECT id"
#define GB_COUNTER(name) ", " #name
#include "model/counters.def"
#undef GB_COUNTER
                                       " FROM counters";

const char gb_row_get_counted_sql[] = "SELECT id"
#define GB_COUNTER(name) ", " #name
#include "model/counters.def"
#undef GB_COUNTER
                                      " FROM history_counted";

/* --- to rows ------------------------------------------------------------------------------------------------------ */

/* Fields in order; the first failure sticks. */
struct binder {
    sqlite3_stmt *stmt;
    int at;
    int result;
};

static void keep(struct binder *b, int r) {
    if (b->result == SQLITE_OK)
        b->result = r;
}

static void bind_i64(struct binder *b, int64_t value) {
    keep(b, sqlite3_bind_int64(b->stmt, ++b->at, value));
}

/* NULL stands for what SQLite cannot count, which is GB_UNLIMITED in practice. */
static void bind_u64(struct binder *b, uint64_t value) {
    if (value > INT64_MAX)
        keep(b, sqlite3_bind_null(b->stmt, ++b->at));
    else
        bind_i64(b, (int64_t)value);
}

static void bind_text(struct binder *b, const char *text) {
    keep(b, sqlite3_bind_text(b->stmt, ++b->at, text, -1, SQLITE_STATIC));
}

/* A pointer to nothing would be bound as NULL. */
static void bind_blob(struct binder *b, const void *data, size_t n) {
    b->at++;
    keep(b, n == 0 ? sqlite3_bind_zeroblob(b->stmt, b->at, 0)
                   : sqlite3_bind_blob64(b->stmt, b->at, data, n, SQLITE_STATIC));
}

int gb_row_bind_token_use(sqlite3_stmt *stmt, const struct gb_token_use *use) {
    struct binder b = {.stmt = stmt};

    bind_i64(&b, use->id);
    bind_i64(&b, use->at_us);
    bind_text(&b, use->from);
    return b.result;
}

/* The daemon runs on little-endian machines only, so that blocks are bound as they are. */
static void bind_shape(struct binder *b, const struct gb_shape *shape) {
    char text[GB_SHAPE_TEXT_SIZE];

    gb_shape_text(shape, text);
    keep(b, sqlite3_bind_text(b->stmt, ++b->at, text, -1, SQLITE_TRANSIENT));
}

/* Where the bytes are is a fact of the process: to the next one they are on disk. */
static const char *persisted_state(enum gb_buffer_state state) {
    return gb_buffer_state_name(state == GB_BUFFER_STORED ? GB_BUFFER_READY : state);
}

static void bind_crc(struct binder *b, bool known, uint32_t crc) {
    if (known)
        bind_i64(b, crc);
    else
        keep(b, sqlite3_bind_null(b->stmt, ++b->at));
}

/* By the types of fields: the next column is bound to v. */
#define BIND_i64(b, v) bind_i64(b, v)
#define BIND_u64(b, v) bind_u64(b, v)
#define BIND_count(b, v) bind_i64(b, v)
#define BIND_index(b, v) bind_i64(b, v)
#define BIND_flag(b, v) bind_i64(b, v)
#define BIND_limit(b, v) bind_u64(b, v)
#define BIND_maximum(b, v) bind_i64(b, (v) < INT64_MAX ? (int64_t)(v) : INT64_MAX)
#define BIND_priority(b, v) bind_i64(b, v)
#define BIND_crc(b, v) bind_crc(b, rec->has_crc32c, v)
#define BIND_name(b, v) bind_text(b, (v).s)
#define BIND_phrase(b, v) bind_text(b, (v).s)
#define BIND_claim(b, v) bind_text(b, v)
#define BIND_text(b, v) bind_text(b, gb_text_s(v))
#define BIND_labels(b, v) bind_text(b, gb_labels_text(v))
#define BIND_shape(b, v) bind_shape(b, &(v))
#define BIND_dtype(b, v) bind_text(b, gb_dtype_name(v))
#define BIND_kind(b, v) bind_text(b, gb_kind_name(v))
#define BIND_state(b, v) bind_text(b, persisted_state(v))
#define BIND_head(b, v) bind_text(b, gb_head_name(v))
#define BIND_durability(b, v) bind_text(b, gb_durability_name(v))
#define BIND_spill(b, v) bind_text(b, gb_spill_name(v))

/* By given, and by stops_on_partition. */
static const char *const partition_words[2][2] = {{"serve", "stop"}, {"serve given", "stop given"}};

int gb_row_bind_session(sqlite3_stmt *stmt, const struct gb_session_rec *rec) {
    struct binder b = {.stmt = stmt};

    bind_i64(&b, rec->id);
    bind_i64(&b, rec->version);
    bind_i64(&b, rec->created_at_us);
    bind_i64(&b, rec->updated_at_us);
#define GB_SESSION_FIELD(name, type, ...) BIND_##type(&b, rec->name);
#define GB_SESSION_QUOTA(name, type, ...) BIND_##type(&b, rec->quota.name);
#define GB_SESSION_PARTITION(...) bind_text(&b, partition_words[rec->given][rec->stops_on_partition]);
#include "model/session.def"
    return b.result;
}

int gb_row_bind_stored(sqlite3_stmt *stmt, const struct gb_stored_rec *rec, const void *data) {
    struct binder b = {.stmt = stmt};

    bind_i64(&b, rec->buffer_id);
    bind_i64(&b, rec->generation);
    bind_i64(&b, rec->run);
    bind_i64(&b, rec->file_generation);
    bind_i64(&b, rec->file_tag);
    bind_i64(&b, (int64_t)rec->bytes);
    bind_text(&b, gb_dtype_name(rec->dtype));
    bind_shape(&b, &rec->shape);
    bind_i64(&b, rec->crc32c);
    bind_blob(&b, rec->blocks, gb_stored_block_count(rec->bytes) * sizeof(*rec->blocks));
    if (gb_stored_inline(rec))
        bind_blob(&b, data, rec->bytes);
    else
        keep(&b, sqlite3_bind_null(stmt, ++b.at));
    return b.result;
}

int gb_row_bind_renumbered(sqlite3_stmt *stmt, const struct gb_stored_rec *rec) {
    struct binder b = {.stmt = stmt};

    bind_i64(&b, rec->buffer_id);
    bind_i64(&b, rec->generation);
    bind_i64(&b, rec->run);
    return b.result;
}

/* Records that follow each other have much in common, and binding costs a third of the row. */
int gb_row_bind_buffer(sqlite3_stmt *stmt, const struct gb_buffer_rec *rec, const struct gb_buffer_rec *before) {
    struct binder b = {.stmt = stmt};

/* The next column, which may be bound to the same value already. */
#define BIND_NEXT(name, type)                                                                                          \
    if (before && GB_SAME_##type(rec->name, before->name))                                                             \
        b.at++;                                                                                                        \
    else                                                                                                               \
        BIND_##type(&b, rec->name);
#define KEPT_HEAD(name, type)
#define KEPT_MEMORY(name, type)
#define KEPT_PLACE(name, type)
#define KEPT_KEPT(name, type) BIND_NEXT(name, type)
#define PLACE_HEAD(name, type)
#define PLACE_MEMORY(name, type)
#define PLACE_PLACE(name, type) BIND_NEXT(name, type)
#define PLACE_KEPT(name, type)
    BIND_NEXT(version, i64)
    BIND_NEXT(created_at_us, i64)
    BIND_NEXT(updated_at_us, i64)
#define GB_BUFFER_FIELD(name, type, how, ...) KEPT_##how(name, type)
#include "model/buffer.def"
    bind_i64(&b, rec->id);
    if (sqlite3_bind_parameter_count(stmt) > b.at) {
#define GB_BUFFER_FIELD(name, type, how, ...) PLACE_##how(name, type)
#include "model/buffer.def"
    }
    return b.result;
}

int gb_row_bind_pool(sqlite3_stmt *stmt, const struct gb_pool_rec *rec) {
    struct binder b = {.stmt = stmt};

    bind_i64(&b, rec->id);
    bind_i64(&b, rec->version);
    bind_i64(&b, rec->created_at_us);
    bind_i64(&b, rec->updated_at_us);
#define GB_POOL_FIELD(name, type, ...) BIND_##type(&b, rec->name);
#define GB_POOL_CONFIG(name, type, ...) BIND_##type(&b, rec->config.name);
#include "model/pool.def"
    return b.result;
}

int gb_row_bind_counters(sqlite3_stmt *stmt, const struct gb_counters *counters) {
    struct binder b = {.stmt = stmt};

#define GB_COUNTER(name) bind_i64(&b, counters->name < INT64_MAX ? (int64_t)counters->name : INT64_MAX);
#include "model/counters.def"
#undef GB_COUNTER
    return b.result;
}

int gb_row_bind_answer(sqlite3_stmt *stmt, const struct gb_store_mark *mark, int status, const char *headers,
                       size_t headers_len, const void *body, size_t body_len) {
    struct binder b = {.stmt = stmt};

    bind_text(&b, mark->key);
    bind_text(&b, mark->fingerprint);
    bind_i64(&b, mark->expires_at_us);
    bind_i64(&b, status);
    keep(&b, sqlite3_bind_text(stmt, ++b.at, headers, (int)headers_len, SQLITE_STATIC));
    if (body)
        bind_blob(&b, body, body_len);
    else
        keep(&b, sqlite3_bind_null(stmt, ++b.at));
    return b.result;
}

/* --- from rows ---------------------------------------------------------------------------------------------------- */

/* Columns in order; one that does not fit makes the row bad, and the reading continues. */
struct reader {
    sqlite3_stmt *stmt;
    int at;
    bool bad;
};

static int64_t read_i64(struct reader *r) {
    return sqlite3_column_int64(r->stmt, r->at++);
}

static uint64_t read_u64(struct reader *r) {
    bool unlimited = sqlite3_column_type(r->stmt, r->at) == SQLITE_NULL;
    int64_t value = read_i64(r);

    return unlimited ? GB_UNLIMITED : (uint64_t)value;
}

static const char *read_text(struct reader *r, size_t *ret_len) {
    const char *text = (const char *)sqlite3_column_text(r->stmt, r->at);

    *ret_len = (size_t)sqlite3_column_bytes(r->stmt, r->at++);
    return text ? text : "";
}

static void copy_text(struct reader *r, char *out, size_t size) {
    size_t len;
    const char *text = read_text(r, &len);

    if (len >= size) {
        r->bad = true;
        len = 0;
    }
    memcpy(out, text, len);
    out[len] = '\0';
}

/* NULL, and the row is bad, where the text cannot be taken. */
static struct gb_text *read_labels(struct reader *r) {
    struct gb_text *labels = NULL;
    size_t len;
    const char *text = read_text(r, &len);

    r->bad |= len >= GB_LABELS_MAX || gb_labels_make(text, &labels, NULL) < 0;
    return labels;
}

static enum gb_buffer_state read_state(struct reader *r) {
    static const enum gb_buffer_state states[] = {GB_BUFFER_READY, GB_BUFFER_PARTIAL, GB_BUFFER_LOST};
    size_t len;
    const char *text = read_text(r, &len);
    size_t i;

    for (i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
        if (strcmp(gb_buffer_state_name(states[i]), text) == 0)
            return states[i];
    }
    r->bad = true;
    return GB_BUFFER_LOST;
}

static enum gb_durability read_durability(struct reader *r) {
    enum gb_durability durability = GB_DURABILITY_NONE;
    size_t len;
    const char *text = read_text(r, &len);

    r->bad |= gb_durability_parse(text, len, &durability, NULL) < 0;
    return durability;
}

static enum gb_spill read_spill(struct reader *r) {
    enum gb_spill spill = GB_SPILL_NEVER;
    size_t len;
    const char *text = read_text(r, &len);

    r->bad |= gb_spill_parse(text, len, &spill, NULL) < 0;
    return spill;
}

static void read_partition(struct reader *r, struct gb_session_rec *ret) {
    size_t len;
    const char *text = read_text(r, &len);
    int i;

    for (i = 0; i < 4 && strcmp(text, partition_words[i / 2][i % 2]) != 0; i++)
        ;
    r->bad |= i == 4;
    ret->given = i / 2 == 1;
    ret->stops_on_partition = i % 2 == 1;
}

static uint32_t read_u32(struct reader *r) {
    int64_t value = read_i64(r);

    r->bad |= value < 0 || value > UINT32_MAX;
    return (uint32_t)value;
}

static struct gb_text *read_line(struct reader *r) {
    size_t len;
    const char *text = read_text(r, &len);
    struct gb_text *holders = len > 0 ? gb_text_new(text, len) : NULL;

    r->bad |= len > 0 && !holders;
    return holders;
}

static enum gb_dtype read_dtype(struct reader *r) {
    enum gb_dtype dtype = 0;
    size_t len;
    const char *text = read_text(r, &len);

    r->bad |= gb_dtype_parse(text, len, &dtype, NULL) < 0;
    return dtype;
}

static void read_shape(struct reader *r, struct gb_shape *ret) {
    size_t len;
    const char *text = read_text(r, &len);

    r->bad |= gb_shape_parse(text, len, ret, NULL) < 0;
}

static enum gb_kind read_kind(struct reader *r) {
    enum gb_kind kind = 0;
    size_t len;
    const char *text = read_text(r, &len);

    r->bad |= gb_kind_parse(text, len, &kind, NULL) < 0;
    return kind;
}

static enum gb_head read_head(struct reader *r) {
    enum gb_head head = 0;
    size_t len;
    const char *text = read_text(r, &len);

    r->bad |= gb_head_parse(text, len, &head, NULL) < 0;
    return head;
}

static uint32_t read_crc(struct reader *r, bool *ret_known) {
    *ret_known = sqlite3_column_type(r->stmt, r->at) != SQLITE_NULL;
    return (uint32_t)read_i64(r);
}

/* By the types of fields: v is read from the next column. */
#define READ_i64(r, v) v = read_i64(r)
#define READ_u64(r, v) v = read_u64(r)
#define READ_count(r, v) v = read_u32(r)
#define READ_index(r, v) v = (int)read_i64(r)
#define READ_flag(r, v) v = read_i64(r) != 0
#define READ_limit(r, v) v = read_u64(r)
#define READ_maximum(r, v) v = read_u64(r)
#define READ_priority(r, v) v = (int)read_i64(r)
#define READ_crc(r, v) v = read_crc(r, &ret->has_crc32c)
#define READ_name(r, v) copy_text(r, (v).s, sizeof((v).s))
#define READ_phrase(r, v) copy_text(r, (v).s, sizeof((v).s))
#define READ_claim(r, v) copy_text(r, v, sizeof(v))
#define READ_text(r, v) v = read_line(r)
#define READ_labels(r, v) v = read_labels(r)
#define READ_shape(r, v) read_shape(r, &(v))
#define READ_dtype(r, v) v = read_dtype(r)
#define READ_kind(r, v) v = read_kind(r)
#define READ_state(r, v) v = read_state(r)
#define READ_head(r, v) v = read_head(r)
#define READ_durability(r, v) v = read_durability(r)
#define READ_spill(r, v) v = read_spill(r)

union record {
    struct gb_session_rec session;
    struct gb_pool_rec pool;
    struct gb_buffer_rec buffer;
    struct gb_stored_rec stored;
    struct gb_store_idempotency_reply reply;
};

/* Read the present row. Return 0, or -1 with INTERNAL naming the record that cannot be understood; rec then holds
 * nothing. */
static int read_session(sqlite3_stmt *stmt, union record *rec, struct gb_error *err) {
    struct gb_session_rec *ret = &rec->session;
    struct reader r = {.stmt = stmt};

    memset(ret, 0, sizeof(*ret));
    ret->id = read_i64(&r);
    ret->version = read_i64(&r);
    ret->created_at_us = read_i64(&r);
    ret->updated_at_us = read_i64(&r);
#define GB_SESSION_FIELD(name, type, ...) READ_##type(&r, ret->name);
#define GB_SESSION_QUOTA(name, type, ...) READ_##type(&r, ret->quota.name);
#define GB_SESSION_PARTITION(...) read_partition(&r, ret);
#include "model/session.def"
    if (r.bad) {
        gb_session_rec_done(ret);
        return gb_error_set(err, GB_ERR_INTERNAL, "the database's record of session %lld cannot be understood",
                            (long long)ret->id);
    }
    return 0;
}

/* Earlier versions took shapes that are refused today. The bytes ended with the process that had them: what remains is
 * described as one dimension. */
static void flatten_impossible(struct gb_buffer_rec *rec) {
    uint64_t unused;

    if (gb_shape_bytes(&rec->shape, rec->dtype, &unused, NULL) < 0)
        rec->shape = (struct gb_shape){.dims = 1, .dim = {rec->bytes / gb_dtype_bytes(rec->dtype)}};
}

static int read_buffer(sqlite3_stmt *stmt, union record *rec, struct gb_error *err) {
    struct gb_buffer_rec *ret = &rec->buffer;
    struct reader r = {.stmt = stmt};

    memset(ret, 0, sizeof(*ret));
    ret->id = read_i64(&r);
    ret->version = read_i64(&r);
    ret->created_at_us = read_i64(&r);
    ret->updated_at_us = read_i64(&r);
#define ROW_HEAD(name, type)
#define ROW_MEMORY(name, type)
#define ROW_PLACE(name, type) READ_##type(&r, ret->name);
#define ROW_KEPT(name, type) READ_##type(&r, ret->name);
#define GB_BUFFER_FIELD(name, type, how, ...) ROW_##how(name, type)
#include "model/buffer.def"
    flatten_impossible(ret);
    if (r.bad) {
        gb_buffer_rec_done(ret);
        return gb_error_set(err, GB_ERR_INTERNAL, "the database's record of buffer %lld cannot be understood",
                            (long long)ret->id);
    }
    return 0;
}

static int read_pool(sqlite3_stmt *stmt, union record *rec, struct gb_error *err) {
    struct gb_pool_rec *ret = &rec->pool;
    struct reader r = {.stmt = stmt};

    memset(ret, 0, sizeof(*ret));
    ret->id = read_i64(&r);
    ret->version = read_i64(&r);
    ret->created_at_us = read_i64(&r);
    ret->updated_at_us = read_i64(&r);
#define GB_POOL_FIELD(name, type, ...) READ_##type(&r, ret->name);
#define GB_POOL_CONFIG(name, type, ...) READ_##type(&r, ret->config.name);
#include "model/pool.def"
    if (r.bad)
        return gb_error_set(err, GB_ERR_INTERNAL, "the database's record of pool %lld cannot be understood",
                            (long long)ret->id);
    return 0;
}

static int read_stored(sqlite3_stmt *stmt, union record *rec, struct gb_error *err) {
    struct gb_stored_rec *ret = &rec->stored;
    struct reader r = {.stmt = stmt};
    uint32_t *blocks = NULL;
    int64_t bytes;
    size_t n;

    *ret = (struct gb_stored_rec){.buffer_id = read_i64(&r)};
    ret->generation = read_i64(&r);
    ret->run = read_u32(&r);
    ret->file_generation = read_i64(&r);
    ret->file_tag = read_u32(&r);
    bytes = read_i64(&r);
    ret->bytes = (uint64_t)bytes;
    ret->dtype = read_dtype(&r);
    read_shape(&r, &ret->shape);
    ret->crc32c = read_u32(&r);
    n = gb_stored_block_count(ret->bytes) * sizeof(*blocks);
    r.bad |= bytes < 0 || (uint64_t)sqlite3_column_bytes(stmt, r.at) != n;
    if (r.bad)
        return gb_error_set(err, GB_ERR_INTERNAL,
                            "the database's record of the stored bytes of buffer %lld cannot be understood",
                            (long long)ret->buffer_id);
    blocks = malloc(n + 1); /* those of the row may not be aligned */
    if (!blocks)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    if (n > 0)
        memcpy(blocks, sqlite3_column_blob(stmt, r.at), n);
    ret->blocks = blocks;
    return 0;
}

/* False unless the column has a text that fills out. */
static bool fill_text(sqlite3_stmt *stmt, int column, char *out, size_t size) {
    const char *text = (const char *)sqlite3_column_text(stmt, column);
    size_t n = (size_t)sqlite3_column_bytes(stmt, column);

    if (!text || n + 1 != size || strlen(text) != n)
        return false;
    memcpy(out, text, size);
    return true;
}

static int read_reply(sqlite3_stmt *stmt, union record *rec, struct gb_error *err) {
    struct gb_store_idempotency_reply *ret = &rec->reply;

    memset(ret, 0, sizeof(*ret));
    if (!fill_text(stmt, 0, ret->mark.key, sizeof(ret->mark.key)) ||
        !fill_text(stmt, 1, ret->mark.fingerprint, sizeof(ret->mark.fingerprint)))
        return gb_error_set(err, GB_ERR_INTERNAL, "the database's record of an answer cannot be understood");
    ret->mark.expires_at_us = sqlite3_column_int64(stmt, 2);
    ret->status = sqlite3_column_int(stmt, 3);
    ret->headers = (const char *)sqlite3_column_text(stmt, 4);
    ret->body = sqlite3_column_blob(stmt, 5);
    ret->body_len = (size_t)sqlite3_column_bytes(stmt, 5);
    return 0;
}

void gb_row_read_counters(sqlite3_stmt *stmt, struct gb_counters *ret) {
    struct reader r = {.stmt = stmt, .at = 1};

#define GB_COUNTER(name) ret->name = (uint64_t)read_i64(&r);
#include "model/counters.def"
#undef GB_COUNTER
}

/* --- all rows of a kind ------------------------------------------------------------------------------------------- */

static void session_done(union record *rec) {
    gb_session_rec_done(&rec->session);
}

static void buffer_done(union record *rec) {
    gb_buffer_rec_done(&rec->buffer);
}

static void stored_done(union record *rec) {
    free((uint32_t *)(uintptr_t)rec->stored.blocks);
}

static const struct kind {
    const char *sql;
    int (*read)(sqlite3_stmt *stmt, union record *rec, struct gb_error *err);
    void (*done)(union record *rec); /* NULL: a record holds nothing */
} kinds[] = {
    [GB_STORE_SESSIONS] = {sessions_sql, read_session, session_done},
    [GB_STORE_POOLS] = {pools_sql, read_pool, NULL},
    [GB_STORE_BUFFERS] = {buffers_sql, read_buffer, buffer_done},
    [GB_STORE_STORED] = {stored_sql, read_stored, stored_done},
    [GB_STORE_REPLIES] = {answers_sql, read_reply, NULL},
};

struct walk {
    const struct kind *kind;
    gb_store_visit_fn *visit;
    void *arg;
};

static int row(void *arg, sqlite3_stmt *stmt, struct gb_error *err) {
    struct walk *walk = arg;
    union record rec;
    int r;

    if (walk->kind->read(stmt, &rec, err) < 0)
        return -1;
    r = walk->visit(walk->arg, &rec, err);
    if (walk->kind->done)
        walk->kind->done(&rec);
    return r;
}

int gb_row_walk(sqlite3 *db, enum gb_store_kind kind, gb_store_visit_fn *visit, void *arg, struct gb_error *err) {
    struct walk walk = {.kind = &kinds[kind], .visit = visit, .arg = arg};

    return gb_db_each_row(db, walk.kind->sql, row, &walk, err);
}
