/* What a place of backups holds: objects, and manifest.json that names them.
 *
 *     {"gpubuf_backup": 1,
 *      "checkpoint": the daemon's manifest.json as it was,
 *      "index": the daemon's model.safetensors.index.json,
 *      "objects": {"00001.safetensors": "objects/7.3.1a2b.8f00c2d1.safetensors"}}
 *
 * The names of a checkpoint's files shift from one checkpoint to the next. Those of objects do not: they are the
 * buffer's id, generation and run, and the CRC32C of the file. An object that stands there with the right size is the
 * file. */
#ifndef GB_CLI_BACKUP_MANIFEST_H
#define GB_CLI_BACKUP_MANIFEST_H

#include "cli/cli.h"

#define GB_BACKUP_MANIFEST "manifest.json"
#define GB_BACKUP_INDEX "model.safetensors.index.json"
#define GB_BACKUP_OBJECTS "objects/"
#define GB_BACKUP_OBJECT_SIZE 256

/* One file of a checkpoint. Texts are borrowed from the manifest's JSON. */
struct gb_backup_file {
    const char *buffer;
    const char *file; /* in the checkpoint */
    uint64_t bytes;
    uint32_t crc;                       /* of the whole file */
    char object[GB_BACKUP_OBJECT_SIZE]; /* in the place of backups */
};

struct gb_backup_manifest {
    json_t *checkpoint; /* the daemon's manifest */
    json_t *index;
    struct gb_backup_file *files;
    size_t count;
    uint64_t bytes; /* of all files */
};

/* Takes the daemon's manifest and index over; each file gets the name of its object. 0, or -1 with err if it is no
 * manifest that this program knows; ret needs gb_backup_manifest_done() either way. */
int gb_backup_manifest_take(json_t *checkpoint, json_t *index, struct gb_backup_manifest *ret,
                            struct gpubuf_error *err);
/* Reads the manifest of a place of backups; where: how messages call it. The same results. */
int gb_backup_manifest_read(const char *text, size_t bytes, const char *where, struct gb_backup_manifest *ret,
                            struct gpubuf_error *err);
void gb_backup_manifest_done(struct gb_backup_manifest *manifest);

/* The text of manifest.json, and of the index with the names of objects; malloc'd, NULL without memory. */
char *gb_backup_manifest_text(const struct gb_backup_manifest *manifest);
char *gb_backup_index_text(const struct gb_backup_manifest *manifest);

/* Whether a file of the manifest is that object. */
bool gb_backup_manifest_has(const struct gb_backup_manifest *manifest, const char *object);

/* Fills err: a code of the library and a sentence. -1. */
int gb_backup_fail(struct gpubuf_error *err, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
