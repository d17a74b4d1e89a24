/* Room in memory and loads against a model. Threads write, evict, load, checkpoint and restore more buffers than the
 * memory has room for. Each has buffers of its own, whose bytes only it changes, so that it knows them; where the bytes
 * are is everybody's doing. The threads are moved against each other (jitter.h), and freed memory is overwritten: an
 * eviction or a load that ended twice, or whose owner had gone, would not pass. */
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core_fixture.h"
#include "gb_test.h"
#include "jitter.h"

#define THREADS 4
#define NAMES 3
#define ROUNDS 100
#define UNIT (72u * 1024)
#define BYTES_MAX (4 * UNIT)
#define TIER (1024u * 1024)

/* The memory has 2 MiB, and the largest buffers together some 3.4. */
static const char *const specs[] = {"host:bytes=2M", "host:discrete,bytes=2M"};

struct model {
    unsigned seed; /* 0: there is no buffer */
    size_t bytes;
};

struct worker {
    struct core_fixture *f;
    int number;
    unsigned state;
    struct model models[NAMES];
    struct gb_name names[NAMES];
    struct core_wake wake; /* of one call at a time */
    unsigned checkpoints;
    unsigned written;
    char *data;
    char *back;
};

static unsigned draw(struct worker *w, unsigned below) {
    w->state = w->state * 1664525u + 1013904223u;
    return (w->state >> 8) % below;
}

/* Another one's loads and evictions may be in the way. */
static void permit(const struct gb_error *err) {
    switch (err->code) {
    case GB_ERR_OUT_OF_MEMORY:
    case GB_ERR_NOT_LOADED:
    case GB_ERR_BUFFER_NOT_FOUND:
    case GB_ERR_BUFFER_BUSY:
    case GB_ERR_STORAGE_FULL:
        return;
    default:
        ck_abort_msg("%s: %s", gb_code_slug(err->code), err->detail);
    }
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

/* Waits for a call and drops it. */
static bool ended(struct worker *w, struct gb_call *call) {
    bool good;

    core_wake_wait(&w->wake);
    good = call->error.code == GB_OK;
    if (!good)
        permit(&call->error);
    gb_call_unref(call);
    return good;
}

static struct gb_locator at(const struct worker *w, unsigned i) {
    return (struct gb_locator){{"default"}, w->names[i]};
}

static void describe(struct worker *w, struct gb_buffer_params *p) {
    p->has_spill = p->has_durability = true;
    p->spill = draw(w, 3) > 0 ? GB_SPILL_HOST : GB_SPILL_DISK; /* bytes that cannot leave would fill the memory */
    p->durability = (enum gb_durability)draw(w, 3);
}

static void put(struct worker *w, unsigned i) {
    size_t bytes = (1 + draw(w, 4)) * UNIT - draw(w, 2) * 5;
    struct gb_upload_params p = core_upload_params("default", w->names[i].s, bytes);
    unsigned seed = 1 + draw(w, 1000);
    struct gb_error err = GB_ERROR_INIT;

    describe(w, &p.buffer);
    core_bytes(seed, w->data, bytes);
    if (core_upload(w->f->core, &p, w->data, NULL, &err) < 0) {
        permit(&err);
        return;
    }
    w->models[i] = (struct model){seed, bytes};
    w->written++;
}

/* Goes away while it waits for room, or has some. */
static void break_off(struct worker *w, unsigned i) {
    struct gb_upload_params p = core_upload_params("default", w->names[i].s, BYTES_MAX);
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload *upload = NULL;
    struct core_wake wake;

    core_wake_init(&wake);
    p.waker = core_waker(&wake);
    p.wait_ms = draw(w, 50);
    if (gb_upload_begin(w->f->core, &p, &upload, &err) < 0)
        permit(&err);
    gb_upload_free(upload);
    core_wake_done(&wake);
}

static void evict(struct worker *w, unsigned i) {
    struct gb_buffer_call *call = gb_call_new(sizeof(*call), core_wake, &w->wake);
    const struct gb_locator buffer = at(w, i);

    gb_buffer_evict_to(w->f->core, &buffer, NULL, (enum gb_spill)draw(w, 3), call);
    ended(w, &call->base);
}

static void patch(struct worker *w, unsigned i) {
    struct gb_buffer_call *call = gb_call_new(sizeof(*call), core_wake, &w->wake);
    struct gb_buffer_params p = {.session = {"default"}, .name = w->names[i]};

    describe(w, &p);
    p.has_resident = true;
    p.resident = draw(w, 4) == 0;
    gb_buffer_patch(w->f->core, &p, NULL, call);
    ended(w, &call->base);
}

/* Wants the bytes in memory, and waits for them or goes away. */
static void load(struct worker *w, unsigned i) {
    const struct gb_locator buffer = at(w, i);
    struct gb_load_waiter waiter = {.waker = core_waker(&w->wake)};
    uint64_t sequence = gb_loads_sequence(w->f->core);
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_rec rec;

    if (gb_buffer_load(w->f->core, &buffer, &rec, &err) == 0) {
        gb_buffer_rec_done(&rec);
        return;
    }
    permit(&err);
    if (err.code != GB_ERR_NOT_LOADED || !gb_loads_wait(w->f->core, sequence, &waiter))
        return;
    if (draw(w, 2) > 0)
        core_wake_wait(&w->wake);
    gb_loads_leave(w->f->core, &waiter);
    w->wake.seen = w->wake.count; /* a wake that came before the leave belongs to no wait */
}

/* All buffers, beside what the others do. It is not waited for. */
static void sweep(struct worker *w, bool loads) {
    struct gb_sweep_call *call = gb_call_new(sizeof(*call), NULL, NULL);
    const struct gb_name session = {"default"};
    const struct gb_name all = {""};

    call->to = (enum gb_spill)draw(w, 3);
    (loads ? gb_session_load : gb_session_evict)(w->f->core, &session, &all, call);
    gb_call_unref(&call->base);
}

static void remove_buffer(struct worker *w, unsigned i) {
    struct gb_buffer_call *call = gb_call_new(sizeof(*call), core_wake, &w->wake);
    const struct gb_locator buffer = at(w, i);

    gb_buffer_delete(w->f->core, &buffer, NULL, call);
    ck_assert_int_eq(ended(w, &call->base), w->models[i].seed > 0);
    w->models[i].seed = 0;
}

static void check(struct worker *w, unsigned i) {
    const struct model *m = &w->models[i];
    struct gb_error err = GB_ERROR_INIT;

    memset(w->back, 0, m->bytes);
    if (core_download(w->f->core, "default", w->names[i].s, 0, m->bytes, w->back, &err) < 0) {
        permit(&err);
        ck_assert(err.code != GB_ERR_BUFFER_NOT_FOUND || m->seed == 0);
        return;
    }
    ck_assert_uint_gt(m->seed, 0);
    core_bytes(m->seed, w->data, m->bytes);
    ck_assert(memcmp(w->data, w->back, m->bytes) == 0);
}

/* --- checkpoints -------------------------------------------------------------------------------------------------- */

static bool keep(struct worker *w, const struct gb_name *name, const struct gb_checkpoint_names *names) {
    struct gb_checkpoint_call *call = gb_call_new(sizeof(*call), core_wake, &w->wake);
    const struct gb_checkpoint_params params = {.session = {"default"}, .name = *name, .names = *names};

    gb_checkpoint_create(w->f->core, &params, call);
    return ended(w, &call->base);
}

static bool bring_back(struct worker *w, const struct gb_name *name) {
    struct gb_restore_call *call = gb_call_new(sizeof(*call), core_wake, &w->wake);
    const struct gb_restore_params params = {.checkpoint = *name, .replace = true, .eager = draw(w, 2) > 0};

    gb_checkpoint_restore(w->f->core, &params, call);
    return ended(w, &call->base);
}

static void drop(struct worker *w, const struct gb_name *name) {
    struct gb_call *call = gb_call_new(sizeof(*call), core_wake, &w->wake);

    gb_checkpoint_delete(w->f->core, name, call);
    ck_assert(ended(w, call));
}

/* The buffers that there are get the bytes back that they had, after another write or without one. */
static void there_and_back(struct worker *w) {
    struct gb_checkpoint_names names = {.names = w->names, .count = NAMES, .given = true};
    struct model before[NAMES];
    struct gb_name name;
    unsigned i;

    for (i = 0; i < NAMES; i++) {
        if (w->models[i].seed == 0)
            return;
    }
    snprintf(name.s, sizeof(name.s), "c%d.%u", w->number, w->checkpoints++);
    memcpy(before, w->models, sizeof(before));
    if (!keep(w, &name, &names))
        return;
    if (draw(w, 2) > 0)
        put(w, draw(w, NAMES));
    if (bring_back(w, &name))
        memcpy(w->models, before, sizeof(before));
    drop(w, &name);
}

/* --- all together ------------------------------------------------------------------------------------------------- */

static void step(struct worker *w) {
    unsigned i = draw(w, NAMES);

    switch (draw(w, 20)) {
    case 0:
    case 1:
    case 2:
    case 3:
        put(w, i);
        break;
    case 4:
    case 5:
        evict(w, i);
        break;
    case 6:
        sweep(w, false);
        break;
    case 7:
        sweep(w, true);
        break;
    case 8:
    case 9:
        load(w, i);
        break;
    case 10:
        patch(w, i);
        break;
    case 11:
    case 12:
    case 13:
        there_and_back(w);
        break;
    case 14:
        break_off(w, i);
        break;
    case 15:
        remove_buffer(w, i);
        put(w, i);
        break;
    default:
        check(w, i);
    }
}

static void *work(void *arg) {
    struct worker *w = arg;
    int i;

    for (i = 0; i < ROUNDS; i++)
        step(w);
    return NULL;
}

static void worker_init(struct worker *w, struct core_fixture *f, int number, int loop) {
    unsigned i;

    *w = (struct worker){.f = f, .number = number, .state = (unsigned)(number + 1) * 7919u + (unsigned)loop * 104729u};
    w->data = malloc(BYTES_MAX);
    w->back = malloc(BYTES_MAX);
    ck_assert(w->data && w->back);
    core_wake_init(&w->wake);
    for (i = 0; i < NAMES; i++)
        snprintf(w->names[i].s, sizeof(w->names[i].s), "b%d.%u", number, i);
}

static void worker_done(struct worker *w) {
    unsigned i;

    for (i = 0; i < NAMES; i++) {
        check(w, i);
        remove_buffer(w, i);
    }
    core_wake_done(&w->wake);
    free(w->data);
    free(w->back);
}

static void open_fixture(struct core_fixture *f, const char *spec) {
    core_fixture_prepare(f, spec);
    f->durable = true;
    f->config.durable_lag_ms = 20;
    f->config.spill_host_bytes = TIER;
    f->config.min_resident_ms = 1;
    f->config.evict_high = 80;
    f->config.evict_low = 60;
    core_fixture_open(f);
}

static bool is_tier_empty(void *arg) {
    struct core_fixture *f = arg;
    struct gb_storage_numbers n;

    gb_storage_stat(f->core, &n);
    return n.host.used_bytes == 0 && n.buffers == 0 && n.movable_bytes == 0;
}

START_TEST(test_model) {
    struct worker workers[THREADS];
    struct gb_storage_numbers n;
    struct core_fixture f;
    pthread_t threads[THREADS];
    unsigned written = 0;
    int i;

    mallopt(M_PERTURB, 0x5a);
    open_fixture(&f, specs[_i % 2]);
    jitter_set(true);
    for (i = 0; i < THREADS; i++) {
        worker_init(&workers[i], &f, i, _i);
        ck_assert_int_eq(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    jitter_set(false);
    gb_storage_stat(f.core, &n);
    ck_assert_uint_gt(n.evictions_for_room, 0);
    ck_assert_uint_gt(n.loads, 0);
    for (i = 0; i < THREADS; i++) {
        written += workers[i].written;
        worker_done(&workers[i]);
    }
    ck_assert_uint_gt(written, THREADS); /* it was not all refusals */
    core_until(is_tier_empty, &f, "nothing is left of what has left memory");
    core_until_idle(&f);
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    /* Room is short on a small device only. */
    Suite *suite = (unsetenv("GB_TEST_BACKEND"), suite_create("room"));

    gb_test_add_loop(suite, "a model", test_model, 300, 8);
    return gb_test_run(suite);
}
