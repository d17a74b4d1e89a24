/* PUT /v1/sessions/{session}/tensors: the headers. */

#include <string.h>

#include "api/context.h"
#include "api/middleware/filters.h"
#include "api/request/device_param.h"
#include "api/request/media.h"
#include "api/request/query.h"
#include "api/request/tensor_names.h"
#include "api/request/wait.h"
#include "api/route.h"
#include "api/transfer/resumable.h"
#include "api/transfer/tensors_sink.h"

static int check_headers(const struct gb_http_request *request, struct gb_error *err) {
    static const char *const refused[] = {"If-Match", "If-None-Match"};
    enum gb_form form;
    size_t i;

    if (gb_media_tensor(gb_http_header(request, "Content-Type"), &form, err) < 0)
        return -1;
    if (form == GB_FORM_NPY)
        return gb_error_set(err, GB_ERR_UNSUPPORTED_MEDIA_TYPE,
                            "tensors come as " GB_MEDIA_SAFETENSORS "; send a .npy to a buffer's data");
    /* Ignoring them would do what the client forbids. */
    for (i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        if (gb_http_header(request, refused[i]))
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                                "%s is not taken here: many buffers are written; send the tensors one by one",
                                refused[i]);
    }
    return 0;
}

static int read_plan(const struct gb_http_request *request, struct gb_tensors_plan *plan, struct gb_error *err) {
    const struct gb_http_text *kind = gb_http_query(request, "kind");
    const struct gb_http_text *device = gb_http_query(request, "device");
    struct gb_buffer_params *buffer = &plan->params.buffer;

    buffer->kind = GB_KIND_DEVICE;
    buffer->has_kind = kind != NULL;
    buffer->has_device = device != NULL;
    strcpy(buffer->stream.s, "default");
    plan->params.wait_ms = gb_http_prefer_wait(request, 0, GB_ALLOC_WAIT_MAX_S, NULL) * 1000;
    if (gb_param_name(request, 0, "session name", &plan->session, err) < 0 ||
        gb_query_name(request, "prefix", &plan->prefix, err) < 0 ||
        gb_query_name(request, "stream", &buffer->stream, err) < 0 ||
        gb_query_name(request, "pool", &buffer->pool, err) < 0)
        return -1;
    if (kind && gb_kind_parse(kind->s, kind->len, &buffer->kind, err) < 0)
        return -1;
    if (device && buffer->pool.s[0] != '\0')
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "give pool or device, not both: a pool is of one device");
    return device && gb_device_text(gb_api_of(request), device->s, device->len, &buffer->device, err) < 0 ? -1 : 0;
}

enum gb_step gb_api_tensors_put(struct gb_http_request *request, struct gb_http_response *response,
                                struct gb_error *err) {
    struct gb_tensors_plan plan = {.prefix = {""}};
    struct gb_http_sink *sink = NULL;
    struct gb_filters filters;

    if (gb_http_reply_room(request, err) < 0 || gb_resumable_refuse(request, err) < 0 ||
        gb_filters_read(request, response, &filters, err) < 0 || check_headers(request, err) < 0 ||
        read_plan(request, &plan, err) < 0)
        return GB_STEP_ERROR;
    sink = gb_tensors_sink_new(request, &plan, filters.coded, err);
    if (sink)
        sink = gb_filters_wrap(request, &filters, sink, err);
    if (!sink)
        return GB_STEP_ERROR;
    request->sink = sink;
    return GB_STEP_BODY;
}
