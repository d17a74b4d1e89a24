/* Operations: what a client can wait for. */
#include "client/list.h"

GBC_LIST_DONE(operation)

int gpubuf_operation_list(gpubuf_client *client, const char *session, const char *state, const struct gpubuf_page *page,
                          struct gpubuf_operation_list *ret, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "GET", "/v1/operations");
    gbc_query(&request, "session", session);
    gbc_query(&request, "state", state);
    return GBC_LIST(client, &request, page, gbc_record_operation, ret, err);
}

int gpubuf_operation_get(gpubuf_client *client, const char *id, const struct gpubuf_how *how,
                         struct gpubuf_operation *ret, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "GET", "/v1/operations/%", id);
    gbc_how(&request, how);
    return gbc_call(client, &request, how, gbc_record_operation, ret, err);
}

int gpubuf_operation_cancel(gpubuf_client *client, const char *id, const struct gpubuf_how *how,
                            struct gpubuf_operation *ret, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "DELETE", "/v1/operations/%", id);
    gbc_how(&request, how);
    return gbc_call(client, &request, how, gbc_record_operation, ret, err);
}

#define WAIT_S 20

static bool ended(const struct gpubuf_operation *operation) {
    return strcmp(operation->state, "queued") != 0 && strcmp(operation->state, "running") != 0;
}

/* The problem of one that failed. */
static int failure(gpubuf_client *client, const char *id, struct gpubuf_error *err) {
    json_t *object = json_loads(client->answer.body, 0, NULL);

    if (!gbc_error_json(err, json_object_get(object, "problem")))
        gbc_error_set(err, GPUBUF_BAD_ANSWER, "operation %s failed and does not say why", id);
    json_decref(object);
    return -1;
}

int gpubuf_operation_wait(gpubuf_client *client, const char *id, uint32_t timeout_s, struct gpubuf_operation *ret,
                          struct gpubuf_error *err) {
    uint64_t end_ms = gbc_now_ms() + timeout_s * (uint64_t)1000;
    struct gpubuf_operation operation;

    for (;;) {
        struct gpubuf_how how = {.wait_s = WAIT_S};
        uint64_t now_ms = gbc_now_ms();

        if (timeout_s > 0 && now_ms < end_ms && (end_ms - now_ms) / 1000 < WAIT_S)
            how.wait_s = (uint32_t)((end_ms - now_ms) / 1000) + 1;
        if (gpubuf_operation_get(client, id, &how, &operation, err) < 0)
            return -1;
        if (ended(&operation))
            break;
        if (timeout_s > 0 && gbc_now_ms() >= end_ms)
            return gbc_error_set(err, GPUBUF_CLIENT_TIMEOUT, "operation %s is still %s after %u s", id, operation.state,
                                 (unsigned)timeout_s);
    }
    if (strcmp(operation.state, "done") != 0)
        return failure(client, id, err);
    if (ret)
        *ret = operation;
    return 0;
}
