/* libgpubuf: buffers over memory of this process. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client_fixture.h"

#define BYTES ((size_t)100000)

static struct client_fixture f;
static unsigned char *memory;
static unsigned char *data;
static int fd;

static void setup(void) {
    client_fixture_start(&f, NULL);
    data = client_bytes(BYTES);
    fd = memfd_create("owned", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert_int_eq(ftruncate(fd, BYTES), 0);
    ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

static void teardown(void) {
    munmap(memory, BYTES);
    close(fd);
    free(data);
    client_fixture_stop(&f);
}

static struct gpubuf_adopt_params all(void) {
    return (struct gpubuf_adopt_params){.fd = fd, .bytes = BYTES};
}

static uint64_t adopted(void) {
    client_ok(&f, client_ask(f.client, "GET", "/v1/stats", NULL, &f.err));
    return client_number(f.client, "adopted");
}

/* Adopted memory has no checksum. */
static void expect(const char *name, const unsigned char *wanted, size_t n) {
    unsigned char *back = calloc(1, n);

    client_ok(&f, gpubuf_get(f.client, "default", name, gpubuf_to_memory(back, n), NULL, NULL, &f.err));
    ck_assert_int_eq(memcmp(back, wanted, n), 0);
    free(back);
}

START_TEST(there_and_back) {
    struct gpubuf_adopt_params params = {.fd = fd, .dtype = "float32", .shape = "5,10", .offset = 4096};
    struct gpubuf_adopt_params whole = all();
    gpubuf_adoption *part = NULL;
    gpubuf_adoption *a = NULL;
    struct gpubuf_buffer rec;

    memcpy(memory, data, BYTES);
    client_ok(&f, gpubuf_adopt(f.client, "default", "x", &whole, &a, &rec, &f.err));
    ck_assert(rec.created && !rec.has_crc32c && rec.bytes == BYTES && gpubuf_adoption_alive(a));
    ck_assert_str_eq(rec.name, "x");
    ck_assert_str_eq(rec.session, "default");
    expect("x", data, BYTES);
    client_ok(&f, gpubuf_adopt(f.client, "default", "y", &params, &part, &rec, &f.err));
    ck_assert(rec.ndim == 2 && rec.shape[0] == 5 && rec.bytes == 200);
    client_ok(&f, client_ask(f.client, "GET", "/v1/sessions/default/buffers/y", NULL, &f.err));
    ck_assert(client_says(f.client, "\"adopted\":true") && client_number(f.client, "bytes") == 200);
    expect("y", data + 4096, 200);
    client_ok(&f, gpubuf_put(f.client, "default", "y", gpubuf_from_memory(data, 200), NULL, NULL, &f.err));
    ck_assert_int_eq(memcmp(memory + 4096, data, 200), 0);
    ck_assert_uint_eq(adopted(), 2);
    client_fails(&f, client_ask(f.client, "POST", "/v1/sessions/default/buffers/x/seal", "{}", &f.err), GPUBUF_ADOPTED);
    client_ok(&f, gpubuf_adoption_release(part, &f.err));
    client_ok(&f, gpubuf_adoption_release(a, &f.err));
    client_fails(&f, client_ask(f.client, "GET", "/v1/sessions/default/buffers/x", NULL, &f.err),
                 GPUBUF_BUFFER_NOT_FOUND);
    ck_assert_uint_eq(adopted(), 0);
    ck_assert_int_eq(memcmp(memory + 4096, data, 200), 0);
    client_ok(&f, gpubuf_adoption_release(NULL, &f.err));
}
END_TEST

/* One side of a mirrored buffer; its end keeps the bytes on the other side. */
START_TEST(one_side) {
    struct gpubuf_adopt_params params = all();
    gpubuf_adoption *a = NULL;

    params.side = "host";
    memcpy(memory, data, BYTES);
    client_ok(&f, gpubuf_adopt(f.client, "default", "m", &params, &a, NULL, &f.err));
    client_ok(&f, client_ask(f.client, "GET", "/v1/sessions/default/buffers/m", NULL, &f.err));
    ck_assert(client_says(f.client, "\"mirrored\":true") && client_says(f.client, "\"adopted\":true"));
    ck_assert_uint_eq(client_number(f.client, "bytes"), BYTES);
    client_ok(&f, gpubuf_adoption_release(a, &f.err));
    client_ok(&f, client_ask(f.client, "GET", "/v1/sessions/default/buffers/m", NULL, &f.err));
    ck_assert(!client_says(f.client, "\"adopted\":true"));
    memset(memory, 0, BYTES);
    expect("m", data, BYTES);
    params.side = "device";
    client_fails(&f, gpubuf_adopt(f.client, "default", "m", &params, &a, NULL, &f.err), GPUBUF_INVALID_ARGUMENT);
    client_ok(&f, client_ask(f.client, "DELETE", "/v1/sessions/default/buffers/m", NULL, &f.err));
}
END_TEST

START_TEST(refused) {
    struct gpubuf_adopt_params params = all();
    unsigned char handle[64] = {1, 2, 3};
    gpubuf_adoption *a = NULL;
    struct gpubuf_buffer rec;

    params.shape = "1,,2";
    client_fails(&f, gpubuf_adopt(f.client, "default", "x", &params, &a, NULL, &f.err), GPUBUF_BAD_ARGUMENT);
    params = all();
    params.way = GPUBUF_WAY_POOL;
    client_fails(&f, gpubuf_adopt(f.client, "default", "x", &params, &a, NULL, &f.err), GPUBUF_BAD_ARGUMENT);
    params.way = GPUBUF_WAY_LEGACY;
    client_fails(&f, gpubuf_adopt(f.client, "default", "x", &params, &a, NULL, &f.err), GPUBUF_BAD_ARGUMENT);
    params.handle = handle;
    client_fails(&f, gpubuf_adopt(f.client, "default", "x", &params, &a, NULL, &f.err), GPUBUF_UNSUPPORTED);
    params = all();
    params.fd = -1;
    client_fails(&f, gpubuf_adopt(f.client, "default", "x", &params, &a, NULL, &f.err), GPUBUF_BAD_ARGUMENT);
    client_fails(&f, gpubuf_adopt(f.client, "default", "x", NULL, &a, NULL, &f.err), GPUBUF_BAD_ARGUMENT);
    client_fails(&f, gpubuf_adopt(f.client, "default", "", &params, &a, NULL, &f.err), GPUBUF_BAD_ARGUMENT);
    params.fd = 0; /* this descriptor is no memfd */
    client_fails(&f, gpubuf_adopt(f.client, "default", "x", &params, &a, NULL, &f.err), GPUBUF_CANNOT_ADOPT);
    params.fd = 9999;
    ck_assert_int_eq(gpubuf_adopt(f.client, "default", "x", &params, &a, NULL, &f.err), -1);
    params = all();
    client_fails(&f, gpubuf_adopt(f.client, "none", "x", &params, &a, NULL, &f.err), GPUBUF_SESSION_NOT_FOUND);
    ck_assert_ptr_null(a);
    client_ok(&f, gpubuf_adopt(f.client, "default", "x", &params, &a, &rec, &f.err)); /* despite the failure */
    client_fails(&f, gpubuf_adopt(f.client, "default", "x", &params, &a, NULL, &f.err), GPUBUF_BUFFER_EXISTS);
    client_ok(&f, gpubuf_adoption_release(a, &f.err));
}
END_TEST

/* Ending an adoption does not delete another buffer of that name, and succeeds without a daemon. */
START_TEST(released_late) {
    struct gpubuf_adopt_params params = all();
    gpubuf_adoption *a[2] = {NULL};

    client_ok(&f, gpubuf_adopt(f.client, "default", "x", &params, &a[0], NULL, &f.err));
    client_ok(&f, client_ask(f.client, "DELETE", "/v1/sessions/default/buffers/x", NULL, &f.err));
    client_ok(&f, gpubuf_put(f.client, "default", "x", gpubuf_from_memory(data, BYTES), NULL, NULL, &f.err));
    client_ok(&f, gpubuf_adoption_release(a[0], &f.err));
    expect("x", data, BYTES);
    client_ok(&f, gpubuf_adopt(f.client, "default", "y", &params, &a[0], NULL, &f.err));
    client_ok(&f, gpubuf_adopt(f.client, "default", "z", &params, &a[1], NULL, &f.err));
    client_fixture_kill(&f);
    while (gpubuf_adoption_alive(a[0]))
        usleep(1000);
    client_ok(&f, gpubuf_adoption_release(a[0], &f.err));
    client_ok(&f, gpubuf_adoption_release(a[1], &f.err));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("client_adopt");
    TCase *cases = tcase_create("adopt");

    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_set_timeout(cases, 120);
    tcase_add_test(cases, there_and_back);
    tcase_add_test(cases, one_side);
    tcase_add_test(cases, refused);
    tcase_add_test(cases, released_late);
    suite_add_tcase(suite, cases);
    return gb_test_run(suite);
}
