/* The manifest of a checkpoint: JSON that says which file has which buffer, and all that makes the buffers again.
 *
 *   {"crc32c", "version": 1, "name", "session", "as_of", "bytes", "entries": [
 *     {"buffer", "file": "00001.safetensors", "id", "generation", "run", "dtype", "shape", "bytes", "crc32c", "size",
 *      "file_crc32c", "kind", "durability", "mirrored", "sealed", "labels", "blocks"}]}
 *
 * Checksums and run are 8 hexadecimal digits. blocks: those of all blocks, one behind the other; only if there are
 * several. The entries are in the order of their files, from 00001 on. Members of later versions are skipped.
 *
 * crc32c, the first member, is of the text without the whitespace between its tokens, and with these eight digits as
 * zeros: the text may be laid out again, as by programs that keep it in a JSON file of their own. A text without it, as
 * one made by hand, is taken as it is. Pure. */
#ifndef GB_DISK_MANIFEST_H
#define GB_DISK_MANIFEST_H

#include "base/json_writer.h"
#include "model/model.h"

#define GB_MANIFEST_VERSION 1
/* What stands before the digits of the checksum. */
#define GB_MANIFEST_OPENING "{\"crc32c\":\""

struct gb_manifest_entry {
    struct gb_name buffer;
    int64_t id;
    int64_t generation;
    uint32_t run;
    enum gb_dtype dtype;
    struct gb_shape shape;
    uint64_t bytes;
    uint32_t crc32c;
    uint64_t size; /* of the file */
    uint32_t file_crc32c;
    enum gb_kind kind;
    enum gb_durability durability;
    bool mirrored;
    bool sealed;
    struct gb_text *labels; /* a reference */
    uint32_t *blocks;       /* malloc'd: gb_stored_block_count(bytes) checksums; NULL for none */
};

struct gb_manifest {
    struct gb_name name;
    struct gb_name session;
    int64_t as_of_us;
    uint64_t bytes;
    size_t count;
    struct gb_manifest_entry *entries;
};

void gb_manifest_done(struct gb_manifest *manifest); /* a zeroed one is accepted */

/* "00001.safetensors" for the first. */
#define GB_MANIFEST_FILE_SIZE 40
void gb_manifest_file(size_t index, char ret[GB_MANIFEST_FILE_SIZE]);
/* Returns false if it is no such name. */
bool gb_manifest_file_parse(const char *file, size_t *ret_index);

void gb_manifest_write(const struct gb_manifest *manifest, struct gb_json_writer *out);
/* The index of Hugging Face: which file has which tensor. */
void gb_manifest_write_index(const struct gb_manifest *manifest, struct gb_json_writer *out);
/* Returns 0, or -1 with INVALID_ARGUMENT saying what is wrong, or with SATURATED. */
int gb_manifest_parse(const char *text, size_t n, struct gb_manifest *ret, struct gb_error *err);

#endif
