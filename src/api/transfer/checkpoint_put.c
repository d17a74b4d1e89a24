/* A file of a checkpoint that a client brings. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/auth.h"
#include "api/context.h"
#include "api/middleware/filters.h"
#include "api/reply/reply_json.h"
#include "api/request/query.h"
#include "api/route.h"
#include "api/transfer/resumable.h"

struct sink {
    struct gb_http_sink sink; /* first */
    struct gb_checkpoint_put *put;
    uint64_t size;
};

static int sink_room(struct gb_http_sink *sink, void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    return gb_checkpoint_put_room(((struct sink *)sink)->put, ret_ptr, ret_n, err);
}

static int sink_fill(struct gb_http_sink *sink, size_t n, struct gb_error *err) {
    return gb_checkpoint_put_fill(((struct sink *)sink)->put, n, err);
}

static void sink_free(struct gb_http_sink *sink) {
    struct sink *s = (struct sink *)sink;

    gb_checkpoint_put_free(s->put);
    free(s);
}

static enum gb_step reply(const struct gb_http_request *request, const struct sink *s, uint32_t crc, bool replaced,
                          struct gb_http_response *response, struct gb_error *err) {
    struct gb_json_writer out = {0};
    char text[9];

    snprintf(text, sizeof(text), "%08" PRIx32, crc);
    gb_json_open(&out, NULL, '{');
    gb_json_put_string(&out, "checkpoint", request->param[0].s);
    gb_json_put_string(&out, "file", request->param[1].s);
    gb_json_put_u64(&out, "size", s->size);
    gb_json_put_string(&out, "crc32c", text);
    gb_json_close(&out, '}');
    return gb_reply_json(&out, replaced ? 200 : 201, response, err);
}

/* Also runs at each wake until the file is there. */
static enum gb_step finish(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct sink *s = (struct sink *)request->sink;
    bool replaced;
    uint32_t crc;
    int r = gb_checkpoint_put_result(s->put, &crc, &replaced, err);

    if (r > 0)
        return reply(request, s, crc, replaced, response, err);
    if (r == 0 && !request->timed_out)
        return GB_STEP_WAIT;
    if (r == 0)
        gb_error_set(err, GB_ERR_TIMED_OUT, "the bytes arrived, but the disk did not finish in the permitted time");
    return GB_STEP_ERROR;
}

static enum gb_step sink_end(struct gb_http_sink *sink, struct gb_http_request *request,
                             struct gb_http_response *response, struct gb_error *err) {
    gb_checkpoint_put_end(((struct sink *)sink)->put);
    request->resume = finish;
    request->deadline_ns = 0;
    return finish(request, response, err);
}

/* The name is free when the client learns why. */
static enum gb_step sink_refused(struct gb_http_sink *sink, struct gb_http_request *request, struct gb_error *err) {
    struct gb_error why = *err;

    gb_checkpoint_put_refuse(((struct sink *)sink)->put, &why);
    *err = GB_ERROR_INIT;
    request->resume = finish;
    request->deadline_ns = 0;
    return finish(request, NULL, err);
}

static void wake(void *arg) {
    gb_http_wake(arg);
}

static int check_body(struct gb_http_request *request, struct gb_http_response *response, struct gb_filters *ret,
                      struct gb_error *err) {
    if (gb_resumable_refuse(request, err) < 0 || gb_filters_read(request, response, ret, err) < 0)
        return -1;
    if (ret->coded)
        return gb_error_set(err, GB_ERR_UNSUPPORTED_MEDIA_TYPE,
                            "a file of a checkpoint is sent as it is, without Content-Encoding");
    if (!request->has_content_length)
        return gb_error_set(err, GB_ERR_LENGTH_REQUIRED, "send Content-Length: the file's size is checked before");
    return 0;
}

/* A token that is bound to a session brings checkpoints of that session alone. */
static int read_params(const struct gb_http_request *request, struct gb_checkpoint_put_params *params,
                       struct gb_error *err) {
    if (gb_param_name(request, 0, "checkpoint name", &params->name, err) < 0 ||
        gb_api_bound(request, GB_SCOPE_WRITE, &params->session, err) < 0)
        return -1;
    params->file = request->param[1].s;
    params->size = request->content_length;
    return 0;
}

enum gb_step gb_api_checkpoint_file_put(struct gb_http_request *request, struct gb_http_response *response,
                                        struct gb_error *err) {
    struct gb_checkpoint_put_params params = {.waker = {wake, request}};
    struct gb_http_sink *sink;
    struct gb_filters filters;
    struct sink *s;

    if (check_body(request, response, &filters, err) < 0 || read_params(request, &params, err) < 0)
        return GB_STEP_ERROR;
    s = calloc(1, sizeof(*s));
    if (!s) {
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the upload; try again later");
        return GB_STEP_ERROR;
    }
    s->sink = (struct gb_http_sink){
        .room = sink_room, .fill = sink_fill, .end = sink_end, .refused = sink_refused, .free = sink_free};
    s->size = params.size;
    if (gb_checkpoint_put_begin(gb_api_of(request)->core, &params, &s->put, err) < 0) {
        sink_free(&s->sink);
        return GB_STEP_ERROR;
    }
    sink = gb_filters_wrap(request, &filters, &s->sink, err);
    if (!sink)
        return GB_STEP_ERROR;
    request->sink = sink;
    return GB_STEP_BODY;
}
