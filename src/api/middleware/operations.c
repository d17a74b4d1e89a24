/* The table of operations: how an operation begins and ends. operations_ask.c has the questions about it. */
#include "api/middleware/operations.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/auth.h"
#include "api/limits.h"
#include "api/route.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/thread.h"

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

void gb_operations_expire_locked(struct gb_operations *ops) {
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
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the operation; try again later");
        return NULL;
    }
    op->refs = 1;
    op->room = reads ? &ops->reads : &ops->writes;
    op->ended = GB_OPERATION_RUNNING;
    pthread_mutex_lock(&ops->lock);
    gb_operations_expire_locked(ops);
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
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for the operation; try again later");
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
    return r < 0 ? gb_error_set(err, GB_ERR_SATURATED, "no memory for the operation; try again later") : 0;
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
    gb_operations_expire_locked(ops);
    pthread_mutex_unlock(&ops->lock);
}

int gb_operation_not_found(const struct gb_operations *ops, const char *id, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_OPERATION_NOT_FOUND,
                        "there is no operation \"%.40s\": ended ones are kept for %" PRIu64
                        " seconds, and none outlives the process; the resource shows what became of it",
                        id, ops->limits->operation_ttl_s);
}

struct gb_operation *gb_operation_find(struct gb_operations *ops, const char *id, struct gb_error *err) {
    struct gb_operation *op;

    pthread_mutex_lock(&ops->lock);
    gb_operations_expire_locked(ops);
    op = gb_map_get(&ops->by_id, id);
    if (op)
        op->refs++;
    pthread_mutex_unlock(&ops->lock);
    if (!op)
        gb_operation_not_found(ops, id, err);
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
