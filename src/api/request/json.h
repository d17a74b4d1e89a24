/* Readers of request bodies: one JSON object with known fields, each of a known type. */
#ifndef GB_API_REQUEST_JSON_H
#define GB_API_REQUEST_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "model/model.h"

/* Reads text[0..n) as an object whose keys are all in `fields` (separated by spaces). Returns 0 with a new reference,
 * or -1 with MALFORMED_JSON, DUPLICATE_KEY, WRONG_TYPE, INVALID_ARGUMENT (a number is too large) or UNKNOWN_FIELD. */
int gb_json_object(const char *text, size_t n, const char *fields, json_t **ret, struct gb_error *err);

/* Refuses keys that are not in `fields`. what: the name of the object, for the error. */
int gb_json_known(const json_t *object, const char *what, const char *fields, struct gb_error *err);

/* The readers of one field set *ret when the field is given. Numbers are whole, from 0 to INT64_MAX. Each returns 1
 * when the field is given, 0 when it is not, or -1 with WRONG_TYPE or INVALID_ARGUMENT. */
int gb_json_u64(const json_t *object, const char *key, uint64_t *ret, struct gb_error *err);
/* null gives GB_UNLIMITED. */
int gb_json_limit(const json_t *object, const char *key, uint64_t *ret, struct gb_error *err);
int gb_json_bool(const json_t *object, const char *key, bool *ret, struct gb_error *err);
/* Reads the value that a fill repeats, of `width` bytes: a whole number, or "0x..." when it does not fit in 63 bits. */
int gb_json_pattern(const json_t *object, const char *key, unsigned width, uint64_t *ret, struct gb_error *err);
/* *ret is borrowed from the object and holds no NUL. */
int gb_json_string(const json_t *object, const char *key, const char **ret, struct gb_error *err);
/* *ret is borrowed from the object. */
int gb_json_child(const json_t *object, const char *key, const json_t **ret, struct gb_error *err);
/* A string of at most GB_PHRASE_MAX bytes. */
int gb_json_phrase(const json_t *object, const char *key, struct gb_phrase *ret, struct gb_error *err);
int gb_json_name(const json_t *object, const char *key, struct gb_name *ret, struct gb_error *err);
int gb_json_dtype(const json_t *object, const char *key, enum gb_dtype *ret, struct gb_error *err);
int gb_json_spill(const json_t *object, const char *key, enum gb_spill *ret, struct gb_error *err);
int gb_json_durability(const json_t *object, const char *key, enum gb_durability *ret, struct gb_error *err);
int gb_json_kind(const json_t *object, const char *key, enum gb_kind *ret, struct gb_error *err);
int gb_json_shape(const json_t *object, const char *key, struct gb_shape *ret, struct gb_error *err);

/* Reads labels, an object of strings, as JSON text of at most GB_LABELS_MAX - 1 bytes into out. old: the text that they
 * are merged into, where null removes a label; NULL refuses null. */
int gb_json_labels(const json_t *object, const char *key, const char *old, char out[GB_LABELS_MAX],
                   struct gb_error *err);
/* The same as labels that are shared, with a reference for the caller: NULL unless 1 is returned, and for none. */
int gb_json_take_labels(const json_t *object, const char *key, const char *old, struct gb_text **ret_labels,
                        struct gb_error *err);

#endif
