/* The rules of --disk-fault: parsing, counting, judging. */
#include "disk/faults.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"

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

static int refuse(struct gb_error *err, const char *rule, size_t len, const char *why) {
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "disk fault rule '%.*s': %s", len < 40 ? (int)len : 40, rule,
                        why);
}

static int parse_op(const char *rule, size_t len, size_t op_len, struct gb_disk_rule *ret, struct gb_error *err) {
    char why[300] = "no such operation; permitted: ";
    int op;

    for (op = 0; op < GB_DISK_OP_COUNT; op++) {
        size_t at = strlen(why);

        if (is(rule, op_len, facts[op].name)) {
            ret->op = (enum gb_disk_op)op;
            return 0;
        }
        snprintf(why + at, sizeof(why) - at, "%s%s", op > 0 ? ", " : "", facts[op].name);
    }
    return refuse(err, rule, len, why);
}

/* What stands before the '=': OP[@N][+]. */
static int parse_when(const char *rule, size_t len, size_t left, struct gb_disk_rule *ret, struct gb_error *err) {
    bool onward = left > 0 && rule[left - 1] == '+';
    size_t end = onward ? left - 1 : left;
    const char *at = memchr(rule, '@', end);

    if (parse_op(rule, len, at ? (size_t)(at - rule) : end, ret, err) < 0)
        return -1;
    ret->first = 1;
    if (at && (gb_parse_u64(at + 1, end - (size_t)(at + 1 - rule), &ret->first) != GB_PARSE_OK || ret->first == 0))
        return refuse(err, rule, len, "the number after '@' counts calls from 1");
    ret->last = at && !onward ? ret->first : UINT64_MAX;
    return 0;
}

static int parse_error(const char *rule, size_t len, size_t from, struct gb_disk_rule *ret, struct gb_error *err) {
    char why[200] = "no such error; permitted: ";
    size_t i;

    for (i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        size_t at = strlen(why);

        if (is(rule + from, len - from, errors[i].name)) {
            ret->errnum = errors[i].errnum;
            return 0;
        }
        snprintf(why + at, sizeof(why) - at, "%s%s", i > 0 ? ", " : "", errors[i].name);
    }
    return refuse(err, rule, len, why);
}

/* What stands behind the '='. */
static int parse_what(const char *rule, size_t len, size_t from, struct gb_disk_rule *ret, struct gb_error *err) {
    const char *what = rule + from;
    size_t n = len - from;
    enum way way = facts[ret->op].way;

    if (is(what, n, "kill")) {
        ret->kill = true;
        return 0;
    }
    if (begins(what, n, "delay/")) {
        if (gb_parse_u64(what + 6, n - 6, &ret->delay_ms) != GB_PARSE_OK || ret->delay_ms > DELAY_MAX_MS)
            return refuse(err, rule, len, "a delay is a number of milliseconds, at most 3600000");
        return 0;
    }
    if (way == POINT)
        return refuse(err, rule, len, "this is a point and no call; permitted: delay/MILLISECONDS, kill");
    if (begins(what, n, "short/")) {
        if (way != WRITES && way != READS)
            return refuse(err, rule, len, "only write and read can be short");
        if (gb_parse_u64(what + 6, n - 6, &ret->most_bytes) != GB_PARSE_OK || ret->most_bytes == 0)
            return refuse(err, rule, len, "short/BYTES has a number of bytes, at least 1");
        return 0;
    }
    if (!begins(what, n, "flip/"))
        return parse_error(rule, len, from, ret, err);
    if (way != READS)
        return refuse(err, rule, len, "only what is read can have a bit flipped");
    if (gb_parse_u64(what + 5, n - 5, &ret->flip_bit) != GB_PARSE_OK || ret->flip_bit == GB_DISK_NO_FLIP)
        return refuse(err, rule, len, "flip/BIT has the number of a bit, from 0");
    return 0;
}

static int parse_rule(const char *rule, size_t len, struct gb_disk_rule *ret, struct gb_error *err) {
    const char *equals = memchr(rule, '=', len);
    size_t left;

    if (!equals)
        return refuse(err, rule, len, FORM);
    left = (size_t)(equals - rule);
    *ret = (struct gb_disk_rule){.most_bytes = UINT64_MAX, .flip_bit = GB_DISK_NO_FLIP};
    if (parse_when(rule, len, left, ret, err) < 0)
        return -1;
    return parse_what(rule, len, left + 1, ret, err);
}

int gb_disk_plan_init(struct gb_disk_plan *plan, const char *text, struct gb_error *err) {
    struct gb_disk_plan made = {.count = 0};
    size_t len = strlen(text);
    size_t rules = 1;
    size_t at = 0;
    size_t i;

    for (i = 0; i < len; i++)
        rules += text[i] == ',';
    made.rules = calloc(rules, sizeof(made.rules[0]));
    if (!made.rules)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory for the rules of disk faults");
    while (len > 0 && at <= len) {
        const char *comma = memchr(text + at, ',', len - at);
        size_t n = comma ? (size_t)(comma - text) - at : len - at;

        if (parse_rule(text + at, n, &made.rules[made.count], err) < 0) {
            gb_disk_plan_done(&made);
            return -1;
        }
        made.count++;
        at += n + 1;
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
