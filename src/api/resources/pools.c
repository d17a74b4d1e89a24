/* Pools of a session, beside the default pools of the devices, which every session sees; and the actions on one. An
 * action on a default pool needs scope admin, because it concerns every session. */
#include <string.h>

#include "api/auth.h"
#include "api/context.h"
#include "api/pipeline/async.h"
#include "api/pipeline/list.h"
#include "api/reply.h"
#include "api/request/body.h"
#include "api/request/query.h"
#include "base/json_writer.h"
#include "base/text.h"

/* Replies about pools. */

/* The most devices whose access to a pool is shown. */
#define GB_POOL_PEERS_MAX 64

/* --- pools -------------------------------------------------------------------------------------------------------- */

/* /v1/sessions/{session}/pools. Every session sees the devices' default pools beside its own. */

/* Writes what every reply about a pool says of it. Only these replies ask for the access of other devices; polled
 * statistics do without. */
static void render_members(struct gb_json_writer *out, const struct gb_api *api, const struct gb_name *session,
                           const struct gb_pool_view *view) {
    enum gb_pool_access access[GB_POOL_PEERS_MAX];
    struct gb_locator at = {*session, view->rec.name};
    int count = api->devices < GB_POOL_PEERS_MAX ? api->devices : GB_POOL_PEERS_MAX;
    int i;

    gb_render_pool_members(out, api, view);
    if (view->lost || gb_pool_peers(api->core, &at, access, count, NULL) < 0)
        count = 0;
    gb_json_open(out, "access", '[');
    for (i = 0; i < count; i++) {
        if (i == view->rec.device)
            continue;
        gb_json_open(out, NULL, '{');
        gb_render_device_id(out, "device", api, i);
        gb_json_put_string(out, "access", gb_pool_access_name(access[i]));
        gb_json_close(out, '}');
    }
    gb_json_close(out, ']');
}

/* Adds the pool to the object that is open, closes the object and makes it the reply. */
static enum gb_step pool_reply(struct gb_http_request *request, struct gb_json_writer *out,
                               const struct gb_pool_view *view, int status, struct gb_http_response *response,
                               struct gb_error *err) {
    struct gb_name session;

    if (gb_param_name(request, 0, "session name", &session, err) < 0) {
        gb_json_done(out);
        return GB_STEP_ERROR;
    }
    render_members(out, gb_api_of(request), &session, view);
    gb_json_close(out, '}');
    return gb_reply_json(out, status, response, err);
}

/* Checks that the bearer may change the pool beyond what its route asks for. A device's own pool, which all sessions
 * share, takes an administrator. Returns 0, or -1 with POOL_NOT_FOUND, UNAUTHENTICATED or FORBIDDEN. */
static int pool_permit(const struct gb_http_request *request, const struct gb_locator *at, struct gb_error *err) {
    struct gb_pool_view view;

    if (gb_pool_get(gb_api_of(request)->core, at, &view, err) < 0)
        return -1;
    /* A device's own pool is every session's: a token bound to one session does not reach it. */
    return view.rec.id > 0 ? 0 : gb_api_permit(request, GB_SCOPE_ADMIN, "", err);
}

/* --- read --------------------------------------------------------------------------------------------------------- */

static int read_state(const char *word, size_t len, int *ret_lost, struct gb_error *err) {
    static const char *const names[] = {"ready", "lost"};
    size_t lost;

    if (gb_word_parse("pool state", names, 2, word, len, &lost, err) < 0)
        return -1;
    *ret_lost = (int)lost;
    return 0;
}

static int visit(void *arg, const struct gb_pool_view *view, struct gb_error *err) {
    struct gb_walk *walk = arg;

    const struct gb_list_item item = {.id = view->rec.id,
                                      .name = view->rec.name.s,
                                      .state = view->lost,
                                      .sort = {0, (uint64_t)view->rec.created_at_us, view->stat.used_bytes,
                                               view->stat.reserved_bytes, view->live_buffers}};

    (void)err;
    if (gb_walk_takes(walk, &item)) {
        gb_json_open(&walk->out, NULL, '{');
        render_members(&walk->out, walk->api, &walk->session, view);
        gb_json_close(&walk->out, '}');
    }
    return walk->full;
}

static int list(struct gb_walk *walk, struct gb_error *err) {
    return gb_pool_list(walk->api->core, &walk->session, &walk->page, visit, walk, err);
}

enum gb_step gb_api_pool_list(struct gb_http_request *request, struct gb_http_response *response,
                              struct gb_error *err) {
    static const struct gb_list_offer offer = {
        .state = read_state,
        .sorts = {"name", "created_at", "used_bytes", "reserved_bytes", "buffers"},
        .sort_count = 5};

    return gb_reply_page(request, response, &offer, list, err);
}

enum gb_step gb_api_pool_get(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct gb_pool_view view;
    struct gb_json_writer out = {0};
    struct gb_locator at;

    if (gb_path_locator(request, "pool name", &at, err) < 0 ||
        gb_pool_get(gb_api_of(request)->core, &at, &view, err) < 0)
        return GB_STEP_ERROR;
    gb_json_open(&out, NULL, '{');
    return pool_reply(request, &out, &view, 200, response, err);
}

/* --- create and change -------------------------------------------------------------------------------------------- */

/* The fields of a body, as gb_json_known takes them. */
#define KEY_PLACE(name)
#define KEY_FIXED(name) " " #name
#define KEY_SET(name) " " #name
static const char fields[] = "name device"
#define GB_POOL_FIELD(name, type, how, ...) KEY_##how(name)
#define GB_POOL_REUSE(...)
#define GB_POOL_REUSE_BEGIN " reuse"
#define GB_POOL_REUSE_END
#include "model/pool.def"
    ;
static const char fields_of_reuse[] = ""
#define GB_POOL_FIELD(...)
#define GB_POOL_REUSE(name, ...) " " #name
#include "model/pool.def"
    ;

/* null: 0. */
static int read_maximum(const json_t *object, const char *key, uint64_t *ret, struct gb_error *err) {
    uint64_t value = GB_UNLIMITED;
    int r = gb_json_limit(object, key, &value, err);

    if (r > 0 && value == GB_UNLIMITED && !json_is_null(json_object_get(object, key)))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "the field '%s' must be 2^63 - 1 at most, or null for as much as the device has", key);
    if (r > 0 && value == 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "the field '%s' must be at least 1, or null for as much as the device has", key);
    *ret = value == GB_UNLIMITED ? 0 : value;
    return r;
}

/* By the types of fields. */
#define READ_flag gb_json_bool
#define READ_limit gb_json_limit
#define READ_phrase gb_json_phrase
#define READ_maximum read_maximum

/* All but the name and the device. */
static int read_fields(const json_t *body, struct gb_pool_params *params, struct gb_error *err) {
    const json_t *object = body;
    const json_t *reuse = NULL;
    int r;

    if (gb_json_child(body, "reuse", &reuse, err) < 0 ||
        (reuse && gb_json_known(reuse, "reuse", fields_of_reuse + 1, err) < 0))
        return -1;
#define READ_PLACE(read, name, at)
#define READ_FIXED(read, name, at)                                                                                     \
    r = read(object, #name, &params->rec.at, err);                                                                     \
    if (r < 0)                                                                                                         \
        return -1;                                                                                                     \
    params->given.name = r > 0;
#define READ_SET READ_FIXED
#define GB_POOL_FIELD(name, type, how, ...) READ_##how(READ_##type, name, name)
#define GB_POOL_CONFIG(name, type, how, ...) READ_##how(READ_##type, name, config.name)
#define GB_POOL_REUSE_BEGIN object = reuse;
#define GB_POOL_REUSE_END object = body;
#include "model/pool.def"
    return 0;
}

/* All but the name. */
static int read_new(const struct gb_api *api, const json_t *body, struct gb_pool_params *params, struct gb_error *err) {
    int r = gb_device_field(api, body, "device", &params->rec.device, err);

    params->given.device = r > 0;
    return r < 0 ? -1 : read_fields(body, params, err);
}

static int read_create(const struct gb_api *api, const json_t *body, struct gb_pool_params *params,
                       struct gb_error *err) {
    int r = gb_json_name(body, "name", &params->rec.name, err);

    if (r == 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the field 'name' is needed");
    return r < 0 ? -1 : read_new(api, body, params, err);
}

static enum gb_step reply_pool(struct gb_http_request *request, const void *result, struct gb_http_response *response,
                               struct gb_error *err) {
    const struct gb_pool_call *call = result;
    const struct gb_pool_view *view = &call->pool;
    struct gb_json_writer out = {0};

    if (call->created && gb_http_response_header(response, err, "Location", "/v1/sessions/%s/pools/%s",
                                                 request->param[0].s, view->rec.name.s) < 0)
        return GB_STEP_ERROR;
    gb_json_open(&out, NULL, '{');
    if (call->created && view->first_use_bytes > 0)
        gb_json_put_string(
            &out, "note",
            "the first allocation takes first_use_bytes of device memory, whatever its size; sessions that "
            "share a pool share that");
    return pool_reply(request, &out, view, call->created ? 201 : 200, response, err);
}

enum gb_step gb_api_pool_create(struct gb_http_request *request, struct gb_http_response *response,
                                struct gb_error *err) {
    struct gb_pool_params params = {.given = {false}};
    struct gb_pool_call *call;
    json_t *body;
    int r;

    if (gb_param_name(request, 0, "session name", &params.session, err) < 0 ||
        gb_body_object(request, fields, false, &body, err) < 0)
        return GB_STEP_ERROR;
    r = read_create(gb_api_of(request), body, &params, err);
    json_decref(body);
    if (r < 0)
        return GB_STEP_ERROR;
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call)
        return GB_STEP_ERROR;
    gb_pool_make(gb_api_of(request)->core, &params, call);
    return gb_async_end(request, response, reply_pool, 0, err);
}

/* Of what the body names. */
static struct gb_differences compare(const struct gb_pool_params *asked, const struct gb_pool_rec *is) {
    struct gb_differences d = {.fields = ""};

#define DIFFER(type, name, at) gb_differ(&d, asked->given.name && !GB_SAME_##type(asked->rec.at, is->at), #name);
#define DIFFER_PLACE DIFFER
#define DIFFER_FIXED DIFFER
#define DIFFER_SET(type, name, at)
#define GB_POOL_FIELD(name, type, how, ...) DIFFER_##how(type, name, name)
#define GB_POOL_CONFIG(name, type, how, ...) DIFFER_##how(type, name, config.name)
#include "model/pool.def"
#undef DIFFER_PLACE
#undef DIFFER_FIXED
#undef DIFFER_SET
#define DIFFER_PLACE(type, name, at)
#define DIFFER_FIXED(type, name, at)
#define DIFFER_SET DIFFER
#define GB_POOL_FIELD(name, type, how, ...) DIFFER_##how(type, name, name)
#define GB_POOL_CONFIG(name, type, how, ...) DIFFER_##how(type, name, config.name)
#include "model/pool.def"
    return d;
}

static enum gb_step confirm(struct gb_http_request *request, const struct gb_pool_view *view,
                            const struct gb_differences *differences, struct gb_http_response *response,
                            struct gb_error *err) {
    struct gb_json_writer out = {0};

    if (gb_confirm(request, "pool", &view->rec.name, differences, GB_ERR_POOL_EXISTS, err) < 0)
        return GB_STEP_ERROR;
    gb_json_open(&out, NULL, '{');
    return pool_reply(request, &out, view, 200, response, err);
}

enum gb_step gb_api_pool_put(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct gb_core *core = gb_api_of(request)->core;
    struct gb_pool_params params = {.given = {false}};
    struct gb_error why = GB_ERROR_INIT;
    struct gb_differences differences;
    struct gb_pool_call *call;
    struct gb_pool_view view;
    struct gb_locator at;
    json_t *body;
    int r;

    if (gb_path_locator(request, "pool name", &at, err) < 0 || gb_put_read(request, &at.name, fields, &body, err) < 0)
        return GB_STEP_ERROR;
    params.session = at.session;
    params.rec.name = at.name;
    r = read_new(gb_api_of(request), body, &params, err);
    if (r == 0 && gb_pool_get(core, &at, &view, &why) == 0)
        differences = compare(&params, &view.rec);
    json_decref(body);
    if (r < 0)
        return GB_STEP_ERROR;
    if (why.code == GB_OK)
        return confirm(request, &view, &differences, response, err);
    if (why.code != GB_ERR_POOL_NOT_FOUND) {
        gb_error_move(err, &why);
        return GB_STEP_ERROR;
    }
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call)
        return GB_STEP_ERROR;
    gb_async_again(request, gb_api_pool_put, GB_ERR_POOL_EXISTS);
    gb_pool_make(core, &params, call);
    return gb_async_end(request, response, reply_pool, 0, err);
}

static int read_patch(const json_t *body, struct gb_pool_params *params, struct gb_error *err) {
    static const char *const fixed[] = {
        "name",
        "device",
#define FIXED_PLACE(name)
#define FIXED_FIXED(name) #name,
#define FIXED_SET(name)
#define GB_POOL_FIELD(name, type, how, ...) FIXED_##how(name)
#include "model/pool.def"
    };
    size_t i;

    for (i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++) {
        if (json_object_get(body, fixed[i]))
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                                "the field '%s' of a pool is fixed at its creation; make another pool", fixed[i]);
    }
    return read_fields(body, params, err);
}

enum gb_step gb_api_pool_patch(struct gb_http_request *request, struct gb_http_response *response,
                               struct gb_error *err) {
    struct gb_pool_params params = {.given = {false}};
    struct gb_pool_call *call;
    struct gb_locator at;
    json_t *body;
    int r;

    if (gb_path_locator(request, "pool name", &at, err) < 0 || pool_permit(request, &at, err) < 0 ||
        gb_body_object(request, fields, false, &body, err) < 0)
        return GB_STEP_ERROR;
    params.session = at.session;
    params.rec.name = at.name;
    r = read_patch(body, &params, err);
    json_decref(body);
    if (r < 0)
        return GB_STEP_ERROR;
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call)
        return GB_STEP_ERROR;
    gb_pool_patch(gb_api_of(request)->core, &params, NULL, call);
    return gb_async_end(request, response, reply_pool, 0, err);
}

/* --- delete ------------------------------------------------------------------------------------------------------- */

enum gb_step gb_api_pool_delete(struct gb_http_request *request, struct gb_http_response *response,
                                struct gb_error *err) {
    struct gb_pool_call *call;
    struct gb_locator at;
    bool force = false;

    if (gb_path_locator(request, "pool name", &at, err) < 0 || gb_query_bool(request, "force", &force, err) < 0)
        return GB_STEP_ERROR;
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call)
        return GB_STEP_ERROR;
    gb_pool_remove(gb_api_of(request)->core, &at, force, call);
    return gb_async_end(request, response, gb_reply_nothing, 0, err);
}

/* --- pool actions ------------------------------------------------------------------------------------------------- */

/* POST /v1/sessions/{session}/pools/{pool}/{trim,reset-peak,access} */

static enum gb_step reply_trimmed(struct gb_http_request *request, const void *result,
                                  struct gb_http_response *response, struct gb_error *err) {
    const struct gb_pool_call *call = result;
    struct gb_json_writer out = {0};

    gb_json_open(&out, NULL, '{');
    gb_json_put_u64(&out, "reserved_before_bytes", call->trim.before_bytes);
    gb_json_put_u64(&out, "reserved_after_bytes", call->trim.after_bytes);
    if (call->pool.exported)
        gb_json_put_string(
            &out, "note", "memory of the pool was exported: nothing goes back to the system until the pool is deleted");
    else if (call->trim.kept)
        gb_json_put_string(&out, "note",
                           "what is left is in pieces of which a part is in use, or whose free is still queued");
    return pool_reply(request, &out, &call->pool, 200, response, err);
}

enum gb_step gb_api_pool_trim(struct gb_http_request *request, struct gb_http_response *response,
                              struct gb_error *err) {
    struct gb_pool_call *call;
    struct gb_locator at;
    uint64_t keep_bytes = 0;
    json_t *body;
    int r;

    if (gb_path_locator(request, "pool name", &at, err) < 0 ||
        gb_body_object(request, "keep_bytes", true, &body, err) < 0)
        return GB_STEP_ERROR;
    r = gb_json_u64(body, "keep_bytes", &keep_bytes, err);
    json_decref(body);
    if (r < 0)
        return GB_STEP_ERROR;
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call)
        return GB_STEP_ERROR;
    gb_pool_trim_to(gb_api_of(request)->core, &at, keep_bytes, call);
    return gb_async_end(request, response, reply_trimmed, 0, err);
}

static enum gb_step reply_acted(struct gb_http_request *request, const void *result, struct gb_http_response *response,
                                struct gb_error *err) {
    const struct gb_pool_call *call = result;
    struct gb_json_writer out = {0};

    gb_json_open(&out, NULL, '{');
    return pool_reply(request, &out, &call->pool, 200, response, err);
}

enum gb_step gb_api_pool_reset_peak(struct gb_http_request *request, struct gb_http_response *response,
                                    struct gb_error *err) {
    struct gb_pool_call *call;
    struct gb_locator at;

    if (gb_path_locator(request, "pool name", &at, err) < 0 || pool_permit(request, &at, err) < 0 ||
        gb_body_no_fields(request, err) < 0)
        return GB_STEP_ERROR;
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call)
        return GB_STEP_ERROR;
    gb_pool_peak_reset(gb_api_of(request)->core, &at, call);
    return gb_async_end(request, response, reply_acted, 0, err);
}

static int read_access(const struct gb_api *api, const json_t *body, int *ret_device, enum gb_pool_access *ret_access,
                       struct gb_error *err) {
    const char *word = NULL;
    int r = gb_device_field(api, body, "device", ret_device, err);

    if (r > 0)
        r = gb_json_string(body, "access", &word, err);
    if (r < 0)
        return -1;
    if (r == 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "give 'device', which is to reach the pool, and 'access': none or read_write");
    return gb_pool_access_parse(word, strlen(word), ret_access, err);
}

enum gb_step gb_api_pool_access(struct gb_http_request *request, struct gb_http_response *response,
                                struct gb_error *err) {
    enum gb_pool_access access;
    struct gb_pool_call *call;
    struct gb_locator at;
    json_t *body;
    int device;
    int r;

    if (gb_path_locator(request, "pool name", &at, err) < 0 || pool_permit(request, &at, err) < 0 ||
        gb_body_object(request, "device access", false, &body, err) < 0)
        return GB_STEP_ERROR;
    r = read_access(gb_api_of(request), body, &device, &access, err);
    json_decref(body);
    if (r < 0)
        return GB_STEP_ERROR;
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call)
        return GB_STEP_ERROR;
    gb_pool_peer_set(gb_api_of(request)->core, &at, device, access, call);
    return gb_async_end(request, response, reply_acted, 0, err);
}
