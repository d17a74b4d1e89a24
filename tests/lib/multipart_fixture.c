#include "multipart_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gb_test.h"

void intake_fixture_done(struct core_fixture *f) {
    struct gb_error err = GB_ERROR_INIT;

    core_buffer_delete(f->core, "default", "x", &err);
    core_until_idle(f);
    core_fixture_done(f);
}

static const struct gb_name standard = {"default"};

static int end(struct core_call *p, struct intake_result *ret, struct gb_error *err) {
    int r = 0;

    core_wake_wait(&p->wake);
    if (!atomic_load(&p->call.base->finished))
        ck_abort_msg("told before the end");
    if (p->call.base->error.code != GB_OK) {
        *err = p->call.base->error;
        r = -1;
    }
    if (ret) {
        const struct gb_multipart_call *call = p->call.multipart;

        *ret = (struct intake_result){.view = call->multipart, .created = call->created};
        gb_buffer_rec_set(&ret->rec, &call->buffer);
    }
    gb_call_unref(p->call.base);
    core_wake_done(&p->wake);
    return r;
}

int intake_begin(struct gb_core *core, const struct gb_upload_params *params, struct intake_result *ret,
                 struct gb_error *err) {
    struct core_call p;

    core_call_begin(&p);
    gb_multipart_begin(core, params, p.call.multipart);
    return end(&p, ret, err);
}

int intake_complete(struct gb_core *core, const char *id, const struct gb_buffer_check *check, const uint32_t *crc,
                    struct intake_result *ret, struct gb_error *err) {
    struct gb_multipart_expected expected = {.has_crc32c = crc != NULL, .crc32c = crc ? *crc : 0};
    struct core_call p;

    core_call_begin(&p);
    gb_multipart_complete(core, &standard, id, check, &expected, p.call.multipart);
    return end(&p, ret, err);
}

void intake_digest(const void *data, size_t n, struct gb_multipart_expected *ret) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_hash *hash = gb_hash_new(GB_DIGEST_SHA256, &err);

    ck_assert_ptr_nonnull(hash);
    gb_assert_ok(gb_hash_add(hash, data, n, &err), err);
    *ret = (struct gb_multipart_expected){.digests = {.given = 1u << GB_DIGEST_SHA256}};
    gb_hash_get(hash, &ret->digests.digest[GB_DIGEST_SHA256]);
    gb_hash_free(hash);
}

int intake_complete_digest(struct gb_core *core, const char *id, const void *data, size_t n, struct intake_result *ret,
                           struct gb_error *err) {
    struct gb_multipart_expected expected;
    struct core_call p;

    intake_digest(data, n, &expected);
    core_call_begin(&p);
    gb_multipart_complete(core, &standard, id, NULL, &expected, p.call.multipart);
    return end(&p, ret, err);
}

int intake_delete(struct gb_core *core, const char *id, struct gb_error *err) {
    struct core_call p;

    core_call_begin(&p);
    gb_multipart_delete(core, &standard, id, p.call.multipart);
    return end(&p, NULL, err);
}

int intake_settle(struct gb_core *core, const char *id, struct intake_result *ret, struct gb_error *err) {
    struct core_call p;

    core_call_begin(&p);
    gb_multipart_drain(core, &standard, id, p.call.multipart);
    return end(&p, ret, err);
}

void intake_get(struct gb_core *core, const char *id, struct gb_multipart_view *ret) {
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(gb_multipart_get(core, &standard, id, ret, &err), err);
}

int intake_part_broken(struct gb_core *core, const char *id, uint64_t offset, size_t n, const void *data, size_t sent,
                       struct gb_error *err) {
    struct gb_upload *part;
    struct core_wake w;
    int r;

    core_wake_init(&w);
    r = gb_multipart_part(core, &standard, id, offset, n, true, core_waker(&w), &part, err);
    if (r == 0) {
        r = core_upload_send(part, &w, data, sent, err);
        gb_upload_free(part);
    }
    core_wake_done(&w);
    return r;
}

int intake_part(struct gb_core *core, const char *id, uint64_t offset, const void *data, size_t n,
                struct gb_error *err) {
    struct gb_upload *part;
    struct core_wake w;
    uint32_t crc;
    int r;

    core_wake_init(&w);
    r = gb_multipart_part(core, &standard, id, offset, n, true, core_waker(&w), &part, err);
    if (r == 0) {
        r = core_upload_send(part, &w, data, n, err);
        if (r == 0)
            r = gb_upload_end(part, err);
        while (r == 0 && (r = gb_part_result(part, &crc, NULL, err)) == 0)
            core_wake_wait(&w);
        gb_upload_free(part);
    }
    core_wake_done(&w);
    return r < 0 ? -1 : 0;
}

static int send(struct gb_append *a, struct core_wake *w, const char *data, size_t n, struct gb_error *err) {
    size_t sent = 0;
    void *room;
    size_t size;
    int r;

    while (sent < n) {
        r = gb_append_room(a, &room, &size, err);
        if (r < 0)
            return -1;
        if (r == 0) {
            core_wake_wait(w);
            continue;
        }
        if (size > n - sent)
            size = n - sent;
        memcpy(room, data + sent, size);
        if (gb_append_fill(a, size, err) < 0)
            return -1;
        sent += size;
    }
    return 0;
}

static int conclude(struct gb_append *a, struct core_wake *w, struct gb_error *err) {
    struct gb_multipart_view view;
    int r;

    while ((r = gb_append_end(a, err)) == 0)
        core_wake_wait(w);
    if (r > 0) {
        while ((r = gb_append_result(a, &view, err)) == 0)
            core_wake_wait(w);
    }
    return r;
}

static void no_app(void *app) {
    (void)app;
}

int intake_append(struct gb_core *core, char id[GB_MULTIPART_ID_SIZE], const struct gb_upload_params *params,
                  uint64_t offset, const void *data, size_t n, bool breaks, struct gb_error *err) {
    struct gb_multipart_view view;
    struct gb_append *a;
    struct core_wake w;
    uint64_t stands;
    int r;

    core_wake_init(&w);
    if (params)
        r = gb_append_new(core, params, &params->bytes, NULL, no_app, core_waker(&w), &a, err);
    else
        r = gb_append_open(core, &standard, id, offset, core_waker(&w), &a, &stands, err);
    if (r == 0) {
        if (params) {
            gb_append_view(a, &view);
            memcpy(id, view.id, GB_MULTIPART_ID_SIZE);
            r = gb_append_describe(a, params, 0, err);
        }
        if (r == 0)
            r = send(a, &w, data, n, err);
        if (r == 0 && !breaks)
            r = conclude(a, &w, err);
        gb_append_free(a, false);
    }
    core_wake_done(&w);
    return r < 0 ? -1 : 0;
}

struct quiet {
    struct gb_core *core;
    const char *id;
    struct gb_multipart_view *view;
};

static bool is_quiet(void *arg) {
    struct quiet *q = arg;

    intake_get(q->core, q->id, q->view);
    return q->view->running == 0;
}

void intake_until_quiet(struct gb_core *core, const char *id, struct gb_multipart_view *ret) {
    struct quiet q = {core, id, ret};

    core_until(is_quiet, &q, "nothing of it is under way");
}
