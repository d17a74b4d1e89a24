#include "disk/calls.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* What the rules say of this call, behind the delay that they ask for. */
static struct gb_disk_verdict judged(struct gb_disk_plan *plan, enum gb_disk_op op) {
    struct gb_disk_verdict verdict = {.most_bytes = UINT64_MAX, .flip_bit = GB_DISK_NO_FLIP};
    struct timespec delay;

    if (!plan)
        return verdict;
    verdict = gb_disk_plan_judge(plan, op);
    if (verdict.delay_ms > 0) {
        delay = (struct timespec){.tv_sec = (time_t)(verdict.delay_ms / 1000),
                                  .tv_nsec = (long)(verdict.delay_ms % 1000 * 1000000)};
        nanosleep(&delay, NULL);
    }
    if (verdict.kill)
        raise(SIGKILL); /* kill() is not a call that the cage permits */
    if (verdict.errnum != 0)
        errno = verdict.errnum;
    return verdict;
}

/* Must this call fail? Then errno says why. */
static bool refused(struct gb_disk_plan *plan, enum gb_disk_op op) {
    return plan && judged(plan, op).errnum != 0;
}

int gb_disk_call_open(struct gb_disk_plan *plan, int folder, const char *path, int flags) {
    if (refused(plan, GB_DISK_OP_open))
        return -1;
    return TEMP_FAILURE_RETRY(openat(folder, path, flags | O_CLOEXEC));
}

int gb_disk_call_create(struct gb_disk_plan *plan, int folder, const char *path, int flags) {
    if (refused(plan, GB_DISK_OP_create))
        return -1;
    return TEMP_FAILURE_RETRY(openat(folder, path, flags | O_CREAT | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0600));
}

int gb_disk_call_mkdir(struct gb_disk_plan *plan, int folder, const char *path) {
    return refused(plan, GB_DISK_OP_mkdir) ? -1 : mkdirat(folder, path, 0700);
}

int gb_disk_call_direct(struct gb_disk_plan *plan, int fd, bool direct) {
    int flags;

    if (direct && refused(plan, GB_DISK_OP_direct))
        return -1;
    flags = fcntl(fd, F_GETFL);
    if (flags < 0)
        return -1;
    return fcntl(fd, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT);
}

int gb_disk_call_fallocate(struct gb_disk_plan *plan, int fd, uint64_t bytes) {
    if (refused(plan, GB_DISK_OP_fallocate))
        return -1;
    return (int)TEMP_FAILURE_RETRY(fallocate(fd, 0, 0, (off_t)bytes));
}

ssize_t gb_disk_call_write(struct gb_disk_plan *plan, int fd, const void *ptr, size_t n, uint64_t at) {
    struct gb_disk_verdict verdict = judged(plan, GB_DISK_OP_write);

    if (verdict.errnum != 0)
        return -1;
    if (n > verdict.most_bytes)
        n = (size_t)verdict.most_bytes;
    return TEMP_FAILURE_RETRY(pwrite(fd, ptr, n, (off_t)at));
}

ssize_t gb_disk_call_read(struct gb_disk_plan *plan, int fd, void *ptr, size_t n, uint64_t at) {
    struct gb_disk_verdict verdict = judged(plan, GB_DISK_OP_read);
    ssize_t got;

    if (verdict.errnum != 0)
        return -1;
    if (n > verdict.most_bytes)
        n = (size_t)verdict.most_bytes;
    got = TEMP_FAILURE_RETRY(pread(fd, ptr, n, (off_t)at));
    if (got > 0 && verdict.flip_bit / 8 < (size_t)got)
        ((unsigned char *)ptr)[verdict.flip_bit / 8] ^= (unsigned char)(1u << verdict.flip_bit % 8);
    return got;
}

int gb_disk_call_truncate(struct gb_disk_plan *plan, int fd, uint64_t bytes) {
    if (refused(plan, GB_DISK_OP_truncate))
        return -1;
    return (int)TEMP_FAILURE_RETRY(ftruncate(fd, (off_t)bytes));
}

int gb_disk_call_sync(struct gb_disk_plan *plan, int fd) {
    return refused(plan, GB_DISK_OP_sync) ? -1 : fdatasync(fd);
}

int gb_disk_call_dirsync(struct gb_disk_plan *plan, int fd) {
    return refused(plan, GB_DISK_OP_dirsync) ? -1 : fsync(fd);
}

int gb_disk_call_rename(struct gb_disk_plan *plan, int from, const char *path, int to, const char *to_path) {
    return refused(plan, GB_DISK_OP_rename) ? -1 : renameat(from, path, to, to_path);
}

int gb_disk_call_link(struct gb_disk_plan *plan, int from, const char *path, int to, const char *to_path) {
    return refused(plan, GB_DISK_OP_link) ? -1 : linkat(from, path, to, to_path, 0);
}

int gb_disk_call_unlink(struct gb_disk_plan *plan, int folder, const char *path) {
    return refused(plan, GB_DISK_OP_unlink) ? -1 : unlinkat(folder, path, 0);
}

int gb_disk_call_rmdir(struct gb_disk_plan *plan, int folder, const char *path) {
    return refused(plan, GB_DISK_OP_unlink) ? -1 : unlinkat(folder, path, AT_REMOVEDIR);
}

int gb_disk_call_statvfs(struct gb_disk_plan *plan, const char *path, struct statvfs *ret) {
    if (refused(plan, GB_DISK_OP_statvfs))
        return -1;
    return (int)TEMP_FAILURE_RETRY(statvfs(path, ret));
}

void gb_disk_call_point(struct gb_disk_plan *plan, enum gb_disk_op op) {
    if (plan)
        judged(plan, op);
}
