/* What only the driver has: found by name at run time, so that nothing links libcuda. Its results and the runtime's
 * errors share their numbers since CUDA 10.1. */
#include <string.h>

#include "backend/cuda/internal.h"

/* The oldest CUDA whose functions have the types that struct cuda_driver gives them, and the search by version. */
#define DRIVER_VERSION 12000

struct entry {
    const char *symbol;
    void *at; /* a function pointer */
};

static bool find(const struct entry *entry, cudaError_t *ret_rc) {
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    void *fn = NULL;

    *ret_rc = cudaGetDriverEntryPointByVersion(entry->symbol, &fn, DRIVER_VERSION, cudaEnableLegacyStream, &found);
    if (*ret_rc != cudaSuccess || !fn || found != cudaDriverEntryPointSuccess)
        return false;
    memcpy(entry->at, &fn, sizeof(fn));
    return true;
}

int gb_cuda_driver_init(struct cuda_backend *be, struct gb_error *err) {
    struct cuda_driver *d = &be->driver;
    const struct entry needed[] = {
        {"cuMemsetD16Async", &d->fill16},
        {"cuMemsetD32Async", &d->fill32},
        {"cuMemsetD2D32Async", &d->fill_rows32},
        {"cuPointerGetAttribute", &d->pointer_attribute},
        {"cuDeviceGet", &d->device_get},
        {"cuDeviceGetAttribute", &d->device_attribute},
        {"cuMemGetAddressRange", &d->address_range},
    };
    const struct entry virtual_memory[] = {
        {"cuMemGetAllocationGranularity", &d->mem_granularity},
        {"cuMemCreate", &d->mem_create},
        {"cuMemRelease", &d->mem_release},
        {"cuMemAddressReserve", &d->mem_reserve},
        {"cuMemAddressFree", &d->mem_unreserve},
        {"cuMemMap", &d->mem_map},
        {"cuMemUnmap", &d->mem_unmap},
        {"cuMemSetAccess", &d->mem_set_access},
        {"cuMemRetainAllocationHandle", &d->mem_retain},
        {"cuMemExportToShareableHandle", &d->mem_export},
        {"cuMemImportFromShareableHandle", &d->mem_import},
        {"cuMemGetAllocationPropertiesFromHandle", &d->mem_properties},
    };
    cudaError_t rc = cudaSuccess;
    size_t i;

    for (i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
        if (find(&needed[i], &rc))
            continue;
        if (rc != cudaSuccess)
            return gb_cuda_fail(be, rc, "cudaGetDriverEntryPointByVersion", err);
        return gb_error_set(err, GB_ERR_UNSUPPORTED, "the driver has no %s", needed[i].symbol);
    }
    if (!find(&(struct entry){"cuStreamWaitValue32", &d->stream_wait_value}, &rc))
        d->stream_wait_value = NULL;
    d->has_virtual_memory = true;
    for (i = 0; i < sizeof(virtual_memory) / sizeof(virtual_memory[0]); i++) {
        if (!find(&virtual_memory[i], &rc))
            d->has_virtual_memory = false;
    }
    (void)cudaGetLastError();
    return 0;
}

int gb_cuda_device_attribute(struct cuda_backend *be, int device, CUdevice_attribute attribute) {
    CUdevice handle = 0;
    int value = 0;

    if (be->driver.device_get(&handle, device) != CUDA_SUCCESS ||
        be->driver.device_attribute(&value, attribute, handle) != CUDA_SUCCESS)
        return 0;
    return value;
}
