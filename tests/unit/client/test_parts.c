/* libgpubuf: transfers in parts, and their interruption. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client_fixture.h"

#define BYTES ((size_t)3 << 20)
#define PART ((uint64_t)256 << 10)

static struct client_fixture f;
static unsigned char *data;
static unsigned char *back;

static void setup(void) {
    client_fixture_start(&f, NULL);
    data = client_bytes(BYTES);
    back = calloc(1, BYTES);
}

static void teardown(void) {
    free(data);
    free(back);
    client_fixture_stop(&f);
}

/* --- several connections ------------------------------------------------------------------------------------------ */

struct watched {
    unsigned calls;
    uint64_t last;
    uint64_t total;
    uint64_t stop_at; /* 0: never */
};

static int watch(void *arg, uint64_t done, uint64_t total) {
    struct watched *w = arg;

    ck_assert_uint_ge(done, w->last);
    w->calls++;
    w->last = done;
    w->total = total;
    return w->stop_at > 0 && done >= w->stop_at;
}

START_TEST(parallel) {
    struct watched w = {.calls = 0};
    struct gpubuf_put_params put = {
        .dtype = "uint8", .connections = 4, .part_bytes = PART, .check = true, .progress = watch, .progress_arg = &w};
    struct gpubuf_get_params get = {
        .connections = 4, .part_bytes = PART, .check = true, .progress = watch, .progress_arg = &w};
    struct gpubuf_buffer rec;
    struct gpubuf_got got;

    client_ok(&f, gpubuf_put(f.client, "default", "x", gpubuf_from_memory(data, BYTES), &put, &rec, &f.err));
    ck_assert(rec.created && rec.bytes == BYTES && rec.has_crc32c);
    ck_assert_uint_eq(w.last, BYTES);
    ck_assert_uint_eq(w.total, BYTES);
    ck_assert_uint_ge(w.calls, 2);
    client_expect(&f, "x", data, BYTES);
    memset(back, 0, BYTES);
    w = (struct watched){.calls = 0};
    client_ok(&f, gpubuf_get(f.client, "default", "x", gpubuf_to_memory(back, BYTES), &get, &got, &f.err));
    ck_assert_uint_eq(got.bytes, BYTES);
    ck_assert_uint_eq(w.last, BYTES);
    ck_assert_int_eq(memcmp(data, back, BYTES), 0);
    w = (struct watched){.calls = 0};
    client_fails(&f, gpubuf_get(f.client, "default", "x", gpubuf_to_memory(back, 10), &get, &got, &f.err),
                 GPUBUF_OUTPUT_FAILED);
    client_fails(&f, gpubuf_get(f.client, "default", "none", gpubuf_to_memory(back, 10), &get, &got, &f.err),
                 GPUBUF_BUFFER_NOT_FOUND);
    put.how.if_none_match = "*";
    w = (struct watched){.calls = 0};
    client_fails(&f, gpubuf_put(f.client, "default", "x", gpubuf_from_memory(data, BYTES), &put, &rec, &f.err),
                 GPUBUF_PRECONDITION_FAILED);
}
END_TEST

static void nothing_open(void) {
    client_ok(&f, client_ask(f.client, "GET", "/v1/sessions/default/uploads", NULL, &f.err));
    ck_assert(!client_says(f.client, "\"state\":\"open\""));
}

START_TEST(cancelled) {
    struct watched w = {.stop_at = 1};
    struct gpubuf_put_params put = {.dtype = "uint8", .part_bytes = PART, .progress = watch, .progress_arg = &w};
    struct gpubuf_get_params get = {.progress = watch, .progress_arg = &w, .part_bytes = PART};

    put.connections = _i == 0 ? 1 : 4;
    get.connections = put.connections;
    w.stop_at = 0;
    client_ok(&f, gpubuf_put(f.client, "default", "there", gpubuf_from_memory(data, BYTES), &put, NULL, &f.err));
    /* The client was interrupted beforehand: the library checks that before it sends the first byte. */
    gpubuf_interrupt(f.client);
    w = (struct watched){.calls = 0};
    client_fails(&f, gpubuf_put(f.client, "default", "x", gpubuf_from_memory(data, BYTES), &put, NULL, &f.err),
                 GPUBUF_INTERRUPTED);
    client_fails(&f, gpubuf_get(f.client, "default", "there", gpubuf_to_memory(back, BYTES), &get, NULL, &f.err),
                 GPUBUF_INTERRUPTED);
    gpubuf_resume(f.client);
    client_fails(&f, client_ask(f.client, "GET", "/v1/sessions/default/buffers/x", NULL, &f.err),
                 GPUBUF_BUFFER_NOT_FOUND);
    nothing_open();
}
END_TEST

#define ENDLESS ((uint64_t)256 << 20)

/* A progress callback that interrupts its client after some bytes and then continues slowly. */
static int64_t interrupting(void *arg, void *out, size_t size) {
    uint64_t *given = arg;

    if (*given >= BYTES) {
        gpubuf_interrupt(f.client);
        usleep(2000);
    }
    memset(out, 1, size);
    *given += size;
    return (int64_t)size;
}

START_TEST(interrupted) {
    struct gpubuf_put_params put = {.format = "raw"};
    uint64_t given = 0;

    client_fails(
        &f, gpubuf_put(f.client, "default", "x", gpubuf_from_call(interrupting, &given, ENDLESS), &put, NULL, &f.err),
        GPUBUF_INTERRUPTED);
    ck_assert_uint_ge(given, BYTES);
    ck_assert_uint_lt(given, ENDLESS);
    client_fails(&f, client_ask(f.client, "GET", "/livez", NULL, &f.err), GPUBUF_INTERRUPTED);
    gpubuf_resume(f.client);
    client_fails(&f, client_ask(f.client, "GET", "/v1/sessions/default/buffers/x", NULL, &f.err),
                 GPUBUF_BUFFER_NOT_FOUND);
    do /* the daemon notices the end of the connection a moment later */
        client_ok(&f, client_ask(f.client, "GET", "/v1/sessions/default", NULL, &f.err));
    while (client_number(f.client, "used_bytes") > 0);
}
END_TEST

/* The daemon refuses the request by its header; the library then reads nothing of the body. */
START_TEST(refused_early) {
    struct gpubuf_put_params put = {.format = "raw"};
    uint64_t given = 0;

    client_ok(&f, client_ask(f.client, "POST", "/v1/sessions", "{\"name\":\"s\",\"quota\":{\"bytes\":1000}}", &f.err));
    client_fails(&f,
                 gpubuf_put(f.client, "s", "x", gpubuf_from_call(interrupting, &given, ENDLESS), &put, NULL, &f.err),
                 GPUBUF_QUOTA_EXCEEDED);
    ck_assert_uint_eq(given, 0);
    ck_assert_int_eq(f.err.status, 507);
}
END_TEST

/* A callback that returns nonzero at its first call. */
static int never(void *arg, uint64_t done, uint64_t total) {
    (void)arg;
    (void)done;
    (void)total;
    return 1;
}

START_TEST(refused) {
    struct gpubuf_put_params put = {.dtype = "uint8", .part_bytes = PART, .progress = never};
    struct gpubuf_get_params get = {.progress = never, .part_bytes = PART};

    put.connections = _i == 0 ? 1 : 4;
    get.connections = put.connections;
    client_fails(&f, gpubuf_put(f.client, "default", "x", gpubuf_from_memory(data, BYTES), &put, NULL, &f.err),
                 GPUBUF_INTERRUPTED);
    put.progress = NULL;
    client_ok(&f, gpubuf_put(f.client, "default", "x", gpubuf_from_memory(data, BYTES), &put, NULL, &f.err));
    client_fails(&f, gpubuf_get(f.client, "default", "x", gpubuf_to_memory(back, BYTES), &get, NULL, &f.err),
                 GPUBUF_INTERRUPTED);
    nothing_open();
}
END_TEST

/* --- uploads in several requests  --------------------------------------------------------------------------------- */

/* By plain requests: the answer says how many bytes a resumable upload has. */
START_TEST(resumable) {
    static const char *const begin[] = {"Upload-Complete: ?0", "Upload-Length: 5", NULL};
    static const char *const rest[] = {"Upload-Offset: 3", "Upload-Complete: ?1",
                                       "Content-Type: application/partial-upload", NULL};
    const struct gpubuf_answer *answer = gpubuf_answer_of(f.client);
    char upload[256];

    client_ok(&f, gpubuf_request(f.client, "POST", "/v1/sessions/default/buffers/y/data", begin, "abc", 3, &f.err));
    snprintf(upload, sizeof(upload), "%s", answer->location);
    ck_assert(answer->upload_offset.set && answer->upload_offset.value == 3 && !answer->upload_complete);
    client_ok(&f, client_ask(f.client, "HEAD", upload, NULL, &f.err));
    ck_assert(answer->upload_offset.set && answer->upload_offset.value == 3 && !answer->upload_complete);
    client_ok(&f, gpubuf_request_from(f.client, "PATCH", upload, rest, gpubuf_from_memory("de", 2), &f.err));
    ck_assert(client_says(f.client, "\"name\":\"y\"") && answer->upload_complete);
    client_expect(&f, "y", (const unsigned char *)"abcde", 5);
    ck_assert(!gpubuf_answer_of(f.client)->upload_offset.set);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("client_parts");
    TCase *tcase = tcase_create("parts");

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, parallel);
    tcase_add_loop_test(tcase, cancelled, 0, 2);
    tcase_add_loop_test(tcase, refused, 0, 2);
    tcase_add_test(tcase, interrupted);
    tcase_add_test(tcase, refused_early);
    tcase_add_test(tcase, resumable);
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}
