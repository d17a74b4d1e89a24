/* libgpubuf: every route of the daemon has a function that requests it, or a stated reason for having none. */
#include <stdio.h>
#include <string.h>

#include "client_fixture.h"

static const char *const answers[] = {"HTTP/1.1 404 Not Found\r\nContent-Length: 55\r\nConnection: close\r\n\r\n"
                                      "{\"code\":\"no_route\",\"status\":404,\"detail\":\"of the test\"}",
                                      NULL};

#define SOURCE gpubuf_from_memory("abc", 3)
#define TARGET gpubuf_to_memory(back, sizeof(back))
static const struct gpubuf_opt none;
static const struct gpubuf_copy_params copy = {.from = "a"};
static const struct gpubuf_fill_params fill;
static char back[GPUBUF_ID_SIZE];

static int hear(void *arg, const struct gpubuf_news *news) {
    (void)arg;
    (void)news;
    return 0;
}

/* ROUTE(METHOD, path, expression with c and e): names in a path are those of routes.def. */
#define ROUTES                                                                                                         \
    ROUTE(GET, "/v1", gpubuf_daemon_get(c, NULL, e))                                                                   \
    ROUTE(GET, "/livez", gpubuf_live(c, e))                                                                            \
    ROUTE(GET, "/readyz", gpubuf_ready(c, NULL, e))                                                                    \
    ROUTE(GET, "/openapi.json", gpubuf_openapi(c, e))                                                                  \
    ROUTE(GET, "/v1/devices", gpubuf_device_list(c, NULL, e))                                                          \
    ROUTE(GET, "/v1/devices/{d}", gpubuf_device_get(c, "{d}", NULL, e))                                                \
    ROUTE(POST, "/v1/devices/{d}/sync", gpubuf_device_sync(c, "{d}", NULL, e))                                         \
    ROUTE(GET, "/v1/feed", gpubuf_feed_listen(c, NULL, hear, e))                                                       \
    ROUTE(GET, "/v1/leases", gpubuf_lease_list(c, NULL, NULL, e))                                                      \
    ROUTE(GET, "/v1/leases/{l}", gpubuf_lease_get(c, "{l}", NULL, e))                                                  \
    ROUTE(DELETE, "/v1/leases/{l}", gpubuf_lease_delete(c, "{l}", e))                                                  \
    ROUTE(GET, "/v1/operations", gpubuf_operation_list(c, NULL, NULL, NULL, NULL, e))                                  \
    ROUTE(GET, "/v1/operations/{o}", gpubuf_operation_get(c, "{o}", NULL, NULL, e))                                    \
    ROUTE(DELETE, "/v1/operations/{o}", gpubuf_operation_cancel(c, "{o}", NULL, NULL, e))                              \
    ROUTE(GET, "/v1/stats", gpubuf_stats_get(c, NULL, NULL, e))                                                        \
    ROUTE(GET, "/v1/sessions", gpubuf_session_list(c, NULL, NULL, e))                                                  \
    ROUTE(POST, "/v1/sessions", gpubuf_session_create(c, "{s}", NULL, NULL, NULL, e))                                  \
    ROUTE(GET, "/v1/sessions/{s}", gpubuf_session_get(c, "{s}", NULL, NULL, e))                                        \
    ROUTE(PATCH, "/v1/sessions/{s}", gpubuf_session_update(c, "{s}", NULL, NULL, NULL, e))                             \
    ROUTE(DELETE, "/v1/sessions/{s}", gpubuf_session_delete(c, "{s}", NULL, e))                                        \
    ROUTE(POST, "/v1/sessions/{s}/heartbeat", gpubuf_session_heartbeat(c, "{s}", NULL, NULL, e))                       \
    ROUTE(GET, "/v1/sessions/{s}/stats", gpubuf_session_stats(c, "{s}", NULL, e))                                      \
    ROUTE(POST, "/v1/sessions/{s}/sync", gpubuf_session_sync(c, "{s}", NULL, e))                                       \
    ROUTE(POST, "/v1/sessions/{s}/batch", gpubuf_batch_run(c, "{s}", "[]", NULL, false, NULL, NULL, e))                \
    ROUTE(GET, "/v1/sessions/{s}/pools", gpubuf_pool_list(c, "{s}", NULL, NULL, e))                                    \
    ROUTE(POST, "/v1/sessions/{s}/pools", gpubuf_pool_create(c, "{s}", "{p}", NULL, NULL, NULL, e))                    \
    ROUTE(GET, "/v1/sessions/{s}/pools/{p}", gpubuf_pool_get(c, "{s}", "{p}", NULL, e))                                \
    ROUTE(PATCH, "/v1/sessions/{s}/pools/{p}", gpubuf_pool_update(c, "{s}", "{p}", NULL, NULL, NULL, e))               \
    ROUTE(DELETE, "/v1/sessions/{s}/pools/{p}", gpubuf_pool_delete(c, "{s}", "{p}", true, NULL, e))                    \
    ROUTE(POST, "/v1/sessions/{s}/pools/{p}/trim", gpubuf_pool_trim(c, "{s}", "{p}", 0, NULL, NULL, e))                \
    ROUTE(POST, "/v1/sessions/{s}/pools/{p}/reset-peak", gpubuf_pool_reset_peak(c, "{s}", "{p}", NULL, NULL, e))       \
    ROUTE(POST, "/v1/sessions/{s}/pools/{p}/access", gpubuf_pool_access(c, "{s}", "{p}", "0", "none", NULL, NULL, e))  \
    ROUTE(GET, "/v1/sessions/{s}/streams", gpubuf_stream_list(c, "{s}", NULL, NULL, e))                                \
    ROUTE(POST, "/v1/sessions/{s}/streams", gpubuf_stream_create(c, "{s}", "{st}", NULL, NULL, e))                     \
    ROUTE(GET, "/v1/sessions/{s}/streams/{st}", gpubuf_stream_get(c, "{s}", "{st}", NULL, e))                          \
    ROUTE(DELETE, "/v1/sessions/{s}/streams/{st}", gpubuf_stream_delete(c, "{s}", "{st}", NULL, e))                    \
    ROUTE(POST, "/v1/sessions/{s}/streams/{st}/sync", gpubuf_stream_sync(c, "{s}", "{st}", NULL, NULL, e))             \
    ROUTE(POST, "/v1/sessions/{s}/streams/{st}/hold", gpubuf_stream_hold(c, "{s}", "{st}", 1, NULL, NULL, e))          \
    ROUTE(GET, "/v1/sessions/{s}/events", gpubuf_event_list(c, "{s}", NULL, NULL, e))                                  \
    ROUTE(POST, "/v1/sessions/{s}/events", gpubuf_event_create(c, "{s}", "{e}", NULL, NULL, e))                        \
    ROUTE(GET, "/v1/sessions/{s}/events/{e}", gpubuf_event_get(c, "{s}", "{e}", NULL, e))                              \
    ROUTE(DELETE, "/v1/sessions/{s}/events/{e}", gpubuf_event_delete(c, "{s}", "{e}", NULL, e))                        \
    ROUTE(POST, "/v1/sessions/{s}/events/{e}/record", gpubuf_event_record(c, "{s}", "{e}", NULL, NULL, NULL, e))       \
    ROUTE(POST, "/v1/sessions/{s}/events/{e}/wait", gpubuf_event_wait(c, "{s}", "{e}", NULL, NULL, NULL, e))           \
    ROUTE(GET, "/v1/sessions/{s}/buffers", gpubuf_buffer_list(c, "{s}", NULL, NULL, e))                                \
    ROUTE(POST, "/v1/sessions/{s}/buffers", gpubuf_buffer_create(c, "{s}", "{b}", NULL, NULL, NULL, e))                \
    ROUTE(GET, "/v1/sessions/{s}/buffers/{b}", gpubuf_buffer_get(c, "{s}", "{b}", true, NULL, NULL, e))                \
    ROUTE(PATCH, "/v1/sessions/{s}/buffers/{b}", gpubuf_buffer_update(c, "{s}", "{b}", NULL, NULL, NULL, e))           \
    ROUTE(DELETE, "/v1/sessions/{s}/buffers/{b}", gpubuf_buffer_delete(c, "{s}", "{b}", true, NULL, e))                \
    ROUTE(POST, "/v1/sessions/{s}/buffers/{b}/copy", gpubuf_buffer_copy(c, "{s}", "{b}", &copy, NULL, NULL, e))        \
    ROUTE(POST, "/v1/sessions/{s}/buffers/{b}/fill", gpubuf_buffer_fill(c, "{s}", "{b}", &fill, NULL, NULL, e))        \
    ROUTE(POST, "/v1/sessions/{s}/buffers/{b}/verify", gpubuf_buffer_verify(c, "{s}", "{b}", NULL, NULL, NULL, e))     \
    ROUTE(POST, "/v1/sessions/{s}/buffers/{b}/sync", gpubuf_buffer_sync(c, "{s}", "{b}", "host", NULL, NULL, NULL, e)) \
    ROUTE(POST, "/v1/sessions/{s}/buffers/{b}/export", gpubuf_export(c, "{s}", "{b}", NULL, NULL, NULL, e))            \
    ROUTE(POST, "/v1/sessions/{s}/buffers/{b}/reserve",                                                                \
          gpubuf_buffer_reserve(c, "{s}", "{b}", "host", 9, NULL, NULL, e))                                            \
    ROUTE(POST, "/v1/sessions/{s}/buffers/{b}/release", gpubuf_buffer_release(c, "{s}", "{b}", "all", NULL, NULL, e))  \
    ROUTE(POST, "/v1/sessions/{s}/buffers/{b}/seal", gpubuf_buffer_seal(c, "{s}", "{b}", NULL, NULL, e))               \
    ROUTE(POST, "/v1/sessions/{s}/buffers/{b}/store", gpubuf_buffer_store(c, "{s}", "{b}", NULL, NULL, e))             \
    ROUTE(POST, "/v1/sessions/{s}/buffers/{b}/load", gpubuf_buffer_load(c, "{s}", "{b}", NULL, NULL, e))               \
    ROUTE(POST, "/v1/sessions/{s}/buffers/{b}/evict", gpubuf_buffer_evict(c, "{s}", "{b}", NULL, NULL, e))             \
    ROUTE(POST, "/v1/sessions/{s}/evict", gpubuf_session_evict(c, "{s}", NULL, NULL, NULL, e))                         \
    ROUTE(POST, "/v1/sessions/{s}/load", gpubuf_session_load(c, "{s}", NULL, NULL, NULL, e))                           \
    ROUTE(GET, "/v1/fleet", gpubuf_fleet_get(c, NULL, e))                                                              \
    ROUTE(GET, "/v1/fleet/nodes", gpubuf_node_list(c, NULL, e))                                                        \
    ROUTE(GET, "/v1/fleet/nodes/{n}", gpubuf_node_get(c, "{n}", NULL, e))                                              \
    ROUTE(DELETE, "/v1/fleet/nodes/{n}", gpubuf_node_forget(c, "{n}", e))                                              \
    ROUTE(POST, "/v1/fleet/nodes/{n}/drain", gpubuf_node_drain(c, "{n}", true, NULL, e))                               \
    ROUTE(POST, "/v1/fleet/nodes/{n}/undrain", gpubuf_node_drain(c, "{n}", false, NULL, e))                            \
    ROUTE(GET, "/v1/fleet/sessions", gpubuf_fleet_session_list(c, NULL, NULL, NULL, e))                                \
    ROUTE(POST, "/v1/fleet/sessions", gpubuf_fleet_place(c, "{s}", NULL, NULL, NULL, NULL, e))                         \
    ROUTE(GET, "/v1/fleet/sessions/{s}", gpubuf_fleet_find(c, "{s}", NULL, e))                                         \
    ROUTE(DELETE, "/v1/fleet/sessions/{s}", gpubuf_fleet_delete(c, "{s}", e))                                          \
    ROUTE(POST, "/v1/fleet/sessions/{s}/move", gpubuf_fleet_move(c, "{s}", NULL, NULL, NULL, e))                       \
    ROUTE(POST, "/v1/fleet/sessions/{s}/take", gpubuf_fleet_take(c, "{s}", NULL, e))                                   \
    ROUTE(GET, "/v1/storage", gpubuf_storage_get(c, NULL, e))                                                          \
    ROUTE(POST, "/v1/storage/scrub", gpubuf_storage_scrub(c, 0, NULL, NULL, e))                                        \
    ROUTE(GET, "/v1/checkpoints", gpubuf_checkpoint_list(c, NULL, NULL, NULL, e))                                      \
    ROUTE(GET, "/v1/checkpoints/{c}", gpubuf_checkpoint_get(c, "{c}", NULL, NULL, e))                                  \
    ROUTE(DELETE, "/v1/checkpoints/{c}", gpubuf_checkpoint_delete(c, "{c}", NULL, e))                                  \
    ROUTE(POST, "/v1/checkpoints/{c}/verify", gpubuf_checkpoint_verify(c, "{c}", NULL, NULL, e))                       \
    ROUTE(POST, "/v1/checkpoints/{c}/restore", gpubuf_checkpoint_restore(c, "{c}", NULL, NULL, NULL, e))               \
    ROUTE(POST, "/v1/sessions/{s}/checkpoints", gpubuf_checkpoint_create(c, "{s}", "{c}", NULL, NULL, NULL, e))        \
    ROUTE(PUT, "/v1/sessions/{s}/buffers/{b}/data", gpubuf_put(c, "{s}", "{b}", SOURCE, NULL, NULL, e))                \
    ROUTE(POST, "/v1/sessions/{s}/buffers/{b}/data", gpubuf_upload_begin(c, "{s}", "{b}", SOURCE, 9, NULL, back, e))   \
    ROUTE(GET, "/v1/sessions/{s}/buffers/{b}/data", gpubuf_get(c, "{s}", "{b}", TARGET, NULL, NULL, e))                \
    ROUTE(GET, "/v1/sessions/{s}/uploads", gpubuf_upload_list(c, "{s}", NULL, NULL, e))                                \
    ROUTE(POST, "/v1/sessions/{s}/uploads", gpubuf_upload_create(c, "{s}", "{b}", NULL, NULL, NULL, e))                \
    ROUTE(GET, "/v1/sessions/{s}/uploads/{u}", gpubuf_upload_get(c, "{s}", "{u}", NULL, e))                            \
    ROUTE(PATCH, "/v1/sessions/{s}/uploads/{u}", gpubuf_upload_append(c, "{s}", "{u}", 3, true, SOURCE, NULL, e))      \
    ROUTE(DELETE, "/v1/sessions/{s}/uploads/{u}", gpubuf_upload_delete(c, "{s}", "{u}", e))                            \
    ROUTE(PUT, "/v1/sessions/{s}/uploads/{u}/parts", gpubuf_upload_part(c, "{s}", "{u}", 3, true, SOURCE, NULL, e))    \
    ROUTE(POST, "/v1/sessions/{s}/uploads/{u}/complete", gpubuf_upload_complete(c, "{s}", "{u}", none, NULL, NULL, e)) \
    ROUTE(GET, "/v1/sessions/{s}/tensors", gpubuf_tensors_get(c, "{s}", TARGET, NULL, NULL, e))                        \
    ROUTE(PUT, "/v1/sessions/{s}/tensors", gpubuf_tensors_put(c, "{s}", SOURCE, NULL, NULL, e))

/* Routes without a function, with the reason. */
static const char *const excepted[][2] = {
    {"GET /", "the page is for browsers"},
    {"GET /fleet", "a page, too"},
    {"GET /ui/{file}", "a part of the page"},
    {"GET /v1/fleet/stats", "sums for people: gpubuf fleet stats prints them, curl brings the JSON"},
    {"POST /v1/fleet/sessions/{s}/handover", "nodes ask it of each other"},
    {"POST /v1/fleet/sessions/{s}/copies", "the same"},
    {"POST /v1/fleet/copies", "the same"},
    {"POST /v1/fleet/directory/{op}", "nodes ask it of hubs"},
    {"GET /v1/fleet/tenants", "for operators: gpubuf fleet tenants"},
    {"GET /v1/fleet/tenants/{t}", "the same"},
    {"PUT /v1/fleet/tenants/{t}", "the same"},
    {"DELETE /v1/fleet/tenants/{t}", "the same"},
    {"GET /v1/fleet/copies", "for people: gpubuf fleet copies prints it, curl brings the JSON"},
    {"GET /v1/sessions/{s}/copies", "the same"},
    {"GET /v1/fleet/targets", "a list for Prometheus, which fetches it itself"},
    {"PATCH /v1/sessions/{s}/buffers/{b}/data", "PUT with an offset or a slice writes the same bytes"},
    {"POST /v1/sessions/{s}/buffers/{b}/map", "gpubuf_map() asks over a UNIX socket: test_client_map"},
    {"GET /v1/checkpoints/{c}/files/{file}", "a file for backups: curl brings it"},
    {"PUT /v1/checkpoints/{c}/files/{file}", "a file for backups: curl sends it"},
    {"GET /metrics", "it is for collectors, which bring their own clients; gpubuf_stats_get() gives the same numbers"},
    {"GET /v1/allocations", "a file for RMM's tools and people's scripts: curl brings it"},
    {"GET /v1/audit", "for administrators: gpubuf audit prints it, curl brings the JSON"},
    {"GET /v1/snapshot", "a file for PyTorch's memory_viz page: curl brings it"},
    {"POST /v1/devices/{d}/selftest", "tables for people: gpubuf selftest prints them, curl brings the JSON"},
    {"GET /v1/devices/{d}/stats", "gpubuf_device_get() gives these numbers; their past is for dashboards"},
    {"GET /v1/sessions/{s}/pools/{p}/stats", "gpubuf_pool_get() gives these numbers; their past is for dashboards"},
    {"POST /v1/sessions/{s}/buffers/{b}/adopt", "gpubuf_adopt() asks over a UNIX socket: test_client_adopt"},
};

static const char *const asked[] = {
#define ROUTE(method, path, call) #method " " path,
    ROUTES
#undef ROUTE
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static bool known(const char *route) {
    size_t i;

    for (i = 0; i < COUNT(asked); i++) {
        if (strcmp(asked[i], route) == 0)
            return true;
    }
    for (i = 0; i < COUNT(excepted); i++) {
        if (strcmp(excepted[i][0], route) == 0)
            return true;
    }
    return false;
}

static const char *const served[] = {
#define GB_ROUTE(method, path, handler, body, access, target, reach, key, operation, query) #method " " path,
#include "api/routes.def"
#undef GB_ROUTE
};

START_TEST(complete) {
    size_t i;

    for (i = 0; i < COUNT(served); i++)
        ck_assert_msg(known(served[i]), "no function of libgpubuf asks for %s, and no reason is given", served[i]);
    ck_assert_uint_eq(COUNT(served), COUNT(asked) + COUNT(excepted));
}
END_TEST

static int call(size_t which, gpubuf_client *c, struct gpubuf_error *e) {
    size_t i = 0;

#define ROUTE(method, path, call)                                                                                      \
    if (i++ == which)                                                                                                  \
        return call;
    ROUTES
#undef ROUTE
    return 0;
}

/* Writes the start of the request line for that route: braces are escaped, and a query may follow. */
static void first_line(const char *route, char *ret) {
    for (; *route != '\0'; route++) {
        if (*route == '{' || *route == '}')
            ret += sprintf(ret, "%%7%c", *route == '{' ? 'B' : 'D');
        else
            *ret++ = *route;
    }
    *ret = '\0';
}

START_TEST(asks) {
    struct fake_server fake = {.keep = false};
    struct gpubuf_error err;
    gpubuf_client *client;
    char expected[256];
    size_t n;

    fake_start(&fake, answers);
    client = fake_client(&fake);
    ck_assert_int_eq(call((size_t)_i, client, &err), -1);
    ck_assert_msg(err.code == GPUBUF_NO_ROUTE, "%s: %s: %s", asked[_i], err.slug, err.detail);
    ck_assert_int_eq(err.status, 404);
    ck_assert_int_eq(gpubuf_answer_of(client)->status, 404);
    gpubuf_close(client);
    fake_stop(&fake);
    first_line(asked[_i], expected);
    n = strlen(expected);
    ck_assert_msg(strncmp(fake.last, expected, n) == 0 && (fake.last[n] == ' ' || fake.last[n] == '?'),
                  "%s asked for %.100s", asked[_i], fake.last);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("client_routes");

    gb_test_add(suite, "complete", complete, 10);
    gb_test_add_loop(suite, "asks", asks, 20, (int)COUNT(asked));
    return gb_test_run(suite);
}
