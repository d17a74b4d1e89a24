/* The body of PUT /v1/sessions/{session}/tensors. Its header is gathered here; every byte after it goes straight into
 * the memory that the core gives. */
#include <stdlib.h>
#include <string.h>

#include "api/auth.h"
#include "api/context.h"
#include "api/middleware/filters.h"
#include "api/reply/render.h"
#include "api/reply/reply_json.h"
#include "api/reply/timing.h"
#include "api/request/tensor_names.h"
#include "api/transfer/tensors_sink.h"
#include "base/clock.h"

enum stage { STAGE_LENGTH, STAGE_HEADER, STAGE_DATA, STAGE_ENDED };

struct sink {
    struct gb_http_sink sink; /* first */
    struct gb_http_request *request;
    struct gb_core *core;
    struct gb_tensors_plan plan;
    enum stage stage;
    bool coded;
    bool has_length;
    uint64_t length; /* of the body */
    char *head;
    size_t head_used;
    size_t head_need;
    struct gb_upload_group *group;
    size_t count;
    uint64_t bytes; /* of all tensors */
    uint64_t filled;
    uint64_t recv_ns;
};

static int no_memory(struct gb_error *err) {
    return gb_error_set(err, GB_ERR_SATURATED, "no memory for the upload; try again later");
}

/* --- the header --------------------------------------------------------------------------------------------------- */

struct describing {
    const struct sink *sink;
    const struct gb_safetensors *file;
    const struct gb_name *names;
};

/* A buffer that is replaced keeps its other labels. */
static int describe_labels(const struct sink *s, const char *tensor, struct gb_buffer_params *buffer,
                           struct gb_error *err) {
    struct gb_error absent = GB_ERROR_INIT;
    struct gb_buffer_rec rec;
    char text[GB_LABELS_MAX];
    struct gb_locator at = {s->plan.session, buffer->name};
    bool exists = gb_buffer_get(s->core, &at, &rec, &absent) == 0;
    int r = gb_tensor_labels(exists ? gb_labels_text(rec.labels) : "{}", &buffer->name, tensor, text, err);

    if (exists)
        gb_buffer_rec_done(&rec);
    buffer->has_labels = r > 0;
    return r < 0 || (r > 0 && gb_labels_make(text, &buffer->labels, err) < 0) ? -1 : 0;
}

static int describe(void *arg, size_t i, struct gb_upload_params *params, struct gb_error *err) {
    const struct describing *d = arg;
    const struct gb_safetensor *tensor = &d->file->tensors[i];
    bool fresh = params->fresh;

    *params = d->sink->plan.params;
    params->fresh = fresh;
    params->bytes = tensor->end - tensor->begin;
    params->buffer.name = d->names[i];
    params->buffer.bytes = params->bytes;
    params->buffer.dtype = tensor->dtype;
    params->buffer.shape = tensor->shape;
    params->buffer.has_shape = true;
    return describe_labels(d->sink, tensor->name, &params->buffer, err);
}

static void wake(void *arg) {
    gb_http_wake(arg);
}

static int check_reach(const struct sink *s, const struct gb_name *names, size_t count, struct gb_error *err) {
    size_t i;
    int r = 0;

    for (i = 0; i < count && r == 0; i++)
        r = gb_api_reach(s->request, names[i].s, err);
    return r;
}

static int begin(struct sink *s, const struct gb_safetensors *file, struct gb_error *err) {
    struct describing d = {.sink = s, .file = file};
    struct gb_upload_group_params params = {.session = s->plan.session,
                                            .count = file->count,
                                            .bytes = file->bytes,
                                            .describe = describe,
                                            .describe_arg = &d,
                                            .waker = {wake, s->request}};
    struct gb_name *names;
    int r;

    if (s->has_length && s->length - s->head_used != file->bytes)
        return gb_error_set(err, GB_ERR_SHAPE_MISMATCH,
                            "the tensors of the safetensors header have %llu bytes, %llu follow it",
                            (unsigned long long)file->bytes, (unsigned long long)(s->length - s->head_used));
    if (file->bytes > INT64_MAX)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the tensors have more than 2^63 - 1 bytes");
    if (s->coded && gb_filters_permit(gb_api_of(s->request), file->bytes, err) < 0)
        return -1;
    if (gb_tensors_names(file, s->plan.prefix.s, &names, err) < 0)
        return -1;
    d.names = names;
    r = check_reach(s, names, file->count, err);
    if (r == 0)
        r = gb_upload_group_begin(s->core, &params, &s->group, err);
    free(names);
    s->count = file->count;
    s->bytes = file->bytes;
    return r;
}

/* Reads the complete header, which is not needed afterwards. */
static int read_header(struct sink *s, struct gb_error *err) {
    struct gb_safetensors file;
    int r;

    if (gb_safetensors_parse(s->head + GB_SAFETENSORS_LENGTH, s->head_used - GB_SAFETENSORS_LENGTH, &file, err) < 0)
        return -1;
    r = begin(s, &file, err);
    gb_safetensors_done(&file);
    free(s->head);
    s->head = NULL;
    s->stage = STAGE_DATA;
    return r;
}

static int read_length(struct sink *s, struct gb_error *err) {
    char *bigger;

    if (gb_safetensors_data_at(s->head, &s->head_need, err) < 0)
        return -1;
    if (s->has_length && s->head_need > s->length)
        return gb_error_set(err, GB_ERR_UNSUPPORTED_ARRAY, "the body ends within the header of its safetensors file");
    bigger = realloc(s->head, s->head_need);
    if (!bigger)
        return no_memory(err);
    s->head = bigger;
    s->stage = STAGE_HEADER;
    return 0;
}

/* --- as a sink ---------------------------------------------------------------------------------------------------- */

static int too_long(const struct sink *s, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_SHAPE_MISMATCH,
                        "the tensors of the safetensors header have %llu bytes, and more follow it",
                        (unsigned long long)s->bytes);
}

static int sink_room(struct gb_http_sink *sink, void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    struct sink *s = (struct sink *)sink;

    if (s->stage < STAGE_DATA) {
        *ret_ptr = s->head + s->head_used;
        *ret_n = s->head_need - s->head_used;
        return 1;
    }
    return s->filled == s->bytes ? too_long(s, err) : gb_upload_group_room(s->group, ret_ptr, ret_n, err);
}

static int sink_fill(struct gb_http_sink *sink, size_t n, struct gb_error *err) {
    struct sink *s = (struct sink *)sink;

    if (s->stage >= STAGE_DATA) {
        s->filled += n;
        return gb_upload_group_fill(s->group, n, err);
    }
    s->head_used += n;
    if (s->head_used < s->head_need)
        return 0;
    return s->stage == STAGE_LENGTH ? read_length(s, err) : read_header(s, err);
}

static void sink_pause(struct gb_http_sink *sink, bool stalled) {
    struct sink *s = (struct sink *)sink;

    if (s->group)
        gb_upload_group_pause(s->group, stalled);
}

static void sink_free(struct gb_http_sink *sink) {
    struct sink *s = (struct sink *)sink;

    gb_upload_group_blame(s->group, sink->failed);
    gb_upload_group_free(s->group);
    free(s->head);
    free(s);
}

/* --- the reply ---------------------------------------------------------------------------------------------------- */

static enum gb_step reply(struct gb_http_request *request, const struct sink *s, const struct gb_transfer_times *times,
                          struct gb_http_response *response, struct gb_error *err) {
    struct gb_json_writer out = {0};
    uint64_t created = 0;
    bool made;
    size_t i;

    if (gb_add_upload_timing(request, times, s->recv_ns, response, err) < 0)
        return GB_STEP_ERROR;
    gb_json_open(&out, NULL, '{');
    gb_json_open(&out, "items", '[');
    for (i = 0; i < s->count; i++) {
        gb_render_buffer(&out, NULL, gb_api_of(request), request->param[0].s,
                         gb_upload_group_record(s->group, i, &made));
        created += made;
    }
    gb_json_close(&out, ']');
    gb_json_put_u64(&out, "tensors", s->count);
    gb_json_put_u64(&out, "created", created);
    gb_json_put_u64(&out, "replaced", s->count - created);
    gb_json_put_u64(&out, "bytes", s->bytes);
    gb_json_close(&out, '}');
    return gb_reply_json(&out, created > 0 ? 201 : 200, response, err);
}

/* Ends the group after the whole body has arrived. */
static int conclude(struct sink *s, struct gb_error *err) {
    if (s->stage < STAGE_DATA)
        return gb_error_set(err, GB_ERR_UNSUPPORTED_ARRAY, "the body ends within the header of its safetensors file");
    if (s->stage == STAGE_ENDED)
        return 0;
    if (s->filled < s->bytes)
        return gb_error_set(err, GB_ERR_SHAPE_MISMATCH,
                            "the tensors of the safetensors header have %llu bytes, %llu follow it",
                            (unsigned long long)s->bytes, (unsigned long long)s->filled);
    s->stage = STAGE_ENDED;
    return gb_upload_group_end(s->group, err);
}

/* Also runs at each wake until the result is there. */
static enum gb_step finish(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct sink *s = (struct sink *)request->sink;
    struct gb_transfer_times times;
    int r = conclude(s, err);

    if (r == 0)
        r = gb_upload_group_result(s->group, &times, err);
    if (r < 0)
        return GB_STEP_ERROR;
    if (r > 0)
        return reply(request, s, &times, response, err);
    if (!request->timed_out)
        return GB_STEP_WAIT;
    gb_error_set(err, GB_ERR_TIMED_OUT,
                 "the bytes arrived, but the device or the database did not finish in the permitted time");
    return GB_STEP_ERROR;
}

static enum gb_step sink_end(struct gb_http_sink *sink, struct gb_http_request *request,
                             struct gb_http_response *response, struct gb_error *err) {
    struct sink *s = (struct sink *)sink;

    s->recv_ns = gb_clock_ns();
    request->resume = finish;
    request->deadline_ns = 0;
    return finish(request, response, err);
}

/* Refuses a body by the bytes that its tensors have at least. */
static int check_early(const struct sink *s, struct gb_error *err) {
    const uint64_t header = GB_SAFETENSORS_LENGTH + GB_SAFETENSORS_HEADER_MAX;

    return gb_upload_group_check(s->core, &s->plan.session,
                                 s->has_length && s->length > header ? s->length - header : 0, err);
}

struct gb_http_sink *gb_tensors_sink_new(struct gb_http_request *request, const struct gb_tensors_plan *plan,
                                         bool coded, struct gb_error *err) {
    struct sink *s = calloc(1, sizeof(*s));

    if (!s) {
        no_memory(err);
        return NULL;
    }
    s->sink = (struct gb_http_sink){
        .room = sink_room, .fill = sink_fill, .pause = sink_pause, .end = sink_end, .free = sink_free};
    s->request = request;
    s->core = gb_api_of(request)->core;
    s->plan = *plan;
    s->coded = coded;
    s->has_length = request->has_content_length && !coded;
    s->length = request->content_length;
    s->head_need = GB_SAFETENSORS_PREFIX;
    s->head = malloc(GB_SAFETENSORS_PREFIX);
    if (s->head && check_early(s, err) == 0)
        return &s->sink;
    if (!s->head)
        no_memory(err);
    sink_free(&s->sink);
    return NULL;
}
