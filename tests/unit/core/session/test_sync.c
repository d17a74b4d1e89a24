/* What a synchronization of a stream, session, device or event does to the memory that was freed before it. */
#include <stdlib.h>

#include "core_pools.h"
#include "gb_test.h"

#define MIB (1u << 20)
#define BYTES (33 * MIB) /* more than a segment of the pool */

static const char *const specs[] = {"host:bytes=256M", "host:discrete,bytes=256M"};

enum sync { OF_STREAM, OF_SESSION, OF_DEVICE, OF_EVENT, OF_NOTHING, SYNCS };

static void synchronize(struct core_fixture *f, enum sync sync) {
    struct gb_error err = GB_ERROR_INIT;

    if (sync == OF_STREAM)
        gb_assert_ok(core_stream_sync(f->core, "default", "a", &err), err);
    else if (sync == OF_SESSION)
        gb_assert_ok(core_session_sync(f->core, "default", &err), err);
    else if (sync == OF_DEVICE)
        gb_assert_ok(core_device_sync(f->core, 0, &err), err);
    else if (sync == OF_EVENT)
        gb_assert_ok(core_event_sync(f->core, "default", "e", NULL, &err), err);
}

/* A pool without policies, and streams a and b. */
static void prepare(struct core_fixture *f, const char *spec, const struct gb_pool_config *config) {
    struct gb_pool_params p = core_pool_params("default", "p", 0, 0);
    struct gb_error err = GB_ERROR_INIT;

    core_fixture_init(f, spec);
    p.rec.config = *config;
    p.given.release_threshold_bytes = p.given.follow_event_dependencies = p.given.allow_opportunistic =
        p.given.allow_internal_dependencies = true;
    gb_assert_ok(core_pool_make(f->core, &p, NULL, &err), err);
    gb_assert_ok(core_stream_make(f->core, "default", "a", &err), err);
    gb_assert_ok(core_stream_make(f->core, "default", "b", &err), err);
    gb_assert_ok(core_event_make(f->core, "default", "e", &err), err);
}

static void put(struct core_fixture *f, const char *name, const char *stream) {
    struct gb_error err = GB_ERROR_INIT;
    char *data = calloc(1, BYTES);

    gb_assert_ok(core_upload_on(f->core, "default", name, stream, "p", data, BYTES, &err), err);
    free(data);
}

static void put_and_delete(struct core_fixture *f, const char *stream) {
    struct gb_error err = GB_ERROR_INIT;

    put(f, "x", stream);
    gb_assert_ok(core_buffer_delete(f->core, "default", "x", &err), err);
    gb_assert_ok(core_event_record(f->core, "default", "e", stream, &err), err);
}

/* A larger reservation shows that the other stream got other memory. */
START_TEST(freed_memory_is_for_every_stream) {
    enum sync sync = (enum sync)(_i % SYNCS);
    struct gb_pool_config config = {.release_threshold_bytes = GB_UNLIMITED};
    struct core_fixture f;
    uint64_t reserved;

    prepare(&f, specs[_i / SYNCS], &config);
    put_and_delete(&f, "a");
    reserved = core_pool_look(&f, "default", "p").stat.reserved_bytes;
    synchronize(&f, sync);
    put(&f, "y", "b");
    if (sync == OF_NOTHING)
        ck_assert_uint_gt(core_pool_look(&f, "default", "p").stat.reserved_bytes, reserved);
    else
        ck_assert_uint_eq(core_pool_look(&f, "default", "p").stat.reserved_bytes, reserved);
    core_fixture_done(&f);
}
END_TEST

/* The numbers are those that the call's end finds: no housekeeper comes meanwhile. */
START_TEST(memory_above_the_threshold_is_back_when_the_call_ends) {
    enum sync sync = (enum sync)(_i % OF_NOTHING);
    struct gb_pool_config config = {.release_threshold_bytes = 0};
    struct core_fixture f;
    struct gb_pool_stat stat;

    prepare(&f, specs[_i / OF_NOTHING], &config);
    put_and_delete(&f, "a");
    synchronize(&f, sync);
    stat = core_pool_look(&f, "default", "p").stat;
    ck_assert_uint_eq(stat.reserved_bytes, 0);
    ck_assert_uint_eq(stat.used_bytes, 0);
    core_fixture_done(&f);
}
END_TEST

START_TEST(a_device_that_cannot_be_synchronized) {
    struct gb_pool_config config = {.release_threshold_bytes = 0};
    struct gb_error err = GB_ERROR_INIT;
    struct core_fixture f;

    prepare(&f, "fault:event_sync@1=cudaErrorInvalidValue:host:bytes=256M", &config);
    put_and_delete(&f, "a");
    gb_assert_fails(core_stream_sync(f.core, "default", "a", &err), err, GB_ERR_DEVICE_ERROR);
    gb_assert_ok(core_stream_sync(f.core, "default", "a", &err), err);
    core_until_idle(&f);
    core_fixture_done(&f);
}
END_TEST

/* What is freed behind the record is not covered: another stream gets other memory. */
START_TEST(an_event_covers_what_was_freed_before_its_record) {
    struct gb_pool_config config = {.release_threshold_bytes = GB_UNLIMITED};
    struct gb_error err = GB_ERROR_INIT;
    struct core_fixture f;
    uint64_t reserved;

    prepare(&f, specs[_i], &config);
    gb_assert_ok(core_event_record(f.core, "default", "e", "a", &err), err);
    put(&f, "x", "a");
    gb_assert_ok(core_buffer_delete(f.core, "default", "x", &err), err);
    reserved = core_pool_look(&f, "default", "p").stat.reserved_bytes;
    gb_assert_ok(core_event_sync(f.core, "default", "e", NULL, &err), err);
    put(&f, "y", "b");
    if (core_on_host(&f)) /* CUDA may find the later free done as well */
        ck_assert_uint_gt(core_pool_look(&f, "default", "p").stat.reserved_bytes, reserved);
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_sync");
    TCase *tc = tcase_create("sync");

    tcase_add_loop_test(tc, freed_memory_is_for_every_stream, 0, 2 * SYNCS);
    tcase_add_loop_test(tc, memory_above_the_threshold_is_back_when_the_call_ends, 0, 2 * OF_NOTHING);
    tcase_add_test(tc, a_device_that_cannot_be_synchronized);
    tcase_add_loop_test(tc, an_event_covers_what_was_freed_before_its_record, 0, 2);
    tcase_set_timeout(tc, 60);
    suite_add_tcase(suite, tc);
    return gb_test_run(suite);
}
