/* Memory of the host backend in other processes: by memfd. */
#include "backend/host/host.h"
#include "backend/memfd.h"

/* Why memory of the kind does not go that way; NULL where it does. */
static const char *why_not(const struct gb_host *host, enum gb_kind kind, enum gb_export_way way) {
    if (way == GB_EXPORT_VMM)
        return "the host backend has no virtual memory of a GPU";
    if (way == GB_EXPORT_POOL && !host->ipc_fake)
        return "pools of the host backend are memory of this process alone";
    if (way == GB_EXPORT_POOL)
        return kind == GB_KIND_DEVICE ? NULL : "the memory is from no pool";
    if (way == GB_EXPORT_LEGACY && !host->legacy_fake)
        return "CUDA's handles name memory of a GPU only";
    if (way == GB_EXPORT_LEGACY)
        return kind == GB_KIND_IPC ? NULL : "only memory of kind ipc has one of CUDA's older handles";
    if (kind == GB_KIND_DEVICE)
        return "memory of a pool lies beside other buffers' in one piece; kinds shared, pinned and pageable have a "
               "file "
               "of their own";
    if (kind == GB_KIND_MANAGED || kind == GB_KIND_IPC)
        return "only kinds shared, pinned and pageable have a file of their own";
    return NULL;
}

static void fake_legacy(uint64_t bytes, const void *base, struct gb_export *ret) {
    *ret = (struct gb_export){
        .way = GB_EXPORT_LEGACY, .fd = -1, .handle_bytes = GB_EXPORT_HANDLE_BYTES, .map_bytes = bytes};
    gb_host_fake_handle(base, ret->handle);
}

int gb_host_export(struct gb_backend *be, const struct gb_location *place, uint64_t bytes, struct gb_pool *pool,
                   enum gb_export_way way, bool writable, struct gb_export *ret, struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);
    const struct gb_host_segment *segment;
    const char *why;
    uint64_t offset;
    int r;

    if ((unsigned)place->kind >= GB_KIND_COUNT || (unsigned)way >= GB_EXPORT_WAYS)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "there is no kind %d, or no way %d", (int)place->kind,
                            (int)way);
    why = why_not(host, place->kind, way);
    if (why)
        return gb_error_set(err, GB_ERR_UNSUPPORTED, "%s", why);
    if (way == GB_EXPORT_POOL)
        return gb_host_fake_pool(host, place, bytes, pool, ret, err);
    pthread_mutex_lock(&host->lock); /* a duplicate is made of a descriptor that is still open */
    segment = gb_host_ranges_find(&host->spans, place->ptr);
    offset = segment ? (uintptr_t)place->ptr - (uintptr_t)segment->base : 0;
    if (segment && segment->kind == place->kind && bytes > 0 && bytes <= segment->bytes - offset &&
        way == GB_EXPORT_LEGACY) {
        fake_legacy(bytes, segment->base, ret);
        r = 0;
    } else if (segment && segment->kind == place->kind && bytes > 0 && bytes <= segment->bytes - offset)
        r = gb_memfd_export(segment->fd, segment->bytes, offset, writable, ret, err);
    else
        r = gb_host_error(err, GB_HOST_INVALID_VALUE, "memfd_create", "%p is not %llu bytes of kind %s", place->ptr,
                          (unsigned long long)bytes, gb_kind_name(place->kind));
    if (r == 0)
        ret->device = segment->device;
    pthread_mutex_unlock(&host->lock);
    return r;
}

/* This process's threads do the work: no other process can wait for it. */
int gb_host_event_create_shared(struct gb_backend *be, int device, struct gb_event **ret, struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);

    if (!gb_host_device_ok(host, device, "cudaEventCreateWithFlags", err))
        return -1;
    if (!host->ipc_fake)
        return gb_error_set(err, GB_ERR_UNSUPPORTED, "events of the host backend are of this process alone");
    if (gb_host_event_create(be, device, ret, err) < 0)
        return -1;
    (*ret)->shared = true;
    return 0;
}

int gb_host_event_export(struct gb_backend *be, struct gb_event *event, unsigned char ret[GB_EXPORT_HANDLE_BYTES],
                         struct gb_error *err) {
    (void)be;
    if (!event->shared)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the event was not created for other processes");
    gb_host_fake_handle(event, ret);
    return 0;
}
