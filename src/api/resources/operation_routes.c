/* /v1/operations */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/auth.h"
#include "api/context.h"
#include "api/list/link.h"
#include "api/middleware/conditional.h"
#include "api/middleware/operations.h"
#include "api/reply/render.h"
#include "api/reply/reply_json.h"
#include "api/request/query.h"
#include "api/route.h"
#include "base/clock.h"

/* The longest wait for the end of an operation. */
#define WAIT_MAX_S 3600

/* A token with a prefix sees only the operations that it asked for: what others are about is not told by a name alone.
 * Returns 1 with its id, 0 when all are seen, or -1. */
static int only_own(const struct gb_http_request *request, int64_t *ret_token, struct gb_error *err) {
    struct gb_name prefix;

    if (gb_api_prefix(request, &prefix, err) < 0)
        return -1;
    if (prefix.s[0] == '\0')
        return 0;
    return gb_api_bearer(request, ret_token, err) < 0 ? -1 : 1;
}

static int may_see(const struct gb_http_request *request, const struct gb_operation *op, enum gb_scope scope,
                   struct gb_error *err) {
    int64_t token = 0;
    int own = only_own(request, &token, err);

    if (own < 0 || gb_api_permit(request, scope, op->session.s, err) < 0)
        return -1;
    return own == 0 || op->token == token ? 0 : gb_error_set(err, GB_ERR_FORBIDDEN, "another token asked for it");
}

/* Finds the operation of the path, as far as the bearer may see it. */
static struct gb_operation *find(const struct gb_http_request *request, enum gb_scope scope, struct gb_error *err) {
    struct gb_api *api = gb_api_of(request);
    struct gb_operation *op = gb_operation_find(api->operations, request->param[0].s, err);
    struct gb_error why = GB_ERROR_INIT;

    if (!op || may_see(request, op, scope, &why) == 0)
        return op;
    gb_operation_unref(api->operations, op);
    /* An operation of another session is reported like one that does not exist. */
    if (why.code == GB_ERR_FORBIDDEN)
        gb_operation_not_found(api->operations, request->param[0].s, err);
    else
        *err = why;
    return NULL;
}

static enum gb_step reply(struct gb_http_request *request, struct gb_operation *op, struct gb_http_response *response,
                          struct gb_error *err) {
    struct gb_api *api = gb_api_of(request);
    struct gb_json_writer out = {0};
    char tag[64];
    int r;

    snprintf(tag, sizeof(tag), "o%s-%s", op->id,
             gb_operation_state_name(gb_operation_render(api->operations, op, &out)));
    r = request->method > GB_HTTP_HEAD ? 1 : gb_conditions_get(request, tag, response, err);
    if (r > 0)
        return gb_reply_json(&out, 200, response, err);
    gb_json_done(&out);
    return r < 0 ? GB_STEP_ERROR : GB_STEP_REPLY;
}

/* --- one ---------------------------------------------------------------------------------------------------------- */

static void waiter_free(void *arg) {
    struct gb_operation_waiter *w = arg;
    struct gb_operations *ops = gb_api_of(w->request)->operations;

    gb_operation_wait_end(ops, w);
    gb_operation_unref(ops, w->op);
    free(w);
}

static enum gb_step resume(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct gb_operation_waiter *w = request->state;

    if (!request->timed_out && !gb_operation_ended(gb_api_of(request)->operations, w->op))
        return GB_STEP_WAIT;
    return reply(request, w->op, response, err);
}

/* Waits for the end. Takes the reference to op. */
static enum gb_step wait(struct gb_http_request *request, struct gb_operation *op, unsigned wait_s,
                         struct gb_http_response *response, struct gb_error *err) {
    struct gb_operation_waiter *w = calloc(1, sizeof(*w));
    struct gb_operations *ops = gb_api_of(request)->operations;

    if (!w) {
        gb_operation_unref(ops, op);
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
        return GB_STEP_ERROR;
    }
    w->op = op;
    w->request = request;
    request->state = w;
    request->state_free = waiter_free;
    request->resume = resume;
    request->deadline_ns = gb_clock_ns() + wait_s * GB_NS_PER_S;
    request->park = true;
    gb_operation_wait(ops, w);
    return resume(request, response, err);
}

enum gb_step gb_api_operation_get(struct gb_http_request *request, struct gb_http_response *response,
                                  struct gb_error *err) {
    struct gb_operations *ops = gb_api_of(request)->operations;
    struct gb_operation *op = find(request, GB_SCOPE_VERIFY, err);
    unsigned wait_s = gb_http_prefer_wait(request, 0, WAIT_MAX_S, NULL);
    enum gb_step step;

    if (!op)
        return GB_STEP_ERROR;
    if (wait_s > 0 && !gb_operation_ended(ops, op))
        return wait(request, op, wait_s, response, err);
    step = reply(request, op, response, err);
    gb_operation_unref(ops, op);
    return step;
}

enum gb_step gb_api_operation_cancel(struct gb_http_request *request, struct gb_http_response *response,
                                     struct gb_error *err) {
    struct gb_operations *ops = gb_api_of(request)->operations;
    struct gb_operation *op = find(request, GB_SCOPE_WRITE, err);
    enum gb_step step = GB_STEP_ERROR;

    if (!op)
        return step;
    if (gb_operation_cancel(ops, op, err) == 0)
        step = reply(request, op, response, err);
    gb_operation_unref(ops, op);
    return step;
}

/* --- all ---------------------------------------------------------------------------------------------------------- */

static int read_state(const struct gb_http_request *request, struct gb_operation_filter *filter, struct gb_error *err) {
    const struct gb_http_text *state = gb_http_query(request, "state");

    filter->has_state = state != NULL;
    if (state && (strlen(state->s) != state->len || !gb_operation_state_parse(state->s, &filter->state)))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "state must be queued, running, done, failed or cancelled");
    return 0;
}

enum gb_step gb_api_operation_list(struct gb_http_request *request, struct gb_http_response *response,
                                   struct gb_error *err) {
    struct gb_api *api = gb_api_of(request);
    struct gb_operation_filter filter = {.session = NULL};
    struct gb_name session;
    struct gb_name bound;
    struct gb_page page;
    struct gb_json_writer out = {0};
    char cursor[GB_CURSOR_SIZE];
    int64_t last = 0;
    int own;
    int r = gb_query_name(request, "session", &session, err);

    if (r < 0 || read_state(request, &filter, err) < 0 || gb_page_read(request, &page, err) < 0 ||
        gb_api_bound(request, GB_SCOPE_VERIFY, &bound, err) < 0)
        return GB_STEP_ERROR;
    own = only_own(request, &filter.token, err);
    if (own < 0 || (r > 0 && gb_api_permit(request, GB_SCOPE_VERIFY, session.s, err) < 0))
        return GB_STEP_ERROR;
    filter.has_token = own > 0;
    if (r > 0)
        filter.session = session.s;
    else if (bound.s[0])
        filter.session = bound.s;
    gb_render_list_open(&out);
    gb_operations_list(api->operations, &filter, &page, &out, &last);
    return gb_list_reply(request, &out, page.more ? gb_cursor_text(last, cursor) : NULL, response, err);
}
