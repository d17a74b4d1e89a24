/* The system calls of this layer, each behind the rules of --disk-fault. They answer as the call itself does, -1 with
 * errno, and continue after EINTR. plan: NULL if there are no rules. [any thread] */
#ifndef GB_DISK_CALLS_H
#define GB_DISK_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/statvfs.h>
#include <sys/types.h>

#include "base/error.h"

/* Faults of the disk, on purpose: named operations fail, are slow, are short, or end the process.
 *
 *   --disk-fault RULE[,RULE...]
 *   RULE = OP[@N][+]=WHAT      the N-th call of OP since the disk was opened (N from 1; @N+: from the N-th on; without
 *                              @N: every call)
 *   WHAT = ENOSPC, EIO, ...    the call fails with this error, and nothing was done; errors.def has the names
 *          short/BYTES         of write and read: at most that many bytes are written or read
 *          flip/BIT            of read: this bit of what the call has read is flipped; bits count from the first byte's
 *                              lowest, and a bit behind the end changes nothing
 *          delay/MS            the call is held up for MS milliseconds (at most an hour) and then goes its way
 *          kill                SIGKILL is raised before the call
 *
 * OP is one of ops.def. If several rules match a call, all delays are taken, then kill, then the first error, the
 * shortest length, the first flip. What gb_disk_open itself does is not counted. */

enum gb_disk_op {
#define GB_DISK_OP(name, way, call) GB_DISK_OP_##name,
#include "disk/ops.def"
#undef GB_DISK_OP
    GB_DISK_OP_COUNT
};

#define GB_DISK_NO_FLIP UINT64_MAX

struct gb_disk_rule {
    enum gb_disk_op op;
    uint64_t first; /* counted from 1 */
    uint64_t last;  /* UINT64_MAX: from first on */
    int errnum;     /* 0: none */
    bool kill;
    uint64_t delay_ms;
    uint64_t most_bytes; /* UINT64_MAX: not short */
    uint64_t flip_bit;   /* GB_DISK_NO_FLIP: none */
};

/* The rules, and how often each operation was called. */
struct gb_disk_plan {
    struct gb_disk_rule *rules;
    size_t count;
    uint64_t calls[GB_DISK_OP_COUNT]; /* atomic */
};

/* What the rules say of one call. */
struct gb_disk_verdict {
    int errnum; /* 0: it does not fail */
    bool kill;
    uint64_t delay_ms;
    uint64_t most_bytes;
    uint64_t flip_bit;
};

/* "write", "pwrite". */
const char *gb_disk_op_name(enum gb_disk_op op);
const char *gb_disk_op_call(enum gb_disk_op op);

/* Parses text. Returns 0, or -1 with INVALID_ARGUMENT saying which rule is wrong and what is permitted. */
int gb_disk_plan_init(struct gb_disk_plan *plan, const char *text, struct gb_error *err);
void gb_disk_plan_done(struct gb_disk_plan *plan);

/* Counts a call and judges it. [any thread] */
struct gb_disk_verdict gb_disk_plan_judge(struct gb_disk_plan *plan, enum gb_disk_op op);

/* O_CLOEXEC is always set. */
int gb_disk_call_open(struct gb_disk_plan *plan, int folder, const char *path, int flags);
/* The file is opened for writing, with mode 0600. A link is not followed. */
int gb_disk_call_create(struct gb_disk_plan *plan, int folder, const char *path, int flags);
int gb_disk_call_mkdir(struct gb_disk_plan *plan, int folder, const char *path); /* mode 0700 */
/* Past the kernel's cache from now on, or through it; the latter asks no rule. */
int gb_disk_call_direct(struct gb_disk_plan *plan, int fd, bool direct);
int gb_disk_call_fallocate(struct gb_disk_plan *plan, int fd, uint64_t bytes);
ssize_t gb_disk_call_write(struct gb_disk_plan *plan, int fd, const void *ptr, size_t n, uint64_t at);
ssize_t gb_disk_call_read(struct gb_disk_plan *plan, int fd, void *ptr, size_t n, uint64_t at);
int gb_disk_call_truncate(struct gb_disk_plan *plan, int fd, uint64_t bytes);
int gb_disk_call_sync(struct gb_disk_plan *plan, int fd);
int gb_disk_call_dirsync(struct gb_disk_plan *plan, int fd);
int gb_disk_call_rename(struct gb_disk_plan *plan, int from, const char *path, int to, const char *to_path);
int gb_disk_call_link(struct gb_disk_plan *plan, int from, const char *path, int to, const char *to_path);
int gb_disk_call_unlink(struct gb_disk_plan *plan, int folder, const char *path);
int gb_disk_call_rmdir(struct gb_disk_plan *plan, int folder, const char *path);
int gb_disk_call_statvfs(struct gb_disk_plan *plan, const char *path, struct statvfs *ret);
void gb_disk_call_point(struct gb_disk_plan *plan, enum gb_disk_op op);

#endif
