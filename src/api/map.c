/* POST /v1/sessions/{s}/buffers/{b}/map */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/body.h"
#include "api/common.h"
#include "api/conditional.h"
#include "api/render.h"
#include "api/share.h"
#include "base/digest.h"

_Static_assert(GB_EXPORT_HANDLE_BYTES == 64, "as long as a SHA-512, whose base64 we have");

/* A lease on its way to the client, the request's and the call's. Who is last with it when the client did not get it ends
 * the lease. */
enum { WAITING, FINISHED, GIVEN, LEFT };

struct mapping {
    atomic_int refs;
    atomic_int state;
    struct gb_core *core;
    struct gb_call *call;
    struct gb_share *share;          /* borrowed: lives as long as the request */
    struct gb_http_request *request; /* the call's reference */
};

static void unref(struct mapping *m) {
    if (atomic_fetch_sub(&m->refs, 1) != 1)
        return;
    gb_call_unref(m->call);
    free(m);
}

/* Without memory for it the lease ends with the connection. */
static void end_lease(const struct mapping *m) {
    struct gb_call *call = m->call->error.code == GB_OK && m->call->lease ? gb_call_new(NULL, NULL) : NULL;

    if (!call)
        return;
    gb_lease_end(m->core, m->call->lease->id, NULL, call);
    gb_call_unref(call);
}

static void done(void *arg) {
    struct mapping *m = arg;

    if (atomic_exchange(&m->state, FINISHED) == LEFT)
        end_lease(m);
    gb_http_wake(m->request);
    gb_http_request_unref(m->request);
    unref(m);
}

static void mapping_free(void *state) {
    struct mapping *m = state;

    if (atomic_exchange(&m->state, LEFT) == FINISHED)
        end_lease(m);
    unref(m);
}

/* --- the answer --------------------------------------------------------------------------------------------------- */

static void render_handle(struct gb_out *out, const char *key, const unsigned char *bytes) {
    struct gb_digest same = {.alg = GB_DIGEST_SHA512};
    char text[GB_BASE64_SIZE_MAX];

    if (!bytes) {
        gb_out_null(out, key);
        return;
    }
    memcpy(same.bytes, bytes, GB_EXPORT_HANDLE_BYTES);
    gb_digest_text(&same, text);
    gb_out_string(out, key, text);
}

static void render_passed(struct gb_out *out, const struct gb_lease_grant *lease) {
    unsigned i;

    gb_out_open(out, "passed_over", '[');
    for (i = 0; i < lease->passed_count; i++) {
        gb_out_open(out, NULL, '{');
        gb_out_string(out, "way", gb_export_way_name(lease->passed[i].way));
        gb_out_string(out, "reason", lease->passed[i].reason);
        gb_out_close(out, '}');
    }
    gb_out_close(out, ']');
}

static void render(struct gb_out *out, const struct gb_http_request *request, const struct gb_call *call) {
    const struct gb_lease_grant *lease = call->lease;
    const struct gb_buffer_rec *rec = &call->buffer;
    char quoted[GB_ETAG_SIZE + 2];
    char etag[GB_ETAG_SIZE];
    char id[24];

    snprintf(id, sizeof(id), "%" PRId64, lease->id);
    snprintf(quoted, sizeof(quoted), "\"%s\"", gb_etag_data(rec, GB_FORM_RAW, etag));
    gb_out_open(out, NULL, '{');
    gb_out_string(out, "lease", id);
    gb_out_string(out, "session", request->param[0].s);
    gb_out_string(out, "buffer", rec->name.s);
    gb_out_string(out, "mode", lease->write ? "write" : "read");
    gb_out_string(out, "way", gb_export_way_name(lease->export.way));
    render_passed(out, lease);
    gb_out_u64(out, "bytes", rec->bytes);
    gb_out_u64(out, "map_bytes", lease->export.map_bytes);
    gb_out_u64(out, "offset", lease->export.offset);
    gb_out_string(out, "dtype", gb_dtype_name(rec->dtype));
    gb_render_shape(out, "shape", &rec->shape);
    gb_out_i64(out, "generation", rec->generation);
    gb_out_string(out, "etag", quoted);
    gb_render_device_id(out, "device", gb_api_of(request), lease->export.device);
    gb_out_string(out, "kind", gb_kind_name(lease->kind));
    gb_out_u64(out, "fds", lease->export.fd >= 0);
    render_handle(out, "handle", lease->export.handle_bytes > 0 ? lease->export.handle : NULL);
    render_handle(out, "event", lease->has_event ? lease->event : NULL);
    gb_out_close(out, '}');
}

static enum gb_step reply(const struct gb_http_request *request, struct mapping *m, struct gb_http_response *response,
                          struct gb_error *err) {
    struct gb_out out = {0};
    int fd;

    render(&out, request, m->call);
    if (gb_out_reply(&out, response, 200, err) < 0)
        return GB_STEP_ERROR;
    fd = gb_lease_take_fd(m->call);
    if (fd >= 0 && gb_http_response_fd(response, fd, err) < 0)
        return GB_STEP_ERROR;
    gb_share_add(m->share, m->call->lease->id);
    atomic_store(&m->state, GIVEN);
    return GB_STEP_REPLY;
}

static enum gb_step resume(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct mapping *m = request->state;

    if (atomic_load(&m->state) == FINISHED) {
        if (m->call->error.code == GB_OK)
            return reply(request, m, response, err);
        *err = m->call->error;
        return GB_STEP_ERROR;
    }
    if (!request->timed_out)
        return GB_STEP_WAIT;
    gb_error_set(err, GB_ERR_TIMED_OUT, "the mapping was not made in the permitted time; it is given up");
    return GB_STEP_ERROR;
}

/* --- the question ------------------------------------------------------------------------------------------------- */

static int read_mode(const json_t *body, bool *ret_write, struct gb_error *err) {
    const char *mode = "read";

    if (gb_json_string(body, "mode", &mode, err) < 0)
        return -1;
    *ret_write = strcmp(mode, "write") == 0;
    if (!*ret_write && strcmp(mode, "read") != 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "mode must be \"read\" or \"write\", not \"%.40s\"", mode);
    return 0;
}

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

static int read_body(const struct gb_http_request *request, struct gb_lease_params *params, struct gb_error *err) {
    json_t *body;
    int r;

    if (gb_body_object(request, "mode ways", true, &body, err) < 0)
        return -1;
    r = read_mode(body, &params->write, err);
    if (r == 0)
        r = read_ways(body, &params->ways, err);
    json_decref(body);
    return r;
}

static struct mapping *begin(struct gb_http_request *request, struct gb_share *share, struct gb_error *err) {
    struct mapping *m = calloc(1, sizeof(*m));

    if (m)
        m->call = gb_call_new(done, m);
    if (!m || !m->call) {
        free(m);
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
        return NULL;
    }
    atomic_init(&m->refs, 2);
    atomic_init(&m->state, WAITING);
    m->core = gb_api_of(request)->core;
    m->share = share;
    m->request = gb_http_request_ref(request);
    request->state = m;
    request->state_free = mapping_free;
    request->resume = resume;
    return m;
}

/* The connection may end at any time: under the lock the holder has not. */
static struct mapping *start(struct gb_http_request *request, struct gb_share *share, struct gb_lease_params *params,
                             struct gb_error *err) {
    struct mapping *m = NULL;

    pthread_mutex_lock(&share->lock);
    params->holder = share->holder;
    if (params->holder)
        m = begin(request, share, err);
    else
        gb_error_set(err, GB_ERR_CANCELLED, "the connection has ended");
    if (m)
        gb_lease_map(m->core, params, m->call);
    pthread_mutex_unlock(&share->lock);
    return m;
}

enum gb_step gb_api_buffer_map(struct gb_http_request *request, struct gb_http_response *response,
                               struct gb_error *err) {
    struct gb_lease_params params = {.ways = 0};
    struct gb_share *share;

    if (gb_path_names(request, "buffer name", &params.session, &params.name, err) < 0 ||
        read_body(request, &params, err) < 0 || gb_share_permit(request, params.session.s, params.write, err) < 0)
        return GB_STEP_ERROR;
    params.wait_ms = gb_http_prefer_wait(request, GB_SYNC_WAIT_S, GB_SYNC_WAIT_MAX_S, NULL) * 1000;
    share = gb_share_take(request, err);
    if (!share || !start(request, share, &params, err))
        return GB_STEP_ERROR;
    return resume(request, response, err);
}
