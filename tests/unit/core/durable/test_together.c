/* What came in one change goes to disk in one, whatever has one of the buffers stored and whatever happens
 * meanwhile. */
#include <string.h>

#include "durable_fixture.h"
#include "gb_test.h"
#include "upload_group_fixture.h"

#define BYTES 200000u /* a file each */
#define MEMBERS_MAX 4

static const char *name_of(char name) {
    static const char *const names[] = {"a", "b", "c", "d"};

    return names[name - 'a'];
}

/* Writes the named buffers as one group. Those in capitals are sync, the others behind. All have the same bytes. */
static int group(struct core_fixture *f, const char *names, unsigned seed, struct gb_error *err) {
    static char data[MEMBERS_MAX * BYTES];
    enum gb_durability durabilities[MEMBERS_MAX];
    struct core_part list[MEMBERS_MAX];
    const struct core_parts parts = {list, strlen(names), GB_KIND_DEVICE};
    size_t i;

    for (i = 0; names[i]; i++) {
        durabilities[i] = names[i] < 'a' ? GB_DURABILITY_SYNC : GB_DURABILITY_BEHIND;
        list[i] = (struct core_part){name_of((char)(names[i] | 0x20)), BYTES};
        core_bytes(seed, data + i * BYTES, BYTES);
    }
    return core_joint_durable(f->core, &parts, durabilities, data, err);
}

static void group_ok(struct core_fixture *f, const char *names, unsigned seed) {
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(group(f, names, seed, &err), err);
}

static void store_ok(struct core_fixture *f, char name) {
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(durable_do(f, gb_buffer_store, name_of(name), NULL, &err), err);
}

/* want: for each of the names whether its latest bytes are stored. */
static void expect_stored(struct core_fixture *f, const char *names, bool want) {
    for (; *names; names++) {
        struct gb_buffer_rec rec = durable_get(f, name_of(*names));

        ck_assert_msg((rec.stored_generation == rec.generation) == want, "\"%c\" is %sstored", *names,
                      want ? "not " : "");
    }
}

static void expect_bytes(struct core_fixture *f, const char *names, unsigned seed) {
    for (; *names; names++)
        durable_assert_bytes(f, name_of(*names), seed, BYTES);
}

static void open_with(struct core_fixture *f, const char *faults) {
    core_fixture_prepare(f, "host");
    f->durable = true;
    f->config.durable_lag_ms = 3600 * 1000; /* nothing is stored by itself */
    f->disk_faults = faults;
    core_fixture_open(f);
}

/* --- what stores one --------------------------------------------------------------------------------------------- */

START_TEST(test_store) {
    struct core_fixture f;

    durable_open(&f, "host");
    group_ok(&f, "abc", 1);
    expect_stored(&f, "abc", false);
    store_ok(&f, 'b');
    expect_stored(&f, "abc", true);
    durable_put_ok(&f, "a", 2, BYTES, GB_DURABILITY_BEHIND);
    store_ok(&f, 'b'); /* a's are later ones, by themselves */
    expect_stored(&f, "a", false);
    core_fixture_done(&f);
}
END_TEST

START_TEST(test_evict) {
    struct gb_error err = GB_ERROR_INIT;
    struct core_fixture f;

    durable_open(&f, "host");
    group_ok(&f, "abc", 1);
    gb_assert_ok(durable_do(&f, gb_buffer_evict, "c", NULL, &err), err);
    expect_stored(&f, "abc", true);
    ck_assert_int_eq(durable_get(&f, "c").state, GB_BUFFER_STORED);
    ck_assert_int_eq(durable_get(&f, "a").state, GB_BUFFER_READY);
    expect_bytes(&f, "abc", 1);
    core_fixture_done(&f);
}
END_TEST

START_TEST(test_patch) {
    struct gb_error err = GB_ERROR_INIT;
    struct core_fixture f;

    durable_open(&f, "host");
    group_ok(&f, "abc", 1);
    gb_assert_ok(durable_patch(&f, "a", GB_DURABILITY_SYNC, &err), err);
    expect_stored(&f, "abc", true);
    ck_assert_int_eq(durable_get(&f, "b").durability, GB_DURABILITY_BEHIND);
    core_fixture_done(&f);
}
END_TEST

/* A member that is durable at once takes the others along. */
START_TEST(test_mixed) {
    struct core_fixture f;

    durable_open(&f, "host");
    group_ok(&f, "abC", 1);
    expect_stored(&f, "abc", true);
    core_fixture_done(&f);
}
END_TEST

/* By itself, after the lag. */
static bool all_stored(void *arg) {
    const char *names;

    for (names = "abc"; *names; names++) {
        struct gb_buffer_rec rec = durable_get(arg, name_of(*names));

        if (rec.stored_generation != rec.generation)
            return false;
    }
    return true;
}

START_TEST(test_lag) {
    struct core_fixture f;

    core_fixture_prepare(&f, "host");
    f.durable = true;
    f.config.durable_lag_ms = 1;
    core_fixture_open(&f);
    group_ok(&f, "abc", 1);
    core_until(all_stored, &f, "all are stored");
    core_fixture_done(&f);
}
END_TEST

/* --- what happens meanwhile --------------------------------------------------------------------------------------- */

/* The bytes of a buffer that two groups wrote are of the second: the first one's must not be alone on disk. */
START_TEST(test_groups_that_share) {
    struct core_fixture f;

    durable_open(&f, "host");
    group_ok(&f, "ab", 1);
    group_ok(&f, "cd", 2);
    group_ok(&f, "bc", 3);
    store_ok(&f, 'd');
    expect_stored(&f, "abcd", true);
    group_ok(&f, "ab", 4);
    group_ok(&f, "ab", 5);
    group_ok(&f, "cd", 6);
    store_ok(&f, 'b');
    expect_stored(&f, "ab", true);
    expect_stored(&f, "cd", false);
    core_fixture_done(&f);
}
END_TEST

/* A member is written by itself: what it has goes with the group, or goes first and without it. */
START_TEST(test_written_again) {
    struct gb_error err = GB_ERROR_INIT;
    struct core_fixture f;

    durable_open(&f, "host");
    group_ok(&f, "abc", 1);
    durable_put_ok(&f, "a", 2, BYTES, GB_DURABILITY_BEHIND);
    store_ok(&f, 'c');
    expect_stored(&f, "abc", true);
    group_ok(&f, "abc", 3);
    durable_put_ok(&f, "a", 4, BYTES, GB_DURABILITY_SYNC); /* nothing of the group's */
    expect_stored(&f, "a", true);
    expect_stored(&f, "bc", false);
    gb_assert_ok(core_buffer_delete(f.core, "default", "b", &err), err);
    store_ok(&f, 'c');
    expect_stored(&f, "ac", true);
    core_fixture_done(&f);
}
END_TEST

static void overwrite(struct core_fixture *f, const char *name, struct gb_upload **ret, struct core_wake *wake) {
    struct gb_upload_params p = core_upload_params("default", name, BYTES);
    struct gb_error err = GB_ERROR_INIT;

    core_wake_init(wake);
    p.in_place = true;
    p.waker = core_waker(wake);
    gb_assert_ok(gb_upload_begin(f->core, &p, ret, &err), err);
    ck_assert_int_eq(core_upload_send(*ret, wake, durable_sent, 1000, &err), 0);
}

static bool is_partial(void *arg) {
    return durable_get(arg, "a").state == GB_BUFFER_PARTIAL;
}

/* While one is written in place the others wait; when that breaks off, they wait no longer. */
START_TEST(test_in_place) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload *upload;
    struct core_fixture f;
    struct core_wake wake;

    durable_open(&f, "host");
    group_ok(&f, "abc", 1);
    overwrite(&f, "a", &upload, &wake);
    ck_assert_int_eq(durable_do(&f, gb_buffer_store, "b", NULL, &err), -1);
    ck_assert_int_eq(err.code, GB_ERR_BUFFER_BUSY);
    ck_assert_ptr_nonnull(strstr(err.detail, "\"a\""));
    expect_stored(&f, "bc", false);
    gb_upload_free(upload);
    core_until(is_partial, &f, "the write has broken off");
    store_ok(&f, 'b');
    expect_stored(&f, "bc", true);
    core_wake_done(&wake);
    core_fixture_done(&f);
}
END_TEST

/* --- faults ------------------------------------------------------------------------------------------------------- */

/* The process ends while the disk takes only some of the bytes: all come back as they were, or all as they are. */
static void check_end(const char *faults, unsigned seed) {
    struct core_fixture f;

    open_with(&f, faults);
    group_ok(&f, "abc", 1);
    store_ok(&f, 'a');
    store_ok(&f, 'b');
    store_ok(&f, 'c');
    group_ok(&f, "abc", 2);
    core_fixture_close(&f);
    f.disk_faults = NULL;
    core_fixture_open(&f);
    expect_bytes(&f, "abc", seed);
    core_fixture_done(&f);
}

START_TEST(test_end) {
    check_end("create@4=EIO", 1);
    check_end("create@5=EIO", 1);
    check_end("create@6=EIO", 1);
    check_end("sync@6=EIO", 1);
    check_end(NULL, 2);
}
END_TEST

static bool can_store(void *arg) {
    struct gb_error err = GB_ERROR_INIT;

    return durable_do(arg, gb_buffer_store, "c", NULL, &err) == 0;
}

START_TEST(test_one_cannot_be_written) {
    struct gb_error err = GB_ERROR_INIT;
    struct core_fixture f;

    open_with(&f, "create@2=EIO");
    group_ok(&f, "abc", 1);
    ck_assert_int_eq(durable_do(&f, gb_buffer_evict, "b", NULL, &err), -1);
    ck_assert_int_eq(err.code, GB_ERR_STORAGE_FAILED);
    expect_stored(&f, "abc", false);
    core_until(can_store, &f, "the disk takes bytes again");
    expect_stored(&f, "abc", true);
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("together");

    gb_test_add(suite, "store", test_store, 60);
    gb_test_add(suite, "evict", test_evict, 60);
    gb_test_add(suite, "patch", test_patch, 60);
    gb_test_add(suite, "mixed", test_mixed, 60);
    gb_test_add(suite, "lag", test_lag, 60);
    gb_test_add(suite, "groups that share", test_groups_that_share, 60);
    gb_test_add(suite, "written again", test_written_again, 60);
    gb_test_add(suite, "in place", test_in_place, 60);
    gb_test_add(suite, "end", test_end, 60);
    gb_test_add(suite, "one cannot be written", test_one_cannot_be_written, 60);
    return gb_test_run(suite);
}
