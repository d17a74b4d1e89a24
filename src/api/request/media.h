/* Media types of bodies, and the representation that a client asks for. Pure. */
#ifndef GB_API_REQUEST_MEDIA_H
#define GB_API_REQUEST_MEDIA_H

#include <stdbool.h>

#include "base/error.h"
#include "format/values.h"

#define GB_MEDIA_JSON "application/json"
#define GB_MEDIA_RAW "application/octet-stream"
#define GB_MEDIA_NPY "application/x-npy"
#define GB_MEDIA_SAFETENSORS "application/x-safetensors"
/* What curl -d and -F say, and browsers' forms. */
#define GB_MEDIA_FORM "application/x-www-form-urlencoded"
#define GB_MEDIA_FORM_PARTS "multipart/form-data"
/* Taken as well: no type is registered for safetensors. */
#define GB_MEDIA_SAFETENSORS_VENDOR "application/vnd.safetensors"

/* The forms that a tensor is sent in. */
enum gb_form { GB_FORM_RAW, GB_FORM_NPY, GB_FORM_SAFETENSORS, GB_FORM_COUNT };

/* Checks the Content-Type of a JSON body (NULL: absent): application/json, anything+json, or the type that curl -d
 * sends. Returns 0, or -1 with UNSUPPORTED_MEDIA_TYPE. */
int gb_media_json(const char *content_type, struct gb_error *err);

/* Checks the Content-Type (NULL: absent) of bytes that are stored as they come. Returns 0, or -1 with
 * UNSUPPORTED_MEDIA_TYPE for a form: curl -d takes line ends and NULs out of a file, and -F puts text around it. */
int gb_media_bytes(const char *content_type, struct gb_error *err);

/* Reads the Content-Type of a tensor (NULL: absent). *ret: the form that it names, RAW when it names none. Returns 0,
 * or -1 with UNSUPPORTED_MEDIA_TYPE. */
int gb_media_tensor(const char *content_type, enum gb_form *ret, struct gb_error *err);

/* Reads ?format=: raw, npy or safetensors; with ret_notation (NULL: of an upload), json or text as well, which leave
 * *ret as it is. Returns 0, or -1 with INVALID_ARGUMENT. */
int gb_media_form(const char *format, enum gb_form *ret, enum gb_notation *ret_notation, struct gb_error *err);
const char *gb_media_type(enum gb_form form);
const char *gb_media_notation_type(enum gb_notation notation);

/* Checks a Content-Encoding (NULL: absent) that may only be identity. Returns 0, or -1 with UNSUPPORTED_MEDIA_TYPE. */
int gb_media_encoding(const char *content_encoding, struct gb_error *err);

/* Finds the form that the Accept header (NULL: absent) prefers, the first one offered among equals. offered: bits 1 <<
 * form, at least one. Returns 0, or -1 with NOT_ACCEPTABLE, which names the offered forms. */
int gb_media_accept(const char *accept, unsigned offered, enum gb_form *ret, struct gb_error *err);

/* Tells whether the Accept header (NULL: absent) names the type and likes it no less than the other one, which is the
 * default. */
bool gb_media_prefers(const char *accept, const char *type, const char *other);

#endif
