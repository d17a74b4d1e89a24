/* A body whose digest the headers promise: hashed while its bytes are in the cache, compared before the inner sink's
 * end. */
#include <stdlib.h>

#include "api/context.h"
#include "api/middleware/filters.h"

/* Bytes that are hashed in one go; then other requests of the same thread have their turn. */
#define TURN_BYTES (2u << 20)

struct sink {
    struct gb_http_sink sink; /* first */
    struct gb_http_request *request;
    struct gb_http_sink *inner;
    struct gb_filters filters;
    struct gb_hash *hash[GB_DIGEST_ALGS]; /* NULL: not asked for */
    const void *room;
    size_t turn;
};

static int sink_room(struct gb_http_sink *sink, void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    struct sink *s = (struct sink *)sink;
    int r;

    if (s->turn >= TURN_BYTES) {
        s->turn = 0;
        gb_http_wake(s->request);
        return 0;
    }
    r = s->inner->room(s->inner, ret_ptr, ret_n, err);
    if (r > 0)
        s->room = *ret_ptr;
    return r;
}

static int sink_fill(struct gb_http_sink *sink, size_t n, struct gb_error *err) {
    struct sink *s = (struct sink *)sink;
    unsigned i;

    for (i = 0; i < GB_DIGEST_ALGS; i++) {
        if (s->hash[i] && gb_hash_add(s->hash[i], s->room, n, err) < 0)
            return -1;
    }
    s->turn += n;
    return s->inner->fill(s->inner, n, err);
}

static void sink_pause(struct gb_http_sink *sink, bool stalled) {
    struct sink *s = (struct sink *)sink;

    if (s->inner->pause)
        s->inner->pause(s->inner, stalled);
}

static void sink_free(struct gb_http_sink *sink) {
    struct sink *s = (struct sink *)sink;
    unsigned i;

    if (s->inner) {
        s->inner->failed = sink->failed;
        s->inner->free(s->inner);
    }
    for (i = 0; i < GB_DIGEST_ALGS; i++)
        gb_hash_free(s->hash[i]);
    free(s);
}

static int compare(struct sink *s, struct gb_error *err) {
    struct gb_digest actual[GB_DIGEST_ALGS];
    char expected_text[GB_BASE64_SIZE_MAX];
    char actual_text[GB_BASE64_SIZE_MAX];
    unsigned i;

    for (i = 0; i < GB_DIGEST_ALGS; i++) {
        if (s->hash[i])
            gb_hash_get(s->hash[i], &actual[i]);
    }
    for (i = 0; i < s->filters.digests; i++) {
        const struct gb_digest *expected = &s->filters.digest[i].digest;

        if (gb_digest_equal(expected, &actual[expected->alg]))
            continue;
        gb_digest_text(expected, expected_text);
        gb_digest_text(&actual[expected->alg], actual_text);
        return gb_error_set(err, GB_ERR_DIGEST_MISMATCH,
                            "%s: expected %s=:%s:, the body has %s=:%s:", s->filters.digest[i].header,
                            gb_digest_name(expected->alg), expected_text, gb_digest_name(expected->alg), actual_text);
    }
    return 0;
}

static enum gb_step sink_end(struct gb_http_sink *sink, struct gb_http_request *request,
                             struct gb_http_response *response, struct gb_error *err) {
    struct sink *s = (struct sink *)sink;
    struct gb_http_sink *inner = s->inner;
    bool equal = compare(s, err) == 0;

    if (!equal && !inner->refused)
        return GB_STEP_ERROR;
    s->inner = NULL;
    request->sink = inner;
    sink_free(&s->sink);
    return equal ? inner->end(inner, request, response, err) : inner->refused(inner, request, err);
}

struct gb_http_sink *gb_digest_sink_new(struct gb_http_request *request, const struct gb_filters *filters,
                                        struct gb_http_sink *inner, struct gb_error *err) {
    struct sink *s = calloc(1, sizeof(*s));
    unsigned i;

    if (!s) {
        gb_error_set(err, GB_ERR_SATURATED, "no memory for a digest; try again later");
        return NULL;
    }
    s->sink = (struct gb_http_sink){
        .room = sink_room, .fill = sink_fill, .pause = sink_pause, .end = sink_end, .free = sink_free};
    s->request = request;
    s->filters = *filters;
    for (i = 0; i < filters->digests; i++) {
        enum gb_digest_alg alg = filters->digest[i].digest.alg;

        if (!s->hash[alg])
            s->hash[alg] = gb_hash_new(alg, err);
        if (!s->hash[alg]) {
            sink_free(&s->sink);
            return NULL;
        }
    }
    s->inner = inner;
    return &s->sink;
}
