#include "api/request/body.h"

#include <string.h>

#include "api/request/json.h"
#include "api/request/media.h"

static int check_media(const struct gb_http_request *request, struct gb_error *err) {
    return gb_media_encoding(gb_http_header(request, "Content-Encoding"), err) < 0
               ? -1
               : gb_media_json(gb_http_header(request, "Content-Type"), err);
}

int gb_body_json(const struct gb_http_request *request, struct gb_error *err) {
    if (request->body_len == 0)
        return gb_error_set(err, GB_ERR_MALFORMED_JSON, "a JSON object is needed as the body");
    if (strlen(request->body) != request->body_len)
        return gb_error_set(err, GB_ERR_MALFORMED_JSON, "the body has a NUL");
    return check_media(request, err);
}

int gb_body_object(const struct gb_http_request *request, const char *fields, bool optional, json_t **ret,
                   struct gb_error *err) {
    if (request->body_len == 0 && optional) {
        *ret = json_object();
        return *ret ? 0 : gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
    }
    if (request->body_len == 0)
        return gb_error_set(err, GB_ERR_MALFORMED_JSON, "a JSON object is needed as the body%s%s",
                            fields[0] ? "; its fields: " : "", fields);
    if (check_media(request, err) < 0)
        return -1;
    return gb_json_object(request->body, request->body_len, fields, ret, err);
}

int gb_body_no_fields(const struct gb_http_request *request, struct gb_error *err) {
    json_t *body;

    if (gb_body_object(request, "", true, &body, err) < 0)
        return -1;
    json_decref(body);
    return 0;
}

int gb_body_stream(const struct gb_http_request *request, struct gb_name *ret, struct gb_error *err) {
    struct gb_name stream = {"default"};
    json_t *body;
    int r;

    if (gb_body_object(request, "stream", true, &body, err) < 0)
        return -1;
    r = gb_json_name(body, "stream", &stream, err);
    json_decref(body);
    if (r < 0)
        return -1;
    *ret = stream;
    return 0;
}

int gb_body_name(const struct gb_http_request *request, struct gb_name *ret, struct gb_error *err) {
    json_t *body;
    int r;

    if (gb_body_object(request, "name", false, &body, err) < 0)
        return -1;
    r = gb_json_name(body, "name", ret, err);
    json_decref(body);
    if (r == 0)
        gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the field 'name' is needed");
    return r > 0 ? 0 : -1;
}
