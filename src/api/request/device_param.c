#include "api/request/device_param.h"

#include <string.h>

#include "api/context.h"
#include "api/request/json.h"

int gb_device_text(const struct gb_api *api, const char *text, size_t len, int *ret, struct gb_error *err) {
    if (strlen(text) != len)
        return gb_error_set(err, GB_ERR_DEVICE_NOT_FOUND, "a device is named by its index or UUID");
    return gb_device_find(api->core, text, ret, err) < 0 ? -1 : 1;
}

int gb_device_field(const struct gb_api *api, const json_t *object, const char *key, int *ret, struct gb_error *err) {
    const json_t *value = json_object_get(object, key);
    const char *text;
    uint64_t index;

    if (json_is_string(value))
        return gb_json_string(object, key, &text, err) < 0 ? -1 : gb_device_text(api, text, strlen(text), ret, err);
    if (value && !json_is_number(value))
        return gb_error_set(err, GB_ERR_WRONG_TYPE,
                            "the field '%s' must be a device: its index, or its UUID as a string", key);
    switch (gb_json_u64(object, key, &index, err)) {
    case 0:
        return 0;
    case 1:
        break;
    default:
        return -1;
    }
    if (index >= (uint64_t)api->devices)
        return gb_error_set(err, GB_ERR_DEVICE_NOT_FOUND,
                            "there is no device %llu; GET /v1/devices lists the %d there are",
                            (unsigned long long)index, api->devices);
    *ret = (int)index;
    return 1;
}
