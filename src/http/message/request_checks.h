/* Checks of header fields that libmicrohttpd leaves out. */
#ifndef GB_HTTP_MESSAGE_REQUEST_CHECKS_H
#define GB_HTTP_MESSAGE_REQUEST_CHECKS_H

#include "http/http.h"

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
