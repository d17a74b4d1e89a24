/* POST /v1/fleet/sessions: makes a session on the node that has most room for it. Nodes are asked as a client would ask
 * them, this one too, until one takes it. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/middleware/hook.h"
#include "api/middleware/redirect.h"
#include "api/reply/reply_json.h"
#include "api/request/body.h"
#include "api/request/json.h"
#include "api/resources/fleet_ask.h"
#include "api/resources/register.h"
#include "api/route.h"
#include "base/container.h"

struct placing {
    struct gb_http_request *request;
    struct gb_fleet *fleet;
    struct gb_fleet_ask *asked; /* one of the three below */
    struct gb_fleet_place place;
    struct gb_fleet_call call;
    struct gb_fleet_find find;
    struct gb_name name;
    char *body;    /* what each node gets; of json_dumps */
    size_t at;     /* of place.nodes, which is asked */
    char why[256]; /* what the nodes said that did not take it */
    size_t why_len;
    bool intends;     /* the key's intent is on its way to the database; then the first node is asked */
    size_t silent;    /* of the nodes that were asked: how many cannot register it, since the directory is silent */
    _Atomic int done; /* how often an answer came */
    int seen;
};

/* --- asking ------------------------------------------------------------------------------------------------------- */

static void wake(struct placing *placing) {
    atomic_fetch_add(&placing->done, 1);
    gb_http_wake(placing->request);
}

static void placed(struct gb_fleet_ask *ask) {
    wake(gb_container_of(ask, struct placing, place.ask));
}

static void called(struct gb_fleet_ask *ask) {
    wake(gb_container_of(ask, struct placing, call.ask));
}

static void found(struct gb_fleet_ask *ask) {
    wake(gb_container_of(ask, struct placing, find.ask));
}

static void placing_free(void *state) {
    struct placing *placing = state;

    if (placing->asked)
        gb_fleet_leave(placing->fleet, placing->asked);
    free(placing->call.answer);
    free(placing->body);
    free(placing);
}

static int call_next(struct placing *placing, struct gb_error *err) {
    const struct gb_fleet_node *node = &placing->place.nodes[placing->at];
    const char *base = gb_fleet_url_on(node, &placing->place.network);
    char *url = base ? gb_redirect_url(placing->request, base, &node->name, "POST", "/v1/sessions", "") : NULL;

    free(placing->call.answer);
    memset(&placing->call, 0, sizeof(placing->call));
    placing->call.ask.done = called;
    placing->call.method = "POST";
    placing->call.body = placing->body;
    if (!url || strlen(url) >= sizeof(placing->call.url)) {
        free(url);
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
    }
    strcpy(placing->call.url, url);
    free(url);
    placing->asked = &placing->call.ask;
    gb_fleet_call(placing->fleet, &placing->call);
    return 0;
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

/* The session as its node shows it, with the node and its URL. */
static enum gb_step reply_made(struct placing *placing, struct gb_http_response *response, struct gb_error *err) {
    const struct gb_fleet_node *node = &placing->place.nodes[placing->at];
    const char *base = gb_fleet_url_on(node, &placing->place.network);
    json_t *session = json_loadb(placing->call.answer ? placing->call.answer : "", placing->call.bytes, 0, NULL);
    const char *name;
    char *url = NULL;
    char *text = NULL;

    if (asprintf(&url, "%s/v1/sessions/%s", base, placing->name.s) < 0)
        url = NULL;
    name = json_string_value(json_object_get(session, "name"));
    if (name && strcmp(name, placing->name.s) == 0 && url &&
        json_object_set_new(session, "node", json_string(node->name.s)) == 0 &&
        json_object_set_new(session, "url", json_string(url)) == 0)
        text = json_dumps(session, JSON_COMPACT);
    json_decref(session);
    if (!text) {
        free(url);
        gb_error_set(err, GB_ERR_INTERNAL, "the node \"%s\" made the session and its answer cannot be read",
                     node->name.s);
        return GB_STEP_ERROR;
    }
    gb_http_response_take(response, text, strlen(text));
    response->status = 201;
    if (gb_http_response_long_header(response, err, "Location", url) < 0 ||
        gb_http_response_header(response, err, "Content-Type", "application/json") < 0 ||
        gb_http_response_header(response, err, "Gpubuf-Owner", "%s", node->name.s) < 0)
        return GB_STEP_ERROR;
    return GB_STEP_REPLY;
}

/* What the node has against it, which another node would have too. */
static enum gb_step reply_refused(struct placing *placing, struct gb_http_response *response, struct gb_error *err) {
    response->status = placing->call.status;
    gb_http_response_take(response, placing->call.answer, placing->call.bytes);
    placing->call.answer = NULL;
    if (gb_http_response_header(response, err, "Content-Type", "application/problem+json") < 0 ||
        gb_http_response_header(response, err, "Cache-Control", "no-store") < 0)
        return GB_STEP_ERROR;
    return GB_STEP_REPLY;
}

static enum gb_step reply_exists(struct placing *placing, struct gb_http_response *response, struct gb_error *err) {
    const struct gb_fleet_find *find = &placing->find;
    const char *base = find->ask.error.code == GB_OK ? gb_fleet_url_on(&find->owner, &placing->place.network) : NULL;
    char *url = NULL;

    if (find->ask.error.code == GB_OK)
        gb_error_set(err, GB_ERR_SESSION_EXISTS, "a session named \"%s\" exists in the fleet, on the node \"%s\"",
                     placing->name.s, find->session.node.s);
    else /* a session of that name that is not registered */
        gb_error_set(err, GB_ERR_SESSION_EXISTS, "a session named \"%s\" exists on the node \"%s\"", placing->name.s,
                     placing->place.nodes[placing->at].name.s);
    if (base && asprintf(&url, "%s/v1/sessions/%s", base, placing->name.s) >= 0)
        gb_http_response_long_header(response, NULL, "Location", url);
    return GB_STEP_ERROR;
}

/* --- between ------------------------------------------------------------------------------------------------------ */

/* A refusal as gpubufd writes it. Anything else is of another program at that address, or of a proxy before it. */
static bool is_refusal(const struct gb_fleet_call *call) {
    json_t *problem = call->status >= 400 && call->status < 600 && call->answer
                          ? json_loadb(call->answer, call->bytes, 0, NULL)
                          : NULL;
    bool ret = json_is_string(json_object_get(problem, "code"));

    json_decref(problem);
    return ret;
}

static bool refused_with(const struct gb_fleet_call *call, enum gb_code code) {
    json_t *problem = call->answer ? json_loadb(call->answer, call->bytes, 0, NULL) : NULL;
    const char *slug = json_string_value(json_object_get(problem, "code"));
    bool ret = slug && strcmp(slug, gb_code_slug(code)) == 0;

    json_decref(problem);
    return ret;
}

/* Of its tenant: no other node would take it. */
static bool lacks_quota(const struct gb_fleet_call *call) {
    return call->status == 507 && refused_with(call, GB_ERR_TENANT_QUOTA_EXCEEDED);
}

/* Whether another node may take it; notes why this one did not. */
static bool goes_on(struct placing *placing) {
    const struct gb_fleet_call *call = &placing->call;
    const char *node = placing->place.nodes[placing->at].name.s;
    size_t room = sizeof(placing->why) - placing->why_len;
    int n = 0;

    if (call->ask.error.code != GB_OK)
        n = snprintf(placing->why + placing->why_len, room, "; %.40s: %.80s", node, call->ask.error.detail);
    else if ((call->status == 507 && !lacks_quota(call)) || call->status == 503 ||
             (call->status != 201 && !is_refusal(call)))
        n = snprintf(placing->why + placing->why_len, room, "; %.40s answered %d", node, call->status);
    else
        return false;
    placing->silent +=
        call->ask.error.code == GB_OK && call->status == 503 && refused_with(call, GB_ERR_DIRECTORY_UNAVAILABLE);
    placing->why_len += (size_t)n < room ? (size_t)n : room - 1;
    return true;
}

static enum gb_step after_call(struct placing *placing, struct gb_http_response *response, struct gb_error *err) {
    if (goes_on(placing)) {
        if (++placing->at < placing->place.count)
            return call_next(placing, err) < 0 ? GB_STEP_ERROR : GB_STEP_WAIT;
        if (placing->silent == placing->at) {
            gb_error_set(err, GB_ERR_DIRECTORY_UNAVAILABLE,
                         "the directory did not answer the nodes that were to register the session \"%s\"",
                         placing->name.s);
            return gb_redirect_silent(response, err);
        }
        gb_error_set(err, GB_ERR_NO_NODE_FITS, "no node took the session \"%s\": %s", placing->name.s,
                     placing->why + 2);
        return GB_STEP_ERROR;
    }
    if (placing->call.status == 201)
        return reply_made(placing, response, err);
    if (placing->call.status != 409)
        return reply_refused(placing, response, err);
    placing->find.ask.done = found;
    placing->asked = &placing->find.ask;
    if (gb_fleet_find(placing->fleet, &placing->name, false, &placing->find))
        return reply_exists(placing, response, err);
    return GB_STEP_WAIT;
}

/* A node may make the session although this one ends before it has answered. */
static enum gb_step call_first(struct placing *placing, struct gb_error *err) {
    placing->intends = !gb_request_hooks_intend(placing->request, "placed");
    if (placing->intends)
        return GB_STEP_WAIT;
    return call_next(placing, err) < 0 ? GB_STEP_ERROR : GB_STEP_WAIT;
}

static enum gb_step after_place(struct placing *placing, struct gb_http_response *response, struct gb_error *err) {
    if (placing->place.ask.error.code == GB_OK && placing->place.count > 0)
        return call_first(placing, err);
    *err = placing->place.ask.error;
    gb_error_set(err, GB_ERR_NO_NODE_FITS, "no node of the fleet fits");
    if (err->code == GB_ERR_DIRECTORY_UNAVAILABLE)
        gb_redirect_silent(response, err);
    return GB_STEP_ERROR;
}

static enum gb_step resume(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct placing *placing = request->state;

    if (placing->intends && !request->timed_out)
        return call_first(placing, err);
    if (placing->seen == atomic_load(&placing->done) && !request->timed_out)
        return GB_STEP_WAIT;
    if (placing->seen == atomic_load(&placing->done)) {
        gb_error_set(err, GB_ERR_TIMED_OUT,
                     "no node has answered in the permitted time; one may still make the session");
        return GB_STEP_ERROR;
    }
    placing->seen++;
    if (placing->asked == &placing->place.ask)
        return after_place(placing, response, err);
    if (placing->asked == &placing->call.ask)
        return after_call(placing, response, err);
    return reply_exists(placing, response, err);
}

/* --- the beginning ------------------------------------------------------------------------------------------------ */

/* Its other fields go to the node as they are. */
static int read_body(json_t *body, struct placing *placing, struct gb_error *err) {
    const json_t *quota = NULL;
    uint64_t bytes = GB_UNLIMITED;
    int r = gb_json_name(body, "name", &placing->name, err);

    if (r == 0)
        r = gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the field 'name' is needed");
    if (r < 0 || gb_fleet_read_select(body, placing->place.select, err) < 0)
        return -1;
    r = gb_json_child(body, "quota", &quota, err);
    if (r < 0 || (r > 0 && gb_json_limit(quota, "bytes", &bytes, err) < 0))
        return -1;
    placing->place.bytes = bytes == GB_UNLIMITED ? 0 : bytes;
    json_object_del(body, "select");
    if (json_object_set_new(body, "fleet", json_true()) < 0)
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
    placing->body = json_dumps(body, JSON_COMPACT);
    return placing->body ? 0 : gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
}

enum gb_step gb_api_fleet_session_place(struct gb_http_request *request, struct gb_http_response *response,
                                        struct gb_error *err) {
    struct placing *placing;
    json_t *body;
    int r;

    (void)response;
    if (gb_body_object(request,
                       "name labels quota idle_ttl_s durability spill priority select on_partition "
                       "failover_after_s replicas tenant",
                       false, &body, err) < 0)
        return GB_STEP_ERROR;
    placing = calloc(1, sizeof(*placing));
    r = placing ? read_body(body, placing, err)
                : gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
    if (r == 0)
        r = gb_session_fields_check(body, err);
    json_decref(body);
    if (r < 0 || gb_fleet_needed(request, err) < 0) {
        free(placing ? placing->body : NULL);
        free(placing);
        return GB_STEP_ERROR;
    }
    placing->request = request;
    placing->fleet = gb_api_of(request)->fleet;
    placing->place.network = *gb_redirect_network(request);
    placing->place.ask.done = placed;
    placing->asked = &placing->place.ask;
    request->state = placing;
    request->state_free = placing_free;
    request->resume = resume;
    request->deadline_ns = 0;
    gb_fleet_place(placing->fleet, &placing->place);
    return GB_STEP_WAIT;
}
