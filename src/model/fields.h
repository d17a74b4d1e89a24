/* The types of the fields of records: pool.def and its brothers name them, and each layer has a family of macros that
 * end in them, such as BIND_limit of the store. Included by model.h. */
#ifndef GB_MODEL_FIELDS_H
#define GB_MODEL_FIELDS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/text.h"
#include "model/labels.h"
#include "model/stored.h"
#include "model/tensor.h"

#define GB_UNLIMITED UINT64_MAX

/* A short text that a client chose: UTF-8 without NUL. A value, as names are. */
#define GB_PHRASE_MAX 255
struct gb_phrase {
    char s[GB_PHRASE_MAX + 1];
};

#define GB_FLEET_CLAIM_MAX 63
typedef char gb_fleet_claim[GB_FLEET_CLAIM_MAX + 1];

/* In C. */
#define GB_C_i64 int64_t
#define GB_C_u64 uint64_t
#define GB_C_u32 uint32_t
#define GB_C_count unsigned
#define GB_C_index int        /* of a device */
#define GB_C_flag bool        /* 0 or 1 in the database */
#define GB_C_limit uint64_t   /* GB_UNLIMITED is null in the database and in JSON */
#define GB_C_maximum uint64_t /* 0 is null in JSON */
#define GB_C_priority int
#define GB_C_crc uint32_t
#define GB_C_name struct gb_name
#define GB_C_phrase struct gb_phrase
#define GB_C_claim gb_fleet_claim
#define GB_C_text struct gb_text *   /* a reference */
#define GB_C_labels struct gb_text * /* a reference */
#define GB_C_shape struct gb_shape
#define GB_C_dtype enum gb_dtype
#define GB_C_kind enum gb_kind
#define GB_C_state enum gb_buffer_state
#define GB_C_head enum gb_head
#define GB_C_durability enum gb_durability
#define GB_C_spill enum gb_spill

/* Whether two values are the same. */
#define GB_SAME_i64(a, b) ((a) == (b))
#define GB_SAME_u64 GB_SAME_i64
#define GB_SAME_u32 GB_SAME_i64
#define GB_SAME_count GB_SAME_i64
#define GB_SAME_index GB_SAME_i64
#define GB_SAME_flag GB_SAME_i64
#define GB_SAME_limit GB_SAME_i64
#define GB_SAME_maximum GB_SAME_i64
#define GB_SAME_priority GB_SAME_i64
#define GB_SAME_crc GB_SAME_i64
#define GB_SAME_name(a, b) (strcmp((a).s, (b).s) == 0)
#define GB_SAME_phrase GB_SAME_name
#define GB_SAME_claim(a, b) (strcmp(a, b) == 0)
#define GB_SAME_text(a, b) (strcmp(gb_text_s(a), gb_text_s(b)) == 0)
#define GB_SAME_labels(a, b) (strcmp(gb_labels_text(a), gb_labels_text(b)) == 0)
#define GB_SAME_shape(a, b) gb_shape_equal(&(a), &(b))
#define GB_SAME_dtype GB_SAME_i64
#define GB_SAME_kind GB_SAME_i64
#define GB_SAME_state GB_SAME_i64
#define GB_SAME_head GB_SAME_i64
#define GB_SAME_durability GB_SAME_i64
#define GB_SAME_spill GB_SAME_i64

#endif
