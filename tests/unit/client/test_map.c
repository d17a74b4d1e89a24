/* libgpubuf: mappings. On the host backend all of them are shared host memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client_fixture.h"

#define BYTES ((size_t)1 << 20)

static struct client_fixture f;
static unsigned char *data;
static const struct gpubuf_put_params pinned = {.dtype = "uint8", .kind = "pinned"};

static void setup(void) {
    size_t i;

    client_fixture_start(&f, NULL);
    data = malloc(BYTES);
    for (i = 0; i < BYTES; i++)
        data[i] = (unsigned char)(i * 2654435761u >> 11);
    client_ok(&f, gpubuf_put(f.client, "default", "x", gpubuf_from_memory(data, BYTES), &pinned, NULL, &f.err));
}

static void teardown(void) {
    free(data);
    client_fixture_stop(&f);
}

static uint64_t leases(void) {
    const char *at;
    uint64_t count = 0;

    client_ok(&f, client_ask(f.client, "GET", "/v1/leases", NULL, &f.err));
    for (at = gpubuf_answer_of(f.client)->body; (at = strstr(at, "\"lease\":")) != NULL; at++)
        count++;
    return count;
}

/* The daemon notices the end of the connection a moment later. */
static void until_leases(uint64_t count) {
    int tries;

    for (tries = 0; leases() != count; tries++) {
        ck_assert_int_lt(tries, 2000);
        usleep(5000);
    }
}

START_TEST(reading) {
    const struct gpubuf_mapping_info *info;
    gpubuf_mapping *m = NULL;

    client_ok(&f, gpubuf_map(f.client, "default", "x", NULL, &m, &f.err));
    info = gpubuf_mapping_info_of(m);
    ck_assert_str_eq(info->way_name, "memfd");
    ck_assert_int_eq(info->way, GPUBUF_WAY_MEMFD);
    ck_assert_uint_eq(info->bytes, BYTES);
    ck_assert_str_eq(info->dtype, "uint8");
    ck_assert_str_eq(info->kind, "pinned");
    ck_assert_uint_eq(info->generation, 1);
    ck_assert(!info->write && info->device_memory == 0 && info->cuda_device == -1);
    ck_assert_int_eq(memcmp(info->memory, data, BYTES), 0);
    ck_assert(gpubuf_mapping_alive(m));
    ck_assert_int_ge(gpubuf_mapping_poll_fd(m), 0);
    client_ok(&f, gpubuf_mapping_wait(m, NULL, &f.err));
    ck_assert_uint_eq(leases(), 1);
    client_ok(&f, client_ask(f.client, "GET", "/v1/sessions/default/buffers/x", NULL, &f.err));
    ck_assert_uint_eq(client_number(f.client, "leases"), 1);
    client_fails(&f, client_ask(f.client, "DELETE", "/v1/sessions/default/buffers/x", NULL, &f.err), GPUBUF_MAPPED);
    client_ok(&f, gpubuf_unmap(m, &f.err));
    ck_assert_uint_eq(leases(), 0);
    client_ok(&f, client_ask(f.client, "DELETE", "/v1/sessions/default/buffers/x", NULL, &f.err));
}
END_TEST

START_TEST(writing) {
    struct gpubuf_map_params params = {.write = true};
    gpubuf_mapping *m = NULL;
    gpubuf_mapping *n = NULL;
    unsigned char back[4];

    client_ok(&f, gpubuf_map(f.client, "default", "x", &params, &m, &f.err));
    client_ok(&f, gpubuf_map(f.client, "default", "x", NULL, &n, &f.err));
    ck_assert(gpubuf_mapping_info_of(m)->write);
    memcpy(gpubuf_mapping_info_of(m)->memory, "here", 4);
    ck_assert_int_eq(memcmp(gpubuf_mapping_info_of(n)->memory, "here", 4), 0);
    client_fails(&f, client_ask(f.client, "POST", "/v1/sessions/default/buffers/x/seal", "{}", &f.err), GPUBUF_MAPPED);
    client_ok(&f, gpubuf_unmap(m, &f.err));
    client_ok(&f, gpubuf_get(f.client, "default", "x", gpubuf_to_memory(back, 4),
                             &(struct gpubuf_get_params){.length = gpubuf_some(4)}, NULL, &f.err));
    ck_assert_int_eq(memcmp(back, "here", 4), 0);
    client_ok(&f, client_ask(f.client, "GET", "/v1/sessions/default/buffers/x", NULL, &f.err));
    ck_assert_uint_gt(client_number(f.client, "generation"), 1);
    client_ok(&f, gpubuf_unmap(n, &f.err));
    client_ok(&f, client_ask(f.client, "POST", "/v1/sessions/default/buffers/x/seal", "{}", &f.err));
    ck_assert(client_says(f.client, "\"sealed\":true"));
    client_fails(&f, gpubuf_map(f.client, "default", "x", &params, &m, &f.err), GPUBUF_SEALED);
}
END_TEST

/* A table of two tensors, an alias and 513 bytes of memory: it was made by its layout and written through a map. */
START_TEST(tensors) {
    static const char layout[] =
        "{\"name\":\"t\",\"kind\":\"pinned\",\"tensors\":[{\"name\":\"a\",\"dtype\":\"float32\",\"shape\":[1,2]},"
        "{\"name\":\"b\",\"dtype\":\"uint8\",\"shape\":[]}],\"metadata\":{\"c\":\"a\"}}";
    const struct gpubuf_tensor *list;
    const struct gpubuf_tensor *one;
    struct gpubuf_map_params params = {.write = true};
    gpubuf_mapping *m = NULL;
    size_t count = 0;
    char back[3];

    client_ok(&f, client_ask(f.client, "POST", "/v1/sessions/default/buffers", layout, &f.err));
    client_ok(&f, gpubuf_map(f.client, "default", "t", &params, &m, &f.err));
    client_ok(&f, gpubuf_mapping_tensors(m, &list, &count, &f.err));
    ck_assert_uint_eq(count, 3);
    ck_assert_uint_eq(gpubuf_mapping_info_of(m)->bytes, list[1].offset + 1);
    ck_assert_str_eq(list[0].name, "a");
    ck_assert_str_eq(list[0].dtype, "float32");
    ck_assert(list[0].ndim == 2 && list[0].shape[0] == 1 && list[0].shape[1] == 2 && list[0].bytes == 8);
    ck_assert(list[0].offset % 256 == 0 && list[1].ndim == 0 && !list[0].alias_of);
    client_ok(&f, gpubuf_mapping_tensor(m, "c", &one, &f.err));
    ck_assert_ptr_eq(one, &list[0]);
    ck_assert_str_eq(list[2].alias_of, "a");
    client_fails(&f, gpubuf_mapping_tensor(m, "d", &one, &f.err), GPUBUF_TENSOR_NOT_FOUND);
    memcpy((char *)gpubuf_mapping_info_of(m)->memory + one->offset, "here", 4);
    client_ok(&f, gpubuf_unmap(m, &f.err));
    client_ok(&f,
              gpubuf_get(f.client, "default", "t", gpubuf_to_memory(back, 3),
                         &(struct gpubuf_get_params){.tensor = "a", .offset = gpubuf_some(1), .length = gpubuf_some(3)},
                         NULL, &f.err));
    ck_assert_int_eq(memcmp(back, "ere", 3), 0);
    client_ok(&f, gpubuf_map(f.client, "default", "x", NULL, &m, &f.err));
    client_fails(&f, gpubuf_mapping_tensors(m, &list, NULL, &f.err), GPUBUF_UNSUPPORTED_ARRAY);
    client_ok(&f, gpubuf_unmap(m, &f.err));
}
END_TEST

START_TEST(ways) {
    struct gpubuf_map_params params = {.ways = GPUBUF_WAY_VMM | GPUBUF_WAY_LEGACY};
    struct gpubuf_put_params device = {.dtype = "uint8", .kind = "device"};
    struct gpubuf_options tcp = {.url = f.url, .socket = "/nowhere/gpubufd.sock"};
    gpubuf_mapping *m = NULL;
    gpubuf_client *other = NULL;

    client_fails(&f, gpubuf_map(f.client, "default", "x", &params, &m, &f.err), GPUBUF_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(f.err.detail, "vmm"));
    client_ok(&f, gpubuf_put(f.client, "default", "d", gpubuf_from_memory(data, 100), &device, NULL, &f.err));
    client_fails(&f, gpubuf_map(f.client, "default", "d", NULL, &m, &f.err), GPUBUF_UNSUPPORTED);
    client_fails(&f, gpubuf_map(f.client, "default", "none", NULL, &m, &f.err), GPUBUF_BUFFER_NOT_FOUND);
    client_fails(&f, gpubuf_map(f.client, "", "none", NULL, &m, &f.err), GPUBUF_BAD_ARGUMENT);
    /* A refused request leaves the connection usable. */
    client_ok(&f, gpubuf_map(f.client, "default", "x", NULL, &m, &f.err));
    client_ok(&f, gpubuf_unmap(m, &f.err));
    client_ok(&f, gpubuf_open(&tcp, &other, &f.err));
    client_fails(&f, gpubuf_map(other, "default", "x", NULL, &m, &f.err), GPUBUF_CANNOT_CONNECT);
    gpubuf_close(other);
    tcp.socket = f.unix_url;
    client_ok(&f, gpubuf_open(&tcp, &other, &f.err));
    client_ok(&f, gpubuf_map(other, "default", "x", NULL, &m, &f.err));
    client_ok(&f, gpubuf_unmap(m, &f.err));
    gpubuf_close(other);
}
END_TEST

START_TEST(outlives_client) {
    struct gpubuf_options options = {.url = f.unix_url};
    gpubuf_mapping *m = NULL;
    gpubuf_client *other = NULL;

    client_ok(&f, gpubuf_open(&options, &other, &f.err));
    client_ok(&f, gpubuf_map(other, "default", "x", NULL, &m, &f.err));
    gpubuf_close(other);
    ck_assert(gpubuf_mapping_alive(m));
    ck_assert_int_eq(memcmp(gpubuf_mapping_info_of(m)->memory, data, BYTES), 0);
    ck_assert_uint_eq(leases(), 1);
    client_ok(&f, gpubuf_unmap(m, &f.err));
    until_leases(0);
}
END_TEST

/* Whether the mapped memory still is the content of the buffer. */
START_TEST(current) {
    gpubuf_mapping *m[3] = {NULL};
    char lease[128];
    bool is[3];
    int i;

    for (i = 0; i < 3; i++)
        client_ok(&f, gpubuf_map(f.client, "default", "x", NULL, &m[i], &f.err));
    snprintf(lease, sizeof(lease), "/v1/leases/%s", gpubuf_mapping_info_of(m[0])->lease);
    client_ok(&f, client_ask(f.client, "DELETE", lease, NULL, &f.err));
    for (i = 0; i < 2; i++)
        client_ok(&f, gpubuf_mapping_current(m[i], &is[i], &f.err));
    ck_assert(!is[0] && is[1]);
    client_ok(&f, gpubuf_put(f.client, "default", "x", gpubuf_from_memory(data + 1, 1000), &pinned, NULL, &f.err));
    client_ok(&f, gpubuf_mapping_current(m[1], &is[1], &f.err));
    ck_assert(!is[1] && gpubuf_mapping_alive(m[1]));
    client_ok(&f, gpubuf_unmap(m[1], &f.err));
    client_fixture_kill(&f);
    is[2] = true;
    client_ok(&f, gpubuf_mapping_current(m[2], &is[2], &f.err)); /* a mapping without a lease is not current */
    ck_assert(!is[2]);
    client_ok(&f, gpubuf_unmap(m[2], &f.err));
    gpubuf_unmap(m[0], NULL); /* the lease had ended */
}
END_TEST

/* A replacement gets new memory beside the mapped content; deleted content stays until it is unmapped. */
START_TEST(beside) {
    gpubuf_mapping *m = NULL;
    gpubuf_mapping *n = NULL;

    client_ok(&f, gpubuf_map(f.client, "default", "x", NULL, &m, &f.err));
    client_ok(&f, gpubuf_put(f.client, "default", "x", gpubuf_from_memory(data + 1, 1000), &pinned, NULL, &f.err));
    client_ok(&f, gpubuf_map(f.client, "default", "x", NULL, &n, &f.err));
    ck_assert_int_eq(memcmp(gpubuf_mapping_info_of(m)->memory, data, BYTES), 0);
    ck_assert_int_eq(memcmp(gpubuf_mapping_info_of(n)->memory, data + 1, 1000), 0);
    client_ok(&f, client_ask(f.client, "DELETE", "/v1/sessions/default/buffers/x?when=unmapped", NULL, &f.err));
    ck_assert_int_eq(memcmp(gpubuf_mapping_info_of(n)->memory, data + 1, 1000), 0);
    client_ok(&f, client_ask(f.client, "GET", "/v1/stats", NULL, &f.err));
    ck_assert_uint_eq(client_number(f.client, "leases"), 2);
    ck_assert_uint_ge(client_number(f.client, "held_bytes"), BYTES);
    client_ok(&f, gpubuf_unmap(m, &f.err));
    client_ok(&f, gpubuf_unmap(n, &f.err));
    client_ok(&f, client_ask(f.client, "GET", "/v1/stats", NULL, &f.err));
    ck_assert_uint_eq(client_number(f.client, "leases"), 0);
}
END_TEST

/* The daemon copies into and out of the mapped memory; no bytes go over a socket. */
START_TEST(a_slab) {
    struct gpubuf_map_params write = {.write = true};
    gpubuf_mapping *m = NULL;
    gpubuf_mapping *n = NULL;
    unsigned char *memory;

    client_ok(&f, client_ask(f.client, "POST", "/v1/sessions/default/buffers/y/copy", "{\"from\":\"x\"}", &f.err));
    client_ok(&f, gpubuf_map(f.client, "default", "x", &write, &m, &f.err));
    memory = gpubuf_mapping_info_of(m)->memory;
    memset(memory, 7, BYTES);
    client_ok(&f, gpubuf_mapping_load(m, "y", 1000, 10, 5000, &f.err));
    ck_assert_int_eq(memcmp(memory + 10, data + 1000, 5000), 0);
    ck_assert_int_eq(memory[9], 7);
    ck_assert_int_eq(memory[5010], 7);
    client_ok(&f, gpubuf_mapping_load(m, "default/y", 0, 0, 0, &f.err));
    ck_assert_int_eq(memcmp(memory, data, BYTES), 0);
    client_fails(&f, gpubuf_mapping_load(m, "none", 0, 0, 0, &f.err), gpubuf_code_find("buffer_not_found"));
    client_fails(&f, gpubuf_mapping_load(m, "y", 0, 1, 0, &f.err), gpubuf_code_find("invalid_argument"));
    ck_assert(gpubuf_mapping_alive(m));
    client_ok(&f, gpubuf_map(f.client, "default", "x", NULL, &n, &f.err)); /* of the same client */
    client_ok(&f, gpubuf_mapping_load(m, "y", 0, 0, 1, &f.err));
    client_ok(&f, gpubuf_unmap(n, &f.err));
    client_ok(&f, gpubuf_unmap(m, &f.err));
}
END_TEST

/* A process that is killed with a mapping leaves no lease. */
START_TEST(client_killed) {
    int ready[2];
    char byte;
    pid_t pid;

    ck_assert_int_eq(pipe(ready), 0);
    pid = fork();
    if (pid == 0) {
        struct gpubuf_options options = {.url = f.unix_url};
        gpubuf_client *mine = NULL;
        gpubuf_mapping *m = NULL;

        if (gpubuf_open(&options, &mine, NULL) < 0 || gpubuf_map(mine, "default", "x", NULL, &m, NULL) < 0 ||
            write(ready[1], "m", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ready[1]);
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    ck_assert_uint_eq(leases(), 1);
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    until_leases(0);
    close(ready[0]);
}
END_TEST

START_TEST(daemon_killed) {
    gpubuf_mapping *m = NULL;
    gpubuf_mapping *n = NULL;

    client_ok(&f, gpubuf_map(f.client, "default", "x", NULL, &m, &f.err));
    client_fixture_kill(&f);
    ck_assert(!gpubuf_mapping_alive(m));
    ck_assert_int_eq(memcmp(gpubuf_mapping_info_of(m)->memory, data, BYTES), 0);
    client_fails(&f, gpubuf_map(f.client, "default", "x", NULL, &n, &f.err), GPUBUF_CANNOT_CONNECT);
    client_ok(&f, gpubuf_unmap(m, &f.err));
    client_ok(&f, gpubuf_unmap(NULL, &f.err));
}
END_TEST

/* A daemon that accepts no connection: a plain connect() would wait for ever. */
START_TEST(queue_full) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct gpubuf_options options = {.url = f.url, .socket = at.sun_path, .connect_timeout_s = 1};
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    char folder[] = "/tmp/gbt-full-XXXXXX";
    gpubuf_client *other = NULL;
    gpubuf_mapping *m = NULL;
    int waiting[8];
    int n = 0;

    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(at.sun_path, sizeof(at.sun_path), "%s/s", folder);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
    ck_assert_int_eq(listen(listener, 0), 0);
    do {
        ck_assert_int_lt(n, 8);
        waiting[n] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    } while (connect(waiting[n++], (struct sockaddr *)&at, sizeof(at)) == 0);
    client_ok(&f, gpubuf_open(&options, &other, &f.err));
    client_fails(&f, gpubuf_map(other, "default", "x", NULL, &m, &f.err), GPUBUF_CANNOT_CONNECT);
    gpubuf_interrupt(other);
    client_fails(&f, gpubuf_map(other, "default", "x", NULL, &m, &f.err), GPUBUF_INTERRUPTED);
    gpubuf_close(other);
    while (n > 0)
        close(waiting[--n]);
    close(listener);
    unlink(at.sun_path);
    rmdir(folder);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("client_map");
    TCase *tcase = tcase_create("map");

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, reading);
    tcase_add_test(tcase, writing);
    tcase_add_test(tcase, tensors);
    tcase_add_test(tcase, ways);
    tcase_add_test(tcase, outlives_client);
    tcase_add_test(tcase, current);
    tcase_add_test(tcase, beside);
    tcase_add_test(tcase, a_slab);
    tcase_add_test(tcase, client_killed);
    tcase_add_test(tcase, daemon_killed);
    tcase_add_test(tcase, queue_full);
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}
