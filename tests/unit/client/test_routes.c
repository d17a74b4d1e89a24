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
    ROUTE(GET, "/v1/devices/{device}", gpubuf_device_get(c, "{device}", NULL, e))                                      \
    ROUTE(POST, "/v1/devices/{device}/sync", gpubuf_device_sync(c, "{device}", NULL, e))                               \
    ROUTE(GET, "/v1/feed", gpubuf_feed_listen(c, NULL, hear, e))                                                       \
    ROUTE(GET, "/v1/leases", gpubuf_lease_list(c, NULL, NULL, e))                                                      \
    ROUTE(GET, "/v1/leases/{lease}", gpubuf_lease_get(c, "{lease}", NULL, e))                                          \
    ROUTE(DELETE, "/v1/leases/{lease}", gpubuf_lease_delete(c, "{lease}", e))                                          \
    ROUTE(GET, "/v1/operations", gpubuf_operation_list(c, NULL, NULL, NULL, NULL, e))                                  \
    ROUTE(GET, "/v1/operations/{operation}", gpubuf_operation_get(c, "{operation}", NULL, NULL, e))                    \
    ROUTE(DELETE, "/v1/operations/{operation}", gpubuf_operation_cancel(c, "{operation}", NULL, NULL, e))              \
    ROUTE(GET, "/v1/stats", gpubuf_stats_get(c, NULL, NULL, e))                                                        \
    ROUTE(GET, "/v1/sessions", gpubuf_session_list(c, NULL, NULL, e))                                                  \
    ROUTE(POST, "/v1/sessions", gpubuf_session_create(c, "{session}", NULL, NULL, NULL, e))                            \
    ROUTE(GET, "/v1/sessions/{session}", gpubuf_session_get(c, "{session}", NULL, NULL, e))                            \
    ROUTE(PATCH, "/v1/sessions/{session}", gpubuf_session_update(c, "{session}", NULL, NULL, NULL, e))                 \
    ROUTE(DELETE, "/v1/sessions/{session}", gpubuf_session_delete(c, "{session}", NULL, e))                            \
    ROUTE(POST, "/v1/sessions/{session}/heartbeat", gpubuf_session_heartbeat(c, "{session}", NULL, NULL, e))           \
    ROUTE(GET, "/v1/sessions/{session}/stats", gpubuf_session_stats(c, "{session}", NULL, e))                          \
    ROUTE(POST, "/v1/sessions/{session}/sync", gpubuf_session_sync(c, "{session}", NULL, e))                           \
    ROUTE(POST, "/v1/sessions/{session}/batch", gpubuf_batch_run(c, "{session}", "[]", NULL, false, NULL, NULL, e))    \
    ROUTE(GET, "/v1/sessions/{session}/pools", gpubuf_pool_list(c, "{session}", NULL, NULL, e))                        \
    ROUTE(POST, "/v1/sessions/{session}/pools", gpubuf_pool_create(c, "{session}", "{pool}", NULL, NULL, NULL, e))     \
    ROUTE(GET, "/v1/sessions/{session}/pools/{pool}", gpubuf_pool_get(c, "{session}", "{pool}", NULL, e))              \
    ROUTE(PATCH, "/v1/sessions/{session}/pools/{pool}",                                                                \
          gpubuf_pool_update(c, "{session}", "{pool}", NULL, NULL, NULL, e))                                           \
    ROUTE(DELETE, "/v1/sessions/{session}/pools/{pool}", gpubuf_pool_delete(c, "{session}", "{pool}", true, NULL, e))  \
    ROUTE(POST, "/v1/sessions/{session}/pools/{pool}/trim",                                                            \
          gpubuf_pool_trim(c, "{session}", "{pool}", 0, NULL, NULL, e))                                                \
    ROUTE(POST, "/v1/sessions/{session}/pools/{pool}/reset-peak",                                                      \
          gpubuf_pool_reset_peak(c, "{session}", "{pool}", NULL, NULL, e))                                             \
    ROUTE(POST, "/v1/sessions/{session}/pools/{pool}/access",                                                          \
          gpubuf_pool_access(c, "{session}", "{pool}", "0", "none", NULL, NULL, e))                                    \
    ROUTE(GET, "/v1/sessions/{session}/streams", gpubuf_stream_list(c, "{session}", NULL, NULL, e))                    \
    ROUTE(POST, "/v1/sessions/{session}/streams", gpubuf_stream_create(c, "{session}", "{stream}", NULL, NULL, e))     \
    ROUTE(GET, "/v1/sessions/{session}/streams/{stream}", gpubuf_stream_get(c, "{session}", "{stream}", NULL, e))      \
    ROUTE(DELETE, "/v1/sessions/{session}/streams/{stream}",                                                           \
          gpubuf_stream_delete(c, "{session}", "{stream}", NULL, e))                                                   \
    ROUTE(POST, "/v1/sessions/{session}/streams/{stream}/sync",                                                        \
          gpubuf_stream_sync(c, "{session}", "{stream}", NULL, NULL, e))                                               \
    ROUTE(POST, "/v1/sessions/{session}/streams/{stream}/hold",                                                        \
          gpubuf_stream_hold(c, "{session}", "{stream}", 1, NULL, NULL, e))                                            \
    ROUTE(GET, "/v1/sessions/{session}/events", gpubuf_event_list(c, "{session}", NULL, NULL, e))                      \
    ROUTE(POST, "/v1/sessions/{session}/events", gpubuf_event_create(c, "{session}", "{event}", NULL, NULL, e))        \
    ROUTE(GET, "/v1/sessions/{session}/events/{event}", gpubuf_event_get(c, "{session}", "{event}", NULL, e))          \
    ROUTE(DELETE, "/v1/sessions/{session}/events/{event}", gpubuf_event_delete(c, "{session}", "{event}", NULL, e))    \
    ROUTE(POST, "/v1/sessions/{session}/events/{event}/record",                                                        \
          gpubuf_event_record(c, "{session}", "{event}", NULL, NULL, NULL, e))                                         \
    ROUTE(POST, "/v1/sessions/{session}/events/{event}/wait",                                                          \
          gpubuf_event_wait(c, "{session}", "{event}", NULL, NULL, NULL, e))                                           \
    ROUTE(GET, "/v1/sessions/{session}/buffers", gpubuf_buffer_list(c, "{session}", NULL, NULL, e))                    \
    ROUTE(POST, "/v1/sessions/{session}/buffers",                                                                      \
          gpubuf_buffer_create(c, "{session}", "{buffer}", NULL, NULL, NULL, e))                                       \
    ROUTE(GET, "/v1/sessions/{session}/buffers/{buffer}",                                                              \
          gpubuf_buffer_get(c, "{session}", "{buffer}", true, NULL, NULL, e))                                          \
    ROUTE(PATCH, "/v1/sessions/{session}/buffers/{buffer}",                                                            \
          gpubuf_buffer_update(c, "{session}", "{buffer}", NULL, NULL, NULL, e))                                       \
    ROUTE(DELETE, "/v1/sessions/{session}/buffers/{buffer}",                                                           \
          gpubuf_buffer_delete(c, "{session}", "{buffer}", true, NULL, e))                                             \
    ROUTE(POST, "/v1/sessions/{session}/buffers/{buffer}/copy",                                                        \
          gpubuf_buffer_copy(c, "{session}", "{buffer}", &copy, NULL, NULL, e))                                        \
    ROUTE(POST, "/v1/sessions/{session}/buffers/{buffer}/fill",                                                        \
          gpubuf_buffer_fill(c, "{session}", "{buffer}", &fill, NULL, NULL, e))                                        \
    ROUTE(POST, "/v1/sessions/{session}/buffers/{buffer}/verify",                                                      \
          gpubuf_buffer_verify(c, "{session}", "{buffer}", NULL, NULL, NULL, e))                                       \
    ROUTE(POST, "/v1/sessions/{session}/buffers/{buffer}/sync",                                                        \
          gpubuf_buffer_sync(c, "{session}", "{buffer}", "host", NULL, NULL, NULL, e))                                 \
    ROUTE(POST, "/v1/sessions/{session}/buffers/{buffer}/export",                                                      \
          gpubuf_export(c, "{session}", "{buffer}", NULL, NULL, NULL, e))                                              \
    ROUTE(POST, "/v1/sessions/{session}/buffers/{buffer}/reserve",                                                     \
          gpubuf_buffer_reserve(c, "{session}", "{buffer}", "host", 9, NULL, NULL, e))                                 \
    ROUTE(POST, "/v1/sessions/{session}/buffers/{buffer}/release",                                                     \
          gpubuf_buffer_release(c, "{session}", "{buffer}", "all", NULL, NULL, e))                                     \
    ROUTE(POST, "/v1/sessions/{session}/buffers/{buffer}/seal",                                                        \
          gpubuf_buffer_seal(c, "{session}", "{buffer}", NULL, NULL, e))                                               \
    ROUTE(POST, "/v1/sessions/{session}/buffers/{buffer}/store",                                                       \
          gpubuf_buffer_store(c, "{session}", "{buffer}", NULL, NULL, e))                                              \
    ROUTE(POST, "/v1/sessions/{session}/buffers/{buffer}/load",                                                        \
          gpubuf_buffer_load(c, "{session}", "{buffer}", NULL, NULL, e))                                               \
    ROUTE(POST, "/v1/sessions/{session}/buffers/{buffer}/evict",                                                       \
          gpubuf_buffer_evict(c, "{session}", "{buffer}", NULL, NULL, e))                                              \
    ROUTE(POST, "/v1/sessions/{session}/evict", gpubuf_session_evict(c, "{session}", NULL, NULL, NULL, e))             \
    ROUTE(POST, "/v1/sessions/{session}/load", gpubuf_session_load(c, "{session}", NULL, NULL, NULL, e))               \
    ROUTE(GET, "/v1/fleet", gpubuf_fleet_get(c, NULL, e))                                                              \
    ROUTE(GET, "/v1/fleet/nodes", gpubuf_node_list(c, NULL, e))                                                        \
    ROUTE(GET, "/v1/fleet/nodes/{node}", gpubuf_node_get(c, "{node}", NULL, e))                                        \
    ROUTE(DELETE, "/v1/fleet/nodes/{node}", gpubuf_node_forget(c, "{node}", e))                                        \
    ROUTE(POST, "/v1/fleet/nodes/{node}/drain", gpubuf_node_drain(c, "{node}", true, NULL, e))                         \
    ROUTE(POST, "/v1/fleet/nodes/{node}/undrain", gpubuf_node_drain(c, "{node}", false, NULL, e))                      \
    ROUTE(GET, "/v1/fleet/sessions", gpubuf_fleet_session_list(c, NULL, NULL, NULL, e))                                \
    ROUTE(POST, "/v1/fleet/sessions", gpubuf_fleet_place(c, "{session}", NULL, NULL, NULL, NULL, e))                   \
    ROUTE(GET, "/v1/fleet/sessions/{session}", gpubuf_fleet_find(c, "{session}", NULL, e))                             \
    ROUTE(DELETE, "/v1/fleet/sessions/{session}", gpubuf_fleet_delete(c, "{session}", e))                              \
    ROUTE(POST, "/v1/fleet/sessions/{session}/move", gpubuf_fleet_move(c, "{session}", NULL, NULL, NULL, e))           \
    ROUTE(POST, "/v1/fleet/sessions/{session}/take", gpubuf_fleet_take(c, "{session}", NULL, e))                       \
    ROUTE(GET, "/v1/storage", gpubuf_storage_get(c, NULL, e))                                                          \
    ROUTE(POST, "/v1/storage/scrub", gpubuf_storage_scrub(c, 0, NULL, NULL, e))                                        \
    ROUTE(GET, "/v1/checkpoints", gpubuf_checkpoint_list(c, NULL, NULL, NULL, e))                                      \
    ROUTE(GET, "/v1/checkpoints/{checkpoint}", gpubuf_checkpoint_get(c, "{checkpoint}", NULL, NULL, e))                \
    ROUTE(DELETE, "/v1/checkpoints/{checkpoint}", gpubuf_checkpoint_delete(c, "{checkpoint}", NULL, e))                \
    ROUTE(POST, "/v1/checkpoints/{checkpoint}/verify", gpubuf_checkpoint_verify(c, "{checkpoint}", NULL, NULL, e))     \
    ROUTE(POST, "/v1/checkpoints/{checkpoint}/restore",                                                                \
          gpubuf_checkpoint_restore(c, "{checkpoint}", NULL, NULL, NULL, e))                                           \
    ROUTE(POST, "/v1/sessions/{session}/checkpoints",                                                                  \
          gpubuf_checkpoint_create(c, "{session}", "{checkpoint}", NULL, NULL, NULL, e))                               \
    ROUTE(PUT, "/v1/sessions/{session}/buffers/{buffer}/data",                                                         \
          gpubuf_put(c, "{session}", "{buffer}", SOURCE, NULL, NULL, e))                                               \
    ROUTE(POST, "/v1/sessions/{session}/buffers/{buffer}/data",                                                        \
          gpubuf_upload_begin(c, "{session}", "{buffer}", SOURCE, 9, NULL, back, e))                                   \
    ROUTE(GET, "/v1/sessions/{session}/buffers/{buffer}/data",                                                         \
          gpubuf_get(c, "{session}", "{buffer}", TARGET, NULL, NULL, e))                                               \
    ROUTE(GET, "/v1/sessions/{session}/uploads", gpubuf_upload_list(c, "{session}", NULL, NULL, e))                    \
    ROUTE(POST, "/v1/sessions/{session}/uploads",                                                                      \
          gpubuf_upload_create(c, "{session}", "{buffer}", NULL, NULL, NULL, e))                                       \
    ROUTE(GET, "/v1/sessions/{session}/uploads/{upload}", gpubuf_upload_get(c, "{session}", "{upload}", NULL, e))      \
    ROUTE(PATCH, "/v1/sessions/{session}/uploads/{upload}",                                                            \
          gpubuf_upload_append(c, "{session}", "{upload}", 3, true, SOURCE, NULL, e))                                  \
    ROUTE(DELETE, "/v1/sessions/{session}/uploads/{upload}", gpubuf_upload_delete(c, "{session}", "{upload}", e))      \
    ROUTE(PUT, "/v1/sessions/{session}/uploads/{upload}/parts",                                                        \
          gpubuf_upload_part(c, "{session}", "{upload}", 3, true, SOURCE, NULL, e))                                    \
    ROUTE(POST, "/v1/sessions/{session}/uploads/{upload}/complete",                                                    \
          gpubuf_upload_complete(c, "{session}", "{upload}", none, NULL, NULL, e))                                     \
    ROUTE(GET, "/v1/sessions/{session}/tensors", gpubuf_tensors_get(c, "{session}", TARGET, NULL, NULL, e))            \
    ROUTE(PUT, "/v1/sessions/{session}/tensors", gpubuf_tensors_put(c, "{session}", SOURCE, NULL, NULL, e))

/* Routes without a function, with the reason. */
static const char *const excepted[][2] = {
    {"GET /", "the page is for browsers"},
    {"GET /fleet", "a page, too"},
    {"GET /ui/{file}", "a part of the page"},
    {"GET /v1/fleet/stats", "sums for people: gpubuf fleet stats prints them, curl brings the JSON"},
    {"POST /v1/fleet/sessions/{session}/handover", "nodes ask it of each other"},
    {"POST /v1/fleet/sessions/{session}/copies", "the same"},
    {"POST /v1/fleet/copies", "the same"},
    {"POST /v1/fleet/directory/{op}", "nodes ask it of hubs"},
    {"GET /v1/fleet/tenants", "for operators: gpubuf fleet tenants"},
    {"GET /v1/fleet/tenants/{tenant}", "the same"},
    {"PUT /v1/fleet/tenants/{tenant}", "the same"},
    {"DELETE /v1/fleet/tenants/{tenant}", "the same"},
    {"GET /v1/fleet/copies", "for people: gpubuf fleet copies prints it, curl brings the JSON"},
    {"GET /v1/sessions/{session}/copies", "the same"},
    {"GET /v1/fleet/targets", "a list for Prometheus, which fetches it itself"},
    {"PATCH /v1/sessions/{session}/buffers/{buffer}/data", "PUT with an offset or a slice writes the same bytes"},
    {"POST /v1/sessions/{session}/buffers/{buffer}/map", "gpubuf_map() asks over a UNIX socket: test_client_map"},
    {"GET /v1/checkpoints/{checkpoint}/files/{file}", "a file for gpubuf checkpoints get"},
    {"PUT /v1/sessions/{session}", "gpubuf_session_create, with gpubuf_session_get where it exists"},
    {"PUT /v1/sessions/{session}/pools/{pool}", "the same of pools"},
    {"PUT /v1/sessions/{session}/streams/{stream}", "the same of streams"},
    {"PUT /v1/checkpoints/{checkpoint}/files/{file}", "a file for gpubuf checkpoints put"},
    {"GET /metrics", "it is for collectors, which bring their own clients; gpubuf_stats_get() gives the same numbers"},
    {"GET /v1/allocations", "a file for RMM's tools and people's scripts: curl brings it"},
    {"GET /v1/audit", "for administrators: gpubuf audit prints it, curl brings the JSON"},
    {"GET /v1/snapshot", "a file for PyTorch's memory_viz page: curl brings it"},
    {"POST /v1/devices/{device}/selftest", "tables for people: gpubuf selftest prints them, curl brings the JSON"},
    {"GET /v1/devices/{device}/stats", "gpubuf_device_get() gives these numbers; their past is for dashboards"},
    {"GET /v1/sessions/{session}/pools/{pool}/stats",
     "gpubuf_pool_get() gives these numbers; their past is for dashboards"},
    {"POST /v1/sessions/{session}/buffers/{buffer}/adopt", "gpubuf_adopt() asks over a UNIX socket: test_client_adopt"},
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
