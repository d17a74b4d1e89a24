/* Memory of the kinds that no pool gives, handing managed memory over, and what CUDA knows of an address. */
#include <inttypes.h>
#include <unistd.h>

#include "backend/cuda/internal.h"

static const char *const alloc_calls[GB_KIND_COUNT] = {
    [GB_KIND_SHARED] = "cuMemCreate",   [GB_KIND_MANAGED] = "cudaMallocManaged",
    [GB_KIND_PINNED] = "cudaHostAlloc", [GB_KIND_PAGEABLE] = "mmap",
    [GB_KIND_IPC] = "cudaMalloc",
};

/* Smaller allocations may lie side by side in one piece of this size, and an importer maps the whole piece. */
#define IPC_UNIT (2ull << 20)

static uint64_t machine_bytes(void) {
    return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* "Out of memory" with the numbers that we know: of the device, or of the machine. */
static int fail_memory(struct cuda_backend *be, int device, enum gb_kind kind, uint64_t bytes, cudaError_t rc,
                       struct gb_error *err) {
    const char *call = alloc_calls[kind];
    uint64_t limit = be->devices[device].rec.total_bytes;
    size_t free_bytes = 0;
    size_t total_bytes = 0;

    if (rc != cudaErrorMemoryAllocation)
        return gb_cuda_fail(be, rc, call, err);
    if ((kind == GB_KIND_SHARED || kind == GB_KIND_IPC) && cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess)
        gb_error_numbers(err, total_bytes, total_bytes - free_bytes, bytes);
    else
        gb_error_numbers(err, kind == GB_KIND_MANAGED ? limit + machine_bytes() : machine_bytes(), 0, bytes);
    gb_error_set(err, GB_ERR_OUT_OF_MEMORY, "%" PRIu64 " bytes of kind %s are not to be had", bytes,
                 gb_kind_name(kind));
    return gb_cuda_fail(be, rc, call, err);
}

/* --- shared ------------------------------------------------------------------------------------------------------- */

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

/* The owner reads and writes, and so does every device that can. */
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

static int alloc_shared(struct cuda_backend *be, int device, uint64_t bytes, void **ret, struct gb_error *err) {
    const struct cuda_driver *d = &be->driver;
    CUmemAllocationProp prop = shared_prop(device);
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr at = 0;
    size_t size = 0;
    CUresult rc;

    if (gb_cuda_shared_size(be, device, bytes, &size, err) < 0)
        return -1;
    rc = d->mem_create(&handle, size, &prop, 0);
    if (rc != CUDA_SUCCESS)
        return fail_memory(be, device, GB_KIND_SHARED, bytes, (cudaError_t)rc, err);
    rc = d->mem_reserve(&at, size, 0, 0, 0);
    if (rc != CUDA_SUCCESS) {
        (void)d->mem_release(handle);
        return gb_cuda_fail(be, (cudaError_t)rc, "cuMemAddressReserve", err);
    }
    rc = d->mem_map(at, size, 0, handle, 0);
    /* The mapping keeps the memory; the handle can be had again from the address. */
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

/* --- all kinds ---------------------------------------------------------------------------------------------------- */

/* Memory that no process can import need not be whole pieces. */
static uint64_t malloc_size(const struct gb_device_rec *rec, uint64_t bytes) {
    return rec->cap_missing[GB_CAP_LEGACY_IPC][0] == '\0' ? gb_cuda_ipc_size(bytes) : bytes;
}

uint64_t gb_cuda_ipc_size(uint64_t bytes) {
    return (bytes + IPC_UNIT - 1) / IPC_UNIT * IPC_UNIT;
}

/* What the device and the machine have at most. */
static uint64_t most(const struct gb_device_rec *rec, enum gb_kind kind) {
    uint64_t of_device = gb_kind_of_device(kind) ? rec->total_bytes : 0;

    return of_device + (kind == GB_KIND_SHARED || kind == GB_KIND_IPC ? 0 : machine_bytes());
}

int gb_cuda_kind_alloc(struct gb_backend *base, int device, enum gb_kind kind, uint64_t bytes, void **ret,
                       struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    const struct gb_device_rec *rec;
    void *ptr = NULL;
    cudaError_t rc;
    int r;

    if (kind == GB_KIND_DEVICE || (unsigned)kind >= GB_KIND_COUNT)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "memory of kind %s comes from a pool", gb_kind_name(kind));
    if (bytes == 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "an allocation has at least one byte");
    if (gb_cuda_enter(be, device, err) < 0)
        return -1;
    rec = &be->devices[device].rec;
    if (rec->kind_missing[kind][0] != '\0')
        return gb_error_set(err, GB_ERR_UNSUPPORTED, "device %d has no memory of kind %s: %s", device,
                            gb_kind_name(kind), rec->kind_missing[kind]);
    /* Not asked of CUDA: it may call a size beyond its address space invalid. */
    if (bytes > most(rec, kind))
        return fail_memory(be, device, kind, bytes, cudaErrorMemoryAllocation, err);
    if (kind == GB_KIND_PAGEABLE || (kind == GB_KIND_PINNED && be->devices[device].locks_pages)) {
        r = gb_cuda_file_alloc(be, device, kind, bytes, ret, err);
        if (r <= 0)
            return r;
    }
    if (kind == GB_KIND_SHARED)
        return alloc_shared(be, device, bytes, ret, err);
    if (kind == GB_KIND_IPC)
        rc = cudaMalloc(&ptr, malloc_size(rec, bytes));
    else if (kind == GB_KIND_MANAGED)
        rc = cudaMallocManaged(&ptr, bytes, cudaMemAttachGlobal);
    else
        rc = cudaHostAlloc(&ptr, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
    if (rc != cudaSuccess)
        return fail_memory(be, device, kind, bytes, rc, err);
    *ret = ptr;
    return 0;
}

int gb_cuda_kind_free(struct gb_backend *base, const struct gb_location *place, uint64_t bytes, struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    cudaError_t rc;

    if (place->kind == GB_KIND_PAGEABLE) /* not CUDA's: freed also when the device is dead */
        return gb_cuda_file_free(be, place, bytes, err);
    if (gb_cuda_enter(be, place->device, err) < 0)
        return -1;
    switch (place->kind) {
    case GB_KIND_SHARED:
        return free_shared(be, place, bytes, err);
    case GB_KIND_MANAGED:
    case GB_KIND_IPC:
        rc = cudaFree(place->ptr);
        return rc == cudaSuccess ? 0 : gb_cuda_fail(be, rc, "cudaFree", err);
    case GB_KIND_PINNED:
        if (gb_cuda_file_has(be, place))
            return gb_cuda_file_free(be, place, bytes, err);
        rc = cudaFreeHost(place->ptr);
        return rc == cudaSuccess ? 0 : gb_cuda_fail(be, rc, "cudaFreeHost", err);
    default:
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "memory of kind %s goes back to its pool",
                            gb_kind_name(place->kind));
    }
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

/* --- what CUDA knows ---------------------------------------------------------------------------------------------- */

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
    cudaMemPool_t from = NULL;
    cudaError_t rc;

    if (gb_cuda_enter(be, place->device, err) < 0)
        return -1;
    rc = cudaPointerGetAttributes(&native, place->ptr);
    if (rc != cudaSuccess)
        return gb_cuda_fail(be, rc, "cudaPointerGetAttributes", err);
    if (native.type == cudaMemoryTypeDevice)
        from = gb_cuda_pool_of(be, place->ptr);
    *ret = (struct gb_mem_attr){
        .type = type_of(native.type),
        .device = native.type == cudaMemoryTypeUnregistered ? -1 : native.device,
        .device_address = (uintptr_t)native.devicePointer,
        .host_address = (uintptr_t)native.hostPointer,
        .from_pool = from != NULL,
        .this_pool = from && pool && from == pool->handle,
    };
    return 0;
}
