/* Runs the waves of a batch one after the other, and replies. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/context.h"
#include "api/middleware/hook.h"
#include "api/reply/render.h"
#include "api/reply/reply_json.h"
#include "api/route.h"
#include "api/transfer/batch.h"

/* Operations begun in one go; then other requests of the loop have their turn. */
#define TURN 32

static void release(struct gb_batch *batch) {
    if (atomic_fetch_sub(&batch->pending, 1) == 1)
        gb_http_wake(batch->request);
}

static void call_done(void *arg) {
    struct gb_batch *batch = arg;

    release(batch);
    gb_batch_unref(batch);
}

/* The request is over: operations that have begun go on, the others never begin. */
static void batch_free(void *state) {
    struct gb_batch *batch = state;
    size_t never = 0;

    for (; batch->transactions && batch->begun < batch->wave_end; batch->begun++)
        never += batch->items[batch->begun].what != GB_BATCH_CREATE;
    if (batch->transactions)
        gb_transaction_batch_skip(batch->transactions, never);
    gb_batch_unref(batch);
}

/* --- waves -------------------------------------------------------------------------------------------------------- */

static int next_wave(struct gb_batch *batch, const struct gb_store_mark *mark, struct gb_error *err) {
    size_t at = batch->begun;
    size_t members = 0;

    for (; at < batch->count && batch->items[at].wave == batch->items[batch->begun].wave; at++)
        members += batch->items[at].what != GB_BATCH_CREATE;
    if (gb_batch_look(batch, batch->begun, at, err) < 0)
        return -1;
    gb_transaction_batch_unref(batch->transactions);
    batch->transactions = gb_transaction_batch_new(members, batch->atomic, mark->key[0] ? mark : NULL);
    if (!batch->transactions)
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for the batch; try again later");
    batch->wave_end = at;
    atomic_store(&batch->pending, at - batch->begun + 1);
    return 0;
}

static void begin_one(struct gb_batch *batch, struct gb_batch_item *item) {
    bool member = item->what != GB_BATCH_CREATE;

    item->call = gb_call_new(sizeof(*item->call), call_done, batch);
    if (!item->call) {
        gb_error_set(&item->error, GB_ERR_SATURATED, "no memory for the operation; try again later");
        if (member)
            gb_transaction_batch_skip(batch->transactions, 1);
        release(batch);
        return;
    }
    if (member)
        gb_transaction_batch_add(batch->transactions, &item->call->base);
    else
        item->call->base.mark = gb_request_hooks_mark(batch->request);
    atomic_fetch_add(&batch->refs, 1);
    gb_batch_begin(batch, item);
}

/* Returns true when all of the wave have begun. */
static bool begin_some(struct gb_batch *batch) {
    size_t end = batch->begun + TURN < batch->wave_end ? batch->begun + TURN : batch->wave_end;

    while (batch->begun < end)
        begin_one(batch, &batch->items[batch->begun++]);
    if (batch->begun < batch->wave_end) {
        gb_http_wake(batch->request);
        return false;
    }
    return true;
}

/* --- the reply ---------------------------------------------------------------------------------------------------- */

static const struct gb_error *error_of(const struct gb_batch_item *item) {
    return item->call ? &item->call->base.error : &item->error;
}

static int status_of(const struct gb_batch_item *item) {
    const struct gb_error *error = error_of(item);

    if (error->code != GB_OK)
        return gb_code_status(error->code);
    return item->what == GB_BATCH_DELETE ? 204 : item->call->created ? 201 : 200;
}

static void render_result(struct gb_json_writer *out, const struct gb_batch *batch, const struct gb_batch_item *item) {
    const struct gb_buffer_call *call = item->call;

    if (item->what == GB_BATCH_DELETE || error_of(item)->code != GB_OK) {
        gb_json_put_null(out, "result");
        return;
    }
    gb_json_open(out, "result", '{');
    gb_render_buffer_members(out, gb_api_of(batch->request), batch->session.s, &call->buffer);
    if (item->what == GB_BATCH_SYNC)
        gb_json_put_bool(out, "copied", call->copied);
    if (item->what == GB_BATCH_SYNC || item->what == GB_BATCH_COPY)
        gb_json_put_string(out, "way", gb_copy_way_name(call->way));
    gb_json_close(out, '}');
}

static void render_problem(struct gb_json_writer *out, const struct gb_batch *batch, const struct gb_batch_item *item) {
    const struct gb_error *error = error_of(item);
    struct gb_http_response scratch = {.status = 200};
    char *text;

    if (error->code == GB_OK) {
        gb_json_put_null(out, "problem");
        return;
    }
    gb_http_problem(&scratch, batch->request, error);
    text = scratch.body ? strndup(scratch.body, scratch.body_len - 1) : NULL; /* without its newline */
    if (text)
        gb_json_put_raw(out, "problem", text);
    out->failed = out->failed || !text;
    free(text);
    gb_http_response_done(&scratch);
}

static enum gb_step reply(struct gb_batch *batch, struct gb_http_response *response, struct gb_error *err) {
    struct gb_json_writer out = {0};
    size_t done = 0;
    size_t i;

    gb_json_open(&out, NULL, '{');
    gb_json_open(&out, "results", '[');
    for (i = 0; i < batch->count; i++) {
        const struct gb_batch_item *item = &batch->items[i];

        done += error_of(item)->code == GB_OK;
        gb_json_open(&out, NULL, '{');
        gb_json_put_string(&out, "op", gb_batch_word(item->what));
        gb_json_put_string(&out, "buffer", item->name.s);
        gb_json_put_u64(&out, "status", (uint64_t)status_of(item));
        render_result(&out, batch, item);
        render_problem(&out, batch, item);
        gb_json_close(&out, '}');
    }
    gb_json_close(&out, ']');
    gb_json_put_u64(&out, "done", done);
    gb_json_put_u64(&out, "failed", batch->count - done);
    gb_json_close(&out, '}');
    return gb_reply_json(&out, 200, response, err);
}

/* The failure that kept the other operations of an atomic batch back. */
static int refuse(const struct gb_batch *batch, struct gb_error *err) {
    const struct gb_error *error;
    size_t first = batch->count;
    size_t i;

    for (i = 0; i < batch->count; i++) {
        error = error_of(&batch->items[i]);
        if (error->code != GB_OK && (first == batch->count || error_of(&batch->items[first])->code == GB_ERR_CANCELLED))
            first = i;
    }
    if (first == batch->count)
        return 0;
    error = error_of(&batch->items[first]);
    *err = *error;
    snprintf(err->detail, sizeof(err->detail), "operations[%zu]: %.250s; nothing was changed", first, error->detail);
    return -1;
}

/* --- the handler -------------------------------------------------------------------------------------------------- */

static enum gb_step resume(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct gb_batch *batch = request->state;
    struct gb_store_mark mark;

    if (request->timed_out) {
        gb_error_set(err, GB_ERR_TIMED_OUT,
                     "%zu of %zu operations were begun, and not all of them have ended in the permitted time; what has "
                     "begun goes on",
                     batch->begun, batch->count);
        return GB_STEP_ERROR;
    }
    for (;;) {
        if (batch->begun < batch->wave_end) {
            if (!begin_some(batch))
                return GB_STEP_WAIT;
            release(batch);
        }
        if (atomic_load(&batch->pending) > 0)
            return GB_STEP_WAIT;
        if (batch->begun == batch->count)
            break;
        mark = gb_request_hooks_mark(request);
        if (next_wave(batch, &mark, err) < 0)
            return GB_STEP_ERROR;
    }
    if (batch->atomic && refuse(batch, err) < 0)
        return GB_STEP_ERROR;
    gb_request_hooks_done(request);
    return reply(batch, response, err);
}

enum gb_step gb_api_batch(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct gb_batch *batch = gb_http_reply_room(request, err) < 0 ? NULL : gb_batch_read(request, err);

    if (!batch)
        return GB_STEP_ERROR;
    gb_request_hooks_stream(request, &batch->stream);
    request->state = batch;
    request->state_free = batch_free;
    request->resume = resume;
    return resume(request, response, err);
}
