/* Orders to nodes that have no address: given here for a client's request, and followed by the node that they are
 * for. */
#include "api/resources/fleet_orders.h"

#include <stdlib.h>

#include "api/auth.h"
#include "api/middleware/redirect.h"
#include "api/reply/reply_json.h"
#include "api/resources/fleet_ask.h"
#include "move/move.h"
#include "replica/replica.h"

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
        return gb_redirect_to_node(request, response, node, err);
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
