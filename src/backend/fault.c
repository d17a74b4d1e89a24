/* The fault decorator: every operation asks the plan first, then goes to the backend below. */
#include "backend/fault.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int gb_fault_open(const char *args, struct gb_backend **ret, char *ret_note, struct gb_error *err);

struct fault {
    struct gb_backend base;
    struct gb_backend *inner;
    const char *domain; /* of the errors: the real backend's name */
    struct gb_fault_plan plan;
    bool dead; /* atomic; set after why */
    pthread_mutex_t lock;
    struct gb_error why; /* what killed it; under lock, never changed once dead */
};

static struct fault *fault_of(struct gb_backend *be) {
    return (struct fault *)be;
}

/* --- verdicts ----------------------------------------------------------------------------------------------------- */

static bool is_dead(struct gb_backend *be, struct gb_error *ret_why) {
    struct fault *f = fault_of(be);

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
    gb_error_native(ret, f->domain, native->number, native->name, gb_fault_op_call(op));
    gb_error_set(ret, native->code, "%s was injected into call %llu of %s", native->name,
                 (unsigned long long)verdict->call, gb_fault_op_name(op));
    if (native->code == GB_ERR_DEVICE_LOST)
        kill_backend(f, ret);
}

/* What the rules want for this call: 0, or -1 with err filled. */
static int meet(struct fault *f, enum gb_fault_op op, struct gb_error *err) {
    struct gb_fault_verdict verdict = gb_fault_plan_call(&f->plan, op);
    struct gb_error made;

    hold_up(verdict.delay_ms);
    if (is_dead(&f->base, &made) || verdict.native) {
        if (!is_dead(&f->base, NULL))
            fill_error(f, op, &verdict, &made);
        if (err && err->code == GB_OK)
            *err = made;
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
    } else if (!error && is_dead(&watch->f->base, &made)) {
        error = &made;
    }
    watch->fn(watch->arg, error);
    free(watch);
}

static int fault_watch(struct gb_backend *be, struct gb_event *event, gb_watch_fn *fn, void *arg,
                       struct gb_error *err) {
    struct fault *f = fault_of(be);
    struct fault_watch *watch;

    if (meet(f, GB_FAULT_watch, err) < 0)
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

/* --- what is only passed on --------------------------------------------------------------------------------------- */

static int device_count(struct gb_backend *be) {
    return gb_backend_device_count(fault_of(be)->inner);
}

static int device_get(struct gb_backend *be, int device, struct gb_device_rec *ret, struct gb_error *err) {
    struct fault *f = fault_of(be);

    return meet(f, GB_FAULT_device_get, err) < 0 ? -1 : gb_backend_device_get(f->inner, device, ret, err);
}

static int pin_alloc(struct gb_backend *be, size_t bytes, void **ret, struct gb_error *err) {
    struct fault *f = fault_of(be);

    return meet(f, GB_FAULT_pin_alloc, err) < 0 ? -1 : gb_pin_alloc(f->inner, bytes, ret, err);
}

static void pin_free(struct gb_backend *be, void *ptr) {
    struct fault *f = fault_of(be);

    (void)meet(f, GB_FAULT_pin_free, NULL);
    gb_pin_free(f->inner, ptr);
}

static int pool_default(struct gb_backend *be, int device, struct gb_pool **ret, struct gb_error *err) {
    struct fault *f = fault_of(be);

    return meet(f, GB_FAULT_pool_default, err) < 0 ? -1 : gb_pool_default(f->inner, device, ret, err);
}

static int pool_create(struct gb_backend *be, int device, const struct gb_pool_config *config, struct gb_pool **ret,
                       struct gb_error *err) {
    struct fault *f = fault_of(be);

    return meet(f, GB_FAULT_pool_create, err) < 0 ? -1 : gb_pool_create(f->inner, device, config, ret, err);
}

static void pool_destroy(struct gb_backend *be, struct gb_pool *pool) {
    struct fault *f = fault_of(be);

    (void)meet(f, GB_FAULT_pool_destroy, NULL);
    gb_pool_destroy(f->inner, pool);
}

static int pool_config(struct gb_backend *be, struct gb_pool *pool, struct gb_pool_config *ret, struct gb_error *err) {
    struct fault *f = fault_of(be);

    return meet(f, GB_FAULT_pool_config, err) < 0 ? -1 : f->inner->ops->pool_config(f->inner, pool, ret, err);
}

static int pool_configure(struct gb_backend *be, struct gb_pool *pool, const struct gb_pool_config *config,
                          struct gb_error *err) {
    struct fault *f = fault_of(be);

    return meet(f, GB_FAULT_pool_configure, err) < 0 ? -1 : gb_pool_configure(f->inner, pool, config, err);
}

static int pool_stat(struct gb_backend *be, struct gb_pool *pool, struct gb_pool_stat *ret, struct gb_error *err) {
    struct fault *f = fault_of(be);

    return meet(f, GB_FAULT_pool_stat, err) < 0 ? -1 : f->inner->ops->pool_stat(f->inner, pool, ret, err);
}

static int pool_reset_peak(struct gb_backend *be, struct gb_pool *pool, struct gb_error *err) {
    struct fault *f = fault_of(be);

    return meet(f, GB_FAULT_pool_reset_peak, err) < 0 ? -1 : gb_pool_reset_peak(f->inner, pool, err);
}

static int pool_trim(struct gb_backend *be, struct gb_pool *pool, uint64_t keep_bytes, struct gb_error *err) {
    struct fault *f = fault_of(be);

    return meet(f, GB_FAULT_pool_trim, err) < 0 ? -1 : gb_pool_trim(f->inner, pool, keep_bytes, err);
}

static int stream_create(struct gb_backend *be, int device, struct gb_stream **ret, struct gb_error *err) {
    struct fault *f = fault_of(be);

    return meet(f, GB_FAULT_stream_create, err) < 0 ? -1 : gb_stream_create(f->inner, device, ret, err);
}

static void stream_destroy(struct gb_backend *be, struct gb_stream *stream) {
    struct fault *f = fault_of(be);

    (void)meet(f, GB_FAULT_stream_destroy, NULL);
    gb_stream_destroy(f->inner, stream);
}

static int stream_sync(struct gb_backend *be, struct gb_stream *stream, struct gb_error *err) {
    struct fault *f = fault_of(be);

    return meet(f, GB_FAULT_stream_sync, err) < 0 ? -1 : gb_stream_sync(f->inner, stream, err);
}

static int stream_wait(struct gb_backend *be, struct gb_stream *stream, struct gb_event *event, struct gb_error *err) {
    struct fault *f = fault_of(be);

    return meet(f, GB_FAULT_stream_wait, err) < 0 ? -1 : gb_stream_wait(f->inner, stream, event, err);
}

static int stream_call(struct gb_backend *be, struct gb_stream *stream, void (*fn)(void *), void *arg,
                       struct gb_error *err) {
    struct fault *f = fault_of(be);

    return meet(f, GB_FAULT_stream_call, err) < 0 ? -1 : gb_stream_call(f->inner, stream, fn, arg, err);
}

static int event_create(struct gb_backend *be, int device, struct gb_event **ret, struct gb_error *err) {
    struct fault *f = fault_of(be);

    return meet(f, GB_FAULT_event_create, err) < 0 ? -1 : gb_event_create(f->inner, device, ret, err);
}

static void event_destroy(struct gb_backend *be, struct gb_event *event) {
    struct fault *f = fault_of(be);

    (void)meet(f, GB_FAULT_event_destroy, NULL);
    gb_event_destroy(f->inner, event);
}

static int event_record(struct gb_backend *be, struct gb_event *event, struct gb_stream *stream, struct gb_error *err) {
    struct fault *f = fault_of(be);

    return meet(f, GB_FAULT_event_record, err) < 0 ? -1 : gb_event_record(f->inner, event, stream, err);
}

static int event_mark(struct gb_backend *be, struct gb_event *event, struct gb_error *err) {
    struct fault *f = fault_of(be);

    return meet(f, GB_FAULT_event_mark, err) < 0 ? -1 : gb_event_mark(f->inner, event, err);
}

static int event_query(struct gb_backend *be, struct gb_event *event, bool *ret_done, struct gb_error *err) {
    struct fault *f = fault_of(be);

    return meet(f, GB_FAULT_event_query, err) < 0 ? -1 : gb_event_query(f->inner, event, ret_done, err);
}

static int event_elapsed(struct gb_backend *be, struct gb_event *start, struct gb_event *end, uint64_t *ret_ns,
                         struct gb_error *err) {
    struct fault *f = fault_of(be);

    return meet(f, GB_FAULT_event_elapsed, err) < 0 ? -1 : gb_event_elapsed(f->inner, start, end, ret_ns, err);
}

static int mem_alloc(struct gb_backend *be, struct gb_pool *pool, struct gb_stream *stream, uint64_t bytes, void **ret,
                     struct gb_error *err) {
    struct fault *f = fault_of(be);

    return meet(f, GB_FAULT_alloc, err) < 0 ? -1 : gb_mem_alloc(f->inner, pool, stream, bytes, ret, err);
}

static int mem_free(struct gb_backend *be, void *ptr, struct gb_stream *stream, struct gb_error *err) {
    struct fault *f = fault_of(be);

    return meet(f, GB_FAULT_free, err) < 0 ? -1 : gb_mem_free(f->inner, ptr, stream, err);
}

static int mem_copy(struct gb_backend *be, void *dst, const void *src, uint64_t bytes, enum gb_copy_direction direction,
                    struct gb_stream *stream, struct gb_error *err) {
    struct fault *f = fault_of(be);

    return meet(f, GB_FAULT_copy, err) < 0 ? -1 : gb_mem_copy(f->inner, dst, src, bytes, direction, stream, err);
}

static int mem_fill(struct gb_backend *be, void *dst, uint64_t pattern, unsigned width, uint64_t count,
                    struct gb_stream *stream, struct gb_error *err) {
    struct fault *f = fault_of(be);

    return meet(f, GB_FAULT_fill, err) < 0 ? -1 : gb_mem_fill(f->inner, dst, pattern, width, count, stream, err);
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

static void fault_free(struct fault *f) {
    gb_backend_close(f->inner);
    gb_fault_plan_done(&f->plan);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

static void fault_close(struct gb_backend *be) {
    fault_free(fault_of(be));
}

static const struct gb_backend_ops fault_ops = {
    .name = "fault",
    .close = fault_close,
    .device_count = device_count,
    .device_get = device_get,
    .dead = is_dead,
    .pin_alloc = pin_alloc,
    .pin_free = pin_free,
    .pool_default = pool_default,
    .pool_create = pool_create,
    .pool_destroy = pool_destroy,
    .pool_config = pool_config,
    .pool_configure = pool_configure,
    .pool_stat = pool_stat,
    .pool_reset_peak = pool_reset_peak,
    .pool_trim = pool_trim,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_sync = stream_sync,
    .stream_wait = stream_wait,
    .stream_call = stream_call,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_mark = event_mark,
    .event_query = event_query,
    .event_elapsed = event_elapsed,
    .watch = fault_watch,
    .alloc = mem_alloc,
    .free = mem_free,
    .copy = mem_copy,
    .fill = mem_fill,
};

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
    pthread_mutex_init(&f->lock, NULL);
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
