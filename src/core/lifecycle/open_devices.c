/* Devices and their lanes. */
#include <stdio.h>
#include <stdlib.h>

#include "core/lifecycle/open.h"
#include "core/memory/free_cache.h"
#include "core/memory/kind.h"
#include "core/share/lease_table.h"

/* After each task and, while something is to come, each tick. */
static bool retry(void *device) {
    bool keeps = gb_free_cache_retry(device);
    bool maps = gb_lease_again(device);
    bool ends = gb_leases_finish(device);

    return gb_alloc_retry(device) || keeps || maps || ends;
}

static int open_device(struct gb_core *core, int index, struct gb_error *err) {
    struct gb_core_device *d = &core->devices[index];
    enum gb_kind kind;
    char name[24];

    d->core = core;
    d->index = index;
    d->free_cache = gb_free_cache_new();
    if (!d->free_cache)
        return gb_no_memory(err);
    if (gb_backend_device_get(core->backend, index, &d->rec, err) < 0 || gb_core_pool_open(d, err) < 0)
        return -1;
    atomic_store(&d->free_bytes, d->rec.free_bytes);
    gb_event_pool_init(&d->events, core->backend, index);
    snprintf(name, sizeof(name), "gb-slow-%d", index);
    if (gb_lane_init(&d->slow, name, gb_kind_alloc_retry, d, err) < 0)
        return -1;
    snprintf(name, sizeof(name), "gb-free-%d", index);
    if (gb_lane_init(&d->ends, name, gb_lane_no_more, NULL, err) < 0)
        return -1;
    snprintf(name, sizeof(name), "gb-lane-%d", index); /* devices are few: fits into a thread's 15 */
    if (gb_lane_init(&d->lane, name, retry, d, err) < 0)
        return -1;
    d->lane.before = gb_free_cache_free;
    for (kind = 0; kind < GB_KIND_COUNT; kind++)
        core->slots_needed |=
            d->rec.kind_missing[kind][0] == '\0' && (!gb_kind_direct_in(d, kind) || !gb_kind_direct_out(d, kind));
    return 0;
}

int gb_core_devices_open(struct gb_core *core, struct gb_error *err) {
    int i;

    core->device_count = gb_backend_device_count(core->backend);
    if (core->device_count <= 0)
        return gb_error_set(err, GB_ERR_DEVICE_NOT_FOUND, "the backend \"%s\" has no device",
                            gb_backend_name(core->backend));
    core->devices = calloc((size_t)core->device_count, sizeof(*core->devices));
    if (!core->devices)
        return gb_no_memory(err);
    for (i = 0; i < core->device_count; i++) {
        if (open_device(core, i, err) < 0)
            return -1;
    }
    return 0;
}

void gb_core_devices_close(struct gb_core *core) {
    int i;

    if (!core->devices)
        return;
    for (i = 0; i < core->device_count; i++) {
        struct gb_core_device *d = &core->devices[i];

        gb_lane_done(&d->slow);
        gb_lane_done(&d->lane);
        if (d->free_cache)
            gb_free_cache_free(d);
        gb_free_cache_end(d->free_cache);
        gb_lane_done(&d->ends);
        gb_event_pool_done(&d->events);
        gb_core_pool_close(d->pool);
    }
    free(core->devices);
}
