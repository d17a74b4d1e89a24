/* Devices, their default pools and their lanes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/kind.h"

void gb_core_refresh_pool(struct gb_core_device *device) {
    struct gb_pool_stat stat;

    if (gb_pool_stat(device->core->backend, device->pool, &stat, NULL) < 0)
        return;
    pthread_mutex_lock(&device->stat_lock);
    device->stat = stat;
    pthread_mutex_unlock(&device->stat_lock);
}

void gb_core_pool_stat(struct gb_core_device *device, struct gb_pool_stat *ret) {
    pthread_mutex_lock(&device->stat_lock);
    *ret = device->stat;
    pthread_mutex_unlock(&device->stat_lock);
}

uint64_t gb_core_pool_limit(const struct gb_core_device *device) {
    return device->pool_config.max_bytes ? device->pool_config.max_bytes : device->rec.total_bytes;
}

static int open_device(struct gb_core *core, int index, struct gb_error *err) {
    struct gb_core_device *d = &core->devices[index];
    enum gb_kind kind;
    char name[24];

    d->core = core;
    d->index = index;
    if (gb_backend_device_get(core->backend, index, &d->rec, err) < 0 ||
        gb_pool_default(core->backend, index, &d->pool, err) < 0 ||
        gb_pool_config(core->backend, d->pool, &d->pool_config, err) < 0)
        return -1;
    atomic_store(&d->free_bytes, d->rec.free_bytes);
    if (index == 0)
        strcpy(d->pool_name.s, "default");
    else
        snprintf(d->pool_name.s, sizeof(d->pool_name.s), "default.%d", index);
    pthread_mutex_init(&d->stat_lock, NULL);
    d->stat_lock_ready = true;
    gb_events_init(&d->events, core->backend, index);
    gb_core_refresh_pool(d);
    snprintf(name, sizeof(name), "gb-slow-%d", index);
    if (gb_lane_init(&d->slow, name, gb_kind_alloc_again, d, err) < 0)
        return -1;
    snprintf(name, sizeof(name), "gb-lane-%d", index); /* devices are few: fits into a thread's 15 */
    if (gb_lane_init(&d->lane, name, gb_alloc_again, d, err) < 0)
        return -1;
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
        gb_events_done(&d->events);
        if (d->stat_lock_ready)
            pthread_mutex_destroy(&d->stat_lock);
    }
    free(core->devices);
}

int gb_core_pool_device(struct gb_core *core, const struct gb_name *pool, int *ret_device, struct gb_error *err) {
    int i;

    if (pool->s[0] == '\0') {
        *ret_device = 0;
        return 0;
    }
    for (i = 0; i < core->device_count; i++) {
        if (gb_name_equal(pool, &core->devices[i].pool_name)) {
            *ret_device = i;
            return 0;
        }
    }
    return gb_error_set(err, GB_ERR_POOL_NOT_FOUND, "there is no pool named \"%s\"", pool->s);
}

int gb_core_offers(const struct gb_core_device *device, enum gb_kind kind, struct gb_error *err) {
    const char *why;

    if ((unsigned)kind >= GB_KIND_COUNT)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "there is no kind of memory numbered %d", (int)kind);
    why = device->rec.kind_missing[kind];
    if (why[0] == '\0')
        return 0;
    return gb_error_set(err, GB_ERR_UNSUPPORTED, "device %d has no memory of kind \"%s\" for buffers: %s",
                        device->index, gb_kind_name(kind), why);
}

int gb_core_check_stream(const struct gb_name *stream, struct gb_error *err) {
    if (stream->s[0] == '\0' || strcmp(stream->s, "default") == 0)
        return 0;
    return gb_error_set(err, GB_ERR_STREAM_NOT_FOUND, "there is no stream named \"%s\"; there is \"default\"",
                        stream->s);
}
