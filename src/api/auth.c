/* Tokens of requests: the bearer, what a token may do and reach, and what the client that a request counts for may
 * take. */
#include "api/auth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/context.h"
#include "base/map.h"
#include "model/token.h"

/* --- identity ----------------------------------------------------------------------------------------------------- */

/* Reads the bearer's secret. Returns 1 with what follows "Bearer " in *ret, 0 when there is no Authorization, or -1
 * with UNAUTHENTICATED or MALFORMED_REQUEST. */
static int bearer(const struct gb_http_request *request, const char **ret, struct gb_error *err) {
    const char *value = gb_http_header(request, "Authorization");

    if (!value)
        return 0;
    if (strncasecmp(value, "Bearer ", 7) != 0)
        return gb_error_set(err, GB_ERR_UNAUTHENTICATED, "Authorization must be of the form Bearer TOKEN");
    *ret = value + 7 + strspn(value + 7, " ");
    return 1;
}

static int check_once(const struct gb_http_request *request, struct gb_error *err) {
    unsigned lines = 0;
    unsigned at = 0;

    while (gb_http_header_next(request, "Authorization", &at))
        lines++;
    if (lines > 1)
        return gb_error_set(err, GB_ERR_MALFORMED_REQUEST, "Authorization must be given once");
    return 0;
}

static int by_certificate(const struct gb_http_request *request, struct gb_token_found *ret, struct gb_error *err) {
    const struct gb_http_certificate *certificate = request->certificate;
    const char *names[1 + GB_HTTP_CERTIFICATE_NAMES] = {certificate->subject};
    unsigned count = 1;
    unsigned i;

    if (gb_http_certificate_check(certificate, err) < 0)
        return -1;
    for (i = 0; i < certificate->names && i < GB_HTTP_CERTIFICATE_NAMES; i++)
        names[count++] = certificate->name[i];
    return gb_tokens_by_subject(gb_api_of(request)->core, names, count, ret, err);
}

/* Finds the token of the request. Where there are both a certificate and a bearer, both must be known, and the bearer
 * decides. Returns 1, 0 when no token is needed, or -1 with UNAUTHENTICATED or MALFORMED_REQUEST. */
static int identify(const struct gb_http_request *request, struct gb_token_found *ret, struct gb_error *err) {
    const char *secret = NULL;
    int r;

    if (check_once(request, err) < 0)
        return -1;
    if (!gb_tokens_required(gb_api_of(request)->core))
        return 0;
    r = bearer(request, &secret, err);
    if (r == 0 && !request->certificate)
        r = gb_error_set(err, GB_ERR_UNAUTHENTICATED, "send the header Authorization: Bearer TOKEN");
    if (r < 0 || (request->certificate && by_certificate(request, ret, err) < 0))
        return -1;
    return r == 0 || gb_tokens_by_secret(gb_api_of(request)->core, secret, ret, err) == 0 ? 1 : -1;
}

/* --- tickets ------------------------------------------------------------------------------------------------------ */

/* The caller of a request with a ticket is the highest number less a set of bits: one for each scope of its token up to
 * admin, and one if the token is bound to the session of the path. Grants never come near. Nodes of other versions read
 * the same bits; a ticket never has scope fleet. */
#define TICKET_BOUND (1u << (GB_SCOPE_ADMIN + 1))
#define TICKET_RIGHTS (2 * TICKET_BOUND - 1)
#define TICKET_PREFIX "ticket:"

static bool is_ticket(uint64_t caller) {
    return caller >= UINT64_MAX - TICKET_RIGHTS;
}

static unsigned ticket_rights(const struct gb_http_request *request) {
    return (unsigned)(UINT64_MAX - request->caller);
}

static const char *ticket_session(const struct gb_http_request *request) {
    bool bound = (ticket_rights(request) & TICKET_BOUND) != 0;

    return bound && gb_route_of(request)->target >= GB_TARGET_SESSION ? request->param[0].s : "";
}

static int ticket_permit(const struct gb_http_request *request, enum gb_scope scope, const char *session,
                         struct gb_error *err) {
    const char *bound = ticket_session(request);

    if (!gb_scopes_include(ticket_rights(request) & (TICKET_BOUND - 1), scope))
        return gb_error_set(err, GB_ERR_FORBIDDEN,
                            "the ticket's token has no scope that permits this; it needs scope %s",
                            gb_scope_name(scope));
    if (session && bound[0] != '\0' && strcmp(session, bound) != 0)
        return gb_error_set(err, GB_ERR_FORBIDDEN, "the ticket's token is only good for session \"%s\"", bound);
    return 0;
}

/* "RIGHTS:NAME", with the rights in hexadecimal. */
static int read_who(struct gb_http_request *request, const char *who, struct gb_error *err) {
    const char *colon = strchr(who, ':');
    unsigned long rights = colon ? strtoul(who, NULL, 16) : TICKET_RIGHTS + 1ul;

    if (rights > TICKET_RIGHTS)
        return gb_error_set(err, GB_ERR_TICKET_INVALID, "the ticket is of another version of gpubufd");
    request->caller = UINT64_MAX - rights;
    request->by.token = 0;
    snprintf(request->by.name.s, sizeof(request->by.name.s), TICKET_PREFIX "%.*s",
             (int)(GB_NAME_MAX - strlen(TICKET_PREFIX)), colon + 1);
    return 0;
}

void gb_ticket_node_who(const struct gb_name *node, char *ret, size_t size) {
    snprintf(ret, size, "%x:node:%s", TICKET_BOUND - 1, node->s);
}

/* What the ticket was made for: the path, and the query as it was before the ticket was added. */
static int by_ticket(struct gb_http_request *request, struct gb_error *err) {
    const struct gb_http_text *via = &request->aside[GB_ASIDE_VIA];
    const char *shown = request->shown.s;
    const char *question = strchr(shown, '?');
    char who[GB_TICKET_WHO_SIZE];
    char *path = strndup(shown, strcspn(shown, "?"));
    char *query = NULL;
    int r;

    if (asprintf(&query, "%s%s%s%s", question ? question + 1 : "", question && via->s ? "&" : "", via->s ? "via=" : "",
                 via->s ? via->s : "") < 0)
        query = NULL;
    if (!path || !query)
        r = gb_error_memory(err, "request");
    else
        r = gb_fleet_ticket_check(gb_api_of(request)->fleet, request->aside[GB_ASIDE_TICKET].s,
                                  gb_http_method_name(request->method), path, query, who, sizeof(who), err);
    free(path);
    free(query);
    return r < 0 ? -1 : read_who(request, who, err);
}

/* The grant that authorization found, or would find now. Returns as identify. */
static int grant_of(const struct gb_http_request *request, uint64_t *ret, struct gb_error *err) {
    struct gb_token_found found;
    int r;

    *ret = request->caller;
    if (request->caller > 0)
        return gb_tokens_required(gb_api_of(request)->core);
    r = identify(request, &found, err);
    if (r > 0)
        *ret = found.grant;
    return r;
}

int gb_api_bearer(const struct gb_http_request *request, int64_t *ret_token, struct gb_error *err) {
    uint64_t grant;
    int r;

    *ret_token = 0;
    if (is_ticket(request->caller)) {
        *ret_token = INT64_MIN + gb_map_hash(request->by.name.s); /* apart from all tokens of this node */
        return 0;
    }
    r = grant_of(request, &grant, err);
    return r > 0 ? gb_tokens_id(gb_api_of(request)->core, grant, ret_token, err) : r;
}

const char *gb_api_bearer_name(const struct gb_http_request *request) {
    return request->by.name.s + (is_ticket(request->caller) ? strlen(TICKET_PREFIX) : 0);
}

/* --- what it may -------------------------------------------------------------------------------------------------- */

int gb_api_permit(const struct gb_http_request *request, enum gb_scope scope, const char *session,
                  struct gb_error *err) {
    uint64_t grant;
    int r;

    if (is_ticket(request->caller))
        return ticket_permit(request, scope, session, err);
    r = grant_of(request, &grant, err);
    return r > 0 ? gb_tokens_permit(gb_api_of(request)->core, grant, scope, session, err) : r;
}

int gb_api_bound(const struct gb_http_request *request, enum gb_scope scope, struct gb_name *ret,
                 struct gb_error *err) {
    uint64_t grant;
    int r;

    *ret = (struct gb_name){""};
    if (is_ticket(request->caller)) {
        snprintf(ret->s, sizeof(ret->s), "%s", ticket_session(request));
        return ticket_permit(request, scope, NULL, err);
    }
    r = grant_of(request, &grant, err);
    return r > 0 ? gb_tokens_session(gb_api_of(request)->core, grant, scope, ret, err) : r;
}

int gb_api_prefix(const struct gb_http_request *request, struct gb_name *ret, struct gb_error *err) {
    uint64_t grant;
    int r;

    *ret = (struct gb_name){""};
    if (is_ticket(request->caller))
        return 0; /* tokens with one give no tickets */
    r = grant_of(request, &grant, err);
    return r > 0 ? gb_tokens_prefix(gb_api_of(request)->core, grant, ret, err) : r;
}

bool gb_api_has_prefix(const struct gb_name *prefix, const char *name) {
    return strncmp(name, prefix->s, strlen(prefix->s)) == 0;
}

static int beyond(const struct gb_name *prefix, const char *name, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_FORBIDDEN,
                        "the token is only good for buffers whose names begin with \"%s\", and \"%.140s\" does not",
                        prefix->s, name);
}

int gb_api_reach(const struct gb_http_request *request, const char *name, struct gb_error *err) {
    struct gb_name prefix;

    if (gb_api_prefix(request, &prefix, err) < 0)
        return -1;
    return gb_api_has_prefix(&prefix, name) ? 0 : beyond(&prefix, name, err);
}

/* What the route itself says of a token with a prefix. */
static int check_reach(const struct gb_http_request *request, uint64_t grant, struct gb_error *err) {
    const struct gb_route *route = gb_route_of(request);
    struct gb_name prefix;

    if (route->reach == GB_REACH_FREE || route->reach == GB_REACH_ASKED)
        return 0;
    if (gb_tokens_prefix(gb_api_of(request)->core, grant, &prefix, err) < 0)
        return -1;
    if (route->reach == GB_REACH_NAMED)
        return gb_api_has_prefix(&prefix, request->param[1].s) ? 0 : beyond(&prefix, request->param[1].s, err);
    return gb_error_set(err, GB_ERR_FORBIDDEN,
                        "the token is only good for buffers whose names begin with \"%s\", and %s on this path cannot "
                        "be limited to them",
                        prefix.s, gb_http_method_name(request->method));
}

static enum gb_scope scope_of(enum gb_access access) {
    switch (access) {
    case GB_ACCESS_OPEN:
    case GB_ACCESS_VERIFY:
    case GB_ACCESS_OWN_VERIFY:
    case GB_ACCESS_OWN_SEE:
        return GB_SCOPE_VERIFY;
    case GB_ACCESS_READ:
        return GB_SCOPE_READ;
    case GB_ACCESS_MAP:
    case GB_ACCESS_OWN_MAP:
        return GB_SCOPE_MAP;
    case GB_ACCESS_ADMIN:
        return GB_SCOPE_ADMIN;
    case GB_ACCESS_FLEET:
        return GB_SCOPE_FLEET;
    case GB_ACCESS_WRITE:
    case GB_ACCESS_OWN_WRITE:
        break;
    }
    return GB_SCOPE_WRITE;
}

/* Whether a token of that scope reaches the route within its session, not beside it: a token that is bound to a session
 * may not change the session itself or its quota. */
static bool in_session(const struct gb_route *route, enum gb_scope scope) {
    return route->target >= GB_TARGET_MEMBER || (route->target == GB_TARGET_SESSION && scope <= GB_SCOPE_READ);
}

/* The request has its caller. */
static int check_scope(const struct gb_http_request *request, struct gb_error *err) {
    const struct gb_route *route = gb_route_of(request);
    enum gb_scope scope = scope_of(route->access);
    const char *session = in_session(route, scope) ? request->param[0].s : "";

    if (route->access == GB_ACCESS_OWN_SEE && gb_api_permit(request, GB_SCOPE_MAP, NULL, NULL) == 0)
        return 0;
    return gb_api_permit(request, scope, route->access >= GB_ACCESS_OWN_VERIFY ? NULL : session, err);
}

static void note_use(const struct gb_http_request *request, uint64_t grant) {
    char from[GB_HTTP_ADDRESS_SIZE];

    gb_http_address_text(&request->from, from);
    gb_tokens_used(gb_api_of(request)->core, grant, from);
}

int gb_api_authorize(void *app, struct gb_http_request *request, struct gb_error *err) {
    struct gb_token_found found;
    int r;

    (void)app;
    request->caller = 0;
    if (gb_route_of(request)->access == GB_ACCESS_OPEN)
        return 0;
    if (request->aside[GB_ASIDE_TICKET].s && gb_api_of(request)->fleet)
        return by_ticket(request, err) < 0 ? -1 : check_scope(request, err);
    r = identify(request, &found, err);
    if (r <= 0)
        return r;
    request->caller = found.grant;
    request->by = found.by;
    if (found.unnoted)
        note_use(request, found.grant);
    if (check_scope(request, err) < 0)
        return -1;
    return found.has_prefix ? check_reach(request, found.grant, err) : 0;
}

bool gb_api_in_force(void *app, uint64_t caller) {
    const struct gb_api *api = app;

    return is_ticket(caller) || !gb_tokens_required(api->core) || gb_tokens_in_force(api->core, caller);
}

bool gb_api_ticket_who(const struct gb_http_request *request, char ret[GB_TICKET_WHO_SIZE]) {
    struct gb_core *core = gb_api_of(request)->core;
    const char *name = request->by.name.s;
    struct gb_name prefix = {""};
    struct gb_name session = {""};
    unsigned rights = 0;
    int scope;

    if (is_ticket(request->caller)) {
        rights = ticket_rights(request);
        name += strlen(TICKET_PREFIX);
    } else {
        if (request->caller == 0 || gb_api_prefix(request, &prefix, NULL) < 0 || prefix.s[0] != '\0')
            return false;
        for (scope = 0; scope <= GB_SCOPE_ADMIN; scope++) {
            if (gb_tokens_session(core, request->caller, (enum gb_scope)scope, &session, NULL) == 0)
                rights |= 1u << scope;
        }
        if (session.s[0] != '\0' &&
            (gb_route_of(request)->target < GB_TARGET_SESSION || strcmp(session.s, request->param[0].s) != 0))
            return false;
        rights |= session.s[0] != '\0' ? TICKET_BOUND : 0;
    }
    snprintf(ret, GB_TICKET_WHO_SIZE, "%x:%.*s", rights, GB_NAME_MAX, name);
    return true;
}

/* --- what a client may take --------------------------------------------------------------------------------------- */

/* The token that the request counts for; 0: its address. Where tokens have no bound, any number of one says enough: a
 * request with a valid token never counts for its address. */
static uint64_t whose(const struct gb_http_request *request) {
    int64_t token = 0;

    if (!gb_http_bounds_tokens(request))
        return request->caller;
    return gb_api_bearer(request, &token, NULL) < 0 ? 0 : (uint64_t)token;
}

/* A secret has 256 random bits, so guesses do not succeed: they are slowed because each costs time and a line of a log.
 * A valid token therefore passes, from the same address too. Otherwise a client that guesses would shut out all others
 * behind its address. What is refused for another reason counts as what is not. */
static int refuse(struct gb_http_request *request, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;

    if (err->code == GB_ERR_UNAUTHENTICATED && gb_http_header(request, "Authorization") &&
        gb_http_authentication_failed(request, err) < 0)
        return -1;
    if (gb_http_bound_client(request, request->caller > 0 ? whose(request) : 0, NULL, &why) < 0)
        *err = why;
    return -1;
}

int gb_bounds_authorize(void *app, struct gb_http_request *request, struct gb_error *err) {
    if (gb_api_authorize(app, request, err) < 0)
        return refuse(request, err);
    return gb_http_bound_client(request, whose(request), NULL, err);
}

int gb_bounds_upload(struct gb_http_request *request, struct gb_place *ret, struct gb_error *err) {
    struct gb_client *client;

    *ret = (struct gb_place){.end = NULL};
    if (gb_http_upload_opens(request, &client, err) < 0)
        return -1;
    if (client)
        *ret = (struct gb_place){.arg = client, .end = gb_http_upload_ended};
    return 0;
}

void gb_bounds_upload_release(struct gb_place *place) {
    if (place->end)
        place->end(place->arg);
}
