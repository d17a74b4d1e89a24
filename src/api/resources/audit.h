/* The audit of requests. */
#ifndef GB_API_RESOURCES_AUDIT_H
#define GB_API_RESOURCES_AUDIT_H

#include "http/http.h"

/* gb_http_server_config.ended: notes the request if the audit records such. [any thread of the server, never blocks] */
void gb_api_audit_ended(void *app, const struct gb_http_request *request, const struct gb_http_end *end);

#endif
