#include "api/reply/page.h"

#include "api/auth.h"
#include "api/context.h"
#include "api/reply/render.h"
#include "api/reply/reply_json.h"
#include "api/request/query.h"
#include "api/route.h"

bool gb_walk_full(struct gb_walk *walk) {
    walk->full = gb_render_list_full(&walk->out);
    return walk->full;
}

bool gb_walk_takes(struct gb_walk *walk, int64_t id, const char *buffer) {
    bool takes = gb_api_has_prefix(&walk->prefix, buffer);

    walk->last_id = id;
    walk->items += takes;
    walk->left_out = walk->left_out || !takes;
    return takes;
}

/* A page is never empty while something follows. */
static int fill(struct gb_walk *walk, int (*list)(struct gb_walk *walk, struct gb_error *err), struct gb_error *err) {
    int r;

    do {
        walk->page.more = false;
        r = list(walk, err);
        walk->page.after = walk->last_id;
    } while (r == 0 && walk->left_out && walk->items == 0 && walk->page.more);
    return r;
}

enum gb_step gb_reply_page(struct gb_http_request *request, struct gb_http_response *response,
                           int (*list)(struct gb_walk *walk, struct gb_error *err), struct gb_error *err) {
    struct gb_walk walk = {.api = gb_api_of(request)};

    if (gb_route_of(request)->target >= GB_TARGET_SESSION &&
        gb_param_name(request, 0, "session name", &walk.session, err) < 0)
        return GB_STEP_ERROR;
    if (gb_page_read(request, &walk.page, err) < 0 || gb_api_prefix(request, &walk.prefix, err) < 0)
        return GB_STEP_ERROR;
    gb_render_list_open(&walk.out);
    if (fill(&walk, list, err) < 0) {
        gb_json_done(&walk.out);
        return GB_STEP_ERROR;
    }
    gb_render_list_close(&walk.out, walk.page.more || walk.full, walk.last_id);
    return gb_reply_json(&walk.out, 200, response, err);
}
