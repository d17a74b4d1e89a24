#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/exchange.h"

/* Returns how many there are, at most GB_ROUTER_SEGMENTS + 1; 0 for a path that does not begin with a slash. */
static unsigned split(const char *path, size_t len, struct gb_http_text *ret) {
    const char *end = path + len;
    unsigned n = 0;

    while (path < end && *path == '/' && n <= GB_ROUTER_SEGMENTS) {
        const char *at = ++path;

        while (path < end && *path != '/')
            path++;
        if (n < GB_ROUTER_SEGMENTS)
            ret[n] = (struct gb_http_text){.s = at, .len = (size_t)(path - at)};
        n++;
    }
    return n;
}

int gb_router_init(struct gb_router *router, const struct gb_http_route *routes, size_t count, struct gb_error *err) {
    size_t i;
    unsigned k;

    router->routes = routes;
    router->list = calloc(count + 1, sizeof(*router->list));
    if (!router->list)
        return gb_error_set(err, GB_ERR_INTERNAL, "no memory for the routes");
    router->count = count;
    for (i = 0; i < count; i++) {
        struct gb_router_pattern *p = &router->list[i];
        unsigned captures = 0;

        p->segments = split(routes[i].path, strlen(routes[i].path), p->segment);
        for (k = 0; k < p->segments && k < GB_ROUTER_SEGMENTS; k++) {
            if (p->segment[k].s[0] != '{')
                continue;
            p->segment[k].s = NULL;
            captures++;
        }
        if (p->segments > GB_ROUTER_SEGMENTS || captures > GB_HTTP_PARAMS_MAX)
            return gb_error_set(err, GB_ERR_INTERNAL, "the route %s is too long", routes[i].path);
    }
    return 0;
}

void gb_router_done(struct gb_router *router) {
    free(router->list);
    router->list = NULL;
}

/* From the end: most patterns begin alike. */
static bool match(const struct gb_router_pattern *pattern, const struct gb_http_text *segment, unsigned n) {
    if (pattern->segments != n)
        return false;
    while (n-- > 0) {
        const struct gb_http_text *want = &pattern->segment[n];

        if (want->s && (want->len != segment[n].len || memcmp(want->s, segment[n].s, want->len) != 0))
            return false;
    }
    return true;
}

static unsigned capture(const struct gb_router_pattern *pattern, const struct gb_http_text *segment,
                        struct gb_http_text *ret) {
    unsigned n = 0;
    unsigned k;

    for (k = 0; k < pattern->segments; k++) {
        if (!pattern->segment[k].s)
            ret[n++] = segment[k];
    }
    return n;
}

static int set_params(struct gb_exchange *ex, const struct gb_http_text *captures, unsigned n, struct gb_error *err) {
    unsigned i;

    for (i = 0; i < n; i++) {
        char *copy = gb_exchange_text(ex, captures[i].s, captures[i].len);
        size_t len;

        if (!copy)
            return gb_error_set(err, GB_ERR_URI_TOO_LONG, "the URI is longer than this daemon reads");
        if (gb_percent_decode(copy, captures[i].len, copy, &len) < 0)
            return gb_error_set(err, GB_ERR_MALFORMED_REQUEST,
                                "a '%%' in the path is not followed by two hexadecimal digits");
        ex->req.param[i] = (struct gb_http_text){.s = copy, .len = len};
    }
    return 0;
}

static void append_method(char *allow, const char *name) {
    size_t used = strlen(allow);

    snprintf(allow + used, 64 - used, "%s%s", used ? ", " : "", name);
}

/* Below this path the method may have its place: ", PUT .../data". */
static void append_below(char *out, size_t size, const struct gb_http_route *routes, size_t count, const char *path,
                         enum gb_http_method method) {
    size_t n = strlen(path);
    size_t used = 0;
    size_t i;

    out[0] = '\0';
    for (i = 0; i < count && used < size; i++) {
        const char *rest = routes[i].path + n;

        if (routes[i].method == method && strncmp(routes[i].path, path, n) == 0 && *rest == '/' && !strchr(rest, '{'))
            used += (size_t)snprintf(out + used, size - used, "%s...%s", used ? ", " : "", rest);
    }
}

int gb_router_match(struct gb_exchange *ex, const struct gb_router *router, struct gb_http_text path, char *ret_allow,
                    struct gb_error *err) {
    enum gb_http_method method = ex->req.method == GB_HTTP_HEAD ? GB_HTTP_GET : ex->req.method;
    const struct gb_http_route *routes = router->routes;
    struct gb_http_text segment[GB_ROUTER_SEGMENTS];
    struct gb_http_text captures[GB_HTTP_PARAMS_MAX];
    unsigned segments = split(path.s, path.len, segment);
    const char *found = NULL;
    char below[128];
    size_t i;

    ret_allow[0] = '\0';
    for (i = 0; i < router->count; i++) {
        if (!match(&router->list[i], segment, segments))
            continue;
        if (routes[i].method == method) {
            ex->req.route = &routes[i];
            return set_params(ex, captures, capture(&router->list[i], segment, captures), err);
        }
        found = routes[i].path;
        append_method(ret_allow, gb_http_method_name(routes[i].method));
        if (routes[i].method == GB_HTTP_GET)
            append_method(ret_allow, "HEAD");
    }
    if (found) {
        append_below(below, sizeof(below), routes, router->count, found, method);
        if (below[0])
            return gb_error_set(err, GB_ERR_METHOD_NOT_ALLOWED, "this path takes %s; %s goes to %s below it", ret_allow,
                                gb_http_method_name(method), below);
        return gb_error_set(err, GB_ERR_METHOD_NOT_ALLOWED, "this path takes %s", ret_allow);
    }
    return gb_error_set(err, GB_ERR_NO_ROUTE, "there is nothing at this path; GET /v1 lists what there is");
}

static bool listed(const char *list, const struct gb_http_text *name) {
    const char *at = list;

    while (*at) {
        size_t n = strcspn(at, " ");

        if (n == name->len && memcmp(at, name->s, n) == 0)
            return true;
        at += n + (at[n] == ' ');
    }
    return false;
}

int gb_router_check_query(const struct gb_http_request *request, struct gb_error *err) {
    const char *list = request->route->query ? request->route->query : "";
    unsigned i;

    for (i = 0; i < request->queries; i++) {
        const struct gb_http_text *name = &request->query[i].name;

        if (!listed(list, name))
            return gb_error_set(err, GB_ERR_UNKNOWN_PARAMETER, "the query parameter '%.40s' is unknown here; %s%s",
                                name->s, list[0] ? "permitted: " : "none is permitted", list);
    }
    return 0;
}
