/* Digests of secrets. The arithmetic is GnuTLS's. */
#ifndef GB_BASE_DIGEST_H
#define GB_BASE_DIGEST_H

#include <stddef.h>

#include "base/error.h"

#define GB_SHA256_HEX_SIZE 65

/* SHA-256 of data[0..n) as 64 lower-case hexadecimal digits and a NUL. Returns 0 or -1. Thread-safe. */
int gb_sha256_hex(const void *data, size_t n, char ret_hex[GB_SHA256_HEX_SIZE], struct gb_error *err);

/* Fills out[0..n) with random bytes fit for secrets. Returns 0 or -1. */
int gb_random(void *out, size_t n, struct gb_error *err);

#endif
