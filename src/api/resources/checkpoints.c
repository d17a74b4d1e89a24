/* Checkpoints: taken, listed, restored, deleted, and their files to and from clients. A file that a client brings
 * counts once the whole has arrived. Bodies go through sinks and sources on the loop of the request; the core writes
 * and reads on threads of its own. */
#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/auth.h"
#include "api/context.h"
#include "api/fleet/ask.h"
#include "api/pipeline/async.h"
#include "api/pipeline/conditional.h"
#include "api/pipeline/digest.h"
#include "api/pipeline/list.h"
#include "api/reply.h"
#include "api/request/body.h"
#include "api/request/query.h"
#include "api/resources/resumable.h"
#include "base/encoding.h"
#include "base/map.h"
#include "core/core.h"
#include "http/http.h"
#include "http/message/fields.h"
#include "model/token.h"

/* --- checkpoints -------------------------------------------------------------------------------------------------- */

/* Checkpoints: all but their files. */

/* --- views -------------------------------------------------------------------------------------------------------- */

/* Reads the checkpoint of the path, as far as the token may use it with that scope: one of another session is reported
 * like one that does not exist. Returns 0, or -1. */
static int path_checkpoint(const struct gb_http_request *request, enum gb_scope scope, struct gb_checkpoint_view *ret,
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
    struct gb_checkpoint_damage damages[GB_SWEEP_LISTED];
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
    gb_json_put_string(out, "session", view->session.s[0] ? view->session.s : NULL);
    gb_json_put_string(out, "state", view->complete ? "complete" : "incomplete");
    gb_json_put_time_or_null(out, "as_of", view->complete ? view->as_of_us : 0);
    gb_json_put_u64(out, "buffers", view->buffers);
    gb_json_put_u64(out, "bytes", view->bytes);
    put_damage(out, core, view);
}

static void put_listed(struct gb_json_writer *out, const char *key, const struct gb_sweep_skip *listed,
                       size_t listed_count) {
    size_t i;

    gb_json_open(out, key, '[');
    for (i = 0; i < listed_count; i++) {
        gb_json_open(out, NULL, '{');
        gb_json_put_string(out, "buffer", listed[i].name.s);
        gb_json_put_string(out, "code", gb_code_slug(listed[i].code));
        gb_json_close(out, '}');
    }
    gb_json_close(out, ']');
}

/* What a client that resumes a broken copy need not send again. */
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

    if (path_checkpoint(request, GB_SCOPE_VERIFY, &view, err) < 0)
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
            r = gb_error_memory(err, "request");
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
        return gb_error_memory(err, "request");
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
    if (r < 0 || gb_json_prefix(body, &params->prefix, err) < 0 ||
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
    put_listed(&out, "skipped", call->listed, call->listed_count);
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

    if (path_checkpoint(request, GB_SCOPE_WRITE, &view, err) < 0)
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
    for (i = 0; i < call->listed_count; i++) {
        gb_manifest_file(call->files[i], file);
        gb_json_open(&out, NULL, '{');
        gb_json_put_string(&out, "buffer", call->listed[i].name.s);
        gb_json_put_string(&out, "file", file);
        gb_json_put_string(&out, "code", gb_code_slug(call->listed[i].code));
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

    if (gb_body_no_fields(request, err) < 0 || path_checkpoint(request, GB_SCOPE_VERIFY, &view, err) < 0)
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
        gb_json_prefix(body, &params->prefix, err) < 0 || gb_json_bool(body, "replace", &params->replace, err) < 0 ||
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
    put_listed(&out, "skipped", call->listed, call->listed_count);
    gb_json_close(&out, '}');
    return gb_reply_json(&out, 200, response, err);
}

/* The token must see the checkpoint, and may write in the session. */
static int plan_restore(struct gb_http_request *request, struct gb_restore_params *params, struct gb_name **ret_names,
                        struct gb_error *err) {
    struct gb_checkpoint_view view;

    if (read_restore(request, params, ret_names, err) < 0 || path_checkpoint(request, GB_SCOPE_READ, &view, err) < 0)
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

/* --- files to a client -------------------------------------------------------------------------------------------- */

/* The files of a checkpoint, out to a client. */

struct file {
    struct gb_http_source source; /* first */
    struct gb_checkpoint_read *read;
    struct gb_checkpoint_view view;
    bool begun;
    uint64_t left;
};

/* --- the body ----------------------------------------------------------------------------------------------------- */

static int source_next(struct gb_http_source *source, const void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    return gb_checkpoint_read_next(((struct file *)source)->read, ret_ptr, ret_n, err);
}

static void source_sent(struct gb_http_source *source, size_t n) {
    gb_checkpoint_read_sent(((struct file *)source)->read, n);
}

static void source_free(struct gb_http_source *source, bool complete) {
    struct file *f = (struct file *)source;

    (void)complete;
    gb_checkpoint_read_free(f->read);
    free(f);
}

static void state_free(void *state) {
    source_free(state, false);
}

static void wake(void *arg) {
    gb_http_wake(arg);
}

/* --- the head ----------------------------------------------------------------------------------------------------- */

static int add_headers(const struct gb_http_request *request, const struct gb_checkpoint_file *head,
                       struct gb_http_response *response, struct gb_error *err) {
    const char *file = request->param[1].s;
    bool json = strcmp(strrchr(file, '.'), ".json") == 0;
    uint32_t crc = htobe32(head->crc32c);
    char text[GB_BASE64_SIZE(sizeof(crc))];
    int r =
        gb_http_response_header(response, err, "Content-Type", "%s", json ? "application/json" : GB_MEDIA_SAFETENSORS);

    r |= gb_http_response_header(response, err, "Accept-Ranges", "bytes");
    if (!head->has_crc32c)
        return r;
    gb_base64_write(&crc, sizeof(crc), false, text);
    r |= gb_http_response_header(response, err, "Repr-Digest", "crc32c=:%s:", text);
    return r | gb_http_response_header(response, err, "Gpubuf-Crc32c", "%08" PRIx32, head->crc32c);
}

/* Several ranges are answered with the whole. */
static int choose_range(const struct gb_http_request *request, const char *tag, uint64_t size, struct gb_range *ret,
                        struct gb_http_response *response, struct gb_error *err) {
    const char *range = gb_http_header(request, "Range");
    const char *if_range = gb_http_header(request, "If-Range");
    struct gb_range_set set;
    enum gb_range_kind kind;

    if (request->method == GB_HTTP_HEAD || (if_range && !gb_etag_if_range(if_range, tag)))
        range = NULL;
    kind = gb_range_parse(range, size, &set);
    *ret = (struct gb_range){.first = 0, .length = size};
    if (kind == GB_RANGE_UNSATISFIABLE) {
        gb_http_response_header(response, err, "Content-Range", "bytes */%" PRIu64, size);
        return gb_error_set(err, GB_ERR_RANGE_NOT_SATISFIABLE, "the file has %" PRIu64 " bytes", size);
    }
    if (kind == GB_RANGE_WHOLE || set.count > 1)
        return 0;
    *ret = set.range[0];
    response->status = 206;
    return gb_http_response_header(response, err, "Content-Range", "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, ret->first,
                                   ret->first + ret->length - 1, size);
}

static enum gb_step send(struct gb_http_request *request, struct gb_http_response *response) {
    struct file *f = request->state;

    f->source = (struct gb_http_source){.next = source_next, .sent = source_sent, .free = source_free};
    request->state = NULL;
    request->state_free = NULL;
    gb_http_response_source(response, &f->source, f->left);
    return GB_STEP_REPLY;
}

/* The file is open. Returns 1 to send, 0 when the response is complete, or -1. */
static int begin(struct gb_http_request *request, const struct gb_checkpoint_file *head,
                 struct gb_http_response *response, struct gb_error *err) {
    struct file *f = request->state;
    char tag[GB_ETAG_SIZE] = "";
    struct gb_range range;
    int r = 1;

    /* A file that may still be replaced has no tag. */
    if (head->has_crc32c) {
        snprintf(tag, sizeof(tag), "k%" PRIx64 ".%08" PRIx32 ".%" PRIx64, (uint64_t)f->view.as_of_us, head->crc32c,
                 head->size);
        r = gb_conditions_get(request, tag, response, err);
    }
    if (r > 0 && (choose_range(request, tag, head->size, &range, response, err) < 0 ||
                  add_headers(request, head, response, err) < 0))
        return -1;
    if (r > 0) {
        f->left = range.length;
        if (request->method != GB_HTTP_HEAD && range.length > 0)
            gb_checkpoint_read_start(f->read, range.first, range.length);
    }
    return r;
}

static enum gb_step fail(struct gb_http_response *response, const struct gb_error *err) {
    if (err->code != GB_ERR_RANGE_NOT_SATISFIABLE)
        gb_http_response_done(response);
    return GB_STEP_ERROR;
}

/* Waits for the file, then for its first block, so that a failure still becomes the status. */
static enum gb_step resume(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct file *f = request->state;
    struct gb_checkpoint_file head;
    const void *block;
    size_t n;
    int r = gb_checkpoint_read_head(f->read, &head, err);

    if (r > 0 && !f->begun) {
        r = begin(request, &head, response, err);
        if (r == 0)
            return GB_STEP_REPLY;
        f->begun = true;
    }
    if (r > 0 && (request->method == GB_HTTP_HEAD || f->left == 0))
        return send(request, response);
    if (r > 0)
        r = gb_checkpoint_read_next(f->read, &block, &n, err);
    if (r > 0)
        return send(request, response);
    if (r == 0 && !request->timed_out)
        return GB_STEP_WAIT;
    if (r == 0)
        gb_error_set(err, GB_ERR_TIMED_OUT, "the disk did not give the first bytes in the permitted time");
    return fail(response, err);
}

enum gb_step gb_api_checkpoint_file_get(struct gb_http_request *request, struct gb_http_response *response,
                                        struct gb_error *err) {
    enum gb_scope scope = request->method == GB_HTTP_HEAD ? GB_SCOPE_VERIFY : GB_SCOPE_READ;
    struct file *f;

    f = calloc(1, sizeof(*f));
    if (!f) {
        gb_error_memory(err, "download");
        return GB_STEP_ERROR;
    }
    request->state = f;
    request->state_free = state_free;
    if (path_checkpoint(request, scope, &f->view, err) < 0 ||
        gb_checkpoint_read_open(gb_api_of(request)->core, &f->view.name, request->param[1].s,
                                (struct gb_waker){wake, request}, &f->read, err) < 0)
        return GB_STEP_ERROR;
    request->resume = resume;
    return resume(request, response, err);
}

/* --- a file from a client ----------------------------------------------------------------------------------------- */

/* A file of a checkpoint that a client brings. */

struct sink {
    struct gb_http_sink sink; /* first */
    struct gb_checkpoint_put *put;
    uint64_t size;
};

static int sink_room(struct gb_http_sink *sink, void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    return gb_checkpoint_put_room(((struct sink *)sink)->put, ret_ptr, ret_n, err);
}

static int sink_fill(struct gb_http_sink *sink, size_t n, struct gb_error *err) {
    return gb_checkpoint_put_fill(((struct sink *)sink)->put, n, err);
}

static void sink_free(struct gb_http_sink *sink) {
    struct sink *s = (struct sink *)sink;

    gb_checkpoint_put_free(s->put);
    free(s);
}

static enum gb_step reply(const struct gb_http_request *request, const struct sink *s, uint32_t crc, bool replaced,
                          struct gb_http_response *response, struct gb_error *err) {
    struct gb_json_writer out = {0};
    char text[9];

    snprintf(text, sizeof(text), "%08" PRIx32, crc);
    gb_json_open(&out, NULL, '{');
    gb_json_put_string(&out, "checkpoint", request->param[0].s);
    gb_json_put_string(&out, "file", request->param[1].s);
    gb_json_put_u64(&out, "size", s->size);
    gb_json_put_string(&out, "crc32c", text);
    gb_json_close(&out, '}');
    return gb_reply_json(&out, replaced ? 200 : 201, response, err);
}

/* Also runs at each wake until the file is there. */
static enum gb_step finish(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct sink *s = (struct sink *)request->sink;
    bool replaced;
    uint32_t crc;
    int r = gb_checkpoint_put_result(s->put, &crc, &replaced, err);

    if (r < 0)
        return GB_STEP_ERROR;
    return r > 0 ? reply(request, s, crc, replaced, response, err) : gb_body_await(request, "disk", err);
}

static enum gb_step sink_end(struct gb_http_sink *sink, struct gb_http_request *request,
                             struct gb_http_response *response, struct gb_error *err) {
    gb_checkpoint_put_end(((struct sink *)sink)->put);
    return gb_http_await(request, finish, response, err);
}

/* The name is free when the client learns why. */
static enum gb_step sink_refused(struct gb_http_sink *sink, struct gb_http_request *request, struct gb_error *err) {
    struct gb_error why = *err;

    gb_checkpoint_put_refuse(((struct sink *)sink)->put, &why);
    *err = GB_ERROR_INIT;
    return gb_http_await(request, finish, NULL, err);
}

static int check_body(struct gb_http_request *request, struct gb_http_response *response, struct gb_filters *ret,
                      struct gb_error *err) {
    if (gb_resumable_refuse(request, err) < 0 || gb_filters_read(request, response, ret, err) < 0)
        return -1;
    if (ret->coded)
        return gb_error_set(err, GB_ERR_UNSUPPORTED_MEDIA_TYPE,
                            "a file of a checkpoint is sent as it is, without Content-Encoding");
    if (!request->has_content_length)
        return gb_error_set(err, GB_ERR_LENGTH_REQUIRED, "send Content-Length: the file's size is checked before");
    return 0;
}

/* A token that is bound to a session brings checkpoints of that session alone. */
static int read_params(const struct gb_http_request *request, struct gb_checkpoint_put_params *params,
                       struct gb_error *err) {
    if (gb_param_name(request, 0, "checkpoint name", &params->name, err) < 0 ||
        gb_api_bound(request, GB_SCOPE_WRITE, &params->session, err) < 0)
        return -1;
    params->file = request->param[1].s;
    params->size = request->content_length;
    return 0;
}

enum gb_step gb_api_checkpoint_file_put(struct gb_http_request *request, struct gb_http_response *response,
                                        struct gb_error *err) {
    struct gb_checkpoint_put_params params = {.waker = {wake, request}};
    struct gb_filters filters;
    struct sink *s;

    if (check_body(request, response, &filters, err) < 0 || read_params(request, &params, err) < 0)
        return GB_STEP_ERROR;
    s = calloc(1, sizeof(*s));
    if (!s) {
        gb_error_memory(err, "upload");
        return GB_STEP_ERROR;
    }
    s->sink = (struct gb_http_sink){
        .room = sink_room, .fill = sink_fill, .end = sink_end, .refused = sink_refused, .free = sink_free};
    s->size = params.size;
    if (gb_checkpoint_put_begin(gb_api_of(request)->core, &params, &s->put, err) < 0) {
        sink_free(&s->sink);
        return GB_STEP_ERROR;
    }
    return gb_filters_wrap(request, &filters, &s->sink, err);
}
