/* One page of a list, from the query to the reply. */
#ifndef GB_API_LIST_PAGE_H
#define GB_API_LIST_PAGE_H

#include "api/context.h"
#include "api/list/best.h"
#include "base/json_writer.h"

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

/* The whole handler of a list. A sorted list is walked twice over: once to rank its items, which copies names and
 * numbers alone, and then for each item of the page. */
enum gb_step gb_reply_page(struct gb_http_request *request, struct gb_http_response *response,
                           const struct gb_list_offer *offer, gb_list_walk *list, struct gb_error *err);

#endif
