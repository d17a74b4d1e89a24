/* Bytes and numbers as text: decimal and hexadecimal digits, base64. What is written is lower case; a function that
 * returns the end of it writes no NUL (printf takes ten times as long). What is read is the whole text or refused.
 * Pure, and of the C library alone: libgpubuf has this file, too. All layers call it. */
#ifndef GB_BASE_ENCODING_H
#define GB_BASE_ENCODING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- digits ------------------------------------------------------------------------------------------------------- */

#define GB_DIGITS_MAX 20 /* of a 64-bit number */

/* Writes value in decimal, GB_DIGITS_MAX characters at most. Returns the end of what was written, as the next two. */
char *gb_digits(char *at, uint64_t value);
/* The same with exactly `width` digits: zeros before it, its last digits if it has more. */
char *gb_digits_padded(char *at, uint64_t value, unsigned width);
/* Hexadecimal, exactly `width` digits. */
char *gb_digits_hex(char *at, uint64_t value, unsigned width);

/* --- hexadecimal -------------------------------------------------------------------------------------------------- */

#define GB_HEX_U32 8                 /* digits of 32 bits */
#define GB_HEX_SIZE(n) (2 * (n) + 1) /* of n bytes, with the NUL */
#define GB_UUID_SIZE 37

/* The value of a digit of either case, or -1. */
int gb_hex_digit(char digit);
/* Whether all of text is n digits of lower case. */
bool gb_hex_lower(const char *text, size_t n);
/* Reads n digits of either case, at most 16. False: text[0..n) has another character. */
bool gb_hex_u64(const char *text, size_t n, uint64_t *ret);
/* The same, where n is GB_HEX_U32: false, too, if it is not. */
bool gb_hex_u32(const char *text, size_t n, uint32_t *ret);
/* Writes the bytes, each as two digits, and a NUL. */
void gb_hex(const void *bytes, size_t n, char *ret);
/* Reads 2 * n digits of either case, all of text. False if it is not that; then ret is undefined. */
bool gb_hex_read(const char *text, void *ret, size_t n);
/* 16 bytes as 8-4-4-4-12 digits, and a NUL. */
void gb_uuid_text(const void *bytes, char ret[GB_UUID_SIZE]);

/* --- base64 ------------------------------------------------------------------------------------------------------- */

#define GB_BASE64_SIZE(n) (((n) + 2) / 3 * 4 + 1) /* of n bytes, with the NUL */

/* Writes the bytes and a NUL: the standard alphabet with padding, or that of URLs without. */
void gb_base64_write(const void *bytes, size_t n, bool url, char *ret);
/* The same in memory that the caller frees; NULL if memory is exhausted. */
char *gb_base64(const void *bytes, size_t n, bool url);
/* Reads what gb_base64 writes. The caller frees *ret, which has a NUL behind. Returns false if it is not exactly that,
 * or memory is exhausted. */
bool gb_base64_read(const char *text, size_t n, bool url, char **ret, size_t *ret_bytes);
/* Reads exactly `bytes` bytes of the standard alphabet; padding may be left out. False if it is not that; then ret is
 * undefined. */
bool gb_base64_exact(const char *text, size_t n, void *ret, size_t bytes);

#endif
