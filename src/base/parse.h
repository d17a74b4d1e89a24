/* Strict parsing of numbers and flags: the whole text or nothing. */
#ifndef GB_BASE_PARSE_H
#define GB_BASE_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gb_parse { GB_PARSE_OK, GB_PARSE_MALFORMED, GB_PARSE_NEGATIVE, GB_PARSE_OVERFLOW };

/* Decimal digits only: no sign, no space. */
enum gb_parse gb_parse_u64(const char *text, size_t len, uint64_t *ret_value);

/* Decimal digits with an optional binary suffix K, M, G or T (1024-based, "MiB" and "M" alike). */
enum gb_parse gb_parse_size(const char *text, size_t len, uint64_t *ret_bytes);

/* "true", "1", "yes", "on", "" -> true; "false", "0", "no", "off" -> false. */
enum gb_parse gb_parse_bool(const char *text, size_t len, bool *ret_value);

/* a * b and a + b without overflow; false when it would overflow. */
bool gb_mul_u64(uint64_t a, uint64_t b, uint64_t *ret);
bool gb_add_u64(uint64_t a, uint64_t b, uint64_t *ret);

#endif
