/* Memory of the kinds that no pool gives: shared, managed, pinned, pageable; handing managed memory over; what is known
 * of an address. Each allocation is one segment without a pool. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "backend/host/host.h"

/* The call that CUDA would be asked with. */
static const char *const alloc_calls[GB_KIND_COUNT] = {
    [GB_KIND_DEVICE] = "cudaMallocFromPoolAsync",
    [GB_KIND_SHARED] = "cuMemCreate",
    [GB_KIND_MANAGED] = "cudaMallocManaged",
    [GB_KIND_PINNED] = "cudaHostAlloc",
    [GB_KIND_PAGEABLE] = "mmap",
    [GB_KIND_IPC] = "cudaMalloc",
};

static const char *const free_calls[GB_KIND_COUNT] = {
    [GB_KIND_DEVICE] = "cudaFreeAsync", [GB_KIND_SHARED] = "cuMemUnmap", [GB_KIND_MANAGED] = "cudaFree",
    [GB_KIND_PINNED] = "cudaFreeHost",  [GB_KIND_PAGEABLE] = "munmap",   [GB_KIND_IPC] = "cudaFree",
};

/* --- budget ------------------------------------------------------------------------------------------------------- */

static uint64_t *spent(struct gb_host *host, int device, enum gb_kind kind) {
    return gb_kind_of_device(kind) ? &host->devices[device].reserved_bytes : &host->own_bytes;
}

static int reserve(struct gb_host *host, int device, enum gb_kind kind, uint64_t bytes, struct gb_error *err) {
    uint64_t *used = spent(host, device, kind);
    uint64_t limit = used == &host->own_bytes ? host->machine_bytes : host->devices[device].total_bytes;
    uint64_t before;
    bool fits;

    pthread_mutex_lock(&host->lock);
    before = *used;
    fits = bytes <= limit - before;
    if (fits)
        *used += bytes;
    pthread_mutex_unlock(&host->lock);
    if (fits)
        return 0;
    gb_error_numbers(err, limit, before, bytes);
    return gb_host_error(err, GB_HOST_NO_MEMORY, alloc_calls[kind], "%llu bytes do not fit: %llu of %llu are in use",
                         (unsigned long long)bytes, (unsigned long long)before, (unsigned long long)limit);
}

static void unreserve(struct gb_host *host, int device, enum gb_kind kind, uint64_t bytes) {
    pthread_mutex_lock(&host->lock);
    *spent(host, device, kind) -= bytes;
    pthread_mutex_unlock(&host->lock);
}

/* --- life --------------------------------------------------------------------------------------------------------- */

static struct gb_host_segment *map(const struct gb_host *host, enum gb_kind kind, uint64_t bytes) {
    struct gb_host_segment *segment;

    if (kind == GB_KIND_MANAGED && host->managed_attach)
        return gb_host_segment_map_twice(bytes);
    if (kind == GB_KIND_MANAGED || kind == GB_KIND_IPC)
        return gb_host_segment_map(bytes, kind == GB_KIND_IPC && host->discrete);
    segment = gb_host_segment_map_file(bytes, kind == GB_KIND_SHARED && host->discrete);
    if (segment && kind == GB_KIND_PINNED)
        madvise(segment->real, bytes, MADV_POPULATE_WRITE);
    return segment;
}

int gb_host_kind_alloc(struct gb_backend *be, int device, enum gb_kind kind, uint64_t bytes, void **ret,
                       struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);
    struct gb_host_segment *segment;
    bool kept = false;

    if (kind == GB_KIND_DEVICE || (unsigned)kind >= GB_KIND_COUNT)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "memory of kind %s comes from a pool", gb_kind_name(kind));
    if (bytes == 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "an allocation has at least one byte");
    if (!gb_host_device_ok(host, device, alloc_calls[kind], err) || reserve(host, device, kind, bytes, err) < 0)
        return -1;
    segment = map(host, kind, bytes);
    if (segment) {
        segment->kind = kind;
        segment->device = device;
        pthread_mutex_lock(&host->lock);
        kept = gb_host_ranges_reserve(&host->spans) == 0;
        if (kept)
            gb_host_ranges_put(&host->spans, segment);
        pthread_mutex_unlock(&host->lock);
    }
    if (kept) {
        *ret = segment->base;
        return 0;
    }
    gb_host_segment_unmap(segment);
    unreserve(host, device, kind, bytes);
    return gb_host_error(err, GB_HOST_NO_MEMORY, alloc_calls[kind], "the machine does not give %llu bytes",
                         (unsigned long long)bytes);
}

int gb_host_kind_free(struct gb_backend *be, const struct gb_location *place, uint64_t bytes, struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);
    struct gb_host_segment *segment;
    bool known;

    if ((unsigned)place->kind >= GB_KIND_COUNT)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "there is no kind %d", (int)place->kind);
    pthread_mutex_lock(&host->lock);
    segment = gb_host_ranges_find(&host->spans, place->ptr);
    known = segment && !segment->pool && !segment->foreign && segment->base == place->ptr &&
            segment->kind == place->kind && segment->bytes == bytes;
    if (known) {
        gb_host_ranges_take(&host->spans, segment);
        *spent(host, segment->device, segment->kind) -= bytes;
    }
    pthread_mutex_unlock(&host->lock);
    if (!known)
        return gb_host_error(err, GB_HOST_INVALID_VALUE, free_calls[place->kind],
                             "%p is not %llu bytes of kind %s, or freed already", place->ptr, (unsigned long long)bytes,
                             gb_kind_name(place->kind));
    gb_host_segment_unmap(segment);
    return 0;
}

void gb_host_kinds_free(struct gb_host *host) {
    size_t i;

    for (i = 0; i < host->spans.count; i++) {
        if (!host->spans.sorted[i]->pool)
            gb_host_segment_unmap(host->spans.sorted[i]);
    }
    host->spans.count = 0;
}

/* --- managed memory ----------------------------------------------------------------------------------------------- */

int gb_host_prefetch(struct gb_backend *be, const struct gb_location *place, uint64_t bytes, bool to_cpu,
                     struct gb_stream *stream, struct gb_error *err) {
    (void)be;
    (void)place;
    (void)bytes;
    (void)to_cpu;
    (void)stream;
    (void)err;
    return 0;
}

/* The CPU's view opens and closes in stream order; that the device keeps off meanwhile is asked when work is queued. */
int gb_host_attach(struct gb_backend *be, const struct gb_location *place, bool to_cpu, struct gb_stream *stream,
                   struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);
    struct gb_host_op op = {.kind = GB_HOST_PROTECT};
    struct gb_host_segment *segment;
    bool known;
    int r = 0;

    if (!host->managed_attach || place->kind != GB_KIND_MANAGED)
        return 0;
    pthread_mutex_lock(&host->lock);
    segment = gb_host_ranges_find(&host->spans, place->ptr);
    known = segment && !segment->pool && segment->kind == GB_KIND_MANAGED && segment->base == place->ptr;
    if (known) {
        op.u.protect.base = segment->base;
        op.u.protect.bytes = segment->bytes;
        op.u.protect.open = to_cpu;
        r = gb_host_submit_locked(stream, &op, "cudaStreamAttachMemAsync", err);
        segment->with_cpu = r == 0 ? to_cpu : segment->with_cpu;
    }
    pthread_mutex_unlock(&host->lock);
    if (!known)
        return gb_host_error(err, GB_HOST_INVALID_VALUE, "cudaStreamAttachMemAsync", "%p is not managed memory",
                             place->ptr);
    return r;
}

/* --- what is known of an address ---------------------------------------------------------------------------------- */

static bool pinned_locked(const struct gb_host *host, const void *p) {
    const struct gb_host_pin *pin;

    for (pin = host->pins; pin; pin = pin->next) {
        if ((uintptr_t)p - (uintptr_t)pin->segment->real < pin->segment->bytes)
            return true;
    }
    return false;
}

int gb_host_attributes(struct gb_backend *be, const struct gb_location *place, struct gb_pool *pool,
                       struct gb_mem_attr *ret, struct gb_error *err) {
    static const enum gb_memory_type types[GB_KIND_COUNT] = {GB_MEMORY_DEVICE,       GB_MEMORY_DEVICE,
                                                             GB_MEMORY_MANAGED,      GB_MEMORY_HOST,
                                                             GB_MEMORY_UNREGISTERED, GB_MEMORY_DEVICE};
    struct gb_host *host = gb_host_of(be);
    struct gb_mem_attr attr = {.type = GB_MEMORY_UNREGISTERED, .device = -1};
    uint64_t address = (uintptr_t)place->ptr;
    const struct gb_host_segment *segment;

    if (!place->ptr)
        return gb_host_error(err, GB_HOST_INVALID_VALUE, "cudaPointerGetAttributes", "there is no address to ask of");
    pthread_mutex_lock(&host->lock);
    segment = gb_host_ranges_find(&host->spans, place->ptr);
    if (segment) {
        attr.type = types[segment->kind];
        attr.from_pool = segment->pool != NULL;
        attr.this_pool = segment->pool && segment->pool == pool;
        attr.device = segment->pool ? segment->pool->device : segment->device;
    } else if (pinned_locked(host, place->ptr)) {
        attr.type = GB_MEMORY_HOST;
        attr.device = place->device;
    }
    if (attr.type == GB_MEMORY_UNREGISTERED)
        attr.device = -1;
    else
        attr.device_address = address;
    if (!segment || segment->base == segment->real || segment->kind == GB_KIND_MANAGED)
        attr.host_address = address;
    pthread_mutex_unlock(&host->lock);
    *ret = attr;
    return 0;
}
