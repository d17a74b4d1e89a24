/* Pools. */
#include "client/list.h"

GBC_LIST_DONE(pool)

static json_t *params_json(struct gbc_request *request, const char *pool, const struct gpubuf_pool_params *params) {
    json_t *body = json_object();
    json_t *reuse = json_object();

    gbc_put_text(&request->wrong, body, "name", pool);
    if (params) {
        gbc_put_device(&request->wrong, body, "device", params->device);
        gbc_put_opt(&request->wrong, body, "max_bytes", params->max_bytes);
        gbc_put_opt(&request->wrong, body, "release_threshold_bytes", params->release_threshold_bytes);
        gbc_put_flag(&request->wrong, reuse, "follow_event_dependencies", params->follow_event_dependencies);
        gbc_put_flag(&request->wrong, reuse, "allow_opportunistic", params->allow_opportunistic);
        gbc_put_flag(&request->wrong, reuse, "allow_internal_dependencies", params->allow_internal_dependencies);
        gbc_put_flag(&request->wrong, body, "exportable", params->exportable);
    }
    gbc_put_some(&request->wrong, body, "reuse", reuse);
    return body;
}

int gpubuf_pool_list(gpubuf_client *client, const char *session, const struct gpubuf_page *page,
                     struct gpubuf_pool_list *ret, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "GET", "/v1/sessions/%/pools", session);
    return GBC_LIST(client, &request, page, gbc_record_pool, ret, err);
}

int gpubuf_pool_create(gpubuf_client *client, const char *session, const char *pool,
                       const struct gpubuf_pool_params *params, const struct gpubuf_how *how, struct gpubuf_pool *ret,
                       struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "POST", "/v1/sessions/%/pools", session);
    gbc_how(&request, how);
    gbc_json(&request, params_json(&request, pool ? pool : "", params));
    return gbc_call(client, &request, how, gbc_record_pool, ret, err);
}

int gpubuf_pool_get(gpubuf_client *client, const char *session, const char *pool, struct gpubuf_pool *ret,
                    struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "GET", "/v1/sessions/%/pools/%", session, pool);
    return gbc_call(client, &request, NULL, gbc_record_pool, ret, err);
}

int gpubuf_pool_update(gpubuf_client *client, const char *session, const char *pool,
                       const struct gpubuf_pool_params *params, const struct gpubuf_how *how, struct gpubuf_pool *ret,
                       struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "PATCH", "/v1/sessions/%/pools/%", session, pool);
    gbc_how(&request, how);
    gbc_json(&request, params_json(&request, NULL, params));
    return gbc_call(client, &request, how, gbc_record_pool, ret, err);
}

int gpubuf_pool_delete(gpubuf_client *client, const char *session, const char *pool, bool force,
                       const struct gpubuf_how *how, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "DELETE", "/v1/sessions/%/pools/%", session, pool);
    gbc_how(&request, how);
    gbc_query_true(&request, "force", force);
    return gbc_call(client, &request, how, NULL, NULL, err);
}

int gpubuf_pool_trim(gpubuf_client *client, const char *session, const char *pool, uint64_t keep_bytes,
                     const struct gpubuf_how *how, struct gpubuf_pool *ret, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "POST", "/v1/sessions/%/pools/%/trim", session, pool);
    gbc_how(&request, how);
    gbc_json(&request, gbc_json_of("keep_bytes", json_integer((json_int_t)keep_bytes)));
    return gbc_call(client, &request, how, gbc_record_pool, ret, err);
}

int gpubuf_pool_reset_peak(gpubuf_client *client, const char *session, const char *pool, const struct gpubuf_how *how,
                           struct gpubuf_pool *ret, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "POST", "/v1/sessions/%/pools/%/reset-peak", session, pool);
    gbc_how(&request, how);
    return gbc_call(client, &request, how, gbc_record_pool, ret, err);
}

int gpubuf_pool_access(gpubuf_client *client, const char *session, const char *pool, const char *device,
                       const char *access, const struct gpubuf_how *how, struct gpubuf_pool *ret,
                       struct gpubuf_error *err) {
    struct gbc_request request;
    json_t *body = json_object();

    gbc_error_init(err);
    gbc_request_init(&request, "POST", "/v1/sessions/%/pools/%/access", session, pool);
    gbc_how(&request, how);
    gbc_put_device(&request.wrong, body, "device", device);
    gbc_put_text(&request.wrong, body, "access", access);
    gbc_json(&request, body);
    return gbc_call(client, &request, how, gbc_record_pool, ret, err);
}
