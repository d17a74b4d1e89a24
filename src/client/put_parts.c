/* An upload in parts, over several connections. */
#include "client/put.h"

#include <inttypes.h>
#include <stdio.h>

struct putting {
    const char *session;
    char id[GPUBUF_ID_SIZE];
    const struct gpubuf_source *source;
    struct gbc_parts parts;
    struct gbc_progress progress;
    bool check;
};

static int take_crc(const json_t *object, void *ret) {
    struct gpubuf_opt *crc = ret;

    *crc = gbc_read_crc(object, "crc32c");
    return crc->set ? 0 : -1;
}

static int put_part(void *arg, struct gbc_conn *conn, struct gbc_part *part, struct gpubuf_error *err) {
    struct putting *p = arg;
    struct gpubuf_opt told;
    struct gbc_request request;
    struct gbc_reader reader;
    int r;

    if (gbc_reader_init(&reader, gbc_source_part(p->source, part->offset, part->bytes), &p->progress, false, err) < 0)
        return -1;
    gbc_request_init(&request, "PUT", "/v1/sessions/%/uploads/%/parts", p->session, p->id);
    gbc_query_u64(&request, "offset", part->offset);
    reader.crc_only = p->check;
    request.up = &reader.up;
    request.tick = gbc_parts_tick;
    request.tick_arg = &p->parts;
    request.mute = true;
    r = gbc_perform(conn, &request, err);
    gbc_request_done(&request);
    if (r < 0 || gbc_parse(&gbc_reply_of(conn)->body, take_crc, &told, err) < 0)
        return -1;
    part->crc = reader.crc;
    return p->check ? gbc_crc_same(part->crc, true, (uint32_t)told.value, err) : 0;
}

static int take_id(const json_t *object, void *ret) {
    gbc_read_text(object, "id", ret, GPUBUF_ID_SIZE);
    return *(char *)ret != '\0' ? 0 : -1;
}

static json_t *upload_json(struct gpubuf_error *wrong, const char *buffer, uint64_t bytes,
                           const struct gpubuf_put_params *params) {
    json_t *body = json_object();

    gbc_put_text(wrong, body, "buffer", buffer);
    gbc_put_u64(wrong, body, "bytes", bytes);
    gbc_put_text(wrong, body, "dtype", params->shape && !params->dtype ? "uint8" : params->dtype);
    gbc_put_shape(wrong, body, "shape", params->shape);
    gbc_put_text(wrong, body, "kind", params->kind);
    gbc_put_text(wrong, body, "pool", params->pool);
    gbc_put_text(wrong, body, "stream", params->stream);
    gbc_put_device(wrong, body, "device", params->device);
    gbc_put_true(wrong, body, "mirrored", params->mirrored);
    gbc_put_text(wrong, body, "durability", params->durability);
    gbc_put_text(wrong, body, "spill", params->spill);
    return body;
}

static int begin(gpubuf_client *client, struct putting *p, const char *buffer, const struct gpubuf_put_params *params,
                 struct gpubuf_error *err) {
    struct gpubuf_how how = params->how;
    struct gbc_request request;

    how.idempotency_key = NULL;
    gbc_request_init(&request, "POST", "/v1/sessions/%/uploads", p->session);
    gbc_how(&request, &how);
    gbc_json(&request, upload_json(&request.wrong, buffer ? buffer : "", p->parts.bytes, params));
    return gbc_call(client, &request, &how, take_id, p->id, err);
}

static int complete(gpubuf_client *client, const struct putting *p, const struct gpubuf_put_params *params,
                    struct gpubuf_buffer *ret, struct gpubuf_error *err) {
    struct gpubuf_how how = params->how;
    json_t *body = json_object();
    struct gbc_request request;
    char crc[16];
    int r;

    if (!how.idempotency_key) /* an answer that is lost is asked for again */
        how.idempotency_key = p->id;
    gbc_request_init(&request, "POST", "/v1/sessions/%/uploads/%/complete", p->session, p->id);
    gbc_how(&request, &how);
    snprintf(crc, sizeof(crc), "%08" PRIx32, gbc_parts_crc(&p->parts));
    gbc_put_text(&request.wrong, body, "crc32c", params->check ? crc : NULL);
    gbc_json(&request, body);
    r = gbc_call(client, &request, &how, gbc_record_buffer, ret, err);
    if (r == 0 && ret && client->answer.status == 201)
        ret->created = true;
    return r;
}

/* Leaves nothing behind; what went wrong was told. */
static void drop(gpubuf_client *client, const struct putting *p) {
    struct gbc_request request;

    gbc_request_init(&request, "DELETE", "/v1/sessions/%/uploads/%", p->session, p->id);
    request.even_so = true;
    gbc_perform(client->conn, &request, NULL);
    gbc_request_done(&request);
}

int gbc_put_parts(gpubuf_client *client, const char *session, const char *buffer, const struct gpubuf_source *source,
                  const struct gpubuf_put_params *params, struct gpubuf_buffer *ret, struct gpubuf_error *err) {
    struct putting p = {.session = session, .source = source, .check = params->check};
    int r;

    if (gbc_parts_init(&p.parts, source->bytes, params->part_bytes) < 0)
        return gbc_error_memory(err);
    gbc_progress_init(&p.progress, params->progress, params->progress_arg, source->bytes);
    p.parts.fn = put_part;
    p.parts.arg = &p;
    p.parts.set = &client->set;
    p.parts.progress = &p.progress;
    r = begin(client, &p, buffer, params, err);
    if (r == 0) {
        r = gbc_parts_run(&p.parts, params->connections, err);
        if (r == 0)
            r = complete(client, &p, params, ret, err);
        if (r < 0)
            drop(client, &p);
    }
    gbc_parts_done(&p.parts);
    return r;
}
