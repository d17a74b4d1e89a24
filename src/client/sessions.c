/* Sessions, and what concerns all of one. */
#include "client/client.h"
#include "client/list.h"

GBC_LIST_DONE(session)

json_t *gbc_session_json(struct gbc_request *request, const char *session, const struct gpubuf_session_params *params) {
    json_t *body = json_object();
    json_t *quota = json_object();

    gbc_put_text(&request->wrong, body, "name", session);
    if (params) {
        gbc_put_json(request, body, "labels", params->labels);
        gbc_put_opt(&request->wrong, quota, "bytes", params->quota_bytes);
        gbc_put_opt(&request->wrong, quota, "buffers", params->quota_buffers);
        gbc_put_opt(&request->wrong, quota, "pinned_bytes", params->quota_pinned_bytes);
        gbc_put_opt(&request->wrong, quota, "stored_bytes", params->quota_stored_bytes);
        gbc_put_opt(&request->wrong, body, "idle_ttl_s", params->idle_ttl_s);
        gbc_put_text(&request->wrong, body, "pool", params->pool);
        gbc_put_text(&request->wrong, body, "durability", params->durability);
        gbc_put_text(&request->wrong, body, "spill", params->spill);
        gbc_put_opt(&request->wrong, body, "priority", params->priority);
        gbc_put_true(&request->wrong, body, "fleet", params->fleet != NULL);
        gbc_put_text(&request->wrong, body, "on_partition", params->fleet);
        if (params->failover_after_s > 0)
            gbc_put_some(&request->wrong, body, "failover_after_s", json_integer(params->failover_after_s));
        if (params->replicas > 0)
            gbc_put_some(&request->wrong, body, "replicas",
                         json_integer(params->replicas == GPUBUF_NO_REPLICAS ? 0 : params->replicas));
    }
    gbc_put_some(&request->wrong, body, "quota", quota);
    return body;
}

int gpubuf_session_list(gpubuf_client *client, const struct gpubuf_page *page, struct gpubuf_session_list *ret,
                        struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "GET", "/v1/sessions");
    return GBC_LIST(client, &request, page, gbc_record_session, ret, err);
}

int gpubuf_session_create(gpubuf_client *client, const char *session, const struct gpubuf_session_params *params,
                          const struct gpubuf_how *how, struct gpubuf_session *ret, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "POST", "/v1/sessions");
    gbc_how(&request, how);
    gbc_json(&request, gbc_session_json(&request, session ? session : "", params));
    return gbc_call(client, &request, how, gbc_record_session, ret, err);
}

int gpubuf_session_get(gpubuf_client *client, const char *session, const struct gpubuf_how *how,
                       struct gpubuf_session *ret, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "GET", "/v1/sessions/%", session);
    gbc_how(&request, how);
    return gbc_call(client, &request, how, gbc_record_session, ret, err);
}

int gpubuf_session_update(gpubuf_client *client, const char *session, const struct gpubuf_session_params *params,
                          const struct gpubuf_how *how, struct gpubuf_session *ret, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "PATCH", "/v1/sessions/%", session);
    gbc_how(&request, how);
    gbc_json(&request, gbc_session_json(&request, NULL, params));
    return gbc_call(client, &request, how, gbc_record_session, ret, err);
}

int gpubuf_session_delete(gpubuf_client *client, const char *session, const struct gpubuf_how *how,
                          struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "DELETE", "/v1/sessions/%", session);
    gbc_how(&request, how);
    return gbc_call(client, &request, how, NULL, NULL, err);
}

static int heartbeat(const json_t *object, void *ret) {
    gbc_read_text(object, "expires_at", ret, GPUBUF_TIME_SIZE);
    return json_object_get(object, "expires_at") ? 0 : -1;
}

int gpubuf_session_heartbeat(gpubuf_client *client, const char *session, const struct gpubuf_how *how,
                             char *ret_expires_at, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "POST", "/v1/sessions/%/heartbeat", session);
    gbc_how(&request, how);
    return gbc_call(client, &request, how, heartbeat, ret_expires_at, err);
}

int gpubuf_session_stats(gpubuf_client *client, const char *session, struct gpubuf_stats *ret,
                         struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "GET", "/v1/sessions/%/stats", session);
    return gbc_call(client, &request, NULL, gbc_record_stats, ret, err);
}

int gpubuf_session_sync(gpubuf_client *client, const char *session, const struct gpubuf_how *how,
                        struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "POST", "/v1/sessions/%/sync", session);
    gbc_how(&request, how);
    return gbc_call(client, &request, how, NULL, NULL, err);
}

int gpubuf_batch_run(gpubuf_client *client, const char *session, const char *operations, const char *stream,
                     bool atomic, const struct gpubuf_how *how, struct gpubuf_batch *ret, struct gpubuf_error *err) {
    struct gbc_request request;
    json_t *body = json_object();

    gbc_error_init(err);
    gbc_request_init(&request, "POST", "/v1/sessions/%/batch", session);
    gbc_how(&request, how);
    gbc_put_json(&request, body, "operations", operations);
    gbc_put_text(&request.wrong, body, "stream", stream);
    gbc_put_true(&request.wrong, body, "atomic", atomic);
    gbc_json(&request, body);
    return gbc_call(client, &request, how, gbc_record_batch, ret, err);
}
