/* Questions about the table of operations: records, lists, waits, cancellation. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/limits.h"
#include "api/middleware/operations.h"
#include "api/reply/render.h"
#include "base/clock.h"

static const char *const state_names[GB_OPERATION_STATES] = {"queued", "running", "done", "failed", "cancelled"};

const char *gb_operation_state_name(enum gb_operation_state state) {
    return state_names[state];
}

bool gb_operation_state_parse(const char *text, enum gb_operation_state *ret) {
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

static void time_or_null(struct gb_json_writer *out, const char *key, int64_t us) {
    if (us > 0)
        gb_json_put_time(out, key, us);
    else
        gb_json_put_null(out, key);
}

static void name_or_null(struct gb_json_writer *out, const char *key, const char *name) {
    if (name[0])
        gb_json_put_string(out, key, name);
    else
        gb_json_put_null(out, key);
}

static void reply_or_null(struct gb_json_writer *out, const char *key, const struct gb_operation *op, bool wanted) {
    if (wanted && op->reply)
        gb_json_put_raw(out, key, op->reply);
    else
        gb_json_put_null(out, key);
}

static enum gb_operation_state render_locked(struct gb_operations *ops, struct gb_operation *op, bool whole,
                                             struct gb_json_writer *out) {
    enum gb_operation_state state = state_locked(op);

    gb_json_open(out, NULL, '{');
    gb_json_put_string(out, "id", op->id);
    gb_json_put_string(out, "kind", op->kind);
    gb_json_put_string(out, "target", op->target);
    name_or_null(out, "session", op->session.s);
    name_or_null(out, "stream", op->stream.s);
    gb_json_put_string(out, "state", state_names[state]);
    gb_json_put_time(out, "created_at", op->created_us);
    time_or_null(out, "started_at", op->started_us);
    time_or_null(out, "ended_at", op->ended_us);
    time_or_null(out, "expires_at",
                 op->ended_us > 0 ? op->ended_us + (int64_t)ops->limits->operation_ttl_s * 1000000 : 0);
    if (op->status > 0)
        gb_json_put_u64(out, "status", (uint64_t)op->status);
    else
        gb_json_put_null(out, "status");
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

void gb_operations_list(struct gb_operations *ops, const struct gb_operation_filter *filter, struct gb_page *page,
                        struct gb_json_writer *out, int64_t *ret_last) {
    struct gb_operation *op;
    unsigned n = 0;

    pthread_mutex_lock(&ops->lock);
    gb_operations_expire_locked(ops);
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
    gb_operations_expire_locked(ops);
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

bool gb_operation_wait(struct gb_operations *ops, struct gb_operation_waiter *w) {
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

void gb_operation_wait_end(struct gb_operations *ops, struct gb_operation_waiter *w) {
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

bool gb_operation_ended(struct gb_operations *ops, const struct gb_operation *op) {
    bool ended;

    pthread_mutex_lock(&ops->lock);
    ended = op->ended != GB_OPERATION_RUNNING;
    pthread_mutex_unlock(&ops->lock);
    return ended;
}
