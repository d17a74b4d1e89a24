/* Scrubs: files that are damaged are found, and written again if memory has the bytes. */
#include <glob.h>
#include <stdio.h>

#include "durable_fixture.h"
#include "gb_test.h"

#define LARGE DURABLE_LARGE
#define FAST (1ull << 40)

static void damage(struct core_fixture *f, long at) {
    char path[192];
    FILE *file;
    int byte;

    durable_find_file(f, path, sizeof(path));
    file = fopen(path, "r+b");
    ck_assert(file && fseek(file, at, SEEK_SET) == 0);
    byte = fgetc(file);
    ck_assert(fseek(file, at, SEEK_SET) == 0 && fputc(byte ^ 1, file) != EOF && fclose(file) == 0);
}

static struct gb_scrub_pass scrub(struct core_fixture *f, struct gb_error *err) {
    struct gb_scrub_pass pass;
    struct gb_scrub_call *call;
    struct core_wake wake;

    core_wake_init(&wake);
    call = gb_call_new(sizeof(*call), core_wake, &wake);
    gb_storage_scrub(f->core, FAST, call);
    core_wake_wait(&wake);
    pass = call->pass;
    *err = call->base.error;
    gb_call_unref(&call->base);
    core_wake_done(&wake);
    return pass;
}

static void check_pass(struct core_fixture *f, uint64_t files, uint64_t damaged, uint64_t healed) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_scrub_pass pass = scrub(f, &err);

    gb_assert_ok(err.code == GB_OK ? 0 : -1, err);
    ck_assert_uint_eq(pass.files, files);
    ck_assert_uint_eq(pass.damaged, damaged);
    ck_assert_uint_eq(pass.healed, healed);
    ck_assert_uint_eq(pass.skipped, 0);
}

/* --- healing ------------------------------------------------------------------------------------------------------ */

static bool has_one_file(void *arg) {
    struct core_fixture *f = arg;
    char pattern[128];
    glob_t found;
    bool one;

    snprintf(pattern, sizeof(pattern), "%s/data/[0-9a-f][0-9a-f]/*", f->store.dir);
    one = glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc == 1;
    globfree(&found);
    return one;
}

static void check_heal(const char *spec, enum gb_durability durability, long at) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_rec before;
    struct gb_buffer_rec after;
    struct core_fixture f;

    durable_open(&f, spec);
    durable_put_ok(&f, "x", 1, LARGE, durability);
    if (durability == GB_DURABILITY_BEHIND)
        gb_assert_ok(durable_do(&f, gb_buffer_store, "x", NULL, &err), err);
    before = durable_get(&f, "x");
    check_pass(&f, 1, 0, 0);
    damage(&f, at);
    check_pass(&f, 1, 1, 1);
    core_until(has_one_file, &f, "the damaged file is set aside");
    check_pass(&f, 1, 0, 0);
    after = durable_get(&f, "x");
    ck_assert_int_eq(after.generation, before.generation);
    ck_assert_int_eq(after.stored_generation, before.generation);
    ck_assert_int_eq(after.version, before.version);
    ck_assert_int_eq(after.run, before.run);
    core_fixture_close(&f);
    core_fixture_open(&f);
    ck_assert_int_eq(durable_get(&f, "x").run, before.run);
    durable_assert_bytes(&f, "x", 1, LARGE); /* from the disk */
    core_fixture_done(&f);
}

START_TEST(test_heal) {
    check_heal("host", GB_DURABILITY_SYNC, 4096);
    check_heal("host", GB_DURABILITY_BEHIND, 4096 + 1024 * 1024);
    check_heal("host:discrete", GB_DURABILITY_SYNC, 4096 + LARGE - 1);
    check_heal("host:discrete", GB_DURABILITY_BEHIND, 60);
}
END_TEST

static bool is_ready(void *arg) {
    return durable_get(arg, "x").state == GB_BUFFER_READY;
}

/* A buffer that is not durable is loaded again; its spilled file counts until it is found to be damaged. */
START_TEST(test_heal_spilled) {
    struct gb_error err = GB_ERROR_INIT;
    struct core_fixture f;

    durable_open(&f, "host:discrete");
    durable_put_ok(&f, "x", 1, LARGE, GB_DURABILITY_NONE);
    gb_assert_ok(durable_do(&f, gb_buffer_evict, "x", NULL, &err), err);
    durable_assert_bytes(&f, "x", 1, LARGE);
    durable_assert_bytes(&f, "x", 1, LARGE); /* the second within a minute has it loaded */
    core_until(is_ready, &f, "it is loaded");
    damage(&f, 4096 + 7);
    check_pass(&f, 1, 1, 1);
    gb_assert_ok(durable_do(&f, gb_buffer_evict, "x", NULL, &err), err);
    ck_assert_int_eq(durable_get(&f, "x").state, GB_BUFFER_STORED);
    durable_assert_bytes(&f, "x", 1, LARGE);
    core_fixture_done(&f);
}
END_TEST

START_TEST(test_not_in_memory) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_storage_numbers numbers;
    struct gb_scrub_numbers scrubbed;
    struct core_fixture f;

    durable_open(&f, "host");
    durable_put_ok(&f, "x", 1, LARGE, GB_DURABILITY_SYNC);
    gb_assert_ok(durable_do(&f, gb_buffer_evict, "x", NULL, &err), err);
    damage(&f, 4096);
    check_pass(&f, 1, 1, 0);
    check_pass(&f, 1, 1, 0);
    gb_assert_ok(durable_do(&f, gb_buffer_evict, "x", NULL, &err), err); /* again: nothing to do */
    ck_assert_int_eq(durable_get(&f, "x").state, GB_BUFFER_STORED);
    gb_scrub_stat(f.core, &scrubbed);
    ck_assert(scrubbed.known && !scrubbed.running && scrubbed.last_ended_us >= scrubbed.pass.began_us);
    ck_assert_uint_eq(scrubbed.damaged, 2);
    ck_assert_uint_eq(scrubbed.healed, 0);
    gb_storage_stat(f.core, &numbers);
    ck_assert_uint_eq(numbers.disk.damaged, 1);
    core_fixture_done(&f);
}
END_TEST

/* A file that is damaged and cannot be written again: the bytes do not leave memory without being stored again. */
START_TEST(test_store_writes_again) {
    struct gb_error err = GB_ERROR_INIT;
    struct core_fixture f;
    bool wrote;

    core_fixture_prepare(&f, "host");
    f.durable = true;
    f.disk_faults = "create@2=ENOSPC";
    core_fixture_open(&f);
    durable_put_ok(&f, "x", 1, LARGE, GB_DURABILITY_SYNC);
    gb_assert_ok(durable_do(&f, gb_buffer_store, "x", &wrote, &err), err);
    ck_assert(!wrote);
    damage(&f, 4096);
    check_pass(&f, 1, 1, 0);
    gb_assert_ok(durable_do(&f, gb_buffer_store, "x", &wrote, &err), err);
    ck_assert(wrote);
    check_pass(&f, 1, 0, 0);
    core_fixture_close(&f);
    core_fixture_open(&f);
    durable_assert_bytes(&f, "x", 1, LARGE);
    core_fixture_done(&f);
}
END_TEST

/* --- passes ------------------------------------------------------------------------------------------------------- */

static struct gb_scrub_call *start_slowly(struct core_fixture *f, struct core_wake *wake) {
    struct gb_scrub_call *call = gb_call_new(sizeof(*call), core_wake, wake);
    struct gb_scrub_numbers numbers;

    gb_storage_scrub(f->core, 1, call);
    gb_scrub_stat(f->core, &numbers);
    ck_assert(numbers.running);
    return call;
}

START_TEST(test_joined) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_scrub_call *call;
    struct core_fixture f;
    struct core_wake wake;

    durable_open(&f, "host");
    durable_put_ok(&f, "x", 1, LARGE, GB_DURABILITY_SYNC);
    core_wake_init(&wake);
    call = start_slowly(&f, &wake);
    ck_assert_uint_eq(scrub(&f, &err).files, 1); /* the same pass, faster */
    core_wake_wait(&wake);
    ck_assert_uint_eq(call->pass.files, 1);
    ck_assert_uint_eq(call->pass.bytes, LARGE);
    gb_call_unref(&call->base);
    core_wake_done(&wake);
    core_fixture_done(&f);
}
END_TEST

START_TEST(test_stopped) {
    struct gb_scrub_call *call;
    struct core_fixture f;
    struct core_wake wake;

    durable_open(&f, "host");
    durable_put_ok(&f, "x", 1, LARGE, GB_DURABILITY_SYNC);
    core_wake_init(&wake);
    call = start_slowly(&f, &wake);
    core_fixture_close(&f);
    core_wake_wait(&wake);
    ck_assert_int_eq(call->base.error.code, GB_ERR_DRAINING);
    gb_call_unref(&call->base);
    core_wake_done(&wake);
    core_fixture_open(&f);
    durable_assert_bytes(&f, "x", 1, LARGE);
    core_fixture_done(&f);
}
END_TEST

START_TEST(test_refused) {
    struct gb_error err = GB_ERROR_INIT;
    struct core_fixture f;

    core_fixture_init(&f, "host");
    scrub(&f, &err);
    ck_assert_int_eq(err.code, GB_ERR_UNSUPPORTED);
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scrub");

    gb_test_add(suite, "heal", test_heal, 60);
    gb_test_add(suite, "heal spilled bytes", test_heal_spilled, 60);
    gb_test_add(suite, "not in memory", test_not_in_memory, 60);
    gb_test_add(suite, "store writes again", test_store_writes_again, 60);
    gb_test_add(suite, "joined", test_joined, 60);
    gb_test_add(suite, "stopped", test_stopped, 60);
    gb_test_add(suite, "refused", test_refused, 60);
    return gb_test_run(suite);
}
