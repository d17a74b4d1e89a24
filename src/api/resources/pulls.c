/* POST /v1/sessions/{session}/buffers/{buffer}/copy with a URL as its source: a buffer of another daemon is pulled. */
#include "api/resources/pulls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/auth.h"
#include "api/context.h"
#include "api/middleware/async.h"
#include "api/middleware/conditional.h"
#include "api/middleware/digest_set.h"
#include "api/middleware/redirect.h"
#include "api/reply/render.h"
#include "api/request/body.h"
#include "api/request/buffer_fields.h"
#include "api/request/path_params.h"
#include "api/request/wait.h"
#include "api/resources/fleet_ask.h"
#include "api/resources/pull_nodes.h"
#include "api/resources/writes.h"
#include "pull/pull.h"

#define SOURCE_FIELDS "url token if_match parts digest"
#define TOKEN_MAX 1024

bool gb_pull_is_asked(const json_t *body) {
    const json_t *from = json_object_get(body, "from");

    return json_is_object(from) || (json_is_string(from) && gb_pull_url_is(json_string_value(from)));
}

/* --- the body ----------------------------------------------------------------------------------------------------- */

/* It goes into a line of a request as it is. */
static bool is_printable(const char *text) {
    for (; *text; text++)
        if ((unsigned char)*text < '!' || (unsigned char)*text > '~')
            return false;
    return true;
}

static int read_token(const json_t *from, struct gb_pull_params *ret, struct gb_error *err) {
    int r = gb_json_string(from, "token", &ret->token, err);

    if (r <= 0)
        return r;
    if (ret->token[0] != '\0' && strlen(ret->token) <= TOKEN_MAX && is_printable(ret->token))
        return 0;
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the field 'token' must be the secret of a token of the source");
}

static int read_parts(const json_t *from, struct gb_pull_params *ret, struct gb_error *err) {
    uint64_t parts;
    int r = gb_json_u64(from, "parts", &parts, err);

    if (r <= 0)
        return r;
    ret->connections = parts <= GB_PULL_CONNECTIONS_MAX ? (unsigned)parts : 0;
    if (ret->connections > 0)
        return 0;
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the field 'parts' must be 1 to %d", GB_PULL_CONNECTIONS_MAX);
}

static int read_from(const json_t *body, struct gb_pull_params *ret, struct gb_error *err) {
    const json_t *from = json_object_get(body, "from");
    const char *url;
    int r;

    if (json_is_string(from))
        return gb_pull_url_read(json_string_value(from), &ret->from, err);
    if (gb_json_known(from, "from", SOURCE_FIELDS, err) < 0)
        return -1;
    r = gb_json_string(from, "url", &url, err);
    if (r == 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "give 'url' within 'from': the URL of the buffer to copy");
    if (r < 0 || gb_pull_url_read(url, &ret->from, err) < 0)
        return -1;
    if (read_token(from, ret, err) < 0 || gb_action_read_tag(from, "if_match", &ret->if_match, err) < 0 ||
        read_parts(from, ret, err) < 0)
        return -1;
    return gb_digest_set_read(from, &ret->digests, err);
}

/* The condition on the source stands in the body if `from` is a text. */
static int read_condition(const json_t *body, struct gb_pull_params *ret, struct gb_error *err) {
    int r;

    if (!json_is_object(json_object_get(body, "from"))) {
        r = gb_action_read_tag(body, "from_if_match", &ret->if_match, err);
        ret->tag_is_condition = r > 0;
        return r < 0 ? -1 : 0;
    }
    if (json_object_get(body, "from_if_match"))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "give 'if_match' within 'from', and 'from_if_match' where 'from' is a text");
    return 0;
}

/* All of a source is pulled, into memory of its own. */
static int refuse_parts(const json_t *body, struct gb_error *err) {
    static const char *const fields[] = {"from_offset", "offset", "bytes", "in_place", "side"};
    size_t i;

    for (i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        if (json_object_get(body, fields[i]))
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                                "the field '%s' does not go with a URL or a session of another node: all bytes of the "
                                "source are copied, into new memory",
                                fields[i]);
    return 0;
}

/* What the target is to be. */
static int read_target(const struct gb_http_request *request, const json_t *body, struct gb_pull_params *ret,
                       struct gb_error *err) {
    struct gb_buffer_params *to = &ret->to;

    to->kind = GB_KIND_DEVICE;
    strcpy(to->stream.s, "default");
    ret->wait_ms = gb_http_prefer_wait(request, 0, GB_ALLOC_WAIT_MAX_S, NULL) * 1000;
    if (gb_path_names(request, "buffer name", &to->session, &to->name, err) < 0 || refuse_parts(body, err) < 0)
        return -1;
    return gb_buffer_memory_read(gb_api_of(request), body, to, err);
}

static int read(const struct gb_http_request *request, const json_t *body, struct gb_pull_params *ret,
                struct gb_error *err) {
    if (read_from(body, ret, err) < 0 || read_condition(body, ret, err) < 0)
        return -1;
    return read_target(request, body, ret, err);
}

/* --- the reply ---------------------------------------------------------------------------------------------------- */

static void render_pulled(struct gb_json_writer *out, const void *result) {
    const struct gb_pull_numbers *numbers = &((const struct gb_pull_call *)result)->numbers;

    gb_json_put_string(out, "way", "pull");
    gb_json_open(out, "pulled", '{');
    gb_json_put_untrusted(out, "etag", numbers->tag, SIZE_MAX);
    gb_json_put_u64(out, "generation", numbers->generation);
    gb_json_put_u64(out, "bytes", numbers->bytes);
    gb_json_put_u64(out, "received_bytes", numbers->received_bytes);
    gb_json_put_u64(out, "parts", numbers->connections);
    gb_json_put_u64(out, "resumed", numbers->resumed);
    gb_json_put_u64(out, "begun_again", numbers->begun_again);
    gb_json_put_u64(out, "failovers", numbers->failovers);
    gb_json_put_bool(out, "verified", numbers->verified);
    gb_json_close(out, '}');
}

static enum gb_step reply_pulled(struct gb_http_request *request, const void *result, struct gb_http_response *response,
                                 struct gb_error *err) {
    const struct gb_pull_call *call = result;

    return gb_reply_written(request, &call->written, render_pulled, response, err);
}

static enum gb_step start(struct gb_http_request *request, struct gb_pull_params *params,
                          struct gb_http_response *response, struct gb_error *err) {
    struct gb_conditions *conditions;
    struct gb_pull_call *call = NULL;

    if (gb_conditions_read(request, &conditions, err) == 0) {
        call = gb_async_begin(request, sizeof(*call), err);
        if (!call)
            gb_conditions_free(conditions);
    }
    if (!call) {
        gb_pull_nodes_drop(params);
        return GB_STEP_ERROR;
    }
    params->check = gb_conditions_buffer_check(conditions);
    gb_pull_start(gb_api_of(request)->pulls, params, call);
    return gb_async_end(request, response, reply_pulled, 0, err);
}

/* --- sources that options name ------------------------------------------------------------------------------------ */

static bool is_listed(const struct gb_api *api, const char *origin) {
    size_t i;

    for (i = 0; i < api->pull_from_count; i++)
        if (strcmp(api->pull_from[i], origin) == 0)
            return true;
    return false;
}

static enum gb_step not_permitted(const struct gb_api *api, const char *origin, struct gb_error *err) {
    gb_error_set(err, GB_ERR_SOURCE_NOT_PERMITTED, "this daemon may not copy from %s: --pull-from %s permits it%s",
                 origin, origin, api->fleet ? "; no node of its fleet has that URL" : "");
    return GB_STEP_ERROR;
}

/* --- nodes of the fleet ------------------------------------------------------------------------------------------- */

static enum gb_step start_at_node(struct gb_http_request *request, const struct gb_fleet_nodes *nodes,
                                  struct gb_pull_params *params, struct gb_http_response *response,
                                  struct gb_error *err) {
    const struct gb_fleet_node *node = gb_pull_node_at(nodes, params->from.origin);
    enum gb_step step = GB_STEP_ERROR;
    char **permitted;

    if (!node)
        return not_permitted(gb_api_of(request), params->from.origin, err);
    permitted = gb_pull_origins(gb_api_of(request), nodes, &params->permitted_count);
    if (!permitted) {
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
        return GB_STEP_ERROR;
    }
    params->permitted = (const char *const *)permitted;
    if (gb_pull_nodes_take(request, &node->name, false, params, err) == 0)
        step = start(request, params, response, err);
    free(permitted);
    return step;
}

static enum gb_step known(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct gb_asking *asking = request->state;
    struct gb_fleet_nodes nodes = asking->of.nodes;
    struct gb_pull_params params = {.wait_ms = 0};
    enum gb_step step = GB_STEP_ERROR;
    json_t *body;

    asking->of.nodes.items = NULL;
    gb_asking_end(request);
    if (gb_body_object(request, GB_COPY_OR_PULL_FIELDS, false, &body, err) == 0) {
        if (read(request, body, &params, err) == 0)
            step = start_at_node(request, &nodes, &params, response, err);
        json_decref(body);
    }
    free(nodes.items);
    return step;
}

/* --- sessions of other nodes -------------------------------------------------------------------------------------- */

/* The names of the source. Returns 0 or -1. */
static int read_names(const json_t *body, struct gb_pull_params *ret, struct gb_error *err) {
    struct gb_device_write_params names = {.copy = true, .session = ret->to.session};

    if (gb_action_read_write(body, &names, err) < 0 || read_condition(body, ret, err) < 0)
        return -1;
    ret->from.session = names.from_session;
    ret->from.buffer = names.from;
    return 0;
}

/* The node that is asked: while the owner is away one that has copies, which are of sealed buffers. */
static const struct gb_fleet_node *at_work(const struct gb_fleet_find *find) {
    return !find->owner.alive && !find->stale && find->stand.name.s[0] != '\0' ? &find->stand : &find->owner;
}

static enum gb_step start_at_owner(struct gb_http_request *request, const struct gb_fleet_find *find,
                                   const json_t *body, struct gb_http_response *response, struct gb_error *err) {
    const struct gb_fleet_node *node = at_work(find);
    const struct gb_name *network = gb_pull_network(request, node);
    const char *url = gb_fleet_url_on(&find->owner, network);
    struct gb_pull_params params = {.permitted_count = 0};
    char owner[GB_PULL_ORIGIN_SIZE];
    const char *permitted = owner; /* to which another one redirects once it is there */
    enum gb_redirect_way way =
        gb_redirect_way_of(find, &gb_api_of(request)->fleet_is.node, network, &(struct gb_via){0}, false);

    if (read_target(request, body, &params, err) < 0 || read_names(body, &params, err) < 0)
        return GB_STEP_ERROR;
    if (way == GB_REDIRECT_ABSENT && node != &find->owner && gb_fleet_url_on(node, network))
        way = GB_REDIRECT_GO;
    if (way != GB_REDIRECT_GO)
        return gb_redirect_refuse(request, find, way, network, response, err);
    params.permitted = &permitted;
    params.permitted_count = url && gb_pull_origin_read(url, owner, NULL) == 0;
    if (gb_pull_origin_read(gb_fleet_url_on(node, network), params.from.origin, err) < 0 ||
        gb_pull_nodes_take(request, &node->name, true, &params, err) < 0)
        return GB_STEP_ERROR;
    return start(request, &params, response, err);
}

static enum gb_step found(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct gb_fleet_find find = ((struct gb_asking *)request->state)->of.find;
    enum gb_step step;
    json_t *body;

    gb_asking_end(request);
    if (gb_body_object(request, GB_COPY_FIELDS, false, &body, err) < 0)
        return GB_STEP_ERROR;
    step = start_at_owner(request, &find, body, response, err);
    json_decref(body);
    return step;
}

enum gb_step gb_api_buffer_pull_session(struct gb_http_request *request, const struct gb_name *session,
                                        struct gb_http_response *response, struct gb_error *err) {
    struct gb_asking *asking = gb_asking_begin(request, found, err);

    if (!asking)
        return GB_STEP_ERROR;
    if (gb_fleet_find(asking->fleet, session, false, &asking->of.find))
        atomic_store(&asking->done, true);
    return gb_asking_wait(request, response, err);
}

/* --- the handler -------------------------------------------------------------------------------------------------- */

enum gb_step gb_api_buffer_pull(struct gb_http_request *request, const json_t *body, struct gb_http_response *response,
                                struct gb_error *err) {
    struct gb_api *api = gb_api_of(request);
    struct gb_pull_params params = {.wait_ms = 0};

    if (read(request, body, &params, err) < 0)
        return GB_STEP_ERROR;
    if (api->pulls && is_listed(api, params.from.origin)) {
        params.permitted = api->pull_from;
        params.permitted_count = api->pull_from_count;
        return start(request, &params, response, err);
    }
    if (api->pulls && api->fleet)
        return gb_ask_nodes(request, known, response, err);
    return not_permitted(api, params.from.origin, err);
}
