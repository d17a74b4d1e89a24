/* Streams by name, waiting for work, and what one session's standing stream is to others: nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/session/session.h"
#include "core_pools.h"
#include "durable_fixture.h"
#include "gb_test.h"

#define BYTES (3 * CORE_SLOT_BYTES + 10)

static const char *const specs[] = {"host:bytes=64M", "host:discrete,bytes=64M", "host:discrete,devices=2,bytes=64M"};

static void make_session(struct core_fixture *f, const char *name) {
    struct gb_session_params session = {.name = core_name(name)};
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(core_session_create(f->core, &session, &err), err);
}

static int list_stream(void *arg, const struct gb_stream_view *stream, struct gb_error *err) {
    (void)err;
    strcat(arg, stream->name.s);
    strcat(arg, " ");
    return 0;
}

static int list_event(void *arg, const struct gb_event_view *event, struct gb_error *err) {
    (void)err;
    strcat(arg, event->name.s);
    strcat(arg, " ");
    return 0;
}

START_TEST(refusals) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_name name = core_name("default");
    struct gb_stream_view stream;
    struct gb_event_view event;
    char text[100] = "";
    char data[10] = {0};
    struct gb_page page = {.limit = 1};

    core_fixture_prepare(&f, "host:bytes=64M");
    f.config.streams_max = 2;
    f.config.events_max = 2;
    core_fixture_open(&f);
    make_session(&f, "s");
    gb_assert_fails(core_stream_make(f.core, "default", "default", &err), err, GB_ERR_STREAM_EXISTS);
    gb_assert_fails(core_stream_make(f.core, "none", "a", &err), err, GB_ERR_SESSION_NOT_FOUND);
    gb_assert_ok(core_stream_make(f.core, "default", "a", &err), err);
    gb_assert_fails(core_stream_make(f.core, "default", "a", &err), err, GB_ERR_STREAM_EXISTS);
    gb_assert_ok(core_stream_make(f.core, "default", "b", &err), err);
    gb_assert_fails(core_stream_make(f.core, "default", "c", &err), err, GB_ERR_LIMIT_REACHED);
    gb_assert_ok(core_stream_make(f.core, "s", "c", &err), err); /* another session's */
    gb_assert_fails(core_stream_get(f.core, "default", "c", &stream, &err), err, GB_ERR_STREAM_NOT_FOUND);
    gb_assert_fails(core_stream_sync(f.core, "default", "c", &err), err, GB_ERR_STREAM_NOT_FOUND);
    gb_assert_fails(core_stream_remove(f.core, "default", "c", &err), err, GB_ERR_STREAM_NOT_FOUND);
    gb_assert_fails(core_stream_remove(f.core, "default", "default", &err), err, GB_ERR_STREAM_PROTECTED);
    gb_assert_fails(core_upload_on(f.core, "default", "x", "c", "", data, 10, &err), err, GB_ERR_STREAM_NOT_FOUND);
    gb_assert_ok(core_upload_on(f.core, "default", "x", "b", "", data, 10, &err), err);
    gb_assert_fails(core_download_on(f.core, "default", "x", "c", data, 10, &err), err, GB_ERR_STREAM_NOT_FOUND);
    gb_assert_fails(core_session_sync(f.core, "none", &err), err, GB_ERR_SESSION_NOT_FOUND);
    gb_assert_fails(core_device_sync(f.core, 1, &err), err, GB_ERR_DEVICE_NOT_FOUND);
    gb_assert_ok(gb_stream_list(f.core, &name, &page, list_stream, text, &err), err);
    ck_assert_str_eq(text, "default a ");
    ck_assert(page.more);
    gb_assert_ok(core_stream_remove(f.core, "default", "a", &err), err);
    gb_assert_ok(core_stream_make(f.core, "default", "c", &err), err);

    gb_assert_ok(core_event_make(f.core, "default", "e", &err), err);
    gb_assert_fails(core_event_make(f.core, "default", "e", &err), err, GB_ERR_EVENT_EXISTS);
    gb_assert_fails(core_event_record(f.core, "default", "g", "b", &err), err, GB_ERR_EVENT_NOT_FOUND);
    gb_assert_fails(core_event_record(f.core, "default", "e", "a", &err), err, GB_ERR_STREAM_NOT_FOUND);
    gb_assert_fails(core_event_wait(f.core, "default", "g", "b", &err), err, GB_ERR_EVENT_NOT_FOUND);
    gb_assert_fails(core_event_wait(f.core, "s", "e", "c", &err), err, GB_ERR_EVENT_NOT_FOUND);
    gb_assert_fails(core_event_wait(f.core, "none", "e", "c", &err), err, GB_ERR_SESSION_NOT_FOUND);
    gb_assert_ok(core_event_wait(f.core, "default", "e", "b", &err), err); /* never recorded */
    gb_assert_ok(core_event_get(f.core, "default", "e", &event, &err), err);
    ck_assert(!event.recorded && event.done);
    gb_assert_ok(core_event_record(f.core, "default", "e", "b", &err), err);
    gb_assert_ok(core_event_get(f.core, "default", "e", &event, &err), err);
    ck_assert(event.recorded && event.done);
    ck_assert_str_eq(event.stream.s, "b");
    gb_assert_ok(core_event_make(f.core, "default", "g", &err), err);
    gb_assert_fails(core_event_make(f.core, "default", "h", &err), err, GB_ERR_LIMIT_REACHED);
    text[0] = '\0';
    page.more = false;
    gb_assert_ok(gb_event_list(f.core, &name, &page, list_event, text, &err), err);
    ck_assert_str_eq(text, "e ");
    ck_assert(page.more);
    gb_assert_ok(core_event_remove(f.core, "default", "e", &err), err);
    gb_assert_fails(core_event_remove(f.core, "default", "e", &err), err, GB_ERR_EVENT_NOT_FOUND);
    gb_assert_fails(core_event_get(f.core, "default", "e", &event, &err), err, GB_ERR_EVENT_NOT_FOUND);
    core_fixture_done(&f);
}
END_TEST

START_TEST(a_buffer_outlives_its_stream) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_upload_params("default", "x", BYTES);
    struct gb_stream_view view;
    struct gb_buffer_rec rec;
    char *data = malloc(BYTES);
    char *back = malloc(BYTES);

    core_fixture_init(&f, specs[_i]);
    gb_assert_ok(core_stream_make(f.core, "default", "a", &err), err);
    gb_assert_ok(core_stream_make(f.core, "default", "b", &err), err);
    gb_assert_ok(core_stream_get(f.core, "default", "a", &view, &err), err);
    ck_assert_uint_eq(view.devices, 0);
    core_bytes(1, data, BYTES);
    gb_assert_ok(core_upload_on(f.core, "default", "x", "a", "", data, BYTES, &err), err);
    gb_assert_ok(core_buffer_get(f.core, "default", "x", &rec, &err), err);
    ck_assert_str_eq(rec.stream.s, "a");
    gb_assert_ok(core_stream_get(f.core, "default", "a", &view, &err), err);
    ck_assert_uint_eq(view.devices, 1);
    gb_assert_ok(core_download_on(f.core, "default", "x", "b", back, BYTES, &err), err);
    ck_assert_int_eq(memcmp(data, back, BYTES), 0);
    gb_assert_ok(core_stream_remove(f.core, "default", "a", &err), err);
    gb_assert_ok(core_stream_make(f.core, "default", "a", &err), err);
    gb_assert_ok(core_download_on(f.core, "default", "x", "a", back, BYTES, &err), err);
    ck_assert_int_eq(memcmp(data, back, BYTES), 0);
    /* A part is written on another stream: the rest comes from memory whose stream is gone. */
    core_bytes(2, data + 100, 1000);
    p.partial = true;
    p.offset = 100;
    p.bytes = 1000;
    p.buffer.stream = core_name("b");
    gb_assert_ok(core_upload(f.core, &p, data + 100, NULL, &err), err);
    gb_assert_ok(core_download_on(f.core, "default", "x", "", back, BYTES, &err), err);
    ck_assert_int_eq(memcmp(data, back, BYTES), 0);
    /* In place, on another stream than its own. */
    core_bytes(3, data + 500, 1000);
    p.in_place = true;
    p.offset = 500;
    p.buffer.stream = core_name("a");
    gb_assert_ok(core_upload(f.core, &p, data + 500, NULL, &err), err);
    gb_assert_ok(core_download_on(f.core, "default", "x", "b", back, BYTES, &err), err);
    ck_assert_int_eq(memcmp(data, back, BYTES), 0);
    gb_assert_ok(core_stream_remove(f.core, "default", "a", &err), err);
    gb_assert_ok(core_stream_remove(f.core, "default", "b", &err), err);
    gb_assert_ok(core_buffer_delete(f.core, "default", "x", &err), err);
    core_until_idle(&f);
    core_fixture_done(&f);
    free(data);
    free(back);
}
END_TEST

static bool idle_stream(void *arg) {
    struct core_fixture *f = arg;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_stream_view view;

    gb_assert_ok(core_stream_get(f->core, "s", "st", &view, &err), err);
    return !view.busy;
}

/* If one session's stream stalls, all other work continues, also on other streams of that session. */
START_TEST(one_stream_stands) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_locator at = core_at("s", "st");
    struct gb_name def = core_name("default");
    struct gb_stream_view view;
    struct core_call stream_call;
    struct core_call session_call;
    struct core_call device_call;
    struct core_gate gate;
    char *data = malloc(BYTES);
    char *back = malloc(BYTES);
    int i;

    core_fixture_init(&f, specs[_i]);
    make_session(&f, "s");
    make_session(&f, "t");
    gb_assert_ok(core_stream_make(f.core, "s", "st", &err), err);
    core_bytes(1, data, BYTES);
    gb_assert_ok(core_upload_on(f.core, "s", "x", "st", "", data, BYTES, &err), err);
    core_gate_close_on(&gate, &f, "s", "st", 0);
    gb_assert_ok(core_stream_get(f.core, "s", "st", &view, &err), err);
    ck_assert(view.busy);
    core_call_begin(&stream_call);
    gb_stream_sync_call(f.core, &at, stream_call.call.base);
    core_call_begin(&session_call);
    gb_session_sync_call(f.core, &at.session, session_call.call.base);
    core_call_begin(&device_call);
    gb_device_sync_call(f.core, 0, device_call.call.base);
    for (i = 0; i < 20; i++) {
        const char *session = i % 2 ? "t" : "s";

        gb_assert_ok(core_upload_on(f.core, session, "y", "", "", data, BYTES, &err), err);
        gb_assert_ok(core_download_on(f.core, session, "y", "", back, BYTES, &err), err);
        ck_assert_int_eq(memcmp(data, back, BYTES), 0);
        gb_assert_ok(core_buffer_create(f.core, session, "z", 1000, 0, &err), err);
        gb_assert_ok(core_stream_sync(f.core, session, "default", &err), err);
        gb_assert_ok(core_buffer_delete(f.core, session, "z", &err), err);
        gb_assert_ok(core_pool_trim(f.core, session, "default", 0, NULL, &err), err);
        gb_assert_ok(core_session_sync(f.core, "t", &err), err);
    }
    ck_assert(!core_call_over(&stream_call));
    ck_assert(!core_call_over(&session_call));
    ck_assert(!core_call_over(&device_call));
    gb_assert_ok(core_download_on(f.core, "s", "x", "", back, BYTES, &err), err); /* of that stream, on another */
    gb_assert_ok(core_buffer_delete(f.core, "s", "x", &err), err);                /* its free is stalled */
    core_gate_open(&gate);
    gb_assert_ok(core_call_end(&stream_call, &err), err);
    gb_assert_ok(core_call_end(&session_call, &err), err);
    gb_assert_ok(core_call_end(&device_call, &err), err);
    gb_assert_ok(core_stream_sync(f.core, "s", "st", &err), err);
    core_until(idle_stream, &f, "the stream is idle");            /* a device says so a moment after its last event */
    gb_assert_ok(core_stream_sync(f.core, def.s, "", &err), err); /* without a part: nothing to wait for */
    gb_assert_ok(core_session_delete(f.core, "s", &err), err);
    gb_assert_ok(core_session_delete(f.core, "t", &err), err);
    core_until_idle(&f);
    core_fixture_done(&f);
    free(data);
    free(back);
}
END_TEST

static uint64_t held(struct core_fixture *f) {
    const struct gb_name name = {"default"};
    struct gb_session *s = gb_session_find(f->core, &name, NULL);
    uint64_t n;

    pthread_mutex_lock(&s->lock);
    n = s->streams_held;
    pthread_mutex_unlock(&s->lock);
    gb_session_unref(s);
    return n;
}

struct drain {
    struct core_fixture *f;
    uint64_t held;
};

static bool drained(void *arg) {
    struct drain *d = arg;

    return held(d->f) == d->held;
}

/* Removed while it stands and while an upload uses it: the name is free at once, the work is done, then it goes. */
START_TEST(a_busy_stream_drains) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_upload_params("default", "x", BYTES);
    struct drain d = {.f = &f};
    struct gb_stream_view view;
    struct gb_upload *upload;
    struct core_gate gate;
    struct core_wake w;
    char *data = malloc(BYTES);
    char *back = malloc(BYTES);

    core_fixture_prepare(&f, specs[_i]);
    f.config.streams_max = 2;
    core_fixture_open(&f);
    core_wake_init(&w);
    core_bytes(1, data, BYTES);
    gb_assert_ok(core_stream_make(f.core, "default", "st", &err), err);
    core_gate_close_on(&gate, &f, "default", "st", 0);
    p.buffer.stream = core_name("st");
    p.waker = core_waker(&w);
    gb_assert_ok(gb_upload_begin(f.core, &p, &upload, &err), err);
    gb_assert_ok(core_stream_remove(f.core, "default", "st", &err), err);
    gb_assert_fails(core_stream_get(f.core, "default", "st", &view, &err), err, GB_ERR_STREAM_NOT_FOUND);
    gb_assert_ok(core_stream_make(f.core, "default", "st", &err), err);
    gb_assert_fails(core_stream_make(f.core, "default", "more", &err), err, GB_ERR_LIMIT_REACHED); /* it still counts */
    gb_assert_ok(core_upload_on(f.core, "default", "y", "st", "", data, BYTES, &err), err);        /* the new one */
    d.held = 2;
    ck_assert(drained(&d));
    core_gate_open(&gate);
    gb_assert_ok(core_upload_send(upload, &w, data, BYTES, &err), err);
    gb_assert_ok(core_upload_finish(upload, &w, NULL, &err), err);
    gb_upload_free(upload);
    d.held = 1;
    core_until(drained, &d, "the removed stream is gone");
    gb_assert_ok(core_download_on(f.core, "default", "x", "st", back, BYTES, &err), err);
    ck_assert_int_eq(memcmp(data, back, BYTES), 0);
    gb_assert_ok(core_buffer_delete(f.core, "default", "x", &err), err);
    gb_assert_ok(core_buffer_delete(f.core, "default", "y", &err), err);
    core_until_idle(&f);
    /* At the end a session takes its streams down, the one that stands too. */
    core_gate_close_on(&gate, &f, "default", "st", 0);
    gb_assert_ok(core_stream_remove(f.core, "default", "st", &err), err);
    core_gate_open(&gate);
    core_fixture_done(&f);
    core_wake_done(&w);
    free(data);
    free(back);
}
END_TEST

/* Writes memory whose stream has drained to the disk. The stream does not drain once more. */
static void store_drained(struct core_fixture *f, const char *name, bool evicts) {
    struct drain none = {.f = f, .held = 0};
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(core_stream_make(f->core, "default", "st", &err), err);
    core_bytes(1, durable_sent, BYTES);
    gb_assert_ok(core_upload_on(f->core, "default", name, "st", "", durable_sent, BYTES, &err), err);
    gb_assert_ok(core_stream_remove(f->core, "default", "st", &err), err);
    core_until(drained, &none, "the removed stream is gone");
    if (evicts)
        gb_assert_ok(durable_do(f, gb_buffer_evict, name, NULL, &err), err);
    else
        gb_assert_ok(durable_patch(f, name, GB_DURABILITY_SYNC, &err), err);
    ck_assert_uint_eq(held(f), 0);
    durable_assert_bytes(f, name, 1, BYTES);
}

START_TEST(a_drained_stream_is_not_used_again) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    int i;

    durable_open(&f, specs[_i]);
    for (i = 0; i < 4; i++)
        store_drained(&f, i < 2 ? "x" : "y", i % 2 == 0);
    gb_assert_ok(core_buffer_delete(f.core, "default", "x", &err), err);
    gb_assert_ok(core_buffer_delete(f.core, "default", "y", &err), err);
    gb_assert_ok(core_stream_make(f.core, "default", "st", &err), err);
    ck_assert_uint_eq(held(&f), 1);
    gb_assert_ok(core_stream_remove(f.core, "default", "st", &err), err);
    core_until_idle(&f);
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_streams");
    TCase *tc = tcase_create("streams");

    tcase_add_test(tc, refusals);
    tcase_add_loop_test(tc, a_buffer_outlives_its_stream, 0, 3);
    tcase_add_loop_test(tc, one_stream_stands, 0, 3);
    tcase_add_loop_test(tc, a_busy_stream_drains, 0, 2);
    tcase_add_loop_test(tc, a_drained_stream_is_not_used_again, 0, 3);
    tcase_set_timeout(tc, 60);
    suite_add_tcase(suite, tc);
    return gb_test_run(suite);
}
