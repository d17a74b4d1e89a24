/* The buffers of a session that arrives: those of the owner's list are pulled, several at a time, and again when they
 * have changed. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "move/internal.h"

/* Buffers that are being pulled. */
struct gb_move_pulling {
    struct gb_move_wait waits[GB_MOVE_PULLS];
    struct gb_pull_call *calls[GB_MOVE_PULLS]; /* NULL: the place is free */
    struct gb_move_item *items[GB_MOVE_PULLS];
    bool lenient;
};

/* --- one buffer --------------------------------------------------------------------------------------------------- */

static void item_free(struct gb_move_item *item) {
    free(item->facts);
    free(item);
}

void gb_move_items_free(struct gb_move *move) {
    struct gb_move_item *item;
    size_t at = 0;

    while ((item = gb_map_next(&move->items, &at)))
        item_free(item);
    gb_map_done(&move->items);
}

static struct gb_move_item *item_of(struct gb_move *move, const char *name, struct gb_error *err) {
    struct gb_move_item *item = gb_map_get(&move->items, name);
    struct gb_error why = GB_ERROR_INIT;

    if (item)
        return item;
    item = calloc(1, sizeof(*item));
    if (item && gb_name_parse("buffer name", name, strlen(name), &item->name, &why) == 0 &&
        gb_map_put(&move->items, item->name.s, item) == 0)
        return item;
    free(item);
    gb_error_set(err, why.code != GB_OK ? GB_ERR_SOURCE_REFUSED : GB_ERR_SATURATED,
                 "no memory for the move, or a buffer without a name");
    return NULL;
}

/* Everything that is the buffer's but for its bytes and its seal. */
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

/* Bytes that the owner has not cannot be brought. */
static enum gb_code state_of(const json_t *record) {
    const char *state = gb_move_text(record, "state");

    if (json_is_true(json_object_get(record, "damaged")))
        return GB_ERR_CONTENT_DAMAGED;
    if (strcmp(state, "lost") == 0)
        return GB_ERR_CONTENT_LOST;
    return strcmp(state, "partial") == 0 ? GB_ERR_BUFFER_PARTIAL : GB_OK;
}

/* Memory that a process of the owner's machine has would stay behind. */
static int check_unused(const struct gb_move *move, const json_t *record, struct gb_error *err) {
    const char *name = gb_move_text(record, "name");

    if (json_integer_value(json_object_get(record, "leases")) > 0)
        return gb_error_set(err, GB_ERR_MAPPED,
                            "\"%s\" is mapped on the node \"%s\": the session is moved when that has ended", name,
                            move->owner.name.s);
    if (json_is_true(json_object_get(record, "adopted")))
        return gb_error_set(err, GB_ERR_ADOPTED,
                            "\"%s\" is in memory of another process on the node \"%s\": the session cannot be moved",
                            name, move->owner.name.s);
    return 0;
}

static int remove_buffer(struct gb_move *move, const struct gb_name *name, struct gb_error *err) {
    struct gb_locator at = {.session = move->stage, .name = *name};
    struct gb_error why = GB_ERROR_INIT;
    struct gb_move_wait wait;
    struct gb_buffer_call *call = gb_move_call_new(move, sizeof(*call), &wait, err);
    int r;

    if (!call)
        return -1;
    gb_buffer_delete(move->core, &at, NULL, call);
    r = gb_move_call_wait(&wait, &call->base, &why);
    gb_call_unref(&call->base);
    return r == 0 || why.code == GB_ERR_BUFFER_NOT_FOUND ? 0 : gb_error_move(err, &why);
}

static int seal(struct gb_move *move, struct gb_move_item *item, struct gb_error *err) {
    struct gb_locator at = {.session = move->stage, .name = item->name};
    struct gb_move_wait wait;
    struct gb_buffer_call *call = gb_move_call_new(move, sizeof(*call), &wait, err);
    int r;

    if (!call)
        return -1;
    gb_buffer_seal(move->core, &at, NULL, call);
    r = gb_move_call_wait(&wait, &call->base, err);
    gb_call_unref(&call->base);
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

static int take_ticket(const struct gb_move *move, struct gb_pull_params *params, struct gb_error *err) {
    struct tickets *tickets;

    if (move->who[0] == '\0')
        return 0;
    tickets = calloc(1, sizeof(*tickets));
    if (!tickets)
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for the move; try again later");
    tickets->fleet = move->fleet;
    tickets->node = move->owner.name;
    strcpy(tickets->who, move->who);
    params->ticket = (struct gb_pull_ticket){make_ticket, tickets, free};
    return 0;
}

/* What the buffer is to be; a word that is not known here, or a device that is not, is left to this node. */
static void read_target(const struct gb_move *move, const json_t *record, struct gb_buffer_params *to) {
    const json_t *device = json_object_get(json_object_get(record, "device"), "index");
    const char *kind = gb_move_text(record, "kind");
    const char *pool = gb_move_text(record, "pool");
    const char *stream = gb_move_text(record, "stream");
    const char *durability = gb_move_text(record, "durability");
    const char *spill = gb_move_text(record, "spill");
    struct gb_locator at = {.session = move->stage};
    struct gb_stream_view in_order;
    struct gb_pool_view view;
    struct gb_device_rec rec;

    to->kind = GB_KIND_DEVICE;
    to->has_kind = gb_kind_parse(kind, strlen(kind), &to->kind, NULL) == 0 && to->kind != GB_KIND_DEVICE;
    to->has_mirrored = to->mirrored = json_is_true(json_object_get(record, "mirrored"));
    to->has_device = json_is_integer(device) && json_integer_value(device) >= 0 &&
                     json_integer_value(device) < INT32_MAX &&
                     gb_device_get(move->core, (int)json_integer_value(device), &rec, NULL) == 0;
    to->device = to->has_device ? (int)json_integer_value(device) : 0;
    if (gb_name_parse("pool name", pool, strlen(pool), &at.name, NULL) == 0 &&
        gb_pool_get(move->core, &at, &view, NULL) == 0 && view.id != 0)
        to->pool = at.name;
    strcpy(to->stream.s, "default");
    if (gb_name_parse("stream name", stream, strlen(stream), &at.name, NULL) == 0 &&
        gb_stream_get(move->core, &at, &in_order, NULL) == 0)
        to->stream = at.name;
    to->has_durability = gb_durability_parse(durability, strlen(durability), &to->durability, NULL) == 0;
    to->has_spill = gb_spill_parse(spill, strlen(spill), &to->spill, NULL) == 0;
    to->has_resident = true;
    to->resident = json_is_true(json_object_get(record, "resident"));
}

/* What may change from one moment to the next while the owner's writers go on. */
static bool passes(enum gb_code code) {
    return code == GB_ERR_SOURCE_REFUSED || code == GB_ERR_SOURCE_CHANGED || code == GB_ERR_SOURCE_UNREACHABLE ||
           code == GB_ERR_SATURATED;
}

static int conclude(struct gb_move *move, size_t i, struct gb_error *err) {
    struct gb_move_pulling *pulling = move->pulling;
    struct gb_pull_call *call = pulling->calls[i];
    struct gb_move_item *item = pulling->items[i];
    struct gb_error why = GB_ERROR_INIT;
    int r = gb_move_call_wait(&pulling->waits[i], &call->written.base, &why);

    pulling->calls[i] = NULL;
    pulling->waits[i].done = false;
    move->call->pulled_bytes += call->numbers.received_bytes;
    move->changed_bytes += call->numbers.received_bytes;
    item->generation = r == 0 ? call->numbers.generation : 0;
    item->bytes = call->numbers.bytes;
    gb_call_unref(&call->written.base);
    if (r == 0 || (pulling->lenient && passes(why.code)))
        return 0;
    return gb_error_set(err, why.code, "\"%s\": %.400s", item->name.s, why.detail);
}

/* A free place, after the end of a pull if there was none. -1: that pull has failed, or the move is stopped. */
static int place(struct gb_move *move, size_t *ret, struct gb_error *err) {
    struct gb_move_pulling *pulling = move->pulling;
    size_t i;

    for (i = 0; i < GB_MOVE_PULLS && pulling->calls[i]; i++)
        ;
    if (i == GB_MOVE_PULLS) {
        gb_move_wait_any(move, pulling->waits, GB_MOVE_PULLS);
        if (gb_move_is_stopped(move))
            return gb_move_stopped_error(move, err);
        for (i = 0; i < GB_MOVE_PULLS && !pulling->waits[i].done; i++)
            ;
        if (i == GB_MOVE_PULLS || conclude(move, i, err) < 0)
            return i == GB_MOVE_PULLS ? gb_move_stopped_error(move, err) : -1;
    }
    *ret = i;
    return 0;
}

static int pull(struct gb_move *move, struct gb_move_item *item, const json_t *record, struct gb_error *err) {
    const char *origin = move->origin;
    struct gb_pull_params params = {.permitted = &origin, .permitted_count = 1};
    struct gb_move_pulling *pulling = move->pulling;
    struct gb_pull_call *call;
    size_t i = 0;

    if (gb_move_is_stopped(move))
        return gb_move_stopped_error(move, err);
    if (place(move, &i, err) < 0)
        return -1;
    strcpy(params.from.origin, move->origin);
    params.from.session = move->session;
    params.from.buffer = item->name;
    params.to.session = move->stage;
    params.to.name = item->name;
    read_target(move, record, &params.to);
    if (take_ticket(move, &params, err) < 0)
        return -1;
    call = gb_move_call_new(move, sizeof(*call), &pulling->waits[i], err);
    if (!call) {
        if (params.ticket.free_arg)
            params.ticket.free_arg(params.ticket.arg);
        return -1;
    }
    pulling->calls[i] = call;
    pulling->items[i] = item;
    gb_pull_start(move->moves->config.pulls, &params, call);
    return 0;
}

/* --- the list ----------------------------------------------------------------------------------------------------- */

/* Whether the bytes, or what else is the buffer's, are others than those that are here. */
static bool differs(const struct gb_move_item *item, const json_t *record, const char *facts) {
    return item->generation == 0 || !item->facts ||
           item->generation != (uint64_t)json_integer_value(json_object_get(record, "generation")) ||
           strcmp(item->facts, facts) != 0 || strcmp(item->made, gb_move_text(record, "created_at")) != 0;
}

/* A buffer that is sealed here, and one of that name that was made anew, give way. */
static int clear(struct gb_move *move, struct gb_move_item *item, const json_t *record, struct gb_error *err) {
    bool remade = item->made[0] != '\0' && strcmp(item->made, gb_move_text(record, "created_at")) != 0;

    if ((item->sealed || remade) && remove_buffer(move, &item->name, err) < 0)
        return -1;
    item->sealed = false;
    item->generation = 0;
    snprintf(item->made, sizeof(item->made), "%s", gb_move_text(record, "created_at"));
    return 0;
}

static int look_at(struct gb_move *move, const json_t *record, struct gb_error *err) {
    struct gb_move_item *item = item_of(move, gb_move_text(record, "name"), err);
    char *facts;
    int r = 0;

    if (!item || check_unused(move, record, err) < 0)
        return -1;
    item->round = move->round;
    item->to_seal = json_is_true(json_object_get(record, "sealed"));
    item->skipped = state_of(record);
    if (item->skipped != GB_OK) {
        r = item->generation > 0 ? remove_buffer(move, &item->name, err) : 0;
        item->generation = 0;
        return r;
    }
    facts = facts_of(record);
    if (!facts)
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for the move; try again later");
    if (differs(item, record, facts)) {
        r = clear(move, item, record, err);
        if (r == 0)
            r = pull(move, item, record, err);
    }
    free(item->facts);
    item->facts = facts;
    return r;
}

/* When their bytes are here. */
static int seal_all(struct gb_move *move, struct gb_error *err) {
    struct gb_move_item *item;
    size_t at = 0;

    while ((item = gb_map_next(&move->items, &at)))
        if (item->to_seal && !item->sealed && item->generation > 0 && seal(move, item, err) < 0)
            return -1;
    return 0;
}

/* Those that the owner has not any more. */
static int drop_gone(struct gb_move *move, struct gb_error *err) {
    struct gb_move_item *item;
    size_t at = 0;

    while ((item = gb_map_next(&move->items, &at))) {
        if (item->round == move->round)
            continue;
        if (item->generation > 0 && remove_buffer(move, &item->name, err) < 0)
            return -1;
        gb_map_take(&move->items, item->name.s);
        item_free(item);
    }
    return 0;
}

static int conclude_all(struct gb_move *move, bool failed, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    size_t i;
    int r = failed ? -1 : 0;

    for (i = 0; i < GB_MOVE_PULLS; i++) {
        if (!move->pulling->calls[i])
            continue;
        if (r < 0)
            (void)gb_call_cancel(&move->pulling->calls[i]->written.base, true);
        if (conclude(move, i, &why) < 0 && r == 0)
            r = gb_error_move(err, &why);
        why = GB_ERROR_INIT;
    }
    return r;
}

int gb_move_bring(struct gb_move *move, bool lenient, struct gb_error *err) {
    struct gb_move_pulling pulling = {.lenient = lenient};
    int r;

    move->round++;
    move->changed_bytes = 0;
    move->pulling = &pulling;
    r = gb_move_each(move, "buffers", look_at, err);
    r = conclude_all(move, r < 0, err);
    move->pulling = NULL;
    return r < 0 || drop_gone(move, err) < 0 ? -1 : seal_all(move, err);
}
