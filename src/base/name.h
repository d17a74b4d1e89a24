/* Names of sessions, pools, streams and buffers: [A-Za-z0-9][A-Za-z0-9._-]{0,127}. */
#ifndef GB_BASE_NAME_H
#define GB_BASE_NAME_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

#define GB_NAME_MAX 128

/* A name by value; always NUL-terminated. */
struct gb_name {
    char s[GB_NAME_MAX + 1];
};

/* The place of a named thing: its session, and its name there. */
struct gb_locator {
    struct gb_name session;
    struct gb_name name;
};

/* Checks and copies text[0..len). `what` names the thing in the error ("buffer name"). Returns 0, or -1 with
 * INVALID_NAME saying which character or length is wrong. */
int gb_name_parse(const char *what, const char *text, size_t len, struct gb_name *ret_name, struct gb_error *err);

bool gb_name_equal(const struct gb_name *a, const struct gb_name *b);

#endif
