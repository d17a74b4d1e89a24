/* The fleet: its nodes, and where sessions are. */
#include "client/client.h"
#include "client/epochs.h"
#include "client/list.h"

GBC_LIST_DONE(node)
GBC_LIST_DONE(fleet_session)

static const struct gpubuf_page whole; /* of a list without pages */

int gpubuf_fleet_get(gpubuf_client *client, struct gpubuf_fleet *ret, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "GET", "/v1/fleet");
    return gbc_call(client, &request, NULL, gbc_record_fleet, ret, err);
}

int gpubuf_node_list(gpubuf_client *client, struct gpubuf_node_list *ret, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "GET", "/v1/fleet/nodes");
    return GBC_LIST(client, &request, &whole, gbc_record_node, ret, err);
}

int gpubuf_node_get(gpubuf_client *client, const char *node, struct gpubuf_node *ret, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "GET", "/v1/fleet/nodes/%", node);
    return gbc_call(client, &request, NULL, gbc_record_node, ret, err);
}

int gpubuf_node_forget(gpubuf_client *client, const char *node, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "DELETE", "/v1/fleet/nodes/%", node);
    return gbc_call(client, &request, NULL, NULL, NULL, err);
}

int gpubuf_node_drain(gpubuf_client *client, const char *node, bool draining, struct gpubuf_node *ret,
                      struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "POST", draining ? "/v1/fleet/nodes/%/drain" : "/v1/fleet/nodes/%/undrain", node);
    gbc_json(&request, json_object());
    return gbc_call(client, &request, NULL, gbc_record_node, ret, err);
}

int gpubuf_fleet_session_list(gpubuf_client *client, const char *node, const struct gpubuf_page *page,
                              struct gpubuf_fleet_session_list *ret, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "GET", "/v1/fleet/sessions");
    gbc_query(&request, "node", node);
    return GBC_LIST(client, &request, page, gbc_record_fleet_session, ret, err);
}

int gpubuf_fleet_find(gpubuf_client *client, const char *session, struct gpubuf_fleet_session *ret,
                      struct gpubuf_error *err) {
    struct gpubuf_fleet_session found;
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "GET", "/v1/fleet/sessions/%", session);
    if (gbc_call(client, &request, NULL, gbc_record_fleet_session, &found, err) < 0)
        return -1;
    gpubuf_fleet_expect(client, session, found.epoch);
    if (ret)
        *ret = found;
    return 0;
}

void gpubuf_fleet_expect(gpubuf_client *client, const char *session, uint64_t epoch) {
    gbc_epochs_raise(client->set.epochs, session, epoch);
}

int gpubuf_fleet_take(gpubuf_client *client, const char *session, struct gpubuf_fleet_session *ret,
                      struct gpubuf_error *err) {
    struct gpubuf_fleet_session taken;
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "POST", "/v1/fleet/sessions/%/take", session);
    gbc_json(&request, gbc_json_of("force", json_true()));
    if (gbc_call(client, &request, NULL, gbc_record_taken, &taken, err) < 0)
        return -1;
    gpubuf_fleet_expect(client, session, taken.epoch);
    if (ret)
        *ret = taken;
    return 0;
}

int gpubuf_fleet_move(gpubuf_client *client, const char *session, const char *to, const char *select,
                      struct gpubuf_moved *ret, struct gpubuf_error *err) {
    struct gpubuf_moved moved;
    struct gbc_request request;
    json_t *body = json_object();

    gbc_error_init(err);
    gbc_request_init(&request, "POST", "/v1/fleet/sessions/%/move", session);
    gbc_put_text(&request.wrong, body, "to", to);
    gbc_put_json(&request, body, "select", select);
    gbc_json(&request, body);
    if (gbc_call(client, &request, NULL, gbc_record_moved, &moved, err) < 0)
        return -1;
    gpubuf_fleet_expect(client, session, moved.epoch);
    if (ret)
        *ret = moved;
    return 0;
}

int gpubuf_fleet_delete(gpubuf_client *client, const char *session, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "DELETE", "/v1/fleet/sessions/%", session);
    gbc_query_true(&request, "force", true);
    return gbc_call(client, &request, NULL, NULL, NULL, err);
}

int gpubuf_fleet_place(gpubuf_client *client, const char *session, const struct gpubuf_session_params *params,
                       const struct gpubuf_place *place, const struct gpubuf_how *how, struct gpubuf_fleet_session *ret,
                       struct gpubuf_error *err) {
    struct gpubuf_fleet_session placed = {.epoch = 0};
    struct gbc_request request;
    json_t *body;
    int r;

    gbc_error_init(err);
    gbc_request_init(&request, "POST", "/v1/fleet/sessions");
    gbc_how(&request, how);
    body = gbc_session_json(&request, session ? session : "", params);
    if (place) {
        gbc_put_json(&request, body, "select", place->select);
        gbc_put_text(&request.wrong, body, "on_partition", place->on_partition);
        gbc_put_text(&request.wrong, body, "tenant", place->tenant);
    }
    gbc_json(&request, body);
    r = gbc_call(client, &request, how, gbc_record_placed, &placed, err);
    if (r == 0 && placed.epoch > 0) {
        gbc_epochs_made(client->set.epochs, placed.name, placed.epoch);
        if (ret)
            *ret = placed;
    }
    return r;
}
