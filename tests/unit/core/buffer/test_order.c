/* The order of data on streams: lines of turns, what a request sees of them, and the waits. */
#include "core/buffer/order.h"

#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#include "core_pools.h"
#include "gb_test.h"

#define COUNT 8

struct order {
    struct core_fixture f;
    struct gb_session *session;
    struct gb_turn *turns[COUNT];
    uint64_t batch_number; /* of those that are taken */
};

static void setup(struct order *o) {
    struct gb_name session = core_name("default");
    struct gb_error err = GB_ERROR_INIT;

    *o = (struct order){.session = NULL};
    core_fixture_init(&o->f, "host:bytes=64M");
    gb_assert_ok(core_stream_make(o->f.core, "default", "a", &err), err);
    gb_assert_ok(core_stream_make(o->f.core, "default", "b", &err), err);
    gb_assert_ok(core_event_make(o->f.core, "default", "e", &err), err);
    o->session = gb_session_use(o->f.core, &session, &err);
    ck_assert_ptr_nonnull(o->session);
}

static void finish(struct order *o) {
    unsigned i;

    for (i = 0; i < COUNT; i++)
        gb_turn_free(o->turns[i]);
    pthread_mutex_lock(&o->session->lock);
    ck_assert(TAILQ_EMPTY(&o->session->turns));
    ck_assert_uint_eq(o->session->oldest_turn, UINT64_MAX);
    pthread_mutex_unlock(&o->session->lock);
    gb_session_unref(o->session);
    core_fixture_done(&o->f);
}

/* The i-th turn: a write of a buffer, with a source or NULL, on a stream. */
static struct gb_turn *take(struct order *o, unsigned i, const char *buffer, const char *source, const char *stream) {
    struct gb_name names[] = {core_name(buffer), core_name(source ? source : ""), core_name(stream)};
    struct gb_turn *t = gb_turn_new();
    struct gb_core_stream *st = NULL;
    struct gb_error err = GB_ERROR_INIT;

    ck_assert_ptr_nonnull(t);
    t->writes = true;
    t->batch_number = t->after.batch_number = o->batch_number;
    pthread_mutex_lock(&o->session->lock);
    gb_assert_ok(gb_core_stream_use_locked(o->session, &names[2], &st, &err), err);
    gb_assert_ok(gb_turn_take_locked(o->session, t, &names[0], source ? &names[1] : NULL, st, &err), err);
    pthread_mutex_unlock(&o->session->lock);
    gb_core_stream_unuse(st);
    o->turns[i] = t;
    return t;
}

static void end(struct order *o, unsigned i, const char *why) {
    struct gb_error err = GB_ERROR_INIT;

    if (why)
        gb_error_set(&err, GB_ERR_BUFFER_BUSY, "%s", why);
    gb_turn_end(o->turns[i], why ? &err : NULL);
}

static void stage(struct order *o, unsigned i, enum gb_turn_stage to) {
    pthread_mutex_lock(&o->session->lock);
    gb_turn_stage_locked(o->turns[i], to);
    pthread_mutex_unlock(&o->session->lock);
}

static bool there(struct order *o, const char *buffer) {
    bool r;

    pthread_mutex_lock(&o->session->lock);
    r = gb_map_get(&o->session->buffers, buffer);
    pthread_mutex_unlock(&o->session->lock);
    return r;
}

/* --- lines -------------------------------------------------------------------------------------------------------- */

START_TEST(the_latest_of_the_stream_is_seen) {
    struct order o;
    struct gb_turn *t;

    setup(&o);
    ck_assert_ptr_null(take(&o, 0, "x", NULL, "a")->after.on);
    ck_assert_ptr_eq(take(&o, 1, "x", NULL, "a")->after.on, o.turns[0]);
    ck_assert_ptr_null(take(&o, 2, "x", NULL, "b")->after.on);
    ck_assert_ptr_eq(take(&o, 3, "x", NULL, "a")->after.on, o.turns[1]);
    t = take(&o, 4, "y", "x", "a");
    ck_assert_ptr_null(t->after.on);
    ck_assert_ptr_eq(t->source.on, o.turns[3]);
    ck_assert_ptr_eq(take(&o, 5, "y", "x", "b")->source.on, o.turns[2]);
    end(&o, 3, NULL);
    ck_assert_ptr_null(t->source.on);
    ck_assert(!t->source.failed);
    ck_assert_ptr_eq(take(&o, 6, "x", NULL, "a")->after.on, o.turns[1]);
    finish(&o);
}
END_TEST

/* A place without a buffer lives as long as its turns. */
START_TEST(a_place_ends_with_its_last_turn) {
    struct order o;

    setup(&o);
    take(&o, 0, "x", NULL, "a");
    take(&o, 1, "x", NULL, "b");
    end(&o, 0, NULL);
    ck_assert(there(&o, "x"));
    end(&o, 0, "twice");
    end(&o, 1, "failed");
    ck_assert(!there(&o, "x"));
    ck_assert_int_eq(o.turns[1]->stage, GB_TURN_ENDED);
    finish(&o);
}
END_TEST

START_TEST(an_event_orders_what_it_covers) {
    struct gb_error err = GB_ERROR_INIT;
    struct order o;

    setup(&o);
    take(&o, 0, "x", NULL, "a");
    gb_assert_ok(core_event_record(o.f.core, "default", "e", "a", &err), err);
    take(&o, 1, "x", NULL, "a");
    ck_assert_ptr_null(take(&o, 2, "x", NULL, "b")->after.on);
    end(&o, 2, NULL);
    gb_assert_ok(core_event_wait(o.f.core, "default", "e", "b", &err), err);
    ck_assert_ptr_eq(take(&o, 3, "x", NULL, "b")->after.on, o.turns[0]);
    /* From there to a third stream, and not back. */
    gb_assert_ok(core_event_record(o.f.core, "default", "e", "b", &err), err);
    gb_assert_ok(core_event_wait(o.f.core, "default", "e", "default", &err), err);
    ck_assert_ptr_eq(take(&o, 4, "x", NULL, "default")->after.on, o.turns[3]);
    end(&o, 3, NULL);
    end(&o, 4, NULL);
    ck_assert_ptr_eq(take(&o, 5, "x", NULL, "default")->after.on, o.turns[0]);
    ck_assert_ptr_eq(take(&o, 6, "x", NULL, "a")->after.on, o.turns[1]);
    finish(&o);
}
END_TEST

/* The i-th turn becomes a reader's place. */
static struct gb_turn *read_by(struct order *o, unsigned i, bool links, uint64_t batch_number) {
    o->turns[i]->writes = false;
    o->turns[i]->reads = true;
    o->turns[i]->links = links;
    o->turns[i]->batch_number = batch_number;
    return o->turns[i];
}

/* A reader follows writes, and a write follows readers, but for a link of its own batch. */
START_TEST(who_follows_a_reader) {
    struct gb_turn *write;
    struct gb_turn *link;
    struct gb_turn *copy;
    struct order o;

    setup(&o);
    write = take(&o, 0, "x", NULL, "a");
    take(&o, 1, "x", NULL, "a");
    link = read_by(&o, 1, true, 7);
    ck_assert_ptr_eq(link->after.on, write);
    ck_assert_ptr_eq(take(&o, 2, "y", "x", "a")->source.on, write);
    take(&o, 3, "x", NULL, "a");
    copy = read_by(&o, 3, false, 7);
    ck_assert_ptr_eq(copy->after.on, link);
    ck_assert_ptr_eq(take(&o, 4, "x", NULL, "a")->after.on, copy);
    end(&o, 4, NULL);
    o.batch_number = 7;
    ck_assert_ptr_eq(take(&o, 5, "x", NULL, "a")->after.on, copy);
    end(&o, 3, NULL);
    ck_assert_ptr_eq(o.turns[5]->after.on, write);
    end(&o, 5, NULL);
    o.batch_number = 8;
    ck_assert_ptr_eq(take(&o, 6, "x", NULL, "a")->after.on, link);
    end(&o, 1, NULL);
    ck_assert_ptr_eq(o.turns[6]->after.on, write);
    finish(&o);
}
END_TEST

/* --- waits -------------------------------------------------------------------------------------------------------- */

struct waiter {
    struct gb_after *after;
    unsigned reached;
    sem_t went;
};

static void reached_locked(struct gb_after *after) {
    ((struct waiter *)after->owner)->reached++;
}

static void go(struct gb_after *after) {
    sem_post(&((struct waiter *)after->owner)->went);
}

/* Whether it waits. */
static bool wait_for(struct order *o, struct waiter *w, struct gb_after *after, enum gb_turn_stage until, bool sees) {
    bool r;

    *w = (struct waiter){.after = after};
    sem_init(&w->went, 0, 0);
    pthread_mutex_lock(&o->session->lock);
    after->until = until;
    after->sees = sees;
    after->reached_locked = reached_locked;
    after->go = go;
    after->owner = w;
    r = gb_after_wait_locked(after);
    pthread_mutex_unlock(&o->session->lock);
    return r;
}

static void went(struct waiter *w) {
    while (sem_wait(&w->went) != 0)
        continue;
    ck_assert_uint_eq(w->reached, 1);
    ck_assert(!w->after->waits);
}

static bool idle(struct waiter *w) {
    int value;

    sem_getvalue(&w->went, &value);
    return value == 0;
}

START_TEST(a_wait_ends_at_its_stage) {
    struct waiter early;
    struct waiter late;
    struct order o;

    setup(&o);
    take(&o, 0, "x", NULL, "a");
    ck_assert(wait_for(&o, &early, &take(&o, 1, "x", NULL, "a")->after, GB_TURN_READY, false));
    ck_assert(wait_for(&o, &late, &take(&o, 2, "y", "x", "a")->source, GB_TURN_ENDED, false));
    ck_assert_ptr_eq(late.after->on, o.turns[1]);
    stage(&o, 0, GB_TURN_QUEUED);
    ck_assert(early.reached == 0 && idle(&early));
    stage(&o, 0, GB_TURN_COMMITTING);
    went(&early);
    stage(&o, 0, GB_TURN_QUEUED); /* stages only rise */
    ck_assert_int_eq(o.turns[0]->stage, GB_TURN_COMMITTING);
    ck_assert(!wait_for(&o, &early, early.after, GB_TURN_READY, false));
    ck_assert(early.reached == 1 && idle(&early));
    end(&o, 0, NULL);
    ck_assert(idle(&late));
    end(&o, 1, NULL);
    went(&late);
    finish(&o);
}
END_TEST

/* What is to be seen has to be promised, or is of the same batch. */
START_TEST(a_chain_needs_a_promise) {
    struct waiter seen;
    struct waiter same;
    struct waiter other;
    struct order o;
    int batch;

    setup(&o);
    take(&o, 0, "x", NULL, "a")->batch = &batch;
    take(&o, 1, "y", "x", "a")->source.batch = &batch;
    take(&o, 2, "z", "x", "a");
    stage(&o, 0, GB_TURN_ACCEPTED);
    ck_assert(wait_for(&o, &same, &o.turns[1]->source, GB_TURN_QUEUED, true));
    ck_assert(wait_for(&o, &other, &o.turns[2]->source, GB_TURN_QUEUED, true));
    stage(&o, 0, GB_TURN_QUEUED);
    went(&same);
    ck_assert(other.reached == 0 && !gb_after_chained(other.after));
    end(&o, 0, NULL);
    went(&other);

    take(&o, 3, "x", NULL, "a")->chains = true;
    ck_assert(wait_for(&o, &seen, &take(&o, 4, "x", NULL, "a")->after, GB_TURN_QUEUED, true));
    ck_assert(!gb_after_chained(seen.after));
    stage(&o, 3, GB_TURN_QUEUED);
    went(&seen);
    ck_assert(gb_after_chained(seen.after));
    end(&o, 3, NULL);
    ck_assert(!gb_after_chained(seen.after));
    finish(&o);
}
END_TEST

START_TEST(who_leaves_is_not_called) {
    struct waiter w;
    struct order o;

    setup(&o);
    take(&o, 0, "x", NULL, "a");
    ck_assert(wait_for(&o, &w, &take(&o, 1, "x", NULL, "a")->after, GB_TURN_ENDED, false));
    pthread_mutex_lock(&o.session->lock);
    ck_assert(gb_after_leave_locked(w.after));
    ck_assert(!gb_after_leave_locked(w.after));
    pthread_mutex_unlock(&o.session->lock);
    end(&o, 0, NULL);
    core_until_idle(&o.f);
    ck_assert(w.reached == 0 && idle(&w));
    finish(&o);
}
END_TEST

/* The end is known with the commit; the wait lasts until the memory has no other user. */
START_TEST(a_late_wait_lasts_until_the_turn_is_freed) {
    struct waiter w;
    struct order o;

    setup(&o);
    take(&o, 0, "x", NULL, "a");
    take(&o, 1, "x", NULL, "a")->after.late = true;
    ck_assert(wait_for(&o, &w, &o.turns[1]->after, GB_TURN_ENDED, false));
    end(&o, 0, NULL);
    ck_assert(w.reached == 1 && idle(&w) && w.after->waits);
    gb_turn_free(o.turns[0]);
    o.turns[0] = NULL;
    went(&w);

    take(&o, 2, "x", NULL, "a")->after.late = true;
    ck_assert(wait_for(&o, &w, &o.turns[2]->after, GB_TURN_ENDED, false));
    end(&o, 1, NULL);
    pthread_mutex_lock(&o.session->lock);
    ck_assert(gb_after_leave_locked(w.after));
    pthread_mutex_unlock(&o.session->lock);
    finish(&o);
    ck_assert(idle(&w));
}
END_TEST

/* --- failures ----------------------------------------------------------------------------------------------------- */

static void assert_depends(struct order *o, const struct gb_after *after, const char *why) {
    struct gb_error err = GB_ERROR_INIT;

    pthread_mutex_lock(&o->session->lock);
    ck_assert_int_eq(gb_after_check_locked(after, &err), why ? -1 : 0);
    pthread_mutex_unlock(&o->session->lock);
    if (!why)
        return;
    ck_assert_int_eq(err.code, GB_ERR_DEPENDENCY_FAILED);
    ck_assert_msg(strstr(err.detail, why), "%s", err.detail);
}

START_TEST(a_failure_reaches_those_that_were_there) {
    struct gb_error refusal = GB_ERROR_INIT;
    struct order o;

    setup(&o);
    take(&o, 0, "x", NULL, "a");
    take(&o, 1, "x", NULL, "a");
    take(&o, 2, "y", "x", "a");
    assert_depends(&o, &o.turns[1]->after, NULL);
    gb_error_set(&refusal, GB_ERR_SEALED, "by the transaction");
    o.turns[0]->refused = true;
    o.turns[0]->error = &refusal;
    assert_depends(&o, &o.turns[1]->after, "by the transaction");
    end(&o, 0, "of the device");
    assert_depends(&o, &o.turns[1]->after, "of the device");
    assert_depends(&o, &o.turns[2]->source, NULL);
    end(&o, 1, "as well");
    assert_depends(&o, &o.turns[2]->source, "as well");
    take(&o, 3, "x", NULL, "a");
    assert_depends(&o, &o.turns[3]->after, NULL);
    finish(&o);
}
END_TEST

/* What was to write no bytes fails no other; a turn that is given up has failed. */
START_TEST(what_fails_others) {
    struct order o;

    setup(&o);
    take(&o, 0, "x", NULL, "a")->writes = false;
    take(&o, 1, "x", NULL, "a");
    end(&o, 0, "a deletion");
    assert_depends(&o, &o.turns[1]->after, NULL);
    take(&o, 2, "x", NULL, "a");
    gb_turn_free(o.turns[1]);
    o.turns[1] = NULL;
    assert_depends(&o, &o.turns[2]->after, "cancel");
    finish(&o);
    gb_turn_end(NULL, NULL);
    gb_turn_free(NULL);
    gb_turn_free(gb_turn_new());
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_order");

    gb_test_add(suite, "latest", the_latest_of_the_stream_is_seen, 60);
    gb_test_add(suite, "place", a_place_ends_with_its_last_turn, 60);
    gb_test_add(suite, "event", an_event_orders_what_it_covers, 60);
    gb_test_add(suite, "reader", who_follows_a_reader, 60);
    gb_test_add(suite, "stage", a_wait_ends_at_its_stage, 60);
    gb_test_add(suite, "chain", a_chain_needs_a_promise, 60);
    gb_test_add(suite, "leave", who_leaves_is_not_called, 60);
    gb_test_add(suite, "late", a_late_wait_lasts_until_the_turn_is_freed, 60);
    gb_test_add(suite, "failure", a_failure_reaches_those_that_were_there, 60);
    gb_test_add(suite, "what_fails", what_fails_others, 60);
    return gb_test_run(suite);
}
