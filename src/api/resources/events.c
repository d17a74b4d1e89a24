/* /v1/sessions/{s}/events */
#include "api/context.h"
#include "api/middleware/async.h"
#include "api/reply/page.h"
#include "api/reply/render.h"
#include "api/reply/reply_json.h"
#include "api/request/body.h"
#include "api/request/path_params.h"
#include "api/route.h"

static int visit(void *arg, const struct gb_event_view *view, struct gb_error *err) {
    struct gb_walk *walk = arg;

    (void)err;
    if (gb_walk_full(walk))
        return 0;
    gb_render_event(&walk->out, NULL, walk->session.s, view);
    walk->last_id = view->id;
    return 0;
}

static int list(struct gb_walk *walk, struct gb_error *err) {
    return gb_event_list(walk->api->core, &walk->session, walk->page.after, walk->page.limit, visit, walk,
                         &walk->page.more, err);
}

enum gb_step gb_api_event_list(struct gb_http_request *request, struct gb_http_response *response,
                               struct gb_error *err) {
    return gb_reply_page(request, response, list, err);
}

enum gb_step gb_api_event_get(struct gb_http_request *request, struct gb_http_response *response,
                              struct gb_error *err) {
    struct gb_event_view view;
    struct gb_json_writer out = {0};
    struct gb_name session;
    struct gb_name event;

    if (gb_path_names(request, "event name", &session, &event, err) < 0 ||
        gb_event_get(gb_api_of(request)->core, &session, &event, &view, err) < 0)
        return GB_STEP_ERROR;
    gb_render_event(&out, NULL, session.s, &view);
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
    struct gb_name session;
    struct gb_name name;

    if (gb_path_session(request, &session, err) < 0 || gb_body_name(request, &name, err) < 0)
        return GB_STEP_ERROR;
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call)
        return GB_STEP_ERROR;
    gb_event_make(gb_api_of(request)->core, &session, &name, call);
    return gb_async_end(request, response, reply_event, 0, err);
}

enum gb_step gb_api_event_delete(struct gb_http_request *request, struct gb_http_response *response,
                                 struct gb_error *err) {
    return gb_path_call(request, response, "event name", gb_event_remove, err);
}

/* Records the event on a stream, or lets a stream wait for it. */
static enum gb_step order(struct gb_http_request *request, struct gb_http_response *response,
                          void (*fn)(struct gb_core *core, const struct gb_name *session, const struct gb_name *event,
                                     const struct gb_name *stream, struct gb_event_call *call),
                          struct gb_error *err) {
    struct gb_event_call *call;
    struct gb_name session;
    struct gb_name event;
    struct gb_name stream;

    if (gb_path_names(request, "event name", &session, &event, err) < 0 || gb_body_stream(request, &stream, err) < 0)
        return GB_STEP_ERROR;
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call)
        return GB_STEP_ERROR;
    fn(gb_api_of(request)->core, &session, &event, &stream, call);
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
