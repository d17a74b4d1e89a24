/* Uploads in several requests that are completed with a digest: what is read, and what happens meanwhile. */
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/runtime/runtime.h"
#include "gb_test.h"
#include "multipart_fixture.h"

#define BYTES (5 * CORE_SLOT_BYTES + 1234)

static const struct {
    const char *spec;
    enum gb_kind kind;
} places[] = {{"host:bytes=64M", GB_KIND_DEVICE},
              {"host:discrete,bytes=64M", GB_KIND_DEVICE},
              {"host:discrete,bytes=64M", GB_KIND_PINNED},
              {"host:discrete,bytes=64M,managed=attach", GB_KIND_MANAGED}};
#define PLACES 4

struct fix {
    struct core_fixture f;
    struct gb_core *core;
    struct gb_error err;
    struct gb_name session;
    char data[BYTES];
    char old[BYTES];
    char id[GB_MULTIPART_ID_SIZE];
};

/* "x" has the old bytes; an upload to it has begun. */
static struct fix *fix_open(int place) {
    struct fix *x = calloc(1, sizeof(*x));
    struct gb_upload_params p = core_upload_params("default", "x", BYTES);
    struct intake_result r;

    core_fixture_init(&x->f, places[place].spec);
    x->core = x->f.core;
    x->session = core_name("default");
    x->err = GB_ERROR_INIT;
    core_bytes(11, x->data, BYTES);
    core_put(x->core, &p, 12, x->old);
    p.buffer.kind = places[place].kind;
    p.buffer.has_kind = true;
    gb_assert_ok(intake_begin(x->core, &p, &r, &x->err), x->err);
    memcpy(x->id, r.view.id, sizeof(x->id));
    return x;
}

static void fix_done(struct fix *x) {
    intake_fixture_done(&x->f);
    free(x);
}

static void send(struct fix *x) {
    gb_assert_ok(intake_part(x->core, x->id, 0, x->data, BYTES, &x->err), x->err);
}

START_TEST(a_wrong_one) {
    struct fix *x = fix_open(_i);
    struct gb_multipart_view view;
    struct intake_result r;
    int i;

    x->data[BYTES - 1] ^= 1;
    send(x);
    x->data[BYTES - 1] ^= 1;
    for (i = 0; i < 2; i++)
        gb_assert_fails(intake_complete_digest(x->core, x->id, x->data, BYTES, NULL, &x->err), x->err,
                        GB_ERR_DIGEST_MISMATCH);
    core_expect(x->core, "default", "x", x->old, BYTES);
    intake_get(x->core, x->id, &view);
    ck_assert(!view.completed && view.gap_count == 0);
    send(x);
    gb_assert_ok(intake_complete_digest(x->core, x->id, x->data, BYTES, &r, &x->err), x->err);
    ck_assert(r.view.completed && !r.created);
    ck_assert_int_eq(r.rec.generation, 2);
    core_expect(x->core, "default", "x", x->data, BYTES);
    fix_done(x);
}
END_TEST

/* Behind a gate: everything else is refused, then the computation continues (0), or the upload is deleted (1). */
START_TEST(meanwhile) {
    struct fix *x = fix_open(_i % 2);
    bool delete = _i / 2;
    struct gb_name session = core_name("default");
    struct gb_multipart_expected expected;
    struct gb_upload *part;
    struct core_call p;
    struct core_gate gate;
    struct core_wake w;

    send(x);
    intake_digest(x->data, BYTES, &expected);
    core_wake_init(&w);
    core_gate_close(&gate, &x->f, "default");
    core_call_begin(&p);
    gb_multipart_complete(x->core, &session, x->id, NULL, &expected, p.call.multipart);
    ck_assert(!core_call_over(&p));
    gb_assert_fails(gb_multipart_part(x->core, &session, x->id, 0, 5, true, core_waker(&w), &part, &x->err), x->err,
                    GB_ERR_UPLOAD_BUSY);
    gb_assert_fails(intake_complete(x->core, x->id, NULL, NULL, NULL, &x->err), x->err, GB_ERR_UPLOAD_BUSY);
    gb_assert_fails(intake_complete_digest(x->core, x->id, x->data, BYTES, NULL, &x->err), x->err, GB_ERR_UPLOAD_BUSY);
    if (delete) {
        gb_assert_ok(intake_delete(x->core, x->id, &x->err), x->err);
        gb_assert_fails(core_call_end(&p, &x->err), x->err, GB_ERR_UPLOAD_NOT_FOUND);
        core_gate_open(&gate);
        core_expect(x->core, "default", "x", x->old, BYTES);
    } else {
        core_gate_open(&gate);
        gb_assert_ok(core_call_end(&p, &x->err), x->err);
        core_expect(x->core, "default", "x", x->data, BYTES);
    }
    core_wake_done(&w);
    fix_done(x);
}
END_TEST

/* What holds a lane until it may continue. */
struct block {
    struct gb_task task; /* first */
    sem_t entered;
    sem_t opened;
};

static void wait_in_lane(struct gb_task *task) {
    struct block *b = (struct block *)task;

    sem_post(&b->entered);
    while (sem_wait(&b->opened) < 0)
        continue;
}

static void block_lanes(struct gb_core *core, struct block *blocks) {
    int i;

    for (i = 0; i < GB_COMPUTE_LANES; i++) {
        blocks[i] = (struct block){.task = {.run = wait_in_lane}};
        sem_init(&blocks[i].entered, 0, 0);
        sem_init(&blocks[i].opened, 0, 0);
        gb_lane_post(&core->compute[i], &blocks[i].task);
        while (sem_wait(&blocks[i].entered) < 0)
            continue;
    }
}

/* As many clients read for digests as may, and none of them gets on: an upload is completed all the same. */
START_TEST(readers_in_the_way) {
    struct fix *x = fix_open(_i);
    struct gb_scan_params params = {
        .session = {"default"}, .name = {"x"}, .digests = 1u << GB_DIGEST_SHA512, .verify = true};
    struct block blocks[GB_COMPUTE_LANES];
    struct core_call many[GB_SCANS_MAX + 1];
    struct intake_result r;
    unsigned i;

    send(x);
    block_lanes(x->core, blocks);
    for (i = 0; i <= GB_SCANS_MAX; i++) {
        core_call_begin(&many[i]);
        gb_buffer_scan(x->core, &params, many[i].call.scan);
    }
    gb_assert_fails(core_call_end(&many[GB_SCANS_MAX], &x->err), x->err, GB_ERR_SATURATED);
    gb_assert_ok(intake_complete_digest(x->core, x->id, x->data, BYTES, &r, &x->err), x->err);
    ck_assert(r.view.completed);
    core_expect(x->core, "default", "x", x->data, BYTES);
    for (i = 0; i < GB_COMPUTE_LANES; i++)
        sem_post(&blocks[i].opened);
    for (i = 0; i < GB_SCANS_MAX; i++)
        gb_assert_ok(core_call_end(&many[i], &x->err), x->err);
    fix_done(x);
}
END_TEST

/* Every third stretch of 1000 bytes is left out. */
static uint64_t run_of(const void *arg, uint64_t at, bool *ret_left_out) {
    (void)arg;
    *ret_left_out = at / 1000 % 3 == 1;
    return 1000 - at % 1000;
}

static void choice_freed(void *arg) {
    atomic_fetch_add((atomic_uint *)arg, 1);
}

static bool is_freed(void *arg) {
    return atomic_load((atomic_uint *)arg) == 1;
}

/* The reading gives it back at its end, which may be after that of the call. */
static void until_freed(atomic_uint *freed) {
    core_until(is_freed, freed, "the choice is free");
    atomic_store(freed, 0);
}

/* The digest of a file that is not in memory as it is: a header comes before, and parts of the memory are not its. */
START_TEST(of_a_file) {
    static const char head[] = "a header";
    struct fix *x = fix_open(_i);
    struct gb_multipart_expected expected;
    char *file = malloc(sizeof(head) + BYTES);
    size_t n = sizeof(head);
    atomic_uint freed = 0;
    size_t at;

    memcpy(file, head, sizeof(head));
    for (at = 0; at < BYTES; at++)
        if (at / 1000 % 3 != 1)
            file[n++] = x->data[at];
    send(x);
    file[n - 1] ^= 1;
    intake_digest(file, n, &expected);
    expected.head = head;
    expected.head_n = sizeof(head);
    expected.choice = (struct gb_scan_choice){run_of, &freed, choice_freed};
    gb_assert_fails(core_do(&x->err, multipart, gb_multipart_complete, x->core, &x->session, x->id, NULL, &expected),
                    x->err, GB_ERR_DIGEST_MISMATCH);
    until_freed(&freed);
    file[n - 1] ^= 1;
    intake_digest(file, n, &expected);
    expected.head = head;
    expected.head_n = sizeof(head);
    expected.choice = (struct gb_scan_choice){run_of, &freed, choice_freed};
    gb_assert_ok(core_do(&x->err, multipart, gb_multipart_complete, x->core, &x->session, x->id, NULL, &expected),
                 x->err);
    until_freed(&freed);
    /* Without a digest nothing is read, and what was given is freed all the same. */
    expected.digests.given = 0;
    gb_assert_fails(core_do(&x->err, multipart, gb_multipart_complete, x->core, &x->session, x->id, NULL, &expected),
                    x->err, GB_ERR_UPLOAD_COMPLETED);
    until_freed(&freed);
    free(file);
    fix_done(x);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core: uploads completed with a digest");

    gb_test_add_loop(suite, "wrong", a_wrong_one, 60, PLACES);
    gb_test_add_loop(suite, "of a file", of_a_file, 60, PLACES);
    gb_test_add_loop(suite, "meanwhile", meanwhile, 60, 4);
    gb_test_add_loop(suite, "readers", readers_in_the_way, 60, PLACES);
    return gb_test_run(suite);
}
