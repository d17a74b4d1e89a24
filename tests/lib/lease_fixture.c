#include "lease_fixture.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/session/session.h"
#include "gb_test.h"

#define WAIT_MS 60000

struct gb_holder *core_holder(struct gb_core *core) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_holder *holder;

    gb_assert_ok(gb_holder_new(core, getpid(), getuid(), getgid(), &holder, &err), err);
    return holder;
}

struct gb_lease_params core_map_params(struct gb_holder *holder, const char *session, const char *name, bool write) {
    return (struct gb_lease_params){
        .session = core_name(session), .name = core_name(name), .holder = holder, .write = write, .wait_ms = WAIT_MS};
}

static void import(struct gb_lease_call *call, struct core_mapping *m) {
    const struct gb_lease_grant *g = &call->lease;
    int fd = gb_lease_take_fd(call);

    *m = (struct core_mapping){
        .id = g->id, .way = g->export.way, .kind = g->kind, .rec = call->buffer, .passed = g->passed_count};
    if (g->passed_count > 0)
        memcpy(m->reason, g->passed[g->passed_count - 1].reason, sizeof(m->reason));
    if (m->way == GB_EXPORT_MEMFD) {
        m->length = g->export.map_bytes;
        m->base = mmap(NULL, m->length, PROT_READ | (g->write ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
        if (m->base == MAP_FAILED)
            ck_abort_msg("mmap refuses the descriptor");
        m->bytes = (char *)m->base + g->export.offset;
    }
    if (fd >= 0)
        close(fd);
}

int core_map_end(struct core_call *pending, struct core_mapping *ret, struct gb_error *err) {
    int r = core_call_wait(pending, err);

    if (r == 0 && ret)
        import(pending->call.lease, ret);
    core_call_free(pending);
    return r;
}

int core_map(struct gb_core *core, const struct gb_lease_params *params, struct core_mapping *ret,
             struct gb_error *err) {
    struct core_call p;

    core_call_begin(&p);
    gb_lease_map(core, params, p.call.lease);
    return core_map_end(&p, ret, err);
}

void core_mapping_done(struct core_mapping *m) {
    if (m->base)
        munmap(m->base, m->length);
    m->base = NULL;
    m->bytes = NULL;
}

int core_lease_end(struct gb_core *core, int64_t id, struct gb_holder *holder, struct gb_error *err) {
    return core_do(err, base, gb_lease_end, core, id, holder, !holder);
}

int core_seal(struct gb_core *core, const char *session, const char *name, struct gb_error *err) {
    struct gb_locator at = core_at(session, name);

    return core_do(err, buffer, gb_buffer_seal, core, &at, NULL);
}

int core_delete_when_unmapped(struct gb_core *core, const char *session, const char *name, uint64_t *ret_held,
                              struct gb_error *err) {
    struct gb_locator at = core_at(session, name);
    struct gb_buffer_call *call;
    struct core_call p;
    int r;

    core_call_begin(&p);
    call = p.call.buffer;
    atomic_fetch_add(&call->base.refs, 1); /* the test reads it afterwards */
    gb_buffer_delete_when_unmapped(core, &at, NULL, call);
    r = core_call_end(&p, err);
    if (ret_held)
        *ret_held = call->held_bytes;
    gb_call_unref(&call->base);
    return r;
}

void core_put_kind(struct core_fixture *f, const char *name, enum gb_kind kind, uint64_t bytes, unsigned seed,
                   void *out) {
    struct gb_upload_params u = core_upload_params("default", name, bytes);

    u.buffer.kind = kind;
    u.buffer.has_kind = true;
    core_put(f->core, &u, seed, out);
}

struct list {
    struct gb_lease_view *views;
    unsigned count;
    unsigned max;
};

static int see(void *arg, const struct gb_lease_view *view, struct gb_error *err) {
    struct list *list = arg;

    (void)err;
    if (list->count < list->max)
        list->views[list->count] = *view;
    list->count++;
    return 0;
}

unsigned core_leases(struct gb_core *core, struct gb_lease_view *ret, unsigned max) {
    struct list list = {.views = ret, .max = max};
    struct gb_error err = GB_ERROR_INIT;
    struct gb_page page = {.limit = 1000000};

    gb_assert_ok(gb_lease_list(core, &page, see, &list, &err), err);
    ck_assert(!page.more);
    return list.count;
}

struct gb_lease_view core_lease(struct gb_core *core, int64_t id) {
    struct gb_lease_view view;
    struct list list = {.views = &view, .max = 1};
    struct gb_error err = GB_ERROR_INIT;
    struct gb_page page = {.after = id - 1, .limit = 1};

    gb_assert_ok(gb_lease_list(core, &page, see, &list, &err), err);
    ck_assert_msg(list.count == 1 && view.id == id, "no lease %lld", (long long)id);
    return view;
}

static bool unmapped(void *arg) {
    struct core_fixture *f = arg;
    struct gb_core_stats stats;
    struct gb_session *s;
    bool none = true;
    int64_t id = 0;

    gb_core_stats(f->core, &stats);
    if (stats.leases > 0 || stats.held_bytes > 0)
        return false;
    while ((s = gb_session_after(f->core, id))) {
        id = s->id;
        pthread_mutex_lock(&s->lock);
        none = none && s->leases == 0 && s->held_bytes == 0;
        pthread_mutex_unlock(&s->lock);
        gb_session_unref(s);
    }
    return none;
}

void core_until_unmapped(struct core_fixture *f) {
    core_until(unmapped, f, "no lease, and nothing held by one");
}

struct gb_upload_params core_in_place(const char *name, uint64_t bytes) {
    struct gb_upload_params u = core_upload_params("default", name, bytes);

    u.buffer.kind = GB_KIND_PAGEABLE;
    u.in_place = true;
    return u;
}
