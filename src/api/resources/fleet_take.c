/* Sessions of nodes that are away: taken over by this one, or deleted. Both are an operator's word. */
#include "api/middleware/async.h"
#include "api/reply/reply_json.h"
#include "api/request/body.h"
#include "api/request/json.h"
#include "api/request/query.h"
#include "api/resources/fleet_ask.h"
#include "api/resources/register.h"
#include "api/route.h"

/* --- taking over -------------------------------------------------------------------------------------------------- */

/* What is wrong with the body is said of any daemon. */
static int read_take(const struct gb_http_request *request, struct gb_error *err) {
    bool force = false;
    json_t *body;
    int r;

    if (gb_body_object(request, "force", true, &body, err) < 0)
        return -1;
    r = gb_json_bool(body, "force", &force, err);
    json_decref(body);
    if (r < 0)
        return -1;
    if (force)
        return gb_fleet_needed(request, err);
    return gb_error_set(
        err, GB_ERR_INVALID_ARGUMENT,
        "'force' must be true: the session begins anew and empty here, and what its former node still has "
        "of it is set aside there when that comes back");
}

enum gb_step gb_api_fleet_session_take(struct gb_http_request *request, struct gb_http_response *response,
                                       struct gb_error *err) {
    struct gb_session_params params = {.has_labels = false};

    if (gb_param_name(request, 0, "session name", &params.name, err) < 0 || read_take(request, err) < 0)
        return GB_STEP_ERROR;
    return gb_register_session(request, response, &params, GB_REGISTER_TAKE, gb_session_reply, err);
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
