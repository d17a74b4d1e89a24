/* Measuring copies with the device's own clock. */
#include "core/observe/probe.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define TIMES 5

enum gb_kind gb_probe_device_kind(const struct gb_probe *probe) {
    return probe->rec.kind_missing[GB_KIND_DEVICE][0] == '\0' ? GB_KIND_DEVICE
           : probe->rec.kind_missing[GB_KIND_IPC][0] == '\0'  ? GB_KIND_IPC
                                                              : GB_KIND_MANAGED;
}

int gb_probe_init(struct gb_probe *probe, struct gb_backend *be, int device, struct gb_error *err) {
    const struct gb_pool_config config = {.release_threshold_bytes = GB_UNLIMITED,
                                          .follow_event_dependencies = true,
                                          .allow_opportunistic = true,
                                          .allow_internal_dependencies = true};

    *probe = (struct gb_probe){.be = be, .pattern = 0x0123456789abcdef};
    if (gb_backend_device_get(be, device, &probe->rec, err) < 0 ||
        (gb_probe_device_kind(probe) == GB_KIND_DEVICE && gb_pool_create(be, device, &config, &probe->pool, err) < 0) ||
        gb_stream_create(be, device, &probe->stream, err) < 0 || gb_event_create(be, device, &probe->asked, err) < 0 ||
        gb_event_create(be, device, &probe->start, err) < 0 || gb_event_create(be, device, &probe->end, err) < 0) {
        gb_probe_done(probe);
        return -1;
    }
    return 0;
}

void gb_probe_done(struct gb_probe *probe) {
    if (!probe->be)
        return;
    gb_event_destroy(probe->be, probe->end);
    gb_event_destroy(probe->be, probe->start);
    gb_event_destroy(probe->be, probe->asked);
    gb_stream_destroy(probe->be, probe->stream);
    gb_pool_destroy(probe->be, probe->pool);
    *probe = (struct gb_probe){0};
}

int gb_probe_alloc(struct gb_probe *probe, enum gb_kind kind, uint64_t bytes, struct gb_probe_memory *memory,
                   struct gb_error *err) {
    struct gb_probe_memory m = {.place = {.kind = kind, .device = probe->rec.index}, .bytes = bytes};
    bool counts = kind == GB_KIND_PINNED && probe->pinned;
    int r;

    if (counts && gb_pinned_take(probe->pinned, bytes, err) < 0)
        return -1;
    if (kind == GB_KIND_DEVICE)
        r = gb_mem_alloc(probe->be, probe->pool, probe->stream, bytes, &m.place.ptr, err);
    else
        r = gb_mem_kind_alloc(probe->be, probe->rec.index, kind, bytes, &m.place.ptr, err);
    if (r == 0)
        *memory = m;
    else if (counts)
        gb_pinned_give(probe->pinned, bytes);
    return r;
}

void gb_probe_free(struct gb_probe *probe, struct gb_probe_memory *memory) {
    if (!memory->place.ptr)
        return;
    gb_stream_sync(probe->be, probe->stream, NULL);
    if (memory->place.kind == GB_KIND_DEVICE)
        gb_mem_free(probe->be, memory->place.ptr, probe->stream, NULL);
    else
        gb_mem_kind_free(probe->be, &memory->place, memory->bytes, NULL);
    if (memory->place.kind == GB_KIND_PINNED && probe->pinned)
        gb_pinned_give(probe->pinned, memory->bytes);
    *memory = (struct gb_probe_memory){0};
}

static int by_size(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

uint64_t gb_probe_median(uint64_t *ns, size_t n) {
    qsort(ns, n, sizeof(ns[0]), by_size);
    return ns[n / 2] > 0 ? ns[n / 2] : 1;
}

static int copy_once(struct gb_probe *probe, const struct gb_probe_memory *dst, const struct gb_probe_memory *src,
                     uint64_t bytes, uint64_t *ret_ns, struct gb_error *err) {
    struct gb_backend *be = probe->be;
    enum gb_copy_way way;

    /* Managed pages lie where they were used last: on the CPU's side, as after a program filled them. */
    if (gb_mem_prefetch(be, &src->place, bytes, true, probe->stream, err) < 0 ||
        gb_mem_prefetch(be, &dst->place, bytes, true, probe->stream, err) < 0 ||
        gb_stream_sync(be, probe->stream, err) < 0 || gb_event_record(be, probe->start, probe->stream, err) < 0 ||
        gb_mem_move(be, &dst->place, &src->place, bytes, probe->stream, &way, err) < 0 ||
        gb_event_record(be, probe->end, probe->stream, err) < 0 || gb_stream_sync(be, probe->stream, err) < 0)
        return -1;
    return gb_event_elapsed(be, probe->start, probe->end, ret_ns, err);
}

static int look_at_piece(struct gb_probe *probe, struct gb_location from, const struct gb_probe_memory *check,
                         uint64_t bytes, struct gb_error *err) {
    const uint64_t *words = check->place.ptr;
    enum gb_copy_way way;
    uint64_t i;

    memset(check->place.ptr, 0, bytes);
    if (gb_mem_move(probe->be, &check->place, &from, bytes, probe->stream, &way, err) < 0 ||
        gb_stream_sync(probe->be, probe->stream, err) < 0)
        return -1;
    for (i = 0; i < bytes / sizeof(*words); i++) {
        if (words[i] != probe->pattern)
            return gb_error_set(err, GB_ERR_INTERNAL, "bytes of a copy arrived wrong");
    }
    return 0;
}

/* The bytes, by way of memory that the CPU reads. */
static int look(struct gb_probe *probe, const struct gb_probe_memory *dst, const struct gb_probe_memory *check,
                uint64_t bytes, struct gb_error *err) {
    uint64_t at;
    uint64_t n;

    for (at = 0; at < bytes; at += n) {
        struct gb_location from = dst->place;

        from.ptr = (char *)from.ptr + at;
        n = bytes - at < check->bytes ? bytes - at : check->bytes;
        if (look_at_piece(probe, from, check, n, err) < 0)
            return -1;
    }
    return 0;
}

int gb_probe_copy(struct gb_probe *probe, const struct gb_probe_memory *dst, const struct gb_probe_memory *src,
                  const struct gb_probe_memory *check, uint64_t bytes, uint64_t *ret_ns, struct gb_error *err) {
    uint64_t ns[TIMES];
    uint64_t first;
    int i;

    probe->pattern += 0x1111111111111111;
    if (gb_location_fill(probe->be, &src->place, probe->pattern, 8, bytes / 8, probe->stream, err) < 0 ||
        gb_location_fill(probe->be, &dst->place, 0, 8, bytes / 8, probe->stream, err) < 0 ||
        copy_once(probe, dst, src, bytes, &first, err) < 0) /* pages and paths are made */
        return -1;
    for (i = 0; i < TIMES; i++) {
        if (copy_once(probe, dst, src, bytes, &ns[i], err) < 0)
            return -1;
    }
    if (look(probe, dst, check, bytes, err) < 0)
        return -1;
    *ret_ns = gb_probe_median(ns, TIMES);
    return 0;
}

int gb_probe_queue(struct gb_probe *probe, const struct gb_probe_memory *device, const struct gb_probe_memory *host,
                   uint64_t bytes, unsigned copies, struct gb_probe_wait *ret, struct gb_error *err) {
    struct gb_backend *be = probe->be;
    enum gb_copy_way way;
    uint64_t began_ns;
    unsigned i;

    if (gb_stream_sync(be, probe->stream, err) < 0)
        return -1;
    for (i = 0; i < copies; i++) {
        if (gb_mem_move(be, &device->place, &host->place, device->bytes, probe->stream, &way, err) < 0)
            return -1;
    }
    began_ns = gb_clock_ns();
    if (gb_event_mark(be, probe->asked, err) < 0 || gb_event_record(be, probe->start, probe->stream, err) < 0 ||
        gb_mem_move(be, &host->place, &device->place, bytes, probe->stream, &way, err) < 0 ||
        gb_event_record(be, probe->end, probe->stream, err) < 0 || gb_stream_sync(be, probe->stream, err) < 0)
        return -1;
    ret->seen_ns = gb_clock_ns() - began_ns;
    ret->earlier_bytes = device->bytes * copies;
    ret->bytes = bytes;
    if (gb_event_elapsed(be, probe->asked, probe->start, &ret->queued_ns, err) < 0)
        return -1;
    return gb_event_elapsed(be, probe->start, probe->end, &ret->copied_ns, err);
}
