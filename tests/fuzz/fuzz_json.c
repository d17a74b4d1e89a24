/* Request bodies: every reader fails with an error or gives a value. Labels are written as JSON that can be read
 * again. */
#include <string.h>

#include "api/request/json.h"
#include "fuzz.h"

const char *const gb_fuzz_seeds[] = {
    "{\"name\": \"x\", \"bytes\": 12, \"dtype\": \"float32\", \"shape\": [3, 1], \"kind\": \"device\"}",
    "{\"name\": \"\", \"bytes\": -1, \"shape\": [1.5], \"labels\": {\"a\": null, \"b\": \"c\"}}",
    "{\"labels\": {\"k\": \"\\u00e9\\ud83d\\ude00\", \"l\": \"\\\"\"}, \"quota\": {\"bytes\": null}}",
    "{\"bytes\": 99999999999999999999999999, \"bytes\": 1}",
    "[[[[[[[[[[{\"a\":[]}]]]]]]]]]]",
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_shape shape = {0};
    const json_t *child;
    json_t *object = NULL;
    enum gb_dtype dtype;
    enum gb_kind kind;
    struct gb_name name;
    uint64_t number;

    if (gb_json_object((const char *)data, size, "name bytes dtype shape kind labels quota", &object, &err) != 0) {
        FUZZ_ASSERT(err.code != GB_OK && err.detail[0] != '\0');
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
    json_decref(object);
    return 0;
}
