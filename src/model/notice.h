/* A notice: something that happened, for the feed. */
#ifndef GB_MODEL_NOTICE_H
#define GB_MODEL_NOTICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/text.h"
#include "model/model.h"

enum gb_notice_type {
#define GB_NOTICE(name, word) GB_NOTICE_##name,
#include "model/notices.def"
#undef GB_NOTICE
    GB_NOTICE_TYPES
};
const char *gb_notice_word(enum gb_notice_type type);

/* GB_NOTICE_TYPES where there is no such word (of a newer daemon). */
enum gb_notice_type gb_notice_type_of(const char *word);

/* A mask, 1 << type, of all types whose word begins with one of the prefixes between commas. INVALID_ARGUMENT where a
 * prefix fits none. */
int gb_notice_types_parse(const char *text, size_t len, uint64_t *ret_mask, struct gb_error *err);

#define GB_NOTICE_DETAIL_SIZE 128

/* What does not apply is "", -1 or 0. */
struct gb_notice {
    int64_t id;    /* rises strictly, never given twice; not without gaps */
    int64_t at_us; /* since the epoch */
    enum gb_notice_type type;
    int device; /* index; -1: none */
    struct gb_name session;
    struct gb_name pool;
    struct gb_name buffer;
    bool has_bytes;
    uint64_t bytes;
    uint64_t count;     /* things it tells of, where that is not one thing by name */
    int64_t generation; /* of a buffer */
    bool has_head;
    enum gb_head head; /* of a mirrored buffer */
    int64_t lease;     /* id */
    char detail[GB_NOTICE_DETAIL_SIZE];
};

#endif
