/* Escapes text from clients, so that it is harmless on a terminal and in a log line. */
#ifndef GB_BASE_ESCAPE_H
#define GB_BASE_ESCAPE_H

#include <stddef.h>

/* Bytes of the character at s (RFC 3629); 0: it is not one. */
size_t gb_utf8_len(const char *s);

/* Copies text, with control characters (C0, DEL, C1) and bytes that are no UTF-8 as \xNN; cut after a whole character
 * where it does not fit. Returns the length without the NUL. size is at least 1. */
size_t gb_escape(char *out, size_t size, const char *text);

#endif
