/* An upload in parts, over several connections. */
#include "client/put.h"

#include <inttypes.h>
#include <string.h>

struct putting {
    const char *session;
    char id[GPUBUF_ID_SIZE];
    const struct gpubuf_source *source;
    struct gbc_parts parts;
    struct gbc_progress progress;
    bool check;
};

static int put_part(void *arg, struct gbc_conn *conn, struct gbc_part *part, struct gpubuf_error *err) {
    struct putting *p = arg;
    struct gpubuf_part told;
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
    if (r < 0 || gbc_parse(&gbc_reply_of(conn)->body, gbc_record_part, &told, err) < 0)
        return -1;
    part->crc = reader.crc;
    return p->check ? gbc_crc_same(part->crc, true, told.crc32c, err) : 0;
}

static int begin(gpubuf_client *client, struct putting *p, const char *buffer, const struct gpubuf_put_params *params,
                 struct gpubuf_error *err) {
    struct gpubuf_buffer_params what = {.bytes = gpubuf_some(p->parts.bytes),
                                        .dtype = params->shape && !params->dtype ? "uint8" : params->dtype,
                                        .shape = params->shape,
                                        .kind = params->kind,
                                        .pool = params->pool,
                                        .stream = params->stream,
                                        .device = params->device,
                                        .mirrored = params->mirrored,
                                        .durability = params->durability,
                                        .spill = params->spill};
    struct gpubuf_how how = params->how;
    struct gpubuf_upload upload;

    how.idempotency_key = NULL;
    if (gpubuf_upload_create(client, p->session, buffer, &what, &how, &upload, err) < 0)
        return -1;
    gbc_copy(p->id, sizeof(p->id), upload.id);
    return 0;
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
    struct gpubuf_opt crc = {false, 0};
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
        if (r == 0 && params->check)
            crc = gpubuf_some(gbc_parts_crc(&p.parts));
        if (r == 0) {
            struct gpubuf_how how = params->how;

            if (!how.idempotency_key) /* an answer that is lost is asked for again */
                how.idempotency_key = p.id;
            r = gpubuf_upload_complete(client, session, p.id, crc, &how, ret, err);
        }
        if (r < 0)
            drop(client, &p);
    }
    gbc_parts_done(&p.parts);
    return r;
}
