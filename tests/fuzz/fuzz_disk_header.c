/* The header page of a stored file: any page is refused, or says something that survives building and parsing again.
 * The input is the JSON text; the target adds the length, the spaces and the page's checksum, which no fuzzer would
 * find. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "disk/header.h"
#include "fuzz.h"

#define OPENING "{\"__metadata__\":{\"gpubuf.header_crc32c\":\""
#define JSON_AT 8
#define CRC_AT (JSON_AT + sizeof(OPENING) - 1)

#define METADATA                                                                                                       \
    OPENING "00000000\",\"gpubuf.session\":\"s\",\"gpubuf.buffer\":\"layer.0.weight\",\"gpubuf.id\":\"298\","          \
            "\"gpubuf.generation\":\"7\",\"gpubuf.run\":\"0badcafe\",\"gpubuf.bytes\":\"24\","                         \
            "\"gpubuf.crc32c\":\"e3069283\","

const char *const gb_fuzz_seeds[] = {
    METADATA "\"gpubuf.dtype\":\"float32\",\"gpubuf.shape\":\"2,3\",\"gpubuf.kind\":\"device\",\"gpubuf.sealed\":"
             "\"false\",\"gpubuf.labels\":\"{\\\"a\\\":\\\"b\\\"}\"},\"layer.0.weight\":{\"dtype\":\"F32\",\"shape\":"
             "[2,3],\"data_offsets\":[0,24]}}",
    METADATA "\"gpubuf.dtype\":\"complex128\",\"gpubuf.shape\":\"\",\"gpubuf.kind\":\"pinned\",\"gpubuf.sealed\":"
             "\"true\",\"gpubuf.labels_omitted\":\"true\",\"other\":\"x\"},\"layer.0.weight\":{\"dtype\":\"U8\","
             "\"shape\":[24],\"data_offsets\":[0,24]}}",
    "{}",
    NULL,
};

/* The page with that text; false if the text is too long. */
static bool make_page(const uint8_t *data, size_t size, unsigned char *page) {
    char crc[9];

    if (size > GB_DISK_DATA_AT - JSON_AT)
        return false;
    memset(page, ' ', GB_DISK_DATA_AT);
    memset(page, 0, JSON_AT);
    page[0] = (GB_DISK_DATA_AT - JSON_AT) & 0xff;
    page[1] = (GB_DISK_DATA_AT - JSON_AT) >> 8;
    memcpy(page + JSON_AT, data, size);
    if (size < CRC_AT || memcmp(data, OPENING, sizeof(OPENING) - 1) != 0)
        return true;
    memcpy(page + CRC_AT, "00000000", 8);
    snprintf(crc, sizeof(crc), "%08x", gb_crc32c(0, page, GB_DISK_DATA_AT));
    memcpy(page + CRC_AT, crc, 8);
    return true;
}

static void check_round_trip(const struct gb_disk_header *header) {
    struct gb_buffer_rec buffer = {.bytes = header->bytes,
                                   .dtype = header->dtype,
                                   .shape = header->shape,
                                   .kind = header->kind,
                                   .sealed = header->sealed,
                                   .name = header->buffer};
    struct gb_disk_meta meta = {.session = header->session.s, .buffer = &buffer};
    static unsigned char page[GB_DISK_DATA_AT];
    struct gb_error err = GB_ERROR_INIT;
    struct gb_disk_header again;

    FUZZ_ASSERT(gb_disk_header_build(&header->name, &meta, header->crc32c, page, &err) == 0);
    FUZZ_ASSERT(gb_disk_header_parse(page, &again, &err) == 0);
    FUZZ_ASSERT(again.name.buffer_id == header->name.buffer_id && again.name.generation == header->name.generation &&
                again.name.run == header->name.run && again.bytes == header->bytes && again.crc32c == header->crc32c &&
                again.dtype == header->dtype && gb_shape_equal(&again.shape, &header->shape) &&
                again.kind == header->kind && again.sealed == header->sealed);
    FUZZ_ASSERT(strcmp(again.session.s, header->session.s) == 0 && strcmp(again.buffer.s, header->buffer.s) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static unsigned char page[GB_DISK_DATA_AT];
    struct gb_error err = GB_ERROR_INIT;
    struct gb_disk_header header;

    if (!make_page(data, size, page))
        return 0;
    if (gb_disk_header_parse(page, &header, &err) < 0) {
        FUZZ_ASSERT_SAYS(err);
        FUZZ_ASSERT(err.code == GB_ERR_CONTENT_DAMAGED);
        return 0;
    }
    FUZZ_ASSERT(strlen(header.labels) < GB_LABELS_MAX);
    check_round_trip(&header);
    return 0;
}
