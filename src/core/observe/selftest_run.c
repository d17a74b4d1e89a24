#include "core/observe/selftest_run.h"

#include <stdio.h>

#include "base/clock.h"
#include "core/observe/probe.h"

#define TIMES 5
#define EARLIER_COPIES 8
#define SHORT_BYTES 59400u
#define LONG_BYTES 1980000u
#define CHECK_BYTES (1u << 20)

/* The second and the fourth are those of a puzzle in doc/memory.md. */
static const uint64_t sizes[GB_SELFTEST_SIZES] = {4096, SHORT_BYTES, 1u << 20, LONG_BYTES, 64u << 20};

struct run {
    struct gb_probe probe;
    const atomic_bool *stop;
    uint64_t end_ns;
    uint64_t largest; /* the bytes of device and other */
    struct gb_probe_memory device;
    struct gb_probe_memory check;
    char no_host[GB_SELFTEST_WHY]; /* why there is no pinned block for the case BUSY */
    struct gb_selftest_call *call;
};

/* --- what there is room and time for ------------------------------------------------------------------------------ */

/* Of which four fit: two blocks, and as much again for others. */
static uint64_t largest(const struct gb_device_rec *rec) {
    uint64_t bytes = rec->free_bytes / 4;

    if (bytes > sizes[GB_SELFTEST_SIZES - 1])
        bytes = sizes[GB_SELFTEST_SIZES - 1];
    return bytes < sizes[0] ? sizes[0] : bytes - bytes % sizes[0];
}

static bool over(const struct run *run) {
    return atomic_load(run->stop) || gb_clock_ns() >= run->end_ns;
}

/* Why nothing of that kind and size is measured. False: it can be. */
static bool left_out(const struct run *run, enum gb_kind kind, uint64_t bytes, char why[GB_SELFTEST_WHY]) {
    if (run->probe.rec.kind_missing[kind][0] != '\0')
        snprintf(why, GB_SELFTEST_WHY, "%s", run->probe.rec.kind_missing[kind]);
    else if (bytes > run->largest)
        snprintf(why, GB_SELFTEST_WHY, "the device has only %llu free bytes",
                 (unsigned long long)run->probe.rec.free_bytes);
    else if (over(run))
        snprintf(why, GB_SELFTEST_WHY, "the selftest's %d seconds were over", GB_SELFTEST_S_MAX);
    else
        return false;
    return true;
}

static void explain(const struct gb_error *error, char why[GB_SELFTEST_WHY]) {
    snprintf(why, GB_SELFTEST_WHY, "%s", error->detail);
}

/* --- copies ------------------------------------------------------------------------------------------------------- */

static struct gb_selftest_copy *add_copy(struct run *run, enum gb_kind kind, enum gb_copy_direction direction,
                                         uint64_t bytes) {
    struct gb_selftest_copy *copy = &run->call->copy[run->call->copies++];

    *copy = (struct gb_selftest_copy){.kind = kind, .direction = direction, .bytes = bytes};
    return copy;
}

static void measure_copy(struct run *run, const struct gb_probe_memory *other, struct gb_selftest_copy *copy) {
    struct gb_error err = GB_ERROR_INIT;
    bool from = copy->direction == GB_COPY_FROM_DEVICE;

    if (left_out(run, copy->kind, copy->bytes, copy->why))
        return;
    if (gb_probe_copy(&run->probe, from ? other : &run->device, from ? &run->device : other, &run->check, copy->bytes,
                      &copy->ns, &err) < 0)
        explain(&err, copy->why);
}

static void measure_sizes(struct run *run, const struct gb_probe_memory *other, enum gb_kind kind) {
    enum gb_copy_direction direction = kind == GB_KIND_DEVICE ? GB_COPY_ON_DEVICE : GB_COPY_TO_DEVICE;
    enum gb_copy_direction last = kind == GB_KIND_DEVICE ? GB_COPY_ON_DEVICE : GB_COPY_FROM_DEVICE;
    int i;

    for (; direction <= last; direction++) {
        for (i = 0; i < GB_SELFTEST_SIZES; i++)
            measure_copy(run, other, add_copy(run, kind, direction, sizes[i]));
    }
}

static void measure_kind(struct run *run, enum gb_kind kind) {
    struct gb_probe_memory other = {0};
    struct gb_error err = GB_ERROR_INIT;
    char why[GB_SELFTEST_WHY];

    if (!left_out(run, kind, run->largest, why)) {
        if (gb_probe_alloc(&run->probe, kind, run->largest, &other, &err) == 0) {
            measure_sizes(run, &other, kind);
            gb_probe_free(&run->probe, &other);
            return;
        }
        explain(&err, why);
    }
    snprintf(add_copy(run, kind, kind == GB_KIND_DEVICE ? GB_COPY_ON_DEVICE : GB_COPY_TO_DEVICE, 0)->why,
             GB_SELFTEST_WHY, "%s", why);
}

/* --- waiting ------------------------------------------------------------------------------------------------------ */

/* The first copy of the new memory makes its pages. */
static void measure_wait(struct run *run) {
    struct gb_selftest_wait *ret = &run->call->wait;
    struct gb_probe_wait alone = {0};
    struct gb_probe_wait behind = {0};
    struct gb_probe_memory host = {0};
    struct gb_error err = GB_ERROR_INIT;

    if (left_out(run, GB_KIND_PINNED, SHORT_BYTES, ret->why))
        return;
    if (gb_probe_alloc(&run->probe, GB_KIND_PINNED, run->largest, &host, &err) == 0 &&
        gb_probe_queue(&run->probe, &run->device, &host, SHORT_BYTES, 0, &alone, &err) == 0 &&
        gb_probe_queue(&run->probe, &run->device, &host, SHORT_BYTES, 0, &alone, &err) == 0 &&
        gb_probe_queue(&run->probe, &run->device, &host, SHORT_BYTES, EARLIER_COPIES, &behind, &err) == 0)
        *ret = (struct gb_selftest_wait){.earlier_bytes = behind.earlier_bytes,
                                         .bytes = behind.bytes,
                                         .alone_ns = alone.seen_ns,
                                         .seen_ns = behind.seen_ns,
                                         .queued_ns = behind.queued_ns,
                                         .copied_ns = behind.copied_ns > 0 ? behind.copied_ns : 1};
    else
        explain(&err, ret->why);
    gb_probe_free(&run->probe, &host);
}

/* --- allocation --------------------------------------------------------------------------------------------------- */

/* A block, by the CPU's clock around the calls. What is freed is not waited for. */
static int time_block(struct gb_probe *probe, enum gb_kind kind, uint64_t bytes, uint64_t *ret_alloc_ns,
                      uint64_t *ret_free_ns, struct gb_error *err) {
    struct gb_location place = {.kind = kind, .device = probe->rec.index};
    uint64_t began_ns = gb_clock_ns();
    uint64_t there_ns;
    int r;

    if (kind == GB_KIND_DEVICE)
        r = gb_mem_alloc(probe->be, probe->pool, probe->stream, bytes, &place.ptr, err);
    else
        r = gb_mem_kind_alloc(probe->be, probe->rec.index, kind, bytes, &place.ptr, err);
    there_ns = gb_clock_ns();
    if (r < 0)
        return -1;
    if (kind == GB_KIND_DEVICE)
        r = gb_mem_free(probe->be, place.ptr, probe->stream, err);
    else
        r = gb_mem_kind_free(probe->be, &place, bytes, err);
    *ret_free_ns = gb_clock_ns() - there_ns;
    *ret_alloc_ns = there_ns - began_ns > 0 ? there_ns - began_ns : 1;
    return r;
}

static int time_again(struct gb_probe *probe, struct gb_selftest_alloc *alloc, struct gb_error *err) {
    uint64_t alloc_ns[TIMES];
    uint64_t free_ns[TIMES];
    int i;

    for (i = 0; i < TIMES; i++) {
        if (time_block(probe, alloc->kind, alloc->bytes, &alloc_ns[i], &free_ns[i], err) < 0)
            return -1;
    }
    alloc->alloc_ns = gb_probe_median(alloc_ns, TIMES);
    alloc->free_ns = gb_probe_median(free_ns, TIMES);
    return 0;
}

static int keep_busy(const struct run *run, struct gb_probe *probe, const struct gb_probe_memory *host,
                     struct gb_error *err) {
    enum gb_copy_way way;
    int i;

    for (i = 0; i < EARLIER_COPIES; i++) {
        if (gb_mem_move(probe->be, &run->device.place, &host->place, run->device.bytes, probe->stream, &way, err) < 0)
            return -1;
    }
    return 0;
}

static void measure_alloc(struct run *run, struct gb_probe *probe, const struct gb_probe_memory *host,
                          struct gb_selftest_alloc *alloc) {
    struct gb_error err = GB_ERROR_INIT;
    int r;

    if (left_out(run, alloc->kind, alloc->bytes, alloc->why))
        return;
    if (alloc->when == GB_SELFTEST_BUSY && !host->place.ptr) {
        snprintf(alloc->why, sizeof(alloc->why), "%s", run->no_host);
        return;
    }
    if (alloc->when == GB_SELFTEST_AGAIN) {
        r = time_again(probe, alloc, &err);
    } else {
        r = alloc->when == GB_SELFTEST_BUSY ? keep_busy(run, probe, host, &err) : 0;
        if (r == 0)
            r = time_block(probe, alloc->kind, alloc->bytes, &alloc->alloc_ns, &alloc->free_ns, &err);
    }
    gb_stream_sync(probe->be, probe->stream, NULL);
    if (r < 0)
        explain(&err, alloc->why);
}

/* Each kind and size with a pool that has nothing yet. */
static int measure_allocs_of(struct run *run, enum gb_kind kind, uint64_t bytes, const struct gb_probe_memory *host,
                             struct gb_error *err) {
    struct gb_probe probe;
    int when;

    if (gb_probe_init(&probe, run->probe.be, run->probe.rec.index, err) < 0)
        return -1;
    for (when = 0; when < GB_SELFTEST_CASES; when++) {
        struct gb_selftest_alloc *alloc = &run->call->alloc[run->call->allocs++];

        *alloc = (struct gb_selftest_alloc){.kind = kind, .when = (enum gb_selftest_case)when, .bytes = bytes};
        measure_alloc(run, &probe, host, alloc);
    }
    gb_probe_done(&probe);
    return 0;
}

static int measure_allocs(struct run *run, struct gb_error *err) {
    const uint64_t blocks[] = {LONG_BYTES, 64u << 20};
    struct gb_probe_memory host = {0};
    struct gb_error why = GB_ERROR_INIT;
    int r = 0;
    unsigned i;

    if (gb_probe_alloc(&run->probe, GB_KIND_PINNED, run->largest, &host, &why) < 0)
        explain(&why, run->no_host);

    for (i = 0; i < 2 && r == 0; i++) {
        r = measure_allocs_of(run, GB_KIND_DEVICE, blocks[i], &host, err);
        if (r == 0)
            r = measure_allocs_of(run, GB_KIND_IPC, blocks[i], &host, err);
    }
    gb_probe_free(&run->probe, &host);
    return r;
}

static void measure_pin(struct run *run) {
    struct gb_selftest_pin *pin = &run->call->pin;
    struct gb_error err = GB_ERROR_INIT;

    pin->bytes = run->largest;
    if (!left_out(run, GB_KIND_PINNED, pin->bytes, pin->why) &&
        time_block(&run->probe, GB_KIND_PINNED, pin->bytes, &pin->pin_ns, &pin->unpin_ns, &err) < 0)
        explain(&err, pin->why);
}

/* --- all of it ---------------------------------------------------------------------------------------------------- */

static int measure(struct run *run, struct gb_error *err) {
    int kind;

    if (gb_probe_alloc(&run->probe, gb_probe_device_kind(&run->probe), run->largest, &run->device, err) < 0 ||
        gb_probe_alloc(&run->probe, GB_KIND_PINNED, CHECK_BYTES, &run->check, err) < 0)
        return -1;
    for (kind = 0; kind < GB_KIND_COUNT; kind++)
        measure_kind(run, (enum gb_kind)kind);
    measure_wait(run);
    measure_pin(run);
    return measure_allocs(run, err);
}

int gb_selftest_run(struct gb_backend *be, struct gb_pinned *pinned, const atomic_bool *stop,
                    struct gb_selftest_call *call, struct gb_error *err) {
    uint64_t began_ns = gb_clock_ns();
    struct run run = {.stop = stop, .end_ns = began_ns + GB_SELFTEST_S_MAX * GB_NS_PER_S, .call = call};
    int r;

    if (gb_probe_init(&run.probe, be, call->device, err) < 0)
        return -1;
    run.probe.pinned = pinned;
    run.largest = largest(&run.probe.rec);
    r = measure(&run, err);
    gb_probe_free(&run.probe, &run.check);
    gb_probe_free(&run.probe, &run.device);
    gb_probe_done(&run.probe);
    call->took_ns = gb_clock_ns() - began_ns;
    if (r == 0 && atomic_load(stop))
        r = gb_error_set(err, GB_ERR_DRAINING, "the daemon is stopping");
    return r;
}
