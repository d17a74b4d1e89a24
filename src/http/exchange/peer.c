/* The process at the other end of a UNIX socket, and the end of its connection as an event.
 *
 * A connection moves between libmicrohttpd, transfer loops and handoff queues, and while a request waits, no thread
 * reads the socket. So a connection for which the application holds something is watched apart: a duplicate of its
 * socket is in an epoll set of its own, which reports only the hang-up. The watch ends with that event and nowhere
 * else; therefore our side shuts such a connection down before closing it. */
#include "http/exchange/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http/exchange/server_state.h"

#define EVENTS 64

struct gb_peer *gb_peer_new(struct gb_http_server *server, int fd) {
    struct gb_peer *peer = calloc(1, sizeof(*peer));
    struct ucred who;
    socklen_t len = sizeof(who);

    if (!peer || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) < 0) {
        free(peer);
        return NULL;
    }
    atomic_init(&peer->refs, 1);
    peer->server = server;
    peer->watch_fd = -1;
    peer->seen = (struct gb_http_peer){.pid = who.pid, .uid = who.uid, .gid = who.gid};
    return peer;
}

struct gb_peer *gb_peer_ref(struct gb_peer *peer) {
    if (peer)
        atomic_fetch_add_explicit(&peer->refs, 1, memory_order_relaxed);
    return peer;
}

void gb_peer_unref(struct gb_peer *peer) {
    const struct gb_http_server_config *config;

    if (!peer || atomic_fetch_sub_explicit(&peer->refs, 1, memory_order_acq_rel) != 1)
        return;
    config = &peer->server->config;
    if (peer->held && config->peer_free)
        config->peer_free(config->app, &peer->seen);
    if (peer->watch_fd >= 0)
        close(peer->watch_fd);
    free(peer);
}

void gb_peer_end(struct gb_peer *peer) {
    if (!peer)
        return;
    /* The duplicate would keep the connection open; and the watch learns of the end by this. */
    if (peer->held)
        shutdown(peer->watch_fd, SHUT_RDWR);
    gb_peer_unref(peer);
}

bool gb_peer_busy(const struct gb_peer *peer) {
    const struct gb_http_server_config *config;

    if (!peer || !peer->held)
        return false;
    config = &peer->server->config;
    return config->peer_busy && config->peer_busy(config->app, &peer->seen);
}

/* --- the watch ---------------------------------------------------------------------------------------------------- */

int gb_http_peer_hold(struct gb_http_request *request, void *app, struct gb_error *err) {
    struct gb_exchange *ex = gb_exchange_of(request);
    struct gb_peer *peer = ex->peer;
    struct epoll_event ev = {.events = 0, .data.ptr = peer}; /* a hang-up is always reported */
    int fd = ex->fd;

    if (!peer || fd < 0)
        return gb_error_set(err, GB_ERR_INTERNAL, "the request has no connection of a UNIX socket");
    fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return gb_error_errno(err, GB_ERR_SATURATED, "fcntl", errno);
    peer->seen.app = app;
    peer->watch_fd = fd;
    gb_peer_ref(peer);
    if (epoll_ctl(ex->server->peers_fd, EPOLL_CTL_ADD, fd, &ev) < 0) {
        int code = errno;

        peer->seen.app = NULL;
        peer->watch_fd = -1;
        gb_peer_unref(peer);
        close(fd);
        return gb_error_errno(err, GB_ERR_SATURATED, "epoll_ctl", code);
    }
    peer->held = true;
    return 0;
}

bool gb_http_peer_in_group(const struct gb_http_request *request, gid_t gid) {
    int fd = ((const struct gb_exchange *)request)->fd;
    socklen_t len = 0;
    gid_t *list;
    size_t i = 0;
    size_t n;

    /* If there is no room, the kernel says how much is needed. */
    if (request->peer->gid == gid)
        return true;
    if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, NULL, &len) == 0 || errno != ERANGE)
        return false;
    list = malloc(len);
    n = list && getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, list, &len) == 0 ? len / sizeof(*list) : 0;
    while (i < n && list[i] != gid)
        i++;
    free(list);
    return i < n;
}

static void gone(struct gb_http_server *server, struct gb_peer *peer) {
    epoll_ctl(server->peers_fd, EPOLL_CTL_DEL, peer->watch_fd, NULL);
    if (server->config.peer_gone)
        server->config.peer_gone(server->config.app, &peer->seen);
    gb_peer_unref(peer);
}

/* Returns the number of events. */
static int visit(struct gb_http_server *server) {
    struct epoll_event events[EVENTS];
    int n = epoll_wait(server->peers_fd, events, EVENTS, 0);
    int i;

    for (i = 0; i < n; i++)
        gone(server, events[i].data.ptr);
    return n;
}

int gb_peers_init(struct gb_http_server *server, struct gb_error *err) {
    server->peers_fd = epoll_create1(EPOLL_CLOEXEC);
    return server->peers_fd < 0 ? gb_error_errno(err, GB_ERR_INTERNAL, "epoll_create1", errno) : 0;
}

void gb_peers_event(struct gb_http_server *server) {
    visit(server); /* the others raise the next event */
}

void gb_peers_done(struct gb_http_server *server) {
    if (server->peers_fd < 0)
        return;
    while (visit(server) > 0)
        ;
    close(server->peers_fd);
}

/* --- descriptors -------------------------------------------------------------------------------------------------- */

int gb_peer_hand(int sock, const int *fds, unsigned count) {
    char line[] = "HTTP/1.1 103 Early Hints\r\n\r\n";
    union {
        char bytes[CMSG_SPACE(GB_HTTP_RESPONSE_FDS_MAX * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec text = {.iov_base = line, .iov_len = sizeof(line) - 1};
    struct msghdr msg = {.msg_iov = &text, .msg_iovlen = 1, .msg_control = control.bytes};
    size_t bytes = count * sizeof(fds[0]);
    struct cmsghdr *c;

    memset(&control, 0, sizeof(control));
    msg.msg_controllen = CMSG_SPACE(bytes);
    c = CMSG_FIRSTHDR(&msg);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(bytes);
    memcpy(CMSG_DATA(c), fds, bytes);
    return sendmsg(sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)text.iov_len ? 0 : -1;
}

int gb_peer_send(int sock, struct gb_http_response *response) {
    int error;
    int r;

    if (response->fds == 0)
        return 0;
    r = gb_peer_hand(sock, response->fd, response->fds);
    error = errno;
    gb_http_response_close(response);
    errno = error;
    return r;
}
