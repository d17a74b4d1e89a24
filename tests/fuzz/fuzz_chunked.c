/* Chunked bodies. What is read in pieces has the same end and data as what is read at once, and as what a plain reading
 * of the grammar says. A body that was written in chunks gives its data back. */
#include <stdio.h>
#include <string.h>

#include "base/encoding.h"
#include "fuzz.h"
#include "http/message/chunked.h"
#include "http/message/fields.h"

#define PIECES 64

const char *const gb_fuzz_seeds[] = {
    "\x01\x02"
    "5\r\nabcde\r\n0\r\n\r\nGET",
    "\x02\x03"
    "5 ; a=b\r\nabcde\r\n000;c\r\nX: 1\r\nY:\r\n\r\n",
    "\x04\x05"
    "ffffffffffffffff\r\nabc",
    "\x06\x07"
    "1\r\na\r\n01\r\nb\r\n2;\"q\"\r\ncd\r\n0\r\n\r\n",
    NULL,
};

struct body {
    struct gb_chunked framing;
    const char *why;
    size_t used; /* bytes of the input, unless it is malformed */
    size_t n;
    char *data;
};

static void feed(struct body *b, const char *s, size_t n) {
    while (n > 0 && !b->why && b->framing.state != GB_CHUNKED_DONE) {
        size_t took = n < b->framing.left ? n : b->framing.left;

        if (b->framing.state == GB_CHUNKED_DATA) {
            memcpy(b->data + b->n, s, took);
            b->n += took;
            gb_chunked_took(&b->framing, took);
        } else {
            ssize_t r = gb_chunked_read(&b->framing, s, n, &b->why);

            FUZZ_ASSERT(r <= (ssize_t)n && (r < 0) == (b->why != NULL) && r != 0);
            took = r > 0 ? (size_t)r : n;
        }
        b->used += took;
        s += took;
        n -= took;
    }
}

static void feed_in_pieces(struct body *b, const char *s, size_t n, uint32_t seed) {
    size_t at = 0;

    while (at < n) {
        size_t most = n - at;
        size_t take;

        seed = seed * 1664525 + 1013904223;
        take = 1 + (seed >> 8) % (seed >> 31 ? most : most < PIECES ? most : PIECES);
        feed(b, s + at, take);
        at += take;
    }
}

/* --- the grammar, once more --------------------------------------------------------------------------------------- */

static bool is_text(const char *s, size_t n) {
    for (; n > 0; s++, n--)
        if (*s != '\t' && ((unsigned char)*s < 0x20 || *s == 0x7f))
            return false;
    return true;
}

/* A whole chunk's line. */
static bool is_size(const char *s, size_t n, uint64_t *ret) {
    size_t digits = 0;
    size_t blanks = 0;

    for (*ret = 0; digits < n && gb_hex_digit(s[digits]) >= 0; digits++)
        *ret = *ret << 4 | (unsigned)gb_hex_digit(s[digits]);
    while (digits + blanks < n && (s[digits + blanks] == ' ' || s[digits + blanks] == '\t'))
        blanks++;
    if (digits == 0 || digits > GB_CHUNKED_DIGITS_MAX || n - digits > GB_CHUNKED_EXTENSION_MAX)
        return false;
    return digits == n || (digits + blanks < n && s[digits + blanks] == ';' && is_text(s + digits, n - digits));
}

static bool is_trailer(const char *s, size_t n) {
    size_t name = 0;

    while (name < n && gb_field_is_token((unsigned char)s[name]))
        name++;
    return name > 0 && name < n && s[name] == ':' && is_text(s + name, n - name);
}

/* Returns the bytes of the whole body, or 0. */
static size_t whole(const char *s, size_t n) {
    bool trailers = false;
    size_t skipped = 0;
    size_t at = 0;

    for (;;) {
        const char *end = memmem(s + at, n - at, "\r\n", 2);
        size_t line = end ? (size_t)(end - s) - at : 0;
        uint64_t size = 0;

        if (!end)
            return 0;
        if (trailers) {
            if (line == 0)
                return at + 2;
            skipped += line + 1;
            if (!is_trailer(s + at, line) || skipped > GB_CHUNKED_TRAILER_MAX + 1)
                return 0;
        } else if (!is_size(s + at, line, &size)) {
            return 0;
        }
        at += line + 2;
        trailers = trailers || size == 0;
        if (size > 0 && (size > n - at || n - at - size < 2 || memcmp(s + at + size, "\r\n", 2) != 0))
            return 0;
        at += size > 0 ? size + 2 : 0;
    }
}

/* --- the two checks ----------------------------------------------------------------------------------------------- */

static void check_read(const char *s, size_t n, uint32_t seed) {
    struct body once = {.data = malloc(n + 1)};
    struct body pieces = {.data = malloc(n + 1)};

    FUZZ_ASSERT(once.data && pieces.data);
    feed(&once, s, n);
    feed_in_pieces(&pieces, s, n, seed);
    FUZZ_ASSERT(once.n == pieces.n && memcmp(once.data, pieces.data, once.n) == 0);
    FUZZ_ASSERT(once.why ? pieces.why && strcmp(once.why, pieces.why) == 0 : !pieces.why);
    if (!once.why)
        FUZZ_ASSERT(memcmp(&once.framing, &pieces.framing, sizeof(once.framing)) == 0 && once.used == pieces.used);
    FUZZ_ASSERT(whole(s, n) == (once.framing.state == GB_CHUNKED_DONE ? once.used : 0));
    free(once.data);
    free(pieces.data);
}

/* Chunks of 1 to 256 bytes. */
static void check_written(const char *s, size_t n, uint32_t seed) {
    char *out = malloc(n * 16 + 64);
    struct body b = {.data = malloc(n + 1)};
    size_t used = 0;
    size_t at = 0;

    FUZZ_ASSERT(out && b.data);
    while (at < n) {
        size_t size;

        seed = seed * 1664525 + 1013904223;
        size = 1 + (seed >> 8 & 0xff);
        size = size < n - at ? size : n - at;
        used += (size_t)sprintf(out + used, seed >> 31 ? "%zx\r\n" : "0%zX ;a\r\n", size);
        memcpy(out + used, s + at, size);
        memcpy(out + used + size, "\r\n", 2);
        used += size + 2;
        at += size;
    }
    used += (size_t)sprintf(out + used, seed & 0x100 ? "0\r\n\r\n" : "00;b=c\r\nX: y\r\n\r\n");
    feed_in_pieces(&b, out, used, seed);
    FUZZ_ASSERT(!b.why && b.framing.state == GB_CHUNKED_DONE && b.used == used);
    FUZZ_ASSERT(b.n == n && memcmp(b.data, s, n) == 0);
    free(out);
    free(b.data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct gb_fuzz_in in = {data, size};
    uint32_t seed = (uint32_t)gb_fuzz_number(&in, 2);

    check_read((const char *)in.at, in.n, seed);
    check_written((const char *)in.at, in.n, seed);
    return 0;
}
