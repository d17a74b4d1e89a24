/* libgpubuf: exports and single leases. The handles of the host backend cannot be opened. */
#include <string.h>
#include <unistd.h>

#include "client_fixture.h"

static struct client_fixture f;
static const struct gpubuf_put_params ipc = {.dtype = "float32", .shape = "2,3", .kind = "ipc"};

static void setup(void) {
    static const char *const extra[] = {"--backend", "host:legacy=fake", NULL};

    client_fixture_start(&f, extra);
    client_ok(&f, gpubuf_put(f.client, "default", "x", gpubuf_from_memory("123456789012345678901234", 24), &ipc, NULL,
                             &f.err));
}

static void teardown(void) {
    client_fixture_stop(&f);
}

START_TEST(handles) {
    static const unsigned char nothing[GPUBUF_HANDLE_BYTES];
    struct gpubuf_export_params params = {.write = true, .ttl_s = 3600};
    struct gpubuf_how how = {.wait_s = 5};
    struct gpubuf_exported given;
    struct gpubuf_exported again;
    struct gpubuf_lease lease;
    struct gpubuf_buffer rec;

    client_ok(&f, gpubuf_export(f.client, "default", "x", NULL, NULL, &given, &f.err));
    ck_assert_mem_ne(given.handle, nothing, sizeof(nothing));
    ck_assert(!given.write && given.offset == 0 && given.bytes == 24 && given.ndim == 2 && given.shape[1] == 3);
    ck_assert_str_eq(given.dtype, "float32");
    ck_assert_int_eq(given.device.index, 0);
    ck_assert_uint_eq(given.generation, 1);
    ck_assert(given.etag[0] == '"' && given.expires_at[0] != '\0');
    /* The handle that a program passes on to Triton. */
    ck_assert_int_eq(strncmp(gpubuf_answer_of(f.client)->body, "{\"raw_handle\":{\"b64\":\"", 22), 0);
    client_ok(&f, gpubuf_export(f.client, "default", "x", &params, &how, &again, &f.err));
    ck_assert_mem_ne(again.handle, nothing, sizeof(nothing));
    ck_assert(again.write && strcmp(again.lease, given.lease) != 0);
    client_ok(&f, gpubuf_lease_get(f.client, again.lease, &lease, &f.err));
    ck_assert_str_eq(lease.expires_at, again.expires_at);
    ck_assert_str_eq(lease.mode, "write");
    ck_assert_str_eq(lease.state, "present");
    ck_assert_int_eq(lease.pid, 0);
    client_fails(&f, gpubuf_buffer_delete(f.client, "default", "x", false, NULL, &f.err), GPUBUF_MAPPED);
    client_ok(&f, gpubuf_lease_delete(f.client, given.lease, &f.err));
    client_ok(&f, gpubuf_lease_delete(f.client, again.lease, &f.err));
    client_fails(&f, gpubuf_lease_get(f.client, again.lease, NULL, &f.err), GPUBUF_LEASE_NOT_FOUND);
    client_ok(&f, gpubuf_buffer_get(f.client, "default", "x", false, NULL, &rec, &f.err));
    ck_assert(!rec.escaped && rec.leases == 0);
}
END_TEST

START_TEST(refusals) {
    struct gpubuf_export_params params = {.ttl_s = 1000000000};
    struct gpubuf_put_params pageable = {.kind = "pageable"};
    struct gpubuf_options options = {.url = f.url};
    struct gpubuf_exported given;
    gpubuf_client *tcp = NULL;

    client_fails(&f, gpubuf_export(f.client, "default", "x", &params, NULL, &given, &f.err), GPUBUF_INVALID_ARGUMENT);
    client_fails(&f, gpubuf_export(f.client, "default", "none", NULL, NULL, &given, &f.err), GPUBUF_BUFFER_NOT_FOUND);
    client_ok(&f, gpubuf_put(f.client, "default", "y", gpubuf_from_memory("abc", 3), &pageable, NULL, &f.err));
    client_fails(&f, gpubuf_export(f.client, "default", "y", NULL, NULL, &given, &f.err), GPUBUF_UNSUPPORTED);
    client_ok(&f, gpubuf_open(&options, &tcp, &f.err));
    client_fails(&f, gpubuf_export(tcp, "default", "x", NULL, NULL, &given, &f.err), GPUBUF_MAP_NOT_PERMITTED);
    gpubuf_close(tcp);
}
END_TEST

/* The daemon ends an export within a second after its expiry, or later on a busy machine. */
START_TEST(its_time) {
    struct gpubuf_export_params params = {.write = true, .ttl_s = 1};
    struct gpubuf_exported given;
    struct gpubuf_buffer rec;
    int tries = 0;

    client_ok(&f, gpubuf_export(f.client, "default", "x", &params, NULL, &given, &f.err));
    do {
        usleep(10000);
        client_ok(&f, gpubuf_buffer_get(f.client, "default", "x", false, NULL, &rec, &f.err));
        ck_assert_int_lt(tries++, 10000);
    } while (rec.leases > 0);
    ck_assert(rec.escaped && !rec.has_crc32c);
    client_fails(&f, gpubuf_buffer_seal(f.client, "default", "x", NULL, NULL, &f.err), GPUBUF_ESCAPED);
    client_ok(&f, gpubuf_put(f.client, "default", "x", gpubuf_from_memory("123456789012345678901234", 24), &ipc, NULL,
                             &f.err));
    client_ok(&f, gpubuf_buffer_seal(f.client, "default", "x", NULL, &rec, &f.err));
    ck_assert(!rec.escaped && rec.sealed);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("client_export");
    TCase *tcase = tcase_create("export");

    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, handles);
    tcase_add_test(tcase, refusals);
    tcase_add_test(tcase, its_time);
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}
