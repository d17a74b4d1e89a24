/* Strided copies between device memory and pinned memory: exact, in stream order, and without a write beside the
 * box. */
#include <stdio.h>
#include <string.h>

#include "conf.h"

#define PLACE_BYTES (4 * MIB)
#define PINNED_USED (2 * MIB)

static const struct gb_box boxes[] = {
    {.width = 1, .rows = 1, .planes = 1},
    {.width = 4099, .rows = 1, .planes = 1},
    {.width = 1, .rows = 1000, .planes = 1, .pitch = 3, .packed_pitch = 1},
    {.width = 64, .rows = 4096, .planes = 1, .pitch = 512, .packed_pitch = 64},
    {.width = 4096, .rows = 128, .planes = 1, .pitch = 16384, .packed_pitch = 4096},
    {.width = 5, .rows = 7, .planes = 1, .pitch = 5, .packed_pitch = 9},
    {.width = 4, .rows = 1, .planes = 500, .plane = 4000, .packed_plane = 4},
    {.width = 2, .rows = 30, .planes = 40, .pitch = 6, .plane = 300, .packed_pitch = 2, .packed_plane = 60},
    {.width = 16, .rows = 3, .planes = 5, .pitch = 32, .plane = 96, .packed_pitch = 16, .packed_plane = 48},
    {.width = 8, .rows = 2, .planes = 60, .pitch = 1000, .plane = 60000, .packed_pitch = 8, .packed_plane = 16},
    {.width = 1024,
     .rows = 64,
     .planes = 16,
     .pitch = 3072,
     .plane = 3072 * 65,
     .packed_pitch = 1024,
     .packed_plane = 65536},
};

#define BOXES (sizeof(boxes) / sizeof(boxes[0]))

static void queue(const struct gb_location *place, uint64_t offset, void *pinned, const struct gb_box *box,
                  enum gb_copy_direction direction, struct gb_stream *stream) {
    const struct gb_location at = {.kind = place->kind, .device = place->device, .ptr = (char *)place->ptr + offset};

    gb_assert_ok(gb_mem_box(conf.be, &at, pinned, box, direction, stream, &conf.err), conf.err);
}

/* Calls visit with the two offsets of every byte of a box. */
static void each(const struct gb_box *b, void (*visit)(uint64_t memory, uint64_t packed, void *arg), void *arg) {
    uint64_t plane;
    uint64_t row;
    uint64_t i;

    for (plane = 0; plane < b->planes; plane++) {
        for (row = 0; row < b->rows; row++) {
            for (i = 0; i < b->width; i++)
                visit(plane * b->plane + row * b->pitch + i, plane * b->packed_plane + row * b->packed_pitch + i, arg);
        }
    }
}

struct image {
    unsigned char bytes[PLACE_BYTES];
    uint64_t offset;
    unsigned seed;
};

static struct image image; /* the expected bytes of one side or the other */

static void expect_packed(uint64_t memory, uint64_t packed, void *arg) {
    struct image *m = arg;

    m->bytes[packed] = conf_byte(m->seed, m->offset + memory);
}

static void expect_unpacked(uint64_t memory, uint64_t packed, void *arg) {
    struct image *m = arg;

    m->bytes[m->offset + memory] = conf_byte(m->seed, packed);
}

static void compare(const unsigned char *got, uint64_t bytes, int kind, size_t box) {
    uint64_t i;

    for (i = 0; i < bytes; i++) {
        if (got[i] != image.bytes[i])
            ck_abort_msg("%s, box %zu: byte %llu is %u, not %u", gb_kind_name((enum gb_kind)kind), box,
                         (unsigned long long)i, got[i], image.bytes[i]);
    }
}

static void pack(const struct gb_location *place, size_t i) {
    conf_place_write(place, (unsigned)i, PLACE_BYTES, conf.s1);
    memset(conf.pinned, 0xcc, PINNED_USED);
    memset(image.bytes, 0xcc, PINNED_USED);
    image.offset = i * 13;
    image.seed = (unsigned)i;
    each(&boxes[i], expect_packed, &image);
    queue(place, image.offset, conf.pinned, &boxes[i], GB_COPY_FROM_DEVICE, conf.s1);
    conf_sync(conf.s1);
    compare(conf.pinned, PINNED_USED, place->kind, i);
}

static void unpack(const struct gb_location *place, size_t i) {
    uint64_t k;

    conf_place_fill(place, 0xcc, 1, PLACE_BYTES, conf.s1);
    conf_sync(conf.s1);
    memset(image.bytes, 0xcc, PLACE_BYTES);
    image.offset = i * 7;
    image.seed = (unsigned)i + 50;
    each(&boxes[i], expect_unpacked, &image);
    for (k = 0; k < PINNED_USED; k++)
        conf.pinned[k] = conf_byte(image.seed, k);
    queue(place, image.offset, conf.pinned, &boxes[i], GB_COPY_TO_DEVICE, conf.s1);
    conf_sync(conf.s1);
    conf_place_fetch(place, PLACE_BYTES, conf.s1);
    compare(conf.pinned, PLACE_BYTES, place->kind, i);
}

START_TEST(boxes_of_all_kinds_are_exact) {
    int kind;
    size_t i;

    for (kind = GB_KIND_DEVICE; kind < GB_KIND_COUNT; kind++) {
        struct gb_location place;

        if (!gb_kind_of_device((enum gb_kind)kind) || !conf_offered(kind))
            continue;
        place = conf_place((enum gb_kind)kind, PLACE_BYTES);
        for (i = 0; i < BOXES; i++) {
            pack(&place, i);
            unpack(&place, i);
        }
        conf_place_free(&place, PLACE_BYTES);
    }
}
END_TEST

START_TEST(boxes_keep_the_order_of_the_stream) {
    const struct gb_box box = {.width = 64, .rows = 8192, .planes = 1, .pitch = 128, .packed_pitch = 64};
    struct gb_location place = conf_place(GB_KIND_DEVICE, PLACE_BYTES);
    struct gb_event *event;
    struct conf_gate gate;
    uint64_t i;

    memset(conf.pinned, 0, MIB);
    conf_gate_hold(&gate, conf.s1);
    conf_place_fill(&place, 0x11, 1, PLACE_BYTES, conf.s1);
    queue(&place, 0, conf.pinned, &box, GB_COPY_FROM_DEVICE, conf.s1);
    conf_place_fill(&place, 0x22, 1, PLACE_BYTES, conf.s1);
    queue(&place, 0, conf.pinned + MIB, &box, GB_COPY_FROM_DEVICE, conf.s1);
    event = conf_event_on(conf.s1);
    ck_assert(!conf_done(event)); /* the calls did not wait */
    conf_gate_let_go(&gate);
    conf_wait(event);
    for (i = 0; i < 64 * 8192; i++) {
        ck_assert_uint_eq(conf.pinned[i], 0x11);
        ck_assert_uint_eq(conf.pinned[MIB + i], 0x22);
    }
    gb_event_destroy(conf.be, event);
    conf_place_free(&place, PLACE_BYTES);
}
END_TEST

static void refused(const struct gb_location *place, const struct gb_box *box, enum gb_copy_direction direction) {
    gb_assert_fails(gb_mem_box(conf.be, place, conf.pinned, box, direction, conf.s1, &conf.err), conf.err,
                    GB_ERR_INVALID_ARGUMENT);
}

START_TEST(what_is_no_box_is_refused) {
    struct gb_location place = conf_place(GB_KIND_DEVICE, PLACE_BYTES);
    const struct gb_location pinned = {.kind = GB_KIND_PINNED, .ptr = conf.pinned};
    const struct gb_location odd = {.kind = GB_KIND_COUNT, .ptr = place.ptr};
    const struct gb_box good = {
        .width = 4, .rows = 2, .planes = 2, .pitch = 8, .plane = 16, .packed_pitch = 4, .packed_plane = 8};
    struct gb_box box = good;

    refused(&pinned, &good, GB_COPY_FROM_DEVICE);
    refused(&odd, &good, GB_COPY_FROM_DEVICE);
    refused(&place, &good, GB_COPY_ON_DEVICE);
    box.pitch = 3;
    refused(&place, &box, GB_COPY_FROM_DEVICE);
    box = good;
    box.plane = 17;
    refused(&place, &box, GB_COPY_FROM_DEVICE);
    box = good;
    box.packed_plane = 4;
    refused(&place, &box, GB_COPY_TO_DEVICE);
    box = good;
    box.rows = UINT64_MAX;
    refused(&place, &box, GB_COPY_TO_DEVICE);
    box = good;
    box.rows = 0;
    queue(&place, 0, conf.pinned, &box, GB_COPY_FROM_DEVICE, conf.s1); /* nothing */
    queue(&place, 0, conf.pinned, &good, GB_COPY_FROM_DEVICE, conf.s1);
    conf_place_free(&place, PLACE_BYTES);
}
END_TEST

START_TEST(another_devices_stream_is_refused) {
    const struct gb_box box = {.width = 4, .rows = 2, .planes = 1, .pitch = 8, .packed_pitch = 4};
    struct gb_stream *other;
    struct gb_location place;

    if (gb_backend_device_count(conf.be) < 2) {
        printf("%s: boxes on another device's stream: skipped, there is one device only\n", conf.spec);
        return;
    }
    place = conf_place(GB_KIND_DEVICE, PLACE_BYTES);
    gb_assert_ok(gb_stream_create(conf.be, 1, &other, &conf.err), conf.err);
    gb_assert_fails(gb_mem_box(conf.be, &place, conf.pinned, &box, GB_COPY_FROM_DEVICE, other, &conf.err), conf.err,
                    GB_ERR_INVALID_ARGUMENT);
    gb_stream_destroy(conf.be, other);
    conf_place_free(&place, PLACE_BYTES);
}
END_TEST

/* A row pitch beyond the limit of CUDA's copies. */
START_TEST(rows_far_apart_are_exact) {
    const uint64_t step = (1ull << 31) + 4096;
    const struct gb_box box = {.width = 100, .rows = 3, .planes = 1, .pitch = step, .packed_pitch = 100};
    const uint64_t bytes = 2 * step + MIB;
    struct gb_location place;
    uint64_t i;

    if (conf.device.free_bytes < 2 * bytes) {
        printf("%s: rows far apart: skipped, the device has not %llu bytes free\n", conf.spec,
               (unsigned long long)(2 * bytes));
        return;
    }
    place = conf_place(GB_KIND_DEVICE, bytes);
    for (i = 0; i < 3; i++) {
        struct gb_location row = {.kind = place.kind, .device = place.device, .ptr = (char *)place.ptr + i * step};

        conf_place_write(&row, (unsigned)i, 100, conf.s1);
    }
    queue(&place, 0, conf.pinned, &box, GB_COPY_FROM_DEVICE, conf.s1);
    conf_sync(conf.s1);
    for (i = 0; i < 300; i++)
        ck_assert_uint_eq(conf.pinned[i], conf_byte((unsigned)(i / 100), i % 100));
    conf_place_free(&place, bytes);
}
END_TEST

void conf_add_box(Suite *suite) {
    conf_add(suite, "boxes", boxes_of_all_kinds_are_exact);
    conf_add(suite, "order of boxes", boxes_keep_the_order_of_the_stream);
    conf_add(suite, "wrong boxes", what_is_no_box_is_refused);
    conf_add(suite, "boxes on another stream", another_devices_stream_is_refused);
    conf_add(suite, "far rows", rows_far_apart_are_exact);
}
