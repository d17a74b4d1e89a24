/* Memory and events of a GPU in other processes. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda/internal.h"

_Static_assert(sizeof(cudaIpcMemHandle_t) == GB_EXPORT_HANDLE_BYTES, "of memory");
_Static_assert(sizeof(cudaIpcEventHandle_t) == GB_EXPORT_HANDLE_BYTES, "of events");
_Static_assert(sizeof(struct cudaMemPoolPtrExportData) == GB_EXPORT_HANDLE_BYTES, "of pointers");

/* Why memory of the kind does not go that way; NULL where it may. */
static const char *why_not(enum gb_kind kind, enum gb_export_way way) {
    switch (way) {
    case GB_EXPORT_VMM:
        return kind == GB_KIND_SHARED ? NULL : "only memory of kind shared has a handle of the virtual-memory API";
    case GB_EXPORT_POOL:
        return kind == GB_KIND_DEVICE ? NULL : "the memory is from no pool";
    case GB_EXPORT_LEGACY:
        return kind == GB_KIND_IPC ? NULL : "only memory of kind ipc has one of CUDA's older handles";
    default:
        return kind == GB_KIND_PINNED || kind == GB_KIND_PAGEABLE
                   ? NULL
                   : "only memory of kinds pinned and pageable is in a file; this is a GPU's";
    }
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

static int export_vmm(struct cuda_backend *be, const struct gb_location *place, uint64_t bytes, struct gb_export *got,
                      struct gb_error *err) {
    const struct cuda_driver *d = &be->driver;
    CUmemGenericAllocationHandle handle = 0;
    size_t size = 0;
    CUresult rc;

    if (gb_cuda_shared_size(be, place->device, bytes, &size, err) < 0)
        return -1;
    rc = d->mem_retain(&handle, place->ptr);
    if (rc != CUDA_SUCCESS)
        return gb_cuda_fail(be, (cudaError_t)rc, "cuMemRetainAllocationHandle", err);
    rc = d->mem_export(&got->fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    (void)d->mem_release(handle);
    if (rc != CUDA_SUCCESS) {
        got->fd = -1;
        return gb_cuda_fail(be, (cudaError_t)rc, "cuMemExportToShareableHandle", err);
    }
    (void)fcntl(got->fd, F_SETFD, FD_CLOEXEC);
    got->map_bytes = size;
    return 0;
}

/* The pool's own handle, once for all: CUDA gives no pointer of a pool out before. */
static int pool_file(struct cuda_backend *be, struct gb_pool *pool, int *ret_fd, struct gb_error *err) {
    cudaError_t rc = cudaSuccess;
    int fd = -1;

    pthread_mutex_lock(&be->files_lock);
    if (pool->fd < 0) {
        rc = cudaMemPoolExportToShareableHandle(&fd, pool->handle, cudaMemHandleTypePosixFileDescriptor, 0);
        if (rc == cudaSuccess && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0)
            pool->fd = fd;
    }
    fd = rc == cudaSuccess ? fcntl(pool->fd, F_DUPFD_CLOEXEC, 3) : -1;
    pthread_mutex_unlock(&be->files_lock);
    if (rc != cudaSuccess)
        return gb_cuda_fail(be, rc, "cudaMemPoolExportToShareableHandle", err);
    if (fd < 0)
        return gb_error_errno(err, GB_ERR_SATURATED, "fcntl", errno);
    *ret_fd = fd;
    return 0;
}

static int export_pool(struct cuda_backend *be, const struct gb_location *place, uint64_t bytes, struct gb_pool *pool,
                       struct gb_export *got, struct gb_error *err) {
    struct cudaMemPoolPtrExportData data;
    cudaError_t rc;

    if (!pool)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "which pool the memory is from is not said");
    if (!pool->exportable)
        return gb_error_set(err, GB_ERR_UNSUPPORTED, "the pool was not created exportable%s",
                            pool->is_default ? ": a device's default pool never is" : "");
    if (bytes > GB_EXPORT_POOL_MAX_BYTES)
        return gb_error_set(err, GB_ERR_UNSUPPORTED,
                            "%" PRIu64 " bytes are more than %llu: importers of one allocation of a pool die above "
                            "that; kind shared has no such limit",
                            bytes, GB_EXPORT_POOL_MAX_BYTES);
    if (pool_file(be, pool, &got->fd, err) < 0)
        return -1;
    memset(&data, 0, sizeof(data));
    rc = cudaMemPoolExportPointer(&data, place->ptr);
    if (rc != cudaSuccess) {
        gb_export_done(got);
        return gb_cuda_fail(be, rc, "cudaMemPoolExportPointer", err);
    }
    memcpy(got->handle, &data, sizeof(data));
    got->handle_bytes = sizeof(data);
    got->map_bytes = bytes;
    return 0;
}

static int export_legacy(struct cuda_backend *be, const struct gb_location *place, uint64_t bytes,
                         struct gb_export *got, struct gb_error *err) {
    const char *missing = be->devices[place->device].rec.cap_missing[GB_CAP_LEGACY_IPC];
    cudaIpcMemHandle_t handle;
    cudaError_t rc;

    if (missing[0] != '\0')
        return gb_error_set(err, GB_ERR_UNSUPPORTED, "%s", missing);
    memset(&handle, 0, sizeof(handle));
    rc = cudaIpcGetMemHandle(&handle, place->ptr);
    if (rc != cudaSuccess)
        return gb_cuda_fail(be, rc, "cudaIpcGetMemHandle", err);
    memcpy(got->handle, &handle, sizeof(handle));
    got->handle_bytes = sizeof(handle);
    got->map_bytes = gb_cuda_ipc_size(bytes);
    return 0;
}

int gb_cuda_export(struct gb_backend *base, const struct gb_location *place, uint64_t bytes, struct gb_pool *pool,
                   enum gb_export_way way, bool writable, struct gb_export *ret, struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    struct gb_export got = {.way = way, .fd = -1, .device = place->device};
    const char *why;
    int r;

    if ((unsigned)place->kind >= GB_KIND_COUNT || (unsigned)way >= GB_EXPORT_WAYS || bytes == 0 || place->device < 0 ||
        place->device >= be->device_count)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "there is no kind %d, no way %d, no device %d, or nothing to export", (int)place->kind,
                            (int)way, place->device);
    why = why_not(place->kind, way);
    if (why)
        return gb_error_set(err, GB_ERR_UNSUPPORTED, "%s", why);
    if (way == GB_EXPORT_MEMFD) {
        if (place->kind == GB_KIND_PINNED && !gb_cuda_file_has(be, place))
            return gb_error_set(err, GB_ERR_UNSUPPORTED,
                                "CUDA does not page-lock memory that is in a file here, so this is in none");
        return gb_cuda_file_export(be, place, bytes, writable, ret, err);
    }
    if (gb_cuda_enter(be, place->device, err) < 0)
        return -1;
    if (way == GB_EXPORT_VMM)
        r = export_vmm(be, place, bytes, &got, err);
    else
        r = way == GB_EXPORT_POOL ? export_pool(be, place, bytes, pool, &got, err)
                                  : export_legacy(be, place, bytes, &got, err);
    if (r == 0)
        *ret = got;
    return r;
}

/* --- events ------------------------------------------------------------------------------------------------------- */

int gb_cuda_event_create_shared(struct gb_backend *base, int device, struct gb_event **ret, struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    struct gb_event *event;
    const char *missing;
    cudaError_t rc;

    if (gb_cuda_enter(be, device, err) < 0)
        return -1;
    missing = be->devices[device].rec.cap_missing[GB_CAP_LEGACY_IPC];
    if (missing[0] != '\0')
        return gb_error_set(err, GB_ERR_UNSUPPORTED, "device %d has no events for other processes: %s", device,
                            missing);
    event = calloc(1, sizeof(*event));
    if (!event)
        return gb_error_errno(err, GB_ERR_INTERNAL, "calloc", ENOMEM);
    event->device = device;
    event->shared = true;
    rc = cudaEventCreateWithFlags(&event->handle, cudaEventInterprocess | cudaEventDisableTiming);
    if (rc != cudaSuccess) {
        free(event);
        return gb_cuda_fail(be, rc, "cudaEventCreateWithFlags", err);
    }
    *ret = event;
    return 0;
}

int gb_cuda_event_export(struct gb_backend *base, struct gb_event *event, unsigned char ret[GB_EXPORT_HANDLE_BYTES],
                         struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    cudaIpcEventHandle_t handle;
    cudaError_t rc;

    if (!event->shared)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the event was not created for other processes");
    if (gb_cuda_enter(be, event->device, err) < 0)
        return -1;
    memset(&handle, 0, sizeof(handle));
    rc = cudaIpcGetEventHandle(&handle, event->handle);
    if (rc != cudaSuccess)
        return gb_cuda_fail(be, rc, "cudaIpcGetEventHandle", err);
    memcpy(ret, &handle, sizeof(handle));
    return 0;
}
