#include <stdio.h>
#include <string.h>

#include "http/exchange.h"

/* Captures whole segments of the path. There are a hundred routes or so: most differ within a few characters. */
static bool match(const char *pattern, struct gb_http_text path, struct gb_http_text *ret_captures, unsigned *ret_n) {
    const char *at = path.s;
    const char *end = path.s + path.len;
    unsigned n = 0;

    while (*pattern) {
        if (*pattern == '{') {
            const char *segment = at;

            if (n == GB_HTTP_PARAMS_MAX)
                return false;
            while (at < end && *at != '/')
                at++;
            ret_captures[n++] = (struct gb_http_text){.s = segment, .len = (size_t)(at - segment)};
            pattern = strchr(pattern, '}') + 1;
        } else if (at == end || *at++ != *pattern++) {
            return false;
        }
    }
    *ret_n = n;
    return at == end;
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

int gb_router_match(struct gb_exchange *ex, const struct gb_http_route *routes, size_t count, struct gb_http_text path,
                    char *ret_allow, struct gb_error *err) {
    enum gb_http_method method = ex->req.method == GB_HTTP_HEAD ? GB_HTTP_GET : ex->req.method;
    struct gb_http_text captures[GB_HTTP_PARAMS_MAX];
    const char *found = NULL;
    char below[128];
    size_t i;
    unsigned n;

    ret_allow[0] = '\0';
    for (i = 0; i < count; i++) {
        if (!match(routes[i].path, path, captures, &n))
            continue;
        if (routes[i].method == method) {
            ex->req.route = &routes[i];
            return set_params(ex, captures, n, err);
        }
        found = routes[i].path;
        append_method(ret_allow, gb_http_method_name(routes[i].method));
        if (routes[i].method == GB_HTTP_GET)
            append_method(ret_allow, "HEAD");
    }
    if (found) {
        append_below(below, sizeof(below), routes, count, found, method);
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
