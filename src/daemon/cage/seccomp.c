#include "daemon/cage/seccomp.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/cage/filter.h"
#include "daemon/cage/privileges.h"
#include "daemon/cage/refusal.h"
#include "daemon/cage/supervisor.h"

/* Of Linux 5.7, later than the headers may be. */
#ifndef SECCOMP_FILTER_FLAG_TSYNC_ESRCH
#define SECCOMP_FILTER_FLAG_TSYNC_ESRCH (1UL << 4)
#endif

#define SUPERVISED (SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_TSYNC_ESRCH)

const char *gb_seccomp_name(enum gb_seccomp mode) {
    static const char *const names[] = {
        [GB_SECCOMP_OFF] = "off", [GB_SECCOMP_LOG] = "log", [GB_SECCOMP_ERRNO] = "errno", [GB_SECCOMP_KILL] = "kill"};

    return names[mode];
}

/* Threads of CUDA's driver may block the signal, and would end the process: there, the kernel's log has the calls. */
static uint32_t action(enum gb_seccomp mode, unsigned sets) {
    if (mode == GB_SECCOMP_LOG)
        return SECCOMP_RET_LOG;
    if (mode == GB_SECCOMP_KILL)
        return SECCOMP_RET_KILL_PROCESS;
    return sets ? SECCOMP_RET_ERRNO | EPERM : SECCOMP_RET_TRAP;
}

/* For all threads. Without SPEC_ALLOW, kernels before 5.16 also switch off the speculation of stores, at a cost to
 * every thread; that is for programs that run foreign code. Returns 0, the listener's descriptor, or -1 with errno. */
static int install(unsigned sets, uint32_t unknown, unsigned long flags) {
    struct gb_filter filter;
    struct sock_fprog program = {0, filter.code};
    long rc;

    if (!gb_filter_build(sets, unknown, &filter)) {
        errno = ENOSYS;
        return -1;
    }
    program.len = filter.length;
    flags |= SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_SPEC_ALLOW | SECCOMP_FILTER_FLAG_LOG;
    rc = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
    if (rc > 0 && !(flags & SECCOMP_FILTER_FLAG_NEW_LISTENER)) { /* the thread that could not have it */
        errno = ESRCH;
        return -1;
    }
    return (int)rc;
}

/* 0: no kernel for it; 1: in force. */
static int install_alone(enum gb_seccomp mode, unsigned sets, const struct gb_log *log, struct gb_error *err) {
    if (mode == GB_SECCOMP_ERRNO && !sets && gb_refusal_prepare(log, err) != 0)
        return -1;
    if (install(sets, action(mode, sets), 0) == 0)
        return 1;
    /* The kernel lacks it, or a sandbox around this process forbids it. */
    return errno == ENOSYS || errno == EINVAL || errno == EPERM
               ? 0
               : gb_error_errno(err, GB_ERR_INTERNAL, "seccomp", errno);
}

int gb_seccomp_enter(enum gb_seccomp mode, unsigned sets, const struct gb_log *log, enum gb_seccomp *ret_mode,
                     struct gb_error *err) {
    int rc = 1;
    int fd = -1;

    *ret_mode = GB_SECCOMP_OFF;
    if (mode == GB_SECCOMP_OFF)
        return 0;
    if (gb_privileges_none_new(err) != 0 || (mode == GB_SECCOMP_LOG && gb_supervisor_prepare(log, err) != 0))
        return -1;
    /* A filter around this process may have taken the one listener that there can be; then the kernel logs. */
    if (mode == GB_SECCOMP_LOG)
        fd = install(sets, SECCOMP_RET_USER_NOTIF, SUPERVISED);
    if (fd >= 0)
        rc = gb_supervisor_start(fd, err) == 0 ? 1 : -1;
    else
        rc = install_alone(mode, sets, log, err);
    if (rc > 0)
        *ret_mode = mode;
    return rc < 0 ? -1 : 0;
}
