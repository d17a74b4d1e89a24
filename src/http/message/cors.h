/* Pages of configured origins, which may send requests here and read the replies (the Fetch standard's CORS), and what
 * OPTIONS answers. Without configured origins replies have nothing of it. */
#ifndef GB_HTTP_MESSAGE_CORS_H
#define GB_HTTP_MESSAGE_CORS_H

#include "http/message/request_checks.h"

#define GB_CORS_FIELDS 3

struct gb_cors_field {
    const char *name; /* static */
    const char *value;
};

/* Sets request->by_origin, and request->origin if the request is from a page of a configured origin. */
void gb_cors_read(struct gb_http_request *request, const struct gb_request_rules *rules);

/* The fields that a reply to this request has besides its own. Returns how many: 0 without configured origins. */
unsigned gb_cors_fields(const struct gb_http_request *request, struct gb_cors_field ret[GB_CORS_FIELDS]);

/* Fills the response to OPTIONS: 204, with the methods of the path, and for a preflight of a page what it asks for.
 * Returns 0, or -1 with SATURATED. */
int gb_cors_options(const struct gb_http_request *request, const char *methods, struct gb_http_response *response,
                    struct gb_error *err);

#endif
