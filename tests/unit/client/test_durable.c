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

static struct gpubuf_buffer buffer(const char *name) {
    struct gpubuf_buffer rec;

    client_ok(&f, gpubuf_buffer_get(f.client, "default", name, false, NULL, &rec, &f.err));
    return rec;
}

START_TEST(outlives) {
    struct gpubuf_put_params params = {.format = "raw", .durability = "sync"};
    struct gpubuf_storage storage;
    struct gpubuf_buffer rec;

    client_ok(&f, gpubuf_put(f.client, "default", "x", gpubuf_from_memory(data, BYTES), &params, &rec, &f.err));
    ck_assert_str_eq(rec.durability, "sync");
    ck_assert(rec.generation == 1 && rec.stored_generation == 1);
    again();
    rec = buffer("x");
    ck_assert_str_eq(rec.state, "stored");
    ck_assert(rec.generation == 1 && rec.stored_generation == 1 && rec.has_crc32c);
    client_expect(&f, "x", data, BYTES);
    client_ok(&f, gpubuf_storage_get(f.client, &storage, &f.err));
    ck_assert_str_eq(storage.state, "ready");
    ck_assert_str_eq(storage.error, "");
    ck_assert_ptr_nonnull(strstr(storage.dir, f.dir));
    ck_assert(storage.free_bytes > 0 && storage.stored_buffers == 1 && storage.cold_reads == 1 && storage.loads == 0);
}
END_TEST

/* A write into a part is refused until the bytes are in memory; the client loads them and writes again. */
START_TEST(parts_of_stored) {
    struct gpubuf_put_params whole = {.format = "raw", .durability = "sync"};
    struct gpubuf_put_params part = {.offset = gpubuf_some(3)};
    struct gpubuf_storage storage;
    struct gpubuf_buffer rec;

    client_ok(&f, gpubuf_put(f.client, "default", "x", gpubuf_from_memory(data, BYTES), &whole, NULL, &f.err));
    again();
    client_ok(&f, gpubuf_put(f.client, "default", "x", gpubuf_from_memory("abc", 3), &part, &rec, &f.err));
    ck_assert_str_eq(rec.state, "ready");
    ck_assert(rec.generation == 2 && rec.stored_generation == 2);
    memcpy(data + 3, "abc", 3);
    client_expect(&f, "x", data, BYTES);
    client_ok(&f, gpubuf_storage_get(f.client, &storage, &f.err));
    ck_assert(storage.loads == 1 && storage.loaded_bytes == BYTES && storage.stored_buffers == 0);
    again();
    client_expect(&f, "x", data, BYTES);
}
END_TEST

START_TEST(connections) {
    struct gpubuf_put_params params = {
        .dtype = "uint8", .connections = 3, .part_bytes = 1u << 20, .check = true, .durability = "sync"};
    struct gpubuf_buffer rec;

    client_ok(&f, gpubuf_put(f.client, "default", "x", gpubuf_from_memory(data, BYTES), &params, &rec, &f.err));
    ck_assert(rec.generation == 1 && rec.stored_generation == 1);
    again();
    client_expect(&f, "x", data, BYTES);
}
END_TEST

START_TEST(store_and_load) {
    struct gpubuf_buffer_params params = {.bytes = gpubuf_some(1000), .durability = "behind"};
    struct gpubuf_stored stored;
    struct gpubuf_buffer rec;

    client_ok(&f, gpubuf_buffer_create(f.client, "default", "x", &params, NULL, &rec, &f.err));
    ck_assert(strcmp(rec.durability, "behind") == 0 && rec.stored_generation == 0);
    client_ok(&f, gpubuf_buffer_store(f.client, "default", "x", NULL, &stored, &f.err));
    ck_assert(stored.wrote && stored.stored_generation == 1 && stored.bytes == 1000);
    client_ok(&f, gpubuf_buffer_store(f.client, "default", "x", NULL, &stored, &f.err));
    ck_assert(!stored.wrote && stored.stored_generation == 1);
    client_ok(&f, gpubuf_buffer_load(f.client, "default", "x", NULL, &rec, &f.err));
    again();
    ck_assert_str_eq(buffer("x").state, "stored");
    client_ok(&f, gpubuf_buffer_load(f.client, "default", "x", NULL, &rec, &f.err));
    ck_assert_str_eq(rec.state, "ready");
    params = (struct gpubuf_buffer_params){.durability = "none"};
    client_ok(&f, gpubuf_buffer_update(f.client, "default", "x", &params, NULL, &rec, &f.err));
    ck_assert(strcmp(rec.durability, "none") == 0 && rec.stored_generation == 0);
    client_fails(&f, gpubuf_buffer_store(f.client, "default", "x", NULL, &stored, &f.err), GPUBUF_INVALID_ARGUMENT);
    client_fails(&f, gpubuf_buffer_load(f.client, "default", "y", NULL, &rec, &f.err), GPUBUF_BUFFER_NOT_FOUND);
    params.durability = "maybe";
    client_fails(&f, gpubuf_buffer_update(f.client, "default", "x", &params, NULL, &rec, &f.err),
                 GPUBUF_INVALID_ARGUMENT);
}
END_TEST

/* Of memory that the daemon gives no durability, and of a session that sleeps and wakes. */
START_TEST(evict_and_load) {
    struct gpubuf_put_params raw = {.format = "raw"};
    struct gpubuf_how once = {.if_match = "\"7.3\""};
    struct gpubuf_storage storage;
    struct gpubuf_swept swept;
    struct gpubuf_buffer rec;

    client_ok(&f, gpubuf_put(f.client, "default", "w.x", gpubuf_from_memory(data, BYTES), &raw, &rec, &f.err));
    ck_assert_str_eq(rec.tier, "device");
    client_ok(&f, gpubuf_put(f.client, "default", "w.small", gpubuf_from_memory("abc", 3), &raw, NULL, &f.err));
    client_fails(&f, gpubuf_buffer_evict(f.client, "default", "w.x", &once, &rec, &f.err), GPUBUF_PRECONDITION_FAILED);
    client_ok(&f, gpubuf_buffer_evict(f.client, "default", "w.x", NULL, &rec, &f.err));
    ck_assert_str_eq(rec.state, "stored");
    ck_assert_str_eq(rec.tier, "disk");
    ck_assert(rec.generation == 1 && rec.stored_generation == 0);
    client_expect(&f, "w.x", data, BYTES);
    client_fails(&f, gpubuf_buffer_evict(f.client, "default", "w.small", NULL, &rec, &f.err), GPUBUF_INVALID_ARGUMENT);
    client_ok(&f, gpubuf_session_load(f.client, "default", "w.", NULL, &swept, &f.err));
    ck_assert(swept.buffers == 1 && swept.bytes == BYTES && swept.skipped_buffers == 0);
    client_ok(&f, gpubuf_session_evict(f.client, "default", NULL, NULL, &swept, &f.err));
    ck_assert(swept.buffers == 1 && swept.bytes == BYTES && swept.skipped_buffers == 1);
    ck_assert_ptr_nonnull(strstr(gpubuf_answer_of(f.client)->body, "w.small"));
    client_ok(&f, gpubuf_storage_get(f.client, &storage, &f.err));
    ck_assert(storage.evictions == 2 && storage.loads == 1 && storage.stored_buffers == 1);
    client_fails(&f, gpubuf_session_evict(f.client, "default", "-", NULL, &swept, &f.err), GPUBUF_INVALID_NAME);
    client_fails(&f, gpubuf_session_load(f.client, "none", NULL, NULL, &swept, &f.err), GPUBUF_SESSION_NOT_FOUND);
    again();
    ck_assert_str_eq(buffer("w.x").state, "lost");
    ck_assert_str_eq(buffer("w.x").tier, "");
}
END_TEST

START_TEST(of_session) {
    struct gpubuf_session_params params = {.durability = "behind"};
    struct gpubuf_put_params raw = {.format = "raw"};
    struct gpubuf_session session;
    struct gpubuf_buffer rec;

    client_ok(&f, gpubuf_session_create(f.client, "s", &params, NULL, &session, &f.err));
    ck_assert_str_eq(session.durability, "behind");
    params.durability = "sync";
    client_ok(&f, gpubuf_session_update(f.client, "s", &params, NULL, &session, &f.err));
    ck_assert_str_eq(session.durability, "sync");
    client_ok(&f, gpubuf_put(f.client, "s", "x", gpubuf_from_memory("abc", 3), &raw, &rec, &f.err));
    ck_assert(strcmp(rec.durability, "sync") == 0 && rec.stored_generation == 1);
}
END_TEST

START_TEST(may_leave) {
    struct gpubuf_buffer_params params = {.bytes = gpubuf_some(10), .spill = "disk", .resident = gpubuf_some(1)};
    struct gpubuf_buffer_params other = {.resident = gpubuf_some(0)};
    struct gpubuf_put_params parts = {
        .dtype = "uint8", .connections = 3, .part_bytes = 1u << 20, .durability = "none", .spill = "disk"};
    struct gpubuf_buffer rec;

    client_ok(&f, gpubuf_buffer_create(f.client, "default", "x", &params, NULL, &rec, &f.err));
    ck_assert(strcmp(rec.spill, "disk") == 0 && rec.resident);
    client_ok(&f, gpubuf_buffer_update(f.client, "default", "x", &other, NULL, &rec, &f.err));
    ck_assert(strcmp(rec.spill, "disk") == 0 && !rec.resident);
    other.spill = "never";
    client_ok(&f, gpubuf_buffer_update(f.client, "default", "x", &other, NULL, &rec, &f.err));
    ck_assert_str_eq(rec.spill, "never");
    other.spill = "maybe";
    client_fails(&f, gpubuf_buffer_update(f.client, "default", "x", &other, NULL, &rec, &f.err),
                 GPUBUF_INVALID_ARGUMENT);
    client_ok(&f, gpubuf_put(f.client, "default", "y", gpubuf_from_memory(data, BYTES), &parts, NULL, &f.err));
    rec = buffer("y");
    ck_assert(strcmp(rec.spill, "disk") == 0 && !rec.resident);
}
END_TEST

/* A session's quota holds one of two buffers. */
START_TEST(makes_room) {
    struct gpubuf_session_params params = {
        .quota_bytes = gpubuf_some(BYTES + 1), .spill = "disk", .priority = gpubuf_some(3)};
    struct gpubuf_put_params raw = {.format = "raw"};
    struct gpubuf_storage storage;
    struct gpubuf_session session;
    struct gpubuf_buffer rec;

    client_ok(&f, gpubuf_session_create(f.client, "s", &params, NULL, &session, &f.err));
    ck_assert_str_eq(session.spill, "disk");
    ck_assert_uint_eq(session.priority, 3);
    client_ok(&f, gpubuf_put(f.client, "s", "x", gpubuf_from_memory(data, BYTES), &raw, NULL, &f.err));
    client_ok(&f, gpubuf_put(f.client, "s", "y", gpubuf_from_memory(data, BYTES), &raw, NULL, &f.err));
    client_ok(&f, gpubuf_buffer_get(f.client, "s", "x", false, NULL, &rec, &f.err));
    ck_assert_str_eq(rec.tier, "disk");
    client_ok(&f, gpubuf_buffer_load(f.client, "s", "x", NULL, &rec, &f.err));
    ck_assert_str_eq(rec.tier, "device");
    client_ok(&f, gpubuf_storage_get(f.client, &storage, &f.err));
    ck_assert(storage.evictions == 2 && storage.evictions_for_room == 2 && storage.reloads_within_minute == 1);
    params = (struct gpubuf_session_params){.spill = "never", .priority = gpubuf_some(1001)};
    client_fails(&f, gpubuf_session_update(f.client, "s", &params, NULL, NULL, &f.err), GPUBUF_INVALID_ARGUMENT);
    params.priority = gpubuf_some(0);
    client_ok(&f, gpubuf_session_update(f.client, "s", &params, NULL, &session, &f.err));
    ck_assert(strcmp(session.spill, "never") == 0 && session.priority == 0);
    client_fails(&f, gpubuf_put(f.client, "s", "z", gpubuf_from_memory(data, BYTES + 2), &raw, NULL, &f.err),
                 GPUBUF_QUOTA_EXCEEDED);
}
END_TEST

/* --- refusals ----------------------------------------------------------------------------------------------------- */

static const struct {
    const char *option;
    const char *value;
    int code;
    const char *state; /* of the storage afterwards */
} faults[] = {{"--disk-fault", "write@1=EIO", GPUBUF_STORAGE_FAILED, NULL},
              {"--disk-fault", "create=ENOSPC", GPUBUF_STORAGE_FULL, "full"},
              {"--data-dir", "none", GPUBUF_UNSUPPORTED, "none"}};

START_TEST(refused) {
    const char *const extra[] = {faults[_i].option, faults[_i].value, NULL};
    struct gpubuf_put_params params = {.format = "raw", .durability = "sync"};
    struct gpubuf_storage storage;

    setup_with(extra);
    client_fails(&f, gpubuf_put(f.client, "default", "x", gpubuf_from_memory(data, BYTES), &params, NULL, &f.err),
                 faults[_i].code);
    client_fails(&f, gpubuf_buffer_get(f.client, "default", "x", false, NULL, NULL, &f.err), GPUBUF_BUFFER_NOT_FOUND);
    client_ok(&f, gpubuf_storage_get(f.client, &storage, &f.err));
    if (faults[_i].state)
        ck_assert_str_eq(storage.state, faults[_i].state);
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
    tcase_add_test(tcase, store_and_load);
    tcase_add_test(tcase, evict_and_load);
    tcase_add_test(tcase, of_session);
    tcase_add_test(tcase, may_leave);
    tcase_add_test(tcase, makes_room);
    suite_add_tcase(suite, tcase);
    tcase_set_timeout(faulty, 60);
    tcase_add_loop_test(faulty, refused, 0, sizeof(faults) / sizeof(faults[0]));
    suite_add_tcase(suite, faulty);
    return gb_test_run(suite);
}
