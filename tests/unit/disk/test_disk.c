/* The folder, its marker, and its room. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "disk_fixture.h"
#include "gb_test.h"

static struct disk_fixture f;
static struct gb_error err;

static void begin(const char *rules) {
    err = GB_ERROR_INIT;
    disk_fixture_init(&f, "/tmp", rules);
}

static const char *marker_path(void) {
    static char path[DISK_PATH_SIZE];

    snprintf(path, sizeof(path), "%s/" GB_DISK_MARKER, f.dir);
    return path;
}

static void write_marker(const char *text) {
    FILE *file = fopen(marker_path(), "w");

    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

/* --- the marker --------------------------------------------------------------------------------------------------- */

START_TEST(a_new_folder_is_private_and_marked) {
    struct stat st;
    char text[256] = "";
    FILE *file;

    umask(0);
    begin(NULL);
    ck_assert_int_eq(stat(f.dir, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0700);
    ck_assert_int_eq(stat(marker_path(), &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0600);
    file = fopen(marker_path(), "r");
    ck_assert_uint_gt(fread(text, 1, sizeof(text) - 1, file), 0);
    fclose(file);
    ck_assert_str_eq(text, "gpubufd data 1\n" DISK_UUID "\n");
    ck_assert_uint_eq(disk_entries(&f), 0);
    ck_assert_int_eq(disk_stat(&f).state, GB_DISK_READY);
    ck_assert_uint_gt(disk_stat(&f).free_bytes, 0);
    disk_fixture_done(&f);
}
END_TEST

START_TEST(a_folder_is_opened_again) {
    struct gb_disk_name name = disk_name(298);

    begin(NULL);
    gb_assert_ok(disk_write(&f, &name, 100, &err), err);
    disk_fixture_close(&f);
    f.config.expected = true;
    strcat(f.dir, "//");
    disk_fixture_open(&f, NULL);
    ck_assert_int_eq(disk_stat(&f).state, GB_DISK_READY);
    disk_assert_bytes(&f, &name, 100);
    disk_fixture_done(&f);
}
END_TEST

/* A folder that an administrator made may be a link. */
START_TEST(a_folder_may_be_a_link) {
    struct gb_disk_name name = disk_name(298);
    char to[DISK_PATH_SIZE];

    begin(NULL);
    disk_fixture_close(&f);
    snprintf(to, sizeof(to), "%s/else", f.top);
    ck_assert_int_eq(rename(f.dir, to), 0);
    ck_assert_int_eq(symlink("else", f.dir), 0);
    disk_fixture_open(&f, NULL);
    gb_assert_ok(disk_write(&f, &name, 100, &err), err);
    disk_assert_bytes(&f, &name, 100);
    disk_fixture_done(&f);
}
END_TEST

START_TEST(markers_of_others_are_refused) {
    static const char *const texts[][2] = {
        {"gpubufd data 1\n0b1e5a3c-0000-4000-8000-000000000002\n", "another database"},
        {"gpubufd data 1\n" DISK_UUID "\nmore\n", "another database"},
        {"gpubufd data 2\n" DISK_UUID "\n", "this version"},
        {"", "this version"},
    };
    struct gb_disk *disk = NULL;

    begin(NULL);
    disk_fixture_close(&f);
    write_marker(texts[_i][0]);
    ck_assert_int_eq(gb_disk_open(&f.config, &disk, &err), -1);
    ck_assert_ptr_null(disk);
    ck_assert_int_eq(err.code, GB_ERR_INVALID_ARGUMENT);
    ck_assert_msg(strstr(err.detail, texts[_i][1]) != NULL, "%s", err.detail);
    disk_fixture_done(&f);
}
END_TEST

START_TEST(a_path_that_cannot_be_is_refused) {
    static char path[PATH_MAX];
    struct gb_disk_config config = {.dir = path, .uuid = DISK_UUID};
    struct gb_disk *disk;

    err = GB_ERROR_INIT;
    gb_assert_fails(gb_disk_open(&config, &disk, &err), err, GB_ERR_INVALID_ARGUMENT);
    memset(path, '/', sizeof(path) - 1);
    gb_assert_fails(gb_disk_open(&config, &disk, &err), err, GB_ERR_INVALID_ARGUMENT);
}
END_TEST

/* --- a disk that is absent ---------------------------------------------------------------------------------------- */

/* Everything but the probe answers that the disk is not there, and makes nothing in the folder. */
static void assert_unavailable(void) {
    struct gb_disk_name name = disk_name(298);
    struct gb_disk_writer *w;
    struct gb_disk_stat stat = disk_stat(&f);

    ck_assert_int_eq(stat.state, GB_DISK_UNAVAILABLE);
    ck_assert_int_eq(stat.error.code, GB_ERR_STORAGE_UNAVAILABLE);
    ck_assert_uint_eq(stat.free_bytes, 0);
    gb_assert_fails(gb_disk_create(f.disk, &name, 1, &w, &err), err, GB_ERR_STORAGE_UNAVAILABLE);
    gb_assert_fails(gb_disk_check_room(f.disk, 1, &err), err, GB_ERR_STORAGE_UNAVAILABLE);
    gb_assert_fails(gb_disk_scan(f.disk, NULL, NULL, &err), err, GB_ERR_STORAGE_UNAVAILABLE);
    disk_assert_unreadable(&f, &name, 1, GB_ERR_STORAGE_UNAVAILABLE);
    gb_disk_remove(f.disk, &name);
    gb_disk_set_aside(f.disk, &name, true);
    gb_disk_sweep_orphans(f.disk, gb_wall_us());
    ck_assert(!gb_disk_probe(f.disk));
}

START_TEST(an_expected_marker_that_is_missing) {
    begin(NULL);
    disk_fixture_close(&f);
    ck_assert_int_eq(unlink(marker_path()), 0);
    f.config.expected = true;
    disk_fixture_open(&f, NULL);
    assert_unavailable();
    ck_assert_uint_eq(disk_entries(&f), 0);
    ck_assert_int_ne(access(marker_path(), F_OK), 0);

    write_marker("gpubufd data 1\nanother\n");
    ck_assert(!gb_disk_probe(f.disk));
    ck_assert_msg(strstr(disk_stat(&f).error.detail, "another database") != NULL, "%s", disk_stat(&f).error.detail);
    write_marker("gpubufd data 1\n" DISK_UUID "\n");
    ck_assert(gb_disk_probe(f.disk));
    ck_assert_int_eq(disk_stat(&f).state, GB_DISK_READY);
    ck_assert_int_eq(disk_stat(&f).error.code, GB_OK);
    ck_assert_uint_gt(disk_stat(&f).free_bytes, 0);
    disk_fixture_done(&f);
}
END_TEST

START_TEST(a_folder_that_cannot_be_made_yet) {
    char top[96];

    begin(NULL);
    disk_fixture_close(&f);
    snprintf(top, sizeof(top), "%s/later", f.top);
    snprintf(f.dir, sizeof(f.dir), "%.60s/later/data", f.top);
    disk_fixture_open(&f, NULL);
    assert_unavailable();
    ck_assert_int_eq(mkdir(top, 0700), 0);
    ck_assert(gb_disk_probe(f.disk));
    ck_assert_int_eq(disk_stat(&f).state, GB_DISK_READY);
    disk_fixture_done(&f);
}
END_TEST

/* The folder is set up whole or not at all. dirsync@1 is that of its parent. */
START_TEST(a_folder_whose_setting_up_fails) {
    static const char *const rules[] = {"mkdir@1=EIO", "dirsync@1=EIO", "create@1=EIO", "write@1=EIO",
                                        "sync@1=EIO",  "rename@1=EIO",  "dirsync@2=EIO"};
    static const unsigned syncs[] = {2, 3, 3, 3, 3, 3, 2}; /* of folders, in both attempts */
    char top[DISK_PATH_SIZE];

    begin(NULL);
    disk_fixture_close(&f);
    snprintf(top, sizeof(top), "%s/later", f.top);
    snprintf(f.dir, sizeof(f.dir), "%.60s/later/data", f.top);
    disk_fixture_open(&f, rules[_i]);
    ck_assert_int_eq(mkdir(top, 0700), 0);
    ck_assert(!gb_disk_probe(f.disk));
    ck_assert_int_eq(disk_stat(&f).state, GB_DISK_UNAVAILABLE);
    ck_assert_str_eq(disk_stat(&f).error.native_name, "EIO");
    ck_assert(gb_disk_probe(f.disk));
    ck_assert_int_eq(disk_stat(&f).state, GB_DISK_READY);
    ck_assert_int_eq(access(marker_path(), F_OK), 0);
    ck_assert_uint_eq(disk_calls(&f, GB_DISK_OP_dirsync), syncs[_i]);
    ck_assert_uint_eq(disk_entries(&f), 1); /* the folder "data" in "later" */
    disk_fixture_done(&f);
}
END_TEST

/* The disk is unmounted: what is there then is the empty folder beneath. */
START_TEST(a_disk_that_goes_and_comes_back) {
    struct gb_disk_name name = disk_name(298);
    struct gb_disk_name next = disk_name(_i == 1 ? 298 + 256 : 299); /* in a folder that is known, or in a new one */
    struct gb_disk_writer *w;
    char away[DISK_PATH_SIZE];

    begin(NULL);
    gb_assert_ok(disk_write(&f, &name, 100, &err), err);
    snprintf(away, sizeof(away), "%s/away", f.top);
    ck_assert_int_eq(rename(f.dir, away), 0);
    ck_assert_int_eq(mkdir(f.dir, 0700), 0);
    if (_i == 0)
        disk_assert_unreadable(&f, &name, 100, GB_ERR_STORAGE_UNAVAILABLE);
    else if (_i == 3)
        gb_assert_fails(gb_disk_scan(f.disk, NULL, NULL, &err), err, GB_ERR_STORAGE_UNAVAILABLE);
    else
        gb_assert_fails(gb_disk_create(f.disk, &next, 100, &w, &err), err, GB_ERR_STORAGE_UNAVAILABLE);
    ck_assert_uint_eq(f.disk->promised, 0);
    assert_unavailable();
    ck_assert_int_eq(rmdir(f.dir), 0); /* it is empty: nothing was made in it */
    ck_assert_int_eq(rename(away, f.dir), 0);
    ck_assert(gb_disk_probe(f.disk));
    ck_assert_int_eq(disk_stat(&f).state, GB_DISK_READY);
    disk_assert_bytes(&f, &name, 100);
    gb_assert_ok(disk_write(&f, &next, 100, &err), err);
    disk_assert_bytes(&f, &next, 100);
    disk_fixture_done(&f);
}
END_TEST

/* Nothing is written meanwhile. */
START_TEST(a_folder_that_goes_is_noticed) {
    char away[DISK_PATH_SIZE];

    begin(NULL);
    ck_assert(!gb_disk_probe(f.disk));
    snprintf(away, sizeof(away), "%s/away", f.top);
    ck_assert_int_eq(rename(f.dir, away), 0);
    ck_assert(gb_disk_probe(f.disk));
    ck_assert_int_eq(disk_stat(&f).state, GB_DISK_UNAVAILABLE);
    ck_assert_int_eq(rename(away, f.dir), 0);
    ck_assert(gb_disk_probe(f.disk));
    ck_assert_int_eq(disk_stat(&f).state, GB_DISK_READY);
    disk_fixture_done(&f);
}
END_TEST

/* The file is whole and synced, and yet its name leads to nothing. */
START_TEST(a_folder_that_goes_under_a_file) {
    struct gb_buffer_rec rec = {.name = {"w"}, .bytes = 100, .shape = {.dims = 1, .dim = {100}}};
    const struct gb_disk_meta meta = {"s", &rec};
    struct gb_disk_name name = disk_name(298);
    struct gb_disk_writer *w;
    char bytes[100] = "";
    char away[DISK_PATH_SIZE];
    uint32_t blocks[1];
    uint32_t crc;

    begin(NULL);
    gb_assert_ok(gb_disk_create(f.disk, &name, 100, &w, &err), err);
    gb_assert_ok(gb_disk_write(w, bytes, 100, &err), err);
    snprintf(away, sizeof(away), "%s/away", f.top);
    ck_assert_int_eq(rename(f.dir, away), 0);
    gb_assert_fails(gb_disk_complete(w, &meta, &crc, blocks, &err), err, GB_ERR_STORAGE_UNAVAILABLE);
    gb_disk_discard(w);
    ck_assert_int_eq(rename(away, f.dir), 0);
    ck_assert(gb_disk_probe(f.disk));
    disk_fixture_done(&f);
}
END_TEST

/* A disk that has failed and goes then is absent, and nothing is written to find that out. */
START_TEST(a_failed_disk_that_goes) {
    struct gb_disk_name name = disk_name(298);
    char away[DISK_PATH_SIZE];

    begin("sync@1=EIO");
    ck_assert_int_eq(disk_write(&f, &name, 100, &err), -1);
    snprintf(away, sizeof(away), "%s/away", f.top);
    ck_assert_int_eq(rename(f.dir, away), 0);
    ck_assert_int_eq(mkdir(f.dir, 0700), 0);
    ck_assert(gb_disk_probe(f.disk));
    ck_assert_int_eq(disk_stat(&f).state, GB_DISK_UNAVAILABLE);
    ck_assert_int_eq(rmdir(f.dir), 0);
    disk_fixture_done(&f);
}
END_TEST

START_TEST(states_have_names) {
    ck_assert_str_eq(gb_disk_state_name(GB_DISK_READY), "ready");
    ck_assert_str_eq(gb_disk_state_name(GB_DISK_FULL), "full");
    ck_assert_str_eq(gb_disk_state_name(GB_DISK_FAILED), "failed");
    ck_assert_str_eq(gb_disk_state_name(GB_DISK_UNAVAILABLE), "unavailable");
    ck_assert_str_eq(gb_disk_state_name((enum gb_disk_state)4), "unknown");
}
END_TEST

/* --- room --------------------------------------------------------------------------------------------------------- */

static uint64_t free_now(void) {
    struct statvfs fs;

    ck_assert_int_eq(statvfs(f.dir, &fs), 0);
    return (uint64_t)fs.f_bavail * fs.f_frsize;
}

START_TEST(the_reserve_is_not_given_away) {
    struct gb_disk_name name = disk_name(298);
    struct gb_disk_writer *w;

    begin(NULL);
    gb_assert_ok(gb_disk_check_room(f.disk, 1 << 20, &err), err);
    disk_fixture_close(&f);
    f.config.reserve_bytes = UINT64_MAX / 2;
    disk_fixture_open(&f, NULL);
    ck_assert_uint_eq(disk_stat(&f).free_bytes, 0);
    ck_assert_int_eq(gb_disk_check_room(f.disk, 5000, &err), -1);
    ck_assert_int_eq(err.code, GB_ERR_STORAGE_FULL);
    ck_assert(err.has_numbers && err.requested_bytes == 3 * 4096 && err.limit_bytes == 0 && err.used_bytes == 0);
    err = GB_ERROR_INIT;
    gb_assert_fails(gb_disk_create(f.disk, &name, 1, &w, &err), err, GB_ERR_STORAGE_FULL);
    ck_assert_int_eq(disk_stat(&f).state, GB_DISK_FULL); /* though no write has met the end of the room */
    ck_assert_uint_eq(disk_entries(&f), 0);
    disk_fixture_done(&f);
}
END_TEST

START_TEST(the_numbers_of_a_full_disk) {
    struct statvfs fs;

    begin(NULL);
    f.disk->reserve_bytes = 1 << 20;
    ck_assert_int_eq(statvfs(f.dir, &fs), 0);
    ck_assert_int_eq(gb_disk_check_room(f.disk, UINT64_MAX, &err), -1);
    ck_assert_int_eq(err.code, GB_ERR_STORAGE_FULL);
    ck_assert_uint_eq(err.limit_bytes, (uint64_t)fs.f_blocks * fs.f_frsize - (1 << 20));
    ck_assert_uint_eq(err.requested_bytes, UINT64_MAX);
    ck_assert_uint_gt(err.used_bytes, 0);
    ck_assert_uint_lt(err.used_bytes, err.limit_bytes);
    err = GB_ERROR_INIT;
    gb_assert_fails(gb_disk_check_room(f.disk, (uint64_t)INT64_MAX, &err), err, GB_ERR_STORAGE_FULL);
    disk_fixture_done(&f);
}
END_TEST

/* Where the file system does not allocate in advance, the promise stands until the bytes are written. Others use the
 * same file system meanwhile, so that the numbers are rough. */
START_TEST(promises_count) {
    struct gb_disk_name names[2] = {disk_name(298), disk_name(299)};
    unsigned char *data = disk_bytes(1 << 20);
    struct gb_disk_writer *w[2];
    uint64_t most;

    begin("fallocate=EOPNOTSUPP");
    most = free_now() / 4 * 3;
    gb_assert_ok(gb_disk_create(f.disk, &names[0], most, &w[0], &err), err);
    ck_assert_uint_ge(f.disk->promised, most);
    ck_assert_uint_lt(disk_stat(&f).free_bytes, most);
    gb_assert_fails(gb_disk_check_room(f.disk, most, &err), err, GB_ERR_STORAGE_FULL);
    gb_assert_fails(gb_disk_create(f.disk, &names[1], most, &w[1], &err), err, GB_ERR_STORAGE_FULL);
    most = f.disk->promised;
    gb_assert_ok(gb_disk_write(w[0], data, 1 << 20, &err), err);
    ck_assert_uint_eq(f.disk->promised, most - (1 << 20));
    gb_disk_discard(w[0]);
    ck_assert_uint_eq(f.disk->promised, 0);
    most = free_now() / 4 * 3;
    gb_assert_ok(gb_disk_create(f.disk, &names[1], most, &w[1], &err), err);
    gb_disk_discard(w[1]);
    free(data);
    disk_fixture_done(&f);
}
END_TEST

/* What the file system has allocated is not counted twice. */
START_TEST(allocated_room_is_no_promise) {
    struct gb_disk_name name = disk_name(298);
    struct gb_disk_writer *w;
    char path[DISK_PATH_SIZE];
    struct stat st;

    begin(NULL);
    gb_assert_ok(gb_disk_create(f.disk, &name, 10 << 20, &w, &err), err);
    ck_assert_int_eq(stat(disk_path(&f, &name, path), &st), 0);
    ck_assert_uint_eq(f.disk->promised, st.st_blocks > 0 ? 0 : gb_disk_room_of(10 << 20));
    gb_disk_discard(w);
    ck_assert_uint_eq(f.disk->promised, 0);
    disk_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("disk");

    gb_test_add(suite, "new", a_new_folder_is_private_and_marked, 30);
    gb_test_add(suite, "again", a_folder_is_opened_again, 30);
    gb_test_add(suite, "link", a_folder_may_be_a_link, 30);
    gb_test_add_loop(suite, "others", markers_of_others_are_refused, 30, 4);
    gb_test_add(suite, "path", a_path_that_cannot_be_is_refused, 30);
    gb_test_add(suite, "expected", an_expected_marker_that_is_missing, 30);
    gb_test_add(suite, "later", a_folder_that_cannot_be_made_yet, 30);
    gb_test_add_loop(suite, "setting up", a_folder_whose_setting_up_fails, 30, 7);
    gb_test_add_loop(suite, "unmounted", a_disk_that_goes_and_comes_back, 30, 4);
    gb_test_add(suite, "noticed", a_folder_that_goes_is_noticed, 30);
    gb_test_add(suite, "under", a_folder_that_goes_under_a_file, 30);
    gb_test_add(suite, "failed", a_failed_disk_that_goes, 30);
    gb_test_add(suite, "names", states_have_names, 30);
    gb_test_add(suite, "reserve", the_reserve_is_not_given_away, 30);
    gb_test_add(suite, "numbers", the_numbers_of_a_full_disk, 30);
    gb_test_add(suite, "promises", promises_count, 30);
    gb_test_add(suite, "allocated", allocated_room_is_no_promise, 30);
    return gb_test_run(suite);
}
