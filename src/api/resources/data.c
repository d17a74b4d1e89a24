/* PUT, PATCH and POST .../data: the handlers. They choose between an upload in one request (upload.c) and one that can
 * be resumed (resumable.c). GET is in download.c. */
#include <stdlib.h>

#include "api/pipeline/conditional.h"
#include "api/pipeline/digest.h"
#include "api/request/query.h"
#include "api/resources/resumable.h"
#include "api/resources/upload.h"
#include "core/core.h"
#include "http/http.h"

/* PUT of the whole or of a part, in one request. */
static enum gb_step put_whole(struct gb_http_request *request, struct gb_http_response *response,
                              struct gb_error *err) {
    struct gb_upload_request *plan;
    struct gb_conditions *conditions;
    struct gb_http_sink *sink = NULL;
    struct gb_filters filters;

    if (gb_filters_read(request, response, &filters, err) < 0)
        return GB_STEP_ERROR;
    plan = calloc(1, sizeof(*plan));
    if (!plan) {
        gb_error_memory(err, "request");
        return GB_STEP_ERROR;
    }
    plan->coded = filters.coded;
    if (gb_upload_request_read(request, plan, err) == 0 && gb_conditions_read(request, &conditions, err) == 0) {
        plan->params.check = gb_conditions_buffer_check(conditions);
        sink = gb_upload_sink_new(request, plan, err);
    } else {
        gb_session_unref(plan->params.session);
    }
    free(plan);
    return gb_filters_wrap(request, &filters, sink, err);
}

enum gb_step gb_api_data_put(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    bool more = false;

    if (gb_resumable_asked(request, &more, err) < 0)
        return GB_STEP_ERROR;
    return more ? gb_resumable_begin(request, response, err) : put_whole(request, response, err);
}

/* Writes a part, as PUT with an offset or a slice does. */
enum gb_step gb_api_data_patch(struct gb_http_request *request, struct gb_http_response *response,
                               struct gb_error *err) {
    if (gb_resumable_refuse(request, err) < 0)
        return GB_STEP_ERROR;
    if (gb_http_query(request, "offset") || gb_http_query(request, "slice"))
        return put_whole(request, response, err);
    gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                 "PATCH writes a part: give ?offset= or ?slice=; the whole is replaced with PUT");
    return GB_STEP_ERROR;
}

/* POST is for clients that resume; forms send it by mistake. */
enum gb_step gb_api_data_post(struct gb_http_request *request, struct gb_http_response *response,
                              struct gb_error *err) {
    if (gb_http_header(request, "Upload-Complete"))
        return gb_api_data_put(request, response, err);
    if (gb_media_bytes(gb_http_header(request, "Content-Type"), err) < 0)
        return GB_STEP_ERROR;
    gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                 "POST begins an upload that can be resumed: give Upload-Complete: ?0, or ?1; a whole body goes with "
                 "PUT");
    return GB_STEP_ERROR;
}
