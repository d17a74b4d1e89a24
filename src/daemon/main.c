/* The process: command line, signals, the loop of the main thread while the daemon serves, the ordered stop. Twice a
 * second the loop checks tokens, certificates, store, disk, sockets, fleet and device, and logs what has changed. */
#include <ctype.h>
#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#ifdef HAVE_SYSTEMD
#include <systemd/sd-daemon.h>
#endif

#include "backend/backend.h"
#include "base/clock.h"
#include "base/lines.h"
#include "base/process.h"
#include "base/text.h"
#include "base/thread.h"
#include "daemon/cage/enclose.h"
#include "daemon/certificates.h"
#include "daemon/commands/command.h"
#include "daemon/daemon.h"
#include "daemon/fleet.h"
#include "daemon/request_log.h"
#include "daemon/tokens.h"
#include "keeper/keeper.h"

/* --- systemd ------------------------------------------------------------------------------------------------------ */

/* A state text such as "READY=1". Without libsystemd at build time systemd is not notified. */
static void notify(const char *state) {
#ifdef HAVE_SYSTEMD
    sd_notify(0, state);
#else
    (void)state;
#endif
}

/* Within how many milliseconds systemd expects "WATCHDOG=1"; 0: it does not. */
static uint64_t watchdog_period_ms(void) {
    uint64_t us = 0;

#ifdef HAVE_SYSTEMD
    if (sd_watchdog_enabled(0, &us) <= 0)
        us = 0;
#endif
    return us / 1000;
}

/* --- while it serves ---------------------------------------------------------------------------------------------- */

#define TICK_MS 500
#define DRAIN_TICK_MS 20
#define AUDIT_NS (60 * GB_NS_PER_S)
#define FEED_MS 500 /* for the last event to be written; the disk may be slow */

/* Waits up to timeout_ms for a signal; 0 when none came. */
static int next_signal(struct gb_daemon *daemon, int timeout_ms) {
    struct pollfd pfd = {.fd = daemon->signal_fd, .events = POLLIN};
    struct signalfd_siginfo info;

    if (poll(&pfd, 1, timeout_ms) <= 0 || read(daemon->signal_fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
        return 0;
    return (int)info.ssi_signo;
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
        snprintf(status, sizeof(status), "STATUS=not ready: %s", why.detail);
    notify(status);
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

/* Logs what the audit's file has not taken, once a minute. */
static void check_audit(struct gb_daemon *daemon) {
    struct gb_audit_numbers numbers;
    uint64_t now_ns = gb_clock_ns();

    if (daemon->audit_log_ns != 0 && now_ns - daemon->audit_log_ns < AUDIT_NS)
        return;
    gb_audit_numbers(daemon->core, &numbers);
    if (numbers.file_failures == daemon->audit_failures)
        return;
    gb_log(&daemon->log, GB_LOG_ERROR, "audit", "%llu records are not in %s, %llu in all: %s",
           (unsigned long long)(numbers.file_failures - daemon->audit_failures), daemon->options.audit_file,
           (unsigned long long)numbers.file_failures, numbers.file_error.detail);
    daemon->audit_failures = numbers.file_failures;
    daemon->audit_log_ns = now_ns;
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

    notify("STOPPING=1");
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

/* Serves until a signal or, if so asked, the loss of the device; then ends in order. */
static enum gb_exit run(struct gb_daemon *daemon) {
    uint64_t watchdog_ms = watchdog_period_ms();
    int tick_ms = watchdog_ms != 0 && watchdog_ms / 3 < TICK_MS ? (int)(watchdog_ms / 3) + 1 : TICK_MS;
    enum gb_exit status = GB_EXIT_OK;

    gb_log(&daemon->log, GB_LOG_INFO, "ready", "version %s, state in %s", PACKAGE_VERSION, daemon->state_dir);
    tell_found(daemon);
    notify("READY=1");
    for (;;) {
        int signal_number = next_signal(daemon, gb_daemon_token_patience_ms(daemon, tick_ms));

        if (signal_number == SIGTERM || signal_number == SIGINT)
            break;
        gb_daemon_reload_tokens(daemon, signal_number == SIGHUP);
        if (signal_number == SIGHUP) {
            gb_audit_reopen(daemon->core);
            gb_request_log_reopen(daemon->requests);
        }
        gb_daemon_reload_tls(daemon, signal_number == SIGHUP);
        check_clock(daemon);
        check_store(daemon);
        check_disk(daemon);
        gb_daemon_check_sockets(daemon);
        check_audit(daemon);
        gb_request_log_check(daemon->requests);
        gb_daemon_check_fleet(daemon);
        if (check_device(daemon)) {
            status = GB_EXIT_DEVICE;
            break;
        }
        if (watchdog_ms != 0)
            notify("WATCHDOG=1");
    }
    stop_in_order(daemon);
    return status;
}

/* --- the process -------------------------------------------------------------------------------------------------- */

/* Nothing is lost when such a signal comes, and its default is to end the process. One that has a handler already, as
 * of a profiler that was loaded before us, keeps it. */
static void ignore(int number) {
    struct sigaction had;

    if (sigaction(number, NULL, &had) == 0 && had.sa_handler == SIG_DFL)
        signal(number, SIG_IGN);
}

static void ignore_signals(void) {
    static const int numbers[] = {
        SIGPIPE, SIGUSR1, SIGUSR2,   SIGALRM, SIGVTALRM, SIGPROF,
        SIGIO,   SIGPWR,  SIGSTKFLT, SIGXFSZ}; /* a file that may not grow is an error of that write, not the end */
    size_t i;
    int n;

    for (i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        ignore(numbers[i]);
    for (n = SIGRTMIN; n <= SIGRTMAX; n++)
        ignore(n);
}

/* Before any thread exists: all inherit the mask, and only the descriptor sees these signals. */
static int block_signals(void) {
    sigset_t set;

    ignore_signals();
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0)
        return -1;
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* What a device or the database said has a name to look up; errno's text stands in the sentence already. */
static void log_failure(const struct gb_daemon *daemon, const struct gb_error *err) {
    if (err->native_domain[0] == '\0' || strcmp(err->native_domain, "errno") == 0)
        gb_log(&daemon->log, GB_LOG_ERROR, "start", "%s", err->detail);
    else
        gb_log(&daemon->log, GB_LOG_ERROR, "start", "%s (%s)", err->detail, err->native_name);
}

static enum gb_exit serve(struct gb_daemon *daemon) {
    struct gb_error err = GB_ERROR_INIT;
    enum gb_exit status;

    /* Many arenas keep what bursts on many threads left behind; freed memory goes back. */
    gb_daemon_hide(daemon);
    mallopt(M_ARENA_MAX, 4);
    mallopt(M_TRIM_THRESHOLD, 4 << 20);
    daemon->log = (struct gb_log){.fd = STDERR_FILENO,
                                  .json = strcmp(daemon->options.log_format, "json") == 0,
                                  .journal = gb_lines_is_journal(STDERR_FILENO)};
    gb_log_level_parse(daemon->options.log_level, &daemon->log.level);
    daemon->signal_fd = block_signals();
    if (daemon->signal_fd < 0) {
        perror("gpubufd: signalfd");
        return GB_EXIT_SOFTWARE;
    }
    status = gb_daemon_start(daemon, &err);
    if (status == GB_EXIT_OK)
        status = run(daemon);
    else if (err.code == GB_ERR_INVALID_ARGUMENT)
        gb_usage_error(&err); /* an option whose value is only now looked into: in the form of all others */
    else
        log_failure(daemon, &err);
    return status;
}

/* What is shown is all that was asked for. */
static enum gb_exit show(bool help) {
    if (help)
        gb_options_help(stdout);
    else
        puts("gpubufd " PACKAGE_VERSION);
    if (fflush(stdout) == 0)
        return GB_EXIT_OK;
    fprintf(stderr, "gpubufd: standard output cannot be written: %s\n", strerror(errno));
    return GB_EXIT_SOFTWARE;
}

static const struct {
    const char *word;
    gb_command_fn *run;
} commands[] = {{"token", gb_token_command},
                {"tls", gb_tls_command},
                {"fsck", gb_fsck_command},
                {"recover", gb_recover_command},
                {"check", gb_check_command}};

static gb_command_fn *find_command(const char *word) {
    size_t i;

    for (i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (strcmp(commands[i].word, word) == 0)
            return commands[i].run;
    }
    return NULL;
}

static void no_command(const char *word, struct gb_error *err) {
    char hint[GB_NEAREST_HINT];
    struct gb_nearest nearest;
    size_t i;

    gb_nearest_begin(&nearest, word, strlen(word));
    for (i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        gb_nearest_try(&nearest, commands[i].word);
    gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                 "there is no command \"%.64s\"%s permitted: token, tls, fsck, recover, check, or none to serve", word,
                 nearest.name ? gb_nearest_hint(&nearest, "", hint) : ";");
}

int main(int argc, char **argv) {
    struct gb_daemon daemon = {.signal_fd = -1};
    struct gb_error err = GB_ERROR_INIT;
    enum gb_exit status = GB_EXIT_OK;
    gb_command_fn *command;
    struct gb_log log;
    int signal_fd;
    int at = 1;
    int taken = 1;
    int probed;

    gb_standard_hold();
    gb_thread_stacks();
    probed = gb_backend_probe(argc, argv);
    if (probed < 0)
        probed = gb_keeper_main(argc, argv);
    if (probed >= 0)
        return probed;
    while (at < argc && taken == 1)
        taken = gb_options_take(&daemon.options, argc, argv, &at, &err);
    command = taken == 0 ? find_command(argv[at]) : NULL;
    if (command) {
        status = command(&daemon.options, argc - at, argv + at);
        gb_options_done(&daemon.options);
        return status;
    }
    if (taken == 0 && strcmp(argv[at], "help") == 0) {
        gb_options_done(&daemon.options);
        return show(true);
    }
    if (taken == 0)
        no_command(argv[at], &err);
    if (taken != 1)
        status = gb_usage_error(&err);
    else if (daemon.options.help || daemon.options.version)
        status = show(daemon.options.help);
    else if (gb_options_finish(&daemon.options, &err) != 0)
        status = gb_usage_error(&err);
    else
        status = serve(&daemon);
    log = daemon.log;
    signal_fd = daemon.signal_fd;
    gb_daemon_done(&daemon);
    if (signal_fd >= 0) {
        if (status == GB_EXIT_OK)
            gb_log(&log, GB_LOG_INFO, "stopped", "in order");
        close(signal_fd);
    }
    return status;
}
