#include "api/auth.h"

#include <string.h>
#include <strings.h>

#include "api/context.h"
#include "api/route.h"

/* Reads the bearer's secret. Returns 1 with what follows "Bearer " in *ret, 0 when no token is needed, or -1 with
 * UNAUTHENTICATED or MALFORMED_REQUEST. */
static int bearer(const struct gb_http_request *request, const char **ret, struct gb_error *err) {
    const char *value = gb_http_header(request, "Authorization");
    unsigned lines = 0;
    unsigned i;

    for (i = 0; value && i < request->headers; i++)
        lines += strcasecmp(request->header[i].name.s, "Authorization") == 0;
    if (lines > 1)
        return gb_error_set(err, GB_ERR_MALFORMED_REQUEST, "Authorization must be given once");
    if (!gb_tokens_required(gb_api_of(request)->core))
        return 0;
    if (!value)
        return gb_error_set(err, GB_ERR_UNAUTHENTICATED, "send the header Authorization: Bearer TOKEN");
    if (strncasecmp(value, "Bearer ", 7) != 0)
        return gb_error_set(err, GB_ERR_UNAUTHENTICATED, "Authorization must be of the form Bearer TOKEN");
    *ret = value + 7 + strspn(value + 7, " ");
    return 1;
}

int gb_api_bearer(const struct gb_http_request *request, int64_t *ret_token, struct gb_error *err) {
    const char *secret;
    int r = bearer(request, &secret, err);

    *ret_token = 0;
    return r > 0 ? gb_tokens_identify(gb_api_of(request)->core, secret, ret_token, err) : r;
}

static int permit(const struct gb_http_request *request, enum gb_scope scope, const char *session,
                  struct gb_caller *ret_caller, struct gb_error *err) {
    struct gb_core *core = gb_api_of(request)->core;
    const char *secret;
    int r = bearer(request, &secret, err);

    return r > 0 ? gb_tokens_check(core, secret, scope, session, ret_caller, err) : r;
}

int gb_api_permit(const struct gb_http_request *request, enum gb_scope scope, const char *session,
                  struct gb_error *err) {
    return permit(request, scope, session, NULL, err);
}

static int find_bound(const struct gb_http_request *request, enum gb_scope scope, struct gb_name *ret,
                      struct gb_caller *ret_caller, struct gb_error *err) {
    struct gb_core *core = gb_api_of(request)->core;
    const char *secret;
    int r = bearer(request, &secret, err);

    *ret = (struct gb_name){""};
    return r > 0 ? gb_tokens_session(core, secret, scope, ret, ret_caller, err) : r;
}

int gb_api_bound(const struct gb_http_request *request, enum gb_scope scope, struct gb_name *ret,
                 struct gb_error *err) {
    return find_bound(request, scope, ret, NULL, err);
}

static enum gb_scope scope_of(enum gb_access access) {
    switch (access) {
    case GB_ACCESS_OPEN:
    case GB_ACCESS_READ:
    case GB_ACCESS_OWN_READ:
    case GB_ACCESS_OWN_SEE:
        return GB_SCOPE_READ;
    case GB_ACCESS_MAP:
    case GB_ACCESS_OWN_MAP:
        return GB_SCOPE_MAP;
    case GB_ACCESS_ADMIN:
        return GB_SCOPE_ADMIN;
    case GB_ACCESS_WRITE:
    case GB_ACCESS_OWN_WRITE:
        break;
    }
    return GB_SCOPE_WRITE;
}

int gb_api_authorize(void *app, struct gb_http_request *request, struct gb_error *err) {
    const struct gb_route *route = gb_route_of(request);
    enum gb_scope scope = scope_of(route->access);
    struct gb_name bound;
    /* A token that is bound to a session may not change the session itself or its quota. */
    bool in_session =
        route->target >= GB_TARGET_MEMBER || (route->target == GB_TARGET_SESSION && scope == GB_SCOPE_READ);

    (void)app;
    if (route->access == GB_ACCESS_OPEN)
        return 0;
    if (route->access == GB_ACCESS_OWN_SEE && find_bound(request, GB_SCOPE_MAP, &bound, &request->caller, NULL) == 0)
        return 0;
    if (route->access >= GB_ACCESS_OWN_READ)
        return find_bound(request, scope, &bound, &request->caller, err);
    return permit(request, scope, in_session ? request->param[0].s : "", &request->caller, err);
}
