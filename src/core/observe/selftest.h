/* The selftest of a device: what copies, allocations and pinning cost on this machine. Included by core.h. */
#ifndef GB_CORE_OBSERVE_SELFTEST_H
#define GB_CORE_OBSERVE_SELFTEST_H

#include "core/public/call.h"

struct gb_core;
struct gb_selftests;

#define GB_SELFTEST_SIZES 5
#define GB_SELFTEST_COPIES (GB_KIND_COUNT * 2 * GB_SELFTEST_SIZES)
#define GB_SELFTEST_ALLOCS 12
#define GB_SELFTEST_WHY sizeof(((struct gb_error *)0)->detail) /* a reason, with its NUL */
#define GB_SELFTEST_S_MAX 60                                   /* what is not measured by then is left out */

/* One line of a table. ns 0: not measured; why says it then. */
struct gb_selftest_copy {
    enum gb_kind kind;
    enum gb_copy_direction direction;
    uint64_t bytes; /* 0: the reason holds for each size */
    uint64_t ns;
    char why[GB_SELFTEST_WHY];
};

enum gb_selftest_case {
    GB_SELFTEST_FIRST, /* the pool grows */
    GB_SELFTEST_AGAIN, /* what was freed is there */
    GB_SELFTEST_BUSY,  /* work is queued on the device */
    GB_SELFTEST_CASES
};

/* Kind DEVICE: from a pool; kind IPC: cudaMalloc and cudaFree. */
struct gb_selftest_alloc {
    enum gb_kind kind;
    enum gb_selftest_case when;
    uint64_t bytes;
    uint64_t alloc_ns;
    uint64_t free_ns;
    char why[GB_SELFTEST_WHY];
};

/* A short copy from the device: alone, and behind earlier copies on its stream. */
struct gb_selftest_wait {
    uint64_t earlier_bytes;
    uint64_t bytes;
    uint64_t alone_ns; /* by a clock around it, as the next one */
    uint64_t seen_ns;
    uint64_t queued_ns;
    uint64_t copied_ns; /* 0: not measured */
    char why[GB_SELFTEST_WHY];
};

struct gb_selftest_pin {
    uint64_t bytes;
    uint64_t pin_ns; /* 0: not measured */
    uint64_t unpin_ns;
    char why[GB_SELFTEST_WHY];
};

struct gb_selftest_call {
    struct gb_call base;
    int device;
    uint64_t took_ns;
    unsigned copies;
    struct gb_selftest_copy copy[GB_SELFTEST_COPIES];
    unsigned allocs;
    struct gb_selftest_alloc alloc[GB_SELFTEST_ALLOCS];
    struct gb_selftest_wait wait;
    struct gb_selftest_pin pin;
};

/* Measures, on a thread for that, with a pool and a stream of its own; nothing is left behind. Takes at most a quarter
 * of the device's free memory for each of two blocks, up to 64 MiB. Selftests of several devices run one after another.
 * Errors: DEVICE_NOT_FOUND; SATURATED while one of that device runs; DRAINING when the daemon stops; those of the
 * backend where nothing could be measured. */
void gb_device_selftest(struct gb_core *core, int device, struct gb_selftest_call *call);

/* [now] Ends the selftest that runs at its next step, and permits no further ones: the daemon stops. */
void gb_selftests_stop(struct gb_core *core);

/* For the core's open and close. NULL when memory is exhausted. */
struct gb_selftests *gb_selftests_new(int devices);
void gb_selftests_free(struct gb_selftests *selftests); /* joins the thread; no selftest runs. NULL is accepted. */

#endif
