/* Lines: in their order, in the old file and the new one, lost without a reader, and sent to a journal. */
#include "base/lines.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "gb_test.h"

static char dir[64];
static char path[96];
static char other[96];

static void make_place(void) {
    strcpy(dir, "/tmp/gb-lines-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/lines", dir);
    snprintf(other, sizeof(other), "%s/other", dir);
}

static void drop_place(void) {
    unlink(path);
    unlink(other);
    ck_assert_int_eq(rmdir(dir), 0);
}

static struct gb_lines *open_lines(struct gb_lines_to to) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_lines *l = NULL;

    gb_assert_ok(gb_lines_new(&to, &l, &err), err);
    return l;
}

static void put(struct gb_lines *l, int number) {
    char line[32];

    gb_lines_put(l, 6, line, (size_t)snprintf(line, sizeof(line), "line %d\n", number));
}

static size_t gap(char *out, size_t size, uint64_t lost) {
    return (size_t)snprintf(out, size, "gap %llu\n", (unsigned long long)lost);
}

/* Waits until a line stands in the file. */
static void wait_for(const char *at, const char *wanted) {
    char text[4096] = "";

    while (!strstr(text, wanted)) {
        FILE *in = fopen(at, "r");

        if (in) {
            text[fread(text, 1, sizeof(text) - 1, in)] = '\0';
            fclose(in);
        }
        usleep(1000);
    }
}

START_TEST(all_lines_in_their_order) {
    struct gb_lines *l = open_lines((struct gb_lines_to){.file = path});
    char line[64];
    char wanted[64];
    struct stat st;
    FILE *in;
    int i;

    for (i = 0; i < 5000; i++)
        put(l, i);
    gb_lines_free(l);
    in = fopen(path, "r");
    for (i = 0; i < 5000; i++) {
        snprintf(wanted, sizeof(wanted), "line %d\n", i);
        ck_assert_ptr_nonnull(fgets(line, sizeof(line), in));
        ck_assert_str_eq(line, wanted);
    }
    ck_assert_ptr_null(fgets(line, sizeof(line), in));
    fclose(in);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_eq(st.st_mode & 0777 & ~0640, 0);
}
END_TEST

START_TEST(a_renamed_file_is_opened_again_when_asked) {
    struct gb_lines *l = open_lines((struct gb_lines_to){.file = path});

    put(l, 1);
    wait_for(path, "line 1\n");
    ck_assert_int_eq(rename(path, other), 0);
    put(l, 2);
    wait_for(other, "line 2\n");
    gb_lines_reopen(l);
    wait_for(path, "");
    while (access(path, F_OK) < 0)
        usleep(1000);
    put(l, 3);
    gb_lines_free(l);
    wait_for(path, "line 3\n");
}
END_TEST

static uint64_t lost_of(struct gb_lines *l) {
    struct gb_error why;

    return gb_lines_lost(l, &why);
}

/* Putting continues without a reader. One that comes late finds what was kept, and gaps that count the rest: the queue
 * may have taken lines again after some were lost, as the pipe takes the first. */
START_TEST(lines_beyond_the_bound_are_lost_and_told) {
    unsigned long long lost = 0;
    unsigned long long missing;
    uint64_t kept = 0;
    char line[1001];
    struct gb_lines *l;
    int ends[2];
    FILE *in;
    int i;

    ck_assert_int_eq(pipe(ends), 0);
    l = open_lines((struct gb_lines_to){.fd = ends[1], .gap = gap});
    memset(line, 'x', sizeof(line));
    line[999] = '\n';
    for (i = 0; i < 8000; i++)
        gb_lines_put(l, 6, line, 1000);
    ck_assert_uint_gt(lost_of(l), 1000);
    ck_assert_uint_lt(lost_of(l), 8000);
    in = fdopen(ends[0], "r");
    while (kept + lost < 8000) {
        ck_assert_ptr_nonnull(fgets(line, sizeof(line), in));
        if (sscanf(line, "gap %llu", &missing) == 1)
            lost += missing;
        else
            kept++;
    }
    ck_assert_uint_eq(lost, lost_of(l));
    put(l, 1);
    ck_assert_ptr_nonnull(fgets(line, sizeof(line), in));
    ck_assert_str_eq(line, "line 1\n");
    gb_lines_free(l);
    fclose(in);
    close(ends[1]);
}
END_TEST

/* The end waits for a second at most. */
START_TEST(a_reader_that_never_reads_does_not_hold_up_the_end) {
    char line[1000];
    struct gb_lines *l;
    int ends[2];
    int i;

    ck_assert_int_eq(pipe(ends), 0);
    l = open_lines((struct gb_lines_to){.fd = ends[1]});
    memset(line, 'x', sizeof(line));
    line[999] = '\n';
    for (i = 0; i < 500; i++)
        gb_lines_put(l, 6, line, 1000);
    gb_lines_free(l);
    close(ends[0]);
    close(ends[1]);
}
END_TEST

START_TEST(a_full_disk_loses_lines) {
    struct gb_error why;
    struct gb_lines *l;

    ck_assert_int_eq(symlink("/dev/full", path), 0);
    l = open_lines((struct gb_lines_to){.file = path, .gap = gap});
    put(l, 1);
    while (lost_of(l) < 1)
        usleep(1000);
    ck_assert_uint_eq(gb_lines_lost(l, &why), 1);
    ck_assert_str_eq(why.native_name, "ENOSPC");
    ck_assert_int_eq(unlink(path), 0);
    gb_lines_reopen(l);
    put(l, 2);
    gb_lines_free(l);
    wait_for(path, "gap 1\nline 2\n");
}
END_TEST

static int bind_journal(void) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    memcpy(at.sun_path, path, strlen(path) + 1);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    return fd;
}

/* Nor does a journal whose queue is full. */
START_TEST(a_journal_that_hangs_does_not_hold_up_the_end) {
    int fd = bind_journal();
    struct gb_lines *l = open_lines((struct gb_lines_to){.journal = path});
    int i;

    for (i = 0; i < 5000; i++)
        gb_lines_put(l, 6, "{}\n", 3);
    gb_lines_free(l);
    close(fd);
}
END_TEST

START_TEST(a_journal_gets_priorities) {
    int fd = bind_journal();
    struct gb_lines *l;
    char text[200];
    ssize_t n;

    l = open_lines((struct gb_lines_to){.journal = path});
    gb_lines_put(l, 4, "{\"a\":1}\n", 8);
    n = recv(fd, text, sizeof(text) - 1, 0);
    ck_assert_int_gt(n, 0);
    text[n] = '\0';
    ck_assert_str_eq(text, "PRIORITY=4\nSYSLOG_IDENTIFIER=gpubufd\nMESSAGE={\"a\":1}\n");
    gb_lines_free(l);
    close(fd);
}
END_TEST

START_TEST(what_cannot_be_opened_is_said) {
    struct gb_lines_to to = {.file = dir};
    struct gb_error err = GB_ERROR_INIT;
    struct gb_lines *l = NULL;

    gb_assert_fails(gb_lines_new(&to, &l, &err), err, GB_ERR_INTERNAL);
    err = GB_ERROR_INIT;
    to = (struct gb_lines_to){.journal = path};
    gb_assert_fails(gb_lines_new(&to, &l, &err), err, GB_ERR_INTERNAL);
    ck_assert_ptr_null(l);
}
END_TEST

START_TEST(the_journal_is_known_by_its_stream) {
    char text[64];
    struct stat st;
    int fd = open("/dev/null", O_WRONLY);

    ck_assert_int_eq(fstat(fd, &st), 0);
    unsetenv("JOURNAL_STREAM");
    ck_assert(!gb_lines_is_journal(fd));
    setenv("JOURNAL_STREAM", "1:2", 1);
    ck_assert(!gb_lines_is_journal(fd));
    snprintf(text, sizeof(text), "%llu:%llu", (unsigned long long)st.st_dev, (unsigned long long)st.st_ino);
    setenv("JOURNAL_STREAM", text, 1);
    ck_assert(gb_lines_is_journal(fd));
    close(fd);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("base_lines");
    TCase *tcase = tcase_create("lines");

    tcase_add_checked_fixture(tcase, make_place, drop_place);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, all_lines_in_their_order);
    tcase_add_test(tcase, a_renamed_file_is_opened_again_when_asked);
    tcase_add_test(tcase, lines_beyond_the_bound_are_lost_and_told);
    tcase_add_test(tcase, a_reader_that_never_reads_does_not_hold_up_the_end);
    tcase_add_test(tcase, a_journal_that_hangs_does_not_hold_up_the_end);
    tcase_add_test(tcase, a_full_disk_loses_lines);
    tcase_add_test(tcase, a_journal_gets_priorities);
    tcase_add_test(tcase, what_cannot_be_opened_is_said);
    tcase_add_test(tcase, the_journal_is_known_by_its_stream);
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}
