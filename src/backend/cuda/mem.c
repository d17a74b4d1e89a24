/* Memory: page-locked host memory, stream-ordered device memory, copies and fills. */
#include <inttypes.h>

#include "backend/cuda/internal.h"

#define PIN_UNIT ((size_t)2 << 20)

/* Whole units of 2 MiB: smaller pieces may be cut from a shared block and then lie off a page's start. */
int gb_cuda_pin_alloc(struct gb_backend *base, size_t bytes, void **ret, struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    void *ptr = NULL;
    cudaError_t rc;

    if (bytes == 0 || bytes > SIZE_MAX - PIN_UNIT)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%zu bytes of page-locked memory cannot be had", bytes);
    if (gb_cuda_enter(be, 0, err) < 0)
        return -1;
    rc = cudaHostAlloc(&ptr, (bytes + PIN_UNIT - 1) / PIN_UNIT * PIN_UNIT, cudaHostAllocPortable);
    if (rc == cudaErrorMemoryAllocation)
        gb_error_set(err, GB_ERR_OUT_OF_MEMORY, "the machine does not give %zu bytes of page-locked memory", bytes);
    if (rc != cudaSuccess)
        return gb_cuda_fail(be, rc, "cudaHostAlloc", err);
    *ret = ptr;
    return 0;
}

void gb_cuda_pin_free(struct gb_backend *base, void *ptr) {
    struct cuda_backend *be = gb_cuda_of(base);
    cudaError_t rc;

    if (!ptr || gb_cuda_select(be, 0, NULL) < 0)
        return;
    rc = cudaFreeHost(ptr);
    if (rc != cudaSuccess)
        gb_cuda_fail(be, rc, "cudaFreeHost", NULL);
}

/* Adds what only we know to CUDA's "out of memory": the pool's numbers. */
static int fail_alloc(struct cuda_backend *be, struct gb_pool *pool, uint64_t bytes, cudaError_t rc,
                      struct gb_error *err) {
    cuuint64_t used = 0;

    if (rc == cudaErrorMemoryAllocation) {
        if (cudaMemPoolGetAttribute(pool->handle, cudaMemPoolAttrUsedMemCurrent, &used) != cudaSuccess)
            used = 0;
        gb_error_numbers(err, pool->limit_bytes, used, bytes);
        gb_error_set(err, GB_ERR_OUT_OF_MEMORY,
                     "the pool uses %" PRIu64 " of at most %" PRIu64 " bytes; %" PRIu64 " more are not to be had",
                     (uint64_t)used, pool->limit_bytes, bytes);
    }
    return gb_cuda_fail(be, rc, "cudaMallocFromPoolAsync", err);
}

int gb_cuda_alloc(struct gb_backend *base, struct gb_pool *pool, struct gb_stream *stream, uint64_t bytes, void **ret,
                  struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    void *ptr = NULL;
    cudaError_t rc;

    if (bytes == 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "an allocation has at least one byte");
    if (gb_cuda_enter(be, stream->device, err) < 0)
        return -1;
    /* Not asked of CUDA: it may round a small maximum up, and call a size beyond its address space invalid. */
    if (bytes > pool->limit_bytes)
        return fail_alloc(be, pool, bytes, cudaErrorMemoryAllocation, err);
    rc = cudaMallocFromPoolAsync(&ptr, bytes, pool->handle, stream->handle);
    if (rc != cudaSuccess)
        return fail_alloc(be, pool, bytes, rc, err);
    *ret = ptr;
    return 0;
}

int gb_cuda_free(struct gb_backend *base, void *ptr, struct gb_stream *stream, struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    cudaError_t rc;

    if (!ptr)
        return 0;
    if (gb_cuda_enter(be, stream->device, err) < 0)
        return -1;
    rc = cudaFreeAsync(ptr, stream->handle);
    return rc == cudaSuccess ? 0 : gb_cuda_fail(be, rc, "cudaFreeAsync", err);
}

int gb_cuda_copy(struct gb_backend *base, void *dst, const void *src, uint64_t bytes, enum gb_copy_direction direction,
                 struct gb_stream *stream, struct gb_error *err) {
    static const enum cudaMemcpyKind kinds[] = {
        [GB_COPY_TO_DEVICE] = cudaMemcpyHostToDevice,
        [GB_COPY_FROM_DEVICE] = cudaMemcpyDeviceToHost,
        [GB_COPY_ON_DEVICE] = cudaMemcpyDeviceToDevice,
    };
    struct cuda_backend *be = gb_cuda_of(base);
    cudaError_t rc;

    if ((unsigned)direction >= sizeof(kinds) / sizeof(kinds[0]))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "no copy has direction %d", (int)direction);
    if (gb_cuda_enter(be, stream->device, err) < 0)
        return -1;
    if (bytes == 0)
        return 0;
    rc = cudaMemcpyAsync(dst, src, bytes, kinds[direction], stream->handle);
    return rc == cudaSuccess ? 0 : gb_cuda_fail(be, rc, "cudaMemcpyAsync", err);
}

int gb_cuda_fill(struct gb_backend *base, void *dst, uint64_t pattern, unsigned width, uint64_t count,
                 struct gb_stream *stream, struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)dst;
    cudaError_t rc;

    if (width != 1 && width != 2 && width != 4)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a fill's width is 1, 2 or 4 bytes, not %u", width);
    if (at % width != 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a fill of width %u needs an address that divides by it",
                            width);
    if (gb_cuda_enter(be, stream->device, err) < 0)
        return -1;
    if (count == 0)
        return 0;
    switch (width) {
    case 1:
        rc = cudaMemsetAsync(dst, (int)(pattern & 0xff), count, stream->handle);
        return rc == cudaSuccess ? 0 : gb_cuda_fail(be, rc, "cudaMemsetAsync", err);
    case 2:
        rc = (cudaError_t)be->driver.fill16(at, (unsigned short)pattern, count, stream->handle);
        return rc == cudaSuccess ? 0 : gb_cuda_fail(be, rc, "cuMemsetD16Async", err);
    default:
        rc = (cudaError_t)be->driver.fill32(at, (unsigned)pattern, count, stream->handle);
        return rc == cudaSuccess ? 0 : gb_cuda_fail(be, rc, "cuMemsetD32Async", err);
    }
}
