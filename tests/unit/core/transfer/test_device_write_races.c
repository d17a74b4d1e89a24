/* Copies and fills: what happens meanwhile to source, destination and readers; many at once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device_write_fixture.h"
#include "gb_test.h"

static const char *const specs[] = {"host:bytes=64M", "host:discrete,bytes=64M", "host:devices=2,bytes=64M"};
#define SPECS 3

#define BYTES (3 * CORE_SLOT_BYTES + 123)

/* While the destination's stream is held back. */
START_TEST(the_source_is_held) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_device_write_params p = core_copy_params("default", "a", "other", "b");
    struct core_call pending[3];
    struct core_result r;
    struct core_gate gate;
    char *a = malloc(BYTES);
    int i;

    core_open_two(&f, specs[_i]);
    core_put_bytes(&f, "default", "a", BYTES, 1, a);
    core_put_bytes(&f, "other", "c", 100, 2, NULL);
    core_gate_close(&gate, &f, "other");
    for (i = 0; i < 2; i++) {
        core_call_begin(&pending[i]);
        p.name = core_name(i == 0 ? "a" : "b");
        gb_buffer_write(f.core, &p, pending[i].call.buffer);
    }
    /* The source's session does not wait. */
    core_put_bytes(&f, "default", "a", BYTES, 3, NULL);
    gb_assert_ok(core_buffer_delete(f.core, "default", "a", &err), err);
    core_put_bytes(&f, "default", "a", 77, 4, NULL);
    core_call_begin(&pending[2]);
    p = core_copy_params("default", "a", "other", "c");
    p.in_place = true;
    gb_buffer_write(f.core, &p, pending[2].call.buffer);
    gb_assert_fails(core_buffer_delete_on(f.core, "other", "c", "side", &err), err, GB_ERR_BUFFER_BUSY);
    for (i = 0; i < 3; i++)
        ck_assert(!core_call_over(&pending[i]));
    core_gate_open(&gate);
    for (i = 0; i < 3; i++)
        gb_assert_ok(core_result_end(&pending[i], &r, &err), err);
    core_expect(f.core, "other", "a", a, BYTES);
    core_expect(f.core, "other", "b", a, BYTES);
    core_bytes(4, a, 77);
    {
        char *c = malloc(100);

        core_bytes(2, c, 100);
        memcpy(c, a, 77);
        core_expect(f.core, "other", "c", c, 100);
        free(c);
    }
    core_tidy(&f);
    core_fixture_done(&f);
    free(a);
}
END_TEST

/* What is built upon bytes that changed meanwhile does not bring them back; what replaces all of them does not mind. */
START_TEST(the_destination_changes) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_device_write_params p = core_copy_params("default", "a", "other", "b");
    struct gb_session_params retry = {.name = core_name("other")};
    struct core_call part;
    struct core_call all;
    struct core_result r;
    struct core_gate gate;
    char *a = malloc(1000);

    core_open_two(&f, specs[_i]);
    core_put_bytes(&f, "default", "a", 1000, 1, a);
    core_put_bytes(&f, "other", "b", 2000, 2, NULL);
    core_put_bytes(&f, "other", "c", 1000, 3, NULL);
    core_gate_close(&gate, &f, "other");
    core_call_begin(&part);
    gb_buffer_write(f.core, &p, part.call.buffer);
    core_call_begin(&all);
    p.name = core_name("c");
    gb_buffer_write(f.core, &p, all.call.buffer);
    gb_assert_ok(core_buffer_delete_on(f.core, "other", "b", "side", &err), err);
    gb_assert_ok(core_buffer_delete_on(f.core, "other", "c", "side", &err), err);
    core_gate_open(&gate);
    gb_assert_fails(core_result_end(&part, &r, &err), err, GB_ERR_BUFFER_NOT_FOUND);
    gb_assert_fails(core_result_end(&all, &r, &err), err, GB_ERR_BUFFER_NOT_FOUND);
    /* With its whole session. */
    core_put_bytes(&f, "other", "c", 1000, 3, NULL);
    core_gate_close(&gate, &f, "other");
    core_call_begin(&all);
    gb_buffer_write(f.core, &p, all.call.buffer);
    gb_assert_ok(core_session_delete(f.core, "other", &err), err);
    core_gate_open(&gate);
    gb_assert_fails(core_result_end(&all, &r, &err), err, GB_ERR_SESSION_NOT_FOUND);
    gb_assert_ok(core_session_create(f.core, &retry, &err), err);
    core_tidy(&f);
    core_fixture_done(&f);
    free(a);
}
END_TEST

/* Readers of the old bytes finish undisturbed; in place they are in the way. */
START_TEST(readers_are_undisturbed) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_device_write_params p = core_fill_params("default", "a", 0, 1);
    struct gb_name s = core_name("default");
    struct gb_name n = core_name("a");
    struct gb_download *download;
    struct core_result r;
    struct core_wake w;
    char *a = malloc(BYTES);
    char *back = malloc(BYTES);

    core_open_two(&f, specs[_i]);
    core_wake_init(&w);
    core_put_bytes(&f, "default", "a", BYTES, 1, a);
    gb_assert_ok(gb_download_open(f.core, &s, &n, &s, core_waker(&w), &download, &err), err);
    gb_assert_ok(gb_download_start(download, 0, BYTES, &err), err);
    gb_assert_ok(core_download_read(download, &w, back, 100, &err), err);
    p.in_place = true;
    gb_assert_fails(core_write(f.core, &p, &r, &err), err, GB_ERR_BUFFER_BUSY);
    p.in_place = false;
    gb_assert_ok(core_write(f.core, &p, &r, &err), err);
    gb_assert_ok(core_download_read(download, &w, back + 100, BYTES - 100, &err), err);
    ck_assert_int_eq(memcmp(a, back, BYTES), 0);
    gb_download_free(download, true);
    memset(a, 0, BYTES);
    core_expect(f.core, "default", "a", a, BYTES);
    core_tidy(&f);
    core_wake_done(&w);
    core_fixture_done(&f);
    free(a);
    free(back);
}
END_TEST

#define BATCH 1000

/* Many at once on one stream. What each costs of the device: test_device_write_fault.c. */
START_TEST(a_batch_of_small_ones) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_device_write_params p = core_copy_params("default", "a", "other", "b");
    struct core_call *pending = calloc(BATCH, sizeof(*pending));
    struct core_gate gate;
    struct gb_core_stats stats;
    char name[32];
    char a[64];
    int i;

    core_open_two(&f, specs[_i]);
    core_put_bytes(&f, "default", "a", sizeof(a), 1, a);
    core_put_bytes(&f, "other", "c", 1, 1, NULL);
    core_gate_close(&gate, &f, "other");
    for (i = 0; i < BATCH; i++) {
        snprintf(name, sizeof(name), "n%d", i);
        p.name = core_name(name);
        core_call_begin(&pending[i]);
        gb_buffer_write(f.core, &p, pending[i].call.buffer);
    }
    gb_core_stats(f.core, &stats);
    ck_assert_uint_eq(stats.writes_running, BATCH);
    core_gate_open(&gate);
    for (i = 0; i < BATCH; i++)
        gb_assert_ok(core_call_end(&pending[i], &err), err);
    for (i = 0; i < BATCH; i++) {
        snprintf(name, sizeof(name), "n%d", i);
        core_expect(f.core, "other", name, a, sizeof(a));
        gb_assert_ok(core_buffer_delete(f.core, "other", name, &err), err);
    }
    core_tidy(&f);
    core_fixture_done(&f);
    free(pending);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_write_races");

    gb_test_add_loop(suite, "source", the_source_is_held, 120, SPECS);
    gb_test_add_loop(suite, "destination", the_destination_changes, 120, SPECS);
    gb_test_add_loop(suite, "readers", readers_are_undisturbed, 120, SPECS);
    gb_test_add_loop(suite, "batch", a_batch_of_small_ones, 120, SPECS);
    return gb_test_run(suite);
}
