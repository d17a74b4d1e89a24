/* Named pools: refusals, the lifecycle of a pool, and the effect of a deletion on the users of a pool. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core_pools.h"
#include "device_write_fixture.h"
#include "gb_test.h"

#define MIB (1u << 20)

static const char *const specs[] = {"host:bytes=128M", "host:discrete,bytes=128M"};

START_TEST(refusals) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_pool_params p = core_pool_params("default", "p", 0, 0);
    struct gb_session_params session = {.name = core_name("s")};
    enum gb_pool_access access[3];
    struct gb_locator at = core_at("default", "p");
    struct gb_pool_view view;
    char data[100] = {0};

    core_fixture_prepare(&f, "host:devices=2,bytes=64M");
    f.config.pools_max = 2;
    core_fixture_open(&f);
    gb_assert_ok(core_session_create(f.core, &session, &err), err);
    p.rec.device = 2;
    gb_assert_fails(core_pool_make(f.core, &p, NULL, &err), err, GB_ERR_DEVICE_NOT_FOUND);
    p.rec.device = -1;
    gb_assert_fails(core_pool_make(f.core, &p, NULL, &err), err, GB_ERR_DEVICE_NOT_FOUND);
    p.rec.device = 0;
    p.rec.name = core_name("default");
    gb_assert_fails(core_pool_make(f.core, &p, NULL, &err), err, GB_ERR_POOL_EXISTS);
    p.rec.name = core_name("default.1");
    gb_assert_fails(core_pool_make(f.core, &p, NULL, &err), err, GB_ERR_POOL_EXISTS);
    p.rec.name = core_name("default.2");
    gb_assert_fails(core_pool_make(f.core, &p, NULL, &err), err, GB_ERR_POOL_PROTECTED);
    p.session = core_name("none");
    gb_assert_fails(core_pool_make(f.core, &p, NULL, &err), err, GB_ERR_SESSION_NOT_FOUND);
    core_pool_plain(&f, "default", "p", 0);
    p = core_pool_params("default", "p", 0, 0);
    gb_assert_fails(core_pool_make(f.core, &p, NULL, &err), err, GB_ERR_POOL_EXISTS);
    core_pool_plain(&f, "default", "q", MIB);
    p.rec.name = core_name("r");
    gb_assert_fails(core_pool_make(f.core, &p, NULL, &err), err, GB_ERR_LIMIT_REACHED);
    /* Other sessions neither see them nor count them. */
    gb_assert_fails(core_pool_get(f.core, "s", "p", &view, &err), err, GB_ERR_POOL_NOT_FOUND);
    gb_assert_fails(core_upload_on(f.core, "s", "x", "", "p", data, 100, &err), err, GB_ERR_POOL_NOT_FOUND);
    gb_assert_fails(core_pool_remove(f.core, "s", "p", false, &err), err, GB_ERR_POOL_NOT_FOUND);
    core_pool_plain(&f, "s", "p", 0);
    /* The devices' own. */
    gb_assert_fails(core_pool_remove(f.core, "default", "default", true, &err), err, GB_ERR_POOL_PROTECTED);
    p.rec.name = core_name("none");
    gb_assert_fails(core_pool_patch(f.core, &p, NULL, &err), err, GB_ERR_POOL_NOT_FOUND);
    gb_assert_fails(core_pool_remove(f.core, "default", "none", true, &err), err, GB_ERR_POOL_NOT_FOUND);
    gb_assert_fails(core_pool_trim(f.core, "default", "none", 0, NULL, &err), err, GB_ERR_POOL_NOT_FOUND);
    gb_assert_fails(core_pool_reset(f.core, "none", "p", &err), err, GB_ERR_SESSION_NOT_FOUND);
    gb_assert_fails(core_pool_peer(f.core, "default", "p", 2, GB_POOL_ACCESS_NONE, &err), err, GB_ERR_DEVICE_NOT_FOUND);
    gb_assert_fails(core_pool_peer(f.core, "default", "p", 0, GB_POOL_ACCESS_NONE, &err), err, GB_ERR_INVALID_ARGUMENT);
    gb_assert_fails(core_upload_on(f.core, "default", "x", "", "q", data, 2 * MIB, &err), err, GB_ERR_OUT_OF_MEMORY);
    /* Peers. */
    gb_assert_ok(core_pool_peer(f.core, "default", "p", 1, GB_POOL_ACCESS_READ_WRITE, &err), err);
    gb_assert_ok(gb_pool_peers(f.core, &at, access, 3, &err), err);
    ck_assert_int_eq(access[0], GB_POOL_ACCESS_READ_WRITE);
    ck_assert_int_eq(access[1], GB_POOL_ACCESS_READ_WRITE);
    ck_assert_int_eq(access[2], GB_POOL_ACCESS_NONE);
    gb_assert_ok(core_pool_peer(f.core, "default", "p", 1, GB_POOL_ACCESS_NONE, &err), err);
    gb_assert_ok(gb_pool_peers(f.core, &at, access, 2, &err), err);
    ck_assert_int_eq(access[1], GB_POOL_ACCESS_NONE);
    core_fixture_done(&f);
}
END_TEST

static int join(void *arg, const struct gb_name *session, const struct gb_pool_view *view, struct gb_error *err) {
    char *text = arg;

    (void)err;
    snprintf(text + strlen(text), 100 - strlen(text), "%s/%s ", session->s, view->rec.name.s);
    return 0;
}

static void assert_owned(struct core_fixture *f, unsigned limit, const char *wanted, uint64_t wanted_omitted) {
    struct gb_error err = GB_ERROR_INIT;
    uint64_t omitted = UINT64_MAX;
    char text[100] = "";

    gb_assert_ok(gb_pool_list_owned(f->core, limit, join, text, &omitted, &err), err);
    ck_assert_str_eq(text, wanted);
    ck_assert_uint_eq(omitted, wanted_omitted);
}

START_TEST(those_of_sessions) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_params s = {.name = core_name("s")};

    core_fixture_prepare(&f, "host:bytes=64M");
    core_fixture_open(&f);
    gb_assert_ok(core_session_create(f.core, &s, &err), err);
    assert_owned(&f, 9, "", 0);
    core_pool_plain(&f, "s", "p", 0);
    core_pool_plain(&f, "default", "p", 0);
    core_pool_plain(&f, "s", "q", 0);
    assert_owned(&f, 9, "default/p s/p s/q ", 0);
    assert_owned(&f, 2, "default/p s/p ", 1);
    assert_owned(&f, 0, "", 3);
    gb_assert_ok(core_pool_remove(f.core, "default", "p", false, &err), err);
    gb_assert_ok(core_pool_remove(f.core, "s", "p", false, &err), err);
    assert_owned(&f, 9, "s/q ", 0);
    gb_assert_ok(core_pool_remove(f.core, "s", "q", false, &err), err);
    assert_owned(&f, 9, "", 0);
    core_pool_plain(&f, "s", "r", 0);
    assert_owned(&f, 9, "s/r ", 0);
    gb_assert_ok(core_session_delete(f.core, "s", &err), err);
    assert_owned(&f, 9, "", 0);
    core_fixture_done(&f);
}
END_TEST

static int refuse_patch(void *arg, const struct gb_pool_rec *rec, struct gb_error *err) {
    return rec->version == *(int64_t *)arg ? 0 : gb_error_set(err, GB_ERR_PRECONDITION_FAILED, "another version");
}

START_TEST(one_life) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_pool_params p = core_pool_params("default", "p", 0, 16 * MIB);
    struct gb_pool_trim trimmed;
    struct gb_pool_view view;
    struct gb_buffer_rec rec;
    struct gb_pool_check check = {.check = refuse_patch};
    int64_t version = 7;
    char names[512];
    char *data = malloc(MIB);
    char *back = malloc(MIB);

    core_fixture_init(&f, specs[_i]);
    p.given.follow_event_dependencies = true;
    gb_assert_ok(core_pool_make(f.core, &p, &view, &err), err);
    ck_assert_int_gt(view.rec.id, 0);
    ck_assert_uint_eq(view.rec.config.max_bytes, 16 * MIB);
    ck_assert_uint_eq(view.rec.config.release_threshold_bytes, GB_UNLIMITED);
    ck_assert(!view.rec.config.follow_event_dependencies && view.rec.config.allow_opportunistic);
    ck_assert(view.rec.config.allow_internal_dependencies && !view.rec.config.exportable && !view.lost);
    ck_assert_uint_eq(view.first_use_bytes, core_on_host(&f) ? 0 : 32 * MIB);
    ck_assert_str_eq(core_pool_names(&f, "default", names), "default p ");

    core_bytes(1, data, MIB);
    gb_assert_ok(core_upload_on(f.core, "default", "x", "", "p", data, MIB, &err), err);
    gb_assert_ok(core_buffer_get(f.core, "default", "x", &rec, &err), err);
    ck_assert_str_eq(rec.pool.s, "p");
    gb_assert_ok(core_upload_on(f.core, "default", "x", "", "", data, MIB, &err), err); /* stays where it is */
    gb_assert_ok(core_download_on(f.core, "default", "x", "", back, MIB, &err), err);
    ck_assert_int_eq(memcmp(data, back, MIB), 0);
    view = core_pool_look(&f, "default", "p");
    ck_assert_uint_eq(view.live_buffers, 1);
    ck_assert_uint_eq(view.memory.allocations, 2);
    ck_assert_uint_eq(view.memory.frees, 1);
    ck_assert_uint_eq(view.memory.allocated_bytes, 2 * MIB);
    ck_assert_uint_eq(view.memory.freed_bytes, MIB);
    ck_assert_uint_ge(view.stat.used_peak_bytes, 2 * MIB);
    ck_assert_uint_eq(core_pool_look(&f, "default", "default").memory.allocations, 0);

    p.given.release_threshold_bytes = p.given.allow_opportunistic = true;
    p.given.follow_event_dependencies = false;
    p.rec.config.release_threshold_bytes = 5;
    gb_assert_ok(core_pool_patch(f.core, &p, &view, &err), err);
    ck_assert_uint_eq(view.rec.config.release_threshold_bytes, 5);
    ck_assert(!view.rec.config.allow_opportunistic && !view.rec.config.follow_event_dependencies);
    ck_assert_int_eq(view.rec.version, 2);
    check.arg = &version;
    gb_assert_fails(core_do(&err, pool, gb_pool_patch, f.core, &p, &check), err, GB_ERR_PRECONDITION_FAILED);
    ck_assert_int_eq(core_pool_look(&f, "default", "p").rec.version, 2);

    gb_assert_fails(core_pool_remove(f.core, "default", "p", false, &err), err, GB_ERR_POOL_BUSY);
    gb_assert_ok(core_upload_on(f.core, "default", "x", "", "default", data, MIB, &err), err); /* moves away */
    view = core_pool_look(&f, "default", "p");
    ck_assert_uint_eq(view.live_buffers, 0);
    gb_assert_ok(core_pool_reset(f.core, "default", "p", &err), err);
    /* What was freed is given back by the device when its stream comes there. */
    gb_assert_ok(core_session_sync(f.core, "default", &err), err);
    gb_assert_ok(core_pool_trim(f.core, "default", "p", 0, &trimmed, &err), err);
    ck_assert_uint_le(trimmed.after_bytes, trimmed.before_bytes);
    if (core_on_host(&f))
        ck_assert_uint_eq(trimmed.after_bytes, 0);
    gb_assert_ok(core_pool_reset(f.core, "default", "p", &err), err);
    view = core_pool_look(&f, "default", "p");
    ck_assert_uint_eq(view.stat.used_peak_bytes, view.stat.used_bytes);
    ck_assert_uint_eq(view.stat.reserved_peak_bytes, view.stat.reserved_bytes);
    gb_assert_ok(core_pool_remove(f.core, "default", "p", false, &err), err);
    gb_assert_fails(core_pool_get(f.core, "default", "p", &view, &err), err, GB_ERR_POOL_NOT_FOUND);
    ck_assert_str_eq(core_pool_names(&f, "default", names), "default ");
    core_pool_plain(&f, "default", "p", 0); /* the name is free */
    gb_assert_ok(core_buffer_delete(f.core, "default", "x", &err), err);
    core_until_idle(&f);
    core_fixture_done(&f);
    free(data);
    free(back);
}
END_TEST

/* --- deletion by force -------------------------------------------------------------------------------------------- */

#define BIG (8 * CORE_SLOT_BYTES)

START_TEST(force_while_someone_reads_and_someone_writes) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_name s = core_name("default");
    struct gb_name x = core_name("x");
    struct gb_upload_params p = core_upload_params("default", "w", BIG);
    struct gb_download *download;
    struct gb_upload *upload;
    struct gb_buffer_rec rec;
    struct gb_pool_view view;
    struct core_wake dw;
    struct core_wake uw;
    char *data = malloc(BIG);
    char *back = malloc(BIG);

    core_fixture_init(&f, specs[_i]);
    core_wake_init(&dw);
    core_wake_init(&uw);
    core_pool_plain(&f, "default", "p", 16 * MIB);
    core_bytes(1, data, BIG);
    gb_assert_ok(core_upload_on(f.core, "default", "x", "", "p", data, BIG, &err), err);
    gb_assert_ok(core_upload_on(f.core, "default", "elsewhere", "", "", data, BIG, &err), err);
    gb_assert_ok(gb_download_open(f.core, &s, &x, &s, core_waker(&dw), &download, &err), err);
    gb_assert_ok(gb_download_start(download, 0, BIG, &err), err);
    gb_assert_ok(core_download_read(download, &dw, back, 100, &err), err);
    p.buffer.pool = core_name("p");
    p.waker = core_waker(&uw);
    gb_assert_ok(gb_upload_begin(f.core, &p, &upload, &err), err);
    gb_assert_ok(core_upload_send(upload, &uw, data, BIG / 2, &err), err);

    gb_assert_fails(core_pool_remove(f.core, "default", "p", false, &err), err, GB_ERR_POOL_BUSY);
    gb_assert_ok(core_pool_remove(f.core, "default", "p", true, &err), err);
    gb_assert_fails(core_pool_get(f.core, "default", "p", &view, &err), err, GB_ERR_POOL_NOT_FOUND);
    gb_assert_ok(core_buffer_get(f.core, "default", "x", &rec, &err), err);
    ck_assert_int_eq(rec.state, GB_BUFFER_LOST);
    gb_assert_ok(core_buffer_get(f.core, "default", "elsewhere", &rec, &err), err);
    ck_assert_int_eq(rec.state, GB_BUFFER_READY);
    gb_assert_fails(core_download_on(f.core, "default", "x", "", back, 10, &err), err, GB_ERR_CONTENT_LOST);
    core_pool_plain(&f, "default", "p", 16 * MIB); /* another one, with nothing of the old */
    gb_assert_ok(core_upload_on(f.core, "default", "y", "", "p", data, BIG, &err), err);

    gb_assert_ok(core_download_read(download, &dw, back + 100, BIG - 100, &err), err);
    ck_assert_int_eq(memcmp(data, back, BIG), 0);
    gb_assert_ok(core_upload_send(upload, &uw, data + BIG / 2, BIG / 2, &err), err);
    gb_assert_fails(core_upload_finish(upload, &uw, &rec, &err), err, GB_ERR_POOL_NOT_FOUND);
    gb_upload_free(upload);
    gb_download_free(download, true);
    gb_assert_ok(core_upload_on(f.core, "default", "x", "", "", data, BIG, &err), err); /* the device's own pool */
    gb_assert_ok(core_buffer_get(f.core, "default", "x", &rec, &err), err);
    ck_assert_uint_eq(core_pool_look(&f, "default", "p").live_buffers, strcmp(rec.pool.s, "p") == 0 ? 2 : 1);
    gb_assert_ok(core_pool_remove(f.core, "default", "p", true, &err), err);
    gb_assert_ok(core_buffer_delete(f.core, "default", "x", &err), err);
    gb_assert_ok(core_buffer_delete(f.core, "default", "y", &err), err);
    gb_assert_ok(core_buffer_delete(f.core, "default", "elsewhere", &err), err);
    core_until_idle(&f);
    core_fixture_done(&f);
    core_wake_done(&dw);
    core_wake_done(&uw);
    free(data);
    free(back);
}
END_TEST

START_TEST(force_takes_mirrored_buffers_whole) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_upload_params("default", "m", 1000);
    struct gb_buffer_rec rec;
    char data[1000];
    char back[1000];

    core_fixture_init(&f, specs[_i]);
    core_pool_plain(&f, "default", "p", 0);
    core_bytes(1, data, 1000);
    p.buffer.mirrored = true;
    p.buffer.pool = core_name("p");
    gb_assert_ok(core_upload(f.core, &p, data, NULL, &err), err); /* the host side */
    p.to_device_side = true;
    gb_assert_ok(core_upload(f.core, &p, data, NULL, &err), err);
    p.buffer.name = core_name("n");
    gb_assert_ok(core_upload(f.core, &p, data, NULL, &err), err);
    ck_assert_uint_eq(core_pool_look(&f, "default", "p").live_buffers, 2);
    gb_assert_fails(core_pool_remove(f.core, "default", "p", false, &err), err, GB_ERR_POOL_BUSY);
    gb_assert_ok(core_pool_remove(f.core, "default", "p", true, &err), err);
    gb_assert_ok(core_buffer_get(f.core, "default", "m", &rec, &err), err);
    ck_assert_int_eq(rec.state, GB_BUFFER_LOST);
    ck_assert_int_eq(rec.head, GB_HEAD_UNINITIALIZED);
    gb_assert_fails(core_download_on(f.core, "default", "m", "", back, 1000, &err), err, GB_ERR_CONTENT_LOST);
    core_until_idle(&f); /* the host side went too */
    p.buffer.name = core_name("m");
    p.buffer.pool = core_name("");
    gb_assert_ok(core_upload(f.core, &p, data, NULL, &err), err);
    gb_assert_ok(core_download_on(f.core, "default", "m", "", back, 1000, &err), err);
    ck_assert_int_eq(memcmp(data, back, 1000), 0);
    gb_assert_ok(core_buffer_delete(f.core, "default", "m", &err), err);
    core_until_idle(&f);
    core_fixture_done(&f);
}
END_TEST

static void assert_pool_of(struct core_fixture *f, const char *buffer, const char *pool) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_rec rec;

    gb_assert_ok(core_buffer_get(f->core, "default", buffer, &rec, &err), err);
    ck_assert_int_ne(rec.state, GB_BUFFER_LOST);
    ck_assert_str_eq(rec.pool.s, pool);
}

/* Neither has memory in the pool: one has none at all, the other a host side. */
START_TEST(mirrored_buffers_without_a_device_side_leave_the_pool) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_params b = core_kind_params("none", GB_KIND_DEVICE, 100);
    struct gb_upload_params p = core_upload_params("default", "host", 100);
    struct gb_buffer_rec before;
    struct gb_buffer_rec rec;
    char data[100] = {1};

    core_fixture_init(&f, specs[_i]);
    core_pool_plain(&f, "default", "p", 0);
    b.mirrored = p.buffer.mirrored = true;
    b.pool = p.buffer.pool = core_name("p");
    gb_assert_ok(core_create(f.core, &b, NULL, &err), err);
    gb_assert_ok(core_upload(f.core, &p, data, NULL, &err), err);
    assert_pool_of(&f, "none", "p");
    gb_assert_ok(core_buffer_get(f.core, "default", "host", &before, &err), err);
    gb_assert_ok(core_pool_remove(f.core, "default", "p", false, &err), err);
    assert_pool_of(&f, "none", "default");
    assert_pool_of(&f, "host", "default");
    gb_assert_ok(core_buffer_get(f.core, "default", "host", &rec, &err), err);
    ck_assert_int_gt(rec.version, before.version); /* another entity tag */
    core_fixture_close(&f);
    core_fixture_open(&f);
    assert_pool_of(&f, "none", "default");
    core_fixture_done(&f);
}
END_TEST

struct free_bytes {
    struct core_fixture *f;
    uint64_t bytes;
};

static bool all_back(void *arg) {
    struct free_bytes *want = arg;
    struct gb_device_rec rec;
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(gb_backend_device_get(want->f->backend, 0, &rec, &err), err);
    return rec.free_bytes >= want->bytes;
}

/* The session's memory is still in use on a stream that stands; then it and the pool go. */
START_TEST(a_session_takes_its_pools_along) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_params session = {.name = core_name("s")};
    struct free_bytes want = {.f = &f};
    struct gb_device_rec rec;
    struct core_gate gate;
    char *data = calloc(1, MIB);

    core_fixture_init(&f, specs[_i]);
    gb_assert_ok(gb_backend_device_get(f.backend, 0, &rec, &err), err);
    want.bytes = rec.free_bytes;
    gb_assert_ok(core_session_create(f.core, &session, &err), err);
    core_pool_plain(&f, "s", "p", 0);
    gb_assert_ok(core_stream_make(f.core, "s", "st", &err), err);
    gb_assert_ok(core_upload_on(f.core, "s", "x", "st", "p", data, MIB, &err), err);
    core_gate_close_on(&gate, &f, "s", "st", 0);
    gb_assert_ok(core_session_delete(f.core, "s", &err), err);
    ck_assert(!all_back(&want));
    gb_assert_ok(core_session_create(f.core, &session, &err), err); /* the names are free meanwhile */
    core_pool_plain(&f, "s", "p", 0);
    gb_assert_ok(core_upload_on(f.core, "s", "x", "", "p", data, MIB, &err), err);
    core_gate_open(&gate);
    gb_assert_ok(core_session_delete(f.core, "s", &err), err);
    if (core_on_host(&f)) /* elsewhere others may use the device */
        core_until(all_back, &want, "the pools' memory goes back to the device");
    core_fixture_done(&f);
    free(data);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_pools");
    TCase *tc = tcase_create("pools");

    tcase_add_test(tc, refusals);
    tcase_add_test(tc, those_of_sessions);
    tcase_add_loop_test(tc, one_life, 0, 2);
    tcase_add_loop_test(tc, force_while_someone_reads_and_someone_writes, 0, 2);
    tcase_add_loop_test(tc, force_takes_mirrored_buffers_whole, 0, 2);
    tcase_add_loop_test(tc, mirrored_buffers_without_a_device_side_leave_the_pool, 0, 2);
    tcase_add_loop_test(tc, a_session_takes_its_pools_along, 0, 2);
    tcase_set_timeout(tc, 120);
    suite_add_tcase(suite, tc);
    return gb_test_run(suite);
}
