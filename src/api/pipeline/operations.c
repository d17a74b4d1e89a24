/* Operations: requests that continue without their client, from the reserved place to the result, and /v1/operations,
 * which shows them. */
#include "api/pipeline/operations.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/auth.h"
#include "api/context.h"
#include "api/options.h"
#include "api/pipeline/conditional.h"
#include "api/pipeline/list.h"
#include "api/reply.h"
#include "api/request/query.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/thread.h"
#include "model/token.h"

/* --- the table ---------------------------------------------------------------------------------------------------- */

/* The table of operations: how an operation begins and ends. */

struct gb_operations *gb_operations_new(const struct gb_api_limits *limits) {
    struct gb_operations *ops = calloc(1, sizeof(*ops));

    if (!ops || gb_random(&ops->run, sizeof(ops->run), NULL) < 0) {
        free(ops);
        return NULL;
    }
    gb_mutex_init(&ops->lock);
    ops->limits = limits;
    return ops;
}

static void op_free(struct gb_operation *op) {
    free(op->target);
    free(op->reply);
    free(op);
}

static void unref_locked(struct gb_operation *op) {
    if (--op->refs == 0)
        op_free(op);
}

static void take_out_locked(struct gb_operations *ops, struct gb_operation *op) {
    gb_map_take(&ops->by_id, op->id);
    if (op->prev)
        op->prev->next = op->next;
    else
        ops->first = op->next;
    if (op->next)
        op->next->prev = op->prev;
    else
        ops->last = op->prev;
    unref_locked(op);
}

static void drop_oldest_locked(struct gb_operations *ops, struct gb_operation_room *room) {
    struct gb_operation *op = room->first_ended;

    room->first_ended = op->next_ended;
    if (!room->first_ended)
        room->last_ended = NULL;
    room->ended--;
    room->ended_bytes -= op->reply_len;
    take_out_locked(ops, op);
}

static void expire_locked(struct gb_operations *ops, struct gb_operation_room *room) {
    uint64_t now_ns = gb_clock_ns();

    while (room->first_ended &&
           (now_ns - room->first_ended->ended_ns >= ops->limits->operation_ttl_s * GB_NS_PER_S ||
            room->ended > ops->limits->operations_max || room->ended_bytes > GB_OPERATIONS_RESULT_BYTES_MAX))
        drop_oldest_locked(ops, room);
}

/* Drops operations that were kept long enough. Every function that reads the table does so first. */
static void operations_expire_locked(struct gb_operations *ops) {
    expire_locked(ops, &ops->reads);
    expire_locked(ops, &ops->writes);
}

void gb_operations_free(struct gb_operations *ops) {
    if (!ops)
        return;
    while (ops->first)
        take_out_locked(ops, ops->first);
    gb_map_done(&ops->by_id);
    pthread_mutex_destroy(&ops->lock);
    free(ops);
}

struct gb_operation *gb_operations_reserve(struct gb_operations *ops, bool reads, struct gb_error *err) {
    struct gb_operation *op = calloc(1, sizeof(*op));
    bool full;

    if (!op) {
        gb_error_memory(err, "operation");
        return NULL;
    }
    op->refs = 1;
    op->room = reads ? &ops->reads : &ops->writes;
    op->ended = GB_OPERATION_RUNNING;
    pthread_mutex_lock(&ops->lock);
    operations_expire_locked(ops);
    full = op->room->under_way >= ops->limits->operations_max;
    op->room->under_way += !full;
    pthread_mutex_unlock(&ops->lock);
    if (!full)
        return op;
    free(op);
    gb_error_set(err, GB_ERR_SATURATED,
                 "%" PRIu64
                 " operations that %s are under way, the permitted number (--max-operations); wait for some of them",
                 ops->limits->operations_max, reads ? "read" : "write");
    return NULL;
}

void gb_operations_give_back(struct gb_operations *ops, struct gb_operation *op) {
    pthread_mutex_lock(&ops->lock);
    op->room->under_way--;
    unref_locked(op);
    pthread_mutex_unlock(&ops->lock);
}

int gb_operation_publish(struct gb_operations *ops, struct gb_operation *op, const struct gb_http_request *request,
                         struct gb_error *err) {
    const struct gb_route *route = gb_route_of(request);
    int r;

    op->target = strndup(request->target.s, strcspn(request->target.s, "?"));
    if (!op->target)
        return gb_error_memory(err, "operation");
    op->kind = route->operation;
    (void)gb_api_bearer(request, &op->token, NULL);
    if (route->target >= GB_TARGET_SESSION)
        snprintf(op->session.s, sizeof(op->session.s), "%s", request->param[0].s);
    op->created_us = gb_wall_us();
    pthread_mutex_lock(&ops->lock);
    op->number = ++ops->last_number;
    snprintf(op->id, sizeof(op->id), "%08" PRIx32 "-%" PRId64, ops->run, op->number);
    r = gb_map_put(&ops->by_id, op->id, op);
    if (r < 0) {
        op->number = 0;
    } else {
        op->refs++;
        op->prev = ops->last;
        if (op->prev)
            op->prev->next = op;
        else
            ops->first = op;
        ops->last = op;
    }
    pthread_mutex_unlock(&ops->lock);
    return r < 0 ? gb_error_memory(err, "operation") : 0;
}

void gb_operation_attach(struct gb_operations *ops, struct gb_operation *op, struct gb_http_request *request) {
    pthread_mutex_lock(&ops->lock);
    if (op->ended == GB_OPERATION_RUNNING) {
        op->request = request;
        if (!request->cancel)
            op->started_us = op->created_us;
    }
    pthread_mutex_unlock(&ops->lock);
}

void gb_operation_offer(struct gb_operations *ops, struct gb_operation *op, struct gb_http_request *request,
                        bool (*cancel)(struct gb_http_request *request, bool act)) {
    pthread_mutex_lock(&ops->lock);
    request->cancel = cancel;
    if (cancel && op->gone != GB_OK)
        cancel(request, true);
    pthread_mutex_unlock(&ops->lock);
}

static enum gb_operation_state outcome(const struct gb_operation *op, const struct gb_error *error) {
    if (error->code == GB_OK)
        return GB_OPERATION_DONE;
    return op->cancel_said ? GB_OPERATION_CANCELLED : GB_OPERATION_FAILED;
}

static bool is_json(const struct gb_http_response *response) {
    unsigned i;

    for (i = 0; i < response->headers; i++) {
        if (strcmp(response->header[i].name, "Content-Type") == 0)
            return strstr(response->header[i].value, "json") != NULL;
    }
    return false;
}

/* Takes the body, adds a NUL and drops the newline at its end. */
static void take_reply(struct gb_operation *op, struct gb_http_response *response) {
    char *body = response->body_len > 0 && is_json(response) ? realloc(response->body, response->body_len + 1) : NULL;

    op->status = response->status;
    if (!body)
        return;
    response->body = NULL;
    body[response->body_len] = '\0';
    body[strcspn(body, "\n")] = '\0';
    op->reply = body;
    op->reply_len = response->body_len;
    response->body_len = 0;
}

void gb_operation_end(struct gb_operations *ops, struct gb_operation *op, struct gb_http_response *response,
                      const struct gb_error *error) {
    struct gb_operation_waiter *w;

    pthread_mutex_lock(&ops->lock);
    take_reply(op, response);
    op->ended = outcome(op, error);
    op->request = NULL;
    op->ended_us = gb_wall_us();
    if (op->started_us == 0 && op->ended != GB_OPERATION_CANCELLED)
        op->started_us = op->ended_us;
    op->ended_ns = gb_clock_ns();
    if (op->room->last_ended)
        op->room->last_ended->next_ended = op;
    else
        op->room->first_ended = op;
    op->room->last_ended = op;
    op->room->ended++;
    op->room->ended_bytes += op->reply_len;
    op->room->under_way--;
    for (w = op->waiters; w; w = w->next)
        gb_http_wake(w->request);
    unref_locked(op); /* the table has a reference */
    operations_expire_locked(ops);
    pthread_mutex_unlock(&ops->lock);
}

/* OPERATION_NOT_FOUND, also for one that the bearer may not see. */
static int operation_not_found(const struct gb_operations *ops, const char *id, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_OPERATION_NOT_FOUND,
                        "there is no operation \"%.40s\": ended ones are kept for %" PRIu64
                        " seconds, and none outlives the process; the resource shows what became of it",
                        id, ops->limits->operation_ttl_s);
}

struct gb_operation *gb_operation_find(struct gb_operations *ops, const char *id, struct gb_error *err) {
    struct gb_operation *op;

    pthread_mutex_lock(&ops->lock);
    operations_expire_locked(ops);
    op = gb_map_get(&ops->by_id, id);
    if (op)
        op->refs++;
    pthread_mutex_unlock(&ops->lock);
    if (!op)
        operation_not_found(ops, id, err);
    return op;
}

void gb_operation_ref(struct gb_operations *ops, struct gb_operation *op) {
    pthread_mutex_lock(&ops->lock);
    op->refs++;
    pthread_mutex_unlock(&ops->lock);
}

void gb_operation_unref(struct gb_operations *ops, struct gb_operation *op) {
    if (!op)
        return;
    pthread_mutex_lock(&ops->lock);
    unref_locked(op);
    pthread_mutex_unlock(&ops->lock);
}

/* --- questions about it ------------------------------------------------------------------------------------------- */

/* Questions about the table of operations: records, lists, waits, cancellation. */

static const char *const state_names[GB_OPERATION_STATES] = {"queued", "running", "done", "failed", "cancelled"};

const char *gb_operation_state_name(enum gb_operation_state state) {
    return state_names[state];
}

/* Returns false when there is no such state. */
static bool operation_state_parse(const char *text, enum gb_operation_state *ret) {
    int i;

    for (i = 0; i < GB_OPERATION_STATES; i++) {
        if (strcmp(text, state_names[i]) == 0) {
            *ret = (enum gb_operation_state)i;
            return true;
        }
    }
    return false;
}

static enum gb_operation_state state_locked(struct gb_operation *op) {
    struct gb_http_request *request = op->request;

    if (op->ended != GB_OPERATION_RUNNING)
        return op->ended;
    if (op->cancel_said)
        return GB_OPERATION_CANCELLED;
    if (request && request->cancel && request->cancel(request, false))
        return GB_OPERATION_QUEUED;
    if (op->started_us == 0)
        op->started_us = gb_wall_us();
    return GB_OPERATION_RUNNING;
}

static bool over(enum gb_operation_state state) {
    return state >= GB_OPERATION_DONE;
}

static void reply_or_null(struct gb_json_writer *out, const char *key, const struct gb_operation *op, bool wanted) {
    if (wanted && op->reply)
        gb_json_put_raw(out, key, op->reply);
    else
        gb_json_put_null(out, key);
}

/* How far it is, while that is known. */
static void render_progress_locked(const struct gb_operation *op, enum gb_operation_state state,
                                   struct gb_json_writer *out) {
    const struct gb_http_request *request = op->request;
    uint64_t bytes = 0;
    uint64_t total = GB_UNLIMITED;

    if (!request || !request->progress || state != GB_OPERATION_RUNNING) {
        gb_json_put_null(out, "progress");
        return;
    }
    request->progress(request, &bytes, &total);
    gb_json_open(out, "progress", '{');
    gb_json_put_u64(out, "bytes", bytes);
    if (total != GB_UNLIMITED)
        gb_json_put_u64(out, "total_bytes", total);
    else
        gb_json_put_null(out, "total_bytes");
    gb_json_close(out, '}');
}

static enum gb_operation_state render_locked(struct gb_operations *ops, struct gb_operation *op, bool whole,
                                             struct gb_json_writer *out) {
    enum gb_operation_state state = state_locked(op);

    gb_json_open(out, NULL, '{');
    gb_json_put_string(out, "id", op->id);
    gb_json_put_string(out, "kind", op->kind);
    gb_json_put_string(out, "target", op->target);
    gb_json_put_string(out, "session", op->session.s[0] ? op->session.s : NULL);
    gb_json_put_string(out, "stream", op->stream.s[0] ? op->stream.s : NULL);
    gb_json_put_string(out, "state", state_names[state]);
    gb_json_put_time(out, "created_at", op->created_us);
    gb_json_put_time_or_null(out, "started_at", op->started_us);
    gb_json_put_time_or_null(out, "ended_at", op->ended_us);
    gb_json_put_time_or_null(out, "expires_at",
                             op->ended_us > 0 ? op->ended_us + (int64_t)ops->limits->operation_ttl_s * 1000000 : 0);
    if (op->status > 0)
        gb_json_put_u64(out, "status", (uint64_t)op->status);
    else
        gb_json_put_null(out, "status");
    render_progress_locked(op, state, out);
    if (whole) {
        reply_or_null(out, "result", op, state == GB_OPERATION_DONE);
        reply_or_null(out, "problem", op, state == GB_OPERATION_FAILED);
    }
    gb_json_close(out, '}');
    return state;
}

enum gb_operation_state gb_operation_render(struct gb_operations *ops, struct gb_operation *op,
                                            struct gb_json_writer *out) {
    enum gb_operation_state state;

    pthread_mutex_lock(&ops->lock);
    state = render_locked(ops, op, true, out);
    pthread_mutex_unlock(&ops->lock);
    return state;
}

/* Writes the items of a page, without results and problems, which together may have GB_OPERATIONS_RESULT_BYTES_MAX.
 * Sets page->more. *ret_last: the number of the last item. */
static void operations_list(struct gb_operations *ops, const struct gb_operation_filter *filter, struct gb_page *page,
                            struct gb_json_writer *out, int64_t *ret_last) {
    struct gb_operation *op;
    unsigned n = 0;

    pthread_mutex_lock(&ops->lock);
    operations_expire_locked(ops);
    for (op = ops->first; op && !page->more; op = op->next) {
        if (op->number <= page->after || (filter->session && strcmp(op->session.s, filter->session) != 0) ||
            (filter->has_token && op->token != filter->token) ||
            (filter->has_state && state_locked(op) != filter->state))
            continue;
        page->more = n == page->limit || gb_render_list_full(out);
        if (page->more)
            continue;
        render_locked(ops, op, false, out);
        *ret_last = op->number;
        n++;
    }
    pthread_mutex_unlock(&ops->lock);
}

void gb_operations_count(struct gb_operations *ops, uint64_t counts[GB_OPERATION_STATES]) {
    struct gb_operation *op;

    memset(counts, 0, GB_OPERATION_STATES * sizeof(counts[0]));
    pthread_mutex_lock(&ops->lock);
    operations_expire_locked(ops);
    for (op = ops->first; op; op = op->next)
        counts[state_locked(op)]++;
    pthread_mutex_unlock(&ops->lock);
}

int gb_operation_cancel(struct gb_operations *ops, struct gb_operation *op, struct gb_error *err) {
    enum gb_operation_state state;
    bool done = false;

    pthread_mutex_lock(&ops->lock);
    state = state_locked(op);
    if (!over(state) && op->request && op->request->cancel)
        done = op->request->cancel(op->request, true);
    op->cancel_said = op->cancel_said || done;
    pthread_mutex_unlock(&ops->lock);
    if (done)
        return 0;
    if (over(state))
        return gb_error_set(err, GB_ERR_OPERATION_ENDED, "the operation has ended: it is %s", state_names[state]);
    return gb_error_set(err, GB_ERR_OPERATION_RUNNING,
                        "the operation is running: what it writes is on its way, or it has nothing to take back");
}

bool gb_operation_cancel_said(struct gb_operations *ops, const struct gb_operation *op) {
    bool said;

    pthread_mutex_lock(&ops->lock);
    said = op->cancel_said;
    pthread_mutex_unlock(&ops->lock);
    return said;
}

void gb_operations_session_gone(struct gb_operations *ops, const char *session, enum gb_code why) {
    struct gb_operation *op;

    pthread_mutex_lock(&ops->lock);
    for (op = ops->first; op; op = op->next) {
        if (strcmp(op->session.s, session) != 0 || over(state_locked(op)))
            continue;
        op->gone = why;
        if (op->request && op->request->cancel)
            op->request->cancel(op->request, true);
    }
    pthread_mutex_unlock(&ops->lock);
}

/* --- waiting ------------------------------------------------------------------------------------------------------ */

/* Has the request woken at the end of the operation; waiter->op and waiter->request are set. Returns false when the
 * operation has ended. */
static bool operation_wait(struct gb_operations *ops, struct gb_operation_waiter *w) {
    struct gb_operation *op = w->op;
    bool running;

    pthread_mutex_lock(&ops->lock);
    running = op->ended == GB_OPERATION_RUNNING;
    if (running) {
        w->prev = NULL;
        w->next = op->waiters;
        if (w->next)
            w->next->prev = w;
        op->waiters = w;
    }
    pthread_mutex_unlock(&ops->lock);
    return running;
}

static void operation_wait_end(struct gb_operations *ops, struct gb_operation_waiter *w) {
    pthread_mutex_lock(&ops->lock);
    if (w->prev)
        w->prev->next = w->next;
    else if (w->op->waiters == w)
        w->op->waiters = w->next;
    if (w->next)
        w->next->prev = w->prev;
    w->prev = w->next = NULL;
    pthread_mutex_unlock(&ops->lock);
}

static bool operation_ended(struct gb_operations *ops, const struct gb_operation *op) {
    bool ended;

    pthread_mutex_lock(&ops->lock);
    ended = op->ended != GB_OPERATION_RUNNING;
    pthread_mutex_unlock(&ops->lock);
    return ended;
}

/* --- /v1/operations ----------------------------------------------------------------------------------------------- */

/* /v1/operations */

/* The longest wait for the end of an operation. */
#define WAIT_MAX_S 3600

/* A token with a prefix sees only the operations that it asked for, because the name of another does not say which
 * buffers it concerns. Returns 1 with its id, 0 when all are seen, or -1. */
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
        operation_not_found(api->operations, request->param[0].s, err);
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

    operation_wait_end(ops, w);
    gb_operation_unref(ops, w->op);
    free(w);
}

static enum gb_step resume(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct gb_operation_waiter *w = request->state;

    if (!request->timed_out && !operation_ended(gb_api_of(request)->operations, w->op))
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
        gb_error_memory(err, "request");
        return GB_STEP_ERROR;
    }
    w->op = op;
    w->request = request;
    request->state = w;
    request->state_free = waiter_free;
    request->resume = resume;
    request->deadline_ns = gb_clock_ns() + wait_s * GB_NS_PER_S;
    request->park = true;
    operation_wait(ops, w);
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
    if (wait_s > 0 && !operation_ended(ops, op))
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
    if (state && (strlen(state->s) != state->len || !operation_state_parse(state->s, &filter->state)))
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
    operations_list(api->operations, &filter, &page, &out, &last);
    return gb_list_reply(request, &out, page.more ? gb_cursor_text(last, cursor) : NULL, response, err);
}
