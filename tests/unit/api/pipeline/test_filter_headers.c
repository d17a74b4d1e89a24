/* What the headers of content codings and digests say, and the digests that are kept. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/pipeline/digest.h"
#include "gb_test.h"

struct bench {
    struct gb_http_request *request;
    struct gb_http_response *response;
};

static void bench_init(struct bench *b) {
    b->request = calloc(1, sizeof(*b->request));
    b->response = calloc(1, sizeof(*b->response));
}

static void bench_done(struct bench *b) {
    free(b->response);
    free(b->request);
}

static void header(struct bench *b, const char *name, const char *value) {
    struct gb_http_pair *pair = &b->request->header[b->request->headers++];

    pair->name = (struct gb_http_text){name, strlen(name)};
    pair->value = (struct gb_http_text){value, strlen(value)};
}

/* --- headers ------------------------------------------------------------------------------------------------------ */

#define A43 "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
#define SHA256 "sha-256=:" A43 "=:"
#define SHA512 "sha-512=:" A43 A43 "==:"

static const struct {
    const char *name;
    const char *value;
    int codings; /* -1: refused */
    int digests;
    enum gb_code code;
} headers[] = {
    {"Content-Encoding", "gzip", 1, 0, GB_OK},
    {"content-encoding", "X-GZip", 1, 0, GB_OK},
    {"Content-Encoding", "identity", 0, 0, GB_OK},
    {"Content-Encoding", "", 0, 0, GB_OK},
    {"Content-Encoding", "gzip, zstd", 2, 0, GB_OK},
    {"Content-Encoding", " ,zstd,\t, deflate ,", 2, 0, GB_OK},
    {"Content-Encoding", "identity, gzip, identity", 1, 0, GB_OK},
    {"Content-Encoding", "gzip, gzip, gzip", -1, 0, GB_ERR_UNSUPPORTED_MEDIA_TYPE},
    {"Content-Encoding", "br", -1, 0, GB_ERR_UNSUPPORTED_MEDIA_TYPE},
    {"Content-Encoding", "gzip br", -1, 0, GB_ERR_UNSUPPORTED_MEDIA_TYPE},
    {"Content-Encoding", "gzip;q=1", -1, 0, GB_ERR_UNSUPPORTED_MEDIA_TYPE},
    {"Content-Encoding", "gzi", -1, 0, GB_ERR_UNSUPPORTED_MEDIA_TYPE},
    {"Content-Digest", SHA256, 0, 1, GB_OK},
    {"Repr-Digest", SHA512, 0, 1, GB_OK},
    {"Content-Digest", SHA256 ", " SHA512, 0, 2, GB_OK},
    {"Content-Digest", SHA256 ", " SHA256, 0, 1, GB_OK},
    {"Content-Digest", "md5=:AAAA:, " SHA256 ", crc32c=:AAAAAA==:", 0, 1, GB_OK},
    {"Content-Digest", SHA256 ";x=1", 0, 1, GB_OK},
    {"Content-Digest", "", 0, 0, GB_OK},
    {"Content-Digest", "md5=:AAAA:", -1, 0, GB_ERR_INVALID_ARGUMENT},
    {"Content-Digest", "SHA-256=:" A43 "=:", -1, 0, GB_ERR_MALFORMED_REQUEST},
    {"Content-Digest", "sha-256=" A43 "=", -1, 0, GB_ERR_MALFORMED_REQUEST},
    {"Content-Digest", "sha-256=\"" A43 "=\"", -1, 0, GB_ERR_MALFORMED_REQUEST},
    {"Content-Digest", "sha-256", -1, 0, GB_ERR_MALFORMED_REQUEST},
    {"Content-Digest", "sha-256=:AAAA:", -1, 0, GB_ERR_MALFORMED_REQUEST},
    {"Content-Digest", "sha-512=:" A43 "=:", -1, 0, GB_ERR_MALFORMED_REQUEST},
    {"Content-Digest", SHA256 ",", -1, 0, GB_ERR_MALFORMED_REQUEST},
    {"Repr-Digest", "sha-256=:" A43 "=", -1, 0, GB_ERR_MALFORMED_REQUEST},
};
#define HEADERS (sizeof(headers) / sizeof(headers[0]))

START_TEST(header_table) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_filters filters;
    struct bench b;

    bench_init(&b);
    header(&b, headers[_i].name, headers[_i].value);
    if (headers[_i].codings < 0) {
        gb_assert_fails(gb_filters_read(b.request, b.response, &filters, &err), err, headers[_i].code);
        ck_assert_uint_eq(b.response->headers, headers[_i].code == GB_ERR_UNSUPPORTED_MEDIA_TYPE ? 1 : 0);
    } else {
        gb_assert_ok(gb_filters_read(b.request, b.response, &filters, &err), err);
        ck_assert_uint_eq(filters.codings, (unsigned)headers[_i].codings);
        ck_assert_uint_eq(filters.digests, (unsigned)headers[_i].digests);
        ck_assert(filters.coded == (filters.codings > 0));
    }
    bench_done(&b);
}
END_TEST

/* Lines of one header are one list. */
START_TEST(several_lines) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_filters filters;
    struct bench b;

    bench_init(&b);
    header(&b, "Content-Encoding", "gzip");
    header(&b, "Content-Encoding", "zstd");
    header(&b, "Content-Digest", SHA256);
    header(&b, "Content-Digest", SHA512);
    header(&b, "Repr-Digest", SHA256);
    gb_assert_ok(gb_filters_read(b.request, b.response, &filters, &err), err);
    ck_assert_uint_eq(filters.codings, 2);
    ck_assert_int_eq(filters.coding[0], GB_CODING_GZIP);
    ck_assert_int_eq(filters.coding[1], GB_CODING_ZSTD);
    ck_assert_uint_eq(filters.digests, 3);
    header(&b, "Content-Encoding", "gzip");
    gb_assert_fails(gb_filters_read(b.request, b.response, &filters, &err), err, GB_ERR_UNSUPPORTED_MEDIA_TYPE);
    bench_done(&b);
}
END_TEST

START_TEST(wishes) {
    static const struct {
        const char *repr, *content;
        int alg; /* -1: none; -2: malformed */
    } table[] = {{"sha-256=10", NULL, GB_DIGEST_SHA256},
                 {"sha-256=3, sha-512=10", NULL, GB_DIGEST_SHA512},
                 {"sha-256=5, sha-512=5", NULL, GB_DIGEST_SHA256},
                 {"sha-256=0", NULL, -1},
                 {"md5=10, unixsum=1", NULL, -1},
                 {"md5=10, sha-512=1", NULL, GB_DIGEST_SHA512},
                 {NULL, "sha-512=1", GB_DIGEST_SHA512},
                 {"sha-256=1", "sha-512=9", GB_DIGEST_SHA256},
                 {NULL, NULL, -1},
                 {"", NULL, -1},
                 {"sha-256", NULL, -2},
                 {"sha-256=11", NULL, -2},
                 {"sha-256=-1", NULL, -2},
                 {"sha-256=1.5", NULL, -2},
                 {"sha-256=1,", NULL, -2}};
    size_t i;

    for (i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct gb_error err = GB_ERROR_INIT;
        enum gb_digest_alg alg;
        struct bench b;
        bool wanted;

        bench_init(&b);
        if (table[i].repr)
            header(&b, "Want-Repr-Digest", table[i].repr);
        if (table[i].content)
            header(&b, "Want-Content-Digest", table[i].content);
        if (table[i].alg == -2) {
            gb_assert_fails(gb_digest_wanted(b.request, &wanted, &alg, &err), err, GB_ERR_MALFORMED_REQUEST);
        } else {
            gb_assert_ok(gb_digest_wanted(b.request, &wanted, &alg, &err), err);
            ck_assert_msg(wanted == (table[i].alg >= 0), "%s", table[i].repr);
            ck_assert(!wanted || (int)alg == table[i].alg);
        }
        bench_done(&b);
    }
}
END_TEST

/* --- what is kept ------------------------------------------------------------------------------------------------- */

START_TEST(kept) {
    struct gb_digests *digests = gb_digests_new();
    struct gb_digest digest = {.alg = GB_DIGEST_SHA256};
    struct gb_digest found;
    char tag[GB_ETAG_SIZE];
    unsigned i;

    ck_assert_ptr_nonnull(digests);
    ck_assert(!gb_digests_find(digests, "1.1", GB_DIGEST_SHA256, &found));
    for (i = 0; i <= GB_DIGESTS_KEPT; i++) {
        snprintf(tag, sizeof(tag), "1.%u", i);
        digest.bytes[0] = (uint8_t)i;
        gb_digests_keep(digests, tag, &digest);
        gb_digests_keep(digests, tag, &digest); /* computed twice, kept once */
        ck_assert(gb_digests_find(digests, tag, GB_DIGEST_SHA256, &found));
        ck_assert_uint_eq(found.bytes[0], (uint8_t)i);
        ck_assert(!gb_digests_find(digests, tag, GB_DIGEST_SHA512, &found));
    }
    ck_assert(!gb_digests_find(digests, "1.0", GB_DIGEST_SHA256, &found)); /* the oldest made room */
    ck_assert(gb_digests_find(digests, "1.1", GB_DIGEST_SHA256, &found));
    gb_digests_free(digests);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("filter headers");

    gb_test_add_loop(suite, "headers", header_table, 4, (int)HEADERS);
    gb_test_add(suite, "lines", several_lines, 4);
    gb_test_add(suite, "wishes", wishes, 4);
    gb_test_add(suite, "kept", kept, 10);
    return gb_test_run(suite);
}
