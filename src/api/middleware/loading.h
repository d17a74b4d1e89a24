/* Requests for bytes that are on disk wait for their load, around every handler. */
#ifndef GB_API_MIDDLEWARE_LOADING_H
#define GB_API_MIDDLEWARE_LOADING_H

#include "http/http.h"

/* Runs the handler. If it is refused with NOT_LOADED, the request waits for the end of a load, at most as long as it
 * prefers, and its route's handler runs again from its start. A request whose body is a stream does not wait: its error
 * reply says when to try again. */
enum gb_step gb_loading_run(gb_http_handler *handler, struct gb_http_request *request,
                            struct gb_http_response *response, struct gb_error *err);

#endif
