/* The routes, taken apart once: a path finds the first pattern that matches, by the number of its segments. The router
 * does not change once it is made, so all loops use it without a lock. */
#include "http/message/router.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/message/request.h"

/* Returns the number of segments, at most GB_ROUTER_SEGMENTS + 1; 0 if the path does not begin with a slash. */
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

static unsigned mark_captures(struct gb_router_pattern *pattern, unsigned segments) {
    unsigned captures = 0;
    unsigned i;

    for (i = 0; i < segments; i++) {
        if (pattern->segment[i].s[0] != '{')
            continue;
        pattern->segment[i].s = NULL;
        captures++;
    }
    return captures;
}

int gb_router_init(struct gb_router *router, const struct gb_http_route *routes, size_t count, struct gb_error *err) {
    struct gb_router_pattern *p;
    size_t i;
    unsigned n;

    router->routes = routes;
    router->count = count;
    router->list = p = calloc(count + 1, sizeof(*router->list));
    if (!router->list)
        return gb_error_set(err, GB_ERR_INTERNAL, "no memory for the routes");
    for (n = 0; n <= GB_ROUTER_SEGMENTS; n++) {
        router->first[n] = p;
        for (i = 0; i < count; i++) {
            if (split(routes[i].path, strlen(routes[i].path), p->segment) != n)
                continue;
            p->route = &routes[i];
            if (mark_captures(p, n) > GB_HTTP_PARAMS_MAX)
                return gb_error_set(err, GB_ERR_INTERNAL, "the route %s has too many captures", routes[i].path);
            p++;
        }
    }
    router->first[n] = p;
    if ((size_t)(p - router->list) != count)
        return gb_error_set(err, GB_ERR_INTERNAL, "a route has more than %d segments", GB_ROUTER_SEGMENTS);
    return 0;
}

void gb_router_done(struct gb_router *router) {
    free(router->list);
    router->list = NULL;
}

/* Compares from the end, because most patterns begin alike. */
static bool match(const struct gb_router_pattern *pattern, const struct gb_http_text *segment, unsigned n) {
    while (n-- > 0) {
        const struct gb_http_text *want = &pattern->segment[n];

        if (want->s && (want->len != segment[n].len || memcmp(want->s, segment[n].s, want->len) != 0))
            return false;
    }
    return true;
}

static unsigned capture(const struct gb_router_pattern *pattern, const struct gb_http_text *segment, unsigned n,
                        struct gb_http_text *ret) {
    unsigned captures = 0;
    unsigned i;

    for (i = 0; i < n; i++) {
        if (!pattern->segment[i].s)
            ret[captures++] = segment[i];
    }
    return captures;
}

static int set_params(struct gb_http_request *request, struct gb_text_arena *texts, const struct gb_http_text *captures,
                      unsigned n, struct gb_error *err) {
    unsigned i;

    for (i = 0; i < n; i++) {
        char *copy = gb_text_arena_copy(texts, captures[i].s, captures[i].len);
        size_t len;

        if (!copy)
            return gb_error_set(err, GB_ERR_URI_TOO_LONG, "the URI is longer than this daemon reads");
        if (gb_percent_decode(copy, captures[i].len, copy, &len) < 0)
            return gb_error_set(err, GB_ERR_MALFORMED_REQUEST,
                                "a '%%' in the path is not followed by two hexadecimal digits");
        request->param[i] = (struct gb_http_text){.s = copy, .len = len};
    }
    return 0;
}

static void append_method(char *allow, const char *name) {
    size_t used = strlen(allow);

    snprintf(allow + used, GB_ROUTER_ALLOW_SIZE - used, "%s%s", used ? ", " : "", name);
}

/* Paths below this one that take the method: ".../data". */
static void append_below(char *out, size_t size, const struct gb_http_route *routes, size_t count, const char *path,
                         enum gb_http_method method) {
    size_t n = strlen(path);
    size_t used = 0;
    size_t i;

    out[0] = '\0';
    for (i = 0; i < count; i++) {
        const char *rest = routes[i].path + n;

        if (routes[i].method != method || strncmp(routes[i].path, path, n) != 0 || *rest != '/' || strchr(rest, '{'))
            continue;
        if (used + strlen(rest) + sizeof(", ..., ...") >
            size) { /* whole paths alone, with room for a note that more follow */
            strcpy(out + used, used > 0 ? ", ..." : "");
            return;
        }
        used += (size_t)snprintf(out + used, size - used, "%s...%s", used ? ", " : "", rest);
    }
}

static int refuse_method(const struct gb_router *router, const struct gb_http_text *segment, unsigned segments,
                         enum gb_http_method method, char *ret_allow, struct gb_error *err) {
    const struct gb_router_pattern *p;
    const char *path = "";
    char below[128];

    for (p = router->first[segments]; p < router->first[segments + 1]; p++) {
        if (!match(p, segment, segments))
            continue;
        path = p->route->path;
        append_method(ret_allow, gb_http_method_name(p->route->method));
        if (p->route->method == GB_HTTP_GET)
            append_method(ret_allow, "HEAD");
    }
    append_below(below, sizeof(below), router->routes, router->count, path, method);
    if (below[0])
        return gb_error_set(err, GB_ERR_METHOD_NOT_ALLOWED, "this path takes %s; %s goes to %s below it", ret_allow,
                            gb_http_method_name(method), below);
    return gb_error_set(err, GB_ERR_METHOD_NOT_ALLOWED, "this path takes %s", ret_allow);
}

int gb_router_match(const struct gb_router *router, struct gb_http_request *request, struct gb_text_arena *texts,
                    struct gb_http_text path, char *ret_allow, struct gb_error *err) {
    enum gb_http_method method = request->method == GB_HTTP_HEAD ? GB_HTTP_GET : request->method;
    struct gb_http_text segment[GB_ROUTER_SEGMENTS];
    struct gb_http_text captures[GB_HTTP_PARAMS_MAX];
    unsigned n = split(path.s, path.len, segment);
    const struct gb_router_pattern *p;
    bool found = false;

    ret_allow[0] = '\0';
    for (p = n <= GB_ROUTER_SEGMENTS ? router->first[n] : NULL; p && p < router->first[n + 1]; p++) {
        if (!match(p, segment, n))
            continue;
        found = true;
        if (p->route->method != method)
            continue;
        request->route = p->route;
        return set_params(request, texts, captures, capture(p, segment, n, captures), err);
    }
    if (found)
        return refuse_method(router, segment, n, method, ret_allow, err);
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
