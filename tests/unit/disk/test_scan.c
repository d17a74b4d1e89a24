/* The files that are there are visited, and taken out of the way. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "disk_fixture.h"
#include "gb_test.h"

#define SEEN_MAX 32

static struct disk_fixture f;
static struct gb_error err;

static struct {
    struct gb_disk_name name;
    uint64_t bytes;
} seen[SEEN_MAX];
static unsigned seen_count;
static unsigned refuse_at; /* the visitor fails at this file, counted from 1 */

static int visit(void *arg, const struct gb_disk_name *name, uint64_t bytes, struct gb_error *error) {
    ck_assert_ptr_eq(arg, &seen);
    ck_assert_uint_lt(seen_count, SEEN_MAX);
    seen[seen_count].name = *name;
    seen[seen_count++].bytes = bytes;
    return seen_count == refuse_at ? gb_error_set(error, GB_ERR_DRAINING, "enough") : 0;
}

static int scan(void) {
    seen_count = 0;
    return gb_disk_scan(f.disk, visit, &seen, &err);
}

/* Asserts that the file was seen once, with these bytes. */
static void assert_seen(const struct gb_disk_name *name, uint64_t bytes) {
    unsigned times = 0;
    unsigned i;

    for (i = 0; i < seen_count; i++) {
        const struct gb_disk_name *other = &seen[i].name;

        if (other->buffer_id == name->buffer_id && other->generation == name->generation && other->run == name->run) {
            times++;
            ck_assert_uint_eq(seen[i].bytes, bytes);
        }
    }
    ck_assert_uint_eq(times, 1);
}

static void begin(void) {
    err = GB_ERROR_INIT;
    memset(seen, 0, sizeof(seen));
    disk_fixture_init(&f, "/tmp", NULL);
}

static void make(const char *below) {
    char path[DISK_PATH_SIZE];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", f.dir, below);
    fd = open(path, O_WRONLY | O_CREAT, 0600);
    ck_assert_int_ge(fd, 0);
    close(fd);
}

START_TEST(all_files_are_visited_once) {
    static const int64_t ids[] = {1, 2, 257, 513, 255, 65535, INT64_MAX};
    size_t i;

    begin();
    gb_assert_ok(scan(), err);
    ck_assert_uint_eq(seen_count, 0);
    for (i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        struct gb_disk_name name = {.buffer_id = ids[i], .generation = 3, .run = UINT32_MAX};

        gb_assert_ok(disk_write(&f, &name, i * 1000, &err), err);
    }
    gb_assert_ok(scan(), err);
    ck_assert_uint_eq(seen_count, 7);
    for (i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        struct gb_disk_name name = {.buffer_id = ids[i], .generation = 3, .run = UINT32_MAX};

        assert_seen(&name, i * 1000);
    }
    disk_fixture_done(&f);
}
END_TEST

START_TEST(other_names_are_skipped) {
    static const char *const junk[] = {
        "01/x",
        "01/1.7.0badcafe.safetensors.new",
        "01/2.7.0badcafe.safetensors", /* belongs into 02 */
        "01/1.7.0BADCAFE.safetensors",
        "01/01.7.0badcafe.safetensors",
        "1.7.0badcafe.safetensors",
        "README",
    };
    struct gb_disk_name name = disk_name(1);
    struct gb_disk_name aside = disk_name(257);
    size_t i;

    begin();
    gb_assert_ok(disk_write(&f, &name, 10, &err), err);
    gb_assert_ok(disk_write(&f, &aside, 10, &err), err);
    gb_disk_set_aside(f.disk, &aside, false);
    for (i = 0; i < sizeof(junk) / sizeof(junk[0]); i++)
        make(junk[i]);
    gb_assert_ok(scan(), err);
    ck_assert_uint_eq(seen_count, 1);
    assert_seen(&name, 10);
    disk_fixture_done(&f);
}
END_TEST

/* Whatever has a file's name is seen, so that the caller can take it out of the way. */
START_TEST(what_is_no_whole_file_has_no_bytes) {
    struct gb_disk_name names[4] = {disk_name(1), disk_name(257), disk_name(513), disk_name(769)};
    char path[DISK_PATH_SIZE];
    int i;

    begin();
    for (i = 0; i < 4; i++)
        gb_assert_ok(disk_write(&f, &names[i], 10, &err), err);
    ck_assert_int_eq(truncate(disk_path(&f, &names[0], path), 4000), 0);
    ck_assert_int_eq(truncate(disk_path(&f, &names[1], path), 0), 0);
    ck_assert_int_eq(unlink(disk_path(&f, &names[2], path)), 0);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    ck_assert_int_eq(unlink(disk_path(&f, &names[3], path)), 0);
    ck_assert_int_eq(symlink("1.7.0badcafe.safetensors", path), 0);
    gb_assert_ok(scan(), err);
    ck_assert_uint_eq(seen_count, 4);
    for (i = 0; i < 4; i++)
        assert_seen(&names[i], 0);
    for (i = 0; i < 4; i++)
        gb_disk_set_aside(f.disk, &names[i], i % 2 == 0);
    gb_assert_ok(scan(), err);
    ck_assert_uint_eq(seen_count, 0);
    ck_assert_uint_eq(disk_stat(&f).failures, 0);
    disk_fixture_done(&f);
}
END_TEST

START_TEST(the_visitors_error_ends_it) {
    struct gb_disk_name names[3] = {disk_name(1), disk_name(2), disk_name(3)};
    int i;

    begin();
    for (i = 0; i < 3; i++)
        gb_assert_ok(disk_write(&f, &names[i], 10, &err), err);
    refuse_at = 2;
    gb_assert_fails(scan(), err, GB_ERR_DRAINING);
    ck_assert_uint_eq(seen_count, 2);
    ck_assert_int_eq(disk_stat(&f).state, GB_DISK_READY);
    refuse_at = 0;
    disk_fixture_done(&f);
}
END_TEST

static int set_aside(void *arg, const struct gb_disk_name *name, uint64_t bytes, struct gb_error *error) {
    (void)bytes;
    (void)error;
    ++*(unsigned *)arg;
    gb_disk_set_aside(f.disk, name, false);
    return 0;
}

/* A visitor may move the file that it is at. */
START_TEST(files_are_set_aside_in_a_scan) {
    unsigned visited = 0;
    int64_t id;

    begin();
    for (id = 1; id <= 300; id += 4) {
        struct gb_disk_name name = disk_name(id);

        gb_assert_ok(disk_write(&f, &name, 1, &err), err);
    }
    gb_assert_ok(gb_disk_scan(f.disk, set_aside, &visited, &err), err);
    ck_assert_uint_eq(visited, 75);
    gb_assert_ok(scan(), err);
    ck_assert_uint_eq(seen_count, 0);
    disk_fixture_done(&f);
}
END_TEST

/* --- orphans ------------------------------------------------------------------------------------------------------ */

static bool is_in(const char *folder, const struct gb_disk_name *name) {
    char text[GB_DISK_NAME_SIZE];
    char path[DISK_PATH_SIZE];
    struct stat st;

    gb_disk_name_text(name, text);
    snprintf(path, sizeof(path), "%s/%s/%s", f.dir, folder, text + 3);
    return lstat(path, &st) == 0;
}

/* Sets the time of a file in that folder. */
static void set_age(const char *folder, const struct gb_disk_name *name, time_t age_s) {
    struct timespec times[2] = {{.tv_sec = time(NULL) - age_s}, {.tv_sec = time(NULL) - age_s}};
    char text[GB_DISK_NAME_SIZE];
    char path[DISK_PATH_SIZE];

    gb_disk_name_text(name, text);
    snprintf(path, sizeof(path), "%s/%s/%s", f.dir, folder, text + 3);
    ck_assert_int_eq(utimensat(AT_FDCWD, path, times, 0), 0);
}

START_TEST(files_are_set_aside) {
    struct gb_disk_name name = disk_name(298);

    begin();
    gb_disk_set_aside(f.disk, &name, _i == 1); /* absent is as good */
    ck_assert_uint_eq(disk_entries(&f), 0);
    gb_assert_ok(disk_write(&f, &name, 10, &err), err);
    gb_disk_set_aside(f.disk, &name, _i == 1);
    ck_assert(is_in(_i == 1 ? "damaged" : "orphans", &name));
    ck_assert(!is_in("2a", &name));
    disk_assert_unreadable(&f, &name, 10, GB_ERR_CONTENT_LOST);
    ck_assert_uint_eq(disk_stat(&f).failures, 0);
    disk_fixture_done(&f);
}
END_TEST

START_TEST(orphans_end_by_age) {
    struct gb_disk_name names[3] = {disk_name(1), disk_name(2), disk_name(3)};
    int i;

    begin();
    gb_disk_sweep_orphans(f.disk, gb_wall_us()); /* there is no folder yet */
    for (i = 0; i < 3; i++) {
        gb_assert_ok(disk_write(&f, &names[i], 10, &err), err);
        set_age(i == 0 ? "01" : i == 1 ? "02" : "03", &names[i], 1000000);
        gb_disk_set_aside(f.disk, &names[i], i == 2);
    }
    make("orphans/README");
    /* They have been here for a moment, however old they are. */
    gb_disk_sweep_orphans(f.disk, gb_wall_us() - 86400 * (int64_t)1000000);
    ck_assert(is_in("orphans", &names[0]) && is_in("orphans", &names[1]));
    set_age("orphans", &names[0], 86400 + 60);
    set_age("orphans", &names[1], 86400 - 60);
    set_age("damaged", &names[2], 86400 + 60);
    gb_disk_sweep_orphans(f.disk, gb_wall_us() - 86400 * (int64_t)1000000);
    ck_assert(!is_in("orphans", &names[0]));
    ck_assert(is_in("orphans", &names[1]));
    ck_assert(is_in("damaged", &names[2]));
    set_age("orphans", &names[1], -1000); /* the clock was put back: it counts from now on */
    gb_disk_sweep_orphans(f.disk, gb_wall_us());
    ck_assert(is_in("orphans", &names[1]));
    gb_disk_sweep_orphans(f.disk, gb_wall_us() + 1000000);
    ck_assert(!is_in("orphans", &names[1]));
    gb_disk_sweep_orphans(f.disk, gb_wall_us());
    ck_assert(!is_in("orphans", &names[1]));
    ck_assert_uint_eq(disk_stat(&f).failures, 0);
    ck_assert_uint_eq(disk_entries(&f), 7); /* 01, 02, 03, orphans, damaged, README and what is damaged */
    disk_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("disk scan");

    gb_test_add(suite, "all", all_files_are_visited_once, 30);
    gb_test_add(suite, "others", other_names_are_skipped, 30);
    gb_test_add(suite, "not whole", what_is_no_whole_file_has_no_bytes, 30);
    gb_test_add(suite, "error", the_visitors_error_ends_it, 30);
    gb_test_add(suite, "moved", files_are_set_aside_in_a_scan, 60);
    gb_test_add_loop(suite, "aside", files_are_set_aside, 30, 2);
    gb_test_add(suite, "orphans", orphans_end_by_age, 30);
    return gb_test_run(suite);
}
