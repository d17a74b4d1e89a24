#include "store/rows.h"

#include "store/idempotency_replies.h"

#include <stdbool.h>
#include <string.h>

const char *const gb_row_put_sql[GB_ROW_STMT_COUNT] = {
    [GB_ROW_PUT_SESSION] =
        "INSERT INTO sessions(id, name, quota_bytes, quota_buffers, quota_pinned_bytes, idle_ttl_s, labels, version,"
        " created_at_us, updated_at_us, pool_id, durability, spill, priority, quota_stored_bytes, fleet_epoch,"
        " fleet_claim, on_partition, aside_epoch, failover_after_s, replicas, holders, tenant)"
        " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, "
        "?23)"
        " ON CONFLICT(id) DO UPDATE SET name = ?2, quota_bytes = ?3, quota_buffers = ?4, quota_pinned_bytes = ?5,"
        " idle_ttl_s = ?6, labels = ?7, version = ?8, created_at_us = ?9, updated_at_us = ?10, pool_id = ?11,"
        " durability = ?12, spill = ?13, priority = ?14, quota_stored_bytes = ?15, fleet_epoch = ?16,"
        " fleet_claim = ?17, on_partition = ?18, aside_epoch = ?19, failover_after_s = ?20, replicas = ?21,"
        " holders = ?22, tenant = ?23",
    [GB_ROW_PUT_BUFFER] =
        "INSERT INTO buffers(id, session_id, name, bytes, dtype, shape, kind, device, pool, stream, state, generation,"
        " version, crc32c, labels, created_at_us, updated_at_us, mirrored, head, sealed, durability,"
        " spill, resident)"
        " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22,"
        " ?23)"
        " ON CONFLICT(id) DO UPDATE SET bytes = ?4, dtype = ?5, shape = ?6, kind = ?7,"
        " device = ?8, pool = ?9, stream = ?10, state = ?11, generation = ?12, version = ?13, crc32c = ?14,"
        " labels = ?15, created_at_us = ?16, updated_at_us = ?17, mirrored = ?18, head = ?19,"
        " sealed = ?20, durability = ?21, spill = ?22, resident = ?23",
    [GB_ROW_UPDATE_BUFFER] =
        "UPDATE buffers SET bytes = ?4, dtype = ?5, shape = ?6, kind = ?7, device = ?8, pool = ?9, stream = ?10,"
        " state = ?11, generation = ?12, version = ?13, crc32c = ?14, labels = ?15, created_at_us = ?16,"
        " updated_at_us = ?17, mirrored = ?18, head = ?19, sealed = ?20, durability = ?21,"
        " spill = ?22, resident = ?23 WHERE id = ?1",
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
    [GB_ROW_PUT_ANSWER] = GB_ANSWER_PUT_SQL,
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

const char gb_row_get_sessions_sql[] =
    "SELECT id, name, quota_bytes, quota_buffers, quota_pinned_bytes, idle_ttl_s, labels, version, created_at_us,"
    " updated_at_us, pool_id, durability, spill, priority, quota_stored_bytes, fleet_epoch, fleet_claim, on_partition,"
    " aside_epoch, failover_after_s, replicas, holders, tenant FROM sessions ORDER BY id";

const char gb_row_get_buffers_sql[] =
    "SELECT id, session_id, name, bytes, dtype, shape, kind, device, pool, stream, state, generation, version, crc32c,"
    " labels, created_at_us, updated_at_us, mirrored, head, sealed, durability, spill, resident FROM buffers"
    " ORDER BY id";

const char gb_row_get_pools_sql[] = "SELECT id, version, created_at_us, updated_at_us"
#define GB_POOL_FIELD(name, ...) ", " #name
#include "model/pool.def"
                                    " FROM pools ORDER BY id";

/* The order of stored is that of its key. data is not among the columns: SQLite then reads none of its pages. */
const char gb_row_get_stored_sql[] = "SELECT buffer_id, stored.generation, run, file_generation, file_tag,"
                                     " stored.bytes, stored.dtype, stored.shape, stored.crc32c, blocks"
                                     " FROM stored CROSS JOIN buffers ON buffers.id = buffer_id ORDER BY buffer_id";

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

/* Fields in order; the first failure sticks. */
struct binder {
    sqlite3_stmt *stmt;
    int at;
    int result;
    bool goes_on; /* a record was bound to it before */
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

/* By the types of fields: the next column is bound to v. */
#define BIND_i64(b, v) bind_i64(b, v)
#define BIND_index(b, v) bind_i64(b, v)
#define BIND_flag(b, v) bind_i64(b, v)
#define BIND_limit(b, v) bind_u64(b, v)
#define BIND_maximum(b, v) bind_i64(b, (v) < INT64_MAX ? (int64_t)(v) : INT64_MAX)
#define BIND_name(b, v) bind_text(b, (v).s)
#define BIND_phrase(b, v) bind_text(b, (v).s)

int gb_row_bind_token_use(sqlite3_stmt *stmt, const struct gb_token_use *use) {
    struct binder b = {.stmt = stmt};

    bind_i64(&b, use->id);
    bind_i64(&b, use->at_us);
    bind_text(&b, use->from);
    return b.result;
}

/* By given, and by stops_on_partition. */
static const char *const partition_words[2][2] = {{"serve", "stop"}, {"serve given", "stop given"}};

int gb_row_bind_session(sqlite3_stmt *stmt, const struct gb_session_rec *rec) {
    struct binder b = {.stmt = stmt};

    bind_i64(&b, rec->id);
    bind_text(&b, rec->name.s);
    bind_u64(&b, rec->quota.bytes);
    bind_u64(&b, rec->quota.buffers);
    bind_u64(&b, rec->quota.pinned_bytes);
    bind_u64(&b, rec->idle_ttl_s);
    bind_text(&b, gb_labels_text(rec->labels));
    bind_i64(&b, rec->version);
    bind_i64(&b, rec->created_at_us);
    bind_i64(&b, rec->updated_at_us);
    bind_i64(&b, rec->pool_id);
    bind_text(&b, gb_durability_name(rec->durability));
    bind_text(&b, gb_spill_name(rec->spill));
    bind_i64(&b, rec->priority);
    bind_u64(&b, rec->quota.stored_bytes);
    bind_i64(&b, rec->fleet_epoch);
    bind_text(&b, rec->fleet_claim);
    bind_text(&b, partition_words[rec->given][rec->stops_on_partition]);
    bind_i64(&b, rec->aside_epoch);
    bind_u64(&b, rec->failover_after_s);
    bind_i64(&b, rec->replicas);
    bind_text(&b, gb_text_s(rec->holders));
    bind_text(&b, rec->tenant.s);
    return b.result;
}

/* The daemon runs on little-endian machines only, so that blocks are bound as they are. */
static void bind_shape(struct binder *b, const struct gb_shape *shape) {
    char text[GB_SHAPE_TEXT_SIZE];

    gb_shape_text(shape, text);
    keep(b, sqlite3_bind_text(b->stmt, ++b->at, text, -1, SQLITE_TRANSIENT));
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

/* The same where the record before may have had the same value: then it is bound already. */
static void bind_next_i64(struct binder *b, int64_t value, int64_t before) {
    if (b->goes_on && value == before)
        b->at++;
    else
        bind_i64(b, value);
}

static void bind_next_text(struct binder *b, const char *text, const char *before) {
    if (b->goes_on && strcmp(text, before) == 0)
        b->at++;
    else
        bind_text(b, text);
}

static void bind_next_shape(struct binder *b, const struct gb_shape *shape, const struct gb_shape *before) {
    if (b->goes_on && gb_shape_equal(shape, before))
        b->at++;
    else
        bind_shape(b, shape);
}

/* Where the bytes are is a fact of the process: to the next one they are on disk. */
static const char *persisted_state(enum gb_buffer_state state) {
    return gb_buffer_state_name(state == GB_BUFFER_STORED ? GB_BUFFER_READY : state);
}

/* Records that follow each other have much in common, and binding costs a third of the row. */
int gb_row_bind_buffer(sqlite3_stmt *stmt, const struct gb_buffer_rec *rec, const struct gb_buffer_rec *before) {
    struct binder b = {.stmt = stmt, .goes_on = before != NULL};

    if (!before)
        before = rec;
    bind_i64(&b, rec->id);
    bind_next_i64(&b, rec->session_id, before->session_id);
    bind_next_text(&b, rec->name.s, before->name.s);
    bind_u64(&b, rec->bytes);
    bind_next_text(&b, gb_dtype_name(rec->dtype), gb_dtype_name(before->dtype));
    bind_next_shape(&b, &rec->shape, &before->shape);
    bind_next_text(&b, gb_kind_name(rec->kind), gb_kind_name(before->kind));
    bind_next_i64(&b, rec->device, before->device);
    bind_next_text(&b, rec->pool.s, before->pool.s);
    bind_next_text(&b, rec->stream.s, before->stream.s);
    bind_next_text(&b, persisted_state(rec->state), persisted_state(before->state));
    bind_next_i64(&b, rec->generation, before->generation);
    bind_next_i64(&b, rec->version, before->version);
    if (rec->has_crc32c)
        bind_i64(&b, rec->crc32c);
    else
        keep(&b, sqlite3_bind_null(stmt, ++b.at));
    bind_next_text(&b, gb_labels_text(rec->labels), gb_labels_text(before->labels));
    bind_next_i64(&b, rec->created_at_us, before->created_at_us);
    bind_next_i64(&b, rec->updated_at_us, before->updated_at_us);
    bind_next_i64(&b, rec->mirrored, before->mirrored);
    bind_next_text(&b, gb_head_name(rec->head), gb_head_name(before->head));
    bind_next_i64(&b, rec->sealed, before->sealed);
    bind_next_text(&b, gb_durability_name(rec->durability), gb_durability_name(before->durability));
    bind_next_text(&b, gb_spill_name(rec->spill), gb_spill_name(before->spill));
    bind_next_i64(&b, rec->resident, before->resident);
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

static struct gb_text *read_holders(struct reader *r) {
    size_t len;
    const char *text = read_text(r, &len);
    struct gb_text *holders = len > 0 ? gb_text_new(text, len) : NULL;

    r->bad |= len > 0 && !holders;
    return holders;
}

/* By the types of fields: v is read from the next column. */
#define READ_i64(r, v) (v = read_i64(r))
#define READ_index(r, v) (v = (int)read_i64(r))
#define READ_flag(r, v) (v = read_i64(r) != 0)
#define READ_limit(r, v) (v = read_u64(r))
#define READ_maximum(r, v) (v = read_u64(r))
#define READ_name(r, v) copy_text(r, (v).s, sizeof((v).s))
#define READ_phrase(r, v) copy_text(r, (v).s, sizeof((v).s))

int gb_row_read_session(sqlite3_stmt *stmt, struct gb_session_rec *ret, struct gb_error *err) {
    struct reader r = {.stmt = stmt};

    memset(ret, 0, sizeof(*ret));
    ret->id = read_i64(&r);
    copy_text(&r, ret->name.s, sizeof(ret->name.s));
    ret->quota.bytes = read_u64(&r);
    ret->quota.buffers = read_u64(&r);
    ret->quota.pinned_bytes = read_u64(&r);
    ret->idle_ttl_s = read_u64(&r);
    ret->labels = read_labels(&r);
    ret->version = read_i64(&r);
    ret->created_at_us = read_i64(&r);
    ret->updated_at_us = read_i64(&r);
    ret->pool_id = read_i64(&r);
    ret->durability = read_durability(&r);
    ret->spill = read_spill(&r);
    ret->priority = (int)read_i64(&r);
    ret->quota.stored_bytes = read_u64(&r);
    ret->fleet_epoch = read_i64(&r);
    copy_text(&r, ret->fleet_claim, sizeof(ret->fleet_claim));
    read_partition(&r, ret);
    ret->aside_epoch = read_i64(&r);
    ret->failover_after_s = read_u64(&r);
    ret->replicas = read_u32(&r);
    ret->holders = read_holders(&r);
    copy_text(&r, ret->tenant.s, sizeof(ret->tenant.s));
    if (r.bad) {
        gb_session_rec_done(ret);
        return gb_error_set(err, GB_ERR_INTERNAL, "the database's record of session %lld cannot be understood",
                            (long long)ret->id);
    }
    return 0;
}

/* Earlier versions took shapes that are refused today. The bytes ended with the process that had them: what remains is
 * reported as one dimension. */
static void flatten_impossible(struct gb_buffer_rec *rec) {
    uint64_t unused;

    if (gb_shape_bytes(&rec->shape, rec->dtype, &unused, NULL) < 0)
        rec->shape = (struct gb_shape){.dims = 1, .dim = {rec->bytes / gb_dtype_bytes(rec->dtype)}};
}

/* dtype, shape and kind, which stand side by side. */
static void read_tensor(struct reader *r, struct gb_buffer_rec *ret) {
    const char *text;
    size_t len;

    text = read_text(r, &len);
    r->bad |= gb_dtype_parse(text, len, &ret->dtype, NULL) < 0;
    text = read_text(r, &len);
    r->bad |= gb_shape_parse(text, len, &ret->shape, NULL) < 0;
    flatten_impossible(ret);
    text = read_text(r, &len);
    r->bad |= gb_kind_parse(text, len, &ret->kind, NULL) < 0;
}

int gb_row_read_buffer(sqlite3_stmt *stmt, struct gb_buffer_rec *ret, struct gb_error *err) {
    struct reader r = {.stmt = stmt};
    const char *text;
    size_t len;

    memset(ret, 0, sizeof(*ret));
    ret->id = read_i64(&r);
    ret->session_id = read_i64(&r);
    copy_text(&r, ret->name.s, sizeof(ret->name.s));
    ret->bytes = read_u64(&r);
    read_tensor(&r, ret);
    ret->device = (int)read_i64(&r);
    copy_text(&r, ret->pool.s, sizeof(ret->pool.s));
    copy_text(&r, ret->stream.s, sizeof(ret->stream.s));
    ret->state = read_state(&r);
    ret->generation = read_i64(&r);
    ret->version = read_i64(&r);
    ret->has_crc32c = sqlite3_column_type(stmt, r.at) != SQLITE_NULL;
    ret->crc32c = (uint32_t)read_i64(&r);
    ret->labels = read_labels(&r);
    ret->created_at_us = read_i64(&r);
    ret->updated_at_us = read_i64(&r);
    ret->mirrored = read_i64(&r) != 0;
    text = read_text(&r, &len);
    r.bad |= gb_head_parse(text, len, &ret->head, NULL) < 0;
    ret->sealed = read_i64(&r) != 0;
    ret->durability = read_durability(&r);
    ret->spill = read_spill(&r);
    ret->resident = read_i64(&r) != 0;
    if (r.bad) {
        gb_buffer_rec_done(ret);
        return gb_error_set(err, GB_ERR_INTERNAL, "the database's record of buffer %lld cannot be understood",
                            (long long)ret->id);
    }
    return 0;
}

int gb_row_read_pool(sqlite3_stmt *stmt, struct gb_pool_rec *ret, struct gb_error *err) {
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

int gb_row_read_stored(sqlite3_stmt *stmt, struct gb_stored_rec *ret, const void **ret_blocks, struct gb_error *err) {
    struct reader r = {.stmt = stmt};
    const char *text;
    int64_t bytes;
    size_t len;

    *ret = (struct gb_stored_rec){.buffer_id = read_i64(&r)};
    ret->generation = read_i64(&r);
    ret->run = read_u32(&r);
    ret->file_generation = read_i64(&r);
    ret->file_tag = read_u32(&r);
    bytes = read_i64(&r);
    ret->bytes = (uint64_t)bytes;
    text = read_text(&r, &len);
    r.bad |= gb_dtype_parse(text, len, &ret->dtype, NULL) < 0;
    text = read_text(&r, &len);
    r.bad |= gb_shape_parse(text, len, &ret->shape, NULL) < 0;
    ret->crc32c = read_u32(&r);
    *ret_blocks = sqlite3_column_blob(stmt, r.at);
    r.bad |= bytes < 0 ||
             (uint64_t)sqlite3_column_bytes(stmt, r.at) != gb_stored_block_count(ret->bytes) * sizeof(*ret->blocks);
    if (r.bad)
        return gb_error_set(err, GB_ERR_INTERNAL,
                            "the database's record of the stored bytes of buffer %lld cannot be understood",
                            (long long)ret->buffer_id);
    return 0;
}

void gb_row_read_counters(sqlite3_stmt *stmt, struct gb_counters *ret) {
    struct reader r = {.stmt = stmt, .at = 1};

#define GB_COUNTER(name) ret->name = (uint64_t)read_i64(&r);
#include "model/counters.def"
#undef GB_COUNTER
}
