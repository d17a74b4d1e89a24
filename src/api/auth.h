/* Tokens of requests: once a token is in force, every route that is not open needs one. A client shows it as a bearer's
 * secret, or by a certificate whose name is the token's subject. */
#ifndef GB_API_AUTH_H
#define GB_API_AUTH_H

#include "core/core.h"
#include "fleet/fleet.h"
#include "http/http.h"

/* Query parameters that are set apart: gb_http_request.aside. */
enum { GB_ASIDE_VIA, GB_ASIDE_TICKET, GB_ASIDES };

/* gb_http_server_config.authorize: checks the request's token against the columns of its route, notes that it was used,
 * and makes its grant the request's caller. app is ignored. [now] Returns 0, or -1 with UNAUTHENTICATED, FORBIDDEN or
 * MALFORMED_REQUEST. */
int gb_api_authorize(void *app, struct gb_http_request *request, struct gb_error *err);
/* gb_http_server_config.in_force: of requests and of listeners, whose caller is a grant. [now] */
bool gb_api_in_force(void *app, uint64_t caller);

/* Checks that the token may use this scope in that session too, beyond what its route asks for. session: "" for what
 * belongs to no session. Returns 0, or -1 with UNAUTHENTICATED or FORBIDDEN. */
int gb_api_permit(const struct gb_http_request *request, enum gb_scope scope, const char *session,
                  struct gb_error *err);

/* Identifies the token. *ret_token: its id, 0 while no token is needed. Returns 0, or -1 with UNAUTHENTICATED, or with
 * MALFORMED_REQUEST when the header is there twice. */
int gb_api_bearer(const struct gb_http_request *request, int64_t *ret_token, struct gb_error *err);

/* The name of the request's token, here or at the node that has given its ticket; "": no token. */
const char *gb_api_bearer_name(const struct gb_http_request *request);

/* A ticket stands for a token that another node of the fleet has checked, and carries what that token may do. Writes
 * that text for a ticket to the same path at another node. False: no ticket, because the token is limited in a way that
 * only this node knows, or no token is needed here. */
#define GB_TICKET_WHO_SIZE (GB_TICKET_WHO_MAX + 1)
bool gb_api_ticket_who(const struct gb_http_request *request, char ret[GB_TICKET_WHO_SIZE]);
/* The same of a node, which asks others for what no client has asked for; cut to the size. */
void gb_ticket_node_who(const struct gb_name *node, char *ret, size_t size);

/* Finds the session that the token is bound to. *ret: "" if it is not bound. Returns 0, or -1 with UNAUTHENTICATED or
 * FORBIDDEN. */
int gb_api_bound(const struct gb_http_request *request, enum gb_scope scope, struct gb_name *ret, struct gb_error *err);

/* The prefix of the names of buffers that the token reaches; "": it reaches all. Returns 0, or -1 with
 * UNAUTHENTICATED. */
int gb_api_prefix(const struct gb_http_request *request, struct gb_name *ret, struct gb_error *err);
bool gb_api_has_prefix(const struct gb_name *prefix, const char *name);
/* Checks that the token reaches a buffer of that name, whichever its session. Returns 0, or -1 with FORBIDDEN or
 * UNAUTHENTICATED. */
int gb_api_reach(const struct gb_http_request *request, const char *name, struct gb_error *err);

/* Who a request counts for, and what that client may take (http/limits). */

/* gb_http_server_config.authorize: gb_api_authorize, and the bound of the client. A failed authentication is slowed by
 * address; a valid token is always looked at. */
int gb_bounds_authorize(void *app, struct gb_http_request *request, struct gb_error *err);

/* The request begins an upload in several requests. *ret is for gb_upload_params.place; gb_bounds_upload_release is due
 * after it was tried. Returns 0, or -1 with TOO_MANY_REQUESTS. */
int gb_bounds_upload(struct gb_http_request *request, struct gb_place *ret, struct gb_error *err);
/* Gives the place back unless the upload has taken it. */
void gb_bounds_upload_release(struct gb_place *place);

#endif
