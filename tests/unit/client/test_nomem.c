/* libgpubuf when malloc fails: every allocation of the calling thread fails once, in turn. No request leaves without a
 * part of what the caller said. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client_fixture.h"
#include "failing_malloc.h"

#ifdef GB_OWN_MALLOC

#define ALLOCATIONS 2000 /* more than any of the calls makes */

#define HEAD2(status, bytes) "HTTP/1.1 " status "\r\nContent-Length: " bytes "\r\n\r\n"
#define HEAD(bytes) HEAD2("200 OK", bytes)

static const char *const headers[] = {"Content-Type: application/json", "Idempotency-Key: k", NULL};
static const struct gpubuf_put_params put = {.dtype = "int8",
                                             .shape = "3",
                                             .kind = "device",
                                             .durability = "sync",
                                             .spill = "disk",
                                             .max_bytes = {true, 9},
                                             .content_encoding = "gzip",
                                             .how = {.if_match = "\"1\"", .idempotency_key = "k", .wait_s = 7}};
static const struct gpubuf_put_params parts = {
    .dtype = "int8", .shape = "3,1", .kind = "device", .device = "1", .connections = 2, .part_bytes = 1};
static const struct gpubuf_tensors_params tensors = {.prefix = "p.", .kind = "device", .pool = "q"};
static const struct gpubuf_tensors_params some = {.names = "x,y", .label = "a=b"};

#define TENSORS "{\"tensors\":1,\"items\":[]}"
#define REFUSED HEAD2("409 Conflict", "52") "{\"code\":\"limit_reached\",\"status\":409,\"detail\":\"no\"} "

/* CALL(expression with c and e, what the header of its first request has, reply) */
#define CALLS                                                                                                          \
    CALL(gpubuf_request(c, "POST", "/v1/sessions?x=1", headers, "{}", 2, e),                                           \
         "POST /v1/sessions?x=1 HTTP/1.1\r\n|\r\nContent-Type: application/json\r\n|\r\nIdempotency-Key: k\r\n|"       \
         "\r\nContent-Length: 2\r\n",                                                                                  \
         HEAD("2") "{}")                                                                                               \
    CALL(gpubuf_put(c, "s", "x", gpubuf_from_memory("abc", 3), &put, NULL, e),                                         \
         "PUT /v1/sessions/s/buffers/x/data|"                                                                          \
         "\r\nContent-Encoding: gzip\r\n|\r\nIf-Match: \"1\"\r\n|\r\nIdempotency-Key: k\r\n|\r\nPrefer: wait=7\r\n|"   \
         "\r\nContent-Length: 3\r\n",                                                                                  \
         HEAD("12") "{\"name\":\"x\"}")                                                                                \
    CALL(gpubuf_put(c, "s", "x", gpubuf_from_memory("abc", 3), &parts, NULL, e),                                       \
         "POST /v1/sessions/s/uploads HTTP/1.1\r\n|\r\nContent-Length: 80\r\n", REFUSED)                               \
    CALL(gpubuf_tensors_put(c, "s", gpubuf_from_memory("abc", 3), &tensors, NULL, e),                                  \
         "PUT /v1/sessions/s/tensors|\r\nContent-Type: application/x-safetensors\r\n", HEAD("24") TENSORS)             \
    CALL(gpubuf_tensors_get(c, "s", gpubuf_to_memory(back, sizeof(back)), &some, NULL, e),                             \
         "GET /v1/sessions/s/tensors|\r\nAccept: application/x-safetensors\r\n", HEAD("3") "abc")                      \
    CALL(gpubuf_operation_wait(c, "17", 5, e),                                                                         \
         "GET /v1/operations/17 HTTP/1.1\r\n|\r\nPrefer: wait=", HEAD("26") "{\"id\":\"17\",\"state\":\"done\"}")

static char back[8];

static const struct {
    const char *sent; /* with | between */
    const char *answer;
} calls[] = {
#define CALL(call, sent, answer) {sent, answer},
    CALLS
#undef CALL
};

static int run(int which, gpubuf_client *c, struct gpubuf_error *e) {
    int i = 0;

#define CALL(call, sent, answer)                                                                                       \
    if (i++ == which)                                                                                                  \
        return call;
    CALLS
#undef CALL
    return -1;
}

/* Whether a header has each of the texts between |. */
static bool has_all(const char *header, const char *sent) {
    char one[256];

    for (;;) {
        size_t n = strcspn(sent, "|");

        snprintf(one, sizeof(one), "%.*s", (int)n, sent);
        if (!strstr(header, one))
            return false;
        if (sent[n] == '\0')
            return true;
        sent += n + 1;
    }
}

START_TEST(every_allocation) {
    const char *const answers[] = {calls[_i].answer, NULL};
    struct fake_server fake = {.keep = false};
    struct gpubuf_error err;
    gpubuf_client *client;
    unsigned refused = 0;
    int i;

    fake_start(&fake, answers);
    client = fake_client(&fake);
    for (i = 0; i < ALLOCATIONS; i++) {
        bool failed;
        int r;

        fake.last[0] = '\0';
        gb_allocations_here = i;
        r = run(_i, client, &err);
        failed = gb_allocations_here < 0;
        gb_allocations_here = -1;
        if (r < 0 && err.status == 409) /* the reply that the call was to get */
            r = 0;
        if (r < 0) {
            ck_assert_msg(failed, "%s: %s", err.slug, err.detail);
            ck_assert_msg(err.code == GPUBUF_NO_MEMORY || err.code >= GPUBUF_CANNOT_CONNECT, "%s: %s", err.slug,
                          err.detail);
            ck_assert_msg(err.code != GPUBUF_BAD_ARGUMENT, "allocation %d: %s", i, err.detail);
            refused++;
        }
        ck_assert_msg(fake.last[0] == '\0' || has_all(fake.last, calls[_i].sent), "allocation %d: %s", i, fake.last);
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

/* A text that is not UTF-8 is refused where it goes into JSON, and not left out. */
START_TEST(no_utf8) {
    static const char *const answers[] = {"", NULL};
    struct gpubuf_put_params params = {.dtype = "int8", .pool = "\xff", .connections = 2, .part_bytes = 1};
    struct fake_server fake = {.keep = false};
    struct {
        struct gpubuf_error err;
    } f;
    gpubuf_client *client;

    fake_start(&fake, answers);
    client = fake_client(&fake);
    client_fails(&f, gpubuf_put(client, "s", "x", gpubuf_from_memory("abc", 3), &params, NULL, &f.err),
                 GPUBUF_BAD_ARGUMENT);
    client_fails(&f, gpubuf_put(client, "s", "\xff", gpubuf_from_memory("abc", 3), &params, NULL, &f.err),
                 GPUBUF_BAD_ARGUMENT);
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
