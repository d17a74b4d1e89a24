/* A body in a content coding: gathered in pieces, decoded straight into the room that the inner sink gives. */
#include <inttypes.h>
#include <stdlib.h>

#include "api/context.h"
#include "api/middleware/filters.h"

#define IN_BYTES (128u << 10)
/* Bytes that are decoded in one go; then other requests of the same thread have their turn. */
#define TURN_BYTES (512u << 10)

struct sink {
    struct gb_http_sink sink; /* first */
    struct gb_api *api;
    struct gb_http_request *request;
    struct gb_http_sink *inner;
    struct gb_decoder *decoder;
    const char *at; /* of in, not decoded yet */
    size_t left;
    bool full; /* input is left, or the decoder has kept something back */
    bool held; /* one byte is decoded and has no room yet: room is asked for only when there are bytes to put there */
    char byte;
    uint64_t made;
    size_t turn;
    char in[IN_BYTES];
};

int gb_filters_permit(const struct gb_api *api, uint64_t bytes, struct gb_error *err) {
    uint64_t most = api->limits.expanded_bytes;

    if (bytes <= most)
        return 0;
    gb_error_numbers(err, most, 0, bytes);
    return gb_error_set(err, GB_ERR_BODY_TOO_LARGE,
                        "the body expands to more than the %" PRIu64
                        " bytes of the daemon's --max-expanded; send it in "
                        "parts, or without Content-Encoding",
                        most);
}

static int decode(struct sink *s, char *out, size_t n, size_t *ret_made, struct gb_error *err) {
    if (gb_decoder_run(s->decoder, &s->at, &s->left, out, n, ret_made, err) < 0)
        return -1;
    s->made += *ret_made;
    s->turn += *ret_made;
    return gb_filters_permit(s->api, s->made, err);
}

/* Decodes the bytes that have come. Returns 1 when none is left, 0 to wait for a wake, or -1. */
static int pump(struct sink *s, struct gb_error *err) {
    size_t made;
    size_t n;
    void *room;
    int r;

    while (s->full) {
        if (s->turn >= TURN_BYTES) {
            s->turn = 0;
            gb_http_wake(s->request);
            return 0;
        }
        if (!s->held) {
            if (decode(s, &s->byte, 1, &made, err) < 0)
                return -1;
            s->held = made > 0;
            s->full = s->held;
            continue;
        }
        r = s->inner->room(s->inner, &room, &n, err);
        if (r <= 0)
            return r;
        *(char *)room = s->byte;
        s->held = false;
        made = 0;
        if (n > 1 && decode(s, (char *)room + 1, n - 1, &made, err) < 0)
            return -1;
        s->full = made == n - 1;
        if (s->inner->fill(s->inner, made + 1, err) < 0)
            return -1;
    }
    return 1;
}

static int sink_room(struct gb_http_sink *sink, void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    struct sink *s = (struct sink *)sink;
    int r = pump(s, err);

    if (r <= 0)
        return r;
    *ret_ptr = s->in;
    *ret_n = sizeof(s->in);
    return 1;
}

/* The bytes are decoded when room is next asked for: that call may wait. */
static int sink_fill(struct gb_http_sink *sink, size_t n, struct gb_error *err) {
    struct sink *s = (struct sink *)sink;

    (void)err;
    s->at = s->in;
    s->left = n;
    s->full = n > 0;
    return 0;
}

static void sink_pause(struct gb_http_sink *sink, bool stalled) {
    struct sink *s = (struct sink *)sink;

    if (s->inner->pause)
        s->inner->pause(s->inner, stalled);
}

static void sink_free(struct gb_http_sink *sink) {
    struct sink *s = (struct sink *)sink;

    if (s->inner) {
        s->inner->failed = sink->failed;
        s->inner->free(s->inner);
    }
    gb_decoder_free(s->decoder);
    atomic_fetch_sub(&s->api->decoders, 1);
    free(s);
}

/* Also runs at each wake until everything is decoded. Then the inner sink takes the place of this one. */
static enum gb_step finish(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct sink *s = (struct sink *)request->sink;
    struct gb_http_sink *inner = s->inner;
    uint64_t before = s->made;
    int r = pump(s, err);

    if (r == 0 && !(request->timed_out && s->made == before)) {
        request->timed_out = false;
        if (s->made != before)
            request->deadline_ns = 0; /* as long as the decoder moves */
        return GB_STEP_WAIT;
    }
    if (r == 0)
        gb_error_set(err, GB_ERR_TIMED_OUT, "the bytes came, but the device did not take them in the permitted time");
    if (r <= 0 || gb_decoder_end(s->decoder, err) < 0)
        return GB_STEP_ERROR;
    s->inner = NULL;
    request->sink = inner;
    sink_free(&s->sink);
    return inner->end(inner, request, response, err);
}

static enum gb_step sink_end(struct gb_http_sink *sink, struct gb_http_request *request,
                             struct gb_http_response *response, struct gb_error *err) {
    (void)sink;
    request->resume = finish;
    request->deadline_ns = 0;
    return finish(request, response, err);
}

struct gb_http_sink *gb_encoding_sink_new(struct gb_http_request *request, enum gb_coding coding,
                                          struct gb_http_sink *inner, struct gb_error *err) {
    struct gb_api *api = gb_api_of(request);
    struct sink *s;

    if (atomic_fetch_add(&api->decoders, 1) >= api->limits.decoders) {
        atomic_fetch_sub(&api->decoders, 1);
        gb_error_set(err, GB_ERR_SATURATED,
                     "%u bodies are being decoded, the daemon's --max-decoders; try again later, or send without "
                     "Content-Encoding",
                     api->limits.decoders);
        return NULL;
    }
    s = calloc(1, sizeof(*s));
    if (s)
        s->decoder = gb_decoder_new(coding, err);
    if (!s || !s->decoder) {
        gb_error_set(err, GB_ERR_SATURATED, "no memory to decode the body; try again later");
        atomic_fetch_sub(&api->decoders, 1);
        free(s);
        return NULL;
    }
    s->sink = (struct gb_http_sink){
        .room = sink_room, .fill = sink_fill, .pause = sink_pause, .end = sink_end, .free = sink_free};
    s->api = api;
    s->request = request;
    s->inner = inner;
    return &s->sink;
}
