/* Measures a codec or a digest alone: the same library, on the same bytes, in pieces of the same size as in the daemon.
 * Prints one JSON object, as the load generator does; bytes are the decoded ones. */
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zlib.h>
#include <zstd.h>

#include "util.h"

#define PIECE ((size_t)256 << 10)
#define INPUT ((size_t)128 << 10)

struct body {
    unsigned char *bytes;
    size_t n;
    unsigned char *out; /* resident; room for everything decoded */
    size_t out_n;
};

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

static size_t run_gzip(struct body *b) {
    z_stream z = {0};
    int r = inflateInit2(&z, MAX_WBITS + 16);
    size_t in = 0;
    size_t made = 0;

    while (r != Z_STREAM_END) {
        if (z.avail_in == 0) {
            z.next_in = b->bytes + in;
            z.avail_in = (uInt)least(b->n - in, INPUT);
            in += z.avail_in;
        }
        z.next_out = b->out + made;
        z.avail_out = (uInt)least(b->out_n - made, PIECE);
        r = inflate(&z, Z_NO_FLUSH);
        if (r != Z_OK && r != Z_STREAM_END)
            bench_die("inflate: %d", r);
        made = (size_t)(z.next_out - b->out);
    }
    inflateEnd(&z);
    return made;
}

static size_t run_zstd(struct body *b) {
    ZSTD_DCtx *context = ZSTD_createDCtx();
    size_t in = 0;
    size_t made = 0;
    size_t r = 1;

    while (r != 0) {
        ZSTD_inBuffer from = {b->bytes + in, least(b->n - in, INPUT), 0};
        ZSTD_outBuffer to = {b->out + made, least(b->out_n - made, PIECE), 0};

        r = ZSTD_decompressStream(context, &to, &from);
        if (ZSTD_isError(r))
            bench_die("zstd: %s", ZSTD_getErrorName(r));
        in += from.pos;
        made += to.pos;
    }
    ZSTD_freeDCtx(context);
    return made;
}

static size_t run_sha(struct body *b, gnutls_digest_algorithm_t algorithm) {
    gnutls_hash_hd_t hash;
    unsigned char digest[64];
    size_t at;

    if (gnutls_hash_init(&hash, algorithm) < 0)
        bench_die("gnutls_hash_init");
    for (at = 0; at < b->n; at += PIECE)
        gnutls_hash(hash, b->bytes + at, least(b->n - at, PIECE));
    gnutls_hash_deinit(hash, digest);
    return b->n;
}

static size_t run(const char *what, struct body *b) {
    if (!strcmp(what, "gzip"))
        return run_gzip(b);
    if (!strcmp(what, "zstd"))
        return run_zstd(b);
    if (!strcmp(what, "sha-256"))
        return run_sha(b, GNUTLS_DIG_SHA256);
    if (!strcmp(what, "sha-512"))
        return run_sha(b, GNUTLS_DIG_SHA512);
    bench_die("what is %s?", what);
}

int main(int argc, char **argv) {
    struct body b = {0};
    uint64_t requests;
    uint64_t bytes;
    uint64_t start_ns;
    uint64_t i;
    double seconds;
    double cpu_s;

    if (argc != 5) {
        fputs("usage: gb-bench-codec gzip|zstd|sha-256|sha-512 FILE DECODED-BYTES TIMES\n", stderr);
        return 64;
    }
    b.bytes = bench_file(argv[2], &bytes);
    b.n = (size_t)bytes;
    b.out_n = bench_parse_size(argv[3], "decoded bytes");
    b.out = bench_resident(b.out_n);
    requests = bench_parse_size(argv[4], "times");
    start_ns = bench_now_ns();
    cpu_s = (double)clock() / CLOCKS_PER_SEC;
    for (i = 0; i < requests; i++) {
        if (run(argv[1], &b) != b.out_n)
            bench_die("%s decodes to another length", argv[2]);
    }
    seconds = (double)(bench_now_ns() - start_ns) / 1e9;
    cpu_s = (double)clock() / CLOCKS_PER_SEC - cpu_s;
    printf("{\"requests\": %" PRIu64 ", \"errors\": 0, \"seconds\": %.6f, \"bytes\": %" PRIu64
           ", \"bytes_per_s\": %.0f, \"cpu_s\": %.6f}\n",
           requests, seconds, requests * b.out_n, (double)(requests * b.out_n) / seconds, cpu_s);
    return 0;
}
