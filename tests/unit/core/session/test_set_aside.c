/* Registered sessions: another epoch, and another name when another node has theirs. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/session/session.h"
#include "failing_malloc.h"
#include "gb_test.h"
#include "multipart_fixture.h"

#define BYTES 1000u
#define CLAIM "of-the-test"
#define ASIDE "s.superseded-3"

static char data[BYTES];
static char back[BYTES];

/* --- helpers ------------------------------------------------------------------------------------------------------ */

static int create(struct gb_core *core, const char *name, int64_t epoch, struct gb_error *err) {
    struct gb_session_params p = {.name = core_name(name), .fleet_epoch = epoch, .stops_on_partition = epoch > 0};

    if (epoch > 0)
        strcpy(p.fleet_claim, CLAIM);
    return core_session_create(core, &p, err);
}

/* ret: NULL, or the record without its labels. */
static int end(struct core_call *c, struct gb_session_rec *ret, struct gb_error *err) {
    int r = core_call_wait(c, err);

    if (ret && r == 0) {
        *ret = c->call.session->session.rec;
        ret->labels = NULL;
    }
    core_call_free(c);
    return r;
}

static int set_aside(struct gb_core *core, const char *name, const char *claim, struct gb_session_rec *ret,
                     struct gb_error *err) {
    struct gb_name n = core_name(name);
    struct core_call c;

    core_call_begin(&c);
    gb_session_set_aside(core, &n, claim, 60, c.call.session);
    return end(&c, ret, err);
}

static int raise_to(struct gb_core *core, const char *name, const char *claim, int64_t epoch,
                    struct gb_session_rec *ret, struct gb_error *err) {
    struct gb_name n = core_name(name);
    struct core_call c;

    core_call_begin(&c);
    gb_session_raise(core, &n, claim, epoch, c.call.session);
    return end(&c, ret, err);
}

static bool there(struct gb_core *core, const char *name) {
    struct gb_session_bond bond;

    return gb_session_bond(core, name, &bond);
}

static int64_t epoch_of(struct gb_core *core, const char *name) {
    struct gb_session_bond bond;

    return gb_session_bond(core, name, &bond) ? bond.epoch : -1;
}

static struct gb_session_rec look(struct gb_core *core, const char *name) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_name n = core_name(name);
    struct gb_session_view view;

    gb_assert_ok(gb_session_get(core, &n, &view, &err), err);
    gb_session_rec_done(&view.rec);
    view.rec.labels = NULL;
    return view.rec;
}

static void put(struct gb_core *core, const char *session, const char *name) {
    struct gb_upload_params p = core_upload_params(session, name, BYTES);
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(core_upload(core, &p, data, NULL, &err), err);
}

static void expect(struct gb_core *core, const char *session, const char *name) {
    struct gb_error err = GB_ERROR_INIT;

    memset(back, 0, BYTES);
    gb_assert_ok(core_download(core, session, name, 0, BYTES, back, &err), err);
    ck_assert_int_eq(memcmp(back, data, BYTES), 0);
}

/* A registered session of epoch 3 that has a buffer. */
static void begin(struct core_fixture *f) {
    struct gb_error err = GB_ERROR_INIT;

    core_bytes(7, data, BYTES);
    core_fixture_init(f, "host");
    gb_assert_ok(create(f->core, "s", 3, &err), err);
    put(f->core, "s", "b");
}

/* The newest notice of that type. */
static bool noticed(struct core_fixture *f, enum gb_notice_type type, struct gb_notice *ret) {
    struct gb_feed_piece piece = {.filter.types = 1ULL << type, .notices = ret, .max = 1, .newest = true};
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(store_flush_now(f->store.store, &err), err);
    return gb_feed_read(f->core, &piece, &err) == 0 && piece.count == 1;
}

static bool was_superseded(void *arg) {
    struct gb_notice n;

    return noticed(arg, GB_NOTICE_SESSION_SUPERSEDED, &n) && strcmp(n.session.s, "s") == 0 &&
           strcmp(n.detail, ASIDE) == 0;
}

static bool was_changed(void *arg) {
    struct gb_notice n;

    return noticed(arg, GB_NOTICE_SESSION_CHANGED, &n) && strcmp(n.session.s, "s") == 0;
}

/* --- another epoch ------------------------------------------------------------------------------------------------ */

START_TEST(an_epoch_only_rises) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_rec before;
    struct gb_session_rec rec;
    struct gb_session_bond bond;

    begin(&f);
    before = look(f.core, "s");
    gb_assert_ok(raise_to(f.core, "s", CLAIM, 3, &rec, &err), err);
    gb_assert_ok(raise_to(f.core, "s", CLAIM, 2, &rec, &err), err);
    ck_assert_int_eq(rec.version, before.version);
    ck_assert_int_eq(epoch_of(f.core, "s"), 3);
    gb_assert_fails(raise_to(f.core, "s", "another", 9, NULL, &err), err, GB_ERR_SESSION_NOT_FOUND);
    gb_assert_fails(raise_to(f.core, "default", "", 9, NULL, &err), err, GB_ERR_SESSION_NOT_FOUND);
    gb_assert_fails(raise_to(f.core, "t", CLAIM, 9, NULL, &err), err, GB_ERR_SESSION_NOT_FOUND);
    gb_assert_ok(raise_to(f.core, "s", CLAIM, 5, &rec, &err), err);
    ck_assert_int_eq(rec.fleet_epoch, 5);
    ck_assert_int_eq(rec.version, before.version + 1);
    ck_assert_int_eq(epoch_of(f.core, "s"), 5);
    core_until(was_changed, &f, "a notice of the change");
    ck_assert(gb_session_bond(f.core, "s", &bond));
    ck_assert_int_eq(bond.epoch, 5);
    ck_assert_int_eq(bond.aside_epoch, 0);
    ck_assert_str_eq(rec.fleet_claim, CLAIM);
    ck_assert(bond.stops_on_partition);
    ck_assert(!gb_session_bond(f.core, "t", &bond));
    core_fixture_close(&f);
    core_fixture_open(&f);
    ck_assert_int_eq(epoch_of(f.core, "s"), 5);
    core_fixture_done(&f);
}
END_TEST

/* --- another name ------------------------------------------------------------------------------------------------- */

static void count_gone(void *arg, const struct gb_name *name, const char *claim, bool made) {
    (void)name;
    (void)claim;
    (void)made;
    atomic_fetch_add((atomic_int *)arg, 1);
}

static void assert_aside(struct gb_core *core, const char *name) {
    struct gb_session_rec rec = look(core, name);
    struct gb_session_bond bond;

    ck_assert_int_eq(rec.fleet_epoch, 0);
    ck_assert_int_eq(rec.aside_epoch, 3);
    ck_assert_str_eq(rec.fleet_claim, "");
    ck_assert_uint_eq(rec.idle_ttl_s, 60);
    ck_assert_int_eq(epoch_of(core, name), 0);
    ck_assert(gb_session_bond(core, name, &bond));
    ck_assert_int_eq(bond.epoch, 0);
    ck_assert_int_eq(bond.aside_epoch, 3);
    ck_assert(!bond.stops_on_partition);
}

START_TEST(the_old_name_is_free_and_the_new_one_has_all) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_rec before;
    struct gb_session_rec rec;
    atomic_int gone = 0;

    begin(&f);
    gb_core_set_gone(f.core, count_gone, &gone);
    before = look(f.core, "s");
    gb_assert_fails(set_aside(f.core, "s", "another", NULL, &err), err, GB_ERR_SESSION_NOT_FOUND);
    gb_assert_fails(set_aside(f.core, "default", "", NULL, &err), err, GB_ERR_SESSION_NOT_FOUND);
    gb_assert_ok(set_aside(f.core, "s", CLAIM, &rec, &err), err);
    ck_assert_str_eq(rec.name.s, ASIDE);
    ck_assert_int_eq(rec.version, before.version + 1);
    ck_assert(!there(f.core, "s"));
    assert_aside(f.core, ASIDE);
    expect(f.core, ASIDE, "b");
    core_until(was_superseded, &f, "a notice under the old name");
    gb_assert_fails(set_aside(f.core, "s", CLAIM, NULL, &err), err, GB_ERR_SESSION_NOT_FOUND);
    gb_assert_fails(set_aside(f.core, ASIDE, "", NULL, &err), err, GB_ERR_SESSION_NOT_FOUND);
    gb_assert_ok(create(f.core, "s", 9, &err), err);
    put(f.core, "s", "other");
    gb_assert_fails(core_download(f.core, "s", "b", 0, BYTES, back, &err), err, GB_ERR_BUFFER_NOT_FOUND);
    core_fixture_close(&f);
    core_fixture_open(&f);
    gb_core_set_gone(f.core, count_gone, &gone);
    assert_aside(f.core, ASIDE);
    ck_assert_int_eq(epoch_of(f.core, "s"), 9);
    gb_assert_ok(core_session_delete(f.core, ASIDE, &err), err);
    ck_assert(!there(f.core, ASIDE) && there(f.core, "s"));
    ck_assert_int_eq(atomic_load(&gone), 0);
    core_fixture_done(&f);
}
END_TEST

START_TEST(a_name_that_is_taken_gets_a_number) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_rec rec;

    begin(&f);
    gb_assert_ok(create(f.core, ASIDE, 0, &err), err);
    gb_assert_ok(set_aside(f.core, "s", CLAIM, &rec, &err), err);
    ck_assert_str_eq(rec.name.s, ASIDE "-2");
    gb_assert_ok(create(f.core, "s", 3, &err), err);
    gb_assert_ok(set_aside(f.core, "s", CLAIM, &rec, &err), err);
    ck_assert_str_eq(rec.name.s, ASIDE "-3");
    core_fixture_done(&f);
}
END_TEST

/* The name of what is set aside is a name, and fits a notice. */
START_TEST(a_long_name_is_cut) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_rec rec;
    struct gb_name parsed;
    char name[GB_NAME_MAX + 1];
    int i;

    begin(&f);
    memset(name, 'n', GB_NAME_MAX);
    name[GB_NAME_MAX] = '\0';
    for (i = 0; i < 2; i++) {
        gb_assert_ok(create(f.core, name, INT64_MAX, &err), err);
        gb_assert_ok(set_aside(f.core, name, CLAIM, &rec, &err), err);
        ck_assert_uint_eq(strlen(rec.name.s), GB_NOTICE_DETAIL_SIZE - 1);
        ck_assert_ptr_nonnull(strstr(rec.name.s, i == 0 ? "n.superseded-9223372036854775807" : "807-2"));
        gb_assert_ok(gb_name_parse("session name", rec.name.s, strlen(rec.name.s), &parsed, &err), err);
        ck_assert(there(f.core, rec.name.s));
    }
    core_fixture_done(&f);
}
END_TEST

/* --- what clients may do ------------------------------------------------------------------------------------------ */

START_TEST(nothing_in_it_is_changed) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params up = core_upload_params(ASIDE, "b", BYTES);
    struct gb_session_params patch = {.has_idle_ttl_s = true, .idle_ttl_s = 9};
    struct gb_device_write_params fill = core_fill_params(ASIDE, "b", 7, 1);
    struct gb_device_write_params copy = core_copy_params(ASIDE, "b", "default", "copy");
    struct gb_buffer_rec rec;

    begin(&f);
    gb_assert_ok(set_aside(f.core, "s", CLAIM, NULL, &err), err);
    gb_assert_fails(gb_upload_check(f.core, &up, &err), err, GB_ERR_SUPERSEDED);
    gb_assert_fails(core_upload(f.core, &up, data, NULL, &err), err, GB_ERR_SUPERSEDED);
    up.in_place = true;
    gb_assert_fails(core_upload(f.core, &up, data, NULL, &err), err, GB_ERR_SUPERSEDED);
    gb_assert_fails(core_buffer_create(f.core, ASIDE, "n", 10, 0, &err), err, GB_ERR_SUPERSEDED);
    gb_assert_fails(core_buffer_delete(f.core, ASIDE, "b", &err), err, GB_ERR_SUPERSEDED);
    gb_assert_fails(core_session_patch(f.core, ASIDE, &patch, &err), err, GB_ERR_SUPERSEDED);
    gb_assert_fails(core_write(f.core, &fill, NULL, &err), err, GB_ERR_SUPERSEDED);
    gb_assert_fails(intake_begin(f.core, &up, NULL, &err), err, GB_ERR_SUPERSEDED);
    gb_assert_ok(core_buffer_get(f.core, ASIDE, "b", &rec, &err), err);
    ck_assert_int_eq(rec.generation, 1);
    gb_buffer_rec_done(&rec);
    expect(f.core, ASIDE, "b");
    gb_assert_ok(core_write(f.core, &copy, NULL, &err), err); /* read from it */
    expect(f.core, "default", "copy");
    gb_assert_ok(core_session_delete(f.core, ASIDE, &err), err);
    gb_assert_ok(core_buffer_delete(f.core, "default", "copy", &err), err);
    core_until_idle(&f);
    core_fixture_done(&f);
}
END_TEST

/* What was begun under the old name does not go into the session that has another one now. */
START_TEST(uploads_of_before_end) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params up = core_upload_params("s", "b", BYTES);
    struct gb_upload_params part = core_upload_params("s", "m", BYTES);
    struct gb_name s = core_name("s");
    struct gb_name aside = core_name(ASIDE);
    struct gb_session *held;
    struct gb_upload *upload;
    struct intake_result made;
    struct gb_multipart_view view;
    struct core_wake w;

    begin(&f);
    core_wake_init(&w);
    up.waker = core_waker(&w);
    held = gb_session_use(f.core, &s, &err);
    gb_assert_ok(gb_upload_begin(f.core, &up, &upload, &err), err);
    gb_assert_ok(intake_begin(f.core, &part, &made, &err), err);
    gb_assert_ok(core_upload_send(upload, &w, data, BYTES, &err), err);
    gb_assert_ok(set_aside(f.core, "s", CLAIM, NULL, &err), err);
    gb_assert_fails(core_upload_finish(upload, &w, NULL, &err), err, GB_ERR_SUPERSEDED);
    gb_upload_free(upload);
    up.session = held;
    gb_assert_fails(gb_upload_begin(f.core, &up, &upload, &err), err, GB_ERR_SESSION_NOT_FOUND);
    gb_assert_fails(gb_upload_check(f.core, &up, &err), err, GB_ERR_SESSION_NOT_FOUND);
    gb_assert_fails(gb_multipart_get(f.core, &aside, made.view.id, &view, &err), err, GB_ERR_UPLOAD_NOT_FOUND);
    gb_session_unref(held);
    expect(f.core, ASIDE, "b");
    gb_assert_ok(core_session_delete(f.core, ASIDE, &err), err);
    core_until_idle(&f);
    core_wake_done(&w);
    core_fixture_done(&f);
}
END_TEST

/* The calls of a batch name their session one by one: some may have found the one, and the others that which has the
 * name now. A commit is of one session. */
START_TEST(a_batch_is_of_one_session) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_error second = GB_ERROR_INIT;
    struct gb_transaction_batch *batch;
    struct gb_locator at[2] = {core_at("s", "b"), core_at("s", "c")};
    struct core_call calls[2];
    bool atomic = _i == 1;
    int i;

    begin(&f);
    batch = gb_transaction_batch_new(2, atomic, NULL);
    for (i = 0; i < 2; i++) {
        core_call_begin(&calls[i]);
        gb_transaction_batch_add(batch, calls[i].call.base);
        gb_buffer_delete(f.core, &at[i], NULL, calls[i].call.buffer);
        if (i == 1)
            break;
        gb_assert_ok(set_aside(f.core, "s", CLAIM, NULL, &err), err);
        gb_assert_ok(create(f.core, "s", 9, &err), err);
        put(f.core, "s", "c");
    }
    gb_transaction_batch_unref(batch);
    gb_assert_fails(core_call_end(&calls[0], &err), err, atomic ? GB_ERR_SESSION_NOT_FOUND : GB_ERR_SUPERSEDED);
    ck_assert_int_eq(core_call_end(&calls[1], &second), atomic ? -1 : 0);
    expect(f.core, ASIDE, "b");
    ck_assert_int_eq(core_download(f.core, "s", "c", 0, BYTES, back, &err), atomic ? 0 : -1);
    core_fixture_done(&f);
}
END_TEST

/* --- on the way to the database ----------------------------------------------------------------------------------- */

/* The database has the new name first: until then the session has the old one, and those that stand in line behind get
 * nothing of it. */
START_TEST(what_waits_behind_it_finds_nothing) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_params params = {.has_idle_ttl_s = true, .idle_ttl_s = 9};
    struct gb_upload_params up = core_upload_params("s", "n", BYTES);
    struct gb_name s = core_name("s");
    struct core_call aside;
    struct core_call patch;
    struct core_call removal;
    struct store_gate gate;

    begin(&f);
    core_call_begin(&aside);
    core_call_begin(&patch);
    core_call_begin(&removal);
    store_gate_close(&gate, f.store.store);
    gb_session_set_aside(f.core, &s, CLAIM, 60, aside.call.session);
    gb_session_patch(f.core, &s, &params, NULL, patch.call.session);
    gb_session_delete(f.core, &s, NULL, &removal.call.session->base);
    ck_assert_int_eq(epoch_of(f.core, "s"), 3);
    ck_assert(!there(f.core, ASIDE));
    gb_assert_fails(create(f.core, ASIDE, 0, &err), err, GB_ERR_SESSION_EXISTS);
    gb_assert_fails(create(f.core, "s", 0, &err), err, GB_ERR_SESSION_EXISTS);
    gb_assert_fails(core_upload(f.core, &up, data, NULL, &err), err, GB_ERR_SUPERSEDED);
    expect(f.core, "s", "b");
    store_gate_open(&gate);
    gb_assert_ok(core_call_end(&aside, &err), err);
    gb_assert_fails(core_call_end(&patch, &err), err, GB_ERR_SESSION_NOT_FOUND);
    gb_assert_fails(core_call_end(&removal, &err), err, GB_ERR_SESSION_NOT_FOUND);
    assert_aside(f.core, ASIDE);
    ck_assert(!there(f.core, "s"));
    core_fixture_done(&f);
}
END_TEST

START_TEST(a_database_that_refuses_changes_nothing) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;

    begin(&f);
    store_sql_exec(f.store.path, "CREATE TRIGGER never BEFORE UPDATE ON sessions BEGIN SELECT RAISE(ABORT, 'no'); END");
    gb_assert_fails(set_aside(f.core, "s", CLAIM, NULL, &err), err, GB_ERR_STORE_FAILED);
    ck_assert_int_eq(epoch_of(f.core, "s"), 3);
    ck_assert(!there(f.core, ASIDE));
    gb_assert_fails(raise_to(f.core, "s", CLAIM, 4, NULL, &err), err, GB_ERR_STORE_FAILED);
    ck_assert_int_eq(epoch_of(f.core, "s"), 3);
    put(f.core, "s", "more");
    store_sql_exec(f.store.path, "DROP TRIGGER never");
    gb_assert_ok(create(f.core, ASIDE, 0, &err), err); /* the name was given back */
    gb_assert_ok(core_session_delete(f.core, ASIDE, &err), err);
    gb_assert_ok(set_aside(f.core, "s", CLAIM, NULL, &err), err);
    expect(f.core, ASIDE, "more");
    core_fixture_done(&f);
}
END_TEST

static const struct {
    const char *point;
    bool done;
} kills[] = {{"before_commit@1=kill", false}, {"after_commit@1=kill", true}};

/* Whenever the process dies, the session has one name or the other. */
START_TEST(a_killed_process_leaves_one_name) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    pid_t child;
    int status;

    core_fixture_prepare(&f, "host");
    store_fixture_close(&f.store);
    gb_backend_close(f.backend);
    f.backend = NULL;
    child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        char note[GB_BACKEND_NOTE_SIZE];

        f.durable = true;
        f.disk_faults = kills[_i].point;
        if (gb_backend_open("host", &f.backend, note, &err) == 0) {
            core_fixture_open(&f);
            if (create(f.core, "s", 3, &err) == 0)
                set_aside(f.core, "s", CLAIM, NULL, &err);
        }
        _exit(1);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    gb_assert_ok(gb_backend_open("host", &f.backend, (char[GB_BACKEND_NOTE_SIZE]){0}, &err), err);
    core_fixture_open(&f);
    ck_assert_int_eq(there(f.core, "s"), !kills[_i].done);
    ck_assert_int_eq(there(f.core, ASIDE), kills[_i].done);
    core_fixture_done(&f);
}
END_TEST

#ifdef GB_OWN_MALLOC

START_TEST(memory_that_fails_changes_nothing) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_name s = core_name("s");
    unsigned refused = 0;
    struct core_call r;
    bool done = false;
    long n;

    begin(&f);
    for (n = 0; !done; n++) {
        core_call_begin(&r);
        gb_allocations_here = n;
        gb_session_set_aside(f.core, &s, CLAIM, 60, r.call.session);
        gb_allocations_here = -1;
        done = core_call_end(&r, &err) == 0;
        ck_assert(there(f.core, done ? ASIDE : "s") && !there(f.core, done ? "s" : ASIDE));
        refused += !done;
        if (!done)
            put(f.core, "s", "more");
        err = GB_ERROR_INIT;
    }
    ck_assert_uint_gt(refused, 1);
    core_fixture_done(&f);
}
END_TEST

#endif

/* --- all at once -------------------------------------------------------------------------------------------------- */

#define WRITERS 2
#define NAMES 60

struct user {
    pthread_t thread;
    struct core_fixture *f;
    atomic_bool *over;
    int number;
    unsigned written;
};

static void *reads(void *arg) {
    struct user *user = arg;
    struct gb_name s = core_name("s");
    char got[BYTES];

    while (!atomic_load(user->over)) {
        struct gb_error err = GB_ERROR_INIT;
        struct gb_session *held = gb_session_use(user->f->core, &s, &err);
        const struct gb_name *name = held ? gb_session_name(held) : &s;
        struct gb_session_bond bond;
        struct gb_session_view view;

        ck_assert(strcmp(name->s, "s") == 0 || strncmp(name->s, ASIDE, strlen(ASIDE)) == 0);
        if (gb_session_bond(user->f->core, "s", &bond))
            ck_assert(bond.epoch == 3 && bond.aside_epoch == 0);
        if (gb_session_get(user->f->core, &s, &view, &err) == 0) {
            ck_assert(view.rec.fleet_epoch == 3 && strcmp(view.rec.name.s, "s") == 0);
            gb_session_rec_done(&view.rec);
        }
        core_download(user->f->core, "s", "b", 0, BYTES, got, &err);
        gb_session_unref(held);
    }
    return NULL;
}

static void *writes(void *arg) {
    struct user *user = arg;
    int i;

    for (i = 0; i < NAMES; i++) {
        struct gb_upload_params p;
        struct gb_error err = GB_ERROR_INIT;
        char name[32];

        snprintf(name, sizeof(name), "w%d.%d", user->number, i);
        p = core_upload_params("s", name, BYTES);
        if (core_upload(user->f->core, &p, data, NULL, &err) == 0)
            user->written++;
        else
            ck_assert(err.code == GB_ERR_SESSION_NOT_FOUND || err.code == GB_ERR_SUPERSEDED);
    }
    return NULL;
}

static int count_written(void *arg, const struct gb_buffer_rec *rec, struct gb_error *err) {
    (void)err;
    *(unsigned *)arg += rec->name.s[0] == 'w';
    return 0;
}

static int count_session(void *arg, const struct gb_session_view *view, struct gb_error *err) {
    struct gb_page page = {.limit = 1000};
    struct user *sum = arg;

    return gb_buffer_list(sum->f->core, &view->rec.name, &page, count_written, &sum->written, err);
}

/* Each upload that succeeded is in one of the sessions. */
START_TEST(a_name_changes_under_its_users) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_page page = {.limit = 100};
    struct user users[WRITERS + 1];
    struct user sum = {.f = &f};
    atomic_bool over = false;
    unsigned told = 0;
    int i;

    begin(&f);
    for (i = 0; i <= WRITERS; i++) {
        users[i] = (struct user){.f = &f, .over = &over, .number = i};
        ck_assert_int_eq(pthread_create(&users[i].thread, NULL, i < WRITERS ? writes : reads, &users[i]), 0);
    }
    for (i = 0; i < 20; i++) {
        gb_assert_ok(set_aside(f.core, "s", CLAIM, NULL, &err), err);
        gb_assert_ok(create(f.core, "s", 3, &err), err);
    }
    for (i = 0; i <= WRITERS; i++) {
        if (i == WRITERS)
            atomic_store(&over, true);
        pthread_join(users[i].thread, NULL);
        told += users[i].written;
    }
    gb_assert_ok(gb_session_list(f.core, &page, count_session, &sum, &err), err);
    ck_assert_uint_eq(sum.written, told);
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_set_aside");
    TCase *tc = tcase_create("variants");

    gb_test_add(suite, "epoch", an_epoch_only_rises, 60);
    gb_test_add(suite, "name", the_old_name_is_free_and_the_new_one_has_all, 60);
    gb_test_add(suite, "taken", a_name_that_is_taken_gets_a_number, 60);
    gb_test_add(suite, "long", a_long_name_is_cut, 60);
    gb_test_add(suite, "changes", nothing_in_it_is_changed, 60);
    gb_test_add(suite, "uploads", uploads_of_before_end, 60);
    gb_test_add(suite, "in line", what_waits_behind_it_finds_nothing, 60);
    gb_test_add(suite, "database", a_database_that_refuses_changes_nothing, 60);
#ifdef GB_OWN_MALLOC
    gb_test_add(suite, "memory", memory_that_fails_changes_nothing, 60);
#endif
    gb_test_add(suite, "users", a_name_changes_under_its_users, 120);
    tcase_add_loop_test(tc, a_killed_process_leaves_one_name, 0, 2);
    tcase_add_loop_test(tc, a_batch_is_of_one_session, 0, 2);
    tcase_set_timeout(tc, 60);
    suite_add_tcase(suite, tc);
    return gb_test_run(suite);
}
