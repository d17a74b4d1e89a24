/* PUT .../data: what the headers say, and the reply. */
#include "api/transfer/upload.h"

#include <stdlib.h>
#include <string.h>

#include "api/middleware/filters.h"
#include "api/middleware/hook.h"
#include "api/reply/render.h"
#include "api/reply/reply_json.h"
#include "api/request/media.h"
#include "api/request/path_params.h"
#include "api/transfer/resumable.h"
#include "base/clock.h"
#include "format/slice.h"

static int read_format(const struct gb_http_request *request, struct gb_upload_request *plan, struct gb_error *err) {
    const struct gb_http_text *format = gb_http_query(request, "format");
    bool layout = gb_http_query(request, "dtype") || gb_http_query(request, "shape");

    if (gb_media_tensor(gb_http_header(request, "Content-Type"), &plan->said, err) < 0)
        return -1;
    if (format && gb_media_form(format->s, &plan->said, err) < 0)
        return -1;
    if (plan->said != GB_FORM_RAW && layout)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "a %s says dtype and shape itself; leave them out, or give ?format=raw for raw bytes",
                            plan->said == GB_FORM_NPY ? ".npy" : "safetensors file");
    plan->may_say = plan->said != GB_FORM_RAW || (!format && !layout);
    plan->never_npy = !plan->may_say && !format;
    return 0;
}

static int read_layout(const struct gb_http_request *request, struct gb_upload_request *plan, struct gb_error *err) {
    const struct gb_http_text *dtype = gb_http_query(request, "dtype");
    const struct gb_http_text *shape = gb_http_query(request, "shape");
    struct gb_buffer_params *buffer = &plan->params.buffer;

    buffer->dtype = GB_DTYPE_UINT8;
    if (dtype && gb_dtype_parse(dtype->s, dtype->len, &buffer->dtype, err) < 0)
        return -1;
    if (shape && gb_shape_parse(shape->s, shape->len, &buffer->shape, err) < 0)
        return -1;
    plan->has_shape = shape != NULL;
    return 0;
}

static int read_side(const struct gb_http_request *request, struct gb_upload_params *params, struct gb_error *err) {
    const struct gb_http_text *side = gb_http_query(request, "side");

    if (!side)
        return 0;
    params->side_named = true;
    params->to_device_side = strcmp(side->s, "device") == 0;
    if (!params->to_device_side && strcmp(side->s, "host") != 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "side must be host or device");
    return 0;
}

static int read_device(const struct gb_http_request *request, struct gb_buffer_params *buffer, struct gb_error *err) {
    const struct gb_http_text *device = gb_http_query(request, "device");

    if (!device)
        return 0;
    if (buffer->pool.s[0] != '\0')
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "give pool or device, not both: a pool is of one device");
    buffer->has_device = true;
    return gb_device_text(gb_api_of(request), device->s, device->len, &buffer->device, err) < 0 ? -1 : 0;
}

static int read_placement(const struct gb_http_request *request, struct gb_upload_params *params,
                          struct gb_error *err) {
    static const char *const fixed[] = {"dtype", "shape", "kind", "pool", "device", "mirrored"};
    const struct gb_http_text *kind = gb_http_query(request, "kind");
    size_t i;

    if (gb_query_bool(request, "in_place", &params->in_place, err) < 0 ||
        gb_query_name(request, "stream", &params->buffer.stream, err) < 0 ||
        gb_query_name(request, "pool", &params->buffer.pool, err) < 0 ||
        gb_query_bool(request, "mirrored", &params->buffer.mirrored, err) < 0 || read_side(request, params, err) < 0)
        return -1;
    params->buffer.has_mirrored = gb_http_query(request, "mirrored") != NULL;
    params->buffer.has_kind = kind != NULL;
    if (read_device(request, &params->buffer, err) < 0)
        return -1;
    if (kind && gb_kind_parse(kind->s, kind->len, &params->buffer.kind, err) < 0)
        return -1;
    for (i = 0; params->partial && i < sizeof(fixed) / sizeof(fixed[0]); i++) {
        if (gb_http_query(request, fixed[i]))
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                                "a write at an offset or a slice changes nothing but bytes; leave %s out", fixed[i]);
    }
    return 0;
}

/* Where in the buffer the bytes go. */
static int read_part(const struct gb_http_request *request, const struct gb_buffer_rec *rec,
                     struct gb_upload_request *plan, struct gb_error *err) {
    const struct gb_http_text *slice = gb_http_query(request, "slice");
    struct gb_upload_params *params = &plan->params;

    if (!slice)
        return gb_query_u64(request, "offset", &params->offset, err) < 0 ? -1 : 0;
    if (gb_http_query(request, "offset"))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "a slice is of elements, an offset is of bytes: give one or the other");
    if (gb_slice_parse(slice->s, slice->len, &rec->shape, rec->dtype, &plan->slice, &params->view, err) < 0)
        return -1;
    plan->sliced = true;
    params->scattered = params->view.axes > 0;
    params->bytes = params->view.bytes;
    params->buffer.shape = rec->shape;
    if (!params->scattered)
        params->offset = params->view.offset;
    return 0;
}

/* A buffer that is replaced stays where it is unless the client says otherwise. */
static int read_existing(const struct gb_http_request *request, struct gb_upload_request *plan, struct gb_error *err) {
    struct gb_upload_params *params = &plan->params;
    struct gb_error absent = GB_ERROR_INIT;
    struct gb_buffer_rec rec;
    bool in_place = false;

    if (gb_buffer_get(gb_api_of(request)->core, &params->buffer.session, &params->buffer.name, &rec, &absent) < 0) {
        if (absent.code == GB_ERR_BUFFER_NOT_FOUND && !params->partial)
            return 0;
        *err = absent;
        return -1;
    }
    gb_buffer_rec_done(&rec); /* its labels are not looked at */
    plan->exists = true;
    plan->existing_bytes = rec.bytes;
    params->buffer.kind = rec.kind;
    params->buffer.mirrored = rec.mirrored;
    if (params->partial)
        params->buffer.dtype = rec.dtype;
    if (params->partial && read_part(request, &rec, plan, err) < 0)
        return -1;
    if (gb_query_bool(request, "in_place", &in_place, err) < 0)
        return -1;
    /* Memory of another process is written in place, whatever was asked for. */
    plan->adopted = rec.adopted && rec.state != GB_BUFFER_LOST;
    in_place |= plan->adopted;
    /* Bytes written in place are bytes of the same tensor. */
    if (in_place && !params->partial && plan->said == GB_FORM_RAW && !gb_http_query(request, "dtype") &&
        !plan->has_shape) {
        params->buffer.dtype = rec.dtype;
        params->buffer.shape = rec.shape;
        plan->has_shape = true;
    }
    return 0;
}

int gb_upload_request_read(struct gb_http_request *request, struct gb_upload_request *plan, struct gb_error *err) {
    struct gb_upload_params *params = &plan->params;

    params->buffer.kind = GB_KIND_DEVICE;
    strcpy(params->buffer.stream.s, "default");
    params->wait_ms = gb_http_prefer_wait(request, 0, GB_ALLOC_WAIT_MAX_S, NULL) * 1000;
    if (gb_param_name(request, 0, "session name", &params->buffer.session, err) < 0 ||
        gb_param_name(request, 1, "buffer name", &params->buffer.name, err) < 0 ||
        read_format(request, plan, err) < 0 || read_layout(request, plan, err) < 0)
        return -1;
    params->partial = gb_http_query(request, "offset") || gb_http_query(request, "slice");
    if (read_existing(request, plan, err) < 0 || read_placement(request, params, err) < 0)
        return -1;
    gb_request_hooks_stream(request, &params->buffer.stream);
    return 0;
}

static enum gb_step put_whole(struct gb_http_request *request, struct gb_http_response *response,
                              struct gb_error *err) {
    struct gb_upload_request *plan;
    struct gb_conditions *conditions;
    struct gb_http_sink *sink = NULL;
    struct gb_filters filters;

    if (gb_filters_read(request, response, &filters, err) < 0)
        return GB_STEP_ERROR;
    if (gb_http_header(request, "Content-Range")) {
        /* To ignore it would replace the whole by a part (RFC 9110, 14.5). */
        gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "Content-Range is not taken; send the part to ?offset=N instead");
        return GB_STEP_ERROR;
    }
    plan = calloc(1, sizeof(*plan));
    if (!plan) {
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
        return GB_STEP_ERROR;
    }
    plan->coded = filters.coded;
    if (gb_upload_request_read(request, plan, err) == 0 && gb_conditions_read(request, &conditions, err) == 0) {
        plan->params.check = gb_conditions_buffer_check(conditions);
        sink = gb_upload_sink_new(request, plan, err);
    }
    free(plan);
    if (sink)
        sink = gb_filters_wrap(request, &filters, sink, err);
    if (!sink)
        return GB_STEP_ERROR;
    request->sink = sink;
    return GB_STEP_BODY;
}

enum gb_step gb_api_data_put(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    bool more = false;

    if (gb_resumable_asked(request, &more, err) < 0)
        return GB_STEP_ERROR;
    return more ? gb_resumable_begin(request, response, err) : put_whole(request, response, err);
}

/* A write of a part: as PUT with an offset or a slice. */
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

/* As a form or a client that resumes sends it. */
enum gb_step gb_api_data_post(struct gb_http_request *request, struct gb_http_response *response,
                              struct gb_error *err) {
    if (gb_http_header(request, "Upload-Complete"))
        return gb_api_data_put(request, response, err);
    gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                 "POST begins an upload that can be resumed: give Upload-Complete: ?0, or ?1; a whole body goes with "
                 "PUT");
    return GB_STEP_ERROR;
}

enum gb_step gb_upload_reply(struct gb_http_request *request, const struct gb_buffer_rec *rec, bool created,
                             const struct gb_transfer_times *times, uint64_t recv_ns, struct gb_http_response *response,
                             struct gb_error *err) {
    struct gb_json_writer out = {0};
    char etag[GB_ETAG_SIZE];

    gb_render_buffer(&out, NULL, gb_api_of(request), request->param[0].s, rec);
    if (gb_http_response_header(response, err, "ETag", "\"%s\"", gb_etag_data(rec, GB_FORM_RAW, etag)) < 0 ||
        (created && gb_http_response_header(response, err, "Location", "/v1/sessions/%s/buffers/%s",
                                            request->param[0].s, rec->name.s) < 0) ||
        gb_add_upload_timing(request, times, recv_ns, response, err) < 0) {
        gb_json_done(&out);
        return GB_STEP_ERROR;
    }
    return gb_json_reply(&out, response, created ? 201 : 200, err) < 0 ? GB_STEP_ERROR : GB_STEP_REPLY;
}
