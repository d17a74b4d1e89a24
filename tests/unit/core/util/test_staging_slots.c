/* The pinned slots: which of the free ones a thread is lent. */
#include "core/util/staging.h"

#include <pthread.h>

#include "gb_test.h"

#define SLOTS 24
#define SLOT_BYTES 4096

static struct gb_backend *be;
static struct gb_slots slots;

static void begin(void) {
    struct gb_error err = GB_ERROR_INIT;
    char note[GB_BACKEND_NOTE_SIZE];

    gb_assert_ok(gb_backend_open("host:bytes=64M", &be, note, &err), err);
    gb_assert_ok(gb_slots_init(&slots, be, SLOTS * SLOT_BYTES, SLOT_BYTES, &err), err);
}

static void end(void) {
    gb_slots_done(&slots);
    gb_backend_close(be);
}

/* Another thread with a slot, which does one thing at a time. */
struct other {
    pthread_barrier_t step;
    void *had;
    void *again;
};

static void *other_main(void *arg) {
    struct other *o = arg;

    o->had = gb_slots_try(&slots);
    pthread_barrier_wait(&o->step); /* has taken */
    pthread_barrier_wait(&o->step); /* the first thread has given back */
    gb_slots_give(&slots, o->had);
    pthread_barrier_wait(&o->step); /* has given back */
    pthread_barrier_wait(&o->step); /* the first thread has looked */
    o->again = gb_slots_try(&slots);
    return NULL;
}

START_TEST(a_thread_has_its_slot_again) {
    struct other other;
    pthread_t thread;
    void *had = gb_slots_try(&slots);
    void *again;

    pthread_barrier_init(&other.step, NULL, 2);
    ck_assert_int_eq(pthread_create(&thread, NULL, other_main, &other), 0);
    pthread_barrier_wait(&other.step);
    ck_assert_ptr_ne(other.had, had);
    gb_slots_give(&slots, had);
    pthread_barrier_wait(&other.step);
    pthread_barrier_wait(&other.step);
    again = gb_slots_try(&slots); /* not the one that came back last */
    ck_assert_ptr_eq(again, had);
    gb_slots_give(&slots, again);
    pthread_barrier_wait(&other.step);
    pthread_join(thread, NULL);
    ck_assert_ptr_eq(other.again, other.had);
    gb_slots_give(&slots, other.again);
    pthread_barrier_destroy(&other.step);
}
END_TEST

static void *take_one(void *arg) {
    *(void **)arg = gb_slots_try(&slots);
    return NULL;
}

static void *on_another_thread(void) {
    pthread_t thread;
    void *slot = NULL;

    ck_assert_int_eq(pthread_create(&thread, NULL, take_one, &slot), 0);
    pthread_join(thread, NULL);
    return slot;
}

/* A thread that had none is lent the last; one that gave back several, the last of its own. */
START_TEST(the_last_comes_first) {
    void *slot[3];
    int i;

    for (i = 0; i < 3; i++)
        slot[i] = gb_slots_try(&slots);
    for (i = 0; i < 3; i++)
        gb_slots_give(&slots, slot[i]);
    ck_assert_ptr_eq(on_another_thread(), slot[2]);
    ck_assert_ptr_eq(gb_slots_try(&slots), slot[1]);
    gb_slots_give(&slots, slot[1]);
    gb_slots_give(&slots, slot[2]);
    ck_assert_ptr_eq(gb_slots_try(&slots), slot[1]); /* the other thread had slot[2] since */
    gb_slots_give(&slots, slot[1]);
}
END_TEST

/* Whatever is taken out of the middle, each slot is lent to one at a time. */
START_TEST(each_is_lent_once) {
    void *slot[SLOTS];
    void *again[SLOTS];
    bool seen[SLOTS] = {false};
    int i;

    for (i = 0; i < SLOTS; i++)
        slot[i] = i % 3 == 0 ? on_another_thread() : gb_slots_try(&slots);
    ck_assert_ptr_null(gb_slots_try(&slots));
    for (i = SLOTS - 1; i >= 0; i--)
        gb_slots_give(&slots, slot[i]);
    for (i = 0; i < SLOTS; i++) {
        size_t at;

        again[i] = i % 5 == 0 ? on_another_thread() : gb_slots_try(&slots);
        ck_assert_ptr_nonnull(again[i]);
        at = (size_t)((char *)again[i] - slots.base) / SLOT_BYTES;
        ck_assert_uint_lt(at, SLOTS);
        ck_assert(!seen[at]);
        seen[at] = true;
    }
    ck_assert_ptr_null(gb_slots_try(&slots));
    for (i = 0; i < SLOTS; i++)
        gb_slots_give(&slots, again[i]);
    ck_assert_uint_eq(slots.free_count, SLOTS);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("staging slots");
    TCase *tcase = tcase_create("slots");

    tcase_add_checked_fixture(tcase, begin, end);
    tcase_set_timeout(tcase, 20);
    tcase_add_test(tcase, a_thread_has_its_slot_again);
    tcase_add_test(tcase, the_last_comes_first);
    tcase_add_test(tcase, each_is_lent_once);
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}
