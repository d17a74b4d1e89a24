/* What the commands of gpubufd share: their words and options as tables, for help and for errors. */
#ifndef GB_DAEMON_COMMAND_H
#define GB_DAEMON_COMMAND_H

#include "daemon/daemon.h"

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

/* Checks a value of one of the command's own options: a FILE or a DIR is a path. Returns 0 or -1. */
int gb_command_check(const struct gb_command_option *option, const char *value, struct gb_error *err);

/* The option of that name. Returns its place, or -1. */
int gb_command_find(const struct gb_command *command, const char *word);

/* Prints an error of the words. Returns GB_EXIT_USAGE. */
enum gb_exit gb_command_usage_error(const struct gb_command *command, const struct gb_error *err);

#endif
