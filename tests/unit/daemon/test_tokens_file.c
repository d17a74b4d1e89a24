/* The file of tokens: a secret that stands where it should not is not repeated in the error. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/tokens_file.h"
#include "gb_test.h"

#define SECRET "0123456789/secret"

static const char *const misplaced[] = {
    "name=a scope=" SECRET,
    "name=a scope=read," SECRET,
    "name=" SECRET,
    "name=a secret=" SECRET "0123456789 session=" SECRET,
    "name=a subject=dns:x prefix=" SECRET,
    "name=a subject=dns:x expires=" SECRET,
    "name=a subject=" SECRET,
    "name=a subject=CN=\"" SECRET,
    "name=a hash=" SECRET,
    "name=a " SECRET "=x",
    "name=a " SECRET,
    "name=a secret=\"" SECRET,
    "{\"name\": \"a\", \"scope\": \"" SECRET "\"}",
    "{\"name\": \"a\", \"" SECRET "\": \"a\"}",
    "{\"name\": \"a\", \"secret\": \"" SECRET "}",
    "[{\"name\": \"a\", \"secret\": [\"" SECRET "\"]}]",
};

static void write_file(char *path, const char *text) {
    int fd = mkstemp(path);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

START_TEST(a_misplaced_secret_is_not_repeated) {
    char path[] = "/tmp/gb-tokens-XXXXXX";
    struct gb_tokens_file file = {.recs = NULL};
    struct gb_error err = GB_ERROR_INIT;

    write_file(path, misplaced[_i]);
    ck_assert_int_eq(gb_tokens_file_read(&file, path, &err), -1);
    unlink(path);
    ck_assert_int_eq(err.code, GB_ERR_INVALID_ARGUMENT);
    ck_assert_msg(strstr(err.detail, ":1: ") != NULL, "%s", err.detail);
    ck_assert_msg(strstr(err.detail, "/secret") == NULL, "%s", err.detail);
    gb_tokens_file_done(&file);
}
END_TEST

static void rewrite(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_TRUNC | O_CREAT, 0600);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

#define TICK_NS (500 * GB_NS_PER_MS)
#define ONE "name=a secret=0123456789abcdef\n"

/* In steps, as an editor or a copy over a network does: none of them is read. */
START_TEST(a_file_that_is_being_written_is_left_alone) {
    char path[] = "/tmp/gb-tokens-XXXXXX";
    struct gb_tokens_file file = {.recs = NULL};
    struct gb_error err = GB_ERROR_INIT;
    uint64_t now_ns = 1;

    write_file(path, ONE);
    gb_assert_ok(gb_tokens_file_read(&file, path, &err), err);
    ck_assert(!gb_tokens_file_changed(&file, path, now_ns));
    rewrite(path, "");
    ck_assert(!gb_tokens_file_changed(&file, path, now_ns += TICK_NS));
    rewrite(path, "name=a");
    ck_assert(!gb_tokens_file_changed(&file, path, now_ns += TICK_NS));
    rewrite(path, ONE "name=b secret=0123456789abcdeg\n");
    ck_assert(!gb_tokens_file_changed(&file, path, now_ns += TICK_NS));
    ck_assert(!gb_tokens_file_changed(&file, path, now_ns += TICK_NS / 2));
    ck_assert(gb_tokens_file_changed(&file, path, now_ns += TICK_NS / 2));
    gb_assert_ok(gb_tokens_file_read(&file, path, &err), err);
    ck_assert_uint_eq(file.count, 2);
    ck_assert(!gb_tokens_file_changed(&file, path, now_ns += TICK_NS));
    /* The same of one that goes and comes. */
    unlink(path);
    ck_assert(!gb_tokens_file_changed(&file, path, now_ns += TICK_NS));
    rewrite(path, ONE);
    ck_assert(!gb_tokens_file_changed(&file, path, now_ns += TICK_NS));
    ck_assert(gb_tokens_file_changed(&file, path, now_ns += TICK_NS));
    unlink(path);
    ck_assert(!gb_tokens_file_changed(&file, path, now_ns += TICK_NS));
    ck_assert(gb_tokens_file_changed(&file, path, now_ns += TICK_NS));
    ck_assert_int_eq(gb_tokens_file_read(&file, path, &err), -1);
    ck_assert_uint_eq(file.count, 2);
    ck_assert(!gb_tokens_file_changed(&file, path, now_ns += TICK_NS));
    gb_tokens_file_done(&file);
}
END_TEST

START_TEST(as_many_as_may_be_are_read) {
    enum { LINE = 64 };
    char path[] = "/tmp/gb-tokens-XXXXXX";
    struct gb_tokens_file file = {.recs = NULL};
    struct gb_error err = GB_ERROR_INIT;
    char *text = calloc(GB_TOKENS_FILE_MAX + 1, LINE);
    char *at = text;
    int i;

    ck_assert_ptr_nonnull(text);
    for (i = 0; i < GB_TOKENS_FILE_MAX; i++)
        at += snprintf(at, LINE, "name=t%d secret=0123456789-%08d subject=dns:t%d\n", i, i, i);
    write_file(path, text);
    gb_assert_ok(gb_tokens_file_read(&file, path, &err), err);
    ck_assert_uint_eq(file.count, GB_TOKENS_FILE_MAX);
    ck_assert_ptr_eq(gb_tokens_index_named(&file.index, "t9999"), &file.recs[9999]);
    ck_assert_uint_eq(gb_tokens_file_line(&file, &file.recs[9999]), 10000);
    strcpy(at, "name=last secret=0123456789-last\n");
    rewrite(path, text);
    ck_assert_int_eq(gb_tokens_file_read(&file, path, &err), -1);
    ck_assert_msg(strstr(err.detail, ":10001: ") && strstr(err.detail, "the 10000 that"), "%s", err.detail);
    ck_assert_uint_eq(file.count, GB_TOKENS_FILE_MAX);
    unlink(path);
    free(text);
    gb_tokens_file_done(&file);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tokens file");

    gb_test_add_loop(suite, "misplaced", a_misplaced_secret_is_not_repeated, 10,
                     sizeof(misplaced) / sizeof(misplaced[0]));
    gb_test_add(suite, "written", a_file_that_is_being_written_is_left_alone, 10);
    gb_test_add(suite, "many", as_many_as_may_be_are_read, 30);
    return gb_test_run(suite);
}
