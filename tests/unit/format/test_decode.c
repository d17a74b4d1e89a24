/* Content codings: whole streams cut at every byte, and streams that are not whole. */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "format/decode.h"
#include "gb_test.h"

#define PLAIN 700
#define ROOM (1 << 20)

static const enum gb_coding codings[] = {GB_CODING_GZIP, GB_CODING_DEFLATE, GB_CODING_ZSTD};
#define CODINGS 3

/* Some of it repeats, some does not. */
static void make_plain(char *out, size_t n) {
    uint32_t x = 12345;
    size_t i;

    for (i = 0; i < n; i++) {
        x = x * 1664525 + 1013904223;
        out[i] = i % 100 < 60 ? (char)('a' + i % 7) : (char)(x >> 24);
    }
}

static size_t encode(enum gb_coding coding, const void *plain, size_t n, char *out) {
    z_stream z = {0};

    if (coding == GB_CODING_ZSTD) {
        ZSTD_CCtx *context = ZSTD_createCCtx();
        size_t made;

        ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
        made = ZSTD_compress2(context, out, ROOM, plain, n);
        ZSTD_freeCCtx(context);
        ck_assert(!ZSTD_isError(made));
        return made;
    }
    ck_assert_int_eq(deflateInit2(&z, 6, Z_DEFLATED, coding == GB_CODING_GZIP ? 31 : 15, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)(uintptr_t)plain;
    z.avail_in = (uInt)n;
    z.next_out = (Bytef *)out;
    z.avail_out = ROOM;
    ck_assert_int_eq(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return ROOM - z.avail_out;
}

/* All of in[0..n) through rooms of `step` bytes. 0 or -1; *made counts what came out. */
static int feed(struct gb_decoder *d, const char *in, size_t n, size_t step, char *out, size_t *made,
                struct gb_error *err) {
    size_t got;

    do {
        ck_assert_uint_le(*made + step, ROOM);
        if (gb_decoder_run(d, &in, &n, out + *made, step, &got, err) < 0)
            return -1;
        *made += got;
    } while (got == step);
    ck_assert_uint_eq(n, 0);
    return 0;
}

/* In two parts, cut at `cut`. */
static int decode(enum gb_coding coding, const char *in, size_t n, size_t cut, size_t step, char *out, size_t *made,
                  struct gb_error *err) {
    struct gb_decoder *d = gb_decoder_new(coding, err);
    int r;

    ck_assert_ptr_nonnull(d);
    *made = 0;
    r = feed(d, in, cut, step, out, made, err);
    if (r == 0)
        r = feed(d, in + cut, n - cut, step, out, made, err);
    if (r == 0)
        r = gb_decoder_end(d, err);
    gb_decoder_free(d);
    return r;
}

struct work {
    char plain[PLAIN];
    char *coded;
    char *out;
    size_t n;
};

static void work_init(struct work *w, enum gb_coding coding) {
    w->coded = malloc(ROOM);
    w->out = malloc(ROOM);
    make_plain(w->plain, PLAIN);
    w->n = encode(coding, w->plain, PLAIN, w->coded);
}

static void work_done(struct work *w) {
    free(w->coded);
    free(w->out);
}

static void expect_plain(const struct work *w, size_t made) {
    ck_assert_uint_eq(made, PLAIN);
    ck_assert_mem_eq(w->out, w->plain, PLAIN);
}

START_TEST(cut_at_every_byte) {
    static const size_t steps[] = {1, 7, 4096};
    struct gb_error err = GB_ERROR_INIT;
    struct work w;
    size_t made;
    size_t cut;
    unsigned i;

    work_init(&w, codings[_i]);
    for (i = 0; i < 3; i++) {
        for (cut = 0; cut <= w.n; cut++) {
            gb_assert_ok(decode(codings[_i], w.coded, w.n, cut, steps[i], w.out, &made, &err), err);
            expect_plain(&w, made);
        }
    }
    work_done(&w);
}
END_TEST

START_TEST(ended_at_every_byte) {
    struct gb_error err = GB_ERROR_INIT;
    struct work w;
    size_t made;
    size_t n;

    work_init(&w, codings[_i]);
    for (n = 0; n < w.n; n++)
        gb_assert_fails(decode(codings[_i], w.coded, n, n / 2, 4096, w.out, &made, &err), err, GB_ERR_INVALID_ENCODING);
    work_done(&w);
}
END_TEST

/* Every bit turned over: refused, or of no consequence (a time stamp in the header). */
START_TEST(every_bit_turned) {
    struct gb_error err = GB_ERROR_INIT;
    unsigned harmless = 0;
    struct work w;
    size_t made;
    size_t bit;

    work_init(&w, codings[_i]);
    for (bit = 0; bit < 8 * w.n; bit++) {
        w.coded[bit / 8] ^= (char)(1 << bit % 8);
        if (decode(codings[_i], w.coded, w.n, w.n, 4096, w.out, &made, &err) == 0) {
            expect_plain(&w, made);
            harmless++;
        } else {
            ck_assert_int_eq(err.code, GB_ERR_INVALID_ENCODING);
            err = GB_ERROR_INIT;
        }
        w.coded[bit / 8] ^= (char)(1 << bit % 8);
    }
    ck_assert_uint_le(harmless, 8 * 8);
    work_done(&w);
}
END_TEST

/* Members and frames one behind the other are one stream; of deflate there is one. */
START_TEST(several_in_one) {
    struct gb_error err = GB_ERROR_INIT;
    struct work w;
    size_t empty;
    size_t made;
    size_t cut;

    work_init(&w, codings[_i]);
    empty = encode(codings[_i], "", 0, w.coded + w.n);
    memcpy(w.coded + w.n + empty, w.coded, w.n);
    for (cut = 0; cut <= 2 * w.n + empty; cut++) {
        if (codings[_i] == GB_CODING_DEFLATE) {
            gb_assert_fails(decode(codings[_i], w.coded, w.n + empty, w.n, 4096, w.out, &made, &err), err,
                            GB_ERR_INVALID_ENCODING);
            continue;
        }
        gb_assert_ok(decode(codings[_i], w.coded, 2 * w.n + empty, cut, 4096, w.out, &made, &err), err);
        ck_assert_uint_eq(made, 2 * PLAIN);
        ck_assert_mem_eq(w.out, w.plain, PLAIN);
        ck_assert_mem_eq(w.out + PLAIN, w.plain, PLAIN);
    }
    work_done(&w);
}
END_TEST

START_TEST(what_follows_the_end) {
    static const char *const tails[] = {"x", "\0\0\0\0\0\0\0\0", "\x1f", "\x1f\x8b", "(\xb5/\xfd"};
    static const size_t lengths[] = {1, 8, 1, 2, 4};
    struct gb_error err = GB_ERROR_INIT;
    struct work w;
    size_t made;
    unsigned i;

    work_init(&w, codings[_i]);
    for (i = 0; i < 5; i++) {
        memcpy(w.coded + w.n, tails[i], lengths[i]);
        gb_assert_fails(decode(codings[_i], w.coded, w.n + lengths[i], w.n, 4096, w.out, &made, &err), err,
                        GB_ERR_INVALID_ENCODING);
        gb_assert_fails(decode(codings[_i], w.coded, w.n + lengths[i], w.n / 3, 4096, w.out, &made, &err), err,
                        GB_ERR_INVALID_ENCODING);
    }
    work_done(&w);
}
END_TEST

/* One coding said, another one sent; and the bytes as they are. */
START_TEST(another_coding) {
    struct gb_error err = GB_ERROR_INIT;
    struct work w;
    size_t made;
    unsigned i;

    work_init(&w, codings[_i]);
    for (i = 0; i < CODINGS; i++) {
        if (codings[i] != codings[_i])
            gb_assert_fails(decode(codings[i], w.coded, w.n, w.n, 4096, w.out, &made, &err), err,
                            GB_ERR_INVALID_ENCODING);
    }
    gb_assert_fails(decode(codings[_i], w.plain, PLAIN, 0, 4096, w.out, &made, &err), err, GB_ERR_INVALID_ENCODING);
    work_done(&w);
}
END_TEST

/* Of a frame whose window is `log`, by a compressor that does not know the length beforehand. */
static size_t with_window(int log, const void *plain, size_t n, char *out) {
    ZSTD_CCtx *context = ZSTD_createCCtx();
    ZSTD_outBuffer to = {out, ROOM, 0};
    ZSTD_inBuffer from = {plain, n, 0};

    ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, log);
    ck_assert(!ZSTD_isError(ZSTD_compressStream2(context, &to, &from, ZSTD_e_continue)));
    ck_assert_uint_eq(ZSTD_compressStream2(context, &to, &from, ZSTD_e_end), 0);
    ZSTD_freeCCtx(context);
    return to.pos;
}

START_TEST(windows) {
    struct gb_error err = GB_ERROR_INIT;
    struct work w;
    size_t made;

    work_init(&w, GB_CODING_ZSTD);
    w.n = with_window(GB_ZSTD_WINDOW_LOG, w.plain, PLAIN, w.coded);
    gb_assert_ok(decode(GB_CODING_ZSTD, w.coded, w.n, 3, 4096, w.out, &made, &err), err);
    expect_plain(&w, made);
    w.n = with_window(GB_ZSTD_WINDOW_LOG + 1, w.plain, PLAIN, w.coded);
    ck_assert_int_eq(decode(GB_CODING_ZSTD, w.coded, w.n, 3, 4096, w.out, &made, &err), -1);
    ck_assert_int_eq(err.code, GB_ERR_INVALID_ENCODING);
    ck_assert_ptr_nonnull(strstr(err.detail, "8 MiB"));
    work_done(&w);
}
END_TEST

/* A frame of zstd 0.7 with "abc" in it, and a window of 128 MiB. */
START_TEST(older_formats) {
    static const char frame[] = "\x27\xb5\x2f\xfd\x00\x88\x40\x00\x03"
                                "abc\xc0\x00\x00";
    struct gb_error err = GB_ERROR_INIT;
    char out[4096];
    size_t made;
    size_t cut;

    for (cut = 0; cut < sizeof(frame); cut++) {
        err = GB_ERROR_INIT;
        ck_assert_int_eq(decode(GB_CODING_ZSTD, frame, sizeof(frame) - 1, cut, sizeof(out), out, &made, &err), -1);
        ck_assert_int_eq(err.code, GB_ERR_INVALID_ENCODING);
        ck_assert_ptr_nonnull(strstr(err.detail, "RFC 8878"));
    }
}
END_TEST

/* A skippable frame says nothing, and a stream of nothing else is empty. */
START_TEST(skippable) {
    static const char frame[] = "\x50\x2a\x4d\x18\x03\x00\x00\x00xyz";
    struct gb_error err = GB_ERROR_INIT;
    struct work w;
    size_t made;

    work_init(&w, GB_CODING_ZSTD);
    gb_assert_ok(decode(GB_CODING_ZSTD, frame, sizeof(frame) - 1, 5, 4096, w.out, &made, &err), err);
    ck_assert_uint_eq(made, 0);
    memcpy(w.coded + w.n, frame, sizeof(frame) - 1);
    gb_assert_ok(decode(GB_CODING_ZSTD, w.coded, w.n + sizeof(frame) - 1, w.n + 2, 4096, w.out, &made, &err), err);
    expect_plain(&w, made);
    work_done(&w);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("decode");

    gb_test_add_loop(suite, "cut", cut_at_every_byte, 60, CODINGS);
    gb_test_add_loop(suite, "ended", ended_at_every_byte, 60, CODINGS);
    gb_test_add_loop(suite, "turned", every_bit_turned, 60, CODINGS);
    gb_test_add_loop(suite, "several", several_in_one, 60, CODINGS);
    gb_test_add_loop(suite, "follows", what_follows_the_end, 10, CODINGS);
    gb_test_add_loop(suite, "another", another_coding, 10, CODINGS);
    gb_test_add(suite, "windows", windows, 10);
    gb_test_add(suite, "older", older_formats, 10);
    gb_test_add(suite, "skippable", skippable, 10);
    return gb_test_run(suite);
}
