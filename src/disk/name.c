/* Names of files. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/encoding.h"
#include "base/parse.h"
#include "disk/internal.h"

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
