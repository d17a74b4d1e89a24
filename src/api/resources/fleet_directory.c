/* POST /v1/fleet/directory/{op}: what nodes of the fleet ask this one, a hub, to ask the directory. The bodies are
 * those of etcd's gateway. */
#include <stdlib.h>
#include <string.h>

#include "api/auth.h"
#include "api/middleware/redirect.h"
#include "api/request/body.h"
#include "api/request/query.h"
#include "api/resources/fleet_ask.h"
#include "api/route.h"
#include "base/clock.h"
#include "base/container.h"
#include "hub/hub.h"

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

    gb_hub_leave(passing->hub, &passing->ask);
    free(passing->ask.answer);
    free(passing);
}

static enum gb_step resume(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct passing *passing = request->state;
    unsigned doubt_s;

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
    if ((doubt_s = gb_fleet_doubt_s(gb_api_of(request)->fleet)) > 0 &&
        gb_http_response_header(response, err, "Gpubuf-Directory-Doubt", "%u", doubt_s) < 0)
        return GB_STEP_ERROR;
    response->status = passing->ask.status;
    gb_http_response_take(response, passing->ask.answer, strlen(passing->ask.answer));
    passing->ask.answer = NULL;
    return GB_STEP_REPLY;
}

/* The caller's token has the node's name, unless it may do everything. */
static int read_node(const struct gb_http_request *request, struct gb_name *ret, struct gb_error *err) {
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

/* What is wrong with a request is said by a node that is no hub as well. */
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

    if (gb_body_json(request, err) < 0 || read_node(request, &node, err) < 0 ||
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
    request->resume = resume;
    request->park = strcmp(request->param[0].s, "wait") == 0;
    request->deadline_ns = gb_clock_ns() + ANSWER_MS * GB_NS_PER_MS;
    if (gb_hub_send(api->hub, &passing->ask, err) < 0)
        return GB_STEP_ERROR;
    return resume(request, response, err);
}
