#include "api/middleware/ownership.h"

#include <inttypes.h>
#include <string.h>

#include "api/context.h"
#include "api/middleware/hook.h"
#include "api/middleware/redirect.h"
#include "api/route.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "core/core.h"
#include "fleet/fleet.h"

#define UNCERTAIN_RETRY_S 1

/* The epoch here, for a client that knows another. */
static void tell_epoch(const struct gb_http_request *request, int64_t epoch, struct gb_http_response *response) {
    struct gb_json_writer more = {.comma = true};

    gb_json_put_string(&more, "node", gb_api_of(request)->fleet_is.node.s);
    gb_json_put_i64(&more, "epoch", epoch);
    if (more.failed)
        gb_json_done(&more);
    gb_http_response_problem(response, NULL, more.s, more.used);
}

/* *ret: the epoch that the client knows, 0: none. */
static int read_epoch(const struct gb_http_request *request, uint64_t *ret, struct gb_error *err) {
    const char *text = gb_http_header(request, "Gpubuf-Epoch");

    *ret = 0;
    if (!text || gb_parse_u64(text, strlen(text), ret) == GB_PARSE_OK)
        return 0;
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                        "Gpubuf-Epoch is a whole number: the highest that an answer for the session has had");
}

/* What is left of a session that another node has now can be read, and deleted as a whole. */
static int check_aside(const struct gb_http_request *request, struct gb_error *err) {
    if (gb_route_reads(gb_route_of(request)) ||
        (request->method == GB_HTTP_DELETE && strcmp(request->route->path, "/v1/sessions/{session}") == 0))
        return 0;
    return gb_error_set(err, GB_ERR_SUPERSEDED,
                        "the session \"%s\" was set aside, since another node has its name: it can be read, "
                        "and deleted as a whole",
                        request->param[0].s);
}

/* What has come so far can be read. */
static int check_arriving(const struct gb_http_request *request, struct gb_error *err) {
    if (gb_route_reads(gb_route_of(request)))
        return 0;
    return gb_error_set(err, GB_ERR_SESSION_MOVING, "the session \"%s\" is being brought here from another node",
                        request->param[0].s);
}

static int check_own(const struct gb_http_request *request, const struct gb_session_bond *bond,
                     struct gb_http_response *response, struct gb_error *err) {
    struct gb_fleet *fleet = gb_api_of(request)->fleet;
    struct gb_name name;
    uint64_t known;

    if (read_epoch(request, &known, err) < 0 ||
        gb_name_parse("session name", request->param[0].s, request->param[0].len, &name, err) < 0)
        return -1;
    if ((known > (uint64_t)bond->epoch && gb_fleet_doubt(fleet, &name, known)) || gb_fleet_doubts(fleet, name.s)) {
        tell_epoch(request, bond->epoch, response);
        return gb_error_set(err, GB_ERR_SUPERSEDED,
                            "another node may have the session \"%s\" by now, at an epoch above %" PRId64
                            "; ask the fleet which (GET /v1/fleet/sessions/%s)",
                            name.s, bond->epoch, name.s);
    }
    return 0;
}

static enum gb_step refuse_uncertain(const struct gb_http_request *request, struct gb_http_response *response,
                                     struct gb_error *err) {
    gb_error_set(err, GB_ERR_OWNER_UNCERTAIN,
                 "the node \"%s\" has no word from its fleet's directory, and the session \"%s\" stops then "
                 "(on_partition); try again later",
                 gb_api_of(request)->fleet_is.node.s, request->param[0].s);
    return gb_redirect_later(response, UNCERTAIN_RETRY_S, err);
}

static int check_sure(const struct gb_http_request *request, const struct gb_session_bond *bond,
                      struct gb_http_response *response, struct gb_error *err) {
    if (!bond->stops_on_partition || gb_fleet_is_sure(gb_api_of(request)->fleet))
        return 0;
    refuse_uncertain(request, response, err);
    return -1;
}

/* A change that was made while the lease ran out may be another node's to answer for. */
static enum gb_step check_answer(const struct gb_http_request *request, const struct gb_session_bond *bond,
                                 struct gb_http_response *response, struct gb_error *err) {
    if (gb_route_reads(gb_route_of(request)) || response->status >= 400 || !bond->stops_on_partition ||
        (gb_fleet_is_sure(gb_api_of(request)->fleet) &&
         !gb_fleet_doubts(gb_api_of(request)->fleet, request->param[0].s)))
        return GB_STEP_REPLY;
    gb_http_response_done(response);
    return refuse_uncertain(request, response, err);
}

enum gb_step gb_ownership_pipeline(gb_http_handler *handler, struct gb_http_request *request,
                                   const struct gb_session_bond *bond, struct gb_http_response *response,
                                   struct gb_error *err) {
    enum gb_step step;

    if (!bond || (bond->epoch == 0 && bond->aside_epoch == 0 && !bond->arrives))
        return gb_api_pipeline(handler, request, response, err);
    if (handler == request->route->handler) {
        if ((bond->aside_epoch > 0 && check_aside(request, err) < 0) ||
            (bond->arrives && check_arriving(request, err) < 0))
            return GB_STEP_ERROR;
        if (bond->epoch > 0 &&
            (check_own(request, bond, response, err) < 0 || check_sure(request, bond, response, err) < 0))
            return GB_STEP_ERROR;
    }
    step = gb_api_pipeline(handler, request, response, err);
    return step == GB_STEP_REPLY && bond->epoch > 0 ? check_answer(request, bond, response, err) : step;
}
