/* Tokens, which have a connection of their own beside a running store. */
#include <stdio.h>
#include <string.h>

#include "gb_test.h"
#include "store_fixture.h"

struct listed {
    unsigned count;
    struct gb_token_rec rec[8];
};

static int collect(void *arg, const struct gb_token_rec *rec, struct gb_error *err) {
    struct listed *l = arg;

    if (l->count == 8)
        return gb_error_set(err, GB_ERR_LIMIT_REACHED, "full");
    l->rec[l->count++] = *rec;
    return 0;
}

static struct gb_token_rec token(const char *name, enum gb_scope scope, const char *session) {
    struct gb_token_rec rec = {.scopes = 1u << scope, .created_at_us = 1700000000000005};

    snprintf(rec.name.s, sizeof(rec.name.s), "%s", name);
    snprintf(rec.session, sizeof(rec.session), "%s", session);
    memset(rec.sha256_hex, 'a', 64);
    return rec;
}

static struct gb_token_store *open_tokens(const char *path) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_token_store *tokens;

    gb_assert_ok(gb_token_store_open(path, &tokens, &err), err);
    return tokens;
}

static bool changed(struct gb_token_store *tokens) {
    struct gb_error err = GB_ERROR_INIT;
    bool result = false;

    gb_assert_ok(gb_token_changed(tokens, &result, &err), err);
    return result;
}

START_TEST(tokens_come_back) {
    struct store_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_token_rec a = token("reader", GB_SCOPE_READ, "");
    struct gb_token_rec b = token("boss", GB_SCOPE_ADMIN, "team-1");
    struct gb_token_store *tokens;
    struct listed l = {0};

    store_fixture_dir(&f);
    tokens = open_tokens(f.path); /* before any daemon ran */
    gb_assert_ok(gb_token_add(tokens, &a, &err), err);
    gb_assert_ok(gb_token_add(tokens, &b, &err), err);
    gb_token_store_close(tokens);
    store_fixture_open(&f); /* the daemon opens the database that the command made */
    tokens = open_tokens(f.path);
    gb_assert_ok(gb_token_list(tokens, collect, &l, &err), err);
    ck_assert_uint_eq(l.count, 2);
    ck_assert_int_gt(a.id, 0);
    ck_assert_int_eq(l.rec[0].id, a.id);
    ck_assert_str_eq(l.rec[0].name.s, "reader");
    ck_assert_uint_eq(l.rec[0].scopes, 1u << GB_SCOPE_READ);
    ck_assert_str_eq(l.rec[0].session, "");
    ck_assert_str_eq(l.rec[0].sha256_hex, a.sha256_hex);
    ck_assert_int_eq(l.rec[0].created_at_us, a.created_at_us);
    ck_assert_int_eq(l.rec[1].id, b.id);
    ck_assert_uint_eq(l.rec[1].scopes, 1u << GB_SCOPE_ADMIN);
    ck_assert_str_eq(l.rec[1].session, "team-1");
    gb_token_store_close(tokens);
    store_fixture_done(&f);
}
END_TEST

START_TEST(names_are_unique_and_revoked_by_name) {
    struct store_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_token_rec a = token("one", GB_SCOPE_WRITE, "");
    struct gb_token_rec again = token("one", GB_SCOPE_READ, "");
    struct gb_token_store *tokens;
    struct listed l = {0};

    store_fixture_init(&f);
    tokens = open_tokens(f.path);
    gb_assert_ok(gb_token_add(tokens, &a, &err), err);
    ck_assert_int_eq(gb_token_add(tokens, &again, &err), -1);
    ck_assert_int_eq(err.code, GB_ERR_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(err.detail, "\"one\" exists"));
    ck_assert_int_eq(again.id, 0);
    err = GB_ERROR_INIT;
    gb_assert_fails(gb_token_revoke(tokens, "two", &err), err, GB_ERR_TOKEN_NOT_FOUND);
    gb_assert_ok(gb_token_list(tokens, collect, &l, &err), err);
    ck_assert_uint_eq(l.count, 1);
    ck_assert_uint_eq(l.rec[0].scopes, 1u << GB_SCOPE_WRITE);
    gb_assert_ok(gb_token_revoke(tokens, "one", &err), err);
    gb_assert_fails(gb_token_revoke(tokens, "one", &err), err, GB_ERR_TOKEN_NOT_FOUND);
    gb_assert_ok(gb_token_add(tokens, &again, &err), err);
    ck_assert_int_gt(again.id, a.id);
    gb_token_store_close(tokens);
    store_fixture_done(&f);
}
END_TEST

START_TEST(what_limits_a_token_comes_back) {
    struct store_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_token_rec a = token("a", GB_SCOPE_VERIFY, "");
    struct gb_token_rec b = token("b", GB_SCOPE_READ, "");
    struct gb_token_store *tokens;
    struct listed l = {0};

    store_fixture_init(&f);
    tokens = open_tokens(f.path);
    strcpy(a.prefix, "cam1-");
    strcpy(a.subject, "dns:cam1.example");
    a.expires_at_us = 1800000000000000;
    gb_assert_ok(gb_token_add(tokens, &a, &err), err);
    gb_assert_ok(gb_token_list(tokens, collect, &l, &err), err);
    ck_assert_uint_eq(l.rec[0].scopes, 1u << GB_SCOPE_VERIFY);
    ck_assert_str_eq(l.rec[0].prefix, a.prefix);
    ck_assert_str_eq(l.rec[0].subject, a.subject);
    ck_assert_int_eq(l.rec[0].expires_at_us, a.expires_at_us);
    ck_assert_str_eq(l.rec[0].old_sha256_hex, "");
    ck_assert_int_eq(l.rec[0].used_at_us, 0);
    strcpy(b.subject, a.subject);
    ck_assert_int_eq(gb_token_add(tokens, &b, &err), -1);
    ck_assert_int_eq(err.code, GB_ERR_INVALID_ARGUMENT);
    ck_assert_msg(strstr(err.detail, "the subject \"dns:cam1.example\" exists") != NULL, "%s", err.detail);
    gb_token_store_close(tokens);
    store_fixture_done(&f);
}
END_TEST

START_TEST(a_rotation_keeps_the_former_secret_for_a_time) {
    struct store_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_token_rec a = token("a", GB_SCOPE_READ, "");
    struct gb_token_store *daemon;
    struct gb_token_store *tokens;
    struct listed l = {0};
    char fresh[65];

    store_fixture_init(&f);
    tokens = open_tokens(f.path);
    gb_assert_ok(gb_token_add(tokens, &a, &err), err);
    daemon = open_tokens(f.path);
    ck_assert(!changed(daemon));
    memset(fresh, 'b', 64);
    fresh[64] = '\0';
    gb_assert_ok(gb_token_rotate(tokens, "a", fresh, 1800000000000000, &err), err);
    ck_assert(changed(daemon));
    memset(fresh, 'c', 64);
    gb_assert_ok(gb_token_list(tokens, collect, &l, &err), err);
    ck_assert_int_eq(l.rec[0].id, a.id);
    ck_assert_str_eq(l.rec[0].old_sha256_hex, a.sha256_hex);
    ck_assert_int_eq(l.rec[0].old_until_us, 1800000000000000);
    ck_assert_int_eq(l.rec[0].sha256_hex[0], 'b');
    gb_assert_ok(gb_token_rotate(tokens, "a", fresh, 0, &err), err);
    gb_assert_ok(gb_token_list(tokens, collect, &l, &err), err);
    ck_assert_str_eq(l.rec[1].sha256_hex, fresh);
    ck_assert_str_eq(l.rec[1].old_sha256_hex, "");
    gb_assert_fails(gb_token_rotate(tokens, "none", fresh, 0, &err), err, GB_ERR_TOKEN_NOT_FOUND);
    gb_token_store_close(daemon);
    gb_token_store_close(tokens);
    store_fixture_done(&f);
}
END_TEST

START_TEST(changes_by_others_are_seen_once) {
    struct store_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_token_rec a = token("a", GB_SCOPE_READ, "");
    struct gb_token_rec b = token("b", GB_SCOPE_READ, "");
    struct gb_session_rec session = store_session(1, "s");
    struct gb_token_store *daemon;
    struct gb_token_store *command;

    store_fixture_init(&f);
    daemon = open_tokens(f.path);
    command = open_tokens(f.path);
    ck_assert(!changed(daemon));
    gb_assert_ok(gb_token_add(command, &a, &err), err);
    ck_assert(changed(daemon));
    ck_assert(!changed(daemon));
    ck_assert(!changed(command));
    gb_assert_ok(store_put_session_now(f.store, &session, &err), err);
    ck_assert(!changed(daemon));
    gb_assert_ok(gb_token_add(daemon, &b, &err), err);
    ck_assert(!changed(daemon));
    ck_assert(changed(command));
    gb_assert_ok(gb_token_revoke(command, "a", &err), err);
    ck_assert(changed(daemon));
    /* A change of this connection must not hide an unread change of another one. */
    gb_assert_ok(gb_token_add(command, &a, &err), err);
    gb_assert_ok(gb_token_revoke(daemon, "b", &err), err);
    ck_assert(changed(daemon));
    ck_assert(!changed(daemon));
    gb_token_store_close(command);
    gb_token_store_close(daemon);
    store_fixture_done(&f);
}
END_TEST

START_TEST(tokens_and_the_writer_take_turns) {
    struct store_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_rec session = store_session(1, "s");
    struct gb_token_store *tokens;
    struct store_wait wait;
    char name[16];
    int i;

    store_fixture_init(&f);
    tokens = open_tokens(f.path);
    store_wait_init(&wait);
    for (i = 0; i < 100; i++) {
        struct gb_token_rec rec;

        snprintf(name, sizeof(name), "t%d", i);
        rec = token(name, GB_SCOPE_READ, "");
        session.version = i;
        gb_store_put_session(f.store, &session, NULL, store_wait_report, &wait);
        gb_assert_ok(gb_token_add(tokens, &rec, &err), err);
    }
    store_wait_until(&wait, 100);
    ck_assert_uint_eq(wait.failed, 0);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM tokens"), 100);
    store_wait_done(&wait);
    gb_token_store_close(tokens);
    store_fixture_done(&f);
}
END_TEST

START_TEST(a_token_that_cannot_be_understood_is_refused) {
    struct store_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_token_rec a = token("a", GB_SCOPE_READ, "");
    struct gb_token_store *tokens;
    struct listed l = {0};

    store_fixture_init(&f);
    tokens = open_tokens(f.path);
    gb_assert_ok(gb_token_add(tokens, &a, &err), err);
    store_sql_exec(f.path, "UPDATE tokens SET scope = 'god'");
    gb_assert_fails(gb_token_list(tokens, collect, &l, &err), err, GB_ERR_INTERNAL);
    ck_assert_uint_eq(l.count, 0);
    gb_token_store_close(tokens);
    store_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("store_token");

    gb_test_add(suite, "fields", tokens_come_back, 60);
    gb_test_add(suite, "names", names_are_unique_and_revoked_by_name, 60);
    gb_test_add(suite, "changed", changes_by_others_are_seen_once, 60);
    gb_test_add(suite, "turns", tokens_and_the_writer_take_turns, 60);
    gb_test_add(suite, "bad_record", a_token_that_cannot_be_understood_is_refused, 60);
    gb_test_add(suite, "limits", what_limits_a_token_comes_back, 60);
    gb_test_add(suite, "rotation", a_rotation_keeps_the_former_secret_for_a_time, 60);
    return gb_test_run(suite);
}
