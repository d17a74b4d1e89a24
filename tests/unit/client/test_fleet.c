/* libgpubuf: redirects within a fleet, against servers that answer as nodes do. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client_fixture.h"

#define TEXT_SIZE 2048
#define OK_SESSION                                                                                                     \
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 12\r\nConnection: close\r\n\r\n"             \
    "{\"name\":\"s\"}"
#define OK_BUFFER                                                                                                      \
    "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 12\r\nConnection: close\r\n\r\n"        \
    "{\"name\":\"b\"}"

/* One that redirects, and one that is redirected to. */
static struct fake_server here;
static struct fake_server there;
static char texts[6][TEXT_SIZE];
static const char *answers[7];
static struct gpubuf_error err;

static const char *redirect_to(char *ret, int status, const char *origin, const char *path) {
    snprintf(ret, TEXT_SIZE,
             "HTTP/1.1 %d Elsewhere\r\nLocation: %s%s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", status,
             origin, path);
    return ret;
}

static gpubuf_client *client_of(const struct fake_server *fake, const char *token, uint32_t retries) {
    struct gpubuf_options options = {
        .url = fake->url, .token = token, .retries = retries, .stall_timeout_s = 5, .answer_timeout_s = 5};
    gpubuf_client *client = NULL;

    ck_assert_msg(gpubuf_open(&options, &client, &err) == 0, "%s", err.detail);
    return client;
}

/* Both answer, the one here with a redirect to that target there. */
static gpubuf_client *begin(const char *path, const char *const *answers_there, const char *token) {
    fake_start(&there, answers_there);
    answers[0] = redirect_to(texts[0], 307, there.url, path);
    fake_start(&here, answers);
    return client_of(&here, token, UINT32_MAX);
}

static void end(gpubuf_client *client) {
    gpubuf_close(client);
    fake_stop(&here);
    fake_stop(&there);
}

static const char *const sessions[] = {OK_SESSION, NULL};
static const char *const buffers[] = {OK_BUFFER, NULL};

/* --- where a request goes ----------------------------------------------------------------------------------------- */

START_TEST(ticket_in_place_of_the_token) {
    gpubuf_client *client = begin("/v1/sessions/s?via=1.1&ticket=T", sessions, "gpb_secret");

    ck_assert_msg(client_ask(client, "GET", "/v1/sessions/s", NULL, &err) == 0, "%s", err.detail);
    ck_assert(client_says(client, "\"name\":\"s\""));
    end(client);
    ck_assert_ptr_nonnull(strstr(here.last, "Authorization: Bearer gpb_secret"));
    ck_assert_int_eq(strncmp(there.last, "GET /v1/sessions/s?via=1.1&ticket=T HTTP/1.1", 44), 0);
    ck_assert_ptr_null(strstr(there.last, "Authorization"));
    ck_assert_uint_eq(here.served, 1);
    ck_assert_uint_eq(there.served, 1);
}
END_TEST

/* A client over a UNIX socket continues over TCP, where its token is not sent. */
START_TEST(from_a_socket) {
    gpubuf_client *client;

    here.local = true;
    client = begin("/v1/sessions/s?via=1.1", sessions, "gpb_secret");
    ck_assert_msg(client_ask(client, "GET", "/v1/sessions/s", NULL, &err) == 0, "%s", err.detail);
    end(client);
    ck_assert_uint_eq(there.served, 1);
    ck_assert_ptr_nonnull(strstr(here.last, "Authorization: Bearer gpb_secret"));
    ck_assert_ptr_null(strstr(there.last, "Authorization"));
    here.local = false;
}
END_TEST

/* The next request asks the client's own daemon again. */
START_TEST(not_remembered) {
    gpubuf_client *client = begin("/v1/sessions/s?via=1.1", sessions, NULL);

    ck_assert_int_eq(client_ask(client, "GET", "/v1/sessions/s", NULL, &err), 0);
    ck_assert_int_eq(client_ask(client, "GET", "/v1/sessions/s", NULL, &err), 0);
    end(client);
    ck_assert_uint_eq(here.served, 2);
    ck_assert_uint_eq(there.served, 2);
}
END_TEST

static const struct {
    int status;
    const char *location;
} strangers[] = {
    {307, "/v1/sessions/s"},          {307, "/v1/sessions/s?ticket=T"}, {301, "/v1/sessions/s?via=1.1"},
    {302, "/v1/sessions/s?via=1.1"},  {303, "/v1/sessions/s?via=1.1"},  {308, "/v1/sessions/s?via=1.1"},
    {307, "/v1/sessions/s?evia=1.1"},
};

/* Only what a fleet's node says is followed. */
START_TEST(others_are_not_followed) {
    gpubuf_client *client;

    fake_start(&there, sessions);
    answers[0] = redirect_to(texts[0], strangers[_i].status, there.url, strangers[_i].location);
    fake_start(&here, answers);
    client = client_of(&here, NULL, UINT32_MAX);
    ck_assert_int_eq(client_ask(client, "GET", "/v1/sessions/s", NULL, &err), -1);
    ck_assert_int_eq(err.code, GPUBUF_BAD_ANSWER);
    ck_assert_ptr_nonnull(strstr(err.detail, "not followed"));
    end(client);
    ck_assert_uint_eq(there.served, 0);
}
END_TEST

/* A node redirects to itself: four requests, and no more. */
START_TEST(circle) {
    gpubuf_client *client;

    fake_start(&there, sessions);
    fake_start(&here, answers);
    answers[0] = redirect_to(texts[0], 307, here.url, "/v1/sessions/s?via=1.1");
    client = client_of(&here, NULL, 2);
    ck_assert_int_eq(client_ask(client, "GET", "/v1/sessions/s", NULL, &err), -1);
    ck_assert_msg(err.code == GPUBUF_OWNER_UNKNOWN, "%s: %s", err.slug, err.detail);
    end(client);
    ck_assert_uint_eq(here.served, 4);
}
END_TEST

/* The same host and port gets the token. */
START_TEST(token_stays_at_its_daemon) {
    gpubuf_client *client;

    fake_start(&there, sessions);
    answers[1] = OK_SESSION;
    fake_start(&here, answers);
    answers[0] = redirect_to(texts[0], 307, here.url, "/v1/sessions/s?via=2.1");
    client = client_of(&here, "gpb_secret", UINT32_MAX);
    ck_assert_msg(client_ask(client, "GET", "/v1/sessions/s", NULL, &err) == 0, "%s", err.detail);
    end(client);
    ck_assert_ptr_nonnull(strstr(here.last, "via=2.1"));
    ck_assert_ptr_nonnull(strstr(here.last, "Authorization: Bearer gpb_secret"));
}
END_TEST

/* --- what it takes along ------------------------------------------------------------------------------------------ */

START_TEST(memory_is_sent_again) {
    gpubuf_client *client = begin("/v1/sessions/s/buffers/b/data?via=1.1&ticket=T", buffers, NULL);

    ck_assert_msg(gpubuf_put(client, "s", "b", gpubuf_from_memory("abcdef", 6), NULL, NULL, &err) == 0, "%s",
                  err.detail);
    end(client);
    ck_assert_ptr_nonnull(strstr(there.last, "Content-Length: 6"));
    ck_assert_ptr_nonnull(strstr(there.last, "PUT /v1/sessions/s/buffers/b/data?via=1.1&ticket=T"));
}
END_TEST

START_TEST(json_is_sent_again) {
    gpubuf_client *client = begin("/v1/sessions/s/buffers/b/fill?via=1.1", buffers, NULL);

    ck_assert_msg(client_ask(client, "POST", "/v1/sessions/s/buffers/b/fill", "{\"pattern\":7}", &err) == 0, "%s",
                  err.detail);
    end(client);
    ck_assert_ptr_nonnull(strstr(there.last, "Content-Type: application/json"));
    ck_assert_ptr_null(strstr(there.last, "Content-Length: 0"));
}
END_TEST

/* A pipe of known size is read before the answer comes. */
START_TEST(pipe_is_not_sent_again) {
    gpubuf_client *client = begin("/v1/sessions/s/buffers/b/data?via=1.1", buffers, NULL);
    struct gpubuf_source source;
    int ends[2];

    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    ck_assert_int_eq(write(ends[1], "abcdef", 6), 6);
    source = gpubuf_from_fd(ends[0], -1, 6);
    ck_assert_int_eq(gpubuf_put(client, "s", "b", source, NULL, NULL, &err), -1);
    ck_assert_msg(err.code == GPUBUF_INPUT_FAILED, "%s: %s", err.slug, err.detail);
    ck_assert_ptr_nonnull(strstr(err.detail, "give a file, or ask"));
    ck_assert_ptr_nonnull(strstr(err.detail, there.url));
    end(client);
    close(ends[0]);
    close(ends[1]);
    ck_assert_uint_eq(there.served, 0);
}
END_TEST

/* --- and again ---------------------------------------------------------------------------------------------------- */

#define PROBLEM(status, code)                                                                                          \
    "HTTP/1.1 " #status " No\r\nConnection: close\r\n\r\n{\"code\":\"" code "\",\"status\":" #status                   \
    ",\"retryable\":true,\"detail\":\"of the test\"}"

/* A ticket that ended on the way: the node makes another. */
START_TEST(another_ticket) {
    static const char *const late[] = {PROBLEM(401, "ticket_invalid"), OK_SESSION, NULL};
    gpubuf_client *client;

    fake_start(&there, late);
    answers[0] = redirect_to(texts[0], 307, there.url, "/v1/sessions/s?via=1.1&ticket=T");
    fake_start(&here, answers);
    client = client_of(&here, "gpb_x", 2);
    ck_assert_msg(client_ask(client, "GET", "/v1/sessions/s", NULL, &err) == 0, "%s: %s", err.slug, err.detail);
    end(client);
    ck_assert_uint_eq(here.served, 2);
    ck_assert_uint_eq(there.served, 2);
}
END_TEST

/* An owner that is not there will not be within seconds: the call ends at once. */
START_TEST(absent_owner) {
    gpubuf_client *client;

    fake_start(&there, sessions);
    answers[0] = PROBLEM(503, "owner_absent");
    fake_start(&here, answers);
    client = client_of(&here, NULL, 2);
    ck_assert_int_eq(client_ask(client, "GET", "/v1/sessions/s", NULL, &err), -1);
    ck_assert_int_eq(err.code, GPUBUF_OWNER_ABSENT);
    ck_assert(err.retryable);
    end(client);
    ck_assert_uint_eq(here.served, 1);
}
END_TEST

/* The node that is named does not listen: the first one is asked again. */
START_TEST(unreachable_owner) {
    gpubuf_client *client;

    fake_start(&there, sessions);
    answers[0] = redirect_to(texts[0], 307, "http://127.0.0.1:1", "/v1/sessions/s?via=1.1");
    answers[1] = OK_SESSION;
    fake_start(&here, answers);
    client = client_of(&here, NULL, 2);
    ck_assert_msg(client_ask(client, "GET", "/v1/sessions/s", NULL, &err) == 0, "%s: %s", err.slug, err.detail);
    end(client);
    ck_assert_uint_eq(here.served, 2);
}
END_TEST

static char traced[4][512];
static int lines;

static void take_line(void *arg, const char *line) {
    (void)arg;
    if (lines < 4)
        snprintf(traced[lines++], sizeof(traced[0]), "%s", line);
}

START_TEST(traces_have_no_ticket) {
    struct gpubuf_options options = {.trace = take_line, .retries = UINT32_MAX};
    gpubuf_client *client;
    char expected[256];

    fake_start(&there, sessions);
    answers[0] = redirect_to(texts[0], 307, there.url, "/v1/sessions/s?via=1.1&ticket=T");
    fake_start(&here, answers);
    options.url = here.url;
    ck_assert_int_eq(gpubuf_open(&options, &client, &err), 0);
    ck_assert_int_eq(client_ask(client, "GET", "/v1/sessions/s", NULL, &err), 0);
    end(client);
    ck_assert_int_eq(lines, 2);
    ck_assert_int_eq(strncmp(traced[0], "GET /v1/sessions/s -> 307 ", 26), 0);
    snprintf(expected, sizeof(expected), "GET %s/v1/sessions/s -> 200 ", there.url);
    ck_assert_int_eq(strncmp(traced[1], expected, strlen(expected)), 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("client_fleet");

    gb_test_add(suite, "ticket_in_place_of_the_token", ticket_in_place_of_the_token, 20);
    gb_test_add(suite, "from_a_socket", from_a_socket, 20);
    gb_test_add(suite, "not_remembered", not_remembered, 20);
    gb_test_add_loop(suite, "others_are_not_followed", others_are_not_followed, 20,
                     (int)(sizeof(strangers) / sizeof(strangers[0])));
    gb_test_add(suite, "circle", circle, 20);
    gb_test_add(suite, "token_stays_at_its_daemon", token_stays_at_its_daemon, 20);
    gb_test_add(suite, "memory_is_sent_again", memory_is_sent_again, 20);
    gb_test_add(suite, "json_is_sent_again", json_is_sent_again, 20);
    gb_test_add(suite, "pipe_is_not_sent_again", pipe_is_not_sent_again, 20);
    gb_test_add(suite, "another_ticket", another_ticket, 20);
    gb_test_add(suite, "absent_owner", absent_owner, 20);
    gb_test_add(suite, "unreachable_owner", unreachable_owner, 20);
    gb_test_add(suite, "traces_have_no_ticket", traces_have_no_ticket, 20);
    return gb_test_run(suite);
}
