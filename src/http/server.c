/* Start, drain and stop. */
#include "http/server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/digest.h"

void gb_server_ended(struct gb_transfer_loop *transfer_loop, struct gb_exchange *ex) {
    const struct gb_http_server_config *config = &transfer_loop->server->config;
    size_t route = ex->req.route ? (size_t)(ex->req.route - config->routes) : config->route_count;
    uint64_t ns = gb_clock_ns() - ex->req.started_ns;
    int status = ex->broken ? 0 : ex->resp.status;

    gb_latency_record(transfer_loop->latency, route, status, ns);
    atomic_fetch_sub_explicit(&ex->loop->active, 1, memory_order_release);
    if (config->ended)
        config->ended(config->app, &ex->req, status, ns);
}

struct gb_http_server *gb_http_server_of(const struct gb_http_request *request) {
    return ((const struct gb_exchange *)request)->server;
}

/* One end of a pair whose other end is closed: reading it gives the end of the stream, for ever. */
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

static int copy_config(struct gb_http_server *server, const struct gb_http_server_config *config,
                       struct gb_error *err) {
    size_t i;

    server->config = *config;
    server->hosts = calloc(config->host_count + 1, sizeof(*server->hosts));
    server->listen_fds = calloc(config->listen_fd_count + 1, sizeof(*server->listen_fds));
    server->listen_local = calloc(config->listen_fd_count + 1, sizeof(*server->listen_local));
    server->loops = calloc(config->loops, sizeof(*server->loops));
    server->transfer_loops = calloc(config->bulk_loops, sizeof(*server->transfer_loops));
    if (!server->hosts || !server->listen_fds || !server->listen_local || !server->loops || !server->transfer_loops)
        return gb_error_set(err, GB_ERR_INTERNAL, "no memory for the server");
    for (i = 0; i < config->listen_fd_count; i++) {
        server->listen_fds[i] = config->listen_fds[i];
        server->listen_local[i] = is_local(config->listen_fds[i]);
    }
    for (i = 0; i < config->host_count; i++) {
        server->hosts[i] = strdup(config->hosts[i]);
        if (!server->hosts[i])
            return gb_error_set(err, GB_ERR_INTERNAL, "no memory for the server");
    }
    for (i = 0; i < config->loops; i++)
        server->loops[i].own.epoll_fd = -1;
    for (i = 0; i < config->bulk_loops; i++)
        server->transfer_loops[i].epoll_fd = -1;
    server->rules = (struct gb_request_rules){.hosts = (const char *const *)server->hosts,
                                              .host_count = config->host_count,
                                              .pages = config->pages,
                                              .page_count = config->page_count};
    if (gb_router_init(&server->router, config->routes, config->route_count, err) < 0)
        return -1;
    return gb_random(&server->id_seed, sizeof(server->id_seed), err);
}

static void join_all(struct gb_http_server *server) {
    unsigned i;

    atomic_store(&server->draining, true);
    atomic_store(&server->stopping, true);
    for (i = 0; server->loops && i < server->config.loops; i++)
        gb_loop_join(&server->loops[i]);
    for (i = 0; server->transfer_loops && i < server->config.bulk_loops; i++)
        gb_transfer_loop_join(&server->transfer_loops[i]);
    gb_http_feed_end(&server->feed);
    /* Loops and transfer loops hand connections to each other: none is taken apart before all have ended. */
    for (i = 0; server->loops && i < server->config.loops; i++)
        gb_loop_done(&server->loops[i]);
    for (i = 0; server->transfer_loops && i < server->config.bulk_loops; i++)
        gb_transfer_loop_done(&server->transfer_loops[i]);
}

static void release(struct gb_http_server *server) {
    size_t i;

    gb_router_done(&server->router);
    gb_peers_done(server);
    gb_fd_mailboxes_done(server);
    gb_conn_slots_done(&server->places);
    if (server->dead_fd >= 0)
        close(server->dead_fd);
    for (i = 0; server->hosts && i < server->config.host_count; i++)
        free(server->hosts[i]);
    free(server->hosts);
    free(server->listen_fds);
    free(server->listen_local);
    free(server->loops);
    free(server->transfer_loops);
    free(server);
}

static int start_feed(struct gb_http_server *server, struct gb_error *err) {
    const struct gb_http_server_config *config = &server->config;
    const struct gb_http_feed_config hooks = {.app = config->app,
                                              .hooks = config->feed,
                                              .heartbeat_ms = config->heartbeat_s * 1000,
                                              .stall_ms = config->stall_timeout_s * 1000};

    return config->feed ? gb_http_feed_start(&server->feed, &hooks, err) : 0;
}

static int init_places(struct gb_http_server *server, struct gb_error *err) {
    const struct gb_http_server_config *config = &server->config;
    bool local = false;
    size_t i;

    for (i = 0; i < config->listen_fd_count; i++)
        local = local || server->listen_local[i];
    server->listeners_remote_max =
        config->listeners_max - (local ? (unsigned)gb_conn_slots_kept(config->listeners_max) : 0);
    return gb_conn_slots_init(&server->places, config->connections_max, config->source_max, local, err);
}

int gb_http_server_start(const struct gb_http_server_config *config, struct gb_http_server **ret,
                         struct gb_error *err) {
    struct gb_http_server *server = calloc(1, sizeof(*server));
    unsigned i;

    if (!server)
        return gb_error_set(err, GB_ERR_INTERNAL, "no memory for the server");
    server->dead_fd = -1;
    server->peers_fd = -1;
    server->fd_mailboxes.epoll_fd = -1;
    if (copy_config(server, config, err) < 0 || init_places(server, err) < 0 || make_dead(server, err) < 0 ||
        gb_peers_init(server, err) < 0 || gb_fd_mailboxes_init(server, err) < 0 || start_feed(server, err) < 0)
        goto fail;
    for (i = 0; i < config->bulk_loops; i++) {
        if (gb_transfer_loop_start(&server->transfer_loops[i], server, err) < 0)
            goto fail;
    }
    for (i = 0; i < config->loops; i++) {
        if (gb_loop_init(&server->loops[i], server, err) < 0)
            goto fail;
    }
    for (i = 0; i < config->loops; i++) {
        if (gb_loop_start(&server->loops[i], err) < 0)
            goto fail;
    }
    *ret = server;
    return 0;
fail:
    join_all(server);
    release(server);
    return -1;
}

void gb_http_server_drain(struct gb_http_server *server) {
    unsigned i;

    atomic_store(&server->draining, true);
    atomic_store(&server->feed.draining, true);
    gb_http_server_tell(server);
    for (i = 0; i < server->config.loops; i++)
        gb_wake_queue_signal(&server->loops[i].wake_queue);
}

void gb_http_server_tell(struct gb_http_server *server) {
    if (server->feed.started)
        gb_http_feed_wake(&server->feed);
}

unsigned gb_http_feed_epoch(const struct gb_http_request *request) {
    return atomic_load(&gb_http_server_of(request)->feed.epoch);
}

void gb_http_server_dismiss(struct gb_http_server *server) {
    atomic_fetch_add(&server->feed.epoch, 1);
    gb_http_server_tell(server);
}

static uint64_t active(const struct gb_http_server *server) {
    uint64_t sum = 0;
    unsigned i;

    for (i = 0; i < server->config.loops; i++)
        sum += atomic_load(&server->loops[i].active);
    return sum;
}

void gb_http_server_stop(struct gb_http_server *server, unsigned timeout_ms) {
    uint64_t until_ns = gb_clock_ns() + timeout_ms * GB_NS_PER_MS;

    if (!server)
        return;
    gb_http_server_drain(server);
    /* Polled: this is the last thing the process waits for, and requests end in many ways. */
    while (active(server) > 0 && gb_clock_ns() < until_ns)
        usleep(5000);
    join_all(server);
    release(server);
}

void gb_http_server_stat(struct gb_http_server *server, struct gb_http_server_stat *ret) {
    unsigned i;

    *ret = (struct gb_http_server_stat){.connections = atomic_load(&server->places.taken),
                                        .suspended = atomic_load(&server->suspended),
                                        .transfers = atomic_load(&server->transfers),
                                        .accepted = atomic_load(&server->accepted),
                                        .refused = atomic_load(&server->refused),
                                        .refused_source = atomic_load(&server->refused_source),
                                        .displaced = atomic_load(&server->displaced),
                                        .listeners = atomic_load(&server->feed.count),
                                        .reply_memory = atomic_load(&server->reply_memory[0]) +
                                                        atomic_load(&server->reply_memory[1]),
                                        .replies_refused = atomic_load(&server->replies_refused)};
    for (i = 0; i < server->config.loops; i++)
        ret->requests += atomic_load(&server->loops[i].requests);
}
