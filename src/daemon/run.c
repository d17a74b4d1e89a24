/* The main thread while the daemon serves: signals, tokens, the watchdog, the ordered stop. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/daemon.h"
#include "daemon/request_log.h"
#include "daemon/systemd.h"

#define TICK_MS 500
#define DRAIN_TICK_MS 20
#define FEED_MS 500 /* for the last event to be written; the disk may be slow */

/* Waits up to timeout_ms for a signal; 0 when none came. */
static int next_signal(struct gb_daemon *daemon, int timeout_ms) {
    struct pollfd pfd = {.fd = daemon->signal_fd, .events = POLLIN};
    struct signalfd_siginfo info;

    if (poll(&pfd, 1, timeout_ms) <= 0 || read(daemon->signal_fd, &info, sizeof info) != (ssize_t)sizeof info)
        return 0;
    return (int)info.ssi_signo;
}

/* What tokens hold that are no longer in force ends. */
static void end_revoked(struct gb_daemon *daemon) {
    gb_http_server_recheck(daemon->server);
    gb_api_tokens_changed(daemon->api);
}

static void check_token_end(struct gb_daemon *daemon) {
    int64_t now_us = gb_tokens_now_us(daemon->core);
    struct gb_token_count count;

    /* The clock was set ahead and back again: what was over is to come. */
    if (now_us < daemon->token_look_us)
        gb_daemon_note_token_end(daemon, now_us);
    else
        daemon->token_look_us = now_us;
    if (daemon->token_end_us == 0 || now_us < daemon->token_end_us)
        return;
    gb_log(&daemon->log, GB_LOG_INFO, "tokens", "the time of a token, or of its former secret, is over");
    if (gb_daemon_load_tokens(daemon, &count, NULL) == 0)
        gb_daemon_log_tokens(daemon, &count);
    gb_daemon_note_token_end(daemon, now_us);
    end_revoked(daemon);
}

static void reload_tokens(struct gb_daemon *daemon, bool asked) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_error file_err = GB_ERROR_INIT;
    bool changed = false;
    bool file_changed = false;
    struct gb_token_count count;

    if (gb_daemon_read_tokens_file(daemon, asked, &file_changed, &file_err) != 0)
        gb_log(&daemon->log, GB_LOG_ERROR, "tokens", "%s; the file's tokens that are known stay in force",
               file_err.detail);
    daemon->tokens_due = daemon->tokens_due || file_changed || asked;
    if (gb_token_changed(daemon->tokens, &changed, &err) == 0) {
        daemon->tokens_due = daemon->tokens_due || changed;
        if (daemon->tokens_due && gb_daemon_load_tokens(daemon, &count, &err) == 0) {
            daemon->tokens_due = false;
            gb_daemon_log_tokens(daemon, &count);
            end_revoked(daemon);
        }
    }
    if (err.code != GB_OK && (!daemon->tokens_failed || asked))
        gb_log(&daemon->log, GB_LOG_ERROR, "tokens", "cannot be read, those known stay in force: %s", err.detail);
    daemon->tokens_failed = err.code != GB_OK;
    check_token_end(daemon);
}

/* Until the next look, or until a token's time is over. */
static int patience_ms(const struct gb_daemon *daemon, int tick_ms) {
    int64_t left_us = daemon->token_end_us > 0 ? daemon->token_end_us - gb_tokens_now_us(daemon->core) : INT64_MAX;

    if (left_us <= 0)
        return 0;
    return left_us / 1000 < tick_ms ? (int)(left_us / 1000) + 1 : tick_ms;
}

static void check_writable(struct gb_daemon *daemon) {
    struct gb_error why = GB_ERROR_INIT;
    char status[512] = "STATUS=";
    bool refuses = gb_store_health(daemon->store, &why) < 0;

    if (refuses == daemon->store_refuses)
        return;
    daemon->store_refuses = refuses;
    if (refuses)
        gb_log(&daemon->log, GB_LOG_ERROR, "database", "takes no changes, the daemon is not ready: %s", why.detail);
    else
        gb_log(&daemon->log, GB_LOG_INFO, "database", "takes changes again");
    if (refuses)
        snprintf(status, sizeof status, "STATUS=not ready: %s", why.detail);
    gb_systemd_notify(status);
}

/* Each client gets the error of its own change; the log tells the administrator about a full disk. */
static void check_store(struct gb_daemon *daemon) {
    struct gb_store_stat stat;
    uint64_t failures;

    check_writable(daemon);

    gb_store_stat(daemon->store, &stat);
    failures = stat.failures - stat.orphans;
    if (failures > daemon->store_failures)
        gb_log(&daemon->log, GB_LOG_WARNING, "database", "%llu changes were refused, %llu in all, the last one: %s",
               (unsigned long long)(failures - daemon->store_failures), (unsigned long long)failures,
               stat.last_failure.code != GB_OK ? stat.last_failure.detail : "too many changes wait");
    daemon->store_failures = failures;
}

/* Records keep the times that the clock gave them. */
static void check_clock(struct gb_daemon *daemon) {
    struct gb_store_jump jump;
    char from[GB_RFC3339_SIZE];
    char to[GB_RFC3339_SIZE];

    if (!gb_store_clock(daemon->store, &jump))
        return;
    gb_rfc3339(jump.from_us, from);
    gb_rfc3339(jump.to_us, to);
    gb_log(&daemon->log, GB_LOG_WARNING, "clock",
           jump.running
               ? "the clock was set from %s to %s: nothing is older by that, and what is kept for a time is kept "
                 "for as long as the daemon sees pass; tokens end by the later of the two"
               : "the daemon ran until %s, and the clock says %s: nothing is older by that, and what is kept for a "
                 "time is kept for as long as the daemon sees pass; tokens end by the clock",
           from, to);
}

static void check_disk(struct gb_daemon *daemon) {
    struct gb_error why = GB_ERROR_INIT;
    enum gb_disk_state state;
    uint64_t damaged;

    if (!daemon->disk)
        return;
    state = gb_disk_state_of(daemon->disk, &why);
    if (state != daemon->disk_state && state == GB_DISK_READY)
        gb_log(&daemon->log, GB_LOG_INFO, "storage", "takes durable writes again");
    else if (state != daemon->disk_state)
        gb_log(&daemon->log, GB_LOG_ERROR, "storage", "%s: durable writes are refused: %s", gb_disk_state_name(state),
               why.detail);
    daemon->disk_state = state;
    damaged = gb_disk_damaged(daemon->disk);
    if (damaged > daemon->disk_damaged)
        gb_log(&daemon->log, GB_LOG_ERROR, "storage",
               "%llu files were found damaged or missing, %llu in all; the feed names each (buffer.damaged), and the "
               "buffers say so (\"gpubuf ls\")",
               (unsigned long long)(damaged - daemon->disk_damaged), (unsigned long long)damaged);
    daemon->disk_damaged = damaged;
}

/* True when the device is lost and the daemon was asked to end then. */
static bool check_device(struct gb_daemon *daemon) {
    struct gb_error why = GB_ERROR_INIT;

    if (daemon->device_lost || !gb_backend_dead(daemon->backend, &why))
        return false;
    daemon->device_lost = true;
    gb_log(&daemon->log, GB_LOG_ERROR, "device_lost", "%s (%s); requests get 503 until the daemon is restarted",
           why.detail, why.native_name);
    return daemon->options.exit_on_device_loss;
}

static void stop_in_order(struct gb_daemon *daemon) {
    uint64_t end_ns = gb_clock_ns() + daemon->options.stop_timeout * GB_NS_PER_S;
    struct gb_http_server_stat stat;

    gb_systemd_notify("STOPPING=1");
    gb_log(&daemon->log, GB_LOG_INFO, "stopping", "running requests may go on for %llu s",
           (unsigned long long)daemon->options.stop_timeout);
    gb_daemon_drain_fleet(daemon);
    gb_api_set_draining(daemon->api);
    gb_holds_release(daemon->core);
    gb_selftests_stop(daemon->core);
    gb_feed_stopping(daemon->core, FEED_MS);
    gb_http_server_drain(daemon->server);
    for (;;) {
        int signal_number = next_signal(daemon, DRAIN_TICK_MS);

        gb_http_server_stat(daemon->server, &stat);
        if (stat.connections + stat.listeners == 0)
            return;
        if (signal_number == SIGTERM || signal_number == SIGINT) {
            gb_log(&daemon->log, GB_LOG_WARNING, "stopping", "second signal: %llu connections are cut",
                   (unsigned long long)(stat.connections + stat.listeners));
            return;
        }
        if (gb_clock_ns() >= end_ns) {
            gb_log(&daemon->log, GB_LOG_WARNING, "stopping", "time is up: %llu connections are cut",
                   (unsigned long long)(stat.connections + stat.listeners));
            return;
        }
    }
}

/* The feed names the buffers. */
static void tell_found(const struct gb_daemon *daemon) {
    struct gb_core_found found;

    gb_core_found(daemon->core, &found);
    if (found.lost + found.rolled_back + found.orphans == 0)
        return;
    gb_log(&daemon->log, found.missing > 0 ? GB_LOG_WARNING : GB_LOG_INFO, "start",
           "%llu buffers are lost, of which %llu are durable and lack their files; %llu have the bytes of an earlier "
           "generation; %llu files of no buffer were moved to orphans/",
           (unsigned long long)found.lost, (unsigned long long)found.missing, (unsigned long long)found.rolled_back,
           (unsigned long long)found.orphans);
}

enum gb_exit gb_daemon_run(struct gb_daemon *daemon) {
    uint64_t watchdog_ms = gb_systemd_watchdog_ms();
    int tick_ms = watchdog_ms != 0 && watchdog_ms / 3 < TICK_MS ? (int)(watchdog_ms / 3) + 1 : TICK_MS;
    enum gb_exit status = GB_EXIT_OK;

    gb_log(&daemon->log, GB_LOG_INFO, "ready", "version %s, state in %s", PACKAGE_VERSION, daemon->state_dir);
    tell_found(daemon);
    gb_systemd_notify("READY=1");
    for (;;) {
        int signal_number = next_signal(daemon, patience_ms(daemon, tick_ms));

        if (signal_number == SIGTERM || signal_number == SIGINT)
            break;
        reload_tokens(daemon, signal_number == SIGHUP);
        if (signal_number == SIGHUP) {
            gb_audit_reopen(daemon->core);
            gb_request_log_reopen(daemon->requests);
        }
        gb_daemon_reload_tls(daemon, signal_number == SIGHUP);
        check_clock(daemon);
        check_store(daemon);
        check_disk(daemon);
        gb_daemon_check_sockets(daemon);
        gb_daemon_check_audit(daemon);
        gb_request_log_check(daemon->requests);
        gb_daemon_check_fleet(daemon);
        if (check_device(daemon)) {
            status = GB_EXIT_DEVICE;
            break;
        }
        if (watchdog_ms != 0)
            gb_systemd_notify("WATCHDOG=1");
    }
    stop_in_order(daemon);
    return status;
}
