/* PUT .../parts?offset=N: any number at once. If a part that has arrived comes again because its reply was lost,
 * nothing is written; its bytes are read for their checksum alone. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/context.h"
#include "api/middleware/filters.h"
#include "api/reply/reply_json.h"
#include "api/request/query.h"
#include "api/route.h"
#include "api/transfer/uploads.h"
#include "base/hash.h"

#define SCRATCH_BYTES (64u << 10)

struct sink {
    struct gb_http_sink sink; /* first */
    struct gb_core *core;
    struct gb_upload *part;
    struct gb_name session;
    const char *id; /* the request's */
    uint64_t offset;
    uint64_t bytes;
    bool replace;
    char *scratch; /* the part has arrived before: used instead of part */
    uint64_t read;
    uint32_t crc;
    uint32_t arrived_crc;
};

static int sink_room(struct gb_http_sink *sink, void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    struct sink *s = (struct sink *)sink;

    if (!s->scratch)
        return gb_upload_room(s->part, ret_ptr, ret_n, err);
    *ret_ptr = s->scratch;
    *ret_n = s->bytes - s->read < SCRATCH_BYTES ? (size_t)(s->bytes - s->read) : SCRATCH_BYTES;
    return 1;
}

static int sink_fill(struct gb_http_sink *sink, size_t n, struct gb_error *err) {
    struct sink *s = (struct sink *)sink;

    if (!s->scratch)
        return gb_upload_fill(s->part, n, err);
    s->crc = gb_crc32c(s->crc, s->scratch, n);
    s->read += n;
    return 0;
}

static void sink_pause(struct gb_http_sink *sink, bool stalled) {
    struct sink *s = (struct sink *)sink;

    if (s->part)
        gb_upload_pause(s->part, stalled);
}

static enum gb_step reply(const struct sink *s, const struct gb_multipart_view *view, uint32_t crc,
                          struct gb_http_response *response, struct gb_error *err) {
    struct gb_json_writer out = {0};
    char text[9];

    snprintf(text, sizeof(text), "%08" PRIx32, crc);
    gb_json_open(&out, NULL, '{');
    gb_json_put_string(&out, "upload", view->id);
    gb_json_put_u64(&out, "offset", s->offset);
    gb_json_put_u64(&out, "bytes", s->bytes);
    gb_json_put_string(&out, "crc32c", text);
    gb_json_put_u64(&out, "received_bytes", view->received_bytes);
    gb_json_put_u64(&out, "missing_ranges", view->gap_count);
    gb_json_close(&out, '}');
    return gb_reply_json(&out, 200, response, err);
}

/* Also runs at each wake until the last copy is done. */
static enum gb_step finish(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct sink *s = (struct sink *)request->sink;
    struct gb_multipart_view view;
    uint32_t crc;
    int r = gb_part_result(s->part, &crc, &view, err);

    if (r < 0)
        return GB_STEP_ERROR;
    if (r > 0)
        return reply(s, &view, crc, response, err);
    if (!request->timed_out)
        return GB_STEP_WAIT;
    gb_error_set(err, GB_ERR_TIMED_OUT, "the bytes arrived, but the device did not finish in the permitted time");
    return GB_STEP_ERROR;
}

/* Compares the checksums. The part may have been overwritten meanwhile; then there is nothing to compare, and the reply
 * repeats the first one. */
static enum gb_step compare(const struct sink *s, struct gb_http_response *response, struct gb_error *err) {
    struct gb_multipart_view view;

    if (s->crc == s->arrived_crc)
        return gb_multipart_get(s->core, &s->session, s->id, &view, err) < 0 ? GB_STEP_ERROR
                                                                             : reply(s, &view, s->crc, response, err);
    gb_error_set(err, GB_ERR_UPLOAD_OVERLAP,
                 "the range arrived with the CRC32C %08" PRIx32 ", these bytes have %08" PRIx32
                 ": ?replace=true overwrites it",
                 s->arrived_crc, s->crc);
    return GB_STEP_ERROR;
}

static enum gb_step sink_end(struct gb_http_sink *sink, struct gb_http_request *request,
                             struct gb_http_response *response, struct gb_error *err) {
    struct sink *s = (struct sink *)sink;

    if (s->scratch)
        return compare(s, response, err);
    if (gb_upload_end(s->part, err) < 0)
        return GB_STEP_ERROR;
    request->resume = finish;
    request->deadline_ns = 0;
    return finish(request, response, err);
}

static void sink_free(struct gb_http_sink *sink) {
    struct sink *s = (struct sink *)sink;

    gb_upload_free(s->part);
    free(s->scratch);
    free(s);
}

static void wake(void *arg) {
    gb_http_wake(arg);
}

static int read_part(const struct gb_http_request *request, struct sink *s, struct gb_error *err) {
    int r = gb_query_u64(request, "offset", &s->offset, err);

    if (r < 0 || gb_query_bool(request, "replace", &s->replace, err) < 0)
        return -1;
    if (r == 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "say where the part begins: ?offset=N");
    if (!request->has_content_length)
        return gb_error_set(err, GB_ERR_LENGTH_REQUIRED, "send Content-Length: it tells where the part ends");
    s->bytes = request->content_length;
    return gb_path_upload(request, &s->session, &s->id, err);
}

static int begin(struct gb_http_request *request, struct sink *s, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;

    if (gb_multipart_part(s->core, &s->session, s->id, s->offset, s->bytes, s->replace,
                          (struct gb_waker){wake, request}, &s->part, &why) == 0)
        return 0;
    if (why.code == GB_ERR_UPLOAD_OVERLAP && !s->replace &&
        gb_multipart_arrived(s->core, &s->session, s->id, s->offset, s->bytes, &s->arrived_crc)) {
        s->scratch = malloc(SCRATCH_BYTES);
        return s->scratch ? 0 : gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
    }
    *err = why;
    return -1;
}

enum gb_step gb_api_upload_part(struct gb_http_request *request, struct gb_http_response *response,
                                struct gb_error *err) {
    struct gb_filters filters;
    struct gb_http_sink *outer;
    struct sink *s;

    if (gb_uploads_filters(request, response, &filters, err) < 0)
        return GB_STEP_ERROR;
    s = calloc(1, sizeof(*s));
    if (!s) {
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
        return GB_STEP_ERROR;
    }
    s->sink = (struct gb_http_sink){
        .room = sink_room, .fill = sink_fill, .pause = sink_pause, .end = sink_end, .free = sink_free};
    s->core = gb_api_of(request)->core;
    if (read_part(request, s, err) < 0 || begin(request, s, err) < 0) {
        free(s);
        return GB_STEP_ERROR;
    }
    outer = gb_filters_wrap(request, &filters, &s->sink, err);
    if (!outer)
        return GB_STEP_ERROR;
    request->sink = outer;
    return GB_STEP_BODY;
}
