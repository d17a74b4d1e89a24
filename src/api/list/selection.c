#include "api/list/selection.h"

#include <string.h>

#include "api/request/query.h"
#include "base/hash.h"
#include "base/text.h"

static int read_sort(const struct gb_http_request *request, const struct gb_list_offer *offer, struct gb_selection *ret,
                     struct gb_error *err) {
    const struct gb_http_text *sort = gb_http_query(request, "sort");
    size_t at;

    if (!sort)
        return 0;
    ret->sorted = true;
    ret->down = sort->s[0] == '-';
    if (gb_word_parse("sort field", offer->sorts, offer->sort_count, sort->s + ret->down, sort->len - ret->down, &at,
                      err) < 0)
        return -1;
    ret->sort = (unsigned)at;
    return 0;
}

int gb_selection_read(const struct gb_http_request *request, const struct gb_list_offer *offer,
                      struct gb_selection *ret, struct gb_error *err) {
    const struct gb_http_text *state = gb_http_query(request, "state");
    const struct gb_http_text *kind = gb_http_query(request, "kind");

    ret->has_state = state != NULL;
    ret->has_kind = kind != NULL;
    if (gb_query_name(request, "prefix", &ret->prefix, err) < 0 || gb_label_query_read(request, &ret->label, err) < 0 ||
        (state && offer->state(state->s, state->len, &ret->state, err) < 0) ||
        (kind && gb_kind_parse(kind->s, kind->len, &ret->kind, err) < 0))
        return -1;
    return read_sort(request, offer, ret, err);
}

bool gb_selection_filters(const struct gb_selection *selection) {
    return selection->prefix.s[0] != '\0' || selection->label.len > 0 || selection->has_state || selection->has_kind;
}

bool gb_selection_has(const struct gb_selection *selection, const struct gb_list_item *item) {
    return strncmp(item->name, selection->prefix.s, strlen(selection->prefix.s)) == 0 &&
           (!selection->has_state || item->state == selection->state) &&
           (!selection->has_kind || item->kind == selection->kind) &&
           (!item->labels || gb_label_query_fits(&selection->label, item->labels));
}

uint32_t gb_selection_digest(const struct gb_selection *selection) {
    const int words[] = {selection->has_state, selection->state, selection->has_kind, (int)selection->kind,
                         selection->sorted,    selection->down,  (int)selection->sort};
    uint32_t crc = gb_crc32c(0, selection->prefix.s, strlen(selection->prefix.s) + 1);

    crc = gb_crc32c(crc, selection->label.text, selection->label.len);
    return gb_crc32c(crc, words, sizeof(words));
}
