#include "gb_test.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* No test ends the machine: the next reader of a file finds what the kernel has taken. Programs that have a database
 * would wait for the disk most of their time. Faults of a sync come from the disk's fault rules
 * (`gb_disk_config.faults`) and from store_vfs. */
int fsync(int fd) {
    (void)fd;
    return 0;
}

int fdatasync(int fd) {
    (void)fd;
    return 0;
}

int gb_test_run(Suite *suite) {
    SRunner *runner = srunner_create(suite);
    int failed;

    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

void gb_test_add(Suite *suite, const char *name, const TTest *test, double timeout_s) {
    gb_test_add_loop(suite, name, test, timeout_s, 1);
}

void gb_test_add_loop(Suite *suite, const char *name, const TTest *test, double timeout_s, int count) {
    TCase *tcase = tcase_create(name);

    tcase_set_timeout(tcase, timeout_s);
    tcase_add_loop_test(tcase, test, 0, count);
    suite_add_tcase(suite, tcase);
}

unsigned gb_test_stride(void) {
    const char *text = getenv("GB_E2E_ROUNDS");
    long rounds = text ? strtol(text, NULL, 10) : 1;

    return rounds >= 4 ? 1 : 4;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void gb_test_remove(const char *folder) {
    ck_assert_int_eq(nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}
