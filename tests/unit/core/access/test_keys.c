/* Idempotency keys: every state and its transitions, also across a restart; and cancelled calls. */
#include <stdio.h>
#include <string.h>

#include "gb_test.h"
#include "multipart_fixture.h"

static struct core_fixture f;

static struct gb_key key_of(int id, int fingerprint) {
    struct gb_key key = {.former = ""};

    snprintf(key.id, sizeof(key.id), "%064x", (unsigned)id);
    snprintf(key.fingerprint, sizeof(key.fingerprint), "%064x", (unsigned)fingerprint);
    return key;
}

/* Claims a key and returns the key's state. Checks the status and body of a stored answer. */
static enum gb_key_state claim(int id, int fingerprint, const char *body) {
    struct gb_key key = key_of(id, fingerprint);
    struct gb_error err = GB_ERROR_INIT;
    struct gb_key_claim found;

    gb_assert_ok(gb_key_claim(f.core, &key, &found, &err), err);
    ck_assert(!!found.answer == (found.state == GB_KEY_ANSWERED));
    if (found.answer && body) {
        ck_assert_int_eq(found.answer->status, 201);
        ck_assert_str_eq(found.answer->headers, "ETag: \"x\"\n");
        ck_assert_uint_eq(found.answer->body_len, strlen(body));
        ck_assert_str_eq(found.answer->body, body);
    }
    gb_idempotency_reply_unref(found.answer);
    return found.state;
}

static void keep_key(struct gb_key key, const char *body) {
    struct store_wait wait;

    store_wait_init(&wait);
    gb_key_keep(f.core, &key, gb_idempotency_reply_new(201, "ETag: \"x\"\n", body, strlen(body)), store_wait_report,
                &wait);
    store_wait_until(&wait, 1);
    ck_assert_uint_eq(wait.failed, 0);
    store_wait_done(&wait);
}

static void keep(int id, int fingerprint, const char *body) {
    keep_key(key_of(id, fingerprint), body);
}

static void give_up(int id, bool unsure) {
    struct gb_key key = key_of(id, 0);

    gb_key_give_up(f.core, &key, unsure);
}

static void reopen(void) {
    core_fixture_close(&f);
    core_fixture_open(&f);
}

START_TEST(the_states_of_a_key) {
    struct gb_key key = key_of(1, 1);
    struct gb_error err = GB_ERROR_INIT;
    struct gb_key_claim found;

    core_fixture_init(&f, "host");
    ck_assert_int_eq(claim(1, 1, NULL), GB_KEY_CLAIMED);
    ck_assert_int_eq(claim(1, 1, NULL), GB_KEY_UNDER_WAY);
    ck_assert_int_eq(claim(1, 2, NULL), GB_KEY_OTHER);
    gb_key_note(f.core, &key, "note");
    gb_assert_ok(gb_key_claim(f.core, &key, &found, &err), err);
    ck_assert_str_eq(found.note, "note");
    give_up(1, false);
    ck_assert_int_eq(claim(1, 2, NULL), GB_KEY_CLAIMED);
    give_up(1, true);
    ck_assert_int_eq(claim(1, 2, NULL), GB_KEY_UNANSWERED);
    ck_assert_int_eq(claim(1, 1, NULL), GB_KEY_OTHER);
    ck_assert_int_eq(claim(2, 1, NULL), GB_KEY_CLAIMED);
    keep(2, 1, "body");
    ck_assert_int_eq(claim(2, 1, "body"), GB_KEY_ANSWERED);
    ck_assert_int_eq(claim(2, 2, NULL), GB_KEY_OTHER);
    give_up(3, true); /* no request claimed this key */
    core_fixture_done(&f);
}
END_TEST

/* Makes a buffer with a call that has a mark. */
static void create_marked(int id, const char *name) {
    struct gb_key key = key_of(id, 1);
    struct gb_buffer_params params = {.session = core_name("default"),
                                      .name = core_name(name),
                                      .kind = GB_KIND_DEVICE,
                                      .stream = core_name("default")};
    struct gb_error err = GB_ERROR_INIT;
    struct core_call c;

    core_call_begin(&c);
    c.call.base->mark = gb_key_mark(f.core, &key);
    gb_buffer_create(f.core, &params, 0, c.call.buffer);
    gb_assert_ok(core_call_end(&c, &err), err);
}

START_TEST(a_restart_knows_them) {
    core_fixture_init(&f, "host");
    ck_assert_int_eq(claim(1, 1, NULL), GB_KEY_CLAIMED); /* nothing was done */
    ck_assert_int_eq(claim(2, 1, NULL), GB_KEY_CLAIMED);
    create_marked(2, "b"); /* the create is committed but has no stored answer */
    ck_assert_int_eq(claim(3, 1, NULL), GB_KEY_CLAIMED);
    create_marked(3, "c");
    keep(3, 1, "answer");
    ck_assert_int_eq(claim(4, 1, NULL), GB_KEY_CLAIMED);
    keep(4, 1, "");
    reopen();
    ck_assert_int_eq(claim(1, 1, NULL), GB_KEY_CLAIMED);
    ck_assert_int_eq(claim(2, 1, NULL), GB_KEY_UNANSWERED);
    ck_assert_int_eq(claim(3, 1, "answer"), GB_KEY_ANSWERED);
    ck_assert_int_eq(claim(3, 2, NULL), GB_KEY_OTHER);
    ck_assert_int_eq(claim(4, 1, ""), GB_KEY_ANSWERED);
    ck_assert_int_eq(store_sql_int(f.store.path, "SELECT count(*) FROM answers"), 3);
    core_fixture_done(&f);
}
END_TEST

/* Completes an upload of eight bytes with a call that has a mark. */
static void complete_marked(int id, const char *name) {
    struct gb_upload_params params = core_upload_params("default", name, 8);
    struct gb_name session = core_name("default");
    struct gb_key key = key_of(id, 1);
    struct gb_error err = GB_ERROR_INIT;
    struct intake_result r;
    struct core_call p;

    gb_assert_ok(intake_begin(f.core, &params, &r, &err), err);
    gb_assert_ok(intake_part(f.core, r.view.id, 0, "12345678", 8, &err), err);
    core_call_begin(&p);
    p.call.base->mark = gb_key_mark(f.core, &key);
    gb_multipart_complete(f.core, &session, r.view.id, NULL, NULL, p.call.multipart);
    gb_assert_ok(core_call_end(&p, &err), err);
}

START_TEST(an_upload_that_is_completed) {
    core_fixture_init(&f, "host");
    ck_assert_int_eq(claim(1, 1, NULL), GB_KEY_CLAIMED);
    complete_marked(1, "a");
    reopen();
    ck_assert_int_eq(claim(1, 1, NULL), GB_KEY_UNANSWERED);
    core_fixture_done(&f);
}
END_TEST

/* Deletes both buffers as the members of one wave that has a mark. The first buffer may be missing. */
static void delete_marked(int id, bool atomic, const char *first, const char *second) {
    const char *names[] = {first, second};
    struct gb_key key = key_of(id, 1);
    struct gb_store_mark mark = gb_key_mark(f.core, &key);
    struct gb_transaction_batch *g = gb_transaction_batch_new(2, atomic, &mark);
    struct gb_error err;
    struct core_call p[2];
    int i;

    ck_assert_ptr_nonnull(g);
    for (i = 0; i < 2; i++) {
        struct gb_locator at = core_at("default", names[i]);

        core_call_begin(&p[i]);
        gb_transaction_batch_add(g, p[i].call.base);
        gb_buffer_delete(f.core, &at, NULL, p[i].call.buffer);
    }
    gb_transaction_batch_unref(g);
    for (i = 0; i < 2; i++) {
        err = GB_ERROR_INIT;
        (void)core_call_end(&p[i], &err);
    }
}

/* The two deletions succeed together, one by one, and not at all. */
START_TEST(members_of_a_wave) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_rec rec;

    core_fixture_init(&f, "host");
    gb_assert_ok(core_buffer_create(f.core, "default", "a", 8, 0, &err), err);
    gb_assert_ok(core_buffer_create(f.core, "default", "b", 8, 0, &err), err);
    gb_assert_ok(core_buffer_create(f.core, "default", "c", 8, 0, &err), err);
    delete_marked(1, true, "none", "c");
    ck_assert_int_eq(store_sql_int(f.store.path, "SELECT count(*) FROM answers"), 0);
    delete_marked(2, false, "none", "c");
    delete_marked(3, false, "a", "b");
    ck_assert_int_eq(core_buffer_get(f.core, "default", "c", &rec, &err), -1);
    reopen();
    ck_assert_int_eq(claim(1, 1, NULL), GB_KEY_CLAIMED);
    ck_assert_int_eq(claim(2, 1, NULL), GB_KEY_UNANSWERED);
    ck_assert_int_eq(claim(3, 1, NULL), GB_KEY_UNANSWERED);
    core_fixture_done(&f);
}
END_TEST

START_TEST(what_the_database_refuses_is_not_marked) {
    struct gb_key key = key_of(1, 1);
    struct gb_buffer_rec rec = {.id = 99, .session_id = 12345, .name = {"orphan"}};
    struct gb_store_mark mark;
    struct store_wait wait;

    core_fixture_init(&f, "host");
    store_wait_init(&wait);
    mark = gb_key_mark(f.core, &key);
    gb_store_put_buffer(f.store.store, &rec, &mark, store_wait_report, &wait);
    store_wait_until(&wait, 1);
    ck_assert_uint_eq(wait.failed, 1);
    ck_assert_int_eq(store_sql_int(f.store.path, "SELECT count(*) FROM answers"), 0);
    store_wait_done(&wait);
    core_fixture_done(&f);
}
END_TEST

START_TEST(they_are_bounded) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_key_claim found;
    struct gb_key key = key_of(99, 1);
    struct gb_key_stats stats;
    int i;

    core_fixture_prepare(&f, "host");
    f.config.keys_max = 4;
    core_fixture_open(&f);
    for (i = 0; i < 10; i++) {
        ck_assert_int_eq(claim(i, 1, NULL), GB_KEY_CLAIMED);
        keep(i, 1, "b");
    }
    gb_key_stats(f.core, &stats);
    ck_assert_uint_eq(stats.kept, 4);
    ck_assert_int_eq(claim(9, 1, "b"), GB_KEY_ANSWERED);
    ck_assert_int_eq(claim(0, 1, NULL), GB_KEY_CLAIMED); /* dropped since */
    for (i = 20; i < 23; i++)
        ck_assert_int_eq(claim(i, 1, NULL), GB_KEY_CLAIMED);
    /* A key whose request is running is not evicted for another key. */
    ck_assert_int_eq(gb_key_claim(f.core, &key, &found, &err), -1);
    ck_assert_int_eq(err.code, GB_ERR_SATURATED);
    ck_assert_int_eq(store_sql_int(f.store.path, "SELECT count(*) FROM answers"), 4);
    f.config.keys_max = 2;
    reopen();
    gb_key_stats(f.core, &stats);
    ck_assert_uint_eq(stats.kept, 2);
    ck_assert_int_eq(claim(9, 1, "b"), GB_KEY_ANSWERED);
    core_fixture_done(&f);
}
END_TEST

START_TEST(they_expire) {
    core_fixture_init(&f, "host");
    ck_assert_int_eq(claim(1, 1, NULL), GB_KEY_CLAIMED);
    keep(1, 1, "b");
    ck_assert_int_eq(claim(2, 1, NULL), GB_KEY_CLAIMED);
    keep(2, 1, "b");
    core_fixture_close(&f);
    store_sql_exec(f.store.path, "UPDATE answers SET expires_at_us = 1 WHERE id = 1");
    core_fixture_open(&f);
    ck_assert_int_eq(claim(1, 2, NULL), GB_KEY_CLAIMED);
    ck_assert_int_eq(claim(2, 1, "b"), GB_KEY_ANSWERED);
    keep(1, 2, "c"); /* expired keys leave the database */
    ck_assert_int_eq(store_sql_int(f.store.path, "SELECT count(*) FROM answers"), 2);
    core_fixture_done(&f);
}
END_TEST

/* --- cancelling --------------------------------------------------------------------------------------------------- */

START_TEST(a_call_that_waits_for_memory) {
    struct gb_buffer_params params = {.session = core_name("default"),
                                      .name = core_name("b"),
                                      .bytes = 60 << 20,
                                      .shape = {.dims = 1, .dim = {60 << 20}},
                                      .kind = GB_KIND_DEVICE,
                                      .stream = core_name("default")};
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_view view;
    struct core_call c;

    core_fixture_init(&f, "host:bytes=64M");
    gb_assert_ok(core_buffer_create(f.core, "default", "a", 60 << 20, 0, &err), err);
    core_call_begin(&c);
    ck_assert(!gb_call_cancel(c.call.base, false)); /* nothing has begun */
    gb_buffer_create(f.core, &params, 60000, c.call.buffer);
    ck_assert(gb_call_cancel(c.call.base, false));
    ck_assert(!core_call_over(&c));
    ck_assert(gb_call_cancel(c.call.base, true));
    gb_assert_fails(core_call_wait(&c, &err), err, GB_ERR_CANCELLED);
    ck_assert(!gb_call_cancel(c.call.base, true));
    core_call_free(&c);
    gb_assert_ok(gb_session_get(f.core, &params.session, &view, &err), err);
    ck_assert_uint_eq(view.used_bytes, 60 << 20);
    ck_assert_uint_eq(view.buffers, 1);
    core_fixture_done(&f);
}
END_TEST

START_TEST(work_that_is_queued) {
    struct gb_device_write_params write = {.session = core_name("default"),
                                           .name = core_name("b"),
                                           .from_session = core_name("default"),
                                           .from = core_name("a"),
                                           .stream = core_name("default"),
                                           .copy = true};
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_rec rec;
    struct core_gate gate;
    struct core_call c;

    core_fixture_init(&f, "host:discrete");
    gb_assert_ok(core_buffer_create(f.core, "default", "a", 4096, 0, &err), err);
    core_gate_close(&gate, &f, "default");
    core_call_begin(&c);
    gb_buffer_write(f.core, &write, c.call.buffer);
    ck_assert(gb_call_cancel(c.call.base, true));
    ck_assert(!gb_call_cancel(c.call.base, true));
    core_gate_open(&gate);
    gb_assert_fails(core_call_end(&c, &err), err, GB_ERR_CANCELLED);
    ck_assert_int_eq(core_buffer_get(f.core, "default", "b", &rec, &err), -1);
    core_fixture_done(&f);
}
END_TEST

/* --- from node to node -------------------------------------------------------------------------------------------- */

/* Of a session, with another letter for each. */
static struct gb_key key_in(int64_t session, char letter) {
    struct gb_key key = key_of(0, letter);
    char rest[65];

    memset(rest, letter, 64);
    rest[64] = '\0';
    gb_key_id_write(GB_KEY_WITHIN, session, rest, key.id);
    return key;
}

static void claim_in(int64_t session, char letter) {
    struct gb_key key = key_in(session, letter);
    struct gb_error err = GB_ERROR_INIT;
    struct gb_key_claim found;

    gb_assert_ok(gb_key_claim(f.core, &key, &found, &err), err);
    ck_assert_int_eq(found.state, GB_KEY_CLAIMED);
}

static void keep_in(int64_t session, char letter, const char *body) {
    claim_in(session, letter);
    keep_key(key_in(session, letter), body);
}

static enum gb_key_state state_in(int64_t session, char letter, const char *body) {
    struct gb_key key = key_in(session, letter);
    struct gb_error err = GB_ERROR_INIT;
    struct gb_key_claim found;

    gb_assert_ok(gb_key_claim(f.core, &key, &found, &err), err);
    if (found.state == GB_KEY_CLAIMED)
        gb_key_give_up(f.core, &key, false);
    if (found.answer)
        ck_assert_str_eq(found.answer->body, body);
    gb_idempotency_reply_unref(found.answer);
    return found.state;
}

static struct gb_key_page page;

/* letters: of those that are listed; one whose answer is not known stands behind a '?'. */
static void check_page(int64_t session, uint64_t after, bool last, uint64_t bytes_max, const char *letters, bool more,
                       bool open) {
    struct gb_error err = GB_ERROR_INIT;
    char told[2 * GB_KEYS_PAGE + 1] = "";
    size_t i;
    size_t n = 0;

    gb_assert_ok(gb_keys_page(f.core, session, after, last, bytes_max, &page, &err), err);
    for (i = 0; i < page.count; i++) {
        if (!page.items[i].answer)
            told[n++] = '?';
        told[n++] = page.items[i].id[1];
        ck_assert_uint_eq(strlen(page.items[i].id), 1 + GB_KEY_REST);
        ck_assert(page.items[i].left_us > 0);
    }
    told[n] = '\0';
    ck_assert_str_eq(told, letters);
    ck_assert_int_eq(page.more, more);
    ck_assert_int_eq(page.open, open);
    gb_key_page_done(&page);
}

START_TEST(those_of_a_session_are_told) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_key key = key_in(7, 'e');
    struct core_call c;
    struct gb_buffer_params params = {.session = core_name("default"),
                                      .name = core_name("b"),
                                      .kind = GB_KIND_DEVICE,
                                      .stream = core_name("default")};
    struct gb_key unsure = key_in(7, 'c');
    uint64_t after;

    core_fixture_init(&f, "host");
    check_page(7, 0, true, 1000, "", false, false);
    keep_in(7, 'a', "one");
    keep_in(8, 'b', "another's");
    claim_in(7, 'c');
    claim_in(7, 'd');
    keep_in(7, 'f', "two");
    check_page(7, 0, false, 1000, "af", false, false);
    after = page.after;
    check_page(7, 0, false, 1, "a", true, false);
    check_page(7, page.after, false, 1, "f", false, false);
    check_page(7, after, false, 1000, "", false, false);
    gb_key_give_up(f.core, &unsure, true);
    check_page(7, after, false, 1000, "?c", false, false);
    after = page.after;
    /* One that is carried out, and whose answer is to come. */
    claim_in(7, 'e');
    core_call_begin(&c);
    c.call.base->mark = gb_key_mark(f.core, &key);
    gb_buffer_create(f.core, &params, 0, c.call.buffer);
    gb_assert_ok(core_call_end(&c, &err), err);
    check_page(7, after, false, 1000, "", false, true);
    check_page(7, after, true, 1000, "?e", false, true);
    core_fixture_done(&f);
}
END_TEST

static void bring_as(char kind, int64_t session, char letter, const char *body) {
    struct gb_key key = key_in(session, letter);
    struct gb_key_copy copy = {.left_us = 1000000000};
    struct gb_error err = GB_ERROR_INIT;
    struct store_wait wait;

    copy.id[0] = kind;
    memcpy(copy.id + 1, key.id + GB_KEY_SESSION, sizeof(copy.id) - 1);
    memcpy(copy.fingerprint, key.fingerprint, sizeof(copy.fingerprint));
    copy.answer = body ? gb_idempotency_reply_new(201, "", body, strlen(body)) : NULL;
    store_wait_init(&wait);
    gb_assert_ok(gb_key_bring(f.core, session, &copy, store_wait_report, &wait, &err), err);
    store_wait_until(&wait, 1);
    ck_assert_uint_eq(wait.failed, 0);
    store_wait_done(&wait);
    gb_idempotency_reply_unref(copy.answer);
}

static void bring(int64_t session, char letter, const char *body) {
    bring_as(GB_KEY_WITHIN, session, letter, body);
}

START_TEST(those_that_come_are_known) {
    core_fixture_init(&f, "host");
    bring(7, 'a', "one");
    bring(7, 'b', NULL);
    bring(7, 'c', NULL);
    bring(7, 'c', "late");
    ck_assert_int_eq(state_in(7, 'a', "one"), GB_KEY_ANSWERED);
    ck_assert_int_eq(state_in(8, 'a', NULL), GB_KEY_CLAIMED);
    reopen();
    ck_assert_int_eq(state_in(7, 'a', "one"), GB_KEY_ANSWERED);
    ck_assert_int_eq(state_in(7, 'b', NULL), GB_KEY_UNANSWERED);
    ck_assert_int_eq(state_in(7, 'c', "late"), GB_KEY_ANSWERED);
    core_fixture_done(&f);
}
END_TEST

/* No request asks for them again. */
START_TEST(they_end_with_their_session) {
    struct gb_session_params params = {.name = core_name("s")};
    struct gb_session_view view = {.used_bytes = 0};
    struct gb_error err = GB_ERROR_INIT;
    struct gb_key_claim found;
    struct gb_key key;

    core_fixture_init(&f, "host");
    gb_assert_ok(core_session_create(f.core, &params, &err), err);
    gb_assert_ok(gb_session_get(f.core, &params.name, &view, &err), err);
    gb_session_rec_done(&view.rec);
    bring(view.rec.id, 'a', "its");
    bring(view.rec.id + 1, 'a', "another's");
    bring(0, 'a', "none's");
    bring_as(GB_KEY_OF, view.rec.id, 'b', "of the session itself");
    gb_assert_ok(core_session_delete(f.core, "s", &err), err);
    key = key_in(0, 'b');
    key.id[0] = GB_KEY_OF;
    gb_assert_ok(gb_key_claim(f.core, &key, &found, &err), err);
    ck_assert_int_eq(found.state, GB_KEY_ANSWERED);
    gb_idempotency_reply_unref(found.answer);
    ck_assert_int_eq(state_in(view.rec.id, 'a', NULL), GB_KEY_CLAIMED);
    ck_assert_int_eq(state_in(view.rec.id + 1, 'a', "another's"), GB_KEY_ANSWERED);
    ck_assert_int_eq(state_in(0, 'a', "none's"), GB_KEY_ANSWERED);
    ck_assert_int_eq(store_sql_int(f.store.path, "SELECT count(*) FROM answers"), 3);
    core_fixture_done(&f);
}
END_TEST

/* As an earlier version wrote it. */
START_TEST(an_id_of_before) {
    struct gb_key key = key_in(7, 'a');
    struct gb_error err = GB_ERROR_INIT;
    struct gb_key_claim found;

    core_fixture_init(&f, "host");
    ck_assert_int_eq(claim(1, 'a', NULL), GB_KEY_CLAIMED);
    keep(1, 'a', "body");
    reopen();
    snprintf(key.former_id, sizeof(key.former_id), "%064x", 1u);
    gb_assert_ok(gb_key_claim(f.core, &key, &found, &err), err);
    ck_assert_int_eq(found.state, GB_KEY_ANSWERED);
    gb_idempotency_reply_unref(found.answer);
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_keys");

    gb_test_add(suite, "states", the_states_of_a_key, 60);
    gb_test_add(suite, "restart", a_restart_knows_them, 60);
    gb_test_add(suite, "upload", an_upload_that_is_completed, 60);
    gb_test_add(suite, "wave", members_of_a_wave, 60);
    gb_test_add(suite, "refused", what_the_database_refuses_is_not_marked, 60);
    gb_test_add(suite, "bounds", they_are_bounded, 60);
    gb_test_add(suite, "expiry", they_expire, 60);
    gb_test_add(suite, "memory", a_call_that_waits_for_memory, 60);
    gb_test_add(suite, "queued", work_that_is_queued, 60);
    gb_test_add(suite, "told", those_of_a_session_are_told, 60);
    gb_test_add(suite, "come", those_that_come_are_known, 60);
    gb_test_add(suite, "session", they_end_with_their_session, 60);
    gb_test_add(suite, "former", an_id_of_before, 60);
    return gb_test_run(suite);
}
