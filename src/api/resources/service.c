/* The daemon itself: the root, its state, its description. */
#include "api/context.h"
#include "api/reply/reply_json.h"
#include "api/reply/storage_state.h"
#include "api/request/query.h"
#include "api/route.h"
#include "base/json_writer.h"
#include "fleet/fleet.h"

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
    unsigned doubt_s = fleet ? gb_fleet_doubt_s(fleet) : 0;

    if (doubt_s > 0 && gb_http_response_header(response, err, "Gpubuf-Directory-Doubt", "%u", doubt_s) < 0)
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

/* The check of the storage does not count for readiness: a failed disk refuses durable writes, and all else goes on. */
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
        gb_json_close(&out, ']');
    }
    gb_json_close(&out, '}');
    return gb_reply_json(&out, ready ? 200 : 503, response, err);
}
