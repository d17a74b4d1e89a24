/* A loop that turns without progress: libmicrohttpd's suspension is made to fail, so that it asks for a callback for
 * ever. */
#include <dlfcn.h>
#include <microhttpd.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "gb_test.h"
#include "http_fixture.h"

static struct gb_http_fixture f;
static atomic_bool broken;
static atomic_uint told;

/* Replaces the library's. */
void MHD_suspend_connection(struct MHD_Connection *connection) {
    void (*real)(struct MHD_Connection *) =
        (void (*)(struct MHD_Connection *))(uintptr_t)dlsym(RTLD_NEXT, "MHD_suspend_connection");

    if (!atomic_load(&broken))
        real(connection);
}

static enum gb_step wait_long(struct gb_http_request *request, struct gb_http_response *response,
                              struct gb_error *err) {
    (void)response;
    (void)err;
    request->resume = wait_long;
    return GB_STEP_WAIT;
}

static enum gb_step answer(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    (void)request;
    (void)err;
    gb_http_response_take(response, strdup("ok"), 2);
    return GB_STEP_REPLY;
}

static const struct gb_http_route routes[] = {
    {GB_HTTP_GET, "/long", wait_long, GB_BODY_NONE, 0, ""},
    {GB_HTTP_GET, "/ok", answer, GB_BODY_NONE, 0, ""},
};

static void on_stuck(void *app, const char *text) {
    (void)app;
    ck_assert_ptr_nonnull(strstr(text, "without progress"));
    atomic_fetch_add(&told, 1);
}

static void tweak(struct gb_http_server_config *config) {
    config->routes = routes;
    config->route_count = 2;
    config->stuck = on_stuck;
    config->loops = 1;
}

/* The connection is ended and logged; another of the same loop, which waits or is idle, stays. */
START_TEST(a_loop_that_spins_ends_the_connection) {
    int idle;
    int stuck;

    gb_http_fixture_start(&f, tweak);
    idle = gb_client(&f);
    gb_client_text(idle, "GET /ok HTTP/1.1\r\nHost: localhost\r\n\r\n");
    ck_assert_int_eq(gb_client_reply(idle, NULL, 0, NULL, NULL), 200);
    atomic_store(&broken, true);
    stuck = gb_client(&f);
    gb_client_text(stuck, "GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n");
    ck_assert_int_eq(gb_client_reply(stuck, NULL, 0, NULL, NULL), 0);
    ck_assert(gb_client_at_end(stuck));
    ck_assert_uint_ge(atomic_load(&told), 1);
    gb_client_text(idle, "GET /ok HTTP/1.1\r\nHost: localhost\r\n\r\n");
    ck_assert_int_eq(gb_client_reply(idle, NULL, 0, NULL, NULL), 200);
    atomic_store(&broken, false);
    close(idle);
    close(stuck);
    gb_http_fixture_stop(&f);
}
END_TEST

/* Connections that wait are no reason to end one. */
START_TEST(a_loop_that_waits_is_left_alone) {
    struct gb_http_server_stat stat;
    uint64_t end_ns = gb_clock_ns() + 3500 * GB_NS_PER_MS;
    int waiting;
    int busy;

    gb_http_fixture_start(&f, tweak);
    waiting = gb_client(&f);
    gb_client_text(waiting, "GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n");
    busy = gb_client(&f);
    /* Longer than three sweeps, with requests that keep the loop turning. */
    while (gb_clock_ns() < end_ns) {
        gb_client_text(busy, "GET /ok HTTP/1.1\r\nHost: localhost\r\n\r\n");
        ck_assert_int_eq(gb_client_reply(busy, NULL, 0, NULL, NULL), 200);
    }
    gb_http_server_stat(f.server, &stat);
    ck_assert_uint_eq(stat.connections, 2);
    ck_assert_uint_eq(atomic_load(&told), 0);
    close(busy);
    close(waiting);
    gb_http_fixture_stop(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("http, loops that spin");

    gb_test_add(suite, "spins", a_loop_that_spins_ends_the_connection, 60);
    gb_test_add(suite, "waits", a_loop_that_waits_is_left_alone, 60);
    return gb_test_run(suite);
}
