#include "http/message/cors.h"

#include <string.h>

/* How long a browser remembers a preflight. A daemon that is started without the origin refuses its requests all the
 * same. */
#define MAX_AGE_S "600"

/* What a page may read of a reply besides the fields that it always may. */
#define EXPOSED                                                                                                        \
    "Accept-Encoding, Accept-Patch, Accept-Ranges, Allow, Content-Digest, Content-Range, ETag, Gpubuf-Crc32c, "        \
    "Gpubuf-Dtype, Gpubuf-Epoch, Gpubuf-Fleet, Gpubuf-Generation, Gpubuf-Owner, Gpubuf-Replica, Gpubuf-Shape, "        \
    "Idempotency-Replayed, Link, Location, Preference-Applied, RateLimit, RateLimit-Policy, Repr-Digest, "             \
    "Retry-After, Server-Timing, Upload-Complete, "                                                                    \
    "Upload-Length, Upload-Limit, Upload-Offset, WWW-Authenticate, X-Request-Id"

void gb_cors_read(struct gb_http_request *request, const struct gb_request_rules *rules) {
    const char *origin;
    unsigned at = 0;
    size_t i;

    request->by_origin = rules->origin_count > 0;
    origin = request->by_origin ? gb_http_header_next(request, "Origin", &at) : NULL;
    if (!origin || gb_http_header_next(request, "Origin", &at))
        return;
    for (i = 0; i < rules->origin_count; i++) {
        if (strcmp(origin, rules->origins[i]) == 0)
            request->origin = rules->origins[i];
    }
}

/* Also a reply to others says that it depends on the origin, since a cache may give it to a page. */
unsigned gb_cors_fields(const struct gb_http_request *request, struct gb_cors_field ret[GB_CORS_FIELDS]) {
    unsigned n = 0;

    if (!request->by_origin)
        return 0;
    ret[n++] = (struct gb_cors_field){"Vary", "Origin"};
    if (!request->origin)
        return n;
    ret[n++] = (struct gb_cors_field){"Access-Control-Allow-Origin", request->origin};
    ret[n++] = (struct gb_cors_field){"Access-Control-Expose-Headers", EXPOSED};
    return n;
}

/* The fields that the page wants to send are permitted as they are named: what a request may have is checked when it
 * comes. */
static int allow(const struct gb_http_request *request, const char *methods, struct gb_http_response *response,
                 struct gb_error *err) {
    const char *fields = gb_http_header(request, "Access-Control-Request-Headers");
    char *copy;

    if (gb_http_response_header(response, err, "Access-Control-Allow-Methods", "%s", methods) < 0 ||
        gb_http_response_header(response, err, "Access-Control-Max-Age", MAX_AGE_S) < 0)
        return -1;
    if (!fields)
        return 0;
    copy = strdup(fields);
    if (!copy)
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for the reply; try again later");
    return gb_http_response_long_header(response, err, "Access-Control-Allow-Headers", copy);
}

int gb_cors_options(const struct gb_http_request *request, const char *methods, struct gb_http_response *response,
                    struct gb_error *err) {
    response->status = 204;
    if (gb_http_response_header(response, err, "Allow", "%s", methods) < 0)
        return -1;
    if (!request->origin || !gb_http_header(request, "Access-Control-Request-Method"))
        return 0;
    return allow(request, methods, response, err);
}
