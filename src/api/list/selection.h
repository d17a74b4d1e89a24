/* Which items of a list a request asks for, and in which order: ?prefix=, ?label=, ?state=, ?kind= and ?sort=. A route
 * takes those that its column in routes.def names. */
#ifndef GB_API_LIST_SELECTION_H
#define GB_API_LIST_SELECTION_H

#include "api/request/label.h"
#include "base/text.h"
#include "model/model.h"

#define GB_LIST_SORTS 5 /* of one list at most */

/* What a list has for the parameters to refer to. */
struct gb_list_offer {
    int (*state)(const char *word, size_t len, int *ret_state, struct gb_error *err); /* NULL: no item has a state */
    const char *sorts[GB_LIST_SORTS];                                                 /* fields; the first is "name" */
    unsigned sort_count;
};

/* What is asked of an item. The texts are borrowed, for the time of the visit. */
struct gb_list_item {
    int64_t id; /* 0: it stands before the items with ids, and the page's limit does not count it */
    const char *name;
    const char *buffer; /* the buffer that it is about, which a token must reach; NULL: all tokens do */
    const char *labels; /* NULL: the list has none */
    int state;
    enum gb_kind kind;
    uint64_t sort[GB_LIST_SORTS]; /* values of the offer's sorts; the first is not used */
};

/* Zero-initialised: everything, by age. */
struct gb_selection {
    struct gb_name prefix;
    struct gb_label_query label;
    bool has_state, has_kind;
    int state;
    enum gb_kind kind;
    bool sorted; /* else by age */
    bool down;   /* the highest first */
    unsigned sort;
};

/* Returns 0, or -1 with INVALID_ARGUMENT or INVALID_NAME that tells what is permitted. */
int gb_selection_read(const struct gb_http_request *request, const struct gb_list_offer *offer,
                      struct gb_selection *ret, struct gb_error *err);

/* Whether something is filtered out. */
bool gb_selection_filters(const struct gb_selection *selection);
bool gb_selection_has(const struct gb_selection *selection, const struct gb_list_item *item);

/* A number that differs, but for a chance of one in four billion, if the filters or the order do. */
uint32_t gb_selection_digest(const struct gb_selection *selection);

#endif
