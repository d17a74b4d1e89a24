/* The wake queue: a thread that is awake needs no signal, and none is lost when it goes to sleep. */
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>

#include "base/thread.h"
#include "gb_test.h"
#include "http/server/exchange.h"
#include "http/server/mailbox.h"

static struct gb_wake_queue queue;
static struct gb_exchange woken[2];

static void begin(void) {
    struct gb_error err = GB_ERROR_INIT;
    int i;

    gb_assert_ok(gb_wake_queue_init(&queue, &err), err);
    for (i = 0; i < 2; i++) {
        atomic_init(&woken[i].refs, 1);
        gb_mutex_init(&woken[i].wake_lock);
        gb_exchange_own(&woken[i], &queue);
    }
}

static void end(void) {
    int i;

    gb_wake_queue_done(&queue);
    for (i = 0; i < 2; i++) {
        ck_assert_int_eq(woken[i].refs, 1);
        pthread_mutex_destroy(&woken[i].wake_lock);
    }
}

static void wake(int i) {
    gb_http_wake(&woken[i].req);
}

static bool signalled(int timeout_ms) {
    struct pollfd fd = {.fd = queue.event_fd, .events = POLLIN};

    return poll(&fd, 1, timeout_ms) == 1;
}

/* Takes one, with the reference. */
static void take(int i) {
    ck_assert_ptr_eq(gb_wake_queue_take(&queue), &woken[i]);
    gb_exchange_unref(&woken[i]);
}

START_TEST(one_that_rests_is_signalled) {
    ck_assert(!signalled(0));
    wake(0);
    ck_assert(signalled(0));
    wake(1);
    wake(0);
    ck_assert_uint_eq(gb_wake_queue_visit(&queue, true), 2);
    ck_assert(!signalled(0));
    take(0);
    gb_wake_queue_leave(&queue); /* one is left */
    ck_assert(signalled(0));
    ck_assert_uint_eq(gb_wake_queue_visit(&queue, true), 1);
    take(1);
    gb_wake_queue_leave(&queue);
    ck_assert(!signalled(0));
    ck_assert_ptr_null(gb_wake_queue_take(&queue));
}
END_TEST

START_TEST(one_that_is_awake_is_not_signalled) {
    gb_wake_queue_awake(&queue);
    ck_assert(!gb_wake_queue_any(&queue));
    wake(0);
    ck_assert(gb_wake_queue_any(&queue));
    ck_assert_uint_eq(gb_wake_queue_visit(&queue, false), 1);
    wake(1);
    take(0);
    gb_wake_queue_leave(&queue);
    ck_assert(!signalled(0));
    ck_assert(gb_wake_queue_rest(&queue)); /* what was woken meanwhile is seen */
    ck_assert(!signalled(0));
    gb_wake_queue_awake(&queue);
    take(1);
    ck_assert(!gb_wake_queue_rest(&queue));
    wake(0);
    ck_assert(signalled(0));
    ck_assert_uint_eq(gb_wake_queue_visit(&queue, true), 1);
    take(0);
}
END_TEST

#define ROUNDS 20000

static sem_t taken;

static void *waker(void *arg) {
    int i;

    for (i = 0; i < ROUNDS; i++) {
        wake(0);
        sem_wait(&taken);
    }
    return arg;
}

/* A thread that sleeps whenever it may is woken each time. */
START_TEST(no_wake_is_lost) {
    pthread_t thread;
    int left = ROUNDS;

    sem_init(&taken, 0, 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, waker, NULL), 0);
    while (left > 0) {
        bool had_event = !gb_wake_queue_rest(&queue);
        unsigned n;

        if (had_event)
            ck_assert_msg(signalled(10000), "no signal, %d rounds are left", left);
        gb_wake_queue_awake(&queue);
        for (n = gb_wake_queue_visit(&queue, had_event); n > 0; n--, left--) {
            take(0);
            sem_post(&taken);
        }
    }
    pthread_join(thread, NULL);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("wake queue");
    TCase *tcase = tcase_create("queue");

    tcase_add_checked_fixture(tcase, begin, end);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, one_that_rests_is_signalled);
    tcase_add_test(tcase, one_that_is_awake_is_not_signalled);
    tcase_add_test(tcase, no_wake_is_lost);
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}
