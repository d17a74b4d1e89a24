/* Landlock: what the rules name can be done, and nothing else; the table of files lets the daemon continue. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/process.h"
#include "daemon/cage/enclose.h"
#include "unit/daemon/cage/cage_test.h"

static char inside[64];
static char outside[64];

static const char *in(const char *folder, const char *name) {
    static char path[2][128];
    static int next;

    next = !next;
    snprintf(path[next], sizeof path[next], "%s/%s", folder, name);
    return path[next];
}

static void make_folders(void) {
    FILE *file;

    strcpy(inside, "/tmp/gb-cage-in-XXXXXX");
    strcpy(outside, "/tmp/gb-cage-out-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(inside));
    ck_assert_ptr_nonnull(mkdtemp(outside));
    file = fopen(in(outside, "secret"), "w");
    ck_assert_ptr_nonnull(file);
    fputs("secret\n", file);
    fclose(file);
}

static void remove_folders(void) {
    unlink(in(outside, "secret"));
    unlink(in(outside, "sock"));
    unlink(in(inside, "kept"));
    rmdir(inside);
    rmdir(outside);
}

static int enter(bool cuda) {
    const struct gb_cage_file files[] = {{inside, GB_LANDLOCK_STATE}};
    struct gb_error err = GB_ERROR_INIT;
    int abi = 0;

    return gb_cage_files(files, 1, cuda, &abi, &err) == 0 && abi > 0 ? 0 : -1;
}

static int open_close(const char *path, int flags) {
    int fd = open(path, flags | O_CLOEXEC, 0600);

    if (fd >= 0)
        close(fd);
    return fd >= 0 ? 0 : -1;
}

static int files_outside(void) {
    char *const argv[] = {"true", NULL};
    char *const none[] = {NULL};
    int opened = open(in(outside, "secret"), O_RDONLY | O_CLOEXEC);
    char byte;

    HOLDS(enter(false) == 0);
    REFUSED(open_close(in(outside, "secret"), O_RDONLY), EACCES);
    REFUSED(open_close(in(outside, "secret"), O_WRONLY), EACCES);
    REFUSED(open_close(in(outside, "new"), O_WRONLY | O_CREAT), EACCES);
    REFUSED(unlink(in(outside, "secret")), EACCES);
    REFUSED(mkdir(in(outside, "folder"), 0700), EACCES);
    REFUSED(symlink("/etc/shadow", in(inside, "link")), EACCES);
    REFUSED(mknod(in(inside, "pipe"), S_IFIFO | 0600, 0), EACCES);
    REFUSED(open_close("/etc/passwd", O_RDONLY), EACCES);
    REFUSED(open_close("/proc/self/mem", O_WRONLY), EACCES);
    REFUSED(open_close("/proc/1/status", O_RDONLY), EACCES);
    REFUSED(execve("/bin/true", argv, none), EACCES);
    HOLDS(rename(in(outside, "secret"), in(inside, "secret")) == -1); /* EXDEV before version 2 */
    HOLDS(read(opened, &byte, 1) == 1);                               /* what was open stays so */
    return 0;
}

static int files_inside(void) {
    struct gb_process process;
    char path[32];
    int memory;

    HOLDS(enter(false) == 0);
    HOLDS(open_close(in(inside, "new"), O_RDWR | O_CREAT) == 0);
    HOLDS(truncate(in(inside, "new"), 4096) == 0);
    HOLDS(rename(in(inside, "new"), in(inside, "kept")) == 0);
    HOLDS(open_close(in(inside, "kept"), O_RDONLY) == 0);
    HOLDS(unlink(in(inside, "kept")) == 0);
    HOLDS(open_close(inside, O_RDONLY | O_DIRECTORY) == 0);
    memory = memfd_create("test", MFD_CLOEXEC);
    HOLDS(memory >= 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", memory);
    HOLDS(open_close(path, O_RDONLY) == 0);
    gb_process_read(&process);
    HOLDS(process.open_fds > 0 && process.resident_bytes > 0);
    HOLDS(open_close("/proc/meminfo", O_RDONLY) == 0);
    HOLDS(open_close("/dev/null", O_RDWR) == 0);
    return 0;
}

static int sockets_and_signals(void) {
    struct sockaddr_in any = {.sin_family = AF_INET};
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    int tcp = socket(AF_INET, SOCK_STREAM, 0);
    int sock = socket(AF_UNIX, SOCK_STREAM, 0);

    HOLDS(enter(false) == 0);
    snprintf(local.sun_path, sizeof local.sun_path, "%s", in(outside, "sock"));
    REFUSED(bind(sock, (struct sockaddr *)&local, sizeof local), EACCES);
    if (gb_landlock_abi() >= 4) {
        REFUSED(bind(tcp, (struct sockaddr *)&any, sizeof any), EACCES);
        any.sin_port = htons(1);
        REFUSED(connect(tcp, (struct sockaddr *)&any, sizeof any), EACCES);
    }
    if (gb_landlock_abi() >= 6)
        REFUSED(kill(getppid(), 0), EPERM);
    return 0;
}

static int for_cuda(void) {
    char *const argv[] = {"test_landlock", "--version", NULL};
    char *const none[] = {NULL};

    HOLDS(enter(true) == 0);
    HOLDS(open_close("/proc/1/status", O_RDONLY) == 0);
    REFUSED(open_close(in(outside, "secret"), O_RDONLY), EACCES);
    REFUSED(execve("/bin/sh", argv, none), EACCES);
    /* The probe is this program again; without arguments the test would begin again. */
    execve("/proc/self/exe", argv, none);
    return __LINE__;
}

static int runs_of(int (*run)(void)) {
    int result = gb_landlock_abi() > 0 ? gb_in_child(run) : 0;

    if (gb_landlock_abi() == 0)
        fputs("this kernel has no Landlock: not tested\n", stderr);
    return result;
}

START_TEST(test_files_outside) {
    ck_assert_int_eq(runs_of(files_outside), 0);
}
END_TEST

START_TEST(test_files_inside) {
    ck_assert_int_eq(runs_of(files_inside), 0);
}
END_TEST

START_TEST(test_sockets_and_signals) {
    ck_assert_int_eq(runs_of(sockets_and_signals), 0);
}
END_TEST

/* The program that took its place writes no line number. */
START_TEST(test_for_cuda) {
    int result = runs_of(for_cuda);

    ck_assert_msg(result == 0 || result == -1, "line %d does not hold", result);
}
END_TEST

/* A path that does not exist is no error: few machines have all. */
START_TEST(test_missing) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_landlock *landlock = gb_landlock_abi() > 0 ? gb_landlock_new(false, false, &err) : NULL;

    if (landlock == NULL)
        return;
    ck_assert_int_eq(gb_landlock_permit(landlock, "/there/is/none", GB_LANDLOCK_READ, &err), 0);
    ck_assert_int_eq(gb_landlock_permit(landlock, "/etc/passwd", GB_LANDLOCK_READ, &err), 0);
    gb_landlock_free(landlock);
    gb_landlock_free(NULL);
}
END_TEST

int main(int argc, char **argv) {
    Suite *suite = suite_create("landlock");
    TCase *tcase = tcase_create("landlock");

    if (argc > 1 && strcmp(argv[1], "--version") == 0)
        return 0;
    tcase_add_checked_fixture(tcase, make_folders, remove_folders);
    tcase_add_test(tcase, test_files_outside);
    tcase_add_test(tcase, test_files_inside);
    tcase_add_test(tcase, test_sockets_and_signals);
    tcase_add_test(tcase, test_for_cuda);
    tcase_add_test(tcase, test_missing);
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}
