#include "cli/backup/manifest.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT_VERSION 1
#define ID_TEXT 40 /* longest id, generation or run, with its NUL */

int gb_backup_fail(struct gpubuf_error *err, int code, const char *format, ...) {
    va_list args;

    memset(err, 0, sizeof *err);
    err->code = code;
    snprintf(err->slug, sizeof err->slug, "%s", gpubuf_code_slug(code));
    va_start(args, format);
    vsnprintf(err->detail, sizeof err->detail, format, args);
    va_end(args);
    return -1;
}

/* --- one entry ---------------------------------------------------------------------------------------------------- */

static bool plain(const char *text) {
    const char *letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ._-";

    return text[0] != '\0' && text[0] != '.' && strspn(text, letters) == strlen(text);
}

/* A number or a text, as part of an object's name: false where it cannot be one. */
static bool word_of(json_t *entry, const char *key, char *ret) {
    json_t *value = json_object_get(entry, key);
    int n = 0;

    if (json_is_integer(value))
        n = snprintf(ret, ID_TEXT, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_string(value))
        n = snprintf(ret, ID_TEXT, "%s", json_string_value(value));
    else if (value == NULL || json_is_null(value))
        n = snprintf(ret, ID_TEXT, "0");
    return n > 0 && n < ID_TEXT && plain(ret);
}

static bool crc_of(json_t *entry, uint32_t *ret) {
    const char *text = gb_cli_text(entry, "file_crc32c");
    char *end;

    if (strlen(text) != 8 || strspn(text, "0123456789abcdefABCDEF") != 8)
        return false;
    *ret = (uint32_t)strtoul(text, &end, 16);
    return true;
}

static int take_entry(json_t *entry, size_t number, struct gb_backup_file *ret, struct gpubuf_error *err) {
    json_t *size = json_object_get(entry, "size");
    char generation[ID_TEXT];
    char run[ID_TEXT];
    char id[ID_TEXT];

    ret->buffer = gb_cli_text(entry, "buffer");
    ret->file = gb_cli_text(entry, "file");
    if (!plain(ret->file) || !json_is_integer(size) || json_integer_value(size) <= 0 || !crc_of(entry, &ret->crc) ||
        !word_of(entry, "id", id) || !word_of(entry, "generation", generation) || !word_of(entry, "run", run))
        return gb_backup_fail(err, GPUBUF_BAD_ANSWER,
                              "entry %zu of the checkpoint's manifest lacks a file, a size or a file_crc32c, or has an "
                              "id, generation or run that this gpubuf does not know",
                              number);
    ret->bytes = (uint64_t)json_integer_value(size);
    snprintf(ret->object, sizeof ret->object, GB_BACKUP_OBJECTS "%s.%s.%s.%08" PRIx32 ".safetensors", id, generation,
             run, ret->crc);
    return 0;
}

/* --- all of them -------------------------------------------------------------------------------------------------- */

int gb_backup_manifest_take(json_t *checkpoint, json_t *index, struct gb_backup_manifest *ret,
                            struct gpubuf_error *err) {
    json_t *entries = json_object_get(checkpoint, "entries");
    json_t *entry;
    size_t i;

    memset(ret, 0, sizeof *ret);
    ret->checkpoint = checkpoint;
    ret->index = index;
    if (!json_is_object(index) || !json_is_array(entries))
        return gb_backup_fail(err, GPUBUF_BAD_ANSWER,
                              "the manifest of the checkpoint or its index is not what a "
                              "gpubufd writes");
    if ((int)gb_cli_number(checkpoint, "version") != FORMAT_VERSION)
        return gb_backup_fail(err, GPUBUF_BAD_ANSWER,
                              "the manifest of the checkpoint has version %.0f, and this gpubuf knows version %d",
                              gb_cli_number(checkpoint, "version"), FORMAT_VERSION);
    ret->files = calloc(json_array_size(entries) + 1, sizeof *ret->files);
    if (ret->files == NULL)
        return gb_backup_fail(err, GPUBUF_NO_MEMORY, "out of memory");
    json_array_foreach(entries, i, entry) {
        if (take_entry(entry, i + 1, &ret->files[i], err) < 0)
            return -1;
        ret->count++;
        ret->bytes += ret->files[i].bytes;
    }
    return 0;
}

/* The object of each file is the one that the place says, which must be a name below objects/. */
static int take_objects(json_t *objects, struct gb_backup_manifest *manifest, const char *where,
                        struct gpubuf_error *err) {
    size_t i;

    for (i = 0; i < manifest->count; i++) {
        struct gb_backup_file *file = &manifest->files[i];
        const char *object = json_string_value(json_object_get(objects, file->file));
        size_t before = strlen(GB_BACKUP_OBJECTS);

        if (object == NULL || strncmp(object, GB_BACKUP_OBJECTS, before) != 0 || !plain(object + before) ||
            strlen(object) >= sizeof file->object)
            return gb_backup_fail(err, GPUBUF_INPUT_FAILED, "%s: its manifest names no object for the file %s", where,
                                  file->file);
        snprintf(file->object, sizeof file->object, "%s", object);
    }
    return 0;
}

int gb_backup_manifest_read(const char *text, size_t bytes, const char *where, struct gb_backup_manifest *ret,
                            struct gpubuf_error *err) {
    json_error_t why;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why);
    int rc;

    memset(ret, 0, sizeof *ret);
    if (root == NULL)
        return gb_backup_fail(err, GPUBUF_INPUT_FAILED, "%s: its manifest is damaged: %s, at byte %d", where, why.text,
                              why.position);
    if ((int)gb_cli_number(root, "gpubuf_backup") != FORMAT_VERSION)
        rc = gb_backup_fail(err, GPUBUF_INPUT_FAILED,
                            "%s: its manifest is not that of a backup of version %d, made by \"gpubuf backup\"", where,
                            FORMAT_VERSION);
    else
        rc = gb_backup_manifest_take(json_incref(json_object_get(root, "checkpoint")),
                                     json_incref(json_object_get(root, "index")), ret, err);
    if (rc == 0)
        rc = take_objects(json_object_get(root, "objects"), ret, where, err);
    json_decref(root);
    return rc;
}

void gb_backup_manifest_done(struct gb_backup_manifest *manifest) {
    free(manifest->files);
    json_decref(manifest->checkpoint);
    json_decref(manifest->index);
    memset(manifest, 0, sizeof *manifest);
}

/* --- as text ------------------------------------------------------------------------------------------------------ */

static json_t *objects_of(const struct gb_backup_manifest *manifest) {
    json_t *objects = json_object();
    size_t i;

    for (i = 0; i < manifest->count; i++)
        json_object_set_new(objects, manifest->files[i].file, json_string(manifest->files[i].object));
    return objects;
}

static char *text_of(json_t *value) {
    char *text = value != NULL ? json_dumps(value, JSON_INDENT(1)) : NULL;

    json_decref(value);
    return text;
}

char *gb_backup_manifest_text(const struct gb_backup_manifest *manifest) {
    return text_of(json_pack("{s:i, s:O, s:O, s:o}", "gpubuf_backup", FORMAT_VERSION, "checkpoint",
                             manifest->checkpoint, "index", manifest->index, "objects", objects_of(manifest)));
}

char *gb_backup_index_text(const struct gb_backup_manifest *manifest) {
    json_t *index = json_deep_copy(manifest->index);
    json_t *map = json_object_get(index, "weight_map");
    json_t *objects = objects_of(manifest);
    const char *tensor;
    json_t *file;
    void *next;

    json_object_foreach_safe(map, next, tensor, file) {
        json_t *object = json_is_string(file) ? json_object_get(objects, json_string_value(file)) : NULL;

        if (object != NULL)
            json_object_set(map, tensor, object);
    }
    json_decref(objects);
    return text_of(index);
}

bool gb_backup_manifest_has(const struct gb_backup_manifest *manifest, const char *object) {
    size_t i;

    for (i = 0; i < manifest->count; i++)
        if (strcmp(manifest->files[i].object, object) == 0)
            return true;
    return false;
}
