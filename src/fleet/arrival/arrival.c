/* The buffers of an arrival. They are pulled into its stage several at a time, and again when they have changed; a link
 * is made again beside its source. fleet/move and fleet/replica call, each on its own thread. */
#include "fleet/arrival/arrival.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "fleet/arrival/owner.h"

/* --- its buffers -------------------------------------------------------------------------------------------------- */

/* Buffers that are being pulled. */
struct gb_arrival_pulling {
    struct gb_arrival_wait waits[GB_ARRIVAL_PULLS];
    struct gb_pull_call *calls[GB_ARRIVAL_PULLS]; /* NULL: the place is free */
    struct gb_arrival_item *items[GB_ARRIVAL_PULLS];
    bool lenient;
};

/* --- one buffer --------------------------------------------------------------------------------------------------- */

static void item_free(struct gb_arrival_item *item) {
    free(item->facts);
    free(item);
}

void gb_arrival_items_free(struct gb_arrival *arrival) {
    struct gb_arrival_item *item;
    size_t at = 0;

    while ((item = gb_map_next(&arrival->items, &at)))
        item_free(item);
    gb_map_done(&arrival->items);
}

static struct gb_arrival_item *item_of(struct gb_arrival *arrival, const char *name, struct gb_error *err) {
    struct gb_arrival_item *item = gb_map_get(&arrival->items, name);
    struct gb_error why = GB_ERROR_INIT;

    if (item)
        return item;
    item = calloc(1, sizeof(*item));
    if (item && gb_name_parse("buffer name", name, strlen(name), &item->name, &why) == 0 &&
        gb_map_put(&arrival->items, item->name.s, item) == 0)
        return item;
    free(item);
    gb_error_set(err, why.code != GB_OK ? GB_ERR_SOURCE_REFUSED : GB_ERR_SATURATED,
                 "no memory to bring the session, or a buffer without a name");
    return NULL;
}

/* The fields of the buffer, without its bytes and its seal. */
static char *facts_of(const json_t *record) {
    static const char *const names[] = {"labels", "dtype",      "shape", "kind",     "mirrored",
                                        "pool",   "durability", "spill", "resident", "stream"};
    json_t *facts = json_object();
    char *text;
    size_t i;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        json_object_set(facts, names[i], json_object_get(record, names[i]));
    text = json_dumps(facts, JSON_COMPACT);
    json_decref(facts);
    return text;
}

/* Why the buffer's bytes cannot be brought, or OK. */
static enum gb_code state_of(const json_t *record) {
    const char *state = gb_arrival_text(record, "state");

    if (json_is_true(json_object_get(record, "damaged")))
        return GB_ERR_CONTENT_DAMAGED;
    if (strcmp(state, "lost") == 0)
        return GB_ERR_CONTENT_LOST;
    return strcmp(state, "partial") == 0 ? GB_ERR_BUFFER_PARTIAL : GB_OK;
}

/* Memory that a process on the owner's machine uses cannot be moved. */
static int check_unused(const struct gb_arrival *arrival, const json_t *record, struct gb_error *err) {
    const char *name = gb_arrival_text(record, "name");

    if (json_integer_value(json_object_get(record, "leases")) > 0)
        return gb_error_set(err, GB_ERR_MAPPED,
                            "\"%s\" is mapped on the node \"%s\": the session is moved when that has ended", name,
                            arrival->owner.name.s);
    if (json_is_true(json_object_get(record, "adopted")))
        return gb_error_set(err, GB_ERR_ADOPTED,
                            "\"%s\" is in memory of another process on the node \"%s\": the session cannot be moved",
                            name, arrival->owner.name.s);
    return 0;
}

/* Waits for the call and drops it. The error `but` is none. */
static int end_of_call(struct gb_arrival_wait *wait, struct gb_buffer_call *call, enum gb_code but,
                       struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    int r = gb_arrival_call_wait(wait, &call->base, &why);

    gb_call_unref(&call->base);
    return r == 0 || why.code == but ? 0 : gb_error_move(err, &why);
}

static int remove_buffer(struct gb_arrival *arrival, const struct gb_name *name, struct gb_error *err) {
    struct gb_locator at = {.session = arrival->stage, .name = *name};
    struct gb_arrival_wait wait;
    struct gb_buffer_call *call = gb_arrival_call_new(arrival, sizeof(*call), &wait, err);

    if (!call)
        return -1;
    gb_buffer_delete(arrival->config.core, &at, NULL, call);
    return end_of_call(&wait, call, GB_ERR_BUFFER_NOT_FOUND, err);
}

static int seal(struct gb_arrival *arrival, struct gb_arrival_item *item, struct gb_error *err) {
    struct gb_locator at = {.session = arrival->stage, .name = item->name};
    struct gb_arrival_wait wait;
    struct gb_buffer_call *call = gb_arrival_call_new(arrival, sizeof(*call), &wait, err);
    int r;

    if (!call)
        return -1;
    gb_buffer_seal(arrival->config.core, &at, NULL, call);
    r = end_of_call(&wait, call, GB_OK, err);
    item->sealed = r == 0;
    return r;
}

/* --- pulls -------------------------------------------------------------------------------------------------------- */

struct tickets {
    struct gb_fleet *fleet;
    struct gb_name node;
    char who[GB_TICKET_WHO_MAX + 1];
};

static char *make_ticket(void *arg, const char *method, const char *path) {
    const struct tickets *tickets = arg;

    return gb_fleet_ticket_query(tickets->fleet, method, path, &tickets->node, tickets->who);
}

static int take_ticket(const struct gb_arrival *arrival, struct gb_pull_params *params, struct gb_error *err) {
    struct tickets *tickets;

    if (arrival->who[0] == '\0')
        return 0;
    tickets = calloc(1, sizeof(*tickets));
    if (!tickets)
        return gb_error_set(err, GB_ERR_SATURATED, "no memory to bring the session; try again later");
    tickets->fleet = arrival->config.fleet;
    tickets->node = arrival->owner.name;
    strcpy(tickets->who, arrival->who);
    params->ticket = (struct gb_pull_ticket){make_ticket, tickets, free};
    return 0;
}

/* The buffer that is made here. An unknown word, or a device that this node lacks, leaves the default. */
static void read_target(const struct gb_arrival *arrival, const json_t *record, struct gb_buffer_params *to) {
    const json_t *device = json_object_get(json_object_get(record, "device"), "index");
    const char *kind = gb_arrival_text(record, "kind");
    const char *pool = gb_arrival_text(record, "pool");
    const char *stream = gb_arrival_text(record, "stream");
    const char *durability = gb_arrival_text(record, "durability");
    const char *spill = gb_arrival_text(record, "spill");
    struct gb_locator at = {.session = arrival->stage};
    struct gb_stream_view in_order;
    struct gb_pool_view view;
    struct gb_device_rec rec;

    to->kind = GB_KIND_DEVICE;
    to->has_mirrored = to->mirrored = json_is_true(json_object_get(record, "mirrored"));
    if (!to->mirrored) /* else this node's device decides */
        to->has_kind = gb_kind_parse(kind, strlen(kind), &to->kind, NULL) == 0 && to->kind != GB_KIND_DEVICE;
    to->has_device = json_is_integer(device) && json_integer_value(device) >= 0 &&
                     json_integer_value(device) < INT32_MAX &&
                     gb_device_get(arrival->config.core, (int)json_integer_value(device), &rec, NULL) == 0;
    to->device = to->has_device ? (int)json_integer_value(device) : 0;
    if (gb_name_parse("pool name", pool, strlen(pool), &at.name, NULL) == 0 &&
        gb_pool_get(arrival->config.core, &at, &view, NULL) == 0 && view.rec.id != 0)
        to->pool = at.name;
    strcpy(to->stream.s, "default");
    if (gb_name_parse("stream name", stream, strlen(stream), &at.name, NULL) == 0 &&
        gb_stream_get(arrival->config.core, &at, &in_order, NULL) == 0)
        to->stream = at.name;
    to->has_durability = gb_durability_parse(durability, strlen(durability), &to->durability, NULL) == 0;
    to->has_spill = gb_spill_parse(spill, strlen(spill), &to->spill, NULL) == 0;
    to->has_resident = true;
    to->resident = json_is_true(json_object_get(record, "resident"));
}

/* Errors that pass while the owner's writers continue. */
static bool is_transient(enum gb_code code) {
    return code == GB_ERR_SOURCE_REFUSED || code == GB_ERR_SOURCE_CHANGED || code == GB_ERR_SOURCE_UNREACHABLE ||
           code == GB_ERR_SATURATED;
}

static int conclude(struct gb_arrival *arrival, size_t i, struct gb_error *err) {
    struct gb_arrival_pulling *pulling = arrival->pulling;
    struct gb_pull_call *call = pulling->calls[i];
    struct gb_arrival_item *item = pulling->items[i];
    struct gb_error why = GB_ERROR_INIT;
    int r = gb_arrival_call_wait(&pulling->waits[i], &call->written.base, &why);

    pulling->calls[i] = NULL;
    pulling->waits[i].done = false;
    arrival->pulled_bytes += call->numbers.received_bytes;
    arrival->changed_bytes += call->numbers.received_bytes;
    item->generation = r == 0 ? call->numbers.generation : 0;
    item->bytes = call->numbers.bytes;
    gb_call_unref(&call->written.base);
    if (r == 0 || (pulling->lenient && is_transient(why.code)))
        return 0;
    if (arrival->only_sealed && !gb_arrival_is_stopped(arrival)) { /* the other buffers still come */
        gb_error_set(&arrival->problem, why.code, "\"%s\": %.400s", item->name.s, why.detail);
        return 0;
    }
    return gb_error_set(err, why.code, "\"%s\": %.400s", item->name.s, why.detail);
}

/* Finds a free place, if necessary by waiting for the end of a pull. -1: that pull failed, or the arrival is
 * stopped. */
static int place(struct gb_arrival *arrival, size_t *ret, struct gb_error *err) {
    struct gb_arrival_pulling *pulling = arrival->pulling;
    size_t i;

    for (i = 0; i < GB_ARRIVAL_PULLS && pulling->calls[i]; i++)
        ;
    if (i == GB_ARRIVAL_PULLS) {
        gb_arrival_wait_any(arrival, pulling->waits, GB_ARRIVAL_PULLS);
        if (gb_arrival_is_stopped(arrival))
            return gb_arrival_stopped_error(arrival, err);
        for (i = 0; i < GB_ARRIVAL_PULLS && !pulling->waits[i].done; i++)
            ;
        if (i == GB_ARRIVAL_PULLS || conclude(arrival, i, err) < 0)
            return i == GB_ARRIVAL_PULLS ? gb_arrival_stopped_error(arrival, err) : -1;
    }
    *ret = i;
    return 0;
}

static int pull(struct gb_arrival *arrival, struct gb_arrival_item *item, const json_t *record, struct gb_error *err) {
    const char *origin = arrival->origin;
    struct gb_pull_params params = {.permitted = &origin, .permitted_count = 1};
    struct gb_arrival_pulling *pulling = arrival->pulling;
    struct gb_pull_call *call;
    size_t i = 0;

    if (gb_arrival_is_stopped(arrival))
        return gb_arrival_stopped_error(arrival, err);
    if (place(arrival, &i, err) < 0)
        return -1;
    strcpy(params.from.origin, arrival->origin);
    params.from.session = arrival->session;
    params.from.buffer = item->name;
    params.to.session = arrival->stage;
    params.to.name = item->name;
    read_target(arrival, record, &params.to);
    if (take_ticket(arrival, &params, err) < 0)
        return -1;
    call = gb_arrival_call_new(arrival, sizeof(*call), &pulling->waits[i], err);
    if (!call) {
        if (params.ticket.free_arg)
            params.ticket.free_arg(params.ticket.arg);
        return -1;
    }
    pulling->calls[i] = call;
    pulling->items[i] = item;
    arrival->bytes += (uint64_t)json_integer_value(json_object_get(record, "bytes"));
    gb_pull_start(arrival->config.pulls, &params, call);
    return 0;
}

/* --- buffers without bytes of their own --------------------------------------------------------------------------- */

static bool read_shape(const json_t *list, struct gb_shape *ret) {
    size_t i;

    if (!json_is_array(list) || json_array_size(list) > GB_DIMS_MAX)
        return false;
    for (i = 0; i < json_array_size(list); i++) {
        const json_t *dim = json_array_get(list, i);

        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return false;
        ret->dim[ret->dims++] = (uint64_t)json_integer_value(dim);
    }
    return true;
}

static int create_lost(struct gb_arrival *arrival, const struct gb_buffer_params *params, struct gb_error *err) {
    struct gb_arrival_wait wait;
    struct gb_buffer_call *call = gb_arrival_call_new(arrival, sizeof(*call), &wait, err);

    if (!call)
        return -1;
    gb_buffer_create(arrival->config.core, params, 0, call);
    return end_of_call(&wait, call, GB_ERR_BUFFER_EXISTS, err);
}

/* Makes the buffer with its fields and in the state lost. One whose fields cannot be read is left out. */
static int make_lost(struct gb_arrival *arrival, const struct gb_arrival_item *item, struct gb_error *err) {
    json_t *facts = item->facts ? json_loads(item->facts, 0, NULL) : NULL;
    const char *dtype = gb_arrival_text(facts, "dtype");
    struct gb_buffer_params params = {.session = arrival->stage, .name = item->name, .lost = true};
    int r = 0;

    if (gb_dtype_parse(dtype, strlen(dtype), &params.dtype, NULL) == 0 &&
        read_shape(json_object_get(facts, "shape"), &params.shape) &&
        gb_shape_bytes(&params.shape, params.dtype, &params.bytes, NULL) == 0) {
        read_target(arrival, facts, &params);
        params.mirrored = false;
        params.labels = gb_arrival_labels(facts);
        r = create_lost(arrival, &params, err);
        gb_text_unref(params.labels);
    }
    json_decref(facts);
    return r;
}

/* Makes the link again beside its source, which is here and sealed. */
static int link(struct gb_arrival *arrival, struct gb_arrival_item *item, struct gb_error *err) {
    struct gb_device_write_params params = {.session = arrival->stage,
                                            .name = item->name,
                                            .from_session = arrival->stage,
                                            .from = item->link,
                                            .copy = true,
                                            .share = true};
    struct gb_arrival_wait wait;
    struct gb_buffer_call *call;
    int r;

    if (remove_buffer(arrival, &item->name, err) < 0 || make_lost(arrival, item, err) < 0)
        return -1;
    call = gb_arrival_call_new(arrival, sizeof(*call), &wait, err);
    if (!call)
        return -1;
    gb_buffer_link(arrival->config.core, &params, call);
    r = end_of_call(&wait, call, GB_OK, err);
    if (r == 0) {
        item->generation = item->link_generation;
        item->link.s[0] = '\0';
    }
    return r;
}

/* A source that is not here, or has changed, is so in the next round. */
static int link_all(struct gb_arrival *arrival, bool lenient, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    struct gb_arrival_item *item;
    size_t at = 0;

    while ((item = gb_map_next(&arrival->items, &at))) {
        if (item->link.s[0] == '\0' || link(arrival, item, &why) == 0)
            continue;
        if (!lenient || gb_arrival_is_stopped(arrival))
            return gb_error_set(err, why.code, "\"%s\": %.400s", item->name.s, why.detail);
        why = GB_ERROR_INIT;
    }
    return 0;
}

/* --- the list ----------------------------------------------------------------------------------------------------- */

/* Whether the owner's bytes or fields differ from those here. */
static bool differs(const struct gb_arrival_item *item, const json_t *record, const char *facts) {
    return item->generation == 0 || !item->facts ||
           item->generation != (uint64_t)json_integer_value(json_object_get(record, "generation")) ||
           strcmp(item->facts, facts) != 0 || strcmp(item->made, gb_arrival_text(record, "created_at")) != 0;
}

/* Makes way for new bytes: deletes a buffer that is sealed here, or that was created again at the owner. */
static int clear(struct gb_arrival *arrival, struct gb_arrival_item *item, const json_t *record, struct gb_error *err) {
    bool remade = item->made[0] != '\0' && strcmp(item->made, gb_arrival_text(record, "created_at")) != 0;

    if ((item->sealed || remade) && remove_buffer(arrival, &item->name, err) < 0)
        return -1;
    if (item->generation > 0)
        arrival->bytes -= item->bytes < arrival->bytes ? item->bytes : arrival->bytes;
    item->sealed = false;
    item->generation = 0;
    snprintf(item->made, sizeof(item->made), "%s", gb_arrival_text(record, "created_at"));
    return 0;
}

/* Whether bytes_max has room for the record's bytes. */
static bool has_room(const struct gb_arrival *arrival, const struct gb_arrival_item *item, const json_t *record) {
    uint64_t others = arrival->bytes - (item->generation > 0 ? item->bytes : 0);
    uint64_t bytes = (uint64_t)json_integer_value(json_object_get(record, "bytes"));

    return others <= arrival->bytes_max && bytes <= arrival->bytes_max - others;
}

/* The owner does not have the bytes. A copy of its sealed bytes stays valid. */
static int skip(struct gb_arrival *arrival, struct gb_arrival_item *item, const json_t *record, struct gb_error *err) {
    bool same = strcmp(item->made, gb_arrival_text(record, "created_at")) == 0;
    int r;

    if (item->generation == 0 || (arrival->only_sealed && item->to_seal && same))
        return 0;
    r = remove_buffer(arrival, &item->name, err);
    item->generation = 0;
    item->sealed = false;
    return r;
}

/* Returns 1 if the buffer is to be pulled. Of other buffers only the name and the fields are kept. */
static int check_sealed(struct gb_arrival *arrival, struct gb_arrival_item *item, const json_t *record,
                        struct gb_error *err) {
    bool is_there = item->generation > 0 && item->to_seal && item->sealed &&
                    strcmp(item->made, gb_arrival_text(record, "created_at")) == 0;

    if (item->to_seal && (is_there || has_room(arrival, item, record)))
        return 1;
    if (item->to_seal)
        gb_error_set(&arrival->problem, GB_ERR_QUOTA_EXCEEDED,
                     "\"%s\" has no room beside the copies that this node keeps (--fleet-replica-bytes)", item->name.s);
    free(item->facts);
    item->facts = facts_of(record);
    return clear(arrival, item, record, err);
}

/* Whether the buffer is to be a link once its source is here. */
static bool take_link(struct gb_arrival_item *item, const json_t *record) {
    const char *link = gb_arrival_text(record, "link");

    item->link.s[0] = '\0';
    item->bytes = 0;
    item->link_generation = (uint64_t)json_integer_value(json_object_get(record, "generation"));
    return link[0] != '\0' && gb_name_parse("buffer name", link, strlen(link), &item->link, NULL) == 0;
}

static int bring_item(struct gb_arrival *arrival, const json_t *record, struct gb_error *err) {
    struct gb_arrival_item *item = item_of(arrival, gb_arrival_text(record, "name"), err);
    char *facts;
    int r = 1;

    if (!item || (!arrival->only_sealed && check_unused(arrival, record, err) < 0))
        return -1;
    item->round = arrival->round;
    item->to_seal = json_is_true(json_object_get(record, "sealed"));
    item->skipped = state_of(record);
    if (item->skipped != GB_OK)
        return skip(arrival, item, record, err);
    if (arrival->only_sealed)
        r = check_sealed(arrival, item, record, err);
    if (r <= 0)
        return r;
    r = 0;
    facts = facts_of(record);
    if (!facts)
        return gb_error_set(err, GB_ERR_SATURATED, "no memory to bring the session; try again later");
    if (differs(item, record, facts)) {
        r = clear(arrival, item, record, err);
        if (r == 0 && !take_link(item, record))
            r = pull(arrival, item, record, err);
    }
    free(item->facts);
    item->facts = facts;
    return r;
}

/* Seals the buffers whose bytes are here. */
static int seal_all(struct gb_arrival *arrival, struct gb_error *err) {
    struct gb_arrival_item *item;
    size_t at = 0;

    while ((item = gb_map_next(&arrival->items, &at)))
        if (item->to_seal && !item->sealed && item->generation > 0 && seal(arrival, item, err) < 0)
            return -1;
    return 0;
}

/* Drops buffers that the owner no longer has. */
static int drop_gone(struct gb_arrival *arrival, struct gb_error *err) {
    struct gb_arrival_item *item;
    size_t at = 0;

    while ((item = gb_map_next(&arrival->items, &at))) {
        if (item->round == arrival->round)
            continue;
        if (item->generation > 0 && remove_buffer(arrival, &item->name, err) < 0)
            return -1;
        gb_map_take(&arrival->items, item->name.s);
        item_free(item);
    }
    return 0;
}

static int conclude_all(struct gb_arrival *arrival, bool failed, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    size_t i;
    int r = failed ? -1 : 0;

    for (i = 0; i < GB_ARRIVAL_PULLS; i++) {
        if (!arrival->pulling->calls[i])
            continue;
        if (r < 0)
            (void)gb_call_cancel(&arrival->pulling->calls[i]->written.base, true);
        if (conclude(arrival, i, &why) < 0 && r == 0)
            r = gb_error_move(err, &why);
        why = GB_ERROR_INIT;
    }
    return r;
}

static void count(struct gb_arrival *arrival) {
    const struct gb_arrival_item *item;
    size_t at = 0;

    arrival->bytes = arrival->here = 0;
    while ((item = gb_map_next(&arrival->items, &at))) {
        arrival->here += item->generation > 0;
        arrival->bytes += item->generation > 0 ? item->bytes : 0;
    }
}

int gb_arrival_bring(struct gb_arrival *arrival, bool lenient, struct gb_error *err) {
    struct gb_arrival_pulling pulling = {.lenient = lenient};
    int r;

    arrival->round++;
    arrival->changed_bytes = 0;
    arrival->problem = GB_ERROR_INIT;
    arrival->pulling = &pulling;
    r = gb_arrival_each(arrival, "buffers", bring_item, err);
    r = conclude_all(arrival, r < 0, err);
    arrival->pulling = NULL;
    if (r == 0)
        r = drop_gone(arrival, err);
    if (r == 0)
        r = seal_all(arrival, err);
    if (r == 0)
        r = link_all(arrival, lenient, err);
    count(arrival);
    return r;
}

/* --- buffers whose bytes stayed at the owner ---------------------------------------------------------------------- */

int gb_arrival_mark_lost(struct gb_arrival *arrival, struct gb_error *err) {
    const struct gb_arrival_item *item;
    size_t at = 0;

    while ((item = gb_map_next(&arrival->items, &at)))
        if (item->generation == 0 && make_lost(arrival, item, err) < 0)
            return -1;
    return 0;
}

/* --- making and freeing ------------------------------------------------------------------------------------------- */

void gb_arrival_init(struct gb_arrival *arrival, const struct gb_arrival_config *config, const struct gb_name *session,
                     const char *who) {
    *arrival = (struct gb_arrival){.config = *config, .session = *session, .bytes_max = UINT64_MAX};
    snprintf(arrival->who, sizeof(arrival->who), "%s", who);
    pthread_mutex_init(&arrival->lock, NULL);
    gb_cond_init(&arrival->woken);
}

void gb_arrival_done(struct gb_arrival *arrival) {
    gb_arrival_items_free(arrival);
    free(arrival->described);
    pthread_cond_destroy(&arrival->woken);
    pthread_mutex_destroy(&arrival->lock);
}

bool gb_arrival_stop(struct gb_arrival *arrival, enum gb_code why, bool act) {
    bool r;

    pthread_mutex_lock(&arrival->lock);
    r = why == GB_ERR_DRAINING || !arrival->decides;
    if (r && act) {
        arrival->why = arrival->stopped ? arrival->why : why;
        arrival->stopped = true;
        pthread_cond_broadcast(&arrival->woken);
    }
    pthread_mutex_unlock(&arrival->lock);
    return r;
}
