/* Checkpoints: the buffers of a session as of one moment. */
#include "client/list.h"

#define CHECKPOINT_S 3600 /* what reads or writes all bytes of a session may take as long */

GBC_LIST_DONE(checkpoint)

int gpubuf_checkpoint_list(gpubuf_client *client, const char *session, const struct gpubuf_page *page,
                           struct gpubuf_checkpoint_list *ret, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "GET", "/v1/checkpoints");
    gbc_query(&request, "session", session);
    return GBC_LIST(client, &request, page, gbc_record_checkpoint, ret, err);
}

static void put_names(struct gbc_request *request, json_t *object, const char *const *names) {
    json_t *list;

    if (!names)
        return;
    list = json_array();
    for (; *names; names++)
        gbc_add_text(&request->wrong, list, *names);
    gbc_put(&request->wrong, object, "names", list);
}

/* Sends body, which it takes over, to a request that may take long. */
static int call_long(gpubuf_client *client, struct gbc_request *request, json_t *body, const struct gpubuf_how *how,
                     gbc_record_fn *record, void *ret, struct gpubuf_error *err) {
    gbc_how(request, how);
    if (request->wait_s == 0)
        request->wait_s = CHECKPOINT_S;
    gbc_json(request, body);
    return gbc_call(client, request, how, record, ret, err);
}

int gpubuf_checkpoint_create(gpubuf_client *client, const char *session, const char *checkpoint,
                             const struct gpubuf_checkpoint_params *params, const struct gpubuf_how *how,
                             struct gpubuf_checkpoint *ret, struct gpubuf_error *err) {
    struct gbc_request request;
    json_t *body = json_object();

    gbc_error_init(err);
    gbc_request_init(&request, "POST", "/v1/sessions/%/checkpoints", session);
    gbc_put_text(&request.wrong, body, "name", checkpoint ? checkpoint : "");
    if (params) {
        gbc_put_text(&request.wrong, body, "prefix", params->prefix);
        put_names(&request, body, params->names);
        gbc_put_true(&request.wrong, body, "lenient", params->lenient);
        gbc_put_true(&request.wrong, body, "unstable", params->unstable);
    }
    return call_long(client, &request, body, how, gbc_record_checkpoint, ret, err);
}

int gpubuf_checkpoint_get(gpubuf_client *client, const char *checkpoint, const struct gpubuf_how *how,
                          struct gpubuf_checkpoint *ret, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "GET", "/v1/checkpoints/%", checkpoint);
    gbc_how(&request, how);
    return gbc_call(client, &request, how, gbc_record_checkpoint, ret, err);
}

int gpubuf_checkpoint_delete(gpubuf_client *client, const char *checkpoint, const struct gpubuf_how *how,
                             struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "DELETE", "/v1/checkpoints/%", checkpoint);
    gbc_how(&request, how);
    return gbc_call(client, &request, how, NULL, NULL, err);
}

int gpubuf_checkpoint_verify(gpubuf_client *client, const char *checkpoint, const struct gpubuf_how *how,
                             struct gpubuf_checkpoint_verified *ret, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "POST", "/v1/checkpoints/%/verify", checkpoint);
    return call_long(client, &request, json_object(), how, gbc_record_checkpoint_verified, ret, err);
}

int gpubuf_checkpoint_restore(gpubuf_client *client, const char *checkpoint, const struct gpubuf_restore_params *params,
                              const struct gpubuf_how *how, struct gpubuf_restored *ret, struct gpubuf_error *err) {
    struct gbc_request request;
    json_t *body = json_object();

    gbc_error_init(err);
    gbc_request_init(&request, "POST", "/v1/checkpoints/%/restore", checkpoint);
    if (params) {
        gbc_put_text(&request.wrong, body, "into", params->into);
        gbc_put_text(&request.wrong, body, "prefix", params->prefix);
        put_names(&request, body, params->names);
        gbc_put_device(&request.wrong, body, "device", params->device);
        gbc_put_true(&request.wrong, body, "replace", params->replace);
        gbc_put_text(&request.wrong, body, "load", params->eager ? "eager" : NULL);
    }
    return call_long(client, &request, body, how, gbc_record_restored, ret, err);
}
