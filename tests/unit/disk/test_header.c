/* Names of files, and the header page. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "disk_fixture.h"
#include "format/safetensors.h"
#include "gb_test.h"

/* Aligned, as a writer's page is. */
static unsigned char page[GB_DISK_DATA_AT] __attribute__((aligned(4096)));
static struct gb_error err;

static const struct gb_disk_name name = {.buffer_id = 298, .generation = 7, .run = 0x0badcafe};

static void build(const struct gb_buffer_rec *buffer, const char *session) {
    struct gb_disk_meta meta = {.session = session, .buffer = buffer};

    err = GB_ERROR_INIT;
    memset(page, 0xaa, sizeof(page));
    gb_assert_ok(gb_disk_header_build(&name, &meta, 0xe3069283, page, &err), err);
}

/* The tensor as any reader of safetensors sees it. */
static struct gb_safetensor tensor_of_page(void) {
    struct gb_safetensors file;
    struct gb_safetensor tensor;
    size_t at;

    gb_assert_ok(gb_safetensors_data_at(page, &at, &err), err);
    ck_assert_uint_eq(at, 4096);
    gb_assert_ok(gb_safetensors_parse((const char *)page + 8, 4088, &file, &err), err);
    ck_assert_uint_eq(file.count, 1);
    ck_assert_str_eq(file.tensors[0].name, "layer.0.weight");
    tensor = file.tensors[0];
    gb_safetensors_done(&file);
    return tensor;
}

static struct gb_buffer_rec record(enum gb_dtype dtype, struct gb_shape shape) {
    struct gb_buffer_rec rec = {.id = 298, .dtype = dtype, .shape = shape, .kind = GB_KIND_MANAGED, .sealed = true};

    strcpy(rec.name.s, "layer.0.weight");
    gb_assert_ok(gb_shape_bytes(&shape, dtype, &rec.bytes, &err), err);
    return rec;
}

static const struct gb_shape shapes[] = {
    {.dims = 0},
    {.dims = 1, .dim = {0}},
    {.dims = 3, .dim = {2, 0, 5}},
    {.dims = 3, .dim = {2, 3, 4}},
    {.dims = 16, .dim = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 9}},
    {.dims = 2, .dim = {1ull << 40, 1}},
};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

START_TEST(each_type_and_shape_is_told) {
    enum gb_dtype dtype = (enum gb_dtype)(_i / (int)SHAPES);
    struct gb_shape shape = shapes[_i % (int)SHAPES];
    struct gb_buffer_rec rec = record(dtype, shape);
    struct gb_disk_header header;
    struct gb_safetensor tensor;

    build(&rec, "training");
    gb_assert_ok(gb_disk_header_parse(page, &header, &err), err);
    ck_assert(header.name.buffer_id == 298 && header.name.generation == 7 && header.name.run == 0x0badcafe);
    ck_assert_str_eq(header.session.s, "training");
    ck_assert_str_eq(header.buffer.s, "layer.0.weight");
    ck_assert_uint_eq(header.bytes, rec.bytes);
    ck_assert_uint_eq(header.crc32c, 0xe3069283);
    ck_assert_int_eq(header.dtype, dtype);
    ck_assert(gb_shape_equal(&header.shape, &shape));
    ck_assert_int_eq(header.kind, GB_KIND_MANAGED);
    ck_assert(header.sealed && !header.labels_omitted);
    ck_assert_str_eq(header.labels, "");

    tensor = tensor_of_page();
    ck_assert(tensor.begin == 0 && tensor.end == rec.bytes);
    if (gb_dtype_safetensors(dtype)) {
        ck_assert_int_eq(tensor.dtype, dtype);
        ck_assert(gb_shape_equal(&tensor.shape, &shape));
    } else {
        ck_assert_int_eq(tensor.dtype, GB_DTYPE_UINT8);
        ck_assert(tensor.shape.dims == 1 && tensor.shape.dim[0] == rec.bytes);
    }
}
END_TEST

/* A JSON object of about n bytes, each quote of which takes two in the header. */
static struct gb_text *labels_of(size_t n) {
    struct gb_text *labels;
    char text[GB_LABELS_MAX];
    size_t at = (size_t)snprintf(text, sizeof(text), "{\"k\":\"v");

    while (at + 8 < n) {
        text[at++] = '\\';
        text[at++] = '"';
    }
    strcpy(text + at, "\"}");
    gb_assert_ok(gb_labels_make(text, &labels, &err), err);
    return labels;
}

START_TEST(labels_are_kept_or_marked_as_omitted) {
    struct gb_buffer_rec rec = record(GB_DTYPE_FLOAT32, shapes[3]);
    struct gb_disk_header header;

    rec.labels = labels_of(600);
    build(&rec, "s");
    gb_assert_ok(gb_disk_header_parse(page, &header, &err), err);
    ck_assert_str_eq(header.labels, gb_text_s(rec.labels));
    ck_assert(!header.labels_omitted);
    gb_text_unref(rec.labels);

    rec.labels = labels_of(GB_LABELS_MAX - 1);
    build(&rec, "s");
    gb_assert_ok(gb_disk_header_parse(page, &header, &err), err);
    ck_assert_str_eq(header.labels, "");
    ck_assert(header.labels_omitted);
    gb_text_unref(rec.labels);
}
END_TEST

START_TEST(the_longest_names_and_shape_fit) {
    struct gb_shape shape = {.dims = GB_DIMS_MAX};
    struct gb_buffer_rec rec = record(GB_DTYPE_FLOAT64, shapes[1]);
    char session[GB_NAME_MAX + 1];
    struct gb_disk_header header;
    unsigned i;

    shape.dim[0] = 0;
    for (i = 1; i < GB_DIMS_MAX; i++)
        shape.dim[i] = 1;
    shape.dim[1] = INT64_MAX / 8;
    rec.shape = shape;
    memset(rec.name.s, 'n', GB_NAME_MAX);
    memset(session, 's', GB_NAME_MAX);
    session[GB_NAME_MAX] = '\0';
    build(&rec, session);
    gb_assert_ok(gb_disk_header_parse(page, &header, &err), err);
    ck_assert_str_eq(header.buffer.s, rec.name.s);
    ck_assert_str_eq(header.session.s, session);
    ck_assert(gb_shape_equal(&header.shape, &shape));
}
END_TEST

START_TEST(any_flipped_bit_is_found) {
    struct gb_buffer_rec rec = record(GB_DTYPE_FLOAT32, shapes[3]);
    struct gb_disk_header header;
    unsigned bit;

    build(&rec, "s");
    for (bit = 0; bit < GB_DISK_DATA_AT * 8; bit++) {
        err = GB_ERROR_INIT;
        page[bit / 8] ^= (unsigned char)(1u << bit % 8);
        ck_assert_msg(gb_disk_header_parse(page, &header, &err) < 0, "bit %u", bit);
        ck_assert_int_eq(err.code, GB_ERR_CONTENT_DAMAGED);
        page[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    err = GB_ERROR_INIT;
    gb_assert_ok(gb_disk_header_parse(page, &header, &err), err);
}
END_TEST

/* Puts the page's checksum right, as a header that was made by others would have it. */
static void sign(void) {
    static const char opening[] = "{\"__metadata__\":{\"gpubuf.header_crc32c\":\"";
    unsigned char *digits = page + 8 + strlen(opening);
    char text[9];

    memcpy(digits, "00000000", 8);
    snprintf(text, sizeof(text), "%08x", gb_crc32c(0, page, sizeof(page)));
    memcpy(digits, text, 8);
}

/* Replaces a word of the header by another of the same length. */
static void replace(const char *from, const char *to) {
    unsigned char *at = memmem(page, sizeof(page), from, strlen(from));

    ck_assert_msg(at != NULL, "the header lacks %s", from);
    ck_assert_uint_eq(strlen(from), strlen(to));
    memcpy(at, to, strlen(to));
    sign();
}

START_TEST(headers_with_a_good_checksum_are_checked_as_well) {
    static const char *const wrong[][2] = {
        {"gpubuf.kind", "gpubuf.kinx"},
        {"\"managed\"", "\"manager\""},
        {"\"gpubuf.bytes\":\"96\"", "\"gpubuf.bytes\":\"97\""},
        {"\"gpubuf.sealed\"", "\"gpubuf.buffer\""},
        {"\"gpubuf.run\":\"0badcafe\"", "\"gpubuf.run\":\"0badcafx\""},
        {"\"gpubuf.id\":\"298\"", "\"gpubuf.id\":\"-98\""},
        {"\"gpubuf.dtype\":\"float32\"", "\"gpubuf.dtype\":\"float33\""},
        {"\"gpubuf.shape\":\"2,3,4\"", "\"gpubuf.shape\":\"2,3,x\""},
        {"\"gpubuf.buffer\":\"layer", "\"gpubuf.buffer\":\"mayer"},
        {"\"data_offsets\":[0,96]", "\"data_offsets\":[1,96]"},
        {"\"gpubuf.generation\":\"7\"", "\"gpubuf.generation\": 77"},
        {"}}   ", "}},  "},
        {"\"gpubuf.labels\":\"{\\\"a\\\":1}\"", "\"gpubuf.crc32c\": \"e3069283\""},
    };
    struct gb_buffer_rec rec = record(GB_DTYPE_FLOAT32, shapes[3]);
    struct gb_disk_header header;

    gb_assert_ok(gb_labels_make("{\"a\":1}", &rec.labels, &err), err);
    build(&rec, "s");
    sign();
    gb_assert_ok(gb_disk_header_parse(page, &header, &err), err);
    replace(wrong[_i][0], wrong[_i][1]);
    gb_assert_fails(gb_disk_header_parse(page, &header, &err), err, GB_ERR_CONTENT_DAMAGED);
    gb_text_unref(rec.labels);
}
END_TEST

START_TEST(a_page_of_zeros_is_no_header) {
    struct gb_disk_header header;

    err = GB_ERROR_INIT;
    memset(page, 0, sizeof(page));
    gb_assert_fails(gb_disk_header_parse(page, &header, &err), err, GB_ERR_CONTENT_DAMAGED);
}
END_TEST

/* --- names -------------------------------------------------------------------------------------------------------- */

START_TEST(names_are_written_and_read) {
    static const struct gb_disk_name names[] = {
        {.buffer_id = 298, .generation = 7, .run = 0x0badcafe},
        {.buffer_id = 1, .generation = 1, .run = 0},
        {.buffer_id = INT64_MAX, .generation = INT64_MAX, .run = UINT32_MAX},
    };
    static const char *const texts[] = {"2a/298.7.0badcafe.safetensors", "01/1.1.00000000.safetensors",
                                        "ff/9223372036854775807.9223372036854775807.ffffffff.safetensors"};
    struct gb_disk_name read;
    char text[GB_DISK_NAME_SIZE];

    gb_disk_name_text(&names[_i], text);
    ck_assert_str_eq(text, texts[_i]);
    ck_assert(gb_disk_name_parse(text + 3, &read));
    ck_assert(read.buffer_id == names[_i].buffer_id && read.generation == names[_i].generation &&
              read.run == names[_i].run);
}
END_TEST

START_TEST(other_names_are_not_ours) {
    static const char *const texts[] = {
        "",
        ".",
        "..",
        "298",
        "298.7",
        "298.7.0badcafe",
        "298.7.0badcafe.safetensor",
        "298.7.0badcafe.safetensors.new",
        "298.7.0BADCAFE.safetensors",
        "298.7.badcafe.safetensors",
        "298.7.00badcafe.safetensors",
        "0298.7.0badcafe.safetensors",
        "-298.7.0badcafe.safetensors",
        "298.-7.0badcafe.safetensors",
        "298..0badcafe.safetensors",
        "9223372036854775808.7.0badcafe.safetensors",
        " 298.7.0badcafe.safetensors",
    };
    struct gb_disk_name read;
    size_t i;

    for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        ck_assert_msg(!gb_disk_name_parse(texts[i], &read), "%s", texts[i]);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("disk header");

    gb_test_add_loop(suite, "types", each_type_and_shape_is_told, 10, GB_DTYPE_COUNT * (int)SHAPES);
    gb_test_add(suite, "labels", labels_are_kept_or_marked_as_omitted, 10);
    gb_test_add(suite, "long", the_longest_names_and_shape_fit, 10);
    gb_test_add(suite, "bits", any_flipped_bit_is_found, 30);
    gb_test_add_loop(suite, "signed", headers_with_a_good_checksum_are_checked_as_well, 10, 13);
    gb_test_add(suite, "zeros", a_page_of_zeros_is_no_header, 10);
    gb_test_add_loop(suite, "names", names_are_written_and_read, 10, 3);
    gb_test_add(suite, "other names", other_names_are_not_ours, 10);
    return gb_test_run(suite);
}
