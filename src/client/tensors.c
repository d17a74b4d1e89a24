/* Many buffers as one safetensors file. */
#include "client/io.h"

#define TYPE "application/x-safetensors"

static int take_tensors(const json_t *o, void *ret) {
    struct gpubuf_tensors *r = ret;

    r->tensors = gbc_read_u64(o, "tensors");
    r->created = gbc_read_u64(o, "created");
    r->replaced = gbc_read_u64(o, "replaced");
    r->bytes = gbc_read_u64(o, "bytes");
    return json_is_array(json_object_get(o, "items")) ? 0 : -1;
}

int gpubuf_tensors_put(gpubuf_client *client, const char *session, struct gpubuf_source source,
                       const struct gpubuf_tensors_params *params, struct gpubuf_tensors *ret,
                       struct gpubuf_error *err) {
    static const struct gpubuf_tensors_params none;
    struct gbc_progress progress;
    struct gbc_request request;
    struct gbc_reader reader;
    int r;

    gbc_error_init(err);
    if (!params)
        params = &none;
    if (gbc_reader_init(&reader, source, &progress, false, err) < 0)
        return -1;
    gbc_progress_init(&progress, params->progress, params->progress_arg, reader.up.bytes);
    gbc_request_init(&request, "PUT", "/v1/sessions/%/tensors", session);
    gbc_how(&request, &params->how);
    gbc_query(&request, "prefix", params->prefix);
    gbc_query(&request, "stream", params->stream);
    gbc_query(&request, "kind", params->kind);
    gbc_query(&request, "pool", params->pool);
    gbc_query(&request, "device", params->device);
    gbc_header(&request, "Content-Encoding", params->content_encoding);
    request.body_type = TYPE;
    request.up = &reader.up;
    request.tick = gbc_progress_tick;
    request.tick_arg = &progress;
    r = gbc_call(client, &request, &params->how, take_tensors, ret, err);
    if (r == 0)
        gbc_progress_tick(&progress);
    return r;
}

/* --- back --------------------------------------------------------------------------------------------------------- */

struct getting {
    struct gbc_writer writer;
    struct gbc_progress progress;
};

static int begun(void *arg, const struct gbc_reply *reply, struct gpubuf_error *err) {
    struct getting *g = arg;

    if (!reply->length.set)
        return 0;
    g->progress.total = reply->length.value;
    return gbc_target_room(&g->writer.target, reply->length.value, err);
}

static int getting_write(void *arg, const void *data, size_t bytes, struct gpubuf_error *err) {
    struct getting *g = arg;

    return gbc_writer_write(&g->writer, data, bytes, err);
}

/* A file of several buffers is of a moment that has passed: it is not gone on with. */
static int again(struct gbc_request *request) {
    const struct getting *g = request->again_arg;

    return g->writer.at == 0 ? 0 : -1;
}

int gpubuf_tensors_get(gpubuf_client *client, const char *session, struct gpubuf_target target,
                       const struct gpubuf_tensors_params *params, uint64_t *ret_bytes, struct gpubuf_error *err) {
    static const struct gpubuf_tensors_params none;
    struct getting g;
    const struct gbc_down down = {.begin = begun, .write = getting_write, .arg = &g};
    struct gbc_request request;
    int r;

    gbc_error_init(err);
    if (!params)
        params = &none;
    gbc_progress_init(&g.progress, params->progress, params->progress_arg, GPUBUF_UNKNOWN);
    gbc_writer_init(&g.writer, target, &g.progress, false);
    gbc_request_init(&request, "GET", "/v1/sessions/%/tensors", session);
    gbc_how(&request, &params->how);
    gbc_query(&request, "names", params->names);
    gbc_query(&request, "prefix", params->prefix);
    gbc_query(&request, "label", params->label);
    gbc_query(&request, "stream", params->stream);
    gbc_header(&request, "Accept", TYPE);
    request.down = &down;
    request.tick = gbc_progress_tick;
    request.tick_arg = &g.progress;
    request.again = again;
    request.again_arg = &g;
    r = gbc_call(client, &request, &params->how, NULL, NULL, err);
    if (r != 0)
        return r;
    gbc_progress_tick(&g.progress);
    if (ret_bytes)
        *ret_bytes = g.writer.at;
    return 0;
}
