#include "api/list/cursor.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/request/query.h"
#include "base/text.h"

static bool plain(const struct gb_selection *selection) {
    return !selection->sorted && !gb_selection_filters(selection);
}

char *gb_list_cursor_text(const struct gb_selection *selection, const struct gb_list_place *place,
                          char out[GB_LIST_CURSOR_SIZE]) {
    if (plain(selection))
        snprintf(out, GB_LIST_CURSOR_SIZE, "%" PRIu64, place->number);
    else
        snprintf(out, GB_LIST_CURSOR_SIZE, "%" PRIu64 ".%08" PRIx32 "%s%s", place->number,
                 gb_selection_digest(selection), selection->sorted ? "." : "", selection->sorted ? place->name.s : "");
    return out;
}

static int refuse(struct gb_error *err) {
    return gb_error_set(
        err, GB_ERR_INVALID_ARGUMENT,
        "the cursor is of a list with another prefix, label, state, kind or sort; give it with those of "
        "the page it is from, or begin without one");
}

/* text[0..len) has a digest. */
static int parse_digested(const struct gb_selection *selection, const char *text, size_t len, struct gb_list_place *ret,
                          struct gb_error *err) {
    size_t digits = (size_t)((const char *)memchr(text, '.', len) - text);
    size_t name = digits + 1 + 8 + 1;
    char digest[9];

    if (gb_parse_u64(text, digits, &ret->number) != GB_PARSE_OK || ret->number > INT64_MAX)
        return gb_cursor_parse("", 0, NULL, err);
    snprintf(digest, sizeof(digest), "%08" PRIx32, gb_selection_digest(selection));
    if (plain(selection) || len < name - 1 || memcmp(text + digits + 1, digest, 8) != 0)
        return refuse(err);
    if (!selection->sorted)
        return len == name - 1 ? 0 : refuse(err);
    return len > name ? gb_name_parse("name in the cursor", text + name, len - name, &ret->name, err) : refuse(err);
}

int gb_list_cursor_parse(const struct gb_selection *selection, const char *text, size_t len, struct gb_list_place *ret,
                         struct gb_error *err) {
    int64_t id;

    *ret = (struct gb_list_place){.number = 0};
    if (memchr(text, '.', len))
        return parse_digested(selection, text, len, ret, err);
    if (gb_cursor_parse(text, len, &id, err) < 0)
        return -1;
    ret->number = (uint64_t)id;
    return plain(selection) ? 0 : refuse(err);
}
