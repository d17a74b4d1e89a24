/* The stage of an arrival: a local session as the owner describes it, with its pools and streams. At the end it gets
 * the session's name. arrival.c brings its buffers. */
#include "fleet/arrival/stage.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- fields of records -------------------------------------------------------------------------------------------- */

/* null means no limit. */
static uint64_t limit_of(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);

    return json_is_integer(value) && json_integer_value(value) >= 0 ? (uint64_t)json_integer_value(value)
                                                                    : GB_UNLIMITED;
}

/* One function for each type of field. If an owner of another version lacks the field, it stays unset here. */
static inline bool take_flag(const json_t *object, const char *key, bool *ret) {
    const json_t *value = json_object_get(object, key);

    *ret = json_is_true(value);
    return json_is_boolean(value);
}

static inline bool take_limit(const json_t *object, const char *key, uint64_t *ret) {
    *ret = limit_of(object, key);
    return json_object_get(object, key) != NULL;
}

static inline bool take_maximum(const json_t *object, const char *key, uint64_t *ret) {
    bool given = take_limit(object, key, ret);

    *ret = *ret == GB_UNLIMITED ? 0 : *ret;
    return given;
}

static inline bool take_phrase(const json_t *object, const char *key, struct gb_phrase *ret) {
    const char *text = gb_arrival_text(object, key);

    snprintf(ret->s, sizeof(ret->s), "%s", strlen(text) < sizeof(ret->s) ? text : "");
    return json_is_string(json_object_get(object, key));
}

static inline bool take_u64(const json_t *object, const char *key, uint64_t *ret) {
    const json_t *value = json_object_get(object, key);

    *ret = (uint64_t)json_integer_value(value);
    return json_is_integer(value);
}

static inline bool take_priority(const json_t *object, const char *key, int *ret) {
    const json_t *value = json_object_get(object, key);

    *ret = (int)json_integer_value(value);
    return json_is_integer(value);
}

/* An unknown word leaves the default of a new session. */
static inline bool take_durability(const json_t *object, const char *key, enum gb_durability *ret) {
    const char *word = gb_arrival_text(object, key);

    return gb_durability_parse(word, strlen(word), ret, NULL) == 0;
}

static inline bool take_spill(const json_t *object, const char *key, enum gb_spill *ret) {
    const char *word = gb_arrival_text(object, key);

    return gb_spill_parse(word, strlen(word), ret, NULL) == 0;
}

struct gb_text *gb_arrival_labels(const json_t *record) {
    char *text = json_dumps(json_object_get(record, "labels"), JSON_COMPACT);
    struct gb_text *labels = text && strcmp(text, "{}") != 0 ? gb_text_new(text, strlen(text)) : NULL;

    free(text);
    return labels;
}

static inline bool take_labels(const json_t *object, const char *key, struct gb_text **ret) {
    (void)key;
    *ret = gb_arrival_labels(object);
    return true;
}

/* --- the owner's record ------------------------------------------------------------------------------------------- */

static void read_session(const json_t *root, struct gb_session_params *ret) {
    const json_t *object = root;

#define TAKE_OF_PLACE(type, name)
#define TAKE_OF_FLEET(type, name)
#define TAKE_OF_KEPT(type, name)
#define TAKE_OF_SET(type, name) ret->has_##name = take_##type(object, #name, &ret->name);
#define GB_SESSION_FIELD(name, type, how, ...) TAKE_OF_##how(type, name)
#define GB_SESSION_QUOTA(name, type, ...) ret->has_quota_##name = take_##type(object, #name, &ret->quota.name);
#define GB_SESSION_QUOTA_BEGIN object = json_object_get(root, "quota");
#define GB_SESSION_QUOTA_END object = root;
#include "model/session.def"
    ret->has_replicas = true;
    ret->replicas = (unsigned)json_integer_value(json_object_get(json_object_get(root, "fleet"), "replicas"));
    ret->failover_after_s =
        (uint64_t)json_integer_value(json_object_get(json_object_get(root, "fleet"), "failover_after_s"));
    gb_name_parse("tenant", gb_arrival_text(json_object_get(root, "fleet"), "tenant"),
                  strlen(gb_arrival_text(json_object_get(root, "fleet"), "tenant")), &ret->tenant, NULL);
}

/* The fields of the record that the stage copies, as a text that can be compared. */
static char *describe(json_t *root) {
    static const char *const others[] = {
        "used_bytes", "used_pinned_bytes", "used_stored_bytes", "buffers", "updated_at", "expires_at", "pool"};
    size_t i;

    for (i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        json_object_del(root, others[i]);
    return json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
}

/* --- pools and streams -------------------------------------------------------------------------------------------- */

static int device_of(const struct gb_arrival *arrival, const json_t *item) {
    json_int_t device = json_integer_value(json_object_get(json_object_get(item, "device"), "index"));
    struct gb_device_rec rec;

    return device >= 0 && device < INT32_MAX && gb_device_get(arrival->config.core, (int)device, &rec, NULL) == 0
               ? (int)device
               : 0;
}

enum change { MAKE, PATCH, REMOVE };

static int change_pool(struct gb_arrival *arrival, enum change how, const struct gb_pool_params *params,
                       struct gb_error *err) {
    struct gb_locator at = {.session = params->session, .name = params->rec.name};
    struct gb_core *core = arrival->config.core;
    struct gb_arrival_wait wait;
    struct gb_pool_call *call = gb_arrival_call_new(arrival, sizeof(*call), &wait, err);
    int r;

    if (!call)
        return -1;
    if (how == MAKE)
        gb_pool_make(core, params, call);
    else if (how == PATCH)
        gb_pool_patch(core, params, NULL, call);
    else
        gb_pool_remove(core, &at, false, call);
    r = gb_arrival_call_wait(&wait, &call->base, err);
    gb_call_unref(&call->base);
    return r;
}

/* The pool came in an earlier round. If a fixed field has changed, the pool is made again; a pool that has buffers
 * keeps its fixed fields until a later round. */
static int update_pool(struct gb_arrival *arrival, const struct gb_pool_params *params, const struct gb_pool_view *here,
                       struct gb_error *err) {
    bool fixed = params->rec.device == here->rec.device;
    bool set = true;

    if (here->lost)
        return 0;
#define SAME_PLACE(type, name, at)
#define SAME_FIXED(type, name, at)                                                                                     \
    fixed = fixed && (!params->given.name || GB_SAME_##type(params->rec.at, here->rec.at));
#define SAME_SET(type, name, at) set = set && (!params->given.name || GB_SAME_##type(params->rec.at, here->rec.at));
#define GB_POOL_FIELD(name, type, how, ...) SAME_##how(type, name, name)
#define GB_POOL_CONFIG(name, type, how, ...) SAME_##how(type, name, config.name)
#include "model/pool.def"
    if (!fixed && change_pool(arrival, REMOVE, params, NULL) == 0)
        return change_pool(arrival, MAKE, params, err);
    return set ? 0 : change_pool(arrival, PATCH, params, err);
}

/* A device's own pool has no created_at, and is not brought. */
static int bring_pool(struct gb_arrival *arrival, const json_t *item, struct gb_error *err) {
    const json_t *object = item;
    const char *name = gb_arrival_text(item, "name");
    struct gb_pool_params params = {.session = arrival->stage, .rec = {.device = device_of(arrival, item)}};
    struct gb_locator at = {.session = arrival->stage};
    struct gb_pool_view here;

    if (!json_is_string(json_object_get(item, "created_at")) ||
        gb_name_parse("pool name", name, strlen(name), &params.rec.name, NULL) < 0)
        return 0;
#define TAKE_PLACE(type, name, at)
#define TAKE_FIXED(type, name, at) params.given.name = take_##type(object, #name, &params.rec.at);
#define TAKE_SET TAKE_FIXED
#define GB_POOL_FIELD(name, type, how, ...) TAKE_##how(type, name, name)
#define GB_POOL_CONFIG(name, type, how, ...) TAKE_##how(type, name, config.name)
#define GB_POOL_REUSE_BEGIN object = json_object_get(item, "reuse");
#define GB_POOL_REUSE_END object = item;
#include "model/pool.def"
    at.name = params.rec.name;
    return gb_pool_get(arrival->config.core, &at, &here, NULL) == 0 ? update_pool(arrival, &params, &here, err)
                                                                    : change_pool(arrival, MAKE, &params, err);
}

static int change_stream(struct gb_arrival *arrival, enum change how, const struct gb_locator *at,
                         struct gb_error *err) {
    struct gb_arrival_wait wait;
    struct gb_stream_call *call = gb_arrival_call_new(arrival, sizeof(*call), &wait, err);
    int r;

    if (!call)
        return -1;
    if (how == MAKE)
        gb_stream_make(arrival->config.core, at, call);
    else
        gb_stream_remove(arrival->config.core, at, &call->base);
    r = gb_arrival_call_wait(&wait, &call->base, err);
    gb_call_unref(&call->base);
    return r;
}

static int bring_stream(struct gb_arrival *arrival, const json_t *item, struct gb_error *err) {
    const char *name = gb_arrival_text(item, "name");
    struct gb_locator at = {.session = arrival->stage};
    struct gb_error why = GB_ERROR_INIT;

    if (strcmp(name, "default") == 0 || gb_name_parse("stream name", name, strlen(name), &at.name, NULL) < 0 ||
        change_stream(arrival, MAKE, &at, &why) == 0 || why.code == GB_ERR_STREAM_EXISTS)
        return 0;
    return gb_error_move(err, &why);
}

/* The owner's list by name, and what is here but not in it. */
struct listed {
    json_t *there;
    json_t *gone;
};

static int keep_pool(void *arg, const struct gb_pool_view *view, struct gb_error *err) {
    struct listed *listed = arg;

    (void)err;
    if (view->rec.id > 0 && !json_object_get(listed->there, view->rec.name.s))
        json_array_append_new(listed->gone, json_string(view->rec.name.s));
    return 0;
}

static int keep_stream(void *arg, const struct gb_stream_view *view, struct gb_error *err) {
    struct listed *listed = arg;

    (void)err;
    if (view->id > 0 && !json_object_get(listed->there, view->name.s))
        json_array_append_new(listed->gone, json_string(view->name.s));
    return 0;
}

/* Drops what the owner no longer has. A pool with buffers stays until a round in which it is empty. */
static void drop_gone_of(struct gb_arrival *arrival, struct listed *listed, bool pools) {
    struct gb_page page = {.limit = UINT_MAX};
    const json_t *name;
    size_t i;

    if (pools)
        gb_pool_list(arrival->config.core, &arrival->stage, &page, keep_pool, listed, NULL);
    else
        gb_stream_list(arrival->config.core, &arrival->stage, &page, keep_stream, listed, NULL);
    json_array_foreach(listed->gone, i, name) {
        struct gb_pool_params params = {.session = arrival->stage};
        struct gb_locator at = {.session = arrival->stage};

        snprintf(at.name.s, sizeof(at.name.s), "%s", json_string_value(name));
        params.rec.name = at.name;
        if (pools)
            change_pool(arrival, REMOVE, &params, NULL);
        else
            change_stream(arrival, REMOVE, &at, NULL);
    }
}

static int keep_item(struct gb_arrival *arrival, const json_t *item, struct gb_error *err) {
    return json_object_set(arrival->listed, gb_arrival_text(item, "name"), (json_t *)item) == 0
               ? 0
               : gb_error_set(err, GB_ERR_SATURATED, "no memory to bring the session; try again later");
}

/* Drops before it adds, because the numbers of pools and streams are limited. */
static int bring_list(struct gb_arrival *arrival, bool pools, struct gb_error *err) {
    struct listed listed = {.there = json_object(), .gone = json_array()};
    const char *name;
    json_t *item;
    int r;

    arrival->listed = listed.there;
    r = gb_arrival_each(arrival, pools ? "pools" : "streams", keep_item, err);
    if (r == 0)
        drop_gone_of(arrival, &listed, pools);
    json_object_foreach(listed.there, name, item) {
        if (r == 0)
            r = pools ? bring_pool(arrival, item, err) : bring_stream(arrival, item, err);
    }
    json_decref(listed.there);
    json_decref(listed.gone);
    return r;
}

/* --- making the session ------------------------------------------------------------------------------------------- */

static json_t *ask_session(struct gb_arrival *arrival, struct gb_error *err) {
    char path[64 + GB_NAME_MAX];
    json_t *root;

    snprintf(path, sizeof(path), "/v1/sessions/%s", arrival->session.s);
    root = gb_arrival_get(arrival, path, "", err);
    if (root && !json_object_get(root, "current_pools")) /* a node of an earlier version has one */
        json_object_set_new(root, "current_pools", json_pack("[s]", gb_arrival_text(root, "pool")));
    return root;
}

/* Deletes the rest of an interrupted arrival. */
static void remove_old(struct gb_arrival *arrival) {
    struct gb_arrival_wait wait;
    struct gb_call *call = gb_arrival_call_new(arrival, sizeof(*call), &wait, NULL);

    if (!call)
        return;
    gb_session_delete(arrival->config.core, &arrival->stage, NULL, call);
    gb_arrival_call_wait(&wait, call, NULL);
    gb_call_unref(call);
}

static int create(struct gb_arrival *arrival, const struct gb_session_params *params, struct gb_error *err) {
    struct gb_arrival_wait wait;
    struct gb_session_call *call = gb_arrival_call_new(arrival, sizeof(*call), &wait, err);
    int r;

    if (!call)
        return -1;
    gb_session_create(arrival->config.core, params, call);
    r = gb_arrival_call_wait(&wait, &call->base, err);
    if (r == 0)
        arrival->stage_id = call->session.rec.id;
    gb_call_unref(&call->base);
    return r;
}

static int patch(struct gb_arrival *arrival, const struct gb_session_params *params, struct gb_error *err) {
    struct gb_arrival_wait wait;
    struct gb_session_call *call = gb_arrival_call_new(arrival, sizeof(*call), &wait, err);
    int r;

    if (!call)
        return -1;
    gb_session_patch(arrival->config.core, &arrival->stage, params, NULL, call);
    r = gb_arrival_call_wait(&wait, &call->base, err);
    gb_call_unref(&call->base);
    return r;
}

/* Makes a pool of the session current on its device here; not one that did not come, nor a device's own. */
static int choose_pool(struct gb_arrival *arrival, const json_t *name, struct gb_error *err) {
    struct gb_session_params params = {.has_pool = true};
    struct gb_locator at = {.session = arrival->stage};
    struct gb_pool_view view;

    if (!json_is_string(name) ||
        gb_name_parse("pool name", json_string_value(name), json_string_length(name), &at.name, NULL) < 0 ||
        gb_pool_get(arrival->config.core, &at, &view, NULL) < 0 || view.rec.id == 0)
        return 0;
    params.pool = at.name;
    return patch(arrival, &params, err);
}

/* Those that the session's new buffers come from, of the first device last: if two have come to one device here, that
 * one wins. */
static int choose_pools(struct gb_arrival *arrival, const json_t *root, struct gb_error *err) {
    const json_t *names = json_object_get(root, "current_pools");
    size_t i = json_array_size(names);

    while (i > 0) {
        if (choose_pool(arrival, json_array_get(names, --i), err) < 0)
            return -1;
    }
    return 0;
}

/* The session's name and the suffix. A name that would be too long is cut. */
static void name_stage(struct gb_arrival *arrival) {
    int room = GB_NAME_MAX - (int)strlen(arrival->suffix);

    snprintf(arrival->stage.s, sizeof(arrival->stage.s), "%.*s%s", room, arrival->session.s, arrival->suffix);
}

int gb_arrival_stage(struct gb_arrival *arrival, struct gb_error *err) {
    struct gb_session_params params = {.stops_on_partition = arrival->there.on_partition == GB_ON_PARTITION_STOP};
    struct gb_error why = GB_ERROR_INIT;
    json_t *root;
    int r;

    if (gb_fleet_claim_make(arrival->config.fleet, arrival->claim, err) < 0)
        return -1;
    root = ask_session(arrival, err);
    if (!root)
        return -1;
    name_stage(arrival);
    params.name = arrival->stage;
    read_session(root, &params);
    snprintf(params.fleet_claim, sizeof(params.fleet_claim), "%s", arrival->claim);
    json_object_del(root, "current_pools"); /* the pools are still to come */
    arrival->described = describe(root);
    json_decref(root);
    r = create(arrival, &params, &why);
    if (r < 0 && why.code == GB_ERR_SESSION_EXISTS) {
        why = GB_ERROR_INIT;
        remove_old(arrival);
        r = create(arrival, &params, &why);
    }
    gb_text_unref(params.labels);
    if (r < 0)
        return gb_error_move(err, &why);
    if (!arrival->only_sealed && gb_session_expect(arrival->config.core, &arrival->stage, &arrival->session, err) < 0) {
        gb_arrival_unstage(arrival);
        return -1;
    }
    return 0;
}

int gb_arrival_stage_again(struct gb_arrival *arrival, struct gb_error *err) {
    struct gb_session_params params = {.has_pool = true};
    json_t *root = NULL;
    char *text;
    int r = 0;

    if (bring_list(arrival, true, err) == 0 && bring_list(arrival, false, err) == 0)
        root = ask_session(arrival, err);
    if (!root)
        return -1;
    read_session(root, &params);
    text = describe(root);
    if (!text || !arrival->described || strcmp(text, arrival->described) != 0) {
        r = patch(arrival, &params, err);
        if (r == 0)
            r = choose_pools(arrival, root, err);
    }
    json_decref(root);
    gb_text_unref(params.labels);
    free(arrival->described);
    arrival->described = r == 0 ? text : NULL; /* then again with the next round */
    if (r < 0)
        free(text);
    return r;
}

void gb_arrival_unstage(struct gb_arrival *arrival) {
    remove_old(arrival);
}

int gb_arrival_commit(struct gb_arrival *arrival, uint64_t epoch, struct gb_session_view *ret, struct gb_error *err) {
    struct gb_session_params params = {.name = arrival->session, .fleet_epoch = (int64_t)epoch};
    struct gb_arrival_wait wait;
    struct gb_session_call *call;
    int r;

    if (gb_fleet_holders_text(&arrival->there, &params.holders) < 0)
        return gb_error_set(err, GB_ERR_SATURATED, "no memory to bring the session; try again later");
    call = gb_arrival_call_new(arrival, sizeof(*call), &wait, err);
    if (!call) {
        gb_text_unref(params.holders);
        return -1;
    }
    snprintf(params.fleet_claim, sizeof(params.fleet_claim), "%s", arrival->claim);
    gb_session_arrive(arrival->config.core, &arrival->stage, &params, call);
    gb_text_unref(params.holders);
    r = gb_arrival_call_wait(&wait, &call->base, err);
    if (r == 0 && ret) {
        gb_session_rec_set(&ret->rec, &call->session.rec);
        ret->buffers = call->session.buffers;
        ret->used_bytes = call->session.used_bytes;
    }
    gb_call_unref(&call->base);
    return r;
}
