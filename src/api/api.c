#include "api/api.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/context.h"
#include "api/request/path_params.h"
#include "api/resources/devices.h"
#include "base/crc32c.h"
#include "base/process.h"
#include "format/json_writer.h"

const struct gb_http_route gb_api_routes[] = {
#define GB_ROUTE(method, path, name, body, access, query)                                                              \
    {GB_HTTP_##method, path, gb_api_##name, GB_BODY_##body, GB_ACCESS_##access, query},
#include "api/routes.def"
#undef GB_ROUTE
};
const size_t gb_api_route_count = sizeof(gb_api_routes) / sizeof(gb_api_routes[0]);

/* --- what does not change ----------------------------------------------------------------------------------------- */

static void render_root(struct gb_json_writer *out, const struct gb_api *api) {
    gb_json_open(out, NULL, '{');
    gb_json_put_string(out, "name", "gpubufd");
    gb_json_put_string(out, "version", api->version);
    gb_json_put_string(out, "api", "v1");
    gb_json_put_time(out, "started_at", api->started_us);
    gb_json_open(out, "backend", '{');
    gb_json_put_string(out, "name", api->backend_name);
    gb_json_put_string(out, "note", api->backend_note);
    gb_json_close(out, '}');
    gb_json_put_u64(out, "devices", (uint64_t)api->devices);
    gb_json_open(out, "links", '{');
    gb_json_put_string(out, "devices", "/v1/devices");
    gb_json_put_string(out, "sessions", "/v1/sessions");
    gb_json_put_string(out, "operations", "/v1/operations");
    gb_json_put_string(out, "stats", "/v1/stats");
    gb_json_put_string(out, "feed", "/v1/feed");
    gb_json_put_string(out, "leases", "/v1/leases");
    gb_json_put_string(out, "allocations", "/v1/allocations");
    gb_json_put_string(out, "snapshot", "/v1/snapshot");
    gb_json_put_string(out, "metrics", "/metrics");
    gb_json_put_string(out, "openapi", "/openapi.json");
    gb_json_put_string(out, "live", "/livez");
    gb_json_put_string(out, "ready", "/readyz");
    gb_json_close(out, '}');
    gb_json_close(out, '}');
    gb_json_end(out);
}

static struct gb_http_canned *canned_json(const char *text, size_t n) {
    char etag[16];

    snprintf(etag, sizeof(etag), "\"%08" PRIx32 "\"", gb_crc32c(0, text, n));
    return gb_http_canned_new(200, "application/json", etag, text, n);
}

static int prepare(struct gb_api *api) {
    static const char live[] = "{\"status\":\"ok\"}\n";
    struct gb_json_writer out = {0};

    render_root(&out, api);
    if (!out.failed)
        api->root = canned_json(out.s, out.used);
    gb_json_done(&out);
    api->live = gb_http_canned_new(200, "application/json", NULL, live, sizeof(live) - 1);
    api->openapi = canned_json(gb_openapi_json, gb_openapi_json_len);
    return api->root && api->live && api->openapi ? 0 : -1;
}

struct gb_api *gb_api_new(struct gb_core *core, struct gb_backend *backend, const char *backend_note,
                          const char *version) {
    struct gb_api *api = calloc(1, sizeof(*api));
    struct gb_core_stats stats;

    if (!api)
        return NULL;
    api->core = core;
    gb_core_stats(core, &stats);
    api->started_us = stats.started_at_us;
    atomic_init(&api->draining, false);
    gb_response_cache_init(&api->stats);
    pthread_mutex_init(&api->process.lock, NULL);
    gb_metrics_init(&api->metrics);
    if (gb_polls_init(&api->polls, core) < 0) {
        gb_api_free(api);
        return NULL;
    }
    api->process_started_ns = gb_process_started_ns();
    if (gb_digests_init(&api->digests) < 0) {
        gb_api_free(api);
        return NULL;
    }
    gb_api_set_limits(api, &(struct gb_api_limits){.expanded_bytes = 64ull << 30,
                                                   .decoders = 64,
                                                   .operations_max = 1024,
                                                   .batch_max = 1000,
                                                   .operation_ttl_s = 600,
                                                   .export_ttl_max_s = GB_EXPORT_TTL_MAX_S,
                                                   .metrics_sessions = 20});
    api->version = strdup(version);
    api->backend_name = strdup(gb_backend_name(backend));
    api->backend_note = strdup(backend_note);
    if (gb_operations_init(&api->operations, &api->limits, NULL) < 0 || !api->version || !api->backend_name ||
        !api->backend_note || gb_api_read_devices(api, backend) < 0 || prepare(api) < 0) {
        gb_api_free(api);
        return NULL;
    }
    return api;
}

void gb_api_free(struct gb_api *api) {
    if (!api)
        return;
    gb_http_canned_unref(api->live);
    gb_http_canned_unref(api->root);
    gb_http_canned_unref(api->openapi);
    gb_response_cache_done(&api->stats);
    pthread_mutex_destroy(&api->process.lock);
    gb_metrics_done(&api->metrics);
    gb_digests_done(&api->digests);
    gb_operations_done(&api->operations);
    gb_polls_done(&api->polls);
    free(api->uuid);
    free(api->peers);
    free(api->version);
    free(api->backend_name);
    free(api->backend_note);
    free(api);
}

void gb_api_set_limits(struct gb_api *api, const struct gb_api_limits *limits) {
    api->limits = *limits;
}

void gb_api_set_map_peers(struct gb_api *api, const struct gb_map_peers *peers) {
    api->map_peers = *peers;
}

void gb_api_set_draining(struct gb_api *api) {
    atomic_store(&api->draining, true);
    gb_polls_end(&api->polls);
}

void gb_api_tokens_changed(struct gb_api *api) {
    gb_polls_recheck(&api->polls);
}

/* --- who may ------------------------------------------------------------------------------------------------------ */

/* 1: *ret is what follows "Bearer "; 0: none is needed; -1 with UNAUTHENTICATED. */
static int bearer(const struct gb_http_request *request, const char **ret, struct gb_error *err) {
    const char *value = gb_http_header(request, "Authorization");
    unsigned lines = 0;
    unsigned i;

    for (i = 0; value && i < request->headers; i++)
        lines += strcasecmp(request->header[i].name.s, "Authorization") == 0;
    if (lines > 1)
        return gb_error_set(err, GB_ERR_MALFORMED_REQUEST, "Authorization must be given once");
    if (!gb_tokens_required(gb_api_of(request)->core))
        return 0;
    if (!value)
        return gb_error_set(err, GB_ERR_UNAUTHENTICATED, "send the header Authorization: Bearer TOKEN");
    if (strncasecmp(value, "Bearer ", 7) != 0)
        return gb_error_set(err, GB_ERR_UNAUTHENTICATED, "Authorization must be of the form Bearer TOKEN");
    *ret = value + 7 + strspn(value + 7, " ");
    return 1;
}

int gb_api_bearer(const struct gb_http_request *request, int64_t *ret_token, struct gb_error *err) {
    const char *secret;
    int r = bearer(request, &secret, err);

    *ret_token = 0;
    return r > 0 ? gb_tokens_identify(gb_api_of(request)->core, secret, ret_token, err) : r;
}

int gb_api_permit(const struct gb_http_request *request, enum gb_scope scope, const char *session,
                  struct gb_error *err) {
    struct gb_core *core = gb_api_of(request)->core;
    const char *secret;
    int r = bearer(request, &secret, err);

    return r > 0 ? gb_tokens_check(core, secret, scope, session, err) : r;
}

int gb_api_bound(const struct gb_http_request *request, enum gb_scope scope, struct gb_name *ret,
                 struct gb_error *err) {
    struct gb_core *core = gb_api_of(request)->core;
    const char *secret;
    int r = bearer(request, &secret, err);

    *ret = (struct gb_name){""};
    return r > 0 ? gb_tokens_session(core, secret, scope, ret, err) : r;
}

static enum gb_scope scope_of(enum gb_access access) {
    switch (access) {
    case GB_ACCESS_OPEN:
    case GB_ACCESS_READ:
    case GB_ACCESS_OWN_READ:
    case GB_ACCESS_OWN_SEE:
        return GB_SCOPE_READ;
    case GB_ACCESS_MAP:
    case GB_ACCESS_OWN_MAP:
        return GB_SCOPE_MAP;
    case GB_ACCESS_ADMIN:
        return GB_SCOPE_ADMIN;
    case GB_ACCESS_WRITE:
    case GB_ACCESS_OWN_WRITE:
        break;
    }
    return GB_SCOPE_WRITE;
}

int gb_api_authorize(void *app, const struct gb_http_request *request, struct gb_error *err) {
    static const char prefix[] = "/v1/sessions/{s}";
    const char *path = request->route->path;
    int access = request->route->access;
    enum gb_scope scope = scope_of((enum gb_access)access);
    struct gb_name bound;
    /* The session itself, with its quota, is not in the hands of who is bound to it. */
    bool in_session =
        strncmp(path, prefix, sizeof(prefix) - 1) == 0 && (scope == GB_SCOPE_READ || path[sizeof(prefix) - 1] != '\0');

    (void)app;
    if (access == GB_ACCESS_OPEN)
        return 0;
    if (access == GB_ACCESS_OWN_SEE && gb_api_bound(request, GB_SCOPE_MAP, &bound, NULL) == 0)
        return 0;
    if (access >= GB_ACCESS_OWN_READ)
        return gb_api_bound(request, scope, &bound, err);
    return gb_api_permit(request, scope, in_session ? request->param[0].s : "", err);
}
