/* The part of cuda.h that is used, for the files that make the driver up: driver.c, imported_pool.c. */
#ifndef GBC_DRIVER_CALLS_H
#define GBC_DRIVER_CALLS_H

#include <stdatomic.h>

#include "client/driver.h"

#define POSIX_FD 1        /* CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR */
#define LOCATION_DEVICE 1 /* CU_MEM_LOCATION_TYPE_DEVICE */
#define ACCESS_READ 1     /* CU_MEM_ACCESS_FLAGS_PROT_READ */
#define ACCESS_BOTH 3     /* CU_MEM_ACCESS_FLAGS_PROT_READWRITE */
#define IPC_LAZY_PEER 1   /* CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS */

struct access {
    int location_type;
    int location_id;
    int flags;
};

struct ipc_handle {
    unsigned char bytes[GBC_HANDLE_BYTES];
};

struct uuid {
    unsigned char bytes[16];
};

/* CUDA_CALL(name, exported symbol, parameters) */
#define CUDA_CALLS                                                                                                     \
    CUDA_CALL(cuInit, "cuInit", (unsigned flags))                                                                      \
    CUDA_CALL(cuGetErrorName, "cuGetErrorName", (int code, const char **ret))                                          \
    CUDA_CALL(cuDeviceGetCount, "cuDeviceGetCount", (int *ret))                                                        \
    CUDA_CALL(cuDeviceGetUuid, "cuDeviceGetUuid", (struct uuid * ret, int device))                                     \
    CUDA_CALL(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (void **ret, int device))                          \
    CUDA_CALL(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (int device))                                 \
    CUDA_CALL(cuCtxPushCurrent, "cuCtxPushCurrent_v2", (void *context))                                                \
    CUDA_CALL(cuCtxPopCurrent, "cuCtxPopCurrent_v2", (void **ret))                                                     \
    CUDA_CALL(cuMemImportFromShareableHandle, "cuMemImportFromShareableHandle",                                        \
              (uint64_t * ret, void *handle, int type))                                                                \
    CUDA_CALL(cuMemAddressReserve, "cuMemAddressReserve",                                                              \
              (uint64_t * ret, size_t bytes, size_t alignment, uint64_t wish, unsigned long long flags))               \
    CUDA_CALL(cuMemMap, "cuMemMap",                                                                                    \
              (uint64_t at, size_t bytes, size_t offset, uint64_t allocation, unsigned long long flags))               \
    CUDA_CALL(cuMemSetAccess, "cuMemSetAccess",                                                                        \
              (uint64_t at, size_t bytes, const struct access *access, size_t count))                                  \
    CUDA_CALL(cuMemUnmap, "cuMemUnmap", (uint64_t at, size_t bytes))                                                   \
    CUDA_CALL(cuMemAddressFree, "cuMemAddressFree", (uint64_t at, size_t bytes))                                       \
    CUDA_CALL(cuMemRelease, "cuMemRelease", (uint64_t allocation))                                                     \
    CUDA_CALL(cuMemPoolImportFromShareableHandle, "cuMemPoolImportFromShareableHandle",                                \
              (void **ret, void *handle, int type, unsigned long long flags))                                          \
    CUDA_CALL(cuMemPoolImportPointer, "cuMemPoolImportPointer", (uint64_t * ret, void *pool, struct ipc_handle *data)) \
    CUDA_CALL(cuMemPoolSetAccess, "cuMemPoolSetAccess", (void *pool, const struct access *access, size_t count))       \
    CUDA_CALL(cuMemPoolDestroy, "cuMemPoolDestroy", (void *pool))                                                      \
    CUDA_CALL(cuMemFree, "cuMemFree_v2", (uint64_t at))                                                                \
    CUDA_CALL(cuIpcOpenMemHandle, "cuIpcOpenMemHandle_v2", (uint64_t * ret, struct ipc_handle handle, unsigned flags)) \
    CUDA_CALL(cuIpcCloseMemHandle, "cuIpcCloseMemHandle", (uint64_t at))                                               \
    CUDA_CALL(cuIpcOpenEventHandle, "cuIpcOpenEventHandle", (void **ret, struct ipc_handle handle))                    \
    CUDA_CALL(cuEventRecord, "cuEventRecord", (void *event, void *stream))                                             \
    CUDA_CALL(cuEventSynchronize, "cuEventSynchronize", (void *event))                                                 \
    CUDA_CALL(cuEventDestroy, "cuEventDestroy_v2", (void *event))                                                      \
    CUDA_CALL(cuStreamWaitEvent, "cuStreamWaitEvent", (void *stream, void *event, unsigned flags))

struct gbc_driver {
    void *library;
    int devices;
    struct gbc_pools *pools;    /* that are imported */
    atomic_uint_least64_t kept; /* a bit for each device whose context has one more reference */
#define CUDA_CALL(name, symbol, parameters) int(*name) parameters;
    CUDA_CALLS
#undef CUDA_CALL
};

/* 0, or -1 with err, which names the call. */
int gbc_call_result(const struct gbc_driver *driver, const char *call, int code, struct gpubuf_error *err);

/* Within a function with d and err: 0, or -1 with err. */
#define CALL(name, ...) gbc_call_result(d, #name, d->name(__VA_ARGS__), err)

/* --- imported_pool.c ---------------------------------------------------------------------------------------------- */

struct gbc_pools *gbc_pools_new(void);        /* NULL: memory is exhausted */
void gbc_pools_free(struct gbc_pools *pools); /* none is imported any more; NULL is accepted */

/* Imports the pool and the pointer of the grant, or takes what the driver has of them already, and opens the pool to
 * the grant's other devices. *ret_at is valid until gbc_pool_leave. The device's context is current. */
int gbc_pool_enter(const struct gbc_driver *driver, const struct gbc_grant *grant, struct gbc_pool **ret,
                   uint64_t *ret_at, struct gpubuf_error *err);
void gbc_pool_leave(const struct gbc_driver *driver, struct gbc_pool *pool, uint64_t at);

#endif
