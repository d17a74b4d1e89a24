/* Memory of the host backend that is not from a pool (shared, managed, pinned, pageable), attaching managed memory, and
 * exports and imports by memfd. Each allocation is one segment without a pool. host.c puts the functions into the
 * vtable. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/common.h"
#include "backend/host/arena.h"
#include "backend/host/internal.h"

/* --- kinds -------------------------------------------------------------------------------------------------------- */

/* The name of CUDA's call for the kind. */
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

/* --- kinds: limits ------------------------------------------------------------------------------------------------ */

static uint64_t *spent(struct gb_host *host, int device, enum gb_kind kind) {
    return gb_kind_of_device(kind) ? &host->devices[device].reserved_bytes : &host->own_bytes;
}

static int reserve(struct gb_host *host, int device, enum gb_kind kind, uint64_t bytes, struct gb_error *err) {
    uint64_t *used = spent(host, device, kind);
    uint64_t limit = used == &host->own_bytes ? host->machine_bytes : host->devices[device].total_bytes;
    uint64_t before;
    uint64_t left;

    gb_host_left_read(host);
    pthread_mutex_lock(&host->lock);
    before = *used;
    left = gb_host_left_locked(host);
    if (bytes <= limit - before && bytes <= left)
        *used += bytes;
    pthread_mutex_unlock(&host->lock);
    if (bytes <= limit - before && bytes <= left)
        return 0;
    if (bytes <= limit - before)
        return gb_host_left_refuse(host, left, bytes, alloc_calls[kind], err);
    gb_error_numbers(err, limit, before, bytes);
    return gb_host_error(err, GB_HOST_NO_MEMORY, alloc_calls[kind], "%llu bytes do not fit: %llu of %llu are in use",
                         (unsigned long long)bytes, (unsigned long long)before, (unsigned long long)limit);
}

static void unreserve(struct gb_host *host, int device, enum gb_kind kind, uint64_t bytes) {
    pthread_mutex_lock(&host->lock);
    *spent(host, device, kind) -= bytes;
    pthread_mutex_unlock(&host->lock);
}

/* --- kinds: allocation and free ----------------------------------------------------------------------------------- */

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

/* Of an allocation whose bytes are reserved. Takes the segment, which may be NULL. */
static int add_segment(struct gb_host *host, int device, enum gb_kind kind, uint64_t bytes,
                       struct gb_host_segment *segment, void **ret, struct gb_error *err) {
    bool added = false;

    if (segment) {
        segment->kind = kind;
        segment->device = device;
        pthread_mutex_lock(&host->lock);
        added = gb_host_ranges_reserve(&host->spans) == 0;
        if (added)
            gb_host_ranges_put(&host->spans, segment);
        pthread_mutex_unlock(&host->lock);
    }
    if (added) {
        *ret = segment->base;
        return 0;
    }
    gb_host_segment_unmap(segment);
    unreserve(host, device, kind, bytes);
    return gb_host_error(err, GB_HOST_NO_MEMORY, alloc_calls[kind], "the machine does not give %llu bytes",
                         (unsigned long long)bytes);
}

int gb_host_kind_alloc(struct gb_backend *be, int device, enum gb_kind kind, uint64_t bytes, void **ret,
                       struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);

    if (kind == GB_KIND_DEVICE || (unsigned)kind >= GB_KIND_COUNT)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "memory of kind %s comes from a pool", gb_kind_name(kind));
    if (bytes == 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "an allocation has at least one byte");
    if (!gb_host_device_ok(host, device, alloc_calls[kind], err) || reserve(host, device, kind, bytes, err) < 0)
        return -1;
    return add_segment(host, device, kind, bytes, map(host, kind, bytes), ret, err);
}

/* Kinds that have a file of their own. */
bool gb_host_kind_keeps(struct gb_backend *be, enum gb_kind kind) {
    (void)be;
    return kind == GB_KIND_SHARED || kind == GB_KIND_PINNED || kind == GB_KIND_PAGEABLE;
}

int gb_host_kind_take(struct gb_backend *be, int device, enum gb_kind kind, uint64_t bytes, int fd, void **ret,
                      struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);
    bool hidden = kind == GB_KIND_SHARED && host->discrete;

    if (!gb_host_kind_keeps(be, kind))
        return gb_error_set(err, GB_ERR_UNSUPPORTED, "memory of kind %s has no file of its own", gb_kind_name(kind));
    if (bytes == 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "an allocation has at least one byte");
    if (gb_memfd_check(fd, bytes, err) < 0 || !gb_host_device_ok(host, device, alloc_calls[kind], err) ||
        reserve(host, device, kind, bytes, err) < 0)
        return -1;
    return add_segment(host, device, kind, bytes, gb_host_segment_map_kept(fd, bytes, hidden), ret, err);
}

/* cudaFree and cudaFreeHost wait for the work of the device, or of all devices, and other calls wait for them. */
static void wait_as_cuda_locked(struct gb_host *host, const struct gb_location *place) {
    if (!host->free_waits || place->kind == GB_KIND_SHARED || place->kind == GB_KIND_PAGEABLE)
        return;
    host->freeing++;
    gb_host_drain_locked(host, gb_kind_of_device(place->kind) ? place->device : -1);
    host->freeing--;
    pthread_cond_broadcast(&host->freed);
}

int gb_host_kind_free(struct gb_backend *be, const struct gb_location *place, uint64_t bytes, struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);
    struct gb_host_segment *segment;
    bool known;

    if ((unsigned)place->kind >= GB_KIND_COUNT)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "there is no kind %d", (int)place->kind);
    pthread_mutex_lock(&host->lock);
    wait_as_cuda_locked(host, place);
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

/* The CPU's view opens and closes in stream order. Work that is queued on the device meanwhile is refused. */
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

/* --- attributes of an address ------------------------------------------------------------------------------------- */

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
    /* In place of a context, one address for each device. CUDA has none of pools and of virtual memory. */
    if (attr.type != GB_MEMORY_UNREGISTERED && attr.device >= 0 &&
        !(segment && (segment->pool || segment->kind == GB_KIND_SHARED)))
        attr.context = (uintptr_t)&host->devices[attr.device];
    if (!segment || segment->base == segment->real || segment->kind == GB_KIND_MANAGED)
        attr.host_address = address;
    pthread_mutex_unlock(&host->lock);
    *ret = attr;
    return 0;
}

/* --- export ------------------------------------------------------------------------------------------------------- */

/* Why memory of the kind does not go that way, or NULL if it does. */
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
        return way == GB_EXPORT_MEMFD
                   ? gb_error_set(err, GB_ERR_UNSUPPORTED, "%s", why)
                   : gb_native_refuse(err, be->domain, GB_NATIVE_NOT_SUPPORTED, gb_native_way_call(way), "%s", why);
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

/* No other process can wait for an event of this process's threads, so the handle cannot be opened. */
int gb_host_event_create_shared(struct gb_backend *be, int device, struct gb_event **ret, struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);

    if (!gb_host_device_ok(host, device, "cudaEventCreateWithFlags", err))
        return -1;
    if (!host->ipc_fake)
        return gb_native_refuse(err, be->domain, GB_NATIVE_NOT_SUPPORTED, "cudaIpcGetEventHandle",
                                "events of the host backend are of this process alone");
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

/* --- import ------------------------------------------------------------------------------------------------------- */

static const char *const import_calls[GB_EXPORT_WAYS] = {[GB_EXPORT_VMM] = "cuMemImportFromShareableHandle",
                                                         [GB_EXPORT_POOL] = "cudaMemPoolImportFromShareableHandle",
                                                         [GB_EXPORT_LEGACY] = "cudaIpcOpenMemHandle"};

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
        return gb_native_refuse(err, host->base.domain, GB_NATIVE_NOT_SUPPORTED, import_calls[what->way],
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
    host->foreign_bytes += kept ? segment->bytes : 0;
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
    if (segment && segment->foreign) {
        gb_host_ranges_take(&host->spans, segment);
        host->foreign_bytes -= segment->bytes;
    } else {
        segment = NULL;
    }
    pthread_mutex_unlock(&host->lock);
    if (!segment)
        return gb_host_error(err, GB_HOST_INVALID_VALUE, "munmap", "%p was not imported, or has ended already",
                             place->ptr);
    gb_host_segment_unmap(segment);
    return 0;
}
