/* libgpubuf: checkpoints, and scrubs of what is on disk. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client_fixture.h"

#define BYTES (3u << 20) /* a file of its own */
#define OTHER_BYTES 1000 /* lies in the database */
#define MAX 64           /* checkpoints of a session */

static struct client_fixture f;
static unsigned char *data;

static void setup(void) {
    client_fixture_start(&f, NULL);
    data = client_bytes(BYTES);
}

static void teardown(void) {
    free(data);
    client_fixture_stop(&f);
}

static void put(const char *session, const char *name, size_t bytes, const char *durability) {
    struct gpubuf_put_params params = {.format = "raw", .durability = durability};

    client_ok(&f, gpubuf_put(f.client, session, name, gpubuf_from_memory(data, bytes), &params, NULL, &f.err));
}

/* A durable one, whose file is linked, and one whose bytes are written. */
static void fill(void) {
    put("default", "a.x", BYTES, "sync");
    put("default", "b", OTHER_BYTES, "none");
}

static struct gpubuf_checkpoint make(const char *name) {
    struct gpubuf_checkpoint made;

    client_ok(&f, gpubuf_checkpoint_create(f.client, "default", name, NULL, NULL, &made, &f.err));
    return made;
}

static void expect_list(const char *session, const struct gpubuf_page *page, const char *names, const char *next) {
    struct gpubuf_checkpoint_list list;
    char have[128] = "";
    size_t i;

    client_ok(&f, gpubuf_checkpoint_list(f.client, session, page, &list, &f.err));
    for (i = 0; i < list.count; i++) {
        strcat(have, list.items[i].name);
        strcat(have, " ");
    }
    ck_assert_str_eq(have, names);
    ck_assert_msg((list.next_cursor[0] != '\0') == (next != NULL), "%s", list.next_cursor);
    ck_assert_int_eq(list.json[0], '[');
    gpubuf_checkpoint_list_done(&list);
    ck_assert_ptr_null(list.items);
}

/* Flips the last byte of a file. */
static void damage(const char *path) {
    struct stat st;
    unsigned char byte;
    int fd = open(path, O_RDWR);

    ck_assert_msg(fd >= 0 && fstat(fd, &st) == 0, "%s", path);
    ck_assert_int_eq(pread(fd, &byte, 1, st.st_size - 1), 1);
    byte ^= 1;
    ck_assert_int_eq(pwrite(fd, &byte, 1, st.st_size - 1), 1);
    close(fd);
}

static void damage_checkpoint(const char *name, unsigned file) {
    char path[256];

    snprintf(path, sizeof(path), "%s/data/checkpoints/%s/%05u.safetensors", f.dir, name, file);
    damage(path);
}

/* --- there and back ----------------------------------------------------------------------------------------------- */

START_TEST(there_and_back) {
    struct gpubuf_restore_params params = {.prefix = "old."};
    struct gpubuf_checkpoint_verified verified;
    struct gpubuf_checkpoint made;
    struct gpubuf_checkpoint seen;
    struct gpubuf_restored back;
    struct gpubuf_buffer rec;

    fill();
    made = make("c1");
    ck_assert_str_eq(made.name, "c1");
    ck_assert_str_eq(made.session, "default");
    ck_assert_str_eq(made.state, "complete");
    ck_assert(made.buffers == 2 && made.bytes == BYTES + OTHER_BYTES && made.skipped_buffers == 0);
    ck_assert(made.linked_bytes == BYTES && made.written_bytes == OTHER_BYTES);
    client_fixture_kill(&f);
    client_fixture_again(&f, NULL);
    client_ok(&f, gpubuf_checkpoint_get(f.client, "c1", NULL, &seen, &f.err));
    ck_assert_str_eq(seen.as_of, made.as_of);
    ck_assert(seen.buffers == 2 && seen.bytes == made.bytes && seen.linked_bytes == 0);
    client_ok(&f, gpubuf_checkpoint_verify(f.client, "c1", NULL, &verified, &f.err));
    ck_assert(verified.match && verified.buffers == 2 && verified.bytes == made.bytes);
    ck_assert_uint_eq(verified.damaged_buffers, 0);
    client_ok(&f, gpubuf_checkpoint_restore(f.client, "c1", &params, NULL, &back, &f.err));
    ck_assert_str_eq(back.checkpoint, "c1");
    ck_assert_str_eq(back.session, "default");
    ck_assert(back.buffers == 2 && back.bytes == made.bytes && back.replaced == 0 && back.loaded == 0);
    client_ok(&f, gpubuf_buffer_get(f.client, "default", "old.b", false, NULL, &rec, &f.err));
    ck_assert_str_eq(rec.tier, "disk");
    ck_assert_str_eq(rec.durability, "behind");
    client_expect(&f, "old.a.x", data, BYTES);
    client_expect(&f, "old.b", data, OTHER_BYTES);
    client_ok(&f, gpubuf_checkpoint_delete(f.client, "c1", NULL, &f.err));
    client_fails(&f, gpubuf_checkpoint_get(f.client, "c1", NULL, NULL, &f.err), GPUBUF_CHECKPOINT_NOT_FOUND);
    client_expect(&f, "old.a.x", data, BYTES);
}
END_TEST

START_TEST(into_another_session) {
    const char *const one[] = {"b", NULL};
    struct gpubuf_restore_params params = {.into = "s", .names = one, .device = "0", .eager = true};
    struct gpubuf_restored back;
    struct gpubuf_buffer rec;

    fill();
    make("c1");
    client_fails(&f, gpubuf_checkpoint_restore(f.client, "c1", &params, NULL, &back, &f.err), GPUBUF_SESSION_NOT_FOUND);
    client_ok(&f, gpubuf_session_create(f.client, "s", NULL, NULL, NULL, &f.err));
    client_ok(&f, gpubuf_checkpoint_restore(f.client, "c1", &params, NULL, &back, &f.err));
    ck_assert_str_eq(back.session, "s");
    ck_assert(back.buffers == 1 && back.bytes == OTHER_BYTES && back.loaded == 1 && back.skipped_buffers == 0);
    client_ok(&f, gpubuf_buffer_get(f.client, "s", "b", false, NULL, &rec, &f.err));
    ck_assert_str_eq(rec.tier, "device");
    params.replace = true;
    client_ok(&f, gpubuf_checkpoint_restore(f.client, "c1", &params, NULL, &back, &f.err));
    ck_assert(back.buffers == 1 && back.replaced == 1);
    params.device = "77";
    client_fails(&f, gpubuf_checkpoint_restore(f.client, "c1", &params, NULL, &back, &f.err), GPUBUF_DEVICE_NOT_FOUND);
}
END_TEST

START_TEST(parts_of_a_session) {
    const char *const one[] = {"b", NULL};
    const char *const none[] = {NULL};
    struct gpubuf_checkpoint_params params = {.prefix = "a."};
    struct gpubuf_checkpoint made;

    fill();
    client_ok(&f, gpubuf_checkpoint_create(f.client, "default", "p", &params, NULL, &made, &f.err));
    ck_assert(made.buffers == 1 && made.bytes == BYTES);
    params.names = one;
    client_fails(&f, gpubuf_checkpoint_create(f.client, "default", "q", &params, NULL, &made, &f.err),
                 GPUBUF_INVALID_ARGUMENT);
    params.prefix = NULL;
    client_ok(&f, gpubuf_checkpoint_create(f.client, "default", "q", &params, NULL, &made, &f.err));
    ck_assert(made.buffers == 1 && made.bytes == OTHER_BYTES);
    params.names = none;
    client_ok(&f, gpubuf_checkpoint_create(f.client, "default", "r", &params, NULL, &made, &f.err));
    ck_assert_uint_eq(made.buffers, 0);
}
END_TEST

START_TEST(listed) {
    struct gpubuf_page page = {.limit = 1};
    struct gpubuf_checkpoint_list list;
    char etag[GPUBUF_ETAG_SIZE];
    struct gpubuf_how how = {.if_none_match = etag};

    expect_list(NULL, NULL, "", NULL);
    make("z");
    make("y");
    client_ok(&f, gpubuf_session_create(f.client, "s", NULL, NULL, NULL, &f.err));
    client_ok(&f, gpubuf_checkpoint_create(f.client, "s", "x", NULL, NULL, NULL, &f.err));
    expect_list(NULL, NULL, "z y x ", NULL);
    expect_list("s", NULL, "x ", NULL);
    expect_list("default", &page, "z ", "more");
    client_ok(&f, gpubuf_checkpoint_list(f.client, "default", &page, &list, &f.err));
    page.cursor = list.next_cursor;
    expect_list("default", &page, "y ", NULL);
    gpubuf_checkpoint_list_done(&list);
    client_ok(&f, gpubuf_session_delete(f.client, "s", NULL, &f.err));
    expect_list("s", NULL, "x ", NULL);
    client_fails(&f, gpubuf_checkpoint_list(f.client, "-", NULL, &list, &f.err), GPUBUF_INVALID_NAME);
    client_ok(&f, gpubuf_checkpoint_get(f.client, "x", NULL, NULL, &f.err));
    strcpy(etag, gpubuf_answer_of(f.client)->etag);
    ck_assert_int_eq(gpubuf_checkpoint_get(f.client, "x", &how, NULL, &f.err), GPUBUF_UNCHANGED);
}
END_TEST

/* What the call answers itself if it was quick, or its operation. */
static int outcome(int r, const char *id, struct gpubuf_operation *ret) {
    return r < 0 || id[0] == '\0' ? r : gpubuf_operation_wait(f.client, id, 0, ret, &f.err);
}

START_TEST(as_an_operation) {
    char id[GPUBUF_ID_SIZE] = "";
    struct gpubuf_how how = {.async = true, .ret_operation = id};
    struct gpubuf_operation operation = {.status = 201};
    int r;

    fill();
    r = gpubuf_checkpoint_create(f.client, "default", "c1", NULL, &how, NULL, &f.err);
    client_ok(&f, outcome(r, id, &operation));
    ck_assert_int_eq(operation.status, 201);
    r = gpubuf_checkpoint_verify(f.client, "c1", &how, NULL, &f.err);
    client_ok(&f, outcome(r, id, &operation));
    r = gpubuf_checkpoint_restore(f.client, "c1", NULL, &how, NULL, &f.err);
    client_fails(&f, outcome(r, id, &operation), GPUBUF_BUFFER_EXISTS);
}
END_TEST

/* --- refusals ----------------------------------------------------------------------------------------------------- */

START_TEST(not_there) {
    struct gpubuf_checkpoint made;
    struct gpubuf_checkpoint_verified verified;
    struct gpubuf_restored back;

    client_fails(&f, gpubuf_checkpoint_get(f.client, "c1", NULL, &made, &f.err), GPUBUF_CHECKPOINT_NOT_FOUND);
    client_fails(&f, gpubuf_checkpoint_delete(f.client, "c1", NULL, &f.err), GPUBUF_CHECKPOINT_NOT_FOUND);
    client_fails(&f, gpubuf_checkpoint_verify(f.client, "c1", NULL, &verified, &f.err), GPUBUF_CHECKPOINT_NOT_FOUND);
    client_fails(&f, gpubuf_checkpoint_restore(f.client, "c1", NULL, NULL, &back, &f.err), GPUBUF_CHECKPOINT_NOT_FOUND);
    client_fails(&f, gpubuf_checkpoint_create(f.client, "s", "c1", NULL, NULL, &made, &f.err),
                 GPUBUF_SESSION_NOT_FOUND);
    client_fails(&f, gpubuf_checkpoint_create(f.client, "default", "-", NULL, NULL, &made, &f.err),
                 GPUBUF_INVALID_NAME);
    client_fails(&f, gpubuf_checkpoint_create(f.client, "default", NULL, NULL, NULL, &made, &f.err),
                 GPUBUF_INVALID_NAME);
    client_fails(&f, gpubuf_checkpoint_get(f.client, NULL, NULL, &made, &f.err), GPUBUF_BAD_ARGUMENT);
}
END_TEST

START_TEST(conflicts) {
    const char *const names[] = {"b", "none", NULL};
    struct gpubuf_checkpoint_params some = {.names = names};
    struct gpubuf_restore_params part = {.prefix = "new.", .names = names};
    struct gpubuf_checkpoint made;
    struct gpubuf_restored back;
    struct gpubuf_buffer rec;

    fill();
    make("c1");
    client_fails(&f, gpubuf_checkpoint_create(f.client, "default", "c1", NULL, NULL, &made, &f.err),
                 GPUBUF_CHECKPOINT_EXISTS);
    client_fails(&f, gpubuf_checkpoint_create(f.client, "default", "c2", &some, NULL, &made, &f.err),
                 GPUBUF_BUFFER_NOT_FOUND);
    client_fails(&f, gpubuf_checkpoint_restore(f.client, "c1", NULL, NULL, &back, &f.err), GPUBUF_BUFFER_EXISTS);
    client_fails(&f, gpubuf_checkpoint_restore(f.client, "c1", &part, NULL, &back, &f.err), GPUBUF_BUFFER_NOT_FOUND);
    client_fails(&f, gpubuf_buffer_get(f.client, "default", "new.b", false, NULL, &rec, &f.err),
                 GPUBUF_BUFFER_NOT_FOUND);
}
END_TEST

START_TEST(too_many) {
    struct gpubuf_checkpoint made;
    char name[16];
    unsigned i;

    for (i = 0; i < MAX; i++) {
        snprintf(name, sizeof(name), "c%u", i);
        make(name);
    }
    client_fails(&f, gpubuf_checkpoint_create(f.client, "default", "more", NULL, NULL, &made, &f.err),
                 GPUBUF_LIMIT_REACHED);
    client_ok(&f, gpubuf_checkpoint_delete(f.client, "c7", NULL, &f.err));
    make("more");
}
END_TEST

/* Its own buffers are all that a session's quota of bytes could send away. */
START_TEST(no_memory_for_them) {
    struct gpubuf_session_params params = {.quota_bytes = gpubuf_some(BYTES - 1)};
    struct gpubuf_restore_params eager = {.into = "s", .eager = true};
    struct gpubuf_restored back;

    fill();
    make("c1");
    client_ok(&f, gpubuf_session_create(f.client, "s", &params, NULL, NULL, &f.err));
    client_ok(&f, gpubuf_checkpoint_restore(f.client, "c1", &eager, NULL, &back, &f.err));
    ck_assert(back.buffers == 2 && back.loaded == 1 && back.skipped_buffers == 1);
    ck_assert_ptr_nonnull(strstr(gpubuf_answer_of(f.client)->body, "{\"buffer\":\"a.x\",\"code\":\"quota_exceeded\"}"));
}
END_TEST

START_TEST(no_disk_for_them) {
    struct gpubuf_session_params params = {.quota_stored_bytes = gpubuf_some(BYTES - 1)};
    struct gpubuf_restore_params into = {.into = "s"};
    struct gpubuf_session session;

    fill();
    make("c1");
    client_ok(&f, gpubuf_session_create(f.client, "s", &params, NULL, &session, &f.err));
    ck_assert(session.quota_stored_bytes.set && session.quota_stored_bytes.value == BYTES - 1);
    client_fails(&f, gpubuf_checkpoint_restore(f.client, "c1", &into, NULL, NULL, &f.err), GPUBUF_QUOTA_EXCEEDED);
    params.quota_stored_bytes = gpubuf_some(GPUBUF_NO_LIMIT);
    client_ok(&f, gpubuf_session_update(f.client, "s", &params, NULL, &session, &f.err));
    ck_assert(!session.quota_stored_bytes.set && session.used_stored_bytes == 0);
    client_ok(&f, gpubuf_checkpoint_restore(f.client, "c1", &into, NULL, NULL, &f.err));
    client_ok(&f, gpubuf_session_get(f.client, "s", NULL, &session, &f.err));
    ck_assert_uint_eq(session.used_stored_bytes, BYTES + OTHER_BYTES);
}
END_TEST

START_TEST(what_cannot_be_read) {
    struct gpubuf_checkpoint_params lenient = {.lenient = true};
    struct gpubuf_put_params spilled = {.format = "raw", .spill = "disk"};
    struct gpubuf_checkpoint made;

    put("default", "x", OTHER_BYTES, "sync");
    client_ok(&f, gpubuf_put(f.client, "default", "y", gpubuf_from_memory(data, BYTES), &spilled, NULL, &f.err));
    client_fixture_kill(&f);
    client_fixture_again(&f, NULL);
    client_fails(&f, gpubuf_checkpoint_create(f.client, "default", "c1", NULL, NULL, &made, &f.err),
                 GPUBUF_CONTENT_LOST);
    client_ok(&f, gpubuf_checkpoint_create(f.client, "default", "c1", &lenient, NULL, &made, &f.err));
    ck_assert(made.buffers == 1 && made.skipped_buffers == 1);
    ck_assert_ptr_nonnull(strstr(gpubuf_answer_of(f.client)->body, "{\"buffer\":\"y\",\"code\":\"content_lost\"}"));
}
END_TEST

START_TEST(damaged) {
    struct gpubuf_checkpoint_verified verified;

    put("default", "x", OTHER_BYTES, "none");
    put("default", "y", BYTES, "none");
    make("c1");
    damage_checkpoint("c1", 2);
    client_ok(&f, gpubuf_checkpoint_verify(f.client, "c1", NULL, &verified, &f.err));
    ck_assert(!verified.match && verified.buffers == 2 && verified.damaged_buffers == 1);
    ck_assert_ptr_nonnull(strstr(gpubuf_answer_of(f.client)->body,
                                 "{\"buffer\":\"y\",\"file\":\"00002.safetensors\",\"code\":\"content_damaged\"}"));
}
END_TEST

START_TEST(without_a_folder) {
    static const char *const none[] = {"--data-dir", "none", NULL};
    struct gpubuf_scrubbed scrubbed;
    struct gpubuf_storage storage;
    struct gpubuf_checkpoint made;

    client_fixture_start(&f, none);
    client_fails(&f, gpubuf_checkpoint_create(f.client, "default", "c1", NULL, NULL, &made, &f.err),
                 GPUBUF_UNSUPPORTED);
    client_fails(&f, gpubuf_storage_scrub(f.client, 0, NULL, &scrubbed, &f.err), GPUBUF_UNSUPPORTED);
    client_ok(&f, gpubuf_storage_get(f.client, &storage, &f.err));
    ck_assert(!storage.scrubbing && storage.scrub_ended_at[0] == '\0');
    client_fixture_stop(&f);
}
END_TEST

/* --- scrubs ------------------------------------------------------------------------------------------------------- */

START_TEST(scrubs) {
    struct gpubuf_scrubbed scrubbed;
    struct gpubuf_checkpoint seen;
    struct gpubuf_storage storage;

    client_ok(&f, gpubuf_storage_get(f.client, &storage, &f.err));
    ck_assert(!storage.scrubbing && storage.scrub_ended_at[0] == '\0');
    put("default", "x", BYTES, "sync");
    client_ok(&f, gpubuf_storage_scrub(f.client, UINT64_C(1) << 40, NULL, &scrubbed, &f.err));
    ck_assert(scrubbed.files == 1 && scrubbed.bytes >= BYTES && scrubbed.damaged == 0 && scrubbed.skipped == 0);
    client_ok(&f, gpubuf_storage_get(f.client, &storage, &f.err));
    ck_assert(!storage.scrubbing && strcmp(storage.scrub_ended_at, scrubbed.began) >= 0);
    /* The file of a checkpoint is the buffer's own. */
    make("c1");
    damage_checkpoint("c1", 1);
    client_ok(&f, gpubuf_storage_scrub(f.client, UINT64_C(1) << 40, NULL, &scrubbed, &f.err));
    ck_assert(scrubbed.damaged == 2 && scrubbed.healed == 1); /* the buffer has a new file then */
    client_ok(&f, gpubuf_storage_scrub(f.client, UINT64_C(1) << 40, NULL, &scrubbed, &f.err));
    ck_assert_uint_eq(scrubbed.damaged, 1);
    client_ok(&f, gpubuf_checkpoint_get(f.client, "c1", NULL, &seen, &f.err));
    ck_assert_uint_eq(seen.damaged_files, 1);
    client_fails(&f, gpubuf_storage_scrub(f.client, 1, NULL, &scrubbed, &f.err), GPUBUF_INVALID_ARGUMENT);
}
END_TEST

/* At the lowest rate it takes most of a minute; a second request joins it with a rate of its own. */
START_TEST(scrub_goes_on) {
    struct gpubuf_how how = {.wait_s = 1};
    struct gpubuf_scrubbed scrubbed;
    struct gpubuf_storage storage;

    put("default", "x", BYTES, "sync");
    client_fails(&f, gpubuf_storage_scrub(f.client, 65536, &how, &scrubbed, &f.err), GPUBUF_TIMED_OUT);
    client_ok(&f, gpubuf_storage_get(f.client, &storage, &f.err));
    ck_assert(storage.scrubbing);
    client_ok(&f, gpubuf_storage_scrub(f.client, UINT64_C(1) << 40, NULL, &scrubbed, &f.err));
    ck_assert_uint_eq(scrubbed.files, 1);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("client_checkpoints");
    TCase *tcase = tcase_create("checkpoints");
    TCase *bare = tcase_create("without");

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, there_and_back);
    tcase_add_test(tcase, into_another_session);
    tcase_add_test(tcase, parts_of_a_session);
    tcase_add_test(tcase, listed);
    tcase_add_test(tcase, as_an_operation);
    tcase_add_test(tcase, not_there);
    tcase_add_test(tcase, conflicts);
    tcase_add_test(tcase, too_many);
    tcase_add_test(tcase, no_memory_for_them);
    tcase_add_test(tcase, no_disk_for_them);
    tcase_add_test(tcase, what_cannot_be_read);
    tcase_add_test(tcase, damaged);
    tcase_add_test(tcase, scrubs);
    tcase_add_test(tcase, scrub_goes_on);
    suite_add_tcase(suite, tcase);
    tcase_set_timeout(bare, 60);
    tcase_add_test(bare, without_a_folder);
    suite_add_tcase(suite, bare);
    return gb_test_run(suite);
}
