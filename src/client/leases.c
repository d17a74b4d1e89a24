/* Leases: who maps what. */
#include "client/list.h"

GBC_LIST_DONE(lease)

int gpubuf_lease_list(gpubuf_client *client, const struct gpubuf_page *page, struct gpubuf_lease_list *ret,
                      struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "GET", "/v1/leases");
    return GBC_LIST(client, &request, page, gbc_record_lease, ret, err);
}

int gpubuf_lease_delete(gpubuf_client *client, const char *lease, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "DELETE", "/v1/leases/%", lease);
    return gbc_call(client, &request, NULL, NULL, NULL, err);
}
