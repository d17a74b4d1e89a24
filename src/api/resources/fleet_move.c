/* POST /v1/fleet/sessions/{session}/move: a session goes to another node, which brings it. Any node is asked; it
 * redirects to the one that is to have the session. */
#include <string.h>

#include "api/auth.h"
#include "api/middleware/async.h"
#include "api/middleware/hook.h"
#include "api/middleware/redirect.h"
#include "api/reply/reply_json.h"
#include "api/request/body.h"
#include "api/request/json.h"
#include "api/request/query.h"
#include "api/resources/fleet_ask.h"
#include "api/resources/fleet_orders.h"
#include "api/route.h"
#include "move/move.h"

struct moving {
    struct gb_name session;
    struct gb_name to; /* "": the fleet chooses */
    char select[GB_FLEET_LABELS_SIZE];
};

static int read_moving(const struct gb_http_request *request, struct moving *ret, struct gb_error *err) {
    json_t *body;
    int r;

    *ret = (struct moving){.select = ""};
    if (gb_param_name(request, 0, "session name", &ret->session, err) < 0 ||
        gb_body_object(request, "to select", true, &body, err) < 0)
        return -1;
    r = gb_json_name(body, "to", &ret->to, err);
    if (r >= 0 && gb_fleet_read_select(body, ret->select, err) < 0)
        r = -1;
    if (r > 0 && json_object_get(body, "select"))
        r = gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "'to' names the node; 'select' does not go with it");
    json_decref(body);
    return r < 0 ? -1 : gb_fleet_needed(request, err);
}

/* --- here --------------------------------------------------------------------------------------------------------- */

static void render_skipped(struct gb_json_writer *out, const struct gb_move_call *call) {
    size_t i;

    gb_json_open(out, "skipped", '[');
    for (i = 0; i < call->told; i++) {
        gb_json_open(out, NULL, '{');
        gb_json_put_string(out, "name", call->tell[i].name.s);
        gb_json_put_string(out, "code", gb_code_slug(call->tell[i].code));
        gb_json_close(out, '}');
    }
    gb_json_close(out, ']');
}

static enum gb_step reply_moved(struct gb_http_request *request, const void *result, struct gb_http_response *response,
                                struct gb_error *err) {
    struct gb_api *api = gb_api_of(request);
    const struct gb_move_call *call = result;
    const char *base = gb_fleet_own_url(api->fleet, gb_redirect_network(request));
    char url[GB_FLEET_URL_SIZE + GB_NAME_MAX + 16];
    struct gb_json_writer out = {0};

    snprintf(url, sizeof(url), "%s/v1/sessions/%s", base ? base : "", call->session.s);
    gb_json_open(&out, NULL, '{');
    gb_json_put_string(&out, "name", call->session.s);
    gb_json_put_string(&out, "node", api->fleet_is.node.s);
    gb_json_put_u64(&out, "epoch", call->epoch);
    gb_json_put_untrusted(&out, "url", url, SIZE_MAX);
    gb_json_open(&out, "former", '{');
    gb_json_put_string(&out, "node", call->former.s);
    gb_json_put_u64(&out, "epoch", call->former_epoch);
    gb_json_close(&out, '}');
    gb_json_put_u64(&out, "buffers", call->buffers);
    gb_json_put_u64(&out, "bytes", call->bytes);
    gb_json_put_u64(&out, "pulled_bytes", call->pulled_bytes);
    gb_json_put_u64(&out, "rounds", call->rounds);
    gb_json_put_number(&out, "frozen_ms", (double)(call->frozen_ns / 1000) / 1000.0);
    gb_json_put_u64(&out, "skipped_buffers", call->skipped);
    render_skipped(&out, call);
    gb_json_close(&out, '}');
    return gb_reply_json(&out, 200, response, err);
}

static enum gb_step start(struct gb_http_request *request, const struct gb_name *session,
                          struct gb_http_response *response, struct gb_error *err) {
    char who[GB_TICKET_WHO_SIZE] = "";
    struct gb_move_call *call;

    gb_asking_end(request);
    gb_request_hooks_stay(request, false);
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call)
        return GB_STEP_ERROR;
    if (!gb_api_ticket_who(request, who))
        who[0] = '\0';
    gb_move_start(gb_api_of(request)->moves, session, who, call);
    return gb_async_end(request, response, reply_moved, 0, err);
}

/* --- elsewhere ---------------------------------------------------------------------------------------------------- */

static enum gb_step send_named(struct gb_http_request *request, struct gb_http_response *response,
                               struct gb_error *err) {
    struct gb_fleet_order order = {.what = GB_ORDER_MOVE};
    struct moving moving;

    if (read_moving(request, &moving, err) < 0)
        return GB_STEP_ERROR;
    order.node = moving.to;
    order.session = moving.session;
    return gb_send_to_node(request, response, &order, err);
}

static enum gb_step chosen(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    const struct gb_asking *asking = request->state;
    const struct gb_fleet_node *node = &asking->of.place.nodes[0];
    const char *base = gb_fleet_url_on(node, gb_redirect_network(request));
    struct moving moving;

    if (!gb_name_equal(&node->name, &gb_api_of(request)->fleet_is.node) && base)
        return gb_redirect_to(request, response, &node->name, base, 0, 1, err);
    if (read_moving(request, &moving, err) < 0)
        return GB_STEP_ERROR;
    return start(request, &moving.session, response, err);
}

static enum gb_step found(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct gb_fleet_session there = ((struct gb_asking *)request->state)->of.find.session;
    struct gb_asking *asking;
    struct moving moving;

    if (read_moving(request, &moving, err) < 0)
        return GB_STEP_ERROR;
    asking = gb_asking_begin(request, chosen, err);
    if (!asking)
        return GB_STEP_ERROR;
    asking->of.place.without = there.node;
    asking->of.place.network = *gb_redirect_network(request);
    asking->of.place.bytes = there.quota_bytes == GB_UNLIMITED ? 0 : there.quota_bytes;
    strcpy(asking->of.place.select, moving.select);
    gb_fleet_place(asking->fleet, &asking->of.place);
    return gb_asking_wait(request, response, err);
}

static enum gb_step choose(struct gb_http_request *request, const struct moving *moving,
                           struct gb_http_response *response, struct gb_error *err) {
    struct gb_asking *asking = gb_asking_begin(request, found, err);

    if (!asking)
        return GB_STEP_ERROR;
    if (gb_fleet_find(asking->fleet, &moving->session, true, &asking->of.find))
        atomic_store(&asking->done, true);
    return gb_asking_wait(request, response, err);
}

enum gb_step gb_api_fleet_session_move(struct gb_http_request *request, struct gb_http_response *response,
                                       struct gb_error *err) {
    const struct gb_name *self = &gb_api_of(request)->fleet_is.node;
    bool sent_here = request->aside[GB_ASIDE_VIA].s != NULL;
    struct moving moving;

    if (read_moving(request, &moving, err) < 0)
        return GB_STEP_ERROR;
    if (moving.to.s[0] != '\0' ? gb_name_equal(&moving.to, self) : sent_here)
        return start(request, &moving.session, response, err);
    gb_request_hooks_stay(request, true);
    if (sent_here) {
        gb_error_set(err, GB_ERR_OWNER_UNKNOWN, "the request was sent here for the node \"%s\", and this is \"%s\"",
                     moving.to.s, self->s);
        return GB_STEP_ERROR;
    }
    if (moving.to.s[0] != '\0')
        return gb_ask_nodes(request, send_named, response, err);
    return choose(request, &moving, response, err);
}
