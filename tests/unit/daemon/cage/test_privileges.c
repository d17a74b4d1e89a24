/* Capabilities are gone for good, and no other process sees the memory. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "daemon/cage/privileges.h"
#include "unit/daemon/cage/cage_test.h"

static int drops(void) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[2];
    struct gb_error err = GB_ERROR_INIT;
    bool root = geteuid() == 0;

    HOLDS(gb_privileges_drop(&err) == 0);
    HOLDS(syscall(SYS_capget, &header, sets) == 0);
    HOLDS((sets[0].effective | sets[0].permitted | sets[0].inheritable) == 0);
    HOLDS((sets[1].effective | sets[1].permitted | sets[1].inheritable) == 0);
    HOLDS(prctl(PR_GET_NO_NEW_PRIVS, 0UL, 0UL, 0UL, 0UL) == 1);
    HOLDS(!root || prctl(PR_CAPBSET_READ, (unsigned long)CAP_SYS_ADMIN, 0UL, 0UL, 0UL) == 0);
    REFUSED(socket(AF_PACKET, SOCK_RAW, 0), EPERM);
    REFUSED(chroot("/"), EPERM);
    sets[0].effective = sets[0].permitted = 1u << CAP_SYS_ADMIN;
    REFUSED(syscall(SYS_capset, &header, sets), EPERM);
    HOLDS(gb_privileges_drop(&err) == 0); /* nothing is left, and that is no error */
    return 0;
}

/* Has the process lack a call, as a container's sandbox may. */
static int forbid(unsigned call, unsigned number) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | number),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

    HOLDS(prctl(PR_SET_NO_NEW_PRIVS, 1UL, 0UL, 0UL, 0UL) == 0);
    HOLDS(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    return 0;
}

static int leaves_out_capget(void) {
    struct gb_error err = GB_ERROR_INIT;

    HOLDS(forbid(SYS_capget, EPERM) == 0);
    HOLDS(gb_privileges_drop(&err) == 1 && err.code == GB_OK);
    return 0;
}

static int leaves_out_capset(void) {
    struct gb_error err = GB_ERROR_INIT;

    HOLDS(forbid(SYS_capset, EPERM) == 0);
    HOLDS(gb_privileges_drop(&err) == (geteuid() == 0) && err.code == GB_OK);
    return 0;
}

static int fails_otherwise(void) {
    struct gb_error err = GB_ERROR_INIT;

    HOLDS(forbid(SYS_capget, EINVAL) == 0);
    HOLDS(gb_privileges_drop(&err) == -1 && err.code == GB_ERR_INTERNAL);
    return 0;
}

static int hides(void) {
    struct rlimit core;

    gb_privileges_hide();
    HOLDS(prctl(PR_GET_DUMPABLE, 0UL, 0UL, 0UL, 0UL) == 0);
    HOLDS(getrlimit(RLIMIT_CORE, &core) == 0 && core.rlim_cur == 0 && core.rlim_max == 0);
    HOLDS(open("/proc/self/statm", O_RDONLY | O_CLOEXEC) >= 0);
    return 0;
}

START_TEST(test_drops) {
    ck_assert_child(drops);
}
END_TEST

START_TEST(test_forbidden) {
    ck_assert_child(leaves_out_capget);
    ck_assert_child(leaves_out_capset);
    ck_assert_child(fails_otherwise);
}
END_TEST

START_TEST(test_hides) {
    ck_assert_child(hides);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("privileges");

    gb_test_add(suite, "drops", test_drops, 20);
    gb_test_add(suite, "forbidden", test_forbidden, 20);
    gb_test_add(suite, "hides", test_hides, 20);
    return gb_test_run(suite);
}
