#include "api/resources/register.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/context.h"
#include "api/middleware/redirect.h"
#include "base/container.h"
#include "fleet/fleet.h"

_Static_assert(GB_FLEET_CLAIM_SIZE <= GB_FLEET_CLAIM_MAX + 1, "a record has room for every claim");

/* What a request waits for. A registration goes on when its request has ended: then it is taken back. */
struct making {
    struct gb_fleet_register entry;
    struct gb_fleet_find find;
    struct gb_fleet *fleet;
    struct gb_http_request *request;
    struct gb_session_params params; /* with a reference to the labels */
    gb_async_reply *reply;
    enum gb_registers registers;
    unsigned tries; /* of the request before this one */
    _Atomic int phase;
};
enum { ASKED, ANSWERED, ABANDONED };

static void making_free(struct making *making) {
    gb_text_unref(making->params.labels);
    free(making);
}

static void answered(struct making *making) {
    struct gb_http_request *request = making->request;
    int asked = ASKED;

    /* From then on the request may go on and free it. */
    if (atomic_compare_exchange_strong(&making->phase, &asked, ANSWERED)) {
        gb_http_wake(request);
        gb_http_request_unref(request);
        return;
    }
    if (making->registers && making->entry.ask.error.code == GB_OK)
        gb_fleet_unregister(making->fleet, &making->entry.session.name, making->entry.session.claim, false);
    gb_http_request_unref(request);
    making_free(making);
}

static void registered(struct gb_fleet_ask *ask) {
    answered(gb_container_of(ask, struct making, entry.ask));
}

static void found(struct gb_fleet_ask *ask) {
    answered(gb_container_of(ask, struct making, find.ask));
}

static void making_leave(void *state) {
    struct making *making = state;
    int asked = ASKED;

    if (atomic_compare_exchange_strong(&making->phase, &asked, ABANDONED))
        return;
    /* The answer had come, and the request has ended before it went on. */
    if (making->registers && making->entry.ask.error.code == GB_OK)
        gb_fleet_unregister(making->fleet, &making->entry.session.name, making->entry.session.claim, false);
    making_free(making);
}

/* --- the answer --------------------------------------------------------------------------------------------------- */

/* Another request makes it here: a PUT confirms it then. */
static enum gb_step exists_here(struct gb_http_request *request, const struct gb_name *name, unsigned tries,
                                struct gb_http_response *response, struct gb_error *err) {
    enum gb_step step;

    if (request->method == GB_HTTP_PUT && gb_async_rerun(request, request->route->handler, tries, response, &step, err))
        return step;
    gb_error_set(err, GB_ERR_SESSION_EXISTS, "a session named \"%s\" exists", name->s);
    return GB_STEP_ERROR;
}

static enum gb_step exists(const struct making *making, const struct gb_fleet_session *session,
                           const struct gb_fleet_node *owner, struct gb_http_response *response, struct gb_error *err) {
    struct gb_http_request *request = making->request;
    const char *base = gb_fleet_url_on(owner, gb_redirect_network(request));
    struct gb_via via;
    char *url = NULL;

    if (gb_name_equal(&session->node, &gb_api_of(request)->fleet_is.node))
        return exists_here(request, &making->params.name, making->tries, response, err);
    if (request->method == GB_HTTP_PUT && base && gb_via_read(request, &via, err) == 0 && via.hops < GB_FLEET_HOPS_MAX)
        return gb_redirect_to(request, response, &session->node, base, session->epoch, via.hops + 1, err);
    gb_error_set(err, GB_ERR_SESSION_EXISTS, "a session named \"%s\" exists in the fleet, on the node \"%s\"",
                 making->params.name.s, session->node.s[0] != '\0' ? session->node.s : owner->name.s);
    if (base && request->method != GB_HTTP_PUT && asprintf(&url, "%s/v1/sessions/%s", base, making->params.name.s) >= 0)
        gb_http_response_long_header(response, NULL, "Location", url);
    return GB_STEP_ERROR;
}

static enum gb_step make(struct gb_http_request *request, struct gb_http_response *response,
                         const struct gb_session_params *params, gb_async_reply *reply, struct gb_error *err) {
    struct gb_session_call *call = gb_async_begin(request, sizeof(*call), err);

    if (!call)
        return GB_STEP_ERROR;
    if (request->method == GB_HTTP_PUT)
        gb_async_again(request, request->route->handler, GB_ERR_SESSION_EXISTS);
    gb_session_create(gb_api_of(request)->core, params, call);
    return gb_async_end(request, response, reply, 0, err);
}

/* What the record says of a session is all that is known of it here. */
static int take_over(struct gb_session_params *params, const struct gb_fleet_session *session, struct gb_error *err) {
    params->has_quota_bytes = session->quota_bytes != GB_UNLIMITED;
    params->quota.bytes = session->quota_bytes;
    params->has_replicas = true;
    params->replicas = session->replicas;
    params->tenant = session->tenant;
    if (session->labels[0] == '\0' || strcmp(session->labels, "{}") == 0)
        return 0;
    params->labels = gb_text_new(session->labels, strlen(session->labels));
    params->has_labels = params->labels != NULL;
    return params->labels ? 0 : gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
}

/* The session is in the directory, so from here on the core says when it is not made. */
static enum gb_step make_registered(struct making *making, struct gb_http_response *response, struct gb_error *err) {
    struct gb_http_request *request = making->request;
    const struct gb_fleet_session *session = &making->entry.session;
    enum gb_step step;

    making->params.fleet_epoch = (int64_t)session->epoch;
    memcpy(making->params.fleet_claim, session->claim, sizeof(session->claim));
    making->params.stops_on_partition = session->on_partition == GB_ON_PARTITION_STOP;
    making->params.failover_after_s = session->failover_after_s;
    if (making->registers >= GB_REGISTER_TAKE && take_over(&making->params, session, err) < 0) {
        gb_fleet_unregister(making->fleet, &session->name, session->claim, false);
        return GB_STEP_ERROR;
    }
    step = make(request, response, &making->params, making->reply, err);
    if (step == GB_STEP_ERROR && !request->state)
        /* There was no memory for the call. */
        gb_fleet_unregister(making->fleet, &session->name, session->claim, false);
    return step;
}

static enum gb_step conclude(struct making *making, struct gb_http_response *response, struct gb_error *err) {
    const struct gb_error *why = making->registers ? &making->entry.ask.error : &making->find.ask.error;
    struct gb_http_request *request = making->request;
    enum gb_step step = GB_STEP_ERROR;

    request->state = NULL;
    request->state_free = NULL;
    if (making->registers && why->code == GB_OK) {
        step = make_registered(making, response, err);
    } else if (making->registers && why->code == GB_ERR_SESSION_EXISTS) {
        step = exists(making, &making->entry.session, &making->entry.owner, response, err);
    } else if (making->registers) {
        *err = *why;
        if (why->code == GB_ERR_OWNER_UNKNOWN)
            step = gb_redirect_later(response, gb_fleet_doubt_s(making->fleet) + 1, err);
    } else if (why->code == GB_OK && !gb_name_equal(&making->find.session.node, &gb_api_of(request)->fleet_is.node)) {
        step = exists(making, &making->find.session, &making->find.owner, response, err);
    } else {
        step = make(request, response, &making->params, making->reply, err); /* also if the directory does not know */
    }
    making_free(making);
    return step;
}

static enum gb_step resume(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct making *making = request->state;

    if (atomic_load(&making->phase) == ANSWERED)
        return conclude(making, response, err);
    if (!request->timed_out)
        return GB_STEP_WAIT;
    gb_error_set(err, GB_ERR_DIRECTORY_UNAVAILABLE, "the fleet's directory has not answered in the permitted time");
    return GB_STEP_ERROR;
}

/* --- the question ------------------------------------------------------------------------------------------------- */

static int fill_entry(struct making *making, struct gb_error *err) {
    struct gb_fleet_session *session = &making->entry.session;
    const struct gb_session_params *params = &making->params;
    const char *labels = gb_labels_text(params->labels);

    if (strlen(labels) >= sizeof(session->labels))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "the labels of a session that is registered have at most %zu bytes as JSON",
                            sizeof(session->labels) - 1);
    session->name = params->name;
    session->on_partition = params->stops_on_partition ? GB_ON_PARTITION_STOP : GB_ON_PARTITION_SERVE;
    strcpy(session->labels, labels);
    session->failover_after_s = params->failover_after_s;
    session->replicas = params->replicas;
    session->tenant = params->tenant;
    session->quota_bytes = params->has_quota_bytes ? params->quota.bytes : GB_UNLIMITED;
    making->entry.ask.done = registered;
    return 0;
}

/* A name that is taken here is refused before the directory is asked. */
static bool is_here(const struct gb_http_request *request, const struct gb_session_params *params) {
    struct gb_session_bond bond;

    return gb_session_bond(gb_api_of(request)->core, params->name.s, &bond);
}

/* The making is the request's from here on. */
static enum gb_step ask(struct making *making, struct gb_http_response *response, struct gb_error *err) {
    struct gb_http_request *request = making->request;

    making->tries = gb_async_tries(request);
    if (request->state)
        request->state_free(request->state);
    request->state = making;
    request->state_free = making_leave;
    request->resume = resume;
    request->deadline_ns = 0;
    gb_http_request_ref(request);
    if (making->registers) {
        making->entry.empty = making->registers == GB_REGISTER_TAKE_EMPTY;
        if (making->registers >= GB_REGISTER_TAKE)
            gb_fleet_take(making->fleet, &making->entry);
        else
            gb_fleet_register(making->fleet, &making->entry);
        return GB_STEP_WAIT;
    }
    making->find.ask.done = found;
    if (!gb_fleet_find(making->fleet, &making->params.name, false, &making->find))
        return GB_STEP_WAIT;
    gb_http_request_unref(request);
    atomic_store(&making->phase, ANSWERED);
    return conclude(making, response, err);
}

enum gb_step gb_register_session(struct gb_http_request *request, struct gb_http_response *response,
                                 const struct gb_session_params *params, enum gb_registers registers,
                                 gb_async_reply *reply, struct gb_error *err) {
    struct gb_fleet *fleet = gb_api_of(request)->fleet;
    struct making *making;
    enum gb_step step;

    if (!fleet && registers)
        gb_error_set(err, GB_ERR_UNSUPPORTED,
                     "the daemon is in no fleet (--fleet), so that it can register no session");
    if ((!fleet && registers) || (fleet && is_here(request, params))) {
        gb_text_unref(params->labels);
        return fleet ? exists_here(request, &params->name, gb_async_tries(request), response, err) : GB_STEP_ERROR;
    }
    if (!fleet || (!registers && !gb_fleet_is_joined(fleet))) {
        step = make(request, response, params, reply, err);
        gb_text_unref(params->labels);
        return step;
    }
    making = calloc(1, sizeof(*making));
    if (!making) {
        gb_text_unref(params->labels);
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
        return GB_STEP_ERROR;
    }
    making->fleet = fleet;
    making->request = request;
    making->params = *params;
    making->reply = reply;
    making->registers = registers;
    if (registers && fill_entry(making, err) < 0) {
        making_free(making);
        return GB_STEP_ERROR;
    }
    return ask(making, response, err);
}
