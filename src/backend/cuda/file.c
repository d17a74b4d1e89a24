/* Host memory, page-locked or not, in files of its own that other processes can map: the host backend's segments, by
 * address. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "backend/cuda/internal.h"
#include "backend/memfd.h"
#include "backend/native.h"

/* Page-locking touched pages takes a tenth of the time that it takes to touch them there. What the system cannot do,
 * the locking does; that it has no memory is reported at once. */
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

int gb_cuda_file_alloc(struct cuda_backend *be, int device, enum gb_kind kind, uint64_t bytes, void **ret,
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

/* The file that place is in; NULL: none. */
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

int gb_cuda_file_free(struct cuda_backend *be, const struct gb_location *place, uint64_t bytes, struct gb_error *err) {
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

    pthread_mutex_lock(&be->files_lock); /* a duplicate is made of a descriptor that is still open */
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
