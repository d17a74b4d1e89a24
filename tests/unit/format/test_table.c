/* Tables: where the tensors of a file lie in memory, against a plain computation of the same. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gb_test.h"

#include "format/table.h"

#define MOST 20

/* A file of that many tensors, whose i-th has sizes[i] bytes and the name names[i]. */
static struct gb_table *make(size_t count, const uint64_t *sizes, char names[][16]) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_json_writer out = {0};
    struct gb_table *table;
    uint64_t at = 0;
    size_t i;

    gb_safetensors_open(&out);
    for (i = 0; i < count; i++) {
        struct gb_shape shape = {.dims = 1, .dim = {sizes[i]}};

        gb_safetensors_add(&out, names[i], GB_DTYPE_UINT8, &shape, at, at + sizes[i]);
        at += sizes[i];
    }
    gb_assert_ok(gb_safetensors_close(&out, &err), err);
    table = gb_table_new(out.s, out.used, &err);
    ck_assert_msg(table, "%s", err.detail);
    gb_json_done(&out);
    return table;
}

static uint64_t aligned(uint64_t at) {
    return (at + GB_TABLE_ALIGN - 1) / GB_TABLE_ALIGN * GB_TABLE_ALIGN;
}

/* Each byte of the file, by stretches that begin anywhere, lies where its tensor says. */
static void check_stretches(const struct gb_table *table) {
    const char *head;
    size_t head_n = gb_table_head(table, &head);
    uint64_t file = gb_table_file_bytes(table);
    uint64_t first;
    uint64_t memory;
    uint64_t at;
    uint64_t n;
    size_t i;

    for (first = 0; first < file; first++) {
        n = gb_table_stretch(table, first, file - first, &at);
        ck_assert_uint_gt(n, 0);
        if (first < head_n) {
            ck_assert_uint_eq(at, first);
            ck_assert_uint_eq(n, head_n - first);
            continue;
        }
        for (i = 0; gb_table_tensor(table, i, NULL)->end <= first - head_n; i++)
            ;
        ck_assert_uint_eq(at, (gb_table_tensor(table, i, &memory), memory) + first - head_n -
                                  gb_table_tensor(table, i, NULL)->begin);
        ck_assert_uint_eq(n, gb_table_tensor(table, i, NULL)->end - (first - head_n));
        ck_assert_uint_eq(gb_table_stretch(table, first, 1, &at), 1);
    }
}

/* The memory is the bytes of the file and gaps, in turn, to its end. */
static void check_runs(const struct gb_table *table) {
    uint64_t tensors = 0;
    uint64_t at = 0;
    uint64_t n;
    bool gap;

    for (; at < gb_table_bytes(table); at += n) {
        n = gb_table_run(table, at, &gap);
        ck_assert_uint_gt(n, 0);
        ck_assert(!gap || (n < GB_TABLE_ALIGN && (at + n) % GB_TABLE_ALIGN == 0));
        tensors += gap ? 0 : n;
    }
    ck_assert_uint_eq(at, gb_table_bytes(table));
    ck_assert_uint_eq(tensors, gb_table_file_bytes(table));
}

/* Both directions, at every byte of the file and of the memory: a gap belongs to the bytes behind it. */
static void check_places(const struct gb_table *table) {
    uint64_t file = gb_table_file_bytes(table);
    uint64_t before = 0;
    uint64_t at;
    bool gap;

    for (at = 0; at < gb_table_bytes(table); at++) {
        ck_assert_uint_eq(gb_table_before(table, at), before);
        (void)gb_table_run(table, at, &gap);
        if (!gap)
            ck_assert_uint_eq(gb_table_place(table, ++before), at + 1);
    }
    ck_assert_uint_eq(before, file);
    ck_assert_uint_eq(gb_table_before(table, gb_table_bytes(table)), file);
    ck_assert_uint_eq(gb_table_place(table, 0), 0);
    ck_assert_uint_eq(gb_table_place(table, file), gb_table_bytes(table));
}

START_TEST(every_layout) {
    struct gb_error err = GB_ERROR_INIT;
    uint64_t sizes[MOST];
    char names[MOST][16];
    struct gb_table *table;
    uint64_t end = 0;
    uint64_t at;
    size_t count;
    size_t i;
    int round;

    srand((unsigned)_i);
    for (round = 0; round < 4; round++) {
        count = (size_t)rand() % MOST;
        for (i = 0; i < count; i++) {
            sizes[i] = rand() % 3 == 0 ? 0 : (uint64_t)rand() % 600;
            snprintf(names[i], sizeof(names[i]), "%d.%zu", rand() % 9, i);
        }
        table = make(count, sizes, names);
        ck_assert_uint_eq(gb_table_count(table), count);
        end = gb_table_head(table, &(const char *){NULL});
        for (i = 0; i < count; i++) {
            const struct gb_safetensor *tensor = gb_table_tensor(table, i, &at);
            int64_t found = gb_table_find(table, tensor->name, tensor->name_len, &err);

            ck_assert_int_eq(found, (int64_t)i);
            if (tensor->end == tensor->begin)
                continue;
            ck_assert_uint_eq(at, aligned(end));
            end = at + tensor->end - tensor->begin;
        }
        ck_assert_uint_eq(gb_table_bytes(table), end);
        gb_assert_fails(gb_table_find(table, "none", 4, &err) < 0 ? -1 : 0, err, GB_ERR_TENSOR_NOT_FOUND);
        check_stretches(table);
        check_runs(table);
        check_places(table);
        gb_table_unref(gb_table_ref(table));
        gb_table_unref(table);
    }
}
END_TEST

START_TEST(metadata_as_it_came) {
    static const char *const headers[] = {"{\"__metadata__\" : {\"a\": \"\\u00e9\"} }", "{\"__metadata__\":null}",
                                          "{}"};
    static const char *const wanted[] = {"{\"a\": \"\\u00e9\"}", "{}", "{}"};
    struct gb_error err = GB_ERROR_INIT;
    char file[100] = {(char)strlen(headers[_i])};
    struct gb_table *table;
    const char *text;
    size_t n;

    strcpy(file + GB_SAFETENSORS_LENGTH, headers[_i]);
    table = gb_table_new(file, GB_SAFETENSORS_LENGTH + strlen(headers[_i]), &err);
    ck_assert_msg(table, "%s", err.detail);
    text = gb_table_metadata(table, &n);
    ck_assert_uint_eq(n, strlen(wanted[_i]));
    ck_assert(memcmp(text, wanted[_i], n) == 0);
    gb_table_unref(table);
}
END_TEST

/* What names a tensor of the file, and is no tensor's name itself. */
START_TEST(aliases) {
    static const char header[] =
        "{\"__metadata__\":{\"z\":\"w\",\"\\u0061\":\"v\",\"v\":\"w\",\"\":\"w\",\"k\":\"none\"},"
        "\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
        "\"v\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}";
    static const struct {
        const char *name;
        size_t of;
    } wanted[] = {{"a", 1}, {"z", 0}};
    char file[sizeof(header) + GB_SAFETENSORS_LENGTH] = {(char)(sizeof(header) - 1)};
    struct gb_error err = GB_ERROR_INIT;
    struct gb_table *table;
    size_t len;
    size_t of;
    size_t i;

    strcpy(file + GB_SAFETENSORS_LENGTH, header);
    table = gb_table_new(file, GB_SAFETENSORS_LENGTH + sizeof(header) - 1, &err);
    ck_assert_msg(table, "%s", err.detail);
    ck_assert_uint_eq(gb_table_aliases(table), 2);
    for (i = 0; i < 2; i++) {
        const char *name = gb_table_alias(table, i, &len, &of);

        ck_assert(len == 1 && name[0] == wanted[i].name[0] && of == wanted[i].of);
        ck_assert_int_eq(gb_table_find(table, name, len, &err), (int64_t)of);
    }
    ck_assert_int_eq(gb_table_find(table, "v", 1, &err), 1);
    gb_assert_fails(gb_table_find(table, "k", 1, &err) < 0 ? -1 : 0, err, GB_ERR_TENSOR_NOT_FOUND);
    gb_table_unref(table);
}
END_TEST

START_TEST(more_than_a_buffer_can_have) {
    static const char header[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[9223372036854775807],"
                                 "\"data_offsets\":[0,9223372036854775807]}}";
    struct gb_error err = GB_ERROR_INIT;
    char file[200] = {(char)(sizeof(header) - 1)};

    strcpy(file + GB_SAFETENSORS_LENGTH, header);
    ck_assert_ptr_null(gb_table_new(file, GB_SAFETENSORS_LENGTH + sizeof(header) - 1, &err));
    ck_assert_int_eq(err.code, GB_ERR_UNSUPPORTED_ARRAY);
}
END_TEST

int main(void) {
    TCase *tc = tcase_create("table");
    Suite *suite = suite_create("format_table");

    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, every_layout, 0, 10);
    tcase_add_loop_test(tc, metadata_as_it_came, 0, 3);
    tcase_add_test(tc, aliases);
    tcase_add_test(tc, more_than_a_buffer_can_have);
    suite_add_tcase(suite, tc);
    return gb_test_run(suite);
}
