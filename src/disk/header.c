/* The header of a file of stored bytes, and the names of files. */
#include "disk/header.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/encoding.h"
#include "base/hash.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "disk/internal.h"
#include "format/safetensors.h"

/* --- header ------------------------------------------------------------------------------------------------------- */

#define JSON_AT GB_SAFETENSORS_LENGTH
#define JSON_BYTES (GB_DISK_DATA_AT - JSON_AT)
#define NO_CRC "00000000"
#define CRC_DIGITS 8
/* What stands before the digits of the page's own checksum. */
#define OPENING "{\"" GB_SAFETENSORS_METADATA "\":{\"gpubuf.header_crc32c\":\""
#define CRC_AT (JSON_AT + sizeof(OPENING) - 1)

/* The checksum of the page without its own digits. */
static void page_crc(const unsigned char *page, char ret[CRC_DIGITS + 1]) {
    uint32_t crc = gb_crc32c(0, page, CRC_AT);

    crc = gb_crc32c(crc, NO_CRC, CRC_DIGITS);
    crc = gb_crc32c(crc, page + CRC_AT + CRC_DIGITS, GB_DISK_DATA_AT - CRC_AT - CRC_DIGITS);
    snprintf(ret, CRC_DIGITS + 1, "%08" PRIx32, crc);
}

/* --- building ----------------------------------------------------------------------------------------------------- */

static void put_number(struct gb_json_writer *out, const char *key, uint64_t value) {
    char text[24];

    snprintf(text, sizeof(text), "%" PRIu64, value);
    gb_json_put_string(out, key, text);
}

static void put_hex(struct gb_json_writer *out, const char *key, uint32_t value) {
    char text[16];

    snprintf(text, sizeof(text), "%08" PRIx32, value);
    gb_json_put_string(out, key, text);
}

static void put_metadata(struct gb_json_writer *out, const struct gb_disk_name *name, const struct gb_disk_meta *meta,
                         uint32_t crc32c, bool labels) {
    const struct gb_buffer_rec *buffer = meta->buffer;
    char shape[GB_SHAPE_TEXT_SIZE];

    gb_shape_text(&buffer->shape, shape);
    gb_json_put_string(out, "gpubuf.session", meta->session);
    gb_json_put_string(out, "gpubuf.buffer", buffer->name.s);
    put_number(out, "gpubuf.id", (uint64_t)name->buffer_id);
    put_number(out, "gpubuf.generation", (uint64_t)name->generation);
    put_hex(out, "gpubuf.run", name->run);
    put_number(out, "gpubuf.bytes", buffer->bytes);
    put_hex(out, "gpubuf.crc32c", crc32c);
    gb_json_put_string(out, "gpubuf.dtype", gb_dtype_name(buffer->dtype));
    gb_json_put_string(out, "gpubuf.shape", shape);
    gb_json_put_string(out, "gpubuf.kind", gb_kind_name(buffer->kind));
    gb_json_put_string(out, "gpubuf.sealed", buffer->sealed ? "true" : "false");
    if (!labels)
        gb_json_put_string(out, "gpubuf.labels_omitted", "true");
    else if (buffer->labels)
        gb_json_put_string(out, "gpubuf.labels", gb_labels_text(buffer->labels));
}

/* Types that safetensors does not have go out as bytes. */
static void put_tensor(struct gb_json_writer *out, const struct gb_buffer_rec *buffer) {
    struct gb_shape bytes = {.dims = 1, .dim = {buffer->bytes}};
    uint64_t n;

    if (gb_dtype_safetensors(buffer->dtype) && gb_shape_bytes(&buffer->shape, buffer->dtype, &n, NULL) == 0 &&
        n == buffer->bytes)
        gb_safetensors_add(out, buffer->name.s, buffer->dtype, &buffer->shape, 0, n);
    else
        gb_safetensors_add(out, buffer->name.s, GB_DTYPE_UINT8, &bytes, 0, buffer->bytes);
}

/* Returns false if the text does not fit. */
static bool write_json(const struct gb_disk_name *name, const struct gb_disk_meta *meta, uint32_t crc32c, bool labels,
                       unsigned char *page) {
    struct gb_json_writer out = gb_json_fixed((char *)page + JSON_AT, JSON_BYTES);

    memset(page + JSON_AT, ' ', JSON_BYTES);
    gb_json_put_text(&out, OPENING NO_CRC "\"");
    out.comma = true;
    put_metadata(&out, name, meta, crc32c, labels);
    gb_json_close(&out, '}');
    put_tensor(&out, meta->buffer);
    gb_json_close(&out, '}');
    return !out.failed;
}

int gb_disk_header_build(const struct gb_disk_name *name, const struct gb_disk_meta *meta, uint32_t crc32c,
                         unsigned char page[GB_DISK_DATA_AT], struct gb_error *err) {
    char crc[CRC_DIGITS + 1];
    int i;

    if (!write_json(name, meta, crc32c, true, page) && !write_json(name, meta, crc32c, false, page))
        return gb_error_set(err, GB_ERR_INTERNAL, "the names of session and buffer do not fit into the file's header");
    for (i = 0; i < JSON_AT; i++)
        page[i] = (unsigned char)((uint64_t)JSON_BYTES >> 8 * i);
    page_crc(page, crc);
    memcpy(page + CRC_AT, crc, CRC_DIGITS);
    return 0;
}

/* --- parsing ------------------------------------------------------------------------------------------------------ */

static int damaged(const char *what, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_CONTENT_DAMAGED, "the file of the bytes is damaged: its header %s", what);
}

enum field {
    SESSION,
    BUFFER,
    ID,
    GENERATION,
    RUN,
    BYTES,
    CRC32C,
    DTYPE,
    SHAPE,
    KIND,
    SEALED,
    NEEDED, /* how many must be there */
    LABELS = NEEDED,
    LABELS_OMITTED,
    FIELDS
};

static const char *const fields[FIELDS] = {[SESSION] = "gpubuf.session",
                                           [BUFFER] = "gpubuf.buffer",
                                           [ID] = "gpubuf.id",
                                           [GENERATION] = "gpubuf.generation",
                                           [RUN] = "gpubuf.run",
                                           [BYTES] = "gpubuf.bytes",
                                           [CRC32C] = "gpubuf.crc32c",
                                           [DTYPE] = "gpubuf.dtype",
                                           [SHAPE] = "gpubuf.shape",
                                           [KIND] = "gpubuf.kind",
                                           [SEALED] = "gpubuf.sealed",
                                           [LABELS] = "gpubuf.labels",
                                           [LABELS_OMITTED] = "gpubuf.labels_omitted"};

static bool parse_id(const struct gb_json_word *value, int64_t *ret) {
    uint64_t number;

    if (gb_parse_u64(value->s, value->len, &number) != GB_PARSE_OK || number > INT64_MAX)
        return false;
    *ret = (int64_t)number;
    return true;
}

static bool parse_labels(const struct gb_json_word *value, char ret[GB_LABELS_MAX]) {
    if (value->len >= GB_LABELS_MAX)
        return false;
    memcpy(ret, value->s, value->len + 1);
    return true;
}

static bool parse_field(enum field field, const struct gb_json_word *value, struct gb_disk_header *ret) {
    const char *s = value->s;
    size_t n = value->len;

    switch (field) {
    case SESSION:
        return gb_name_parse("session name", s, n, &ret->session, NULL) == 0;
    case BUFFER:
        return gb_name_parse("buffer name", s, n, &ret->buffer, NULL) == 0;
    case ID:
        return parse_id(value, &ret->name.buffer_id);
    case GENERATION:
        return parse_id(value, &ret->name.generation);
    case RUN:
        return gb_hex_u32(s, n, &ret->name.run);
    case BYTES:
        return gb_parse_u64(s, n, &ret->bytes) == GB_PARSE_OK;
    case CRC32C:
        return gb_hex_u32(s, n, &ret->crc32c);
    case DTYPE:
        return gb_dtype_parse(s, n, &ret->dtype, NULL) == 0;
    case SHAPE:
        return gb_shape_parse(s, n, &ret->shape, NULL) == 0;
    case KIND:
        return gb_kind_parse(s, n, &ret->kind, NULL) == 0;
    case SEALED:
        return gb_parse_bool(s, n, &ret->sealed) == GB_PARSE_OK;
    case LABELS:
        return parse_labels(value, ret->labels);
    case LABELS_OMITTED:
        return gb_parse_bool(s, n, &ret->labels_omitted) == GB_PARSE_OK;
    default:
        return false;
    }
}

/* Reads one member of __metadata__, whose key was read. Others' keys are skipped. */
static int read_member(const struct gb_json_word *key, const struct gb_json_word *value, unsigned *seen,
                       struct gb_disk_header *ret, struct gb_error *err) {
    unsigned field;

    for (field = 0; field < FIELDS && strcmp(key->s, fields[field]) != 0; field++)
        ;
    if (field == FIELDS)
        return 0;
    if (*seen & 1u << field)
        return damaged("has a key twice", err);
    *seen |= 1u << field;
    return parse_field((enum field)field, value, ret) ? 0 : damaged("has a value that cannot be", err);
}

/* The text is known to be that of a safetensors header, which begins with __metadata__ and the checksum. */
static int read_metadata(const unsigned char *page, struct gb_disk_header *ret, struct gb_error *err) {
    char room[JSON_BYTES];
    struct gb_json_text t = {
        .at = (const char *)page + CRC_AT + CRC_DIGITS + 1, .end = (const char *)page + GB_DISK_DATA_AT, .out = room};
    unsigned seen = 0;
    bool first = false;
    bool failed = false;

    while (gb_json_text_more(&t, '}', &first, &failed)) {
        struct gb_json_word key;
        struct gb_json_word value;

        t.out = room;
        if (gb_json_text_string(&t, &key) < 0 || gb_json_text_expect(&t, ':', "") < 0 ||
            gb_json_text_string(&t, &value) < 0)
            return damaged("has metadata that are no texts", err);
        if (read_member(&key, &value, &seen, ret, err) < 0)
            return -1;
    }
    if (failed || (seen & ((1u << NEEDED) - 1)) != (1u << NEEDED) - 1)
        return damaged("lacks metadata", err);
    return 0;
}

/* The tensor must be the one that the metadata speak of. */
static int check_tensor(const struct gb_safetensors *file, const struct gb_disk_header *header, struct gb_error *err) {
    const struct gb_safetensor *tensor = file->tensors;
    uint64_t bytes;

    if (file->count != 1 || strcmp(tensor->name, header->buffer.s) != 0)
        return damaged("is not that of one tensor, the buffer", err);
    if (file->bytes != header->bytes || gb_shape_bytes(&header->shape, header->dtype, &bytes, NULL) < 0)
        return damaged("has another size than its metadata say", err);
    return 0;
}

int gb_disk_header_parse(const unsigned char page[GB_DISK_DATA_AT], struct gb_disk_header *ret, struct gb_error *err) {
    struct gb_disk_header header = {.bytes = 0};
    struct gb_error why = GB_ERROR_INIT;
    struct gb_safetensors file;
    char crc[CRC_DIGITS + 1];
    size_t data_at;
    int r;

    if (gb_safetensors_data_at(page, &data_at, NULL) < 0 || data_at != GB_DISK_DATA_AT ||
        memcmp(page + JSON_AT, OPENING, sizeof(OPENING) - 1) != 0)
        return damaged("is missing", err);
    page_crc(page, crc);
    if (memcmp(page + CRC_AT, crc, CRC_DIGITS) != 0)
        return damaged("has another checksum than it says", err);
    if (gb_safetensors_parse((const char *)page + JSON_AT, JSON_BYTES, &file, &why) < 0)
        return why.code == GB_ERR_SATURATED ? gb_error_move(err, &why) : damaged("is no safetensors header", err);
    r = read_metadata(page, &header, err);
    if (r == 0)
        r = check_tensor(&file, &header, err);
    gb_safetensors_done(&file);
    if (r == 0)
        *ret = header;
    return r;
}

/* --- name --------------------------------------------------------------------------------------------------------- */

/* Names of files. */

#define SUFFIX ".safetensors"
#define RUN_DIGITS 8

int64_t gb_disk_name_generation(const struct gb_disk_name *name) {
    return name->generation & ~GB_DISK_LINKED;
}

void gb_disk_name_text(const struct gb_disk_name *name, char ret[GB_DISK_NAME_SIZE]) {
    snprintf(ret, GB_DISK_NAME_SIZE, "%02x/%" PRId64 ".%" PRId64 ".%08" PRIx32 SUFFIX,
             (unsigned)((uint64_t)name->buffer_id & 0xff), name->buffer_id, name->generation, name->run);
}

void gb_disk_name_folder(const struct gb_disk_name *name, char ret[4]) {
    snprintf(ret, 4, "%02x", (unsigned)((uint64_t)name->buffer_id & 0xff));
}

const char *gb_disk_name_base(const char text[GB_DISK_NAME_SIZE]) {
    return text + 3;
}

/* Reads a number from 0 to INT64_MAX and the dot behind it. */
static bool parse_number(const char **at, int64_t *ret) {
    const char *dot = strchr(*at, '.');
    uint64_t value;

    if (!dot || gb_parse_u64(*at, (size_t)(dot - *at), &value) != GB_PARSE_OK || value > INT64_MAX)
        return false;
    *ret = (int64_t)value;
    *at = dot + 1;
    return true;
}

/* A name that would be written in another way is not ours: leading zeros, capitals. */
bool gb_disk_name_parse(const char *base, struct gb_disk_name *ret) {
    struct gb_disk_name name = {0};
    char text[GB_DISK_NAME_SIZE];
    const char *at = base;

    if (!parse_number(&at, &name.buffer_id) || !parse_number(&at, &name.generation))
        return false;
    if (strnlen(at, RUN_DIGITS) < RUN_DIGITS || !gb_hex_u32(at, RUN_DIGITS, &name.run))
        return false;
    gb_disk_name_text(&name, text);
    if (strcmp(gb_disk_name_base(text), base) != 0)
        return false;
    *ret = name;
    return true;
}
