/* Sessions of this node: made, shown, changed, deleted. In a fleet, the directory has a name before it is used here,
 * and what the directory has given is taken back if the session cannot be made. */
#include "api/resources/sessions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/context.h"
#include "api/fleet/ask.h"
#include "api/fleet/own.h"
#include "api/pipeline/async.h"
#include "api/pipeline/conditional.h"
#include "api/pipeline/hook.h"
#include "api/pipeline/list.h"
#include "api/pipeline/operations.h"
#include "api/pipeline/redirect.h"
#include "api/reply.h"
#include "api/request/body.h"
#include "api/request/query.h"
#include "base/container.h"
#include "fleet/fleet.h"
#include "fleet/replica/replica.h"

/* --- names in the directory --------------------------------------------------------------------------------------- */

_Static_assert(GB_FLEET_CLAIM_SIZE <= GB_FLEET_CLAIM_MAX + 1, "a record has room for every claim");

/* What a request waits for. A registration continues after its request has ended, and is then taken back. */
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

    /* From then on the request may continue and free it. */
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
    /* The answer had come, and the request has ended before it continued. */
    if (making->registers && making->entry.ask.error.code == GB_OK)
        gb_fleet_unregister(making->fleet, &making->entry.session.name, making->entry.session.claim, false);
    making_free(making);
}

/* --- registration: the reply -------------------------------------------------------------------------------------- */

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
    return params->labels ? 0 : gb_error_memory(err, "request");
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
            step = gb_redirect_later(response, gb_fleet_suspect_s(making->fleet) + 1, err);
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

/* --- registration: the request ------------------------------------------------------------------------------------ */

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
            gb_fleet_take_over(making->fleet, &making->entry);
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
        gb_error_memory(err, "request");
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

/* --- sessions ----------------------------------------------------------------------------------------------------- */

/* /v1/sessions */

#define PRIORITY_MAX 1000

/* The fields that create and patch share, as gb_json_known takes them. */
#define KEY_PLACE(name)
#define KEY_FLEET(name)
#define KEY_KEPT(name)
#define KEY_SET(name) " " #name
static const char create_fields[] = "name"
#define GB_SESSION_FIELD(name, type, how, ...) KEY_##how(name)
#define GB_SESSION_QUOTA(...)
#define GB_SESSION_QUOTA_BEGIN " quota"
#define GB_SESSION_QUOTA_END
#include "model/session.def"
                                    " fleet on_partition failover_after_s replicas tenant";
static const char patch_fields[] = "pool replicas"
#define GB_SESSION_FIELD(name, type, how, ...) KEY_##how(name)
#define GB_SESSION_QUOTA(...)
#define GB_SESSION_QUOTA_BEGIN " quota"
#define GB_SESSION_QUOTA_END
#include "model/session.def"
    ;
static const char quota_fields[] = ""
#define GB_SESSION_FIELD(...)
#define GB_SESSION_QUOTA(name, ...) " " #name
#include "model/session.def"
    ;

static int read_priority(const json_t *object, const char *key, int *ret, struct gb_error *err) {
    uint64_t priority = 0;
    int r = gb_json_u64(object, key, &priority, err);

    if (r < 0)
        return -1;
    if (priority > PRIORITY_MAX)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "'%s' is a whole number from 0 to %d: the buffers of sessions of a lower one leave "
                            "memory first",
                            key, PRIORITY_MAX);
    *ret = (int)priority;
    return r;
}

static int read_replicas(const json_t *body, struct gb_session_params *params, struct gb_error *err) {
    uint64_t replicas = 0;
    int r = gb_json_u64(body, "replicas", &replicas, err);

    if (r < 0)
        return -1;
    if (replicas > GB_FLEET_HOLDERS_MAX)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "'replicas' is a whole number from 0 to %d: nodes that are to have copies of the sealed "
                            "buffers",
                            GB_FLEET_HOLDERS_MAX);
    params->has_replicas = r > 0;
    params->replicas = (unsigned)replicas;
    return 0;
}

/* By the types of fields. */
#define READ_u64 gb_json_u64
#define READ_limit gb_json_limit
#define READ_phrase gb_json_phrase
#define READ_durability gb_json_durability
#define READ_spill gb_json_spill
#define READ_priority read_priority
#define READ_labels(object, key, ret, err) gb_json_take_labels(object, key, old_labels, ret, err)

/* The fields that create and patch share. old_labels: the labels that the given ones are merged into; may be NULL. */
static int read_fields(const json_t *body, const char *old_labels, struct gb_session_params *params,
                       struct gb_error *err) {
    const json_t *object = NULL;
    int r = gb_json_child(body, "quota", &object, err);

    if (r < 0 || (r > 0 && gb_json_known(object, "quota", quota_fields + 1, err) < 0))
        return -1;
#define READ(read, key, has, at)                                                                                       \
    r = read(object, key, &params->at, err);                                                                           \
    if (r < 0)                                                                                                         \
        return -1;                                                                                                     \
    params->has = r > 0;
#define GB_SESSION_FIELD(...)
#define GB_SESSION_QUOTA(name, type, ...) READ(READ_##type, #name, has_quota_##name, quota.name)
#include "model/session.def"
    object = body;
#define READ_SET_PLACE(read, name)
#define READ_SET_FLEET(read, name)
#define READ_SET_KEPT(read, name)
#define READ_SET_SET(read, name) READ(read, #name, has_##name, name)
#define GB_SESSION_FIELD(name, type, how, ...) READ_SET_##how(READ_##type, name)
#define GB_SESSION_QUOTA(...)
#include "model/session.def"
    return read_replicas(body, params, err);
}

static enum gb_step send_session(const struct gb_http_request *request, const struct gb_session_view *view, int status,
                                 struct gb_http_response *response, struct gb_error *err) {
    struct gb_json_writer out = {0};

    gb_render_session(&out, NULL, gb_api_of(request), view);
    return gb_reply_json(&out, status, response, err);
}

enum gb_step gb_session_reply(struct gb_http_request *request, const void *result, struct gb_http_response *response,
                              struct gb_error *err) {
    const struct gb_session_call *call = result;
    char etag[GB_ETAG_SIZE];

    if (gb_http_response_header(response, err, "ETag", "\"%s\"", gb_etag_session(&call->session, etag)) < 0)
        return GB_STEP_ERROR;
    if (call->created &&
        gb_http_response_header(response, err, "Location", "/v1/sessions/%s", call->session.rec.name.s) < 0)
        return GB_STEP_ERROR;
    /* A session that was taken over belongs to this node from now on; changes of the record are reported to the
     * directory. */
    if (gb_api_of(request)->fleet && call->session.rec.fleet_epoch > (call->created ? 1 : 0))
        gb_fleet_refresh(gb_api_of(request)->fleet, &call->session.rec.name);
    if (gb_api_of(request)->replicas && call->session.rec.replicas > 0)
        gb_replicas_wake(gb_api_of(request)->replicas);
    if (call->created && gb_api_of(request)->fleet)
        gb_redirect_epoch(request, call->session.rec.fleet_epoch, response);
    return send_session(request, &call->session, call->created ? 201 : 200, response, err);
}

/* What has a meaning for sessions that are registered alone. */
static int refuse_local(const char *field, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "'%s' is for sessions that are registered: give \"fleet\": true",
                        field);
}

static int read_failover(const json_t *body, struct gb_session_params *params, struct gb_error *err) {
    int r = gb_json_u64(body, "failover_after_s", &params->failover_after_s, err);

    if (r < 0)
        return -1;
    if (!params->stops_on_partition) /* an owner that serves on is never replaced by itself */
        params->failover_after_s = 0;
    return r;
}

/* A session without a quota counts as one that takes all. */
static int read_tenant(const json_t *body, struct gb_session_params *params, bool registers, struct gb_error *err) {
    int r = gb_json_name(body, "tenant", &params->tenant, err);

    if (r > 0 && !registers)
        return refuse_local("tenant", err);
    return r < 0 ? -1 : 0;
}

/* How a session is registered. */
static int read_fleet(const json_t *body, struct gb_session_params *params, bool *ret_registers, struct gb_error *err) {
    const char *word = "serve";
    int r = gb_json_bool(body, "fleet", ret_registers, err);

    if (r >= 0)
        r = gb_json_string(body, "on_partition", &word, err);
    if (r < 0)
        return -1;
    params->stops_on_partition = strcmp(word, "stop") == 0;
    if (!params->stops_on_partition && strcmp(word, "serve") != 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "'on_partition' is serve or stop");
    if (r > 0 && !*ret_registers)
        return refuse_local("on_partition", err);
    r = read_failover(body, params, err);
    if (r > 0 && !*ret_registers)
        return refuse_local("failover_after_s", err);
    if (params->replicas > 0 && !*ret_registers)
        return refuse_local("replicas", err);
    return r < 0 ? -1 : read_tenant(body, params, *ret_registers, err);
}

/* All but the name. */
static int read_rest(const json_t *body, struct gb_session_params *params, bool *ret_registers, struct gb_error *err) {
    return read_fields(body, NULL, params, err) < 0 ? -1 : read_fleet(body, params, ret_registers, err);
}

static int read_new(const json_t *body, struct gb_session_params *params, bool *ret_registers, struct gb_error *err) {
    int r = gb_json_name(body, "name", &params->name, err);

    if (r == 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the field 'name' is needed");
    return r < 0 ? -1 : read_rest(body, params, ret_registers, err);
}

int gb_session_fields_check(const json_t *body, struct gb_error *err) {
    struct gb_session_params params = {.has_labels = false};
    bool registers = false;
    int r = read_new(body, &params, &registers, err);

    gb_text_unref(params.labels);
    return r;
}

static int read_create(const struct gb_http_request *request, struct gb_session_params *params, bool *ret_registers,
                       struct gb_error *err) {
    json_t *body;
    int r;

    if (gb_body_object(request, create_fields, false, &body, err) < 0)
        return -1;
    r = read_new(body, params, ret_registers, err);
    json_decref(body);
    return r;
}

enum gb_step gb_api_session_create(struct gb_http_request *request, struct gb_http_response *response,
                                   struct gb_error *err) {
    struct gb_session_params params = {.has_labels = false};
    bool registers = false;

    if (read_create(request, &params, &registers, err) == 0)
        return gb_register_session(request, response, &params, registers ? GB_REGISTER_NEW : GB_REGISTER_NOT,
                                   gb_session_reply, err);
    gb_text_unref(params.labels);
    return GB_STEP_ERROR;
}

/* --- create or confirm -------------------------------------------------------------------------------------------- */

static bool same_labels(const json_t *labels, const char *text) {
    json_t *is = json_loads(text, 0, NULL);
    bool same = json_equal(labels, is);

    json_decref(is);
    return same;
}

static void compare_fleet(struct gb_differences *d, const json_t *body, const struct gb_session_params *asked,
                          bool registers, const struct gb_session_rec *is) {
    gb_differ(d, json_object_get(body, "fleet") && registers != (is->fleet_epoch > 0), "fleet");
    gb_differ(d, json_object_get(body, "on_partition") && asked->stops_on_partition != is->stops_on_partition,
              "on_partition");
    gb_differ(d, json_object_get(body, "failover_after_s") && asked->failover_after_s != is->failover_after_s,
              "failover_after_s");
    gb_differ(d, asked->has_replicas && asked->replicas != is->replicas, "replicas");
    gb_differ(d, json_object_get(body, "tenant") && !gb_name_equal(&asked->tenant, &is->tenant), "tenant");
}

/* Of what the body names. */
static struct gb_differences compare(const json_t *body, const struct gb_session_params *asked, bool registers,
                                     const struct gb_session_rec *is) {
    struct gb_differences d = {.fields = ""};

#define DIFFER(type, key, has, at) gb_differ(&d, asked->has && !SAME_##type(asked->at, is->at), key);
#define SAME_u64 GB_SAME_u64
#define SAME_limit GB_SAME_limit
#define SAME_phrase GB_SAME_phrase
#define SAME_durability GB_SAME_durability
#define SAME_spill GB_SAME_spill
#define SAME_priority GB_SAME_priority
#define SAME_labels(a, b) same_labels(json_object_get(body, "labels"), gb_labels_text(b))
#define DIFFER_PLACE(type, name)
#define DIFFER_FLEET(type, name)
#define DIFFER_KEPT(type, name)
#define DIFFER_SET(type, name) DIFFER(type, #name, has_##name, name)
#define GB_SESSION_FIELD(name, type, how, ...) DIFFER_##how(type, name)
#define GB_SESSION_QUOTA(name, type, ...) DIFFER(type, "quota." #name, has_quota_##name, quota.name)
#include "model/session.def"
    compare_fleet(&d, body, asked, registers, is);
    return d;
}

/* Takes the reference to params->labels. */
static enum gb_step put(struct gb_http_request *request, const json_t *body, const struct gb_session_params *params,
                        bool registers, struct gb_http_response *response, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    struct gb_differences differences;
    struct gb_session_view view;
    enum gb_step step = GB_STEP_ERROR;
    char etag[GB_ETAG_SIZE];

    if (gb_session_get(gb_api_of(request)->core, &params->name, &view, &why) < 0) {
        if (why.code == GB_ERR_SESSION_NOT_FOUND)
            return gb_register_session(request, response, params, registers ? GB_REGISTER_NEW : GB_REGISTER_NOT,
                                       gb_session_reply, err);
        gb_text_unref(params->labels);
        gb_error_move(err, &why);
        return GB_STEP_ERROR;
    }
    differences = compare(body, params, registers, &view.rec);
    gb_text_unref(params->labels);
    if (gb_confirm(request, "session", &params->name, &differences, GB_ERR_SESSION_EXISTS, err) == 0 &&
        gb_http_response_header(response, err, "ETag", "\"%s\"", gb_etag_session(&view, etag)) == 0)
        step = send_session(request, &view, 200, response, err);
    gb_session_rec_done(&view.rec);
    return step;
}

enum gb_step gb_api_session_put(struct gb_http_request *request, struct gb_http_response *response,
                                struct gb_error *err) {
    struct gb_session_params params = {.has_labels = false};
    enum gb_step step = GB_STEP_ERROR;
    bool registers = false;
    json_t *body;

    if (gb_param_name(request, 0, "session name", &params.name, err) < 0 ||
        gb_put_read(request, &params.name, create_fields, &body, err) < 0)
        return GB_STEP_ERROR;
    if (read_rest(body, &params, &registers, err) == 0)
        step = put(request, body, &params, registers, response, err);
    else
        gb_text_unref(params.labels);
    json_decref(body);
    return step;
}

/* --- read --------------------------------------------------------------------------------------------------------- */

static bool same_session(struct gb_core *core, const struct gb_http_request *request, const char *tag) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_view view;
    struct gb_name name;
    char etag[GB_ETAG_SIZE];

    if (gb_param_name(request, 0, "session name", &name, &err) < 0 || gb_session_get(core, &name, &view, &err) < 0)
        return false;
    gb_session_rec_done(&view.rec);
    return strcmp(gb_etag_session(&view, etag), tag) == 0;
}

enum gb_step gb_api_session_get(struct gb_http_request *request, struct gb_http_response *response,
                                struct gb_error *err) {
    struct gb_session_view view;
    struct gb_name name;
    char etag[GB_ETAG_SIZE];
    uint64_t sequence = gb_core_sequence(gb_api_of(request)->core);
    enum gb_step step;
    int r;

    if (gb_param_name(request, 0, "session name", &name, err) < 0 ||
        gb_session_get(gb_api_of(request)->core, &name, &view, err) < 0)
        return GB_STEP_ERROR;
    r = gb_conditions_get(request, gb_etag_session(&view, etag), response, err);
    if (r < 0)
        step = GB_STEP_ERROR;
    else if (r == 0)
        step = gb_poll_unchanged(gb_api_of(request)->polls, request, response, gb_api_session_get, same_session, etag,
                                 sequence);
    else
        step = send_session(request, &view, 200, response, err);
    gb_session_rec_done(&view.rec);
    return step;
}

/* null: "". */
static int read_pool(const json_t *body, struct gb_session_params *params, struct gb_error *err) {
    const json_t *pool = json_object_get(body, "pool");

    params->has_pool = pool != NULL;
    params->pool = (struct gb_name){""};
    if (!pool || json_is_null(pool))
        return 0;
    return gb_json_name(body, "pool", &params->pool, err) < 0 ? -1 : 0;
}

/* Labels are merged into the present ones; the check for an equal text then guards the merge. */
static int read_patch(const struct gb_http_request *request, const struct gb_name *name,
                      struct gb_session_params *params, struct gb_conditions *conditions, struct gb_error *err) {
    struct gb_session_view view = {.rec = {.labels = NULL, .holders = NULL}};
    json_t *body;
    int r;

    if (gb_body_object(request, patch_fields, false, &body, err) < 0)
        return -1;
    r = read_pool(body, params, err);
    if (r == 0)
        r = gb_session_get(gb_api_of(request)->core, name, &view, err);
    if (r == 0)
        r = read_fields(body, gb_labels_text(view.rec.labels), params, err);
    if (r == 0 && params->replicas > 0 && view.rec.fleet_epoch == 0)
        r = gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                         "other nodes keep copies for sessions that are registered in a fleet, and this one is not");
    if (r == 0 && params->has_labels)
        r = gb_conditions_labels(conditions, gb_labels_text(view.rec.labels), err);
    gb_session_rec_done(&view.rec);
    json_decref(body);
    return r;
}

static enum gb_step patch(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct gb_session_params params = {.has_labels = false};
    struct gb_session_check check;
    struct gb_conditions *conditions;
    struct gb_session_call *call = NULL;
    struct gb_name name;

    if (gb_param_name(request, 0, "session name", &name, err) < 0 || gb_conditions_read(request, &conditions, err) < 0)
        return GB_STEP_ERROR;
    if (read_patch(request, &name, &params, conditions, err) == 0)
        call = gb_async_begin(request, sizeof(*call), err);
    if (!call) {
        gb_text_unref(params.labels);
        gb_conditions_free(conditions);
        return GB_STEP_ERROR;
    }
    check = gb_conditions_session_check(conditions);
    gb_async_retry(request, patch);
    gb_session_patch(gb_api_of(request)->core, &name, &params, &check, call);
    gb_text_unref(params.labels);
    return gb_async_end(request, response, gb_session_reply, 0, err);
}

/* The tenant has room for it. */
static enum gb_step resized(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    gb_asking_end(request);
    gb_request_hooks_stay(request, false);
    return patch(request, response, err);
}

/* A larger quota of a session of a tenant is the tenant's to give: the directory is asked before it is true here. */
static enum gb_step ask_tenant(struct gb_http_request *request, const struct gb_fleet_session *mine, uint64_t bytes,
                               struct gb_http_response *response, struct gb_error *err) {
    struct gb_asking *asking;

    gb_request_hooks_stay(request, true);
    asking = gb_asking_begin(request, resized, err);
    if (!asking)
        return GB_STEP_ERROR;
    asking->of.resize.session = *mine;
    asking->of.resize.session.quota_bytes = bytes;
    gb_fleet_resize(asking->fleet, &asking->of.resize);
    return gb_asking_wait(request, response, err);
}

/* What the directory gave stays given: whatever can be refused without it is refused before it is asked. */
static int check_patch(const struct gb_http_request *request, const struct gb_name *name,
                       struct gb_session_params *params, struct gb_error *err) {
    struct gb_session_view view = {.rec = {.labels = NULL, .holders = NULL}};
    struct gb_conditions *conditions;
    int r;

    if (gb_conditions_read(request, &conditions, err) < 0)
        return -1;
    r = read_patch(request, name, params, conditions, err);
    if (r == 0)
        r = gb_session_get(gb_api_of(request)->core, name, &view, err);
    if (r == 0)
        r = gb_conditions_session(conditions, &view.rec, err);
    gb_session_rec_done(&view.rec);
    gb_conditions_free(conditions);
    return r;
}

enum gb_step gb_api_session_patch(struct gb_http_request *request, struct gb_http_response *response,
                                  struct gb_error *err) {
    struct gb_session_params params = {.has_labels = false};
    struct gb_fleet_session mine;
    struct gb_name name;
    int r;

    if (!gb_api_of(request)->fleet || gb_param_name(request, 0, "session name", &name, NULL) < 0 ||
        !gb_fleet_session(gb_api_of(request), &name, &mine) || mine.tenant.s[0] == '\0')
        return patch(request, response, err);
    r = check_patch(request, &name, &params, err);
    gb_text_unref(params.labels);
    if (r < 0)
        return GB_STEP_ERROR;
    if (!params.has_quota_bytes || params.quota.bytes <= mine.quota_bytes)
        return patch(request, response, err);
    if (params.quota.bytes != GB_UNLIMITED)
        return ask_tenant(request, &mine, params.quota.bytes, response, err);
    gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a session of a tenant needs 'quota' with 'bytes'");
    return GB_STEP_ERROR;
}

static enum gb_step reply_deleted(struct gb_http_request *request, const void *result,
                                  struct gb_http_response *response, struct gb_error *err) {
    gb_operations_session_gone(gb_api_of(request)->operations, request->param[0].s, GB_ERR_SESSION_NOT_FOUND);
    return gb_reply_nothing(request, result, response, err);
}

enum gb_step gb_api_session_delete(struct gb_http_request *request, struct gb_http_response *response,
                                   struct gb_error *err) {
    struct gb_session_check check;
    struct gb_conditions *conditions;
    struct gb_call *call;
    struct gb_name name;

    if (gb_param_name(request, 0, "session name", &name, err) < 0 || gb_conditions_read(request, &conditions, err) < 0)
        return GB_STEP_ERROR;
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call) {
        gb_conditions_free(conditions);
        return GB_STEP_ERROR;
    }
    check = gb_conditions_session_check(conditions);
    gb_session_delete(gb_api_of(request)->core, &name, &check, call);
    return gb_async_end(request, response, reply_deleted, 0, err);
}

enum gb_step gb_api_session_heartbeat(struct gb_http_request *request, struct gb_http_response *response,
                                      struct gb_error *err) {
    struct gb_session_view view;
    struct gb_json_writer out = {0};
    struct gb_name name;

    if (gb_param_name(request, 0, "session name", &name, err) < 0 || gb_body_no_fields(request, err) < 0 ||
        gb_session_heartbeat(gb_api_of(request)->core, &name, &view, err) < 0)
        return GB_STEP_ERROR;
    gb_session_rec_done(&view.rec);
    gb_json_open(&out, NULL, '{');
    gb_json_put_string(&out, "name", view.rec.name.s);
    gb_json_put_u64(&out, "idle_ttl_s", view.rec.idle_ttl_s);
    gb_json_put_time_or_null(&out, "expires_at", view.expires_at_us);
    gb_json_close(&out, '}');
    return gb_reply_json(&out, 200, response, err);
}

static int visit(void *arg, const struct gb_session_view *view, struct gb_error *err) {
    struct gb_walk *walk = arg;
    const struct gb_list_item item = {.id = view->rec.id,
                                      .name = view->rec.name.s,
                                      .labels = gb_labels_text(view->rec.labels),
                                      .sort = {0, (uint64_t)view->rec.created_at_us, (uint64_t)view->rec.updated_at_us,
                                               view->used_bytes, view->buffers}};

    (void)err;
    if (gb_walk_takes(walk, &item))
        gb_render_session(&walk->out, NULL, walk->api, view);
    return walk->full;
}

static int list(struct gb_walk *walk, struct gb_error *err) {
    return gb_session_list(walk->api->core, &walk->page, visit, walk, err);
}

enum gb_step gb_api_session_list(struct gb_http_request *request, struct gb_http_response *response,
                                 struct gb_error *err) {
    static const struct gb_list_offer offer = {.sorts = {"name", "created_at", "updated_at", "used_bytes", "buffers"},
                                               .sort_count = 5};

    return gb_reply_page(request, response, &offer, list, err);
}
