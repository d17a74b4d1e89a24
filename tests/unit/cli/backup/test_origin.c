/* Where the files of a checkpoint are read: in the daemon's folder, and of the daemon what that does not give. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/backup/origin.h"
#include "gb_test.h"
#include "scripted_server.h"

#define MANIFEST "{\"version\": 1, \"entries\": []}"
#define BYTES (3 * 4096 + 5)

static char dir[64];
static char folder[128];
static char data[BYTES];
static json_t *manifest;
static struct gb_origin origin;
static struct gb_piece piece;
static struct gb_scripted server;
static struct gpubuf_error err;
static struct gb_backup_file file = {.buffer = "w", .file = "00001.safetensors", .bytes = BYTES};

static void write_file(const char *name, const char *bytes, size_t n) {
    char path[256];
    int fd;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, bytes, n), (ssize_t)n);
    close(fd);
}

static void setup(void) {
    char path[96];
    size_t i;

    snprintf(dir, sizeof dir, "/tmp/gb-origin-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/checkpoints", dir);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    snprintf(folder, sizeof folder, "%s/c1", path);
    ck_assert_int_eq(mkdir(folder, 0700), 0);
    for (i = 0; i < sizeof data; i++)
        data[i] = (char)(i * 7 + i / 251);
    write_file("manifest.json", MANIFEST, strlen(MANIFEST));
    write_file("00001.safetensors", data, sizeof data);
    manifest = json_loads("{\"entries\":[],\"version\":1}", 0, NULL);
    origin.folder = -1;
}

static void teardown(void) {
    char command[128];

    gb_origin_close(&origin);
    gb_piece_done(&piece);
    json_decref(manifest);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    ck_assert_int_eq(system(command), 0);
}

static int read_at(uint64_t offset, uint64_t bytes, const char **ret) {
    memset(&err, 0, sizeof err);
    return gb_origin_read(&origin, &piece, &file, offset, bytes, ret, &err);
}

/* --- which folder ------------------------------------------------------------------------------------------------- */

START_TEST(test_the_folder_of_the_same_checkpoint) {
    gb_origin_open_at(dir, "c1", manifest, &origin);
    ck_assert_int_ge(origin.folder, 0);
    gb_origin_close(&origin);
    ck_assert_int_eq(origin.folder, -1);
}
END_TEST

START_TEST(test_folders_that_are_not_it) {
    char path[160];

    gb_origin_open_at("", "c1", manifest, &origin); /* the daemon did not say where */
    ck_assert_int_eq(origin.folder, -1);
    gb_origin_open_at("tmp", "c1", manifest, &origin); /* of another working directory */
    ck_assert_int_eq(origin.folder, -1);
    gb_origin_open_at(dir, "c2", manifest, &origin);
    ck_assert_int_eq(origin.folder, -1);
    snprintf(path, sizeof path, "%s/checkpoints/link", dir);
    ck_assert_int_eq(symlink(folder, path), 0);
    gb_origin_open_at(dir, "link", manifest, &origin);
    ck_assert_int_eq(origin.folder, -1);
    json_object_set_new(manifest, "name", json_string("of another machine"));
    gb_origin_open_at(dir, "c1", manifest, &origin);
    ck_assert_int_eq(origin.folder, -1);
    write_file("manifest.json", "{", 1);
    gb_origin_open_at(dir, "c1", manifest, &origin);
    ck_assert_int_eq(origin.folder, -1);
}
END_TEST

/* --- its bytes ---------------------------------------------------------------------------------------------------- */

/* Whole pages, the end that is none, and what no read past the kernel's cache could give. In the second round the
 * kernel has the file in its cache, or not. */
START_TEST(test_parts_of_a_file) {
    static const struct {
        uint64_t offset, bytes;
    } cases[] = {{0, BYTES}, {0, 4096}, {4096, 8192}, {8192, BYTES - 8192},
                 {12288, 5}, {1, 100},  {4096, 100},  {12290, 3}};
    const char *got;
    int round;
    int fd;

    gb_origin_open_at(dir, "c1", manifest, &origin);
    for (round = 0; round < 2; round++) {
        ck_assert_msg(read_at(cases[_i].offset, cases[_i].bytes, &got) == 0, "%s", err.detail);
        ck_assert_mem_eq(got, data + cases[_i].offset, cases[_i].bytes);
        fd = openat(origin.folder, file.file, O_RDONLY);
        fsync(fd);
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
}
END_TEST

/* --- what the folder does not give -------------------------------------------------------------------------------- */

static void damage_nothing(void) {
    unlinkat(origin.folder, file.file, 0);
}

static void damage_shorter(void) {
    write_file(file.file, data, BYTES - 1);
}

static void damage_longer(void) {
    char longer[BYTES + 1] = {0};

    write_file(file.file, longer, sizeof longer);
}

static void damage_link(void) {
    renameat(origin.folder, file.file, origin.folder, "other");
    ck_assert_int_eq(symlinkat("other", origin.folder, file.file), 0);
}

static void damage_pipe(void) {
    unlinkat(origin.folder, file.file, 0);
    ck_assert_int_eq(mkfifoat(origin.folder, file.file, 0600), 0);
}

START_TEST(test_the_daemon_is_asked) {
    static void (*const damages[])(void) = {damage_nothing, damage_shorter, damage_longer, damage_link, damage_pipe};
    static const struct gb_scripted_answer script[] = {{.head = "206 Partial Content", .body = "of the daemon"}};
    struct gpubuf_options options = {0};
    const char *got;

    gb_scripted_start(&server, script, 1);
    options.url = server.url;
    ck_assert_int_eq(gpubuf_open(&options, &piece.client, &err), 0);
    gb_origin_open_at(dir, "c1", manifest, &origin);
    ck_assert_int_ge(origin.folder, 0);
    damages[_i]();
    ck_assert_msg(read_at(100, 13, &got) == 0, "%s", err.detail);
    ck_assert_mem_eq(got, "of the daemon", 13);
    ck_assert(gb_scripted_asked(&server, 0, "GET /v1/checkpoints/c1/files/00001.safetensors HTTP/1.1"));
    ck_assert_str_eq(gb_scripted_header(&server, 0, "Range"), "bytes=100-112");
    gpubuf_close(piece.client);
    gb_scripted_stop(&server);
}
END_TEST

/* A daemon or a proxy that does not give what was asked for. */
START_TEST(test_an_answer_of_another_length) {
    static const struct gb_scripted_answer script[] = {{.head = "200 OK", .body = "more than was asked for"}};
    struct gpubuf_options options = {0};
    const char *got;

    gb_scripted_start(&server, script, 1);
    options.url = server.url;
    ck_assert_int_eq(gpubuf_open(&options, &piece.client, &err), 0);
    origin = (struct gb_origin){.checkpoint = "c1", .folder = -1};
    ck_assert_int_eq(read_at(0, 5, &got), -1);
    ck_assert_int_eq(err.code, GPUBUF_BAD_ANSWER);
    gpubuf_close(piece.client);
    gb_scripted_stop(&server);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("backup/origin");
    TCase *cases = tcase_create("origin");

    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, test_the_folder_of_the_same_checkpoint);
    tcase_add_test(cases, test_folders_that_are_not_it);
    tcase_add_loop_test(cases, test_parts_of_a_file, 0, 8);
    tcase_add_loop_test(cases, test_the_daemon_is_asked, 0, 5);
    tcase_add_test(cases, test_an_answer_of_another_length);
    suite_add_tcase(suite, cases);
    return gb_test_run(suite);
}
