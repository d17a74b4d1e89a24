/* Media types: what a body may be called, and which representation a client asks for. Pure. */
#ifndef GB_API_REQUEST_MEDIA_H
#define GB_API_REQUEST_MEDIA_H

#include <stdbool.h>

#include "base/error.h"

#define GB_MEDIA_RAW "application/octet-stream"
#define GB_MEDIA_NPY "application/x-npy"
#define GB_MEDIA_SAFETENSORS "application/x-safetensors"
/* Taken as well; nothing is registered. */
#define GB_MEDIA_SAFETENSORS_VENDOR "application/vnd.safetensors"

/* What a tensor is sent as. */
enum gb_form { GB_FORM_RAW, GB_FORM_NPY, GB_FORM_SAFETENSORS, GB_FORM_COUNT };

/* Content-Type of a JSON body (NULL: absent): application/json, anything+json, or what curl -d says unasked. Returns 0,
 * or -1 with UNSUPPORTED_MEDIA_TYPE. */
int gb_media_json(const char *content_type, struct gb_error *err);

/* Content-Type of a tensor (NULL: absent). *ret: the form that it names, RAW where it names none. Returns 0, or -1 with
 * UNSUPPORTED_MEDIA_TYPE. */
int gb_media_tensor(const char *content_type, enum gb_form *ret, struct gb_error *err);

/* ?format=: raw, npy or safetensors. Returns 0, or -1 with INVALID_ARGUMENT. */
int gb_media_form(const char *format, enum gb_form *ret, struct gb_error *err);
const char *gb_media_type(enum gb_form form);

/* Content-Encoding (NULL: absent): identity alone. Returns 0, or -1 with UNSUPPORTED_MEDIA_TYPE. */
int gb_media_encoding(const char *content_encoding, struct gb_error *err);

/* Which form the Accept header (NULL: absent) prefers; the first that is offered where all please alike. offered: bits
 * 1 << form, at least one. Returns 0, or -1 with NOT_ACCEPTABLE that names them. */
int gb_media_accept(const char *accept, unsigned offered, enum gb_form *ret, struct gb_error *err);

/* Whether the Accept header (NULL: absent) names the type and likes it no less than the other, which is sent otherwise. */
bool gb_media_prefers(const char *accept, const char *type, const char *other);

#endif
