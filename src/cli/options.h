/* Options and commands: options.def and commands.def give parsing, help and completion. */
#ifndef GB_CLI_OPTIONS_H
#define GB_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct gb_cli;

enum gb_cli_option_type {
    GB_CLI_TEXT,
    GB_CLI_PHRASE,
    GB_CLI_FILE,
    GB_CLI_DEVICE,
    GB_CLI_SIZE,
    GB_CLI_LIMIT,
    GB_CLI_COUNT,
    GB_CLI_SECONDS,
    GB_CLI_FLAG
};

enum gb_cli_option_id {
#define GB_CLI_OPTION(type, field, ...) GB_CLI_ID_##field,
#include "cli/options.def"
    GB_CLI_IDS
};

typedef const char *gb_cli_value_TEXT;
typedef const char *gb_cli_value_PHRASE;
typedef const char *gb_cli_value_FILE;
typedef const char *gb_cli_value_DEVICE;
typedef uint64_t gb_cli_value_SIZE;
typedef uint64_t gb_cli_value_LIMIT;
typedef uint64_t gb_cli_value_COUNT;
typedef double gb_cli_value_SECONDS;
typedef bool gb_cli_value_FLAG;

#define GB_CLI_NONE UINT64_MAX /* no limit */

/* A member for each line of options.def: zero where it was not given. Texts point into argv. */
struct gb_cli_options {
#define GB_CLI_OPTION(type, field, ...) gb_cli_value_##type field;
#include "cli/options.def"
    bool given[GB_CLI_IDS];
};

struct gb_cli_option_spec {
    const char *name;
    int letter; /* 0: none */
    const char *argument;
    const char *words;  /* separated by spaces */
    const char *takers; /* commands and their words, separated by spaces; "*": all */
    const char *help;
    const char *setting; /* its key in requests; NULL: it is no setting */
    size_t at;           /* offset of the value in struct gb_cli_options */
    enum gb_cli_option_type type;
};

struct gb_cli_command {
    const char *name;
    const char *arguments;
    int least;
    int most; /* 0: any number */
    const char *help;
    int (*run)(struct gb_cli *cli, int argc, char **argv); /* the exit status */
};

/* A word of a command: "add" of pools. */
struct gb_cli_verb {
    const char *command;
    const char *name;
    const char *help;
};

extern const struct gb_cli_verb gb_cli_verbs[];
extern const size_t gb_cli_verbs_count;

/* NULL: the command has no such word. */
const struct gb_cli_verb *gb_cli_verb_find(const struct gb_cli_command *command, const char *name);
/* The length of the arguments of its own that the help begins with; 0: it takes those of the command. */
size_t gb_cli_verb_own(const struct gb_cli_verb *verb);
/* Says on standard error which words the command has. */
void gb_cli_verb_unknown(const struct gb_cli_command *command, const char *name);

extern const struct gb_cli_option_spec gb_cli_options_all[GB_CLI_IDS];
extern const struct gb_cli_command gb_cli_commands[];
extern const size_t gb_cli_commands_count;

const struct gb_cli_command *gb_cli_command_find(const char *name);

/* Says on standard error that there is no such command, and which may be meant. */
void gb_cli_command_unknown(const char *name);

/* Whether every command takes the option. */
bool gb_cli_option_common(enum gb_cli_option_id id);
/* Whether the command takes it, or a word of it does; with verb, whether that word does. Common options are not among
 * them. */
bool gb_cli_option_taken(const struct gb_cli_command *command, const struct gb_cli_verb *verb,
                         enum gb_cli_option_id id);

/* Reads argv; what is no option is moved behind them, and *ret_first is the first of it. What does not fit is said on
 * standard error, with -1. */
int gb_cli_options_read(int argc, char **argv, struct gb_cli_options *ret, int *ret_first);

/* Takes the value of an option. NULL, or what it is not: "a number". */
const char *gb_cli_option_set(struct gb_cli_options *options, enum gb_cli_option_id id, const char *text);

/* Refuses options that the command or its word does not take, and too few or too many arguments. */
int gb_cli_options_check(const struct gb_cli_options *options, const struct gb_cli_command *command, int argc,
                         char **argv);

/* Refuses those of the options, names separated by spaces, that are given and would have no effect: -1 when that was
 * said, with why: "the buffers of a file have dtypes of their own". */
int gb_cli_options_idle(const struct gb_cli_options *options, const char *names, const char *why);

/* "64M" as bytes. -1 when it is no size. */
int gb_cli_size(const char *text, uint64_t *ret);

/* Whether word is among the words, which spaces separate. */
bool gb_cli_has_word(const char *words, const char *word);

/* Of all, of a command (verb NULL), or of a word of it. */
void gb_cli_help(FILE *out, const struct gb_cli_command *command, const struct gb_cli_verb *verb);

#endif
