/* Append uploads: broken connections, concurrent requests, takeover, and bytes before the description is complete. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "gb_test.h"
#include "multipart_fixture.h"

#define BYTES (5 * CORE_SLOT_BYTES + 1234)

static const char *const specs[] = {"host:bytes=16M", "host:discrete,bytes=16M", "host:discrete,managed=attach"};

struct fix {
    struct core_fixture f;
    struct gb_core *core;
    struct gb_error err;
    struct gb_name s;
    char data[BYTES];
    struct gb_upload_params params; /* of "x" */
    char id[GB_MULTIPART_ID_SIZE];
};

static struct fix *fix_open(const char *spec) {
    struct fix *x = calloc(1, sizeof(*x));

    core_fixture_init(&x->f, spec);
    x->core = x->f.core;
    x->err = GB_ERROR_INIT;
    x->s = core_name("default");
    core_bytes(11, x->data, BYTES);
    x->params = core_upload_params("default", "x", BYTES);
    return x;
}

static void fix_done(struct fix *x) {
    intake_fixture_done(&x->f);
    free(x);
}

static uint64_t stands(struct fix *x) {
    struct intake_result r;

    gb_assert_ok(intake_settle(x->core, x->id, &r, &x->err), x->err);
    return r.view.offset;
}

/* The connection breaks after various numbers of bytes. Every received byte is kept. */
START_TEST(broken_lines) {
    static const unsigned pieces[] = {
        0, 1, 100, CORE_SLOT_BYTES - 1, CORE_SLOT_BYTES, CORE_SLOT_BYTES + 1, 2 * CORE_SLOT_BYTES + 17, 3};
    struct fix *x = fix_open(specs[_i]);
    struct intake_result r;
    unsigned at = 0;
    unsigned i;

    if (_i == 2) {
        x->params.buffer.kind = GB_KIND_MANAGED;
        x->params.buffer.has_kind = true;
    }
    gb_assert_ok(intake_append(x->core, x->id, &x->params, 0, x->data, 10, true, &x->err), x->err);
    at = 10;
    for (i = 0; i < 8; i++) {
        ck_assert_uint_eq(stands(x), at);
        gb_assert_fails(intake_append(x->core, x->id, NULL, at + 1, x->data, 0, false, &x->err), x->err,
                        GB_ERR_UPLOAD_OFFSET_MISMATCH);
        gb_assert_ok(intake_append(x->core, x->id, NULL, at, x->data + at, pieces[i], i % 2, &x->err), x->err);
        at += pieces[i];
    }
    ck_assert_uint_eq(stands(x), at);
    gb_assert_ok(intake_append(x->core, x->id, NULL, at, x->data + at, BYTES - at, false, &x->err), x->err);
    ck_assert_uint_eq(stands(x), BYTES);
    gb_assert_ok(intake_complete(x->core, x->id, NULL, NULL, &r, &x->err), x->err);
    ck_assert(r.view.completed);
    ck_assert_uint_eq(r.view.offset, BYTES);
    ck_assert_uint_eq(r.rec.crc32c, gb_crc32c(0, x->data, BYTES));
    core_expect(x->core, "default", "x", x->data, BYTES);
    gb_assert_fails(intake_append(x->core, x->id, NULL, BYTES, x->data, 0, false, &x->err), x->err,
                    GB_ERR_UPLOAD_COMPLETED);
    fix_done(x);
}
END_TEST

START_TEST(one_at_a_time) {
    struct fix *x = fix_open(specs[_i]);
    struct gb_append *first;
    struct gb_append *second;
    struct gb_upload *part;
    struct core_call p;
    struct core_wake w;
    struct gb_multipart_view view;
    uint64_t at;
    void *room;
    size_t n;
    int r;

    core_wake_init(&w);
    gb_assert_ok(intake_append(x->core, x->id, &x->params, 0, x->data, 10, false, &x->err), x->err);
    gb_assert_ok(gb_append_open(x->core, &x->s, x->id, 10, core_waker(&w), &first, &at, &x->err), x->err);
    while ((r = gb_append_room(first, &room, &n, &x->err)) == 0)
        core_wake_wait(&w);
    ck_assert_int_eq(r, 1);
    memcpy(room, x->data + 10, 77);
    gb_assert_ok(gb_append_fill(first, 77, &x->err), x->err);
    gb_assert_fails(gb_append_open(x->core, &x->s, x->id, 10, core_waker(&w), &second, &at, &x->err), x->err,
                    GB_ERR_UPLOAD_BUSY);
    gb_assert_fails(gb_multipart_part(x->core, &x->s, x->id, 10, 1, false, core_waker(&w), &part, &x->err), x->err,
                    GB_ERR_UPLOAD_WRONG_KIND);
    intake_get(x->core, x->id, &view);
    ck_assert_uint_eq(view.offset, 10);
    ck_assert_uint_eq(view.running, 1);
    /* A request for the offset ends the running append. */
    core_call_begin(&p);
    gb_multipart_drain(x->core, &x->s, x->id, p.call.multipart);
    ck_assert(!core_call_over(&p));
    core_wake_wait(&w);
    gb_assert_fails(gb_append_room(first, &room, &n, &x->err), x->err, GB_ERR_UPLOAD_BUSY);
    gb_append_free(first, false);
    core_wake_wait(&p.wake);
    ck_assert(core_call_over(&p));
    ck_assert_uint_eq(p.call.multipart->multipart.offset, 87);
    gb_call_unref(p.call.base);
    gb_assert_ok(intake_append(x->core, x->id, NULL, 87, x->data + 87, BYTES - 87, false, &x->err), x->err);
    gb_assert_ok(intake_complete(x->core, x->id, NULL, NULL, NULL, &x->err), x->err);
    core_expect(x->core, "default", "x", x->data, BYTES);
    core_wake_done(&p.wake);
    core_wake_done(&w);
    fix_done(x);
}
END_TEST

/* An append beyond the upload's size is refused. */
START_TEST(too_much) {
    struct fix *x = fix_open(specs[_i]);

    gb_assert_ok(intake_append(x->core, x->id, &x->params, 0, x->data, BYTES - 1, false, &x->err), x->err);
    gb_assert_fails(intake_append(x->core, x->id, NULL, BYTES - 1, x->data + BYTES - 2, 2, false, &x->err), x->err,
                    GB_ERR_BODY_TOO_LARGE);
    ck_assert_uint_eq(stands(x), BYTES);
    gb_assert_ok(intake_delete(x->core, x->id, &x->err), x->err);
    fix_done(x);
}
END_TEST

static struct gb_append *open_at(struct fix *x, uint64_t offset, struct core_wake *w) {
    struct gb_append *a;
    uint64_t at;

    gb_assert_ok(gb_append_open(x->core, &x->s, x->id, offset, core_waker(w), &a, &at, &x->err), x->err);
    return a;
}

static void header(struct fix *x, struct gb_append *a, size_t want, const char *data, size_t n) {
    void *room;
    size_t size;

    while (n > 0) {
        ck_assert_int_eq(gb_append_header_room(a, want, &room, &size, &x->err), 1);
        if (size > n)
            size = n;
        memcpy(room, data, size);
        gb_append_header_fill(a, size);
        data += size;
        n -= size;
    }
}

/* Twelve bytes, of which `skip` are no payload, come one by one over connections that break. */
START_TEST(what_comes_first_is_kept) {
    struct fix *x = fix_open(specs[_i % 3]);
    uint64_t skip = _i < 3 ? 0 : 12;
    struct intake_result r;
    struct gb_append *a;
    struct core_wake w;
    struct gb_upload_params p = core_upload_params("default", "x", BYTES);
    struct gb_multipart_view view;
    uint64_t length = BYTES;
    size_t n;
    unsigned i;

    core_wake_init(&w);
    gb_assert_ok(gb_append_new(x->core, &p, &length, malloc(3), free, core_waker(&w), &a, &x->err), x->err);
    gb_append_view(a, &view);
    memcpy(x->id, view.id, sizeof(x->id));
    ck_assert(!view.has_bytes);
    gb_append_free(a, false);
    for (i = 0; i < 12; i++) {
        ck_assert_uint_eq(stands(x), i);
        a = open_at(x, i, &w);
        ck_assert(!gb_append_described(a));
        gb_assert_fails(gb_append_length(a, BYTES + 1, &x->err), x->err, GB_ERR_UPLOAD_LENGTH_MISMATCH);
        header(x, a, 12, x->data + i, 1);
        gb_append_free(a, false);
    }
    gb_assert_ok(intake_complete(x->core, x->id, NULL, NULL, &r, &x->err), x->err);
    ck_assert(!r.view.completed && !r.view.has_bytes);
    a = open_at(x, 12, &w);
    ck_assert_int_eq(memcmp(gb_append_header(a, &n), x->data, 12), 0);
    ck_assert_uint_eq(n, 12);
    x->params.bytes = x->params.buffer.bytes = x->params.buffer.shape.dim[0] = BYTES - skip;
    gb_assert_ok(gb_append_describe(a, &x->params, skip, &x->err), x->err);
    gb_append_free(a, false); /* before any payload is copied to its place */
    ck_assert_uint_eq(stands(x), 12);
    gb_assert_ok(intake_append(x->core, x->id, NULL, 12, x->data + 12, 5, true, &x->err), x->err);
    ck_assert_uint_eq(stands(x), 17);
    gb_assert_ok(intake_append(x->core, x->id, NULL, 17, x->data + 17, BYTES - 17, false, &x->err), x->err);
    gb_assert_ok(intake_complete(x->core, x->id, NULL, NULL, &r, &x->err), x->err);
    core_expect(x->core, "default", "x", x->data + skip, BYTES - skip);
    core_wake_done(&w);
    fix_done(x);
}
END_TEST

static void discard(struct gb_append *a, struct core_wake *w) {
    gb_append_discard(a);
    while (!gb_append_discarded(a))
        core_wake_wait(w);
    gb_append_free(a, false);
}

/* Appends that count as a whole, and are taken back at each point: within the header prefix, with a description by
 * their bytes, while there is memory for none of them, and within the payload. The next one finds nothing of them. */
START_TEST(taken_back) {
    struct fix *x = fix_open(specs[_i]);
    struct gb_upload_params p = core_upload_params("default", "x", BYTES);
    struct gb_session_view session;
    struct gb_multipart_view view;
    struct intake_result r;
    struct gb_append *a;
    struct core_wake w;
    unsigned i;
    void *room;
    size_t n;
    int got;

    core_wake_init(&w);
    gb_assert_ok(gb_append_new(x->core, &p, NULL, malloc(3), free, core_waker(&w), &a, &x->err), x->err);
    gb_append_view(a, &view);
    memcpy(x->id, view.id, sizeof(x->id));
    header(x, a, 12, x->data, 5);
    gb_append_free(a, false);
    for (i = 0; i < 4; i++) {
        a = open_at(x, 5, &w);
        gb_append_whole(a);
        header(x, a, 12, "another", i == 0 ? 3 : 7);
        gb_assert_ok(gb_append_length(a, 77 + i, &x->err), x->err);
        x->params.bytes = x->params.buffer.bytes = x->params.buffer.shape.dim[0] = 1000 * (i + 1);
        if (i > 0)
            gb_assert_ok(gb_append_describe(a, &x->params, 0, &x->err), x->err);
        while (i > 1 && (got = gb_append_room(a, &room, &n, &x->err)) <= 0) {
            gb_assert_ok(got, x->err);
            core_wake_wait(&w);
        }
        if (i == 3)
            gb_assert_ok(gb_append_fill(a, n, &x->err), x->err);
        discard(a, &w);
        gb_assert_fails(gb_append_open(x->core, &x->s, x->id, 12, core_waker(&w), &a, &(uint64_t){0}, &x->err), x->err,
                        GB_ERR_UPLOAD_OFFSET_MISMATCH);
        a = open_at(x, 5, &w);
        gb_append_view(a, &view);
        ck_assert(!view.has_bytes && !view.has_length && !gb_append_described(a));
        gb_append_free(a, false);
        gb_assert_ok(gb_session_get(x->core, &x->s, &session, &x->err), x->err);
        ck_assert_uint_eq(session.used_bytes, 0);
    }
    a = open_at(x, 5, &w);
    header(x, a, 12, x->data + 5, 7);
    x->params.bytes = x->params.buffer.bytes = x->params.buffer.shape.dim[0] = BYTES;
    gb_assert_ok(gb_append_describe(a, &x->params, 0, &x->err), x->err);
    gb_append_free(a, false);
    for (i = 0; i < 2; i++) {
        a = open_at(x, 12, &w);
        gb_append_whole(a);
        while ((got = gb_append_room(a, &room, &n, &x->err)) == 0)
            core_wake_wait(&w);
        ck_assert_int_eq(got, 1);
        memset(room, 'x', n);
        gb_assert_ok(gb_append_fill(a, n, &x->err), x->err);
        if (i == 0)
            discard(a, &w);
    }
    gb_append_discard(a);
    gb_append_free(a, false); /* without a word, as when the connection breaks */
    ck_assert_uint_eq(stands(x), 12);
    gb_assert_ok(intake_append(x->core, x->id, NULL, 12, x->data + 12, BYTES - 12, false, &x->err), x->err);
    gb_assert_ok(intake_complete(x->core, x->id, NULL, NULL, &r, &x->err), x->err);
    core_expect(x->core, "default", "x", x->data, BYTES);
    core_wake_done(&w);
    fix_done(x);
}
END_TEST

START_TEST(mirrored) {
    struct fix *x = fix_open(specs[_i]);
    struct gb_upload_params put = x->params;
    struct intake_result r;

    put.buffer.mirrored = put.buffer.has_mirrored = true;
    core_put(x->core, &put, 8, NULL);
    gb_assert_ok(intake_append(x->core, x->id, &x->params, 0, x->data, 100, true, &x->err), x->err);
    core_bytes(8, x->data, BYTES);
    core_expect(x->core, "default", "x", x->data, BYTES);
    core_bytes(11, x->data, BYTES);
    ck_assert_uint_eq(stands(x), 100);
    gb_assert_ok(intake_append(x->core, x->id, NULL, 100, x->data + 100, BYTES - 100, false, &x->err), x->err);
    gb_assert_ok(intake_complete(x->core, x->id, NULL, NULL, &r, &x->err), x->err);
    ck_assert(r.rec.mirrored);
    ck_assert_int_eq(r.rec.head, GB_HEAD_HOST);
    core_expect(x->core, "default", "x", x->data, BYTES);
    fix_done(x);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core: uploads that are appended to");

    gb_test_add_loop(suite, "broken lines", broken_lines, 60, 3);
    gb_test_add_loop(suite, "one at a time", one_at_a_time, 60, 2);
    gb_test_add_loop(suite, "too much", too_much, 60, 2);
    gb_test_add_loop(suite, "lead", what_comes_first_is_kept, 60, 6);
    gb_test_add_loop(suite, "taken back", taken_back, 60, 2);
    gb_test_add_loop(suite, "mirrored", mirrored, 60, 2);
    return gb_test_run(suite);
}
