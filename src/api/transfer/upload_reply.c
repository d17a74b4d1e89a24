#include "api/transfer/upload_reply.h"

#include "api/context.h"
#include "api/middleware/conditional.h"
#include "api/reply/render.h"
#include "api/reply/reply_json.h"
#include "api/reply/timing.h"

enum gb_step gb_upload_reply(struct gb_http_request *request, const struct gb_buffer_rec *rec, bool created,
                             const char *warning, const struct gb_transfer_times *times, uint64_t recv_ns,
                             struct gb_http_response *response, struct gb_error *err) {
    struct gb_json_writer out = {0};
    char etag[GB_ETAG_SIZE];

    gb_json_open(&out, NULL, '{');
    gb_render_buffer_members(&out, gb_api_of(request), request->param[0].s, rec);
    if (warning)
        gb_json_put_string(&out, "warning", warning);
    gb_json_close(&out, '}');
    if (gb_http_response_header(response, err, "ETag", "\"%s\"", gb_etag_data(rec, GB_FORM_RAW, etag)) < 0 ||
        (created && gb_http_response_header(response, err, "Location", "/v1/sessions/%s/buffers/%s",
                                            request->param[0].s, rec->name.s) < 0) ||
        gb_add_upload_timing(request, times, recv_ns, response, err) < 0) {
        gb_json_done(&out);
        return GB_STEP_ERROR;
    }
    return gb_reply_json(&out, created ? 201 : 200, response, err);
}
