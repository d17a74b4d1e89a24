/* The server from its start to its end: it makes the state, the loops, the transfer loops and the feed, starts their
 * threads, drains them and joins them. Loops hand connections to each other, so that all threads end before the first
 * loop is freed. The daemon calls this. */
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "http/server/connection.h"
#include "http/server/feed.h"
#include "http/server/loop.h"
#include "http/server/state.h"
#include "http/server/transfer_loop.h"
#include "http/tls/context.h"
#include "http/tls/tls.h"

static void join_all(struct gb_http_server *server) {
    unsigned i;

    atomic_store(&server->draining, true);
    atomic_store(&server->stopping, true);
    for (i = 0; server->loops && i < server->config.loops; i++)
        gb_loop_join(&server->loops[i]);
    for (i = 0; server->transfer_loops && i < server->config.bulk_loops; i++)
        gb_transfer_loop_join(&server->transfer_loops[i]);
    if (server->feed)
        gb_http_feed_end(server->feed);
    /* Loops and transfer loops hand connections to each other: all must have ended before the first is freed. */
    for (i = 0; server->loops && i < server->config.loops; i++)
        gb_loop_done(&server->loops[i]);
    for (i = 0; server->transfer_loops && i < server->config.bulk_loops; i++)
        gb_transfer_loop_done(&server->transfer_loops[i]);
}

static void release(struct gb_http_server *server) {
    free(server->feed);
    free(server->loops);
    free(server->transfer_loops);
    gb_server_state_free(server);
}

static bool is_certified(void *server, struct gb_tls *tls) {
    const struct gb_http_certificate *certificate = gb_server_certificate(server, tls);
    bool good = !certificate || gb_http_certificate_check(certificate, NULL) == 0;

    gb_tls_certificate_unref(certificate);
    return good;
}

static int start_feed(struct gb_http_server *server, struct gb_error *err) {
    const struct gb_http_server_config *config = &server->config;
    bool local = gb_server_is_local(server);
    const struct gb_http_feed_config feed = {
        .app = config->app,
        .hooks = config->feed,
        .heartbeat_ms = config->heartbeat_s * 1000,
        .stall_ms = config->stall_timeout_s * 1000,
        .listeners_max = config->listeners_max,
        .in_force = config->in_force,
        .is_certified = is_certified,
        .server = server,
        .remote_max = config->listeners_max - (local ? (unsigned)gb_conn_slots_kept(config->listeners_max) : 0)};

    if (!config->feed)
        return 0;
    server->feed = calloc(1, sizeof(*server->feed));
    if (!server->feed)
        return gb_error_set(err, GB_ERR_INTERNAL, "no memory for the server");
    return gb_http_feed_start(server->feed, &feed, err);
}

static int start_transfer_loops(struct gb_http_server *server, struct gb_error *err) {
    const struct gb_http_server_config *config = &server->config;
    unsigned i;

    for (i = 0; i < config->bulk_loops; i++) {
        struct gb_transfer_loop *loop = &server->transfer_loops[i];

        loop->server = server;
        loop->hand_back = gb_conn_hand_back;
        loop->latency = server->latency[config->loops + i];
        if (gb_transfer_loop_start(loop, err) < 0)
            return -1;
    }
    return 0;
}

/* All are made before one runs: they hand connections to each other. */
static int start_loops(struct gb_http_server *server, struct gb_error *err) {
    unsigned i;

    for (i = 0; i < server->config.loops; i++) {
        if (gb_loop_init(&server->loops[i], server, err) < 0)
            return -1;
    }
    for (i = 0; i < server->config.loops; i++) {
        if (gb_loop_start(&server->loops[i], err) < 0)
            return -1;
    }
    return 0;
}

static int start_all(struct gb_http_server *server, struct gb_error *err) {
    server->loops = calloc(server->config.loops, sizeof(*server->loops));
    server->transfer_loops = calloc(server->config.bulk_loops, sizeof(*server->transfer_loops));
    if (!server->loops || !server->transfer_loops)
        return gb_error_set(err, GB_ERR_INTERNAL, "no memory for the server");
    if (start_feed(server, err) < 0 || start_transfer_loops(server, err) < 0)
        return -1;
    return start_loops(server, err);
}

int gb_http_server_start(const struct gb_http_server_config *config, struct gb_http_server **ret,
                         struct gb_error *err) {
    struct gb_http_server *server = gb_server_state_new(config, err);

    if (!server)
        return -1;
    if (start_all(server, err) < 0) {
        join_all(server);
        release(server);
        return -1;
    }
    *ret = server;
    return 0;
}

static void wake_loops(struct gb_http_server *server) {
    unsigned i;

    for (i = 0; i < server->config.loops; i++)
        gb_wake_queue_signal(&server->loops[i].exchanges.wake_queue);
}

void gb_http_server_listen_on(struct gb_http_server *server, size_t listener, int fd) {
    int before = atomic_exchange(&server->listen_next[listener], fd);

    if (before >= 0)
        close(before);
    wake_loops(server);
}

void gb_http_server_tls(struct gb_http_server *server, struct gb_tls_context *context) {
    struct gb_tls_context *before;

    pthread_mutex_lock(&server->tls_lock);
    before = server->tls;
    server->tls = gb_tls_context_ref(context);
    pthread_mutex_unlock(&server->tls_lock);
    gb_tls_context_unref(before);
    gb_http_server_recheck(server);
}

void gb_http_server_drain(struct gb_http_server *server) {
    atomic_store(&server->draining, true);
    if (server->feed)
        atomic_store(&server->feed->draining, true);
    gb_fd_mailboxes_drain(server);
    gb_http_server_tell(server);
    wake_loops(server);
}

unsigned gb_http_feed_epoch(const struct gb_http_request *request) {
    const struct gb_http_feed *feed = gb_http_server_of(request)->feed;

    return feed ? atomic_load(&feed->epoch) : 0;
}

void gb_http_server_recheck(struct gb_http_server *server) {
    unsigned i;

    if (server->feed)
        atomic_fetch_add(&server->feed->epoch, 1);
    gb_http_server_tell(server);
    atomic_fetch_add(&server->rechecks, 1);
    wake_loops(server);
    for (i = 0; i < server->config.bulk_loops; i++)
        gb_wake_queue_signal(&server->transfer_loops[i].wake_queue);
}

static uint64_t active(const struct gb_http_server *server) {
    uint64_t sum = 0;
    unsigned i;

    for (i = 0; i < server->config.loops; i++)
        sum += atomic_load(&server->loops[i].exchanges.active);
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
                                        .tls_handshakes = atomic_load(&server->tls_handshakes),
                                        .tls_failures = atomic_load(&server->tls_failures),
                                        .listeners = server->feed ? atomic_load(&server->feed->count) : 0,
                                        .reply_memory = atomic_load(&server->reply_memory[0]) +
                                                        atomic_load(&server->reply_memory[1]),
                                        .replies_refused = atomic_load(&server->replies_refused)};
    for (i = 0; i < GB_HTTP_LIMITS; i++)
        ret->limited[i] = atomic_load(&server->limits.met[i]);
    ret->limited[GB_HTTP_LIMIT_CONNECTIONS] = ret->refused_source;
    ret->clients = gb_clients_count(server->limits.clients);
    ret->pausing = atomic_load(&server->limits.pausing);
    ret->proxied = atomic_load(&server->proxied);
    ret->proxy_failures = atomic_load(&server->proxy_failures);
    for (i = 0; i < server->config.loops; i++)
        ret->requests += atomic_load(&server->loops[i].exchanges.requests);
}
