/* Memory of other processes: of a GPU by descriptor or older handle, of the host by memfd. A client may hand over
 * anything, and CUDA answers some of it with codes that elsewhere mean the end of a device: a refusal is one only when
 * the device does not answer any more. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "backend/cuda/internal.h"
#include "backend/memfd.h"
#include "backend/native.h"

/* A handle is opened once for each device, however often it is imported; one of a pool each time. */
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
    gb_error_native_told(err, "cuda", (int)rc, cudaGetErrorName(rc), call, cudaGetErrorString(rc));
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

/* --- by descriptor ------------------------------------------------------------------------------------------------ */

/* CUDA's are devices or have no type. A file system in user space is not asked. */
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

/* The memory is of that device? */
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
        return gb_error_set(err, GB_ERR_UNSUPPORTED, "the driver has no virtual memory of a GPU");
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

/* --- by older handle ---------------------------------------------------------------------------------------------- */

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

/* --- by pool ------------------------------------------------------------------------------------------------------ */

/* What sort of descriptor CUDA gives for a pool, by one of our own. */
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

/* A file system in user space is not asked. */
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

/* Without the lock: it takes as long as a process and its context take to come and go. */
static int check_pool(struct cuda_backend *be, const struct gb_import *what, struct gb_error *err) {
    if (gb_cuda_enter(be, what->device, err) < 0)
        return -1;
    if (!be->devices[what->device].exports_fd)
        return gb_error_set(err, GB_ERR_UNSUPPORTED, "device %d cannot share pool memory by file descriptor",
                            what->device);
    if (what->offset + what->bytes > GB_EXPORT_POOL_MAX_BYTES)
        return gb_error_set(err, GB_ERR_CANNOT_ADOPT,
                            "importers of one allocation of a pool die above %llu bytes, and the buffer is to end at "
                            "byte %llu: the way vmm has no such limit",
                            GB_EXPORT_POOL_MAX_BYTES, (unsigned long long)(what->offset + what->bytes));
    return check_sort(be, what, err) < 0 ? -1 : gb_cuda_probe(what, err);
}

/* How much of the allocation follows the pointer. */
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

/* --- of a device -------------------------------------------------------------------------------------------------- */

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

/* One user less; NULL, or what is to be closed, out of the list. */
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

/* --- of the host -------------------------------------------------------------------------------------------------- */

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

/* Also when the device is dead: the pages are not CUDA's. */
static int end_host(struct cuda_backend *be, const struct gb_location *place, struct gb_error *err) {
    struct gb_host_segment *segment;

    pthread_mutex_lock(&be->imports_lock);
    segment = gb_host_ranges_find(&be->foreign, place->ptr);
    if (segment)
        gb_host_ranges_take(&be->foreign, segment);
    pthread_mutex_unlock(&be->imports_lock);
    if (!segment)
        return gb_error_set(err, GB_ERR_DEVICE_ERROR, "%p was not imported, or has ended already", place->ptr);
    if (segment->kind == GB_KIND_PINNED && gb_cuda_select(be, segment->device, NULL) == 0)
        (void)gb_cuda_unlock_pages(be, segment, NULL);
    gb_host_segment_unmap(segment);
    return 0;
}

/* --- all ---------------------------------------------------------------------------------------------------------- */

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
