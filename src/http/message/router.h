/* The routes, taken apart once. */
#ifndef GB_HTTP_MESSAGE_ROUTER_H
#define GB_HTTP_MESSAGE_ROUTER_H

#include "http/http.h"
#include "http/message/fields.h"

#define GB_ROUTER_SEGMENTS 8
#define GB_ROUTER_ALLOW_SIZE 64

struct gb_router_pattern {
    const struct gb_http_route *route;
    struct gb_http_text segment[GB_ROUTER_SEGMENTS]; /* s NULL: a capture */
};

struct gb_router {
    const struct gb_http_route *routes; /* borrowed */
    size_t count;
    struct gb_router_pattern *list; /* by the number of segments, then in the routes' order */
    struct gb_router_pattern
        *first[GB_ROUTER_SEGMENTS + 2]; /* of the patterns with that many segments; the last one is the end */
};

int gb_router_init(struct gb_router *router, const struct gb_http_route *routes, size_t count, struct gb_error *err);
/* A zeroed router is accepted. */
void gb_router_done(struct gb_router *router);

/* Finds the route of the request's method and this path; sets request->route and request->param, whose texts go into
 * `texts`. The method GB_HTTP_METHOD_COUNT stands for an unknown one. Returns 0 or -1: NO_ROUTE, METHOD_NOT_ALLOWED,
 * and then ret_allow (GB_ROUTER_ALLOW_SIZE bytes) lists the methods; it is "" otherwise. */
int gb_router_match(const struct gb_router *router, struct gb_http_request *request, struct gb_text_arena *texts,
                    struct gb_http_text path, char *ret_allow, struct gb_error *err);

/* Checks that the route of the request knows each parameter of its query. Returns 0 or -1 with UNKNOWN_PARAMETER. */
int gb_router_check_query(const struct gb_http_request *request, struct gb_error *err);

#endif
