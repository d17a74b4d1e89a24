/* Sessions that go from node to node: frozen where they are, and arriving where they are to be. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/session/session.h"
#include "gb_test.h"
#include "multipart_fixture.h"

#define BYTES 1000u
#define CLAIM "of-the-test"
#define LONG_MS 600000

static char data[BYTES];
static char back[BYTES];
static struct core_fixture f;
static struct gb_error err;

/* --- helpers ------------------------------------------------------------------------------------------------------ */

static void create(const char *name, int64_t epoch) {
    struct gb_session_params p = {.name = core_name(name), .fleet_epoch = epoch};

    strcpy(p.fleet_claim, CLAIM);
    gb_assert_ok(core_session_create(f.core, &p, &err), err);
}

static void put(const char *session, const char *name) {
    struct gb_upload_params p = core_upload_params(session, name, BYTES);

    gb_assert_ok(core_upload(f.core, &p, data, NULL, &err), err);
}

static int freeze(const char *claim, unsigned ms, uint64_t *ret) {
    struct gb_name s = core_name("s");

    err = GB_ERROR_INIT;
    return gb_session_freeze(f.core, &s, claim, ms, ret, &err);
}

static bool is_quiet(uint64_t number) {
    struct gb_name s = core_name("s");
    bool quiet = false;

    err = GB_ERROR_INIT;
    gb_assert_ok(gb_session_frozen(f.core, &s, number, &quiet, &err), err);
    return quiet;
}

static void thaw(uint64_t number) {
    struct gb_name s = core_name("s");

    gb_session_thaw(f.core, &s, number);
}

typedef void frozen_fn(struct gb_core *core, const struct gb_name *name, uint64_t freeze, struct gb_session_call *call);

static int change(frozen_fn *fn, uint64_t number) {
    struct gb_name s = core_name("s");

    err = GB_ERROR_INIT;
    return core_do(&err, session, fn, f.core, &s, number);
}

static int give(uint64_t number) {
    return change(gb_session_give, number);
}

static int regain(uint64_t number) {
    return change(gb_session_regain, number);
}

static int arrive(const char *session, const char *name, const char *claim) {
    struct gb_session_params p = {.name = core_name(name), .fleet_epoch = 7};
    struct gb_name from = core_name(session);

    err = GB_ERROR_INIT;
    strcpy(p.fleet_claim, claim);
    return core_do(&err, session, gb_session_arrive, f.core, &from, &p);
}

static int expect_name(const char *session, const char *name) {
    struct gb_name from = core_name(session);
    struct gb_name to = core_name(name);

    err = GB_ERROR_INIT;
    return gb_session_expect(f.core, &from, &to, &err);
}

static bool bond_of(const char *name, struct gb_session_bond *ret) {
    return gb_session_bond(f.core, name, ret);
}

static void setup(void) {
    core_bytes(7, data, BYTES);
    core_fixture_init(&f, "host");
    err = GB_ERROR_INIT;
}

static void teardown(void) {
    core_fixture_done(&f);
}

/* A registered session with a buffer. */
static void setup_s(void) {
    setup();
    create("s", 3);
    put("s", "b");
}

/* --- frozen ------------------------------------------------------------------------------------------------------- */

START_TEST(clients_change_nothing_and_read) {
    struct gb_upload_params up = core_upload_params("s", "b", BYTES);
    struct gb_session_params patch = {.has_idle_ttl_s = true, .idle_ttl_s = 9};
    struct gb_device_write_params fill = core_fill_params("s", "b", 7, 1);
    uint64_t number;

    gb_assert_ok(freeze(CLAIM, LONG_MS, &number), err);
    ck_assert(is_quiet(number));
    gb_assert_fails(core_upload(f.core, &up, data, NULL, &err), err, GB_ERR_SESSION_MOVING);
    up.in_place = true;
    gb_assert_fails(core_upload(f.core, &up, data, NULL, &err), err, GB_ERR_SESSION_MOVING);
    gb_assert_fails(core_buffer_create(f.core, "s", "n", 10, 0, &err), err, GB_ERR_SESSION_MOVING);
    gb_assert_fails(core_buffer_delete(f.core, "s", "b", &err), err, GB_ERR_SESSION_MOVING);
    gb_assert_fails(core_session_patch(f.core, "s", &patch, &err), err, GB_ERR_SESSION_MOVING);
    gb_assert_fails(core_session_delete(f.core, "s", &err), err, GB_ERR_SESSION_MOVING);
    gb_assert_fails(core_write(f.core, &fill, NULL, &err), err, GB_ERR_SESSION_MOVING);
    gb_assert_fails(intake_begin(f.core, &up, NULL, &err), err, GB_ERR_SESSION_MOVING);
    gb_assert_ok(core_download(f.core, "s", "b", 0, BYTES, back, &err), err);
    ck_assert_int_eq(memcmp(back, data, BYTES), 0);
    thaw(number + 1); /* another one's */
    gb_assert_fails(core_buffer_delete(f.core, "s", "b", &err), err, GB_ERR_SESSION_MOVING);
    thaw(number);
    put("s", "b");
}
END_TEST

START_TEST(it_ends_by_itself_unless_it_is_given) {
    struct gb_name s = core_name("s");
    uint64_t number;
    bool quiet;

    gb_assert_ok(freeze(CLAIM, 0, &number), err);
    put("s", "b");
    gb_assert_fails(gb_session_frozen(f.core, &s, number, &quiet, &err), err, GB_ERR_SESSION_MOVING);
    gb_assert_fails(give(number), err, GB_ERR_SESSION_MOVING);
    gb_assert_ok(freeze(CLAIM, LONG_MS, &number), err);
    gb_assert_fails(freeze(CLAIM, LONG_MS, &number), err, GB_ERR_SESSION_MOVING);
    gb_assert_ok(give(number), err);
    ck_assert(is_quiet(number));
    thaw(number); /* that is too late */
    ck_assert(is_quiet(number));
    gb_assert_ok(regain(number), err);
    gb_assert_fails(regain(number), err, GB_ERR_SESSION_MOVING);
    put("s", "b");
}
END_TEST

static void reopen(void) {
    core_fixture_close(&f);
    core_fixture_open(&f);
}

static void raise_to(int64_t epoch) {
    struct gb_name s = core_name("s");

    gb_assert_ok(core_do(&err, session, gb_session_raise, f.core, &s, CLAIM, epoch), err);
}

/* The process ends before it knows whether the session went: the next one changes nothing in it until it knows. */
START_TEST(it_is_frozen_in_the_next_process) {
    struct gb_name s = core_name("s");
    struct gb_session_view view;
    uint64_t number;

    gb_assert_ok(freeze(CLAIM, LONG_MS, &number), err);
    gb_assert_ok(give(number), err);
    reopen();
    gb_assert_fails(core_buffer_create(f.core, "s", "n", 10, 0, &err), err, GB_ERR_SESSION_MOVING);
    gb_assert_ok(gb_session_get(f.core, &s, &view, &err), err);
    ck_assert(view.rec.given);
    gb_session_rec_done(&view.rec);
    thaw(number);
    gb_assert_fails(regain(number), err, GB_ERR_SESSION_MOVING); /* the freeze is the former process's */
    gb_assert_fails(core_buffer_create(f.core, "s", "n", 10, 0, &err), err, GB_ERR_SESSION_MOVING);
    raise_to(4);
    gb_assert_ok(core_buffer_create(f.core, "s", "n", 10, 0, &err), err);
    reopen();
    gb_assert_ok(core_buffer_create(f.core, "s", "m", 10, 0, &err), err);
}
END_TEST

/* One that was regained is not frozen there. */
START_TEST(it_is_regained_before) {
    uint64_t number;

    gb_assert_ok(freeze(CLAIM, LONG_MS, &number), err);
    gb_assert_ok(give(number), err);
    gb_assert_ok(regain(number), err);
    reopen();
    gb_assert_ok(core_buffer_create(f.core, "s", "n", 10, 0, &err), err);
}
END_TEST

START_TEST(it_must_be_that_session) {
    uint64_t number;

    gb_assert_fails(freeze("another", LONG_MS, &number), err, GB_ERR_SESSION_NOT_FOUND);
    gb_assert_ok(core_session_delete(f.core, "s", &err), err);
    gb_assert_fails(freeze(CLAIM, LONG_MS, &number), err, GB_ERR_SESSION_NOT_FOUND);
}
END_TEST

/* A write that began before ends as it would have; one into fresh memory does not. */
START_TEST(what_had_begun) {
    struct gb_upload_params up = core_upload_params("s", "b", BYTES);
    bool in_place = _i == 1;
    struct gb_upload *upload;
    struct core_wake w;
    uint64_t number;

    core_wake_init(&w);
    up.waker = core_waker(&w);
    up.in_place = in_place;
    gb_assert_ok(gb_upload_begin(f.core, &up, &upload, &err), err);
    gb_assert_ok(freeze(CLAIM, LONG_MS, &number), err);
    ck_assert_int_eq(is_quiet(number), !in_place);
    if (in_place)
        gb_assert_fails(give(number), err, GB_ERR_BUFFER_BUSY);
    gb_assert_ok(core_upload_send(upload, &w, data, BYTES, &err), err);
    if (in_place)
        gb_assert_ok(core_upload_finish(upload, &w, NULL, &err), err);
    else
        gb_assert_fails(core_upload_finish(upload, &w, NULL, &err), err, GB_ERR_SESSION_MOVING);
    gb_upload_free(upload);
    ck_assert(is_quiet(number));
    gb_assert_ok(core_download(f.core, "s", "b", 0, BYTES, back, &err), err);
    core_wake_done(&w);
}
END_TEST

START_TEST(parts_that_are_open) {
    struct gb_upload_params part = core_upload_params("s", "m", BYTES);
    struct gb_name s = core_name("s");
    struct intake_result made;
    uint64_t number;

    gb_assert_ok(intake_begin(f.core, &part, &made, &err), err);
    gb_assert_fails(freeze(CLAIM, LONG_MS, &number), err, GB_ERR_BUFFER_BUSY);
    gb_assert_ok(core_do(&err, multipart, gb_multipart_delete, f.core, &s, made.view.id), err);
    gb_assert_ok(freeze(CLAIM, LONG_MS, &number), err);
}
END_TEST

static void set_aside(void) {
    struct gb_name s = core_name("s");

    gb_assert_ok(core_do(&err, session, gb_session_set_aside, f.core, &s, CLAIM, 60), err);
}

static void give_away(void) {
    uint64_t number;

    gb_assert_ok(freeze(CLAIM, LONG_MS, &number), err);
    gb_assert_ok(give(number), err);
    set_aside();
}

/* It was given away: it is set aside though it is frozen, and then has its own reasons. */
START_TEST(it_is_set_aside) {
    struct gb_session_bond bond;

    give_away();
    ck_assert(!bond_of("s", &bond));
    gb_assert_fails(core_buffer_delete(f.core, "s.superseded-3", "b", &err), err, GB_ERR_SESSION_MOVING);
    gb_assert_ok(core_session_delete(f.core, "s.superseded-3", &err), err);
    core_until_idle(&f);
}
END_TEST

static enum gb_code found(void) {
    struct gb_session_view view = {.used_bytes = 0};
    struct gb_name s = core_name("s");

    err = GB_ERROR_INIT;
    if (gb_session_get(f.core, &s, &view, &err) == 0)
        gb_session_rec_done(&view.rec);
    return err.code;
}

/* What had begun may look its session up again: it is at another node, unless the fleet has none of
 * that name any more. */
START_TEST(its_name_is_remembered) {
    give_away();
    ck_assert_int_eq(found(), GB_ERR_SESSION_MOVING);
    gb_assert_ok(core_session_delete(f.core, "s.superseded-3", &err), err);
    ck_assert_int_eq(found(), GB_ERR_SESSION_MOVING);
    ck_assert_ptr_nonnull(strstr(err.detail, "\"s\""));
    create("s", 5);
    ck_assert_int_eq(found(), GB_OK);
    gb_assert_ok(core_session_delete(f.core, "s", &err), err);
    ck_assert_int_eq(found(), GB_ERR_SESSION_NOT_FOUND);
    create("s", 6);
    give_away();
    gb_session_forget_left(f.core, &(struct gb_name){"s"});
    ck_assert_int_eq(found(), GB_ERR_SESSION_NOT_FOUND);
}
END_TEST

/* A download has what it sends; one of a session that was deleted ends. */
START_TEST(a_download_goes_on) {
    bool moves = _i == 0;
    struct gb_name s = core_name("s");
    struct gb_name b = core_name("b");
    struct gb_name stream = core_name("default");
    struct gb_download *download;
    struct core_wake w;

    core_wake_init(&w);
    gb_assert_ok(gb_download_open(f.core, &s, &b, &stream, core_waker(&w), &download, &err), err);
    gb_assert_ok(gb_download_start(download, 0, BYTES, &err), err);
    if (moves)
        give_away();
    gb_assert_ok(core_session_delete(f.core, moves ? "s.superseded-3" : "s", &err), err);
    if (moves)
        gb_assert_ok(core_download_read(download, &w, back, BYTES, &err), err);
    else
        gb_assert_fails(core_download_read(download, &w, back, BYTES, &err), err, GB_ERR_SESSION_NOT_FOUND);
    ck_assert(!moves || memcmp(back, data, BYTES) == 0);
    gb_download_free(download, moves);
    core_wake_done(&w);
}
END_TEST

/* --- arriving ----------------------------------------------------------------------------------------------------- */

START_TEST(it_gets_its_name) {
    struct gb_session_bond bond;

    create("s.arriving-7", 0);
    ck_assert(bond_of("s.arriving-7", &bond));
    ck_assert(bond.arrives);
    put("s.arriving-7", "b");
    gb_assert_ok(expect_name("s.arriving-7", "s"), err);
    gb_assert_ok(expect_name("s.arriving-7", "s"), err);
    ck_assert(!bond_of("s", &bond));
    gb_assert_fails(core_session_create(f.core, &(struct gb_session_params){.name = core_name("s")}, &err), err,
                    GB_ERR_SESSION_EXISTS);
    gb_assert_fails(arrive("s.arriving-7", "s", "another"), err, GB_ERR_SESSION_NOT_FOUND);
    gb_assert_ok(arrive("s.arriving-7", "s", CLAIM), err);
    ck_assert(!bond_of("s.arriving-7", &bond));
    ck_assert(bond_of("s", &bond));
    ck_assert_int_eq(bond.epoch, 7);
    ck_assert(!bond.arrives);
    gb_assert_ok(core_download(f.core, "s", "b", 0, BYTES, back, &err), err);
    ck_assert_int_eq(memcmp(back, data, BYTES), 0);
    gb_assert_fails(arrive("s", "s", CLAIM), err, GB_ERR_SESSION_NOT_FOUND);
    create("s.arriving-7", 0); /* the name is free */
}
END_TEST

START_TEST(a_name_that_is_taken) {
    create("s.arriving-7", 0);
    gb_assert_ok(core_session_create(f.core, &(struct gb_session_params){.name = core_name("s")}, &err), err);
    gb_assert_fails(expect_name("s.arriving-7", "s"), err, GB_ERR_SESSION_EXISTS);
    gb_assert_fails(arrive("s.arriving-7", "s", CLAIM), err, GB_ERR_SESSION_EXISTS);
    gb_assert_ok(core_session_delete(f.core, "s", &err), err);
    gb_assert_ok(arrive("s.arriving-7", "s", CLAIM), err);
}
END_TEST

START_TEST(one_that_does_not_arrive_gives_the_name_back) {
    create("s.arriving-7", 0);
    gb_assert_ok(expect_name("s.arriving-7", "s"), err);
    gb_assert_ok(core_session_delete(f.core, "s.arriving-7", &err), err);
    gb_assert_ok(core_session_create(f.core, &(struct gb_session_params){.name = core_name("s")}, &err), err);
}
END_TEST

/* Arrived, it moves to a third node: it has had three names then. */
START_TEST(it_goes_on) {
    struct gb_session_bond bond;

    create("s.arriving-7", 0);
    put("s.arriving-7", "b");
    gb_assert_ok(arrive("s.arriving-7", "s", CLAIM), err);
    set_aside();
    ck_assert(bond_of("s.superseded-7", &bond));
    gb_assert_ok(core_download(f.core, "s.superseded-7", "b", 0, BYTES, back, &err), err);
    gb_assert_ok(core_session_delete(f.core, "s.superseded-7", &err), err);
    core_until_idle(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_move");
    TCase *frozen = tcase_create("frozen");
    TCase *arriving = tcase_create("arriving");

    tcase_add_checked_fixture(frozen, setup_s, teardown);
    tcase_add_test(frozen, clients_change_nothing_and_read);
    tcase_add_test(frozen, it_ends_by_itself_unless_it_is_given);
    tcase_add_test(frozen, it_must_be_that_session);
    tcase_add_test(frozen, it_is_frozen_in_the_next_process);
    tcase_add_test(frozen, it_is_regained_before);
    tcase_add_loop_test(frozen, what_had_begun, 0, 2);
    tcase_add_test(frozen, parts_that_are_open);
    tcase_add_test(frozen, it_is_set_aside);
    tcase_add_test(frozen, its_name_is_remembered);
    tcase_add_loop_test(frozen, a_download_goes_on, 0, 2);
    tcase_set_timeout(frozen, 60);
    suite_add_tcase(suite, frozen);
    tcase_add_checked_fixture(arriving, setup, teardown);
    tcase_add_test(arriving, it_gets_its_name);
    tcase_add_test(arriving, a_name_that_is_taken);
    tcase_add_test(arriving, one_that_does_not_arrive_gives_the_name_back);
    tcase_add_test(arriving, it_goes_on);
    tcase_set_timeout(arriving, 60);
    suite_add_tcase(suite, arriving);
    return gb_test_run(suite);
}
