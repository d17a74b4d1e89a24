/* libgpubuf: bytes up and down, against a daemon. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client_fixture.h"

#define BYTES ((size_t)3 << 20)

static struct client_fixture f;
static unsigned char *data;
static unsigned char *back;

static void setup(void) {
    client_fixture_start(&f, NULL);
    data = client_bytes(BYTES);
    back = calloc(1, BYTES);
}

static void teardown(void) {
    free(data);
    free(back);
    client_fixture_stop(&f);
}

START_TEST(memory) {
    struct gpubuf_put_params put = {.dtype = "float32", .shape = "768,1024", .check = true};
    struct gpubuf_buffer rec;
    struct gpubuf_got got;

    client_ok(&f, gpubuf_put(f.client, "default", "x", gpubuf_from_memory(data, BYTES), &put, &rec, &f.err));
    ck_assert_str_eq(rec.name, "x");
    ck_assert_str_eq(rec.dtype, "float32");
    ck_assert_uint_eq(rec.ndim, 2);
    ck_assert_uint_eq(rec.shape[1], 1024);
    ck_assert(rec.created && rec.has_crc32c);
    ck_assert_int_eq(gpubuf_answer_of(f.client)->status, 201);
    ck_assert(gpubuf_answer_of(f.client)->total_ms > 0);
    client_expect(&f, "x", data, BYTES);
    client_ok(&f, gpubuf_put(f.client, "default", "x", gpubuf_from_memory(data, BYTES), &put, &rec, &f.err));
    ck_assert(!rec.created && rec.generation == 2);
    client_ok(&f, gpubuf_get(f.client, "default", "x", gpubuf_to_memory(back, BYTES), NULL, &got, &f.err));
    ck_assert_uint_eq(got.bytes, BYTES);
    ck_assert_uint_eq(got.generation, 2);
    ck_assert_uint_eq(got.shape[0], 768);
    client_fails(&f, gpubuf_get(f.client, "none", "x", gpubuf_to_memory(back, BYTES), NULL, &got, &f.err),
                 GPUBUF_SESSION_NOT_FOUND);
    client_fails(&f, gpubuf_get(f.client, "default", "x", gpubuf_to_memory(back, BYTES - 1), NULL, NULL, &f.err),
                 GPUBUF_OUTPUT_FAILED);
}
END_TEST

START_TEST(nothing) {
    struct gpubuf_put_params put = {.format = "raw"};
    struct gpubuf_buffer rec;
    struct gpubuf_got got;

    client_ok(&f, gpubuf_put(f.client, "default", "empty", gpubuf_from_memory(NULL, 0), &put, &rec, &f.err));
    ck_assert_uint_eq(rec.bytes, 0);
    client_ok(&f, gpubuf_get(f.client, "default", "empty", gpubuf_to_memory(NULL, 0), NULL, &got, &f.err));
    ck_assert_uint_eq(got.bytes, 0);
}
END_TEST

/* --- descriptors and functions ------------------------------------------------------------------------------------ */

START_TEST(descriptors) {
    struct gpubuf_put_params put = {.format = "raw", .check = true};
    char path[96];
    struct gpubuf_buffer rec;
    int fd;

    snprintf(path, sizeof(path), "%s/file", f.dir);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_eq(write(fd, "head", 4), 4);
    ck_assert_int_eq(write(fd, data, BYTES), (ssize_t)BYTES);
    client_ok(&f, gpubuf_put(f.client, "default", "x", gpubuf_from_fd(fd, 4, GPUBUF_UNKNOWN), &put, &rec, &f.err));
    ck_assert_uint_eq(rec.bytes, BYTES);
    client_expect(&f, "x", data, BYTES);
    ck_assert_int_eq(lseek(fd, 4, SEEK_SET), 4);
    client_ok(&f, gpubuf_put(f.client, "default", "y", gpubuf_from_fd(fd, -1, GPUBUF_UNKNOWN), &put, NULL, &f.err));
    client_expect(&f, "y", data, BYTES);
    client_fails(&f, gpubuf_put(f.client, "default", "z", gpubuf_from_fd(fd, 4, BYTES + 1), &put, NULL, &f.err),
                 GPUBUF_INPUT_FAILED);
    client_fails(&f, client_ask(f.client, "GET", "/v1/sessions/default/buffers/z", NULL, &f.err),
                 GPUBUF_BUFFER_NOT_FOUND);
    ck_assert_int_eq(ftruncate(fd, 0), 0);
    client_ok(&f, gpubuf_get(f.client, "default", "x", gpubuf_to_fd(fd, 10), NULL, NULL, &f.err));
    ck_assert_int_eq(pread(fd, back, BYTES, 10), (ssize_t)BYTES);
    ck_assert_int_eq(memcmp(data, back, BYTES), 0);
    close(fd);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    client_fails(&f, gpubuf_get(f.client, "default", "x", gpubuf_to_fd(fd, 0), NULL, NULL, &f.err),
                 GPUBUF_OUTPUT_FAILED);
    ck_assert_str_eq(f.err.native_name, "EBADF");
    close(fd);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    client_fails(&f, gpubuf_put(f.client, "default", "x", gpubuf_from_fd(fd, 0, 100), &put, NULL, &f.err),
                 GPUBUF_INPUT_FAILED);
    close(fd);
}
END_TEST

struct stream {
    size_t at;
    size_t fail_at; /* 0: never */
};

static int64_t give(void *arg, void *out, size_t size) {
    struct stream *s = arg;
    size_t n = BYTES - s->at < size ? BYTES - s->at : size;

    if (s->fail_at > 0 && s->at >= s->fail_at) {
        errno = EIO;
        return -1;
    }
    n = n > 1000 ? 1000 : n;
    memcpy(out, data + s->at, n);
    s->at += n;
    return (int64_t)n;
}

static int take(void *arg, const void *in, size_t size) {
    struct stream *s = arg;

    if (s->fail_at > 0 && s->at >= s->fail_at)
        return -1;
    memcpy(back + s->at, in, size);
    s->at += size;
    return 0;
}

START_TEST(functions) {
    struct gpubuf_put_params put = {.dtype = "uint8", .shape = "3145728"};
    struct stream s = {.at = 0};

    client_ok(&f, gpubuf_put(f.client, "default", "x", gpubuf_from_call(give, &s, GPUBUF_UNKNOWN), &put, NULL, &f.err));
    client_expect(&f, "x", data, BYTES);
    s = (struct stream){.at = 0};
    memset(back, 0, BYTES);
    client_ok(&f, gpubuf_get(f.client, "default", "x", gpubuf_to_call(take, &s), NULL, NULL, &f.err));
    ck_assert_int_eq(memcmp(data, back, BYTES), 0);
    s = (struct stream){.fail_at = BYTES / 2};
    client_fails(&f, gpubuf_put(f.client, "default", "y", gpubuf_from_call(give, &s, BYTES), &put, NULL, &f.err),
                 GPUBUF_INPUT_FAILED);
    client_fails(&f, client_ask(f.client, "GET", "/v1/sessions/default/buffers/y", NULL, &f.err),
                 GPUBUF_BUFFER_NOT_FOUND);
    s = (struct stream){.fail_at = 1};
    client_fails(&f, gpubuf_get(f.client, "default", "x", gpubuf_to_call(take, &s), NULL, NULL, &f.err),
                 GPUBUF_OUTPUT_FAILED);
}
END_TEST

/* --- parts of buffers, conditions --------------------------------------------------------------------------------- */

START_TEST(cuts) {
    struct gpubuf_put_params put = {.dtype = "uint8", .shape = "3,1048576"};
    struct gpubuf_put_params at = {.offset = gpubuf_some(5)};
    struct gpubuf_get_params get = {.offset = gpubuf_some(3), .length = gpubuf_some(10)};
    struct gpubuf_get_params slice = {.slice = "1:3,0:2"};
    struct gpubuf_got got;

    client_ok(&f, gpubuf_put(f.client, "default", "x", gpubuf_from_memory(data, BYTES), &put, NULL, &f.err));
    client_ok(&f, gpubuf_put(f.client, "default", "x", gpubuf_from_memory("ABC", 3), &at, NULL, &f.err));
    client_ok(&f, gpubuf_get(f.client, "default", "x", gpubuf_to_memory(back, 10), &get, &got, &f.err));
    ck_assert_int_eq(memcmp(back, data + 3, 2), 0);
    ck_assert_int_eq(memcmp(back + 2, "ABC", 3), 0);
    ck_assert_int_eq(memcmp(back + 5, data + 8, 5), 0);
    client_ok(&f, gpubuf_get(f.client, "default", "x", gpubuf_to_memory(back, 4), &slice, &got, &f.err));
    ck_assert_uint_eq(got.ndim, 2);
    ck_assert_uint_eq(got.shape[0], 2);
    ck_assert_int_eq(memcmp(back, data + BYTES / 3, 2), 0);
    ck_assert_int_eq(memcmp(back + 2, data + BYTES / 3 * 2, 2), 0);
    slice.check = true;
    client_fails(&f, gpubuf_get(f.client, "default", "x", gpubuf_to_memory(back, 4), &slice, &got, &f.err),
                 GPUBUF_BAD_ARGUMENT);
    at.check = true;
    client_fails(&f, gpubuf_put(f.client, "default", "x", gpubuf_from_memory("ABC", 3), &at, NULL, &f.err),
                 GPUBUF_BAD_ARGUMENT);
    slice = (struct gpubuf_get_params){.slice = "9"};
    client_fails(&f, gpubuf_get(f.client, "default", "x", gpubuf_to_memory(back, 4), &slice, &got, &f.err),
                 GPUBUF_RANGE_NOT_SATISFIABLE);
}
END_TEST

START_TEST(conditions) {
    struct gpubuf_put_params put = {.format = "raw", .how = {.if_none_match = "*"}};
    struct gpubuf_get_params get = {.connections = 1};
    char etag[GPUBUF_ETAG_SIZE];
    struct gpubuf_got got;

    client_ok(&f, gpubuf_put(f.client, "default", "x", gpubuf_from_memory("abc", 3), &put, NULL, &f.err));
    client_fails(&f, gpubuf_put(f.client, "default", "x", gpubuf_from_memory("abc", 3), &put, NULL, &f.err),
                 GPUBUF_PRECONDITION_FAILED);
    client_ok(&f, gpubuf_get(f.client, "default", "x", gpubuf_to_memory(back, 3), &get, &got, &f.err));
    strcpy(etag, got.etag);
    get.how.if_none_match = etag;
    got.generation = 77;
    ck_assert_int_eq(gpubuf_get(f.client, "default", "x", gpubuf_to_memory(back, 3), &get, &got, &f.err),
                     GPUBUF_UNCHANGED);
    ck_assert_uint_eq(got.generation, 77);
    put.how = (struct gpubuf_how){.if_match = etag};
    client_ok(&f, gpubuf_put(f.client, "default", "x", gpubuf_from_memory("abd", 3), &put, NULL, &f.err));
    client_fails(&f, gpubuf_put(f.client, "default", "x", gpubuf_from_memory("abd", 3), &put, NULL, &f.err),
                 GPUBUF_PRECONDITION_FAILED);
}
END_TEST

START_TEST(files) {
    struct gpubuf_get_params npy = {.format = "npy", .check = true};
    struct gpubuf_put_params put = {.check = true};
    struct gpubuf_put_params raw = {.dtype = "int16", .shape = "2,3"};
    struct gpubuf_buffer rec;
    struct gpubuf_got got;

    client_ok(&f, gpubuf_put(f.client, "default", "x", gpubuf_from_memory("abcdefghijkl", 12), &raw, NULL, &f.err));
    client_ok(&f, gpubuf_get(f.client, "default", "x", gpubuf_to_memory(back, BYTES), &npy, &got, &f.err));
    ck_assert_uint_gt(got.bytes, 12);
    client_ok(&f, gpubuf_put(f.client, "default", "y", gpubuf_from_memory(back, got.bytes), &put, &rec, &f.err));
    ck_assert_str_eq(rec.dtype, "int16");
    ck_assert_uint_eq(rec.bytes, 12);
    npy.format = "safetensors";
    client_ok(&f, gpubuf_get(f.client, "default", "x", gpubuf_to_memory(back, BYTES), &npy, &got, &f.err));
    client_ok(&f, gpubuf_put(f.client, "default", "z", gpubuf_from_memory(back, got.bytes), &put, &rec, &f.err));
    ck_assert_uint_eq(rec.bytes, 12);
}
END_TEST

/* A buffer in its own form: a table as its file, any other as its bytes. */
START_TEST(own_form) {
    struct gpubuf_get_params own = {.format = "own"};
    struct gpubuf_get_params one = {.format = "safetensors"};
    struct gpubuf_put_params raw = {.dtype = "int16", .shape = "2,3"};
    struct gpubuf_put_params pack = {.pack = true};
    struct gpubuf_buffer rec;
    struct gpubuf_got file;
    struct gpubuf_got got;
    unsigned char *sent;

    client_ok(&f, gpubuf_put(f.client, "default", "x", gpubuf_from_memory("abcdefghijkl", 12), &raw, NULL, &f.err));
    client_ok(&f, gpubuf_get(f.client, "default", "x", gpubuf_to_memory(back, BYTES), &own, &got, &f.err));
    ck_assert_uint_eq(got.bytes, 12);
    client_ok(&f, gpubuf_get(f.client, "default", "x", gpubuf_to_memory(back, BYTES), &one, &file, &f.err));
    sent = malloc(file.bytes);
    memcpy(sent, back, file.bytes);
    client_ok(&f, gpubuf_put(f.client, "default", "m", gpubuf_from_memory(sent, file.bytes), &pack, &rec, &f.err));
    ck_assert_str_eq(rec.dtype, "tensors");
    for (own.connections = 0; own.connections < 3; own.connections += 2) {
        own.part_bytes = 16;
        client_ok(&f, gpubuf_get(f.client, "default", "m", gpubuf_to_memory(back, BYTES), &own, &got, &f.err));
        ck_assert_uint_eq(got.bytes, file.bytes);
        ck_assert_int_eq(memcmp(back, sent, file.bytes), 0);
    }
    client_ok(&f, gpubuf_get(f.client, "default", "m", gpubuf_to_memory(back, BYTES), NULL, &got, &f.err));
    ck_assert_uint_eq(got.bytes, rec.bytes);
    own.check = true;
    client_fails(&f, gpubuf_get(f.client, "default", "m", gpubuf_to_memory(back, BYTES), &own, &got, &f.err),
                 GPUBUF_BAD_ARGUMENT);
    free(sent);
}
END_TEST

/* --- many at once ------------------------------------------------------------------------------------------------- */

START_TEST(tensors) {
    struct gpubuf_tensors_params params = {.prefix = "m."};
    struct gpubuf_put_params raw = {.dtype = "uint8", .shape = "4"};
    struct gpubuf_tensors made;
    uint64_t bytes = 0;

    client_ok(&f, gpubuf_put(f.client, "default", "m.a", gpubuf_from_memory("abcd", 4), &raw, NULL, &f.err));
    client_ok(&f, gpubuf_put(f.client, "default", "m.b", gpubuf_from_memory("efgh", 4), &raw, NULL, &f.err));
    client_ok(&f, gpubuf_tensors_get(f.client, "default", gpubuf_to_memory(back, BYTES), &params, &bytes, &f.err));
    ck_assert_uint_gt(bytes, 8);
    params.prefix = "n.";
    client_ok(&f, gpubuf_tensors_put(f.client, "default", gpubuf_from_memory(back, bytes), &params, &made, &f.err));
    ck_assert_uint_eq(made.tensors, 2);
    ck_assert_uint_eq(made.created, 2);
    client_fails(&f, gpubuf_tensors_put(f.client, "default", gpubuf_from_memory("junk", 4), &params, &made, &f.err),
                 GPUBUF_UNSUPPORTED_ARRAY);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("client_data");
    TCase *tcase = tcase_create("data");

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, memory);
    tcase_add_test(tcase, nothing);
    tcase_add_test(tcase, descriptors);
    tcase_add_test(tcase, functions);
    tcase_add_test(tcase, cuts);
    tcase_add_test(tcase, conditions);
    tcase_add_test(tcase, files);
    tcase_add_test(tcase, own_form);
    tcase_add_test(tcase, tensors);
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}
