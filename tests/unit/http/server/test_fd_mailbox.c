/* Descriptors from clients: which are taken and which are refused; none stays open, and the closer alone closes
 * them. */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/process.h"
#include "gb_test.h"
#include "http_peer.h"

#define ASK "POST /take HTTP/1.1\r\nHost: h\r\n\r\n"
#define HOLD "POST /fd?one HTTP/1.1\r\nHost: h\r\n\r\n"
#define LOOKS 6000 /* of 10 ms each */

static struct gb_http_peers p;
static struct gb_closer *closer;

/* --- the application ---------------------------------------------------------------------------------------------- */

/* The server's state is not freed before the request. */
static void mailbox_free(void *state) {
    gb_http_fd_mailbox_free(state);
}

/* Answers with the first bytes of the file that it was given. */
static enum gb_step taken(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    char *text = calloc(1, 6);
    int fd = -1;
    int r = gb_http_fd_mailbox_take(request->state, &fd, err);

    if (r == 0 && request->timed_out)
        r = gb_error_set(err, GB_ERR_REQUEST_TIMEOUT, "nothing came");
    if (r <= 0) {
        free(text);
        return r == 0 ? GB_STEP_WAIT : GB_STEP_ERROR;
    }
    ck_assert_int_eq(pread(fd, text, 5, 0), 5);
    gb_closer_put(closer, fd);
    gb_http_response_take(response, text, 5);
    return GB_STEP_REPLY;
}

static enum gb_step on_take(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct gb_http_fd_mailbox *fd_mailbox;

    (void)response;
    if (!request->peer->app)
        ck_assert_int_eq(gb_http_peer_hold(request, request->app, err), 0);
    if (gb_http_fd_mailbox_open(request, &fd_mailbox, err) < 0)
        return GB_STEP_ERROR;
    request->state = fd_mailbox;
    request->state_free = mailbox_free;
    request->resume = taken;
    if (gb_http_query(request, "soon"))
        request->deadline_ns = gb_clock_ns();
    return GB_STEP_WAIT;
}

static const struct gb_http_route more[] = {{GB_HTTP_POST, "/take", on_take, GB_BODY_NONE, 0, "soon"}};

static void setup(size_t room) {
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(gb_closer_new(room, &closer, &err), err);
    p.closer = closer;
    p.more = more;
    p.more_count = 1;
    gb_http_peers_start(&p);
}

static void teardown(void) {
    gb_http_peers_stop(&p);
    gb_closer_free(closer);
}

/* The closer has its own thread. */
static void until_files(unsigned n) {
    int i;

    for (i = 0; gb_open_files() > n; i++) {
        ck_assert_int_lt(i, LOOKS);
        usleep(10000);
    }
    ck_assert_uint_eq(gb_open_files(), n);
}

/* --- the client --------------------------------------------------------------------------------------------------- */

/* Sends `count` descriptors of one file in one message. */
static bool hand_over(int box, int fd, unsigned count, size_t bytes) {
    union {
        char space[CMSG_SPACE(253 * sizeof(int))];
        struct cmsghdr align;
    } control;
    char text[] = "xyz";
    struct iovec part = {.iov_base = text, .iov_len = bytes};
    struct msghdr msg = {.msg_iov = &part, .msg_iovlen = 1};
    unsigned i;

    memset(&control, 0, sizeof(control));
    if (count > 0) {
        struct cmsghdr *c = &control.align;

        msg.msg_control = control.space;
        msg.msg_controllen = CMSG_SPACE(count * sizeof(int));
        *c = (struct cmsghdr){
            .cmsg_len = CMSG_LEN(count * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        for (i = 0; i < count; i++)
            memcpy(CMSG_DATA(c) + i * sizeof(int), &fd, sizeof(int));
    }
    return sendmsg(box, &msg, MSG_NOSIGNAL) == (ssize_t)bytes;
}

static int file(void) {
    int fd = memfd_create("gb-test", MFD_CLOEXEC);

    ck_assert_int_eq(write(fd, "bytes", 5), 5);
    return fd;
}

static int ask(int conn, const char *request) {
    int box = -1;

    gb_client_text(conn, request);
    ck_assert_uint_eq(gb_local_fds(conn, &box, 1), 1);
    return box;
}

START_TEST(one_is_taken) {
    char body[64];
    unsigned before;
    size_t n;
    int conn;
    int fd;
    int i;

    setup(65536);
    fd = file();
    conn = gb_local_client(&p);
    gb_local_take(conn, HOLD, 1);
    before = gb_open_files();
    for (i = 0; i < 40; i++) {
        int box = ask(conn, ASK);

        ck_assert(hand_over(box, fd, 1, i % 2)); /* a byte, or none */
        if (i % 3 == 0)
            (void)hand_over(box, fd, 1, 1); /* a second message: it is not taken, or comes too late */
        if (i % 4 == 0)
            close(box);
        ck_assert_int_eq(gb_client_reply(conn, body, sizeof(body), &n, NULL), 200);
        ck_assert_int_eq(memcmp(body, "bytes", 5), 0);
        if (i % 4 != 0)
            close(box);
    }
    until_files(before);
    close(fd);
    close(conn);
    gb_await(&p, &p.gone, 1);
    teardown();
}
END_TEST

/* No descriptor, too many, as many as there can be, no message at all, and a closed mailbox. */
START_TEST(something_else_comes) {
    static const int counts[] = {0, 2, 253, -1, -2};
    unsigned before;
    int conn;
    int fd;
    int i;

    setup(65536);
    fd = file();
    conn = gb_local_client(&p);
    gb_local_take(conn, HOLD, 1);
    before = gb_open_files();
    for (i = 0; i < 20; i++) {
        int count = counts[i % 5];
        int box = ask(conn, count == -2 ? "POST /take?soon HTTP/1.1\r\nHost: h\r\n\r\n" : ASK);

        if (count >= 0)
            ck_assert(hand_over(box, fd, (unsigned)count, 3));
        if (count == -1)
            close(box);
        ck_assert_int_eq(gb_client_reply(conn, NULL, 0, NULL, NULL), count == -2 ? 408 : 422);
        if (count != -1)
            close(box);
    }
    until_files(before);
    close(fd);
    close(conn);
    gb_await(&p, &p.gone, 1);
    teardown();
}
END_TEST

/* The client ends, with the mailbox or without it; the server ends. */
START_TEST(somebody_goes) {
    unsigned before = gb_open_files();
    int kept[4];
    int boxes[4];
    int i;

    setup(65536);
    for (i = 0; i < 12; i++) {
        int conn = gb_local_client(&p);
        int box = ask(conn, ASK);

        if (i % 3 == 0)
            close(conn);
        close(box);
        if (i % 3 != 0)
            close(conn);
    }
    gb_await(&p, &p.gone, 12);
    for (i = 0; i < 4; i++) {
        kept[i] = gb_local_client(&p);
        boxes[i] = ask(kept[i], ASK);
    }
    teardown();
    for (i = 0; i < 4; i++) {
        close(kept[i]);
        close(boxes[i]);
    }
    until_files(before);
}
END_TEST

/* A close that takes long, of a lingering socket with unsent bytes, holds up no other request. When there is no room,
 * clients are refused. */
START_TEST(a_close_that_takes_long) {
    struct linger patience = {.l_onoff = 1, .l_linger = 600};
    char body[64];
    char *much = calloc(1, 1 << 22);
    int pair[2];
    int conn;
    int box;
    int fd;
    int i;

    setup(3 * 254 + 2);
    fd = file();
    gb_lingering(pair);
    ck_assert_int_eq(setsockopt(pair[0], SOL_SOCKET, SO_LINGER, &patience, sizeof(patience)), 0);
    ck_assert_int_gt(send(pair[0], much, 1 << 22, MSG_DONTWAIT | MSG_NOSIGNAL), 0);
    ck_assert(gb_closer_reserve(closer, 1));
    gb_closer_put(closer, pair[0]); /* as a mailbox would: it is the only descriptor, so that this close waits */
    conn = gb_local_client(&p);
    for (i = 0; i < 400; i++) { /* queued behind it */
        gb_client_text(conn, ASK);
        if (gb_local_fds(conn, &box, 1) == 0)
            break;
        ck_assert(hand_over(box, fd, 1, 1));
        ck_assert_int_eq(gb_client_reply(conn, body, sizeof(body), NULL, NULL), 200);
        close(box);
    }
    ck_assert_int_gt(i, 100);
    ck_assert_int_lt(i, 300);
    ck_assert_int_eq(gb_client_reply(conn, NULL, 0, NULL, NULL), 503);
    close(pair[1]); /* now the close ends at once */
    do {
        gb_client_text(conn, ASK);
        i = (int)gb_local_fds(conn, &box, 1);
        if (i > 0)
            ck_assert(hand_over(box, fd, 1, 1));
        ck_assert_int_eq(gb_client_reply(conn, body, sizeof(body), NULL, NULL), i > 0 ? 200 : 503);
        if (i > 0)
            close(box);
        else
            usleep(10000);
    } while (i == 0);
    close(fd);
    close(conn);
    free(much);
    gb_await(&p, &p.gone, 1);
    teardown();
}
END_TEST

/* --- the closer alone --------------------------------------------------------------------------------------------- */

START_TEST(the_closer_closes) {
    struct gb_error err = GB_ERROR_INIT;
    unsigned before = gb_open_files();
    struct gb_closer *c;
    int pair[2];
    char byte;
    int i;

    gb_assert_ok(gb_closer_new(3, &c, &err), err);
    ck_assert(!gb_closer_reserve(c, 4) && gb_closer_reserve(c, 3) && !gb_closer_reserve(c, 1));
    gb_closer_give_back(c, 2);
    gb_closer_give_back(c, 1);
    for (i = 0; i < 1000; i++) {
        ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        while (!gb_closer_reserve(c, 1))
            usleep(1000);
        gb_closer_put(c, pair[0]);
        ck_assert_int_eq(read(pair[1], &byte, 1), 0); /* closed */
        close(pair[1]);
    }
    ck_assert(gb_closer_reserve(c, 1));
    gb_closer_put(c, file());
    gb_closer_free(c); /* closes the rest first */
    ck_assert_uint_eq(gb_open_files(), before);
    gb_closer_free(NULL);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("http mailbox");

    gb_test_add(suite, "taken", one_is_taken, 120);
    gb_test_add(suite, "something else", something_else_comes, 120);
    gb_test_add(suite, "goes", somebody_goes, 120);
    gb_test_add(suite, "takes long", a_close_that_takes_long, 120);
    gb_test_add(suite, "closer", the_closer_closes, 120);
    return gb_test_run(suite);
}
