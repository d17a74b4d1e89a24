#include "durable_fixture.h"

#include <glob.h>
#include <stdio.h>
#include <string.h>

#include "gb_test.h"

char durable_sent[DURABLE_LARGE];
char durable_back[DURABLE_LARGE];

void durable_open(struct core_fixture *f, const char *spec) {
    core_fixture_prepare(f, spec);
    f->durable = true;
    f->config.durable_lag_ms = 3600 * 1000; /* nothing is stored by itself */
    core_fixture_open(f);
}

int durable_put(struct core_fixture *f, const char *name, unsigned seed, size_t n, enum gb_durability durability,
                struct gb_buffer_rec *ret, struct gb_error *err) {
    struct gb_upload_params p = core_upload_params("default", name, n);

    p.buffer.has_durability = true;
    p.buffer.durability = durability;
    core_bytes(seed, durable_sent, n);
    return core_upload(f->core, &p, durable_sent, ret, err);
}

void durable_put_ok(struct core_fixture *f, const char *name, unsigned seed, size_t n, enum gb_durability durability) {
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(durable_put(f, name, seed, n, durability, NULL, &err), err);
}

struct gb_buffer_rec durable_get(struct core_fixture *f, const char *name) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_rec rec;

    gb_assert_ok(core_buffer_get(f->core, "default", name, &rec, &err), err);
    gb_buffer_rec_done(&rec);
    return rec;
}

void durable_assert_bytes(struct core_fixture *f, const char *name, unsigned seed, size_t n) {
    struct gb_error err = GB_ERROR_INIT;

    memset(durable_back, 0, n);
    gb_assert_ok(core_download(f->core, "default", name, 0, n, durable_back, &err), err);
    core_bytes(seed, durable_sent, n);
    ck_assert(memcmp(durable_sent, durable_back, n) == 0);
}

int durable_do(struct core_fixture *f, durable_fn *fn, const char *name, bool *ret_moved, struct gb_error *err) {
    struct gb_locator at = core_at("default", name);
    struct core_wake wake;
    struct gb_buffer_call *call;
    int r;

    core_wake_init(&wake);
    call = core_any_call_new(core_wake, &wake).buffer;
    fn(f->core, &at, NULL, call);
    core_wake_wait(&wake);
    *err = call->base.error;
    r = err->code == GB_OK ? 0 : -1;
    if (ret_moved)
        *ret_moved = call->copied;
    gb_call_unref(&call->base);
    core_wake_done(&wake);
    return r;
}

int durable_patch(struct core_fixture *f, const char *name, enum gb_durability durability, struct gb_error *err) {
    struct gb_buffer_params params = {
        .session = {"default"}, .name = core_name(name), .has_durability = true, .durability = durability};
    struct core_wake wake;
    struct gb_buffer_call *call;
    int r;

    core_wake_init(&wake);
    call = core_any_call_new(core_wake, &wake).buffer;
    gb_buffer_patch(f->core, &params, NULL, call);
    core_wake_wait(&wake);
    *err = call->base.error;
    r = err->code == GB_OK ? 0 : -1;
    gb_call_unref(&call->base);
    core_wake_done(&wake);
    return r;
}

void durable_find_file(struct core_fixture *f, char *ret, size_t size) {
    glob_t found;

    snprintf(ret, size, "%s/data/[0-9a-f][0-9a-f]/*", f->store.dir);
    ck_assert_int_eq(glob(ret, 0, NULL, &found), 0);
    ck_assert_uint_eq(found.gl_pathc, 1);
    snprintf(ret, size, "%s", found.gl_pathv[0]);
    globfree(&found);
}
