/* The tokens in force: grants, their ends, and the uses of tokens. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "core/public/access.h"
#include "core_fixture.h"
#include "gb_test.h"

#define LONG_US 3600000000LL

static struct gb_error err;

static struct gb_token_rec token(int64_t id, const char *secret, enum gb_scope scope) {
    struct gb_token_rec rec = {.id = id, .scopes = 1u << scope, .name = core_name(secret)};

    gb_assert_ok(gb_sha256_hex(secret, strlen(secret), rec.sha256_hex, &err), err);
    return rec;
}

static uint64_t grant_of(struct gb_core *core, const char *secret) {
    struct gb_token_found found;

    gb_assert_ok(gb_tokens_by_secret(core, secret, &found, &err), err);
    return found.grant;
}

static void set(struct gb_core *core, const struct gb_token_rec *recs, size_t count) {
    gb_assert_ok(gb_tokens_set(core, recs, count, &err), err);
}

static void expect_unknown(struct gb_core *core, const char *secret, const char *why) {
    struct gb_error missed = GB_ERROR_INIT;
    struct gb_token_found found;

    ck_assert_int_eq(gb_tokens_by_secret(core, secret, &found, &missed), -1);
    ck_assert_int_eq(missed.code, GB_ERR_UNAUTHENTICATED);
    ck_assert_msg(strstr(missed.detail, why) != NULL, "%s", missed.detail);
}

START_TEST(tokens_permit_what_they_say) {
    struct gb_token_rec tokens[4] = {token(1, "one", GB_SCOPE_READ), token(2, "two", GB_SCOPE_WRITE),
                                     token(3, "three", GB_SCOPE_ADMIN), token(4, "four", GB_SCOPE_VERIFY)};
    struct core_fixture f;
    uint64_t grant[4];

    core_fixture_init(&f, "host");
    ck_assert(!gb_tokens_required(f.core));
    strcpy(tokens[1].session, "s");
    set(f.core, tokens, 4);
    ck_assert(gb_tokens_required(f.core));
    grant[0] = grant_of(f.core, "one");
    grant[1] = grant_of(f.core, "two");
    grant[2] = grant_of(f.core, "three");
    grant[3] = grant_of(f.core, "four");
    gb_assert_ok(gb_tokens_permit(f.core, grant[0], GB_SCOPE_READ, "any", &err), err);
    gb_assert_ok(gb_tokens_permit(f.core, grant[0], GB_SCOPE_VERIFY, "any", &err), err);
    gb_assert_fails(gb_tokens_permit(f.core, grant[0], GB_SCOPE_WRITE, "any", &err), err, GB_ERR_FORBIDDEN);
    gb_assert_ok(gb_tokens_permit(f.core, grant[1], GB_SCOPE_WRITE, "s", &err), err);
    gb_assert_ok(gb_tokens_permit(f.core, grant[1], GB_SCOPE_WRITE, NULL, &err), err);
    gb_assert_fails(gb_tokens_permit(f.core, grant[1], GB_SCOPE_READ, "t", &err), err, GB_ERR_FORBIDDEN);
    gb_assert_fails(gb_tokens_permit(f.core, grant[1], GB_SCOPE_READ, "", &err), err, GB_ERR_FORBIDDEN);
    gb_assert_ok(gb_tokens_permit(f.core, grant[2], GB_SCOPE_ADMIN, "", &err), err);
    gb_assert_ok(gb_tokens_permit(f.core, grant[3], GB_SCOPE_VERIFY, "any", &err), err);
    gb_assert_fails(gb_tokens_permit(f.core, grant[3], GB_SCOPE_READ, "any", &err), err, GB_ERR_FORBIDDEN);
    gb_assert_fails(gb_tokens_permit(f.core, 4242, GB_SCOPE_VERIFY, "any", &err), err, GB_ERR_UNAUTHENTICATED);
    expect_unknown(f.core, "five", "not known");
    expect_unknown(f.core, "", "not known");
    set(f.core, NULL, 0);
    ck_assert(!gb_tokens_required(f.core));
    ck_assert(!gb_tokens_in_force(f.core, grant[0]));
    core_fixture_done(&f);
}
END_TEST

/* A grant holds as long as neither what it permits nor what opens it changes. */
START_TEST(grants_last_as_long_as_what_they_permit) {
    struct gb_token_rec tokens[4] = {token(1, "one", GB_SCOPE_READ), token(2, "two", GB_SCOPE_READ),
                                     token(3, "three", GB_SCOPE_READ), token(4, "four", GB_SCOPE_READ)};
    struct gb_token_rec other = token(4, "other", GB_SCOPE_READ);
    struct core_fixture f;
    uint64_t grant[4];

    core_fixture_init(&f, "host");
    set(f.core, tokens, 4);
    grant[0] = grant_of(f.core, "one");
    grant[1] = grant_of(f.core, "two");
    grant[2] = grant_of(f.core, "three");
    grant[3] = grant_of(f.core, "four");
    tokens[0].expires_at_us = gb_wall_us() + LONG_US; /* a time permits nothing else */
    tokens[1].scopes |= 1u << GB_SCOPE_MAP;
    strcpy(tokens[2].prefix, "a-");
    tokens[3] = other;
    set(f.core, tokens, 4);
    ck_assert_uint_eq(grant_of(f.core, "one"), grant[0]);
    ck_assert(gb_tokens_in_force(f.core, grant[0]));
    ck_assert(!gb_tokens_in_force(f.core, grant[1]));
    ck_assert(!gb_tokens_in_force(f.core, grant[2]));
    ck_assert(!gb_tokens_in_force(f.core, grant[3]));
    ck_assert_uint_gt(grant_of(f.core, "two"), grant[3]);
    set(f.core, tokens + 1, 3);
    ck_assert(!gb_tokens_in_force(f.core, grant[0]));
    tokens[0].id = 5; /* revoked and made again */
    set(f.core, tokens, 4);
    ck_assert_uint_ne(grant_of(f.core, "one"), grant[0]);
    core_fixture_done(&f);
}
END_TEST

START_TEST(what_has_expired_is_not_in_force) {
    struct gb_token_rec tokens[2] = {token(1, "past", GB_SCOPE_READ), token(2, "future", GB_SCOPE_READ)};
    struct core_fixture f;
    uint64_t grant;

    core_fixture_init(&f, "host");
    ck_assert_int_eq(gb_tokens_next_end(f.core, 0), 0);
    set(f.core, tokens, 2);
    grant = grant_of(f.core, "past");
    tokens[0].expires_at_us = gb_wall_us();
    tokens[1].expires_at_us = tokens[0].expires_at_us + LONG_US;
    set(f.core, tokens, 2);
    ck_assert(gb_tokens_required(f.core));
    ck_assert(!gb_tokens_in_force(f.core, grant));
    expect_unknown(f.core, "past", "\"past\" has expired");
    gb_assert_fails(gb_tokens_permit(f.core, grant, GB_SCOPE_READ, "", &err), err, GB_ERR_UNAUTHENTICATED);
    ck_assert(gb_tokens_in_force(f.core, grant_of(f.core, "future")));
    ck_assert_int_eq(gb_tokens_next_end(f.core, tokens[0].expires_at_us - 1), tokens[0].expires_at_us);
    ck_assert_int_eq(gb_tokens_next_end(f.core, tokens[0].expires_at_us), tokens[1].expires_at_us);
    ck_assert_int_eq(gb_tokens_next_end(f.core, tokens[1].expires_at_us), 0);
    core_fixture_done(&f);
}
END_TEST

START_TEST(a_former_secret_has_a_grant_of_its_own) {
    struct gb_token_rec rec = token(1, "old", GB_SCOPE_READ);
    struct gb_token_rec fresh = token(1, "new", GB_SCOPE_READ);
    struct core_fixture f;
    uint64_t grant;

    core_fixture_init(&f, "host");
    set(f.core, &rec, 1);
    grant = grant_of(f.core, "old");
    strcpy(fresh.old_sha256_hex, rec.sha256_hex);
    fresh.old_until_us = gb_wall_us() + LONG_US;
    set(f.core, &fresh, 1);
    ck_assert_uint_eq(grant_of(f.core, "old"), grant);
    ck_assert_uint_ne(grant_of(f.core, "new"), grant);
    ck_assert_int_eq(gb_tokens_next_end(f.core, gb_wall_us()), fresh.old_until_us);
    fresh.expires_at_us = fresh.old_until_us - 1; /* the token's end is the former secret's too */
    set(f.core, &fresh, 1);
    ck_assert_int_eq(gb_tokens_next_end(f.core, gb_wall_us()), fresh.expires_at_us);
    fresh.expires_at_us = 0;
    fresh.old_until_us = gb_wall_us();
    set(f.core, &fresh, 1);
    ck_assert(!gb_tokens_in_force(f.core, grant));
    expect_unknown(f.core, "old", "another secret");
    grant_of(f.core, "new");
    core_fixture_done(&f);
}
END_TEST

START_TEST(subjects_are_found_by_name) {
    struct gb_token_rec tokens[2] = {token(1, "one", GB_SCOPE_READ), token(2, "two", GB_SCOPE_READ)};
    const char *names[3] = {"CN=nobody", "dns:two.example", "dns:one.example"};
    struct gb_error missed = GB_ERROR_INIT;
    struct gb_token_found found;
    char hash[80];
    const char *as_subject = hash;
    struct core_fixture f;

    core_fixture_init(&f, "host");
    strcpy(tokens[0].subject, "dns:one.example");
    strcpy(tokens[1].subject, "dns:two.example");
    tokens[1].sha256_hex[0] = '\0'; /* its subject alone opens it */
    set(f.core, tokens, 2);
    gb_assert_ok(gb_tokens_by_subject(f.core, names, 3, &found, &err), err);
    ck_assert_int_eq(found.by.token, 2); /* the first of the names */
    gb_assert_ok(gb_tokens_by_subject(f.core, names + 2, 1, &found, &err), err);
    ck_assert_int_eq(found.by.token, 1);
    ck_assert_uint_ne(found.grant, grant_of(f.core, "one"));
    gb_assert_fails(gb_tokens_by_subject(f.core, names, 1, &found, &err), err, GB_ERR_UNAUTHENTICATED);
    gb_assert_fails(gb_tokens_by_subject(f.core, names, 0, &found, &err), err, GB_ERR_UNAUTHENTICATED);
    expect_unknown(f.core, "two", "not known");
    snprintf(hash, sizeof(hash), "#%s", tokens[0].sha256_hex); /* no subject is taken for a secret */
    gb_assert_fails(gb_tokens_by_subject(f.core, &as_subject, 1, &found, &err), err, GB_ERR_UNAUTHENTICATED);
    tokens[1].expires_at_us = 1;
    set(f.core, tokens, 2);
    ck_assert_int_eq(gb_tokens_by_subject(f.core, names, 2, &found, &missed), -1);
    ck_assert_msg(strstr(missed.detail, "\"two\" has expired") != NULL, "%s", missed.detail);
    gb_assert_ok(gb_tokens_by_subject(f.core, names, 3, &found, &err), err); /* another name may still do */
    core_fixture_done(&f);
}
END_TEST

struct uses {
    unsigned count;
    struct gb_token_rec rec[4];
};

static int collect(void *arg, const struct gb_token_rec *rec, struct gb_error *error) {
    struct uses *u = arg;

    (void)error;
    u->rec[u->count++] = *rec;
    return 0;
}

static struct gb_token_rec stored(struct core_fixture *f, struct gb_token_store *store) {
    struct uses u = {.count = 0};

    gb_tokens_save_uses(f->core);
    gb_assert_ok(store_flush_now(f->store.store, &err), err);
    gb_assert_ok(gb_token_list(store, collect, &u, &err), err);
    ck_assert_uint_eq(u.count, 1);
    return u.rec[0];
}

START_TEST(uses_reach_the_database) {
    struct gb_token_rec rec = token(0, "one", GB_SCOPE_READ);
    struct gb_token_rec file = token(-7, "file", GB_SCOPE_READ);
    struct gb_token_store *store;
    struct gb_token_rec both[2];
    struct gb_token_found found;
    struct core_fixture f;
    bool changed;

    core_fixture_init(&f, "host");
    gb_assert_ok(gb_token_store_open(f.store.path, &store, &err), err);
    gb_assert_ok(gb_token_add(store, &rec, &err), err);
    both[0] = rec;
    both[1] = file;
    set(f.core, both, 2);
    ck_assert_int_eq(stored(&f, store).used_at_us, 0);
    gb_assert_ok(gb_tokens_by_secret(f.core, "one", &found, &err), err);
    ck_assert(found.unnoted && !found.has_prefix && found.by.token == rec.id);
    gb_tokens_used(f.core, found.grant, "192.0.2.7");
    ck_assert_str_eq(stored(&f, store).used_from, "192.0.2.7");
    ck_assert_int_gt(stored(&f, store).used_at_us, 0);
    gb_assert_ok(gb_token_changed(store, &changed, &err), err);
    ck_assert(!changed);  /* a use is no change of the tokens */
    set(f.core, both, 2); /* what is known here is newer than the record */
    gb_tokens_used(f.core, grant_of(f.core, "file"), "2001:db8::7");
    gb_tokens_save_uses(f.core);
    gb_assert_ok(store_flush_now(f.store.store, &err), err);
    gb_assert_ok(gb_token_last_use(store, &file, &err), err);
    ck_assert_str_eq(file.used_from, "2001:db8::7");
    gb_assert_ok(gb_token_revoke(store, "one", &err), err);
    gb_tokens_used(f.core, found.grant, "192.0.2.8"); /* the core does not know yet */
    gb_tokens_save_uses(f.core);
    gb_assert_ok(store_flush_now(f.store.store, &err), err);
    gb_assert_ok(gb_token_last_use(store, &both[0], &err), err);
    ck_assert_int_eq(both[0].used_at_us, 0);
    gb_tokens_used(f.core, 4242, "192.0.2.9"); /* of no grant */
    gb_token_store_close(store);
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tokens");

    gb_test_add(suite, "permit", tokens_permit_what_they_say, 60);
    gb_test_add(suite, "grants", grants_last_as_long_as_what_they_permit, 60);
    gb_test_add(suite, "expired", what_has_expired_is_not_in_force, 60);
    gb_test_add(suite, "former", a_former_secret_has_a_grant_of_its_own, 60);
    gb_test_add(suite, "subjects", subjects_are_found_by_name, 60);
    gb_test_add(suite, "uses", uses_reach_the_database, 60);
    return gb_test_run(suite);
}
