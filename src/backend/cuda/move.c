/* Copies and fills of the CUDA backend between places of any kind, and the work that the CPU does for them in a
 * stream's order. No call waits for the stream. cuda.c puts the functions into the vtable; stream.c ends a stream's
 * work here. */
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/internal.h"

/* --- the CPU's work ----------------------------------------------------------------------------------------------- */

/* In a stream's order the CPU copies and fills host memory, and does its half of copies of pageable memory, which go
 * through a page-locked bounce buffer. CUDA's own copies of pageable memory make the caller wait for the stream.
 *
 * A piece of work has one description and several steps, one host function each, so that functions of other streams get
 * their turn between them. The stream keeps the descriptions, and frees them when all their steps have run, at the next
 * piece or with the stream. No host function may free them, because a failed context runs no further function.
 *
 * Functions ending in _locked need stream->lock, and the stream's device must be current. */

#define STEP_BYTES (64ULL << 20)
#define STEPS_MAX 32 /* a stream's queue has some thousand entries, and a call waits if it is full */

static const uint64_t bounce_bytes[CUDA_BOUNCE_SIZES] = {1ULL << 20, 16ULL << 20};
#define LARGE_FROM_BYTES (32ULL << 20)

/* The addresses advance with each step, except that of the bounce buffer. */
struct cuda_host_work {
    struct cuda_host_work *next;
    enum { COPY, COPY_TO_BOUNCE, COPY_FROM_BOUNCE, FILL } kind;
    char *dst;
    const char *src;
    uint64_t pattern;
    unsigned width;
    uint64_t left_bytes;
    uint64_t step_bytes;
    atomic_bool running;
    atomic_uint steps; /* that have not run yet */
};

/* --- the CPU's work: on CUDA's thread ----------------------------------------------------------------------------- */

/* Pieces begin and end on whole elements. */
static void fill(char *dst, uint64_t pattern, unsigned width, uint64_t bytes) {
    uint64_t done = width < bytes ? width : bytes;

    memcpy(dst, &pattern, done);
    while (done < bytes) {
        uint64_t n = done < bytes - done ? done : bytes - done;

        n = n < 65536 ? n : 65536; /* small enough to be still in the cache */
        memcpy(dst + done, dst, n);
        done += n;
    }
}

static void run_step(void *arg) {
    struct cuda_host_work *work = arg;
    uint64_t n;

    atomic_store(&work->running, true);
    n = work->left_bytes < work->step_bytes ? work->left_bytes : work->step_bytes;
    if (work->kind == FILL)
        fill(work->dst, work->pattern, work->width, n);
    else
        memmove(work->dst, work->src, n);
    if (work->kind != COPY_TO_BOUNCE)
        work->dst += n;
    if (work->kind == COPY || work->kind == COPY_TO_BOUNCE)
        work->src += n;
    work->left_bytes -= n;
    atomic_store(&work->running, false);
    atomic_fetch_sub(&work->steps, 1); /* the work may be freed from here on */
}

/* --- the CPU's work: queueing ------------------------------------------------------------------------------------- */

static void reap_locked(struct gb_stream *stream) {
    struct cuda_host_work **at = &stream->work;

    while (*at) {
        struct cuda_host_work *work = *at;

        if (atomic_load(&work->steps) > 0) {
            at = &work->next;
            continue;
        }
        *at = work->next;
        free(work);
    }
}

static unsigned steps_of(uint64_t bytes, uint64_t step_bytes) {
    return (unsigned)((bytes + step_bytes - 1) / step_bytes);
}

/* Adds the description of a piece of work, of which no step is queued yet. Returns it, or NULL. */
static struct cuda_host_work *add_locked(struct gb_stream *stream, const struct cuda_host_work *what,
                                         struct gb_error *err) {
    struct cuda_host_work *work = malloc(sizeof(*work));

    reap_locked(stream);
    if (!work) {
        gb_error_errno(err, GB_ERR_INTERNAL, "malloc", ENOMEM);
        return NULL;
    }
    *work = *what;
    atomic_init(&work->running, false);
    atomic_init(&work->steps, steps_of(work->left_bytes, work->step_bytes));
    work->next = stream->work;
    stream->work = work;
    return work;
}

/* Drops the steps that were not queued. Queued steps still run before the work is freed. Returns -1. */
static int give_up(struct cuda_backend *be, struct cuda_host_work *work, unsigned unqueued, cudaError_t rc,
                   const char *call, struct gb_error *err) {
    atomic_fetch_sub(&work->steps, unqueued);
    return gb_cuda_fail(be, rc, call, err);
}

static int queue_all_locked(struct cuda_backend *be, struct gb_stream *stream, const struct cuda_host_work *what,
                            struct gb_error *err) {
    unsigned steps = steps_of(what->left_bytes, what->step_bytes);
    struct cuda_host_work *work = add_locked(stream, what, err);
    unsigned i;

    if (!work)
        return -1;
    for (i = 0; i < steps; i++) {
        cudaError_t rc = cudaLaunchHostFunc(stream->handle, run_step, work);

        if (rc != cudaSuccess)
            return give_up(be, work, steps - i, rc, "cudaLaunchHostFunc", err);
    }
    return 0;
}

/* The bytes of a step, a multiple of every width. */
static uint64_t step_for(uint64_t bytes) {
    uint64_t step = bytes / STEPS_MAX / 8 * 8 + 8;

    return step < STEP_BYTES ? STEP_BYTES : step;
}

static int host_copy_locked(struct cuda_backend *be, struct gb_stream *stream, void *dst, const void *src,
                            uint64_t bytes, struct gb_error *err) {
    const struct cuda_host_work work = {
        .kind = COPY, .dst = dst, .src = src, .left_bytes = bytes, .step_bytes = step_for(bytes)};

    return queue_all_locked(be, stream, &work, err);
}

static int host_fill_locked(struct cuda_backend *be, struct gb_stream *stream, void *dst, uint64_t pattern,
                            unsigned width, uint64_t count, struct gb_error *err) {
    const struct cuda_host_work work = {.kind = FILL,
                                        .dst = dst,
                                        .pattern = pattern,
                                        .width = width,
                                        .left_bytes = count * width,
                                        .step_bytes = step_for(count * width)};

    return queue_all_locked(be, stream, &work, err);
}

/* --- the CPU's work: the bounce buffer ---------------------------------------------------------------------------- */

static struct cuda_bounce *bounce_new(struct cuda_backend *be, uint64_t bytes, struct gb_error *err) {
    struct cuda_bounce *bounce = calloc(1, sizeof(*bounce));
    void *ptr = NULL;
    cudaError_t rc;

    if (!bounce) {
        gb_error_errno(err, GB_ERR_INTERNAL, "calloc", ENOMEM);
        return NULL;
    }
    rc = cudaHostAlloc(&ptr, bytes, cudaHostAllocPortable);
    if (rc != cudaSuccess) {
        free(bounce);
        gb_cuda_fail(be, rc, "cudaHostAlloc", err);
        return NULL;
    }
    bounce->ptr = ptr;
    return bounce;
}

/* The stream's bounce buffer, or NULL. The stream keeps it: its operations are in order, so the buffer is free for
 * each. */
static char *bounce_of_locked(struct cuda_backend *be, struct gb_stream *stream, enum cuda_bounce_size size,
                              struct gb_error *err) {
    if (!stream->bounce[size]) {
        pthread_mutex_lock(&be->bounces_lock);
        stream->bounce[size] = be->bounces[size];
        if (stream->bounce[size])
            be->bounces[size] = stream->bounce[size]->next;
        pthread_mutex_unlock(&be->bounces_lock);
    }
    if (!stream->bounce[size])
        stream->bounce[size] = bounce_new(be, bounce_bytes[size], err);
    return stream->bounce[size] ? stream->bounce[size]->ptr : NULL;
}

/* Queues a copy between pageable memory and a device through the bounce buffer. Returns 0 or -1. */
static int bounce_locked(struct cuda_backend *be, struct gb_stream *stream, void *dst, const void *src, uint64_t bytes,
                         bool to_device, struct gb_error *err) {
    enum cuda_bounce_size size = bytes > LARGE_FROM_BYTES ? CUDA_BOUNCE_LARGE : CUDA_BOUNCE_SMALL;
    uint64_t step_bytes = bounce_bytes[size];
    unsigned steps = steps_of(bytes, step_bytes);
    char *bounce = bounce_of_locked(be, stream, size, err);
    const struct cuda_host_work what = {.kind = to_device ? COPY_TO_BOUNCE : COPY_FROM_BOUNCE,
                                        .dst = to_device ? bounce : dst,
                                        .src = to_device ? src : bounce,
                                        .left_bytes = bytes,
                                        .step_bytes = step_bytes};
    struct cuda_host_work *work = bounce ? add_locked(stream, &what, err) : NULL;
    unsigned i;

    if (!work)
        return -1;
    for (i = 0; i < steps; i++) {
        uint64_t at = i * step_bytes;
        uint64_t n = bytes - at < step_bytes ? bytes - at : step_bytes;
        cudaError_t rc = cudaSuccess;

        if (!to_device)
            rc = cudaMemcpyAsync(bounce, (const char *)src + at, n, cudaMemcpyDeviceToHost, stream->handle);
        if (rc != cudaSuccess)
            return give_up(be, work, steps - i, rc, "cudaMemcpyAsync", err);
        rc = cudaLaunchHostFunc(stream->handle, run_step, work);
        if (rc != cudaSuccess)
            return give_up(be, work, steps - i, rc, "cudaLaunchHostFunc", err);
        if (to_device)
            rc = cudaMemcpyAsync((char *)dst + at, bounce, n, cudaMemcpyHostToDevice, stream->handle);
        if (rc != cudaSuccess)
            return give_up(be, work, steps - i - 1, rc, "cudaMemcpyAsync", err);
    }
    return 0;
}

/* --- the CPU's work: the end -------------------------------------------------------------------------------------- */

/* No step is queued any more, but a dead device may have interrupted a function. */
void gb_cuda_host_done(struct cuda_backend *be, struct gb_stream *stream) {
    int size;

    while (stream->work) {
        struct cuda_host_work *work = stream->work;

        while (atomic_load(&work->running))
            sched_yield();
        stream->work = work->next;
        free(work);
    }
    pthread_mutex_lock(&be->bounces_lock);
    for (size = 0; size < CUDA_BOUNCE_SIZES; size++) {
        if (!stream->bounce[size])
            continue;
        stream->bounce[size]->next = be->bounces[size];
        be->bounces[size] = stream->bounce[size];
        stream->bounce[size] = NULL;
    }
    pthread_mutex_unlock(&be->bounces_lock);
}

/* Called at the close, because cudaFreeHost may wait for all work of the device. */
void gb_cuda_bounces_free(struct cuda_backend *be) {
    int size;

    for (size = 0; size < CUDA_BOUNCE_SIZES; size++) {
        while (be->bounces[size]) {
            struct cuda_bounce *bounce = be->bounces[size];

            be->bounces[size] = bounce->next;
            gb_cuda_pin_free(&be->base, bounce->ptr);
            free(bounce);
        }
    }
}

/* --- places ------------------------------------------------------------------------------------------------------- */

/* Elements of 8 bytes that are set one by one. The others are copied from them. */
#define SEED_COUNT 8192ULL

static bool of_device(const struct gb_location *place) {
    return gb_kind_of_device(place->kind);
}

static int check_place(const struct cuda_backend *be, const struct gb_location *place, struct gb_error *err) {
    if ((unsigned)place->kind >= GB_KIND_COUNT || place->device < 0 || place->device >= be->device_count)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "there is no kind %d of memory on device %d",
                            (int)place->kind, place->device);
    return 0;
}

/* Checks that the stream is of a device whose memory takes part. CUDA reports another device as an invalid value. */
static int check_stream(const struct gb_stream *stream, const struct gb_location *a, const struct gb_location *b,
                        struct gb_error *err) {
    if (stream->device == a->device || stream->device == b->device)
        return 0;
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "memory of device %d is not used on a stream of device %d",
                        a->device, stream->device);
}

/* --- copies ------------------------------------------------------------------------------------------------------- */

static int copy(struct cuda_backend *be, const struct gb_location *dst, const struct gb_location *src, uint64_t bytes,
                enum cudaMemcpyKind kind, struct gb_stream *stream, struct gb_error *err) {
    cudaError_t rc = cudaMemcpyAsync(dst->ptr, src->ptr, bytes, kind, stream->handle);

    return rc == cudaSuccess ? 0 : gb_cuda_fail(be, rc, "cudaMemcpyAsync", err);
}

/* Returns true if the destination's device reaches the source's memory now. */
static int is_open(struct cuda_backend *be, const struct gb_location *dst, const struct gb_location *src, bool *ret,
                   struct gb_error *err) {
    cudaMemPool_t pool = src->kind == GB_KIND_DEVICE ? gb_cuda_pool_of(be, src->ptr) : NULL;

    if (pool)
        return gb_cuda_pool_open_to(be, pool, dst->device, ret, err);
    /* Memory of cudaMalloc is open only to devices that the process opens it to, and this process opens it to none. */
    *ret = src->kind != GB_KIND_DEVICE && src->kind != GB_KIND_IPC && gb_cuda_reaches(dst->device, src->device);
    return 0;
}

static int copy_across(struct cuda_backend *be, const struct gb_location *dst, const struct gb_location *src,
                       uint64_t bytes, struct gb_stream *stream, enum gb_copy_way *ret_way, struct gb_error *err) {
    bool open = false;
    cudaError_t rc;

    if (is_open(be, dst, src, &open, err) < 0)
        return -1;
    if (dst->kind == GB_KIND_MANAGED || src->kind == GB_KIND_MANAGED) {
        if (copy(be, dst, src, bytes, cudaMemcpyDefault, stream, err) < 0)
            return -1;
    } else {
        rc = cudaMemcpyPeerAsync(dst->ptr, dst->device, src->ptr, src->device, bytes, stream->handle);
        if (rc != cudaSuccess)
            return gb_cuda_fail(be, rc, "cudaMemcpyPeerAsync", err);
    }
    *ret_way = open ? GB_WAY_PEER : GB_WAY_STAGED;
    return 0;
}

static int copy_between_devices(struct cuda_backend *be, const struct gb_location *dst, const struct gb_location *src,
                                uint64_t bytes, struct gb_stream *stream, enum gb_copy_way *ret_way,
                                struct gb_error *err) {
    if (check_stream(stream, dst, src, err) < 0)
        return -1;
    if (dst->device != src->device)
        return copy_across(be, dst, src, bytes, stream, ret_way, err);
    if (copy(be, dst, src, bytes, cudaMemcpyDeviceToDevice, stream, err) < 0)
        return -1;
    *ret_way = GB_WAY_DEVICE;
    return 0;
}

/* Queues a copy between a device and the host. Returns 0 or -1. */
static int copy_to_or_from(struct cuda_backend *be, const struct gb_location *dst, const struct gb_location *src,
                           uint64_t bytes, bool to_device, struct gb_stream *stream, struct gb_error *err) {
    const struct gb_location *device = to_device ? dst : src;
    const struct gb_location *host = to_device ? src : dst;
    int r;

    if (check_stream(stream, device, device, err) < 0)
        return -1;
    if (host->kind != GB_KIND_PAGEABLE)
        return copy(be, dst, src, bytes, to_device ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost, stream, err);
    pthread_mutex_lock(&stream->lock);
    r = bounce_locked(be, stream, dst->ptr, src->ptr, bytes, to_device, err);
    pthread_mutex_unlock(&stream->lock);
    return r;
}

int gb_cuda_move(struct gb_backend *base, const struct gb_location *dst, const struct gb_location *src, uint64_t bytes,
                 struct gb_stream *stream, enum gb_copy_way *ret_way, struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    bool to_device = of_device(dst);
    int r;

    if (check_place(be, dst, err) < 0 || check_place(be, src, err) < 0 || gb_cuda_enter(be, stream->device, err) < 0)
        return -1;
    if (bytes == 0) {
        *ret_way = GB_WAY_NONE;
        return 0;
    }
    if (to_device && of_device(src))
        return copy_between_devices(be, dst, src, bytes, stream, ret_way, err);
    if (to_device || of_device(src)) {
        if (copy_to_or_from(be, dst, src, bytes, to_device, stream, err) < 0)
            return -1;
        *ret_way = to_device ? GB_WAY_TO_DEVICE : GB_WAY_FROM_DEVICE;
        return 0;
    }
    pthread_mutex_lock(&stream->lock);
    r = host_copy_locked(be, stream, dst->ptr, src->ptr, bytes, err);
    pthread_mutex_unlock(&stream->lock);
    if (r == 0)
        *ret_way = GB_WAY_HOST;
    return r;
}

/* --- fills -------------------------------------------------------------------------------------------------------- */

/* CUDA has no fill that is 8 bytes wide. The first elements are made of two halves, each a column of 32-bit values.
 * Then the filled elements are copied behind themselves, doubling: exact for any count, in few operations. */
static int fill8(struct cuda_backend *be, void *dst, uint64_t pattern, uint64_t count, struct gb_stream *stream,
                 struct gb_error *err) {
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)dst;
    uint64_t done = count < SEED_COUNT ? count : SEED_COUNT;
    unsigned low = (unsigned)pattern;
    unsigned high = (unsigned)(pattern >> 32);
    cudaError_t rc;

    if (low == high) {
        rc = (cudaError_t)be->driver.fill32(at, low, count * 2, stream->handle);
        return rc == cudaSuccess ? 0 : gb_cuda_fail(be, rc, "cuMemsetD32Async", err);
    }
    rc = (cudaError_t)be->driver.fill_rows32(at, 8, low, 1, done, stream->handle);
    if (rc == cudaSuccess)
        rc = (cudaError_t)be->driver.fill_rows32(at + 4, 8, high, 1, done, stream->handle);
    if (rc != cudaSuccess)
        return gb_cuda_fail(be, rc, "cuMemsetD2D32Async", err);
    while (done < count) {
        uint64_t n = done < count - done ? done : count - done;

        rc = cudaMemcpyAsync((char *)dst + done * 8, dst, n * 8, cudaMemcpyDeviceToDevice, stream->handle);
        if (rc != cudaSuccess)
            return gb_cuda_fail(be, rc, "cudaMemcpyAsync", err);
        done += n;
    }
    return 0;
}

int gb_cuda_location_fill(struct gb_backend *base, const struct gb_location *dst, uint64_t pattern, unsigned width,
                          uint64_t count, struct gb_stream *stream, struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    uint64_t bytes;
    int r;

    if (width != 1 && width != 2 && width != 4 && width != 8)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a fill's width is 1, 2, 4 or 8 bytes, not %u", width);
    if ((uintptr_t)dst->ptr % width != 0 || __builtin_mul_overflow(count, (uint64_t)width, &bytes))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "%" PRIu64 " elements of width %u at %p: too many, or not aligned", count, width, dst->ptr);
    if (check_place(be, dst, err) < 0 || gb_cuda_enter(be, stream->device, err) < 0)
        return -1;
    if (count == 0)
        return 0;
    if (of_device(dst)) {
        if (check_stream(stream, dst, dst, err) < 0)
            return -1;
        return width == 8 ? fill8(be, dst->ptr, pattern, count, stream, err)
                          : gb_cuda_fill(base, dst->ptr, pattern, width, count, stream, err);
    }
    pthread_mutex_lock(&stream->lock);
    r = host_fill_locked(be, stream, dst->ptr, pattern, width, count, err);
    pthread_mutex_unlock(&stream->lock);
    return r;
}
