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
#ifndef GB_DISK_FAULTS_H
#define GB_DISK_FAULTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

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

#endif
