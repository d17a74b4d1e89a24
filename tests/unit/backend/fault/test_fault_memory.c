/* The fault decorator over kinds, places and peers. A rule makes the operation that it names fail, and no other.
 * Operations without a rule behave as in the backend below. */
#include <stdio.h>
#include <string.h>

#include "backend/fault/fault.h"
#include "gb_test.h"

static struct gb_backend *be;
static struct gb_stream *stream;
static struct gb_pool *pool;
static struct gb_event *event;
static struct gb_error err;
static struct gb_location place; /* 64 KiB, managed */
static struct gb_location pinned;

static void open_with(const char *rules) {
    char spec[160];
    char note[GB_BACKEND_NOTE_SIZE];

    err = GB_ERROR_INIT;
    snprintf(spec, sizeof(spec), "fault:%s:host:devices=2,managed=attach,bytes=64M", rules);
    gb_assert_ok(gb_backend_open(spec, &be, note, &err), err);
    gb_assert_ok(gb_stream_create(be, 0, &stream, &err), err);
    gb_assert_ok(gb_event_create(be, 0, &event, &err), err);
    gb_assert_ok(gb_pool_default(be, 0, &pool, &err), err);
    place = (struct gb_location){.kind = GB_KIND_MANAGED, .device = 0};
    pinned = (struct gb_location){.kind = GB_KIND_PINNED, .device = 0};
    gb_assert_ok(gb_mem_kind_alloc(be, 0, GB_KIND_MANAGED, 65536, &place.ptr, &err), err);
    gb_assert_ok(gb_pin_alloc(be, 65536, &pinned.ptr, &err), err);
}

static void close_all(void) {
    gb_pin_free(be, pinned.ptr);
    gb_event_destroy(be, event);
    gb_stream_destroy(be, stream);
    gb_backend_close(be);
}

static int export_once(void) {
    struct gb_location plain = {.kind = GB_KIND_PAGEABLE, .device = 0};
    struct gb_export got = GB_EXPORT_INIT;
    int r;

    gb_assert_ok(gb_mem_kind_alloc(be, 0, GB_KIND_PAGEABLE, 4096, &plain.ptr, &err), err);
    r = gb_mem_export(be, &plain, 4096, NULL, GB_EXPORT_MEMFD, true, &got, &err);
    ck_assert_int_eq(got.fd < 0, r < 0);
    gb_export_done(&got);
    gb_assert_ok(gb_mem_kind_free(be, &plain, 4096, NULL), err);
    return r;
}

/* Makes the objects that op needs, then calls it once. */
static int call(enum gb_fault_op op) {
    enum gb_pool_access access = GB_POOL_ACCESS_NONE;
    enum gb_copy_way way = GB_WAY_COUNT;
    struct gb_location other = {.kind = GB_KIND_SHARED, .device = 0};
    struct gb_mem_attr attr;
    struct gb_peer_rec peer;

    switch (op) {
    case GB_FAULT_peer_get:
        return gb_peer_get(be, 0, 1, &peer, &err);
    case GB_FAULT_pool_access_set:
        return gb_pool_access_set(be, pool, 1, GB_POOL_ACCESS_READ_WRITE, &err);
    case GB_FAULT_pool_access_get:
        return gb_pool_access_get(be, pool, 1, &access, &err);
    case GB_FAULT_event_record_device:
        return gb_event_record_device(be, event, 0, &err);
    case GB_FAULT_kind_alloc:
        return gb_mem_kind_alloc(be, 0, GB_KIND_SHARED, 4096, &other.ptr, &err);
    case GB_FAULT_kind_free:
        gb_assert_ok(gb_mem_kind_alloc(be, 0, GB_KIND_SHARED, 4096, &other.ptr, &err), err);
        return gb_mem_kind_free(be, &other, 4096, &err);
    case GB_FAULT_move:
        return gb_mem_move(be, &pinned, &place, 65536, stream, &way, &err);
    case GB_FAULT_place_fill:
        return gb_location_fill(be, &place, 0x5b, 1, 65536, stream, &err);
    case GB_FAULT_prefetch:
        return gb_mem_prefetch(be, &place, 65536, true, stream, &err);
    case GB_FAULT_export:
        return export_once();
    case GB_FAULT_attach:
        return gb_mem_attach(be, &place, false, stream, &err);
    default:
        return gb_mem_attributes(be, &place, pool, &attr, &err);
    }
}

static const enum gb_fault_op ops[] = {
    GB_FAULT_peer_get,
    GB_FAULT_pool_access_set,
    GB_FAULT_pool_access_get,
    GB_FAULT_event_record_device,
    GB_FAULT_kind_alloc,
    GB_FAULT_kind_free,
    GB_FAULT_move,
    GB_FAULT_place_fill,
    GB_FAULT_prefetch,
    GB_FAULT_attach,
    GB_FAULT_attributes,
    GB_FAULT_export,
};

#define OPS ((int)(sizeof(ops) / sizeof(ops[0])))

START_TEST(the_named_operation_fails_alone) {
    unsigned nth = ops[_i] == GB_FAULT_kind_alloc ? 2 : 1; /* the set-up allocates once */
    char rule[64];
    int i;

    snprintf(rule, sizeof(rule), "%s@%u=cudaErrorNotReady", gb_fault_op_name(ops[_i]), nth);
    open_with(rule);
    for (i = 0; i < OPS; i++) {
        if (i != _i)
            gb_assert_ok(call(ops[i]), err);
        if (i != _i)
            continue;
        ck_assert_int_eq(call(ops[i]), -1);
        ck_assert_str_eq(err.native_name, "cudaErrorNotReady");
        ck_assert_str_eq(err.call, gb_fault_op_call(ops[i]));
        ck_assert_ptr_nonnull(strstr(err.detail, gb_fault_op_name(ops[i])));
        err = GB_ERROR_INIT;
        gb_assert_ok(call(ops[i]), err);
    }
    gb_assert_ok(gb_stream_sync(be, stream, &err), err);
    close_all();
}
END_TEST

START_TEST(what_is_not_named_passes_through) {
    enum gb_pool_access access = GB_POOL_ACCESS_COUNT;
    int i;

    open_with("");
    for (i = 0; i < OPS; i++)
        gb_assert_ok(call(ops[i]), err);
    gb_assert_ok(call(GB_FAULT_move), err);
    gb_assert_ok(gb_stream_sync(be, stream, &err), err);
    ck_assert_int_eq(((char *)pinned.ptr)[65535], 0x5b);
    gb_assert_ok(gb_pool_access_get(be, pool, 1, &access, &err), err);
    ck_assert_int_eq(access, GB_POOL_ACCESS_READ_WRITE);
    close_all();
}
END_TEST

/* Operations that the host backend refuses as unsupported: the fault decorator fails them first. */
START_TEST(events_for_others_fail_by_name) {
    unsigned char handle[GB_EXPORT_HANDLE_BYTES];
    struct gb_event *shared = NULL;

    open_with("event_create_shared@1=cudaErrorMapBufferObjectFailed,event_export@2=cudaErrorMapBufferObjectFailed");
    ck_assert_int_eq(gb_event_create_shared(be, 0, &shared, &err), -1);
    ck_assert_str_eq(err.native_name, "cudaErrorMapBufferObjectFailed");
    ck_assert_str_eq(err.call, "cudaEventCreateWithFlags");
    err = GB_ERROR_INIT;
    gb_assert_fails(gb_event_create_shared(be, 0, &shared, &err), err, GB_ERR_UNSUPPORTED);
    gb_assert_fails(gb_event_export(be, event, handle, &err), err, GB_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(gb_event_export(be, event, handle, &err), -1);
    ck_assert_str_eq(err.call, "cudaIpcGetEventHandle");
    err = GB_ERROR_INIT;
    close_all();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("fault decorator: memory of any kind");
    TCase *each = tcase_create("each operation");

    tcase_add_loop_test(each, the_named_operation_fails_alone, 0, OPS);
    suite_add_tcase(suite, each);
    gb_test_add(suite, "passing through", what_is_not_named_passes_through, 20);
    gb_test_add(suite, "events for others", events_for_others_fail_by_name, 20);
    return gb_test_run(suite);
}
