/* Lists: what a request asks for, one page of it, and the link to the next; and reports that are long. */
#ifndef GB_API_PIPELINE_LIST_H
#define GB_API_PIPELINE_LIST_H

#include <stddef.h>
#include <stdint.h>

#include "api/context.h"
#include "api/request/query.h"
#include "base/error.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "http/http.h"
#include "model/model.h"

/* Which items of a list a request asks for, and in which order: ?prefix=, ?label=, ?state=, ?kind= and ?sort=. A route
 * takes those that its column in routes.def names. */

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
    const char *labels; /* NULL: the list has no labels */
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

/* Cursors of lists that are filtered or sorted: where a page ended, and of which selection it was. */

/* A place in a list: after the item with this id, or in a sorted list after this value and name. */
struct gb_list_place {
    uint64_t number; /* an id, or the value of the field; 0 when the field is the name */
    struct gb_name name;
};

#define GB_LIST_CURSOR_SIZE (20 + 1 + 8 + 1 + GB_NAME_MAX + 1)

/* Writes the cursor: "ID", as everywhere, of a list by age with all items; else "NUMBER.DIGEST", and ".NAME" after it
 * if the list is sorted. The first two fit into 31 characters, for which clients in C have room. Returns out. */
char *gb_list_cursor_text(const struct gb_selection *selection, const struct gb_list_place *place,
                          char out[GB_LIST_CURSOR_SIZE]);

/* Returns 0, or -1 with INVALID_ARGUMENT; a cursor of another selection is refused with a text of its own. */
int gb_list_cursor_parse(const struct gb_selection *selection, const char *text, size_t len, struct gb_list_place *ret,
                         struct gb_error *err);

/* The first items of a sorted list, of any number that pass by. */

struct gb_best_item {
    struct gb_list_place place;
    int64_t id;
};

/* Memory for twice as many as are kept: when it is full, the worse half goes. */
struct gb_best {
    struct gb_best_item *items;
    size_t count;
    size_t keep;
    bool down;
    bool full; /* `worst` is the last of those that were kept */
    struct gb_list_place worst;
};

/* Returns 0, or -1 with SATURATED when memory is exhausted. Zero-initialised is done already. */
int gb_best_init(struct gb_best *best, size_t keep, bool down, struct gb_error *err);
void gb_best_done(struct gb_best *best);

void gb_best_offer(struct gb_best *best, const struct gb_list_place *place, int64_t id);
/* Sorts; count is at most keep then. */
void gb_best_end(struct gb_best *best);

/* Where the next page of a list is: RFC 8288. */

/* Adds "Link: <TARGET>; rel="next"", where TARGET is the request's own with the parameter `name` of this value, which
 * needs no escape. Returns 0, or -1 with SATURATED. */
int gb_list_link(const struct gb_http_request *request, const char *name, const char *value,
                 struct gb_http_response *response, struct gb_error *err);

/* Closes what gb_render_list_open has opened, with the cursor of the next page (NULL: no page follows) as next_cursor
 * and in a Link; the last step of a handler. */
enum gb_step gb_list_reply(const struct gb_http_request *request, struct gb_json_writer *out, const char *cursor,
                           struct gb_http_response *response, struct gb_error *err);

/* One page of a list, from the query to the reply. */

/* A page while it is written. The visit functions of the core get it as their arg. */
struct gb_walk {
    struct gb_json_writer out;
    const struct gb_api *api;
    struct gb_name session; /* "": the list belongs to no session */
    struct gb_page page;    /* the next stretch of the core's list */
    bool full;              /* nothing further goes in, and something follows: the visit ends the walk */

    /* The page's own. */
    struct gb_selection selection;
    struct gb_name reach;       /* of the buffers that the token reaches */
    struct gb_list_place after; /* where the page begins */
    unsigned limit;
    unsigned left; /* items that still go in */
    int64_t last;  /* the last item looked at */
    struct gb_best best;
    const struct gb_best_item *wanted; /* sorted: the only one that goes in now; NULL: they are ranked first */
};

/* Asks whether the item goes into the page. True: the visit adds it to out. The visit returns walk->full. */
bool gb_walk_takes(struct gb_walk *walk, const struct gb_list_item *item);

/* Walks the core once by walk->page, which has page.after and page.limit, and returns what the core does. Of the
 * request it knows what walk has: a list that is filtered or sorted is walked on a thread of the core. */
typedef int gb_list_walk(struct gb_walk *walk, struct gb_error *err);

/* The whole handler of a list. A sorted list is walked twice: once to rank its items, which copies names and numbers
 * alone, and then for each item of the page. */
enum gb_step gb_reply_page(struct gb_http_request *request, struct gb_http_response *response,
                           const struct gb_list_offer *offer, gb_list_walk *list, struct gb_error *err);

/* Reports that are large: few are made at a time. */

/* Such replies at a time; one more is SATURATED. */
#define GB_DEFERRED_REPORTS_MAX 4
/* Entries of the log of allocations in one reply, the newest: some 75 MB when every name is as long as permitted. */
#define GB_DEFERRED_REPORT_ENTRIES_MAX 131072

struct gb_deferred_report {
    struct gb_api *api;
    uint64_t params[6]; /* the maker's, as the names */
    struct gb_name names[2];
    const char *content_type; /* static */
    char *body;               /* malloc'd; the maker's result */
    size_t len;
    char next_cursor[GB_CURSOR_SIZE]; /* the maker's too, for a Link; "": no page follows */
};

/* Fills body and len on a thread of the core. Returns 0 or -1. */
typedef int gb_deferred_report_make(struct gb_deferred_report *report, struct gb_error *err);

/* The rest of a handler: replies 200 with the text of makes, as content_type. The reply varies with Accept. params are
 * copied. */
enum gb_step gb_deferred_report_start(struct gb_http_request *request, gb_deferred_report_make *makes,
                                      const struct gb_deferred_report *params, struct gb_error *err);

#endif
