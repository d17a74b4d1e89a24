/* Bytes on disk: store, load, evict, the state of the disk, and its scrubs. */
#include "client/client.h"

#define SWEEP_S 3600 /* what moves the bytes of a session may take as long */

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

int gpubuf_buffer_evict(gpubuf_client *client, const char *session, const char *buffer, const struct gpubuf_how *how,
                        struct gpubuf_buffer *ret, struct gpubuf_error *err) {
    struct gbc_request request;
    json_t *body = json_object();

    gbc_error_init(err);
    gbc_request_init(&request, "POST", "/v1/sessions/%/buffers/%/evict", session, buffer);
    gbc_how(&request, how);
    gbc_put_text(&request.wrong, body, "to", how ? how->to : NULL);
    gbc_json(&request, body);
    return gbc_call(client, &request, how, gbc_record_buffer, ret, err);
}

static int sweep(gpubuf_client *client, const char *path, const char *session, const char *prefix, const char *to,
                 const struct gpubuf_how *how, struct gpubuf_swept *ret, struct gpubuf_error *err) {
    struct gbc_request request;
    json_t *body = json_object();

    gbc_error_init(err);
    gbc_request_init(&request, "POST", path, session);
    gbc_how(&request, how);
    if (request.wait_s == 0)
        request.wait_s = SWEEP_S;
    gbc_put_text(&request.wrong, body, "prefix", prefix);
    gbc_put_text(&request.wrong, body, "to", to);
    gbc_json(&request, body);
    return gbc_call(client, &request, how, gbc_record_swept, ret, err);
}

int gpubuf_session_evict(gpubuf_client *client, const char *session, const char *prefix, const struct gpubuf_how *how,
                         struct gpubuf_swept *ret, struct gpubuf_error *err) {
    return sweep(client, "/v1/sessions/%/evict", session, prefix, how ? how->to : NULL, how, ret, err);
}

int gpubuf_session_load(gpubuf_client *client, const char *session, const char *prefix, const struct gpubuf_how *how,
                        struct gpubuf_swept *ret, struct gpubuf_error *err) {
    return sweep(client, "/v1/sessions/%/load", session, prefix, NULL, how, ret, err);
}

int gpubuf_storage_get(gpubuf_client *client, struct gpubuf_storage *ret, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "GET", "/v1/storage");
    return gbc_call(client, &request, NULL, gbc_record_storage, ret, err);
}

int gpubuf_storage_scrub(gpubuf_client *client, uint64_t rate, const struct gpubuf_how *how,
                         struct gpubuf_scrubbed *ret, struct gpubuf_error *err) {
    struct gbc_request request;
    json_t *body = json_object();

    gbc_error_init(err);
    gbc_request_init(&request, "POST", "/v1/storage/scrub");
    gbc_how(&request, how);
    if (rate > 0)
        gbc_put_opt(&request.wrong, body, "rate", gpubuf_some(rate));
    gbc_json(&request, body);
    return gbc_call(client, &request, how, gbc_record_scrubbed, ret, err);
}
