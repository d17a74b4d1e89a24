/* The JSON body of a request. */
#ifndef GB_API_REQUEST_BODY_H
#define GB_API_REQUEST_BODY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/context.h"
#include "base/error.h"
#include "base/text.h"
#include "http/http.h"
#include "model/model.h"

/* Readers of request bodies: one JSON object with known fields, each of a known type. */

/* Reads text[0..n) as an object whose keys are all in `fields` (separated by spaces). Returns 0 with a new reference,
 * or -1 with MALFORMED_JSON, DUPLICATE_KEY, WRONG_TYPE, INVALID_ARGUMENT (a number is too large) or UNKNOWN_FIELD. */
int gb_json_object(const char *text, size_t n, const char *fields, json_t **ret, struct gb_error *err);

/* Refuses keys that are not in `fields`. what: the name of the object, for the error. */
int gb_json_known(const json_t *object, const char *what, const char *fields, struct gb_error *err);

/* The readers of one field set *ret when the field is given. Numbers are whole, from 0 to INT64_MAX. Each returns 1
 * when the field is given, 0 when it is not, or -1 with WRONG_TYPE or INVALID_ARGUMENT. */
int gb_json_u64(const json_t *object, const char *key, uint64_t *ret, struct gb_error *err);
/* null and 18446744073709551615 give GB_UNLIMITED. */
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
/* The field 'prefix': a name, or "", which leaves *ret as it is. Returns 0 or -1. */
int gb_json_prefix(const json_t *object, struct gb_name *ret, struct gb_error *err);
int gb_json_dtype(const json_t *object, const char *key, enum gb_dtype *ret, struct gb_error *err);
int gb_json_spill(const json_t *object, const char *key, enum gb_spill *ret, struct gb_error *err);
int gb_json_durability(const json_t *object, const char *key, enum gb_durability *ret, struct gb_error *err);
int gb_json_kind(const json_t *object, const char *key, enum gb_kind *ret, struct gb_error *err);
int gb_json_shape(const json_t *object, const char *key, struct gb_shape *ret, struct gb_error *err);

/* Reads labels, an object of strings, as JSON text of at most GB_LABELS_MAX - 1 bytes into out. old: the text that they
 * are merged into, where null removes a label; NULL refuses null. */
int gb_json_labels(const json_t *object, const char *key, const char *old, char out[GB_LABELS_MAX],
                   struct gb_error *err);
/* The same as labels that are shared, with a reference for the caller: NULL unless 1 is returned, and for no labels. */
int gb_json_take_labels(const json_t *object, const char *key, const char *old, struct gb_text **ret_labels,
                        struct gb_error *err);

/* Checks Content-Type and Content-Encoding, then reads the body as gb_json_object does. optional: a missing body counts
 * as {}. */
int gb_body_object(const struct gb_http_request *request, const char *fields, bool optional, json_t **ret,
                   struct gb_error *err);

/* Checks that there is a body, and that its headers say JSON; it is not read. Returns 0 or -1. */
int gb_body_json(const struct gb_http_request *request, struct gb_error *err);

/* Checks that the body is missing or {}. Returns 0 or -1. */
int gb_body_no_fields(const struct gb_http_request *request, struct gb_error *err);

/* Reads the body {"stream": name}. *ret is "default" when the field or the whole body is left out. Returns 0 or -1. */
int gb_body_stream(const struct gb_http_request *request, struct gb_name *ret, struct gb_error *err);

/* Reads the body {"name": name}. Returns 0 or -1. */
int gb_body_name(const struct gb_http_request *request, struct gb_name *ret, struct gb_error *err);

/* A device as a request names it: by index or UUID. */

/* Reads text[0..len). Returns 1, or -1 with DEVICE_NOT_FOUND. */
int gb_device_text(const struct gb_api *api, const char *text, size_t len, int *ret, struct gb_error *err);
/* Reads a field of a body, a number or a string. Returns 1 when it is given, 0 when not (then *ret is left alone),
 * -1 with WRONG_TYPE or DEVICE_NOT_FOUND. */
int gb_device_field(const struct gb_api *api, const json_t *object, const char *key, int *ret, struct gb_error *err);

/* The fields of a body that describe a buffer to be made. */

/* Reads bytes, dtype, shape, kind, pool, device, stream, mirrored, durability, spill, resident and labels, and the
 * field key, which names the buffer. Returns 0 or -1. */
int gb_buffer_params_read(const struct gb_api *api, const json_t *body, const char *key,
                          struct gb_buffer_params *params, struct gb_error *err);

/* Reads kind, pool, device, stream and durability: where the bytes lie. Returns 0 or -1. */
int gb_buffer_memory_read(const struct gb_api *api, const json_t *body, struct gb_buffer_params *params,
                          struct gb_error *err);

/* Reads spill and resident, which say whether the bytes may leave memory by themselves. Returns 0 or -1. */
int gb_buffer_place_read(const json_t *body, struct gb_buffer_params *params, struct gb_error *err);

/* Reads bytes, dtype and shape alone. bytes and shape say the same thing: the missing one follows from the other.
 * Returns 0 or -1. */
int gb_buffer_layout_read(const json_t *body, struct gb_buffer_params *params, struct gb_error *err);

/* The bodies of actions on buffers, for single requests and batches. */

#define GB_COPY_FIELDS "from from_offset from_if_match offset bytes stream in_place side share"
#define GB_FILL_FIELDS "pattern width offset bytes stream in_place side"

/* Reads the body of a copy or fill. params->session and copy are set; a stream that is set replaces "default". Returns
 * 0 or -1. */
int gb_action_read_write(const json_t *body, struct gb_device_write_params *params, struct gb_error *err);

/* Reads the entity tag of a source's bytes, with its quotes; the text is the body's. Returns 1 when the field is given,
 * 0 when it is not, or -1. */
int gb_action_read_tag(const json_t *object, const char *field, const char **ret, struct gb_error *err);

struct gb_sides {
    bool host;
    bool device;
};
int gb_action_read_sides(const json_t *body, const char *key, bool all, struct gb_sides *ret, struct gb_error *err);

/* PUT of a session, a pool or a stream: makes it, or confirms that the one that is there is as asked. Properties that
 * the body does not name are not compared. */

/* Reads If-None-Match, which is * or absent: with it nothing is confirmed. Reads the body, which may be empty, and
 * whose 'name' may repeat that of the path. fields: as of POST. *ret: the caller's. Returns 0, or -1 with
 * INVALID_ARGUMENT, PRECONDITION_FAILED for an If-Match, or an error of the body. */
int gb_put_read(const struct gb_http_request *request, const struct gb_name *name, const char *fields, json_t **ret,
                struct gb_error *err);

/* What is not as asked. */
struct gb_differences {
    char fields[256]; /* "", or "device, max_bytes" */
};
/* Notes a field whose value differs. */
void gb_differ(struct gb_differences *differences, bool differs, const char *field);

/* What a PUT of a thing that is there comes to: 0 if it is confirmed, which resets the session's idle timer; else -1
 * with PRECONDITION_FAILED because of If-None-Match, or with `exists` and the names of what differs. what: "pool". */
int gb_confirm(const struct gb_http_request *request, const char *what, const struct gb_name *name,
               const struct gb_differences *differences, enum gb_code exists, struct gb_error *err);

#endif
