#include <ctype.h>
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/lines.h"
#include "base/nearest.h"
#include "base/standard.h"
#include "base/thread.h"
#include "daemon/daemon.h"

enum gb_exit gb_usage_error(const struct gb_error *err) {
    const char *at;

    fputs("gpubufd: ", stderr);
    for (at = err->detail; *at != '\0'; at++) /* a word of the command line may hold what a terminal obeys */
        fputc(iscntrl((unsigned char)*at) && *at != '\n' ? '?' : *at, stderr);
    fputc('\n', stderr);
    fputs("gpubufd --help says more\n", stderr);
    return GB_EXIT_USAGE;
}

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
        status = gb_daemon_run(daemon);
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

typedef enum gb_exit command_fn(struct gb_options *options, int argc, char **argv);

static const struct {
    const char *word;
    command_fn *run;
} commands[] = {{"token", gb_token_command},
                {"tls", gb_tls_command},
                {"fsck", gb_fsck_command},
                {"recover", gb_recover_command},
                {"check", gb_check_command}};

static command_fn *find_command(const char *word) {
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
    command_fn *command;
    struct gb_log log;
    int signal_fd;
    int at = 1;
    int taken = 1;
    int probed;

    gb_standard_hold();
    gb_thread_stacks();
    probed = gb_backend_probe(argc, argv);
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
