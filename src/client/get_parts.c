/* A download in ranges of one generation, over several connections. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/put.h"

struct getting {
    const char *session;
    const char *buffer;
    const struct gpubuf_target *target;
    const struct gpubuf_get_params *params;
    const struct gpubuf_got *head;
    struct gbc_parts parts;
    struct gbc_progress progress;
};

/* One part that comes. */
struct coming {
    struct gbc_writer writer;
    const struct gbc_part *part;
    struct gbc_progress *progress;
};

static int begun(void *arg, const struct gbc_reply *reply, struct gpubuf_error *err) {
    const struct coming *c = arg;

    if (reply->status != 206 || !reply->range_first.set || reply->range_first.value != c->part->offset ||
        (reply->length.set && reply->length.value != c->part->bytes))
        return gbc_error_set(err, GPUBUF_BAD_ANSWER,
                             "%" PRIu64 " bytes from %" PRIu64 " on were asked for, others came", c->part->bytes,
                             c->part->offset);
    return 0;
}

static int coming_write(void *arg, const void *data, size_t bytes, struct gpubuf_error *err) {
    struct coming *c = arg;

    return gbc_writer_write(&c->writer, data, bytes, err);
}

/* A part is short: it is taken from its beginning again. */
static int again(struct gbc_request *request) {
    struct coming *c = request->again_arg;

    atomic_fetch_sub(&c->progress->done, c->writer.at);
    c->writer.at = 0;
    c->writer.crc = 0;
    return 0;
}

static int get_part(void *arg, struct gbc_conn *conn, struct gbc_part *part, struct gpubuf_error *err) {
    struct getting *g = arg;
    struct coming c = {.part = part, .progress = &g->progress};
    const struct gbc_down down = {.begin = begun, .write = coming_write, .arg = &c};
    struct gbc_request request;
    char range[64];
    int r;

    gbc_writer_init(&c.writer, gbc_target_part(g->target, part->offset, part->bytes), &g->progress, false);
    c.writer.crc_only = g->params->check;
    gbc_request_init(&request, "GET", "/v1/sessions/%/buffers/%/data", g->session, g->buffer);
    gbc_get_query(&request, g->params);
    snprintf(range, sizeof(range), "bytes=%" PRIu64 "-%" PRIu64, part->offset, part->offset + part->bytes - 1);
    gbc_header(&request, "Range", range);
    gbc_header(&request, "If-Match", g->head->etag);
    request.down = &down;
    request.again = again;
    request.again_arg = &c;
    request.tick = gbc_parts_tick;
    request.tick_arg = &g->parts;
    request.mute = true;
    r = gbc_perform(conn, &request, err);
    gbc_request_done(&request);
    part->crc = c.writer.crc;
    if (r == 0 && c.writer.at != part->bytes)
        r = gbc_error_set(err, GPUBUF_BAD_ANSWER, "%" PRIu64 " of %" PRIu64 " bytes came", c.writer.at, part->bytes);
    return r;
}

int gbc_get_parts(gpubuf_client *client, const char *session, const char *buffer, const struct gpubuf_target *target,
                  const struct gpubuf_get_params *params, const struct gpubuf_got *head, struct gpubuf_opt crc32c,
                  struct gpubuf_error *err) {
    struct getting g = {.session = session, .buffer = buffer, .target = target, .params = params, .head = head};
    int r;

    if (gbc_parts_init(&g.parts, head->bytes, params->part_bytes) < 0)
        return gbc_error_memory(err);
    gbc_progress_init(&g.progress, params->progress, params->progress_arg, head->bytes);
    g.parts.fn = get_part;
    g.parts.arg = &g;
    g.parts.set = &client->set;
    g.parts.progress = &g.progress;
    r = gbc_parts_run(&g.parts, params->connections, err);
    if (r == 0 && params->check)
        r = gbc_crc_same(gbc_parts_crc(&g.parts), crc32c.set, (uint32_t)crc32c.value, err);
    gbc_parts_done(&g.parts);
    return r;
}
