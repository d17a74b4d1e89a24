/* Checkpoints: all but their files. */
#include "api/resources/checkpoints.h"

#include <stdlib.h>
#include <string.h>

#include "api/auth.h"
#include "api/context.h"
#include "api/list/link.h"
#include "api/middleware/async.h"
#include "api/reply/render.h"
#include "api/reply/reply_json.h"
#include "api/request/body.h"
#include "api/request/device_param.h"
#include "api/request/json.h"
#include "api/request/path_params.h"
#include "api/request/query.h"
#include "api/resources/fleet_ask.h"
#include "api/route.h"
#include "base/encoding.h"
#include "base/map.h"

/* --- views -------------------------------------------------------------------------------------------------------- */

int gb_path_checkpoint(const struct gb_http_request *request, enum gb_scope scope, struct gb_checkpoint_view *ret,
                       struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    struct gb_name name;

    if (gb_param_name(request, 0, "checkpoint name", &name, err) < 0 ||
        gb_checkpoint_get(gb_api_of(request)->core, &name, ret, err) < 0)
        return -1;
    if (gb_api_permit(request, scope, ret->session.s, &why) == 0)
        return 0;
    /* A token that sees the checkpoint lacks the scope. */
    if (why.code != GB_ERR_FORBIDDEN || gb_api_permit(request, GB_SCOPE_VERIFY, ret->session.s, NULL) == 0)
        return gb_error_move(err, &why);
    return gb_error_set(err, GB_ERR_CHECKPOINT_NOT_FOUND, "there is no checkpoint named \"%s\"", name.s);
}

static void put_damage(struct gb_json_writer *out, struct gb_core *core, const struct gb_checkpoint_view *view) {
    struct gb_checkpoint_damage damages[GB_SWEEP_TOLD];
    size_t count = view->damaged_files > 0 ? gb_checkpoint_damages(core, &view->name, damages) : 0;
    size_t i;

    gb_json_put_u64(out, "damaged_files", view->damaged_files);
    gb_json_open(out, "damaged", '[');
    for (i = 0; i < count; i++) {
        gb_json_open(out, NULL, '{');
        gb_json_put_string(out, "file", damages[i].file);
        gb_json_put_string(out, "code", gb_code_slug(damages[i].code));
        gb_json_close(out, '}');
    }
    gb_json_close(out, ']');
}

static void put_members(struct gb_json_writer *out, struct gb_core *core, const struct gb_checkpoint_view *view) {
    gb_json_put_string(out, "name", view->name.s);
    if (view->session.s[0])
        gb_json_put_string(out, "session", view->session.s);
    else
        gb_json_put_null(out, "session");
    gb_json_put_string(out, "state", view->complete ? "complete" : "incomplete");
    if (view->complete)
        gb_json_put_time(out, "as_of", view->as_of_us);
    else
        gb_json_put_null(out, "as_of");
    gb_json_put_u64(out, "buffers", view->buffers);
    gb_json_put_u64(out, "bytes", view->bytes);
    put_damage(out, core, view);
}

static void put_told(struct gb_json_writer *out, const char *key, const struct gb_sweep_skip *tell, size_t told) {
    size_t i;

    gb_json_open(out, key, '[');
    for (i = 0; i < told; i++) {
        gb_json_open(out, NULL, '{');
        gb_json_put_string(out, "buffer", tell[i].name.s);
        gb_json_put_string(out, "code", gb_code_slug(tell[i].code));
        gb_json_close(out, '}');
    }
    gb_json_close(out, ']');
}

/* What a client that goes on with a broken copy need not send again. */
static void put_brought(struct gb_json_writer *out, struct gb_core *core, const struct gb_checkpoint_view *view) {
    struct gb_checkpoint_brought brought[64];
    size_t index = 0;
    size_t count;
    char text[9];
    size_t i;

    gb_json_open(out, "brought", '[');
    while ((count = gb_checkpoint_brought(core, &view->name, &index, brought, 64)) > 0) {
        for (i = 0; i < count; i++) {
            *gb_digits_hex(text, brought[i].crc32c, 8) = '\0';
            gb_json_open(out, NULL, '{');
            gb_json_put_string(out, "file", brought[i].file);
            gb_json_put_u64(out, "size", brought[i].size);
            gb_json_put_string(out, "crc32c", text);
            gb_json_close(out, '}');
        }
    }
    gb_json_close(out, ']');
}

enum gb_step gb_api_checkpoint_get(struct gb_http_request *request, struct gb_http_response *response,
                                   struct gb_error *err) {
    struct gb_checkpoint_view view;
    struct gb_json_writer out = {0};

    if (gb_path_checkpoint(request, GB_SCOPE_VERIFY, &view, err) < 0)
        return GB_STEP_ERROR;
    gb_json_open(&out, NULL, '{');
    put_members(&out, gb_api_of(request)->core, &view);
    if (!view.complete)
        put_brought(&out, gb_api_of(request)->core, &view);
    gb_json_close(&out, '}');
    return gb_reply_tagged(&out, 'k', response, err);
}

struct listing {
    struct gb_core *core;
    struct gb_json_writer out;
    int64_t last;
};

static int put_item(void *arg, const struct gb_checkpoint_view *view, struct gb_error *err) {
    struct listing *listing = arg;

    (void)err;
    gb_json_open(&listing->out, NULL, '{');
    put_members(&listing->out, listing->core, view);
    gb_json_close(&listing->out, '}');
    listing->last = view->number;
    return 0;
}

enum gb_step gb_api_checkpoint_list(struct gb_http_request *request, struct gb_http_response *response,
                                    struct gb_error *err) {
    struct listing listing = {.core = gb_api_of(request)->core};
    const struct gb_name *of = NULL;
    char cursor[GB_CURSOR_SIZE];
    struct gb_name session;
    struct gb_name bound;
    struct gb_page page;
    int r = gb_query_name(request, "session", &session, err);

    if (r < 0 || gb_page_read(request, &page, err) < 0 || gb_api_bound(request, GB_SCOPE_VERIFY, &bound, err) < 0 ||
        (r > 0 && gb_api_permit(request, GB_SCOPE_VERIFY, session.s, err) < 0))
        return GB_STEP_ERROR;
    if (r > 0)
        of = &session;
    else if (bound.s[0])
        of = &bound;
    gb_render_list_open(&listing.out);
    gb_checkpoint_list(listing.core, &page, of, put_item, &listing, NULL);
    return gb_list_reply(request, &listing.out, page.more ? gb_cursor_text(listing.last, cursor) : NULL, response, err);
}

/* --- bodies ------------------------------------------------------------------------------------------------------- */

/* A prefix is a name, or "" for none. */
static int read_prefix(const json_t *body, struct gb_name *ret, struct gb_error *err) {
    const char *text;
    int r = gb_json_string(body, "prefix", &text, err);

    if (r > 0 && text[0] != '\0')
        r = gb_name_parse("prefix", text, strlen(text), ret, err);
    return r < 0 ? -1 : 0;
}

static int read_each(const json_t *list, struct gb_name *names, struct gb_error *err) {
    struct gb_map seen = {.count = 0};
    json_t *value;
    size_t i;
    int r = 0;

    json_array_foreach(list, i, value) {
        if (!json_is_string(value))
            r = gb_error_set(err, GB_ERR_WRONG_TYPE, "each of 'names' must be a string");
        else
            r = gb_name_parse("buffer name", json_string_value(value), json_string_length(value), &names[i], err);
        if (r == 0 && gb_map_get(&seen, names[i].s))
            r = gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "'names' has \"%s\" twice", names[i].s);
        if (r == 0 && gb_map_put(&seen, names[i].s, &names[i]) < 0)
            r = gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
        if (r < 0)
            break;
    }
    gb_map_done(&seen);
    return r;
}

/* null is as good as nothing. *ret_room is malloc'd. */
static int read_names(const json_t *body, struct gb_checkpoint_names *ret, struct gb_name **ret_room,
                      struct gb_error *err) {
    const json_t *list = json_object_get(body, "names");

    *ret_room = NULL;
    if (!list || json_is_null(list))
        return 0;
    if (!json_is_array(list))
        return gb_error_set(err, GB_ERR_WRONG_TYPE, "the field 'names' must be a list of buffers' names, or null");
    *ret_room = malloc((json_array_size(list) + 1) * sizeof(**ret_room));
    if (!*ret_room)
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
    *ret = (struct gb_checkpoint_names){.names = *ret_room, .count = json_array_size(list), .given = true};
    return read_each(list, *ret_room, err);
}

/* --- making ------------------------------------------------------------------------------------------------------- */

static int read_create(const struct gb_http_request *request, struct gb_checkpoint_params *params,
                       struct gb_name **ret_names, struct gb_error *err) {
    json_t *body;
    int r;

    if (gb_body_object(request, "name prefix names lenient unstable", false, &body, err) < 0)
        return -1;
    r = gb_json_name(body, "name", &params->name, err);
    if (r == 0)
        r = gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the field 'name' is required: the checkpoint's");
    if (r < 0 || read_prefix(body, &params->prefix, err) < 0 ||
        gb_json_bool(body, "lenient", &params->lenient, err) < 0 ||
        gb_json_bool(body, "unstable", &params->unstable, err) < 0)
        r = -1;
    else
        r = read_names(body, &params->names, ret_names, err);
    json_decref(body);
    if (r == 0 && params->names.given && params->prefix.s[0])
        r = gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "give 'prefix' or 'names', not both");
    return r;
}

static enum gb_step reply_created(struct gb_http_request *request, const void *result,
                                  struct gb_http_response *response, struct gb_error *err) {
    const struct gb_checkpoint_call *call = result;
    struct gb_json_writer out = {0};

    gb_json_open(&out, NULL, '{');
    put_members(&out, gb_api_of(request)->core, &call->view);
    gb_json_put_u64(&out, "linked_bytes", call->linked_bytes);
    gb_json_put_u64(&out, "written_bytes", call->written_bytes);
    gb_json_put_u64(&out, "skipped_buffers", call->skipped);
    put_told(&out, "skipped", call->tell, call->told);
    gb_json_close(&out, '}');
    return gb_reply_json(&out, 201, response, err);
}

enum gb_step gb_api_checkpoint_create(struct gb_http_request *request, struct gb_http_response *response,
                                      struct gb_error *err) {
    struct gb_checkpoint_params params = {.lenient = false};
    struct gb_checkpoint_call *call = NULL;
    struct gb_name *names = NULL;

    if (gb_path_session(request, &params.session, err) == 0 && read_create(request, &params, &names, err) == 0)
        call = gb_async_begin(request, sizeof(*call), err);
    if (call)
        gb_checkpoint_create(gb_api_of(request)->core, &params, call);
    free(names);
    return call ? gb_async_end(request, response, reply_created, 0, err) : GB_STEP_ERROR;
}

enum gb_step gb_api_checkpoint_delete(struct gb_http_request *request, struct gb_http_response *response,
                                      struct gb_error *err) {
    struct gb_checkpoint_view view;
    struct gb_call *call;

    if (gb_path_checkpoint(request, GB_SCOPE_WRITE, &view, err) < 0)
        return GB_STEP_ERROR;
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call)
        return GB_STEP_ERROR;
    gb_checkpoint_delete(gb_api_of(request)->core, &view.name, call);
    return gb_async_end(request, response, gb_reply_nothing, 0, err);
}

/* --- verify ------------------------------------------------------------------------------------------------------- */

static enum gb_step reply_verified(struct gb_http_request *request, const void *result,
                                   struct gb_http_response *response, struct gb_error *err) {
    const struct gb_checkpoint_verify_call *call = result;
    char file[GB_MANIFEST_FILE_SIZE];
    struct gb_json_writer out = {0};
    size_t i;

    (void)request;
    gb_json_open(&out, NULL, '{');
    gb_json_put_bool(&out, "match", call->damaged == 0);
    gb_json_put_u64(&out, "buffers", call->buffers);
    gb_json_put_u64(&out, "bytes", call->bytes);
    gb_json_put_u64(&out, "damaged_buffers", call->damaged);
    gb_json_open(&out, "damaged", '[');
    for (i = 0; i < call->told; i++) {
        gb_manifest_file(call->files[i], file);
        gb_json_open(&out, NULL, '{');
        gb_json_put_string(&out, "buffer", call->tell[i].name.s);
        gb_json_put_string(&out, "file", file);
        gb_json_put_string(&out, "code", gb_code_slug(call->tell[i].code));
        gb_json_close(&out, '}');
    }
    gb_json_close(&out, ']');
    gb_json_close(&out, '}');
    return gb_reply_json(&out, 200, response, err);
}

enum gb_step gb_api_checkpoint_verify(struct gb_http_request *request, struct gb_http_response *response,
                                      struct gb_error *err) {
    struct gb_checkpoint_verify_call *call;
    struct gb_checkpoint_view view;

    if (gb_body_no_fields(request, err) < 0 || gb_path_checkpoint(request, GB_SCOPE_VERIFY, &view, err) < 0)
        return GB_STEP_ERROR;
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call)
        return GB_STEP_ERROR;
    gb_checkpoint_verify(gb_api_of(request)->core, &view.name, call);
    return gb_async_end(request, response, reply_verified, 0, err);
}

/* --- restore ------------------------------------------------------------------------------------------------------ */

static int read_load(const json_t *body, bool *ret_eager, struct gb_error *err) {
    const char *load = "lazy";

    if (gb_json_string(body, "load", &load, err) < 0)
        return -1;
    *ret_eager = strcmp(load, "eager") == 0;
    return *ret_eager || strcmp(load, "lazy") == 0
               ? 0
               : gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "'load' must be \"lazy\" or \"eager\"");
}

static int read_restore(const struct gb_http_request *request, struct gb_restore_params *params,
                        struct gb_name **ret_names, struct gb_error *err) {
    json_t *body;
    int device;
    int r;

    if (gb_body_object(request, "into prefix names replace load device", true, &body, err) < 0)
        return -1;
    device = gb_device_field(gb_api_of(request), body, "device", &params->device, err);
    params->has_device = device > 0;
    if (device < 0 || gb_json_name(body, "into", &params->into, err) < 0 ||
        read_prefix(body, &params->prefix, err) < 0 || gb_json_bool(body, "replace", &params->replace, err) < 0 ||
        read_load(body, &params->eager, err) < 0)
        r = -1;
    else
        r = read_names(body, &params->names, ret_names, err);
    json_decref(body);
    return r;
}

static enum gb_step reply_restored(struct gb_http_request *request, const void *result,
                                   struct gb_http_response *response, struct gb_error *err) {
    const struct gb_restore_call *call = result;
    struct gb_json_writer out = {0};

    gb_json_open(&out, NULL, '{');
    gb_json_put_string(&out, "checkpoint", request->param[0].s);
    gb_json_put_string(&out, "session", call->session.s);
    gb_json_put_u64(&out, "buffers", call->buffers);
    gb_json_put_u64(&out, "bytes", call->bytes);
    gb_json_put_u64(&out, "replaced", call->replaced);
    gb_json_put_u64(&out, "loaded", call->loaded);
    gb_json_put_u64(&out, "skipped_buffers", call->skipped);
    put_told(&out, "skipped", call->tell, call->told);
    gb_json_close(&out, '}');
    return gb_reply_json(&out, 200, response, err);
}

/* The token must see the checkpoint, and may write in the session. */
static int plan_restore(struct gb_http_request *request, struct gb_restore_params *params, struct gb_name **ret_names,
                        struct gb_error *err) {
    struct gb_checkpoint_view view;

    if (read_restore(request, params, ret_names, err) < 0 || gb_path_checkpoint(request, GB_SCOPE_READ, &view, err) < 0)
        return -1;
    params->checkpoint = view.name;
    if (params->into.s[0] == '\0')
        params->into = view.session;
    return gb_api_permit(request, GB_SCOPE_WRITE, params->into.s, err);
}

static enum gb_step refuse_elsewhere(struct gb_http_request *request, struct gb_http_response *response,
                                     struct gb_error *err) {
    const struct gb_fleet_session *there = &((const struct gb_asking *)request->state)->of.find.session;

    (void)response;
    if (gb_name_equal(&there->node, &gb_api_of(request)->fleet_is.node))
        gb_error_set(err, GB_ERR_SESSION_MOVING, "the session \"%s\" comes to this node; try again", there->name.s);
    else
        gb_error_set(err, GB_ERR_NOT_HERE,
                     "the session \"%s\" is on the node \"%s\", and the files of the checkpoint are on this one: "
                     "restore it into another session here, and copy the buffers from there",
                     there->name.s, there->node.s);
    return GB_STEP_ERROR;
}

/* A session that is not here may be at another node. */
static enum gb_step ask_where(struct gb_http_request *request, const struct gb_name *into,
                              struct gb_http_response *response, struct gb_error *err) {
    struct gb_asking *asking = gb_asking_begin(request, refuse_elsewhere, err);

    if (!asking)
        return GB_STEP_ERROR;
    if (gb_fleet_find(asking->fleet, into, false, &asking->of.find))
        atomic_store(&asking->done, true);
    return gb_asking_wait(request, response, err);
}

enum gb_step gb_api_checkpoint_restore(struct gb_http_request *request, struct gb_http_response *response,
                                       struct gb_error *err) {
    struct gb_restore_params params = {.replace = false};
    struct gb_api *api = gb_api_of(request);
    struct gb_restore_call *call = NULL;
    enum gb_step step = GB_STEP_ERROR;
    struct gb_name *names = NULL;
    struct gb_session_bond bond;

    if (plan_restore(request, &params, &names, err) < 0)
        step = GB_STEP_ERROR;
    else if (api->fleet && !gb_session_bond(api->core, params.into.s, &bond))
        step = ask_where(request, &params.into, response, err);
    else
        call = gb_async_begin(request, sizeof(*call), err);
    if (call)
        gb_checkpoint_restore(api->core, &params, call);
    free(names);
    return call ? gb_async_end(request, response, reply_restored, 0, err) : step;
}
