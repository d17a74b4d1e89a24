/* Copies whose source is a URL. */
#ifndef GB_API_RESOURCES_PULLS_H
#define GB_API_RESOURCES_PULLS_H

#include <jansson.h>

#include "api/request/actions.h"
#include "http/http.h"

/* The fields of a copy, whatever its source. */
#define GB_COPY_OR_PULL_FIELDS GB_COPY_FIELDS " kind pool device durability"

/* Whether the field from is a URL, or an object with one. */
bool gb_pull_is_asked(const json_t *body);

/* The rest of the handler of such a copy. */
enum gb_step gb_api_buffer_pull(struct gb_http_request *request, const json_t *body, struct gb_http_response *response,
                                struct gb_error *err);

/* The same of a copy whose source is in a session that is not here: its node is looked up in the fleet. */
enum gb_step gb_api_buffer_pull_session(struct gb_http_request *request, const struct gb_name *session,
                                        struct gb_http_response *response, struct gb_error *err);

#endif
