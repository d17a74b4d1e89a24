/* The rules of the fault decorator: parsing, counting, judging. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/fault/fault.h"
#include "base/parse.h"
#include "base/rule.h"

#define DELAY_MAX_MS 3600000u
#define FORM "a rule is OP[@N][+]=ERROR, OP[@N][+]=delay/MILLISECONDS or OP[@N][+]=stall/MILLISECONDS"

enum way { FAILS, STALLS, DELAYS, WRITTEN, TOLD }; /* see ops.def */

struct fact {
    const char *name;
    enum way way;
    const char *call;
};

static const struct fact facts[GB_FAULT_OP_COUNT] = {
#define GB_FAULT_OP(name, way, call, parameters, arguments) {#name, way, call},
#include "backend/fault/ops.def"
#undef GB_FAULT_OP
};

const char *gb_fault_op_name(enum gb_fault_op op) {
    return facts[op].name;
}

const char *gb_fault_op_call(enum gb_fault_op op) {
    return facts[op].call;
}

/* --- parsing ------------------------------------------------------------------------------------------------------ */

/* How much of two names' beginnings, '_' included, is the same group: "pin_" of pin_alloc and pin_free; else 0. */
static size_t group_of(const char *name, const char *other) {
    size_t head = strcspn(name, "_");

    return name[head] == '_' && strncmp(name, other, head + 1) == 0 ? head + 1 : 0;
}

/* "device_get, pin_*, ..., watch", with the members of the one group that the wrong word begins with: short enough for
 * an error's detail. */
static void list_ops(const char *wrong, char *out, size_t size) {
    size_t at = 0;
    size_t i;

    out[0] = '\0';
    for (i = 0; i < GB_FAULT_OP_COUNT && at < size; i++) {
        const char *name = facts[i].name;
        size_t before = i > 0 ? group_of(name, facts[i - 1].name) : 0;
        size_t after = i + 1 < GB_FAULT_OP_COUNT ? group_of(name, facts[i + 1].name) : 0;
        bool open = group_of(name, wrong) > 0;

        if (before > 0 && !open)
            continue;
        at += (size_t)snprintf(out + at, size - at, "%s%.*s%s", i > 0 ? ", " : "", after > 0 && !open ? (int)after : 64,
                               name, after > 0 && !open ? "*" : "");
    }
}

static int refuse(struct gb_error *err, const struct gb_rule *rule, const char *why) {
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "fault rule '%.*s': %s", rule->len < 40 ? (int)rule->len : 40,
                        rule->text, why);
}

static int parse_op(const struct gb_rule *rule, struct gb_fault_rule *ret, struct gb_error *err) {
    char why[280] = "no such operation; permitted: ";
    int op;

    for (op = 0; op < GB_FAULT_OP_COUNT; op++) {
        if (strlen(facts[op].name) == rule->op_len && memcmp(facts[op].name, rule->text, rule->op_len) == 0) {
            ret->op = (enum gb_fault_op)op;
            return 0;
        }
    }
    list_ops(rule->text, why + strlen(why), sizeof(why) - strlen(why));
    return refuse(err, rule, why);
}

/* What stands behind "delay/" or "stall/". */
static int parse_ms(const struct gb_rule *rule, uint64_t *ret_ms, struct gb_error *err) {
    if (gb_parse_u64(rule->what + 6, rule->what_len - 6, ret_ms) != GB_PARSE_OK || *ret_ms > DELAY_MAX_MS)
        return refuse(err, rule, "a delay is a number of milliseconds, at most 3600000");
    return 0;
}

/* What stands behind the '=': ERROR, delay/MS or stall/MS. */
static int parse_what(const struct gb_rule *rule, struct gb_fault_rule *ret, struct gb_error *err) {
    const char *what = rule->what;
    size_t n = rule->what_len;

    if (n >= 6 && memcmp(what, "delay/", 6) == 0)
        return parse_ms(rule, &ret->delay_ms, err);
    if (n >= 6 && memcmp(what, "stall/", 6) == 0 && facts[ret->op].way != STALLS)
        return refuse(err, rule, "only what is queued can stall: copy, fill, move, box, place_fill");
    if (n >= 6 && memcmp(what, "stall/", 6) == 0)
        return parse_ms(rule, &ret->stall_ms, err);
    ret->native = gb_native_by_name(what, n);
    if (!ret->native)
        return refuse(
            err, rule,
            "no such error; permitted: delay/MILLISECONDS or an error name of CUDA that native.def lists, such "
            "as cudaErrorMemoryAllocation, cudaErrorInvalidValue, cudaErrorIllegalAddress, "
            "cudaErrorECCUncorrectable, cudaErrorLaunchFailure");
    if (facts[ret->op].way == DELAYS)
        return refuse(err, rule, "this operation cannot fail; permitted: delay/MILLISECONDS");
    return 0;
}

static int parse_rule(const struct gb_rule *rule, struct gb_fault_rule *ret, struct gb_error *err) {
    if (!rule->what)
        return refuse(err, rule, FORM);
    *ret = (struct gb_fault_rule){.first = rule->first, .last = rule->last};
    if (parse_op(rule, ret, err) < 0)
        return -1;
    if (rule->first == 0)
        return refuse(err, rule, "the number after '@' counts calls from 1");
    return parse_what(rule, ret, err);
}

int gb_fault_plan_init(struct gb_fault_plan *plan, const char *text, size_t len, struct gb_error *err) {
    struct gb_fault_plan made = {.count = 0};
    struct gb_rule rule;
    size_t at = 0;

    made.rules = calloc(gb_rules_count(text, len), sizeof(made.rules[0]));
    if (!made.rules)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory for fault rules");
    while (gb_rules_next(text, len, &at, &rule)) {
        if (parse_rule(&rule, &made.rules[made.count], err) < 0) {
            gb_fault_plan_done(&made);
            return -1;
        }
        made.count++;
    }
    *plan = made;
    return 0;
}

void gb_fault_plan_done(struct gb_fault_plan *plan) {
    free(plan->rules);
    plan->rules = NULL;
    plan->count = 0;
}

/* --- judging ------------------------------------------------------------------------------------------------------ */

struct gb_fault_verdict gb_fault_plan_call(struct gb_fault_plan *plan, enum gb_fault_op op) {
    struct gb_fault_verdict verdict = {.call = __atomic_add_fetch(&plan->calls[op], 1, __ATOMIC_RELAXED)};
    size_t i;

    for (i = 0; i < plan->count; i++) {
        const struct gb_fault_rule *rule = &plan->rules[i];

        if (rule->op != op || verdict.call < rule->first || verdict.call > rule->last)
            continue;
        verdict.delay_ms += rule->delay_ms;
        verdict.stall_ms += rule->stall_ms;
        if (!verdict.native)
            verdict.native = rule->native;
    }
    return verdict;
}
