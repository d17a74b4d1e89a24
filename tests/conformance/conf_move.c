/* Copies and fills between places of any kind: exact, in stream order, and without blocking the caller. */
#include <string.h>

#include "conf.h"

static enum gb_copy_way way_of(int from, int to) {
    if (gb_kind_of_device((enum gb_kind)from))
        return gb_kind_of_device((enum gb_kind)to) ? GB_WAY_DEVICE : GB_WAY_FROM_DEVICE;
    return gb_kind_of_device((enum gb_kind)to) ? GB_WAY_TO_DEVICE : GB_WAY_HOST;
}

static struct gb_location at(const struct gb_location *place, uint64_t offset) {
    return (struct gb_location){.kind = place->kind, .device = place->device, .ptr = (char *)place->ptr + offset};
}

/* Both places have 4 MiB. */
static void move_between(const struct gb_location *src, const struct gb_location *dst) {
    static const uint64_t sizes[] = {1, 3, 4097, MIB - 1, 3 * MIB + 5};
    enum gb_copy_way way;
    size_t i;

    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct gb_location from = at(src, i * 13 + 1);
        struct gb_location to = at(dst, i * 7 + 64);
        struct gb_location behind = at(&to, sizes[i]);

        way = GB_WAY_COUNT;
        conf_place_fill(dst, 0xcc, 1, 4 * MIB, conf.s1);
        conf_place_write(&from, (unsigned)i, sizes[i], conf.s1);
        gb_assert_ok(gb_mem_move(conf.be, &to, &from, sizes[i], conf.s1, &way, &conf.err), conf.err);
        ck_assert_str_eq(gb_copy_way_name(way), gb_copy_way_name(way_of(src->kind, dst->kind)));
        conf_place_expect(&to, (unsigned)i, sizes[i], conf.s1);
        conf_place_expect_byte(dst, 0xcc, i * 7 + 64, conf.s1);
        conf_place_expect_byte(&behind, 0xcc, 512, conf.s1);
    }
    gb_assert_ok(gb_mem_move(conf.be, dst, src, 0, conf.s1, &way, &conf.err), conf.err);
    ck_assert_int_eq(way, GB_WAY_NONE);
}

START_TEST(moves_between_all_kinds_are_exact) {
    int from;
    int to;

    for (from = GB_KIND_DEVICE; from < GB_KIND_COUNT; from++) {
        for (to = GB_KIND_DEVICE; to < GB_KIND_COUNT; to++) {
            struct gb_location src;
            struct gb_location dst;

            if (!conf_offered(from) || !conf_offered(to))
                continue;
            src = conf_place((enum gb_kind)from, 4 * MIB);
            dst = conf_place((enum gb_kind)to, 4 * MIB);
            move_between(&src, &dst);
            conf_place_free(&src, 4 * MIB);
            conf_place_free(&dst, 4 * MIB);
        }
    }
}
END_TEST

/* Larger than any bounce buffer. */
START_TEST(long_pageable_moves_are_exact) {
    const uint64_t bytes = 80 * MIB + 11;
    struct gb_location device = conf_place(GB_KIND_DEVICE, bytes);
    struct gb_location here = conf_place(GB_KIND_PAGEABLE, bytes);
    struct gb_location there = conf_place(GB_KIND_PAGEABLE, bytes);
    struct gb_location last = conf_place(GB_KIND_PAGEABLE, bytes);
    unsigned char *p = here.ptr;
    uint64_t i;

    for (i = 0; i < bytes; i++)
        p[i] = conf_byte(3, i);
    conf_move(&device, &here, bytes, conf.s1);
    conf_move(&there, &device, bytes, conf.s1);
    conf_move(&last, &there, bytes, conf.s1);
    conf_wait_stream(conf.s1);
    ck_assert(memcmp(here.ptr, there.ptr, bytes) == 0);
    ck_assert(memcmp(here.ptr, last.ptr, bytes) == 0);
    conf_place_free(&device, bytes);
    conf_place_free(&here, bytes);
    conf_place_free(&there, bytes);
    conf_place_free(&last, bytes);
}
END_TEST

/* If the call waited for the blocked stream, this test would hang. */
START_TEST(moves_never_wait_for_the_stream) {
    const uint64_t bytes = 3 * MIB + 1;
    struct gb_location places[GB_KIND_COUNT];
    struct gb_location first = conf_place(GB_KIND_PAGEABLE, bytes);
    struct gb_location last = conf_place(GB_KIND_PAGEABLE, bytes);
    const struct gb_location *before = &first;
    struct conf_gate gate;
    struct gb_event *event;
    int kind;

    for (kind = 0; kind < GB_KIND_COUNT; kind++) {
        if (conf_offered(kind))
            places[kind] = conf_place((enum gb_kind)kind, bytes);
    }
    memset(last.ptr, 0, bytes);
    conf_gate_hold(&gate, conf.s1);
    memset(first.ptr, 0x17, bytes);
    for (kind = 0; kind < GB_KIND_COUNT; kind++) {
        if (!conf_offered(kind))
            continue;
        conf_place_fill(&places[kind], 1, 1, bytes, conf.s1);
        conf_move(&places[kind], before, bytes, conf.s1);
        before = &places[kind];
    }
    conf_move(&last, before, bytes, conf.s1);
    event = conf_event_on(conf.s1);
    ck_assert(!conf_done(event));
    ck_assert_int_eq(*(unsigned char *)last.ptr, 0);
    conf_gate_let_go(&gate);
    conf_wait(event);
    conf_place_expect_byte(&last, 0x17, bytes, conf.s1);
    for (kind = 0; kind < GB_KIND_COUNT; kind++) {
        if (conf_offered(kind))
            conf_place_free(&places[kind], bytes);
    }
    conf_place_free(&first, bytes);
    conf_place_free(&last, bytes);
    gb_event_destroy(conf.be, event);
}
END_TEST

/* Each round's source is overwritten in stream order right behind the copy that reads it. */
START_TEST(moves_keep_their_place_in_the_stream) {
    enum { ROUNDS = 40 };
    const uint64_t bytes = 70001;
    struct gb_location device = conf_place(GB_KIND_DEVICE, bytes);
    struct gb_location here = conf_place(GB_KIND_PAGEABLE, bytes);
    struct gb_location results = conf_place(GB_KIND_PAGEABLE, ROUNDS * bytes);
    struct conf_gate gate;
    int i;

    conf_gate_hold(&gate, conf.s1);
    for (i = 0; i < ROUNDS; i++) {
        struct gb_location result = at(&results, (uint64_t)i * bytes);

        conf_place_fill(&here, (uint64_t)i, 1, bytes, conf.s1);
        conf_move(&device, &here, bytes, conf.s1);
        conf_place_fill(&here, 0xee, 1, bytes, conf.s1);
        conf_move(&result, &device, bytes, conf.s1);
    }
    conf_gate_let_go(&gate);
    conf_wait_stream(conf.s1);
    for (i = 0; i < ROUNDS; i++) {
        struct gb_location result = at(&results, (uint64_t)i * bytes);

        conf_place_expect_byte(&result, (unsigned char)i, bytes, conf.s1);
    }
    conf_place_free(&device, bytes);
    conf_place_free(&here, bytes);
    conf_place_free(&results, ROUNDS * bytes);
}
END_TEST

/* A stream is destroyed right after its pageable copies: the copies complete first, and leave no resources. */
START_TEST(a_stream_goes_with_its_pageable_copies_done) {
    const uint64_t bytes = 5 * MIB;
    struct gb_location device = conf_place(GB_KIND_DEVICE, bytes);
    struct gb_location here = conf_place(GB_KIND_PAGEABLE, bytes);
    struct gb_location back = conf_place(GB_KIND_PAGEABLE, bytes);
    int i;

    for (i = 0; i < 10; i++) {
        struct gb_stream *stream = NULL;

        gb_assert_ok(gb_stream_create(conf.be, 0, &stream, &conf.err), conf.err);
        memset(here.ptr, i, bytes);
        conf_move(&device, &here, bytes, stream);
        conf_move(&back, &device, bytes, stream);
        gb_stream_destroy(conf.be, stream);
        ck_assert(memcmp(here.ptr, back.ptr, bytes) == 0);
    }
    conf_place_free(&device, bytes);
    conf_place_free(&here, bytes);
    conf_place_free(&back, bytes);
}
END_TEST

/* --- fills -------------------------------------------------------------------------------------------------------- */

static void expect_pattern(const struct gb_location *place, uint64_t pattern, unsigned width, uint64_t count) {
    uint64_t i;

    conf_place_fetch(place, MIB, conf.s1);
    for (i = 0; i < MIB; i++) {
        bool inside = i >= width && i < width + count * width;
        unsigned char want = inside ? (unsigned char)(pattern >> (8 * (i % width))) : 0;

        if (conf.pinned[i] != want)
            ck_abort_msg("kind %s, width %u, count %llu: byte %llu is %u, not %u", gb_kind_name(place->kind), width,
                         (unsigned long long)count, (unsigned long long)i, conf.pinned[i], want);
    }
}

START_TEST(fills_of_every_width_in_every_kind) {
    static const uint64_t counts[] = {1, 2, 3, 5, 4096, 100001};
    static const unsigned widths[] = {1, 2, 4, 8};
    const uint64_t pattern = 0x8899aabb44332211ull;
    int kind;
    size_t w;
    size_t c;

    for (kind = GB_KIND_DEVICE; kind < GB_KIND_COUNT; kind++) {
        struct gb_location place;

        if (!conf_offered(kind))
            continue;
        place = conf_place((enum gb_kind)kind, MIB);
        for (w = 0; w < 4; w++) {
            for (c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
                struct gb_location from = at(&place, widths[w]);

                conf_place_fill(&place, 0, 8, MIB / 8, conf.s1);
                conf_place_fill(&from, pattern, widths[w], counts[c], conf.s1);
                expect_pattern(&place, pattern, widths[w], counts[c]);
            }
        }
        conf_place_fill(&place, 1, 8, 0, conf.s1);
        conf_place_free(&place, MIB);
    }
}
END_TEST

START_TEST(wide_fills_of_any_size_are_exact) {
    static const uint64_t counts[] = {1, 511, 65535, 65536, 65537, 1000003, 4 * MIB};
    const uint64_t pattern = 0x0102030405060708ull;
    struct gb_location place = conf_place(GB_KIND_DEVICE, 32 * MIB + 8);
    uint64_t i;
    size_t c;

    for (c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        struct gb_location from = at(&place, 8);
        struct gb_location tail = at(&place, counts[c] * 8);

        conf_place_fill(&place, 0, 8, 4 * MIB + 1, conf.s1);
        conf_place_fill(&from, pattern, 8, counts[c], conf.s1);
        conf_place_fetch(&tail, 8, conf.s1); /* the last one */
        for (i = 0; i < 8; i++)
            ck_assert_int_eq(conf.pinned[i], (int)(8 - i));
        if (counts[c] < 4 * MIB) {
            tail = at(&place, counts[c] * 8 + 8);
            conf_place_fetch(&tail, 8, conf.s1); /* work behind it */
            for (i = 0; i < 8; i++)
                ck_assert_int_eq(conf.pinned[i], 0);
        }
    }
    conf_place_free(&place, 32 * MIB + 8);
}
END_TEST

START_TEST(what_cannot_be_filled_is_refused) {
    struct gb_location place = conf_place(GB_KIND_DEVICE, 4096);
    struct gb_location odd = at(&place, 4);

    gb_assert_fails(gb_location_fill(conf.be, &place, 0, 3, 1, conf.s1, &conf.err), conf.err, GB_ERR_INVALID_ARGUMENT);
    gb_assert_fails(gb_location_fill(conf.be, &place, 0, 0, 1, conf.s1, &conf.err), conf.err, GB_ERR_INVALID_ARGUMENT);
    gb_assert_fails(gb_location_fill(conf.be, &place, 0, 16, 1, conf.s1, &conf.err), conf.err, GB_ERR_INVALID_ARGUMENT);
    gb_assert_fails(gb_location_fill(conf.be, &odd, 0, 8, 1, conf.s1, &conf.err), conf.err, GB_ERR_INVALID_ARGUMENT);
    gb_assert_fails(gb_location_fill(conf.be, &place, 0, 8, 1ull << 61, conf.s1, &conf.err), conf.err,
                    GB_ERR_INVALID_ARGUMENT);
    conf_place_free(&place, 4096);
}
END_TEST

void conf_add_move(Suite *suite) {
    conf_add(suite, "moves between kinds", moves_between_all_kinds_are_exact);
    conf_add(suite, "long pageable moves", long_pageable_moves_are_exact);
    conf_add(suite, "moves do not wait", moves_never_wait_for_the_stream);
    conf_add(suite, "moves in order", moves_keep_their_place_in_the_stream);
    conf_add(suite, "moves and destroyed streams", a_stream_goes_with_its_pageable_copies_done);
    conf_add(suite, "fills of every width", fills_of_every_width_in_every_kind);
    conf_add(suite, "wide fills", wide_fills_of_any_size_are_exact);
    conf_add(suite, "fills refused", what_cannot_be_filled_is_refused);
}
