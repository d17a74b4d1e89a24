/* Copies from a URL or a file: what the request asks, which options permit it, and the reply. source/ moves the bytes.
 * resources/writes.c calls this, and fleet/pull.c for the reply. */
#include "api/resources/sources.h"

#include <string.h>

#include "api/context.h"
#include "api/pipeline/conditional.h"
#include "api/pipeline/digest.h"
#include "api/reply.h"
#include "api/request/body.h"
#include "api/request/query.h"
#include "api/resources/upload.h"
#include "base/json_writer.h"
#include "source/source.h"

#define HEADER_MAX 8192

/* --- the reply ---------------------------------------------------------------------------------------------------- */

static void render_pulled(struct gb_json_writer *out, const void *result) {
    const struct gb_pull_numbers *numbers = &((const struct gb_pull_call *)result)->numbers;

    gb_json_put_string(out, "way", "pull");
    gb_json_open(out, "pulled", '{');
    if (numbers->tag[0] != '\0')
        gb_json_put_untrusted(out, "etag", numbers->tag, SIZE_MAX);
    else
        gb_json_put_null(out, "etag");
    if (numbers->has_generation)
        gb_json_put_u64(out, "generation", numbers->generation);
    else
        gb_json_put_null(out, "generation");
    gb_json_put_u64(out, "bytes", numbers->bytes);
    gb_json_put_u64(out, "received_bytes", numbers->received_bytes);
    gb_json_put_u64(out, "parts", numbers->connections);
    gb_json_put_u64(out, "resumed", numbers->resumed);
    gb_json_put_u64(out, "begun_again", numbers->begun_again);
    gb_json_put_u64(out, "failovers", numbers->failovers);
    gb_json_put_bool(out, "verified", numbers->verified);
    gb_json_close(out, '}');
}

static enum gb_step reply_pulled(struct gb_http_request *request, const void *result, struct gb_http_response *response,
                                 struct gb_error *err) {
    const struct gb_pull_call *call = result;

    return gb_written_reply(request, &call->written, render_pulled, response, err);
}

static void progress(const struct gb_http_request *request, uint64_t *ret_bytes, uint64_t *ret_total) {
    struct gb_pull_call *call = (struct gb_pull_call *)(uintptr_t)gb_async_call(request);

    *ret_bytes = atomic_load(&call->moved_bytes);
    *ret_total = atomic_load(&call->total_bytes);
}

enum gb_step gb_api_pull_end(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    request->progress = progress;
    return gb_async_end(request, response, reply_pulled, 0, err);
}

/* --- fields ------------------------------------------------------------------------------------------------------- */

bool gb_api_source_is_asked(const json_t *body) {
    return json_object_get(body, "from_url") || json_object_get(body, "from_file");
}

int gb_api_read_parts(const json_t *object, unsigned *ret, struct gb_error *err) {
    uint64_t parts;
    int r = gb_json_u64(object, "parts", &parts, err);

    *ret = 0;
    if (r <= 0)
        return r;
    *ret = parts <= GB_PULL_CONNECTIONS_MAX ? (unsigned)parts : 0;
    if (*ret > 0)
        return 0;
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the field 'parts' must be 1 to %d", GB_PULL_CONNECTIONS_MAX);
}

/* All of a source is copied, into memory of its own. */
static int refuse_others(const json_t *body, const char *from, struct gb_error *err) {
    static const char *const ranges[] = {"from_offset", "offset", "bytes", "in_place", "side", "share"};
    size_t i;

    if (json_object_get(body, "from") || (json_object_get(body, "from_url") && json_object_get(body, "from_file")))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "give one source: 'from', 'from_url' or 'from_file'");
    for (i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
        if (json_object_get(body, ranges[i]))
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                                "the field '%s' does not go with '%s': all bytes of the source are copied, into new "
                                "memory",
                                ranges[i], from);
    if (json_object_get(body, "from_if_match"))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "with '%s' the tag that the source must have is 'if_match'",
                            from);
    if (json_object_get(body, "headers") && strcmp(from, "from_url") != 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the field 'headers' goes with 'from_url' alone");
    return gb_json_known(body, "the body", GB_SOURCE_FIELDS, err);
}

static int read_format(const json_t *body, struct gb_image_ask *ret, struct gb_error *err) {
    static const char *const names[] = {"auto", "raw", "npy", "safetensors"};
    const char *text;
    size_t i;
    int r = gb_json_string(body, "format", &text, err);

    if (r <= 0)
        return r;
    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(text, names[i]) == 0) {
            ret->format = (enum gb_image_format)i;
            return 0;
        }
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the field 'format' must be auto, raw, npy or safetensors");
}

static int read_layout(const json_t *body, struct gb_image_ask *ret, struct gb_error *err) {
    uint64_t bytes;
    int r = gb_json_dtype(body, "dtype", &ret->dtype, err);

    ret->has_dtype = r > 0;
    if (r < 0)
        return -1;
    r = gb_json_shape(body, "shape", &ret->shape, err);
    ret->has_shape = r > 0;
    if (r < 0 || read_format(body, ret, err) < 0 || gb_json_bool(body, "pack", &ret->pack, err) < 0)
        return -1;
    if ((ret->has_dtype || ret->has_shape) && ret->format > GB_IMAGE_RAW)
        return gb_error_set(
            err, GB_ERR_INVALID_ARGUMENT,
            "a file of that format says dtype and shape itself; leave them out, or give format \"raw\"");
    return ret->has_shape ? gb_shape_bytes(&ret->shape, ret->has_dtype ? ret->dtype : GB_DTYPE_UINT8, &bytes, err) : 0;
}

/* --- headers ------------------------------------------------------------------------------------------------------ */

/* Also not blank, as libcurl would not send that. */
static bool is_line(const char *text) {
    bool blank = true;

    for (; *text; text++) {
        if ((unsigned char)*text < ' ' || (unsigned char)*text == 0x7f)
            return false;
        blank = blank && *text == ' ';
    }
    return !blank;
}

static int read_header(const char *name, const json_t *value, char *out, size_t room, size_t *ret_n,
                       struct gb_error *err) {
    const char *text = json_string_value(value);
    char quoted[GB_WORD_QUOTE_SIZE];
    int n;

    if (!gb_source_header_permitted(name, strlen(name)))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "the header '%s' cannot be given: it is no name of a header, or one that the daemon sets "
                            "itself, as are those of the connection, Range, If-* and Content-*",
                            gb_word_quote(name, strlen(name), quoted));
    if (!text)
        return gb_error_set(err, GB_ERR_WRONG_TYPE, "the value of the header '%s' must be a string", name);
    if (strlen(text) != json_string_length(value) || !is_line(text))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "the value of the header '%s' must be one line of text, and not blank", name);
    n = snprintf(out, room, "%s: %s", name, text);
    if (n < 0 || (size_t)n >= room)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the headers have more than %d bytes", HEADER_MAX);
    *ret_n = (size_t)n + 1;
    return 0;
}

struct headers {
    const char *line[GB_SOURCE_HEADERS_MAX];
    char text[HEADER_MAX];
};

static int read_headers(const json_t *body, struct headers *room, struct gb_source_params *ret, struct gb_error *err) {
    const json_t *object = NULL;
    const char *name;
    size_t used = 0;
    json_t *value;
    size_t n = 0;

    if (gb_json_child(body, "headers", &object, err) < 0)
        return -1;
    if (json_object_size(object) > GB_SOURCE_HEADERS_MAX)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the field 'headers' has %zu headers; %d are permitted",
                            json_object_size(object), GB_SOURCE_HEADERS_MAX);
    json_object_foreach((json_t *)(uintptr_t)object, name, value) {
        if (read_header(name, value, room->text + used, sizeof(room->text) - used, &n, err) < 0)
            return -1;
        room->line[ret->header_count++] = room->text + used;
        used += n;
    }
    ret->headers = room->line;
    return 0;
}

/* --- what is permitted -------------------------------------------------------------------------------------------- */

static int permit_url(const struct gb_api *api, struct gb_source_params *ret, struct gb_error *err) {
    char origin[GB_PULL_ORIGIN_SIZE];
    size_t i;

    if (gb_source_url_read(ret->url, origin, err) < 0)
        return -1;
    ret->permitted = api->pull_from;
    ret->permitted_count = api->pull_from_count;
    for (i = 0; i < api->pull_from_count; i++)
        if (strcmp(api->pull_from[i], origin) == 0)
            return 0;
    return gb_error_set(err, GB_ERR_SOURCE_NOT_PERMITTED, "this daemon may not copy from %s: --pull-from %s permits it",
                        origin, origin);
}

static int permit_file(const struct gb_api *api, struct gb_source_params *ret, struct gb_error *err) {
    if (gb_source_file_read(ret->file, err) < 0)
        return -1;
    ret->folders = api->files_from;
    ret->folder_count = api->files_from_count;
    if (api->files_from_count > 0)
        return 0;
    return gb_error_set(err, GB_ERR_SOURCE_NOT_PERMITTED, "this daemon may not copy files: --files-from is not given");
}

static int read_origin(const struct gb_api *api, const json_t *body, struct gb_source_params *ret,
                       struct gb_error *err) {
    int r = gb_json_string(body, "from_url", &ret->url, err);

    if (r == 0)
        r = gb_json_string(body, "from_file", &ret->file, err);
    if (r < 0 || refuse_others(body, ret->url ? "from_url" : "from_file", err) < 0)
        return -1;
    return ret->url ? permit_url(api, ret, err) : permit_file(api, ret, err);
}

/* --- the request -------------------------------------------------------------------------------------------------- */

/* The labels are a reference of the caller's then. */
static int read_target(const struct gb_http_request *request, const json_t *body, struct gb_source_params *ret,
                       struct gb_error *err) {
    struct gb_buffer_params *to = &ret->to;
    int r;

    to->kind = GB_KIND_DEVICE;
    strcpy(to->stream.s, "default");
    ret->wait_ms = gb_http_prefer_wait(request, 0, GB_ALLOC_WAIT_MAX_S, NULL) * 1000;
    if (gb_path_names(request, "buffer name", &to->session, &to->name, err) < 0 ||
        gb_buffer_memory_read(gb_api_of(request), body, to, err) < 0)
        return -1;
    r = gb_json_take_labels(body, "labels", NULL, &to->labels, err);
    to->has_labels = r > 0;
    return r < 0 ? -1 : 0;
}

static int read_source(const struct gb_http_request *request, const json_t *body, struct headers *room,
                       struct gb_source_params *ret, struct gb_error *err) {
    if (read_origin(gb_api_of(request), body, ret, err) < 0 || read_headers(body, room, ret, err) < 0 ||
        read_layout(body, &ret->is, err) < 0 || gb_api_read_parts(body, &ret->connections, err) < 0 ||
        gb_action_read_tag(body, "if_match", &ret->if_match, err) < 0 ||
        gb_digest_set_read(body, &ret->digests, err) < 0)
        return -1;
    return read_target(request, body, ret, err);
}

static enum gb_step start(struct gb_http_request *request, struct gb_source_params *params,
                          struct gb_http_response *response, struct gb_error *err) {
    struct gb_conditions *conditions;
    struct gb_pull_call *call;

    if (gb_conditions_read(request, &conditions, err) < 0)
        return GB_STEP_ERROR;
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call) {
        gb_conditions_free(conditions);
        return GB_STEP_ERROR;
    }
    params->check = gb_conditions_buffer_check(conditions);
    gb_source_start(gb_api_of(request)->pulls, params, call);
    return gb_api_pull_end(request, response, err);
}

enum gb_step gb_api_source(struct gb_http_request *request, const json_t *body, struct gb_http_response *response,
                           struct gb_error *err) {
    struct gb_source_params params = {.url = NULL};
    enum gb_step step = GB_STEP_ERROR;
    struct headers room;

    if (read_source(request, body, &room, &params, err) == 0)
        step = start(request, &params, response, err);
    gb_text_unref(params.to.labels);
    return step;
}
