/* The statistics of the daemon, of a session, of a pool and of a device, now or over time. */
#include "api/context.h"
#include "api/middleware/longpoll.h"
#include "api/middleware/operations.h"
#include "api/observe/history.h"
#include "api/reply/render.h"
#include "api/reply/reply_json.h"
#include "api/reply/response_cache.h"
#include "api/reply/stats_json.h"
#include "api/request/device_param.h"
#include "api/request/path_params.h"
#include "api/request/query.h"
#include "api/route.h"
#include "base/clock.h"

static uint64_t less(uint64_t a, uint64_t b) {
    return a > b ? a - b : 0;
}

static void render_store(struct gb_json_writer *out, const struct gb_store_stat *stat) {
    gb_json_open(out, "store", '{');
    gb_json_put_u64(out, "commits", stat->commits);
    gb_json_put_u64(out, "changes", stat->changes);
    gb_json_put_u64(out, "failures", stat->failures);
    gb_json_put_u64(out, "queued", stat->queued);
    gb_json_put_seconds(out, "seconds_committing", stat->took.ns);
    gb_json_put_seconds(out, "longest_commit_seconds", stat->took.max_ns);
    gb_json_put_seconds(out, "seconds_queued", stat->waited.ns);
    gb_json_put_seconds(out, "longest_queued_seconds", stat->waited.max_ns);
    gb_json_close(out, '}');
}

/* Pools of sessions that are listed; there may be 640,000. So many make a quarter of a megabyte, which is rebuilt after
 * each change that a client polls. */
#define OWNED_POOLS_MAX 256

struct pool_list {
    struct gb_json_writer *out;
    const struct gb_api *api;
};

static int render_owned(void *arg, const struct gb_name *session, const struct gb_pool_view *view,
                        struct gb_error *err) {
    const struct pool_list *list = arg;

    (void)err;
    gb_json_open(list->out, NULL, '{');
    gb_json_put_string(list->out, "session", session->s);
    gb_render_pool_members(list->out, list->api, view);
    gb_json_close(list->out, '}');
    return 0;
}

/* Writes the pools of the devices, then those of sessions. */
static void render_pools(struct gb_json_writer *out, const struct gb_api *api) {
    struct pool_list list = {out, api};
    struct gb_pool_view view;
    uint64_t omitted = 0;
    unsigned i;

    gb_json_open(out, "pools", '[');
    for (i = 0; i < gb_pool_count(api->core); i++) {
        if (gb_pool_at(api->core, i, &view, NULL) == 0)
            gb_render_pool(out, NULL, api, &view);
    }
    gb_pool_list_owned(api->core, OWNED_POOLS_MAX, render_owned, &list, &omitted, NULL);
    gb_json_close(out, ']');
    if (omitted > 0)
        gb_json_put_u64(out, "pools_omitted", omitted);
}

static void render_operations(struct gb_json_writer *out, struct gb_api *api) {
    uint64_t counts[GB_OPERATION_STATES];
    int i;

    gb_operations_count(api->operations, counts);
    gb_json_open(out, "operations", '{');
    for (i = 0; i < GB_OPERATION_STATES; i++)
        gb_json_put_u64(out, gb_operation_state_name((enum gb_operation_state)i), counts[i]);
    gb_json_close(out, '}');
}

static void render_keys(struct gb_json_writer *out, const struct gb_api *api) {
    struct gb_key_stats stats;

    gb_key_stats(api->core, &stats);
    gb_json_open(out, "idempotency", '{');
    gb_json_put_u64(out, "keys", stats.kept);
    gb_json_put_u64(out, "under_way", stats.under_way);
    gb_json_put_u64(out, "replays", stats.replays);
    gb_json_close(out, '}');
}

static void render_pinned(struct gb_json_writer *out, const struct gb_core_stats *stats) {
    gb_json_open(out, "pinned", '{');
    gb_json_put_u64(out, "bytes", stats->pinned_bytes);
    gb_json_put_limit(out, "limit_bytes", stats->pinned_limit_bytes);
    gb_json_close(out, '}');
}

static void render_slots(struct gb_json_writer *out, const struct gb_core_stats *stats) {
    gb_json_open(out, "slots", '{');
    gb_json_put_u64(out, "total", stats->slots_total);
    gb_json_put_u64(out, "free", stats->slots_free);
    gb_json_put_u64(out, "in_use", less(stats->slots_total, stats->slots_free));
    gb_json_put_u64(out, "slot_bytes", stats->slot_bytes);
    gb_json_put_u64(out, "waits", stats->slot_waits);
    gb_json_put_u64(out, "waiting", stats->slots_wanted);
    gb_json_close(out, '}');
}

/* Returns how much of the text the entity tag covers. The rest moves by itself, and is as of the time of the text. */
static size_t render_stats(struct gb_json_writer *out, struct gb_api *api, struct gb_http_server *server) {
    struct gb_http_server_stat http;
    struct gb_process process;
    size_t settled;
    struct gb_core_stats stats;

    gb_core_stats(api->core, &stats);
    gb_json_open(out, NULL, '{');
    gb_json_put_u64(out, "sequence", stats.sequence);
    gb_json_put_time(out, "started_at", stats.started_at_us);
    gb_json_open(out, "sessions", '{');
    gb_json_put_u64(out, "count", stats.sessions);
    gb_json_put_u64(out, "expired", stats.counters.expired_sessions);
    gb_json_close(out, '}');
    gb_json_open(out, "buffers", '{');
    gb_json_put_u64(out, "count", stats.buffers);
    gb_json_put_u64(out, "bytes", stats.buffer_bytes);
    gb_json_put_u64(out, "lost", stats.lost_buffers);
    gb_json_put_u64(out, "stored", stats.stored_buffers);
    gb_json_open(out, "mirrored", '{');
    gb_json_put_u64(out, "count", stats.mirrored_buffers);
    gb_json_put_u64(out, "bytes", stats.mirrored_bytes);
    gb_json_close(out, '}');
    gb_json_close(out, '}');
    gb_json_open(out, "open_uploads", '{');
    gb_json_put_u64(out, "bytes", stats.open_upload_bytes);
    gb_json_close(out, '}');
    gb_render_sharing(out, &stats.counters, stats.leases, stats.held_bytes, stats.adopted);
    gb_render_counters(out, &stats.counters, &stats.level, stats.kinds);
    gb_render_memory_kinds(out, stats.kind_memory);
    gb_json_open(out, "running", '{');
    gb_json_put_u64(out, "uploads", stats.uploads_running);
    gb_json_put_u64(out, "downloads", stats.downloads_running);
    gb_json_put_u64(out, "writes", stats.writes_running);
    gb_json_close(out, '}');
    render_operations(out, api);
    render_keys(out, api);
    render_pools(out, api);
    render_pinned(out, &stats);
    render_slots(out, &stats);
    render_store(out, &stats.store);
    settled = out->used;
    gb_http_server_stat(server, &http);
    gb_api_process(api, &process);
    gb_render_server(out, &http);
    gb_render_process(out, &process);
    gb_json_close(out, '}');
    gb_json_end(out);
    return settled;
}

enum gb_step gb_api_stats(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    static const struct gb_history_key daemon = {.scope = GB_HISTORY_DAEMON};
    struct gb_api *api = gb_api_of(request);
    uint64_t sequence = gb_core_sequence(api->core);
    uint64_t now_ns = gb_clock_ns();
    struct gb_http_canned *canned = gb_response_cache_get(api->stats, sequence, now_ns);
    struct gb_json_writer out = {0};
    size_t settled;

    if (gb_history_wanted(request)) {
        gb_http_canned_unref(canned);
        return gb_history_reply(request, &daemon, err);
    }
    if (!canned) {
        settled = render_stats(&out, api, gb_http_server_of(request));
        canned = gb_response_cache_put(api->stats, sequence, now_ns, api->started_us, &out, settled);
    }
    if (!canned) {
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the reply; try again later");
        return GB_STEP_ERROR;
    }
    gb_http_response_canned(response, canned);
    if (gb_http_canned_known(canned, request))
        return gb_poll_unchanged(api->polls, request, response, gb_api_stats, NULL, "", sequence);
    return GB_STEP_REPLY;
}

enum gb_step gb_api_session_stats(struct gb_http_request *request, struct gb_http_response *response,
                                  struct gb_error *err) {
    struct gb_session_stats stats;
    struct gb_history_key key;
    struct gb_json_writer out = {0};
    struct gb_name name;

    if (gb_history_wanted(request)) {
        if (gb_param_name(request, 0, "session name", &name, err) < 0 ||
            gb_history_of_session(gb_api_of(request)->core, &name, &key, err) < 0)
            return GB_STEP_ERROR;
        return gb_history_reply(request, &key, err);
    }
    if (gb_param_name(request, 0, "session name", &name, err) < 0 ||
        gb_session_stats(gb_api_of(request)->core, &name, &stats, err) < 0)
        return GB_STEP_ERROR;
    gb_json_open(&out, NULL, '{');
    gb_json_put_u64(&out, "sequence", stats.sequence);
    gb_json_put_string(&out, "session", stats.session.rec.name.s);
    gb_json_open(&out, "buffers", '{');
    gb_json_put_u64(&out, "count", stats.session.buffers);
    gb_json_put_u64(&out, "bytes", stats.session.used_bytes);
    gb_json_put_u64(&out, "lost", stats.lost_buffers);
    gb_json_close(&out, '}');
    gb_json_open(&out, "open_uploads", '{');
    gb_json_put_u64(&out, "count", stats.open_uploads);
    gb_json_put_u64(&out, "bytes", stats.open_upload_bytes);
    gb_json_close(&out, '}');
    gb_render_sharing(&out, &stats.counters, stats.leases, stats.held_bytes, stats.adopted);
    gb_json_open(&out, "quota", '{');
    gb_json_put_limit(&out, "bytes", stats.session.rec.quota.bytes);
    gb_json_put_limit(&out, "buffers", stats.session.rec.quota.buffers);
    gb_json_put_limit(&out, "pinned_bytes", stats.session.rec.quota.pinned_bytes);
    gb_json_put_limit(&out, "stored_bytes", stats.session.rec.quota.stored_bytes);
    gb_json_close(&out, '}');
    gb_render_counters(&out, &stats.counters, &stats.level, NULL);
    gb_json_close(&out, '}');
    return gb_reply_json(&out, 200, response, err);
}

enum gb_step gb_api_pool_stats(struct gb_http_request *request, struct gb_http_response *response,
                               struct gb_error *err) {
    struct gb_api *api = gb_api_of(request);
    struct gb_history_key key;
    struct gb_pool_view view;
    struct gb_json_writer out = {0};
    struct gb_locator at;

    if (gb_path_locator(request, "pool name", &at, err) < 0 || gb_pool_get(api->core, &at, &view, err) < 0 ||
        gb_history_of_pool(api->core, &at, &key, err) < 0)
        return GB_STEP_ERROR;
    if (gb_history_wanted(request))
        return gb_history_reply(request, &key, err);
    gb_json_open(&out, NULL, '{');
    gb_json_put_string(&out, "pool", view.rec.name.s);
    gb_render_device_id(&out, "device", api, view.rec.device);
    gb_json_put_string(&out, "state", view.lost ? "lost" : "ready");
    gb_json_put_u64(&out, "used_bytes", view.stat.used_bytes);
    gb_json_put_u64(&out, "used_peak_bytes", view.stat.used_peak_bytes);
    gb_json_put_u64(&out, "reserved_bytes", view.stat.reserved_bytes);
    gb_json_put_u64(&out, "reserved_peak_bytes", view.stat.reserved_peak_bytes);
    gb_json_put_bool(&out, "exported", view.exported);
    gb_json_put_u64(&out, "kept_bytes", view.kept_bytes);
    gb_json_put_u64(&out, "fragmentation_bytes", less(view.stat.reserved_bytes, view.stat.used_bytes));
    gb_json_put_u64(&out, "buffers", view.live_buffers);
    gb_json_put_u64(&out, "allocations", view.memory.allocations);
    gb_json_put_u64(&out, "reuses", view.reuses);
    gb_json_put_u64(&out, "growths", view.growths);
    gb_json_put_u64(&out, "allocated_bytes", view.memory.allocated_bytes);
    gb_json_put_u64(&out, "largest_bytes", view.memory.level.largest_bytes);
    gb_json_put_u64(&out, "frees", view.memory.frees);
    gb_json_put_u64(&out, "freed_bytes", view.memory.freed_bytes);
    gb_json_put_u64(&out, "allocation_failures", view.memory.failures);
    gb_render_failures(&out, view.memory.failure, GB_FAILED_POOL);
    gb_json_put_u64(&out, "retries", view.memory.retries);
    gb_json_put_u64(&out, "trims", view.memory.trims);
    gb_json_close(&out, '}');
    return gb_reply_json(&out, 200, response, err);
}

enum gb_step gb_api_device_stats(struct gb_http_request *request, struct gb_http_response *response,
                                 struct gb_error *err) {
    struct gb_api *api = gb_api_of(request);
    struct gb_history_key key;
    struct gb_device_numbers now;
    struct gb_json_writer out = {0};
    int device;

    if (gb_device_text(api, request->param[0].s, request->param[0].len, &device, err) < 0 ||
        gb_history_of_device(api->core, device, &key, err) < 0 || gb_device_numbers(api->core, device, &now, err) < 0)
        return GB_STEP_ERROR;
    if (gb_history_wanted(request))
        return gb_history_reply(request, &key, err);
    gb_json_open(&out, NULL, '{');
    gb_render_device_id(&out, "device", api, device);
    gb_json_put_u64(&out, "total_bytes", now.total_bytes);
    gb_json_put_u64(&out, "free_bytes", now.free_bytes);
    gb_json_put_u64(&out, "used_bytes", less(now.total_bytes, now.free_bytes));
    gb_json_put_u64(&out, "reserved_bytes", now.reserved_bytes);
    gb_json_put_u64(&out, "pools_used_bytes", now.pools_used_bytes);
    gb_json_put_u64(&out, "pools", now.pools);
    gb_json_put_u64(&out, "fragmentation_bytes", less(now.reserved_bytes, now.pools_used_bytes));
    gb_json_open(&out, "allocations", '{');
    gb_render_memory(&out, &now.memory);
    gb_json_close(&out, '}');
    gb_json_close(&out, '}');
    return gb_reply_json(&out, 200, response, err);
}
