/* Slots with running copies: an upload polls its copies, and watches only a copy that no later call would poll. */
#include <sched.h>
#include <stdlib.h>

#include "base/hash.h"
#include "core/transfer/upload.h"
#include "core_fixture.h"
#include "gb_test.h"

#define BYTES (6 * CORE_SLOT_BYTES + 100)

static struct core_fixture f;
static struct core_wake w;
static struct gb_upload *upload;
static struct gb_error err;
static char *data;

static void setup_with(const char *spec) {
    struct gb_upload_params p = core_upload_params("default", "x", BYTES);

    err = (struct gb_error)GB_ERROR_INIT;
    core_fixture_init(&f, spec);
    core_wake_init(&w);
    data = malloc(BYTES);
    core_bytes(1, data, BYTES);
    gb_assert_ok(core_buffer_create(f.core, "default", "zero", 10, 0, &err), err);
    p.waker = core_waker(&w);
    gb_assert_ok(gb_upload_begin(f.core, &p, &upload, &err), err);
}

/* Every watch fails. */
static void setup(void) {
    setup_with("fault:watch@1+=cudaErrorInvalidValue:host:discrete,bytes=16M");
}

static void teardown(void) {
    gb_upload_free(upload);
    err = (struct gb_error)GB_ERROR_INIT;
    core_buffer_delete(f.core, "default", "zero", &err);
    core_buffer_delete(f.core, "default", "x", &err); /* exists if the upload finished */
    core_until_idle(&f);
    core_wake_done(&w);
    core_fixture_done(&f);
    free(data);
}

static size_t in_use(void) {
    struct gb_core_stats stats;

    gb_core_stats(f.core, &stats);
    return stats.slots_total - stats.slots_free;
}

static int send(unsigned slot) {
    uint64_t at = (uint64_t)slot * CORE_SLOT_BYTES;
    size_t n = BYTES - at < CORE_SLOT_BYTES ? BYTES - at : CORE_SLOT_BYTES;

    return core_upload_send(upload, &w, data + at, n, &err);
}

static void until_copied(void) {
    gb_assert_ok(gb_stream_sync(f.backend, gb_core_transfer_part(&upload->t), &err), err);
}

START_TEST(what_is_done_is_not_watched) {
    struct gb_buffer_rec rec;
    unsigned i;

    for (i = 0; i < 7; i++) {
        gb_assert_ok(send(i), err);
        until_copied();
        ck_assert_uint_le(in_use(), 1);
    }
    gb_assert_ok(core_upload_finish(upload, &w, &rec, &err), err);
    ck_assert(rec.has_crc32c);
    ck_assert_uint_eq(rec.crc32c, gb_crc32c(0, data, BYTES));
}
END_TEST

/* If all slots of an upload have running copies, the upload waits for the oldest. */
START_TEST(what_is_waited_for_is_watched) {
    static struct core_gate gate; /* the gated stream may use it until the end */
    void *room;
    size_t n;
    unsigned i;

    gb_assert_ok(send(0), err);
    until_copied();
    core_gate_close(&gate, &f, "default");
    for (i = 1; i <= GB_UPLOAD_COPIES; i++)
        gb_assert_ok(send(i), err);
    ck_assert_uint_eq(in_use(), GB_UPLOAD_COPIES);
    ck_assert_int_eq(gb_upload_room(upload, &room, &n, &err), 0);
    core_wake_wait(&w); /* the watch has failed */
    gb_assert_fails(gb_upload_room(upload, &room, &n, &err), err, GB_ERR_DEVICE_ERROR);
    core_gate_open(&gate);
}
END_TEST

START_TEST(what_stands_still_is_watched) {
    void *room;
    size_t n;

    gb_assert_ok(send(0), err);
    gb_upload_pause(upload, false);
    gb_assert_ok(send(1), err);
    gb_upload_pause(upload, true);
    gb_assert_fails(gb_upload_room(upload, &room, &n, &err), err, GB_ERR_DEVICE_ERROR);
}
END_TEST

/* If more than half of the slots are taken, another transfer may want this slot at once. */
START_TEST(what_is_scarce_is_watched) {
    void *taken[CORE_SLOTS / 2];
    unsigned i;

    for (i = 0; i < CORE_SLOTS / 2; i++)
        taken[i] = gb_slots_try(&f.core->slots);
    gb_assert_fails(send(0), err, GB_ERR_DEVICE_ERROR);
    for (i = 0; i < CORE_SLOTS / 2; i++)
        gb_slots_give(&f.core->slots, taken[i]);
}
END_TEST

static void granted(struct gb_slot_waiter *waiter) {
    (void)waiter;
}

/* A slot that fills too slowly is sent, so a waiter for a slot gets it in the end. */
START_TEST(what_drips_is_sent) {
    struct gb_slot_waiter waiter = {.granted = granted};
    struct gb_slots *slots;
    struct gb_buffer_rec rec;
    void *taken[CORE_SLOTS];
    void *slot;
    unsigned n = 0;

    teardown();
    setup_with("host:discrete,bytes=16M");
    slots = &f.core->slots;
    gb_assert_ok(core_upload_send(upload, &w, data, 1, &err), err);
    while ((taken[n] = gb_slots_try(slots)))
        n++;
    ck_assert_uint_eq(n, CORE_SLOTS - 1);
    while (!(slot = gb_slots_take(slots, &waiter))) {
        gb_upload_pause(upload, false);
        sched_yield();
    }
    gb_slots_give(slots, slot);
    while (n > 0)
        gb_slots_give(slots, taken[--n]);
    gb_assert_ok(core_upload_send(upload, &w, data + 1, BYTES - 1, &err), err);
    gb_assert_ok(core_upload_finish(upload, &w, &rec, &err), err);
    ck_assert_uint_eq(rec.crc32c, gb_crc32c(0, data, BYTES));
}
END_TEST

/* A poll finds a copy that failed on the device. */
START_TEST(a_question_that_fails) {
    unsigned i = 0;
    int r = 0;

    teardown();
    setup_with("fault:event_query@2=cudaErrorInvalidValue:host:discrete,bytes=16M");
    while (r == 0 && i < 7)
        r = send(i++);
    if (r == 0)
        r = core_upload_finish(upload, &w, NULL, &err);
    gb_assert_fails(r, err, GB_ERR_DEVICE_ERROR);
}
END_TEST

/* Uploads x with that many bytes. Returns whether its times are another's. */
static bool sampled(struct gb_core *core, size_t n, uint64_t *ret_copy_ns) {
    struct gb_upload_params p = core_upload_params("default", "x", n);
    struct gb_transfer_times times;
    bool s;

    gb_upload_free(upload);
    p.waker = core_waker(&w);
    gb_assert_ok(gb_upload_begin(core, &p, &upload, &err), err);
    gb_assert_ok(core_upload_send(upload, &w, data, n, &err), err);
    gb_assert_ok(core_upload_finish(upload, &w, NULL, &err), err);
    gb_transfer_times(&upload->t, &times);
    s = times.sampled;
    *ret_copy_ns = upload->t.copy_ns;
    return s;
}

/* Of short copies in a row not each is measured; all count. What is longer than a slot is measured. */
START_TEST(what_is_alike_is_measured_once) {
    struct gb_core_stats before;
    struct gb_core_stats after;
    uint64_t copy_ns;

    teardown();
    setup_with("host:discrete,bytes=16M");
    ck_assert(!sampled(f.core, 100, &copy_ns));
    do
        gb_core_stats(f.core, &before);
    while (!sampled(f.core, 100, &copy_ns));
    gb_core_stats(f.core, &after);
    ck_assert_uint_gt(copy_ns, 0);
    ck_assert_uint_eq(after.counters.upload_copy_ns - before.counters.upload_copy_ns, copy_ns);
    ck_assert(!sampled(f.core, 101, &copy_ns));
    ck_assert(!sampled(f.core, CORE_SLOT_BYTES + 1, &copy_ns));
    ck_assert(!sampled(f.core, CORE_SLOT_BYTES + 1, &copy_ns));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_flight");
    TCase *t = tcase_create("flight");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, what_is_done_is_not_watched);
    tcase_add_test(t, what_is_waited_for_is_watched);
    tcase_add_test(t, what_stands_still_is_watched);
    tcase_add_test(t, what_is_scarce_is_watched);
    tcase_add_test(t, what_drips_is_sent);
    tcase_add_test(t, a_question_that_fails);
    tcase_add_test(t, what_is_alike_is_measured_once);
    suite_add_tcase(suite, t);
    return gb_test_run(suite);
}
