/* Everything from the store up to the sockets, opened bottom up and closed top down. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "daemon/daemon.h"
#include "daemon/options_check.h"
#include "daemon/overtime.h"
#include "daemon/request_log.h"
#include "daemon/state_dir.h"
#include "daemon/systemd.h"
#include "http/tls/context.h"

/* Descriptors that clients handed over and that are not closed yet, with room for all that may come. */
#define FOREIGN_FILES 65536

/* Of a connection over TLS: its own, and the pair in front of libmicrohttpd. */
#define TLS_FILES 3

static int out_of_memory(struct gb_error *err) {
    return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
}

static unsigned or_by_cores(uint64_t given, unsigned least, unsigned most) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);

    if (given != 0)
        return (unsigned)given;
    if (cores < (long)least)
        return least;
    return cores > (long)most ? most : (unsigned)cores;
}

/* The hook has no place for the log. Set before the server starts. */
static const struct gb_log *server_log;

static void stuck(void *app, const char *text) {
    (void)app;
    gb_log(server_log, GB_LOG_WARNING, "stuck", "%s", text);
}

/* The folder is there before the cage, which permits what is there. */
static int open_data_dir(struct gb_daemon *daemon, struct gb_error *err) {
    const char *given = daemon->options.data_dir;

    if (strcmp(given, "none") == 0)
        return 0;
    daemon->data_dir = given[0] != '\0' ? strdup(given) : gb_state_path(daemon->state_dir, "data");
    if (daemon->data_dir == NULL)
        return out_of_memory(err);
    if (mkdir(daemon->data_dir, 0700) != 0 && errno != EEXIST)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "the folder --data-dir %.512s cannot be made: %s; the folders above it must be there",
                            daemon->data_dir, strerror(errno));
    return 0;
}

static int open_paths(struct gb_daemon *daemon, struct gb_error *err) {
    daemon->state_dir = gb_state_dir(daemon->options.state_dir, err);
    if (daemon->state_dir == NULL)
        return -1;
    daemon->database = gb_state_path(daemon->state_dir, "gpubufd.db");
    daemon->listen_file = gb_state_path(daemon->state_dir, "listen");
    if (daemon->database == NULL || daemon->listen_file == NULL)
        return out_of_memory(err);
    return open_data_dir(daemon, err);
}

static struct gb_history_limits history_limits(const struct gb_options *o) {
    return (struct gb_history_limits){.keep_s = {o->history_samples, o->history_minutes, o->history_hours},
                                      .rows = {o->samples_max, o->minutes_max, o->hours_max},
                                      .series = o->history_series,
                                      .interval_s = o->sample_interval};
}

/* The numbers of the history that the core does not know. */
static void read_outside(void *arg, struct gb_outside *ret) {
    struct gb_http_server_stat stat;

    gb_http_server_stat(arg, &stat);
    ret->connections = stat.connections;
    ret->requests = stat.requests;
}

static int open_store(struct gb_daemon *daemon, struct gb_error *err) {
    const struct gb_store_config config = {
        .path = daemon->database,
        .sync_full = strcmp(daemon->options.store_sync, "full") == 0,
        .feed_max = daemon->options.feed_max,
        .audit_max = daemon->options.audit_rows,
        .audit_age_us = gb_daemon_audit_age_us(&daemon->options),
        .history = history_limits(&daemon->options),
        .queue_max = 65536,
        .locked = true,
        .lock_fd = daemon->lock_fd,
    };

    daemon->lock_fd = -1;
    if (gb_store_open(&config, &daemon->store, err) != 0)
        return -1;
    return gb_token_store_beside(daemon->store, &daemon->tokens, err);
}

static int has_file(void *arg, const struct gb_stored_rec *rec, struct gb_error *err) {
    bool *has = arg;

    (void)err;
    *has = *has || !gb_stored_inline(rec);
    return 0;
}

static int open_disk(struct gb_daemon *daemon, struct gb_error *err) {
    const struct gb_options *o = &daemon->options;
    char uuid[GB_STORE_UUID_SIZE];
    struct gb_disk_config config = {.dir = daemon->data_dir,
                                    .uuid = uuid,
                                    .reserve_bytes = o->disk_reserve,
                                    .faults = o->disk_fault[0] != '\0' ? o->disk_fault : NULL};

    if (daemon->data_dir == NULL)
        return 0;
    if (gb_store_uuid(daemon->store, uuid, err) != 0 ||
        gb_store_load_stored(daemon->store, has_file, &config.expected, err) != 0)
        return -1;
    return gb_disk_open(&config, &daemon->disk, err);
}

/* A limit that is not given leaves half of the memory to everything else on the machine. */
static uint64_t or_half(struct gb_daemon *daemon, const char *option, uint64_t given) {
    uint64_t bytes = given > 0 ? given : gb_memory_there("") / 2;

    if (bytes > 0 && given == 0)
        gb_log(&daemon->log, GB_LOG_INFO, "limits", "--%s is %llu, half of the memory that there is", option,
               (unsigned long long)bytes);
    return bytes;
}

/* On a machine so small the slots alone are the limit: the options that it started with before still start it. */
static uint64_t pinned_bytes(struct gb_daemon *daemon) {
    const struct gb_options *o = &daemon->options;
    uint64_t bytes = or_half(daemon, "max-pinned-bytes", o->max_pinned_bytes);

    return bytes > 0 && bytes < o->slots_bytes ? o->slots_bytes : bytes;
}

static int open_core(struct gb_daemon *daemon, struct gb_error *err) {
    const struct gb_options *o = &daemon->options;
    struct gb_core_config config = {
        .backend = daemon->backend,
        .store = daemon->store,
        .disk = daemon->disk,
        .disk_threads = (unsigned)o->disk_threads,
        .orphan_ttl_s = o->orphan_ttl,
        .scrub_rate = o->scrub_rate,
        .scrub_interval_s = o->scrub_interval,
        .durable_lag_ms = o->durable_lag * 1000,
        .min_resident_ms = o->min_resident_ms,
        .evict_high = (unsigned)o->evict_high,
        .evict_low = (unsigned)o->evict_low,
        .spill_host_bytes = o->spill_host_bytes,
        .slots_bytes = o->slots_bytes,
        .slot_bytes = o->slot_bytes,
        .pinned_bytes_max = pinned_bytes(daemon),
        .sessions_max = o->max_sessions,
        .buffers_max = o->max_buffers,
        .pools_max = o->max_pools,
        .streams_max = o->max_streams,
        .multiparts_max = o->max_uploads,
        .multipart_bytes_max = o->max_upload_bytes,
        .multipart_ttl_s = o->upload_ttl,
        .events_max = o->max_events,
        .keys_max = o->max_idempotency_keys,
        .key_ttl_s = o->idempotency_ttl,
        .leases_max = o->max_leases,
        .adopted_max = o->max_adopted,
        .adopted_bytes_max = or_half(daemon, "max-adopted-bytes", o->max_adopted_bytes),
        .closer = daemon->closer,
        .default_quota = {.bytes = o->quota_bytes,
                          .buffers = o->quota_buffers,
                          .pinned_bytes = GB_UNLIMITED,
                          .stored_bytes = GB_UNLIMITED},
        .default_pools = daemon->default_pools,
        .allocation_log = o->allocation_log,
        .health_interval_ms = o->health_interval * 1000,
        .health_root = o->health_root,
        .history = history_limits(o),
        .audit = {.mode = gb_daemon_audit_mode(o),
                  .file = o->audit_file,
                  .file_bytes = o->audit_file_bytes,
                  .rows = o->audit_rows,
                  .age_us = gb_daemon_audit_age_us(o)},
    };

    if (gb_health_policy_parse(o->health, &config.health_policy, err) < 0 ||
        gb_core_open(&config, &daemon->core, err) < 0)
        return -1;
    gb_daemon_log_pools(daemon);
    return 0;
}

static int open_api(struct gb_daemon *daemon, struct gb_error *err) {
    const struct gb_options *o = &daemon->options;
    const struct gb_api_limits limits = {
        .expanded_bytes = o->max_expanded,
        .decoders = (unsigned)o->max_decoders,
        .operations_max = o->max_operations,
        .operation_ttl_s = o->operation_ttl,
        .batch_max = o->max_batch,
        .lease_age_max_s = o->max_lease_age,
        .export_ttl_max_s = o->max_export_ttl,
        .metrics_sessions = o->metrics_sessions,
    };
    const struct gb_api_about about = {
        .version = PACKAGE_VERSION,
        .data_dir = daemon->data_dir,
        .backend_note = daemon->backend_note,
        .seccomp = gb_seccomp_name(daemon->cage.seccomp),
        .landlock = daemon->cage.landlock,
        .privileges = daemon->cage.privileges,
        .core_dumps = o->core_dumps,
        .proxied = daemon->proxied,
        .kernel_tls = daemon->kernel_tls,
    };

    daemon->api = gb_api_new(daemon->core, daemon->backend, &about);
    if (daemon->api == NULL)
        return out_of_memory(err);
    gb_api_set_limits(daemon->api, &limits);
    gb_api_set_map_peers(daemon->api, &daemon->map_peers);
    return 0;
}

static void tell(void *server) {
    gb_http_server_tell(server);
}

static int start_server(struct gb_daemon *daemon, struct gb_error *err) {
    const struct gb_options *o = &daemon->options;
    bool listen_tls[GB_LISTEN_MAX];
    int fds[GB_LISTEN_MAX];
    size_t i;

    struct gb_http_server_config config = {
        .stuck = stuck,
        .closer = daemon->closer,
        .listen_fds = fds,
        .listen_tls = listen_tls,
        .tls = daemon->tls,
        .hsts_s = o->hsts,
        .listen_fd_count = daemon->listeners.count,
        .loops = or_by_cores(o->http_threads, 1, 8),
        .bulk_loops = or_by_cores(o->bulk_threads, 4, 16),
        .connections_max = (unsigned)o->max_connections,
        .source_max = (unsigned)o->max_connections_per_address,
        .connection_memory = (size_t)o->connection_memory,
        .json_max = (size_t)o->max_json,
        .json_list_max = (size_t)(o->max_json + o->max_batch * 1024),
        .reply_memory_max = o->max_reply_memory == GB_UNLIMITED ? 0 : o->max_reply_memory,
        .takeover_bytes = o->takeover_bytes,
        .idle_timeout_s = (unsigned)o->idle_timeout,
        .header_timeout_s = (unsigned)o->header_timeout,
        .stall_timeout_s = (unsigned)o->stall_timeout,
        .min_rate_bytes_s = o->min_rate,
        .wait_max_s = (unsigned)o->wait_max,
        .listeners_max = (unsigned)o->max_feed_listeners,
        .heartbeat_s = (unsigned)o->feed_heartbeat,
        .bounds = daemon->bounds,
    };

    config.hosts = gb_daemon_hosts(daemon, &config.host_count);
    config.origins = (const char *const *)daemon->options.cors_origin.items;
    config.origin_count = daemon->options.cors_origin.count;
    gb_api_serve(daemon->api, &config);
    config.ended = gb_request_log_ended;
    for (i = 0; i < daemon->listeners.count; i++) {
        fds[i] = daemon->listeners.items[i].fd;
        listen_tls[i] = daemon->listeners.items[i].is_tls;
    }
    server_log = &daemon->log;
    if (gb_http_server_start(&config, &daemon->server, err) != 0)
        return -1;
    gb_feed_watch(daemon->core, (struct gb_waker){tell, daemon->server});
    gb_core_set_outside(daemon->core, read_outside, daemon->server);
    for (i = 0; i < daemon->listeners.count; i++)
        gb_log(&daemon->log, GB_LOG_INFO, "listening", "%s", daemon->listeners.items[i].text);
    return 0;
}

/* Sockets that others can reach need a token, before the first of them is served. */
static enum gb_exit check_tokens(struct gb_daemon *daemon, struct gb_error *err) {
    const char *text = NULL;
    struct gb_token_count count;
    bool changed;

    daemon->exposed = gb_listen_beyond_loopback(&daemon->listeners, &text);
    daemon->proxied = daemon->options.trusted_proxy.count + daemon->options.proxy_protocol.count > 0;
    if (gb_daemon_read_tokens_file(daemon, true, &changed, err) != 0)
        return GB_EXIT_CONFIG;
    if (gb_daemon_load_tokens(daemon, &count, err) != 0)
        return GB_EXIT_SOFTWARE;
    if (count.all == 0 && daemon->proxied && !gb_daemon_is_closed(daemon))
        gb_log(
            &daemon->log, GB_LOG_WARNING, "tokens",
            "requests come through a proxy, and no token is configured: all of its clients may do everything, unless "
            "the proxy itself refuses them; make one with: gpubufd token add NAME --scope write --state-dir %.128s",
            daemon->state_dir);
    if (count.all > 0 || !daemon->exposed)
        return GB_EXIT_OK;
    gb_error_set(err, GB_ERR_UNAUTHENTICATED,
                 "refusing to listen on %s: other machines could reach it, and no token is configured; make one with: "
                 "gpubufd token add NAME --scope write --state-dir %.128s",
                 text, daemon->state_dir);
    return GB_EXIT_CONFIG;
}

static enum gb_exit exit_of(const struct gb_error *err) {
    return err->code == GB_ERR_INVALID_ARGUMENT ? GB_EXIT_USAGE : GB_EXIT_SOFTWARE;
}

static int raise_limits(struct gb_daemon *daemon, struct gb_error *err) {
    struct gb_options *o = &daemon->options;
    unsigned each = o->tls_listen.count > 0 ? TLS_FILES : 1;

    /* A number that was asked for is had, or the daemon does not start. */
    if (each > 1 && o->source[GB_OPTION_ID_max_connections] == GB_SOURCE_DEFAULT)
        o->max_connections = gb_limits_fit(o->max_connections, each);
    return gb_limits_raise(o->max_connections, each, &o->max_feed_listeners, err);
}

/* Defaults that do not fit are no trouble; a number that was asked for is. */
static void log_limits(const struct gb_daemon *daemon, uint64_t connections, uint64_t listeners) {
    const struct gb_options *o = &daemon->options;
    bool asked = o->source[GB_OPTION_ID_max_feed_listeners] != GB_SOURCE_DEFAULT && o->max_feed_listeners < listeners;

    if (o->max_connections == connections && o->max_feed_listeners == listeners)
        return;
    gb_log(&daemon->log, asked ? GB_LOG_WARNING : GB_LOG_INFO, "limits",
           "--max-connections is %llu and --max-feed-listeners %llu, as many as the limit on open files (LimitNOFILE=) "
           "has room for%s",
           (unsigned long long)o->max_connections, (unsigned long long)o->max_feed_listeners,
           o->tls_listen.count > 0 ? "; a connection over TLS takes 3" : "");
}

int gb_daemon_write_listen(struct gb_daemon *daemon, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    bool written = gb_listen_write(&daemon->listeners, daemon->listen_file, &daemon->listen_own, &why) == 0;

    daemon->listen_unwritten =
        !written && (why.native_code == ENOSPC || why.native_code == EDQUOT || why.native_code == EFBIG);
    if (daemon->listen_unwritten)
        gb_log(&daemon->log, GB_LOG_WARNING, "start", "the file %s is not written until the disk has room: %s",
               daemon->listen_file, why.detail);
    else if (!written)
        *err = why;
    return written || daemon->listen_unwritten ? 0 : -1;
}

enum gb_exit gb_daemon_start(struct gb_daemon *daemon, struct gb_error *err) {
    const struct gb_options *o = &daemon->options;
    const uint64_t connections = o->max_connections;
    const uint64_t listeners = o->max_feed_listeners;
    struct gb_token_count tokens;
    enum gb_exit status;

    status = gb_daemon_check_options(daemon, err);
    if (status != GB_EXIT_OK)
        return status;
    if (open_paths(daemon, err) != 0)
        return GB_EXIT_CONFIG;
    if (gb_store_lock(daemon->database, &daemon->lock_fd, err) != 0)
        return exit_of(err);
    if (gb_daemon_open_tls(daemon, err) != 0 || raise_limits(daemon, err) != 0)
        return GB_EXIT_CONFIG;
    daemon->kernel_tls = gb_daemon_kernel_tls("");
    if (o->tls_listen.count > 0)
        gb_log(&daemon->log, GB_LOG_INFO, "tls", "kernel TLS: %s", daemon->kernel_tls ? "present, not used" : "absent");
    unlink(daemon->listen_file); /* a killed daemon left it: scripts that wait for it must not read old addresses */
    /* A port below 1024 takes a capability, and the store has threads: they begin in the cage. */
    if (gb_daemon_listen(daemon, err) != 0 || gb_daemon_enclose(daemon, err) != 0 || open_store(daemon, err) != 0 ||
        open_disk(daemon, err) != 0)
        return exit_of(err);
    status = check_tokens(daemon, err);
    if (status != GB_EXIT_OK)
        return status;
    log_limits(daemon, connections, listeners);
    if (gb_backend_open(o->backend, &daemon->backend, daemon->backend_note, err) != 0)
        return exit_of(err);
    gb_log(&daemon->log, GB_LOG_INFO, "backend", "%s: %s", gb_backend_name(daemon->backend), daemon->backend_note);
    if (gb_closer_new(FOREIGN_FILES, &daemon->closer, err) != 0 || open_core(daemon, err) != 0 ||
        gb_daemon_load_tokens(daemon, &tokens, err) != 0 || gb_daemon_filter(daemon, err) != 0)
        return exit_of(err);
    if (tokens.all > 0)
        gb_daemon_log_tokens(daemon, &tokens);
    if (open_api(daemon, err) != 0 || gb_request_log_open(o, &daemon->log, &daemon->requests, err) != 0)
        return GB_EXIT_SOFTWARE;
    /* The sockets listen, and others may send clients here from now on: they are served in a moment. */
    if (gb_daemon_open_pulls(daemon, err) != 0 || gb_daemon_open_fleet(daemon, err) != 0)
        return exit_of(err);
    if (start_server(daemon, err) != 0 || gb_daemon_write_listen(daemon, err) != 0)
        return GB_EXIT_SOFTWARE;
    gb_audit_started(daemon->core);
    return GB_EXIT_OK;
}

void gb_daemon_done(struct gb_daemon *daemon) {
    bool served = daemon->server != NULL;
    struct gb_overtime *overtime = NULL;

    if (served) {
        gb_own_file_remove(&daemon->listen_own, daemon->listen_file);
        overtime = gb_overtime_start(&daemon->log, daemon->signal_fd, daemon->options.stop_timeout);
    }
    if (daemon->core)
        gb_feed_watch(daemon->core, (struct gb_waker){0});
    if (served)
        gb_core_set_outside(daemon->core, NULL, NULL);
    gb_http_server_stop(daemon->server, 0);
    gb_request_log_close(daemon->requests);
    gb_daemon_close_moves(daemon);
    gb_daemon_close_pulls(daemon);
    gb_daemon_close_fleet(daemon);
    if (served)
        gb_audit_stopped(daemon->core);
    gb_daemon_free_bounds(&daemon->bounds);
    gb_tls_context_unref(daemon->tls);
    gb_listen_done(&daemon->listeners, !served);
    gb_core_close(daemon->core);
    gb_api_free(daemon->api); /* what the core ends last may still tell it */
    gb_backend_close(daemon->backend);
    gb_token_store_close(daemon->tokens);
    gb_tokens_file_done(&daemon->tokens_file);
    gb_disk_close(daemon->disk);
    gb_store_close(daemon->store);
    if (daemon->lock_fd > 0)
        close(daemon->lock_fd);
    gb_closer_free(daemon->closer);
    gb_overtime_end(overtime);
    free(daemon->listen_file);
    free(daemon->database);
    free(daemon->data_dir);
    free(daemon->state_dir);
    gb_options_done(&daemon->options);
    *daemon = (struct gb_daemon){.signal_fd = -1};
}
