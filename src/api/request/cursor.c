/* The pure part of pages: cursors and limits. */
#include <inttypes.h>
#include <stdio.h>

#include "api/request/query.h"
#include "base/text.h"

char *gb_cursor_text(int64_t id, char *out) {
    snprintf(out, GB_CURSOR_SIZE, "%" PRId64, id);
    return out;
}

int gb_cursor_parse(const char *text, size_t len, int64_t *ret_id, struct gb_error *err) {
    uint64_t id;

    if (gb_parse_u64(text, len, &id) != GB_PARSE_OK || id > INT64_MAX)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "the cursor is not one; give next_cursor of the page before, or none for the first");
    *ret_id = (int64_t)id;
    return 0;
}

int gb_limit_parse(const char *text, size_t len, unsigned *ret_limit, struct gb_error *err) {
    uint64_t limit;

    if (gb_parse_u64(text, len, &limit) != GB_PARSE_OK || limit < 1 || limit > GB_PAGE_LIMIT_MAX)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "limit must be a whole number from 1 to %d",
                            GB_PAGE_LIMIT_MAX);
    *ret_limit = (unsigned)limit;
    return 0;
}
