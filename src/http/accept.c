/* One thread accepts for all loops: the count of connections is kept in one place, and each loop gets its share. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http/server.h"

/* Accepted from one socket before the others are looked at. */
#define BATCH 64

static void refuse(struct gb_http_server *server, int fd) {
    enum gb_code code = atomic_load(&server->draining) ? GB_ERR_DRAINING : GB_ERR_SATURATED;
    uint64_t id = server->id_seed + atomic_fetch_add(&server->next_id, 1);
    char text[512];
    char head[640];
    int body = snprintf(text, sizeof(text),
                        "{\"type\": \"urn:gpubuf:error:%s\", \"title\": \"%s\", \"status\": 503, "
                        "\"detail\": \"%u of %u connections are in use%s\", \"instance\": \"\", \"code\": \"%s\", "
                        "\"retryable\": true, \"request_id\": \"%016llx\"}\n",
                        gb_code_slug(code), gb_code_title(code), (unsigned)atomic_load(&server->connections),
                        server->config.connections_max, code == GB_ERR_DRAINING ? "; no more are taken" : "",
                        gb_code_slug(code), (unsigned long long)id);
    int n = snprintf(head, sizeof(head),
                     "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\nRetry-After: 1\r\n"
                     "Connection: close\r\nContent-Length: %d\r\n\r\n",
                     body);

    atomic_fetch_add(&server->refused, 1);
    /* A fresh socket has room for this; what cannot be sent at once is not worth waiting for. */
    if (send(fd, head, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT | MSG_MORE) == n)
        (void)!send(fd, text, (size_t)body, MSG_NOSIGNAL | MSG_DONTWAIT);
    shutdown(fd, SHUT_WR);
    close(fd);
}

/* Returns false when descriptors have run out: then a pause is due, or the loop would spin. */
static bool accept_some(struct gb_http_server *server, int listen_fd) {
    int i;

    for (i = 0; i < BATCH; i++) {
        int fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd < 0)
            return errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM;
        if (atomic_load(&server->draining) || atomic_load(&server->connections) >= server->config.connections_max) {
            refuse(server, fd);
            continue;
        }
        atomic_fetch_add(&server->connections, 1);
        atomic_fetch_add(&server->accepted, 1);
        gb_loop_give(gb_loop_pick(server), fd);
    }
    return true;
}

/* Who waits in a backlog is told; who comes later finds nobody listening. */
static void turn_away(struct gb_http_server *server) {
    size_t i;

    for (i = 0; i < server->config.listen_fd_count; i++) {
        accept_some(server, server->listen_fds[i]);
        close(server->listen_fds[i]);
        server->listen_fds[i] = -1;
    }
}

static void *accept_main(void *arg) {
    struct gb_http_server *server = arg;
    struct epoll_event events[16];
    bool exhausted = false;

    pthread_setname_np(pthread_self(), "gb-accept");
    while (!atomic_load(&server->draining)) {
        int n = exhausted ? epoll_wait(server->accept_epoll_fd, events, 1, 50) : 0;
        int i;

        if (!exhausted)
            n = epoll_wait(server->accept_epoll_fd, events, 16, -1);
        exhausted = false;
        for (i = 0; i < n; i++) {
            if (events[i].data.fd != server->accept_event_fd && !accept_some(server, events[i].data.fd))
                exhausted = true;
        }
        if (exhausted)
            usleep(20000); /* nothing announces that a descriptor has become free */
    }
    turn_away(server);
    return NULL;
}

static int watch(struct gb_http_server *server, int fd, struct gb_error *err) {
    struct epoll_event ev = {.events = EPOLLIN, .data.fd = fd};

    if (epoll_ctl(server->accept_epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0)
        return gb_error_errno(err, GB_ERR_INTERNAL, "epoll_ctl", errno);
    return 0;
}

int gb_acceptor_start(struct gb_http_server *server, struct gb_error *err) {
    size_t i;
    int r;

    server->accept_epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    server->accept_event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (server->accept_epoll_fd < 0 || server->accept_event_fd < 0)
        return gb_error_errno(err, GB_ERR_INTERNAL, "epoll_create1 or eventfd", errno);
    if (watch(server, server->accept_event_fd, err) < 0)
        return -1;
    for (i = 0; i < server->config.listen_fd_count; i++) {
        if (watch(server, server->listen_fds[i], err) < 0)
            return -1;
    }
    r = pthread_create(&server->acceptor, NULL, accept_main, server);
    if (r != 0)
        return gb_error_errno(err, GB_ERR_INTERNAL, "pthread_create", r);
    server->acceptor_started = true;
    return 0;
}

void gb_acceptor_stop(struct gb_http_server *server) {
    uint64_t one = 1;

    if (server->acceptor_started) {
        if (write(server->accept_event_fd, &one, sizeof(one)) < 0)
            return; /* cannot be: the counter is at zero or one */
        pthread_join(server->acceptor, NULL);
        server->acceptor_started = false;
    }
}
