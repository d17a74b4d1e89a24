/* Leases: who maps what, and exports. */
#include "client/list.h"

GBC_LIST_DONE(lease)

int gpubuf_lease_list(gpubuf_client *client, const struct gpubuf_page *page, struct gpubuf_lease_list *ret,
                      struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "GET", "/v1/leases");
    return GBC_LIST(client, &request, page, gbc_record_lease, ret, err);
}

int gpubuf_lease_get(gpubuf_client *client, const char *lease, struct gpubuf_lease *ret, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "GET", "/v1/leases/%", lease);
    return gbc_call(client, &request, NULL, gbc_record_lease, ret, err);
}

int gpubuf_lease_delete(gpubuf_client *client, const char *lease, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "DELETE", "/v1/leases/%", lease);
    return gbc_call(client, &request, NULL, NULL, NULL, err);
}

int gpubuf_export(gpubuf_client *client, const char *session, const char *buffer,
                  const struct gpubuf_export_params *params, const struct gpubuf_how *how, struct gpubuf_exported *ret,
                  struct gpubuf_error *err) {
    struct gbc_request request;
    json_t *body = json_object();

    gbc_error_init(err);
    gbc_request_init(&request, "POST", "/v1/sessions/%/buffers/%/export", session, buffer);
    gbc_how(&request, how);
    gbc_put_text(&request.wrong, body, "mode", params && params->write ? "write" : "read");
    if (params && params->ttl_s > 0)
        gbc_put_opt(&request.wrong, body, "ttl_s", gpubuf_some(params->ttl_s));
    gbc_json(&request, body);
    return gbc_call(client, &request, how, gbc_record_exported, ret, err);
}
