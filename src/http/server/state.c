/* The server as its loops share it: configuration, counters, places of connections, the histogram of latencies; the
 * peer of each connection, which is its address, credentials and certificate; and what the bounds of its client let a
 * request do. */
#include "http/server/state.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/thread.h"
#include "http/limits/limits.h"
#include "http/message/network.h"
#include "http/server/exchange.h"
#include "http/tls/tls.h"

/* --- peer --------------------------------------------------------------------------------------------------------- */

/* The process at the other end of a UNIX socket, and the end of its connection as an event.
 *
 * A connection moves between libmicrohttpd, transfer loops and handoff queues, and while a request waits, no thread
 * reads the socket. So a connection for which the application holds something is watched apart: a duplicate of its
 * socket is in an epoll set of its own, which reports only the hang-up. The watch ends with that event and nowhere
 * else; therefore our side shuts such a connection down before closing it. */

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

/* The watch: server->peers_fd, which the first loop polls. */
static int peers_init(struct gb_http_server *server, struct gb_error *err) {
    server->peers_fd = epoll_create1(EPOLL_CLOEXEC);
    return server->peers_fd < 0 ? gb_error_errno(err, GB_ERR_INTERNAL, "epoll_create1", errno) : 0;
}

void gb_peers_event(struct gb_http_server *server) {
    visit(server); /* the others raise the next event */
}

/* After all connections have ended. */
static void peers_done(struct gb_http_server *server) {
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

/* --- requests ----------------------------------------------------------------------------------------------------- */

/* libmicrohttpd reports only whether everything was sent. */
static uint64_t bytes_sent(const struct gb_exchange *ex) {
    const struct gb_http_response *resp = &ex->resp;

    if (ex->transfer)
        return ex->body_sent;
    if (ex->broken || ex->req.method == GB_HTTP_HEAD || resp->status == 304)
        return 0;
    return resp->source_len > 0 ? resp->source_len : gb_reply_bytes(ex);
}

static void tell(const struct gb_http_server_config *config, const struct gb_exchange *ex, int status, uint64_t ns) {
    const struct gb_http_response *resp = &ex->resp;
    const struct gb_http_end end = {.status = status,
                                    .code = ex->err.code,
                                    .ns = ns,
                                    .body_ns = ex->moved_ns > 0 ? ex->moved_ns - ex->req.started_ns : 0,
                                    .received = ex->body_received,
                                    .sent = bytes_sent(ex),
                                    .response = resp,
                                    .peer = ex->peer ? &ex->peer->seen : NULL};

    config->ended(config->app, &ex->req, &end);
}

/* The bytes of the request that were moved without asking count now. At its end, before the response is freed. */
static void charge_rest(struct gb_exchange *ex) {
    struct gb_bucket_rate rate = ex->client ? gb_client_bytes(ex->client) : (struct gb_bucket_rate){0};
    uint64_t moved = ex->body_received;

    if (rate.per_s == 0)
        return;
    if (!ex->broken)
        moved += ex->resp.source_len > 0 && ex->req.method != GB_HTTP_HEAD ? ex->resp.source_len : gb_reply_bytes(ex);
    if (moved > ex->paid_bytes)
        gb_bucket_charge(&ex->client->bytes, rate, moved - ex->paid_bytes, gb_clock_ns());
    ex->paid_bytes = moved;
}

void gb_server_ended(struct gb_latency_table *latency, struct gb_exchange *ex) {
    const struct gb_http_server_config *config = &ex->server->config;
    size_t route = ex->req.route ? (size_t)(ex->req.route - config->routes) : config->route_count;
    uint64_t ns = gb_clock_ns() - ex->req.started_ns;
    int status = ex->broken ? 0 : ex->resp.status;

    charge_rest(ex);
    gb_latency_record(latency, route, status, ns);
    atomic_fetch_sub_explicit(&ex->loop->active, 1, memory_order_release);
    if (config->ended)
        tell(config, ex, status, ns);
}

const struct gb_http_certificate *gb_server_certificate(struct gb_http_server *server, struct gb_tls *tls) {
    struct gb_tls_context *context;

    if (tls && !gb_tls_is_verified(tls, atomic_load(&server->tls))) {
        pthread_mutex_lock(&server->tls_lock);
        context = gb_tls_context_ref(server->tls);
        pthread_mutex_unlock(&server->tls_lock);
        gb_tls_verify(tls, context);
        gb_tls_context_unref(context);
    }
    return gb_tls_certificate_ref(tls);
}

bool gb_server_revoked(struct gb_exchange *ex, struct gb_tls *tls, struct gb_error *err) {
    const struct gb_http_server_config *config = &ex->server->config;
    unsigned rechecks = atomic_load_explicit(&ex->server->rechecks, memory_order_acquire);

    if (ex->checked == rechecks)
        return false;
    ex->checked = rechecks;
    if (ex->req.caller > 0 && ex->req.certificate) {
        gb_tls_certificate_unref(gb_server_certificate(ex->server, tls));
        if (gb_http_certificate_check(ex->req.certificate, err) < 0)
            return true;
    }
    if (ex->req.caller == 0 || !config->in_force || config->in_force(config->app, ex->req.caller))
        return false;
    gb_error_set(err, GB_ERR_UNAUTHENTICATED, "the token has expired or was revoked while the request was under way");
    return true;
}

struct gb_http_server *gb_http_server_of(const struct gb_http_request *request) {
    return ((const struct gb_exchange *)request)->server;
}

/* --- life --------------------------------------------------------------------------------------------------------- */

static int no_memory(struct gb_error *err) {
    return gb_error_set(err, GB_ERR_INTERNAL, "no memory for the server");
}

/* One end of a pair whose other end is closed: each read gives the end of the stream. */
static int make_dead(struct gb_http_server *server, struct gb_error *err) {
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return gb_error_errno(err, GB_ERR_INTERNAL, "socketpair", errno);
    close(pair[1]);
    server->dead_fd = pair[0];
    return 0;
}

static bool is_local(int fd) {
    int domain = AF_INET;
    socklen_t len = sizeof(domain);

    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain == AF_UNIX;
}

bool gb_server_is_local(const struct gb_http_server *server) {
    bool local = false;
    size_t i;

    for (i = 0; i < server->config.listen_fd_count; i++)
        local = local || server->listen_local[i];
    return local;
}

static int copy_config(struct gb_http_server *server, struct gb_error *err) {
    const struct gb_http_server_config *config = &server->config;
    size_t i;

    server->hosts = calloc(config->host_count + 1, sizeof(*server->hosts));
    server->listen_fds = calloc(config->listen_fd_count + 1, sizeof(*server->listen_fds));
    server->listen_next = calloc(config->listen_fd_count + 1, sizeof(*server->listen_next));
    server->listen_local = calloc(config->listen_fd_count + 1, sizeof(*server->listen_local));
    server->listen_tls = calloc(config->listen_fd_count + 1, sizeof(*server->listen_tls));
    if (!server->hosts || !server->listen_fds || !server->listen_next || !server->listen_local || !server->listen_tls)
        return no_memory(err);
    for (i = 0; i < config->listen_fd_count; i++) {
        server->listen_fds[i] = config->listen_fds[i];
        atomic_init(&server->listen_next[i], -1);
        server->listen_local[i] = is_local(config->listen_fds[i]);
        server->listen_tls[i] = config->listen_tls && config->listen_tls[i];
    }
    for (i = 0; i < config->host_count; i++) {
        server->hosts[i] = strdup(config->hosts[i]);
        if (!server->hosts[i])
            return no_memory(err);
    }
    server->rules = (struct gb_request_rules){.hosts = (const char *const *)server->hosts,
                                              .host_count = config->host_count,
                                              .pages = config->pages,
                                              .page_count = config->page_count,
                                              .origins = config->origins,
                                              .origin_count = config->origin_count};
    return gb_router_init(&server->router, config->routes, config->route_count, err);
}

static int make_latency(struct gb_http_server *server, struct gb_error *err) {
    size_t count = (size_t)server->config.loops + server->config.bulk_loops;

    server->latency = calloc(count, sizeof(struct gb_latency_table *));
    if (!server->latency)
        return no_memory(err);
    for (; server->latency_count < count; server->latency_count++) {
        server->latency[server->latency_count] = gb_latency_table_new(server->config.route_count);
        if (!server->latency[server->latency_count])
            return no_memory(err);
    }
    return 0;
}

static int init_places(struct gb_http_server *server, struct gb_error *err) {
    if (gb_conn_slots_init(&server->places, server->config.connections_max, server->config.source_max,
                           gb_server_is_local(server), err) < 0)
        return -1;
    server->places.bound_loopback = server->config.bounds.local;
    return 0;
}

struct gb_http_server *gb_server_state_new(const struct gb_http_server_config *config, struct gb_error *err) {
    struct gb_http_server *server = calloc(1, sizeof(*server));

    if (!server) {
        no_memory(err);
        return NULL;
    }
    server->config = *config;
    server->dead_fd = -1;
    server->peers_fd = -1;
    server->fd_mailboxes.epoll_fd = -1;
    gb_mutex_init(&server->tls_lock);
    if (config->tls)
        server->tls = gb_tls_context_ref(config->tls);
    if (copy_config(server, err) < 0 || gb_random(&server->id_seed, sizeof(server->id_seed), err) < 0 ||
        make_latency(server, err) < 0 || init_places(server, err) < 0 ||
        gb_limits_init(&server->limits, &config->bounds, err) < 0 || make_dead(server, err) < 0 ||
        peers_init(server, err) < 0 || gb_fd_mailboxes_init(server, err) < 0) {
        gb_server_state_free(server);
        return NULL;
    }
    return server;
}

void gb_server_state_free(struct gb_http_server *server) {
    size_t i;

    gb_router_done(&server->router);
    peers_done(server);
    gb_fd_mailboxes_done(server);
    gb_conn_slots_done(&server->places);
    gb_limits_done(&server->limits);
    if (server->dead_fd >= 0)
        close(server->dead_fd);
    for (i = 0; i < server->latency_count; i++)
        gb_latency_table_free(server->latency[i]);
    free(server->latency);
    for (i = 0; server->hosts && i < server->config.host_count; i++)
        free(server->hosts[i]);
    free(server->hosts);
    free(server->listen_fds);
    free(server->listen_next);
    free(server->listen_local);
    free(server->listen_tls);
    gb_tls_context_unref(server->tls);
    pthread_mutex_destroy(&server->tls_lock);
    free(server);
}

/* --- conn slots --------------------------------------------------------------------------------------------------- */

#define KEPT_SHARE 16
#define KEPT_LEAST 8

/* One address: of IPv4 the address itself; of IPv6 the network, within which a client takes any address it likes. */
struct key {
    uint64_t high;
    uint64_t low;
};

struct gb_source {
    struct gb_conn_slots *places;
    struct gb_source *next;
    struct key key;
    unsigned count;
};

/* --- addresses ---------------------------------------------------------------------------------------------------- */

static struct key key_of(const struct sockaddr *from, bool *ret_loopback) {
    struct key key = {0, 0};
    struct sockaddr_in6 six;
    struct sockaddr_in four;

    *ret_loopback = false;
    if (from->sa_family == AF_INET) {
        memcpy(&four, from, sizeof(four));
        key.low = ntohl(four.sin_addr.s_addr);
    } else if (from->sa_family == AF_INET6) {
        memcpy(&six, from, sizeof(six));
        memcpy(&key.high, six.sin6_addr.s6_addr, 8);
        if (IN6_IS_ADDR_V4MAPPED(&six.sin6_addr)) {
            memcpy(&four.sin_addr, six.sin6_addr.s6_addr + 12, 4);
            key = (struct key){0, ntohl(four.sin_addr.s_addr)};
        } else if (IN6_IS_ADDR_LINKLOCAL(&six.sin6_addr)) {
            memcpy(&key.low, six.sin6_addr.s6_addr + 8, 8); /* all machines of a link have the same network */
        } else {
            *ret_loopback = IN6_IS_ADDR_LOOPBACK(&six.sin6_addr);
            key.low = UINT64_MAX; /* no IPv4 address */
        }
    }
    *ret_loopback = *ret_loopback || (key.high == 0 && key.low >> 24 == IN_LOOPBACKNET);
    return key;
}

static struct gb_source **bucket_of(struct gb_conn_slots *places, struct key key) {
    uint64_t hash = (key.high ^ places->seed) * 0x9e3779b97f4a7c15u;

    hash = (hash ^ hash >> 32 ^ key.low) * 0x9e3779b97f4a7c15u;
    return &places->bucket[hash >> 40 & (GB_CONN_SLOTS_BUCKETS - 1)];
}

/* Returns the address's record, made if it is missing, or NULL if memory is exhausted. */
static struct gb_source *find_locked(struct gb_conn_slots *places, struct key key) {
    struct gb_source **bucket = bucket_of(places, key);
    struct gb_source *s;

    for (s = *bucket; s && (s->key.high != key.high || s->key.low != key.low); s = s->next)
        ;
    if (s)
        return s;
    s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->places = places;
    s->key = key;
    s->next = *bucket;
    *bucket = s;
    return s;
}

/* Loopback is bounded if that is asked for: it stands for all users of the machine, and often for a proxy with many
 * clients. */
static enum gb_conn_slot source_take(struct gb_conn_slots *places, const struct sockaddr *from,
                                     struct gb_source **ret) {
    enum gb_conn_slot place = GB_CONN_SLOT_TAKEN;
    struct gb_source *s;
    bool loopback;
    struct key key = key_of(from, &loopback);

    pthread_mutex_lock(&places->lock);
    s = find_locked(places, key);
    if (!s)
        place = GB_CONN_SLOT_MEMORY;
    else if (places->source_max > 0 && s->count >= places->source_max && (places->bound_loopback || !loopback))
        place = GB_CONN_SLOT_SOURCE;
    else
        s->count++;
    pthread_mutex_unlock(&places->lock);
    *ret = place == GB_CONN_SLOT_TAKEN ? s : NULL;
    return place;
}

void gb_source_end(struct gb_source *source) {
    struct gb_conn_slots *places;
    struct gb_source **at;

    if (!source)
        return;
    places = source->places;
    pthread_mutex_lock(&places->lock);
    if (--source->count == 0) {
        for (at = bucket_of(places, source->key); *at != source; at = &(*at)->next)
            ;
        *at = source->next;
        free(source);
    }
    pthread_mutex_unlock(&places->lock);
}

/* --- places ------------------------------------------------------------------------------------------------------- */

static bool count_up(atomic_uint_fast64_t *count, uint64_t max) {
    uint_fast64_t now = atomic_load(count);

    while (now < max) {
        if (atomic_compare_exchange_weak(count, &now, now + 1))
            return true;
    }
    return false;
}

enum gb_conn_slot gb_conn_slot_take(struct gb_conn_slots *places, const struct sockaddr *from, bool beyond,
                                    struct gb_source **ret) {
    enum gb_conn_slot place = GB_CONN_SLOT_TAKEN;

    *ret = NULL;
    if (from)
        place = source_take(places, from, ret);
    if (place != GB_CONN_SLOT_TAKEN)
        return place;
    if (from && !count_up(&places->remote, beyond ? UINT64_MAX : places->remote_max)) {
        place = GB_CONN_SLOT_FULL;
    } else if (!count_up(&places->taken, beyond ? UINT64_MAX : places->max)) {
        place = GB_CONN_SLOT_FULL;
        if (from)
            atomic_fetch_sub(&places->remote, 1);
    }
    if (place != GB_CONN_SLOT_TAKEN) {
        gb_source_end(*ret);
        *ret = NULL;
    }
    return place;
}

void gb_conn_slot_leave(struct gb_conn_slots *places, const struct gb_source *source) {
    if (source)
        atomic_fetch_sub(&places->remote, 1);
    atomic_fetch_sub(&places->taken, 1);
}

void gb_conn_slot_end(struct gb_conn_slots *places, struct gb_source *source) {
    gb_conn_slot_leave(places, source);
    gb_source_end(source);
}

uint64_t gb_conn_slots_kept(uint64_t max) {
    uint64_t share = max / KEPT_SHARE > KEPT_LEAST ? max / KEPT_SHARE : KEPT_LEAST;

    return share < max / 2 ? share : max / 2;
}

int gb_conn_slots_init(struct gb_conn_slots *places, uint64_t max, unsigned source_max, bool local,
                       struct gb_error *err) {
    places->max = max;
    places->remote_max = max - (local ? gb_conn_slots_kept(max) : 0);
    places->source_max = source_max;
    gb_mutex_init(&places->lock);
    places->ready = true;
    return gb_random(&places->seed, sizeof(places->seed), err);
}

void gb_conn_slots_done(struct gb_conn_slots *places) {
    if (places->ready)
        pthread_mutex_destroy(&places->lock);
    places->ready = false;
}

/* --- latency ------------------------------------------------------------------------------------------------------ */

/* Written by one thread alone, so that a load and a store do: no locked instruction, no contended cache line. */
struct counts {
    _Atomic uint64_t bucket[GB_HISTOGRAM_BOUNDS + 1];
    _Atomic uint64_t ns;
    _Atomic uint64_t outcome[GB_OUTCOMES];
};

struct gb_latency_table {
    size_t routes;
    struct counts counts[];
};

const char *gb_outcome_name(enum gb_outcome outcome) {
    static const char *const names[GB_OUTCOMES] = {"2xx", "3xx", "4xx", "5xx", "broken"};

    return (unsigned)outcome < GB_OUTCOMES ? names[outcome] : "unknown";
}

struct gb_latency_table *gb_latency_table_new(size_t route_count) {
    struct gb_latency_table *table =
        calloc(1, sizeof(struct gb_latency_table) + (route_count + 1) * sizeof(struct counts));

    if (table)
        table->routes = route_count;
    return table;
}

void gb_latency_table_free(struct gb_latency_table *table) {
    free(table);
}

static void more(_Atomic uint64_t *count, uint64_t n) {
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + n, memory_order_relaxed);
}

static enum gb_outcome outcome_of(int status) {
    if (status < 200)
        return GB_OUTCOME_BROKEN;
    return status < 300   ? GB_OUTCOME_2XX
           : status < 400 ? GB_OUTCOME_3XX
           : status < 500 ? GB_OUTCOME_4XX
                          : GB_OUTCOME_5XX;
}

void gb_latency_record(struct gb_latency_table *table, size_t route, int status, uint64_t ns) {
    struct counts *c = &table->counts[route < table->routes ? route : table->routes];

    more(&c->bucket[gb_histogram_bucket(ns)], 1);
    more(&c->ns, ns);
    more(&c->outcome[outcome_of(status)], 1);
}

void gb_latency_add(const struct gb_latency_table *table, size_t route, struct gb_latency *sum) {
    const struct counts *c;
    unsigned i;

    if (!table || route > table->routes)
        return;
    c = &table->counts[route];
    for (i = 0; i <= GB_HISTOGRAM_BOUNDS; i++)
        sum->time.bucket[i] += atomic_load_explicit(&c->bucket[i], memory_order_relaxed);
    sum->time.ns += atomic_load_explicit(&c->ns, memory_order_relaxed);
    for (i = 0; i < GB_OUTCOMES; i++)
        sum->outcome[i] += atomic_load_explicit(&c->outcome[i], memory_order_relaxed);
}

void gb_http_latency(const struct gb_http_server *server, size_t route, struct gb_latency *ret) {
    size_t i;

    *ret = (struct gb_latency){.time = {.ns = 0}};
    for (i = 0; i < server->latency_count; i++)
        gb_latency_add(server->latency[i], route, ret);
}

/* --- which client ------------------------------------------------------------------------------------------------- */

void gb_bound_resolve(struct gb_exchange *ex) {
    const struct gb_http_bounds *config = &ex->server->limits.config;

    if (config->trusted_count == 0)
        return;
    gb_forwarded_resolve(&ex->req, config->forwarded, config->trusted, config->trusted_count);
    if (ex->req.from.family != 0) {
        ex->req.local = false;
        ex->req.peer = NULL;
    }
}

/* Loopback stands for all users of the machine, and often for a proxy with many clients. */
static bool address_key(const struct gb_exchange *ex, struct gb_client_key *ret) {
    bool local = ex->server->limits.config.local;
    bool loopback;

    if (ex->req.from.family == 0) {
        *ret = (struct gb_client_key){.low = ex->peer ? ex->peer->seen.uid : 0, .kind = GB_CLIENT_USER};
        return local;
    }
    *ret = gb_client_key_of(&ex->req.from, &loopback);
    return local || !loopback;
}

/* --- refusals ----------------------------------------------------------------------------------------------------- */

static int refuse_bound(struct gb_exchange *ex, struct gb_refusal_of why, struct gb_error *err) {
    why.of_token = ex->client && ex->client->key.kind == GB_CLIENT_TOKEN && why.limit != GB_HTTP_LIMIT_FAILURES;
    ex->refusal = why;
    gb_limits_note(&ex->server->limits, why.limit);
    return gb_limits_refuse(&why, err);
}

static int refuse_open(struct gb_exchange *ex, enum gb_open what, struct gb_error *err) {
    static const enum gb_http_limit limit[GB_OPENS] = {[GB_OPEN_UPLOADS] = GB_HTTP_LIMIT_UPLOADS,
                                                       [GB_OPEN_WAITS] = GB_HTTP_LIMIT_WAITS,
                                                       [GB_OPEN_LISTENERS] = GB_HTTP_LIMIT_LISTENERS};

    return refuse_bound(
        ex, (struct gb_refusal_of){.limit = limit[what], .permitted = atomic_load(&ex->client->bound.open[what])}, err);
}

/* --- the beginning ------------------------------------------------------------------------------------------------ */

/* Bodies that went out without asking (those are short) may have taken a burst more than there was. */
static int admit(struct gb_exchange *ex, struct gb_error *err) {
    struct gb_bucket_rate requests = gb_client_requests(ex->client);
    struct gb_bucket_rate bytes = gb_client_bytes(ex->client);
    uint64_t now_ns = gb_clock_ns();
    struct gb_refusal_of why = {.limit = GB_HTTP_LIMIT_BYTES, .permitted = bytes.per_s, .burst = bytes.burst};

    if (bytes.per_s > 0) {
        uint64_t debt_ns = gb_bucket_debt_ns(&ex->client->bytes, bytes, now_ns);
        uint64_t patience_ns = gb_bucket_ns(bytes, bytes.burst);

        why.wait_ns = debt_ns > patience_ns ? debt_ns - patience_ns : 0;
        if (why.wait_ns > 0)
            return refuse_bound(ex, why, err);
    }
    if (requests.per_s == 0 || gb_bucket_take(&ex->client->requests, requests, 1, now_ns))
        return 0;
    why = (struct gb_refusal_of){.limit = GB_HTTP_LIMIT_REQUESTS,
                                 .permitted = requests.per_s,
                                 .burst = requests.burst,
                                 .wait_ns = gb_bucket_wait_ns(&ex->client->requests, requests, 1, now_ns)};
    return refuse_bound(ex, why, err);
}

bool gb_http_bounds_tokens(const struct gb_http_request *request) {
    return ((const struct gb_exchange *)request)->server->limits.bounds_token;
}

int gb_http_bound_client(struct gb_http_request *request, uint64_t token, const struct gb_http_bound *bound,
                         struct gb_error *err) {
    struct gb_exchange *ex = gb_exchange_of(request);
    struct gb_limits *limits = &ex->server->limits;
    struct gb_client_key key = {.low = token, .kind = GB_CLIENT_TOKEN};
    struct gb_http_bound whole;

    if (ex->client)
        return 0;
    if (token > 0 && bound)
        whole = gb_limits_whole(bound);
    else if (token > 0 ? !limits->bounds_token : !limits->bounds_address || !address_key(ex, &key))
        return 0;
    else
        whole = token > 0 ? limits->config.token : limits->config.address;
    if (!gb_limits_any(&whole))
        return 0;
    ex->client = gb_client_get_bound(limits->clients, key, &whole);
    return admit(ex, err);
}

void gb_bound_refused(struct gb_exchange *ex, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;

    gb_bound_resolve(ex);
    if (gb_http_bound_client(&ex->req, 0, NULL, &why) < 0)
        *err = why;
}

int gb_http_authentication_failed(struct gb_http_request *request, struct gb_error *err) {
    struct gb_exchange *ex = gb_exchange_of(request);
    struct gb_limits *limits = &ex->server->limits;
    struct gb_client *client;
    struct gb_client_key key;
    uint64_t wait_ns;

    if (limits->config.failures == 0 || !address_key(ex, &key))
        return 0;
    client = gb_client_get(limits->clients, key);
    wait_ns = gb_client_failed(client, limits->config.failures, gb_clock_ns());
    gb_client_unref(client);
    if (wait_ns == 0)
        return 0;
    *err = GB_ERROR_INIT;
    return refuse_bound(ex,
                        (struct gb_refusal_of){
                            .limit = GB_HTTP_LIMIT_FAILURES, .permitted = limits->config.failures, .wait_ns = wait_ns},
                        err);
}

/* --- what is open ------------------------------------------------------------------------------------------------- */

static int open_one(struct gb_exchange *ex, enum gb_open what, struct gb_client **ret, struct gb_error *err) {
    *ret = NULL;
    if (!ex->client)
        return 0;
    if (!gb_client_open(ex->client, what))
        return refuse_open(ex, what, err);
    *ret = gb_client_ref(ex->client);
    return 0;
}

int gb_http_upload_opens(struct gb_http_request *request, struct gb_client **ret, struct gb_error *err) {
    if (open_one(gb_exchange_of(request), GB_OPEN_UPLOADS, ret, err) < 0)
        return -1;
    if (*ret)
        gb_clients_ref(gb_clients_of(*ret));
    return 0;
}

void gb_http_upload_ended(void *client) {
    struct gb_clients *clients = client ? gb_clients_of(client) : NULL;

    if (!client)
        return;
    gb_client_close(client, GB_OPEN_UPLOADS);
    gb_client_unref(client);
    gb_clients_unref(clients);
}

int gb_bound_listener_opens(struct gb_http_request *request, struct gb_client **ret, struct gb_error *err) {
    return open_one(gb_exchange_of(request), GB_OPEN_LISTENERS, ret, err);
}

void gb_bound_listener_ended(struct gb_client *client) {
    if (!client)
        return;
    gb_client_close(client, GB_OPEN_LISTENERS);
    gb_client_unref(client);
}

int gb_bound_may_wait(struct gb_exchange *ex, struct gb_error *err) {
    if (!ex->client || ex->counted_wait)
        return 0;
    if (!gb_client_open(ex->client, GB_OPEN_WAITS))
        return refuse_open(ex, GB_OPEN_WAITS, err);
    ex->counted_wait = true;
    return 0;
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

void gb_bound_explain(struct gb_exchange *ex) {
    if (ex->err.code == GB_ERR_TOO_MANY_REQUESTS)
        gb_limits_explain(&ex->refusal, &ex->resp);
}

void gb_bound_advertise(struct gb_exchange *ex) {
    if (ex->client && !ex->resp.canned)
        gb_limits_advertise(ex->client, &ex->resp);
}

void gb_bound_leave(struct gb_exchange *ex) {
    if (ex->counted_wait)
        gb_client_close(ex->client, GB_OPEN_WAITS);
    ex->counted_wait = false;
    gb_client_unref(ex->client);
    ex->client = NULL;
    gb_client_unref(ex->payer);
    ex->payer = NULL;
}

/* --- memory of replies -------------------------------------------------------------------------------------------- */

struct gb_client *gb_bound_payer(struct gb_exchange *ex) {
    struct gb_client_key key;

    if (!ex->payer && ex->client)
        ex->payer = gb_client_ref(ex->client);
    else if (!ex->payer && address_key(ex, &key))
        ex->payer = gb_client_get(ex->server->limits.clients, key);
    return ex->payer;
}

int gb_bound_refuse_reply(struct gb_exchange *ex, uint64_t permitted, struct gb_error *err) {
    return refuse_bound(ex, (struct gb_refusal_of){.limit = GB_HTTP_LIMIT_REPLIES, .permitted = permitted}, err);
}
