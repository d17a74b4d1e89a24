#include "http/transfer/members.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "http/tls/tls.h"
#include "http/transfer/pace.h"

void gb_http_transfer_link(struct gb_transfer_loop *loop, struct gb_http_transfer *t) {
    t->listed = true;
    t->prev = NULL;
    t->next = loop->transfers;
    if (t->next)
        t->next->prev = t;
    loop->transfers = t;
}

static void unlink_transfer(struct gb_transfer_loop *loop, struct gb_http_transfer *t) {
    t->listed = false;
    if (t->prev)
        t->prev->next = t->next;
    else
        loop->transfers = t->next;
    if (t->next)
        t->next->prev = t->prev;
}

void gb_http_transfer_arm(struct gb_transfer_loop *loop, struct gb_http_transfer *t, uint32_t events) {
    struct epoll_event ev = {.events = events, .data.ptr = t};

    /* The socket has no event for bytes that are decrypted already; it is writable at once. Earlier replies leave while
     * the next request is read. */
    if (t->from.tls &&
        (((events & EPOLLIN) && gb_tls_pending(t->from.tls)) || (gb_tls_flush(t->from.tls) < 0 && errno == EAGAIN)))
        ev.events = events |= EPOLLOUT;
    if (t->watched ? t->armed == events : events == 0)
        return;
    epoll_ctl(loop->epoll_fd, t->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, t->fd, &ev);
    t->watched = true;
    t->armed = events;
}

static void drop_like(struct gb_http_transfer *t) {
    if (t->like)
        gb_exchange_unref(t->like);
    t->like = NULL;
}

void gb_http_transfer_end_exchange(struct gb_transfer_loop *loop, struct gb_http_transfer *t) {
    if (t->ex->raw && t->like != t->ex) {
        drop_like(t);
        t->like = gb_exchange_ref(t->ex);
    }
    gb_pace_end(loop, t);
    gb_server_ended(loop->latency, t->ex);
    gb_exchange_end(t->ex);
    t->ex = NULL;
}

/* Frees t. The descriptor stays open, and in the epoll set if it was there. */
static void forget(struct gb_transfer_loop *loop, struct gb_http_transfer *t) {
    if (t->ex)
        gb_http_transfer_end_exchange(loop, t);
    drop_like(t);
    unlink_transfer(loop, t);
    atomic_fetch_sub(&loop->load, 1);
    atomic_fetch_sub(&loop->server->transfers, 1);
    free(t);
}

void gb_http_transfer_drop(struct gb_transfer_loop *loop, struct gb_http_transfer *t) {
    struct gb_handoff socket = t->from;

    if (t->ex)
        t->ex->broken = true;
    /* The connection may have a duplicate (peer.h): closing would not take it out of the set. */
    if (t->from.peer && t->watched)
        epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, t->fd, NULL);
    forget(loop, t);
    gb_handoff_end(&loop->server->places, &socket);
}

void gb_http_transfer_hand_back(struct gb_transfer_loop *loop, struct gb_http_transfer *t) {
    struct gb_handoff socket = t->from;

    if (t->watched)
        epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, t->fd, NULL);
    socket.returning = true;
    forget(loop, t);
    loop->hand_back(loop->server, loop->loop, &socket);
}
