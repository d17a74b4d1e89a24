/* Manifests of checkpoints, as they are written and read. */
#include "disk/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/encoding.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/text.h"
#include "disk/disk.h"
#include "format/safetensors.h"

/* --- manifest ----------------------------------------------------------------------------------------------------- */

#define CRC_DIGITS GB_HEX_U32
#define FILE_DIGITS 5
#define SUFFIX ".safetensors"

static void entry_done(struct gb_manifest_entry *entry) {
    gb_text_unref(entry->labels);
    free(entry->blocks);
}

void gb_manifest_done(struct gb_manifest *manifest) {
    size_t i;

    for (i = 0; i < manifest->count; i++)
        entry_done(&manifest->entries[i]);
    free(manifest->entries);
    *manifest = (struct gb_manifest){.count = 0};
}

void gb_manifest_file(size_t index, char ret[GB_MANIFEST_FILE_SIZE]) {
    snprintf(ret, GB_MANIFEST_FILE_SIZE, "%0*zu" SUFFIX, FILE_DIGITS, index + 1);
}

bool gb_manifest_file_parse(const char *file, size_t *ret_index) {
    size_t digits = strspn(file, "0123456789");
    char text[GB_MANIFEST_FILE_SIZE];
    uint64_t number;

    if (digits < FILE_DIGITS || gb_parse_u64(file, digits, &number) != GB_PARSE_OK || number == 0)
        return false;
    gb_manifest_file((size_t)number - 1, text);
    if (strcmp(text, file) != 0)
        return false;
    *ret_index = (size_t)number - 1;
    return true;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static void put_hex(struct gb_json_writer *out, const char *key, uint32_t value) {
    char text[CRC_DIGITS + 1];

    snprintf(text, sizeof(text), "%08" PRIx32, value);
    gb_json_put_string(out, key, text);
}

static void put_blocks(struct gb_json_writer *out, const struct gb_manifest_entry *entry) {
    size_t count = gb_stored_block_count(entry->bytes);
    char *text;
    size_t i;

    if (count < 2)
        return;
    text = malloc(count * CRC_DIGITS + 1);
    if (!text) {
        out->failed = true;
        return;
    }
    for (i = 0; i < count; i++)
        snprintf(text + i * CRC_DIGITS, CRC_DIGITS + 1, "%08" PRIx32, entry->blocks[i]);
    gb_json_put_string(out, "blocks", text);
    free(text);
}

static void write_entry(struct gb_json_writer *out, const struct gb_manifest_entry *entry, size_t index) {
    char file[GB_MANIFEST_FILE_SIZE];
    unsigned i;

    gb_manifest_file(index, file);
    gb_json_open(out, NULL, '{');
    gb_json_put_string(out, "buffer", entry->buffer.s);
    gb_json_put_string(out, "file", file);
    gb_json_put_i64(out, "id", entry->id);
    gb_json_put_i64(out, "generation", entry->generation);
    put_hex(out, "run", entry->run);
    gb_json_put_string(out, "dtype", gb_dtype_name(entry->dtype));
    gb_json_open(out, "shape", '[');
    for (i = 0; i < entry->shape.dims; i++)
        gb_json_put_u64(out, NULL, entry->shape.dim[i]);
    gb_json_close(out, ']');
    gb_json_put_u64(out, "bytes", entry->bytes);
    put_hex(out, "crc32c", entry->crc32c);
    gb_json_put_u64(out, "size", entry->size);
    put_hex(out, "file_crc32c", entry->file_crc32c);
    gb_json_put_string(out, "kind", gb_kind_name(entry->kind));
    gb_json_put_string(out, "durability", gb_durability_name(entry->durability));
    gb_json_put_bool(out, "mirrored", entry->mirrored);
    gb_json_put_bool(out, "sealed", entry->sealed);
    gb_json_put_raw(out, "labels", gb_labels_text(entry->labels));
    put_blocks(out, entry);
    gb_json_close(out, '}');
}

void gb_manifest_write(const struct gb_manifest *manifest, struct gb_json_writer *out) {
    size_t from = out->used;
    char crc[CRC_DIGITS + 1];
    size_t i;

    gb_json_open(out, NULL, '{');
    put_hex(out, "crc32c", 0);
    gb_json_put_u64(out, "version", GB_MANIFEST_VERSION);
    gb_json_put_string(out, "name", manifest->name.s);
    gb_json_put_string(out, "session", manifest->session.s);
    gb_json_put_time(out, "as_of", manifest->as_of_us);
    gb_json_put_u64(out, "bytes", manifest->bytes);
    gb_json_open(out, "entries", '[');
    for (i = 0; i < manifest->count; i++)
        write_entry(out, &manifest->entries[i], i);
    gb_json_close(out, ']');
    gb_json_close(out, '}');
    gb_json_end(out);
    if (out->failed)
        return;
    snprintf(crc, sizeof(crc), "%08" PRIx32, gb_crc32c(0, out->s + from, out->used - from - 1)); /* not the newline */
    memcpy(out->s + from + strlen(GB_MANIFEST_OPENING), crc, CRC_DIGITS);
}

void gb_manifest_write_index(const struct gb_manifest *manifest, struct gb_json_writer *out) {
    char file[GB_MANIFEST_FILE_SIZE];
    size_t i;

    gb_json_open(out, NULL, '{');
    gb_json_open(out, "metadata", '{');
    gb_json_put_u64(out, "total_size", manifest->bytes);
    gb_json_close(out, '}');
    gb_json_open(out, "weight_map", '{');
    for (i = 0; i < manifest->count; i++) {
        gb_manifest_file(i, file);
        gb_json_put_string(out, manifest->entries[i].buffer.s, file);
    }
    gb_json_close(out, '}');
    gb_json_close(out, '}');
    gb_json_end(out);
}

/* --- manifest read ------------------------------------------------------------------------------------------------ */

/* Reading a manifest, in one pass. */

struct reader {
    struct gb_json_text t;
    char *room;    /* of the strings: each value is taken before the next is read */
    size_t blocks; /* that the entry gives */
    struct gb_error *err;
};

static int wrong(struct reader *r, const char *key, const char *what) {
    return gb_error_set(r->err, GB_ERR_INVALID_ARGUMENT, "the manifest's \"%.40s\" %s", key, what);
}

static int not_json(struct reader *r, const struct gb_error *why) {
    return gb_error_set(r->err, GB_ERR_INVALID_ARGUMENT, "the manifest is not JSON as it should be: %.200s",
                        why->detail[0] ? why->detail : "it is cut off");
}

static int read_string(struct reader *r, struct gb_json_word *ret) {
    r->t.out = r->room;
    return gb_json_text_string(&r->t, ret);
}

static int read_hex_member(struct reader *r, const char *key, uint32_t *ret) {
    struct gb_json_word word;

    if (read_string(r, &word) < 0 || !gb_hex_u32(word.s, word.len, ret))
        return wrong(r, key, "must be 8 hexadecimal digits");
    return 0;
}

static int read_id(struct reader *r, const char *key, int64_t *ret) {
    uint64_t value;

    if (gb_json_text_u64(&r->t, &value) < 0 || value > INT64_MAX)
        return wrong(r, key, "must be a whole number");
    *ret = (int64_t)value;
    return 0;
}

static int read_u64(struct reader *r, const char *key, uint64_t *ret) {
    int64_t value = 0;

    if (read_id(r, key, &value) < 0)
        return -1;
    *ret = (uint64_t)value;
    return 0;
}

static int read_bool(struct reader *r, const char *key, bool *ret) {
    gb_json_text_space(&r->t);
    *ret = r->t.at < r->t.end && *r->t.at == 't';
    if (r->t.at == r->t.end || !strchr("tf", *r->t.at) || gb_json_text_skip(&r->t) < 0)
        return wrong(r, key, "must be true or false");
    return 0;
}

static int read_shape(struct reader *r, struct gb_shape *ret) {
    bool first = true;
    bool failed = false;

    ret->dims = 0;
    if (!gb_json_text_accept(&r->t, '['))
        return wrong(r, "shape", "must be a list of sizes");
    while (gb_json_text_more(&r->t, ']', &first, &failed)) {
        if (ret->dims == GB_DIMS_MAX)
            return wrong(r, "shape", "has too many dimensions");
        if (read_u64(r, "shape", &ret->dim[ret->dims++]) < 0)
            return -1;
    }
    return failed ? wrong(r, "shape", "must be a list of sizes") : 0;
}

/* The text without the whitespace between its tokens. Returns its length. */
static size_t pack(const char *text, size_t n, char *ret) {
    bool quoted = false;
    size_t used = 0;
    size_t i;

    for (i = 0; i < n; i++) {
        char c = text[i];

        if (!quoted && (c == ' ' || c == '\t' || c == '\r' || c == '\n'))
            continue;
        ret[used++] = c;
        if (c == '"')
            quoted = !quoted;
        else if (c == '\\' && quoted && i + 1 < n)
            ret[used++] = text[++i];
    }
    return used;
}

/* Labels stay the text that they are, without whitespace between its tokens: an object whose values are strings. */
static int read_labels(struct reader *r, struct gb_text **ret) {
    char text[GB_LABELS_MAX];
    bool first = true;
    bool failed = false;
    const char *from;
    size_t n;

    gb_json_text_space(&r->t);
    from = r->t.at;
    if (!gb_json_text_accept(&r->t, '{'))
        return wrong(r, "labels", "must be an object");
    while (gb_json_text_more(&r->t, '}', &first, &failed)) {
        r->t.out = r->room;
        if (gb_json_text_string(&r->t, NULL) < 0 || gb_json_text_expect(&r->t, ':', "a colon is missing") < 0 ||
            gb_json_text_string(&r->t, NULL) < 0)
            return wrong(r, "labels", "must be an object of strings");
    }
    n = (size_t)(r->t.at - from);
    if (failed || n >= sizeof(text))
        return wrong(r, "labels", "must be an object of at most 2047 bytes");
    text[pack(from, n, text)] = '\0';
    gb_text_unref(*ret);
    *ret = NULL;
    return gb_labels_make(text, ret, r->err);
}

static int read_blocks(struct reader *r, struct gb_manifest_entry *entry) {
    struct gb_json_word word;
    size_t count;
    size_t i;

    if (read_string(r, &word) < 0 || word.len % CRC_DIGITS != 0 || entry->blocks)
        return wrong(r, "blocks", "must be checksums of 8 hexadecimal digits each, given once");
    count = word.len / CRC_DIGITS;
    entry->blocks = malloc((count + 1) * sizeof(*entry->blocks));
    if (!entry->blocks)
        return gb_error_set(r->err, GB_ERR_SATURATED, "no memory for the manifest; try again later");
    entry->blocks[count] = 0;
    for (i = 0; i < count; i++) {
        if (!gb_hex_u32(word.s + i * CRC_DIGITS, CRC_DIGITS, &entry->blocks[i]))
            return wrong(r, "blocks", "must be hexadecimal digits");
    }
    r->blocks = count;
    return 0;
}

/* Members by their places in a mask of those that were given. */
enum member {
    BUFFER,
    FILE_NAME,
    ID,
    GENERATION,
    RUN,
    DTYPE,
    SHAPE,
    BYTES,
    CRC32C,
    SIZE,
    FILE_CRC32C,
    KIND,
    DURABILITY,
    MIRRORED,
    SEALED,
    NEEDED,
    LABELS = NEEDED,
    BLOCKS,
    MEMBERS
};

static const char *const members[MEMBERS] = {
    [BUFFER] = "buffer",
    [FILE_NAME] = "file",
    [ID] = "id",
    [GENERATION] = "generation",
    [RUN] = "run",
    [DTYPE] = "dtype",
    [SHAPE] = "shape",
    [BYTES] = "bytes",
    [CRC32C] = "crc32c",
    [SIZE] = "size",
    [FILE_CRC32C] = "file_crc32c",
    [KIND] = "kind",
    [DURABILITY] = "durability",
    [MIRRORED] = "mirrored",
    [SEALED] = "sealed",
    [LABELS] = "labels",
    [BLOCKS] = "blocks",
};

/* Members whose value is a word. */
static int read_word(struct reader *r, enum member member, size_t index, struct gb_manifest_entry *ret) {
    struct gb_json_word word;
    char file[GB_MANIFEST_FILE_SIZE];

    if (read_string(r, &word) < 0)
        return wrong(r, members[member], "must be a string");
    switch (member) {
    case BUFFER:
        return gb_name_parse("buffer name", word.s, word.len, &ret->buffer, r->err);
    case FILE_NAME:
        gb_manifest_file(index, file);
        return strcmp(file, word.s) == 0 ? 0 : wrong(r, "file", "must count from 00001.safetensors on");
    case DTYPE:
        return gb_dtype_parse(word.s, word.len, &ret->dtype, r->err);
    case KIND:
        return gb_kind_parse(word.s, word.len, &ret->kind, r->err);
    default:
        return gb_durability_parse(word.s, word.len, &ret->durability, r->err);
    }
}

static int read_member(struct reader *r, enum member member, size_t index, struct gb_manifest_entry *ret) {
    const char *key = members[member];

    switch (member) {
    case ID:
        return read_id(r, key, &ret->id);
    case GENERATION:
        return read_id(r, key, &ret->generation);
    case RUN:
        return read_hex_member(r, key, &ret->run);
    case SHAPE:
        return read_shape(r, &ret->shape);
    case BYTES:
        return read_u64(r, key, &ret->bytes);
    case CRC32C:
        return read_hex_member(r, key, &ret->crc32c);
    case SIZE:
        return read_u64(r, key, &ret->size);
    case FILE_CRC32C:
        return read_hex_member(r, key, &ret->file_crc32c);
    case MIRRORED:
        return read_bool(r, key, &ret->mirrored);
    case SEALED:
        return read_bool(r, key, &ret->sealed);
    case LABELS:
        return read_labels(r, &ret->labels);
    case BLOCKS:
        return read_blocks(r, ret);
    default:
        return read_word(r, member, index, ret);
    }
}

/* One block has the checksum of all. */
static int complete_entry(struct reader *r, unsigned seen, struct gb_manifest_entry *entry) {
    uint64_t bytes;

    if ((seen & ((1u << NEEDED) - 1)) != (1u << NEEDED) - 1)
        return wrong(r, "entries", "lack members");
    if (gb_shape_bytes(&entry->shape, entry->dtype, &bytes, r->err) < 0)
        return -1;
    if (entry->generation < 1 || entry->bytes > INT64_MAX / 2 || entry->size != GB_DISK_DATA_AT + entry->bytes)
        return wrong(r, "entries", "have numbers that cannot be");
    if (entry->blocks && r->blocks != gb_stored_block_count(entry->bytes))
        return wrong(r, "blocks", "has not as many blocks as \"bytes\"");
    if (entry->blocks)
        return 0;
    if (gb_stored_block_count(entry->bytes) > 1)
        return wrong(r, "blocks", "is missing");
    entry->blocks = malloc(sizeof(*entry->blocks));
    if (!entry->blocks)
        return gb_error_set(r->err, GB_ERR_SATURATED, "no memory for the manifest; try again later");
    entry->blocks[0] = entry->crc32c;
    return 0;
}

static int read_entry(struct reader *r, size_t index, struct gb_manifest_entry *ret) {
    struct gb_json_word key;
    unsigned seen = 0;
    bool first = true;
    bool failed = false;
    unsigned member;

    if (!gb_json_text_accept(&r->t, '{'))
        return wrong(r, "entries", "must be a list of objects");
    while (gb_json_text_more(&r->t, '}', &first, &failed)) {
        if (read_string(r, &key) < 0 || gb_json_text_expect(&r->t, ':', "a colon is missing") < 0)
            return wrong(r, "entries", "must be a list of objects");
        for (member = 0; member < MEMBERS && strcmp(members[member], key.s) != 0; member++)
            ;
        if (member == MEMBERS) {
            r->t.out = r->room;
            if (gb_json_text_skip(&r->t) < 0)
                return wrong(r, "entries", "must be a list of objects");
            continue;
        }
        if (seen & 1u << member)
            return wrong(r, members[member], "is given twice");
        seen |= 1u << member;
        if (read_member(r, (enum member)member, index, ret) < 0)
            return -1;
    }
    return failed ? wrong(r, "entries", "must be a list of objects") : complete_entry(r, seen, ret);
}

static int read_entries(struct reader *r, struct gb_manifest *ret) {
    size_t room = 16;
    bool first = true;
    bool failed = false;

    if (ret->entries || !gb_json_text_accept(&r->t, '['))
        return wrong(r, "entries", "must be a list, given once");
    ret->entries = malloc(room * sizeof(*ret->entries)); /* an empty list was given, too */
    if (!ret->entries)
        return gb_error_set(r->err, GB_ERR_SATURATED, "no memory for the manifest; try again later");
    while (gb_json_text_more(&r->t, ']', &first, &failed)) {
        if (ret->count == room) {
            struct gb_manifest_entry *bigger = realloc(ret->entries, 2 * room * sizeof(*bigger));

            if (!bigger)
                return gb_error_set(r->err, GB_ERR_SATURATED, "no memory for the manifest; try again later");
            ret->entries = bigger;
            room = 2 * room;
        }
        ret->entries[ret->count] = (struct gb_manifest_entry){.labels = NULL};
        ret->count++;
        if (read_entry(r, ret->count - 1, &ret->entries[ret->count - 1]) < 0)
            return -1;
    }
    return failed ? wrong(r, "entries", "must be a list") : 0;
}

static int read_name(struct reader *r, const char *key, struct gb_name *ret) {
    struct gb_json_word word;

    if (read_string(r, &word) < 0)
        return wrong(r, key, "must be a string");
    return gb_name_parse(key, word.s, word.len, ret, r->err);
}

static int read_time(struct reader *r, int64_t *ret) {
    struct gb_json_word word;

    if (read_string(r, &word) < 0 || gb_timestamp_parse(word.s, word.len, ret) != GB_TIMESTAMP_OK)
        return wrong(r, "as_of", "must be a time as RFC 3339 writes it");
    return 0;
}

static int read_top(struct reader *r, const char *key, struct gb_manifest *ret) {
    uint64_t version;

    if (strcmp(key, "name") == 0)
        return read_name(r, "name", &ret->name);
    if (strcmp(key, "session") == 0)
        return read_name(r, "session", &ret->session);
    if (strcmp(key, "as_of") == 0)
        return read_time(r, &ret->as_of_us);
    if (strcmp(key, "bytes") == 0)
        return read_u64(r, "bytes", &ret->bytes);
    if (strcmp(key, "entries") == 0)
        return read_entries(r, ret);
    if (strcmp(key, "version") == 0) {
        if (read_u64(r, "version", &version) < 0)
            return -1;
        return version == GB_MANIFEST_VERSION ? 0 : wrong(r, "version", "must be 1: a later daemon has written it");
    }
    r->t.out = r->room;
    return gb_json_text_skip(&r->t);
}

/* No two entries have the same buffer, and the sum is theirs. */
static int check_entries(struct reader *r, const struct gb_manifest *m) {
    struct gb_map names = {.count = 0};
    uint64_t bytes = 0;
    size_t i;
    int failed = 0;

    for (i = 0; i < m->count && failed == 0; i++) {
        if (gb_map_get(&names, m->entries[i].buffer.s))
            failed = wrong(r, "entries", "have a buffer twice");
        else if (gb_map_put(&names, m->entries[i].buffer.s, &m->entries[i]) < 0)
            failed = gb_error_set(r->err, GB_ERR_SATURATED, "no memory for the manifest; try again later");
        if (!gb_add_u64(bytes, m->entries[i].bytes, &bytes))
            failed = wrong(r, "entries", "have more bytes than can be");
    }
    gb_map_done(&names);
    if (failed == 0 && (m->session.s[0] == '\0' || m->name.s[0] == '\0' || !m->entries))
        failed = wrong(r, "name", "is missing, or \"session\", or \"entries\"");
    if (failed == 0 && bytes != m->bytes)
        failed = wrong(r, "bytes", "must be the sum of the entries'");
    return failed;
}

static int read_all(struct reader *r, struct gb_manifest *ret, struct gb_error *why) {
    struct gb_json_word word;
    char key[32];
    bool first = true;
    bool failed = false;

    if (!gb_json_text_accept(&r->t, '{'))
        return not_json(r, why);
    while (gb_json_text_more(&r->t, '}', &first, &failed)) {
        if (read_string(r, &word) < 0 || gb_json_text_expect(&r->t, ':', "a colon is missing") < 0)
            return not_json(r, why);
        snprintf(key, sizeof(key), "%.31s", word.s);
        if (read_top(r, key, ret) < 0)
            return not_json(r, why);
    }
    gb_json_text_space(&r->t);
    if (failed || r->t.at != r->t.end)
        return not_json(r, why);
    return check_entries(r, ret);
}

static int check_sum(struct reader *r, const char *text, size_t n) {
    static const char opening[] = GB_MANIFEST_OPENING;
    char *digits = r->room + sizeof(opening) - 1;
    size_t used = pack(text, n, r->room);
    uint32_t said;

    if (used < sizeof(opening) - 1 + CRC_DIGITS || memcmp(r->room, opening, sizeof(opening) - 1) != 0)
        return 0;
    if (!gb_hex_u32(digits, CRC_DIGITS, &said))
        return wrong(r, "crc32c", "must be 8 hexadecimal digits");
    memset(digits, '0', CRC_DIGITS);
    return gb_crc32c(0, r->room, used) == said ? 0 : wrong(r, "crc32c", "is not that of the text: it is damaged");
}

int gb_manifest_parse(const char *text, size_t n, struct gb_manifest *ret, struct gb_error *err) {
    struct gb_manifest manifest = {.count = 0};
    struct gb_error why = GB_ERROR_INIT;
    struct reader r = {.room = malloc(n + 1), .err = err};
    int failed;

    if (!r.room)
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for the manifest; try again later");
    r.t = (struct gb_json_text){.at = text, .end = text + n, .out = r.room, .err = &why};
    failed = check_sum(&r, text, n) < 0 ? -1 : read_all(&r, &manifest, &why);
    free(r.room);
    if (failed < 0) {
        gb_manifest_done(&manifest);
        return -1;
    }
    *ret = manifest;
    return 0;
}
