/* One range of bytes (RFC 9110, 14). Pure. */
#ifndef GB_HTTP_RANGE_H
#define GB_HTTP_RANGE_H

#include <stdint.h>

struct gb_range {
    uint64_t first;
    uint64_t length; /* at least 1 */
};

enum gb_range_kind {
    GB_RANGE_WHOLE,        /* no range, another unit, several ranges or malformed: the whole is sent */
    GB_RANGE_PART,         /* *ret says which */
    GB_RANGE_UNSATISFIABLE /* 416 */
};

/* Reads a Range header (NULL: none) for a representation of `size` bytes: "bytes=a-b", "bytes=a-" or "bytes=-n". An end
 * beyond the last byte is cut. */
enum gb_range_kind gb_range_parse(const char *value, uint64_t size, struct gb_range *ret);

#endif
