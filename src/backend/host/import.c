/* Memory of other processes in the host backend: memfds, as pageable memory. */
#include <errno.h>
#include <string.h>

#include "backend/host/host.h"
#include "backend/memfd.h"

static int check(struct gb_host *host, const struct gb_import *what, struct gb_error *err) {
    uint64_t end;

    if ((unsigned)what->way >= GB_EXPORT_WAYS || what->bytes == 0 ||
        __builtin_add_overflow(what->offset, what->bytes, &end) || end > INT64_MAX - 4096)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "there is no way %d, or there are no %llu bytes at offset %llu", (int)what->way,
                            (unsigned long long)what->bytes, (unsigned long long)what->offset);
    if (!gb_host_device_ok(host, what->device, "mmap", NULL))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "there is no device %d", what->device);
    if (what->way != GB_EXPORT_MEMFD)
        return gb_error_set(err, GB_ERR_UNSUPPORTED,
                            "the host backend has no memory of a GPU: only the way memfd is to be had");
    return gb_memfd_check(what->fd, end, err);
}

int gb_host_import(struct gb_backend *be, const struct gb_import *what, struct gb_location *ret, struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);
    struct gb_host_segment *segment;
    bool kept;

    if (check(host, what, err) < 0)
        return -1;
    segment = gb_host_segment_map_foreign(what->fd, what->offset, what->bytes);
    if (!segment)
        return gb_error_errno(err, errno == ENOMEM ? GB_ERR_OUT_OF_MEMORY : GB_ERR_CANNOT_ADOPT, "mmap", errno);
    segment->kind = GB_KIND_PAGEABLE;
    segment->device = what->device;
    pthread_mutex_lock(&host->lock);
    kept = gb_host_ranges_reserve(&host->spans) == 0;
    if (kept)
        gb_host_ranges_put(&host->spans, segment);
    pthread_mutex_unlock(&host->lock);
    if (!kept) {
        gb_host_segment_unmap(segment);
        return gb_host_no_memory(err, "mmap");
    }
    *ret = (struct gb_location){GB_KIND_PAGEABLE, what->device, segment->base + what->offset % 4096};
    return 0;
}

int gb_host_import_end(struct gb_backend *be, const struct gb_location *place, struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);
    struct gb_host_segment *segment;

    pthread_mutex_lock(&host->lock);
    segment = gb_host_ranges_find(&host->spans, place->ptr);
    if (segment && segment->foreign)
        gb_host_ranges_take(&host->spans, segment);
    else
        segment = NULL;
    pthread_mutex_unlock(&host->lock);
    if (!segment)
        return gb_host_error(err, GB_HOST_INVALID_VALUE, "munmap", "%p was not imported, or has ended already",
                             place->ptr);
    gb_host_segment_unmap(segment);
    return 0;
}
