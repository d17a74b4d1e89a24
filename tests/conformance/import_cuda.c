/* The importer's side of CUDA. */
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "import.h"

struct native {
    cudaStream_t stream;
    cudaEvent_t event;
    cudaMemPool_t pool;
    unsigned char *stage;
    PFN_cuMemUnmap_v10020 unmap;
    PFN_cuMemAddressFree_v10020 unreserve;
};

static int failed(cudaError_t rc, const char *call, char *why) {
    snprintf(why, 200, "%s: %s", call, cudaGetErrorName(rc));
    (void)cudaGetLastError();
    return -1;
}

static int find(const char *symbol, void *at, char *why) {
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    void *fn = NULL;
    cudaError_t rc = cudaGetDriverEntryPointByVersion(symbol, &fn, 12000, cudaEnableLegacyStream, &found);

    if (rc != cudaSuccess || !fn)
        return failed(rc, symbol, why);
    memcpy(at, &fn, sizeof(fn));
    return 0;
}

static int map_vmm(const struct import_request *request, int fd, struct import_view *view, char *why) {
    const struct gb_export *e = &request->export;
    struct native *n = view->native;
    CUmemAccessDesc desc = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = e->device},
                            .flags =
                                request->writable ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ};
    PFN_cuMemImportFromShareableHandle_v10020 import = NULL;
    PFN_cuMemAddressReserve_v10020 reserve = NULL;
    PFN_cuMemSetAccess_v10020 set_access = NULL;
    PFN_cuMemRelease_v10020 release = NULL;
    PFN_cuMemMap_v10020 map = NULL;
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr at = 0;
    CUresult rc;

    if (find("cuMemImportFromShareableHandle", &import, why) < 0 || find("cuMemAddressReserve", &reserve, why) < 0 ||
        find("cuMemSetAccess", &set_access, why) < 0 || find("cuMemRelease", &release, why) < 0 ||
        find("cuMemMap", &map, why) < 0 || find("cuMemUnmap", &n->unmap, why) < 0 ||
        find("cuMemAddressFree", &n->unreserve, why) < 0)
        return -1;
    rc = import(&handle, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (rc != CUDA_SUCCESS)
        return failed((cudaError_t)rc, "cuMemImportFromShareableHandle", why);
    rc = reserve(&at, e->map_bytes, 0, 0, 0);
    if (rc == CUDA_SUCCESS)
        rc = map(at, e->map_bytes, 0, handle, 0);
    (void)release(handle);
    if (rc == CUDA_SUCCESS)
        rc = set_access(at, e->map_bytes, &desc, 1);
    if (rc != CUDA_SUCCESS)
        return failed((cudaError_t)rc, "cuMemMap or cuMemSetAccess", why);
    view->base = (void *)(uintptr_t)at;
    return 0;
}

/* CUDA gives no memory from an imported pool, and does not make it current. */
static int refuses_to_allocate(const struct native *n, int device, char *why) {
    void *ptr = NULL;

    if (cudaMallocFromPoolAsync(&ptr, 4096, n->pool, n->stream) == cudaSuccess) {
        (void)cudaFreeAsync(ptr, n->stream);
        snprintf(why, 200, "an imported pool gave memory");
        return -1;
    }
    if (cudaDeviceSetMemPool(device, n->pool) == cudaSuccess) {
        snprintf(why, 200, "an imported pool was made current");
        return -1;
    }
    (void)cudaGetLastError();
    return 0;
}

/* The bytes that an imported pool has in use: those that this process imported. A driver may refuse to count them, as
 * 580 does on an H200. Returns 1; 0 if it refuses; -1. */
static int used_bytes(const struct native *n, uint64_t *ret, char *why) {
    cudaError_t rc = cudaMemPoolGetAttribute(n->pool, cudaMemPoolAttrUsedMemCurrent, ret);

    if (rc == cudaErrorInvalidValue) {
        (void)cudaGetLastError();
        return 0;
    }
    return rc == cudaSuccess ? 1 : failed(rc, "cudaMemPoolGetAttribute", why);
}

static int counts_imports(const struct native *n, uint64_t before, char *why) {
    uint64_t used = 0;
    int r = used_bytes(n, &used, why);

    if (r <= 0 || used > before)
        return r < 0 ? -1 : 0;
    snprintf(why, 200, "an imported pool counts %llu used bytes before and %llu after an import",
             (unsigned long long)before, (unsigned long long)used);
    return -1;
}

static int map_pool(const struct import_request *request, int fd, struct import_view *view, char *why) {
    struct cudaMemAccessDesc desc = {.location = {.type = cudaMemLocationTypeDevice, .id = request->export.device},
                                     .flags = cudaMemAccessFlagsProtReadWrite};
    enum cudaMemAccessFlags have = cudaMemAccessFlagsProtNone;
    struct cudaMemPoolPtrExportData data;
    struct native *n = view->native;
    uint64_t before = 0;
    cudaError_t rc;

    rc = cudaMemPoolImportFromShareableHandle(&n->pool, (void *)(uintptr_t)fd, cudaMemHandleTypePosixFileDescriptor, 0);
    if (rc != cudaSuccess)
        return failed(rc, "cudaMemPoolImportFromShareableHandle", why);
    rc = cudaMemPoolGetAccess(&have, n->pool, &desc.location);
    if (rc == cudaSuccess && have != cudaMemAccessFlagsProtReadWrite)
        rc = cudaMemPoolSetAccess(n->pool, &desc, 1);
    if (rc != cudaSuccess)
        return failed(rc, "cudaMemPoolSetAccess", why);
    if (refuses_to_allocate(n, request->export.device, why) < 0)
        return -1;
    if (used_bytes(n, &before, why) < 0)
        return -1;
    memcpy(&data, request->export.handle, sizeof(data));
    rc = cudaMemPoolImportPointer(&view->base, n->pool, &data);
    return rc == cudaSuccess ? counts_imports(n, before, why) : failed(rc, "cudaMemPoolImportPointer", why);
}

static int map_legacy(const struct import_request *request, struct import_view *view, char *why) {
    cudaIpcMemHandle_t handle;
    cudaError_t rc;

    memcpy(&handle, request->export.handle, sizeof(handle));
    rc = cudaIpcOpenMemHandle(&view->base, handle, cudaIpcMemLazyEnablePeerAccess);
    return rc == cudaSuccess ? 0 : failed(rc, "cudaIpcOpenMemHandle", why);
}

static int prepare(const struct import_request *request, struct import_view *view, char *why) {
    struct native *n = view->native;
    cudaError_t rc = cudaSuccess;

    if (!n) {
        view->native = n = calloc(1, sizeof(*n));
        rc = n ? cudaSetDevice(request->export.device) : cudaErrorMemoryAllocation;
        if (rc == cudaSuccess)
            rc = cudaStreamCreateWithFlags(&n->stream, cudaStreamNonBlocking);
        if (rc == cudaSuccess)
            rc = cudaHostAlloc((void **)&n->stage, 2 * IMPORT_PART_BYTES, cudaHostAllocDefault);
    }
    return rc == cudaSuccess ? 0 : failed(rc, "the importer's stream and memory", why);
}

int import_cuda_map(const struct import_request *request, int fd, struct import_view *view, char *why) {
    int r;

    if (prepare(request, view, why) < 0)
        return -1;
    if (request->export.way == GB_EXPORT_VMM)
        r = map_vmm(request, fd, view, why);
    else
        r = request->export.way == GB_EXPORT_POOL ? map_pool(request, fd, view, why) : map_legacy(request, view, why);
    if (r == 0)
        view->at = (unsigned char *)view->base + request->export.offset;
    return r;
}

int import_cuda_event(const struct import_request *request, struct import_view *view, char *why) {
    cudaIpcEventHandle_t handle;
    struct native *n;
    cudaError_t rc;

    if (prepare(request, view, why) < 0)
        return -1;
    n = view->native;
    memcpy(&handle, request->event, sizeof(handle));
    rc = cudaIpcOpenEventHandle(&n->event, handle);
    return rc == cudaSuccess ? 0 : failed(rc, "cudaIpcOpenEventHandle", why);
}

int import_cuda_queue(const struct import_request *request, struct import_view *view, char *why) {
    const struct import_parts p = import_parts_of(request->bytes);
    struct native *n = view->native;
    cudaError_t rc = cudaSuccess;

    memset(n->stage, 0x5a, 2 * IMPORT_PART_BYTES);
    if (n->event)
        rc = cudaStreamWaitEvent(n->stream, n->event, 0);
    if (rc == cudaSuccess)
        rc = cudaMemcpyAsync(n->stage, view->at, p.first_bytes, cudaMemcpyDeviceToHost, n->stream);
    if (rc == cudaSuccess && p.last_bytes > 0)
        rc = cudaMemcpyAsync(n->stage + p.first_bytes, view->at + p.last_at, p.last_bytes, cudaMemcpyDeviceToHost,
                             n->stream);
    return rc == cudaSuccess ? 0 : failed(rc, "cudaStreamWaitEvent or cudaMemcpyAsync", why);
}

int import_cuda_wait(const struct import_request *request, struct import_view *view, unsigned char **ret, char *why) {
    struct native *n = view->native;
    cudaError_t rc =
        request->export.way == GB_EXPORT_MEMFD ? cudaEventSynchronize(n->event) : cudaStreamSynchronize(n->stream);

    *ret = n->stage;
    return rc == cudaSuccess ? 0 : failed(rc, "waiting for the event", why);
}

int import_cuda_write(const struct import_request *request, struct import_view *view, const unsigned char *parts,
                      char *why) {
    const struct import_parts p = import_parts_of(request->bytes);
    struct native *n = view->native;
    cudaError_t rc = cudaMemcpyAsync(view->at, parts, p.first_bytes, cudaMemcpyHostToDevice, n->stream);

    if (rc == cudaSuccess && p.last_bytes > 0)
        rc = cudaMemcpyAsync(view->at + p.last_at, parts + p.first_bytes, p.last_bytes, cudaMemcpyHostToDevice,
                             n->stream);
    if (rc == cudaSuccess)
        rc = cudaStreamSynchronize(n->stream);
    return rc == cudaSuccess ? 0 : failed(rc, "writing through the mapping", why);
}

void import_cuda_unmap(const struct import_request *request, struct import_view *view) {
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)view->base;
    struct native *n = view->native;

    if (!n)
        return;
    if (view->base && request->export.way == GB_EXPORT_VMM) {
        (void)n->unmap(at, request->export.map_bytes);
        (void)n->unreserve(at, request->export.map_bytes);
    } else if (view->base && request->export.way == GB_EXPORT_POOL) {
        (void)cudaFreeAsync(view->base, n->stream);
        (void)cudaStreamSynchronize(n->stream);
    } else if (view->base && request->export.way == GB_EXPORT_LEGACY) {
        (void)cudaIpcCloseMemHandle(view->base);
    }
    if (n->pool)
        (void)cudaMemPoolDestroy(n->pool);
    if (n->event)
        (void)cudaEventDestroy(n->event);
    (void)cudaFreeHost(n->stage);
    (void)cudaStreamDestroy(n->stream);
    (void)cudaGetLastError();
    free(n);
    view->native = NULL;
}
