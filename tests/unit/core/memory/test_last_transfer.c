/* The times of a buffer's last large transfer: kept by the bytes that it moved. */
#include <stdlib.h>

#include "device_write_fixture.h"
#include "gb_test.h"

static const char *const specs[] = {"host:bytes=64M", "host:discrete,bytes=64M"};
#define SPECS 2

#define LARGE (3 * GB_LAST_TRANSFER_BYTES)

static struct gb_last_transfer last_of(struct core_fixture *f) {
    const struct gb_locator at = {core_name("default"), core_name("x")};
    struct gb_error err = GB_ERROR_INIT;
    struct gb_last_transfer last = {.bytes = 1};

    gb_assert_ok(gb_buffer_last_transfer(f->core, &at, &last, &err), err);
    return last;
}

static void put(struct core_fixture *f, uint64_t bytes, const char *data) {
    struct gb_upload_params p = core_upload_params("default", "x", bytes);
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_rec rec;

    gb_assert_ok(core_upload(f->core, &p, data, &rec, &err), err);
}

START_TEST(the_last_large_transfer_is_known) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_last_transfer last;
    char *data = calloc(1, LARGE);

    core_fixture_init(&f, specs[_i]);
    put(&f, LARGE, data);
    last = last_of(&f);
    ck_assert_int_eq(last.direction, GB_UPLOAD);
    ck_assert_uint_eq(last.bytes, LARGE);
    ck_assert_int_gt(last.finished_at_us, 0);
    gb_assert_ok(core_download(f.core, "default", "x", 1, LARGE - 1, data, &err), err);
    last = last_of(&f);
    ck_assert_int_eq(last.direction, GB_DOWNLOAD);
    ck_assert_uint_eq(last.bytes, LARGE - 1);
    ck_assert_int_eq(last.copy_ns > 0, _i == 1); /* the CPU reaches the memory of the first */
    /* A small one tells its times in its reply. */
    gb_assert_ok(core_download(f.core, "default", "x", 0, GB_LAST_TRANSFER_BYTES - 1, data, &err), err);
    ck_assert_uint_eq(last_of(&f).bytes, LARGE - 1);
    /* Other bytes were not transferred yet. */
    put(&f, 1, data);
    ck_assert_uint_eq(last_of(&f).bytes, 0);
    core_fixture_done(&f);
    free(data);
}
END_TEST

START_TEST(a_device_write_is_no_transfer) {
    const struct gb_locator copy = {core_name("default"), core_name("y")};
    const struct gb_locator none = {core_name("default"), core_name("z")};
    struct gb_device_write_params p = core_copy_params("default", "x", "default", "y");
    struct core_result r;
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_last_transfer last = {.bytes = 1};
    char *data = calloc(1, LARGE);

    core_fixture_init(&f, specs[_i]);
    put(&f, LARGE, data);
    gb_assert_ok(core_write(f.core, &p, &r, &err), err);
    gb_assert_ok(gb_buffer_last_transfer(f.core, &copy, &last, &err), err);
    ck_assert_uint_eq(last.bytes, 0);
    gb_assert_fails(gb_buffer_last_transfer(f.core, &none, &last, &err), err, GB_ERR_BUFFER_NOT_FOUND);
    core_fixture_done(&f);
    free(data);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_last_transfer");
    TCase *tc = tcase_create("times");

    tcase_add_loop_test(tc, the_last_large_transfer_is_known, 0, SPECS);
    tcase_add_loop_test(tc, a_device_write_is_no_transfer, 0, SPECS);
    suite_add_tcase(suite, tc);
    return gb_test_run(suite);
}
