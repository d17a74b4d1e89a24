/* The daemon as a whole, and its devices. */
#include "client/list.h"

GBC_LIST_DONE(device)

int gpubuf_daemon_get(gpubuf_client *client, struct gpubuf_daemon *ret, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "GET", "/v1");
    return gbc_call(client, &request, NULL, gbc_record_daemon, ret, err);
}

int gpubuf_live(gpubuf_client *client, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "GET", "/livez");
    return gbc_call(client, &request, NULL, NULL, NULL, err);
}

static int take_ready(const json_t *object, void *ret) {
    const char *status = json_string_value(json_object_get(object, "status"));

    *(bool *)ret = status && strcmp(status, "ready") == 0;
    return status ? 0 : -1;
}

/* Not ready is a 503 that says so in place of a problem. */
int gpubuf_ready(gpubuf_client *client, bool *ret_ready, struct gpubuf_error *err) {
    struct gpubuf_error why;
    struct gbc_request request;
    bool ready = false;
    int r;

    gbc_error_init(err);
    gbc_error_init(&why);
    gbc_request_init(&request, "GET", "/readyz");
    gbc_query_true(&request, "verbose", true);
    request.once = true;
    r = gbc_ask(client, &request, &why);
    gbc_request_done(&request);
    if (r < 0 && client->answer.status != 503) {
        if (err)
            *err = why;
        return -1;
    }
    if (gbc_parse(&gbc_reply_of(client->conn)->body, take_ready, &ready, err) < 0)
        return -1;
    if (ret_ready)
        *ret_ready = ready;
    return 0;
}

int gpubuf_openapi(gpubuf_client *client, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "GET", "/openapi.json");
    return gbc_call(client, &request, NULL, NULL, NULL, err);
}

int gpubuf_stats_get(gpubuf_client *client, const struct gpubuf_how *how, struct gpubuf_stats *ret,
                     struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "GET", "/v1/stats");
    gbc_how(&request, how);
    return gbc_call(client, &request, how, gbc_record_stats, ret, err);
}

int gpubuf_device_list(gpubuf_client *client, struct gpubuf_device_list *ret, struct gpubuf_error *err) {
    static const struct gpubuf_page whole; /* it is never long enough for pages */
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "GET", "/v1/devices");
    return GBC_LIST(client, &request, &whole, gbc_record_device, ret, err);
}

int gpubuf_device_get(gpubuf_client *client, const char *device, struct gpubuf_device *ret, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "GET", "/v1/devices/%", device);
    return gbc_call(client, &request, NULL, gbc_record_device, ret, err);
}

int gpubuf_device_sync(gpubuf_client *client, const char *device, const struct gpubuf_how *how,
                       struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "POST", "/v1/devices/%/sync", device);
    gbc_how(&request, how);
    return gbc_call(client, &request, how, NULL, NULL, err);
}
