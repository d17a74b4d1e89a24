/* The parts of a response that handlers do not call. */
#ifndef GB_HTTP_MESSAGE_RESPONSE_H
#define GB_HTTP_MESSAGE_RESPONSE_H

#include "http/http.h"

/* Whether the reply is to a request that reads. Such replies have the fields below: browsers neither guess the type of
 * the body nor show it to pages of other origins. Other requests of such pages are refused. */
static inline bool gb_reply_is_read(const struct gb_http_request *request) {
    return gb_http_is_safe(request->method) || request->method == GB_HTTP_METHOD_COUNT;
}
#define GB_EVERY_REPLY(FIELD)                                                                                          \
    FIELD("X-Content-Type-Options", "nosniff")                                                                         \
    FIELD("Cross-Origin-Resource-Policy", "same-origin")
/* What most of them have besides: a cache in between asks each time before it gives such a reply again. What says
 * itself how long it may be kept has its own Cache-Control. */
#define GB_REPLY_CACHING_NAME "Cache-Control"
#define GB_REPLY_CACHING "no-cache"
bool gb_response_has(const struct gb_http_response *response, const char *name);
static inline bool gb_reply_is_asked_for_each_time(const struct gb_http_request *request,
                                                   const struct gb_http_response *response) {
    return gb_reply_is_read(request) && !gb_response_has(response, GB_REPLY_CACHING_NAME);
}
#define GB_REPLY_ID "X-Request-Id" /* of every reply */
#define GB_EVERY_REPLY_LINE(name, value) name ": " value "\r\n"
#define GB_EVERY_REPLY_LINES GB_EVERY_REPLY(GB_EVERY_REPLY_LINE)

/* Frees the listener, if there is one. */
void gb_response_drop_listener(struct gb_http_response *response);

/* Takes a canned answer apart: status and headers go into the response, which keeps the reference that *ret_body lives
 * by. */
void gb_response_unpack(struct gb_http_response *response, const struct gb_http_request *request, const char **ret_body,
                        size_t *ret_n);

#endif
