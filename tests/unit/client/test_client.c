/* libgpubuf: clients, errors and calls, against a daemon. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client_fixture.h"

static struct client_fixture f;

static void setup(void) {
    client_fixture_start(&f, NULL);
}

static void teardown(void) {
    client_fixture_stop(&f);
}

/* --- codes -------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *slug;
    int number;
} numbers[] = {
#define GB_ERROR(symbol, slug, status, retryable, title) {#slug, GPUBUF_##symbol},
#include <gpubuf/errors.def>
#undef GB_ERROR
};

START_TEST(codes) {
    int i;

    for (i = 0; i < (int)(sizeof(numbers) / sizeof(numbers[0])); i++) {
        ck_assert_int_eq(numbers[i].number, i + 1);
        ck_assert_str_eq(gpubuf_code_slug(i + 1), numbers[i].slug);
        ck_assert_int_eq(gpubuf_code_find(numbers[i].slug), i + 1);
        ck_assert_uint_lt(strlen(numbers[i].slug), sizeof(f.err.slug));
    }
    for (i = GPUBUF_CANNOT_CONNECT; i <= GPUBUF_TLS_FAILED; i++)
        ck_assert_int_eq(gpubuf_code_find(gpubuf_code_slug(i)), i);
    ck_assert_str_eq(gpubuf_code_slug(0), "ok");
    ck_assert_int_eq(gpubuf_code_find("ok"), 0);
    ck_assert_int_eq(gpubuf_code_find(NULL), GPUBUF_UNKNOWN_PROBLEM);
    ck_assert_str_eq(gpubuf_code_slug(-5), "unknown_problem");
    /* The numbers are part of the ABI: moving or removing a line of errors.def changes them. */
    ck_assert_int_eq(GPUBUF_MALFORMED_REQUEST, 1);
    ck_assert_int_eq(GPUBUF_BUFFER_NOT_FOUND, 21);
}
END_TEST

/* --- opening ------------------------------------------------------------------------------------------------------ */

START_TEST(addresses) {
    static const char *const wrong[] = {"",
                                        "ftp://localhost",
                                        "http://",
                                        "unix://rel",
                                        "unix:///%s%s%s%s%s",
                                        "http://a b",
                                        "http://h/?x",
                                        "/localhost",
                                        "./x",
                                        "unix:/a",
                                        "unix:",
                                        "http:",
                                        "h:",
                                        "h:x",
                                        "h:1x",
                                        "h:1/below",
                                        "a b:1",
                                        "[::1",
                                        "[::1]x",
                                        ":1",
                                        "u@h:1",
                                        "h?x"};
    static const char *const bare[][2] = {
        {"localhost", "http://localhost:7070"},  {"127.0.0.1:7070", "http://127.0.0.1:7070"},
        {"[::1]:7070", "http://[::1]:7070"},     {"edge-1.lan:80", "http://edge-1.lan:80"},
        {"edge_1:7070/", "http://edge_1:7070/"}, {"[::1]", "http://[::1]:7070"}};
    struct gpubuf_options options = {.token = "two words"};
    gpubuf_client *client = NULL;
    char path[200] = "unix:///";
    size_t i;

    memset(path + 8, 'x', 150);
    for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        options = (struct gpubuf_options){.url = i == 4 ? path : wrong[i]};
        client_fails(&f, gpubuf_open(&options, &client, &f.err), GPUBUF_BAD_ARGUMENT);
    }
    for (i = 0; i < sizeof(bare) / sizeof(bare[0]); i++) {
        options = (struct gpubuf_options){.url = bare[i][0]};
        client_ok(&f, gpubuf_open(&options, &client, &f.err));
        ck_assert_str_eq(gpubuf_url(client), bare[i][1]);
        gpubuf_close(client);
    }
    client = NULL;
    options = (struct gpubuf_options){.url = "http://me:letmein@h:1"}; /* a secret is not repeated */
    client_fails(&f, gpubuf_open(&options, &client, &f.err), GPUBUF_BAD_ARGUMENT);
    ck_assert_ptr_null(strstr(f.err.detail, "letmein"));
    options = (struct gpubuf_options){.url = "http://127.0.0.1:1", .token = "two words"};
    client_fails(&f, gpubuf_open(&options, &client, &f.err), GPUBUF_BAD_ARGUMENT);
    ck_assert_ptr_null(client);
    options.token = NULL;
    client_ok(&f, gpubuf_open(&options, &client, &f.err));
    client_fails(&f, client_ask(client, "GET", "/v1", NULL, &f.err), GPUBUF_CANNOT_CONNECT);
    ck_assert(f.err.retryable && f.err.status == 0);
    ck_assert_int_eq(client_ask(client, "GET", "/v1", NULL, NULL), -1);
    gpubuf_close(client);
    gpubuf_close(NULL);
}
END_TEST

/* Over plain http a token goes to a loopback address alone, unless that is permitted. */
START_TEST(token_road) {
    static const struct {
        const char *url;
        bool goes;
    } roads[] = {
        {"http://127.0.0.1:7070", true}, {"http://127.9.8.7", true},         {"127.0.0.1", true},
        {"http://localhost:1", true},    {"http://LOCALHOST", true},         {"http://[::1]:7070", true},
        {"unix:///x.sock", true},        {"https://gpu1.lab", true},         {"http://gpu1.lab", false},
        {"http://127.0.0.1.lab", false}, {"http://127.lab:7070", false},     {"http://localhost.lab", false},
        {"http://10.0.0.1", false},      {"http://[2001:db8::1]:70", false}, {"http://[::1.lab]", false},
        {"http://0127.0.0.1", false},    {"http://128.0.0.1", false},        {"gpu1", false},
        {"http://localhostx", false},    {"http://[::ffff:1.2.3.4]", false},
    };
    struct gpubuf_options options = {.url = roads[_i].url, .token = "gpb_x"};
    gpubuf_client *client = NULL;

    if (roads[_i].goes)
        client_ok(&f, gpubuf_open(&options, &client, &f.err));
    else
        client_fails(&f, gpubuf_open(&options, &client, &f.err), GPUBUF_BAD_ARGUMENT);
    gpubuf_close(client);
    options.plain_token = true;
    client_ok(&f, gpubuf_open(&options, &client, &f.err));
    gpubuf_close(client);
    options.plain_token = false;
    setenv("GPUBUF_PLAIN_TOKEN", "1", 1);
    client_ok(&f, gpubuf_open(&options, &client, &f.err));
    gpubuf_close(client);
    setenv("GPUBUF_PLAIN_TOKEN", "no", 1);
    ck_assert_int_eq(gpubuf_open(&options, &client, &f.err), roads[_i].goes ? 0 : -1);
    if (roads[_i].goes)
        gpubuf_close(client);
    unsetenv("GPUBUF_PLAIN_TOKEN");
    options.token = ""; /* none */
    client_ok(&f, gpubuf_open(&options, &client, &f.err));
    gpubuf_close(client);
}
END_TEST

/* Files of https are looked at when a client of https is opened, and at no other time. */
START_TEST(trust_files) {
    struct gpubuf_options options = {.url = "https://127.0.0.1:1", .cacert = "/nowhere"};
    struct gpubuf_peer peer;
    gpubuf_client *client = NULL;

    client_fails(&f, gpubuf_open(&options, &client, &f.err), GPUBUF_BAD_ARGUMENT);
    options.cacert = "/dev/null";
    client_fails(&f, gpubuf_open(&options, &client, &f.err), GPUBUF_BAD_ARGUMENT);
    options.cacert = "/proc/self/fd";
    client_fails(&f, gpubuf_open(&options, &client, &f.err), GPUBUF_BAD_ARGUMENT);
    options.cacert = NULL;
    setenv("GPUBUF_CACERT", "/nowhere", 1);
    client_fails(&f, gpubuf_open(&options, &client, &f.err), GPUBUF_BAD_ARGUMENT);
    options.cacert = ""; /* the system's, whatever the environment says */
    client_ok(&f, gpubuf_open(&options, &client, &f.err));
    client_fails(&f, client_ask(client, "GET", "/v1", NULL, &f.err), GPUBUF_CANNOT_CONNECT);
    client_fails(&f, gpubuf_peer_get(client, &peer, &f.err), GPUBUF_CANNOT_CONNECT);
    gpubuf_interrupt(client);
    client_fails(&f, gpubuf_peer_get(client, &peer, &f.err), GPUBUF_INTERRUPTED);
    gpubuf_close(client);
    options = (struct gpubuf_options){.url = f.url, .cacert = "/nowhere", .cert = "/nowhere"};
    client_ok(&f, gpubuf_open(&options, &client, &f.err));
    client_ok(&f, client_ask(client, "GET", "/v1", NULL, &f.err));
    client_fails(&f, gpubuf_peer_get(client, &peer, &f.err), GPUBUF_BAD_ARGUMENT);
    gpubuf_close(client);
    unsetenv("GPUBUF_CACERT");
}
END_TEST

START_TEST(environment) {
    gpubuf_client *client = NULL;
    char version[64];
    char home[80];

    setenv("GPUBUF_URL", f.url, 1);
    setenv("GPUBUF_TOKEN", "gpb_unknown", 1);
    setenv("GPUBUF_SOCKET", f.unix_url, 1);
    client_ok(&f, gpubuf_open(NULL, &client, &f.err));
    ck_assert_str_eq(gpubuf_url(client), f.url);
    gpubuf_close(client);
    setenv("GPUBUF_URL", f.url + strlen("http://"), 1);
    client_ok(&f, gpubuf_open(NULL, &client, &f.err));
    ck_assert_str_eq(gpubuf_url(client), f.url);
    ck_assert_str_eq(gpubuf_socket(client), f.unix_url + strlen("unix://"));
    client_ok(&f, client_ask(client, "GET", "/v1", NULL, &f.err));
    snprintf(version, sizeof(version), "\"version\":\"%s\"", gpubuf_version());
    ck_assert(client_says(client, version));
    gpubuf_close(client);
    unsetenv("GPUBUF_URL");
    unsetenv("GPUBUF_TOKEN");
    client_ok(&f, gpubuf_open(NULL, &client, &f.err)); /* only the socket is given: all requests use it */
    ck_assert_str_eq(gpubuf_url(client), f.unix_url);
    client_ok(&f, client_ask(client, "GET", "/v1", NULL, &f.err));
    gpubuf_close(client);
    setenv("GPUBUF_SOCKET", "here.sock", 1);
    client_fails(&f, gpubuf_open(NULL, &client, &f.err), GPUBUF_BAD_ARGUMENT);
    client_ok(&f, gpubuf_open(&(struct gpubuf_options){.socket = f.unix_url}, &client, &f.err));
    ck_assert_str_eq(gpubuf_url(client), f.unix_url);
    gpubuf_close(client);
    unsetenv("GPUBUF_SOCKET");
    snprintf(home, sizeof(home), "%s/gpubufd", f.dir);
    ck_assert_int_eq(symlink(f.dir, home), 0);
    setenv("XDG_STATE_HOME", f.dir, 1);
    client_ok(&f, gpubuf_open(NULL, &client, &f.err));
    ck_assert_int_eq(strncmp(gpubuf_url(client), "unix:///tmp/", 12), 0);
    client_ok(&f, client_ask(client, "GET", "/v1", NULL, &f.err));
    gpubuf_close(client);
}
END_TEST

static void remember(void *arg, const char *line) {
    snprintf(arg, 256, "%s", line);
}

START_TEST(traced) {
    char line[256] = "";
    struct gpubuf_options options = {.url = f.url, .trace = remember, .trace_arg = line};
    gpubuf_client *client = NULL;

    client_ok(&f, gpubuf_open(&options, &client, &f.err));
    client_fails(&f, client_ask(client, "GET", "/v1/sessions/none", NULL, &f.err), GPUBUF_SESSION_NOT_FOUND);
    ck_assert_int_eq(strncmp(line, "GET /v1/sessions/none -> 404 session_not_found (", 48), 0);
    ck_assert(f.err.request_id[0] != '\0' && f.err.title[0] != '\0');
    client_fails(&f, gpubuf_put(client, "..", "x", gpubuf_from_memory("", 0), NULL, NULL, &f.err), GPUBUF_BAD_ARGUMENT);
    client_fails(&f, gpubuf_put(client, NULL, "x", gpubuf_from_memory("", 0), NULL, NULL, &f.err), GPUBUF_BAD_ARGUMENT);
    client_fails(&f, gpubuf_put(client, "a/b?c#d e", "x", gpubuf_from_memory("", 0), NULL, NULL, &f.err),
                 GPUBUF_INVALID_NAME);
    ck_assert_ptr_nonnull(strstr(line, "/v1/sessions/a%2Fb%3Fc%23d%20e/buffers/x/data -> "));
    gpubuf_close(client);
}
END_TEST

/* --- calls -------------------------------------------------------------------------------------------------------- */

/* The numbers of a refusal. */
START_TEST(quota) {
    struct gpubuf_put_params raw = {.format = "raw"};
    static char data[2000];

    client_ok(&f, client_ask(f.client, "POST", "/v1/sessions", "{\"name\":\"s\",\"quota\":{\"bytes\":1000}}", &f.err));
    client_fails(&f, gpubuf_put(f.client, "s", "x", gpubuf_from_memory(data, 2000), &raw, NULL, &f.err),
                 GPUBUF_QUOTA_EXCEEDED);
    ck_assert(f.err.has_numbers && f.err.limit_bytes == 1000 && f.err.requested_bytes == 2000);
}
END_TEST

START_TEST(operations) {
    static const char *const later[] = {"Content-Type: application/json", "Prefer: respond-async", NULL};
    const struct gpubuf_answer *answer = gpubuf_answer_of(f.client);
    char id[GPUBUF_ID_SIZE] = "unset";
    struct gpubuf_put_params async = {.format = "raw", .how = {.async = true, .ret_operation = id}};
    struct gpubuf_buffer rec;

    client_ok(&f, gpubuf_put(f.client, "default", "x", gpubuf_from_memory("abc", 3), &async, &rec, &f.err));
    if (id[0] != '\0')
        client_ok(&f, gpubuf_operation_wait(f.client, id, 30, &f.err));
    client_ok(&f, gpubuf_request(f.client, "POST", "/v1/sessions/default/buffers/x/fill", later, "{\"pattern\":1}", 13,
                                 &f.err));
    if (answer->status == 202) {
        snprintf(id, sizeof(id), "%s", strrchr(answer->location, '/') + 1);
        client_ok(&f, gpubuf_operation_wait(f.client, id, 30, &f.err));
        ck_assert(client_says(f.client, "\"state\":\"done\""));
    }
    client_fails(&f, gpubuf_operation_wait(f.client, "12345678-1", 1, &f.err), GPUBUF_OPERATION_NOT_FOUND);
    async.how.ret_operation = NULL;
    client_fails(&f, gpubuf_put(f.client, "default", "x", gpubuf_from_memory("abc", 3), &async, NULL, &f.err),
                 GPUBUF_BAD_ARGUMENT);
}
END_TEST

/* A gpubuf_read_fn. */
static int64_t gives_up(void *arg, void *data, size_t size) {
    (void)arg;
    (void)data;
    (void)size;
    return -1;
}

START_TEST(anything) {
    const char *const headers[] = {"Content-Type: application/json", NULL};
    const char *const wrong[] = {"two\nlines", NULL};
    char etag[GPUBUF_ETAG_SIZE + 16];
    const char *const same[] = {etag, NULL};

    client_ok(&f, gpubuf_request(f.client, "POST", "/v1/sessions", headers, "{\"name\":\"t\"}", 12, &f.err));
    ck_assert_int_eq(gpubuf_answer_of(f.client)->status, 201);
    ck_assert_str_eq(gpubuf_answer_of(f.client)->location, "/v1/sessions/t");
    ck_assert_int_eq(gpubuf_answer_of(f.client)->body[0], '{');
    client_ok(&f, gpubuf_request(f.client, "GET", "/v1/sessions?limit=1", NULL, NULL, 0, &f.err));
    client_ok(&f, client_ask(f.client, "GET", "/v1/sessions/t", NULL, &f.err));
    snprintf(etag, sizeof(etag), "If-None-Match: %s", gpubuf_answer_of(f.client)->etag);
    client_ok(&f, gpubuf_request(f.client, "GET", "/v1/sessions/t", same, NULL, 0, &f.err));
    ck_assert_int_eq(gpubuf_answer_of(f.client)->status, 304);
    ck_assert_uint_eq(gpubuf_answer_of(f.client)->bytes, 0);
    client_fails(&f, gpubuf_request(f.client, "GET", "/v1/nothing", NULL, NULL, 0, &f.err), GPUBUF_NO_ROUTE);
    client_ok(&f, gpubuf_request_from(f.client, "POST", "/v1/sessions", headers,
                                      gpubuf_from_memory("{\"name\":\"u\"}", 12), &f.err));
    ck_assert_str_eq(gpubuf_answer_of(f.client)->location, "/v1/sessions/u");
    client_fails(
        &f,
        gpubuf_request_from(f.client, "POST", "/v1/sessions", headers, gpubuf_from_call(gives_up, NULL, 12), &f.err),
        GPUBUF_INPUT_FAILED);
    client_fails(&f, gpubuf_request_from(f.client, "POST", "v1", headers, gpubuf_from_memory("{}", 2), &f.err),
                 GPUBUF_BAD_ARGUMENT);
    client_fails(&f, gpubuf_request(f.client, "GET", "v1", NULL, NULL, 0, &f.err), GPUBUF_BAD_ARGUMENT);
    client_fails(&f, gpubuf_request(f.client, "get it", "/v1", NULL, NULL, 0, &f.err), GPUBUF_BAD_ARGUMENT);
    client_fails(&f, gpubuf_request(f.client, "GET", "/v1", wrong, NULL, 0, &f.err), GPUBUF_BAD_ARGUMENT);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("client");
    TCase *tcase = tcase_create("calls");

    gb_test_add(suite, "codes", codes, 10);
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, addresses);
    tcase_add_loop_test(tcase, token_road, 0, 20);
    tcase_add_test(tcase, trust_files);
    tcase_add_test(tcase, environment);
    tcase_add_test(tcase, traced);
    tcase_add_test(tcase, quota);
    tcase_add_test(tcase, operations);
    tcase_add_test(tcase, anything);
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}
