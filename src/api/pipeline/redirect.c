/* Requests for sessions that this node may not have: sent on to the node that has one, or held until the session is
 * known to be its own. */
#include "api/pipeline/redirect.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/context.h"
#include "api/pipeline/hook.h"
#include "api/reply.h"
#include "api/request/query.h"
#include "base/clock.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "core/core.h"
#include "fleet/fleet.h"
#include "fleet/move/move.h"
#include "fleet/replica/replica.h"
#include "http/http.h"

/* --- ownership ---------------------------------------------------------------------------------------------------- */

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

/* *ret: the epoch that the client knows; 0: it names no epoch. */
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
    if ((known > (uint64_t)bond->epoch && gb_fleet_report_epoch(fleet, &name, known)) ||
        gb_fleet_owner_is_uncertain(fleet, name.s)) {
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
    if (!bond->stops_on_partition || gb_fleet_lease_is_valid(gb_api_of(request)->fleet))
        return 0;
    refuse_uncertain(request, response, err);
    return -1;
}

/* A change that was made while the lease ran out may be another node's to answer for. */
static enum gb_step check_answer(const struct gb_http_request *request, const struct gb_session_bond *bond,
                                 struct gb_http_response *response, struct gb_error *err) {
    if (gb_route_reads(gb_route_of(request)) || response->status >= 400 || !bond->stops_on_partition ||
        (gb_fleet_lease_is_valid(gb_api_of(request)->fleet) &&
         !gb_fleet_owner_is_uncertain(gb_api_of(request)->fleet, request->param[0].s)))
        return GB_STEP_REPLY;
    gb_http_response_done(response);
    return refuse_uncertain(request, response, err);
}

/* gb_api_pipeline for a node that is in a fleet. bond: of the session that is named, if it is here; else NULL.
 *
 * A request is refused with SUPERSEDED if it names a higher epoch (the field Gpubuf-Epoch) and the directory has not
 * just denied that, if the directory has given the session to another node, or if it changes a session that was set
 * aside. A request is refused with OWNER_UNCERTAIN if the session stops at a partition and the node's lease may have
 * expired. A change is checked again before it is answered. */
static enum gb_step ownership_pipeline(gb_http_handler *handler, struct gb_http_request *request,
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

/* --- redirect ----------------------------------------------------------------------------------------------------- */

_Static_assert(GB_HTTP_INSTEAD_SIZE > GB_NAME_MAX, "a name has room in place of another");

#define ABSENT_RETRY_S 10
#define SILENT_RETRY_S 5

const char *const gb_redirect_asides[GB_ASIDES] = {[GB_ASIDE_VIA] = "via", [GB_ASIDE_TICKET] = "ticket"};

/* --- via ---------------------------------------------------------------------------------------------------------- */

int gb_via_read(const struct gb_http_request *request, struct gb_via *ret, struct gb_error *err) {
    const struct gb_http_text *text = &request->aside[GB_ASIDE_VIA];
    const char *dot = text->s ? strchr(text->s, '.') : NULL;

    *ret = (struct gb_via){.given = text->s != NULL};
    if (!text->s)
        return 0;
    if (!dot || gb_parse_u64(text->s, (size_t)(dot - text->s), &ret->epoch) != GB_PARSE_OK ||
        gb_parse_u64(dot + 1, text->len - (size_t)(dot + 1 - text->s), &ret->hops) != GB_PARSE_OK)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "via is EPOCH.HOPS, as a node of the fleet writes it into the Location of a redirect");
    return 0;
}

enum gb_redirect_way gb_redirect_way_of(const struct gb_fleet_find *find, const struct gb_name *self,
                                        const struct gb_name *network, const struct gb_via *via, bool is_local) {
    if (gb_name_equal(&find->session.node, self))
        return GB_REDIRECT_HERE;
    if (is_local)
        return GB_REDIRECT_LOCAL;
    if (via->given && (find->session.epoch <= via->epoch || via->hops >= GB_FLEET_HOPS_MAX))
        return GB_REDIRECT_KNOWN;
    if (!find->owner.alive)
        return GB_REDIRECT_ABSENT;
    return gb_fleet_url_on(&find->owner, network) ? GB_REDIRECT_GO : GB_REDIRECT_UNREACHABLE;
}

const struct gb_name *gb_redirect_network(const struct gb_http_request *request) {
    static const struct gb_name standard = {"default"};
    const struct gb_api_fleet *is = &gb_api_of(request)->fleet_is;
    size_t i;

    if (request->listener < is->network_count && is->networks[request->listener].s[0] != '\0')
        return &is->networks[request->listener];
    /* Over the UNIX socket: a client on this machine reaches what the daemon reaches. */
    for (i = 0; i < is->network_count; i++) {
        if (is->networks[i].s[0] != '\0')
            return &is->networks[i];
    }
    return &standard;
}

/* --- the reply ---------------------------------------------------------------------------------------------------- */

enum gb_step gb_redirect_later(struct gb_http_response *response, unsigned seconds, struct gb_error *err) {
    gb_http_response_header(response, err, "Retry-After", "%u", seconds);
    return GB_STEP_ERROR;
}

enum gb_step gb_redirect_silent(struct gb_http_response *response, struct gb_error *err) {
    if (err->code != GB_ERR_DIRECTORY_UNAVAILABLE)
        gb_error_set(err, GB_ERR_DIRECTORY_UNAVAILABLE, "the fleet's directory has not answered in the permitted time");
    return gb_redirect_later(response, SILENT_RETRY_S, err);
}

char *gb_redirect_url(const struct gb_http_request *request, const char *base, const struct gb_name *node,
                      const char *method, const char *path, const char *query) {
    char who[GB_TICKET_WHO_SIZE];
    char ticket[GB_FLEET_TICKET_SIZE];
    bool has_ticket = gb_api_ticket_who(request, who) && gb_fleet_ticket_make(gb_api_of(request)->fleet, method, path,
                                                                              query, node, who, ticket, NULL) == 0;
    char *url = NULL;

    if (asprintf(&url, "%s%s%s%s%s%s", base, path, query[0] ? "?" : "", query,
                 !has_ticket ? ""
                 : query[0]  ? "&ticket="
                             : "?ticket=",
                 has_ticket ? ticket : "") < 0)
        return NULL;
    return url;
}

/* Where the same request goes at the other node; NULL when memory is exhausted. */
static char *target_at(const struct gb_http_request *request, const struct gb_name *node, const char *base,
                       uint64_t epoch, uint64_t hops) {
    const char *shown = request->shown.s ? request->shown.s : request->target.s;
    const char *question = strchr(shown, '?');
    char *path = strndup(shown, strcspn(shown, "?"));
    char *query = NULL;
    char *url = NULL;

    if (asprintf(&query, "%s%svia=%" PRIu64 ".%" PRIu64, question ? question + 1 : "",
                 question && question[1] != '\0' ? "&" : "", epoch, hops) < 0)
        query = NULL;
    if (path && query)
        url = gb_redirect_url(request, base, node, gb_http_method_name(request->method), path, query);
    free(path);
    free(query);
    return url;
}

enum gb_step gb_redirect_to(const struct gb_http_request *request, struct gb_http_response *response,
                            const struct gb_name *node, const char *base, uint64_t epoch, uint64_t hops,
                            struct gb_error *err) {
    char *url = target_at(request, node, base, epoch, hops);
    struct gb_json_writer out = {0};

    if (!url) {
        gb_error_memory(err, "request");
        return GB_STEP_ERROR;
    }
    gb_json_open(&out, NULL, '{');
    gb_json_put_string(&out, "node", node->s);
    gb_json_put_untrusted(&out, "url", url, SIZE_MAX);
    if (epoch > 0)
        gb_json_put_u64(&out, "epoch", epoch);
    else
        gb_json_put_null(&out, "epoch");
    gb_json_close(&out, '}');
    if (gb_http_response_long_header(response, err, "Location", url) < 0 ||
        gb_http_response_header(response, err, "Cache-Control", "no-store") < 0 ||
        gb_http_response_header(response, err, "Gpubuf-Owner", "%s", node->s) < 0 ||
        (epoch > 0 && gb_http_response_header(response, err, "Gpubuf-Epoch", "%" PRIu64, epoch) < 0)) {
        gb_json_done(&out);
        return GB_STEP_ERROR;
    }
    atomic_fetch_add(&gb_api_of(request)->redirects, 1);
    return gb_reply_json(&out, 307, response, err);
}

void gb_redirect_epoch(const struct gb_http_request *request, int64_t epoch, struct gb_http_response *response) {
    struct gb_fleet_stat stat;

    if (epoch <= 0)
        return;
    gb_http_response_header(response, NULL, "Gpubuf-Epoch", "%" PRId64, epoch);
    if (gb_fleet_is_joined(gb_api_of(request)->fleet))
        return;
    gb_fleet_stat(gb_api_of(request)->fleet, &stat);
    if (stat.state != GB_FLEET_JOINED)
        gb_http_response_header(response, NULL, "Gpubuf-Fleet", "alone; since=%llu",
                                (unsigned long long)((gb_clock_ns() - stat.since_ns) / GB_NS_PER_S));
}

/* --- the look-up -------------------------------------------------------------------------------------------------- */

/* The session may be another node's. The handler refuses a malformed name. */
static bool elsewhere(const struct gb_http_request *request, struct gb_name *ret) {
    return gb_name_parse("session name", request->param[0].s, request->param[0].len, ret, NULL) == 0;
}

struct looking {
    struct gb_fleet_find find; /* its ask is first */
    struct gb_http_request *request;
    struct gb_fleet *fleet;
    struct gb_via via;
    atomic_bool done;
};

static void found(struct gb_fleet_ask *ask) {
    struct looking *looking = (struct looking *)ask;

    atomic_store(&looking->done, true);
    gb_http_wake(looking->request);
}

static void looking_free(void *state) {
    struct looking *looking = state;

    gb_fleet_cancel(looking->fleet, &looking->find.ask);
    free(looking);
}

static enum gb_step absent(const struct gb_fleet_find *find, struct gb_http_response *response, struct gb_error *err) {
    struct gb_json_writer more = {.comma = true};

    gb_error_set(err, GB_ERR_OWNER_ABSENT,
                 "the session \"%s\" is on the node \"%s\", which does not answer to its fleet%s; try again later",
                 find->session.name.s, find->session.node.s, find->stale ? ", as far as is known here" : "");
    gb_json_put_string(&more, "node", find->session.node.s);
    gb_json_put_u64(&more, "absent_s", find->absent_s);
    gb_json_put_u64(&more, "epoch", find->session.epoch);
    gb_json_put_string(&more, "on_partition", find->session.on_partition == GB_ON_PARTITION_STOP ? "stop" : "serve");
    if (more.failed)
        gb_json_done(&more);
    gb_http_response_problem(response, NULL, more.s, more.used);
    return gb_redirect_later(response, ABSENT_RETRY_S, err);
}

/* For processes of this machine: memory of another one cannot be mapped. */
static bool is_local(const struct gb_http_request *request) {
    const char *path = request->route->path;

    return gb_route_of(request)->access == GB_ACCESS_MAP ||
           strcmp(path + strlen(path) - strlen("/adopt"), "/adopt") == 0;
}

bool gb_redirect_moved_here(struct gb_api *api, const struct gb_name *name) {
    bool moved;

    pthread_mutex_lock(&api->fleet_lock);
    moved = gb_moves_have(api->moves, name);
    pthread_mutex_unlock(&api->fleet_lock);
    return moved;
}

enum gb_step gb_redirect_refuse(const struct gb_http_request *request, const struct gb_fleet_find *find,
                                enum gb_redirect_way way, const struct gb_name *network,
                                struct gb_http_response *response, struct gb_error *err) {
    const char *name = find->session.name.s;
    const char *node = find->session.node.s;

    switch (way) {
    case GB_REDIRECT_GO:
        break;
    case GB_REDIRECT_ABSENT:
        return absent(find, response, err);
    case GB_REDIRECT_HERE:
        if (gb_redirect_moved_here(gb_api_of(request), &find->session.name)) {
            gb_error_set(err, GB_ERR_SESSION_MOVING,
                         "the session \"%s\" is being brought here, and is here in a moment; try again", name);
            break;
        }
        gb_fleet_report_missing(gb_api_of(request)->fleet, &find->session.name, find->session.claim);
        gb_error_set(err, GB_ERR_OWNER_UNKNOWN,
                     "the fleet's directory says that this node has the session \"%s\", and it has not", name);
        break;
    case GB_REDIRECT_KNOWN:
        gb_error_set(err, GB_ERR_OWNER_UNKNOWN,
                     "the request was sent here for the session \"%s\", which is not here; the directory names the "
                     "node \"%s\" and nothing newer",
                     name, node);
        break;
    case GB_REDIRECT_UNREACHABLE:
        gb_error_set(err, GB_ERR_NODE_UNREACHABLE,
                     "the session \"%s\" is on the node \"%s\", which has no address in the network \"%s\"", name, node,
                     network->s);
        break;
    case GB_REDIRECT_LOCAL:
        gb_error_set(err, GB_ERR_NOT_HERE,
                     "the session \"%s\" is on the node \"%s\": its memory is shared with processes of that machine",
                     name, node);
        break;
    }
    return GB_STEP_ERROR;
}

/* Sealed bytes are the same wherever they are. */
static bool may_stand_in(const struct gb_http_request *request) {
    return (request->method == GB_HTTP_GET || request->method == GB_HTTP_HEAD) &&
           (strcmp(request->route->path, "/v1/sessions/{session}/buffers/{buffer}/data") == 0 ||
            strcmp(request->route->path, "/v1/sessions/{session}/buffers/{buffer}") == 0);
}

/* The copy that this node has of the buffer, sealed; it takes the place of the session that was asked for. */
static bool has_copy(const struct gb_http_request *request, const struct gb_fleet_find *find, struct gb_name *ret) {
    struct gb_api *api = gb_api_of(request);
    const struct gb_fleet_holder *holder = gb_fleet_holder_of(&find->session, &api->fleet_is.node);
    struct gb_buffer_rec rec;
    struct gb_locator at;
    bool sealed;

    if (!holder || !api->replicas || find->stale ||
        !gb_replicas_stage(api->replicas, &find->session.name, holder->number, ret) ||
        gb_name_parse("buffer name", request->param[1].s, request->param[1].len, &at.name, NULL) < 0)
        return false;
    at.session = *ret;
    if (gb_buffer_get(api->core, &at, &rec, NULL) < 0)
        return false;
    sealed = rec.sealed;
    gb_buffer_rec_done(&rec);
    return sealed;
}

/* While the owner is away. The entity tags are this node's: Repr-Digest shows that the bytes are the same. */
static enum gb_step stand_in(struct looking *looking, struct gb_http_response *response, struct gb_error *err) {
    struct gb_http_request *request = looking->request;
    const struct gb_name *network = gb_redirect_network(request);
    const struct gb_fleet_find *find = &looking->find;
    const char *url = gb_fleet_url_on(&find->replica, network);
    struct gb_session_bond bond;
    struct gb_name stage;

    if (has_copy(request, find, &stage) && gb_session_bond(gb_api_of(request)->core, stage.s, &bond)) {
        snprintf(request->instead, sizeof(request->instead), "%s", stage.s);
        request->param[0] = (struct gb_http_text){.s = request->instead, .len = strlen(request->instead)};
        return ownership_pipeline(request->route->handler, request, &bond, response, err);
    }
    if (looking->via.given && looking->via.hops >= GB_FLEET_HOPS_MAX)
        return absent(find, response, err);
    if (find->stale || !url || gb_name_equal(&find->replica.name, &gb_api_of(request)->fleet_is.node))
        return absent(find, response, err);
    gb_http_response_header(response, NULL, "Gpubuf-Replica", "true");
    return gb_redirect_to(request, response, &find->replica.name, url, find->session.epoch, looking->via.hops + 1, err);
}

static enum gb_step go(struct looking *looking, struct gb_http_response *response, struct gb_error *err) {
    struct gb_http_request *request = looking->request;
    const struct gb_name *network = gb_redirect_network(request);
    const struct gb_fleet_find *find = &looking->find;
    enum gb_redirect_way way =
        gb_redirect_way_of(find, &gb_api_of(request)->fleet_is.node, network, &looking->via, is_local(request));

    if (!find->owner.alive && find->session.holder_count > 0 && may_stand_in(request))
        return stand_in(looking, response, err);
    if (way != GB_REDIRECT_GO)
        return gb_redirect_refuse(request, find, way, network, response, err);
    return gb_redirect_to(request, response, &find->session.node, gb_fleet_url_on(&find->owner, network),
                          find->session.epoch, looking->via.hops + 1, err);
}

/* The directory has no such session, or names this node: it may have been made here meanwhile. */
static enum gb_step serve(struct gb_http_request *request, struct gb_http_response *response, bool waited,
                          struct gb_error *err) {
    struct gb_session_bond bond;
    bool here = gb_session_bond(gb_api_of(request)->core, request->param[0].s, &bond);

    if (waited && here && request->route->body == GB_BODY_STREAM) {
        gb_error_set(err, GB_ERR_OWNER_UNKNOWN, "the session \"%s\" was made just now; try again", request->param[0].s);
        return GB_STEP_ERROR;
    }
    return ownership_pipeline(request->route->handler, request, here ? &bond : NULL, response, err);
}

static enum gb_step answer(struct gb_http_request *request, struct gb_http_response *response, bool waited,
                           struct gb_error *err) {
    struct looking *looking = request->state;
    struct gb_session_bond bond;
    struct gb_name name;
    enum gb_code code = looking->find.ask.error.code;
    bool here = code == GB_OK && gb_name_equal(&looking->find.session.node, &gb_api_of(request)->fleet_is.node) &&
                gb_session_bond(gb_api_of(request)->core, request->param[0].s, &bond);
    enum gb_step step = GB_STEP_ERROR;

    if (code == GB_ERR_SESSION_NOT_FOUND && elsewhere(request, &name))
        gb_session_forget_left(gb_api_of(request)->core, &name);

    request->state = NULL;
    request->state_free = NULL;
    if (here || code == GB_ERR_SESSION_NOT_FOUND) {
        looking_free(looking);
        return serve(request, response, waited, err);
    }
    if (code == GB_OK)
        step = go(looking, response, err);
    else
        *err = looking->find.ask.error;
    if (code == GB_ERR_DIRECTORY_UNAVAILABLE)
        step = gb_redirect_silent(response, err);
    else if (code == GB_ERR_OWNER_UNKNOWN)
        step = gb_redirect_later(response, gb_fleet_suspect_s(looking->fleet) + 1, err);
    looking_free(looking);
    return step;
}

static enum gb_step looked_up(struct gb_http_request *request, struct gb_http_response *response,
                              struct gb_error *err) {
    struct looking *looking = request->state;

    if (atomic_load(&looking->done))
        return answer(request, response, true, err);
    if (!request->timed_out)
        return GB_STEP_WAIT;
    return gb_redirect_silent(response, err);
}

static enum gb_step look_up(struct gb_http_request *request, const struct gb_name *name,
                            struct gb_http_response *response, struct gb_error *err) {
    struct looking *looking = calloc(1, sizeof(*looking));

    if (!looking) {
        gb_error_memory(err, "request");
        return GB_STEP_ERROR;
    }
    if (gb_via_read(request, &looking->via, err) < 0) {
        free(looking);
        return GB_STEP_ERROR;
    }
    looking->request = request;
    looking->fleet = gb_api_of(request)->fleet;
    looking->find.ask.done = found;
    request->state = looking;
    request->state_free = looking_free;
    request->resume = looked_up;
    request->deadline_ns = 0;
    if (gb_fleet_find(looking->fleet, name, looking->via.given, &looking->find))
        return answer(request, response, false, err);
    return GB_STEP_WAIT;
}

/* --- around ------------------------------------------------------------------------------------------------------- */

enum gb_step gb_redirect_around(gb_http_handler *handler, struct gb_http_request *request,
                                struct gb_http_response *response, struct gb_error *err) {
    struct gb_session_bond bond;
    bool names = gb_route_of(request)->target >= GB_TARGET_SESSION;
    bool here = names && gb_session_bond(gb_api_of(request)->core, request->param[0].s, &bond);
    struct gb_name name;
    enum gb_step step;

    if (handler == looked_up)
        step = looked_up(request, response, err);
    else if (names && !here && handler == request->route->handler && elsewhere(request, &name))
        step = look_up(request, &name, response, err);
    else
        step = ownership_pipeline(handler, request, here ? &bond : NULL, response, err);
    if (request->instead[0] != '\0' && step == GB_STEP_REPLY && response->status != 307)
        gb_http_response_header(response, NULL, "Gpubuf-Replica", "true");
    if (here && (step == GB_STEP_REPLY || step == GB_STEP_ERROR) && response->status != 307)
        gb_redirect_epoch(request, bond.epoch, response);
    return step;
}
