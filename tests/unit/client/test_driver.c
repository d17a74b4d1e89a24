/* libgpubuf: mappings of device memory, with a fake driver and a fake daemon. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client_fixture.h"

/* 64 times the letter a. */
#define HANDLE "YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYQ=="
#define UUID "GPU-02020202-0202-0202-0202-020202020202"

static void (*fake_fail)(int at);
static int (*fake_held)(void);
static int (*fake_calls)(void);
static int (*fake_imported)(void);
static int (*fake_opened)(void);
static int (*fake_recorded)(void);
static void (*fake_memory)(const void *bytes, size_t n);

/* A table of two tensors and an alias: 513 bytes of memory. */
#define HEADER                                                                                                         \
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"U8\",\"shape\":[],"            \
    "\"data_offsets\":[8,9]},\"__metadata__\":{\"c\":\"a\"}}"
#define TABLE_BYTES 513

static const char *dtype = "uint8"; /* of the next reply */
static unsigned bytes = 100;

static struct fake_server fake;
static struct { struct gpubuf_error err; } f;

static const struct {
    const char *name;
    enum gpubuf_way way;
    unsigned fds;
} ways[] = {{"vmm", GPUBUF_WAY_VMM, 1}, {"pool", GPUBUF_WAY_POOL, 1}, {"legacy", GPUBUF_WAY_LEGACY, 0}};

/* The reply that grants the mapping, and the one that ends it. */
static void answer(char *text, size_t size, unsigned way, const char *uuid) {
    char json[1024];
    int n =
        snprintf(json, sizeof(json),
                 "{\"lease\":\"17\",\"session\":\"s\",\"buffer\":\"x\",\"mode\":\"read\",\"way\":\"%s\",\"bytes\":%u,"
                 "\"dtype\":\"%s\","
                 "\"map_bytes\":4096,\"offset\":512,\"generation\":3,\"device\":{\"index\":0,\"uuid\":\"%s\"},"
                 "\"fds\":%u,\"handle\":\"%s\",\"event\":\"%s\",\"finished_event\":\"%s\",\"pool\":%s,"
                 "\"passed_over\":[{\"way\":\"magic\",\"reason\":\"not here\"}]}",
                 ways[way].name, bytes, dtype, uuid, ways[way].fds, HANDLE, HANDLE, HANDLE,
                 ways[way].way == GPUBUF_WAY_POOL ? "{\"id\":\"5-1\",\"name\":\"p\"}" : "null");

    snprintf(text, size, "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", n, json);
}

static gpubuf_client *begin_with(unsigned way, const char *uuid, unsigned each) {
    static char text[2048];
    static const char *answers[] = {text, NULL};

    answer(text, sizeof(text), way, uuid);
    memset(&fake, 0, sizeof(fake));
    fake.local = true;
    fake.each = each;
    fake.fds = ways[way].fds;
    fake.send_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    fake_start(&fake, answers);
    return fake_client(&fake);
}

static gpubuf_client *begin(unsigned way, const char *uuid) {
    return begin_with(way, uuid, 1);
}

static void end(gpubuf_client *client) {
    gpubuf_close(client);
    fake_stop(&fake);
    close(fake.send_fd);
    ck_assert_int_eq(fake_held(), 0);
}

START_TEST(mapped) {
    gpubuf_client *client = begin((unsigned)_i, UUID);
    const struct gpubuf_mapping_info *info;
    gpubuf_mapping *m = NULL;

    fake_fail(0);
    client_ok(&f, gpubuf_map(client, "s", "x", NULL, &m, &f.err));
    info = gpubuf_mapping_info_of(m);
    ck_assert_int_eq(info->way, ways[_i].way);
    ck_assert_uint_eq(info->device_memory, 0x700000000000 + 512);
    ck_assert_ptr_null(info->memory);
    ck_assert_int_eq(info->cuda_device, 1);
    ck_assert_uint_eq(info->passed_over_count, 1);
    ck_assert_str_eq(info->passed_over[0].reason, "not here");
    ck_assert_int_gt(fake_held(), 0);
    client_ok(&f, gpubuf_mapping_wait(m, NULL, &f.err));
    gpubuf_unmap(m, &f.err);
    end(client);
}
END_TEST

/* The header is read from the device's memory, once. A call that fails leaves nothing behind, and may be made again. */
START_TEST(tensors) {
    static char head[8 + sizeof(HEADER)];
    gpubuf_client *client;
    const struct gpubuf_tensor *list;
    const struct gpubuf_tensor *one;
    gpubuf_mapping *m = NULL;
    size_t count = 0;
    int at;

    head[0] = (char)(sizeof(HEADER) - 1);
    memcpy(head + 8, HEADER, sizeof(HEADER));
    dtype = "tensors";
    bytes = TABLE_BYTES;
    client = begin((unsigned)_i, UUID);
    fake_fail(0);
    client_ok(&f, gpubuf_map(client, "s", "x", NULL, &m, &f.err));
    fake_memory(head, sizeof(head));
    for (at = 1;; at++) {
        fake_fail(at);
        if (gpubuf_mapping_tensors(m, &list, &count, &f.err) == 0)
            break;
        ck_assert_str_eq(f.err.slug, "cannot_map");
    }
    ck_assert_int_gt(at, 4); /* the length and the header, each in the device's context */
    fake_fail(1);
    client_ok(&f, gpubuf_mapping_tensor(m, "c", &one, &f.err));
    ck_assert_ptr_eq(one, &list[0]);
    ck_assert_uint_eq(count, 3);
    ck_assert(list[0].offset == 256 && list[0].bytes == 8 && list[1].offset == 512 && list[1].bytes == 1);
    ck_assert_str_eq(list[2].name, "c");
    ck_assert_str_eq(list[2].alias_of, "a");
    fake_fail(0);
    gpubuf_unmap(m, &f.err);
    end(client);
    head[8] = '[';
    client = begin((unsigned)_i, UUID);
    client_ok(&f, gpubuf_map(client, "s", "x", NULL, &m, &f.err));
    client_fails(&f, gpubuf_mapping_tensors(m, &list, NULL, &f.err), GPUBUF_UNSUPPORTED_ARRAY);
    head[8] = '{';
    head[2] = 1; /* longer than the memory */
    client_fails(&f, gpubuf_mapping_tensors(m, &list, NULL, &f.err), GPUBUF_UNSUPPORTED_ARRAY);
    gpubuf_unmap(m, &f.err);
    end(client);
}
END_TEST

/* Each driver call fails once: the library then holds nothing, and the error names the call. */
START_TEST(failures) {
    int at;

    for (at = 1;; at++) {
        gpubuf_client *client = begin((unsigned)_i, UUID);
        struct gpubuf_map_params params = {.ways = ways[_i].way};
        gpubuf_mapping *m = NULL;
        int r;

        fake_fail(at);
        r = gpubuf_map(client, "s", "x", &params, &m, &f.err);
        if (r == 0) {
            ck_assert_int_lt(fake_calls(), at);
            fake_fail(0);
            gpubuf_unmap(m, &f.err);
            end(client);
            break;
        }
        ck_assert_str_eq(f.err.slug, "cannot_map");
        ck_assert_str_eq(f.err.native_name, "CUDA_ERROR_OUT_OF_MEMORY");
        ck_assert_str_ne(f.err.native_call, "");
        fake_fail(0);
        end(client);
    }
    ck_assert_int_gt(at, 6);
}
END_TEST

/* The fake server ends the connection after the third reply. */
START_TEST(one_import) {
    gpubuf_client *client = begin_with(1, UUID, 3);
    gpubuf_mapping *m[3] = {NULL};
    int before;
    int i;

    fake_fail(0);
    before = fake_imported();
    for (i = 0; i < 3; i++)
        client_ok(&f, gpubuf_map(client, "s", "x", NULL, &m[i], &f.err));
    ck_assert_int_eq(fake_imported(), before + 1);
    ck_assert_uint_eq(gpubuf_mapping_info_of(m[0])->device_memory, gpubuf_mapping_info_of(m[2])->device_memory);
    for (i = 0; i < 3; i++)
        gpubuf_unmap(m[i], &f.err);
    client_ok(&f, gpubuf_map(client, "s", "x", NULL, &m[0], &f.err));
    ck_assert_int_eq(fake_imported(), before + 2); /* with the last mapping the first import ended */
    gpubuf_unmap(m[0], &f.err);
    end(client);
}
END_TEST

START_TEST(other_devices) {
    static const int other = 0; /* the buffer is on device 1 */
    struct gpubuf_map_params params = {.access_devices = &other, .access_count = 1};
    gpubuf_client *client = begin((unsigned)_i, UUID);
    gpubuf_mapping *m = NULL;
    int before;

    fake_fail(0);
    before = fake_opened();
    if (ways[_i].way == GPUBUF_WAY_LEGACY) {
        client_fails(&f, gpubuf_map(client, "s", "x", &params, &m, &f.err), GPUBUF_BAD_ARGUMENT);
    } else {
        client_ok(&f, gpubuf_map(client, "s", "x", &params, &m, &f.err));
        ck_assert_int_eq(fake_opened(), before + 1);
        gpubuf_unmap(m, &f.err);
    }
    end(client);
}
END_TEST

START_TEST(finished) {
    struct gpubuf_map_params params = {.finished_event = 1};
    gpubuf_client *client = begin((unsigned)_i, UUID);
    gpubuf_mapping *m = NULL;

    fake_fail(0);
    client_ok(&f, gpubuf_map(client, "s", "x", &params, &m, &f.err));
    client_ok(&f, gpubuf_mapping_finish(m, NULL, &f.err));
    ck_assert_int_eq(fake_recorded(), 1);
    gpubuf_unmap(m, &f.err);
    ck_assert_int_eq(fake_recorded(), 0); /* waited for */
    end(client);
}
END_TEST

/* A device of a MIG process has the UUID of its instance. */
START_TEST(part_of_a_gpu) {
    gpubuf_client *client = begin((unsigned)_i, "MIG-02020202-0202-0202-0202-020202020202");
    gpubuf_mapping *m = NULL;

    fake_fail(0);
    client_ok(&f, gpubuf_map(client, "s", "x", NULL, &m, &f.err));
    gpubuf_unmap(m, &f.err);
    end(client);
}
END_TEST

START_TEST(elsewhere) {
    gpubuf_client *client = begin(0, "GPU-03030303-0303-0303-0303-030303030303");
    gpubuf_mapping *m = NULL;

    fake_fail(0);
    client_fails(&f, gpubuf_map(client, "s", "x", NULL, &m, &f.err), GPUBUF_CANNOT_MAP);
    ck_assert_ptr_nonnull(strstr(f.err.detail, "CUDA_VISIBLE_DEVICES"));
    end(client);
}
END_TEST

/* libgpubuf finds the library that this process has already opened under that name. */
static bool open_fake(void) {
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 64);
    void *library;

    if (n <= 0)
        return false;
    path[n] = '\0';
    strcpy(strrchr(path, '/'), "/../../lib/.libs/libcuda.so.1");
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return false;
    *(void **)&fake_fail = dlsym(library, "fake_fail");
    *(void **)&fake_held = dlsym(library, "fake_held");
    *(void **)&fake_calls = dlsym(library, "fake_calls");
    *(void **)&fake_imported = dlsym(library, "fake_imported");
    *(void **)&fake_opened = dlsym(library, "fake_opened");
    *(void **)&fake_recorded = dlsym(library, "fake_recorded");
    *(void **)&fake_memory = dlsym(library, "fake_memory");
    return fake_memory && fake_fail && fake_held && fake_calls && fake_imported && fake_opened && fake_recorded;
}

int main(void) {
    Suite *suite = suite_create("client_driver");

    if (!open_fake()) {
        puts("SKIP client_driver: its libcuda is in the build folder alone");
        return 77;
    }
    gb_test_add_loop(suite, "mapped", mapped, 20, 3);
    gb_test_add_loop(suite, "tensors", tensors, 20, 3);
    gb_test_add_loop(suite, "failures", failures, 60, 3);
    gb_test_add(suite, "one_import", one_import, 20);
    gb_test_add_loop(suite, "other_devices", other_devices, 20, 3);
    gb_test_add_loop(suite, "finished", finished, 20, 3);
    gb_test_add(suite, "elsewhere", elsewhere, 20);
    gb_test_add(suite, "mig", part_of_a_gpu, 20);
    return gb_test_run(suite);
}
