/* Buffers, without their bytes. */
#include "client/list.h"

GBC_LIST_DONE(buffer)

json_t *gbc_buffer_json(struct gbc_request *request, const char *key, const char *buffer,
                        const struct gpubuf_buffer_params *params) {
    json_t *body = json_object();
    json_t *shape;

    gbc_put_text(&request->wrong, body, key, buffer);
    if (!params)
        return body;
    gbc_put_opt(&request->wrong, body, "bytes", params->bytes);
    gbc_put_text(&request->wrong, body, "dtype", params->dtype);
    gbc_put_text(&request->wrong, body, "kind", params->kind);
    gbc_put_text(&request->wrong, body, "pool", params->pool);
    gbc_put_text(&request->wrong, body, "stream", params->stream);
    gbc_put_device(&request->wrong, body, "device", params->device);
    gbc_put_json(request, body, "labels", params->labels);
    gbc_put_true(&request->wrong, body, "mirrored", params->mirrored);
    gbc_put_text(&request->wrong, body, "durability", params->durability);
    gbc_put_text(&request->wrong, body, "spill", params->spill);
    gbc_put_flag(&request->wrong, body, "resident", params->resident);
    shape = params->shape ? gbc_shape_json(params->shape) : NULL;
    if (shape)
        gbc_put(&request->wrong, body, "shape", shape);
    else if (params->shape)
        gbc_error_set(&request->wrong, GPUBUF_BAD_ARGUMENT, "\"%s\" is no shape: give numbers with commas, such as 2,3",
                      params->shape);
    return body;
}

int gpubuf_buffer_list(gpubuf_client *client, const char *session, const struct gpubuf_page *page,
                       struct gpubuf_buffer_list *ret, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "GET", "/v1/sessions/%/buffers", session);
    return GBC_LIST(client, &request, page, gbc_record_buffer, ret, err);
}

int gpubuf_buffer_create(gpubuf_client *client, const char *session, const char *buffer,
                         const struct gpubuf_buffer_params *params, const struct gpubuf_how *how,
                         struct gpubuf_buffer *ret, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "POST", "/v1/sessions/%/buffers", session);
    gbc_how(&request, how);
    gbc_json(&request, gbc_buffer_json(&request, "name", buffer ? buffer : "", params));
    return gbc_call(client, &request, how, gbc_record_buffer, ret, err);
}

int gpubuf_buffer_get(gpubuf_client *client, const char *session, const char *buffer, bool attributes,
                      const struct gpubuf_how *how, struct gpubuf_buffer *ret, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "GET", "/v1/sessions/%/buffers/%", session, buffer);
    gbc_how(&request, how);
    gbc_query_true(&request, "attributes", attributes);
    return gbc_call(client, &request, how, gbc_record_buffer, ret, err);
}

int gpubuf_buffer_last_transfer(gpubuf_client *client, const char *session, const char *buffer,
                                struct gpubuf_last_transfer *ret, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "GET", "/v1/sessions/%/buffers/%", session, buffer);
    gbc_query_true(&request, "last_transfer", true);
    return gbc_call(client, &request, NULL, gbc_record_last_transfer, ret, err);
}

int gpubuf_buffer_update(gpubuf_client *client, const char *session, const char *buffer,
                         const struct gpubuf_buffer_params *params, const struct gpubuf_how *how,
                         struct gpubuf_buffer *ret, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "PATCH", "/v1/sessions/%/buffers/%", session, buffer);
    gbc_how(&request, how);
    gbc_json(&request, gbc_buffer_json(&request, "name", NULL, params));
    return gbc_call(client, &request, how, gbc_record_buffer, ret, err);
}

int gpubuf_buffer_delete(gpubuf_client *client, const char *session, const char *buffer, bool when_unmapped,
                         const struct gpubuf_how *how, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "DELETE", "/v1/sessions/%/buffers/%", session, buffer);
    gbc_how(&request, how);
    gbc_query(&request, "when", when_unmapped ? "unmapped" : NULL);
    return gbc_call(client, &request, NULL, NULL, NULL, err);
}

int gpubuf_buffer_reserve(gpubuf_client *client, const char *session, const char *buffer, const char *side,
                          uint64_t bytes, const struct gpubuf_how *how, struct gpubuf_buffer *ret,
                          struct gpubuf_error *err) {
    struct gbc_request request;
    json_t *body = gbc_json_of("side", json_string_nocheck(side ? side : ""));

    gbc_error_init(err);
    gbc_request_init(&request, "POST", "/v1/sessions/%/buffers/%/reserve", session, buffer);
    gbc_how(&request, how);
    gbc_put_opt(&request.wrong, body, "bytes", gpubuf_some(bytes));
    gbc_json(&request, body);
    return gbc_call(client, &request, how, gbc_record_buffer, ret, err);
}

int gpubuf_buffer_release(gpubuf_client *client, const char *session, const char *buffer, const char *side,
                          const struct gpubuf_how *how, struct gpubuf_buffer *ret, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "POST", "/v1/sessions/%/buffers/%/release", session, buffer);
    gbc_how(&request, how);
    gbc_json(&request, gbc_json_of("side", json_string_nocheck(side ? side : "")));
    return gbc_call(client, &request, how, gbc_record_buffer, ret, err);
}

int gpubuf_buffer_seal(gpubuf_client *client, const char *session, const char *buffer, const struct gpubuf_how *how,
                       struct gpubuf_buffer *ret, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "POST", "/v1/sessions/%/buffers/%/seal", session, buffer);
    gbc_how(&request, how);
    gbc_json(&request, json_object());
    return gbc_call(client, &request, how, gbc_record_buffer, ret, err);
}
