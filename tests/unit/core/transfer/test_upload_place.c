/* Writes into a part of a buffer and into its own memory, where the CPU reaches it and where only copies do. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/hash.h"
#include "base/process.h"
#include "core_fixture.h"
#include "gb_test.h"

static const struct gb_locator default_pool = {{"default"}, {"default"}};

static const char *const specs[] = {"host:bytes=64M", "host:discrete,bytes=64M"};
#define SPECS 2

#define BIG (5 * 1024 * 1024 + 12345)

START_TEST(partial_writes_merge) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_upload_params("default", "x", BIG);
    struct gb_upload *upload;
    struct gb_buffer_rec rec;
    struct core_wake w;
    char *want = malloc(BIG);
    char *back = malloc(BIG);
    struct {
        uint64_t offset;
        uint64_t bytes;
        bool in_place;
    } part[] = {{0, 5, false},      {BIG - 3, 3, false},  {777, 2000001, false}, {0, BIG, false}, {0, 5, true},
                {BIG - 3, 3, true}, {777, 2000001, true}, {0, BIG, true},        {BIG, 0, false}, {12, 0, true}};
    unsigned i;

    core_fixture_init(&f, specs[_i]);
    core_wake_init(&w);
    core_bytes(1, want, BIG);
    gb_assert_ok(core_upload(f.core, &p, want, &rec, &err), err);
    p.partial = true;
    for (i = 0; i < sizeof(part) / sizeof(part[0]); i++) {
        p.offset = part[i].offset;
        p.bytes = part[i].bytes;
        p.in_place = part[i].in_place;
        core_bytes(i + 10, want + p.offset, p.bytes);
        gb_assert_ok(core_upload(f.core, &p, want + p.offset, &rec, &err), err);
        ck_assert_int_eq(rec.generation, (int64_t)i + 2);
        ck_assert_uint_eq(rec.bytes, BIG);
        ck_assert_uint_eq(rec.shape.dim[0], BIG);
        ck_assert_int_eq(rec.state, GB_BUFFER_READY);
        ck_assert_int_eq(rec.has_crc32c, p.bytes == BIG);
        gb_assert_ok(core_download(f.core, "default", "x", 0, BIG, back, &err), err);
        ck_assert_int_eq(memcmp(want, back, BIG), 0);
    }
    p.offset = 1;
    p.bytes = BIG;
    gb_assert_fails(gb_upload_check(f.core, &p, &err), err, GB_ERR_SHAPE_MISMATCH);
    p.offset = UINT64_MAX;
    p.bytes = 2;
    gb_assert_fails(gb_upload_check(f.core, &p, &err), err, GB_ERR_SHAPE_MISMATCH);
    /* The other bytes are those at the end of the payload: a partial upload restores no old ones. */
    p.offset = 10;
    p.in_place = false;
    p.waker = core_waker(&w);
    gb_assert_ok(gb_upload_begin(f.core, &p, &upload, &err), err);
    gb_assert_ok(core_upload_send(upload, &w, "ab", 2, &err), err);
    p.offset = 20;
    gb_assert_ok(core_upload(f.core, &p, "cd", &rec, &err), err);
    memcpy(want + 20, "cd", 2);
    memcpy(want + 10, "ab", 2);
    gb_assert_ok(core_upload_finish(upload, &w, NULL, &err), err);
    gb_upload_free(upload);
    gb_assert_ok(core_download(f.core, "default", "x", 0, BIG, back, &err), err);
    ck_assert_int_eq(memcmp(want, back, BIG), 0);
    gb_assert_ok(core_buffer_delete(f.core, "default", "x", &err), err);
    core_until_idle(&f);
    core_wake_done(&w);
    core_fixture_done(&f);
    free(want);
    free(back);
}
END_TEST

static bool is_partial(void *arg) {
    struct core_fixture *f = arg;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_rec rec;

    gb_assert_ok(core_buffer_get(f->core, "default", "x", &rec, &err), err);
    return rec.state == GB_BUFFER_PARTIAL;
}

/* Checks the operations that a running in-place upload blocks. */
static void check_excluded(struct core_fixture *f, const struct gb_upload_params *p) {
    struct gb_error err = GB_ERROR_INIT;
    struct core_reading reading;

    gb_assert_fails(core_reading_open(&reading, f, "x", &err), err, GB_ERR_BUFFER_BUSY);
    gb_assert_fails(gb_upload_check(f->core, p, &err), err, GB_ERR_BUFFER_BUSY);
    gb_assert_fails(core_buffer_delete(f->core, "default", "x", &err), err, GB_ERR_BUFFER_BUSY);
}

struct ask {
    struct core_fixture *f;
    const struct gb_upload_params *p;
};

static bool permitted(void *arg) {
    struct ask *ask = arg;

    return gb_upload_check(ask->f->core, ask->p, NULL) == 0;
}

START_TEST(in_place_takes_no_memory) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_upload_params("default", "x", BIG);
    struct gb_pool_view before;
    struct gb_pool_view after;
    struct gb_upload *upload;
    struct gb_buffer_rec rec;
    struct core_reading reading;
    struct core_wake w;
    struct ask ask = {&f, &p};
    char *data = malloc(BIG);
    char *back = malloc(BIG);

    core_fixture_init(&f, specs[_i]);
    core_wake_init(&w);
    core_bytes(1, data, BIG);
    p.in_place = true; /* creates a new buffer like any other upload */
    gb_assert_ok(core_upload(f.core, &p, data, &rec, &err), err);
    gb_assert_ok(gb_pool_get(f.core, &default_pool, &before, &err), err);
    core_bytes(2, data, BIG);
    gb_assert_ok(core_upload(f.core, &p, data, &rec, &err), err);
    ck_assert_int_eq(rec.generation, 2);
    ck_assert_uint_eq(rec.crc32c, gb_crc32c(0, data, BIG));
    gb_assert_ok(gb_pool_get(f.core, &default_pool, &after, &err), err);
    ck_assert_uint_eq(before.memory.allocations, after.memory.allocations);
    ck_assert_uint_eq(after.stat.used_peak_bytes, before.stat.used_peak_bytes);
    gb_assert_ok(core_download(f.core, "default", "x", 0, BIG, back, &err), err);
    ck_assert_int_eq(memcmp(data, back, BIG), 0);

    /* A download blocks an in-place upload, and a running in-place upload blocks downloads. */
    gb_assert_ok(core_reading_open(&reading, &f, "x", &err), err);
    gb_assert_fails(gb_upload_check(f.core, &p, &err), err, GB_ERR_BUFFER_BUSY);
    gb_download_free(reading.download, false);
    p.waker = core_waker(&w);
    gb_assert_ok(gb_upload_begin(f.core, &p, &upload, &err), err);
    check_excluded(&f, &p);
    gb_upload_free(upload);
    core_until(permitted, &ask, "the buffer free again");
    gb_assert_ok(core_download(f.core, "default", "x", 0, BIG, back, &err), err);
    ck_assert_int_eq(memcmp(data, back, BIG), 0); /* nothing was written */
    p.buffer.bytes = p.bytes = BIG - 1;
    gb_assert_fails(gb_upload_check(f.core, &p, &err), err, GB_ERR_SHAPE_MISMATCH);
    core_wake_done(&w);
    core_fixture_done(&f);
    free(data);
    free(back);
}
END_TEST

START_TEST(broken_in_place_is_partial) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_upload_params("default", "x", BIG);
    struct gb_upload_params part = p;
    struct gb_upload *upload;
    struct gb_buffer_rec rec;
    struct core_reading reading;
    struct core_wake w;
    char *data = malloc(BIG);

    core_fixture_init(&f, specs[_i]);
    core_wake_init(&w);
    core_bytes(1, data, BIG);
    gb_assert_ok(core_upload(f.core, &p, data, &rec, &err), err);
    p.in_place = true;
    p.waker = core_waker(&w);
    gb_assert_ok(gb_upload_begin(f.core, &p, &upload, &err), err);
    gb_assert_ok(core_upload_send(upload, &w, data, 200000, &err), err);
    gb_upload_free(upload);
    core_until(is_partial, &f, "state partial");
    gb_assert_ok(core_buffer_get(f.core, "default", "x", &rec, &err), err);
    ck_assert_int_eq(rec.generation, 2);
    ck_assert(!rec.has_crc32c);
    gb_assert_fails(core_reading_open(&reading, &f, "x", &err), err, GB_ERR_BUFFER_PARTIAL);
    part.partial = true;
    part.offset = 1;
    part.bytes = 5;
    gb_assert_fails(gb_upload_check(f.core, &part, &err), err, GB_ERR_BUFFER_PARTIAL);
    part.in_place = true;
    gb_assert_fails(gb_upload_check(f.core, &part, &err), err, GB_ERR_BUFFER_PARTIAL);
    /* A full upload, in place or not, repairs the buffer. */
    gb_assert_ok(core_upload(f.core, &p, data, &rec, &err), err);
    ck_assert_int_eq(rec.state, GB_BUFFER_READY);
    ck_assert_int_eq(rec.generation, 3);
    gb_assert_ok(core_reading_open(&reading, &f, "x", &err), err);
    gb_download_free(reading.download, false);
    gb_assert_ok(core_buffer_delete(f.core, "default", "x", &err), err);
    core_until_idle(&f);
    core_wake_done(&w);
    core_fixture_done(&f);
    free(data);
}
END_TEST

/* A client that sends one byte has no page cleared by the thread that has its connection: neither of an upload nor of a
 * part of one. Memory that no one has written yet is under both. */
START_TEST(first_bytes_find_their_pages) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_upload_params("default", "x", BIG);
    struct gb_upload *upload;
    struct core_wake w;
    char *at;
    void *room;
    size_t n;
    int i;
    int r;

    core_fixture_init(&f, "host:bytes=64M");
    core_wake_init(&w);
    gb_assert_ok(core_buffer_create(f.core, "default", "y", BIG, 0, &err), err);
    for (i = 0; i < 2; i++) {
        p.waker = core_waker(&w);
        gb_assert_ok(gb_upload_begin(f.core, &p, &upload, &err), err);
        while ((r = gb_upload_room(upload, &room, &n, &err)) == 0)
            core_wake_wait(&w);
        ck_assert_int_eq(r, 1);
        ck_assert_uint_gt(n, 0);
        ck_assert(gb_pages_present(room, n));
        gb_upload_free(upload);
        p = core_upload_params("default", "y", 1000);
        p.partial = p.in_place = true;
        p.offset = BIG - 1000;
    }
    core_wake_done(&w);
    core_fixture_done(&f);
    /* They stay as they are, and a range need not begin with a page. */
    at = mmap(NULL, BIG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(at, MAP_FAILED);
    ck_assert(!gb_pages_present(at + 5000, BIG - 5000));
    at[70000] = 'x';
    gb_pages_make(at + 5000, BIG - 5000);
    ck_assert(gb_pages_present(at + 5000, BIG - 5000));
    ck_assert_int_eq(at[70000], 'x');
    munmap(at, BIG);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_place");

    gb_test_add_loop(suite, "partial", partial_writes_merge, 120, SPECS);
    gb_test_add_loop(suite, "in_place", in_place_takes_no_memory, 120, SPECS);
    gb_test_add_loop(suite, "in_place_broken", broken_in_place_is_partial, 120, SPECS);
    gb_test_add(suite, "pages", first_bytes_find_their_pages, 120);
    return gb_test_run(suite);
}
