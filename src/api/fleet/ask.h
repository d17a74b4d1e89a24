/* Waiting for an answer of the fleet's directory: one way for all handlers below /v1/fleet. */
#ifndef GB_API_FLEET_ASK_H
#define GB_API_FLEET_ASK_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "api/context.h"
#include "api/request/body.h"
#include "base/json_writer.h"
#include "fleet/fleet.h"
#include "http/http.h"

/* request->state while a handler asks. All members of the union begin with ask. */
struct gb_asking {
    struct gb_http_request *request;
    struct gb_fleet *fleet;
    gb_http_handler *next;
    atomic_bool done;
    union {
        struct gb_fleet_ask ask;
        struct gb_fleet_find find;
        struct gb_fleet_nodes nodes;
        struct gb_fleet_sessions sessions;
        struct gb_fleet_forget forget;
        struct gb_fleet_tombstone tombstone;
        struct gb_fleet_place place;
        struct gb_fleet_tenants tenants;
        struct gb_fleet_tenant_set tenant;
        struct gb_fleet_resize resize;
        struct gb_fleet_order order;
    } of;
    /* The items of lists are freed with the question. */
    enum { GB_ASKING_ONE, GB_ASKING_NODES, GB_ASKING_SESSIONS, GB_ASKING_TENANTS } kind;
};

/* Makes a question, whose parameters the caller sets. next runs when the answer has come without an error; it finds the
 * question in request->state. NULL with SATURATED, or with UNSUPPORTED if the node is in no fleet. */
struct gb_asking *gb_asking_begin(struct gb_http_request *request, gb_http_handler *next, struct gb_error *err);
/* Waits for the answer; call it after asking. */
enum gb_step gb_asking_wait(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err);

/* Frees the question, which has been answered. The handler may then wait for something else. */
void gb_asking_end(struct gb_http_request *request);

/* Asks for all nodes. */
enum gb_step gb_ask_nodes(struct gb_http_request *request, gb_http_handler *next, struct gb_http_response *response,
                          struct gb_error *err);

/* UNSUPPORTED if the node is in no fleet. */
int gb_fleet_needed(const struct gb_http_request *request, struct gb_error *err);

/* The node of that name; NULL with NODE_NOT_FOUND. */
const struct gb_fleet_node *gb_fleet_pick(const struct gb_fleet_nodes *nodes, const struct gb_name *name,
                                          struct gb_error *err);

/* The field "select" of a body: labels that the node must have; *ret stays "" without it. Returns 0 or -1. */
int gb_fleet_read_select(const json_t *body, char ret[GB_FLEET_LABELS_SIZE], struct gb_error *err);

void gb_render_node(struct gb_json_writer *out, const char *key, const struct gb_fleet_node *node);
const char *gb_on_partition_word(enum gb_on_partition on);

/* Called as `next` of gb_ask_nodes. Redirects the request to the node of the order, which carries it out. A node
 * without a URL gets the order through the directory, and the answer is 202. */
enum gb_step gb_send_to_node(struct gb_http_request *request, struct gb_http_response *response,
                             const struct gb_fleet_order *order, struct gb_error *err);

/* See gb_api_fleet_follow. */
bool gb_fleet_follow(struct gb_api *api, enum gb_order_what what, const struct gb_name *session,
                     gb_fleet_followed *failed, void *arg);

/* --- copies from other daemons ------------------------------------------------------------------------------------ */

/* The fields of a copy, whatever its source. */
#define GB_COPY_OR_PULL_FIELDS GB_COPY_FIELDS " kind pool device durability"

/* Whether the field `from` of a copy is a URL, or an object with one. */
bool gb_api_pull_is_asked(const json_t *body);

/* The rest of the handler of a copy from a URL. The option --pull-from, or the fleet's directory, must name its origin;
 * else the error is SOURCE_NOT_PERMITTED. */
enum gb_step gb_api_pull(struct gb_http_request *request, const json_t *body, struct gb_http_response *response,
                         struct gb_error *err);
/* The rest of the handler of a copy whose source is in a session that is not here: its node is looked up in the
 * directory. The node must be in a fleet. */
enum gb_step gb_api_pull_session(struct gb_http_request *request, const struct gb_name *session,
                                 struct gb_http_response *response, struct gb_error *err);

#endif
