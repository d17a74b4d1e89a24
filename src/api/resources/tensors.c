/* /v1/sessions/{session}/tensors: many buffers as one safetensors file, in and out. A file that comes in changes all of
 * its buffers or none; a file that goes out has all of them as of one moment. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "api/auth.h"
#include "api/context.h"
#include "api/pipeline/conditional.h"
#include "api/pipeline/digest.h"
#include "api/reply.h"
#include "api/request/body.h"
#include "api/request/query.h"
#include "api/resources/resumable.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "core/core.h"
#include "http/http.h"

/* The body of PUT /v1/sessions/{session}/tensors. */

/* What the request asks of all buffers to come. */
struct gb_tensors_plan {
    struct gb_name session;
    struct gb_name prefix; /* may be "" */
    struct gb_upload_params params;
};

/* --- the buffers of a file ---------------------------------------------------------------------------------------- */

/* Picks the buffers of one file, and makes its header. */

static int too_many(struct gb_error *err) {
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                        "more than %d buffers are asked for, the most of one file; take some of them by names, prefix "
                        "or label",
                        GB_SAFETENSORS_TENSORS_MAX);
}

/* --- selecting ---------------------------------------------------------------------------------------------------- */

struct selection {
    struct gb_name prefix; /* "": any */
    struct gb_name reach;  /* the token's own; "": any */
    struct gb_label_query label;
    struct gb_name *names;
    size_t count;
    int64_t last_id;
};

static int visit(void *arg, const struct gb_buffer_rec *rec, struct gb_error *err) {
    struct selection *s = arg;

    s->last_id = rec->id;
    if (strncmp(rec->name.s, s->prefix.s, strlen(s->prefix.s)) != 0 || !gb_api_has_prefix(&s->reach, rec->name.s) ||
        !gb_label_query_fits(&s->label, gb_labels_text(rec->labels)))
        return 0;
    if (s->count == GB_SAFETENSORS_TENSORS_MAX)
        return too_many(err);
    s->names[s->count++] = rec->name;
    return 0;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct gb_name *)a)->s, ((const struct gb_name *)b)->s);
}

/* Finds all buffers that match, by name. */
static int select_matching(const struct gb_http_request *request, const struct gb_name *session, struct selection *s,
                           struct gb_error *err) {
    struct gb_page page = {.limit = GB_PAGE_LIMIT_MAX, .more = true};
    int r = 0;

    if (gb_query_name(request, "prefix", &s->prefix, err) < 0 || gb_label_query_read(request, &s->label, err) < 0)
        return -1;
    while (page.more && r == 0) {
        page.after = s->last_id;
        r = gb_buffer_list(gb_api_of(request)->core, session, &page, visit, s, err);
    }
    if (s->count > 0) /* else there is no array */
        qsort(s->names, s->count, sizeof(*s->names), by_name);
    return r;
}

static int check_twice(const struct selection *s, struct gb_error *err) {
    struct gb_name *sorted = malloc((s->count + 1) * sizeof(*sorted));
    size_t i;
    int r = 0;

    if (!sorted)
        return gb_error_memory(err, "request");
    if (s->count > 0)
        memcpy(sorted, s->names, s->count * sizeof(*sorted));
    qsort(sorted, s->count, sizeof(*sorted), by_name);
    for (i = 1; i < s->count && r == 0; i++) {
        if (by_name(&sorted[i - 1], &sorted[i]) == 0)
            r = gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "names has \"%s\" twice", sorted[i].s);
    }
    free(sorted);
    return r;
}

static int select_named(const struct gb_http_request *request, struct selection *s, struct gb_error *err) {
    const struct gb_http_text *names = gb_http_query(request, "names");
    const char *end = names->s + names->len;
    const char *at = names->s;

    if (gb_http_query(request, "prefix") || gb_http_query(request, "label"))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "give names, or prefix and label: not both");
    while (at <= end) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        size_t n = (size_t)((comma ? comma : end) - at);

        if (s->count == GB_SAFETENSORS_TENSORS_MAX)
            return too_many(err);
        if (gb_name_parse("buffer name in names", at, n, &s->names[s->count], err) < 0 ||
            gb_api_reach(request, s->names[s->count++].s, err) < 0)
            return -1;
        at += n + 1;
    }
    return check_twice(s, err);
}

/* Picks the buffers of a download: those of ?names= in that order, else all that have the prefix and the label. *ret is
 * malloc'd. *ret_named: the client named each, so each must exist. Returns 0, or -1 with INVALID_ARGUMENT,
 * INVALID_NAME, SESSION_NOT_FOUND or SATURATED. */
static int tensors_select(const struct gb_http_request *request, const struct gb_name *session, struct gb_name **ret,
                          size_t *ret_count, bool *ret_named, struct gb_error *err) {
    struct selection s = {.names = malloc(GB_SAFETENSORS_TENSORS_MAX * sizeof(*s.names))};
    bool named = gb_http_query(request, "names") != NULL;
    int r;

    if (!s.names)
        return gb_error_memory(err, "request");
    r = gb_api_prefix(request, &s.reach, err);
    if (r == 0)
        r = named ? select_named(request, &s, err) : select_matching(request, session, &s, err);
    if (r < 0) {
        free(s.names);
        return -1;
    }
    *ret = s.names;
    *ret_count = s.count;
    *ret_named = named;
    return 0;
}

/* --- the header --------------------------------------------------------------------------------------------------- */

struct entry {
    char *tensor;
    size_t index;
    size_t width;
};

static int by_width(const void *a, const void *b) {
    const struct entry *x = a;
    const struct entry *y = b;

    if (x->width != y->width)
        return x->width > y->width ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

static int by_tensor(const void *a, const void *b) {
    return strcmp(((const struct entry *)a)->tensor, ((const struct entry *)b)->tensor);
}

static int read_entries(const struct gb_download_group *group, struct entry *entries, struct gb_error *err) {
    char name[GB_LABELS_MAX];
    size_t i;

    for (i = 0; i < gb_download_group_count(group); i++) {
        const struct gb_buffer_rec *rec = gb_download_group_record(group, i);

        entries[i].index = i;
        entries[i].width = gb_dtype_bytes(rec->dtype);
        entries[i].tensor = strdup(gb_tensor_name(rec, name));
        if (!entries[i].tensor)
            return gb_error_memory(err, "request");
        if (rec->dtype == GB_DTYPE_TENSORS)
            return gb_error_set(err, GB_ERR_NOT_ACCEPTABLE,
                                "\"%s\" has many tensors; leave it out, its data are a file of their own", rec->name.s);
        if (!gb_dtype_safetensors(rec->dtype))
            return gb_error_set(err, GB_ERR_NOT_ACCEPTABLE,
                                "\"%s\" is %s, which safetensors has not; leave it out and ask for its data as raw",
                                rec->name.s, gb_dtype_name(rec->dtype));
    }
    return 0;
}

static int check_tensors(const struct gb_download_group *group, struct entry *entries, struct gb_error *err) {
    size_t count = gb_download_group_count(group);
    size_t i;

    qsort(entries, count, sizeof(*entries), by_tensor);
    for (i = 0; i < count; i++) {
        const struct gb_name *name = &gb_download_group_record(group, entries[i].index)->name;

        if (strcmp(entries[i].tensor, GB_SAFETENSORS_METADATA) == 0)
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the tensor of \"%s\" cannot be called %s", name->s,
                                GB_SAFETENSORS_METADATA);
        if (i > 0 && by_tensor(&entries[i - 1], &entries[i]) == 0)
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                                "\"%s\" and \"%s\" would both be the tensor \"%.80s\" (label " GB_TENSOR_LABEL
                                "); leave one of them out",
                                gb_download_group_record(group, entries[i - 1].index)->name.s, name->s,
                                entries[i].tensor);
    }
    qsort(entries, count, sizeof(*entries), by_width);
    return 0;
}

static int write_header(const struct gb_download_group *group, const struct entry *entries, struct gb_json_writer *out,
                        size_t *order, uint64_t *ret_bytes, struct gb_error *err) {
    uint64_t at = 0;
    uint64_t end;
    size_t i;

    gb_safetensors_open(out);
    for (i = 0; i < gb_download_group_count(group); i++) {
        const struct gb_buffer_rec *rec = gb_download_group_record(group, entries[i].index);

        if (!gb_add_u64(at, rec->bytes, &end) || end > INT64_MAX / 2)
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the buffers have more bytes than a file can have");
        gb_safetensors_add(out, entries[i].tensor, rec->dtype, &rec->shape, at, end);
        order[i] = entries[i].index;
        at = end;
    }
    if (gb_safetensors_close(out, err) < 0)
        return -1;
    if (out->used > GB_SAFETENSORS_HEADER_EACH_MAX)
        return gb_error_set(
            err, GB_ERR_INVALID_ARGUMENT,
            "the file's header would have %zu bytes, more than the %u that are read; take fewer buffers", out->used,
            GB_SAFETENSORS_HEADER_EACH_MAX);
    *ret_bytes = at;
    return 0;
}

/* Makes the header of the file for the buffers of the group. *ret_order, malloc'd: the order of the bytes, larger
 * elements first, so that each tensor is aligned. *ret_bytes: of all tensors. Returns 0, or -1 with NOT_ACCEPTABLE (a
 * type that the format lacks), INVALID_ARGUMENT (two tensors of one name, or too many bytes) or SATURATED. */
static int tensors_header(const struct gb_download_group *group, struct gb_json_writer *out, size_t **ret_order,
                          uint64_t *ret_bytes, struct gb_error *err) {
    size_t count = gb_download_group_count(group);
    struct entry *entries = calloc(count + 1, sizeof(*entries));
    size_t *order = calloc(count + 1, sizeof(*order));
    size_t i;
    int r = entries && order ? 0 : gb_error_memory(err, "request");

    if (r == 0)
        r = read_entries(group, entries, err);
    if (r == 0)
        r = check_tensors(group, entries, err);
    if (r == 0)
        r = write_header(group, entries, out, order, ret_bytes, err);
    for (i = 0; entries && i < count; i++)
        free(entries[i].tensor);
    free(entries);
    if (r < 0) {
        free(order);
        return -1;
    }
    *ret_order = order;
    return 0;
}

/* --- GET ---------------------------------------------------------------------------------------------------------- */

/* GET and HEAD /v1/sessions/{session}/tensors: many buffers as one safetensors file. */

struct group {
    struct gb_http_source source; /* first */
    struct gb_download_group *core;
    struct gb_json_writer head;
    size_t head_sent;
    uint64_t bytes;    /* behind the head */
    const char *block; /* the first, got before the header went out */
    size_t block_n;
};

/* --- GET: the source ---------------------------------------------------------------------------------------------- */

static int source_next(struct gb_http_source *source, const void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    struct group *b = (struct group *)source;

    if (b->head_sent < b->head.used) {
        *ret_ptr = b->head.s + b->head_sent;
        *ret_n = b->head.used - b->head_sent;
        return 1;
    }
    if (b->block_n > 0) {
        *ret_ptr = b->block;
        *ret_n = b->block_n;
        return 1;
    }
    return gb_download_group_next(b->core, ret_ptr, ret_n, err);
}

static void source_sent(struct gb_http_source *source, size_t n) {
    struct group *b = (struct group *)source;

    if (b->head_sent < b->head.used) {
        b->head_sent += n;
        return;
    }
    if (b->block_n > 0) {
        b->block += n;
        b->block_n -= n;
    }
    gb_download_group_sent(b->core, n);
}

static void source_pause(struct gb_http_source *source) {
    struct group *b = (struct group *)source;

    b->block_n = 0; /* the core gives the rest of it again */
    gb_download_group_pause(b->core);
}

static void source_free(struct gb_http_source *source, bool complete) {
    struct group *b = (struct group *)source;

    (void)complete;
    gb_download_group_free(b->core);
    gb_json_done(&b->head);
    free(b);
}

static void state_free(void *state) {
    source_free(state, false);
}

static void wake(void *arg) {
    gb_http_wake(arg);
}

/* --- GET: the reply ----------------------------------------------------------------------------------------------- */

/* Drops the prepared headers, which do not belong to an error. */
static enum gb_step fail(struct gb_http_response *response) {
    gb_http_response_done(response);
    return GB_STEP_ERROR;
}

/* Makes the entity tag of the header and of the contents that follow it. */
static int make_tag(const struct group *b, char tag[GB_BASE64_SIZE_MAX], struct gb_error *err) {
    struct gb_hash *hash = gb_hash_new(GB_DIGEST_SHA256, err);
    struct gb_digest digest;
    size_t i;
    int r = hash ? gb_hash_add(hash, b->head.s, b->head.used, err) : -1;

    for (i = 0; i < gb_download_group_count(b->core) && r == 0; i++) {
        char one[GB_ETAG_SIZE];

        gb_etag_data(gb_download_group_record(b->core, i), GB_FORM_RAW, one);
        r = gb_hash_add(hash, one, strlen(one) + 1, err);
    }
    if (r == 0) {
        gb_hash_get(hash, &digest);
        gb_digest_text(&digest, tag);
    }
    gb_hash_free(hash);
    return r;
}

static enum gb_step send(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct group *b = request->state;
    struct gb_transfer_times times;
    int r = 0;

    gb_download_group_times(b->core, &times);
    r |= gb_http_response_header(response, err, "Content-Type", "%s", GB_MEDIA_SAFETENSORS);
    r |= gb_http_response_header(response, err, "Accept-Ranges", "none");
    if (request->method != GB_HTTP_HEAD)
        r |= gb_http_response_header(response, err, "Server-Timing", "queue;dur=%.3f", times.queue_ms);
    if (r < 0)
        return fail(response);
    request->state = NULL;
    request->state_free = NULL;
    gb_http_response_source(response, &b->source, b->head.used + b->bytes);
    return GB_STEP_REPLY;
}

/* Waits for the first block, so that a failure of the device still becomes the status. */
static enum gb_step first_block(struct gb_http_request *request, struct gb_http_response *response,
                                struct gb_error *err) {
    struct group *b = request->state;
    const void *block;
    int r = gb_download_group_next(b->core, &block, &b->block_n, err);

    if (r > 0) {
        b->block = block;
        return send(request, response, err);
    }
    if (r == 0 && !request->timed_out)
        return GB_STEP_WAIT;
    if (r == 0)
        gb_error_set(err, GB_ERR_TIMED_OUT, "the device did not give the first bytes in the permitted time");
    return fail(response);
}

/* Returns 1 to send, 0 when the response is complete, or -1. */
static int prepare(struct gb_http_request *request, struct group *b, struct gb_http_response *response,
                   struct gb_error *err) {
    char tag[GB_BASE64_SIZE_MAX];
    size_t *order = NULL;
    int r;

    if (tensors_header(b->core, &b->head, &order, &b->bytes, err) < 0)
        return -1;
    r = make_tag(b, tag, err);
    if (r == 0)
        r = gb_conditions_get(request, tag, response, err);
    if (r > 0 && gb_download_group_start(b->core, order, err) < 0)
        r = -1;
    free(order);
    return r;
}

static int open_buffers(struct gb_http_request *request, struct group *b, struct gb_error *err) {
    struct gb_name session;
    struct gb_name stream = {"default"};
    struct gb_name *names = NULL;
    enum gb_form form;
    size_t count = 0;
    bool named = false;
    int r;

    if (gb_param_name(request, 0, "session name", &session, err) < 0 ||
        gb_query_name(request, "stream", &stream, err) < 0 ||
        gb_media_accept(gb_http_header(request, "Accept"), 1u << GB_FORM_SAFETENSORS, &form, err) < 0 ||
        tensors_select(request, &session, &names, &count, &named, err) < 0)
        return -1;
    r = gb_download_group_open(gb_api_of(request)->core, &session, names, count, !named, &stream,
                               (struct gb_waker){wake, request}, &b->core, err);
    free(names);
    return r;
}

/* Waits for earlier writes of the stream. Also runs at each wake. */
static enum gb_step turn(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct group *b = request->state;
    int r = gb_download_group_turn(b->core, err);

    if (r == 0 && !request->timed_out)
        return GB_STEP_WAIT;
    if (r == 0)
        gb_error_set(err, GB_ERR_TIMED_OUT, "earlier writes on the stream did not end in the permitted time");
    if (r <= 0)
        return GB_STEP_ERROR;
    r = prepare(request, b, response, err);
    if (r <= 0)
        return r < 0 ? fail(response) : GB_STEP_REPLY;
    if (request->method == GB_HTTP_HEAD || b->bytes == 0)
        return send(request, response, err);
    request->resume = first_block;
    return first_block(request, response, err);
}

enum gb_step gb_api_tensors_get(struct gb_http_request *request, struct gb_http_response *response,
                                struct gb_error *err) {
    struct group *b = calloc(1, sizeof(*b));

    if (!b) {
        gb_error_memory(err, "download");
        return GB_STEP_ERROR;
    }
    b->source =
        (struct gb_http_source){.next = source_next, .sent = source_sent, .pause = source_pause, .free = source_free};
    request->state = b;
    request->state_free = state_free;
    if (open_buffers(request, b, err) < 0)
        return GB_STEP_ERROR;
    request->resume = turn;
    return turn(request, response, err);
}

/* --- PUT: the body ------------------------------------------------------------------------------------------------ */

/* The body of PUT /v1/sessions/{session}/tensors. Its header is gathered here; every byte after it goes straight into
 * the memory that the core gives. */

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

/* --- PUT: the header of the file ---------------------------------------------------------------------------------- */

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
    if (s->head_need > GB_SAFETENSORS_LENGTH + GB_SAFETENSORS_HEADER_EACH_MAX)
        return gb_error_set(err, GB_ERR_BODY_TOO_LARGE,
                            "the safetensors header has %zu bytes; at most %u are read where each tensor becomes a "
                            "buffer: PUT the file to one buffer's data, as a table",
                            s->head_need - GB_SAFETENSORS_LENGTH, GB_SAFETENSORS_HEADER_EACH_MAX);
    if (s->has_length && s->head_need > s->length)
        return gb_error_set(err, GB_ERR_UNSUPPORTED_ARRAY, "the body ends within the header of its safetensors file");
    bigger = realloc(s->head, s->head_need);
    if (!bigger)
        return gb_error_memory(err, "upload");
    s->head = bigger;
    s->stage = STAGE_HEADER;
    return 0;
}

/* --- PUT: the sink ------------------------------------------------------------------------------------------------ */

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

    gb_upload_group_set_reason(s->group, sink->failed);
    gb_upload_group_free(s->group);
    free(s->head);
    free(s);
}

/* --- PUT: the reply ----------------------------------------------------------------------------------------------- */

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
    return r > 0 ? reply(request, s, &times, response, err) : gb_body_await(request, "device or the database", err);
}

static enum gb_step sink_end(struct gb_http_sink *sink, struct gb_http_request *request,
                             struct gb_http_response *response, struct gb_error *err) {
    struct sink *s = (struct sink *)sink;

    s->recv_ns = gb_clock_ns();
    return gb_http_await(request, finish, response, err);
}

/* Refuses a body by the bytes that its tensors have at least. */
static int check_early(const struct sink *s, struct gb_error *err) {
    const uint64_t header = GB_SAFETENSORS_LENGTH + GB_SAFETENSORS_HEADER_EACH_MAX;

    return gb_upload_group_check(s->core, &s->plan.session,
                                 s->has_length && s->length > header ? s->length - header : 0, err);
}

/* Makes a sink for the file. coded: Content-Length is that of the coded bytes. Returns NULL with *err. */
static struct gb_http_sink *tensors_sink_new(struct gb_http_request *request, const struct gb_tensors_plan *plan,
                                             bool coded, struct gb_error *err) {
    struct sink *s = calloc(1, sizeof(*s));

    if (!s) {
        gb_error_memory(err, "upload");
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
        gb_error_memory(err, "upload");
    sink_free(&s->sink);
    return NULL;
}

/* --- PUT: the request --------------------------------------------------------------------------------------------- */

/* PUT /v1/sessions/{session}/tensors: the headers. */

static int check_headers(const struct gb_http_request *request, struct gb_error *err) {
    static const char *const refused[] = {"If-Match", "If-None-Match"};
    enum gb_form form;
    size_t i;

    if (gb_media_tensor(gb_http_header(request, "Content-Type"), &form, err) < 0)
        return -1;
    if (form == GB_FORM_NPY)
        return gb_error_set(err, GB_ERR_UNSUPPORTED_MEDIA_TYPE,
                            "tensors come as " GB_MEDIA_SAFETENSORS "; send a .npy to a buffer's data");
    /* Ignoring them would do what the client forbids. */
    for (i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        if (gb_http_header(request, refused[i]))
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                                "%s is not taken here: many buffers are written; send the tensors one by one",
                                refused[i]);
    }
    return 0;
}

static int read_plan(const struct gb_http_request *request, struct gb_tensors_plan *plan, struct gb_error *err) {
    const struct gb_http_text *kind = gb_http_query(request, "kind");
    const struct gb_http_text *device = gb_http_query(request, "device");
    struct gb_buffer_params *buffer = &plan->params.buffer;

    buffer->kind = GB_KIND_DEVICE;
    buffer->has_kind = kind != NULL;
    buffer->has_device = device != NULL;
    strcpy(buffer->stream.s, "default");
    plan->params.wait_ms = gb_http_prefer_wait(request, 0, GB_ALLOC_WAIT_MAX_S, NULL) * 1000;
    if (gb_param_name(request, 0, "session name", &plan->session, err) < 0 ||
        gb_query_name(request, "prefix", &plan->prefix, err) < 0 ||
        gb_query_name(request, "stream", &buffer->stream, err) < 0 ||
        gb_query_name(request, "pool", &buffer->pool, err) < 0)
        return -1;
    if (kind && gb_kind_parse(kind->s, kind->len, &buffer->kind, err) < 0)
        return -1;
    if (device && buffer->pool.s[0] != '\0')
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "give pool or device, not both: a pool is of one device");
    return device && gb_device_text(gb_api_of(request), device->s, device->len, &buffer->device, err) < 0 ? -1 : 0;
}

enum gb_step gb_api_tensors_put(struct gb_http_request *request, struct gb_http_response *response,
                                struct gb_error *err) {
    struct gb_tensors_plan plan = {.prefix = {""}};
    struct gb_filters filters;

    if (gb_http_reply_room(request, err) < 0 || gb_resumable_refuse(request, err) < 0 ||
        gb_filters_read(request, response, &filters, err) < 0 || check_headers(request, err) < 0 ||
        read_plan(request, &plan, err) < 0)
        return GB_STEP_ERROR;
    return gb_filters_wrap(request, &filters, tensors_sink_new(request, &plan, filters.coded, err), err);
}
