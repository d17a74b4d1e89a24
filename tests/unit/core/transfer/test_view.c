/* Downloads and uploads of what does not lie side by side, on memory that the CPU reaches and on memory that only
 * copies reach. */
#include <stdlib.h>
#include <string.h>

#include "core_fixture.h"
#include "gb_test.h"

static const char *const specs[] = {"host:bytes=64M", "host:discrete,bytes=64M"};
#define SPECS 2

#define ROWS 3000u
#define ROW 1000u
#define FIRST 100u /* bytes of a row: */
#define TAKEN 700u

struct state {
    struct core_fixture f;
    struct gb_error err;
    unsigned char *data; /* what the buffer holds */
    unsigned char *packed;
    struct gb_view view;
};

static const struct gb_shape shape = {.dims = 2, .dim = {ROWS, ROW}};

static void begin(struct state *s, const char *spec) {
    const struct gb_axis axes[] = {{.count = ROWS, .stride = ROW}, {.count = TAKEN, .stride = 1}};
    struct gb_upload_params p = core_upload_params("default", "x", ROWS * ROW);

    memset(s, 0, sizeof(*s));
    s->err = GB_ERROR_INIT;
    s->data = malloc(ROWS * ROW);
    s->packed = malloc(ROWS * TAKEN);
    s->view = gb_view_make(FIRST, 1, axes, 2);
    ck_assert_uint_eq(s->view.bytes, ROWS * TAKEN);
    core_bytes(1, s->data, ROWS * ROW);
    core_fixture_init(&s->f, spec);
    p.buffer.shape = shape;
    gb_assert_ok(core_upload(s->f.core, &p, s->data, NULL, &s->err), s->err);
}

static void end(struct state *s) {
    gb_assert_ok(core_buffer_delete(s->f.core, "default", "x", &s->err), s->err);
    core_until_idle(&s->f);
    core_fixture_done(&s->f);
    free(s->data);
    free(s->packed);
}

static unsigned char picked(const struct state *s, uint64_t at) {
    return s->data[at / TAKEN * ROW + FIRST + at % TAKEN];
}

static struct gb_download *open_download(struct state *s, struct core_wake *wake) {
    const struct gb_name session = core_name("default");
    const struct gb_name name = core_name("x");
    struct gb_download *d = NULL;

    gb_assert_ok(gb_download_open(s->f.core, &session, &name, &session, core_waker(wake), &d, &s->err), s->err);
    return d;
}

/* The spans of the view, one after the other. */
static void read_spans(struct state *s, const struct gb_span *spans, unsigned count) {
    struct core_wake wake;
    struct gb_download *d;
    uint64_t total = 0;
    uint64_t at = 0;
    uint64_t k;
    unsigned i;

    for (i = 0; i < count; i++)
        total += spans[i].length;
    core_wake_init(&wake);
    d = open_download(s, &wake);
    gb_assert_ok(gb_download_start_view(d, &s->view, spans, count, &s->err), s->err);
    gb_assert_ok(core_download_read(d, &wake, s->packed, total, &s->err), s->err);
    gb_download_free(d, true);
    core_wake_done(&wake);
    for (i = 0; i < count; i++) {
        for (k = 0; k < spans[i].length; k++, at++) {
            if (s->packed[at] != picked(s, spans[i].first + k))
                ck_abort_msg("span %u, byte %llu", i, (unsigned long long)k);
        }
    }
}

START_TEST(views_are_read) {
    const struct gb_span all[] = {{0, ROWS * TAKEN}};
    const struct gb_span some[] = {
        {TAKEN - 1, 2}, {5, 1}, {0, 0}, {1000000, 900001}, {3 * TAKEN, TAKEN}, {ROWS * TAKEN - 300, 300},
        {TAKEN, 70000}};
    struct state s;

    begin(&s, specs[_i]);
    read_spans(&s, all, 1);
    read_spans(&s, some, sizeof(some) / sizeof(some[0]));
    end(&s);
}
END_TEST

START_TEST(views_beyond_the_bytes_are_refused) {
    const struct gb_span beyond = {.first = ROWS * TAKEN, .length = 1};
    const struct gb_span huge = {.first = 1, .length = UINT64_MAX};
    struct core_wake wake;
    struct gb_download *d;
    struct state s;

    begin(&s, specs[_i]);
    core_wake_init(&wake);
    d = open_download(&s, &wake);
    gb_assert_fails(gb_download_start_view(d, &s.view, &beyond, 1, &s.err), s.err, GB_ERR_RANGE_NOT_SATISFIABLE);
    gb_assert_fails(gb_download_start_view(d, &s.view, &huge, 1, &s.err), s.err, GB_ERR_RANGE_NOT_SATISFIABLE);
    s.view.offset += ROW - FIRST - TAKEN + 1;
    gb_assert_fails(gb_download_start_view(d, &s.view, NULL, 0, &s.err), s.err, GB_ERR_RANGE_NOT_SATISFIABLE);
    gb_download_free(d, false);
    core_wake_done(&wake);
    end(&s);
}
END_TEST

static struct gb_upload_params scatter(const struct state *s) {
    struct gb_upload_params p = core_upload_params("default", "x", s->view.bytes);

    p.partial = true;
    p.scattered = true;
    p.view = s->view;
    p.buffer.shape = shape;
    return p;
}

START_TEST(views_are_written) {
    struct gb_upload_params p;
    struct gb_buffer_rec rec;
    unsigned char *back = malloc(ROWS * ROW);
    struct state s;
    unsigned waiter;
    uint64_t i;

    begin(&s, specs[_i]);
    for (waiter = 0; waiter < 2; waiter++) {
        p = scatter(&s);
        p.in_place = waiter == 1;
        core_bytes(7 + waiter, s.packed, ROWS * TAKEN);
        gb_assert_ok(core_upload(s.f.core, &p, s.packed, &rec, &s.err), s.err);
        ck_assert_int_eq(rec.generation, waiter + 2);
        ck_assert(!rec.has_crc32c);
        for (i = 0; i < ROWS * TAKEN; i++)
            s.data[i / TAKEN * ROW + FIRST + i % TAKEN] = s.packed[i];
        gb_assert_ok(core_download(s.f.core, "default", "x", 0, ROWS * ROW, back, &s.err), s.err);
        ck_assert_int_eq(memcmp(back, s.data, ROWS * ROW), 0);
    }
    end(&s);
    free(back);
}
END_TEST

START_TEST(views_of_another_shape_are_refused) {
    struct gb_upload_params p;
    struct state s;

    begin(&s, specs[_i]);
    p = scatter(&s);
    p.buffer.shape.dim[0]++;
    gb_assert_fails(gb_upload_check(s.f.core, &p, &s.err), s.err, GB_ERR_SHAPE_MISMATCH);
    p = scatter(&s);
    p.bytes--;
    gb_assert_fails(gb_upload_check(s.f.core, &p, &s.err), s.err, GB_ERR_SHAPE_MISMATCH);
    p = scatter(&s);
    p.view.offset += ROW;
    gb_assert_fails(gb_upload_check(s.f.core, &p, &s.err), s.err, GB_ERR_SHAPE_MISMATCH);
    end(&s);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_view");

    gb_test_add_loop(suite, "read", views_are_read, 60, SPECS);
    gb_test_add_loop(suite, "beyond", views_beyond_the_bytes_are_refused, 60, SPECS);
    gb_test_add_loop(suite, "written", views_are_written, 60, SPECS);
    gb_test_add_loop(suite, "another shape", views_of_another_shape_are_refused, 60, SPECS);
    return gb_test_run(suite);
}
