/* What the server makes of a response: its fields, prepared answers, the head, reason phrases, problem documents; and
 * the sink that collects a small body. */
#ifndef GB_HTTP_MESSAGE_RESPONSE_H
#define GB_HTTP_MESSAGE_RESPONSE_H

#include <stdatomic.h>

#include "base/error.h"
#include "base/json_writer.h"
#include "http/http.h"

/* Whether the reply is to a request that reads. Such replies have the fields below: browsers neither guess the type of
 * the body nor show it to pages of other origins. Other requests of such pages are refused. */
bool gb_reply_is_read(const struct gb_http_request *request);
#define GB_EVERY_REPLY(FIELD)                                                                                          \
    FIELD("X-Content-Type-Options", "nosniff")                                                                         \
    FIELD("Cross-Origin-Resource-Policy", "same-origin")
/* What most of them have besides: a cache in between asks each time before it gives such a reply again. What says
 * itself how long it may be kept has its own Cache-Control. */
#define GB_REPLY_CACHING_NAME "Cache-Control"
#define GB_REPLY_CACHING "no-cache"
bool gb_response_has(const struct gb_http_response *response, const char *name);
bool gb_reply_is_asked_for_each_time(const struct gb_http_request *request, const struct gb_http_response *response);
#define GB_REPLY_ID "X-Request-Id" /* of every reply */
#define GB_EVERY_REPLY_LINE(name, value) name ": " value "\r\n"
#define GB_EVERY_REPLY_LINES GB_EVERY_REPLY(GB_EVERY_REPLY_LINE)

/* Frees the listener, if there is one. */
void gb_response_drop_listener(struct gb_http_response *response);

/* Takes a canned answer apart: status and headers go into the response, which keeps the reference that *ret_body lives
 * by. */
void gb_response_unpack(struct gb_http_response *response, const struct gb_http_request *request, const char **ret_body,
                        size_t *ret_n);

/* Prepared answers inside the http layer; for handlers see http.h. */

struct gb_http_canned {
    atomic_int refs;
    int status;
    char *type;
    char *etag; /* with its quotes, or NULL */
    char *body;
    size_t body_len;
};

/* Pages of configured origins, which may send requests here and read the replies (the Fetch standard's CORS), and what
 * OPTIONS answers. Without configured origins replies have nothing of it. */

#define GB_CORS_FIELDS 3

struct gb_cors_field {
    const char *name; /* static */
    const char *value;
};

/* The fields that a reply to this request has besides its own. Returns how many: 0 without configured origins. */
unsigned gb_cors_fields(const struct gb_http_request *request, struct gb_cors_field ret[GB_CORS_FIELDS]);

/* Fills the response to OPTIONS: 204, with the methods of the path, and for a preflight of a page what it asks for.
 * Returns 0, or -1 with SATURATED. */
int gb_cors_options(const struct gb_http_request *request, const char *methods, struct gb_http_response *response,
                    struct gb_error *err);

/* The head of a reply that goes out without libmicrohttpd. */

#define GB_HEAD_OWN_SIZE 2048        /* room for the fields that are not the response's */
#define GB_HEAD_UNTIL_END UINT64_MAX /* body_len: the body ends with the connection */

/* Writes the head of this response to out. close: the connection ends after it. Returns its length, or 0 if it does not
 * fit into size bytes. */
size_t gb_head_write(const struct gb_http_request *request, const struct gb_http_response *response, uint64_t body_len,
                     bool close, char *out, size_t size);

/* Status codes and their reason phrases (RFC 9110, 15). */

/* Returns static text: "Not Found" for 404, "Unknown" for a code that is not registered. */
const char *gb_http_reason(int status);

/* RFC 9457 problem documents. */

/* Opens a document and writes the members that all have. type: NULL for the URN of the code. instance: the target of
 * the request. id: the request's. The caller adds members and closes the object. */
void gb_problem_open(struct gb_json_writer *out, const struct gb_error *error, const char *type, const char *instance,
                     const char *id);

/* A sink that collects a bounded body in memory. */

/* At most max bytes; more are BODY_TOO_LARGE. Returns NULL if memory is exhausted. */
struct gb_http_sink *gb_body_buffer_new(size_t max);

/* The whole body has arrived: sets the request's body, which lives as long as the sink. */
void gb_body_buffer_end(struct gb_http_sink *sink, struct gb_http_request *request);

#endif
