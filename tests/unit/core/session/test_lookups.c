/* How often a request looks its session up: once, where it holds the session. The linker puts the functions below
 * before those of the core. */
#include "core/session/session.h"
#include "core_fixture.h"
#include "gb_test.h"

static unsigned lookups;

struct gb_session *__real_gb_session_use(struct gb_core *core, const struct gb_name *name, struct gb_error *err);
struct gb_session *__real_gb_session_find(struct gb_core *core, const struct gb_name *name, struct gb_error *err);
struct gb_session *__wrap_gb_session_use(struct gb_core *core, const struct gb_name *name, struct gb_error *err);
struct gb_session *__wrap_gb_session_find(struct gb_core *core, const struct gb_name *name, struct gb_error *err);

struct gb_session *__wrap_gb_session_use(struct gb_core *core, const struct gb_name *name, struct gb_error *err) {
    lookups++;
    return __real_gb_session_use(core, name, err);
}

struct gb_session *__wrap_gb_session_find(struct gb_core *core, const struct gb_name *name, struct gb_error *err) {
    lookups++;
    return __real_gb_session_find(core, name, err);
}

/* With "x" of 3 bytes in "default". */
static void open_fixture(struct core_fixture *f, struct core_wake *w, struct gb_upload_params *p) {
    struct gb_error err = GB_ERROR_INIT;

    core_fixture_init(f, "host:bytes=64M");
    core_wake_init(w);
    *p = core_upload_params("default", "x", 3);
    gb_assert_ok(core_upload(f->core, p, "abc", NULL, &err), err);
    p->waker = core_waker(w);
    lookups = 0;
}

static void close_fixture(struct core_fixture *f, struct core_wake *w) {
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(core_buffer_delete(f->core, "default", "x", &err), err);
    core_until_idle(f);
    core_wake_done(w);
    core_fixture_done(f);
}

/* As PUT .../data of a body that may say what it is: record, early check, begin. */
START_TEST(upload_looks_once) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p;
    struct gb_upload *upload;
    struct gb_buffer_rec rec;
    struct core_fixture f;
    struct core_wake w;

    open_fixture(&f, &w, &p);
    p.session = gb_session_use(f.core, &p.buffer.session, &err);
    gb_assert_ok(gb_buffer_get_in(p.session, &p.buffer.name, &rec, &err), err);
    gb_assert_ok(gb_upload_check(f.core, &p, &err), err);
    gb_assert_ok(gb_upload_begin(f.core, &p, &upload, &err), err);
    gb_session_unref(p.session);
    gb_assert_ok(core_upload_send(upload, &w, "def", 3, &err), err);
    gb_assert_ok(core_upload_finish(upload, &w, NULL, &err), err);
    gb_upload_free(upload);
    ck_assert_uint_eq(lookups, 1);
    close_fixture(&f, &w);
}
END_TEST

/* As GET .../data: record, open. */
START_TEST(download_looks_once) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_download *download;
    struct gb_session *session;
    struct gb_upload_params p;
    struct gb_buffer_rec rec;
    struct core_fixture f;
    struct core_wake w;
    char back[3];

    open_fixture(&f, &w, &p);
    session = gb_session_use(f.core, &p.buffer.session, &err);
    gb_assert_ok(gb_buffer_get_in(session, &p.buffer.name, &rec, &err), err);
    gb_assert_ok(gb_download_open_in(session, &p.buffer.name, &p.buffer.stream, core_waker(&w), &download, &err), err);
    gb_session_unref(session);
    gb_assert_ok(gb_download_start(download, 0, 3, &err), err);
    gb_assert_ok(core_download_read(download, &w, back, 3, &err), err);
    gb_download_free(download, true);
    ck_assert_uint_eq(lookups, 1);
    close_fixture(&f, &w);
}
END_TEST

static void free_nothing(void *app) {
    (void)app;
}

/* As POST .../data, an upload that can be resumed: record, early check, the multipart upload, its memory. */
START_TEST(append_looks_once) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_append *append;
    struct gb_upload_params p;
    struct gb_buffer_rec rec;
    struct core_fixture f;
    uint64_t length = 3;
    struct core_wake w;

    open_fixture(&f, &w, &p);
    p.session = gb_session_use(f.core, &p.buffer.session, &err);
    gb_assert_ok(gb_buffer_get_in(p.session, &p.buffer.name, &rec, &err), err);
    gb_assert_ok(gb_upload_check(f.core, &p, &err), err);
    gb_assert_ok(gb_append_new(f.core, &p, &length, NULL, free_nothing, core_waker(&w), &append, &err), err);
    gb_session_unref(p.session);
    p.session = NULL;
    gb_assert_ok(gb_append_describe(append, &p, 0, &err), err);
    ck_assert_uint_eq(lookups, 1);
    gb_append_free(append, true);
    close_fixture(&f, &w);
}
END_TEST

/* A session that ended while it was held is not there, though another has its name by now. */
START_TEST(held_session_may_end) {
    struct gb_session_params gone = {.name = core_name("gone")};
    struct gb_upload_params p = core_upload_params("gone", "x", 3);
    struct gb_error err = GB_ERROR_INIT;
    struct gb_download *download;
    struct gb_upload *upload;
    struct gb_buffer_rec rec;
    struct core_fixture f;
    struct core_wake w;

    core_fixture_init(&f, "host:bytes=64M");
    core_wake_init(&w);
    gb_assert_ok(core_session_create(f.core, &gone, &err), err);
    p.session = gb_session_use(f.core, &p.buffer.session, &err);
    p.waker = core_waker(&w);
    gb_assert_ok(core_session_delete(f.core, "gone", &err), err);
    gb_assert_ok(core_session_create(f.core, &gone, &err), err);
    gb_session_withdraw(p.session); /* as by a close of the core meanwhile: the next one of that name stays */
    gb_assert_fails(gb_buffer_get_in(p.session, &p.buffer.name, &rec, &err), err, GB_ERR_SESSION_NOT_FOUND);
    gb_assert_fails(gb_upload_check(f.core, &p, &err), err, GB_ERR_SESSION_NOT_FOUND);
    gb_assert_fails(gb_upload_begin(f.core, &p, &upload, &err), err, GB_ERR_SESSION_NOT_FOUND);
    gb_assert_fails(gb_download_open_in(p.session, &p.buffer.name, &p.buffer.stream, core_waker(&w), &download, &err),
                    err, GB_ERR_SESSION_NOT_FOUND);
    gb_session_unref(p.session);
    gb_assert_ok(core_session_delete(f.core, "gone", &err), err);
    core_until_idle(&f);
    core_wake_done(&w);
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("upload_lookups");

    gb_test_add(suite, "upload", upload_looks_once, 60);
    gb_test_add(suite, "download", download_looks_once, 60);
    gb_test_add(suite, "append", append_looks_once, 60);
    gb_test_add(suite, "ended", held_session_may_end, 60);
    return gb_test_run(suite);
}
