/* The selftest of a device: what copies, allocations and pinning cost on this machine. Runs of several devices come one
 * after the other on a thread for them, and leave nothing behind. Handlers call this. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/thread.h"
#include "core/public/observe.h"
#include "core/runtime/runtime.h"
#include "core/util/staging.h"

/* Probes: how fast each kind of memory is copied on this machine, and whether the bytes arrive. They need a backend and
 * no core. */

/* One device under test. Zero-initialised is accepted by probe_done. */
struct gb_probe {
    struct gb_backend *be;
    struct gb_device_rec rec;
    struct gb_pool *pool; /* its own; NULL: the device has none */
    struct gb_stream *stream;
    struct gb_event *asked; /* the moment when a copy was asked for */
    struct gb_event *start;
    struct gb_event *end;
    struct gb_pinned *pinned; /* borrowed: page-locked memory counts there; NULL: nowhere. Set after probe_init */
    uint64_t pattern;         /* other bytes for each measurement */
};

/* Memory of one kind, and how much of it. */
struct gb_probe_memory {
    struct gb_location place; /* ptr NULL: none */
    uint64_t bytes;
};

/* One copy behind work that was queued before it, on one stream, in nanoseconds. */
struct gb_probe_wait {
    uint64_t earlier_bytes;
    uint64_t bytes;
    uint64_t seen_ns;   /* a clock of the CPU around the copy */
    uint64_t queued_ns; /* it waited behind the earlier work */
    uint64_t copied_ns; /* it took */
};

/* --- probe -------------------------------------------------------------------------------------------------------- */

/* A probe measures copies with the device's own clock. */

#define TIMES 5

/* The kind of the device's memory in copies: memory of cudaMalloc if the device has no pools. */
static enum gb_kind probe_device_kind(const struct gb_probe *probe) {
    return probe->rec.kind_missing[GB_KIND_DEVICE][0] == '\0' ? GB_KIND_DEVICE
           : probe->rec.kind_missing[GB_KIND_IPC][0] == '\0'  ? GB_KIND_IPC
                                                              : GB_KIND_MANAGED;
}

static void probe_done(struct gb_probe *probe) {
    if (!probe->be)
        return;
    gb_event_destroy(probe->be, probe->end);
    gb_event_destroy(probe->be, probe->start);
    gb_event_destroy(probe->be, probe->asked);
    gb_stream_destroy(probe->be, probe->stream);
    gb_pool_destroy(probe->be, probe->pool);
    *probe = (struct gb_probe){0};
}

static int probe_init(struct gb_probe *probe, struct gb_backend *be, int device, struct gb_error *err) {
    const struct gb_pool_config config = {.release_threshold_bytes = GB_UNLIMITED,
                                          .follow_event_dependencies = true,
                                          .allow_opportunistic = true,
                                          .allow_internal_dependencies = true};

    *probe = (struct gb_probe){.be = be, .pattern = 0x0123456789abcdef};
    if (gb_backend_device_get(be, device, &probe->rec, err) < 0 ||
        (probe_device_kind(probe) == GB_KIND_DEVICE && gb_pool_create(be, device, &config, &probe->pool, err) < 0) ||
        gb_stream_create(be, device, &probe->stream, err) < 0 || gb_event_create(be, device, &probe->asked, err) < 0 ||
        gb_event_create(be, device, &probe->start, err) < 0 || gb_event_create(be, device, &probe->end, err) < 0) {
        probe_done(probe);
        return -1;
    }
    return 0;
}

/* Blocks. memory is written on success only. */
static int probe_alloc(struct gb_probe *probe, enum gb_kind kind, uint64_t bytes, struct gb_probe_memory *memory,
                       struct gb_error *err) {
    struct gb_probe_memory m = {.place = {.kind = kind, .device = probe->rec.index}, .bytes = bytes};
    bool counts = kind == GB_KIND_PINNED && probe->pinned;
    int r;

    if (counts && gb_pinned_take(probe->pinned, bytes, err) < 0)
        return -1;
    if (kind == GB_KIND_DEVICE)
        r = gb_mem_alloc(probe->be, probe->pool, probe->stream, bytes, &m.place.ptr, err);
    else
        r = gb_mem_kind_alloc(probe->be, probe->rec.index, kind, bytes, &m.place.ptr, err);
    if (r == 0)
        *memory = m;
    else if (counts)
        gb_pinned_give(probe->pinned, bytes);
    return r;
}

/* Frees the memory. An empty one is accepted. */
static void probe_free(struct gb_probe *probe, struct gb_probe_memory *memory) {
    if (!memory->place.ptr)
        return;
    gb_stream_sync(probe->be, probe->stream, NULL);
    if (memory->place.kind == GB_KIND_DEVICE)
        gb_mem_free(probe->be, memory->place.ptr, probe->stream, NULL);
    else
        gb_mem_kind_free(probe->be, &memory->place, memory->bytes, NULL);
    if (memory->place.kind == GB_KIND_PINNED && probe->pinned)
        gb_pinned_give(probe->pinned, memory->bytes);
    *memory = (struct gb_probe_memory){0};
}

static int by_size(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* The middle one of n times, which are sorted. */
static uint64_t probe_median(uint64_t *ns, size_t n) {
    qsort(ns, n, sizeof(ns[0]), by_size);
    return ns[n / 2] > 0 ? ns[n / 2] : 1;
}

static int copy_once(struct gb_probe *probe, const struct gb_probe_memory *dst, const struct gb_probe_memory *src,
                     uint64_t bytes, uint64_t *ret_ns, struct gb_error *err) {
    struct gb_backend *be = probe->be;
    enum gb_copy_way way;

    /* Managed pages lie where they were used last: on the CPU's side, as after a program filled them. */
    if (gb_mem_prefetch(be, &src->place, bytes, true, probe->stream, err) < 0 ||
        gb_mem_prefetch(be, &dst->place, bytes, true, probe->stream, err) < 0 ||
        gb_stream_sync(be, probe->stream, err) < 0 || gb_event_record(be, probe->start, probe->stream, err) < 0 ||
        gb_mem_move(be, &dst->place, &src->place, bytes, probe->stream, &way, err) < 0 ||
        gb_event_record(be, probe->end, probe->stream, err) < 0 || gb_stream_sync(be, probe->stream, err) < 0)
        return -1;
    return gb_event_elapsed(be, probe->start, probe->end, ret_ns, err);
}

static int look_at_piece(struct gb_probe *probe, struct gb_location from, const struct gb_probe_memory *check,
                         uint64_t bytes, struct gb_error *err) {
    const uint64_t *words = check->place.ptr;
    enum gb_copy_way way;
    uint64_t i;

    memset(check->place.ptr, 0, bytes);
    if (gb_mem_move(probe->be, &check->place, &from, bytes, probe->stream, &way, err) < 0 ||
        gb_stream_sync(probe->be, probe->stream, err) < 0)
        return -1;
    for (i = 0; i < bytes / sizeof(*words); i++) {
        if (words[i] != probe->pattern)
            return gb_error_set(err, GB_ERR_INTERNAL, "bytes of a copy arrived wrong");
    }
    return 0;
}

/* The bytes, by way of memory that the CPU reads. */
static int look(struct gb_probe *probe, const struct gb_probe_memory *dst, const struct gb_probe_memory *check,
                uint64_t bytes, struct gb_error *err) {
    uint64_t at;
    uint64_t n;

    for (at = 0; at < bytes; at += n) {
        struct gb_location from = dst->place;

        from.ptr = (char *)from.ptr + at;
        n = bytes - at < check->bytes ? bytes - at : check->bytes;
        if (look_at_piece(probe, from, check, n, err) < 0)
            return -1;
    }
    return 0;
}

/* Copies several times and looks at the bytes afterwards. bytes: a multiple of 8. *ret_ns: the median by the device's
 * clock. INTERNAL when bytes arrive wrong. check: pinned memory, through which they are looked at piece by piece. */
static int probe_copy(struct gb_probe *probe, const struct gb_probe_memory *dst, const struct gb_probe_memory *src,
                      const struct gb_probe_memory *check, uint64_t bytes, uint64_t *ret_ns, struct gb_error *err) {
    uint64_t ns[TIMES];
    uint64_t first;
    int i;

    probe->pattern += 0x1111111111111111;
    if (gb_location_fill(probe->be, &src->place, probe->pattern, 8, bytes / 8, probe->stream, err) < 0 ||
        gb_location_fill(probe->be, &dst->place, 0, 8, bytes / 8, probe->stream, err) < 0 ||
        copy_once(probe, dst, src, bytes, &first, err) < 0) /* pages and paths are made */
        return -1;
    for (i = 0; i < TIMES; i++) {
        if (copy_once(probe, dst, src, bytes, &ns[i], err) < 0)
            return -1;
    }
    if (look(probe, dst, check, bytes, err) < 0)
        return -1;
    *ret_ns = probe_median(ns, TIMES);
    return 0;
}

/* A copy of `bytes` from device memory into host behind `copies` copies of host to device. */
static int probe_queue(struct gb_probe *probe, const struct gb_probe_memory *device, const struct gb_probe_memory *host,
                       uint64_t bytes, unsigned copies, struct gb_probe_wait *ret, struct gb_error *err) {
    struct gb_backend *be = probe->be;
    enum gb_copy_way way;
    uint64_t began_ns;
    unsigned i;

    if (gb_stream_sync(be, probe->stream, err) < 0)
        return -1;
    for (i = 0; i < copies; i++) {
        if (gb_mem_move(be, &device->place, &host->place, device->bytes, probe->stream, &way, err) < 0)
            return -1;
    }
    began_ns = gb_clock_ns();
    if (gb_event_mark(be, probe->asked, err) < 0 || gb_event_record(be, probe->start, probe->stream, err) < 0 ||
        gb_mem_move(be, &host->place, &device->place, bytes, probe->stream, &way, err) < 0 ||
        gb_event_record(be, probe->end, probe->stream, err) < 0 || gb_stream_sync(be, probe->stream, err) < 0)
        return -1;
    ret->seen_ns = gb_clock_ns() - began_ns;
    ret->earlier_bytes = device->bytes * copies;
    ret->bytes = bytes;
    if (gb_event_elapsed(be, probe->asked, probe->start, &ret->queued_ns, err) < 0)
        return -1;
    return gb_event_elapsed(be, probe->start, probe->end, &ret->copied_ns, err);
}

/* --- selftest run ------------------------------------------------------------------------------------------------- */

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
    if (probe_copy(&run->probe, from ? other : &run->device, from ? &run->device : other, &run->check, copy->bytes,
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
        if (probe_alloc(&run->probe, kind, run->largest, &other, &err) == 0) {
            measure_sizes(run, &other, kind);
            probe_free(&run->probe, &other);
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
    if (probe_alloc(&run->probe, GB_KIND_PINNED, run->largest, &host, &err) == 0 &&
        probe_queue(&run->probe, &run->device, &host, SHORT_BYTES, 0, &alone, &err) == 0 &&
        probe_queue(&run->probe, &run->device, &host, SHORT_BYTES, 0, &alone, &err) == 0 &&
        probe_queue(&run->probe, &run->device, &host, SHORT_BYTES, EARLIER_COPIES, &behind, &err) == 0)
        *ret = (struct gb_selftest_wait){.earlier_bytes = behind.earlier_bytes,
                                         .bytes = behind.bytes,
                                         .alone_ns = alone.seen_ns,
                                         .seen_ns = behind.seen_ns,
                                         .queued_ns = behind.queued_ns,
                                         .copied_ns = behind.copied_ns > 0 ? behind.copied_ns : 1};
    else
        explain(&err, ret->why);
    probe_free(&run->probe, &host);
}

/* --- allocation --------------------------------------------------------------------------------------------------- */

/* Measures an allocation by the CPU's clock. Does not wait for the free. */
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
    alloc->alloc_ns = probe_median(alloc_ns, TIMES);
    alloc->free_ns = probe_median(free_ns, TIMES);
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

    if (probe_init(&probe, run->probe.be, run->probe.rec.index, err) < 0)
        return -1;
    for (when = 0; when < GB_SELFTEST_CASES; when++) {
        struct gb_selftest_alloc *alloc = &run->call->alloc[run->call->allocs++];

        *alloc = (struct gb_selftest_alloc){.kind = kind, .when = (enum gb_selftest_case)when, .bytes = bytes};
        measure_alloc(run, &probe, host, alloc);
    }
    probe_done(&probe);
    return 0;
}

static int measure_allocs(struct run *run, struct gb_error *err) {
    const uint64_t blocks[] = {LONG_BYTES, 64u << 20};
    struct gb_probe_memory host = {0};
    struct gb_error why = GB_ERROR_INIT;
    int r = 0;
    unsigned i;

    if (probe_alloc(&run->probe, GB_KIND_PINNED, run->largest, &host, &why) < 0)
        explain(&why, run->no_host);

    for (i = 0; i < 2 && r == 0; i++) {
        r = measure_allocs_of(run, GB_KIND_DEVICE, blocks[i], &host, err);
        if (r == 0)
            r = measure_allocs_of(run, GB_KIND_IPC, blocks[i], &host, err);
    }
    probe_free(&run->probe, &host);
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

    if (probe_alloc(&run->probe, probe_device_kind(&run->probe), run->largest, &run->device, err) < 0 ||
        probe_alloc(&run->probe, GB_KIND_PINNED, CHECK_BYTES, &run->check, err) < 0)
        return -1;
    for (kind = 0; kind < GB_KIND_COUNT; kind++)
        measure_kind(run, (enum gb_kind)kind);
    measure_wait(run);
    measure_pin(run);
    return measure_allocs(run, err);
}

/* Measures the device call->device. Blocks. Between two measurements it looks at *stop: DRAINING. Returns 0, or -1
 * where nothing could be measured. Page-locked memory counts in pinned. */
static int gb_selftest_run(struct gb_backend *be, struct gb_pinned *pinned, const atomic_bool *stop,
                           struct gb_selftest_call *call, struct gb_error *err) {
    uint64_t began_ns = gb_clock_ns();
    struct run run = {.stop = stop, .end_ns = began_ns + GB_SELFTEST_S_MAX * GB_NS_PER_S, .call = call};
    int r;

    if (probe_init(&run.probe, be, call->device, err) < 0)
        return -1;
    run.probe.pinned = pinned;
    run.largest = largest(&run.probe.rec);
    r = measure(&run, err);
    probe_free(&run.probe, &run.check);
    probe_free(&run.probe, &run.device);
    probe_done(&run.probe);
    call->took_ns = gb_clock_ns() - began_ns;
    if (r == 0 && atomic_load(stop))
        r = gb_error_set(err, GB_ERR_DRAINING, "the daemon is stopping");
    return r;
}

/* --- selftest ----------------------------------------------------------------------------------------------------- */

/* When selftests run: one after another, on a lane of their own that the first one starts. */

struct gb_selftests {
    pthread_mutex_t lock; /* for running */
    atomic_bool over;     /* the daemon stops */
    struct gb_lane lane;
    bool running[]; /* or queued, of each device */
};

struct selftest {
    struct gb_task task;
    struct gb_core *core;
    struct gb_selftest_call *call;
};

struct gb_selftests *gb_selftests_new(int devices) {
    struct gb_selftests *selftests = calloc(1, sizeof(*selftests) + (size_t)devices * sizeof(selftests->running[0]));

    if (selftests)
        gb_mutex_init(&selftests->lock);
    return selftests;
}

void gb_selftests_free(struct gb_selftests *selftests) {
    if (!selftests)
        return;
    gb_lane_done(&selftests->lane);
    pthread_mutex_destroy(&selftests->lock);
    free(selftests);
}

void gb_selftests_stop(struct gb_core *core) {
    if (core->selftests)
        atomic_store(&core->selftests->over, true);
}

static void leave(struct gb_core *core, int device) {
    pthread_mutex_lock(&core->selftests->lock);
    core->selftests->running[device] = false;
    pthread_mutex_unlock(&core->selftests->lock);
}

static void selftest_run(struct gb_task *task) {
    struct selftest *test = gb_container_of(task, struct selftest, task);
    struct gb_core *core = test->core;
    struct gb_selftest_call *call = test->call;
    struct gb_error err = GB_ERROR_INIT;
    int r = gb_core_alive(core, &err);

    if (r == 0)
        r = gb_selftest_run(core->backend, &core->pinned, &core->selftests->over, call, &err);
    free(test);
    leave(core, call->device);
    gb_core_report_error(core, r < 0 ? &err : NULL);
    gb_call_finish(&call->base, r < 0 ? &err : NULL);
    gb_core_leave(core);
}

static int enter_locked(struct gb_selftests *selftests, int device, struct gb_error *err) {
    if (atomic_load(&selftests->over))
        return gb_error_set(err, GB_ERR_DRAINING, "the daemon is stopping");
    if (selftests->running[device])
        return gb_error_set(err, GB_ERR_SATURATED, "a selftest of device %d is running; ask again when it has ended",
                            device);
    if (!selftests->lane.started && gb_lane_init(&selftests->lane, "gb-selftest", gb_lane_no_more, NULL, err) < 0)
        return -1;
    selftests->running[device] = true;
    return 0;
}

static int enter(struct gb_core *core, int device, struct gb_error *err) {
    int r;

    if (device < 0 || device >= core->device_count)
        return gb_error_set(err, GB_ERR_DEVICE_NOT_FOUND, "there is no device %d; there are %d", device,
                            core->device_count);
    if (gb_core_alive(core, err) < 0)
        return -1;
    pthread_mutex_lock(&core->selftests->lock);
    r = enter_locked(core->selftests, device, err);
    pthread_mutex_unlock(&core->selftests->lock);
    return r;
}

void gb_device_selftest(struct gb_core *core, int device, struct gb_selftest_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct selftest *test = calloc(1, sizeof(*test));
    int r = test ? enter(core, device, &err) : gb_no_memory(&err);

    if (r < 0) {
        free(test);
        gb_call_finish(&call->base, &err);
        return;
    }
    call->device = device;
    *test = (struct selftest){.task.run = selftest_run, .core = core, .call = call};
    gb_core_enter(core);
    gb_lane_post(&core->selftests->lane, &test->task);
}
