/* Requests about the fleet and its nodes: this node's state, the list of nodes, draining, targets for Prometheus, the
 * numbers of all nodes, and requests that a hub relays. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/auth.h"
#include "api/context.h"
#include "api/fleet/ask.h"
#include "api/fleet/own.h"
#include "api/pipeline/async.h"
#include "api/pipeline/redirect.h"
#include "api/reply.h"
#include "api/request/body.h"
#include "api/request/query.h"
#include "base/clock.h"
#include "base/container.h"
#include "fleet/hub/hub.h"

/* --- the fleet ---------------------------------------------------------------------------------------------------- */

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

/* An invalid name is refused before the directory is asked. */
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

/* Adds the labels of a node. A label that no daemon gives itself is left out: Prometheus refuses the whole list for an
 * invalid name, and treats some names as instructions. */
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

/* Writes the host and the port of a URL, as Prometheus expects them. A missing port becomes the scheme's default. */
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

/* --- numbers of all nodes ----------------------------------------------------------------------------------------- */

/* GET /v1/fleet/stats asks each node for its numbers, and sums them. At most AT_ONCE nodes are asked at a time. */
#define AT_ONCE 16

/* The numbers, and where the answer of GET /v1/stats has them. */
static const struct {
    const char *name;
    const char *group;
    const char *member;
} numbers[] = {
    {"sessions", "sessions", "count"},       {"buffers", "buffers", "count"},
    {"buffer_bytes", "buffers", "bytes"},    {"lost_buffers", "buffers", "lost"},
    {"stored_buffers", "buffers", "stored"}, {"pinned_bytes", "pinned", "bytes"},
    {"uploads", "running", "uploads"},       {"downloads", "running", "downloads"},
    {"writes", "running", "writes"},         {"leases", "sharing", "leases"},
    {"allocations", "allocations", "count"}, {"allocation_failures", "allocations", "failures"},
};
#define NUMBERS (sizeof(numbers) / sizeof(numbers[0]))

struct asked {
    struct gb_fleet_call call;
    struct survey *survey;
    bool begun;
    atomic_bool done;
    const char *missing; /* static: why the node has no numbers; NULL: it has, or is being asked */
    uint64_t at_ns;      /* when its answer was read */
    uint64_t number[NUMBERS];
};

struct survey {
    struct gb_http_request *request;
    struct gb_fleet *fleet;
    struct gb_fleet_nodes nodes;
    struct asked *asked; /* by node */
    size_t next;
    size_t open;
    size_t left;
};

static void survey_free(void *state) {
    struct survey *survey = state;
    size_t i;

    for (i = 0; survey->asked && i < survey->nodes.count; i++) {
        if (survey->asked[i].begun)
            gb_fleet_cancel(survey->fleet, &survey->asked[i].call.ask);
        free(survey->asked[i].call.answer);
    }
    free(survey->asked);
    free(survey->nodes.items);
    free(survey);
}

/* --- one node ----------------------------------------------------------------------------------------------------- */

static void called(struct gb_fleet_ask *ask) {
    struct asked *asked = gb_container_of(ask, struct asked, call.ask);

    atomic_store(&asked->done, true);
    gb_http_wake(asked->survey->request);
}

/* Asks the node, or sets why it cannot be asked. */
static void ask_node(struct survey *survey, size_t i) {
    const struct gb_fleet_node *node = &survey->nodes.items[i];
    const char *base = gb_fleet_url_on(node, gb_redirect_network(survey->request));
    struct asked *asked = &survey->asked[i];
    char *url =
        base && node->alive ? gb_redirect_url(survey->request, base, &node->name, "GET", "/v1/stats", "") : NULL;

    asked->survey = survey;
    if (!url || strlen(url) >= sizeof(asked->call.url)) {
        asked->missing = !node->alive ? "not alive" : !base ? "no address in this network" : "no memory";
        free(url);
        survey->left--;
        return;
    }
    strcpy(asked->call.url, url);
    free(url);
    asked->call.method = "GET";
    asked->call.ask.done = called;
    asked->begun = true;
    survey->open++;
    gb_fleet_call(survey->fleet, &asked->call);
}

static void read_answer(struct asked *asked) {
    json_t *stats = asked->call.answer ? json_loadb(asked->call.answer, asked->call.bytes, 0, NULL) : NULL;
    size_t i;

    asked->at_ns = gb_clock_ns();
    if (asked->call.ask.error.code != GB_OK)
        asked->missing = "unreachable";
    else if (asked->call.status == 401 || asked->call.status == 403)
        asked->missing = "not permitted";
    else if (asked->call.status != 200 || !json_is_object(stats))
        asked->missing = "no valid answer";
    for (i = 0; i < NUMBERS && !asked->missing; i++) {
        json_int_t n = json_integer_value(json_object_get(json_object_get(stats, numbers[i].group), numbers[i].member));

        asked->number[i] = n > 0 ? (uint64_t)n : 0;
    }
    json_decref(stats);
    free(asked->call.answer);
    asked->call.answer = NULL;
}

/* --- all ---------------------------------------------------------------------------------------------------------- */

static void render_numbers(struct gb_json_writer *out, const char *key, const uint64_t *number) {
    size_t i;

    gb_json_open(out, key, '{');
    for (i = 0; i < NUMBERS; i++)
        gb_json_put_u64(out, numbers[i].name, number[i]);
    gb_json_close(out, '}');
}

static void render_missing(struct gb_json_writer *out, const struct survey *survey) {
    size_t i;

    gb_json_open(out, "missing", '[');
    for (i = 0; i < survey->nodes.count; i++) {
        const char *why = survey->asked[i].missing;

        if (!why && survey->asked[i].at_ns > 0)
            continue;
        gb_json_open(out, NULL, '{');
        gb_json_put_string(out, "node", survey->nodes.items[i].name.s);
        gb_json_put_string(out, "why", why ? why : "no answer in time");
        gb_json_close(out, '}');
    }
    gb_json_close(out, ']');
}

static enum gb_step reply(struct survey *survey, struct gb_http_response *response, struct gb_error *err) {
    struct gb_json_writer out = {0};
    uint64_t sums[NUMBERS] = {0};
    uint64_t now_ns = gb_clock_ns();
    size_t i;
    size_t k;

    gb_json_open(&out, NULL, '{');
    gb_json_open(&out, "nodes", '[');
    for (i = 0; i < survey->nodes.count; i++) {
        const struct asked *asked = &survey->asked[i];

        if (asked->missing || asked->at_ns == 0)
            continue;
        for (k = 0; k < NUMBERS; k++)
            sums[k] += asked->number[k];
        gb_json_open(&out, NULL, '{');
        gb_json_put_string(&out, "node", survey->nodes.items[i].name.s);
        gb_json_put_u64(&out, "age_s", (now_ns - asked->at_ns) / GB_NS_PER_S);
        render_numbers(&out, "stats", asked->number);
        gb_json_close(&out, '}');
    }
    gb_json_close(&out, ']');
    render_missing(&out, survey);
    render_numbers(&out, "sums", sums);
    gb_json_close(&out, '}');
    return gb_reply_json(&out, 200, response, err);
}

static enum gb_step resume(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct survey *survey = request->state;
    size_t i;

    for (i = 0; i < survey->next; i++) {
        struct asked *asked = &survey->asked[i];

        if (asked->at_ns > 0 || !asked->begun || !atomic_load(&asked->done))
            continue;
        read_answer(asked);
        survey->open--;
        survey->left--;
    }
    while (survey->next < survey->nodes.count && survey->open < AT_ONCE)
        ask_node(survey, survey->next++);
    return survey->left == 0 || request->timed_out ? reply(survey, response, err) : GB_STEP_WAIT;
}

static enum gb_step begin(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct gb_asking *asking = request->state;
    struct survey *survey = calloc(1, sizeof(*survey));

    if (survey) {
        survey->nodes = asking->of.nodes;
        asking->of.nodes.items = NULL;
        survey->asked = calloc(survey->nodes.count + 1, sizeof(*survey->asked));
    }
    if (!survey || !survey->asked) {
        if (survey)
            survey_free(survey);
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
        return GB_STEP_ERROR;
    }
    survey->request = request;
    survey->fleet = asking->fleet;
    survey->left = survey->nodes.count;
    request->state_free(request->state);
    request->state = survey;
    request->state_free = survey_free;
    request->resume = resume;
    return resume(request, response, err);
}

enum gb_step gb_api_fleet_stats(struct gb_http_request *request, struct gb_http_response *response,
                                struct gb_error *err) {
    return gb_ask_nodes(request, begin, response, err);
}

/* --- requests to a hub -------------------------------------------------------------------------------------------- */

/* POST /v1/fleet/directory/{op}: nodes send requests for the directory to this one, which is a hub. The bodies are
 * those of etcd's gateway. */

#define ANSWER_MS 40000 /* more than any wait for orders */

struct passing {
    struct gb_http_request *request;
    struct gb_hub *hub;
    struct gb_hub_ask ask;
    atomic_bool done;
};

static void done(struct gb_hub_ask *ask) {
    struct passing *passing = gb_container_of(ask, struct passing, ask);

    atomic_store(&passing->done, true);
    gb_http_wake(passing->request);
}

static void passing_free(void *state) {
    struct passing *passing = state;

    gb_hub_cancel(passing->hub, &passing->ask);
    free(passing->ask.answer);
    free(passing);
}

static enum gb_step passing_resume(struct gb_http_request *request, struct gb_http_response *response,
                                   struct gb_error *err) {
    struct passing *passing = request->state;
    unsigned suspect_s;

    if (!atomic_load(&passing->done) && !request->timed_out)
        return GB_STEP_WAIT;
    if (passing->ask.error.code != GB_OK)
        *err = passing->ask.error;
    if (!atomic_load(&passing->done) || err->code == GB_ERR_DIRECTORY_UNAVAILABLE)
        return gb_redirect_silent(response, err);
    if (err->code != GB_OK || gb_http_response_header(response, err, "Content-Type", "application/json") < 0 ||
        gb_http_response_header(response, err, "Gpubuf-Directory-Time", "%lld",
                                (long long)gb_fleet_now_s(gb_api_of(request)->fleet)) < 0)
        return GB_STEP_ERROR;
    if ((suspect_s = gb_fleet_suspect_s(gb_api_of(request)->fleet)) > 0 &&
        gb_http_response_header(response, err, "Gpubuf-Directory-Doubt", "%u", suspect_s) < 0)
        return GB_STEP_ERROR;
    response->status = passing->ask.status;
    gb_http_response_take(response, passing->ask.answer, strlen(passing->ask.answer));
    passing->ask.answer = NULL;
    return GB_STEP_REPLY;
}

/* The caller's token must have the node's name, or the scope admin. */
static int read_asker(const struct gb_http_request *request, struct gb_name *ret, struct gb_error *err) {
    const struct gb_http_text *text = gb_http_query(request, "node");

    if (!text)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the query parameter 'node' is needed: which node asks");
    if (gb_name_parse("node name", text->s, text->len, ret, err) < 0)
        return -1;
    if (gb_name_equal(&request->by.name, ret) || gb_api_permit(request, GB_SCOPE_ADMIN, "", NULL) == 0)
        return 0;
    return gb_error_set(err, GB_ERR_FORBIDDEN,
                        "the token is named \"%s\", and a node asks by a token of its own name, \"%s\"",
                        request->by.name.s, ret->s);
}

/* A node that is not a hub checks the request too, so that a malformed one gets the same answer everywhere. */
static int no_hub(const struct gb_http_request *request, const struct gb_name *node, struct gb_error *err) {
    const char *fleet = gb_api_of(request)->fleet_is.name;

    if (gb_hub_would_take(fleet ? fleet : "", node, request->param[0].s, request->body, err) < 0 ||
        gb_fleet_needed(request, err) < 0)
        return -1;
    return gb_error_set(err, GB_ERR_UNSUPPORTED, "this node is no hub of its fleet; --fleet-hub makes it one");
}

enum gb_step gb_api_fleet_directory(struct gb_http_request *request, struct gb_http_response *response,
                                    struct gb_error *err) {
    struct gb_api *api = gb_api_of(request);
    struct passing *passing;
    struct gb_name node;

    if (gb_body_json(request, err) < 0 || read_asker(request, &node, err) < 0 ||
        (!api->hub && no_hub(request, &node, err) < 0))
        return GB_STEP_ERROR;
    passing = calloc(1, sizeof(*passing));
    if (!passing) {
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
        return GB_STEP_ERROR;
    }
    passing->request = request;
    passing->hub = api->hub;
    passing->ask.node = node;
    passing->ask.op = request->param[0].s;
    passing->ask.body = request->body;
    passing->ask.done = done;
    request->state = passing;
    request->state_free = passing_free;
    request->resume = passing_resume;
    request->park = strcmp(request->param[0].s, "wait") == 0;
    request->deadline_ns = gb_clock_ns() + ANSWER_MS * GB_NS_PER_MS;
    if (gb_hub_send(api->hub, &passing->ask, err) < 0)
        return GB_STEP_ERROR;
    return passing_resume(request, response, err);
}
