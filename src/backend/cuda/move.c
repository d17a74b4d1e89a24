/* Copies and fills between places of any kind. */
#include <inttypes.h>

#include "backend/cuda/internal.h"

/* Elements of 8 bytes that are set one by one; more are copied from them. */
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

/* CUDA calls the other device's memory an invalid value. */
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

/* Whether the destination's device reaches the source's memory as it stands. */
static int is_open(struct cuda_backend *be, const struct gb_location *dst, const struct gb_location *src, bool *ret,
                   struct gb_error *err) {
    cudaMemPool_t pool = src->kind == GB_KIND_DEVICE ? gb_cuda_pool_of(be, src->ptr) : NULL;

    if (pool)
        return gb_cuda_pool_open_to(be, pool, dst->device, ret, err);
    /* Memory by cudaMalloc is open to those devices only that this process opens it to, which it never does. */
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

/* One side is a device's, the other the host's. */
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
    r = gb_cuda_bounce_locked(be, stream, dst->ptr, src->ptr, bytes, to_device, err);
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
    r = gb_cuda_host_copy_locked(be, stream, dst->ptr, src->ptr, bytes, err);
    pthread_mutex_unlock(&stream->lock);
    if (r == 0)
        *ret_way = GB_WAY_HOST;
    return r;
}

/* --- fills -------------------------------------------------------------------------------------------------------- */

/* No fill of CUDA's is 8 bytes wide. The first elements are made of their two halves, each a column of 32-bit values;
 * what is filled is then copied behind itself, doubling: exact for any count, and few operations. */
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
    r = gb_cuda_host_fill_locked(be, stream, dst->ptr, pattern, width, count, err);
    pthread_mutex_unlock(&stream->lock);
    return r;
}
