/* Self-contained modules of the core: slots, lists by id, turns, quota. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/session/quota.h"
#include "core/session/session.h"
#include "core_fixture.h"
#include "gb_test.h"

/* --- slots -------------------------------------------------------------------------------------------------------- */

struct waiter {
    struct gb_slot_waiter w; /* first */
    int number;
    int *order;
    int *next;
};

static void granted(struct gb_slot_waiter *w) {
    struct waiter *x = (struct waiter *)w;

    x->order[(*x->next)++] = x->number;
}

START_TEST(slots_are_the_set_and_no_more) {
    struct core_fixture f;
    struct gb_slots slots;
    struct gb_error err = GB_ERROR_INIT;
    char *slot[4];
    int i;
    int k;

    core_fixture_prepare(&f, "host:discrete");
    gb_assert_fails(gb_slots_init(&slots, f.backend, 100, 4096, &err), err, GB_ERR_INVALID_ARGUMENT);
    gb_assert_ok(gb_slots_init(&slots, f.backend, 4 * 4096 + 5, 4096, &err), err);
    for (i = 0; i < 4; i++) {
        slot[i] = gb_slots_try(&slots);
        ck_assert_ptr_nonnull(slot[i]);
        memset(slot[i], i, 4096);
        for (k = 0; k < i; k++)
            ck_assert(slot[k] + 4096 <= slot[i] || slot[i] + 4096 <= slot[k]);
    }
    ck_assert_ptr_null(gb_slots_try(&slots));
    /* The slot that was returned last is lent first. */
    gb_slots_give(&slots, slot[2]);
    gb_slots_give(&slots, slot[1]);
    ck_assert_ptr_eq(gb_slots_try(&slots), slot[1]);
    gb_slots_give(&slots, slot[1]);
    gb_slots_give(&slots, slot[0]);
    gb_slots_give(&slots, slot[3]);
    ck_assert_uint_eq(atomic_load(&slots.free_count), 4);
    gb_slots_done(&slots);
    core_fixture_done(&f);
}
END_TEST

START_TEST(slots_go_to_who_waited_longest) {
    struct core_fixture f;
    struct gb_slots slots;
    struct gb_error err = GB_ERROR_INIT;
    struct waiter waiter[4];
    int order[4] = {-1, -1, -1, -1};
    int next = 0;
    char *slot;
    int i;

    core_fixture_prepare(&f, "host:discrete");
    gb_assert_ok(gb_slots_init(&slots, f.backend, 4096, 4096, &err), err);
    slot = gb_slots_try(&slots);
    for (i = 0; i < 4; i++) {
        waiter[i] = (struct waiter){.w = {.granted = granted}, .number = i, .order = order, .next = &next};
        ck_assert_ptr_null(gb_slots_take(&slots, &waiter[i].w));
        ck_assert_ptr_null(gb_slots_take(&slots, &waiter[i].w)); /* once is enough */
    }
    ck_assert(gb_slots_cancel(&slots, &waiter[1].w));
    ck_assert(gb_slots_cancel(&slots, &waiter[3].w)); /* the last waiter: the queue's tail moves */
    gb_slots_give(&slots, slot);
    ck_assert_int_eq(next, 1);
    ck_assert_int_eq(order[0], 0);
    /* The slot is reserved for the first waiter; no other thread can take it. */
    ck_assert_ptr_null(gb_slots_try(&slots));
    ck_assert_ptr_eq(gb_slots_take(&slots, &waiter[0].w), slot);
    gb_slots_give(&slots, slot);
    ck_assert_int_eq(next, 2);
    ck_assert_int_eq(order[1], 2);
    /* A slot that is granted but never claimed is returned. */
    ck_assert(!gb_slots_cancel(&slots, &waiter[2].w));
    ck_assert_ptr_eq(gb_slots_try(&slots), slot);
    ck_assert_uint_eq(atomic_load(&slots.waits), 4);
    gb_slots_give(&slots, slot);
    gb_slots_done(&slots);
    core_fixture_done(&f);
}
END_TEST

/* With fewer slots than transfers, every transfer completes. */
START_TEST(more_transfers_than_slots) {
    enum { MANY = 3 * CORE_SLOTS, SIZE = 3 * CORE_SLOT_BYTES + 77 };
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload *upload[MANY];
    struct core_wake w[MANY];
    size_t sent[MANY] = {0};
    struct gb_core_stats stats;
    char *data = malloc(SIZE);
    char *back = malloc(SIZE);
    unsigned left = MANY;
    char name[16];
    int i;

    core_fixture_init(&f, "host:discrete,bytes=64M");
    core_bytes(5, data, SIZE);
    for (i = 0; i < MANY; i++) {
        struct gb_upload_params p;

        snprintf(name, sizeof(name), "b%d", i);
        p = core_upload_params("default", name, SIZE);
        core_wake_init(&w[i]);
        p.waker = core_waker(&w[i]);
        gb_assert_ok(gb_upload_begin(f.core, &p, &upload[i], &err), err);
    }
    /* Sends a little of each transfer in turn, so that all hold or want slots at once. */
    while (left > 0) {
        for (i = 0; i < MANY; i++) {
            void *room;
            size_t n;
            int r;

            if (sent[i] == SIZE)
                continue;
            r = gb_upload_room(upload[i], &room, &n, &err);
            ck_assert_int_ge(r, 0);
            if (r == 0)
                continue;
            n = n > 30000 ? 30000 : n;
            memcpy(room, data + sent[i], n);
            gb_assert_ok(gb_upload_fill(upload[i], n, &err), err);
            sent[i] += n;
            left -= sent[i] == SIZE;
        }
        gb_core_stats(f.core, &stats);
        ck_assert_uint_eq(stats.slots_total, CORE_SLOTS);
        ck_assert_uint_le(stats.slots_free, CORE_SLOTS);
    }
    ck_assert_uint_gt(stats.slot_waits, 0);
    for (i = 0; i < MANY; i++) {
        gb_assert_ok(core_upload_finish(upload[i], &w[i], NULL, &err), err);
        gb_upload_free(upload[i]);
        core_wake_done(&w[i]);
        snprintf(name, sizeof(name), "b%d", i);
        gb_assert_ok(core_download(f.core, "default", name, 0, SIZE, back, &err), err);
        ck_assert_int_eq(memcmp(data, back, SIZE), 0);
        gb_assert_ok(core_buffer_delete(f.core, "default", name, &err), err);
    }
    core_until_idle(&f);
    core_fixture_done(&f);
    free(data);
    free(back);
}
END_TEST

/* --- lists and turns ---------------------------------------------------------------------------------------------- */

START_TEST(idlist_keeps_order) {
    struct gb_idlist list = {0};
    int things[200];
    int64_t id = 0;
    int i;

    for (i = 0; i < 200; i++)
        ck_assert_int_eq(gb_idlist_put(&list, (i * 37) % 200 + 1, &things[(i * 37) % 200]), 0);
    for (i = 0; i < 200; i++)
        ck_assert_ptr_eq(gb_idlist_after(&list, id, &id), &things[i]);
    ck_assert_ptr_null(gb_idlist_after(&list, id, &id));
    for (i = 0; i < 200; i += 2)
        gb_idlist_take(&list, i + 1);
    gb_idlist_take(&list, 1); /* gone already */
    gb_idlist_take(&list, 1000);
    ck_assert_uint_eq(list.count, 100);
    for (i = 1, id = 0; i < 200; i += 2)
        ck_assert_ptr_eq(gb_idlist_after(&list, id, &id), &things[i]);
    ck_assert_ptr_eq(gb_idlist_after(&list, 1, NULL), &things[1]);
    gb_idlist_done(&list);
}
END_TEST

START_TEST(turns_are_taken_in_order) {
    struct gb_fifo_lock fifo = {0};
    struct gb_fifo_waiter t[3];

    ck_assert(gb_fifo_lock_acquire(&fifo, &t[0]));
    ck_assert(!gb_fifo_lock_acquire(&fifo, &t[1]));
    ck_assert(!gb_fifo_lock_acquire(&fifo, &t[2]));
    ck_assert_ptr_eq(gb_fifo_lock_release(&fifo), &t[1]);
    ck_assert_ptr_eq(gb_fifo_lock_release(&fifo), &t[2]);
    ck_assert(fifo.taken);
    ck_assert_ptr_null(gb_fifo_lock_release(&fifo));
    ck_assert(!fifo.taken);
    ck_assert(gb_fifo_lock_acquire(&fifo, &t[1]));
}
END_TEST

/* --- quota -------------------------------------------------------------------------------------------------------- */

#define QUOTA_THREADS 8
#define QUOTA_ROUNDS 2000

struct taker {
    struct gb_session *session;
    _Atomic uint64_t *most;
    unsigned refused;
    unsigned number;
};

static void *take_and_give(void *arg) {
    struct taker *t = arg;
    uint64_t bytes = 100 + t->number * 7;
    uint64_t most;
    int i;

    for (i = 0; i < QUOTA_ROUNDS; i++) {
        int r;

        pthread_mutex_lock(&t->session->lock);
        r = gb_quota_take_locked(t->session, bytes, 1, NULL);
        most = atomic_load(t->most);
        if (t->session->used_bytes > most)
            atomic_store(t->most, t->session->used_bytes);
        pthread_mutex_unlock(&t->session->lock);
        if (r < 0) {
            t->refused++;
            sched_yield();
            continue;
        }
        sched_yield();
        pthread_mutex_lock(&t->session->lock);
        gb_quota_give_locked(t->session, bytes, 1);
        pthread_mutex_unlock(&t->session->lock);
    }
    return NULL;
}

START_TEST(quota_holds_under_threads) {
    struct core_fixture f;
    struct gb_session_params params = {.name = {"q"}, .has_quota_bytes = true, .has_quota_buffers = true};
    struct gb_error err = GB_ERROR_INIT;
    struct taker takers[QUOTA_THREADS];
    pthread_t threads[QUOTA_THREADS];
    _Atomic uint64_t most = 0;
    struct gb_session *s;
    struct gb_error own = GB_ERROR_INIT;
    int i;

    core_fixture_init(&f, "host");
    params.quota.bytes = 400;
    params.quota.buffers = 3;
    gb_assert_ok(core_session_create(f.core, &params, &err), err);
    s = gb_session_find(f.core, &params.name, &err);
    /* The threads share one session's quota. All sessions share buffers_max. */
    for (i = 0; i < QUOTA_THREADS; i++) {
        takers[i] = (struct taker){.session = s, .most = &most, .number = (unsigned)i};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, take_and_give, &takers[i]), 0);
    }
    for (i = 0; i < QUOTA_THREADS; i++)
        pthread_join(threads[i], NULL);
    ck_assert_uint_le(atomic_load(&most), 400);
    ck_assert_uint_gt(atomic_load(&most), 0);
    pthread_mutex_lock(&s->lock);
    ck_assert_uint_eq(s->used_bytes, 0);
    ck_assert_uint_eq(s->counted_buffers, 0);
    gb_assert_ok(gb_quota_take_locked(s, 300, 2, &own), own);
    gb_assert_fails(gb_quota_take_locked(s, 101, 0, &own), own, GB_ERR_QUOTA_EXCEEDED);
    gb_quota_take_locked(s, 101, 0, &own);
    ck_assert(own.has_numbers);
    ck_assert_uint_eq(own.limit_bytes, 400);
    ck_assert_uint_eq(own.used_bytes, 300);
    ck_assert_uint_eq(own.requested_bytes, 101);
    own = GB_ERROR_INIT;
    gb_assert_fails(gb_quota_take_locked(s, 1, 2, &own), own, GB_ERR_QUOTA_EXCEEDED);
    gb_assert_fails(gb_quota_take_locked(s, UINT64_MAX, 0, &own), own, GB_ERR_QUOTA_EXCEEDED);
    gb_assert_fails(gb_quota_take_locked(s, 0, UINT64_MAX, &own), own, GB_ERR_QUOTA_EXCEEDED);
    /* A refused charge leaves nothing behind. */
    ck_assert_uint_eq(s->used_bytes, 300);
    ck_assert_uint_eq(s->counted_buffers, 2);
    ck_assert_uint_eq(atomic_load(&f.core->counted_buffers), 2);
    gb_quota_give_locked(s, 300, 2);
    pthread_mutex_unlock(&s->lock);
    gb_session_unref(s);
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_util");

    gb_test_add(suite, "slots", slots_are_the_set_and_no_more, 30);
    gb_test_add(suite, "slots_fifo", slots_go_to_who_waited_longest, 30);
    gb_test_add(suite, "transfers", more_transfers_than_slots, 120);
    gb_test_add(suite, "idlist", idlist_keeps_order, 30);
    gb_test_add(suite, "turns", turns_are_taken_in_order, 30);
    gb_test_add(suite, "quota", quota_holds_under_threads, 60);
    return gb_test_run(suite);
}
