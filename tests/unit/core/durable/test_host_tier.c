/* Bytes that leave a device for host memory, and come back. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "durable_fixture.h"
#include "gb_test.h"

#define LARGE DURABLE_LARGE
#define BLOCK ((LARGE + 4095u) / 4096u * 4096u)
#define OTHER (2u * 1024u * 1024u)

static enum gb_spill to; /* of evict */

static void evict_fn(struct gb_core *core, const struct gb_locator *at, const struct gb_buffer_check *check,
                     struct gb_buffer_call *call) {
    gb_buffer_evict_to(core, at, check, to, call);
}

static int evict(struct core_fixture *f, const char *name, enum gb_spill where, struct gb_error *err) {
    to = where;
    *err = GB_ERROR_INIT;
    return durable_do(f, evict_fn, name, NULL, err);
}

static void evict_ok(struct core_fixture *f, const char *name, enum gb_spill where) {
    struct gb_error err;

    gb_assert_ok(evict(f, name, where, &err), err);
}

static void open_tier(struct core_fixture *f, const char *spec, uint64_t bytes) {
    core_fixture_prepare(f, spec);
    f->durable = true;
    f->config.durable_lag_ms = 3600 * 1000;
    f->config.spill_host_bytes = bytes;
    core_fixture_open(f);
}

static struct gb_storage_numbers numbers(struct core_fixture *f) {
    struct gb_storage_numbers n;

    gb_storage_stat(f->core, &n);
    return n;
}

/* Blocks are given back by a thread of the disk. */
static void until_used(struct core_fixture *f, uint64_t bytes) {
    while (numbers(f).host.used_bytes != bytes)
        usleep(1000);
}

/* Counted after the buffer has its bytes. */
static void until_loaded_from_host(struct core_fixture *f, uint64_t count) {
    while (numbers(f).loads_from_host != count)
        usleep(1000);
}

static void put_spill(struct core_fixture *f, const char *name, unsigned seed, size_t n, enum gb_spill spill) {
    struct gb_upload_params p = core_upload_params("default", name, n);
    struct gb_error err = GB_ERROR_INIT;

    p.buffer.has_spill = true;
    p.buffer.spill = spill;
    core_bytes(seed, durable_sent, n);
    gb_assert_ok(core_upload(f->core, &p, durable_sent, NULL, &err), err);
}

/* Waits for the load. failed: one that failed before may still be reported. */
static void load_after(struct core_fixture *f, const char *name, bool failed) {
    const struct gb_locator at = core_at("default", name);
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_rec rec;

    while (gb_buffer_load(f->core, &at, &rec, &err) < 0) {
        ck_assert(failed || err.code == GB_ERR_NOT_LOADED);
        err = GB_ERROR_INIT;
        usleep(1000);
    }
    gb_buffer_rec_done(&rec);
}

static void load(struct core_fixture *f, const char *name) {
    load_after(f, name, false);
}

static const char *const specs[] = {"host", "host:discrete"};

START_TEST(test_there_and_back) {
    struct gb_buffer_rec before;
    struct gb_buffer_rec after;
    struct gb_error err = GB_ERROR_INIT;
    struct core_fixture f;

    open_tier(&f, specs[_i], 2 * BLOCK);
    durable_put_ok(&f, "x", 1, LARGE, GB_DURABILITY_NONE);
    before = durable_get(&f, "x");
    evict_ok(&f, "x", GB_SPILL_HOST);
    after = durable_get(&f, "x");
    ck_assert_int_eq(after.state, GB_BUFFER_STORED);
    ck_assert(after.in_host);
    ck_assert_int_eq(after.generation, before.generation);
    ck_assert_int_eq(after.stored_generation, 0);
    ck_assert_uint_eq(numbers(&f).host.used_bytes, BLOCK);
    ck_assert_uint_eq(numbers(&f).host.buffers, 1);
    ck_assert_uint_eq(numbers(&f).evictions_to_host, 1);
    durable_assert_bytes(&f, "x", 1, LARGE); /* from there */
    ck_assert_int_eq(durable_get(&f, "x").state, GB_BUFFER_STORED);
    evict_ok(&f, "x", GB_SPILL_HOST); /* nothing to do */
    load(&f, "x");
    after = durable_get(&f, "x");
    ck_assert_int_eq(after.state, GB_BUFFER_READY);
    ck_assert(!after.in_host);
    ck_assert_uint_eq(after.crc32c, before.crc32c);
    durable_assert_bytes(&f, "x", 1, LARGE);
    until_used(&f, 0);
    ck_assert_uint_eq(numbers(&f).host.kept_bytes, BLOCK);
    until_loaded_from_host(&f, 1);
    evict_ok(&f, "x", GB_SPILL_HOST); /* into the block that was kept */
    ck_assert_uint_eq(numbers(&f).host.kept_bytes, 0);
    ck_assert_uint_eq(numbers(&f).evictions_to_host, 2);
    durable_assert_bytes(&f, "x", 1, LARGE);
    durable_put_ok(&f, "x", 2, LARGE, GB_DURABILITY_NONE); /* over it */
    until_used(&f, 0);
    durable_assert_bytes(&f, "x", 2, LARGE);
    evict_ok(&f, "x", GB_SPILL_HOST);
    gb_assert_ok(core_buffer_delete(f.core, "default", "x", &err), err);
    until_used(&f, 0);
    core_fixture_done(&f);
}
END_TEST

/* What is durable stays on the disk, and comes back from host memory all the same. */
START_TEST(test_beside_the_disk) {
    struct core_fixture f;

    open_tier(&f, specs[_i], BLOCK);
    durable_put_ok(&f, "x", 1, LARGE, GB_DURABILITY_SYNC);
    ck_assert_uint_eq(numbers(&f).disk.writes, 1);
    evict_ok(&f, "x", GB_SPILL_HOST);
    ck_assert(durable_get(&f, "x").in_host);
    ck_assert_int_gt(durable_get(&f, "x").stored_generation, 0);
    load(&f, "x");
    until_loaded_from_host(&f, 1);
    ck_assert_uint_eq(numbers(&f).disk.reads, 0);
    until_used(&f, 0);
    evict_ok(&f, "x", GB_SPILL_HOST);
    evict_ok(&f, "x", GB_SPILL_DISK); /* it is there: the block is given back */
    ck_assert(!durable_get(&f, "x").in_host);
    until_used(&f, 0);
    ck_assert_uint_eq(numbers(&f).disk.writes, 1);
    load(&f, "x");
    evict_ok(&f, "x", GB_SPILL_HOST);
    core_fixture_close(&f);
    core_fixture_open(&f);
    ck_assert_int_eq(durable_get(&f, "x").state, GB_BUFFER_STORED);
    ck_assert(!durable_get(&f, "x").in_host);
    durable_assert_bytes(&f, "x", 1, LARGE);
    core_fixture_done(&f);
}
END_TEST

START_TEST(test_no_room) {
    struct core_fixture f;
    struct gb_error err;

    open_tier(&f, "host:discrete", BLOCK);
    put_spill(&f, "x", 1, LARGE, GB_SPILL_HOST);
    put_spill(&f, "y", 2, LARGE, GB_SPILL_HOST);
    evict_ok(&f, "x", GB_SPILL_NEVER); /* where its spill says */
    ck_assert(durable_get(&f, "x").in_host);
    ck_assert_int_eq(evict(&f, "y", GB_SPILL_HOST, &err), -1);
    ck_assert_int_eq(err.code, GB_ERR_STORAGE_FULL);
    ck_assert_uint_eq(err.limit_bytes, BLOCK);
    ck_assert_uint_eq(err.used_bytes, BLOCK);
    ck_assert_int_eq(durable_get(&f, "y").state, GB_BUFFER_READY);
    evict_ok(&f, "y", GB_SPILL_NEVER); /* to the disk, as there is no room */
    ck_assert_int_eq(durable_get(&f, "y").state, GB_BUFFER_STORED);
    ck_assert(!durable_get(&f, "y").in_host);
    ck_assert_uint_eq(numbers(&f).evictions, 2);
    ck_assert_uint_eq(numbers(&f).evictions_to_host, 1);
    evict_ok(&f, "x", GB_SPILL_DISK); /* from host memory to the disk */
    ck_assert(!durable_get(&f, "x").in_host);
    until_used(&f, 0);
    durable_assert_bytes(&f, "x", 1, LARGE);
    durable_assert_bytes(&f, "y", 2, LARGE);
    core_fixture_done(&f);
}
END_TEST

/* A block of another size is kept until its room is needed. */
START_TEST(test_kept_blocks_make_room) {
    struct core_fixture f;

    open_tier(&f, "host", BLOCK);
    durable_put_ok(&f, "x", 1, LARGE, GB_DURABILITY_NONE);
    durable_put_ok(&f, "y", 2, OTHER, GB_DURABILITY_NONE);
    evict_ok(&f, "x", GB_SPILL_HOST);
    load(&f, "x");
    until_used(&f, 0);
    evict_ok(&f, "y", GB_SPILL_HOST);
    ck_assert_uint_eq(numbers(&f).host.used_bytes, OTHER);
    ck_assert_uint_eq(numbers(&f).host.kept_bytes, 0);
    durable_assert_bytes(&f, "y", 2, OTHER);
    core_fixture_done(&f);
}
END_TEST

START_TEST(test_refusals) {
    struct gb_upload_params p = core_upload_params("default", "pinned", LARGE);
    struct core_fixture f;
    struct gb_error err;

    open_tier(&f, "host:discrete", 0);
    durable_put_ok(&f, "x", 1, LARGE, GB_DURABILITY_NONE);
    ck_assert_int_eq(evict(&f, "x", GB_SPILL_HOST, &err), -1);
    ck_assert_int_eq(err.code, GB_ERR_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(err.detail, "--spill-host-bytes"));
    put_spill(&f, "y", 2, LARGE, GB_SPILL_HOST);
    evict_ok(&f, "y", GB_SPILL_NEVER); /* no host memory: the disk */
    ck_assert(!durable_get(&f, "y").in_host);
    core_fixture_done(&f);

    open_tier(&f, "host:discrete", BLOCK);
    p.buffer.kind = GB_KIND_PINNED;
    p.buffer.has_kind = true;
    core_bytes(1, durable_sent, LARGE);
    err = GB_ERROR_INIT;
    gb_assert_ok(core_upload(f.core, &p, durable_sent, NULL, &err), err);
    ck_assert_int_eq(evict(&f, "pinned", GB_SPILL_HOST, &err), -1);
    ck_assert_int_eq(err.code, GB_ERR_INVALID_ARGUMENT);
    evict_ok(&f, "pinned", GB_SPILL_DISK);
    durable_assert_bytes(&f, "pinned", 1, LARGE);
    core_fixture_done(&f);
}
END_TEST

/* Page-locking, the copy and what follows it fail: the bytes stay, and no block is lost. */
static const char *const faults[] = {"fault:kind_alloc=cudaErrorMemoryAllocation:host:discrete",
                                     "fault:move=cudaErrorInvalidValue:host:discrete",
                                     "fault:complete@N=cudaErrorInvalidValue:host:discrete"};

START_TEST(test_faults) {
    char spec[128];
    struct core_fixture f;
    struct gb_error err;
    int n;

    /* Which watch the copy's is depends on the upload's; each of the first ones fails in its turn. */
    for (n = 1; n <= (_i == 2 ? 8 : 1); n++) {
        const char *at = strchr(faults[_i], 'N');

        if (_i == 2)
            snprintf(spec, sizeof(spec), "%.*s%d%s", (int)(at - faults[_i]), faults[_i], n, at + 1);
        open_tier(&f, _i == 2 ? spec : faults[_i], BLOCK);
        if (durable_put(&f, "x", 1, LARGE, GB_DURABILITY_NONE, NULL, &err) == 0 &&
            evict(&f, "x", GB_SPILL_HOST, &err) < 0) {
            ck_assert_int_eq(durable_get(&f, "x").state, GB_BUFFER_READY);
            until_used(&f, 0);
        } else {
            ck_assert_int_eq(_i, 2);
        }
        core_fixture_done(&f);
    }
}
END_TEST

/* A load that cannot have memory leaves the bytes where they are. */
START_TEST(test_a_load_fails) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    const struct gb_locator at = core_at("default", "x");
    struct gb_buffer_rec rec;

    open_tier(&f, "fault:move@2=cudaErrorInvalidValue:host:discrete", BLOCK);
    durable_put_ok(&f, "x", 1, LARGE, GB_DURABILITY_NONE);
    evict_ok(&f, "x", GB_SPILL_HOST);
    do {
        err = GB_ERROR_INIT;
        ck_assert_int_eq(gb_buffer_load(f.core, &at, &rec, &err), -1);
        usleep(1000);
    } while (err.code == GB_ERR_NOT_LOADED);
    ck_assert(durable_get(&f, "x").in_host);
    durable_assert_bytes(&f, "x", 1, LARGE);
    load_after(&f, "x", true);
    durable_assert_bytes(&f, "x", 1, LARGE);
    until_used(&f, 0);
    core_fixture_done(&f);
}
END_TEST

/* --- against a model ---------------------------------------------------------------------------------------------- */

#define NAMES 6u
#define STEPS CORE_ROUNDS(400)
#define UNIT (256u * 1024u)
#define TIER (6u * UNIT)

/* What a buffer has: seed 0, nothing. */
struct model {
    unsigned seed;
    size_t bytes;
};

static unsigned next_number(unsigned *state, unsigned below) {
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

/* The memory has no room for all of them, so that each write and each load may push others out. A refusal changes
 * nothing. */
static void model_put(struct core_fixture *f, const char *name, struct model *m, unsigned *state) {
    static const enum gb_spill spills[] = {GB_SPILL_DISK, GB_SPILL_HOST, GB_SPILL_HOST};
    size_t bytes = (1 + next_number(state, 4)) * UNIT - next_number(state, 2) * 5;
    struct gb_upload_params p = core_upload_params("default", name, bytes);
    unsigned seed = 1 + next_number(state, 1000);
    struct gb_error err = GB_ERROR_INIT;

    p.buffer.has_spill = p.buffer.has_durability = true;
    p.buffer.spill = spills[next_number(state, 3)];
    p.buffer.durability = (enum gb_durability)next_number(state, 3);
    core_bytes(seed, durable_sent, bytes);
    if (core_upload(f->core, &p, durable_sent, NULL, &err) == 0)
        *m = (struct model){seed, bytes};
    else
        ck_assert_msg(err.code == GB_ERR_OUT_OF_MEMORY, "%s", err.detail);
}

static void model_evict(struct core_fixture *f, const char *name, unsigned *state) {
    struct gb_error err;

    if (evict(f, name, (enum gb_spill)next_number(state, 3), &err) < 0)
        ck_assert_msg(err.code == GB_ERR_BUFFER_BUSY || err.code == GB_ERR_BUFFER_NOT_FOUND ||
                          err.code == GB_ERR_STORAGE_FULL,
                      "%s", err.detail);
}

/* The test does not wait for the call, which continues beside what follows. */
static void model_sweep(struct core_fixture *f, bool loads, unsigned *state) {
    struct gb_sweep_call *call = gb_call_new(sizeof(*call), NULL, NULL);
    struct gb_name session = core_name("default");
    struct gb_name all = {""};

    call->to = (enum gb_spill)next_number(state, 3);
    (loads ? gb_session_load : gb_session_evict)(f->core, &session, &all, call);
    gb_call_unref(&call->base);
}

static void model_delete(struct core_fixture *f, const char *name, struct model *m) {
    struct gb_error err = GB_ERROR_INIT;
    int r = core_buffer_delete(f->core, "default", name, &err);

    ck_assert_msg(r == (m->seed > 0 ? 0 : -1), "%s", err.detail);
    m->seed = 0;
}

static void model_check(struct core_fixture *f, const char *name, const struct model *m) {
    struct gb_storage_numbers n = numbers(f);
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_rec rec;

    ck_assert_uint_le(n.host.used_bytes + n.host.kept_bytes, n.host.limit_bytes);
    if (core_buffer_get(f->core, "default", name, &rec, &err) < 0) {
        ck_assert_uint_eq(m->seed, 0);
        return;
    }
    gb_buffer_rec_done(&rec);
    durable_assert_bytes(f, name, m->seed, m->bytes);
}

static void model_step(struct core_fixture *f, struct model *models, unsigned *state) {
    unsigned i = next_number(state, NAMES);
    char name[8];

    snprintf(name, sizeof(name), "b%u", i);
    switch (next_number(state, 12)) {
    case 0:
    case 1:
    case 2:
        model_put(f, name, &models[i], state);
        break;
    case 3:
    case 4:
    case 5:
        model_evict(f, name, state);
        break;
    case 6:
        model_sweep(f, false, state);
        break;
    case 7:
    case 8:
        model_sweep(f, true, state);
        break;
    case 9:
        model_delete(f, name, &models[i]);
        break;
    default:
        model_check(f, name, &models[i]);
        break;
    }
}

START_TEST(test_model) {
    struct model models[NAMES] = {{0, 0}};
    unsigned state = (unsigned)_i * 7919u + 1;
    struct core_fixture f;
    char name[8];
    unsigned i;

    open_tier(&f, _i % 2 > 0 ? "host:discrete,bytes=2M" : "host:bytes=2M", TIER);
    for (i = 0; i < STEPS; i++)
        model_step(&f, models, &state);
    for (i = 0; i < NAMES; i++) {
        snprintf(name, sizeof(name), "b%u", i);
        model_check(&f, name, &models[i]);
        model_delete(&f, name, &models[i]);
    }
    until_used(&f, 0);
    ck_assert_uint_le(numbers(&f).host.kept_bytes, TIER);
    core_until_idle(&f);
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("host tier");

    gb_test_add_loop(suite, "there and back", test_there_and_back, 60, 2);
    gb_test_add_loop(suite, "beside the disk", test_beside_the_disk, 60, 2);
    gb_test_add(suite, "no room", test_no_room, 60);
    gb_test_add(suite, "kept blocks", test_kept_blocks_make_room, 60);
    gb_test_add(suite, "refusals", test_refusals, 60);
    gb_test_add_loop(suite, "faults", test_faults, 60, 3);
    gb_test_add(suite, "a load fails", test_a_load_fails, 60);
    gb_test_add_loop(suite, "a model", test_model, 120, 8);
    return gb_test_run(suite);
}
