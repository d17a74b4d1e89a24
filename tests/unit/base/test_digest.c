/* Digests of streams, and the structured-field dictionaries that carry them. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "gb_test.h"
#include "http/message/fields.h"

/* FIPS 180-4's examples, as base64. */
static const struct {
    enum gb_digest_alg alg;
    const char *text;
    const char *digest;
} known[] = {
    {GB_DIGEST_SHA256, "", "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="},
    {GB_DIGEST_SHA256, "abc", "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0="},
    {GB_DIGEST_SHA256, "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
     "JI1qYdIGOLjlwCaTDD5gOaM85Flk/yFn9uzt1BnbBsE="},
    {GB_DIGEST_SHA512, "", "z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg=="},
    {GB_DIGEST_SHA512, "abc",
     "3a81oZNherrMQXNJriBBMRLm+k6JqX6iCp7u5ktV05ohkpkqJ0/BqDa6PCOj/uu9RU1EI2Q86A4qmslPpUyknw=="},
    {GB_DIGEST_SHA512, "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
     "IEqPxt2oLwoM7XvrjgikFlfBbvRosiioJ5vjMacDwzWW/RXBOxsH+aodO+pXeJygMa2Fx6cd1wNU7GMSOMo0RQ=="},
};
#define KNOWN (sizeof(known) / sizeof(known[0]))

START_TEST(known_digests) {
    struct gb_error err = GB_ERROR_INIT;
    size_t n = strlen(known[_i].text);
    struct gb_hash *hash = gb_hash_new(known[_i].alg, &err);
    char text[GB_BASE64_SIZE_MAX];
    struct gb_digest digest;
    struct gb_digest read;
    size_t cut;

    ck_assert_ptr_nonnull(hash);
    for (cut = 0; cut <= n; cut++) { /* in two parts; reading the hash resets it */
        gb_assert_ok(gb_hash_add(hash, known[_i].text, cut, &err), err);
        gb_assert_ok(gb_hash_add(hash, known[_i].text + cut, n - cut, &err), err);
        gb_hash_get(hash, &digest);
        gb_digest_text(&digest, text);
        ck_assert_str_eq(text, known[_i].digest);
    }
    ck_assert(gb_digest_parse(known[_i].alg, text, strlen(text), &read));
    ck_assert(gb_digest_equal(&read, &digest));
    read.bytes[gb_digest_size(read.alg) - 1] ^= 1;
    ck_assert(!gb_digest_equal(&read, &digest));
    gb_hash_free(hash);
    gb_hash_free(NULL);
}
END_TEST

START_TEST(base64) {
    static const char good[] = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=";
    struct gb_digest digest;
    char text[64];
    size_t i;

    ck_assert(gb_digest_parse(GB_DIGEST_SHA256, good, 44, &digest));
    ck_assert(gb_digest_parse(GB_DIGEST_SHA256, good, 43, &digest)); /* RFC 9651 lets padding out */
    ck_assert(!gb_digest_parse(GB_DIGEST_SHA256, good, 42, &digest));
    ck_assert(!gb_digest_parse(GB_DIGEST_SHA256, good, 0, &digest));
    ck_assert(!gb_digest_parse(GB_DIGEST_SHA512, good, 44, &digest));
    for (i = 0; i < 44; i++) {
        memcpy(text, good, 45);
        text[i] = '-'; /* of the base64url alphabet */
        ck_assert(!gb_digest_parse(GB_DIGEST_SHA256, text, 44, &digest));
        text[i] = '\0';
        ck_assert(!gb_digest_parse(GB_DIGEST_SHA256, text, 44, &digest));
    }
    memcpy(text, good, 45);
    text[42] = 'V'; /* a nonzero padding bit */
    ck_assert(!gb_digest_parse(GB_DIGEST_SHA256, text, 44, &digest));
}
END_TEST

/* Parses a dictionary and returns one letter for each member, or "!" if it is malformed. */
static const char *read_all(const char *line) {
    static char out[64];
    struct gb_field field;
    size_t n = 0;
    int r;

    while ((r = gb_field_next(&line, &field)) > 0 && n < sizeof(out) - 2)
        out[n++] = field.type == GB_FIELD_BYTES ? 'b' : field.type == GB_FIELD_INTEGER ? 'i' : 'o';
    if (r < 0)
        out[n++] = '!';
    out[n] = '\0';
    return out;
}

static const struct {
    const char *line;
    const char *members;
} lines[] = {
    {"", ""},
    {"   ", ""},
    {"a", "o"},
    {"a=1", "i"},
    {"a=-15", "i"},
    {"a=999999999999999", "i"},
    {"a=9999999999999999", "!"},
    {"a=1.5", "o"},
    {"a=1.", "!"},
    {"a=1.2345", "!"},
    {"a=1234567890123.5", "!"},
    {"a=-", "!"},
    {"a=:YQ==:", "b"},
    {"a=::", "b"},
    {"a=:Y", "!"},
    {"a=:Y!:", "!"},
    {"a=\"x\\\"y\\\\\"", "o"},
    {"a=\"x", "!"},
    {"a=\"\\x\"", "!"},
    {"a=\"\t\"", "!"},
    {"a=token/*:x", "o"},
    {"a=?1", "o"},
    {"a=?2", "!"},
    {"a=?", "!"},
    {"a=@1700000000", "o"},
    {"a=@1.5", "!"},
    {"a=%\"x\"", "o"},
    {"a=(1 2 \"x\";y=2 :YQ==:);q", "o"},
    {"a=()", "o"},
    {"a=( 1 )", "o"},
    {"a=(1", "!"},
    {"a=(1\"x\")", "!"},
    {"a;x=1;y, b=2", "oi"},
    {"a=1;x=(1)", "!"},
    {"a=1; x=:YQ==:;y=?0", "i"},
    {"a=1 , \t b=:YQ==:,c", "ibo"},
    {"a=1,", "!"},
    {"a=1,,b=2", "i!"},
    {",a=1", "!"},
    {"a=1 b=2", "!"},
    {"A=1", "!"},
    {"1=1", "!"},
    {"a =1", "!"},
    {"a= 1", "!"},
    {"a=", "!"},
    {"*k.-_1=1", "i"},
    {"a=1;", "!"},
    {"a=1;X", "!"},
    {"a=\xc3\xa4", "!"},
};
#define LINES (sizeof(lines) / sizeof(lines[0]))

START_TEST(dictionaries) {
    ck_assert_msg(strcmp(read_all(lines[_i].line), lines[_i].members) == 0, "%s gives %s, not %s", lines[_i].line,
                  read_all(lines[_i].line), lines[_i].members);
}
END_TEST

START_TEST(members) {
    const char *line = "  sha-256=:YWJj:;x=1, n=-42";
    struct gb_field field;

    ck_assert_int_eq(gb_field_next(&line, &field), 1);
    ck_assert_uint_eq(field.key_n, 7);
    ck_assert_int_eq(memcmp(field.key, "sha-256", 7), 0);
    ck_assert_uint_eq(field.text_n, 4);
    ck_assert_int_eq(memcmp(field.text, "YWJj", 4), 0);
    ck_assert_int_eq(gb_field_next(&line, &field), 1);
    ck_assert_int_eq(field.integer, -42);
    ck_assert_int_eq(gb_field_next(&line, &field), 0);
}
END_TEST

static const struct {
    const char *line;
    enum gb_field_type type; /* or -1 */
    int64_t integer;
    const char *text;
} items[] = {
    {"?1", GB_FIELD_BOOLEAN, 1, NULL},
    {"?0;x=1", GB_FIELD_BOOLEAN, 0, NULL},
    {"  ?1; y;z=\"a;b\"  ", GB_FIELD_BOOLEAN, 1, NULL},
    {"-15;q=0.5", GB_FIELD_INTEGER, -15, NULL},
    {"007", GB_FIELD_INTEGER, 7, NULL},
    {"999999999999999", GB_FIELD_INTEGER, 999999999999999, NULL},
    {"\"a key\";x=?1", GB_FIELD_STRING, 0, "a key"},
    {"\"\"", GB_FIELD_STRING, 0, ""},
    {"\"a\\\"b\"", GB_FIELD_STRING, 0, "a\\\"b"},
    {":YQ==:;v", GB_FIELD_BYTES, 0, "YQ=="},
    {"1.5;x", GB_FIELD_OTHER, 0, NULL},
    {"token", GB_FIELD_OTHER, 0, NULL},
    {"%\"x\"", GB_FIELD_OTHER, 0, NULL},
    {"", -1, 0, NULL},
    {"?", -1, 0, NULL},
    {"?2", -1, 0, NULL},
    {"?1 ;x", -1, 0, NULL},
    {"?1;", -1, 0, NULL},
    {"?1;X", -1, 0, NULL},
    {"?1;x=", -1, 0, NULL},
    {"?1;x=(1)", -1, 0, NULL},
    {"?1, ?0", -1, 0, NULL},
    {"1 2", -1, 0, NULL},
    {"(1)", -1, 0, NULL},
    {"\"a", -1, 0, NULL},
    {"1\t", -1, 0, NULL},
};
#define ITEMS (sizeof(items) / sizeof(items[0]))

START_TEST(one_item) {
    struct gb_field field = {.integer = 0};
    int r = gb_field_item(items[_i].line, &field);

    ck_assert_msg(r == ((int)items[_i].type < 0 ? -1 : 0), "%s", items[_i].line);
    if (r < 0)
        return;
    ck_assert_int_eq(field.type, items[_i].type);
    if (field.type <= GB_FIELD_BOOLEAN)
        ck_assert_int_eq(field.integer, items[_i].integer);
    if (items[_i].text) {
        ck_assert_uint_eq(field.text_n, strlen(items[_i].text));
        ck_assert_int_eq(memcmp(field.text, items[_i].text, field.text_n), 0);
    }
}
END_TEST

/* With any bytes in a line, the parser stays within its bounds and terminates. */
START_TEST(noise) {
    static const char letters[] = "ab1=:;,()\"\\ ?@%-.*Y\t";
    uint32_t x = 1;
    unsigned round;

    for (round = 0; round < 200000; round++) {
        char *line;
        size_t n;
        size_t i;

        x = x * 1664525 + 1013904223;
        n = x >> 28;
        line = malloc(n + 1); /* exactly as large as the text, so that a sanitizer reports a read beyond it */
        for (i = 0; i < n; i++) {
            x = x * 1664525 + 1013904223;
            line[i] = letters[(x >> 16) % (sizeof(letters) - 1)];
        }
        line[n] = '\0';
        read_all(line);
        free(line);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("digest");

    gb_test_add_loop(suite, "known", known_digests, 10, (int)KNOWN);
    gb_test_add(suite, "base64", base64, 4);
    gb_test_add_loop(suite, "dictionaries", dictionaries, 4, (int)LINES);
    gb_test_add_loop(suite, "items", one_item, 4, (int)ITEMS);
    gb_test_add(suite, "members", members, 4);
    gb_test_add(suite, "noise", noise, 30);
    return gb_test_run(suite);
}
