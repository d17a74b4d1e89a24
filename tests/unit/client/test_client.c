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
    client_fails(&f, gpubuf_daemon_get(client, NULL, &f.err), GPUBUF_CANNOT_CONNECT);
    ck_assert(f.err.retryable && f.err.status == 0);
    ck_assert_int_eq(gpubuf_daemon_get(client, NULL, NULL), -1);
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
    client_fails(&f, gpubuf_daemon_get(client, NULL, &f.err), GPUBUF_CANNOT_CONNECT);
    client_fails(&f, gpubuf_peer_get(client, &peer, &f.err), GPUBUF_CANNOT_CONNECT);
    gpubuf_interrupt(client);
    client_fails(&f, gpubuf_peer_get(client, &peer, &f.err), GPUBUF_INTERRUPTED);
    gpubuf_close(client);
    options = (struct gpubuf_options){.url = f.url, .cacert = "/nowhere", .cert = "/nowhere"};
    client_ok(&f, gpubuf_open(&options, &client, &f.err));
    client_ok(&f, gpubuf_daemon_get(client, NULL, &f.err));
    client_fails(&f, gpubuf_peer_get(client, &peer, &f.err), GPUBUF_BAD_ARGUMENT);
    gpubuf_close(client);
    unsetenv("GPUBUF_CACERT");
}
END_TEST

START_TEST(environment) {
    struct gpubuf_daemon daemon;
    gpubuf_client *client = NULL;
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
    client_ok(&f, gpubuf_daemon_get(client, &daemon, &f.err));
    ck_assert_str_eq(daemon.backend, "host");
    ck_assert_str_eq(daemon.version, gpubuf_version());
    gpubuf_close(client);
    unsetenv("GPUBUF_URL");
    unsetenv("GPUBUF_TOKEN");
    client_ok(&f, gpubuf_open(NULL, &client, &f.err)); /* only the socket is given: all requests use it */
    ck_assert_str_eq(gpubuf_url(client), f.unix_url);
    client_ok(&f, gpubuf_daemon_get(client, NULL, &f.err));
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
    client_ok(&f, gpubuf_daemon_get(client, NULL, &f.err));
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
    client_fails(&f, gpubuf_session_get(client, "none", NULL, NULL, &f.err), GPUBUF_SESSION_NOT_FOUND);
    ck_assert_int_eq(strncmp(line, "GET /v1/sessions/none -> 404 session_not_found (", 48), 0);
    ck_assert(f.err.request_id[0] != '\0' && f.err.title[0] != '\0');
    client_fails(&f, gpubuf_session_get(client, "..", NULL, NULL, &f.err), GPUBUF_BAD_ARGUMENT);
    client_fails(&f, gpubuf_session_get(client, NULL, NULL, NULL, &f.err), GPUBUF_BAD_ARGUMENT);
    client_fails(&f, gpubuf_session_get(client, "a/b?c#d e", NULL, NULL, &f.err), GPUBUF_INVALID_NAME);
    ck_assert_ptr_nonnull(strstr(line, "/v1/sessions/a%2Fb%3Fc%23d%20e -> "));
    gpubuf_close(client);
}
END_TEST

/* --- calls -------------------------------------------------------------------------------------------------------- */

START_TEST(sessions) {
    struct gpubuf_session_params params = {
        .labels = "{\"team\":\"a\"}", .quota_bytes = gpubuf_some(1000), .idle_ttl_s = gpubuf_some(3600)};
    struct gpubuf_put_params raw = {.format = "raw"};
    struct gpubuf_session_list list;
    struct gpubuf_session session;
    struct gpubuf_stats stats;
    char expires[GPUBUF_TIME_SIZE];
    static char data[2000];

    client_ok(&f, gpubuf_session_create(f.client, "s", &params, NULL, &session, &f.err));
    ck_assert(session.quota_bytes.set && session.quota_bytes.value == 1000 && session.idle_ttl_s == 3600);
    client_fails(&f, gpubuf_session_create(f.client, "s", &params, NULL, NULL, &f.err), GPUBUF_SESSION_EXISTS);
    client_ok(&f, gpubuf_session_heartbeat(f.client, "s", NULL, expires, &f.err));
    ck_assert_str_ne(expires, "");
    client_fails(&f, gpubuf_put(f.client, "s", "x", gpubuf_from_memory(data, 2000), &raw, NULL, &f.err),
                 GPUBUF_QUOTA_EXCEEDED);
    ck_assert(f.err.has_numbers && f.err.limit_bytes == 1000 && f.err.requested_bytes == 2000);
    params = (struct gpubuf_session_params){.quota_bytes = gpubuf_some(GPUBUF_NO_LIMIT)};
    client_ok(&f, gpubuf_session_update(f.client, "s", &params, NULL, &session, &f.err));
    ck_assert(!session.quota_bytes.set && session.idle_ttl_s == 3600);
    client_ok(&f, gpubuf_put(f.client, "s", "x", gpubuf_from_memory(data, 2000), &raw, NULL, &f.err));
    client_ok(&f, gpubuf_session_stats(f.client, "s", &stats, &f.err));
    ck_assert(stats.buffers == 1 && stats.buffer_bytes == 2000 && stats.upload.count == 1);
    client_ok(&f, gpubuf_session_sync(f.client, "s", NULL, &f.err));
    client_ok(&f, gpubuf_session_list(f.client, NULL, &list, &f.err));
    ck_assert_uint_eq(list.count, 2);
    ck_assert_int_eq(list.json[0], '[');
    gpubuf_session_list_done(&list);
    gpubuf_session_list_done(NULL);
    client_ok(&f, gpubuf_session_list(f.client, &(struct gpubuf_page){.limit = 1}, &list, &f.err));
    ck_assert(list.count == 1 && list.next_cursor[0] != '\0');
    gpubuf_session_list_done(&list);
    params = (struct gpubuf_session_params){.labels = "{not json"};
    client_fails(&f, gpubuf_session_update(f.client, "s", &params, NULL, NULL, &f.err), GPUBUF_BAD_ARGUMENT);
    client_ok(&f, gpubuf_session_delete(f.client, "s", NULL, &f.err));
    client_fails(&f, gpubuf_session_delete(f.client, "default", NULL, &f.err), GPUBUF_SESSION_PROTECTED);
}
END_TEST

START_TEST(pools) {
    struct gpubuf_pool_params params = {
        .device = "0", .max_bytes = gpubuf_some(64u << 20), .allow_opportunistic = gpubuf_some(0)};
    struct gpubuf_session_params current = {.pool = "p"};
    struct gpubuf_put_params raw = {.format = "raw"};
    struct gpubuf_pool_list list;
    struct gpubuf_pool pool;

    client_ok(&f, gpubuf_pool_create(f.client, "default", "p", &params, NULL, &pool, &f.err));
    ck_assert(pool.max_bytes.set && !pool.allow_opportunistic && pool.allow_internal_dependencies);
    params = (struct gpubuf_pool_params){.release_threshold_bytes = gpubuf_some(5)};
    client_ok(&f, gpubuf_pool_update(f.client, "default", "p", &params, NULL, &pool, &f.err));
    ck_assert_uint_eq(pool.release_threshold_bytes.value, 5);
    client_ok(&f, gpubuf_session_update(f.client, "default", &current, NULL, NULL, &f.err));
    client_ok(&f, gpubuf_put(f.client, "default", "x", gpubuf_from_memory("x", 1), &raw, NULL, &f.err));
    client_ok(&f, gpubuf_pool_get(f.client, "default", "p", &pool, &f.err));
    ck_assert(pool.buffers == 1 && pool.growths == 1 && pool.reuses == 0);
    client_ok(&f, gpubuf_buffer_delete(f.client, "default", "x", false, NULL, &f.err));
    client_ok(&f, gpubuf_pool_update(f.client, "default", "default", &params, NULL, &pool, &f.err));
    ck_assert_uint_eq(pool.release_threshold_bytes.value, 5);
    client_ok(&f, gpubuf_pool_trim(f.client, "default", "p", 0, NULL, &pool, &f.err));
    client_ok(&f, gpubuf_pool_reset_peak(f.client, "default", "p", NULL, &pool, &f.err));
    client_ok(&f, gpubuf_pool_get(f.client, "default", "p", &pool, &f.err));
    client_ok(&f, gpubuf_pool_list(f.client, "default", NULL, &list, &f.err));
    ck_assert_uint_ge(list.count, 2);
    gpubuf_pool_list_done(&list);
    client_ok(&f, gpubuf_pool_delete(f.client, "default", "p", false, NULL, &f.err));
    client_fails(&f, gpubuf_pool_get(f.client, "default", "p", &pool, &f.err), GPUBUF_POOL_NOT_FOUND);
}
END_TEST

START_TEST(order) {
    struct gpubuf_stream_list streams;
    struct gpubuf_event_list events;
    struct gpubuf_stream stream;
    struct gpubuf_event event;

    client_ok(&f, gpubuf_stream_create(f.client, "default", "s2", NULL, &stream, &f.err));
    ck_assert_str_eq(stream.session, "default");
    client_ok(&f, gpubuf_event_create(f.client, "default", "e", NULL, &event, &f.err));
    ck_assert(!event.recorded && event.done);
    client_ok(&f, gpubuf_event_record(f.client, "default", "e", "s2", NULL, &event, &f.err));
    ck_assert(event.recorded);
    ck_assert_str_eq(event.stream, "s2");
    client_ok(&f, gpubuf_event_wait(f.client, "default", "e", NULL, NULL, &event, &f.err));
    client_ok(&f, gpubuf_stream_hold(f.client, "default", "s2", 1, NULL, NULL, &f.err));
    client_fails(&f, gpubuf_stream_hold(f.client, "default", "s2", 1, "9", NULL, &f.err), GPUBUF_DEVICE_NOT_FOUND);
    client_ok(&f, gpubuf_stream_sync(f.client, "default", "s2", NULL, &stream, &f.err));
    client_ok(&f, gpubuf_stream_get(f.client, "default", "s2", &stream, &f.err));
    client_ok(&f, gpubuf_event_get(f.client, "default", "e", &event, &f.err));
    client_ok(&f, gpubuf_stream_list(f.client, "default", NULL, &streams, &f.err));
    client_ok(&f, gpubuf_event_list(f.client, "default", NULL, &events, &f.err));
    ck_assert(streams.count == 2 && events.count == 1);
    gpubuf_stream_list_done(&streams);
    gpubuf_event_list_done(&events);
    client_ok(&f, gpubuf_event_delete(f.client, "default", "e", NULL, &f.err));
    client_ok(&f, gpubuf_stream_delete(f.client, "default", "s2", NULL, &f.err));
    client_ok(&f, gpubuf_device_sync(f.client, "0", NULL, &f.err));
}
END_TEST

START_TEST(buffers) {
    struct gpubuf_buffer_params params = {.dtype = "float32", .shape = "2,3", .mirrored = true, .labels = "{}"};
    struct gpubuf_stats stats;
    struct gpubuf_fill_params fill = {.pattern = 0x3f800000, .width = 4};
    struct gpubuf_verify_params verify = {.sha256 = true};
    struct gpubuf_copy_params copy = {.from = "m"};
    struct gpubuf_verified verified;
    struct gpubuf_buffer rec;

    client_ok(&f, gpubuf_buffer_create(f.client, "default", "m", &params, NULL, &rec, &f.err));
    ck_assert(rec.mirrored && rec.bytes == 24 && rec.ndim == 2);
    client_ok(&f, gpubuf_stats_get(f.client, NULL, &stats, &f.err));
    ck_assert(stats.mirrored_buffers == 1 && stats.mirrored_bytes == 24 && stats.mirror_copies == 0);
    ck_assert_str_eq(rec.head, "uninitialized");
    client_ok(&f, gpubuf_buffer_fill(f.client, "default", "m", &fill, NULL, &rec, &f.err));
    client_ok(&f, gpubuf_buffer_sync(f.client, "default", "m", "host", NULL, NULL, &rec, &f.err));
    ck_assert_str_eq(rec.head, "synced");
    ck_assert(rec.host_side.current && rec.host_side.owned && rec.host_side.pinned && rec.device_side.current &&
              !rec.device_side.pinned);
    client_ok(&f, gpubuf_buffer_reserve(f.client, "default", "m", "host", 100, NULL, &rec, &f.err));
    ck_assert(rec.host_side.bytes == 100 && rec.device_side.bytes == 24 && rec.bytes == 24);
    client_ok(&f, gpubuf_buffer_release(f.client, "default", "m", "device", NULL, &rec, &f.err));
    client_ok(&f, gpubuf_buffer_copy(f.client, "default", "c", &copy, NULL, &rec, &f.err));
    ck_assert(rec.created && rec.way[0] != '\0');
    copy.source_if_match = "\"0.0\"";
    client_fails(&f, gpubuf_buffer_copy(f.client, "default", "c", &copy, NULL, &rec, &f.err),
                 GPUBUF_PRECONDITION_FAILED);
    client_ok(&f, gpubuf_buffer_verify(f.client, "default", "c", &verify, NULL, &verified, &f.err));
    ck_assert(!verified.compared && !verified.match && verified.bytes == 24); /* the buffer had no checksum yet */
    client_ok(&f, gpubuf_buffer_verify(f.client, "default", "c", &verify, NULL, &verified, &f.err));
    ck_assert(verified.compared && verified.match && verified.stored_crc32c.set);
    ck_assert_uint_eq(strlen(verified.sha256), 44);
    params = (struct gpubuf_buffer_params){.dtype = "int32", .shape = "6"};
    client_ok(&f, gpubuf_buffer_update(f.client, "default", "c", &params, NULL, &rec, &f.err));
    ck_assert_str_eq(rec.dtype, "int32");
    params.shape = "2,x";
    client_fails(&f, gpubuf_buffer_update(f.client, "default", "c", &params, NULL, &rec, &f.err), GPUBUF_BAD_ARGUMENT);
    client_ok(&f, gpubuf_buffer_get(f.client, "default", "c", true, NULL, &rec, &f.err));
    ck_assert_ptr_nonnull(strstr(gpubuf_answer_of(f.client)->body, "attributes"));
}
END_TEST

START_TEST(operations) {
    char id[GPUBUF_ID_SIZE] = "unset";
    struct gpubuf_how async = {.async = true, .ret_operation = id};
    struct gpubuf_fill_params fill = {.width = 1};
    struct gpubuf_buffer_params params = {.bytes = gpubuf_some(100)};
    struct gpubuf_operation_list list;
    struct gpubuf_batch batch;

    client_ok(&f, gpubuf_buffer_create(f.client, "default", "x", &params, NULL, NULL, &f.err));
    client_ok(&f, gpubuf_buffer_fill(f.client, "default", "x", &fill, &async, NULL, &f.err));
    if (id[0] != '\0')
        client_ok(&f, gpubuf_operation_wait(f.client, id, 30, NULL, &f.err));
    client_ok(&f, gpubuf_batch_run(f.client, "default",
                                   "[{\"op\":\"fill\",\"buffer\":\"x\",\"pattern\":1},"
                                   "{\"op\":\"delete\",\"buffer\":\"none\"}]",
                                   NULL, false, NULL, &batch, &f.err));
    ck_assert(batch.done == 1 && batch.failed == 1);
    client_ok(&f, gpubuf_operation_list(f.client, "default", "done", NULL, &list, &f.err));
    gpubuf_operation_list_done(&list);
    client_fails(&f, gpubuf_operation_wait(f.client, "12345678-1", 1, NULL, &f.err), GPUBUF_OPERATION_NOT_FOUND);
    async.ret_operation = NULL;
    client_fails(&f, gpubuf_buffer_fill(f.client, "default", "x", &fill, &async, NULL, &f.err), GPUBUF_BAD_ARGUMENT);
}
END_TEST

START_TEST(whole) {
    struct gpubuf_how how = {.wait_s = 0};
    char etag[GPUBUF_ETAG_SIZE];
    struct gpubuf_device_list devices;
    struct gpubuf_device device;
    struct gpubuf_stats stats;
    bool ready = false;

    client_ok(&f, gpubuf_live(f.client, &f.err));
    client_ok(&f, gpubuf_ready(f.client, &ready, &f.err));
    ck_assert(ready);
    client_ok(&f, gpubuf_openapi(f.client, &f.err));
    ck_assert_ptr_nonnull(strstr(gpubuf_answer_of(f.client)->body, "\"openapi\""));
    client_ok(&f, gpubuf_device_list(f.client, &devices, &f.err));
    ck_assert_uint_eq(devices.count, 1);
    client_ok(&f, gpubuf_device_get(f.client, devices.items[0].id.uuid, &device, &f.err));
    ck_assert_uint_gt(device.total_bytes, 0);
    gpubuf_device_list_done(&devices);
    client_ok(&f, gpubuf_stats_get(f.client, NULL, &stats, &f.err));
    strcpy(etag, gpubuf_answer_of(f.client)->etag);
    ck_assert_str_ne(etag, "");
    how.if_none_match = etag;
    ck_assert_int_ge(gpubuf_stats_get(f.client, &how, &stats, &f.err), 0);
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

    client_ok(&f, gpubuf_request(f.client, "POST", "/v1/sessions", headers, "{\"name\":\"t\"}", 12, &f.err));
    ck_assert_int_eq(gpubuf_answer_of(f.client)->status, 201);
    ck_assert_str_eq(gpubuf_answer_of(f.client)->location, "/v1/sessions/t");
    ck_assert_int_eq(gpubuf_answer_of(f.client)->body[0], '{');
    client_ok(&f, gpubuf_request(f.client, "GET", "/v1/sessions?limit=1", NULL, NULL, 0, &f.err));
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
    tcase_add_test(tcase, sessions);
    tcase_add_test(tcase, pools);
    tcase_add_test(tcase, order);
    tcase_add_test(tcase, buffers);
    tcase_add_test(tcase, operations);
    tcase_add_test(tcase, whole);
    tcase_add_test(tcase, anything);
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}
