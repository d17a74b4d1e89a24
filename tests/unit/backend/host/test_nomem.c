/* The host backend when malloc fails. Every allocation that a use case makes on the calling thread fails once, in turn.
 * The call may then fail with INTERNAL or OUT_OF_MEMORY. It must not crash, and objects made before it can still be
 * freed. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "failing_malloc.h"
#include "gb_test.h"

#ifdef GB_OWN_MALLOC

static void nothing(void *arg) {
    (void)arg;
}

static void heard(void *arg, const struct gb_error *error) {
    (void)error;
    __atomic_add_fetch((int *)arg, 1, __ATOMIC_SEQ_CST);
}

struct things {
    struct gb_backend *be;
    struct gb_stream *s1;
    struct gb_stream *s2;
    struct gb_event *event;
    struct gb_pool *pool;
    void *pinned;
    void *p[40];
    struct gb_location places[GB_KIND_COUNT];
    int accepted;
    int told;
};

/* Fills the streams' queues beyond their first size. */
static int queue_much(struct things *t, struct gb_error *err) {
    int i;

    for (i = 0; i < 60; i++) {
        if (gb_stream_call(t->be, t->s1, nothing, NULL, err) < 0 ||
            gb_mem_copy(t->be, t->p[0], t->pinned, 65536, GB_COPY_TO_DEVICE, t->s1, err) < 0)
            return -1;
    }
    return 0;
}

static int use(struct things *t, struct gb_error *err) {
    const struct gb_pool_config config = {.release_threshold_bytes = 0, .allow_internal_dependencies = true};
    char note[GB_BACKEND_NOTE_SIZE];
    int i;

    if (gb_backend_open("fault:fill@9=delay/0:host:discrete,managed=attach,bytes=128M", &t->be, note, err) < 0 ||
        gb_stream_create(t->be, 0, &t->s1, err) < 0 || gb_stream_create(t->be, 0, &t->s2, err) < 0 ||
        gb_event_create(t->be, 0, &t->event, err) < 0 || gb_pool_create(t->be, 0, &config, &t->pool, err) < 0 ||
        gb_pin_alloc(t->be, 1 << 20, &t->pinned, err) < 0)
        return -1;
    for (i = 0; i < 40; i++) {
        if (gb_mem_alloc(t->be, t->pool, i % 2 == 0 ? t->s1 : t->s2, 1 << 20, &t->p[i], err) < 0)
            return -1;
    }
    for (i = GB_KIND_SHARED; i < GB_KIND_COUNT; i++) {
        t->places[i].kind = (enum gb_kind)i;
        if (gb_mem_kind_alloc(t->be, 0, (enum gb_kind)i, 65536, &t->places[i].ptr, err) < 0 ||
            gb_mem_attach(t->be, &t->places[i], true, t->s1, err) < 0 ||
            gb_event_record_device(t->be, t->event, 0, err) < 0)
            return -1;
    }
    if (queue_much(t, err) < 0 || gb_event_record(t->be, t->event, t->s1, err) < 0 ||
        gb_stream_wait(t->be, t->s2, t->event, err) < 0 || gb_watch(t->be, t->event, heard, &t->told, err) < 0)
        return -1;
    t->accepted++;
    return gb_stream_sync(t->be, t->s1, err);
}

static void give_back(struct things *t) {
    struct gb_error err = GB_ERROR_INIT;
    int i;

    for (i = 0; i < 40; i++) {
        if (t->p[i])
            gb_assert_ok(gb_mem_free(t->be, t->p[i], t->s1, &err), err);
    }
    for (i = GB_KIND_SHARED; i < GB_KIND_COUNT; i++) {
        if (t->places[i].ptr)
            gb_assert_ok(gb_mem_kind_free(t->be, &t->places[i], 65536, &err), err);
    }
    if (t->be) {
        gb_stream_destroy(t->be, t->s1);
        gb_stream_destroy(t->be, t->s2);
        gb_event_destroy(t->be, t->event);
        gb_pool_destroy(t->be, t->pool);
        gb_pin_free(t->be, t->pinned);
    }
    gb_backend_close(t->be);
    ck_assert_int_eq(t->told, t->accepted);
}

START_TEST(every_allocation_may_fail) {
    long refused = 0;
    bool more = true;
    long n;

    for (n = 0; more; n++) {
        struct things things = {.be = NULL};
        struct gb_error err = GB_ERROR_INIT;
        int r;

        gb_allocations_here = n;
        r = use(&things, &err);
        more = gb_allocations_here < 0;
        gb_allocations_here = -1;
        if (r < 0) {
            ck_assert_msg(more, "a call refused without cause: %s", err.detail);
            ck_assert_msg(err.code == GB_ERR_INTERNAL || err.code == GB_ERR_OUT_OF_MEMORY, "%s", err.detail);
            ck_assert_str_ne(err.detail, "");
            refused++;
        }
        give_back(&things);
    }
    ck_assert_int_gt(refused, 10);
    ck_assert_int_gt(n, refused); /* some failures are recovered from */
}
END_TEST

int main(void) {
    Suite *suite = suite_create("host backend without memory");

    gb_test_add(suite, "every allocation may fail", every_allocation_may_fail, 120);
    return gb_test_run(suite);
}

#else

int main(void) {
    return 77; /* Automake's exit status of a skipped test */
}

#endif
