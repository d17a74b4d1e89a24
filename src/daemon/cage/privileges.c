/* Capabilities, no_new_privs and core dumps, by the system calls themselves: all of it is given up for good. */
#include "daemon/cage/privileges.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WORDS _LINUX_CAPABILITY_U32S_3

/* The C library has no declarations of these two. */
static int read_sets(struct __user_cap_data_struct *sets) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};

    return (int)syscall(SYS_capget, &header, sets);
}

static int clear_sets(void) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[WORDS] = {{0}};

    return (int)syscall(SYS_capset, &header, none);
}

static bool any(const struct __user_cap_data_struct *sets) {
    unsigned found = 0;
    int i;

    for (i = 0; i < WORDS; i++)
        found |= sets[i].effective | sets[i].permitted | sets[i].inheritable;
    return found != 0;
}

static bool has(const struct __user_cap_data_struct *sets, unsigned capability) {
    return (sets[capability / 32].effective & (1u << capability % 32)) != 0;
}

/* The kernel asks for CAP_IPC_LOCK or for this limit; pinned buffers have a limit of their own. */
static void keep_locking(const struct __user_cap_data_struct *sets) {
    const struct rlimit unlimited = {RLIM_INFINITY, RLIM_INFINITY};

    if (has(sets, CAP_IPC_LOCK))
        (void)setrlimit(RLIMIT_MEMLOCK, &unlimited);
}

int gb_privileges_none_new(struct gb_error *err) {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1UL, 0UL, 0UL, 0UL) != 0)
        return gb_error_errno(err, GB_ERR_INTERNAL, "prctl(PR_SET_NO_NEW_PRIVS)", errno);
    return 0;
}

/* How a call ended that a sandbox may forbid. */
static int forbidden(const char *call, struct gb_error *err) {
    return errno == EPERM || errno == ENOSYS ? 1 : gb_error_errno(err, GB_ERR_INTERNAL, call, errno);
}

int gb_privileges_drop(struct gb_error *err) {
    struct __user_cap_data_struct sets[WORDS] = {{0}};
    unsigned long capability;

    if (gb_privileges_none_new(err) != 0)
        return -1;
    if (read_sets(sets) != 0)
        return forbidden("capget", err);
    keep_locking(sets);
    /* Only CAP_SETPCAP takes from the bounding set; it goes last, with the others. */
    for (capability = 0; has(sets, CAP_SETPCAP) && prctl(PR_CAPBSET_READ, capability, 0UL, 0UL, 0UL) >= 0; capability++)
        if (prctl(PR_CAPBSET_DROP, capability, 0UL, 0UL, 0UL) != 0)
            return forbidden("prctl(PR_CAPBSET_DROP)", err);
    (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0UL, 0UL, 0UL); /* they need a permitted one anyway */
    /* A sandbox may forbid capset to a process that has nothing to give up. */
    return any(sets) && clear_sets() != 0 ? forbidden("capset", err) : 0;
}

void gb_privileges_hide(void) {
    const struct rlimit none = {0, 0};

    (void)setrlimit(RLIMIT_CORE, &none);
    (void)prctl(PR_SET_DUMPABLE, 0UL, 0UL, 0UL, 0UL);
}
