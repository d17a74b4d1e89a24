#include "api/resources/pull_nodes.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "api/auth.h"
#include "api/middleware/redirect.h"
#include "api/resources/fleet_ask.h"
#include "base/container.h"

/* --- where they are ----------------------------------------------------------------------------------------------- */

const struct gb_fleet_node *gb_pull_node_at(const struct gb_fleet_nodes *nodes, const char *origin) {
    char own[GB_PULL_ORIGIN_SIZE];
    size_t i;
    size_t j;

    for (i = 0; i < nodes->count; i++)
        for (j = 0; j < nodes->items[i].url_count; j++)
            if (gb_pull_origin_read(nodes->items[i].urls[j].url, own, NULL) == 0 && strcmp(own, origin) == 0)
                return &nodes->items[i];
    return NULL;
}

char **gb_pull_origins(const struct gb_api *api, const struct gb_fleet_nodes *nodes, size_t *ret_count) {
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

const struct gb_name *gb_pull_network(const struct gb_http_request *request, const struct gb_fleet_node *node) {
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
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
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
    struct gb_name network; /* of those that both know none */
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
        gb_fleet_leave(seeker->api->fleet, ask);
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

static int go_to(const struct seeker *seeker, const struct gb_fleet_node *node, struct gb_pull_stand *ret,
                 struct gb_error *err) {
    return take_ticket(seeker->api->fleet, &node->name, seeker->who, &ret->ticket, err) < 0 ? 0 : 1;
}

/* The session may be at another node by now. One that has it still, and does not answer, may do so later; what has
 * copies takes its place when its lease has run out. */
static int seek_owner(const struct seeker *seeker, const char *lost, struct gb_pull_stand *ret, struct gb_error *err) {
    const struct gb_fleet_session *session = &seeker->find.session;

    if (origin_of(seeker, &seeker->find.owner, ret->origin) && strcmp(ret->origin, lost) != 0)
        return go_to(seeker, &seeker->find.owner, ret, err);
    gb_error_set(err, GB_ERR_SOURCE_UNREACHABLE, "the directory has the node \"%s\" as alive, which has the session",
                 session->node.s);
    return session->holder_count > 0 ? 0 : -1;
}

/* Holders in turn, so that one that is alive and has not the copy keeps no other from being asked. */
static int seek_holder(struct seeker *seeker, const char *lost, struct gb_pull_stand *ret, struct gb_error *err) {
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

static int seek(void *arg, struct gb_pull *pull, const char *lost, bool registered, struct gb_pull_stand *ret,
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
    params->elsewhere = (struct gb_pull_elsewhere){seek, seeker, seeker_free, by_name};
    return 0;
}

/* --- both --------------------------------------------------------------------------------------------------------- */

int gb_pull_nodes_take(const struct gb_http_request *request, const struct gb_name *node, bool by_name,
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
    gb_pull_nodes_drop(params);
    return -1;
}

void gb_pull_nodes_drop(struct gb_pull_params *params) {
    if (params->ticket.free_arg)
        params->ticket.free_arg(params->ticket.arg);
    if (params->elsewhere.free_arg)
        params->elsewhere.free_arg(params->elsewhere.arg);
}
