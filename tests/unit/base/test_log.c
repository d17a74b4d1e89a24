/* The log: its two formats, and the escaping of all values. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "gb_test.h"

/* Logs one warning; returns what was written. */
static void log_text(bool json, enum gb_log_level level, const char *text, char *out, size_t size) {
    struct gb_log log = {.level = level, .json = json};
    int ends[2];
    ssize_t n;

    ck_assert_int_eq(pipe(ends), 0);
    log.fd = ends[1];
    gb_log(&log, GB_LOG_WARNING, "thing", "%s", text);
    close(ends[1]);
    n = read(ends[0], out, size - 1);
    ck_assert_int_ge(n, 0);
    out[n] = '\0';
    close(ends[0]);
}

static void log_line(bool json, enum gb_log_level level, char *out, size_t size) {
    log_text(json, level, "said \"no\"\n", out, size);
}

/* Values that clients choose: names, targets, user agents. */
START_TEST(nothing_raw_is_logged) {
    static const struct {
        const char *said;
        const char *logged;
    } texts[] = {{"a\x1b[31mb", "a\\x1b[31mb"},
                 {"\r\n2026 error forged: x", "\\x0d\\x0a2026 error forged: x"},
                 {"\x7f\t", "\\x7f\\x09"},
                 {"\xc2\x9b"
                  "31m",
                  "\\xc2\\x9b31m"},
                 {"\x9b"
                  "31m",
                  "\\x9b31m"},
                 {"\xff\xfe", "\\xff\\xfe"},
                 {"\xc0\xaf", "\\xc0\\xaf"},
                 {"\xed\xa0\x80", "\\xed\\xa0\\x80"},
                 {"\xe2\x82", "\\xe2\\x82"},
                 {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},
                 {"\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80", "\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80"}};
    char line[8192];
    char want[256];
    char lengthy[3000];
    size_t i;

    for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        snprintf(want, sizeof(want), " thing: %s\n", texts[i].logged);
        log_text(false, GB_LOG_INFO, texts[i].said, line, sizeof(line));
        ck_assert_msg(strstr(line, want) != NULL, "%s instead of %s", line, want);
        log_text(true, GB_LOG_INFO, texts[i].said, line, sizeof(line));
        ck_assert_ptr_null(strpbrk(line, "\x1b\x7f\r\t"));
        ck_assert_uint_eq(strspn(strchr(line, '\n'), "\n"), strlen(strchr(line, '\n')));
    }
    memset(lengthy, 0x1b, sizeof(lengthy) - 1);
    lengthy[sizeof(lengthy) - 1] = '\0';
    log_text(true, GB_LOG_INFO, lengthy, line, sizeof(line));
    ck_assert_str_eq(line + strlen(line) - 3, "\"}\n");
    ck_assert_uint_le(strlen(line), 4096);
}
END_TEST

START_TEST(logs) {
    enum gb_log_level level = GB_LOG_ERROR;
    char line[4096];

    log_line(true, GB_LOG_INFO, line, sizeof(line));
    ck_assert_ptr_nonnull(
        strstr(line, "\"level\":\"warning\",\"event\":\"thing\",\"message\":\"said \\\"no\\\"\\\\x0a\"}\n"));
    log_line(false, GB_LOG_WARNING, line, sizeof(line));
    ck_assert_ptr_nonnull(strstr(line, " warning thing: said \"no\""));
    log_line(false, GB_LOG_ERROR, line, sizeof(line));
    ck_assert_str_eq(line, "");
    ck_assert_int_eq(gb_log_level_parse("debug", &level), 0);
    ck_assert_int_eq(level, GB_LOG_DEBUG);
    ck_assert_int_eq(gb_log_level_parse("loud", &level), -1);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("log");

    gb_test_add(suite, "forms", logs, 10);
    gb_test_add(suite, "text of strangers", nothing_raw_is_logged, 10);
    return gb_test_run(suite);
}
