/* A JSON document as a reply. */
#ifndef GB_API_REPLY_REPLY_JSON_H
#define GB_API_REPLY_REPLY_JSON_H

#include "base/json_writer.h"
#include "http/http.h"

/* Ends the text with a newline and gives it to the response as application/json with this status. The writer is empty
 * afterwards. Returns 0, or -1 with SATURATED when memory is exhausted. */
int gb_json_reply(struct gb_json_writer *out, struct gb_http_response *response, int status, struct gb_error *err);

/* The same, as the last step of a handler. */
enum gb_step gb_reply_json(struct gb_json_writer *out, int status, struct gb_http_response *response,
                           struct gb_error *err);
/* The same with status 200 and an entity tag that is made of the text and begins with the letter kind. The server
 * answers 304 to a client that has this text. */
enum gb_step gb_reply_tagged(struct gb_json_writer *out, char kind, struct gb_http_response *response,
                             struct gb_error *err);

#endif
