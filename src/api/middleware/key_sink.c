/* The body of a streamed request with a key: its length and checksum, as it is received, belong to what the request
 * asks for. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/middleware/hook.h"
#include "base/hash.h"

#define SCRATCH_BYTES (64u << 10)

struct sink {
    struct gb_http_sink sink; /* first */
    struct gb_request_hooks *hooks;
    struct gb_http_sink *inner; /* NULL: the body is compared with the first one's */
    char *room;                 /* last given; without inner it is the sink's own */
    uint64_t most;              /* without inner: the first one's length */
    uint64_t bytes;
    uint32_t crc;
};

void gb_key_body_unread(const struct gb_http_request *request, char *out) {
    snprintf(out, GB_KEY_BODY + 1, "-------%c%016" PRIx64, request->has_content_length ? 'l' : 'c',
             request->has_content_length ? request->content_length : 0);
}

static void describe(const struct sink *s, char *out) {
    snprintf(out, GB_KEY_BODY + 1, "%08" PRIx32 "%016" PRIx64, s->crc, s->bytes);
}

static int sink_room(struct gb_http_sink *sink, void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    struct sink *s = (struct sink *)sink;
    void *room = s->room;
    int r = 1;

    if (s->inner) {
        r = s->inner->room(s->inner, &room, ret_n, err);
        s->room = r > 0 ? room : s->room;
    } else {
        *ret_n = SCRATCH_BYTES;
    }
    *ret_ptr = room;
    return r;
}

static int sink_fill(struct gb_http_sink *sink, size_t n, struct gb_error *err) {
    struct sink *s = (struct sink *)sink;

    s->crc = gb_crc32c(s->crc, s->room, n);
    s->bytes += n;
    if (s->inner)
        return s->inner->fill(s->inner, n, err);
    return s->bytes > s->most ? gb_idempotency_reused(err) : 0;
}

static void sink_pause(struct gb_http_sink *sink, bool stalled) {
    struct sink *s = (struct sink *)sink;

    if (s->inner && s->inner->pause)
        s->inner->pause(s->inner, stalled);
}

static void sink_free(struct gb_http_sink *sink) {
    struct sink *s = (struct sink *)sink;

    if (s->inner) {
        s->inner->failed = sink->failed;
        s->inner->free(s->inner);
    } else {
        free(s->room);
    }
    free(s);
}

static enum gb_step compare(const struct sink *s, struct gb_http_response *response, struct gb_error *err) {
    struct gb_request_hooks *hooks = s->hooks;
    char body[GB_KEY_BODY + 1];

    describe(s, body);
    if (strcmp(body, hooks->first.body) == 0)
        return gb_idempotency_repeat(hooks, response, err);
    gb_idempotency_reused(err);
    return GB_STEP_ERROR;
}

static enum gb_step sink_end(struct gb_http_sink *sink, struct gb_http_request *request,
                             struct gb_http_response *response, struct gb_error *err) {
    struct sink *s = (struct sink *)sink;
    struct gb_http_sink *inner = s->inner;
    struct gb_request_hooks *hooks = s->hooks;

    if (!inner)
        return compare(s, response, err);
    describe(s, hooks->key.fingerprint + GB_KEY_HEAD);
    gb_key_describe(hooks->api->core, &hooks->key);
    s->inner = NULL;
    s->room = NULL;
    request->sink = inner;
    sink_free(&s->sink);
    return inner->end(inner, request, response, err);
}

static struct sink *sink_new(struct gb_request_hooks *hooks, struct gb_error *err) {
    struct sink *s = calloc(1, sizeof(*s));

    if (!s) {
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
        return NULL;
    }
    s->sink = (struct gb_http_sink){
        .room = sink_room, .fill = sink_fill, .pause = sink_pause, .end = sink_end, .free = sink_free};
    s->hooks = hooks;
    return s;
}

enum gb_step gb_key_sink_wrap(struct gb_request_hooks *hooks, struct gb_http_request *request, struct gb_error *err) {
    struct gb_http_sink *inner = request->sink;
    struct sink *s = sink_new(hooks, err);

    request->sink = s ? &s->sink : NULL;
    if (s)
        s->inner = inner;
    else
        inner->free(inner);
    return s ? GB_STEP_BODY : GB_STEP_ERROR;
}

enum gb_step gb_key_sink_compare(struct gb_request_hooks *hooks, struct gb_http_request *request,
                                 struct gb_error *err) {
    struct sink *s = sink_new(hooks, err);

    if (!s)
        return GB_STEP_ERROR;
    s->most = strtoull(hooks->first.body + GB_KEY_BODY - 16, NULL, 16);
    if (request->has_content_length && request->content_length != s->most)
        gb_idempotency_reused(err);
    else if (!(s->room = malloc(SCRATCH_BYTES)))
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
    else
        request->sink = &s->sink;
    if (request->sink)
        return GB_STEP_BODY;
    sink_free(&s->sink);
    return GB_STEP_ERROR;
}
