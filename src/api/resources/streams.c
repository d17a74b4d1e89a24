/* Streams of a session, the wait for all of them, holds, and events. A PUT of a stream that is there confirms it. */
#include <string.h>

#include "api/context.h"
#include "api/pipeline/async.h"
#include "api/pipeline/conditional.h"
#include "api/pipeline/list.h"
#include "api/reply.h"
#include "api/request/body.h"
#include "api/request/query.h"

static const struct gb_list_offer offer = {.sorts = {"name", "created_at"}, .sort_count = 2};

/* --- streams ------------------------------------------------------------------------------------------------------ */

/* /v1/sessions/{session}/streams, and POST /v1/sessions/{session}/sync, which waits for all of them. */

static int visit(void *arg, const struct gb_stream_view *view, struct gb_error *err) {
    const struct gb_list_item item = {.id = view->id, .name = view->name.s, .sort = {0, (uint64_t)view->created_at_us}};
    struct gb_walk *walk = arg;

    (void)err;
    if (gb_walk_takes(walk, &item))
        gb_render_stream(&walk->out, NULL, walk->session.s, view);
    return walk->full;
}

static int list(struct gb_walk *walk, struct gb_error *err) {
    return gb_stream_list(walk->api->core, &walk->session, &walk->page, visit, walk, err);
}

enum gb_step gb_api_stream_list(struct gb_http_request *request, struct gb_http_response *response,
                                struct gb_error *err) {
    return gb_reply_page(request, response, &offer, list, err);
}

enum gb_step gb_api_stream_get(struct gb_http_request *request, struct gb_http_response *response,
                               struct gb_error *err) {
    struct gb_stream_view view;
    struct gb_json_writer out = {0};
    struct gb_locator at;

    if (gb_path_locator(request, "stream name", &at, err) < 0 ||
        gb_stream_get(gb_api_of(request)->core, &at, &view, err) < 0)
        return GB_STEP_ERROR;
    gb_render_stream(&out, NULL, at.session.s, &view);
    return gb_reply_json(&out, 200, response, err);
}

static enum gb_step reply_created(struct gb_http_request *request, const void *result,
                                  struct gb_http_response *response, struct gb_error *err) {
    const struct gb_stream_call *call = result;
    struct gb_json_writer out = {0};

    if (gb_http_response_header(response, err, "Location", "/v1/sessions/%s/streams/%s", request->param[0].s,
                                call->stream.name.s) < 0)
        return GB_STEP_ERROR;
    gb_render_stream(&out, NULL, request->param[0].s, &call->stream);
    return gb_reply_json(&out, 201, response, err);
}

enum gb_step gb_api_stream_create(struct gb_http_request *request, struct gb_http_response *response,
                                  struct gb_error *err) {
    struct gb_stream_call *call;
    struct gb_locator at;

    if (gb_path_session(request, &at.session, err) < 0 || gb_body_name(request, &at.name, err) < 0)
        return GB_STEP_ERROR;
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call)
        return GB_STEP_ERROR;
    gb_stream_make(gb_api_of(request)->core, &at, call);
    return gb_async_end(request, response, reply_created, 0, err);
}

static enum gb_step confirm(struct gb_http_request *request, const struct gb_name *name,
                            const struct gb_stream_view *view, struct gb_http_response *response,
                            struct gb_error *err) {
    const struct gb_differences none = {.fields = ""};
    struct gb_json_writer out = {0};

    if (gb_confirm(request, "stream", name, &none, GB_ERR_STREAM_EXISTS, err) < 0)
        return GB_STEP_ERROR;
    gb_render_stream(&out, NULL, request->param[0].s, view);
    return gb_reply_json(&out, 200, response, err);
}

enum gb_step gb_api_stream_put(struct gb_http_request *request, struct gb_http_response *response,
                               struct gb_error *err) {
    struct gb_core *core = gb_api_of(request)->core;
    struct gb_error why = GB_ERROR_INIT;
    struct gb_stream_call *call;
    struct gb_stream_view view;
    struct gb_locator at;
    json_t *body;

    if (gb_path_locator(request, "stream name", &at, err) < 0 || gb_put_read(request, &at.name, "name", &body, err) < 0)
        return GB_STEP_ERROR;
    json_decref(body);
    if (gb_stream_get(core, &at, &view, &why) == 0)
        return confirm(request, &at.name, &view, response, err);
    if (why.code != GB_ERR_STREAM_NOT_FOUND) {
        gb_error_move(err, &why);
        return GB_STEP_ERROR;
    }
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call)
        return GB_STEP_ERROR;
    gb_async_again(request, gb_api_stream_put, GB_ERR_STREAM_EXISTS);
    gb_stream_make(core, &at, call);
    return gb_async_end(request, response, reply_created, 0, err);
}

enum gb_step gb_api_stream_delete(struct gb_http_request *request, struct gb_http_response *response,
                                  struct gb_error *err) {
    return gb_path_call(request, response, "stream name", gb_stream_remove, err);
}

/* --- hold --------------------------------------------------------------------------------------------------------- */

static enum gb_step reply_held(struct gb_http_request *request, const void *result, struct gb_http_response *response,
                               struct gb_error *err) {
    const struct gb_hold_call *call = result;
    struct gb_json_writer out = {0};

    gb_json_open(&out, NULL, '{');
    gb_json_put_string(&out, "session", request->param[0].s);
    gb_json_put_string(&out, "stream", call->stream.s);
    gb_render_device_id(&out, "device", gb_api_of(request), call->device);
    gb_json_put_u64(&out, "ms", call->ms);
    gb_json_put_time(&out, "held_until", call->until_us);
    gb_json_close(&out, '}');
    return gb_reply_json(&out, 200, response, err);
}

static int read_hold(const struct gb_http_request *request, uint64_t *ret_ms, int *ret_device, struct gb_error *err) {
    json_t *body;
    int r;

    if (gb_body_object(request, "ms device", false, &body, err) < 0)
        return -1;
    r = gb_json_u64(body, "ms", ret_ms, err);
    if (r == 0)
        gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the field 'ms' is needed: 1 to %d milliseconds", GB_HOLD_MS_MAX);
    if (r > 0 && gb_device_field(gb_api_of(request), body, "device", ret_device, err) < 0)
        r = -1;
    json_decref(body);
    return r > 0 ? 0 : -1;
}

enum gb_step gb_api_stream_hold(struct gb_http_request *request, struct gb_http_response *response,
                                struct gb_error *err) {
    struct gb_hold_call *call;
    struct gb_locator at;
    uint64_t ms = 0;
    int device = 0;

    if (gb_path_locator(request, "stream name", &at, err) < 0 || read_hold(request, &ms, &device, err) < 0)
        return GB_STEP_ERROR;
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call)
        return GB_STEP_ERROR;
    gb_stream_hold_call(gb_api_of(request)->core, &at, device, ms, call);
    return gb_async_end(request, response, reply_held, 0, err);
}

/* --- sync --------------------------------------------------------------------------------------------------------- */

static enum gb_step reply_synced(struct gb_http_request *request, const void *result, struct gb_http_response *response,
                                 struct gb_error *err) {
    (void)result;
    return gb_api_stream_get(request, response, err);
}

enum gb_step gb_api_stream_sync(struct gb_http_request *request, struct gb_http_response *response,
                                struct gb_error *err) {
    struct gb_call *call;
    struct gb_locator at;

    if (gb_path_locator(request, "stream name", &at, err) < 0 || gb_body_no_fields(request, err) < 0)
        return GB_STEP_ERROR;
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call)
        return GB_STEP_ERROR;
    gb_stream_sync_call(gb_api_of(request)->core, &at, call);
    return gb_async_end(request, response, reply_synced, gb_sync_deadline_ns(request), err);
}

enum gb_step gb_api_session_sync(struct gb_http_request *request, struct gb_http_response *response,
                                 struct gb_error *err) {
    struct gb_call *call;
    struct gb_name session;

    if (gb_path_session(request, &session, err) < 0 || gb_body_no_fields(request, err) < 0)
        return GB_STEP_ERROR;
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call)
        return GB_STEP_ERROR;
    gb_session_sync_call(gb_api_of(request)->core, &session, call);
    return gb_async_end(request, response, gb_reply_nothing, gb_sync_deadline_ns(request), err);
}

/* --- events ------------------------------------------------------------------------------------------------------- */

/* /v1/sessions/{session}/events */

static int visit_event(void *arg, const struct gb_event_view *view, struct gb_error *err) {
    const struct gb_list_item item = {.id = view->id, .name = view->name.s, .sort = {0, (uint64_t)view->created_at_us}};
    struct gb_walk *walk = arg;

    (void)err;
    if (gb_walk_takes(walk, &item))
        gb_render_event(&walk->out, NULL, walk->session.s, view);
    return walk->full;
}

static int list_events(struct gb_walk *walk, struct gb_error *err) {
    return gb_event_list(walk->api->core, &walk->session, &walk->page, visit_event, walk, err);
}

enum gb_step gb_api_event_list(struct gb_http_request *request, struct gb_http_response *response,
                               struct gb_error *err) {
    return gb_reply_page(request, response, &offer, list_events, err);
}

static bool same_event(struct gb_core *core, const struct gb_http_request *request, const char *tag) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_event_view view;
    struct gb_locator at;
    char etag[GB_ETAG_SIZE];

    return gb_path_locator(request, "event name", &at, &err) == 0 && gb_event_get(core, &at, &view, &err) == 0 &&
           strcmp(gb_etag_event(&view, etag), tag) == 0;
}

/* The end of the device's work is announced to those alone who wait for a change. */
enum gb_step gb_api_event_get(struct gb_http_request *request, struct gb_http_response *response,
                              struct gb_error *err) {
    struct gb_api *api = gb_api_of(request);
    struct gb_event_view view;
    struct gb_json_writer out = {0};
    struct gb_locator at;
    char etag[GB_ETAG_SIZE];
    uint64_t sequence = gb_core_sequence(api->core);
    enum gb_step step;
    int r;

    if (gb_path_locator(request, "event name", &at, err) < 0 || gb_event_get(api->core, &at, &view, err) < 0)
        return GB_STEP_ERROR;
    r = gb_conditions_get(request, gb_etag_event(&view, etag), response, err);
    if (r < 0)
        return GB_STEP_ERROR;
    if (r == 0) {
        step = gb_poll_unchanged(api->polls, request, response, gb_api_event_get, same_event, etag, sequence);
        if (step == GB_STEP_WAIT && !view.done)
            gb_event_announce(api->core, &at);
        return step;
    }
    gb_render_event(&out, NULL, at.session.s, &view);
    return gb_reply_json(&out, 200, response, err);
}

/* Replies with the event, 201 when it was created. */
static enum gb_step reply_event(struct gb_http_request *request, const void *result, struct gb_http_response *response,
                                struct gb_error *err) {
    const struct gb_event_call *call = result;
    struct gb_json_writer out = {0};

    if (call->created && gb_http_response_header(response, err, "Location", "/v1/sessions/%s/events/%s",
                                                 request->param[0].s, call->event.name.s) < 0)
        return GB_STEP_ERROR;
    gb_render_event(&out, NULL, request->param[0].s, &call->event);
    return gb_reply_json(&out, call->created ? 201 : 200, response, err);
}

enum gb_step gb_api_event_create(struct gb_http_request *request, struct gb_http_response *response,
                                 struct gb_error *err) {
    struct gb_event_call *call;
    struct gb_locator at;

    if (gb_path_session(request, &at.session, err) < 0 || gb_body_name(request, &at.name, err) < 0)
        return GB_STEP_ERROR;
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call)
        return GB_STEP_ERROR;
    gb_event_make(gb_api_of(request)->core, &at, call);
    return gb_async_end(request, response, reply_event, 0, err);
}

enum gb_step gb_api_event_delete(struct gb_http_request *request, struct gb_http_response *response,
                                 struct gb_error *err) {
    return gb_path_call(request, response, "event name", gb_event_remove, err);
}

enum gb_step gb_api_event_sync(struct gb_http_request *request, struct gb_http_response *response,
                               struct gb_error *err) {
    struct gb_event_call *call;
    struct gb_locator at;

    if (gb_path_locator(request, "event name", &at, err) < 0 || gb_body_no_fields(request, err) < 0)
        return GB_STEP_ERROR;
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call)
        return GB_STEP_ERROR;
    gb_event_sync_call(gb_api_of(request)->core, &at, call);
    return gb_async_end(request, response, reply_event, gb_sync_deadline_ns(request), err);
}

/* Records the event on a stream, or lets a stream wait for it. */
static enum gb_step order(struct gb_http_request *request, struct gb_http_response *response,
                          void (*fn)(struct gb_core *core, const struct gb_locator *at, const struct gb_name *stream,
                                     struct gb_event_call *call),
                          struct gb_error *err) {
    struct gb_event_call *call;
    struct gb_locator at;
    struct gb_name stream;

    if (gb_path_locator(request, "event name", &at, err) < 0 || gb_body_stream(request, &stream, err) < 0)
        return GB_STEP_ERROR;
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call)
        return GB_STEP_ERROR;
    fn(gb_api_of(request)->core, &at, &stream, call);
    return gb_async_end(request, response, reply_event, 0, err);
}

enum gb_step gb_api_event_record(struct gb_http_request *request, struct gb_http_response *response,
                                 struct gb_error *err) {
    return order(request, response, gb_event_record_call, err);
}

enum gb_step gb_api_event_wait(struct gb_http_request *request, struct gb_http_response *response,
                               struct gb_error *err) {
    return order(request, response, gb_event_wait_call, err);
}
