/* The fault decorator: opening, verdicts, watches. */
#include "backend/fault/internal.h"
#include "base/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int gb_fault_open(const char *args, struct gb_backend **ret, char *ret_note, struct gb_error *err);

/* --- verdicts ----------------------------------------------------------------------------------------------------- */

bool gb_fault_dead(struct gb_backend *be, struct gb_error *ret_why) {
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
    gb_error_native_told(ret, f->domain, native->number, native->name, gb_fault_op_call(op), native->text);
    gb_error_set(ret, native->code, "%s was injected into call %llu of %s", native->name,
                 (unsigned long long)verdict->call, gb_fault_op_name(op));
    if (native->code == GB_ERR_DEVICE_LOST)
        kill_backend(f, ret);
}

static int obey(struct fault *f, enum gb_fault_op op, const struct gb_fault_verdict *verdict, struct gb_error *err) {
    struct gb_error made;

    hold_up(verdict->delay_ms);
    if (gb_fault_dead(&f->base, &made) || verdict->native) {
        if (!gb_fault_dead(&f->base, NULL))
            fill_error(f, op, verdict, &made);
        return gb_error_move(err, &made);
    }
    return 0;
}

int gb_fault_meet(struct fault *f, enum gb_fault_op op, struct gb_error *err) {
    struct gb_fault_verdict verdict = gb_fault_plan_call(&f->plan, op);

    return obey(f, op, &verdict, err);
}

static void stall(void *arg) {
    uint64_t *stall_ms = arg;

    hold_up(*stall_ms);
    free(stall_ms);
}

int gb_fault_meet_queued(struct fault *f, enum gb_fault_op op, struct gb_stream *stream, struct gb_error *err) {
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

struct fault_watch {
    struct fault *f;
    struct gb_fault_verdict verdict;
    gb_watch_fn *fn;
    void *arg;
};

static void tell(void *arg, const struct gb_error *error) {
    struct fault_watch *watch = arg;
    struct gb_error made;

    hold_up(watch->verdict.delay_ms);
    if (!error && watch->verdict.native) {
        fill_error(watch->f, GB_FAULT_complete, &watch->verdict, &made);
        error = &made;
    } else if (!error && gb_fault_dead(&watch->f->base, &made)) {
        error = &made;
    }
    watch->fn(watch->arg, error);
    free(watch);
}

int gb_fault_watch(struct gb_backend *be, struct gb_event *event, gb_watch_fn *fn, void *arg, struct gb_error *err) {
    struct fault *f = gb_fault_of(be);
    struct fault_watch *watch;

    if (gb_fault_meet(f, GB_FAULT_watch, err) < 0)
        return -1;
    watch = calloc(1, sizeof(*watch));
    if (!watch)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory for a watch");
    *watch = (struct fault_watch){.f = f, .fn = fn, .arg = arg};
    watch->verdict = gb_fault_plan_call(&f->plan, GB_FAULT_complete);
    if (gb_watch(f->inner, event, tell, watch, err) < 0) {
        free(watch);
        return -1;
    }
    return 0;
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

static void fault_free(struct fault *f) {
    gb_backend_close(f->inner);
    gb_fault_plan_done(&f->plan);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

void gb_fault_close(struct gb_backend *be) {
    fault_free(gb_fault_of(be));
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
    f->base.ops = gb_fault_ops();
    gb_mutex_init(&f->lock);
    if (gb_fault_plan_init(&f->plan, args, (size_t)(colon - args), err) < 0 ||
        gb_backend_open(colon + 1, &f->inner, note, err) < 0) {
        fault_free(f);
        return -1;
    }
    f->domain = strcmp(gb_backend_name(f->inner), "fault") == 0 ? ((struct fault *)f->inner)->domain
                                                                : gb_backend_name(f->inner);
    snprintf(ret_note, GB_BACKEND_NOTE_SIZE, "%zu fault rule%s over: %.200s", f->plan.count,
             f->plan.count == 1 ? "" : "s", note);
    *ret = &f->base;
    return 0;
}
