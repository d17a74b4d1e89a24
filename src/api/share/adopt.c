/* POST /v1/sessions/{session}/buffers/{buffer}/adopt: memory that the client owns becomes a buffer. */
#include <stdlib.h>
#include <string.h>

#include "api/context.h"
#include "api/middleware/async.h"
#include "api/middleware/conditional.h"
#include "api/request/actions.h"
#include "api/request/body.h"
#include "api/request/buffer_fields.h"
#include "api/request/device_param.h"
#include "api/request/json.h"
#include "api/request/path_params.h"
#include "api/request/wait.h"
#include "api/route.h"
#include "api/share/share.h"
#include "base/clock.h"
#include "base/encoding.h"
#include "base/hash.h"

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

/* --- the question ------------------------------------------------------------------------------------------------- */

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
    const char *of = legacy ? "cudaIpcGetMemHandle" : "cudaMemPoolExportPointer";
    const char *text = NULL;
    int r = gb_json_string(body, "handle", &text, err);

    if (r < 0)
        return -1;
    if (r > 0 && !legacy && what->way != GB_EXPORT_POOL)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "the field 'handle' goes with the ways legacy and pool; others hand over a descriptor");
    if (r == 0 && (legacy || what->way == GB_EXPORT_POOL))
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

/* --- the work ----------------------------------------------------------------------------------------------------- */

/* Takes the holder under the lock, because the connection may end at any time. mailbox: has the descriptor; NULL when
 * none is needed. */
static int start(struct gb_http_request *request, struct gb_share *share, struct gb_adopt_params *params,
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
    r = start(request, a->share, &a->params, a->mailbox, err);
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
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
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
    if (!share || start(request, share, params, NULL, err) < 0) {
        drop_check(params);
        return GB_STEP_ERROR;
    }
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
    return begin(request, &params, response, err);
}
