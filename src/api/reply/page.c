#include "api/reply/page.h"

#include "api/context.h"
#include "api/reply/render.h"
#include "api/reply/reply_json.h"
#include "api/request/query.h"
#include "api/route.h"

bool gb_walk_full(struct gb_walk *walk) {
    walk->full = gb_render_list_full(&walk->out);
    return walk->full;
}

enum gb_step gb_reply_page(struct gb_http_request *request, struct gb_http_response *response,
                           int (*list)(struct gb_walk *walk, struct gb_error *err), struct gb_error *err) {
    struct gb_walk walk = {.api = gb_api_of(request)};

    if (gb_route_of(request)->target >= GB_TARGET_SESSION &&
        gb_param_name(request, 0, "session name", &walk.session, err) < 0)
        return GB_STEP_ERROR;
    if (gb_page_read(request, &walk.page, err) < 0)
        return GB_STEP_ERROR;
    gb_render_list_open(&walk.out);
    if (list(&walk, err) < 0) {
        gb_json_done(&walk.out);
        return GB_STEP_ERROR;
    }
    gb_render_list_close(&walk.out, walk.page.more || walk.full, walk.last_id);
    return gb_reply_json(&walk.out, 200, response, err);
}
