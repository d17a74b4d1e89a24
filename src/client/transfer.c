/* gpubuf_put(), gpubuf_get() and those of safetensors files: a transfer over one connection, or in parts over
 * several, with its checks. On the thread of the caller, but for parts (client/io.h). A download that broke continues
 * only in the same generation of the buffer. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"
#include "client/http.h"
#include "client/io.h"

#define LOADS_MAX 3 /* of one upload: its buffer may have to leave memory again before the bytes come */
#define TYPE "application/x-safetensors"

/* --- what all have in common -------------------------------------------------------------------------------------- */

static int crc_same(uint32_t here, bool stated, uint32_t there, struct gpubuf_error *err) {
    if (!stated)
        return gbc_error_set(err, GPUBUF_CHECK_FAILED, "the daemon states no checksum of these bytes");
    if (here != there)
        return gbc_error_set(err, GPUBUF_CHECK_FAILED, "the CRC32C is %08" PRIx32 " here and %08" PRIx32 " there", here,
                             there);
    return 0;
}

/* Without a format a buffer comes in its own form. */
static bool is_own(const struct gpubuf_get_params *params) {
    return params->format && strcmp(params->format, "own") == 0;
}

static void get_query(struct gbc_request *request, const struct gpubuf_get_params *params) {
    if (!is_own(params))
        gbc_query(request, "format", params->format ? params->format : "raw");
    gbc_query(request, "stream", params->stream);
    gbc_query(request, "slice", params->slice);
    gbc_query(request, "tensor", params->tensor);
}

/* --- a put in parts ----------------------------------------------------------------------------------------------- */

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
    return p->check ? crc_same(part->crc, true, (uint32_t)told.value, err) : 0;
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

/* Leaves nothing behind; what went wrong was reported. */
static void drop(gpubuf_client *client, const struct putting *p) {
    struct gbc_request request;

    gbc_request_init(&request, "DELETE", "/v1/sessions/%/uploads/%", p->session, p->id);
    request.even_so = true;
    gbc_perform(client->conn, &request, NULL);
    gbc_request_done(&request);
}

static int put_parts(gpubuf_client *client, const char *session, const char *buffer, const struct gpubuf_source *source,
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

/* --- a put -------------------------------------------------------------------------------------------------------- */

static void put_query(struct gbc_request *request, const struct gpubuf_put_params *params) {
    gbc_query(request, "format", params->format);
    gbc_query(request, "dtype", params->dtype);
    gbc_query(request, "shape", params->shape);
    gbc_query(request, "stream", params->stream);
    gbc_query(request, "kind", params->kind);
    gbc_query(request, "pool", params->pool);
    gbc_query(request, "device", params->device);
    gbc_query(request, "side", params->side);
    gbc_query(request, "slice", params->slice);
    gbc_query(request, "tensor", params->tensor);
    gbc_query(request, "durability", params->durability);
    gbc_query(request, "spill", params->spill);
    gbc_query_true(request, "mirrored", params->mirrored);
    gbc_query_true(request, "in_place", params->in_place);
    gbc_query_true(request, "pack", params->pack);
    if (params->max_bytes.set)
        gbc_query_u64(request, "max_bytes", params->max_bytes.value);
    if (params->offset.set)
        gbc_query_u64(request, "offset", params->offset.value);
    gbc_header(request, "Content-Encoding", params->content_encoding);
}

/* The tensor may be what follows a header in the source. */
static int check_put(const struct gbc_reader *reader, const struct gpubuf_buffer *buffer, struct gpubuf_error *err) {
    uint32_t crc;

    if (!gbc_sum_of(&reader->sum, buffer->bytes, &crc))
        return gbc_error_set(err, GPUBUF_CHECK_FAILED,
                             "%" PRIu64 " bytes were sent and the buffer has %" PRIu64
                             ": of a safetensors file or an encoded body there is no checksum to compare",
                             reader->sum.bytes, buffer->bytes);
    return crc_same(crc, buffer->has_crc32c, buffer->crc32c, err);
}

static int put_once(gpubuf_client *client, const char *session, const char *buffer, const struct gbc_up *up,
                    struct gbc_progress *progress, const struct gpubuf_put_params *params, struct gpubuf_buffer *ret,
                    struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_request_init(&request, "PUT", "/v1/sessions/%/buffers/%/data", session, buffer);
    gbc_how(&request, &params->how);
    put_query(&request, params);
    request.up = up;
    request.tick = gbc_progress_tick;
    request.tick_arg = progress;
    return gbc_call(client, &request, &params->how, gbc_record_buffer, ret, err);
}

/* A request waits no longer than the daemon's --wait-max; the load continues, and the next request waits for it. */
static int load(gpubuf_client *client, const char *session, const char *buffer, uint32_t wait_s,
                struct gpubuf_error *err) {
    const struct gpubuf_how how = {.wait_s = wait_s};
    uint64_t end_ms = wait_s > 0 ? gbc_now_ms() + wait_s * UINT64_C(1000) : UINT64_MAX;
    int r;

    do {
        struct gbc_request request;

        gbc_error_init(err);
        gbc_request_init(&request, "POST", "/v1/sessions/%/buffers/%/load", session, buffer);
        gbc_how(&request, &how);
        gbc_json(&request, json_object());
        r = gbc_call(client, &request, NULL, gbc_record_buffer, NULL, err);
    } while (r < 0 && err->code == GPUBUF_TIMED_OUT && gbc_now_ms() < end_ms);
    return r;
}

/* A write into a buffer whose bytes are on disk alone is refused while they are being loaded. */
static int put_loaded(gpubuf_client *client, const char *session, const char *buffer, const struct gbc_up *up,
                      struct gbc_progress *progress, const struct gpubuf_put_params *params, struct gpubuf_buffer *ret,
                      struct gpubuf_error *err) {
    struct gpubuf_error why;
    int loads;
    int r;

    for (loads = 0;; loads++) {
        gbc_error_init(&why);
        r = put_once(client, session, buffer, up, progress, params, ret, &why);
        if (r >= 0 || why.code != GPUBUF_NOT_LOADED || loads == LOADS_MAX || up->rewind(up->arg) < 0 ||
            (r = load(client, session, buffer, params->how.wait_s, &why)) < 0)
            break;
    }
    if (r < 0 && err)
        *err = why;
    return r;
}

static int put_whole(gpubuf_client *client, const char *session, const char *buffer, struct gpubuf_source source,
                     const struct gpubuf_put_params *params, struct gpubuf_buffer *ret, struct gpubuf_error *err) {
    struct gpubuf_buffer made;
    struct gbc_progress progress;
    struct gbc_reader reader;
    int r;

    if (gbc_reader_init(&reader, source, &progress, params->check, err) < 0)
        return -1;
    gbc_progress_init(&progress, params->progress, params->progress_arg, reader.up.bytes);
    r = put_loaded(client, session, buffer, &reader.up, &progress, params, &made, err);
    if (r != 0)
        return r;
    gbc_progress_tick(&progress);
    if (client->answer.status == 202)
        return 0;
    made.created = client->answer.status == 201;
    if (params->check && check_put(&reader, &made, err) < 0)
        return -1;
    if (ret)
        *ret = made;
    return 0;
}

/* What parts cannot do, said before anything is asked. */
static bool in_parts(const struct gpubuf_source *source, const struct gpubuf_put_params *params) {
    bool tensor = params->format && strcmp(params->format, "raw") != 0;
    bool said = params->dtype || params->shape || (params->format && !tensor);

    return params->connections > 1 && gbc_source_random(source) && said && !tensor && !params->offset.set &&
           !params->slice && !params->tensor && !params->in_place && !params->content_encoding && !params->how.async &&
           !params->side && !params->max_bytes.set && !params->pack;
}

int gpubuf_put(gpubuf_client *client, const char *session, const char *buffer, struct gpubuf_source source,
               const struct gpubuf_put_params *params, struct gpubuf_buffer *ret, struct gpubuf_error *err) {
    static const struct gpubuf_put_params none;
    struct gbc_reader reader;

    gbc_error_init(err);
    if (!params)
        params = &none;
    if (params->check && (params->offset.set || params->slice || params->tensor || params->content_encoding))
        return gbc_error_set(err, GPUBUF_BAD_ARGUMENT,
                             "check is of a whole buffer: not with offset, slice, tensor or content_encoding");
    if (in_parts(&source, params)) {
        if (gbc_reader_init(&reader, source, NULL, false, err) < 0)
            return -1;
        if (reader.up.bytes != GPUBUF_UNKNOWN && reader.up.bytes > gbc_part_bytes(params->part_bytes))
            return put_parts(client, session, buffer, &reader.source, params, ret, err);
    }
    return put_whole(client, session, buffer, source, params, ret, err);
}

/* --- a get in parts ----------------------------------------------------------------------------------------------- */

struct getting_parts {
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

static int part_begun(void *arg, const struct gbc_reply *reply, struct gpubuf_error *err) {
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
static int part_again(struct gbc_request *request) {
    struct coming *c = request->again_arg;

    atomic_fetch_sub(&c->progress->done, c->writer.at);
    c->writer.at = 0;
    c->writer.crc = 0;
    return 0;
}

static int get_part(void *arg, struct gbc_conn *conn, struct gbc_part *part, struct gpubuf_error *err) {
    struct getting_parts *g = arg;
    struct coming c = {.part = part, .progress = &g->progress};
    const struct gbc_down down = {.begin = part_begun, .write = coming_write, .arg = &c};
    struct gbc_request request;
    char range[64];
    int r;

    gbc_writer_init(&c.writer, gbc_target_part(g->target, part->offset, part->bytes), &g->progress, false);
    c.writer.crc_only = g->params->check;
    gbc_request_init(&request, "GET", "/v1/sessions/%/buffers/%/data", g->session, g->buffer);
    get_query(&request, g->params);
    snprintf(range, sizeof(range), "bytes=%" PRIu64 "-%" PRIu64, part->offset, part->offset + part->bytes - 1);
    gbc_header(&request, "Range", range);
    gbc_header(&request, "If-Match", g->head->etag);
    request.down = &down;
    request.again = part_again;
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

static int get_parts_of(gpubuf_client *client, const char *session, const char *buffer,
                        const struct gpubuf_target *target, const struct gpubuf_get_params *params,
                        const struct gpubuf_got *head, struct gpubuf_opt crc32c, struct gpubuf_error *err) {
    struct getting_parts g = {.session = session, .buffer = buffer, .target = target, .params = params, .head = head};
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
        r = crc_same(gbc_parts_crc(&g.parts), crc32c.set, (uint32_t)crc32c.value, err);
    gbc_parts_done(&g.parts);
    return r;
}

/* --- a get: what is asked, and what the headers say --------------------------------------------------------------- */

static void got_of(const struct gbc_reply *reply, struct gpubuf_got *ret) {
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

/* Continues where it broke off, in the same generation. */
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
    got_of(reply, &g->got);
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

static int check_got(const struct getting *g, struct gpubuf_error *err) {
    const char *format = g->params->format;
    uint64_t tensor = g->writer.sum.bytes;
    uint32_t crc = 0;

    if (format && strcmp(format, "raw") != 0)
        tensor -= g->writer.sum.header_bytes < tensor ? g->writer.sum.header_bytes : tensor;
    if (!gbc_sum_of(&g->writer.sum, tensor, &crc))
        return gbc_error_set(err, GPUBUF_BAD_ANSWER, "what came is not a %s file", format);
    return crc_same(crc, g->crc32c.set, (uint32_t)g->crc32c.value, err);
}

static int get_whole(gpubuf_client *client, struct getting *g, const char *session, const char *buffer,
                     struct gpubuf_error *err) {
    const struct gbc_down down = {.begin = begun, .write = getting_write, .arg = g};
    struct gbc_request *request = &g->request;
    int r;

    g->cut = g->params->offset.set || g->params->length.set;
    gbc_request_init(request, "GET", "/v1/sessions/%/buffers/%/data", session, buffer);
    get_query(request, g->params);
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
    return g->params->check ? check_got(g, err) : 0;
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

static int head(gpubuf_client *client, const char *session, const char *buffer, const struct gpubuf_get_params *params,
                struct gpubuf_got *ret, struct gpubuf_opt *ret_crc, struct gpubuf_error *err) {
    struct getting g = {.params = params};
    struct gbc_request *request = &g.request;
    int r;

    gbc_request_init(request, "HEAD", "/v1/sessions/%/buffers/%/data", session, buffer);
    get_query(request, params);
    ask_cut(&g);
    gbc_how(request, &params->how);
    r = gbc_call(client, request, &params->how, NULL, NULL, err);
    if (r != 0)
        return r;
    got_of(gbc_reply_of(client->conn), ret);
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
    return get_parts_of(client, session, buffer, target, params, ret, crc, err);
}

int gpubuf_get(gpubuf_client *client, const char *session, const char *buffer, struct gpubuf_target target,
               const struct gpubuf_get_params *params, struct gpubuf_got *ret, struct gpubuf_error *err) {
    static const struct gpubuf_get_params none;
    struct getting g = {.params = params ? params : &none};
    int r;

    gbc_error_init(err);
    if (g.params->check &&
        (g.params->offset.set || g.params->length.set || g.params->slice || g.params->tensor || is_own(g.params)))
        return gbc_error_set(err, GPUBUF_BAD_ARGUMENT,
                             "check is of the bytes of a whole buffer: not with offset, length, slice, tensor or the "
                             "format own");
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

/* --- safetensors files -------------------------------------------------------------------------------------------- */

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

struct getting_tensors {
    struct gbc_writer writer;
    struct gbc_progress progress;
};

static int tensors_begun(void *arg, const struct gbc_reply *reply, struct gpubuf_error *err) {
    struct getting_tensors *g = arg;

    if (!reply->length.set)
        return 0;
    g->progress.total = reply->length.value;
    return gbc_target_room(&g->writer.target, reply->length.value, err);
}

static int tensors_write(void *arg, const void *data, size_t bytes, struct gpubuf_error *err) {
    struct getting_tensors *g = arg;

    return gbc_writer_write(&g->writer, data, bytes, err);
}

/* A file of several buffers is of a moment that has passed: it is not gone on with. */
static int tensors_again(struct gbc_request *request) {
    const struct getting_tensors *g = request->again_arg;

    return g->writer.at == 0 ? 0 : -1;
}

int gpubuf_tensors_get(gpubuf_client *client, const char *session, struct gpubuf_target target,
                       const struct gpubuf_tensors_params *params, uint64_t *ret_bytes, struct gpubuf_error *err) {
    static const struct gpubuf_tensors_params none;
    struct getting_tensors g;
    const struct gbc_down down = {.begin = tensors_begun, .write = tensors_write, .arg = &g};
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
    request.again = tensors_again;
    request.again_arg = &g;
    r = gbc_call(client, &request, &params->how, NULL, NULL, err);
    if (r != 0)
        return r;
    gbc_progress_tick(&g.progress);
    if (ret_bytes)
        *ret_bytes = g.writer.at;
    return 0;
}
