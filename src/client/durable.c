/* Bytes on disk: store, load, and the state of the disk. */
#include "client/client.h"

int gpubuf_buffer_store(gpubuf_client *client, const char *session, const char *buffer, const struct gpubuf_how *how,
                        struct gpubuf_stored *ret, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "POST", "/v1/sessions/%/buffers/%/store", session, buffer);
    gbc_how(&request, how);
    gbc_json(&request, json_object());
    return gbc_call(client, &request, how, gbc_record_stored, ret, err);
}

static int load_once(gpubuf_client *client, const char *session, const char *buffer, const struct gpubuf_how *how,
                     struct gpubuf_buffer *ret, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "POST", "/v1/sessions/%/buffers/%/load", session, buffer);
    gbc_how(&request, how);
    gbc_json(&request, json_object());
    return gbc_call(client, &request, how, gbc_record_buffer, ret, err);
}

/* A request waits no longer than the daemon's --wait-max; the load goes on, and the next request waits for it. */
int gpubuf_buffer_load(gpubuf_client *client, const char *session, const char *buffer, const struct gpubuf_how *how,
                       struct gpubuf_buffer *ret, struct gpubuf_error *err) {
    uint64_t end_ms = how && how->wait_s > 0 ? gbc_now_ms() + how->wait_s * UINT64_C(1000) : UINT64_MAX;
    struct gpubuf_error why;
    int r;

    do {
        r = load_once(client, session, buffer, how, ret, &why);
    } while (r < 0 && why.code == GPUBUF_TIMED_OUT && gbc_now_ms() < end_ms);
    gbc_error_init(err);
    if (r < 0 && err)
        *err = why;
    return r;
}

int gpubuf_storage_get(gpubuf_client *client, struct gpubuf_storage *ret, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "GET", "/v1/storage");
    return gbc_call(client, &request, NULL, gbc_record_storage, ret, err);
}
