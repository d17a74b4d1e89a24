/* The fault decorator: another backend whose named operations fail or are slow, by rules.
 *
 *   fault:RULE[,RULE...]:SPEC      SPEC is any backend specification; no rule at all (fault::host) passes all through
 *   RULE = OP[@N][+]=ERROR         the N-th call of OP since the start fails (N from 1; @N+: from the N-th on; without
 *                                  @N: every call). ERROR is a name of CUDA's in native.def.
 *   RULE = OP[@N][+]=delay/MS      the call is held up for MS milliseconds (at most an hour) and then passes
 *   RULE = OP[@N][+]=stall/MS      of copy, fill, move, box, place_fill: the call returns, but its stream is held up
 *                                  for MS milliseconds before this work
 *
 * OP is one of ops.def. A call that fails has not reached the backend below. `complete@N=ERROR` accepts the N-th watch
 * and calls its function with the error when the event completes; its delay holds up the calling thread. Operations
 * that return nothing can only be delayed. If several rules match a call, all delays and stalls apply, then the first
 * error.
 *
 * An error that kills a device (DEVICE_LOST in native.def) kills this backend. gb_backend_dead() is true from then on,
 * every later call that can fail fails with it, and so do pending watches. This includes device_get, pool_config,
 * pool_stat and event_query. */
#ifndef GB_BACKEND_FAULT_FAULT_H
#define GB_BACKEND_FAULT_FAULT_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "backend/common.h"

enum gb_fault_op {
#define GB_FAULT_OP(name, way, call, parameters, arguments) GB_FAULT_##name,
#include "backend/fault/ops.def"
#undef GB_FAULT_OP
    GB_FAULT_OP_COUNT
};

struct gb_fault_rule {
    enum gb_fault_op op;
    uint64_t first;                 /* counted from 1 */
    uint64_t last;                  /* UINT64_MAX: from first on */
    const struct gb_native *native; /* NULL: a delay */
    uint64_t delay_ms;
    uint64_t stall_ms;
};

/* The rules, and how often each operation was called. */
struct gb_fault_plan {
    struct gb_fault_rule *rules;
    size_t count;
    uint64_t calls[GB_FAULT_OP_COUNT]; /* atomic */
};

/* The rules' verdict on one call. */
struct gb_fault_verdict {
    const struct gb_native *native; /* NULL: the call does not fail */
    uint64_t delay_ms;
    uint64_t stall_ms;
    uint64_t call; /* the call's number, from 1 */
};

/* "alloc", "cudaMallocFromPoolAsync". */
const char *gb_fault_op_name(enum gb_fault_op op);
const char *gb_fault_op_call(enum gb_fault_op op);

/* Parses text[0..len), rules separated by commas. Returns 0, or -1 with INVALID_ARGUMENT saying which rule is wrong and
 * what is permitted. */
int gb_fault_plan_init(struct gb_fault_plan *plan, const char *text, size_t len, struct gb_error *err);
void gb_fault_plan_done(struct gb_fault_plan *plan);

/* Counts a call and gives the verdict on it. [any thread] */
struct gb_fault_verdict gb_fault_plan_call(struct gb_fault_plan *plan, enum gb_fault_op op);

/* The decorator itself. */

struct fault {
    struct gb_backend base;
    struct gb_backend *inner;
    struct gb_fault_plan plan;
    bool dead; /* atomic; set after why */
    pthread_mutex_t lock;
    struct gb_error why; /* what killed it; under lock, never changed once dead */
};

static inline struct fault *gb_fault_of(struct gb_backend *be) {
    return (struct fault *)be;
}

#endif
