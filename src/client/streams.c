/* Streams and events. */
#include "client/list.h"

GBC_LIST_DONE(stream)
GBC_LIST_DONE(event)

int gpubuf_stream_list(gpubuf_client *client, const char *session, const struct gpubuf_page *page,
                       struct gpubuf_stream_list *ret, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "GET", "/v1/sessions/%/streams", session);
    return GBC_LIST(client, &request, page, gbc_record_stream, ret, err);
}

int gpubuf_stream_create(gpubuf_client *client, const char *session, const char *stream, const struct gpubuf_how *how,
                         struct gpubuf_stream *ret, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "POST", "/v1/sessions/%/streams", session);
    gbc_how(&request, how);
    gbc_json(&request, gbc_json_of("name", json_string_nocheck(stream ? stream : "")));
    return gbc_call(client, &request, how, gbc_record_stream, ret, err);
}

int gpubuf_stream_get(gpubuf_client *client, const char *session, const char *stream, struct gpubuf_stream *ret,
                      struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "GET", "/v1/sessions/%/streams/%", session, stream);
    return gbc_call(client, &request, NULL, gbc_record_stream, ret, err);
}

int gpubuf_stream_delete(gpubuf_client *client, const char *session, const char *stream, const struct gpubuf_how *how,
                         struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "DELETE", "/v1/sessions/%/streams/%", session, stream);
    gbc_how(&request, how);
    return gbc_call(client, &request, how, NULL, NULL, err);
}

int gpubuf_event_list(gpubuf_client *client, const char *session, const struct gpubuf_page *page,
                      struct gpubuf_event_list *ret, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "GET", "/v1/sessions/%/events", session);
    return GBC_LIST(client, &request, page, gbc_record_event, ret, err);
}

int gpubuf_event_create(gpubuf_client *client, const char *session, const char *event, const struct gpubuf_how *how,
                        struct gpubuf_event *ret, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "POST", "/v1/sessions/%/events", session);
    gbc_how(&request, how);
    gbc_json(&request, gbc_json_of("name", json_string_nocheck(event ? event : "")));
    return gbc_call(client, &request, how, gbc_record_event, ret, err);
}

int gpubuf_event_get(gpubuf_client *client, const char *session, const char *event, struct gpubuf_event *ret,
                     struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "GET", "/v1/sessions/%/events/%", session, event);
    return gbc_call(client, &request, NULL, gbc_record_event, ret, err);
}

int gpubuf_event_delete(gpubuf_client *client, const char *session, const char *event, const struct gpubuf_how *how,
                        struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "DELETE", "/v1/sessions/%/events/%", session, event);
    gbc_how(&request, how);
    return gbc_call(client, &request, how, NULL, NULL, err);
}

int gpubuf_stream_sync(gpubuf_client *client, const char *session, const char *stream, const struct gpubuf_how *how,
                       struct gpubuf_stream *ret, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "POST", "/v1/sessions/%/streams/%/sync", session, stream);
    gbc_how(&request, how);
    return gbc_call(client, &request, how, gbc_record_stream, ret, err);
}

int gpubuf_stream_hold(gpubuf_client *client, const char *session, const char *stream, uint64_t ms, const char *device,
                       const struct gpubuf_how *how, struct gpubuf_error *err) {
    struct gbc_request request;
    json_t *body;

    gbc_error_init(err);
    gbc_request_init(&request, "POST", "/v1/sessions/%/streams/%/hold", session, stream);
    gbc_how(&request, how);
    body = gbc_json_of("ms", json_integer(ms > INT64_MAX ? INT64_MAX : (json_int_t)ms));
    gbc_put_device(&request.wrong, body, "device", device);
    gbc_json(&request, body);
    return gbc_call(client, &request, how, NULL, NULL, err);
}

int gpubuf_event_record(gpubuf_client *client, const char *session, const char *event, const char *stream,
                        const struct gpubuf_how *how, struct gpubuf_event *ret, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "POST", "/v1/sessions/%/events/%/record", session, event);
    gbc_how(&request, how);
    gbc_json(&request, gbc_json_of("stream", json_string_nocheck(stream ? stream : "default")));
    return gbc_call(client, &request, how, gbc_record_event, ret, err);
}

int gpubuf_event_wait(gpubuf_client *client, const char *session, const char *event, const char *stream,
                      const struct gpubuf_how *how, struct gpubuf_event *ret, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "POST", "/v1/sessions/%/events/%/wait", session, event);
    gbc_how(&request, how);
    gbc_json(&request, gbc_json_of("stream", json_string_nocheck(stream ? stream : "default")));
    return gbc_call(client, &request, how, gbc_record_event, ret, err);
}
