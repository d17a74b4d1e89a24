/* Replies about pools. */
#ifndef GB_API_RESOURCES_POOLS_H
#define GB_API_RESOURCES_POOLS_H

#include "api/context.h"
#include "base/json_writer.h"

/* The most devices whose access to a pool is shown. */
#define GB_POOL_PEERS_MAX 64

/* Adds the pool to the object that is open, closes the object and makes it the reply. */
enum gb_step gb_pool_reply(struct gb_http_request *request, struct gb_json_writer *out, const struct gb_pool_view *view,
                           int status, struct gb_http_response *response, struct gb_error *err);

/* Checks that the bearer may change the pool beyond what its route asks for. A device's own pool, which all sessions
 * share, takes an administrator. Returns 0, or -1 with POOL_NOT_FOUND, UNAUTHENTICATED or FORBIDDEN. */
int gb_pool_permit(const struct gb_http_request *request, const struct gb_locator *at, struct gb_error *err);

#endif
