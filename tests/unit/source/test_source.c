/* Copies of files when the device refuses at any operation, when it dies and when malloc fails: they are refused, none
 * leaks, and they can be done again. Those of URLs, and what is wrong with a source, are in tests/e2e. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core_fixture.h"
#include "failing_malloc.h"
#include "gb_test.h"
#include "source/source.h"

#define BYTES ((9u << 20) + 12345) /* two parts */

static const char *const ops[] = {"alloc",       "copy",  "stream_create", "event_create", "event_record",
                                  "event_query", "watch", "complete",      "stream_wait",  "free"};
enum { OPS = sizeof(ops) / sizeof(ops[0]) };

static const char *const specs[] = {"host:bytes=64M", "host:discrete,bytes=64M"};

struct play {
    struct core_fixture f;
    struct gb_pulls *pulls;
    char folder[64];
    char *bytes;
    char *back;
};

static void play_open(struct play *p, const char *spec) {
    struct gb_pulls_config config = {.version = "test"};
    struct gb_error err = GB_ERROR_INIT;
    char path[128];
    FILE *file;

    core_fixture_init(&p->f, spec);
    config.core = p->f.core;
    gb_assert_ok(gb_pulls_open(&config, &p->pulls, &err), err);
    strcpy(p->folder, "/tmp/gb-source-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(p->folder));
    p->bytes = malloc(BYTES);
    p->back = malloc(BYTES);
    core_bytes(3, p->bytes, BYTES);
    snprintf(path, sizeof(path), "%s/x.bin", p->folder);
    file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(p->bytes, 1, BYTES, file), BYTES);
    ck_assert_int_eq(fclose(file), 0);
}

static void play_close(struct play *p) {
    gb_pulls_close(p->pulls);
    core_fixture_done(&p->f);
    gb_test_remove(p->folder);
    free(p->bytes);
    free(p->back);
}

/* Copies the file into "x". Returns 0, or -1 with err. */
static int copy(struct play *p, struct gb_error *err) {
    const char *folders[] = {p->folder};
    struct gb_source_params params = {.file = "x.bin", .folders = folders, .folder_count = 1};
    struct gb_pull_call *call;
    struct core_wake wake;
    int r = 0;

    core_wake_init(&wake);
    call = gb_call_new(sizeof(*call), core_wake, &wake);
    if (!call) {
        core_wake_done(&wake);
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for the call");
    }
    params.to.session = core_name("default");
    params.to.name = core_name("x");
    params.to.stream = core_name("default");
    params.to.kind = GB_KIND_DEVICE;
    gb_source_start(p->pulls, &params, call);
    core_wake_wait(&wake);
    if (call->written.base.error.code != GB_OK) {
        *err = call->written.base.error;
        r = -1;
    }
    gb_call_unref(&call->written.base);
    core_wake_done(&wake);
    return r;
}

static bool is_there(struct play *p) {
    struct gb_error err = GB_ERROR_INIT;
    int r = core_download(p->f.core, "default", "x", 0, BYTES, p->back, &err);

    return r == 0 && memcmp(p->bytes, p->back, BYTES) == 0;
}

static void tidy(struct play *p) {
    struct gb_error err = GB_ERROR_INIT;

    core_buffer_delete(p->f.core, "default", "x", &err);
    core_until_idle(&p->f);
}

/* --- the device --------------------------------------------------------------------------------------------------- */

static bool play_with(const char *op, unsigned n, const char *spec, unsigned *sum) {
    struct gb_error err = GB_ERROR_INIT;
    struct play p;
    char text[128];
    bool met;

    snprintf(text, sizeof(text), "fault:%s@%u=%s:%s", op, n,
             strstr(op, "alloc") ? "cudaErrorMemoryAllocation" : "cudaErrorInvalidValue", spec);
    play_open(&p, text);
    if (copy(&p, &err) < 0) {
        ck_assert_msg(err.code == GB_ERR_DEVICE_ERROR || err.code == GB_ERR_OUT_OF_MEMORY, "%s: %s", text, err.detail);
        ++*sum;
        err = GB_ERROR_INIT;
        gb_assert_ok(copy(&p, &err), err);
    }
    (void)is_there(&p); /* which may meet the fault */
    ck_assert_msg(is_there(&p), "%s", text);
    tidy(&p);
    met = core_fault_met(&p.f);
    play_close(&p);
    return met;
}

START_TEST(each_call_fails_once) {
    const char *op = ops[_i % OPS];
    unsigned failed = 0;
    unsigned n;

    for (n = 1; n <= 12 && play_with(op, n, specs[_i / OPS], &failed); n = CORE_FAULT_NEXT(n))
        ;
    /* Memory that cannot be had is asked for again. */
    if (strcmp(op, "copy") == 0 && _i / OPS == 1)
        ck_assert_msg(failed > 0, "%s never failed", op);
}
END_TEST

START_TEST(the_device_dies) {
    struct gb_error err = GB_ERROR_INIT;
    struct play p;

    play_open(&p, "fault:copy@2=cudaErrorIllegalAddress:host:discrete,bytes=64M");
    gb_assert_fails(copy(&p, &err), err, GB_ERR_DEVICE_LOST);
    gb_assert_fails(copy(&p, &err), err, GB_ERR_DEVICE_LOST);
    play_close(&p);
}
END_TEST

/* --- memory ------------------------------------------------------------------------------------------------------- */

#ifdef GB_OWN_MALLOC
START_TEST(each_allocation_fails_once) {
    unsigned refused = 0;
    struct play p;
    long n;

    play_open(&p, specs[_i]);
    for (n = 0; n < 120; n += gb_test_stride()) {
        struct gb_error err = GB_ERROR_INIT;
        int r;

        atomic_store(&gb_allocations, n);
        r = copy(&p, &err);
        atomic_store(&gb_allocations, -1);
        refused += r < 0;
        if (r < 0 && err.code != GB_ERR_INTERNAL && err.code != GB_ERR_OUT_OF_MEMORY && err.code != GB_ERR_SATURATED &&
            err.code != GB_ERR_STORE_FAILED && err.code != GB_ERR_DEVICE_ERROR)
            ck_abort_msg("allocation %ld: %s: %s", n, gb_code_slug(err.code), err.detail);
        err = GB_ERROR_INIT;
        gb_assert_ok(copy(&p, &err), err);
        ck_assert(is_there(&p));
        tidy(&p);
    }
    ck_assert_uint_gt(refused, 5);
    play_close(&p);
}
END_TEST
#endif

/* --- the end ------------------------------------------------------------------------------------------------------ */

static void ended(void *arg) {
    atomic_fetch_add((atomic_int *)arg, 1);
}

/* Copies that wait and run when the daemon stops. */
START_TEST(closing_ends_all) {
    const char *folders[1];
    struct gb_source_params params = {.file = "x.bin", .folders = folders, .folder_count = 1};
    struct gb_pull_call *calls[20];
    atomic_int count = 0;
    struct play p;
    unsigned i;

    play_open(&p, specs[1]);
    folders[0] = p.folder;
    params.to.session = core_name("default");
    params.to.name = core_name("x");
    params.to.stream = core_name("default");
    params.to.kind = GB_KIND_DEVICE;
    for (i = 0; i < 20; i++) {
        calls[i] = gb_call_new(sizeof(*calls[i]), ended, &count);
        ck_assert_ptr_nonnull(calls[i]);
        gb_source_start(p.pulls, &params, calls[i]);
    }
    gb_pulls_close(p.pulls);
    p.pulls = NULL;
    ck_assert_int_eq(atomic_load(&count), 20);
    for (i = 0; i < 20; i++) {
        const struct gb_error *err = &calls[i]->written.base.error;

        ck_assert_msg(err->code == GB_OK || err->code == GB_ERR_DRAINING, "%s", err->detail);
        gb_call_unref(&calls[i]->written.base);
    }
    tidy(&p);
    play_close(&p);
}
END_TEST

int main(void) {
    /* A GPU's driver dies of a malloc that fails, and this is about ours. */
    Suite *suite = (unsetenv("GB_TEST_BACKEND"), suite_create("source: files"));

    gb_test_add_loop(suite, "each call fails once", each_call_fails_once, 120, 2 * OPS);
    gb_test_add(suite, "the device dies", the_device_dies, 60);
#ifdef GB_OWN_MALLOC
    gb_test_add_loop(suite, "each allocation fails once", each_allocation_fails_once, 120, 2);
#endif
    gb_test_add(suite, "closing ends all", closing_ends_all, 60);
    return gb_test_run(suite);
}
