/* Numbers as digits, for what every reply has: printf takes ten times as long. No NUL is written. */
#ifndef GB_BASE_DIGITS_H
#define GB_BASE_DIGITS_H

#include <stdint.h>

#define GB_DIGITS_MAX 20 /* of a 64-bit number */

/* Writes value in decimal, GB_DIGITS_MAX characters at most. Returns the end of what was written, as the next two. */
char *gb_digits(char *at, uint64_t value);
/* The same with exactly `width` digits: zeros before it, its last digits if it has more. */
char *gb_digits_padded(char *at, uint64_t value, unsigned width);
/* Hexadecimal, lower case, exactly `width` digits. */
char *gb_digits_hex(char *at, uint64_t value, unsigned width);

#endif
