/* Content codings. Any bytes are refused or decoded, in pieces as at once, and never beyond the room that was given.
 * What was compressed is decoded again; without its last byte it is refused. */
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "format/decode.h"
#include "fuzz.h"

#define OUT_MAX (256u << 10)
#define STEPS_MAX 100000

const char *const gb_fuzz_seeds[] = {
    "ga\x1f\x8b\x08",
    "daab",
    "za\x28\xb5\x2f\xfd",
    "GAThe same text, the same text, the same text.",
    "DAaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "ZAabcabcabcabcabcabcabcabcabcabc",
    NULL,
};

struct result {
    bool good;
    size_t n; /* at most OUT_MAX */
    char *data;
};

static void run(enum gb_coding coding, const char *in, size_t n, uint32_t seed, struct result *ret) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_decoder *d = gb_decoder_new(coding, &err);
    unsigned steps = 0;
    size_t made;
    int r = 0;

    FUZZ_ASSERT(d);
    do {
        size_t left = OUT_MAX - ret->n;
        size_t give = seed == 0 || n == 0 ? n : 1 + (seed >> 8) % n;
        size_t room = seed == 0 ? left : 1 + (seed >> 20) % left;
        const char *at = in;

        n -= give;
        do {
            room = room < OUT_MAX - ret->n ? room : OUT_MAX - ret->n;
            made = 0;
            FUZZ_ASSERT(++steps < STEPS_MAX);
            if (room == 0 || (r = gb_decoder_run(d, &at, &give, ret->data + ret->n, room, &made, &err)) < 0)
                break;
            FUZZ_ASSERT(made <= room && (made == room || give == 0));
            ret->n += made;
        } while (made == room);
        in = at;
        n += give;
        if (seed != 0)
            seed = seed * 1664525 + 1013904223;
    } while (r == 0 && n > 0 && ret->n < OUT_MAX);
    if (r == 0 && ret->n < OUT_MAX)
        r = gb_decoder_end(d, &err);
    ret->good = r == 0;
    if (r < 0) {
        FUZZ_ASSERT_SAYS(err);
        FUZZ_ASSERT(err.code == GB_ERR_INVALID_ENCODING || err.code == GB_ERR_SATURATED);
    }
    gb_decoder_free(d);
}

/* written: by an encoder, as a whole or cut. */
static void check_read(enum gb_coding coding, const char *s, size_t n, uint32_t seed, bool written,
                       struct result *once) {
    static char once_data[OUT_MAX];
    static char pieces_data[OUT_MAX];
    struct result pieces = {.data = pieces_data};

    *once = (struct result){.data = once_data};
    run(coding, s, n, 0, once);
    run(coding, s, n, seed | 1, &pieces);
    /* At the bound the rest has not been looked at. */
    if (once->n < OUT_MAX && pieces.n < OUT_MAX) {
        /* Only where it sees the whole frame libzstd takes an empty block of the type RLE, and compares the size in the
         * frame's header with that of the blocks. */
        bool lenient = coding == GB_CODING_ZSTD && !written;

        FUZZ_ASSERT(once->good == pieces.good || lenient);
        FUZZ_ASSERT(!once->good || !pieces.good || once->n == pieces.n);
        FUZZ_ASSERT(!once->good || (pieces.n <= once->n && memcmp(once->data, pieces.data, pieces.n) == 0));
    }
}

static size_t compress_as(enum gb_coding coding, const char *s, size_t n, char *out, size_t size) {
    z_stream z = {
        .next_in = (Bytef *)(uintptr_t)s, .avail_in = (uInt)n, .next_out = (Bytef *)out, .avail_out = (uInt)size};

    if (coding == GB_CODING_ZSTD)
        return ZSTD_compress(out, size, s, n, 1);
    FUZZ_ASSERT(deflateInit2(&z, 1, Z_DEFLATED, coding == GB_CODING_GZIP ? 31 : 15, 1, Z_DEFAULT_STRATEGY) == Z_OK);
    FUZZ_ASSERT(deflate(&z, Z_FINISH) == Z_STREAM_END);
    deflateEnd(&z);
    return z.total_out;
}

static void check_written(enum gb_coding coding, const char *s, size_t n, uint32_t seed) {
    size_t size = n * 2 + 1024;
    char *out = malloc(size);
    struct result r = {0};
    size_t made;

    FUZZ_ASSERT(out);
    made = compress_as(coding, s, n, out, size);
    FUZZ_ASSERT(made <= size);
    check_read(coding, out, made, seed, true, &r);
    FUZZ_ASSERT(r.good && r.n == n && memcmp(r.data, s, n) == 0);
    check_read(coding, out, made - 1, seed, true, &r);
    FUZZ_ASSERT(!r.good);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct gb_fuzz_in in = {data, size};
    uint8_t letter = gb_fuzz_byte(&in);
    uint32_t seed = gb_fuzz_byte(&in);
    enum gb_coding coding = (letter | 32) == 'z'   ? GB_CODING_ZSTD
                            : (letter | 32) == 'd' ? GB_CODING_DEFLATE
                                                   : GB_CODING_GZIP;
    struct result r = {0};

    if (in.n >= OUT_MAX / 2)
        return 0;
    if (letter & 32) {
        check_read(coding, (const char *)in.at, in.n, seed, false, &r);
    } else {
        check_written(coding, (const char *)in.at, in.n, seed);
    }
    return 0;
}
