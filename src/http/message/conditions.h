/* Entity tags and the lists of them in If-Match, If-None-Match and If-Range (RFC 9110, 8.8.3 and 13.1). Pure. */
#ifndef GB_HTTP_MESSAGE_CONDITIONS_H
#define GB_HTTP_MESSAGE_CONDITIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

/* One tag of a list, without its quotes. */
struct gb_etag {
    const char *s;
    size_t len;
    bool weak;
    bool any; /* the list is "*" */
};

/* Walks a list, from *at = list on. Returns 1: *ret is the next tag; 0: the end; -1: malformed. "*" must be alone. */
int gb_etag_next(const char *list, const char **at, struct gb_etag *ret);

/* Checks the whole list; `header` names it in the error. Returns 0, or -1 with MALFORMED_REQUEST. An empty list is
 * malformed. */
int gb_etag_list_check(const char *header, const char *list, struct gb_error *err);

/* Whether a well-formed list holds one of tags[0..count) (each without quotes, strong). `weak` compares as
 * If-None-Match does (W/"a" equals "a"); without it a weak tag never matches. "*" matches. A malformed list never
 * does. */
bool gb_etag_list_match(const char *list, bool weak, const char *const *tags, size_t count);

/* Whether an If-Range value is this strong tag. Dates and weak tags never match. */
bool gb_etag_if_range(const char *value, const char *tag);

#endif
