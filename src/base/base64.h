/* Base64 of whole texts. */
#ifndef GB_BASE_BASE64_H
#define GB_BASE_BASE64_H

#include <stdbool.h>
#include <stddef.h>

/* Standard with padding, or of URLs without. The caller frees; NULL when memory is exhausted. */
char *gb_base64(const void *bytes, size_t n, bool url);
/* The caller frees *ret, which has a NUL behind. Returns false if it is not exactly that, or memory is exhausted. */
bool gb_base64_read(const char *text, size_t n, bool url, char **ret, size_t *ret_bytes);

#endif
