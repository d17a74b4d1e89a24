/* SIGINT, SIGTERM and SIGHUP: the first breaks off the request that is under way, so that nothing is left half-done;
 * the second ends the process. */
#ifndef GB_CLI_SIGNALS_H
#define GB_CLI_SIGNALS_H

#include <pthread.h>
#include <signal.h>

struct gb_cli;

struct gb_cli_signals {
    struct gb_cli *cli;
    pthread_t thread;
    sigset_t before;
};

/* Those that end the program here. */
void gb_cli_signals_fatal(sigset_t *ret);

/* Blocks them until gb_cli_signals_begin(), so that one that comes early is not lost and not fatal. */
void gb_cli_signals_block(void);
/* Starts the thread that waits for them; all other threads started from now on have them blocked. -1 with errno. */
int gb_cli_signals_begin(struct gb_cli_signals *signals, struct gb_cli *cli);
void gb_cli_signals_end(struct gb_cli_signals *signals);

#endif
