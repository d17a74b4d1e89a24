/* The commands of gpubufd beside serving, and what they share: their words and options as tables, for help and for
 * errors. They run while no thread does, and print for a person or as JSON. main.c calls them. */
#ifndef GB_DAEMON_COMMANDS_COMMAND_H
#define GB_DAEMON_COMMANDS_COMMAND_H

#include "daemon/daemon.h"

/* A command: argv[0] is its word. Returns the exit status; errors go to standard error. */
typedef enum gb_exit gb_command_fn(struct gb_options *options, int argc, char **argv);
gb_command_fn gb_token_command;
gb_command_fn gb_tls_command;
gb_command_fn gb_fsck_command; /* this and the next look at stored bytes */
gb_command_fn gb_recover_command;
gb_command_fn gb_check_command;

/* Prints an error of the options with what is permitted. Returns GB_EXIT_USAGE. */
enum gb_exit gb_usage_error(const struct gb_error *err);

/* --- what they share ---------------------------------------------------------------------------------------------- */

#define GB_COMMAND_ALL (-1) /* every verb */

struct gb_command_verb {
    const char *usage; /* "add NAME [OPTION...]" */
    const char *help;
};

struct gb_command_option {
    const char *name;     /* "--scope" */
    const char *argument; /* "" where there is none */
    const char *help;
    unsigned verbs; /* that take it: 1u << the verb's place */
};

struct gb_command {
    const char *word; /* "token" */
    const struct gb_command_verb *verbs;
    int verb_count;
    const struct gb_command_option *options;
    int option_count;
    const enum gb_option_id *of_daemon; /* those of the daemon's options that matter here; all are taken */
    int of_daemon_count;
};

void gb_command_help(FILE *out, const struct gb_command *command, int verb);

/* The error of an option that there is not: the nearest one, and those of the verb. Returns -1. */
int gb_command_unknown(const struct gb_command *command, int verb, const char *word, struct gb_error *err);

/* Takes an option of the daemon, as gb_options_take does, among the words of the command. */
int gb_command_take(const struct gb_command *command, int verb, struct gb_options *options, int argc, char **argv,
                    int *at, struct gb_error *err);

/* Reads all words of a command without verbs: options of its own, which take no value and set *flags[i], and the
 * daemon's. Returns 0 or -1. */
int gb_command_flags(const struct gb_command *command, struct gb_options *options, int argc, char **argv,
                     bool *const flags[], struct gb_error *err);

/* Takes one of the command's own options at argv[*at], with its value, and moves *at behind it: 1, with its place
 * and the value (its own name if it has none). 0: it is none of them; -1: the value is missing, or a FILE or DIR is
 * no path. */
int gb_command_own(const struct gb_command *command, int argc, char **argv, int *at, int *ret_own,
                   const char **ret_value, struct gb_error *err);

/* Prints an error of the words. Returns GB_EXIT_USAGE. */
enum gb_exit gb_command_usage_error(const struct gb_command *command, const struct gb_error *err);

#endif
