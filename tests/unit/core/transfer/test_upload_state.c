/* The states of an upload: the table of the permitted steps, and those that uploads make. */
#include <signal.h>
#include <string.h>

#include "core/transfer/upload.h"
#include "core_fixture.h"
#include "gb_test.h"

/* A row for each state; '1': the step into the state of that column is permitted. */
static const char *const table[GB_UPLOAD_STATES] = {
    /* planned allocating open ended committing done failed */
    [GB_UPLOAD_PLANNED] = "0110000", [GB_UPLOAD_ALLOCATING] = "0011001", [GB_UPLOAD_OPEN] = "0101001",
    [GB_UPLOAD_ENDED] = "0000101",   [GB_UPLOAD_COMMITTING] = "0010011", [GB_UPLOAD_DONE] = "0000000",
    [GB_UPLOAD_FAILED] = "0000000",
};

START_TEST(table_is_as_documented) {
    enum gb_upload_state from;
    enum gb_upload_state to;

    for (from = GB_UPLOAD_PLANNED; from <= GB_UPLOAD_FAILED; from++) {
        for (to = GB_UPLOAD_PLANNED; to <= GB_UPLOAD_FAILED; to++)
            ck_assert_msg(gb_upload_step_permitted(from, to) == (table[from][to] == '1'), "from %d to %d", from, to);
    }
}
END_TEST

static bool steps_to(struct gb_upload *u, enum gb_upload_state from, enum gb_upload_state to) {
    bool r;

    memset(u, 0, sizeof(*u));
    u->state = from;
    r = gb_upload_step_locked(u, to);
    ck_assert_int_eq(u->state, r ? to : from);
    ck_assert_int_eq(u->t.error.code, r ? GB_OK : GB_ERR_INTERNAL);
    return r;
}

START_TEST(permitted_steps_are_made) {
    static struct gb_upload u;
    enum gb_upload_state from;
    enum gb_upload_state to;

    for (from = GB_UPLOAD_PLANNED; from <= GB_UPLOAD_FAILED; from++) {
        for (to = GB_UPLOAD_PLANNED; to <= GB_UPLOAD_FAILED; to++) {
            if (table[from][to] == '1')
                ck_assert(steps_to(&u, from, to));
        }
    }
}
END_TEST

/* A debug build stops here; another one fails the upload and leaves its state alone. */
START_TEST(other_steps_are_not) {
    static struct gb_upload u;

    ck_assert(!steps_to(&u, GB_UPLOAD_DONE, GB_UPLOAD_OPEN));
}
END_TEST

/* --- of a real one ------------------------------------------------------------------------------------------------ */

static enum gb_upload_state state_of(struct gb_upload *u) {
    enum gb_upload_state state;

    pthread_mutex_lock(&u->t.lock);
    state = u->state;
    pthread_mutex_unlock(&u->t.lock);
    return state;
}

struct started {
    struct core_fixture f;
    struct core_wake w;
    struct gb_error err;
    struct gb_upload *upload;
};

static void start(struct started *s, const char *spec) {
    struct gb_upload_params p = core_upload_params("default", "x", 3);

    core_fixture_init(&s->f, spec);
    core_wake_init(&s->w);
    s->err = GB_ERROR_INIT;
    p.waker = core_waker(&s->w);
    gb_assert_ok(gb_upload_begin(s->f.core, &p, &s->upload, &s->err), s->err);
}

static void stop(struct started *s) {
    gb_upload_free(s->upload);
    core_buffer_delete(s->f.core, "default", "x", &s->err); /* if it is there */
    core_until_idle(&s->f);
    core_wake_done(&s->w);
    core_fixture_done(&s->f);
}

static const char *const specs[] = {"host:bytes=64M", "host:discrete,bytes=64M"};

START_TEST(bytes_open_end_and_commit_it) {
    struct started s;

    start(&s, specs[_i]);
    ck_assert_int_ne(state_of(s.upload), GB_UPLOAD_PLANNED);
    gb_assert_ok(core_upload_send(s.upload, &s.w, "abc", 3, &s.err), s.err);
    ck_assert_int_eq(state_of(s.upload), GB_UPLOAD_OPEN);
    gb_assert_ok(core_upload_finish(s.upload, &s.w, NULL, &s.err), s.err);
    ck_assert_int_eq(state_of(s.upload), GB_UPLOAD_DONE);
    stop(&s);
}
END_TEST

START_TEST(an_end_too_early_leaves_it_open) {
    struct started s;

    start(&s, specs[_i]);
    gb_assert_ok(core_upload_send(s.upload, &s.w, "a", 1, &s.err), s.err);
    gb_assert_fails(gb_upload_end(s.upload, &s.err), s.err, GB_ERR_INCOMPLETE_BODY);
    ck_assert_int_eq(state_of(s.upload), GB_UPLOAD_OPEN);
    gb_assert_ok(core_upload_send(s.upload, &s.w, "bc", 2, &s.err), s.err);
    gb_assert_ok(core_upload_finish(s.upload, &s.w, NULL, &s.err), s.err);
    ck_assert_int_eq(state_of(s.upload), GB_UPLOAD_DONE);
    stop(&s);
}
END_TEST

START_TEST(the_end_of_the_session_fails_it) {
    struct gb_session_params session = {.name = core_name("gone")};
    struct gb_upload_params p = core_upload_params("gone", "x", 3);
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload *upload;
    struct core_fixture f;
    struct core_wake w;
    void *room;
    size_t n;

    core_fixture_init(&f, specs[_i]);
    core_wake_init(&w);
    p.waker = core_waker(&w);
    gb_assert_ok(core_session_create(f.core, &session, &err), err);
    gb_assert_ok(gb_upload_begin(f.core, &p, &upload, &err), err);
    gb_assert_ok(core_upload_send(upload, &w, "a", 1, &err), err);
    gb_assert_ok(core_session_delete(f.core, "gone", &err), err);
    gb_assert_fails(gb_upload_room(upload, &room, &n, &err), err, GB_ERR_SESSION_NOT_FOUND);
    ck_assert_int_eq(state_of(upload), GB_UPLOAD_FAILED);
    gb_assert_fails(gb_upload_end(upload, &err), err, GB_ERR_SESSION_NOT_FOUND);
    gb_upload_free(upload);
    core_until_idle(&f);
    core_wake_done(&w);
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("upload_state");
    TCase *others = tcase_create("others");

    gb_test_add(suite, "table", table_is_as_documented, 10);
    gb_test_add(suite, "permitted", permitted_steps_are_made, 10);
#ifdef __OPTIMIZE__
    tcase_add_test(others, other_steps_are_not);
#else
    tcase_add_test_raise_signal(others, other_steps_are_not, SIGABRT);
#endif
    suite_add_tcase(suite, others);
    gb_test_add_loop(suite, "committed", bytes_open_end_and_commit_it, 60, 2);
    gb_test_add_loop(suite, "too_early", an_end_too_early_leaves_it_open, 60, 2);
    gb_test_add_loop(suite, "session", the_end_of_the_session_fails_it, 60, 2);
    return gb_test_run(suite);
}
