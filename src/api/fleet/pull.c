/* Pulls: copies whose source is a URL, or a session of another node. The request is read here, the nodes that it may go
 * to are found in the directory, and fleet/pull moves the bytes. resources/writes.c calls this. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "api/auth.h"
#include "api/context.h"
#include "api/fleet/ask.h"
#include "api/pipeline/async.h"
#include "api/pipeline/conditional.h"
#include "api/pipeline/digest.h"
#include "api/pipeline/redirect.h"
#include "api/request/body.h"
#include "api/request/query.h"
#include "api/resources/sources.h"
#include "base/container.h"
#include "fleet/fleet.h"
#include "fleet/pull/pull.h"

#define SOURCE_FIELDS "url token if_match parts digest"
#define TOKEN_MAX 1024

/* --- nodes and their origins -------------------------------------------------------------------------------------- */

/* The node that has that origin, or NULL. */
static const struct gb_fleet_node *node_at(const struct gb_fleet_nodes *nodes, const char *origin) {
    char own[GB_PULL_ORIGIN_SIZE];
    size_t i;
    size_t j;

    for (i = 0; i < nodes->count; i++)
        for (j = 0; j < nodes->items[i].url_count; j++)
            if (gb_pull_origin_read(nodes->items[i].urls[j].url, own, NULL) == 0 && strcmp(own, origin) == 0)
                return &nodes->items[i];
    return NULL;
}

/* The origins of all nodes, and those that options name: one block of memory, which the caller frees. NULL: memory is
 * exhausted. */
static char **origins_of(const struct gb_api *api, const struct gb_fleet_nodes *nodes, size_t *ret_count) {
    size_t most = api->pull_from_count + nodes->count * GB_FLEET_NETWORKS_MAX;
    char **list = calloc(1, (most + 1) * (sizeof(char *) + GB_PULL_ORIGIN_SIZE));
    char *text = (char *)(list + most + 1);
    size_t n = 0;
    size_t i;
    size_t j;

    if (!list)
        return NULL;
    for (i = 0; i < api->pull_from_count; i++, text += GB_PULL_ORIGIN_SIZE)
        list[n++] = strcpy(text, api->pull_from[i]);
    for (i = 0; i < nodes->count; i++)
        for (j = 0; j < nodes->items[i].url_count; j++)
            if (gb_pull_origin_read(nodes->items[i].urls[j].url, text, NULL) == 0) {
                list[n++] = text;
                text += GB_PULL_ORIGIN_SIZE;
            }
    *ret_count = n;
    return list;
}

static const struct gb_name *network_of(const struct gb_api *api, const struct gb_fleet_node *node,
                                        const struct gb_name *otherwise) {
    const struct gb_api_fleet *is = &api->fleet_is;
    size_t i;

    for (i = 0; i < is->url_count; i++)
        if (gb_fleet_url_on(node, &is->urls[i].network))
            return &is->urls[i].network;
    return otherwise;
}

/* A network in which this node reaches that one, else one of its own. */
static const struct gb_name *network_to(const struct gb_http_request *request, const struct gb_fleet_node *node) {
    return network_of(gb_api_of(request), node, gb_redirect_network(request));
}

/* --- tickets ------------------------------------------------------------------------------------------------------ */

struct tickets {
    struct gb_fleet *fleet;
    struct gb_name node;
    char who[GB_TICKET_WHO_SIZE];
};

static char *make_ticket(void *arg, const char *method, const char *path) {
    const struct tickets *tickets = arg;

    return gb_fleet_ticket_query(tickets->fleet, method, path, &tickets->node, tickets->who);
}

/* who "": no tokens are in force, and no ticket is needed. */
static int take_ticket(struct gb_fleet *fleet, const struct gb_name *node, const char *who, struct gb_pull_ticket *ret,
                       struct gb_error *err) {
    struct tickets *tickets;

    if (who[0] == '\0')
        return 0;
    tickets = calloc(1, sizeof(*tickets));
    if (!tickets)
        return gb_error_memory(err, "request");
    tickets->fleet = fleet;
    tickets->node = *node;
    strcpy(tickets->who, who);
    *ret = (struct gb_pull_ticket){make_ticket, tickets, free};
    return 0;
}

/* --- where the source is now -------------------------------------------------------------------------------------- */

/* Asked by one thread of the pull at a time, with one ask open. */
struct seeker {
    const struct gb_api *api;
    struct gb_name session;
    struct gb_name
        node; /* which must be the session's, unless the source has said that it is registered; "": need not */
    struct gb_name network; /* "": the two nodes have no network in common */
    char who[GB_TICKET_WHO_SIZE];
    int done; /* readable: the ask has ended */
    size_t turn;
    struct gb_fleet_find find;
    struct gb_fleet_nodes nodes;
};

static void seeker_free(void *arg) {
    struct seeker *seeker = arg;

    close(seeker->done);
    free(seeker->nodes.items);
    free(seeker);
}

static void found(struct gb_fleet_ask *ask) {
    (void)eventfd_write(gb_container_of(ask, struct seeker, find.ask)->done, 1);
}

static void listed(struct gb_fleet_ask *ask) {
    (void)eventfd_write(gb_container_of(ask, struct seeker, nodes.ask)->done, 1);
}

/* Returns 0 or -1. Each ask ends within seconds; a pull that is to end does not wait for it. */
static int await(struct seeker *seeker, struct gb_pull *pull, struct gb_fleet_ask *ask, struct gb_error *err) {
    eventfd_t n;

    if (!gb_pull_wait(pull, seeker->done)) {
        gb_fleet_cancel(seeker->api->fleet, ask);
        (void)eventfd_read(seeker->done, &n); /* it may have ended by then */
        return gb_error_set(err, GB_ERR_CANCELLED, "the pull is to end");
    }
    (void)eventfd_read(seeker->done, &n);
    return ask->error.code == GB_OK ? 0 : gb_error_move(err, &ask->error);
}

static int look_up(struct seeker *seeker, struct gb_pull *pull, struct gb_error *err) {
    struct gb_fleet_find *find = &seeker->find;

    *find = (struct gb_fleet_find){.ask = {.done = found}};
    if (!gb_fleet_find(seeker->api->fleet, &seeker->session, false, find))
        return await(seeker, pull, &find->ask, err);
    return find->ask.error.code == GB_OK ? 0 : gb_error_move(err, &find->ask.error);
}

static int list_nodes(struct seeker *seeker, struct gb_pull *pull, struct gb_error *err) {
    free(seeker->nodes.items);
    seeker->nodes = (struct gb_fleet_nodes){.ask = {.done = listed}};
    gb_fleet_list_nodes(seeker->api->fleet, &seeker->nodes);
    return await(seeker, pull, &seeker->nodes.ask, err);
}

/* Where this node reaches that one; false: nowhere. */
static bool origin_of(const struct seeker *seeker, const struct gb_fleet_node *node, char ret[GB_PULL_ORIGIN_SIZE]) {
    const char *url = gb_fleet_url_on(node, network_of(seeker->api, node, &seeker->network));

    return url && gb_pull_origin_read(url, ret, NULL) == 0;
}

static int go_to(const struct seeker *seeker, const struct gb_fleet_node *node, struct gb_pull_replica *ret,
                 struct gb_error *err) {
    return take_ticket(seeker->api->fleet, &node->name, seeker->who, &ret->ticket, err) < 0 ? 0 : 1;
}

/* The session may be at another node by now. One that has it still, and does not answer, may do so later; what has
 * copies takes its place when its lease has run out. */
static int seek_owner(const struct seeker *seeker, const char *lost, struct gb_pull_replica *ret,
                      struct gb_error *err) {
    const struct gb_fleet_session *session = &seeker->find.session;

    if (origin_of(seeker, &seeker->find.owner, ret->origin) && strcmp(ret->origin, lost) != 0)
        return go_to(seeker, &seeker->find.owner, ret, err);
    gb_error_set(err, GB_ERR_SOURCE_UNREACHABLE, "the directory has the node \"%s\" as alive, which has the session",
                 session->node.s);
    return session->holder_count > 0 ? 0 : -1;
}

/* Holders in turn, so that one that is alive and has not the copy keeps no other from being asked. */
static int seek_holder(struct seeker *seeker, const char *lost, struct gb_pull_replica *ret, struct gb_error *err) {
    const struct gb_fleet_session *session = &seeker->find.session;
    const struct gb_fleet_node *node;
    bool lives = false;
    size_t i;

    for (i = 0; i < session->holder_count; i++) {
        node = gb_fleet_pick(&seeker->nodes, &session->holders[seeker->turn++ % session->holder_count].node, NULL);
        if (!node || !node->alive)
            continue;
        lives = true; /* maybe without an address */
        if (origin_of(seeker, node, ret->origin) && strcmp(ret->origin, lost) != 0)
            return go_to(seeker, node, ret, err);
    }
    gb_error_set(err, GB_ERR_OWNER_ABSENT, "the node \"%s\", which has the session, is away, and %s", session->node.s,
                 lives ? "no other node that has copies can be reached" : "so are all nodes that have copies");
    return -1;
}

static int seek(void *arg, struct gb_pull *pull, const char *lost, bool registered, struct gb_pull_replica *ret,
                struct gb_error *err) {
    struct seeker *seeker = arg;
    const struct gb_fleet_session *session = &seeker->find.session;

    if (look_up(seeker, pull, err) < 0)
        return err->code == GB_ERR_SESSION_NOT_FOUND ? -1 : 0;
    /* A session that is local to its node may have the name of one of the directory. */
    if (!registered && seeker->node.s[0] != '\0' && !gb_name_equal(&seeker->node, &session->node)) {
        gb_error_set(err, GB_ERR_SOURCE_UNREACHABLE, "the directory has a session of that name at another node");
        return -1;
    }
    if (seeker->find.stale) {
        gb_error_set(err, GB_ERR_DIRECTORY_UNAVAILABLE, "the directory does not answer");
        return 0;
    }
    if (seeker->find.owner.alive)
        return seek_owner(seeker, lost, ret, err);
    if (session->holder_count == 0) {
        gb_error_set(err, GB_ERR_OWNER_ABSENT,
                     "the node \"%s\", which has the session, is away, and no node has copies of it", session->node.s);
        return -1;
    }
    return list_nodes(seeker, pull, err) < 0 ? 0 : seek_holder(seeker, lost, ret, err);
}

static int take_seeker(const struct gb_http_request *request, const struct gb_name *node, bool by_name, const char *who,
                       struct gb_pull_params *params, struct gb_error *err) {
    struct seeker *seeker = calloc(1, sizeof(*seeker));

    if (seeker)
        seeker->done = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!seeker || seeker->done < 0) {
        free(seeker);
        return gb_error_set(err, GB_ERR_SATURATED, "no memory, or no descriptor, for the request; try again later");
    }
    seeker->api = gb_api_of(request);
    seeker->session = params->from.session;
    if (!by_name)
        seeker->node = *node;
    seeker->network = *gb_redirect_network(request);
    strcpy(seeker->who, who);
    params->failover = (struct gb_pull_failover){seek, seeker, seeker_free, by_name};
    return 0;
}

/* --- what a pull from a node needs -------------------------------------------------------------------------------- */

/* Frees what nodes_take has set, where no pull takes it. */
static void nodes_drop(struct gb_pull_params *params) {
    if (params->ticket.free_arg)
        params->ticket.free_arg(params->ticket.arg);
    if (params->failover.free_arg)
        params->failover.free_arg(params->failover.arg);
}

/* The client may read at that node what it may read here, as with a redirect. Sets the ticket, and where else the pull
 * may continue. by_name: the directory has the source's session; else that holds if the node is its owner, or says so.
 * With a token of the source nothing is set, because that token counts at the source alone. Returns 0, or -1 with
 * FORBIDDEN or SATURATED and nothing set. */
static int nodes_take(const struct gb_http_request *request, const struct gb_name *node, bool by_name,
                      struct gb_pull_params *params, struct gb_error *err) {
    char who[GB_TICKET_WHO_SIZE] = "";

    if (params->token)
        return 0;
    if (gb_api_permit(request, GB_SCOPE_READ, params->from.session.s, err) < 0 ||
        gb_api_reach(request, params->from.buffer.s, err) < 0)
        return -1;
    if (!gb_api_ticket_who(request, who))
        who[0] = '\0';
    if (take_ticket(gb_api_of(request)->fleet, node, who, &params->ticket, err) < 0)
        return -1;
    if (take_seeker(request, node, by_name, who, params, err) == 0)
        return 0;
    nodes_drop(params);
    return -1;
}

/* --- the request of a pull ---------------------------------------------------------------------------------------- */

bool gb_api_pull_is_asked(const json_t *body) {
    const json_t *from = json_object_get(body, "from");

    return json_is_object(from) || (json_is_string(from) && gb_pull_url_is(json_string_value(from)));
}

/* It goes into a line of a request as it is. */
static bool is_printable(const char *text) {
    for (; *text; text++)
        if ((unsigned char)*text < '!' || (unsigned char)*text > '~')
            return false;
    return true;
}

static int read_token(const json_t *from, struct gb_pull_params *ret, struct gb_error *err) {
    int r = gb_json_string(from, "token", &ret->token, err);

    if (r <= 0)
        return r;
    if (ret->token[0] != '\0' && strlen(ret->token) <= TOKEN_MAX && is_printable(ret->token))
        return 0;
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the field 'token' must be the secret of a token of the source");
}

static int read_from(const json_t *body, struct gb_pull_params *ret, struct gb_error *err) {
    const json_t *from = json_object_get(body, "from");
    const char *url;
    int r;

    if (json_is_string(from))
        return gb_pull_url_read(json_string_value(from), &ret->from, err);
    if (gb_json_known(from, "from", SOURCE_FIELDS, err) < 0)
        return -1;
    r = gb_json_string(from, "url", &url, err);
    if (r == 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "give 'url' within 'from': the URL of the buffer to copy");
    if (r < 0 || gb_pull_url_read(url, &ret->from, err) < 0)
        return -1;
    if (read_token(from, ret, err) < 0 || gb_action_read_tag(from, "if_match", &ret->if_match, err) < 0 ||
        gb_api_read_parts(from, &ret->connections, err) < 0)
        return -1;
    return gb_digest_set_read(from, &ret->digests, err);
}

/* The condition on the source stands in the body if `from` is a text. */
static int read_condition(const json_t *body, struct gb_pull_params *ret, struct gb_error *err) {
    int r;

    if (!json_is_object(json_object_get(body, "from"))) {
        r = gb_action_read_tag(body, "from_if_match", &ret->if_match, err);
        ret->tag_is_condition = r > 0;
        return r < 0 ? -1 : 0;
    }
    if (json_object_get(body, "from_if_match"))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "give 'if_match' within 'from', and 'from_if_match' where 'from' is a text");
    return 0;
}

/* All of a source is pulled, into memory of its own. */
static int refuse_parts(const json_t *body, struct gb_error *err) {
    static const char *const fields[] = {"from_offset", "offset", "bytes", "in_place", "side", "share"};
    size_t i;

    for (i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        if (json_object_get(body, fields[i]))
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                                "the field '%s' does not go with a URL or a session of another node: all bytes of the "
                                "source are copied, into new memory",
                                fields[i]);
    return 0;
}

/* What the target is to be. */
static int read_target(const struct gb_http_request *request, const json_t *body, struct gb_pull_params *ret,
                       struct gb_error *err) {
    struct gb_buffer_params *to = &ret->to;

    to->kind = GB_KIND_DEVICE;
    strcpy(to->stream.s, "default");
    ret->wait_ms = gb_http_prefer_wait(request, 0, GB_ALLOC_WAIT_MAX_S, NULL) * 1000;
    if (gb_path_names(request, "buffer name", &to->session, &to->name, err) < 0 || refuse_parts(body, err) < 0)
        return -1;
    return gb_buffer_memory_read(gb_api_of(request), body, to, err);
}

static int read_pull(const struct gb_http_request *request, const json_t *body, struct gb_pull_params *ret,
                     struct gb_error *err) {
    if (read_from(body, ret, err) < 0 || read_condition(body, ret, err) < 0)
        return -1;
    return read_target(request, body, ret, err);
}

/* --- starting ----------------------------------------------------------------------------------------------------- */

static enum gb_step start(struct gb_http_request *request, struct gb_pull_params *params,
                          struct gb_http_response *response, struct gb_error *err) {
    struct gb_conditions *conditions;
    struct gb_pull_call *call = NULL;

    if (gb_conditions_read(request, &conditions, err) == 0) {
        call = gb_async_begin(request, sizeof(*call), err);
        if (!call)
            gb_conditions_free(conditions);
    }
    if (!call) {
        nodes_drop(params);
        return GB_STEP_ERROR;
    }
    params->check = gb_conditions_buffer_check(conditions);
    gb_pull_start(gb_api_of(request)->pulls, params, call);
    return gb_api_pull_end(request, response, err);
}

/* --- sources that options name ------------------------------------------------------------------------------------ */

static bool is_listed(const struct gb_api *api, const char *origin) {
    size_t i;

    for (i = 0; i < api->pull_from_count; i++)
        if (strcmp(api->pull_from[i], origin) == 0)
            return true;
    return false;
}

static enum gb_step not_permitted(const struct gb_api *api, const char *origin, struct gb_error *err) {
    gb_error_set(err, GB_ERR_SOURCE_NOT_PERMITTED, "this daemon may not copy from %s: --pull-from %s permits it%s",
                 origin, origin, api->fleet ? "; no node of its fleet has that URL" : "");
    return GB_STEP_ERROR;
}

/* --- nodes of the fleet ------------------------------------------------------------------------------------------- */

static enum gb_step start_at_node(struct gb_http_request *request, const struct gb_fleet_nodes *nodes,
                                  struct gb_pull_params *params, struct gb_http_response *response,
                                  struct gb_error *err) {
    const struct gb_fleet_node *node = node_at(nodes, params->from.origin);
    enum gb_step step = GB_STEP_ERROR;
    char **permitted;

    if (!node)
        return not_permitted(gb_api_of(request), params->from.origin, err);
    permitted = origins_of(gb_api_of(request), nodes, &params->permitted_count);
    if (!permitted) {
        gb_error_memory(err, "request");
        return GB_STEP_ERROR;
    }
    params->permitted = (const char *const *)permitted;
    if (nodes_take(request, &node->name, false, params, err) == 0)
        step = start(request, params, response, err);
    free(permitted);
    return step;
}

static enum gb_step known(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct gb_asking *asking = request->state;
    struct gb_fleet_nodes nodes = asking->of.nodes;
    struct gb_pull_params params = {.wait_ms = 0};
    enum gb_step step = GB_STEP_ERROR;
    json_t *body;

    asking->of.nodes.items = NULL;
    gb_asking_end(request);
    if (gb_body_object(request, GB_COPY_OR_PULL_FIELDS, false, &body, err) == 0) {
        if (read_pull(request, body, &params, err) == 0)
            step = start_at_node(request, &nodes, &params, response, err);
        json_decref(body);
    }
    free(nodes.items);
    return step;
}

/* --- sessions of other nodes -------------------------------------------------------------------------------------- */

/* The names of the source. Returns 0 or -1. */
static int read_names(const json_t *body, struct gb_pull_params *ret, struct gb_error *err) {
    struct gb_device_write_params names = {.copy = true, .session = ret->to.session};

    if (gb_action_read_write(body, &names, err) < 0 || read_condition(body, ret, err) < 0)
        return -1;
    ret->from.session = names.from_session;
    ret->from.buffer = names.from;
    return 0;
}

/* The node that is asked: while the owner is away one that has copies, which are of sealed buffers. */
static const struct gb_fleet_node *at_work(const struct gb_fleet_find *find) {
    return !find->owner.alive && !find->stale && find->replica.name.s[0] != '\0' ? &find->replica : &find->owner;
}

static enum gb_step start_at_owner(struct gb_http_request *request, const struct gb_fleet_find *find,
                                   const json_t *body, struct gb_http_response *response, struct gb_error *err) {
    const struct gb_fleet_node *node = at_work(find);
    const struct gb_name *network = network_to(request, node);
    const char *url = gb_fleet_url_on(&find->owner, network);
    struct gb_pull_params params = {.permitted_count = 0};
    char owner[GB_PULL_ORIGIN_SIZE];
    const char *permitted = owner; /* to which another one redirects once it is there */
    enum gb_redirect_way way =
        gb_redirect_way_of(find, &gb_api_of(request)->fleet_is.node, network, &(struct gb_via){0}, false);

    if (read_target(request, body, &params, err) < 0 || read_names(body, &params, err) < 0)
        return GB_STEP_ERROR;
    if (way == GB_REDIRECT_ABSENT && node != &find->owner && gb_fleet_url_on(node, network))
        way = GB_REDIRECT_GO;
    if (way != GB_REDIRECT_GO)
        return gb_redirect_refuse(request, find, way, network, response, err);
    params.permitted = &permitted;
    params.permitted_count = url && gb_pull_origin_read(url, owner, NULL) == 0;
    if (gb_pull_origin_read(gb_fleet_url_on(node, network), params.from.origin, err) < 0 ||
        nodes_take(request, &node->name, true, &params, err) < 0)
        return GB_STEP_ERROR;
    return start(request, &params, response, err);
}

static enum gb_step owner_found(struct gb_http_request *request, struct gb_http_response *response,
                                struct gb_error *err) {
    struct gb_fleet_find find = ((struct gb_asking *)request->state)->of.find;
    enum gb_step step;
    json_t *body;

    gb_asking_end(request);
    if (gb_body_object(request, GB_COPY_FIELDS, false, &body, err) < 0)
        return GB_STEP_ERROR;
    step = start_at_owner(request, &find, body, response, err);
    json_decref(body);
    return step;
}

enum gb_step gb_api_pull_session(struct gb_http_request *request, const struct gb_name *session,
                                 struct gb_http_response *response, struct gb_error *err) {
    struct gb_asking *asking = gb_asking_begin(request, owner_found, err);

    if (!asking)
        return GB_STEP_ERROR;
    if (gb_fleet_find(asking->fleet, session, false, &asking->of.find))
        atomic_store(&asking->done, true);
    return gb_asking_wait(request, response, err);
}

/* --- which pull --------------------------------------------------------------------------------------------------- */

enum gb_step gb_api_pull(struct gb_http_request *request, const json_t *body, struct gb_http_response *response,
                         struct gb_error *err) {
    struct gb_api *api = gb_api_of(request);
    struct gb_pull_params params = {.wait_ms = 0};

    if (read_pull(request, body, &params, err) < 0)
        return GB_STEP_ERROR;
    if (api->pulls && is_listed(api, params.from.origin)) {
        params.permitted = api->pull_from;
        params.permitted_count = api->pull_from_count;
        return start(request, &params, response, err);
    }
    if (api->pulls && api->fleet)
        return gb_ask_nodes(request, known, response, err);
    return not_permitted(api, params.from.origin, err);
}
