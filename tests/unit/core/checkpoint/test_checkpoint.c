/* Checkpoints when the disk or malloc fails: each call and each allocation of a creation, a restore, a verification and
 * a file on its way in or out fails once, in turn. What was refused has left nothing, and succeeds at the next
 * attempt. */
#include <glob.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/runtime/runtime.h"
#include "disk/internal.h"
#include "durable_fixture.h"
#include "failing_malloc.h"
#include "gb_test.h"

#define FAR UINT64_C(1000000000)

#define LARGE DURABLE_LARGE
#define SMALL 1000u
#define FILE_BYTES (2 * 1024u * 1024u + 77u)

/* --- what is done ------------------------------------------------------------------------------------------------- */

static struct core_fixture f;
static struct core_wake wake;      /* of files on their way, which may come late */
static struct core_wake call_wake; /* of calls that end */
static char file_bytes[FILE_BYTES];
static char file_back[FILE_BYTES];

/* Calls are made before an allocation fails. */
static struct gb_call *call_new(size_t size) {
    struct gb_call *call = gb_call_new(size, core_wake, &call_wake);

    ck_assert_ptr_nonnull(call);
    return call;
}

/* A file on its way has no call: the reference that the core would give back goes. */
static void spare(struct gb_call *call) {
    if (call)
        gb_call_unref(call);
}

static int ended(struct gb_call *call, struct gb_error *err) {
    core_wake_wait(&call_wake);
    return call->error.code == GB_OK ? 0 : gb_error_move(err, &call->error);
}

static int create(void *call, struct gb_error *err) {
    const struct gb_checkpoint_params params = {.session = {"default"}, .name = {"c1"}};

    gb_checkpoint_create(f.core, &params, call);
    return ended(call, err);
}

static int restore(void *call, struct gb_error *err) {
    const struct gb_restore_params params = {.checkpoint = {"c1"}, .prefix = {"x."}, .eager = true};

    gb_checkpoint_restore(f.core, &params, call);
    return ended(call, err);
}

static int verify(void *call, struct gb_error *err) {
    const struct gb_name name = {"c1"};

    gb_checkpoint_verify(f.core, &name, call);
    return ended(call, err);
}

static int delete (void *call, struct gb_error *err) {
    const struct gb_name name = {"c1"};

    gb_checkpoint_delete(f.core, &name, call);
    return ended(call, err);
}

static int send_all(struct gb_checkpoint_put *put, struct gb_error *err) {
    size_t at = 0;
    uint32_t crc;
    bool replaced;
    int r;

    while (at < FILE_BYTES) {
        void *room;
        size_t n;

        r = gb_checkpoint_put_room(put, &room, &n, err);
        if (r < 0)
            return -1;
        if (r == 0) {
            core_wake_wait(&wake);
            continue;
        }
        memcpy(room, file_bytes + at, n);
        at += n;
        if (gb_checkpoint_put_fill(put, n, err) < 0)
            return -1;
    }
    gb_checkpoint_put_end(put);
    while ((r = gb_checkpoint_put_result(put, &crc, &replaced, err)) == 0)
        core_wake_wait(&wake);
    return r < 0 ? -1 : 0;
}

static int bring(void *call, struct gb_error *err) {
    const struct gb_checkpoint_put_params params = {
        .name = {"c2"}, .file = "00001.safetensors", .size = FILE_BYTES, .waker = core_waker(&wake)};
    struct gb_checkpoint_put *put;
    int r;

    spare(call);
    if (gb_checkpoint_put_begin(f.core, &params, &put, err) < 0)
        return -1;
    r = send_all(put, err);
    gb_checkpoint_put_free(put);
    return r;
}

static int read_all(struct gb_checkpoint_read *read, struct gb_error *err) {
    struct gb_checkpoint_file head;
    size_t at = 0;
    int r;

    while ((r = gb_checkpoint_read_head(read, &head, err)) == 0)
        core_wake_wait(&wake);
    if (r < 0)
        return -1;
    gb_checkpoint_read_start(read, 0, head.size);
    while (at < head.size) {
        const void *ptr;
        size_t n;

        r = gb_checkpoint_read_next(read, &ptr, &n, err);
        if (r < 0)
            return -1;
        if (r == 0) {
            core_wake_wait(&wake);
            continue;
        }
        memcpy(file_back + at, ptr, n);
        at += n;
        gb_checkpoint_read_sent(read, n);
    }
    return 0;
}

static int take_out(void *call, struct gb_error *err) {
    const struct gb_name name = {"c2"};
    struct gb_checkpoint_read *read;
    int r;

    spare(call);
    if (gb_checkpoint_read_open(f.core, &name, "00001.safetensors", core_waker(&wake), &read, err) < 0)
        return -1;
    r = read_all(read, err);
    gb_checkpoint_read_free(read);
    return r;
}

/* --- what is there ------------------------------------------------------------------------------------------------ */

static size_t count_files(const char *pattern) {
    char path[192];
    glob_t found;
    size_t count = 0;

    snprintf(path, sizeof(path), "%s/data/%s", f.store.dir, pattern);
    if (glob(path, 0, NULL, &found) == 0) {
        count = found.gl_pathc;
        globfree(&found);
    }
    return count;
}

/* Files of bytes, but for those of checkpoints. */
static size_t expected_files;

#define FILES "[0-9a-f][0-9a-f]/*"

static bool has_files(void *arg) {
    (void)arg;
    return count_files(FILES) == expected_files;
}

/* What could not be removed is counted while another file may be on its way out. */
static bool has_no_more_files(void *arg) {
    (void)arg;
    return count_files(FILES) <= expected_files;
}

static bool has_checkpoint(const char *text) {
    struct gb_name name = core_name(text);
    struct gb_checkpoint_view view;

    return gb_checkpoint_get(f.core, &name, &view, NULL) == 0;
}

static void run_ok(int (*run)(void *call, struct gb_error *err), size_t size) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_call *call = call_new(size);

    gb_assert_ok(run(call, &err), err);
    gb_call_unref(call);
}

static void make_c1(void) {
    run_ok(create, sizeof(struct gb_checkpoint_call));
}

static void drop_c1(void) {
    run_ok(delete, sizeof(struct gb_call));
}

static void not_created(void) {
    ck_assert(!has_checkpoint("c1"));
    ck_assert_uint_eq(count_files("checkpoints/c1"), 0);
}

static void created(void) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_checkpoint_verify_call *call = (void *)call_new(sizeof(*call));

    gb_assert_ok(verify(call, &err), err);
    ck_assert_uint_eq(call->damaged, 0);
    ck_assert_uint_eq(call->buffers, 4);
    gb_call_unref(&call->base);
    drop_c1();
    ck_assert_uint_eq(count_files("checkpoints/.c1"), 0);
}

static void not_restored(void) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_rec rec;

    gb_assert_fails(core_buffer_get(f.core, "default", "x.large", &rec, &err), err, GB_ERR_BUFFER_NOT_FOUND);
    gb_assert_fails(core_buffer_get(f.core, "default", "x.small", &rec, &err), err, GB_ERR_BUFFER_NOT_FOUND);
}

static const struct {
    const char *name;
    unsigned seed;
    size_t bytes;
    enum gb_durability durability;
} buffers[] = {
    {"large", 1, LARGE, GB_DURABILITY_SYNC},
    {"small", 2, SMALL, GB_DURABILITY_SYNC},
    {"memory", 3, LARGE, GB_DURABILITY_NONE},
    {"spilled", 4, LARGE, GB_DURABILITY_NONE},
};
#define BUFFERS (sizeof(buffers) / sizeof(buffers[0]))

static void restored(void) {
    struct gb_error err = GB_ERROR_INIT;
    char name[16];
    size_t i;

    for (i = 0; i < BUFFERS; i++) {
        snprintf(name, sizeof(name), "x.%s", buffers[i].name);
        durable_assert_bytes(&f, name, buffers[i].seed, buffers[i].bytes);
        gb_assert_ok(core_buffer_delete(f.core, "default", name, &err), err);
    }
}

static void nothing(void) {
}

static void not_brought(void) {
    ck_assert_uint_eq(count_files("checkpoints/c2/00001.safetensors"), 0);
}

static void remove_c2(void) {
    const struct gb_name name = {"c2"};
    struct gb_error err = GB_ERROR_INIT;
    struct gb_call *call = call_new(sizeof(*call));

    gb_checkpoint_delete(f.core, &name, call);
    gb_assert_ok(ended(call, &err), err);
    gb_call_unref(call);
}

static void brought(void) {
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(take_out(NULL, &err), err);
    ck_assert(memcmp(file_bytes, file_back, FILE_BYTES) == 0);
    remove_c2();
}

static void bring_c2(void) {
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(bring(NULL, &err), err);
}

static void taken_out(void) {
    ck_assert(memcmp(file_bytes, file_back, FILE_BYTES) == 0);
}

static void deleted_or_whole(void) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_checkpoint_verify_call *call;

    if (!has_checkpoint("c1"))
        return;
    call = (void *)call_new(sizeof(*call));
    if (verify(call, &err) == 0)
        ck_assert_uint_eq(call->damaged, 0);
    gb_call_unref(&call->base);
}

static void deleted(void) {
    ck_assert(!has_checkpoint("c1"));
    make_c1();
}

/* before: once. failed, done: after each run. */
static const struct job {
    const char *name;
    size_t size;
    void (*before)(void);
    int (*run)(void *call, struct gb_error *err);
    void (*failed)(void);
    void (*done)(void);
} jobs[] = {
    {"create", sizeof(struct gb_checkpoint_call), nothing, create, not_created, created},
    {"restore", sizeof(struct gb_restore_call), make_c1, restore, not_restored, restored},
    {"verify", sizeof(struct gb_checkpoint_verify_call), make_c1, verify, nothing, nothing},
    {"bring", sizeof(struct gb_call), nothing, bring, not_brought, brought},
    {"take out", sizeof(struct gb_call), bring_c2, take_out, nothing, taken_out},
    {"delete", sizeof(struct gb_call), make_c1, delete, deleted_or_whole, deleted},
};
#define JOBS ((int)(sizeof(jobs) / sizeof(jobs[0])))

static void begin(int job) {
    struct gb_error err = GB_ERROR_INIT;
    size_t i;

    core_wake_init(&wake);
    core_wake_init(&call_wake);
    core_bytes(9, file_bytes, FILE_BYTES);
    f = (struct core_fixture){.disk_faults = NULL};
    core_fixture_prepare(&f, "host:discrete");
    f.durable = true;
    f.disk_faults = "open@1000000000=EIO"
                    ",create@1000000000=EIO"
                    ",mkdir@1000000000=EIO"
                    ",direct@1000000000=EIO"
                    ",fallocate@1000000000=EIO"
                    ",write@1000000000=EIO"
                    ",read@1000000000=EIO"
                    ",truncate@1000000000=EIO"
                    ",sync@1000000000=EIO"
                    ",dirsync@1000000000=EIO"
                    ",rename@1000000000=EIO"
                    ",link@1000000000=EIO"
                    ",unlink@1000000000=EIO"
                    ",statvfs@1000000000=EIO";
    f.config.durable_lag_ms = 3600 * 1000; /* nothing is stored by itself */
    core_fixture_open(&f);
    for (i = 0; i < BUFFERS; i++)
        durable_put_ok(&f, buffers[i].name, buffers[i].seed, buffers[i].bytes, buffers[i].durability);
    gb_assert_ok(durable_do(&f, gb_buffer_evict, "spilled", NULL, &err), err);
    expected_files = 2; /* of large and spilled */
    core_until(has_files, NULL, "the files are there");
    jobs[job].before();
}

static void finish(void) {
    core_fixture_done(&f);
    core_wake_done(&call_wake);
    core_wake_done(&wake);
}

/* As the core's probe finds it within a second. */
static void mend_disk(void) {
    pthread_mutex_lock(&f.disk->lock);
    f.disk->stat.state = GB_DISK_READY;
    f.disk->stat.error = GB_ERROR_INIT;
    pthread_mutex_unlock(&f.disk->lock);
}

/* What the core counts of work and contents. */
static uint64_t before;

static uint64_t objects(void) {
    uint64_t count;

    pthread_mutex_lock(&f.core->objects_lock);
    count = (uint64_t)f.core->objects;
    pthread_mutex_unlock(&f.core->objects_lock);
    return count;
}

static bool is_over(void *arg) {
    (void)arg;
    return objects() <= before;
}

/* What the run has come to, once nothing fails any more. */
static void conclude(int job, int r, struct gb_error *err) {
    mend_disk();
    if (r < 0) {
        jobs[job].failed();
        core_until(has_no_more_files, NULL, "no file is left over");
        *err = GB_ERROR_INIT;
        if (jobs[job].run != delete || has_checkpoint("c1"))
            run_ok(jobs[job].run, jobs[job].size);
    }
    jobs[job].done();
    core_until(has_no_more_files, NULL, "no file is left over");
}

/* --- the disk ----------------------------------------------------------------------------------------------------- */

/* The disk has a rule for each call, which holds for its call number FAR. Threads of the disk read the rules all the
 * time, so that the count is set, and not the rule. */
static void set_rule(enum gb_disk_op op, uint64_t at) {
    int i;

    for (i = 0; i < GB_DISK_OP_COUNT; i++)
        __atomic_store_n(&f.disk->rules.calls[i], 0, __ATOMIC_SEQ_CST);
    if (at > 0)
        __atomic_store_n(&f.disk->rules.calls[op], FAR - at, __ATOMIC_SEQ_CST);
}

/* Returns false if there was no such call. */
static bool fail_one(int job, enum gb_disk_op op, unsigned at) {
    struct gb_call *call = call_new(jobs[job].size);
    struct gb_error err = GB_ERROR_INIT;
    bool met;
    int r;

    before = objects();
    set_rule(op, at);
    r = jobs[job].run(call, &err);
    gb_call_unref(call);
    if (r < 0 || jobs[job].run != restore) /* which leaves loaded buffers */
        core_until(is_over, NULL, "the work has ended");
    met = __atomic_load_n(&f.disk->rules.calls[op], __ATOMIC_SEQ_CST) >= FAR;
    set_rule(op, 0);
    if (op == GB_DISK_OP_unlink && jobs[job].run == create)
        expected_files = count_files(FILES); /* the next start removes it */
    if (r < 0)
        ck_assert_msg(met && (err.code == GB_ERR_STORAGE_FAILED || err.code == GB_ERR_STORAGE_UNAVAILABLE),
                      "%s, %s@%u: %s: %s", jobs[job].name, gb_disk_op_name(op), at, gb_code_slug(err.code), err.detail);
    conclude(job, r, &err);
    return met;
}

START_TEST(each_call_of_the_disk_fails_once) {
    enum gb_disk_op op;
    unsigned failures = 0;
    unsigned at;

    begin(_i);
    for (op = 0; op < GB_DISK_OP_before_commit; op++) { /* what follows are points */
        for (at = 1; at < 40 && fail_one(_i, op, at); at = CORE_FAULT_NEXT(at))
            failures++;
    }
    ck_assert_uint_gt(failures, 1);
    finish();
}
END_TEST

/* --- memory ------------------------------------------------------------------------------------------------------- */

#ifdef GB_OWN_MALLOC
START_TEST(each_allocation_fails_once) {
    unsigned failed = 0;
    unsigned good = 0;
    long at;

    begin(_i);
    for (at = 0; good < 20 && at < 400; at += gb_test_stride()) {
        struct gb_call *call = call_new(jobs[_i].size);
        struct gb_error err = GB_ERROR_INIT;
        int r;

        before = objects();
        atomic_store(&gb_allocations, at);
        r = jobs[_i].run(call, &err);
        good = atomic_exchange(&gb_allocations, -1) >= 0 ? good + 1 : 0; /* it needed fewer */
        gb_call_unref(call);
        failed += r < 0;
        if (r < 0 || jobs[_i].run != restore)
            core_until(is_over, NULL, "the work has ended");
        if (r < 0 && err.code != GB_ERR_SATURATED && err.code != GB_ERR_INTERNAL && err.code != GB_ERR_OUT_OF_MEMORY &&
            err.code != GB_ERR_STORE_FAILED && err.code != GB_ERR_DEVICE_ERROR && err.code != GB_ERR_STORAGE_FAILED &&
            err.code != GB_ERR_STORAGE_UNAVAILABLE)
            ck_abort_msg("%s, allocation %ld: %s: %s", jobs[_i].name, at, gb_code_slug(err.code), err.detail);
        conclude(_i, r, &err);
    }
    ck_assert_uint_gt(failed, 0);
    finish();
}
END_TEST
#endif

int main(void) {
    /* A GPU's driver dies of a malloc that fails, and this is about ours. */
    Suite *suite = (unsetenv("GB_TEST_BACKEND"), suite_create("core checkpoint"));

    gb_test_add_loop(suite, "disk", each_call_of_the_disk_fails_once, 120, JOBS);
#ifdef GB_OWN_MALLOC
    gb_test_add_loop(suite, "memory", each_allocation_fails_once, 240, JOBS);
#endif
    return gb_test_run(suite);
}
