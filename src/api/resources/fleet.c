/* /v1/fleet, its nodes, and the list of targets for Prometheus. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "api/middleware/async.h"
#include "api/middleware/redirect.h"
#include "api/reply/render.h"
#include "api/reply/reply_json.h"
#include "api/request/body.h"
#include "api/request/query.h"
#include "api/resources/fleet_ask.h"
#include "api/resources/fleet_orders.h"
#include "api/resources/fleet_self.h"
#include "api/route.h"
#include "base/clock.h"

/* --- this node ---------------------------------------------------------------------------------------------------- */

static void render_state(struct gb_json_writer *out, struct gb_api *api) {
    const struct gb_api_fleet *is = &api->fleet_is;
    struct gb_fleet_stat stat;
    struct gb_fleet_node node;
    char uuid[24];
    size_t i;

    gb_fleet_stat(api->fleet, &stat);
    gb_fleet_self(api, &node);
    snprintf(uuid, sizeof(uuid), "%" PRIu64, is->uuid);
    gb_json_put_string(out, "state", gb_fleet_state_name(stat.state));
    gb_json_put_time(out, "since", gb_wall_us() - (int64_t)((gb_clock_ns() - stat.since_ns) / 1000));
    if (stat.why.code != GB_OK)
        gb_json_put_untrusted(out, "why", stat.why.detail, SIZE_MAX);
    else
        gb_json_put_null(out, "why");
    gb_json_put_string(out, "fleet", is->name);
    gb_json_put_string(out, "node", is->node.s);
    gb_json_put_string(out, "uuid", uuid);
    gb_json_put_u64(out, "incarnation", stat.incarnation);
    if (stat.fleet_uuid[0] != '\0')
        gb_json_put_untrusted(out, "fleet_uuid", stat.fleet_uuid, SIZE_MAX);
    else
        gb_json_put_null(out, "fleet_uuid");
    if (stat.cluster_id[0] != '\0')
        gb_json_put_string(out, "cluster_id", stat.cluster_id);
    else
        gb_json_put_null(out, "cluster_id");
    gb_json_open(out, "urls", '{');
    for (i = 0; i < node.url_count; i++)
        gb_json_put_string(out, node.urls[i].network.s, node.urls[i].url);
    gb_json_close(out, '}');
    gb_json_put_raw(out, "labels", is->labels);
    gb_json_put_bool(out, "draining", stat.draining);
    gb_json_put_bool(out, "hub", api->hub != NULL);
}

enum gb_step gb_api_fleet_get(struct gb_http_request *request, struct gb_http_response *response,
                              struct gb_error *err) {
    struct gb_api *api = gb_api_of(request);
    struct gb_json_writer out = {0};

    gb_json_open(&out, NULL, '{');
    if (api->fleet)
        render_state(&out, api);
    else
        gb_json_put_string(&out, "state", "none");
    gb_json_close(&out, '}');
    return gb_reply_json(&out, 200, response, err);
}

/* --- nodes -------------------------------------------------------------------------------------------------------- */

static const struct gb_fleet_nodes *nodes_of(const struct gb_http_request *request) {
    const struct gb_asking *asking = request->state;

    return &asking->of.nodes;
}

static enum gb_step reply_nodes(struct gb_http_request *request, struct gb_http_response *response,
                                struct gb_error *err) {
    const struct gb_fleet_nodes *nodes = nodes_of(request);
    struct gb_json_writer out = {0};
    size_t i;

    gb_render_list_open(&out);
    for (i = 0; i < nodes->count; i++)
        gb_render_node(&out, NULL, &nodes->items[i]);
    gb_json_close(&out, ']');
    gb_json_close(&out, '}');
    return gb_reply_json(&out, 200, response, err);
}

enum gb_step gb_api_fleet_nodes(struct gb_http_request *request, struct gb_http_response *response,
                                struct gb_error *err) {
    return gb_ask_nodes(request, reply_nodes, response, err);
}

static enum gb_step reply_node(struct gb_http_request *request, struct gb_http_response *response,
                               struct gb_error *err) {
    const struct gb_fleet_node *node;
    struct gb_json_writer out = {0};
    struct gb_name name;

    if (gb_param_name(request, 0, "node name", &name, err) < 0)
        return GB_STEP_ERROR;
    node = gb_fleet_pick(nodes_of(request), &name, err);
    if (!node)
        return GB_STEP_ERROR;
    gb_render_node(&out, NULL, node);
    return gb_reply_json(&out, 200, response, err);
}

/* A name that is none is refused before anything is asked. */
static int read_node(const struct gb_http_request *request, struct gb_name *ret, struct gb_error *err) {
    return gb_param_name(request, 0, "node name", ret, err) < 0 ? -1 : gb_fleet_needed(request, err);
}

enum gb_step gb_api_fleet_node_get(struct gb_http_request *request, struct gb_http_response *response,
                                   struct gb_error *err) {
    struct gb_name name;

    return read_node(request, &name, err) < 0 ? GB_STEP_ERROR : gb_ask_nodes(request, reply_node, response, err);
}

static enum gb_step forgotten(struct gb_http_request *request, struct gb_http_response *response,
                              struct gb_error *err) {
    return gb_reply_nothing(request, NULL, response, err);
}

enum gb_step gb_api_fleet_node_delete(struct gb_http_request *request, struct gb_http_response *response,
                                      struct gb_error *err) {
    struct gb_asking *asking;
    struct gb_name name;

    if (read_node(request, &name, err) < 0)
        return GB_STEP_ERROR;
    asking = gb_asking_begin(request, forgotten, err);
    if (!asking)
        return GB_STEP_ERROR;
    asking->of.forget.node = name;
    gb_fleet_forget(asking->fleet, &asking->of.forget);
    return gb_asking_wait(request, response, err);
}

/* --- drain -------------------------------------------------------------------------------------------------------- */

static enum gb_step send(struct gb_http_request *request, enum gb_order_what what, struct gb_http_response *response,
                         struct gb_error *err) {
    struct gb_fleet_order order = {.what = what};

    if (gb_param_name(request, 0, "node name", &order.node, err) < 0)
        return GB_STEP_ERROR;
    return gb_send_to_node(request, response, &order, err);
}

static enum gb_step send_drain(struct gb_http_request *request, struct gb_http_response *response,
                               struct gb_error *err) {
    return send(request, GB_ORDER_DRAIN, response, err);
}

static enum gb_step send_undrain(struct gb_http_request *request, struct gb_http_response *response,
                                 struct gb_error *err) {
    return send(request, GB_ORDER_UNDRAIN, response, err);
}

static enum gb_step drain(struct gb_http_request *request, bool draining, struct gb_http_response *response,
                          struct gb_error *err) {
    struct gb_api *api = gb_api_of(request);
    struct gb_json_writer out = {0};
    struct gb_fleet_node self;
    struct gb_name name;

    if (gb_body_no_fields(request, err) < 0 || read_node(request, &name, err) < 0)
        return GB_STEP_ERROR;
    if (!gb_name_equal(&name, &api->fleet_is.node) && request->aside[GB_ASIDE_VIA].s) {
        gb_error_set(err, GB_ERR_OWNER_UNKNOWN, "the request was sent here for the node \"%s\", and this is \"%s\"",
                     name.s, api->fleet_is.node.s);
        return GB_STEP_ERROR;
    }
    if (!gb_name_equal(&name, &api->fleet_is.node))
        return gb_ask_nodes(request, draining ? send_drain : send_undrain, response, err);
    gb_fleet_set_draining(api->fleet, draining);
    gb_fleet_self(api, &self);
    gb_render_node(&out, NULL, &self);
    return gb_reply_json(&out, 200, response, err);
}

enum gb_step gb_api_fleet_node_drain(struct gb_http_request *request, struct gb_http_response *response,
                                     struct gb_error *err) {
    return drain(request, true, response, err);
}

enum gb_step gb_api_fleet_node_undrain(struct gb_http_request *request, struct gb_http_response *response,
                                       struct gb_error *err) {
    return drain(request, false, response, err);
}

/* --- targets ------------------------------------------------------------------------------------------------------ */

/* The labels of a node as further members. One that no daemon would give itself is left out: Prometheus refuses the
 * whole list for a name that is none, and takes some names for instructions. */
static void render_labels(struct gb_json_writer *out, const char *labels) {
    json_t *root = json_loads(labels, 0, NULL);
    const char *key;
    json_t *value;

    json_object_foreach(root, key, value) {
        if (gb_fleet_label_key_is_valid(key, strlen(key)))
            gb_json_put_untrusted(out, key, json_string_value(value), SIZE_MAX);
    }
    json_decref(root);
}

/* "http://HOST:PORT" as Prometheus wants it: the host and the port, which may stand for the scheme's own. */
static void render_target(struct gb_json_writer *out, const struct gb_fleet_node *node, const char *url) {
    bool secure = strncmp(url, "https://", 8) == 0;
    const char *host = strstr(url, "://") + 3;
    char text[GB_FLEET_URL_SIZE + 8];
    size_t n = strcspn(host, "/");
    const char *last = host[0] == '[' ? strchr(host, ']') : host;
    bool has_port = last && strchr(last, ':') && strchr(last, ':') < host + n;

    snprintf(text, sizeof(text), "%.*s%s", (int)n, host, has_port ? "" : secure ? ":443" : ":80");
    gb_json_open(out, NULL, '{');
    gb_json_open(out, "targets", '[');
    gb_json_put_string(out, NULL, text);
    gb_json_close(out, ']');
    gb_json_open(out, "labels", '{');
    gb_json_put_string(out, "node", node->name.s);
    gb_json_put_untrusted(out, "version", node->version, SIZE_MAX);
    if (secure)
        gb_json_put_string(out, "__scheme__", "https");
    render_labels(out, node->labels);
    gb_json_close(out, '}');
    gb_json_close(out, '}');
}

static enum gb_step reply_targets(struct gb_http_request *request, struct gb_http_response *response,
                                  struct gb_error *err) {
    const struct gb_name *network = gb_redirect_network(request);
    const struct gb_fleet_nodes *nodes = nodes_of(request);
    struct gb_json_writer out = {0};
    size_t i;

    gb_json_open(&out, NULL, '[');
    for (i = 0; i < nodes->count; i++) {
        const char *url = gb_fleet_url_on(&nodes->items[i], network);

        if (url && strstr(url, "://"))
            render_target(&out, &nodes->items[i], url);
    }
    gb_json_close(&out, ']');
    return gb_reply_json(&out, 200, response, err);
}

enum gb_step gb_api_fleet_targets(struct gb_http_request *request, struct gb_http_response *response,
                                  struct gb_error *err) {
    return gb_ask_nodes(request, reply_targets, response, err);
}
