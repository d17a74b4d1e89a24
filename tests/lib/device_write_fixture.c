#include "device_write_fixture.h"

#include <stdlib.h>
#include <string.h>

#include "gb_test.h"

struct gb_device_write_params core_copy_params(const char *from_session, const char *from, const char *session,
                                               const char *name) {
    return (struct gb_device_write_params){.copy = true,
                                           .from_session = core_name(from_session),
                                           .from = core_name(from),
                                           .session = core_name(session),
                                           .name = core_name(name)};
}

struct gb_device_write_params core_fill_params(const char *session, const char *name, uint64_t pattern,
                                               unsigned width) {
    return (struct gb_device_write_params){
        .session = core_name(session), .name = core_name(name), .pattern = pattern, .width = width};
}

int core_result_end(struct core_call *c, struct core_result *ret, struct gb_error *err) {
    const struct gb_buffer_call *call = c->call.buffer;
    int r = core_call_wait(c, err);

    if (r == 0 && ret)
        *ret = (struct core_result){.rec = call->buffer,
                                    .created = call->created,
                                    .copied = call->copied,
                                    .way = call->way,
                                    .times = call->times};
    core_call_free(c);
    return r;
}

int core_write(struct gb_core *core, const struct gb_device_write_params *params, struct core_result *ret,
               struct gb_error *err) {
    struct core_call p;

    core_call_begin(&p);
    gb_buffer_write(core, params, p.call.buffer);
    return core_result_end(&p, ret, err);
}

int core_sync(struct gb_core *core, const char *session, const char *name, bool to_host, struct core_result *ret,
              struct gb_error *err) {
    struct gb_locator at = core_at(session, name);
    struct gb_name stream = core_name("");
    struct core_call p;

    core_call_begin(&p);
    gb_buffer_mirror_sync(core, &at, to_host, &stream, NULL, p.call.buffer);
    return core_result_end(&p, ret, err);
}

int core_reserve(struct gb_core *core, const char *session, const char *name, bool host, uint64_t bytes,
                 struct core_result *ret, struct gb_error *err) {
    struct gb_mirror_reserve what = {.host = host, .bytes = bytes};
    struct gb_locator at = core_at(session, name);
    struct core_call p;

    core_call_begin(&p);
    gb_buffer_mirror_reserve(core, &at, &what, NULL, p.call.buffer);
    return core_result_end(&p, ret, err);
}

int core_release(struct gb_core *core, const char *session, const char *name, bool host, bool device,
                 struct core_result *ret, struct gb_error *err) {
    struct gb_locator at = core_at(session, name);
    struct core_call p;

    core_call_begin(&p);
    gb_buffer_mirror_release(core, &at, host, device, NULL, p.call.buffer);
    return core_result_end(&p, ret, err);
}

int core_attributes(struct gb_core *core, const char *session, const char *name, struct core_result *ret,
                    struct gb_error *err) {
    struct gb_locator at = core_at(session, name);
    struct gb_attributes_call *call;
    struct core_call p;
    int r;

    core_call_begin(&p);
    call = p.call.attributes;
    atomic_fetch_add(&call->base.refs, 1); /* the test reads it afterwards */
    gb_buffer_attributes(core, &at, call);
    r = core_call_end(&p, err);
    if (r == 0 && ret)
        *ret = (struct core_result){.rec = call->buffer, .attr = call->attr};
    gb_call_unref(&call->base);
    return r;
}

int core_create(struct gb_core *core, const struct gb_buffer_params *params, struct core_result *ret,
                struct gb_error *err) {
    struct core_call p;

    core_call_begin(&p);
    gb_buffer_create(core, params, 0, p.call.buffer);
    return core_result_end(&p, ret, err);
}

void core_expect(struct gb_core *core, const char *session, const char *name, const void *want, size_t n) {
    struct gb_error err = GB_ERROR_INIT;
    char *back = malloc(n + 1);

    gb_assert_ok(core_download(core, session, name, 0, n, back, &err), err);
    ck_assert_msg(memcmp(back, want, n) == 0, "%s/%s has other bytes", session, name);
    free(back);
}

void core_put(struct gb_core *core, const struct gb_upload_params *params, unsigned seed, void *out) {
    struct gb_error err = GB_ERROR_INIT;
    char *data = out ? out : malloc(params->bytes + 1);

    core_bytes(seed, data, params->bytes);
    gb_assert_ok(core_upload(core, params, data, NULL, &err), err);
    if (!out)
        free(data);
}

void core_open_two(struct core_fixture *f, const char *spec) {
    struct gb_session_params session = {.name = core_name("other")};
    struct gb_locator side = {core_name("other"), core_name("side")};
    struct gb_error err = GB_ERROR_INIT;

    core_fixture_init(f, spec);
    gb_assert_ok(core_session_create(f->core, &session, &err), err);
    gb_assert_ok(core_do(&err, stream, gb_stream_make, f->core, &side), err);
}

void core_put_bytes(struct core_fixture *f, const char *session, const char *name, uint64_t bytes, unsigned seed,
                    void *out) {
    struct gb_upload_params p = core_upload_params(session, name, bytes);

    core_put(f->core, &p, seed, out);
}

void core_tidy(struct core_fixture *f) {
    static const char *const names[] = {"a", "b", "c"};
    struct gb_error err = GB_ERROR_INIT;
    int i;

    for (i = 0; i < 6; i++) {
        if (core_buffer_delete(f->core, i < 3 ? "default" : "other", names[i % 3], &err) < 0)
            ck_assert_int_eq(err.code, GB_ERR_BUFFER_NOT_FOUND);
        err = GB_ERROR_INIT;
    }
    core_until_idle(f);
}

bool core_kind_offered(struct core_fixture *f, enum gb_kind kind) {
    struct gb_device_rec rec;

    ck_assert_int_eq(gb_device_get(f->core, 0, &rec, NULL), 0);
    return rec.kind_missing[kind][0] == '\0';
}

struct gb_buffer_params core_kind_params(const char *name, enum gb_kind kind, uint64_t bytes) {
    struct gb_buffer_params p = core_upload_params("default", name, bytes).buffer;

    p.kind = kind;
    p.has_kind = true;
    return p;
}

struct gb_upload_params core_mirrored(uint64_t bytes) {
    struct gb_upload_params p = core_upload_params("default", "m", bytes);

    p.buffer.mirrored = true;
    return p;
}

void core_remove_mirrored(struct core_fixture *f) {
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(core_buffer_delete(f->core, "default", "m", &err), err);
    core_until_idle(f);
}

uint64_t core_allocations(struct core_fixture *f) {
    struct gb_core_stats stats;

    gb_core_stats(f->core, &stats);
    return stats.counters.allocations;
}

bool core_step(unsigned *failed, int r, struct gb_error *err) {
    if (r == 0)
        return true;
    ck_assert_msg(err->code == GB_ERR_DEVICE_ERROR || err->code == GB_ERR_OUT_OF_MEMORY, "%s: %s",
                  gb_code_slug(err->code), err->detail);
    (*failed)++;
    *err = GB_ERROR_INIT;
    return false;
}
