#include "daemon/tls_cmd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/command.h"
#include "daemon/state_dir.h"
#include "tls/show.h"

#define DAYS 825

enum verb { INIT, SERVER, CLIENT, RENEW, SHOW, VERBS };

static const struct gb_command_verb helps[VERBS] = {
    [INIT] = {"init [--name NAME]... [--ip ADDR]... [--client NAME] [OPTION...]",
              "Makes a private authority and the server's certificate, for these names and all of this machine, and "
              "prints what the "
              "daemon and its clients take then"},
    [SERVER] = {"server NAME [--name NAME]... [--ip ADDR]... [OPTION...]",
                "Makes another server's certificate, servers/NAME.pem, for these names alone or for NAME"},
    [CLIENT] = {"client NAME [OPTION...]", "Makes a client's certificate, clients/NAME.pem, with the subject CN=NAME"},
    [RENEW] = {"renew [--name NAME]... [--ip ADDR]... [--only] [OPTION...]",
               "Makes the server's certificate again with the same key, for the names that it had and these"},
    [SHOW] = {"show FILE", "Prints what stands in each certificate of a file"},
};

#define SIGNS (1u << INIT | 1u << SERVER | 1u << CLIENT | 1u << RENEW)
#define NAMED (1u << INIT | 1u << SERVER | 1u << RENEW)

static const enum gb_option_id of_daemon[] = {GB_OPTION_ID_state_dir, GB_OPTION_ID_config};

/* --- the command line --------------------------------------------------------------------------------------------- */

static int set_dir(struct gb_tls_command *command, const char *value, struct gb_error *err) {
    free(command->dir);
    command->dir = strdup(value);
    if (command->dir == NULL)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    return value[0] != '\0' ? 0 : gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--dir is a folder");
}

static int set_days(struct gb_tls_command *command, const char *value, struct gb_error *err) {
    char *end;
    unsigned long days = strtoul(value, &end, 10);

    if (value[0] < '0' || value[0] > '9' || *end != '\0' || days < 1 || days > GB_TLS_DAYS_MAX)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--days \"%.64s\" is no number from 1 to %d", value,
                            GB_TLS_DAYS_MAX);
    command->days = (uint32_t)days;
    return 0;
}

static int set_name(struct gb_tls_command *command, const char *value, struct gb_error *err) {
    return gb_tls_names_add_host(&command->names, value, err);
}

static int set_address(struct gb_tls_command *command, const char *value, struct gb_error *err) {
    return gb_tls_names_add_address(&command->names, value, err);
}

static int set_client(struct gb_tls_command *command, const char *value, struct gb_error *err) {
    (void)err;
    command->client = value;
    return 0;
}

static int set_only(struct gb_tls_command *command, const char *value, struct gb_error *err) {
    (void)value;
    (void)err;
    command->only = true;
    return 0;
}

static int set_renew(struct gb_tls_command *command, const char *value, struct gb_error *err) {
    (void)value;
    (void)err;
    command->renew = true;
    return 0;
}

static const struct gb_command_option owns[] = {
    {"--dir", "DIR", "the folder of the authority; default: tls in the state directory", SIGNS},
    {"--name", "NAME", "a host name that the certificate is for; may be repeated", NAMED},
    {"--ip", "ADDR", "an address that it is for; may be repeated", NAMED},
    {"--days", "N", "how long it is good, from 1 to 3650 (default 825)", SIGNS},
    {"--client", "NAME", "makes a client's certificate as well", 1u << INIT},
    {"--renew", "", "makes the one that is there again, with the same key", 1u << SERVER | 1u << CLIENT},
    {"--only", "", "the names that it had and that are not given go", 1u << SERVER | 1u << RENEW},
};

/* In the order of owns. */
static int (*const setters[])(struct gb_tls_command *command, const char *value, struct gb_error *err) = {
    set_dir, set_name, set_address, set_days, set_client, set_renew, set_only};

static const struct gb_command about = {.word = "tls",
                                        .verbs = helps,
                                        .verb_count = VERBS,
                                        .options = owns,
                                        .option_count = sizeof owns / sizeof owns[0],
                                        .of_daemon = of_daemon,
                                        .of_daemon_count = sizeof of_daemon / sizeof of_daemon[0]};

/* What was read, besides the values. */
struct reading {
    struct gb_tls_command *command;
    unsigned given; /* of owns, 1u << each */
};

static int verb_of(const struct gb_tls_command *command) {
    int i;

    for (i = 0; i < VERBS && command->count > 0; i++) {
        size_t n = strcspn(helps[i].usage, " ");

        if (strlen(command->words[0]) == n && memcmp(helps[i].usage, command->words[0], n) == 0)
            return i;
    }
    return GB_COMMAND_ALL;
}

/* One of the command's own options, with its value. Returns 1, 0 if it is none, or -1. */
static int take_own(struct reading *r, int argc, char **argv, int *at, struct gb_error *err) {
    int own = gb_command_find(&about, argv[*at]);
    bool valued = own >= 0 && owns[own].argument[0] != '\0';

    if (own < 0)
        return 0;
    if (valued && *at + 1 == argc)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%s needs a value", owns[own].name);
    if (valued && gb_command_check(&owns[own], argv[*at + 1], err) != 0)
        return -1;
    r->given |= 1u << own;
    *at += 1 + valued;
    return setters[own](r->command, argv[*at - 1], err) == 0 ? 1 : -1;
}

/* The words of the command and its own options; the daemon's options may stand among them. */
static int read_words(struct gb_options *options, int argc, char **argv, struct reading *r, struct gb_error *err) {
    struct gb_tls_command *ret = r->command;
    int at = 1;

    while (at < argc) {
        int taken = take_own(r, argc, argv, &at, err);

        if (taken == 0)
            taken = gb_command_take(&about, verb_of(ret), options, argc, argv, &at, err);
        if (taken < 0)
            return -1;
        if (taken == 0) {
            if (ret->count == 2)
                return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "tls: one word too many: \"%.64s\"", argv[at]);
            ret->words[ret->count++] = argv[at++];
        }
    }
    return 0;
}

/* --- where -------------------------------------------------------------------------------------------------------- */

static char *below(const char *dir, const char *name) {
    char *path = NULL;

    return asprintf(&path, "%s/%s", dir, name) < 0 ? NULL : path;
}

int gb_tls_paths_init(struct gb_tls_paths *paths, const char *dir, struct gb_error *err) {
    *paths = (struct gb_tls_paths){below(dir, "authority"),  below(dir, "authority/ca.key"), below(dir, "ca.pem"),
                                   below(dir, "server.key"), below(dir, "server.pem"),       below(dir, "servers"),
                                   below(dir, "clients")};
    if (paths->authority_folder != NULL && paths->authority_key != NULL && paths->authority != NULL &&
        paths->server_key != NULL && paths->server != NULL && paths->servers != NULL && paths->clients != NULL)
        return 0;
    gb_tls_paths_done(paths);
    return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
}

void gb_tls_paths_done(struct gb_tls_paths *paths) {
    free(paths->authority_folder);
    free(paths->authority_key);
    free(paths->authority);
    free(paths->server_key);
    free(paths->server);
    free(paths->servers);
    free(paths->clients);
    *paths = (struct gb_tls_paths){0};
}

/* Without --dir: the folder tls of the state directory, which init makes. */
static int find_dir(struct gb_tls_command *command, const struct gb_options *options, bool makes,
                    struct gb_error *err) {
    char *state_dir;

    if (command->dir != NULL)
        return 0;
    state_dir = makes ? gb_state_dir(options->state_dir, err) : gb_state_dir_find(options->state_dir, err);
    if (state_dir == NULL)
        return -1;
    command->dir = gb_state_path(state_dir, "tls");
    free(state_dir);
    return command->dir != NULL ? 0 : gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
}

/* --- commands ----------------------------------------------------------------------------------------------------- */

static int show(const struct gb_tls_command *command, struct gb_error *err) {
    return gb_tls_show(stdout, command->words[1], gb_wall_us() / 1000000, err);
}

static const struct {
    size_t words; /* with its own */
    int (*run)(const struct gb_tls_command *command, struct gb_error *err);
} verbs[VERBS] = {[INIT] = {1, gb_tls_init},
                  [SERVER] = {2, gb_tls_server},
                  [CLIENT] = {2, gb_tls_client},
                  [RENEW] = {1, gb_tls_renew},
                  [SHOW] = {2, show}};

static int check(const struct reading *r, int verb, struct gb_error *err) {
    const struct gb_tls_command *command = r->command;
    size_t i;

    if (verb < 0 || verbs[verb].words != command->count)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "tls: permitted: init, server NAME, client NAME, renew, show FILE");
    for (i = 0; i < sizeof owns / sizeof owns[0]; i++) {
        if ((r->given & 1u << i) != 0 && (owns[i].verbs & 1u << verb) == 0)
            return gb_command_unknown(&about, verb, owns[i].name, err);
    }
    if (command->only && (command->names.count == 0 || (verb == SERVER && !command->renew)))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "--only goes with --name or --ip, for a certificate that is made again");
    return 0;
}

static enum gb_exit run(struct gb_options *options, int argc, char **argv, struct gb_tls_command *command) {
    struct reading reading = {.command = command};
    struct gb_error err = GB_ERROR_INIT;
    int verb;

    if (read_words(options, argc, argv, &reading, &err) != 0)
        return gb_command_usage_error(&about, &err);
    verb = verb_of(command);
    if (options->help) {
        gb_command_help(stdout, &about, verb);
        return GB_EXIT_OK;
    }
    if (check(&reading, verb, &err) != 0 || gb_options_finish(options, &err) != 0)
        return gb_command_usage_error(&about, &err);
    if (command->days == 0)
        command->days = DAYS;
    command->state_dir = options->state_dir;
    if ((verb == SHOW || find_dir(command, options, verb == INIT, &err) == 0) && verbs[verb].run(command, &err) == 0)
        return GB_EXIT_OK;
    fprintf(stderr, "gpubufd: %s\n", err.detail);
    return err.code == GB_ERR_INVALID_ARGUMENT || err.code == GB_ERR_INVALID_NAME ? GB_EXIT_USAGE : GB_EXIT_SOFTWARE;
}

enum gb_exit gb_tls_command(struct gb_options *options, int argc, char **argv) {
    struct gb_tls_command command = {.count = 0};
    enum gb_exit status = run(options, argc, argv, &command);

    gb_tls_names_done(&command.names);
    free(command.dir);
    return status;
}
