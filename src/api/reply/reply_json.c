#include "api/reply/reply_json.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/error.h"
#include "base/hash.h"

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

enum gb_step gb_reply_json(struct gb_json_writer *out, int status, struct gb_http_response *response,
                           struct gb_error *err) {
    return gb_json_reply(out, response, status, err) < 0 ? GB_STEP_ERROR : GB_STEP_REPLY;
}

enum gb_step gb_reply_tagged(struct gb_json_writer *out, char kind, struct gb_http_response *response,
                             struct gb_error *err) {
    struct gb_http_canned *canned = NULL;
    char tag[40];

    gb_json_end(out);
    if (!out->failed) {
        snprintf(tag, sizeof(tag), "\"%c%08" PRIx32 "-%zx\"", kind, gb_crc32c(0, out->s, out->used), out->used);
        canned = gb_http_canned_new(200, "application/json", tag, out->s, out->used);
    }
    gb_json_done(out);
    if (!canned) {
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the reply; try again later");
        return GB_STEP_ERROR;
    }
    gb_http_response_canned(response, canned);
    return GB_STEP_REPLY;
}
