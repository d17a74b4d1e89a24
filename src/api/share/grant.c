#include "api/share/grant.h"

#include <stdlib.h>
#include <string.h>

#include "api/context.h"
#include "api/reply/reply_json.h"
#include "api/request/json.h"
#include "api/share/share.h"
#include "base/encoding.h"
#include "base/hash.h"

/* One reference is the request's, one the call's. If the client did not get the lease, the last of the two ends it. */
enum { WAITING, FINISHED, GIVEN, LEFT };

struct grant {
    atomic_int refs;
    atomic_int state;
    struct gb_core *core;
    struct gb_lease_call *call;
    struct gb_share *share;          /* borrowed, lives as long as the request; NULL: no connection has it */
    struct gb_http_request *request; /* the call's reference */
    gb_grant_render *render;
};

static void unref(struct grant *g) {
    if (atomic_fetch_sub(&g->refs, 1) != 1)
        return;
    gb_call_unref(&g->call->base);
    free(g);
}

/* Ends the lease. Without memory for the call it ends with the connection, or when its time is over. */
static void end_lease(const struct grant *g) {
    struct gb_call *call = g->call->base.error.code == GB_OK ? gb_call_new(sizeof(*call), NULL, NULL) : NULL;

    if (!call)
        return;
    gb_lease_end(g->core, g->call->lease.id, NULL, false, call); /* no client was told how to reach the bytes */
    gb_call_unref(call);
}

static void done(void *arg) {
    struct grant *g = arg;

    if (atomic_exchange(&g->state, FINISHED) == LEFT)
        end_lease(g);
    gb_http_wake(g->request);
    gb_http_request_unref(g->request);
    unref(g);
}

static void grant_free(void *state) {
    struct grant *g = state;

    if (atomic_exchange(&g->state, LEFT) == FINISHED)
        end_lease(g);
    unref(g);
}

struct gb_lease_call *gb_grant_begin(struct gb_http_request *request, struct gb_share *share, gb_grant_render *render,
                                     struct gb_error *err) {
    struct grant *g = calloc(1, sizeof(*g));

    if (g)
        g->call = gb_call_new(sizeof(*g->call), done, g);
    if (!g || !g->call) {
        free(g);
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
        return NULL;
    }
    atomic_init(&g->refs, 2);
    atomic_init(&g->state, WAITING);
    g->core = gb_api_of(request)->core;
    g->share = share;
    g->render = render;
    g->request = gb_http_request_ref(request);
    request->state = g;
    request->state_free = grant_free;
    request->resume = gb_grant_resume;
    return g->call;
}

static enum gb_step reply(const struct gb_http_request *request, struct grant *g, struct gb_http_response *response,
                          struct gb_error *err) {
    struct gb_json_writer out = {0};
    int fd;

    g->render(&out, request, g->call);
    if (gb_json_reply(&out, response, 200, err) < 0)
        return GB_STEP_ERROR;
    fd = gb_lease_take_fd(g->call);
    if (fd >= 0 && gb_http_response_fd(response, fd, err) < 0)
        return GB_STEP_ERROR;
    if (g->share)
        gb_share_add(g->share, g->call->lease.id);
    atomic_store(&g->state, GIVEN);
    return GB_STEP_REPLY;
}

enum gb_step gb_grant_resume(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct grant *g = request->state;

    if (atomic_load(&g->state) == FINISHED) {
        if (g->call->base.error.code == GB_OK)
            return reply(request, g, response, err);
        *err = g->call->base.error;
        return GB_STEP_ERROR;
    }
    if (!request->timed_out)
        return GB_STEP_WAIT;
    gb_error_set(err, GB_ERR_TIMED_OUT, "the lease was not granted in the permitted time; it is given up");
    return GB_STEP_ERROR;
}

int gb_grant_mode(const json_t *body, bool *ret_write, struct gb_error *err) {
    const char *mode = "read";

    if (gb_json_string(body, "mode", &mode, err) < 0)
        return -1;
    *ret_write = strcmp(mode, "write") == 0;
    if (!*ret_write && strcmp(mode, "read") != 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "mode must be \"read\" or \"write\", not \"%.40s\"", mode);
    return 0;
}

void gb_grant_handle(struct gb_json_writer *out, const char *key, const unsigned char *bytes) {
    char text[GB_BASE64_SIZE(GB_EXPORT_HANDLE_BYTES)];

    if (!bytes) {
        gb_json_put_null(out, key);
        return;
    }
    gb_base64_write(bytes, GB_EXPORT_HANDLE_BYTES, false, text);
    gb_json_put_string(out, key, text);
}
