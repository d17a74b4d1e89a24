#include "http/message/range.h"

#include <stdbool.h>
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

/* One of the list, without spaces around it. WHOLE: malformed. */
static enum gb_range_kind parse_one(const char *s, size_t n, uint64_t size, struct gb_range *ret) {
    const char *dash = memchr(s, '-', n);
    uint64_t first;
    uint64_t last = UINT64_MAX;

    if (!dash)
        return GB_RANGE_WHOLE;
    if (dash == s)
        return read_number(s + 1, n - 1, &first) < 0 ? GB_RANGE_WHOLE : suffix(first, size, ret);
    if (read_number(s, (size_t)(dash - s), &first) < 0)
        return GB_RANGE_WHOLE;
    if (dash + 1 < s + n && read_number(dash + 1, (size_t)(s + n - dash - 1), &last) < 0)
        return GB_RANGE_WHOLE;
    if (last < first)
        return GB_RANGE_WHOLE;
    if (first >= size)
        return GB_RANGE_UNSATISFIABLE;
    ret->first = first;
    ret->length = (last < size ? last + 1 : size) - first;
    return GB_RANGE_PART;
}

static bool overlap(const struct gb_range *a, const struct gb_range *b) {
    return a->first < b->first ? b->first - a->first < a->length : a->first - b->first < b->length;
}

static struct gb_range join(const struct gb_range *a, const struct gb_range *b) {
    uint64_t first = a->first < b->first ? a->first : b->first;
    uint64_t a_end = a->first + a->length;
    uint64_t b_end = b->first + b->length;

    return (struct gb_range){.first = first, .length = (a_end > b_end ? a_end : b_end) - first};
}

/* What grows may reach others that it did not touch before, so it is checked again. */
static void add(struct gb_range_set *ranges, struct gb_range range) {
    unsigned place = ranges->count;
    unsigned i = 0;

    while (i < ranges->count) {
        if (!overlap(&ranges->range[i], &range)) {
            i++;
            continue;
        }
        range = join(&ranges->range[i], &range);
        place = i < place ? i : place;
        ranges->count--;
        memmove(&ranges->range[i], &ranges->range[i + 1], (ranges->count - i) * sizeof(range));
        i = 0;
    }
    if (place > ranges->count)
        place = ranges->count;
    memmove(&ranges->range[place + 1], &ranges->range[place], (ranges->count - place) * sizeof(range));
    ranges->range[place] = range;
    ranges->count++;
}

enum gb_range_kind gb_range_parse(const char *value, uint64_t size, struct gb_range_set *ret) {
    struct gb_range_set found = {.count = 0};
    unsigned asked = 0;

    if (!value || strncasecmp(value, "bytes=", 6) != 0)
        return GB_RANGE_WHOLE;
    value += 6;
    for (value += strspn(value, " \t,"); *value; value += strspn(value, " \t,")) {
        struct gb_range range;
        enum gb_range_kind kind;
        size_t span = strcspn(value, ",");
        size_t n = span;

        while (n > 0 && (value[n - 1] == ' ' || value[n - 1] == '\t'))
            n--;
        if (++asked > GB_RANGES_MAX)
            return GB_RANGE_WHOLE;
        kind = parse_one(value, n, size, &range);
        if (kind == GB_RANGE_WHOLE)
            return GB_RANGE_WHOLE;
        if (kind == GB_RANGE_PART)
            add(&found, range);
        value += span;
    }
    if (asked == 0)
        return GB_RANGE_WHOLE;
    if (found.count == 0)
        return GB_RANGE_UNSATISFIABLE;
    *ret = found;
    return GB_RANGE_PART;
}
