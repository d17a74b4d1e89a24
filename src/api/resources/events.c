/* /v1/sessions/{session}/events */
#include "api/context.h"
#include "api/list/page.h"
#include "api/middleware/async.h"
#include "api/reply/render.h"
#include "api/reply/reply_json.h"
#include "api/request/body.h"
#include "api/request/path_params.h"
#include "api/route.h"

static int visit(void *arg, const struct gb_event_view *view, struct gb_error *err) {
    struct gb_walk *walk = arg;

    const struct gb_list_item item = {.id = view->id, .name = view->name.s, .sort = {0, (uint64_t)view->created_at_us}};

    (void)err;
    if (gb_walk_takes(walk, &item))
        gb_render_event(&walk->out, NULL, walk->session.s, view);
    return walk->full;
}

static int list(struct gb_walk *walk, struct gb_error *err) {
    return gb_event_list(walk->api->core, &walk->session, &walk->page, visit, walk, err);
}

enum gb_step gb_api_event_list(struct gb_http_request *request, struct gb_http_response *response,
                               struct gb_error *err) {
    static const struct gb_list_offer offer = {.sorts = {"name", "created_at"}, .sort_count = 2};

    return gb_reply_page(request, response, &offer, list, err);
}

enum gb_step gb_api_event_get(struct gb_http_request *request, struct gb_http_response *response,
                              struct gb_error *err) {
    struct gb_event_view view;
    struct gb_json_writer out = {0};
    struct gb_locator at;

    if (gb_path_locator(request, "event name", &at, err) < 0 ||
        gb_event_get(gb_api_of(request)->core, &at, &view, err) < 0)
        return GB_STEP_ERROR;
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
