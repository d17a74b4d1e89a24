/* The daemon itself: the root, its state, its description, its pages. Nothing here waits, and the root and the pages
 * need no token. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/context.h"
#include "api/reply.h"
#include "api/request/query.h"
#include "base/json_writer.h"
#include "fleet/fleet.h"
#include "http/message/fields.h"

/* --- service ------------------------------------------------------------------------------------------------------ */

/* The daemon itself: the root, its state, its description. */

static enum gb_step send_canned(struct gb_http_response *response, struct gb_http_canned *canned) {
    gb_http_response_canned(response, gb_http_canned_ref(canned));
    return GB_STEP_REPLY;
}

enum gb_step gb_api_root(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct gb_api *api = gb_api_of(request);

    (void)err;
    return send_canned(response, api->root[gb_tokens_required(api->core)]);
}

/* A node that is started asks others whether the directory may have been restored a moment ago. */
enum gb_step gb_api_livez(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct gb_fleet *fleet = gb_api_of(request)->fleet;
    unsigned suspect_s = fleet ? gb_fleet_suspect_s(fleet) : 0;

    if (suspect_s > 0 && gb_http_response_header(response, err, "Gpubuf-Directory-Doubt", "%u", suspect_s) < 0)
        return GB_STEP_ERROR;
    return send_canned(response, gb_api_of(request)->live);
}

enum gb_step gb_api_openapi(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    (void)err;
    return send_canned(response, gb_api_of(request)->openapi);
}

static void render_check(struct gb_json_writer *out, const char *name, const struct gb_error *error) {
    gb_json_open(out, NULL, '{');
    gb_json_put_string(out, "name", name);
    gb_json_put_bool(out, "ok", error->code == GB_OK);
    if (error->code != GB_OK)
        gb_json_put_string(out, "detail", error->detail);
    gb_json_close(out, '}');
}

/* The check of the storage does not count for readiness: a failed disk refuses durable writes, and everything else
 * works. */
static void render_storage_check(struct gb_json_writer *out, const struct gb_api *api) {
    struct gb_storage_numbers numbers;
    struct gb_error error = GB_ERROR_INIT;
    const struct gb_error *why;
    enum gb_disk_state state;

    gb_storage_stat(api->core, &numbers);
    if (!numbers.present)
        return;
    state = gb_storage_state(&numbers, &why);
    if (state != GB_DISK_READY)
        gb_error_set(&error, why->code, "%s: %s", gb_disk_state_name(state), why->detail);
    render_check(out, "storage", &error);
}

/* Nor does that of the keeper: without it the daemon works, and a crash loses what is in memory. */
static void render_keeper_check(struct gb_json_writer *out, const struct gb_api *api) {
    struct gb_error error = GB_ERROR_INIT;
    struct gb_kept_stat kept;

    gb_kept_stat(api->core, &kept);
    if (!kept.on)
        return;
    if (!kept.alive)
        gb_error_set(&error, GB_ERR_INTERNAL,
                     "the keeper has ended: memory ends with this daemon until it is started again");
    else if (kept.left_out > 0)
        gb_error_set(&error, GB_ERR_INTERNAL,
                     "%llu allocations are not kept: the keeper has no descriptor left for them; raise its limit on "
                     "open files",
                     (unsigned long long)kept.left_out);
    render_check(out, "keeper", &error);
}

enum gb_step gb_api_readyz(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct gb_api *api = gb_api_of(request);
    struct gb_error accepting = GB_ERROR_INIT;
    struct gb_error device = GB_ERROR_INIT;
    struct gb_error store = GB_ERROR_INIT;
    struct gb_json_writer out = {0};
    bool verbose = false;
    bool ready;

    if (gb_query_flag(request, "verbose", &verbose, err) < 0)
        return GB_STEP_ERROR;
    pthread_mutex_lock(&api->reach_lock);
    accepting = api->reach;
    pthread_mutex_unlock(&api->reach_lock);
    if (atomic_load(&api->draining))
        gb_error_set(&accepting, GB_ERR_DRAINING, "the daemon is stopping; it finishes what runs");
    gb_core_health(api->core, &device);
    gb_core_writable(api->core, &store);
    ready = accepting.code == GB_OK && device.code == GB_OK && store.code == GB_OK;
    if (!ready && !verbose) {
        *err = accepting.code != GB_OK ? accepting : store;
        if (device.code != GB_OK)
            *err = device;
        return GB_STEP_ERROR;
    }
    gb_json_open(&out, NULL, '{');
    gb_json_put_string(&out, "status", ready ? "ready" : "not ready");
    if (verbose) {
        gb_json_open(&out, "checks", '[');
        render_check(&out, "accepting", &accepting);
        render_check(&out, "device", &device);
        render_check(&out, "database", &store);
        render_storage_check(&out, api);
        render_keeper_check(&out, api);
        gb_json_close(&out, ']');
    }
    gb_json_close(&out, '}');
    return gb_reply_json(&out, ready ? 200 : 503, response, err);
}

/* --- pages -------------------------------------------------------------------------------------------------------- */

/* GET /, GET /fleet and GET /ui/{file}. These need no token: the files are the same for every daemon. The pages ask
 * the interface for all that they show, with the token that their reader gives them. */

#define INDEX "index.html"
#define FLEET "fleet.html"

/* The page loads only what this daemon serves: no inline script or style, no other host, no frame around it. Pictures
 * of tensors are drawn, not loaded. */
#define POLICY                                                                                                         \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "   \
    "form-action 'none'; frame-ancestors 'none'"

const char *const gb_api_pages[] = {"/", "/fleet", "/ui/"};
const size_t gb_api_page_count = sizeof(gb_api_pages) / sizeof(gb_api_pages[0]);

static const struct gb_web_file *find(const char *name, size_t n) {
    size_t i;

    for (i = 0; i < gb_web_file_count; i++) {
        if (strlen(gb_web_files[i].name) == n && memcmp(gb_web_files[i].name, name, n) == 0)
            return &gb_web_files[i];
    }
    return NULL;
}

/* Whether one member of Accept-Encoding, at[0..n), permits gzip. */
static bool permits(const char *at, size_t n) {
    size_t name = strcspn(at, ",; \t");
    const char *weight = memchr(at, '=', n);

    if (!(name == 4 && strncasecmp(at, "gzip", 4) == 0) && !(name == 1 && at[0] == '*'))
        return false;
    /* A weight of zero forbids the coding. */
    return !weight || strspn(weight + 1, "0. \t") < n - (size_t)(weight + 1 - at);
}

static bool accepts_gzip(const struct gb_http_request *request) {
    const char *at = gb_http_header(request, "Accept-Encoding");
    size_t n;

    for (; at && *at; at += n + (at[n] == ',')) {
        at += strspn(at, " \t");
        n = strcspn(at, ",");
        if (permits(at, n))
            return true;
    }
    return false;
}

static int write_headers(struct gb_http_response *response, const struct gb_web_file *file, bool packed,
                         const char *tag, struct gb_error *err) {
    int r = 0;

    r |= gb_http_response_header(response, err, "ETag", "\"%s\"", tag);
    r |= gb_http_response_header(response, err, "Vary", "Accept-Encoding");
    r |= gb_http_response_header(response, err, "Content-Security-Policy", "%s", POLICY);
    r |= gb_http_response_header(response, err, "Cross-Origin-Opener-Policy", "same-origin");
    r |= gb_http_response_header(response, err, "Referrer-Policy", "no-referrer");
    if (response->status == 304)
        return r;
    r |= gb_http_response_header(response, err, "Content-Type", "%s", file->type);
    if (packed)
        r |= gb_http_response_header(response, err, "Content-Encoding", "gzip");
    return r;
}

static enum gb_step send_file(const struct gb_http_request *request, const struct gb_web_file *file,
                              struct gb_http_response *response, struct gb_error *err) {
    const char *held = gb_http_header(request, "If-None-Match");
    bool packed = accepts_gzip(request);
    size_t n = packed ? file->packed_len : file->plain_len;
    const char *tags[1];
    char tag[48];
    char *body;

    snprintf(tag, sizeof(tag), "%s%s", file->tag, packed ? "-gz" : "");
    tags[0] = tag;
    if (held && gb_etag_list_match(held, true, tags, 1))
        response->status = 304;
    if (write_headers(response, file, packed, tag, err) < 0)
        return GB_STEP_ERROR;
    if (response->status == 304)
        return GB_STEP_REPLY;
    body = malloc(n);
    if (!body) {
        gb_error_memory(err, "reply");
        return GB_STEP_ERROR;
    }
    memcpy(body, packed ? file->packed : file->plain, n);
    gb_http_response_take(response, body, n);
    return GB_STEP_REPLY;
}

enum gb_step gb_api_web_page(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    return send_file(request, find(INDEX, strlen(INDEX)), response, err);
}

enum gb_step gb_api_web_fleet(struct gb_http_request *request, struct gb_http_response *response,
                              struct gb_error *err) {
    return send_file(request, find(FLEET, strlen(FLEET)), response, err);
}

enum gb_step gb_api_web_file(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    const struct gb_web_file *file = find(request->param[0].s, request->param[0].len);

    if (!file) {
        gb_error_set(err, GB_ERR_NO_ROUTE, "the page has no file of this name; GET / is the page");
        return GB_STEP_ERROR;
    }
    return send_file(request, file, response, err);
}
