/* Looks at events: a thread that works in turns finds out by itself that they are done, for a time. */
#include "core/util/lane.h"

#include <pthread.h>
#include <semaphore.h>

#include "gb_test.h"

#define LOOKS 64

static struct gb_backend *be;
static struct gb_stream *stream;
static struct gb_error err;

/* One watch, and how it ended. */
struct watched {
    sem_t fired;
    pthread_t thread;
    struct gb_error error;
    struct watched *next; /* is watched from the function of this one */
    struct gb_event *event;
};

static void on_event(void *arg, const struct gb_error *error) {
    struct watched *w = arg;
    struct gb_error local = GB_ERROR_INIT;

    w->thread = pthread_self();
    if (error)
        w->error = *error;
    if (w->next)
        gb_assert_ok(gb_poll_watch(be, w->next->event, on_event, w->next, &local), local);
    sem_post(&w->fired);
}

static bool has_fired(struct watched *w) {
    return sem_trywait(&w->fired) == 0;
}

static void watched_init(struct watched *w, struct gb_event *event) {
    *w = (struct watched){.event = event};
    sem_init(&w->fired, 0, 0);
}

static void watch(struct watched *w) {
    gb_assert_ok(gb_poll_watch(be, w->event, on_event, w, &err), err);
}

static void fires_here(struct watched *w) {
    ck_assert(has_fired(w));
    ck_assert(pthread_equal(w->thread, pthread_self()));
    ck_assert_int_eq(w->error.code, GB_OK);
}

static void fires_elsewhere(struct watched *w) {
    sem_wait(&w->fired);
    ck_assert(!pthread_equal(w->thread, pthread_self()));
    ck_assert_int_eq(w->error.code, GB_OK);
}

/* An event that is done at once, unless the stream is held. */
static struct gb_event *recorded(void) {
    struct gb_event *event = NULL;

    gb_assert_ok(gb_event_create(be, 0, &event, &err), err);
    gb_assert_ok(gb_event_record(be, event, stream, &err), err);
    return event;
}

static struct gb_event *finished(void) {
    struct gb_event *event = recorded();

    gb_assert_ok(gb_event_sync(be, event, &err), err);
    return event;
}

static struct gb_hold *hold(void) {
    struct gb_hold *held = NULL;

    gb_assert_ok(gb_stream_hold(be, stream, &held, &err), err);
    return held;
}

static void begin(void) {
    char note[GB_BACKEND_NOTE_SIZE];

    err = GB_ERROR_INIT;
    gb_assert_ok(gb_backend_open("host:discrete,bytes=64M", &be, note, &err), err);
    gb_assert_ok(gb_stream_create(be, 0, &stream, &err), err);
}

static void end(void) {
    gb_stream_destroy(be, stream);
    gb_backend_close(be);
}

START_TEST(what_is_done_fires_on_this_thread) {
    struct watched w;

    watched_init(&w, finished());
    gb_poll_begin();
    watch(&w);
    ck_assert(!has_fired(&w));
    ck_assert(!gb_poll_end());
    fires_here(&w);
    ck_assert(!gb_poll_end());
    ck_assert(!has_fired(&w));
    gb_event_destroy(be, w.event);
}
END_TEST

/* The time for looks may pass before the first: it is tried until it does not. */
START_TEST(what_becomes_done_fires_on_this_thread) {
    struct gb_hold *held;
    struct watched w;
    bool own = false;
    bool looks;

    while (!own) {
        held = hold();
        watched_init(&w, recorded());
        gb_poll_begin();
        watch(&w);
        looks = gb_poll_end();
        ck_assert(!has_fired(&w));
        gb_stream_release(be, held);
        while (gb_poll_end())
            ;
        sem_wait(&w.fired);
        own = looks && pthread_equal(w.thread, pthread_self());
        ck_assert_int_eq(w.error.code, GB_OK);
        gb_event_destroy(be, w.event);
    }
}
END_TEST

START_TEST(what_takes_long_is_left_to_the_backend) {
    struct gb_hold *held = hold();
    struct watched w;
    struct watched later;

    watched_init(&w, recorded());
    watched_init(&later, w.event);
    gb_poll_begin();
    watch(&w);
    while (gb_poll_end())
        ;
    ck_assert(!has_fired(&w));
    gb_poll_begin();
    ck_assert(!gb_poll_end());
    gb_stream_release(be, held);
    fires_elsewhere(&w);
    /* The turn has ended, though it has been longer. */
    watch(&later);
    fires_elsewhere(&later);
    gb_event_destroy(be, w.event);
}
END_TEST

START_TEST(without_a_turn_the_backend_watches) {
    struct gb_hold *held;
    struct watched done;
    struct watched w;

    watched_init(&done, finished());
    watch(&done);
    fires_elsewhere(&done);
    held = hold();
    watched_init(&w, recorded());
    watch(&w);
    ck_assert(!gb_poll_end());
    ck_assert(!has_fired(&w));
    gb_stream_release(be, held);
    fires_elsewhere(&w);
    gb_event_destroy(be, done.event);
    gb_event_destroy(be, w.event);
}
END_TEST

/* As many as there is room for, and one more. */
START_TEST(too_many_go_to_the_backend) {
    static struct watched w[LOOKS + 1];
    struct gb_event *event = finished();
    int i;

    gb_poll_begin();
    for (i = 0; i <= LOOKS; i++) {
        watched_init(&w[i], event);
        watch(&w[i]);
    }
    fires_elsewhere(&w[LOOKS]);
    ck_assert(!has_fired(&w[0]));
    ck_assert(!gb_poll_end());
    for (i = 0; i < LOOKS; i++)
        fires_here(&w[i]);
    gb_event_destroy(be, event);
}
END_TEST

/* A function that watches another event: that one is looked at the next time. */
START_TEST(functions_may_watch) {
    struct gb_event *event = finished();
    struct watched first;
    struct watched second;

    watched_init(&first, event);
    watched_init(&second, event);
    first.next = &second;
    gb_poll_begin();
    watch(&first);
    ck_assert(gb_poll_end());
    fires_here(&first);
    ck_assert(!has_fired(&second));
    ck_assert(!gb_poll_end());
    fires_here(&second);
    gb_event_destroy(be, event);
}
END_TEST

/* Of several, those that are done leave, and the others stay. */
START_TEST(some_are_done) {
    struct gb_event *done = finished();
    struct gb_hold *held = hold();
    struct gb_event *other = recorded();
    struct watched w[4];
    int i;

    gb_poll_begin();
    for (i = 0; i < 4; i++) {
        watched_init(&w[i], i % 2 == 0 ? other : done);
        watch(&w[i]);
    }
    (void)gb_poll_end();
    fires_here(&w[1]);
    fires_here(&w[3]);
    while (gb_poll_end())
        ;
    ck_assert(!has_fired(&w[0]));
    ck_assert(!has_fired(&w[2]));
    gb_stream_release(be, held);
    fires_elsewhere(&w[0]);
    fires_elsewhere(&w[2]);
    gb_event_destroy(be, done);
    gb_event_destroy(be, other);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("look");
    TCase *tcase = tcase_create("look");

    tcase_add_checked_fixture(tcase, begin, end);
    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, what_is_done_fires_on_this_thread);
    tcase_add_test(tcase, what_becomes_done_fires_on_this_thread);
    tcase_add_test(tcase, what_takes_long_is_left_to_the_backend);
    tcase_add_test(tcase, without_a_turn_the_backend_watches);
    tcase_add_test(tcase, too_many_go_to_the_backend);
    tcase_add_test(tcase, functions_may_watch);
    tcase_add_test(tcase, some_are_done);
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}
