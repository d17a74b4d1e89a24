/* The parts of the command line: options, sizes, tables, progress, lists of hosts. The end-to-end tests cover the
 * commands. */
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "gb_test.h"

static struct gb_cli_options options;

/* Parses words separated by spaces; returns the index of the first word that is no option, or -1. */
static int read_words(char *words) {
    char *argv[16] = {"gpubuf"};
    char *word;
    int argc = 1;
    int first;

    for (word = strtok(words, " "); word != NULL && argc < 15; word = strtok(NULL, " "))
        argv[argc++] = word;
    if (gb_cli_options_read(argc, argv, &options, &first) < 0)
        return -1;
    return argc - first;
}

START_TEST(test_options_stand_anywhere) {
    char words[] = "-u unix:///s put f --json x --offset 2K -t 1.5 -- --not-an-option";

    ck_assert_int_eq(read_words(words), 4);
    ck_assert_str_eq(options.url, "unix:///s");
    ck_assert(options.json);
    ck_assert(!options.quiet);
    ck_assert_uint_eq(options.offset, 2048);
    ck_assert(options.timeout == 1.5);
    ck_assert(options.given[GB_CLI_ID_offset]);
    ck_assert(!options.given[GB_CLI_ID_bytes]);
}
END_TEST

START_TEST(test_values_that_are_none) {
    static const char *const wrong[] = {"--offset -1", "--offset 1Q",   "--offset 1KK", "--offset K",
                                        "--timeout 0", "--timeout nan", "--timeout 1s", "--parallel x",
                                        "--nope",      "--url",         "--json=yes"};
    size_t i;

    for (i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char words[64];

        snprintf(words, sizeof words, "%s", wrong[i]);
        ck_assert_msg(read_words(words) < 0, "%s is taken", wrong[i]);
    }
}
END_TEST

static bool is_here(const char *scheme, const char *host) {
    char url[128];

    snprintf(url, sizeof url, strchr(host, ':') != NULL ? "%s://[%s]:7071" : "%s://%s:7071/", scheme, host);
    return gb_cli_doctor_is_here(url);
}

START_TEST(test_addresses_of_this_machine) {
    struct ifaddrs *interfaces;
    struct ifaddrs *at;
    char host[64];

    ck_assert(gb_cli_doctor_is_here("unix:///run/gpubufd.sock"));
    ck_assert(is_here("http", "localhost") && is_here("https", "127.0.0.1") && is_here("http", "127.8.9.10"));
    ck_assert(!is_here("https", "203.0.113.7") && !is_here("http", "2001:db8::7"));
    ck_assert_int_eq(getifaddrs(&interfaces), 0);
    for (at = interfaces; at != NULL; at = at->ifa_next) {
        if (at->ifa_addr == NULL || at->ifa_addr->sa_family != AF_INET)
            continue;
        ck_assert_int_eq(
            getnameinfo(at->ifa_addr, sizeof(struct sockaddr_in), host, sizeof host, NULL, 0, NI_NUMERICHOST), 0);
        ck_assert_msg(is_here("https", host), "%s is an address of %s", host, at->ifa_name);
    }
    freeifaddrs(interfaces);
}
END_TEST

START_TEST(test_limits_may_be_none) {
    char none[] = "pools add p --max-bytes none --release-threshold 2M";
    char wrong[] = "pools add p --max-bytes never";

    ck_assert_int_eq(read_words(none), 3);
    ck_assert(options.max_bytes == GB_CLI_NONE);
    ck_assert_uint_eq(options.release_threshold_bytes, 2u << 20);
    ck_assert_int_eq(read_words(wrong), -1);
}
END_TEST

/* What the options of a command make of the body; "" when they are refused. */
static const char *settings(int (*fill)(struct gb_cli *cli, json_t *body), char *words) {
    static char text[512];
    struct gb_cli cli = {0};
    json_t *body = json_object();
    char *dump;

    ck_assert_int_ge(read_words(words), 0);
    cli.options = options;
    text[0] = '\0';
    if (fill(&cli, body) == 0) {
        dump = json_dumps(body, JSON_COMPACT | JSON_SORT_KEYS);
        snprintf(text, sizeof text, "%s", dump);
        free(dump);
    } else {
        ck_assert_int_eq(gb_cli_status_of(&cli.error), GB_CLI_USAGE);
    }
    json_decref(body);
    return text;
}

START_TEST(test_settings) {
    char all[] = "--reuse all --release-threshold none --device 1";
    char two[] = "--reuse internal,event --device HOST-1 --max-bytes 1K --exportable";
    char none[] = "--reuse none";
    char unknown[] = "--reuse internal,eve";
    char labels[] = "--labels a=1,b,c= --max-buffers none --max-pinned 3 --idle-ttl 0 --pool p";
    char keyless[] = "--labels =1";
    char shape[] = "--shape 2,3 --dtype int8 --durability sync";
    char durable[] = "--durability behind";
    char shapeless[] = "--shape 2,,3";
    char strange[] = "--durability \xff";

    ck_assert_str_eq(settings(gb_cli_pool_settings, all),
                     "{\"device\":1,\"release_threshold_bytes\":null,\"reuse\":{\"allow_internal_dependencies\":true,"
                     "\"allow_opportunistic\":true,\"follow_event_dependencies\":true}}");
    ck_assert_str_eq(settings(gb_cli_pool_settings, two),
                     "{\"device\":\"HOST-1\",\"exportable\":true,\"max_bytes\":1024,\"reuse\":{"
                     "\"allow_internal_dependencies\":true,\"allow_opportunistic\":false,"
                     "\"follow_event_dependencies\":true}}");
    ck_assert_str_eq(settings(gb_cli_pool_settings, none),
                     "{\"reuse\":{\"allow_internal_dependencies\":false,\"allow_opportunistic\":false,"
                     "\"follow_event_dependencies\":false}}");
    ck_assert_str_eq(settings(gb_cli_pool_settings, unknown), "");
    ck_assert_str_eq(settings(gb_cli_session_settings, labels),
                     "{\"idle_ttl_s\":0,\"labels\":{\"a\":\"1\",\"b\":null,\"c\":\"\"},\"pool\":\"p\",\"quota\":{"
                     "\"buffers\":null,\"pinned_bytes\":3}}");
    ck_assert_str_eq(settings(gb_cli_session_settings, keyless), "");
    ck_assert_str_eq(settings(gb_cli_session_settings, durable), "{\"durability\":\"behind\"}");
    ck_assert_str_eq(settings(gb_cli_buffer_settings, shape),
                     "{\"dtype\":\"int8\",\"durability\":\"sync\",\"shape\":[2,3]}");
    ck_assert_str_eq(settings(gb_cli_buffer_settings, shapeless), "");
    ck_assert_str_eq(settings(gb_cli_session_settings, strange), "");
}
END_TEST

START_TEST(test_sizes) {
    uint64_t n;

    ck_assert_int_eq(gb_cli_size("0", &n), 0);
    ck_assert_uint_eq(n, 0);
    ck_assert_int_eq(gb_cli_size("16777215T", &n), 0);
    ck_assert_uint_eq(n, 16777215ull << 40);
    ck_assert_int_eq(gb_cli_size("18446744073709551615", &n), 0);
    ck_assert_uint_eq(n, UINT64_MAX);
    ck_assert_int_lt(gb_cli_size("16777216T", &n), 0);
    ck_assert_int_lt(gb_cli_size("18446744073709551616", &n), 0);
    ck_assert_int_lt(gb_cli_size("", &n), 0);
    ck_assert_int_lt(gb_cli_size(" 1", &n), 0);
    ck_assert_int_lt(gb_cli_size("+1", &n), 0);
}
END_TEST

START_TEST(test_sizes_and_times_as_text) {
    char text[24];

    ck_assert_str_eq(gb_cli_bytes_text(0, text), "0 B");
    ck_assert_str_eq(gb_cli_bytes_text(1023, text), "1023 B");
    ck_assert_str_eq(gb_cli_bytes_text(1024, text), "1.0 KiB");
    ck_assert_str_eq(gb_cli_bytes_text((1ull << 20) - 1, text), "1.0 MiB");
    ck_assert_str_eq(gb_cli_bytes_text(UINT64_MAX, text), "16.0 EiB");
    ck_assert_str_eq(gb_cli_time_text(0.04, text), "0.0 s");
    ck_assert_str_eq(gb_cli_time_text(59, text), "59 s");
    ck_assert_str_eq(gb_cli_time_text(200, text), "3:20");
    ck_assert_str_eq(gb_cli_time_text(3723, text), "1:02:03");
    ck_assert_str_eq(gb_cli_time_text(-1, text), "?");
    ck_assert_str_eq(gb_cli_time_text(1e18, text), "?");
}
END_TEST

START_TEST(test_cells) {
    json_t *item = json_loads(
        "{\"a\":{\"b\":5},\"n\":null,\"s\":[2,3],\"e\":[],\"t\":\"2026-11-21T13:37:51.792Z\",\"f\":true}", 0, NULL);
    struct gb_cli_column column = {"", "a.b", GB_CLI_FORM_COUNT};
    char longer[GB_CLI_CELL * 2];
    char text[GB_CLI_CELL];

    gb_cli_cell(item, &column, text);
    ck_assert_str_eq(text, "5");
    gb_cli_cell(item, &(struct gb_cli_column){"", "a.c", GB_CLI_FORM_TEXT}, text);
    ck_assert_str_eq(text, "-");
    gb_cli_cell(item, &(struct gb_cli_column){"", "n", GB_CLI_FORM_BYTES}, text);
    ck_assert_str_eq(text, "-");
    gb_cli_cell(item, &(struct gb_cli_column){"", "s", GB_CLI_FORM_SHAPE}, text);
    ck_assert_str_eq(text, "2x3");
    gb_cli_cell(item, &(struct gb_cli_column){"", "e", GB_CLI_FORM_SHAPE}, text);
    ck_assert_str_eq(text, "scalar");
    gb_cli_cell(item, &(struct gb_cli_column){"", "t", GB_CLI_FORM_TIME}, text);
    ck_assert_str_eq(text, "2026-11-21 13:37:51");
    gb_cli_cell(item, &(struct gb_cli_column){"", "f", GB_CLI_FORM_FLAG}, text);
    ck_assert_str_eq(text, "yes");
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    json_object_set_new(item, "l", json_string(longer));
    gb_cli_cell(item, &(struct gb_cli_column){"", "l", GB_CLI_FORM_TEXT}, text);
    ck_assert_uint_eq(strlen(text), GB_CLI_CELL - 1);
    ck_assert_str_eq(text + GB_CLI_CELL - 4, "...");
    json_decref(item);
}
END_TEST

START_TEST(test_progress_lines) {
    struct gb_cli_progress p = {.label = "x", .done = 1 << 20, .total = 4 << 20, .began = 100, .rate = 1 << 20};
    char text[256];

    gb_cli_progress_line(&p, 101, 80, text, sizeof text);
    ck_assert_str_eq(text, "x  1.0 MiB of 4.0 MiB  25 %  0.00 GB/s  3.0 s left");
    p.rate = 0;
    gb_cli_progress_line(&p, 101, 80, text, sizeof text);
    ck_assert_str_eq(text, "x  1.0 MiB of 4.0 MiB  25 %  0.00 GB/s  ? left");
    p.total = 0;
    gb_cli_progress_line(&p, 101, 80, text, sizeof text);
    ck_assert_str_eq(text, "x  1.0 MiB  0.00 GB/s");
    p.total = p.done;
    p.rate = 2e9;
    gb_cli_progress_line(&p, 101.5, 80, text, sizeof text);
    ck_assert_str_eq(text, "x  1.0 MiB  100 %  2.00 GB/s  in 1.5 s");
    p.label = "a name that is far too long for the line";
    gb_cli_progress_line(&p, 101.5, 50, text, sizeof text);
    ck_assert_uint_eq(strlen(text), 49);
    gb_cli_progress_line(&p, 101.5, 10, text, sizeof text);
    ck_assert_uint_eq(strlen(text), 9);
}
END_TEST

START_TEST(test_hosts) {
    struct gb_cli_hosts hosts;
    const char *why = NULL;

    ck_assert_int_eq(gb_cli_hosts_read("a, b:1 ,,[::1],unix:///s,http://c", &hosts, &why), 0);
    ck_assert_uint_eq(hosts.count, 5);
    ck_assert_str_eq(hosts.items[0].url, "http://a:7070");
    ck_assert_str_eq(hosts.items[1].name, "b:1");
    ck_assert_str_eq(hosts.items[1].url, "http://b:1");
    ck_assert_str_eq(hosts.items[2].url, "http://[::1]:7070");
    ck_assert_str_eq(hosts.items[3].url, "unix:///s");
    ck_assert_str_eq(hosts.items[4].url, "http://c");
    gb_cli_hosts_done(&hosts);
    ck_assert_int_eq(gb_cli_hosts_read(",", &hosts, &why), 0);
    ck_assert_uint_eq(hosts.count, 0);
    gb_cli_hosts_done(&hosts);
}
END_TEST

START_TEST(test_words) {
    ck_assert(gb_cli_has_word("in-place offset from-offset", "offset"));
    ck_assert(gb_cli_has_word("from-offset offset", "offset"));
    ck_assert(!gb_cli_has_word("from-offset", "offset"));
    ck_assert(!gb_cli_has_word("", "offset"));
    ck_assert(!gb_cli_has_word("offset", ""));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cli");
    TCase *cases = tcase_create("cli");

    tcase_add_test(cases, test_options_stand_anywhere);
    tcase_add_test(cases, test_values_that_are_none);
    tcase_add_test(cases, test_limits_may_be_none);
    tcase_add_test(cases, test_addresses_of_this_machine);
    tcase_add_test(cases, test_settings);
    tcase_add_test(cases, test_sizes);
    tcase_add_test(cases, test_sizes_and_times_as_text);
    tcase_add_test(cases, test_cells);
    tcase_add_test(cases, test_progress_lines);
    tcase_add_test(cases, test_hosts);
    tcase_add_test(cases, test_words);
    suite_add_tcase(suite, cases);
    return gb_test_run(suite);
}
