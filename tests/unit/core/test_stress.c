/* Many threads on few names, moved against each other: every answer is one that some order of the calls explains, and
 * nothing is left over. Made for the thread and address sanitizers. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "core_fixture.h"
#include "gb_test.h"
#include "jitter.h"

#define THREADS 8
#define ROUNDS 300
#define NAMES 3
#define SIZE_MAX_BYTES (4 * CORE_SLOT_BYTES + 11)

static const char *const specs[] = {"host:bytes=32M", "host:discrete,bytes=32M"};

struct worker {
    struct core_fixture *f;
    unsigned seed;
    unsigned done;
    char *data;
    char *back;
};

static unsigned draw(struct worker *w) {
    w->seed = w->seed * 1664525u + 1013904223u;
    return w->seed >> 16;
}

/* What may come out when others do as they like. */
static void permit(const struct gb_error *err) {
    switch (err->code) {
    case GB_ERR_BUFFER_NOT_FOUND:
    case GB_ERR_BUFFER_EXISTS:
    case GB_ERR_BUFFER_BUSY:
    case GB_ERR_DEPENDENCY_FAILED:
    case GB_ERR_BUFFER_PARTIAL:
    case GB_ERR_SESSION_NOT_FOUND:
    case GB_ERR_SESSION_EXISTS:
    case GB_ERR_SHAPE_MISMATCH:
    case GB_ERR_OUT_OF_MEMORY:
    case GB_ERR_QUOTA_EXCEEDED:
        return;
    default:
        ck_abort_msg("%s: %s", gb_code_slug(err->code), err->detail);
    }
}

static void upload(struct worker *w, const char *session, const char *name, bool in_place, bool partial) {
    struct gb_error err = GB_ERROR_INIT;
    uint64_t bytes = draw(w) % SIZE_MAX_BYTES;
    struct gb_upload_params p = core_upload_params(session, name, bytes);

    if (partial) {
        p.partial = true;
        p.offset = draw(w) % 1000;
        p.bytes = bytes % 2000;
    }
    p.in_place = in_place;
    core_bytes(draw(w), w->data, bytes);
    if (core_upload(w->f->core, &p, w->data, NULL, &err) == 0)
        w->done++;
    else
        permit(&err);
}

/* Begins and goes away. */
static void break_off(struct worker *w, const char *session, const char *name) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_upload_params(session, name, SIZE_MAX_BYTES);
    struct gb_upload *upload_ = NULL;
    struct core_wake wake;

    core_wake_init(&wake);
    p.in_place = draw(w) % 2;
    p.waker = core_waker(&wake);
    if (gb_upload_begin(w->f->core, &p, &upload_, &err) < 0 ||
        core_upload_send(upload_, &wake, w->data, draw(w) % SIZE_MAX_BYTES, &err) < 0)
        permit(&err);
    gb_upload_free(upload_);
    core_wake_done(&wake);
}

/* The bytes are those of one generation: their checksum says so. */
static void download(struct worker *w, const char *session, const char *name) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_name s = core_name(session);
    struct gb_name n = core_name(name);
    struct gb_name stream = core_name("default");
    struct gb_download *d = NULL;
    const struct gb_buffer_rec *rec;
    struct core_wake wake;
    uint64_t bytes;
    int r;

    core_wake_init(&wake);
    r = gb_download_open(w->f->core, &s, &n, &stream, core_waker(&wake), &d, &err);
    if (r == 0) {
        rec = gb_download_record(d);
        bytes = rec->bytes;
        r = gb_download_start(d, 0, bytes, &err);
        if (draw(w) % 4 == 0)
            bytes /= 2;
        if (r == 0)
            r = core_download_read(d, &wake, w->back, bytes, &err);
        if (r == 0 && bytes == rec->bytes && rec->has_crc32c) {
            ck_assert_uint_eq(gb_crc32c(0, w->back, bytes), rec->crc32c);
            w->done++;
        }
    }
    if (r < 0)
        permit(&err);
    gb_download_free(d, r == 0);
    core_wake_done(&wake);
}

static void change_session(struct worker *w, const char *session) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_params p = {.name = core_name(session), .has_idle_ttl_s = true, .idle_ttl_s = 1000};

    if (draw(w) % 3 == 0 && core_session_delete(w->f->core, session, &err) < 0)
        permit(&err);
    err = GB_ERROR_INIT;
    if (draw(w) % 3 == 0 && core_session_patch(w->f->core, session, &p, &err) < 0)
        permit(&err);
    err = GB_ERROR_INIT;
    if (core_session_create(w->f->core, &p, &err) < 0)
        permit(&err);
}

static void read_all(struct worker *w) {
    struct gb_core_stats stats;
    struct gb_pool_view pool;

    gb_core_stats(w->f->core, &stats);
    ck_assert_uint_le(stats.slots_free, stats.slots_total);
    ck_assert_int_eq(gb_pool_at(w->f->core, 0, &pool, NULL), 0);
}

static void *work(void *arg) {
    struct worker *w = arg;
    int i;

    for (i = 0; i < ROUNDS; i++) {
        const char *session = draw(w) % 3 == 0 ? "s" : "default";
        struct gb_error err = GB_ERROR_INIT;
        char name[16];

        snprintf(name, sizeof(name), "b%u", draw(w) % NAMES);
        switch (draw(w) % 10) {
        case 0:
            if (core_buffer_create(w->f->core, session, name, draw(w) % 200000, draw(w) % 20, &err) < 0)
                permit(&err);
            break;
        case 1:
            if (core_buffer_delete(w->f->core, session, name, &err) < 0)
                permit(&err);
            break;
        case 2:
            break_off(w, session, name);
            break;
        case 3:
            upload(w, session, name, true, draw(w) % 2);
            break;
        case 4:
            upload(w, session, name, false, true);
            break;
        case 5:
            change_session(w, "s");
            break;
        case 6:
        case 7:
            upload(w, session, name, false, false);
            break;
        default:
            download(w, session, name);
        }
        read_all(w);
    }
    return NULL;
}

static void clean(struct core_fixture *f) {
    struct gb_error err = GB_ERROR_INIT;
    char name[16];
    int i;

    core_session_delete(f->core, "s", &err);
    for (i = 0; i < NAMES; i++) {
        err = GB_ERROR_INIT;
        snprintf(name, sizeof(name), "b%d", i);
        /* The last breaks of in-place uploads may still be on their way. */
        while (core_buffer_delete(f->core, "default", name, &err) < 0 && err.code == GB_ERR_BUFFER_BUSY)
            err = GB_ERROR_INIT;
    }
}

START_TEST(everyone_at_once) {
    struct core_fixture f;
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    struct gb_core_stats stats;
    unsigned done = 0;
    int i;

    core_fixture_init(&f, specs[_i]);
    jitter_set(true);
    for (i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.f = &f,
                                     .seed = (unsigned)(i + 1) * 7919 + (unsigned)_i,
                                     .data = calloc(1, SIZE_MAX_BYTES),
                                     .back = calloc(1, SIZE_MAX_BYTES)};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        done += workers[i].done;
        free(workers[i].data);
        free(workers[i].back);
    }
    jitter_set(false);
    ck_assert_uint_gt(done, THREADS); /* it was not all refusals */
    clean(&f);
    core_until_idle(&f);
    gb_core_stats(f.core, &stats);
    ck_assert_uint_eq(stats.buffers, 0);
    ck_assert_uint_eq(stats.buffer_bytes, 0);
    ck_assert_uint_eq(stats.lost_buffers, 0);
    ck_assert_uint_eq(stats.counters.allocations, stats.counters.frees);
    ck_assert_int_eq(store_sql_int(f.store.path, "SELECT count(*) FROM buffers"), 0);
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_stress");
    TCase *tc = tcase_create("everyone");

    tcase_add_loop_test(tc, everyone_at_once, 0, 2);
    tcase_set_timeout(tc, 300);
    suite_add_tcase(suite, tc);
    return gb_test_run(suite);
}
