/* Records survive: every field is read back after the store was closed and opened again. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gb_test.h"
#include "store_fixture.h"

#define MAX_SEEN 16

struct seen {
    unsigned sessions;
    unsigned buffers;
    struct gb_session_rec session[MAX_SEEN];
    struct gb_buffer_rec buffer[MAX_SEEN];
};

static int see_session(void *arg, const void *row, struct gb_error *err) {
    const struct gb_session_rec *rec = row;
    struct seen *seen = arg;

    if (seen->sessions == MAX_SEEN)
        return gb_error_set(err, GB_ERR_LIMIT_REACHED, "full");
    gb_session_rec_set(&seen->session[seen->sessions++], rec);
    return 0;
}

static int see_buffer(void *arg, const void *row, struct gb_error *err) {
    const struct gb_buffer_rec *rec = row;
    struct seen *seen = arg;

    if (seen->buffers == MAX_SEEN)
        return gb_error_set(err, GB_ERR_LIMIT_REACHED, "full");
    gb_buffer_rec_set(&seen->buffer[seen->buffers++], rec);
    return 0;
}

/* Closes, opens again and reads everything. */
static void reread(struct store_fixture *f, struct seen *seen) {
    struct gb_error err = GB_ERROR_INIT;

    store_fixture_close(f);
    store_fixture_open(f);
    memset(seen, 0, sizeof(*seen));
    gb_assert_ok(gb_store_load(f->store, GB_STORE_SESSIONS, see_session, seen, &err), err);
    gb_assert_ok(gb_store_load(f->store, GB_STORE_BUFFERS, see_buffer, seen, &err), err);
}

static void forget(struct seen *seen) {
    while (seen->sessions > 0)
        gb_session_rec_done(&seen->session[--seen->sessions]);
    while (seen->buffers > 0)
        gb_buffer_rec_done(&seen->buffer[--seen->buffers]);
}

static void assert_session(const struct gb_session_rec *got, const struct gb_session_rec *want) {
    ck_assert_int_eq(got->id, want->id);
#define GB_SESSION_FIELD(name, type, ...) ck_assert_msg(GB_SAME_##type(got->name, want->name), #name);
#define GB_SESSION_QUOTA(name, type, ...) ck_assert_msg(GB_SAME_##type(got->quota.name, want->quota.name), #name);
#include "model/session.def"
    ck_assert_int_eq(got->stops_on_partition, want->stops_on_partition);
    ck_assert_int_eq(got->given, want->given);
    ck_assert_int_eq(got->version, want->version);
    ck_assert_int_eq(got->created_at_us, want->created_at_us);
    ck_assert_int_eq(got->updated_at_us, want->updated_at_us);
}

static void assert_buffer(const struct gb_buffer_rec *got, const struct gb_buffer_rec *want) {
#define SAME_HEAD(name, type) ck_assert_msg(GB_SAME_##type(got->name, want->name), #name);
#define SAME_PLACE(name, type) SAME_HEAD(name, type)
#define SAME_KEPT(name, type) SAME_HEAD(name, type)
#define SAME_MEMORY(name, type)
#define GB_BUFFER_FIELD(name, type, how, ...) SAME_##how(name, type)
#include "model/buffer.def"
    ck_assert_int_eq(got->has_crc32c, want->has_crc32c);
}

/* A column without a field would be lost with the next change of the record. */
START_TEST(columns_are_the_fields) {
    static const char *const sql[] = {
        "SELECT count(*) = (SELECT count(*) FROM pragma_table_info('sessions')) FROM pragma_table_info('sessions')"
        " WHERE name IN ('id', 'version', 'created_at_us', 'updated_at_us'"
#define GB_SESSION_FIELD(name, ...) ", '" #name "'"
#define GB_SESSION_QUOTA(name, ...) ", 'quota_" #name "'"
#define GB_SESSION_PARTITION(name, ...) ", '" #name "'"
#include "model/session.def"
        ")",
        "SELECT count(*) = (SELECT count(*) FROM pragma_table_info('buffers')) FROM pragma_table_info('buffers')"
        " WHERE name IN ('id'"
#define COLUMN_HEAD(name) ", '" #name "'"
#define COLUMN_PLACE(name) ", '" #name "'"
#define COLUMN_KEPT(name) ", '" #name "'"
#define COLUMN_MEMORY(name)
#define GB_BUFFER_FIELD(name, type, how, ...) COLUMN_##how(name)
#include "model/buffer.def"
        ")"};
    struct store_fixture f;

    store_fixture_init(&f);
    ck_assert_int_eq(store_sql_int(f.path, sql[_i]), 1);
    store_fixture_done(&f);
}
END_TEST

START_TEST(every_field_of_a_session_comes_back) {
    struct store_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_rec small = store_session(7, "small");
    struct gb_session_rec large = store_session(8, "large");
    char text[GB_LABELS_MAX] = "";
    struct seen seen;

    store_fixture_init(&f);
    small.quota = (struct gb_quota){0};
    small.current_pools = store_labels("5,7");
    small.given = true;
    small.holders = store_labels("a:1,b:2");
    small.idle_ttl_s = 0;
    small.durability = GB_DURABILITY_BEHIND;
    large.durability = GB_DURABILITY_SYNC;
    memset(large.name.s, 'n', GB_NAME_MAX);
    memset(text, ' ', GB_LABELS_MAX - 1);
    text[0] = '{';
    text[GB_LABELS_MAX - 2] = '}';
    large.labels = store_labels(text);
    large.quota = (struct gb_quota){GB_UNLIMITED, INT64_MAX, GB_UNLIMITED, GB_UNLIMITED};
    gb_assert_ok(store_put_session_now(f.store, &large, &err), err);
    gb_assert_ok(store_put_session_now(f.store, &small, &err), err);
    reread(&f, &seen);
    ck_assert_uint_eq(seen.sessions, 2);
    assert_session(&seen.session[0], &small);
    assert_session(&seen.session[1], &large);
    forget(&seen);
    store_fixture_done(&f);
}
END_TEST

START_TEST(every_field_of_a_buffer_comes_back) {
    struct store_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_rec session = store_session(1, "s");
    struct gb_buffer_rec plain = store_buffer(10, 1, "plain");
    struct gb_buffer_rec wide = store_buffer(11, 1, "wide");
    struct gb_buffer_rec scalar = store_buffer(12, 1, "scalar");
    struct seen seen;
    unsigned i;

    store_fixture_init(&f);
    wide.shape.dims = GB_DIMS_MAX;
    for (i = 0; i < GB_DIMS_MAX; i++)
        wide.shape.dim[i] = i == 0 ? 0 : i == 1 ? INT64_MAX / 16 : 1;
    wide.bytes = 0;
    wide.crc32c = UINT32_MAX;
    scalar.shape = (struct gb_shape){0};
    scalar.bytes = INT64_MAX;
    scalar.has_crc32c = false;
    scalar.crc32c = 0;
    scalar.state = GB_BUFFER_LOST;
    wide.mirrored = true;
    wide.head = GB_HEAD_SYNCED;
    wide.sealed = true;
    wide.durability = GB_DURABILITY_SYNC;
    scalar.durability = GB_DURABILITY_BEHIND;
    scalar.mirrored = true;
    scalar.head = GB_HEAD_DEVICE;
    scalar.kind = GB_KIND_DEVICE;
    gb_assert_ok(store_put_session_now(f.store, &session, &err), err);
    gb_assert_ok(store_put_buffer_now(f.store, &plain, &err), err);
    gb_assert_ok(store_put_buffer_now(f.store, &wide, &err), err);
    gb_assert_ok(store_put_buffer_now(f.store, &scalar, &err), err);
    reread(&f, &seen);
    ck_assert_uint_eq(seen.buffers, 3);
    assert_buffer(&seen.buffer[0], &plain);
    assert_buffer(&seen.buffer[1], &wide);
    assert_buffer(&seen.buffer[2], &scalar);
    forget(&seen);
    store_fixture_done(&f);
}
END_TEST

START_TEST(putting_again_updates) {
    struct store_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_rec session = store_session(1, "s");
    struct gb_buffer_rec buffer = store_buffer(2, 1, "b");
    struct seen seen;

    store_fixture_init(&f);
    gb_assert_ok(store_put_session_now(f.store, &session, &err), err);
    gb_assert_ok(store_put_buffer_now(f.store, &buffer, &err), err);
    session = store_session(1, "renamed");
    session.quota.bytes = 5;
    session.labels = NULL;
    buffer.labels = store_labels("{\"k\":\"v\"}");
    session.version = 4;
    session.durability = GB_DURABILITY_SYNC;
    buffer.durability = GB_DURABILITY_BEHIND;
    buffer.generation++;
    buffer.dtype = GB_DTYPE_BOOL;
    buffer.state = GB_BUFFER_READY;
    buffer.has_crc32c = false;
    buffer.crc32c = 0;
    gb_assert_ok(store_put_session_now(f.store, &session, &err), err);
    gb_assert_ok(store_put_buffer_now(f.store, &buffer, &err), err);
    reread(&f, &seen);
    ck_assert_uint_eq(seen.sessions, 1);
    ck_assert_uint_eq(seen.buffers, 1);
    assert_session(&seen.session[0], &session);
    assert_buffer(&seen.buffer[0], &buffer);
    forget(&seen);
    store_fixture_done(&f);
}
END_TEST

/* A record of a later version is one that is there, most often: it is updated first. */
START_TEST(a_later_version_need_not_be_there) {
    struct store_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_rec session = store_session(1, "s");
    struct gb_buffer_rec buffer = store_buffer(2, 1, "b");
    struct gb_buffer_rec other = store_buffer(3, 1, "c");
    struct seen seen;

    store_fixture_init(&f);
    gb_assert_ok(store_put_session_now(f.store, &session, &err), err);
    buffer.version = 7;
    other.version = 1;
    gb_assert_ok(store_put_buffer_now(f.store, &buffer, &err), err);
    gb_assert_ok(store_put_buffer_now(f.store, &other, &err), err);
    reread(&f, &seen);
    ck_assert_uint_eq(seen.buffers, 2);
    assert_buffer(&seen.buffer[0], &buffer);
    assert_buffer(&seen.buffer[1], &other);
    forget(&seen);
    /* One of the first version may be there all the same; what is updated is the one row. */
    buffer.version = 1;
    other.version = 2;
    other.bytes = 12;
    other.shape = (struct gb_shape){.dims = 1, .dim = {6}};
    other.kind = GB_KIND_DEVICE;
    other.device = 0;
    strcpy(other.pool.s, "p");
    strcpy(other.stream.s, "t");
    other.created_at_us++;
    other.updated_at_us++;
    gb_assert_ok(store_put_buffer_now(f.store, &buffer, &err), err);
    gb_assert_ok(store_put_buffer_now(f.store, &other, &err), err);
    reread(&f, &seen);
    ck_assert_uint_eq(seen.buffers, 2);
    assert_buffer(&seen.buffer[0], &buffer);
    assert_buffer(&seen.buffer[1], &other);
    forget(&seen);
    store_fixture_done(&f);
}
END_TEST

START_TEST(deleting_a_session_takes_its_buffers) {
    struct store_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_rec one = store_session(1, "one");
    struct gb_session_rec two = store_session(2, "two");
    struct gb_buffer_rec a = store_buffer(1, 1, "a");
    struct gb_buffer_rec b = store_buffer(2, 2, "b");
    struct gb_buffer_rec c = store_buffer(3, 2, "c");
    struct seen seen;

    store_fixture_init(&f);
    gb_store_put_session(f.store, &one, NULL, NULL, NULL);
    gb_store_put_session(f.store, &two, NULL, NULL, NULL);
    gb_store_put_buffer(f.store, &a, NULL, NULL, NULL);
    gb_store_put_buffer(f.store, &b, NULL, NULL, NULL);
    gb_store_put_buffer(f.store, &c, NULL, NULL, NULL);
    gb_store_delete_session(f.store, 1, false, NULL, NULL, NULL);
    gb_store_delete_buffer(f.store, 3, NULL, NULL, NULL);
    gb_store_delete_buffer(f.store, 99, NULL, NULL, NULL);
    gb_store_delete_session(f.store, 99, false, NULL, NULL, NULL);
    gb_assert_ok(store_flush_now(f.store, &err), err);
    reread(&f, &seen);
    ck_assert_uint_eq(seen.sessions, 1);
    ck_assert_uint_eq(seen.buffers, 1);
    assert_session(&seen.session[0], &two);
    assert_buffer(&seen.buffer[0], &b);
    forget(&seen);
    store_fixture_done(&f);
}
END_TEST

START_TEST(ids_are_not_reused) {
    struct store_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_rec session = store_session(41, "s");
    struct gb_buffer_rec buffer = store_buffer(900, 41, "b");
    struct gb_store_ids last = {-1, -1, -1};

    store_fixture_init(&f);
    gb_assert_ok(gb_store_last_ids(f.store, &last, &err), err);
    ck_assert_int_eq(last.session, 0);
    ck_assert_int_eq(last.buffer, 0);
    gb_assert_ok(store_put_session_now(f.store, &session, &err), err);
    gb_assert_ok(store_put_buffer_now(f.store, &buffer, &err), err);
    buffer = store_buffer(300, 41, "older");
    gb_assert_ok(store_put_buffer_now(f.store, &buffer, &err), err);
    gb_store_delete_session(f.store, 41, false, NULL, NULL, NULL);
    store_fixture_close(&f);
    store_fixture_open(&f);
    gb_assert_ok(gb_store_last_ids(f.store, &last, &err), err);
    ck_assert_int_eq(last.session, 41);
    ck_assert_int_eq(last.buffer, 900);
    store_fixture_done(&f);
}
END_TEST

START_TEST(counters_are_replaced_and_survive) {
    struct store_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_counters put = {0};
    struct gb_counters got;
    uint64_t next = 1;

    store_fixture_init(&f);
    memset(&got, 0xff, sizeof(got));
    gb_assert_ok(gb_store_load_counters(f.store, &got, &err), err);
    ck_assert_mem_eq(&got, &put, sizeof(put));
#define GB_COUNTER(name) put.name = next++;
#include "model/counters.def"
#undef GB_COUNTER
    gb_store_put_counters(f.store, &put, NULL, NULL);
    put.upload_bytes = 1ULL << 62;
    gb_store_put_counters(f.store, &put, NULL, NULL);
    store_fixture_close(&f);
    store_fixture_open(&f);
    gb_assert_ok(gb_store_load_counters(f.store, &got, &err), err);
    ck_assert_mem_eq(&got, &put, sizeof(put));
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM counters"), 1);
    store_fixture_done(&f);
}
END_TEST

START_TEST(a_visitor_can_end_the_walk) {
    struct store_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_rec session = store_session(1, "s");
    struct seen seen = {.sessions = MAX_SEEN};

    store_fixture_init(&f);
    gb_assert_ok(store_put_session_now(f.store, &session, &err), err);
    gb_assert_fails(gb_store_load(f.store, GB_STORE_SESSIONS, see_session, &seen, &err), err, GB_ERR_LIMIT_REACHED);
    store_fixture_done(&f);
}
END_TEST

START_TEST(a_record_that_cannot_be_understood_is_named) {
    struct store_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_rec session = store_session(1, "s");
    struct gb_buffer_rec buffer = store_buffer(77, 1, "b");
    struct seen seen = {0};

    store_fixture_init(&f);
    gb_assert_ok(store_put_session_now(f.store, &session, &err), err);
    gb_assert_ok(store_put_buffer_now(f.store, &buffer, &err), err);
    store_sql_exec(f.path, "UPDATE buffers SET dtype = 'float3'");
    ck_assert_int_eq(gb_store_load(f.store, GB_STORE_BUFFERS, see_buffer, &seen, &err), -1);
    ck_assert_ptr_nonnull(strstr(err.detail, "buffer 77"));
    store_fixture_done(&f);
}
END_TEST

struct busy_walk {
    struct gb_store *store;
    struct gb_buffer_rec changed;
    atomic_uint carried_out;
    unsigned rows;
};

static void note_carried_out(void *arg, const struct gb_error *error) {
    struct busy_walk *walk = arg;

    (void)error;
    atomic_fetch_add(&walk->carried_out, 1);
}

/* Queues a change, and leaves the writer the time to carry it out. */
static int change_and_see(void *arg, const void *row, struct gb_error *err) {
    const struct gb_buffer_rec *rec = row;
    struct busy_walk *walk = arg;

    (void)rec;
    (void)err;
    ck_assert_uint_eq(atomic_load(&walk->carried_out), 0);
    walk->rows++;
    walk->changed.version++;
    gb_store_put_buffer(walk->store, &walk->changed, NULL, note_carried_out, walk);
    usleep(2000);
    return 0;
}

/* Two threads on one connection of SQLite write frames of the log over each other. */
START_TEST(changes_wait_for_the_end_of_a_walk) {
    struct store_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_rec session = store_session(1, "s");
    struct busy_walk walk = {.rows = 0};
    struct seen seen;
    char name[16];
    int i;

    store_fixture_init(&f);
    walk.store = f.store;
    gb_assert_ok(store_put_session_now(f.store, &session, &err), err);
    for (i = 1; i <= 8; i++) {
        snprintf(name, sizeof(name), "b%d", i);
        walk.changed = store_buffer(i, 1, name);
        gb_assert_ok(store_put_buffer_now(f.store, &walk.changed, &err), err);
    }
    gb_assert_ok(gb_store_load(f.store, GB_STORE_BUFFERS, change_and_see, &walk, &err), err);
    ck_assert_uint_eq(walk.rows, 8);
    reread(&f, &seen);
    ck_assert_uint_eq(atomic_load(&walk.carried_out), 8);
    assert_buffer(&seen.buffer[7], &walk.changed);
    forget(&seen);
    store_fixture_done(&f);
}
END_TEST

/* Gives the field of that number another value. */
static void change_field(struct gb_buffer_rec *rec, unsigned field) {
    switch (field) {
    case 1:
        rec->bytes = 96;
        break;
    case 2:
        rec->dtype = GB_DTYPE_BOOL;
        break;
    case 3:
        rec->shape = (struct gb_shape){.dims = 2, .dim = {2, 3}};
        break;
    case 4:
        rec->kind = GB_KIND_DEVICE;
        break;
    case 5:
        rec->device = 0;
        break;
    case 6:
        strcpy(rec->pool.s, "other");
        break;
    case 7:
        strcpy(rec->stream.s, "main");
        break;
    case 8:
        rec->state = GB_BUFFER_READY;
        break;
    case 9:
        rec->has_crc32c = false;
        rec->crc32c = 0;
        break;
    case 10:
        rec->labels = store_labels("{\"k\":\"w\"}");
        break;
    case 11:
        rec->mirrored = rec->sealed = true;
        rec->head = GB_HEAD_HOST;
        break;
    case 12:
        rec->durability = GB_DURABILITY_SYNC;
        break;
    case 13:
        rec->generation = 70;
        rec->version = 80;
        break;
    default:
        rec->created_at_us++;
        rec->updated_at_us += 7;
    }
}

/* In one commit, each record has other values than the one before in one field, and the first ones in all others. */
START_TEST(records_of_one_commit_keep_apart) {
    struct gb_buffer_rec rec[MAX_SEEN - 1];
    struct gb_session_rec session = store_session(1, "s");
    struct gb_error err = GB_ERROR_INIT;
    struct store_fixture f;
    struct store_gate gate;
    struct seen seen;
    char name[16];
    unsigned n = sizeof(rec) / sizeof(rec[0]);
    unsigned i;

    store_fixture_init(&f);
    gb_assert_ok(store_put_session_now(f.store, &session, &err), err);
    for (i = 0; i < n; i++) {
        snprintf(name, sizeof(name), "b%u", i);
        rec[i] = store_buffer(10 + i, 1, name);
        gb_assert_ok(store_put_buffer_now(f.store, &rec[i], &err), err);
    }
    store_gate_close(&gate, f.store);
    for (i = 0; i < n; i++) {
        change_field(&rec[i], i);
        gb_store_put_buffer(f.store, &rec[i], NULL, NULL, NULL);
    }
    store_gate_open(&gate);
    reread(&f, &seen);
    ck_assert_uint_eq(seen.buffers, n);
    for (i = 0; i < n; i++)
        assert_buffer(&seen.buffer[i], &rec[i]);
    forget(&seen);
    store_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("store");

    gb_test_add_loop(suite, "columns", columns_are_the_fields, 60, 2);
    gb_test_add(suite, "session_fields", every_field_of_a_session_comes_back, 60);
    gb_test_add(suite, "buffer_fields", every_field_of_a_buffer_comes_back, 60);
    gb_test_add(suite, "one commit", records_of_one_commit_keep_apart, 60);
    gb_test_add(suite, "update", putting_again_updates, 60);
    gb_test_add(suite, "later version", a_later_version_need_not_be_there, 60);
    gb_test_add(suite, "cascade", deleting_a_session_takes_its_buffers, 60);
    gb_test_add(suite, "ids", ids_are_not_reused, 60);
    gb_test_add(suite, "counters", counters_are_replaced_and_survive, 60);
    gb_test_add(suite, "visitor", a_visitor_can_end_the_walk, 60);
    gb_test_add(suite, "walk", changes_wait_for_the_end_of_a_walk, 60);
    gb_test_add(suite, "bad_record", a_record_that_cannot_be_understood_is_named, 60);
    return gb_test_run(suite);
}
