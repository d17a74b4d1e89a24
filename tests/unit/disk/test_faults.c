/* The rules of --disk-fault, and what a disk does when its calls fail. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "disk_fixture.h"
#include "gb_test.h"

static struct disk_fixture f;
static struct gb_error err;

static void begin(const char *rules) {
    err = GB_ERROR_INIT;
    disk_fixture_init(&f, "/tmp", rules);
}

/* --- rules -------------------------------------------------------------------------------------------------------- */

START_TEST(rules_are_parsed) {
    struct gb_disk_plan plan;
    const struct gb_disk_rule *r;

    err = GB_ERROR_INIT;
    gb_assert_ok(gb_disk_plan_init(&plan,
                                   "write=ENOSPC,sync@3=EIO,read@2+=flip/12,write@4=short/512,before_commit@1=kill,"
                                   "load+=delay/50",
                                   &err),
                 err);
    ck_assert_uint_eq(plan.count, 6);
    r = plan.rules;
    ck_assert(r[0].op == GB_DISK_OP_write && r[0].first == 1 && r[0].last == UINT64_MAX && r[0].errnum == ENOSPC);
    ck_assert(r[1].op == GB_DISK_OP_sync && r[1].first == 3 && r[1].last == 3 && r[1].errnum == EIO);
    ck_assert(r[2].op == GB_DISK_OP_read && r[2].first == 2 && r[2].last == UINT64_MAX && r[2].flip_bit == 12);
    ck_assert(r[3].first == 4 && r[3].most_bytes == 512 && r[3].errnum == 0 && r[3].flip_bit == GB_DISK_NO_FLIP);
    ck_assert(r[4].op == GB_DISK_OP_before_commit && r[4].kill);
    ck_assert(r[5].op == GB_DISK_OP_load && r[5].delay_ms == 50 && !r[5].kill);
    gb_disk_plan_done(&plan);
    gb_assert_ok(gb_disk_plan_init(&plan, "", &err), err);
    ck_assert_uint_eq(plan.count, 0);
    gb_disk_plan_done(&plan);
}
END_TEST

START_TEST(wrong_rules_are_refused) {
    static const char *const wrong[][2] = {
        {"write", "OP[@N][+]=ERROR"},
        {"wrong=EIO", "statvfs"},
        {"write=EWHAT", "ENOSPC"},
        {"write@0=EIO", "from 1"},
        {"write@x=EIO", "from 1"},
        {"write@=EIO", "from 1"},
        {"write=delay/3600001", "3600000"},
        {"write=delay/", "milliseconds"},
        {"write=short/0", "at least 1"},
        {"write=short/x", "at least 1"},
        {"sync=short/1", "only write and read"},
        {"write=flip/1", "only what is read"},
        {"read=flip/-1", "from 0"},
        {"read=flip/18446744073709551615", "from 0"},
        {"apply=EIO", "kill"},
        {"apply=short/1", "kill"},
        {"write=EIO,", "OP[@N][+]=ERROR"},
        {"write=EIO,,sync=EIO", "OP[@N][+]=ERROR"},
        {"=EIO", "permitted"},
        {"write=kill/1", "ENOSPC"},
    };
    struct gb_disk_config config = {.dir = "/tmp/gb_disk_never", .uuid = DISK_UUID, .faults = wrong[_i][0]};
    struct gb_disk *disk = NULL;

    err = GB_ERROR_INIT;
    ck_assert_int_eq(gb_disk_open(&config, &disk, &err), -1);
    ck_assert_ptr_null(disk);
    ck_assert_int_eq(err.code, GB_ERR_INVALID_ARGUMENT);
    ck_assert_msg(strstr(err.detail, wrong[_i][1]) != NULL, "%s", err.detail);
    ck_assert_int_ne(access("/tmp/gb_disk_never", F_OK), 0);
}
END_TEST

START_TEST(several_rules_of_one_call) {
    struct gb_disk_plan plan;
    struct gb_disk_verdict v;

    err = GB_ERROR_INIT;
    gb_assert_ok(gb_disk_plan_init(&plan,
                                   "read@2=delay/3,read=delay/4,read=short/9,read=short/7,read@2=EIO,read=ENOSPC,"
                                   "read=flip/5,read=flip/6,write=kill",
                                   &err),
                 err);
    v = gb_disk_plan_judge(&plan, GB_DISK_OP_read);
    ck_assert(v.delay_ms == 4 && v.errnum == ENOSPC && v.most_bytes == 7 && v.flip_bit == 5 && !v.kill);
    v = gb_disk_plan_judge(&plan, GB_DISK_OP_read);
    ck_assert(v.delay_ms == 7 && v.errnum == EIO);
    v = gb_disk_plan_judge(&plan, GB_DISK_OP_sync);
    ck_assert(v.delay_ms == 0 && v.errnum == 0 && v.most_bytes == UINT64_MAX && v.flip_bit == GB_DISK_NO_FLIP);
    ck_assert(gb_disk_plan_judge(&plan, GB_DISK_OP_write).kill);
    gb_disk_plan_done(&plan);
}
END_TEST

/* --- calls for writing that fail ---------------------------------------------------------------------------------- */

#define BYTES 8192u

static const struct {
    const char *name;
    int errnum;
} errors[] = {{"ENOSPC", ENOSPC}, {"EDQUOT", EDQUOT}, {"EIO", EIO}, {"EROFS", EROFS}};
#define ERRORS 4

/* Which call of a file's making fails. open@1 looks for the marker, and @2 and @3 are the folders that are synced and
 * that has the file; write@1 has the bytes and @2 the header; dirsync@1 is that of the new folder's parent. */
static const struct {
    const char *op;
    const char *call;
    unsigned number;
    unsigned syncs; /* fdatasync, of this file */
} stages[] = {
    {"mkdir", "mkdirat", 1, 0},  {"open", "openat", 2, 0},   {"dirsync", "fsync", 1, 0},
    {"open", "openat", 3, 0},    {"create", "openat", 1, 0}, {"fallocate", "fallocate", 1, 0},
    {"write", "pwrite", 1, 0},   {"write", "pwrite", 2, 0},  {"truncate", "ftruncate", 1, 0},
    {"sync", "fdatasync", 1, 1}, {"dirsync", "fsync", 2, 1},
};
#define STAGES 11

/* What holds right after a call has failed. */
static void assert_given_up(int stage, int error, const struct gb_disk_name *name) {
    bool full = error < 2;
    char path[DISK_PATH_SIZE];

    ck_assert_str_eq(gb_code_slug(err.code), full ? "storage_full" : "storage_failed");
    ck_assert_str_eq(err.native_domain, "errno");
    ck_assert_int_eq(err.native_code, errors[error].errnum);
    ck_assert_str_eq(err.native_name, errors[error].name);
    ck_assert_str_eq(err.call, stages[stage].call);
    ck_assert_int_eq(err.has_numbers, full);
    if (full)
        ck_assert_uint_eq(err.requested_bytes, BYTES);
    ck_assert_int_ne(access(disk_path(&f, name, path), F_OK), 0);
    ck_assert_int_eq(disk_stat(&f).state, full ? GB_DISK_FULL : GB_DISK_FAILED);
    ck_assert_str_eq(disk_stat(&f).error.native_name, errors[error].name);
    ck_assert_uint_eq(disk_stat(&f).failures, 1);
    ck_assert_uint_eq(disk_stat(&f).writes, 0);
    ck_assert_uint_eq(f.disk->promised, 0);
    ck_assert_uint_eq(disk_calls(&f, GB_DISK_OP_sync), stages[stage].syncs);
}

/* A disk that has failed takes no file until it is well again; a full one takes what fits. */
static void assert_comes_back(int error) {
    struct gb_disk_name next = disk_name(42);
    struct gb_disk_writer *w;

    if (error >= 2) {
        ck_assert_int_eq(gb_disk_create(f.disk, &next, BYTES, &w, &err), -1);
        ck_assert_int_eq(err.code, GB_ERR_STORAGE_UNAVAILABLE);
        ck_assert_str_eq(err.native_name, errors[error].name);
        err = GB_ERROR_INIT;
        gb_assert_fails(gb_disk_check_room(f.disk, BYTES, &err), err, GB_ERR_STORAGE_UNAVAILABLE);
    } else {
        gb_assert_ok(gb_disk_check_room(f.disk, BYTES, &err), err);
    }
    ck_assert(gb_disk_probe(f.disk));
    ck_assert_int_eq(disk_stat(&f).state, GB_DISK_READY);
    ck_assert_int_eq(disk_stat(&f).error.code, GB_OK);
    ck_assert(!gb_disk_probe(f.disk));
    gb_assert_ok(disk_write(&f, &next, BYTES, &err), err);
    disk_assert_bytes(&f, &next, BYTES);
    gb_disk_remove(f.disk, &next);
}

START_TEST(a_file_whose_call_fails_is_given_up) {
    int stage = _i / ERRORS;
    int error = _i % ERRORS;
    struct gb_disk_name name = disk_name(298);
    char rule[64];

    snprintf(rule, sizeof(rule), "%s@%u=%s", stages[stage].op, stages[stage].number, errors[error].name);
    begin(rule);
    ck_assert_int_eq(disk_write(&f, &name, BYTES, &err), -1);
    assert_given_up(stage, error, &name);
    err = GB_ERROR_INIT;
    assert_comes_back(error);
    ck_assert_uint_le(disk_entries(&f), 2); /* the folders 2a, one for each file, and no file */
    disk_fixture_done(&f);
}
END_TEST

/* The disk stays as it is while it continues to fail. */
START_TEST(a_probe_tells_what_it_finds) {
    struct gb_disk_name name = disk_name(298);

    begin("sync@1=EIO,sync@2=EIO,sync@3=ENOSPC,dirsync@3=EROFS,unlink@5=EIO");
    ck_assert_int_eq(disk_write(&f, &name, BYTES, &err), -1);
    ck_assert_int_eq(disk_stat(&f).state, GB_DISK_FAILED);
    ck_assert(!gb_disk_probe(f.disk));
    ck_assert_int_eq(disk_stat(&f).state, GB_DISK_FAILED);
    ck_assert(gb_disk_probe(f.disk));
    ck_assert_int_eq(disk_stat(&f).state, GB_DISK_FULL);
    ck_assert_str_eq(disk_stat(&f).error.native_name, "ENOSPC");
    gb_assert_ok(gb_disk_check_room(f.disk, 1, &(struct gb_error){0}), err);
    ck_assert_uint_eq(disk_calls(&f, GB_DISK_OP_dirsync), 1);
    ck_assert(gb_disk_probe(f.disk)); /* dirsync@2 */
    ck_assert_int_eq(disk_stat(&f).state, GB_DISK_READY);
    ck_assert_uint_eq(disk_stat(&f).failures, 3);
    ck_assert_uint_eq(disk_calls(&f, GB_DISK_OP_sync), 4);
    ck_assert_uint_eq(disk_entries(&f), 1);
    disk_fixture_done(&f);
}
END_TEST

/* A full disk is the lesser evil. */
START_TEST(the_worse_state_stays) {
    struct gb_disk_name names[2] = {disk_name(298), disk_name(299)};
    unsigned char *data = disk_bytes(4096);
    struct gb_disk_writer *w[2];
    int i;

    begin("write@1=EIO,write@2=ENOSPC");
    for (i = 0; i < 2; i++)
        gb_assert_ok(gb_disk_create(f.disk, &names[i], 4096, &w[i], &err), err);
    gb_assert_fails(gb_disk_write(w[0], data, 4096, &err), err, GB_ERR_STORAGE_FAILED);
    gb_assert_fails(gb_disk_write(w[1], data, 4096, &err), err, GB_ERR_STORAGE_FULL);
    ck_assert_int_eq(disk_stat(&f).state, GB_DISK_FAILED);
    ck_assert_str_eq(disk_stat(&f).error.native_name, "EIO");
    for (i = 0; i < 2; i++)
        gb_disk_discard(w[i]);
    free(data);
    disk_fixture_done(&f);
}
END_TEST

START_TEST(only_a_disk_with_room_is_no_longer_full) {
    struct gb_disk_name name = disk_name(298);

    begin("fallocate@1=ENOSPC");
    ck_assert_int_eq(disk_write(&f, &name, BYTES, &err), -1);
    f.disk->reserve_bytes = UINT64_MAX / 2;
    ck_assert(!gb_disk_probe(f.disk));
    ck_assert_int_eq(disk_stat(&f).state, GB_DISK_FULL);
    f.disk->reserve_bytes = 0;
    ck_assert(gb_disk_probe(f.disk));
    ck_assert_int_eq(disk_stat(&f).state, GB_DISK_READY);
    disk_fixture_done(&f);
}
END_TEST

START_TEST(too_many_open_files_are_not_the_disks_fault) {
    struct gb_disk_name name = disk_name(298);

    begin("open@1=EMFILE,create@1=EMFILE,open@5=EMFILE,open@6=EIO,open@7=EMFILE");
    gb_assert_fails(disk_write(&f, &name, BYTES, &err), err, GB_ERR_SATURATED); /* the marker */
    gb_assert_fails(disk_write(&f, &name, BYTES, &err), err, GB_ERR_SATURATED); /* open@2 to @4, and the file */
    gb_assert_fails(disk_write(&f, &name, BYTES, &err), err, GB_ERR_SATURATED); /* open@5 */
    gb_assert_fails(disk_write(&f, &name, BYTES, &err), err, GB_ERR_SATURATED); /* open@6, and the marker */
    ck_assert_int_eq(disk_stat(&f).state, GB_DISK_READY);
    gb_assert_ok(disk_write(&f, &name, BYTES, &err), err);
    ck_assert_uint_eq(disk_calls(&f, GB_DISK_OP_open), 8);
    disk_fixture_done(&f);
}
END_TEST

/* --- other calls that fail ---------------------------------------------------------------------------------------- */

START_TEST(reads_that_fail) {
    struct gb_disk_name name = disk_name(298);
    unsigned char *got = disk_bytes(BYTES);
    struct gb_disk_reader *r;

    begin(NULL);
    gb_assert_ok(disk_write(&f, &name, BYTES, &err), err);
    disk_fixture_close(&f);
    disk_fixture_open(&f, "read@1=EIO,read@3=EIO,open@3=EIO,open@5=EMFILE");
    disk_assert_unreadable(&f, &name, BYTES, GB_ERR_STORAGE_FAILED); /* open@1 */
    gb_assert_ok(gb_disk_read_open(f.disk, &name, BYTES, &r, &err), err);
    ck_assert_int_eq(gb_disk_read(r, got, BYTES, 0, &err), -1);
    ck_assert_int_eq(err.code, GB_ERR_STORAGE_FAILED);
    ck_assert_str_eq(err.native_name, "EIO");
    ck_assert_str_eq(err.call, "pread");
    err = GB_ERROR_INIT;
    gb_assert_ok(gb_disk_read(r, got, BYTES, 0, &err), err);
    gb_disk_read_close(r);
    disk_assert_unreadable(&f, &name, BYTES, GB_ERR_STORAGE_FAILED); /* open@3, and @4 looks for the marker */
    disk_assert_unreadable(&f, &name, BYTES, GB_ERR_SATURATED);      /* open@5 */
    ck_assert_uint_eq(disk_stat(&f).failures, 4);
    ck_assert_uint_eq(disk_stat(&f).damaged, 0);
    ck_assert_int_eq(disk_stat(&f).state, GB_DISK_READY);
    disk_assert_bytes(&f, &name, BYTES);
    free(got);
    disk_fixture_done(&f);
}
END_TEST

START_TEST(a_flipped_bit_arrives) {
    struct gb_disk_name name = disk_name(298);
    unsigned char *want = disk_bytes(BYTES);
    unsigned char *got = disk_bytes(BYTES);
    struct gb_disk_reader *r;

    begin(NULL);
    gb_assert_ok(disk_write(&f, &name, BYTES, &err), err);
    disk_fixture_close(&f);
    disk_fixture_open(&f, "read@2=flip/33,read@3=flip/65536,read@4=flip/9000");
    gb_assert_ok(gb_disk_read_open(f.disk, &name, BYTES, &r, &err), err);
    gb_assert_ok(gb_disk_read(r, got, BYTES, 0, &err), err);
    ck_assert_uint_eq(got[4], want[4] ^ 2);
    got[4] ^= 2;
    ck_assert(memcmp(got, want, BYTES) == 0);
    gb_assert_ok(gb_disk_read(r, got, BYTES, 0, &err), err);
    ck_assert(memcmp(got, want, BYTES) == 0);
    gb_disk_read_close(r);
    disk_assert_unreadable(&f, &name, BYTES, GB_ERR_CONTENT_DAMAGED);
    free(got);
    free(want);
    disk_fixture_done(&f);
}
END_TEST

START_TEST(what_cannot_be_removed_or_moved_is_counted) {
    struct gb_disk_name name = disk_name(298);

    begin("unlink@1=EIO,rename@1=EIO,mkdir@3=EROFS");
    gb_assert_ok(disk_write(&f, &name, BYTES, &err), err);
    gb_disk_remove(f.disk, &name);
    ck_assert_uint_eq(disk_stat(&f).failures, 1);
    gb_disk_set_aside(f.disk, &name, false);
    ck_assert_uint_eq(disk_stat(&f).failures, 2);
    gb_disk_set_aside(f.disk, &name, true);
    ck_assert_uint_eq(disk_stat(&f).failures, 3);
    disk_assert_bytes(&f, &name, BYTES);
    ck_assert_int_eq(disk_stat(&f).state, GB_DISK_READY);
    gb_disk_remove(f.disk, &name);
    disk_assert_unreadable(&f, &name, BYTES, GB_ERR_CONTENT_LOST);
    disk_fixture_done(&f);
}
END_TEST

START_TEST(a_file_that_cannot_be_removed_is_counted) {
    struct gb_disk_name name = disk_name(298);

    begin("sync@1=EIO,unlink@1=EIO");
    ck_assert_int_eq(disk_write(&f, &name, BYTES, &err), -1);
    ck_assert_uint_eq(disk_stat(&f).failures, 2);
    ck_assert_uint_eq(disk_calls(&f, GB_DISK_OP_unlink), 1);
    ck_assert_uint_eq(disk_calls(&f, GB_DISK_OP_sync), 1);
    disk_fixture_done(&f);
}
END_TEST

START_TEST(a_file_system_that_does_not_say_its_room) {
    begin("statvfs@1=EIO,statvfs@2=EIO");
    ck_assert_uint_eq(disk_stat(&f).free_bytes, 0);
    gb_assert_fails(gb_disk_check_room(f.disk, 1, &err), err, GB_ERR_STORAGE_FAILED);
    gb_assert_ok(gb_disk_check_room(f.disk, 1, &err), err);
    ck_assert_int_eq(disk_stat(&f).state, GB_DISK_READY);
    disk_fixture_done(&f);
}
END_TEST

START_TEST(folders_that_cannot_be_read_make_the_disk_unavailable) {
    begin("open@2=EIO");
    gb_assert_fails(gb_disk_scan(f.disk, NULL, NULL, &err), err, GB_ERR_STORAGE_UNAVAILABLE);
    ck_assert_int_eq(disk_stat(&f).state, GB_DISK_UNAVAILABLE);
    ck_assert(gb_disk_probe(f.disk));
    gb_assert_ok(gb_disk_scan(f.disk, NULL, NULL, &err), err);
    disk_fixture_done(&f);
}
END_TEST

/* --- the end of the process --------------------------------------------------------------------------------------- */

static const struct {
    const char *rule;
    enum gb_code then; /* what opening the file says afterwards; GB_OK: it is complete */
} kills[] = {
    {"create=kill", GB_ERR_CONTENT_LOST},
    {"fallocate=kill", GB_ERR_CONTENT_DAMAGED},
    {"write@1=kill", GB_ERR_CONTENT_DAMAGED},
    {"write@2=kill", GB_ERR_CONTENT_DAMAGED},
    {"sync=kill", GB_OK},
    {"dirsync@2=kill", GB_OK},
    {"before_commit=kill", GB_OK},
};

START_TEST(a_killed_process_leaves_a_file_that_is_known_for_what_it_is) {
    struct gb_disk_name name = disk_name(298);
    pid_t child;
    int status;

    begin(kills[_i].rule);
    child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        disk_write(&f, &name, BYTES, &err);
        gb_disk_point(f.disk, GB_DISK_OP_apply);
        gb_disk_point(f.disk, GB_DISK_OP_before_commit);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    disk_fixture_close(&f);
    disk_fixture_open(&f, NULL);
    if (kills[_i].then == GB_OK)
        disk_assert_bytes(&f, &name, BYTES);
    else
        disk_assert_unreadable(&f, &name, BYTES, kills[_i].then);
    disk_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("disk faults");

    gb_test_add(suite, "rules", rules_are_parsed, 10);
    gb_test_add_loop(suite, "wrong", wrong_rules_are_refused, 10, 20);
    gb_test_add(suite, "several", several_rules_of_one_call, 10);
    gb_test_add_loop(suite, "stages", a_file_whose_call_fails_is_given_up, 30, STAGES * ERRORS);
    gb_test_add(suite, "probe", a_probe_tells_what_it_finds, 30);
    gb_test_add(suite, "worse", the_worse_state_stays, 30);
    gb_test_add(suite, "full", only_a_disk_with_room_is_no_longer_full, 30);
    gb_test_add(suite, "descriptors", too_many_open_files_are_not_the_disks_fault, 30);
    gb_test_add(suite, "reads", reads_that_fail, 30);
    gb_test_add(suite, "flip", a_flipped_bit_arrives, 30);
    gb_test_add(suite, "counted", what_cannot_be_removed_or_moved_is_counted, 30);
    gb_test_add(suite, "kept", a_file_that_cannot_be_removed_is_counted, 30);
    gb_test_add(suite, "statvfs", a_file_system_that_does_not_say_its_room, 30);
    gb_test_add(suite, "scan", folders_that_cannot_be_read_make_the_disk_unavailable, 30);
    gb_test_add_loop(suite, "kill", a_killed_process_leaves_a_file_that_is_known_for_what_it_is, 30,
                     (int)(sizeof(kills) / sizeof(kills[0])));
    return gb_test_run(suite);
}
