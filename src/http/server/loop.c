/* The thread of an HTTP loop. A turn waits in one epoll set, which has libmicrohttpd's within it, and serves whatever
 * has events: wakes, handoffs, handshakes, short transfers, libmicrohttpd. Ticks find what has no event: silence, slow
 * clients, missed ends of connections, and a loop that turns without progress. http/server.c starts and ends it. */
#include <errno.h>
#include <microhttpd.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "http/server/connection.h"
#include "http/server/detach.h"
#include "http/server/exchange.h"
#include "http/server/loop.h"
#include "http/server/request.h"
#include "http/server/tls_front.h"

/* --- watchdog ----------------------------------------------------------------------------------------------------- */

/* libmicrohttpd asks for another turn while it has work left. If it can neither read nor answer a connection, that work
 * never ends: 0.9.75 has had such states, and the loop then takes a whole core. */

/* Between two sweeps. A loop that works has few of these turns; a loop that spins has a hundred thousand. */
#define IDLE_TURNS_MAX 2000
#define FRUITLESS_MAX 1000

/* libmicrohttpd counts whole seconds. */
#define TIMEOUT_S 1

/* Whether libmicrohttpd leaves bytes, or the end, in the socket. */
static bool is_unread(const struct gb_conn *c) {
    char byte;

    return (!c->ex || !c->ex->suspended) && recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
}

static void end_soon(const struct gb_loop *loop, struct gb_conn *c) {
    const struct gb_http_server_config *config = &loop->server->config;
    char text[160];

    snprintf(text, sizeof(text),
             "an HTTP loop turned %u times without progress; the %s connection that causes it is ended",
             loop->idle_turns, c->local ? "UNIX" : "TCP");
    if (config->stuck)
        config->stuck(config->app, text);
    MHD_set_connection_option(c->mhd, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)TIMEOUT_S);
}

/* Due with each sweep, before idle_turns begins again. On the loop's thread. */
static void watch_turns(struct gb_loop *loop) {
    bool spins = loop->idle_turns > IDLE_TURNS_MAX;
    struct gb_conn *c;

    for (c = loop->conns; c; c = c->next) {
        bool suspect = spins && !c->left && !c->handover && (c->fruitless > FRUITLESS_MAX || is_unread(c));

        /* The bytes may have come just now: the second check decides. */
        if (suspect && c->suspect)
            end_soon(loop, c);
        c->suspect = suspect;
        c->fruitless = 0;
    }
    loop->idle_turns = 0;
}

/* --- sweep -------------------------------------------------------------------------------------------------------- */

#define PAUSE_NS (50 * GB_NS_PER_MS)

/* A client that has closed its side and waits is asked so often whether it is there. */
#define ASK_NS (5000 * GB_NS_PER_MS)

#define PEEK_MAX_NS (16000 * GB_NS_PER_MS)

/* libmicrohttpd misses the end of a stream that arrives together with the last bytes it reads. */
static bool has_ended(const struct gb_conn *c) {
    char byte;

    return recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* Over TCP a client that has closed its own side alone seems to be gone. After a while an interim response
 * distinguishes them: the one discards it (RFC 9110, 15.2), the other's kernel resets the connection. */
static void ask_half_closed(struct gb_conn *c, uint64_t now_ns) {
    static const char line[] = "HTTP/1.1 100 Continue\r\n\r\n";
    const ssize_t n = sizeof(line) - 1;

    if (c->half_closed_ns == 0)
        c->half_closed_ns = now_ns;
    if (c->local || c->ex->req.http10 || now_ns - c->half_closed_ns < ASK_NS)
        return;
    c->half_closed_ns = now_ns;
    if (send(c->fd, line, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT) != n)
        shutdown(c->fd, SHUT_RDWR);
}

/* Whether a client that waits for its answer has gone. If it may still read, a change continues (transfer_loop.c). */
static bool has_left(struct gb_conn *c, uint64_t now_ns) {
    struct pollfd gone = {.fd = c->fd, .events = 0};
    char byte;
    ssize_t n = recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    if (n != 0)
        return n < 0 && errno != EAGAIN && errno != EINTR;
    if (gb_http_is_safe(c->ex->req.method) || poll(&gone, 1, 0) > 0)
        return true;
    ask_half_closed(c, now_ns);
    return false;
}

/* Replies in the kernel's queue are unread too. A connection that polls all the time is not checked. */
static void sweep_unread(struct gb_conn *c, uint64_t now_ns) {
    if (c->read_all || now_ns - c->idle_ns < GB_NS_PER_S || gb_peer_busy(c->peer))
        return;
    c->read_all = gb_socket_queued(gb_front_wire(c)) == 0;
    if (c->read_all)
        return;
    gb_progress_look(&c->progress, gb_front_wire(c), c->local, now_ns);
    if (gb_progress_slow(&c->progress, &c->loop->server->config, now_ns))
        gb_front_drop(c);
}

static void sweep_idle(struct gb_conn *c, uint64_t now_ns) {
    struct gb_http_server *server = c->loop->server;
    const struct gb_http_server_config *config = &server->config;
    bool first = !c->asked && config->header_timeout_s && config->header_timeout_s < config->idle_timeout_s;
    uint64_t patience_ns = (first ? config->header_timeout_s : config->idle_timeout_s) * GB_NS_PER_S;
    bool over =
        atomic_load(&server->draining) || (patience_ns && now_ns - c->idle_ns > patience_ns && !gb_peer_busy(c->peer));

    sweep_unread(c, now_ns);
    if (over || (now_ns >= c->peek_ns && has_ended(c)))
        gb_front_cut(c);
    /* An end may come unnoticed at any time, with a part of a header. The checks become rarer, because there may be
     * thousands of connections. */
    if (now_ns >= c->peek_ns) {
        c->peek_ns = now_ns + (now_ns - c->idle_ns) / 2;
        if (c->peek_ns > now_ns + PEEK_MAX_NS)
            c->peek_ns = now_ns + PEEK_MAX_NS;
    }
}

/* A wait for the source's next bytes does not count against the client, and is bounded elsewhere. */
static void sweep_replying(struct gb_conn *c, bool waits, uint64_t now_ns) {
    if (waits)
        gb_progress_excuse(&c->progress, now_ns);
    else
        gb_progress_look(&c->progress, gb_front_wire(c), c->local, now_ns);
    if (gb_progress_slow(&c->progress, &c->loop->server->config, now_ns))
        gb_front_drop(c);
}

/* The check of a connection that is due every second. On the loop's thread. */
static void sweep(struct gb_loop *loop, struct gb_conn *c, uint64_t now_ns) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_exchange *ex = c->ex;

    if (c->left || c->handover)
        return;
    if (c->idle_ns) {
        sweep_idle(c, now_ns);
    } else if (c->replied_ns) {
        if (ex && ex->phase == GB_PHASE_STREAM && ex->resp.source && ex->resp.source->pause &&
            now_ns - c->replied_ns > PAUSE_NS)
            ex->resp.source->pause(ex->resp.source);
        sweep_replying(c, ex && ex->suspended, now_ns);
    } else if (ex && ex->phase == GB_PHASE_WAIT) {
        if (ex->req.cancel && has_left(c, now_ns))
            ex->req.cancel(&ex->req, true);
        else if (ex->req.park && has_left(c, now_ns))
            gb_mhd_request_timed_out(loop, ex);
    } else if (ex && ex->phase == GB_PHASE_DISCARD) {
        if (has_ended(c) || gb_exchange_rest_late(ex, now_ns))
            gb_mhd_request_answer_early(loop, ex);
    } else if (ex && ex->phase == GB_PHASE_BODY) {
        if (!ex->suspended && has_ended(c))
            gb_error_set(&err, GB_ERR_INCOMPLETE_BODY, "the connection ended after %llu bytes of the body",
                         (unsigned long long)ex->body_received);
        if (ex->req.sink->pause)
            ex->req.sink->pause(ex->req.sink, now_ns - ex->moved_ns > PAUSE_NS);
        if (err.code != GB_OK || gb_exchange_stalled(ex, now_ns, &err))
            gb_mhd_request_drop(loop, ex, &err);
    }
}

/* Ends what is under way on the connection if its caller is no longer in force. On the loop's thread. */
static void end_if_revoked(struct gb_loop *loop, struct gb_conn *c) {
    struct gb_error err = GB_ERROR_INIT;

    if (c->left || c->handover || !c->ex || !gb_server_revoked(c->ex, gb_front_tls(c), &err))
        return;
    if (c->replied_ns)
        gb_front_drop(c); /* a reply that has begun can only break off */
    else
        gb_mhd_request_revoked(loop, c->ex, &err);
}

/* --- loop --------------------------------------------------------------------------------------------------------- */

#define TICK_NS (50 * GB_NS_PER_MS)
#define SWEEP_NS (1000 * GB_NS_PER_MS)
#define EVENTS 64
#define LAST_RUNS 8
#define TURN_BYTES (1u << 20) /* of a short transfer, before others are served */

/* --- time --------------------------------------------------------------------------------------------------------- */

static void check_waiting(struct gb_loop *loop, uint64_t now_ns) {
    uint64_t longest_ns = loop->server->config.wait_max_s * GB_NS_PER_S;
    struct gb_exchange *ex = loop->waiting;

    while (ex) {
        struct gb_exchange *next = ex->next;

        bool late =
            ex->phase == GB_PHASE_WAIT ? ex->req.deadline_ns <= now_ns : now_ns - ex->req.started_ns > longest_ns;

        if (ex->phase == GB_PHASE_STREAM)
            late = now_ns - ex->info->replied_ns > longest_ns;
        if ((ex->phase == GB_PHASE_WAIT || ex->phase == GB_PHASE_GATHER || ex->phase == GB_PHASE_STREAM) &&
            (late || atomic_load(&loop->server->stopping)))
            gb_mhd_request_timed_out(loop, ex);
        ex = next;
    }
}

/* Permissions have changed since the last check. */
static void end_revoked(struct gb_loop *loop) {
    unsigned rechecks = atomic_load(&loop->server->rechecks);
    struct gb_conn *c;
    struct gb_conn *next;

    if (rechecks == loop->rechecks)
        return;
    loop->rechecks = rechecks;
    for (c = loop->conns; c; c = next) {
        next = c->next;
        end_if_revoked(loop, c);
    }
}

static void tick(struct gb_loop *loop) {
    uint64_t now_ns;
    struct gb_conn *c;
    struct gb_conn *next;

    if (loop->now_ns < loop->next_tick_ns)
        return;
    now_ns = gb_clock_ns(); /* not behind the times that this turn has written down */
    loop->next_tick_ns = now_ns + TICK_NS;
    gb_loop_weigh(loop, now_ns);
    if (loop->own.transfers)
        gb_transfer_loop_tick(&loop->own);
    gb_listen_tick(loop, now_ns);
    check_waiting(loop, now_ns);
    end_revoked(loop);
    if (now_ns < loop->next_sweep_ns)
        return;
    loop->next_sweep_ns = now_ns + (atomic_load(&loop->server->draining) ? TICK_NS : SWEEP_NS);
    watch_turns(loop);
    gb_fronts_sweep(loop, now_ns);
    gb_proxies_sweep(loop, now_ns);
    for (c = loop->conns; c; c = next) {
        next = c->next;
        sweep(loop, c, now_ns);
    }
}

static int loop_timeout(struct gb_loop *loop) {
    MHD_UNSIGNED_LONG_LONG ms;

    if (loop->handovers > 0 || (MHD_get_timeout(loop->mhd, &ms) == MHD_YES && ms == 0))
        return 0;
    return loop->waiting || loop->resumed || loop->own.transfers || !loop->listening ||
                   atomic_load(&loop->server->draining)
               ? (int)(TICK_NS / GB_NS_PER_MS)
               : (int)(SWEEP_NS / GB_NS_PER_MS);
}

/* --- the thread --------------------------------------------------------------------------------------------------- */

static void visit_wake_queue(struct gb_loop *loop, bool had_event) {
    struct gb_handoff handoff;
    struct gb_exchange *ex;
    unsigned left;

    left = gb_wake_queue_visit(&loop->exchanges.wake_queue, had_event);
    if (atomic_load(&loop->server->draining) || gb_listen_differs(loop))
        gb_listen_tick(loop, loop->now_ns);
    while (gb_handoff_take(&loop->handoffs, &handoff))
        gb_conn_adopt_given(loop, &handoff);
    for (; left > 0 && (ex = gb_wake_queue_take(&loop->exchanges.wake_queue)); left--) {
        gb_mhd_request_woken(loop, ex);
        gb_exchange_unref(ex);
    }
    gb_wake_queue_leave(&loop->exchanges.wake_queue);
}

static bool has_answers_left(const struct gb_loop *loop) {
    const struct gb_conn *c = loop->conns;

    while (c && (c->left || !c->ex || c->ex->phase != GB_PHASE_DONE))
        c = c->next;
    return c;
}

/* It may take libmicrohttpd one run to learn that a socket has room, and the next to send. */
static void send_answers(struct gb_loop *loop) {
    unsigned runs = 0;

    do
        MHD_run(loop->mhd);
    while (++runs < LAST_RUNS && has_answers_left(loop));
}

/* No connection may be suspended when libmicrohttpd is stopped. Shutting the sockets down ends the rest. */
static void end_all(struct gb_loop *loop) {
    struct gb_conn *c;
    struct gb_conn *next;

    visit_wake_queue(loop, true);
    gb_detached_stop(&loop->exchanges);
    check_waiting(loop, UINT64_MAX);
    send_answers(loop);
    for (c = loop->conns; c; c = next) {
        next = c->next;
        if (c->ex && c->ex->suspended) {
            c->ex->suspended = false;
            c->ex->phase = GB_PHASE_DONE;
            MHD_resume_connection(c->mhd);
        }
        if (!c->left)
            shutdown(c->fd, SHUT_RDWR);
    }
}

static void run_mhd(struct gb_loop *loop) {
    loop->resumed = false;
    MHD_run(loop->mhd);
    if (loop->handovers > 0)
        MHD_run(loop->mhd);
}

/* What a turn has to visit. */
struct visits {
    bool mhd;
    bool woken; /* exchanges of libmicrohttpd's connections */
    bool own;   /* transfers */
    bool woken_event;
    bool own_event;
};

static void see(struct gb_loop *loop, const struct epoll_event *event, struct visits *v) {
    void *at = event->data.ptr;

    if (!at)
        v->own = v->own_event = true;
    else if (at == &loop->exchanges.wake_queue)
        v->woken = v->woken_event = true;
    else if (at == &loop->mhd)
        v->mhd = true;
    else if (at == &loop->server->peers_fd)
        gb_peers_event(loop->server);
    else if (at == &loop->server->fd_mailboxes)
        gb_fd_mailboxes_event(loop->server);
    else if (gb_listen_event(loop, at) || gb_proxy_event(loop, at, event->events))
        return;
    else if (gb_front_is(at))
        v->mhd = gb_front_event(loop, at, event->events) || v->mhd;
    else
        gb_transfer_loop_event(&loop->own, at, event->events);
}

/* Each part is visited only if it has something: under load a needless system call costs answers. */
static void turn(struct gb_loop *loop) {
    const struct gb_http_server_config *config = &loop->server->config;
    struct visits v = {.woken = gb_wake_queue_rest(&loop->exchanges.wake_queue),
                       .own = gb_wake_queue_rest(&loop->own.wake_queue)};
    struct epoll_event events[EVENTS];
    int timeout_ms = loop_timeout(loop);
    bool left = timeout_ms == 0 && !loop->commit_pending; /* libmicrohttpd has work left */
    bool stay = v.woken || v.own || loop->commit_pending;
    int n = epoll_wait(loop->own.epoll_fd, events, EVENTS, stay ? 0 : timeout_ms);
    uint64_t progress = loop->progress;
    int i;

    gb_wake_queue_awake(&loop->exchanges.wake_queue);
    gb_wake_queue_awake(&loop->own.wake_queue);
    loop->now_ns = gb_clock_ns();
    v.mhd = left || (n == 0 && !stay);
    if (config->begin_turn)
        config->begin_turn(config->app);
    /* Transfers first: the visit of the wake queue may free transfers that events name. */
    for (i = 0; i < n; i++)
        see(loop, &events[i], &v);
    if (v.own)
        gb_transfer_loop_woken(&loop->own, v.own_event);
    if (v.woken)
        visit_wake_queue(loop, v.woken_event);
    /* Connections that have left can wait until libmicrohttpd runs for another reason, but not for ever. */
    if (v.mhd || v.woken || (loop->resumed && loop->now_ns >= loop->next_tick_ns))
        run_mhd(loop);
    gb_fronts_flush(loop);
    if (left && n == 0 && loop->progress == progress)
        loop->idle_turns++;
    tick(loop);
    gb_transfer_loop_enter(&loop->own);
    gb_fronts_free_ended(loop);
    gb_proxies_free_ended(loop);
    loop->commit_pending = config->end_turn && config->end_turn(config->app, n == 0);
    /* Transfers that the end of the turn has woken. */
    if (!loop->commit_pending && gb_wake_queue_any(&loop->own.wake_queue))
        gb_transfer_loop_woken(&loop->own, false);
}

static void *loop_main(void *arg) {
    struct gb_loop *loop = arg;

    while (!atomic_load(&loop->server->stopping) || loop->commit_pending)
        turn(loop);
    gb_listen_tick(loop, gb_clock_ns());
    end_all(loop);
    MHD_run(loop->mhd);
    gb_fronts_done(loop);
    gb_proxies_done(loop);
    MHD_stop_daemon(loop->mhd);
    loop->mhd = NULL;
    return NULL;
}

static void on_error(void *cls, const char *fmt, va_list ap) {
    (void)fmt;
    (void)ap;
    gb_mhd_on_error(cls);
}

/* Names arrive as sent: message/request.c decodes them, because %2F and %00 must not be decoded before the path is
 * split. */
static size_t keep_escapes(void *cls, struct MHD_Connection *connection, char *s) {
    (void)cls;
    (void)connection;
    return strlen(s);
}

static int start_mhd(struct gb_loop *loop, struct gb_error *err) {
    const struct gb_http_server_config *config = &loop->server->config;

    loop->mhd = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME | MHD_ALLOW_UPGRADE | MHD_USE_ERROR_LOG, 0,
        NULL, NULL, (MHD_AccessHandlerCallback)gb_mhd_on_request, loop, MHD_OPTION_EXTERNAL_LOGGER, on_error, loop,
        MHD_OPTION_CONNECTION_LIMIT, config->connections_max + 64, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        config->connection_memory, MHD_OPTION_NOTIFY_CONNECTION, gb_conn_on_connection, loop,
        MHD_OPTION_NOTIFY_COMPLETED, gb_conn_on_completed, loop, MHD_OPTION_URI_LOG_CALLBACK, gb_mhd_on_uri, loop,
        MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL, MHD_OPTION_END);
    if (!loop->mhd)
        return gb_error_set(err, GB_ERR_INTERNAL, "libmicrohttpd did not start");
    loop->reads_leniently = strverscmp(MHD_get_version(), "0.9.76") < 0;
    return 0;
}

static int watch(struct gb_loop *loop, int fd, void *at, struct gb_error *err) {
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = at};

    if (epoll_ctl(loop->own.epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0)
        return gb_error_errno(err, GB_ERR_INTERNAL, "epoll_ctl", errno);
    return 0;
}

static int start_own(struct gb_loop *loop, struct gb_error *err) {
    struct gb_http_server *server = loop->server;

    loop->own.server = server;
    loop->own.loop = loop;
    loop->own.hand_back = gb_conn_hand_back;
    loop->own.crowded = gb_loop_crowded;
    loop->own.latency = server->latency[loop - server->loops];
    loop->own.turn_bytes = TURN_BYTES;
    return gb_transfer_loop_init(&loop->own, err);
}

int gb_loop_init(struct gb_loop *loop, struct gb_http_server *server, struct gb_error *err) {
    const union MHD_DaemonInfo *info;

    loop->server = server;
    loop->exchanges.next_id = server->id_seed + ((uint64_t)(loop - server->loops) << 48);
    loop->own.epoll_fd = -1;
    gb_mutex_init(&loop->handoffs.lock);
    if (gb_wake_queue_init(&loop->exchanges.wake_queue, err) < 0)
        return -1;
    if (start_mhd(loop, err) < 0 || gb_handover_init(loop, err) < 0 || start_own(loop, err) < 0)
        return -1;
    info = MHD_get_daemon_info(loop->mhd, MHD_DAEMON_INFO_EPOLL_FD);
    if (!info)
        return gb_error_set(err, GB_ERR_INTERNAL, "libmicrohttpd has no epoll descriptor");
    if (watch(loop, info->epoll_fd, &loop->mhd, err) < 0 ||
        watch(loop, loop->exchanges.wake_queue.event_fd, &loop->exchanges.wake_queue, err) < 0)
        return -1;
    if (loop == server->loops && (watch(loop, server->peers_fd, &server->peers_fd, err) < 0 ||
                                  watch(loop, server->fd_mailboxes.epoll_fd, &server->fd_mailboxes, err) < 0))
        return -1;
    return gb_listen_start(loop, err);
}

int gb_loop_start(struct gb_loop *loop, struct gb_error *err) {
    if (gb_thread_start(&loop->thread, "gb-http", loop_main, loop, err) < 0)
        return -1;
    loop->started = true;
    return 0;
}

void gb_loop_join(struct gb_loop *loop) {
    if (!loop->started)
        return;
    gb_wake_queue_signal(&loop->exchanges.wake_queue);
    pthread_join(loop->thread, NULL);
    loop->started = false;
}

void gb_loop_done(struct gb_loop *loop) {
    struct gb_handoff handoff;

    if (!loop->server)
        return;
    if (loop->mhd)
        MHD_stop_daemon(loop->mhd);
    gb_handover_done(loop);
    gb_transfer_loop_done(&loop->own);
    gb_detached_done(&loop->exchanges);
    gb_wake_queue_done(&loop->exchanges.wake_queue);
    while (gb_handoff_take(&loop->handoffs, &handoff))
        gb_handoff_end(&loop->server->places, &handoff);
    free(loop->handoffs.list);
    pthread_mutex_destroy(&loop->handoffs.lock);
}
