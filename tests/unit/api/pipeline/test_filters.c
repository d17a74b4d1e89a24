/* The filters before a sink: what their headers say, and what comes through them into rooms of any size. */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "api/api.h"
#include "api/context.h"
#include "api/pipeline/digest.h"
#include "gb_test.h"

/* --- a request, and a sink that keeps what it gets ---------------------------------------------------------------- */

struct keeper {
    struct gb_http_sink sink; /* first */
    size_t step;              /* of one room */
    char bytes[4096];
    size_t n;
    unsigned waits; /* rooms refused before each */
    unsigned waited;
    unsigned pauses;
    bool ended;
    unsigned *freed;
};

static int keeper_room(struct gb_http_sink *sink, void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    struct keeper *k = (struct keeper *)sink;

    if (k->waited++ < k->waits)
        return 0;
    k->waited = 0;
    if (k->n == sizeof(k->bytes))
        return gb_error_set(err, GB_ERR_SHAPE_MISMATCH, "full");
    *ret_ptr = k->bytes + k->n;
    *ret_n = sizeof(k->bytes) - k->n < k->step ? sizeof(k->bytes) - k->n : k->step;
    return 1;
}

static int keeper_fill(struct gb_http_sink *sink, size_t n, struct gb_error *err) {
    struct keeper *k = (struct keeper *)sink;

    (void)err;
    ck_assert_uint_gt(n, 0);
    ck_assert_uint_le(n, k->step);
    k->n += n;
    return 0;
}

static void keeper_pause(struct gb_http_sink *sink, bool stalled) {
    (void)stalled;
    ((struct keeper *)sink)->pauses++;
}

static enum gb_step keeper_end(struct gb_http_sink *sink, struct gb_http_request *request,
                               struct gb_http_response *response, struct gb_error *err) {
    (void)response;
    (void)err;
    ck_assert_ptr_eq(request->sink, sink);
    ((struct keeper *)sink)->ended = true;
    return GB_STEP_REPLY;
}

static void keeper_free(struct gb_http_sink *sink) {
    (*((struct keeper *)sink)->freed)++;
    free(sink);
}

struct bench {
    struct gb_api *api;
    struct gb_http_request *request;
    struct gb_http_response *response;
    struct keeper *keeper;
    unsigned freed;
};

static void bench_init(struct bench *b) {
    b->api = calloc(1, sizeof(*b->api));
    b->request = calloc(1, sizeof(*b->request));
    b->response = calloc(1, sizeof(*b->response));
    b->keeper = calloc(1, sizeof(*b->keeper));
    b->freed = 0;
    gb_api_set_limits(b->api, &(struct gb_api_limits){.expanded_bytes = 1 << 20, .decoders = 3});
    b->request->app = b->api;
    b->keeper->sink = (struct gb_http_sink){
        .room = keeper_room, .fill = keeper_fill, .pause = keeper_pause, .end = keeper_end, .free = keeper_free};
    b->keeper->step = 4096;
    b->keeper->freed = &b->freed;
}

static void bench_done(struct bench *b) {
    ck_assert_uint_eq(atomic_load(&b->api->decoders), 0);
    free(b->response);
    free(b->request);
    free(b->api);
}

static void header(struct bench *b, const char *name, const char *value) {
    struct gb_http_pair *pair = &b->request->header[b->request->headers++];

    pair->name = (struct gb_http_text){name, strlen(name)};
    pair->value = (struct gb_http_text){value, strlen(value)};
}

/* The filters of these headers before the keeper. */
static struct gb_http_sink *wrap(struct bench *b, struct gb_error *err) {
    struct gb_filters filters;

    gb_assert_ok(gb_filters_read(b->request, b->response, &filters, err), *err);
    return gb_filters_wrap(b->request, &filters, &b->keeper->sink, err) == GB_STEP_BODY ? b->request->sink : NULL;
}

/* Sends all, at most `piece` bytes at a time, and the end. */
static enum gb_step send(struct bench *b, const char *data, size_t n, size_t piece, struct gb_error *err) {
    struct gb_http_sink *sink = b->request->sink;
    unsigned rounds = 0;
    enum gb_step step;
    size_t size;
    void *room;

    while (n > 0) {
        int r = sink->room(sink, &room, &size, err);

        if (r < 0)
            return GB_STEP_ERROR;
        if (r == 0) {
            ck_assert_uint_lt(rounds++, 1000000);
            sink->pause(sink, false);
            continue;
        }
        size = size < piece ? size : piece;
        size = size < n ? size : n;
        memcpy(room, data, size);
        if (sink->fill(sink, size, err) < 0)
            return GB_STEP_ERROR;
        data += size;
        n -= size;
    }
    step = sink->end(sink, b->request, b->response, err);
    while (step == GB_STEP_WAIT) {
        ck_assert_uint_lt(rounds++, 1000000);
        step = b->request->resume(b->request, b->response, err);
    }
    return step;
}

static size_t gzip(const void *plain, size_t n, char *out, size_t size) {
    z_stream z = {.next_in = (Bytef *)(uintptr_t)plain, .avail_in = (uInt)n, .next_out = (Bytef *)out};

    z.avail_out = (uInt)size;
    ck_assert_int_eq(deflateInit2(&z, 6, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
    ck_assert_int_eq(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return size - z.avail_out;
}

/* --- bytes -------------------------------------------------------------------------------------------------------- */

#define PLAIN 3000

/* Rooms from one byte on, pieces from one byte on, rooms that come late. */
START_TEST(rooms_and_pieces) {
    static const size_t sizes[] = {1, 2, 10, 1000, 4096};
    struct gb_error err = GB_ERROR_INIT;
    char plain[PLAIN];
    char coded[2 * PLAIN];
    struct bench b;
    size_t n;
    unsigned i, j, waits;

    for (i = 0; i < PLAIN; i++)
        plain[i] = (char)(i * i >> 5);
    n = gzip(plain, PLAIN, coded, sizeof(coded));
    for (i = 0; i < 5; i++) {
        for (j = 0; j < 5; j++) {
            for (waits = 0; waits < 3; waits++) {
                bench_init(&b);
                b.keeper->step = sizes[i];
                b.keeper->waits = waits;
                header(&b, "Content-Encoding", "gzip");
                ck_assert_ptr_nonnull(wrap(&b, &err));
                ck_assert_int_eq(send(&b, coded, n, sizes[j], &err), GB_STEP_REPLY);
                ck_assert(b.keeper->ended);
                ck_assert_ptr_eq(b.request->sink, &b.keeper->sink);
                ck_assert_uint_eq(b.keeper->n, PLAIN);
                ck_assert_mem_eq(b.keeper->bytes, plain, PLAIN);
                b.request->sink->free(b.request->sink);
                ck_assert_uint_eq(b.freed, 1);
                bench_done(&b);
            }
        }
    }
}
END_TEST

/* As many bytes as there is room for, and one more; the end of the stream needs none. */
START_TEST(exactly_full) {
    struct gb_error err = GB_ERROR_INIT;
    static char plain[4097];
    char coded[4096];
    struct bench b;
    size_t n;
    int more;

    for (more = 0; more < 2; more++) {
        n = gzip(plain, 4096 + (size_t)more, coded, sizeof(coded));
        bench_init(&b);
        header(&b, "Content-Encoding", "gzip");
        ck_assert_ptr_nonnull(wrap(&b, &err));
        if (more) {
            ck_assert_int_eq(send(&b, coded, n, 7, &err), GB_STEP_ERROR);
            ck_assert_int_eq(err.code, GB_ERR_SHAPE_MISMATCH);
            ck_assert(!b.keeper->ended);
        } else {
            ck_assert_int_eq(send(&b, coded, n, 7, &err), GB_STEP_REPLY);
        }
        b.request->sink->free(b.request->sink);
        ck_assert_uint_eq(b.freed, 1);
        bench_done(&b);
    }
}
END_TEST

/* Two codings, the one within the other, and the digest of what is sent. */
START_TEST(layers) {
    static const char plain[] = "the bytes of a tensor, the bytes of a tensor, the bytes of a tensor";
    struct gb_error err = GB_ERROR_INIT;
    struct gb_hash *hash = gb_hash_new(GB_DIGEST_SHA256, &err);
    char text[GB_BASE64_SIZE_MAX + 16] = "sha-256=:";
    struct gb_digest digest;
    char once[512];
    char twice[512];
    struct bench b;
    size_t n;
    int wrong;

    n = gzip(plain, sizeof(plain), once, sizeof(once));
    n = gzip(once, n, twice, sizeof(twice));
    gb_assert_ok(gb_hash_add(hash, twice, n, &err), err);
    gb_hash_get(hash, &digest);
    gb_hash_free(hash);
    for (wrong = 0; wrong < 2; wrong++) {
        digest.bytes[5] ^= (uint8_t)wrong;
        gb_digest_text(&digest, text + 9);
        strcat(text, ":");
        bench_init(&b);
        header(&b, "Content-Encoding", "gzip, gzip");
        header(&b, "Repr-Digest", text);
        ck_assert_ptr_nonnull(wrap(&b, &err));
        ck_assert_uint_eq(atomic_load(&b.api->decoders), 2);
        ck_assert_int_eq(send(&b, twice, n, 3, &err), wrong ? GB_STEP_ERROR : GB_STEP_REPLY);
        ck_assert(b.keeper->ended == !wrong);
        ck_assert_int_eq(err.code, wrong ? GB_ERR_DIGEST_MISMATCH : GB_OK);
        if (!wrong)
            ck_assert_str_eq(b.keeper->bytes, plain);
        b.request->sink->free(b.request->sink);
        ck_assert_uint_eq(b.freed, 1);
        bench_done(&b);
    }
}
END_TEST

START_TEST(limits) {
    static char plain[2000];
    struct gb_error err = GB_ERROR_INIT;
    struct gb_filters filters;
    char coded[512];
    struct bench b;
    size_t n = gzip(plain, sizeof(plain), coded, sizeof(coded));

    bench_init(&b);
    gb_api_set_limits(b.api, &(struct gb_api_limits){.expanded_bytes = 1999, .decoders = 1});
    header(&b, "Content-Encoding", "gzip");
    ck_assert_ptr_nonnull(wrap(&b, &err));
    ck_assert_int_eq(send(&b, coded, n, 100, &err), GB_STEP_ERROR);
    ck_assert_int_eq(err.code, GB_ERR_BODY_TOO_LARGE);
    ck_assert_uint_eq(err.limit_bytes, 1999);
    b.request->sink->free(b.request->sink);
    bench_done(&b);
    /* One decoder, and a body that needs two: nothing is left of it. */
    err = GB_ERROR_INIT;
    bench_init(&b);
    gb_api_set_limits(b.api, &(struct gb_api_limits){.expanded_bytes = 1 << 20, .decoders = 1});
    header(&b, "Content-Encoding", "gzip, gzip");
    gb_assert_ok(gb_filters_read(b.request, b.response, &filters, &err), err);
    ck_assert_int_eq(gb_filters_wrap(b.request, &filters, &b.keeper->sink, &err), GB_STEP_ERROR);
    ck_assert_int_eq(err.code, GB_ERR_SATURATED);
    ck_assert_uint_eq(b.freed, 1);
    bench_done(&b);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("filters");

    gb_test_add(suite, "rooms", rooms_and_pieces, 30);
    gb_test_add(suite, "full", exactly_full, 4);
    gb_test_add(suite, "layers", layers, 4);
    gb_test_add(suite, "limits", limits, 4);
    return gb_test_run(suite);
}
