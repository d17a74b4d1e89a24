/* The columns of the table of routes, and the handlers in it. */
#ifndef GB_API_ROUTE_H
#define GB_API_ROUTE_H

#include <stdbool.h>

#include "http/http.h"

/* The scope that a token needs. OWN: a token that is bound to a session will do as well; the handler asks for the
 * session. SEE: scope read or map. */
enum gb_access {
    GB_ACCESS_OPEN,
    GB_ACCESS_READ,
    GB_ACCESS_WRITE,
    GB_ACCESS_MAP,
    GB_ACCESS_ADMIN,
    GB_ACCESS_OWN_READ,
    GB_ACCESS_OWN_SEE,
    GB_ACCESS_OWN_WRITE,
    GB_ACCESS_OWN_MAP
};

/* What the path names. From SESSION on, its first parameter is a session's name. */
enum gb_target {
    GB_TARGET_DAEMON,  /* nothing of a session */
    GB_TARGET_SESSION, /* a session itself */
    GB_TARGET_MEMBER,  /* something within a session */
    GB_TARGET_BUFFER   /* a buffer, or something of it: the second parameter is its name */
};

/* The columns of routes.def that middleware reads. */
struct gb_route {
    enum gb_access access;
    enum gb_target target;
    bool keyed;            /* an Idempotency-Key replays the first answer */
    const char *operation; /* what Prefer: respond-async makes of it; "": the preference is not heard */
};

/* Returns the columns of the request's route. The request has been routed. */
static inline const struct gb_route *gb_route_of(const struct gb_http_request *request) {
    return request->route->app;
}

/* Handlers, by the names in routes.def. */
#define GB_ROUTE(method, path, name, body, access, target, key, operation, query) gb_http_handler gb_api_##name;
#include "api/routes.def"
#undef GB_ROUTE

#endif
