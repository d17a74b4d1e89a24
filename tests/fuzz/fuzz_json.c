/* Request bodies: every reader fails with an error that says why, or gives a value within its bounds. Labels are
 * written as JSON that can be read again. */
#include <string.h>

#include "api/request/body.h"
#include "base/text.h"
#include "core/runtime/runtime.h"
#include "fuzz.h"

#define FIELDS "name bytes dtype shape kind pool device stream mirrored labels quota sides "

const char *const gb_fuzz_seeds[] = {
    "{\"name\": \"x\", \"bytes\": 12, \"dtype\": \"float32\", \"shape\": [3, 1], \"kind\": \"device\"}",
    "{\"name\": \"\", \"bytes\": -1, \"shape\": [1.5], \"labels\": {\"a\": null, \"b\": \"c\"}}",
    "{\"labels\": {\"k\": \"\\u00e9\\ud83d\\ude00\", \"l\": \"\\\"\"}, \"quota\": {\"bytes\": null}}",
    "{\"bytes\": 99999999999999999999999999, \"bytes\": 1}",
    "[[[[[[[[[[{\"a\":[]}]]]]]]]]]]",
    "{\"from\": \"other/x\", \"from_offset\": 4, \"offset\": 8, \"bytes\": 16, \"stream\": \"s\", \"in_place\": true}",
    "{\"pattern\": \"0xffffffffffffffff\", \"width\": 8, \"side\": \"host\", \"sides\": \"all\"}",
    "{\"name\": \"y\", \"dtype\": \"uint8\", \"shape\": [4294967296, 2147483648], \"device\": \"GPU-1\", \"mirrored\": "
    "1}",
    NULL,
};

static void check_labels(const json_t *object) {
    char labels[GB_LABELS_MAX];
    char merged[GB_LABELS_MAX];
    struct gb_error err = GB_ERROR_INIT;
    json_t *again;

    if (gb_json_labels(object, "labels", NULL, labels, &err) != 1)
        return;
    again = json_loads(labels, 0, NULL);
    FUZZ_ASSERT(json_is_object(again));
    json_decref(again);
    FUZZ_ASSERT(gb_json_labels(object, "labels", labels, merged, &err) == 1);
    FUZZ_ASSERT(strlen(merged) < GB_LABELS_MAX);
}

static void check_buffer(const json_t *object) {
    static struct gb_core_device device = {.rec = {.uuid = "GPU-1"}};
    static struct gb_core core = {.devices = &device, .device_count = 1};
    struct gb_api api = {.core = &core, .devices = 1};
    struct gb_buffer_params params = {.dtype = GB_DTYPE_UINT8};
    struct gb_error err = GB_ERROR_INIT;
    uint64_t bytes;

    if (gb_buffer_params_read(&api, object, "name", &params, &err) < 0) {
        FUZZ_ASSERT_SAYS(err);
    } else {
        FUZZ_ASSERT(gb_shape_bytes(&params.shape, params.dtype, &bytes, NULL) == 0 && bytes == params.bytes);
        FUZZ_ASSERT(params.device == 0 && params.name.s[0] != '\0' && bytes <= INT64_MAX);
    }
    gb_text_unref(params.labels);
}

static void check_actions(const json_t *object) {
    struct gb_device_write_params params;
    struct gb_error err;
    struct gb_sides sides;
    int copy;

    for (copy = 0; copy < 2; copy++) {
        params = (struct gb_device_write_params){.copy = copy, .session = {"default"}};
        err = GB_ERROR_INIT;
        if (gb_action_read_write(object, &params, &err) < 0)
            FUZZ_ASSERT_SAYS(err);
        else if (copy)
            FUZZ_ASSERT(params.from.s[0] != '\0' && params.from_session.s[0] != '\0');
        else
            FUZZ_ASSERT(params.width == 8 || params.pattern >> 8 * params.width == 0);
        err = GB_ERROR_INIT;
        if (gb_action_read_sides(object, "sides", copy, &sides, &err) < 0)
            FUZZ_ASSERT_SAYS(err);
        else
            FUZZ_ASSERT((sides.host || sides.device) && (copy || !sides.host || !sides.device));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_shape shape = {0};
    const json_t *child;
    json_t *object = NULL;
    enum gb_dtype dtype;
    enum gb_kind kind;
    struct gb_name name;
    uint64_t number;

    if (gb_json_object((const char *)data, size, FIELDS GB_COPY_FIELDS " " GB_FILL_FIELDS, &object, &err) != 0) {
        FUZZ_ASSERT_SAYS(err);
        return 0;
    }
    (void)gb_json_name(object, "name", &name, &err);
    (void)gb_json_u64(object, "bytes", &number, &err);
    (void)gb_json_limit(object, "bytes", &number, &err);
    (void)gb_json_dtype(object, "dtype", &dtype, &err);
    (void)gb_json_kind(object, "kind", &kind, &err);
    if (gb_json_shape(object, "shape", &shape, &err) == 1)
        FUZZ_ASSERT(shape.dims <= GB_DIMS_MAX);
    if (gb_json_child(object, "quota", &child, &err) == 1)
        (void)gb_json_known(child, "quota", "bytes buffers", &err);
    check_labels(object);
    check_buffer(object);
    check_actions(object);
    json_decref(object);
    return 0;
}
