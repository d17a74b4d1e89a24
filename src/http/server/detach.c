/* Takes a connection out of libmicrohttpd, for a transfer loop or the feed, with the bytes that were read behind the
 * head. libmicrohttpd is left with a dead socket, and forgets the connection. request.c, connection.c and the event
 * loop call this, on the loop's thread. */
#include "http/server/detach.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http/message/response.h"
#include "http/server/exchange.h"
#include "http/server/feed.h"
#include "http/server/tls_front.h"

/* --- leave -------------------------------------------------------------------------------------------------------- */

/* Suspending takes the descriptor out of libmicrohttpd's epoll set. Then the number is made to stand for a dead socket.
 * After a resume libmicrohttpd finds the end of the connection there, and forgets it. The live socket continues under
 * another number. */

uint64_t gb_socket_taken(int fd) {
    struct tcp_info info;
    socklen_t len = sizeof(info);
    int unread = 0;

    memset(&info, 0, sizeof(info));
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0 || ioctl(fd, SIOCINQ, &unread) < 0)
        return 0;
    if (len < offsetof(struct tcp_info, tcpi_bytes_received) + sizeof(info.tcpi_bytes_received))
        return 0;
    return info.tcpi_bytes_received - (uint64_t)unread;
}

uint64_t gb_mhd_held(const struct gb_exchange *ex) {
    const union MHD_ConnectionInfo *header = MHD_get_connection_info(ex->conn, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    const struct gb_conn *c = ex->info;
    uint64_t taken;

    if (!header || c->local || (c->secure && !c->front))
        return UINT64_MAX;
    taken = c->front ? gb_front_taken(c) : gb_socket_taken(c->fd);
    return taken - c->base - c->consumed - header->header_size - ex->body_received;
}

/* The parts of gb_detach_to_transfer. The facts about the socket, for its way back; fd is -1. */
static struct gb_handoff describe(const struct gb_exchange *ex) {
    const union MHD_ConnectionInfo *header = MHD_get_connection_info(ex->conn, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    const struct gb_conn *c = ex->info;

    return (struct gb_handoff){.fd = -1,
                               .local = c->local,
                               .peer = c->peer,
                               .source = c->source,
                               .from = c->from,
                               .listener = c->listener,
                               .returning = c->returning,
                               .counted = header && !c->local && !ex->req.chunked,
                               .taken = c->base + c->consumed + (header ? header->header_size : 0)};
}

/* A duplicate of the socket, or -1. */
static int duplicate(const struct gb_exchange *ex) {
    return fcntl(ex->info->fd, F_DUPFD_CLOEXEC, 0);
}

/* Parts the exchange from its connection, which has no request, peer or source any more. */
static void part(struct gb_conn *c, struct gb_exchange *ex) {
    c->left = true;
    c->peer = NULL;
    c->source = NULL;
    c->ex = NULL;
    ex->head_at = NULL;
    ex->conn = NULL;
    ex->info = NULL;
    ex->fd = -1;
}

/* Gives the exchange to a transfer loop, with a socket that libmicrohttpd has no more. */
static void give(struct gb_loop *loop, struct gb_exchange *ex, const struct gb_handoff *socket) {
    if (gb_transfer_loop_give(&loop->own, ex, socket) == 0)
        return;
    gb_handoff_end(&loop->server->places, socket);
    gb_server_ended(loop->own.latency, ex);
    gb_exchange_end(ex);
}

/* take_out of a connection over TLS: the pair is given up. */
static int take_out_secure(struct gb_loop *loop, struct gb_exchange *ex, struct gb_handoff *ret) {
    struct gb_conn *c = ex->info;
    bool out = false;

    if (!c->front)
        return -1;
    if (!ex->suspended)
        MHD_suspend_connection(ex->conn);
    if (gb_front_unread(c) == 0)
        out = dup3(loop->server->dead_fd, c->fd, O_CLOEXEC) >= 0;
    if (out || !ex->suspended)
        MHD_resume_connection(ex->conn);
    loop->resumed = true;
    if (!out)
        return -1;
    ex->suspended = false;
    gb_front_take(c, ret);
    part(c, ex);
    return 0;
}

/* Takes the live socket out: *ret. Returns 0, or -1 and everything stays as it was. */
static int take_out(struct gb_loop *loop, struct gb_exchange *ex, struct gb_handoff *ret) {
    struct gb_conn *c = ex->info;
    struct gb_handoff socket = describe(ex);
    int fd;

    if (c->secure)
        return take_out_secure(loop, ex, ret);
    fd = duplicate(ex);
    if (fd < 0)
        return -1;
    socket.fd = fd;
    if (!ex->suspended)
        MHD_suspend_connection(ex->conn);
    if (dup3(loop->server->dead_fd, c->fd, O_CLOEXEC) < 0) {
        if (!ex->suspended) {
            MHD_resume_connection(ex->conn);
            loop->resumed = true;
        }
        close(fd);
        return -1;
    }
    MHD_resume_connection(ex->conn);
    loop->resumed = true;
    ex->suspended = false;
    part(c, ex);
    *ret = socket;
    return 0;
}

int gb_detach_to_transfer(struct gb_loop *loop, struct gb_exchange *ex) {
    struct gb_handoff socket;

    if (take_out(loop, ex, &socket) < 0)
        return -1;
    give(loop, ex, &socket);
    return 0;
}

/* A dead client is found by unanswered bytes, which the kernel otherwise repeats for a quarter of an hour. */
#define UNANSWERED_MS 60000

int gb_detach_to_feed(struct gb_loop *loop, struct gb_exchange *ex) {
    size_t len = ex->resp.body_len + GB_HTTP_RESPONSE_TEXT_SIZE + GB_HEAD_OWN_SIZE;
    unsigned unanswered = UNANSWERED_MS;
    struct gb_feed_listener *l = ex->resp.listener;
    struct gb_http_frame *first = malloc(sizeof(*first) + len);
    struct gb_handoff socket;
    size_t head;

    if (!first)
        return -1;
    memset(first, 0, sizeof(*first));
    atomic_init(&first->refs, 1);
    head = gb_head_write(&ex->req, &ex->resp, GB_HEAD_UNTIL_END, true, first->text, len - ex->resp.body_len);
    if (head == 0 || take_out(loop, ex, &socket) < 0) {
        free(first);
        return -1;
    }
    if (ex->resp.body_len > 0)
        memcpy(first->text + head, ex->resp.body, ex->resp.body_len);
    first->len = head + ex->resp.body_len;
    if (!socket.local)
        setsockopt(socket.fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered, sizeof(unanswered));
    l->fd = socket.fd;
    l->tls = socket.tls;
    l->peer = socket.peer;
    l->source = socket.source;
    l->hold[l->held++] = first;
    ex->resp.listener = NULL;
    gb_conn_slot_leave(&loop->server->places, socket.source);
    gb_server_ended(loop->own.latency, ex);
    gb_exchange_end(ex);
    gb_http_feed_give(loop->server->feed, l);
    return 0;
}

/* --- handover ----------------------------------------------------------------------------------------------------- */

/* Only an answer of 101 makes libmicrohttpd say which bytes it has read behind the header, so it is given such an
 * answer. A pair of sockets stands in for the connection, and its 101 goes there. */

struct gb_handover {
    struct gb_handoff to; /* the live socket */
    int other_end;        /* of the stand-in */
};

static void free_handover(struct gb_handover *h) {
    if (!h)
        return;
    if (h->to.fd >= 0)
        close(h->to.fd);
    if (h->other_end >= 0)
        close(h->other_end);
    free(h);
}

/* The exchange continues without libmicrohttpd. */
static void hand_to_transfer(struct gb_loop *loop, struct gb_conn *c, struct gb_exchange *ex) {
    struct gb_handover *h = c->handover;
    struct gb_handoff socket = h->to;

    h->to.fd = -1;
    free_handover(h);
    c->handover = NULL;
    loop->handovers--;
    loop->resumed = true;
    part(c, ex);
    give(loop, ex, &socket);
}

static void on_upgrade(void *cls, struct MHD_Connection *connection, void *con_cls, const char *extra, size_t extra_len,
                       MHD_socket sock, struct MHD_UpgradeResponseHandle *handle) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_exchange *ex = con_cls;
    struct gb_conn *c = ex->info;

    (void)connection;
    (void)sock;
    ex->early = extra_len > 0 ? malloc(extra_len) : NULL;
    if (ex->early) {
        memcpy(ex->early, extra, extra_len);
        ex->early_len = extra_len;
    } else if (extra_len > 0) {
        gb_error_memory(&err, "body");
        ex->close = true;
        gb_exchange_fail(ex, &err);
    }
    hand_to_transfer(cls, c, ex);
    MHD_upgrade_action(handle, MHD_UPGRADE_ACTION_CLOSE);
}

int gb_handover_init(struct gb_loop *loop, struct gb_error *err) {
    loop->handover = MHD_create_response_for_upgrade(on_upgrade, loop);
    if (!loop->handover || MHD_add_response_header(loop->handover, MHD_HTTP_HEADER_UPGRADE, "gpubufd") != MHD_YES)
        return gb_error_set(err, GB_ERR_INTERNAL, "libmicrohttpd cannot hand over connections");
    return 0;
}

void gb_handover_done(struct gb_loop *loop) {
    if (loop->handover)
        MHD_destroy_response(loop->handover);
    loop->handover = NULL;
}

static struct gb_handover *new_handover(struct gb_exchange *ex, int *ret_stand_in) {
    struct gb_handover *h = malloc(sizeof(*h));
    int pair[2];

    if (!h)
        return NULL;
    h->other_end = -1;
    h->to = describe(ex);
    h->to.fd = ex->info->secure ? -1 : duplicate(ex);
    if ((h->to.fd < 0 && !ex->info->front) ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0) {
        free_handover(h);
        return NULL;
    }
    *ret_stand_in = pair[0];
    h->other_end = pair[1];
    return h;
}

int gb_handover_begin(struct gb_loop *loop, struct gb_exchange *ex) {
    struct gb_conn *c = ex->info;
    int stand_in;

    c->handover = new_handover(ex, &stand_in);
    if (!c->handover)
        return -1;
    loop->handovers++;
    /* Suspended first, which takes it out of libmicrohttpd's epoll set: the set knows the socket, not its number. */
    if (MHD_queue_response(ex->conn, MHD_HTTP_SWITCHING_PROTOCOLS, loop->handover) == MHD_YES) {
        MHD_suspend_connection(ex->conn);
        if (c->front && gb_front_unread(c) < 0)
            shutdown(c->fd, SHUT_RDWR);
        if (dup3(stand_in, c->fd, O_CLOEXEC) < 0)
            shutdown(c->fd, SHUT_RDWR);
        if (c->front)
            gb_front_take(c, &c->handover->to);
        MHD_resume_connection(ex->conn);
        close(stand_in);
        return 0;
    }
    close(stand_in);
    free_handover(c->handover);
    c->handover = NULL;
    loop->handovers--;
    return -1;
}

void gb_handover_failed(struct gb_loop *loop, struct gb_exchange *ex) {
    struct gb_error err = GB_ERROR_INIT;

    gb_error_set(&err, GB_ERR_HEADERS_TOO_LARGE, "the header leaves no room for reading the body");
    ex->close = true;
    gb_exchange_fail(ex, &err);
    hand_to_transfer(loop, ex->info, ex);
}
