/* Everything from the store up to the sockets, opened bottom up and closed top down, as the options say: open files,
 * sockets, store, disk, core, API, server. main.c starts and ends it; while the daemon serves it looks after its
 * sockets. */
#include "daemon/daemon.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef HAVE_SYSTEMD
#include <systemd/sd-daemon.h>
#endif

#include "base/clock.h"
#include "base/process.h"
#include "base/text.h"
#include "daemon/cage/enclose.h"
#include "daemon/certificates.h"
#include "daemon/checks.h"
#include "daemon/fleet.h"
#include "daemon/request_log.h"
#include "daemon/state_dir.h"
#include "daemon/tokens.h"
#include "http/tls/context.h"
#include "keeper/keeper.h"

/* --- open files --------------------------------------------------------------------------------------------------- */

/* Descriptors that are not connections: database, devices, epoll, listening sockets. */
#define OTHER_FILES 512

/* Buffers that other processes can map have a descriptor each, in that half of all which connections leave
 * (backend/common.h). */
#define MAPPED_FILES 32768

/* Who only listens to the feed gets what connections leave. */
static void share(rlim_t files, rlim_t need, uint64_t *listeners) {
    if (files < need + *listeners)
        *listeners = files > need ? files - need : 1;
}

/* How many of that number of connections fit into three quarters of the hard limit on open files. */
static uint64_t fitting(uint64_t connections, unsigned each) {
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max / 4 * 3 >= connections * each + OTHER_FILES)
        return connections;
    return limit.rlim_max / 4 * 3 > OTHER_FILES + each ? (limit.rlim_max / 4 * 3 - OTHER_FILES) / each : 1;
}

/* Raises the limit on open files so that this many connections fit, or says what to do. *listeners: how many there are
 * to be beside them, and on return how many there can be. each: files of a connection. */
static int raise_files(uint64_t connections, unsigned each, uint64_t *listeners, struct gb_error *err) {
    rlim_t need = (rlim_t)(connections * each + OTHER_FILES);
    rlim_t most = need + (rlim_t)*listeners;
    rlim_t wish = 2 * (most > MAPPED_FILES ? most : MAPPED_FILES);
    struct rlimit limit;
    rlim_t before;
    rlim_t hard;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wish)
        return 0;
    before = limit.rlim_cur;
    hard = limit.rlim_max;
    if (limit.rlim_max < need)
        limit.rlim_max = need;
    limit.rlim_cur = limit.rlim_max < wish ? limit.rlim_max : wish;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        limit.rlim_cur = before;
    share(limit.rlim_cur, need, listeners);
    if (limit.rlim_cur >= need)
        return 0;
    return gb_error_set(err, GB_ERR_INTERNAL,
                        "--max-connections %llu needs %llu open files, but this process may have %llu: raise the limit "
                        "(LimitNOFILE= in the unit, ulimit -Hn in a shell) or give --max-connections %llu",
                        (unsigned long long)connections, (unsigned long long)need, (unsigned long long)hard,
                        (unsigned long long)(hard > OTHER_FILES + each ? (hard - OTHER_FILES) / each : 1));
}

/* --- sockets ------------------------------------------------------------------------------------------------------ */

static bool has_kind(const struct gb_listeners *listeners, bool is_unix) {
    size_t i;

    for (i = 0; i < listeners->count; i++)
        if (listeners->items[i].is_unix == is_unix)
            return true;
    return false;
}

static int listen_tcp(struct gb_daemon *daemon, struct gb_error *err) {
    const struct gb_text_list *specs = &daemon->options.listen;
    size_t i;
    /* A socket unit replaces the default address, not one that was asked for. */
    bool replaced =
        daemon->options.source[GB_OPTION_ID_listen] == GB_SOURCE_DEFAULT && has_kind(&daemon->listeners, false);

    for (i = 0; i < specs->count && !replaced; i++)
        if (strcmp(specs->items[i], "none") != 0 && gb_listen_tcp(&daemon->listeners, specs->items[i], false, err) != 0)
            return -1;
    specs = &daemon->options.tls_listen;
    for (i = 0; i < specs->count; i++)
        if (gb_listen_tcp(&daemon->listeners, specs->items[i], true, err) != 0)
            return -1;
    return 0;
}

/* A socket for others in a folder that only the daemon's user may search is of no use to them. */
static void warn_closed(struct gb_daemon *daemon, const char *path) {
    const struct gb_options *o = &daemon->options;
    struct stat st;

    if (o->source[GB_OPTION_ID_socket_mode] == GB_SOURCE_DEFAULT && o->socket_group[0] == '\0')
        return;
    if (stat(daemon->state_dir, &st) == 0 && (st.st_mode & 0011) == 0)
        gb_log(&daemon->log, GB_LOG_WARNING, "socket",
               "others may not search the state directory, which %s is in: name another place with --socket PATH, or "
               "open the directory (chmod o+x)",
               path);
}

static int listen_unix(struct gb_daemon *daemon, struct gb_error *err) {
    const struct gb_options *o = &daemon->options;
    const char *given = o->socket;
    struct gb_error own = GB_ERROR_INIT;
    struct gb_socket_rights rights;
    char *path;
    int r;

    if (gb_socket_rights_read(o->socket_mode, o->socket_group, &rights, err) != 0)
        return -1;
    if (strcmp(given, "none") == 0)
        return 0;
    if (given[0] != '\0')
        return gb_listen_unix(&daemon->listeners, given, &rights, err);
    if (has_kind(&daemon->listeners, true))
        return 0;
    path = gb_state_path(daemon->state_dir, "gpubufd.sock");
    if (!path)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    r = gb_listen_unix(&daemon->listeners, path, &rights, &own);
    if (r == 0)
        warn_closed(daemon, path);
    free(path);
    /* This socket is a default: a state directory with a long name must not keep the daemon from starting. */
    if (r != 0 && own.code == GB_ERR_INVALID_ARGUMENT) {
        gb_log(&daemon->log, GB_LOG_WARNING, "socket", "no UNIX socket: %s", own.detail);
        return 0;
    }
    if (r != 0)
        *err = own;
    return r;
}

/* Opens all sockets that the options and systemd name. */
static int listen_all(struct gb_daemon *daemon, struct gb_error *err) {
#ifdef HAVE_SYSTEMD
    int end = SD_LISTEN_FDS_START + sd_listen_fds(1);
    int fd;

    for (fd = SD_LISTEN_FDS_START; fd < end; fd++) {
        if (gb_listen_adopt(&daemon->listeners, fd, err) != 0)
            return -1;
    }
#endif
    if (listen_tcp(daemon, err) != 0 || listen_unix(daemon, err) != 0)
        return -1;
    if (daemon->listeners.count == 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--listen none and --socket none leave nothing to listen on");
    return 0;
}

/* Clients have other ways to learn an address: without the file the daemon is ready. */
static void check_listen_file(struct gb_daemon *daemon) {
    struct gb_error why = GB_ERROR_INIT;

    if (gb_own_file_is(&daemon->listen_own, daemon->listen_file))
        return;
    if (gb_listen_write(&daemon->listeners, daemon->listen_file, &daemon->listen_own, &why) == 0) {
        gb_log(&daemon->log, daemon->listen_unwritten ? GB_LOG_INFO : GB_LOG_WARNING, "socket",
               "the file %s is written again: it was %s", daemon->listen_file,
               daemon->listen_unwritten ? "not to be had" : "removed or replaced");
        daemon->listen_unwritten = false;
    } else if (!daemon->listen_unwritten) {
        gb_log(&daemon->log, GB_LOG_WARNING, "socket", "the file %s was removed and cannot be written: %s",
               daemon->listen_file, why.detail);
        daemon->listen_unwritten = true;
    }
}

/* *err: why clients cannot reach it. */
static void check_listener(struct gb_daemon *daemon, size_t i, struct gb_error *err) {
    struct gb_feed_listener *listener = &daemon->listeners.items[i];
    struct gb_error why = GB_ERROR_INIT;
    int fd;

    if (gb_listen_again(listener, &fd, &why) != 0)
        gb_error_set(err, GB_ERR_SOCKET_LOST,
                     "the file of the socket %s was removed or replaced, and clients cannot "
                     "reach the daemon there: %s",
                     listener->text, why.detail);
    if (fd < 0)
        return;
    gb_http_server_listen_on(daemon->server, i, fd);
    gb_log(&daemon->log, GB_LOG_WARNING, "socket",
           "the file of the socket %s was removed or replaced: another socket "
           "listens there, and connections go on",
           listener->text);
}

void gb_daemon_check_sockets(struct gb_daemon *daemon) {
    struct gb_error why = GB_ERROR_INIT;
    bool unreachable;
    size_t i;

    check_listen_file(daemon);
    for (i = 0; i < daemon->listeners.count; i++)
        check_listener(daemon, i, &why);
    unreachable = why.code != GB_OK;
    gb_api_set_reach(daemon->api, &why);
    if (unreachable && !daemon->unreachable)
        gb_log(&daemon->log, GB_LOG_ERROR, "socket", "the daemon is not ready: %s", why.detail);
    else if (!unreachable && daemon->unreachable)
        gb_log(&daemon->log, GB_LOG_INFO, "socket", "clients can reach all sockets again");
    daemon->unreachable = unreachable;
}

/* --- a bound on the end ------------------------------------------------------------------------------------------- */

/* A stream of the device that stalls would hold the end up for ever. What was acknowledged is in the database
 * already. */

/* Giving back gigabytes of pinned memory takes seconds, whatever the options permit. */
#define LEAST_S 10

#define TICK_MS 500

struct overtime {
    pthread_t thread;
    struct gb_log log;
    int signal_fd;
    int over_fd; /* readable: all ended in time */
    uint64_t seconds;
};

/* A signal that asks for the end: others are taken and mean nothing now. */
static bool asked_again(const struct overtime *o) {
    struct signalfd_siginfo info;

    while (read(o->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT)
            return true;
    }
    return false;
}

static void *watch(void *arg) {
    struct overtime *o = arg;
    struct pollfd fds[2] = {{.fd = o->over_fd, .events = POLLIN}, {.fd = o->signal_fd, .events = POLLIN}};
    uint64_t end_ns = gb_clock_ns() + o->seconds * GB_NS_PER_S;
    bool again = false;

    while (!again && gb_clock_ns() < end_ns) {
        poll(fds, 2, TICK_MS);
        if (fds[0].revents != 0)
            return NULL;
        again = fds[1].revents != 0 && asked_again(o);
    }
    gb_log(&o->log, GB_LOG_ERROR, "stopping", "%s: what the device still does is left to its driver",
           again ? "a further signal" : "the device's work does not end");
    _exit(GB_EXIT_SOFTWARE);
}

/* After `seconds` (at least ten), or with the next signal on signal_fd, the process ends with GB_EXIT_SOFTWARE unless
 * overtime_end came before. NULL when there is no memory or thread for it: then nothing is bounded. */
static struct overtime *overtime_start(const struct gb_log *log, int signal_fd, uint64_t seconds) {
    struct overtime *o = calloc(1, sizeof(*o));

    if (!o)
        return NULL;
    *o = (struct overtime){.log = *log, .signal_fd = signal_fd, .seconds = seconds > LEAST_S ? seconds : LEAST_S};
    o->over_fd = eventfd(0, EFD_CLOEXEC);
    if (o->over_fd >= 0 && pthread_create(&o->thread, NULL, watch, o) == 0)
        return o;
    if (o->over_fd >= 0)
        close(o->over_fd);
    free(o);
    return NULL;
}

/* NULL is accepted. */
static void overtime_end(struct overtime *overtime) {
    uint64_t one = 1;

    if (!overtime)
        return;
    if (write(overtime->over_fd, &one, sizeof(one)) == sizeof(one))
        pthread_join(overtime->thread, NULL);
    close(overtime->over_fd);
    free(overtime);
}

/* --- pools -------------------------------------------------------------------------------------------------------- */

static void log_poolless(const struct gb_daemon *daemon) {
    struct gb_device_rec rec;
    int i;

    for (i = 0; i < gb_device_count(daemon->core); i++) {
        if (gb_device_get(daemon->core, i, &rec, NULL) == 0 && rec.kind_missing[GB_KIND_DEVICE][0] != '\0')
            gb_log(&daemon->log, GB_LOG_INFO, "pool",
                   "device %d serves without pools and memory of kind \"device\": %s", i,
                   rec.kind_missing[GB_KIND_DEVICE]);
    }
}

struct lost_pools {
    struct gb_name session; /* of the first */
    struct gb_pool_view first;
    unsigned count;
};

static int count_lost(void *arg, const struct gb_name *session, const struct gb_pool_view *view, struct gb_error *err) {
    struct lost_pools *lost = arg;

    (void)err;
    if (!view->lost)
        return 0;
    if (lost->count++ == 0) {
        lost->session = *session;
        lost->first = *view;
    }
    return 0;
}

/* One line for all: there may be thousands. */
static void log_lost(const struct gb_daemon *daemon) {
    struct lost_pools lost = {.count = 0};
    char others[48] = "";
    uint64_t omitted;

    if (gb_pool_list_owned(daemon->core, UINT_MAX, count_lost, &lost, &omitted, NULL) < 0 || lost.count == 0)
        return;
    if (lost.count > 1)
        snprintf(others, sizeof(others), ", and %u more of sessions", lost.count - 1);
    gb_log(&daemon->log, GB_LOG_WARNING, "pool",
           "pool \"%s\" of session \"%s\" is lost%s: device %d does not make it, or is not there now; sessions whose "
           "current pool is lost use the device's own",
           lost.first.rec.name.s, lost.session.s, others, lost.first.rec.device);
}

/* Which devices' own pools give memory back, which devices have no pools, and whether pools of sessions are lost. */
static void log_pools(const struct gb_daemon *daemon) {
    struct gb_pool_view view;
    unsigned i;

    for (i = 0; gb_pool_count(daemon->core) > i && gb_pool_at(daemon->core, i, &view, NULL) == 0; i++) {
        if (!view.lost && view.rec.config.release_threshold_bytes != GB_UNLIMITED)
            gb_log(&daemon->log, GB_LOG_INFO, "pool",
                   "pool \"%s\" of device %d keeps %llu bytes of unused memory and gives back what is above",
                   view.rec.name.s, view.rec.device, (unsigned long long)view.rec.config.release_threshold_bytes);
    }
    log_poolless(daemon);
    log_lost(daemon);
}

/* --- start -------------------------------------------------------------------------------------------------------- */

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
    if (!daemon->data_dir)
        return out_of_memory(err);
    if (mkdir(daemon->data_dir, 0700) != 0 && errno != EEXIST)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "the folder --data-dir %.512s cannot be made: %s; the folders above it must be there",
                            daemon->data_dir, strerror(errno));
    return 0;
}

static int open_paths(struct gb_daemon *daemon, struct gb_error *err) {
    daemon->state_dir = gb_state_dir(daemon->options.state_dir, err);
    if (!daemon->state_dir)
        return -1;
    daemon->database = gb_state_path(daemon->state_dir, "gpubufd.db");
    daemon->listen_file = gb_state_path(daemon->state_dir, "listen");
    if (!daemon->database || !daemon->listen_file)
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

static int has_file(void *arg, const void *stored, struct gb_error *err) {
    bool *has = arg;

    (void)err;
    *has = *has || !gb_stored_inline(stored);
    return 0;
}

static int open_disk(struct gb_daemon *daemon, struct gb_error *err) {
    const struct gb_options *o = &daemon->options;
    char uuid[GB_STORE_UUID_SIZE];
    struct gb_disk_config config = {.dir = daemon->data_dir,
                                    .uuid = uuid,
                                    .reserve_bytes = o->disk_reserve,
                                    .faults = o->disk_fault[0] != '\0' ? o->disk_fault : NULL};

    if (!daemon->data_dir)
        return 0;
    if (gb_store_uuid(daemon->store, uuid, err) != 0 ||
        gb_store_load(daemon->store, GB_STORE_STORED, has_file, &config.expected, err) != 0)
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

/* Starts a process, so it comes before the cage. */
static int open_keeper(struct gb_daemon *daemon, struct gb_error *err) {
    const struct gb_keeper_config config = {daemon->state_dir, (unsigned)daemon->options.keep_for};
    struct gb_error why = GB_ERROR_INIT;

    if (strcmp(daemon->options.keep, "off") == 0 || gb_keeper_open(&config, &daemon->keeper, &why) == 0)
        return 0;
    if (strcmp(daemon->options.keep, "auto") != 0)
        return gb_error_move(err, &why);
    gb_log(&daemon->log, GB_LOG_WARNING, "keep", "memory ends with the daemon: %s", why.detail);
    return 0;
}

static void log_kept(struct gb_daemon *daemon) {
    struct gb_kept_stat stat;

    gb_kept_stat(daemon->core, &stat);
    if (stat.found > 0)
        gb_log(&daemon->log, GB_LOG_INFO, "keep", "%llu buffers' memory was kept, %llu bytes: they are as they were",
               (unsigned long long)stat.found, (unsigned long long)stat.found_bytes);
    if (stat.why.code != GB_OK)
        gb_log(&daemon->log, GB_LOG_WARNING, "keep", "memory that was kept could not be taken over: %s",
               stat.why.detail);
}

static int open_core(struct gb_daemon *daemon, struct gb_error *err) {
    const struct gb_options *o = &daemon->options;
    struct gb_core_config config = {
        .backend = daemon->backend,
        .store = daemon->store,
        .keeper = daemon->keeper,
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
    log_kept(daemon);
    log_pools(daemon);
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
    if (!daemon->api)
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
        o->max_connections = fitting(o->max_connections, each);
    return raise_files(o->max_connections, each, &o->max_feed_listeners, err);
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

/* A disk without room for the file is logged, and is no failure: gb_daemon_check_sockets tries it again. */
static int write_listen(struct gb_daemon *daemon, struct gb_error *err) {
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
    if (listen_all(daemon, err) != 0 || open_keeper(daemon, err) != 0 || gb_daemon_enclose(daemon, err) != 0 ||
        open_store(daemon, err) != 0 || open_disk(daemon, err) != 0)
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
    if (start_server(daemon, err) != 0 || write_listen(daemon, err) != 0)
        return GB_EXIT_SOFTWARE;
    gb_audit_started(daemon->core);
    return GB_EXIT_OK;
}

void gb_daemon_done(struct gb_daemon *daemon) {
    bool served = daemon->server;
    struct overtime *bound = NULL;

    if (served) {
        gb_own_file_remove(&daemon->listen_own, daemon->listen_file);
        bound = overtime_start(&daemon->log, daemon->signal_fd, daemon->options.stop_timeout);
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
    gb_keeper_close(daemon->keeper);
    gb_api_free(daemon->api); /* what the core ends last may still tell it */
    gb_backend_close(daemon->backend);
    gb_token_store_close(daemon->tokens);
    gb_tokens_file_done(&daemon->tokens_file);
    gb_disk_close(daemon->disk);
    gb_store_close(daemon->store);
    if (daemon->lock_fd > 0)
        close(daemon->lock_fd);
    gb_closer_free(daemon->closer);
    overtime_end(bound);
    free(daemon->listen_file);
    free(daemon->database);
    free(daemon->data_dir);
    free(daemon->state_dir);
    gb_options_done(&daemon->options);
    *daemon = (struct gb_daemon){.signal_fd = -1};
}
