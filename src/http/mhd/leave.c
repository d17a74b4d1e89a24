/* Suspending takes the descriptor out of libmicrohttpd's epoll set. Then the number is made to stand for a dead socket.
 * After a resume libmicrohttpd finds the end of the connection there, and forgets it. The live socket continues under
 * another number. */
#include "http/mhd/leave.h"

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

#include "http/feed/feed.h"
#include "http/message/head_writer.h"
#include "http/mhd/front.h"

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

struct gb_handoff gb_mhd_describe(const struct gb_exchange *ex) {
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

int gb_mhd_duplicate(const struct gb_exchange *ex) {
    return fcntl(ex->info->fd, F_DUPFD_CLOEXEC, 0);
}

void gb_mhd_part(struct gb_conn *c, struct gb_exchange *ex) {
    c->left = true;
    c->peer = NULL;
    c->source = NULL;
    c->ex = NULL;
    ex->head_at = NULL;
    ex->conn = NULL;
    ex->info = NULL;
    ex->fd = -1;
}

void gb_mhd_give(struct gb_loop *loop, struct gb_exchange *ex, const struct gb_handoff *socket) {
    if (gb_transfer_loop_give(&loop->own, ex, socket) == 0)
        return;
    gb_handoff_end(&loop->server->places, socket);
    gb_server_ended(loop->own.latency, ex);
    gb_exchange_end(ex);
}

/* The same of a connection over TLS: the pair is given up. */
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
    gb_mhd_part(c, ex);
    return 0;
}

/* Takes the live socket out: *ret. Returns 0, or -1 and everything stays as it was. */
static int take_out(struct gb_loop *loop, struct gb_exchange *ex, struct gb_handoff *ret) {
    struct gb_conn *c = ex->info;
    struct gb_handoff socket = gb_mhd_describe(ex);
    int fd;

    if (c->secure)
        return take_out_secure(loop, ex, ret);
    fd = gb_mhd_duplicate(ex);
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
    gb_mhd_part(c, ex);
    *ret = socket;
    return 0;
}

int gb_mhd_detach(struct gb_loop *loop, struct gb_exchange *ex) {
    struct gb_handoff socket;

    if (take_out(loop, ex, &socket) < 0)
        return -1;
    gb_mhd_give(loop, ex, &socket);
    return 0;
}

/* A dead client is found by unanswered bytes, which the kernel otherwise repeats for a quarter of an hour. */
#define UNANSWERED_MS 60000

int gb_mhd_listen(struct gb_loop *loop, struct gb_exchange *ex) {
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
