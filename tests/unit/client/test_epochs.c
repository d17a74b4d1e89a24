/* libgpubuf: the epochs of a fleet's sessions, which answers tell and requests carry. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client_fixture.h"

#define TEXT_SIZE 1024
#define SESSIONS 64 /* that a client remembers */

/* A node, and one to which it redirects. */
static struct fake_server here;
static struct fake_server there;
static char texts[8][TEXT_SIZE];
static const char *answers[9];
static struct gpubuf_error err;

/* The next answers of the node here. epoch 0: without one. */
static void say(int n, const char *status, unsigned epoch, const char *json) {
    char field[32] = "";

    if (epoch > 0)
        snprintf(field, sizeof(field), "Gpubuf-Epoch: %u\r\n", epoch);
    snprintf(texts[n], TEXT_SIZE, "HTTP/1.1 %s\r\n%sContent-Length: %zu\r\nConnection: close\r\n\r\n%s", status, field,
             strlen(json), json);
    answers[n] = texts[n];
    answers[n + 1] = NULL;
}

#define SESSION "{\"name\":\"s\"}"
#define PROBLEM(code, status)                                                                                          \
    "{\"code\":\"" code "\",\"status\":" #status ",\"retryable\":true,\"detail\":\"of the test\"}"

static gpubuf_client *open_here(uint32_t retries) {
    struct gpubuf_options options = {.url = here.url, .retries = retries, .stall_timeout_s = 5, .answer_timeout_s = 5};
    gpubuf_client *client = NULL;

    fake_start(&here, answers);
    ck_assert_msg(gpubuf_open(&options, &client, &err) == 0, "%s", err.detail);
    return client;
}

static gpubuf_client *begin(void) {
    return open_here(UINT32_MAX);
}

static void end(gpubuf_client *client) {
    gpubuf_close(client);
    fake_stop(&here);
}

/* Asks for the session, and gives the epoch that the request carried; 0: none. Over TCP the header of the request is
 * there when the answer is. */
static unsigned carried(gpubuf_client *client, const char *session) {
    char target[64];
    const char *at;

    snprintf(target, sizeof(target), "/v1/sessions/%s", session);
    client_ask(client, "GET", target, NULL, &err);
    at = strstr(here.last, "Gpubuf-Epoch: ");
    return at ? (unsigned)strtoul(at + 14, NULL, 10) : 0;
}

/* --- what answers tell -------------------------------------------------------------------------------------------- */

START_TEST(the_highest_is_carried) {
    gpubuf_client *client;

    say(0, "200 OK", 3, SESSION);
    say(1, "200 OK", 2, SESSION);
    say(2, "200 OK", 5, SESSION);
    say(3, "200 OK", 0, SESSION);
    client = begin();
    ck_assert_uint_eq(carried(client, "s"), 0);
    ck_assert_uint_eq(carried(client, "s"), 3);
    ck_assert_uint_eq(carried(client, "s"), 3);
    ck_assert_uint_eq(carried(client, "other"), 0);
    ck_assert_uint_eq(carried(client, "s"), 5);
    end(client);
}
END_TEST

START_TEST(refusals_tell_it_too) {
    gpubuf_client *client;

    say(0, "409 Conflict", 4, PROBLEM("superseded", 409));
    client = begin();
    ck_assert_int_eq(client_ask(client, "DELETE", "/v1/sessions/s/buffers/b", NULL, &err), -1);
    ck_assert_int_eq(err.code, GPUBUF_SUPERSEDED);
    ck_assert_uint_eq(carried(client, "s"), 4);
    end(client);
    ck_assert_uint_eq(here.served, 2);
}
END_TEST

/* The node that redirects knows the epoch, and the one that is named is asked with it. */
START_TEST(redirects_tell_it) {
    static const char *const session[] = {
        "HTTP/1.1 200 OK\r\nContent-Length: 12\r\nConnection: close\r\n\r\n{\"name\":\"s\"}", NULL};
    gpubuf_client *client;

    fake_start(&there, session);
    snprintf(texts[0], TEXT_SIZE,
             "HTTP/1.1 307 Elsewhere\r\nLocation: %s/v1/sessions/s?via=4.1\r\nGpubuf-Epoch: 4\r\nContent-Length: 0\r\n"
             "Connection: close\r\n\r\n",
             there.url);
    answers[0] = texts[0];
    answers[1] = NULL;
    client = begin();
    ck_assert_msg(client_ask(client, "GET", "/v1/sessions/s", NULL, &err) == 0, "%s", err.detail);
    ck_assert_ptr_null(strstr(here.last, "Gpubuf-Epoch"));
    ck_assert_ptr_nonnull(strstr(there.last, "Gpubuf-Epoch: 4\r\n"));
    end(client);
    fake_stop(&there);
}
END_TEST

START_TEST(a_mapping_carries_it) {
    gpubuf_mapping *mapping = NULL;
    gpubuf_client *client;

    here.local = true;
    say(0, "409 Conflict", 6, PROBLEM("superseded", 409));
    client = begin();
    gpubuf_fleet_expect(client, "s", 5);
    ck_assert_int_eq(gpubuf_map(client, "s", "b", NULL, &mapping, &err), -1);
    ck_assert_msg(err.code == GPUBUF_SUPERSEDED, "%s: %s", err.slug, err.detail);
    ck_assert_ptr_nonnull(strstr(here.last, "Gpubuf-Epoch: 5\r\n"));
    ck_assert_uint_eq(carried(client, "s"), 6);
    end(client);
    here.local = false;
}
END_TEST

START_TEST(the_callers_own_wins) {
    static const char *const own[] = {"gpubuf-epoch: 1", NULL};
    gpubuf_client *client;

    say(0, "200 OK", 0, SESSION);
    client = begin();
    gpubuf_fleet_expect(client, "s", 7);
    ck_assert_int_eq(gpubuf_request(client, "GET", "/v1/sessions/s?x=1", own, NULL, 0, &err), 0);
    ck_assert_ptr_nonnull(strstr(here.last, "gpubuf-epoch: 1"));
    ck_assert_ptr_null(strstr(here.last, "Gpubuf-Epoch"));
    end(client);
}
END_TEST

/* --- what ends it ------------------------------------------------------------------------------------------------- */

START_TEST(a_deleted_session_is_forgotten) {
    gpubuf_client *client;

    say(0, "204 No Content", 3, "");
    say(1, "200 OK", 0, SESSION);
    client = begin();
    gpubuf_fleet_expect(client, "s", 3);
    gpubuf_fleet_expect(client, "s.2", 3);
    ck_assert_msg(client_ask(client, "DELETE", "/v1/sessions/s", NULL, &err) == 0, "%s", err.detail);
    ck_assert_uint_eq(carried(client, "s"), 0);
    ck_assert_uint_eq(carried(client, "s.2"), 3);
    end(client);
}
END_TEST

/* What is not found by a POST may be the source of a copy; what is not found in the session is not the session. */
START_TEST(one_that_is_not_found_is_forgotten) {
    gpubuf_client *client;

    say(0, "404 Not Found", 0, PROBLEM("session_not_found", 404));
    say(1, "404 Not Found", 0, PROBLEM("buffer_not_found", 404));
    say(2, "404 Not Found", 0, PROBLEM("session_not_found", 404));
    say(3, "200 OK", 0, SESSION);
    client = begin();
    gpubuf_fleet_expect(client, "s", 3);
    ck_assert_int_eq(client_ask(client, "POST", "/v1/sessions/s/buffers/b/copy", "{\"from\":\"other/b\"}", &err), -1);
    ck_assert_int_eq(client_ask(client, "DELETE", "/v1/sessions/s/buffers/b", NULL, &err), -1);
    ck_assert_uint_eq(carried(client, "s"), 3);
    ck_assert_int_eq(err.code, GPUBUF_SESSION_NOT_FOUND);
    ck_assert_uint_eq(carried(client, "s"), 0);
    end(client);
}
END_TEST

/* One that is made begins at its own epoch, whatever was known of another of that name. */
START_TEST(a_new_session_begins_anew) {
    gpubuf_client *client;

    snprintf(texts[0], TEXT_SIZE,
             "HTTP/1.1 201 Created\r\nLocation: /v1/sessions/s\r\nGpubuf-Epoch: 1\r\nContent-Length: 12\r\n"
             "Connection: close\r\n\r\n" SESSION);
    answers[0] = texts[0];
    say(1, "200 OK", 0, SESSION);
    client = begin();
    gpubuf_fleet_expect(client, "s", 3);
    ck_assert_msg(client_ask(client, "POST", "/v1/sessions", SESSION, &err) == 0, "%s", err.detail);
    ck_assert_uint_eq(carried(client, "s"), 1);
    end(client);
}
END_TEST

START_TEST(so_many_are_remembered) {
    gpubuf_client *client;
    char name[16];
    unsigned i;

    say(0, "200 OK", 0, SESSION);
    client = begin();
    for (i = 0; i < SESSIONS; i++) {
        snprintf(name, sizeof(name), "s%u", i);
        gpubuf_fleet_expect(client, name, i + 1);
    }
    ck_assert_uint_eq(carried(client, "s0"), 1); /* now s1 was not used for longest */
    gpubuf_fleet_expect(client, "more", 100);
    ck_assert_uint_eq(carried(client, "s0"), 1);
    ck_assert_uint_eq(carried(client, "s1"), 0);
    ck_assert_uint_eq(carried(client, "s2"), 3);
    ck_assert_uint_eq(carried(client, "more"), 100);
    end(client);
}
END_TEST

static void *use(void *arg) {
    gpubuf_client *client = arg;
    unsigned i;

    for (i = 1; i <= 2000; i++) {
        char name[16];

        snprintf(name, sizeof(name), "t%u", i % 100);
        gpubuf_fleet_expect(client, name, i);
        gpubuf_fleet_expect(client, "s", i);
    }
    return NULL;
}

START_TEST(threads) {
    gpubuf_client *client;
    pthread_t thread[4];
    size_t i;

    say(0, "200 OK", 0, SESSION);
    client = begin();
    for (i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, use, client), 0);
    for (i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    ck_assert_uint_eq(carried(client, "s"), 2000);
    end(client);
}
END_TEST

/* --- an owner that does not know whether it is one ---------------------------------------------------------------- */

START_TEST(uncertain) {
    static const char *const condition[] = {"If-Match: \"1\"", NULL};
    gpubuf_client *client;

    say(0, "503 No", 0, PROBLEM("owner_uncertain", 503));
    say(1, "201 Created", 0, "{\"name\":\"b\"}");
    say(2, "503 No", 0, PROBLEM("owner_uncertain", 503));
    say(3, "404 Not Found", 0, PROBLEM("buffer_not_found", 404));
    say(4, "503 No", 0, PROBLEM("owner_uncertain", 503));
    client = open_here(2);
    ck_assert_msg(gpubuf_put(client, "s", "b", gpubuf_from_memory("abc", 3), NULL, NULL, &err) == 0, "%s", err.detail);
    /* It may have been deleted the first time. */
    ck_assert_msg(client_ask(client, "DELETE", "/v1/sessions/s/buffers/b", NULL, &err) == 0, "%s", err.detail);
    /* The condition may hold no more because of the first time. */
    ck_assert_int_eq(gpubuf_request(client, "DELETE", "/v1/sessions/s/buffers/b", condition, NULL, 0, &err), -1);
    ck_assert_int_eq(err.code, GPUBUF_OWNER_UNCERTAIN);
    ck_assert(err.retryable);
    ck_assert_int_eq(client_ask(client, "POST", "/v1/sessions/s/buffers/b/seal", "{}", &err), -1);
    end(client);
    ck_assert_uint_eq(here.served, 6);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("client_epochs");

    gb_test_add(suite, "the_highest_is_carried", the_highest_is_carried, 20);
    gb_test_add(suite, "refusals_tell_it_too", refusals_tell_it_too, 20);
    gb_test_add(suite, "redirects_tell_it", redirects_tell_it, 20);
    gb_test_add(suite, "a_mapping_carries_it", a_mapping_carries_it, 20);
    gb_test_add(suite, "the_callers_own_wins", the_callers_own_wins, 20);
    gb_test_add(suite, "a_deleted_session_is_forgotten", a_deleted_session_is_forgotten, 20);
    gb_test_add(suite, "one_that_is_not_found_is_forgotten", one_that_is_not_found_is_forgotten, 20);
    gb_test_add(suite, "a_new_session_begins_anew", a_new_session_begins_anew, 20);
    gb_test_add(suite, "so_many_are_remembered", so_many_are_remembered, 20);
    gb_test_add(suite, "threads", threads, 20);
    gb_test_add(suite, "uncertain", uncertain, 20);
    return gb_test_run(suite);
}
