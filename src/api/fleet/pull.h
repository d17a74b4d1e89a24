/* The pulls of POST .../copy: copies whose source another daemon has. */
#ifndef GB_API_FLEET_PULL_H
#define GB_API_FLEET_PULL_H

#include <jansson.h>
#include <stdbool.h>

#include "api/request/body.h"
#include "http/http.h"

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
