/* gpubuf, the command line of gpubufd: what its commands share. */
#ifndef GB_CLI_CLI_H
#define GB_CLI_CLI_H

#include <gpubuf/gpubuf.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

/* --- options and commands ----------------------------------------------------------------------------------------- */

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
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <termios.h>

#include "cli/out.h"

enum gb_cli_exit {
    GB_CLI_DONE = 0,
    GB_CLI_FAILED = 1, /* refused or failed, by the daemon or here */
    GB_CLI_USAGE = 2,
    GB_CLI_UNREACHABLE = 3,
    GB_CLI_NOT_FOUND = 4,
    GB_CLI_SOME_HOSTS = 6,
    GB_CLI_NO_HOST = 7,
    GB_CLI_INTERRUPTED = 130, /* by SIGINT; gb_cli_run() makes 128 and the number of another signal of it */
    GB_CLI_UNREAD = 141       /* as by SIGPIPE: who read standard output has gone */
};

#define GB_CLI_PATH 4096 /* longest request target, with its NUL */

#define GB_CLI_TRACE "* " /* stands before the lines of --verbose */

struct gb_cli_config;

/* The node of a fleet that has a session. */
struct gb_cli_owner {
    char node[GPUBUF_NAME_SIZE];
    char url[256];
    uint64_t epoch;
};

/* One run of a command. */
struct gb_cli {
    struct gb_cli_options options;
    const struct gb_cli_config *config; /* what the user's file says; borrowed */
    const char *secret;                 /* a token of that file; NULL: none */
    const char *usual;                  /* session of names without one that the file says; NULL: none */
    const struct gb_cli_command *command;
    const char *session;           /* of names without one */
    const char *host;              /* of --hosts; NULL without */
    gpubuf_client *_Atomic client; /* the thread of signals reads it */
    gpubuf_client *opened[2];      /* of the node that was chosen, and of the one that was chosen again; NULL: none */
    char *token;                   /* malloc'd or NULL */
    char *node;                    /* URL of a fleet's node that the command asks, malloc'd; NULL: no fleet is named */
    struct gb_cli_owner owner;     /* of the command's session, as the fleet says; no node: not asked */
    struct gpubuf_error error;
    json_t *problem;         /* of an error before other requests, see gb_cli_keep_problem(); or NULL */
    const char *about;       /* the buffer that an error is of, one of several; NULL: not said */
    atomic_int interrupted;  /* the signal that came; 0: none */
    struct termios terminal; /* as it was, where raw */
    atomic_bool raw;
    json_t *several; /* where gb_cli_show() puts JSON instead of printing it; NULL: nowhere */
    bool again;      /* the fleet was asked for the owner a second time */
};

/* What the shell would report of a program that the signal had ended, where one came and that ended the command:
 * statuses other than GB_CLI_INTERRUPTED stay. */
int gb_cli_end_of(const struct gb_cli *cli, int status);

/* Opens a client, runs the command, prints its error. The exit status. */
int gb_cli_run(struct gb_cli *cli, int argc, char **argv);
/* Writes what standard output still holds. The exit status: status, or that of the writing if it fails. */
int gb_cli_flush(struct gb_cli *cli, int status);
/* Runs it on each host of the list, in a process of its own. */
int gb_cli_run_hosts(struct gb_cli *cli, int argc, char **argv);

/* Reads the token, chooses the session and the node of a fleet, opens cli->client. GB_CLI_DONE, or the exit status of
 * what was said. gb_cli_end() undoes it in either case. */
int gb_cli_begin(struct gb_cli *cli);
void gb_cli_end(struct gb_cli *cli);

/* After an error: whether a request is to be made once more, because its session has another owner now. The fleet has
 * been asked again then, and cli->client is another one. True once in a run. */
bool gb_cli_again(struct gb_cli *cli);

/* Waits that long before a request is repeated, or until an interrupt. False: one came. */
bool gb_cli_pause(struct gb_cli *cli, double seconds);

/* The token that a file has in its first line, malloc'd. NULL with the reason. */
char *gb_cli_read_token(const char *path, const char **ret_why);

/* All of a file, and a NUL behind it; %h in the path stands for the host. The caller's. NULL with errno. */
char *gb_cli_read_file(const struct gb_cli *cli, const char *path, size_t *ret_bytes);

/* Makes a client: url and socket NULL for those of the options. */
int gb_cli_open(struct gb_cli *cli, const char *url, const char *socket, gpubuf_client **ret);

/* Path with %h replaced by the host of --hosts, malloc'd. */
char *gb_cli_host_path(const struct gb_cli *cli, const char *path);

/* Opens a client that gives one node no more than a few seconds. 0, or -1 with cli->error. */
int gb_cli_fleet_open(struct gb_cli *cli, const char *url, gpubuf_client **ret);

/* Says what went wrong, from cli->error. The exit status, so that commands can return it. */
int gb_cli_failed(struct gb_cli *cli);
/* Whether cli->error is that the owner of the session, which the fleet has named, cannot be reached. */
bool gb_cli_is_of_owner(const struct gb_cli *cli);
/* The same of an error that only this program can detect. */
int gb_cli_refused(struct gb_cli *cli, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Sets cli->error without a word. -1. */
int gb_cli_error(struct gb_cli *cli, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
int gb_cli_status_of(const struct gpubuf_error *err);

/* "[SESSION/]NAME" in two; session is that of cli where none is given. */
struct gb_cli_name {
    char session[GPUBUF_NAME_SIZE];
    char name[GPUBUF_NAME_SIZE];
};
/* -1 with cli->error set when it cannot be a name. */
int gb_cli_name(struct gb_cli *cli, const char *text, struct gb_cli_name *ret);

/* The letters of names; the first is a letter or a digit. */
#define GB_CLI_NAME_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

/* Whether the daemon takes text as the name of a buffer: of what is to be known before anything is sent. */
bool gb_cli_is_name(const char *text);

/* The same of a command that takes one buffer and no pattern: -1 with cli->error set, which says so, when text has a
 * shell's wildcards or a comma. */
int gb_cli_one_name(struct gb_cli *cli, const char *text, struct gb_cli_name *ret);

/* The target of a buffer, "[SESSION/]NAME", with what comes behind its name. -1 with cli->error set. */
int gb_cli_buffer_target(struct gb_cli *cli, const char *text, const char *action, char *ret);

/* Whether text has a shell's wildcards. */
bool gb_cli_is_pattern(const char *text);

#define GB_CLI_QUERY 1024 /* longest query of gb_cli_matching(), with its NUL */

/* The buffers that match "[SESSION/]NAME", whose parts may have wildcards, each with its session; "SESSION/" all of
 * one. query: what else picks and orders them in each session, "&state=ready", or "". NULL with cli->error set. The
 * caller's. */
json_t *gb_cli_matching(struct gb_cli *cli, const char *pattern, const char *query);

/* Says that no buffer is meant by a name or a pattern. GB_CLI_NOT_FOUND. */
int gb_cli_none_matches(struct gb_cli *cli, const char *pattern);

/* Asks on the terminal before buffers of several sessions change, unless --yes is given; without a terminal it refuses.
 * what: "delete". The exit status of what was said, GB_CLI_DONE to continue. */
int gb_cli_confirm(struct gb_cli *cli, int argc, char **argv, const char *what);

/* Calls one for each NAME, and for each buffer that a NAME with a shell's wildcards matches; one says what went wrong.
 * All are tried. The exit status of the first that failed. */
typedef int gb_cli_buffer_fn(struct gb_cli *cli, const char *text, void *arg);
int gb_cli_each_buffer(struct gb_cli *cli, int argc, char **argv, gb_cli_buffer_fn *one, void *arg);

/* A target from a format in which {} stands for the next text, escaped. -1 with cli->error set when it is too long. */
int gb_cli_target(struct gb_cli *cli, char *ret, const char *format, ...);

/* A request; the answer's JSON, an empty object without a body (204, 304). body is taken over, NULL sends none.
 * NULL with cli->error set. The caller's. */
json_t *gb_cli_request(struct gb_cli *cli, const char *method, const char *target, json_t *body);
/* The same of a POST, whose body gets the settings that were given. */
json_t *gb_cli_post(struct gb_cli *cli, const char *target, json_t *body);
json_t *gb_cli_request_with(struct gb_cli *cli, const char *method, const char *target, const char *header,
                            json_t *body);

/* gb_cli_post() of what may take long: waits for the operation that it becomes, and gives its result. */
json_t *gb_cli_request_long(struct gb_cli *cli, const char *target, json_t *body);

/* POST to a route that waits for work of the device. Asks again until --timeout as long as that has not ended. The
 * answer as of gb_cli_request(). */
json_t *gb_cli_sync(struct gb_cli *cli, const char *target);

/* The result of an operation, once it has ended. NULL with cli->error set. The caller's. */
json_t *gb_cli_result(struct gb_cli *cli, const char *id);

/* All items of a list, over all its pages; and of one that has none. */
json_t *gb_cli_list(struct gb_cli *cli, const char *target);
json_t *gb_cli_items(struct gb_cli *cli, const char *target);

/* Prints a value: as JSON with --json, else by the columns or, without these, as details. Takes it over. */
int gb_cli_show(struct gb_cli *cli, json_t *value, const struct gb_cli_column *columns, size_t count);

/* The same of a buffer after a write: one line. */
int gb_cli_show_buffer(struct gb_cli *cli, json_t *buffer);

/* Takes the whole terminal, without echo and lines, and gives it back; top's and the signals'. */
void gb_cli_terminal_take(struct gb_cli *cli);
void gb_cli_terminal_give_back(struct gb_cli *cli);

/* Whether progress is to be drawn. */
bool gb_cli_draws(const struct gb_cli *cli);

/* --- what to do about an error ------------------------------------------------------------------------------------ */

/* The sentence of hints.def for cli->error, or NULL. Static. */
const char *gb_cli_hint(const struct gb_cli *cli);

/* The daemon's own problem document where there was one, with all its members; else one made of cli->error. The
 * caller's. */
json_t *gb_cli_problem(const struct gb_cli *cli);

/* Keeps that document while further requests are made, for when cli->error is set back. */
void gb_cli_keep_problem(struct gb_cli *cli);

/* --- signals: the first breaks off the request that is under way, the second ends the process --------------------- */

struct gb_cli_signals {
    struct gb_cli *cli;
    pthread_t thread;
    sigset_t before;
};

/* Those that end the program here. */
void gb_cli_signals_fatal(sigset_t *ret);

/* Blocks them until gb_cli_begin(), so that one that comes early is not lost and not fatal. */
void gb_cli_signals_block(void);

/* --- settings: what the options say, as members of a request ------------------------------------------------------ */

/* Each sets members of body. -1 with cli->error set when a value cannot be meant. */
int gb_cli_settings(struct gb_cli *cli, json_t *body); /* those of GB_CLI_SETTING; the next three call it */
int gb_cli_session_settings(struct gb_cli *cli, json_t *body);
int gb_cli_pool_settings(struct gb_cli *cli, json_t *body);
int gb_cli_buffer_settings(struct gb_cli *cli, json_t *body);
int gb_cli_label_settings(struct gb_cli *cli, json_t *body);

/* A device by its index, a number, or by its UUID. */
json_t *gb_cli_device(const char *device);

/* --- times: how long a transfer waited and copied, on standard error with --verbose ------------------------------- */

/* Of the request whose answer the client has. */
void gb_cli_times_put(const struct gb_cli *cli);

/* Of a download of that many bytes, which was the client's last call. The reply's header leaves before a large download
 * has ended, so the daemon is asked for the rest. */
void gb_cli_times_get(struct gb_cli *cli, const struct gb_cli_name *name, uint64_t bytes);

/* --- commands ----------------------------------------------------------------------------------------------------- */

#define GB_CLI_COMMAND(name, arguments, least, most, help) int gb_cli_run_##name(struct gb_cli *, int, char **);
#include "cli/commands.def"
#undef GB_CLI_COMMAND

/* --- many hosts --------------------------------------------------------------------------------------------------- */

#define GB_CLI_HOST_OUTPUT (16 * 1024 * 1024) /* bytes of each of a host's two outputs that are kept */

struct gb_cli_section;

struct gb_cli_text {
    char *data; /* NUL-terminated */
    size_t bytes;
    bool cut;
};

struct gb_cli_host {
    char *name; /* as it stands in the list */
    char *url;
    const struct gb_cli_section *section; /* of the configuration file, which has a host of that name; NULL: not */
    pid_t pid;                            /* 0: not started */
    int fds[2];                           /* its standard output and error, -1 when at the end */
    struct gb_cli_text out[2];            /* what came from them */
    double end;                           /* it is killed then */
    bool timed_out;
    bool ended;
    int status;
};

struct gb_cli_hosts {
    struct gb_cli_host *items;
    size_t count;
};

/* Reads a list, "a,b:7071,http://c:80,unix:///s", or the file of that name, a host a line. -1 when it cannot be read;
 * *ret_why says why. 0 hosts are no error here. */
int gb_cli_hosts_read(const char *text, struct gb_cli_hosts *ret, const char **ret_why);
void gb_cli_hosts_done(struct gb_cli_hosts *hosts);

/* --- doctor ------------------------------------------------------------------------------------------------------- */

/* Whether the host of the URL is this machine: a loopback address, or one of an interface. */
bool gb_cli_doctor_is_here(const char *url);

#endif
