/* Leases that end by themselves: by their greatest age, and with the grant that they were made under. */
#include <string.h>

#include "base/hash.h"
#include "gb_test.h"
#include "lease_fixture.h"

#define BYTES 4321

static char data[BYTES];

static bool has_ended(void *arg) {
    return core_leases(((struct core_fixture *)arg)->core, NULL, 0) == 0;
}

static bool one_has_ended(void *arg) {
    return core_leases(((struct core_fixture *)arg)->core, NULL, 0) == 1;
}

static uint64_t put_token(struct core_fixture *f) {
    struct gb_token_rec rec = {.id = 1, .scopes = 1u << GB_SCOPE_MAP_WRITE, .name = {"t"}};
    struct gb_error err = GB_ERROR_INIT;
    struct gb_token_found found;

    gb_assert_ok(gb_sha256_hex("secret", 6, rec.sha256_hex, &err), err);
    gb_assert_ok(gb_tokens_set(f->core, &rec, 1, &err), err);
    gb_assert_ok(gb_tokens_by_secret(f->core, "secret", &found, &err), err);
    return found.grant;
}

/* Another token, so that one is still required. */
static void replace_token(struct core_fixture *f) {
    struct gb_token_rec rec = {.id = 2, .scopes = 1u << GB_SCOPE_READ, .name = {"u"}};
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(gb_tokens_set(f->core, &rec, 1, &err), err);
}

/* The holder is alive and was not asked: what it mapped for writing is tainted. */
START_TEST(its_age_is_over) {
    bool write = _i == 1;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_lease_params p;
    struct core_mapping m;
    struct gb_buffer_rec rec;
    struct gb_holder *holder;
    struct core_fixture f;

    core_open_two(&f, "host");
    core_put_kind(&f, "a", GB_KIND_PAGEABLE, BYTES, 1, data);
    holder = core_holder(f.core);
    p = core_map_params(holder, "default", "a", write);
    p.max_age_s = 1;
    gb_assert_ok(core_map(f.core, &p, &m, &err), err);
    core_until(has_ended, &f, "its age is over");
    gb_assert_ok(core_buffer_get(f.core, "default", "a", &rec, &err), err);
    ck_assert(rec.tainted == write);
    ck_assert_mem_eq(m.bytes, data, BYTES); /* its mapping is its own */
    core_mapping_done(&m);
    ck_assert(!gb_holder_maps(holder));
    p.max_age_s = 0;
    gb_assert_ok(core_map(f.core, &p, &m, &err), err); /* the holder itself stays */
    ck_assert_int_eq(core_lease(f.core, m.id).expires_at_us, 0);
    core_mapping_done(&m);
    gb_holder_end(holder);
    core_until_unmapped(&f);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

START_TEST(a_lease_with_an_age_is_no_export) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_lease_params p;
    struct core_mapping m;
    struct gb_lease_view view;
    struct gb_holder *holder;
    struct core_fixture f;

    core_open_two(&f, "host");
    core_put_kind(&f, "a", GB_KIND_PAGEABLE, BYTES, 1, data);
    holder = core_holder(f.core);
    p = core_map_params(holder, "default", "a", false);
    p.max_age_s = 86400;
    gb_assert_ok(core_map(f.core, &p, &m, &err), err);
    view = core_lease(f.core, m.id);
    ck_assert(!view.exported && view.expires_at_us > 0 && view.pid > 0);
    core_mapping_done(&m);
    gb_holder_end(holder);
    core_until_unmapped(&f);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

START_TEST(its_grant_is_over) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_lease_params p;
    struct gb_buffer_rec rec;
    struct core_mapping mine;
    struct core_mapping other;
    struct gb_holder *holder;
    struct core_fixture f;

    core_open_two(&f, "host");
    core_put_kind(&f, "a", GB_KIND_PAGEABLE, BYTES, 1, data);
    holder = core_holder(f.core);
    p = core_map_params(holder, "default", "a", true);
    gb_assert_ok(core_map(f.core, &p, &other, &err), err); /* under no grant */
    p.caller = put_token(&f);
    gb_assert_ok(core_map(f.core, &p, &mine, &err), err);
    gb_leases_recheck(f.core);
    ck_assert_uint_eq(core_leases(f.core, NULL, 0), 2);
    replace_token(&f);
    gb_leases_recheck(f.core);
    core_until(one_has_ended, &f, "what was written has its generation");
    ck_assert_int_eq(core_lease(f.core, other.id).id, other.id);
    gb_assert_ok(core_buffer_get(f.core, "default", "a", &rec, &err), err);
    ck_assert(rec.tainted);
    gb_assert_fails(core_map(f.core, &p, NULL, &err), err, GB_ERR_UNAUTHENTICATED); /* begun before, granted after */
    core_mapping_done(&mine);
    core_mapping_done(&other);
    gb_holder_end(holder);
    core_until_unmapped(&f);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("lease_age");

    gb_test_add_loop(suite, "age", its_age_is_over, 60, 2);
    gb_test_add(suite, "no export", a_lease_with_an_age_is_no_export, 60);
    gb_test_add(suite, "grant", its_grant_is_over, 60);
    return gb_test_run(suite);
}
