#include "api/reply/reply_json.h"

#include "base/error.h"

int gb_json_reply(struct gb_json_writer *out, struct gb_http_response *response, int status, struct gb_error *err) {
    gb_json_end(out);
    if (out->failed) {
        gb_json_done(out);
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for the reply; try again later");
    }
    if (gb_http_response_header(response, err, "Content-Type", "application/json") < 0) {
        gb_json_done(out);
        return -1;
    }
    response->status = status;
    gb_http_response_take(response, out->s, out->used);
    *out = (struct gb_json_writer){0};
    return 0;
}
