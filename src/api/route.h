/* The columns of the table of routes, and the handlers in it. */
#ifndef GB_API_ROUTE_H
#define GB_API_ROUTE_H

#include <stdbool.h>

#include "http/http.h"

/* The scope that a token needs. OWN: a token that is bound to a session will do as well; the handler asks for the
 * session. SEE: scope verify or map. */
enum gb_access {
    GB_ACCESS_OPEN,
    GB_ACCESS_VERIFY,
    GB_ACCESS_READ,
    GB_ACCESS_WRITE,
    GB_ACCESS_MAP,
    GB_ACCESS_ADMIN,
    GB_ACCESS_FLEET,
    GB_ACCESS_OWN_VERIFY,
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

/* What a token with a prefix may do here, which reaches only buffers whose names begin with that. */
enum gb_reach {
    GB_REACH_NEVER, /* nothing: the route cannot be limited to them */
    GB_REACH_FREE,  /* all that its scope permits: the route tells of no single buffer */
    GB_REACH_NAMED, /* if the buffer that the path names has the prefix */
    GB_REACH_ASKED  /* the handler asks for each name that it reads or shows (gb_api_reach, gb_api_prefix) */
};

/* The columns of routes.def that middleware reads. */
struct gb_route {
    enum gb_access access;
    enum gb_target target;
    enum gb_reach reach;
    bool keyed;            /* an Idempotency-Key replays the first answer */
    const char *operation; /* what Prefer: respond-async makes of it; "": the preference is not heard */
};

/* Whether what the route does changes nothing: a token of scope read may do it. */
static inline bool gb_route_reads(const struct gb_route *route) {
    switch (route->access) {
    case GB_ACCESS_OPEN:
    case GB_ACCESS_VERIFY:
    case GB_ACCESS_READ:
    case GB_ACCESS_OWN_VERIFY:
    case GB_ACCESS_OWN_SEE:
        return true;
    case GB_ACCESS_WRITE:
    case GB_ACCESS_MAP:
    case GB_ACCESS_ADMIN:
    case GB_ACCESS_FLEET:
    case GB_ACCESS_OWN_WRITE:
    case GB_ACCESS_OWN_MAP:
        break;
    }
    return false;
}

/* Returns the columns of the request's route. The request has been routed. */
static inline const struct gb_route *gb_route_of(const struct gb_http_request *request) {
    return request->route->app;
}

/* Handlers, by the names in routes.def. */
#define GB_ROUTE(method, path, name, body, access, target, reach, key, operation, query) gb_http_handler gb_api_##name;
#include "api/routes.def"
#undef GB_ROUTE

#endif
