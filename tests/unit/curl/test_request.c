/* HTTP to others: what is sent, faulty replies, broken and refused connections, TLS, and a lack of memory. */
#include <arpa/inet.h>
#include <errno.h>
#include <gnutls/gnutls.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "curl/request.h"
#include "failing_malloc.h"
#include "fake_server.h"
#include "gb_test.h"
#include "tls_files.h"

#define HEAD(status, bytes) "HTTP/1.1 " status "\r\nContent-Length: " bytes "\r\n\r\n"
#define GOOD HEAD("200 OK", "5") "hello"
#define MAX 16

static struct fake_server fake;

static void setup(void) {
    memset(&fake, 0, sizeof(fake));
    ck_assert_int_eq(gb_http_begin(), 0);
}

static struct gb_http_ask ask_of(const char *url) {
    return (struct gb_http_ask){.method = "GET", .url = url, .connect_ms = 5000, .total_ms = 5000, .answer_max = MAX};
}

/* Has one reply sent to a GET of the fake server, which reads until the connection ends. */
static struct gb_http_ask served(const char *answer) {
    const char *const answers[] = {answer, NULL};
    struct gb_http_ask ask;

    fake_start(&fake, answers);
    ask = ask_of(fake.url);
    gb_http_ask_perform(&ask);
    fake_stop(&fake);
    return ask;
}

/* --- replies ------------------------------------------------------------------------------------------------------ */

static const struct {
    const char *answer;
    enum gb_http_outcome outcome;
    int status;
    const char *body; /* NULL: no answer */
} replies[] = {
    {GOOD, GB_HTTP_OK, 200, "hello"},
    {HEAD("200 OK", "0"), GB_HTTP_OK, 200, NULL},
    {HEAD("200 OK", "16") "0123456789abcdef", GB_HTTP_OK, 200, "0123456789abcdef"},
    {HEAD("503 Busy", "2") "no", GB_HTTP_OK, 503, "no"},
    {"HTTP/1.1 204 No Content\r\n\r\n", GB_HTTP_OK, 204, NULL},
    {"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", GB_HTTP_OK, 304, NULL},
    {"HTTP/1.1 103 Early Hints\r\n\r\n" GOOD, GB_HTTP_OK, 200, "hello"},
    {"HTTP/1.1 301 Moved\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 2\r\n\r\nno", GB_HTTP_OK, 301, "no"},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", GB_HTTP_OK, 200, "hello"},
    {"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello", GB_HTTP_OK, 200, "hello"},
    {HEAD("200 OK", "2") "hello", GB_HTTP_OK, 200, "he"},
    {"", GB_HTTP_LOST, 0, NULL},
    {HEAD("200 OK", "9") "hello", GB_HTTP_LOST, 0, NULL},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", GB_HTTP_LOST, 0, NULL},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", GB_HTTP_LOST, 0, NULL},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello", GB_HTTP_LOST, 0, NULL},
    {"SSH-2.0-OpenSSH_9.2\r\n\r\n", GB_HTTP_NO_HTTP, 0, NULL},
    {"HTTP/1.1 20 OK\r\n\r\n", GB_HTTP_NO_HTTP, 0, NULL},
    {HEAD("200 OK", "-5") "hello", GB_HTTP_NO_HTTP, 0, NULL},
    {HEAD("200 OK", "17") "0123456789abcdefg", GB_HTTP_FAILED, 0, NULL},
};

START_TEST(reply) {
    struct gb_http_ask ask = served(replies[_i].answer);

    ck_assert_msg(ask.outcome == replies[_i].outcome, "%d: %s: %s", ask.outcome, ask.why, ask.said);
    ck_assert_int_eq(ask.status, replies[_i].status);
    ck_assert(ask.sent);
    ck_assert_int_eq(ask.connects, 1);
    ck_assert_uint_eq(fake.served, 1);
    ck_assert_uint_eq(ask.bytes, replies[_i].body ? strlen(replies[_i].body) : 0);
    if (replies[_i].body)
        ck_assert_str_eq(ask.answer, replies[_i].body);
    else
        ck_assert_ptr_null(ask.answer);
    ck_assert_int_eq(ask.why[0] == '\0', ask.outcome == GB_HTTP_OK);
    ck_assert_int_eq(ask.said[0] == '\0', ask.outcome == GB_HTTP_OK);
    ck_assert_int_eq(ask.too_long, ask.outcome == GB_HTTP_FAILED);
    free(ask.answer);
}
END_TEST

/* The body of a HEAD is not waited for. */
START_TEST(head) {
    static const char *const answers[] = {HEAD("200 OK", "5"), NULL};
    struct gb_http_ask ask;

    fake.keep = true;
    fake_start(&fake, answers);
    ask = ask_of(fake.url);
    ask.method = "HEAD";
    ck_assert_int_eq(gb_http_ask_perform(&ask), GB_HTTP_OK);
    ck_assert_int_eq(ask.status, 200);
    ck_assert_ptr_null(ask.answer);
    fake_stop(&fake);
    ck_assert_ptr_eq(strstr(fake.last, "HEAD / HTTP/1.1\r\n"), fake.last);
}
END_TEST

/* The time of the directory, which a hub reports, goes before that of the hub. */
START_TEST(dates) {
    static const char date[] = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    char answer[256];
    struct gb_http_ask ask;

    snprintf(answer, sizeof(answer), "HTTP/1.1 200 OK\r\n%sContent-Length: 0\r\n\r\n", date);
    ask = served(answer);
    ck_assert_int_eq(ask.date_s, 784111777);
    ck_assert(!ask.date_told);
    snprintf(answer, sizeof(answer),
             "HTTP/1.1 200 OK\r\nGpubuf-Directory-Time: 17\r\n%sGpubuf-Directory-Doubt: 4\r\nContent-Length: 0\r\n\r\n",
             date);
    ask = served(answer);
    ck_assert_int_eq(ask.date_s, 17);
    ck_assert(ask.date_told);
    ck_assert_uint_eq(ask.suspect_s, 4);
    ask = served("HTTP/1.1 200 OK\r\nDate: yesterday\r\nContent-Length: 0\r\n\r\n");
    ck_assert_int_eq(ask.date_s, 0);
}
END_TEST

/* --- requests ----------------------------------------------------------------------------------------------------- */

START_TEST(request_line) {
    static const char *const answers[] = {GOOD, NULL};
    static const char *const targets[][2] = {
        {"", "/"}, {"/a/../b?x=1", "/a/../b?x=1"}, {"?x=/", "/?x=/"}, {"/a#b", "/a"}, {"/a%20b?c#d?e", "/a%20b?c"}};
    char expected[128];
    char url[256];
    struct gb_http_ask ask;
    size_t i;

    fake_start(&fake, answers);
    for (i = 0; i < sizeof(targets) / sizeof(targets[0]); i++) {
        snprintf(url, sizeof(url), "%s%s", fake.url, targets[i][0]);
        ask = ask_of(url);
        ask.method = "PATCH";
        ask.agent = "test/1";
        ask.body = "{\"a\":1}";
        ask.body_bytes = 7;
        gb_http_ask_header(&ask, "Accept:");
        gb_http_ask_header(&ask, "X-One: 1");
        ck_assert_int_eq(gb_http_ask_perform(&ask), GB_HTTP_OK);
        free(ask.answer);
        snprintf(expected, sizeof(expected), "PATCH %s HTTP/1.1\r\n", targets[i][1]);
        ck_assert_msg(strstr(fake.last, expected) == fake.last, "%s", fake.last);
        ck_assert_ptr_nonnull(strstr(fake.last, "\r\nHost: 127.0.0.1:"));
        ck_assert_ptr_nonnull(strstr(fake.last, "\r\nUser-Agent: test/1\r\n"));
        ck_assert_ptr_nonnull(strstr(fake.last, "\r\nContent-Type: application/json\r\n"));
        ck_assert_ptr_nonnull(strstr(fake.last, "\r\nContent-Length: 7\r\n"));
        ck_assert_ptr_nonnull(strstr(fake.last, "\r\nX-One: 1\r\n"));
        ck_assert_ptr_null(strstr(fake.last, "\r\nAccept:"));
        ck_assert_ptr_null(strstr(fake.last, "\r\nExpect:"));
    }
    fake_stop(&fake);
}
END_TEST

struct moved {
    int fails_at; /* -1: never */
    size_t bytes;
};

static ssize_t give(void *arg, char *data, size_t room) {
    struct moved *moved = arg;
    size_t n = room < 1000 - moved->bytes ? room : 1000 - moved->bytes;

    if (moved->fails_at == (int)moved->bytes)
        return -1;
    memset(data, 'x', n);
    moved->bytes += n;
    return (ssize_t)n;
}

static bool take(void *arg, const char *data, size_t n) {
    struct moved *moved = arg;

    (void)data;
    moved->bytes += n;
    return moved->fails_at != (int)moved->bytes;
}

static bool refuse_line(void *arg, const char *line, size_t n) {
    (void)arg;
    return n != 2 || memcmp(line, "\r\n", 2) != 0;
}

/* Callbacks give and take the bodies, and each can end the request. */
START_TEST(callbacks) {
    static const char *const answers[] = {GOOD, NULL};
    struct moved moved = {.fails_at = -1};
    struct gb_http_ask ask;

    fake_start(&fake, answers);
    ask = ask_of(fake.url);
    ask.method = "PUT";
    ask.read = give;
    ask.read_bytes = 1000;
    ask.arg = &moved;
    ck_assert_int_eq(gb_http_ask_perform(&ask), GB_HTTP_OK);
    ck_assert_ptr_nonnull(strstr(fake.last, "\r\nContent-Length: 1000\r\n"));
    ck_assert_uint_eq(moved.bytes, 1000);
    free(ask.answer);
    moved = (struct moved){.fails_at = 0};
    ck_assert_int_eq(gb_http_ask_perform(&ask), GB_HTTP_STOPPED);
    ask = ask_of(fake.url);
    ask.write = take;
    ask.arg = &moved;
    moved = (struct moved){.fails_at = -1};
    ck_assert_int_eq(gb_http_ask_perform(&ask), GB_HTTP_OK);
    ck_assert_uint_eq(moved.bytes, 5);
    ck_assert_ptr_null(ask.answer);
    moved = (struct moved){.fails_at = 5};
    ck_assert_int_eq(gb_http_ask_perform(&ask), GB_HTTP_FAILED);
    ask = ask_of(fake.url);
    ask.header = refuse_line;
    ck_assert_int_eq(gb_http_ask_perform(&ask), GB_HTTP_FAILED);
    ck_assert_int_eq(ask.status, 0);
    fake_stop(&fake);
}
END_TEST

/* --- no connection ------------------------------------------------------------------------------------------------ */

/* A port that refuses connections while the socket stays bound. */
static int refusing(char url[64]) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&at, &n), 0);
    snprintf(url, 64, "http://127.0.0.1:%d/", (int)ntohs(at.sin_port));
    return fd;
}

START_TEST(unreachable) {
    static const struct {
        const char *url;
        enum gb_http_outcome outcome;
    } bad[] = {{"http://", GB_HTTP_BAD_URL},
               {"http://[::1/", GB_HTTP_BAD_URL},
               {"http://127.0.0.1:99999/", GB_HTTP_BAD_URL},
               {"ftp://127.0.0.1/", GB_HTTP_NO_HTTP},
               {"file:///etc/hostname", GB_HTTP_NO_HTTP}};
    struct gb_http_ask ask;
    char url[64];
    int fd = refusing(url);
    size_t i;

    ask = ask_of(url);
    ck_assert_int_eq(gb_http_ask_perform(&ask), GB_HTTP_UNREACHABLE);
    ck_assert_int_eq(ask.os_errno, ECONNREFUSED);
    ck_assert(!ask.sent);
    ck_assert_int_ne(ask.said[0], '\0');
    ask = ask_of("http://localhost/");
    ask.socket = "/nowhere/gpubufd.sock";
    ck_assert_int_eq(gb_http_ask_perform(&ask), GB_HTTP_UNREACHABLE);
    ck_assert(!ask.sent);
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ask = ask_of(bad[i].url);
        ck_assert_msg(gb_http_ask_perform(&ask) == bad[i].outcome, "%s: %d: %s", bad[i].url, ask.outcome, ask.said);
        ck_assert_int_eq(ask.status, 0);
    }
    close(fd);
}
END_TEST

static bool stop_now(void *arg) {
    return ++*(int *)arg > 1;
}

START_TEST(silence) {
    static const char *const answers[] = {HEAD("200 OK", "9") "hello", NULL};
    struct gb_http_ask ask;
    int polls = 0;

    fake.keep = true;
    fake_start(&fake, answers);
    ask = ask_of(fake.url);
    ask.total_ms = 100;
    ck_assert_int_eq(gb_http_ask_perform(&ask), GB_HTTP_TIMED_OUT);
    ck_assert(ask.sent);
    ck_assert_ptr_null(ask.answer);
    ask = ask_of(fake.url);
    ask.stop = stop_now;
    ask.arg = &polls;
    ck_assert_int_eq(gb_http_ask_perform(&ask), GB_HTTP_STOPPED);
    ck_assert_int_gt(polls, 1);
    fake_stop(&fake);
}
END_TEST

/* --- many at a time ----------------------------------------------------------------------------------------------- */

static unsigned ended;

static void count(struct gb_http_ask *ask) {
    (void)ask;
    ended++;
}

static void run_until(struct gb_http_client *client, unsigned n) {
    while (ended < n)
        ck_assert(gb_http_client_run(client, 1000));
}

START_TEST(together) {
    static const char *const answers[] = {GOOD, "", GOOD, NULL};
    struct gb_http_client *client = gb_http_client_new(NULL, false);
    struct gb_http_ask asks[3];
    char url[64];
    int fd = refusing(url);
    int i;

    ended = 0;
    fake_start(&fake, answers);
    for (i = 0; i < 3; i++) {
        asks[i] = ask_of(i == 2 ? url : fake.url);
        asks[i].done = count;
        ck_assert_int_eq(gb_http_client_start(client, &asks[i]), 0);
    }
    run_until(client, 3);
    ck_assert_int_eq(asks[0].outcome + asks[1].outcome, GB_HTTP_OK + GB_HTTP_LOST);
    ck_assert_int_eq(asks[2].outcome, GB_HTTP_UNREACHABLE);
    ck_assert_int_eq(gb_http_client_start(client, &asks[2]), 0);
    gb_http_client_cancel(&asks[2]);
    gb_http_client_cancel(&asks[2]);
    gb_http_client_wake(client);
    gb_http_client_pause(client, 5000);
    ck_assert(gb_http_client_run(client, 0));
    ck_assert_uint_eq(ended, 3);
    free(asks[0].answer);
    free(asks[1].answer);
    gb_http_client_free(client);
    fake_stop(&fake);
    close(fd);
}
END_TEST

/* A connection carries several requests, and its end is counted. */
START_TEST(kept) {
    static const char *const answers[] = {GOOD, GOOD, GOOD, NULL};
    struct gb_http_client *client = gb_http_client_new(NULL, false);
    struct gb_http_ask ask;
    int i;

    ended = 0;
    fake.each = 2;
    fake_start(&fake, answers);
    for (i = 0; i < 3; i++) {
        ask = ask_of(fake.url);
        ask.watched = true;
        ask.done = count;
        ck_assert_int_eq(gb_http_client_start(client, &ask), 0);
        run_until(client, (unsigned)i + 1);
        ck_assert_int_eq(ask.status, 200);
        ck_assert_int_eq(ask.connects, i == 1 ? 0 : 1);
        free(ask.answer);
        ck_assert(i > 0 || gb_http_client_breaks(client) == 0);
        while (i == 1 && gb_http_client_breaks(client) == 0)
            ck_assert(gb_http_client_run(client, 1000));
    }
    gb_http_client_free(client);
    fake_stop(&fake);
    ck_assert_uint_eq(fake.served, 4); /* the last connection had one of two */
}
END_TEST

/* --- a connection alone ------------------------------------------------------------------------------------------- */

START_TEST(connect_only) {
    static const char *const answers[] = {GOOD, NULL};
    static const char request[] = "GET /x HTTP/1.1\r\n\r\n";
    struct gb_http_ask ask;
    char text[128];
    size_t have = 0;
    ssize_t n;

    fake_start(&fake, answers);
    ask = ask_of(fake.url);
    ask.connect_only = true;
    ck_assert_int_eq(gb_http_ask_perform(&ask), GB_HTTP_OK);
    ck_assert_int_ge(ask.fd, 0);
    ck_assert_int_eq(gb_http_ask_send(&ask, request, strlen(request)), (ssize_t)strlen(request));
    while ((n = gb_http_ask_recv(&ask, text + have, sizeof(text) - have)) >= 0)
        have += (size_t)n;
    ck_assert_int_ne(ask.why[0], '\0');
    ck_assert_uint_eq(have, strlen(GOOD));
    ck_assert_int_eq(memcmp(text, GOOD, have), 0);
    gb_http_ask_close(&ask);
    gb_http_ask_close(&ask);
    ck_assert_int_eq(ask.fd, -1);
    fake_stop(&fake);
    ck_assert_str_eq(fake.last, request);
}
END_TEST

/* --- TLS ---------------------------------------------------------------------------------------------------------- */

/* A server with a certificate, for one connection. */
struct tls_server {
    struct gb_tls_files files;
    int fd;
    char url[64];
    pthread_t thread;
};

static void *serve_tls(void *arg) {
    struct tls_server *server = arg;
    gnutls_certificate_credentials_t credentials;
    gnutls_session_t session;
    char cert[GB_TLS_PATH];
    char key[GB_TLS_PATH];
    char request[4096];
    int fd = accept(server->fd, NULL, NULL);

    gnutls_certificate_allocate_credentials(&credentials);
    gnutls_certificate_set_x509_key_file(credentials, gb_tls_path(&server->files, "server.pem", cert),
                                         gb_tls_path(&server->files, "server.key", key), GNUTLS_X509_FMT_PEM);
    gnutls_init(&session, GNUTLS_SERVER);
    gnutls_set_default_priority(session);
    gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, credentials);
    gnutls_transport_set_int(session, fd);
    if (gnutls_handshake(session) == 0 && gnutls_record_recv(session, request, sizeof(request)) > 0) {
        gnutls_record_send(session, GOOD, strlen(GOOD));
        gnutls_bye(session, GNUTLS_SHUT_WR);
    }
    close(fd);
    gnutls_deinit(session);
    gnutls_certificate_free_credentials(credentials);
    return NULL;
}

static void start_tls(struct tls_server *server, const struct gb_tls_wish *wish) {
    char url[64];

    server->fd = refusing(url);
    snprintf(server->url, sizeof(server->url), "https://localhost%.20s", strrchr(url, ':'));
    ck_assert_int_eq(listen(server->fd, 1), 0);
    gb_tls_files_init(&server->files);
    gb_tls_issue(&server->files, "server", wish, &server->files.root, NULL);
    ck_assert_int_eq(pthread_create(&server->thread, NULL, serve_tls, server), 0);
}

static const struct {
    struct gb_tls_wish wish;
    const char *ca; /* a file; NULL: the authorities of the system */
    bool in_memory; /* its text is given, and the folder */
    enum gb_http_outcome outcome;
} trusts[] = {
    {{.dn = "CN=s", .dns = "localhost", .from_days = -1, .to_days = 1}, "root.pem", false, GB_HTTP_OK},
    {{.dn = "CN=s", .dns = "localhost", .from_days = -1, .to_days = 1}, "root.pem", true, GB_HTTP_OK},
    {{.dn = "CN=s", .dns = "localhost", .from_days = -1, .to_days = 1}, NULL, false, GB_HTTP_TLS},
    {{.dn = "CN=s", .dns = "localhost", .from_days = -1, .to_days = 1}, "other.pem", false, GB_HTTP_TLS},
    {{.dn = "CN=localhost", .dns = "other.test", .from_days = -1, .to_days = 1}, "root.pem", false, GB_HTTP_TLS},
    {{.dn = "CN=s", .dns = "localhost", .from_days = -3, .to_days = -1}, "root.pem", false, GB_HTTP_TLS},
};

START_TEST(trust) {
    static const struct gb_tls_wish other = {.dn = "CN=another authority", .from_days = -1, .to_days = 1};
    static struct tls_server server;
    struct gb_http_tls tls = {.ca_alone = true};
    struct gb_http_client *client;
    struct gb_http_ask ask;
    char path[GB_TLS_PATH];
    char text[8192];
    FILE *file;

    start_tls(&server, &trusts[_i].wish);
    gb_tls_issue(&server.files, "other", &other, NULL, NULL);
    tls.ca = trusts[_i].ca ? gb_tls_path(&server.files, trusts[_i].ca, path) : NULL;
    if (trusts[_i].in_memory) {
        file = fopen(path, "r");
        tls.ca_text = text;
        tls.ca_bytes = fread(text, 1, sizeof(text), file);
        tls.ca = server.files.folder;
        fclose(file);
    }
    client = gb_http_client_new(&tls, true);
    ask = ask_of(server.url);
    ask.done = count;
    ended = 0;
    ck_assert_int_eq(gb_http_client_start(client, &ask), 0);
    run_until(client, 1);
    ck_assert_msg(ask.outcome == trusts[_i].outcome, "%d: %s", ask.outcome, ask.said);
    ck_assert_int_eq(ask.status, ask.outcome == GB_HTTP_OK ? 200 : 0);
    free(ask.answer);
    gb_http_client_free(client);
    pthread_join(server.thread, NULL);
    close(server.fd);
    gb_tls_files_done(&server.files);
}
END_TEST

/* What listens speaks no TLS, and files of certificates may be missing. */
START_TEST(no_tls) {
    static const char *const answers[] = {GOOD, NULL};
    struct gb_http_tls tls = {.ca = "/nowhere/root.pem"};
    struct gb_http_ask ask;
    char url[160];

    fake_start(&fake, answers);
    snprintf(url, sizeof(url), "https%.128s", strchr(fake.url, ':'));
    ask = ask_of(url);
    ck_assert_msg(gb_http_ask_perform(&ask) == GB_HTTP_TLS, "%d: %s", ask.outcome, ask.said);
    ck_assert_int_eq(ask.status, 0);
    ask.tls = &tls;
    ck_assert_msg(gb_http_ask_perform(&ask) == GB_HTTP_TLS, "%d: %s", ask.outcome, ask.said);
    fake_stop(&fake);
    ck_assert_ptr_null(strstr(fake.last, "HTTP/1.1"));
}
END_TEST

/* --- a lack of memory --------------------------------------------------------------------------------------------- */

#ifdef GB_OWN_MALLOC
#define ALLOCATIONS 2000 /* more than a request makes */

static const char sent[] = "POST /v1/x?y=1 HTTP/1.1\r\n";

/* A request that lacks a part never leaves. */
static void check_sent(const struct gb_http_ask *ask, int i) {
    if (fake.last[0] == '\0')
        return;
    ck_assert_msg(strstr(fake.last, sent) == fake.last, "allocation %d: %s", i, fake.last);
    ck_assert_msg(strstr(fake.last, "\r\nX-One: 1\r\n") && strstr(fake.last, "\r\nUser-Agent: test/1\r\n") &&
                      strstr(fake.last, "\r\nContent-Type: application/json\r\n") &&
                      strstr(fake.last, "\r\nContent-Length: 2\r\n"),
                  "allocation %d: %s", i, fake.last);
    ck_assert(ask->sent);
}

/* _i: by itself, or by a client. */
START_TEST(every_allocation) {
    static const char *const answers[] = {GOOD, NULL};
    struct gb_http_client *client;
    struct gb_http_ask ask;
    unsigned failures = 0;
    char url[160];
    int i;

    fake_start(&fake, answers);
    snprintf(url, sizeof(url), "%s/v1/x?y=1", fake.url);
    for (i = 0; i < ALLOCATIONS; i++) {
        bool failed;

        fake.last[0] = '\0';
        ended = 0;
        ask = ask_of(url);
        ask.method = "POST";
        ask.agent = "test/1";
        ask.body = "{}";
        ask.body_bytes = 2;
        ask.done = count;
        gb_allocations_here = i;
        gb_http_ask_header(&ask, "X-One: 1");
        client = _i == 1 ? gb_http_client_new(NULL, true) : NULL;
        if (_i == 0)
            gb_http_ask_perform(&ask);
        else if (client && gb_http_client_start(client, &ask) == 0)
            while (ended == 0 && gb_http_client_run(client, 1000))
                continue;
        failed = gb_allocations_here < 0;
        gb_allocations_here = -1;
        if (client)
            gb_http_client_cancel(&ask);
        gb_http_client_free(client);
        if (ask.status == 200 && ask.bytes == 5) {
            ck_assert_str_eq(ask.answer, "hello");
        } else {
            ck_assert_msg(failed, "%d: %s", ask.outcome, ask.said);
            ck_assert_ptr_null(ask.answer);
            failures++;
        }
        check_sent(&ask, i);
        free(ask.answer);
        if (!failed)
            break;
    }
    ck_assert_int_lt(i, ALLOCATIONS);
    ck_assert_uint_gt(failures, 10);
    fake_stop(&fake);
}
END_TEST
#endif

/* --- URLs --------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *text;
    const char *origin; /* NULL: malformed */
    const char *path;
    bool user;
    bool more;
} urls[] = {
    {"http://Example.COM", "http://example.com:80", "/", false, false},
    {"https://example.com/a/../b", "https://example.com:443", "/a/../b", false, false},
    {"http://127.0.0.1:8080/?x", "http://127.0.0.1:8080", "/", false, true},
    {"http://h/a#b", "http://h:80", "/a", false, true},
    {"http://u:p@h/", "http://h:80", "/", true, false},
    {"http://u@h/", "http://h:80", "/", true, false},
    {"http://[::1]:5/x", "http://[::1]:5", "/x", false, false},
    {"ftp://h/x", "", "/x", false, false},
    {"http://", NULL, NULL, false, false},
    {"example.com/x", NULL, NULL, false, false},
    {"http://h:99999/", NULL, NULL, false, false},
};

START_TEST(url_parts) {
    struct gb_http_url url;
    int r = gb_http_url_read(urls[_i].text, &url);

    ck_assert_int_eq(r, urls[_i].origin ? 0 : -1);
    if (r == 0) {
        ck_assert_str_eq(url.origin, urls[_i].origin);
        ck_assert_str_eq(url.path, urls[_i].path);
        ck_assert_int_eq(url.user, urls[_i].user);
        ck_assert_int_eq(url.more, urls[_i].more);
    }
    free(url.path);
}
END_TEST

START_TEST(long_origin) {
    struct gb_http_url url;
    char text[512] = "http://";

    memset(text + strlen(text), 'a', 300);
    ck_assert_int_eq(gb_http_url_read(text, &url), 0);
    ck_assert_str_eq(url.origin, "");
    free(url.path);
}
END_TEST

#define COUNT(array) (int)(sizeof(array) / sizeof((array)[0]))

static void add(Suite *suite, const char *name, const TTest *test, int times) {
    TCase *cases = tcase_create(name);

    tcase_add_checked_fixture(cases, setup, gb_http_end);
    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, test, 0, times);
    suite_add_tcase(suite, cases);
}

int main(void) {
    Suite *suite = suite_create("curl");

    add(suite, "reply", reply, COUNT(replies));
    add(suite, "head", head, 1);
    add(suite, "dates", dates, 1);
    add(suite, "request_line", request_line, 1);
    add(suite, "callbacks", callbacks, 1);
    add(suite, "unreachable", unreachable, 1);
    add(suite, "silence", silence, 1);
    add(suite, "together", together, 1);
    add(suite, "kept", kept, 1);
    add(suite, "connect_only", connect_only, 1);
    add(suite, "trust", trust, COUNT(trusts));
    add(suite, "no_tls", no_tls, 1);
#ifdef GB_OWN_MALLOC
    add(suite, "every_allocation", every_allocation, 2);
#endif
    add(suite, "url_parts", url_parts, COUNT(urls));
    add(suite, "long_origin", long_origin, 1);
    return gb_test_run(suite);
}
