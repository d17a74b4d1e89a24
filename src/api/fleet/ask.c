/* How handlers ask the fleet's directory, and orders to nodes without a URL. A question belongs to its request, and is
 * cancelled with it. All handlers below /v1/fleet use this. */
#include "api/fleet/ask.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/auth.h"
#include "api/pipeline/redirect.h"
#include "api/reply.h"
#include "api/request/body.h"
#include "base/container.h"
#include "fleet/move/move.h"
#include "fleet/replica/replica.h"

/* --- asking ------------------------------------------------------------------------------------------------------- */

static void done(struct gb_fleet_ask *ask) {
    struct gb_asking *asking = gb_container_of(ask, struct gb_asking, of.ask);

    atomic_store(&asking->done, true);
    gb_http_wake(asking->request);
}

static void asking_free(void *state) {
    struct gb_asking *asking = state;

    gb_fleet_cancel(asking->fleet, &asking->of.ask);
    if (asking->kind == GB_ASKING_NODES)
        free(asking->of.nodes.items);
    else if (asking->kind == GB_ASKING_SESSIONS)
        free(asking->of.sessions.items);
    if (asking->kind == GB_ASKING_TENANTS)
        free(asking->of.tenants.items);
    free(asking);
}

int gb_fleet_needed(const struct gb_http_request *request, struct gb_error *err) {
    if (gb_api_of(request)->fleet)
        return 0;
    return gb_error_set(err, GB_ERR_UNSUPPORTED, "the daemon is in no fleet; --fleet puts it into one");
}

struct gb_asking *gb_asking_begin(struct gb_http_request *request, gb_http_handler *next, struct gb_error *err) {
    struct gb_asking *asking;

    if (gb_fleet_needed(request, err) < 0)
        return NULL;
    asking = calloc(1, sizeof(*asking));
    if (!asking) {
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
        return NULL;
    }
    asking->request = request;
    asking->fleet = gb_api_of(request)->fleet;
    asking->next = next;
    asking->of.ask.done = done;
    if (request->state_free)
        request->state_free(request->state);
    request->state = asking;
    request->state_free = asking_free;
    return asking;
}

static enum gb_step resume(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct gb_asking *asking = request->state;

    if (!atomic_load(&asking->done) && !request->timed_out)
        return GB_STEP_WAIT;
    if (!atomic_load(&asking->done))
        return gb_redirect_silent(response, err);
    if (asking->of.ask.error.code == GB_OK)
        return asking->next(request, response, err);
    *err = asking->of.ask.error;
    if (err->code == GB_ERR_DIRECTORY_UNAVAILABLE)
        gb_redirect_silent(response, err);
    return GB_STEP_ERROR;
}

enum gb_step gb_asking_wait(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    request->resume = resume;
    request->deadline_ns = 0;
    return resume(request, response, err);
}

void gb_asking_end(struct gb_http_request *request) {
    if (request->state_free)
        request->state_free(request->state);
    request->state = NULL;
    request->state_free = NULL;
}

enum gb_step gb_ask_nodes(struct gb_http_request *request, gb_http_handler *next, struct gb_http_response *response,
                          struct gb_error *err) {
    struct gb_asking *asking = gb_asking_begin(request, next, err);

    if (!asking)
        return GB_STEP_ERROR;
    asking->kind = GB_ASKING_NODES;
    gb_fleet_list_nodes(asking->fleet, &asking->of.nodes);
    return gb_asking_wait(request, response, err);
}

/* --- nodes -------------------------------------------------------------------------------------------------------- */

const struct gb_fleet_node *gb_fleet_pick(const struct gb_fleet_nodes *nodes, const struct gb_name *name,
                                          struct gb_error *err) {
    size_t i;

    for (i = 0; i < nodes->count; i++) {
        if (gb_name_equal(&nodes->items[i].name, name))
            return &nodes->items[i];
    }
    gb_error_set(err, GB_ERR_NODE_NOT_FOUND, "no node named \"%s\" is registered in the fleet", name->s);
    return NULL;
}

int gb_fleet_read_select(const json_t *body, char ret[GB_FLEET_LABELS_SIZE], struct gb_error *err) {
    char text[GB_LABELS_MAX];
    int r = gb_json_labels(body, "select", NULL, text, err);

    if (r <= 0)
        return r;
    if (strlen(text) >= GB_FLEET_LABELS_SIZE)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "'select' has at most %d bytes as JSON",
                            GB_FLEET_LABELS_SIZE - 1);
    strcpy(ret, text);
    return 0;
}

/* Redirects to that node. NODE_UNREACHABLE: it has no URL in the network of the request. */
static enum gb_step redirect_to_node(struct gb_http_request *request, struct gb_http_response *response,
                                     const struct gb_fleet_node *node, struct gb_error *err) {
    const struct gb_name *network = gb_redirect_network(request);
    const char *base = gb_fleet_url_on(node, network);

    if (base)
        return gb_redirect_to(request, response, &node->name, base, 0, 1, err);
    gb_error_set(err, GB_ERR_NODE_UNREACHABLE, "the node \"%s\" has no address in the network \"%s\"", node->name.s,
                 network->s);
    return GB_STEP_ERROR;
}

static void render_devices(struct gb_json_writer *out, const struct gb_fleet_node *node) {
    size_t i;

    gb_json_open(out, "devices", '[');
    for (i = 0; i < node->device_count; i++) {
        const struct gb_fleet_device *device = &node->devices[i];

        gb_json_open(out, NULL, '{');
        gb_json_put_untrusted(out, "uuid", device->uuid, SIZE_MAX);
        gb_json_put_untrusted(out, "name", device->name, SIZE_MAX);
        gb_json_put_u64(out, "bytes", device->bytes);
        gb_json_put_u64(out, "free_bytes", device->free_bytes);
        gb_json_put_u64(out, "committed_bytes", device->committed_bytes);
        gb_json_close(out, '}');
    }
    gb_json_close(out, ']');
}

void gb_render_node(struct gb_json_writer *out, const char *key, const struct gb_fleet_node *node) {
    char uuid[24];
    size_t i;

    snprintf(uuid, sizeof(uuid), "%" PRIu64, node->uuid);
    gb_json_open(out, key, '{');
    gb_json_put_string(out, "name", node->name.s);
    gb_json_put_bool(out, "alive", node->alive);
    gb_json_put_bool(out, "draining", node->draining);
    gb_json_put_untrusted(out, "version", node->version, SIZE_MAX);
    gb_json_put_raw(out, "labels", node->labels[0] != '\0' ? node->labels : "{}");
    gb_json_open(out, "urls", '{');
    for (i = 0; i < node->url_count; i++)
        gb_json_put_untrusted(out, node->urls[i].network.s, node->urls[i].url, SIZE_MAX);
    gb_json_close(out, '}');
    render_devices(out, node);
    gb_json_put_string(out, "uuid", uuid); /* more than a number of JavaScript holds */
    if (node->alive)
        gb_json_put_u64(out, "incarnation", node->incarnation);
    else
        gb_json_put_null(out, "incarnation");
    gb_json_close(out, '}');
}

const char *gb_on_partition_word(enum gb_on_partition on) {
    return on == GB_ON_PARTITION_STOP ? "stop" : "serve";
}

/* --- orders ------------------------------------------------------------------------------------------------------- */

/* A client's request gives an order here. The node that the order is for carries it out in gb_fleet_follow. */

/* --- giving ------------------------------------------------------------------------------------------------------- */

static enum gb_step given(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    const struct gb_fleet_order *order = &((struct gb_asking *)request->state)->of.order;
    struct gb_json_writer out = {0};

    gb_json_open(&out, NULL, '{');
    gb_json_put_string(&out, "node", order->node.s);
    gb_json_put_string(&out, "order", gb_order_word(order->what));
    if (order->session.s[0] != '\0')
        gb_json_put_string(&out, "session", order->session.s);
    else
        gb_json_put_null(&out, "session");
    gb_json_close(&out, '}');
    return gb_reply_json(&out, 202, response, err);
}

enum gb_step gb_send_to_node(struct gb_http_request *request, struct gb_http_response *response,
                             const struct gb_fleet_order *order, struct gb_error *err) {
    const struct gb_fleet_nodes *nodes = &((struct gb_asking *)request->state)->of.nodes;
    const struct gb_fleet_node *node = gb_fleet_pick(nodes, &order->node, err);
    struct gb_asking *asking;
    uint64_t uuid;

    if (!node)
        return GB_STEP_ERROR;
    if (node->url_count > 0)
        return redirect_to_node(request, response, node, err);
    uuid = node->uuid;
    asking = gb_asking_begin(request, given, err); /* which frees the nodes */
    if (!asking)
        return GB_STEP_ERROR;
    asking->of.order.node = order->node;
    asking->of.order.uuid = uuid;
    asking->of.order.what = order->what;
    asking->of.order.session = order->session;
    gb_fleet_order(asking->fleet, &asking->of.order);
    return gb_asking_wait(request, response, err);
}

/* --- following ---------------------------------------------------------------------------------------------------- */

struct following {
    struct gb_move_call *call;
    gb_fleet_followed *failed;
    void *arg;
};

static void moved(void *arg) {
    struct following *f = arg;

    if (f->call->base.error.code != GB_OK)
        f->failed(f->arg, &f->call->session, &f->call->base.error);
    free(f);
}

/* With the lock. */
static bool bring(struct gb_api *api, const struct gb_name *session, gb_fleet_followed *failed, void *arg) {
    char who[GB_TICKET_WHO_SIZE];
    struct following *f = malloc(sizeof(*f));
    struct gb_move_call *call = gb_call_new(sizeof(*call), moved, f);

    if (!f || !call) {
        free(f);
        free(call);
        return false;
    }
    *f = (struct following){.call = call, .failed = failed, .arg = arg};
    call->session = *session;
    gb_ticket_node_who(&api->fleet_is.node, who, sizeof(who));
    gb_move_start(api->moves, session, who, call);
    gb_call_unref(&call->base);
    return true;
}

bool gb_fleet_follow(struct gb_api *api, enum gb_order_what what, const struct gb_name *session,
                     gb_fleet_followed *failed, void *arg) {
    struct gb_error err = GB_ERROR_INIT;
    bool ready;

    pthread_mutex_lock(&api->fleet_lock);
    ready = api->fleet && api->moves && api->replicas;
    if (ready && (what == GB_ORDER_DRAIN || what == GB_ORDER_UNDRAIN))
        gb_fleet_set_draining(api->fleet, what == GB_ORDER_DRAIN);
    else if (ready && what == GB_ORDER_MOVE)
        ready = bring(api, session, failed, arg);
    else if (ready && gb_replicas_want(api->replicas, session, &err) < 0)
        failed(arg, session, &err);
    pthread_mutex_unlock(&api->fleet_lock);
    return ready;
}
