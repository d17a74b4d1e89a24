#include "api/request/body.h"

#include "api/request/media.h"

int gb_body_object(const struct gb_http_request *request, const char *fields, bool optional, json_t **ret,
                   struct gb_error *err) {
    if (request->body_len == 0 && optional) {
        *ret = json_object();
        return *ret ? 0 : gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
    }
    if (request->body_len == 0)
        return gb_error_set(err, GB_ERR_MALFORMED_JSON, "a JSON object is needed as the body%s%s",
                            fields[0] ? "; its fields: " : "", fields);
    if (gb_media_encoding(gb_http_header(request, "Content-Encoding"), err) < 0 ||
        gb_media_json(gb_http_header(request, "Content-Type"), err) < 0)
        return -1;
    return gb_json_object(request->body, request->body_len, fields, ret, err);
}
