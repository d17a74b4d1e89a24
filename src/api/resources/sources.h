/* Copies from a URL of any HTTP server or from a file of this machine: their request; and the reply that they have in
 * common with copies from other daemons. */
#ifndef GB_API_RESOURCES_SOURCES_H
#define GB_API_RESOURCES_SOURCES_H

#include <jansson.h>

#include "api/pipeline/async.h"
#include "http/http.h"

/* The fields of such a copy: its own, and those that others have, too. */
#define GB_SOURCE_OWN_FIELDS "from_url from_file headers if_match format dtype shape pack digest parts labels"
#define GB_SOURCE_FIELDS GB_SOURCE_OWN_FIELDS " kind pool device durability stream"

/* Whether the body of a copy has from_url or from_file. */
bool gb_api_source_is_asked(const json_t *body);
/* The rest of the handler of such a copy. Errors: INVALID_ARGUMENT, UNKNOWN_FIELD, WRONG_TYPE; SOURCE_NOT_PERMITTED if
 * no option names the URL's origin, or a folder of files. */
enum gb_step gb_api_source(struct gb_http_request *request, const json_t *body, struct gb_http_response *response,
                           struct gb_error *err);

/* Reads 'parts' into *ret, 0 if it is not given. Returns 0 or -1. */
int gb_api_read_parts(const json_t *object, unsigned *ret, struct gb_error *err);
/* Waits for a struct gb_pull_call that has been started, and replies with the buffer and what was pulled. An operation
 * shows how far it is. */
enum gb_step gb_api_pull_end(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err);

#endif
