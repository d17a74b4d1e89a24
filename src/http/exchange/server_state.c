#include "http/exchange/server_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/thread.h"
#include "http/exchange/client.h"
#include "http/exchange/exchange_loop.h"
#include "http/exchange/peer.h"
#include "http/exchange/reply_memory.h"
#include "http/tls/tls.h"

/* --- requests ----------------------------------------------------------------------------------------------------- */

/* libmicrohttpd tells only whether all went out. */
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

void gb_server_ended(struct gb_latency_table *latency, struct gb_exchange *ex) {
    const struct gb_http_server_config *config = &ex->server->config;
    size_t route = ex->req.route ? (size_t)(ex->req.route - config->routes) : config->route_count;
    uint64_t ns = gb_clock_ns() - ex->req.started_ns;
    int status = ex->broken ? 0 : ex->resp.status;

    gb_exchange_settle_bytes(ex);
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
        gb_peers_init(server, err) < 0 || gb_fd_mailboxes_init(server, err) < 0) {
        gb_server_state_free(server);
        return NULL;
    }
    return server;
}

void gb_server_state_free(struct gb_http_server *server) {
    size_t i;

    gb_router_done(&server->router);
    gb_peers_done(server);
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
