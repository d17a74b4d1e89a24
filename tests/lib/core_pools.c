#include "core_pools.h"

#include <string.h>

#include "core/session/session.h"
#include "gb_test.h"

/* --- pools -------------------------------------------------------------------------------------------------------- */

struct gb_pool_params core_pool_params(const char *session, const char *name, int device, uint64_t max_bytes) {
    return (struct gb_pool_params){
        .session = core_name(session),
        .rec = {.name = core_name(name), .device = device, .config = {.max_bytes = max_bytes}},
        .given = {.max_bytes = true}};
}

int core_pool_make(struct gb_core *core, const struct gb_pool_params *params, struct gb_pool_view *ret,
                   struct gb_error *err) {
    struct core_call c;
    int r;

    core_call_begin(&c);
    gb_pool_make(core, params, c.call.pool);
    r = core_call_wait(&c, err);
    if (r == 0 && ret)
        *ret = c.call.pool->pool;
    core_call_free(&c);
    return r;
}

int core_pool_patch(struct gb_core *core, const struct gb_pool_params *params, struct gb_pool_view *ret,
                    struct gb_error *err) {
    struct core_call c;
    int r;

    core_call_begin(&c);
    gb_pool_patch(core, params, NULL, c.call.pool);
    r = core_call_wait(&c, err);
    if (r == 0 && ret)
        *ret = c.call.pool->pool;
    core_call_free(&c);
    return r;
}

int core_pool_remove(struct gb_core *core, const char *session, const char *name, bool force, struct gb_error *err) {
    struct gb_locator at = core_at(session, name);

    return core_do(err, pool, gb_pool_remove, core, &at, force);
}

int core_pool_trim(struct gb_core *core, const char *session, const char *name, uint64_t keep, struct gb_pool_trim *ret,
                   struct gb_error *err) {
    struct gb_locator at = core_at(session, name);
    struct core_call c;
    int r;

    core_call_begin(&c);
    gb_pool_trim_to(core, &at, keep, c.call.pool);
    r = core_call_wait(&c, err);
    if (r == 0 && ret)
        *ret = c.call.pool->trim;
    core_call_free(&c);
    return r;
}

int core_pool_reset(struct gb_core *core, const char *session, const char *name, struct gb_error *err) {
    struct gb_locator at = core_at(session, name);

    return core_do(err, pool, gb_pool_peak_reset, core, &at);
}

int core_pool_peer(struct gb_core *core, const char *session, const char *name, int device, enum gb_pool_access access,
                   struct gb_error *err) {
    struct gb_locator at = core_at(session, name);

    return core_do(err, pool, gb_pool_peer_set, core, &at, device, access);
}

int core_pool_get(struct gb_core *core, const char *session, const char *name, struct gb_pool_view *ret,
                  struct gb_error *err) {
    struct gb_locator at = core_at(session, name);

    return gb_pool_get(core, &at, ret, err);
}

void core_pool_plain(struct core_fixture *f, const char *session, const char *name, uint64_t max_bytes) {
    struct gb_pool_params p = core_pool_params(session, name, 0, max_bytes);
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(core_pool_make(f->core, &p, NULL, &err), err);
}

struct gb_pool_view core_pool_look(struct core_fixture *f, const char *session, const char *name) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_pool_view view;

    gb_assert_ok(core_pool_get(f->core, session, name, &view, &err), err);
    return view;
}

void core_pool_assert_current(struct core_fixture *f, const char *pool) {
    struct gb_name name = core_name("default");
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_view view;

    gb_assert_ok(gb_session_get(f->core, &name, &view, &err), err);
    ck_assert_str_eq(view.pool.s, pool);
    gb_session_rec_done(&view.rec);
}

static int add_name(void *arg, const struct gb_pool_view *pool, struct gb_error *err) {
    char *out = arg;

    (void)err;
    if (strncmp(pool->rec.name.s, "default.", 8) != 0) { /* a machine may have any number of GPUs */
        strcat(out, pool->rec.name.s);
        strcat(out, " ");
    }
    return 0;
}

const char *core_pool_names(struct core_fixture *f, const char *session, char out[512]) {
    struct gb_name name = core_name(session);
    struct gb_error err = GB_ERROR_INIT;
    struct gb_page page = {.limit = 100, .more = true};

    out[0] = '\0';
    gb_assert_ok(gb_pool_list(f->core, &name, &page, add_name, out, &err), err);
    ck_assert(!page.more);
    return out;
}

/* --- streams and events ------------------------------------------------------------------------------------------- */

int core_stream_make(struct gb_core *core, const char *session, const char *name, struct gb_error *err) {
    struct gb_locator at = core_at(session, name);

    return core_do(err, stream, gb_stream_make, core, &at);
}

int core_stream_remove(struct gb_core *core, const char *session, const char *name, struct gb_error *err) {
    struct gb_locator at = core_at(session, name);

    return core_do(err, base, gb_stream_remove, core, &at);
}

int core_stream_get(struct gb_core *core, const char *session, const char *name, struct gb_stream_view *ret,
                    struct gb_error *err) {
    struct gb_locator at = core_at(session, name);

    return gb_stream_get(core, &at, ret, err);
}

int core_stream_sync(struct gb_core *core, const char *session, const char *name, struct gb_error *err) {
    struct gb_locator at = core_at(session, name);

    return core_do(err, base, gb_stream_sync_call, core, &at);
}

int core_session_sync(struct gb_core *core, const char *session, struct gb_error *err) {
    struct gb_name s = core_name(session);

    return core_do(err, base, gb_session_sync_call, core, &s);
}

int core_device_sync(struct gb_core *core, int device, struct gb_error *err) {
    return core_do(err, base, gb_device_sync_call, core, device);
}

int core_event_make(struct gb_core *core, const char *session, const char *name, struct gb_error *err) {
    struct gb_locator at = core_at(session, name);

    return core_do(err, event, gb_event_make, core, &at);
}

int core_event_remove(struct gb_core *core, const char *session, const char *name, struct gb_error *err) {
    struct gb_locator at = core_at(session, name);

    return core_do(err, base, gb_event_remove, core, &at);
}

int core_event_get(struct gb_core *core, const char *session, const char *name, struct gb_event_view *ret,
                   struct gb_error *err) {
    struct gb_locator at = core_at(session, name);

    return gb_event_get(core, &at, ret, err);
}

int core_event_record(struct gb_core *core, const char *session, const char *name, const char *stream,
                      struct gb_error *err) {
    struct gb_name st = core_name(stream);
    struct gb_locator at = core_at(session, name);

    return core_do(err, event, gb_event_record_call, core, &at, &st);
}

int core_event_sync(struct gb_core *core, const char *session, const char *name, struct gb_event_view *ret,
                    struct gb_error *err) {
    struct gb_locator at = core_at(session, name);
    struct core_call c;
    int r;

    core_call_begin(&c);
    gb_event_sync_call(core, &at, c.call.event);
    r = core_call_wait(&c, err);
    if (r == 0 && ret)
        *ret = c.call.event->event;
    core_call_free(&c);
    return r;
}

int core_event_wait(struct gb_core *core, const char *session, const char *name, const char *stream,
                    struct gb_error *err) {
    struct gb_name st = core_name(stream);
    struct gb_locator at = core_at(session, name);

    return core_do(err, event, gb_event_wait_call, core, &at, &st);
}

/* --- transfers ---------------------------------------------------------------------------------------------------- */

int core_upload_on(struct gb_core *core, const char *session, const char *name, const char *stream, const char *pool,
                   const void *data, uint64_t bytes, struct gb_error *err) {
    struct gb_upload_params p = core_upload_params(session, name, bytes);

    p.buffer.stream = core_name(stream);
    p.buffer.pool = core_name(pool);
    return core_upload(core, &p, data, NULL, err);
}

int core_download_on(struct gb_core *core, const char *session, const char *name, const char *stream, void *out,
                     uint64_t bytes, struct gb_error *err) {
    struct gb_name s = core_name(session);
    struct gb_name n = core_name(name);
    struct gb_name st = core_name(stream);
    struct gb_download *download = NULL;
    struct core_wake w;
    int r;

    core_wake_init(&w);
    r = gb_download_open(core, &s, &n, &st, core_waker(&w), &download, err);
    if (r == 0)
        r = gb_download_start(download, 0, bytes, err);
    if (r == 0)
        r = core_download_read(download, &w, out, bytes, err);
    gb_download_free(download, r == 0);
    core_wake_done(&w);
    return r;
}

struct part_maker {
    struct gb_task task; /* first */
    struct gb_core_stream *stream;
    int device;
    sem_t done;
};

static void make_part(struct gb_task *task) {
    struct part_maker *m = (struct part_maker *)task;
    struct gb_stream *part;

    /* A test that makes one malloc fail must see later calls succeed. */
    if (gb_core_stream_part_make(m->stream, m->device, &part, NULL) < 0)
        gb_core_stream_part_make(m->stream, m->device, &part, NULL);
    sem_post(&m->done);
}

void core_gate_close_on(struct core_gate *gate, struct core_fixture *f, const char *session, const char *stream,
                        int device) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_name name = core_name(session);
    struct gb_name st = core_name(stream);
    struct gb_session *s = gb_session_find(f->core, &name, &err);
    struct part_maker m = {.task.run = make_part, .device = device};

    ck_assert_ptr_nonnull(s);
    sem_init(&m.done, 0, 0);
    pthread_mutex_lock(&s->lock);
    gb_assert_ok(gb_core_stream_use_locked(s, &st, &m.stream, &err), err);
    pthread_mutex_unlock(&s->lock);
    gb_lane_post(&f->core->devices[device].lane, &m.task);
    while (sem_wait(&m.done) < 0)
        continue;
    sem_init(&gate->entered, 0, 0);
    sem_init(&gate->opened, 0, 0);
    gb_assert_ok(gb_stream_call(f->backend, gb_core_stream_part(m.stream, device), core_gate_wait, gate, &err), err);
    while (sem_wait(&gate->entered) < 0)
        continue;
    gb_core_stream_unuse(m.stream);
    gb_session_unref(s);
    sem_destroy(&m.done);
}
