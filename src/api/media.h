/* Media types: what a body may be called, and which representation a client asks for. Pure. */
#ifndef GB_API_MEDIA_H
#define GB_API_MEDIA_H

#include <stdbool.h>

#include "base/error.h"

#define GB_MEDIA_RAW "application/octet-stream"
#define GB_MEDIA_NPY "application/x-npy"

/* Content-Type of a JSON body (NULL: absent): application/json, anything+json, or what curl -d says unasked. Returns 0,
 * or -1 with UNSUPPORTED_MEDIA_TYPE. */
int gb_media_json(const char *content_type, struct gb_error *err);

/* Content-Type of a tensor (NULL: absent). *ret_npy: it is said to be .npy. Returns 0, or -1 with
 * UNSUPPORTED_MEDIA_TYPE. */
int gb_media_tensor(const char *content_type, bool *ret_npy, struct gb_error *err);

/* Content-Encoding (NULL: absent): identity alone. Returns 0, or -1 with UNSUPPORTED_MEDIA_TYPE. */
int gb_media_encoding(const char *content_encoding, struct gb_error *err);

/* Which of raw and .npy the Accept header (NULL: absent) prefers; raw where both please alike. npy_exists: the tensor has
 * such a form. Returns 0, or -1 with NOT_ACCEPTABLE. */
int gb_media_accept(const char *accept, bool npy_exists, bool *ret_npy, struct gb_error *err);

#endif
