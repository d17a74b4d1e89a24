/* The fault decorator: makes calls of another backend fail, stall or take longer, by the rules of --backend-fault.
 * Other calls pass through. backend.c opens it; tests use its rules directly. */
#include "backend/fault/fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/text.h"
#include "base/thread.h"

static const struct gb_backend_ops fault_ops;

/* --- rules -------------------------------------------------------------------------------------------------------- */

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

/* --- rules: parsing ----------------------------------------------------------------------------------------------- */

/* The length of the group that two names share, with its '_': "pin_" of pin_alloc and pin_free; else 0. */
static size_t group_of(const char *name, const char *other) {
    size_t head = strcspn(name, "_");

    return name[head] == '_' && strncmp(name, other, head + 1) == 0 ? head + 1 : 0;
}

/* Writes "device_get, pin_*, ..., watch", with only the members of the group that the wrong word begins with; so the
 * list is short enough for an error's detail. */
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

/* Parses the number behind "delay/" or "stall/". */
static int parse_ms(const struct gb_rule *rule, uint64_t *ret_ms, struct gb_error *err) {
    if (gb_parse_u64(rule->what + 6, rule->what_len - 6, ret_ms) != GB_PARSE_OK || *ret_ms > DELAY_MAX_MS)
        return refuse(err, rule, "a delay is a number of milliseconds, at most 3600000");
    return 0;
}

/* Parses the text behind '=': ERROR, delay/MS or stall/MS. */
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

/* --- rules: verdicts ---------------------------------------------------------------------------------------------- */

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

int gb_fault_open(const char *args, struct gb_backend **ret, char *ret_note, struct gb_error *err);

/* --- calls -------------------------------------------------------------------------------------------------------- */

static bool fault_dead(struct gb_backend *be, struct gb_error *ret_why) {
    struct fault *f = gb_fault_of(be);

    if (!__atomic_load_n(&f->dead, __ATOMIC_ACQUIRE))
        return gb_backend_dead(f->inner, ret_why);
    if (ret_why)
        *ret_why = f->why;
    return true;
}

static void kill_backend(struct fault *f, const struct gb_error *why) {
    pthread_mutex_lock(&f->lock);
    if (!f->dead) {
        f->why = *why;
        __atomic_store_n(&f->dead, true, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&f->lock);
}

static void hold_up(uint64_t delay_ms) {
    struct timespec left = {.tv_sec = (time_t)(delay_ms / 1000), .tv_nsec = (long)(delay_ms % 1000) * 1000000};

    while (delay_ms > 0 && nanosleep(&left, &left) < 0)
        continue;
}

static void fill_error(struct fault *f, enum gb_fault_op op, const struct gb_fault_verdict *verdict,
                       struct gb_error *ret) {
    const struct gb_native *native = verdict->native;

    *ret = GB_ERROR_INIT;
    gb_error_native_text(ret, f->base.domain, native->number, native->name, gb_fault_op_call(op), native->text);
    gb_error_set(ret, native->code, "%s was injected into call %llu of %s", native->name,
                 (unsigned long long)verdict->call, gb_fault_op_name(op));
    if (native->code == GB_ERR_DEVICE_LOST)
        kill_backend(f, ret);
}

static int obey(struct fault *f, enum gb_fault_op op, const struct gb_fault_verdict *verdict, struct gb_error *err) {
    struct gb_error made;

    hold_up(verdict->delay_ms);
    if (fault_dead(&f->base, &made) || verdict->native) {
        if (!fault_dead(&f->base, NULL))
            fill_error(f, op, verdict, &made);
        return gb_error_move(err, &made);
    }
    return 0;
}

/* Applies the rules to a call. Returns 0, or -1 with err if it fails. */
static int fault_meet(struct fault *f, enum gb_fault_op op, struct gb_error *err) {
    struct gb_fault_verdict verdict = gb_fault_plan_call(&f->plan, op);

    return obey(f, op, &verdict, err);
}

static void stall(void *arg) {
    uint64_t *stall_ms = arg;

    hold_up(*stall_ms);
    free(stall_ms);
}

/* As above, for a call that queues work on a stream, which the rules may stall. */
static int fault_meet_queued(struct fault *f, enum gb_fault_op op, struct gb_stream *stream, struct gb_error *err) {
    struct gb_fault_verdict verdict = gb_fault_plan_call(&f->plan, op);
    uint64_t *stall_ms;

    if (obey(f, op, &verdict, err) < 0)
        return -1;
    if (verdict.stall_ms == 0)
        return 0;
    stall_ms = malloc(sizeof(*stall_ms));
    if (!stall_ms)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory for a stall");
    *stall_ms = verdict.stall_ms;
    if (gb_stream_call(f->inner, stream, stall, stall_ms, err) < 0) {
        free(stall_ms);
        return -1;
    }
    return 0;
}

/* --- watches ------------------------------------------------------------------------------------------------------ */

struct fault_watcher {
    struct fault *f;
    struct gb_fault_verdict verdict;
    gb_watch_fn *fn;
    void *arg;
};

static void tell(void *arg, const struct gb_error *error) {
    struct fault_watcher *watch = arg;
    struct gb_error made;

    hold_up(watch->verdict.delay_ms);
    if (!error && watch->verdict.native) {
        fill_error(watch->f, GB_FAULT_complete, &watch->verdict, &made);
        error = &made;
    } else if (!error && fault_dead(&watch->f->base, &made)) {
        error = &made;
    }
    watch->fn(watch->arg, error);
    free(watch);
}

static int fault_watch(struct gb_backend *be, struct gb_event *event, gb_watch_fn *fn, void *arg,
                       struct gb_error *err) {
    struct fault *f = gb_fault_of(be);
    struct fault_watcher *watch;

    if (fault_meet(f, GB_FAULT_watch, err) < 0)
        return -1;
    watch = calloc(1, sizeof(*watch));
    if (!watch)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory for a watch");
    *watch = (struct fault_watcher){.f = f, .fn = fn, .arg = arg};
    watch->verdict = gb_fault_plan_call(&f->plan, GB_FAULT_complete);
    if (gb_watch(f->inner, event, tell, watch, err) < 0) {
        free(watch);
        return -1;
    }
    return 0;
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

static void free_fault(struct fault *f) {
    gb_backend_close(f->inner);
    gb_fault_plan_done(&f->plan);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

static void fault_close(struct gb_backend *be) {
    free_fault(gb_fault_of(be));
}

int gb_fault_open(const char *args, struct gb_backend **ret, char *ret_note, struct gb_error *err) {
    const char *colon = strchr(args, ':');
    char note[GB_BACKEND_NOTE_SIZE] = "";
    struct fault *f;

    if (!colon)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "backend fault: '%.60s' lacks the backend below; the form is fault:RULE[,RULE...]:SPEC",
                            args);
    f = calloc(1, sizeof(*f));
    if (!f)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory for a backend");
    f->base.ops = &fault_ops;
    gb_mutex_init(&f->lock);
    if (gb_fault_plan_init(&f->plan, args, (size_t)(colon - args), err) < 0 ||
        gb_backend_open(colon + 1, &f->inner, note, err) < 0) {
        free_fault(f);
        return -1;
    }
    f->base.domain = f->inner->domain;
    snprintf(ret_note, GB_BACKEND_NOTE_SIZE, "%zu fault rule%s over: %.200s", f->plan.count,
             f->plan.count == 1 ? "" : "s", note);
    *ret = &f->base;
    return 0;
}

/* --- the vtable --------------------------------------------------------------------------------------------------- */

/* Operations made from ops.def. Each applies the rules, then calls the backend below. */

#define LIST(...) __VA_ARGS__

#define MAKE_PASS(name, meet, parameters, arguments)                                                                   \
    static int fault_##name(struct gb_backend *be, LIST parameters, struct gb_error *err) {                            \
        struct fault *f = gb_fault_of(be);                                                                             \
                                                                                                                       \
        return meet < 0 ? -1 : f->inner->ops->name(f->inner, LIST arguments, err);                                     \
    }
#define MAKE_FAILS(name, parameters, arguments)                                                                        \
    MAKE_PASS(name, fault_meet(f, GB_FAULT_##name, err), parameters, arguments)
#define MAKE_STALLS(name, parameters, arguments)                                                                       \
    MAKE_PASS(name, fault_meet_queued(f, GB_FAULT_##name, stream, err), parameters, arguments)
#define MAKE_DELAYS(name, parameters, arguments)                                                                       \
    static void fault_##name(struct gb_backend *be, LIST parameters) {                                                 \
        struct fault *f = gb_fault_of(be);                                                                             \
                                                                                                                       \
        (void)fault_meet(f, GB_FAULT_##name, NULL);                                                                    \
        f->inner->ops->name(f->inner, LIST arguments);                                                                 \
    }
#define MAKE_WRITTEN(name, parameters, arguments)
#define MAKE_TOLD(name, parameters, arguments)

#define GB_FAULT_OP(name, way, call, parameters, arguments) MAKE_##way(name, parameters, arguments)
#include "backend/fault/ops.def"
#undef GB_FAULT_OP

static bool fault_kind_keeps(struct gb_backend *be, enum gb_kind kind) {
    return gb_mem_kind_keeps(gb_fault_of(be)->inner, kind);
}

static int fault_device_count(struct gb_backend *be) {
    return gb_backend_device_count(gb_fault_of(be)->inner);
}

/* import and import_end may be NULL in a backend; see gb_mem_import. */
static int fault_import(struct gb_backend *be, const struct gb_import *what, struct gb_location *ret,
                        struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return fault_meet(f, GB_FAULT_import, err) < 0 ? -1 : gb_mem_import(f->inner, what, ret, err);
}

static int fault_import_end(struct gb_backend *be, const struct gb_location *place, struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return fault_meet(f, GB_FAULT_import_end, err) < 0 ? -1 : gb_mem_import_end(f->inner, place, err);
}

#define SET_FAILS(name) .name = fault_##name,
#define SET_STALLS(name) .name = fault_##name,
#define SET_DELAYS(name) .name = fault_##name,
#define SET_WRITTEN(name) .name = fault_##name,
#define SET_TOLD(name)

static const struct gb_backend_ops fault_ops = {
    .name = "fault",
    .close = fault_close,
    .device_count = fault_device_count,
    .dead = fault_dead,
    .kind_keeps = fault_kind_keeps,
#define GB_FAULT_OP(name, way, call, parameters, arguments) SET_##way(name)
#include "backend/fault/ops.def"
#undef GB_FAULT_OP
};
