/* {"digest": {"sha-256": "base64", ...}}: the digests that a client expects of the bytes. */
#ifndef GB_API_MIDDLEWARE_DIGEST_SET_H
#define GB_API_MIDDLEWARE_DIGEST_SET_H

#include "api/request/json.h"
#include "base/hash.h"

/* Reads the member "digest", which may be missing. Returns 0 or -1. */
int gb_digest_set_read(const json_t *body, struct gb_digest_set *ret, struct gb_error *err);
int gb_digest_unknown(const char *name, struct gb_error *err); /* Returns -1: there is no such algorithm. */

#endif
