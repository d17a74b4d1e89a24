/* Several devices, and events that cover a whole device. */
#include <stdio.h>
#include <string.h>

#include "conf.h"

/* --- events of a device ------------------------------------------------------------------------------------------- */

static struct gb_event *event_on_device(void) {
    struct gb_event *event = conf_event();

    gb_assert_ok(gb_event_record_device(conf.be, event, 0, &conf.err), conf.err);
    return event;
}

START_TEST(a_device_event_covers_every_stream) {
    struct gb_stream *stream = NULL;
    struct conf_gate gate;
    struct gb_event *event;
    struct gb_event *other;
    int i;

    gb_assert_ok(gb_stream_create(conf.be, 0, &stream, &conf.err), conf.err);
    for (i = 0; i < 3; i++) {
        conf_gate_hold(&gate, i == 0 ? conf.s1 : i == 1 ? conf.s2 : stream);
        event = event_on_device();
        other = conf_event_on(i == 0 ? conf.s2 : conf.s1);
        conf_wait(other); /* the streams themselves do not wait for it */
        ck_assert(!conf_done(event));
        conf_gate_let_go(&gate);
        conf_wait(event);
        gb_event_destroy(conf.be, event);
        gb_event_destroy(conf.be, other);
    }
    gb_stream_destroy(conf.be, stream);
}
END_TEST

START_TEST(a_device_event_covers_nothing_that_comes_later) {
    struct conf_gate gate;
    struct gb_event *event = event_on_device();
    struct gb_event *late;

    conf_gate_hold(&gate, conf.s1);
    conf_wait(event);
    late = event_on_device();
    ck_assert(!conf_done(late));
    conf_gate_let_go(&gate);
    conf_wait(late);
    gb_event_destroy(conf.be, event);
    gb_event_destroy(conf.be, late);
}
END_TEST

struct churn {
    bool stop; /* atomic */
    const char *failed;
    struct gb_error err;
};

static void *make_and_destroy_streams(void *arg) {
    struct churn *churn = arg;

    while (!__atomic_load_n(&churn->stop, __ATOMIC_ACQUIRE)) {
        struct gb_stream *stream = NULL;
        void *p = NULL;

        if (gb_stream_create(conf.be, 0, &stream, &churn->err) < 0 ||
            gb_mem_alloc(conf.be, conf.pool, stream, 65536, &p, &churn->err) < 0 ||
            gb_mem_fill(conf.be, p, 1, 1, 65536, stream, &churn->err) < 0 ||
            gb_mem_free(conf.be, p, stream, &churn->err) < 0) {
            churn->failed = "a call failed";
            break;
        }
        gb_stream_destroy(conf.be, stream);
    }
    return NULL;
}

START_TEST(streams_may_go_while_a_device_event_is_recorded) {
    struct churn churn[2];
    pthread_t threads[2];
    int i;

    for (i = 0; i < 2; i++) {
        churn[i] = (struct churn){.err = GB_ERROR_INIT};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, make_and_destroy_streams, &churn[i]), 0);
    }
    for (i = 0; i < 200; i++) {
        struct gb_event *event = event_on_device();

        conf_wait(event);
        gb_event_destroy(conf.be, event);
    }
    for (i = 0; i < 2; i++) {
        __atomic_store_n(&churn[i].stop, true, __ATOMIC_RELEASE);
        pthread_join(threads[i], NULL);
        ck_assert_msg(!churn[i].failed, "%s: %s", churn[i].failed, churn[i].err.detail);
    }
}
END_TEST

/* --- peers -------------------------------------------------------------------------------------------------------- */

START_TEST(the_peer_matrix_is_told) {
    int devices = gb_backend_device_count(conf.be);
    struct gb_peer_rec rec;
    bool any = false;
    int i;
    int j;

    for (i = 0; i < devices; i++) {
        for (j = 0; j < devices; j++) {
            gb_assert_ok(gb_peer_get(conf.be, i, j, &rec, &conf.err), conf.err);
            ck_assert_int_eq(rec.device, i);
            ck_assert_int_eq(rec.peer, j);
            ck_assert(rec.can_access == (rec.why_not[0] == '\0'));
            ck_assert(i != j || rec.can_access);
            any = any || (i == 0 && j != 0 && rec.can_access);
        }
    }
    ck_assert((conf.device.cap_missing[GB_CAP_PEER_ACCESS][0] == '\0') == any);
    ck_assert_int_eq(gb_peer_get(conf.be, 0, devices, &rec, &conf.err), -1);
    conf.err = GB_ERROR_INIT;
    ck_assert_int_eq(gb_peer_get(conf.be, -1, 0, &rec, &conf.err), -1);
}
END_TEST

START_TEST(a_pool_is_open_to_its_own_device) {
    struct gb_pool *pool = conf_pool(0, true, true, true);
    enum gb_pool_access access = GB_POOL_ACCESS_COUNT;

    gb_assert_ok(gb_pool_access_get(conf.be, pool, 0, &access, &conf.err), conf.err);
    ck_assert_int_eq(access, GB_POOL_ACCESS_READ_WRITE);
    gb_assert_ok(gb_pool_access_set(conf.be, pool, 0, GB_POOL_ACCESS_READ_WRITE, &conf.err), conf.err);
    gb_assert_fails(gb_pool_access_set(conf.be, pool, 0, GB_POOL_ACCESS_NONE, &conf.err), conf.err,
                    GB_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(gb_pool_access_set(conf.be, pool, 99, GB_POOL_ACCESS_READ_WRITE, &conf.err), -1);
    conf.err = GB_ERROR_INIT;
    ck_assert_int_eq(gb_pool_access_get(conf.be, pool, 99, &access, &conf.err), -1);
    gb_pool_destroy(conf.be, pool);
}
END_TEST

/* A second device with a stream and a pool. Returns false, and prints a line, without one. */
static bool second_device(const char *test, struct gb_stream **ret_stream, struct gb_pool **ret_pool) {
    if (gb_backend_device_count(conf.be) < 2) {
        printf("%s: %s: skipped, there is one device only\n", conf.spec, test);
        return false;
    }
    gb_assert_ok(gb_stream_create(conf.be, 1, ret_stream, &conf.err), conf.err);
    gb_assert_ok(gb_pool_default(conf.be, 1, ret_pool, &conf.err), conf.err);
    return true;
}

/* From the first device to the second, on a stream of either device; s is the second device's stream. */
static void move_across(struct gb_location *dst, struct gb_location *src, unsigned seed, struct gb_stream *stream,
                        struct gb_stream *s, enum gb_copy_way want) {
    const uint64_t bytes = 5 * MIB + 3;
    enum gb_copy_way way = GB_WAY_COUNT;

    conf_place_write(src, seed, bytes, conf.s1);
    gb_assert_ok(gb_mem_move(conf.be, dst, src, bytes, stream, &way, &conf.err), conf.err);
    ck_assert_str_eq(gb_copy_way_name(way), gb_copy_way_name(want));
    conf_sync(stream);
    conf_place_expect(dst, seed, bytes, s);
}

START_TEST(copies_between_devices_say_their_way) {
    struct gb_pool *mine = conf_pool(0, true, true, true);
    struct gb_location src = {.kind = GB_KIND_DEVICE, .device = 0};
    struct gb_location dst = {.kind = GB_KIND_DEVICE, .device = 1};
    enum gb_pool_access access = GB_POOL_ACCESS_COUNT;
    struct gb_stream *stream = NULL;
    struct gb_pool *pool = NULL;
    struct gb_peer_rec peer;

    if (!second_device("copies between devices", &stream, &pool))
        return;
    gb_assert_ok(gb_peer_get(conf.be, 1, 0, &peer, &conf.err), conf.err);
    src.ptr = conf_alloc(mine, conf.s1, 8 * MIB);
    dst.ptr = conf_alloc(pool, stream, 8 * MIB);
    conf_sync(conf.s1);
    conf_sync(stream);
    gb_assert_ok(gb_pool_access_get(conf.be, mine, 1, &access, &conf.err), conf.err);
    ck_assert_int_eq(access, GB_POOL_ACCESS_NONE);
    move_across(&dst, &src, 1, stream, stream, GB_WAY_STAGED);
    move_across(&dst, &src, 2, conf.s1, stream, GB_WAY_STAGED);
    if (!peer.can_access) {
        printf("%s: pool access: the devices cannot reach each other (%s)\n", conf.spec, peer.why_not);
        ck_assert_int_eq(gb_pool_access_set(conf.be, mine, 1, GB_POOL_ACCESS_READ_WRITE, &conf.err), -1);
        ck_assert_int_eq(conf.err.code, GB_ERR_UNSUPPORTED);
        ck_assert_str_eq(conf.err.native_name, "cudaErrorInvalidDevice");
        ck_assert_str_eq(conf.err.call, "cudaMemPoolSetAccess");
        conf.err = GB_ERROR_INIT;
    } else {
        gb_assert_ok(gb_pool_access_set(conf.be, mine, 1, GB_POOL_ACCESS_READ_WRITE, &conf.err), conf.err);
        gb_assert_ok(gb_pool_access_get(conf.be, mine, 1, &access, &conf.err), conf.err);
        ck_assert_int_eq(access, GB_POOL_ACCESS_READ_WRITE);
        move_across(&dst, &src, 3, stream, stream, GB_WAY_PEER);
        move_across(&dst, &src, 4, conf.s1, stream, GB_WAY_PEER);
        gb_assert_ok(gb_pool_access_set(conf.be, mine, 1, GB_POOL_ACCESS_NONE, &conf.err), conf.err);
        gb_assert_ok(gb_pool_access_get(conf.be, mine, 1, &access, &conf.err), conf.err);
        ck_assert_int_eq(access, GB_POOL_ACCESS_NONE);
        move_across(&dst, &src, 5, stream, stream, GB_WAY_STAGED);
    }
    conf_free(src.ptr, conf.s1);
    conf_free(dst.ptr, stream);
    conf_sync(conf.s1);
    gb_stream_destroy(conf.be, stream);
    gb_pool_destroy(conf.be, mine);
}
END_TEST

/* A pool's access is of the pool: memory that it gets from the device later is reached as well. */
START_TEST(access_covers_what_is_allocated_later) {
    struct gb_pool *mine = conf_pool(0, true, true, true);
    struct gb_location src = {.kind = GB_KIND_DEVICE, .device = 0};
    struct gb_location dst = {.kind = GB_KIND_DEVICE, .device = 1};
    struct gb_stream *stream = NULL;
    struct gb_pool *pool = NULL;
    struct gb_peer_rec peer;
    uint64_t reserved;
    void *first;

    if (!second_device("access to later allocations", &stream, &pool))
        return;
    gb_assert_ok(gb_peer_get(conf.be, 1, 0, &peer, &conf.err), conf.err);
    if (peer.can_access) {
        first = conf_alloc(mine, conf.s1, 8 * MIB);
        dst.ptr = conf_alloc(pool, stream, 8 * MIB);
        conf_sync(conf.s1);
        conf_sync(stream);
        gb_assert_ok(gb_pool_access_set(conf.be, mine, 1, GB_POOL_ACCESS_READ_WRITE, &conf.err), conf.err);
        reserved = conf_stat(mine).reserved_bytes;
        src.ptr = conf_alloc(mine, conf.s1, 256 * MIB); /* more than it has */
        conf_sync(conf.s1);
        ck_assert_uint_gt(conf_stat(mine).reserved_bytes, reserved);
        move_across(&dst, &src, 6, stream, stream, GB_WAY_PEER);
        move_across(&dst, &src, 7, conf.s1, stream, GB_WAY_PEER);
        conf_free(src.ptr, conf.s1);
        conf_free(first, conf.s1);
        conf_free(dst.ptr, stream);
    } else {
        printf("%s: access to later allocations: the devices cannot reach each other (%s)\n", conf.spec, peer.why_not);
    }
    conf_sync(conf.s1);
    gb_stream_destroy(conf.be, stream);
    gb_pool_destroy(conf.be, mine);
}
END_TEST

START_TEST(memory_is_used_on_streams_of_its_device) {
    struct gb_location device = {.kind = GB_KIND_DEVICE, .device = 0};
    struct gb_location pinned = {.kind = GB_KIND_PINNED, .device = 0, .ptr = conf.pinned};
    enum gb_copy_way way = GB_WAY_COUNT;
    struct gb_stream *stream = NULL;
    struct gb_pool *pool = NULL;

    if (!second_device("streams of the other device", &stream, &pool))
        return;
    device.ptr = conf_alloc(conf.pool, conf.s1, MIB);
    gb_assert_fails(gb_mem_move(conf.be, &device, &pinned, 16, stream, &way, &conf.err), conf.err,
                    GB_ERR_INVALID_ARGUMENT);
    gb_assert_fails(gb_mem_move(conf.be, &pinned, &device, 16, stream, &way, &conf.err), conf.err,
                    GB_ERR_INVALID_ARGUMENT);
    gb_assert_fails(gb_location_fill(conf.be, &device, 0, 1, 16, stream, &conf.err), conf.err, GB_ERR_INVALID_ARGUMENT);
    /* Every device can use host memory, whichever device it was made for. */
    gb_assert_ok(gb_location_fill(conf.be, &pinned, 7, 1, 16, stream, &conf.err), conf.err);
    conf_sync(stream);
    ck_assert_int_eq(conf.pinned[15], 7);
    ck_assert_int_eq(way, GB_WAY_COUNT);
    conf_free(device.ptr, conf.s1);
    gb_stream_destroy(conf.be, stream);
}
END_TEST

/* Events order work across devices, whichever device is current on the calling thread. */
START_TEST(work_is_ordered_across_devices) {
    struct gb_location src = {.kind = GB_KIND_DEVICE, .device = 0};
    struct gb_location dst = {.kind = GB_KIND_DEVICE, .device = 1};
    struct gb_stream *stream = NULL;
    struct gb_pool *pool = NULL;
    struct conf_gate gate;
    enum gb_copy_way way;
    int i;

    if (!second_device("order across devices", &stream, &pool))
        return;
    src.ptr = conf_alloc(conf.pool, conf.s1, 4 * MIB);
    dst.ptr = conf_alloc(pool, stream, 4 * MIB);
    for (i = 0; i < 10; i++) {
        struct gb_event *event;
        struct gb_event *after = NULL;

        conf_gate_hold(&gate, conf.s1);
        conf_place_fill(&src, (uint64_t)i, 1, 4 * MIB, conf.s1);
        event = conf_event_on(conf.s1);
        gb_assert_ok(gb_stream_wait(conf.be, stream, event, &conf.err), conf.err);
        gb_assert_ok(gb_mem_move(conf.be, &dst, &src, 4 * MIB, stream, &way, &conf.err), conf.err);
        gb_assert_ok(gb_event_create(conf.be, 1, &after, &conf.err), conf.err);
        gb_assert_ok(gb_event_record_device(conf.be, after, 1, &conf.err), conf.err);
        ck_assert(!conf_done(after));
        conf_gate_let_go(&gate);
        conf_wait(after);
        conf_place_expect_byte(&dst, (unsigned char)i, 4 * MIB, stream);
        gb_event_destroy(conf.be, event);
        gb_event_destroy(conf.be, after);
    }
    conf_free(src.ptr, conf.s1);
    conf_free(dst.ptr, stream);
    gb_stream_destroy(conf.be, stream);
}
END_TEST

void conf_add_peer(Suite *suite) {
    conf_add(suite, "device events", a_device_event_covers_every_stream);
    conf_add(suite, "device events cover the past", a_device_event_covers_nothing_that_comes_later);
    conf_add(suite, "device events and destroyed streams", streams_may_go_while_a_device_event_is_recorded);
    conf_add(suite, "the peer matrix", the_peer_matrix_is_told);
    conf_add(suite, "a pool's own device", a_pool_is_open_to_its_own_device);
    conf_add(suite, "copies between devices", copies_between_devices_say_their_way);
    conf_add(suite, "access to later allocations", access_covers_what_is_allocated_later);
    conf_add(suite, "streams of the other device", memory_is_used_on_streams_of_its_device);
    conf_add(suite, "order across devices", work_is_ordered_across_devices);
}
