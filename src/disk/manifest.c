#include "disk/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/parse.h"

#define CRC_DIGITS 8
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
