/* The audit's file: lines, rotation, a disk that takes nothing. */
#include "core/observe/audit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/public/observe.h"
#include "gb_test.h"

struct place {
    char dir[64];
    char path[96];
    char other[96];
    uint64_t bytes_max;
    struct gb_audit_file *file;
};

static void place_init(struct place *p) {
    p->bytes_max = 0;
    strcpy(p->dir, "/tmp/gb-audit-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(p->dir));
    snprintf(p->path, sizeof(p->path), "%s/audit", p->dir);
    snprintf(p->other, sizeof(p->other), "%s/other", p->dir);
}

static void place_open(struct place *p) {
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(gb_audit_file_new(p->path, p->bytes_max, &p->file, &err), err);
}

static void place_done(struct place *p) {
    unlink(p->path);
    unlink(p->other);
    ck_assert_int_eq(rmdir(p->dir), 0);
}

static void put(struct place *p, int number) {
    char object[16];
    struct gb_audit_rec rec = {.at_us = number, .event = GB_AUDIT_REQUEST, .text = {[GB_AUDIT_OBJECT] = object}};

    snprintf(object, sizeof(object), "n%d", number);
    gb_audit_file_put(p->file, &rec);
}

/* Lines of a file that have this text, or all; -1: there is no file. */
static int lines(const char *path, const char *text) {
    FILE *in = fopen(path, "r");
    char line[4096];
    int n = 0;

    if (!in)
        return -1;
    while (fgets(line, sizeof(line), in)) {
        if (!strchr(line, '\n'))
            break; /* it is being written */
        ck_assert(line[0] == '{' && strcmp(line + strlen(line) - 2, "}\n") == 0);
        n += strstr(line, text) != NULL;
    }
    fclose(in);
    return n;
}

static void wait_for(const char *path, const char *text, int count) {
    while (lines(path, text) < count)
        usleep(1000);
}

static void wait_for_failures(struct place *p, uint64_t count) {
    struct gb_error why;

    while (gb_audit_file_failures(p->file, &why) < count)
        usleep(1000);
}

START_TEST(each_record_is_a_line) {
    struct gb_error why;
    struct place p;
    struct stat st;
    int i;

    place_init(&p);
    place_open(&p);
    for (i = 0; i < 3000; i++)
        put(&p, i);
    ck_assert_uint_eq(gb_audit_file_failures(p.file, &why), 0);
    gb_audit_file_free(p.file); /* writes what waits */
    ck_assert_int_eq(lines(p.path, "\"event\":\"request\""), 3000);
    ck_assert_int_eq(lines(p.path, "\"n2999\""), 1);
    ck_assert_int_eq(stat(p.path, &st), 0);
    ck_assert_int_eq(st.st_mode & 0777, 0600);
    place_open(&p); /* what is there stays */
    put(&p, 3000);
    gb_audit_file_free(p.file);
    ck_assert_int_eq(lines(p.path, ""), 3001);
    place_done(&p);
}
END_TEST

START_TEST(a_renamed_file_is_made_anew) {
    struct place p;

    place_init(&p);
    place_open(&p);
    put(&p, 1);
    wait_for(p.path, "", 1);
    ck_assert_int_eq(rename(p.path, p.other), 0);
    put(&p, 2);
    wait_for(p.path, "\"n2\"", 1);
    ck_assert_int_eq(lines(p.other, ""), 1);
    /* Asked to, it opens the file without a record. */
    ck_assert_int_eq(rename(p.path, p.other), 0);
    gb_audit_file_reopen(p.file);
    wait_for(p.path, "", 0);
    gb_audit_file_free(p.file);
    place_done(&p);
}
END_TEST

START_TEST(a_full_disk_is_counted_and_told) {
    struct gb_error why;
    struct place p;

    place_init(&p);
    ck_assert_int_eq(symlink("/dev/full", p.path), 0);
    place_open(&p);
    put(&p, 1);
    put(&p, 2);
    wait_for_failures(&p, 2);
    ck_assert_uint_eq(gb_audit_file_failures(p.file, &why), 2);
    ck_assert_str_eq(why.native_name, "ENOSPC");
    ck_assert_int_eq(unlink(p.path), 0);
    put(&p, 3);
    gb_audit_file_free(p.file);
    ck_assert_int_eq(lines(p.path, ""), 2);
    ck_assert_int_eq(lines(p.path, "\"event\":\"audit.gap\",\"count\":2"), 1);
    ck_assert_int_eq(lines(p.path, "\"n3\""), 1);
    place_done(&p);
}
END_TEST

START_TEST(what_cannot_be_opened_is_refused) {
    struct gb_audit_rec rec = {.at_us = 1, .event = GB_AUDIT_TOKEN_ADDED, .text = {[GB_AUDIT_OBJECT] = "t"}};
    struct gb_error err = GB_ERROR_INIT;
    struct gb_audit_file *file;
    struct place p;

    place_init(&p);
    gb_assert_fails(gb_audit_file_new(p.dir, 0, &file, &err), err, GB_ERR_INTERNAL);
    /* A pipe without a reader is not waited for. */
    ck_assert_int_eq(mkfifo(p.path, 0600), 0);
    gb_assert_fails(gb_audit_file_new(p.path, 0, &file, &err), err, GB_ERR_INTERNAL);
    gb_assert_fails(gb_audit_append(p.path, p.dir, &rec, &err), err, GB_ERR_INTERNAL);
    gb_assert_ok(gb_audit_append(p.other, p.dir, &rec, &err), err);
    gb_assert_ok(gb_audit_append(p.other, p.dir, &rec, &err), err);
    ck_assert_int_eq(lines(p.other, "\"token.added\",\"object\":\"t\""), 2);
    place_done(&p);
}
END_TEST

START_TEST(more_than_a_disk_takes_is_counted) {
    struct gb_error why;
    struct place p;
    int i = 0;

    place_init(&p);
    place_open(&p);
    while (gb_audit_file_failures(p.file, &why) < 3 && i < 50000000)
        put(&p, i++);
    ck_assert_int_eq(why.code, GB_ERR_SATURATED);
    gb_audit_file_free(p.file);
    ck_assert_int_eq(lines(p.path, "\"event\":\"request\""), i - 3);
    ck_assert_int_ge(lines(p.path, "\"event\":\"audit.gap\""), 0);
    place_done(&p);
}
END_TEST

/* A file and the one before it are all that there is. */
START_TEST(a_long_file_is_rotated) {
    struct place p;
    struct stat st;
    char old[128];
    int last = 0;
    int i;

    place_init(&p);
    snprintf(old, sizeof(old), "%s.1", p.path);
    p.bytes_max = 4096;
    place_open(&p);
    for (i = 0; i < 20; i++) {
        char text[16];
        int k;

        for (k = 0; k < 20; k++)
            put(&p, ++last);
        snprintf(text, sizeof(text), "\"n%d\"", last);
        while (lines(p.path, text) != 1 && lines(old, text) != 1)
            usleep(1000);
    }
    gb_audit_file_free(p.file);
    ck_assert_int_eq(stat(old, &st), 0);
    ck_assert_int_ge(st.st_size, 4096);
    ck_assert_int_lt(st.st_size, 2 * 4096);
    ck_assert(stat(p.path, &st) < 0 || st.st_size < 4096);
    ck_assert_int_eq(lines(old, "\"n1\""), 0); /* the one before is gone */
    unlink(old);
    place_done(&p);
}
END_TEST

/* The daemon's user owns its state directory, and gets what root makes for it. */
START_TEST(what_root_makes_is_the_daemons) {
    struct gb_audit_rec rec = {.at_us = 1, .event = GB_AUDIT_TOKEN_ADDED, .text = {[GB_AUDIT_OBJECT] = "t"}};
    struct gb_error err = GB_ERROR_INIT;
    struct place p;
    struct stat st;

    place_init(&p);
    if (geteuid() == 0)
        ck_assert_int_eq(chown(p.dir, 12345, 23456), 0);
    gb_assert_ok(gb_audit_append(p.path, p.dir, &rec, &err), err);
    ck_assert_int_eq(stat(p.path, &st), 0);
    ck_assert_uint_eq(st.st_uid, geteuid() == 0 ? 12345 : geteuid());
    ck_assert_int_eq(st.st_mode & 07777, 0600);
    /* One that is there keeps its owner. */
    if (geteuid() == 0)
        ck_assert_int_eq(chown(p.path, 1, 1), 0);
    gb_assert_ok(gb_audit_append(p.path, p.dir, &rec, &err), err);
    ck_assert_int_eq(stat(p.path, &st), 0);
    ck_assert_uint_eq(st.st_uid, geteuid() == 0 ? 1 : geteuid());
    ck_assert_int_eq(lines(p.path, "token.added"), 2);
    place_done(&p);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_audit_file");

    gb_test_add(suite, "lines", each_record_is_a_line, 60);
    gb_test_add(suite, "renamed", a_renamed_file_is_made_anew, 60);
    gb_test_add(suite, "full", a_full_disk_is_counted_and_told, 60);
    gb_test_add(suite, "refused", what_cannot_be_opened_is_refused, 60);
    gb_test_add(suite, "queue", more_than_a_disk_takes_is_counted, 120);
    gb_test_add(suite, "long", a_long_file_is_rotated, 60);
    gb_test_add(suite, "root", what_root_makes_is_the_daemons, 10);
    return gb_test_run(suite);
}
