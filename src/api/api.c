/* The table of all routes (routes.def), and the object that their handlers work on. Once the server has started, only
 * the functions here change what the object has, such as whether the node drains. The daemon makes and sets it; the
 * server gives it to each handler. */
#include "api/api.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/auth.h"
#include "api/context.h"
#include "api/fleet/ask.h"
#include "api/fleet/own.h"
#include "api/options.h"
#include "api/pipeline/conditional.h"
#include "api/pipeline/digest.h"
#include "api/pipeline/hook.h"
#include "api/pipeline/operations.h"
#include "api/pipeline/redirect.h"
#include "api/reply.h"
#include "api/resources/leases.h"
#include "api/resources/table.h"
#include "base/hash.h"
#include "base/json_writer.h"
#include "base/process.h"
#include "base/thread.h"

static const struct gb_http_route routes[] = {
#define GB_ROUTE(method, path, name, body, access, target, reach, key, operation, query)                               \
    {GB_HTTP_##method,                                                                                                 \
     path,                                                                                                             \
     gb_api_##name,                                                                                                    \
     GB_BODY_##body,                                                                                                   \
     &(const struct gb_route){GB_ACCESS_##access, GB_TARGET_##target, GB_REACH_##reach, IS_##key, operation},          \
     query},
#define IS_KEYED true
#define IS_PLAIN false
#include "api/routes.def"
#undef IS_KEYED
#undef IS_PLAIN
#undef GB_ROUTE
};

/* --- what does not change ----------------------------------------------------------------------------------------- */

static void render_cage(struct gb_json_writer *out, const struct gb_api_about *about) {
    gb_json_open(out, "cage", '{');
    gb_json_put_u64(out, "landlock", (uint64_t)about->landlock);
    gb_json_put_string(out, "seccomp", about->seccomp);
    gb_json_put_string(out, "privileges", about->privileges ? "none" : "kept");
    gb_json_put_bool(out, "core_dumps", about->core_dumps);
    gb_json_close(out, '}');
}

static void render_access(struct gb_json_writer *out, const struct gb_api_about *about, bool tokens) {
    gb_json_open(out, "access", '{');
    gb_json_put_bool(out, "tokens", tokens);
    gb_json_put_bool(out, "proxies", about->proxied);
    gb_json_close(out, '}');
}

static void render_root(struct gb_json_writer *out, const struct gb_api *api, const struct gb_api_about *about,
                        bool tokens) {
    gb_json_open(out, NULL, '{');
    gb_json_put_string(out, "name", "gpubufd");
    gb_json_put_string(out, "version", api->version);
    gb_json_put_string(out, "api", "v1");
    gb_json_put_time(out, "started_at", api->started_us);
    gb_json_open(out, "backend", '{');
    gb_json_put_string(out, "name", api->backend_name);
    gb_json_put_string(out, "note", about->backend_note);
    gb_json_close(out, '}');
    render_cage(out, about);
    gb_json_put_string(out, "kernel_tls", about->kernel_tls ? "present, not used" : "absent");
    render_access(out, about, tokens);
    gb_json_put_u64(out, "devices", (uint64_t)api->devices);
    gb_json_open(out, "links", '{');
    gb_json_put_string(out, "devices", "/v1/devices");
    gb_json_put_string(out, "sessions", "/v1/sessions");
    gb_json_put_string(out, "fleet", "/v1/fleet");
    gb_json_put_string(out, "operations", "/v1/operations");
    gb_json_put_string(out, "stats", "/v1/stats");
    gb_json_put_string(out, "feed", "/v1/feed");
    gb_json_put_string(out, "leases", "/v1/leases");
    gb_json_put_string(out, "allocations", "/v1/allocations");
    gb_json_put_string(out, "snapshot", "/v1/snapshot");
    gb_json_put_string(out, "audit", "/v1/audit");
    gb_json_put_string(out, "checkpoints", "/v1/checkpoints");
    gb_json_put_string(out, "storage", "/v1/storage");
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

static int prepare(struct gb_api *api, const struct gb_api_about *about) {
    static const char live[] = "{\"status\":\"ok\"}\n";
    int i;

    for (i = 0; i < 2; i++) {
        struct gb_json_writer out = {0};

        render_root(&out, api, about, i > 0);
        if (!out.failed)
            api->root[i] = canned_json(out.s, out.used);
        gb_json_done(&out);
    }
    api->live = gb_http_canned_new(200, "application/json", NULL, live, sizeof(live) - 1);
    api->openapi = canned_json(gb_openapi_json, gb_openapi_json_len);
    return api->root[0] && api->root[1] && api->live && api->openapi ? 0 : -1;
}

struct gb_api *gb_api_new(struct gb_core *core, struct gb_backend *backend, const struct gb_api_about *about) {
    struct gb_api *api = calloc(1, sizeof(*api));
    struct gb_core_stats stats;

    if (!api)
        return NULL;
    api->core = core;
    api->routes = routes;
    api->route_count = sizeof(routes) / sizeof(routes[0]);
    gb_core_stats(core, &stats);
    api->started_us = stats.started_at_us;
    atomic_init(&api->draining, false);
    gb_mutex_init(&api->reach_lock);
    gb_mutex_init(&api->process.lock);
    gb_mutex_init(&api->fleet_lock);
    api->process_started_ns = gb_process_started_ns();
    gb_api_set_limits(api, &(struct gb_api_limits){.expanded_bytes = 64ull << 30,
                                                   .decoders = 64,
                                                   .operations_max = 1024,
                                                   .batch_max = 1000,
                                                   .operation_ttl_s = 600,
                                                   .export_ttl_max_s = GB_EXPORT_TTL_MAX_S,
                                                   .metrics_sessions = 20});
    api->version = strdup(about->version);
    api->backend_name = strdup(gb_backend_name(backend));
    api->data_dir = strdup(about->data_dir ? about->data_dir : "");
    api->stats = gb_response_cache_new();
    api->metrics = gb_metrics_new();
    api->digests = gb_digests_new();
    api->tables = gb_tables_new();
    api->operations = gb_operations_new(&api->limits);
    api->polls = gb_polls_new(core);
    api->handovers = gb_handovers_new();
    if (!api->handovers || !api->stats || !api->metrics || !api->digests || !api->tables || !api->operations ||
        !api->polls || !api->version || !api->backend_name || !api->data_dir || gb_api_read_devices(api, backend) < 0 ||
        prepare(api, about) < 0) {
        gb_api_free(api);
        return NULL;
    }
    return api;
}

void gb_api_free(struct gb_api *api) {
    if (!api)
        return;
    gb_http_canned_unref(api->live);
    gb_http_canned_unref(api->root[0]);
    gb_http_canned_unref(api->root[1]);
    gb_http_canned_unref(api->openapi);
    pthread_mutex_destroy(&api->reach_lock);
    pthread_mutex_destroy(&api->process.lock);
    pthread_mutex_destroy(&api->fleet_lock);
    gb_response_cache_free(api->stats);
    gb_metrics_free(api->metrics);
    gb_digests_free(api->digests);
    gb_tables_free(api->tables);
    gb_operations_free(api->operations);
    gb_polls_free(api->polls);
    gb_handovers_free(api->handovers);
    free(api->uuid);
    free(api->peers);
    free(api->version);
    free(api->backend_name);
    free(api->data_dir);
    free(api);
}

void gb_api_set_limits(struct gb_api *api, const struct gb_api_limits *limits) {
    api->limits = *limits;
}

void gb_api_set_map_peers(struct gb_api *api, const struct gb_map_peers *peers) {
    api->map_peers = *peers;
}

static void gone(void *arg, const struct gb_name *name, const char *claim, bool made) {
    gb_fleet_unregister(arg, name, claim, made);
}

void gb_api_set_pulls(struct gb_api *api, struct gb_pulls *pulls, const char *const *origins, size_t count) {
    api->pulls = pulls;
    api->pull_from = origins;
    api->pull_from_count = count;
}

void gb_api_set_files(struct gb_api *api, const char *const *folders, size_t count) {
    api->files_from = folders;
    api->files_from_count = count;
}

void gb_api_set_moves(struct gb_api *api, struct gb_moves *moves) {
    pthread_mutex_lock(&api->fleet_lock);
    api->moves = moves;
    pthread_mutex_unlock(&api->fleet_lock);
}

void gb_api_node_who(const struct gb_name *node, char *ret, size_t size) {
    gb_ticket_node_who(node, ret, size);
}

void gb_api_set_replicas(struct gb_api *api, struct gb_replicas *replicas) {
    pthread_mutex_lock(&api->fleet_lock);
    api->replicas = replicas;
    pthread_mutex_unlock(&api->fleet_lock);
}

void gb_api_set_hub(struct gb_api *api, struct gb_hub *hub) {
    api->hub = hub;
}

bool gb_api_fleet_follow(struct gb_api *api, enum gb_order_what what, const struct gb_name *session,
                         gb_fleet_followed *failed, void *arg) {
    return gb_fleet_follow(api, what, session, failed, arg);
}

void gb_api_set_fleet(struct gb_api *api, struct gb_fleet *fleet, const struct gb_api_fleet *is) {
    if (!api->fleet_is.name) /* once: the fleet's thread may be reading it */
        api->fleet_is = *is;
    pthread_mutex_lock(&api->fleet_lock);
    api->fleet = fleet;
    pthread_mutex_unlock(&api->fleet_lock);
    gb_core_set_gone(api->core, fleet ? gone : NULL, fleet);
}

void gb_api_leave_fleet(struct gb_api *api) {
    gb_core_set_gone(api->core, NULL, NULL);
    pthread_mutex_lock(&api->fleet_lock);
    api->fleet = NULL;
    pthread_mutex_unlock(&api->fleet_lock);
}

void gb_api_set_draining(struct gb_api *api) {
    atomic_store(&api->draining, true);
    gb_polls_end(api->polls);
}

void gb_api_set_reach(struct gb_api *api, const struct gb_error *err) {
    pthread_mutex_lock(&api->reach_lock);
    api->reach = *err;
    pthread_mutex_unlock(&api->reach_lock);
}

void gb_api_tokens_changed(struct gb_api *api) {
    gb_leases_recheck(api->core);
    gb_polls_recheck(api->polls);
}

size_t gb_api_fleet_devices(struct gb_api *api, struct gb_fleet_device *ret) {
    return gb_fleet_devices(api, ret);
}

bool gb_api_fleet_has(struct gb_api *api, const struct gb_fleet_session *record) {
    return gb_fleet_has(api, record);
}

size_t gb_api_fleet_own_sessions(struct gb_api *api, int64_t *cursor, struct gb_fleet_session *ret, size_t max) {
    return gb_fleet_sessions(api, cursor, ret, max);
}

bool gb_api_fleet_own_session(struct gb_api *api, const struct gb_name *name, struct gb_fleet_session *ret) {
    return gb_fleet_session(api, name, ret);
}

void gb_api_fleet_raise(struct gb_api *api, const struct gb_fleet_session *mine, uint64_t epoch) {
    gb_fleet_raise(api, mine, epoch);
}

void gb_api_fleet_set_aside(struct gb_api *api, const struct gb_fleet_session *mine) {
    gb_fleet_set_aside(api, mine);
}

static void begin_turn(void *app) {
    gb_core_begin_turn(((struct gb_api *)app)->core);
}

static bool end_turn(void *app, bool idle) {
    return gb_core_end_turn(((struct gb_api *)app)->core, idle);
}

void gb_api_ended(void *app, const struct gb_http_request *request, const struct gb_http_end *end) {
    if (gb_audit_mode(((struct gb_api *)app)->core) != GB_AUDIT_OFF)
        gb_api_audit_ended(app, request, end);
}

void gb_api_serve(struct gb_api *api, struct gb_http_server_config *config) {
    config->app = api;
    config->routes = api->routes;
    config->route_count = api->route_count;
    config->authorize = gb_bounds_authorize;
    config->in_force = gb_api_in_force;
    config->around = api->fleet ? gb_redirect_around : gb_api_pipeline;
    config->asides = gb_redirect_asides;
    config->aside_count = api->fleet ? GB_ASIDES : 0;
    config->ended = gb_audit_never(api->core) ? NULL : gb_api_ended;
    config->begin_turn = begin_turn;
    config->end_turn = end_turn;
    config->explain = gb_api_explain;
    config->peer_gone = gb_api_peer_gone;
    config->peer_free = gb_api_peer_free;
    config->peer_busy = gb_api_peer_busy;
    config->pages = gb_api_pages;
    config->page_count = gb_api_page_count;
    config->feed = &gb_api_feed_hooks;
}
