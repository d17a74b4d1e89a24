/* A JSON document as a reply. */
#ifndef GB_API_REPLY_REPLY_JSON_H
#define GB_API_REPLY_REPLY_JSON_H

#include "format/json_writer.h"
#include "http/http.h"

/* Ends the text with a newline and gives it to the response as application/json with this status. Returns 0, or -1 with
 * SATURATED when memory was exhausted; the writer is empty either way. */
int gb_json_reply(struct gb_json_writer *out, struct gb_http_response *response, int status, struct gb_error *err);

#endif
