/* Memory and events that other processes use, memory of other processes, and strided copies. A client may hand over any
 * descriptor or handle; a refusal by CUDA makes the backend dead only if the device does not answer any more. cuda.c
 * puts the functions into the vtable. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "backend/common.h"
#include "backend/cuda/internal.h"

/* --- export ------------------------------------------------------------------------------------------------------- */

_Static_assert(sizeof(cudaIpcMemHandle_t) == GB_EXPORT_HANDLE_BYTES, "of memory");
_Static_assert(sizeof(cudaIpcEventHandle_t) == GB_EXPORT_HANDLE_BYTES, "of events");
_Static_assert(sizeof(struct cudaMemPoolPtrExportData) == GB_EXPORT_HANDLE_BYTES, "of pointers");

/* Why memory of the kind does not go that way, or NULL if it may. */
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

/* --- export: memory ----------------------------------------------------------------------------------------------- */

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

/* Exports the pool's handle, once. CUDA exports no pointer of a pool before. Returns 0 or -1. */
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
        return gb_native_refuse(err, be->base.domain, GB_NATIVE_INVALID_VALUE, "cudaMemPoolExportToShareableHandle",
                                "the pool was not created exportable%s",
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
        return gb_native_refuse(err, be->base.domain, GB_NATIVE_NOT_SUPPORTED, "cudaIpcGetMemHandle", "%s", missing);
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
        return way == GB_EXPORT_MEMFD ? gb_error_set(err, GB_ERR_UNSUPPORTED, "%s", why)
                                      : gb_native_refuse(err, be->base.domain, GB_NATIVE_INVALID_VALUE,
                                                         gb_native_way_call(way), "%s", why);
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

/* --- export: events ----------------------------------------------------------------------------------------------- */

int gb_cuda_event_create_shared(struct gb_backend *base, int device, struct gb_event **ret, struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    struct gb_event *event;
    const char *missing;
    cudaError_t rc;

    if (gb_cuda_enter(be, device, err) < 0)
        return -1;
    missing = be->devices[device].rec.cap_missing[GB_CAP_LEGACY_IPC];
    if (missing[0] != '\0')
        return gb_native_refuse(err, be->base.domain, GB_NATIVE_NOT_SUPPORTED, "cudaIpcGetEventHandle",
                                "device %d has no events for other processes: %s", device, missing);
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

/* --- import ------------------------------------------------------------------------------------------------------- */

/* CUDA refuses some descriptors and handles with codes that elsewhere mean a dead device. So the device is queried
 * before such a code counts as its death. */

/* A handle is opened once for each device, however often it is imported. A handle of a pool is opened each time. */
struct cuda_import {
    struct cuda_import *next;
    enum gb_export_way way; /* not MEMFD */
    cudaMemPool_t pool;     /* POOL */
    int device;
    CUdeviceptr base;
    size_t size;
    unsigned refs;
    unsigned char handle[GB_EXPORT_HANDLE_BYTES];
};

static int refused(struct cuda_backend *be, cudaError_t rc, const char *call, struct gb_error *err) {
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    cudaError_t alive;

    (void)cudaGetLastError();
    if (rc == cudaErrorMemoryAllocation)
        return gb_cuda_fail(be, rc, call, err);
    alive = cudaMemGetInfo(&free_bytes, &total_bytes);
    if (alive != cudaSuccess)
        return gb_cuda_fail(be, alive, "cudaMemGetInfo", err);
    gb_error_native_text(err, "cuda", (int)rc, cudaGetErrorName(rc), call, cudaGetErrorString(rc));
    return gb_error_set(err, GB_ERR_CANNOT_ADOPT,
                        "CUDA does not take it for such memory (%s: %s): give what cuMemExportToShareableHandle, "
                        "cudaIpcGetMemHandle or cudaMemPoolExportPointer gave, in another process and while the "
                        "memory lives",
                        call, cudaGetErrorString(rc));
}

static int too_long(const struct gb_import *what, size_t size, struct gb_error *err) {
    return gb_error_set(
        err, GB_ERR_CANNOT_ADOPT,
        "the allocation has %zu bytes, and the buffer is to end at byte %llu: offset and bytes must lie "
        "within it",
        size, (unsigned long long)(what->offset + what->bytes));
}

/* --- import by descriptor ----------------------------------------------------------------------------------------- */

/* Returns true if the descriptor may be CUDA's, which are devices or have no type. Calls no file system in user
 * space. */
static int check_type(int fd, struct gb_error *err) {
    struct statx st;

    if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st) < 0)
        return gb_error_errno(err, GB_ERR_CANNOT_ADOPT, "statx", errno);
    if (S_ISREG(st.stx_mode) || S_ISDIR(st.stx_mode) || S_ISFIFO(st.stx_mode) || S_ISSOCK(st.stx_mode))
        return gb_error_set(err, GB_ERR_CANNOT_ADOPT,
                            "the descriptor is a file, a folder, a pipe or a socket, not memory of a GPU: give what "
                            "cuMemExportToShareableHandle gave");
    return 0;
}

/* Returns true if the memory is of that device. */
static int check_device(struct cuda_backend *be, const struct gb_import *what, CUmemGenericAllocationHandle handle,
                        struct gb_error *err) {
    CUmemAllocationProp prop;
    CUresult rc;

    memset(&prop, 0, sizeof(prop));
    rc = be->driver.mem_properties(&prop, handle);
    if (rc != CUDA_SUCCESS)
        return refused(be, (cudaError_t)rc, "cuMemGetAllocationPropertiesFromHandle", err);
    if (prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE || prop.location.id != what->device)
        return gb_error_set(err, GB_ERR_CANNOT_ADOPT, "the memory is not of device %d: it is of %s %d", what->device,
                            prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE ? "device" : "another place,",
                            prop.location.id);
    return 0;
}

static int map_handle(struct cuda_backend *be, struct cuda_import *import, CUmemGenericAllocationHandle handle,
                      struct gb_error *err) {
    const struct cuda_driver *d = &be->driver;
    CUresult rc = d->mem_reserve(&import->base, import->size, 0, 0, 0);

    if (rc != CUDA_SUCCESS)
        return refused(be, (cudaError_t)rc, "cuMemAddressReserve", err);
    rc = d->mem_map(import->base, import->size, 0, handle, 0);
    if (rc != CUDA_SUCCESS) {
        (void)d->mem_unreserve(import->base, import->size);
        return refused(be, (cudaError_t)rc, "cuMemMap", err);
    }
    if (gb_cuda_open_to_devices(be, import->device, import->base, import->size, err) == 0)
        return 0;
    (void)d->mem_unmap(import->base, import->size);
    (void)d->mem_unreserve(import->base, import->size);
    return -1;
}

static int open_vmm(struct cuda_backend *be, const struct gb_import *what, struct cuda_import *import,
                    struct gb_error *err) {
    CUmemGenericAllocationHandle handle = 0;
    CUresult rc;
    int r;

    if (!be->driver.has_virtual_memory)
        return gb_native_refuse(err, be->base.domain, GB_NATIVE_NOT_SUPPORTED, "cuMemImportFromShareableHandle",
                                "the driver has no virtual memory of a GPU");
    if (check_type(what->fd, err) < 0 ||
        gb_cuda_shared_size(be, what->device, what->map_bytes ? what->map_bytes : what->offset + what->bytes,
                            &import->size, err) < 0)
        return -1;
    if (what->offset + what->bytes > import->size)
        return too_long(what, import->size, err);
    rc = be->driver.mem_import(&handle, (void *)(intptr_t)what->fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (rc != CUDA_SUCCESS)
        return refused(be, (cudaError_t)rc, "cuMemImportFromShareableHandle", err);
    r = check_device(be, what, handle, err);
    if (r == 0)
        r = map_handle(be, import, handle, err);
    (void)be->driver.mem_release(handle); /* the mapping keeps the memory */
    return r;
}

/* --- import by cudaIpcMemHandle_t --------------------------------------------------------------------------------- */

static struct cuda_import *known_locked(struct cuda_backend *be, const struct gb_import *what) {
    struct cuda_import *import = be->imports;

    while (import && (import->way != GB_EXPORT_LEGACY || import->device != what->device ||
                      memcmp(import->handle, what->handle, sizeof(what->handle)) != 0))
        import = import->next;
    return import;
}

static int open_legacy(struct cuda_backend *be, const struct gb_import *what, struct cuda_import *import,
                       struct gb_error *err) {
    struct cudaPointerAttributes about = {.device = -1};
    cudaIpcMemHandle_t handle;
    void *at = NULL;
    cudaError_t rc;

    memcpy(&handle, what->handle, sizeof(handle));
    memcpy(import->handle, what->handle, sizeof(import->handle));
    rc = cudaIpcOpenMemHandle(&at, handle, cudaIpcMemLazyEnablePeerAccess);
    if (rc != cudaSuccess)
        return refused(be, rc, "cudaIpcOpenMemHandle", err);
    rc = (cudaError_t)be->driver.address_range(&import->base, &import->size, (CUdeviceptr)(uintptr_t)at);
    if (rc == cudaSuccess)
        rc = cudaPointerGetAttributes(&about, at);
    if (rc == cudaSuccess && about.device == what->device && import->base == (CUdeviceptr)(uintptr_t)at)
        return 0;
    (void)cudaIpcCloseMemHandle(at);
    if (rc != cudaSuccess)
        return refused(be, rc, "cuMemGetAddressRange", err);
    return gb_error_set(err, GB_ERR_CANNOT_ADOPT, "the memory is not of device %d: it is of device %d", what->device,
                        about.device);
}

/* --- import by pool ----------------------------------------------------------------------------------------------- */

/* Finds the sort of CUDA's descriptors of pools, by one of this process's own. Returns 0 or -1. */
static int learn_sort_locked(struct cuda_backend *be, int device, struct gb_error *err) {
    const struct gb_pool_config config = {.release_threshold_bytes = GB_UNLIMITED, .exportable = true};
    struct gb_pool *pool = NULL;
    cudaError_t rc;
    struct stat st;
    int fd = -1;
    int r = -1;

    if (be->pool_sort.known)
        return 0;
    if (gb_cuda_pool_create(&be->base, device, &config, &pool, err) < 0)
        return -1;
    rc = cudaMemPoolExportToShareableHandle(&fd, pool->handle, cudaMemHandleTypePosixFileDescriptor, 0);
    if (rc != cudaSuccess)
        (void)gb_cuda_fail(be, rc, "cudaMemPoolExportToShareableHandle", err);
    else if (fstat(fd, &st) < 0)
        gb_error_errno(err, GB_ERR_INTERNAL, "fstat", errno);
    else
        r = 0;
    if (r == 0)
        be->pool_sort = (struct cuda_pool_sort){true, st.st_mode & S_IFMT, st.st_dev, st.st_rdev};
    if (fd >= 0)
        close(fd);
    gb_cuda_pool_destroy(&be->base, pool);
    return r;
}

/* Compares the descriptor's sort with that of a pool. Calls no file system in user space. */
static int check_sort(struct cuda_backend *be, const struct gb_import *what, struct gb_error *err) {
    const struct cuda_pool_sort *sort = &be->pool_sort;
    struct statx st;
    int r;

    pthread_mutex_lock(&be->imports_lock);
    r = learn_sort_locked(be, what->device, err);
    pthread_mutex_unlock(&be->imports_lock);
    if (r < 0)
        return -1;
    if (statx(what->fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st) < 0)
        return gb_error_errno(err, GB_ERR_CANNOT_ADOPT, "statx", errno);
    if ((st.stx_mode & S_IFMT) == sort->type && makedev(st.stx_dev_major, st.stx_dev_minor) == sort->dev &&
        makedev(st.stx_rdev_major, st.stx_rdev_minor) == sort->rdev)
        return 0;
    return gb_error_set(err, GB_ERR_CANNOT_ADOPT,
                        "the descriptor is none of a pool: give what cudaMemPoolExportToShareableHandle gave");
}

/* Runs without the lock, because it takes as long as a process and its context. */
static int check_pool(struct cuda_backend *be, const struct gb_import *what, struct gb_error *err) {
    if (gb_cuda_enter(be, what->device, err) < 0)
        return -1;
    if (!be->devices[what->device].exports_fd)
        return gb_native_refuse(err, be->base.domain, GB_NATIVE_NOT_SUPPORTED, "cudaMemPoolImportFromShareableHandle",
                                "device %d cannot share pool memory by file descriptor", what->device);
    if (what->offset + what->bytes > GB_EXPORT_POOL_MAX_BYTES)
        return gb_error_set(err, GB_ERR_CANNOT_ADOPT,
                            "importers of one allocation of a pool die above %llu bytes, and the buffer is to end at "
                            "byte %llu: the way vmm has no such limit",
                            GB_EXPORT_POOL_MAX_BYTES, (unsigned long long)(what->offset + what->bytes));
    return check_sort(be, what, err) < 0 ? -1 : gb_cuda_probe(what, err);
}

/* The bytes of the allocation behind the pointer. */
static int measure(struct cuda_backend *be, const struct gb_import *what, struct cuda_import *import, void *at,
                   struct gb_error *err) {
    struct cudaPointerAttributes about = {.device = -1};
    CUdeviceptr base = 0;
    size_t size = 0;
    cudaError_t rc = (cudaError_t)be->driver.address_range(&base, &size, (CUdeviceptr)(uintptr_t)at);

    import->base = (CUdeviceptr)(uintptr_t)at;
    import->size = size - (import->base - base);
    if (rc == cudaSuccess)
        rc = cudaPointerGetAttributes(&about, at);
    if (rc != cudaSuccess)
        return refused(be, rc, "cuMemGetAddressRange", err);
    if (about.device == what->device)
        return 0;
    return gb_error_set(err, GB_ERR_CANNOT_ADOPT, "the memory is not of device %d: it is of device %d", what->device,
                        about.device);
}

static int open_pool(struct cuda_backend *be, const struct gb_import *what, struct cuda_import *import,
                     struct gb_error *err) {
    struct cudaMemPoolPtrExportData data;
    void *at = NULL;
    cudaError_t rc;

    memcpy(&data, what->handle, sizeof(data));
    rc = cudaMemPoolImportFromShareableHandle(&import->pool, (void *)(intptr_t)what->fd,
                                              cudaMemHandleTypePosixFileDescriptor, 0);
    if (rc != cudaSuccess)
        return refused(be, rc, "cudaMemPoolImportFromShareableHandle", err);
    rc = cudaMemPoolImportPointer(&at, import->pool, &data);
    if (rc != cudaSuccess) {
        (void)cudaMemPoolDestroy(import->pool);
        return refused(be, rc, "cudaMemPoolImportPointer", err);
    }
    if (measure(be, what, import, at, err) == 0)
        return 0;
    (void)cudaFree(at);
    (void)cudaMemPoolDestroy(import->pool);
    return -1;
}

static int close_pool(struct cuda_backend *be, const struct cuda_import *import, struct gb_error *err) {
    cudaError_t rc = cudaFree((void *)(uintptr_t)import->base);

    if (rc != cudaSuccess)
        return gb_cuda_fail(be, rc, "cudaFree", err);
    rc = cudaMemPoolDestroy(import->pool);
    return rc == cudaSuccess ? 0 : gb_cuda_fail(be, rc, "cudaMemPoolDestroy", err);
}

/* --- import of a device's memory ---------------------------------------------------------------------------------- */

static int close_import(struct cuda_backend *be, const struct cuda_import *import, struct gb_error *err) {
    cudaError_t rc;

    if (gb_cuda_enter(be, import->device, err) < 0)
        return -1;
    if (import->way == GB_EXPORT_POOL)
        return close_pool(be, import, err);
    if (import->way == GB_EXPORT_LEGACY) {
        rc = cudaIpcCloseMemHandle((void *)(uintptr_t)import->base);
        return rc == cudaSuccess ? 0 : gb_cuda_fail(be, rc, "cudaIpcCloseMemHandle", err);
    }
    rc = (cudaError_t)be->driver.mem_unmap(import->base, import->size);
    if (rc != cudaSuccess)
        return gb_cuda_fail(be, rc, "cuMemUnmap", err);
    rc = (cudaError_t)be->driver.mem_unreserve(import->base, import->size);
    return rc == cudaSuccess ? 0 : gb_cuda_fail(be, rc, "cuMemAddressFree", err);
}

static struct cuda_import *make_locked(struct cuda_backend *be, const struct gb_import *what, struct gb_error *err) {
    struct cuda_import *import = what->way == GB_EXPORT_LEGACY ? known_locked(be, what) : NULL;
    int r;

    if (import)
        return import;
    import = calloc(1, sizeof(*import));
    if (!import) {
        gb_error_errno(err, GB_ERR_INTERNAL, "calloc", ENOMEM);
        return NULL;
    }
    import->way = what->way;
    import->device = what->device;
    if (what->way == GB_EXPORT_VMM)
        r = open_vmm(be, what, import, err);
    else
        r = what->way == GB_EXPORT_POOL ? open_pool(be, what, import, err) : open_legacy(be, what, import, err);
    if (r < 0) {
        free(import);
        return NULL;
    }
    import->next = be->imports;
    be->imports = import;
    return import;
}

/* Drops a user. Takes an import without users out of the list and returns it, to be closed; else returns NULL. */
static struct cuda_import *leave_locked(struct cuda_backend *be, struct cuda_import *import) {
    struct cuda_import **at = &be->imports;

    if (import->refs > 0 && --import->refs > 0)
        return NULL;
    while (*at != import)
        at = &(*at)->next;
    *at = import->next;
    return import;
}

static int import_device(struct cuda_backend *be, const struct gb_import *what, struct gb_location *ret,
                         struct gb_error *err) {
    struct cuda_import *import;
    struct cuda_import *unused = NULL;
    int r = -1;

    if (gb_cuda_enter(be, what->device, err) < 0)
        return -1;
    pthread_mutex_lock(&be->imports_lock);
    import = make_locked(be, what, err);
    if (import && what->offset + what->bytes > import->size) {
        too_long(what, import->size, err);
        unused = import->refs == 0 ? leave_locked(be, import) : NULL;
    } else if (import) {
        import->refs++;
        *ret = (struct gb_location){what->way == GB_EXPORT_VMM ? GB_KIND_SHARED : GB_KIND_IPC, what->device,
                                    (void *)(uintptr_t)(import->base + what->offset)};
        r = 0;
    }
    if (unused)
        (void)close_import(be, unused, NULL);
    pthread_mutex_unlock(&be->imports_lock);
    free(unused);
    return r;
}

static int end_device(struct cuda_backend *be, const struct gb_location *place, struct gb_error *err) {
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)place->ptr;
    struct cuda_import *import;
    int r = 0;

    pthread_mutex_lock(&be->imports_lock);
    import = be->imports;
    while (import && (import->device != place->device || at < import->base || at - import->base >= import->size))
        import = import->next;
    if (!import)
        r = gb_error_set(err, GB_ERR_DEVICE_ERROR, "%p was not imported, or has ended already", place->ptr);
    else if (import->refs == 1)
        r = close_import(be, import, err);
    if (import)
        import = r == 0 ? leave_locked(be, import) : NULL;
    pthread_mutex_unlock(&be->imports_lock);
    free(import);
    return r;
}

/* --- import of host memory ---------------------------------------------------------------------------------------- */

static int import_host(struct cuda_backend *be, const struct gb_import *what, struct gb_location *ret,
                       struct gb_error *err) {
    struct gb_host_segment *segment;
    bool kept;
    int r = 1;

    if (gb_memfd_check(what->fd, what->offset + what->bytes, err) < 0 || gb_cuda_enter(be, what->device, err) < 0)
        return -1;
    segment = gb_host_segment_map_foreign(what->fd, what->offset, what->bytes);
    if (!segment)
        return gb_error_errno(err, errno == ENOMEM ? GB_ERR_OUT_OF_MEMORY : GB_ERR_CANNOT_ADOPT, "mmap", errno);
    if (be->devices[what->device].locks_pages)
        r = gb_cuda_lock_pages(be, segment, err);
    segment->kind = r == 0 ? GB_KIND_PINNED : GB_KIND_PAGEABLE;
    segment->device = what->device;
    if (r < 0) {
        gb_host_segment_unmap(segment);
        return -1;
    }
    pthread_mutex_lock(&be->imports_lock);
    kept = gb_host_ranges_reserve(&be->foreign) == 0;
    if (kept)
        gb_host_ranges_put(&be->foreign, segment);
    atomic_fetch_add(&be->others_bytes, kept ? segment->bytes : 0);
    pthread_mutex_unlock(&be->imports_lock);
    if (!kept) {
        if (segment->kind == GB_KIND_PINNED)
            (void)gb_cuda_unlock_pages(be, segment, NULL);
        gb_host_segment_unmap(segment);
        return gb_error_errno(err, GB_ERR_INTERNAL, "realloc", ENOMEM);
    }
    *ret = (struct gb_location){segment->kind, what->device, segment->base + what->offset % 4096};
    return 0;
}

/* Works even if the device is dead, because the pages are not CUDA's. */
static int end_host(struct cuda_backend *be, const struct gb_location *place, struct gb_error *err) {
    struct gb_host_segment *segment;

    pthread_mutex_lock(&be->imports_lock);
    segment = gb_host_ranges_find(&be->foreign, place->ptr);
    if (segment) {
        gb_host_ranges_take(&be->foreign, segment);
        atomic_fetch_sub(&be->others_bytes, segment->bytes);
    }
    pthread_mutex_unlock(&be->imports_lock);
    if (!segment)
        return gb_error_set(err, GB_ERR_DEVICE_ERROR, "%p was not imported, or has ended already", place->ptr);
    if (segment->kind == GB_KIND_PINNED && gb_cuda_select(be, segment->device, NULL) == 0)
        (void)gb_cuda_unlock_pages(be, segment, NULL);
    gb_host_segment_unmap(segment);
    return 0;
}

/* --- import: the vtable ------------------------------------------------------------------------------------------- */

int gb_cuda_import(struct gb_backend *base, const struct gb_import *what, struct gb_location *ret,
                   struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    uint64_t end;

    if ((unsigned)what->way >= GB_EXPORT_WAYS || what->bytes == 0 || what->device < 0 ||
        what->device >= be->device_count || __builtin_add_overflow(what->offset, what->bytes, &end) ||
        end > INT64_MAX - GB_HOST_SEGMENT_BYTES || what->map_bytes > INT64_MAX)
        return gb_error_set(
            err, GB_ERR_INVALID_ARGUMENT, "there is no way %d, no device %d, or there are no %llu bytes at offset %llu",
            (int)what->way, what->device, (unsigned long long)what->bytes, (unsigned long long)what->offset);
    if (what->way == GB_EXPORT_POOL && check_pool(be, what, err) < 0)
        return -1;
    return what->way == GB_EXPORT_MEMFD ? import_host(be, what, ret, err) : import_device(be, what, ret, err);
}

int gb_cuda_import_end(struct gb_backend *base, const struct gb_location *place, struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);

    return gb_kind_of_device(place->kind) ? end_device(be, place, err) : end_host(be, place, err);
}

void gb_cuda_imports_free(struct cuda_backend *be) {
    while (be->imports) {
        struct cuda_import *import = be->imports;

        be->imports = import->next;
        (void)close_import(be, import, NULL);
        free(import);
    }
    while (be->foreign.count > 0) {
        const struct gb_host_segment *segment = be->foreign.sorted[0];
        const struct gb_location place = {segment->kind, segment->device, segment->base};

        (void)end_host(be, &place, NULL);
    }
    free(be->foreign.sorted);
    be->foreign = (struct gb_host_ranges){0};
}

/* --- strided copies ----------------------------------------------------------------------------------------------- */

/* One side of a copy: its address and its pitches. */
struct side {
    char *ptr;
    uint64_t pitch;
    uint64_t plane;
};

struct job {
    struct cuda_backend *be;
    struct gb_stream *stream;
    enum cudaMemcpyKind kind;
    struct side dst;
    struct side src;
    uint64_t width;
    uint64_t rows;
    uint64_t planes;
};

/* The largest step from row to row, which every device reports. */
static uint64_t pitch_max(const struct job *job) {
    int pitch = gb_cuda_device_attribute(job->be, job->stream->device, CU_DEVICE_ATTRIBUTE_MAX_PITCH);

    return pitch > 0 ? (uint64_t)pitch : 0;
}

static int copy_row(const struct job *job, char *dst, const char *src, struct gb_error *err) {
    cudaError_t rc = cudaMemcpyAsync(dst, src, job->width, job->kind, job->stream->handle);

    return rc == cudaSuccess ? 0 : gb_cuda_fail(job->be, rc, "cudaMemcpyAsync", err);
}

static int copy_row_by_row(const struct job *job, struct gb_error *err) {
    uint64_t plane;
    uint64_t row;

    for (plane = 0; plane < job->planes; plane++) {
        for (row = 0; row < job->rows; row++) {
            if (copy_row(job, job->dst.ptr + plane * job->dst.plane + row * job->dst.pitch,
                         job->src.ptr + plane * job->src.plane + row * job->src.pitch, err) < 0)
                return -1;
        }
    }
    return 0;
}

static int copy_rows(const struct job *job, struct gb_error *err) {
    cudaError_t rc = cudaMemcpy2DAsync(job->dst.ptr, job->dst.pitch, job->src.ptr, job->src.pitch, job->width,
                                       job->rows, job->kind, job->stream->handle);

    return rc == cudaSuccess ? 0 : gb_cuda_fail(job->be, rc, "cudaMemcpy2DAsync", err);
}

static struct cudaPitchedPtr pitched(const struct job *job, const struct side *side) {
    return (struct cudaPitchedPtr){
        .ptr = side->ptr, .pitch = side->pitch, .xsize = job->width, .ysize = side->plane / side->pitch};
}

static int copy_planes(const struct job *job, struct gb_error *err) {
    struct cudaMemcpy3DParms parms = {
        .srcPtr = pitched(job, &job->src),
        .dstPtr = pitched(job, &job->dst),
        .extent = {.width = job->width, .height = job->rows, .depth = job->planes},
        .kind = job->kind,
    };
    cudaError_t rc = cudaMemcpy3DAsync(&parms, job->stream->handle);

    return rc == cudaSuccess ? 0 : gb_cuda_fail(job->be, rc, "cudaMemcpy3DAsync", err);
}

static int run(struct job *job, struct gb_error *err) {
    uint64_t most;

    if (job->rows == 1 && job->planes > 1) {
        job->rows = job->planes;
        job->planes = 1;
        job->src.pitch = job->src.plane;
        job->dst.pitch = job->dst.plane;
    }
    if (job->rows == 1)
        return copy_row(job, job->dst.ptr, job->src.ptr, err);
    most = pitch_max(job);
    if (job->src.pitch > most || job->dst.pitch > most)
        return copy_row_by_row(job, err);
    return job->planes == 1 ? copy_rows(job, err) : copy_planes(job, err);
}

int gb_cuda_box(struct gb_backend *base, const struct gb_location *place, void *pinned, const struct gb_box *box,
                enum gb_copy_direction direction, struct gb_stream *stream, struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    const struct side memory = {place->ptr, box->pitch, box->plane};
    const struct side packed = {pinned, box->packed_pitch, box->packed_plane};
    bool pack = direction == GB_COPY_FROM_DEVICE;
    struct job job = {
        .be = be,
        .stream = stream,
        .kind = pack ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice,
        .dst = pack ? packed : memory,
        .src = pack ? memory : packed,
        .width = box->width,
        .rows = box->rows,
        .planes = box->planes,
    };
    uint64_t extent;
    uint64_t packed_extent;

    if (!gb_kind_of_device(place->kind) || place->device != stream->device || (!pack && direction != GB_COPY_TO_DEVICE))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "a box of memory of kind %d of device %d, on a stream of device %d, in direction %d",
                            (int)place->kind, place->device, stream->device, (int)direction);
    if (gb_box_check(box, &extent, &packed_extent, err) < 0 || gb_cuda_enter(be, stream->device, err) < 0)
        return -1;
    return extent == 0 ? 0 : run(&job, err);
}
