/* The front of a connection over TLS: a pair of sockets between libmicrohttpd and the client's socket. The front
 * decrypts into its end and encrypts what comes out of it. It ends when the connection leaves libmicrohttpd. Handoffs
 * and the event loop call this, on the loop's thread. */
#include "http/server/tls_front.h"

#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/container.h"
#include "http/server/exchange.h"
#include "http/server/loop.h"
#include "http/tls/tls.h"

/* Moved at a time; also what may lie in the pair, so that little of a large body goes through it. */
#define PIECE_BYTES 16384

/* The first byte of a handshake. */
#define HANDSHAKE_RECORD 0x16

#define LINGER_NS (2 * GB_NS_PER_S)
#define LINGER_BYTES (16u << 20)

enum front_state {
    HANDSHAKE,
    RELAY,
    LINGER, /* our side is closed; the client's last bytes are read so that it sees the reply */
    ENDED
};

/* Bytes that could not be moved on. */
struct rest {
    char *bytes;
    size_t at;
    size_t len; /* from at on */
};

struct gb_front {
    struct gb_front *prev;
    struct gb_front *next;
    struct gb_front *next_fed; /* of those to be flushed */
    struct gb_handshake handshake;
    struct gb_loop *loop;
    struct gb_handoff socket; /* fd, tls and all that goes along */
    struct gb_conn *conn;     /* libmicrohttpd's connection at the other end; NULL: it has ended */
    enum front_state state;
    int pair; /* our end */
    uint64_t fed;
    struct rest up;
    struct rest down;
    uint64_t since_ns;           /* the state began */
    struct gb_progress progress; /* of the client with what waits for it */
    uint64_t lingered;
    bool begun; /* the client's first byte was read */
    bool client_ended;
    bool reply_ended;
    bool is_cut; /* nothing of the client is on its way that would have to be read before the end */
    bool is_fed;
    uint32_t wire_events;
    uint32_t pair_events;
    bool wire_watched;
    bool pair_watched;
};

/* The two sockets of a front are distinguished by the lowest bits of the event's pointer. */
enum { WIRE = 1, PAIR = 2, TAGS = 3 };

static void *tagged(struct gb_front *f, unsigned tag) {
    return (char *)f + tag;
}

bool gb_front_is(const void *data) {
    return ((uintptr_t)data & TAGS) != 0;
}

/* --- events ------------------------------------------------------------------------------------------------------- */

static void unwatch(struct gb_front *f, int fd, bool *watched) {
    if (*watched)
        epoll_ctl(f->loop->own.epoll_fd, EPOLL_CTL_DEL, fd, NULL);
    *watched = false;
}

static void watch(struct gb_front *f, int fd, unsigned tag, uint32_t events, bool *watched, uint32_t *armed) {
    struct epoll_event ev = {.events = events, .data.ptr = tagged(f, tag)};

    if (*watched && *armed == events)
        return;
    epoll_ctl(f->loop->own.epoll_fd, *watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &ev);
    *watched = true;
    *armed = events;
}

static void watch_both(struct gb_front *f) {
    uint32_t wire = (f->up.len == 0 && !f->client_ended ? EPOLLIN : 0u) | (f->down.len > 0 ? EPOLLOUT : 0u);
    uint32_t pair = (f->down.len == 0 ? EPOLLIN : 0u) | (f->up.len > 0 ? EPOLLOUT : 0u);

    watch(f, f->socket.fd, WIRE, wire, &f->wire_watched, &f->wire_events);
    /* Events that are not asked for, too, would come again and again once libmicrohttpd has closed its end. */
    if (f->pair >= 0 && pair == 0)
        unwatch(f, f->pair, &f->pair_watched);
    else if (f->pair >= 0)
        watch(f, f->pair, PAIR, pair, &f->pair_watched, &f->pair_events);
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

static void close_pair(struct gb_front *f) {
    if (f->pair < 0)
        return;
    unwatch(f, f->pair, &f->pair_watched);
    close(f->pair);
    f->pair = -1;
}

/* The front has no connection any more. Events of this turn may still name it. */
static void part(struct gb_front *f) {
    struct gb_loop *loop = f->loop;

    close_pair(f);
    unwatch(f, f->socket.fd, &f->wire_watched);
    gb_handshake_leave(&loop->handshakes, &f->handshake);
    if (f->conn)
        f->conn->front = NULL;
    f->conn = NULL;
    f->state = ENDED;
    if (f->prev)
        f->prev->next = f->next;
    else
        loop->fronts = f->next;
    if (f->next)
        f->next->prev = f->prev;
    f->next = loop->ended_fronts;
    loop->ended_fronts = f;
    atomic_fetch_sub(&loop->load, 1);
}

static void end(struct gb_front *f) {
    struct gb_handoff socket = f->socket;

    part(f);
    gb_handoff_end(&f->loop->server->places, &socket);
}

static void abandon(struct gb_front *f) {
    gb_socket_abandon(f->socket.fd);
    end(f);
}

/* The reply is out, and no other follows; or the client has the reason why not. */
static void close_side(struct gb_front *f) {
    if (f->is_cut) {
        end(f);
        return;
    }
    gb_tls_end(f->socket.tls);
    shutdown(f->socket.fd, SHUT_WR);
    close_pair(f);
    f->state = LINGER;
    f->since_ns = gb_clock_ns();
    watch(f, f->socket.fd, WIRE, EPOLLIN, &f->wire_watched, &f->wire_events);
}

static void linger(struct gb_front *f) {
    static _Thread_local char waste[64 * 1024];
    ssize_t n = 1;

    while (f->lingered < LINGER_BYTES && (n = recv(f->socket.fd, waste, sizeof(waste), MSG_DONTWAIT)) > 0)
        f->lingered += (uint64_t)n;
    if (f->lingered >= LINGER_BYTES || n == 0 || (errno != EAGAIN && errno != EINTR))
        end(f);
}

/* --- moving ------------------------------------------------------------------------------------------------------- */

static int keep(struct rest *rest, const char *bytes, size_t n) {
    rest->bytes = malloc(n);
    if (!rest->bytes)
        return -1;
    memcpy(rest->bytes, bytes, n);
    rest->at = 0;
    rest->len = n;
    return 0;
}

static void consume(struct rest *rest, size_t n) {
    rest->at += n;
    rest->len -= n;
    if (rest->len > 0)
        return;
    free(rest->bytes);
    rest->bytes = NULL;
}

static ssize_t feed(struct gb_front *f, const char *bytes, size_t n) {
    ssize_t sent = send(f->pair, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (sent < 0 && errno != EAGAIN && errno != EINTR)
        return (ssize_t)n; /* libmicrohttpd has closed its end, and reads nothing more */
    if (sent < 0)
        return 0;
    f->fed += (uint64_t)sent;
    return sent;
}

/* Each returns -1 if the front is to be abandoned. */
static int flush_up(struct gb_front *f) {
    if (f->up.len > 0)
        consume(&f->up, (size_t)feed(f, f->up.bytes + f->up.at, f->up.len));
    return 0;
}

static int pump_up(struct gb_front *f) {
    char piece[PIECE_BYTES];
    ssize_t n = 0;

    (void)flush_up(f);
    while (f->up.len == 0 && !f->client_ended && (n = gb_tls_recv(f->socket.tls, piece, sizeof(piece))) > 0) {
        ssize_t sent = feed(f, piece, (size_t)n);

        if (sent < n && keep(&f->up, piece + sent, (size_t)(n - sent)) < 0)
            return -1;
    }
    if (f->up.len > 0 || f->client_ended)
        return 0;
    if (n < 0)
        return errno == EAGAIN ? 0 : -1;
    f->client_ended = true;
    shutdown(f->pair, SHUT_WR);
    return 0;
}

static int flush_down(struct gb_front *f) {
    ssize_t n;

    if (f->down.len == 0)
        return 0;
    n = gb_tls_send(f->socket.tls, f->down.bytes + f->down.at, f->down.len, false);
    if (n < 0)
        return errno == EAGAIN ? 0 : -1;
    consume(&f->down, (size_t)n);
    return 0;
}

static int pump_down(struct gb_front *f) {
    char piece[PIECE_BYTES];
    ssize_t n = 0;

    if (flush_down(f) < 0)
        return -1;
    /* Fewer bytes than there is room for are all that there were. */
    do {
        ssize_t sent;

        n = f->down.len > 0 || f->reply_ended ? 0 : recv(f->pair, piece, sizeof(piece), MSG_DONTWAIT);
        if (n <= 0)
            break;
        sent = gb_tls_send(f->socket.tls, piece, (size_t)n, false);

        if (sent < 0 && errno != EAGAIN)
            return -1;
        if (sent < 0)
            sent = 0;
        if (sent < n && keep(&f->down, piece + sent, (size_t)(n - sent)) < 0)
            return -1;
    } while (n == (ssize_t)sizeof(piece));
    if (f->down.len > 0)
        return 0;
    if (!f->reply_ended && (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR))))
        return 0;
    f->reply_ended = true;
    close_side(f);
    return 0;
}

static void pump(struct gb_front *f) {
    if (pump_down(f) < 0 || (f->state == RELAY && pump_up(f) < 0))
        abandon(f);
    else if (f->state == RELAY)
        watch_both(f);
}

/* libmicrohttpd runs next, and its replies are encrypted in the same turn. */
static void note_fed(struct gb_front *f) {
    if (f->is_fed)
        return;
    f->is_fed = true;
    f->next_fed = f->loop->fed;
    f->loop->fed = f;
}

void gb_fronts_flush(struct gb_loop *loop) {
    struct gb_front *f;

    while ((f = loop->fed)) {
        loop->fed = f->next_fed;
        f->is_fed = false;
        if (f->state != RELAY)
            continue;
        if (pump_down(f) < 0)
            abandon(f);
        else if (f->state == RELAY)
            watch_both(f);
    }
}

void gb_fronts_free_ended(struct gb_loop *loop) {
    struct gb_front *f;

    gb_fronts_flush(loop); /* no front may be listed there */
    while ((f = loop->ended_fronts)) {
        loop->ended_fronts = f->next;
        free(f->up.bytes);
        free(f->down.bytes);
        free(f);
    }
}

/* --- beginning ---------------------------------------------------------------------------------------------------- */

/* False: the front has ended. */
static bool begin_relay(struct gb_front *f) {
    struct sockaddr addr = {.sa_family = AF_UNIX};
    struct gb_loop *loop = f->loop;
    struct gb_handoff handoff = f->socket;
    int bytes = PIECE_BYTES;
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0) {
        end(f);
        return false;
    }
    (void)setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    f->pair = pair[0];
    f->state = RELAY;
    f->since_ns = gb_clock_ns();
    handoff.fd = pair[1];
    handoff.front = f;
    loop->adopting = &handoff;
    (void)MHD_add_connection(loop->mhd, pair[1], &addr, sizeof(addr));
    loop->adopting = NULL;
    if (f->conn)
        return true;
    end(f); /* libmicrohttpd has closed its end */
    return false;
}

static void refuse_plain(struct gb_front *f) {
    struct gb_handoff socket = f->socket;

    part(f);
    gb_tls_free(socket.tls);
    gb_conn_slot_end(&f->loop->server->places, socket.source);
    gb_refuse(f->loop, &socket, GB_REFUSAL_PLAIN);
}

/* Reads the client's first byte, which alone says whether a handshake follows: its later records are of other kinds.
 * False: no byte yet, or it is of plain HTTP and the front has ended. */
static bool begin_handshake(struct gb_front *f) {
    unsigned char byte = HANDSHAKE_RECORD;

    if (recv(f->socket.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN) {
        watch(f, f->socket.fd, WIRE, EPOLLIN, &f->wire_watched, &f->wire_events);
        return false;
    }
    f->begun = true;
    if (byte == HANDSHAKE_RECORD)
        return true;
    refuse_plain(f);
    return false;
}

/* Handshakes are spread over the loops, and keep them busy for long; requests are better off together. */
static bool choose_loop(struct gb_front *f) {
    struct gb_http_server *server = f->loop->server;
    struct gb_loop *to = gb_loop_fill(server, GB_LOOP_TOGETHER / server->config.loops);
    struct gb_handoff socket = f->socket;

    if (to == f->loop)
        return begin_relay(f);
    part(f);
    gb_loop_give(to, &socket);
    return false;
}

/* False: it continues later, or the front has ended. */
static bool shake_hands(struct gb_front *f) {
    if (!f->begun && !begin_handshake(f))
        return false;
    switch (gb_tls_handshake(f->socket.tls)) {
    case GB_TLS_WANTS_READ:
        watch(f, f->socket.fd, WIRE, EPOLLIN, &f->wire_watched, &f->wire_events);
        return false;
    case GB_TLS_WANTS_WRITE:
        watch(f, f->socket.fd, WIRE, EPOLLOUT, &f->wire_watched, &f->wire_events);
        return false;
    case GB_TLS_FAILED:
        atomic_fetch_add(&f->loop->server->tls_failures, 1);
        close_side(f);
        linger(f);
        return false;
    case GB_TLS_DONE:
        break;
    }
    atomic_fetch_add(&f->loop->server->tls_handshakes, 1);
    gb_handshake_leave(&f->loop->handshakes, &f->handshake);
    return choose_loop(f);
}

static struct gb_tls *new_tls(struct gb_http_server *server, int fd) {
    struct gb_tls *tls;
    int one = 1;

    /* As libmicrohttpd does on plain connections: the first reply does not wait until the client has acknowledged the
     * tickets before it. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));

    pthread_mutex_lock(&server->tls_lock);
    tls = gb_tls_new(server->tls, fd);
    pthread_mutex_unlock(&server->tls_lock);
    return tls;
}

void gb_front_adopt(struct gb_loop *loop, const struct gb_handoff *handoff) {
    struct gb_front *f = calloc(1, sizeof(*f));
    struct gb_handoff socket = *handoff;

    if (f && !socket.tls)
        socket.tls = new_tls(loop->server, socket.fd);
    if (!f || !socket.tls) {
        free(f);
        gb_handoff_end(&loop->server->places, &socket);
        atomic_fetch_sub(&loop->load, 1);
        return;
    }
    f->loop = loop;
    f->socket = socket;
    f->socket.squeezed = false; /* its place is certain: it may come to another loop */
    f->pair = -1;
    f->since_ns = gb_clock_ns();
    f->next = loop->fronts;
    if (f->next)
        f->next->prev = f;
    loop->fronts = f;
    if (!handoff->tls)
        gb_handshake_enter(&loop->handshakes, &f->handshake);
    if (handoff->tls ? !begin_relay(f) : !shake_hands(f))
        return;
    pump(f);
    if (f->state == RELAY)
        note_fed(f);
}

/* --- on events ---------------------------------------------------------------------------------------------------- */

/* The socket reports its end although nothing is awaited of it. */
static bool is_dead(const struct gb_front *f, uint32_t events) {
    return (events & (EPOLLERR | EPOLLHUP)) && (f->wire_events & (EPOLLIN | EPOLLOUT)) == 0;
}

bool gb_front_event(struct gb_loop *loop, void *data, uint32_t events) {
    unsigned tag = (uintptr_t)data & TAGS;
    struct gb_front *f = (struct gb_front *)((char *)data - tag);

    (void)loop;
    if (f->state == ENDED)
        return false;
    if (tag == WIRE)
        gb_tls_woken(f->socket.tls);
    if (tag == WIRE && is_dead(f, events)) {
        abandon(f);
        return false;
    }
    if (f->state == LINGER) {
        linger(f);
        return false;
    }
    if (f->state == HANDSHAKE && !shake_hands(f))
        return false;
    pump(f);
    if (f->state != RELAY)
        return false;
    note_fed(f);
    return tag == WIRE;
}

/* --- time --------------------------------------------------------------------------------------------------------- */

/* The socket has room again only after much of its queue has left, which a slow client may take for long. */
static bool is_slow(struct gb_front *f, uint64_t now_ns) {
    if (f->down.len == 0) {
        f->progress = (struct gb_progress){.began_ns = 0};
        return false;
    }
    gb_progress_look(&f->progress, f->socket.fd, false, now_ns);
    return gb_progress_slow(&f->progress, &f->loop->server->config, now_ns);
}

static bool is_over(struct gb_front *f, uint64_t now_ns) {
    const struct gb_http_server_config *config = &f->loop->server->config;
    unsigned header_s = config->header_timeout_s && config->header_timeout_s < config->idle_timeout_s
                            ? config->header_timeout_s
                            : config->idle_timeout_s;
    uint64_t passed_ns = now_ns > f->since_ns ? now_ns - f->since_ns : 0;

    switch (f->state) {
    case HANDSHAKE:
        return atomic_load(&f->loop->server->draining) || (header_s && passed_ns > header_s * GB_NS_PER_S);
    case RELAY:
        return is_slow(f, now_ns);
    case LINGER:
        return passed_ns > LINGER_NS;
    case ENDED:
        break;
    }
    return false;
}

void gb_fronts_sweep(struct gb_loop *loop, uint64_t now_ns) {
    struct gb_front *next;
    struct gb_front *f;

    for (f = loop->fronts; f; f = next) {
        next = f->next;
        if (!is_over(f, now_ns))
            continue;
        if (f->state == LINGER)
            end(f);
        else
            abandon(f);
    }
}

bool gb_fronts_give_way(struct gb_loop *loop) {
    struct gb_handshake *oldest = gb_handshakes_first(&loop->handshakes);

    if (!oldest)
        return false;
    abandon(gb_container_of(oldest, struct gb_front, handshake));
    atomic_fetch_add(&loop->server->displaced, 1);
    return true;
}

void gb_fronts_done(struct gb_loop *loop) {
    struct gb_front *f;

    gb_fronts_flush(loop);
    while ((f = loop->fronts)) {
        if (f->state == RELAY) /* the last answers were not asked for in this turn */
            (void)pump_down(f);
        if (f->state != ENDED)
            end(f);
    }
    gb_fronts_free_ended(loop);
}

/* --- libmicrohttpd's end ------------------------------------------------------------------------------------------ */

void gb_front_opened(struct gb_conn *c) {
    c->front->conn = c;
}

void gb_front_closed(struct gb_conn *c) {
    struct gb_front *f = c->front;

    if (!f)
        return;
    c->front = NULL;
    f->conn = NULL; /* the end of the pair follows what is still in it */
}

void gb_front_cut(struct gb_conn *c) {
    if (c->front)
        c->front->is_cut = true;
    shutdown(c->fd, SHUT_RDWR);
}

void gb_front_drop(struct gb_conn *c) {
    if (c->front)
        abandon(c->front);
    gb_socket_abandon(c->fd);
    shutdown(c->fd, SHUT_RDWR);
}

int gb_front_wire(const struct gb_conn *c) {
    return c->front ? c->front->socket.fd : c->fd;
}

uint64_t gb_front_taken(const struct gb_conn *c) {
    int unread = 0;

    return ioctl(c->fd, FIONREAD, &unread) < 0 ? 0 : c->front->fed - (uint64_t)unread;
}

/* Reads what is left in libmicrohttpd's end, and behind it what the pair had no room for. */
static int gather(struct gb_conn *c, char *bytes, size_t n) {
    struct gb_front *f = c->front;
    ssize_t got = n > 0 ? recv(c->fd, bytes, n, MSG_DONTWAIT) : 0;

    if (got < 0 || (size_t)got < n)
        return -1;
    if (f->up.len > 0) {
        memcpy(bytes + n, f->up.bytes + f->up.at, f->up.len);
        n += f->up.len;
        consume(&f->up, f->up.len);
    }
    return gb_tls_unread(f->socket.tls, bytes, n);
}

int gb_front_unread(struct gb_conn *c) {
    struct gb_front *f = c->front;
    char *bytes;
    int n = 0;
    int r;

    if (ioctl(c->fd, FIONREAD, &n) < 0)
        return -1;
    if (n == 0 && f->up.len == 0)
        return 0;
    bytes = malloc((size_t)n + f->up.len);
    if (!bytes)
        return -1;
    r = gather(c, bytes, (size_t)n);
    free(bytes);
    if (r < 0)
        shutdown(c->fd, SHUT_RDWR); /* bytes are lost */
    return r;
}

void gb_front_take(struct gb_conn *c, struct gb_handoff *ret) {
    struct gb_front *f = c->front;
    char piece[PIECE_BYTES];
    ssize_t n;

    /* Earlier replies go first. */
    gb_tls_queue(f->socket.tls, f->down.bytes ? f->down.bytes + f->down.at : NULL, f->down.len);
    while ((n = recv(f->pair, piece, sizeof(piece), MSG_DONTWAIT)) > 0)
        gb_tls_queue(f->socket.tls, piece, (size_t)n);
    (void)gb_tls_flush(f->socket.tls); /* the client may await them before it sends the rest */
    *ret = f->socket;
    ret->returning = c->returning;
    ret->counted = false;
    part(f);
}

const struct gb_http_names *gb_front_names(const struct gb_conn *c) {
    return gb_tls_names(gb_front_tls(c));
}

const struct gb_http_certificate *gb_front_certificate(struct gb_conn *c) {
    return gb_server_certificate(c->loop->server, gb_front_tls(c));
}

struct gb_tls *gb_front_tls(const struct gb_conn *c) {
    return c->front ? c->front->socket.tls : NULL;
}
