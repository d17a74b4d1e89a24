#include "api/resources/fleet_self.h"

#include <stdio.h>
#include <string.h>

/* --- memory ------------------------------------------------------------------------------------------------------- */

static int add_quota(void *arg, const struct gb_session_view *view, struct gb_error *err) {
    uint64_t *sum = arg;
    uint64_t bytes = view->rec.quota.bytes == GB_UNLIMITED ? view->used_bytes : view->rec.quota.bytes;

    (void)err;
    *sum = bytes > UINT64_MAX - *sum ? UINT64_MAX : *sum + bytes;
    return 0;
}

/* What the sessions may take in all: a quota says of no device how much of it is meant. */
static uint64_t committed_bytes(struct gb_core *core) {
    struct gb_page page = {.limit = UINT32_MAX};
    uint64_t sum = 0;

    gb_session_list(core, &page, add_quota, &sum, NULL);
    return sum;
}

size_t gb_fleet_devices(struct gb_api *api, struct gb_fleet_device *ret) {
    uint64_t committed = api->devices > 0 ? committed_bytes(api->core) / (uint64_t)api->devices : 0;
    struct gb_device_numbers numbers;
    struct gb_device_rec rec;
    size_t count = 0;
    int i;

    for (i = 0; i < api->devices && count < GB_FLEET_DEVICES_MAX; i++) {
        struct gb_fleet_device *device = &ret[count];

        if (gb_device_get(api->core, i, &rec, NULL) < 0 || gb_device_numbers(api->core, i, &numbers, NULL) < 0)
            continue;
        snprintf(device->uuid, sizeof(device->uuid), "%s", api->uuid[i]);
        snprintf(device->name, sizeof(device->name), "%.63s", rec.name);
        device->bytes = numbers.total_bytes;
        device->free_bytes = numbers.free_bytes;
        device->committed_bytes = committed < numbers.total_bytes ? committed : numbers.total_bytes;
        count++;
    }
    return count;
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

void gb_fleet_self(struct gb_api *api, struct gb_fleet_node *ret) {
    const struct gb_api_fleet *is = &api->fleet_is;
    struct gb_fleet_stat stat;
    size_t i;

    gb_fleet_stat(api->fleet, &stat);
    memset(ret, 0, sizeof(*ret));
    ret->name = is->node;
    ret->uuid = is->uuid;
    ret->incarnation = stat.incarnation;
    ret->alive = stat.state == GB_FLEET_JOINED;
    ret->draining = stat.draining;
    snprintf(ret->version, sizeof(ret->version), "%s", api->version);
    snprintf(ret->labels, sizeof(ret->labels), "%s", is->labels);
    for (i = 0; i < is->url_count; i++)
        ret->urls[ret->url_count++] = is->urls[i];
    ret->device_count = gb_fleet_devices(api, ret->devices);
}
