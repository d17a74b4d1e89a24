/* POST /v1/sessions/{session}/batch: operations that are read and checked as a whole, put into waves, and run wave by
 * wave. In one wave no operation needs the commit of another: all are queued one after the other, and their changes are
 * committed at once. */
#include <jansson.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/auth.h"
#include "api/context.h"
#include "api/pipeline/conditional.h"
#include "api/pipeline/hook.h"
#include "api/reply.h"
#include "api/request/body.h"
#include "api/request/query.h"
#include "api/resources/sources.h"
#include "base/map.h"

enum gb_batch_what { GB_BATCH_CREATE, GB_BATCH_DELETE, GB_BATCH_COPY, GB_BATCH_FILL, GB_BATCH_SYNC, GB_BATCH_RELEASE };

struct gb_batch_item {
    enum gb_batch_what what;
    struct gb_name name;
    const json_t *body; /* borrowed */
    size_t wave;
    struct gb_buffer_call *call;  /* a reference once the call has begun */
    struct gb_turn *turn;         /* until the call begins */
    struct gb_error error;        /* why it could not begin */
    struct gb_copy_source source; /* of a copy */
};

/* One reference is the request's; each call under way has another. */
struct gb_batch {
    atomic_size_t refs;
    struct gb_core *core;
    struct gb_http_request *request; /* a reference */
    json_t *root;
    struct gb_name session;
    struct gb_name stream; /* "" if the batch names no stream */
    bool atomic;
    unsigned wait_ms;
    size_t count;
    struct gb_batch_item *items;

    size_t begun;          /* of all items, in order */
    size_t wave_end;       /* of the present wave */
    atomic_size_t pending; /* of the present wave, and one while it is being begun */
    struct gb_transaction_batch *transactions;
};

/* --- reading a batch ---------------------------------------------------------------------------------------------- */

/* Reads and checks a batch as a whole, and puts its operations into waves. */

static const struct {
    const char *word;
    const char *fields;
} whats[] = {
    [GB_BATCH_CREATE] = {"create", "op buffer bytes dtype shape kind pool device stream mirrored labels"},
    [GB_BATCH_DELETE] = {"delete", "op buffer"},
    [GB_BATCH_COPY] = {"copy", "op buffer " GB_COPY_FIELDS},
    [GB_BATCH_FILL] = {"fill", "op buffer " GB_FILL_FIELDS},
    [GB_BATCH_SYNC] = {"sync", "op buffer to stream"},
    [GB_BATCH_RELEASE] = {"release", "op buffer side"},
};
#define WHATS (sizeof(whats) / sizeof(whats[0]))

/* --- one operation ------------------------------------------------------------------------------------------------ */

static int read_what(struct gb_batch_item *item, struct gb_error *err) {
    const char *word = "";
    size_t i;

    if (!json_is_object(item->body))
        return gb_error_set(err, GB_ERR_WRONG_TYPE, "an operation must be an object");
    if (gb_json_string(item->body, "op", &word, err) < 0)
        return -1;
    if (gb_api_source_is_asked(item->body))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "from_url and from_file go with POST .../copy alone, and not in a batch");
    for (i = 0; i < WHATS; i++) {
        if (strcmp(word, whats[i].word) == 0) {
            item->what = (enum gb_batch_what)i;
            return gb_json_known(item->body, "the operation", whats[i].fields, err);
        }
    }
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "give 'op': create, delete, copy, fill, sync or release");
}

static int read_write(const struct gb_batch *batch, const struct gb_batch_item *item,
                      struct gb_device_write_params *params, struct gb_error *err) {
    *params = (struct gb_device_write_params){.session = batch->session,
                                              .name = item->name,
                                              .stream = batch->stream,
                                              .copy = item->what == GB_BATCH_COPY,
                                              .wait_ms = batch->wait_ms};
    if (params->copy && gb_conditions_source(item->body, params, err) < 0)
        return -1;
    return gb_action_read_write(item->body, params, err);
}

static int read_create(const struct gb_batch *batch, const struct gb_batch_item *item, struct gb_buffer_params *params,
                       struct gb_error *err) {
    *params = (struct gb_buffer_params){.dtype = GB_DTYPE_UINT8, .kind = GB_KIND_DEVICE, .stream = {"default"}};
    params->session = batch->session;
    if (batch->stream.s[0])
        params->stream = batch->stream;
    return gb_buffer_params_read(gb_api_of(batch->request), item->body, "buffer", params, err);
}

static int check_create(const struct gb_batch *batch, const struct gb_batch_item *item, struct gb_error *err) {
    struct gb_buffer_params params;
    int r = read_create(batch, item, &params, err);

    gb_text_unref(params.labels);
    return r;
}

static int read_sync(const struct gb_batch *batch, const struct gb_batch_item *item, struct gb_sides *to,
                     struct gb_name *stream, struct gb_error *err) {
    *stream = batch->stream.s[0] ? batch->stream : (struct gb_name){"default"};
    if (gb_action_read_sides(item->body, "to", false, to, err) < 0)
        return -1;
    return gb_json_name(item->body, "stream", stream, err) < 0 ? -1 : 0;
}

/* Finds the sources in other sessions of the copies of a wave, the items from `from` to `end`, all as of one moment:
 * buffers that were written as one are copied as one. Those in the batch's session came with their turns. Returns 0, or
 * -1 with SATURATED. */
static int find_sources(struct gb_batch *batch, size_t from, size_t end, struct gb_error *err) {
    struct gb_device_write_params *writes = calloc(end - from + 1, sizeof(*writes));
    size_t count = 0;
    size_t i;

    if (!writes)
        return gb_error_memory(err, "batch");
    for (i = from; i < end; i++) {
        struct gb_batch_item *item = &batch->items[i];

        if (item->what != GB_BATCH_COPY)
            continue;
        read_write(batch, item, &writes[count], NULL);
        if (!gb_name_equal(&writes[count].from_session, &batch->session))
            writes[count++].source = &item->source;
    }
    gb_copy_sources_resolve(batch->core, writes, count);
    free(writes);
    return 0;
}

/* Starts the item's call, or sets its error. */
static void batch_begin(struct gb_batch *batch, struct gb_batch_item *item) {
    struct gb_buffer_call *call = item->call;
    struct gb_buffer_params create;
    struct gb_device_write_params write;
    struct gb_sides sides;
    struct gb_name stream;
    struct gb_locator at = {batch->session, item->name};

    /* They have been read before. */
    switch (item->what) {
    case GB_BATCH_COPY:
    case GB_BATCH_FILL:
        read_write(batch, item, &write, NULL);
        write.source = write.copy ? &item->source : NULL;
        (write.share ? gb_buffer_link : gb_buffer_write)(batch->core, &write, call);
        break;
    case GB_BATCH_CREATE:
        read_create(batch, item, &create, NULL);
        gb_buffer_create(batch->core, &create, batch->wait_ms, call);
        gb_text_unref(create.labels);
        break;
    case GB_BATCH_DELETE:
        gb_buffer_delete(batch->core, &at, NULL, call);
        break;
    case GB_BATCH_SYNC:
        read_sync(batch, item, &sides, &stream, NULL);
        gb_buffer_mirror_sync(batch->core, &at, sides.host, &stream, NULL, call);
        break;
    case GB_BATCH_RELEASE:
        gb_action_read_sides(item->body, "side", true, &sides, NULL);
        gb_buffer_mirror_release(batch->core, &at, sides.host, sides.device, NULL, call);
        break;
    }
}

/* --- waves -------------------------------------------------------------------------------------------------------- */

/* The names that the present wave reads and writes. Copies and fills build on each other within a wave: the device
 * keeps their order, and their commit is one. What writes memory where it is, creates or deletes must be committed
 * before others build on it. */
struct waves {
    size_t wave;
    struct gb_map read;
    struct gb_map written;
    struct gb_map fixed;      /* written so that nothing can build on it */
    struct gb_error unloaded; /* bytes that an operation needs are not in memory yet */
};

static int note(struct gb_map *map, const struct gb_name *name, struct gb_error *err) {
    if (gb_map_put(map, name->s, (void *)name) < 0)
        return gb_error_memory(err, "batch");
    return 0;
}

/* Sides of mirrored buffers, and memory of other processes, are written where they are. */
static bool has_fixed_memory(const struct gb_batch *batch, const struct gb_name *name) {
    const struct gb_locator at = {batch->session, *name};
    struct gb_buffer_rec rec;
    bool r;

    if (gb_buffer_get(batch->core, &at, &rec, NULL) < 0)
        return false;
    r = rec.mirrored || rec.adopted;
    gb_buffer_rec_done(&rec);
    return r;
}

static void next(struct waves *w) {
    w->wave++;
    gb_map_done(&w->read);
    gb_map_done(&w->written);
    gb_map_done(&w->fixed);
    w->read = w->written = w->fixed = (struct gb_map){.slots = NULL};
}

/* from: NULL or a buffer of the session, which lives as long as the batch. writes: new bytes, which later operations
 * can build on. alone: what neither builds on earlier operations of the wave nor takes part in its commit. */
static int place(struct waves *w, struct gb_batch *batch, struct gb_batch_item *item, const struct gb_name *from,
                 bool writes, bool alone, struct gb_error *err) {
    bool fixed = alone || !writes || has_fixed_memory(batch, &item->name);
    bool clash = gb_map_get(&w->fixed, item->name.s) || (from && gb_map_get(&w->fixed, from->s)) ||
                 (fixed && from && gb_map_get(&w->written, from->s)) ||
                 (fixed && item->what != GB_BATCH_DELETE &&
                  (gb_map_get(&w->written, item->name.s) || gb_map_get(&w->read, item->name.s)));

    if (batch->atomic && (clash || alone))
        return gb_error_set(
            err, GB_ERR_INVALID_ARGUMENT,
            clash ? "in an atomic batch only copy and fill build on earlier operations, and on no deletion, no "
                    "link and no side of a mirrored buffer"
                  : "an atomic batch can neither have \"create\" nor write in place");
    if (clash)
        next(w);
    item->wave = w->wave;
    if (note(&w->written, &item->name, err) < 0 || (fixed && note(&w->fixed, &item->name, err) < 0))
        return -1;
    return from ? note(&w->read, from, err) : 0;
}

/* The route has been permitted, which needs scope write; the names are known only here. */
static int permit(const struct gb_batch *batch, const struct gb_batch_item *item,
                  const struct gb_device_write_params *write, struct gb_error *err) {
    if (gb_api_reach(batch->request, item->name.s, err) < 0)
        return -1;
    if (!write->copy)
        return 0;
    if (gb_api_permit(batch->request, GB_SCOPE_READ, write->from_session.s, err) < 0)
        return -1;
    return gb_api_reach(batch->request, write->from.s, err);
}

/* Bytes on disk that a release needs in memory are loaded before the first operation begins; the others wait for theirs
 * in their turn. err: of the first that are not there yet; whatever else is wrong with a buffer is for its operation to
 * say. */
static void want(struct gb_batch *batch, const struct gb_name *name, struct gb_error *err) {
    const struct gb_locator at = {batch->session, *name};
    struct gb_error why = GB_ERROR_INIT;
    struct gb_buffer_rec rec;

    if (gb_buffer_load(batch->core, &at, &rec, &why) == 0)
        gb_buffer_rec_done(&rec);
    else if (why.code == GB_ERR_NOT_LOADED)
        gb_error_move(err, &why);
}

static void want_source(struct gb_batch *batch, const struct gb_device_write_params *write, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;

    if (gb_buffer_link_load(batch->core, write, &why) < 0 && why.code == GB_ERR_NOT_LOADED)
        gb_error_move(err, &why);
}

static int read_item(struct waves *w, struct gb_batch *batch, struct gb_batch_item *item, struct gb_name *from,
                     struct gb_error *err) {
    struct gb_device_write_params write = {.copy = false};
    struct gb_sides sides;
    struct gb_name stream;
    int r = read_what(item, err);

    if (r == 0)
        r = gb_json_name(item->body, "buffer", &item->name, err);
    if (r == 0)
        r = gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "give 'buffer': the name of the buffer");
    if (r < 0)
        return -1;
    if (item->what == GB_BATCH_COPY || item->what == GB_BATCH_FILL)
        r = read_write(batch, item, &write, err);
    else if (item->what == GB_BATCH_CREATE)
        r = check_create(batch, item, err);
    else if (item->what == GB_BATCH_SYNC)
        r = read_sync(batch, item, &sides, &stream, err);
    else if (item->what == GB_BATCH_RELEASE)
        r = gb_action_read_sides(item->body, "side", true, &sides, err);
    if (r < 0 || permit(batch, item, &write, err) < 0)
        return -1;
    if (item->what == GB_BATCH_RELEASE)
        want(batch, &item->name, &w->unloaded);
    if (write.share)
        want_source(batch, &write, &w->unloaded);
    *from = write.from;
    return place(w, batch, item, write.copy && gb_name_equal(&write.from_session, &batch->session) ? from : NULL,
                 (item->what == GB_BATCH_COPY || item->what == GB_BATCH_FILL) && !write.share,
                 item->what == GB_BATCH_CREATE || write.in_place, err);
}

/* --- the whole batch ---------------------------------------------------------------------------------------------- */

static int read_items(struct gb_batch *batch, const json_t *list, struct gb_error *err) {
    struct gb_name *from = calloc(batch->count, sizeof(*from));
    struct gb_error why = GB_ERROR_INIT;
    struct waves w = {.wave = 0};
    size_t i;
    int r = 0;

    if (!from)
        return gb_error_memory(err, "batch");
    for (i = 0; i < batch->count && r == 0; i++) {
        batch->items[i].body = json_array_get(list, i);
        r = read_item(&w, batch, &batch->items[i], &from[i], &why);
        if (r < 0)
            gb_error_set(err, why.code, "operations[%zu]: %.280s", i, why.detail);
    }
    gb_map_done(&w.read);
    gb_map_done(&w.written);
    gb_map_done(&w.fixed);
    free(from);
    return r == 0 && w.unloaded.code != GB_OK ? gb_error_move(err, &w.unloaded) : r;
}

static int read_list(struct gb_batch *batch, struct gb_error *err) {
    const json_t *list = json_object_get(batch->root, "operations");
    uint64_t max = gb_api_of(batch->request)->limits.batch_max;

    if (!json_is_array(list))
        return gb_error_set(err, list ? GB_ERR_WRONG_TYPE : GB_ERR_INVALID_ARGUMENT,
                            "the field 'operations' must be a list of operations");
    batch->count = json_array_size(list);
    if (batch->count == 0 || batch->count > max)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "a batch has 1 to %llu operations (--max-batch), and this one %zu", (unsigned long long)max,
                            batch->count);
    batch->items = calloc(batch->count, sizeof(*batch->items));
    if (!batch->items)
        return gb_error_memory(err, "batch");
    return read_items(batch, list, err);
}

static void batch_unref(struct gb_batch *batch) {
    size_t i;

    if (atomic_fetch_sub(&batch->refs, 1) != 1)
        return;
    for (i = 0; batch->items && i < batch->count; i++) {
        if (batch->items[i].call)
            gb_call_unref(&batch->items[i].call->base);
        gb_copy_source_done(&batch->items[i].source);
    }
    gb_transaction_batch_unref(batch->transactions);
    json_decref(batch->root);
    gb_http_request_unref(batch->request);
    free(batch->items);
    free(batch);
}

/* Reads and checks the whole batch. Returns NULL with *err, which names the wrong operation. */
static struct gb_batch *batch_read(struct gb_http_request *request, struct gb_error *err) {
    struct gb_batch *batch = calloc(1, sizeof(*batch));

    if (!batch) {
        gb_error_memory(err, "batch");
        return NULL;
    }
    atomic_init(&batch->refs, 1);
    batch->core = gb_api_of(request)->core;
    batch->request = gb_http_request_ref(request);
    batch->wait_ms = gb_http_prefer_wait(request, 0, GB_ALLOC_WAIT_MAX_S, NULL) * 1000;
    if (gb_path_session(request, &batch->session, err) == 0 &&
        gb_body_object(request, "operations stream atomic", false, &batch->root, err) == 0 &&
        gb_json_name(batch->root, "stream", &batch->stream, err) >= 0 &&
        gb_json_bool(batch->root, "atomic", &batch->atomic, err) >= 0 && read_list(batch, err) == 0)
        return batch;
    batch_unref(batch);
    return NULL;
}

/* --- running a batch ---------------------------------------------------------------------------------------------- */

/* Runs the waves of a batch one after the other, and replies. */

/* Operations begun in one go; then other requests of the loop have their turn. */
#define TURN 32

static void release(struct gb_batch *batch) {
    if (atomic_fetch_sub(&batch->pending, 1) == 1)
        gb_http_wake(batch->request);
}

static void call_done(void *arg) {
    struct gb_batch *batch = arg;

    release(batch);
    batch_unref(batch);
}

/* The request has ended: operations that have begun continue, the others never begin. */
static void batch_free(void *state) {
    struct gb_batch *batch = state;
    size_t never = 0;
    size_t i;

    for (i = batch->begun; i < batch->count; i++) {
        gb_turn_free(batch->items[i].turn);
        batch->items[i].turn = NULL;
    }
    for (; batch->transactions && batch->begun < batch->wave_end; batch->begun++)
        never += batch->items[batch->begun].what != GB_BATCH_CREATE;
    if (batch->transactions)
        gb_transaction_batch_skip(batch->transactions, never);
    batch_unref(batch);
}

/* --- running a wave ----------------------------------------------------------------------------------------------- */

/* Of all operations, so that no other request comes between them. */
static int take_turns(struct gb_batch *batch, struct gb_error *err) {
    struct gb_turn_ask *asks = calloc(batch->count, sizeof(*asks));
    size_t i;

    if (!asks)
        return gb_error_memory(err, "batch");
    for (i = 0; i < batch->count; i++) {
        struct gb_batch_item *item = &batch->items[i];
        struct gb_device_write_params write;

        asks[i].buffer = item->name;
        asks[i].stream = batch->stream;
        (void)gb_json_name(item->body, "stream", &asks[i].stream, NULL);
        if (item->what != GB_BATCH_COPY)
            continue;
        read_write(batch, item, &write, NULL);
        if (gb_name_equal(&write.from_session, &batch->session)) {
            asks[i].source = write.from;
            asks[i].kept = write.share ? NULL : &item->source;
        }
    }
    gb_turns_take(batch->core, &batch->session, asks, batch->count);
    for (i = 0; i < batch->count; i++)
        batch->items[i].turn = asks[i].turn;
    free(asks);
    return 0;
}

static int next_wave(struct gb_batch *batch, const struct gb_store_mark *mark, struct gb_error *err) {
    size_t at = batch->begun;
    size_t members = 0;
    size_t i;

    for (; at < batch->count && batch->items[at].wave == batch->items[batch->begun].wave; at++)
        members += batch->items[at].what != GB_BATCH_CREATE;
    gb_transaction_batch_unref(batch->transactions);
    batch->transactions = gb_transaction_batch_new(members, batch->atomic, mark->key[0] ? mark : NULL);
    if (!batch->transactions)
        return gb_error_memory(err, "batch");
    batch->wave_end = at;
    for (i = batch->begun; i < at; i++) {
        if (batch->items[i].what != GB_BATCH_CREATE)
            gb_turn_join(batch->items[i].turn, batch->transactions);
    }
    if (find_sources(batch, batch->begun, at, err) < 0)
        return -1;
    atomic_store(&batch->pending, at - batch->begun + 1);
    return 0;
}

static void begin_one(struct gb_batch *batch, struct gb_batch_item *item) {
    bool member = item->what != GB_BATCH_CREATE;

    item->call = gb_call_new(sizeof(*item->call), call_done, batch);
    if (!item->call) {
        gb_error_set(&item->error, GB_ERR_SATURATED, "no memory for the operation; try again later");
        gb_turn_free(item->turn);
        item->turn = NULL;
        if (member)
            gb_transaction_batch_skip(batch->transactions, 1);
        release(batch);
        return;
    }
    if (member)
        gb_transaction_batch_add(batch->transactions, &item->call->base);
    else
        item->call->base.mark = gb_request_hooks_mark(batch->request);
    item->call->base.turn = item->turn;
    item->turn = NULL;
    atomic_fetch_add(&batch->refs, 1);
    batch_begin(batch, item);
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
        gb_json_put_string(&out, "op", whats[item->what].word);
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
    struct gb_batch *batch = gb_http_reply_room(request, err) < 0 ? NULL : batch_read(request, err);

    if (!batch)
        return GB_STEP_ERROR;
    gb_request_hooks_stream(request, &batch->stream);
    request->state = batch;
    request->state_free = batch_free;
    request->resume = resume;
    if (take_turns(batch, err) < 0)
        return GB_STEP_ERROR;
    return resume(request, response, err);
}
