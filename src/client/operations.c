/* Operations: what a client can wait for. */
#include <string.h>

#include "client/client.h"

#define WAIT_S 20

static int take_state(const json_t *object, void *ret) {
    gbc_read_text(object, "state", ret, GPUBUF_WORD_SIZE);
    return json_object_get(object, "id") && json_object_get(object, "state") ? 0 : -1;
}

static int ask(gpubuf_client *client, const char *id, uint32_t wait_s, char *ret_state, struct gpubuf_error *err) {
    const struct gpubuf_how how = {.wait_s = wait_s};
    struct gbc_request request;

    gbc_request_init(&request, "GET", "/v1/operations/%", id);
    gbc_how(&request, &how);
    return gbc_call(client, &request, &how, take_state, ret_state, err);
}

static bool ended(const char *state) {
    return strcmp(state, "queued") != 0 && strcmp(state, "running") != 0;
}

/* The problem of one that failed. */
static int failure(gpubuf_client *client, const char *id, struct gpubuf_error *err) {
    json_t *object = json_loads(client->answer.body, 0, NULL);

    if (!gbc_error_json(err, json_object_get(object, "problem")))
        gbc_error_set(err, GPUBUF_BAD_ANSWER, "operation %s failed and does not say why", id);
    json_decref(object);
    return -1;
}

int gpubuf_operation_wait(gpubuf_client *client, const char *id, uint32_t timeout_s, struct gpubuf_error *err) {
    uint64_t end_ms = gbc_now_ms() + timeout_s * (uint64_t)1000;
    char state[GPUBUF_WORD_SIZE];

    gbc_error_init(err);
    for (;;) {
        uint64_t now_ms = gbc_now_ms();
        uint32_t wait_s = WAIT_S;

        if (timeout_s > 0 && now_ms < end_ms && (end_ms - now_ms) / 1000 < WAIT_S)
            wait_s = (uint32_t)((end_ms - now_ms) / 1000) + 1;
        if (ask(client, id, wait_s, state, err) < 0)
            return -1;
        if (ended(state))
            break;
        if (timeout_s > 0 && gbc_now_ms() >= end_ms)
            return gbc_error_set(err, GPUBUF_CLIENT_TIMEOUT, "operation %s is still %s after %u s", id, state,
                                 (unsigned)timeout_s);
    }
    return strcmp(state, "done") == 0 ? 0 : failure(client, id, err);
}
