/* libgpubuf: durable buffers, whose bytes outlive the daemon's process. */
#include <stdlib.h>
#include <string.h>

#include "client_fixture.h"

#define BYTES (3u << 20) /* a file of its own */

static struct client_fixture f;
static unsigned char *data;

static void setup_with(const char *const *extra) {
    client_fixture_start(&f, extra);
    data = client_bytes(BYTES);
}

static void setup(void) {
    static const char *const late[] = {"--durable-lag", "3600", NULL};

    setup_with(late);
}

static void teardown(void) {
    free(data);
    client_fixture_stop(&f);
}

static void again(void) {
    client_fixture_kill(&f);
    client_fixture_again(&f, NULL);
}

START_TEST(outlives) {
    struct gpubuf_put_params params = {.format = "raw", .durability = "sync"};
    struct gpubuf_buffer rec;

    client_ok(&f, gpubuf_put(f.client, "default", "x", gpubuf_from_memory(data, BYTES), &params, &rec, &f.err));
    ck_assert(rec.generation == 1 && client_number(f.client, "stored_generation") == 1);
    ck_assert(client_says(f.client, "\"durability\":\"sync\""));
    again();
    client_ok(&f, client_ask(f.client, "GET", "/v1/sessions/default/buffers/x", NULL, &f.err));
    ck_assert(client_says(f.client, "\"state\":\"stored\"") && client_number(f.client, "generation") == 1);
    client_expect(&f, "x", data, BYTES);
}
END_TEST

/* A write into a part is refused until the bytes are in memory; the client loads them and writes again. */
START_TEST(parts_of_stored) {
    struct gpubuf_put_params whole = {.format = "raw", .durability = "sync"};
    struct gpubuf_put_params part = {.offset = gpubuf_some(3)};
    struct gpubuf_buffer rec;

    client_ok(&f, gpubuf_put(f.client, "default", "x", gpubuf_from_memory(data, BYTES), &whole, NULL, &f.err));
    again();
    client_ok(&f, gpubuf_put(f.client, "default", "x", gpubuf_from_memory("abc", 3), &part, &rec, &f.err));
    ck_assert(rec.generation == 2 && client_says(f.client, "\"state\":\"ready\""));
    memcpy(data + 3, "abc", 3);
    client_expect(&f, "x", data, BYTES);
    client_ok(&f, client_ask(f.client, "GET", "/v1/storage", NULL, &f.err));
    ck_assert_uint_eq(client_number(f.client, "loads"), 1);
    again();
    client_expect(&f, "x", data, BYTES);
}
END_TEST

START_TEST(connections) {
    struct gpubuf_put_params params = {.dtype = "uint8",
                                       .connections = 3,
                                       .part_bytes = 1u << 20,
                                       .check = true,
                                       .durability = "sync",
                                       .spill = "disk"};
    struct gpubuf_buffer rec;

    client_ok(&f, gpubuf_put(f.client, "default", "x", gpubuf_from_memory(data, BYTES), &params, &rec, &f.err));
    ck_assert(rec.generation == 1 && client_number(f.client, "stored_generation") == 1);
    ck_assert(client_says(f.client, "\"spill\":\"disk\""));
    again();
    client_expect(&f, "x", data, BYTES);
}
END_TEST

/* --- refusals ----------------------------------------------------------------------------------------------------- */

static const struct {
    const char *option;
    const char *value;
    int code;
} faults[] = {{"--disk-fault", "write@1=EIO", GPUBUF_STORAGE_FAILED},
              {"--disk-fault", "create=ENOSPC", GPUBUF_STORAGE_FULL},
              {"--data-dir", "none", GPUBUF_UNSUPPORTED}};

START_TEST(refused) {
    const char *const extra[] = {faults[_i].option, faults[_i].value, NULL};
    struct gpubuf_put_params params = {.format = "raw", .durability = "sync"};

    setup_with(extra);
    client_fails(&f, gpubuf_put(f.client, "default", "x", gpubuf_from_memory(data, BYTES), &params, NULL, &f.err),
                 faults[_i].code);
    client_fails(&f, client_ask(f.client, "GET", "/v1/sessions/default/buffers/x", NULL, &f.err),
                 GPUBUF_BUFFER_NOT_FOUND);
    params.durability = "none";
    client_ok(&f, gpubuf_put(f.client, "default", "x", gpubuf_from_memory(data, BYTES), &params, NULL, &f.err));
    teardown();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("client_durable");
    TCase *tcase = tcase_create("durable");
    TCase *faulty = tcase_create("refused");

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, outlives);
    tcase_add_test(tcase, parts_of_stored);
    tcase_add_test(tcase, connections);
    suite_add_tcase(suite, tcase);
    tcase_set_timeout(faulty, 60);
    tcase_add_loop_test(faulty, refused, 0, sizeof(faults) / sizeof(faults[0]));
    suite_add_tcase(suite, faulty);
    return gb_test_run(suite);
}
