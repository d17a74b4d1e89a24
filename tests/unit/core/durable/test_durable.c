/* Durable buffers: what outlives the core, how it comes back, and what a disk that fails does to a change. */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "durable_fixture.h"
#include "gb_test.h"

#define SMALL 1000u
#define LARGE DURABLE_LARGE

/* As a killed process: nothing is stored at the end. */
static void restart(struct core_fixture *f) {
    core_fixture_close(f);
    core_fixture_open(f);
}

static int load(struct core_fixture *f, const char *name, struct gb_error *err) {
    struct gb_locator at = core_at("default", name);
    struct core_wake wake;
    struct gb_buffer_rec rec;
    int r;

    core_wake_init(&wake);
    for (;;) {
        struct gb_load_waiter waiter = {.waker = core_waker(&wake)};
        uint64_t sequence = gb_loads_sequence(f->core);

        *err = GB_ERROR_INIT;
        r = gb_buffer_load(f->core, &at, &rec, err);
        if (r == 0 || err->code != GB_ERR_NOT_LOADED)
            break;
        if (gb_loads_wait(f->core, sequence, &waiter))
            core_wake_wait(&wake);
        gb_loads_leave(f->core, &waiter);
    }
    if (r == 0)
        gb_buffer_rec_done(&rec);
    core_wake_done(&wake);
    return r;
}

/* Files that the disk has beneath its numbered folders. */
static size_t count_files(struct core_fixture *f) {
    char pattern[128];
    glob_t found;
    size_t n = 0;

    snprintf(pattern, sizeof(pattern), "%s/data/[0-9a-f][0-9a-f]/*", f->store.dir);
    if (glob(pattern, 0, NULL, &found) == 0)
        n = found.gl_pathc;
    globfree(&found);
    return n;
}

static bool has_no_file(void *arg) {
    return count_files(arg) == 0;
}

static bool has_one_file(void *arg) {
    return count_files(arg) == 1;
}

/* --- what outlives the core --------------------------------------------------------------------------------------- */

static void check_restart(const char *spec, size_t n) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_storage_numbers numbers;
    struct gb_buffer_rec before;
    struct gb_buffer_rec after;
    struct core_fixture f;

    durable_open(&f, spec);
    gb_assert_ok(durable_put(&f, "x", 1, n, GB_DURABILITY_SYNC, &before, &err), err);
    ck_assert_int_eq(before.stored_generation, before.generation);
    gb_buffer_rec_done(&before);
    durable_put_ok(&f, "lost", 2, n, GB_DURABILITY_NONE);
    restart(&f);
    after = durable_get(&f, "x");
    ck_assert_int_eq(after.state, GB_BUFFER_STORED);
    ck_assert_int_eq(after.generation, before.generation);
    ck_assert_int_eq(after.run, before.run);
    ck_assert(after.has_crc32c && after.crc32c == before.crc32c);
    ck_assert_int_eq(durable_get(&f, "lost").state, GB_BUFFER_LOST);
    durable_assert_bytes(&f, "x", 1, n); /* from the disk */
    gb_storage_stat(f.core, &numbers);
    ck_assert_uint_eq(numbers.cold_reads, n > 0);
    ck_assert_uint_eq(numbers.buffers, 1);
    gb_assert_ok(load(&f, "x", &err), err);
    ck_assert_int_eq(durable_get(&f, "x").state, GB_BUFFER_READY);
    durable_assert_bytes(&f, "x", 1, n); /* from memory */
    gb_storage_stat(f.core, &numbers);
    ck_assert_uint_eq(numbers.cold_reads, n > 0);
    ck_assert_uint_eq(numbers.buffers, 0);
    after = durable_get(&f, "x");
    ck_assert_int_eq(after.run, before.run);
    ck_assert_int_eq(after.stored_generation, before.generation);
    core_fixture_done(&f);
}

START_TEST(test_restart) {
    check_restart("host", SMALL);
    check_restart("host", LARGE);
    check_restart("host:discrete", SMALL);
    check_restart("host:discrete", LARGE);
    check_restart("host", 0);
}
END_TEST

START_TEST(test_replaced_file_goes) {
    struct gb_error err = GB_ERROR_INIT;
    struct core_fixture f;

    durable_open(&f, "host");
    durable_put_ok(&f, "x", 1, LARGE, GB_DURABILITY_SYNC);
    durable_put_ok(&f, "x", 2, LARGE, GB_DURABILITY_SYNC);
    core_until(has_one_file, &f, "the file of the generation before goes");
    restart(&f);
    durable_assert_bytes(&f, "x", 2, LARGE);
    gb_assert_ok(core_buffer_delete(f.core, "default", "x", &err), err);
    core_until(has_no_file, &f, "the file goes with its buffer");
    restart(&f);
    ck_assert_int_eq(core_buffer_get(f.core, "default", "x", &(struct gb_buffer_rec){0}, &err), -1);
    core_fixture_done(&f);
}
END_TEST

START_TEST(test_session_takes_files) {
    struct gb_session_params params = {.name = {"s"}, .has_durability = true, .durability = GB_DURABILITY_SYNC};
    struct gb_upload_params p = core_upload_params("s", "x", LARGE);
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_rec rec;
    struct core_fixture f;

    durable_open(&f, "host");
    gb_assert_ok(core_session_create(f.core, &params, &err), err);
    gb_assert_ok(core_upload(f.core, &p, durable_sent, &rec, &err), err);
    ck_assert_int_eq(rec.durability, GB_DURABILITY_SYNC);
    gb_buffer_rec_done(&rec);
    ck_assert_uint_eq(count_files(&f), 1);
    restart(&f);
    gb_assert_ok(core_session_delete(f.core, "s", &err), err);
    core_until(has_no_file, &f, "the files go with their session");
    core_fixture_done(&f);
}
END_TEST

/* --- behind ------------------------------------------------------------------------------------------------------- */

START_TEST(test_behind) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_rec rec;
    struct core_fixture f;
    bool wrote;

    durable_open(&f, "host");
    durable_put_ok(&f, "x", 1, LARGE, GB_DURABILITY_BEHIND);
    ck_assert_int_eq(durable_get(&f, "x").stored_generation, 0);
    gb_assert_ok(durable_do(&f, gb_buffer_store, "x", &wrote, &err), err);
    ck_assert(wrote);
    gb_assert_ok(durable_do(&f, gb_buffer_store, "x", &wrote, &err), err);
    ck_assert(!wrote);
    rec = durable_get(&f, "x");
    ck_assert_int_eq(rec.stored_generation, rec.generation);
    durable_put_ok(&f, "x", 2, LARGE, GB_DURABILITY_BEHIND);
    ck_assert_int_eq(durable_get(&f, "x").stored_generation, rec.generation);
    restart(&f); /* an orderly end stores it */
    ck_assert_int_eq(durable_get(&f, "x").generation, rec.generation + 1);
    durable_assert_bytes(&f, "x", 2, LARGE);
    core_fixture_done(&f);
}
END_TEST

/* The disk takes nothing at the end: the generation before comes back, under a number that no bytes had. */
START_TEST(test_roll_back) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_rec rec;
    struct core_fixture f;
    bool wrote;

    core_fixture_prepare(&f, "host");
    f.durable = true;
    f.config.durable_lag_ms = 3600 * 1000;
    f.disk_faults = "create@2+=EIO";
    core_fixture_open(&f);
    durable_put_ok(&f, "x", 1, LARGE, GB_DURABILITY_BEHIND);
    gb_assert_ok(durable_do(&f, gb_buffer_store, "x", &wrote, &err), err);
    durable_put_ok(&f, "x", 2, LARGE - 5, GB_DURABILITY_BEHIND); /* of another shape as well */
    rec = durable_get(&f, "x");
    core_fixture_close(&f);
    f.disk_faults = NULL;
    core_fixture_open(&f);
    ck_assert_int_eq(durable_get(&f, "x").generation, rec.generation + 1);
    ck_assert_int_ne(durable_get(&f, "x").run, rec.run);
    ck_assert_uint_eq(durable_get(&f, "x").bytes, LARGE);
    durable_assert_bytes(&f, "x", 1, LARGE);
    rec = durable_get(&f, "x");
    gb_assert_ok(durable_patch(&f, "x", GB_DURABILITY_SYNC, &err), err);
    restart(&f); /* once is enough */
    ck_assert_int_eq(durable_get(&f, "x").generation, rec.generation);
    ck_assert_int_eq(durable_get(&f, "x").run, rec.run);
    gb_assert_ok(load(&f, "x", &err), err);
    durable_assert_bytes(&f, "x", 1, LARGE);
    core_fixture_done(&f);
}
END_TEST

/* --- write-through ------------------------------------------------------------------------------------------------ */

static bool has_two_files(void *arg) {
    return count_files(arg) == 2;
}

static struct gb_upload *begin(struct core_fixture *f, const char *name, struct core_wake *wake) {
    struct gb_upload_params p = core_upload_params("default", name, LARGE);
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload *upload;

    core_wake_init(wake);
    p.buffer.has_durability = true;
    p.buffer.durability = GB_DURABILITY_SYNC;
    p.waker = core_waker(wake);
    gb_assert_ok(gb_upload_begin(f->core, &p, &upload, &err), err);
    return upload;
}

static void send_part(struct gb_upload *upload, struct core_wake *wake, size_t from, size_t to) {
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(core_upload_send(upload, wake, durable_sent + from, to - from, &err), err);
}

static void finish(struct gb_upload *upload, struct core_wake *wake) {
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(core_upload_finish(upload, wake, NULL, &err), err);
    gb_upload_free(upload);
    core_wake_done(wake);
}

/* The file is there before the last byte has come, and goes with an upload that is abandoned. */
static void check_write_through(const char *spec) {
    struct core_fixture f;
    struct core_wake wake;
    struct gb_upload *upload;

    durable_open(&f, spec);
    core_bytes(1, durable_sent, LARGE);
    upload = begin(&f, "x", &wake);
    send_part(upload, &wake, 0, 2 * 1024 * 1024 + 11);
    core_until(has_one_file, &f, "the file comes with the bytes");
    send_part(upload, &wake, 2 * 1024 * 1024 + 11, LARGE);
    finish(upload, &wake);
    ck_assert_uint_eq(count_files(&f), 1);
    upload = begin(&f, "x", &wake);
    send_part(upload, &wake, 0, 2 * 1024 * 1024);
    core_until(has_two_files, &f, "the file of the next generation");
    gb_upload_free(upload);
    core_wake_done(&wake);
    core_until(has_one_file, &f, "an abandoned upload leaves no file");
    restart(&f);
    durable_assert_bytes(&f, "x", 1, LARGE);
    core_fixture_done(&f);
}

START_TEST(test_write_through) {
    check_write_through("host");
    check_write_through("host:discrete");
}
END_TEST

/* Both want the name of the next generation: one has it, the other's bytes are read back at its commit. */
static void check_rivals(const char *spec) {
    struct core_fixture f;
    struct core_wake wake[2];
    struct gb_upload *upload[2];

    durable_open(&f, spec);
    core_bytes(1, durable_sent, LARGE);
    upload[0] = begin(&f, "x", &wake[0]);
    upload[1] = begin(&f, "x", &wake[1]);
    send_part(upload[0], &wake[0], 0, LARGE);
    finish(upload[0], &wake[0]);
    core_bytes(2, durable_sent, LARGE);
    send_part(upload[1], &wake[1], 0, LARGE);
    finish(upload[1], &wake[1]);
    upload[0] = begin(&f, "x", &wake[0]);
    upload[1] = begin(&f, "x", &wake[1]);
    core_bytes(3, durable_sent, LARGE);
    send_part(upload[0], &wake[0], 0, LARGE);
    core_bytes(4, durable_sent, LARGE);
    send_part(upload[1], &wake[1], 0, LARGE);
    finish(upload[1], &wake[1]);
    finish(upload[0], &wake[0]);
    restart(&f);
    ck_assert_int_eq(durable_get(&f, "x").generation, 4);
    durable_assert_bytes(&f, "x", 3, LARGE);
    core_until(has_one_file, &f, "only the last generation's file stays");
    core_fixture_done(&f);
}

START_TEST(test_rivals) {
    check_rivals("host");
    check_rivals("host:discrete");
}
END_TEST

/* --- a disk that fails -------------------------------------------------------------------------------------------- */

struct fault {
    const char *rules;
    enum gb_code code;
};

static void check_fault(const struct fault *fault) {
    struct gb_error err = GB_ERROR_INIT;
    struct core_fixture f;

    durable_open(&f, "host:discrete");
    durable_put_ok(&f, "x", 1, LARGE, GB_DURABILITY_SYNC);
    core_fixture_close(&f);
    f.disk_faults = fault->rules;
    core_fixture_open(&f);
    ck_assert_int_eq(durable_put(&f, "x", 2, LARGE, GB_DURABILITY_SYNC, NULL, &err), -1);
    ck_assert_msg(err.code == fault->code, "%s: %s", fault->rules, err.detail);
    durable_assert_bytes(&f, "x", 1, LARGE);
    ck_assert_int_eq(durable_get(&f, "x").generation, 1);
    core_until(has_one_file, &f, "a file that was not completed goes");
    core_fixture_close(&f);
    f.disk_faults = NULL;
    core_fixture_open(&f);
    durable_assert_bytes(&f, "x", 1, LARGE);
    durable_put_ok(&f, "x", 3, LARGE, GB_DURABILITY_SYNC);
    core_fixture_done(&f);
}

START_TEST(test_faults) {
    static const struct fault faults[] = {
        {"create=EIO", GB_ERR_STORAGE_FAILED},  {"fallocate=ENOSPC", GB_ERR_STORAGE_FULL},
        {"write@2=EIO", GB_ERR_STORAGE_FAILED}, {"write@2=ENOSPC", GB_ERR_STORAGE_FULL},
        {"rename=EIO", GB_ERR_STORAGE_FAILED},  {"truncate=EIO", GB_ERR_STORAGE_FAILED},
        {"sync=EIO", GB_ERR_STORAGE_FAILED},    {"dirsync@1+=EIO", GB_ERR_STORAGE_FAILED},
    };
    size_t i;

    for (i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        check_fault(&faults[i]);
}
END_TEST

START_TEST(test_damage) {
    struct gb_error err = GB_ERROR_INIT;
    struct core_fixture f;
    char path[192];
    FILE *file;

    durable_open(&f, "host");
    durable_put_ok(&f, "x", 1, LARGE, GB_DURABILITY_SYNC);
    core_fixture_close(&f);
    durable_find_file(&f, path, sizeof(path));
    file = fopen(path, "r+b");
    ck_assert(file && fseek(file, 4096 + 2 * 1024 * 1024 + 7, SEEK_SET) == 0);
    core_bytes(1, durable_sent, LARGE);
    ck_assert(fputc(durable_sent[2 * 1024 * 1024 + 7] ^ 4, file) != EOF && fclose(file) == 0);
    core_fixture_open(&f);
    gb_assert_ok(core_download(f.core, "default", "x", 100, 2 * 1024 * 1024 - 100, durable_back, &err),
                 err); /* whole blocks */
    ck_assert(memcmp(durable_back, durable_sent + 100, 2 * 1024 * 1024 - 100) == 0);
    ck_assert_int_eq(core_download(f.core, "default", "x", 0, LARGE, durable_back, &err), -1);
    ck_assert_msg(err.code == GB_ERR_CONTENT_DAMAGED, "%s", err.detail);
    ck_assert_int_eq(load(&f, "x", &err), -1);
    ck_assert_msg(err.code == GB_ERR_CONTENT_DAMAGED, "%s", err.detail);
    core_fixture_done(&f);
}
END_TEST

START_TEST(test_missing_file_is_lost_until_it_returns) {
    struct gb_error err = GB_ERROR_INIT;
    struct core_fixture f;
    char from[192];
    char to[128];

    durable_open(&f, "host");
    durable_put_ok(&f, "x", 1, LARGE, GB_DURABILITY_SYNC);
    durable_find_file(&f, from, sizeof(from));
    snprintf(to, sizeof(to), "%s/aside", f.store.dir);
    core_fixture_close(&f);
    ck_assert_int_eq(rename(from, to), 0);
    core_fixture_open(&f);
    ck_assert_int_eq(durable_get(&f, "x").state, GB_BUFFER_LOST);
    ck_assert_int_eq(core_download(f.core, "default", "x", 0, LARGE, durable_back, &err), -1);
    ck_assert_int_eq(err.code, GB_ERR_CONTENT_LOST);
    core_fixture_close(&f);
    ck_assert_int_eq(rename(to, from), 0);
    core_fixture_open(&f);
    durable_assert_bytes(&f, "x", 1, LARGE);
    core_fixture_done(&f);
}
END_TEST

/* --- changes of durability, and what needs memory ----------------------------------------------------------------- */

START_TEST(test_patch) {
    struct gb_error err = GB_ERROR_INIT;
    struct core_fixture f;

    durable_open(&f, "host");
    durable_put_ok(&f, "x", 1, LARGE, GB_DURABILITY_NONE);
    ck_assert_uint_eq(count_files(&f), 0);
    gb_assert_ok(durable_patch(&f, "x", GB_DURABILITY_SYNC, &err), err);
    ck_assert_uint_eq(count_files(&f), 1);
    restart(&f);
    durable_assert_bytes(&f, "x", 1, LARGE);
    ck_assert_int_eq(durable_patch(&f, "x", GB_DURABILITY_NONE, &err), -1); /* the bytes would be gone */
    ck_assert_int_eq(err.code, GB_ERR_NOT_LOADED);
    gb_assert_ok(load(&f, "x", &err), err);
    gb_assert_ok(durable_patch(&f, "x", GB_DURABILITY_NONE, &err), err);
    core_until(has_no_file, &f, "the stored bytes go");
    durable_assert_bytes(&f, "x", 1, LARGE);
    restart(&f);
    ck_assert_int_eq(durable_get(&f, "x").state, GB_BUFFER_LOST);
    core_fixture_done(&f);
}
END_TEST

/* The same generation is stored again while the file of before is still being removed. */
START_TEST(test_stored_again) {
    struct gb_error err = GB_ERROR_INIT;
    struct core_fixture f;

    core_fixture_prepare(&f, "host");
    f.durable = true;
    f.disk_faults = "unlink=delay/50";
    core_fixture_open(&f);
    durable_put_ok(&f, "x", 1, LARGE, GB_DURABILITY_SYNC);
    gb_assert_ok(durable_patch(&f, "x", GB_DURABILITY_NONE, &err), err);
    gb_assert_ok(durable_patch(&f, "x", GB_DURABILITY_SYNC, &err), err);
    core_until(has_one_file, &f, "the file of before goes");
    restart(&f);
    durable_assert_bytes(&f, "x", 1, LARGE);
    core_fixture_done(&f);
}
END_TEST

/* What the database says goes with the file. */
START_TEST(test_behind_no_longer) {
    struct gb_error err = GB_ERROR_INIT;
    struct core_fixture f;
    bool wrote;

    durable_open(&f, "host");
    durable_put_ok(&f, "x", 1, LARGE, GB_DURABILITY_BEHIND);
    gb_assert_ok(durable_do(&f, gb_buffer_store, "x", &wrote, &err), err);
    ck_assert_int_eq(store_sql_int(f.store.path, "SELECT count(*) FROM stored"), 1);
    gb_assert_ok(durable_patch(&f, "x", GB_DURABILITY_NONE, &err), err);
    ck_assert_int_eq(store_sql_int(f.store.path, "SELECT count(*) FROM stored"), 0);
    core_until(has_no_file, &f, "the stored bytes go");
    core_fixture_done(&f);
}
END_TEST

START_TEST(test_without_folder) {
    struct gb_error err = GB_ERROR_INIT;
    struct core_fixture f;

    core_fixture_init(&f, "host");
    ck_assert_int_eq(durable_put(&f, "x", 1, SMALL, GB_DURABILITY_SYNC, NULL, &err), -1);
    ck_assert_int_eq(err.code, GB_ERR_UNSUPPORTED);
    core_fixture_done(&f);
}
END_TEST

START_TEST(test_no_room_to_load) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_params quota = {.has_quota_bytes = true, .quota = {.bytes = SMALL}};
    struct core_fixture f;

    durable_open(&f, "host");
    durable_put_ok(&f, "x", 1, LARGE, GB_DURABILITY_SYNC);
    restart(&f);
    gb_assert_ok(core_session_patch(f.core, "default", &quota, &err), err);
    ck_assert_int_eq(load(&f, "x", &err), -1);
    ck_assert_int_eq(err.code, GB_ERR_QUOTA_EXCEEDED);
    durable_assert_bytes(&f, "x", 1, LARGE); /* from the disk, without memory */
    quota.quota.bytes = GB_UNLIMITED;
    err = GB_ERROR_INIT;
    gb_assert_ok(core_session_patch(f.core, "default", &quota, &err), err);
    gb_assert_ok(load(&f, "x", &err), err);
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("durable");

    gb_test_add(suite, "restart", test_restart, 60);
    gb_test_add(suite, "replaced file goes", test_replaced_file_goes, 60);
    gb_test_add(suite, "session takes files", test_session_takes_files, 60);
    gb_test_add(suite, "behind", test_behind, 60);
    gb_test_add(suite, "roll back", test_roll_back, 60);
    gb_test_add(suite, "write-through", test_write_through, 60);
    gb_test_add(suite, "rivals", test_rivals, 60);
    gb_test_add(suite, "faults", test_faults, 60);
    gb_test_add(suite, "damage", test_damage, 60);
    gb_test_add(suite, "missing file", test_missing_file_is_lost_until_it_returns, 60);
    gb_test_add(suite, "patch", test_patch, 60);
    gb_test_add(suite, "stored again", test_stored_again, 60);
    gb_test_add(suite, "behind no longer", test_behind_no_longer, 60);
    gb_test_add(suite, "without folder", test_without_folder, 60);
    gb_test_add(suite, "no room to load", test_no_room_to_load, 60);
    return gb_test_run(suite);
}
