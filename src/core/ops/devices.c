/* Use cases of devices. */
#include <string.h>

#include "base/text.h"
#include "core/public/device.h"
#include "core/session/session.h"

int gb_device_count(struct gb_core *core) {
    return core->device_count;
}

int gb_device_get(struct gb_core *core, int device, struct gb_device_rec *ret, struct gb_error *err) {
    if (device < 0 || device >= core->device_count)
        return gb_error_set(err, GB_ERR_DEVICE_NOT_FOUND, "there is no device %d; there are %d", device,
                            core->device_count);
    *ret = core->devices[device].rec;
    ret->free_bytes = atomic_load(&core->devices[device].free_bytes);
    return 0;
}

int gb_device_find(struct gb_core *core, const char *index_or_uuid, int *ret_device, struct gb_error *err) {
    uint64_t index;
    int i;

    if (gb_parse_u64(index_or_uuid, strlen(index_or_uuid), &index) == GB_PARSE_OK &&
        index < (uint64_t)core->device_count) {
        *ret_device = (int)index;
        return 0;
    }
    for (i = 0; i < core->device_count; i++) {
        if (strcmp(core->devices[i].rec.uuid, index_or_uuid) == 0) {
            *ret_device = i;
            return 0;
        }
    }
    return gb_error_set(err, GB_ERR_DEVICE_NOT_FOUND, "there is no device \"%.60s\"; there are %d", index_or_uuid,
                        core->device_count);
}
