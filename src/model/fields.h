/* The types of the fields of records: pool.def and its brothers name them, and each layer has a family of macros or
 * functions that ends in them, such as GB_JSON_READ_limit. Included by model.h. */
#ifndef GB_MODEL_FIELDS_H
#define GB_MODEL_FIELDS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/name.h"

/* A short text that a client chose: UTF-8 without NUL. A value, as names are. */
#define GB_PHRASE_MAX 255
struct gb_phrase {
    char s[GB_PHRASE_MAX + 1];
};

#define GB_C_i64 int64_t
#define GB_C_index int        /* of a device */
#define GB_C_flag bool        /* 0 or 1 in the database */
#define GB_C_limit uint64_t   /* GB_UNLIMITED is null in the database and in JSON */
#define GB_C_maximum uint64_t /* 0 is null in JSON */
#define GB_C_name struct gb_name
#define GB_C_phrase struct gb_phrase

/* Whether two values are the same. */
#define GB_SAME_i64(a, b) ((a) == (b))
#define GB_SAME_index(a, b) ((a) == (b))
#define GB_SAME_flag(a, b) ((a) == (b))
#define GB_SAME_limit(a, b) ((a) == (b))
#define GB_SAME_maximum(a, b) ((a) == (b))
#define GB_SAME_name(a, b) (strcmp((a).s, (b).s) == 0)
#define GB_SAME_phrase(a, b) (strcmp((a).s, (b).s) == 0)

#endif
