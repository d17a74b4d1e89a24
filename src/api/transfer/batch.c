/* Reads and checks a batch as a whole, and puts its operations into waves. */
#include "api/transfer/batch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/auth.h"
#include "api/context.h"
#include "api/middleware/conditional.h"
#include "api/request/actions.h"
#include "api/request/body.h"
#include "api/request/buffer_fields.h"
#include "api/request/json.h"
#include "api/request/path_params.h"
#include "api/request/wait.h"
#include "base/map.h"

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

const char *gb_batch_word(enum gb_batch_what what) {
    return whats[what].word;
}

/* --- one operation ------------------------------------------------------------------------------------------------ */

static int read_what(struct gb_batch_item *item, struct gb_error *err) {
    const char *word = "";
    size_t i;

    if (!json_is_object(item->body))
        return gb_error_set(err, GB_ERR_WRONG_TYPE, "an operation must be an object");
    if (gb_json_string(item->body, "op", &word, err) < 0)
        return -1;
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
    if (params->copy && gb_conditions_source(item->body, &params->from_check, err) < 0)
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

int gb_batch_look(struct gb_batch *batch, size_t from, size_t end, struct gb_error *err) {
    struct gb_device_write_params *writes = calloc(end - from + 1, sizeof(*writes));
    size_t count = 0;
    size_t i;

    if (!writes)
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for the batch; try again later");
    for (i = from; i < end; i++) {
        struct gb_batch_item *item = &batch->items[i];

        if (item->what != GB_BATCH_COPY)
            continue;
        read_write(batch, item, &writes[count], NULL);
        writes[count++].source = &item->source;
    }
    gb_copy_sources_look(batch->core, writes, count);
    free(writes);
    return 0;
}

void gb_batch_begin(struct gb_batch *batch, struct gb_batch_item *item) {
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
        gb_buffer_write(batch->core, &write, call);
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

/* The names that the present wave reads and writes. */
struct waves {
    size_t wave;
    struct gb_map read;
    struct gb_map written;
    struct gb_error unloaded; /* bytes that an operation needs are not in memory yet */
};

static int note(struct gb_map *map, const struct gb_name *name, struct gb_error *err) {
    if (gb_map_put(map, name->s, (void *)name) < 0)
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for the batch; try again later");
    return 0;
}

/* from: NULL or a buffer of the session, which lives as long as the batch. */
static int place(struct waves *w, struct gb_batch *batch, struct gb_batch_item *item, const struct gb_name *from,
                 bool alone, struct gb_error *err) {
    bool clash = gb_map_get(&w->written, item->name.s) || gb_map_get(&w->read, item->name.s) ||
                 (from && gb_map_get(&w->written, from->s));

    if (batch->atomic && (clash || alone))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            clash ? "an atomic batch names a buffer once, and this needs an earlier operation's"
                                  : "an atomic batch can neither have \"create\" nor write in place");
    if (clash) {
        w->wave++;
        gb_map_done(&w->read);
        gb_map_done(&w->written);
        w->read = w->written = (struct gb_map){.slots = NULL};
    }
    item->wave = w->wave;
    if (note(&w->written, &item->name, err) < 0)
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

/* Bytes on disk that an operation needs in memory are loaded before the first operation begins. err: of the first that
 * are not there yet; whatever else is wrong with a buffer is for its operation to say. */
static void want(struct gb_batch *batch, const struct gb_name *session, const struct gb_name *name,
                 struct gb_error *err) {
    const struct gb_locator at = {*session, *name};
    struct gb_error why = GB_ERROR_INIT;
    struct gb_buffer_rec rec;

    if (gb_buffer_load(batch->core, &at, &rec, &why) == 0)
        gb_buffer_rec_done(&rec);
    else if (why.code == GB_ERR_NOT_LOADED)
        gb_error_move(err, &why);
}

static void want_all(struct gb_batch *batch, const struct gb_batch_item *item,
                     const struct gb_device_write_params *write, struct gb_error *err) {
    bool part = write->has_bytes || write->offset > 0;

    if (write->copy)
        want(batch, &write->from_session, &write->from, err);
    /* Of a copy it is not known yet whether it fills all of the buffer. */
    if (part || write->copy || item->what == GB_BATCH_SYNC || item->what == GB_BATCH_RELEASE)
        want(batch, &batch->session, &item->name, err);
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
    want_all(batch, item, &write, &w->unloaded);
    *from = write.from;
    return place(w, batch, item, write.copy && gb_name_equal(&write.from_session, &batch->session) ? from : NULL,
                 item->what == GB_BATCH_CREATE || write.in_place, err);
}

/* --- all of it ---------------------------------------------------------------------------------------------------- */

static int read_items(struct gb_batch *batch, const json_t *list, struct gb_error *err) {
    struct gb_name *from = calloc(batch->count, sizeof(*from));
    struct gb_error why = GB_ERROR_INIT;
    struct waves w = {.wave = 0};
    size_t i;
    int r = 0;

    if (!from)
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for the batch; try again later");
    for (i = 0; i < batch->count && r == 0; i++) {
        batch->items[i].body = json_array_get(list, i);
        r = read_item(&w, batch, &batch->items[i], &from[i], &why);
        if (r < 0)
            gb_error_set(err, why.code, "operations[%zu]: %.280s", i, why.detail);
    }
    gb_map_done(&w.read);
    gb_map_done(&w.written);
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
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for the batch; try again later");
    return read_items(batch, list, err);
}

struct gb_batch *gb_batch_read(struct gb_http_request *request, struct gb_error *err) {
    struct gb_batch *batch = calloc(1, sizeof(*batch));

    if (!batch) {
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the batch; try again later");
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
    gb_batch_unref(batch);
    return NULL;
}

void gb_batch_unref(struct gb_batch *batch) {
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
