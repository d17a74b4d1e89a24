/* Scans of a buffer for its checksums: the bytes read, the record, and concurrent changes. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "device_write_fixture.h"
#include "gb_test.h"

static const char *const specs[] = {"host:bytes=64M", "host:discrete,bytes=64M"};
#define SPECS 2

#define BYTES (5 * CORE_SLOT_BYTES + 77)

struct scanned {
    struct core_call p;
    struct gb_scan_call *call; /* a reference of our own */
};

static struct gb_scan_params scan_params(const char *name) {
    return (struct gb_scan_params){.session = core_name("default"),
                                   .name = core_name(name),
                                   .stream = core_name("default"),
                                   .digests = 1u << GB_DIGEST_SHA256,
                                   .verify = true};
}

static void scan_start(struct gb_core *core, const struct gb_scan_params *params, struct scanned *s) {
    core_call_begin(&s->p);
    s->call = s->p.call.scan;
    atomic_fetch_add(&s->call->base.refs, 1);
    gb_buffer_scan(core, params, s->call);
}

static int scan_end(struct scanned *s, struct gb_error *err) {
    return core_call_end(&s->p, err);
}

static int scan(struct gb_core *core, const struct gb_scan_params *params, struct scanned *s, struct gb_error *err) {
    scan_start(core, params, s);
    return scan_end(s, err);
}

static void expect_digest(const struct gb_scan_call *call, const void *head, size_t head_n, const void *bytes,
                          size_t n) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_hash *hash = gb_hash_new(GB_DIGEST_SHA256, &err);
    struct gb_digest digest;

    gb_assert_ok(gb_hash_add(hash, head, head_n, &err), err);
    gb_assert_ok(gb_hash_add(hash, bytes, n, &err), err);
    gb_hash_get(hash, &digest);
    gb_hash_free(hash);
    ck_assert(gb_digest_equal(&digest, &call->digest[GB_DIGEST_SHA256]));
}

START_TEST(reads_what_is_there) {
    static const size_t sizes[] = {0, 1, CORE_SLOT_BYTES, BYTES};
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_scan_params params = scan_params("a");
    struct gb_core_stats before;
    struct gb_core_stats after;
    struct scanned s;
    char *data = malloc(BYTES);
    unsigned i;

    core_open_two(&f, specs[_i]);
    params.head = "head";
    params.head_n = 4;
    gb_core_stats(f.core, &before);
    for (i = 0; i < 4; i++) {
        core_put_bytes(&f, "default", "a", sizes[i], i, data);
        gb_assert_ok(scan(f.core, &params, &s, &err), err);
        ck_assert(s.call->had_crc32c);
        ck_assert_uint_eq(s.call->crc32c, gb_crc32c(0, data, sizes[i]));
        ck_assert_uint_eq(s.call->buffer.crc32c, s.call->crc32c);
        ck_assert_int_eq(s.call->buffer.generation, (int64_t)i + 1);
        expect_digest(s.call, "head", 4, data, sizes[i]);
        gb_call_unref(&s.call->base);
    }
    gb_core_stats(f.core, &after);
    ck_assert_uint_eq(after.counters.downloads, before.counters.downloads); /* a scan does not count as a download */
    ck_assert_uint_eq(after.counters.downloads_failed, before.counters.downloads_failed);
    core_tidy(&f);
    core_fixture_done(&f);
    free(data);
}
END_TEST

/* A verification stores the checksum that a fill left unknown, also in the database. */
START_TEST(fills_in) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_device_write_params fill = core_fill_params("default", "a", 7, 1);
    struct gb_scan_params params = scan_params("a");
    struct gb_buffer_rec before;
    struct gb_buffer_rec rec;
    struct scanned s;
    char *data = malloc(BYTES);

    core_open_two(&f, specs[_i]);
    core_put_bytes(&f, "default", "a", BYTES, 1, NULL);
    gb_assert_ok(core_write(f.core, &fill, NULL, &err), err);
    memset(data, 7, BYTES);
    gb_assert_ok(core_buffer_get(f.core, "default", "a", &before, &err), err);
    ck_assert(!before.has_crc32c);
    params.verify = false; /* only a verification stores the checksum */
    gb_assert_ok(scan(f.core, &params, &s, &err), err);
    gb_call_unref(&s.call->base);
    gb_assert_ok(core_buffer_get(f.core, "default", "a", &rec, &err), err);
    ck_assert(!rec.has_crc32c);
    params.verify = true;
    gb_assert_ok(scan(f.core, &params, &s, &err), err);
    ck_assert(!s.call->had_crc32c);
    ck_assert_uint_eq(s.call->crc32c, gb_crc32c(0, data, BYTES));
    gb_call_unref(&s.call->base);
    gb_assert_ok(core_buffer_get(f.core, "default", "a", &rec, &err), err);
    ck_assert(rec.has_crc32c);
    ck_assert_uint_eq(rec.crc32c, gb_crc32c(0, data, BYTES));
    ck_assert_int_eq(rec.generation, before.generation); /* the content is the same */
    ck_assert_int_eq(rec.version, before.version + 1);
    core_fixture_close(&f);
    core_fixture_open(&f);
    gb_assert_ok(core_buffer_get(f.core, "default", "a", &rec, &err), err);
    ck_assert_int_eq(rec.state, GB_BUFFER_LOST);
    ck_assert(rec.has_crc32c);
    ck_assert_uint_eq(rec.crc32c, gb_crc32c(0, data, BYTES));
    gb_assert_fails(scan(f.core, &params, &s, &err), err, GB_ERR_CONTENT_LOST);
    gb_call_unref(&s.call->base);
    core_tidy(&f);
    core_fixture_done(&f);
    free(data);
}
END_TEST

/* A verification detects one changed byte in memory. */
START_TEST(sees_corruption) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_scan_params params = scan_params("a");
    struct core_result attributes;
    struct scanned s;
    char *data = malloc(BYTES);

    core_open_two(&f, specs[0]); /* this thread can write the memory */
    core_put_bytes(&f, "default", "a", BYTES, 1, data);
    if (core_on_host(&f)) {
        gb_assert_ok(core_attributes(f.core, "default", "a", &attributes, &err), err);
        ((char *)(uintptr_t)attributes.attr.device_address)[BYTES - 5] ^= 4;
        data[BYTES - 5] ^= 4;
        gb_assert_ok(scan(f.core, &params, &s, &err), err);
        ck_assert_uint_eq(s.call->crc32c, gb_crc32c(0, data, BYTES));
        ck_assert_uint_ne(s.call->crc32c, s.call->buffer.crc32c);
        gb_call_unref(&s.call->base);
    }
    core_tidy(&f);
    core_fixture_done(&f);
    free(data);
}
END_TEST

/* A scan reads the content at its begin, in the order of its stream. Newer content gets no checksum from it. */
START_TEST(replaced_meanwhile) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_device_write_params fill = core_fill_params("default", "a", 9, 1);
    struct gb_device_write_params retry = core_copy_params("other", "b", "default", "a");
    struct gb_scan_params params = scan_params("a");
    struct gb_buffer_rec rec;
    struct core_gate gate;
    struct scanned s;
    char *data = malloc(BYTES);

    core_open_two(&f, specs[_i]);
    core_put_bytes(&f, "default", "a", BYTES, 1, NULL);
    core_put_bytes(&f, "other", "b", BYTES - 1, 2, NULL);
    gb_assert_ok(core_write(f.core, &fill, NULL, &err), err);
    memset(data, 9, BYTES);
    core_gate_close(&gate, &f, "default");
    scan_start(f.core, &params, &s);
    ck_assert(!core_call_over(&s.p));
    strcpy(retry.stream.s, "s2");
    {
        struct gb_locator at = core_at("default", "s2");
        struct core_call p;

        core_call_begin(&p);
        gb_stream_make(f.core, &at, p.call.stream);
        gb_assert_ok(core_call_end(&p, &err), err);
    }
    gb_assert_ok(core_write(f.core, &retry, NULL, &err), err); /* a part: no checksum */
    core_gate_open(&gate);
    gb_assert_ok(scan_end(&s, &err), err);
    ck_assert_int_eq(s.call->buffer.generation, 2);
    ck_assert_uint_eq(s.call->crc32c, gb_crc32c(0, data, BYTES));
    gb_call_unref(&s.call->base);
    gb_assert_ok(core_buffer_get(f.core, "default", "a", &rec, &err), err);
    ck_assert_int_eq(rec.generation, 3);
    ck_assert(!rec.has_crc32c);
    core_tidy(&f);
    core_fixture_done(&f);
    free(data);
}
END_TEST

static int refuse(void *arg, const struct gb_buffer_rec *rec, struct gb_error *err) {
    ck_assert_int_eq(rec->generation, *(int64_t *)arg);
    return gb_error_set(err, GB_ERR_PRECONDITION_FAILED, "no");
}

static void count_free(void *arg) {
    ++*(int64_t *)arg;
}

START_TEST(refusals) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_scan_params params = scan_params("a");
    struct scanned many[GB_SCANS_MAX];
    struct core_gate gate;
    struct scanned s;
    int64_t generation = 1;
    unsigned i;

    core_open_two(&f, specs[_i]);
    gb_assert_fails(scan(f.core, &params, &s, &err), err, GB_ERR_BUFFER_NOT_FOUND);
    gb_call_unref(&s.call->base);
    core_put_bytes(&f, "default", "a", BYTES, 1, NULL);
    params.check = (struct gb_buffer_check){.check = refuse, .arg = &generation, .free_arg = count_free};
    gb_assert_fails(scan(f.core, &params, &s, &err), err, GB_ERR_PRECONDITION_FAILED);
    gb_call_unref(&s.call->base);
    ck_assert_int_eq(generation, 2); /* freed once */
    params.check = (struct gb_buffer_check){.check = NULL};
    strcpy(params.stream.s, "none");
    gb_assert_fails(scan(f.core, &params, &s, &err), err, GB_ERR_STREAM_NOT_FOUND);
    gb_call_unref(&s.call->base);
    strcpy(params.stream.s, "default");
    strcpy(params.session.s, "none");
    gb_assert_fails(scan(f.core, &params, &s, &err), err, GB_ERR_SESSION_NOT_FOUND);
    gb_call_unref(&s.call->base);
    strcpy(params.session.s, "default");
    /* Runs as many scans as the limit permits, and one more. */
    core_gate_close(&gate, &f, "default");
    for (i = 0; i < GB_SCANS_MAX; i++)
        scan_start(f.core, &params, &many[i]);
    gb_assert_fails(scan(f.core, &params, &s, &err), err, GB_ERR_SATURATED);
    gb_call_unref(&s.call->base);
    core_gate_open(&gate);
    for (i = 0; i < GB_SCANS_MAX; i++) {
        gb_assert_ok(scan_end(&many[i], &err), err);
        gb_call_unref(&many[i].call->base);
    }
    gb_assert_ok(scan(f.core, &params, &s, &err), err);
    gb_call_unref(&s.call->base);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

/* The closing core may cancel a scan instead of waiting for its end. */
START_TEST(closed_meanwhile) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_scan_params params = scan_params("a");
    struct scanned s;

    core_open_two(&f, specs[_i]);
    core_put_bytes(&f, "default", "a", 32 << 20, 1, NULL);
    scan_start(f.core, &params, &s);
    core_fixture_close(&f);
    if (scan_end(&s, &err) < 0)
        ck_assert_int_eq(err.code, GB_ERR_DRAINING);
    gb_call_unref(&s.call->base);
    core_fixture_open(&f);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_scan");

    gb_test_add_loop(suite, "reads", reads_what_is_there, 30, SPECS);
    gb_test_add_loop(suite, "fills", fills_in, 30, SPECS);
    gb_test_add(suite, "corruption", sees_corruption, 30);
    gb_test_add_loop(suite, "replaced", replaced_meanwhile, 30, SPECS);
    gb_test_add_loop(suite, "refusals", refusals, 30, SPECS);
    gb_test_add_loop(suite, "closed", closed_meanwhile, 60, SPECS);
    return gb_test_run(suite);
}
