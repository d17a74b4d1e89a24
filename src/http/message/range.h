/* Ranges of bytes (RFC 9110, 14). Pure. */
#ifndef GB_HTTP_MESSAGE_RANGE_H
#define GB_HTTP_MESSAGE_RANGE_H

#include <stdint.h>

#define GB_RANGES_MAX 64 /* of one header; with more of them it is ignored, as RFC 9110, 14.2 permits */

struct gb_range {
    uint64_t first;
    uint64_t length; /* at least 1 */
};

/* In the order of the request; no two share a byte. */
struct gb_range_set {
    unsigned count;
    struct gb_range range[GB_RANGES_MAX];
};

enum gb_range_kind {
    GB_RANGE_WHOLE,        /* no range, another unit, too many or malformed: the whole is sent */
    GB_RANGE_PART,         /* *ret says which: one or several */
    GB_RANGE_UNSATISFIABLE /* 416: without any byte */
};

/* Reads a Range header (NULL: none) for a representation of `size` bytes: "bytes=a-b", "bytes=a-", "bytes=-n", or
 * several of them separated by commas. An end beyond the last byte is cut; ranges that lie beyond it are left out;
 * ranges that overlap become one, in the place of the first of them. *ret is written with PART only. */
enum gb_range_kind gb_range_parse(const char *value, uint64_t size, struct gb_range_set *ret);

#endif
