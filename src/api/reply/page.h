/* One page of a list, from the query to the reply. */
#ifndef GB_API_REPLY_PAGE_H
#define GB_API_REPLY_PAGE_H

#include "api/context.h"
#include "api/request/query.h"
#include "base/json_writer.h"

/* A page while it is written. The visit functions of the core get it as their arg; unless the page is full, they add an
 * item to out and set last_id. */
struct gb_walk {
    struct gb_json_writer out;
    const struct gb_api *api;
    struct gb_name session; /* "": the list belongs to no session */
    struct gb_page page;
    struct gb_name prefix; /* of the buffers that the token reaches */
    unsigned items;        /* as far as gb_walk_takes counts them */
    bool left_out;         /* one was */
    int64_t last_id;
    bool full;
};

/* Tells whether the page has reached its largest size; then the visit adds nothing. */
bool gb_walk_full(struct gb_walk *walk);
/* Counts an item that is about a buffer of that name, and becomes the last one of the page. False: the token does not
 * reach it, and it is left out. */
bool gb_walk_takes(struct gb_walk *walk, int64_t id, const char *buffer);

/* The whole handler of a list. list walks the core by walk->page and sets page.more; it is called again while it finds
 * nothing that the token reaches. */
enum gb_step gb_reply_page(struct gb_http_request *request, struct gb_http_response *response,
                           int (*list)(struct gb_walk *walk, struct gb_error *err), struct gb_error *err);

#endif
