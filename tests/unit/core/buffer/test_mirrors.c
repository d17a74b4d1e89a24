/* Mirrored buffers: every cell of the state table with real buffers, allocations, and mutual exclusion. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/buffer/buffer.h"
#include "core/public/upload.h"
#include "device_write_fixture.h"
#include "gb_test.h"

static const char *const specs[] = {"host:bytes=64M", "host:discrete,bytes=64M", "host:discrete,devices=2,bytes=64M"};
#define SPECS 3

#define BYTES (2 * CORE_SLOT_BYTES + 77)

static struct gb_upload_params mirrored(const char *name, uint64_t bytes) {
    struct gb_upload_params p = core_upload_params("default", name, bytes);

    p.buffer.mirrored = true;
    return p;
}

static void create(struct core_fixture *f, const char *name, uint64_t bytes) {
    struct gb_upload_params p = mirrored(name, bytes);
    struct gb_error err = GB_ERROR_INIT;
    struct core_result r;

    gb_assert_ok(core_create(f->core, &p.buffer, &r, &err), err);
    ck_assert(r.rec.mirrored);
    ck_assert_int_eq(r.rec.head, GB_HEAD_UNINITIALIZED);
}

static void remove_it(struct core_fixture *f, const char *name) {
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(core_buffer_delete(f->core, "default", name, &err), err);
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

enum comes { PLAIN, COPIES, AVOIDS, ZEROES, REFUSED };

/* The expected result by action, in the order of enum gb_mirror_action, and by head. */
static const struct cell {
    enum gb_head next;
    enum comes comes;
} cells[GB_MIRROR_ACTIONS][GB_HEAD_COUNT] = {
#define N GB_HEAD_UNINITIALIZED
#define H GB_HEAD_HOST
#define D GB_HEAD_DEVICE
#define S GB_HEAD_SYNCED
    {{H, PLAIN}, {H, PLAIN}, {H, PLAIN}, {H, PLAIN}},     /* write host */
    {{D, PLAIN}, {D, PLAIN}, {D, PLAIN}, {D, PLAIN}},     /* write device */
    {{H, PLAIN}, {H, PLAIN}, {H, COPIES}, {H, PLAIN}},    /* merge host */
    {{D, PLAIN}, {D, COPIES}, {D, PLAIN}, {D, PLAIN}},    /* merge device */
    {{N, PLAIN}, {H, PLAIN}, {D, PLAIN}, {S, PLAIN}},     /* read */
    {{H, ZEROES}, {H, AVOIDS}, {S, COPIES}, {S, AVOIDS}}, /* sync host */
    {{D, ZEROES}, {S, COPIES}, {D, AVOIDS}, {S, AVOIDS}}, /* sync device */
    {{N, PLAIN}, {H, REFUSED}, {D, PLAIN}, {D, PLAIN}},   /* release host */
    {{N, PLAIN}, {H, PLAIN}, {D, REFUSED}, {H, PLAIN}},   /* release device */
    {{N, PLAIN}, {N, PLAIN}, {N, PLAIN}, {N, PLAIN}},     /* release all */
#undef N
#undef H
#undef D
#undef S
};

/* Makes the buffer "m" with that head. Sets want to the bytes that a download must return. */
static void reach(struct core_fixture *f, enum gb_head head, char *want) {
    struct gb_upload_params p = mirrored("m", BYTES);
    struct gb_error err = GB_ERROR_INIT;
    struct core_result r;

    memset(want, 0, BYTES);
    if (head == GB_HEAD_UNINITIALIZED) {
        create(f, "m", BYTES);
        return;
    }
    p.to_device_side = head == GB_HEAD_DEVICE;
    core_put(f->core, &p, 1 + head, want);
    if (head != GB_HEAD_SYNCED)
        return;
    gb_assert_ok(core_sync(f->core, "default", "m", false, &r, &err), err);
    ck_assert(r.copied);
}

/* Runs the action and updates want. Returns the call's result, 0 or -1. */
static int act(struct core_fixture *f, enum gb_mirror_action action, char *want, struct core_result *r,
               struct gb_error *err) {
    struct gb_upload_params p = core_upload_params("default", "m", BYTES);
    char data[100];

    core_bytes(50, data, sizeof(data));
    switch (action) {
    case GB_MIRROR_WRITE_HOST:
    case GB_MIRROR_WRITE_DEVICE:
        p.to_device_side = action == GB_MIRROR_WRITE_DEVICE;
        core_bytes(60, want, BYTES);
        return core_upload(f->core, &p, want, &r->rec, err);
    case GB_MIRROR_MERGE_HOST:
    case GB_MIRROR_MERGE_DEVICE:
        p.to_device_side = action == GB_MIRROR_MERGE_DEVICE;
        p.partial = true;
        p.offset = 1234;
        p.bytes = sizeof(data);
        memcpy(want + 1234, data, sizeof(data));
        return core_upload(f->core, &p, data, &r->rec, err);
    case GB_MIRROR_READ:
        core_expect(f->core, "default", "m", want, BYTES);
        return core_buffer_get(f->core, "default", "m", &r->rec, err);
    case GB_MIRROR_SYNC_HOST:
    case GB_MIRROR_SYNC_DEVICE:
        return core_sync(f->core, "default", "m", action == GB_MIRROR_SYNC_HOST, r, err);
    default:
        if (action == GB_MIRROR_RELEASE_ALL)
            memset(want, 0, BYTES);
        return core_release(f->core, "default", "m", action != GB_MIRROR_RELEASE_DEVICE,
                            action != GB_MIRROR_RELEASE_HOST, r, err);
    }
}

static void try_cell(struct core_fixture *f, enum gb_mirror_action action, enum gb_head head, char *want) {
    const struct cell *cell = &cells[action][head];
    struct gb_mirror_move move = gb_mirror_move(head, action);
    struct gb_error err = GB_ERROR_INIT;
    struct gb_core_stats before;
    struct gb_core_stats after;
    struct gb_buffer_rec was;
    struct core_result r = {.copied = false};
    bool writes = action <= GB_MIRROR_MERGE_DEVICE;
    bool zeroes = action == GB_MIRROR_RELEASE_ALL && head != GB_HEAD_UNINITIALIZED;
    int got;

    ck_assert_int_eq(move.next, cell->next);
    ck_assert_int_eq(move.step == GB_MIRROR_COPY, cell->comes == COPIES);
    ck_assert_int_eq(move.step == GB_MIRROR_REFUSED, cell->comes == REFUSED);
    reach(f, head, want);
    gb_assert_ok(core_buffer_get(f->core, "default", "m", &was, &err), err);
    ck_assert_int_eq(was.head, head);
    gb_core_stats(f->core, &before);
    got = act(f, action, want, &r, &err);
    if (cell->comes == REFUSED) {
        ck_assert_int_eq(got, -1);
        ck_assert_int_eq(err.code, GB_ERR_BUFFER_SIDE_CURRENT);
        err = GB_ERROR_INIT;
        gb_assert_ok(core_buffer_get(f->core, "default", "m", &r.rec, &err), err);
    } else {
        gb_assert_ok(got, err);
    }
    ck_assert_msg(r.rec.head == cell->next, "action %d from %s leads to %s", (int)action, gb_head_name(head),
                  gb_head_name(r.rec.head));
    ck_assert_int_eq(r.rec.generation, was.generation + (writes || zeroes));
    gb_core_stats(f->core, &after);
    ck_assert_uint_eq(after.counters.mirror_copies, before.counters.mirror_copies + (cell->comes == COPIES));
    ck_assert_uint_eq(after.counters.mirror_copies_avoided,
                      before.counters.mirror_copies_avoided + (cell->comes == AVOIDS));
    ck_assert_int_eq(after.counters.mirror_copy_bytes > before.counters.mirror_copy_bytes, cell->comes == COPIES);
    ck_assert(after.mirrored_buffers == 1 && after.mirrored_bytes == BYTES);
    ck_assert_int_eq(r.copied, cell->comes == COPIES && !writes);
    core_expect(f->core, "default", "m", want, BYTES);
    /* Each side holds the same bytes after a sync. */
    if (r.rec.head != GB_HEAD_UNINITIALIZED) {
        gb_assert_ok(core_sync(f->core, "default", "m", false, &r, &err), err);
        gb_assert_ok(core_release(f->core, "default", "m", true, false, &r, &err), err);
        ck_assert_int_eq(r.rec.head, GB_HEAD_DEVICE);
        core_expect(f->core, "default", "m", want, BYTES);
        gb_assert_ok(core_sync(f->core, "default", "m", true, &r, &err), err);
        core_expect(f->core, "default", "m", want, BYTES);
    }
    remove_it(f, "m");
}

START_TEST(every_cell) {
    struct core_fixture f;
    enum gb_mirror_action action;
    enum gb_head head;
    char *want = malloc(BYTES);

    core_fixture_init(&f, specs[_i]);
    for (action = 0; action < GB_MIRROR_ACTIONS; action++) {
        for (head = 0; head < GB_HEAD_COUNT; head++)
            try_cell(&f, action, head, want);
    }
    core_until_idle(&f);
    core_fixture_done(&f);
    free(want);
}
END_TEST

/* --- what is allocated when --------------------------------------------------------------------------------------- */

static struct gb_mem_attr attr(struct core_fixture *f) {
    struct gb_error err = GB_ERROR_INIT;
    struct core_result r;

    gb_assert_ok(core_attributes(f->core, "default", "m", &r, &err), err);
    return r.attr;
}

static uint64_t used(struct core_fixture *f, uint64_t *ret_pinned) {
    struct gb_name s = core_name("default");
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_view view;

    gb_assert_ok(gb_session_get(f->core, &s, &view, &err), err);
    *ret_pinned = view.used_pinned_bytes;
    return view.used_bytes;
}

struct wanted {
    struct core_fixture *f;
    uint64_t bytes;
};

static bool is_used(void *arg) {
    struct wanted *w = arg;
    uint64_t pinned;

    return used(w->f, &pinned) == w->bytes;
}

/* The device may finish the free some time after the side is released. */
static void until_used(struct core_fixture *f, uint64_t bytes) {
    struct wanted w = {.f = f, .bytes = bytes};

    core_until(is_used, &w, "the bytes in use");
}

START_TEST(sides_are_lazy_and_grow_only) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = mirrored("m", 10000);
    struct gb_mem_attr first;
    struct core_result r;
    uint64_t pinned;
    uint64_t n;
    char want[20000];

    core_fixture_init(&f, specs[_i]);
    create(&f, "m", 10000);
    ck_assert_uint_eq(used(&f, &pinned), 0);
    ck_assert_uint_eq(core_allocations(&f), 0);
    ck_assert_int_eq(attr(&f).type, GB_MEMORY_UNREGISTERED);
    core_put(f.core, &p, 1, want);
    ck_assert_uint_eq(used(&f, &pinned), 10000);
    ck_assert_uint_eq(pinned, 10000);
    ck_assert_int_eq(attr(&f).type, GB_MEMORY_HOST);
    gb_assert_ok(core_sync(f.core, "default", "m", false, &r, &err), err);
    ck_assert(r.copied);
    ck_assert_int_eq(r.way, GB_WAY_TO_DEVICE);
    ck_assert_uint_eq(used(&f, &pinned), 20000);
    ck_assert_uint_eq(pinned, 10000);
    first = attr(&f);
    ck_assert_int_eq(first.type, GB_MEMORY_DEVICE);
    ck_assert(first.this_pool);
    ck_assert_uint_ne(first.host_address, 0);
    ck_assert_uint_ne(first.device_address, 0);
    ck_assert_uint_ne(first.device_address, first.host_address);
    /* Content that is no larger is written without an allocation, and the addresses stay. */
    n = core_allocations(&f);
    p = mirrored("m", 500);
    core_put(f.core, &p, 2, want);
    core_expect(f.core, "default", "m", want, 500);
    gb_assert_ok(core_sync(f.core, "default", "m", false, &r, &err), err);
    p.to_device_side = true;
    core_put(f.core, &p, 3, want);
    gb_assert_ok(core_sync(f.core, "default", "m", true, &r, &err), err);
    ck_assert_int_eq(r.way, GB_WAY_FROM_DEVICE);
    p = mirrored("m", 10000);
    core_put(f.core, &p, 4, want);
    gb_assert_ok(core_sync(f.core, "default", "m", false, &r, &err), err);
    ck_assert_uint_eq(core_allocations(&f), n);
    ck_assert_uint_eq(attr(&f).device_address, first.device_address);
    ck_assert_uint_eq(attr(&f).host_address, first.host_address);
    /* Larger content allocates one side, then the other. */
    p = mirrored("m", 20000);
    core_put(f.core, &p, 5, want);
    ck_assert_uint_eq(core_allocations(&f), n + 1);
    until_used(&f, 30000);
    gb_assert_ok(core_sync(f.core, "default", "m", false, &r, &err), err);
    ck_assert_uint_eq(core_allocations(&f), n + 2);
    until_used(&f, 40000);
    core_expect(f.core, "default", "m", want, 20000);
    gb_assert_ok(core_release(f.core, "default", "m", false, true, &r, &err), err);
    until_used(&f, 20000);
    ck_assert_int_eq(attr(&f).type, GB_MEMORY_HOST);
    gb_assert_ok(core_release(f.core, "default", "m", true, true, &r, &err), err);
    until_used(&f, 0);
    memset(want, 0, sizeof(want));
    core_expect(f.core, "default", "m", want, 20000);
    remove_it(&f, "m");
    core_until_idle(&f);
    core_fixture_done(&f);
}
END_TEST

/* --- device writes ------------------------------------------------------------------------------------------------ */

START_TEST(device_writes_take_a_side) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = mirrored("m", 4000);
    struct gb_device_write_params w;
    struct core_result r;
    char want[4000];
    char other[4000];

    core_fixture_init(&f, specs[_i]);
    core_put(f.core, &p, 1, want);
    p = core_upload_params("default", "a", 4000);
    core_put(f.core, &p, 2, other);
    /* A write to the device side first syncs that side. */
    w = core_copy_params("default", "a", "default", "m");
    w.offset = 100;
    w.has_bytes = true;
    w.bytes = 200;
    memcpy(want + 100, other, 200);
    gb_assert_ok(core_write(f.core, &w, &r, &err), err);
    ck_assert_int_eq(r.rec.head, GB_HEAD_DEVICE);
    core_expect(f.core, "default", "m", want, 4000);
    w.to_host_side = true;
    w.offset = 2000;
    memcpy(want + 2000, other, 200);
    gb_assert_ok(core_write(f.core, &w, &r, &err), err);
    ck_assert_int_eq(r.rec.head, GB_HEAD_HOST);
    core_expect(f.core, "default", "m", want, 4000);
    /* A copy reads the current side. The buffer may also be copied to itself. */
    w = core_copy_params("default", "m", "default", "a");
    gb_assert_ok(core_write(f.core, &w, &r, &err), err);
    ck_assert(!r.rec.mirrored);
    core_expect(f.core, "default", "a", want, 4000);
    w = core_copy_params("default", "m", "default", "m");
    w.has_bytes = true;
    w.bytes = 1000;
    w.offset = 500;
    memmove(want + 500, want, 1000);
    gb_assert_ok(core_write(f.core, &w, &r, &err), err); /* host to device side */
    core_expect(f.core, "default", "m", want, 4000);
    gb_assert_fails(core_write(f.core, &w, &r, &err), err, GB_ERR_INVALID_ARGUMENT); /* the same memory now */
    w = core_fill_params("default", "m", 0x55, 1);
    w.to_host_side = true;
    gb_assert_ok(core_write(f.core, &w, &r, &err), err);
    ck_assert_int_eq(r.rec.head, GB_HEAD_HOST);
    memset(want, 0x55, sizeof(want));
    core_expect(f.core, "default", "m", want, 4000);
    /* A copy of a buffer that was never written reads zeros. */
    create(&f, "z", 4000);
    w = core_copy_params("default", "z", "default", "a");
    gb_assert_ok(core_write(f.core, &w, &r, &err), err);
    memset(want, 0, sizeof(want));
    core_expect(f.core, "default", "a", want, 4000);
    w = core_fill_params("default", "z", 0x0102, 2);
    w.offset = 2;
    w.has_bytes = true;
    w.bytes = 4;
    memcpy(want + 2, "\x02\x01\x02\x01", 4);
    gb_assert_ok(core_write(f.core, &w, &r, &err), err);
    core_expect(f.core, "default", "z", want, 4000);
    remove_it(&f, "z");
    remove_it(&f, "a");
    remove_it(&f, "m");
    core_until_idle(&f);
    core_fixture_done(&f);
}
END_TEST

/* As an adoption of 0 bytes: also the only current side loses its memory. */
START_TEST(a_dropped_side) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_locator m = core_at("default", "m");
    enum gb_mirror_action action = _i == GB_SIDE_HOST ? GB_MIRROR_RELEASE_HOST : GB_MIRROR_RELEASE_DEVICE;
    struct gb_mirror_move move;
    struct gb_buffer_rec was;
    struct core_result r;
    struct core_call c;
    enum gb_head head;
    char *want = malloc(BYTES);

    core_fixture_init(&f, specs[1]);
    for (head = GB_HEAD_UNINITIALIZED; head < GB_HEAD_COUNT; head++) {
        bool lost = gb_mirror_move(head, action).step == GB_MIRROR_REFUSED;

        reach(&f, head, want);
        was.labels = NULL;
        gb_assert_ok(core_buffer_get(f.core, "default", "m", &was, &err), err);
        move = gb_mirror_move(head, lost ? GB_MIRROR_RELEASE_ALL : action);
        core_call_begin(&c);
        gb_buffer_mirror_drop(f.core, &m, _i, NULL, c.call.buffer);
        gb_assert_ok(core_result_end(&c, &r, &err), err);
        ck_assert(r.rec.head == move.next && r.rec.generation == was.generation + lost);
        ck_assert_uint_eq(r.rec.sides[_i].bytes, 0);
        ck_assert_uint_eq(r.rec.sides[gb_other_side(_i)].bytes, was.sides[gb_other_side(_i)].bytes);
        if (lost)
            memset(want, 0, BYTES);
        core_expect(f.core, "default", "m", want, BYTES);
        remove_it(&f, "m");
    }
    core_until_idle(&f);
    core_fixture_done(&f);
    free(want);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_mirror");

    gb_test_add_loop(suite, "table", every_cell, 120, SPECS);
    gb_test_add_loop(suite, "lazy", sides_are_lazy_and_grow_only, 120, SPECS);
    gb_test_add_loop(suite, "device_writes", device_writes_take_a_side, 120, SPECS);
    gb_test_add_loop(suite, "drop", a_dropped_side, 60, GB_SIDES);
    return gb_test_run(suite);
}
