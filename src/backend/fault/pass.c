/* The fault decorator's operations, made from ops.def: each asks the plan first, then the backend below. */
#include "backend/fault/internal.h"

#define LIST(...) __VA_ARGS__

#define MAKE_PASS(name, meet, parameters, arguments)                                                                   \
    static int fault_##name(struct gb_backend *be, LIST parameters, struct gb_error *err) {                            \
        struct fault *f = gb_fault_of(be);                                                                             \
                                                                                                                       \
        return meet < 0 ? -1 : f->inner->ops->name(f->inner, LIST arguments, err);                                     \
    }
#define MAKE_FAILS(name, parameters, arguments)                                                                        \
    MAKE_PASS(name, gb_fault_meet(f, GB_FAULT_##name, err), parameters, arguments)
#define MAKE_STALLS(name, parameters, arguments)                                                                       \
    MAKE_PASS(name, gb_fault_meet_queued(f, GB_FAULT_##name, stream, err), parameters, arguments)
#define MAKE_DELAYS(name, parameters, arguments)                                                                       \
    static void fault_##name(struct gb_backend *be, LIST parameters) {                                                 \
        struct fault *f = gb_fault_of(be);                                                                             \
                                                                                                                       \
        (void)gb_fault_meet(f, GB_FAULT_##name, NULL);                                                                 \
        f->inner->ops->name(f->inner, LIST arguments);                                                                 \
    }
#define MAKE_WRITTEN(name, parameters, arguments)
#define MAKE_TOLD(name, parameters, arguments)

#define GB_FAULT_OP(name, way, call, parameters, arguments) MAKE_##way(name, parameters, arguments)
#include "backend/fault/ops.def"
#undef GB_FAULT_OP

static int fault_device_count(struct gb_backend *be) {
    return gb_backend_device_count(gb_fault_of(be)->inner);
}

/* A backend need not import: gb_mem_import says so. */
static int fault_import(struct gb_backend *be, const struct gb_import *what, struct gb_location *ret,
                        struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet(f, GB_FAULT_import, err) < 0 ? -1 : gb_mem_import(f->inner, what, ret, err);
}

static int fault_import_end(struct gb_backend *be, const struct gb_location *place, struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet(f, GB_FAULT_import_end, err) < 0 ? -1 : gb_mem_import_end(f->inner, place, err);
}

#define fault_watch gb_fault_watch

#define SET_FAILS(name) .name = fault_##name,
#define SET_STALLS(name) .name = fault_##name,
#define SET_DELAYS(name) .name = fault_##name,
#define SET_WRITTEN(name) .name = fault_##name,
#define SET_TOLD(name)

static const struct gb_backend_ops fault_ops = {
    .name = "fault",
    .close = gb_fault_close,
    .device_count = fault_device_count,
    .dead = gb_fault_dead,
#define GB_FAULT_OP(name, way, call, parameters, arguments) SET_##way(name)
#include "backend/fault/ops.def"
#undef GB_FAULT_OP
};

const struct gb_backend_ops *gb_fault_ops(void) {
    return &fault_ops;
}
