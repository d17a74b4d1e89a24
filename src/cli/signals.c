#include "cli/signals.h"

#include <errno.h>
#include <unistd.h>

#include "cli/cli.h"

void gb_cli_signals_fatal(sigset_t *ret) {
    struct sigaction hangup;

    sigemptyset(ret);
    sigaddset(ret, SIGINT);
    sigaddset(ret, SIGTERM);
    /* nohup(1) has it ignored; one that is waited for comes all the same. */
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
        sigaddset(ret, SIGHUP);
}

static void set_of(sigset_t *set) {
    gb_cli_signals_fatal(set);
    sigaddset(set, SIGUSR2); /* ours: the end of the thread */
}

static void *watch(void *arg) {
    struct gb_cli_signals *signals = arg;
    struct gb_cli *cli = signals->cli;
    sigset_t set;
    int number;

    set_of(&set);
    for (;;) {
        if (sigwait(&set, &number) != 0)
            continue;
        if (number == SIGUSR2)
            return NULL;
        if (atomic_exchange(&cli->interrupted, number) != 0) {
            gb_cli_terminal_give_back(cli);
            _exit(gb_cli_end_of(cli, GB_CLI_INTERRUPTED));
        }
        gpubuf_interrupt(cli->client);
    }
}

void gb_cli_signals_block(void) {
    sigset_t set;

    set_of(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

int gb_cli_signals_begin(struct gb_cli_signals *signals, struct gb_cli *cli) {
    sigset_t set;
    int rc;

    signals->cli = cli;
    set_of(&set);
    pthread_sigmask(SIG_BLOCK, &set, &signals->before);
    signal(SIGPIPE, SIG_IGN); /* a reader that has left shows as EPIPE */
    rc = pthread_create(&signals->thread, NULL, watch, signals);
    if (rc != 0) {
        pthread_sigmask(SIG_SETMASK, &signals->before, NULL);
        errno = rc;
        return -1;
    }
    return 0;
}

void gb_cli_signals_end(struct gb_cli_signals *signals) {
    pthread_kill(signals->thread, SIGUSR2);
    pthread_join(signals->thread, NULL);
    pthread_sigmask(SIG_SETMASK, &signals->before, NULL);
}
