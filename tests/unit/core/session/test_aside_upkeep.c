/* What continues in a session that was set aside: its bytes are stored, leave memory and come back, and leases end. */
#include <string.h>

#include "durable_fixture.h"
#include "gb_test.h"
#include "lease_fixture.h"

#define BYTES 200000u
#define CLAIM "of-the-test"
#define ASIDE "s.superseded-3"

static char data[BYTES];
static char back[BYTES];

static void begin(struct core_fixture *f) {
    struct gb_session_params p = {.name = {"s"}, .fleet_epoch = 3, .fleet_claim = CLAIM};
    struct gb_upload_params up = core_upload_params("s", "b", BYTES);
    struct gb_error err = GB_ERROR_INIT;

    core_bytes(7, data, BYTES);
    up.buffer.has_durability = up.buffer.has_kind = true;
    up.buffer.durability = GB_DURABILITY_BEHIND;
    up.buffer.kind = GB_KIND_PAGEABLE;
    durable_open(f, "host");
    gb_assert_ok(core_session_create(f->core, &p, &err), err);
    gb_assert_ok(core_upload(f->core, &up, data, NULL, &err), err);
}

static void set_aside(struct core_fixture *f) {
    struct gb_error err = GB_ERROR_INIT;
    const struct gb_name s = {"s"};

    gb_assert_ok(core_do(&err, session, gb_session_set_aside, f->core, &s, CLAIM, 60), err);
}

static struct gb_buffer_rec look(struct core_fixture *f) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_rec rec;

    gb_assert_ok(core_buffer_get(f->core, ASIDE, "b", &rec, &err), err);
    gb_buffer_rec_done(&rec);
    return rec;
}

static void expect(struct core_fixture *f) {
    struct gb_error err = GB_ERROR_INIT;

    memset(back, 0, BYTES);
    gb_assert_ok(core_download(f->core, ASIDE, "b", 0, BYTES, back, &err), err);
    ck_assert_int_eq(memcmp(back, data, BYTES), 0);
}

static void evict(struct core_fixture *f) {
    const struct gb_locator at = core_at(ASIDE, "b");
    struct core_wake w;
    struct gb_buffer_call *call;

    core_wake_init(&w);
    call = core_any_call_new(core_wake, &w).buffer;
    gb_buffer_evict(f->core, &at, NULL, call);
    core_wake_wait(&w);
    ck_assert_int_eq(call->base.error.code, GB_OK);
    gb_call_unref(&call->base);
    core_wake_done(&w);
}

static bool is_loaded(void *arg) {
    struct core_fixture *f = arg;
    const struct gb_locator at = core_at(ASIDE, "b");
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_rec rec;

    if (gb_buffer_load(f->core, &at, &rec, &err) < 0) {
        ck_assert_int_eq(err.code, GB_ERR_NOT_LOADED);
        return false;
    }
    gb_buffer_rec_done(&rec);
    return true;
}

START_TEST(bytes_leave_memory_and_come_back) {
    struct core_fixture f;

    begin(&f);
    set_aside(&f);
    evict(&f);
    ck_assert_int_eq(look(&f).state, GB_BUFFER_STORED);
    core_until(is_loaded, &f, "the bytes loaded");
    ck_assert_int_eq(look(&f).state, GB_BUFFER_READY);
    expect(&f);
    core_fixture_done(&f);
}
END_TEST

/* They were acknowledged as behind, under the other name. */
START_TEST(what_is_behind_is_stored) {
    struct core_fixture f;

    begin(&f);
    set_aside(&f);
    ck_assert_int_eq(look(&f).stored_generation, 0);
    core_fixture_close(&f);
    core_fixture_open(&f);
    ck_assert_int_eq(look(&f).stored_generation, 1);
    core_until(is_loaded, &f, "the bytes loaded");
    expect(&f);
    core_fixture_done(&f);
}
END_TEST

START_TEST(leases_stay_and_end) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_lease_params p;
    struct core_mapping writer;
    struct core_mapping reader;
    struct gb_holder *h;

    begin(&f);
    h = core_holder(f.core);
    p = core_map_params(h, "s", "b", true);
    gb_assert_ok(core_map(f.core, &p, &writer, &err), err);
    set_aside(&f);
    ck_assert_uint_eq(look(&f).leases, 1);
    p = core_map_params(h, ASIDE, "b", true);
    gb_assert_fails(core_map(f.core, &p, NULL, &err), err, GB_ERR_SUPERSEDED);
    p.write = false;
    gb_assert_ok(core_map(f.core, &p, &reader, &err), err);
    core_mapping_done(&reader);
    core_mapping_done(&writer);
    gb_assert_ok(core_lease_end(f.core, reader.id, h, &err), err);
    gb_assert_ok(core_lease_end(f.core, writer.id, h, &err), err);
    ck_assert_uint_eq(look(&f).leases, 0);
    gb_holder_end(h);
    core_until_unmapped(&f);
    expect(&f);
    gb_assert_ok(core_session_delete(f.core, ASIDE, &err), err);
    core_until_idle(&f);
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_aside_upkeep");

    gb_test_add(suite, "bytes", bytes_leave_memory_and_come_back, 60);
    gb_test_add(suite, "behind", what_is_behind_is_stored, 60);
    gb_test_add(suite, "leases", leases_stay_and_end, 60);
    return gb_test_run(suite);
}
