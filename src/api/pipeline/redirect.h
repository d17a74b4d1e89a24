/* Requests for sessions of other nodes of the fleet, around every handler.
 *
 * A request whose session is here is served, and no node is asked. Any other session is looked up before the body is
 * taken, and the request is redirected with 307 to the session's node. The new URL has two more parameters: via says
 * under which epoch the node was known and how often the request was redirected; ticket stands for the token, because
 * clients do not send Authorization to another host. */
#ifndef GB_API_PIPELINE_REDIRECT_H
#define GB_API_PIPELINE_REDIRECT_H

#include "api/auth.h"
#include "fleet/fleet.h"
#include "http/http.h"

struct gb_api;

/* gb_http_server_config.asides. */
extern const char *const gb_redirect_asides[GB_ASIDES];

/* gb_http_server_config.around of a node that is in a fleet, around gb_api_pipeline. */
enum gb_step gb_redirect_around(gb_http_handler *handler, struct gb_http_request *request,
                                struct gb_http_response *response, struct gb_error *err);

/* via=EPOCH.HOPS: the epoch under which the session's node was known, and how many redirects there were. */
struct gb_via {
    bool given;
    uint64_t epoch;
    uint64_t hops;
};
/* Returns 0, or -1 with INVALID_ARGUMENT. */
int gb_via_read(const struct gb_http_request *request, struct gb_via *ret, struct gb_error *err);

/* What is done with a request for a session that is not here, by what the directory says. */
enum gb_redirect_way {
    GB_REDIRECT_GO,
    GB_REDIRECT_HERE,        /* it names this node */
    GB_REDIRECT_KNOWN,       /* via knew that much, and its node had no such session either */
    GB_REDIRECT_ABSENT,      /* its node is not there */
    GB_REDIRECT_UNREACHABLE, /* its node is in no network of this one */
    GB_REDIRECT_LOCAL        /* the route is for processes of the session's machine */
};
enum gb_redirect_way gb_redirect_way_of(const struct gb_fleet_find *find, const struct gb_name *self,
                                        const struct gb_name *network, const struct gb_via *via, bool is_local);

/* Whether the session of that name is this node's already, before it has its name here. [any thread] */
bool gb_redirect_moved_here(struct gb_api *api, const struct gb_name *name);

/* The reply if the session's node cannot be reached. */
enum gb_step gb_redirect_refuse(const struct gb_http_request *request, const struct gb_fleet_find *find,
                                enum gb_redirect_way way, const struct gb_name *network,
                                struct gb_http_response *response, struct gb_error *err);

/* The network whose listener took the request. */
const struct gb_name *gb_redirect_network(const struct gb_http_request *request);

/* The URL of a path, and its query (may be ""), at another node, with a ticket if the request's token gives one. NULL
 * when memory is exhausted; the caller frees it. */
char *gb_redirect_url(const struct gb_http_request *request, const char *base, const struct gb_name *node,
                      const char *method, const char *path, const char *query);

/* The reply 307 to what was asked for at another node. epoch: of the session; 0: the path names no session. */
enum gb_step gb_redirect_to(const struct gb_http_request *request, struct gb_http_response *response,
                            const struct gb_name *node, const char *base, uint64_t epoch, uint64_t hops,
                            struct gb_error *err);

/* Sets err and the reply's Retry-After. Returns GB_STEP_ERROR. */
enum gb_step gb_redirect_later(struct gb_http_response *response, unsigned seconds, struct gb_error *err);

/* The same of a directory that does not answer; err stays what it is if it says so already. */
enum gb_step gb_redirect_silent(struct gb_http_response *response, struct gb_error *err);

/* Adds Gpubuf-Epoch, and Gpubuf-Fleet while the node is alone. epoch 0: nothing. */
void gb_redirect_epoch(const struct gb_http_request *request, int64_t epoch, struct gb_http_response *response);

#endif
