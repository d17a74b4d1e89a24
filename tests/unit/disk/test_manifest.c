/* Manifests are written and read; what is not one is refused, and so is a text of which a bit has changed. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "disk/disk.h"
#include "disk/manifest.h"
#include "gb_test.h"

#define MIB (1024u * 1024u)

static struct gb_error err;

/* --- one that is sound -------------------------------------------------------------------------------------------- */

static void fill_entry(struct gb_manifest_entry *entry, const char *buffer, uint64_t bytes) {
    size_t count = gb_stored_block_count(bytes);
    size_t i;

    *entry = (struct gb_manifest_entry){.id = 298,
                                        .generation = 7,
                                        .run = 0x0badcafe,
                                        .dtype = GB_DTYPE_UINT8,
                                        .shape = {.dims = 1, .dim = {bytes}},
                                        .bytes = bytes,
                                        .crc32c = 0xe3069283,
                                        .size = GB_DISK_DATA_AT + bytes,
                                        .file_crc32c = 0x01234567,
                                        .kind = GB_KIND_PINNED,
                                        .durability = GB_DURABILITY_BEHIND,
                                        .mirrored = true};
    snprintf(entry->buffer.s, sizeof(entry->buffer.s), "%s", buffer);
    gb_assert_ok(gb_labels_make("{\"a b\":\"c \\\" d\\\\\"}", &entry->labels, &err), err);
    entry->blocks = malloc((count + 1) * sizeof(*entry->blocks));
    ck_assert_ptr_nonnull(entry->blocks);
    entry->blocks[0] = entry->crc32c;
    for (i = 0; count > 1 && i < count; i++)
        entry->blocks[i] = (uint32_t)i + 1;
}

static const uint64_t sizes[] = {0, 5, 3 * MIB + 1};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

static void fill(struct gb_manifest *m) {
    char name[8];
    size_t i;

    err = GB_ERROR_INIT;
    *m = (struct gb_manifest){.name = {"c1"}, .session = {"default"}, .as_of_us = 1764108000123000, .count = SIZES};
    m->entries = malloc(SIZES * sizeof(*m->entries));
    ck_assert_ptr_nonnull(m->entries);
    for (i = 0; i < SIZES; i++) {
        snprintf(name, sizeof(name), "b%zu", i);
        fill_entry(&m->entries[i], name, sizes[i]);
        m->bytes += sizes[i];
    }
}

/* The text of that one; the caller frees it. */
static char *sound(size_t *ret_n) {
    struct gb_json_writer out = {0};
    struct gb_manifest m;

    fill(&m);
    gb_manifest_write(&m, &out);
    ck_assert(!out.failed);
    gb_manifest_done(&m);
    *ret_n = out.used;
    return out.s;
}

static int parse(const char *text, size_t n, struct gb_manifest *ret) {
    err = GB_ERROR_INIT;
    return gb_manifest_parse(text, n, ret, &err);
}

static void check_same(const struct gb_manifest *m) {
    struct gb_manifest same;
    size_t i;

    fill(&same);
    ck_assert_uint_eq(m->count, SIZES);
    ck_assert_str_eq(m->session.s, "default");
    ck_assert_int_eq(m->as_of_us, same.as_of_us);
    ck_assert_uint_eq(m->bytes, same.bytes);
    for (i = 0; i < SIZES; i++) {
        const struct gb_manifest_entry *a = &m->entries[i];
        const struct gb_manifest_entry *b = &same.entries[i];
        size_t blocks = gb_stored_block_count(a->bytes);

        ck_assert_str_eq(a->buffer.s, b->buffer.s);
        ck_assert(a->id == b->id && a->generation == b->generation && a->run == b->run && a->dtype == b->dtype);
        ck_assert(a->bytes == b->bytes && a->crc32c == b->crc32c && a->size == b->size);
        ck_assert(a->file_crc32c == b->file_crc32c && a->kind == b->kind && a->durability == b->durability);
        ck_assert(a->mirrored && !a->sealed && gb_shape_equal(&a->shape, &b->shape));
        ck_assert_str_eq(gb_labels_text(a->labels), gb_labels_text(b->labels));
        ck_assert_int_eq(memcmp(a->blocks, b->blocks, (blocks > 0 ? blocks : 1) * sizeof(*a->blocks)), 0);
    }
    gb_manifest_done(&same);
}

START_TEST(what_is_written_is_read) {
    struct gb_manifest m;
    size_t n;
    char *text = sound(&n);

    gb_assert_ok(parse(text, n, &m), err);
    check_same(&m);
    gb_manifest_done(&m);
    free(text);
}
END_TEST

/* --- the checksum ------------------------------------------------------------------------------------------------- */

/* Of the member's own name the text is as good as one without a checksum. */
START_TEST(each_bit_counts) {
    struct gb_manifest m;
    size_t n;
    char *text = sound(&n);
    size_t i;
    int bit;

    for (i = strlen(GB_MANIFEST_OPENING); i < n - 1; i++) {
        for (bit = 0; bit < 8; bit++) {
            bool digit = i < strlen(GB_MANIFEST_OPENING) + 8;

            if (digit && isxdigit(text[i]) && 1 << bit == 'a' - 'A' && isxdigit(text[i] ^ 1 << bit))
                continue; /* the same digit in capitals */
            text[i] = (char)(text[i] ^ 1 << bit);
            gb_assert_fails(parse(text, n, &m), err, GB_ERR_INVALID_ARGUMENT);
            text[i] = (char)(text[i] ^ 1 << bit);
        }
    }
    for (i = 0; i < n - 1; i++)
        gb_assert_fails(parse(text, i, &m), err, GB_ERR_INVALID_ARGUMENT);
    free(text);
}
END_TEST

/* Writes the text again, with whitespace wherever it may stand. */
static char *spread(const char *text, size_t n, size_t *ret_n) {
    char *out = malloc(4 * n + 1);
    bool quoted = false;
    size_t used = 0;
    size_t i;

    ck_assert_ptr_nonnull(out);
    for (i = 0; i < n; i++) {
        bool token = !quoted && strchr("{}[],:", text[i]) != NULL;

        if (token)
            out[used++] = " \t\r\n"[i % 4];
        out[used++] = text[i];
        if (token)
            out[used++] = "\n \t\r"[i % 4];
        if (text[i] == '\\' && quoted)
            out[used++] = text[++i];
        else if (text[i] == '"')
            quoted = !quoted;
    }
    *ret_n = used;
    return out;
}

START_TEST(it_may_be_laid_out_anew) {
    struct gb_manifest m;
    size_t n;
    char *text = sound(&n);
    size_t wide_n;
    char *wide = spread(text, n, &wide_n);
    char *digit;

    ck_assert_uint_gt(wide_n, n);
    gb_assert_ok(parse(wide, wide_n, &m), err);
    ck_assert_uint_eq(m.count, SIZES);
    gb_manifest_done(&m);
    digit = strstr(wide, "01234567");
    ck_assert_ptr_nonnull(digit);
    digit[0] = '9';
    ck_assert_int_eq(parse(wide, wide_n, &m), -1);
    ck_assert_str_eq(err.detail, "the manifest's \"crc32c\" is not that of the text: it is damaged");
    free(wide);
    free(text);
}
END_TEST

/* --- what is refused ---------------------------------------------------------------------------------------------- */

#define HEAD "{\"version\":1,\"name\":\"c\",\"session\":\"s\",\"as_of\":\"2026-11-25T22:00:00Z\",\"bytes\":"
#define ENTRY_WITH(buffer, file, id, generation, run, dtype, shape, bytes, crc, size, sum, kind, durability, flag)     \
    "{\"buffer\":" buffer ",\"file\":" file ",\"id\":" id ",\"generation\":" generation ",\"run\":" run                \
    ",\"dtype\":" dtype ",\"shape\":" shape ",\"bytes\":" bytes ",\"crc32c\":" crc ",\"size\":" size                   \
    ",\"file_crc32c\":" sum ",\"kind\":" kind ",\"durability\":" durability ",\"mirrored\":" flag ",\"sealed\":false"
#define GOOD                                                                                                           \
    ENTRY_WITH("\"b\"", "\"00001.safetensors\"", "1", "1", "\"00000001\"", "\"uint8\"", "[5]", "5", "\"00000001\"",    \
               "4101", "\"00000001\"", "\"device\"", "\"none\"", "false")
#define WRONG(buffer, file, id, generation, run, dtype, shape, bytes, crc, size, sum, kind, durability, flag)          \
    HEAD "5,\"entries\":[" ENTRY_WITH(buffer, file, id, generation, run, dtype, shape, bytes, crc, size, sum, kind,    \
                                      durability, flag) "}]}"

static const char *const refused[] = {
    "",
    "[]",
    "{}",
    "{\"version\":2}",
    "{\"version\":1,\"entries\":[]}",
    "nonsense",
    HEAD "0,\"entries\":[]} x",
    HEAD "0,\"entries\":[],\"entries\":[]}",
    HEAD "0,\"entries\":{}}",
    HEAD "0,\"entries\":[5]}",
    HEAD "0,\"entries\":[{}]}",
    HEAD "1,\"entries\":[]}",
    HEAD "-1,\"entries\":[]}",
    HEAD "5,\"entries\":[" GOOD "}," GOOD "}]}",
    HEAD "6,\"entries\":[" GOOD "}]}",
    HEAD "5,\"entries\":[" GOOD ",\"id\":1}]}",
    HEAD "5,\"entries\":[" GOOD ",\"blocks\":\"00000001\",\"blocks\":\"00000001\"}]}",
    HEAD "5,\"entries\":[" GOOD ",\"blocks\":\"0000000100000002\"}]}",
    HEAD "5,\"entries\":[" GOOD ",\"blocks\":\"0000000g\"}]}",
    HEAD "5,\"entries\":[" GOOD ",\"blocks\":\"1\"}]}",
    HEAD "5,\"entries\":[" GOOD ",\"labels\":[]}]}",
    HEAD "5,\"entries\":[" GOOD ",\"labels\":{\"a\":1}}]}",
    HEAD "5,\"entries\":[" GOOD,
    HEAD "0,\"entries\":[],\"as_of\":\"never\"}",
    HEAD "0,\"entries\":[],\"session\":\"no/name\"}",
    GB_MANIFEST_OPENING "0000000x\",\"version\":1}",
    WRONG("5", "\"00001.safetensors\"", "1", "1", "\"00000001\"", "\"uint8\"", "[5]", "5", "\"00000001\"", "4101",
          "\"00000001\"", "\"device\"", "\"none\"", "false"),
    WRONG("\"b\"", "\"00002.safetensors\"", "1", "1", "\"00000001\"", "\"uint8\"", "[5]", "5", "\"00000001\"", "4101",
          "\"00000001\"", "\"device\"", "\"none\"", "false"),
    WRONG("\"b\"", "\"00001.safetensors\"", "x", "1", "\"00000001\"", "\"uint8\"", "[5]", "5", "\"00000001\"", "4101",
          "\"00000001\"", "\"device\"", "\"none\"", "false"),
    WRONG("\"b\"", "\"00001.safetensors\"", "1", "0", "\"00000001\"", "\"uint8\"", "[5]", "5", "\"00000001\"", "4101",
          "\"00000001\"", "\"device\"", "\"none\"", "false"),
    WRONG("\"b\"", "\"00001.safetensors\"", "1", "1", "\"1\"", "\"uint8\"", "[5]", "5", "\"00000001\"", "4101",
          "\"00000001\"", "\"device\"", "\"none\"", "false"),
    WRONG("\"b\"", "\"00001.safetensors\"", "1", "1", "\"00000001\"", "\"uint9\"", "[5]", "5", "\"00000001\"", "4101",
          "\"00000001\"", "\"device\"", "\"none\"", "false"),
    WRONG("\"b\"", "\"00001.safetensors\"", "1", "1", "\"00000001\"", "\"uint8\"", "5", "5", "\"00000001\"", "4101",
          "\"00000001\"", "\"device\"", "\"none\"", "false"),
    WRONG("\"b\"", "\"00001.safetensors\"", "1", "1", "\"00000001\"", "\"uint8\"",
          "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,5]", "5", "\"00000001\"", "4101",
          "\"00000001\"", "\"device\"", "\"none\"", "false"),
    WRONG("\"b\"", "\"00001.safetensors\"", "1", "1", "\"00000001\"", "\"uint8\"", "[9223372036854775807,9]", "5",
          "\"00000001\"", "4101", "\"00000001\"", "\"device\"", "\"none\"", "false"),
    WRONG("\"b\"", "\"00001.safetensors\"", "1", "1", "\"00000001\"", "\"uint8\"", "[5]", "5", "\"00000001\"", "4100",
          "\"00000001\"", "\"device\"", "\"none\"", "false"),
    WRONG("\"b\"", "\"00001.safetensors\"", "1", "1", "\"00000001\"", "\"uint8\"", "[5]", "5", "\"00000001\"", "4101",
          "\"00000001\"", "\"disk\"", "\"none\"", "false"),
    WRONG("\"b\"", "\"00001.safetensors\"", "1", "1", "\"00000001\"", "\"uint8\"", "[5]", "5", "\"00000001\"", "4101",
          "\"00000001\"", "\"device\"", "\"soon\"", "false"),
    WRONG("\"b\"", "\"00001.safetensors\"", "1", "1", "\"00000001\"", "\"uint8\"", "[5]", "5", "\"00000001\"", "4101",
          "\"00000001\"", "\"device\"", "\"none\"", "0"),
    WRONG("\"b\"", "\"00001.safetensors\"", "1", "1", "\"00000001\"", "\"uint8\"", "[1048577]", "1048577",
          "\"00000001\"", "1052673", "\"00000001\"", "\"device\"", "\"none\"", "false"),
};
#define REFUSED (sizeof(refused) / sizeof(refused[0]))

START_TEST(what_is_none_is_refused) {
    struct gb_manifest m = {.count = 77};

    ck_assert_int_eq(parse(refused[_i], strlen(refused[_i]), &m), -1);
    ck_assert_msg(err.code == GB_ERR_INVALID_ARGUMENT || err.code == GB_ERR_INVALID_NAME, "%s: %s",
                  gb_code_slug(err.code), refused[_i]);
    ck_assert_str_ne(err.detail, "");
    ck_assert_uint_eq(m.count, 77); /* written on success alone */
}
END_TEST

/* The texts above differ in one thing each from one that is taken. */
START_TEST(what_lacks_nothing_is_taken) {
    static const char *const taken[] = {HEAD "5,\"entries\":[" GOOD "}]}", HEAD "0,\"entries\":[]}",
                                        HEAD "5,\"entries\":[" GOOD ",\"later\":[1,{}],\"blocks\":\"00000001\"}]}"};
    struct gb_manifest m;
    size_t i;

    for (i = 0; i < 3; i++) {
        gb_assert_ok(parse(taken[i], strlen(taken[i]), &m), err);
        gb_manifest_done(&m);
    }
}
END_TEST

START_TEST(names_of_files) {
    static const char *const none[] = {
        "",      "1",      "00000.safetensors",  "0001.safetensors",  "000001.safetensors",
        "00001", "x.json", "00001.safetensors.", "-0001.safetensors", "99999999999999999999999.safetensors"};
    char file[GB_MANIFEST_FILE_SIZE];
    size_t index;
    size_t i;

    gb_manifest_file(0, file);
    ck_assert_str_eq(file, "00001.safetensors");
    gb_manifest_file(99999, file);
    ck_assert_str_eq(file, "100000.safetensors");
    ck_assert(gb_manifest_file_parse(file, &index) && index == 99999);
    for (i = 0; i < sizeof(none) / sizeof(none[0]); i++)
        ck_assert_msg(!gb_manifest_file_parse(none[i], &index), "%s", none[i]);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("manifest");
    TCase *tc = tcase_create("once");

    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, what_is_written_is_read);
    tcase_add_test(tc, each_bit_counts);
    tcase_add_test(tc, it_may_be_laid_out_anew);
    tcase_add_loop_test(tc, what_is_none_is_refused, 0, REFUSED);
    tcase_add_test(tc, what_lacks_nothing_is_taken);
    tcase_add_test(tc, names_of_files);
    suite_add_tcase(suite, tc);
    return gb_test_run(suite);
}
