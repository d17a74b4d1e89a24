/* The system calls of this layer, each behind the rules of --disk-fault. */
#include "disk/calls.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"

/* --- calls -------------------------------------------------------------------------------------------------------- */

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

/* --- faults ------------------------------------------------------------------------------------------------------- */

/* The rules of --disk-fault: parsing, counting, judging. */

#define DELAY_MAX_MS 3600000u
#define FORM                                                                                                           \
    "a rule is OP[@N][+]=ERROR, OP[@N][+]=delay/MILLISECONDS, OP[@N][+]=short/BYTES, OP[@N][+]=flip/BIT or "           \
    "OP[@N][+]=kill"

enum way { FAILS, WRITES, READS, POINT }; /* see ops.def */

struct fact {
    const char *name;
    enum way way;
    const char *call;
};

static const struct fact facts[GB_DISK_OP_COUNT] = {
#define GB_DISK_OP(name, way, call) {#name, way, call},
#include "disk/ops.def"
#undef GB_DISK_OP
};

static const struct {
    const char *name;
    int errnum;
} errors[] = {
#define GB_DISK_ERROR(name) {#name, name},
#include "disk/errors.def"
#undef GB_DISK_ERROR
};

const char *gb_disk_op_name(enum gb_disk_op op) {
    return facts[op].name;
}

const char *gb_disk_op_call(enum gb_disk_op op) {
    return facts[op].call;
}

/* --- parsing ------------------------------------------------------------------------------------------------------ */

static bool is(const char *text, size_t len, const char *word) {
    return strlen(word) == len && memcmp(text, word, len) == 0;
}

static bool begins(const char *text, size_t len, const char *word) {
    return len >= strlen(word) && memcmp(text, word, strlen(word)) == 0;
}

static int refuse(struct gb_error *err, const struct gb_rule *rule, const char *why) {
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "disk fault rule '%.*s': %s",
                        rule->len < 40 ? (int)rule->len : 40, rule->text, why);
}

static int parse_op(const struct gb_rule *rule, struct gb_disk_rule *ret, struct gb_error *err) {
    char why[300] = "no such operation; permitted: ";
    int op;

    for (op = 0; op < GB_DISK_OP_COUNT; op++) {
        size_t at = strlen(why);

        if (is(rule->text, rule->op_len, facts[op].name)) {
            ret->op = (enum gb_disk_op)op;
            return 0;
        }
        snprintf(why + at, sizeof(why) - at, "%s%s", op > 0 ? ", " : "", facts[op].name);
    }
    return refuse(err, rule, why);
}

static int parse_error(const struct gb_rule *rule, struct gb_disk_rule *ret, struct gb_error *err) {
    char why[200] = "no such error; permitted: ";
    size_t i;

    for (i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        size_t at = strlen(why);

        if (is(rule->what, rule->what_len, errors[i].name)) {
            ret->errnum = errors[i].errnum;
            return 0;
        }
        snprintf(why + at, sizeof(why) - at, "%s%s", i > 0 ? ", " : "", errors[i].name);
    }
    return refuse(err, rule, why);
}

/* What stands behind the '='. */
static int parse_what(const struct gb_rule *rule, struct gb_disk_rule *ret, struct gb_error *err) {
    const char *what = rule->what;
    size_t n = rule->what_len;
    enum way way = facts[ret->op].way;

    if (is(what, n, "kill")) {
        ret->kill = true;
        return 0;
    }
    if (begins(what, n, "delay/")) {
        if (gb_parse_u64(what + 6, n - 6, &ret->delay_ms) != GB_PARSE_OK || ret->delay_ms > DELAY_MAX_MS)
            return refuse(err, rule, "a delay is a number of milliseconds, at most 3600000");
        return 0;
    }
    if (way == POINT)
        return refuse(err, rule, "this is a point and no call; permitted: delay/MILLISECONDS, kill");
    if (begins(what, n, "short/")) {
        if (way != WRITES && way != READS)
            return refuse(err, rule, "only write and read can be short");
        if (gb_parse_u64(what + 6, n - 6, &ret->most_bytes) != GB_PARSE_OK || ret->most_bytes == 0)
            return refuse(err, rule, "short/BYTES has a number of bytes, at least 1");
        return 0;
    }
    if (!begins(what, n, "flip/"))
        return parse_error(rule, ret, err);
    if (way != READS)
        return refuse(err, rule, "only what is read can have a bit flipped");
    if (gb_parse_u64(what + 5, n - 5, &ret->flip_bit) != GB_PARSE_OK || ret->flip_bit == GB_DISK_NO_FLIP)
        return refuse(err, rule, "flip/BIT has the number of a bit, from 0");
    return 0;
}

static int parse_rule(const struct gb_rule *rule, struct gb_disk_rule *ret, struct gb_error *err) {
    if (!rule->what)
        return refuse(err, rule, FORM);
    *ret = (struct gb_disk_rule){
        .first = rule->first, .last = rule->last, .most_bytes = UINT64_MAX, .flip_bit = GB_DISK_NO_FLIP};
    if (parse_op(rule, ret, err) < 0)
        return -1;
    if (rule->first == 0)
        return refuse(err, rule, "the number after '@' counts calls from 1");
    return parse_what(rule, ret, err);
}

int gb_disk_plan_init(struct gb_disk_plan *plan, const char *text, struct gb_error *err) {
    struct gb_disk_plan made = {.count = 0};
    size_t len = strlen(text);
    struct gb_rule rule;
    size_t at = 0;

    made.rules = calloc(gb_rules_count(text, len), sizeof(made.rules[0]));
    if (!made.rules)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory for the rules of disk faults");
    while (gb_rules_next(text, len, &at, &rule)) {
        if (parse_rule(&rule, &made.rules[made.count], err) < 0) {
            gb_disk_plan_done(&made);
            return -1;
        }
        made.count++;
    }
    *plan = made;
    return 0;
}

void gb_disk_plan_done(struct gb_disk_plan *plan) {
    free(plan->rules);
    plan->rules = NULL;
    plan->count = 0;
}

/* --- judging ------------------------------------------------------------------------------------------------------ */

struct gb_disk_verdict gb_disk_plan_judge(struct gb_disk_plan *plan, enum gb_disk_op op) {
    struct gb_disk_verdict verdict = {.most_bytes = UINT64_MAX, .flip_bit = GB_DISK_NO_FLIP};
    uint64_t call = __atomic_add_fetch(&plan->calls[op], 1, __ATOMIC_RELAXED);
    size_t i;

    for (i = 0; i < plan->count; i++) {
        const struct gb_disk_rule *rule = &plan->rules[i];

        if (rule->op != op || call < rule->first || call > rule->last)
            continue;
        verdict.delay_ms += rule->delay_ms;
        verdict.kill = verdict.kill || rule->kill;
        if (verdict.errnum == 0)
            verdict.errnum = rule->errnum;
        if (rule->most_bytes < verdict.most_bytes)
            verdict.most_bytes = rule->most_bytes;
        if (verdict.flip_bit == GB_DISK_NO_FLIP)
            verdict.flip_bit = rule->flip_bit;
    }
    return verdict;
}
