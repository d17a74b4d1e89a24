/* Stored bytes: their records and the bytes beside them come back, and go with their buffers. */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gb_test.h"
#include "store_fixture.h"
#include "store_vfs.h"

#define MAX_SEEN 8
#define MAX_BLOCKS 4

static unsigned char data[GB_STORED_INLINE_BYTES];

struct seen {
    unsigned count;
    struct gb_stored_rec rec[MAX_SEEN];
    uint32_t blocks[MAX_SEEN][MAX_BLOCKS];
};

static int see(void *arg, const void *row, struct gb_error *err) {
    const struct gb_stored_rec *rec = row;
    struct seen *seen = arg;

    if (seen->count == MAX_SEEN || gb_stored_block_count(rec->bytes) > MAX_BLOCKS)
        return gb_error_set(err, GB_ERR_LIMIT_REACHED, "full");
    seen->rec[seen->count] = *rec;
    memcpy(seen->blocks[seen->count], rec->blocks, gb_stored_block_count(rec->bytes) * sizeof(*rec->blocks));
    seen->count++;
    return 0;
}

static void reread(struct store_fixture *f, struct seen *seen) {
    struct gb_error err = GB_ERROR_INIT;

    store_fixture_close(f);
    store_fixture_open(f);
    memset(seen, 0, sizeof(*seen));
    gb_assert_ok(gb_store_load(f->store, GB_STORE_STORED, see, seen, &err), err);
}

static const uint32_t some_blocks[MAX_BLOCKS] = {0x01020304, UINT32_MAX, 0, 7};

static struct gb_stored_rec stored(int64_t id, uint64_t bytes) {
    return (struct gb_stored_rec){.buffer_id = id,
                                  .generation = id * 10,
                                  .run = UINT32_MAX - (uint32_t)id,
                                  .file_generation = id * 10 - 1,
                                  .file_tag = UINT32_MAX / 2 + (uint32_t)id,
                                  .dtype = GB_DTYPE_FLOAT32,
                                  .shape = {.dims = 2, .dim = {(uint64_t)id, 7}},
                                  .bytes = bytes,
                                  .crc32c = 0xdeadbee0 + (uint32_t)id,
                                  .blocks = some_blocks};
}

static void assert_stored(const struct seen *seen, unsigned i, const struct gb_stored_rec *want) {
    ck_assert_uint_gt(seen->count, i);
    ck_assert_int_eq(seen->rec[i].buffer_id, want->buffer_id);
    ck_assert_int_eq(seen->rec[i].generation, want->generation);
    ck_assert_uint_eq(seen->rec[i].run, want->run);
    ck_assert_int_eq(seen->rec[i].file_generation, want->file_generation);
    ck_assert_uint_eq(seen->rec[i].file_tag, want->file_tag);
    ck_assert_int_eq(seen->rec[i].dtype, want->dtype);
    ck_assert(gb_shape_equal(&seen->rec[i].shape, &want->shape));
    ck_assert_uint_eq(seen->rec[i].bytes, want->bytes);
    ck_assert_uint_eq(seen->rec[i].crc32c, want->crc32c);
    ck_assert_mem_eq(seen->blocks[i], want->blocks, gb_stored_block_count(want->bytes) * sizeof(*want->blocks));
}

static void with_session(struct store_fixture *f) {
    struct gb_session_rec session = store_session(1, "s");
    struct gb_error err = GB_ERROR_INIT;
    size_t i;

    for (i = 0; i < sizeof(data); i++)
        data[i] = (unsigned char)(i * 7 + i / 256);
    store_fixture_init(f);
    gb_assert_ok(store_put_session_now(f->store, &session, &err), err);
}

/* Puts the buffer of that id with stored bytes, at another version each time. */
static void put_stored(struct store_fixture *f, const struct gb_stored_rec *rec, bool durable) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_rec buffer;
    struct gb_store_edit edit = {.rec = &buffer, .durable = durable, .stored = rec, .data = data};
    char name[24];

    snprintf(name, sizeof(name), "b%lld", (long long)rec->buffer_id);
    buffer = store_buffer(rec->buffer_id, 1, name);
    buffer.durability = GB_DURABILITY_SYNC;
    buffer.state = GB_BUFFER_STORED;
    gb_assert_ok(store_edit_now(f->store, &edit, 1, &err), err);
}

static void assert_bytes(struct store_fixture *f, const struct gb_stored_rec *rec, const void *want) {
    static unsigned char out[GB_STORED_INLINE_BYTES + 1];
    struct gb_error err = GB_ERROR_INIT;

    memset(out, 0xa5, sizeof(out));
    gb_assert_ok(gb_store_read_stored(f->store, rec, out, &err), err);
    ck_assert_mem_eq(out, want, rec->bytes);
    ck_assert_uint_eq(out[rec->bytes], 0xa5);
}

static void assert_damaged(struct store_fixture *f, const struct gb_stored_rec *rec, const char *how) {
    static unsigned char out[GB_STORED_INLINE_BYTES];
    struct gb_error err = GB_ERROR_INIT;

    ck_assert_int_eq(gb_store_read_stored(f->store, rec, out, &err), -1);
    ck_assert_str_eq(gb_code_slug(err.code), gb_code_slug(GB_ERR_CONTENT_DAMAGED));
    ck_assert_msg(strstr(err.detail, how) != NULL, "\"%s\" lacks \"%s\"", err.detail, how);
}

START_TEST(every_field_comes_back) {
    const struct gb_stored_rec small = stored(5, GB_STORED_INLINE_BYTES);
    const struct gb_stored_rec empty = stored(3, 0);
    const struct gb_stored_rec one = stored(4, 1);
    const struct gb_stored_rec just_a_file = stored(2, GB_STORED_INLINE_BYTES + 1);
    const struct gb_stored_rec large = stored(9, 3 * (uint64_t)GB_STORED_BLOCK_BYTES + 1);
    struct store_fixture f;
    struct seen seen;

    with_session(&f);
    put_stored(&f, &small, true);
    put_stored(&f, &large, true);
    put_stored(&f, &empty, true);
    put_stored(&f, &one, false);
    put_stored(&f, &just_a_file, true);
    reread(&f, &seen);
    ck_assert_uint_eq(seen.count, 5);
    assert_stored(&seen, 0, &just_a_file);
    assert_stored(&seen, 1, &empty);
    assert_stored(&seen, 2, &one);
    assert_stored(&seen, 3, &small);
    assert_stored(&seen, 4, &large);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM buffers WHERE state = 'ready'"), 5);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM stored WHERE data IS NULL"), 2);
    assert_bytes(&f, &empty, "");
    assert_bytes(&f, &one, data);
    assert_bytes(&f, &small, data);
    store_fixture_done(&f);
}
END_TEST

/* The bytes become those of another generation, where they lie. */
START_TEST(renumbered_bytes_stay) {
    struct gb_stored_rec rec = stored(4, 100);
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_rec buffer = store_buffer(4, 1, "b4");
    const struct gb_store_edit edit = {.rec = &buffer, .durable = true, .stored = &rec, .renumbers = true};
    struct store_fixture f;
    struct seen seen;

    with_session(&f);
    put_stored(&f, &rec, true);
    rec.generation += 2;
    rec.run = 77;
    gb_assert_ok(store_edit_now(f.store, &edit, 1, &err), err);
    reread(&f, &seen);
    ck_assert_uint_eq(seen.count, 1);
    assert_stored(&seen, 0, &rec);
    assert_bytes(&f, &rec, data);
    store_fixture_done(&f);
}
END_TEST

/* What another tool reads from the blocks: four bytes each, little-endian. */
START_TEST(blocks_are_little_endian) {
    const struct gb_stored_rec rec = stored(2, 2 * (uint64_t)GB_STORED_BLOCK_BYTES);
    struct store_fixture f;
    char hex[64];

    with_session(&f);
    put_stored(&f, &rec, false);
    store_sql_text(f.path, "SELECT hex(blocks) FROM stored", hex);
    ck_assert_str_eq(hex, "04030201FFFFFFFF");
    store_fixture_done(&f);
}
END_TEST

START_TEST(later_bytes_replace_earlier_ones) {
    struct gb_stored_rec before = stored(2, 100);
    struct gb_stored_rec rec = stored(2, 50);
    struct store_fixture f;
    struct seen seen;

    with_session(&f);
    put_stored(&f, &before, true);
    rec.generation = before.generation + 1;
    rec.file_generation = before.file_generation + 1;
    put_stored(&f, &rec, true);
    assert_bytes(&f, &rec, data);
    assert_damaged(&f, &before, "no row");
    reread(&f, &seen);
    ck_assert_uint_eq(seen.count, 1);
    assert_stored(&seen, 0, &rec);
    /* From the row to a file: the bytes of before do not stay in it. */
    rec.bytes = GB_STORED_BLOCK_BYTES;
    put_stored(&f, &rec, true);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM stored WHERE data IS NULL"), 1);
    store_fixture_done(&f);
}
END_TEST

START_TEST(a_record_alone_leaves_stored_bytes) {
    const struct gb_stored_rec rec = stored(2, 100);
    struct gb_buffer_rec buffer = store_buffer(2, 1, "b2");
    struct gb_store_edit edit = {.rec = &buffer, .durable = true};
    struct gb_error err = GB_ERROR_INIT;
    struct store_fixture f;

    with_session(&f);
    put_stored(&f, &rec, true);
    buffer.version = 100;
    gb_assert_ok(store_edit_now(f.store, &edit, 1, &err), err);
    gb_assert_ok(store_put_buffer_now(f.store, &buffer, &err), err);
    buffer.version = 1; /* inserted, or updated where it is there */
    gb_assert_ok(store_put_buffer_now(f.store, &buffer, &err), err);
    assert_bytes(&f, &rec, data);
    store_fixture_done(&f);
}
END_TEST

START_TEST(stored_bytes_are_forgotten) {
    const struct gb_stored_rec rec = stored(2, 100);
    const struct gb_stored_rec other = stored(3, 100);
    struct gb_buffer_rec buffer = store_buffer(2, 1, "b2");
    struct gb_store_edit edit = {.rec = &buffer, .durable = true, .forgets = true};
    struct gb_error err = GB_ERROR_INIT;
    struct store_fixture f;
    struct seen seen;

    with_session(&f);
    put_stored(&f, &rec, true);
    put_stored(&f, &other, true);
    gb_assert_ok(store_edit_now(f.store, &edit, 1, &err), err);
    gb_assert_ok(store_edit_now(f.store, &edit, 1, &err), err); /* there is nothing left of them */
    assert_damaged(&f, &rec, "no row");
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM buffers"), 2);
    reread(&f, &seen);
    ck_assert_uint_eq(seen.count, 1);
    assert_stored(&seen, 0, &other);
    store_fixture_done(&f);
}
END_TEST

START_TEST(stored_bytes_go_with_their_buffer) {
    const struct gb_stored_rec rec[] = {stored(2, 10), stored(3, 10), stored(4, 10)};
    struct gb_session_rec session = store_session(8, "other");
    struct gb_buffer_rec buffer = store_buffer(2, 1, "b2");
    struct gb_buffer_rec kept = store_buffer(7, 8, "kept");
    const struct gb_stored_rec kept_bytes = stored(7, 10);
    struct gb_store_edit removal = {.rec = &buffer, .durable = true, .removes = true, .stored = &rec[0], .data = data};
    struct gb_store_edit keeping = {.rec = &kept, .stored = &kept_bytes, .data = data};
    struct gb_error err = GB_ERROR_INIT;
    struct store_fixture f;
    size_t i;

    with_session(&f);
    for (i = 0; i < 3; i++)
        put_stored(&f, &rec[i], true);
    gb_assert_ok(store_put_session_now(f.store, &session, &err), err);
    gb_assert_ok(store_edit_now(f.store, &keeping, 1, &err), err);
    gb_assert_ok(store_edit_now(f.store, &removal, 1, &err), err);
    assert_damaged(&f, &rec[0], "no row");
    gb_store_delete_buffer(f.store, 3, NULL, NULL, NULL);
    gb_assert_ok(store_flush_now(f.store, &err), err);
    assert_damaged(&f, &rec[1], "no row");
    assert_bytes(&f, &rec[2], data);
    gb_store_delete_session(f.store, 1, true, NULL, NULL, NULL);
    gb_assert_ok(store_flush_now(f.store, &err), err);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) * 100 + sum(buffer_id) FROM stored"), 107);
    store_fixture_done(&f);
}
END_TEST

/* One bad edit of several takes the stored bytes of the others with it. */
START_TEST(a_group_of_edits_is_whole) {
    const struct gb_stored_rec rec = stored(2, 10);
    struct gb_buffer_rec buffer = store_buffer(2, 1, "same");
    struct gb_buffer_rec same = store_buffer(3, 1, "same");
    struct gb_store_edit edits[] = {{.rec = &buffer, .durable = true, .stored = &rec, .data = data}, {.rec = &same}};
    struct gb_error err = GB_ERROR_INIT;
    struct store_fixture f;

    with_session(&f);
    gb_assert_fails(store_edit_now(f.store, edits, 2, &err), err, GB_ERR_STORE_FAILED);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT (SELECT count(*) FROM stored) + (SELECT count(*) FROM buffers)"), 0);
    assert_damaged(&f, &rec, "no row");
    store_fixture_done(&f);
}
END_TEST

START_TEST(bytes_that_are_not_as_recorded_are_refused) {
    struct gb_stored_rec rec = stored(2, 100);
    struct store_fixture f;

    with_session(&f);
    put_stored(&f, &rec, true);
    rec.file_tag++;
    assert_damaged(&f, &rec, "no row");
    rec.file_tag--;
    rec.bytes = 101;
    assert_damaged(&f, &rec, "too few");
    rec.bytes = 99;
    assert_damaged(&f, &rec, "too many");
    rec.bytes = 100;
    assert_bytes(&f, &rec, data);
    store_sql_exec(f.path, "UPDATE stored SET data = NULL");
    assert_damaged(&f, &rec, "no bytes");
    store_sql_exec(f.path, "DELETE FROM stored");
    assert_damaged(&f, &rec, "no row");
    store_fixture_done(&f);
}
END_TEST

START_TEST(records_that_cannot_be_understood_are_named) {
    static const char *const damages[] = {"bytes = 2097152",  "bytes = -1",       "bytes = 9223372036854775807",
                                          "blocks = x'0102'", "run = 4294967296", "crc32c = -1"};
    const struct gb_stored_rec rec = stored(77, 100);
    struct gb_error err = GB_ERROR_INIT;
    struct store_fixture f;
    struct seen seen = {0};
    char sql[80];
    size_t i;

    with_session(&f);
    for (i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
        put_stored(&f, &rec, false);
        snprintf(sql, sizeof(sql), "UPDATE stored SET %s", damages[i]);
        store_sql_exec(f.path, sql);
        err = GB_ERROR_INIT;
        ck_assert_msg(gb_store_load(f.store, GB_STORE_STORED, see, &seen, &err) == -1, "%s is taken", damages[i]);
        ck_assert_int_eq(err.code, GB_ERR_INTERNAL);
        ck_assert_ptr_nonnull(strstr(err.detail, "buffer 77"));
    }
    store_fixture_done(&f);
}
END_TEST

START_TEST(a_database_has_a_number_of_its_own) {
    struct gb_error err = GB_ERROR_INIT;
    char first[GB_STORE_UUID_SIZE];
    char again[GB_STORE_UUID_SIZE];
    char other[GB_STORE_UUID_SIZE];
    struct store_fixture f;
    struct store_fixture g;

    store_fixture_init(&f);
    store_fixture_init(&g);
    gb_assert_ok(gb_store_uuid(f.store, first, &err), err);
    gb_assert_ok(gb_store_uuid(g.store, other, &err), err);
    ck_assert_uint_eq(strspn(first, "0123456789abcdef"), 32);
    ck_assert_uint_eq(strlen(first), 32);
    ck_assert_str_ne(first, other);
    store_fixture_close(&f);
    store_fixture_open(&f);
    gb_assert_ok(gb_store_uuid(f.store, again, &err), err);
    ck_assert_str_eq(again, first);
    store_sql_exec(f.path, "UPDATE identity SET uuid = 'short'");
    gb_assert_fails(gb_store_uuid(f.store, again, &err), err, GB_ERR_INTERNAL);
    store_sql_exec(f.path, "DELETE FROM identity");
    gb_assert_fails(gb_store_uuid(f.store, again, &err), err, GB_ERR_INTERNAL);
    store_fixture_done(&f);
    store_fixture_done(&g);
}
END_TEST

static void until_healthy(struct store_fixture *f) {
    while (gb_store_health(f->store, NULL) < 0)
        usleep(1000);
}

/* Bytes are read from the copy in memory, and from the file once there is room. */
START_TEST(stored_bytes_beside_a_full_disk) {
    struct store_vfs_faults *disk = store_vfs_install();
    const struct gb_stored_rec rec = stored(2, 1000);
    const struct gb_stored_rec later = stored(3, 2000);
    struct gb_buffer_rec buffer = store_buffer(3, 1, "b3");
    struct gb_store_edit edit = {.rec = &buffer, .durable = true, .stored = &later, .data = data};
    struct gb_error err = GB_ERROR_INIT;
    char before[GB_STORE_UUID_SIZE];
    char uuid[GB_STORE_UUID_SIZE];
    struct store_fixture f;
    struct seen seen;

    with_session(&f);
    put_stored(&f, &rec, true);
    gb_assert_ok(gb_store_uuid(f.store, before, &err), err);
    store_fixture_close(&f);
    atomic_store(&disk->write_result, SQLITE_FULL);
    store_fixture_open(&f);
    memset(&seen, 0, sizeof(seen));
    gb_assert_ok(gb_store_load(f.store, GB_STORE_STORED, see, &seen, &err), err);
    assert_stored(&seen, 0, &rec);
    gb_assert_ok(gb_store_uuid(f.store, uuid, &err), err);
    ck_assert_str_eq(uuid, before);
    assert_bytes(&f, &rec, data);
    gb_assert_fails(store_edit_now(f.store, &edit, 1, &err), err, GB_ERR_STORAGE_FULL);
    gb_assert_ok(gb_store_durable_health(f.store, &err), err); /* it was not the sync of a commit */
    atomic_store(&disk->write_result, SQLITE_OK);
    until_healthy(&f);
    put_stored(&f, &later, true);
    assert_bytes(&f, &rec, data);
    assert_bytes(&f, &later, data);
    store_fixture_done(&f);
}
END_TEST

/* The daemon has told others the number that it read at its start. */
START_TEST(the_number_of_a_new_database_on_a_full_disk_stays) {
    struct store_vfs_faults *disk = store_vfs_install();
    struct gb_session_rec session = store_session(1, "s");
    struct gb_error err = GB_ERROR_INIT;
    char told[GB_STORE_UUID_SIZE];
    char uuid[GB_STORE_UUID_SIZE];
    struct store_fixture f;

    store_fixture_dir(&f);
    atomic_store(&disk->write_result, SQLITE_FULL);
    store_fixture_open(&f);
    gb_assert_ok(gb_store_uuid(f.store, told, &err), err);
    gb_assert_fails(store_put_session_now(f.store, &session, &err), err, GB_ERR_STORAGE_FULL);
    atomic_store(&disk->write_result, SQLITE_OK);
    until_healthy(&f);
    store_fixture_close(&f);
    store_fixture_open(&f);
    gb_assert_ok(gb_store_uuid(f.store, uuid, &err), err);
    ck_assert_str_eq(uuid, told);
    store_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("store_stored");

    gb_test_add(suite, "fields", every_field_comes_back, 60);
    gb_test_add(suite, "renumbered", renumbered_bytes_stay, 30);
    gb_test_add(suite, "blocks", blocks_are_little_endian, 60);
    gb_test_add(suite, "replace", later_bytes_replace_earlier_ones, 60);
    gb_test_add(suite, "record", a_record_alone_leaves_stored_bytes, 60);
    gb_test_add(suite, "forget", stored_bytes_are_forgotten, 60);
    gb_test_add(suite, "cascade", stored_bytes_go_with_their_buffer, 60);
    gb_test_add(suite, "group", a_group_of_edits_is_whole, 60);
    gb_test_add(suite, "damaged", bytes_that_are_not_as_recorded_are_refused, 60);
    gb_test_add(suite, "bad_record", records_that_cannot_be_understood_are_named, 60);
    gb_test_add(suite, "uuid", a_database_has_a_number_of_its_own, 60);
    gb_test_add(suite, "full", stored_bytes_beside_a_full_disk, 60);
    gb_test_add(suite, "full_new", the_number_of_a_new_database_on_a_full_disk_stays, 60);
    return gb_test_run(suite);
}
