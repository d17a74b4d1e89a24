#include "http/range.h"

#include <string.h>
#include <strings.h>

#include "base/parse.h"

/* A number that 64 bits cannot hold lies beyond every representation. Returns 0 or -1. */
static int read_number(const char *s, size_t n, uint64_t *ret) {
    enum gb_parse r = gb_parse_u64(s, n, ret);

    if (r == GB_PARSE_OVERFLOW)
        *ret = UINT64_MAX;
    return r == GB_PARSE_OK || r == GB_PARSE_OVERFLOW ? 0 : -1;
}

static enum gb_range_kind suffix(uint64_t n, uint64_t size, struct gb_range *ret) {
    if (n == 0 || size == 0)
        return GB_RANGE_UNSATISFIABLE;
    ret->length = n < size ? n : size;
    ret->first = size - ret->length;
    return GB_RANGE_PART;
}

enum gb_range_kind gb_range_parse(const char *value, uint64_t size, struct gb_range *ret) {
    const char *dash;
    uint64_t first;
    uint64_t last = UINT64_MAX;
    size_t n;

    if (!value || strncasecmp(value, "bytes=", 6) != 0)
        return GB_RANGE_WHOLE;
    value += 6;
    value += strspn(value, " \t");
    n = strlen(value);
    while (n > 0 && (value[n - 1] == ' ' || value[n - 1] == '\t'))
        n--;
    /* Several ranges hold a comma, which no number does. */
    dash = memchr(value, '-', n);
    if (!dash)
        return GB_RANGE_WHOLE;
    if (dash == value)
        return read_number(value + 1, n - 1, &first) < 0 ? GB_RANGE_WHOLE : suffix(first, size, ret);
    if (read_number(value, (size_t)(dash - value), &first) < 0)
        return GB_RANGE_WHOLE;
    if (dash + 1 < value + n && read_number(dash + 1, (size_t)(value + n - dash - 1), &last) < 0)
        return GB_RANGE_WHOLE;
    if (last < first)
        return GB_RANGE_WHOLE;
    if (first >= size)
        return GB_RANGE_UNSATISFIABLE;
    ret->first = first;
    ret->length = (last < size ? last + 1 : size) - first;
    return GB_RANGE_PART;
}
