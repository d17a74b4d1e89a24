/* The options of a fleet: what is permitted, and where others find the node. */
#include <string.h>

#include "daemon/fleet.h"
#include "gb_test.h"

#define FLEET "--fleet", "etcd:http://127.0.0.1:2379"

static struct gb_options options;
static struct gb_fleet_options fleet;
static struct gb_error err;

static int read_all(const char *const *argv) {
    int argc = 0;
    int at = 0;
    int rc;

    err = GB_ERROR_INIT;
    memset(&options, 0, sizeof options);
    while (argv[argc] != NULL)
        argc++;
    while ((rc = gb_options_take(&options, argc, (char **)(uintptr_t)argv, &at, &err)) > 0 && at < argc)
        ;
    ck_assert_int_ge(rc, 0);
    gb_assert_ok(gb_options_finish(&options, &err), err);
    return gb_fleet_options_read(&options, &fleet, &err);
}

static void teardown(void) {
    gb_options_done(&options);
}

static const char *const refused[][8] = {
    {"--fleet-node", "a"},
    {"--advertise", "http://a:1"},
    {"--fleet", "127.0.0.1:2379"},
    {"--fleet", "http://127.0.0.1:7070", "--fleet-hub"},
    {"--fleet", "http://127.0.0.1:7070", "--fleet-user", "/dev/null"},
    {"--fleet", "http://127.0.0.1:7070", "--fleet-token", "/dev/null"},
    {FLEET, "--fleet-token", "/dev/null"},
    {"--fleet-hub"},
    {FLEET, "--advertise", "none,http://a:1"},
    {"--fleet", "etcd:"},
    {"--fleet", "etcd:ftp://a:1"},
    {"--fleet", "etcd:http://a:0"},
    {"--fleet", "etcd:http://a:65536"},
    {"--fleet", "etcd:http://a:1/path"},
    {"--fleet", "etcd:http://a:1,"},
    {FLEET, "--fleet-name", "a/b"},
    {FLEET, "--fleet-node", "-a"},
    {FLEET, "--fleet-cert", "x"},
    {FLEET, "--fleet-label", "a"},
    {FLEET, "--fleet-label", "1a=x"},
    {FLEET, "--fleet-label", "__a=x"},
    {FLEET, "--fleet-label", "node=x"},
    {FLEET, "--fleet-label", "a=x,a=y"},
    {FLEET, "--advertise", "a:1"},
    {FLEET, "--advertise", "http://a:1/path"},
    {FLEET, "--advertise", "http://"},
    {FLEET, "--advertise", "http://a:1,http://b:1"},
    {FLEET, "--advertise", "a=http://a:1,b=http://a:1,c=http://a:1,d=http://a:1,e=http://a:1"},
    {FLEET, "--listen", "0.0.0.0:7070"},
    {FLEET, "--listen", "[::]:7070"},
    {FLEET, "--listen", "lan=0.0.0.0:7070", "--advertise", "http://a:1"},
};

START_TEST(test_refused) {
    ck_assert_int_eq(read_all(refused[_i]), -1);
    ck_assert_int_eq(err.code, GB_ERR_INVALID_ARGUMENT);
    ck_assert_str_ne(err.detail, "");
}
END_TEST

START_TEST(test_none) {
    static const char *const argv[] = {"--listen", "lan=127.0.0.1:0", NULL};

    ck_assert_int_eq(read_all(argv), 0);
}
END_TEST

START_TEST(test_all) {
    static const char *const argv[] = {FLEET,
                                       "--fleet-name",
                                       "f",
                                       "--fleet-node",
                                       "n",
                                       "--advertise",
                                       "http://a.b:80/,lan=https://[::1]:9",
                                       "--fleet-label",
                                       "site=x,rack=r1",
                                       "--listen",
                                       "0.0.0.0:7070",
                                       NULL};
    struct gb_listeners none = {.count = 0};

    ck_assert_int_eq(read_all(argv), 1);
    ck_assert_str_eq(fleet.endpoints, "http://127.0.0.1:2379");
    ck_assert_str_eq(fleet.fleet.s, "f");
    ck_assert_str_eq(fleet.node.s, "n");
    ck_assert_str_eq(fleet.labels, "{\"site\":\"x\",\"rack\":\"r1\"}");
    ck_assert_uint_eq(fleet.url_count, 2);
    ck_assert_str_eq(fleet.urls[0].network.s, "default");
    ck_assert_str_eq(fleet.urls[0].url, "http://a.b:80");
    ck_assert_str_eq(fleet.urls[1].network.s, "lan");
    ck_assert_str_eq(fleet.urls[1].url, "https://[::1]:9");
    gb_assert_ok(gb_fleet_options_listen(&fleet, &none, &err), err);
}
END_TEST

START_TEST(test_listeners) {
    static const char *const argv[] = {FLEET, "--listen", "none", NULL};
    struct gb_listeners listeners = {.count = 4,
                                     .items = {{.is_unix = true, .text = "unix:/s"},
                                               {.network = {"default"}, .text = "10.0.0.5:7070"},
                                               {.network = {"default"}, .text = "10.0.0.6:7070"},
                                               {.network = {"lan"}, .is_tls = true, .text = "tls:[fd00::1]:7443"}}};

    ck_assert_int_eq(read_all(argv), 1);
    gb_assert_ok(gb_fleet_options_listen(&fleet, &listeners, &err), err);
    ck_assert_uint_eq(fleet.url_count, 2);
    ck_assert_str_eq(fleet.urls[0].url, "http://10.0.0.5:7070");
    ck_assert_str_eq(fleet.urls[1].url, "https://[fd00::1]:7443");
    fleet.url_count = 0;
    listeners.items[1].wildcard = true;
    ck_assert_int_eq(gb_fleet_options_listen(&fleet, &listeners, &err), -1);
    ck_assert_ptr_nonnull(strstr(err.detail, "--advertise"));
    err = GB_ERROR_INIT;
    listeners.count = 1;
    ck_assert_int_eq(gb_fleet_options_listen(&fleet, &listeners, &err), -1); /* no address at all */
}
END_TEST

static const char *const hosts[][2] = {
    {"http://a.b", "a.b"}, {"http://a.b:80", "a.b"}, {"https://[::1]:9", "::1"}, {"http://10.0.0.1:7070", "10.0.0.1"}};

START_TEST(test_host) {
    char host[GB_FLEET_URL_SIZE];

    gb_fleet_url_host(hosts[_i][0], host);
    ck_assert_str_eq(host, hosts[_i][1]);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("fleet_options");
    TCase *tcase = tcase_create("fleet_options");

    tcase_add_checked_fixture(tcase, NULL, teardown);
    tcase_add_loop_test(tcase, test_refused, 0, (int)(sizeof refused / sizeof refused[0]));
    tcase_add_test(tcase, test_none);
    tcase_add_test(tcase, test_all);
    tcase_add_test(tcase, test_listeners);
    tcase_add_loop_test(tcase, test_host, 0, (int)(sizeof hosts / sizeof hosts[0]));
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}
