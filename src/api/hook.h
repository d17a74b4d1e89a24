/* What is done around every handler that changes something: respond-async and Idempotency-Key. Handlers need not know. */
#ifndef GB_API_HOOK_H
#define GB_API_HOOK_H

#include "api/context.h"

/* request->hook of a request that asked for one of the two. */
struct gb_hook {
    struct gb_api *api;
    struct gb_operation *op; /* reserved, or that of a request that has left */
    struct gb_name stream;
};

/* For operations: the stream that the request's work is queued on. */
void gb_hook_stream(const struct gb_http_request *request, const struct gb_name *stream);

#endif
