/* Requests about registered sessions of the fleet: listing and finding them, placing a new session, taking over or
 * deleting one whose node is away, and tenants. The directory decides; this node only asks. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/auth.h"
#include "api/context.h"
#include "api/fleet/ask.h"
#include "api/fleet/own.h"
#include "api/pipeline/async.h"
#include "api/pipeline/hook.h"
#include "api/pipeline/list.h"
#include "api/pipeline/redirect.h"
#include "api/reply.h"
#include "api/request/body.h"
#include "api/request/query.h"
#include "api/resources/sessions.h"
#include "base/container.h"
#include "fleet/replica/replica.h"

/* --- registered sessions ------------------------------------------------------------------------------------------ */

/* --- all ---------------------------------------------------------------------------------------------------------- */

static void render_entry(struct gb_json_writer *out, const struct gb_fleet_session *session) {
    gb_json_put_string(out, "name", session->name.s);
    gb_json_put_string(out, "node", session->node.s);
    gb_json_put_u64(out, "epoch", session->epoch);
    gb_json_put_string(out, "on_partition", gb_on_partition_word(session->on_partition));
    gb_json_put_raw(out, "labels", session->labels[0] != '\0' ? session->labels : "{}");
    gb_render_owned(out, session);
}

static enum gb_step reply_list(struct gb_http_request *request, struct gb_http_response *response,
                               struct gb_error *err) {
    const struct gb_asking *asking = request->state;
    const struct gb_fleet_sessions *sessions = &asking->of.sessions;
    struct gb_json_writer out = {0};
    bool more;
    size_t i;

    gb_render_list_open(&out);
    for (i = 0; i < sessions->count; i++) {
        gb_json_open(&out, NULL, '{');
        render_entry(&out, &sessions->items[i]);
        gb_json_open(&out, "quota", '{');
        gb_json_put_limit(&out, "bytes", sessions->items[i].quota_bytes);
        gb_json_close(&out, '}');
        gb_json_close(&out, '}');
    }
    more = sessions->more && sessions->count > 0;
    return gb_list_reply(request, &out, more ? sessions->items[sessions->count - 1].name.s : NULL, response, err);
}

enum gb_step gb_api_fleet_sessions(struct gb_http_request *request, struct gb_http_response *response,
                                   struct gb_error *err) {
    struct gb_name after = {""};
    struct gb_name prefix = {""};
    struct gb_name node = {""};
    unsigned n;
    struct gb_asking *asking;

    if (gb_query_name(request, "node", &node, err) < 0 || gb_query_name(request, "prefix", &prefix, err) < 0 ||
        gb_query_name(request, "cursor", &after, err) < 0 || gb_query_limit(request, &n, err) < 0 ||
        gb_fleet_needed(request, err) < 0)
        return GB_STEP_ERROR;
    if (after.s[0] && strncmp(after.s, prefix.s, strlen(prefix.s)) != 0) {
        gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the cursor is of a list with another prefix; begin without one");
        return GB_STEP_ERROR;
    }
    asking = gb_asking_begin(request, reply_list, err);
    if (!asking)
        return GB_STEP_ERROR;
    asking->kind = GB_ASKING_SESSIONS;
    asking->of.sessions.after = after;
    asking->of.sessions.prefix = prefix;
    asking->of.sessions.node = node;
    asking->of.sessions.limit = n;
    gb_fleet_list_sessions(asking->fleet, &asking->of.sessions);
    return gb_asking_wait(request, response, err);
}

/* --- where one is ------------------------------------------------------------------------------------------------- */

static enum gb_step reply_where(const struct gb_fleet_find *find, const char *base, struct gb_http_response *response,
                                struct gb_error *err) {
    struct gb_json_writer out = {0};
    char url[GB_FLEET_URL_SIZE + GB_NAME_MAX + 16];

    gb_json_open(&out, NULL, '{');
    render_entry(&out, &find->session);
    if (base) {
        snprintf(url, sizeof(url), "%s/v1/sessions/%s", base, find->session.name.s);
        gb_json_put_untrusted(&out, "url", url, SIZE_MAX);
    } else {
        gb_json_put_null(&out, "url");
    }
    gb_json_put_bool(&out, "owner_alive", find->owner.alive);
    gb_json_put_u64(&out, "absent_s", find->absent_s);
    gb_json_put_bool(&out, "stale", find->stale);
    gb_json_close(&out, '}');
    return gb_reply_json(&out, 200, response, err);
}

static enum gb_step found(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    const struct gb_asking *asking = request->state;
    const struct gb_fleet_find *find = &asking->of.find;

    return reply_where(find, gb_fleet_url_on(&find->owner, gb_redirect_network(request)), response, err);
}

/* A session that is registered here, and whose owner is certain, needs no directory. */
static bool is_here(const struct gb_http_request *request, const struct gb_name *name, struct gb_fleet_find *find) {
    struct gb_api *api = gb_api_of(request);

    find->owner.alive = true;
    return !gb_fleet_owner_is_uncertain(api->fleet, name->s) && gb_fleet_session(api, name, &find->session);
}

enum gb_step gb_api_fleet_session_get(struct gb_http_request *request, struct gb_http_response *response,
                                      struct gb_error *err) {
    struct gb_fleet_find here = {.stale = false};
    struct gb_asking *asking;
    struct gb_name name;

    if (gb_param_name(request, 0, "session name", &name, err) < 0 ||
        gb_api_permit(request, GB_SCOPE_VERIFY, name.s, err) < 0 || gb_fleet_needed(request, err) < 0)
        return GB_STEP_ERROR;
    if (is_here(request, &name, &here))
        return reply_where(&here, gb_fleet_own_url(gb_api_of(request)->fleet, gb_redirect_network(request)), response,
                           err);
    asking = gb_asking_begin(request, found, err);
    if (!asking)
        return GB_STEP_ERROR;
    if (gb_fleet_find(asking->fleet, &name, false, &asking->of.find))
        atomic_store(&asking->done, true);
    return gb_asking_wait(request, response, err);
}

/* --- a new session's node ----------------------------------------------------------------------------------------- */

/* POST /v1/fleet/sessions: makes a session on a node that has room for it. The chosen nodes are asked one after the
 * other, as a client would ask them, until one makes it. */

struct placing {
    struct gb_http_request *request;
    struct gb_fleet *fleet;
    struct gb_fleet_ask *asked; /* the open one of the three below */
    struct gb_fleet_place place;
    struct gb_fleet_call call;
    struct gb_fleet_find find;
    struct gb_name name;
    char *body;    /* sent to each node; of json_dumps */
    size_t at;     /* the index in place.nodes of the node that is asked */
    char why[256]; /* why the nodes asked so far did not make it */
    size_t why_len;
    bool intends;     /* the key's intent is being written; then the first node is asked */
    size_t silent;    /* how many of these nodes got no answer from the directory */
    _Atomic int done; /* counts answers */
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

static void place_found(struct gb_fleet_ask *ask) {
    wake(gb_container_of(ask, struct placing, find.ask));
}

static void placing_free(void *state) {
    struct placing *placing = state;

    if (placing->asked)
        gb_fleet_cancel(placing->fleet, placing->asked);
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

/* Passes on the node's refusal: any other node would refuse too. */
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

/* Whether gpubufd has refused. Any other answer is from another program at that address, or from a proxy. */
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

/* The tenant's limit refuses the session at every node. */
static bool lacks_quota(const struct gb_fleet_call *call) {
    return call->status == 507 && refused_with(call, GB_ERR_TENANT_QUOTA_EXCEEDED);
}

/* Whether another node may make it; notes why this one did not. */
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
    placing->find.ask.done = place_found;
    placing->asked = &placing->find.ask;
    if (gb_fleet_find(placing->fleet, &placing->name, false, &placing->find))
        return reply_exists(placing, response, err);
    return GB_STEP_WAIT;
}

/* The intent is stored first: a node may make the session even if this process ends before the answer. */
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

/* --- sessions of nodes that are away ------------------------------------------------------------------------------ */

/* An operator has this node take such a session over, or deletes it. */

/* --- taking over -------------------------------------------------------------------------------------------------- */

/* A malformed body is refused even outside of a fleet. */
static int read_take(const struct gb_http_request *request, bool *ret_empty, struct gb_error *err) {
    bool force = false;
    json_t *body;
    int r;

    if (gb_body_object(request, "force empty", true, &body, err) < 0)
        return -1;
    r = gb_json_bool(body, "force", &force, err);
    if (r >= 0)
        r = gb_json_bool(body, "empty", ret_empty, err);
    json_decref(body);
    if (r < 0)
        return -1;
    if (force)
        return gb_fleet_needed(request, err);
    return gb_error_set(
        err, GB_ERR_INVALID_ARGUMENT,
        "'force' must be true: the session begins anew here, with the copies of its sealed buffers that this node has, "
        "and what its former node still has of it is set aside there when that comes back");
}

/* The session begins with the copies that this node has. */
static enum gb_step take_copies(struct gb_http_request *request, const struct gb_name *session,
                                struct gb_http_response *response, struct gb_error *err) {
    struct gb_session_call *call = gb_async_begin(request, sizeof(*call), err);

    if (!call)
        return GB_STEP_ERROR;
    gb_replicas_take(gb_api_of(request)->replicas, session, call);
    return gb_async_end(request, response, gb_session_reply, 0, err);
}

enum gb_step gb_api_fleet_session_take(struct gb_http_request *request, struct gb_http_response *response,
                                       struct gb_error *err) {
    struct gb_session_params params = {.has_labels = false};
    bool empty = false;

    if (gb_param_name(request, 0, "session name", &params.name, err) < 0 || read_take(request, &empty, err) < 0)
        return GB_STEP_ERROR;
    if (!empty && gb_replicas_have(gb_api_of(request)->replicas, &params.name))
        return take_copies(request, &params.name, response, err);
    return gb_register_session(request, response, &params, empty ? GB_REGISTER_TAKE_EMPTY : GB_REGISTER_TAKE,
                               gb_session_reply, err);
}

/* --- deleting ----------------------------------------------------------------------------------------------------- */

static enum gb_step reply_empty(struct gb_http_request *request, struct gb_http_response *response,
                                struct gb_error *err) {
    return gb_reply_nothing(request, NULL, response, err);
}

enum gb_step gb_api_fleet_session_delete(struct gb_http_request *request, struct gb_http_response *response,
                                         struct gb_error *err) {
    struct gb_asking *asking;
    struct gb_name name;
    bool force = false;

    if (gb_param_name(request, 0, "session name", &name, err) < 0 || gb_query_flag(request, "force", &force, err) < 0)
        return GB_STEP_ERROR;
    if (!force) {
        gb_error_set(
            err, GB_ERR_INVALID_ARGUMENT,
            "force=true is needed: the session is deleted while its node is away; DELETE /v1/sessions/%s deletes "
            "it where its node is there",
            name.s);
        return GB_STEP_ERROR;
    }
    asking = gb_asking_begin(request, reply_empty, err);
    if (!asking)
        return GB_STEP_ERROR;
    asking->of.tombstone.session = name;
    gb_fleet_tombstone(asking->fleet, &asking->of.tombstone);
    return gb_asking_wait(request, response, err);
}

/* --- tenants ------------------------------------------------------------------------------------------------------ */

static void render(struct gb_json_writer *out, const struct gb_fleet_tenant *tenant) {
    gb_json_open(out, NULL, '{');
    gb_json_put_string(out, "name", tenant->name.s);
    gb_json_put_limit(out, "limit_bytes", tenant->limit_bytes);
    gb_json_put_u64(out, "used_bytes", tenant->used_bytes);
    gb_json_put_u64(out, "sessions", tenant->sessions);
    gb_json_close(out, '}');
}

static enum gb_step reply_tenants(struct gb_http_request *request, struct gb_http_response *response,
                                  struct gb_error *err) {
    const struct gb_fleet_tenants *tenants = &((struct gb_asking *)request->state)->of.tenants;
    struct gb_json_writer out = {0};
    size_t i;

    gb_json_open(&out, NULL, '{');
    gb_json_open(&out, "items", '[');
    for (i = 0; i < tenants->count; i++)
        render(&out, &tenants->items[i]);
    gb_json_close(&out, ']');
    gb_json_close(&out, '}');
    return gb_reply_json(&out, 200, response, err);
}

static enum gb_step reply_one(struct gb_http_request *request, struct gb_http_response *response,
                              struct gb_error *err) {
    struct gb_json_writer out = {0};

    render(&out, &((struct gb_asking *)request->state)->of.tenants.items[0]);
    return gb_reply_json(&out, 200, response, err);
}

/* only NULL: all tenants. */
static enum gb_step list(struct gb_http_request *request, const struct gb_name *only, gb_http_handler *next,
                         struct gb_http_response *response, struct gb_error *err) {
    struct gb_asking *asking = gb_asking_begin(request, next, err);

    if (!asking)
        return GB_STEP_ERROR;
    asking->kind = GB_ASKING_TENANTS;
    if (only)
        asking->of.tenants.only = *only;
    gb_fleet_list_tenants(asking->fleet, &asking->of.tenants);
    return gb_asking_wait(request, response, err);
}

enum gb_step gb_api_fleet_tenants(struct gb_http_request *request, struct gb_http_response *response,
                                  struct gb_error *err) {
    return list(request, NULL, reply_tenants, response, err);
}

enum gb_step gb_api_fleet_tenant_get(struct gb_http_request *request, struct gb_http_response *response,
                                     struct gb_error *err) {
    struct gb_name name;

    if (gb_param_name(request, 0, "tenant name", &name, err) < 0)
        return GB_STEP_ERROR;
    return list(request, &name, reply_one, response, err);
}

/* --- changes ------------------------------------------------------------------------------------------------------ */

static enum gb_step set(struct gb_http_request *request, const struct gb_fleet_tenant_set *change,
                        gb_http_handler *next, struct gb_http_response *response, struct gb_error *err) {
    struct gb_asking *asking = gb_asking_begin(request, next, err);

    if (!asking)
        return GB_STEP_ERROR;
    asking->of.tenant.name = change->name;
    asking->of.tenant.limit_bytes = change->limit_bytes;
    asking->of.tenant.remove = change->remove;
    gb_fleet_set_tenant(asking->fleet, &asking->of.tenant);
    return gb_asking_wait(request, response, err);
}

static enum gb_step made(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct gb_name name;

    if (gb_param_name(request, 0, "tenant name", &name, err) < 0)
        return GB_STEP_ERROR;
    return list(request, &name, reply_one, response, err);
}

/* null or absent: no limit. */
static int read_limit(const struct gb_http_request *request, uint64_t *ret, struct gb_error *err) {
    json_t *body;
    int r = 0;

    *ret = GB_UNLIMITED;
    if (gb_body_object(request, "limit_bytes", true, &body, err) < 0)
        return -1;
    if (json_object_get(body, "limit_bytes") && !json_is_null(json_object_get(body, "limit_bytes")))
        r = gb_json_u64(body, "limit_bytes", ret, err);
    json_decref(body);
    return r < 0 ? -1 : 0;
}

enum gb_step gb_api_fleet_tenant_put(struct gb_http_request *request, struct gb_http_response *response,
                                     struct gb_error *err) {
    struct gb_fleet_tenant_set change = {.remove = false};

    if (gb_param_name(request, 0, "tenant name", &change.name, err) < 0 ||
        read_limit(request, &change.limit_bytes, err) < 0)
        return GB_STEP_ERROR;
    return set(request, &change, made, response, err);
}

enum gb_step gb_api_fleet_tenant_delete(struct gb_http_request *request, struct gb_http_response *response,
                                        struct gb_error *err) {
    struct gb_fleet_tenant_set change = {.remove = true};

    if (gb_param_name(request, 0, "tenant name", &change.name, err) < 0)
        return GB_STEP_ERROR;
    return set(request, &change, reply_empty, response, err);
}
