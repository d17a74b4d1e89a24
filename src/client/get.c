/* gpubuf_get(): over one connection here, over several in get_parts.c. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/put.h"

/* --- what is asked, and what the headers say ---------------------------------------------------------------------- */

void gbc_get_query(struct gbc_request *request, const struct gpubuf_get_params *params) {
    gbc_query(request, "format", params->format ? params->format : "raw");
    gbc_query(request, "stream", params->stream);
    gbc_query(request, "slice", params->slice);
}

void gbc_got_of(const struct gbc_reply *reply, struct gpubuf_got *ret) {
    const char *at = reply->shape;

    memset(ret, 0, sizeof(*ret));
    gbc_copy(ret->dtype, sizeof(ret->dtype), reply->dtype);
    gbc_copy(ret->etag, sizeof(ret->etag), reply->etag);
    ret->generation = reply->generation.value;
    ret->bytes = reply->whole.set ? reply->whole.value : reply->length.value;
    while (*at >= '0' && *at <= '9' && ret->ndim < GPUBUF_DIMS_MAX) {
        char *end;

        ret->shape[ret->ndim++] = strtoull(at, &end, 10);
        at = *end == ',' ? end + 1 : end;
    }
}

/* --- one connection ----------------------------------------------------------------------------------------------- */

struct getting {
    const struct gpubuf_get_params *params;
    struct gbc_writer writer;
    struct gbc_progress progress;
    struct gbc_request request;
    size_t target_bytes;  /* of the request without a cut */
    size_t headers_bytes; /* without a range */
    struct gpubuf_got got;
    struct gpubuf_opt crc32c;
    struct gpubuf_opt length; /* of the whole */
    bool cut;
};

static void ask_cut(struct getting *g) {
    const struct gpubuf_get_params *params = g->params;

    if (params->offset.set || g->writer.at > 0)
        gbc_query_u64(&g->request, "offset", params->offset.value + g->writer.at);
    if (params->length.set)
        gbc_query_u64(&g->request, "length", params->length.value - g->writer.at);
}

/* Goes on where it broke off, in the same generation. */
static int go_on(struct gbc_request *request) {
    struct getting *g = request->again_arg;
    char range[48];

    if (g->writer.at == 0)
        return 0;
    if (g->got.etag[0] == '\0' || (g->length.set && g->writer.at >= g->length.value))
        return -1;
    request->headers.bytes = g->headers_bytes;
    if (g->cut) {
        request->target.bytes = g->target_bytes;
        request->target.data[g->target_bytes] = '\0';
        ask_cut(g);
    } else {
        snprintf(range, sizeof(range), "bytes=%" PRIu64 "-", g->writer.at);
        gbc_header(request, "Range", range);
    }
    gbc_header(request, "If-Match", g->got.etag);
    return 0;
}

static int begun(void *arg, const struct gbc_reply *reply, struct gpubuf_error *err) {
    struct getting *g = arg;

    if (g->writer.at > 0) {
        bool right = g->cut ? reply->status == 200 : reply->status == 206 && reply->range_first.value == g->writer.at;

        if (!right || strcmp(reply->etag, g->got.etag) != 0)
            return gbc_error_set(err, GPUBUF_BAD_ANSWER, "the download does not go on at byte %" PRIu64, g->writer.at);
        return 0;
    }
    gbc_got_of(reply, &g->got);
    g->crc32c = reply->crc32c;
    g->length = reply->length;
    if (!reply->length.set)
        return 0;
    g->progress.total = reply->length.value;
    return gbc_target_room(&g->writer.target, reply->length.value, err);
}

static int getting_write(void *arg, const void *data, size_t bytes, struct gpubuf_error *err) {
    struct getting *g = arg;

    return gbc_writer_write(&g->writer, data, bytes, err);
}

static int check(const struct getting *g, struct gpubuf_error *err) {
    const char *format = g->params->format;
    uint64_t tensor = g->writer.sum.bytes;
    uint32_t crc = 0;

    if (format && strcmp(format, "raw") != 0)
        tensor -= g->writer.sum.header_bytes < tensor ? g->writer.sum.header_bytes : tensor;
    if (!gbc_sum_of(&g->writer.sum, tensor, &crc))
        return gbc_error_set(err, GPUBUF_BAD_ANSWER, "what came is not a %s file", format);
    return gbc_crc_same(crc, g->crc32c.set, (uint32_t)g->crc32c.value, err);
}

static int get_whole(gpubuf_client *client, struct getting *g, const char *session, const char *buffer,
                     struct gpubuf_error *err) {
    const struct gbc_down down = {.begin = begun, .write = getting_write, .arg = g};
    struct gbc_request *request = &g->request;
    int r;

    g->cut = g->params->offset.set || g->params->length.set;
    gbc_request_init(request, "GET", "/v1/sessions/%/buffers/%/data", session, buffer);
    gbc_get_query(request, g->params);
    g->target_bytes = request->target.bytes;
    ask_cut(g);
    g->headers_bytes = request->headers.bytes;
    gbc_how(request, &g->params->how);
    request->down = &down;
    request->tick = gbc_progress_tick;
    request->tick_arg = &g->progress;
    request->again = go_on;
    request->again_arg = g;
    r = gbc_call(client, request, &g->params->how, NULL, NULL, err);
    if (r != 0)
        return r;
    gbc_progress_tick(&g->progress);
    g->got.bytes = g->writer.at;
    return g->params->check ? check(g, err) : 0;
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

static int head(gpubuf_client *client, const char *session, const char *buffer, const struct gpubuf_get_params *params,
                struct gpubuf_got *ret, struct gpubuf_opt *ret_crc, struct gpubuf_error *err) {
    struct getting g = {.params = params};
    struct gbc_request *request = &g.request;
    int r;

    gbc_request_init(request, "HEAD", "/v1/sessions/%/buffers/%/data", session, buffer);
    gbc_get_query(request, params);
    ask_cut(&g);
    gbc_how(request, &params->how);
    r = gbc_call(client, request, &params->how, NULL, NULL, err);
    if (r != 0)
        return r;
    gbc_got_of(gbc_reply_of(client->conn), ret);
    *ret_crc = gbc_reply_of(client->conn)->crc32c;
    return 0;
}

/* 1: it was not for parts. */
static int get_parts(gpubuf_client *client, const char *session, const char *buffer, struct gpubuf_target *target,
                     const struct gpubuf_get_params *params, struct gpubuf_got *ret, struct gpubuf_error *err) {
    bool raw = !params->format || strcmp(params->format, "raw") == 0;
    struct gpubuf_error why;
    struct gpubuf_opt crc;

    if (params->connections < 2 || !gbc_target_random(target) || params->offset.set || params->length.set ||
        (params->check && !raw))
        return 1;
    gbc_error_init(&why);
    if (head(client, session, buffer, params, ret, &crc, &why) != 0 || ret->etag[0] == '\0' ||
        ret->bytes <= gbc_part_bytes(params->part_bytes))
        return 1; /* the other way tells why, or has it */
    if (gbc_target_room(target, ret->bytes, err) < 0)
        return -1;
    return gbc_get_parts(client, session, buffer, target, params, ret, crc, err);
}

int gpubuf_get(gpubuf_client *client, const char *session, const char *buffer, struct gpubuf_target target,
               const struct gpubuf_get_params *params, struct gpubuf_got *ret, struct gpubuf_error *err) {
    static const struct gpubuf_get_params none;
    struct getting g = {.params = params ? params : &none};
    int r;

    gbc_error_init(err);
    if (g.params->check && (g.params->offset.set || g.params->length.set || g.params->slice))
        return gbc_error_set(err, GPUBUF_BAD_ARGUMENT, "check is of a whole buffer: not with offset, length or slice");
    r = get_parts(client, session, buffer, &target, g.params, &g.got, err);
    if (r == 1) {
        gbc_progress_init(&g.progress, g.params->progress, g.params->progress_arg, GPUBUF_UNKNOWN);
        gbc_writer_init(&g.writer, target, &g.progress, g.params->check);
        r = get_whole(client, &g, session, buffer, err);
    }
    if (r == 0 && ret)
        *ret = g.got;
    return r;
}
