/* Tokens of requests: once a token is in force, every route that is not open needs one. */
#ifndef GB_API_AUTH_H
#define GB_API_AUTH_H

#include "core/core.h"
#include "http/http.h"

/* gb_http_server_config.authorize: checks the bearer against the access column of the route, and sets
 * request->caller. app is ignored. [now]
 * Returns 0, or -1 with UNAUTHENTICATED, FORBIDDEN or MALFORMED_REQUEST. */
int gb_api_authorize(void *app, struct gb_http_request *request, struct gb_error *err);

/* Checks that the bearer may use this scope in that session too, beyond what its route asks for. session: "" for what
 * belongs to no session. Returns 0, or -1 with UNAUTHENTICATED or FORBIDDEN. */
int gb_api_permit(const struct gb_http_request *request, enum gb_scope scope, const char *session,
                  struct gb_error *err);

/* Identifies the bearer. *ret_token: the id of its token, 0 while no token is needed. Returns 0, or -1 with
 * UNAUTHENTICATED, or with MALFORMED_REQUEST when the header is there twice. */
int gb_api_bearer(const struct gb_http_request *request, int64_t *ret_token, struct gb_error *err);

/* Finds the session that the bearer's token is bound to. *ret: "" when it is bound to none. Returns 0, or -1 with
 * UNAUTHENTICATED or FORBIDDEN. */
int gb_api_bound(const struct gb_http_request *request, enum gb_scope scope, struct gb_name *ret, struct gb_error *err);

#endif
