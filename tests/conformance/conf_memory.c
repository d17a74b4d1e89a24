/* Devices, pinned memory, copies and fills. */
#include <string.h>

#include "conf.h"

START_TEST(devices_describe_themselves) {
    int devices = gb_backend_device_count(conf.be);
    struct gb_device_rec rec;
    struct gb_device_rec again;
    int i;

    ck_assert_int_ge(devices, 1);
    ck_assert_str_ne(gb_backend_name(conf.be), "");
    ck_assert_str_ne(conf.note, "");
    ck_assert(!gb_backend_dead(conf.be, NULL));
    for (i = 0; i < devices; i++) {
        gb_assert_ok(gb_backend_device_get(conf.be, i, &rec, &conf.err), conf.err);
        gb_assert_ok(gb_backend_device_get(conf.be, i, &again, &conf.err), conf.err);
        ck_assert_int_eq(rec.index, i);
        ck_assert_str_ne(rec.name, "");
        ck_assert_str_eq(rec.uuid, again.uuid);
        ck_assert(strncmp(rec.uuid, "GPU-", 4) == 0 || strncmp(rec.uuid, "HOST-", 5) == 0);
        ck_assert(i == 0 || strcmp(rec.uuid, conf.device.uuid) != 0);
        ck_assert_uint_gt(rec.total_bytes, 0);
        ck_assert_uint_le(rec.free_bytes, rec.total_bytes);
        ck_assert_str_eq(rec.kind_missing[GB_KIND_DEVICE], "");
    }
    ck_assert_int_eq(gb_backend_device_get(conf.be, devices, &rec, &conf.err), -1);
    ck_assert_str_ne(conf.err.detail, "");
}
END_TEST

START_TEST(every_device_works) {
    int devices = gb_backend_device_count(conf.be);
    struct gb_stream *stream;
    struct gb_pool *pool;
    unsigned char *p;
    int i;

    for (i = 0; i < devices; i++) {
        gb_assert_ok(gb_stream_create(conf.be, i, &stream, &conf.err), conf.err);
        gb_assert_ok(gb_pool_default(conf.be, i, &pool, &conf.err), conf.err);
        p = conf_alloc(pool, stream, MIB);
        conf_write(p, (unsigned)i, MIB, stream);
        conf_expect(p, (unsigned)i, MIB, stream);
        conf_free(p, stream);
        gb_stream_destroy(conf.be, stream);
    }
}
END_TEST

START_TEST(pinned_memory_is_page_aligned) {
    static const size_t sizes[] = {1, 4096, 4097, 1048576, 33554432};
    unsigned char *p[5];
    size_t i;

    for (i = 0; i < 5; i++) {
        gb_assert_ok(gb_pin_alloc(conf.be, sizes[i], (void **)&p[i], &conf.err), conf.err);
        ck_assert_uint_eq((uintptr_t)p[i] % 4096, 0);
        memset(p[i], 3, sizes[i]);
    }
    for (i = 0; i < 5; i++)
        gb_pin_free(conf.be, p[i]);
}
END_TEST

START_TEST(copies_of_all_sizes_and_offsets_are_exact) {
    static const uint64_t sizes[] = {1, 2, 3, 255, 256, 257, 4095, 4096, 16384, 16385, 65537, 1048575, 3145729};
    unsigned char *p = conf_alloc(conf.pool, conf.s1, 8 * MIB);
    size_t i;

    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint64_t offset = i * 7 + 1;

        gb_assert_ok(gb_mem_fill(conf.be, p, 0xcc, 1, 8 * MIB, conf.s1, &conf.err), conf.err);
        conf_write(p + offset, (unsigned)i, sizes[i], conf.s1);
        conf_expect(p + offset, (unsigned)i, sizes[i], conf.s1);
        conf_expect_byte(p, 0xcc, offset, conf.s1);
        conf_expect_byte(p + offset + sizes[i], 0xcc, 1024, conf.s1);
    }
    conf_free(p, conf.s1);
}
END_TEST

START_TEST(large_copies_are_exact) {
    unsigned char *p = conf_alloc(conf.pool, conf.s1, 64 * MIB);
    unsigned char *q = conf_alloc(conf.pool, conf.s1, 64 * MIB);

    conf_write(p, 11, 64 * MIB, conf.s1);
    gb_assert_ok(gb_mem_fill(conf.be, q, 0, 4, 16 * MIB, conf.s1, &conf.err), conf.err);
    gb_assert_ok(gb_mem_copy(conf.be, q, p, 64 * MIB, GB_COPY_ON_DEVICE, conf.s1, &conf.err), conf.err);
    gb_assert_ok(gb_mem_fill(conf.be, p, 0xff, 1, 64 * MIB, conf.s1, &conf.err), conf.err);
    conf_expect(q, 11, 64 * MIB, conf.s1);
    conf_expect_byte(p, 0xff, 64 * MIB, conf.s1);
    conf_free(p, conf.s1);
    conf_free(q, conf.s1);
}
END_TEST

START_TEST(one_large_copy_each_way_is_exact) {
    unsigned char *p = conf_alloc(conf.pool, conf.s1, 64 * MIB);
    unsigned char *host = NULL;
    uint64_t i;

    gb_assert_ok(gb_pin_alloc(conf.be, 64 * MIB, (void **)&host, &conf.err), conf.err);
    for (i = 0; i < 64 * MIB; i++)
        host[i] = conf_byte(5, i);
    gb_assert_ok(gb_mem_copy(conf.be, p, host, 64 * MIB, GB_COPY_TO_DEVICE, conf.s1, &conf.err), conf.err);
    conf_sync(conf.s1);
    memset(host, 0, 64 * MIB);
    gb_assert_ok(gb_mem_copy(conf.be, host, p, 64 * MIB, GB_COPY_FROM_DEVICE, conf.s1, &conf.err), conf.err);
    conf_sync(conf.s1);
    for (i = 0; i < 64 * MIB; i++) {
        if (host[i] != conf_byte(5, i))
            ck_abort_msg("byte %llu differs", (unsigned long long)i);
    }
    conf_free(p, conf.s1);
    conf_sync(conf.s1);
    gb_pin_free(conf.be, host);
}
END_TEST

START_TEST(nothing_is_copied_or_filled_for_zero) {
    unsigned char *p = conf_alloc(conf.pool, conf.s1, 4096);

    conf_write(p, 2, 4096, conf.s1);
    gb_assert_ok(gb_mem_copy(conf.be, p, conf.pinned, 0, GB_COPY_TO_DEVICE, conf.s1, &conf.err), conf.err);
    gb_assert_ok(gb_mem_copy(conf.be, conf.pinned, p, 0, GB_COPY_FROM_DEVICE, conf.s1, &conf.err), conf.err);
    gb_assert_ok(gb_mem_copy(conf.be, p, p, 0, GB_COPY_ON_DEVICE, conf.s1, &conf.err), conf.err);
    gb_assert_ok(gb_mem_fill(conf.be, p, 1, 1, 0, conf.s1, &conf.err), conf.err);
    conf_expect(p, 2, 4096, conf.s1);
    conf_free(p, conf.s1);
}
END_TEST

START_TEST(fills_repeat_the_pattern_in_its_width) {
    static const unsigned widths[] = {1, 2, 4};
    const uint64_t pattern = 0x1122334455667788ull;
    unsigned char *p = conf_alloc(conf.pool, conf.s1, MIB);
    const uint64_t count = 100001;
    uint64_t i;
    size_t w;

    for (w = 0; w < 3; w++) {
        unsigned width = widths[w];

        gb_assert_ok(gb_mem_fill(conf.be, p, 0, 1, MIB, conf.s1, &conf.err), conf.err);
        gb_assert_ok(gb_mem_fill(conf.be, p + width, pattern, width, count, conf.s1, &conf.err), conf.err);
        gb_assert_ok(gb_mem_copy(conf.be, conf.pinned, p, MIB, GB_COPY_FROM_DEVICE, conf.s1, &conf.err), conf.err);
        conf_sync(conf.s1);
        for (i = 0; i < MIB; i++) {
            bool inside = i >= width && i < width + count * width;
            unsigned char want = inside ? (unsigned char)(pattern >> (8 * (i % width))) : 0;

            if (conf.pinned[i] != want)
                ck_abort_msg("width %u: byte %llu is %u, not %u", width, (unsigned long long)i, conf.pinned[i], want);
        }
    }
    conf_free(p, conf.s1);
}
END_TEST

/* Small copies and fills give the same result on an idle stream and behind other work. */
START_TEST(small_work_keeps_its_place) {
    unsigned char *p = conf_alloc(conf.pool, conf.s1, 64 * MIB);
    int i;

    for (i = 0; i < 20; i++) {
        gb_assert_ok(gb_mem_fill(conf.be, p, 1, 1, 64 * MIB, conf.s1, &conf.err), conf.err);
        gb_assert_ok(gb_mem_fill(conf.be, p + 63 * MIB, 2, 1, 16, conf.s1, &conf.err), conf.err);
        gb_assert_ok(gb_mem_copy(conf.be, conf.pinned, p + 63 * MIB, 32, GB_COPY_FROM_DEVICE, conf.s1, &conf.err),
                     conf.err);
        conf_sync(conf.s1);
        ck_assert_int_eq(conf.pinned[0], 2);
        ck_assert_int_eq(conf.pinned[15], 2);
        ck_assert_int_eq(conf.pinned[16], 1);
    }
    conf_free(p, conf.s1);
}
END_TEST

START_TEST(the_cpu_reaches_device_memory_where_it_says_so) {
    unsigned char *p;

    if (!conf.device.cpu_access)
        return;
    p = conf_alloc(conf.pool, conf.s1, 8 * MIB);
    conf_wait_stream(conf.s1);
    memset(p, 0x42, 8 * MIB);
    conf_expect_byte(p, 0x42, 8 * MIB, conf.s1);
    gb_assert_ok(gb_mem_fill(conf.be, p, 0x43, 1, 8 * MIB, conf.s1, &conf.err), conf.err);
    conf_wait_stream(conf.s1);
    ck_assert_int_eq(p[8 * MIB - 1], 0x43);
    conf_free(p, conf.s1);
}
END_TEST

START_TEST(what_cannot_be_is_refused) {
    void *p = NULL;

    gb_assert_fails(gb_mem_fill(conf.be, conf.pinned, 0, 3, 1, conf.s1, &conf.err), conf.err, GB_ERR_INVALID_ARGUMENT);
    gb_assert_fails(gb_mem_alloc(conf.be, conf.pool, conf.s1, UINT64_MAX, &p, &conf.err), conf.err,
                    GB_ERR_OUT_OF_MEMORY);
    gb_assert_fails(gb_mem_alloc(conf.be, conf.pool, conf.s1, 1ull << 50, &p, &conf.err), conf.err,
                    GB_ERR_OUT_OF_MEMORY);
    ck_assert_ptr_null(p);
    ck_assert(!gb_backend_dead(conf.be, NULL));
    p = conf_alloc(conf.pool, conf.s1, 1);
    conf_free(p, conf.s1);
}
END_TEST

void conf_add_device(Suite *suite) {
    conf_add(suite, "devices describe themselves", devices_describe_themselves);
    conf_add(suite, "every device works", every_device_works);
    conf_add(suite, "pinned memory", pinned_memory_is_page_aligned);
}

void conf_add_memory(Suite *suite) {
    conf_add(suite, "copies of all sizes", copies_of_all_sizes_and_offsets_are_exact);
    conf_add(suite, "large copies", large_copies_are_exact);
    conf_add(suite, "one large copy", one_large_copy_each_way_is_exact);
    conf_add(suite, "zero bytes", nothing_is_copied_or_filled_for_zero);
    conf_add(suite, "fills", fills_repeat_the_pattern_in_its_width);
    conf_add(suite, "small work keeps its place", small_work_keeps_its_place);
    conf_add(suite, "CPU access", the_cpu_reaches_device_memory_where_it_says_so);
    conf_add(suite, "refusals", what_cannot_be_is_refused);
}
