/* Bytes on disk: store, load, the state of the disk, and its scrubs. The core does the work; a request waits for its
 * call. */
#include <string.h>

#include "api/context.h"
#include "api/pipeline/async.h"
#include "api/pipeline/conditional.h"
#include "api/reply.h"
#include "api/request/body.h"
#include "api/request/query.h"

/* Of a scrub, in bytes a second. */
#define SCRUB_RATE_MIN (64 * 1024ULL)
#define SCRUB_RATE_MAX (1ULL << 40)

/* --- one buffer --------------------------------------------------------------------------------------------------- */

static enum gb_step reply_stored(struct gb_http_request *request, const void *result, struct gb_http_response *response,
                                 struct gb_error *err) {
    const struct gb_buffer_call *call = result;
    struct gb_json_writer out = {0};

    (void)request;
    gb_json_open(&out, NULL, '{');
    gb_json_put_i64(&out, "stored_generation", call->buffer.stored_generation);
    gb_json_put_u64(&out, "bytes", call->buffer.bytes);
    gb_json_put_bool(&out, "wrote", call->copied);
    gb_json_close(&out, '}');
    return gb_reply_json(&out, 200, response, err);
}

enum gb_step gb_api_buffer_store(struct gb_http_request *request, struct gb_http_response *response,
                                 struct gb_error *err) {
    return gb_path_buffer_call(request, response, gb_buffer_store, reply_stored, err);
}

/* Of the buffer as it is now: a load changes no bytes. */
static int check_conditions(const struct gb_http_request *request, const struct gb_locator *at, struct gb_error *err) {
    struct gb_conditions *conditions;
    struct gb_buffer_rec rec;
    int r = gb_buffer_get(gb_api_of(request)->core, at, &rec, err);

    if (r < 0 || gb_conditions_read(request, &conditions, err) < 0) {
        if (r == 0)
            gb_buffer_rec_done(&rec);
        return -1;
    }
    r = gb_conditions_buffer(conditions, &rec, err);
    gb_conditions_free(conditions);
    gb_buffer_rec_done(&rec);
    return r;
}

/* Bytes that are not in memory come while the request waits (pipeline/hook.c). */
enum gb_step gb_api_buffer_load(struct gb_http_request *request, struct gb_http_response *response,
                                struct gb_error *err) {
    struct gb_json_writer out = {0};
    struct gb_buffer_rec rec;
    struct gb_locator at;
    char etag[GB_ETAG_SIZE];

    if (gb_path_locator(request, "buffer name", &at, err) < 0 || gb_body_no_fields(request, err) < 0 ||
        check_conditions(request, &at, err) < 0 || gb_buffer_load(gb_api_of(request)->core, &at, &rec, err) < 0)
        return GB_STEP_ERROR;
    gb_render_buffer(&out, NULL, gb_api_of(request), at.session.s, &rec);
    gb_etag_buffer(&rec, etag);
    gb_buffer_rec_done(&rec);
    if (gb_http_response_header(response, err, "ETag", "\"%s\"", etag) < 0) {
        gb_json_done(&out);
        return GB_STEP_ERROR;
    }
    return gb_reply_json(&out, 200, response, err);
}

/* Where to, of an eviction: "host" or "disk". Absent: NEVER. */
static int read_to(const json_t *body, enum gb_spill *ret, struct gb_error *err) {
    const char *text;
    int r = gb_json_string(body, "to", &text, err);

    *ret = GB_SPILL_NEVER;
    if (r <= 0)
        return r;
    if (gb_spill_parse(text, strlen(text), ret, NULL) < 0 || *ret == GB_SPILL_NEVER)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "to is \"%.40s\"; it is \"host\" or \"disk\"", text);
    return 0;
}

static int read_eviction(const struct gb_http_request *request, struct gb_locator *ret_at, enum gb_spill *ret_to,
                         struct gb_error *err) {
    json_t *body;
    int r;

    if (gb_path_locator(request, "buffer name", ret_at, err) < 0 || gb_body_object(request, "to", true, &body, err) < 0)
        return -1;
    r = read_to(body, ret_to, err);
    json_decref(body);
    return r;
}

enum gb_step gb_api_buffer_evict(struct gb_http_request *request, struct gb_http_response *response,
                                 struct gb_error *err) {
    struct gb_buffer_check check;
    struct gb_buffer_call *call;
    struct gb_locator at;
    enum gb_spill to;

    if (read_eviction(request, &at, &to, err) < 0)
        return GB_STEP_ERROR;
    call = gb_buffer_call_begin(request, &check, err);
    if (!call)
        return GB_STEP_ERROR;
    gb_buffer_evict_to(gb_api_of(request)->core, &at, &check, to, call);
    return gb_async_end(request, response, gb_reply_buffer, 0, err);
}

/* --- a session ---------------------------------------------------------------------------------------------------- */

static enum gb_step reply_sweep(struct gb_http_request *request, const void *result, struct gb_http_response *response,
                                struct gb_error *err) {
    const struct gb_sweep_call *call = result;
    struct gb_json_writer out = {0};
    size_t i;

    (void)request;
    gb_json_open(&out, NULL, '{');
    gb_json_put_u64(&out, "buffers", call->buffers);
    gb_json_put_u64(&out, "bytes", call->bytes);
    gb_json_put_u64(&out, "skipped_buffers", call->skipped);
    gb_json_open(&out, "skipped", '[');
    for (i = 0; i < call->listed_count; i++) {
        gb_json_open(&out, NULL, '{');
        gb_json_put_string(&out, "buffer", call->listed[i].name.s);
        gb_json_put_string(&out, "code", gb_code_slug(call->listed[i].code));
        gb_json_close(&out, '}');
    }
    gb_json_close(&out, ']');
    gb_json_close(&out, '}');
    return gb_reply_json(&out, 200, response, err);
}

typedef void sweep_fn(struct gb_core *core, const struct gb_name *session, const struct gb_name *prefix,
                      struct gb_sweep_call *call);

/* to NULL: nothing is evicted. */
static int read_sweep(const struct gb_http_request *request, struct gb_name *ret_prefix, enum gb_spill *to,
                      struct gb_error *err) {
    json_t *body;
    int r;

    if (gb_body_object(request, to ? "prefix to" : "prefix", true, &body, err) < 0)
        return -1;
    r = gb_json_prefix(body, ret_prefix, err) < 0 || (to && read_to(body, to, err) < 0) ? -1 : 0;
    json_decref(body);
    return r;
}

static enum gb_step sweep(struct gb_http_request *request, struct gb_http_response *response, sweep_fn *fn,
                          struct gb_error *err) {
    struct gb_name prefix = {.s = ""};
    enum gb_spill to = GB_SPILL_NEVER;
    struct gb_sweep_call *call;
    struct gb_name session;

    if (gb_path_session(request, &session, err) < 0 ||
        read_sweep(request, &prefix, fn == gb_session_evict ? &to : NULL, err) < 0)
        return GB_STEP_ERROR;
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call)
        return GB_STEP_ERROR;
    call->to = to;
    fn(gb_api_of(request)->core, &session, &prefix, call);
    return gb_async_end(request, response, reply_sweep, 0, err);
}

enum gb_step gb_api_session_evict(struct gb_http_request *request, struct gb_http_response *response,
                                  struct gb_error *err) {
    return sweep(request, response, gb_session_evict, err);
}

enum gb_step gb_api_session_load(struct gb_http_request *request, struct gb_http_response *response,
                                 struct gb_error *err) {
    return sweep(request, response, gb_session_load, err);
}

/* --- the disk ----------------------------------------------------------------------------------------------------- */

static void put_pass(struct gb_json_writer *out, const struct gb_scrub_pass *pass) {
    gb_json_put_u64(out, "files", pass->files);
    gb_json_put_u64(out, "bytes", pass->bytes);
    gb_json_put_u64(out, "damaged", pass->damaged);
    gb_json_put_u64(out, "healed", pass->healed);
    gb_json_put_u64(out, "skipped", pass->skipped);
}

static void render_host(struct gb_json_writer *out, const struct gb_storage_numbers *n) {
    gb_json_open(out, "host", '{');
    gb_json_put_u64(out, "limit_bytes", n->host.limit_bytes);
    gb_json_put_u64(out, "used_bytes", n->host.used_bytes);
    gb_json_put_u64(out, "kept_bytes", n->host.kept_bytes);
    gb_json_put_u64(out, "buffers", n->host.buffers);
    gb_json_close(out, '}');
}

static void render_scrub(struct gb_json_writer *out, const struct gb_scrub_numbers *n) {
    gb_json_open(out, "scrub", '{');
    gb_json_put_string(out, "state", n->running ? "running" : "idle");
    gb_json_put_time_or_null(out, "began", n->pass.began_us);
    put_pass(out, &n->pass);
    gb_json_put_time_or_null(out, "last_ended", n->last_ended_us);
    gb_json_close(out, '}');
}

static void render(struct gb_json_writer *out, const struct gb_api *api, const struct gb_storage_numbers *n,
                   const struct gb_scrub_numbers *scrub) {
    const struct gb_error *why;
    enum gb_disk_state state = gb_storage_state(n, &why);

    gb_json_open(out, NULL, '{');
    gb_json_put_string(out, "state", n->present ? gb_disk_state_name(state) : "none");
    gb_json_put_string(out, "error", n->present && why->code != GB_OK ? why->detail : NULL);
    if (n->present) {
        gb_json_put_string(out, "dir", api->data_dir);
        gb_json_put_u64(out, "free_bytes", n->disk.free_bytes);
    }
    gb_json_put_u64(out, "stored_buffers", n->buffers);
    gb_json_put_u64(out, "writes", n->disk.writes);
    gb_json_put_u64(out, "written_bytes", n->disk.written_bytes);
    gb_json_put_u64(out, "failures", n->disk.failures);
    gb_json_put_u64(out, "damaged", n->disk.damaged);
    gb_json_put_u64(out, "loads", n->loads);
    gb_json_put_u64(out, "loaded_bytes", n->loaded_bytes);
    gb_json_put_u64(out, "loads_from_host", n->loads_from_host);
    gb_json_put_u64(out, "load_failures", n->load_failures);
    gb_json_put_u64(out, "evictions", n->evictions);
    gb_json_put_u64(out, "evictions_for_room", n->evictions_for_room);
    gb_json_put_u64(out, "evictions_to_host", n->evictions_to_host);
    gb_json_put_u64(out, "reloads_within_minute", n->reloads);
    gb_json_put_u64(out, "cold_reads", n->cold_reads);
    render_host(out, n);
    if (n->present)
        render_scrub(out, scrub);
    gb_json_close(out, '}');
}

enum gb_step gb_api_storage(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct gb_storage_numbers numbers;
    struct gb_scrub_numbers scrub;
    struct gb_json_writer out = {0};

    gb_storage_stat(gb_api_of(request)->core, &numbers);
    gb_scrub_stat(gb_api_of(request)->core, &scrub);
    render(&out, gb_api_of(request), &numbers, &scrub);
    return gb_reply_json(&out, 200, response, err);
}

/* --- scrubs ------------------------------------------------------------------------------------------------------- */

static enum gb_step reply_scrubbed(struct gb_http_request *request, const void *result,
                                   struct gb_http_response *response, struct gb_error *err) {
    const struct gb_scrub_call *call = result;
    struct gb_json_writer out = {0};
    size_t i;

    (void)request;
    gb_json_open(&out, NULL, '{');
    gb_json_put_time(&out, "began", call->pass.began_us);
    put_pass(&out, &call->pass);
    gb_json_open(&out, "found", '[');
    for (i = 0; i < call->listed_count; i++) {
        gb_json_open(&out, NULL, '{');
        gb_json_put_string(&out, "session", call->listed[i].session.s);
        gb_json_put_string(&out, "buffer", call->listed[i].buffer.s);
        gb_json_put_string(&out, "code", gb_code_slug(call->listed[i].code));
        gb_json_put_bool(&out, "healed", call->listed[i].healed);
        gb_json_close(&out, '}');
    }
    gb_json_close(&out, ']');
    gb_json_close(&out, '}');
    return gb_reply_json(&out, 200, response, err);
}

static int read_rate(const struct gb_http_request *request, uint64_t *ret, struct gb_error *err) {
    json_t *body;
    int r;

    if (gb_body_object(request, "rate", true, &body, err) < 0)
        return -1;
    r = gb_json_u64(body, "rate", ret, err);
    json_decref(body);
    if (r > 0 && (*ret < SCRUB_RATE_MIN || *ret > SCRUB_RATE_MAX))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "rate is %llu; it is the most bytes a second that the scrub reads, from %llu to %llu",
                            (unsigned long long)*ret, SCRUB_RATE_MIN, SCRUB_RATE_MAX);
    return r < 0 ? -1 : 0;
}

enum gb_step gb_api_storage_scrub(struct gb_http_request *request, struct gb_http_response *response,
                                  struct gb_error *err) {
    struct gb_scrub_call *call;
    uint64_t rate = 0;

    if (read_rate(request, &rate, err) < 0)
        return GB_STEP_ERROR;
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call)
        return GB_STEP_ERROR;
    gb_storage_scrub(gb_api_of(request)->core, rate, call);
    return gb_async_end(request, response, reply_scrubbed, gb_sync_deadline_ns(request), err);
}
