/* Options: the sources of a value, their precedence, and the messages for wrong values. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/options.h"
#include "gb_test.h"

static struct gb_error err;

static int take_all(struct gb_options *options, char **argv) {
    int argc = 0;
    int at = 0;
    int taken = 1;

    while (argv[argc] != NULL)
        argc++;
    while (at < argc && taken == 1)
        taken = gb_options_take(options, argc, argv, &at, &err);
    return taken == 1 ? 0 : -1;
}

static void write_file(char *path, const char *text) {
    int fd = mkstemp(path);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

START_TEST(test_defaults) {
    struct gb_options o = {0};

    gb_assert_ok(gb_options_finish(&o, &err), err);
    ck_assert_uint_eq(o.listen.count, 1);
    ck_assert_str_eq(o.listen.items[0], "127.0.0.1:7070");
    ck_assert_str_eq(o.backend, "auto");
    ck_assert_str_eq(o.socket, "");
    ck_assert_uint_eq(o.slots_bytes, 64 << 20);
    ck_assert_uint_eq(o.connection_memory, 16384);
    ck_assert_uint_eq(o.quota_bytes, GB_UNLIMITED);
    ck_assert_uint_eq(o.host_name.count, 0);
    ck_assert(!o.exit_on_device_loss);
    ck_assert_int_eq(o.source[GB_OPTION_ID_backend], GB_SOURCE_DEFAULT);
    gb_options_done(&o);
}
END_TEST

START_TEST(test_every_default_is_permitted) {
    struct gb_options o = {0};
    size_t i;

    for (i = 0; i < GB_OPTION_IDS; i++)
        gb_assert_ok(gb_option_set(&o, &gb_option_specs[i], GB_SOURCE_COMMAND, gb_option_specs[i].name,
                                   gb_option_specs[i].fallback, &err),
                     err);
    gb_options_done(&o);
}
END_TEST

START_TEST(test_forms) {
    char *argv[] = {"--listen",
                    "[::1]:0",
                    "--listen=127.0.0.1:1",
                    "--slots-bytes",
                    "128M",
                    "--log-format",
                    "json",
                    "--exit-on-device-loss",
                    "--quota-bytes",
                    "unlimited",
                    "--host-name",
                    "a.example,b.x",
                    NULL};
    struct gb_options o = {0};

    gb_assert_ok(take_all(&o, argv), err);
    gb_assert_ok(gb_options_finish(&o, &err), err);
    ck_assert_uint_eq(o.listen.count, 2);
    ck_assert_str_eq(o.listen.items[0], "[::1]:0");
    ck_assert_str_eq(o.listen.items[1], "127.0.0.1:1");
    ck_assert_uint_eq(o.slots_bytes, 128 << 20);
    ck_assert_str_eq(o.log_format, "json");
    ck_assert(o.exit_on_device_loss);
    ck_assert_uint_eq(o.host_name.count, 2);
    ck_assert_str_eq(o.host_name.items[1], "b.x");
    gb_options_done(&o);
}
END_TEST

START_TEST(test_stops_at_a_word) {
    char *argv[] = {"--backend", "host", "token", "--listen", NULL};
    struct gb_options o = {0};
    int at = 0;

    ck_assert_int_eq(gb_options_take(&o, 4, argv, &at, &err), 1);
    ck_assert_int_eq(gb_options_take(&o, 4, argv, &at, &err), 0);
    ck_assert_int_eq(at, 2);
    gb_options_done(&o);
}
END_TEST

static const struct {
    const char *option;
    const char *value; /* NULL: none follows */
    enum gb_code code;
    const char *says;
} refused[] = {
    {"--frobnicate", "1", GB_ERR_UNKNOWN_FIELD, "--frobnicate"},
    {"-x", NULL, GB_ERR_UNKNOWN_FIELD, "-x"},
    {"--lis", "127.0.0.1:1", GB_ERR_UNKNOWN_FIELD, "--lis"},
    {"--log-level", "loud", GB_ERR_INVALID_ARGUMENT,
     "--log-level: \"loud\" is not permitted; permitted: error|warning"},
    {"--log-level", "inf", GB_ERR_INVALID_ARGUMENT, "--log-level"},
    {"--log-level", "info|debug", GB_ERR_INVALID_ARGUMENT, "--log-level"},
    {"--log-level", "", GB_ERR_INVALID_ARGUMENT, "--log-level"},
    {"--log-level", NULL, GB_ERR_INVALID_ARGUMENT, "--log-level needs a value: error|warning|info|debug"},
    {"--slot-bytes", "1", GB_ERR_INVALID_ARGUMENT, "from 262144 to 4194304 bytes"},
    {"--slot-bytes", "8M", GB_ERR_INVALID_ARGUMENT, "--slot-bytes"},
    {"--slot-bytes", "1X", GB_ERR_INVALID_ARGUMENT, "--slot-bytes"},
    {"--slot-bytes", "unlimited", GB_ERR_INVALID_ARGUMENT, "--slot-bytes"},
    {"--quota-bytes", "-1", GB_ERR_INVALID_ARGUMENT, "or unlimited"},
    {"--http-threads", "1K", GB_ERR_INVALID_ARGUMENT, "from 0 to 64"},
    {"--http-threads", "65", GB_ERR_INVALID_ARGUMENT, "\"65\""},
    {"--idle-timeout", "0", GB_ERR_INVALID_ARGUMENT, "seconds"},
    {"--idle-timeout", "99999999999999999999", GB_ERR_INVALID_ARGUMENT, "--idle-timeout"},
    {"--exit-on-device-loss=maybe", NULL, GB_ERR_INVALID_ARGUMENT, "true|false"},
};

START_TEST(test_refused) {
    char *argv[] = {(char *)refused[_i].option, (char *)refused[_i].value, NULL};
    struct gb_options o = {0};

    ck_assert_int_eq(take_all(&o, argv), -1);
    ck_assert_str_eq(gb_code_slug(err.code), gb_code_slug(refused[_i].code));
    ck_assert_msg(strstr(err.detail, refused[_i].says) != NULL, "\"%s\" does not say \"%s\"", err.detail,
                  refused[_i].says);
    gb_options_done(&o);
}
END_TEST

START_TEST(test_precedence) {
    char *argv[] = {"--config", NULL, "--log-level", "debug", NULL};
    char path[] = "/tmp/gb-options-XXXXXX";
    struct gb_options o = {0};

    write_file(path, "# a comment\n"
                     "log-level = error\n"
                     "log-format=json   # and another\n"
                     "\n"
                     "  max-json = 128K\n"
                     "listen = 127.0.0.1:1\n"
                     "listen = 127.0.0.1:2\n"
                     "state-dir = /srv/a#b\n");
    argv[1] = path;
    setenv("GPUBUFD_LOG_FORMAT", "text", 1);
    setenv("GPUBUFD_LOG_LEVEL", "warning", 1);
    gb_assert_ok(take_all(&o, argv), err);
    gb_assert_ok(gb_options_finish(&o, &err), err);
    unlink(path);
    ck_assert_str_eq(o.log_level, "debug"); /* command line before environment and file */
    ck_assert_str_eq(o.log_format, "text"); /* environment before file */
    ck_assert_uint_eq(o.max_json, 131072);  /* file before default */
    ck_assert_str_eq(o.state_dir, "/srv/a#b");
    ck_assert_uint_eq(o.listen.count, 2); /* the file's first value replaces the default */
    ck_assert_str_eq(o.listen.items[1], "127.0.0.1:2");
    ck_assert_int_eq(o.source[GB_OPTION_ID_listen], GB_SOURCE_FILE);
    gb_options_done(&o);
}
END_TEST

START_TEST(test_environment_list) {
    struct gb_options o = {0};

    setenv("GPUBUFD_LISTEN", "127.0.0.1:1 [::1]:2", 1);
    gb_assert_ok(gb_options_finish(&o, &err), err);
    ck_assert_uint_eq(o.listen.count, 2);
    ck_assert_str_eq(o.listen.items[1], "[::1]:2");
    gb_options_done(&o);
}
END_TEST

/* A list of one item a line, as another program's output is. */
START_TEST(test_environment_lines) {
    struct gb_options o = {0};

    setenv("GPUBUFD_LISTEN", "127.0.0.1:1,\r\n[::1]:2\r\n", 1);
    gb_assert_ok(gb_options_finish(&o, &err), err);
    ck_assert_uint_eq(o.listen.count, 2);
    ck_assert_str_eq(o.listen.items[1], "[::1]:2");
    gb_options_done(&o);
}
END_TEST

START_TEST(test_environment_refused) {
    struct gb_options o = {0};

    setenv("GPUBUFD_STORE_SYNC", "never", 1);
    ck_assert_int_eq(gb_options_finish(&o, &err), -1);
    ck_assert_msg(strstr(err.detail, "GPUBUFD_STORE_SYNC: \"never\"") != NULL, "%s", err.detail);
    ck_assert_msg(strstr(err.detail, "full|normal") != NULL, "%s", err.detail);
    gb_options_done(&o);
}
END_TEST

static const struct {
    const char *text;
    enum gb_code code;
    const char *says;
} bad_files[] = {
    {"a\n", GB_ERR_INVALID_ARGUMENT, ":1: \"a\" is not of the form"},
    {"\n\nfoo = 1\n", GB_ERR_UNKNOWN_FIELD, ":3: there is no option \"foo\""},
    {"config = x\n", GB_ERR_UNKNOWN_FIELD, "config"},
    {"help = true\n", GB_ERR_UNKNOWN_FIELD, "help"},
    {"max-json =\n", GB_ERR_INVALID_ARGUMENT, ":1: max-json: \"\""},
    {"= 1\n", GB_ERR_UNKNOWN_FIELD, ":1:"},
    {"log-level = info error", GB_ERR_INVALID_ARGUMENT, "log-level"},
};

START_TEST(test_bad_file) {
    char path[] = "/tmp/gb-options-XXXXXX";
    struct gb_options o = {0};

    write_file(path, bad_files[_i].text);
    ck_assert_int_eq(gb_options_file(&o, path, &err), -1);
    unlink(path);
    ck_assert_str_eq(gb_code_slug(err.code), gb_code_slug(bad_files[_i].code));
    ck_assert_msg(strstr(err.detail, bad_files[_i].says) != NULL, "\"%s\" does not say \"%s\"", err.detail,
                  bad_files[_i].says);
    gb_options_done(&o);
}
END_TEST

START_TEST(test_absent_file) {
    struct gb_options o = {0};

    ck_assert_int_eq(gb_options_file(&o, "/nonexistent/gpubufd.conf", &err), -1);
    ck_assert_msg(strstr(err.detail, "/nonexistent/gpubufd.conf") != NULL, "%s", err.detail);
}
END_TEST

START_TEST(test_help_names_every_option) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    size_t i;

    gb_options_help(out);
    fclose(out);
    for (i = 0; i < GB_OPTION_IDS; i++) {
        char name[64];

        snprintf(name, sizeof name, "  --%s", gb_option_specs[i].name);
        ck_assert_msg(strstr(text, name) != NULL, "--help does not name --%s", gb_option_specs[i].name);
    }
    free(text);
}
END_TEST

static void clean(void) {
    err = GB_ERROR_INIT;
}

int main(void) {
    Suite *suite = suite_create("options");
    TCase *tcase = tcase_create("options");

    tcase_add_checked_fixture(tcase, clean, NULL);
    tcase_add_test(tcase, test_defaults);
    tcase_add_test(tcase, test_every_default_is_permitted);
    tcase_add_test(tcase, test_forms);
    tcase_add_test(tcase, test_stops_at_a_word);
    tcase_add_loop_test(tcase, test_refused, 0, (int)(sizeof refused / sizeof refused[0]));
    tcase_add_test(tcase, test_precedence);
    tcase_add_test(tcase, test_environment_list);
    tcase_add_test(tcase, test_environment_lines);
    tcase_add_test(tcase, test_environment_refused);
    tcase_add_loop_test(tcase, test_bad_file, 0, (int)(sizeof bad_files / sizeof bad_files[0]));
    tcase_add_test(tcase, test_absent_file);
    tcase_add_test(tcase, test_help_names_every_option);
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}
