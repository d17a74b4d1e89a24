/* Places of any kind, for the tests. */
#include <string.h>

#include "conf.h"

struct gb_location conf_place(enum gb_kind kind, uint64_t bytes) {
    struct gb_location place = {.kind = kind, .device = 0};

    if (kind == GB_KIND_DEVICE) {
        place.ptr = conf_alloc(conf.pool, conf.s1, bytes);
        conf_sync(conf.s1); /* for use on any stream */
    } else {
        gb_assert_ok(gb_mem_kind_alloc(conf.be, 0, kind, bytes, &place.ptr, &conf.err), conf.err);
    }
    ck_assert_ptr_nonnull(place.ptr);
    return place;
}

void conf_place_free(const struct gb_location *place, uint64_t bytes) {
    conf_sync(conf.s1);
    conf_sync(conf.s2);
    if (place->kind == GB_KIND_DEVICE)
        conf_free(place->ptr, conf.s1);
    else
        gb_assert_ok(gb_mem_kind_free(conf.be, place, bytes, &conf.err), conf.err);
}

void conf_move(const struct gb_location *dst, const struct gb_location *src, uint64_t bytes, struct gb_stream *stream) {
    enum gb_copy_way way = GB_WAY_COUNT;

    gb_assert_ok(gb_mem_move(conf.be, dst, src, bytes, stream, &way, &conf.err), conf.err);
    ck_assert_int_ne(way, GB_WAY_COUNT);
}

void conf_place_fill(const struct gb_location *place, uint64_t pattern, unsigned width, uint64_t count,
                     struct gb_stream *stream) {
    gb_assert_ok(gb_location_fill(conf.be, place, pattern, width, count, stream, &conf.err), conf.err);
}

static struct gb_location slot(void) {
    return (struct gb_location){.kind = GB_KIND_PINNED, .device = 0, .ptr = conf.pinned};
}

static struct gb_location piece(const struct gb_location *place, uint64_t offset) {
    return (struct gb_location){.kind = place->kind, .device = place->device, .ptr = (char *)place->ptr + offset};
}

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

void conf_place_fetch(const struct gb_location *place, uint64_t bytes, struct gb_stream *stream) {
    struct gb_location to = slot();

    memset(conf.pinned, 0x5a, bytes);
    conf_move(&to, place, bytes, stream);
    conf_sync(stream);
}

void conf_place_write(const struct gb_location *place, unsigned seed, uint64_t bytes, struct gb_stream *stream) {
    struct gb_location from = slot();
    uint64_t at;
    uint64_t i;

    for (at = 0; at < bytes; at += CONF_PINNED_BYTES) {
        struct gb_location to = piece(place, at);
        uint64_t n = least(bytes - at, CONF_PINNED_BYTES);

        for (i = 0; i < n; i++)
            conf.pinned[i] = conf_byte(seed, at + i);
        conf_move(&to, &from, n, stream);
        conf_sync(stream);
    }
}

void conf_place_expect(const struct gb_location *place, unsigned seed, uint64_t bytes, struct gb_stream *stream) {
    uint64_t at;
    uint64_t i;

    for (at = 0; at < bytes; at += CONF_PINNED_BYTES) {
        struct gb_location from = piece(place, at);
        uint64_t n = least(bytes - at, CONF_PINNED_BYTES);

        conf_place_fetch(&from, n, stream);
        for (i = 0; i < n; i++) {
            if (conf.pinned[i] != conf_byte(seed, at + i))
                ck_abort_msg("%s: byte %llu is %u, not %u", gb_kind_name(place->kind), (unsigned long long)(at + i),
                             conf.pinned[i], conf_byte(seed, at + i));
        }
    }
}

void conf_place_expect_byte(const struct gb_location *place, unsigned char value, uint64_t bytes,
                            struct gb_stream *stream) {
    uint64_t at;
    uint64_t i;

    for (at = 0; at < bytes; at += CONF_PINNED_BYTES) {
        struct gb_location from = piece(place, at);
        uint64_t n = least(bytes - at, CONF_PINNED_BYTES);

        conf_place_fetch(&from, n, stream);
        for (i = 0; i < n; i++) {
            if (conf.pinned[i] != value)
                ck_abort_msg("%s: byte %llu is %u, not %u", gb_kind_name(place->kind), (unsigned long long)(at + i),
                             conf.pinned[i], value);
        }
    }
}
