/* What the server does with a request before its handler: the target and the query, its id, checks of the header
 * fields, and CORS with OPTIONS. */
#ifndef GB_HTTP_MESSAGE_REQUEST_H
#define GB_HTTP_MESSAGE_REQUEST_H

#include "http/http.h"
#include "http/message/fields.h"

/* Splits the target into path and query, and decodes the query into `texts`. *ret_path points into the target, still
 * encoded. Returns 0, or -1 with URI_TOO_LONG or MALFORMED_REQUEST. */
int gb_request_parse_target(struct gb_http_request *request, struct gb_text_arena *texts, struct gb_http_text *ret_path,
                            struct gb_error *err);

/* Makes the request's id what its X-Request-Id says: 1 to GB_HTTP_ID_MAX letters, digits, '-', '_' and '.'. Without the
 * field, and with any other value, the id stays. */
void gb_request_take_id(struct gb_http_request *request);

/* Decodes s[0..n) to out, which has room for n + 1 bytes and may be s. Returns -1 if s is malformed. */
int gb_percent_decode(const char *s, size_t n, char *out, size_t *ret_n);

/* Moves the query parameters of these names from the query to request->aside, and sets request->shown if there are
 * any. Returns 0, or -1 with URI_TOO_LONG. */
int gb_request_set_aside(struct gb_http_request *request, struct gb_text_arena *texts, const char *const *names,
                         size_t count, struct gb_error *err);

/* Checks of header fields that libmicrohttpd leaves out. */

/* Borrowed from the server's configuration, where each is explained. */
struct gb_request_rules {
    const char *const *hosts;
    size_t host_count;
    const char *const *pages;
    size_t page_count;
    const char *const *origins;
    size_t origin_count;
};

/* Checks the header fields and reads those that decide about framing and the connection: sets content_length,
 * has_content_length, chunked, expect_continue, close, origin and by_origin. Returns 0 or -1 with *err. */
int gb_request_check(struct gb_http_request *request, const struct gb_request_rules *rules, struct gb_error *err);

#endif
