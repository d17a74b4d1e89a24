/* A file that is read ahead of what is sent. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/backup/ahead.h"
#include "gb_test.h"
#include "scripted_server.h"

#define BYTES ((size_t)(5 * GB_AHEAD_FOLDER_BYTES + 4097))

static char dir[64];
static char *data;
static struct gb_ahead ahead;
static struct gb_origin origin;
static struct gb_scripted server;
static gpubuf_client *clients[GB_AHEAD_PIECES];
static struct gpubuf_error err;
static struct gb_backup_file file = {.buffer = "w", .file = "00001.safetensors", .bytes = BYTES};

/* A folder with one file, and a daemon that gives the answers of the script. */
static void start(const struct gb_scripted_answer *script, size_t length) {
    struct gpubuf_options options = {0};
    char path[96];
    size_t i;
    int fd;

    snprintf(dir, sizeof dir, "/tmp/gb-ahead-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    data = malloc(BYTES);
    for (i = 0; i < BYTES; i++)
        data[i] = (char)(i * 7 + i / 251);
    snprintf(path, sizeof path, "%s/%s", dir, file.file);
    fd = open(path, O_WRONLY | O_CREAT, 0600);
    ck_assert_int_eq(write(fd, data, BYTES), (ssize_t)BYTES);
    close(fd);
    gb_scripted_start(&server, script, length);
    options.url = server.url;
    for (i = 0; i < GB_AHEAD_PIECES; i++)
        ck_assert_int_eq(gpubuf_open(&options, &clients[i], &err), 0);
    origin = (struct gb_origin){.checkpoint = "c1", .folder = open(dir, O_RDONLY | O_DIRECTORY)};
    ck_assert_int_eq(gb_ahead_init(&ahead, &origin, clients, &err), 0);
}

static void stop(void) {
    size_t i;

    gb_ahead_done(&ahead);
    for (i = 0; i < GB_AHEAD_PIECES; i++)
        gpubuf_close(clients[i]);
    gb_scripted_stop(&server);
    unlinkat(origin.folder, file.file, 0);
    gb_origin_close(&origin);
    ck_assert_int_eq(rmdir(dir), 0);
    free(data);
}

/* Takes at most `most` bytes, and compares them. Returns how many came, -1 at a failure. */
static int64_t take(size_t most) {
    size_t at = 0;

    while (at < most) {
        const char *piece;
        int64_t n = gb_ahead_next(&ahead, &piece, &err);

        if (n <= 0)
            return n < 0 ? -1 : (int64_t)at;
        ck_assert_uint_le(at + (size_t)n, BYTES);
        ck_assert_mem_eq(piece, data + at, (size_t)n);
        at += (size_t)n;
    }
    return (int64_t)at;
}

START_TEST(test_all_bytes_in_order) {
    start(NULL, 0);
    gb_ahead_begin(&ahead, &file);
    ck_assert_int_eq(take(BYTES + 1), (int64_t)BYTES);
    stop();
}
END_TEST

/* An upload that is repeated begins anew, wherever it was; nothing of before is left. */
START_TEST(test_anew) {
    start(NULL, 0);
    gb_ahead_begin(&ahead, &file);
    ck_assert_int_gt(take(1 + (size_t)_i * GB_AHEAD_FOLDER_BYTES), 0);
    gb_ahead_begin(&ahead, &file);
    ck_assert_int_eq(take(BYTES + 1), (int64_t)BYTES);
    gb_ahead_begin(&ahead, &file);
    ck_assert_int_eq(take(BYTES + 1), (int64_t)BYTES);
    stop();
}
END_TEST

/* Pieces that were read stay unread, or none was asked for. */
START_TEST(test_the_end_before_all_was_taken) {
    start(NULL, 0);
    if (_i > 0)
        gb_ahead_begin(&ahead, &file);
    if (_i > 1)
        ck_assert_int_gt(take(1), 0);
    stop();
}
END_TEST

/* The daemon says why the file cannot be read; after that another one can be. */
START_TEST(test_a_failure) {
    static const struct gb_scripted_answer script[] = {
        {.head = "410 Gone\r\nContent-Type: application/problem+json",
         .body = "{\"type\":\"urn:gpubuf:error:content_damaged\",\"code\":\"content_damaged\",\"title\":\"t\","
                 "\"status\":410,\"detail\":\"two bits\"}"}};
    struct gb_backup_file other = file;

    start(script, 1);
    snprintf(other.object, sizeof other.object, "x");
    other.file = "00002.safetensors";
    gb_ahead_begin(&ahead, &other);
    ck_assert_int_eq(take(1), -1);
    ck_assert_int_eq(err.status, 410);
    ck_assert_msg(strstr(err.detail, "two bits") != NULL, "%s", err.detail);
    gb_ahead_begin(&ahead, &file);
    ck_assert_int_eq(take(BYTES + 1), (int64_t)BYTES);
    stop();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("backup/ahead");
    TCase *cases = tcase_create("ahead");

    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, test_all_bytes_in_order);
    tcase_add_loop_test(cases, test_anew, 0, 5);
    tcase_add_loop_test(cases, test_the_end_before_all_was_taken, 0, 3);
    tcase_add_test(cases, test_a_failure);
    suite_add_tcase(suite, cases);
    return gb_test_run(suite);
}
