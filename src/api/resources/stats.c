/* Statistics of the daemon, of a session, of a pool and of a device, now or over time. The daemon's present numbers are
 * kept as one text for many clients; numbers of the past are read on a thread of the store while the request waits. */
#include <math.h>
#include <stdlib.h>

#include "api/context.h"
#include "api/pipeline/conditional.h"
#include "api/pipeline/operations.h"
#include "api/reply.h"
#include "api/request/body.h"
#include "api/request/query.h"
#include "base/clock.h"
#include "core/core.h"
#include "http/http.h"

/* --- over time ---------------------------------------------------------------------------------------------------- */

#define HOUR_US 3600000000LL

/* What the request waits for. */
struct wait {
    struct gb_history_call *call;
    enum gb_history_scope scope;
};

/* Whether ?since=, ?until= or ?step= is given. */
static bool history_wanted(const struct gb_http_request *request) {
    return gb_http_query(request, "since") || gb_http_query(request, "until") || gb_http_query(request, "step");
}

/* --- the question ------------------------------------------------------------------------------------------------- */

static int read_query(const struct gb_http_request *request, struct gb_history_query *query, struct gb_error *err) {
    int64_t now_us = gb_wall_us();
    int step;
    int since;

    query->until_us = now_us;
    if (gb_query_time(request, "until", now_us, &query->until_us, err) < 0)
        return -1;
    query->since_us = query->until_us > HOUR_US ? query->until_us - HOUR_US : 0;
    since = gb_query_time(request, "since", now_us, &query->since_us, err);
    step = since < 0 ? -1 : gb_query_u64(request, "step", &query->step_s, err);
    if (step < 0)
        return -1;
    if (step > 0 && query->step_s == 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "step must be at least 1 second");
    if (query->step_s > 31536000)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "step must be at most 31536000 seconds, a year");
    if (query->since_us >= query->until_us)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "since must be before until%s",
                            gb_http_query(request, "until") ? "" : ", which is now where it is not given");
    return 0;
}

/* --- the answer --------------------------------------------------------------------------------------------------- */

static void render_point(struct gb_json_writer *out, const struct gb_history_plan *plan, enum gb_history_scope scope,
                         const struct gb_history_point *point) {
    double covered_s = point->counter[GB_COUNTER_covered_s];
    int i;

    gb_json_open(out, NULL, '{');
    gb_json_put_time(out, "at", point->at_us);
    gb_json_put_i64(out, "samples", point->samples);
    if (!isnan(covered_s))
        gb_json_put_number(out, "covered_s", covered_s);
    for (i = 0; i < GB_HISTORY_GAUGES; i++) {
        const struct gb_history_span *span = &point->gauge[i];

        if (!gb_history_has(&gb_history_gauges[i], scope) || isnan(span->last))
            continue;
        gb_json_open(out, gb_history_gauges[i].name, '{');
        gb_json_put_number(out, "min", span->min);
        gb_json_put_number(out, "mean", span->mean);
        gb_json_put_number(out, "max", span->max);
        gb_json_put_number(out, "last", span->last);
        gb_json_close(out, '}');
    }
    for (i = 0; i < GB_HISTORY_COUNTERS; i++) {
        if (!gb_history_has(&gb_history_counters[i], scope) || isnan(point->counter[i]) || i == GB_COUNTER_covered_s)
            continue;
        gb_json_open(out, gb_history_counters[i].name, '{');
        gb_json_put_number(out, "delta", point->counter[i]);
        gb_json_put_number(out, "rate_per_s", point->counter[i] / (covered_s > 0 ? covered_s : (double)plan->step_s));
        gb_json_close(out, '}');
    }
    gb_json_close(out, '}');
}

static void render(struct gb_json_writer *out, uint64_t interval_s, enum gb_history_scope scope,
                   const struct gb_history_answer *answer) {
    char text[GB_RFC3339_SIZE];
    size_t i;

    gb_json_open(out, NULL, '{');
    gb_json_put_time(out, "since", answer->plan.since_us);
    gb_json_put_time(out, "until", answer->plan.until_us);
    gb_json_put_u64(out, "step_s", answer->plan.step_s);
    gb_json_put_string(out, "source", gb_history_level_name(answer->plan.level));
    gb_json_put_u64(out, "interval_s", interval_s);
    if (interval_s == 0)
        gb_json_put_string(out, "note", "no samples are taken: the daemon runs with --sample-interval 0");
    gb_json_open(out, "restarts", '[');
    for (i = 0; i < answer->restart_count; i++)
        gb_json_put_string(out, NULL, gb_rfc3339(answer->restarts[i], text));
    gb_json_close(out, ']');
    gb_json_open(out, "items", '[');
    for (i = 0; i < answer->count; i++)
        render_point(out, &answer->plan, scope, &answer->points[i]);
    gb_json_close(out, ']');
    gb_json_close(out, '}');
}

/* Replies with an entity tag made of the text, which stays while no sample comes. */
static enum gb_step send(const struct gb_api *api, const struct wait *wait, struct gb_http_response *response,
                         struct gb_error *err) {
    struct gb_json_writer out = {0};

    render(&out, gb_history_interval_s(api->core), wait->scope, &wait->call->answer);
    return gb_reply_tagged(&out, 'h', response, err);
}

static enum gb_step resume(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct wait *wait = request->state;

    if (!atomic_load(&wait->call->finished)) {
        if (!request->timed_out)
            return GB_STEP_WAIT;
        gb_error_set(err, GB_ERR_TIMED_OUT, "the history was not read in the permitted time");
        return GB_STEP_ERROR;
    }
    if (wait->call->error.code == GB_OK)
        return send(gb_api_of(request), wait, response, err);
    *err = wait->call->error;
    return GB_STEP_ERROR;
}

/* --- waiting ------------------------------------------------------------------------------------------------------ */

static void wake(void *arg) {
    gb_http_wake(arg);
    gb_http_request_unref(arg);
}

static void wait_free(void *state) {
    struct wait *wait = state;

    gb_history_call_unref(wait->call);
    free(wait);
}

/* The whole handler of such a request. */
static enum gb_step history_reply(struct gb_http_request *request, const struct gb_history_key *key,
                                  struct gb_error *err) {
    struct gb_history_query query = {.key = *key};
    struct wait *wait;

    if (read_query(request, &query, err) < 0)
        return GB_STEP_ERROR;
    wait = calloc(1, sizeof(*wait));
    if (wait)
        wait->call = gb_history_call_new(wake, gb_http_request_ref(request));
    if (!wait || !wait->call) {
        if (wait)
            gb_http_request_unref(request);
        free(wait);
        gb_error_memory(err, "request");
        return GB_STEP_ERROR;
    }
    wait->scope = key->scope;
    request->state = wait;
    request->state_free = wait_free;
    request->resume = resume;
    gb_history_ask(gb_api_of(request)->core, &query, wait->call);
    return GB_STEP_WAIT; /* the wake may have come already */
}

/* --- now ---------------------------------------------------------------------------------------------------------- */

/* The statistics of the daemon, of a session, of a pool and of a device, now or over time. */

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

/* Pools of sessions that are listed; there may be 640,000. That many make a quarter of a megabyte, which is rebuilt
 * after each change that a client polls. */
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
    size_t stable_bytes;
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
    stable_bytes = out->used;
    gb_http_server_stat(server, &http);
    gb_api_process(api, &process);
    gb_render_server(out, &http);
    gb_render_process(out, &process);
    gb_json_close(out, '}');
    gb_json_end(out);
    return stable_bytes;
}

enum gb_step gb_api_stats(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    static const struct gb_history_key daemon = {.scope = GB_HISTORY_DAEMON};
    struct gb_api *api = gb_api_of(request);
    uint64_t sequence = gb_core_sequence(api->core);
    uint64_t now_ns = gb_clock_ns();
    struct gb_http_canned *canned = gb_response_cache_get(api->stats, sequence, now_ns);
    struct gb_json_writer out = {0};
    size_t stable_bytes;

    if (history_wanted(request)) {
        gb_http_canned_unref(canned);
        return history_reply(request, &daemon, err);
    }
    if (!canned) {
        stable_bytes = render_stats(&out, api, gb_http_server_of(request));
        canned = gb_response_cache_put(api->stats, sequence, now_ns, api->started_us, &out, stable_bytes);
    }
    if (!canned) {
        gb_error_memory(err, "reply");
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

    if (history_wanted(request)) {
        if (gb_param_name(request, 0, "session name", &name, err) < 0 ||
            gb_history_of_session(gb_api_of(request)->core, &name, &key, err) < 0)
            return GB_STEP_ERROR;
        return history_reply(request, &key, err);
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
    if (history_wanted(request))
        return history_reply(request, &key, err);
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
    if (history_wanted(request))
        return history_reply(request, &key, err);
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
