#include "http/mhd/proxy.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "http/message/proxy_header.h"

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

bool gb_proxy_expected(const struct gb_http_server *server, const struct gb_handoff *handoff) {
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

static void refuse(struct gb_http_server *server, int fd) {
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
    p->next = loop->buried_proxies;
    loop->buried_proxies = p;
}

static void wait(struct gb_loop *loop, const struct gb_handoff *handoff, gb_proxied *then) {
    struct gb_proxy *p = loop->proxy_count < WAITING_MAX ? calloc(1, sizeof(*p)) : NULL;
    struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.ptr = (char *)p + TAG};

    if (!p || epoll_ctl(loop->own.epoll_fd, EPOLL_CTL_ADD, handoff->fd, &ev) < 0) {
        free(p);
        refuse(loop->server, handoff->fd);
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

void gb_proxy_begin(struct gb_loop *loop, const struct gb_handoff *handoff, gb_proxied *then) {
    struct gb_handoff socket = *handoff;
    int r = take_header(&socket);

    if (r > 0)
        proceed(loop, &socket, then);
    else if (r == 0)
        wait(loop, &socket, then);
    else
        refuse(loop->server, socket.fd);
}

/* ended: no more bytes come. */
static void go_on(struct gb_loop *loop, struct gb_proxy *p, bool ended) {
    int r = p->ended ? 0 : take_header(&p->socket);

    if (r == 0 && (p->ended || !ended))
        return;
    epoll_ctl(loop->own.epoll_fd, EPOLL_CTL_DEL, p->socket.fd, NULL);
    end(loop, p);
    if (r > 0)
        proceed(loop, &p->socket, p->then);
    else
        refuse(loop->server, p->socket.fd);
}

bool gb_proxy_event(struct gb_loop *loop, void *data, uint32_t events) {
    if (((uintptr_t)data & 7) != TAG)
        return false;
    go_on(loop, (struct gb_proxy *)((char *)data - TAG), events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR));
    return true;
}

static bool is_over(const struct gb_loop *loop, const struct gb_proxy *p, uint64_t now_ns) {
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
        if (!is_over(loop, p, now_ns))
            continue;
        end(loop, p);
        refuse(loop->server, p->socket.fd);
    }
}

void gb_proxies_bury(struct gb_loop *loop) {
    struct gb_proxy *p;

    while ((p = loop->buried_proxies)) {
        loop->buried_proxies = p->next;
        free(p);
    }
}

void gb_proxies_done(struct gb_loop *loop) {
    while (loop->proxies) {
        close(loop->proxies->socket.fd);
        end(loop, loop->proxies);
    }
    gb_proxies_bury(loop);
}
