/* A bulk loop: many transfers on one thread, so that slow clients hold up nobody. */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "http/server.h"

#define EVENTS 64
#define TICK_NS (100 * GB_NS_PER_MS)
#define LINGER_NS (2 * GB_NS_PER_S)
#define SHORT_BYTES (4u << 20)
#define TURN_BYTES (8u << 20)

/* Most clients ask again, or end, within this after an answer. One that does neither is quiet, and is kept where those are. */
#define SETTLE_NS GB_NS_PER_S

/* --- membership ------------------------------------------------------------------------------------------------------- */

static void unlink_transfer(struct gb_bulk *bulk, struct gb_transfer *t) {
    t->listed = false;
    if (t->prev)
        t->prev->next = t->next;
    else
        bulk->transfers = t->next;
    if (t->next)
        t->next->prev = t->prev;
}

static void link_transfer(struct gb_bulk *bulk, struct gb_transfer *t) {
    t->listed = true;
    t->prev = NULL;
    t->next = bulk->transfers;
    if (t->next)
        t->next->prev = t;
    bulk->transfers = t;
}

/* How much of a chunked body is to come is not known; that of a JSON document is little. */
static uint64_t still_to_come(const struct gb_exchange *ex) {
    if (ex->req.chunked)
        return ex->req.route->body == GB_BODY_STREAM ? UINT64_MAX : 0;
    return ex->req.content_length - ex->body_received;
}

static struct gb_bulk *pick(struct gb_loop *loop, const struct gb_exchange *ex) {
    struct gb_http_server *server = loop->server;
    struct gb_bulk *best = &server->bulks[0];
    uint64_t in = ex->phase == GB_PHASE_BODY ? still_to_come(ex) : 0;
    uint64_t out = ex->phase == GB_PHASE_REPLY ? ex->resp.source_len + gb_reply_bytes(ex) : 0;
    unsigned i;

    /* Waking another thread would cost more than moving this. */
    if (in <= SHORT_BYTES && out <= SHORT_BYTES)
        return &loop->own;
    for (i = 1; i < server->config.bulk_loops; i++) {
        if (atomic_load(&server->bulks[i].load) < atomic_load(&best->load))
            best = &server->bulks[i];
    }
    return best;
}

int gb_bulk_give(struct gb_loop *loop, struct gb_exchange *ex, const struct gb_arrival *socket) {
    struct gb_transfer *t = calloc(1, sizeof(*t));
    struct gb_http_server *server = loop->server;
    struct gb_bulk *best = pick(loop, ex);

    if (!t)
        return -1;
    t->fd = socket->fd;
    t->from = *socket;
    t->ex = ex;
    t->moved_ns = t->began_ns = gb_clock_ns();
    ex->transfer = t;
    atomic_fetch_add(&best->load, 1);
    atomic_fetch_add(&server->transfers, 1);
    gb_exchange_own(ex, &best->inbox);
    if (best != &loop->own) {
        gb_http_wake(&ex->req);
        return 0;
    }
    /* No need to wake ourselves: this thread comes by before it sleeps. */
    t->next = best->entering;
    best->entering = t;
    return 0;
}

/* Frees t; the descriptor stays open, and in the epoll set if it was there. */
static void forget(struct gb_bulk *bulk, struct gb_transfer *t) {
    if (t->ex) {
        gb_server_ended(bulk, t->ex);
        gb_exchange_end(t->ex);
    }
    unlink_transfer(bulk, t);
    atomic_fetch_sub(&bulk->load, 1);
    atomic_fetch_sub(&bulk->server->transfers, 1);
    free(t);
}

void gb_transfer_drop(struct gb_bulk *bulk, struct gb_transfer *t) {
    struct gb_source *source = t->from.source;
    int fd = t->fd;

    if (t->ex)
        t->ex->broken = true;
    /* A watched connection has a duplicate: closing would not take it out of the set. */
    if (t->from.peer && t->watched)
        epoll_ctl(bulk->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
    gb_peer_end(t->from.peer);
    forget(bulk, t);
    close(fd);
    gb_place_end(&bulk->server->places, source);
}

void gb_transfer_hand_back(struct gb_bulk *bulk, struct gb_transfer *t) {
    struct gb_http_server *server = bulk->server;
    struct gb_arrival socket = t->from;
    struct gb_loop *best;

    if (t->watched)
        epoll_ctl(bulk->epoll_fd, EPOLL_CTL_DEL, t->fd, NULL);
    socket.returning = true;
    forget(bulk, t);
    best = gb_loop_pick(server, bulk->loop);
    if (best == bulk->loop)
        gb_loop_adopt(best, &socket);
    else
        gb_loop_give(best, &socket);
}

void gb_transfer_finish(struct gb_bulk *bulk, struct gb_transfer *t) {
    bool close = t->close || atomic_load(&bulk->server->draining);

    t->from.taken += t->ex->body_received;
    gb_server_ended(bulk, t->ex);
    gb_exchange_end(t->ex);
    t->ex = NULL;
    t->began_ns = gb_clock_ns();
    t->progress = (struct gb_progress){.began_ns = 0};
    t->state = close ? GB_TRANSFER_LINGER : GB_TRANSFER_IDLE;
    if (close) {
        /* Closing with bytes unread would reset the connection, and the client would lose the reply. */
        shutdown(t->fd, SHUT_WR);
        gb_transfer_run(bulk, t);
    } else if (t->from.returning) {
        gb_transfer_hand_back(bulk, t);
    } else {
        gb_transfer_arm(bulk, t, EPOLLIN); /* most clients end now, and libmicrohttpd need not know */
    }
}

void gb_transfer_arm(struct gb_bulk *bulk, struct gb_transfer *t, uint32_t events) {
    struct epoll_event ev = {.events = events, .data.ptr = t};

    if (t->watched ? t->armed == events : events == 0)
        return;
    epoll_ctl(bulk->epoll_fd, t->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, t->fd, &ev);
    t->watched = true;
    t->armed = events;
}

/* --- events ------------------------------------------------------------------------------------------------------------- */

static void first_visit(struct gb_bulk *bulk, struct gb_transfer *t) {
    const struct gb_exchange *ex = t->ex;

    link_transfer(bulk, t);
    t->state = GB_TRANSFER_BODY;
    if (ex->phase == GB_PHASE_BODY && ex->req.expect_continue && ex->body_received == 0 && ex->early_len == 0)
        t->state = GB_TRANSFER_CONTINUE;
    gb_transfer_run(bulk, t);
}

void gb_bulk_enter(struct gb_bulk *bulk) {
    struct gb_transfer *t;

    while ((t = bulk->entering)) {
        bulk->entering = t->next;
        first_visit(bulk, t);
    }
}

static void on_woken(struct gb_bulk *bulk, struct gb_exchange *ex) {
    struct gb_transfer *t = ex->transfer;

    if (!t || t->ex != ex)
        return;
    if (t->listed)
        gb_transfer_run(bulk, t);
    else if (!bulk->loop)
        first_visit(bulk, t); /* with a loop, gb_bulk_enter comes by */
}

void gb_bulk_event(struct gb_bulk *bulk, struct gb_transfer *t, uint32_t events) {
    if (t->armed == 0 && (events & (EPOLLERR | EPOLLHUP))) {
        /* Nobody waits for this socket now. That the client is gone will show when the reply is sent. */
        epoll_ctl(bulk->epoll_fd, EPOLL_CTL_DEL, t->fd, NULL);
        t->watched = false;
        return;
    }
    /* For a client that has gone nobody waits for long; one that has only closed its own side has its answer now. */
    if (t->state == GB_TRANSFER_WAIT && t->armed == EPOLLRDHUP)
        t->ex->req.timed_out = true;
    gb_transfer_run(bulk, t);
}

/* A source that gives nothing while the client has taken all: the time is not the client's. */
static bool waits_for_source(const struct gb_transfer *t) {
    return t->state == GB_TRANSFER_SOURCE && t->armed == 0 && gb_socket_queued(t->fd) == 0;
}

static bool too_slow_out(const struct gb_bulk *bulk, struct gb_transfer *t, uint64_t now_ns) {
    const struct gb_http_server_config *config = &bulk->server->config;

    if (waits_for_source(t)) {
        gb_progress_excuse(&t->progress, now_ns);
        return now_ns - t->moved_ns > config->wait_max_s * GB_NS_PER_S;
    }
    gb_progress_look(&t->progress, t->fd, t->from.local, now_ns);
    return gb_progress_slow(&t->progress, config, now_ns);
}

static void drop_slow(struct gb_bulk *bulk, struct gb_transfer *t) {
    gb_socket_abandon(t->fd);
    gb_transfer_drop(bulk, t);
}

/* Who does not move lets go of what others may need; whoever moves slowly, of what they have had for long. drips: bytes are there. */
static void pause_slow(struct gb_transfer *t, bool drips, uint64_t now_ns) {
    struct gb_exchange *ex = t->ex;

    if (t->state == GB_TRANSFER_BODY && ex->phase == GB_PHASE_BODY && ex->req.sink->pause)
        ex->req.sink->pause(ex->req.sink, !drips && now_ns - ex->moved_ns > TICK_NS);
    if (t->state == GB_TRANSFER_SOURCE && ex->resp.source->pause && now_ns - t->moved_ns > TICK_NS)
        ex->resp.source->pause(ex->resp.source);
}

/* Frees t when its time is over. What dripped below the mark is taken. */
static void check_time(struct gb_bulk *bulk, struct gb_transfer *t, bool drips, uint64_t now_ns) {
    struct gb_error err = GB_ERROR_INIT;

    switch (t->state) {
    case GB_TRANSFER_CONTINUE:
    case GB_TRANSFER_BODY:
        if (gb_exchange_stalled(t->ex, now_ns, &err))
            gb_bulk_fail(bulk, t, &err);
        else if (drips)
            gb_transfer_run(bulk, t);
        return;
    case GB_TRANSFER_WAIT:
        if (t->ex->phase != GB_PHASE_WAIT || t->ex->req.deadline_ns > now_ns)
            return;
        t->ex->req.timed_out = true;
        gb_transfer_run(bulk, t);
        return;
    case GB_TRANSFER_HEAD:
    case GB_TRANSFER_BLOCK:
    case GB_TRANSFER_SOURCE:
        if (too_slow_out(bulk, t, now_ns))
            drop_slow(bulk, t);
        return;
    case GB_TRANSFER_IDLE:
        if (atomic_load(&bulk->server->draining))
            gb_transfer_drop(bulk, t);
        else if (now_ns - t->began_ns > SETTLE_NS)
            gb_transfer_hand_back(bulk, t);
        return;
    case GB_TRANSFER_LINGER:
        if (now_ns - t->began_ns > LINGER_NS)
            gb_transfer_drop(bulk, t);
        return;
    }
}

void gb_bulk_tick(struct gb_bulk *bulk) {
    uint64_t now_ns = gb_clock_ns();
    struct gb_transfer *t;
    struct gb_transfer *next;
    bool drips;

    if (now_ns < bulk->next_tick_ns)
        return;
    bulk->next_tick_ns = now_ns + TICK_NS;
    for (t = bulk->transfers; t; t = next) {
        next = t->next;
        drips = t->mark > 1 && gb_transfer_has_bytes(t);
        pause_slow(t, drips, now_ns);
        check_time(bulk, t, drips, now_ns);
    }
}

void gb_bulk_woken(struct gb_bulk *bulk) {
    unsigned left = gb_inbox_visit(&bulk->inbox);
    struct gb_exchange *ex;

    for (; left > 0 && (ex = gb_inbox_take(&bulk->inbox)); left--) {
        on_woken(bulk, ex);
        gb_exchange_unref(ex);
    }
    gb_inbox_leave(&bulk->inbox);
}

/* One round: waits for events up to timeout_ms (-1: without limit) and handles them. */
static void poll_bulk(struct gb_bulk *bulk, int timeout_ms) {
    struct epoll_event events[EVENTS];
    int n = epoll_wait(bulk->epoll_fd, events, EVENTS, timeout_ms);
    bool woken = false;
    int i;

    /* Events first: what an inbox visit frees must not be looked at afterwards. */
    for (i = 0; i < n; i++) {
        if (events[i].data.ptr)
            gb_bulk_event(bulk, events[i].data.ptr, events[i].events);
        else
            woken = true;
    }
    if (woken)
        gb_bulk_woken(bulk);
    gb_bulk_tick(bulk);
}

static void *bulk_main(void *arg) {
    struct gb_bulk *bulk = arg;

    while (!atomic_load(&bulk->server->stopping))
        poll_bulk(bulk, bulk->transfers ? (int)(TICK_NS / GB_NS_PER_MS) : -1);
    return NULL;
}

int gb_bulk_init(struct gb_bulk *bulk, struct gb_http_server *server, uint64_t turn_bytes, struct gb_error *err) {
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = NULL};

    bulk->server = server;
    bulk->turn_bytes = turn_bytes;
    if (gb_inbox_init(&bulk->inbox, err) < 0)
        return -1;
    bulk->latency = gb_latency_table_new(server->config.route_count);
    if (!bulk->latency)
        return gb_error_set(err, GB_ERR_INTERNAL, "no memory for the server");
    bulk->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (bulk->epoll_fd < 0 || epoll_ctl(bulk->epoll_fd, EPOLL_CTL_ADD, bulk->inbox.event_fd, &ev) < 0)
        return gb_error_errno(err, GB_ERR_INTERNAL, "epoll_create1 or epoll_ctl", errno);
    return 0;
}

int gb_bulk_start(struct gb_bulk *bulk, struct gb_http_server *server, struct gb_error *err) {
    if (gb_bulk_init(bulk, server, TURN_BYTES, err) < 0 ||
        gb_thread_start(&bulk->thread, "gb-bulk", bulk_main, bulk, err) < 0)
        return -1;
    bulk->started = true;
    return 0;
}

void gb_bulk_join(struct gb_bulk *bulk) {
    if (!bulk->started)
        return;
    gb_inbox_signal(&bulk->inbox);
    pthread_join(bulk->thread, NULL);
    bulk->started = false;
}

void gb_bulk_done(struct gb_bulk *bulk) {
    struct gb_transfer *t;
    struct gb_exchange *ex;

    if (!bulk->server)
        return;
    /* Connections that left a loop too late for this one's thread. */
    while ((ex = gb_inbox_take(&bulk->inbox))) {
        if (ex->transfer && !ex->transfer->listed && !bulk->loop)
            link_transfer(bulk, ex->transfer);
        gb_exchange_unref(ex);
    }
    while ((t = bulk->entering)) {
        bulk->entering = t->next;
        link_transfer(bulk, t);
    }
    while (bulk->transfers)
        gb_transfer_drop(bulk, bulk->transfers);
    if (bulk->epoll_fd >= 0)
        close(bulk->epoll_fd);
    gb_inbox_done(&bulk->inbox);
    gb_latency_table_free(bulk->latency);
    bulk->latency = NULL;
}
