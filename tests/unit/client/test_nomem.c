/* libgpubuf when malloc fails: every allocation of the calling thread fails once, in turn. No request leaves without a
 * part of what the caller said. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client_fixture.h"
#include "failing_malloc.h"

#ifdef GB_OWN_MALLOC

#define ALLOCATIONS 2000 /* more than any of the calls makes */

#define HEAD(bytes) "HTTP/1.1 200 OK\r\nContent-Length: " bytes "\r\n\r\n"

static const char *const names[] = {"x", "y", NULL};
static const struct gpubuf_checkpoint_params some = {.names = names, .lenient = true, .unstable = true};
static const struct gpubuf_restore_params back = {
    .into = "s", .prefix = "old.", .names = names, .device = "0", .replace = true, .eager = true};
static const struct gpubuf_buffer_params buffer = {.durability = "sync", .spill = "disk", .resident = {true, 1}};
static const struct gpubuf_session_params session = {.durability = "sync", .quota_stored_bytes = {true, 9}};
static const struct gpubuf_verify_params verify = {.sha256 = true, .expect_sha512 = "abc"};

/* CALL(expression with c and e, length of what is sent, reply) */
#define CALLS                                                                                                          \
    CALL(gpubuf_checkpoint_create(c, "s", "c1", &some, NULL, NULL, e),                                                 \
         "{\"name\":\"c1\",\"names\":[\"x\",\"y\"],\"lenient\":true,\"unstable\":true}",                               \
         HEAD("13") "{\"name\":\"c1\"}")                                                                               \
    CALL(gpubuf_checkpoint_restore(c, "c1", &back, NULL, NULL, e),                                                     \
         "{\"into\":\"s\",\"prefix\":\"old.\",\"names\":[\"x\",\"y\"],\"device\":0,\"replace\":true,"                  \
         "\"load\":\"eager\"}",                                                                                        \
         HEAD("19") "{\"checkpoint\":\"c1\"}")                                                                         \
    CALL(gpubuf_checkpoint_verify(c, "c1", NULL, NULL, e), "{}", HEAD("14") "{\"match\":true}")                        \
    CALL(gpubuf_storage_scrub(c, 65536, NULL, NULL, e), "{\"rate\":65536}", HEAD("13") "{\"began\":\"x\"}")            \
    CALL(gpubuf_session_evict(c, "s", "old.", NULL, NULL, e), "{\"prefix\":\"old.\"}", HEAD("13") "{\"buffers\":7}")   \
    CALL(gpubuf_buffer_update(c, "s", "x", &buffer, NULL, NULL, e),                                                    \
         "{\"durability\":\"sync\",\"spill\":\"disk\",\"resident\":true}", HEAD("12") "{\"name\":\"x\"}")              \
    CALL(gpubuf_session_update(c, "s", &session, NULL, NULL, e),                                                       \
         "{\"durability\":\"sync\",\"quota\":{\"stored_bytes\":9}}", HEAD("12") "{\"name\":\"s\"}")                    \
    CALL(gpubuf_buffer_verify(c, "s", "x", &verify, NULL, NULL, e),                                                    \
         "{\"algorithms\":[\"sha-256\"],\"digest\":{\"sha-512\":\"abc\"}}", HEAD("21") "{\"crc32c\":\"00000000\"}")

static const struct {
    const char *body;
    const char *answer;
} calls[] = {
#define CALL(call, body, answer) {body, answer},
    CALLS
#undef CALL
};

static int run(int which, gpubuf_client *c, struct gpubuf_error *e) {
    int i = 0;

#define CALL(call, body, answer)                                                                                       \
    if (i++ == which)                                                                                                  \
        return call;
    CALLS
#undef CALL
    return -1;
}

START_TEST(every_allocation) {
    const char *const answers[] = {calls[_i].answer, NULL};
    struct fake_server fake = {.keep = false};
    struct gpubuf_error err;
    gpubuf_client *client;
    unsigned refused = 0;
    char expected[64];
    int i;

    fake_start(&fake, answers);
    client = fake_client(&fake);
    snprintf(expected, sizeof(expected), "\r\nContent-Length: %zu\r\n", strlen(calls[_i].body));
    for (i = 0; i < ALLOCATIONS; i++) {
        bool failed;
        int r;

        fake.last[0] = '\0';
        gb_allocations_here = i;
        r = run(_i, client, &err);
        failed = gb_allocations_here < 0;
        gb_allocations_here = -1;
        if (r < 0) {
            ck_assert_msg(failed, "%s: %s", err.slug, err.detail);
            ck_assert_msg(err.code == GPUBUF_NO_MEMORY || err.code >= GPUBUF_CANNOT_CONNECT, "%s: %s", err.slug,
                          err.detail);
            ck_assert_msg(err.code != GPUBUF_BAD_ARGUMENT, "allocation %d: %s", i, err.detail);
            refused++;
        }
        ck_assert_msg(fake.last[0] == '\0' || strstr(fake.last, expected), "allocation %d: %s", i, fake.last);
        if (!failed)
            break;
    }
    ck_assert_int_lt(i, ALLOCATIONS);
    ck_assert_uint_gt(refused, 0);
    gpubuf_close(client);
    fake_stop(&fake);
}
END_TEST

#endif

/* A text that is not UTF-8 is refused, and not left out. */
START_TEST(no_utf8) {
    static const char *const answers[] = {"", NULL};
    static const char *const list[] = {"x", "\xff", NULL};
    struct gpubuf_checkpoint_params params = {.names = list};
    struct gpubuf_restore_params into = {.into = "\xff"};
    struct fake_server fake = {.keep = false};
    struct {
        struct gpubuf_error err;
    } f;
    gpubuf_client *client;

    fake_start(&fake, answers);
    client = fake_client(&fake);
    client_fails(&f, gpubuf_session_evict(client, "s", "\xff", NULL, NULL, &f.err), GPUBUF_BAD_ARGUMENT);
    client_fails(&f, gpubuf_checkpoint_create(client, "s", "c1", &params, NULL, NULL, &f.err), GPUBUF_BAD_ARGUMENT);
    client_fails(&f, gpubuf_checkpoint_restore(client, "c1", &into, NULL, NULL, &f.err), GPUBUF_BAD_ARGUMENT);
    gpubuf_close(client);
    fake_stop(&fake);
    ck_assert_uint_eq(fake.served, 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("client_nomem");

#ifdef GB_OWN_MALLOC
    gb_test_add_loop(suite, "every_allocation", every_allocation, 60, (int)(sizeof(calls) / sizeof(calls[0])));
#endif
    gb_test_add(suite, "no_utf8", no_utf8, 20);
    return gb_test_run(suite);
}
