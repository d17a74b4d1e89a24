/* A loop that moves the bodies of requests: it takes exchanges from HTTP loops, waits for their sockets, and drops the
 * slow. Its thread alone touches its transfers, and never waits for one of them. transfer.c moves the bytes. */
#include "http/server/transfer_loop.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "http/server/exchange.h"
#include "http/tls/tls.h"

#define EVENTS 64
#define TICK_NS (100 * GB_NS_PER_MS)
#define LINGER_NS (2 * GB_NS_PER_S)
#define SHORT_BYTES (4u << 20)
#define TURN_BYTES (8u << 20)

/* After an answer, most clients ask again or end within this time. One that does neither is quiet, and goes back to an
 * HTTP loop. */
#define SETTLE_NS GB_NS_PER_S

/* --- which loop --------------------------------------------------------------------------------------------------- */

/* The length of a chunked body is not known; a JSON document is short. */
static uint64_t still_to_come(const struct gb_exchange *ex) {
    if (ex->req.chunked)
        return ex->req.route->body == GB_BODY_STREAM ? UINT64_MAX : 0;
    return ex->req.content_length - ex->body_received;
}

static struct gb_transfer_loop *pick(struct gb_transfer_loop *own, const struct gb_exchange *ex) {
    struct gb_http_server *server = own->server;
    struct gb_transfer_loop *best = &server->transfer_loops[0];
    uint64_t in = ex->phase == GB_PHASE_BODY ? still_to_come(ex) : 0;
    uint64_t out = ex->phase == GB_PHASE_REPLY ? ex->resp.source_len + gb_reply_bytes(ex) : 0;
    unsigned i;

    /* Waking another thread would cost more than moving so little. */
    if (in <= SHORT_BYTES && out <= SHORT_BYTES)
        return own;
    for (i = 1; i < server->config.bulk_loops; i++) {
        if (atomic_load(&server->transfer_loops[i].load) < atomic_load(&best->load))
            best = &server->transfer_loops[i];
    }
    return best;
}

int gb_transfer_loop_give(struct gb_transfer_loop *own, struct gb_exchange *ex, const struct gb_handoff *socket) {
    struct gb_http_transfer *t = calloc(1, sizeof(*t));
    struct gb_http_server *server = own->server;
    struct gb_transfer_loop *best = pick(own, ex);

    if (!t)
        return -1;
    t->fd = socket->fd;
    t->from = *socket;
    t->ex = ex;
    t->moved_ns = t->began_ns = gb_clock_ns();
    ex->transfer = t;
    ex->fd = t->fd;
    atomic_fetch_add(&best->load, 1);
    atomic_fetch_add(&server->transfers, 1);
    gb_exchange_own(ex, &best->wake_queue);
    if (best != own) {
        gb_http_wake(&ex->req);
        return 0;
    }
    /* No wake is needed: this thread enters it before it sleeps. */
    t->next = best->entering;
    best->entering = t;
    return 0;
}

/* --- events ------------------------------------------------------------------------------------------------------- */

static void first_visit(struct gb_transfer_loop *loop, struct gb_http_transfer *t) {
    const struct gb_exchange *ex = t->ex;

    gb_http_transfer_link(loop, t);
    t->state = GB_HTTP_TRANSFER_BODY;
    if (ex->phase == GB_PHASE_BODY && ex->req.expect_continue && ex->body_received == 0 && ex->early_len == 0)
        t->state = GB_HTTP_TRANSFER_CONTINUE;
    gb_http_transfer_run(loop, t);
}

void gb_transfer_loop_enter(struct gb_transfer_loop *loop) {
    struct gb_http_transfer *t;

    while ((t = loop->entering)) {
        loop->entering = t->next;
        first_visit(loop, t);
    }
}

static void on_woken(struct gb_transfer_loop *loop, struct gb_exchange *ex) {
    struct gb_http_transfer *t = ex->transfer;

    if (!t || t->ex != ex)
        return;
    if (t->listed)
        gb_http_transfer_run(loop, t);
    else if (!loop->loop)
        first_visit(loop, t); /* inside a loop, gb_transfer_loop_enter visits it */
}

/* The client of a request that waits long has closed its side, or is gone. Over TCP both are the same at first. A
 * question is then answered at once with what there is. A change continues: the client may read what came of it. */
static void on_left(struct gb_http_transfer *t, bool gone) {
    if (gone || gb_http_is_safe(t->ex->req.method))
        t->ex->req.timed_out = true;
    else
        t->half_closed = true;
}

void gb_transfer_loop_event(struct gb_transfer_loop *loop, struct gb_http_transfer *t, uint32_t events) {
    if (t->from.tls)
        gb_tls_woken(t->from.tls);
    if (t->state == GB_HTTP_TRANSFER_WAIT && t->ex->parked && (events & (EPOLLRDHUP | EPOLLERR | EPOLLHUP))) {
        on_left(t, events & (EPOLLERR | EPOLLHUP));
    } else if (t->armed == 0 && (events & (EPOLLERR | EPOLLHUP))) {
        /* The transfer does not wait for this socket now. Sending the reply will show that the client is gone. */
        epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, t->fd, NULL);
        t->watched = false;
        return;
    }
    gb_http_transfer_run(loop, t);
}

/* The source gives nothing while the client has taken all: the time does not count against the client. */
static bool waits_for_source(const struct gb_http_transfer *t) {
    return t->state == GB_HTTP_TRANSFER_SOURCE && t->armed == 0 && gb_socket_queued(t->fd) == 0;
}

static bool too_slow_out(const struct gb_transfer_loop *loop, struct gb_http_transfer *t, uint64_t now_ns) {
    const struct gb_http_server_config *config = &loop->server->config;

    if (waits_for_source(t)) {
        gb_progress_excuse(&t->progress, now_ns);
        return now_ns - t->moved_ns > config->wait_max_s * GB_NS_PER_S;
    }
    gb_progress_look(&t->progress, t->fd, t->from.local, now_ns);
    return gb_progress_slow(&t->progress, config, now_ns);
}

static void drop_slow(struct gb_transfer_loop *loop, struct gb_http_transfer *t) {
    gb_socket_abandon(t->fd);
    gb_http_transfer_drop(loop, t);
}

/* A stalled transfer releases its slots when others wait for one; a slow one, those that it has had for long. drips:
 * bytes are there. */
static void pause_slow(struct gb_http_transfer *t, bool drips, uint64_t now_ns) {
    struct gb_exchange *ex = t->ex;

    if (t->state == GB_HTTP_TRANSFER_BODY && ex->phase == GB_PHASE_BODY && ex->req.sink->pause)
        ex->req.sink->pause(ex->req.sink, !drips && now_ns - ex->moved_ns > TICK_NS);
    if (t->state == GB_HTTP_TRANSFER_SOURCE && ex->resp.source->pause && now_ns - t->moved_ns > TICK_NS)
        ex->resp.source->pause(ex->resp.source);
}

/* Frees t when its time has ended. Bytes that dripped below the mark are taken. */
static void check_time(struct gb_transfer_loop *loop, struct gb_http_transfer *t, bool drips, uint64_t now_ns) {
    struct gb_error err = GB_ERROR_INIT;

    if (t->paced) {
        gb_pace_excuse(t, now_ns);
        gb_http_transfer_run(loop, t);
        return;
    }
    switch (t->state) {
    case GB_HTTP_TRANSFER_CONTINUE:
    case GB_HTTP_TRANSFER_BODY:
        if (t->ex->phase == GB_PHASE_DISCARD) {
            if (!gb_exchange_rest_late(t->ex, now_ns))
                return;
            t->ex->phase = GB_PHASE_REPLY;
            gb_http_transfer_run(loop, t);
        } else if (gb_exchange_stalled(t->ex, now_ns, &err))
            gb_http_transfer_fail(loop, t, &err);
        else if (drips)
            gb_http_transfer_run(loop, t);
        return;
    case GB_HTTP_TRANSFER_WAIT:
        if (t->ex->phase != GB_PHASE_WAIT || t->ex->req.deadline_ns > now_ns)
            return;
        t->ex->req.timed_out = true;
        gb_http_transfer_run(loop, t);
        return;
    case GB_HTTP_TRANSFER_HEAD:
    case GB_HTTP_TRANSFER_BLOCK:
    case GB_HTTP_TRANSFER_SOURCE:
        if (too_slow_out(loop, t, now_ns))
            drop_slow(loop, t);
        return;
    case GB_HTTP_TRANSFER_IDLE:
        if (atomic_load(&loop->server->draining))
            gb_http_transfer_drop(loop, t);
        else if (now_ns - t->began_ns > SETTLE_NS)
            gb_http_transfer_hand_back(loop, t);
        return;
    case GB_HTTP_TRANSFER_LINGER:
        if (now_ns - t->began_ns > LINGER_NS)
            gb_http_transfer_drop(loop, t);
        return;
    }
}

/* Ends a transfer whose caller is no longer in force. A reply that has begun can only break off. */
static bool end_revoked(struct gb_transfer_loop *loop, struct gb_http_transfer *t) {
    struct gb_error err = GB_ERROR_INIT;

    if (!t->ex || !gb_server_revoked(t->ex, t->from.tls, &err))
        return false;
    if (t->state <= GB_HTTP_TRANSFER_WAIT)
        gb_http_transfer_fail(loop, t, &err);
    else
        drop_slow(loop, t);
    return true;
}

void gb_transfer_loop_tick(struct gb_transfer_loop *loop) {
    uint64_t now_ns = gb_clock_ns();
    struct gb_http_transfer *t;
    struct gb_http_transfer *next;
    bool drips;

    if (now_ns < loop->next_tick_ns)
        return;
    loop->next_tick_ns = now_ns + TICK_NS;
    for (t = loop->transfers; t; t = next) {
        next = t->next;
        if (end_revoked(loop, t))
            continue;
        drips = t->mark > 1 && gb_http_transfer_has_bytes(t);
        pause_slow(t, drips, now_ns);
        check_time(loop, t, drips, now_ns);
    }
}

void gb_transfer_loop_woken(struct gb_transfer_loop *loop, bool had_event) {
    unsigned left = gb_wake_queue_visit(&loop->wake_queue, had_event);
    struct gb_exchange *ex;

    for (; left > 0 && (ex = gb_wake_queue_take(&loop->wake_queue)); left--) {
        on_woken(loop, ex);
        gb_exchange_unref(ex);
    }
    gb_wake_queue_leave(&loop->wake_queue);
}

/* Waits for events up to timeout_ms (-1: without limit) and handles them. */
static void turn(struct gb_transfer_loop *loop, int timeout_ms) {
    const struct gb_http_server_config *config = &loop->server->config;
    bool woken = gb_wake_queue_rest(&loop->wake_queue);
    struct epoll_event events[EVENTS];
    int n = epoll_wait(loop->epoll_fd, events, EVENTS, woken || loop->commit_pending ? 0 : timeout_ms);
    bool had_event = false;
    int i;

    gb_wake_queue_awake(&loop->wake_queue);
    if (config->begin_turn)
        config->begin_turn(config->app);
    /* Events first: the visit of the wake queue may free transfers that events name. */
    for (i = 0; i < n; i++) {
        if (events[i].data.ptr)
            gb_transfer_loop_event(loop, events[i].data.ptr, events[i].events);
        else
            woken = had_event = true;
    }
    if (woken)
        gb_transfer_loop_woken(loop, had_event);
    gb_transfer_loop_tick(loop);
    loop->commit_pending = config->end_turn && config->end_turn(config->app, n == 0);
}

static void *loop_main(void *arg) {
    struct gb_transfer_loop *loop = arg;

    while (!atomic_load(&loop->server->stopping) || loop->commit_pending)
        turn(loop, loop->transfers ? (int)(TICK_NS / GB_NS_PER_MS) : -1);
    return NULL;
}

int gb_transfer_loop_init(struct gb_transfer_loop *loop, struct gb_error *err) {
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = NULL};

    loop->epoll_fd = -1;
    if (gb_wake_queue_init(&loop->wake_queue, err) < 0)
        return -1;
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (loop->epoll_fd < 0 || epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, loop->wake_queue.event_fd, &ev) < 0)
        return gb_error_errno(err, GB_ERR_INTERNAL, "epoll_create1 or epoll_ctl", errno);
    return 0;
}

int gb_transfer_loop_start(struct gb_transfer_loop *loop, struct gb_error *err) {
    loop->turn_bytes = TURN_BYTES;
    if (gb_transfer_loop_init(loop, err) < 0 || gb_thread_start(&loop->thread, "gb-bulk", loop_main, loop, err) < 0)
        return -1;
    loop->started = true;
    return 0;
}

void gb_transfer_loop_join(struct gb_transfer_loop *loop) {
    if (!loop->started)
        return;
    gb_wake_queue_signal(&loop->wake_queue);
    pthread_join(loop->thread, NULL);
    loop->started = false;
}

void gb_transfer_loop_done(struct gb_transfer_loop *loop) {
    struct gb_http_transfer *t;
    struct gb_exchange *ex;

    if (!loop->server)
        return;
    /* Connections that left an HTTP loop too late for this loop's thread. */
    while ((ex = gb_wake_queue_take(&loop->wake_queue))) {
        if (ex->transfer && !ex->transfer->listed && !loop->loop)
            gb_http_transfer_link(loop, ex->transfer);
        gb_exchange_unref(ex);
    }
    while ((t = loop->entering)) {
        loop->entering = t->next;
        gb_http_transfer_link(loop, t);
    }
    while (loop->transfers)
        gb_http_transfer_drop(loop, loop->transfers);
    if (loop->epoll_fd >= 0)
        close(loop->epoll_fd);
    gb_wake_queue_done(&loop->wake_queue);
}
