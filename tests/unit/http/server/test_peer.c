/* Connections of UNIX sockets: the process at the other end, descriptors for it, and its end as an event wherever the
 * connection is. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gb_test.h"
#include "http_peer.h"

#define TAKE(what) "POST /fd?" what " HTTP/1.1\r\nHost: h\r\n\r\n"
#define LONG_BYTES 8000001

static struct gb_http_peers p;

START_TEST(descriptors_come_with_103) {
    unsigned before;
    int fd;
    int i;

    gb_http_peers_start(&p);
    fd = gb_local_client(&p);
    gb_local_take(fd, TAKE("one"), 1);
    before = gb_open_files();
    for (i = 0; i < 20; i++) {
        gb_local_take(fd, TAKE("one"), 1);
        gb_local_take(fd, TAKE("four"), 4);
        gb_local_take(fd, "POST /fd?later HTTP/1.1\r\nHost: h\r\n\r\n", 1);
    }
    ck_assert_uint_eq(gb_open_files(), before);
    close(fd);
    gb_await(&p, &p.gone, 1);
    gb_await(&p, &p.freed, 1);
    gb_http_peers_stop(&p);
}
END_TEST

/* A plain client takes no descriptors: the kernel closes them, and 103 is no answer. */
START_TEST(descriptors_that_nobody_takes) {
    char body[64];
    unsigned before;
    int fd;
    int i;

    gb_http_peers_start(&p);
    fd = gb_local_client(&p);
    gb_local_take(fd, TAKE("one"), 1);
    before = gb_open_files();
    for (i = 0; i < 20; i++) {
        gb_client_text(fd, TAKE("four"));
        ck_assert_int_eq(gb_client_reply(fd, NULL, 0, NULL, NULL), 103);
        ck_assert_int_eq(gb_client_reply(fd, body, sizeof(body), NULL, NULL), 200);
    }
    gb_client_text(fd, TAKE("five"));
    ck_assert_int_eq(gb_client_reply(fd, NULL, 0, NULL, NULL), 500);
    gb_client_text(fd, TAKE("fail"));
    ck_assert_int_eq(gb_client_reply(fd, NULL, 0, NULL, NULL), 507);
    ck_assert_uint_eq(gb_open_files(), before);
    close(fd);
    gb_await(&p, &p.gone, 1);
    gb_http_peers_stop(&p);
}
END_TEST

/* HTTP/1.0 has no interim responses. */
START_TEST(an_old_client_has_no_peer) {
    int fd;

    gb_http_peers_start(&p);
    fd = gb_local_client(&p);
    gb_client_text(fd, "POST /fd?one HTTP/1.0\r\n\r\n");
    ck_assert_int_eq(gb_client_reply(fd, NULL, 0, NULL, NULL), 403);
    close(fd);
    gb_http_peers_stop(&p);
    ck_assert_uint_eq(p.gone, 0);
}
END_TEST

/* The connection ends at each of these places. Its end is reported once, and at once: a sweep comes later than after a
 * second. */
START_TEST(the_end_is_seen_everywhere) {
    static const char *const where[] = {
        "",                                                                          /* idle in libmicrohttpd */
        "GET /wait?never HTTP/1.1\r\nHost: h\r\n\r\n",                               /* suspended there */
        "GET /park HTTP/1.1\r\nHost: h\r\n\r\n",                                     /* the same */
        "PUT /drop HTTP/1.1\r\nHost: h\r\nContent-Length: 9000000\r\n\r\nabc",       /* a body on a transfer loop */
        "PUT /blocked HTTP/1.1\r\nHost: h\r\nContent-Length: 9000000\r\n\r\nabcdef", /* a body without room */
        "GET /b/x HTTP/1.1\r\nHost: h\r\n\r\n",                                      /* an answer that is not read */
        "GET /slow/x?never HTTP/1.1\r\nHost: h\r\n\r\n",                             /* an answer that does not come */
        "GET /b/x",                                                                  /* a part of a header */
    };
    unsigned n = 0;
    size_t i;
    int round;

    gb_http_peers_start(&p);
    atomic_store(&p.f.stored, LONG_BYTES);
    for (round = 0; round < 3; round++) {
        for (i = 0; i < sizeof(where) / sizeof(where[0]); i++) {
            int fd = gb_local_client(&p);

            gb_local_take(fd, TAKE("one"), 1);
            gb_client_text(fd, where[i]);
            close(fd);
            n++;
            gb_await(&p, &p.gone, n);
        }
    }
    gb_http_peers_stop(&p);
    ck_assert_uint_eq(p.gone, n);
}
END_TEST

START_TEST(a_held_connection_outlives_long_answers_and_silence) {
    char *body = malloc(LONG_BYTES + 1);
    bool closes;
    size_t len;
    int fd;
    int i;

    gb_http_peers_start(&p);
    for (i = 0; i < LONG_BYTES; i++)
        p.f.memory[i] = (char)(i * 2654435761u >> 13);
    atomic_store(&p.f.stored, LONG_BYTES);
    fd = gb_local_client(&p);
    gb_local_take(fd, TAKE("one"), 1);
    for (i = 0; i < 3; i++) {
        /* The last two come at once. */
        gb_client_text(fd, i < 2 ? "GET /b/x HTTP/1.1\r\nHost: h\r\n\r\n"
                                 : "GET /b/x HTTP/1.1\r\nHost: h\r\n\r\n" TAKE("one"));
        ck_assert_int_eq(gb_client_reply(fd, body, LONG_BYTES, &len, &closes), 200);
        ck_assert_uint_eq(len, LONG_BYTES);
        ck_assert(!closes);
        ck_assert_int_eq(memcmp(body, p.f.memory, len), 0);
    }
    ck_assert_int_eq(gb_client_reply(fd, NULL, 0, NULL, NULL), 103);
    ck_assert_int_eq(gb_client_reply(fd, NULL, 0, NULL, NULL), 200);
    gb_client_text(fd, "GET /slow/x HTTP/1.1\r\nHost: h\r\n\r\n");
    ck_assert_int_eq(gb_client_reply(fd, body, LONG_BYTES, &len, &closes), 200);
    ck_assert_int_eq(memcmp(body, p.f.memory, len), 0);
    gb_client_text(fd, "PUT /b/x HTTP/1.1\r\nHost: h\r\nContent-Length: 6000000\r\n\r\n");
    gb_client_send(fd, body, 6000000);
    ck_assert_int_eq(gb_client_reply(fd, NULL, 0, NULL, &closes), 200);
    ck_assert(!closes);
    usleep(2500000); /* longer than the time for which an idle connection may be quiet */
    gb_local_take(fd, TAKE("one"), 1);
    ck_assert_uint_eq(p.gone, 0);
    free(body);
    close(fd);
    gb_await(&p, &p.gone, 1);
    gb_http_peers_stop(&p);
}
END_TEST

/* The bytes of a long answer do not come: the answer is broken off after the longest wait. */
START_TEST(a_source_that_gives_nothing) {
    int fd;

    gb_http_peers_start(&p);
    atomic_store(&p.f.stored, LONG_BYTES);
    fd = gb_local_client(&p);
    gb_local_take(fd, TAKE("one"), 1);
    gb_client_text(fd, "GET /slow/x?never HTTP/1.1\r\nHost: h\r\n\r\n");
    ck_assert_int_eq(gb_client_reply(fd, NULL, 0, NULL, NULL), 200);
    gb_await(&p, &p.gone, 1);
    ck_assert(gb_client_at_end(fd));
    close(fd);
    gb_http_peers_stop(&p);
}
END_TEST

/* The socket takes nothing more: the daemon does not wait, and the connection has ended. The number of replies sent
 * decides whether it is full before an interim response or before a final one, for which libmicrohttpd waits; so
 * several numbers are tried. */
START_TEST(a_client_that_reads_nothing) {
    int fds[4];
    int i;
    int k;

    gb_http_peers_start(&p);
    for (i = 0; i < 4; i++) {
        unsigned sent = 0;

        fds[i] = gb_local_client(&p);
        gb_local_take(fds[i], TAKE("one"), 1);
        for (k = 0; k < i; k++)
            gb_client_text(fds[i], "GET /canned HTTP/1.1\r\nHost: h\r\n\r\n");
        while (sent < 200000 && send(fds[i], TAKE("one"), sizeof(TAKE("one")) - 1, MSG_NOSIGNAL) > 0)
            sent++;
    }
    gb_await(&p, &p.gone, 1);
    for (i = 0; i < 4; i++)
        close(fds[i]);
    gb_await(&p, &p.gone, 4);
    gb_http_peers_stop(&p);
    ck_assert_uint_eq(p.freed, 4);
}
END_TEST

/* The server ends while connections are held. */
START_TEST(the_server_ends_first) {
    int fds[20];
    int i;

    gb_http_peers_start(&p);
    atomic_store(&p.f.stored, LONG_BYTES);
    for (i = 0; i < 20; i++) {
        fds[i] = gb_local_client(&p);
        gb_local_take(fds[i], TAKE("one"), 1);
        if (i % 4 == 1)
            gb_client_text(fds[i], "PUT /drop HTTP/1.1\r\nHost: h\r\nContent-Length: 9000000\r\n\r\nabc");
        if (i % 4 == 2)
            gb_client_text(fds[i], "GET /park HTTP/1.1\r\nHost: h\r\n\r\n");
        if (i % 4 == 3)
            gb_client_text(fds[i], "GET /b/x HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    gb_http_peers_stop(&p);
    ck_assert_uint_eq(p.gone, 20);
    ck_assert_uint_eq(p.freed, 20);
    for (i = 0; i < 20; i++)
        close(fds[i]);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("http peers");

    gb_test_add(suite, "descriptors", descriptors_come_with_103, 60);
    gb_test_add(suite, "not taken", descriptors_that_nobody_takes, 60);
    gb_test_add(suite, "old client", an_old_client_has_no_peer, 60);
    gb_test_add(suite, "ends", the_end_is_seen_everywhere, 60);
    gb_test_add(suite, "stays", a_held_connection_outlives_long_answers_and_silence, 60);
    gb_test_add(suite, "gives nothing", a_source_that_gives_nothing, 60);
    gb_test_add(suite, "reads nothing", a_client_that_reads_nothing, 60);
    gb_test_add(suite, "server ends", the_server_ends_first, 60);
    return gb_test_run(suite);
}
