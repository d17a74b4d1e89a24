/* Connections fill one loop after the other. */
#include "http/mhd/accept.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "http/mhd/front.h"
#include "http/mhd/proxy.h"
#include "http/mhd/refuse.h"

/* The kernel takes what it permits of this, and as much again. */
#define LOCAL_BUFFER (1 << 20)

/* Accepted from one socket before other events are read. */
#define BATCH 16

/* Newcomers that may be beyond the limit for a moment, until a quiet connection ends for each. */
#define SQUEEZED_MAX 64

/* There is no event for a descriptor that becomes free. */
#define PAUSE_NS (50 * GB_NS_PER_MS)

/* TCP's buffers grow by themselves; that of a UNIX socket would stay at a fifth of a mebibyte. */
static void widen(int fd) {
    int bytes = LOCAL_BUFFER;

    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
}

/* Descriptors that a client sends along with its bytes are not wanted. A read without room for them closes them on the
 * loop, which may take as long as the client likes (base/closer.h). Since Linux 6.16 the kernel can refuse them. */
#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif
static void take_no_descriptors(int fd) {
    int no = 0;

    (void)setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof(no));
}

/* The connection has its place. Gives it to the loop `to`, which may be this one. */
static void admit(struct gb_loop *loop, struct gb_handoff *handoff, struct gb_loop *to) {
    struct gb_http_server *server = loop->server;

    if (handoff->local) {
        handoff->peer = gb_peer_new(server, handoff->fd);
        if (!handoff->peer) {
            gb_conn_slot_end(&server->places, handoff->source);
            gb_refuse(loop, handoff, GB_REFUSAL_MEMORY);
            return;
        }
        widen(handoff->fd);
        take_no_descriptors(handoff->fd);
    }
    if (handoff->squeezed)
        atomic_fetch_add(&server->squeezed, 1);
    else
        atomic_fetch_add(&server->accepted, 1);
    if (to == loop)
        gb_loop_adopt(loop, handoff);
    else
        gb_loop_give(to, handoff);
}

static struct gb_http_address address_of(const struct sockaddr *from) {
    struct gb_http_address address = {.family = 0};

    if (from && from->sa_family == AF_INET) {
        address.family = 4;
        memcpy(address.bytes, (const char *)from + offsetof(struct sockaddr_in, sin_addr), 4);
    } else if (from && from->sa_family == AF_INET6) {
        address.family = 6;
        memcpy(address.bytes, (const char *)from + offsetof(struct sockaddr_in6, sin6_addr), 16);
    }
    return address;
}

static void take(struct gb_loop *loop, struct gb_handoff *handoff, const struct sockaddr *from) {
    struct gb_http_server *server = loop->server;
    struct gb_loop *to = NULL;
    enum gb_conn_slot place;

    if (handoff->secure && !gb_limits_handshake(&server->limits, &handoff->from)) {
        close(handoff->fd); /* without a word: each would cost a handshake */
        return;
    }
    place = gb_conn_slot_take(&server->places, from, false, &handoff->source);
    if (place == GB_CONN_SLOT_FULL && gb_fronts_give_way(loop))
        place = gb_conn_slot_take(&server->places, from, false, &handoff->source);
    if (place == GB_CONN_SLOT_TAKEN) {
        /* The loop that had time to accept it has time for its handshake. */
        to = handoff->secure ? loop : gb_loop_fill(server, GB_LOOP_TOGETHER / server->config.loops);
    } else if (place == GB_CONN_SLOT_FULL && atomic_load(&server->squeezed) < SQUEEZED_MAX) {
        to = gb_handshakes_oldest(server);
        to = to ? to : gb_quiet_longest(server, handoff->local);
        handoff->squeezed = true;
        if (to)
            place = gb_conn_slot_take(&server->places, from, true, &handoff->source);
    }
    if (place == GB_CONN_SLOT_TAKEN)
        admit(loop, handoff, to);
    else
        gb_refuse(loop, handoff,
                  place == GB_CONN_SLOT_SOURCE   ? GB_REFUSAL_SOURCE
                  : place == GB_CONN_SLOT_MEMORY ? GB_REFUSAL_MEMORY
                                                 : GB_REFUSAL_FULL);
}

/* Returns false if descriptors have run out: without a pause the loop would spin. */
static bool accept_some(struct gb_http_server *server, struct gb_loop *loop, size_t index) {
    bool local = server->listen_local[index];
    int i;

    for (i = 0; i < BATCH; i++) {
        struct sockaddr_storage from = {.ss_family = AF_UNSPEC};
        socklen_t len = sizeof(from);
        struct gb_handoff handoff = {
            .local = local, .secure = server->listen_tls[index], .listener = (unsigned)index, .counted = true};

        handoff.fd = accept4(server->listen_fds[index], local ? NULL : (struct sockaddr *)&from, local ? NULL : &len,
                             SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (handoff.fd < 0)
            return errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM;
        handoff.from = address_of(local ? NULL : (struct sockaddr *)&from);
        if (atomic_load(&server->draining))
            gb_refuse(loop, &handoff, GB_REFUSAL_DRAINING);
        else if (gb_proxy_expected(server, &handoff))
            gb_proxy_begin(loop, &handoff, take); /* TLS and HTTP begin behind it */
        else
            take(loop, &handoff, local ? NULL : (struct sockaddr *)&from);
    }
    return true;
}

/* Clients in a backlog get an answer; later ones find no listener. */
static void turn_away(struct gb_http_server *server, struct gb_loop *loop) {
    size_t i;

    for (i = 0; i < server->config.listen_fd_count; i++) {
        accept_some(server, loop, i);
        close(server->listen_fds[i]);
    }
}

static int listen_on(struct gb_loop *loop, struct gb_error *err) {
    struct gb_http_server *server = loop->server;
    unsigned turn = atomic_load(&server->listen_turn); /* before the sockets are polled */
    size_t i;

    for (i = 0; i < server->config.listen_fd_count; i++) {
        struct epoll_event ev = {.events = EPOLLIN | EPOLLEXCLUSIVE, .data.ptr = &server->listen_fds[i]};

        if (epoll_ctl(loop->own.epoll_fd, EPOLL_CTL_ADD, server->listen_fds[i], &ev) < 0 && errno != EEXIST)
            return gb_error_errno(err, GB_ERR_INTERNAL, "epoll_ctl", errno);
    }
    loop->listening = true;
    loop->listen_turn = turn;
    return 0;
}

static void listen_off(struct gb_loop *loop) {
    struct gb_http_server *server = loop->server;
    size_t i;

    for (i = 0; i < server->config.listen_fd_count; i++)
        epoll_ctl(loop->own.epoll_fd, EPOLL_CTL_DEL, server->listen_fds[i], NULL);
    loop->listening = false;
}

int gb_listen_start(struct gb_loop *loop, struct gb_error *err) {
    if (listen_on(loop, err) < 0)
        return -1;
    atomic_fetch_add(&loop->server->accepting, 1);
    loop->accepts = true;
    return 0;
}

bool gb_listen_event(struct gb_loop *loop, const void *data) {
    struct gb_http_server *server = loop->server;
    size_t i;

    for (i = 0; i < server->config.listen_fd_count && data != &server->listen_fds[i]; i++)
        ;
    if (i == server->config.listen_fd_count)
        return false;
    if (loop->listening && !atomic_load(&server->draining) && !accept_some(server, loop, i)) {
        listen_off(loop);
        loop->listen_again_ns = gb_clock_ns() + PAUSE_NS;
    }
    return true;
}

bool gb_listen_differs(const struct gb_loop *loop) {
    const struct gb_http_server *server = loop->server;
    bool differs = loop->listen_turn != atomic_load(&server->listen_turn);
    size_t i;

    for (i = 0; !differs && i < server->config.listen_fd_count; i++)
        differs = atomic_load(&server->listen_next[i]) >= 0;
    return differs;
}

/* Those that wait at the former socket are accepted first; no others come, as its name is gone. It ends when the new
 * one takes its number, and leaves all epoll sets by that. */
static void change_socket(struct gb_loop *loop, size_t index, int next) {
    struct gb_http_server *server = loop->server;
    struct pollfd waiting = {.fd = server->listen_fds[index], .events = POLLIN};
    unsigned i;

    while (poll(&waiting, 1, 0) > 0 && accept_some(server, loop, index))
        ;
    (void)dup3(next, server->listen_fds[index], O_CLOEXEC);
    close(next);
    atomic_fetch_add(&server->listen_turn, 1);
    for (i = 0; i < server->config.loops; i++)
        gb_wake_queue_signal(&server->loops[i].exchanges.wake_queue);
}

static void change_sockets(struct gb_loop *loop) {
    struct gb_http_server *server = loop->server;
    size_t i;

    for (i = 0; i < server->config.listen_fd_count; i++) {
        int next = atomic_exchange(&server->listen_next[i], -1);

        if (next >= 0)
            change_socket(loop, i, next);
    }
}

void gb_listen_tick(struct gb_loop *loop, uint64_t now_ns) {
    if (!loop->accepts)
        return;
    if (gb_listen_differs(loop)) {
        change_sockets(loop);
        if (loop->listening)
            (void)listen_on(loop, NULL); /* if it fails, the next tick tries again */
    }
    if (atomic_load(&loop->server->draining)) {
        /* Closed by the last loop that polls them: a free number may be another file's at once. */
        listen_off(loop);
        loop->accepts = false;
        if (atomic_fetch_sub(&loop->server->accepting, 1) == 1)
            turn_away(loop->server, loop);
    } else if (!loop->listening && now_ns >= loop->listen_again_ns) {
        (void)listen_on(loop, NULL); /* if it fails, the next tick tries again */
    }
}
