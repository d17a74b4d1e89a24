/* Memory that two processes see: a buffer is mapped or exported, or memory of a client becomes a buffer. Descriptors go
 * over the UNIX socket alone. leases.c takes a lease to its client. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/context.h"
#include "api/pipeline/async.h"
#include "api/pipeline/conditional.h"
#include "api/reply.h"
#include "api/request/body.h"
#include "api/request/query.h"
#include "api/resources/leases.h"
#include "base/clock.h"
#include "base/encoding.h"
#include "base/hash.h"

/* --- map ---------------------------------------------------------------------------------------------------------- */

/* POST /v1/sessions/{session}/buffers/{buffer}/map: a lease on the memory, with a descriptor or a handle of it. */

/* --- map: the reply ----------------------------------------------------------------------------------------------- */

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

static void render_id(struct gb_json_writer *out, const struct gb_lease_call *call) {
    char id[24];

    snprintf(id, sizeof(id), "%" PRId64, call->lease.id);
    gb_json_put_string(out, "lease", id);
}

static void render_buffer(struct gb_json_writer *out, const struct gb_http_request *request,
                          const struct gb_lease_call *call) {
    gb_json_put_string(out, "session", request->param[0].s);
    gb_json_put_string(out, "buffer", call->buffer.name.s);
    gb_json_put_string(out, "mode", call->lease.write ? "write" : "read");
}

static void render_content(struct gb_json_writer *out, const struct gb_http_request *request,
                           const struct gb_lease_call *call) {
    const struct gb_buffer_rec *rec = &call->buffer;
    char quoted[GB_ETAG_SIZE + 2];
    char etag[GB_ETAG_SIZE];

    snprintf(quoted, sizeof(quoted), "\"%s\"", gb_etag_data(rec, GB_FORM_RAW, etag));
    gb_json_put_u64(out, "offset", call->lease.export.offset);
    gb_json_put_string(out, "dtype", gb_dtype_name(rec->dtype));
    gb_render_shape(out, "shape", &rec->shape);
    gb_json_put_i64(out, "generation", rec->generation);
    gb_json_put_string(out, "etag", quoted);
    gb_render_device_id(out, "device", gb_api_of(request), call->lease.export.device);
    gb_json_put_string(out, "kind", gb_kind_name(call->lease.kind));
}

static void render(struct gb_json_writer *out, const struct gb_http_request *request,
                   const struct gb_lease_call *call) {
    const struct gb_lease_grant *lease = &call->lease;

    gb_json_open(out, NULL, '{');
    render_id(out, call);
    render_buffer(out, request, call);
    gb_json_put_string(out, "way", gb_export_way_name(lease->export.way));
    render_passed(out, lease);
    gb_json_put_time_or_null(out, "expires_at", lease->expires_at_us);
    gb_json_put_u64(out, "bytes", call->buffer.bytes);
    gb_json_put_u64(out, "map_bytes", lease->export.map_bytes);
    render_content(out, request, call);
    render_pool(out, request, lease);
    gb_json_put_u64(out, "fds", lease->export.fd >= 0);
    gb_grant_handle(out, "handle", lease->export.handle_bytes > 0 ? lease->export.handle : NULL);
    gb_grant_handle(out, "event", lease->has_event ? lease->event : NULL);
    gb_grant_handle(out, "finished_event", lease->has_finished ? lease->finished : NULL);
    if (lease->finished_missing[0] != '\0')
        gb_json_put_string(out, "finished_event_missing", lease->finished_missing);
    gb_json_close(out, '}');
}

/* --- map: the request --------------------------------------------------------------------------------------------- */

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

/* --- export ------------------------------------------------------------------------------------------------------- */

/* POST /v1/sessions/{session}/buffers/{buffer}/export: CUDA's older handle as JSON, in the form that Triton
 * registers. */

/* raw_handle, device_id and byte_size are Triton's words; it ignores the other members. The bytes begin at the start of
 * the handle's memory. */
static void render_export(struct gb_json_writer *out, const struct gb_http_request *request,
                          const struct gb_lease_call *call) {
    const struct gb_lease_grant *lease = &call->lease;

    gb_json_open(out, NULL, '{');
    gb_json_open(out, "raw_handle", '{');
    gb_grant_handle(out, "b64", lease->export.handle);
    gb_json_close(out, '}');
    gb_json_put_i64(out, "device_id", lease->export.device);
    gb_json_put_u64(out, "byte_size", call->buffer.bytes);
    render_id(out, call);
    gb_json_put_time(out, "expires_at", lease->expires_at_us);
    render_buffer(out, request, call);
    render_content(out, request, call);
    gb_json_close(out, '}');
}

static int read_ttl(const struct gb_http_request *request, const json_t *body, uint64_t *ret, struct gb_error *err) {
    uint64_t max = gb_api_of(request)->limits.export_ttl_max_s;

    *ret = max < GB_EXPORT_TTL_S ? max : GB_EXPORT_TTL_S;
    if (gb_json_u64(body, "ttl_s", ret, err) < 0)
        return -1;
    if (*ret < 1 || *ret > max)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "ttl_s must be from 1 to %" PRIu64 " seconds, not %" PRIu64 " (--max-export-ttl)", max,
                            *ret);
    return 0;
}

static int read_export(const struct gb_http_request *request, struct gb_export_params *params, struct gb_error *err) {
    json_t *body;
    int r;

    if (gb_body_object(request, "ttl_s mode", true, &body, err) < 0)
        return -1;
    r = gb_grant_mode(body, &params->write, err);
    if (r == 0)
        r = read_ttl(request, body, &params->ttl_s, err);
    json_decref(body);
    return r;
}

enum gb_step gb_api_buffer_export(struct gb_http_request *request, struct gb_http_response *response,
                                  struct gb_error *err) {
    struct gb_export_params params = {.uid = (uid_t)-1, .gid = (gid_t)-1};
    struct gb_lease_call *call;

    if (gb_path_names(request, "buffer name", &params.session, &params.name, err) < 0 ||
        read_export(request, &params, err) < 0 ||
        gb_share_permit_export(request, params.session.s, params.write, err) < 0)
        return GB_STEP_ERROR;
    if (request->peer) {
        params.uid = request->peer->uid;
        params.gid = request->peer->gid;
    }
    params.caller = request->caller;
    params.wait_ms = gb_http_prefer_wait(request, GB_SYNC_WAIT_S, GB_SYNC_WAIT_MAX_S, NULL) * 1000;
    call = gb_grant_begin(request, NULL, render_export, err);
    if (!call)
        return GB_STEP_ERROR;
    gb_lease_export(gb_api_of(request)->core, &params, call);
    return gb_grant_resume(request, response, err);
}

/* --- adopt -------------------------------------------------------------------------------------------------------- */

/* POST /v1/sessions/{session}/buffers/{buffer}/adopt: memory that the client owns becomes a buffer. */

#define FIELDS "way bytes dtype shape handle map_bytes offset device side"

/* A request whose descriptor is on its way. */
struct adopting {
    struct gb_adopt_params params;
    struct gb_share *share; /* borrowed: lives as long as the request */
    struct gb_http_fd_mailbox *mailbox;
};

/* The conditions, unless the call has them. */
static void drop_check(struct gb_adopt_params *params) {
    if (params->check.free_arg)
        params->check.free_arg(params->check.arg);
    params->check = (struct gb_buffer_check){.check = NULL};
}

static void adopting_free(void *state) {
    struct adopting *a = state;

    drop_check(&a->params);
    gb_http_fd_mailbox_free(a->mailbox);
    free(a);
}

/* --- adopt: the request ------------------------------------------------------------------------------------------- */

static int read_way(const json_t *body, struct gb_import *what, struct gb_error *err) {
    const char *word = NULL;
    int r = gb_json_string(body, "way", &word, err);

    if (r < 0)
        return -1;
    if (r == 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "give 'way': memfd for host memory, vmm, pool or legacy for that of a GPU");
    return gb_export_way_find(word, strlen(word), &what->way, err);
}

/* CUDA's older handle, and the pointer into a pool, come in the body; the other handles are descriptors. */
static int read_handle(const json_t *body, struct gb_import *what, struct gb_error *err) {
    bool legacy = what->way == GB_EXPORT_LEGACY;
    bool needed = what->bytes > 0 && (legacy || what->way == GB_EXPORT_POOL);
    const char *of = legacy ? "cudaIpcGetMemHandle" : "cudaMemPoolExportPointer";
    const char *text = NULL;
    int r = gb_json_string(body, "handle", &text, err);

    if (r < 0)
        return -1;
    if (r > 0 && !legacy && what->way != GB_EXPORT_POOL)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "the field 'handle' goes with the ways legacy and pool; others hand over a descriptor");
    if (r == 0 && needed)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the way %s needs 'handle': 64 bytes of %s in base64",
                            gb_export_way_name(what->way), of);
    if (r > 0 && !gb_base64_exact(text, strlen(text), what->handle, sizeof(what->handle)))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the field 'handle' must be the 64 bytes of %s in base64",
                            of);
    return 0;
}

static int read_place(const struct gb_http_request *request, const json_t *body, struct gb_adopt_params *params,
                      struct gb_error *err) {
    struct gb_import *what = &params->import;
    int r = gb_json_u64(body, "map_bytes", &what->map_bytes, err);
    int device;

    if (r < 0 || gb_json_u64(body, "offset", &what->offset, err) < 0)
        return -1;
    device = gb_device_field(gb_api_of(request), body, "device", &what->device, err);
    if (device < 0)
        return -1;
    params->has_device = device > 0;
    if (r > 0 && what->way != GB_EXPORT_VMM)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "the field 'map_bytes' goes with the way vmm: of others the size is known");
    if (r > 0 && (what->map_bytes < what->bytes || what->offset > what->map_bytes - what->bytes))
        return gb_error_set(
            err, GB_ERR_INVALID_ARGUMENT, "%llu bytes at offset %llu do not lie within the %llu of 'map_bytes'",
            (unsigned long long)what->bytes, (unsigned long long)what->offset, (unsigned long long)what->map_bytes);
    return 0;
}

static int read_side(const json_t *body, struct gb_adopt_params *params, struct gb_error *err) {
    struct gb_sides side;

    params->has_side = json_object_get(body, "side") != NULL;
    if (params->has_side && gb_action_read_sides(body, "side", false, &side, err) < 0)
        return -1;
    params->side = params->has_side && side.device ? GB_SIDE_DEVICE : GB_SIDE_HOST;
    return 0;
}

static int read_fields(const struct gb_http_request *request, const json_t *body, struct gb_adopt_params *params,
                       struct gb_error *err) {
    struct gb_buffer_params layout = {.dtype = GB_DTYPE_UINT8};

    if (read_way(body, &params->import, err) < 0 || read_side(body, params, err) < 0 ||
        gb_buffer_layout_read(body, &layout, err) < 0)
        return -1;
    params->dtype = layout.dtype;
    params->shape = layout.shape;
    params->import.bytes = layout.bytes;
    if (read_handle(body, &params->import, err) < 0)
        return -1;
    return read_place(request, body, params, err);
}

static int read_all(const struct gb_http_request *request, struct gb_adopt_params *params, struct gb_error *err) {
    json_t *body;
    int r;

    if (gb_path_names(request, "buffer name", &params->session, &params->name, err) < 0 ||
        gb_body_object(request, FIELDS, false, &body, err) < 0)
        return -1;
    r = read_fields(request, body, params, err);
    json_decref(body);
    return r;
}

/* --- adopt: the call ---------------------------------------------------------------------------------------------- */

/* Takes the holder under the lock, because the connection may end at any time. mailbox: has the descriptor; NULL if no
 * descriptor is needed. */
static int start_adopting(struct gb_http_request *request, struct gb_share *share, struct gb_adopt_params *params,
                          struct gb_http_fd_mailbox *mailbox, struct gb_error *err) {
    struct gb_buffer_call *call = NULL;

    pthread_mutex_lock(&share->lock);
    params->holder = share->holder;
    if (params->holder)
        call = gb_async_begin(request, sizeof(*call), err);
    else
        gb_error_set(err, GB_ERR_CANCELLED, "the connection has ended");
    if (call && mailbox)
        (void)gb_http_fd_mailbox_take(mailbox, &params->import.fd, NULL);
    if (call) {
        gb_buffer_adopt(gb_api_of(request)->core, params, call);
        params->check = (struct gb_buffer_check){.check = NULL}; /* the call has it */
    }
    pthread_mutex_unlock(&share->lock);
    return call ? 0 : -1;
}

static int nothing_came(const struct gb_http_request *request, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_REQUEST_TIMEOUT,
                        "no descriptor came within %llu seconds: the socket that came with 103 takes it, with "
                        "SCM_RIGHTS",
                        (unsigned long long)((gb_clock_ns() - request->started_ns) / GB_NS_PER_S));
}

static enum gb_step resume(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct adopting *a = request->state;
    int r = gb_http_fd_mailbox_take(a->mailbox, NULL, err);

    if (r == 0 && !request->timed_out)
        return GB_STEP_WAIT;
    if (r == 0)
        nothing_came(request, err);
    if (r <= 0)
        return GB_STEP_ERROR;
    request->state = NULL; /* belongs to the call from here on */
    request->state_free = NULL;
    r = start_adopting(request, a->share, &a->params, a->mailbox, err);
    adopting_free(a);
    return r < 0 ? GB_STEP_ERROR : gb_async_end(request, response, gb_reply_buffer, 0, err);
}

/* Asks the client for the descriptor. Takes over params->check. */
static enum gb_step ask(struct gb_http_request *request, struct gb_share *share, struct gb_adopt_params *params,
                        struct gb_error *err) {
    unsigned wait_s = gb_http_prefer_wait(request, GB_SYNC_WAIT_S, GB_SYNC_WAIT_MAX_S, NULL);
    struct adopting *a = calloc(1, sizeof(*a));

    if (!a) {
        drop_check(params);
        gb_error_memory(err, "request");
        return GB_STEP_ERROR;
    }
    a->params = *params;
    a->share = share;
    if (gb_http_fd_mailbox_open(request, &a->mailbox, err) < 0) {
        adopting_free(a);
        return GB_STEP_ERROR;
    }
    request->state = a;
    request->state_free = adopting_free;
    request->resume = resume;
    request->deadline_ns = gb_clock_ns() + wait_s * GB_NS_PER_S;
    return GB_STEP_WAIT;
}

static enum gb_step begin(struct gb_http_request *request, struct gb_adopt_params *params,
                          struct gb_http_response *response, struct gb_error *err) {
    struct gb_share *share = NULL;

    if (gb_adopt_check(gb_api_of(request)->core, params, err) == 0)
        share = gb_share_take(request, err);
    if (share && params->import.way != GB_EXPORT_LEGACY)
        return ask(request, share, params, err);
    if (!share || start_adopting(request, share, params, NULL, err) < 0) {
        drop_check(params);
        return GB_STEP_ERROR;
    }
    return gb_async_end(request, response, gb_reply_buffer, 0, err);
}

/* 0 bytes in place of a side: no memory comes, and the side's own is given up. Takes over params->check. */
static enum gb_step take_away(struct gb_http_request *request, struct gb_adopt_params *params,
                              struct gb_http_response *response, struct gb_error *err) {
    const struct gb_locator at = {params->session, params->name};
    struct gb_buffer_call *call = NULL;

    if (gb_share_take(request, err))
        call = gb_async_begin(request, sizeof(*call), err);
    if (!call) {
        drop_check(params);
        return GB_STEP_ERROR;
    }
    gb_buffer_mirror_drop(gb_api_of(request)->core, &at, params->side, &params->check, call);
    return gb_async_end(request, response, gb_reply_buffer, 0, err);
}

enum gb_step gb_api_buffer_adopt(struct gb_http_request *request, struct gb_http_response *response,
                                 struct gb_error *err) {
    struct gb_adopt_params params = {.import = {.fd = -1}};
    struct gb_conditions *conditions;

    if (read_all(request, &params, err) < 0 || gb_share_permit(request, params.session.s, true, err) < 0 ||
        gb_conditions_read(request, &conditions, err) < 0)
        return GB_STEP_ERROR;
    params.check = gb_conditions_buffer_check(conditions);
    if (params.has_side && params.import.bytes == 0)
        return take_away(request, &params, response, err);
    return begin(request, &params, response, err);
}
