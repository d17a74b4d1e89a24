/* Watches: each fires once, also for an event that is done already, and never on the calling thread. */
#include <string.h>

#include "conf.h"

struct counter {
    sem_t fired;
    pthread_t thread;
    int count;
    int errors;
    struct gb_event *again; /* queried and watched again from the callback */
};

static void count(void *arg, const struct gb_error *error) {
    struct counter *counter = arg;

    __atomic_add_fetch(&counter->count, 1, __ATOMIC_SEQ_CST);
    if (error)
        __atomic_add_fetch(&counter->errors, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(&counter->thread, pthread_self(), __ATOMIC_SEQ_CST);
    sem_post(&counter->fired);
}

static void await(struct counter *counter) {
    while (sem_wait(&counter->fired) != 0)
        continue;
}

START_TEST(a_watch_fires_when_the_event_completes) {
    struct counter counter = {.count = 0};
    struct conf_gate gate;
    struct gb_event *event;

    sem_init(&counter.fired, 0, 0);
    conf_gate_hold(&gate, conf.s1);
    event = conf_event_on(conf.s1);
    gb_assert_ok(gb_watch(conf.be, event, count, &counter, &conf.err), conf.err);
    conf_wait_stream(conf.s2); /* other watches fire meanwhile */
    ck_assert_int_eq(__atomic_load_n(&counter.count, __ATOMIC_SEQ_CST), 0);
    conf_gate_let_go(&gate);
    await(&counter);
    ck_assert_int_eq(counter.errors, 0);
    ck_assert(!pthread_equal(counter.thread, pthread_self()));
    conf_sync(conf.s1);
    conf_wait_stream(conf.s1);
    ck_assert_int_eq(__atomic_load_n(&counter.count, __ATOMIC_SEQ_CST), 1);
    gb_event_destroy(conf.be, event);
}
END_TEST

START_TEST(a_watch_fires_also_when_the_event_is_done) {
    struct counter counter = {.count = 0};
    struct gb_event *event = conf_event_on(conf.s1);
    int i;

    sem_init(&counter.fired, 0, 0);
    conf_sync(conf.s1);
    ck_assert(conf_done(event));
    for (i = 0; i < 10; i++) {
        gb_assert_ok(gb_watch(conf.be, event, count, &counter, &conf.err), conf.err);
        await(&counter);
        ck_assert(!pthread_equal(counter.thread, pthread_self()));
    }
    ck_assert_int_eq(counter.count, 10);
    gb_event_destroy(conf.be, event);
}
END_TEST

START_TEST(many_watches_of_many_events_fire_once_each) {
    enum { EVENTS = 200, PER_EVENT = 3 };
    struct gb_event *events[EVENTS];
    struct counter counter = {.count = 0};
    struct conf_gate gate;
    int i;
    int j;

    sem_init(&counter.fired, 0, 0);
    conf_gate_hold(&gate, conf.s1);
    for (i = 0; i < EVENTS; i++) {
        events[i] = conf_event_on(i % 2 == 0 ? conf.s1 : conf.s2);
        for (j = 0; j < PER_EVENT; j++)
            gb_assert_ok(gb_watch(conf.be, events[i], count, &counter, &conf.err), conf.err);
    }
    conf_gate_let_go(&gate);
    for (i = 0; i < EVENTS * PER_EVENT; i++)
        await(&counter);
    conf_wait_stream(conf.s1);
    conf_wait_stream(conf.s2);
    ck_assert_int_eq(__atomic_load_n(&counter.count, __ATOMIC_SEQ_CST), EVENTS * PER_EVENT);
    for (i = 0; i < EVENTS; i++)
        gb_event_destroy(conf.be, events[i]);
}
END_TEST

static void watch_again(void *arg, const struct gb_error *error) {
    struct counter *counter = arg;
    struct gb_error err = GB_ERROR_INIT;
    bool done = false;
    uint64_t ns = 1;

    if (error || gb_event_query(conf.be, counter->again, &done, &err) < 0 || !done ||
        gb_event_elapsed(conf.be, counter->again, counter->again, &ns, &err) < 0 || ns != 0 ||
        gb_watch(conf.be, counter->again, count, counter, &err) < 0)
        counter->errors++;
}

START_TEST(a_watch_may_query_and_watch) {
    struct counter counter = {.count = 0, .again = conf_event_on(conf.s1)};

    sem_init(&counter.fired, 0, 0);
    gb_assert_ok(gb_watch(conf.be, counter.again, watch_again, &counter, &conf.err), conf.err);
    await(&counter);
    ck_assert_int_eq(counter.errors, 0);
    gb_event_destroy(conf.be, counter.again);
}
END_TEST

/* The pattern of the data path: an event recorded and watched over and over. */
START_TEST(an_event_is_recorded_again_after_it_fired) {
    struct gb_event *event = conf_event();
    unsigned char *p = conf_alloc(conf.pool, conf.s1, MIB);
    int i;

    for (i = 0; i < 500; i++) {
        memset(conf.pinned, i, 4096);
        gb_assert_ok(gb_mem_copy(conf.be, p, conf.pinned, MIB, GB_COPY_TO_DEVICE, conf.s1, &conf.err), conf.err);
        gb_assert_ok(gb_event_record(conf.be, event, conf.s1, &conf.err), conf.err);
        conf_wait(event);
    }
    conf_expect_byte(p, (unsigned char)(i - 1), 4096, conf.s1);
    conf_free(p, conf.s1);
    gb_event_destroy(conf.be, event);
}
END_TEST

void conf_add_watch(Suite *suite) {
    conf_add(suite, "a watch fires", a_watch_fires_when_the_event_completes);
    conf_add(suite, "a watch of a done event fires", a_watch_fires_also_when_the_event_is_done);
    conf_add(suite, "many watches", many_watches_of_many_events_fire_once_each);
    conf_add(suite, "a watch may watch", a_watch_may_query_and_watch);
    conf_add(suite, "record again", an_event_is_recorded_again_after_it_fired);
}
