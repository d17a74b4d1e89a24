/* Copies and fills of the host backend, in memory of any kind. */
#include <string.h>

#include "backend/host/host.h"

#define SLICE_BYTES (64ull << 20) /* a long copy lets others in between; shorter ones would not get past the caches */

/* --- the work itself ---------------------------------------------------------------------------------------------- */

static void fill(void *dst, uint64_t pattern, unsigned width, uint64_t count) {
    uint16_t *half = dst;
    uint32_t *word = dst;
    uint64_t *twin = dst;
    uint64_t i;

    if (width == 1)
        memset(dst, (int)(pattern & 0xff), count);
    for (i = 0; width == 2 && i < count; i++)
        half[i] = (uint16_t)pattern;
    for (i = 0; width == 4 && i < count; i++)
        word[i] = (uint32_t)pattern;
    for (i = 0; width == 8 && i < count; i++)
        twin[i] = pattern;
}

/* All of it, or a plane, or some rows. */
static void box_slice(char **memory, char **packed, struct gb_box *box, bool pack) {
    struct gb_box now = *box;
    uint64_t rows_max = box->width < SLICE_BYTES ? SLICE_BYTES / box->width : 1;

    if (now.rows * now.planes > rows_max)
        now.planes = 1;
    if (now.rows > rows_max && box->planes == 1)
        now.rows = rows_max;
    gb_box_copy(&now, *memory, *packed, pack);
    if (now.rows < box->rows) {
        box->rows -= now.rows;
        *memory += now.rows * now.pitch;
        *packed += now.rows * now.packed_pitch;
    } else {
        box->planes -= now.planes;
        *memory += now.planes * now.plane;
        *packed += now.planes * now.packed_plane;
    }
}

bool gb_host_worked(const struct gb_host_op *op) {
    if (op->kind == GB_HOST_COPY)
        return op->u.copy.bytes == 0;
    return op->kind == GB_HOST_BOX ? op->u.box.box.planes == 0 : op->u.fill.count == 0;
}

void gb_host_work(struct gb_host_op *op) {
    uint64_t n;

    if (op->kind == GB_HOST_COPY) {
        n = op->u.copy.bytes < SLICE_BYTES ? op->u.copy.bytes : SLICE_BYTES;
        memmove(op->u.copy.dst, op->u.copy.src, n);
        op->u.copy.dst = (char *)op->u.copy.dst + n;
        op->u.copy.src = (const char *)op->u.copy.src + n;
        op->u.copy.bytes -= n;
    } else if (op->kind == GB_HOST_BOX) {
        box_slice(&op->u.box.memory, &op->u.box.packed, &op->u.box.box, op->u.box.pack);
    } else {
        n = op->u.fill.count < SLICE_BYTES / 8 ? op->u.fill.count : SLICE_BYTES / 8;
        fill(op->u.fill.dst, op->u.fill.pattern, op->u.fill.width, n);
        op->u.fill.dst = (char *)op->u.fill.dst + n * op->u.fill.width;
        op->u.fill.count -= n;
    }
}

/* --- where it is -------------------------------------------------------------------------------------------------- */

/* Where segment's bytes [p, p + bytes) really are; NULL when not all are in it. */
static char *real_in(const struct gb_host_segment *segment, const void *p, uint64_t bytes) {
    uint64_t offset = (uintptr_t)p - (uintptr_t)segment->base;

    return bytes <= segment->bytes - offset ? segment->real + offset : NULL;
}

/* Where device memory [p, p + bytes) really is; NULL when it is not all of one allocation's segment. */
static char *real_locked(const struct gb_host *host, const void *p, uint64_t bytes) {
    const struct gb_host_segment *segment = gb_host_ranges_find(&host->spans, p);

    return segment && gb_kind_of_device(segment->kind) ? real_in(segment, p, bytes) : NULL;
}

/* The host side of a copy: any memory, but not what only copies may reach. */
static char *host_side_locked(const struct gb_host *host, const void *p) {
    const struct gb_host_segment *segment = gb_host_ranges_find(&host->spans, p);

    return segment && segment->base != segment->real ? NULL : (char *)(uintptr_t)p;
}

/* --- by direction ------------------------------------------------------------------------------------------------- */

int gb_host_copy(struct gb_backend *be, void *dst, const void *src, uint64_t bytes, enum gb_copy_direction direction,
                 struct gb_stream *stream, struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);
    struct gb_host_op op = {.kind = GB_HOST_COPY};
    int r;

    if (bytes == 0)
        return 0;
    pthread_mutex_lock(&host->lock);
    op.u.copy.dst = direction == GB_COPY_FROM_DEVICE ? host_side_locked(host, dst) : real_locked(host, dst, bytes);
    op.u.copy.src = direction == GB_COPY_TO_DEVICE ? host_side_locked(host, src) : real_locked(host, src, bytes);
    op.u.copy.bytes = bytes;
    if (!op.u.copy.dst || !op.u.copy.src)
        r = gb_host_error(err, GB_HOST_INVALID_VALUE, "cudaMemcpyAsync",
                          "%llu bytes at the %s's address are not where the direction says", (unsigned long long)bytes,
                          op.u.copy.dst ? "source" : "destination");
    else
        r = gb_host_submit_locked(stream, &op, "cudaMemcpyAsync", err);
    pthread_mutex_unlock(&host->lock);
    return r;
}

int gb_host_fill(struct gb_backend *be, void *dst, uint64_t pattern, unsigned width, uint64_t count,
                 struct gb_stream *stream, struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);
    struct gb_host_op op = {.kind = GB_HOST_FILL};
    uint64_t bytes;
    int r = -1;

    if (width != 1 && width != 2 && width != 4)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a fill's width is 1, 2 or 4 bytes, not %u", width);
    if (count == 0)
        return 0;
    pthread_mutex_lock(&host->lock);
    if (!__builtin_mul_overflow(count, (uint64_t)width, &bytes) && (uintptr_t)dst % width == 0)
        op.u.fill.dst = real_locked(host, dst, bytes);
    op.u.fill.pattern = pattern;
    op.u.fill.width = width;
    op.u.fill.count = count;
    if (op.u.fill.dst)
        r = gb_host_submit_locked(stream, &op, "cudaMemset2DAsync", err);
    else
        gb_host_error(err, GB_HOST_INVALID_VALUE, "cudaMemset2DAsync",
                      "%llu elements do not lie in device memory, or are not aligned to their width",
                      (unsigned long long)count);
    pthread_mutex_unlock(&host->lock);
    return r;
}

/* --- by place ----------------------------------------------------------------------------------------------------- */

/* Where a place's bytes really are. *ret_segment: the segment that has them, NULL for host memory not made here. -1:
 * they are not where the place says. */
static int find_locked(const struct gb_host *host, const struct gb_location *place, uint64_t bytes, const char *call,
                       const struct gb_host_segment **ret_segment, char **ret, struct gb_error *err) {
    const struct gb_host_segment *segment = gb_host_ranges_find(&host->spans, place->ptr);
    int device = segment && segment->pool ? segment->pool->device : segment ? segment->device : place->device;
    char *real = segment ? real_in(segment, place->ptr, bytes) : (char *)place->ptr;

    if (!real || (segment ? segment->kind != place->kind : gb_kind_of_device(place->kind)) ||
        (gb_kind_of_device(place->kind) && device != place->device))
        return gb_host_error(err, GB_HOST_INVALID_VALUE, call, "%llu bytes at %p are not of kind %s of device %d",
                             (unsigned long long)bytes, place->ptr, gb_kind_name(place->kind), place->device);
    if (segment && segment->with_cpu)
        return gb_host_error(err, GB_HOST_INVALID_VALUE, call, "the managed memory at %p is attached to the CPU",
                             place->ptr);
    *ret_segment = segment;
    *ret = real;
    return 0;
}

static bool place_ok(const struct gb_host *host, const struct gb_location *place) {
    return (unsigned)place->kind < GB_KIND_COUNT && place->device >= 0 && place->device < host->device_count;
}

/* Memory of a device is used on its streams, a copy between two on either one's. */
static bool stream_ok(const struct gb_stream *stream, const struct gb_location *a, const struct gb_location *b) {
    bool any = gb_kind_of_device(a->kind) || gb_kind_of_device(b->kind);

    return !any || (gb_kind_of_device(a->kind) && a->device == stream->device) ||
           (gb_kind_of_device(b->kind) && b->device == stream->device);
}

static enum gb_copy_way way_between_locked(const struct gb_host *host, const struct gb_location *dst,
                                           const struct gb_location *src, const struct gb_host_segment *source) {
    bool open;

    if (!gb_kind_of_device(src->kind))
        return gb_kind_of_device(dst->kind) ? GB_WAY_TO_DEVICE : GB_WAY_HOST;
    if (!gb_kind_of_device(dst->kind))
        return GB_WAY_FROM_DEVICE;
    if (dst->device == src->device)
        return GB_WAY_DEVICE;
    open = source->pool ? (source->pool->open_to & 1u << dst->device) != 0 : host->peers && src->kind != GB_KIND_IPC;
    return open ? GB_WAY_PEER : GB_WAY_STAGED;
}

int gb_host_move(struct gb_backend *be, const struct gb_location *dst, const struct gb_location *src, uint64_t bytes,
                 struct gb_stream *stream, enum gb_copy_way *ret_way, struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);
    struct gb_host_op op = {.kind = GB_HOST_COPY, .u.copy.bytes = bytes};
    const struct gb_host_segment *to = NULL;
    const struct gb_host_segment *from = NULL;
    enum gb_copy_way way;
    char *real_dst = NULL;
    char *real_src = NULL;
    int r;

    if (!place_ok(host, dst) || !place_ok(host, src) || !stream_ok(stream, dst, src))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "a copy from device %d to device %d has no such kind or device, or is on a stream of "
                            "device %d",
                            src->device, dst->device, stream->device);
    if (bytes == 0) {
        *ret_way = GB_WAY_NONE;
        return 0;
    }
    pthread_mutex_lock(&host->lock);
    r = find_locked(host, dst, bytes, "cudaMemcpyAsync", &to, &real_dst, err);
    if (r == 0)
        r = find_locked(host, src, bytes, "cudaMemcpyAsync", &from, &real_src, err);
    if (r == 0) {
        way = way_between_locked(host, dst, src, from);
        op.u.copy.dst = real_dst;
        op.u.copy.src = real_src;
        r = gb_host_submit_locked(stream, &op, "cudaMemcpyAsync", err);
    }
    if (r == 0)
        *ret_way = way;
    pthread_mutex_unlock(&host->lock);
    return r;
}

int gb_host_box(struct gb_backend *be, const struct gb_location *place, void *pinned, const struct gb_box *box,
                enum gb_copy_direction direction, struct gb_stream *stream, struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);
    struct gb_host_op op = {.kind = GB_HOST_BOX, .u.box = {.box = *box, .pack = direction == GB_COPY_FROM_DEVICE}};
    const struct gb_host_segment *segment = NULL;
    uint64_t extent;
    uint64_t packed;
    int r;

    if (!place_ok(host, place) || !gb_kind_of_device(place->kind) || !stream_ok(stream, place, place) ||
        (direction != GB_COPY_FROM_DEVICE && direction != GB_COPY_TO_DEVICE))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "a box of memory of kind %d of device %d, on a stream of device %d, in direction %d",
                            (int)place->kind, place->device, stream->device, (int)direction);
    if (gb_box_check(box, &extent, &packed, err) < 0)
        return -1;
    if (extent == 0)
        return 0;
    pthread_mutex_lock(&host->lock);
    r = find_locked(host, place, extent, "cudaMemcpy3DAsync", &segment, &op.u.box.memory, err);
    op.u.box.packed = host_side_locked(host, pinned);
    if (r == 0 && !op.u.box.packed)
        r = gb_host_error(err, GB_HOST_INVALID_VALUE, "cudaMemcpy3DAsync", "%p is not host memory", pinned);
    if (r == 0)
        r = gb_host_submit_locked(stream, &op, "cudaMemcpy3DAsync", err);
    pthread_mutex_unlock(&host->lock);
    return r;
}

int gb_host_location_fill(struct gb_backend *be, const struct gb_location *dst, uint64_t pattern, unsigned width,
                          uint64_t count, struct gb_stream *stream, struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);
    struct gb_host_op op = {.kind = GB_HOST_FILL, .u.fill = {.pattern = pattern, .width = width, .count = count}};
    const struct gb_host_segment *segment = NULL;
    char *real = NULL;
    uint64_t bytes;
    int r;

    if (width != 1 && width != 2 && width != 4 && width != 8)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a fill's width is 1, 2, 4 or 8 bytes, not %u", width);
    if (!place_ok(host, dst) || !stream_ok(stream, dst, dst) || (uintptr_t)dst->ptr % width != 0 ||
        __builtin_mul_overflow(count, (uint64_t)width, &bytes))
        return gb_error_set(
            err, GB_ERR_INVALID_ARGUMENT,
            "%llu elements of width %u at %p: no such kind or device, another device's stream, too many, or "
            "not aligned",
            (unsigned long long)count, width, dst->ptr);
    if (count == 0)
        return 0;
    pthread_mutex_lock(&host->lock);
    r = find_locked(host, dst, bytes, "cudaMemset2DAsync", &segment, &real, err);
    if (r == 0) {
        op.u.fill.dst = real;
        r = gb_host_submit_locked(stream, &op, "cudaMemset2DAsync", err);
    }
    pthread_mutex_unlock(&host->lock);
    return r;
}
