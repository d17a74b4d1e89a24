/* gpubuf_put(): over one connection here, over several in put_parts.c. */
#include "client/put.h"

#include <inttypes.h>
#include <string.h>

#define LOADS_MAX 3 /* of one upload: its buffer may have to leave memory again before the bytes come */

void gbc_put_query(struct gbc_request *request, const struct gpubuf_put_params *params) {
    gbc_query(request, "format", params->format);
    gbc_query(request, "dtype", params->dtype);
    gbc_query(request, "shape", params->shape);
    gbc_query(request, "stream", params->stream);
    gbc_query(request, "kind", params->kind);
    gbc_query(request, "pool", params->pool);
    gbc_query(request, "device", params->device);
    gbc_query(request, "side", params->side);
    gbc_query(request, "slice", params->slice);
    gbc_query(request, "durability", params->durability);
    gbc_query(request, "spill", params->spill);
    gbc_query_true(request, "mirrored", params->mirrored);
    gbc_query_true(request, "in_place", params->in_place);
    if (params->max_bytes.set)
        gbc_query_u64(request, "max_bytes", params->max_bytes.value);
    if (params->offset.set)
        gbc_query_u64(request, "offset", params->offset.value);
    gbc_header(request, "Content-Encoding", params->content_encoding);
}

int gbc_crc_same(uint32_t here, bool stated, uint32_t there, struct gpubuf_error *err) {
    if (!stated)
        return gbc_error_set(err, GPUBUF_CHECK_FAILED, "the daemon states no checksum of these bytes");
    if (here != there)
        return gbc_error_set(err, GPUBUF_CHECK_FAILED, "the CRC32C is %08" PRIx32 " here and %08" PRIx32 " there", here,
                             there);
    return 0;
}

/* The tensor may be what follows a header in the source. */
static int check(const struct gbc_reader *reader, const struct gpubuf_buffer *buffer, struct gpubuf_error *err) {
    uint32_t crc;

    if (!gbc_sum_of(&reader->sum, buffer->bytes, &crc))
        return gbc_error_set(err, GPUBUF_CHECK_FAILED,
                             "%" PRIu64 " bytes were sent and the buffer has %" PRIu64
                             ": of a safetensors file or an encoded body there is no checksum to compare",
                             reader->sum.bytes, buffer->bytes);
    return gbc_crc_same(crc, buffer->has_crc32c, buffer->crc32c, err);
}

static int put_once(gpubuf_client *client, const char *session, const char *buffer, const struct gbc_up *up,
                    struct gbc_progress *progress, const struct gpubuf_put_params *params, struct gpubuf_buffer *ret,
                    struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_request_init(&request, "PUT", "/v1/sessions/%/buffers/%/data", session, buffer);
    gbc_how(&request, &params->how);
    gbc_put_query(&request, params);
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
    if (params->check && check(&reader, &made, err) < 0)
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
           !params->slice && !params->in_place && !params->content_encoding && !params->how.async && !params->side &&
           !params->max_bytes.set;
}

int gpubuf_put(gpubuf_client *client, const char *session, const char *buffer, struct gpubuf_source source,
               const struct gpubuf_put_params *params, struct gpubuf_buffer *ret, struct gpubuf_error *err) {
    static const struct gpubuf_put_params none;
    struct gbc_reader reader;

    gbc_error_init(err);
    if (!params)
        params = &none;
    if (params->check && (params->offset.set || params->slice || params->content_encoding))
        return gbc_error_set(err, GPUBUF_BAD_ARGUMENT,
                             "check is of a whole buffer: not with offset, slice or content_encoding");
    if (in_parts(&source, params)) {
        if (gbc_reader_init(&reader, source, NULL, false, err) < 0)
            return -1;
        if (reader.up.bytes != GPUBUF_UNKNOWN && reader.up.bytes > gbc_part_bytes(params->part_bytes))
            return gbc_put_parts(client, session, buffer, &reader.source, params, ret, err);
    }
    return put_whole(client, session, buffer, source, params, ret, err);
}
