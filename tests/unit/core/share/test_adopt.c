/* Memory of other processes as buffers: written and read where it is, never freed, lost with its owner. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "adopt_fixture.h"
#include "gb_test.h"

static const char *const specs[] = {"host:bytes=64M", "host:discrete,bytes=64M"};
#define SPECS 2

#define BYTES 20000
#define OFFSET 4104 /* begins within a page */

static char data[BYTES];
static char back[BYTES];

/* --- what is had -------------------------------------------------------------------------------------------------- */

static void check_record(const struct core_result *got) {
    ck_assert(got->created && got->rec.adopted && !got->rec.has_crc32c && !got->rec.sealed);
    ck_assert_int_eq(got->rec.state, GB_BUFFER_READY);
    ck_assert_uint_eq(got->rec.bytes, BYTES);
    ck_assert(got->rec.kind == GB_KIND_PAGEABLE || got->rec.kind == GB_KIND_PINNED);
    ck_assert_str_eq(got->rec.pool.s, "");
    ck_assert_int_eq(got->rec.generation, 1);
}

/* Everything goes into the owner's memory and out of it, and nothing beside the bytes is touched. */
START_TEST(it_is_the_owners_memory) {
    struct core_memory m = core_memory_new(3 * BYTES, F_SEAL_SHRINK);
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params u = core_upload_params("default", "a", BYTES);
    struct gb_device_write_params w;
    struct gb_adopt_params p;
    struct core_result got;
    struct gb_buffer_rec rec;
    struct gb_holder *h;

    core_open_two(&f, specs[_i]);
    h = core_holder(f.core);
    memset(m.bytes, 0xee, m.size);
    p = core_adopt_params(h, &m, "a", OFFSET, BYTES);
    gb_assert_ok(core_adopt(f.core, &p, &got, &err), err);
    check_record(&got);
    core_bytes(1, m.bytes + OFFSET, BYTES);
    core_expect(f.core, "default", "a", m.bytes + OFFSET, BYTES);

    core_bytes(2, data, BYTES); /* an upload that did not ask to be in place */
    gb_assert_ok(core_upload(f.core, &u, data, &rec, &err), err);
    ck_assert(rec.adopted && !rec.has_crc32c && rec.generation == 2);
    ck_assert_int_eq(memcmp(m.bytes + OFFSET, data, BYTES), 0);

    core_put_bytes(&f, "default", "b", BYTES, 3, data); /* copied in, in part and whole */
    w = core_copy_params("default", "b", "default", "a");
    gb_assert_ok(core_write(f.core, &w, &got, &err), err);
    ck_assert(!got.rec.has_crc32c && got.rec.adopted);
    ck_assert_int_eq(memcmp(m.bytes + OFFSET, data, BYTES), 0);
    w = core_fill_params("default", "a", 0x1122334455667788, 8);
    w.offset = 8;
    w.bytes = 16;
    w.has_bytes = true;
    gb_assert_ok(core_write(f.core, &w, NULL, &err), err);
    memcpy(data + 8, "\x88\x77\x66\x55\x44\x33\x22\x11\x88\x77\x66\x55\x44\x33\x22\x11", 16);
    ck_assert_int_eq(memcmp(m.bytes + OFFSET, data, BYTES), 0);

    w = core_copy_params("default", "a", "default", "c"); /* and out: an ordinary buffer */
    gb_assert_ok(core_write(f.core, &w, &got, &err), err);
    ck_assert(got.created && !got.rec.adopted);
    memset(m.bytes + OFFSET, 0, BYTES);
    core_expect(f.core, "default", "c", data, BYTES);
    for (uint64_t i = 0; i < m.size; i++)
        ck_assert(i - OFFSET < BYTES || (unsigned char)m.bytes[i] == 0xee);
    gb_holder_end(h);
    core_until_none_adopted(&f);
    core_tidy(&f);
    core_fixture_done(&f);
    core_memory_done(&m);
}
END_TEST

/* Two buffers over one file, of one owner and of two. */
START_TEST(the_same_memory_twice) {
    struct core_memory m = core_memory_new(2 * BYTES, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_adopt_params p;
    struct gb_holder *h[2];

    core_open_two(&f, specs[_i]);
    h[0] = core_holder(f.core);
    h[1] = core_holder(f.core);
    p = core_adopt_params(h[0], &m, "a", 0, BYTES);
    gb_assert_ok(core_adopt(f.core, &p, NULL, &err), err);
    p = core_adopt_params(h[1], &m, "b", 8, BYTES);
    gb_assert_ok(core_adopt(f.core, &p, NULL, &err), err);
    ck_assert_uint_eq(core_adopted(&f), 2);
    core_bytes(1, m.bytes, m.size);
    core_expect(f.core, "default", "a", m.bytes, BYTES);
    core_expect(f.core, "default", "b", m.bytes + 8, BYTES);
    gb_holder_end(h[0]);
    gb_assert_fails(core_download(f.core, "default", "a", 0, BYTES, back, &err), err, GB_ERR_CONTENT_LOST);
    core_expect(f.core, "default", "b", m.bytes + 8, BYTES);
    gb_holder_end(h[1]);
    core_until_none_adopted(&f);
    core_tidy(&f);
    core_fixture_done(&f);
    core_memory_done(&m);
}
END_TEST

/* --- what it does not count as ------------------------------------------------------------------------------------ */

START_TEST(it_counts_as_a_buffer_and_not_as_bytes) {
    struct core_memory m = core_memory_new(BYTES, F_SEAL_SHRINK);
    struct gb_session_params tight = {
        .name = core_name("other"), .has_quota_bytes = true, .has_quota_buffers = true, .has_quota_pinned_bytes = true};
    struct gb_name name = core_name("other");
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_stats stats;
    struct gb_adopt_params p;
    struct gb_holder *h;

    core_open_two(&f, specs[_i]);
    h = core_holder(f.core);
    tight.quota = (struct gb_quota){.bytes = 10, .buffers = 1, .pinned_bytes = 0};
    gb_assert_ok(core_session_patch(f.core, "other", &tight, &err), err);
    p = core_adopt_params(h, &m, "a", 0, BYTES);
    p.session = name;
    gb_assert_ok(core_adopt(f.core, &p, NULL, &err), err);
    gb_assert_ok(gb_session_stats(f.core, &name, &stats, &err), err);
    ck_assert_uint_eq(stats.session.used_bytes, 0);
    ck_assert_uint_eq(stats.session.used_pinned_bytes, 0);
    ck_assert_uint_eq(stats.session.buffers, 1);
    ck_assert_uint_eq(stats.adopted, 1);
    p.name = core_name("b");
    gb_assert_fails(core_adopt(f.core, &p, NULL, &err), err, GB_ERR_QUOTA_EXCEEDED);
    gb_assert_fails(gb_adopt_check(f.core, &p, &err), err, GB_ERR_QUOTA_EXCEEDED);
    gb_assert_ok(core_buffer_delete(f.core, "other", "a", &err), err);
    gb_assert_ok(core_adopt(f.core, &p, NULL, &err), err);
    gb_assert_ok(core_session_delete(f.core, "other", &err), err); /* it does not stand in the way of that */
    core_until_none_adopted(&f);
    ck_assert_int_eq(memcmp(m.bytes, back, BYTES), 0);
    gb_holder_end(h);
    gb_assert_ok(core_session_create(f.core, &tight, &err), err);
    core_tidy(&f);
    core_fixture_done(&f);
    core_memory_done(&m);
}
END_TEST

START_TEST(limits) {
    struct core_memory m = core_memory_new(BYTES, F_SEAL_SHRINK);
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_adopt_params p;
    struct gb_holder *h[2];
    int i;

    core_fixture_prepare(&f, specs[_i]);
    f.config.adopted_max = 3;
    f.config.holder_adopted_max = 2;
    core_fixture_open(&f);
    h[0] = core_holder(f.core);
    h[1] = core_holder(f.core);
    for (i = 0; i < 3; i++) {
        const char *names[] = {"a", "b", "c"};

        p = core_adopt_params(h[i / 2], &m, names[i], 0, BYTES);
        gb_assert_ok(core_adopt(f.core, &p, NULL, &err), err);
        ck_assert(gb_holder_maps(h[i / 2]));
    }
    p = core_adopt_params(h[0], &m, "d", 0, BYTES);
    gb_assert_fails(core_adopt(f.core, &p, NULL, &err), err, GB_ERR_LIMIT_REACHED); /* of its own */
    p.holder = h[1];
    gb_assert_fails(core_adopt(f.core, &p, NULL, &err), err, GB_ERR_LIMIT_REACHED); /* of all */
    gb_assert_ok(core_buffer_delete(f.core, "default", "a", &err), err);
    gb_assert_ok(core_adopt(f.core, &p, NULL, &err), err);
    gb_assert_ok(core_buffer_delete(f.core, "default", "d", &err), err);
    gb_holder_end(h[0]);
    gb_holder_end(h[1]);
    core_until_none_adopted(&f);
    core_fixture_done(&f);
    core_memory_done(&m);
}
END_TEST

/* --- what is refused ---------------------------------------------------------------------------------------------- */

static void refused(struct core_fixture *f, const struct gb_adopt_params *p, enum gb_code code) {
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_fails(core_adopt(f->core, p, NULL, &err), err, code);
    ck_assert_uint_eq(core_adopted(f), 0);
}

START_TEST(what_is_no_such_memory) {
    struct core_memory bare = core_memory_new(BYTES, 0);
    struct core_memory still = core_memory_new(BYTES, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE);
    struct core_memory good = core_memory_new(BYTES, F_SEAL_SHRINK);
    struct core_fixture f;
    struct gb_adopt_params p;
    struct gb_holder *h;
    char path[40];
    int pipes[2];
    int fd;

    core_open_two(&f, specs[_i]);
    h = core_holder(f.core);
    p = core_adopt_params(h, &bare, "a", 0, BYTES);
    refused(&f, &p, GB_ERR_CANNOT_ADOPT);
    p = core_adopt_params(h, &still, "a", 0, BYTES);
    refused(&f, &p, GB_ERR_CANNOT_ADOPT);
    p = core_adopt_params(h, &good, "a", 0, BYTES + 1); /* longer than it is */
    refused(&f, &p, GB_ERR_CANNOT_ADOPT);
    p = core_adopt_params(h, &good, "a", 8, BYTES);
    refused(&f, &p, GB_ERR_CANNOT_ADOPT);
    p = core_adopt_params(h, &good, "a", INT64_MAX - 7, BYTES);
    refused(&f, &p, GB_ERR_INVALID_ARGUMENT);
    p = core_adopt_params(h, &good, "a", 4, 8);
    refused(&f, &p, GB_ERR_INVALID_ARGUMENT);
    p = core_adopt_params(h, &good, "a", 0, 0);
    refused(&f, &p, GB_ERR_INVALID_ARGUMENT);
    p = core_adopt_params(h, &good, "a", 0, BYTES);
    p.import.device = 9;
    refused(&f, &p, GB_ERR_DEVICE_NOT_FOUND);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", good.fd); /* for reading only */
    fd = open(path, O_RDONLY | O_CLOEXEC);
    p = core_adopt_params(h, &good, "a", 0, BYTES);
    p.import.fd = fd;
    refused(&f, &p, GB_ERR_CANNOT_ADOPT);
    close(fd);
    ck_assert_int_eq(pipe2(pipes, O_CLOEXEC), 0);
    p.import.fd = pipes[0];
    refused(&f, &p, GB_ERR_CANNOT_ADOPT);
    fd = open("/dev/zero", O_RDWR | O_CLOEXEC);
    p.import.fd = fd;
    refused(&f, &p, GB_ERR_CANNOT_ADOPT);
    close(fd);
    p.import.way = GB_EXPORT_VMM;
    p.import.fd = pipes[1];
    refused(&f, &p, core_on_host(&f) ? GB_ERR_UNSUPPORTED : GB_ERR_CANNOT_ADOPT);
    close(pipes[0]);
    close(pipes[1]);
    gb_holder_end(h);
    core_tidy(&f);
    core_fixture_done(&f);
    core_memory_done(&bare);
    core_memory_done(&still);
    core_memory_done(&good);
}
END_TEST

/* What fresh memory would be needed for, and what says that the bytes stay. */
START_TEST(what_it_cannot_be) {
    struct core_memory m = core_memory_new(BYTES, F_SEAL_SHRINK);
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params u = core_upload_params("default", "a", BYTES);
    struct gb_lease_params map;
    struct gb_adopt_params p;
    struct gb_buffer_rec rec;
    struct gb_holder *h;

    core_open_two(&f, specs[_i]);
    h = core_holder(f.core);
    core_adopt_all(&f, h, &m, "a");
    p = core_adopt_params(h, &m, "a", 0, BYTES);
    gb_assert_fails(gb_adopt_check(f.core, &p, &err), err, GB_ERR_BUFFER_EXISTS);
    gb_assert_fails(core_adopt(f.core, &p, NULL, &err), err, GB_ERR_BUFFER_EXISTS);
    gb_assert_fails(core_seal(f.core, "default", "a", &err), err, GB_ERR_ADOPTED);
    map = core_map_params(h, "default", "a", false);
    gb_assert_fails(core_map(f.core, &map, NULL, &err), err, GB_ERR_ADOPTED);
    gb_assert_fails(core_sync(f.core, "default", "a", true, NULL, &err), err, GB_ERR_INVALID_ARGUMENT);
    u.fresh = true;
    gb_assert_fails(gb_upload_check(f.core, &u, &err), err, GB_ERR_ADOPTED);
    u = core_upload_params("default", "a", BYTES - 1);
    gb_assert_fails(gb_upload_check(f.core, &u, &err), err, GB_ERR_SHAPE_MISMATCH);
    u = core_upload_params("default", "a", BYTES);
    u.buffer.kind = GB_KIND_MANAGED;
    u.buffer.has_kind = true;
    gb_assert_fails(gb_upload_check(f.core, &u, &err), err, GB_ERR_INVALID_ARGUMENT);
    gb_assert_ok(core_buffer_get(f.core, "default", "a", &rec, &err), err);
    ck_assert(rec.generation == 1 && rec.leases == 0 && !rec.sealed);
    gb_holder_end(h);
    core_until_none_adopted(&f);
    core_tidy(&f);
    core_fixture_done(&f);
    core_memory_done(&m);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_adopt");

    gb_test_add_loop(suite, "memory", it_is_the_owners_memory, 120, SPECS);
    gb_test_add_loop(suite, "twice", the_same_memory_twice, 120, SPECS);
    gb_test_add_loop(suite, "quota", it_counts_as_a_buffer_and_not_as_bytes, 120, SPECS);
    gb_test_add_loop(suite, "limits", limits, 120, SPECS);
    gb_test_add_loop(suite, "no such memory", what_is_no_such_memory, 120, SPECS);
    gb_test_add_loop(suite, "refused", what_it_cannot_be, 120, SPECS);
    return gb_test_run(suite);
}
