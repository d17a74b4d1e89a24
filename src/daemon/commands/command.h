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
    const char *argument; /* "": it takes no value */
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

#define GB_COMMAND_WORDS 2
#define GB_COMMAND_OWNS 16

/* What stands behind the word of a command. Zero-initialised but for the first three. Texts are of argv. */
struct gb_command_line {
    size_t most; /* words that are no options, up to GB_COMMAND_WORDS */
    /* Gets each option of the command's own as it is read; NULL: none does. Returns 0 or -1. */
    int (*take)(void *arg, int own, const char *value, struct gb_error *err);
    void *arg;
    const char *words[GB_COMMAND_WORDS]; /* a verb and NAME */
    size_t count;
    const char
        *own[GB_COMMAND_OWNS]; /* the last value of each of the command's own, its name if it has none; or NULL */
};

/* Reads all words. Those of the daemon's options go to options, and may stand among the others. Returns 0 or -1. */
int gb_command_read(const struct gb_command *command, struct gb_options *options, int argc, char **argv,
                    struct gb_command_line *line, struct gb_error *err);

/* The place of the verb that was read; GB_COMMAND_ALL: it is no verb, or there is no word. */
int gb_command_verb(const struct gb_command *command, const struct gb_command_line *line);

/* Refuses options of the command's own that the verb does not take. */
int gb_command_fits(const struct gb_command *command, int verb, const struct gb_command_line *line,
                    struct gb_error *err);

/* Prints an error of the words. Returns GB_EXIT_USAGE. */
enum gb_exit gb_command_usage_error(const struct gb_command *command, const struct gb_error *err);

#endif
