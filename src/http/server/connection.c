/* The connections of an HTTP loop: how they are accepted, announced by a proxy, begin and end. Each has a place among
 * those of the server, from its accept to its end. The event loop and libmicrohttpd call this, on the loop's thread;
 * gb_conn_hand_back is also called by the threads of transfer loops. */
#include "http/server/connection.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/process.h"
#include "http/message/network.h"
#include "http/server/detach.h"
#include "http/server/loop.h"
#include "http/server/request.h"
#include "http/server/tls_front.h"

/* --- conn --------------------------------------------------------------------------------------------------------- */

void gb_conn_adopt_given(struct gb_loop *loop, const struct gb_handoff *handoff) {
    /* Our address, because 0.9.75 copies a client's UNIX path past the end of its own buffer (doc/design/data-path.md,
     * trap 15). */
    struct sockaddr addr = {.sa_family = AF_UNIX};

    if (handoff->squeezed && !gb_refuse_or_squeeze(loop, handoff)) {
        atomic_fetch_sub(&loop->load, 1);
        return;
    }
    if (handoff->secure) {
        gb_front_adopt(loop, handoff);
        return;
    }
    loop->adopting = handoff;
    /* On failure it has closed the descriptor. If it never reported the connection, the rest is still ours. */
    if (MHD_add_connection(loop->mhd, handoff->fd, &addr, sizeof(addr)) != MHD_YES && loop->adopting) {
        gb_peer_end(handoff->peer);
        gb_conn_slot_end(&loop->server->places, handoff->source);
        atomic_fetch_sub(&loop->load, 1);
    }
    loop->adopting = NULL;
}

/* [the loop's thread, outside libmicrohttpd's callbacks] The loop takes a connected socket. If it cannot, the socket is
 * closed and its place given back. */
static void loop_adopt(struct gb_loop *loop, const struct gb_handoff *handoff) {
    atomic_fetch_add(&loop->load, 1);
    gb_conn_adopt_given(loop, handoff);
}

void gb_conn_hand_back(struct gb_http_server *server, struct gb_loop *own, const struct gb_handoff *handoff) {
    struct gb_loop *best = gb_loop_pick(server, own);

    if (best == own)
        loop_adopt(best, handoff);
    else
        gb_loop_give(best, handoff);
}

static void started(struct gb_loop *loop, struct MHD_Connection *mhd, void **socket_context) {
    const union MHD_ConnectionInfo *fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    const struct gb_handoff *handoff = loop->adopting;
    struct gb_conn *c = handoff ? calloc(1, sizeof(*c)) : NULL;

    loop->adopting = NULL; /* its peer and place are given back here, or by closed */
    if (!c || !fd) {
        free(c);
        if (handoff && handoff->front)
            atomic_fetch_add(&loop->load, 1); /* closed gives it back, and so does the front */
        *socket_context = NULL;               /* gb_mhd_on_request refuses a connection without a context */
        if (handoff && !handoff->front) {
            gb_peer_end(handoff->peer);
            gb_conn_slot_end(&loop->server->places, handoff->source);
        }
        return;
    }
    *socket_context = c;
    c->peer = handoff->peer;
    c->source = handoff->source;
    c->secure = handoff->secure;
    c->listener = handoff->listener;
    c->front = handoff->front;
    if (c->front)
        gb_front_opened(c);
    c->from = handoff->from;
    c->loop = loop;
    c->mhd = mhd;
    c->fd = fd->connect_fd;
    c->local = handoff->local;
    c->returning = c->asked = handoff->returning;
    if (!c->local && !c->secure)
        c->base = handoff->counted ? handoff->taken : gb_socket_taken(c->fd);
    c->idle_ns = loop->now_ns;
    loop->progress++;
    c->next = loop->conns;
    if (c->next)
        c->next->prev = c;
    loop->conns = c;
    gb_quiet_enter(loop, c);
}

static void closed(struct gb_loop *loop, struct gb_conn *c) {
    if (!c || !c->secure)
        atomic_fetch_sub(&loop->load, 1);
    loop->progress++;
    if (!c)
        return;
    if (c->secure)
        gb_front_closed(c);
    else if (!c->left)
        gb_conn_slot_end(&loop->server->places, c->source);
    gb_quiet_leave(loop, c);
    gb_mhd_forgotten(c);
    gb_peer_end(c->peer);
    if (c->prev)
        c->prev->next = c->next;
    else
        loop->conns = c->next;
    if (c->next)
        c->next->prev = c->prev;
    free(c);
}

void gb_conn_on_connection(void *cls, struct MHD_Connection *mhd, void **socket_context,
                           enum MHD_ConnectionNotificationCode code) {
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        started(cls, mhd, socket_context);
    else
        closed(cls, *socket_context);
}

void gb_conn_on_completed(void *cls, struct MHD_Connection *mhd, void **con_cls, enum MHD_RequestTerminationCode code) {
    const union MHD_ConnectionInfo *ctx = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct gb_conn *c = ctx ? ctx->socket_context : NULL;
    struct gb_exchange *ex = *con_cls;

    *con_cls = NULL;
    if (c)
        c->begun = NULL;
    if (!ex || (c && c->left))
        return; /* the transfer loop has it */
    if (c && c->handover) {
        gb_handover_failed(cls, ex);
        return;
    }
    ex->broken = code != MHD_REQUEST_TERMINATED_COMPLETED_OK;
    gb_mhd_request_finished(ex);
}

/* --- proxy -------------------------------------------------------------------------------------------------------- */

/* Proxies send the header at once. More than that many that do not are an error of theirs. */
#define WAITING_MAX 1024

/* Tells these events from those of fronts (1 to 3) and of transfers (0). */
#define TAG 4u

struct gb_proxy {
    struct gb_proxy *prev;
    struct gb_proxy *next;
    struct gb_handoff socket;
    gb_proxied *then;
    uint64_t began_ns;
    bool ended;
};

/* Whether a connection from there has to begin with one. */
static bool proxy_expected(const struct gb_http_server *server, const struct gb_handoff *handoff) {
    const struct gb_http_bounds *config = &server->limits.config;

    return config->proxy_count > 0 && gb_http_networks_have(config->proxies, config->proxy_count, &handoff->from);
}

static void proceed(struct gb_loop *loop, struct gb_handoff *handoff, gb_proxied *then) {
    const struct gb_http_address *from = &handoff->from;
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    struct sockaddr_in four = {.sin_family = AF_INET};

    atomic_fetch_add(&loop->server->proxied, 1);
    memcpy(&four.sin_addr, from->bytes, 4);
    memcpy(&six.sin6_addr, from->bytes, 16);
    if (from->family == 0)
        then(loop, handoff, NULL);
    else
        then(loop, handoff, from->family == 4 ? (struct sockaddr *)&four : (struct sockaddr *)&six);
}

/* Returns 1: the header has been taken; 0: more is to come; -1: the connection has another beginning, or has ended. */
static int take_header(struct gb_handoff *handoff) {
    char bytes[GB_PROXY_HEADER_MAX];
    ssize_t got = recv(handoff->fd, bytes, sizeof(bytes), MSG_PEEK | MSG_DONTWAIT);
    int n;

    if (got < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    n = got > 0 ? gb_proxy_header_read(bytes, (size_t)got, &handoff->from) : -1;
    if (n <= 0)
        return n;
    if (recv(handoff->fd, bytes, (size_t)n, MSG_DONTWAIT) != n)
        return -1;
    handoff->taken += (uint64_t)n;
    return 1;
}

static void drop_proxied(struct gb_http_server *server, int fd) {
    atomic_fetch_add(&server->proxy_failures, 1);
    close(fd);
}

/* Frees it with the turn: an event that was reported already may name it. */
static void end(struct gb_loop *loop, struct gb_proxy *p) {
    if (p->prev)
        p->prev->next = p->next;
    else
        loop->proxies = p->next;
    if (p->next)
        p->next->prev = p->prev;
    loop->proxy_count--;
    p->ended = true;
    p->next = loop->ended_proxies;
    loop->ended_proxies = p;
}

static void wait(struct gb_loop *loop, const struct gb_handoff *handoff, gb_proxied *then) {
    struct gb_proxy *p = loop->proxy_count < WAITING_MAX ? calloc(1, sizeof(*p)) : NULL;
    struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.ptr = (char *)p + TAG};

    if (!p || epoll_ctl(loop->own.epoll_fd, EPOLL_CTL_ADD, handoff->fd, &ev) < 0) {
        free(p);
        drop_proxied(loop->server, handoff->fd);
        return;
    }
    p->socket = *handoff;
    p->then = then;
    p->began_ns = gb_clock_ns();
    p->next = loop->proxies;
    if (p->next)
        p->next->prev = p;
    loop->proxies = p;
    loop->proxy_count++;
}

/* Takes the header, now or when it comes, then calls `then`. The socket is the callee's; one with another beginning is
 * closed. */
static void proxy_begin(struct gb_loop *loop, const struct gb_handoff *handoff, gb_proxied *then) {
    struct gb_handoff socket = *handoff;
    int r = take_header(&socket);

    if (r > 0)
        proceed(loop, &socket, then);
    else if (r == 0)
        wait(loop, &socket, then);
    else
        drop_proxied(loop->server, socket.fd);
}

/* ended: no more bytes come. */
static void proceed_or_drop(struct gb_loop *loop, struct gb_proxy *p, bool ended) {
    int r = p->ended ? 0 : take_header(&p->socket);

    if (r == 0 && (p->ended || !ended))
        return;
    epoll_ctl(loop->own.epoll_fd, EPOLL_CTL_DEL, p->socket.fd, NULL);
    end(loop, p);
    if (r > 0)
        proceed(loop, &p->socket, p->then);
    else
        drop_proxied(loop->server, p->socket.fd);
}

bool gb_proxy_event(struct gb_loop *loop, void *data, uint32_t events) {
    if (((uintptr_t)data & 7) != TAG)
        return false;
    proceed_or_drop(loop, (struct gb_proxy *)((char *)data - TAG), events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR));
    return true;
}

static bool has_expired(const struct gb_loop *loop, const struct gb_proxy *p, uint64_t now_ns) {
    const struct gb_http_server_config *config = &loop->server->config;
    uint64_t most_s = config->header_timeout_s && config->header_timeout_s < config->idle_timeout_s
                          ? config->header_timeout_s
                          : config->idle_timeout_s;

    return atomic_load(&loop->server->draining) ||
           (now_ns > p->began_ns && now_ns - p->began_ns > most_s * GB_NS_PER_S);
}

void gb_proxies_sweep(struct gb_loop *loop, uint64_t now_ns) {
    struct gb_proxy *next;
    struct gb_proxy *p;

    for (p = loop->proxies; p; p = next) {
        next = p->next;
        if (!has_expired(loop, p, now_ns))
            continue;
        end(loop, p);
        drop_proxied(loop->server, p->socket.fd);
    }
}

void gb_proxies_free_ended(struct gb_loop *loop) {
    struct gb_proxy *p;

    while ((p = loop->ended_proxies)) {
        loop->ended_proxies = p->next;
        free(p);
    }
}

void gb_proxies_done(struct gb_loop *loop) {
    while (loop->proxies) {
        close(loop->proxies->socket.fd);
        end(loop, loop->proxies);
    }
    gb_proxies_free_ended(loop);
}

/* --- accept ------------------------------------------------------------------------------------------------------- */

/* Connections fill one loop after the other. */

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
        gb_take_no_descriptors(handoff->fd);
    }
    if (handoff->squeezed)
        atomic_fetch_add(&server->squeezed, 1);
    else
        atomic_fetch_add(&server->accepted, 1);
    if (to == loop)
        loop_adopt(loop, handoff);
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
        else if (proxy_expected(server, &handoff))
            proxy_begin(loop, &handoff, take); /* TLS and HTTP begin behind it */
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
