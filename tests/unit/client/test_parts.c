/* libgpubuf: transfers in parts, and their interruption. */
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
    struct gpubuf_upload_list open;
    size_t i;

    client_ok(&f, gpubuf_upload_list(f.client, "default", NULL, &open, &f.err));
    for (i = 0; i < open.count; i++)
        ck_assert_str_eq(open.items[i].state, "completed");
    gpubuf_upload_list_done(&open);
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
    client_fails(&f, gpubuf_buffer_get(f.client, "default", "x", false, NULL, NULL, &f.err), GPUBUF_BUFFER_NOT_FOUND);
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
    struct gpubuf_stats stats;
    uint64_t given = 0;

    client_fails(
        &f, gpubuf_put(f.client, "default", "x", gpubuf_from_call(interrupting, &given, ENDLESS), &put, NULL, &f.err),
        GPUBUF_INTERRUPTED);
    ck_assert_uint_ge(given, BYTES);
    ck_assert_uint_lt(given, ENDLESS);
    client_fails(&f, gpubuf_live(f.client, &f.err), GPUBUF_INTERRUPTED);
    gpubuf_resume(f.client);
    client_fails(&f, gpubuf_buffer_get(f.client, "default", "x", false, NULL, NULL, &f.err), GPUBUF_BUFFER_NOT_FOUND);
    do /* the daemon notices the end of the connection a moment later */
        client_ok(&f, gpubuf_stats_get(f.client, NULL, &stats, &f.err));
    while (stats.uploads_running > 0);
    ck_assert_uint_eq(stats.buffer_bytes, 0);
}
END_TEST

/* The daemon refuses the request by its header; the library then reads nothing of the body. */
START_TEST(refused_early) {
    struct gpubuf_session_params params = {.quota_bytes = gpubuf_some(1000)};
    struct gpubuf_put_params put = {.format = "raw"};
    uint64_t given = 0;

    client_ok(&f, gpubuf_session_create(f.client, "s", &params, NULL, NULL, &f.err));
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

START_TEST(uploads) {
    struct gpubuf_buffer_params what = {.bytes = gpubuf_some(10)};
    struct gpubuf_opt none = {.set = false};
    struct gpubuf_upload upload;
    struct gpubuf_buffer rec;
    struct gpubuf_part part;
    char id[GPUBUF_ID_SIZE];
    uint64_t offset = 0;
    bool complete = true;

    client_ok(&f, gpubuf_upload_create(f.client, "default", "x", &what, NULL, &upload, &f.err));
    client_ok(&f,
              gpubuf_upload_part(f.client, "default", upload.id, 4, false, gpubuf_from_memory(data, 6), &part, &f.err));
    ck_assert_uint_eq(part.bytes, 6);
    client_fails(&f, gpubuf_upload_complete(f.client, "default", upload.id, none, NULL, &rec, &f.err),
                 GPUBUF_UPLOAD_INCOMPLETE);
    client_ok(&f, gpubuf_upload_get(f.client, "default", upload.id, &upload, &f.err));
    ck_assert_uint_eq(upload.missing_count, 1);
    ck_assert_uint_eq(upload.missing[0].bytes, 4);
    client_ok(
        &f, gpubuf_upload_part(f.client, "default", upload.id, 0, false, gpubuf_from_memory("head", 4), NULL, &f.err));
    client_ok(&f, gpubuf_upload_complete(f.client, "default", upload.id, none, NULL, &rec, &f.err));
    ck_assert_uint_eq(rec.bytes, 10);
    client_ok(&f, gpubuf_upload_begin(f.client, "default", "y", gpubuf_from_memory("abc", 3), 5, NULL, id, &f.err));
    client_ok(&f, gpubuf_upload_offset(f.client, "default", id, &offset, &complete, &f.err));
    ck_assert_uint_eq(offset, 3);
    ck_assert(!complete);
    client_ok(&f, gpubuf_upload_append(f.client, "default", id, 3, true, gpubuf_from_memory("de", 2), &rec, &f.err));
    ck_assert_str_eq(rec.name, "y");
    client_ok(&f, gpubuf_upload_create(f.client, "default", "z", &what, NULL, &upload, &f.err));
    client_ok(&f, gpubuf_upload_delete(f.client, "default", upload.id, &f.err));
    client_fails(&f, gpubuf_upload_offset(f.client, "default", upload.id, &offset, &complete, &f.err),
                 GPUBUF_UPLOAD_NOT_FOUND);
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
    tcase_add_test(tcase, uploads);
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}
