/* Where the next page of a list is: RFC 8288. */
#ifndef GB_API_LIST_LINK_H
#define GB_API_LIST_LINK_H

#include "base/error.h"
#include "base/json_writer.h"
#include "http/http.h"

/* Adds "Link: <TARGET>; rel="next"", where TARGET is the request's own with the parameter `name` of this value, which
 * needs no escape. Returns 0, or -1 with SATURATED. */
int gb_list_link(const struct gb_http_request *request, const char *name, const char *value,
                 struct gb_http_response *response, struct gb_error *err);

/* Closes what gb_render_list_open has opened, with the cursor of the next page (NULL: there is none) as next_cursor and
 * in a Link; the last step of a handler. */
enum gb_step gb_list_reply(const struct gb_http_request *request, struct gb_json_writer *out, const char *cursor,
                           struct gb_http_response *response, struct gb_error *err);

#endif
