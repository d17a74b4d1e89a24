/* POST /v1/sessions/{session}/buffers/{buffer}/map */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/context.h"
#include "api/middleware/conditional.h"
#include "api/reply/render.h"
#include "api/request/body.h"
#include "api/request/path_params.h"
#include "api/request/wait.h"
#include "api/route.h"
#include "api/share/grant.h"
#include "api/share/share.h"

/* --- the answer --------------------------------------------------------------------------------------------------- */

static void render_passed(struct gb_json_writer *out, const struct gb_lease_grant *lease) {
    unsigned i;

    gb_json_open(out, "passed_over", '[');
    for (i = 0; i < lease->passed_count; i++) {
        gb_json_open(out, NULL, '{');
        gb_json_put_string(out, "way", gb_export_way_name(lease->passed[i].way));
        gb_json_put_string(out, "reason", lease->passed[i].reason);
        gb_json_close(out, '}');
    }
    gb_json_close(out, ']');
}

/* Importers open a pool once for all that they map of it. The id is that of no other pool, nor of another daemon's. */
static void render_pool(struct gb_json_writer *out, const struct gb_http_request *request,
                        const struct gb_lease_grant *lease) {
    char id[40];

    if (lease->pool_id == 0) {
        gb_json_put_null(out, "pool");
        return;
    }
    snprintf(id, sizeof(id), "%" PRIx64 "-%" PRIx64, (uint64_t)gb_api_of(request)->started_us,
             (uint64_t)lease->pool_id);
    gb_json_open(out, "pool", '{');
    gb_json_put_string(out, "id", id);
    gb_json_put_string(out, "name", lease->pool.s);
    gb_json_close(out, '}');
}

static void render(struct gb_json_writer *out, const struct gb_http_request *request,
                   const struct gb_lease_call *call) {
    const struct gb_lease_grant *lease = &call->lease;
    const struct gb_buffer_rec *rec = &call->buffer;
    char quoted[GB_ETAG_SIZE + 2];
    char etag[GB_ETAG_SIZE];
    char id[24];

    snprintf(id, sizeof(id), "%" PRId64, lease->id);
    snprintf(quoted, sizeof(quoted), "\"%s\"", gb_etag_data(rec, GB_FORM_RAW, etag));
    gb_json_open(out, NULL, '{');
    gb_json_put_string(out, "lease", id);
    gb_json_put_string(out, "session", request->param[0].s);
    gb_json_put_string(out, "buffer", rec->name.s);
    gb_json_put_string(out, "mode", lease->write ? "write" : "read");
    gb_json_put_string(out, "way", gb_export_way_name(lease->export.way));
    render_passed(out, lease);
    if (lease->expires_at_us > 0)
        gb_json_put_time(out, "expires_at", lease->expires_at_us);
    else
        gb_json_put_null(out, "expires_at");
    gb_json_put_u64(out, "bytes", rec->bytes);
    gb_json_put_u64(out, "map_bytes", lease->export.map_bytes);
    gb_json_put_u64(out, "offset", lease->export.offset);
    gb_json_put_string(out, "dtype", gb_dtype_name(rec->dtype));
    gb_render_shape(out, "shape", &rec->shape);
    gb_json_put_i64(out, "generation", rec->generation);
    gb_json_put_string(out, "etag", quoted);
    gb_render_device_id(out, "device", gb_api_of(request), lease->export.device);
    gb_json_put_string(out, "kind", gb_kind_name(lease->kind));
    render_pool(out, request, lease);
    gb_json_put_u64(out, "fds", lease->export.fd >= 0);
    gb_grant_handle(out, "handle", lease->export.handle_bytes > 0 ? lease->export.handle : NULL);
    gb_grant_handle(out, "event", lease->has_event ? lease->event : NULL);
    gb_grant_handle(out, "finished_event", lease->has_finished ? lease->finished : NULL);
    if (lease->finished_missing[0] != '\0')
        gb_json_put_string(out, "finished_event_missing", lease->finished_missing);
    gb_json_close(out, '}');
}

/* --- the question ------------------------------------------------------------------------------------------------- */

static int read_ways(const json_t *body, unsigned *ret_ways, struct gb_error *err) {
    const json_t *list = json_object_get(body, "ways");
    const json_t *word;
    size_t i;

    if (!list)
        return 0;
    if (!json_is_array(list))
        return gb_error_set(err, GB_ERR_WRONG_TYPE, "the field 'ways' must be a list of words");
    if (json_array_size(list) == 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the field 'ways' names no way; leave it out for any");
    json_array_foreach(list, i, word) {
        enum gb_export_way way;

        if (!json_is_string(word))
            return gb_error_set(err, GB_ERR_WRONG_TYPE, "the field 'ways' must be a list of words");
        if (gb_export_way_find(json_string_value(word), json_string_length(word), &way, err) < 0)
            return -1;
        *ret_ways |= 1u << way;
    }
    return 0;
}

static int read_age(const struct gb_http_request *request, const json_t *body, uint64_t *ret, struct gb_error *err) {
    uint64_t max = gb_api_of(request)->limits.lease_age_max_s;
    uint64_t most = max > 0 ? max : GB_LEASE_AGE_MAX_S;
    int r;

    *ret = max;
    r = gb_json_u64(body, "max_age", ret, err);
    if (r <= 0)
        return r;
    if (*ret < 1 || *ret > most)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "max_age must be from 1 to %" PRIu64 " seconds, not %" PRIu64 "%s", most, *ret,
                            max > 0 ? " (--max-lease-age)" : "");
    return 0;
}

static int read_body(const struct gb_http_request *request, struct gb_lease_params *params, struct gb_error *err) {
    json_t *body;
    int r;

    if (gb_body_object(request, "mode ways finished_event max_age", true, &body, err) < 0)
        return -1;
    r = gb_grant_mode(body, &params->write, err);
    if (r == 0)
        r = read_ways(body, &params->ways, err);
    if (r == 0 && gb_json_bool(body, "finished_event", &params->finished, err) < 0)
        r = -1;
    if (r == 0)
        r = read_age(request, body, &params->max_age_s, err);
    json_decref(body);
    return r;
}

/* Takes the holder under the lock, because the connection may end at any time. */
static int start(struct gb_http_request *request, struct gb_share *share, struct gb_lease_params *params,
                 struct gb_error *err) {
    struct gb_lease_call *call = NULL;

    pthread_mutex_lock(&share->lock);
    params->holder = share->holder;
    if (params->holder)
        call = gb_grant_begin(request, share, render, err);
    else
        gb_error_set(err, GB_ERR_CANCELLED, "the connection has ended");
    if (call)
        gb_lease_map(gb_api_of(request)->core, params, call);
    pthread_mutex_unlock(&share->lock);
    return call ? 0 : -1;
}

enum gb_step gb_api_buffer_map(struct gb_http_request *request, struct gb_http_response *response,
                               struct gb_error *err) {
    struct gb_lease_params params = {.ways = 0};
    struct gb_share *share;

    if (gb_path_names(request, "buffer name", &params.session, &params.name, err) < 0 ||
        read_body(request, &params, err) < 0 || gb_share_permit(request, params.session.s, params.write, err) < 0)
        return GB_STEP_ERROR;
    params.caller = request->caller;
    params.wait_ms = gb_http_prefer_wait(request, GB_SYNC_WAIT_S, GB_SYNC_WAIT_MAX_S, NULL) * 1000;
    share = gb_share_take(request, err);
    if (!share || start(request, share, &params, err) < 0)
        return GB_STEP_ERROR;
    return gb_grant_resume(request, response, err);
}
