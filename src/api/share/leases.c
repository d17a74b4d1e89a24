/* /v1/leases, and the holders in problem documents. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/auth.h"
#include "api/context.h"
#include "api/list/link.h"
#include "api/middleware/async.h"
#include "api/reply/render.h"
#include "api/reply/reply_json.h"
#include "api/request/query.h"
#include "api/route.h"
#include "api/share/share.h"
#include "base/text.h"

/* The most holders that a problem document names; there may be thousands. */
#define HOLDERS_MAX 16

static void render_id(struct gb_json_writer *out, int64_t id) {
    char text[24];

    snprintf(text, sizeof(text), "%" PRId64, id);
    gb_json_put_string(out, "lease", text);
}

static void render_who(struct gb_json_writer *out, const struct gb_lease_view *view) {
    gb_json_put_u64(out, "pid", (uint64_t)view->pid);
    gb_json_put_u64(out, "uid", (uint64_t)view->uid);
    gb_json_put_time(out, "since", view->since_us);
}

/* --- all ---------------------------------------------------------------------------------------------------------- */

struct walk {
    struct gb_json_writer out;
    const char *session;   /* of this session alone; "": of all */
    struct gb_name prefix; /* of buffers with such names alone */
    unsigned left;
    int64_t seen_id; /* the last lease looked at */
    int64_t last_id; /* the last on the page */
    bool more;
};

static void render_lease(struct gb_json_writer *out, const struct gb_lease_view *view) {
    gb_json_open(out, NULL, '{');
    render_id(out, view->id);
    gb_json_put_string(out, "session", view->session.s);
    gb_json_put_string(out, "buffer", view->buffer.s);
    gb_json_put_string(out, "mode", view->write ? "write" : "read");
    gb_json_put_string(out, "way", gb_export_way_name(view->way));
    render_who(out, view);
    if (view->expires_at_us > 0)
        gb_json_put_time(out, "expires_at", view->expires_at_us);
    else
        gb_json_put_null(out, "expires_at");
    gb_json_put_i64(out, "generation", view->generation);
    gb_json_put_u64(out, "bytes", view->bytes);
    gb_json_put_string(out, "state", gb_lease_state_name(view->state));
    gb_json_close(out, '}');
}

static int visit(void *arg, const struct gb_lease_view *view, struct gb_error *err) {
    struct walk *walk = arg;

    (void)err;
    walk->seen_id = view->id;
    if ((walk->session[0] && strcmp(walk->session, view->session.s) != 0) ||
        !gb_api_has_prefix(&walk->prefix, view->buffer.s))
        return 0;
    if (walk->left == 0 || gb_render_list_full(&walk->out)) {
        walk->more = true;
        return 0;
    }
    walk->left--;
    walk->last_id = view->id;
    render_lease(&walk->out, view);
    return 0;
}

/* Walks pages of the core until one page here is full; leases that the token does not see are skipped. */
static int fill_page(struct gb_core *core, struct walk *walk, struct gb_error *err) {
    struct gb_page page = {.limit = GB_PAGE_LIMIT_MAX, .more = true};

    while (page.more && !walk->more) {
        page.after = walk->seen_id;
        if (gb_lease_list(core, &page, visit, walk, err) < 0)
            return -1;
    }
    return 0;
}

enum gb_step gb_api_lease_list(struct gb_http_request *request, struct gb_http_response *response,
                               struct gb_error *err) {
    struct walk walk = {.session = ""};
    char cursor[GB_CURSOR_SIZE];
    struct gb_name bound;
    struct gb_page page;

    if (gb_page_read(request, &page, err) < 0 || gb_api_bound(request, GB_SCOPE_VERIFY, &bound, err) < 0 ||
        gb_api_prefix(request, &walk.prefix, err) < 0)
        return GB_STEP_ERROR;
    walk.session = bound.s;
    walk.left = page.limit;
    walk.seen_id = page.after;
    gb_render_list_open(&walk.out);
    if (fill_page(gb_api_of(request)->core, &walk, err) < 0) {
        gb_json_done(&walk.out);
        return GB_STEP_ERROR;
    }
    return gb_list_reply(request, &walk.out, walk.more ? gb_cursor_text(walk.last_id, cursor) : NULL, response, err);
}

/* --- one ---------------------------------------------------------------------------------------------------------- */

static int not_found(const struct gb_http_request *request, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_LEASE_NOT_FOUND, "there is no lease \"%.40s\", or it has ended",
                        request->param[0].s);
}

static int read_id(const struct gb_http_request *request, int64_t *ret, struct gb_error *err) {
    const struct gb_http_text *text = &request->param[0];
    uint64_t id;

    if (gb_parse_u64(text->s, text->len, &id) != GB_PARSE_OK || id == 0 || id > INT64_MAX)
        return not_found(request, err);
    *ret = (int64_t)id;
    return 0;
}

static bool has(const struct gb_http_request *request, int64_t id) {
    struct gb_share *share = request->peer ? request->peer->app : NULL;

    return share && gb_share_has(share, id);
}

/* Checks that the bearer may see the lease. Scope read sees all leases of its session, or all; scope map sees those of
 * its own connection, and exports. view: NULL when there is no such lease, which a bearer of scope read is told. */
static int permit_look(const struct gb_http_request *request, const struct gb_lease_view *view, struct gb_error *err) {
    struct gb_name bound;

    if (view && view->exported && gb_api_permit(request, GB_SCOPE_MAP, view->session.s, NULL) == 0)
        return 0;
    if (gb_api_bound(request, GB_SCOPE_VERIFY, &bound, err) < 0)
        return -1;
    return view && bound.s[0] && !gb_name_equal(&bound, &view->session) ? not_found(request, err) : 0;
}

/* A lease on a buffer that the token does not reach is reported like one that does not exist. */
static int check_reach(const struct gb_http_request *request, const struct gb_lease_view *view, struct gb_error *err) {
    struct gb_name prefix;

    if (gb_api_prefix(request, &prefix, err) < 0)
        return -1;
    return gb_api_has_prefix(&prefix, view->buffer.s) ? 0 : not_found(request, err);
}

enum gb_step gb_api_lease_get(struct gb_http_request *request, struct gb_http_response *response,
                              struct gb_error *err) {
    struct gb_lease_view view;
    struct gb_json_writer out = {0};
    int64_t id = 0;
    bool there = read_id(request, &id, NULL) == 0 && gb_lease_get(gb_api_of(request)->core, id, &view, NULL) == 0;

    if ((!has(request, id) && permit_look(request, there ? &view : NULL, err) < 0) ||
        (there ? check_reach(request, &view, err) : not_found(request, err)) < 0)
        return GB_STEP_ERROR;
    render_lease(&out, &view);
    return gb_reply_json(&out, 200, response, err);
}

/* Checks that the bearer may end the lease. Another connection's lease is for administrators of its session. An export
 * belongs to no connection: a bearer that may make one may end it. A lease that the bearer may not even look at is
 * reported like one that does not exist. */
static int permit_end(const struct gb_http_request *request, int64_t id, bool *ret_outside, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    struct gb_lease_view view;
    int r;

    if (gb_lease_get(gb_api_of(request)->core, id, &view, NULL) < 0)
        return not_found(request, err);
    if (check_reach(request, &view, err) < 0)
        return -1;
    if (has(request, id))
        return 0;
    *ret_outside = !view.exported;
    r = view.exported ? gb_share_permit_export(request, view.session.s, view.write, &why)
                      : gb_api_permit(request, GB_SCOPE_ADMIN, view.session.s, &why);
    if (r < 0 && why.code == GB_ERR_FORBIDDEN && permit_look(request, &view, NULL) < 0)
        return not_found(request, err);
    return r < 0 ? gb_error_move(err, &why) : 0;
}

static enum gb_step reply_ended(struct gb_http_request *request, const void *result, struct gb_http_response *response,
                                struct gb_error *err) {
    int64_t id;

    if (request->peer && request->peer->app && read_id(request, &id, NULL) == 0)
        gb_share_remove(request->peer->app, id);
    return gb_reply_nothing(request, result, response, err);
}

enum gb_step gb_api_lease_end(struct gb_http_request *request, struct gb_http_response *response,
                              struct gb_error *err) {
    bool outside = false;
    struct gb_call *call;
    int64_t id;

    if (read_id(request, &id, err) < 0)
        return GB_STEP_ERROR;
    if (permit_end(request, id, &outside, err) < 0)
        return GB_STEP_ERROR;
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call)
        return GB_STEP_ERROR;
    gb_lease_end(gb_api_of(request)->core, id, NULL, outside, call);
    return gb_async_end(request, response, reply_ended, 0, err);
}

/* --- whom to ask -------------------------------------------------------------------------------------------------- */

struct holders {
    struct gb_locator at; /* the name: only of a request to a buffer */
    struct gb_lease_view view[HOLDERS_MAX];
    unsigned count;
    int64_t seen_id;
};

static int collect(void *arg, const struct gb_lease_view *view, struct gb_error *err) {
    struct holders *h = arg;

    (void)err;
    h->seen_id = view->id;
    if (h->count < HOLDERS_MAX && strcmp(view->session.s, h->at.session.s) == 0)
        h->view[h->count++] = *view;
    return 0;
}

static void find(const struct gb_http_request *request, struct holders *h) {
    struct gb_core *core = gb_api_of(request)->core;
    enum gb_target target = gb_route_of(request)->target;
    struct gb_page page = {.limit = GB_PAGE_LIMIT_MAX, .more = true};

    if (gb_param_name(request, 0, "session name", &h->at.session, NULL) < 0)
        return;
    if (target == GB_TARGET_SESSION) {
        while (page.more && h->count < HOLDERS_MAX && gb_lease_list(core, &page, collect, h, NULL) == 0)
            page.after = h->seen_id;
        return;
    }
    if (target == GB_TARGET_BUFFER && gb_param_name(request, 1, "buffer name", &h->at.name, NULL) == 0)
        h->count = gb_lease_holders(core, &h->at, h->view, HOLDERS_MAX);
}

void gb_api_explain(void *app, const struct gb_http_request *request, const struct gb_error *error,
                    struct gb_http_response *response) {
    struct gb_json_writer out = {.comma = true}; /* its members follow others */
    struct holders h = {.count = 0};
    unsigned i;

    (void)app;
    if (error->code != GB_ERR_MAPPED || response->problem_members || !request->route)
        return;
    find(request, &h);
    gb_json_open(&out, "holders", '[');
    for (i = 0; i < h.count; i++) {
        gb_json_open(&out, NULL, '{');
        render_id(&out, h.view[i].id);
        render_who(&out, &h.view[i]);
        gb_json_put_string(&out, "mode", h.view[i].write ? "write" : "read");
        gb_json_close(&out, '}');
    }
    gb_json_close(&out, ']');
    if (out.failed)
        gb_json_done(&out);
    else
        gb_http_response_problem(response, response->problem_type, out.s, out.used);
}
