/* Memory of the CUDA backend: stream-ordered memory of pools, host memory in files, memory of other kinds, pools and
 * their access by other devices. State that CUDA can report is read from CUDA and not kept here. cuda.c puts the
 * functions into the vtable; move.c and share.c call some. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/common.h"
#include "backend/cuda/internal.h"

/* --- page-locked memory, and memory in stream order --------------------------------------------------------------- */

#define PIN_UNIT ((size_t)2 << 20)

/* Allocates whole units of 2 MiB. Smaller pieces may be cut from a shared block and not begin at a page. Returns 0 or
 * -1. */
int gb_cuda_pin_alloc(struct gb_backend *base, size_t bytes, void **ret, struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    void *ptr = NULL;
    cudaError_t rc;

    if (bytes == 0 || bytes > SIZE_MAX - PIN_UNIT)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%zu bytes of page-locked memory cannot be had", bytes);
    if (gb_cuda_enter(be, 0, err) < 0)
        return -1;
    bytes = (bytes + PIN_UNIT - 1) / PIN_UNIT * PIN_UNIT;
    if (bytes > gb_memory_budget_left(&be->budget, atomic_load(&be->host_bytes)))
        rc = cudaErrorMemoryAllocation;
    else
        rc = cudaHostAlloc(&ptr, bytes, cudaHostAllocPortable);
    if (rc == cudaErrorMemoryAllocation)
        gb_error_set(err, GB_ERR_OUT_OF_MEMORY, "the machine does not give %zu bytes of page-locked memory", bytes);
    if (rc != cudaSuccess)
        return gb_cuda_fail(be, rc, "cudaHostAlloc", err);
    atomic_fetch_add(&be->others_bytes, bytes);
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

/* Adds the pool's numbers to CUDA's "out of memory". Returns -1. */
static int fail_alloc(struct cuda_backend *be, struct gb_pool *pool, uint64_t bytes, cudaError_t rc,
                      struct gb_error *err) {
    cuuint64_t used = 0;
    uint64_t free_bytes;

    if (rc == cudaErrorMemoryAllocation) {
        if (cudaMemPoolGetAttribute(pool->handle, cudaMemPoolAttrUsedMemCurrent, &used) != cudaSuccess)
            used = 0;
        if (gb_cuda_free_bytes(be, pool->device, &free_bytes, NULL) < 0)
            free_bytes = 0;
        gb_error_numbers(err, pool->limit_bytes, used, bytes);
        gb_error_set(err, GB_ERR_OUT_OF_MEMORY,
                     "the pool uses %" PRIu64 " of at most %" PRIu64 " bytes; %" PRIu64
                     " more are not to be had, and %" PRIu64 " of the device are free",
                     (uint64_t)used, pool->limit_bytes, bytes, free_bytes);
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
    /* Checked here, because CUDA may round a small maximum up, and reports a size beyond its address space as
     * invalid. */
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

/* --- host memory in files ----------------------------------------------------------------------------------------- */

/* Other processes can map it. It consists of the host backend's segments, by address. */

/* Touches the pages first, because page-locking untouched pages takes ten times as long. If the system cannot touch
 * them so, the locking does; a lack of memory is reported at once. */
int gb_cuda_lock_pages(struct cuda_backend *be, struct gb_host_segment *segment, struct gb_error *err) {
    uint64_t pages = gb_memfd_pages(segment->bytes);
    cudaError_t rc = cudaSuccess;

    if (madvise(segment->base, pages, MADV_POPULATE_WRITE) != 0 && errno != EINVAL)
        rc = cudaErrorMemoryAllocation;
    if (rc == cudaSuccess)
        rc = cudaHostRegister(segment->base, pages, cudaHostRegisterPortable | cudaHostRegisterMapped);
    if (rc == cudaSuccess)
        return 0;
    if (gb_native_code((int)rc) == GB_ERR_DEVICE_ERROR || gb_native_code((int)rc) == GB_ERR_UNSUPPORTED) {
        (void)cudaGetLastError();
        return 1;
    }
    if (rc == cudaErrorMemoryAllocation)
        gb_error_set(err, GB_ERR_OUT_OF_MEMORY, "the machine does not give %llu bytes of page-locked memory",
                     (unsigned long long)segment->bytes);
    return gb_cuda_fail(be, rc, "cudaHostRegister", err);
}

int gb_cuda_unlock_pages(struct cuda_backend *be, struct gb_host_segment *segment, struct gb_error *err) {
    cudaError_t rc = cudaHostUnregister(segment->base);

    return rc == cudaSuccess ? 0 : gb_cuda_fail(be, rc, "cudaHostUnregister", err);
}

/* Returns 0; 1 if memory of kind PINNED cannot be in a file here; -1. */
static int file_alloc(struct cuda_backend *be, int device, enum gb_kind kind, uint64_t bytes, void **ret,
                      struct gb_error *err) {
    struct gb_host_segment *segment = gb_host_segment_map_file(bytes, false);
    bool kept;
    int r;

    if (!segment)
        return gb_error_set(err, GB_ERR_OUT_OF_MEMORY, "the machine does not give %llu bytes",
                            (unsigned long long)bytes);
    segment->kind = kind;
    segment->device = device;
    r = kind == GB_KIND_PINNED ? gb_cuda_lock_pages(be, segment, err) : 0;
    if (r != 0) {
        gb_host_segment_unmap(segment);
        return r;
    }
    pthread_mutex_lock(&be->files_lock);
    kept = gb_host_ranges_reserve(&be->files) == 0;
    if (kept)
        gb_host_ranges_put(&be->files, segment);
    pthread_mutex_unlock(&be->files_lock);
    if (kept) {
        *ret = segment->base;
        return 0;
    }
    if (kind == GB_KIND_PINNED)
        (void)gb_cuda_unlock_pages(be, segment, NULL);
    gb_host_segment_unmap(segment);
    return gb_error_errno(err, GB_ERR_INTERNAL, "realloc", ENOMEM);
}

/* The segment that place is in, or NULL. */
static struct gb_host_segment *find_locked(struct cuda_backend *be, const struct gb_location *place) {
    struct gb_host_segment *segment = gb_host_ranges_find(&be->files, place->ptr);

    return segment && segment->kind == place->kind ? segment : NULL;
}

bool gb_cuda_file_has(struct cuda_backend *be, const struct gb_location *place) {
    bool has;

    pthread_mutex_lock(&be->files_lock);
    has = find_locked(be, place) != NULL;
    pthread_mutex_unlock(&be->files_lock);
    return has;
}

static int file_free(struct cuda_backend *be, const struct gb_location *place, uint64_t bytes, struct gb_error *err) {
    struct gb_host_segment *segment;

    pthread_mutex_lock(&be->files_lock);
    segment = find_locked(be, place);
    if (segment && (segment->base != place->ptr || segment->bytes != bytes))
        segment = NULL;
    pthread_mutex_unlock(&be->files_lock);
    if (!segment)
        return gb_error_set(err, GB_ERR_DEVICE_ERROR, "%p is not %llu bytes of kind %s, or freed already", place->ptr,
                            (unsigned long long)bytes, gb_kind_name(place->kind));
    if (segment->kind == GB_KIND_PINNED && gb_cuda_unlock_pages(be, segment, err) < 0)
        return -1;
    pthread_mutex_lock(&be->files_lock);
    gb_host_ranges_take(&be->files, segment);
    pthread_mutex_unlock(&be->files_lock);
    gb_host_segment_unmap(segment);
    return 0;
}

int gb_cuda_file_export(struct cuda_backend *be, const struct gb_location *place, uint64_t bytes, bool writable,
                        struct gb_export *ret, struct gb_error *err) {
    const struct gb_host_segment *segment;
    uint64_t offset;
    int r;

    pthread_mutex_lock(&be->files_lock); /* keeps the descriptor open until it was duplicated */
    segment = find_locked(be, place);
    offset = segment ? (uintptr_t)place->ptr - (uintptr_t)segment->base : 0;
    if (segment && bytes > 0 && bytes <= segment->bytes - offset)
        r = gb_memfd_export(segment->fd, segment->bytes, offset, writable, ret, err);
    else
        r = gb_error_set(err, GB_ERR_DEVICE_ERROR, "%p is not %llu bytes of kind %s", place->ptr,
                         (unsigned long long)bytes, gb_kind_name(place->kind));
    if (r == 0)
        ret->device = segment->device;
    pthread_mutex_unlock(&be->files_lock);
    return r;
}

void gb_cuda_files_free(struct cuda_backend *be) {
    size_t i;

    for (i = 0; i < be->files.count; i++) {
        if (be->files.sorted[i]->kind == GB_KIND_PINNED && cudaHostUnregister(be->files.sorted[i]->base) != cudaSuccess)
            (void)cudaGetLastError();
        gb_host_segment_unmap(be->files.sorted[i]);
    }
    free(be->files.sorted);
    be->files = (struct gb_host_ranges){0};
}

/* --- kinds -------------------------------------------------------------------------------------------------------- */

static const char *const alloc_calls[GB_KIND_COUNT] = {
    [GB_KIND_SHARED] = "cuMemCreate",   [GB_KIND_MANAGED] = "cudaMallocManaged",
    [GB_KIND_PINNED] = "cudaHostAlloc", [GB_KIND_PAGEABLE] = "mmap",
    [GB_KIND_IPC] = "cudaMalloc",
};

/* Smaller allocations may share one piece of this size, and an importer maps the whole piece. */
#define IPC_UNIT (2ull << 20)

/* Sets "out of memory" with the numbers of the device or of the machine. Returns -1. */
static int fail_memory(struct cuda_backend *be, int device, enum gb_kind kind, uint64_t bytes, cudaError_t rc,
                       struct gb_error *err) {
    const char *call = alloc_calls[kind];
    uint64_t limit = be->devices[device].rec.total_bytes;
    uint64_t free_bytes;

    if (rc != cudaErrorMemoryAllocation)
        return gb_cuda_fail(be, rc, call, err);
    if ((kind == GB_KIND_SHARED || kind == GB_KIND_IPC) && gb_cuda_free_bytes(be, device, &free_bytes, NULL) == 0)
        gb_error_numbers(err, limit, limit > free_bytes ? limit - free_bytes : 0, bytes);
    else
        gb_error_numbers(err, kind == GB_KIND_MANAGED ? limit + be->machine_bytes : be->machine_bytes, 0, bytes);
    gb_error_set(err, GB_ERR_OUT_OF_MEMORY, "%" PRIu64 " bytes of kind %s are not to be had", bytes,
                 gb_kind_name(kind));
    return gb_cuda_fail(be, rc, call, err);
}

/* --- kinds: shared ------------------------------------------------------------------------------------------------ */

static CUmemAllocationProp shared_prop(int device) {
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };
}

int gb_cuda_shared_size(struct cuda_backend *be, int device, uint64_t bytes, size_t *ret, struct gb_error *err) {
    CUmemAllocationProp prop = shared_prop(device);
    size_t grain = 0;
    CUresult rc = be->driver.mem_granularity(&grain, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);

    if (rc != CUDA_SUCCESS || grain == 0)
        return gb_cuda_fail(be, (cudaError_t)rc, "cuMemGetAllocationGranularity", err);
    *ret = (bytes + grain - 1) / grain * grain;
    return 0;
}

/* Permits the device, and every device that can, to read and write. Returns 0 or -1. */
int gb_cuda_open_to_devices(struct cuda_backend *be, int device, CUdeviceptr at, size_t size, struct gb_error *err) {
    CUresult rc = CUDA_SUCCESS;
    int i;

    for (i = 0; i < be->device_count && rc == CUDA_SUCCESS; i++) {
        CUmemAccessDesc desc = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = i},
                                .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

        if (i == device || gb_cuda_reaches(i, device))
            rc = be->driver.mem_set_access(at, size, &desc, 1);
    }
    return rc == CUDA_SUCCESS ? 0 : gb_cuda_fail(be, (cudaError_t)rc, "cuMemSetAccess", err);
}

/* Maps memory that has a handle, which is given back: the mapping keeps the memory, and the address gives the handle
 * again. Returns 0 or -1. */
static int map_shared(struct cuda_backend *be, int device, CUmemGenericAllocationHandle handle, size_t size, void **ret,
                      struct gb_error *err) {
    const struct cuda_driver *d = &be->driver;
    CUdeviceptr at = 0;
    CUresult rc = d->mem_reserve(&at, size, 0, 0, 0);

    if (rc != CUDA_SUCCESS) {
        (void)d->mem_release(handle);
        return gb_cuda_fail(be, (cudaError_t)rc, "cuMemAddressReserve", err);
    }
    rc = d->mem_map(at, size, 0, handle, 0);
    (void)d->mem_release(handle);
    if (rc != CUDA_SUCCESS) {
        (void)d->mem_unreserve(at, size);
        return gb_cuda_fail(be, (cudaError_t)rc, "cuMemMap", err);
    }
    if (gb_cuda_open_to_devices(be, device, at, size, err) < 0) {
        (void)d->mem_unmap(at, size);
        (void)d->mem_unreserve(at, size);
        return -1;
    }
    *ret = (void *)(uintptr_t)at;
    return 0;
}

static int alloc_shared(struct cuda_backend *be, int device, uint64_t bytes, void **ret, struct gb_error *err) {
    CUmemAllocationProp prop = shared_prop(device);
    CUmemGenericAllocationHandle handle = 0;
    size_t size = 0;
    CUresult rc;

    if (gb_cuda_shared_size(be, device, bytes, &size, err) < 0)
        return -1;
    rc = be->driver.mem_create(&handle, size, &prop, 0);
    if (rc != CUDA_SUCCESS)
        return fail_memory(be, device, GB_KIND_SHARED, bytes, (cudaError_t)rc, err);
    return map_shared(be, device, handle, size, ret, err);
}

static int free_shared(struct cuda_backend *be, const struct gb_location *place, uint64_t bytes, struct gb_error *err) {
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)place->ptr;
    size_t size = 0;
    CUresult rc;

    if (gb_cuda_shared_size(be, place->device, bytes, &size, err) < 0)
        return -1;
    rc = be->driver.mem_unmap(at, size);
    if (rc != CUDA_SUCCESS)
        return gb_cuda_fail(be, (cudaError_t)rc, "cuMemUnmap", err);
    rc = be->driver.mem_unreserve(at, size);
    return rc == CUDA_SUCCESS ? 0 : gb_cuda_fail(be, (cudaError_t)rc, "cuMemAddressFree", err);
}

/* --- kinds: allocation and free ----------------------------------------------------------------------------------- */

/* The size of an allocation of kind IPC; whole pieces only if another process can import it. */
static uint64_t malloc_size(const struct gb_device_rec *rec, uint64_t bytes) {
    return rec->cap_missing[GB_CAP_LEGACY_IPC][0] == '\0' ? gb_cuda_ipc_size(bytes) : bytes;
}

uint64_t gb_cuda_ipc_size(uint64_t bytes) {
    return (bytes + IPC_UNIT - 1) / IPC_UNIT * IPC_UNIT;
}

/* The bytes that the device and the machine have at most. */
static uint64_t most(const struct cuda_backend *be, const struct gb_device_rec *rec, enum gb_kind kind) {
    uint64_t of_device = gb_kind_of_device(kind) ? rec->total_bytes : 0;

    return of_device + (kind == GB_KIND_SHARED || kind == GB_KIND_IPC ? 0 : be->machine_bytes);
}

/* Takes bytes of the host's memory from what the machine has left, before the kernel kills the process for using more.
 * Returns 0 or -1. */
static int take_host(struct cuda_backend *be, enum gb_kind kind, uint64_t bytes, struct gb_error *err) {
    uint64_t given;
    uint64_t left;

    gb_memory_budget_read(&be->budget, atomic_load(&be->host_bytes), atomic_load(&be->others_bytes));
    given = atomic_fetch_add(&be->host_bytes, bytes);
    left = gb_memory_budget_left(&be->budget, given);
    if (bytes <= left)
        return 0;
    atomic_fetch_sub(&be->host_bytes, bytes);
    gb_error_numbers(err, left + given, given, bytes);
    gb_error_set(err, GB_ERR_OUT_OF_MEMORY,
                 "%" PRIu64
                 " bytes of kind %s do not fit: the machine, or the control group of the daemon, has %" PRIu64 " left",
                 bytes, gb_kind_name(kind), left);
    return gb_cuda_fail(be, cudaErrorMemoryAllocation, alloc_calls[kind], err);
}

/* Allocates memory of kind PINNED or PAGEABLE. Returns 0 or -1. */
static int alloc_host(struct cuda_backend *be, int device, enum gb_kind kind, uint64_t bytes, void **ret,
                      struct gb_error *err) {
    int r = 1;
    cudaError_t rc;

    if (take_host(be, kind, bytes, err) < 0)
        return -1;
    if (kind == GB_KIND_PAGEABLE || be->devices[device].locks_pages)
        r = file_alloc(be, device, kind, bytes, ret, err);
    if (r > 0) {
        rc = cudaHostAlloc(ret, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
        r = rc == cudaSuccess ? 0 : fail_memory(be, device, kind, bytes, rc, err);
    }
    if (r < 0)
        atomic_fetch_sub(&be->host_bytes, bytes);
    return r;
}

int gb_cuda_kind_alloc(struct gb_backend *base, int device, enum gb_kind kind, uint64_t bytes, void **ret,
                       struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    const struct gb_device_rec *rec;
    void *ptr = NULL;
    cudaError_t rc;

    if (kind == GB_KIND_DEVICE || (unsigned)kind >= GB_KIND_COUNT)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "memory of kind %s comes from a pool", gb_kind_name(kind));
    if (bytes == 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "an allocation has at least one byte");
    if (gb_cuda_enter(be, device, err) < 0)
        return -1;
    rec = &be->devices[device].rec;
    if (rec->kind_missing[kind][0] != '\0')
        return gb_native_refuse(err, base->domain, GB_NATIVE_NOT_SUPPORTED, gb_native_kind_call(kind),
                                "device %d has no memory of kind %s: %s", device, gb_kind_name(kind),
                                rec->kind_missing[kind]);
    /* Checked here, because CUDA reports a size beyond its address space as invalid. */
    if (bytes > most(be, rec, kind))
        return fail_memory(be, device, kind, bytes, cudaErrorMemoryAllocation, err);
    if (!gb_kind_of_device(kind))
        return alloc_host(be, device, kind, bytes, ret, err);
    if (kind == GB_KIND_SHARED)
        return alloc_shared(be, device, bytes, ret, err);
    if (kind == GB_KIND_IPC)
        rc = cudaMalloc(&ptr, malloc_size(rec, bytes));
    else
        rc = cudaMallocManaged(&ptr, bytes, cudaMemAttachGlobal);
    if (rc != cudaSuccess)
        return fail_memory(be, device, kind, bytes, rc, err);
    *ret = ptr;
    return 0;
}

/* Memory of the host in files could be taken as well, but its pages would have to be locked again. */
bool gb_cuda_kind_keeps(struct gb_backend *be, enum gb_kind kind) {
    (void)be;
    return kind == GB_KIND_SHARED;
}

/* The descriptor is one that an earlier process of this daemon exported. A device that was taken out, or another size,
 * makes the driver refuse it. */
int gb_cuda_kind_take(struct gb_backend *base, int device, enum gb_kind kind, uint64_t bytes, int fd, void **ret,
                      struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    CUmemGenericAllocationHandle handle = 0;
    size_t size = 0;
    CUresult rc;

    if (kind != GB_KIND_SHARED)
        return gb_error_set(err, GB_ERR_UNSUPPORTED, "memory of kind %s does not outlive its process",
                            gb_kind_name(kind));
    if (gb_cuda_enter(be, device, err) < 0 || gb_cuda_shared_size(be, device, bytes, &size, err) < 0)
        return -1;
    rc = be->driver.mem_import(&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (rc != CUDA_SUCCESS)
        return gb_error_set(err, GB_ERR_CANNOT_ADOPT, "the driver does not take the memory again: error %d", (int)rc);
    return map_shared(be, device, handle, size, ret, err);
}

/* Frees memory of kind PINNED or PAGEABLE. Pageable memory is not CUDA's, so it is freed even if the device is dead. */
static int free_host(struct cuda_backend *be, const struct gb_location *place, uint64_t bytes, struct gb_error *err) {
    cudaError_t rc;

    if (place->kind == GB_KIND_PINNED && gb_cuda_enter(be, place->device, err) < 0)
        return -1;
    if (place->kind == GB_KIND_PAGEABLE || gb_cuda_file_has(be, place)) {
        if (file_free(be, place, bytes, err) < 0)
            return -1;
    } else {
        rc = cudaFreeHost(place->ptr);
        if (rc != cudaSuccess)
            return gb_cuda_fail(be, rc, "cudaFreeHost", err);
    }
    atomic_fetch_sub(&be->host_bytes, bytes);
    return 0;
}

int gb_cuda_kind_free(struct gb_backend *base, const struct gb_location *place, uint64_t bytes, struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    cudaError_t rc;

    if (place->kind == GB_KIND_DEVICE || (unsigned)place->kind >= GB_KIND_COUNT)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "memory of kind %s goes back to its pool",
                            gb_kind_name(place->kind));
    if (!gb_kind_of_device(place->kind))
        return free_host(be, place, bytes, err);
    if (gb_cuda_enter(be, place->device, err) < 0)
        return -1;
    if (place->kind == GB_KIND_SHARED)
        return free_shared(be, place, bytes, err);
    rc = cudaFree(place->ptr);
    return rc == cudaSuccess ? 0 : gb_cuda_fail(be, rc, "cudaFree", err);
}

/* --- managed memory ----------------------------------------------------------------------------------------------- */

static cudaError_t prefetch(const struct gb_location *place, uint64_t bytes, bool to_cpu, cudaStream_t stream) {
#if CUDART_VERSION >= 13000
    struct cudaMemLocation location = {.type = to_cpu ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice,
                                       .id = to_cpu ? 0 : place->device};

    return cudaMemPrefetchAsync(place->ptr, bytes, location, 0, stream);
#else
    return cudaMemPrefetchAsync(place->ptr, bytes, to_cpu ? cudaCpuDeviceId : place->device, stream);
#endif
}

int gb_cuda_prefetch(struct gb_backend *base, const struct gb_location *place, uint64_t bytes, bool to_cpu,
                     struct gb_stream *stream, struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    cudaError_t rc;

    if (gb_cuda_enter(be, stream->device, err) < 0)
        return -1;
    if (place->kind != GB_KIND_MANAGED || bytes == 0 ||
        be->devices[stream->device].rec.cap_missing[GB_CAP_CONCURRENT_MANAGED_ACCESS][0] != '\0')
        return 0;
    rc = prefetch(place, bytes, to_cpu, stream->handle);
    return rc == cudaSuccess ? 0 : gb_cuda_fail(be, rc, "cudaMemPrefetchAsync", err);
}

int gb_cuda_attach(struct gb_backend *base, const struct gb_location *place, bool to_cpu, struct gb_stream *stream,
                   struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    cudaError_t rc;

    if (gb_cuda_enter(be, stream->device, err) < 0)
        return -1;
    if (place->kind != GB_KIND_MANAGED || !be->devices[stream->device].rec.managed_attach)
        return 0;
    rc = cudaStreamAttachMemAsync(stream->handle, place->ptr, 0, to_cpu ? cudaMemAttachHost : cudaMemAttachGlobal);
    return rc == cudaSuccess ? 0 : gb_cuda_fail(be, rc, "cudaStreamAttachMemAsync", err);
}

/* --- attributes of an address ------------------------------------------------------------------------------------- */

cudaMemPool_t gb_cuda_pool_of(struct cuda_backend *be, const void *ptr) {
    CUmemoryPool pool = NULL;

    if (be->driver.pointer_attribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, (CUdeviceptr)(uintptr_t)ptr) !=
        CUDA_SUCCESS)
        return NULL;
    return (cudaMemPool_t)pool;
}

static enum gb_memory_type type_of(enum cudaMemoryType type) {
    switch (type) {
    case cudaMemoryTypeHost:
        return GB_MEMORY_HOST;
    case cudaMemoryTypeDevice:
        return GB_MEMORY_DEVICE;
    case cudaMemoryTypeManaged:
        return GB_MEMORY_MANAGED;
    default:
        return GB_MEMORY_UNREGISTERED;
    }
}

int gb_cuda_attributes(struct gb_backend *base, const struct gb_location *place, struct gb_pool *pool,
                       struct gb_mem_attr *ret, struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    struct cudaPointerAttributes native = {.type = cudaMemoryTypeUnregistered};
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)place->ptr;
    CUcontext context = NULL;
    cudaMemPool_t from = NULL;
    cudaError_t rc;

    if (gb_cuda_enter(be, place->device, err) < 0)
        return -1;
    rc = cudaPointerGetAttributes(&native, place->ptr);
    if (rc != cudaSuccess)
        return gb_cuda_fail(be, rc, "cudaPointerGetAttributes", err);
    if (native.type == cudaMemoryTypeDevice)
        from = gb_cuda_pool_of(be, place->ptr);
    /* Memory of pools has NULL; of memory that CUDA does not know the question is invalid. */
    if (native.type != cudaMemoryTypeUnregistered &&
        be->driver.pointer_attribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, at) != CUDA_SUCCESS)
        context = NULL;
    *ret = (struct gb_mem_attr){
        .type = type_of(native.type),
        .device = native.type == cudaMemoryTypeUnregistered ? -1 : native.device,
        .device_address = (uintptr_t)native.devicePointer,
        .host_address = (uintptr_t)native.hostPointer,
        .from_pool = from != NULL,
        .this_pool = from && pool && from == pool->handle,
        .context = (uintptr_t)context,
    };
    return 0;
}

/* --- pools -------------------------------------------------------------------------------------------------------- */

static int get_u64(struct cuda_backend *be, struct gb_pool *pool, enum cudaMemPoolAttr attr, uint64_t *ret,
                   struct gb_error *err) {
    cuuint64_t value = 0;
    cudaError_t rc = cudaMemPoolGetAttribute(pool->handle, attr, &value);

    if (rc != cudaSuccess)
        return gb_cuda_fail(be, rc, "cudaMemPoolGetAttribute", err);
    *ret = value;
    return 0;
}

static int set_u64(struct cuda_backend *be, struct gb_pool *pool, enum cudaMemPoolAttr attr, uint64_t value,
                   struct gb_error *err) {
    cuuint64_t native = value;
    cudaError_t rc = cudaMemPoolSetAttribute(pool->handle, attr, &native);

    return rc == cudaSuccess ? 0 : gb_cuda_fail(be, rc, "cudaMemPoolSetAttribute", err);
}

/* CUDA has ints for the reuse policies, and 64 bits for sizes. */
static int get_flag(struct cuda_backend *be, struct gb_pool *pool, enum cudaMemPoolAttr attr, bool *ret,
                    struct gb_error *err) {
    int value = 0;
    cudaError_t rc = cudaMemPoolGetAttribute(pool->handle, attr, &value);

    if (rc != cudaSuccess)
        return gb_cuda_fail(be, rc, "cudaMemPoolGetAttribute", err);
    *ret = value != 0;
    return 0;
}

static int set_flag(struct cuda_backend *be, struct gb_pool *pool, enum cudaMemPoolAttr attr, bool value,
                    struct gb_error *err) {
    int native = value ? 1 : 0;
    cudaError_t rc = cudaMemPoolSetAttribute(pool->handle, attr, &native);

    return rc == cudaSuccess ? 0 : gb_cuda_fail(be, rc, "cudaMemPoolSetAttribute", err);
}

static int apply(struct cuda_backend *be, struct gb_pool *pool, const struct gb_pool_config *config,
                 struct gb_error *err) {
    if (set_u64(be, pool, cudaMemPoolAttrReleaseThreshold, config->release_threshold_bytes, err) < 0 ||
        set_flag(be, pool, cudaMemPoolReuseFollowEventDependencies, config->follow_event_dependencies, err) < 0 ||
        set_flag(be, pool, cudaMemPoolReuseAllowOpportunistic, config->allow_opportunistic, err) < 0 ||
        set_flag(be, pool, cudaMemPoolReuseAllowInternalDependencies, config->allow_internal_dependencies, err) < 0)
        return -1;
    return 0;
}

int gb_cuda_default_pool_init(struct cuda_backend *be, int device, struct gb_error *err) {
    struct cuda_device *dev = &be->devices[device];
    struct gb_pool *pool = &dev->default_pool;
    cudaError_t rc = cudaDeviceGetDefaultMemPool(&pool->handle, device);

    if (rc != cudaSuccess)
        return gb_cuda_fail(be, rc, "cudaDeviceGetDefaultMemPool", err);
    pool->device = device;
    pool->is_default = true;
    pool->fd = -1;
    pool->max_bytes = dev->rec.total_bytes;
    pool->limit_bytes = dev->rec.total_bytes;
    return set_u64(be, pool, cudaMemPoolAttrReleaseThreshold,
                   gb_pool_default_threshold(dev->rec.integrated, dev->rec.total_bytes), err);
}

static int check_pools(const struct cuda_backend *be, int device, const char *call, struct gb_error *err) {
    const struct cuda_device *dev = &be->devices[device];

    if (dev->has_pools)
        return 0;
    return gb_native_refuse(err, be->base.domain, GB_NATIVE_NOT_SUPPORTED, call, "device %d: %s", device,
                            dev->rec.cap_missing[GB_CAP_MEMORY_POOLS]);
}

int gb_cuda_pool_default(struct gb_backend *base, int device, struct gb_pool **ret, struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);

    if (gb_cuda_enter(be, device, err) < 0 || check_pools(be, device, "cudaDeviceGetDefaultMemPool", err) < 0)
        return -1;
    *ret = &be->devices[device].default_pool;
    return 0;
}

int gb_cuda_pool_create(struct gb_backend *base, int device, const struct gb_pool_config *config, struct gb_pool **ret,
                        struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    struct cudaMemPoolProps props;
    struct cuda_device *dev;
    struct gb_pool *pool;
    cudaError_t rc;

    if (gb_cuda_enter(be, device, err) < 0 || check_pools(be, device, "cudaMemPoolCreate", err) < 0)
        return -1;
    dev = &be->devices[device];
    if (config->exportable && !dev->exports_fd)
        return gb_native_refuse(err, be->base.domain, GB_NATIVE_NOT_SUPPORTED, "cudaMemPoolCreate",
                                "device %d cannot share pool memory by file descriptor", device);
    pool = calloc(1, sizeof(*pool));
    if (!pool)
        return gb_error_errno(err, GB_ERR_INTERNAL, "calloc", ENOMEM);
    pool->device = device;
    pool->fd = -1;
    pool->exportable = config->exportable;
    pool->max_bytes = config->max_bytes;
    pool->limit_bytes = dev->rec.total_bytes;
    memset(&props, 0, sizeof(props));
    props.allocType = cudaMemAllocationTypePinned;
    props.handleTypes = config->exportable ? cudaMemHandleTypePosixFileDescriptor : cudaMemHandleTypeNone;
    props.location.type = cudaMemLocationTypeDevice;
    props.location.id = device;
    /* 0 means no maximum to CUDA; one beyond the device means the same. */
    if (config->max_bytes > 0 && config->max_bytes < dev->rec.total_bytes) {
        props.maxSize = config->max_bytes;
        pool->limit_bytes = config->max_bytes;
    }
    rc = cudaMemPoolCreate(&pool->handle, &props);
    if (rc != cudaSuccess) {
        free(pool);
        return gb_cuda_fail(be, rc, "cudaMemPoolCreate", err);
    }
    if (apply(be, pool, config, err) < 0) {
        gb_cuda_pool_destroy(base, pool);
        return -1;
    }
    *ret = pool;
    return 0;
}

void gb_cuda_pool_destroy(struct gb_backend *base, struct gb_pool *pool) {
    struct cuda_backend *be = gb_cuda_of(base);
    cudaError_t rc;

    if (!pool || pool->is_default)
        return;
    if (gb_cuda_select(be, pool->device, NULL) == 0) {
        rc = cudaMemPoolDestroy(pool->handle);
        if (rc != cudaSuccess)
            gb_cuda_fail(be, rc, "cudaMemPoolDestroy", NULL);
    }
    if (pool->fd >= 0)
        close(pool->fd);
    free(pool);
}

int gb_cuda_pool_config(struct gb_backend *base, struct gb_pool *pool, struct gb_pool_config *ret,
                        struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    struct gb_pool_config config = {.max_bytes = pool->max_bytes, .exportable = pool->exportable};

    if (gb_cuda_enter(be, pool->device, err) < 0 ||
        get_u64(be, pool, cudaMemPoolAttrReleaseThreshold, &config.release_threshold_bytes, err) < 0 ||
        get_flag(be, pool, cudaMemPoolReuseFollowEventDependencies, &config.follow_event_dependencies, err) < 0 ||
        get_flag(be, pool, cudaMemPoolReuseAllowOpportunistic, &config.allow_opportunistic, err) < 0 ||
        get_flag(be, pool, cudaMemPoolReuseAllowInternalDependencies, &config.allow_internal_dependencies, err) < 0)
        return -1;
    *ret = config;
    return 0;
}

int gb_cuda_pool_configure(struct gb_backend *base, struct gb_pool *pool, const struct gb_pool_config *config,
                           struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);

    if (config->max_bytes != pool->max_bytes)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "a pool's max_bytes is fixed at creation: it is %" PRIu64 ", not %" PRIu64, pool->max_bytes,
                            config->max_bytes);
    if (config->exportable != pool->exportable)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "whether a pool is exportable is fixed at creation: it is%s",
                            pool->exportable ? "" : " not");
    if (gb_cuda_enter(be, pool->device, err) < 0)
        return -1;
    return apply(be, pool, config, err);
}

int gb_cuda_pool_stat(struct gb_backend *base, struct gb_pool *pool, struct gb_pool_stat *ret, struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    struct gb_pool_stat stat = {0};

    if (gb_cuda_enter(be, pool->device, err) < 0 ||
        get_u64(be, pool, cudaMemPoolAttrUsedMemCurrent, &stat.used_bytes, err) < 0 ||
        get_u64(be, pool, cudaMemPoolAttrUsedMemHigh, &stat.used_peak_bytes, err) < 0 ||
        get_u64(be, pool, cudaMemPoolAttrReservedMemCurrent, &stat.reserved_bytes, err) < 0 ||
        get_u64(be, pool, cudaMemPoolAttrReservedMemHigh, &stat.reserved_peak_bytes, err) < 0)
        return -1;
    *ret = stat;
    return 0;
}

int gb_cuda_pool_reset_peak(struct gb_backend *base, struct gb_pool *pool, struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);

    /* Zero is the only value that CUDA accepts; the peak becomes the current value. */
    if (gb_cuda_enter(be, pool->device, err) < 0 || set_u64(be, pool, cudaMemPoolAttrUsedMemHigh, 0, err) < 0)
        return -1;
    return set_u64(be, pool, cudaMemPoolAttrReservedMemHigh, 0, err);
}

int gb_cuda_pool_trim(struct gb_backend *base, struct gb_pool *pool, uint64_t keep_bytes, struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    cudaError_t rc;

    if (gb_cuda_enter(be, pool->device, err) < 0)
        return -1;
    rc = cudaMemPoolTrimTo(pool->handle, keep_bytes);
    return rc == cudaSuccess ? 0 : gb_cuda_fail(be, rc, "cudaMemPoolTrimTo", err);
}

/* --- several devices ---------------------------------------------------------------------------------------------- */

bool gb_cuda_reaches(int device, int peer) {
    int can = 0;

    if (device == peer)
        return true;
    if (cudaDeviceCanAccessPeer(&can, device, peer) != cudaSuccess)
        (void)cudaGetLastError();
    return can != 0;
}

static int p2p_attribute(enum cudaDeviceP2PAttr attribute, int device, int peer) {
    int value = 0;

    if (cudaDeviceGetP2PAttribute(&value, attribute, device, peer) != cudaSuccess)
        (void)cudaGetLastError();
    return value;
}

static int check_device(const struct cuda_backend *be, int device, struct gb_error *err) {
    if (device >= 0 && device < be->device_count)
        return 0;
    return gb_error_set(err, GB_ERR_DEVICE_NOT_FOUND, "device %d is not one of the %d devices", device,
                        be->device_count);
}

int gb_cuda_peer_get(struct gb_backend *base, int device, int peer, struct gb_peer_rec *ret, struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    struct gb_peer_rec rec = {.device = device, .peer = peer, .native_atomics = true};

    if (check_device(be, peer, err) < 0 || gb_cuda_enter(be, device, err) < 0)
        return -1;
    rec.can_access = gb_cuda_reaches(device, peer);
    if (device != peer) {
        rec.native_atomics = p2p_attribute(cudaDevP2PAttrNativeAtomicSupported, device, peer) != 0;
        rec.rank = p2p_attribute(cudaDevP2PAttrPerformanceRank, device, peer);
    }
    if (!rec.can_access)
        snprintf(rec.why_not, sizeof(rec.why_not), "CUDA finds no way from device %d to the memory of device %d",
                 device, peer);
    *ret = rec;
    return 0;
}

/* --- pools -------------------------------------------------------------------------------------------------------- */

int gb_cuda_pool_access_set(struct gb_backend *base, struct gb_pool *pool, int device, enum gb_pool_access access,
                            struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    struct cudaMemAccessDesc desc = {
        .location = {.type = cudaMemLocationTypeDevice, .id = device},
        .flags = access == GB_POOL_ACCESS_READ_WRITE ? cudaMemAccessFlagsProtReadWrite : cudaMemAccessFlagsProtNone,
    };
    cudaError_t rc;

    if ((unsigned)access >= GB_POOL_ACCESS_COUNT)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a pool has no access %d", (int)access);
    if (check_device(be, device, err) < 0 || gb_cuda_enter(be, pool->device, err) < 0)
        return -1;
    if (device == pool->device) {
        if (access == GB_POOL_ACCESS_READ_WRITE)
            return 0;
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a pool is always open to its own device, %d", device);
    }
    if (!gb_cuda_reaches(device, pool->device))
        return gb_native_refuse(err, be->base.domain, GB_NATIVE_INVALID_DEVICE, "cudaMemPoolSetAccess",
                                "CUDA finds no way from device %d to the memory of device %d", device, pool->device);
    rc = cudaMemPoolSetAccess(pool->handle, &desc, 1);
    return rc == cudaSuccess ? 0 : gb_cuda_fail(be, rc, "cudaMemPoolSetAccess", err);
}

int gb_cuda_pool_open_to(struct cuda_backend *be, cudaMemPool_t pool, int device, bool *ret, struct gb_error *err) {
    struct cudaMemLocation location = {.type = cudaMemLocationTypeDevice, .id = device};
    enum cudaMemAccessFlags flags = cudaMemAccessFlagsProtNone;
    cudaError_t rc = cudaMemPoolGetAccess(&flags, pool, &location);

    if (rc != cudaSuccess)
        return gb_cuda_fail(be, rc, "cudaMemPoolGetAccess", err);
    *ret = flags == cudaMemAccessFlagsProtReadWrite;
    return 0;
}

int gb_cuda_pool_access_get(struct gb_backend *base, struct gb_pool *pool, int device, enum gb_pool_access *ret,
                            struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    bool open = false;

    if (check_device(be, device, err) < 0 || gb_cuda_enter(be, pool->device, err) < 0 ||
        gb_cuda_pool_open_to(be, pool->handle, device, &open, err) < 0)
        return -1;
    *ret = open ? GB_POOL_ACCESS_READ_WRITE : GB_POOL_ACCESS_NONE;
    return 0;
}

/* --- all streams of a device -------------------------------------------------------------------------------------- */

/* The gathering stream waits for the present end of each stream. A stream leaves the list only after it has drained.
 * Earlier waits of the gathering stream are part of the past that the event covers. */
int gb_cuda_event_record_device(struct gb_backend *base, struct gb_event *event, int device, struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    const char *call = "cudaEventRecord";
    struct gb_stream *stream;
    struct cuda_device *dev;
    cudaError_t rc = cudaSuccess;

    if (gb_cuda_enter(be, device, err) < 0)
        return -1;
    dev = &be->devices[device];
    pthread_mutex_lock(&dev->streams_lock);
    for (stream = dev->streams; stream && rc == cudaSuccess; stream = stream->next) {
        rc = cudaEventRecord(stream->end, stream->handle);
        if (rc == cudaSuccess) {
            call = "cudaStreamWaitEvent";
            rc = cudaStreamWaitEvent(dev->gather_stream, stream->end, cudaEventWaitDefault);
        }
        if (rc == cudaSuccess)
            call = "cudaEventRecord";
    }
    atomic_store(&event->covers_device, true);
    if (rc == cudaSuccess)
        rc = cudaEventRecord(event->handle, dev->gather_stream);
    pthread_mutex_unlock(&dev->streams_lock);
    return rc == cudaSuccess ? 0 : gb_cuda_fail(be, rc, call, err);
}
