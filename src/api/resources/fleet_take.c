/* Sessions of nodes that are away: taken over by this one, or deleted. Both are an operator's word. */
#include "api/context.h"
#include "api/middleware/async.h"
#include "api/reply/reply_json.h"
#include "api/request/body.h"
#include "api/request/json.h"
#include "api/request/query.h"
#include "api/resources/fleet_ask.h"
#include "api/resources/register.h"
#include "api/route.h"
#include "replica/replica.h"

/* --- taking over -------------------------------------------------------------------------------------------------- */

/* What is wrong with the body is said of any daemon. */
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

/* This node has copies: they are what the session begins with. */
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

static enum gb_step buried(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
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
    asking = gb_asking_begin(request, buried, err);
    if (!asking)
        return GB_STEP_ERROR;
    asking->of.bury.session = name;
    gb_fleet_bury(asking->fleet, &asking->of.bury);
    return gb_asking_wait(request, response, err);
}
