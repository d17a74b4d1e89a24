/* What a GPU is, what it can do, which kinds of memory it has, and why not the others. */
#include <stdio.h>
#include <string.h>

#include "backend/cuda/internal.h"
#include "base/encoding.h"

static void uuid_text(const cudaUUID_t *uuid, char ret[GB_UUID_TEXT_SIZE]) {
    gb_uuid_text(uuid->bytes, stpcpy(ret, "GPU-"));
}

static void lacks(struct gb_device_rec *rec, bool present, enum gb_capability capability, const char *why) {
    if (!present)
        snprintf(rec->cap_missing[capability], sizeof(rec->cap_missing[capability]), "%s", why);
}

/* A kind is missing for the reason of the capability that it needs. */
static void kind_needs(struct gb_device_rec *rec, enum gb_kind kind, enum gb_capability capability) {
    memcpy(rec->kind_missing[kind], rec->cap_missing[capability], sizeof(rec->kind_missing[kind]));
}

static bool exports_virtual_memory(struct cuda_backend *be, int device) {
    return be->driver.has_virtual_memory &&
           gb_cuda_device_attribute(be, device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) &&
           gb_cuda_device_attribute(be, device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
}

static bool reaches_any_peer(struct cuda_backend *be, int device) {
    int can = 0;
    int peer;

    for (peer = 0; peer < be->device_count && !can; peer++) {
        if (peer != device && cudaDeviceCanAccessPeer(&can, device, peer) != cudaSuccess)
            (void)cudaGetLastError();
    }
    return can != 0;
}

static void describe_capabilities(struct cuda_backend *be, const struct cudaDeviceProp *prop,
                                  struct gb_device_rec *ret) {
    bool exports_pool = (prop->memoryPoolSupportedHandleTypes & cudaMemHandleTypePosixFileDescriptor) != 0;

    lacks(ret, prop->memoryPoolsSupported, GB_CAP_MEMORY_POOLS, "the device has no memory pools");
    lacks(ret, exports_pool, GB_CAP_POOL_EXPORT_FD, "the device cannot share pools by file descriptor");
    lacks(ret, exports_virtual_memory(be, ret->index), GB_CAP_VMM_EXPORT_FD,
          "the device or driver cannot share virtual memory by file descriptor");
    lacks(ret, prop->managedMemory, GB_CAP_MANAGED_MEMORY, "the device has no managed memory");
    lacks(ret, prop->concurrentManagedAccess, GB_CAP_CONCURRENT_MANAGED_ACCESS,
          "CPU and GPU take turns with managed memory on this device");
    lacks(ret, prop->canMapHostMemory, GB_CAP_MAPPED_PINNED_MEMORY, "the device cannot map host memory");
    lacks(ret, prop->pageableMemoryAccess, GB_CAP_PAGEABLE_MEMORY_ACCESS,
          "the device cannot read memory that CUDA does not know");
    lacks(ret, prop->unifiedAddressing, GB_CAP_UNIFIED_ADDRESSING,
          "the device's addresses are not those of the process");
    /* Even an integrated device's pool memory is the GPU's alone: CUDA grants the CPU no access to it. */
    lacks(ret, false, GB_CAP_CPU_ACCESS, "CUDA gives the CPU no access to the memory of pools");
    lacks(ret, reaches_any_peer(be, ret->index), GB_CAP_PEER_ACCESS,
          be->device_count < 2 ? "there is no other device" : "CUDA finds no way from this device to another's memory");
    lacks(ret, prop->ipcEventSupported && !prop->integrated, GB_CAP_LEGACY_IPC,
          "the device has no CUDA IPC of the older kind");
}

void gb_cuda_describe(const struct cudaDeviceProp *prop, int device, struct gb_device_rec *ret) {
    memset(ret, 0, sizeof(*ret));
    ret->index = device;
    uuid_text(&prop->uuid, ret->uuid);
    snprintf(ret->name, sizeof(ret->name), "%.*s", (int)sizeof(ret->name) - 1, prop->name);
    ret->total_bytes = prop->totalGlobalMem;
    ret->integrated = prop->integrated != 0;
    ret->cpu_access = false;
    ret->compute_major = prop->major;
    ret->compute_minor = prop->minor;
}

static void version_text(int version, char ret[GB_RELEASE_SIZE]) {
    snprintf(ret, GB_RELEASE_SIZE, "%d.%d", version / 1000, version % 1000 / 10);
}

void gb_cuda_describe_releases(struct cuda_backend *be) {
    char release[GB_RELEASE_SIZE];
    int runtime = 0;
    int driver = 0;
    int i;

    gb_driver_release("", release);
    if (cudaDriverGetVersion(&driver) != cudaSuccess || cudaRuntimeGetVersion(&runtime) != cudaSuccess)
        (void)cudaGetLastError();
    for (i = 0; i < be->device_count; i++) {
        struct gb_device_rec *rec = &be->devices[i].rec;

        memcpy(rec->driver, release, sizeof(rec->driver));
        version_text(driver, rec->cuda_driver);
        version_text(runtime, rec->cuda_runtime);
    }
}

int gb_cuda_describe_reach(struct cuda_backend *be, int device, struct gb_error *err) {
    struct gb_device_rec *ret = &be->devices[device].rec;
    struct cudaDeviceProp prop;
    cudaError_t rc;

    memset(&prop, 0, sizeof(prop));
    rc = cudaGetDeviceProperties(&prop, device);
    if (rc != cudaSuccess)
        return gb_cuda_fail(be, rc, "cudaGetDeviceProperties", err);
    describe_capabilities(be, &prop, ret);
    kind_needs(ret, GB_KIND_DEVICE, GB_CAP_MEMORY_POOLS);
    kind_needs(ret, GB_KIND_SHARED, GB_CAP_VMM_EXPORT_FD);
    kind_needs(ret, GB_KIND_MANAGED, GB_CAP_MANAGED_MEMORY);
    kind_needs(ret, GB_KIND_PINNED, GB_CAP_MAPPED_PINNED_MEMORY);
    /* Without pools this kind is the device's only memory of its own, whether or not its handles can be had. */
    if (be->devices[device].has_pools)
        kind_needs(ret, GB_KIND_IPC, GB_CAP_LEGACY_IPC);
    ret->kind_cpu[GB_KIND_PINNED] = true;
    ret->kind_cpu[GB_KIND_PAGEABLE] = true;
    /* Elsewhere the CPU could, but every page would have to come over the bus: a copy is the better way. */
    ret->kind_cpu[GB_KIND_MANAGED] = ret->integrated;
    ret->managed_attach = prop.managedMemory && !prop.concurrentManagedAccess;
    return 0;
}
