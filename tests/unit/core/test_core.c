/* Sessions, devices, pools, streams. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/runtime/runtime.h"
#include "core_fixture.h"
#include "gb_test.h"

/* --- sessions ----------------------------------------------------------------------------------------------------- */

START_TEST(sessions_are_made_changed_and_deleted) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_params p = core_session_params("a");
    struct gb_name name = core_name("a");
    struct gb_session_view view;
    struct gb_core_stats stats;
    uint64_t sequence;

    core_fixture_init(&f, "host");
    gb_assert_fails(gb_session_get(f.core, &name, &view, &err), err, GB_ERR_SESSION_NOT_FOUND);
    sequence = gb_core_sequence(f.core);
    gb_assert_ok(core_session_create(f.core, &p, &err), err);
    ck_assert_uint_gt(gb_core_sequence(f.core), sequence);
    gb_assert_fails(core_session_create(f.core, &p, &err), err, GB_ERR_SESSION_EXISTS);
    gb_assert_ok(gb_session_get(f.core, &name, &view, &err), err);
    ck_assert_uint_eq(view.rec.quota.bytes, GB_UNLIMITED);
    ck_assert_str_eq(gb_labels_text(view.rec.labels), "{}");
    ck_assert_int_eq(view.rec.version, 1);
    ck_assert_int_eq(view.expires_at_us, 0);
    p.has_quota_bytes = true;
    p.quota.bytes = 1000;
    p.has_labels = true;
    p.labels = store_labels("{\"k\":\"v\"}");
    gb_assert_ok(core_session_patch(f.core, "a", &p, &err), err);
    gb_assert_ok(gb_session_get(f.core, &name, &view, &err), err);
    ck_assert_uint_eq(view.rec.quota.bytes, 1000);
    ck_assert_uint_eq(view.rec.quota.buffers, GB_UNLIMITED);
    ck_assert_str_eq(gb_labels_text(view.rec.labels), "{\"k\":\"v\"}");
    gb_session_rec_done(&view.rec);
    ck_assert_int_eq(view.rec.version, 2);
    gb_core_stats(f.core, &stats);
    ck_assert_uint_eq(stats.sessions, 2);
    gb_assert_ok(core_session_delete(f.core, "a", &err), err);
    gb_assert_fails(core_session_delete(f.core, "a", &err), err, GB_ERR_SESSION_NOT_FOUND);
    gb_assert_fails(core_session_patch(f.core, "a", &p, &err), err, GB_ERR_SESSION_NOT_FOUND);
    gb_assert_fails(core_session_delete(f.core, "default", &err), err, GB_ERR_SESSION_PROTECTED);
    gb_core_stats(f.core, &stats);
    ck_assert_uint_eq(stats.sessions, 1);
    core_fixture_done(&f);
}
END_TEST

START_TEST(sessions_have_a_limit) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_params p;
    char name[16];
    int i;

    core_fixture_prepare(&f, "host");
    f.config.sessions_max = 5;
    core_fixture_open(&f);
    for (i = 0; i < 4; i++) {
        snprintf(name, sizeof(name), "s%d", i);
        p = core_session_params(name);
        gb_assert_ok(core_session_create(f.core, &p, &err), err);
    }
    p = core_session_params("more");
    gb_assert_fails(core_session_create(f.core, &p, &err), err, GB_ERR_LIMIT_REACHED);
    gb_assert_ok(core_session_delete(f.core, "s2", &err), err);
    gb_assert_ok(core_session_create(f.core, &p, &err), err);
    core_fixture_done(&f);
}
END_TEST

static int list_session(void *arg, const struct gb_session_view *view, struct gb_error *err) {
    struct core_listing *l = arg;

    ck_assert_int_gt(view->rec.id, l->last_id);
    l->last_id = view->rec.id;
    strcat(l->text, view->rec.name.s);
    strcat(l->text, " ");
    return ++l->count == l->stop_at ? gb_error_set(err, GB_ERR_INTERNAL, "enough") : 0;
}

START_TEST(lists_go_by_id) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    static const char *const names[] = {"z", "m", "a", "q"};
    struct gb_name session = core_name("default");
    struct core_listing l = {.text = ""};
    struct gb_page page = {.limit = 2};
    int i;

    core_fixture_init(&f, "host");
    for (i = 0; i < 4; i++) {
        struct gb_session_params p = core_session_params(names[i]);

        gb_assert_ok(core_session_create(f.core, &p, &err), err);
        gb_assert_ok(core_buffer_create(f.core, "default", names[i], 1, 0, &err), err);
    }
    gb_assert_ok(core_session_delete(f.core, "m", &err), err);
    gb_assert_ok(core_buffer_delete(f.core, "default", "a", &err), err);
    gb_assert_ok(gb_session_list(f.core, &page, list_session, &l, &err), err);
    ck_assert_str_eq(l.text, "default z ");
    ck_assert(page.more);
    page.after = l.last_id;
    gb_assert_ok(gb_session_list(f.core, &page, list_session, &l, &err), err);
    ck_assert_str_eq(l.text, "default z a q ");
    ck_assert(!page.more);
    l = (struct core_listing){.stop_at = 2};
    page = (struct gb_page){.limit = 10};
    gb_assert_fails(gb_session_list(f.core, &page, list_session, &l, &err), err, GB_ERR_INTERNAL);
    l = (struct core_listing){.text = ""};
    page = (struct gb_page){.limit = 2};
    gb_assert_ok(gb_buffer_list(f.core, &session, &page, core_list_buffer, &l, &err), err);
    ck_assert_str_eq(l.text, "z m ");
    ck_assert(page.more);
    page.after = l.last_id;
    gb_assert_ok(gb_buffer_list(f.core, &session, &page, core_list_buffer, &l, &err), err);
    ck_assert_str_eq(l.text, "z m q ");
    ck_assert(!page.more);
    session = core_name("none");
    gb_assert_fails(gb_buffer_list(f.core, &session, &page, core_list_buffer, &l, &err), err, GB_ERR_SESSION_NOT_FOUND);
    core_fixture_done(&f);
}
END_TEST

static bool gone(void *arg) {
    struct core_fixture *f = arg;
    struct gb_name name = core_name("idle");
    struct gb_session_view view;

    return gb_session_get(f->core, &name, &view, NULL) < 0;
}

/* The session leaves the map a moment before the counter changes. */
static bool counted(void *arg) {
    struct core_fixture *f = arg;
    struct gb_core_stats stats;

    gb_core_stats(f->core, &stats);
    return stats.counters.expired_sessions > 0;
}

START_TEST(idle_sessions_expire) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_params p = core_session_params("idle");
    struct gb_session_params stays = core_session_params("stays");
    struct gb_upload_params up = core_upload_params("stays", "x", 100);
    struct gb_session_view view;
    struct gb_core_stats stats;
    struct gb_upload *upload;
    struct core_wake w;

    core_fixture_init(&f, "host");
    core_wake_init(&w);
    p.has_idle_ttl_s = stays.has_idle_ttl_s = true;
    p.idle_ttl_s = stays.idle_ttl_s = 1;
    gb_assert_ok(core_session_create(f.core, &stays, &err), err);
    up.waker = core_waker(&w);
    gb_assert_ok(gb_upload_begin(f.core, &up, &upload, &err), err);
    gb_assert_ok(core_session_create(f.core, &p, &err), err);
    gb_assert_ok(core_buffer_create(f.core, "idle", "x", 1000, 0, &err), err);
    gb_assert_ok(gb_session_heartbeat(f.core, &p.name, &view, &err), err);
    ck_assert_int_gt(view.expires_at_us, 0);
    core_until(gone, &f, "the session gone");
    /* A running transfer resets the session's idle timer, however slow it is. */
    gb_assert_ok(gb_session_get(f.core, &stays.name, &view, &err), err);
    gb_upload_free(upload);
    core_until_idle(&f);
    core_until(counted, &f, "the expiry counted");
    gb_core_stats(f.core, &stats);
    ck_assert_uint_eq(stats.counters.expired_sessions, 1);
    core_wake_done(&w);
    core_fixture_done(&f);
}
END_TEST

static const char *const specs[] = {"host:bytes=64M", "host:discrete,bytes=64M"};

/* --- devices, pools, streams -------------------------------------------------------------------------------------- */

static int call_trim(struct core_fixture *f, const char *pool, uint64_t keep, struct gb_error *err) {
    struct gb_locator at = core_at("default", pool);

    return core_do(err, pool, gb_pool_trim_to, f->core, &at, keep);
}

START_TEST(two_devices) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_upload_params("default", "x", 100000);
    struct gb_device_rec device;
    struct gb_pool_view view[2];
    struct gb_buffer_rec rec;
    struct gb_locator at = core_at("default", "default.1");
    char *data = malloc(100000);
    char *back = malloc(100000);
    int found = -1;

    core_fixture_init(&f, "host:discrete,devices=2,bytes=64M");
    if (gb_device_count(f.core) < 2) { /* a machine with one GPU */
        core_fixture_done(&f);
        return;
    }
    ck_assert_int_eq(gb_device_count(f.core), 2);
    gb_assert_ok(gb_device_get(f.core, 1, &device, &err), err);
    gb_assert_ok(gb_device_find(f.core, device.uuid, &found, &err), err);
    ck_assert_int_eq(found, 1);
    gb_assert_ok(gb_device_find(f.core, "0", &found, &err), err);
    ck_assert_int_eq(found, 0);
    gb_assert_fails(gb_device_find(f.core, "2", &found, &err), err, GB_ERR_DEVICE_NOT_FOUND);
    gb_assert_fails(gb_device_find(f.core, "", &found, &err), err, GB_ERR_DEVICE_NOT_FOUND);
    /* A part of a GPU, which clients that do not know of MIG name as a GPU. */
    strcpy(f.core->devices[0].rec.uuid, "MIG-07070707-0707-0707-0707-070707070707");
    gb_assert_ok(gb_device_find(f.core, "GPU-07070707-0707-0707-0707-070707070707", &found, &err), err);
    ck_assert_int_eq(found, 0);
    gb_assert_fails(gb_device_find(f.core, "MIG-08080808-0808-0808-0808-080808080808", &found, &err), err,
                    GB_ERR_DEVICE_NOT_FOUND);
    gb_device_find(f.core, "9", &found, &err);
    ck_assert_ptr_nonnull(strstr(err.detail, "CUDA shows a process one MIG device"));
    err = GB_ERROR_INIT;
    gb_assert_fails(gb_device_get(f.core, 2, &device, &err), err, GB_ERR_DEVICE_NOT_FOUND);
    core_bytes(1, data, 100000);
    p.buffer.pool = at.name;
    gb_assert_ok(core_upload(f.core, &p, data, &rec, &err), err);
    ck_assert_int_eq(rec.device, 1);
    ck_assert_str_eq(rec.pool.s, "default.1");
    /* An upload that names no pool keeps the buffer's pool. */
    p.buffer.pool.s[0] = '\0';
    gb_assert_ok(core_upload(f.core, &p, data, &rec, &err), err);
    ck_assert_int_eq(rec.device, 1);
    gb_assert_ok(gb_pool_at(f.core, 0, &view[0], &err), err);
    gb_assert_ok(gb_pool_get(f.core, &at, &view[1], &err), err);
    ck_assert_uint_eq(view[0].stat.used_bytes, 0);
    ck_assert_uint_ge(view[1].stat.used_bytes, 100000);
    p.in_place = true;
    p.buffer.pool = core_name("default");
    gb_assert_fails(gb_upload_check(f.core, &p, &err), err, GB_ERR_INVALID_ARGUMENT);
    p.in_place = false;
    gb_assert_ok(core_upload(f.core, &p, data, &rec, &err), err);
    ck_assert_int_eq(rec.device, 0);
    gb_assert_ok(core_download(f.core, "default", "x", 0, 100000, back, &err), err);
    ck_assert_int_eq(memcmp(data, back, 100000), 0);
    gb_assert_ok(core_buffer_delete(f.core, "default", "x", &err), err);
    core_until_idle(&f);
    gb_assert_ok(call_trim(&f, "default.1", 0, &err), err);
    gb_assert_ok(gb_pool_get(f.core, &at, &view[1], &err), err);
    ck_assert_uint_eq(view[1].stat.reserved_bytes, 0);
    gb_assert_fails(call_trim(&f, "none", 0, &err), err, GB_ERR_POOL_NOT_FOUND);
    core_fixture_done(&f);
    free(data);
    free(back);
}
END_TEST

START_TEST(sync_waits_for_the_stream) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_locator at = core_at("default", "default");
    struct gb_locator other = core_at("default", "other");
    struct core_gate gate;
    struct core_call c;

    core_fixture_init(&f, specs[_i]);
    /* The device has no stream yet, so the sync does not wait. */
    gb_assert_ok(core_do(&err, base, gb_stream_sync_call, f.core, &at), err);
    gb_assert_fails(core_do(&err, base, gb_stream_sync_call, f.core, &other), err, GB_ERR_STREAM_NOT_FOUND);
    gb_assert_ok(core_buffer_create(f.core, "default", "x", 1, 0, &err), err);
    core_gate_close(&gate, &f, "default");
    core_call_begin(&c);
    gb_stream_sync_call(f.core, &at, c.call.base);
    /* When this call completes, the lane has run the earlier task. */
    gb_assert_ok(call_trim(&f, "default", GB_UNLIMITED, &err), err);
    ck_assert(!core_call_over(&c));
    core_gate_open(&gate);
    gb_assert_ok(core_call_end(&c, &err), err);
    core_fixture_done(&f);
}
END_TEST

static bool sampled(void *arg) {
    struct core_fixture *f = arg;

    return store_sql_int(f->store.path, "SELECT count(*) FROM v_pools WHERE pool = 'default'") > 0;
}

START_TEST(pools_are_sampled) {
    struct core_fixture f;

    core_fixture_prepare(&f, "host");
    f.config.history = f.store.config.history;
    f.config.history.interval_s = 1;
    core_fixture_open(&f);
    core_until(sampled, &f, "a sample in the database");
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core");

    gb_test_add(suite, "sessions", sessions_are_made_changed_and_deleted, 60);
    gb_test_add(suite, "session_limit", sessions_have_a_limit, 60);
    gb_test_add(suite, "lists", lists_go_by_id, 60);
    gb_test_add(suite, "expiry", idle_sessions_expire, 60);
    gb_test_add(suite, "devices", two_devices, 60);
    gb_test_add_loop(suite, "sync", sync_waits_for_the_stream, 120, 2);
    gb_test_add(suite, "samples", pools_are_sampled, 60);
    return gb_test_run(suite);
}
