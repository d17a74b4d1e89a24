/* PUT, PATCH and POST .../data: the handlers. They choose between an upload in one request (upload.c) and one that can
 * be resumed (resumable.c). GET is in download.c. */
#include <stdlib.h>

#include "api/pipeline/conditional.h"
#include "api/pipeline/digest.h"
#include "api/request/query.h"
#include "api/resources/resumable.h"
#include "api/resources/table.h"
#include "api/resources/upload.h"
#include "core/core.h"
#include "http/http.h"

/* --- in one request ----------------------------------------------------------------------------------------------- */

/* The sink of a PUT or PATCH of the whole or of a part, before the filters. Returns NULL with *err, or with *ret_waits:
 * the table of the buffer must be read before, on *ret_stream. */
static struct gb_http_sink *sink_new(struct gb_http_request *request, const struct gb_filters *filters,
                                     struct gb_name *ret_stream, bool *ret_waits, struct gb_error *err) {
    struct gb_upload_request *plan;
    struct gb_conditions *conditions;
    struct gb_http_sink *sink = NULL;

    *ret_waits = false;
    plan = calloc(1, sizeof(*plan));
    if (!plan) {
        gb_error_memory(err, "request");
        return NULL;
    }
    plan->coded = filters->coded;
    if (gb_upload_request_read(request, plan, err) == 0 && gb_conditions_read(request, &conditions, err) == 0) {
        plan->params.check = gb_conditions_buffer_check(conditions);
        sink = gb_upload_sink_new(request, plan, err);
    } else {
        gb_session_unref(plan->params.session);
    }
    *ret_waits = plan->needs_table;
    *ret_stream = plan->params.buffer.stream;
    free(plan);
    return sink;
}

/* --- a sink that first reads the table ---------------------------------------------------------------------------- */

/* Takes no byte before it knows where in the buffer the tensor is. */
struct late {
    struct gb_http_sink sink; /* first */
    struct gb_http_request *request;
    struct gb_filters filters;
    struct gb_name stream;
    struct gb_table_reading *reading;
    unsigned readings;
    struct gb_http_sink *inner; /* NULL: not yet */
};

#define READINGS_MAX 100 /* each is in vain if all tensors were replaced since */

/* Returns 1 when the inner sink is there, 0 to wait, or -1. */
static int prepare(struct late *s, struct gb_error *err) {
    bool waits;
    int r;

    while (!s->inner) {
        if (!s->reading)
            return gb_error_set(err, GB_ERR_INTERNAL, "the upload was refused before");
        r = gb_table_reading_go_on(s->request, s->reading, err);
        if (r <= 0)
            return r;
        gb_table_reading_free(s->reading);
        s->reading = NULL;
        s->inner = sink_new(s->request, &s->filters, &s->stream, &waits, err);
        if (s->inner)
            break;
        if (waits && ++s->readings == READINGS_MAX)
            return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer's tensors are replaced faster than they are read");
        if (!waits || !(s->reading = gb_table_reading_new(s->request, &s->stream, err)))
            return -1;
    }
    return 1;
}

static int late_room(struct gb_http_sink *sink, void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    struct late *s = (struct late *)sink;
    int r = prepare(s, err);

    return r > 0 ? s->inner->room(s->inner, ret_ptr, ret_n, err) : r;
}

static int late_fill(struct gb_http_sink *sink, size_t n, struct gb_error *err) {
    struct late *s = (struct late *)sink;

    return s->inner->fill(s->inner, n, err);
}

static void late_pause(struct gb_http_sink *sink, bool stalled) {
    struct late *s = (struct late *)sink;

    if (s->inner && s->inner->pause)
        s->inner->pause(s->inner, stalled);
}

static int late_arrived(struct gb_http_sink *sink, struct gb_error *err) {
    struct late *s = (struct late *)sink;

    return s->inner && s->inner->arrived ? s->inner->arrived(s->inner, err) : 0;
}

static void late_free(struct gb_http_sink *sink) {
    struct late *s = (struct late *)sink;

    if (s->inner) {
        s->inner->failed = sink->failed;
        s->inner->free(s->inner);
    }
    gb_table_reading_free(s->reading);
    free(s);
}

/* Also runs at each wake until the inner sink is there, which then takes the place of this one. */
static enum gb_step late_finish(struct gb_http_request *request, struct gb_http_response *response,
                                struct gb_error *err) {
    struct late *s = (struct late *)request->sink;
    struct gb_http_sink *inner;
    int r = prepare(s, err);

    if (r == 0 && !request->timed_out)
        return GB_STEP_WAIT;
    if (r == 0)
        gb_error_set(err, GB_ERR_TIMED_OUT, "the device did not give the table in the permitted time");
    if (r <= 0)
        return GB_STEP_ERROR;
    inner = request->sink = s->inner;
    s->inner = NULL;
    late_free(&s->sink);
    return inner->end(inner, request, response, err);
}

static enum gb_step late_end(struct gb_http_sink *sink, struct gb_http_request *request,
                             struct gb_http_response *response, struct gb_error *err) {
    request->sink = sink; /* those around it are gone */
    return gb_http_await(request, late_finish, response, err);
}

static struct gb_http_sink *late_sink_new(struct gb_http_request *request, const struct gb_filters *filters,
                                          const struct gb_name *stream, struct gb_error *err) {
    struct late *s = calloc(1, sizeof(*s));

    if (!s) {
        gb_error_memory(err, "request");
        return NULL;
    }
    s->sink = (struct gb_http_sink){.room = late_room,
                                    .fill = late_fill,
                                    .pause = late_pause,
                                    .arrived = late_arrived,
                                    .end = late_end,
                                    .free = late_free};
    s->request = request;
    s->filters = *filters;
    s->stream = *stream;
    s->reading = gb_table_reading_new(request, stream, err);
    if (s->reading)
        return &s->sink;
    free(s);
    return NULL;
}

static enum gb_step put_whole(struct gb_http_request *request, struct gb_http_response *response,
                              struct gb_error *err) {
    struct gb_filters filters;
    struct gb_http_sink *sink;
    struct gb_name stream;
    bool waits;

    if (gb_filters_read(request, response, &filters, err) < 0)
        return GB_STEP_ERROR;
    sink = sink_new(request, &filters, &stream, &waits, err);
    if (waits)
        sink = late_sink_new(request, &filters, &stream, err);
    return gb_filters_wrap(request, &filters, sink, err);
}

/* --- the handlers ------------------------------------------------------------------------------------------------- */

enum gb_step gb_api_data_put(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    bool more = false;

    if (gb_resumable_asked(request, &more, err) < 0)
        return GB_STEP_ERROR;
    return more ? gb_resumable_begin(request, response, err) : put_whole(request, response, err);
}

/* Writes a part, as PUT with an offset or a slice does. */
enum gb_step gb_api_data_patch(struct gb_http_request *request, struct gb_http_response *response,
                               struct gb_error *err) {
    if (gb_resumable_refuse(request, err) < 0)
        return GB_STEP_ERROR;
    if (gb_http_query(request, "offset") || gb_http_query(request, "slice") || gb_http_query(request, "tensor"))
        return put_whole(request, response, err);
    gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                 "PATCH writes a part: give ?offset=, ?slice= or ?tensor=; the whole is replaced with PUT");
    return GB_STEP_ERROR;
}

/* POST is for clients that resume; forms send it by mistake. */
enum gb_step gb_api_data_post(struct gb_http_request *request, struct gb_http_response *response,
                              struct gb_error *err) {
    if (gb_http_header(request, "Upload-Complete"))
        return gb_api_data_put(request, response, err);
    if (gb_media_bytes(gb_http_header(request, "Content-Type"), err) < 0)
        return GB_STEP_ERROR;
    gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                 "POST begins an upload that can be resumed: give Upload-Complete: ?0, or ?1; a whole body goes with "
                 "PUT");
    return GB_STEP_ERROR;
}
