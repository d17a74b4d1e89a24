/* GET and HEAD /v1/sessions/{session}/tensors: many buffers as one safetensors file. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "api/context.h"
#include "api/middleware/conditional.h"
#include "api/request/media.h"
#include "api/request/query.h"
#include "api/route.h"
#include "api/transfer/tensors_select.h"
#include "base/hash.h"

struct group {
    struct gb_http_source source; /* first */
    struct gb_download_group *core;
    struct gb_json_writer head;
    size_t head_sent;
    uint64_t bytes;    /* behind the head */
    const char *block; /* the first, got before the header went out */
    size_t block_n;
};

/* --- as a source -------------------------------------------------------------------------------------------------- */

static int source_next(struct gb_http_source *source, const void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    struct group *b = (struct group *)source;

    if (b->head_sent < b->head.used) {
        *ret_ptr = b->head.s + b->head_sent;
        *ret_n = b->head.used - b->head_sent;
        return 1;
    }
    if (b->block_n > 0) {
        *ret_ptr = b->block;
        *ret_n = b->block_n;
        return 1;
    }
    return gb_download_group_next(b->core, ret_ptr, ret_n, err);
}

static void source_sent(struct gb_http_source *source, size_t n) {
    struct group *b = (struct group *)source;

    if (b->head_sent < b->head.used) {
        b->head_sent += n;
        return;
    }
    if (b->block_n > 0) {
        b->block += n;
        b->block_n -= n;
    }
    gb_download_group_sent(b->core, n);
}

static void source_pause(struct gb_http_source *source) {
    struct group *b = (struct group *)source;

    b->block_n = 0; /* the core gives the rest of it again */
    gb_download_group_pause(b->core);
}

static void source_free(struct gb_http_source *source, bool complete) {
    struct group *b = (struct group *)source;

    (void)complete;
    gb_download_group_free(b->core);
    gb_json_done(&b->head);
    free(b);
}

static void state_free(void *state) {
    source_free(state, false);
}

static void wake(void *arg) {
    gb_http_wake(arg);
}

/* --- the reply ---------------------------------------------------------------------------------------------------- */

/* Drops the prepared headers, which do not belong to an error. */
static enum gb_step fail(struct gb_http_response *response) {
    gb_http_response_done(response);
    return GB_STEP_ERROR;
}

/* Makes the entity tag of the header and of the contents that follow it. */
static int make_tag(const struct group *b, char tag[GB_BASE64_SIZE_MAX], struct gb_error *err) {
    struct gb_hash *hash = gb_hash_new(GB_DIGEST_SHA256, err);
    struct gb_digest digest;
    size_t i;
    int r = hash ? gb_hash_add(hash, b->head.s, b->head.used, err) : -1;

    for (i = 0; i < gb_download_group_count(b->core) && r == 0; i++) {
        char one[GB_ETAG_SIZE];

        gb_etag_data(gb_download_group_record(b->core, i), GB_FORM_RAW, one);
        r = gb_hash_add(hash, one, strlen(one) + 1, err);
    }
    if (r == 0) {
        gb_hash_get(hash, &digest);
        gb_digest_text(&digest, tag);
    }
    gb_hash_free(hash);
    return r;
}

static enum gb_step send(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct group *b = request->state;
    struct gb_transfer_times times;
    int r = 0;

    gb_download_group_times(b->core, &times);
    r |= gb_http_response_header(response, err, "Content-Type", "%s", GB_MEDIA_SAFETENSORS);
    r |= gb_http_response_header(response, err, "Accept-Ranges", "none");
    if (request->method != GB_HTTP_HEAD)
        r |= gb_http_response_header(response, err, "Server-Timing", "queue;dur=%.3f", times.queue_ms);
    if (r < 0)
        return fail(response);
    request->state = NULL;
    request->state_free = NULL;
    gb_http_response_source(response, &b->source, b->head.used + b->bytes);
    return GB_STEP_REPLY;
}

/* Waits for the first block, so that a failure of the device still becomes the status. */
static enum gb_step first_block(struct gb_http_request *request, struct gb_http_response *response,
                                struct gb_error *err) {
    struct group *b = request->state;
    const void *block;
    int r = gb_download_group_next(b->core, &block, &b->block_n, err);

    if (r > 0) {
        b->block = block;
        return send(request, response, err);
    }
    if (r == 0 && !request->timed_out)
        return GB_STEP_WAIT;
    if (r == 0)
        gb_error_set(err, GB_ERR_TIMED_OUT, "the device did not give the first bytes in the permitted time");
    return fail(response);
}

/* Returns 1 to send, 0 when the response is complete, or -1. */
static int prepare(struct gb_http_request *request, struct group *b, struct gb_http_response *response,
                   struct gb_error *err) {
    char tag[GB_BASE64_SIZE_MAX];
    size_t *order;
    int r;

    if (gb_tensors_header(b->core, &b->head, &order, &b->bytes, err) < 0)
        return -1;
    r = make_tag(b, tag, err);
    if (r == 0)
        r = gb_conditions_get(request, tag, response, err);
    if (r > 0 && gb_download_group_start(b->core, order, err) < 0)
        r = -1;
    free(order);
    return r;
}

static int open_buffers(struct gb_http_request *request, struct group *b, struct gb_error *err) {
    struct gb_name session;
    struct gb_name stream = {"default"};
    struct gb_name *names;
    enum gb_form form;
    size_t count;
    bool named;
    int r;

    if (gb_param_name(request, 0, "session name", &session, err) < 0 ||
        gb_query_name(request, "stream", &stream, err) < 0 ||
        gb_media_accept(gb_http_header(request, "Accept"), 1u << GB_FORM_SAFETENSORS, &form, err) < 0 ||
        gb_tensors_select(request, &session, &names, &count, &named, err) < 0)
        return -1;
    r = gb_download_group_open(gb_api_of(request)->core, &session, names, count, !named, &stream,
                               (struct gb_waker){wake, request}, &b->core, err);
    free(names);
    return r;
}

enum gb_step gb_api_tensors_get(struct gb_http_request *request, struct gb_http_response *response,
                                struct gb_error *err) {
    struct group *b = calloc(1, sizeof(*b));
    int r;

    if (!b) {
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the download; try again later");
        return GB_STEP_ERROR;
    }
    b->source =
        (struct gb_http_source){.next = source_next, .sent = source_sent, .pause = source_pause, .free = source_free};
    request->state = b;
    request->state_free = state_free;
    if (open_buffers(request, b, err) < 0)
        return GB_STEP_ERROR;
    r = prepare(request, b, response, err);
    if (r <= 0)
        return r < 0 ? fail(response) : GB_STEP_REPLY;
    if (request->method == GB_HTTP_HEAD || b->bytes == 0)
        return send(request, response, err);
    request->resume = first_block;
    return first_block(request, response, err);
}
