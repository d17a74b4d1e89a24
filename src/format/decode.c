/* A decoder of gzip, deflate or zstd: bytes go in as they arrive, and come out as far as there is room. */
#define ZLIB_CONST
#include "format/decode.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

struct gb_decoder {
    enum gb_coding coding;
    z_stream z;
    bool z_open;
    ZSTD_DCtx *zstd;
    unsigned magic_n; /* bytes of the present frame's magic number that have come */
    bool skippable;   /* the frame that it begins */
    bool begun;       /* a byte has come */
    bool complete;    /* a member or frame ended with the last byte */
};

static const char *coding_name(enum gb_coding coding) {
    static const char *const names[] = {"gzip", "deflate", "zstd"};

    return names[coding];
}

static int no_memory(struct gb_error *err) {
    return gb_error_set(err, GB_ERR_SATURATED, "no memory to decode the body; try again later");
}

static int broken(const struct gb_decoder *d, const char *why, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_INVALID_ENCODING, "the body is no whole %s stream: %s", coding_name(d->coding),
                        why);
}

static bool open_zlib(struct gb_decoder *d) {
    /* 16 more for a gzip header alone. */
    d->z_open = inflateInit2(&d->z, d->coding == GB_CODING_GZIP ? MAX_WBITS + 16 : MAX_WBITS) == Z_OK;
    return d->z_open;
}

static bool open_zstd(struct gb_decoder *d) {
    d->zstd = ZSTD_createDCtx();
    return d->zstd && !ZSTD_isError(ZSTD_DCtx_setParameter(d->zstd, ZSTD_d_windowLogMax, GB_ZSTD_WINDOW_LOG));
}

struct gb_decoder *gb_decoder_new(enum gb_coding coding, struct gb_error *err) {
    struct gb_decoder *d = calloc(1, sizeof(*d));

    if (d)
        d->coding = coding;
    if (!d || !(coding == GB_CODING_ZSTD ? open_zstd(d) : open_zlib(d))) {
        gb_decoder_free(d);
        no_memory(err);
        return NULL;
    }
    return d;
}

void gb_decoder_free(struct gb_decoder *decoder) {
    if (!decoder)
        return;
    if (decoder->z_open)
        inflateEnd(&decoder->z);
    ZSTD_freeDCtx(decoder->zstd);
    free(decoder);
}

static uInt clip(size_t n) {
    return n < UINT_MAX ? (uInt)n : UINT_MAX;
}

/* Begins the next member: one has ended and more bytes are there. */
static int next_member(struct gb_decoder *d, struct gb_error *err) {
    if (d->coding != GB_CODING_GZIP)
        return broken(d, "bytes follow its end", err);
    if (inflateReset(&d->z) != Z_OK)
        return broken(d, "the next member cannot be read", err);
    d->complete = false;
    return 0;
}

static int step_zlib(struct gb_decoder *d, const char **in, size_t *in_n, char *out, size_t out_n, size_t *ret_made,
                     struct gb_error *err) {
    uInt gave = clip(*in_n);
    uInt room = clip(out_n);
    int r;

    if (d->complete && *in_n > 0 && next_member(d, err) < 0)
        return -1;
    *ret_made = 0;
    if (d->complete)
        return 0;
    d->z.next_in = (const Bytef *)*in;
    d->z.avail_in = gave;
    d->z.next_out = (Bytef *)out;
    d->z.avail_out = room;
    r = inflate(&d->z, Z_NO_FLUSH);
    if (r == Z_MEM_ERROR)
        return no_memory(err);
    if (r == Z_NEED_DICT)
        return broken(d, "it wants a dictionary", err);
    if (r != Z_OK && r != Z_STREAM_END && r != Z_BUF_ERROR)
        return broken(d, d->z.msg ? d->z.msg : "it cannot be decoded", err);
    *in += gave - d->z.avail_in;
    *in_n -= gave - d->z.avail_in;
    *ret_made = room - d->z.avail_out;
    d->complete = r == Z_STREAM_END;
    return 0;
}

/* Whether the input continues with the magic number of a frame of RFC 8878. libzstd reads the formats before 1.0 as
 * well, for which it has no bound of the window. */
static bool has_magic(struct gb_decoder *d, const char *in, size_t n) {
    static const char frame[] = "\x28\xb5\x2f\xfd";
    static const char skippable[] = "\x50\x2a\x4d\x18"; /* the last four bits of its first byte are free */

    unsigned at = d->magic_n;

    if (at == 0 && n > 0)
        d->skippable = (in[0] & 0xf0) == skippable[0];
    for (; at < 4 && n > 0; at++, in++, n--) {
        if (*in != (d->skippable ? skippable : frame)[at] && !(d->skippable && at == 0))
            return false;
    }
    return true;
}

static int step_zstd(struct gb_decoder *d, const char **in, size_t *in_n, char *out, size_t out_n, size_t *ret_made,
                     struct gb_error *err) {
    ZSTD_inBuffer from = {.src = *in, .size = *in_n};
    ZSTD_outBuffer to = {.dst = out, .size = out_n};
    size_t r;

    *ret_made = 0;
    if (d->complete && *in_n == 0)
        return 0; /* asking again would begin a next frame */
    if (!has_magic(d, *in, *in_n))
        return broken(d, "a frame does not begin as RFC 8878 says", err);
    r = ZSTD_decompressStream(d->zstd, &to, &from);
    if (ZSTD_isError(r)) {
        if (ZSTD_getErrorCode(r) == ZSTD_error_memory_allocation)
            return no_memory(err);
        if (ZSTD_getErrorCode(r) == ZSTD_error_frameParameter_windowTooLarge)
            return broken(d,
                          "its window is larger than the 8 MiB of RFC 9659 (compress without --long, at level 19 or "
                          "less, or with "
                          "--zstd=wlog=23)",
                          err);
        return broken(d, ZSTD_getErrorName(r), err);
    }
    *in += from.pos;
    *in_n -= from.pos;
    *ret_made = to.pos;
    d->complete = r == 0;
    d->magic_n = d->complete ? 0 : d->magic_n + (unsigned)(from.pos < 4 - d->magic_n ? from.pos : 4 - d->magic_n);
    return 0;
}

int gb_decoder_run(struct gb_decoder *decoder, const char **in, size_t *in_n, char *out, size_t out_n, size_t *ret_made,
                   struct gb_error *err) {
    size_t made = 0;
    size_t n;
    size_t before;
    int r;

    decoder->begun = decoder->begun || *in_n > 0;
    do {
        before = *in_n;
        if (decoder->coding == GB_CODING_ZSTD)
            r = step_zstd(decoder, in, in_n, out + made, out_n - made, &n, err);
        else
            r = step_zlib(decoder, in, in_n, out + made, out_n - made, &n, err);
        if (r < 0)
            return -1;
        made += n;
        /* One call does not go beyond a member or frame, and gives what it kept back only at the next call. */
    } while (made < out_n && (n > 0 || *in_n != before));
    *ret_made = made;
    if (made<out_n && * in_n> 0)
        return broken(decoder, "it does not go on", err);
    return 0;
}

int gb_decoder_end(const struct gb_decoder *decoder, struct gb_error *err) {
    if (decoder->complete)
        return 0;
    return broken(decoder, decoder->begun ? "it ends in the middle" : "there is nothing", err);
}
