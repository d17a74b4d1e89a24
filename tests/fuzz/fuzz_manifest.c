/* The manifest of a checkpoint: any text is refused, or says something that survives writing and reading again. The
 * target puts the checksum right, which no fuzzer would find. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "disk/disk.h"
#include "disk/manifest.h"
#include "fuzz.h"

#define DIGITS 8
#define CRC_AT (sizeof(GB_MANIFEST_OPENING) - 1)

#define ENTRY(buffer, file, more)                                                                                      \
    "{\"buffer\":\"" buffer "\",\"file\":\"" file "\",\"id\":3,\"generation\":7,\"run\":\"0badcafe\","                 \
    "\"dtype\":\"float32\",\"shape\":[2,3],\"bytes\":24,\"crc32c\":\"e3069283\",\"size\":4120,"                        \
    "\"file_crc32c\":\"01234567\",\"kind\":\"device\",\"durability\":\"sync\",\"mirrored\":false,\"sealed\":true" more \
    "}"
#define TOP(bytes, entries)                                                                                            \
    GB_MANIFEST_OPENING "00000000\",\"version\":1,\"name\":\"c1\",\"session\":\"default\",\"as_of\":"                  \
                        "\"2026-11-25T22:00:00.000Z\",\"bytes\":" bytes ",\"entries\":[" entries "]}"
#define BLOCKED                                                                                                        \
    "{\"buffer\":\"b\",\"file\":\"00001.safetensors\",\"id\":1,\"generation\":1,\"run\":\"00000001\",\"dtype\":"       \
    "\"uint8\",\"shape\":[1048577],\"bytes\":1048577,\"crc32c\":\"00000002\",\"size\":1052673,\"file_crc32c\":"        \
    "\"00000003\",\"kind\":\"managed\",\"durability\":\"none\",\"mirrored\":true,\"sealed\":false,\"labels\":{},"      \
    "\"blocks\":\"0000000400000005\"}"

const char *const gb_fuzz_seeds[] = {
    TOP("0", ""),
    TOP("24", ENTRY("layer.0", "00001.safetensors", ",\"labels\":{\"a\":\"b\\\"\"}")),
    TOP("48", ENTRY("a", "00001.safetensors", "") "," ENTRY("b", "00002.safetensors", ",\"later\":[{}, null]")),
    TOP("1048577", BLOCKED),
    "{\n \"version\": 1, \"name\": \"c\", \"session\": \"s\", \"as_of\": \"2026-11-25T22:00:00Z\", \"bytes\": 0, "
    "\"entries\": []\n}\n",
    "{\"version\":2}",
    "{}",
    NULL,
};

static bool same_labels(const struct gb_text *one, const struct gb_text *other) {
    return strcmp(gb_labels_text(one), gb_labels_text(other)) == 0;
}

static void check_same(const struct gb_manifest_entry *a, const struct gb_manifest_entry *b) {
    size_t blocks = gb_stored_block_count(a->bytes);

    FUZZ_ASSERT(gb_name_equal(&a->buffer, &b->buffer) && a->id == b->id && a->generation == b->generation &&
                a->run == b->run && a->dtype == b->dtype && gb_shape_equal(&a->shape, &b->shape) &&
                a->bytes == b->bytes && a->crc32c == b->crc32c && a->size == b->size &&
                a->file_crc32c == b->file_crc32c && a->kind == b->kind && a->durability == b->durability &&
                a->mirrored == b->mirrored && a->sealed == b->sealed && same_labels(a->labels, b->labels));
    FUZZ_ASSERT(memcmp(a->blocks, b->blocks, (blocks > 0 ? blocks : 1) * sizeof(*a->blocks)) == 0);
}

static void check_round_trip(const struct gb_manifest *manifest) {
    struct gb_json_writer out = {0};
    struct gb_error err = GB_ERROR_INIT;
    struct gb_manifest again;
    size_t i;

    gb_manifest_write(manifest, &out);
    FUZZ_ASSERT(!out.failed);
    FUZZ_ASSERT(gb_manifest_parse(out.s, out.used, &again, &err) == 0);
    FUZZ_ASSERT(again.count == manifest->count && again.bytes == manifest->bytes &&
                again.as_of_us / 1000 == manifest->as_of_us / 1000 && gb_name_equal(&again.name, &manifest->name) &&
                gb_name_equal(&again.session, &manifest->session));
    for (i = 0; i < again.count; i++)
        check_same(&manifest->entries[i], &again.entries[i]);
    gb_manifest_done(&again);
    gb_json_done(&out);
}

/* Of a text that is packed; another one has a wrong checksum, or none. */
static void put_sum(char *text, size_t n) {
    char digits[DIGITS + 1];

    if (n < CRC_AT + DIGITS || memcmp(text, GB_MANIFEST_OPENING, CRC_AT) != 0)
        return;
    memset(text + CRC_AT, '0', DIGITS);
    snprintf(digits, sizeof(digits), "%08x", gb_crc32c(0, text, n));
    memcpy(text + CRC_AT, digits, DIGITS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_manifest manifest = {.count = 0};
    char *text = malloc(size + 1); /* as long as the text, so that a read behind it is seen */

    FUZZ_ASSERT(text);
    memcpy(text, data, size);
    put_sum(text, size);
    if (gb_manifest_parse(text, size, &manifest, &err) < 0) {
        FUZZ_ASSERT_SAYS(err);
        FUZZ_ASSERT(err.code != GB_ERR_SATURATED && err.code != GB_ERR_INTERNAL);
        FUZZ_ASSERT(manifest.count == 0 && !manifest.entries);
    } else {
        check_round_trip(&manifest);
        gb_manifest_done(&manifest);
    }
    free(text);
    return 0;
}
