#include "api/request/buffer_fields.h"

#include "api/context.h"
#include "api/request/device_param.h"
#include "api/request/json.h"

int gb_buffer_layout_read(const json_t *body, struct gb_buffer_params *params, struct gb_error *err) {
    uint64_t bytes = 0;
    uint64_t of_shape;
    int has_bytes = gb_json_u64(body, "bytes", &bytes, err);
    int r = has_bytes < 0 ? -1 : gb_json_dtype(body, "dtype", &params->dtype, err);
    int has_shape = r < 0 ? -1 : gb_json_shape(body, "shape", &params->shape, err);
    size_t width;

    if (has_shape < 0)
        return -1;
    if (!has_shape && !has_bytes)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "give 'bytes', or 'shape' and, unless it is uint8, 'dtype'");
    if (!has_shape) {
        width = gb_dtype_bytes(params->dtype);
        if (bytes % width != 0)
            return gb_error_set(err, GB_ERR_SHAPE_MISMATCH, "%llu bytes are no whole number of %s, which has %zu each",
                                (unsigned long long)bytes, gb_dtype_name(params->dtype), width);
        params->shape = (struct gb_shape){.dims = 1, .dim = {bytes / width}};
    }
    if (gb_shape_bytes(&params->shape, params->dtype, &of_shape, err) < 0)
        return -1;
    if (has_bytes && of_shape != bytes)
        return gb_error_set(err, GB_ERR_SHAPE_MISMATCH, "dtype and shape make %llu bytes, 'bytes' says %llu",
                            (unsigned long long)of_shape, (unsigned long long)bytes);
    params->bytes = of_shape;
    params->has_shape = true;
    return 0;
}

/* Reads the device. A pool is on a device already, so only one of the two may be given. */
static int read_device(const struct gb_api *api, const json_t *body, struct gb_buffer_params *params,
                       struct gb_error *err) {
    int r = gb_device_field(api, body, "device", &params->device, err);

    params->has_device = r > 0;
    if (r > 0 && params->pool.s[0] != '\0')
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "give 'pool' or 'device', not both: a pool is of one device");
    return r < 0 ? -1 : 0;
}

int gb_buffer_place_read(const json_t *body, struct gb_buffer_params *params, struct gb_error *err) {
    int r = gb_json_spill(body, "spill", &params->spill, err);

    if (r < 0)
        return -1;
    params->has_spill = r > 0;
    r = gb_json_bool(body, "resident", &params->resident, err);
    params->has_resident = r > 0;
    return r < 0 ? -1 : 0;
}

int gb_buffer_memory_read(const struct gb_api *api, const json_t *body, struct gb_buffer_params *params,
                          struct gb_error *err) {
    int r = gb_json_kind(body, "kind", &params->kind, err);

    params->has_kind = r > 0;
    if (r < 0 || gb_json_name(body, "pool", &params->pool, err) < 0 ||
        gb_json_name(body, "stream", &params->stream, err) < 0 || read_device(api, body, params, err) < 0)
        return -1;
    r = gb_json_durability(body, "durability", &params->durability, err);
    params->has_durability = r > 0;
    return r < 0 ? -1 : 0;
}

int gb_buffer_params_read(const struct gb_api *api, const json_t *body, const char *key,
                          struct gb_buffer_params *params, struct gb_error *err) {
    int r = gb_json_name(body, key, &params->name, err);

    if (r == 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the field '%s' is needed", key);
    if (r < 0 || gb_buffer_layout_read(body, params, err) < 0)
        return -1;
    if (gb_json_bool(body, "mirrored", &params->mirrored, err) < 0 || gb_buffer_memory_read(api, body, params, err) < 0)
        return -1;
    if (gb_buffer_place_read(body, params, err) < 0)
        return -1;
    r = gb_json_take_labels(body, "labels", NULL, &params->labels, err);
    params->has_labels = r > 0;
    return r < 0 ? -1 : 0;
}
