/* Who a request counts for, and what that client may take (http/limits). */
#ifndef GB_API_MIDDLEWARE_BOUNDS_H
#define GB_API_MIDDLEWARE_BOUNDS_H

#include "core/core.h"
#include "http/http.h"

/* gb_http_server_config.authorize: gb_api_authorize, and the bound of the client. A failed authentication is slowed by
 * address; a valid token is always looked at. */
int gb_bounds_authorize(void *app, struct gb_http_request *request, struct gb_error *err);

/* The request begins an upload in several requests. *ret is for gb_upload_params.place; gb_bounds_upload_kept is due
 * after it was tried. Returns 0, or -1 with TOO_MANY_REQUESTS. */
int gb_bounds_upload(struct gb_http_request *request, struct gb_place *ret, struct gb_error *err);
/* Gives the place back unless the upload has taken it. */
void gb_bounds_upload_kept(struct gb_place *place);

#endif
