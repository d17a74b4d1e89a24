#include "core_fixture.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/fault/fault.h"
#include "core/session/session.h"
#include "gb_test.h"

/* --- the fixture -------------------------------------------------------------------------------------------------- */

void core_fixture_prepare(struct core_fixture *f, const char *spec) {
    const char *other = getenv("GB_TEST_BACKEND");
    char note[GB_BACKEND_NOTE_SIZE];
    struct gb_error err = GB_ERROR_INIT;

    if (other && strncmp(spec, "host:discrete", 13) == 0)
        spec = other;
    memset(f, 0, sizeof(*f));
    store_fixture_init(&f->store);
    gb_assert_ok(gb_backend_open(spec, &f->backend, note, &err), err);
    f->config = (struct gb_core_config){
        .slots_bytes = CORE_SLOTS * CORE_SLOT_BYTES,
        .slot_bytes = CORE_SLOT_BYTES,
        .sessions_max = 100,
        .buffers_max = 10000,
        .default_quota = {GB_UNLIMITED, GB_UNLIMITED, GB_UNLIMITED, GB_UNLIMITED},
        .housekeeping_ms = 2,
    };
}

static void open_disk(struct core_fixture *f) {
    struct gb_error err = GB_ERROR_INIT;
    char uuid[GB_STORE_UUID_SIZE];
    char dir[96];
    const struct gb_disk_config config = {.dir = dir, .uuid = uuid, .faults = f->disk_faults};

    snprintf(dir, sizeof(dir), "%s/data", f->store.dir);
    gb_assert_ok(gb_store_uuid(f->store.store, uuid, &err), err);
    gb_assert_ok(gb_disk_open(&config, &f->disk, &err), err);
    f->config.disk = f->disk;
}

void core_fixture_open(struct core_fixture *f) {
    struct gb_error err = GB_ERROR_INIT;

    if (!f->store.store)
        store_fixture_open(&f->store);
    if (f->durable)
        open_disk(f);
    f->config.backend = f->backend;
    f->config.store = f->store.store;
    gb_assert_ok(gb_core_open(&f->config, &f->core, &err), err);
}

void core_fixture_init(struct core_fixture *f, const char *spec) {
    core_fixture_prepare(f, spec);
    core_fixture_open(f);
}

void core_fixture_close(struct core_fixture *f) {
    gb_core_close(f->core);
    f->core = NULL;
    gb_disk_close(f->disk);
    f->disk = NULL;
    if (f->store.store)
        store_fixture_close(&f->store);
}

void core_fixture_done(struct core_fixture *f) {
    core_fixture_close(f);
    gb_backend_close(f->backend);
    store_fixture_done(&f->store);
}

bool core_on_host(const struct core_fixture *f) {
    return strcmp(gb_backend_name(f->backend), "host") == 0;
}

bool core_fault_met(const struct core_fixture *f) {
    const struct gb_fault_plan *plan = &gb_fault_of(f->backend)->plan;

    return __atomic_load_n(&plan->calls[plan->rules[0].op], __ATOMIC_RELAXED) >= plan->rules[0].first;
}

/* --- waiting ------------------------------------------------------------------------------------------------------ */

void core_wake_init(struct core_wake *w) {
    memset(w, 0, sizeof(*w));
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->cond, NULL);
}

void core_wake_done(struct core_wake *w) {
    pthread_cond_destroy(&w->cond);
    pthread_mutex_destroy(&w->lock);
}

void core_wake(void *wake) {
    struct core_wake *w = wake;

    pthread_mutex_lock(&w->lock);
    w->count++;
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&w->lock);
}

struct gb_waker core_waker(struct core_wake *w) {
    return (struct gb_waker){core_wake, w};
}

void core_wake_wait(struct core_wake *w) {
    pthread_mutex_lock(&w->lock);
    while (w->count == w->seen)
        pthread_cond_wait(&w->cond, &w->lock);
    w->seen = w->count;
    pthread_mutex_unlock(&w->lock);
}

void core_until(bool (*ask)(void *arg), void *arg, const char *what) {
    const struct timespec pause = {.tv_nsec = 1000000};
    int i;

    for (i = 0; i < 20000; i++) {
        if (ask(arg))
            return;
        nanosleep(&pause, NULL);
    }
    ck_abort_msg("never: %s", what);
}

static int count_used(void *arg, const struct gb_pool_view *pool, struct gb_error *err) {
    (void)err;
    *(bool *)arg |= pool->stat.used_bytes != 0;
    return 0;
}

static bool idle(void *arg) {
    struct core_fixture *f = arg;
    struct gb_core_stats stats;
    struct gb_session *s;
    int64_t id = 0;
    struct gb_page page = {.limit = UINT_MAX};
    bool used = false;

    gb_core_stats(f->core, &stats);
    if (stats.uploads_running || stats.downloads_running || stats.writes_running ||
        stats.slots_free != stats.slots_total)
        return false;
    while ((s = gb_session_after(f->core, id))) {
        id = s->id;
        pthread_mutex_lock(&s->lock);
        used |= s->used_bytes != 0 || s->used_pinned_bytes != 0 || s->counted_buffers != s->live_buffers;
        pthread_mutex_unlock(&s->lock);
        gb_pool_list(f->core, gb_session_name(s), &page, count_used, &used, NULL);
        gb_session_unref(s);
    }
    return !used;
}

void core_until_idle(struct core_fixture *f) {
    core_until(idle, f, "no memory, quota or slot in use");
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

/* ck_assert allocates even when it passes, and a test may make malloc fail. These helpers therefore test the condition
 * first. */

struct gb_name core_name(const char *text) {
    struct gb_name name = {{0}};

    snprintf(name.s, sizeof(name.s), "%s", text);
    return name;
}

struct gb_locator core_at(const char *session, const char *name) {
    return (struct gb_locator){core_name(session), core_name(name)};
}

union core_any_call core_any_call_new(void (*done)(void *arg), void *arg) {
    union {
        struct gb_session_call session;
        struct gb_buffer_call buffer;
        struct gb_attributes_call attributes;
        struct gb_scan_call scan;
        struct gb_pool_call pool;
        struct gb_stream_call stream;
        struct gb_hold_call hold;
        struct gb_event_call event;
        struct gb_multipart_call multipart;
        struct gb_lease_call lease;
    } *largest = gb_call_new(sizeof(*largest), done, arg);

    if (!largest) /* a test that makes one malloc fail must see later calls succeed */
        largest = gb_call_new(sizeof(*largest), done, arg);
    if (!largest)
        ck_abort_msg("no memory for a call");
    return (union core_any_call){.session = &largest->session};
}

void core_call_begin(struct core_call *c) {
    core_wake_init(&c->wake);
    c->call = core_any_call_new(core_wake, &c->wake);
}

bool core_call_over(struct core_call *c) {
    return atomic_load(&c->call.base->finished);
}

int core_call_wait(struct core_call *c, struct gb_error *err) {
    core_wake_wait(&c->wake);
    if (!atomic_load(&c->call.base->finished))
        ck_abort_msg("reported before the end");
    if (c->call.base->error.code == GB_OK)
        return 0;
    *err = c->call.base->error;
    return -1;
}

void core_call_free(struct core_call *c) {
    gb_call_unref(c->call.base);
    core_wake_done(&c->wake);
}

int core_call_end(struct core_call *c, struct gb_error *err) {
    int r = core_call_wait(c, err);

    core_call_free(c);
    return r;
}

int core_session_create(struct gb_core *core, const struct gb_session_params *params, struct gb_error *err) {
    return core_do(err, session, gb_session_create, core, params);
}

int core_session_patch(struct gb_core *core, const char *name, const struct gb_session_params *params,
                       struct gb_error *err) {
    struct gb_name n = core_name(name);

    return core_do(err, session, gb_session_patch, core, &n, params, NULL);
}

int core_session_delete(struct gb_core *core, const char *name, struct gb_error *err) {
    struct gb_name n = core_name(name);

    return core_do(err, base, gb_session_delete, core, &n, NULL);
}

int core_buffer_create(struct gb_core *core, const char *session, const char *name, uint64_t bytes, unsigned wait_ms,
                       struct gb_error *err) {
    struct gb_upload_params p = core_upload_params(session, name, bytes);

    return core_do(err, buffer, gb_buffer_create, core, &p.buffer, wait_ms);
}

int core_buffer_delete(struct gb_core *core, const char *session, const char *name, struct gb_error *err) {
    struct gb_locator at = core_at(session, name);

    return core_do(err, buffer, gb_buffer_delete, core, &at, NULL);
}

int core_buffer_delete_on(struct gb_core *core, const char *session, const char *name, const char *stream,
                          struct gb_error *err) {
    struct gb_locator at = core_at(session, name);
    struct core_call c;

    core_call_begin(&c);
    c.call.buffer->stream = core_name(stream);
    gb_buffer_delete(core, &at, NULL, c.call.buffer);
    return core_call_end(&c, err);
}

int core_buffer_get(struct gb_core *core, const char *session, const char *name, struct gb_buffer_rec *ret,
                    struct gb_error *err) {
    struct gb_locator at = core_at(session, name);

    return gb_buffer_get(core, &at, ret, err);
}

struct gb_session_params core_session_params(const char *name) {
    return (struct gb_session_params){.name = core_name(name)};
}

int core_list_buffer(void *listing, const struct gb_buffer_rec *rec, struct gb_error *err) {
    struct core_listing *l = listing;

    (void)err;
    ck_assert_int_gt(rec->id, l->last_id);
    l->last_id = rec->id;
    strcat(l->text, rec->name.s);
    strcat(l->text, " ");
    return 0;
}

/* --- transfers ---------------------------------------------------------------------------------------------------- */

struct gb_upload_params core_upload_params(const char *session, const char *name, uint64_t bytes) {
    struct gb_upload_params p = {.bytes = bytes};

    p.buffer.session = core_name(session);
    p.buffer.name = core_name(name);
    p.buffer.bytes = bytes;
    p.buffer.dtype = GB_DTYPE_UINT8;
    p.buffer.shape = (struct gb_shape){.dims = 1, .dim = {bytes}};
    return p;
}

int core_upload_send(struct gb_upload *upload, struct core_wake *w, const void *data, size_t n, struct gb_error *err) {
    const char *at = data;
    void *room;
    size_t size;
    int r;

    while (n > 0) {
        r = gb_upload_room(upload, &room, &size, err);
        if (r < 0)
            return -1;
        if (r == 0) {
            core_wake_wait(w);
            continue;
        }
        if (size == 0)
            ck_abort_msg("no bytes at all");
        if (size > n)
            size = n;
        memcpy(room, at, size);
        if (gb_upload_fill(upload, size, err) < 0)
            return -1;
        at += size;
        n -= size;
    }
    return 0;
}

int core_upload_finish(struct gb_upload *upload, struct core_wake *w, struct gb_buffer_rec *ret_rec,
                       struct gb_error *err) {
    struct gb_transfer_times times;
    struct gb_buffer_rec rec;
    bool created;
    int r = gb_upload_end(upload, err);

    while (r == 0) {
        r = gb_upload_result(upload, ret_rec ? ret_rec : &rec, &created, &times, err);
        if (r == 0)
            core_wake_wait(w);
    }
    if (r > 0 && !ret_rec)
        gb_buffer_rec_done(&rec);
    return r > 0 ? 0 : -1;
}

int core_upload(struct gb_core *core, const struct gb_upload_params *params, const void *data,
                struct gb_buffer_rec *ret_rec, struct gb_error *err) {
    struct gb_upload_params p = *params;
    struct gb_upload *upload = NULL;
    struct core_wake w;
    int r;

    core_wake_init(&w);
    p.waker = core_waker(&w);
    r = gb_upload_begin(core, &p, &upload, err);
    if (r == 0)
        r = core_upload_send(upload, &w, data, p.bytes, err);
    if (r == 0)
        r = core_upload_finish(upload, &w, ret_rec, err);
    gb_upload_free(upload);
    core_wake_done(&w);
    return r;
}

int core_download_read(struct gb_download *download, struct core_wake *w, void *out, size_t n, struct gb_error *err) {
    char *at = out;
    const void *block;
    size_t size;
    int r;

    while (n > 0) {
        r = gb_download_next(download, &block, &size, err);
        if (r < 0)
            return -1;
        if (r == 0) {
            core_wake_wait(w);
            continue;
        }
        if (size == 0)
            ck_abort_msg("no bytes at all");
        if (size > n)
            size = n;
        memcpy(at, block, size);
        gb_download_sent(download, size);
        at += size;
        n -= size;
    }
    return 0;
}

int core_download(struct gb_core *core, const char *session, const char *name, uint64_t offset, uint64_t n, void *out,
                  struct gb_error *err) {
    struct gb_name s = core_name(session);
    struct gb_name b = core_name(name);
    struct gb_name stream = core_name("default");
    struct gb_download *download = NULL;
    struct core_wake w;
    int r;

    core_wake_init(&w);
    r = gb_download_open(core, &s, &b, &stream, core_waker(&w), &download, err);
    if (r == 0)
        r = gb_download_start(download, offset, n, err);
    if (r == 0)
        r = core_download_read(download, &w, out, n, err);
    gb_download_free(download, r == 0);
    core_wake_done(&w);
    return r;
}

int core_reading_open(struct core_reading *r, struct core_fixture *f, const char *name, struct gb_error *err) {
    struct gb_name s = core_name("default");
    struct gb_name b = core_name(name);

    core_wake_init(&r->wake);
    return gb_download_open(f->core, &s, &b, &s, core_waker(&r->wake), &r->download, err);
}

void core_bytes(unsigned seed, void *out, size_t n) {
    uint32_t x = seed * 2654435761u + 1;
    unsigned char *at = out;
    size_t i;

    for (i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        at[i] = (unsigned char)(x >> 24);
    }
}

/* --- the gate ----------------------------------------------------------------------------------------------------- */

void core_gate_wait(void *arg) {
    struct core_gate *gate = arg;

    sem_post(&gate->entered);
    while (sem_wait(&gate->opened) < 0)
        continue;
}

void core_gate_close(struct core_gate *gate, struct core_fixture *f, const char *session) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_name name = core_name(session);
    struct gb_session *s = gb_session_find(f->core, &name, &err);

    ck_assert_ptr_nonnull(s);
    sem_init(&gate->entered, 0, 0);
    sem_init(&gate->opened, 0, 0);
    ck_assert_ptr_nonnull(gb_core_stream_part(s->standard, 0));
    gb_assert_ok(gb_stream_call(f->backend, gb_core_stream_part(s->standard, 0), core_gate_wait, gate, &err), err);
    while (sem_wait(&gate->entered) < 0)
        continue;
    gb_session_unref(s);
}

void core_gate_open(struct core_gate *gate) {
    sem_post(&gate->opened);
}
