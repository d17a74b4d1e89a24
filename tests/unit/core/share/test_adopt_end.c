/* Owners that go: at once, in the middle of everything, while the database is busy; and faults of the device. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "adopt_fixture.h"
#include "gb_test.h"

static const char *const specs[] = {"host:bytes=64M", "host:discrete,bytes=64M"};
#define SPECS 2

#define BYTES 20000

static char data[BYTES];
static char back[BYTES];

static enum gb_buffer_state state_of(struct core_fixture *f, const char *name, bool *ret_adopted) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_rec rec;

    gb_assert_ok(core_buffer_get(f->core, "default", name, &rec, &err), err);
    *ret_adopted = rec.adopted;
    return rec.state;
}

static void expect_lost(struct core_fixture *f, const char *name) {
    struct gb_error err = GB_ERROR_INIT;
    bool adopted;

    ck_assert_int_eq(state_of(f, name, &adopted), GB_BUFFER_LOST);
    ck_assert(adopted);
    ck_assert_int_eq(core_download(f->core, "default", name, 0, BYTES, back, &err), -1);
    ck_assert_int_eq(err.code, GB_ERR_CONTENT_LOST);
    ck_assert_ptr_nonnull(strstr(err.detail, "another process"));
}

/* --- lost, and what may follow ------------------------------------------------------------------------------------ */

START_TEST(lost_with_the_owner_and_had_again) {
    struct core_memory m = core_memory_new(BYTES, F_SEAL_SHRINK);
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params u = core_upload_params("default", "a", BYTES);
    struct gb_adopt_params p;
    struct core_result got;
    struct gb_holder *h = NULL;
    struct gb_buffer_rec rec;
    int round;

    core_open_two(&f, specs[_i]);
    for (round = 0; round < 3; round++) { /* over the lost buffer: the same one, of a later generation */
        h = core_holder(f.core);
        p = core_adopt_params(h, &m, "a", 0, BYTES);
        gb_assert_ok(core_adopt(f.core, &p, &got, &err), err);
        ck_assert(got.created == (round == 0) && got.rec.generation == round + 1 && got.rec.state == GB_BUFFER_READY);
        core_bytes((unsigned)round, m.bytes, BYTES);
        core_expect(f.core, "default", "a", m.bytes, BYTES);
        gb_holder_end(h);
        expect_lost(&f, "a");
    }
    core_until_none_adopted(&f);
    gb_assert_ok(core_upload(f.core, &u, m.bytes, &rec, &err), err); /* an ordinary one again */
    ck_assert(!rec.adopted && rec.has_crc32c);
    memset(m.bytes, 0, BYTES);
    core_bytes(2, data, BYTES);
    core_expect(f.core, "default", "a", data, BYTES);
    core_tidy(&f);
    core_fixture_done(&f);
    core_memory_done(&m);
}
END_TEST

/* Deleted: the owner's memory stays as it is, and its end says nothing more. */
START_TEST(deleted_before_the_owner_goes) {
    struct core_memory m = core_memory_new(BYTES, F_SEAL_SHRINK);
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_rec rec;
    struct gb_holder *h;

    core_open_two(&f, specs[_i]);
    h = core_holder(f.core);
    core_adopt_all(&f, h, &m, "a");
    core_bytes(1, m.bytes, BYTES);
    core_bytes(1, data, BYTES);
    gb_assert_ok(core_buffer_delete(f.core, "default", "a", &err), err);
    ck_assert_uint_eq(core_adopted(&f), 0); /* when the call ends */
    ck_assert(!gb_holder_maps(h));
    ck_assert_int_eq(memcmp(m.bytes, data, BYTES), 0);
    core_put_bytes(&f, "default", "a", 100, 2, NULL); /* another of that name is nothing of the owner's */
    gb_holder_end(h);
    gb_assert_ok(core_buffer_get(f.core, "default", "a", &rec, &err), err);
    ck_assert(rec.state == GB_BUFFER_READY && !rec.adopted);
    core_tidy(&f);
    core_fixture_done(&f);
    core_memory_done(&m);
}
END_TEST

/* --- in the middle ------------------------------------------------------------------------------------------------ */

/* Running readers continue, and the mapping ends after the last of them. */
START_TEST(while_it_is_read) {
    struct core_memory m = core_memory_new(BYTES, F_SEAL_SHRINK);
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_name session = core_name("default");
    struct gb_name name = core_name("a");
    struct gb_name stream = core_name("default");
    struct gb_download *d;
    struct core_wake w;
    struct gb_holder *h;

    core_open_two(&f, specs[_i]);
    h = core_holder(f.core);
    core_adopt_all(&f, h, &m, "a");
    core_bytes(1, m.bytes, BYTES);
    core_wake_init(&w);
    gb_assert_ok(gb_download_open(f.core, &session, &name, &stream, core_waker(&w), &d, &err), err);
    gb_assert_ok(gb_download_start(d, 0, BYTES, &err), err);
    gb_holder_end(h);
    expect_lost(&f, "a");
    ck_assert_uint_eq(core_adopted(&f), 1);
    gb_assert_ok(core_download_read(d, &w, back, BYTES, &err), err);
    ck_assert_int_eq(memcmp(m.bytes, back, BYTES), 0);
    gb_download_free(d, true);
    core_wake_done(&w);
    core_until_none_adopted(&f);
    core_tidy(&f);
    core_fixture_done(&f);
    core_memory_done(&m);
}
END_TEST

START_TEST(while_it_is_written) {
    struct core_memory m = core_memory_new(BYTES, F_SEAL_SHRINK);
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params u = core_upload_params("default", "a", BYTES);
    struct gb_upload *upload;
    struct core_wake w;
    struct gb_holder *h;

    core_open_two(&f, specs[_i]);
    h = core_holder(f.core);
    core_adopt_all(&f, h, &m, "a");
    core_wake_init(&w);
    u.waker = core_waker(&w);
    gb_assert_ok(gb_upload_begin(f.core, &u, &upload, &err), err);
    gb_assert_ok(core_upload_send(upload, &w, data, BYTES / 2, &err), err);
    gb_holder_end(h);
    expect_lost(&f, "a");
    gb_assert_ok(core_upload_send(upload, &w, data, BYTES / 2, &err), err);
    gb_assert_fails(core_upload_finish(upload, &w, NULL, &err), err, GB_ERR_CONTENT_LOST);
    gb_upload_free(upload);
    core_wake_done(&w);
    expect_lost(&f, "a");
    core_until_none_adopted(&f);
    core_tidy(&f);
    core_fixture_done(&f);
    core_memory_done(&m);
}
END_TEST

/* A copy is queued behind a gate, from it or into it. */
START_TEST(while_a_copy_is_queued) {
    bool into = _i / SPECS;
    struct core_memory m = core_memory_new(BYTES, F_SEAL_SHRINK);
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_device_write_params w;
    struct core_call pending;
    struct core_gate gate;
    struct gb_holder *h;
    int r;

    core_open_two(&f, specs[_i % SPECS]);
    h = core_holder(f.core);
    core_adopt_all(&f, h, &m, "a");
    core_put_bytes(&f, "default", "b", BYTES, 2, data);
    core_bytes(1, m.bytes, BYTES);
    core_gate_close(&gate, &f, "default");
    w = into ? core_copy_params("default", "b", "default", "a") : core_copy_params("default", "a", "default", "b");
    core_call_begin(&pending);
    gb_buffer_write(f.core, &w, pending.call.buffer);
    gb_holder_end(h);
    ck_assert_uint_eq(core_adopted(&f), 1);
    core_gate_open(&gate);
    r = core_call_end(&pending, &err);
    if (into) {
        gb_assert_fails(r, err, GB_ERR_CONTENT_LOST);
    } else {
        gb_assert_ok(r, err);
        core_expect(f.core, "default", "b", m.bytes, BYTES);
    }
    expect_lost(&f, "a");
    core_until_none_adopted(&f);
    core_tidy(&f);
    core_fixture_done(&f);
    core_memory_done(&m);
}
END_TEST

/* --- while the database is busy ----------------------------------------------------------------------------------- */

/* An upload breaks off, and its record, "partial", is on its way when the owner goes: the bytes stay lost. */
START_TEST(lost_before_partial_is_committed) {
    struct core_memory m = core_memory_new(BYTES, F_SEAL_SHRINK);
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params u = core_upload_params("default", "a", BYTES);
    struct core_busy busy;
    struct gb_upload *upload;
    struct core_wake w;
    struct gb_holder *h;

    core_open_two(&f, specs[_i]);
    h = core_holder(f.core);
    core_adopt_all(&f, h, &m, "a");
    core_wake_init(&w);
    u.waker = core_waker(&w);
    gb_assert_ok(gb_upload_begin(f.core, &u, &upload, &err), err);
    gb_assert_ok(core_upload_send(upload, &w, data, BYTES / 2, &err), err);
    core_busy_begin(&busy, &f);
    gb_upload_free(upload);
    core_until_queued(&f);
    gb_holder_end(h);
    expect_lost(&f, "a");
    core_busy_end(&busy);
    core_until_none_adopted(&f); /* the upload is through with it */
    expect_lost(&f, "a");
    core_wake_done(&w);
    core_tidy(&f);
    core_fixture_done(&f);
    core_memory_done(&m);
}
END_TEST

/* The owner goes while the record of what it gave is on its way. */
START_TEST(lost_before_it_is_committed) {
    struct core_memory m = core_memory_new(BYTES, F_SEAL_SHRINK);
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_adopt_params p;
    struct core_call pending;
    struct core_busy busy;
    struct gb_holder *h;

    core_open_two(&f, specs[_i]);
    h = core_holder(f.core);
    p = core_adopt_params(h, &m, "a", 0, BYTES);
    p.import.fd = fcntl(m.fd, F_DUPFD_CLOEXEC, 0);
    core_busy_begin(&busy, &f);
    core_call_begin(&pending);
    gb_buffer_adopt(f.core, &p, pending.call.buffer);
    core_until_queued(&f);
    gb_holder_end(h);
    core_busy_end(&busy);
    gb_assert_ok(core_call_end(&pending, &err), err);
    expect_lost(&f, "a");
    core_until_none_adopted(&f);
    core_tidy(&f);
    core_fixture_done(&f);
    core_memory_done(&m);
}
END_TEST

/* --- the device refuses ------------------------------------------------------------------------------------------- */

START_TEST(the_device_refuses) {
    static const char *const faults[] = {"import", "import_end"};
    struct core_memory m = core_memory_new(BYTES, F_SEAL_SHRINK);
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_adopt_params p;
    struct gb_holder *h;
    char spec[128];

    snprintf(spec, sizeof(spec), "fault:%s@1=cudaErrorInvalidValue:%s", faults[_i % 2], specs[_i / 2]);
    core_open_two(&f, spec);
    h = core_holder(f.core);
    p = core_adopt_params(h, &m, "a", 0, BYTES);
    if (_i % 2 == 0) {
        gb_assert_fails(core_adopt(f.core, &p, NULL, &err), err, GB_ERR_DEVICE_ERROR);
        ck_assert_uint_eq(core_adopted(&f), 0);
    }
    gb_assert_ok(core_adopt(f.core, &p, NULL, &err), err);
    gb_holder_end(h);
    core_until_none_adopted(&f); /* tried again */
    core_tidy(&f);
    core_fixture_done(&f);
    core_memory_done(&m);
}
END_TEST

/* --- many, at once ------------------------------------------------------------------------------------------------ */

struct owner {
    pthread_t thread;
    struct core_fixture *f;
    const struct core_memory *memory;
    char name[2];
};

/* Some of what is asked for comes too early or too late: what counts is that nothing is left. */
static void *own(void *arg) {
    struct owner *o = arg;
    struct gb_error err;
    char some[BYTES];
    int i;

    for (i = 0; i < 40; i++) {
        struct gb_holder *h = core_holder(o->f->core);
        struct gb_adopt_params p = core_adopt_params(h, o->memory, o->name, 0, BYTES);
        struct gb_upload_params u = core_upload_params("default", o->name, BYTES);

        err = GB_ERROR_INIT;
        (void)core_adopt(o->f->core, &p, NULL, &err);
        err = GB_ERROR_INIT;
        (void)core_download(o->f->core, "default", o->name, 0, BYTES, some, &err);
        err = GB_ERROR_INIT;
        if (i % 3 == 0)
            (void)core_upload(o->f->core, &u, some, NULL, &err);
        err = GB_ERROR_INIT;
        if (i % 5 == 0)
            (void)core_buffer_delete(o->f->core, "default", o->name, &err);
        gb_holder_end(h);
    }
    return NULL;
}

START_TEST(many_owners_at_once) {
    struct core_memory m = core_memory_new(BYTES, F_SEAL_SHRINK);
    struct core_fixture f;
    struct owner owners[6];
    int i;

    core_open_two(&f, specs[_i]);
    for (i = 0; i < 6; i++) {
        owners[i] = (struct owner){.f = &f, .memory = &m, .name = {(char)('a' + i % 3), '\0'}};
        ck_assert_int_eq(pthread_create(&owners[i].thread, NULL, own, &owners[i]), 0);
    }
    for (i = 0; i < 6; i++)
        pthread_join(owners[i].thread, NULL);
    core_until_none_adopted(&f);
    core_tidy(&f);
    core_fixture_done(&f);
    core_memory_done(&m);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_adopt_end");

    gb_test_add_loop(suite, "lost", lost_with_the_owner_and_had_again, 120, SPECS);
    gb_test_add_loop(suite, "deleted", deleted_before_the_owner_goes, 120, SPECS);
    gb_test_add_loop(suite, "read", while_it_is_read, 120, SPECS);
    gb_test_add_loop(suite, "written", while_it_is_written, 120, SPECS);
    gb_test_add_loop(suite, "copied", while_a_copy_is_queued, 120, 2 * SPECS);
    gb_test_add_loop(suite, "partial", lost_before_partial_is_committed, 120, SPECS);
    gb_test_add_loop(suite, "commit", lost_before_it_is_committed, 120, SPECS);
    gb_test_add_loop(suite, "faults", the_device_refuses, 120, 2 * SPECS);
    gb_test_add_loop(suite, "many", many_owners_at_once, 240, SPECS);
    return gb_test_run(suite);
}
