/* Upload groups: all buffers are replaced or none, whatever fails. */
#include <stdlib.h>
#include <string.h>

#include "device_write_fixture.h"
#include "gb_test.h"
#include "upload_group_fixture.h"

static const char *const specs[] = {"host:bytes=64M", "host:discrete,bytes=64M"};
#define SPECS 2

static const struct core_part mixed[] = {{"a", 0},
                                         {"b", 3 * CORE_SLOT_BYTES + 5},
                                         {"c", 1},
                                         {"d", 0},
                                         {"e", CORE_SLOT_BYTES},
                                         {"f", 1000},
                                         {"g", 300000},
                                         {"h", 77},
                                         {"i", 0}};
#define MIXED 9
#define MIXED_BYTES (4 * CORE_SLOT_BYTES + 5 + 1 + 1000 + 300000 + 77)

static const struct core_parts all = {mixed, MIXED, GB_KIND_DEVICE};

static char data[MIXED_BYTES];
static char old[MIXED_BYTES];
static char back[MIXED_BYTES];

static void expect_all(struct core_fixture *f, const void *want) {
    struct gb_error err = GB_ERROR_INIT;

    memset(back, 0xee, sizeof(back));
    gb_assert_ok(core_bundle(f->core, &all, back, &err), err);
    ck_assert_int_eq(memcmp(back, want, MIXED_BYTES), 0);
}

/* Prepares all buffers with "old", or none of them. */
static void prepare(struct core_fixture *f, const char *spec, bool there) {
    struct gb_error err = GB_ERROR_INIT;

    core_fixture_init(f, spec);
    core_bytes(1, data, sizeof(data));
    core_bytes(2, old, sizeof(old));
    if (there)
        gb_assert_ok(core_joint(f->core, &all, old, &err), err);
}

static void tidy(struct core_fixture *f) {
    struct gb_error err = GB_ERROR_INIT;
    size_t i;

    for (i = 0; i < MIXED; i++) {
        err = GB_ERROR_INIT;
        core_buffer_delete(f->core, "default", mixed[i].name, &err);
    }
    core_until_idle(f);
    core_fixture_done(f);
}

/* Checks that no buffer exists, or that all have their old content. */
static void expect_as_before(struct core_fixture *f, bool there) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_rec rec;
    size_t i;

    if (there)
        expect_all(f, old);
    for (i = 0; i < MIXED; i++) {
        int r = core_buffer_get(f->core, "default", mixed[i].name, &rec, &err);

        ck_assert_int_eq(r, there ? 0 : -1);
        if (there)
            ck_assert_int_eq(rec.generation, 1);
        err = GB_ERROR_INIT;
    }
}

START_TEST(all_come_back) {
    struct gb_store_stat before;
    struct gb_store_stat after;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_rec rec;
    struct core_fixture f;
    int i;

    prepare(&f, specs[_i], false);
    for (i = 0; i < 3; i++) {
        core_bytes((unsigned)i, data, sizeof(data));
        gb_store_stat(f.store.store, &before);
        gb_assert_ok(core_joint(f.core, &all, data, &err), err);
        gb_store_stat(f.store.store, &after);
        ck_assert_uint_eq(after.commits, before.commits + 1);
        expect_all(&f, data);
        gb_assert_ok(core_buffer_get(f.core, "default", "g", &rec, &err), err);
        ck_assert_int_eq(rec.generation, i + 1);
        ck_assert(rec.has_crc32c);
    }
    tidy(&f);
}
END_TEST

START_TEST(none_at_all) {
    const struct core_parts none = {NULL, 0, GB_KIND_DEVICE};
    struct gb_error err = GB_ERROR_INIT;
    struct core_fixture f;

    prepare(&f, specs[_i], false);
    gb_assert_ok(core_joint(f.core, &none, NULL, &err), err);
    gb_assert_ok(core_bundle(f.core, &none, back, &err), err);
    tidy(&f);
}
END_TEST

/* The upload breaks off after various numbers of bytes. */
START_TEST(a_break_changes_nothing) {
    static const size_t sent[] = {
        0, 1, CORE_SLOT_BYTES, 3 * CORE_SLOT_BYTES + 5, 3 * CORE_SLOT_BYTES + 6, MIXED_BYTES - 1, MIXED_BYTES};
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_group *group;
    struct core_fixture f;
    struct core_wake w;
    bool there = _i >= SPECS;
    size_t i;

    prepare(&f, specs[_i % SPECS], there);
    core_wake_init(&w);
    for (i = 0; i < sizeof(sent) / sizeof(sent[0]); i++) {
        gb_assert_ok(core_joint_begin(f.core, &all, &w, &group, &err), err);
        gb_assert_ok(core_joint_send(group, &w, data, sent[i], &err), err);
        if (sent[i] < MIXED_BYTES)
            gb_assert_fails(gb_upload_group_end(group, &err), err, GB_ERR_INCOMPLETE_BODY);
        gb_upload_group_pause(group, true);
        gb_upload_group_free(group);
    }
    expect_as_before(&f, there);
    core_wake_done(&w);
    tidy(&f);
}
END_TEST

START_TEST(more_than_all) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_group *group;
    struct core_fixture f;
    struct core_wake w;
    void *room;
    size_t n;

    prepare(&f, specs[_i], false);
    core_wake_init(&w);
    gb_assert_ok(core_joint_begin(f.core, &all, &w, &group, &err), err);
    gb_assert_ok(core_joint_send(group, &w, data, MIXED_BYTES, &err), err);
    gb_assert_fails(gb_upload_group_room(group, &room, &n, &err), err, GB_ERR_BODY_TOO_LARGE);
    gb_upload_group_free(group);
    expect_as_before(&f, false);
    core_wake_done(&w);
    tidy(&f);
}
END_TEST

/* --- refusals ----------------------------------------------------------------------------------------------------- */

START_TEST(quota_for_all) {
    struct gb_session_params session = {.has_quota_bytes = true, .has_quota_buffers = true};
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_group *group;
    struct core_fixture f;
    struct core_wake w;

    prepare(&f, specs[_i], false);
    core_wake_init(&w);
    session.quota.bytes = MIXED_BYTES - 1;
    session.quota.buffers = GB_UNLIMITED;
    gb_assert_ok(core_session_patch(f.core, "default", &session, &err), err);
    ck_assert_int_eq(core_joint_begin(f.core, &all, &w, &group, &err), -1);
    ck_assert_int_eq(err.code, GB_ERR_QUOTA_EXCEEDED);
    ck_assert_uint_eq(err.requested_bytes, MIXED_BYTES);
    err = GB_ERROR_INIT;
    session.quota.bytes = MIXED_BYTES;
    session.quota.buffers = MIXED - 1; /* the last one is one too many */
    gb_assert_ok(core_session_patch(f.core, "default", &session, &err), err);
    gb_assert_fails(core_joint_begin(f.core, &all, &w, &group, &err), err, GB_ERR_QUOTA_EXCEEDED);
    core_until_idle(&f);
    session.quota.buffers = MIXED;
    gb_assert_ok(core_session_patch(f.core, "default", &session, &err), err);
    gb_assert_ok(core_joint(f.core, &all, data, &err), err);
    core_wake_done(&w);
    tidy(&f);
}
END_TEST

/* The fourth buffer does not fit. The client gets the error before it sends the others. */
START_TEST(out_of_memory) {
    static const struct core_part large[] = {{"a", 20u << 20}, {"b", 20u << 20}, {"c", 20u << 20}, {"d", 20u << 20}};
    const struct core_parts parts = {large, 4, GB_KIND_DEVICE};
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_group *group;
    struct core_fixture f;
    struct core_wake w;
    void *room;
    size_t n;
    int r;

    prepare(&f, specs[_i], false);
    if (core_on_host(&f)) {
        core_wake_init(&w);
        gb_assert_ok(core_joint_begin(f.core, &parts, &w, &group, &err), err);
        while ((r = gb_upload_group_room(group, &room, &n, &err)) >= 0)
            core_wake_wait(&w);
        ck_assert_int_eq(err.code, GB_ERR_OUT_OF_MEMORY);
        err = GB_ERROR_INIT;
        ck_assert_int_eq(gb_upload_group_end(group, &err), -1);
        gb_upload_group_free(group);
        core_wake_done(&w);
    }
    tidy(&f);
}
END_TEST

/* If the database refuses one record, no buffer changes, in memory or in the database. */
START_TEST(the_database_refuses_one) {
    struct gb_error err = GB_ERROR_INIT;
    struct core_fixture f;
    bool there = _i >= SPECS;

    prepare(&f, specs[_i % SPECS], there);
    store_sql_exec(f.store.path, "CREATE TRIGGER no BEFORE INSERT ON buffers WHEN NEW.name = 'g' "
                                 "BEGIN SELECT RAISE(ABORT, 'no'); END;"
                                 "CREATE TRIGGER no_more BEFORE UPDATE ON buffers WHEN NEW.name = 'g' "
                                 "BEGIN SELECT RAISE(ABORT, 'no'); END");
    gb_assert_fails(core_joint(f.core, &all, data, &err), err, GB_ERR_STORE_FAILED);
    expect_as_before(&f, there);
    ck_assert_int_eq(store_sql_int(f.store.path, "SELECT count(*) FROM buffers"), there ? MIXED : 0);
    ck_assert_int_eq(store_sql_int(f.store.path, "SELECT max(generation) FROM buffers"), there ? 1 : 0);
    store_sql_exec(f.store.path, "DROP TRIGGER no; DROP TRIGGER no_more");
    gb_assert_ok(core_joint(f.core, &all, data, &err), err);
    expect_all(&f, data);
    tidy(&f);
}
END_TEST

/* One buffer is busy when the group commits. */
static bool readable(void *arg) {
    struct core_fixture *f = arg;
    struct gb_error err = GB_ERROR_INIT;

    return core_bundle(f->core, &all, back, &err) == 0;
}

START_TEST(one_is_busy) {
    struct gb_upload_params p = core_upload_params("default", "g", 300000);
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload *upload;
    struct gb_upload_group *group;
    struct core_fixture f;
    struct core_wake w;
    struct core_wake other;

    prepare(&f, specs[_i], true);
    core_wake_init(&w);
    core_wake_init(&other);
    gb_assert_ok(core_joint_begin(f.core, &all, &w, &group, &err), err);
    gb_assert_ok(core_joint_send(group, &w, data, MIXED_BYTES, &err), err);
    p.in_place = true;
    p.waker = core_waker(&other);
    gb_assert_ok(gb_upload_begin(f.core, &p, &upload, &err), err);
    gb_assert_fails(core_joint_finish(group, &w, &err), err, GB_ERR_BUFFER_BUSY);
    gb_upload_group_free(group);
    gb_upload_free(upload);
    core_until(readable, &f, "the write in place has ended");
    expect_as_before(&f, true);
    core_wake_done(&w);
    core_wake_done(&other);
    tidy(&f);
}
END_TEST

/* --- in line ------------------------------------------------------------------------------------------------------ */

/* Two groups of the same names in other orders, and single changes, run while the database waits. All end, one after
 * the other. */
START_TEST(those_that_cross) {
    static const struct core_part turned[] = {{"f", 10}, {"c", 20}, {"b", 30}};
    const struct core_parts few = {turned, 3, GB_KIND_DEVICE};
    struct gb_error err = GB_ERROR_INIT;
    struct core_call gone;
    struct gb_upload_group *group[3];
    struct store_gate gate;
    struct core_fixture f;
    struct core_wake w;
    int i;

    prepare(&f, specs[_i], true);
    core_wake_init(&w);
    core_call_begin(&gone);
    for (i = 0; i < 3; i++) {
        gb_assert_ok(core_joint_begin(f.core, i == 1 ? &few : &all, &w, &group[i], &err), err);
        gb_assert_ok(core_joint_send(group[i], &w, data, i == 1 ? 60 : MIXED_BYTES, &err), err);
    }
    store_gate_close(&gate, f.store.store);
    gb_assert_ok(gb_upload_group_end(group[0], &err), err);
    gb_assert_ok(gb_upload_group_end(group[1], &err), err);
    gb_buffer_delete(f.core, &(struct gb_locator){{"default"}, {"b"}}, &(struct gb_buffer_check){.check = NULL},
                     gone.call.buffer);
    gb_assert_ok(gb_upload_group_end(group[2], &err), err);
    gb_upload_group_free(group[1]); /* its commit continues */
    store_gate_open(&gate);
    for (i = 0; i < 3; i += 2) {
        gb_assert_ok(core_joint_finish(group[i], &w, &err), err);
        gb_upload_group_free(group[i]);
    }
    gb_assert_ok(core_call_end(&gone, &err), err);
    expect_all(&f, data);
    core_wake_done(&w);
    tidy(&f);
}
END_TEST

/* --- other kinds -------------------------------------------------------------------------------------------------- */

START_TEST(every_kind) {
    struct gb_error err = GB_ERROR_INIT;
    struct core_fixture f;
    int kind;

    prepare(&f, specs[_i], false);
    for (kind = 0; kind < GB_KIND_COUNT; kind++) {
        struct core_parts parts = all;

        parts.kind = (enum gb_kind)kind;
        if (!core_kind_offered(&f, parts.kind))
            continue;
        core_bytes((unsigned)kind, data, sizeof(data));
        gb_assert_ok(core_joint(f.core, &parts, data, &err), err);
        expect_all(&f, data);
    }
    tidy(&f);
}
END_TEST

/* A mirrored buffer in a group is not written in place. */
START_TEST(mirrored) {
    struct gb_upload_params p = core_upload_params("default", "g", 300000);
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_group *group;
    struct core_fixture f;
    struct core_wake w;

    prepare(&f, specs[_i], false);
    core_wake_init(&w);
    p.buffer.mirrored = true;
    core_put(f.core, &p, 9, back);
    gb_assert_ok(core_joint_begin(f.core, &all, &w, &group, &err), err);
    gb_assert_ok(core_joint_send(group, &w, data, MIXED_BYTES - 100, &err), err);
    gb_upload_group_free(group);
    core_expect(f.core, "default", "g", back, 300000);
    gb_assert_ok(core_joint(f.core, &all, data, &err), err);
    expect_all(&f, data);
    core_wake_done(&w);
    tidy(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_joint");
    TCase *both = tcase_create("both");

    tcase_set_timeout(both, 60);
    tcase_add_loop_test(both, all_come_back, 0, SPECS);
    tcase_add_loop_test(both, none_at_all, 0, SPECS);
    tcase_add_loop_test(both, a_break_changes_nothing, 0, 2 * SPECS);
    tcase_add_loop_test(both, more_than_all, 0, SPECS);
    tcase_add_loop_test(both, quota_for_all, 0, SPECS);
    tcase_add_loop_test(both, out_of_memory, 0, SPECS);
    tcase_add_loop_test(both, the_database_refuses_one, 0, 2 * SPECS);
    tcase_add_loop_test(both, one_is_busy, 0, SPECS);
    tcase_add_loop_test(both, those_that_cross, 0, SPECS);
    tcase_add_loop_test(both, every_kind, 0, SPECS);
    tcase_add_loop_test(both, mirrored, 0, SPECS);
    suite_add_tcase(suite, both);
    return gb_test_run(suite);
}
