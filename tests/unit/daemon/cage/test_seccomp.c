/* seccomp: what no list permits is refused, logged or ends the process, on every thread; all else continues. */
#include <errno.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/thread.h"
#include "daemon/cage/seccomp.h"
#include "unit/daemon/cage/cage_test.h"

static int log_ends[2];

static int enter(enum gb_seccomp mode, bool cuda) {
    struct gb_error err = GB_ERROR_INIT;
    enum gb_seccomp got = GB_SECCOMP_OFF;
    struct gb_log log = {.level = GB_LOG_INFO};

    if (pipe2(log_ends, O_CLOEXEC | O_NONBLOCK) != 0)
        return -1;
    log.fd = log_ends[1];
    return gb_seccomp_enter(mode, cuda, &log, &got, &err) == 0 && got == mode ? 0 : -1;
}

/* How often the word is in the log so far. */
static int logged(const char *word) {
    static char text[16384];
    static size_t used;
    const char *at = text;
    ssize_t n;
    int count = 0;

    while ((n = read(log_ends[0], text + used, sizeof text - 1 - used)) > 0)
        used += (size_t)n;
    text[used] = '\0';
    while ((at = strstr(at, word)) != NULL) {
        count++;
        at++;
    }
    return count;
}

/* --- refused ------------------------------------------------------------------------------------------------------ */

static int refuses(void) {
    char *const argv[] = {"true", NULL};
    char *const none[] = {NULL};

    HOLDS(enter(GB_SECCOMP_ERRNO, false) == 0);
    REFUSED(ptrace(PTRACE_TRACEME, 0, NULL, NULL), EPERM);
    REFUSED(mount("none", "/tmp", "tmpfs", 0, NULL), EPERM);
    REFUSED(syscall(SYS_kexec_load, 0, 0, NULL, 0), EPERM);
    REFUSED(execve("/bin/true", argv, none), EPERM);
    REFUSED(socket(AF_PACKET, SOCK_RAW, 0), EPERM);
    REFUSED(socket(AF_INET, SOCK_STREAM, 0), EPERM);
    REFUSED(socket(AF_NETLINK, SOCK_RAW, 0), EPERM);
    REFUSED(unshare(CLONE_NEWUSER), EPERM);
    REFUSED(syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, NULL), EPERM);
    REFUSED(fork(), EPERM);
    REFUSED(syscall(SYS_bpf, 0, NULL, 0), EPERM);
    REFUSED(syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, -1, 0), EPERM);
    REFUSED(syscall(SYS_init_module, NULL, 0, ""), EPERM);
    REFUSED(syscall(SYS_io_uring_setup, 1, NULL), EPERM);
    REFUSED(syscall(SYS_process_vm_readv, getpid(), NULL, 0, NULL, 0, 0), EPERM);
    REFUSED(syscall(SYS_seccomp, 0, 0, NULL), EPERM);
    REFUSED(ioctl(0, TIOCSTI, "x"), EPERM);
    REFUSED(prctl(PR_SET_DUMPABLE, 1UL, 0UL, 0UL, 0UL), EPERM);
    REFUSED(kill(getppid(), SIGTERM), EPERM);
    REFUSED(syscall(SYS_tgkill, getppid(), getppid(), 0), EPERM);
    REFUSED(chmod("/there/is/none", 0777), EPERM);
    REFUSED(syscall(SYS_setuid, 0), EPERM); /* of this thread alone: a sanitizer's own blocks SIGSYS */
    return 0;
}

static int logs_once(void) {
    HOLDS(enter(GB_SECCOMP_ERRNO, false) == 0);
    REFUSED(unshare(CLONE_NEWUSER), EPERM);
    REFUSED(unshare(CLONE_NEWNET), EPERM);
    REFUSED(personality(0xffffffff), EPERM);
    HOLDS(logged("the system call unshare (") == 1);
    HOLDS(logged("the system call personality (") == 1);
    return 0;
}

static void *call_in_thread(void *arg) {
    *(int *)arg = unshare(CLONE_NEWUSER) == -1 && errno == EPERM;
    return NULL;
}

struct early {
    sem_t go;
    int refused;
};

static void *call_when_told(void *arg) {
    struct early *early = arg;

    while (sem_wait(&early->go) != 0)
        continue;
    return call_in_thread(&early->refused);
}

/* Threads that were there before, and those that come: SIGSYS is the one signal that ours take. */
static int refuses_on_threads(void) {
    struct gb_error err = GB_ERROR_INIT;
    struct early early = {.refused = 0};
    pthread_t before;
    pthread_t after;
    int refused = 0;

    sem_init(&early.go, 0, 0);
    HOLDS(gb_thread_start(&before, "before", call_when_told, &early, &err) == 0);
    HOLDS(enter(GB_SECCOMP_ERRNO, false) == 0);
    HOLDS(gb_thread_start(&after, "after", call_in_thread, &refused, &err) == 0);
    sem_post(&early.go);
    HOLDS(pthread_join(before, NULL) == 0 && pthread_join(after, NULL) == 0);
    HOLDS(early.refused && refused);
    return 0;
}

static int dies(void) {
    HOLDS(enter(GB_SECCOMP_KILL, false) == 0);
    HOLDS(getppid() > 0);
    unshare(CLONE_NEWUSER);
    return __LINE__;
}

/* --- permitted ---------------------------------------------------------------------------------------------------- */

static int goes_on(void) {
    char name[16] = "";
    int pair[2];
    int n = -1;

    HOLDS(enter(GB_SECCOMP_KILL, false) == 0);
    HOLDS(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    HOLDS(send(pair[0], "x", 1, 0) == 1 && ioctl(pair[1], FIONREAD, &n) == 0 && n == 1);
    HOLDS(prctl(PR_SET_NAME, "caged") == 0 && prctl(PR_GET_NAME, name) == 0 && strcmp(name, "caged") == 0);
    HOLDS(close(pair[0]) == 0 && close(pair[1]) == 0);
    HOLDS(open("/dev/null", O_RDWR | O_CLOEXEC) >= 0);
    return 0;
}

static int permits_and_logs(void) {
    struct gb_error err = GB_ERROR_INIT;
    pthread_t thread;
    int refused = 1;

    HOLDS(enter(GB_SECCOMP_LOG, false) == 0);
    HOLDS(personality(0xffffffff) != -1);
    HOLDS(personality(0xffffffff) != -1);
    HOLDS(gb_thread_start(&thread, "after", call_in_thread, &refused, &err) == 0 && pthread_join(thread, NULL) == 0);
    HOLDS(logged("the system call personality (") == 1);
    HOLDS(logged("the system call unshare (") == 1);
    return 0;
}

/* CUDA's driver has ioctls, and the probe is a program. */
static int for_cuda(void) {
    HOLDS(enter(GB_SECCOMP_ERRNO, true) == 0);
    REFUSED(ioctl(-1, 0x4611, NULL), EBADF);
    REFUSED(unshare(CLONE_NEWUSER), EPERM);
    REFUSED(syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, NULL), EPERM);
    REFUSED(socket(AF_INET, SOCK_STREAM, 0), EPERM);
    execl("/bin/true", "true", NULL);
    return __LINE__;
}

/* abort() sends itself a signal: a defect must still end the process as it would. */
static int aborts(void) {
    HOLDS(enter(GB_SECCOMP_ERRNO, false) == 0);
    abort();
}

START_TEST(test_refuses) {
    ck_assert_child(refuses);
    ck_assert_child(logs_once);
    ck_assert_child(refuses_on_threads);
}
END_TEST

START_TEST(test_kills) {
    ck_assert_int_eq(gb_in_child(dies), -SIGSYS);
}
END_TEST

START_TEST(test_goes_on) {
    ck_assert_child(goes_on);
    ck_assert_child(permits_and_logs);
    ck_assert_int_eq(gb_in_child(aborts), -SIGABRT);
}
END_TEST

/* The program that took its place writes no line number. */
START_TEST(test_cuda) {
    int result = gb_in_child(for_cuda);

    ck_assert_msg(result == -1, "line %d does not hold", result);
}
END_TEST

START_TEST(test_off) {
    struct gb_error err = GB_ERROR_INIT;
    enum gb_seccomp got = GB_SECCOMP_KILL;

    gb_assert_ok(gb_seccomp_enter(GB_SECCOMP_OFF, false, NULL, &got, &err), err);
    ck_assert_int_eq(got, GB_SECCOMP_OFF);
    ck_assert_int_eq(prctl(PR_GET_SECCOMP), 0);
}
END_TEST

/* --- tables ------------------------------------------------------------------------------------------------------- */

START_TEST(test_lists) {
    unsigned host[512];
    unsigned cuda[512];
    size_t hosts = gb_calls_permitted(false, host, 512);
    size_t cudas = gb_calls_permitted(true, cuda, 512);
    size_t i;

    ck_assert_uint_gt(hosts, 50);
    ck_assert_uint_gt(cudas, hosts);
    for (i = 1; i < cudas; i++)
        ck_assert_uint_lt(cuda[i - 1], cuda[i]);
    ck_assert_uint_eq(gb_calls_permitted(true, cuda, 3), 3);
    ck_assert_str_eq(gb_call_name(SYS_ptrace), "ptrace");
    ck_assert_str_eq(gb_call_name(9999), "unknown");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("seccomp");

    gb_test_add(suite, "refuses", test_refuses, 20);
    gb_test_add(suite, "kills", test_kills, 20);
    gb_test_add(suite, "goes on", test_goes_on, 20);
    gb_test_add(suite, "cuda", test_cuda, 20);
    gb_test_add(suite, "off", test_off, 20);
    gb_test_add(suite, "lists", test_lists, 20);
    return gb_test_run(suite);
}
